//! The promise: commands on hashes answer what Redis 8.6 answers, in either form, when one becomes
//! the other, and with fields that expire.
//!
//! Random programs run on the engine, on one thread with its own clock, and on a plain model.

use std::collections::BTreeSet;

use midi::engine::Engine;
use midi_test_common::cases;
use proptest::prelude::*;

use super::hash_model::{Fields, Model};
use super::hash_programs::{Step, step};
use super::model::{CLOCK, Said};
use super::strings_and_keys::{engine, run};

struct Tested {
    engine: Engine,
    model: Model,
    max_reply_bytes: usize,
}

impl Tested {
    fn new(shards: usize, max_reply_bytes: usize) -> Self {
        Tested { engine: engine(shards), model: Model::default(), max_reply_bytes }
    }

    fn said(&self, args: &[Vec<u8>]) -> Vec<Said> {
        in_order(args, run(&self.engine, 0, args, self.max_reply_bytes))
    }

    fn command(&mut self, args: &[Vec<u8>]) {
        let (got, expected) = (self.said(args), self.model.run(args));
        let text: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
        assert_eq!(got, expected, "{text:?}");
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Command(args) => self.command(args),
            Step::Later(ms) => CLOCK.set(CLOCK.get() + ms),
            Step::Scan(key, count, between) => self.scan(key, *count, between),
        }
    }

    /// A field that is there all the time is seen; one that never is is not.
    fn scan(&mut self, key: &[u8], count: usize, between: &[Vec<Vec<u8>>]) {
        let mut always: BTreeSet<Vec<u8>> = self.names(key);
        let mut ever = always.clone();
        let (mut seen, mut between) = (BTreeSet::new(), between.iter());
        let (mut cursor, count) = (b"0".to_vec(), count.to_string());
        loop {
            let words = [&b"hscan"[..], key, &cursor, b"COUNT", count.as_bytes()];
            let got = self.said(&words.map(<[u8]>::to_vec));
            let [Said::Array(2), Said::Bulk(next), Said::Array(_), fields @ ..] = &got[..] else {
                assert!(self.model.fields(key).is_err(), "{got:?}");
                return;
            };
            let names = fields.iter().step_by(2).map(|said| match said {
                Said::Bulk(name) => name.clone(),
                other => panic!("{other:?}"),
            });
            seen.extend(names);
            cursor = next.clone();
            if cursor == b"0" {
                break;
            }
            if let Some(args) = between.next() {
                self.command(args);
            }
            let live = self.names(key);
            always.retain(|name| live.contains(name));
            ever.extend(live);
        }
        assert!(always.is_subset(&seen), "a field that was there all the time was not seen");
        assert!(seen.is_subset(&ever), "a field was seen that was never there");
    }

    fn names(&self, key: &[u8]) -> BTreeSet<Vec<u8>> {
        self.model.live_fields(key).into_keys().collect()
    }

    /// All keys and fields are the same, and nothing is left when they are gone.
    fn end(&mut self) {
        for key in self.model.live_keys() {
            for name in ["type", "hgetall", "hlen"] {
                self.command(&[name.into(), key.clone()]);
            }
            let fields: Fields = self.model.live_fields(&key);
            for field in fields.into_keys() {
                let args = [&b"hpexpiretime"[..], &key, b"FIELDS", b"1", &field];
                self.command(&args.map(<[u8]>::to_vec));
            }
        }
        let count = self.engine.ledger.books.census(0).keys;
        assert!(count >= self.model.live_keys().len() as i64);
        run(&self.engine, 0, &[b"flushall".to_vec()], usize::MAX);
        assert_eq!(self.engine.ledger.books.totals().bytes, 0);
    }
}

/// The reply with its fields in the order of the model's.
fn in_order(args: &[Vec<u8>], mut said: Vec<Said>) -> Vec<Said> {
    let size = match &args[0][..] {
        b"hgetall" => 2,
        b"hkeys" | b"hvals" => 1,
        _ => return said,
    };
    let bytes = |said: &Said| match said {
        Said::Bulk(bytes) => bytes.clone(),
        _ => vec![],
    };
    let mut groups: Vec<Vec<Said>> = said.split_off(1).chunks(size).map(<[Said]>::to_vec).collect();
    groups.sort_by_key(|group| bytes(&group[0]));
    [said, groups.concat()].concat()
}

fn check(shards: usize, max_reply_bytes: usize, steps: &[Step]) {
    let mut tested = Tested::new(shards, max_reply_bytes);
    steps.iter().for_each(|step| tested.step(step));
    tested.end();
    // No worker does it here, and the leak sanitizer does not find what an arena refers to.
    drop(tested);
    midi::store::free_left(&mut || true);
}

/// A case takes as long as several of other tests: hashes have many fields.
const CASES: u32 = 6;

proptest! {
    // PROPTEST_CASES sets more.
    #![proptest_config(ProptestConfig {
        cases: cases(CASES), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_answer_as_redis_does(
        shards in proptest::sample::select(vec![1usize, 64]),
        max_reply_bytes in proptest::sample::select(vec![20usize, 500, usize::MAX]),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        check(shards, max_reply_bytes, &steps);
    }
}

/// A long program: hashes become large and small again many times.
#[test]
fn a_long_program_answers_as_redis_does() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = proptest::collection::vec(step(), 600..601);
    let tree = steps.new_tree(&mut runner).expect("steps");
    check(4, 500, &proptest::strategy::ValueTree::current(&tree));
}
