//! The promises of the log, without a host. A list of texts stands for the host's log, how many of
//! them are written for its disk, and a second engine, which replays them, for who reads it:
//!
//! * the keyspace with its tail taken back is what the log replays to, after every step;
//! * taking back and making again is the identity, and the counters go with it;
//! * a reply waits for the position of what it did, and under `always` of what it saw;
//! * positions have no gaps, and those of a shard grow;
//! * what is on the disk at a crash has all that was acknowledged;
//! * a second node that gets the log has the same at the same offset, in either role.

mod model;
mod nodes;
mod observers;
mod roles;
mod texts;
mod world;

use midi_test_common::cases;
use proptest::prelude::*;

use crate::command::record::{Record, Records};
use crate::command::{Action, Reply, Transcript, host_commands};
use crate::engine::jobs::JobDoor;
use crate::engine::{Gates, Outcome, Taking};
use crate::store::free_left;
use crate::sync::LOCKED;
use model::{Door, Model, Step};
use nodes::{Pair, PairStep};
use world::{
    CLOCK, DATABASES, Keys, LARGE, Line, MAY_LOG, SHARDS, assert_same, content_of, new_engine,
    with_call,
};

fn name(number: u8) -> Vec<u8> {
    format!("k:{}", number % 8).into_bytes()
}

/// Commands. K is a key; V a value, perhaps a large one; S a short one; N a number; T a moment; M
/// milliseconds from now; D a database; P what DUMP returned. What stands behind the key of an
/// `mc-` row, and behind the value of `mc-ms`, is one word.
const LINES: &[&str] = &[
    "set K V",
    "set K V",
    "set K V px M",
    "set K V pxat T",
    "set K V keepttl",
    "set K N nx get",
    "set K V ifeq S",
    "get K",
    "mget K K K",
    "mset K V K V",
    "mset K V",
    "del K",
    "del K K K",
    "unlink K",
    "exists K K",
    "touch K",
    "expire K 1",
    "pexpire K M",
    "expireat K 2",
    "pexpireat K T",
    "pexpireat K T nx",
    "persist K",
    "rename K K",
    "renamenx K K",
    "copy K K",
    "copy K K replace",
    "copy K K db D replace",
    "copy K K db D",
    "move K D",
    "restore K 0 P",
    "restore K M P replace",
    "restore K T P replace absttl",
    "hset K F S",
    "hset K F V",
    "hset K F S F V F S",
    "hset K F S F S",
    "hmset K F S F V",
    "hsetnx K F S",
    "hdel K F",
    "hdel K F F F",
    "hdel K F F F F F F",
    "hgetdel K fields 2 F F",
    "hexpire K 1 fields 1 F",
    "hpexpire K M nx fields 2 F F",
    "hpexpire K M gt fields 1 F",
    "hexpireat K 2 fields 1 F",
    "hpexpireat K T fields 3 F F F",
    "hpersist K fields 2 F F",
    "hgetex K px M fields 2 F F",
    "hgetex K persist fields 1 F",
    "hsetex K px M fields 2 F S F V",
    "hsetex K pxat T fields 2 F S F S",
    "hsetex K fxx keepttl fields 1 F V",
    "httl K fields 1 F",
    "hincrby K F N",
    "hincrbyfloat K F 0.5",
    "hgetall K",
    "hget K F",
    "keys *",
    "dbsize",
    "scan 0",
    "randomkey",
    "keyspacedigest D",
    "flushdb",
    "flushall",
    "swapdb D D",
    "populate N k",
    "populate N k 100",
    "incr K",
    "decr K",
    "incrby K N",
    "decrby K N",
    "incrbyfloat K 0.5",
    "increx K BYINT N",
    "increx K EX 100 ENX",
    "increx K EXAT 1",
    "append K V",
    "append K S",
    "append K S",
    "strlen K",
    "setrange K N S",
    "setrange K N V",
    "setrange K N ",
    "append K ",
    "setnx K V",
    "setex K 1 V",
    "psetex K M V",
    "getset K V",
    "msetnx K V K V",
    "msetex 2 K V K V px M",
    "msetex 2 K V K V keepttl xx",
    "getdel K",
    "getex K px M",
    "getex K persist",
    "delex K",
    "delex K ifeq S",
    "delifeq K S",
    "setbit K N 1",
    "setbit K N 0",
    "bitop not K K",
    "bitop and K K K K",
    "bitop or K K K",
    "bitop xor K K K",
    "bitfield K set u8 N 7 incrby i16 9 1",
    "bitfield K set u4 0 1",
    "bitfield K set u8 N 7 set u8 1200 9",
    "bitfield K set u8 9000 1 incrby u8 N 1 get u8 0 overflow fail set u2 2000 9",
    "setbit K 4000 1",
    "setrange K 300 S",
    "bitfield K get u8 0",
    "bitcount K",
    "lcs K K",
    "mc-ms K V F5",
    "mc-ms K S MA",
    "mc-md K I",
    "mc-md K I T1",
    "mc-md K I T0",
    "mc-md K x F7",
    "mc-mg-renew K v",
    "mc-mg-renew K T1",
    "mc-mg-vivify K N1 v",
    "mc-ma K N0 T1",
];

