//! The promise: while many threads write, the keyspace without what the log does not have yet is
//! always what the log replays to, and at the end both are equal.
//!
//! Real threads on a real engine. A list of texts stands for the host's log; a second engine
//! replays it, once as it grows, and once more at the end on workers of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use midi::command::{Args, Cluster, Transcript, find};
use midi::engine::{
    AllHeld, Author, Call, Config, Engine, Gates, HostLog, Locked, Logged, Outcome, Settings,
    Taking, Workers,
};
use midi::engine::{Replay, replay_here};
use midi::store::{Now, Origin, UnixMs};
use parking_lot::Mutex;

const WRITERS: usize = 3;
const SHARDS: usize = 8;
const DATABASES: u32 = 2;

/// Values of this many bytes are shared buffers.
const LARGE: usize = 200;

/// The global lock, for the thread that plays the host's main thread.
fn locked<'a>() -> Locked<'a> {
    // SAFETY: there is no host, and one thread claims the lock of each test's engines.
    unsafe { Locked::assume() }
}

fn engine(workers: usize, gates: Gates) -> Engine {
    let config = Config {
        workers,
        shards: SHARDS,
        databases: DATABASES,
        cluster: Cluster::Off,
        safemode: false,
        clock: || 1_600_000_000_000,
    };
    let settings = Settings { keep_bytes: AtomicUsize::new(LARGE), ..Settings::default() };
    let engine = Engine::new(config, settings, Box::new(|| ())).expect("eventfds");
    engine.ledger.set_gates(locked(), gates);
    engine
}

/// All keys: value, expiry and origin.
type Keys = BTreeMap<(u32, Vec<u8>), (Vec<u8>, Option<UnixMs>, Origin)>;

/// Nothing in here may panic: all tokens are held.
fn content(all: &AllHeld<'_>) -> Keys {
    let mut keys = Keys::new();
    for store in (0..SHARDS as u32).filter_map(|shard| all.store(shard)) {
        for (db, table) in store.databases().filter_map(|db| Some((db, store.table(db)?))) {
            for entry in table.entries() {
                let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
                if let Ok(value) = entry.string() {
                    let content = (value.bytes().to_vec(), expire_at, value.origin());
                    keys.insert((db, key), content);
                }
            }
        }
    }
    keys
}

fn content_of(engine: &Engine) -> Keys {
    let all = engine.shards().hold_all(locked());
    let keys = content(&all);
    all.release();
    keys
}

/// The keys that are not the same in both.
fn differing(one: &Keys, other: &Keys) -> Vec<String> {
    let keys = one.keys().chain(other.keys()).filter(|key| one.get(key) != other.get(key));
    let shown = |key: &(u32, Vec<u8>)| format!("{key:?}\n{:?}\n{:?}", one.get(key), other.get(key));
    keys.map(shown).collect()
}

