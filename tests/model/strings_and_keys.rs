//! The promise: commands answer what Redis 7.0 answers.
//!
//! Random programs run on the engine, on one thread with its own clock, and on a plain map that
//! follows Redis's t_string.c, bitops.c, expire.c and db.c. Replies must be the same, and the
//! engine's counts must be right at the end.
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use midi::command::{Args, Cluster, Keep, Reply, Transcript, find};
use midi::engine::{
    Author, Call, ChangedBy, Config, Engine, Gates, Locked, Outcome, Settings, Taking, long_work,
};
use midi::store::{Census, Now, SharedValue, UnixMs};
use proptest::prelude::*;

thread_local! {
    static CLOCK: Cell<UnixMs> = const { Cell::new(0) };
}

const START: UnixMs = 1_600_000_000_000;

/// From this size on values are kept, not copied.
const KEEP_BYTES: usize = 600;

const MAX_VALUE_BYTES: usize = 10_000;

const DATABASES: u32 = 3;

fn engine(shards: usize) -> Engine {
    CLOCK.set(START);
    let config = Config {
        workers: 1,
        shards,
        databases: DATABASES,
        cluster: Cluster::Off,
        safemode: false,
        clock: || CLOCK.get(),
    };
    let settings = Settings {
        max_pattern_bytes: AtomicUsize::new(100),
        max_key_bytes: AtomicUsize::new(1000),
        max_value_bytes: AtomicUsize::new(MAX_VALUE_BYTES),
        keep_bytes: AtomicUsize::new(KEEP_BYTES),
        ..Settings::default()
    };
    let engine = Engine::new(config, settings, Box::new(|| {})).expect("an eventfd");
    // No host is loading its data.
    engine.ledger.set_gates(locked(), Gates::OPEN);
    engine
}

/// An element of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Simple(String),
    Null,
    Integer(i64),
    Bulk(Vec<u8>),
    Error(String),
    Array(usize),
}

fn ok() -> Vec<Said> {
    vec![Said::Simple("OK".into())]
}

fn integer(number: i64) -> Vec<Said> {
    vec![Said::Integer(number)]
}

fn error(text: &str) -> Vec<Said> {
    vec![Said::Error(text.into())]
}

/// Records a reply.
#[derive(Default)]
struct Record(Vec<Said>);

impl Reply for Record {
    fn simple(&mut self, text: &'static str) {
        self.0.push(Said::Simple(text.into()));
    }
    fn null(&mut self) {
        self.0.push(Said::Null);
    }
    fn integer(&mut self, number: i64) {
        self.0.push(Said::Integer(number));
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.0.push(Said::Bulk(bytes.to_vec()));
    }
    fn double(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }
    fn verbatim(&mut self, text: &[u8]) {
        self.bulk(text);
    }
    fn error(&mut self, text: &[u8]) {
        self.0.push(Said::Error(String::from_utf8_lossy(text).into_owned()));
    }
    fn array(&mut self, len: usize) {
        self.0.push(Said::Array(len));
    }
    fn map(&mut self, len: usize) {
        self.array(2 * len);
    }
}

/// A door that can keep any argument.
struct Keeper<'a>(&'a [&'a [u8]]);

impl Keep for Keeper<'_> {
    fn keep(&self, index: usize) -> Option<SharedValue> {
        Some(SharedValue::new(self.0[index].to_vec()))
    }
}

/// The global lock: there is no host, and each test has its own engine.
fn locked<'a>() -> Locked<'a> {
    // SAFETY: each engine is used by one thread.
    unsafe { Locked::assume() }
}

/// Runs a command as the host door does: at once if possible, else to its end. Every other reply
/// goes through a transcript.
fn run(engine: &Engine, db: u32, args: &[Vec<u8>], max_reply_bytes: usize) -> Vec<Said> {
    let list: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let keeper = Keeper(&list);
    let mut call = Call {
        command: find(list[0]).expect("a command of the table"),
        args: Args::with_keeper(&list, &keeper),
        db,
        now: Now::lazy(engine.config().clock),
        limits: engine.settings().limits(max_reply_bytes),
        prefix: "midi.",
        author: Author::Nobody,
    };
    let mut record = Record::default();
    if let Err(error) = call.row().check_arity(&call.args) {
        call.refuse(error, &mut record);
        return record.0;
    }
    let mut transcript = Transcript::default();
    match engine.attempt(engine.main_slot(locked()), &call, Taking::MAIN, &mut transcript) {
        Outcome::Done => transcript.play(&mut record),
        Outcome::Busy => panic!("there is only one thread"),
        Outcome::TooLarge => {
            assert!(transcript.is_empty(), "nothing has been said");
            call.limits = engine.settings().limits(usize::MAX);
            let outcome = engine.attempt(
                engine.main_slot(locked()),
                &call,
                Taking::Wait(locked()),
                &mut record,
            );
            assert_eq!(outcome, Outcome::Done);
        }
        Outcome::Long => match long_work(engine, &call, Some(locked())) {
            Ok(work) => work.run_to_end(engine, locked(), &mut record),
            Err(error) => call.refuse(error, &mut record),
        },
        Outcome::NeedsMain => panic!("this is the main thread"),
    }
    record.0
}

