//! Commands that move or copy a value: RENAME, RENAMENX, COPY and MOVE, after Redis's db.c.

use arrayvec::ArrayVec;

use super::record::Record;
use super::{
    Access, Action, Arg, ArgKind, Args, Cluster, Command, Docs, Error, Event, Flags, Keys, Limits,
    LoggedAs, Long, LongKeys, LooksUp, ManyKeys, OtherDbs, Reply, Run, arg, docs, word,
};
use crate::limits::COPIED_LAST_FIELDS;
use crate::store::{Edit, Entry, HashCopy, Unended};

const RENAMED: &[Arg] = &[arg("key", ArgKind::Key), arg("newkey", ArgKind::SecondKey)];

pub(super) static RENAME: Command = Command {
    name: "rename",
    arity: 3,
    keys: Keys::Two(Access::Take, Access::Overwrite),
    docs: docs("Renames a key, and replaces the key that has the new name, at one moment.")
        .takes(RENAMED),
    logged_as: LoggedAs::Itself(rename_record),
    action: Action::ManyKeys(Run::Edit(rename)),
    ..Command::on_keys(Flags { write: true, ..Flags::NONE })
};

pub(super) static RENAMENX: Command = Command {
    name: "renamenx",
    arity: 3,
    keys: Keys::Two(Access::Take, Access::Insert),
    docs: docs("Renames a key if no key has the new name, at one moment.").takes(RENAMED),
    logged_as: LoggedAs::Itself(rename_record),
    action: Action::ManyKeys(Run::Edit(renamenx)),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static COPY: Command = Command {
    name: "copy",
    looks_up: LooksUp::First,
    arity: -3,
    keys: Keys::Two(Access::Read, Access::Overwrite),
    other_dbs: OtherDbs::Named(copied_to),
    docs: Docs {
        summary: "Copies a value and its expiry to another key, optionally in another database. \
                  A large string is not copied: both keys share it. A hash is copied.",
        complexity: "O(N) for a hash, N being the number of its fields; O(1) for strings",
        args: &[
            arg("source", ArgKind::Key),
            arg("destination", ArgKind::SecondKey),
            arg("destination-db", ArgKind::Integer).token("DB").optional(),
            word("replace", "REPLACE").optional(),
        ],
    },
    logged_as: LoggedAs::Itself(copied),
    long: Long::FoundAlone(LongKeys::Copy),
    action: Action::ManyKeys(Run::Edit(copy)),
    ..Command::on_keys(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

pub(super) static MOVE: Command = Command {
    name: "move",
    arity: 3,
    keys: Keys::One(Access::ReadOverwrite),
    other_dbs: OtherDbs::Named(moved_to),
    docs: docs("Moves a key to another database if it is not there yet.")
        .takes(&[arg("key", ArgKind::Key), arg("db", ArgKind::Integer)]),
    logged_as: LoggedAs::Itself(moved),
    action: Action::ManyKeys(Run::Edit(move_key)),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

fn rename_record<'a>(args: &Args<'a>, _: u32) -> Record<'a> {
    Record::Rename { key: args.get(1), to: args.get(2) }
}

fn copied<'a>(args: &Args<'a>, own: u32) -> Record<'a> {
    let db = CopyOptions::parse(args, own, u32::MAX).map_or(own, |options| options.db);
    Record::Copy { key: args.get(1), to: args.get(2), db }
}

fn moved<'a>(args: &Args<'a>, own: u32) -> Record<'a> {
    Record::Move { key: args.get(1), db: database(args, 2, u32::MAX).unwrap_or(own) }
}

/// A key's number among the command's keys, its name, and its database.
#[derive(Clone, Copy)]
struct KeyPlace<'a> {
    number: usize,
    key: &'a [u8],
    db: u32,
}

impl ManyKeys<'_> {
    fn at(&mut self, place: KeyPlace<'_>) -> Edit<'_> {
        self.keys.edit(place.number, place.db)
    }

    /// The entry at `from` under the name `key`; `None` if it does not exist. Both may refer to the
    /// same fields, so the one at `from` must be removed.
    fn renamed(&mut self, from: KeyPlace<'_>, key: &[u8]) -> Option<Entry> {
        self.at(from).read().map(|entry| entry.copy_as(key))
    }
}

fn rename(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    rename_generic(cx, true)?;
    reply.ok();
    Ok(())
}

fn renamenx(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let renamed = rename_generic(cx, false)?;
    reply.integer(i64::from(renamed));
    Ok(())
}

/// Returns false if nothing was to be done.
fn rename_generic(cx: &mut ManyKeys<'_>, replace: bool) -> Result<bool, Error> {
    let (args, db) = (cx.args, cx.db);
    let from = KeyPlace { number: 0, key: args.get(1), db };
    let to = KeyPlace { number: 1, key: args.get(2), db };
    cx.limits.key(to.key)?;
    let entry = cx.renamed(from, to.key).ok_or(Error::NoSuchKey)?;
    if from.key == to.key || !replace && cx.at(to).is_there() {
        return Ok(false);
    }
    cx.at(from).remove();
    cx.at(to).put(entry);
    cx.tell(from.number, Event::RENAME_FROM);
    cx.tell(to.number, Event::RENAME_TO);
    Ok(true)
}

