//! The definitions of the configuration file, applied idempotently at the start and again on SIGHUP.

use crate::ServeError;
use crate::core::EffectSender;
use crate::http::{AdminError, AdminHandle};
use postroad_config::{Config, JoinDefinition};
use postroad_engine::Now;
use postroad_engine::admin::Request;
use postroad_model::refusal::Refusal;
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
    requests.extend(config.joins.iter().map(define_join));
    requests
}

fn define_join(join: &JoinDefinition) -> Request {
    let JoinDefinition { name, settings, enabled } = join.clone();
    Request::DefineJoin { name, settings, enabled }
}

/// Applies the definitions before anything is served.
///
/// # Errors
/// [`ServeError::Definition`] with the first refusal, [`ServeError::Shell`] if they can't be written.
pub(crate) fn define(shell: &mut Shell<EffectSender>, config: &Config, now: Now) -> Result<(), ServeError> {
    for request in requests(config) {
        if let Some(refusal) = ask(shell, now, request)? {
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
        let mut change = handle.change().await;
        if let Request::DefineJoin { name, enabled: Some(_), .. } = &request {
            change.end_drain(name);
        }
        match change.request(request).await {
            Ok(_) => {}
            Err(AdminError::Stopped | AdminError::Busy) => return,
            Err(error) => tracing::error!(%error, "a definition of the configuration is refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::requests;
    use postroad_config::{Options, parse};
    use postroad_engine::admin::Request;

    #[test]
    fn a_join_runs_or_not_only_as_the_file_says() {
        let text = r#"
            channel = [{ name = "a" }, { name = "b" }]
            [[join]]
            name = "silent"
            source = "a"
            destination = "b"
            [[join]]
            name = "paused"
            source = "b"
            destination = "a"
            enabled = false
        "#;
        let options = Options { broker_name: "A".into(), allow_open_remote: false, stores_elsewhere: false };
        let (config, report) = parse("postroad.toml", text, &options);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        let said: Vec<_> = requests(&config)
            .into_iter()
            .filter_map(|request| match request {
                Request::DefineJoin { name, enabled, .. } => Some((name, enabled)),
                _ => None,
            })
            .collect();
        assert_eq!(said, [("silent".to_owned(), None), ("paused".to_owned(), Some(false))]);
    }
}
