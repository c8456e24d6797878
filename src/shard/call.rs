//! Running a command on this thread, in the hands of whoever took the tokens.

use std::collections::HashSet;

use arrayvec::ArrayVec;
use smallvec::{SmallVec, smallvec};

use super::counters::Census;
use super::engine::{Engine, HeldShard, ManyHeld};
use super::lock::{Locked, Seat};
use super::news::Author;
use crate::command::{
    Action, Args, COMMANDS, Command, Error, Events, HeldTables, Limits, ManyKeys, OneKey, Reply,
};
use crate::limits::{AHEAD, KEYS_AT_ONCE, MAIN_SPINS, WORKER_SPINS};
use crate::store::{KeyHash, Now, Table};

/// One call of a command.
pub struct Call<'a> {
    /// The command's number in [`COMMANDS`].
    pub command: usize,
    /// Its arguments.
    pub args: Args<'a>,
    /// The client's database.
    pub db: u32,
    /// When it happens.
    pub now: Now,
    /// What it must keep to.
    pub limits: Limits,
    /// What the door puts before the standard name, for error texts.
    pub prefix: &'static str,
    /// Whose changes these are, for the host.
    pub author: Author,
}

impl Call<'_> {
    /// The row of the command table.
    #[inline]
    pub fn row(&self) -> &'static Command {
        COMMANDS[self.command]
    }

    /// The key that says which shard it needs, or needs first.
    #[inline]
    pub fn first_key(&self) -> &[u8] {
        self.args.get(self.row().first_key())
    }

    /// Says an error in Redis's words.
    #[cold]
    pub fn refuse(&self, error: Error, reply: &mut dyn Reply) {
        let name = format!("{}{}", self.prefix, self.row().name);
        reply.error(&error.text(&name, &self.args));
    }
}

/// How to come by tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking<'l> {
    /// Try so often.
    Try(u32),
    /// Wait, as the holder of the host's global lock may.
    Wait(Locked<'l>),
}

impl Taking<'_> {
    /// For the main thread: blocking a client costs it more than a short wait.
    pub const MAIN: Self = Taking::Try(MAIN_SPINS);
    /// For workers.
    pub const WORKER: Self = Taking::Try(WORKER_SPINS);
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply, or an error, has been said.
    Done,
    /// A token was not to be had. Nothing has been done.
    Busy,
    /// The reply is too large for this thread. Nothing has been done.
    TooLarge,
    /// This is long work: start a job, or run it to its end.
    Long,
    /// It writes to a watched key, which only the main thread may do. Nothing has been done.
    NeedsMain,
}

impl Engine {
    /// Tries to run a command on this thread.
    #[inline(always)]
    pub fn attempt(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        if call.row().is_on_one_shard(call.args.len()) {
            return self.attempt_one(seat, call, taking, reply);
        }
        self.attempt_several(seat, call, taking, reply)
    }

    fn attempt_several(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        match call.row().action {
            Action::EachKey(each) => self.attempt_each(seat, call, taking, each, reply),
            Action::ManyKeys(run) => self.attempt_many(seat, call, taking, run, reply),
            Action::Keyspace(which) => self.attempt_keyspace(seat, call, taking, which, reply),
            Action::OneKey(_) | Action::Door(_) => said(call, Err(Error::Internal), reply),
        }
    }

    #[inline(always)]
    fn attempt_one(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let hash = self.hasher.hash(call.first_key());
        let shard = self.shard_of(hash);
        let Some(mut held) = self.take(shard, taking) else {
            return Outcome::Busy;
        };
        let outcome = self.run_one(seat, call, hash, shard, &mut held, reply);
        self.release(shard, held);
        outcome
    }

