//! Clients on both doors whose writes keep invariants at every moment, and a server that loads a
//! snapshot made beside them, and checks it.
//!
//! | databases | invariant |
//! |---|---|
//! | 0, 1 | units move between accounts: their sum stays; marks: one letter in each (SWAPDB) |
//! | 2 | emptied and filled again in one transaction: all keys have the same value |
//! | 3 | RENAME: one token under some name; MSET: equal pairs; twins in both keyspaces are equal |
//! | 4 | keys that nobody writes, so that a save takes a while |
//! | 5 | a counter for each client, with what was acknowledged to it |
//!
//! The others are free.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Builder, Client, Door, Random, Server, Value, words};

/// Clients, at the host's door and at the port by turns.
pub const CLIENTS: usize = 6;

/// Accounts in each of two databases, and what each has at first.
const ACCOUNTS: usize = 16;
const BALANCE: i64 = 100;

/// Marks in each of two databases.
const MARKS: usize = 32;

/// Keys that are emptied and filled together.
const FILLED: usize = 32;

/// Names that the token may have, and pairs.
const NAMES: usize = 8;

/// Keys that make a save last.
const BULK: i64 = 20_000;

/// The work of the clients, and how far they are.
pub struct Load {
    /// Whether FLUSHALL takes part: after it everything is empty until it is filled again.
    flushes: bool,
    /// Whether the server may end, or may be loading.
    may_fail: bool,
    /// The last value that each client has begun to write to its counter, and the last that was
    /// acknowledged.
    begun: [AtomicU64; CLIENTS],
    acknowledged: [AtomicU64; CLIENTS],
}

/// Key names and values of MSET.
fn mset(name: &str, count: usize, value: &str) -> String {
    let pairs: String = (0..count).map(|number| format!(" {name}:{number} {value}")).collect();
    format!("MSET{pairs}")
}

/// Commands by their standard names; a name that begins with `!` is the host's own.
fn named(door: Door, line: &str) -> Vec<Vec<u8>> {
    match line.strip_prefix('!') {
        Some(native) => words(native),
        None if line.starts_with("SELECT ") || line == "MULTI" || line == "EXEC" => words(line),
        None => door.named(&words(line)),
    }
}

const TRANSFER: &str = "redis.call('MIDI.DECRBY', KEYS[1], ARGV[1]) \
    redis.call('MIDI.INCRBY', KEYS[2], ARGV[1]) return 1";

