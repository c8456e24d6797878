//! What can be wrong with a snapshot, as the log says it.

use std::fmt;

use super::numbers::{VERSION, kind_name};
use crate::command::logged_name;

/// Why a snapshot is refused, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The frame; `None` if it is about the whole section.
    pub place: Option<FramePlace>,
    /// What is wrong.
    pub fault: Fault,
}

/// A frame of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePlace {
    /// Its number, from 1.
    pub number: u64,
    /// Its first byte; `None` if it has none.
    pub kind: Option<u8>,
}

/// What is wrong with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The section has a version that this midi does not know.
    Version(i32),
    /// The section ends before its end frame.
    Ends,
    /// A frame follows the end frame.
    AfterEnd,
    /// The first frame is no header.
    NoHeader,
    /// A header that is not the first frame.
    SecondHeader,
    /// The string is shorter than any frame.
    Short,
    /// The frame is not what was written.
    Checksum,
    /// A kind of frame that must be understood, and is not.
    UnknownKind(u8),
    /// A type of value that must be understood, and is not.
    UnknownType(u8),
    /// A field that must be understood, and is not.
    UnknownField(u8),
    /// A length or number reaches beyond the frame.
    Cut,
    /// There are bytes behind the end of the frame's content.
    Trailing,
    /// A number is not written in its shortest form, or is too large.
    Number,
    /// Fields are not in the order of their tags, or one is there twice.
    FieldOrder(u8),
    /// A field that must be there is not.
    MissingField(u8),
    /// What a field says cannot be.
    FieldContent(u8),
    /// The section has more databases than there are here.
    TooManyDatabases {
        /// As many as the section needs.
        needed: u64,
        /// As many as there are.
        there: u32,
    },
    /// A frame's keys are in a database that the header does not count.
    Database(u64),
    /// A key or frame is too long for this midi.
    TooLong,
    /// A key is in the section twice.
    Duplicate {
        /// Its database.
        db: u32,
        /// Its shard, here.
        shard: u32,
        /// Its name, readable, perhaps cut.
        key: String,
    },
    /// A large value's length differs.
    ValueLength {
        /// What the frame says.
        said: u64,
        /// What there is.
        found: u64,
    },
    /// A large value is not what was written.
    ValueChecksum,
    /// The end frame counts what was not read.
    Count {
        /// What is counted.
        what: &'static str,
        /// What the end frame says.
        said: u64,
        /// What was read.
        found: u64,
    },
    /// A thread failed, which is logged elsewhere.
    Internal,
}

impl Fault {
    pub(super) fn duplicate(db: u32, shard: u32, key: &[u8]) -> Self {
        Fault::Duplicate { db, shard, key: logged_name(key) }
    }

    pub(super) fn at(self, number: u64, kind: Option<u8>) -> LoadError {
        LoadError { place: Some(FramePlace { number, kind }), fault: self }
    }
}

impl From<Fault> for LoadError {
    fn from(fault: Fault) -> Self {
        LoadError { place: None, fault }
    }
}

impl fmt::Display for FramePlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "frame {} (", self.number)?;
        match (self.kind, self.kind.and_then(kind_name)) {
            (_, Some(name)) => write!(out, "{name})"),
            (Some(kind), None) => write!(out, "kind {kind})"),
            (None, None) => write!(out, "empty)"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(out, "{place}: {}", self.fault),
            None => write!(out, "{}", self.fault),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Version(version) if *version > VERSION => write!(
                out,
                "written by a newer midi (section version {version}; this one reads up to \
                 {VERSION})"
            ),
            Fault::Version(version) => write!(out, "section version {version} is unknown"),
            Fault::Ends => out.write_str("the section ends here, before its end frame"),
            Fault::AfterEnd => out.write_str("the section goes on after its end frame"),
            Fault::NoHeader => out.write_str("the first frame is not a header"),
            Fault::SecondHeader => out.write_str("a second header"),
            Fault::Short => out.write_str("too short for a frame"),
            Fault::Checksum => out.write_str("the checksum differs"),
            Fault::UnknownKind(kind) => write!(out, "frames of kind {kind} are unknown here"),
            Fault::UnknownType(number) => write!(out, "values of type {number} are unknown here"),
            Fault::UnknownField(tag) => write!(out, "field {tag} is unknown here"),
            Fault::Cut => out.write_str("a length reaches beyond the frame"),
            Fault::Trailing => out.write_str("bytes behind its content"),
            Fault::Number => out.write_str("a number is malformed"),
            Fault::FieldOrder(tag) => write!(out, "field {tag} is out of order"),
            Fault::MissingField(tag) => write!(out, "field {tag} is missing"),
            Fault::FieldContent(tag) => write!(out, "field {tag} is malformed"),
            Fault::TooManyDatabases { needed, there } => write!(
                out,
                "the section needs {needed} databases, and there are {there}: raise `databases`"
            ),
            Fault::Database(db) => write!(out, "database {db} is beyond what the header says"),
            Fault::TooLong => out.write_str("a key is too long"),
            Fault::Duplicate { db, shard, key } => {
                write!(out, "key \"{key}\" of database {db} is there twice (shard {shard} here)")
            }
            Fault::ValueLength { said, found } => {
                write!(out, "its value has {found} bytes, and should have {said}")
            }
            Fault::ValueChecksum => out.write_str("the checksum of its value differs"),
            Fault::Count { what, said, found } => {
                write!(out, "the section should have {said} {what}, and has {found}")
            }
            Fault::Internal => out.write_str("a thread failed while it loaded keys"),
        }
    }
}

impl std::error::Error for LoadError {}
