//! Every bound in one place, with its reason. What a user may want otherwise is
//! a setting; its name stands beside the default.

use std::ops::RangeInclusive;
use std::time::Duration;

/// `midi.threads`: 0 means one worker per core.
pub const THREADS: RangeInclusive<i64> = 0..=256;

/// `midi.shards`, a power of two. Two threads scale 1.8 × with 1024 shards, and
/// more bring little; a shard costs 256 bytes plus its tables, and a flush
/// holds the main thread for about 0.2 µs per shard.
pub const SHARDS: RangeInclusive<i64> = 1..=65_536;
/// Default of `midi.shards`.
pub const SHARDS_DEFAULT: i64 = 1024;

/// `midi.max-jobs`: long commands at once. Each takes its turns, so a thousand
/// of them would make each other crawl.
pub const MAX_JOBS_DEFAULT: i64 = 128;

/// `midi.max-queued-commands`: commands that wait for a shard, all clients
/// together. A client waits with one at most, so this guards memory only.
pub const MAX_QUEUED_DEFAULT: i64 = 100_000;

/// `midi.max-pattern-bytes`: a pattern may cost its length times the key's.
pub const MAX_PATTERN_BYTES_DEFAULT: i64 = 4096;

/// `midi.max-key-bytes` and `midi.max-value-bytes`: Redis's proto-max-bulk-len.
pub const MAX_STRING_BYTES_DEFAULT: i64 = 512 << 20;
/// An argument on a port may be as long as this, however short keys and values must be: the
/// least that Redis's proto-max-bulk-len can be set to.
pub const LEAST_ARGUMENT_BYTES: usize = 1 << 20;

/// The most that either may be set to; lengths are kept in 32 bits.
pub const MAX_STRING_BYTES: i64 = (4 << 30) - 1;

/// `midi.keep-bytes`: from here on the host has the argument in a buffer of
/// its own, and keeping it is cheaper than copying it.
pub const KEEP_BYTES_DEFAULT: i64 = 32 << 10;

/// `midi.max-atomic-keys`: most keys of a command that is atomic over all of
/// them (MGET, MSET and their kin). It holds all their shards in one go, longer
/// than any slice, and everybody else waits meanwhile.
pub const MAX_ATOMIC_KEYS_DEFAULT: i64 = 10_000;
/// RENAME and COPY have two keys, whatever else is wanted.
pub const MAX_ATOMIC_KEYS: RangeInclusive<i64> = 2..=1 << 30;

/// `midi.maxclients`: the host's own default.
pub const MAX_CLIENTS_DEFAULT: i64 = 10_000;

/// Where the system gives out too few descriptors for all clients that the host may have
/// and those of the ports, the ports take this part of them at most (an eighth), ...
pub const DESCRIPTORS_DIVISOR: usize = 8;
/// ... and so many at least.
pub const DESCRIPTORS_MIN: usize = 32;

/// Descriptors of the ports that are no client's: listeners, polls, those on their way.
pub const DESCRIPTORS_SPARE: usize = 64;

/// `midi.client-query-buffer-limit`: Redis's own default.
pub const QUERY_LIMIT_DEFAULT: i64 = 1 << 30;
/// Redis's own least.
pub const QUERY_LIMIT_MIN: i64 = 1 << 20;

/// `midi.output-buffer-hard-limit`: Redis has none for normal clients, and so one that asks
/// and never reads takes all memory. Larger than any reply of two values.
pub const OUTPUT_HARD_DEFAULT: i64 = 1 << 30;

/// So much of a reply the host does not count, at most, when it compares what waits for a client
/// with its `client-output-buffer-limit`: two buffers of 16 KiB. No reply is cut off that it would
/// let pass.
pub const HOST_OUTPUT_BESIDE: usize = 32 << 10;

/// Replies above this are made on a worker, never in one go on the main
/// thread: it is the size of a client's own reply buffer, which small replies
/// fit into and large ones would overflow with an allocation per piece.
pub const MAX_MAIN_REPLY_BYTES: usize = 16 << 10;

/// MGET, MSET and the like with more arguments than this go to a worker without a try on the
/// main thread: a hand-over costs the main thread as much as some twenty to forty
/// keys, and a try that ends with a reply too large for it is work for nothing.
pub const MAIN_ARGUMENTS: usize = 64;