/// One database of the model: values, and when they expire.
type Database = BTreeMap<Vec<u8>, (Vec<u8>, Option<UnixMs>)>;

/// What Redis would hold. Keys that are due stay until a command reads them, as in Redis; only
/// DBSIZE shows that.
#[derive(Default)]
struct Model {
    dbs: [Database; DATABASES as usize],
}

impl Model {
    fn live(&self, db: u32, key: &[u8]) -> Option<&(Vec<u8>, Option<UnixMs>)> {
        self.dbs[db as usize].get(key).filter(|(_, at)| !is_due(*at))
    }

    fn live_keys(&self, db: u32) -> BTreeSet<Vec<u8>> {
        let table = &self.dbs[db as usize];
        table.iter().filter(|(_, (_, at))| !is_due(*at)).map(|(key, _)| key.clone()).collect()
    }

    fn run(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
        let name = std::str::from_utf8(&args[0]).expect("names are text");
        match name {
            "get" => self.get(db, &args[1]),
            "set" => self.set(db, args),
            "mget" => {
                let mut said = vec![Said::Array(args.len() - 1)];
                args[1..].iter().for_each(|key| said.extend(self.get(db, key)));
                said
            }
            "mset" if args.len().is_multiple_of(2) => {
                error("ERR wrong number of arguments for 'midi.mset' command")
            }
            "mset" => {
                for pair in args[1..].chunks(2) {
                    self.dbs[db as usize].insert(pair[0].clone(), (pair[1].clone(), None));
                }
                ok()
            }
            "exists" | "touch" => {
                integer(args[1..].iter().filter(|key| self.live(db, key).is_some()).count() as i64)
            }
            "del" | "unlink" => {
                let mut count = 0;
                for key in &args[1..] {
                    count += i64::from(self.live(db, key).is_some());
                    self.dbs[db as usize].remove(key);
                }
                integer(count)
            }
            "type" => {
                let kind = if self.live(db, &args[1]).is_some() { "string" } else { "none" };
                vec![Said::Simple(kind.into())]
            }
            "expire" => self.expire(db, args, 1000, CLOCK.get()),
            "pexpire" => self.expire(db, args, 1, CLOCK.get()),
            "expireat" => self.expire(db, args, 1000, 0),
            "pexpireat" => self.expire(db, args, 1, 0),
            "expiretime" => self.expire_time(db, &args[1], |ms| ((ms as u64 + 500) / 1000) as i64),
            "pexpiretime" => self.expire_time(db, &args[1], |ms| ms),
            "rename" | "renamenx" => self.rename(db, args, name == "rename"),
            "copy" => self.copy(db, args),
            "move" => self.move_key(db, args),
            "swapdb" => self.swap(args),
            "ttl" => self.time_to_live(db, &args[1], |ms| (ms + 500) / 1000),
            "pttl" => self.time_to_live(db, &args[1], |ms| ms),
            "persist" => {
                let had = self.live(db, &args[1]).is_some_and(|(_, at)| at.is_some());
                if had && let Some((_, at)) = self.dbs[db as usize].get_mut(&args[1]) {
                    *at = None;
                }
                integer(i64::from(had))
            }
            "populate" => {
                let count: u64 = String::from_utf8_lossy(&args[1]).parse().expect("made so");
                let size: usize = String::from_utf8_lossy(&args[3]).parse().expect("made so");
                for number in 0..count {
                    let key = [&args[2][..], b":", number.to_string().as_bytes()].concat();
                    let mut value = format!("value:{number}").into_bytes();
                    if size > 0 {
                        value.resize(size, 0);
                    }
                    if self.live(db, &key).is_none() {
                        self.dbs[db as usize].insert(key, (value, None));
                    }
                }
                ok()
            }
            "setbit" | "getbit" => self.one_bit(db, args),
            "bitcount" if is_backwards(&args[2..]) => integer(0),
            "bitcount" => integer(match self.range_of_bits(db, &args[1], &args[2..]) {
                None => 0,
                Some((value, range)) => range.filter(|&at| bit(&value, at)).count() as i64,
            }),
            "bitpos" => {
                let wanted = args[2] == b"1";
                integer(match self.range_of_bits(db, &args[1], &args[3..]) {
                    None => -i64::from(wanted),
                    Some((value, mut range)) => range.find(|&at| bit(&value, at) == wanted).map_or(
                        if wanted || args.len() > 3 || value.is_empty() {
                            -1
                        } else {
                            8 * value.len() as i64
                        },
                        |at| at as i64,
                    ),
                })
            }
            "bitfield" => self.increment(db, args),
            "bitop" => self.bitop(db, args),
            "delifeq" => {
                let same = self.live(db, &args[1]).is_some_and(|(value, _)| *value == args[2]);
                if same {
                    self.dbs[db as usize].remove(&args[1]);
                }
                integer(same.into())
            }
            "flushdb" => {
                self.dbs[db as usize].clear();
                ok()
            }
            "flushall" => {
                self.dbs.iter_mut().for_each(BTreeMap::clear);
                ok()
            }
            _ => unreachable!("{name}"),
        }
    }

