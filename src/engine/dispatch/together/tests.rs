use super::*;
use crate::command::{Args, Keep, Limits, Transcript};
use crate::engine::call::Author;
use crate::engine::ledger::{Account, Gates};
use crate::engine::testing::{Said, number_of, open_engine};
use crate::store::{Entry, UnixMs, Value};
use crate::sync::LOCKED;

/// The words of a line, and what keeps them.
type KeptWords<'a> = (Vec<&'a [u8]>, Option<&'a dyn Keep>);

/// Lines of commands, as calls.
pub(in crate::engine) struct Lines<'a> {
    lines: Vec<KeptWords<'a>>,
    db: u32,
    now: UnixMs,
    limits: Limits,
}

impl<'a> Lines<'a> {
    /// Those that are on one shard, at one time; each with what keeps its arguments.
    pub(in crate::engine) fn new(
        engine: &Engine,
        db: u32,
        now: UnixMs,
        lines: impl Iterator<Item = KeptWords<'a>>,
    ) -> Self {
        let on_one_shard = |(words, _): &KeptWords<'_>| {
            let row = COMMANDS[number_of(words[0])];
            row.is_on_one_shard(words.len()) && row.first_key() < words.len()
        };
        let limits = engine.settings().limits(usize::MAX);
        Lines { lines: lines.filter(on_one_shard).collect(), db, now, limits }
    }
}

impl Together for Lines<'_> {
    fn count(&self) -> usize {
        self.lines.len()
    }

    fn db(&self) -> u32 {
        self.db
    }

    fn now(&self) -> Now {
        Now::at(self.now)
    }

    fn command(&self, number: usize) -> usize {
        number_of(self.lines[number].0[0])
    }

    fn key(&self, number: usize) -> &[u8] {
        self.lines[number].0[COMMANDS[self.command(number)].first_key()]
    }

    fn args(&self, number: usize) -> Args<'_> {
        let (words, keeper) = &self.lines[number];
        keeper.map_or(Args::new(words), |keeper| Args::with_keeper(words, keeper))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn call(&self, number: usize) -> Call<'_> {
        Call {
            command: self.command(number),
            args: self.args(number),
            db: self.db,
            now: self.now(),
            limits: self.limits,
            prefix: "",
            author: Author::Nobody,
        }
    }
}

fn engine() -> Engine {
    open_engine(1, 4, || 0)
}

/// Runs lines together until all have run, and returns their replies and how many ran each
/// time.
fn run(engine: &Engine, db: u32, now: UnixMs, lines: &[&str]) -> (String, Vec<usize>) {
    let (mut said, mut steps, mut rest) = (Said::default(), Vec::new(), lines);
    while !rest.is_empty() {
        let words = rest.iter().map(|line| (line.split(' ').map(str::as_bytes).collect(), None));
        let (calls, mut reply) = (Lines::new(engine, db, now, words), Transcript::default());
        let slot = engine.worker_slot(0);
        let (done, outcome) = engine.attempt_run(slot, &calls, &mut reply, |_| false);
        assert_eq!(outcome, Outcome::Done);
        reply.play(&mut said);
        steps.push(done);
        rest = &rest[done..];
    }
    (said.text(), steps)
}

fn calls_of(engine: &Engine, name: &str) -> u64 {
    engine.ledger.books.command_count(number_of(name.as_bytes())).calls
}

#[test]
fn reads_around_a_write_see_what_it_did() {
    let engine = engine();
    let lines = ["get a", "set a 1", "get a", "get b", "append a 2", "get a", "del a", "get a"];
    assert_eq!(run(&engine, 0, 0, &lines).0, "null OK 1 null 2 12 1 null");
    assert_eq!((calls_of(&engine, "get"), calls_of(&engine, "set")), (5, 1));
    // Database 1 has no table yet; reading makes none.
    assert_eq!(run(&engine, 1, 0, &["get a", "get b"]).0, "null null");
    let shard = engine.shards().take_waiting(LOCKED, 0);
    assert!(shard.table(1).is_none());
    engine.ledger.release(engine.main_slot(LOCKED), 0, shard);
}

#[test]
fn sets_count_and_end_alike_whichever_way_they_run() {
    let engine = engine();
    let long = format!("set a {}", "x".repeat(100));
    let lines =
        ["set a 1", "set a 2", "get a", "set a 3 pxat 900", "set a 4", "pttl a", &long, "set a 56"];
    for first in 0..lines.len() {
        let (sets, changes) = (calls_of(&engine, "set"), engine.ledger.books.changes());
        // Together, and one by one.
        let (said, _) = run(&engine, 0, 0, &lines[first..]);
        let alone = lines[first..].iter().map(|line| run(&engine, 0, 0, &[line]).0);
        assert_eq!(alone.collect::<Vec<_>>().join(" "), said);
        let of_batch = lines[first..].iter().filter(|line| line.starts_with("set")).count() as u64;
        assert_eq!(calls_of(&engine, "set") - sets, 2 * of_batch);
        assert_eq!(engine.ledger.books.changes() - changes, 2 * of_batch);
        assert_eq!(run(&engine, 0, 0, &["get a", "strlen a", "pttl a"]).0, "56 2 -1");
        let census = engine.ledger.books.census(0);
        assert_eq!((census.keys, census.expiring), (1, 0));
    }
}

