//! Running several commands together: the shards of all are held, and the memory that the later
//! ones need is fetched while the first ones run.
//!
//! The steps, each for all commands: hash the key and ask for the shard; take the token; ask for
//! the bucket; ask for the entry; run. Taking a token makes the processor wait for everything that
//! was asked for before it, so it is a step of its own.
//!
//! The commands at the beginning that only read their keys are answered from the entries that the
//! steps have found, in groups: the shards of a group are released before those of the next one are
//! taken; open ones are read together with other threads, without their tokens. What the steps
//! have found borrows the shards, so it cannot outlive the first command that may change one: that
//! command and all behind it look for their keys again. They hold their shards until the last of
//! them has run, so what they write is one run of the log.

mod reads;

use std::ops::Range;

use arrayvec::ArrayVec;

use reads::{ReadGroup, notes};

use super::short::run_short;
use crate::command::{Args, COMMANDS, Limits, Reply};
use crate::engine::Engine;
use crate::engine::call::{Call, Outcome, Taking};
use crate::engine::shards::{HeldTogether, InHand, Shards};
use crate::engine::slot::ThreadSlot;
use crate::limits::{AHEAD, LINES_OF_STRING, MGET_FREE_BYTES, READS_HELD};
use crate::store::{Candidate, EntryRef, Home, KeyHash, Look, Now, StringRef, Table};

/// Calls that run together: each on the one shard of its key, all in one database, for clients that
/// see no key whose expiry has passed.
pub trait Together {
    /// How many there are.
    fn count(&self) -> usize;
    /// Their database.
    fn db(&self) -> u32;
    /// The time, if it is needed now.
    fn now(&self) -> Now;
    /// The number of a call's command.
    fn command(&self, number: usize) -> usize;
    /// A call's key.
    fn key(&self, number: usize) -> &[u8];
    /// A call's arguments.
    fn args(&self, number: usize) -> Args<'_>;
    /// The limits of all calls.
    fn limits(&self) -> &Limits;
    /// A call.
    fn call(&self, number: usize) -> Call<'_>;
}

/// A key and where it is.
#[derive(Clone, Copy)]
struct Placed<'k> {
    name: &'k [u8],
    hash: KeyHash,
    /// The number of its shard, then the place of that among the held.
    place: usize,
}

impl Engine {
    /// Runs calls one after the other, with their shards held together, or those of a group. Stops
    /// at the first call that is not done, when `is_enough` (asked after each call) says that the
    /// reply is long enough to let others have the shards, or when the host's memory credit is used
    /// up. Returns how many calls were done, and the outcome of the last one tried.
    ///
    /// Not inlined: its large frame would cost a single command instructions, too.
    #[inline(never)]
    pub fn attempt_run<R: Reply>(
        &self,
        slot: &ThreadSlot,
        calls: &impl Together,
        reply: &mut R,
        mut is_enough: impl FnMut(&R) -> bool,
    ) -> (usize, Outcome) {
        let shards = self.shards();
        let mut places: ArrayVec<Placed<'_>, AHEAD> = ArrayVec::new();
        for number in 0..calls.count().min(AHEAD) {
            places.push(ask(shards, calls.key(number)));
        }
        let (mut held, mut done) = (HeldTogether::default(), 0);
        while done < places.len() {
            let reads = COMMANDS[calls.command(done)].action.reads_key();
            let end = if reads { places.len().min(done + READS_HELD) } else { places.len() };
            let reader = reads.then_some(slot);
            let taken = hold(shards, &mut held, &mut places[done..end], (Taking::WORKER, reader));
            if taken == 0 {
                return (done, Outcome::Busy);
            }
            let upto = done + taken;
            let is_over = loop {
                let group = ReadGroup {
                    ledger: &self.ledger,
                    slot,
                    calls,
                    first: done,
                    held: &held,
                    places: &places[done..upto],
                };
                let (ran, is_over) = group.run(reply, &mut is_enough);
                done += ran;
                // What ends a group of shared shards may run on one that is held.
                if is_over || done == upto || !self.holds_alone(slot, &mut held, &places[done]) {
                    break is_over;
                }
            };
            if !is_over && done < upto {
                // Behind a busy shard nothing is taken.
                let last = if upto == end { places.len() } else { upto };
                let places = &mut places[..last];
                return self.run_rest(slot, calls, done..upto, &mut held, places, reply, is_enough);
            }
            self.ledger.release_all_read(slot, held.drain());
            if is_over {
                break;
            }
        }
        (done, Outcome::Done)
    }

