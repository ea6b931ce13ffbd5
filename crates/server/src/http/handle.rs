//! How handlers reach the engine: a bounded queue of requests, each with the place for its answer.

use postroad_engine::admin::{Request, Response};
use postroad_model::refusal::Refusal;
use tokio::sync::{mpsc, oneshot};

/// One request and where its answer goes.
pub type AdminCall = (Box<Request>, oneshot::Sender<Result<Response, Refusal>>);

/// Asks the engine on behalf of operators. Clones share one queue.
#[derive(Clone, Debug)]
pub struct AdminHandle {
    sender: mpsc::Sender<AdminCall>,
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
}

impl AdminHandle {
    /// A handle on the queue whose other end the engine's owner reads. Each call is to be answered once its records
    /// are durable; one that is dropped unanswered gives [`AdminError::Stopped`]. The queue is bounded: when it is
    /// full, handlers wait.
    #[must_use]
    pub const fn new(sender: mpsc::Sender<AdminCall>) -> Self {
        Self { sender }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The engine's refusal, or that there is no engine to answer.
    pub async fn request(&self, request: Request) -> Result<Response, AdminError> {
        let (answer, answered) = oneshot::channel();
        self.sender.send((Box::new(request), answer)).await.map_err(|_| AdminError::Stopped)?;
        Ok(answered.await.map_err(|_| AdminError::Stopped)??)
    }
}
