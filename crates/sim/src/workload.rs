//! What clients and operators do: one operation at a time, as chance chooses.

use crate::broker::Input;
use crate::catalogue::{Catalogue, channel_settings, queue_settings};
use crate::client::{Client, Place, Wanted};
use crate::messages::{COLOURS, NOTE};
use crate::world::World;
use postroad_amqp_codec::state::{DeliveryState, Outcome};
use postroad_amqp_codec::{AmqpError, Fields, Symbol, Value};
use postroad_engine::admin::{Request, Selection, StoreKind};
use postroad_model::settings::{ChannelSettings, JoinRole, QueueSettings};

/// One operation, by a client or by an operator.
pub fn operate(world: &mut World, names: &mut Catalogue) {
    world.tally.operations += 1;
    if world.random.one_in(40) {
        administer(world, names);
        return;
    }
    let seat = world.random.index(world.seats.len());
    let Some((client, _)) = world.seats.get(seat).and_then(|s| s.live.as_ref()) else {
        world.connect(seat);
        return;
    };
    if !client.is_ready() {
        return;
    }
    let (senders, receivers) = (client.senders.len(), client.receivers.len());
    match world.random.below(100) {
        _ if senders == 0 => attach_sender(world, names, seat),
        _ if receivers == 0 => attach_receiver(world, names, seat),
        0..=44 => publish(world, names, seat),
        45..=49 if senders < 4 => attach_sender(world, names, seat),
        50..=56 if receivers < 5 => attach_receiver(world, names, seat),
        57..=69 => credit(world, seat),
        70..=94 => settle(world, seat),
        95..=97 => leave(world, seat),
        98 => {
            let at = world.random.index(senders);
            if let Some((client, _)) = world.seats[seat].live.as_mut() {
                client.detach_sender(at);
            }
        }
        _ if world.random.one_in(10) => {
            let Some((client, _)) = world.seats[seat].live.as_mut() else { return };
            for (place, held) in client.close() {
                world.returned(&place, &held, true);
            }
        }
        _ => publish(world, names, seat),
    }
}

fn attach_sender(world: &mut World, names: &Catalogue, seat: usize) {
    let target = match world.random.below(12) {
        0 | 1 => None,
        2 => world.temporary_queue(),
        _ => names.any_store(&mut world.random),
    };
    world.note(|| format!("client-{seat} attaches a sender to {target:?}"));
    if let Some((client, _)) = world.seats.get_mut(seat).and_then(|s| s.live.as_mut()) {
        client.attach_sender(target.as_deref());
    }
}

fn publish(world: &mut World, names: &Catalogue, seat: usize) {
    let Some((client, _)) = world.seats.get(seat).and_then(|s| s.live.as_ref()) else { return };
    let at = world.random.index(client.senders.len());
    let Some(sender) = client.senders.get(at).filter(|sender| sender.attached) else { return };
    let (link, target) = (sender.link, sender.target.clone());
    for _ in 0..world.random.range(1, 6) {
        let named = if target.is_none() { names.any_store(&mut world.random) } else { None };
        let Some(store) = target.clone().or_else(|| named.clone()) else { return };
        let repeat = target.is_some() && world.random.one_in(15) && !world.messages.is_empty();
        let (number, bytes) = if repeat {
            let back = world.random.below(world.messages.len().min(30)) + 1;
            let number = world.messages.len() - back;
            let Some(bytes) = world.messages.again(number) else { return };
            (number, bytes)
        } else {
            let wall = world.now.wall;
            world.messages.make(&mut world.random, (seat, store.clone()), named.as_deref(), wall)
        };
        let settled = world.random.one_in(20);
        let Some((client, _)) = world.seats.get_mut(seat).and_then(|s| s.live.as_mut()) else { return };
        if !client.amqp.can_send(link) {
            return;
        }
        let sent = client.send(at, number, &store, bytes, settled);
        world.note(|| {
            format!("client-{seat} sends message {number} to {store} (sent: {sent}, settled: {settled})")
        });
    }
}

