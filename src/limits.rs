//! Every limit, with its reason. One that users may want to change is a setting, named beside it.

mod descriptors;
mod eviction;
mod hashes;
mod memcached;
mod monitoring;
mod pubsub;
mod rings;
mod scripts;
mod tls;
mod together;
pub use {descriptors::*, eviction::*, hashes::*, memcached::*, monitoring::*};
pub use {pubsub::*, rings::*, scripts::*, tls::*, together::*};

use std::ops::RangeInclusive;
use std::time::Duration;

/// `midi.threads`: 0 means one worker per core.
pub const THREADS: RangeInclusive<i64> = 0..=256;

/// `midi.shards`, a power of two; 0 for as many as the workers need. A shard costs 256 bytes plus
/// its tables, and a flush takes the main thread about 0.2 µs per shard.
pub const SHARDS: RangeInclusive<i64> = 0..=65_536;
/// The least shards that are taken for 0: two threads scale 1.8 × with them, and more bring little.
pub const SHARDS_LEAST: usize = 1024;
/// The shards for each worker. One with a pipeline of writes holds up to [`AHEAD`] of them, so a
/// sixteenth of all are held at most.
pub const SHARDS_PER_WORKER: usize = 16 * AHEAD;

/// `midi.max-jobs`: long commands at once. They take turns, so a thousand of them would slow each
/// other to a crawl.
pub const MAX_JOBS_DEFAULT: i64 = 128;

/// `midi.max-queued-commands`: commands that wait for a shard, of all clients together. A client
/// waits with at most one, so this protects only memory.
pub const MAX_QUEUED_DEFAULT: i64 = 100_000;

/// `midi.max-pattern-bytes`: matching a pattern may cost its length, from the first star or class
/// on, times the key's.
pub const MAX_PATTERN_BYTES_DEFAULT: i64 = 4096;

/// `midi.max-key-bytes` and `midi.max-value-bytes`: Redis's proto-max-bulk-len.
pub const MAX_STRING_BYTES_DEFAULT: i64 = 512 << 20;
/// An argument on a port may be this long, however short keys and values must be: the minimum of
/// Redis's proto-max-bulk-len.
pub const LEAST_ARGUMENT_BYTES: usize = 1 << 20;

/// The maximum of both settings; lengths are kept in 32 bits.
pub const MAX_STRING_BYTES: i64 = (4 << 30) - 1;

/// `midi.keep-bytes`: from this size on the host has the argument in a buffer of its own, and
/// keeping it is cheaper than copying it.
pub const KEEP_BYTES_DEFAULT: i64 = 32 << 10;

/// `midi.max-atomic-keys`: the most keys of a command that is atomic over all of them (MGET, MSET
/// and the like). It holds all their shards in one go, longer than any slice, and all other
/// commands there wait meanwhile.
pub const MAX_ATOMIC_KEYS_DEFAULT: i64 = 10_000;
/// At least 2: RENAME and COPY have two keys.
pub const MAX_ATOMIC_KEYS: RangeInclusive<i64> = 2..=1 << 30;

/// `midi.maxclients`: the host's own default.
pub const MAX_CLIENTS_DEFAULT: i64 = 10_000;

/// `midi.client-query-buffer-limit`: Redis's own default.
pub const QUERY_LIMIT_DEFAULT: i64 = 1 << 30;
/// Redis's own minimum.
pub const QUERY_LIMIT_MIN: i64 = 1 << 20;

/// `midi.output-buffer-hard-limit`: Redis has none for normal clients, so there a client that sends
/// requests and never reads takes all memory. Larger than any reply of two values.
pub const OUTPUT_HARD_DEFAULT: i64 = 1 << 30;

/// At most this much of a reply does not count when the host compares the replies that wait for a
/// client with its `client-output-buffer-limit`: two buffers of 16 KiB. With it midi cuts off no
/// reply that the host would let pass.
pub const HOST_OUTPUT_BESIDE: usize = 32 << 10;

/// Replies above this are written on a worker, never in one go on the main thread: it is the size
/// of a client's reply buffer in the host. Small replies fit into it; large ones would overflow it
/// with an allocation per piece.
pub const MAX_MAIN_REPLY_BYTES: usize = 16 << 10;

/// MGET, MSET and the like with more arguments than this go to a worker without a try on the main
/// thread: a hand-over costs the main thread as much as some twenty to forty keys, and a try that
/// ends with a reply too large for it is wasted work.
pub const MAIN_ARGUMENTS: usize = 64;