    fn get(&self, db: u32, key: &[u8]) -> Vec<Said> {
        vec![self.live(db, key).map_or(Said::Null, |(value, _)| Said::Bulk(value.clone()))]
    }

    fn time_to_live(&self, db: u32, key: &[u8], unit: fn(i64) -> i64) -> Vec<Said> {
        integer(match self.live(db, key) {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(at))) => unit((at - CLOCK.get()).max(0)),
        })
    }

    fn expire_time(&self, db: u32, key: &[u8], unit: fn(i64) -> i64) -> Vec<Said> {
        integer(match self.live(db, key) {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(at))) => unit(*at),
        })
    }

    /// The key's value, extended to at least this many bytes, or a new one.
    fn lengthened(&mut self, db: u32, key: &[u8], len: usize) -> &mut Vec<u8> {
        let (mut value, at) = self.live(db, key).cloned().unwrap_or_default();
        value.resize(value.len().max(len), 0);
        let place = self.dbs[db as usize].entry(key.to_vec()).or_default();
        *place = (value, at);
        &mut place.0
    }

    /// setbitCommand and getbitCommand.
    fn one_bit(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
        let at = integer_argument(&args[2]).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at.filter(|at| at / 8 < MAX_VALUE_BYTES) else {
            return error("ERR bit offset is not an integer or out of range");
        };
        let old = self.live(db, &args[1]).is_some_and(|(value, _)| bit(value, at));
        if args.len() > 3 {
            let byte = &mut self.lengthened(db, &args[1], at / 8 + 1)[at / 8];
            let mask = 0x80 >> (at % 8);
            *byte = if args[3] == b"1" { *byte | mask } else { *byte & !mask };
        }
        integer(old.into())
    }

    /// A value, and the bits that two offsets and BIT select; `None` if there is no key.
    fn range_of_bits(
        &self,
        db: u32,
        key: &[u8],
        range: &[Vec<u8>],
    ) -> Option<(Vec<u8>, Range<usize>)> {
        let (value, _) = self.live(db, key)?;
        let bits = 8 * value.len() as i64;
        let offset = |at: usize| {
            let number = integer_argument(&range[at]).expect("made so");
            if number < 0 { (bits + number).max(0) } else { number }
        };
        let (start, end) =
            if range.is_empty() { (0, bits) } else { (offset(0), (offset(1) + 1).min(bits)) };
        Some((value.clone(), start as usize..end as usize))
    }

    /// bitfieldCommand with INCRBY u16.
    fn increment(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
        let at = integer_argument(&args[4]).expect("made so") as usize;
        let more = integer_argument(&args[5]).expect("made so");
        let value = self.lengthened(db, &args[1], (at + 16).div_ceil(8));
        let old = (at..at + 16).fold(0u16, |number, at| number << 1 | u16::from(bit(value, at)));
        let new = old.wrapping_add(more as u16);
        for place in 0..16 {
            let (byte, mask) = (&mut value[(at + place) / 8], 0x80 >> ((at + place) % 8));
            *byte = if new >> (15 - place) & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
        vec![Said::Array(1), Said::Integer(new.into())]
    }

    /// bitopCommand.
    fn bitop(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
        let values: Vec<Vec<u8>> =
            args[3..].iter().map(|key| self.live(db, key).cloned().unwrap_or_default().0).collect();
        let longest = values.iter().map(Vec::len).max().unwrap_or(0);
        let bytes = |at: usize| values.iter().map(move |value| value.get(at).copied().unwrap_or(0));
        let result: Option<Vec<u8>> = (0..longest)
            .map(|at| match args[1].as_slice() {
                b"and" => bytes(at).reduce(|a, b| a & b),
                b"or" => bytes(at).reduce(|a, b| a | b),
                b"xor" => bytes(at).reduce(|a, b| a ^ b),
                _ => bytes(at).next().map(|byte| !byte),
            })
            .collect();
        self.dbs[db as usize].remove(&args[2]);
        if let Some(result) = result.filter(|_| longest > 0) {
            self.dbs[db as usize].insert(args[2].clone(), (result, None));
        }
        integer(longest as i64)
    }

    /// renameGenericCommand.
    fn rename(&mut self, db: u32, args: &[Vec<u8>], replace: bool) -> Vec<Said> {
        let Some(value) = self.live(db, &args[1]).cloned() else {
            return error("ERR no such key");
        };
        let moved = args[1] != args[2] && (replace || self.live(db, &args[2]).is_none());
        if moved {
            self.dbs[db as usize].remove(&args[1]);
            self.dbs[db as usize].insert(args[2].clone(), value);
        }
        if replace { ok() } else { integer(i64::from(moved)) }
    }

    /// copyCommand.
    fn copy(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
        let (mut to, mut replace) = (db, false);
        let mut options = args[3..].iter();
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"replace") {
                replace = true;
                continue;
            }
            let (b"db", Some(number)) = (option.as_slice(), options.next()) else {
                return error("ERR syntax error");
            };
            to = match database(number) {
                Ok(db) => db,
                Err(refusal) => return refusal,
            };
        }
        if to == db && args[1] == args[2] {
            return error("ERR source and destination objects are the same");
        }
        match self.live(db, &args[1]).cloned() {
            Some(value) if replace || self.live(to, &args[2]).is_none() => {
                self.dbs[to as usize].insert(args[2].clone(), value);
                integer(1)
            }
            _ => integer(0),
        }
    }

    /// moveCommand.
    fn move_key(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
        let to = match database(&args[2]) {
            Ok(to) if to == db => return error("ERR source and destination objects are the same"),
            Ok(to) => to,
            Err(refusal) => return refusal,
        };
        match self.live(db, &args[1]).cloned() {
            Some(value) if self.live(to, &args[1]).is_none() => {
                self.dbs[db as usize].remove(&args[1]);
                self.dbs[to as usize].insert(args[1].clone(), value);
                integer(1)
            }
            _ => integer(0),
        }
    }

    /// swapdbCommand.
    fn swap(&mut self, args: &[Vec<u8>]) -> Vec<Said> {
        let number = |at: usize| integer_argument(&args[at]).filter(|&n| i32::try_from(n).is_ok());
        match (number(1), number(2)) {
            (None, _) => error("ERR invalid first DB index"),
            (_, None) => error("ERR invalid second DB index"),
            _ => match (database(&args[1]), database(&args[2])) {
                (Ok(a), Ok(b)) => {
                    self.dbs.swap(a as usize, b as usize);
                    ok()
                }
                (Err(refusal), _) | (_, Err(refusal)) => refusal,
            },
        }
    }

    /// parseExtendedStringArgumentsOrReply, getExpireMillisecondsOrReply and setGenericCommand.
    fn set(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
        let (mut nx, mut xx, mut get, mut keep) = (false, false, false, false);
        let mut expiry: Option<(String, &[u8])> = None;
        let mut at = 3;
        while at < args.len() {
            let word = String::from_utf8_lossy(&args[at]).to_ascii_lowercase();
            match word.as_str() {
                "nx" if !xx => nx = true,
                "xx" if !nx => xx = true,
                "get" => get = true,
                "keepttl" if expiry.is_none() => keep = true,
                "ex" | "px" | "exat" | "pxat"
                    if !keep
                        && expiry.as_ref().is_none_or(|(before, _)| *before == word)
                        && at + 1 < args.len() =>
                {
                    at += 1;
                    expiry = Some((word, &args[at]));
                }
                _ => return error("ERR syntax error"),
            }
            at += 1;
        }
        let mut expire_at = None;
        if let Some((unit, number)) = &expiry {
            let Some(number) = integer_argument(number) else {
                return error("ERR value is not an integer or out of range");
            };
            let scale = if unit.starts_with('e') { 1000 } else { 1 };
            let base = if unit.ends_with("at") { 0 } else { i128::from(CLOCK.get()) };
            match i64::try_from(i128::from(number) * scale + base) {
                Ok(at) if number > 0 => expire_at = Some(at),
                _ => return error("ERR invalid expire time in 'midi.set' command"),
            }
        }
        let old = self.live(db, &args[1]).cloned();
        let mut said = if get { self.get(db, &args[1]) } else { Vec::new() };
        if nx && old.is_some() || xx && old.is_none() {
            if !get {
                said.push(Said::Null);
            }
            return said;
        }
        if keep {
            expire_at = old.and_then(|(_, at)| at);
        }
        self.dbs[db as usize].insert(args[1].clone(), (args[2].clone(), expire_at));
        if !get {
            said = ok();
        }
        said
    }

    /// parseExtendedExpireArgumentsOrReply and expireGenericCommand.
    fn expire(&mut self, db: u32, args: &[Vec<u8>], unit: i64, base: i64) -> Vec<Said> {
        let name = String::from_utf8_lossy(&args[0]).into_owned();
        let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
        for word in &args[3..] {
            match String::from_utf8_lossy(word).to_ascii_lowercase().as_str() {
                "nx" => nx = true,
                "xx" => xx = true,
                "gt" => gt = true,
                "lt" => lt = true,
                _ => {
                    return error(&format!(
                        "ERR Unsupported option {}",
                        String::from_utf8_lossy(word)
                    ));
                }
            }
        }
        if nx && (xx || gt || lt) {
            return error("ERR NX and XX, GT or LT options at the same time are not compatible");
        }
        if gt && lt {
            return error("ERR GT and LT options at the same time are not compatible");
        }
        let Some(number) = integer_argument(&args[2]) else {
            return error("ERR value is not an integer or out of range");
        };
        let fits = i64::try_from(i128::from(number) * i128::from(unit))
            .is_ok_and(|ms| ms <= i64::MAX - base);
        if !fits {
            return error(&format!("ERR invalid expire time in 'midi.{name}' command"));
        }
        let when = number * unit + base;
        let Some((_, current)) = self.live(db, &args[1]) else {
            return integer(0);
        };
        let refused = match *current {
            None => xx || gt,
            Some(current) => nx || gt && when <= current || lt && when >= current,
        };
        if refused {
            return integer(0);
        }
        if when <= CLOCK.get() {
            self.dbs[db as usize].remove(&args[1]);
        } else if let Some((_, at)) = self.dbs[db as usize].get_mut(&args[1]) {
            *at = Some(when);
        }
        integer(1)
    }
}

