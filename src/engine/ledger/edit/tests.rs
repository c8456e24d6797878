use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::command::{Action, Args, Error, host_commands};
use crate::engine::testing::{Said, number_of, open_engine};
use crate::engine::{Engine, Outcome, StagedKey, Staging, Taking};
use crate::store::{Edit, Traits, Type, Value};
use crate::sync::LOCKED;

/// When the keys of these tests are due.
const DUE: UnixMs = 1000;

/// An engine of one test.
struct Tested {
    engine: Engine,
}

impl Tested {
    fn new() -> Self {
        Tested { engine: open_engine(1, 4, || 0) }
    }

    /// A command's reply, run by the holder of the global lock.
    fn at(&self, now: Now, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let call = Call {
            command: number_of(words[0]),
            args: Args::new(&words),
            db: 0,
            now,
            limits: self.engine.settings().limits(usize::MAX),
            prefix: "",
            author: Author::Nobody,
        };
        let mut said = Said::default();
        match call.row().action {
            Action::AllKeys(_) => self.engine.run_waiting(LOCKED, &call, &mut said),
            _ => {
                let outcome = self.engine.attempt(
                    self.engine.main_slot(LOCKED),
                    &call,
                    Taking::Wait(LOCKED),
                    &mut said,
                );
                assert_eq!(outcome, Outcome::Done, "{line}");
            }
        }
        said.text()
    }

    fn say(&self, line: &str) -> String {
        self.at(Now::at(0), line)
    }

    /// The notifications that wait: each key, with its event.
    fn notifications(&self) -> Vec<String> {
        let next = || self.engine.ledger.notifications.next(LOCKED);
        let text = |notification: super::super::Notification| {
            let key = String::from_utf8_lossy(&notification.key).into_owned();
            format!("{key} {}", notification.event.name.to_string_lossy())
        };
        std::iter::from_fn(next).map(text).collect()
    }

    fn books(&self) -> (i64, i64, i64) {
        let (census, totals) =
            (self.engine.ledger.books.census(0), self.engine.ledger.books.totals());
        (census.keys, census.expiring, totals.expired)
    }

    /// Sets a value that no command makes.
    fn put_other(&self, key: &str) {
        let at = self.engine.shards().key_at(0, key.as_bytes());
        let mut held = self.engine.shards().take_waiting(LOCKED, at.shard);
        let account = Account::new(self.engine.main_slot(LOCKED), false);
        self.engine.ledger.edit_key(account, &mut held, at, key.as_bytes(), &Now::at(0), |edit| {
            edit.put(Entry::other(key.as_bytes(), Value::Inline(b"12"), None));
        });
        self.engine.ledger.release(self.engine.main_slot(LOCKED), at.shard, held);
    }

    fn observe(&self, db: u32, key: &str) -> Arc<AtomicBool> {
        let at = self.engine.shards().key_at(db, key.as_bytes());
        let mut held = self.engine.shards().take_waiting(LOCKED, at.shard);
        let flag = Arc::default();
        held.watched.observe(db, key.as_bytes(), &flag, 10);
        self.engine.ledger.release(self.engine.main_slot(LOCKED), at.shard, held);
        flag
    }
}

/// A clock at which the keys are hidden, and a horizon at which they were not due yet.
fn apart() -> Now {
    Now::at(DUE + 1).with_horizon(DUE)
}

#[test]
fn before_the_horizon_reads_hide_a_key_and_writes_find_none() {
    let tested = Tested::new();
    tested.engine.ledger.notifications.set_listening(LOCKED, true);
    let set = format!("msetex 2 a 1 b 2 pxat {DUE}");
    assert_eq!(tested.say(&set), "1");
    tested.notifications();
    for (line, reply) in [
        ("get a", "null"),
        ("mget a b", "null null"),
        ("exists a b", "0"),
        ("pttl a", "-2"),
        ("del a b", "0"),
        ("getdel a", "null"),
        ("persist b", "0"),
        ("rename a b", "ERR no such key"),
        ("set a 3 xx", "null"),
    ] {
        assert_eq!(tested.at(apart(), line), reply, "{line}");
    }
    assert_eq!(tested.books(), (2, 2, 0), "hidden, and still there");
    assert!(tested.notifications().is_empty());
    assert_eq!(tested.say("mget a b"), "1 2", "at time 0 they have not expired");

    assert_eq!(tested.at(apart(), "append a x"), "1");
    assert_eq!(tested.at(apart(), "msetnx b y c z"), "1");
    assert_eq!(tested.books(), (3, 0, 2));
    assert_eq!(tested.notifications(), ["a expired", "a append", "b expired", "b set", "c set"]);
    assert_eq!(tested.at(apart(), "mget a b c"), "x y z");
}