/// A write in the middle moves the entries that the first steps have found: it splits segments,
/// overwrites and removes.
#[test]
fn reads_behind_writes_find_keys_that_have_moved() {
    let engine = engine();
    for number in 0..3000 {
        let (last, long) = (number / 2, "x".repeat(number % 300));
        let lines = [
            format!("get k{last}"),
            format!("set k{number} {number}"),
            format!("set k{last} {long}"),
            format!("get k{last}"),
            format!("get k{number}"),
            format!("set k{last} {last}"),
            format!("get k{last}"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let wanted = if number == 0 { "null".to_owned() } else { last.to_string() };
        let of_number = if number == last { long.clone() } else { number.to_string() };
        let wanted = format!("{wanted} OK OK {long} {of_number} OK {last}");
        assert_eq!(run(&engine, 0, 0, &lines).0, wanted, "{number}");
    }
    let (mut names, mut wanted) = (Vec::new(), Vec::new());
    for number in 0..3000 {
        names.push(format!("get k{number}"));
        wanted.push(number.to_string());
        names.push(format!("get none{number}"));
        wanted.push("null".to_owned());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let before = calls_of(&engine, "get");
    let (said, steps) = run(&engine, 0, 0, &names);
    assert_eq!(said, wanted.join(" "));
    assert_eq!(steps[0], AHEAD, "as many as fit run together");
    assert_eq!(calls_of(&engine, "get") - before, 6000);
}

#[test]
fn an_expired_key_among_reads_is_removed() {
    let engine = engine();
    run(&engine, 0, 0, &["set a 1", "set b 2 pxat 100", "set c 3 pxat 900"]);
    let lines = ["get a", "get b", "get c", "get b", "get a"];
    assert_eq!(run(&engine, 0, 100, &lines).0, "1 2 3 2 1", "in that millisecond it is there");
    assert_eq!(engine.ledger.books.totals().expired, 0);
    assert_eq!(run(&engine, 0, 101, &lines).0, "1 null 3 null 1");
    assert_eq!(engine.ledger.books.totals().expired, 1);
    assert_eq!(engine.ledger.books.census(0).keys, 2);
    assert_eq!(calls_of(&engine, "get"), 10);
}

#[test]
fn another_type_among_reads_is_an_error() {
    let engine = engine();
    run(&engine, 0, 0, &["set a 1", "set b 2"]);
    let at = engine.shards().key_at(0, b"other");
    let mut held = engine.shards().take_waiting(LOCKED, at.shard);
    let account = Account::new(engine.main_slot(LOCKED), false);
    engine.ledger.edit_key(account, &mut held, at, b"other", &Now::at(0), |edit| {
        edit.put(Entry::other(b"other", Value::Inline(b"12"), None));
    });
    engine.ledger.release(engine.main_slot(LOCKED), at.shard, held);
    let lines = ["get a", "get other", "get b", "strlen b", "get a"];
    assert_eq!(
        run(&engine, 0, 0, &lines).0,
        "1 WRONGTYPE Operation against a key holding the wrong kind of value 2 1 1"
    );
}

#[test]
fn a_long_reply_ends_the_run_among_reads_and_behind() {
    let engine = engine();
    for lines in [["get a", "get b", "get c"], ["strlen a", "get b", "get c"]] {
        let words = lines.iter().map(|line| (line.split(' ').map(str::as_bytes).collect(), None));
        let calls = Lines::new(&engine, 0, 0, words);
        let (mut reply, mut asked) = (Transcript::default(), 0);
        let ran = engine.attempt_run(engine.worker_slot(0), &calls, &mut reply, |_| {
            asked += 1;
            asked == 2
        });
        assert_eq!((ran, asked), ((2, Outcome::Done), 2), "{lines:?}");
    }
}

#[test]
fn a_busy_shard_ends_the_run() {
    let engine = engine();
    let names: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let shard = |name: &String| engine.shards().of_key(name.as_bytes());
    // The keys' shards are drawn with each engine: the busy one is that of a key which runs.
    let busy = shard(&names[AHEAD / 2]);
    let first_busy = names.iter().position(|name| shard(name) == busy).expect("that key");
    let held = engine.shards().take_waiting(LOCKED, busy);
    let words = names.iter().map(|name| (vec![&b"get"[..], name.as_bytes()], None));
    let calls = Lines::new(&engine, 0, 0, words);
    let (mut reply, slot) = (Transcript::default(), engine.worker_slot(0));
    let (done, outcome) = engine.attempt_run(slot, &calls, &mut reply, |_| false);
    assert_eq!((done, outcome), (first_busy, Outcome::Busy));
    engine.ledger.release(engine.main_slot(LOCKED), busy, held);
}

/// Reads that passed the gate before the keyspace was emptied for a load do not find it empty: they
/// go to the main thread, which runs them when it has loaded.
#[test]
fn nobody_reads_emptied_keys() {
    let engine = engine();
    let slot = engine.worker_slot(0);
    engine.ledger.set_gates(LOCKED, Gates::LOADING.and(Gates::READ_ONLY));
    let words = [vec![&b"get"[..], b"k"], vec![b"strlen", b"k"]];
    for call in words {
        let calls = Lines::new(&engine, 0, 0, [(call, None)].into_iter());
        let mut reply = Transcript::default();
        let ran = engine.attempt_run(slot, &calls, &mut reply, |_| false);
        assert_eq!(ran, (0, Outcome::NeedsMain));
        let alone = engine.attempt(slot, &calls.call(0), Taking::WORKER, &mut reply);
        assert_eq!(alone, Outcome::NeedsMain);
    }
    let mget = [&b"mget"[..], b"k", b"l"];
    let command = number_of(mget[0]);
    let call = |of: &Lines<'_>| Call { command, args: Args::new(&mget), ..of.call(0) };
    let any = Lines::new(&engine, 0, 0, [(vec![&b"get"[..], b"k"], None)].into_iter());
    let mut reply = Transcript::default();
    let ran = engine.attempt(slot, &call(&any), Taking::WORKER, &mut reply);
    assert_eq!(ran, Outcome::NeedsMain);
}

/// How many shards a thread holds after each of these calls, which run together.
fn held_after(engine: &Engine, lines: &[String]) -> Vec<usize> {
    let words = lines.iter().map(|line| (line.split(' ').map(str::as_bytes).collect(), None));
    let calls = Lines::new(engine, 0, 0, words);
    let (mut reply, mut held) = (Transcript::default(), Vec::new());
    let shards = engine.shards();
    let is_held = |&shard: &u32| match shards.try_take(shard) {
        None => true,
        Some(taken) => {
            shards.let_go(shard, taken);
            false
        }
    };
    let ran = engine.attempt_run(engine.worker_slot(0), &calls, &mut reply, |_| {
        held.push((0..shards.count()).filter(is_held).count());
        false
    });
    assert_eq!(ran, (lines.len(), Outcome::Done));
    assert_eq!((0..shards.count()).filter(is_held).count(), 0, "all are released at the end");
    held
}

#[test]
fn reads_and_writes_hold_the_shards_of_their_own_group() {
    let engine = open_engine(1, 1024, || 0);
    let (mut seen, mut names) = (Vec::new(), Vec::new());
    for name in (0..).map(|number| format!("k{number}")) {
        let shard = engine.shards().of_key(name.as_bytes());
        if !seen.contains(&shard) {
            seen.push(shard);
            names.push(name);
        }
        if names.len() == AHEAD {
            break;
        }
    }
    let gets: Vec<String> = names.iter().map(|name| format!("get {name}")).collect();
    assert_eq!(held_after(&engine, &gets), [READS_HELD; AHEAD]);
    assert_eq!(held_after(&engine, &gets[..3]), [3; 3]);
    // A group of so many calls holds so many shards.
    let with_sets_at = |numbers: &[usize]| {
        let mut lines = gets.clone();
        numbers.iter().for_each(|&at| lines[at] = format!("set {} 1", names[at]));
        held_after(&engine, &lines)
    };
    let groups =
        |sizes: &[usize]| sizes.iter().flat_map(|&size| vec![size; size]).collect::<Vec<_>>();
    let many = READS_HELD;
    assert_eq!(with_sets_at(&[0]), groups(&[1, many, AHEAD - many - 1]));
    assert_eq!(with_sets_at(&[many + 3]), groups(&[many, 4, AHEAD - many - 4]));
    assert_eq!(with_sets_at(&[AHEAD - 1]), groups(&[many, AHEAD - many - 1, 1]));
    assert_eq!(with_sets_at(&[AHEAD - 3]), groups(&[many, AHEAD - many - 3, 3]));
    let (near, far) = (3 + READS_BESIDE + 1, 3 + READS_BESIDE + 2);
    assert_eq!(with_sets_at(&[3, near]), groups(&[near + 1, many, AHEAD - many - near - 1]));
    let last = AHEAD - many - far - 1;
    assert_eq!(with_sets_at(&[3, far]), groups(&[4, READS_BESIDE + 1, 1, many, last]));
    assert_eq!(with_sets_at(&Vec::from_iter(0..AHEAD)), [AHEAD; AHEAD]);
}