/// Whether both offsets count from the end and the range is the wrong way round: BITCOUNT checks
/// the offsets as written, BITPOS after it has resolved them.
fn is_backwards(range: &[Vec<u8>]) -> bool {
    let numbers: Vec<i64> = range.iter().filter_map(|word| integer_argument(word)).collect();
    numbers.len() == 2 && numbers[1] < 0 && numbers[0] < 0 && numbers[0] > numbers[1]
}

fn bit(value: &[u8], at: usize) -> bool {
    value.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
}

/// Whether a key with that expiry is gone.
fn is_due(at: Option<UnixMs>) -> bool {
    at.is_some_and(|at| at < CLOCK.get())
}

/// The number of a database, or Redis's refusal.
fn database(text: &[u8]) -> Result<u32, Vec<Said>> {
    let Some(number) = integer_argument(text) else {
        return Err(error("ERR value is not an integer or out of range"));
    };
    if i32::try_from(number).is_err() {
        return Err(error(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let db = u32::try_from(number).ok().filter(|&db| db < DATABASES);
    db.ok_or_else(|| error("ERR DB index is out of range"))
}

fn integer_argument(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

#[derive(Clone, Debug)]
enum Step {
    Command(Vec<Vec<u8>>),
    /// Time passes.
    Later(i64),
    Select(u32),
    SwapDbs(u32, u32),
    DbSize,
    RandomKey,
    Keys(&'static str, fn(&[u8]) -> bool),
    /// A whole SCAN, with commands between its calls.
    Scan(usize, Vec<Vec<Vec<u8>>>),
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Few keys, so that commands hit each other's: most are short, and some have every shape of an
/// entry.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        40 => (0..30u32).prop_map(|n| format!("key:{n}").into_bytes()),
        20 => (0..3000u32).prop_map(|n| format!("many:{n}").into_bytes()),
        1 => Just(Vec::new()),
        1 => Just(vec![0xff; 255]),
        1 => Just(b"\0\r\n".repeat(100)),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        8 => 0..40usize,
        2 => 250..260usize,
        1 => 1000..1010usize,
        2 => Just(KEEP_BYTES - 1),
        2 => KEEP_BYTES..KEEP_BYTES + 3,
    ];
    (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
}

fn number() -> impl Strategy<Value = String> {
    let odd = &[
        "0",
        "-1",
        "abc",
        "",
        "01",
        "9223372036854775807",
        "9223372036854775",
        "-9223372036854775808",
    ];
    prop_oneof![
        12 => (1..20i64).prop_map(|n| n.to_string()),
        6 => (1..20_000i64).prop_map(|n| n.to_string()),
        1 => (-20_000..0i64).prop_map(|n| n.to_string()),
        2 => proptest::sample::select(&odd[..]).prop_map(str::to_owned),
    ]
}

/// An expiry time, near the start of the clock.
fn moment() -> impl Strategy<Value = String> {
    (-5_000..30_000i64).prop_map(|ms| (START + ms).to_string())
}

fn set_option() -> impl Strategy<Value = Vec<String>> {
    let word = |word: &str| Just(vec![word.to_owned()]).boxed();
    let with = |word: &'static str, number: BoxedStrategy<String>| {
        number.prop_map(move |number| vec![word.to_owned(), number]).boxed()
    };
    prop_oneof![
        3 => word("nx"),
        3 => word("XX"),
        4 => word("Get"),
        4 => word("keepTTL"),
        4 => with("ex", number().boxed()),
        4 => with("PX", number().boxed()),
        2 => with("exat", moment().prop_map(|ms| ms[..ms.len() - 3].to_owned()).boxed()),
        2 => with("PXAT", moment().boxed()),
        1 => with("pxat", number().boxed()),
        1 => word("ex"),
        1 => word("nonsense"),
    ]
}

fn set_options() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let how_many = prop_oneof![3 => 0..1usize, 3 => 1..2usize, 2 => 2..4usize];
    how_many
        .prop_flat_map(|count| proptest::collection::vec(set_option(), count))
        .prop_map(|options| options.into_iter().flatten().map(String::into_bytes).collect())
}

fn expire_conditions() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = proptest::sample::select(&["nx", "XX", "gt", "LT", "gt", "lt", "what"][..]);
    proptest::collection::vec(word.prop_map(|word| word.as_bytes().to_vec()), 0..3)
}

/// Usually the number of a database.
fn db_number() -> impl Strategy<Value = Vec<u8>> {
    const ODD: &[&str] =
        &["-1", "3", "01", "x", "2147483648", "-2147483649", "9223372036854775808"];
    prop_oneof![
        15 => (0..DATABASES).prop_map(|db| db.to_string().into_bytes()),
        1 => proptest::sample::select(ODD).prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn copy_options() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let option = prop_oneof![
        6 => Just(words(&["Replace"])),
        6 => db_number().prop_map(|db| vec![b"db".to_vec(), db]),
        1 => Just(words(&["db"])),
        1 => Just(words(&["what"])),
    ];
    proptest::collection::vec(option, 0..3).prop_map(|options| options.concat())
}

/// Commands about bits.
fn bits() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let offset = || prop_oneof![8 => 0..300i64, 2 => 0..9000i64];
    let last = i64::MAX - 1;
    let end = || prop_oneof![4 => offset(), 2 => -300..0i64, 1 => Just(i64::MIN), 1 => Just(last)];
    let range = prop_oneof![
        1 => Just(String::new()),
        3 => (end(), end()).prop_map(|(start, end)| format!(" {start} {end} BIT")),
    ];
    let far = proptest::sample::select(&["-1", "80000", "abc"][..]);
    let combined = [
        "bitop and KEY OTHER KEY",
        "bitop or OTHER KEY OTHER",
        "bitop xor KEY OTHER",
        "bitop not KEY OTHER",
        "bitop or KEY many:1 many:2 OTHER",
    ];
    let combined = proptest::sample::select(combined.to_vec());
    let line = prop_oneof![
        4 => (offset(), 0..2).prop_map(|(at, bit)| format!("setbit KEY {at} {bit}")),
        2 => offset().prop_map(|at| format!("getbit KEY {at}")),
        1 => far.prop_map(|at| format!("setbit KEY {at} 1")),
        2 => range.clone().prop_map(|range| format!("bitcount KEY{range}")),
        2 => (0..2, range).prop_map(|(bit, range)| format!("bitpos KEY {bit}{range}")),
        2 => (offset(), -9..9)
            .prop_map(|(at, more)| format!("bitfield KEY incrby u16 {at} {more}")),
        2 => combined.prop_map(str::to_owned),
    ];
    (line, key(), key()).prop_map(|(line, first, second)| {
        let word = |word: &str| match word {
            "KEY" => first.clone(),
            "OTHER" => second.clone(),
            word => word.as_bytes().to_vec(),
        };
        line.split(' ').map(word).collect()
    })
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = |names: &'static [&'static str]| {
        (proptest::sample::select(names), key()).prop_map(|(name, key)| vec![name.into(), key])
    };
    let one_of = |names: &'static [&'static str]| proptest::sample::select(names);
    let many = |names: &'static [&'static str]| {
        (proptest::sample::select(names), proptest::collection::vec(key(), 1..6))
            .prop_map(|(name, keys)| [words(&[name]), keys].concat())
    };
    prop_oneof![
        6 => one(&["get", "type", "ttl", "pttl", "expiretime", "pexpiretime", "persist"]),
        8 => (key(), value(), set_options())
            .prop_map(|(key, value, options)| {
                [vec![b"set".to_vec(), key, value], options].concat()
            }),
        3 => many(&["mget", "exists", "touch", "del", "unlink", "mset"]),
        3 => proptest::collection::vec((key(), value()), 1..5).prop_map(|pairs| {
            let pairs = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            [words(&["mset"]), pairs.collect()].concat()
        }),
        4 => (one_of(&["expire", "pexpire"]), key(), number(), expire_conditions())
            .prop_map(|(name, key, number, conditions)| {
                [vec![name.into(), key, number.into_bytes()], conditions].concat()
            }),
        2 => (key(), prop_oneof![3 => moment(), 1 => number()], expire_conditions())
            .prop_map(|(key, number, conditions)| {
                [vec![b"pexpireat".to_vec(), key, number.into_bytes()], conditions].concat()
            }),
        1 => (key(), moment(), expire_conditions()).prop_map(|(key, ms, conditions)| {
            let seconds = ms.as_bytes()[..ms.len() - 3].to_vec();
            [vec![b"expireat".to_vec(), key, seconds], conditions].concat()
        }),
        2 => (proptest::sample::select(&["rename", "renamenx"][..]), key(), key())
            .prop_map(|(name, from, to)| vec![name.into(), from, to]),
        2 => (key(), key(), copy_options())
            .prop_map(|(from, to, options)| [vec![b"copy".to_vec(), from, to], options].concat()),
        2 => (key(), db_number()).prop_map(|(key, db)| vec![b"move".to_vec(), key, db]),
        4 => bits(),
        1 => (key(), value()).prop_map(|(key, value)| vec![b"delifeq".to_vec(), key, value]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    type Test = fn(&[u8]) -> bool;
    const PATTERNS: [(&str, Test); 4] = [
        ("*", |_| true),
        ("key:1?", |key| key.len() == 6 && key.starts_with(b"key:1")),
        ("many:*", |key| key.starts_with(b"many:")),
        ("nothing", |_| false),
    ];
    prop_oneof![
        400 => command().prop_map(Step::Command),
        20 => prop_oneof![3 => 0..20i64, 1 => 0..10_000i64].prop_map(Step::Later),
        6 => (0..DATABASES).prop_map(Step::Select),
        2 => (0..DATABASES, 0..DATABASES).prop_map(|(a, b)| Step::SwapDbs(a, b)),
        2 => (db_number(), db_number())
            .prop_map(|(a, b)| Step::Command(vec![b"swapdb".to_vec(), a, b])),
        8 => Just(Step::DbSize),
        8 => Just(Step::RandomKey),
        4 => proptest::sample::select(&PATTERNS[..])
            .prop_map(|(text, matches)| Step::Keys(text, matches)),
        4 => (1..50usize, proptest::collection::vec(command(), 0..60))
            .prop_map(|(count, between)| Step::Scan(count, between)),
        2 => (0..400u32, 0..30u32).prop_map(|(count, size)| {
            Step::Command(words(&["populate", &count.to_string(), "many", &size.to_string()]))
        }),
        1 => proptest::sample::select(&["flushdb", "flushall"][..])
            .prop_map(|name| Step::Command(words(&[name]))),
        1 => Just(Step::Command(words(&["flushdb", "SYNC"]))),
    ]
}

struct Tested {
    engine: Engine,
    model: Model,
    db: u32,
    max_reply_bytes: usize,
}

impl Tested {
    fn command(&mut self, args: &[Vec<u8>]) {
        let got = run(&self.engine, self.db, args, self.max_reply_bytes);
        let expected = self.model.run(self.db, args);
        let text: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
        assert_eq!(got, expected, "{text:?} in database {}", self.db);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Command(args) => self.command(args),
            Step::Later(ms) => CLOCK.set(CLOCK.get() + ms),
            Step::Select(db) => self.db = *db,
            Step::SwapDbs(a, b) => {
                self.engine.ledger.swap_dbs(locked(), *a, *b, ChangedBy::Midi);
                self.model.dbs.swap(*a as usize, *b as usize);
            }
            Step::DbSize => self.db_size(),
            Step::RandomKey => self.random_key(),
            Step::Keys(pattern, matches) => self.keys(pattern, *matches),
            Step::Scan(count, between) => self.scan(*count, between),
        }
    }

    fn db_size(&self) {
        let got = run(&self.engine, self.db, &words(&["dbsize"]), usize::MAX);
        let live = self.model.live_keys(self.db).len() as i64;
        let with_due = self.model.dbs[self.db as usize].len() as i64;
        assert!(
            matches!(got[..], [Said::Integer(n)] if (live..=with_due).contains(&n)),
            "{got:?} {live}"
        );
    }

    fn random_key(&self) {
        let got = run(&self.engine, self.db, &words(&["randomkey"]), usize::MAX);
        let live = self.model.live_keys(self.db);
        match &got[..] {
            [Said::Bulk(key)] => assert!(live.contains(key)),
            [Said::Null] => assert!(live.is_empty(), "no key of {}", live.len()),
            _ => panic!("{got:?}"),
        }
    }

    fn keys(&self, pattern: &str, matches: fn(&[u8]) -> bool) {
        let got = run(&self.engine, self.db, &words(&["keys", pattern]), usize::MAX);
        let mut expected = self.model.live_keys(self.db);
        expected.retain(|key| matches(key));
        assert_eq!(got.first(), Some(&Said::Array(expected.len())));
        assert_eq!(bulks(&got[1..]), expected);
    }

    /// A key that exists all the time is seen once; one that never exists is not seen.
    fn scan(&mut self, count: usize, between: &[Vec<Vec<u8>>]) {
        let mut always = self.model.live_keys(self.db);
        let mut ever = always.clone();
        let mut seen = Vec::new();
        let mut between = between.iter();
        let mut cursor = b"0".to_vec();
        loop {
            let args =
                [vec![b"scan".to_vec(), cursor], words(&["count", &count.to_string()])].concat();
            let got = run(&self.engine, self.db, &args, usize::MAX);
            let [Said::Array(2), Said::Bulk(next), Said::Array(len), keys @ ..] = &got[..] else {
                panic!("{got:?}");
            };
            assert_eq!(*len, keys.len());
            seen.extend(bulks(keys));
            cursor = next.clone();
            if cursor == b"0" {
                break;
            }
            if let Some(args) = between.next() {
                self.command(args);
            }
            let live = self.model.live_keys(self.db);
            always.retain(|key| live.contains(key));
            ever.extend(live);
        }
        let set: BTreeSet<Vec<u8>> = seen.iter().cloned().collect();
        assert!(always.is_subset(&set), "a key that was there all the time was not seen");
        assert!(set.is_subset(&ever), "a key was seen that was never there");
        for key in always {
            assert_eq!(
                seen.iter().filter(|&other| *other == key).count(),
                1,
                "seen more than once"
            );
        }
    }

    /// The counts match the tables, and the tables match the model.
    fn end(&mut self) {
        let mut sums = [Census::default(); DATABASES as usize];
        for shard in 0..self.engine.shards().count() {
            let held =
                self.engine.shards().get(shard).token.try_take().expect("nobody else is here");
            for db in 0..DATABASES {
                let Some(table) = held.table(db) else { continue };
                let (census, sum) = (table.census(), &mut sums[db as usize]);
                assert_eq!(census.keys, table.len() as i64);
                sum.keys += census.keys;
                sum.expiring += census.expiring;
                sum.bytes += census.bytes;
            }
            self.engine.ledger.release(self.engine.worker_slot(0), shard, held);
        }
        for db in 0..DATABASES {
            let (books, sum) = (self.engine.ledger.books.census(db), sums[db as usize]);
            assert_eq!((books.keys, books.expiring), (sum.keys, sum.expiring), "database {db}");
        }
        assert_eq!(
            self.engine.ledger.books.totals().bytes,
            sums.iter().map(|sum| sum.bytes).sum::<i64>()
        );
        for db in 0..DATABASES {
            self.db = db;
            self.keys("*", |_| true);
            for key in self.model.live_keys(db) {
                self.command(&[b"get".to_vec(), key.clone()]);
                self.command(&[b"pttl".to_vec(), key]);
            }
        }
        self.command(&words(&["flushall"]));
        assert_eq!(self.engine.ledger.books.totals().bytes, 0);
        for db in 0..DATABASES {
            let books = self.engine.ledger.books.census(db);
            assert_eq!((books.keys, books.expiring), (0, 0));
        }
    }
}

