//! The end of a run: nothing disturbs any more, every join runs, consumers take everything. What can be delivered must be
//! delivered now, and a fresh message must reach what the joins lead to.

use crate::broker::Input;
use crate::check::{Violation, reach, recovery};
use crate::client::{Place, Wanted};
use crate::messages::MAX_DELAY_MS;
use crate::workload::settle_range;
use crate::world::World;
use postroad_amqp_codec::state::DeliveryState;
use postroad_engine::admin::{Request, Response};
use postroad_model::settings::{ChannelSettings, JoinSettings, QueueSettings, Retention};
use postroad_record::StoreDefinition;

/// Rounds after which a world that still has something to do has stopped making progress.
const ROUNDS: u64 = 3_000;

/// Heals the world and checks that it comes to rest with nothing left to deliver.
///
/// # Errors
/// The broken promise.
pub fn heal(world: &mut World) -> Result<(), Violation> {
    world.note(|| "healing begins".into());
    // Injected faults stay with the old folder's handle; the clean start has none.
    world.disk.set_capacity(None);
    world.crash()?;
    for seat in 0..world.seats.len() {
        world.lose(seat);
    }
    mend(world);
    settle_down(world)?;
    let time = world.now.wall.max(world.latest.wall) + 2 * MAX_DELAY_MS - world.now.wall;
    world.now.wall += time;
    world.now.mono += time;
    settle_down(world)?;
    probe(world)?;
    drain(world)?;
    world.disk_idle()?;
    let (Some(mut broker), now) = (world.broker.take(), world.now) else { return Ok(()) };
    let result = recovery::check_state(&mut broker, &world.ledger, now);
    world.broker = Some(broker);
    result?;
    world.crash()
}

/// Lifts limits, resumes joins, deletes those whose destination is gone.
fn mend(world: &mut World) {
    let mut requests = Vec::new();
    for store in world.ledger.stores.values() {
        let name = store.name.clone();
        requests.push(match &store.definition {
            StoreDefinition::Queue(settings) => {
                let settings = QueueSettings { capacity: 0, ttl: 0, ..settings.clone() };
                Request::PutQueue { name, settings, configured: false }
            }
            StoreDefinition::Channel(settings) => {
                let retention = Retention::Log;
                let publish_keys = Vec::new();
                let settings =
                    ChannelSettings { capacity: 0, ttl: 0, retention, publish_keys, ..settings.clone() };
                Request::PutChannel { name, settings, configured: false }
            }
        });
    }
    for join in world.ledger.joins.values() {
        let name = join.name.clone();
        requests.push(if world.ledger.named(&join.settings.destination).is_none() {
            Request::DeleteJoin { name, drain: false }
        } else {
            let settings = JoinSettings { enabled: true, ..join.settings.clone() };
            Request::AlterJoin { name, settings }
        });
    }
    if let Some(broker) = &mut world.broker {
        requests.into_iter().for_each(|request| broker.push(Input::Admin(Box::new(request))));
    }
}

/// Turns until nothing moves.
fn settle_down(world: &mut World) -> Result<(), Violation> {
    for round in 0..ROUNDS {
        let mut moved = world.turn(100, 500)?;
        world.disk_idle()?;
        for seat in 0..world.seats.len() {
            moved |= world.carry(seat)?;
        }
        let waiting = world.broker.as_ref().is_some_and(|broker| !broker.is_idle());
        // Chance may have moved nothing just now, so one quiet round proves nothing.
        if !moved
            && !waiting
            && round > 3
            && (0..8).try_fold(true, |quiet, _| still(world).map(|s| quiet && s))?
        {
            return Ok(());
        }
    }
    Err(Violation::new("progress", "the broker never comes to rest"))
}

fn still(world: &mut World) -> Result<bool, Violation> {
    let mut moved = world.turn(100, 500)?;
    for seat in 0..world.seats.len() {
        moved |= world.carry(seat)?;
    }
    Ok(!moved)
}

/// Publishes one message of each colour into each channel, and looks where it went.
fn probe(world: &mut World) -> Result<(), Violation> {
    let channels: Vec<(_, String)> = world
        .ledger
        .stores
        .iter()
        .filter(|(_, store)| store.channel().is_some())
        .map(|(&key, store)| (key, store.name.clone()))
        .collect();
    world.connect(0);
    settle_down(world)?;
    let mut probes = Vec::new();
    for (key, name) in channels {
        if let Some((client, _)) = world.seats[0].live.as_mut() {
            client.attach_sender(Some(&name));
        }
        settle_down(world)?;
        for colour in 0..3 {
            let (number, bytes) = world.messages.probe(colour);
            let Some((client, _)) = world.seats[0].live.as_mut() else { continue };
            let at = client.senders.len().saturating_sub(1);
            if client.send(at, number, &name, bytes, false) {
                probes.push((key, number));
            }
        }
        settle_down(world)?;
    }
    for (key, number) in probes {
        reach::check(&world.ledger, &world.messages, key, number)?;
    }
    Ok(())
}

