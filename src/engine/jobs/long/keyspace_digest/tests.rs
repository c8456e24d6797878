use super::*;
use crate::command::Args;
use crate::engine::testing::{Said, number_of, open_engine};
use crate::engine::{Author, Call};
use crate::store::Now;
use crate::sync::LOCKED;

/// An engine without threads, whose clock has passed every expiry of these tests.
struct Tested(Engine);

impl Tested {
    fn new(workers: usize, shards: usize) -> Self {
        Tested(open_engine(workers, shards, || 5000))
    }

    /// A command's reply, at a time when no key has expired.
    fn call(&self, db: u32, words: &[&[u8]]) -> String {
        let call = Call {
            command: number_of(words[0]),
            args: Args::new(words),
            db,
            now: Now::at(0),
            limits: self.0.settings().limits(usize::MAX),
            prefix: "",
            author: Author::Nobody,
        };
        let mut said = Said::default();
        self.0.run_waiting(LOCKED, &call, &mut said);
        said.text()
    }

    fn say(&self, db: u32, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call(db, &words)
    }

    fn digest(&self) -> String {
        self.say(0, "keyspacedigest")
    }

    fn digest_of(&self, db: u32) -> String {
        self.say(0, &format!("keyspacedigest {db}"))
    }

    fn keys(&self, db: u32) -> i64 {
        self.0.ledger.books.census(db).keys
    }

    /// Like a job: slice by slice, with `between` after each. Returns the digest of database 0 and
    /// the number of slices.
    fn in_slices(&self, mut between: impl FnMut()) -> (String, u32) {
        let mut work = work(&self.0, Some(0));
        let mut slices = 0;
        for part in &mut work.parts {
            let one = |part: &mut dyn Part| part.slice(&self.slice());
            while one(part.as_mut()) != Progress::Done {
                slices += 1;
                between();
            }
        }
        let mut said = Said::default();
        assert!(work.task.reply(&mut said, &self.slice()));
        (said.text(), slices)
    }

    fn slice(&self) -> Slice<'_> {
        Slice::short(&self.0, self.0.worker_slot(0), None)
    }
}

const EMPTY: &str = "00000000000000000000000000000000";

/// Fifty thousand bytes, which repeat nowhere near each other.
fn large() -> Vec<u8> {
    (0..50_000).map(|at: u32| (at * 7 + (at >> 8)) as u8).collect()
}

/// Computed by another program from the documented layout, with another library: a digest must stay
/// what it is.
#[test]
fn known_digests() {
    let tested = Tested::new(1, 4);
    assert_eq!((tested.digest(), tested.digest_of(0)), (EMPTY.into(), EMPTY.into()));
    tested.say(0, "set a 1");
    assert_eq!(tested.digest_of(0), "a59b4530b6da00c99019da1c7eecf453");
    assert_eq!(tested.digest(), "bc111b68da2f56947edfa208b648f522");
    tested.say(0, "set b 2 pxat 4102444800000");
    assert_eq!(tested.digest_of(0), "781e3765f3c3bee9b4d24134b6541ee7");
    assert_eq!(tested.digest(), "79be9785ed1410601d410ba856d4d9dd");
    tested.say(1, "mset a 1");
    tested.say(1, "set b 2 pxat 4102444800000");
    assert_eq!(tested.digest_of(1), tested.digest_of(0));
    assert_eq!(tested.digest(), "cf10abd3647410fa4854e6ab3cf29d7b");
    tested.say(0, "flushdb");
    assert_eq!(tested.digest(), "5552144d7760009a2b13db02e61dc39e");

    tested.say(0, "flushall");
    tested.call(1, &[b"set", b"big", &large()]);
    tested.call(1, &[b"set", b"", b""]);
    tested.call(1, &[b"set", &b"k".repeat(300), b"v", b"pxat", b"1"]);
    assert_eq!(tested.digest_of(1), LARGE);
    assert_eq!(tested.digest(), LARGE_OF_ALL);
    assert_eq!(tested.digest_of(0), EMPTY);
}

