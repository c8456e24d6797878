//! The promise: commands answer what Redis 7.0 answers.
//!
//! Random programs run on the engine, on one thread with its own clock, and on a plain model.
//! Replies must be the same, and the engine's counts must be right at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;

use midi::command::{Args, Cluster, Keep, Reply, Transcript, find};
use midi::engine::{
    Author, Call, ChangedBy, Config, Engine, Gates, Locked, Outcome, Settings, Taking, long_work,
};
use midi::store::{Census, Now, SharedValue};
use proptest::prelude::*;

use super::model::{CLOCK, DATABASES, KEEP_BYTES, MAX_VALUE_BYTES, Model, START, Said};
use super::programs::{Step, step, words};

pub fn engine(shards: usize) -> Engine {
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
pub fn run(engine: &Engine, db: u32, args: &[Vec<u8>], max_reply_bytes: usize) -> Vec<Said> {
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
            let held = self.engine.shards().try_take(shard).expect("nobody else is here");
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
