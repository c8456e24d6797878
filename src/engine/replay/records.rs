//! The records of a log on their way into the keyspace.
//!
//! Keys are changed as commands change them, through an [`Edit`], with the books, due times and
//! notifications that belong to it; at a time at which nothing has expired, and whatever the mode
//! and the gates are. A record is on one shard, or on two.

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;

use super::super::Engine;
use super::super::call::{Author, Call, Taking};
use super::super::jobs::free_later;
use super::super::ledger::{Account, ChangedBy, Gates};
use super::super::shards::{HeldTogether, KeyAt, of_shard};
use super::super::slot::ThreadSlot;
use super::ReplayError;
use crate::command::record::{Record, Words};
use crate::command::{Args, Event, Limits, Transcript, number_of};
use crate::limits::{AHEAD, LINES_OF_STRING};
use crate::store::{Edit, Entry, Now, Store, UnixMs};
use crate::sync::Locked;

/// A key, and where it is.
type KeyAndPlace<'a> = (&'a [u8], KeyAt);

/// A record on its way into the keyspace, and where its keys are.
#[derive(Clone, Copy)]
pub struct Replayed<'a> {
    record: Record<'a>,
    key: KeyAndPlace<'a>,
    /// The key that takes the place of the first, or gets a copy of it.
    to: Option<KeyAndPlace<'a>>,
}

impl Replayed<'_> {
    /// The shard of its first key.
    #[inline]
    pub fn shard(&self) -> u32 {
        self.key.1.shard
    }

    /// The shard of its second key; that of the first if it has only one.
    #[inline]
    pub fn other_shard(&self) -> u32 {
        self.to.unwrap_or(self.key).1.shard
    }

    /// Whether it is about two keys: such a record is replayed alone.
    #[inline]
    pub fn is_of_two(&self) -> bool {
        self.to.is_some()
    }
}

