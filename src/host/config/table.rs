//! All settings and their current values. The load arguments, the host's configuration file and
//! CONFIG SET write them.

use std::ops::RangeInclusive;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicUsize, Ordering};

use midi_module_api as raw;
use parking_lot::Mutex;

use super::super::api::RawString;
use super::super::state::BuiltSettings;
use crate::command::parse_integer;
use crate::engine::{Engine, Policy, Settings};
use crate::limits;

/// A numeric setting.
pub struct Number {
    /// The name without `midi.`.
    pub name: &'static str,
    /// The lowest value.
    pub min: i64,
    /// The highest value.
    pub max: i64,
    /// REDISMODULE_CONFIG_* bits.
    pub flags: u32,
    /// The current value.
    pub value: AtomicI64,
    /// The engine's copy, which follows each change; `None` if the setting cannot change.
    pub live: Option<fn(&Settings) -> &AtomicUsize>,
}

const fn number(
    name: &'static str,
    default: i64,
    range: RangeInclusive<i64>,
    live: fn(&Settings) -> &AtomicUsize,
) -> Number {
    Number { live: Some(live), flags: 0, ..fixed(name, default, range) }
}

/// A size in bytes, at least `least`.
const fn size(
    name: &'static str,
    default: i64,
    least: i64,
    live: fn(&Settings) -> &AtomicUsize,
) -> Number {
    Number { flags: BYTES, ..number(name, default, least..=i64::MAX, live) }
}

/// The size of a string in bytes, at least `least`.
const fn length(
    name: &'static str,
    default: i64,
    least: i64,
    live: fn(&Settings) -> &AtomicUsize,
) -> Number {
    Number { max: limits::MAX_STRING_BYTES, ..size(name, default, least, live) }
}

const fn fixed(name: &'static str, default: i64, range: RangeInclusive<i64>) -> Number {
    let (min, max, value) = (*range.start(), *range.end(), AtomicI64::new(default));
    Number { name, min, max, flags: FIXED, value, live: None }
}

/// Flag of settings that cannot change.
pub const FIXED: u32 = raw::REDISMODULE_CONFIG_IMMUTABLE;
/// Flag of sizes in bytes.
pub const BYTES: u32 = raw::REDISMODULE_CONFIG_MEMORY;

/// All numeric settings.
pub static NUMBERS: [Number; 28] = [
    fixed("threads", 0, limits::THREADS),
    fixed("shards", 0, limits::SHARDS),
    // Read with the host's own limit: see `eviction.rs`.
    Number { flags: BYTES, ..fixed(MAXMEMORY, 0, 0..=i64::MAX) },
    number("max-jobs", limits::MAX_JOBS_DEFAULT, 1..=1 << 20, |live| &live.max_jobs),
    number("max-queued-commands", limits::MAX_QUEUED_DEFAULT, 1..=1 << 30, |live| &live.max_queued),
    length("max-pattern-bytes", limits::MAX_PATTERN_BYTES_DEFAULT, 1, |live| {
        &live.max_pattern_bytes
    }),
    length("max-key-bytes", limits::MAX_STRING_BYTES_DEFAULT, 1, |live| &live.max_key_bytes),
    length("max-value-bytes", limits::MAX_STRING_BYTES_DEFAULT, 1, |live| &live.max_value_bytes),
    length("keep-bytes", limits::KEEP_BYTES_DEFAULT, 1024, |live| &live.keep_bytes),
    number("hash-max-listpack-entries", limits::LISTPACK_ENTRIES_DEFAULT, 0..=i64::MAX, |live| {
        &live.listpack_entries
    }),
    size("hash-max-listpack-value", limits::LISTPACK_VALUE_DEFAULT, 0, |live| &live.listpack_value),
    number("max-atomic-keys", limits::MAX_ATOMIC_KEYS_DEFAULT, limits::MAX_ATOMIC_KEYS, |live| {
        &live.max_atomic_keys
    }),
    size("journal-buffer", limits::JOURNAL_BUFFER_DEFAULT, limits::JOURNAL_BUFFER_MIN, |live| {
        &live.journal_buffer
    }),
    size(
        "max-transaction-bytes",
        limits::MAX_TRANSACTION_BYTES_DEFAULT,
        limits::MAX_TRANSACTION_BYTES_MIN,
        |live| &live.max_transaction_bytes,
    ),
    fixed("port", 0, 0..=u16::MAX as i64),
    fixed("tls-port", 0, 0..=u16::MAX as i64),
    fixed("memcached-port", 0, 0..=u16::MAX as i64),
    fixed("memcached-tls-port", 0, 0..=u16::MAX as i64),
    number("memcached-database", 0, 0..=i32::MAX as i64, |live| &live.port.memcached_database),
    size(
        "memcached-item-size",
        limits::MEMCACHED_ITEM_SIZE_DEFAULT,
        limits::MEMCACHED_ITEM_SIZE_MIN,
        |live| &live.port.memcached_item_size,
    ),
    number("maxclients", limits::MAX_CLIENTS_DEFAULT, 1..=i32::MAX as i64, |live| {
        &live.port.max_clients
    }),
    Number {
        max: limits::MAX_CHANNEL_BYTES,
        ..size("max-channel-bytes", limits::MAX_CHANNEL_BYTES_DEFAULT, 1, |live| {
            &live.port.max_channel_bytes
        })
    },
    number("timeout", 0, 0..=i32::MAX as i64, |live| &live.port.timeout),
    number("tcp-keepalive", 0, 0..=i32::MAX as i64, |live| &live.port.keepalive),
    size(
        "client-query-buffer-limit",
        limits::QUERY_LIMIT_DEFAULT,
        limits::QUERY_LIMIT_MIN,
        |live| &live.port.query_limit,
    ),
    size("output-buffer-hard-limit", limits::OUTPUT_HARD_DEFAULT, 0, |live| &live.port.output_hard),
    size("output-buffer-soft-limit", 0, 0, |live| &live.port.output_soft),
    number("output-buffer-soft-seconds", 0, 0..=i32::MAX as i64, |live| {
        &live.port.output_soft_seconds
    }),
];

