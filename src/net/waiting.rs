//! A connection that waits for another thread.

use std::sync::Arc;

use super::shared::{PortMessage, Shared};
use super::transport::Key;

/// A connection that waits for a message of another thread. If none comes, as after a panic there,
/// the connection is closed.
pub struct WaitingConnection {
    shared: Arc<Shared>,
    worker: usize,
    key: Key,
    ended: bool,
}

impl WaitingConnection {
    /// For this connection of this worker.
    pub fn new(shared: &Arc<Shared>, worker: usize, key: Key) -> Self {
        WaitingConnection { shared: Arc::clone(shared), worker, key, ended: false }
    }

    /// Sends it a message; it still waits afterwards.
    pub fn send(&self, message: impl FnOnce(Key) -> PortMessage) {
        self.shared.send(self.worker, message(self.key));
    }

    /// Whether the client with this id is still connected.
    pub fn is_there(&self, client: u64) -> bool {
        self.shared.find(client).is_some()
    }

    /// The last position of the log so far.
    pub fn last_position(&self) -> u64 {
        self.shared.engine.ledger.log.last()
    }

    /// Sends it the message that ends its wait.
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
