//! Settings: `midi.*` in redis.conf, CONFIG GET, SET and REWRITE, and the
//! arguments of `loadmodule`.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;
use redis_module::raw;

use super::api::{Ctx, RawString, api, c_text, leaked};
use super::descriptors;
use super::door::door;
use super::string::{HostString, OwnString};
use crate::command::{Cluster, parse_integer};
use crate::limits;
use crate::shard::{Config, PortConfig, Settings};

/// A numeric setting.
struct Number {
    name: &'static str,
    min: i64,
    max: i64,
    flags: u32,
    value: AtomicI64,
    /// Where it goes while the engine lives; `None` for what cannot change.
    live: Option<fn(&Settings) -> &AtomicUsize>,
}

const fn number(
    name: &'static str,
    default: i64,
    min: i64,
    max: i64,
    flags: u32,
    live: Option<fn(&Settings) -> &AtomicUsize>,
) -> Number {
    Number { name, min, max, flags, value: AtomicI64::new(default), live }
}

const FIXED: u32 = raw::REDISMODULE_CONFIG_IMMUTABLE;
const BYTES: u32 = raw::REDISMODULE_CONFIG_MEMORY;

static NUMBERS: [Number; 17] = [
    number("threads", 0, *limits::THREADS.start(), *limits::THREADS.end(), FIXED, None),
    number("shards", limits::SHARDS_DEFAULT, *limits::SHARDS.start(), *limits::SHARDS.end(), FIXED, None),
    number("max-jobs", limits::MAX_JOBS_DEFAULT, 1, 1 << 20, 0, Some(|live| &live.max_jobs)),
    number("max-queued-commands", limits::MAX_QUEUED_DEFAULT, 1, 1 << 30, 0, Some(|live| &live.max_queued)),
    number(
        "max-pattern-bytes",
        limits::MAX_PATTERN_BYTES_DEFAULT,
        1,
        limits::MAX_STRING_BYTES,
        BYTES,
        Some(|live| &live.max_pattern_bytes),
    ),
    number(
        "max-key-bytes",
        limits::MAX_STRING_BYTES_DEFAULT,
        1,
        limits::MAX_STRING_BYTES,
        BYTES,
        Some(|live| &live.max_key_bytes),
    ),
    number(
        "max-value-bytes",
        limits::MAX_STRING_BYTES_DEFAULT,
        1,
        limits::MAX_STRING_BYTES,
        BYTES,
        Some(|live| &live.max_value_bytes),
    ),
    number(
        "keep-bytes",
        limits::KEEP_BYTES_DEFAULT,
        1024,
        limits::MAX_STRING_BYTES,
        BYTES,
        Some(|live| &live.keep_bytes),
    ),
    number(
        "max-atomic-keys",
        limits::MAX_ATOMIC_KEYS_DEFAULT,
        *limits::MAX_ATOMIC_KEYS.start(),
        *limits::MAX_ATOMIC_KEYS.end(),
        0,
        Some(|live| &live.max_atomic_keys),
    ),
    number("port", 0, 0, u16::MAX as i64, FIXED, None),
    number(
        "maxclients",
        limits::MAX_CLIENTS_DEFAULT,
        1,
        i32::MAX as i64,
        0,
        Some(|live| &live.port.max_clients),
    ),
    number("timeout", 0, 0, i32::MAX as i64, 0, Some(|live| &live.port.timeout)),
    number("tcp-keepalive", 0, 0, i32::MAX as i64, 0, Some(|live| &live.port.keepalive)),
    number(
        "client-query-buffer-limit",
        limits::QUERY_LIMIT_DEFAULT,
        limits::QUERY_LIMIT_MIN,
        i64::MAX,
        BYTES,
        Some(|live| &live.port.query_limit),
    ),
    number(
        "output-buffer-hard-limit",
        limits::OUTPUT_HARD_DEFAULT,
        0,
        i64::MAX,
        BYTES,
        Some(|live| &live.port.output_hard),
    ),
    number("output-buffer-soft-limit", 0, 0, i64::MAX, BYTES, Some(|live| &live.port.output_soft)),
    number(
        "output-buffer-soft-seconds",
        0,
        0,
        i32::MAX as i64,
        0,
        Some(|live| &live.port.output_soft_seconds),
    ),
];

