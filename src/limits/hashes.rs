//! The bounds of hashes.

/// A hash with more fields than this becomes a table of its own.
pub const SMALL_HASH_FIELDS: usize = 512;

/// So does one whose block would be longer than this, in bytes: each change writes a new one.
pub const SMALL_HASH_BYTES: usize = 4096;

/// So does one that gets a field or value longer than this, in bytes. The block has one byte for a
/// length.
pub const SMALL_HASH_ELEMENT_BYTES: usize = 255;

/// A hash with no more fields than this is freed at once, by whoever drops it.
pub const FREED_AT_ONCE_FIELDS: usize = 256;

/// Reading all fields of a hash with more of them (HGETALL, DUMP and the like) is a job: so many
/// take some 50 µs, as long as a slice of one.
pub const LONG_READ_FIELDS: usize = 1000;

/// MIDI.EXPORT reads a hash that takes more memory than this a few fields at a time, in bytes.
pub const EXPORTED_AT_ONCE_BYTES: usize = 64 << 10;

/// DUMP and EXPORT get memory for so many bytes before they take the shard: a slice of 50 µs packs
/// less.
pub const DUMPED_AT_ONCE_BYTES: usize = 256 << 10;

/// HSCAN looks at about this many fields in a call, whatever its COUNT: so many take about a
/// millisecond, on the main thread, too.
pub const SCANNED_FIELDS: usize = 10_000;

/// About how many bytes of a whole hash are in one record of the log.
pub const HASH_RECORD_BYTES: usize = 64 << 10;

/// KEYSPACEDIGEST hashes the fields of a hash with more of them bit by bit, ...
pub const DIGEST_FIELDS: usize = 256;
/// ... and those of one that takes more bytes.
pub const DIGEST_HASH_BYTES: usize = 64 << 10;

/// HGETALL and its like read some 256 fields of a large hash in one go if a field takes no more
/// bytes in the mean, and some eight of them else.
pub const PIN_FIELD_BYTES: i64 = 256;

/// HRANDFIELD draws no more fields than this, with repetition: it does so in one go.
pub const DRAWN_FIELDS: usize = 1_000_000;

/// `midi.hash-max-listpack-entries` and `midi.hash-max-listpack-value`, for hosts that do not
/// report theirs.
pub const LISTPACK_ENTRIES_DEFAULT: i64 = 512;
/// See [`LISTPACK_ENTRIES_DEFAULT`].
pub const LISTPACK_VALUE_DEFAULT: i64 = 64;

/// The same for a hash that has fields with an expiry: each of its fields takes 8 bytes more.
pub const SMALL_TIMED_HASH_FIELDS: usize = 64;

/// The last time at which a field can expire, in milliseconds since 1970: that of Redis.
pub const FIELD_EXPIRY_MAX_MS: i64 = (1 << 46) - 1;

/// The longest packed string of a hash that RESTORE unpacks, in bytes: the hosts let none grow
/// beyond this, though RESTORE of Redis 7.0 takes a longer one.
pub const PACKED_HASH_BYTES: usize = 1 << 30;

/// A hash with a longer field or value is not written as a listpack, in bytes. Behind an element of
/// this length and 6 bytes more Redis writes another length than Valkey 9.1, and either refuses the
/// other's listpack.
pub const LISTPACK_TEXT_BYTES: usize = 16_377;

/// COPY of a large hash copies this many fields in its last step at most, with the shards of both
/// keys held: those that have changed since they were copied. They take some ten microseconds.
pub const COPIED_LAST_FIELDS: usize = 256;
/// That step is tried when so many are left: some may change before both shards are free.
pub const COPIED_BEFORE_LAST_FIELDS: usize = 64;
/// It begins again, or falls back to copying fields, this often: if the key has got another hash
/// meanwhile, or fields change as fast as they are copied. Then it copies all in one go.
pub const COPY_ROUNDS: u8 = 8;