impl Load {
    /// The usual load.
    pub fn new() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Load { flushes: false, may_fail: false, begun: zeros(), acknowledged: zeros() }
    }

    /// With FLUSHALL, and without counters.
    pub fn with_flushes() -> Self {
        Load { flushes: true, ..Load::new() }
    }

    /// On a server that will be loading, or will end.
    pub fn that_may_fail() -> Self {
        Load { may_fail: true, ..Load::new() }
    }

    /// The least that each client's counter may have.
    pub fn acknowledged(&self) -> Vec<u64> {
        self.acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect()
    }

    /// The most that each client's counter may have.
    pub fn begun(&self) -> Vec<u64> {
        self.begun.iter().map(|number| number.load(Ordering::SeqCst)).collect()
    }

    /// Runs the clients while `body` runs.
    pub fn beside<R>(&self, server: &Server, body: impl FnOnce() -> R) -> R {
        let mut client = server.client();
        client.ok("SELECT 4");
        client.ok(&format!("MIDI.POPULATE {BULK} bulk 30"));
        self.refill(&mut client).expect("a server that serves");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            for number in 0..CLIENTS {
                scope.spawn(move || self.run(server, number, stop));
            }
            let _stop = super::StopAtEnd(stop);
            body()
        })
    }

    fn run(&self, server: &Server, number: usize, stop: &AtomicBool) {
        let door = if number.is_multiple_of(2) { Door::Host } else { Door::Port };
        let mut caller = Caller { client: door.client(server), door, may_fail: self.may_fail };
        let mut random = Random::new(number as u64);
        while !stop.load(Ordering::Relaxed) {
            rest();
            if let Err(error) = self.step(&mut caller, number, &mut random) {
                assert!(self.may_fail, "client {number}: {error}");
                return;
            }
        }
    }

    fn step(&self, caller: &mut Caller, number: usize, random: &mut Random) -> io::Result<()> {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let (amount, db, value) = (random.below(9), random.below(2), random.next());
        let names = (random.below(NAMES), random.below(NAMES));
        let on_host = caller.door == Door::Host;
        match random.below(8) {
            0 | 1 => drop(caller.transaction(&[
                "SELECT 0",
                &format!("DECRBY a:{from} {amount}"),
                "SELECT 1",
                &format!("INCRBY a:{to} {amount}"),
            ])?),
            2 if on_host => {
                caller.send(&[&format!("SELECT {db}")])?;
                let (from, to) = (format!("a:{from}"), format!("a:{to}"));
                let reply =
                    caller.call(&["EVAL", TRANSFER, "2", &from, &to, &amount.to_string()])?;
                assert!(reply == Value::Integer(1) || caller.is_expected(&reply), "{reply:?}");
            }
            2 => {
                let transfer =
                    [format!("DECRBY a:{from} {amount}"), format!("INCRBY a:{to} {amount}")];
                let select = format!("SELECT {db}");
                caller.transaction(&[&select, &transfer[0], &transfer[1]])?;
            }
            3 => {
                let pair = format!("MSET p:{} {value} q:{} {value}", names.0, names.0);
                caller.send(&["SELECT 3", &pair])?;
            }
            4 => {
                caller.send(&["SELECT 3", &format!("RENAME t:{} t:{}", names.0, names.1)])?;
            }
            5 if on_host => {
                let flush = random.pick(&["!FLUSHDB", "FLUSHDB", "!FLUSHDB SYNC", "FLUSHDB ASYNC"]);
                let fill = mset("f", FILLED, &value.to_string());
                caller.transaction(&["SELECT 2", flush, &fill])?;
            }
            6 if number == 0 => {
                let twins = [format!("!SET n:0 {value}"), format!("SET n:0 {value}")];
                caller.transaction(&["SELECT 3", &twins[0], &twins[1]])?;
            }
            6 if number == 2 => drop(caller.send(&["!SWAPDB 0 1"])?),
            6 if number == 4 && self.flushes && random.below(8) == 0 => {
                let flush = random.pick(&["!FLUSHALL", "FLUSHALL", "!FLUSHALL ASYNC"]);
                caller.send(&[flush])?;
                self.refill(&mut caller.client)?;
            }
            _ if !self.flushes => self.count(caller, number)?,
            _ => drop(caller.send(&["SELECT 3", &format!("GET t:{}", names.0)])?),
        }
        Ok(())
    }

    /// Counts on: what was acknowledged is never taken back, and nothing else is ever added.
    fn count(&self, caller: &mut Caller, number: usize) -> io::Result<()> {
        let next = self.acknowledged[number].load(Ordering::SeqCst) + 1;
        self.begun[number].store(next, Ordering::SeqCst);
        let replies = caller.send(&["SELECT 5", &format!("INCR c:{number}")])?;
        if let Value::Integer(value) = replies[1] {
            assert_eq!(value, next as i64, "client {number}'s counter");
            self.acknowledged[number].store(next, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Fills everything that FLUSHALL has emptied, in one transaction at the host's door.
    fn refill(&self, client: &mut Client) -> io::Result<()> {
        let mut lines = vec![];
        for (db, letter) in [(0, "x"), (1, "y")] {
            lines.push(format!("SELECT {db}"));
            lines.extend((0..ACCOUNTS).map(|number| format!("INCRBY a:{number} {BALANCE}")));
            lines.push(mset("m", MARKS, letter));
        }
        lines.extend(["SELECT 3".to_owned(), "SET t:0 token".to_owned()]);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut words = vec![named(Door::Host, "MULTI")];
        words.extend(lines.iter().map(|line| named(Door::Host, line)));
        words.push(named(Door::Host, "EXEC"));
        for line in words {
            let reply = client.try_call(&line)?;
            assert!(!reply.is_error(), "{reply:?}");
        }
        Ok(())
    }
}

/// The loads of all tests rest for the same 5 ms of every 100. Linux 6.18 was seen to let new
/// processes wait for minutes on two processors that never idle: a forked child runs in these.
fn rest() {
    const PERIOD: u128 = 100;
    const REST: u128 = 5;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let left = PERIOD - now % PERIOD;
    if left <= REST {
        std::thread::sleep(Duration::from_millis(left as u64));
    }
}

/// A client that checks what it is answered.
struct Caller {
    client: Client,
    door: Door,
    may_fail: bool,
}

impl Caller {
    fn call(&mut self, args: &[&str]) -> io::Result<Value> {
        self.client.try_call(args)
    }

    /// Sends commands at once, and checks that none fails in an unexpected way.
    fn send(&mut self, lines: &[&str]) -> io::Result<Vec<Value>> {
        let commands: Vec<u8> = lines
            .iter()
            .map(|line| super::encoded(&named(self.door, line)))
            .collect::<Vec<_>>()
            .concat();
        self.client.try_send(&commands)?;
        let mut replies = vec![];
        for line in lines {
            let reply = self.client.try_read()?;
            assert!(!reply.is_error() || self.is_expected(&reply), "{line}: {reply:?}");
            replies.push(reply);
        }
        Ok(replies)
    }

    fn transaction(&mut self, lines: &[&str]) -> io::Result<Vec<Value>> {
        let all: Vec<&str> = [&["MULTI"], lines, &["EXEC"]].concat();
        let mut replies = self.send(&all)?;
        let results = replies.pop().expect("EXEC's reply");
        if let Value::Array(results) = &results {
            assert!(!results.iter().any(Value::is_error), "{results:?}");
        }
        Ok(replies)
    }

    /// Whether this error is expected: no token by this name; or the server is loading.
    fn is_expected(&self, reply: &Value) -> bool {
        let text = reply.text();
        let while_loading = ["LOADING ", "EXECABORT ", "ERR EXEC without MULTI"];
        text == "ERR no such key"
            || self.may_fail && while_loading.iter().any(|start| text.starts_with(start))
    }
}

/// A server with other shards and workers, which loads snapshots and checks them.
pub struct Checker {
    server: Server,
}

impl Checker {
    /// Starts it.
    pub fn start() -> Self {
        Checker { server: Builder::new().load("shards 16 threads 3").start() }
    }

    /// Loads an RDB, and checks every invariant of `load`. Returns the clients' counters.
    #[track_caller]
    pub fn check(&mut self, load: &Load, rdb: &Path) -> Vec<u64> {
        std::fs::copy(rdb, self.server.dir().join("dump.rdb")).expect("an RDB");
        let mut client = self.server.client();
        client.ok("DEBUG RELOAD NOSAVE");
        check(load, &mut client)
    }

    /// The same with what the server loads when it starts.
    #[track_caller]
    pub fn check_at_start(&mut self, load: &Load, rdb: &Path) -> Vec<u64> {
        std::fs::copy(rdb, self.server.dir().join("dump.rdb")).expect("an RDB");
        self.server.restart(super::redis_server());
        check(load, &mut self.server.client())
    }

    /// Checks that counters are what was acknowledged before the save began, or more, and not more
    /// than was begun when it ended.
    #[track_caller]
    pub fn check_counters(found: &[u64], least: &[u64], most: &[u64]) {
        let fits = |at: usize| (least[at]..=most[at]).contains(&found[at]);
        assert!((0..found.len()).all(fits), "{found:?} is not in {least:?}..={most:?}");
    }
}

/// Reads `count` keys of this name.
fn values(client: &mut Client, db: u32, command: &str, name: &str, count: usize) -> Vec<Value> {
    client.ok(&format!("SELECT {db}"));
    let keys: String = (0..count).map(|number| format!(" {name}:{number}")).collect();
    client.run(&format!("{command}{keys}")).array()
}

fn number(value: &Value) -> i64 {
    if value.is_null() { 0 } else { value.text().parse().expect("a number") }
}

#[track_caller]
fn check(load: &Load, client: &mut Client) -> Vec<u64> {
    let mut all_of = |db, name, count| values(client, db, "MIDI.MGET", name, count);
    let sum: i64 = (0..2).map(|db| all_of(db, "a", ACCOUNTS).iter().map(number).sum::<i64>()).sum();
    let marks = [all_of(0, "m", MARKS), all_of(1, "m", MARKS)];
    let filled = all_of(2, "f", FILLED);
    let (left, right) = (all_of(3, "p", NAMES), all_of(3, "q", NAMES));
    let tokens = all_of(3, "t", NAMES).iter().filter(|value| !value.is_null()).count();
    let twins = all_of(3, "n", 1);
    let counters = all_of(5, "c", CLIENTS).iter().map(|value| number(value) as u64).collect();
    client.ok("SELECT 4");
    let bulk = client.integer("MIDI.DBSIZE");

    let is_filled = tokens == 1;
    assert!(tokens <= 1 && (is_filled || load.flushes), "{tokens} tokens");
    let expected = if is_filled { 2 * BALANCE * ACCOUNTS as i64 } else { 0 };
    assert_eq!(sum, expected, "the accounts' sum");
    assert!(filled.iter().all(|value| *value == filled[0]), "half a transaction: {filled:?}");
    assert_eq!(left, right, "half an MSET");
    // MIDI.FLUSHALL leaves the host's key.
    let is_flushed = load.flushes && twins[0].is_null();
    let native = values(client, 3, "MGET", "n", 1);
    assert!(twins == native || is_flushed, "two moments: {twins:?}, the host's {native:?}");
    for marks in &marks {
        assert!(marks.iter().all(|mark| *mark == marks[0]), "half a SWAPDB: {marks:?}");
        assert_eq!(marks[0].is_null(), !is_filled, "half a FLUSHALL");
    }
    assert!(!is_filled || marks[0] != marks[1], "half a SWAPDB");
    assert!(bulk == BULK || load.flushes && bulk == 0, "{bulk} keys that nobody writes");
    counters
}
