//! Records: what was done to keys, as the log has it for the AOF and for replicas.
//!
//! A text of records is RESP, so that it can be read by eye and by tools that know the protocol: an
//! array of bulk strings for each record, the first of which is its name in upper case. It begins
//! with `VERSION 1`, or with `VERSION 2`, `4`, `5` or `6` if a record in it needs that. A text of
//! version 3 is a part of a longer one: see `parts`.
//!
//! Records are unconditional: whether a command does anything was decided before they were made.
//! Replaying them looks at no clock.

pub mod aof;
mod apply;
mod error;
mod parts;
mod pieces;
mod read;
mod text;
mod traits;
mod write;

pub use apply::CannotApply;
pub(super) use apply::put_value;
pub use error::RecordError;
pub use parts::{Gathered, PART_VERSION, part_head, part_of_text};
pub use pieces::{Pieces, Words};
pub use read::{Records, RecordsPosition};
pub use text::RecordText;
pub use write::{
    MULTI, are_words_of, header, journal_head, raise_version, select, set_before_value,
    set_behind_value, version_of,
};

use crate::store::{Traits, UnixMs};

/// The newest version of a text of records. Texts up to it can be read.
pub const RECORD_VERSION: u32 = 6;

/// What was done to a key, or to two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// `SELECT db`: the database of the records behind it.
    Select {
        /// Its number.
        db: u32,
    },
    /// `MULTI`: the records up to EXEC take effect together.
    Multi,
    /// `EXEC`.
    Exec,
    /// `SET key value [PXAT ms] [traits]`: all that there is to know of a key. The traits are one
    /// word, such as `EDITED`; with those of memcached, such as `EDITED,FLAGS=5,STALE,WON`, since
    /// version 4.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires, also in the past; `None` for never.
        expire_at: Option<UnixMs>,
        /// What is known of the value; not in the text if that is nothing.
        traits: Traits,
    },
    /// `DEL key`.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// `PEXPIREAT key ms`.
    PexpireAt {
        /// The key.
        key: &'a [u8],
        /// When it expires, also in the past.
        at: UnixMs,
    },
    /// `PERSIST key`: it does not expire any more.
    Persist {
        /// The key.
        key: &'a [u8],
    },
    /// `TRAITS key [PXAT ms] [traits]`: all that there is to know of a key but its value, as in
    /// SET. Since version 6.
    Traits {
        /// The key.
        key: &'a [u8],
        /// When it expires, also in the past; `None` for never.
        expire_at: Option<UnixMs>,
        /// What is known of the value; not in the text if that is nothing.
        traits: Traits,
    },
    /// `APPEND key bytes`: a missing key is created.
    Append {
        /// The key.
        key: &'a [u8],
        /// What its value is extended with.
        bytes: &'a [u8],
    },
    /// `SETRANGE key offset bytes`: a missing key is created, a short value padded with zeros.
    SetRange {
        /// The key.
        key: &'a [u8],
        /// Where the bytes begin, in bytes.
        offset: u32,
        /// What is written there.
        bytes: &'a [u8],
    },
    /// `SETRANGE key offset bytes offset bytes …`, as several of these. Since version 2.
    SetRanges {
        /// The key.
        key: &'a [u8],
        /// What is written, and where.
        pieces: Pieces<'a>,
    },
    /// `RESTORE key ms payload REPLACE ABSTTL`: a value that is much shorter when it is packed; 0
    /// ms if it does not expire. Since version 2.
    Restore {
        /// The key.
        key: &'a [u8],
        /// What DUMP returns for the value.
        payload: &'a [u8],
        /// When it expires, also in the past; `None` for never.
        expire_at: Option<UnixMs>,
    },
    /// `BITOP operation key key …`: as the command. Since version 2.
    BitOp {
        /// The command's arguments: the operation, the key of the result, the others.
        args: Words<'a>,
    },
    /// `RENAME key newkey`, in place of any other key of that name.
    Rename {
        /// The key.
        key: &'a [u8],
        /// Its new name.
        to: &'a [u8],
    },
    /// `COPY key newkey DB db REPLACE`, in place of any other key of that name.
    Copy {
        /// The key.
        key: &'a [u8],
        /// The name of the copy.
        to: &'a [u8],
        /// The database of the copy.
        db: u32,
    },
    /// `HSET key field value …`: fields of a hash, without an expiry; a missing key is created.
    /// Since version 5.
    HSet {
        /// The key.
        key: &'a [u8],
        /// A field and its value in turn.
        pairs: Words<'a>,
    },
    /// `HDEL key field …`: the key is removed with its last field. Since version 5.
    HDel {
        /// The key.
        key: &'a [u8],
        /// The fields.
        fields: Words<'a>,
    },
    /// `HPEXPIREAT key ms field …`: fields that are there get this expiry. Since version 5.
    HPexpireAt {
        /// The key.
        key: &'a [u8],
        /// When they expire, also in the past.
        at: UnixMs,
        /// The fields.
        fields: Words<'a>,
    },
    /// `HPERSIST key field …`: fields do not expire any more. Since version 5.
    HPersist {
        /// The key.
        key: &'a [u8],
        /// The fields.
        fields: Words<'a>,
    },
    /// `FLUSHDB`: the database loses all its keys.
    FlushDb,
    /// `FLUSHALL`: all databases do.
    FlushAll,
    /// `SWAPDB a b`: two databases are exchanged.
    SwapDb {
        /// One of them.
        a: u32,
        /// The other.
        b: u32,
    },
    /// `MOVE key db`, in place of any key of the same name there.
    Move {
        /// The key.
        key: &'a [u8],
        /// Its new database.
        db: u32,
    },
}

impl<'a> Record<'a> {
    /// Its first key, if it is about one or two.
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Record::Set { key, .. }
            | Record::SetRanges { key, .. }
            | Record::Restore { key, .. }
            | Record::HSet { key, .. }
            | Record::HDel { key, .. }
            | Record::HPexpireAt { key, .. }
            | Record::HPersist { key, .. }
            | Record::Del { key }
            | Record::PexpireAt { key, .. }
            | Record::Persist { key }
            | Record::Traits { key, .. }
            | Record::Append { key, .. }
            | Record::SetRange { key, .. }
            | Record::Rename { key, .. }
            | Record::Copy { key, .. }
            | Record::Move { key, .. } => Some(key),
            Record::Select { .. }
            | Record::Multi
            | Record::Exec
            | Record::BitOp { .. }
            | Record::FlushDb
            | Record::FlushAll
            | Record::SwapDb { .. } => None,
        }
    }

    /// The oldest version of a text that it may stand in.
    #[inline]
    pub fn version(&self) -> u32 {
        match self {
            Record::Traits { .. } => 6,
            Record::HSet { .. }
            | Record::HDel { .. }
            | Record::HPexpireAt { .. }
            | Record::HPersist { .. } => 5,
            Record::Set { traits, .. } if !traits.are_logged_plain() => 4,
            Record::SetRanges { .. } | Record::Restore { .. } | Record::BitOp { .. } => 2,
            _ => 1,
        }
    }
}
