//! What the AMQP front door is told, from the configuration; and who may log in.

use crate::ServeError;
use postroad_amqp::AcceptSasl;
use postroad_config::{Config, DeadLetterCompat, SecurityMode};
use postroad_door_amqp::{DeadLetterView, DoorConfig, Staging};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The front door's settings.
#[must_use]
pub(crate) fn door_config(config: &Config) -> DoorConfig {
    let open = config.security.mode == SecurityMode::Open;
    let limits = &config.limits;
    DoorConfig {
        broker: config.broker.name.clone(),
        sasl: AcceptSasl { anonymous: open, plain: true, skip: open },
        max_frame_size: limits.max_frame_size,
        channel_max: limits.max_sessions.saturating_sub(1),
        handle_max: limits.max_links.saturating_sub(1),
        idle_timeout_ms: timeout(limits.idle_timeout),
        open_timeout_ms: timeout(limits.login_timeout),
        max_message_size: config.broker.max_message_size,
        staging: Arc::new(Staging::new((config.broker.memory / 2).max(config.broker.max_message_size))),
        dead_letters: dead_letter_view(config),
        ..DoorConfig::default()
    }
}

/// Milliseconds as AMQP counts them; 0 means none, and more than it can count the most that it can.
fn timeout(ms: u64) -> Option<u32> {
    Some(u32::try_from(ms).unwrap_or(u32::MAX)).filter(|&ms| ms > 0)
}

fn dead_letter_view(config: &Config) -> DeadLetterView {
    DeadLetterView {
        expose_properties: config.dead_letters.expose_properties,
        compat: match config.dead_letters.compat {
            DeadLetterCompat::None => None,
            DeadLetterCompat::Artemis => Some(postroad_door_amqp::DeadLetterCompat::Artemis),
        },
    }
}

/// The users that may log in; in open mode everybody may.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    open: bool,
    passwords: BTreeMap<String, String>,
}

impl Users {
    /// The users of the configuration, with their passwords read from where it says.
    ///
    /// # Errors
    /// [`ServeError::Password`] if one can't be read.
    pub(crate) fn read(config: &Config) -> Result<Self, ServeError> {
        let mut passwords = BTreeMap::new();
        for user in &config.users {
            let read = user.password.read();
            let password = read.map_err(|source| ServeError::Password { user: user.name.clone(), source })?;
            passwords.insert(user.name.clone(), password);
        }
        Ok(Self { open: config.security.mode == SecurityMode::Open, passwords })
    }

    /// Whether this user may come in with this password. In open mode a user that is not configured may.
    #[must_use]
    pub(crate) fn admit(&self, user: &str, password: &str) -> bool {
        match self.passwords.get(user) {
            Some(expected) => same(expected.as_bytes(), password.as_bytes()),
            None => self.open,
        }
    }
}

/// Compares in a time that does not tell where the first difference is.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let mut difference = expected.len() ^ given.len();
    for (at, byte) in given.iter().enumerate() {
        let other = expected.get(at % expected.len().max(1)).copied().unwrap_or(0);
        difference |= usize::from(byte ^ other);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_password_is_the_same() {
        assert!(same(b"secret", b"secret"));
        assert!(!same(b"secret", b"secre"));
        assert!(!same(b"secret", b"secretsecret"));
        assert!(!same(b"", b"x"));
        assert!(same(b"", b""));
    }
}
