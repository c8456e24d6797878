//! A connection that waits for another thread.

use std::sync::Arc;

use super::client::Key;
use super::shared::{PortMessage, Shared};

/// A connection that waits for another thread's word. Where that never comes, as after a
/// panic there, it is closed.
pub struct WaitingConnection {
    shared: Arc<Shared>,
    worker: usize,
    key: Key,
    ended: bool,
}

impl WaitingConnection {
    /// This connection of this worker.
    pub fn new(shared: &Arc<Shared>, worker: usize, key: Key) -> Self {
        WaitingConnection { shared: Arc::clone(shared), worker, key, ended: false }
    }

    /// Sends it something, after which it still waits.
    pub fn send(&self, message: impl FnOnce(Key) -> PortMessage) {
        self.shared.send(self.worker, message(self.key));
    }

    /// Whether it is still there, as the client of that id.
    pub fn is_there(&self, client: u64) -> bool {
        self.shared.find(client).is_some()
    }

    /// Sends it what it waits for.
    pub fn ends(mut self, message: impl FnOnce(Key) -> PortMessage) {
        self.ended = true;
        self.send(message);
    }
}

impl Drop for WaitingConnection {
    fn drop(&mut self) {
        if !self.ended {
            self.send(PortMessage::Close);
        }
    }
}