/// A random command that changes a few keys.
fn line(random: &mut fastrand::Rng) -> Vec<String> {
    let mut key = || format!("key:{}", random.u32(..40));
    let (a, b) = (key(), key());
    let value = random.u32(..10).to_string().repeat(random.usize(1..2 * LARGE));
    let at = random.u32(..300).to_string();
    let words: &[&str] = match random.u32(..14) {
        0..=2 => &["set", &a, &value],
        3 => &["set", &a, &value, "px", "100000"],
        4 | 5 => &["append", &a, &value],
        6 => &["setrange", &a, &at, &value],
        7 => &["mset", &a, &value, &b, &value],
        8 => &["rename", &a, &b],
        9 => &["copy", &a, &b, "replace"],
        10 => &["del", &a, &b],
        11 => &["incrby", &a, &at],
        12 => &["pexpire", &a, "100000"],
        _ => &["setbit", &a, &at, "1"],
    };
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Runs a command as a worker does for its port, until its tokens are free.
fn run(engine: &Engine, worker: usize, db: u32, line: &[String]) {
    let words: Vec<&[u8]> = line.iter().map(String::as_bytes).collect();
    let slot = engine.worker_slot(worker);
    loop {
        let call = Call {
            command: find(words[0]).expect("a command of the table"),
            args: Args::new(&words),
            db,
            now: Now::lazy(engine.config().clock),
            limits: engine.settings().limits(usize::MAX),
            prefix: "",
            author: Author::Nobody,
        };
        match engine.attempt(slot, &call, Taking::WORKER, &mut Transcript::default()) {
            Outcome::Done => return,
            Outcome::Busy => thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

/// The host's log.
struct Texts(Arc<Mutex<Vec<Vec<u8>>>>);

impl HostLog for Texts {
    fn may_log(&self, _: Locked<'_>) -> bool {
        true
    }

    fn write(&self, _: Locked<'_>, logged: Logged<'_>) -> bool {
        self.0.lock().push(logged.text().into_owned());
        true
    }
}

#[test]
fn the_keyspace_without_the_tail_is_what_the_log_holds() {
    const STEPS: usize = 4000;
    let texts = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
    let (writes, log) = (engine(WRITERS, Gates::AOF_ON), Arc::clone(&texts));
    writes.context().outside.set_log(Box::new(Texts(log)));
    let (reader, mut read) = (engine(1, Gates::LOADING), 0);
    let (running, stopped) = (AtomicUsize::new(WRITERS), AtomicBool::new(false));
    let (mut looks, mut with_tail) = (0, 0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS)
            .map(|worker| {
                let (writes, running, stopped) = (&writes, &running, &stopped);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(worker as u64);
                    let mut seen = 0;
                    for _ in 0..STEPS {
                        if stopped.load(Ordering::Relaxed) {
                            break;
                        }
                        let db = random.u32(..DATABASES);
                        run(writes, worker, db, &line(&mut random));
                        let now = writes.worker_slot(worker).take_seen();
                        assert!(now == 0 || now > seen, "{now} after {seen}");
                        seen = seen.max(now);
                    }
                    running.fetch_sub(1, Ordering::Release);
                })
            })
            .collect();
        while running.load(Ordering::Acquire) > 0 && threads.iter().any(|one| !one.is_finished()) {
            writes.ledger.log_tail(locked());
            let mut all = writes.shards().hold_all(locked());
            let (before, runs) = (content(&all), writes.ledger.log.counts().tail_runs);
            writes.ledger.take_back(locked(), &mut all);
            let without = content(&all);
            writes.ledger.make_again(locked(), &mut all);
            let again = content(&all);
            all.release();
            for text in &texts.lock()[read..] {
                replay_here(&reader, locked(), text).expect("good records");
            }
            read = texts.lock().len();
            let replayed = content_of(&reader);
            looks += 1;
            with_tail += usize::from(runs > 0);
            if without != replayed || again != before {
                stopped.store(true, Ordering::Relaxed);
                let without = differing(&without, &replayed);
                let again = differing(&before, &again);
                panic!(
                    "at look {looks}, with {runs} runs in the tail: without the tail, and as \
                     replayed: {without:#?}; before and again: {again:#?}"
                );
            }
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    while writes.ledger.log_tail(locked()) {}
    let (counts, expected) = (writes.ledger.log.counts(), content_of(&writes));
    assert_eq!(counts.runs, counts.positions.0, "positions have no gaps");
    assert!(counts.tail_runs == 0 && counts.tail_bytes == 0);
    assert!(looks > 1 && with_tail > 0, "{looks} looks, {with_tail} with a tail");

    let again = Arc::new(engine(2, Gates::LOADING));
    let threads = Workers::start(&again, || panic!("in a worker"), Vec::new()).expect("threads");
    let replay = Replay::start(&again);
    for text in texts.lock().drain(..) {
        replay.offer(&again, locked(), text).expect("good records");
    }
    replay.settle(&again, locked()).expect("good records");
    drop(replay);
    assert!(content_of(&again) == expected, "what all texts replay to");
    again.context().workers.stop();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}
