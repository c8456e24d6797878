//! The commands: one table of what they are called, what they take, and what
//! they do to a store. Every door registers, routes and documents from it.
//!
//! A command sees its arguments, the tables it may touch, the time, and a
//! [`Reply`]. It knows neither the door it came through nor the thread it is on.

mod args;
mod bitfield;
mod bitmap;
mod bits;
mod connection;
mod counter;
mod digest;
mod dump;
mod error;
mod event;
mod extended;
mod get;
pub mod glob;
mod key;
mod keyspace;
mod lcs;
mod lzf;
mod object;
mod payload;
mod range;
mod rename;
mod reply;
mod set;
mod spec;
mod string;
mod table;

pub use args::{Args, Keep, OwnedArgs, parse_integer};
pub use connection::{
    ClientCommand, Describe, PORT_COMMANDS, PortAction, PortCall, PortCommand, find_port, subcommands,
    withdraw_port,
};
pub use error::{Error, HostCommand, elsewhere, error_about, unknown_command};
pub use event::{Class, Event, Events};
pub use keyspace::{ImportArgs, PopulateArgs, ScanArgs, flush_waits, key_pattern, swapped_dbs};
pub use lcs::{Lcs, LcsOptions};
pub use reply::{Reply, Tape};
pub use spec::{FindKeys, KeySpec, SINCE};
pub use table::{COMMANDS, find, withdraw};

use crate::limits::TOUCHED_PER_REPLIED;
use crate::store::{Edit, EntryRef, Now};

/// A row of the command table.
pub struct Command {
    /// The standard name, in lower case; the host's is `midi.` and this.
    pub name: &'static str,
    /// Number of arguments, the name included; negative for "at least".
    pub arity: i32,
    /// What the host and the ports must know before running it.
    pub flags: Flags,
    /// Which arguments are keys, and what happens to them.
    pub keys: Keys,
    /// ACL categories, as the host spells them, without `@`.
    pub categories: &'static str,
    /// Native commands whose rights count for this one, too: the first of them that the host has;
    /// `container|sub` is a subcommand. Empty where that is the command of the same name.
    pub twins: &'static [&'static str],
    /// For COMMAND DOCS and the pages under docs/commands.
    pub docs: Docs,
    /// What it does.
    pub action: Action,
}

/// Properties that gates in front of a command look at.
#[derive(Clone, Copy)]
pub struct Flags {
    /// Changes midi's data: refused on read-only replicas and wherever midi's writes are.
    pub write: bool,
    /// Changes nothing.
    pub readonly: bool,
    /// May need more memory: refused above `maxmemory`.
    pub deny_oom: bool,
    /// Constant or logarithmic time.
    pub fast: bool,
    /// Changes the host's own keyspace: the host must treat it as a write.
    pub host_write: bool,
    /// For administrators.
    pub admin: bool,
}

impl Flags {
    /// None of them.
    pub const NONE: Flags = Flags {
        write: false,
        readonly: false,
        deny_oom: false,
        fast: false,
        host_write: false,
        admin: false,
    };
}

/// Where a command's keys stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Nowhere.
    None,
    /// Argument 1.
    One(Access),
    /// Argument 2, behind a subcommand.
    Second(Access),
    /// Arguments 1 and 2, each with its own access.
    Two(Access, Access),
    /// Argument 2, behind a word, is made of those from 3 on.
    MadeOf(Access, Access),
    /// Every argument.
    All(Access),
    /// Every other argument, each followed by its value.
    Pairs(Access),
    /// Argument 1 says how many pairs of key and value follow.
    CountedPairs(Access),
    /// Argument 1; the options say what happens to it.
    ByOptions(ByOptions),
}

/// What happens to a key where that depends on options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ByOptions {
    /// Everything that may.
    most: Access,
    /// Without any of the words below.
    plain: Access,
    /// Words of options, and what happens where they are given; the first that is counts.
    words: &'static [(&'static str, Access)],
    /// Where options begin.
    first: usize,
}

impl ByOptions {
    fn access(self, args: &Args<'_>) -> Access {
        let is_given = |word: &str| (self.first..args.len()).any(|at| args.is(at, word));
        let given = self.words.iter().find(|(word, _)| is_given(word));
        given.map_or(self.plain, |&(_, access)| access)
    }
}