fn attach_receiver(world: &mut World, names: &Catalogue, seat: usize) {
    let Some(wanted) = wanted(world, names, seat) else { return };
    // A link of the same name would be taken over by the client itself, which gives back what it held.
    let has_it = |client: &Client| client.receivers.iter().any(|r| r.wanted.place == wanted.place);
    let durable = matches!(wanted.place, Place::Object(_, Some(_), _));
    if durable
        && world.seats.get(seat).and_then(|s| s.live.as_ref()).is_some_and(|(client, _)| has_it(client))
    {
        return;
    }
    world.note(|| format!("client-{seat} attaches a receiver: {wanted:?}"));
    let more = world.random.range(0, 20);
    if let Some((client, _)) = world.seats.get_mut(seat).and_then(|s| s.live.as_mut()) {
        client.attach_receiver(wanted);
        client.credit(client.receivers.len().saturating_sub(1), more, false);
    }
}

fn wanted(world: &mut World, names: &Catalogue, seat: usize) -> Option<Wanted> {
    let random = &mut world.random;
    let mut wanted = Wanted {
        place: Place::Queue(String::new()),
        colour: None,
        presettled: false,
        second: random.one_in(2),
        from_oldest: false,
        no_local: false,
    };
    wanted.place = match random.below(13) {
        12 => Place::Temporary,
        0..=4 => {
            wanted.colour = random.one_in(4).then(|| random.index(COLOURS.len()));
            Place::Queue(random.pick(&names.queues)?.clone())
        }
        5 => {
            wanted.presettled = true;
            wanted.second = false;
            Place::Queue("fire".into())
        }
        6 => Place::Browser(random.pick(&names.queues)?.clone()),
        7 => {
            wanted.colour = random.one_in(3).then(|| random.index(COLOURS.len()));
            wanted.no_local = random.one_in(3);
            Place::Volatile(random.pick(&names.channels)?.clone())
        }
        8 | 9 => {
            let channel = random.pick(&names.channels)?.clone();
            let client = world.seats.get(seat)?.id.clone();
            wanted.from_oldest = random.one_in(2);
            // The definition is part of the name, so that an attach never defines anew what another made.
            let colour = random.index(COLOURS.len() + 2);
            wanted.colour = Some(colour).filter(|&colour| colour < COLOURS.len());
            let turn = random.below(3);
            wanted.no_local = turn == 2;
            let name = format!("sub-{channel}-{colour}-{turn}");
            Place::Object(channel, Some(client), name)
        }
        _ => {
            let (channel, name) = random.pick(&names.objects)?.clone();
            wanted.colour = random.one_in(4).then(|| random.index(COLOURS.len()));
            Place::Object(channel, None, name)
        }
    };
    Some(wanted)
}

fn credit(world: &mut World, seat: usize) {
    let (more, drain) = (world.random.range(0, 30), world.random.one_in(8));
    let Some((client, _)) = world.seats.get_mut(seat).and_then(|s| s.live.as_mut()) else { return };
    let at = world.random.index(client.receivers.len());
    client.credit(at, more, drain);
}

fn settle(world: &mut World, seat: usize) {
    let Some((client, _)) = world.seats.get(seat).and_then(|s| s.live.as_ref()) else { return };
    let at = world.random.index(client.receivers.len());
    let Some(receiver) = client.receivers.get(at) else { return };
    let (place, there) = (receiver.wanted.place.clone(), receiver.held.len());
    let state = outcome(world);
    let from = if world.random.one_in(3) { world.random.index(there) } else { 0 };
    let count = world.random.index(there) + 1;
    world.note(|| format!("client-{seat} settles up to {count} of {place:?}: {state:?}"));
    settle_range(world, seat, at, (from, count), &state);
}

