//! Why a text of records cannot be replayed.

use std::fmt;

use crate::command::record::RecordError;
use crate::engine::ReplayError;

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
