//! Redis's answers, from a plain map that follows its t_string.c, bitops.c, expire.c and db.c.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use midi::store::UnixMs;

thread_local! {
    pub static CLOCK: Cell<UnixMs> = const { Cell::new(0) };
}

pub const START: UnixMs = 1_600_000_000_000;

/// From this size on values are kept, not copied.
pub const KEEP_BYTES: usize = 600;

pub const MAX_VALUE_BYTES: usize = 10_000;

pub const DATABASES: u32 = 3;

/// An element of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Simple(String),
    Null,
    Integer(i64),
    Bulk(Vec<u8>),
    Error(String),
    Array(usize),
}

pub fn ok() -> Vec<Said> {
    vec![Said::Simple("OK".into())]
}

pub fn integer(number: i64) -> Vec<Said> {
    vec![Said::Integer(number)]
}

pub fn error(text: &str) -> Vec<Said> {
    vec![Said::Error(text.into())]
}

/// One database of the model: values, and when they expire.
pub type Database = BTreeMap<Vec<u8>, (Vec<u8>, Option<UnixMs>)>;

/// The keys that Redis would hold. Keys that are due stay until a command reads them, as in Redis;
/// only DBSIZE shows that.
#[derive(Default)]
pub struct Model {
    pub dbs: [Database; DATABASES as usize],
}

impl Model {
    fn live(&self, db: u32, key: &[u8]) -> Option<&(Vec<u8>, Option<UnixMs>)> {
        self.dbs[db as usize].get(key).filter(|(_, at)| !is_due(*at))
    }

    pub fn live_keys(&self, db: u32) -> BTreeSet<Vec<u8>> {
        let table = &self.dbs[db as usize];
        table.iter().filter(|(_, (_, at))| !is_due(*at)).map(|(key, _)| key.clone()).collect()
    }

    pub fn run(&mut self, db: u32, args: &[Vec<u8>]) -> Vec<Said> {
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
pub fn is_due(at: Option<UnixMs>) -> bool {
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

pub fn integer_argument(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}
