//! What there is to work with: stores, named objects and joins by name, and settings as chance chooses them. A name is used
//! once: what is made anew has a new one, so that nothing is taken for its predecessor.

use crate::client::selector;
use crate::messages::COLOURS;
use crate::random::Random;
use postroad_engine::admin::Request;
use postroad_model::settings::{
    AckPolicy, ChannelSettings, DedupeSettings, JoinRole, JoinSettings, NamedObjectSettings, PublishKey,
    PublisherDedupe, QueueSettings, RedeliverySettings, Retention, Start, StoreType, Takeover,
};

/// Names that are in use.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Queues.
    pub queues: Vec<String>,
    /// Channels.
    pub channels: Vec<String>,
    /// Native named objects, with their channels.
    pub objects: Vec<(String, String)>,
    /// Joins with their settings.
    pub joins: Vec<(String, JoinSettings)>,
    made: u64,
}

impl Catalogue {
    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    /// A queue of its own for what is special: `fire` and `archive` and `grave`.
    pub fn special(&mut self) -> Vec<Request> {
        // The dead event store gets full, so that the dead-letter queue has to stand in for it.
        [("fire", 0), ("archive", 0), ("grave", 30)]
            .map(|(name, capacity)| Request::PutQueue {
                name: name.into(),
                settings: QueueSettings { capacity, ..QueueSettings::default() },
                configured: false,
            })
            .into()
    }

    /// A new queue.
    pub fn queue(&mut self, random: &mut Random) -> Request {
        let name = self.name("queue");
        self.queues.push(name.clone());
        Request::PutQueue { name, settings: queue_settings(random), configured: false }
    }

    /// A new channel.
    pub fn channel(&mut self, random: &mut Random) -> Request {
        let name = self.name("channel");
        self.channels.push(name.clone());
        Request::PutChannel { name, settings: channel_settings(random), configured: false }
    }

    /// A new native named object.
    pub fn object(&mut self, random: &mut Random) -> Option<Request> {
        let channel = random.pick(&self.channels)?.clone();
        let name = self.name("object");
        self.objects.push((channel.clone(), name.clone()));
        Some(Request::CreateObject { channel, name, settings: object_settings(random), configured: false })
    }

    /// A new standby for one of the joins.
    pub fn standby(&mut self, random: &mut Random) -> Option<Request> {
        let (primary, settings) = random.pick(&self.joins)?.clone();
        if settings.archive || settings.role == JoinRole::Standby {
            return None;
        }
        let name = self.name("join");
        let settings = JoinSettings {
            role: JoinRole::Standby,
            standby_for: Some(primary),
            standby_delay: u32::try_from(random.below(60)).unwrap_or(0),
            ..settings
        };
        self.joins.push((name.clone(), settings.clone()));
        Some(Request::CreateJoin { name: Some(name), settings, configured: false })
    }

    /// A new join between channels, or from a channel to a queue.
    pub fn join(&mut self, random: &mut Random) -> Option<Request> {
        let source = random.pick(&self.channels)?.clone();
        let archive = random.one_in(6);
        let destination = match random.below(4) {
            _ if archive => "archive".to_owned(),
            0 => random.pick(&self.queues)?.clone(),
            _ => random.pick(&self.channels)?.clone(),
        };
        let name = self.name("join");
        let settings = JoinSettings {
            source,
            destination,
            archive,
            max_hops: u8::try_from(if random.one_in(2) { random.below(4) } else { 10 }).unwrap_or(10),
            filter: random.one_in(3).then(|| selector(random.index(COLOURS.len()))),
            propagate_purge: random.one_in(4),
            start: if random.one_in(2) { Start::Oldest } else { Start::New },
            split_horizon: !random.one_in(3),
            batch: u32::try_from(random.range(1, 20)).unwrap_or(1),
            ..JoinSettings::default()
        };
        self.joins.push((name.clone(), settings.clone()));
        Some(Request::CreateJoin { name: Some(name), settings, configured: false })
    }

    /// Where a message may go: mostly a channel.
    pub fn any_store(&self, random: &mut Random) -> Option<String> {
        let all = if random.one_in(3) { &self.queues } else { &self.channels };
        if random.one_in(20) { Some("fire".into()) } else { random.pick(all).cloned() }
    }
}

fn store_type(random: &mut Random) -> StoreType {
    match random.below(8) {
        0 => StoreType::Reliable,
        1 | 2 => StoreType::Persistent,
        _ => StoreType::Mixed,
    }
}

fn capacity(random: &mut Random) -> u32 {
    if random.one_in(4) { u32::try_from(random.range(1, 40)).unwrap_or(1) } else { 0 }
}

fn dedupe(random: &mut Random) -> (PublisherDedupe, u64) {
    let on = if random.one_in(2) { PublisherDedupe::MessageId } else { PublisherDedupe::Off };
    (on, u64::MAX / 4)
}

fn redelivery(random: &mut Random) -> RedeliverySettings {
    RedeliverySettings {
        max_delivery_attempts: if random.one_in(3) { 3 } else { 10 },
        redelivery_delay: if random.one_in(4) { random.range(1, 500) } else { 0 },
        redelivery_multiplier: 2.0,
        ..RedeliverySettings::default()
    }
}

/// Settings of a queue.
pub fn queue_settings(random: &mut Random) -> QueueSettings {
    let (publisher_dedupe, publisher_dedupe_window) = dedupe(random);
    QueueSettings {
        store_type: store_type(random),
        ttl: if random.one_in(8) { random.range(100, 5_000) } else { 0 },
        capacity: capacity(random),
        honour_capacity: !random.one_in(3),
        dead_event_store: random.one_in(4).then(|| "grave".into()),
        expiry_queue: random.one_in(6).then(|| "grave".into()),
        exclusive: random.one_in(8),
        max_priority: if random.one_in(2) { 9 } else { 0 },
        publisher_dedupe,
        publisher_dedupe_window,
        dedupe: DedupeSettings::default(),
        redelivery: redelivery(random),
        ..QueueSettings::default()
    }
}

/// Settings of a channel.
pub fn channel_settings(random: &mut Random) -> ChannelSettings {
    let (publisher_dedupe, publisher_dedupe_window) = dedupe(random);
    ChannelSettings {
        store_type: if random.one_in(8) { StoreType::Transient } else { store_type(random) },
        ttl: if random.one_in(8) { random.range(100, 5_000) } else { 0 },
        capacity: capacity(random),
        honour_capacity: !random.one_in(3),
        retention: if random.one_in(2) { Retention::Interest } else { Retention::Log },
        dead_event_store: random.one_in(4).then(|| "grave".into()),
        publish_keys: if random.one_in(8) {
            vec![PublishKey { name: "k".into(), depth: u32::try_from(random.range(1, 3)).unwrap_or(1) }]
        } else {
            Vec::new()
        },
        publisher_dedupe,
        publisher_dedupe_window,
        dedupe: DedupeSettings::default(),
        ..ChannelSettings::default()
    }
}

fn object_settings(random: &mut Random) -> NamedObjectSettings {
    NamedObjectSettings {
        start_event_id: if random.one_in(2) { Start::Oldest } else { Start::New },
        selector: random.one_in(4).then(|| selector(random.index(COLOURS.len()))),
        ack_policy: match random.below(3) {
            0 => Some(AckPolicy::Cumulative),
            1 => Some(AckPolicy::Individual),
            _ => None,
        },
        consumer_takeover: if random.one_in(2) { Takeover::Steal } else { Takeover::Refuse },
        redelivery: redelivery(random),
        ..NamedObjectSettings::default()
    }
}
