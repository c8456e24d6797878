//! The shards: taking and releasing their tokens.
//!
//! A shard is touched only by the holder of its token, or read by threads together. The ledger sees
//! to all that must happen before a token is released: see `Ledger::release`.

mod all_held;
mod by_shard;
mod mailbox;
mod standstill;
mod together;
mod unit;

use std::sync::atomic::{AtomicI64, Ordering};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::call::Taking;
use super::context::{Context, Message};
use super::request::Request;
use super::slot::ThreadSlot;
use crate::limits::{MAIN_SPINS, WORKER_SPINS};
use crate::store::{KeyHash, KeyHasher, Store, Table, UnixMs, prefetch};
use crate::sync::contention::{Contact, note};
use crate::sync::{Held, HeldShared, Locked, Released, StopFlag, Taken, Token, WaitingRoom};

pub use all_held::AllHeld;
pub(in crate::engine) use by_shard::sort_by_shard;
pub use standstill::Standstill;
pub(in crate::engine) use together::{HeldTogether, InHand};
use unit::Unit;

/// A shard: token, mailbox and data, and the next due time in it.
pub struct Shard {
    /// Only its holder may touch the data, but for those who read it together. [`Shards`] gives it
    /// to nobody while all are stopped.
    token: Token<Store, Box<Request>>,
    due: AtomicI64,
    /// The thread that took it last.
    #[cfg(feature = "contention")]
    last: std::sync::atomic::AtomicU32,
}

/// The cost of a shard that limits.rs states.
#[cfg(not(any(loom, feature = "contention")))]
const _: () = assert!(size_of::<CachePadded<Shard>>() <= 256);

/// All shards, and the workers that own them.
pub struct Shards {
    /// The settings, and the ways to other threads.
    pub context: Context,
    /// Gives a key its hash, which places the key.
    pub hasher: KeyHasher,
    /// Where the holder of the global lock waits for a token, and the marks of the workers.
    pub room: WaitingRoom,
    list: Box<[CachePadded<Shard>]>,
    mask: u32,
    unit: Unit,
    /// Up while the process forks. Read with each token, so no word beside it may be written.
    stop: CachePadded<StopFlag>,
}

/// A shard whose token this thread holds.
pub type HeldShard<'a> = Held<'a, Store, Box<Request>>;

/// A shard that this thread reads, as others may, too.
pub type SharedShard<'a> = HeldShared<'a, Store, Box<Request>>;

/// A shard whose token this thread has taken, while others may still read it.
type TakenShard<'a> = Taken<'a, Store, Box<Request>>;

/// A command of up to so many keys allocates nothing for them.
pub(in crate::engine) const KEYS_INLINE: usize = 16;

/// Tokens of several shards, in the order of their numbers.
pub(in crate::engine) type ManyHeld<'a> = SmallVec<[(u32, HeldShard<'a>); KEYS_INLINE]>;

/// A key's shard, database and hash.
#[derive(Clone, Copy)]
pub(in crate::engine) struct KeyAt {
    pub(super) shard: u32,
    pub(super) db: u32,
    pub(super) hash: KeyHash,
}

impl Shards {
    /// Empty shards.
    pub(super) fn new(context: Context) -> Self {
        let shard = || {
            CachePadded::new(Shard {
                token: Token::new(Store::default()),
                due: AtomicI64::new(UnixMs::MAX),
                #[cfg(feature = "contention")]
                last: Default::default(),
            })
        };
        Shards {
            list: (0..context.config.shards).map(|_| shard()).collect(),
            mask: context.config.shards as u32 - 1,
            hasher: KeyHasher::default(),
            room: WaitingRoom::new(context.config.workers),
            unit: Unit::default(),
            stop: CachePadded::default(),
            context,
        }
    }

    /// A shard.
    #[inline]
    pub fn get(&self, number: u32) -> &Shard {
        &self.list[number as usize]
    }

