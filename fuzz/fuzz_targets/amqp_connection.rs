//! A peer that writes anything, to either side of a connection: nothing panics, what is written back is whole frames,
//! and there is not much more of it than came in.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use postroad_amqp::InitiateSasl;
use postroad_fuzz::frames::{All, Piece, Writer};
use postroad_fuzz::user::{User, check_written};

#[derive(Arbitrary, Debug)]
struct Case {
    side: Side,
    /// Begin with an ordinary `open` and `begin`.
    polite: bool,
    wait: u16,
    batches: All<Batch>,
}

/// What comes at once.
#[derive(Arbitrary, Debug)]
enum Batch {
    One(Piece),
    Two(Piece, Piece),
    Some(Vec<Piece>),
}

#[derive(Arbitrary, Debug)]
enum Side {
    Accepting,
    Initiating,
    InitiatingAnonymous,
    InitiatingPlain,
    /// The first bytes of a batch come one at a time.
    AcceptingSlowly,
}

/// Bytes of a batch that come one at a time.
const SLOW_BYTES: usize = 600;

fuzz_target!(|case: Case| {
    let mut user = match case.side {
        Side::Accepting | Side::AcceptingSlowly => User::accepting(),
        Side::Initiating => User::initiating(InitiateSasl::Skip),
        Side::InitiatingAnonymous => User::initiating(InitiateSasl::Anonymous { trace: String::new() }),
        Side::InitiatingPlain => User::initiating(InitiateSasl::Plain {
            authzid: String::new(),
            user: "u".to_owned(),
            password: "p".to_owned(),
        }),
    };
    let mut came = 0;
    if case.polite {
        let greeting = postroad_fuzz::frames::greeting();
        came += greeting.len();
        user.take(&greeting);
    }
    if !matches!(case.side, Side::Accepting | Side::AcceptingSlowly) {
        user.start();
    }
    let mut writer = Writer::default();
    for batch in &case.batches.0 {
        let mut bytes = Vec::new();
        match batch {
            Batch::One(piece) => writer.put(piece, &mut bytes),
            Batch::Two(first, second) => {
                [first, second].iter().for_each(|piece| writer.put(piece, &mut bytes))
            }
            Batch::Some(pieces) => pieces.iter().for_each(|piece| writer.put(piece, &mut bytes)),
        }
        came += bytes.len();
        match case.side {
            Side::AcceptingSlowly => {
                // Large frames whole: there is nothing new to find in their bodies, and it takes a while.
                let (slow, rest) = bytes.split_at(bytes.len().min(SLOW_BYTES));
                slow.iter().for_each(|byte| user.take(&[*byte]));
                user.take(rest);
            }
            _ => user.take(&bytes),
        }
    }
    user.wait(case.wait.into());
    user.wait(1 << 40);
    check_written(&user.written);
    assert!(user.written.len() <= 4096 + 200 * came, "{} bytes for {came}", user.written.len());
    assert!(user.engine.next_deadline().is_none() || !user.engine.is_finished());
});
