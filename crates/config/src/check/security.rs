//! Listeners and logins: nothing is open to the network by accident (README U-11).

use crate::config::{Listener, SecurityMode};
use crate::diagnostic::{Code, Sink};
use crate::read::Draft;
use crate::value::quote;

/// Checks listeners against each other and against `[security]`.
pub(super) fn check(draft: &Draft, allow_open_remote: bool, sink: &Sink<'_>) {
    let security = &draft.config.security;
    let allowed = allow_open_remote || security.allow_open_remote;
    for (index, defined) in draft.listeners.iter().enumerate() {
        let listener = &defined.value;
        let earlier = draft.listeners.iter().take(index);
        if let Some(other) = earlier.map(|earlier| &earlier.value).find(|other| other.collides(listener)) {
            let message = format!("the {} listener already has {}", other.protocol.as_str(), other.address());
            sink.error(
                Code::ListenerAddressTaken,
                defined.places.of("address"),
                message,
                "write another port",
            );
        }
        if !listener.is_loopback() {
            let at = defined.places.of("address");
            match security.mode {
                SecurityMode::Open => open_to_network(listener, allowed, at, sink),
                SecurityMode::Secure => passwords_in_clear(listener, at, sink),
            }
        }
    }
    if security.mode == SecurityMode::Secure && draft.users.is_empty() {
        let message = "logins are demanded and there are no users, so nobody can log in";
        sink.error(
            Code::NoUsers,
            draft.security.of("mode"),
            message,
            "add a [[user]] with a name and a password_file",
        );
    }
    if security.mode == SecurityMode::Open && !draft.users.is_empty() {
        let message = "there are users, but with mode = \"open\" everybody is let in without a login";
        sink.warn(
            Code::Conflict,
            draft.security.of("mode"),
            message,
            "write mode = \"secure\", or remove it",
        );
    }
}

fn open_to_network(listener: &Listener, allowed: bool, at: crate::source::Span, sink: &Sink<'_>) {
    let message =
        format!("anybody who reaches {} can use the broker without a login", quote(&listener.address()));
    if allowed {
        let advice =
            "that was allowed with allow_open_remote; do it only in a network where you trust everybody";
        sink.warn(Code::OpenToNetwork, at, message, advice);
    } else {
        let advice = "write [security] mode = \"secure\" with at least one [[user]], or listen on 127.0.0.1, \
                      or allow it with [security] allow_open_remote = true";
        sink.error(Code::OpenToNetwork, at, message, advice);
    }
}

/// There is no TLS yet; that passwords cross the network readable must not stay unsaid.
fn passwords_in_clear(listener: &Listener, at: crate::source::Span, sink: &Sink<'_>) {
    let message =
        format!("passwords and messages for {} cross the network unencrypted", quote(&listener.address()));
    sink.warn(Code::OpenToNetwork, at, message, "put a TLS proxy or a private network in front of it");
}
