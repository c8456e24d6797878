//! Replaying records: putting what a log has back into the keyspace, in the order of the log.
//!
//! Keys are changed as commands change them, through an [`Edit`], with the books, due times and
//! notifications that belong to it; at a time at which nothing has expired, and whatever the mode
//! and the gates are. A record is on one shard, or on two.

use std::fmt;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;

use super::Engine;
use super::call::{Author, Call, Taking};
use super::jobs::free_later;
use super::ledger::{Account, ChangedBy, Gates};
use super::shards::{HeldTogether, KeyAt, of_shard};
use super::slot::ThreadSlot;
use crate::command::record::{CannotApply, Record, Words};
use crate::command::{Args, Event, Limits, Transcript, number_of};
use crate::limits::AHEAD;
use crate::store::{Edit, Now, Store, UnixMs};
use crate::sync::Locked;

/// Why a record cannot be replayed on this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// Its database does not exist here.
    Database {
        /// The database.
        db: u32,
        /// How many there are.
        there: u32,
    },
    /// It would make a value longer than any may be.
    TooLong,
    /// Its payload is damaged.
    Payload,
    /// It is about all keys, and is not the last one of its text.
    NotLast,
    /// Only the main thread can replay it, and a worker has got it.
    NotHere,
    /// It is a command that is refused.
    Refused,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Database { db, there } => {
                write!(out, "a record of database {db}, but there are {there}: raise `databases`")
            }
            ReplayError::TooLong => write!(out, "a record makes a value too long"),
            ReplayError::Payload => write!(out, "the payload of a RESTORE is damaged"),
            ReplayError::NotHere => write!(out, "a BITOP in a text of version 1"),
            ReplayError::Refused => write!(out, "a BITOP that this midi refuses"),
            ReplayError::NotLast => write!(out, "a record about all keys is not the last one"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<CannotApply> for ReplayError {
    fn from(error: CannotApply) -> Self {
        match error {
            CannotApply::TooLong => ReplayError::TooLong,
            CannotApply::Payload => ReplayError::Payload,
        }
    }
}

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
        let (key, to) = match record {
            Record::Select { db } => return self.has_database(db).map(|()| None),
            Record::Multi | Record::Exec => return Ok(None),
            Record::FlushDb | Record::FlushAll | Record::SwapDb { .. } => {
                return Err(ReplayError::NotLast);
            }
            Record::BitOp { .. } => return Err(ReplayError::NotHere),
            Record::Set { key, .. }
            | Record::SetRanges { key, .. }
            | Record::Restore { key, .. }
            | Record::Del { key }
            | Record::PexpireAt { key, .. }
            | Record::Persist { key }
            | Record::Append { key, .. }
            | Record::SetRange { key, .. } => (key, None),
            Record::Rename { key, to } => (key, Some((to, db))),
            Record::Copy { key, to, db } => (key, Some((to, db))),
            Record::Move { key, db } => (key, Some((key, db))),
        };
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

    /// Prefetches what replaying a record looks at first.
    #[inline]
    pub fn prefetch_for_replay(&self, replayed: &Replayed<'_>) {
        self.shards().prefetch(replayed.shard());
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
            let Some(place) = held.place(self.shards(), record.shard(), taking) else { break };
            places.push(place);
        }
        for (&Replayed { key: (_, at), .. }, &place) in records.iter().zip(&places) {
            held.at(place).1.db(at.db).prefetch(at.hash);
        }
        for (&Replayed { key: (_, at), .. }, &place) in records.iter().zip(&places) {
            held.at(place).1.db(at.db).prefetch_entry(at.hash);
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
        self.ledger.release_many(slot, held);
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
            let entry = edit.read().map(|entry| entry.copy_as(to.0));
            if !matches!(record, Record::Copy { .. }) {
                edit.remove();
            } else if let Some(copy) = &entry {
                copy.take_copys_memory();
            }
            entry
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

    /// Replays BITOP, with its arguments, to its end: as the command, at a time at which nothing
    /// has expired.
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
        let keep_bytes = self.settings().keep_bytes.load(Ordering::Relaxed);
        let call = Call {
            command,
            args: Args::new(&list),
            db,
            now: Now::at(UnixMs::MIN),
            limits: Limits { keep_bytes, ..Limits::NONE },
            prefix: "",
            author: Author::Nobody,
        };
        let mut reply = Transcript::default();
        self.run_waiting(locked, &call, &mut reply);
        reply.first_error().map_or(Ok(()), |_| Err(ReplayError::Refused))
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