/// Settings of the port that are the host's, unless set; and Redis's defaults, for hosts that do not tell.
const LIKE_THE_HOST: [(&str, i64); 2] = [("timeout", 0), ("tcp-keepalive", 300)];

/// A setting that is on or off.
struct Switch {
    name: &'static str,
    flags: u32,
    value: AtomicBool,
    live: Option<fn(&Settings) -> &AtomicBool>,
}

static SAFEMODE: Switch =
    Switch { name: "safemode", flags: FIXED, value: AtomicBool::new(false), live: None };
static PROTECTED: Switch = Switch {
    name: "protected-mode",
    flags: 0,
    value: AtomicBool::new(true),
    live: Some(|live| &live.port.protected),
};
static SWITCHES: [&Switch; 2] = [&SAFEMODE, &PROTECTED];

/// A setting that is text. None of them can change.
struct Text {
    name: &'static str,
    value: Mutex<String>,
    /// The same in the host's hands, while it asks for it.
    told: AtomicPtr<RawString>,
    /// Whether a text will do.
    valid: fn(&str) -> bool,
}

const fn text(name: &'static str, valid: fn(&str) -> bool) -> Text {
    Text { name, value: Mutex::new(String::new()), told: AtomicPtr::new(ptr::null_mut()), valid }
}

static BIND: Text = text("bind", |_| true);
static UNIXSOCKET: Text = text("unixsocket", |_| true);
/// Octal, and so no number of the host's.
static UNIXSOCKETPERM: Text = text("unixsocketperm", |text| file_mode(text).is_some());
static TEXTS: [&Text; 3] = [&BIND, &UNIXSOCKET, &UNIXSOCKETPERM];

/// A file mode as redis.conf writes it; empty is what the umask gives.
fn file_mode(text: &str) -> Option<u32> {
    if text.is_empty() {
        return Some(0);
    }
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = digits.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    mode.filter(|&mode| mode <= 0o777)
}

static POOL: AtomicBool = AtomicBool::new(false);

/// Reads the load arguments, registers all settings with those as defaults, and
/// lets the host set what its configuration file names: so what CONFIG REWRITE
/// wrote there counts, whatever the load arguments say.
///
/// # Errors
/// What is wrong, for the host's log.
pub fn load(ctx: Ctx<'_>, args: &[&[u8]]) -> Result<(), String> {
    ask_host_for_defaults(ctx);
    read_arguments(args)?;
    let registered = NUMBERS.iter().all(|number| register_number(ctx, number))
        && SWITCHES.iter().all(|switch| register_switch(ctx, switch))
        && TEXTS.iter().all(|text| register_text(ctx, text))
        && register_dispatch(ctx);
    // SAFETY: in OnLoad.
    if !registered || unsafe { api!(RedisModule_LoadConfigs)(ctx.raw()) } != raw::REDISMODULE_OK as c_int {
        return Err("a midi.* setting in the configuration file is not valid".into());
    }
    let shards = NUMBERS[1].value.load(Ordering::Relaxed);
    if shards & (shards - 1) != 0 {
        return Err(format!("midi.shards must be a power of two, not {shards}"));
    }
    Ok(())
}

fn register_number(ctx: Ctx<'_>, number: &'static Number) -> bool {
    let private = std::ptr::from_ref(number).cast_mut().cast();
    // SAFETY: in OnLoad; name and private data live forever.
    let result = unsafe {
        api!(RedisModule_RegisterNumericConfig)(
            ctx.raw(),
            leaked(number.name),
            number.value.load(Ordering::Relaxed),
            number.flags as c_uint,
            number.min,
            number.max,
            Some(get_number),
            Some(set_number),
            None,
            private,
        )
    };
    result == raw::REDISMODULE_OK as c_int
}

fn register_switch(ctx: Ctx<'_>, switch: &'static Switch) -> bool {
    let private = ptr::from_ref(switch).cast_mut().cast();
    // SAFETY: as above.
    let result = unsafe {
        api!(RedisModule_RegisterBoolConfig)(
            ctx.raw(),
            leaked(switch.name),
            c_int::from(switch.value.load(Ordering::Relaxed)),
            switch.flags as c_uint,
            Some(get_switch),
            Some(set_switch),
            None,
            private,
        )
    };
    result == raw::REDISMODULE_OK as c_int
}