fn bulks(said: &[Said]) -> BTreeSet<Vec<u8>> {
    let keys: Vec<Vec<u8>> = said
        .iter()
        .map(|said| match said {
            Said::Bulk(key) => key.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let set: BTreeSet<Vec<u8>> = keys.iter().cloned().collect();
    assert_eq!(set.len(), keys.len(), "a key twice in one reply");
    set
}

fn check(shards: usize, max_reply_bytes: usize, steps: &[Step]) {
    let mut tested =
        Tested { engine: engine(shards), model: Model::default(), db: 0, max_reply_bytes };
    steps.iter().for_each(|step| tested.step(step));
    tested.end();
}

proptest! {
    // PROPTEST_CASES sets more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_answer_as_redis_does(
        shards in proptest::sample::select(vec![1usize, 4, 64]),
        max_reply_bytes in proptest::sample::select(vec![20usize, 500, usize::MAX]),
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        check(shards, max_reply_bytes, &steps);
    }
}

/// A long program: tables grow, split, shrink and merge many times.
#[test]
fn a_long_program_answers_as_redis_does() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = proptest::collection::vec(step(), 20_000..20_001);
    let tree = steps.new_tree(&mut runner).expect("steps");
    check(4, 500, &proptest::strategy::ValueTree::current(&tree));
}