/// Settings that default to the host's, and Redis's defaults for hosts that do not
/// report theirs.
pub const LIKE_THE_HOST: [(&str, i64); 4] = [
    ("timeout", 0),
    ("tcp-keepalive", 300),
    ("hash-max-listpack-entries", limits::LISTPACK_ENTRIES_DEFAULT),
    ("hash-max-listpack-value", limits::LISTPACK_VALUE_DEFAULT),
];

/// A setting that is one of two words.
pub struct Switch {
    /// The name without `midi.`.
    pub name: &'static str,
    /// The words. With [`NO_YES`] the host takes it for one that is off or on.
    pub words: [&'static str; 2],
    /// REDISMODULE_CONFIG_* bits.
    pub flags: u32,
    /// Whether it is the second one.
    pub value: AtomicBool,
    /// As [`Number::live`].
    pub live: Option<fn(&Settings) -> &AtomicBool>,
    /// The log line when it is set to the second one, if that is of no use at the moment.
    pub notice: fn(&Engine) -> Option<&'static str>,
}

/// The words of a setting that is off or on.
pub const NO_YES: [&str; 2] = ["no", "yes"];

const fn switch(
    name: &'static str,
    words: [&'static str; 2],
    default: bool,
    flags: u32,
    live: Option<fn(&Settings) -> &AtomicBool>,
) -> Switch {
    Switch { name, words, flags, value: AtomicBool::new(default), live, notice: |_| None }
}

/// `midi.safemode`: every command runs alone, on the main thread.
pub static SAFEMODE: Switch = switch("safemode", NO_YES, false, FIXED, None);
/// `midi.protected-mode`: by default as the host's own.
pub static PROTECTED: Switch =
    switch("protected-mode", NO_YES, true, 0, Some(|live| &live.port.protected));
static OF_THE_ENGINE: [Switch; 2] = [
    switch("dispatch", ["adaptive", "pool"], false, 0, Some(|live| &live.pool)),
    switch("active-defrag", NO_YES, true, 0, Some(|live| &live.packs)),
];
static OF_THE_PORTS: [Switch; 2] = [
    Switch {
        notice: |engine| engine.ledger.log.reads_wait().then_some(REPLY_AFTER_IGNORED),
        ..switch(
            "reply-after",
            ["logged", "run"],
            false,
            0,
            Some(|live| &live.port.reply_after_run),
        )
    },
    switch("io", ["epoll", "io_uring"], false, FIXED, None),
];

/// `midi.io`: whether the ports' bytes are to be moved with io_uring.
pub fn wants_io_uring() -> bool {
    OF_THE_PORTS[1].value.load(Ordering::Relaxed)
}

/// All switches.
pub static SWITCHES: [&Switch; 6] = [
    &SAFEMODE,
    &PROTECTED,
    &OF_THE_ENGINE[0],
    &OF_THE_ENGINE[1],
    &OF_THE_PORTS[0],
    &OF_THE_PORTS[1],
];

/// For the log, where `midi.reply-after run` meets `appendfsync always`.
pub const REPLY_AFTER_IGNORED: &str =
    "midi.reply-after run is ignored while appendfsync is always: replies wait for the fsync";

/// A setting that is text.
pub struct Text {
    /// The name without `midi.`.
    pub name: &'static str,
    /// Whether and how it can change.
    pub mutability: Mutability,
    /// The current value.
    pub value: Mutex<String>,
    /// The string last returned to the host, which is ours to free.
    pub told: AtomicPtr<RawString>,
    /// Whether a text is a valid value.
    pub valid: fn(&str) -> bool,
    /// CONFIG's answer to one that is not.
    pub error: &'static str,
}

/// Whether and how a text can change at run time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutability {
    /// It cannot.
    Never,
    /// It can, and takes effect when the host tells of changed settings.
    Noticed,
    /// It is one of TLS's: new connections begin with all of those.
    Tls,
}

const fn text(
    name: &'static str,
    mutability: Mutability,
    valid: fn(&str) -> bool,
    error: &'static str,
) -> Text {
    let told = AtomicPtr::new(ptr::null_mut());
    Text { name, mutability, value: Mutex::new(String::new()), told, valid, error }
}

/// All text settings. Those of TLS are the host's settings of that name where they are empty.
pub static TEXTS: [Text; 16] = [
    // Limits of single databases.
    text(
        DB_MAXMEMORY,
        Mutability::Noticed,
        |text| databases_in(text, bytes_of).is_some(),
        "not a list of databases and sizes, such as 0:100mb 3:1gb",
    ),
    text(
        DB_MAXMEMORY_POLICY,
        Mutability::Noticed,
        |text| databases_in(text, Policy::named).is_some(),
        "not a list of databases and policies, such as 0:allkeys-lru 3:volatile-ttl",
    ),
    // `host`, which is the default: the host's policy.
    text(
        MAXMEMORY_POLICY,
        Mutability::Noticed,
        |text| text == "host" || Policy::named(text).is_some(),
        "not host, noeviction, allkeys-auto, allkeys-lru, allkeys-lfu, allkeys-random, \
         volatile-lru, volatile-lfu, volatile-random or volatile-ttl",
    ),
    // The addresses of the ports; the host's if empty.
    text("bind", Mutability::Never, |_| true, ""),
    // The path of a Unix socket; none if empty.
    text("unixsocket", Mutability::Never, |_| true, ""),
    // The same for memcached's clients.
    text("memcached-unixsocket", Mutability::Never, |_| true, ""),
    // The socket's mode. It is octal, and so not a numeric setting.
    text(
        "unixsocketperm",
        Mutability::Never,
        |text| file_mode(text).is_some(),
        "not a file mode in octal digits, 777 at most",
    ),
    // The host's appendfsync, where the host does not report it; always if empty.
    text(
        "assume-appendfsync",
        Mutability::Never,
        |text| matches!(text, "" | "always" | "everysec" | "no"),
        "not always, everysec or no",
    ),
    text("tls-cert-file", Mutability::Tls, |_| true, ""),
    text("tls-key-file", Mutability::Tls, |_| true, ""),
    text("tls-ca-cert-file", Mutability::Tls, |_| true, ""),
    text("tls-ca-cert-dir", Mutability::Tls, |_| true, ""),
    text(
        "tls-auth-clients",
        Mutability::Tls,
        |text| matches!(text, "" | "yes" | "no" | "optional"),
        "not yes, no or optional",
    ),
    text(
        "tls-auth-clients-user",
        Mutability::Tls,
        |text| matches!(text, "" | "off" | "CN" | "URI"),
        "not off, CN or URI",
    ),
    text("tls-protocols", Mutability::Tls, |_| true, ""),
    text("tls-ciphersuites", Mutability::Tls, |_| true, ""),
];

/// Gives all settings the values that midi was built with. After a load that was refused they may
/// still have what that one set: musl never unloads a library.
pub fn reset(built: &OnceLock<BuiltSettings>) {
    let (numbers, switches, texts) = built.get_or_init(|| {
        (
            NUMBERS.iter().map(|number| number.value.load(Ordering::Relaxed)).collect(),
            SWITCHES.iter().map(|switch| switch.value.load(Ordering::Relaxed)).collect(),
            TEXTS.iter().map(|text| text.value.lock().clone()).collect(),
        )
    });
    NUMBERS.iter().zip(numbers).for_each(|(to, &built)| to.value.store(built, Ordering::Relaxed));
    SWITCHES.iter().zip(switches).for_each(|(to, &built)| to.value.store(built, Ordering::Relaxed));
    TEXTS.iter().zip(texts).for_each(|(to, built)| to.value.lock().clone_from(built));
}

/// The text setting `name`, which must be one of [`TEXTS`].
pub fn named(name: &str) -> &'static Text {
    TEXTS.iter().find(|text| text.name == name).expect("one of the names above")
}