fn register_text(ctx: Ctx<'_>, text: &'static Text) -> bool {
    let private = ptr::from_ref(text).cast_mut().cast();
    let default = c_text(&text.value.lock());
    // SAFETY: as above; the host copies the default.
    let result = unsafe {
        api!(RedisModule_RegisterStringConfig)(
            ctx.raw(),
            leaked(text.name),
            default.as_ptr(),
            FIXED as c_uint,
            Some(get_text),
            Some(set_text),
            None,
            private,
        )
    };
    result == raw::REDISMODULE_OK as c_int
}

fn register_dispatch(ctx: Ctx<'_>) -> bool {
    let mut names = [leaked("adaptive"), leaked("pool")];
    let values = [0, 1];
    // SAFETY: in OnLoad; the host copies the names and values.
    let result = unsafe {
        api!(RedisModule_RegisterEnumConfig)(
            ctx.raw(),
            c"dispatch".as_ptr(),
            c_int::from(POOL.load(Ordering::Relaxed)),
            0,
            names.as_mut_ptr(),
            values.as_ptr(),
            2,
            Some(get_dispatch),
            Some(set_dispatch),
            None,
            ptr::null_mut(),
        )
    };
    result == raw::REDISMODULE_OK as c_int
}

/// What the port has in common with the host is as it stands there now.
fn ask_host_for_defaults(ctx: Ctx<'_>) {
    for (name, default) in LIKE_THE_HOST {
        let value = ctx.config_number(&c_text(name)).unwrap_or(default);
        numbered(name).value.store(value, Ordering::Relaxed);
    }
    let protected = ctx.config_text(&c_text(PROTECTED.name));
    PROTECTED.value.store(protected.is_none_or(|value| value != b"no"), Ordering::Relaxed);
}

/// `SAFEMODE`, or names and values as in the configuration file, with or
/// without `midi.` in front.
fn read_arguments(args: &[&[u8]]) -> Result<(), String> {
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let word = String::from_utf8_lossy(arg).to_ascii_lowercase();
        let name = word.strip_prefix("midi.").unwrap_or(&word);
        let switch = |next: &&&[u8]| next.eq_ignore_ascii_case(b"yes") || next.eq_ignore_ascii_case(b"no");
        if word == SAFEMODE.name && !args.peek().is_some_and(switch) {
            SAFEMODE.value.store(true, Ordering::Relaxed);
            continue;
        }
        let mut value = || {
            let value = args.next().ok_or(format!("load argument {name} needs a value"))?;
            Ok::<_, String>(String::from_utf8_lossy(value).into_owned())
        };
        read_argument(name, &mut value)?;
    }
    Ok(())
}

fn read_argument(name: &str, value: &mut dyn FnMut() -> Result<String, String>) -> Result<(), String> {
    if name == "dispatch" {
        let pool = one_of(name, &value()?, &["adaptive", "pool"])?;
        POOL.store(pool == 1, Ordering::Relaxed);
    } else if let Some(switch) = SWITCHES.iter().find(|switch| switch.name == name) {
        let yes = one_of(name, &value()?, &["no", "yes"])?;
        switch.value.store(yes == 1, Ordering::Relaxed);
    } else if let Some(number) = NUMBERS.iter().find(|number| number.name == name) {
        number.value.store(parse_number(number, &value()?)?, Ordering::Relaxed);
    } else if let Some(text) = TEXTS.iter().find(|text| text.name == name) {
        let value = value()?;
        if !(text.valid)(&value) {
            return Err(format!("load argument {name} cannot be '{value}'"));
        }
        *text.value.lock() = value;
    } else {
        return Err(format!("unknown load argument '{name}'"));
    }
    Ok(())
}

fn one_of(name: &str, value: &str, allowed: &[&str]) -> Result<usize, String> {
    let value = value.to_ascii_lowercase();
    let found = allowed.iter().position(|&word| word == value);
    found.ok_or_else(|| format!("load argument {name} must be one of {}, not '{value}'", allowed.join(", ")))
}

fn parse_number(number: &Number, value: &str) -> Result<i64, String> {
    let value = value.to_ascii_lowercase();
    let (digits, unit) = if number.flags & BYTES != 0 { split_unit(&value) } else { (&*value, 1) };
    parse_integer(digits.as_bytes())
        .and_then(|number| number.checked_mul(unit))
        .filter(|value| (number.min..=number.max).contains(value))
        .ok_or_else(|| {
            let Number { name, min, max, .. } = number;
            format!("load argument {name} must be between {min} and {max}, not '{value}'")
        })
}

