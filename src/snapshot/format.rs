//! How the strings of a snapshot look: encoding and decoding, without any keyspace.
//!
//! ```text
//! frame         kind 1 │ body │ xxh3_64 of kind and body 8
//!   header      fields: 0x01 databases needed (varint), 0x02 the writer's master may have changed
//!               the keys without its knowledge (empty), 0x82 version of the writer (text),
//!               0x83 number of keys (varint, for progress alone)
//!   entries     database varint │ entries
//!   large entry database varint │ entry head │ value length varint │ xxh3_64 of the value 8;
//!               the next string is the value, as it is
//!   begun text  the next bytes of a text of records whose last part was not logged yet
//!   end         fields: 0x01 frames before this one, 0x02 keys, 0x03 keys with an expiry,
//!               0x04 bytes of keys and values (all varints)
//! entry         entry head │ value length varint │ value
//!   entry head  type 1 │ length of the fields varint │ fields │ key length varint │ key
//!     type      0: string, 1: hash, 2: the first fields of a hash, 3: more of them; the frames of
//!               one hash may be loaded in any order
//!     value of a hash: for each field 2 × its length, + 1 if it expires, varint │ field │
//!               0 or expiry 8 │ length varint │ its value
//!   fields      0x01 expiry (Unix milliseconds, i64), 0x02 the flags of a memcached item (u32),
//!               0x03 its marks (bits; 1: stale, 2: won), 0x82 origin (1: edited, 2: computed);
//!               kept free: 0x83 recency
//! field         tag 1 │ length varint │ content
//! ```
//!
//! The first frame is the header, the last the end. The keys of an entries frame are all in one
//! database. Numbers of a fixed size are little-endian. A varint has seven bits in each byte, the
//! lowest first; the top bit says that more follow; it has no more bytes than it needs. Fields are
//! in ascending order of their tags.
//!
//! A kind, type or tag with the top bit set may be skipped by a reader that does not know it; any
//! other must be understood. Skipped parts are counted like the rest.

mod hash;

use xxhash_rust::xxh3::xxh3_64;

use super::error::Fault;
use super::numbers::{
    BEGUN_HASH, BEGUN_TEXT, BYTES, DATABASES, DISTRUSTED, END, EXPECTED_KEYS, EXPIRING, EXPIRY,
    FLAGS, FRAMES, HASH, HEADER, KEYS, LARGE_ENTRY, MARKS, MAY_SKIP, MORE_OF_HASH, ORIGIN, STRING,
    WRITER,
};
use crate::store::{Origin, Traits, UnixMs};
pub(super) use hash::{fields_of_hash, put_field_of_hash};

const SUM_BYTES: usize = size_of::<u64>();

/// The marks of a memcached item.
const STALE: u8 = 1;
const WON: u8 = 2;

/// What was counted over a whole snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) keys: u64,
    /// Keys with an expiry.
    pub(super) expiring: u64,
    /// Bytes of keys and values.
    pub(super) bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.bytes += other.bytes;
    }
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The highest database with keys, and one.
    pub(super) databases: u64,
    /// The writer is a replica whose master may have changed keys without its knowledge.
    pub(super) distrusted: bool,
    /// About how many keys follow.
    pub(super) keys: u64,
}

/// What stands behind the head of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A string.
    String,
    /// A hash.
    Hash,
    /// The first fields of a hash.
    BegunHash,
    /// Some of the others.
    MoreOfHash,
    /// A type that is not known, and may be skipped.
    Unknown,
}

impl Content {
    pub(super) fn number(self) -> u8 {
        match self {
            Content::String => STRING,
            Content::Hash => HASH,
            Content::BegunHash => BEGUN_HASH,
            Content::MoreOfHash => MORE_OF_HASH,
            Content::Unknown => MAY_SKIP,
        }
    }

    fn of(number: u8) -> Result<Self, Fault> {
        match number {
            STRING => Ok(Content::String),
            HASH => Ok(Content::Hash),
            BEGUN_HASH => Ok(Content::BegunHash),
            MORE_OF_HASH => Ok(Content::MoreOfHash),
            number if may_skip(number) => Ok(Content::Unknown),
            number => Err(Fault::UnknownType(number)),
        }
    }
}