/// The current value of the text setting `name`, which must be one of [`TEXTS`].
pub fn written(name: &str) -> String {
    named(name).value.lock().clone()
}

/// Reads a file mode as redis.conf writes it: octal, at most 777. Empty is 0: the umask decides.
/// `None` if it is not valid.
pub fn file_mode(text: &str) -> Option<u32> {
    if text.is_empty() {
        return Some(0);
    }
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = digits.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    mode.filter(|&mode| mode <= 0o777)
}

/// The current `midi.maxclients`.
pub fn max_clients() -> usize {
    numbered(MAX_CLIENTS).value.load(Ordering::Relaxed) as usize
}

/// Lowers `midi.maxclients` to the `possible` number of clients.
pub fn lower_max_clients(settings: &Settings, possible: usize) {
    numbered(MAX_CLIENTS).value.store(possible as i64, Ordering::Relaxed);
    settings.port.max_clients.store(possible, Ordering::Relaxed);
}

/// The name of `midi.maxmemory`.
pub const MAXMEMORY: &str = "maxmemory";

/// The name of `midi.maxmemory-policy`.
pub const MAXMEMORY_POLICY: &str = "maxmemory-policy";

/// The name of `midi.db-maxmemory`.
pub const DB_MAXMEMORY: &str = "db-maxmemory";

