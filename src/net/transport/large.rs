//! A large part of a client's input, such as a value, received into a buffer of its own: that one
//! is kept, so nothing is copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::{ANNOUNCED_BYTES, INPUT_GROWTH, READ_BYTES};

/// How much room to make for input that a client has announced, if `present` bytes have arrived.
/// Announcing costs a client nothing, so the buffer grows by no more than three times that.
pub fn room_for(missing: usize, present: usize) -> usize {
    missing.min(present.saturating_mul(INPUT_GROWTH)).max(READ_BYTES)
}

/// The memory of all connections for what clients have announced and may not have sent.
#[derive(Clone, Default)]
pub struct Announced(Arc<AtomicUsize>);

/// A part of that memory, until it is dropped.
struct Claim {
    of: Announced,
    bytes: usize,
}

impl Announced {
    /// A claim to so much memory. `None` if others claim too much already.
    fn claim(&self, bytes: usize) -> Option<Claim> {
        let claim = Claim { of: self.clone(), bytes };
        (self.0.fetch_add(bytes, Ordering::Relaxed) + bytes <= ANNOUNCED_BYTES).then_some(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A large part of the input that is being received.
pub struct LargeInput {
    bytes: Vec<u8>,
    len: usize,
    /// How many bytes have been copied: those that had been received elsewhere, and those in a
    /// buffer that had to grow.
    copied: usize,
    _claim: Option<Claim>,
}

impl LargeInput {
    /// Of `len` bytes, of which none has come. Announcing costs a client nothing, so it has its
    /// memory at once only if clients together have announced little.
    pub fn new(len: usize, announced: &Announced) -> Self {
        let claim = announced.claim(len);
        let room = if claim.is_some() { len } else { 0 };
        LargeInput { bytes: Vec::with_capacity(room), len, copied: 0, _claim: claim }
    }

    /// How many bytes are to come.
    pub fn missing(&self) -> usize {
        self.len - self.bytes.len()
    }

    /// Takes its next bytes from what was received elsewhere; returns how many it has taken.
    pub fn take_from(&mut self, input: &[u8]) -> usize {
        let bytes = input.len().min(self.missing());
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.grow(bytes);
        }
        self.bytes.extend_from_slice(&input[..bytes]);
        self.copied += bytes;
        bytes
    }

    /// Room for its next bytes: some of its free capacity, but none beyond its end.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.bytes.len() == self.bytes.capacity() {
            self.grow(1);
        }
        &mut self.bytes
    }

    /// Grows with what has come. A buffer that is moved before it is full would be copied with the
    /// room behind its bytes, which would take memory only then.
    fn grow(&mut self, least: usize) {
        let (missing, present) = (self.missing(), self.bytes.len());
        self.copied += present;
        self.bytes.reserve_exact(room_for(missing, present).max(least).min(missing));
    }

    /// The memory that it takes, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// How many bytes have come.
    pub fn received(&self) -> usize {
        self.bytes.len()
    }

    /// All its bytes, and how many of them have been copied.
    pub fn whole(self) -> (Vec<u8>, usize) {
        (self.bytes, self.copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_what_was_announced_is_limited() {
        let announced = Announced::default();
        let half = ANNOUNCED_BYTES / 2;
        let mut inputs: Vec<_> = (0..3).map(|_| LargeInput::new(half, &announced)).collect();
        let capacities: Vec<usize> = inputs.iter().map(LargeInput::capacity).collect();
        assert_eq!(capacities, [half, half, 0]);
        inputs.clear();
        assert_eq!(LargeInput::new(ANNOUNCED_BYTES, &announced).capacity(), ANNOUNCED_BYTES);
        assert_eq!(announced.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_buffer_without_a_claim_grows_with_what_has_come() {
        let mut large = LargeInput::new(ANNOUNCED_BYTES + 1, &Announced::default());
        let mut most = READ_BYTES;
        while large.missing() > 0 {
            assert!(large.room().capacity() <= most, "{} bytes", large.capacity());
            let piece = vec![b'x'; large.capacity() - large.received()];
            assert_eq!(large.take_from(&piece), piece.len());
            most = large.received() * (INPUT_GROWTH + 1);
        }
        let (bytes, copied) = large.whole();
        assert_eq!((bytes.len(), bytes.capacity()), (ANNOUNCED_BYTES + 1, ANNOUNCED_BYTES + 1));
        assert!(copied > ANNOUNCED_BYTES);
    }

    #[test]
    fn claims_get_no_more_room_than_was_paid_for() {
        assert_eq!(room_for(1, 100), READ_BYTES);
        assert_eq!(room_for(512 << 20, 30), READ_BYTES);
        assert_eq!(room_for(512 << 20, 1 << 20), 3 << 20);
        assert_eq!(room_for(1 << 20, 512 << 20), 1 << 20);
    }
}