/// A key with all but its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHead<'a> {
    pub(super) key: &'a [u8],
    pub(super) expire_at: Option<UnixMs>,
    pub(super) traits: Traits,
    pub(super) content: Content,
}

impl EntryHead<'_> {
    /// What it counts as, with its value.
    pub(super) fn tally(&self, value_bytes: usize) -> Tally {
        let is_new = self.content != Content::MoreOfHash;
        Tally {
            keys: is_new.into(),
            expiring: (is_new && self.expire_at.is_some()).into(),
            bytes: (self.key.len() + value_bytes) as u64,
        }
    }
}

/// The checksum of a frame or value.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Ends a frame with its checksum.
pub(super) fn seal(frame: &mut Vec<u8>) {
    let sum = checksum(frame);
    frame.extend_from_slice(&sum.to_le_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_field(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    put_bytes(out, content);
}

fn put_number_field(out: &mut Vec<u8>, tag: u8, number: u64) {
    let mut content = Vec::new();
    put_varint(&mut content, number);
    put_field(out, tag, &content);
}

/// The header.
pub(super) fn header(header: Header) -> Vec<u8> {
    let mut out = vec![HEADER];
    put_number_field(&mut out, DATABASES, header.databases);
    if header.distrusted {
        put_field(&mut out, DISTRUSTED, &[]);
    }
    put_field(&mut out, WRITER, env!("CARGO_PKG_VERSION").as_bytes());
    put_number_field(&mut out, EXPECTED_KEYS, header.keys);
    seal(&mut out);
    out
}

/// The end.
pub(super) fn end(frames: u64, tally: Tally) -> Vec<u8> {
    let mut out = vec![END];
    put_number_field(&mut out, FRAMES, frames);
    put_number_field(&mut out, KEYS, tally.keys);
    put_number_field(&mut out, EXPIRING, tally.expiring);
    put_number_field(&mut out, BYTES, tally.bytes);
    seal(&mut out);
    out
}

/// Begins a frame with keys of a database. The buffer is empty.
pub(super) fn begin(frame: &mut Vec<u8>, kind: u8, db: u32) {
    frame.push(kind);
    put_varint(frame, db.into());
}

fn put_head(out: &mut Vec<u8>, head: &EntryHead<'_>) {
    const EXPIRY_BYTES: usize = 2 + size_of::<UnixMs>();
    const ORIGIN_BYTES: usize = 3;
    const FLAGS_BYTES: usize = 2 + size_of::<u32>();
    const MARKS_BYTES: usize = 3;
    let Traits { flags, stale, won, .. } = head.traits;
    let marks = if stale { STALE } else { 0 } | if won { WON } else { 0 };
    let origin = match head.traits.origin {
        Origin::Given => 0,
        Origin::Edited => 1,
        Origin::Computed => 2,
    };
    let mut fields = 0;
    fields += if head.expire_at.is_some() { EXPIRY_BYTES } else { 0 };
    fields += if flags != 0 { FLAGS_BYTES } else { 0 };
    fields += if marks != 0 { MARKS_BYTES } else { 0 };
    fields += if origin != 0 { ORIGIN_BYTES } else { 0 };
    out.push(head.content.number());
    put_varint(out, fields as u64);
    if let Some(at) = head.expire_at {
        put_field(out, EXPIRY, &at.to_le_bytes());
    }
    if flags != 0 {
        put_field(out, FLAGS, &flags.to_le_bytes());
    }
    if marks != 0 {
        put_field(out, MARKS, &[marks]);
    }
    if origin != 0 {
        put_field(out, ORIGIN, &[origin]);
    }
    put_bytes(out, head.key);
}

/// Adds a key with its value to an entries frame.
pub(super) fn put_entry(frame: &mut Vec<u8>, head: &EntryHead<'_>, value: &[u8]) {
    put_head(frame, head);
    put_bytes(frame, value);
}

/// The frame of a key whose value is the next string.
pub(super) fn large_entry(db: u32, head: &EntryHead<'_>, value: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    begin(&mut frame, LARGE_ENTRY, db);
    put_head(&mut frame, head);
    put_varint(&mut frame, value.len() as u64);
    frame.extend_from_slice(&checksum(value).to_le_bytes());
    seal(&mut frame);
    frame
}

/// A frame of a text of records that was begun.
pub(super) fn begun_text(bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(1 + bytes.len() + SUM_BYTES);
    frame.push(BEGUN_TEXT);
    frame.extend_from_slice(bytes);
    seal(&mut frame);
    frame
}

/// The kind and body of a frame whose checksum is right.
pub(super) fn open(frame: &[u8]) -> Result<(u8, &[u8]), Fault> {
    let (rest, sum) = frame.split_last_chunk::<SUM_BYTES>().ok_or(Fault::Short)?;
    let (&kind, body) = rest.split_first().ok_or(Fault::Short)?;
    if checksum(rest) != u64::from_le_bytes(*sum) {
        return Err(Fault::Checksum);
    }
    Ok((kind, body))
}

/// Whether frames of this unknown kind may be skipped.
pub(super) fn may_skip(number: u8) -> bool {
    number & MAY_SKIP != 0
}

/// What is left of a body.
#[derive(Clone, Copy)]
pub(super) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Body(bytes)
    }

    /// The last `left` bytes of the body of a frame that was opened before.
    pub(super) fn rest(frame: &'a [u8], left: usize) -> Self {
        let end = frame.len().saturating_sub(SUM_BYTES);
        Body(&frame[end.saturating_sub(left)..end])
    }

    /// The address of its first byte, for prefetching.
    pub(super) fn start(&self) -> *const u8 {
        self.0.as_ptr()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        let (&byte, rest) = self.0.split_first().ok_or(Fault::Cut)?;
        self.0 = rest;
        Ok(byte)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Fault> {
        let byte = self.byte()?;
        if byte < 0x80 { Ok(byte.into()) } else { self.long_varint(byte) }
    }

    fn long_varint(&mut self, first: u8) -> Result<u64, Fault> {
        let mut number = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // Bits beyond the 64th, and zeros that a shorter form would not have.
                let fits = shift < 63 || byte == 1;
                return if byte != 0 && fits { Ok(number) } else { Err(Fault::Number) };
            }
        }
        Err(Fault::Number)
    }

    #[inline]
    fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(self.varint()?).map_err(|_| Fault::Cut)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Fault::Cut)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn sum(&mut self) -> Result<u64, Fault> {
        let (sum, rest) = self.0.split_first_chunk::<SUM_BYTES>().ok_or(Fault::Cut)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*sum))
    }

    /// Calls `field` with the tag and content of each field, to the end.
    fn fields(
        mut self,
        mut field: impl FnMut(u8, &'a [u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut last = None;
        while !self.is_empty() {
            let tag = self.byte()?;
            if last.is_some_and(|last| last >= tag) {
                return Err(Fault::FieldOrder(tag));
            }
            last = Some(tag);
            field(tag, self.bytes()?)?;
        }
        Ok(())
    }

    #[inline]
    fn head(&mut self) -> Result<EntryHead<'a>, Fault> {
        let content = Content::of(self.byte()?)?;
        let fields = self.bytes()?;
        let mut head = EntryHead { key: &[], expire_at: None, traits: Traits::default(), content };
        if !fields.is_empty() {
            Body(fields).fields(|tag, content| head.set(tag, content))?;
        }
        head.key = self.bytes()?;
        if u32::try_from(head.key.len()).is_err() {
            return Err(Fault::TooLong);
        }
        Ok(head)
    }

    /// The next entry of an entries frame: its head and its value.
    #[inline]
    pub(super) fn entry(&mut self) -> Result<(EntryHead<'a>, &'a [u8]), Fault> {
        Ok((self.head()?, self.bytes()?))
    }

    /// The database of a frame with keys, of this many.
    pub(super) fn database(&mut self, databases: u32) -> Result<u32, Fault> {
        let db = self.varint()?;
        match u32::try_from(db) {
            Ok(number) if number < databases => Ok(number),
            _ => Err(Fault::Database(db)),
        }
    }

    /// The rest of a large entry, whose value is given; checks the value.
    pub(super) fn large_entry(mut self, value: &[u8]) -> Result<EntryHead<'a>, Fault> {
        let head = self.head()?;
        let (said, sum) = (self.varint()?, self.sum()?);
        if !self.is_empty() {
            return Err(Fault::Trailing);
        }
        if said != value.len() as u64 {
            return Err(Fault::ValueLength { said, found: value.len() as u64 });
        }
        if sum != checksum(value) {
            return Err(Fault::ValueChecksum);
        }
        Ok(head)
    }
}