/// The name of `midi.db-maxmemory-policy`.
pub const DB_MAXMEMORY_POLICY: &str = "db-maxmemory-policy";

/// Reads a list such as `0:100mb 3:1gb`: numbers of databases, each with a value. `None` if it is
/// not valid.
pub fn databases_in<V>(text: &str, value_of: impl Fn(&str) -> Option<V>) -> Option<Vec<(u32, V)>> {
    let pair = |pair: &str| {
        let (db, value) = pair.split_once(':')?;
        Some((db.parse().ok()?, value_of(value)?))
    };
    text.split_ascii_whitespace().map(pair).collect()
}

/// A size as redis.conf writes it, 0 and above: 1k is 1000 bytes, 1kb is 1024, and so on.
pub fn bytes_of(text: &str) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = split_unit(&text);
    let number = parse_integer(digits.as_bytes()).filter(|&number| number >= 0)?;
    number.checked_mul(unit)
}

/// The digits of such a size, and the bytes of its unit.
pub fn split_unit(value: &str) -> (&str, i64) {
    let binary = [("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];
    let decimal = [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000), ("b", 1)];
    let strip = |(unit, factor)| value.strip_suffix(unit).map(|digits| (digits, factor));
    binary.into_iter().chain(decimal).find_map(strip).unwrap_or((value, 1))
}

/// The name of `midi.maxclients`.
pub const MAX_CLIENTS: &str = "maxclients";

/// The numeric setting `name`, which must be one of [`NUMBERS`].
pub fn numbered(name: &str) -> &'static Number {
    NUMBERS.iter().find(|number| number.name == name).expect("one of the names above")
}