/// Bytes that may be copied, compared or hashed on the main thread for each
/// byte that may be replied there: 256 KiB take it some 20 µs, three times what
/// handing a command to a worker costs it.
pub const TOUCHED_PER_REPLIED: usize = 16;

/// Values that APPEND, SETRANGE, SETBIT, BITFIELD and BITOP make from this size on stand in a
/// buffer of their own, which can grow; smaller ones are cheap to copy.
pub const GROWING_BYTES: usize = 16 << 10;

/// Such a buffer grows by this part of its size, a quarter, at least: it is
/// moved so rarely that an appended byte costs four moved ones on average.
pub const GROWTH_DIVISOR: usize = 4;

/// How long a job may hold a shard, or a worker its turn, in one go.
pub const SLICE: Duration = Duration::from_micros(50);

/// A worker that has been at jobs for this long without a pause sleeps for a
/// moment. Workers that fill every core would else keep a woken main thread, or
/// its clients, waiting for the scheduler's next tick (4 ms as a rule).
pub const BREATHER_EVERY: Duration = Duration::from_micros(500);
/// How long that sleep is; the kernel makes it about 60 µs.
pub const BREATHER: Duration = Duration::from_micros(10);

/// How long work on the host's keyspace may hold the global lock in one go.
pub const LOCK_SLICE: Duration = Duration::from_micros(200);

/// How long the global lock stays free after such a slice when the main loop
/// gives no sign of having turned: long enough for a main thread that was woken
/// meanwhile to be given the processor and take it.
pub const LOCK_PAUSE: Duration = Duration::from_micros(150);

/// After this long without a slice, work on the host's keyspace gets one from
/// the main thread itself: a fifth of a busy main loop at most.
pub const LOCK_STARVING: Duration = Duration::from_millis(1);

/// How many pending messages a holder runs before it leaves the rest to the owner.
pub const PENDING_PER_HOLD: usize = 32;

/// Commands that a worker has run go home together, so many at most: for fewer the
/// main thread would be woken more often, with more it would wait while it could answer.
pub const ANSWERED_TOGETHER: usize = 32;

/// Tries on a held token before the request is queued: some hundred
/// nanoseconds on a worker, about a microsecond on the main thread, whose
/// blocking a client costs more.
pub const WORKER_SPINS: u32 = 16;
/// See [`WORKER_SPINS`].
pub const MAIN_SPINS: u32 = 48;

/// Tries of a command on several shards before it goes to the main thread.
pub const MANY_TRIES: u8 = 8;

/// DEL, UNLINK and EXISTS of more keys than this are a job.
pub const KEYS_AT_ONCE: usize = 1000;

/// MGET that would copy more bytes than this while it holds its keys' shards is a job: that takes a
/// millisecond or two, as long as finding the most keys that it may have. As a job it takes two or
/// three times as long where the values are 3 MB together, and no longer from 10 MB on.
pub const MGET_BYTES_AT_ONCE: usize = 4 << 20;
/// So much of each value does not count there: copying it takes no longer than finding the key,
/// whose number has a limit of its own.
pub const MGET_FREE_BYTES: usize = 1 << 10;
/// Such a job copies so many bytes between two looks at the clock: some microseconds.
pub const MGET_PIECE_BYTES: usize = 16 << 10;
/// It begins so often where a key changes before it was copied, and then copies all of them in one
/// go: whoever writes all the time makes it do three times the work, not more.
pub const MGET_ROUNDS: u8 = 3;
/// Of more keys than this all values are copied in one go: a quarter of the names that can be
/// watched at once, which others have a use for, too.
pub const MGET_WATCHED: usize = WATCHED_KEYS / 4;

/// LCS of values whose table has more cells than this (255 bytes each, say) is
/// a job; that many take about 10 µs.
pub const LCS_CELLS_AT_ONCE: usize = 1 << 16;

/// SCAN looks at this many keys at once on the main thread; more is a job.
pub const SCAN_AT_ONCE: usize = 1000;

/// RANDOMKEY draws this many shards, and looks at this many buckets of each,
/// before it becomes a search through all.
pub const RANDOM_DRAWS: usize = 512;
/// See [`RANDOM_DRAWS`].
pub const RANDOM_BUCKETS: usize = 4;

/// SCAN visits this many shards at most before it answers, however few keys it met.
pub const SCAN_SHARDS: usize = 1024;