    /// Takes the shard of a key that was shared; false if it was not, or others read or hold it.
    #[inline]
    fn holds_alone<'s>(
        &'s self,
        slot: &ThreadSlot,
        held: &mut HeldTogether<InHand<'s>>,
        placed: &Placed<'_>,
    ) -> bool {
        let (shard, in_hand) = held.at(placed.place);
        let Some(shared) = in_hand.end_shared() else { return false };
        self.ledger.end_read(slot, shared);
        in_hand.alone(self.shards(), shard).is_some()
    }

    /// Runs the calls of a group that are left, and all behind the group, with the shards of all of
    /// them held together.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "a part of `attempt_run`")]
    fn run_rest<'s, R: Reply>(
        &'s self,
        slot: &ThreadSlot,
        calls: &impl Together,
        group: Range<usize>,
        held: &mut HeldTogether<InHand<'s>>,
        places: &mut [Placed<'_>],
        reply: &mut R,
        is_enough: impl FnMut(&R) -> bool,
    ) -> (usize, Outcome) {
        held.all().filter_map(InHand::end_shared).for_each(|it| self.ledger.end_read(slot, it));
        let taken = hold(self.shards(), held, &mut places[group.end..], (Taking::WORKER, None));
        let (places, db) = (&places[..group.end + taken], calls.db());
        let table = |place: usize| held.get(place).store()?.table(db);
        let lines = COMMANDS[calls.command(group.start)].lines;
        find_candidates(&places[group.end..], &table, lines, &mut ArrayVec::new());
        let ran = self.run_each(slot, calls, group.start, held, places, reply, is_enough);
        self.ledger.release_together(slot, held.drain());
        ran
    }

    /// Runs the calls from number `done` on, one after the other.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "a part of `attempt_run`")]
    fn run_each<'s, R: Reply>(
        &'s self,
        slot: &ThreadSlot,
        calls: &impl Together,
        mut done: usize,
        held: &mut HeldTogether<InHand<'s>>,
        places: &[Placed<'_>],
        reply: &mut R,
        mut is_enough: impl FnMut(&R) -> bool,
    ) -> (usize, Outcome) {
        let mut outcome = Outcome::Done;
        for &Placed { hash, place, .. } in &places[done..] {
            let (call, (shard, in_hand)) = (calls.call(done), held.at(place));
            let Some(token) = in_hand.alone(self.shards(), shard) else {
                outcome = Outcome::Busy;
                break;
            };
            outcome = if run_short(&self.ledger, slot, &call, hash, token, reply) {
                Outcome::Done
            } else {
                self.run_with_room(slot, &call, hash, shard, token, reply)
            };
            if outcome != Outcome::Done {
                break;
            }
            done += 1;
            // The calls after this one passed the gate before it used up the credit.
            if is_enough(reply)
                || self.ledger.admission.is_metered(slot, &call)
                    && !self.ledger.admission.credit_left()
            {
                break;
            }
        }
        (done, outcome)
    }

    /// Runs a command that answers the values of a few keys (MGET), from what the same steps find.
    /// `None` if it has to run in the general way: there are more keys, or fewer are allowed, a key
    /// has expired, or a value is too large to be written while shards are held.
    #[inline(never)]
    pub(super) fn attempt_values(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Option<Outcome> {
        let shards = self.shards();
        let mut places: ArrayVec<Placed<'_>, AHEAD> = ArrayVec::new();
        for name in call.row().key_arguments(&call.args) {
            places.try_push(ask(shards, name)).ok()?;
        }
        let keys = places.len();
        if keys > call.limits.max_atomic_keys {
            return None;
        }
        let mut held = HeldTogether::default();
        let taken = hold(shards, &mut held, &mut places, (taking, Some(slot)));
        let mut hiding = None;
        let outcome = if taken < keys {
            Some(Outcome::Busy)
        } else if let Some(now) = self.time_for(slot, call, &mut hiding) {
            let notes_use = self.ledger.eviction.is_on() && call.is_use();
            say_values(slot, call, &held, &places, (now, notes_use), reply)
        } else {
            Some(Outcome::NeedsMain)
        };
        self.ledger.release_all_read(slot, held.drain());
        outcome
    }
}

