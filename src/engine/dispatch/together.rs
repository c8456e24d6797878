//! Running several commands together: the shards of all are held, and the memory that the later
//! ones need is fetched while the first ones run.
//!
//! The steps, each for all commands: hash the key and ask for the shard; take the token; ask for
//! the bucket; ask for the entry; run. Taking a token makes the processor wait for everything that
//! was asked for before it, so it is a step of its own.
//!
//! The commands at the beginning that only read a value (GET) are answered from the entries that
//! the steps have found. What the steps have found borrows the shards, so it cannot outlive the
//! first command that may change one: that command and all behind it look for their keys again.

use arrayvec::ArrayVec;

use crate::command::{COMMANDS, Reply};
use crate::engine::Engine;
use crate::engine::call::{Call, Outcome, Taking};
use crate::engine::shards::HeldTogether;
use crate::engine::slot::ThreadSlot;
use crate::limits::AHEAD;
use crate::store::{Candidate, Home, KeyHash, Look, Now};

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
    /// A call.
    fn call(&self, number: usize) -> Call<'_>;
}

/// Where the key of a call is: its hash, and the place of its shard among those held.
type Placed = (KeyHash, usize);

impl Engine {
    /// Runs calls one after the other, with all their shards held together. Stops at the first call
    /// that is not done, when `is_enough` (asked after each call) says that the reply is long
    /// enough to let others have the shards, or when the host's memory credit is used up. Returns
    /// how many calls were done, and the outcome of the last one tried.
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
        let mut hashes: ArrayVec<KeyHash, AHEAD> = ArrayVec::new();
        for number in 0..calls.count().min(AHEAD) {
            let hash = shards.hasher.hash(calls.key(number));
            shards.prefetch(shards.of(hash));
            hashes.push(hash);
        }
        let mut held = HeldTogether::default();
        // Of the calls that can run.
        let mut places: ArrayVec<Placed, AHEAD> = ArrayVec::new();
        for &hash in &hashes {
            let Some(place) = held.place(shards, shards.of(hash), Taking::WORKER) else { break };
            places.push((hash, place));
        }
        let mut is_over = false;
        let mut done = self.read_values(slot, calls, &held, &places, reply, |reply| {
            is_over = is_enough(reply);
            is_over
        });
        let mut outcome = if done == 0 { Outcome::Busy } else { Outcome::Done };
        let rest = if is_over { &[] } else { &places[done..] };
        for &(hash, place) in rest {
            let (call, (shard, token)) = (calls.call(done), held.at(place));
            outcome = self.run_one(slot, &call, hash, shard, token, reply);
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
        self.ledger.release_many(slot, held);
        (done, outcome)
    }

    /// Asks for the memory of all these calls, and answers those at the beginning that read a value
    /// and can do so here. Returns how many.
    ///
    /// They need nothing of what else a call may: they make no events and no changes, and they run
    /// in every mode. A key whose expiry has passed ends it, because that may change the table.
    #[inline(always)]
    fn read_values<R: Reply>(
        &self,
        slot: &ThreadSlot,
        calls: &impl Together,
        held: &HeldTogether<'_>,
        places: &[Placed],
        reply: &mut R,
        mut is_enough: impl FnMut(&R) -> bool,
    ) -> usize {
        let db = calls.db();
        let table = |place: usize| held.get(place).table(db);
        let mut homes: ArrayVec<Home<'_>, AHEAD> = ArrayVec::new();
        for &(hash, place) in places {
            let home = table(place).map_or_else(Home::default, |table| table.home(hash));
            home.prefetch();
            homes.push(home);
        }
        let mut candidates: ArrayVec<Candidate<'_>, AHEAD> = ArrayVec::new();
        for (&home, &(hash, _)) in homes.iter().zip(places) {
            let candidate = home.candidate(hash);
            candidate.prefetch();
            candidates.push(candidate);
        }
        if places.is_empty() || !COMMANDS[calls.command(0)].reads_value {
            return 0;
        }
        let command = calls.command(0);
        let now = calls.now();
        slot.counted_together(command, places.len(), || {
            let mut done = 0;
            for (candidate, &(hash, place)) in candidates.into_iter().zip(places) {
                if calls.command(done) != command {
                    break;
                }
                let name = calls.key(done);
                let entry = match candidate.look(name) {
                    Look::Entry(entry) => Some(entry),
                    Look::Nothing => None,
                    Look::Unknown => {
                        table(place).and_then(|table| Some(table.entry(table.find(hash, name)?)))
                    }
                };
                match entry {
                    None => reply.null(),
                    Some(entry) if entry.is_expired(&now) => break,
                    Some(entry) => match entry.string() {
                        Ok(value) => reply.value(&value),
                        Err(_) => break,
                    },
                }
                done += 1;
                if is_enough(reply) {
                    break;
                }
            }
            done
        })
    }
}

#[cfg(test)]
pub(in crate::engine) mod tests;
