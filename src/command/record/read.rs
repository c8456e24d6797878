//! Reading records.

use arrayvec::ArrayVec;

use super::super::{logged_name, parse_integer};
use super::error::Flaw;
use super::{PART_VERSION, Pieces, RECORD_VERSION, Record, RecordError, Words, traits};
use crate::limits::MAX_STRING_BYTES;
use crate::store::{Traits, UnixMs};

/// The most arguments of a record, its name included.
const ARGUMENTS: usize = 6;

/// The most digits of a length in a text.
const LENGTH_DIGITS: usize = 10;

/// The first words of a record.
type FirstWords<'a> = ArrayVec<&'a [u8], ARGUMENTS>;

/// A place between two records of a text.
#[derive(Clone, Copy, Debug)]
pub struct RecordsPosition {
    /// Where the next record begins.
    at: usize,
    version: u32,
    has_db: bool,
    in_multi: bool,
    ended: bool,
}

impl RecordsPosition {
    /// How many bytes of the text are before it.
    pub fn offset(self) -> usize {
        self.at
    }
}

/// The records of a text, in order. After an error there are no more.
pub struct Records<'a> {
    text: &'a [u8],
    now: RecordsPosition,
}

impl<'a> Records<'a> {
    /// Reads what the text begins with.
    ///
    /// # Errors
    /// The text has no version, or that of a newer midi.
    pub fn new(text: &'a [u8]) -> Result<Self, RecordError> {
        let now =
            RecordsPosition { at: 0, version: 1, has_db: false, in_multi: false, ended: false };
        let mut records = Records { text, now };
        match records.read_version() {
            Ok(version) => {
                records.now.version = version;
                Ok(records)
            }
            Err(flaw) => Err(RecordError { offset: 0, flaw }),
        }
    }

    /// The records of a text that has neither a version nor a SELECT: another text is around it.
    pub fn without_head(text: &'a [u8]) -> Self {
        let version = RECORD_VERSION;
        let now = RecordsPosition { at: 0, version, has_db: true, in_multi: false, ended: false };
        Records { text, now }
    }

    /// Goes on with a text at a place that was reached before.
    pub fn go_on(text: &'a [u8], now: RecordsPosition) -> Self {
        Records { text, now }
    }

    /// The version of the text.
    pub fn version(&self) -> u32 {
        self.now.version
    }

    /// The place before the next record.
    #[inline]
    pub fn position(&self) -> RecordsPosition {
        self.now
    }

    fn read_version(&mut self) -> Result<u32, Flaw> {
        let (count, words) = self.words()?;
        match words[..] {
            [b"VERSION", number, ..] => match unsigned(number) {
                Some(PART_VERSION) => Err(Flaw::Part),
                Some(version @ 1..=RECORD_VERSION) if count == 2 => Ok(version),
                Some(1..=RECORD_VERSION) => Err(Flaw::Arguments(logged_name(words[0]))),
                _ => Err(Flaw::Version(logged_name(number))),
            },
            [b"VERSION", ..] => Err(Flaw::Arguments(logged_name(words[0]))),
            _ => Err(Flaw::NoVersion),
        }
    }