fn copy(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let copied = cx.copy(&mut None)?;
    reply.integer(i64::from(copied));
    Ok(())
}

impl ManyKeys<'_> {
    /// COPY, with the copy of a hash if that has been `made` before. True if the key was copied.
    ///
    /// # Errors
    /// [`Error::LongWork`] if the command can become a job, and the hash has many fields of which
    /// there is no copy, or many are to be copied again. In the second case `made` is kept. Nothing
    /// has been done then.
    pub fn copy(&mut self, made: &mut Option<HashCopy>) -> Result<bool, Error> {
        let (args, limits) = (self.args, self.limits);
        let options = CopyOptions::parse(&args, self.db, self.databases)?;
        let from = KeyPlace { number: 0, key: args.get(1), db: self.db };
        let to = KeyPlace { number: 1, key: args.get(2), db: options.db };
        if self.cluster == Cluster::OneDatabase && from.db != to.db {
            return Err(Error::NotInCluster("Copying to another database"));
        }
        if from.db == to.db && from.key == to.key {
            return Err(Error::SameObject);
        }
        limits.key(to.key)?;
        if !self.at(from).is_there() || !options.replace && self.at(to).is_there() {
            return Ok(false);
        }
        let copy = copy_of(&self.at(from), to.key, limits, made)?;
        copy.take_copys_memory();
        self.at(to).put(copy);
        self.events.note_in(to.number, to.db, Event::COPY_TO);
        Ok(true)
    }
}

/// A copy of the key, which is there, under another name; see [`ManyKeys::copy`]. A hash that takes
/// as much memory as a large reply is for a worker, one with many fields is long work.
fn copy_of(
    from: &Edit<'_>,
    name: &[u8],
    limits: &Limits,
    made: &mut Option<HashCopy>,
) -> Result<Entry, Error> {
    let most = if limits.may_be_job() { COPIED_LAST_FIELDS } else { usize::MAX };
    if let Some(copy) = made {
        let ended = from.end_copy(copy, name, most);
        if matches!(ended, Err(Unended::Behind)) {
            return Err(Error::LongWork);
        }
        *made = None;
        if let Ok(entry) = ended {
            return Ok(entry);
        }
    }
    if let Some(fields) = from.fields().ok().flatten() {
        let bytes = from.read().map_or(0, |entry| entry.weight());
        if limits.is_long_read(fields.len(), || bytes) {
            return Err(Error::LongWork);
        }
        limits.reply(bytes)?;
    }
    from.copy_apart(name).ok_or(Error::Internal)
}

fn move_key(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    if cx.cluster == Cluster::OneDatabase {
        return Err(Error::NotInCluster("MOVE"));
    }
    let args = cx.args;
    let from = KeyPlace { number: 0, key: args.get(1), db: cx.db };
    let to = KeyPlace { db: database(&args, 2, cx.databases)?, ..from };
    if from.db == to.db {
        return Err(Error::SameObject);
    }
    let entry = cx.renamed(from, to.key).filter(|_| !cx.at(to).is_there());
    reply.integer(i64::from(entry.is_some()));
    if let Some(entry) = entry {
        cx.at(from).remove();
        cx.at(to).put(entry);
        cx.tell(from.number, Event::MOVE_FROM);
        cx.events.note_in(to.number, to.db, Event::MOVE_TO);
    }
    Ok(())
}

/// The destination database of COPY; none if COPY will refuse its arguments.
fn copied_to(args: &Args<'_>, own: u32) -> ArrayVec<u32, 2> {
    CopyOptions::parse(args, own, u32::MAX).map(|options| options.db).into_iter().collect()
}

/// The destination database of MOVE; none if MOVE will refuse its arguments.
fn moved_to(args: &Args<'_>, _: u32) -> ArrayVec<u32, 2> {
    database(args, 2, u32::MAX).into_iter().collect()
}

struct CopyOptions {
    db: u32,
    replace: bool,
}

impl CopyOptions {
    fn parse(args: &Args<'_>, own: u32, databases: u32) -> Result<Self, Error> {
        let mut options = CopyOptions { db: own, replace: false };
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "replace") {
                options.replace = true;
            } else if args.is(at, "db") && at + 1 < args.len() {
                at += 1;
                options.db = database(args, at, databases)?;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Parses argument `at` as the number of a database.
pub(super) fn database(args: &Args<'_>, at: usize, databases: u32) -> Result<u32, Error> {
    let number = i32::try_from(args.integer(at)?).map_err(|_| Error::OutOfIntRange)?;
    u32::try_from(number).ok().filter(|&db| db < databases).ok_or(Error::DbOutOfRange)
}