/// Bytes that may be copied, compared or hashed on the main thread for each byte that may be
/// replied there: 256 KiB take it some 20 µs, three times the cost of handing a command to a
/// worker.
pub const TOUCHED_PER_REPLIED: usize = 16;

/// From this size on, values that APPEND, SETRANGE, SETBIT, BITFIELD and BITOP make are in a buffer
/// of their own, which can grow; smaller ones are cheap to copy.
pub const GROWING_BYTES: usize = 16 << 10;

/// Such a buffer grows by at least this part of its size, a quarter: it is moved so rarely that an
/// appended byte costs four moved ones on average.
pub const GROWTH_DIVISOR: usize = 4;

/// The bytes in which the log names one more part of a value: parts of a BITFIELD that are no
/// further apart are logged as one.
pub const PART_NAME_BYTES: u32 = 16;

/// The size at which a frame of a snapshot ends: a checksum costs little then, and a thread that
/// loads it has some 700 short keys to do.
pub const SNAPSHOT_FRAME_BYTES: usize = 64 << 10;
/// From this size on, a value is a string of its own in a snapshot, which is not copied.
pub const SNAPSHOT_LARGE_BYTES: usize = 64 << 10;

/// How much of an AOF's base midi writes before it syncs that, as the hosts do with their own part:
/// one fsync of all of it would hold up those of the log beside it.
pub const BASE_SYNCED_EVERY: usize = 4 << 20;

/// Bytes of a snapshot, or of an AOF's records, that have been read and wait for a worker, while it
/// is loaded; a single frame may be larger. A worker that naps, or has others to serve, misses some
/// milliseconds of reading: a few MiB.
pub const LOAD_WAITING_BYTES: usize = 16 << 20;
/// A thread takes this much of them in one go, if there is so much: then it has some 16 short keys
/// for each of 1024 shards.
pub const LOAD_BATCH_BYTES: usize = 2 << 20;
/// The most keys that it puts into a shard before it lets others have it, and looks at the clock.
pub const LOAD_KEYS_AT_ONCE: usize = 32;

/// How long a job may hold a shard, or a worker its turn, in one go.
pub const SLICE: Duration = Duration::from_micros(50);

/// A worker that has run jobs for this long without a pause sleeps for a moment. Otherwise workers
/// that fill every core would keep a woken main thread, or its clients, waiting for the scheduler's
/// next tick (usually 4 ms).
pub const BREATHER_EVERY: Duration = Duration::from_micros(500);
/// The length of that sleep; the kernel makes it about 60 µs.
pub const BREATHER: Duration = Duration::from_micros(10);

/// How long work on the host's keyspace may hold the global lock in one go.
pub const LOCK_SLICE: Duration = Duration::from_micros(200);

/// How long the global lock stays free after such a slice if the main loop has shown no sign of a
/// turn: long enough for a main thread that was woken meanwhile to get a processor and take the
/// lock.
pub const LOCK_PAUSE: Duration = Duration::from_micros(150);

/// After this long without a slice, work on the host's keyspace gets one from the main thread
/// itself: at most a fifth of a busy main loop.
pub const LOCK_STARVING: Duration = Duration::from_millis(1);

/// How many messages of a mailbox a token's holder runs before it leaves the rest to the owner.
pub const PENDING_PER_HOLD: usize = 32;

/// How long a worker runs commands that were left to it, and as long again those that wait for a
/// shard, before it serves its port.
pub const QUEUED_PER_TURN: Duration = Duration::from_millis(1);

/// The most completions that a worker sends to the main thread together: with fewer the main thread
/// would be woken more often, with more it would wait while it could answer.
pub const ANSWERED_TOGETHER: usize = 32;

/// Tries for a held token before the request is queued: some hundred nanoseconds on a worker, about
/// a microsecond on the main thread, where blocking a client costs more.
pub const WORKER_SPINS: u32 = 16;
/// See [`WORKER_SPINS`].
pub const MAIN_SPINS: u32 = 48;

/// Tries of a command on several shards before it goes to the main thread.
pub const MANY_TRIES: u8 = 8;

/// DEL, UNLINK and EXISTS of more keys than this are a job.
pub const KEYS_AT_ONCE: usize = 1000;

