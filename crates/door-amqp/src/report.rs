//! What the operator is told of clients that do what they must not: one line for each connection, session, link or
//! kind of refusal, never one for each frame or message.

use crate::door::Door;
use postroad_amqp::{Error, PeerMisbehaved};
use postroad_amqp_codec::{AmqpError, Value};
use postroad_model::refusal::{Code, Refusal};

impl Door {
    /// The connection is over by the client's fault.
    pub(crate) fn report_failed(&self, error: &Error) {
        let (peer, client) = self.who();
        tracing::warn!(%peer, %client, %error, "a connection was ended for a fault of its client");
    }

    /// A session is over by the client's fault.
    pub(crate) fn report_session(&self, error: &PeerMisbehaved) {
        let (peer, client) = self.who();
        tracing::warn!(%peer, %client, %error, "a session was ended for a fault of its client");
    }

    /// A link is over by the client's fault.
    pub(crate) fn report_link(&self, error: &PeerMisbehaved) {
        let (peer, client) = self.who();
        tracing::warn!(%peer, %client, %error, "a link was detached for a fault of its client");
    }

    /// A link, or a connection, was not granted.
    pub(crate) fn report_refused(&self, what: &'static str, refusal: &Refusal) {
        let (peer, client) = self.who();
        tracing::warn!(%peer, %client, code = %refusal.code, error = %refusal, "{what} was refused");
    }

    /// A link was not granted, for what its attach says.
    pub(crate) fn report_bad_attach(&self, error: &AmqpError) {
        let (peer, client) = self.who();
        let (code, text) = (reason(error), error.description.as_deref().unwrap_or_default());
        tracing::warn!(%peer, %client, code, error = text, "a link was refused");
    }

    /// A message was not taken: the first on its link.
    pub(crate) fn report_rejected(&self, error: &AmqpError) {
        let (peer, client) = self.who();
        let (code, text) = (reason(error), error.description.as_deref().unwrap_or_default());
        tracing::warn!(
            %peer, %client, code, error = text,
            "a message was refused; further ones on this link are counted only"
        );
    }

    /// The engine ended a link.
    pub(crate) fn report_detached(&self, refusal: &Refusal) {
        let (peer, client) = self.who();
        let (code, error) = (refusal.code, refusal);
        // What operators and other clients do is no fault of this one.
        if matches!(code, Code::Deleted | Code::Stolen) {
            tracing::info!(%peer, %client, %code, %error, "a link was detached");
        } else {
            tracing::warn!(%peer, %client, %code, %error, "a link was detached");
        }
    }

    /// Tells the operator that the client took nothing of what waits for it for too long, `bytes` at least, so that its
    /// socket is closed.
    pub fn report_unread(&self, bytes: usize) {
        let (peer, client) = self.who();
        tracing::warn!(%peer, %client, bytes, "a client does not read what waits for it: its connection was cut");
    }
}

/// The stable code that an error carries (README U-13).
fn reason(error: &AmqpError) -> &str {
    let info = error.info.as_ref();
    info.and_then(|info| info.get("reason")).and_then(Value::as_str).unwrap_or(error.condition.as_str())
}
