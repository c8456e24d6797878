//! Commands of a port's connection that run as one (MULTI, EXEC), and the keys that it watches.
//!
//! A worker takes the tokens of all shards that these commands need together, or none: no other
//! change can fall between two of the commands, or between them and the check of the watched keys.
//! If a worker cannot do that, the main thread runs the commands as a unit.
//!
//! A watched key has an observer in its shard. A thread that changes the key raises the observer's
//! flag before it releases the shard, so the next holder of the shard sees the flag. Expired keys
//! are found by the clock, as in the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use super::attempt::is_watched;
use super::eviction::make_room_for_many;
use crate::command::{Action, Error, Reply};
use crate::engine::Engine;
use crate::engine::call::{Call, Outcome, Taking};
use crate::engine::shards::{HeldShard, ManyHeld, of_shard};
use crate::engine::slot::ThreadSlot;
use crate::store::{Now, UnixMs};
use crate::sync::Locked;

/// The keys that a connection watches. Dropping it ends the watch.
#[derive(Default)]
pub struct Watching {
    flag: Option<Arc<AtomicBool>>,
    keys: Vec<WatchedKey>,
}

struct WatchedKey {
    db: u32,
    key: Box<[u8]>,
    shard: u32,
    /// When it expires if it does not change.
    due: Option<UnixMs>,
}

impl Watching {
    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is watched.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a watched key is known to have changed. Only the holder of their shards can know
    /// that none has.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Whether a key has changed or expired; to be asked by the holder of the shards.
    fn has_changed(&self, now: &Now) -> bool {
        self.is_lost()
            || self.keys.iter().any(|watched| watched.due.is_some_and(|due| due < now.ms()))
    }
}

/// Numbers of shards.
pub type ShardNumbers = SmallVec<[u32; 16]>;

/// Why commands did not run together. Nothing has been done.
pub enum Apart {
    /// A token was busy.
    Busy,
    /// Only the main thread may run them, or finds out why they may not run.
    NeedsMain,
    /// A watched key has changed.
    Changed,
}

/// Shards that are held together while several commands run on them.
#[must_use = "the shards are to be let go"]
pub struct Holding<'e> {
    engine: &'e Engine,
    slot: &'e ThreadSlot,
    held: ManyHeld<'e>,
}

impl Engine {
    /// Watches one more key. False if its shard was busy.
    #[must_use]
    pub fn observe(
        &self,
        slot: &ThreadSlot,
        watching: &mut Watching,
        db: u32,
        key: &[u8],
        taking: Taking<'_>,
    ) -> bool {
        let shard = self.shards().of_key(key);
        let Some(mut held) = self.shards().take(shard, taking) else { return false };
        let now = self.shards().now_on(slot);
        let due = self.ledger.live_until(slot, &mut held, db, key, &now);
        let flag = watching.flag.get_or_insert_default();
        if held.watched.observe(db, key, flag, self.ledger.most_watched()) {
            watching.keys.push(WatchedKey { db, key: key.into(), shard, due });
        }
        self.ledger.release(slot, shard, held);
        true
    }

    /// Adds the shards that a call of a short command needs: those that [`Holding::run`] looks for.
    #[inline]
    pub fn add_shards(&self, call: &Call<'_>, shards: &mut ShardNumbers) {
        if call.row().is_on_one_shard(call.args.len()) {
            // Its key may be missing: OBJECT HELP.
            return shards.push(self.shards().of_key(call.first_key()));
        }
        for key in call.row().key_arguments(&call.args) {
            shards.push(self.shards().of_key(key));
        }
    }

    /// Whether only the main thread can run a call among others: it may be long work, covers all
    /// shards, or needs the host.
    pub fn is_for_unit(&self, call: &Call<'_>) -> bool {
        match call.row().action {
            Action::AllKeys(_) | Action::Door(_) => true,
            _ => call.row().long.may_be(&call.args, &call.limits),
        }
    }

