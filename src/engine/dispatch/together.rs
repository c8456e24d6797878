//! Running several commands together: the shards of several are held, and the memory that the later
//! ones need is fetched while the first ones run.
//!
//! The steps, each for all commands: hash the key and ask for the shard; take the token; ask for
//! the bucket; ask for the entry; run. Taking a token makes the processor wait for everything that
//! was asked for before it, so it is a step of its own.
//!
//! They run in groups: the shards of a group are released before those of the next one are taken.
//! Commands that only read their keys are answered from the entries that the steps have found; open
//! shards are read together with other threads, without their tokens. What the steps have found
//! borrows the shards, so it cannot outlive a command that may change one: commands that write,
//! with few reads beside them, hold their shards together and look for their keys again. What a
//! group of them writes is one run of the log.

mod reads;

use std::ops::ControlFlow;

use arrayvec::ArrayVec;

use reads::{ReadGroup, notes};

use super::short::run_short;
use crate::command::{Args, COMMANDS, Limits, Reply};
use crate::engine::Engine;
use crate::engine::call::{Call, Outcome, Taking};
use crate::engine::shards::{HeldShard, HeldTogether, InHand, Shards};
use crate::engine::slot::ThreadSlot;
use crate::limits::{AHEAD, LINES_OF_STRING, MGET_FREE_BYTES, READS_BESIDE, READS_HELD};
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
    /// Runs calls one after the other, with the shards of a group of them held together. Stops at
    /// the first call that is not done, when `is_enough` (asked after each call) says that the
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
            let (end, mut least) = (end_of_reads(calls, done, places.len()), done);
            if end == places.len() || end - done > READS_BESIDE {
                let taken = hold(&mut held, &mut places[done..end], |shard, mark| {
                    InHand::to_read(shards, shard, (slot, mark), Taking::WORKER)
                });
                if taken == 0 {
                    return (done, Outcome::Busy);
                }
                let upto = done + taken;
                let group = &places[done..upto];
                let (ran, is_over) =
                    self.run_reads(slot, calls, done, &mut held, group, reply, &mut is_enough);
                done += ran;
                for placed in &mut places[done..upto] {
                    placed.place = held.at(placed.place).0 as usize;
                }
                self.ledger.release_all_read(slot, held.drain());
                if is_over {
                    break;
                }
                if done == upto {
                    continue;
                }
                // One that cannot be read so: those behind it probably cannot, either.
                least = upto;
            }
            let end = end_of_writes(calls, done, places.len()).max(least);
            let group = &mut places[done..end];
            let (ran, flow) = self.run_writes(slot, calls, done, group, reply, &mut is_enough);
            done += ran;
            if let ControlFlow::Break(outcome) = flow {
                return (done, outcome);
            }
        }
        (done, Outcome::Done)
    }

    /// Answers the calls of a group that only read, from number `first` on. Returns how many, and
    /// whether the reply is long enough.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a part of `attempt_run`")]
    fn run_reads<'s, R: Reply>(
        &'s self,
        slot: &ThreadSlot,
        calls: &impl Together,
        first: usize,
        held: &mut HeldTogether<InHand<'s>>,
        places: &[Placed<'_>],
        reply: &mut R,
        is_enough: &mut impl FnMut(&R) -> bool,
    ) -> (usize, bool) {
        let mut done = 0;
        loop {
            let (ledger, first, places) = (&self.ledger, first + done, &places[done..]);
            let group = ReadGroup { ledger, slot, calls, first, held, places };
            let (ran, is_over) = group.run(reply, is_enough);
            done += ran;
            // What ends a group of shared shards may run on one that is held.
            if is_over || ran == places.len() || !self.holds_alone(slot, held, &places[ran]) {
                return (done, is_over);
            }
        }
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
        match self.shards().take(shard, Taking::WORKER) {
            Some(taken) => *in_hand = InHand::Alone(taken),
            None => return false,
        }
        true
    }

    /// Runs the calls of a group of which some may write, from number `first` on. Returns how many
    /// were done, and whether that ends the run.
    #[inline(never)]
    fn run_writes<R: Reply>(
        &self,
        slot: &ThreadSlot,
        calls: &impl Together,
        first: usize,
        places: &mut [Placed<'_>],
        reply: &mut R,
        is_enough: &mut impl FnMut(&R) -> bool,
    ) -> (usize, ControlFlow<Outcome>) {
        let (shards, db) = (self.shards(), calls.db());
        let mut held = HeldTogether::default();
        let taken = hold(&mut held, places, |shard, _| shards.take(shard, Taking::WORKER));
        if taken == 0 {
            return (0, ControlFlow::Break(Outcome::Busy));
        }
        let places = &places[..taken];
        if taken > 1 {
            let table = |place: usize| held.get(place).table(db);
            let lines = COMMANDS[calls.command(first)].lines;
            find_candidates(places, &table, lines, &mut ArrayVec::new());
        }
        let ran = self.run_each(slot, calls, first, &mut held, places, reply, is_enough);
        self.ledger.release_many(slot, held.drain());
        ran
    }

    /// Runs these calls one after the other, with their shards held.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a part of `run_writes`")]
    fn run_each<'s, R: Reply>(
        &'s self,
        slot: &ThreadSlot,
        calls: &impl Together,
        first: usize,
        held: &mut HeldTogether<HeldShard<'s>>,
        places: &[Placed<'_>],
        reply: &mut R,
        is_enough: &mut impl FnMut(&R) -> bool,
    ) -> (usize, ControlFlow<Outcome>) {
        for (done, &Placed { hash, place, .. }) in places.iter().enumerate() {
            let (call, (shard, token)) = (calls.call(first + done), held.at(place));
            if !run_short(&self.ledger, slot, &call, hash, token, reply) {
                let outcome = self.run_with_room(slot, &call, hash, shard, token, reply);
                if outcome != Outcome::Done {
                    return (done, ControlFlow::Break(outcome));
                }
            }
            // The calls after this one passed the gate before it used up the credit.
            if is_enough(reply)
                || self.ledger.admission.is_metered(slot, &call)
                    && !self.ledger.admission.credit_left()
            {
                return (done + 1, ControlFlow::Break(Outcome::Done));
            }
        }
        (places.len(), ControlFlow::Continue(()))
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
        let taken = hold(&mut held, &mut places, |shard, mark| {
            InHand::to_read(shards, shard, (slot, mark), taking)
        });
        let mut hiding = None;
        let outcome = if taken < keys {
            Some(Outcome::Busy)
        } else if let Some(now) = self.time_for(slot, call, &mut hiding) {
            let notes_use = self.ledger.eviction.notes_uses() && call.is_use();
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

/// Whether a call only reads its key, as its command says.
#[inline(always)]
fn only_reads(calls: &impl Together, number: usize) -> bool {
    COMMANDS[calls.command(number)].action.reads_key()
}

/// The end of a group of calls that only read, which begins with number `first`; that number if it
/// does more.
#[inline(always)]
fn end_of_reads(calls: &impl Together, first: usize, count: usize) -> usize {
    let (command, most) = (calls.command(first), count.min(first + READS_HELD));
    if !only_reads(calls, first) {
        return first;
    }
    let writes = |&number: &usize| calls.command(number) != command && !only_reads(calls, number);
    (first + 1..most).find(writes).unwrap_or(most)
}

/// The end of a group that begins with a call that may write, or few that read before one: the
/// last call that may write, and few that read behind it, if nowhere more than few stand between.
fn end_of_writes(calls: &impl Together, first: usize, count: usize) -> usize {
    let mut end = first + 1;
    for number in first + 1..count {
        if !only_reads(calls, number) {
            end = number + 1;
        } else if number - end == READS_BESIDE {
            return end;
        }
    }
    count
}

/// Holds the shards of these keys, up to the first whose shard is busy; returns of how many keys.
/// `take` gets the number of a shard, and what its place is to be.
#[inline(always)]
fn hold<H>(
    held: &mut HeldTogether<H>,
    places: &mut [Placed<'_>],
    take: impl Fn(u32, usize) -> Option<H>,
) -> usize {
    let mut taken = 0;
    for placed in places {
        let shard = placed.place as u32;
        placed.place = match held.place(shard) {
            Some(at) => at,
            None => {
                let Some(in_hand) = take(shard, held.next_place()) else { break };
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