/// An MGET that would copy more bytes than this while it holds its keys' shards is a job: the copy
/// takes a millisecond or two, as long as finding the most keys that it may have. As a job it takes
/// two or three times as long if the values are 3 MB together, and just as long from 10 MB on.
pub const MGET_BYTES_AT_ONCE: usize = 4 << 20;
/// This much of each value does not count there: copying it takes no longer than finding the key,
/// and the number of keys has its own limit.
pub const MGET_FREE_BYTES: usize = 1 << 10;
/// Such a job copies this many bytes between two looks at the clock: some microseconds.
pub const MGET_PIECE_BYTES: usize = 16 << 10;
/// It starts this often if a key changes before it was copied, and then copies all keys in one go:
/// a client that writes all the time causes at most three times the work.
pub const MGET_ROUNDS: u8 = 3;
/// With more keys than this, all values are copied in one go: a quarter of the names that can be
/// watched at once, as clients need the others.
pub const MGET_WATCHED: usize = WATCHED_KEYS / 4;

/// LCS of values whose table has more cells than this (255 bytes each, for example) is a job; this
/// many cells take about 10 µs.
pub const LCS_CELLS_AT_ONCE: usize = 1 << 16;

/// KEYSPACEDIGEST hashes values above this size in pieces, and looks at the clock after each. Eight
/// of them, as many keys as a bucket has, take some 20 µs.
pub const DIGEST_PIECE_BYTES: usize = 16 << 10;

/// The most keys that one SCAN visits on the main thread; with a larger COUNT it is a job.
pub const SCAN_AT_ONCE: usize = 1000;

/// RANDOMKEY tries this many shards, and this many buckets of each, before it searches all.
pub const RANDOM_DRAWS: usize = 512;
/// See [`RANDOM_DRAWS`].
pub const RANDOM_BUCKETS: usize = 4;

/// SCAN visits at most this many shards before it answers, however few keys it found.
pub const SCAN_SHARDS: usize = 1024;

/// The most watched names that are remembered: as many as a large host has clients. Beyond it the
/// oldest name is dropped. This many for the host, and this many for clients of the ports, over all
/// shards.
pub const WATCHED_KEYS: usize = 65_536;
/// Bytes of such names for the host, ...
pub const WATCHED_BYTES: usize = 32 << 20;
/// ... where each name's entries in maps and lists count as this many bytes.
pub const WATCHED_NAME_BYTES: usize = 384;
/// This many bytes of names, including those entries, are marked in one turn of the host's main
/// loop before the host is asked whether it executes a WATCH: some forty short names.
pub const WATCHED_AT_ONCE_BYTES: usize = 16 << 10;
/// Beyond that, names wait until the end of the turn, or until they have this many bytes: so few
/// that the host uses the memory of the refused ones again while it is still in the cache.
pub const WATCHED_WAITING_BYTES: usize = 1 << 20;
/// How much of the name of a key that a port's client watches is kept, besides a hash: so their
/// names take at most 16 MiB.
pub const OBSERVED_NAME_BYTES: usize = 248;
/// At least this many in a shard, however many shards there are.
pub const WATCHED_PER_SHARD_MIN: usize = 16;

/// How long a thread that is not the host's main thread tries to take all tokens before it forks. A
/// job's slice keeps one for 50 µs, a command on very many keys for some milliseconds.
pub const FORK_PATIENCE: Duration = Duration::from_millis(20);

/// How many changes of midi's keys are added to the host's count at once. Added one by one, 7 ns
/// each.
pub const CHANGES_AT_ONCE: u64 = 20_000;
/// The same while the host has a replication backlog: each costs 0.3 µs then.
pub const CHANGES_AT_ONCE_WITH_BACKLOG: u64 = 1_000;

/// A MIDI.JOURNAL of an AOF that is shorter than this is replayed by the main thread, if nothing
/// waits for the workers: its some twenty records take less time than waking a worker.
pub const REPLAYED_HERE_BYTES: usize = 2 << 10;

/// The time between two lines in the log about the progress of loading.
pub const LOADING_LOGGED_EVERY: Duration = Duration::from_secs(5);

/// How long a crash of the host waits at most for the workers to end their turns ...
pub const WORKERS_END_IN_CRASH: Duration = Duration::from_secs(2);
/// ... and then, for the last of them to fall asleep.
pub const FALLS_ASLEEP_IN_CRASH: Duration = Duration::from_millis(5);

/// How often a worker looks for keys that are due.
pub const EXPIRY_TICK: Duration = Duration::from_millis(100);

