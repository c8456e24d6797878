//! Evicting keys: a write makes room in its own shard, and workers do so in the shards that have
//! more than their share.

use std::time::Instant;

use smallvec::SmallVec;

use crate::command::Error;
use crate::engine::Engine;
use crate::engine::call::{Call, Taking};
use crate::engine::jobs::Progress;
use crate::engine::ledger::{Eviction, Gates, Ledger, Scope, Search};
use crate::engine::shards::{HeldShard, ManyHeld};
use crate::engine::slot::ThreadSlot;
use crate::limits::{
    BUCKETS_PER_VICTIM, EXPIRY_TICK, SEARCHES_ON_MAIN, SHARDS_ON_MAIN, SLICE, VICTIMS_PER_KEY,
    VICTIMS_PER_WRITE,
};
use crate::store::Store;

/// Before a command that may need memory, which holds this shard: evicts keys of the shard if
/// midi's keys are above a limit, and the shard above its share. Not within a transaction, where
/// a key must not vanish between two commands.
///
/// # Errors
/// The command's database is full.
#[inline(always)]
pub(super) fn make_room(
    ledger: &Ledger,
    slot: &ThreadSlot,
    call: &Call<'_>,
    shard: u32,
    held: &mut HeldShard<'_>,
) -> Result<(), Error> {
    if ledger.eviction.is_on() && call.row().flags.deny_oom {
        return make_room_in(ledger, slot, call, shard, held);
    }
    Ok(())
}

#[cold]
fn make_room_in(
    ledger: &Ledger,
    slot: &ThreadSlot,
    call: &Call<'_>,
    shard: u32,
    held: &mut HeldShard<'_>,
) -> Result<(), Error> {
    ledger.look_at_memory(slot);
    if let Some(error) = ledger.refusal_in_database(call) {
        return Err(error);
    }
    for scope in ledger.eviction.scopes_of(call.db) {
        if ledger.eviction.evicts(scope) && may_evict(ledger, slot) {
            let mut left = VICTIMS_PER_WRITE;
            evict_in(ledger, slot, shard, held, scope, &mut left);
        }
    }
    Ok(())
}

/// As [`make_room`], before commands on several keys, or those of a transaction, whose shards are
/// all held. It refuses none.
#[inline]
pub(super) fn make_room_for_many<'c, 'a: 'c>(
    ledger: &Ledger,
    slot: &ThreadSlot,
    calls: impl Iterator<Item = &'c Call<'a>>,
    held: &mut ManyHeld<'_>,
) {
    if ledger.eviction.is_on() {
        make_room_in_many(ledger, slot, &mut calls.filter(|call| call.row().flags.deny_oom), held);
    }
}

#[cold]
fn make_room_in_many<'c, 'a: 'c>(
    ledger: &Ledger,
    slot: &ThreadSlot,
    calls: &mut dyn Iterator<Item = &'c Call<'a>>,
    held: &mut ManyHeld<'_>,
) {
    ledger.look_at_memory(slot);
    let (mut scopes, mut left) = (SmallVec::<[Scope; 4]>::new(), VICTIMS_PER_WRITE);
    for call in calls {
        left += VICTIMS_PER_KEY * call.row().key_arguments(&call.args).len();
        for scope in ledger.eviction.scopes_of(call.filled_db()) {
            if !scopes.contains(&scope) && ledger.eviction.evicts(scope) {
                scopes.push(scope);
            }
        }
    }
    if !may_evict(ledger, slot) {
        return;
    }
    for scope in scopes {
        for (shard, held) in held.iter_mut() {
            evict_in(ledger, slot, *shard, held, scope, &mut left);
        }
    }
}

/// Evicts keys of a shard that is above its share, at most `left` of them, and deducts them.
fn evict_in(
    ledger: &Ledger,
    slot: &ThreadSlot,
    shard: u32,
    held: &mut HeldShard<'_>,
    scope: Scope,
    left: &mut usize,
) {
    let share = ledger.eviction.share(scope, ledger.shards.count());
    while *left > 0 {
        let is_enough = bytes_in(held, scope) <= share || !ledger.eviction.evicts(scope);
        if is_enough || ledger.evict_one(slot, shard, held, scope) != Search::Freed {
            break;
        }
        *left -= 1;
    }
}

