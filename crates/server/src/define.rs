//! The definitions of the configuration file, applied at the start, idempotently.

use crate::ServeError;
use crate::storage::Storage;
use postroad_config::Config;
use postroad_engine::admin::Request;
use postroad_engine::{Command, Effect, Engine, Now, Output};
use postroad_model::refusal::{Code, Refusal};

/// Applies queues, channels, named objects and joins, in this order because joins name the others.
///
/// # Errors
/// [`ServeError::Definition`] with the first refusal.
pub fn define(engine: &mut Engine, storage: &mut Storage, config: &Config, now: Now) -> Result<(), ServeError> {
    for queue in &config.queues {
        let (name, settings) = (queue.name.clone(), queue.settings.clone());
        ask(engine, storage, now, Request::PutQueue { name, settings, configured: true })?;
    }
    for channel in &config.channels {
        let (name, settings) = (channel.name.clone(), channel.settings.clone());
        ask(engine, storage, now, Request::PutChannel { name, settings, configured: true })?;
        for object in &channel.named_objects {
            let (name, settings) = (object.name.clone(), object.settings.clone());
            let channel = channel.name.clone();
            ask(engine, storage, now, Request::CreateObject { channel, name, settings, configured: true })?;
        }
    }
    for join in &config.joins {
        let (name, settings) = (Some(join.name.clone()), join.settings.clone());
        let create = Request::CreateJoin { name, settings: settings.clone(), configured: true };
        match ask(engine, storage, now, create) {
            // It was there with other attributes: the file is what it should be.
            Err(ServeError::Definition(refusal)) if refusal.code == Code::JoinExists => {
                ask(engine, storage, now, Request::AlterJoin { name: join.name.clone(), settings })?;
            }
            other => other?,
        }
    }
    Ok(())
}

fn ask(engine: &mut Engine, storage: &mut Storage, now: Now, request: Request) -> Result<(), ServeError> {
    engine.handle(now, Command::Admin { reply: 0, request: Box::new(request) });
    let mut out = Output::default();
    engine.take_output(&mut out);
    storage.append(out.steps.into_iter())?;
    // No client is connected yet: the only effect that matters is the answer.
    let refused = out.effects.into_iter().find_map(|(_, effect)| match effect {
        Effect::AdminReply { result, .. } => result.err(),
        _ => None,
    });
    refused.map_or(Ok(()), |refusal: Refusal| Err(ServeError::Definition(refusal)))
}
