//! The engine without sockets: throughput and scaling, the worst insert while a
//! table grows, bytes per key, and look-ups compared with hashbrown's.
//!
//! ```text
//! cargo bench --bench engine                      # everything, three minutes
//! cargo bench --bench engine -- --quick           # smaller and shorter
//! cargo bench --bench engine -- threads           # one part: threads, growth, bytes, lookup,
//!                                                 # snapshot, or criterion's: command/
//! ```
//!
//! With `--json` the last line contains the figures of `threads` and `bytes` as JSON, for the
//! experiments' harness (benches/harness).
//!
//! If the system has jemalloc as a library, the process starts itself again with it,
//! because Redis uses it; the first line of the output shows which is used.
#![cfg(not(loom))]

mod keys;
mod snapshots;
mod tables;
mod threads;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use midi::command::{Args, Cluster, Reply, find};
use midi::engine::{Author, Call, Config, Engine, Gates, Locked, Outcome, Settings, Taking};
use midi::store::Now;

use keys::{KEYS, Key, stream};

const VALUE: [u8; 64] = [b'v'; 64];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--bytes-of") {
        return tables::bytes_child(&args[at + 1], &args[at + 2]);
    }
    // `cargo test --benches` only checks that it runs.
    let benching = args.iter().any(|arg| arg == "--bench");
    if benching {
        with_jemalloc();
    }
    let quick = args.iter().any(|arg| arg == "--quick");
    let filter = args[1..].iter().find(|arg| !arg.starts_with('-'));
    let wanted =
        |part: &str| benching && filter.is_none_or(|filter| part.contains(filter.as_str()));
    let mut figures = Figures::default();
    if wanted("threads") {
        threads::threads(quick, &mut figures);
    }
    if wanted("growth") {
        tables::growth(if quick { 2_000_000 } else { 20_000_000 });
    }
    if wanted("bytes") {
        tables::bytes(if quick { &[1_000_000] } else { &[1_000_000, 10_000_000] }, &mut figures);
    }
    if wanted("lookup") {
        tables::lookup(quick);
    }
    if wanted("snapshot") {
        snapshots::snapshot(if quick { 1_000_000 } else { 2_000_000 });
    }
    if args.iter().any(|arg| arg == "--json") {
        return println!("{}", figures.json());
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    if benching {
        commands(&mut criterion);
    }
    criterion.final_summary();
}

/// Figures by name, for programs.
#[derive(Default)]
struct Figures(Vec<(String, f64)>);

impl Figures {
    fn note(&mut self, name: String, value: f64) {
        self.0.push((name, value));
    }

    /// The names come from this program: nothing in them needs escaping.
    fn json(&self) -> String {
        let fields: Vec<String> =
            self.0.iter().map(|(name, value)| format!("\"{name}\": {value:.4}")).collect();
        format!("{{{}}}", fields.join(", "))
    }
}

/// Starts this process again with jemalloc instead of the system's malloc.
fn with_jemalloc() {
    const MARK: &str = "MIDI_BENCH_MALLOC";
    if let Ok(which) = std::env::var(MARK) {
        println!("allocator: {which}");
        return;
    }
    let library = ["x86_64", "aarch64"]
        .map(|machine| format!("/usr/lib/{machine}-linux-gnu/libjemalloc.so.2"))
        .into_iter()
        .find(|path| Path::new(path).exists());
    let Some(library) = library else {
        println!(
            "allocator: the system's malloc (Redis would use jemalloc; libjemalloc2 is not \
             installed)"
        );
        return;
    };
    let program = std::env::current_exe().expect("a path");
    let error = Process::new(program)
        .args(std::env::args_os().skip(1))
        .env("LD_PRELOAD", &library)
        .env("MALLOC_CONF", "background_thread:true") // As Redis has it.
        .env(MARK, format!("jemalloc, as in Redis ({library})"))
        .exec();
    println!("allocator: the system's malloc (cannot start with {library}: {error})");
}

/// The global lock: there is no host.
fn locked<'a>() -> Locked<'a> {
    // SAFETY: only one thread at a time claims the lock of its engine.
    unsafe { Locked::assume() }
}