    /// Runs calls one after the other, each on one shard and all in one database, with all their shards held
    /// together: so what the later ones need is fetched from memory while the first ones run. Stops
    /// at the first that is not done, when enough has been replied (asked after each) to let others have the
    /// shards, or when the last of the memory that the host has granted is taken; says how many were done, and
    /// what became of the one after them.
    pub fn attempt_run<'a, R: Reply>(
        &self,
        seat: &Seat,
        calls: impl Iterator<Item = Call<'a>> + Clone,
        reply: &mut R,
        mut is_enough: impl FnMut(&R) -> bool,
    ) -> (usize, Outcome) {
        // In steps, each for all calls: a step asks for the memory that the next one needs. Taking a token
        // makes the processor wait for what it has asked for before, so that is a step of its own.
        let mut run = Run::default();
        for call in calls.clone().take(AHEAD) {
            run.add(self, call.first_key(), call.db);
        }
        run.take_tokens(self);
        for &(hash, place) in &run.places {
            run.held[place].1.db(run.db).prefetch(hash);
        }
        let (mut done, mut outcome) = (0, Outcome::Busy);
        for &(hash, place) in &run.places {
            run.held[place].1.db(run.db).prefetch_entry(hash);
        }
        for (call, &(hash, place)) in calls.zip(&run.places) {
            let (shard, token) = &mut run.held[place];
            outcome = self.run_one(seat, &call, hash, *shard, token, reply);
            if outcome != Outcome::Done {
                break;
            }
            done += 1;
            // Those after it were let through before it took what was left.
            if is_enough(reply) || self.is_metered(seat, &call) && !self.credit_left() {
                break;
            }
        }
        run.held.into_iter().for_each(|(shard, token)| self.release(shard, token));
        (done, outcome)
    }

    /// Runs a command that needs one shard, which the caller holds.
    #[inline(always)]
    pub(super) fn run_one(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        hash: KeyHash,
        shard: u32,
        held: &mut HeldShard<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        if !held.watched.is_empty() && call.row().flags.write {
            return self.run_beside_watched(seat, call, hash, shard, held, reply);
        }
        self.run_held(seat, call, hash, shard, held, reply)
    }

    /// The same where keys of the shard are watched.
    #[cold]
    fn run_beside_watched(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        hash: KeyHash,
        shard: u32,
        held: &mut HeldShard<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let key = call.first_key();
        if !seat.is_main() && held.watched.concerns(call.db, key) {
            return Outcome::NeedsMain;
        }
        let before = held.db(call.db).changes();
        let outcome = self.run_held(seat, call, hash, shard, held, reply);
        if held.db(call.db).changes() != before {
            self.changed(seat.locked(), held, call.db, key);
        }
        outcome
    }

    #[inline]
    fn run_held(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        hash: KeyHash,
        shard: u32,
        held: &mut HeldShard<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let table = held.db(call.db);
        let (census, changes) = (table.census(), table.changes());
        let mut events = Events::new(self.is_listening(), call.db);
        if events.are_wanted() {
            table.note_expired();
        }
        let mut cx = self.one_key(call, call.first_key(), hash, table, &mut events);
        let outcome = seat.counted(call.command, || {
            let result = match call.row().action {
                Action::OneKey(run) => run(&mut cx, reply),
                Action::EachKey(each) => {
                    reply.integer(i64::from(each(&mut cx)));
                    Ok(())
                }
                _ => Err(Error::Internal),
            };
            said(call, result, reply)
        });
        // Keys that expire are no changes.
        if table.changes() != changes || table.census().expired != census.expired {
            self.book_change(seat, call, hash, shard, table, census);
        }
        if events.are_wanted() {
            self.leave_expired(call.db, table);
            let key = call.first_key();
            events.list().iter().for_each(|noted| self.leave_news(call.author, noted.db, key, noted.event));
        }
        outcome
    }

    /// Books what a command on one key has done to its table.
    fn book_change(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        hash: KeyHash,
        shard: u32,
        table: &mut Table,
        before: Census,
    ) {
        let change = table.census() - before;
        seat.book(call.db, change);
        if self.is_metered(seat, call) {
            self.spend_credit(change.bytes + table.shared_bytes(hash, call.first_key()) as i64);
        }
        self.note_due(shard, table);
    }

    #[inline]
    fn one_key<'a>(
        &'a self,
        call: &'a Call<'a>,
        key: &'a [u8],
        hash: KeyHash,
        table: &'a mut Table,
        events: &'a mut Events,
    ) -> OneKey<'a> {
        OneKey {
            args: call.args,
            key,
            hash,
            table,
            hasher: &self.hasher,
            now: &call.now,
            limits: &call.limits,
            events,
        }
    }

    fn attempt_each(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking<'_>,
        each: fn(&mut OneKey<'_>) -> bool,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let keys = call.args.from(1);
        if keys.len() > KEYS_AT_ONCE {
            return Outcome::Long;
        }
        match self.each_key(seat, call, keys, taking, each) {
            Err(outcome) => outcome,
            Ok(count) => {
                seat.called(call.command);
                reply.integer(count);
                Outcome::Done
            }
        }
    }

    /// For how many of the keys `each` gave true.
    ///
    /// # Errors
    /// Why it was not to be done on this thread, or now: `Busy` or `NeedsMain`.
    pub(super) fn each_key(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        keys: &[&[u8]],
        taking: Taking<'_>,
        each: fn(&mut OneKey<'_>) -> bool,
    ) -> Result<i64, Outcome> {
        self.with_many(seat, call, keys.iter().copied(), taking, |tables, events| {
            self.count_keys(call, keys, each, tables, events)
        })
    }

    /// For how many of the keys, whose tables are held, `each` gives true.
    pub(super) fn count_keys(
        &self,
        call: &Call<'_>,
        keys: &[&[u8]],
        each: fn(&mut OneKey<'_>) -> bool,
        tables: &mut dyn HeldTables,
        events: &mut Events,
    ) -> i64 {
        let mut count = 0;
        for (number, key) in keys.iter().enumerate() {
            let (hash, table) = tables.table(number);
            events.begin(number);
            count += i64::from(each(&mut self.one_key(call, key, hash, table, events)));
        }
        count
    }

    fn attempt_many(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking<'_>,
        run: fn(&mut ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let keys = call.row().key_arguments(&call.args);
        if keys.len() > call.limits.max_atomic_keys {
            return said(call, Err(Error::TooManyKeys(call.limits.max_atomic_keys)), reply);
        }
        let outcome = self.with_many(seat, call, keys, taking, |tables, events| {
            self.run_many(seat, call, run, reply, tables, events)
        });
        outcome.unwrap_or_else(|reason| reason)
    }

    /// Runs a command on several keys, whose tables are held.
    pub(super) fn run_many(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        run: fn(&mut ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>,
        reply: &mut dyn Reply,
        tables: &mut dyn HeldTables,
        events: &mut Events,
    ) -> Outcome {
        let (hasher, now, limits) = (&self.hasher, &call.now, &call.limits);
        let (db, databases, cluster) = (call.db, self.config.databases, self.config.cluster);
        let mut cx =
            ManyKeys { args: call.args, tables, db, databases, cluster, hasher, now, limits, events };
        seat.counted(call.command, || said(call, run(&mut cx, reply), reply))
    }

    /// Runs a command on several keys, whose shards are all among those held.
    pub(super) fn run_on_held(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        held: &mut ManyHeld<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let keys = call.row().key_arguments(&call.args);
        let hashes: SmallVec<[KeyHash; 8]> = keys.clone().map(|key| self.hasher.hash(key)).collect();
        let outcome =
            self.with_held(seat, call, keys, &hashes, held, |tables, events| match call.row().action {
                Action::ManyKeys(run) => self.run_many(seat, call, run, reply, tables, events),
                Action::EachKey(each) => {
                    seat.called(call.command);
                    reply.integer(self.count_keys(call, call.args.from(1), each, tables, events));
                    Outcome::Done
                }
                _ => said(call, Err(Error::Internal), reply),
            });
        outcome.unwrap_or_else(|reason| reason)
    }

    /// Holds the shards of all these keys together while `run` works on their
    /// tables. The error says why that was not to be: `Busy` or `NeedsMain`.
    pub(super) fn with_many<'k, R>(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        taking: Taking<'_>,
        run: impl FnOnce(&mut dyn HeldTables, &mut Events) -> R,
    ) -> Result<R, Outcome> {
        let hashes: SmallVec<[KeyHash; 8]> = keys.clone().map(|key| self.hasher.hash(key)).collect();
        let mut shards: SmallVec<[u32; 8]> = hashes.iter().map(|&hash| self.shard_of(hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        let mut held = self.take_many(&shards, taking).ok_or(Outcome::Busy)?;
        let result = self.with_held(seat, call, keys, &hashes, &mut held, run);
        self.release_many(held);
        result
    }

    /// The same with shards that the caller holds, these among others perhaps.
    pub(super) fn with_held<'k, R>(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        hashes: &[KeyHash],
        held: &mut ManyHeld<'_>,
        run: impl FnOnce(&mut dyn HeldTables, &mut Events) -> R,
    ) -> Result<R, Outcome> {
        let watched = call.row().flags.write && held.iter().any(|(_, shard)| !shard.watched.is_empty());
        if watched && !seat.is_main() && self.is_for_main(held, call, keys.clone().zip(hashes)) {
            return Err(Outcome::NeedsMain);
        }
        let before = census(held, call.db);
        let databases = smallvec![(call.db, before)];
        let listening = self.is_listening();
        let mut tables = HeldByKey { engine: self, hashes, held, databases, listening: false, seen: None };
        for key in 0..hashes.len() {
            let (hash, table) = tables.table(key);
            table.prefetch(hash);
        }
        for key in 0..hashes.len() {
            let (hash, table) = tables.table(key);
            table.prefetch_entry(hash);
        }
        tables.seen = watched.then(Seen::default);
        let mut events = Events::new(listening, call.db);
        tables.listen(listening, call.db);
        let result = run(&mut tables, &mut events);
        let (databases, changed) = tables.finish();
        if let Some(changed) = changed {
            for (number, key) in keys.clone().enumerate() {
                for &(db, _) in databases.iter().filter(|&&(db, _)| changed.contains(&(number, db))) {
                    self.changed(seat.locked(), self.among(held, hashes[number]), db, key);
                }
            }
        }
        for &(db, before) in &databases {
            let change = census(held, db) - before;
            seat.book(db, change);
            if self.is_metered(seat, call) {
                let mut shared = |(number, key)| {
                    let hash = hashes[number];
                    self.among(held, hash).db(db).shared_bytes(hash, key)
                };
                let shared: usize = keys.clone().enumerate().map(&mut shared).sum();
                self.spend_credit(change.bytes + shared as i64);
            }
            for (shard, token) in held.iter_mut() {
                self.note_due(*shard, token.db(db));
            }
        }
        if events.are_wanted() {
            for (_, shard) in held.iter_mut() {
                databases.iter().for_each(|&(db, _)| _ = self.leave_expired(db, shard.db(db)));
            }
            let keys: Vec<&[u8]> = keys.collect();
            let list = events.list().iter();
            list.for_each(|noted| self.leave_news(call.author, noted.db, keys[noted.key], noted.event));
        }
        Ok(result)
    }

    /// The one of several held shards that a key is in.
    #[inline]
    pub(super) fn among<'h, 'b>(&self, held: &'h mut ManyHeld<'b>, hash: KeyHash) -> &'h mut HeldShard<'b> {
        of_shard(held, self.shard_of(hash))
    }

    /// Whether a write on a worker concerns keys that the host watches. What changes every
    /// key that is there may be a job's, which nobody can take over: so it is announced.
    #[cold]
    fn is_for_main<'k, 'h>(
        &self,
        held: &mut ManyHeld<'_>,
        call: &Call<'_>,
        keys: impl Iterator<Item = (&'k [u8], &'h KeyHash)>,
    ) -> bool {
        if held.iter().all(|(_, shard)| !shard.watched.has_marks()) {
            return false;
        }
        // Others may change keys of another database too: no need to know which.
        if !matches!(call.row().action, Action::EachKey(_)) {
            return true;
        }
        let mut found = false;
        for (key, &hash) in keys {
            let shard = self.among(held, hash);
            if !shard.watched.concerns(call.db, key) {
                continue;
            }
            let table = shard.db(call.db);
            if table.find(hash, key).is_some_and(|found| !table.entry(found).is_expired(&call.now)) {
                self.announce_change(call.db, key);
                found = true;
            }
        }
        found
    }
}

/// The shards of calls that run together.
#[derive(Default)]
struct Run<'a> {
    /// The hash of each call's key.
    hashes: ArrayVec<KeyHash, AHEAD>,
    held: ArrayVec<(u32, HeldShard<'a>), AHEAD>,
    /// The hashes again, of the calls that can run, and which of the held shards each is in.
    places: ArrayVec<(KeyHash, usize), AHEAD>,
    /// The client's database.
    db: u32,
}

impl<'a> Run<'a> {
    /// Adds a call, and asks for its shard's memory.
    #[inline]
    fn add(&mut self, engine: &Engine, key: &[u8], db: u32) {
        let hash = engine.hasher.hash(key);
        engine.prefetch_shard(engine.shard_of(hash));
        self.hashes.push(hash);
        self.db = db;
    }

    /// Holds all the shards, up to the first that is not to be had.
    #[inline]
    fn take_tokens(&mut self, engine: &'a Engine) {
        // A bit for each shard that is held, by the low bits of its number.
        let mut seen = 0_u64;
        for &hash in &self.hashes {
            let shard = engine.shard_of(hash);
            let bit = 1 << (shard % 64);
            let known = if seen & bit == 0 { None } else { self.place_of(shard) };
            let place = match known {
                Some(place) => place,
                None => {
                    let Some(held) = engine.take(shard, Taking::WORKER) else { return };
                    self.held.push((shard, held));
                    self.held.len() - 1
                }
            };
            seen |= bit;
            self.places.push((hash, place));
        }
    }

    fn place_of(&self, shard: u32) -> Option<usize> {
        self.held.iter().position(|&(number, _)| number == shard)
    }
}

/// The one of several held shards that has this number.
#[inline]
pub(super) fn of_shard<'h, 'b>(held: &'h mut ManyHeld<'b>, shard: u32) -> &'h mut HeldShard<'b> {
    let at = held.partition_point(|&(number, _)| number < shard);
    &mut held[at].1
}

/// Turns a command's result into an outcome, saying its error.
#[inline]
pub(super) fn said(call: &Call<'_>, result: Result<(), Error>, reply: &mut dyn Reply) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(Error::ReplyTooLarge) => Outcome::TooLarge,
        Err(Error::LongWork) => Outcome::Long,
        Err(error) => {
            call.refuse(error, reply);
            Outcome::Done
        }
    }
}

fn census(held: &mut ManyHeld<'_>, db: u32) -> Census {
    let mut sum = Census::default();
    for (_, token) in held {
        let census = token.db(db).census();
        sum.keys += census.keys;
        sum.expiring += census.expiring;
        sum.bytes += census.bytes;
        sum.expired += census.expired;
    }
    sum
}

/// Gives a command the table of each of its keys.
struct HeldByKey<'a, 'b> {
    engine: &'a Engine,
    hashes: &'a [KeyHash],
    held: &'a mut ManyHeld<'b>,
    /// The databases it has been given tables of, with what was in them before;
    /// the client's own is the first.
    databases: Databases,
    /// Whether names of expired keys are wanted.
    listening: bool,
    /// Which keys are changed, where that is of interest.
    seen: Option<Seen>,
}

/// Databases, with what was in them at some time.
type Databases = SmallVec<[(u32, Census); 2]>;

/// A key by its number among the command's keys, in a database.
type KeyIn = (usize, u32);

/// Which keys were changed, as seen whenever the next table is asked for.
#[derive(Default)]
struct Seen {
    /// The last key whose table was asked for, and the table's changes then.
    last: Option<(KeyIn, u64)>,
    changed: HashSet<KeyIn>,
}

impl HeldByKey<'_, '_> {
    /// The databases that were touched, and the keys that were changed, if that was of interest.
    fn finish(mut self) -> (Databases, Option<HashSet<KeyIn>>) {
        self.see(None);
        (self.databases, self.seen.map(|seen| seen.changed))
    }

    /// What has become of the last key; `next` is to be looked at now.
    #[cold]
    fn see(&mut self, next: Option<KeyIn>) {
        let mut changes = |(key, db): KeyIn| self.engine.among(self.held, self.hashes[key]).db(db).changes();
        let Some(seen) = &mut self.seen else {
            return;
        };
        if let Some((key, before)) = seen.last
            && changes(key) != before
        {
            seen.changed.insert(key);
        }
        seen.last = next.map(|key| (key, changes(key)));
    }

    /// From now on tables of this database note the names of keys that expire.
    fn listen(&mut self, listening: bool, db: u32) {
        self.listening = listening;
        if listening {
            self.held.iter_mut().for_each(|(_, shard)| shard.db(db).note_expired());
        }
    }

    #[inline]
    fn place(&mut self, key: usize, db: u32) -> (KeyHash, &mut Table) {
        if self.seen.is_some() {
            self.see(Some((key, db)));
        }
        let hash = self.hashes[key];
        (hash, self.engine.among(self.held, hash).db(db))
    }
}

impl HeldTables for HeldByKey<'_, '_> {
    #[inline]
    fn table(&mut self, key: usize) -> (KeyHash, &mut Table) {
        self.place(key, self.databases[0].0)
    }

    fn table_in(&mut self, key: usize, db: u32) -> (KeyHash, &mut Table) {
        if self.databases.iter().all(|&(known, _)| known != db) {
            let before = census(self.held, db);
            self.databases.push((db, before));
            self.listen(self.listening, db);
        }
        self.place(key, db)
    }
}
