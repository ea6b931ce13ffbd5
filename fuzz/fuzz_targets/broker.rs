//! A whole broker with two clients that write anything: it comes to rest, writes whole frames, serves a client that
//! behaves, and serves it again after a crash.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use postroad_fuzz::broker::{Broker, check_that_it_serves};
use postroad_fuzz::frames::{All, Piece, Writer, greeting};
use postroad_fuzz::user::check_written;

/// More than inputs of a few kilobytes can make the broker write, whatever is sent again.
const MAX_WRITTEN: usize = 8 << 20;

#[derive(Arbitrary, Debug)]
struct Case {
    /// Begin with an ordinary `open` and `begin`.
    polite: [bool; 2],
    cut: [bool; 2],
    steps: All<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// The first client writes, and the broker works.
    First(Piece),
    /// The second client writes, and the broker works.
    Second(Piece),
    /// A client writes, and more comes before the broker works.
    Both(Piece, Piece),
    /// Milliseconds pass.
    Wait(u16),
    /// A client's socket is cut, and it comes back.
    Cut(bool),
}

fuzz_target!(|case: Case| {
    let mut broker = Broker::new();
    let mut clients =
        [Client::connect(&mut broker, case.polite[0]), Client::connect(&mut broker, case.polite[1])];
    for step in &case.steps.0 {
        match step {
            Step::First(piece) => clients[0].write(&mut broker, piece),
            Step::Second(piece) => clients[1].write(&mut broker, piece),
            Step::Both(first, second) => {
                clients[0].write(&mut broker, first);
                clients[0].write(&mut broker, second);
                clients[1].write(&mut broker, second);
            }
            Step::Wait(ms) => broker.wait((*ms).into()),
            Step::Cut(which) => {
                let which = usize::from(*which);
                broker.cut(clients[which].no);
                clients[which] = Client::connect(&mut broker, case.polite[which]);
            }
        }
        broker.run();
    }
    for (client, cut) in clients.iter().zip(case.cut) {
        assert!(broker.written(client.no) < MAX_WRITTEN);
        check_written(&broker.read(client.no));
        if cut {
            broker.cut(client.no);
        }
    }
    broker.run();
    check_that_it_serves(&mut broker);
    check_that_it_serves(&mut broker.crashed());
});

struct Client {
    no: usize,
    writer: Writer,
}

impl Client {
    fn connect(broker: &mut Broker, polite: bool) -> Self {
        let no = broker.connect();
        if polite {
            broker.write(no, &greeting());
        }
        Self { no, writer: Writer::default() }
    }

    fn write(&mut self, broker: &mut Broker, piece: &Piece) {
        let mut bytes = Vec::new();
        self.writer.put(piece, &mut bytes);
        broker.write(self.no, &bytes);
    }
}
