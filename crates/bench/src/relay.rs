//! Connections in pairs: what the n-th producer sends, the n-th consumer gets.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp_codec::frame::{FrameBody, decode_frame};
use postroad_amqp_codec::performative::Performative;
use postroad_journal::{Event, Lsn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::answer;
use crate::error::LimitError;
use crate::frames::{Piece, next_piece};
use crate::handshake::{Peer, shake_hands};
use crate::log::Log;

/// How many bytes are read at once.
const READ_SIZE: usize = 256 * 1024;

/// What a producer without a consumer may send ahead.
const SINK_CREDIT: u32 = 2000;

/// Whether frames are stored before they are passed on.
#[derive(Clone, Debug)]
pub enum Storing {
    /// Only copied.
    No,
    /// Appended to a journal in this folder and synced first, all batches that are ready together.
    In(PathBuf),
}

/// A relay that listens.
#[derive(Debug)]
pub struct Relay {
    listener: TcpListener,
    pairs: Pairs,
    store: Option<UnboundedSender<Batch>>,
}

/// Bytes for a connection, in order. It holds no more than the credit allows.
type Outlet = UnboundedSender<Bytes>;

/// Both ends of each pair, as far as they are there.
type Pairs = Arc<Mutex<Vec<Pair>>>;

#[derive(Debug, Default)]
struct Pair {
    producer: Option<Outlet>,
    consumer: Option<Outlet>,
    /// The consumer's latest credit: delivery count and link credit.
    credit: Option<(u32, u32)>,
}

/// Transfers of one producer, and where they and their disposition go.
#[derive(Debug)]
struct Batch {
    bytes: Bytes,
    to: Option<Outlet>,
    confirm: Option<(Outlet, Bytes)>,
}

impl Batch {
    fn pass_on(self) {
        // A peer that is gone needs nothing any more.
        if let Some(to) = self.to {
            let _ = to.send(self.bytes);
        }
        if let Some((producer, disposition)) = self.confirm {
            let _ = producer.send(disposition);
        }
    }
}

impl Relay {
    /// Listens, and opens the journal if there is to be one. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`LimitError::Io`] or [`LimitError::Journal`].
    pub async fn listen(address: &str, storing: &Storing) -> Result<Self, LimitError> {
        let listener = TcpListener::bind(address).await.map_err(LimitError::io("listening"))?;
        let store = match storing {
            Storing::No => None,
            Storing::In(folder) => Some(start_store(folder)?),
        };
        Ok(Self { listener, pairs: Pairs::default(), store })
    }

    /// The port that is listened on.
    ///
    /// # Errors
    /// [`LimitError::Io`].
    pub fn port(&self) -> Result<u16, LimitError> {
        Ok(self.listener.local_addr().map_err(LimitError::io("listening"))?.port())
    }

    /// Serves for ever; a connection that fails is told by `report`.
    ///
    /// # Errors
    /// [`LimitError::Io`] when no more connections can be accepted.
    pub async fn serve(self, report: fn(&LimitError)) -> Result<(), LimitError> {
        loop {
            let (stream, _) = self.listener.accept().await.map_err(LimitError::io("accepting"))?;
            let (pairs, store) = (Arc::clone(&self.pairs), self.store.clone());
            tokio::spawn(async move {
                if let Err(error) = connection(stream, pairs, store).await {
                    report(&error);
                }
            });
        }
    }
}

async fn connection(
    stream: TcpStream,
    pairs: Pairs,
    store: Option<UnboundedSender<Batch>>,
) -> Result<(), LimitError> {
    let Peer { stream, input, sends, presettled, credit } = shake_hands(stream).await?;
    let (reader, writer) = stream.into_split();
    let (outlet, waiting) = unbounded_channel();
    tokio::spawn(write_out(writer, waiting));
    let place = enter(&pairs, sends, &outlet, credit);
    let mut served = Served { reader, input, outlet, pairs, place };
    let result = if sends { served.producer(store, presettled).await } else { served.consumer().await };
    served.leave(sends);
    result
}

/// Takes the first place that is free on this side.
fn enter(pairs: &Pairs, sends: bool, outlet: &Outlet, credit: u32) -> usize {
    let mut pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
    let free = |pair: &Pair| if sends { pair.producer.is_none() } else { pair.consumer.is_none() };
    let place = pairs.iter().position(free).unwrap_or(pairs.len());
    if place == pairs.len() {
        pairs.push(Pair::default());
    }
    if let Some(pair) = pairs.get_mut(place) {
        if sends {
            pair.producer = Some(outlet.clone());
        } else {
            pair.consumer = Some(outlet.clone());
            pair.credit = (credit > 0).then_some((0, credit));
        }
    }
    place
}

/// One connection behind its handshake.
struct Served {
    reader: OwnedReadHalf,
    input: BytesMut,
    outlet: Outlet,
    pairs: Pairs,
    place: usize,
}

impl Served {
    fn pair<T>(&self, look: impl FnOnce(&mut Pair) -> T) -> Option<T> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).get_mut(self.place).map(look)
    }

    fn leave(&self, sends: bool) {
        self.pair(|pair| {
            if sends {
                pair.producer = None;
            } else {
                pair.consumer = None;
                pair.credit = None;
            }
        });
    }

    fn send(&self, bytes: Bytes) {
        // A peer that is gone needs nothing any more; reading tells.
        let _ = self.outlet.send(bytes);
    }

    async fn read(&mut self) -> Result<bool, LimitError> {
        if self.input.capacity() - self.input.len() < READ_SIZE / 4 {
            self.input.reserve(READ_SIZE);
        }
        let read = self.reader.read_buf(&mut self.input).await.map_err(LimitError::io("reading"))?;
        Ok(read > 0)
    }

    fn next_piece(&mut self) -> Result<Option<Piece>, LimitError> {
        next_piece(&mut self.input).map_err(|_| LimitError::Peer("a frame of no sensible size".to_owned()))
    }

    /// Copies what a producer sends.
    async fn producer(
        &mut self,
        store: Option<UnboundedSender<Batch>>,
        presettled: bool,
    ) -> Result<(), LimitError> {
        let (consumer, granted) = self.pair(|pair| (pair.consumer.clone(), pair.credit)).unwrap_or_default();
        let sink = consumer.is_none();
        let (count, credit) = granted.unwrap_or((0, if sink { SINK_CREDIT } else { 0 }));
        self.send(answer::credit(count, credit));
        let (mut first, mut received) = (None, 0_u32);
        loop {
            while let Some(piece) = self.next_piece()? {
                let Piece::Transfers { bytes, count } = piece else {
                    if self.other(piece)? {
                        return Ok(());
                    }
                    continue;
                };
                let first = *first.get_or_insert(first_id(&bytes)?);
                let id = first.wrapping_add(received);
                let confirm = (!presettled).then(|| (self.outlet.clone(), answer::accepted(id, count)));
                received = received.wrapping_add(count);
                let batch = Batch { bytes, to: consumer.clone(), confirm };
                match &store {
                    Some(store) => drop(store.send(batch)),
                    None => batch.pass_on(),
                }
                if sink {
                    self.send(answer::credit(received, SINK_CREDIT));
                }
            }
            if !self.read().await? {
                return Ok(());
            }
        }
    }

    /// Passes a consumer's credit on.
    async fn consumer(&mut self) -> Result<(), LimitError> {
        loop {
            while let Some(piece) = self.next_piece()? {
                if self.other(piece)? {
                    return Ok(());
                }
            }
            if !self.read().await? {
                return Ok(());
            }
        }
    }

    /// Any frame but a producer's transfer; whether it was the last one.
    fn other(&self, piece: Piece) -> Result<bool, LimitError> {
        let Piece::Other(frame) = piece else {
            return Err(LimitError::Peer("a transfer from a consumer".to_owned()));
        };
        let frame = decode_frame(frame).map_err(|error| LimitError::Peer(error.to_string()))?;
        let FrameBody::Amqp { performative, .. } = frame.body else { return Ok(false) };
        match performative {
            Performative::Flow(flow) => {
                if let (Some(count), Some(credit)) = (flow.delivery_count, flow.link_credit) {
                    self.grant(count, credit);
                }
            }
            Performative::Detach(_) => self.send(answer::detach()),
            Performative::End(_) => self.send(answer::end()),
            Performative::Close(_) => {
                self.send(answer::close());
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    fn grant(&self, count: u32, credit: u32) {
        self.pair(|pair| {
            pair.credit = Some((count, credit));
            if let Some(producer) = &pair.producer {
                let _ = producer.send(answer::credit(count, credit));
            }
        });
    }
}

/// The id of the first delivery: from there on they are counted.
fn first_id(frames: &Bytes) -> Result<u32, LimitError> {
    let mut copy = BytesMut::from(frames.chunk());
    let first = postroad_amqp_codec::frame::split_frame(&mut copy, u32::MAX)
        .ok()
        .flatten()
        .and_then(|frame| decode_frame(frame).ok());
    match first.map(|frame| frame.body) {
        Some(FrameBody::Amqp { performative: Performative::Transfer(transfer), .. }) => {
            Ok(transfer.delivery_id.unwrap_or_default())
        }
        _ => Err(LimitError::Peer("a transfer that cannot be read".to_owned())),
    }
}

/// Writes what waits for a connection, all that is ready at once.
async fn write_out(mut writer: OwnedWriteHalf, mut waiting: UnboundedReceiver<Bytes>) {
    let mut ready = VecDeque::new();
    let mut many = Vec::new();
    while waiting.recv_many(&mut many, 64).await > 0 {
        ready.extend(many.drain(..));
        let mut chain = Chunks(std::mem::take(&mut ready));
        if writer.write_all_buf(&mut chain).await.is_err() {
            return;
        }
        ready = chain.0;
    }
}

/// Chunks for a vectored write.
struct Chunks(VecDeque<Bytes>);

impl Buf for Chunks {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |chunk| chunk)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        let filled =
            slices.iter_mut().zip(&self.0).map(|(slice, chunk)| *slice = std::io::IoSlice::new(chunk));
        filled.count()
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(chunk) = self.0.front_mut() {
            if chunk.len() > count {
                return chunk.advance(count);
            }
            count -= chunk.len();
            self.0.pop_front();
        }
    }
}

