//! Running a command on this thread, with the tokens that this thread holds.

use smallvec::SmallVec;

use super::all_keys;
use super::eviction::{make_room, make_room_for_many};
use super::short::{read_shared, run_short};
use crate::command::{Action, Error, Events, HeldKeys, ManyKeys, OnEachKey, OneKey, Reply};
use crate::engine::Engine;
use crate::engine::call::{Call, Outcome, Taking};
use crate::engine::ledger::{KeysInHand, Mode, NamedKey, is_live, shards_of};
use crate::engine::shards::{HeldShard, KEYS_INLINE, KeyAt, ManyHeld, of_shard};
use crate::engine::slot::ThreadSlot;
use crate::limits::{KEYS_AT_ONCE, LINES_OF_STRING};
use crate::store::{Done, Edit, KeyHash, Now, Watched};

impl Engine {
    /// Tries to run a command on this thread.
    #[inline(always)]
    pub fn attempt(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        if call.row().is_on_one_shard(call.args.len()) {
            return self.attempt_one(slot, call, taking, reply);
        }
        self.attempt_several(slot, call, taking, reply)
    }

    /// [`Engine::attempt`] for callers off the hot path: one function that is not inlined, so that
    /// the copies on the hot path can be inlined whole.
    #[inline(never)]
    pub(in crate::engine) fn attempt_outlined(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        self.attempt(slot, call, taking, reply)
    }

    fn attempt_several(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        if call.row().reads_values
            && !call.limits.has_reply_limit()
            && matches!(taking, Taking::Try(_))
            && let Some(outcome) = self.attempt_values(slot, call, taking, reply)
        {
            return outcome;
        }
        if let Some(error) = self.ledger.refusal_in_database(call) {
            return call.reject(slot, error, reply);
        }
        let (keys, most) = (call.row().key_arguments(&call.args), call.limits.max_atomic_keys);
        match call.row().action {
            Action::AllKeys(which) => {
                return all_keys::attempt(self, slot, call, taking, which, reply);
            }
            Action::EachKey(_) if keys.len() > KEYS_AT_ONCE => return Outcome::Long,
            Action::ManyKeys(_) if keys.len() > most => {
                return call.reject(slot, Error::TooManyKeys(most), reply);
            }
            _ => {}
        }
        let outcome = self.with_many(slot, call, keys, taking, |keys, events| {
            self.run_keys(slot, call, keys, events, reply)
        });
        outcome.unwrap_or_else(|reason| reason)
    }

    #[inline(always)]
    fn attempt_one(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let hash = self.shards().hasher.hash(call.first_key());
        let shard = self.shards().of(hash);
        let reads = call.row().action.reads_key();
        if reads && read_shared(&self.ledger, slot, call, hash, shard, reply) {
            return Outcome::Done;
        }
        let Some(mut held) = self.shards().take(shard, taking) else {
            return Outcome::Busy;
        };
        let outcome = if run_short(&self.ledger, slot, call, hash, &mut held, reply) {
            Outcome::Done
        } else {
            let lines = call.row().lines;
            if lines > LINES_OF_STRING
                && let Some(table) = held.table(call.db)
            {
                table.prefetch_entry(hash, lines);
            }
            self.run_with_room(slot, call, hash, shard, &mut held, reply)
        };
        if reads {
            self.ledger.release_read(slot, shard, held);
        } else {
            self.ledger.release(slot, shard, held);
        }
        outcome
    }

    /// [`Engine::run_one`] for a command that is alone: room is made for it first.
    #[inline(always)]
    pub(super) fn run_with_room(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        hash: KeyHash,
        shard: u32,
        held: &mut HeldShard<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        match make_room(&self.ledger, slot, call, shard, held) {
            Ok(()) => self.run_one(slot, call, hash, shard, held, reply),
            Err(error) => call.reject(slot, error, reply),
        }
    }