/// Whether this thread may evict now.
pub(super) fn may_evict(ledger: &Ledger, slot: &ThreadSlot) -> bool {
    let mode = ledger.mode();
    let is_open = mode.is_open_to_workers() || slot.is_main() && mode.is_logged();
    const CLOSED: Gates = Gates::WRITES_PAUSED.and(Gates::LOG_FULL).and(Gates::NOTIFICATIONS);
    is_open
        && !ledger.admission.gates().has(CLOSED)
        && !slot.locked().is_some_and(|locked| ledger.shards.is_in_unit(locked))
}

/// After a command of the main thread: evicts from any shard if writes have brought more than
/// they have evicted. Clients of the host's door cannot be made to wait for the workers.
#[inline]
pub(super) fn evict_on_main(ledger: &Ledger, slot: &ThreadSlot) {
    if ledger.eviction.is_on() && slot.is_main() {
        evict_far_above(ledger, slot);
    }
}

#[cold]
fn evict_far_above(ledger: &Ledger, slot: &ThreadSlot) {
    ledger.look_at_memory(slot);
    let (eviction, scope) = (&ledger.eviction, Scope::All);
    if !eviction.is_far_above()
        || !eviction.evicts(scope)
        || eviction.is_stuck()
        || !may_evict(ledger, slot)
    {
        return;
    }
    let (mut left, first) = (SEARCHES_ON_MAIN, fastrand::u32(..));
    let share = eviction.share(scope, ledger.shards.count());
    for step in 0..ledger.shards.count().min(SHARDS_ON_MAIN) {
        let shard = ledger.shards.drawn(first.wrapping_add(step));
        let Some(mut held) = ledger.shards.take(shard, Taking::MAIN) else { continue };
        while left > 0 && held.bytes() > share {
            left -= 1;
            if ledger.evict_one(slot, shard, &mut held, scope) != Search::Freed {
                break;
            }
        }
        ledger.release(slot, shard, held);
        if left == 0 || !eviction.evicts(scope) {
            break;
        }
    }
}

/// The memory of the keys of a shard that a limit concerns.
fn bytes_in(store: &Store, scope: Scope) -> i64 {
    match scope {
        Scope::All => store.bytes(),
        Scope::Database(db) => store.census(db).bytes,
    }
}

/// How many searches look at every key of a shard that a limit concerns twice: a key that was used
/// is spared the first time. A generous bound, for sparse tables, too.
fn searches_of(store: &Store, scope: Scope) -> usize {
    const KEYS_PER_SEARCH: i64 = BUCKETS_PER_VICTIM as i64 / 4;
    let keys = match scope {
        Scope::All => store.keys(),
        Scope::Database(db) => store.census(db).keys,
    };
    (2 + keys / KEYS_PER_SEARCH) as usize
}

/// A worker's way through the shards. It goes through all of them, not only through its own: other
/// workers may sleep.
pub(super) struct Evicting {
    next: u32,
    /// Searches in the next shard so far that have found nothing.
    searched: usize,
    /// Shards since the last one in which something was evicted.
    in_vain: u32,
    /// Some of these were not looked at: a unit keeps them, perhaps for long, and most of the keys.
    are_kept: bool,
    /// The limit that it sees to.
    scope: Scope,
    /// Limits for which nothing may go, and when it looks again.
    resting: SmallVec<[(Scope, Instant); 2]>,
}

impl Evicting {
    /// Begins at a shard of the worker's own.
    pub(super) fn new(worker: usize) -> Self {
        Evicting {
            next: worker as u32,
            searched: 0,
            in_vain: 0,
            are_kept: false,
            scope: Scope::All,
            resting: SmallVec::new(),
        }
    }

