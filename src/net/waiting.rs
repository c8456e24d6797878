//! A connection that waits for another thread.

use std::sync::Arc;

use super::client::Key;
use super::shared::{Mail, Shared};

/// A connection that waits for another thread's word. Where that never comes, as after a
/// panic there, it is closed.
pub struct Waiting {
    shared: Arc<Shared>,
    worker: usize,
    key: Key,
    ended: bool,
}

impl Waiting {
    /// This connection of this worker.
    pub fn new(shared: &Arc<Shared>, worker: usize, key: Key) -> Self {
        Waiting { shared: Arc::clone(shared), worker, key, ended: false }
    }

    /// Sends it something, after which it still waits.
    pub fn send(&self, mail: impl FnOnce(Key) -> Mail) {
        self.shared.send(self.worker, mail(self.key));
    }

    /// Whether it is still there, as the client of that id.
    pub fn is_there(&self, client: u64) -> bool {
        self.shared.find(client).is_some()
    }

    /// Sends it what it waits for.
    pub fn ends(mut self, mail: impl FnOnce(Key) -> Mail) {
        self.ended = true;
        self.send(mail);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.ended {
            self.send(Mail::Close);
        }
    }
}