/// Consumers take everything that there is.
fn drain(world: &mut World) -> Result<(), Violation> {
    let mut places: Vec<(Option<String>, Place)> = Vec::new();
    for store in world.ledger.stores.values().filter(|store| store.queue().is_some()) {
        places.push((None, Place::Queue(store.name.clone())));
    }
    for object in world.ledger.objects.values() {
        let Some(store) = world.ledger.stores.get(&object.store) else { continue };
        let place = Place::Object(store.name.clone(), object.owner.clone(), object.name.clone());
        places.push((object.owner.clone(), place));
    }
    for (owner, place) in places {
        drain_one(world, owner.as_deref(), &place)?;
    }
    // What expired meanwhile has moved to queues that were emptied before.
    for _ in 0..3 {
        let left = world.ledger.stores.values().filter(|s| s.queue().is_some() && !s.events.is_empty());
        for name in left.map(|s| s.name.clone()).collect::<Vec<_>>() {
            drain_one(world, None, &Place::Queue(name))?;
        }
    }
    for store in world.ledger.stores.values() {
        if let Some((number, waiting)) = store.waiting.iter().next() {
            let text =
                format!("message {} (number {number}) of '{}' waits for ever", waiting.number, store.name);
            return Err(Violation::new("progress", text));
        }
    }
    for store in world.ledger.stores.values().filter(|store| store.queue().is_some()) {
        if let Some((id, event)) = store.events.iter().next() {
            let text = format!(
                "'{}' keeps {} messages that nobody is given, such as message {} (event {id})",
                store.name,
                store.events.len(),
                event.number
            );
            return Err(Violation::new("progress", text));
        }
    }
    check_backlogs(world)
}

fn drain_one(world: &mut World, owner: Option<&str>, place: &Place) -> Result<(), Violation> {
    let seat = owner.and_then(|id| world.seats.iter().position(|s| s.id == id)).unwrap_or(0);
    if world.seats.get(seat).is_some_and(|s| s.live.is_none()) {
        world.connect(seat);
        settle_down(world)?;
    }
    // A durable subscription is found again only by its own definition.
    let colour = match place {
        Place::Object(_, Some(_), name) => {
            name.rsplit('-').nth(1).and_then(|colour| colour.parse().ok()).filter(|&colour| colour < 3_usize)
        }
        _ => None,
    };
    let no_local = matches!(place, Place::Object(_, Some(_), name) if name.ends_with("-2"));
    let wanted = Wanted {
        place: place.clone(),
        colour,
        presettled: false,
        second: false,
        from_oldest: false,
        no_local,
    };
    if let Some((client, _)) = world.seats[seat].live.as_mut() {
        client.attach_receiver(wanted);
    }
    settle_down(world)?;
    let mut idle = 0;
    while idle < 3 {
        let Some((client, _)) = world.seats[seat].live.as_mut() else { break };
        let at = client.receivers.len().saturating_sub(1);
        client.credit(at, 100, false);
        settle_down(world)?;
        let held = world.seats[seat]
            .live
            .as_ref()
            .and_then(|(c, _)| c.receivers.get(at))
            .map_or(0, |r| r.held.len());
        settle_range(world, seat, at, (0, held), &DeliveryState::Accepted);
        settle_down(world)?;
        if held == 0 {
            // What waits for its redelivery delay has its time now.
            idle += 1;
            world.now.mono += 10_000;
        } else {
            idle = 0;
        }
    }
    if let Some((client, _)) = world.seats[seat].live.as_mut() {
        let _ = client.detach(client.receivers.len().saturating_sub(1), false);
    }
    settle_down(world)
}

fn check_backlogs(world: &mut World) -> Result<(), Violation> {
    let now = world.now;
    let Some(broker) = &mut world.broker else { return Ok(()) };
    match broker.ask(now, Request::ListObjects { channel: None }) {
        Some(Ok(Response::Objects { items })) => {
            if let Some(object) = items.iter().find(|object| object.backlog > 0) {
                let (id, channel, owes) = (&object.id, &object.channel, object.backlog);
                let text = format!("named object {id} of '{channel}' still owes {owes}");
                return Err(Violation::new("progress", text));
            }
        }
        // Objects that owe nothing are counted at once.
        None => return Err(Violation::new("progress", "named objects still owe more than one look counts")),
        Some(_) => {}
    }
    if let Some(Ok(Response::Joins { items })) = broker.ask(now, Request::ListJoins { store: None })
        && let Some(join) = items.iter().find(|join| join.lag_events > 0 && join.state != "standby")
    {
        let text = format!("join '{}' is {} and has {} events to go", join.name, join.state, join.lag_events);
        return Err(Violation::new("progress", text));
    }
    Ok(())
}
