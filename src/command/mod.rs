//! The commands: one table of their names, their arguments, and what they do to a store. Every door
//! registers, routes and documents commands from it.
//!
//! A command gets its arguments, the tables that it may touch, the time, and a [`Reply`]. It knows
//! neither the door that it came through nor the thread that it runs on.

mod action;
mod all_keys;
mod args;
pub mod base64;
mod bitfield;
mod bitmap;
mod bits;
mod connection;
mod counter;
mod digest;
mod docs;
mod dump;
mod error;
mod event;
mod extended;
mod get;
pub mod glob;
mod hash;
mod import;
mod increx;
mod item;
mod journal;
mod key;
mod keys;
mod keyspace_digest;
mod lcs;
mod lzf;
mod object;
mod payload;
mod populate;
mod pubsub;
mod pushed;
mod quoted;
mod range;
mod read_key;
pub mod record;
mod rename;
mod reply;
mod rights;
mod row;
mod scripting;
mod server;
mod set;
pub mod slot;
mod slow_log;
mod spec;
mod string;
mod table;

pub use action::{
    Action, ClientCommand, Describe, DoorCommand, InMulti, OnAllKeys, OnEachKey, OnManyKeys,
    PortCommand, PubSubQuestion, Run, Scripting, SubscriptionKind,
};
pub use all_keys::{ScanArgs, flush_waits, key_pattern, swapped_dbs};
pub use args::{Args, Keep, OwnedArgs, parse_integer};
pub use docs::{Arg, ArgKind, Docs};
pub use dump::{Dumped, dump_as_valkey, payload_of_hash, unpacked_hash};
pub use error::{Error, IncrexNumber};
pub use event::{Class, Event, Events};
pub use get::getex_checks_first;
pub use hash::FieldParts;
pub use import::ImportArgs;
pub use item::{
    KNOWN_ONLY, MetaCommand, MetaFlags, draw_new_base, draw_number, expires_at, signed_32,
    unsigned_32, unsigned_64,
};
pub use keys::{Access, Keys};
pub use keyspace_digest::digested_db;
pub use lcs::{Lcs, LcsOptions};
pub use payload::{
    HashWriter, NumberText, PackedHash, PayloadField, PayloadText, Restored, WrittenHash,
    read_payload,
};
pub use populate::PopulateArgs;
pub use pubsub::NamedChannels;
pub use pushed::{HostPush, NotPushed, read_pushed};
pub use quoted::{
    HostCommand, elsewhere, error_about, logged_name, not_for_scripts, replace_line_ends,
    unknown_command,
};
pub use read_key::ReadKey;
pub use reply::{Reply, Transcript};
pub use rights::{QUESTIONS, Question, question, questions, subcommand_numbers};
pub use row::{Command, Doors, Flags, LoggedAs, Long, LongKeys, LooksUp, OtherDbs, Walk, WalkStep};
pub use slow_log::{SlowLogQuestion, slow_log_help};
pub use spec::{FindKeys, KeySpec, SINCE};
pub use string::{Copied, LEAST_ELEMENT_BYTES};
pub(crate) use table::rows_of_host;
pub use table::{
    COMMANDS, FoundCommand, Named, PREFIX, find, find_call, host_commands, is_withdrawn, number_of,
    subcommands, withdraw,
};

use docs::{arg, docs, word};
use keys::ByOptions;
use read_key::ReadsKey;
use row::{Subcommands, has_many_keys};
use spec::tips;

use crate::limits::{LONG_READ_FIELDS, MGET_BYTES_AT_ONCE, TOUCHED_PER_REPLIED};
use crate::store::{Edit, EntryRef, Now};

/// The limits of a command. All are settings; see `limits.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest pattern of KEYS, SCAN, IMPORT and EXPORT, in bytes.
    pub max_pattern_bytes: usize,
    /// Longest key, in bytes.
    pub max_key_bytes: usize,
    /// Longest value, in bytes.
    pub max_value_bytes: usize,
    /// Values of this size and above stay in the door's buffer instead of being copied.
    pub keep_bytes: usize,
    /// Maximum number of keys of a command that is atomic over all of them.
    pub max_atomic_keys: usize,
    /// Largest reply that may be made on this thread, in bytes.
    pub max_reply_bytes: usize,
    /// Maximum bytes of values that may be copied in one go while several shards are held; more is
    /// long work. No limit if a command must run to its end: see [`Limits::may_be_job`].
    pub max_bytes_at_once: usize,
    /// OBJECT ENCODING calls a hash with more fields a hash table.
    pub listpack_entries: usize,
    /// So it does a hash with a longer field or value, in bytes.
    pub listpack_value: usize,
    /// OBJECT FREQ answers: the eviction policy goes by how often keys are used.
    pub counts_uses: bool,
}