/// The bulk string of a reply.
#[derive(Default)]
struct Bulk(Vec<u8>);

impl Reply for Bulk {
    fn simple(&mut self, _: &'static str) {}
    fn null(&mut self) {}
    fn integer(&mut self, _: i64) {}
    fn bulk(&mut self, bytes: &[u8]) {
        self.0 = bytes.to_vec();
    }
    fn double(&mut self, _: &str) {}
    fn verbatim(&mut self, _: &[u8]) {}
    fn error(&mut self, _: &[u8]) {}
    fn array(&mut self, _: usize) {}
    fn map(&mut self, _: usize) {}
}

/// What DUMP returns for this value.
fn payload(value: Vec<u8>) -> Vec<u8> {
    let engine = new_engine(Gates::OPEN);
    let dump = |line: &[&[u8]]| {
        let (line, mut reply) =
            (Line(line.iter().map(|word| word.to_vec()).collect()), Bulk::default());
        with_call(&engine, 0, &line, |call| engine.run_waiting(LOCKED, call, &mut reply));
        reply.0
    };
    dump(&[b"set", b"k", &value]);
    dump(&[b"dump", b"k"])
}

fn line_of(template: &str, seeds: &[u8]) -> Line {
    let mut seeds = seeds.iter().copied().cycle();
    let mut seed = || seeds.next().unwrap_or(0);
    let word = |word: &str| match word {
        "K" => name(seed()),
        "F" => vec![b'f' + seed() % 5; 1 + usize::from(seed() % 2)],
        "V" if seed() % 3 == 0 => vec![seed(); LARGE + usize::from(seed() % 40)],
        "V" | "S" => vec![b'0' + seed() % 5; usize::from(seed() % 5)],
        "N" => (seed() % 120).to_string().into_bytes(),
        "M" => (1 + u32::from(seed())).to_string().into_bytes(),
        "T" => (900 + 8 * u32::from(seed())).to_string().into_bytes(),
        "D" => (u32::from(seed()) % DATABASES).to_string().into_bytes(),
        "P" => payload(vec![seed(); usize::from(seed())]),
        word => word.as_bytes().to_vec(),
    };
    // The flags of memcached's meta commands are one word.
    let words: Vec<_> = match template.starts_with("mc-m") {
        true if template.starts_with("mc-ms") => template.splitn(4, ' ').map(word).collect(),
        true => template.splitn(3, ' ').map(word).collect(),
        false => template.split(' ').map(word).collect(),
    };
    Line(words)
}

fn line() -> impl Strategy<Value = Line> {
    let seeds = proptest::collection::vec(any::<u8>(), 12);
    (prop::sample::select(LINES), seeds).prop_map(|(template, seeds)| line_of(template, &seeds))
}

fn step() -> impl Strategy<Value = Step> {
    let db = || prop_oneof![3 => Just(0), 1 => 0..DATABASES];
    let lines = || proptest::collection::vec(line(), 1..8);
    let door = prop_oneof![
        4 => Just(Door::Worker(0)),
        2 => Just(Door::Worker(1)),
        2 => Just(Door::Queue),
        2 => Just(Door::Main),
    ];
    prop_oneof![
        20 => (door, db(), line()).prop_map(|(door, db, line)| Step::Run(door, db, line)),
        5 => (db(), lines()).prop_map(|(db, lines)| Step::Together(db, lines)),
        4 => (db(), lines()).prop_map(|(db, lines)| Step::Exec(db, lines)),
        4 => (db(), lines(), any::<bool>())
            .prop_map(|(db, lines, of_port)| Step::Unit(db, lines, of_port)),
        3 => (db(), any::<u8>()).prop_map(|(db, key)| Step::Read(db, key)),
        6 => Just(Step::Slices),
        4 => (0..SHARDS as u32).prop_map(Step::Expire),
        4 => Just(Step::LogTail),
        4 => Just(Step::BeforeSleep),
        4 => Just(Step::AfterSleep),
        4 => (0..150_i64).prop_map(Step::Clock),
        3 => any::<bool>().prop_map(Step::Pause),
        2 => any::<bool>().prop_map(Step::Always),
        1 => any::<bool>().prop_map(Step::Aof),
        1 => Just(Step::SaveWithoutFork),
        3 => Just(Step::Demote),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(120),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn the_log_holds_what_was_done(steps in proptest::collection::vec(step(), 1..60)) {
        CLOCK.set(1000);
        let mut model = Model::new(Keys::new());
        steps.into_iter().for_each(|step| model.step(step));
    }
}

/// Steps of a server that stays what it is.
fn step_of_master() -> impl Strategy<Value = Step> {
    step().prop_filter("of one role", |step| {
        !matches!(step, Step::Aof(_) | Step::Demote | Step::Crash)
    })
}

fn pair_step() -> impl Strategy<Value = PairStep> {
    let steps = || proptest::collection::vec(step_of_master(), 0..6);
    prop_oneof![
        24 => step_of_master().prop_map(PairStep::Master),
        3 => (0..DATABASES, line()).prop_map(|(db, line)| PairStep::Replica(db, line)),
        8 => (1..8_usize).prop_map(PairStep::Deliver),
        2 => Just(PairStep::Break),
        4 => any::<bool>().prop_map(PairStep::Link),
        3 => steps().prop_map(PairStep::FailOver),
        2 => Just(PairStep::Promote),
        2 => (0..2_usize).prop_map(PairStep::Save),
        1 => (0..2_usize).prop_map(PairStep::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(100),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn two_nodes_have_the_same(steps in proptest::collection::vec(pair_step(), 1..60)) {
        CLOCK.set(1000);
        let mut pair = Pair::new();
        steps.into_iter().for_each(|step| pair.step(step));
    }
}

/// Every command that writes is one of the model's.
#[test]
fn the_model_runs_every_command_that_writes() {
    let rows = host_commands().filter(|row| row.flags.write);
    for row in rows.filter(|row| !matches!(row.action, Action::Door(_))) {
        let is_run = LINES.iter().any(|line| line.split(' ').next() == Some(row.name));
        assert!(is_run, "{} is not run", row.name);
    }
}

/// A replayed BITOP finds the sources that had expired when it ran, unless they are removed.
#[test]
fn sources_that_have_expired_are_removed_first() {
    let set = |key: u8, byte: u8, px: &str| {
        let mut line = vec![b"set".to_vec(), name(key), vec![byte; 2 * LARGE]];
        line.extend(px.split_whitespace().map(|word| word.as_bytes().to_vec()));
        Line(line)
    };
    let bit_op = |words: &str| line_of(words, &[]);
    for door in [Door::Worker(0), Door::Queue, Door::Main] {
        CLOCK.set(1000);
        let mut model = Model::new(Keys::new());
        let mut run = |line| model.step(Step::Run(door, 0, line));
        run(set(0, 1, ""));
        run(set(1, 2, "px 5"));
        run(set(2, 4, "px 5"));
        run(set(3, 8, "px 5"));
        CLOCK.set(1010);
        run(bit_op("bitop or k:4 k:0 k:1 k:1"));
        run(bit_op("bitop or k:2 k:2 k:0 k:2"));
        let lines = vec![bit_op("bitop and k:5 k:3 k:0"), set(5, 1, "")];
        model.step(Step::Unit(0, lines, false));
        model.step(Step::BeforeSleep);
    }
}

/// An APPEND of nothing changes how a value came about, and takes no mark away.
#[test]
fn an_append_of_nothing_leaves_marks() {
    CLOCK.set(1000);
    let mut model = Model::new(Keys::new());
    let mut run = |words: &str| {
        let line = Line(words.split(' ').map(|word| word.as_bytes().to_vec()).collect());
        model.step(Step::Run(Door::Worker(0), 0, line));
    };
    run("set k:0 v");
    run("mc-md k:0 I");
    run("append k:0 ");
    model.step(Step::LogTail);
}

/// The writes of a unit for a port are one run, as far as no other run comes between: it keeps a
/// key once.
#[test]
fn a_unit_of_a_port_keeps_a_key_once() {
    CLOCK.set(1000);
    let mut model = Model::new(Keys::new());
    let not = || line_of("bitop not k:1 k:0", &[]);
    let large = Line(vec![b"set".to_vec(), name(0), vec![1; 10 * LARGE]]);
    model.step(Step::Run(Door::Worker(0), 0, large));
    let bytes = |model: &Model| model.engine.ledger.log.counts().tail_bytes;
    let mut taken = Vec::new();
    for count in [2, 12] {
        model.step(Step::BeforeSleep);
        model.step(Step::Unit(0, (0..count).map(|_| not()).collect(), true));
        assert_eq!(model.engine.ledger.log.counts().tail_runs, 1);
        taken.push(bytes(&model));
    }
    assert!(taken[1] - taken[0] < 10 * 10 * LARGE / 2, "{taken:?}");
}

/// What a unit does is one group, whatever comes between: a replica shows all of it or nothing.
#[test]
fn a_unit_of_a_port_is_one_group() {
    CLOCK.set(1000);
    MAY_LOG.set(false);
    let mut model = Model::new(Keys::new());
    let engine = &model.engine;
    let set_in = |shard: u32, value: &str| {
        let mut names = (0..).map(|number| format!("key:{number}"));
        let is_there = |name: &String| engine.shards().of_key(name.as_bytes()) == shard;
        let name = names.find(is_there).expect("some key is in it");
        line_of(&format!("set {name} {value}"), &[])
    };
    engine.shards().open_unit(LOCKED);
    for shard in 0..SHARDS as u32 {
        with_call(engine, 0, &set_in(shard, "unit"), |call| {
            engine.run_waiting(LOCKED, call, &mut Transcript::default());
        });
        if shard + 1 < SHARDS as u32 {
            with_call(engine, 0, &set_in(SHARDS as u32 - 1, "worker"), |call| {
                let slot = engine.worker_slot(0);
                let mut reply = Transcript::default();
                assert_eq!(engine.attempt(slot, call, Taking::WORKER, &mut reply), Outcome::Done);
            });
        }
    }
    engine.shards().end_unit(LOCKED);
    model.step(Step::LogTail);
    MAY_LOG.set(true);
    let text = model.host.texts.lock().last().expect("a text").clone();
    let records: Vec<_> = Records::new(&text).expect("a text").map(Result::unwrap).collect();
    let group = records.split(|record| matches!(record, Record::Multi)).nth(1).expect("a group");
    assert!(matches!(group[SHARDS..], [Record::Exec, ..]), "{records:?}");
    model.read_log();
    assert_same(&content_of(&model.engine), &content_of(&model.reader), "the log, and what is");
}

/// Wherever a job of the host's door is when its server becomes a replica.
#[test]
fn a_job_tells_of_nothing_undone() {
    let mut finished = 0;
    for slices in 0..8 {
        CLOCK.set(1000);
        let mut model = Model::new(Keys::new());
        model.job_door = JobDoor::Host;
        model.step(Step::Run(Door::Queue, 0, line_of("populate 30 k", &[])));
        let client = model.jobs.front().expect("a job").1.clone();
        (0..slices).for_each(|_| model.step(Step::Slices));
        model.become_replica();
        (0..8).for_each(|_| model.step(Step::Slices));
        let answer = client.0.lock();
        assert!(!answer.is_finished || answer.transcript.first_error().is_some(), "{slices}");
        finished += usize::from(model.jobs.is_empty());
    }
    assert!(finished > 1);
}

/// What a job writes after its server is a master again does not hide what was undone before.
#[test]
fn a_job_that_lost_a_part_fails() {
    for slices in 0..8 {
        CLOCK.set(1000);
        let mut model = Model::new(Keys::new());
        model.step(Step::Run(Door::Queue, 0, line_of("populate 300 k", &[])));
        let client = model.jobs.front().expect("a job").1.clone();
        (0..slices).for_each(|_| model.one_slice());
        let written = model.last();
        model.become_replica();
        model.become_master();
        while !model.jobs.is_empty() {
            model.step(Step::Slices);
            model.step(Step::LogTail);
        }
        let answer = client.0.lock();
        let is_closed = model.engine.ledger.log.is_undone(answer.waits_for);
        let is_refused = is_closed || answer.transcript.first_error().is_some();
        assert_eq!(is_refused, written > 0, "{slices}");
    }
}

/// A run that keeps much takes a renamed hash back before the fields that it had changed.
#[test]
fn a_renamed_hash_has_one_owner_when_it_is_taken_back() {
    CLOCK.set(1000);
    let mut model = Model::new(Keys::new());
    let mut run = |line| model.step(Step::Run(Door::Main, 0, line));
    let fields: Vec<String> = (0..600).map(|number| format!("f{number} v")).collect();
    run(Line(vec![b"set".to_vec(), name(0), vec![1; 1 << 21]]));
    run(line_of(&format!("hset k:1 {}", fields.join(" ")), &[]));
    // A table that has no keys any more counts anew.
    run(line_of("populate 100 more", &[]));
    model.step(Step::LogTail);
    let (other_db, grows) = ("set k:0 y", format!("hset k:1 f {}", "v".repeat(50_000)));
    let lines = ["set k:0 x", "set k:2 1", other_db, &grows, "rename k:1 k:2"];
    let lines = lines.map(|words| line_of(words, &[])).to_vec();
    let bytes = |model: &Model| model.engine.ledger.books.totals().bytes;
    let before = bytes(&model);
    model.step(Step::Unit(0, lines, true));
    let mut all = model.engine.shards().hold_all(LOCKED);
    model.engine.ledger.take_back(LOCKED, &mut all);
    let without = bytes(&model);
    model.engine.ledger.make_again(LOCKED, &mut all);
    all.release();
    // A table that has grown may stay so.
    assert!(without.abs_diff(before) < 10_000, "{before} before, {without} after");
    model.step(Step::LogTail);
    // No worker frees its fields.
    drop(model);
    free_left(&mut || true);
}