#[test]
fn a_command_removes_the_due_keys_that_it_meets() {
    let tested = Tested::new();
    tested.engine.ledger.notifications.set_listening(LOCKED, true);
    for line in
        ["get a", "mget a b", "exists a", "del a", "setrange a 0 x", "copy a b", "mset a 1 b 2"]
    {
        tested.say(&format!("set a 1 pxat {DUE}"));
        tested.notifications();
        let before = tested.books().2;
        tested.at(Now::at(DUE + 1), line);
        assert_eq!(tested.books().2, before + 1, "{line}");
        assert_eq!(tested.notifications()[0], "a expired", "{line}");
        tested.say("del a b");
    }
    assert_eq!((tested.books().0, tested.engine.ledger.books.totals().bytes), (0, 0));
}

#[test]
fn clients_are_notified_of_changed_keys_and_no_others() {
    for (line, changed) in [
        ("get a", ""),
        ("mget a b c", ""),
        ("append a x", "0a"),
        ("append a ", "0a"),
        ("set a 1 nx", ""),
        ("msetnx a 1 c 2", ""),
        ("mset a 1 c 2", "0a 0c"),
        ("del a c", "0a"),
        ("rename a c", "0a 0c"),
        ("renamenx a b", ""),
        ("copy a c", "0c"),
        ("copy a c db 1", "1c"),
        ("move a 1", "0a 1a"),
        ("persist a", ""),
        ("flushdb", "0a 0b"),
        ("swapdb 0 1", "0a 0b 1a 1b"),
    ] {
        let tested = Tested::new();
        tested.say("mset a 1 b 2");
        let names: Vec<(u32, &str)> =
            (0..2).flat_map(|db| ["a", "b", "c"].map(|key| (db, key))).collect();
        let flags: Vec<_> = names.iter().map(|&(db, key)| tested.observe(db, key)).collect();
        tested.say(line);
        let raised = names.iter().zip(&flags).filter(|(_, flag)| flag.load(Ordering::Relaxed));
        let raised: Vec<String> = raised.map(|((db, key), _)| format!("{db}{key}")).collect();
        assert_eq!(raised.join(" "), changed, "{line}");
    }
}

#[test]
fn clients_are_notified_of_keys_that_a_load_replaces_removes_or_brings() {
    for (merges, changed) in [(false, "0a 0b 1c"), (true, "0a 0b 1c")] {
        let tested = Tested::new();
        tested.say("mset a 1 b 2");
        let names: Vec<(u32, &str)> =
            (0..2).flat_map(|db| ["a", "b", "c"].map(|key| (db, key))).collect();
        let flags: Vec<_> = names.iter().map(|&(db, key)| tested.observe(db, key)).collect();
        let staging = Staging::new(tested.engine.shards());
        for (db, key) in [(0, b"a"), (1, b"c")] {
            let (value, hash) = (Value::Inline(b"3"), staging.hash(key));
            let new = StagedKey { key, value, expire_at: Some(DUE), traits: Traits::default() };
            assert!(staging.lock(staging.shard_of(hash)).insert(db, hash, &new));
        }
        let before = tested.engine.ledger.age();
        if merges {
            staging.merge(&tested.engine.ledger, LOCKED);
        } else {
            staging.install(&tested.engine.ledger, LOCKED);
        }
        assert!(tested.engine.ledger.age() > before);
        assert_eq!(tested.books(), (if merges { 2 } else { 1 }, 1, 0));
        let due = (0..4).map(|shard| tested.engine.shards().due(shard)).min();
        assert_eq!(due, Some(DUE), "the owner looks for them");
        let raised = names.iter().zip(&flags).filter(|(_, flag)| flag.load(Ordering::Relaxed));
        let raised: Vec<String> = raised.map(|((db, key), _)| format!("{db}{key}")).collect();
        assert_eq!(raised.join(" "), changed, "{merges}");
    }
}