/// The part of a tick that expiry may take, and packing as much: a quarter, as in Redis.
pub const EXPIRY_PER_TICK: Duration = Duration::from_millis(25);

/// How often the users that the ports know are compared with the host's, in case they were changed
/// without a notification.
pub const USERS_NOTICED_EVERY: Duration = Duration::from_secs(1);

/// The most sets of command rules whose evaluation is remembered: many users share one.
pub const JUDGED_RULES_KEPT: usize = 256;

/// The most refusals that wait for the host's ACL LOG: the length of that log. No more than this
/// are reported between two ticks of the host's cron.
pub const REFUSALS_WAITING: usize = 128;
/// How many are reported in one go: each costs the main thread some 2 µs.
pub const REFUSALS_PER_TURN: usize = 16;
/// The longest name in a report; a longer one is cut, which still identifies it.
pub const REFUSED_NAME_BYTES: usize = 1 << 10;

/// Bytes of names of users that ACL commands may have changed, until they are looked up; beyond it
/// all users are looked up, which takes 0.15 µs for each that the ports know.
pub const TOUCHED_NAME_BYTES: usize = 1 << 10;

/// Clients whose queued changes of users are tracked one by one; changes by earlier ones are
/// noticed a moment late.
pub const QUEUED_USER_CHANGES: usize = 256;

/// Clients of the host door of which something is remembered: their rights where midi judges them,
/// on Redis 7.0, and whether they import keys, on Valkey.
pub const DOOR_CLIENTS_KEPT: usize = 16 << 10;

/// The most names of flushed keys that one message to the main thread has, if clients may have
/// cached them: the notifications take some 100 µs. It may be a little more, as a whole segment of
/// the table is added at a time.
pub const FLUSHED_NAMES: usize = 256;
/// The most bytes of names in one such message.
pub const FLUSHED_NAME_BYTES: usize = 64 << 10;

/// How long the main thread may handle what other threads have sent it in one turn of its loop:
/// completions, main-thread tasks and notifications. The host's own clients wait no longer than
/// that for midi's.
pub const MAIN_TURN: Duration = Duration::from_micros(300);

/// Bytes of notifications waiting for the main thread beyond which writes on the ports wait too: a
/// thousand with short keys, which take some milliseconds to publish.
pub const NOTIFICATIONS_MAX_BYTES: usize = 256 << 10;
/// The size of each of them besides its key.
pub const NOTIFICATION_OVERHEAD: usize = 256;

/// A worker that has begun a tail gathers while its connections have more to run, until the tail
/// has this many bytes: some 200 short writes, with what their keys were before. A turn of the main
/// loop costs 15 µs besides the records, and their replies wait for it anyway.
pub const GATHERED_BYTES: usize = 64 << 10;

/// How often the host is asked whether it could write its AOF, while there is something to write:
/// that takes 6 µs of the main thread.
pub const AOF_LOOKED_AT_EVERY: Duration = Duration::from_millis(1);

/// The longest that it gathers.
pub const GATHERED_FOR: Duration = Duration::from_micros(100);

/// Once a run keeps so many bytes of old values, it keeps only the first one of each key: looking
/// that up costs more than small values do. The model of the log gets there, too.
pub const KEPT_ONCE_BYTES: usize = if cfg!(test) { 100 } else { 1 << 20 };

/// The log's text refers to a value of so many bytes instead of copying it: below that, what it
/// takes to share a value costs more than the copy. The model of the log gets there, too.
pub const REFERRED_BYTES: usize = if cfg!(test) { 64 } else { 32 << 10 };

/// About the largest text of records that the main thread gives to the host's log at once, in
/// bytes: writing it takes about a millisecond. A single run may make a larger one.
pub const JOURNAL_TEXT_BYTES: usize = 1 << 20;

/// A text whose first run has more bytes than this is given to the host in parts; at least twice
/// as long as they are. The model of the log has parts, too.
pub const PARTED_BYTES: usize = if cfg!(test) { 110 } else { 8 << 20 };

/// The bytes of a part. One is logged in a turn of the main loop: with `appendfsync always` each
/// waits for an fsync.
pub const TEXT_PART_BYTES: usize = if cfg!(test) { 40 } else { JOURNAL_TEXT_BYTES };

/// While the host's AOF buffer has so many bytes that are not written, the next part of a long text
/// waits: for a tenth of a second at most, if the disk is fast enough.
pub const PARTS_UNWRITTEN_BYTES: usize = 8 << 20;