    /// Prefetches a shard.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        prefetch(&raw const *self.list[number as usize]);
    }

    /// The number of shards.
    pub fn count(&self) -> u32 {
        self.mask + 1
    }

    /// The shard that a key is in.
    #[inline]
    pub fn of(&self, hash: KeyHash) -> u32 {
        hash.shard(self.mask)
    }

    /// The shard that the key of this name is in.
    #[inline]
    pub fn of_key(&self, key: &[u8]) -> u32 {
        self.of(self.hasher.hash(key))
    }

    /// A shard of a random number.
    #[inline]
    pub(super) fn drawn(&self, random: u32) -> u32 {
        random & self.mask
    }

    /// The shard and hash of a key of that database.
    pub(super) fn key_at(&self, db: u32, key: &[u8]) -> KeyAt {
        let hash = self.hasher.hash(key);
        KeyAt { shard: self.of(hash), db, hash }
    }

    /// The shards that a worker owns.
    pub fn owned_by(&self, worker: usize) -> impl Iterator<Item = u32> + use<> {
        (worker as u32..self.count()).step_by(self.context.config.workers)
    }

    /// The worker that owns a shard.
    pub fn owner(&self, shard: u32) -> usize {
        shard as usize % self.context.config.workers
    }

    /// The worker that owns the shard of the key of this name.
    pub(super) fn owner_of(&self, key: &[u8]) -> usize {
        self.owner(self.of_key(key))
    }

    /// Takes a shard's token.
    #[inline]
    pub fn take(&self, shard: u32, taking: Taking<'_>) -> Option<HeldShard<'_>> {
        match taking {
            Taking::Try(spins) => match self.get(shard).token.try_take() {
                Some(held) => self.unless_stopped(shard, held),
                None => self.take_spinning(shard, spins),
            },
            Taking::Wait(locked) => Some(self.take_waiting(locked, shard)),
        }
    }

    /// Reads a shard together with others, if it is open: with the mark of that number, which this
    /// thread does not use. The main thread takes tokens instead.
    #[inline(always)]
    pub(super) fn try_share(
        &self,
        slot: &ThreadSlot,
        shard: u32,
        number: usize,
    ) -> Option<SharedShard<'_>> {
        let worker = slot.number.checked_sub(1)?;
        let shared = self.get(shard).token.try_share(self.room.marks(worker), number)?;
        if self.are_stopped() {
            return None;
        }
        note(Contact::Shared);
        Some(shared)
    }

    #[cold]
    fn take_spinning(&self, shard: u32, spins: u32) -> Option<HeldShard<'_>> {
        let token = &self.get(shard).token;
        match token.try_take_spinning(spins) {
            Some(held) => {
                note(Contact::Busy);
                self.unless_stopped(shard, held)
            }
            None => match token.try_take_from_readers() {
                Some(taken) => self.alone(shard, taken),
                None => {
                    note(Contact::Busy);
                    None
                }
            },
        }
    }

    /// A shard that this thread has just taken, if nobody reads it any more, and it may be kept.
    fn alone<'e>(&'e self, shard: u32, taken: TakenShard<'e>) -> Option<HeldShard<'e>> {
        let alone = self.alone_or_released(shard, taken);
        alone.map_err(|released| self.tell_of(shard, released)).ok()
    }

    /// The same; the caller tells the owner of messages that are left.
    fn alone_or_released<'e>(
        &'e self,
        shard: u32,
        taken: TakenShard<'e>,
    ) -> Result<HeldShard<'e>, Released> {
        match taken.alone(&self.room, WORKER_SPINS) {
            Ok(held) => self.unless_stopped(shard, held).ok_or(Released::Clean),
            Err(taken) => {
                note(Contact::Busy);
                Err(taken.release(&self.room))
            }
        }
    }

    /// Takes a shard's token if it is free and nothing is pending.
    pub fn try_take(&self, shard: u32) -> Option<HeldShard<'_>> {
        self.take(shard, Taking::Try(0))
    }

    /// The same, for a job's slice.
    pub fn try_take_long(&self, shard: u32) -> Option<HeldShard<'_>> {
        let token = &self.get(shard).token;
        match token.try_take_long() {
            Some(held) => self.unless_stopped(shard, held),
            None => self.alone(shard, token.try_take_long_from_readers()?),
        }
    }

    /// Takes a shard's token if no thread holds it, also with messages pending.
    ///
    /// # Errors
    /// A thread holds or reads the shard. If messages are pending, the owner is not told of them.
    pub fn try_take_with_pending(&self, shard: u32) -> Result<HeldShard<'_>, Released> {
        let taken = self.get(shard).token.try_take_with_pending().ok_or(Released::Clean)?;
        self.alone_or_released(shard, taken)
    }

    /// Waits for a shard's token, which an open unit then keeps.
    pub(super) fn take_waiting(&self, locked: Locked<'_>, shard: u32) -> HeldShard<'_> {
        let token = &self.get(shard).token;
        self.note_taken(shard);
        if !self.is_in_unit(locked) {
            return token.take_waiting(locked, &self.room, MAIN_SPINS);
        }
        let (held, new) = token.take_for_unit(locked, &self.room, MAIN_SPINS);
        if new {
            self.unit.keep(shard);
        }
        held
    }

    /// A token is taken: counts that, and whether another thread had it before.
    #[cfg(feature = "contention")]
    fn note_taken(&self, shard: u32) {
        let thread = crate::sync::contention::thread();
        note(Contact::Taken);
        if self.get(shard).last.swap(thread, Ordering::Relaxed) != thread {
            note(Contact::ChangedHands);
        }
    }

    #[cfg(not(feature = "contention"))]
    #[inline(always)]
    fn note_taken(&self, _: u32) {}

    /// Takes the tokens of all these shards (in ascending order, each once), or none.
    pub(super) fn take_many(&self, shards: &[u32], taking: Taking<'_>) -> Option<ManyHeld<'_>> {
        let mut held = ManyHeld::new();
        for &shard in shards {
            match self.take(shard, taking) {
                Some(token) => held.push((shard, token)),
                None => {
                    held.into_iter().for_each(|(shard, token)| self.let_go(shard, token));
                    return None;
                }
            }
        }
        Some(held)
    }

    /// Releases a token whose shard this thread has neither changed nor read for a client; notifies
    /// the owner of messages that are left.
    #[inline]
    pub(super) fn let_go(&self, shard: u32, held: HeldShard<'_>) {
        self.tell_of(shard, held.release(&self.room));
    }

    /// The same, of a shard that was only read.
    #[inline]
    pub(super) fn let_go_read(&self, shard: u32, held: HeldShard<'_>) {
        self.tell_of(shard, held.release_read(&self.room));
    }

    /// A token is released: the owner is told of messages that are left.
    #[inline]
    pub(in crate::engine) fn tell_of(&self, shard: u32, released: Released) {
        if released == Released::Pending {
            self.tell_owner(shard);
        }
    }

    #[cold]
    fn tell_owner(&self, shard: u32) {
        self.context.workers.send(self.owner(shard), Message::Shard(shard));
    }

    /// Lends one shard, which is held meanwhile.
    pub fn visit(&self, locked: Locked<'_>, shard: u32, look: &mut dyn FnMut(&Store)) {
        let held = self.take_waiting(locked, shard);
        look(&held);
        self.let_go(shard, held);
    }

    /// Lowers the shard's due time, which other threads read without the token.
    #[inline]
    pub(super) fn note_due(&self, shard: u32, table: &Table) {
        let due = &self.get(shard).due;
        if table.next_due() < due.load(Ordering::Relaxed) {
            due.store(table.next_due(), Ordering::Relaxed);
        }
    }

    pub(super) fn due(&self, shard: u32) -> UnixMs {
        self.get(shard).due.load(Ordering::Relaxed)
    }

    pub(super) fn set_due(&self, shard: u32, store: &Store) {
        self.get(shard).due.store(store.next_due(), Ordering::Relaxed);
    }
}

/// The held shard that has this number.
#[inline]
pub(super) fn of_shard<'h, 'b>(held: &'h mut ManyHeld<'b>, shard: u32) -> &'h mut HeldShard<'b> {
    let place = place_of(held, shard);
    &mut held[place].1
}

/// Its place among those held.
#[inline]
pub(super) fn place_of(held: &ManyHeld<'_>, shard: u32) -> usize {
    let place = held.partition_point(|&(number, _)| number < shard);
    debug_assert!(held.get(place).is_some_and(|&(number, _)| number == shard), "it is not held");
    place
}