#[test]
fn shards_workers_and_order_do_not_matter() {
    let mut digests = Vec::new();
    for (workers, shards) in [(1, 1), (1, 16), (3, 16), (8, 4), (5, 256)] {
        let tested = Tested::new(workers, shards);
        // More keys than one segment has, and some of them removed again.
        let numbers = 0..3000 + 500 * workers;
        let ordered: Vec<usize> =
            if shards == 16 { numbers.rev().collect() } else { numbers.collect() };
        for number in ordered {
            for db in [0, 2] {
                tested.say(db, &format!("set key:{number} {number} pxat {}", 9000 + number));
            }
        }
        for number in 3000..3000 + 500 * workers {
            tested.say(0, &format!("del key:{number}"));
            tested.say(2, &format!("del key:{number}"));
        }
        digests.push((tested.digest(), tested.digest_of(0), tested.digest_of(2)));
    }
    let (all, first, other) = &digests[0];
    assert!(first == other && all != first && first != EMPTY);
    assert!(digests.iter().all(|digest| digest == &digests[0]), "{digests:?}");
}

#[test]
fn every_change_counts_and_can_be_taken_back() {
    let tested = Tested::new(2, 8);
    for db in 0..2 {
        tested.call(db, &[b"set", b"big", &large(), b"pxat", b"9000"]);
        tested.say(db, "mset a 1 b 2 c ");
        tested.say(db, "pexpireat b 9000");
    }
    let before = (tested.digest(), tested.digest_of(0));
    for (change, back) in [
        ("set a 2", "set a 1"),
        ("setrange big 49982 _", "setrange big 49982 u"),
        ("setrange big 20000 x", "setrange big 20000 ."),
        ("pexpireat big 9001", "pexpireat big 9000"),
        ("pexpireat b 9001", "pexpireat b 9000"),
        ("persist b", "pexpireat b 9000"),
        ("pexpireat a 9000", "persist a"),
        ("del a", "set a 1"),
        ("rename a d", "rename d a"),
        ("set d ", "del d"),
        ("append c x", "set c "),
        ("move a 2", "set a 1"),
        ("mset a 2 b 1", "mset a 1 b 2"),
    ] {
        tested.say(0, change);
        assert!(tested.digest() != before.0 && tested.digest_of(0) != before.1, "{change}");
        tested.say(0, back);
        if change.starts_with("mset") {
            tested.say(0, "pexpireat b 9000");
        }
        tested.say(2, "flushdb");
        assert_eq!((tested.digest(), tested.digest_of(0)), before, "{back}");
    }
    // The numbers of the databases count for the digest of all together only.
    tested.say(0, "swapdb 1 3");
    assert_eq!(tested.digest_of(3), before.1);
    assert_ne!(tested.digest(), before.0);
    tested.say(0, "swapdb 1 3");
    assert_eq!(tested.digest(), before.0);
    // The origin of a value does not count.
    tested.say(0, "set f 0.5");
    let given = tested.digest();
    tested.say(0, "set f 0.25");
    tested.say(0, "incrbyfloat f 0.25");
    assert_eq!(tested.digest(), given);
    tested.say(0, "set f 0.");
    tested.say(0, "append f 5");
    assert_eq!(tested.digest(), given);
}

/// The boundaries between a key's parts are not to be shifted.
#[test]
fn parts_of_a_key_cannot_pass_for_others() {
    let mut seen = std::collections::HashSet::new();
    let far = i64::from_le_bytes(*b"\0\0\0\0\0\0\0\x01").to_string();
    for (key, value, at) in [
        (&b"ab"[..], &b"c"[..], None),
        (b"a", b"bc", None),
        (b"", b"abc", None),
        (b"abc", b"", None),
        (b"k", b"\0\0\0\0\0\0\0\x01v", None),
        (b"k", b"v", Some(&far)),
        (b"k\0", b"v", None),
        (b"k", b"\0v", None),
        (b"k\x01", b"v", None),
    ] {
        let tested = Tested::new(1, 1);
        tested.call(0, &[b"set", key, value]);
        if let Some(at) = at {
            assert_eq!(tested.keys(0), 1);
            tested.call(0, &[b"pexpireat", key, at.as_bytes()]);
        }
        assert!(seen.insert(tested.digest_of(0)), "{key:?} {value:?} {at:?}");
    }
}