impl Limits {
    /// None: the log repeats writes that were within the limits once.
    pub const NONE: Limits = Limits {
        max_pattern_bytes: usize::MAX,
        max_key_bytes: usize::MAX,
        max_value_bytes: usize::MAX,
        keep_bytes: usize::MAX,
        max_atomic_keys: usize::MAX,
        max_reply_bytes: usize::MAX,
        max_bytes_at_once: usize::MAX,
        listpack_entries: usize::MAX,
        listpack_value: usize::MAX,
        counts_uses: false,
    };

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

    /// The limits of a command outside of any transaction or script: it can become a job.
    pub fn alone(self) -> Self {
        Limits { max_bytes_at_once: MGET_BYTES_AT_ONCE, ..self }
    }

    /// The limits of a command that must run to its end in one go.
    pub fn in_one_go(self) -> Self {
        Limits { max_bytes_at_once: usize::MAX, ..self }
    }

    /// Whether a command that turns out to be long work can become a job.
    pub fn may_be_job(&self) -> bool {
        self.max_bytes_at_once != usize::MAX
    }

    /// Whether this thread limits the size of a reply.
    pub fn has_reply_limit(&self) -> bool {
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

    /// Whether to read all fields of a hash of this size is long work that can become a job.
    #[inline]
    fn is_long_read(&self, fields: usize, bytes: impl FnOnce() -> usize) -> bool {
        self.may_be_job() && (fields > LONG_READ_FIELDS || bytes() > self.max_bytes_at_once)
    }

    /// Refuses to touch more bytes of values than this thread may, as [`Limits::reply`] refuses to
    /// return them.
    #[inline]
    fn touch(&self, bytes: usize) -> Result<(), Error> {
        self.reply(bytes / TOUCHED_PER_REPLIED)
    }
}

/// What a command that changes one key works with.
pub struct OneKey<'a> {
    /// The key, in the client's database.
    pub key: Edit<'a>,
    /// All arguments.
    pub args: Args<'a>,
    /// The limits that apply.
    pub limits: &'a Limits,
    /// The events to notify listeners of.
    pub events: &'a mut Events,
}

impl OneKey<'_> {
    /// Notes a change of the key.
    #[inline]
    fn tell(&mut self, event: Event) {
        self.events.note(0, event);
    }

    /// Removes the key. False if it did not exist.
    fn delete(&mut self) -> bool {
        let removed = self.key.remove();
        if removed {
            self.tell(Event::DEL);
        }
        removed
    }
}

/// Several keys, whose shards are all held. A key is named by its number among the command's keys.
pub trait HeldKeys {
    /// Reads a key of the client's database; `None` if it does not exist.
    fn read(&self, key: usize) -> Option<EntryRef<'_>>;
    /// Opens a key of any database for a change.
    fn edit(&mut self, key: usize, db: u32) -> Edit<'_>;
}

/// Which databases the host has as a node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// The host is not a node of a cluster.
    Off,
    /// The cluster has database 0 only.
    OneDatabase,
    /// The cluster has several databases; SWAPDB is refused.
    ManyDatabases,
}

/// What a command on several keys works with.
pub struct ManyKeys<'a> {
    /// All arguments.
    pub args: Args<'a>,
    /// The keys.
    pub keys: &'a mut dyn HeldKeys,
    /// The client's database.
    pub db: u32,
    /// How many databases there are.
    pub databases: u32,
    /// Whether databases other than the client's may be touched.
    pub cluster: Cluster,
    /// The time at which the command runs.
    pub now: &'a Now,
    /// The limits that apply.
    pub limits: &'a Limits,
    /// The events to notify listeners of.
    pub events: &'a mut Events,
}

impl ManyKeys<'_> {
    /// Opens key number `key` of the client's database for a change.
    fn edit(&mut self, key: usize) -> Edit<'_> {
        self.keys.edit(key, self.db)
    }

    /// Notes a change of key number `key`.
    #[inline]
    fn tell(&mut self, key: usize, event: Event) {
        self.events.note(key, event);
    }
}