/// Settles held deliveries of a receiver, and notes what that means.
pub fn settle_range(world: &mut World, seat: usize, at: usize, range: (usize, usize), state: &DeliveryState) {
    let Some((client, _)) = world.seats.get_mut(seat).and_then(|s| s.live.as_mut()) else { return };
    let Some(place) = client.receivers.get(at).map(|r| r.wanted.place.clone()) else { return };
    let note = match state {
        DeliveryState::Modified { message_annotations: Some(notes), .. } => {
            notes.get(NOTE).and_then(Value::as_u64)
        }
        _ => None,
    };
    for held in client.settle(at, range.0, range.1, state) {
        let event = held.event.filter(|_| matches!(place, Place::Object(..)));
        let item = event.unwrap_or(held.number);
        if let Some(note) = note {
            world.shadow.notes.entry(note).or_default().insert(held.number);
        }
        match state {
            DeliveryState::Accepted => {
                world.shadow.accepted.entry(place.clone()).or_default().insert(item);
            }
            DeliveryState::Rejected { .. } => {
                world.shadow.rejected.entry(place.clone()).or_default().insert(item);
            }
            _ => {
                let uncounted = !matches!(state, DeliveryState::Modified { delivery_failed: true, .. });
                let seen = world.shadow.seen.entry(place.clone()).or_default().entry(item).or_default();
                seen.excused |= uncounted;
                seen.returned = true;
            }
        }
    }
}

fn outcome(world: &mut World) -> DeliveryState {
    match world.random.below(20) {
        0 | 1 => DeliveryState::Released,
        2 => modified(world, true, false),
        3 => {
            let undeliverable_here = world.random.one_in(2);
            modified(world, false, undeliverable_here)
        }
        4 if world.random.one_in(3) => DeliveryState::Rejected {
            error: Some(AmqpError::new(Symbol::from_static("sim:no"), "not wanted")),
        },
        _ => DeliveryState::Accepted,
    }
}

fn modified(world: &mut World, delivery_failed: bool, undeliverable_here: bool) -> DeliveryState {
    let note = world.random.one_in(2).then(|| {
        let mut notes = Fields::new();
        notes.insert(Symbol::from_static(NOTE), world.shadow.notes.len() as u64);
        notes
    });
    let outcome = Outcome::Modified { delivery_failed, undeliverable_here, message_annotations: note };
    DeliveryState::from(outcome)
}

fn leave(world: &mut World, seat: usize) {
    let closed = world.random.one_in(4);
    let Some((client, _)) = world.seats.get_mut(seat).and_then(|s| s.live.as_mut()) else { return };
    let at = world.random.index(client.receivers.len());
    // Closing a durable subscription deletes it, and its name is not to be used again.
    let durable =
        client.receivers.get(at).is_some_and(|r| matches!(r.wanted.place, Place::Object(_, Some(_), _)));
    if let Some((place, held)) = client.detach(at, closed && !durable) {
        world.returned(&place, &held, true);
    }
    world.note(|| format!("client-{seat} detaches a receiver"));
}

/// One operation of an operator.
fn administer(world: &mut World, names: &mut Catalogue) {
    let request = match world.random.below(17) {
        0 if names.queues.len() < 6 => Some(names.queue(&mut world.random)),
        1 if names.channels.len() < 8 => Some(names.channel(&mut world.random)),
        2 | 3 if names.objects.len() < 8 => names.object(&mut world.random),
        4 | 5 if names.joins.len() < 14 => names.join(&mut world.random),
        6 if names.joins.len() < 14 => names.standby(&mut world.random),
        7 => alter(world, names),
        8 | 9 => purge(world, names),
        10 => pause(world, names),
        11 => alter_join(world, names),
        12 => delete(world, names),
        13 => cancel(world),
        14 => {
            let name = world.random.pick(&names.queues).cloned();
            name.map(|name| Request::ShowStore { kind: StoreKind::Queue, name })
        }
        _ => Some(Request::Status),
    };
    let Some(request) = request else { return };
    world.note(|| format!("operator: {request:?}").chars().take(300).collect());
    if let Some(broker) = &mut world.broker {
        broker.push(Input::Admin(Box::new(request)));
    }
}

fn alter(world: &mut World, names: &Catalogue) -> Option<Request> {
    let random = &mut world.random;
    if random.one_in(2) {
        let name = random.pick(&names.queues)?.clone();
        let kept = world.ledger.named(&name)?.queue()?.store_type;
        let settings = QueueSettings { store_type: kept, ..queue_settings(random) };
        Some(Request::PutQueue { name, settings, configured: false })
    } else {
        let name = random.pick(&names.channels)?.clone();
        let kept = world.ledger.named(&name)?.channel()?.store_type;
        let settings = ChannelSettings { store_type: kept, ..channel_settings(random) };
        Some(Request::PutChannel { name, settings, configured: false })
    }
}