/// Every command of the table; `k` is a key of a type that none of them makes. `None` stands for
/// WRONGTYPE.
const ROWS: &[(&str, Option<&str>)] = &[
    ("get k", None),
    ("set k v get", None),
    ("set k v ifeq 12", None),
    ("set k v", Some("OK")),
    ("mget k", Some("null")),
    ("mset k v", Some("OK")),
    ("del k", Some("1")),
    ("unlink k", Some("1")),
    ("exists k", Some("1")),
    ("touch k", Some("1")),
    ("type k", Some("other")),
    ("expire k 100", Some("1")),
    ("pexpire k 100", Some("1")),
    ("expireat k 100", Some("1")),
    ("pexpireat k 100", Some("1")),
    ("ttl k", Some("-1")),
    ("pttl k", Some("-1")),
    ("expiretime k", Some("-1")),
    ("pexpiretime k", Some("-1")),
    ("persist k", Some("0")),
    ("rename k l", Some("OK")),
    ("renamenx k l", Some("1")),
    ("copy k l", Some("1")),
    ("move k 1", Some("1")),
    ("object encoding k", Some("other")),
    ("object refcount k", Some("1")),
    ("memory usage k", Some("72")),
    ("dump k", None),
    ("restore k 0 x", Some("BUSYKEY Target key name already exists.")),
    ("keys *", Some("k")),
    ("scan 0 count 100", Some("0 k")),
    ("scan 0 count 100 type other", Some("0 k")),
    ("scan 0 count 100 type string", Some("0")),
    ("randomkey", Some("k")),
    ("dbsize", Some("1")),
    ("keyspacedigest 0", Some("1a4107dd8bcbe2193f225f755edee5d3")),
    ("flushdb", Some("OK")),
    ("flushall", Some("OK")),
    ("swapdb 0 1", Some("OK")),
    ("populate 1", Some("OK")),
    ("incr k", None),
    ("decr k", None),
    ("incrby k 1", None),
    ("decrby k 1", None),
    ("incrbyfloat k 1", None),
    ("increx k", None),
    ("append k x", None),
    ("strlen k", None),
    ("countkeysinslot 0", Some("ERR This instance has cluster support disabled")),
    ("getrange k 0 1", None),
    ("substr k 0 1", None),
    ("setrange k 0 x", None),
    ("setrange k 0 ", None),
    ("setnx k v", Some("0")),
    ("setex k 100 v", Some("OK")),
    ("psetex k 100 v", Some("OK")),
    ("getset k v", None),
    ("msetnx k v", Some("0")),
    ("msetex 1 k v", Some("1")),
    ("getdel k", None),
    ("getex k", None),
    ("getex k persist", None),
    ("lcs k k", Some("ERR The specified keys must contain string values")),
    ("digest k", None),
    ("delex k", Some("1")),
    ("delex k ifeq 12", Some("ERR Key should be of string type if conditions are specified")),
    ("delifeq k 12", None),
    ("setbit k 0 0", None),
    ("getbit k 0", None),
    ("bitcount k", None),
    ("bitpos k 0", None),
    ("bitop not l k", None),
    ("bitop or k nosuch k", None),
    ("bitop or k nosuch", Some("0")),
    ("bitfield k", None),
    ("bitfield k get u8 0", None),
    ("bitfield k set u8 0 1", None),
    ("bitfield_ro k get u8 0", None),
    ("hset k f v", None),
    ("hmset k f v", None),
    ("hsetnx k f v", None),
    ("hget k f", None),
    ("hmget k f", None),
    ("hdel k f", None),
    ("hgetdel k fields 1 f", None),
    ("hexpire k 1 fields 1 f", None),
    ("hpexpire k 1 fields 1 f", None),
    ("hexpireat k 1 fields 1 f", None),
    ("hpexpireat k 1 fields 1 f", None),
    ("hpersist k fields 1 f", None),
    ("httl k fields 1 f", None),
    ("hpttl k fields 1 f", None),
    ("hexpiretime k fields 1 f", None),
    ("hpexpiretime k fields 1 f", None),
    ("hgetex k fields 1 f", None),
    ("hsetex k fields 1 f v", None),
    ("hexists k f", None),
    ("hlen k", None),
    ("hstrlen k f", None),
    ("hkeys k", None),
    ("hvals k", None),
    ("hgetall k", None),
    ("hincrby k f 1", None),
    ("hincrbyfloat k f 1", None),
    ("hrandfield k", None),
    ("hrandfield k 2", None),
    ("hscan k 0", None),
];