/// What a command does to its keys; the terms are those of Redis's key specs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads metadata only: `RO`.
    Look,
    /// Reads values: `RO ACCESS`.
    Read,
    /// Overwrites values: `OW UPDATE`.
    Overwrite,
    /// Writes a key that must not be there: `OW INSERT`.
    Insert,
    /// Overwrites and gives back the old value: `RW ACCESS UPDATE`.
    ReadOverwrite,
    /// Gives the value away, to the client or to another key, and removes the key: `RW ACCESS DELETE`.
    Take,
    /// Changes metadata: `RW UPDATE`.
    Update,
    /// Removes keys: `RM DELETE`.
    Remove,
    /// Removes a key if its value is a certain one: `RW DELETE`.
    RemoveIf,
    /// Adds to what is there: `RW INSERT`.
    Extend,
}

impl Keys {
    /// Where the first one stands, if there is any.
    #[inline]
    fn first(self) -> usize {
        if matches!(self, Keys::Second(_) | Keys::MadeOf(..) | Keys::CountedPairs(_)) { 2 } else { 1 }
    }

    /// Where the arguments stand that are keys.
    pub fn positions(self, args: &Args<'_>) -> impl ExactSizeIterator<Item = usize> + Clone + use<> {
        let (end, step) = match self {
            Keys::None => (1, 1),
            Keys::One(_) | Keys::ByOptions(_) => (2, 1),
            Keys::Second(_) | Keys::Two(..) => (3, 1),
            Keys::MadeOf(..) | Keys::All(_) => (usize::MAX, 1),
            Keys::Pairs(_) => (usize::MAX, 2),
            Keys::CountedPairs(_) => (2 + 2 * set::pair_count(args).unwrap_or(0), 2),
        };
        (self.first()..end.min(args.len())).step_by(step)
    }

    /// What happens to key number `number`, counted among the keys.
    pub fn access(self, number: usize, args: &Args<'_>) -> Access {
        match self {
            Keys::ByOptions(options) => options.access(args),
            Keys::Two(_, others) | Keys::MadeOf(_, others) if number > 0 => others,
            Keys::One(access)
            | Keys::Second(access)
            | Keys::Two(access, _)
            | Keys::MadeOf(access, _)
            | Keys::All(access)
            | Keys::Pairs(access)
            | Keys::CountedPairs(access) => access,
            Keys::None => Access::Look,
        }
    }
}

impl Access {
    /// Whether it shows anything of the value.
    pub fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadOverwrite | Access::Take)
    }

    /// Whether it changes anything.
    pub fn writes(self) -> bool {
        !matches!(self, Access::Look | Access::Read)
    }
}

/// Documentation, in the form of the host's COMMAND DOCS.
pub struct Docs {
    /// One sentence.
    pub summary: &'static str,
    /// In big-O notation.
    pub complexity: &'static str,
    /// What it takes.
    pub args: &'static [Arg],
}

/// A documented argument.
#[derive(Clone, Copy)]
pub struct Arg {
    /// What it is called.
    pub name: &'static str,
    /// What it looks like.
    pub kind: ArgKind,
    /// The word in front of it, or the word that it is.
    pub token: Option<&'static str>,
    /// May be left out.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
}

