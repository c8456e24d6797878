//! A group of calls that only read their keys.
//!
//! They need nothing of what else a call may: they make no events and no changes, and they run in
//! every mode, unless the keyspace is emptied. What cannot be read so ends the group: a key whose
//! expiry has passed, which may change the table; an error; long work.

use arrayvec::ArrayVec;

use super::super::short::run_read;
use super::{Placed, Together, find_candidates, looked};
use crate::command::{COMMANDS, Command, ReadKey, Reply};
use crate::engine::ledger::Ledger;
use crate::engine::shards::{HeldTogether, InHand};
use crate::engine::slot::ThreadSlot;
use crate::store::{Candidate, EntryRef, Now, Table};

/// Calls from number `first` on, with the shards of their keys, and the places of those.
pub(super) struct ReadGroup<'g, 'h, C> {
    pub ledger: &'g Ledger,
    pub slot: &'g ThreadSlot,
    pub calls: &'g C,
    pub first: usize,
    pub held: &'g HeldTogether<InHand<'h>>,
    pub places: &'g [Placed<'g>],
}

/// A call, and the key that it reads.
struct ReadCall<'t> {
    /// The call's number.
    number: usize,
    /// The place of the key's shard.
    place: usize,
    entry: Option<EntryRef<'t>>,
}

impl<'g, C: Together> ReadGroup<'g, '_, C> {
    /// Asks for the memory of all calls. Answers those at the beginning that can be read here.
    /// Returns how many, and whether the reply is long enough.
    #[inline(always)]
    pub(super) fn run<R: Reply>(
        &self,
        reply: &mut R,
        is_enough: &mut impl FnMut(&R) -> bool,
    ) -> (usize, bool) {
        let mut candidates = ArrayVec::new();
        let lines = COMMANDS[self.calls.command(self.first)].lines;
        find_candidates(self.places, &|place| self.table(place), lines, &mut candidates);
        let mut done = 0;
        while done < self.places.len() {
            let command = self.calls.command(self.first + done);
            let row = COMMANDS[command];
            if self.ledger.admission.is_emptied() {
                break;
            }
            let is_of = |&at: &usize| self.calls.command(self.first + at) == command;
            let end = done + (done..self.places.len()).take_while(is_of).count();
            let candidates = &mut candidates[done..end];
            let (ran, is_over) = if row.reads_value {
                self.read_values(done, candidates, reply, is_enough)
            } else {
                self.read_keys(row, done, candidates, reply, is_enough)
            };
            done += ran;
            // A candidate can be looked at once.
            if is_over || done < end {
                return (done, is_over);
            }
        }
        (done, false)
    }

    /// Answers the calls from place `from` on, which have these candidates, and ask for values
    /// (GET).
    #[inline(always)]
    fn read_values<R: Reply>(
        &self,
        from: usize,
        candidates: &mut [Candidate<'g>],
        reply: &mut R,
        is_enough: &mut impl FnMut(&R) -> bool,
    ) -> (usize, bool) {
        let mut misses = 0;
        let say = |call: ReadCall<'g>, reply: &mut R| {
            match call.entry.map(EntryRef::string) {
                None => {
                    misses += 1;
                    reply.null();
                }
                Some(Ok(value)) => reply.value(&value),
                Some(Err(_)) => return false,
            }
            true
        };
        let (ran, is_over) =
            self.read_each(from, candidates, &self.calls.now(), reply, say, is_enough);
        self.slot.hits.add(ran as u64 - misses);
        if misses > 0 {
            self.slot.misses.add(misses);
        }
        (ran, is_over)
    }

    /// The same for calls of another row.
    #[inline(never)]
    fn read_keys<R: Reply>(
        &self,
        row: &Command,
        from: usize,
        candidates: &mut [Candidate<'g>],
        reply: &mut R,
        is_enough: &mut impl FnMut(&R) -> bool,
    ) -> (usize, bool) {
        let (now, limits) = (self.calls.now(), self.calls.limits());
        let read = |ReadCall { number, place, entry }: ReadCall<'g>, reply: &mut R| {
            let (table, args) = (self.table(place), self.calls.args(number));
            run_read(self.slot, row, &ReadKey::new(entry, table, args, limits, &now), reply)
        };
        self.read_each(from, candidates, &now, reply, read, is_enough)
    }

    /// Runs `read` for the calls from place `from` on, which have these candidates and are of one
    /// command, up to the first that it cannot do.
    #[inline(always)]
    fn read_each<R: Reply>(
        &self,
        from: usize,
        candidates: &mut [Candidate<'g>],
        now: &Now,
        reply: &mut R,
        mut read: impl FnMut(ReadCall<'g>, &mut R) -> bool,
        is_enough: &mut impl FnMut(&R) -> bool,
    ) -> (usize, bool) {
        let command = self.calls.command(self.first + from);
        let notes_use = self.ledger.eviction.notes_uses() && COMMANDS[command].uses;
        let mut is_over = false;
        let ran = self.slot.counted_together(command, candidates.len(), || {
            let mut done = 0;
            for (candidate, placed) in candidates.iter_mut().zip(&self.places[from..]) {
                let entry = looked(candidate, placed, |place| self.table(place));
                if let Some(entry) = &entry
                    && (entry.is_expired(now) || notes_use && !notes(self.held, placed, entry))
                {
                    break;
                }
                let (number, place) = (self.first + from + done, placed.place);
                if !read(ReadCall { number, place, entry }, reply) {
                    break;
                }
                done += 1;
                is_over = is_enough(reply);
                if is_over {
                    break;
                }
            }
            done
        });
        (ran, is_over)
    }

    #[inline(always)]
    fn table(&self, place: usize) -> Option<&'g Table> {
        self.held.get(place).store()?.table(self.calls.db())
    }
}

/// Notes for eviction that a key was used, or sees that it is noted already. False if that has to
/// be written and the shard is shared.
#[inline(always)]
pub(super) fn notes(
    held: &HeldTogether<InHand<'_>>,
    placed: &Placed<'_>,
    entry: &EntryRef<'_>,
) -> bool {
    if held.get(placed.place).is_shared() {
        return entry.is_use_noted();
    }
    entry.note_use();
    true
}
