use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_utils::atomic::AtomicCell;

/// Bytes with another owner, which stay at their address until dropped: an argument kept from the
/// host, or a buffer read from a socket.
pub trait SharedBytes: Send + Sync {
    /// The bytes; the same address at every call.
    fn bytes(&self) -> &[u8];

    /// The bytes, to be changed and appended to, if their owner allows that.
    fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        None
    }
}

impl SharedBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        Some(self)
    }
}

/// A large value: reference-counted, never copied.
#[derive(Clone)]
pub struct SharedValue(Arc<Buffer>);

/// A buffer, and the room for its copies.
struct Buffer<T: ?Sized = dyn SharedBytes> {
    /// How many entries have it.
    entries: AtomicUsize,
    /// Whether it was ever copied.
    is_copied: AtomicBool,
    /// Room for copies: for as many as there are, or fewer than the entries.
    rooms: AtomicCell<Option<Box<Rooms>>>,
    bytes: T,
}

/// Memory that nobody has written to: the host counts it, and the system has not given it yet.
#[derive(Default)]
struct Rooms(Vec<Vec<u8>>);

impl SharedValue {
    /// Takes ownership of the buffer.
    pub fn new(bytes: impl SharedBytes + 'static) -> Self {
        SharedValue(Arc::new(Buffer {
            entries: AtomicUsize::new(0),
            is_copied: AtomicBool::new(false),
            rooms: AtomicCell::new(None),
            bytes,
        }))
    }

    /// The value's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes.bytes()
    }
}

impl Buffer {
    /// Adds room for one more copy.
    fn add_room(&self) {
        self.is_copied.store(true, Ordering::SeqCst);
        let mut rooms = self.rooms.take().unwrap_or_default();
        rooms.0.push(Vec::with_capacity(self.bytes.bytes().len()));
        self.put_back(rooms);
        self.drop_rooms();
    }

    /// Drops the room for copies that are gone.
    ///
    /// Entries are dropped by any thread, and in forked children, where another thread's lock would
    /// stay locked. So a thread takes all rooms out, and looks once more at the number of entries
    /// after it has put them back: of two threads, one sees all that the other has left to it.
    fn drop_rooms(&self) {
        loop {
            let copies = self.entries.load(Ordering::SeqCst).saturating_sub(1);
            let Some(mut rooms) = self.rooms.take() else { return };
            if rooms.0.len() > copies {
                rooms.0.truncate(copies);
            }
            self.put_back(rooms);
            if self.entries.load(Ordering::SeqCst).saturating_sub(1) >= copies {
                return;
            }
        }
    }

    fn put_back(&self, mut rooms: Box<Rooms>) {
        while let Some(mut others) = self.rooms.swap(Some(rooms)) {
            rooms = self.rooms.take().unwrap_or_default();
            rooms.0.append(&mut others.0);
        }
    }
}

/// An entry's reference to a large value.
///
/// Entries that are copies of each other have one buffer, until one of them is changed. Still each
/// takes the memory of a value of its own, from the start: so the host's `used_memory` and
/// `maxmemory` count what the copies would take in a replica, or after a restart.
pub(super) struct ValueRef(SharedValue);

impl ValueRef {
    pub(super) fn new(value: &SharedValue) -> Self {
        value.0.entries.fetch_add(1, Ordering::SeqCst);
        ValueRef(value.clone())
    }

    pub(super) fn value(&self) -> &SharedValue {
        &self.0
    }

    /// Takes the memory of a value of its own, which a copy will have.
    pub(super) fn make_room(&self) {
        self.0.0.add_room();
    }

    /// The bytes, to be changed in place, if this is the only reference.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        Arc::get_mut(&mut self.0.0)?.bytes.bytes_mut()
    }
}

impl Drop for ValueRef {
    fn drop(&mut self) {
        let buffer = &self.0.0;
        buffer.entries.fetch_sub(1, Ordering::SeqCst);
        if buffer.is_copied.load(Ordering::SeqCst) {
            buffer.drop_rooms();
        }
    }
}

#[cfg(test)]
mod tests;
