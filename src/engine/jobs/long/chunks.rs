//! Keys on their way into a reply, in pieces that are written one slice at a time.

use std::collections::VecDeque;

use crate::command::Reply;
use crate::engine::{JobDoor, Slice};
use crate::limits::CHUNK_BYTES;

/// Some keys, one after the other.
#[derive(Default)]
pub(super) struct KeyChunk {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyChunk {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it is large enough to be passed on.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= CHUNK_BYTES
    }

    /// About its size in a reply.
    fn bytes(&self) -> usize {
        self.bytes.len() + 8 * self.ends.len()
    }

    fn say(&self, reply: &mut dyn Reply) {
        let mut start = 0;
        for &end in &self.ends {
            reply.bulk(&self.bytes[start..end]);
            start = end;
        }
    }
}

/// Chunks in order.
#[derive(Default)]
pub(super) struct KeyChunks {
    full: VecDeque<KeyChunk>,
    keys: usize,
    bytes: usize,
    is_begun: bool,
}

impl KeyChunks {
    pub(super) fn push(&mut self, key: &[u8]) {
        if self.full.back().is_none_or(KeyChunk::is_full) {
            self.full.push_back(KeyChunk::default());
        }
        if let Some(last) = self.full.back_mut() {
            last.push(key);
        }
        self.keys += 1;
        self.bytes += key.len() + 8;
    }

    pub(super) fn push_chunk(&mut self, chunk: KeyChunk) {
        self.keys += chunk.len();
        self.bytes += chunk.bytes();
        self.full.push_back(chunk);
    }

    /// About the size of all in a reply.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The least size of all in a reply: of the bytes counted beside each key, five are certain.
    pub(super) fn least_bytes(&self) -> usize {
        self.bytes - 3 * self.keys
    }

    /// Whether the host would refuse them: it limits the reply as a whole. A port sends it bit by
    /// bit.
    pub(super) fn are_too_large(&self, slice: &Slice<'_>) -> bool {
        let is_of_host = slice.job.is_some_and(|job| job.owner.door == JobDoor::Host);
        is_of_host && self.least_bytes() > slice.engine.context().most_reply(JobDoor::Host)
    }

    /// Writes the keys, after what `head` writes, which gets their number; as far as the slice
    /// allows. True when all is written.
    pub(super) fn say(
        &mut self,
        reply: &mut dyn Reply,
        slice: Option<&Slice<'_>>,
        head: impl FnOnce(&mut dyn Reply, usize),
    ) -> bool {
        if !std::mem::replace(&mut self.is_begun, true) {
            head(reply, self.keys);
        }
        while let Some(chunk) = self.full.pop_front() {
            chunk.say(reply);
            if slice.is_some_and(Slice::spent) {
                return false;
            }
        }
        true
    }
}