/// Kinds of documented arguments.
#[derive(Clone, Copy)]
pub enum ArgKind {
    /// A key of the keyspace.
    Key,
    /// The second key of [`Keys::Two`], or what [`Keys::MadeOf`] is made of.
    SecondKey,
    /// Any bytes.
    String,
    /// A number.
    Integer,
    /// A glob pattern.
    Pattern,
    /// Seconds or milliseconds since 1970.
    UnixTime,
    /// The token alone.
    Token,
    /// One of these.
    OneOf(&'static [Arg]),
    /// All of these, in order.
    Block(&'static [Arg]),
    /// A number with a fraction.
    Double,
}

/// A required argument.
const fn arg(name: &'static str, kind: ArgKind) -> Arg {
    Arg { name, kind, token: None, optional: false, multiple: false }
}

impl Arg {
    const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    const fn multiple(mut self) -> Self {
        self.multiple = true;
        self
    }

    const fn token(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }
}

/// An argument that is just a word.
const fn word(name: &'static str, token: &'static str) -> Arg {
    arg(name, ArgKind::Token).token(token)
}

/// A command's function. One that only reads has its keys shared in its hands: so it cannot change them.
#[derive(Clone, Copy)]
pub enum Run<R, E> {
    /// Reads.
    Read(R),
    /// Changes what it will.
    Edit(E),
}

impl<R, E> Run<R, E> {
    /// Whether it cannot change anything.
    pub fn only_reads(self) -> bool {
        matches!(self, Run::Read(_))
    }
}

type ReadOne = fn(&OneKey<'_>, &mut dyn Reply) -> Result<(), Error>;
type EditOne = fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>;
type ReadEach = fn(&OneKey<'_>) -> bool;
type EditEach = fn(&mut OneKey<'_>) -> bool;
type ReadMany = fn(&ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>;
type EditMany = fn(&mut ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>;

impl Run<ReadOne, EditOne> {
    /// Runs it.
    ///
    /// # Errors
    /// Why it was not done.
    #[inline(always)]
    pub fn run(self, cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
        match self {
            Run::Read(read) => read(cx, reply),
            Run::Edit(edit) => edit(cx, reply),
        }
    }
}

impl Run<ReadEach, EditEach> {
    /// Runs it on one of the keys.
    pub fn run(self, cx: &mut OneKey<'_>) -> bool {
        match self {
            Run::Read(read) => read(cx),
            Run::Edit(edit) => edit(cx),
        }
    }
}

impl Run<ReadMany, EditMany> {
    /// Runs it.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn run(self, cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
        match self {
            Run::Read(read) => read(cx, reply),
            Run::Edit(edit) => edit(cx, reply),
        }
    }
}

/// What [`Action::EachKey`] does to each key.
pub type OnEachKey = Run<ReadEach, EditEach>;
/// What [`Action::ManyKeys`] does.
pub type OnManyKeys = Run<ReadMany, EditMany>;

/// How a command is carried out.
#[derive(Clone, Copy)]
pub enum Action {
    /// On the shard of its one key.
    OneKey(Run<ReadOne, EditOne>),
    /// On the shard of each of its keys; answers for how many it gave true. Not
    /// atomic over many keys.
    EachKey(Run<ReadEach, EditEach>),
    /// On the shards of all its keys, held together.
    ManyKeys(Run<ReadMany, EditMany>),
    /// Over the keyspace, by the engine.
    Keyspace(Keyspace),
    /// By the door, with means that only it has.
    Door(DoorCommand),
}

/// Commands over all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyspace {
    /// All keys that match a pattern.
    Keys,
    /// Some keys and a cursor.
    Scan,
    /// Any one key.
    RandomKey,
    /// How many keys.
    DbSize,
    /// Empties the client's database.
    FlushDb,
    /// Empties all databases.
    FlushAll,
    /// Exchanges two databases.
    SwapDb,
    /// Makes keys for trying things out.
    Populate,
}

/// Commands that need the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorCommand {
    /// Copies the host's keys into midi.
    Import,
    /// Copies midi's keys to the host.
    Export,
    /// Lists and cancels long commands.
    Jobs,
    /// What INFO says about midi.
    Info,
    /// The commands, for people.
    Help,
}

/// Limits that a command keeps to. All are settings; see `limits.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest pattern of KEYS, SCAN, IMPORT and EXPORT, in bytes.
    pub max_pattern_bytes: usize,
    /// Longest key, in bytes.
    pub max_key_bytes: usize,
    /// Longest value, in bytes.
    pub max_value_bytes: usize,
    /// Values from this size on are kept as the door has them, not copied.
    pub keep_bytes: usize,
    /// Most keys of a command that is atomic over all of them.
    pub max_atomic_keys: usize,
    /// Largest reply that may be made on this thread, in bytes.
    pub max_reply_bytes: usize,
}

impl Limits {
    /// Refuses a key that is too long.
    #[inline]
    pub fn key(&self, key: &[u8]) -> Result<(), Error> {
        if key.len() > self.max_key_bytes {
            return Err(Error::KeyTooLong(self.max_key_bytes));
        }
        Ok(())
    }

    /// Refuses a value that is too long.
    #[inline]
    pub fn value(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.max_value_bytes {
            return Err(Error::ValueTooLong(self.max_value_bytes));
        }
        Ok(())
    }

    /// Whether a reply may be too large for this thread.
    fn has_reply_limit(&self) -> bool {
        self.max_reply_bytes != usize::MAX
    }

    /// Refuses a reply that must not be made on this thread.
    #[inline]
    fn reply(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.max_reply_bytes {
            return Err(Error::ReplyTooLarge);
        }
        Ok(())
    }
}

impl Limits {
    /// Refuses to touch so many bytes of values on this thread, as
    /// [`Limits::reply`] refuses to reply them.
    #[inline]
    fn touch(&self, bytes: usize) -> Result<(), Error> {
        self.reply(bytes / TOUCHED_PER_REPLIED)
    }
}

/// What a command on one key has in its hands.
pub struct OneKey<'a> {
    /// The key, in the client's database.
    pub key: Edit<'a>,
    /// All arguments.
    pub args: Args<'a>,
    /// What it must keep to.
    pub limits: &'a Limits,
    /// What it has done, for those who listen.
    pub events: &'a mut Events,
}

impl<'a> OneKey<'a> {
    /// When it happens.
    #[inline]
    fn now(&self) -> &'a Now {
        self.key.now()
    }

    /// Says that the key has changed.
    #[inline]
    fn tell(&mut self, event: Event) {
        self.events.note(0, event);
    }
}

/// Several keys, whose shards are all held. They go by their numbers among the command's keys.
pub trait HeldKeys {
    /// A key of the client's database, to be read.
    fn read(&self, key: usize) -> Option<EntryRef<'_>>;
    /// A key of any database, to be changed.
    fn edit(&mut self, key: usize, db: u32) -> Edit<'_>;
}

/// What databases are to a host that may be a node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// It is none.
    Off,
    /// A cluster has database 0 alone.
    OneDatabase,
    /// A cluster has several, which cannot be exchanged.
    ManyDatabases,
}

