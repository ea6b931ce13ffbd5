//! How handlers reach the engine: a bounded queue of requests, each with the place for its answer.

use postroad_engine::admin::{Request, Response};
use postroad_model::refusal::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot};

/// What a change goes out from must be there within this: on a full disk it may never come, and others wait.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// One request and where its answer goes.
pub type AdminCall = (Box<Request>, oneshot::Sender<Result<Response, Refusal>>);

/// The paused joins that run only until what waits has been forwarded.
type Drained = BTreeSet<String>;

/// Asks the engine on behalf of operators. Clones share one queue, and change definitions one after the other.
#[derive(Clone, Debug)]
pub struct AdminHandle {
    sender: mpsc::Sender<AdminCall>,
    changes: Arc<Mutex<Drained>>,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The engine refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The engine is not running: the broker starts or stops.
    #[error("the broker is starting or stopping: try again")]
    Stopped,
    /// The engine did not answer in time, and nothing was changed.
    #[error("the broker is too busy to answer, and nothing was changed: look at its log")]
    Busy,
}

impl AdminHandle {
    /// A handle on the queue whose other end the engine's owner reads. Each call is to be answered once its records
    /// are durable; one that is dropped unanswered gives [`AdminError::Stopped`]. The queue is bounded: when it is
    /// full, handlers wait.
    #[must_use]
    pub fn new(sender: mpsc::Sender<AdminCall>) -> Self {
        Self { sender, changes: Arc::default() }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The engine's refusal, or that there is no engine to answer.
    pub async fn request(&self, request: Request) -> Result<Response, AdminError> {
        answer(self.send(request).await?).await
    }

    /// Begins a change of a definition, once nobody else is at one. Without this, a change of one setting that read the
    /// others before somebody else changed them would write them back.
    pub(crate) async fn change(&self) -> Change<'_> {
        Change { handle: self, drained: self.changes.lock().await }
    }

    async fn send(&self, request: Request) -> Result<Answer, AdminError> {
        let (answer, answered) = oneshot::channel();
        self.sender.send((Box::new(request), answer)).await.map_err(|_| AdminError::Stopped)?;
        Ok(answered)
    }
}

type Answer = oneshot::Receiver<Result<Response, Refusal>>;

async fn answer(answered: Answer) -> Result<Response, AdminError> {
    Ok(answered.await.map_err(|_| AdminError::Stopped)??)
}

/// A change of a definition, while nobody else makes one.
pub(crate) struct Change<'a> {
    handle: &'a AdminHandle,
    drained: MutexGuard<'a, Drained>,
}

impl Change<'_> {
    /// Reads what the change goes out from.
    ///
    /// # Errors
    /// As [`AdminHandle::request`], or that the answer takes too long.
    pub(crate) async fn read(&self, request: Request) -> Result<Response, AdminError> {
        let asked = self.handle.request(request);
        tokio::time::timeout(READ_WITHIN, asked).await.map_err(|_| AdminError::Busy)?
    }

    /// Asks for the change, and waits for the answer. The engine takes requests in the order in which they were sent,
    /// so the next change begins without the answer, which may never come on a full disk.
    ///
    /// # Errors
    /// As [`AdminHandle::request`].
    pub(crate) async fn request(self, request: Request) -> Result<Response, AdminError> {
        let answered = self.handle.send(request).await?;
        drop(self);
        answer(answered).await
    }

    /// Notes that a paused join is about to run only until what waits has been forwarded.
    pub(crate) fn begin_drain(&mut self, join: &str) {
        self.drained.insert(join.to_owned());
    }

    /// A join is told whether it is to run. `true` if it was being drained: from now on it is not.
    pub(crate) fn end_drain(&mut self, join: &str) -> bool {
        self.drained.remove(join)
    }
}
