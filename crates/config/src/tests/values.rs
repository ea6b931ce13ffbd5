//! What is written arrives in the settings.

use super::sound;
use crate::{DeadLetterCompat, DeadLetterSettings, Listener, Password, Protocol, SecurityMode, User};
use postroad_model::settings::{
    AckPolicy, BrokerSettings, ChannelSettings, JoinRole, JoinSettings, LateCopies, NamedObjectSettings,
    OnBlock, OnDefinitionChange, PublishKey, PublisherDedupe, QueueSettings, Retention, Start, StoreType,
    Takeover, UnknownKind,
};

#[test]
fn an_empty_file_means_the_defaults() {
    let config = sound("");
    assert_eq!(config.broker, BrokerSettings { name: "A".into(), ..BrokerSettings::default() });
    assert_eq!(config.listeners, Listener::loopback());
    assert_eq!(config.security.mode, SecurityMode::Open);
    assert!(!config.development);
}

#[test]
fn every_key_of_the_broker_arrives() {
    let config = sound(
        r#"
        [broker]
        name = "eu/1"
        data_dir = "/var/lib/postroad"
        dead_letter_queue = "DEAD"
        unknown_kind = "topic"
        max_message_size = "4MiB"
        max_window = 100
        spool_max_events = 10
        spool_max_bytes = 1_000
        max_scheduled = 11
        max_topic_bytes = 512
        max_levels = 16
        dlq_expose_properties = true
        dlq_compat = "artemis"
        [auto_create]
        enabled = true
        match = ["temp.>"]
        [storage]
        segment_size = "16MiB"
        checkpoint_every = "32MiB"
        [limits]
        max_connections = 1
        max_sessions = 2
        max_links = 3
        max_frame_size = 512
        idle_timeout = "4s"
        login_timeout = 5
        memory = "6MiB"
        cache = "7MiB"
        [log]
        level = "debug"
        [[user]]
        name = "u"
        password_env = "U"
        [[listener]]
        protocol = "http"
        address = "[::1]"
    "#,
    );
    let dead_letters = DeadLetterSettings { expose_properties: true, compat: DeadLetterCompat::Artemis };
    assert_eq!(config.dead_letters, dead_letters);
    // How much a piece of a job does is no setting, and [defaults] have a test of their own.
    let broker = BrokerSettings {
        name: "eu/1".into(),
        dead_letter_queue: "DEAD".into(),
        unknown_kind: UnknownKind::Topic,
        max_message_size: 4 << 20,
        max_window: 100,
        auto_create_queues: vec!["temp.>".into()],
        auto_create_channels: Vec::new(),
        spool_max_events: 10,
        spool_max_bytes: 1_000,
        max_scheduled: 11,
        memory: 6 << 20,
        cache: 7 << 20,
        max_topic_bytes: 512,
        max_levels: 16,
        ..BrokerSettings::default()
    };
    assert_eq!(config.broker, broker);
    assert_eq!(config.data_dir.to_str(), Some("/var/lib/postroad"));
    assert_eq!((config.storage.segment_size, config.storage.checkpoint_every), (16 << 20, 32 << 20));
    let limits = &config.limits;
    assert_eq!((limits.max_connections, limits.max_sessions, limits.max_links), (1, 2, 3));
    assert_eq!((limits.max_frame_size, limits.idle_timeout, limits.login_timeout), (512, 4_000, 5));
    assert_eq!(config.log.level.as_str(), "debug");
    assert_eq!(config.security.mode, SecurityMode::Secure, "users are there to be asked for");
    assert_eq!(config.users, [User { name: "u".into(), password: Password::Environment("U".into()) }]);
    assert_eq!(config.listeners, [Listener { protocol: Protocol::Http, host: "::1".into(), port: 8161 }]);
}

#[test]
fn every_key_of_a_channel_arrives() {
    let config = sound(
        r#"
        [[channel]]
        name = "\\rates//local"
        type = "reliable"
        ttl = "1h"
        capacity = 1_000_000
        honour_capacity = false
        retention = "interest"
        dead_event_store = "DLQ"
        publish_keys = [{ name = "ISIN" }]
        scope = "local"
        first_event_id = 100
        publisher_dedupe = "message-id"
        publisher_dedupe_window = 60000
        dedupe = { min_ids = 5, min_age = "1d", late = "accept" }
        expose_origin = false
        max_message_size = "1KiB"
    "#,
    );
    let settings = ChannelSettings {
        store_type: StoreType::Reliable,
        ttl: 3_600_000,
        capacity: 1_000_000,
        honour_capacity: false,
        retention: Retention::Interest,
        dead_event_store: Some("DLQ".into()),
        publish_keys: vec![PublishKey { name: "ISIN".into(), depth: 1 }],
        first_event_id: 100,
        publisher_dedupe: PublisherDedupe::MessageId,
        publisher_dedupe_window: 60_000,
        dedupe: postroad_model::settings::DedupeSettings {
            min_ids: 5,
            min_age: 86_400_000,
            late: LateCopies::Accept,
        },
        expose_origin: false,
        max_message_size: 1_024,
        ..ChannelSettings::default()
    };
    assert_eq!(config.channels[0].name, "rates/local");
    assert_eq!(config.channels[0].settings, settings);
}