fn purge(world: &mut World, names: &Catalogue) -> Option<Request> {
    let random = &mut world.random;
    let from = random.one_in(2).then(|| random.below(100));
    let filter = random.one_in(3).then(|| crate::client::selector(random.index(COLOURS.len())));
    let selection = Selection { from, to: from.map(|from| from + random.below(20)), filter };
    let (request, name) = match random.below(3) {
        0 => {
            let name = random.pick(&names.queues)?.clone();
            (Request::PurgeStore { kind: StoreKind::Queue, name: name.clone(), selection }, name)
        }
        1 => {
            let name = random.pick(&names.channels)?.clone();
            (Request::PurgeStore { kind: StoreKind::Channel, name: name.clone(), selection }, name)
        }
        _ => {
            let (channel, name) = random.pick(&names.objects)?.clone();
            let full = format!("{channel}::{name}");
            (Request::PurgeObject { channel, owner: None, name, selection }, full)
        }
    };
    world.shadow.purged.insert(name);
    Some(request)
}

/// Cancels a message that waits, or one that does not.
fn cancel(world: &mut World) -> Option<Request> {
    let stores = world.ledger.stores.values().filter(|store| !store.waiting.is_empty());
    let stores: Vec<_> = stores.map(|s| (s.name.clone(), s.queue().is_some(), s.last_number)).collect();
    let (name, is_queue, last) = world.random.pick(&stores)?.clone();
    let number = last.saturating_sub(world.random.below(4));
    world.shadow.cancelled.insert((name.clone(), number));
    let kind = if is_queue { StoreKind::Queue } else { StoreKind::Channel };
    Some(Request::CancelScheduled { kind, name, number })
}

fn pause(world: &mut World, names: &mut Catalogue) -> Option<Request> {
    let at = world.random.index(names.joins.len());
    let enabled = !world.random.one_in(3);
    let (name, settings) = names.joins.get_mut(at)?;
    settings.enabled = enabled;
    Some(Request::EnableJoin { name: name.clone(), enabled })
}

fn alter_join(world: &mut World, names: &mut Catalogue) -> Option<Request> {
    let at = world.random.index(names.joins.len());
    let filter = world.random.one_in(2).then(|| crate::client::selector(world.random.index(COLOURS.len())));
    let hops = u8::try_from(world.random.below(6)).unwrap_or(5);
    let (name, settings) = names.joins.get_mut(at)?;
    // A standby is to pass what its primary passes.
    if settings.role == JoinRole::Standby {
        return None;
    }
    settings.filter = filter;
    settings.max_hops = hops;
    Some(Request::AlterJoin { name: name.clone(), settings: settings.clone() })
}

fn delete(world: &mut World, names: &mut Catalogue) -> Option<Request> {
    let random = &mut world.random;
    match random.below(5) {
        0 if names.queues.len() > 3 => {
            let name = names.queues.swap_remove(random.index(names.queues.len()));
            Some(Request::DeleteStore { kind: StoreKind::Queue, name, cascade: true, force: true })
        }
        1 if names.channels.len() > 3 => {
            let name = names.channels.swap_remove(random.index(names.channels.len()));
            names.objects.retain(|(channel, _)| *channel != name);
            names.joins.retain(|(_, settings)| settings.source != name && settings.destination != name);
            Some(Request::DeleteStore { kind: StoreKind::Channel, name, cascade: true, force: true })
        }
        2 if !names.objects.is_empty() => {
            let (channel, name) = names.objects.swap_remove(random.index(names.objects.len()));
            Some(Request::DeleteObject { channel, owner: None, name, force: true })
        }
        _ if !names.joins.is_empty() => {
            let (name, _) = names.joins.swap_remove(random.index(names.joins.len()));
            Some(Request::DeleteJoin { name, drain: random.one_in(2) })
        }
        _ => None,
    }
}