/// An engine without threads: the benches use its workers' slots.
fn engine(workers: usize, shards: usize) -> Arc<Engine> {
    let config = Config {
        workers,
        shards,
        databases: 1,
        cluster: Cluster::Off,
        safemode: false,
        clock: || 0,
    };
    let settings = Settings { keep_bytes: AtomicUsize::new(1 << 20), ..Settings::default() };
    let engine = Engine::new(config, settings, Box::new(|| {})).expect("eventfds");
    // No host is loading its data.
    engine.ledger.set_gates(locked(), Gates::OPEN);
    Arc::new(engine)
}

/// Reads a reply and drops it.
struct Sink(usize);

impl Reply for Sink {
    fn simple(&mut self, text: &'static str) {
        self.0 += text.len();
    }
    fn null(&mut self) {
        panic!("every key is there");
    }
    fn integer(&mut self, number: i64) {
        self.0 += number as usize;
    }
    #[inline]
    fn bulk(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() + usize::from(bytes[0]);
    }
    fn double(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }
    fn verbatim(&mut self, text: &[u8]) {
        self.bulk(text);
    }
    fn error(&mut self, text: &[u8]) {
        panic!("{}", String::from_utf8_lossy(text));
    }
    fn array(&mut self, len: usize) {
        self.0 += len;
    }
    fn map(&mut self, len: usize) {
        self.0 += len;
    }
}

/// Longer replies are not made on the thread of the caller.
const REPLY_BYTES: usize = 16 << 10;

fn call<'a>(engine: &Engine, command: usize, list: &'a [&'a [u8]]) -> Call<'a> {
    Call {
        command,
        args: Args::new(list),
        db: 0,
        now: Now::lazy(engine.config().clock),
        limits: engine.settings().limits(REPLY_BYTES),
        prefix: "midi.",
        author: Author::Nobody,
    }
}

fn fill(engine: &Engine, keys: u64, value: &[u8]) {
    let set = find(b"set").expect("a command");
    for number in 0..keys {
        let key = Key::new(number);
        let list: [&[u8]; 3] = [b"set", key.bytes(), value];
        let outcome = engine.attempt(
            engine.main_slot(locked()),
            &call(engine, set, &list),
            Taking::MAIN,
            &mut Sink(0),
        );
        assert_eq!(outcome, Outcome::Done);
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The processor time that this thread, or all of them, have used.
fn processor_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: Linux has this clock, and the pointer is to a timespec.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Single commands on one thread, from the parsed call to the reply.
fn commands(criterion: &mut Criterion) {
    let engine = engine(1, 1024);
    fill(&engine, KEYS, &VALUE);
    let keys = stream(None, 1 << 16, 5);
    let fresh: Vec<Key> = (0..1 << 12).map(|number| Key::new(KEYS + number)).collect();
    let run = |name: &str, args: &[&[u8]]| {
        let call = call(&engine, find(name.as_bytes()).expect("a command"), args);
        let mut sink = Sink(0);
        let outcome = engine.attempt(engine.main_slot(locked()), &call, Taking::MAIN, &mut sink);
        assert!(outcome == Outcome::Done);
        sink.0
    };
    let mut group = criterion.benchmark_group("command");
    group.throughput(Throughput::Elements(1));
    let mut keys = keys.iter().cycle();
    let mut key = || keys.next().expect("no end").bytes();
    group.bench_function("get", |bench| bench.iter(|| run("get", &[b"get", key()])));
    group.bench_function("set, same size", |bench| {
        bench.iter(|| run("set", &[b"set", key(), &VALUE]))
    });
    group.bench_function("exists", |bench| bench.iter(|| run("exists", &[b"exists", key()])));
    let mut fresh = fresh.iter().cycle();
    group.bench_function("set new, del", |bench| {
        bench.iter(|| {
            let key = fresh.next().expect("no end").bytes();
            run("set", &[b"set", key, &VALUE]) + run("del", &[b"del", key])
        });
    });
    group.throughput(Throughput::Elements(10));
    group.bench_function("mget of 10", |bench| {
        bench.iter(|| {
            let mut args: [&[u8]; 11] = [b"mget"; 11];
            args[1..].iter_mut().for_each(|arg| *arg = key());
            run("mget", &args)
        });
    });
    group.bench_function("mset of 10", |bench| {
        bench.iter(|| {
            let mut args: [&[u8]; 21] = [&VALUE; 21];
            args[1..].iter_mut().step_by(2).for_each(|arg| *arg = key());
            run("mset", &args)
        });
    });
    group.finish();
}