#[test]
fn every_command_meets_a_value_of_another_type() {
    let wrong_type = String::from_utf8(Error::WrongType.bare_text()).expect("plain text");
    for row in host_commands().filter(|row| !matches!(row.action, Action::Door(_))) {
        let is_called = ROWS.iter().any(|(line, _)| line.split(' ').next() == Some(row.name));
        assert!(is_called, "{} is not called", row.name);
    }
    for &(line, reply) in ROWS {
        let tested = Tested::new();
        tested.put_other("k");
        assert_eq!(tested.say(line), reply.unwrap_or(&wrong_type), "{line}");
        if reply.is_none() {
            assert_eq!(tested.say("type k"), Type::Other.name(), "{line} left it as it was");
        }
    }
    for line in ["rename k l", "copy k l", "expire k 100"] {
        let tested = Tested::new();
        tested.put_other("k");
        tested.say(line);
        let key = if line.starts_with("expire") { "k" } else { "l" };
        assert_eq!(tested.say(&format!("type {key}")), "other", "{line}");
        assert_eq!(tested.say(&format!("set {key} v get")), wrong_type);
        assert_eq!(tested.say(&format!("set {key} v")), "OK");
        assert_eq!(tested.say(&format!("type {key}")), "string");
    }
}

#[test]
fn a_command_that_only_reads_cannot_change_a_key() {
    for row in host_commands() {
        let reads = match row.action {
            Action::OneKey(run) => run.only_reads(),
            Action::EachKey(run) => run.only_reads(),
            Action::ManyKeys(run) => run.only_reads(),
            Action::AllKeys(_) | Action::Door(_) | Action::Port(_) => continue,
        };
        assert_eq!(reads, row.flags.readonly, "{}", row.name);
    }
}

/// When all of them are due.
const LATER: UnixMs = 1_000_000;

/// Sets `count` fields of a hash, each due 10 ms after the one before, from [`DUE`] on.
fn set_timed_fields(tested: &Tested, count: usize, value_bytes: usize) {
    let at = tested.engine.shards().key_at(0, b"h");
    let mut held = tested.engine.shards().take_waiting(LOCKED, at.shard);
    let slot = tested.engine.main_slot(LOCKED);
    for number in 0..count {
        let (name, value) = (format!("f{number}"), vec![b'v'; value_bytes]);
        let due = DUE + 10 * number as UnixMs;
        let account = Account::new(slot, false);
        tested.engine.ledger.edit_key(account, &mut held, at, b"h", &Now::at(0), |edit| {
            edit.set_field(name.as_bytes(), Value::Inline(&value), Some(due)).expect("a hash");
        });
    }
    tested.engine.ledger.release(slot, at.shard, held);
}

/// Removes what was due before this, in slices that are over at once or in one. Returns what is due
/// next.
fn remove_due(tested: &Tested, horizon: UnixMs, at_once: bool) -> UnixMs {
    let shard = tested.engine.shards().key_at(0, b"h").shard;
    let mut held = tested.engine.shards().take_waiting(LOCKED, shard);
    let slot = tested.engine.main_slot(LOCKED);
    let ledger = &tested.engine.ledger;
    let mut slice = || ledger.expire_due(slot, &mut held, 0, horizon, &mut 0, &mut || at_once);
    while !slice() {
        assert!(!at_once);
    }
    let next = held.next_due();
    tested.engine.ledger.release(slot, shard, held);
    next
}

