//! The numbers of the format; `format.rs` says where they stand.

/// The version of the format that is written, and the newest that is read. It grows when an older
/// reader would misunderstand what is written; a new field or kind that a reader must understand
/// (see `format.rs`) needs no new version, as older readers refuse it.
pub const VERSION: i32 = 1;

/// Kinds of frames.
pub(super) const HEADER: u8 = 1;
pub(super) const ENTRIES: u8 = 2;
pub(super) const LARGE_ENTRY: u8 = 3;
pub(super) const END: u8 = 4;
/// An older reader may skip it: it refuses the next part of the text.
pub(super) const BEGUN_TEXT: u8 = 0x85;

/// Set in kinds, types and tags that may be skipped.
pub(super) const MAY_SKIP: u8 = 0x80;

/// The types of what stands behind the head of an entry.
pub(super) const STRING: u8 = 0;
pub(super) const HASH: u8 = 1;
pub(super) const BEGUN_HASH: u8 = 2;
pub(super) const MORE_OF_HASH: u8 = 3;

/// Fields of entries.
pub(super) const EXPIRY: u8 = 0x01;
pub(super) const FLAGS: u8 = 0x02;
pub(super) const MARKS: u8 = 0x03;
pub(super) const ORIGIN: u8 = 0x82;

/// Fields of the header.
pub(super) const DATABASES: u8 = 0x01;
pub(super) const DISTRUSTED: u8 = 0x02;
pub(super) const WRITER: u8 = 0x82;
pub(super) const EXPECTED_KEYS: u8 = 0x83;

/// Fields of the end.
pub(super) const FRAMES: u8 = 0x01;
pub(super) const KEYS: u8 = 0x02;
pub(super) const EXPIRING: u8 = 0x03;
pub(super) const BYTES: u8 = 0x04;

/// The name of a kind of frames.
pub(super) fn kind_name(kind: u8) -> Option<&'static str> {
    match kind {
        HEADER => Some("header"),
        ENTRIES => Some("entries"),
        LARGE_ENTRY => Some("large entry"),
        END => Some("end"),
        BEGUN_TEXT => Some("begun text"),
        _ => None,
    }
}