    /// A record of any number of words, which begins at `start`.
    #[cold]
    fn long_record(
        &mut self,
        start: usize,
        count: usize,
        words: &FirstWords<'a>,
    ) -> Result<Record<'a>, Flaw> {
        for _ in words.len()..count {
            self.bulk()?;
        }
        let end = std::mem::replace(&mut self.now.at, start);
        self.length(b'*')?;
        self.bulk()?;
        let args = Words::Text(&self.text[self.now.at..end]);
        let record = match words[0] {
            b"BITOP" if count >= 4 => Record::BitOp { args },
            b"SETRANGE" if count >= 4 && count.is_multiple_of(2) => {
                let key = self.bulk()?;
                let pieces = Words::Text(&self.text[self.now.at..end]);
                if !Pieces::are(pieces) {
                    return Err(misfit(words[0], 2));
                }
                Record::SetRanges { key, pieces: Pieces::Words(pieces) }
            }
            b"HSET" if count >= 4 && count.is_multiple_of(2) => {
                let key = self.bulk()?;
                Record::HSet { key, pairs: Words::Text(&self.text[self.now.at..end]) }
            }
            b"HPEXPIREAT" if count >= 4 => {
                let (key, at) = (self.bulk()?, parse_integer(self.bulk()?));
                let at = at.ok_or_else(|| misfit(words[0], self.now.version))?;
                Record::HPexpireAt { key, at, fields: Words::Text(&self.text[self.now.at..end]) }
            }
            b"HPERSIST" if count >= 3 => {
                let key = self.bulk()?;
                Record::HPersist { key, fields: Words::Text(&self.text[self.now.at..end]) }
            }
            b"HDEL" if count >= 3 => {
                let key = self.bulk()?;
                Record::HDel { key, fields: Words::Text(&self.text[self.now.at..end]) }
            }
            name => return Err(misfit(name, self.now.version)),
        };
        if record.version() > self.now.version {
            return Err(misfit(words[0], self.now.version));
        }
        self.now.at = end;
        Ok(record)
    }

    /// The number of words of the next record, which is not 0, and no more of them than any known
    /// record has.
    #[inline]
    fn words(&mut self) -> Result<(usize, FirstWords<'a>), Flaw> {
        let count = self.length(b'*')?;
        if count == 0 {
            return Err(Flaw::NotResp);
        }
        let mut words = FirstWords::new();
        for _ in 0..count.min(ARGUMENTS) {
            words.push(self.bulk()?);
        }
        Ok((count, words))
    }

    fn bulk(&mut self) -> Result<&'a [u8], Flaw> {
        let len = self.length(b'$')?;
        if len > MAX_STRING_BYTES as usize {
            return Err(Flaw::NotResp);
        }
        let rest = &self.text[self.now.at..];
        let (bytes, after) = rest.split_at_checked(len).ok_or(Flaw::Cut)?;
        match after {
            [b'\r', b'\n', ..] => {
                self.now.at += len + 2;
                Ok(bytes)
            }
            [] | [b'\r'] => Err(Flaw::Cut),
            _ => Err(Flaw::NotResp),
        }
    }

    /// Reads a line with a length, behind the sign that says what it is the length of.
    #[inline]
    fn length(&mut self, sign: u8) -> Result<usize, Flaw> {
        let rest = &self.text[self.now.at..];
        match rest.first() {
            Some(&first) if first == sign => {}
            Some(_) => return Err(Flaw::NotResp),
            None => return Err(Flaw::Cut),
        }
        let (mut number, mut at) = (0_usize, 1);
        while let Some(digit @ b'0'..=b'9') = rest.get(at) {
            if at > LENGTH_DIGITS || (at == 2 && number == 0) {
                return Err(Flaw::NotResp);
            }
            number = number * 10 + usize::from(digit - b'0');
            at += 1;
        }
        match rest[at..] {
            [b'\r', b'\n', ..] if at > 1 => {
                self.now.at += at + 2;
                Ok(number)
            }
            [] | [b'\r'] => Err(Flaw::Cut),
            _ => Err(Flaw::NotResp),
        }
    }

    fn record(&mut self) -> Result<Record<'a>, Flaw> {
        let start = self.now.at;
        let (count, words) = self.words()?;
        let record = match parsed(&words) {
            Ok(record) if count <= ARGUMENTS && record.version() <= self.now.version => record,
            _ if self.now.version == 1 => return Err(misfit(words[0], 1)),
            _ => self.long_record(start, count, &words)?,
        };
        match record {
            Record::Select { .. } => self.now.has_db = true,
            Record::Multi if !self.now.in_multi => self.now.in_multi = true,
            Record::Exec if self.now.in_multi => self.now.in_multi = false,
            Record::Multi | Record::Exec => return Err(Flaw::Unpaired),
            _ if !self.now.has_db => return Err(Flaw::NoDatabase),
            _ => {}
        }
        Ok(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.now.ended {
            return None;
        }
        let offset = self.now.at;
        let read = if self.now.at < self.text.len() {
            self.record()
        } else if self.now.in_multi {
            Err(Flaw::Unpaired)
        } else {
            self.now.ended = true;
            return None;
        };
        self.now.ended = read.is_err();
        Some(read.map_err(|flaw| RecordError { offset, flaw }))
    }
}