/// Asks for the shard of a key.
#[inline(always)]
fn ask<'k>(shards: &Shards, name: &'k [u8]) -> Placed<'k> {
    let hash = shards.hasher.hash(name);
    let shard = shards.of(hash);
    shards.prefetch(shard);
    Placed { name, hash, place: shard as usize }
}

/// Holds the shards of these keys, up to the first whose shard is busy; returns of how many keys.
#[inline(always)]
fn hold<'s>(
    shards: &'s Shards,
    held: &mut HeldTogether<InHand<'s>>,
    places: &mut [Placed<'_>],
    (taking, reader): (Taking<'_>, Option<&ThreadSlot>),
) -> usize {
    let mut taken = 0;
    for placed in places {
        let shard = placed.place as u32;
        placed.place = match held.place(shard) {
            Some(at) => at,
            None => {
                let mark = held.next_place();
                let in_hand = match reader {
                    Some(slot) => InHand::to_read(shards, shard, (slot, mark), taking),
                    None => shards.take(shard, taking).map(InHand::Alone),
                };
                let Some(in_hand) = in_hand else { break };
                held.add(shard, in_hand)
            }
        };
        taken += 1;
    }
    taken
}

/// The values, or `None` before anything is written.
#[inline(always)]
fn say_values(
    slot: &ThreadSlot,
    call: &Call<'_>,
    held: &HeldTogether<InHand<'_>>,
    places: &[Placed<'_>],
    (now, notes_use): (&Now, bool),
    reply: &mut dyn Reply,
) -> Option<Outcome> {
    let table = |place: usize| held.get(place).store()?.table(call.db);
    let mut values: ArrayVec<Option<StringRef<'_>>, AHEAD> = ArrayVec::new();
    let mut candidates = ArrayVec::new();
    let mut hits = 0;
    find_candidates(places, &table, LINES_OF_STRING, &mut candidates);
    for (candidate, placed) in candidates.iter_mut().zip(places) {
        let entry = looked(candidate, placed, table);
        hits += u64::from(entry.is_some());
        if let Some(entry) = &entry
            && (entry.is_expired(now) || notes_use && !notes(held, placed, entry))
        {
            return None;
        }
        let value = entry.and_then(|entry| entry.string().ok());
        if value.as_ref().is_some_and(|value| value.len() > MGET_FREE_BYTES) {
            return None;
        }
        values.push(value);
    }
    slot.hits.add(hits);
    slot.misses.add(values.len() as u64 - hits);
    Some(slot.counted(call.command, || {
        reply.array(values.len());
        for value in &values {
            match value {
                Some(value) => reply.bulk(value.bytes()),
                None => reply.null(),
            }
        }
        Outcome::Done
    }))
}

/// Finds the entries that are most likely those of these keys. Asks for the memory of all of them.
///
/// The lists are long: neither this one nor that of the tokens is moved from hand to hand.
#[inline(always)]
fn find_candidates<'t>(
    places: &[Placed<'_>],
    table: &impl Fn(usize) -> Option<&'t Table>,
    lines: usize,
    candidates: &mut ArrayVec<Candidate<'t>, AHEAD>,
) {
    let mut homes: ArrayVec<Home<'_>, AHEAD> = ArrayVec::new();
    for &Placed { hash, place, .. } in places {
        let home = table(place).map_or_else(Home::default, |table| table.home(hash));
        home.prefetch();
        homes.push(home);
    }
    for (&home, placed) in homes.iter().zip(places) {
        let candidate = home.candidate(placed.hash);
        candidate.prefetch(lines);
        candidates.push(candidate);
    }
}

/// The entry of a key, from its candidate, or else from its table.
#[inline(always)]
fn looked<'t>(
    candidate: &mut Candidate<'t>,
    placed: &Placed<'_>,
    table: impl FnOnce(usize) -> Option<&'t Table>,
) -> Option<EntryRef<'t>> {
    match candidate.look(placed.name) {
        Look::Entry(entry) => Some(entry),
        Look::Nothing => None,
        Look::Unknown => table(placed.place)?.look(placed.hash, placed.name),
    }
}

#[cfg(test)]
mod shared_reads;
#[cfg(test)]
pub(in crate::engine) mod tests;
