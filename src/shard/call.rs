//! Running a command on this thread, in the hands of whoever took the tokens.

use smallvec::{SmallVec, smallvec};

use super::counters::{Census, Seat};
use super::engine::{Engine, HeldShard, ManyHeld};
use crate::command::{Action, Args, COMMANDS, Command, Error, HeldTables, Limits, ManyKeys, OneKey, Reply};
use crate::limits::{KEYS_AT_ONCE, MAIN_SPINS, WORKER_SPINS};
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
pub enum Taking {
    /// Try so often.
    Try(u32),
    /// Wait. Only the holder of the host's global lock may.
    Wait,
}

impl Taking {
    /// For the main thread: blocking a client costs it more than a short wait.
    pub const MAIN: Taking = Taking::Try(MAIN_SPINS);
    /// For workers.
    pub const WORKER: Taking = Taking::Try(WORKER_SPINS);
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
}

impl Engine {
    /// Tries to run a command on this thread.
    #[inline(always)]
    pub fn attempt(&self, seat: &Seat, call: &Call<'_>, taking: Taking, reply: &mut dyn Reply) -> Outcome {
        if call.row().is_on_one_shard(call.args.len()) {
            return self.attempt_one(seat, call, taking, reply);
        }
        self.attempt_several(seat, call, taking, reply)
    }

    fn attempt_several(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking,
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
    fn attempt_one(&self, seat: &Seat, call: &Call<'_>, taking: Taking, reply: &mut dyn Reply) -> Outcome {
        let hash = self.hasher.hash(call.first_key());
        let shard = self.shard_of(hash);
        let Some(mut held) = self.take(shard, taking) else {
            return Outcome::Busy;
        };
        let outcome = self.run_one(seat, call, hash, shard, &mut held, reply);
        self.release(shard, held);
        outcome
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
        let table = held.db(call.db);
        let before = table.census();
        let mut cx = self.one_key(call, call.first_key(), hash, table);
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
        seat.book(call.db, table.census() - before);
        self.note_due(shard, table);
        outcome
    }

    #[inline]
    fn one_key<'a>(
        &'a self,
        call: &'a Call<'a>,
        key: &'a [u8],
        hash: KeyHash,
        table: &'a mut Table,
    ) -> OneKey<'a> {
        OneKey {
            args: call.args,
            key,
            hash,
            table,
            hasher: &self.hasher,
            now: &call.now,
            limits: &call.limits,
        }
    }

    fn attempt_each(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking,
        each: fn(&mut OneKey<'_>) -> bool,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let keys = call.args.from(1);
        if keys.len() > KEYS_AT_ONCE {
            return Outcome::Long;
        }
        match self.each_key(seat, call, keys, taking, each) {
            None => Outcome::Busy,
            Some(count) => {
                seat.called(call.command);
                reply.integer(count);
                Outcome::Done
            }
        }
    }

    /// For how many of the keys `each` gave true; `None` when a token was not to be had.
    pub(super) fn each_key(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        keys: &[&[u8]],
        taking: Taking,
        each: fn(&mut OneKey<'_>) -> bool,
    ) -> Option<i64> {
        self.with_many(seat, call, keys.iter().copied(), taking, |tables| {
            let mut count = 0;
            for (number, key) in keys.iter().enumerate() {
                let (hash, table) = tables.table(number);
                count += i64::from(each(&mut self.one_key(call, key, hash, table)));
            }
            count
        })
    }

    fn attempt_many(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking,
        run: fn(&mut ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let keys = call.row().key_arguments(&call.args);
        if keys.len() > call.limits.max_atomic_keys {
            return said(call, Err(Error::TooManyKeys(call.limits.max_atomic_keys)), reply);
        }
        let outcome = self.with_many(seat, call, keys, taking, |tables| {
            let (hasher, now, limits) = (&self.hasher, &call.now, &call.limits);
            let (db, databases) = (call.db, self.config.databases);
            let mut cx = ManyKeys { args: call.args, tables, db, databases, hasher, now, limits };
            seat.counted(call.command, || said(call, run(&mut cx, reply), reply))
        });
        outcome.unwrap_or(Outcome::Busy)
    }

    /// Holds the shards of all these keys together while `run` works on their
    /// tables; `None` when a token was not to be had.
    pub(super) fn with_many<'k, R>(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        keys: impl Iterator<Item = &'k [u8]>,
        taking: Taking,
        run: impl FnOnce(&mut dyn HeldTables) -> R,
    ) -> Option<R> {
        let hashes: SmallVec<[KeyHash; 8]> = keys.map(|key| self.hasher.hash(key)).collect();
        let mut shards: SmallVec<[u32; 8]> = hashes.iter().map(|&hash| self.shard_of(hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        let mut held = self.take_many(&shards, taking)?;
        let before = census(&mut held, call.db);
        let databases = smallvec![(call.db, before)];
        let mut tables = HeldByKey { engine: self, hashes: &hashes, held: &mut held, databases };
        for key in 0..hashes.len() {
            let (hash, table) = tables.table(key);
            table.prefetch(hash);
        }
        let result = run(&mut tables);
        let databases = tables.databases;
        for (db, before) in databases {
            seat.book(db, census(&mut held, db) - before);
            for (shard, token) in &mut held {
                self.note_due(*shard, token.db(db));
            }
        }
        self.release_many(held);
        Some(result)
    }
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
    databases: SmallVec<[(u32, Census); 2]>,
}

impl HeldByKey<'_, '_> {
    fn place(&mut self, key: usize, db: u32) -> (KeyHash, &mut Table) {
        let hash = self.hashes[key];
        let shard = self.engine.shard_of(hash);
        let at = self.held.partition_point(|&(number, _)| number < shard);
        (hash, self.held[at].1.db(db))
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
        }
        self.place(key, db)
    }
}
