//! Tests of the shell over a disk in memory, with the real engine and journal.

mod effects;
mod logs;

use crate::{ConnIds, OpenError, Opened, Setup, Shell, Use, open, read_messages};
use postroad_engine::admin::{Page, Request, Response, Selection, StoreKind};
use postroad_engine::{
    Client, Command, ConnId, Effect, LinkNo, Now, ProducerKey, ProducerTarget, Publication,
};
use postroad_journal::{Batch, BatchWriter, Keeper, Lsn, MemDisk, Options, Reader, Stop, Work};
use postroad_model::address::Address;
use postroad_model::message::Incoming;
use postroad_model::refusal::Refusal;
use postroad_model::settings::{BrokerSettings, QueueSettings};
use std::sync::Arc;

/// A broker on a disk in memory whose every write, sync and segment is a call.
struct Broker {
    shell: Shell<u32>,
    writer: BatchWriter,
    keeper: Keeper,
    reader: Reader,
    stop: Stop,
    /// What the frames were for that were read back.
    frames: Vec<Use>,
    ids: ConnIds,
    batches: Vec<Batch>,
    /// What went out: the route, and a word for each effect.
    sent: Vec<(u32, Vec<String>)>,
    now: Now,
}

impl Broker {
    fn start(disk: &MemDisk, checkpoint_every: u64) -> Self {
        Self::start_with(disk, checkpoint_every, Options::small().segment_size)
    }

    fn start_with(disk: &MemDisk, checkpoint_every: u64, segment_size: u64) -> Self {
        Self::open(disk, checkpoint_every, segment_size).unwrap()
    }

    fn try_start(disk: &MemDisk, checkpoint_every: u64) -> Result<Self, OpenError> {
        Self::open(disk, checkpoint_every, Options::small().segment_size)
    }

    fn open(disk: &MemDisk, checkpoint_every: u64, segment_size: u64) -> Result<Self, OpenError> {
        let setup = Setup {
            broker: BrokerSettings { name: "b".into(), ..BrokerSettings::default() },
            // A piece of a checkpoint may be larger than a megabyte by one message.
            journal: Options { max_payload: 2 << 20, segment_size, ..Options::small() },
            checkpoint_every,
            seed: [3; 16],
            twin: Some(checkpoint_every),
        };
        let mut frames = Vec::new();
        let opened = open(Arc::new(disk.clone()), setup, |frame| frames.push(frame.used))?;
        let Opened { shell, writer, keeper, reader, recovered } = opened;
        let mut broker = Self {
            shell,
            writer,
            keeper,
            reader,
            stop: recovered.stop,
            frames,
            ids: ConnIds::default(),
            batches: Vec::new(),
            sent: Vec::new(),
            now: Now { wall: 1_000, mono: 0 },
        };
        broker.turn();
        broker.settle();
        Ok(broker)
    }

    /// A turn without anything that came in: what was handled before goes out as far as it may.
    fn turn(&mut self) {
        while self.shell.run(self.now, 10) {}
        self.shell.flush().unwrap();
        self.pass_on();
    }

    fn pass_on(&mut self) {
        self.batches.extend(self.shell.take_batch());
        let sent = &mut self.sent;
        self.shell.send_ready(|_, route, effects| sent.push((*route, effects.iter().map(word).collect())));
    }

    /// Writes and syncs what was taken so far; gives the last frame, and tells the shell nothing.
    fn sync_quietly(&mut self) -> Lsn {
        self.writer.write(&std::mem::take(&mut self.batches)).unwrap();
        self.writer.sync().unwrap()
    }

    fn sync(&mut self) {
        let lsn = self.sync_quietly();
        self.shell.became_durable(lsn);
        self.pass_on();
    }

    /// Does everything that the disk has to do.
    fn settle(&mut self) {
        self.settle_watched(|| ());
    }

    /// Does everything that the disk has to do, and looks after each sync.
    fn settle_watched(&mut self, mut look: impl FnMut()) {
        loop {
            let syncs = !self.batches.is_empty();
            self.sync();
            if syncs {
                look();
            }
            let worked = self.keep();
            if !worked && self.batches.is_empty() {
                return;
            }
        }
    }

    fn keep(&mut self) -> bool {
        let work = self.keeper.work().unwrap();
        match work {
            Work::Ready => self.shell.space().unwrap(),
            Work::NoSpace => self.shell.no_space(),
            Work::Checkpointed(checkpoint) => drop(self.shell.checkpointed(checkpoint).unwrap()),
            Work::Nothing | Work::Removed(_) | Work::Noted(_) => {}
        }
        self.pass_on();
        !matches!(work, Work::Nothing | Work::NoSpace)
    }