/// What a command on several keys has in its hands.
pub struct ManyKeys<'a> {
    /// All arguments.
    pub args: Args<'a>,
    /// The keys.
    pub keys: &'a mut dyn HeldKeys,
    /// The client's database.
    pub db: u32,
    /// How many databases there are.
    pub databases: u32,
    /// Whether others than the client's may be touched.
    pub cluster: Cluster,
    /// When it happens.
    pub now: &'a Now,
    /// What it must keep to.
    pub limits: &'a Limits,
    /// What it has done, for those who listen.
    pub events: &'a mut Events,
}

impl ManyKeys<'_> {
    /// Key number `key` of the client's database, to be changed.
    fn edit(&mut self, key: usize) -> Edit<'_> {
        self.keys.edit(key, self.db)
    }

    /// Says that key number `key` has changed.
    #[inline]
    fn tell(&mut self, key: usize, event: Event) {
        self.events.note(key, event);
    }
}

/// Whether so many arguments are right where the arity is this: negative for "at least".
fn takes(arity: i32, args: &Args<'_>) -> bool {
    let count = args.len() as i32;
    if arity >= 0 { count == arity } else { count >= -arity }
}

impl Command {
    /// Refuses a wrong number of arguments.
    pub fn check_arity(&self, args: &Args<'_>) -> Result<(), Error> {
        let odd_pairs = matches!(self.keys, Keys::Pairs(_)) && args.len().is_multiple_of(2);
        if !takes(self.arity, args) || odd_pairs { Err(Error::Arity) } else { Ok(()) }
    }

    /// Refuses what Redis refuses to queue between MULTI and EXEC: an arity that is not the row's, or
    /// a subcommand, which is a command of its own there. The rest fails when it is executed.
    pub fn check_form(&self, args: &Args<'_>) -> Result<(), Error> {
        match self.keys {
            _ if !takes(self.arity, args) => Err(Error::Arity),
            Keys::Second(_) => object::check_subcommand(self.name, args),
            _ => Ok(()),
        }
    }

    /// Whether it keeps to these databases besides the client's own. One that will refuse its
    /// arguments does.
    pub fn keeps_to(&self, databases: &[u32], args: &Args<'_>, own: u32) -> bool {
        let has = |db| databases.contains(&db);
        match self.action {
            Action::Keyspace(Keyspace::FlushAll) => false,
            Action::Keyspace(Keyspace::SwapDb) => {
                swapped_dbs(args, u32::MAX).map_or(true, |(a, b)| has(a) && has(b))
            }
            Action::ManyKeys(_) => rename::other_db(self, args, own).is_none_or(has),
            _ => true,
        }
    }

    /// Whether one shard is all it needs, with so many arguments.
    #[inline]
    pub fn is_on_one_shard(&self, arguments: usize) -> bool {
        match self.action {
            Action::OneKey(_) => true,
            Action::EachKey(_) => arguments == 2,
            _ => false,
        }
    }

    /// Where its first key stands, if it has any.
    #[inline]
    pub fn first_key(&self) -> usize {
        self.keys.first()
    }

    /// Where the arguments stand that are keys.
    pub fn key_positions(&self, args: &Args<'_>) -> impl ExactSizeIterator<Item = usize> + Clone + use<> {
        self.keys.positions(args)
    }

    /// The arguments that are keys.
    pub fn key_arguments<'a>(
        &self,
        args: &Args<'a>,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let args = *args;
        self.key_positions(&args).map(move |at| args.get(at))
    }
}
