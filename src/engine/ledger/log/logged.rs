//! What the host is given for its log.

use std::borrow::Cow;

use crate::command::record::{Record, Records, header, select};
use crate::store::Origin;

/// Something for the host's log.
#[derive(Clone, Copy)]
pub enum Logged<'a> {
    /// The one record, without what a text begins with, of what the holder of the global lock has
    /// just done to keys of this database.
    Record {
        /// The database.
        db: u32,
        /// The record.
        text: &'a [u8],
        /// The version of a text that can hold it.
        version: u32,
    },
    /// A text of records, as MIDI.JOURNAL takes it.
    Text {
        /// The text.
        text: &'a [u8],
        /// Nothing of other threads is in it.
        is_own_only: bool,
    },
}

impl<'a> Logged<'a> {
    /// Whether nothing of other threads is in it.
    pub fn is_own_only(&self) -> bool {
        match self {
            Logged::Record { .. } => true,
            Logged::Text { is_own_only, .. } => *is_own_only,
        }
    }

    /// It as MIDI.JOURNAL takes it.
    pub fn text(&self) -> Cow<'a, [u8]> {
        match *self {
            Logged::Text { text, .. } => Cow::Borrowed(text),
            Logged::Record { db, text, version } => {
                let mut whole = Vec::with_capacity(HEAD_BYTES + text.len());
                header(version, &mut whole);
                select(db, &mut whole);
                whole.extend_from_slice(text);
                Cow::Owned(whole)
            }
        }
    }
}

/// Whether the host has taken something for its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// It has.
    Taken,
    /// It logs nothing that is done here.
    Refused,
}

/// The most that a text begins with, in bytes.
const HEAD_BYTES: usize = 64;

/// The record that this is the text of, if a command of midi's says the same.
pub fn as_command(text: &[u8]) -> Option<Record<'_>> {
    match Records::without_head(text).next()?.ok()? {
        Record::Set { origin, .. } if origin != Origin::Given => None,
        // The command does nothing then, the record changes how the value came about.
        Record::SetRange { bytes: [], .. } => None,
        // No command says so.
        Record::SetRanges { .. } => None,
        record => Some(record),
    }
}
