//! What we tell a peer about ourselves, and what we allow it.

use postroad_amqp_codec::{Fields, Symbol};

/// One side of a connection: what its `open` and `begin` frames say, and the limits that the peer is held to.
#[derive(Clone, Debug)]
pub struct Config {
    /// Our name (part 2, section 2.7.1, container-id).
    pub container_id: String,
    /// The host that the initiating side wants to reach; `None` on the accepting side.
    pub hostname: Option<String>,
    /// The largest frame that the peer may send, in bytes. Less than 512 is taken as
    /// that, the least that the specification allows (part 2, section 2.8.19).
    pub max_frame_size: u32,
    /// The highest channel number that the peer may use: one less than the number of its sessions.
    pub channel_max: u16,
    /// The highest handle that the peer may use in each session: one less than the number of its links.
    pub handle_max: u32,
    /// After how many milliseconds without a byte from the peer the connection is given up; `None`: never. The peer is
    /// told half of it (part 2, section 2.4.5).
    pub idle_timeout_ms: Option<u32>,
    /// Within how many milliseconds the peer must have opened the connection, headers and SASL included; `None`: no
    /// limit but the idle time-out.
    pub open_timeout_ms: Option<u32>,
    /// How many transfer frames the peer may send ahead in each session, at least 1 (part 2, section 2.5.6). It is
    /// opened again by itself as frames are read, so the way to slow a peer down is not to read, or not to give credit.
    pub incoming_window: u32,
    /// How many deliveries beyond its credit the peer may send on each link before that is an error. 0, as the
    /// specification has it (part 2, section 2.6.7), but for peers that count wrong.
    pub excess_credit: u32,
    /// Where transfer ids, delivery ids and delivery counts start. Any value serves; one below 2^32 makes them wrap.
    pub first_id: u32,
    /// Extensions that we offer on the connection.
    pub offered_capabilities: Vec<Symbol>,
    /// Extensions that we would use on the connection.
    pub desired_capabilities: Vec<Symbol>,
    /// Properties of the connection.
    pub properties: Fields,
}

impl Default for Config {
    /// No name, 64 KiB frames, 1,024 sessions of 8,192 links, a minute of silence, 2,048 frames ahead.
    fn default() -> Self {
        Self {
            container_id: String::new(),
            hostname: None,
            max_frame_size: 65_536,
            channel_max: 1023,
            handle_max: 8191,
            idle_timeout_ms: Some(60_000),
            open_timeout_ms: Some(30_000),
            incoming_window: 2048,
            excess_credit: 0,
            first_id: 0,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Fields::new(),
        }
    }
}

/// How the accepting side lets peers in (part 5, section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptSasl {
    /// Offer ANONYMOUS.
    pub anonymous: bool,
    /// Offer PLAIN.
    pub plain: bool,
    /// Allow peers that start with the plain AMQP header, with no SASL at all.
    pub skip: bool,
}

/// How the initiating side makes itself known (part 5, section 5.3).
#[derive(Clone, PartialEq, Eq)]
pub enum InitiateSasl {
    /// No SASL layer: start with the plain AMQP header.
    Skip,
    /// The mechanism ANONYMOUS, with trace information for the peer's log.
    Anonymous {
        /// Who we are, as a hint; may be empty.
        trace: String,
    },
    /// The mechanism PLAIN (RFC 4616).
    Plain {
        /// Whom to act as; empty for the user itself.
        authzid: String,
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
}

impl std::fmt::Debug for InitiateSasl {
    /// Never shows the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skip => f.write_str("Skip"),
            Self::Anonymous { trace } => f.debug_struct("Anonymous").field("trace", trace).finish(),
            Self::Plain { authzid, user, .. } => {
                f.debug_struct("Plain").field("authzid", authzid).field("user", user).finish_non_exhaustive()
            }
        }
    }
}