/// Names of keys that are remembered as watched: of the size of a large host's number of clients.
/// Beyond it the stalest is given up. So many for the host, and so many for clients of the ports,
/// all shards together.
pub const WATCHED_KEYS: usize = 65_536;
/// Bytes of such names for the host, ...
pub const WATCHED_BYTES: usize = 32 << 20;
/// ... for each of which its entries in maps and lists count as so many.
pub const WATCHED_NAME_BYTES: usize = 384;
/// So many bytes of names, each with that, are marked in a turn of the host's main loop before the
/// host is asked whether it executes any WATCH: some forty short names.
pub const WATCHED_AT_ONCE_BYTES: usize = 16 << 10;
/// Beyond that names are copied and wait, until the end of the turn or until there are so many
/// bytes.
pub const WATCHED_WAITING_BYTES: usize = 8 << 20;
/// What is kept of the name of a key that a port's client watches, beside a hash: so their names
/// take 16 MiB at most.
pub const OBSERVED_NAME_BYTES: usize = 248;
/// So many in a shard at least, however many shards there are.
pub const WATCHED_PER_SHARD_MIN: usize = 16;

/// How often a worker looks for keys that are due.
pub const EXPIRY_TICK: Duration = Duration::from_millis(100);

/// The part of a tick that expiry may take: a quarter, as in Redis.
pub const EXPIRY_PER_TICK: Duration = Duration::from_millis(25);

/// How often the users that a port knows are compared with the host's, in case they were changed
/// in a way that cannot be seen.
pub const USERS_NOTICED_EVERY: Duration = Duration::from_secs(1);

/// Sets of rules on commands whose meaning is remembered: many users share one.
pub const JUDGED_RULES_KEPT: usize = 256;

/// What users were refused and the host's ACL LOG has not been told of: as much as that list keeps.
/// And no more are told of between two ticks of the host's cron.
pub const REFUSALS_WAITING: usize = 128;
/// So many are told of in one go: each costs the main thread some 2 µs.
pub const REFUSALS_PER_TURN: usize = 16;
/// The longest name that is told of; what is cut off is not needed to find out who it was.
pub const REFUSED_NAME_BYTES: usize = 1 << 10;

/// Names of users that ACL commands may have changed, until somebody has looked; beyond it all
/// users are looked at, which takes 0.15 µs for each that a port knows.
pub const TOUCHED_NAME_BYTES: usize = 1 << 10;

/// Clients whose queued changes of users are told apart; those before them are noticed a moment
/// late.
pub const QUEUED_USER_CHANGES: usize = 256;

/// Clients of the host's door whose rights are remembered, where midi judges them: on Redis 7.0.
pub const DOOR_CLIENTS_KEPT: usize = 16 << 10;

/// Names of flushed keys that the main thread is sent at once, where clients may have cached
/// them: it takes some 100 µs to tell of them. A little more may come, for names come by the
/// table's segment.
pub const FLUSHED_NAMES: usize = 256;
/// So many bytes of names at once.
pub const FLUSHED_NAME_BYTES: usize = 64 << 10;

/// How long the main thread may see to what others have sent it in one turn of its loop:
/// completions, main_tasks and notifications of changes. The host's own clients wait no longer than
/// that for midi's.
pub const MAIN_TURN: Duration = Duration::from_micros(300);

/// Notification of changes that wait for the main thread, in bytes, beyond which writes on the
/// ports wait, too: a thousand of short keys, which it takes some milliseconds to publish.
pub const NOTIFICATIONS_MAX_BYTES: usize = 256 << 10;
/// What each of them weighs beside its key.
pub const NOTIFICATION_OVERHEAD: usize = 256;

/// How long the main thread may free kept arguments in one turn of its loop.
pub const FREEING_TURN: Duration = Duration::from_micros(100);
/// It is woken for them when they are so many bytes.
pub const FREEING_WAKES: usize = 1 << 20;
/// Above so many bytes whoever has an argument kept frees twice as much first: what is to be freed
/// cannot outgrow this by what comes in.
pub const DROPPED_BYTES: usize = 64 << 20;

/// How much of a job's output is handed on in one piece.
pub const CHUNK_BYTES: usize = 8 << 10;

/// One call in so many is timed; the others only counted.
pub const TIMED_CALLS: u64 = 16;

/// A port asks its sockets for at least so many bytes at once, as Redis does: some
/// hundred commands of a deep pipeline.
pub const READ_BYTES: usize = 16 << 10;

/// Taken from a socket in one go at most, if it is no large value: some 1500 short
/// commands, a third of a millisecond of work, after which others have their turn.
pub const INPUT_BYTES: usize = 64 << 10;