/// A size as redis.conf writes it: 1k is 1000 bytes, 1kb is 1024, and so on.
fn split_unit(value: &str) -> (&str, i64) {
    let binary = [("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];
    let decimal = [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000), ("b", 1)];
    let strip = |(unit, factor)| value.strip_suffix(unit).map(|digits| (digits, factor));
    binary.into_iter().chain(decimal).find_map(strip).unwrap_or((value, 1))
}

fn is_cluster(ctx: Ctx<'_>) -> bool {
    ctx.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
}

/// How many databases the host has, and what they are to it.
pub fn databases(ctx: Ctx<'_>) -> (u32, Cluster) {
    let number = |name| ctx.config_number(name).and_then(|count| u32::try_from(count).ok());
    let count = number(c"databases").unwrap_or_else(|| count_databases(|db| ctx.has_db(db)));
    match number(c"cluster-databases") {
        _ if !is_cluster(ctx) => (count, Cluster::Off),
        None => (count, Cluster::OneDatabase),
        // Valkey from 9 on.
        Some(count) => (count, Cluster::ManyDatabases),
    }
}

/// The lowest number without a database, where 0 has one.
fn count_databases(exists: impl Fn(u32) -> bool) -> u32 {
    let (mut last, mut beyond) = (0, 1);
    while beyond < i32::MAX as u32 / 2 && exists(beyond) {
        (last, beyond) = (beyond, beyond * 2);
    }
    while beyond - last > 1 {
        let middle = last + (beyond - last) / 2;
        if exists(middle) { last = middle } else { beyond = middle }
    }
    beyond
}

/// What the engine is made with.
pub fn engine_config(databases: u32, cluster: Cluster) -> Config {
    let threads = NUMBERS[0].value.load(Ordering::Relaxed);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Config {
        workers: if threads == 0 { cores } else { threads as usize },
        shards: NUMBERS[1].value.load(Ordering::Relaxed) as usize,
        databases,
        cluster,
        safemode: SAFEMODE.value.load(Ordering::Relaxed),
        clock: super::api::clock_ms,
    }
}

/// What can change later, as it stands now.
pub fn settings() -> Settings {
    let settings = Settings::default();
    settings.pool.store(POOL.load(Ordering::Relaxed), Ordering::Relaxed);
    for number in &NUMBERS {
        if let Some(live) = number.live {
            live(&settings).store(number.value.load(Ordering::Relaxed) as usize, Ordering::Relaxed);
        }
    }
    for switch in SWITCHES {
        if let Some(live) = switch.live {
            live(&settings).store(switch.value.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    settings
}

/// Why the TCP port is not opened: the host listens on no address itself.
pub const NO_ADDRESS: &str = "the server's bind is empty, and midi.bind is not set";

/// How the ports are to be opened.
pub fn port_config(ctx: Ctx<'_>) -> PortConfig {
    let own = BIND.value.lock().clone();
    let bind = if own.trim().is_empty() { bind_of_host(ctx) } else { own };
    let bind: Vec<String> = bind.split_ascii_whitespace().map(str::to_owned).collect();
    let unixsocket = UNIXSOCKET.value.lock().clone();
    let obstacle = if is_cluster(ctx) {
        Some("cluster-enabled is yes, and midi's ports know no cluster")
    } else {
        (bind.is_empty() && unixsocket.is_empty()).then_some(NO_ADDRESS)
    };
    PortConfig {
        port: numbered("port").value.load(Ordering::Relaxed) as u16,
        bind,
        unixsocket,
        unixsocketperm: file_mode(&UNIXSOCKETPERM.value.lock()).unwrap_or(0),
        backlog: ctx
            .config_number(c"tcp-backlog")
            .and_then(|backlog| i32::try_from(backlog).ok())
            .unwrap_or(511),
        obstacle,
    }
}

/// The host's `bind`. Who does not know it has no right to be seen from elsewhere.
fn bind_of_host(ctx: Ctx<'_>) -> String {
    let text = ctx.config_text(c"bind");
    text.map_or_else(|| "127.0.0.1 -::1".into(), |text| String::from_utf8_lossy(&text).into_owned())
}

/// Whether the host tells its settings: CONFIG may have been renamed.
pub fn are_told(ctx: Ctx<'_>) -> bool {
    ctx.config_text(c"bind").is_some()
}

/// `midi.maxclients`.
pub fn max_clients() -> usize {
    numbered(MAX_CLIENTS).value.load(Ordering::Relaxed) as usize
}

/// Lowers `midi.maxclients` to what can be had.
pub fn lower_max_clients(settings: &Settings, possible: usize) {
    numbered(MAX_CLIENTS).value.store(possible as i64, Ordering::Relaxed);
    settings.port.max_clients.store(possible, Ordering::Relaxed);
}

const MAX_CLIENTS: &str = "maxclients";

fn numbered(name: &str) -> &'static Number {
    NUMBERS.iter().find(|number| number.name == name).expect("one of the names above")
}

/// The engine's settings, once there is one.
fn live() -> Option<&'static Settings> {
    super::door::opened().then(|| &door().engine.settings)
}

unsafe extern "C" fn get_number(_: *const c_char, private: *mut c_void) -> c_longlong {
    // SAFETY: registered with one of NUMBERS.
    unsafe { &*private.cast::<Number>() }.value.load(Ordering::Relaxed)
}

unsafe extern "C" fn set_number(
    _: *const c_char,
    value: c_longlong,
    private: *mut c_void,
    error: *mut *mut RawString,
) -> c_int {
    // SAFETY: registered with one of NUMBERS.
    let number = unsafe { &*private.cast::<Number>() };
    if number.name == MAX_CLIENTS
        && let Err(reason) = descriptors::make_room(value as usize)
    {
        // SAFETY: the host's own place for an error, which it frees.
        unsafe { *error = OwnString::new(reason.as_bytes()).into_raw() };
        return raw::REDISMODULE_ERR as c_int;
    }
    number.value.store(value, Ordering::Relaxed);
    if let (Some(target), Some(settings)) = (number.live, live()) {
        target(settings).store(value as usize, Ordering::Relaxed);
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get_dispatch(_: *const c_char, _: *mut c_void) -> c_int {
    c_int::from(POOL.load(Ordering::Relaxed))
}

unsafe extern "C" fn set_dispatch(
    _: *const c_char,
    value: c_int,
    _: *mut c_void,
    _: *mut *mut RawString,
) -> c_int {
    POOL.store(value == 1, Ordering::Relaxed);
    if let Some(settings) = live() {
        settings.pool.store(value == 1, Ordering::Relaxed);
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get_switch(_: *const c_char, private: *mut c_void) -> c_int {
    // SAFETY: registered with one of SWITCHES.
    c_int::from(unsafe { &*private.cast::<Switch>() }.value.load(Ordering::Relaxed))
}

unsafe extern "C" fn set_switch(
    _: *const c_char,
    value: c_int,
    private: *mut c_void,
    _: *mut *mut RawString,
) -> c_int {
    // SAFETY: registered with one of SWITCHES.
    let switch = unsafe { &*private.cast::<Switch>() };
    switch.value.store(value != 0, Ordering::Relaxed);
    if let (Some(target), Some(settings)) = (switch.live, live()) {
        target(settings).store(value != 0, Ordering::Relaxed);
    }
    raw::REDISMODULE_OK as c_int
}

/// The host copies the string, and leaves it to us.
unsafe extern "C" fn get_text(_: *const c_char, private: *mut c_void) -> *mut RawString {
    // SAFETY: registered with one of TEXTS; each string is made here, and freed once, here.
    unsafe {
        let text = &*private.cast::<Text>();
        let now = OwnString::new(text.value.lock().as_bytes()).into_raw();
        drop(OwnString::of(text.told.swap(now, Ordering::Relaxed)));
        now
    }
}

unsafe extern "C" fn set_text(
    _: *const c_char,
    value: *mut RawString,
    private: *mut c_void,
    error: *mut *mut RawString,
) -> c_int {
    // SAFETY: registered with one of TEXTS; the host's string lives during the call.
    let (text, value) = unsafe { (&*private.cast::<Text>(), HostString::new(value)) };
    let value = String::from_utf8_lossy(value.map_or(&[], HostString::bytes));
    if !(text.valid)(&value) {
        // SAFETY: the host's own place for an error, which it frees.
        unsafe { *error = OwnString::new(b"not a file mode in octal digits, 777 at most").into_raw() };
        return raw::REDISMODULE_ERR as c_int;
    }
    *text.value.lock() = value.into_owned();
    raw::REDISMODULE_OK as c_int
}
