//! Why a text of records cannot be read.

use std::fmt;

use super::RECORD_VERSION;

/// Why a text of records cannot be read, in one plain line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Where the record begins, in bytes from the beginning of the text.
    pub offset: usize,
    pub(super) flaw: Flaw,
}

/// What is wrong with a record. Names are escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is not an array of bulk strings.
    NotResp,
    /// The text ends in the middle of it.
    Cut,
    /// The text begins with something else than a version.
    NoVersion,
    /// The version is not one that can be read.
    Version(String),
    /// No record has this name.
    Unknown(String),
    /// It has other arguments than a record of that name has.
    Arguments(String),
    /// A record about a key stands before the first SELECT.
    NoDatabase,
    /// It has the version of a part, and is none; or a whole text should be here.
    Part,
    /// A part of a text, but not the one behind the last.
    Gap,
    /// MULTI in MULTI, EXEC without MULTI, or no EXEC.
    Unpaired,
}

impl RecordError {
    /// Whether it is a part of a text that does not follow the part before it.
    pub(super) fn is_gap(&self) -> bool {
        self.flaw == Flaw::Gap
    }

    /// What is wrong, without the place.
    pub fn reason(&self) -> String {
        self.flaw.to_string()
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, at byte {}", self.flaw, self.offset)
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::NotResp => write!(out, "no array of bulk strings"),
            Flaw::Cut => write!(out, "the text ends in the middle of a record"),
            Flaw::NoVersion => write!(out, "the text does not begin with a version"),
            Flaw::Version(version) => write!(
                out,
                "version '{version}', written by a newer midi (this one reads up to version \
                 {RECORD_VERSION})"
            ),
            Flaw::Unknown(name) => {
                write!(out, "unknown record '{name}', perhaps written by a newer midi")
            }
            Flaw::Arguments(name) => write!(out, "wrong arguments of record '{name}'"),
            Flaw::NoDatabase => write!(out, "a record before the first SELECT"),
            Flaw::Part => write!(out, "no part of a text, where its version says so"),
            Flaw::Gap => write!(out, "a part of a text that does not follow the part before it"),
            Flaw::Unpaired => write!(out, "MULTI and EXEC do not match"),
        }
    }
}

impl std::error::Error for RecordError {}