impl Engine {
    /// A record of database `db`, to be replayed. `None` for those that change no key.
    ///
    /// # Errors
    /// There is no such database.
    #[inline]
    pub fn to_replay<'a>(
        &self,
        db: u32,
        record: Record<'a>,
    ) -> Result<Option<Replayed<'a>>, ReplayError> {
        let to = match record {
            Record::Select { db } => return self.has_database(db).map(|()| None),
            Record::FlushDb | Record::FlushAll | Record::SwapDb { .. } => {
                return Err(ReplayError::NotLast);
            }
            Record::BitOp { .. } => return Err(ReplayError::NotHere),
            Record::Rename { to, .. } => Some((to, db)),
            Record::Copy { to, db, .. } => Some((to, db)),
            Record::Move { key, db } => Some((key, db)),
            _ => None,
        };
        let Some(key) = record.key() else { return Ok(None) };
        if let Some((_, db)) = to {
            self.has_database(db)?;
        }
        let to = to.map(|(to, db)| (to, self.shards().key_at(db, to)));
        Ok(Some(Replayed { record, key: (key, self.shards().key_at(db, key)), to }))
    }

    fn has_database(&self, db: u32) -> Result<(), ReplayError> {
        let there = self.config().databases;
        if db < there { Ok(()) } else { Err(ReplayError::Database { db, there }) }
    }

    /// Replays records on this thread, in order and with their shards held together, so that what
    /// the later ones need is fetched from memory while the first ones run. Stops where a token is
    /// busy. Returns how many are done, and the error if the next one cannot be replayed at all.
    pub fn replay(
        &self,
        slot: &ThreadSlot,
        records: &[Replayed<'_>],
        taking: Taking<'_>,
    ) -> (usize, Option<ReplayError>) {
        if let [Replayed { record, key, to: Some(to) }] = records {
            return (self.replay_two(slot, record, (*key, *to), taking), None);
        }
        let (mut held, mut places) = (HeldTogether::default(), ArrayVec::<usize, AHEAD>::new());
        for record in records.iter().take(AHEAD).take_while(|record| record.to.is_none()) {
            let shard = record.shard();
            places.push(match held.place(shard) {
                Some(place) => place,
                None => {
                    let Some(token) = self.shards().take(shard, taking) else { break };
                    held.add(shard, token)
                }
            });
        }
        for (&Replayed { key: (_, at), .. }, &place) in records.iter().zip(&places) {
            held.at(place).1.db(at.db).prefetch(at.hash);
        }
        for (&Replayed { key: (_, at), .. }, &place) in records.iter().zip(&places) {
            held.at(place).1.db(at.db).prefetch_entry(at.hash, LINES_OF_STRING);
        }
        let keep_bytes = self.settings().keep_bytes.load(Ordering::Relaxed);
        let (mut count, mut error) = (0, None);
        for (Replayed { record, key, .. }, &place) in records.iter().zip(&places) {
            let store = held.at(place).1;
            let done = self.replay_on(slot, store, *key, |edit| record.apply_to(edit, keep_bytes));
            if let Err(reason) = done {
                error = Some(reason.into());
                break;
            }
            count += 1;
            self.leave_replayed(*key, record.events().0);
        }
        self.ledger.release_many(slot, held.drain());
        (count, error)
    }

    /// [`Engine::replay`] for RENAME, COPY and MOVE. If the first key does not exist, they do
    /// nothing.
    #[cold]
    fn replay_two(
        &self,
        slot: &ThreadSlot,
        record: &Record<'_>,
        (from, to): (KeyAndPlace<'_>, KeyAndPlace<'_>),
        taking: Taking<'_>,
    ) -> usize {
        if from.0 == to.0 && from.1.db == to.1.db {
            return 1;
        }
        let shards = [from.1.shard.min(to.1.shard), from.1.shard.max(to.1.shard)];
        let count = if shards[0] == shards[1] { 1 } else { 2 };
        let Some(mut held) = self.shards().take_many(&shards[..count], taking) else { return 0 };
        let entry = self.replay_on(slot, of_shard(&mut held, from.1.shard), from, |edit| {
            if !matches!(record, Record::Copy { .. }) {
                let entry = edit.read().map(|entry| entry.copy_as(to.0));
                edit.remove();
                return entry;
            }
            let copy = edit.copy_apart(to.0);
            copy.iter().for_each(Entry::take_copys_memory);
            copy
        });
        if let Some(entry) = entry {
            self.replay_on(slot, of_shard(&mut held, to.1.shard), to, |edit| edit.put(entry));
            let (first, second) = record.events();
            self.leave_replayed(from, first);
            self.leave_replayed(to, second);
        }
        self.ledger.release_many(slot, held);
        1
    }

    /// Replays BITOP, with its arguments.
    ///
    /// # Errors
    /// The command is refused.
    pub fn replay_bit_op(
        &self,
        locked: Locked<'_>,
        db: u32,
        args: Words<'_>,
    ) -> Result<(), ReplayError> {
        // Also where the port does not have it, because the host's BITOP was renamed.
        let command = number_of("bitop").ok_or(ReplayError::Refused)?;
        let list: Vec<&[u8]> = std::iter::once(&b"bitop"[..]).chain(args.iter()).collect();
        let replayed = self.replay_command(locked, db, command, Args::new(&list), "");
        replayed.map_err(|_| ReplayError::Refused)
    }

    /// Replays a command, past all gates and to its end, at a time at which nothing has expired.
    ///
    /// # Errors
    /// The command is refused, with this error.
    pub fn replay_command(
        &self,
        locked: Locked<'_>,
        db: u32,
        command: usize,
        args: Args<'_>,
        prefix: &'static str,
    ) -> Result<(), Vec<u8>> {
        let limits = Limits { keep_bytes: self.settings().limits(0).keep_bytes, ..Limits::NONE };
        let (now, author) = (Now::at(UnixMs::MIN), Author::Nobody);
        let call = Call { command, args, db, now, limits, prefix, author };
        let mut reply = Transcript::default();
        match call.row().check_arity(&call.args) {
            Ok(()) => self.run_waiting(locked, &call, &mut reply),
            Err(error) => call.refuse(error, &mut reply),
        }
        reply.first_error().map_or(Ok(()), |error| Err(error.to_vec()))
    }

    /// Replays a record about all keys. False if it is not one.
    ///
    /// # Errors
    /// There is no such database.
    pub fn replay_of_all(
        &self,
        locked: Locked<'_>,
        db: u32,
        record: Record<'_>,
    ) -> Result<bool, ReplayError> {
        match record {
            Record::FlushDb => {
                self.has_database(db)?;
                free_later(self, self.ledger.flush(locked, Some(db), ChangedBy::Host));
            }
            Record::FlushAll => free_later(self, self.ledger.flush(locked, None, ChangedBy::Host)),
            Record::SwapDb { a, b } => {
                self.has_database(a.max(b))?;
                self.ledger.swap_dbs(locked, a, b, ChangedBy::Host);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Lends a key of a held shard, at a time at which nothing has expired. While the host loads,
    /// and on a replica, nothing of it is logged: the mode is closed.
    #[inline]
    fn replay_on<R>(
        &self,
        slot: &ThreadSlot,
        store: &mut Store,
        (key, at): KeyAndPlace<'_>,
        work: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> R {
        let account = Account::new(slot, false);
        self.ledger.edit_key(account, store, at, key, &Now::at(UnixMs::MIN), work).0
    }

    /// Notifies listeners of a replayed record. Nobody has read anything while the host loads.
    #[inline]
    fn leave_replayed(&self, (key, at): KeyAndPlace<'_>, event: Option<Event>) {
        if self.ledger.notifications.is_listening()
            && !self.gates().has(Gates::LOADING)
            && let Some(event) = event
        {
            self.ledger.leave_notification(Author::Nobody, at.db, key, event);
        }
    }
}
