//! What the host is given for its log.

use std::borrow::Cow;

use crate::command::record::{RecordText, header, select};

/// Something for the host's log.
#[derive(Clone, Copy)]
pub enum Logged<'a> {
    /// The one record, without what a text begins with, of what the holder of the global lock has
    /// just done to keys of this database.
    Record {
        /// The database.
        db: u32,
        /// The record.
        text: &'a RecordText,
        /// The version of a text that can hold it.
        version: u32,
    },
    /// A text of records, as MIDI.JOURNAL takes it.
    Text {
        /// The text.
        text: &'a RecordText,
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
            Logged::Text { text, .. } => text.bytes(),
            Logged::Record { db, text, version } => {
                let mut whole = Vec::with_capacity(HEAD_BYTES + text.len());
                header(version, &mut whole);
                select(db, &mut whole);
                text.write(&mut whole);
                Cow::Owned(whole)
            }
        }
    }
}

/// The most that a text begins with, in bytes.
const HEAD_BYTES: usize = 64;