/// What the queue of the next test says, over the defaults.
fn every_queue_setting() -> QueueSettings {
    let mut queue = QueueSettings {
        store_type: StoreType::Persistent,
        ttl: 60_000,
        capacity: 7,
        honour_capacity: false,
        dead_event_store: Some("DLQ".into()),
        expiry_queue: Some("DLQ".into()),
        expiry_default: 2_000,
        expiry_min: 3_000,
        expiry_max: 4_000,
        no_expiry: true,
        exclusive: true,
        max_priority: 0,
        ..QueueSettings::default()
    };
    queue.redelivery.redelivery_delay = 1_000;
    queue.redelivery.redelivery_multiplier = 2.0;
    queue.redelivery.max_redelivery_delay = Some(9_000);
    queue.redelivery.redelivery_spread = 0.5;
    queue.redelivery.max_delivery_attempts = -1;
    queue.redelivery.dead_letter_queue = Some("DLQ".into());
    queue.redelivery.dead_letter_per_source = true;
    queue.redelivery.persist_count_before_delivery = true;
    queue
}

#[test]
fn every_key_of_a_queue_and_an_object_arrives_over_the_defaults() {
    let config = sound(
        r#"
        [defaults.queue]
        ttl = "1m"
        redelivery_delay = "5s"
        [defaults.named_object]
        persistent = false
        [[queue]]
        name = "q"
        type = "persistent"
        capacity = 7
        honour_capacity = false
        dead_event_store = "DLQ"
        expiry_queue = "DLQ"
        expiry_default = "2s"
        expiry_min = "3s"
        expiry_max = "4s"
        no_expiry = true
        exclusive = true
        max_priority = 0
        redelivery_delay = "1s"
        redelivery_multiplier = 2
        max_redelivery_delay = "9s"
        redelivery_spread = 0.5
        max_delivery_attempts = -1
        dead_letter_queue = "DLQ"
        dead_letter_per_source = true
        persist_count_before_delivery = true
        [[channel]]
        name = "c"
        [[channel.named_object]]
        name = "o"
        start_event_id = 0
        selector = "a = 1"
        no_local = true
        ack_policy = "individual"
        consumer_takeover = "steal"
        on_definition_change = "refuse"
        max_delivery_attempts = 3
    "#,
    );
    assert_eq!(config.queues[0].settings, every_queue_setting());
    let mut object = NamedObjectSettings {
        persistent: false,
        start_event_id: Start::Oldest,
        selector: Some("a = 1".into()),
        no_local: true,
        ack_policy: Some(AckPolicy::Individual),
        consumer_takeover: Takeover::Steal,
        on_definition_change: OnDefinitionChange::Refuse,
        ..NamedObjectSettings::default()
    };
    object.redelivery.max_delivery_attempts = 3;
    assert_eq!(config.channels[0].named_objects[0].settings, object);
}

#[test]
fn every_key_of_a_join_arrives() {
    let config = sound(
        r#"
        channel = [{ name = "a" }, { name = "b" }]
        [[join]]
        name = "primary"
        source = "channel://a"
        destination = "b"
        [[join]]
        name = "second"
        source = "/a"
        destination = "queue:///DLQ"
        max_hops = 0
        filter = "x LIKE 'y%'"
        archive = true
        propagate_purge = true
        via = "auto"
        start = 17
        allow_missing = true
        enabled = false
        split_horizon = false
        on_block = "backpressure"
        role = "standby"
        standby_for = "primary"
        standby_delay = "2s"
        batch = 10
        in_flight = 20
    "#,
    );
    assert_eq!((config.joins[0].name.as_str(), config.joins[0].settings.max_hops), ("primary", 10));
    let settings = JoinSettings {
        source: "a".into(),
        destination: "queue:///DLQ".into(),
        max_hops: 0,
        filter: Some("x LIKE 'y%'".into()),
        archive: true,
        propagate_purge: true,
        via: "auto".into(),
        start: Start::At(17),
        allow_missing: true,
        enabled: false,
        split_horizon: false,
        on_block: OnBlock::Backpressure,
        role: JoinRole::Standby,
        standby_for: Some("primary".into()),
        standby_delay: 2_000,
        batch: 10,
        in_flight: 20,
    };
    assert_eq!(config.joins[1].settings, settings);
    assert_eq!(config.joins[0].settings.source, "a");
    assert_eq!((config.joins[0].enabled, config.joins[1].enabled), (None, Some(false)));
}