/// Drawing a key's number changes nothing for clients, and takes memory.
#[test]
fn the_memory_of_numbers_goes_with_their_database() {
    for line in ["flushall", "swapdb 0 1"] {
        let tested = Tested::new();
        tested.say("set k v");
        let at = tested.engine.shards().key_at(0, b"k");
        let mut held = tested.engine.shards().take_waiting(LOCKED, at.shard);
        let (ledger, slot) = (&tested.engine.ledger, tested.engine.main_slot(LOCKED));
        ledger.edit_key(Account::new(slot, false), &mut held, at, b"k", &Now::at(0), |edit| {
            edit.number(|| 7)
        });
        ledger.release(slot, at.shard, held);
        tested.say(line);
        let held = tested.engine.shards().take_waiting(LOCKED, at.shard);
        for db in [0, 1] {
            assert_eq!(ledger.books.bytes_of(db), held.census(db).bytes, "{line}, {db}");
        }
        ledger.release(slot, at.shard, held);
    }
}

/// What is due is found behind parts of the table whose fields have been given more time.
#[test]
fn due_fields_are_found_behind_those_that_live_longer() {
    let tested = Tested::new();
    set_timed_fields(&tested, 2000, 1);
    for number in (0..2000).filter(|number| number % 400 != 7) {
        tested.at(Now::at(0), &format!("hpexpireat h {} fields 1 f{number}", 2 * LATER));
    }
    remove_due(&tested, LATER, true);
    assert_eq!(tested.say("hlen h"), "1995");
    assert_eq!(remove_due(&tested, LATER, true), 2 * LATER);
}

#[test]
fn due_fields_are_removed_and_the_key_with_the_last() {
    // A block; a table for its fields; one for the length of a value.
    for (count, value_bytes) in [(3, 1), (2000, 1), (3, 300)] {
        let tested = Tested::new();
        tested.engine.ledger.notifications.set_listening(LOCKED, true);
        set_timed_fields(&tested, count, value_bytes);
        assert_eq!(tested.say("hlen h"), count.to_string());
        assert_eq!(tested.at(Now::at(DUE + 1), "hget h f0"), "null", "hidden");
        assert_eq!(tested.at(Now::at(DUE + 1), "hlen h"), count.to_string(), "still there");
        assert_eq!(remove_due(&tested, DUE + 1, false), DUE + 10, "the next one is known");
        assert_eq!(tested.notifications(), ["h hexpired"]);
        assert_eq!(tested.say("hlen h"), (count - 1).to_string());
        assert_eq!(tested.say("hexists h f1"), "1");
        // A field that is set anew does not expire.
        assert_eq!(tested.say("hset h f1 new"), "0");
        assert_eq!(remove_due(&tested, LATER, false), UnixMs::MAX);
        assert_eq!(tested.say("hgetall h"), "f1 new");
        assert_eq!(tested.say("hdel h f1"), "1");
        set_timed_fields(&tested, count, value_bytes);
        tested.notifications();
        assert_eq!(remove_due(&tested, LATER, false), UnixMs::MAX);
        assert_eq!(tested.notifications().last().map(String::as_str), Some("h del"));
        assert_eq!((tested.say("exists h"), tested.books().0), ("0".to_owned(), 0));
    }
}

/// A copy from the host may find that a client of midi's has set the key meanwhile.
#[test]
fn a_copied_hash_replaces_a_key_only_if_asked_to() {
    let tested = Tested::new();
    let fill = |edit: &mut Edit<'_>| {
        let _ = edit.set_field(b"f", Value::Inline(b"copied"), None);
    };
    let put = |replace| tested.engine.ledger.put_hash(LOCKED, 0, b"h", fill, None, replace);
    tested.engine.ledger.notifications.set_listening(LOCKED, true);
    tested.say("set h own");
    tested.notifications();
    assert!(!put(false));
    assert_eq!((tested.say("get h").as_str(), tested.notifications().len()), ("own", 0));
    assert!(put(true));
    assert_eq!((tested.say("hgetall h").as_str(), tested.books().0), ("f copied", 1));
    assert_eq!(tested.notifications(), ["h hset"]);
}
