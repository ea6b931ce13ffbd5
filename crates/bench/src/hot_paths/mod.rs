//! The paths that every message takes, each alone and without a clock, a socket or a file: the same count gives the same
//! instructions, so that `cargo xtask instructions` can tell when one has become longer.
//!
//! Each path does a given number of units of work; what two numbers differ by is the work itself, without what comes
//! before it. Every path checks that it did what it says, because a path that does nothing is very short.

mod codec;
mod engine;
mod journal;
mod pipes;
mod selectors;

use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::message::{Body, Header, Message};
use postroad_amqp_codec::{Encode, Map};

/// Bytes of each message's body, as in docs/benchmarks.md.
const BODY: usize = 1024;

/// How many messages one batch holds: as many as one read of a busy socket brings.
const BATCH: u32 = 32;

/// Bytes of the journal's one segment: more than any count of these paths takes, so that the work of making segments is left
/// out.
const SEGMENT: u64 = 64 << 20;

/// One path.
#[derive(Clone, Copy, Debug)]
pub struct HotPath {
    /// Its name, as in `crates/bench/instructions.toml`.
    pub name: &'static str,
    /// What one unit of it is.
    pub unit: &'static str,
    run: fn(u32),
}

impl HotPath {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self { name: "transfer-encode", unit: "frame of 1 KiB written", run: codec::encode },
        Self {
            name: "transfer-decode",
            unit: "frame of 1 KiB read, its message scanned",
            run: codec::decode,
        },
        Self { name: "selector", unit: "message looked at by one selector", run: selectors::evaluate },
        Self { name: "journal-append", unit: "frame of 1 KiB laid out and sealed", run: journal::append },
        Self {
            name: "queue-persistent",
            unit: "message through the engine and settled",
            run: engine::persistent,
        },
        Self {
            name: "queue-non-persistent",
            unit: "message through the engine and settled",
            run: engine::non_persistent,
        },
        Self { name: "channel-100", unit: "delivery to one of 100 subscribers", run: engine::fan_out },
        Self { name: "join", unit: "message over a join with a filter, and settled", run: engine::join },
        Self { name: "round-trip-persistent", unit: "message from client to client", run: pipes::persistent },
        Self {
            name: "round-trip-non-persistent",
            unit: "message from client to client",
            run: pipes::non_persistent,
        },
        Self { name: "round-trip-settled", unit: "message from client to client", run: pipes::settled },
    ];

    /// The path of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|path| path.name == name)
    }

    /// Does this many units of work, rounded up to whole batches.
    ///
    /// # Panics
    /// If the path does not do what it says: then its count means nothing.
    pub fn run(&self, count: u32) {
        (self.run)(count.next_multiple_of(BATCH));
    }
}

/// An encoded message with two application properties.
fn message(durable: bool) -> Bytes {
    let mut properties = Map::new();
    properties.insert("region", "EU");
    properties.insert("price", 250_i64);
    let message = Message {
        header: Some(Header { durable, ..Header::default() }),
        application_properties: Some(properties),
        body: Body::Data(vec![vec![b'x'; BODY].into()]),
        ..Message::default()
    };
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_does_what_it_says() {
        for path in HotPath::ALL {
            path.run(3 * BATCH);
            assert_eq!(HotPath::find(path.name).map(|found| found.unit), Some(path.unit));
        }
        assert!(HotPath::find("none").is_none());
    }
}