/// `midi.journal-buffer`: the most bytes of writes, with what their keys were before, that wait for
/// the host's log before writes wait; by default, and within these bounds.
pub const JOURNAL_BUFFER_DEFAULT: i64 = 64 << 20;
/// See [`JOURNAL_BUFFER_DEFAULT`].
pub const JOURNAL_BUFFER_MIN: i64 = 1 << 20;

/// `midi.max-transaction-bytes`: the most that the commands of one transaction, script or function
/// may log and keep. They are logged in one piece, so that is memory which nothing frees until the
/// last of them has run. As much as a client may send, `midi.client-query-buffer-limit`, because
/// none logs much more than it is long.
pub const MAX_TRANSACTION_BYTES_DEFAULT: i64 = QUERY_LIMIT_DEFAULT;
/// See [`MAX_TRANSACTION_BYTES_DEFAULT`].
pub const MAX_TRANSACTION_BYTES_MIN: i64 = 1 << 20;

/// How long the main thread may free kept arguments in one turn of its loop, even if nothing is
/// left of [`MAIN_TURN`]; else for what is left. With more, its clients would wait; with less, a
/// busy loop would free too little between two turns.
pub const FREEING_TURN: Duration = Duration::from_micros(100);
/// The main thread is woken to free them when they have this many bytes.
pub const FREEING_WAKES: usize = 1 << 20;
/// Above this many bytes, a thread that keeps an argument first frees twice as much: arguments
/// cannot arrive faster than they are freed.
pub const DROPPED_BYTES: usize = 64 << 20;

/// The size of the pieces in which a job hands on its output.
pub const CHUNK_BYTES: usize = 8 << 10;

/// One call in this many is timed; the others are only counted.
pub const TIMED_CALLS: u64 = 16;

/// A port receives at least this many bytes at once, as Redis does: some hundred commands of a deep
/// pipeline.
pub const READ_BYTES: usize = 16 << 10;

/// The most that is received in one go, unless it is a large value: some 1500 short commands, a
/// third of a millisecond of work, after which others have their turn.
pub const INPUT_BYTES: usize = 64 << 10;

/// The buffer of a long command grows by this many times what has arrived, and no further than the
/// command's announced end. The allocator keeps the buffers that it outgrows for a while: growing
/// so fast, they are a third of it together.
pub const INPUT_GROWTH: usize = 3;

/// Memory for large arguments that have been announced and have not come, of all connections
/// together. Beyond it a buffer grows with what has come.
pub const ANNOUNCED_BYTES: usize = 64 << 20;

/// After a large argument the next one is expected for so many bytes of input: no more is received
/// than comes before it, so that all of it gets into its own buffer. Many programs read and write
/// in turn.
pub const EXPECTED_WITHIN: usize = 4 << 10;
/// At least this much is received even then.
pub const EXPECTED_BYTES_MIN: usize = 16;

/// The most that is received of a large argument in one go: copying it out of the system takes some
/// 30 µs.
pub const LARGE_PIECE_BYTES: usize = 256 << 10;

/// Up to this size, the beginning of an incomplete command is moved with every piece that arrives;
/// a larger one stays in place.
pub const LEFTOVER_BYTES: usize = 4 << 10;

/// Connections are received from before any of them is served, until they have sent this much:
/// about as much as commands that run together.
pub const GROUP_BYTES: usize = 1 << 10;

/// Up to this size, replies wait for the end of the turn: what fits in a core's own cache.
pub const OUTPUT_PER_TURN: usize = 128 << 10;

/// The reply buffer keeps its memory up to this size.
pub const OUTPUT_KEPT: usize = 1 << 20;

/// From this size on, a reply refers to a value that has a buffer of its own instead of copying it:
/// a copy costs more than sending the pieces of the reply together.
pub const SENT_BY_REFERENCE_BYTES: usize = 16 << 10;
/// The most pieces of replies that are sent together: those of some twenty large values.
pub const SENT_TOGETHER: usize = 64;

/// A connection that has not read this many bytes of its replies gets no more of its commands run
/// until it has read some.
pub const OUTPUT_PAUSE: usize = 1 << 20;

