//! Settings: `midi.*` in redis.conf, CONFIG GET, SET and REWRITE, and the
//! arguments of `loadmodule`.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use redis_module::raw;

use super::api::{Ctx, RawString, api, leaked};
use super::door::door;
use crate::command::parse_integer;
use crate::limits;
use crate::shard::{Config, Settings};

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

static NUMBERS: [Number; 9] = [
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
];

static SAFEMODE: AtomicBool = AtomicBool::new(false);
static POOL: AtomicBool = AtomicBool::new(false);

/// Reads the load arguments, registers all settings with those as defaults, and
/// lets the host set what its configuration file names: so what CONFIG REWRITE
/// wrote there counts, whatever the load arguments say.
///
/// # Errors
/// What is wrong, for the host's log.
pub fn load(ctx: Ctx, args: &[&[u8]]) -> Result<(), String> {
    read_arguments(args)?;
    let registered = NUMBERS.iter().all(|number| register_number(ctx, number)) && register_others(ctx);
    // SAFETY: in OnLoad.
    if !registered || unsafe { api!(RedisModule_LoadConfigs)(ctx.0) } != raw::REDISMODULE_OK as c_int {
        return Err("a midi.* setting in the configuration file is not valid".into());
    }
    let shards = NUMBERS[1].value.load(Ordering::Relaxed);
    if shards & (shards - 1) != 0 {
        return Err(format!("midi.shards must be a power of two, not {shards}"));
    }
    Ok(())
}

fn register_number(ctx: Ctx, number: &'static Number) -> bool {
    let private = std::ptr::from_ref(number).cast_mut().cast();
    // SAFETY: in OnLoad; name and private data live forever.
    let result = unsafe {
        api!(RedisModule_RegisterNumericConfig)(
            ctx.0,
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

fn register_others(ctx: Ctx) -> bool {
    let mut names = [leaked("adaptive"), leaked("pool")];
    let values = [0, 1];
    let fixed = FIXED as c_uint;
    let nothing = std::ptr::null_mut();
    // SAFETY: in OnLoad; the host copies the names and values.
    unsafe {
        let dispatch = api!(RedisModule_RegisterEnumConfig)(
            ctx.0,
            c"dispatch".as_ptr(),
            c_int::from(POOL.load(Ordering::Relaxed)),
            0,
            names.as_mut_ptr(),
            values.as_ptr(),
            2,
            Some(get_dispatch),
            Some(set_dispatch),
            None,
            nothing,
        );
        let safemode = api!(RedisModule_RegisterBoolConfig)(
            ctx.0,
            c"safemode".as_ptr(),
            c_int::from(SAFEMODE.load(Ordering::Relaxed)),
            fixed,
            Some(get_safemode),
            Some(set_safemode),
            None,
            nothing,
        );
        dispatch == raw::REDISMODULE_OK as c_int && safemode == raw::REDISMODULE_OK as c_int
    }
}

/// `SAFEMODE`, or names and values as in the configuration file, with or
/// without `midi.` in front.
fn read_arguments(args: &[&[u8]]) -> Result<(), String> {
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let word = String::from_utf8_lossy(arg).to_ascii_lowercase();
        let name = word.strip_prefix("midi.").unwrap_or(&word);
        let switch = |next: &&&[u8]| next.eq_ignore_ascii_case(b"yes") || next.eq_ignore_ascii_case(b"no");
        let bare = word == "safemode" && !args.peek().is_some_and(switch);
        let mut value = || {
            let value = args.next().ok_or(format!("load argument {name} needs a value"))?;
            Ok::<_, String>(String::from_utf8_lossy(value).to_ascii_lowercase())
        };
        if bare {
            SAFEMODE.store(true, Ordering::Relaxed);
        } else if name == "safemode" {
            let yes = one_of(name, &value()?, &["no", "yes"])?;
            SAFEMODE.store(yes == 1, Ordering::Relaxed);
        } else if name == "dispatch" {
            let pool = one_of(name, &value()?, &["adaptive", "pool"])?;
            POOL.store(pool == 1, Ordering::Relaxed);
        } else if let Some(number) = NUMBERS.iter().find(|number| number.name == name) {
            number.value.store(parse_number(number, &value()?)?, Ordering::Relaxed);
        } else {
            return Err(format!("unknown load argument '{word}'"));
        }
    }
    Ok(())
}

fn one_of(name: &str, value: &str, allowed: &[&str]) -> Result<usize, String> {
    let found = allowed.iter().position(|&word| word == value);
    found.ok_or_else(|| format!("load argument {name} must be one of {}, not '{value}'", allowed.join(", ")))
}

fn parse_number(number: &Number, value: &str) -> Result<i64, String> {
    let (digits, unit) = if number.flags & BYTES != 0 { split_unit(value) } else { (value, 1) };
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

/// What the engine is made with.
pub fn engine_config(databases: u32) -> Config {
    let threads = NUMBERS[0].value.load(Ordering::Relaxed);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Config {
        workers: if threads == 0 { cores } else { threads as usize },
        shards: NUMBERS[1].value.load(Ordering::Relaxed) as usize,
        databases,
        safemode: SAFEMODE.load(Ordering::Relaxed),
        clock: super::api::clock_ms,
    }
}

/// What can change later, as it stands now.
pub fn settings() -> Settings {
    let settings = Settings {
        pool: AtomicBool::new(POOL.load(Ordering::Relaxed)),
        max_jobs: AtomicUsize::default(),
        max_queued: AtomicUsize::default(),
        max_pattern_bytes: AtomicUsize::default(),
        max_key_bytes: AtomicUsize::default(),
        max_value_bytes: AtomicUsize::default(),
        keep_bytes: AtomicUsize::default(),
        max_atomic_keys: AtomicUsize::default(),
        port: Default::default(),
    };
    for number in &NUMBERS {
        if let Some(live) = number.live {
            live(&settings).store(number.value.load(Ordering::Relaxed) as usize, Ordering::Relaxed);
        }
    }
    settings
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
    _: *mut *mut RawString,
) -> c_int {
    // SAFETY: registered with one of NUMBERS.
    let number = unsafe { &*private.cast::<Number>() };
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

unsafe extern "C" fn get_safemode(_: *const c_char, _: *mut c_void) -> c_int {
    c_int::from(SAFEMODE.load(Ordering::Relaxed))
}

unsafe extern "C" fn set_safemode(
    _: *const c_char,
    value: c_int,
    _: *mut c_void,
    _: *mut *mut RawString,
) -> c_int {
    SAFEMODE.store(value != 0, Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}
