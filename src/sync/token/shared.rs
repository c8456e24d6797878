//! Reading a shard without its token, together with other threads.
//!
//! Taking a token writes to its cache line, even if the shard is only read. Threads that read the
//! same shards then wait for each other's writes. So a shard that is read again and again is
//! *opened*: whoever reads it writes to a mark of its own instead. The first thread that takes the
//! token closes the shard, and waits until nobody reads it.
//!
//! ```text
//! a thread that reads                a thread that takes the token
//! writes the shard into its mark     replaces OPEN by HELD and READ
//! reads the word:                    reads all marks:
//!   is it OPEN? may read               is the shard in one? may not touch it yet
//! ```
//!
//! Each of the two writes before it reads what the other writes, in sequentially consistent order:
//! so at least one of them sees the other, as at a standstill.
//!
//! The scheme is that of biased locks (Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer
//! Locks", 2019), with marks that belong to one thread each.

use std::ops::Deref;

use crossbeam_utils::CachePadded;

use super::super::primitives::{AtomicUsize, Ordering, spin_loop, to_read, yield_now};
use super::super::standstill::fence_of_models;
use super::{Condvar, HELD, Held, LONG, Locked, Mutex, OPEN, READ, Released, Token, WaitingRoom};
use crate::limits::{AHEAD, MAIN_SPINS, OPEN_AFTER};

/// The marks of all threads.
pub(super) struct Readers(Box<[CachePadded<ReadMarks>]>);

/// The addresses of the tokens whose shards one thread reads; 0 for none.
pub struct ReadMarks([AtomicUsize; AHEAD]);

impl WaitingRoom {
    /// With marks for so many threads that read.
    pub fn new(readers: usize) -> Self {
        let marks = || CachePadded::new(ReadMarks(std::array::from_fn(|_| AtomicUsize::new(0))));
        let readers = Readers((0..readers).map(|_| marks()).collect());
        WaitingRoom { slot: Mutex::new(()), call: Condvar::new(), readers }
    }

    /// The marks of a thread.
    #[inline]
    pub fn marks(&self, reader: usize) -> &ReadMarks {
        &self.readers.0[reader]
    }

    /// Waits until no thread reads: none begins to, as the caller has seen to. Reads are short, and
    /// do not wait for tokens, the main thread or the log, so this takes as long as a thread may be
    /// without a processor.
    pub fn wait_for_readers(&self, _: Locked<'_>) {
        while self.readers.any(|address| address != 0) {
            yield_now();
        }
    }
}

impl Readers {
    fn any(&self, is_looked_for: impl Fn(usize) -> bool) -> bool {
        fence_of_models();
        // SeqCst: after the word of the shard was written. It also acquires: what was read, was.
        self.0.iter().flat_map(|marks| &marks.0).any(|it| is_looked_for(it.load(Ordering::SeqCst)))
    }
}

impl<T: Sync, M> Token<T, M> {
    /// Reads the shard together with others, if it is open. `number` is that of a mark which this
    /// thread does not use. The marks are of the room that is passed to [`Taken::alone`].
    #[inline]
    pub fn try_share<'a>(
        &'a self,
        marks: &'a ReadMarks,
        number: usize,
    ) -> Option<HeldShared<'a, T, M>> {
        if self.word.load(Ordering::Relaxed) != OPEN {
            return None;
        }
        let mark = marks.0.get(number)?;
        // An exchange, so that no mark can be used twice.
        mark.compare_exchange(0, self.address(), Ordering::SeqCst, Ordering::Relaxed).ok()?;
        let shared = HeldShared { token: self, mark };
        fence_of_models();
        // It acquires what the thread has done that opened the shard.
        (self.word.load(Ordering::SeqCst) == OPEN).then_some(shared)
    }
}

impl<T, M> Token<T, M> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the token of a shard that is open, or was, if nothing is pending; with these flags.
    #[cold]
    fn try_close(&self, flags: usize) -> Option<Taken<'_, T, M>> {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 || word & !(OPEN | READ) != 0 {
            return None;
        }
        self.word
            .compare_exchange(word, flags | READ, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
            .then(|| Taken::of(self))
    }

    /// Takes the token of a shard that threads read, or have read, together.
    pub fn try_take_from_readers(&self) -> Option<Taken<'_, T, M>> {
        self.try_close(HELD)
    }

    /// The same, for a job's slice.
    pub fn try_take_long_from_readers(&self) -> Option<Taken<'_, T, M>> {
        self.try_close(HELD | LONG)
    }
}

/// A shard that this thread reads, as others may, too. Nobody changes it meanwhile.
pub struct HeldShared<'a, T, M> {
    token: &'a Token<T, M>,
    mark: &'a AtomicUsize,
}

impl<T: Sync, M> Deref for HeldShared<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mark was written before the word was seen open. Whoever has taken the token
        // since then changes nothing while the mark is there.
        unsafe { &(*to_read(&self.token.inside)).data }
    }
}

impl<T, M> Drop for HeldShared<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        // Release: what was read, was, when a holder finds the mark empty.
        self.mark.store(0, Ordering::Release);
    }
}

/// A token that this thread has taken, of a shard that others may still read.
#[must_use = "a token must be released"]
pub struct Taken<'a, T, M>(Held<'a, T, M>);

impl<'a, T, M> Taken<'a, T, M> {
    pub(super) fn of(token: &'a Token<T, M>) -> Self {
        Taken(Held { token })
    }

    /// The shard, if nobody reads it now, or after so many tries. The room is the one with the
    /// marks of all who read shards.
    ///
    /// # Errors
    /// The token, to be released: a thread still reads the shard. No other one begins to.
    #[inline]
    pub fn alone(self, room: &WaitingRoom, tries: u32) -> Result<Held<'a, T, M>, Self> {
        let token = self.0.token;
        if token.word.load(Ordering::Relaxed) & READ == 0 {
            return Ok(self.0);
        }
        for _ in 0..=tries {
            if !room.readers.any(|address| address == token.address()) {
                token.word.fetch_and(!READ, Ordering::Relaxed);
                token.reads.store(0, Ordering::Relaxed);
                return Ok(self.0);
            }
            spin_loop();
        }
        Err(self)
    }

    /// The shard, as soon as nobody reads it.
    pub(super) fn wait_alone(self, _: Locked<'_>, room: &WaitingRoom) -> Held<'a, T, M> {
        let mut taken = self;
        loop {
            match taken.alone(room, MAIN_SPINS) {
                Ok(held) => return held,
                Err(still_read) => taken = still_read,
            }
            yield_now();
        }
    }

    /// Releases the token: to a waiter, or to no thread.
    pub fn release(self, room: &WaitingRoom) -> Released {
        self.0.release(room)
    }
}

impl<T: Sync, M> Held<'_, T, M> {
    /// Releases the token of a shard that was only read: to a waiter, or to no thread. If that has
    /// happened often enough in a row, the shard is open from now on.
    #[inline]
    pub fn release_read(self, room: &WaitingRoom) -> Released {
        let reads = &self.token.reads;
        let count = reads.load(Ordering::Relaxed).saturating_add(1);
        reads.store(count, Ordering::Relaxed);
        self.release_to(if count < OPEN_AFTER { 0 } else { OPEN }, room)
    }
}
