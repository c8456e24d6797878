//! The session of a connection that speaks memcached's protocol.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::parse::KeysOfLine;
use super::reply::Wording;
use crate::engine::Engine;
use crate::net::access::SessionAccess;
use crate::net::client::Client;
use crate::net::flow::Flow;

/// The session of a connection that speaks memcached's protocol. What sessions of all protocols
/// have comes first, as in each of them: so it is found without a branch.
#[repr(C)]
pub struct MemcachedSession {
    /// What it waits for.
    pub flow: Flow,
    /// Its user and its database.
    pub access: SessionAccess,
    /// The keys of a `get` that have not been taken.
    pub(super) keys: Option<KeptKeys>,
    /// Bytes of input that are to be skipped.
    pub(super) skipped: usize,
    /// The bytes of the unread input in which there is no end of a line.
    pub(super) seen: usize,
    /// How the command that runs elsewhere is answered.
    pub(super) waiting: Option<(Box<[u8]>, Wording)>,
}

/// [`KeysOfLine`] that outlive the input.
#[derive(Clone, Default)]
pub(super) struct KeptKeys {
    numbers: bool,
    touch: Box<[u8]>,
    left: usize,
    line_end: usize,
}

impl KeptKeys {
    pub(super) fn of(keys: KeysOfLine<'_>) -> Self {
        let KeysOfLine { numbers, touch, left, line_end } = keys;
        KeptKeys { numbers, touch: touch.into(), left, line_end }
    }

    pub(super) fn keys(&self) -> KeysOfLine<'_> {
        let KeptKeys { numbers, ref touch, left, line_end } = *self;
        KeysOfLine { numbers, touch, left, line_end }
    }
}

impl MemcachedSession {
    /// The session of a new connection.
    pub fn new(engine: &Engine, client: Arc<Client>) -> Self {
        let mut access = SessionAccess::new(engine, &client);
        let db = engine.settings().port.memcached_database.load(Ordering::Relaxed);
        access.select(db as u32, &client);
        let flow = Flow::new(client);
        MemcachedSession { flow, access, keys: None, skipped: 0, seen: 0, waiting: None }
    }

    /// An error stands for the keys of its line that have not been taken.
    pub(super) fn skip_line(&mut self) {
        if let Some(keys) = self.keys.take() {
            self.skipped = keys.left + keys.line_end;
        }
    }
}
