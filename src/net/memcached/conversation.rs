//! What a connection that speaks memcached's protocol keeps between its commands.

use super::parse::KeysOfLine;
use super::reply::{MemcachedReply, Wording};
use crate::command::Transcript;
use crate::net::transport::Output;

/// The state of a connection that speaks memcached's protocol, beside its session.
#[derive(Default)]
pub struct Conversation {
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

impl Conversation {
    /// The command that runs is not to be answered.
    pub fn is_muted(&self) -> bool {
        self.waiting.as_ref().is_some_and(|(_, answered)| answered.is_silent)
    }

    /// Writes a reply that another thread has made.
    pub fn say(&self, reply: &Transcript, output: &mut Output) {
        let Some((key, answered)) = &self.waiting else { return };
        reply.play(&mut MemcachedReply::of_one(output, key, *answered));
    }

    /// Memory of what it keeps, in bytes.
    pub fn memory(&self) -> usize {
        self.waiting.as_ref().map_or(0, |(key, _)| key.len())
    }
}