/// At this engine's time the keys have expired, and nobody has removed them.
#[test]
fn expired_keys_count_while_they_are_there() {
    let tested = Tested::new(1, 4);
    tested.say(0, "set a 1");
    let without = tested.digest();
    tested.say(0, "set gone 1 pxat 1000");
    tested.call(0, &[b"set", b"big", &large(), b"pxat", b"1000"]);
    assert_eq!(tested.0.shards().main_now(LOCKED).ms(), 5000);
    let with = tested.digest();
    assert_ne!(with, without);
    assert_eq!((tested.digest(), tested.keys(0)), (with.clone(), 3), "reading removes nothing");
    assert_eq!(tested.in_slices(|| ()).0, tested.digest_of(0));
    tested.say(0, "del big gone");
    assert_eq!(tested.digest(), without);
}

#[test]
fn keys_that_stay_count_once_while_the_table_changes() {
    let tested = Tested::new(1, 1);
    for number in 0..40_000 {
        tested.say(0, &format!("set key:{number} {number}"));
    }
    let expected = tested.digest_of(0);
    let mut round = 0;
    let (digest, slices) = tested.in_slices(|| {
        // The table grows far and shrinks again.
        round += 1;
        if round % 4 == 1 && round < 100 {
            tested.say(0, "populate 60000 other 10");
            let names: Vec<String> = (0..60_000).map(|number| format!("other:{number}")).collect();
            let mut del: Vec<&[u8]> = vec![b"del"];
            del.extend(names.iter().map(String::as_bytes));
            tested.call(0, &del);
        }
        let same = round % 40_000;
        tested.say(0, &format!("set key:{same} {same}"));
        tested.say(1, &format!("set key:{same} {same}"));
    });
    assert!(slices > 3, "{slices}");
    assert_eq!(tested.keys(0), 40_000);
    assert_eq!(digest, expected);
}

#[test]
fn a_large_value_is_hashed_in_several_slices() {
    let value = large().repeat(200);
    for change in ["", "del big", "set big short", "flushdb"] {
        let tested = Tested::new(1, 1);
        tested.say(0, "set a 1");
        let without = tested.digest_of(0);
        tested.call(0, &[b"set", b"big", &value]);
        let with = tested.digest_of(0);
        assert_ne!(with, without);
        let mut changed = false;
        let (digest, slices) = tested.in_slices(|| {
            if !changed && !change.is_empty() {
                tested.say(0, change);
            }
            changed = true;
        });
        assert!(slices > 0 && changed, "ten megabytes take more than one slice");
        match change {
            "" => assert_eq!(digest, with),
            "del big" => assert_eq!(digest, without),
            // A digest of no moment, but it ends.
            _ => assert_ne!(digest, with),
        }
        if change == "flushdb" {
            assert_eq!(tested.digest(), EMPTY);
        }
    }
}

#[test]
fn wrong_arguments() {
    let tested = Tested::new(1, 1);
    for (line, error) in [
        ("keyspacedigest x", "ERR value is not an integer or out of range"),
        ("keyspacedigest 4", "ERR DB index is out of range"),
        ("keyspacedigest -1", "ERR DB index is out of range"),
        ("keyspacedigest 0 0", "ERR syntax error"),
    ] {
        assert_eq!(tested.say(0, line), error, "{line}");
    }
}

/// Of the large value, an empty key and a long one, in database 1.
const LARGE: &str = "57319c943b8c3350d70e4b905cb2c783";
const LARGE_OF_ALL: &str = "400ce160ab53252e3ac3ab4c5663acfd";
