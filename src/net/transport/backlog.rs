//! Bytes that come and go at different speeds.

use crate::limits::INPUT_BYTES;

/// Bytes that are consumed from the front.
#[derive(Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    from: usize,
}

/// Memory that an emptied backlog keeps.
const KEPT_BYTES: usize = 1024;

impl Backlog {
    /// A backlog of the bytes after `from`.
    pub fn of(bytes: Vec<u8>, from: usize) -> Self {
        Backlog { bytes, from }
    }

    /// The bytes that have not been consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// The number of those bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    /// Whether all bytes have been consumed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory it takes, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends a copy of `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends bytes; without a copy if the backlog is empty.
    pub fn append(&mut self, bytes: Vec<u8>) {
        if self.is_empty() && bytes.len() > KEPT_BYTES {
            *self = Backlog::of(bytes, 0);
        } else {
            self.add(&bytes);
        }
    }

    /// The buffer, to append to. It still has the consumed bytes, up to half of it: only
    /// [`Backlog::use_up`] moves the rest, so that not every received piece moves bytes.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Consumes this many bytes from the front. Consumed bytes are removed when they are more than
    /// half of the buffer, so every byte is moved once at most.
    pub fn use_up(&mut self, bytes: usize) {
        self.from += bytes;
        if self.is_empty() {
            self.from = 0;
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new()
            } else {
                self.bytes.clear()
            }
        } else if self.from > self.bytes.len() / 2 {
            self.bytes.drain(..self.from);
            self.from = 0;
            // The beginning of a command does not keep the room of a long one before it.
            if self.bytes.capacity() / 4 > self.bytes.len().max(INPUT_BYTES) {
                self.bytes.shrink_to_fit();
            }
        }
    }
}
