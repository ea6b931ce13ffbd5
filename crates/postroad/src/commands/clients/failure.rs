//! What went wrong at a client, and what to do.

use postroad_client::Error;

pub(super) use crate::commands::failure::Failure;

/// The broker refused, or something failed on the way.
pub(super) fn failed(what: impl Into<String>, advice: impl Into<String>) -> Failure {
    Failure::failed(what).with_advice(advice)
}

/// The command makes no sense as it was given.
pub(super) fn usage(what: impl Into<String>, advice: impl Into<String>) -> Failure {
    Failure::usage(what).with_advice(advice)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let what = error.to_string();
        let failure = match &error {
            Error::Unreachable { .. } => Self::unreachable(what),
            Error::Url(_) => Self::usage(what),
            _ => Self::failed(what),
        };
        failure.with_advice(advice(&error))
    }
}

fn advice(error: &Error) -> &'static str {
    match error {
        Error::Unreachable { .. } => "start a broker with `postroad serve`, or name another one with --url",
        Error::Url(_) => "write --url amqp://host:port",
        Error::TimedOut { .. } => "look at the broker's log, or check that --url names an AMQP 1.0 port",
        Error::Login { .. } => "give a user that the broker knows, with --user and --password",
        Error::Protocol(_) => "check that --url names an AMQP 1.0 port without TLS",
        Error::TooLarge => "send smaller messages, or raise max_message_size at the broker",
        Error::Lost { .. } => "look whether the broker still runs, and try again",
        _ => peer_advice(error.peer().map_or("", |peer| peer.condition.as_str())),
    }
}

/// What helps against a condition of the specification (part 2, sections 2.8.15 to 2.8.18).
fn peer_advice(condition: &str) -> &'static str {
    match condition {
        "amqp:not-found" => "check the name, or create it, for example with `postroad queue create NAME`",
        "amqp:unauthorized-access" => "use a user with the authority, or have it granted",
        "amqp:resource-locked" => "wait until the other consumer is gone, or choose another name",
        "amqp:invalid-field" => "correct the argument that the broker names",
        "amqp:not-implemented" => "leave out the option that the broker does not have",
        "amqp:resource-limit-exceeded" => "let consumers catch up, or raise the limit at the broker",
        "amqp:connection:forced" => "the broker is being stopped: try again when it is back",
        _ => "look at the broker's log",
    }
}