    /// One slice. It is done if nothing is to be evicted.
    pub(super) fn slice(&mut self, engine: &Engine, slot: &ThreadSlot, now: Instant) -> Progress {
        let eviction = &engine.ledger.eviction;
        if !eviction.is_on() {
            return Progress::Done;
        }
        engine.ledger.look_at_memory(slot);
        if eviction.exceeded().next().is_none() {
            // Of two threads that add up at once the slower one may have closed the gate again.
            if engine.gates().has(Gates::EVICTING) {
                engine.ledger.add_up_memory();
            }
            return Progress::Done;
        }
        if !may_evict(&engine.ledger, slot) || !self.choose(eviction, now) {
            return Progress::Done;
        }
        let mut progress = self.evict(engine, slot);
        if self.is_over(engine.shards().count()) {
            if self.are_kept {
                progress = Progress::Blocked;
            } else {
                // What is left may not go now.
                eviction.found_nothing(self.scope);
                self.resting.push((self.scope, now + EXPIRY_TICK));
            }
            self.begin_rounds();
        }
        engine.ledger.add_up_memory();
        progress
    }

    /// Goes on with its limit while it searches; else takes the next one that is exceeded. False if
    /// all of these rest.
    fn choose(&mut self, eviction: &Eviction, now: Instant) -> bool {
        self.resting.retain(|(_, until)| now < *until);
        let rests = |scope: &Scope| self.resting.iter().any(|(resting, _)| resting == scope);
        let open: SmallVec<[Scope; 4]> =
            eviction.exceeded().filter(|scope| !rests(scope)).collect();
        let at = open.iter().position(|scope| *scope == self.scope);
        if at.is_some() && self.in_vain + self.searched as u32 > 0 {
            return true;
        }
        let Some(&scope) = open.get(at.map_or(0, |at| (at + 1) % open.len())) else {
            return false;
        };
        self.scope = scope;
        self.begin_rounds();
        true
    }

    fn begin_rounds(&mut self) {
        (self.in_vain, self.searched, self.are_kept) = (0, 0, false);
    }

    /// Whether it has gone through all shards in vain. There is a second round for the shards that
    /// have no more than their share, once all shards have been looked at.
    fn is_over(&self, count: u32) -> bool {
        self.in_vain > if self.are_kept { count } else { 2 * count }
    }

    fn evict(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress {
        let (start, count, scope) = (Instant::now(), engine.shards().count(), self.scope);
        let goes_on = || engine.ledger.eviction.evicts(scope) && start.elapsed() < SLICE;
        let mut progress = Progress::Blocked;
        while goes_on() && !self.is_over(count) {
            let shard = self.next % count;
            let Some(mut held) = engine.shards().try_take_long(shard) else {
                (self.next, self.searched) = (shard + 1, 0);
                if engine.shards().is_unit_open() {
                    (self.in_vain, self.are_kept) = (self.in_vain + 1, true);
                }
                continue;
            };
            // Asked again with the token: the keyspace may have been closed since.
            if !may_evict(&engine.ledger, slot) {
                engine.shards().let_go(shard, held);
                break;
            }
            progress = Progress::More;
            // Where no shard above its share has a key that may go, the others have.
            let is_first_round = self.in_vain < count || self.are_kept;
            let floor = if is_first_round { engine.ledger.eviction.share(scope, count) } else { 0 };
            let (mut freed, most) = (false, searches_of(&held, scope));
            while bytes_in(&held, scope) > floor && goes_on() {
                match engine.ledger.evict_one(slot, shard, &mut held, scope) {
                    Search::Freed => (freed, self.searched) = (true, 0),
                    Search::NotYet if self.searched < most => self.searched += 1,
                    _ => break,
                }
            }
            engine.ledger.release(slot, shard, held);
            if freed {
                (self.in_vain, self.are_kept) = (0, false);
            }
            if self.searched > 0 && !goes_on() {
                // It goes on here.
                self.next = shard;
                break;
            }
            (self.next, self.searched) = (shard + 1, 0);
            self.in_vain += u32::from(!freed);
        }
        progress
    }
}