    /// Runs a command that needs one shard, which the caller holds.
    #[inline(always)]
    pub(super) fn run_one(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        hash: KeyHash,
        shard: u32,
        held: &mut HeldShard<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        if !held.watched.is_empty() && self.is_watched(slot, call, held) {
            return Outcome::NeedsMain;
        }
        let mut hiding = None;
        let Some(now) = self.time_for(slot, call, &mut hiding) else {
            return Outcome::NeedsMain;
        };
        let mut events = Events::new(self.ledger.notifications.is_listening(), call.db);
        let mut done = Done::keeping(self.ledger.keeping());
        let outcome = {
            let table = held.db(call.db);
            let key =
                Edit::new(table, &self.shards().hasher, hash, call.first_key(), now, &mut done);
            let mut cx = OneKey { key, args: call.args, limits: &call.limits, events: &mut events };
            let row = call.row();
            let looked = row.looks_up_first(&call.args).then(|| cx.key.is_there());
            slot.counted(call.command, || {
                let result = match row.action {
                    Action::OneKey(run) => run.run(&mut cx, reply),
                    Action::EachKey(each) => {
                        reply.integer(i64::from(each.run(&mut cx)));
                        Ok(())
                    }
                    _ => Err(Error::Internal),
                };
                if self.ledger.eviction.notes_uses() && call.is_use() {
                    cx.key.note_use();
                }
                // A key of another type was found, and no other error comes behind the look-up.
                if matches!(result, Ok(()) | Err(Error::WrongType))
                    && let Some(is_there) = looked
                {
                    slot.looked_up(is_there);
                }
                call.outcome_of(slot, result, reply)
            })
        };
        if outcome == Outcome::Long && self.jobs.have_room(self.settings()).is_err() {
            return self.run_one_whole(slot, call, hash, shard, held, reply);
        }
        if done.is_anything() {
            let at = KeyAt { shard, db: call.db, hash };
            self.ledger.end_edit(
                self.ledger.account(slot, call),
                held,
                at,
                || call.first_key(),
                &mut done,
            );
        }
        if events.are_wanted() {
            self.ledger.leave_events(call.author, &events, |_| call.first_key());
        }
        done.discard();
        outcome
    }

    /// Runs a command in one go that found out, as a read, that it is long work: no more jobs are
    /// allowed.
    #[cold]
    fn run_one_whole(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        hash: KeyHash,
        shard: u32,
        held: &mut HeldShard<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let call = Call { limits: call.limits.in_one_go(), now: call.now.clone(), ..*call };
        self.run_one(slot, &call, hash, shard, held, reply)
    }

    /// Whether only the main thread may run a command, because it writes to a key that the host
    /// watches.
    #[cold]
    fn is_watched(&self, slot: &ThreadSlot, call: &Call<'_>, held: &HeldShard<'_>) -> bool {
        call.row().flags.write
            && !slot.is_main()
            && held.watched.concerns(call.db, call.first_key())
    }