/// Few keys in many shards are the hard case for a random draw.
#[test]
fn a_random_key_is_found_where_there_is_one() {
    for shards in [1, 4, 1024] {
        let mut tested = Tested {
            engine: engine(shards),
            model: Model::default(),
            db: 0,
            max_reply_bytes: usize::MAX,
        };
        for number in 0..200 {
            let key = format!("key:{number}");
            tested.command(&words(&["set", &key, "value"]));
            tested.random_key();
            tested.command(&words(&["del", &key]));
            tested.random_key();
        }
    }
}

/// Each key of a database is drawn about as often as any other.
#[test]
fn random_keys_are_drawn_evenly() {
    let keys = 100;
    let draws = 20_000;
    let engine = engine(16);
    run(&engine, 0, &words(&["populate", &keys.to_string()]), usize::MAX);
    let mut drawn: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for _ in 0..draws {
        match &run(&engine, 0, &words(&["randomkey"]), usize::MAX)[..] {
            [Said::Bulk(key)] => *drawn.entry(key.clone()).or_default() += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(drawn.len(), keys, "keys never drawn");
    // Redis draws a bucket, then a key in it, which is no more even than this.
    let (least, most) = (drawn.values().min().unwrap(), drawn.values().max().unwrap());
    assert!(*most < 100 * least, "from {least} to {most} of {draws} draws for each of {keys} keys");
}