/// How long a connection with many commands is served in one go before others have their turn: a
/// thousand short commands or so.
pub const SERVED_AT_ONCE: Duration = Duration::from_micros(250);
/// Less if many connections wait, down to this: with shorter turns the rest of the input would be
/// moved too often.
pub const SERVED_AT_ONCE_MIN: Duration = Duration::from_micros(100);
/// This many connections share that time.
pub const SERVED_TOGETHER: usize = 4;
/// A connection whose commands, run by themselves, took longer than this in its last turn waits in
/// a queue with others of its kind. There a turn has this much time again if other connections have
/// commands; otherwise twice as much as the turn before. It is about what ten turns of other
/// connections cost besides their commands.
pub const HEAVY_TURN: Duration = Duration::from_micros(50);
/// The same holds for a turn of more than so many commands, if it took more than its connection's
/// share of [`READY_PER_TURN`] ...
pub const HEAVY_PIPELINE: u32 = 8;
/// ... and more than this.
pub const HEAVY_TURN_MIN: Duration = Duration::from_micros(5);
/// How long a port serves connections that always have more commands before it looks for others;
/// and as long again those whose turns are long.
pub const READY_PER_TURN: Duration = Duration::from_millis(1);
/// A port runs this many rounds, each of one command or of several that run together, between two
/// looks at the clock.
pub const LOOKS_AT_CLOCK: u32 = 16;

/// A long command's reply is sent to its connection in pieces of this size.
pub const PART_BYTES: usize = 64 << 10;

/// The most connections that a worker accepts before it serves others.
pub const ACCEPTED_PER_TURN: usize = 64;

/// How long a port handles messages of other threads before its connections have their turn.
pub const MESSAGES_TURN: Duration = Duration::from_micros(500);

/// How often a connection that the host holds up retries.
pub const DEFERRED_NAP: Duration = Duration::from_millis(1);

/// A client that sends no more and whose command has waited for a shard for longer than this counts
/// as gone: one that only has nothing more to send is answered sooner, unless a script holds the
/// shard.
pub const LEAVERS_WAIT: Duration = Duration::from_millis(100);

/// How exactly a port knows when a client was last active.
pub const PORT_CLOCK: Duration = Duration::from_millis(50);

/// How often a port looks for idle connections.
pub const PORT_TICK: Duration = Duration::from_millis(500);

/// The longest inline command, and the longest line with a length: Redis's PROTO_INLINE_MAX_SIZE.
pub const LINE_BYTES: usize = 64 << 10;

/// The most arguments that a client that has not logged in may send: enough for HELLO and AUTH.
pub const UNAUTHENTICATED_ARGUMENTS: usize = 10;
/// The longest of these arguments; both as in Redis.
pub const UNAUTHENTICATED_BULK_BYTES: usize = 16 << 10;
/// The most input that such a client may have waiting, ...
pub const UNAUTHENTICATED_QUERY_BYTES: usize = 1 << 20;
/// ... and the most replies that may wait for it: both as in Redis since 7.4.3. Otherwise anyone
/// could fill the memory without a login.
pub const UNAUTHENTICATED_OUTPUT_BYTES: usize = 1 << 10;

/// An argument list that grew beyond this for one command (16 KiB) is not kept for the next.
pub const ARGUMENTS_KEPT: usize = 1024;

/// EXECs before which the log's tail is handed over, after a command was seen that pauses clients:
/// it may be queued in one of them, and Redis 7.0 does not tell in whose. A hand-over takes about
/// 0.1 ms of the main thread, once in a turn of its loop at most.
pub const EXECS_AFTER_PAUSE: u32 = 100;

/// How often the host is asked for the owners of the cluster's slots: keys of a slot that another
/// node has taken remain for so long.
pub const OWNERS_ASKED_EVERY: Duration = Duration::from_secs(1);
/// It is asked less often if that takes more than this part of the main thread's time: the answer
/// to CLUSTER NODES grows with the number of ranges.
pub const OWNERS_SHARE: u32 = 1000;
/// The same after a command that may change what this node owns. Anyone can send it, so it has a
/// bound; but a slot that comes and goes between two looks keeps midi's keys.
pub const OWNERS_SHARE_AT_COMMANDS: u32 = 20;
/// How long after a SETSLOT MIGRATING each command on keys of its slot asks the host whether the
/// slot migrates. SETSLOT is executed long after it was seen in a transaction, or on Valkey with
/// replicas. If that takes longer, it is noticed when the host is next asked for the owners.
pub const SETSLOT_TAKES: Duration = Duration::from_secs(10);
