//! The definitions of the configuration file, applied idempotently at the start and again on SIGHUP.

use crate::ServeError;
use crate::core::EffectSender;
use crate::http::{AdminError, AdminHandle};
use postroad_config::{Config, JoinDefinition};
use postroad_engine::Now;
use postroad_engine::admin::{Request, Response};
use postroad_model::refusal::{Code, Refusal};
use postroad_shell::Shell;

/// What the file defines, in an order in which nothing names what comes later.
fn requests(config: &Config) -> Vec<Request> {
    let mut requests = Vec::new();
    for queue in &config.queues {
        let (name, settings) = (queue.name.clone(), queue.settings.clone());
        requests.push(Request::PutQueue { name, settings, configured: true });
    }
    for channel in &config.channels {
        let (name, settings) = (channel.name.clone(), channel.settings.clone());
        requests.push(Request::PutChannel { name, settings, configured: true });
        for object in &channel.named_objects {
            let (name, settings) = (object.name.clone(), object.settings.clone());
            let channel = channel.name.clone();
            requests.push(Request::CreateObject { channel, name, settings, configured: true });
        }
    }
    requests.extend(config.joins.iter().map(create_join));
    requests
}

fn create_join(join: &JoinDefinition) -> Request {
    Request::CreateJoin { name: Some(join.name.clone()), settings: join.settings.clone(), configured: true }
}

/// What to ask instead where a join is there with other attributes: the file says what it should be.
fn instead(request: Request, refusal: &Refusal) -> Option<Request> {
    match request {
        Request::CreateJoin { name: Some(name), settings, .. } if refusal.code == Code::JoinExists => {
            Some(Request::AlterJoin { name, settings })
        }
        _ => None,
    }
}

/// Applies the definitions before anything is served.
///
/// # Errors
/// [`ServeError::Definition`] with the first refusal, [`ServeError::Shell`] if they can't be written.
pub(crate) fn define(shell: &mut Shell<EffectSender>, config: &Config, now: Now) -> Result<(), ServeError> {
    for request in requests(config) {
        let Some(refusal) = ask(shell, now, request.clone())? else { continue };
        let Some(other) = instead(request, &refusal) else { return Err(ServeError::Definition(refusal)) };
        if let Some(refusal) = ask(shell, now, other)? {
            return Err(ServeError::Definition(refusal));
        }
    }
    Ok(())
}

/// Asks an engine that nobody else uses yet; the refusal, if it is one.
fn ask(shell: &mut Shell<EffectSender>, now: Now, request: Request) -> Result<Option<Refusal>, ServeError> {
    let number = shell.ask(now, Box::new(request));
    shell.flush()?;
    Ok(shell.take_reply_early(number).and_then(Result::err))
}

/// Applies the definitions to a running broker; what is refused is logged, and the rest goes on.
pub(crate) async fn redefine(handle: &AdminHandle, config: &Config) {
    for request in requests(config) {
        let Err(error) = handle.change().await.request(request.clone()).await else { continue };
        let other = match &error {
            AdminError::Refused(refusal) => instead(request, refusal),
            AdminError::Stopped | AdminError::Busy => return,
        };
        let error = match other {
            Some(other) => match replace(handle, other).await {
                Ok(_) => continue,
                Err(error) => error,
            },
            None => error,
        };
        tracing::error!(%error, "a definition of the configuration is refused");
    }
}

/// Asks for what is there to become what the file says.
async fn replace(handle: &AdminHandle, request: Request) -> Result<Response, AdminError> {
    let mut change = handle.change().await;
    if let Request::AlterJoin { name, .. } = &request {
        change.end_drain(name);
    }
    change.request(request).await
}
