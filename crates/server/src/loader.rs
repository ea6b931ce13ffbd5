//! The thread that reads messages back from the journal, so that a slow disk holds up neither sockets nor engine.

use crate::core::Input;
use postroad_engine::Wanted;
use postroad_journal::Reader;
use postroad_shell::read_messages;
use std::io;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Reads messages in the order in which they are asked for.
#[derive(Debug)]
pub(crate) struct Loader {
    /// `None` only while the thread is being ended.
    requests: Option<blocking::Sender<Vec<Wanted>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts the thread; what it reads goes to `core`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(reader: Reader, core: mpsc::UnboundedSender<Input>) -> io::Result<Self> {
        let (requests, inbox) = blocking::channel::<Vec<Wanted>>();
        let read_all = move || {
            while let Ok(wanted) = inbox.recv() {
                // A core that is gone needs nothing any more; the requests end with it.
                let _ = core.send(Input::Loaded(read_messages(&reader, &wanted)));
            }
        };
        let thread = std::thread::Builder::new().name("postroad-loader".to_owned()).spawn(read_all)?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Has messages read.
    pub(crate) fn load(&self, wanted: Vec<Wanted>) {
        if let Some(requests) = &self.requests {
            // The thread ends only with this.
            let _ = requests.send(wanted);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it had, there would be nothing left to do for it.
            let _ = thread.join();
        }
    }
}