impl EntryHead<'_> {
    fn set(&mut self, tag: u8, content: &[u8]) -> Result<(), Fault> {
        match tag {
            EXPIRY => {
                let at = content.try_into().map(UnixMs::from_le_bytes);
                // The store's mark for no expiry, which nothing can be set to.
                let at = at.ok().filter(|&at| at != UnixMs::MIN);
                self.expire_at = Some(at.ok_or(Fault::FieldContent(tag))?);
            }
            FLAGS => {
                let flags = content.try_into().map(u32::from_le_bytes);
                self.traits.flags = flags.map_err(|_| Fault::FieldContent(tag))?;
            }
            MARKS => {
                let &[marks @ 1..=3] = content else { return Err(Fault::FieldContent(tag)) };
                (self.traits.stale, self.traits.won) = (marks & STALE != 0, marks & WON != 0);
            }
            ORIGIN => {
                let &[origin] = content else { return Err(Fault::FieldContent(tag)) };
                // Others may come: they are hints.
                self.traits.origin = match origin {
                    1 => Origin::Edited,
                    2 => Origin::Computed,
                    _ => Origin::Given,
                };
            }
            _ => skip_field(tag)?,
        }
        Ok(())
    }
}

fn skip_field(tag: u8) -> Result<(), Fault> {
    if may_skip(tag) { Ok(()) } else { Err(Fault::UnknownField(tag)) }
}