    /// The time at which a call runs in this mode; see `Admission::now_in_mode`. `None` for a call
    /// on a worker that passed the gate just before the keyspace was closed to it: to writes, or to
    /// all because it is emptied. The main thread itself closes the keyspace, so there the gate is
    /// never out of date.
    #[inline]
    pub(super) fn time_for<'c>(
        &self,
        slot: &ThreadSlot,
        call: &'c Call<'_>,
        hiding: &'c mut Option<Now>,
    ) -> Option<&'c Now> {
        let admission = &self.ledger.admission;
        let is_closed = || call.row().flags.write || admission.is_emptied();
        let is_late = |mode: Mode| !mode.is_open_to_workers() && !slot.is_main() && is_closed();
        match self.mode() {
            _ if admission.is_plain() => Some(&call.now),
            mode if is_late(mode) => None,
            _ => Some(admission.now_in_mode(&call.now, hiding)),
        }
    }

    /// Runs `each` on every key; returns for how many it gave true.
    ///
    /// # Errors
    /// `Busy` or `NeedsMain`: why it cannot run on this thread, or not now.
    pub(in crate::engine) fn each_key(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        keys: &[&[u8]],
        taking: Taking<'_>,
        each: OnEachKey,
    ) -> Result<i64, Outcome> {
        self.with_many(slot, call, keys.iter().copied(), taking, |keys, events| {
            self.count_keys(slot, call, each, keys, events)
        })
    }

    /// Runs `each` on every key; returns for how many it gave true.
    fn count_keys(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        each: OnEachKey,
        keys: &mut KeysInHand<'_, '_>,
        events: &mut Events,
    ) -> i64 {
        let mut count = 0;
        for number in 0..keys.len() {
            events.begin(number);
            let is_there = each.run(&mut OneKey {
                key: keys.edit(number, call.db),
                args: call.args,
                limits: &call.limits,
                events,
            });
            count += i64::from(is_there);
            if call.row().flags.readonly {
                slot.looked_up(is_there);
            }
        }
        count
    }

    /// Runs a command on its keys, which are held.
    fn run_keys(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        keys: &mut KeysInHand<'_, '_>,
        events: &mut Events,
        reply: &mut dyn Reply,
    ) -> Outcome {
        match call.row().action {
            Action::EachKey(each) => {
                slot.called(call.command);
                reply.integer(self.count_keys(slot, call, each, keys, events));
                Outcome::Done
            }
            Action::ManyKeys(run) => {
                let looked: SmallVec<[bool; KEYS_INLINE]> = match call.row().reads_values {
                    true => SmallVec::new(),
                    false => {
                        let range = call.row().looked_up(&call.args, keys.len());
                        range.map(|key| keys.read(key).is_some()).collect()
                    }
                };
                let in_one_go;
                let mut cx = self.many_keys(call, keys, events);
                if self.jobs.have_room(self.settings()).is_err() {
                    in_one_go = call.limits.in_one_go();
                    cx.limits = &in_one_go;
                }
                let outcome = slot.counted(call.command, || {
                    let result = run.run(&mut cx, reply);
                    if result.is_ok() {
                        looked.iter().for_each(|&is_there| slot.looked_up(is_there));
                    }
                    call.outcome_of(slot, result, reply)
                });
                if call.row().reads_values && outcome == Outcome::Done {
                    let (hits, misses) = keys.taken_reads();
                    slot.hits.add(hits);
                    slot.misses.add(misses);
                }
                outcome
            }
            _ => call.reject(slot, Error::Internal, reply),
        }
    }

    /// The context of a command on several keys.
    pub(in crate::engine) fn many_keys<'a>(
        &self,
        call: &'a Call<'_>,
        keys: &'a mut KeysInHand<'_, '_>,
        events: &'a mut Events,
    ) -> ManyKeys<'a> {
        let (databases, cluster) = (self.config().databases, self.config().cluster);
        let (args, db, now, limits) = (call.args, call.db, &call.now, &call.limits);
        ManyKeys { args, keys, db, databases, cluster, now, limits, events }
    }

    /// Runs a command on several keys, whose shards the caller holds.
    pub(super) fn run_on_held(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        held: &mut ManyHeld<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let names = self.named(call.row().key_arguments(&call.args));
        let outcome = self.with_held(slot, call, &names, held, |keys, events| {
            self.run_keys(slot, call, keys, events, reply)
        });
        outcome.unwrap_or_else(|reason| reason)
    }

    fn named<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> SmallVec<[NamedKey<'k>; KEYS_INLINE]> {
        keys.map(|key| (self.shards().hasher.hash(key), key)).collect()
    }

    /// Holds the shards of all these keys together while `run` works on them. The error says why
    /// that is not possible: `Busy` or `NeedsMain`.
    pub(in crate::engine) fn with_many<'k, R>(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        keys: impl Iterator<Item = &'k [u8]>,
        taking: Taking<'_>,
        run: impl FnOnce(&mut KeysInHand<'_, '_>, &mut Events) -> R,
    ) -> Result<R, Outcome> {
        let names = self.named(keys);
        let mut held = self
            .shards()
            .take_many(&shards_of(self.shards(), &names), taking)
            .ok_or(Outcome::Busy)?;
        make_room_for_many(&self.ledger, slot, [call].into_iter(), &mut held);
        let result = self.with_held(slot, call, &names, &mut held, run);
        self.ledger.release_many(slot, held);
        result
    }

    /// [`Engine::with_many`] with shards that the caller holds; `held` may have others too.
    fn with_held<R>(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        names: &[NamedKey<'_>],
        held: &mut ManyHeld<'_>,
        run: impl FnOnce(&mut KeysInHand<'_, '_>, &mut Events) -> R,
    ) -> Result<R, Outcome> {
        if call.row().flags.write && !slot.is_main() && self.is_for_main(held, call, names) {
            return Err(Outcome::NeedsMain);
        }
        let mut hiding = None;
        let now = self.time_for(slot, call, &mut hiding).ok_or(Outcome::NeedsMain)?;
        let mut events = Events::new(self.ledger.notifications.is_listening(), call.db);
        let mut keys = KeysInHand::new(&self.ledger, call.db, now, names, held);
        let result = run(&mut keys, &mut events);
        self.ledger.begin_group(slot);
        keys.end(self.ledger.account(slot, call), call, &events);
        self.ledger.end_group(slot);
        Ok(result)
    }

    /// Whether a write on a worker concerns keys that the host watches. An `EachKey` command may be
    /// part of a job, which cannot move to the main thread: so its changes are announced.
    fn is_for_main(
        &self,
        held: &mut ManyHeld<'_>,
        call: &Call<'_>,
        names: &[NamedKey<'_>],
    ) -> bool {
        if held.iter().all(|(_, shard)| !shard.watched.has_marks()) {
            return false;
        }
        if !matches!(call.row().action, Action::EachKey(_)) {
            return names.iter().any(|&(hash, key)| {
                is_watched(&of_shard(held, self.shards().of(hash)).watched, call, key)
            });
        }
        let mut found = false;
        for &(hash, key) in names {
            let shard = of_shard(held, self.shards().of(hash));
            if shard.watched.concerns(call.db, key) && is_live(shard, call.db, hash, key, &call.now)
            {
                self.ledger.announce_change(call.db, key);
                found = true;
            }
        }
        found
    }
}

/// Whether the host must be notified if this call changes the key.
pub(super) fn is_watched(watched: &Watched, call: &Call<'_>, key: &[u8]) -> bool {
    if call.row().leaves_its_db() {
        // No need to know for which other database.
        watched.has_mark(key)
    } else {
        watched.concerns(call.db, key)
    }
}
