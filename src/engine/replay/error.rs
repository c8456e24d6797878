//! Why a record, or a text of records, cannot be replayed.

use std::fmt;

use crate::command::record::{CannotApply, RecordError};

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
    /// Its key has a value of another type.
    Type,
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
            ReplayError::Type => {
                write!(out, "a record for a value of another type than its key has")
            }
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
            CannotApply::Type => ReplayError::Type,
        }
    }
}

/// Why a text of records cannot be replayed, in one plain line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextError {
    /// It cannot be read.
    Record(RecordError),
    /// One of its records cannot be replayed here.
    Replay {
        /// Why.
        error: ReplayError,
        /// Where the record begins, in bytes from the beginning of the text.
        offset: usize,
    },
    /// A panic.
    Internal,
}

impl From<RecordError> for TextError {
    fn from(error: RecordError) -> Self {
        TextError::Record(error)
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Record(error) => write!(out, "{error}"),
            TextError::Replay { error, offset } => write!(out, "{error}, at byte {offset}"),
            TextError::Internal => write!(out, "internal error"),
        }
    }
}

impl std::error::Error for TextError {}