    /// A connection with a producer for a queue.
    fn producer(&mut self, route: u32, queue: &str) -> (ConnId, ProducerKey) {
        let conn = self.connect(route);
        let target = ProducerTarget::Address(Address::parse(queue, None).unwrap());
        self.shell.handle(self.now, Command::OpenProducer { conn, link: LinkNo(0), target });
        self.shell.flush().unwrap();
        let mut key = None;
        self.settle_seeing(|effect| {
            if let Effect::ProducerOpened { producer, .. } = effect {
                key = Some(*producer);
            }
        });
        (conn, key.unwrap())
    }

    fn settle_seeing(&mut self, mut see: impl FnMut(&Effect)) {
        self.batches.extend(self.shell.take_batch());
        let lsn = self.sync_quietly();
        self.shell.became_durable(lsn);
        self.shell.send_ready(|_, _, effects| effects.iter().for_each(&mut see));
    }

    fn connect(&mut self, route: u32) -> ConnId {
        let conn = self.ids.take();
        self.shell.register(conn, route);
        let client =
            Client { id: format!("c{route}"), user: "u".into(), address: "pipe".into(), sole: false };
        self.shell.handle(self.now, Command::Connect { conn, client });
        conn
    }

    fn publish(&mut self, producer: ProducerKey, tag: u64, size: usize) {
        let message = Box::new(message(size));
        self.shell.handle(self.now, Command::Publish { producer, tag, message, settled: false });
    }

    fn make_queue(&mut self, name: &str) {
        let settings = QueueSettings::default();
        let request = Request::PutQueue { name: name.into(), settings, configured: false };
        let number = self.shell.ask(self.now, Box::new(request));
        self.turn();
        assert!(self.shell.take_reply_early(number).unwrap().is_ok());
        self.settle();
    }

    fn purge(&mut self, queue: &str) {
        let (kind, name, selection) = (StoreKind::Queue, queue.to_owned(), Selection::default());
        self.shell.ask(self.now, Box::new(Request::PurgeStore { kind, name, selection }));
    }

    /// How many messages queue `q` holds, each of which can be read.
    fn depth(&mut self) -> usize {
        let (mut depth, mut after) = (0, None);
        loop {
            let (kind, name, selection) = (StoreKind::Queue, "q".to_owned(), Selection::default());
            let page = Page { after, limit: usize::MAX };
            let number =
                self.shell.ask(self.now, Box::new(Request::BrowseStore { kind, name, selection, page }));
            let (items, next) = match self.answer(number) {
                Ok(Response::Events { items, next }) => (items, next),
                other => panic!("{other:?}"),
            };
            assert!(items.iter().all(|event| event.body.is_some() || event.size > 4_096), "{items:?}");
            depth += items.len();
            if next.is_none() {
                return depth;
            }
            after = next;
        }
    }

    /// The answer to a question, which may have to wait for messages that are not in memory.
    fn answer(&mut self, number: u64) -> Result<Response, Refusal> {
        loop {
            self.shell.flush().unwrap();
            if let Some(answer) = self.shell.take_reply_early(number) {
                return answer;
            }
            let wanted = self.shell.take_loads();
            assert!(!wanted.is_empty(), "it waits for nothing that it asked for");
            self.shell.loaded(self.now, read_messages(&self.reader, &wanted));
        }
    }

    fn take_sent(&mut self) -> Vec<(u32, Vec<String>)> {
        std::mem::take(&mut self.sent)
    }
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::Connected { .. } => "connected".into(),
        Effect::Published { first, last, outcome, .. } => {
            let word = if *outcome == Publication::Accepted { "accepted" } else { "refused" };
            if first == last { format!("{word} {first}") } else { format!("{word} {first}..{last}") }
        }
        Effect::LinkRefused { .. } => "link refused".into(),
        other => format!("{other:?}"),
    }
}

/// A durable message of about this size: a header section that says so, and one data section.
fn message(size: usize) -> Incoming {
    let mut bytes = vec![0x00, 0x53, 0x70, 0xc0, 0x02, 0x01, 0x41, 0x00, 0x53, 0x75, 0xb0];
    bytes.extend(u32::try_from(size).unwrap().to_be_bytes());
    bytes.resize(bytes.len() + size, b'x');
    Incoming::parse(&bytes).unwrap()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