/// The record that these words stand for; there is at least one.
#[inline]
fn parsed<'a>(words: &[&'a [u8]]) -> Result<Record<'a>, Flaw> {
    let wrong = || misfit(words[0], RECORD_VERSION);
    Ok(match *words {
        [b"SET", key, value, ref options @ ..] => {
            let (expire_at, traits) = what_is_known(options).ok_or_else(wrong)?;
            Record::Set { key, value, expire_at, traits }
        }
        [b"TRAITS", key, ref options @ ..] => {
            let (expire_at, traits) = what_is_known(options).ok_or_else(wrong)?;
            Record::Traits { key, expire_at, traits }
        }
        [b"DEL", key] => Record::Del { key },
        [b"SELECT", db] => Record::Select { db: unsigned(db).ok_or_else(wrong)? },
        [b"MULTI"] => Record::Multi,
        [b"EXEC"] => Record::Exec,
        [b"PEXPIREAT", key, at] => {
            Record::PexpireAt { key, at: parse_integer(at).ok_or_else(wrong)? }
        }
        [b"PERSIST", key] => Record::Persist { key },
        [b"APPEND", key, bytes] => Record::Append { key, bytes },
        [b"SETRANGE", key, offset, bytes] => {
            Record::SetRange { key, offset: unsigned(offset).ok_or_else(wrong)?, bytes }
        }
        [b"RESTORE", key, at, payload, b"REPLACE", b"ABSTTL"] => {
            let at = parse_integer(at).ok_or_else(wrong)?;
            Record::Restore { key, payload, expire_at: (at != 0).then_some(at) }
        }
        [b"RENAME", key, to] => Record::Rename { key, to },
        [b"COPY", key, to, b"DB", db, b"REPLACE"] => {
            Record::Copy { key, to, db: unsigned(db).ok_or_else(wrong)? }
        }
        [b"MOVE", key, db] => Record::Move { key, db: unsigned(db).ok_or_else(wrong)? },
        [b"FLUSHDB"] => Record::FlushDb,
        [b"FLUSHALL"] => Record::FlushAll,
        [b"SWAPDB", a, b] => {
            Record::SwapDb { a: unsigned(a).ok_or_else(wrong)?, b: unsigned(b).ok_or_else(wrong)? }
        }
        _ => return Err(wrong()),
    })
}

/// Why a record of this name cannot be read.
#[cold]
fn misfit(name: &[u8], version: u32) -> Flaw {
    let is_in = |names: &str| names.split(' ').any(|known| known.as_bytes() == name);
    if is_in(NAMES)
        || version > 1 && is_in(NEWER_NAMES)
        || version > 4 && is_in(NAMES_OF_FIELDS)
        || version > 5 && is_in(NAMES_OF_TRAITS)
    {
        Flaw::Arguments(logged_name(name))
    } else {
        Flaw::Unknown(logged_name(name))
    }
}

/// The names of all records, and those that are only in texts from version 2 on.
const NAMES: &str = "SELECT MULTI EXEC SET DEL PEXPIREAT PERSIST APPEND SETRANGE RENAME COPY MOVE \
                     FLUSHDB FLUSHALL SWAPDB";
const NEWER_NAMES: &str = "RESTORE BITOP";

/// The names of those that are only in texts from version 5 on.
const NAMES_OF_FIELDS: &str = "HSET HDEL HPEXPIREAT HPERSIST";

/// Those from version 6 on.
const NAMES_OF_TRAITS: &str = "TRAITS";

/// `[PXAT ms] [traits]`: when a key expires, and what is known of its value.
fn what_is_known(options: &[&[u8]]) -> Option<(Option<UnixMs>, Traits)> {
    let (expire_at, rest) = match options {
        [b"PXAT", at, rest @ ..] => (Some(parse_integer(at)?), rest),
        _ => (None, options),
    };
    let traits = match rest {
        [] => Traits::default(),
        [word] => traits::read(word)?,
        _ => return None,
    };
    Some((expire_at, traits))
}

/// A number that is not negative.
fn unsigned<N: TryFrom<i64>>(text: &[u8]) -> Option<N> {
    parse_integer(text)?.try_into().ok()
}
