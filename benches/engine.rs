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

use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command as Process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use midi::command::{Args, Cluster, Reply, find};
use midi::engine::{
    Author, Call, Config, Engine, Gates, Locked, Outcome, Settings, Staging, Taking, Workers,
};
use midi::journal::snapshot;
use midi::store::{Edit, Entry, EntryRef, KeyHasher, Now, Store, Table, Value, block_bytes};

const VALUE: [u8; 64] = [b'v'; 64];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--bytes-of") {
        return bytes_child(&args[at + 1], &args[at + 2]);
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
        threads(quick, &mut figures);
    }
    if wanted("growth") {
        growth(if quick { 2_000_000 } else { 20_000_000 });
    }
    if wanted("bytes") {
        bytes(if quick { &[1_000_000] } else { &[1_000_000, 10_000_000] }, &mut figures);
    }
    if wanted("lookup") {
        lookup(quick);
    }
    if wanted("snapshot") {
        snapshot(if quick { 1_000_000 } else { 2_000_000 });
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

fn call<'a>(engine: &Engine, command: usize, list: &'a [&'a [u8]]) -> Call<'a> {
    Call {
        command,
        args: Args::new(list),
        db: 0,
        now: Now::lazy(engine.config().clock),
        limits: engine.settings().limits(16 << 10),
        prefix: "midi.",
        author: Author::Nobody,
    }
}

/// A key as POPULATE makes it, at most 15 bytes long.
#[derive(Clone, Copy)]
struct Key {
    bytes: [u8; 15],
    len: u8,
}

impl Key {
    fn new(number: u64) -> Self {
        let mut bytes = [0; 15];
        bytes[..4].copy_from_slice(b"key:");
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        bytes[4..4 + digits.len()].copy_from_slice(digits);
        Key { bytes, len: 4 + digits.len() as u8 }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut draw = self.0;
        draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        draw ^ (draw >> 31)
    }

    /// From 0 to below 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Numbers below `count`, small ones far more often: Gray et al., "Quickly Generating
/// Billion-Record Synthetic Databases", as in YCSB.
struct Zipf {
    count: f64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (all, two) = (zeta(count), zeta(2));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - two / all);
        Zipf { count: count as f64, theta, alpha: 1.0 / (1.0 - theta), zeta: all, eta }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let part = random.part();
        let scaled = part * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        (self.count * (self.eta * part - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

const KEYS: u64 = 1_000_000;

/// Keys to ask for, drawn beforehand and stored in a row.
fn stream(zipf: Option<&Zipf>, len: usize, seed: u64) -> Vec<Key> {
    let mut random = Random(seed);
    (0..len)
        .map(|_| {
            Key::new(match zipf {
                None => random.next() % KEYS,
                Some(zipf) => zipf.draw(&mut random),
            })
        })
        .collect()
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

/// What threads did in a period.
#[derive(Clone, Copy, Default)]
struct Done {
    per_second: f64,
    /// The same, by the threads' processor time.
    per_busy_second: f64,
    commands: u64,
    /// The token was not free at the first attempt.
    failed: u64,
    /// Nor after a worker's spinning: the command would have been queued.
    given_up: u64,
}

/// Runs `work` on threads with these numbers, for `time`; each call of `work` does a few
/// hundred operations and adds them to the counts.
fn on_threads(
    numbers: Range<usize>,
    time: Duration,
    work: impl Fn(usize, &mut Done) + Sync,
) -> Done {
    let (start, stop) = (Barrier::new(numbers.len() + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> = numbers
            .map(|number| {
                let (work, start, stop) = (&work, &start, &stop);
                scope.spawn(move || {
                    let mut done = Done::default();
                    start.wait();
                    let (begun, busy) =
                        (Instant::now(), processor_time(libc::CLOCK_THREAD_CPUTIME_ID));
                    while !stop.load(Ordering::Relaxed) {
                        work(number, &mut done);
                    }
                    done.per_second = done.commands as f64 / begun.elapsed().as_secs_f64();
                    done.per_busy_second = done.commands as f64
                        / (processor_time(libc::CLOCK_THREAD_CPUTIME_ID) - busy).as_secs_f64();
                    done
                })
            })
            .collect();
        start.wait();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).fold(
            Done::default(),
            |sum, done| Done {
                per_second: sum.per_second + done.per_second,
                per_busy_second: sum.per_busy_second + done.per_busy_second,
                commands: sum.commands + done.commands,
                failed: sum.failed + done.failed,
                given_up: sum.given_up + done.given_up,
            },
        )
    })
}

/// Work that shares nothing: the best that two threads can reach on this machine right now.
fn burn(threads: usize, time: Duration) -> f64 {
    on_threads(0..threads, time, |number, done| {
        let mut random = Random(number as u64);
        for _ in 0..4096 {
            black_box(random.next());
        }
        done.commands += 1;
    })
    .per_second
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// If a burn scales less than this, other processes are using the processors, and the round
/// waits for a limited time.
const ALONE: f64 = 1.85;

/// Commands of a stream between two readings of the clock.
const BATCH: usize = 256;

fn threads(quick: bool, figures: &mut Figures) {
    let (rounds, time) = if quick { (1, 100) } else { (3, 300) };
    let time = Duration::from_millis(time);
    let len = if quick { 1 << 18 } else { 1 << 20 };
    println!(
        "\nThroughput: {KEYS} keys with values of 64 bytes, medians of {rounds} rounds of {time:?}"
    );
    println!(
        "  burn: two threads over one of plain computation in the same round; of 2: scaling / burn \
         * 2;"
    );
    println!(
        "  busy: scaling by the threads' processor time, which others on the machine disturb less;"
    );
    println!(
        "  failed: tokens not free at the first look; given up: nor after a worker's spinning (two \
         threads)\n"
    );
    println!(
        "  shards  keys     GET   1 thread   2 threads  scaling   burn   of 2   busy     failed   \
         given up"
    );
    let mut disturbed = if quick { 20 } else { 200 };
    let zipf = Zipf::new(KEYS, 0.99);
    let get = find(b"get").expect("a command");
    let set = find(b"set").expect("a command");
    for shards in [64, 1024, 16384] {
        let engine = engine(2, shards);
        fill(&engine, KEYS, &VALUE);
        for (name, zipf) in [("uniform", None), ("zipf", Some(&zipf))] {
            let streams = [stream(zipf, len, 1), stream(zipf, len, 2)];
            for reads in [100, 95, 50] {
                let places = [AtomicUsize::new(0), AtomicUsize::new(0)];
                let work = |thread: usize, done: &mut Done| {
                    let slot = engine.worker_slot(thread);
                    let at = places[thread].load(Ordering::Relaxed);
                    places[thread].store((at + BATCH) % len, Ordering::Relaxed);
                    let mut sink = Sink(0);
                    for (number, key) in streams[thread][at..at + BATCH].iter().enumerate() {
                        let read = number * 37 % 100 < reads;
                        let list: [&[u8]; 3] = [b"", key.bytes(), &VALUE];
                        let (command, args) =
                            if read { (get, &list[..2]) } else { (set, &list[..]) };
                        let call = call(&engine, command, args);
                        if engine.attempt(slot, &call, Taking::Try(0), &mut sink) == Outcome::Busy {
                            done.failed += 1;
                            if engine.attempt(slot, &call, Taking::WORKER, &mut sink)
                                == Outcome::Busy
                            {
                                done.given_up += 1;
                                while engine.attempt(slot, &call, Taking::Try(0), &mut sink)
                                    == Outcome::Busy
                                {
                                    thread::yield_now();
                                }
                            }
                        }
                    }
                    black_box(sink.0);
                    done.commands += BATCH as u64;
                };
                on_threads(0..2, time / 3, work);
                let mut seen: [Vec<f64>; 6] = Default::default();
                let mut total = Done::default();
                let mut round = 0;
                while round < rounds {
                    let burns = burn(2, time / 2) / burn(1, time / 2);
                    if burns < ALONE && disturbed > 0 {
                        disturbed -= 1;
                        continue;
                    }
                    round += 1;
                    // Two threads in the middle, so that neither has the warmer caches.
                    let alone = |number| on_threads(number..number + 1, time / 2, work);
                    let (first, two, second) = (alone(0), on_threads(0..2, time, work), alone(1));
                    let one = (first.per_second + second.per_second) / 2.0;
                    let one_busy = (first.per_busy_second + second.per_busy_second) / 2.0;
                    let scaling = two.per_second / one;
                    let busy = two.per_busy_second / one_busy;
                    let of_two = scaling / burns * 2.0;
                    let round = [one, two.per_second, scaling, burns, of_two, busy];
                    round.iter().zip(&mut seen).for_each(|(&number, list)| list.push(number));
                    total.commands += two.commands;
                    total.failed += two.failed;
                    total.given_up += two.given_up;
                }
                let [one, two, scaling, burns, of_two, busy] = seen.map(median);
                figures.note(format!("of 2: {shards} shards, {name}, {reads}% GET"), of_two);
                let share = |count: u64| 100.0 * count as f64 / total.commands as f64;
                println!(
                    "  {shards:>6}  {name:<7} {reads:>3}%  {:>7.2} M   {:>7.2} M   {scaling:>6.2}  \
                     {burns:>5.2}  {of_two:>5.2}  {busy:>5.2}   {:>7.4}%   {:>7.4}%",
                    one / 1e6,
                    two / 1e6,
                    share(total.failed),
                    share(total.given_up),
                );
            }
        }
    }
}

/// The processor time that this thread, or all of them, have used.
fn processor_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: Linux has this clock, and the pointer is to a timespec.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How long this thread was without a processor since the last call.
struct Away(Instant, Duration);

impl Away {
    fn new() -> Self {
        Away(Instant::now(), processor_time(libc::CLOCK_THREAD_CPUTIME_ID))
    }

    fn since(&mut self) -> Duration {
        let now = Away::new();
        let away = (now.0 - self.0).saturating_sub(now.1 - self.1);
        *self = now;
        away
    }
}

/// Times each of `count` inserts, and subtracts from slow ones the time that the thread
/// was without a processor.
fn time_inserts(name: &str, count: u64, mut insert: impl FnMut(u64)) {
    const SLOW: Duration = Duration::from_micros(20);
    let mut times = vec![1u32; count as usize];
    let (mut worst, mut own_worst, mut own_slow) = (Duration::ZERO, Duration::ZERO, 0u32);
    let mut away = Away::new();
    let begun = Instant::now();
    for number in 0..count {
        let start = Instant::now();
        insert(number);
        let mut time = start.elapsed();
        if time > SLOW || number % 1024 == 0 {
            worst = worst.max(time);
            time = time.saturating_sub(away.since());
            own_worst = own_worst.max(time);
            own_slow += u32::from(time > Duration::from_micros(100));
        }
        times[number as usize] = time.as_nanos() as u32;
    }
    let total = begun.elapsed();
    let mut at = |part: f64| {
        let place = ((count - 1) as f64 * part) as usize;
        f64::from(*times.select_nth_unstable(place).1) / 1000.0
    };
    let percentiles = [0.5, 0.99, 0.999, 0.9999, 0.99999].map(&mut at);
    println!(
        "  {name:<22}  {:>6.2}  {:>6.2}  {:>6.2}  {:>7.2}  {:>8.2}  {:>8.1}  {own_slow:>8}  \
         {:>6.1}  {:>8.1}  {:>6.2}",
        percentiles[0],
        percentiles[1],
        percentiles[2],
        percentiles[3],
        percentiles[4],
        own_worst.as_nanos() as f64 / 1000.0,
        f64::from(own_slow) / total.as_secs_f64(),
        worst.as_nanos() as f64 / 1000.0,
        count as f64 / total.as_secs_f64() / 1e6,
    );
}

fn growth(count: u64) {
    println!(
        "\nInserts while a keyspace of 1024 shards grows to {count} keys, values of 8 bytes; \
         microseconds"
    );
    println!(
        "  (without the time that the scheduler took the processor away; only 'elapsed' has it. \
         Page"
    );
    println!(
        "  faults are in all of it: the row without a table shows what the machine itself costs.)\n"
    );
    println!(
        "  {:<22}  {:>6}  {:>6}  {:>6}  {:>7}  {:>8}  {:>8}  {:>8}  {:>6}  {:>8}  {:>6}",
        "",
        "50%",
        "99%",
        "99.9%",
        "99.99%",
        "99.999%",
        "worst",
        "> 100 us",
        "per s",
        "elapsed",
        "M/s"
    );
    {
        let engine = engine(1, 1024);
        let set = find(b"set").expect("a command");
        time_inserts("midi, SET", count, |number| {
            let key = Key::new(number);
            let list: [&[u8]; 3] = [b"set", key.bytes(), b"8 bytes."];
            let call = call(&engine, set, &list);
            engine.attempt(engine.main_slot(locked()), &call, Taking::MAIN, &mut Sink(0));
        });
    }
    {
        // What allocator, kernel and other processes contribute to all of these.
        let mut entries = Vec::with_capacity(count as usize);
        time_inserts("entries, no table", count, |number| {
            entries.push(Entry::new(Key::new(number).bytes(), Value::Inline(b"8 bytes."), None));
        });
    }
    {
        let mut shards = Own::new(1024);
        time_inserts("midi, tables alone", count, |number| {
            shards.insert(Key::new(number).bytes(), b"8 bytes.");
        });
    }
    {
        let mut shards = Hashbrown::new(1024);
        time_inserts("hashbrown, 1024 tables", count, |number| {
            shards.insert(Key::new(number).bytes(), b"8 bytes.");
        });
    }
}

/// The baseline for midi's tables: the same entries in hashbrown's.
struct Hashbrown {
    hasher: RandomState,
    shards: Vec<HashTable<Entry>>,
}

impl Hashbrown {
    fn new(shards: usize) -> Self {
        Hashbrown {
            hasher: RandomState::default(),
            shards: (0..shards).map(|_| HashTable::new()).collect(),
        }
    }

    #[inline]
    fn hash(hasher: &RandomState, key: &[u8]) -> u64 {
        let mut hash = hasher.build_hasher();
        hash.write(key);
        hash.finish()
    }

    /// Bits that hashbrown does not use: it takes low ones and the top seven.
    #[inline]
    fn shard(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        let hash = Self::hash(&self.hasher, key);
        let shard = self.shard(hash);
        // Looks for the key first, as midi's table does and SET has to.
        if self.shards[shard].find(hash, |entry| entry.key() == key).is_some() {
            return;
        }
        let entry = Entry::new(key, Value::Inline(value), None);
        self.shards[shard]
            .insert_unique(hash, entry, |entry| Self::hash(&self.hasher, entry.key()));
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Option<&Entry> {
        let hash = Self::hash(&self.hasher, key);
        self.shards[self.shard(hash)].find(hash, |entry| entry.key() == key)
    }

    fn bytes(&self) -> usize {
        self.shards.iter().map(HashTable::allocation_size).sum()
    }
}

/// midi's own tables, in as many shards.
struct Own {
    hasher: KeyHasher,
    shards: Vec<Table>,
}

impl Own {
    fn new(shards: usize) -> Self {
        Own {
            hasher: KeyHasher::default(),
            shards: (0..shards).map(|_| Table::default()).collect(),
        }
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        let hash = self.hasher.hash(key);
        let shard = hash.shard(self.shards.len() as u32 - 1) as usize;
        let (now, mut done) = (Now::at(0), midi::store::Done::default());
        Edit::new(&mut self.shards[shard], &self.hasher, hash, key, &now, &mut done)
            .set(Value::Inline(value), None);
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let hash = self.hasher.hash(key);
        let table = &self.shards[hash.shard(self.shards.len() as u32 - 1) as usize];
        table.find(hash, key).map(|found| table.entry(found))
    }

    /// Of the buckets; entries are the same in both.
    fn bytes(&self, entries: usize) -> usize {
        self.shards.iter().map(|table| table.census().bytes as usize).sum::<usize>() - entries
    }
}

fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.expect("a number") * 1024
}

/// Each size runs in its own process, so that none inherits another's memory.
fn bytes(counts: &[u64], figures: &mut Figures) {
    println!(
        "\nBytes per key above key and value, 1024 shards, the engine's fixed parts not counted"
    );
    println!(
        "  (books: as midi counts them, which is what jemalloc's size classes take; resident: what \
         the"
    );
    println!("  kernel says, everything included)\n");
    println!(
        "  {:>9}  {:>10}  {:>6}  {:>8}  {:>6}",
        "keys", "value size", "books", "resident", "table"
    );
    for &count in counts {
        for size in [8, 64, 200] {
            let child = Process::new(std::env::current_exe().expect("a path"))
                .args(["--bytes-of", &count.to_string(), &size.to_string()])
                .output()
                .expect("itself again");
            let row = String::from_utf8_lossy(&child.stdout);
            print!("{row}");
            let books = row.split_whitespace().nth(2).and_then(|field| field.parse().ok());
            figures.note(
                format!("overhead: {count} keys, {size}-byte values"),
                books.expect("the row's third column"),
            );
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        }
    }
}

fn bytes_child(count: &str, size: &str) {
    let (count, size): (u64, usize) =
        (count.parse().expect("a number"), size.parse().expect("a number"));
    let engine = engine(1, 1024);
    let before = resident_bytes();
    let value = vec![b'v'; size];
    fill(&engine, count, &value);
    let resident = resident_bytes() - before;
    let (mut content, mut entries) = (0, 0);
    for number in 0..count {
        let key = Key::new(number);
        content += key.bytes().len() + size;
        entries += block_bytes(3 + key.bytes().len() + size);
    }
    let per_key = |bytes: usize| bytes as f64 / count as f64;
    let books = engine.ledger.books.totals().bytes as usize;
    println!(
        "  {count:>9}  {size:>10}  {:>6.1}  {:>8.1}  {:>6.1}",
        per_key(books - content),
        per_key(resident - content),
        per_key(books - entries),
    );
    std::process::exit(0); // Nobody needs the memory back.
}

fn lookup(quick: bool) {
    let counts: &[u64] = if quick { &[KEYS] } else { &[KEYS, 10 * KEYS] };
    let rounds = if quick { 3 } else { 7 };
    println!(
        "\nLook-ups in tables alone, 1024 shards, values of 64 bytes; nanoseconds each, medians\n"
    );
    println!(
        "  {:>9}  {:<10}  {:>8}  {:>10}  {:>8}  bytes of table per key",
        "keys", "", "uniform", "zipf 0.99", "misses"
    );
    for &count in counts {
        let (mut own, mut other) = (Own::new(1024), Hashbrown::new(1024));
        let mut entries = 0;
        for number in 0..count {
            let key = Key::new(number);
            own.insert(key.bytes(), &VALUE);
            other.insert(key.bytes(), &VALUE);
            entries += block_bytes(3 + key.bytes().len() + VALUE.len());
        }
        let len = 1 << 20;
        let mut random = Random(3);
        let zipf = Zipf::new(count, 0.99);
        let uniform: Vec<Key> = (0..len).map(|_| Key::new(random.next() % count)).collect();
        let skewed: Vec<Key> = (0..len).map(|_| Key::new(zipf.draw(&mut random))).collect();
        let misses: Vec<Key> = (0..len).map(|_| Key::new(count + random.next() % count)).collect();
        let mut times: [[Vec<f64>; 3]; 2] = Default::default();
        for _ in 0..rounds {
            for (at, stream) in [&uniform, &skewed, &misses].into_iter().enumerate() {
                times[0][at].push(time_each(stream, |key| {
                    own.find(key).map_or(0, |entry| touched(&entry))
                }));
                times[1][at].push(time_each(stream, |key| other.find(key).map_or(0, touched)));
            }
        }
        let per_key = |bytes: usize| bytes as f64 / count as f64;
        let bytes = [per_key(own.bytes(entries)), per_key(other.bytes())];
        for ((name, times), bytes) in ["midi", "hashbrown"].into_iter().zip(times).zip(bytes) {
            let [uniform, skewed, misses] = times.map(median);
            println!(
                "  {count:>9}  {name:<10}  {uniform:>8.1}  {skewed:>10.1}  {misses:>8.1}  \
                 {bytes:.1}"
            );
        }
    }
}

/// Strings in memory, in the place of a section of an RDB.
#[derive(Default)]
struct Strings(Vec<Vec<u8>>, usize);

impl snapshot::Sink for Strings {
    fn put(&mut self, string: &[u8]) {
        self.0.push(string.to_vec());
    }
}

impl snapshot::Source for Strings {
    fn next(&mut self) -> Option<Vec<u8>> {
        self.1 += 1;
        self.0.get(self.1 - 1).cloned()
    }
}

/// Saving and loading. The strings are copied to and from memory, which a host does, too, among
/// other things.
fn snapshot(count: u64) {
    println!("\nSnapshots of {count} keys, values of 64 bytes, 1024 shards; nanoseconds per key\n");
    let from = engine(1, 1024);
    fill(&from, count, &VALUE);
    let mut strings = Strings::default();
    let per_key = |start: Instant| start.elapsed().as_nanos() as f64 / count as f64;
    for _ in 0..3 {
        strings.0.clear();
        let start = Instant::now();
        let mut lend = |shard: u32, look: &mut dyn FnMut(&Store)| {
            let held = from.shards().get(shard).token.try_take().expect("one thread");
            look(&held);
            from.ledger.release(from.worker_slot(0), shard, held);
        };
        snapshot::save(&from, &mut lend, &mut strings, &mut |_| ());
        println!("  save                           {:>6.1}", per_key(start));
    }
    for workers in [0, 1, 2, 2, 2] {
        let to = engine(workers.max(1), 1024);
        let threads = match workers {
            0 => Vec::new(),
            _ => Workers::start(&to, || (), Vec::new()).expect("threads"),
        };
        let staging = Arc::new(Staging::new(to.shards()));
        strings.1 = 0;
        let (start, busy) = (Instant::now(), processor_time(libc::CLOCK_PROCESS_CPUTIME_ID));
        let version = snapshot::VERSION;
        let mut none = |_| ();
        snapshot::load(&to, locked(), version, &staging, &mut strings, &mut none).expect("whole");
        let load = per_key(start);
        let busy = processor_time(libc::CLOCK_PROCESS_CPUTIME_ID) - busy;
        let busy = busy.as_nanos() as f64 / count as f64;
        let staging = Arc::into_inner(staging).expect("the only one");
        let start = Instant::now();
        staging.install(&to.ledger, locked());
        let install = start.elapsed().as_micros();
        println!(
            "  load, {workers} workers' threads       {load:>6.1}   processors {busy:>6.1}   \
             install {install} us in all"
        );
        to.context().workers.stop();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

#[inline]
fn touched(entry: &Entry) -> usize {
    entry.string().map_or(0, |value| usize::from(value[0]))
}

fn time_each(stream: &[Key], mut look: impl FnMut(&[u8]) -> usize) -> f64 {
    let start = Instant::now();
    let mut sum = 0;
    for key in stream {
        sum += look(key.bytes());
    }
    black_box(sum);
    start.elapsed().as_nanos() as f64 / stream.len() as f64
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