fn number_of(tag: u8, content: &[u8]) -> Result<u64, Fault> {
    let mut content = Body(content);
    let number = content.varint()?;
    if content.is_empty() { Ok(number) } else { Err(Fault::FieldContent(tag)) }
}

/// The content of a header's body.
pub(super) fn read_header(body: &[u8]) -> Result<Header, Fault> {
    let (mut databases, mut distrusted, mut keys) = (None, false, 0);
    Body(body).fields(|tag, content| {
        match tag {
            DATABASES => databases = Some(number_of(tag, content)?),
            DISTRUSTED if content.is_empty() => distrusted = true,
            DISTRUSTED => return Err(Fault::FieldContent(tag)),
            EXPECTED_KEYS => keys = number_of(tag, content)?,
            _ => skip_field(tag)?,
        }
        Ok(())
    })?;
    let databases = databases.ok_or(Fault::MissingField(DATABASES))?;
    Ok(Header { databases, distrusted, keys })
}

/// The content of an end's body: the number of frames before it, and what they have.
pub(super) fn read_end(body: &[u8]) -> Result<(u64, Tally), Fault> {
    let mut counts = [None; 4];
    Body(body).fields(|tag, content| {
        match tag {
            FRAMES..=BYTES => counts[usize::from(tag - FRAMES)] = Some(number_of(tag, content)?),
            _ => skip_field(tag)?,
        }
        Ok(())
    })?;
    let count = |tag: u8| counts[usize::from(tag - FRAMES)].ok_or(Fault::MissingField(tag));
    let tally = Tally { keys: count(KEYS)?, expiring: count(EXPIRING)?, bytes: count(BYTES)? };
    Ok((count(FRAMES)?, tally))
}