/// The task with the journal: appends all batches that are ready, and passes them on once they are safe.
fn start_store(folder: &Path) -> Result<UnboundedSender<Batch>, LimitError> {
    let (events_in, mut events) = unbounded_channel();
    // The receiver ends with the runtime, and then nobody waits.
    let mut log = Log::open(folder, move |event| drop(events_in.send(event)))?;
    let (sender, mut batches) = unbounded_channel::<Batch>();
    tokio::spawn(async move {
        let (mut ready, mut waiting) = (Vec::new(), VecDeque::<(Lsn, Batch)>::new());
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(Event::Durable(lsn)) => {
                        while waiting.front().is_some_and(|(last, _)| *last <= lsn) {
                            waiting.pop_front().into_iter().for_each(|(_, batch)| batch.pass_on());
                        }
                    }
                    Some(Event::Checkpointed(checkpoint)) if log.checkpointed(&checkpoint).is_ok() => {}
                    Some(Event::Space | Event::NoSpace) => {}
                    // Nothing is promised any more: the connections get no answers.
                    Some(Event::Failed(error)) => {
                        eprintln!("the journal has failed: {error}");
                        return;
                    }
                    _ => return,
                },
                count = batches.recv_many(&mut ready, 1024) => {
                    if count == 0 {
                        return;
                    }
                    if let Err(error) = append_all(&mut log, &mut ready, &mut waiting) {
                        eprintln!("the journal takes no more: {error}");
                        return;
                    }
                }
            }
        }
    });
    Ok(sender)
}

fn append_all(
    log: &mut Log,
    ready: &mut Vec<Batch>,
    waiting: &mut VecDeque<(Lsn, Batch)>,
) -> Result<(), LimitError> {
    for batch in ready.drain(..) {
        waiting.push_back((log.append(&batch.bytes)?, batch));
    }
    log.submit()
}