/// The beginning of a command that is still to come in full is moved with every piece
/// of it up to this size; a larger one stays where it is.
pub const LEFTOVER_BYTES: usize = 4 << 10;

/// Commands of a pipeline that run together, so that the memory that one needs is
/// on its way while another runs. As many cache lines as a core fetches at once.
pub const AHEAD: usize = 32;
/// With so many arguments each at most.
pub const AHEAD_ARGUMENTS: usize = 4;

/// Connections are received from before any of them is served, until they have sent so much: as
/// much as commands that run together.
pub const GROUP_BYTES: usize = 1 << 10;

/// Replies wait for the end of the turn up to this size: what a core has close at hand.
pub const OUTPUT_PER_TURN: usize = 128 << 10;

/// The buffer of replies keeps its memory up to this size.
pub const OUTPUT_KEPT: usize = 1 << 20;

/// Commands that run together hold all their shards until they have replied so much: copying
/// it takes some 10 µs.
pub const HELD_OUTPUT: usize = 64 << 10;

/// Replies that a connection leaves lying, beyond which it gets no more of them
/// until it has taken some.
pub const OUTPUT_PAUSE: usize = 1 << 20;

/// A connection is served for so long in one go, if it has more commands than one, and then others
/// have their turn: a thousand short commands or so.
pub const SERVED_AT_ONCE: Duration = Duration::from_micros(250);
/// For less where many wait, down to this: shorter turns would move what is left of the input too
/// often.
pub const SERVED_AT_ONCE_MIN: Duration = Duration::from_micros(100);
/// So many share that time.
pub const SERVED_TOGETHER: usize = 4;
/// A connection whose commands, run by themselves, took longer than this in its last turn waits
/// among its like for the next. That is for as long again where others have anything to say; where
/// they have not, for twice as long each time. Some ten turns of others, at what a turn costs
/// around its commands.
pub const HEAVY_TURN: Duration = Duration::from_micros(50);
/// How long a port serves connections that always have more commands, before it looks for others;
/// and for as long those whose turns are long.
pub const READY_PER_TURN: Duration = Duration::from_millis(1);
/// It runs so many rounds, each of one command or of some that go together, between two looks at
/// the clock.
pub const LOOKS_AT_CLOCK: u32 = 16;

/// A long command's reply goes to its connection in pieces of this size.
pub const PART_BYTES: usize = 64 << 10;

/// Connections that a worker accepts before it serves others.
pub const ACCEPTED_PER_TURN: usize = 64;

/// How long a port sees to the message of other threads before its connections have their turn.
pub const MESSAGES_TURN: Duration = Duration::from_micros(500);

/// How often a connection that the host holds up tries again.
pub const DEFERRED_NAP: Duration = Duration::from_micros(500);

/// A client that sends no more and whose command has waited for a shard for longer than this is
/// taken for gone: one that only has nothing more to send is answered sooner, unless a script holds
/// the shard.
pub const LEAVERS_WAIT: Duration = Duration::from_millis(100);

/// How exactly a port knows when a client was last heard of.
pub const PORT_CLOCK: Duration = Duration::from_millis(50);

/// How often a port looks for idle connections.
pub const PORT_TICK: Duration = Duration::from_millis(500);

/// The longest inline command, and the longest line of a length: Redis's PROTO_INLINE_MAX_SIZE.
pub const LINE_BYTES: usize = 64 << 10;

/// Clients that have not told who they are may send so many arguments at most: enough for HELLO and
/// AUTH.
pub const UNAUTHENTICATED_ARGUMENTS: usize = 10;
/// And none longer than this; both as in Redis.
pub const UNAUTHENTICATED_BULK_BYTES: usize = 16 << 10;
/// What they have sent and was not run takes so much at most, ...
pub const UNAUTHENTICATED_QUERY_BYTES: usize = 1 << 20;
/// ... and so much of their replies may wait for them to read: both as in Redis since 7.4.3, or the
/// memory would be anybody's.
pub const UNAUTHENTICATED_OUTPUT_BYTES: usize = 1 << 10;

/// A list of arguments that grew beyond this for one command (16 KiB) is not kept for the next.
pub const ARGUMENTS_KEPT: usize = 1024;

/// A worker keeps an emptied transaction's memory for the next MULTI, if it is not more.
pub const TRANSACTION_BYTES_KEPT: usize = 4 << 10;