    /// Takes all the shards that these calls need (duplicates are allowed), if the watched keys
    /// have not changed; ends the watch. Returns the shards and the time at which all the calls
    /// run.
    ///
    /// # Errors
    /// Why they cannot run together here.
    pub fn hold<'e, 'c, 'a: 'c>(
        &'e self,
        slot: &'e ThreadSlot,
        mut shards: ShardNumbers,
        watching: &Watching,
        calls: impl Iterator<Item = &'c Call<'a>> + Clone,
    ) -> Result<(Holding<'e>, UnixMs), Apart> {
        shards.extend(watching.keys.iter().map(|watched| watched.shard));
        shards.sort_unstable();
        shards.dedup();
        let mut held = self.shards().take_many(&shards, Taking::WORKER).ok_or(Apart::Busy)?;
        // Of a key that it watches it learns below, as it would on the host. What is evicted is no
        // part of what the calls log.
        make_room_for_many(&self.ledger, slot, calls.clone(), &mut held);
        if self.ledger.eviction.is_on() {
            self.ledger.publish_run(slot);
        }
        // Without a token the mode may change before the end; nor is there anything to be logged.
        if !held.is_empty() {
            self.ledger.begin_group(slot);
        }
        let mut holding = Holding { engine: self, slot, held };
        if holding.is_for_main(calls) {
            holding.let_go();
            return Err(Apart::NeedsMain);
        }
        // Read while the shards are held, so that no key that has expired by then was removed
        // earlier.
        let now = Now::at((self.config().clock)());
        if !holding.is_unchanged(watching, &now) {
            holding.let_go();
            return Err(Apart::Changed);
        }
        Ok((holding, now.ms()))
    }

    /// Whether watched keys are unchanged, from now to the end of the open unit. The clock is read
    /// once no other thread can remove them.
    pub fn is_unchanged(&self, locked: Locked<'_>, watching: &Watching) -> bool {
        for watched in &watching.keys {
            let mut held = self.shards().take_waiting(locked, watched.shard);
            forget(&mut held, watching, watched);
            self.shards().let_go(watched.shard, held);
        }
        !watching.has_changed(&Now::at((self.config().clock)()))
    }
}

/// Removes the observer of this key: its shard is held until the key has been checked.
fn forget(held: &mut HeldShard<'_>, watching: &Watching, watched: &WatchedKey) {
    if let Some(flag) = &watching.flag {
        held.watched.forget(watched.db, &watched.key, flag);
    }
}

impl Holding<'_> {
    /// Whether the main thread must run these calls: they may change keys that the host watches,
    /// or the keyspace was closed just before, to writes or to all.
    fn is_for_main<'c, 'a: 'c>(&mut self, mut calls: impl Iterator<Item = &'c Call<'a>>) -> bool {
        let admission = &self.engine.ledger.admission;
        if admission.is_closed_to_workers() {
            return admission.is_emptied() || calls.any(|call| call.row().flags.write);
        }
        if self.held.iter().all(|(_, shard)| !shard.watched.has_marks()) {
            return false;
        }
        let (engine, held) = (self.engine, &mut self.held);
        calls.filter(|call| call.row().flags.write).any(|call| {
            call.row().key_arguments(&call.args).any(|key| {
                is_watched(&of_shard(held, engine.shards().of_key(key)).watched, call, key)
            })
        })
    }

    /// Whether watched keys, whose shards are all held, are unchanged. Ends the watch.
    fn is_unchanged(&mut self, watching: &Watching, now: &Now) -> bool {
        for watched in &watching.keys {
            forget(of_shard(&mut self.held, watched.shard), watching, watched);
        }
        !watching.has_changed(now)
    }

    /// Runs a call whose shards are all held. One with which the calls would log too much together
    /// is refused, like one for which there is no memory; the others run.
    pub fn run(&mut self, call: &Call<'_>, reply: &mut dyn Reply) {
        let (engine, slot, held) = (self.engine, self.slot, &mut self.held);
        let ledger = &engine.ledger;
        let refusal = || ledger.refusal_of_more(slot, call);
        if let Some(error) = ledger.refusal_in_database(call).or_else(refusal) {
            call.reject(slot, error, reply);
            return;
        }
        let outcome = if call.row().is_on_one_shard(call.args.len()) {
            let hash = engine.shards().hasher.hash(call.first_key());
            let shard = engine.shards().of(hash);
            engine.run_one(slot, call, hash, shard, of_shard(held, shard), reply)
        } else {
            engine.run_on_held(slot, call, held, reply)
        };
        // No other outcome is possible: see `is_for_unit`, `is_for_main` and `Limits::alone`.
        if outcome != Outcome::Done {
            call.refuse(Error::Internal, reply);
        }
    }

    /// Releases the shards.
    pub fn let_go(self) {
        if !self.held.is_empty() {
            self.engine.ledger.end_group(self.slot);
        }
        self.engine.ledger.release_many(self.slot, self.held);
    }
}
