//! The promise: whatever thread a command runs on, it happens at one moment between its call and
//! its reply; nothing is lost, and the engine's counts are right.
//!
//! Real threads on a real engine, without a host. Under the thread sanitizer:
//!
//! ```text
//! RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo +nightly test --target x86_64-unknown-linux-gnu --test engine shard_threads
//! ```
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midi::command::{Args, Cluster, Reply, Transcript, find};
use midi::engine::{
    Author, Call, Called, Config, Engine, ForMain, Gates, HostClient, JobOwner, JobReply, Locked,
    Mode, Origin, Outcome, Request, Settings, Taking, ThreadSlot, Waker, Workers, long_work,
};
use midi::store::{Census, Now, UnixMs};
use parking_lot::Mutex;

use super::history::{History, Random, Record, Said, Step, line, played};

/// Longer than any step here takes, however busy the machine is.
const FOREVER: Duration = Duration::from_secs(60);

/// The global lock, for the thread that plays the host's main thread.
fn locked<'a>() -> Locked<'a> {
    // SAFETY: there is no host, and one thread at a time claims the lock of each test's engine.
    unsafe { Locked::assume() }
}

fn clock() -> UnixMs {
    CLOCK.load(Ordering::Relaxed)
}

/// Only the test of expiry moves it; no other test has keys that expire.
static CLOCK: AtomicI64 = AtomicI64::new(1_600_000_000_000);

fn engine(
    workers: usize,
    shards: usize,
    wake_main: impl Fn() + Send + Sync + 'static,
) -> Arc<Engine> {
    let config =
        Config { workers, shards, databases: 4, cluster: Cluster::Off, safemode: false, clock };
    let settings = Settings { keep_bytes: AtomicUsize::new(1 << 20), ..Settings::default() };
    let engine = Engine::new(config, settings, Box::new(wake_main)).expect("eventfds");
    // No host is loading its data.
    engine.ledger.set_gates(locked(), Gates::OPEN);
    Arc::new(engine)
}

fn bulk_set(said: &[Said]) -> BTreeSet<Vec<u8>> {
    let keys = said.iter().map(|said| match said {
        Said::Bulk(key) => key.clone(),
        other => panic!("{other:?}"),
    });
    let set: BTreeSet<Vec<u8>> = keys.collect();
    assert_eq!(set.len(), said.len(), "a key twice in one reply");
    set
}

/// Lends a call of this command line to `with`.
fn with_call<R>(engine: &Engine, db: u32, line: &[String], with: impl FnOnce(&Call<'_>) -> R) -> R {
    let list: Vec<&[u8]> = line.iter().map(String::as_bytes).collect();
    with(&Call {
        command: find(list[0]).expect("a command of the table"),
        args: Args::new(&list),
        db,
        now: Now::lazy(engine.config().clock),
        limits: engine.settings().limits(16 << 10),
        prefix: "midi.",
        author: Author::Nobody,
    })
}

/// The counts match the tables, every token is free, and nothing waits.
fn check_books(engine: &Engine) {
    for shard in 0..engine.shards().count() {
        let held = engine.shards().try_take(shard).expect("free, and nothing pending");
        engine.ledger.release(engine.worker_slot(0), shard, held);
    }
    let mut total = 0;
    for db in 0..engine.config().databases {
        let mut sum = Census::default();
        for shard in 0..engine.shards().count() {
            let held = engine.shards().try_take(shard).expect("nobody else is here");
            let census = held.table(db).map_or(Census::default(), |table| table.census());
            engine.ledger.release(engine.worker_slot(0), shard, held);
            sum.keys += census.keys;
            sum.expiring += census.expiring;
            total += census.bytes;
        }
        let books = engine.ledger.books.census(db);
        assert_eq!((books.keys, books.expiring), (sum.keys, sum.expiring), "database {db}");
    }
    assert_eq!(engine.ledger.books.totals().bytes, total);
    assert_eq!(engine.ledger.books.queued_now(), 0);
    assert!(engine.jobs.list().is_empty());
}

/// Retries a command until its tokens are free.
fn run_now(engine: &Engine, slot: &ThreadSlot, taking: Taking<'_>, words: &[String]) -> Vec<Said> {
    loop {
        let mut record = Record::default();
        let outcome =
            with_call(engine, 0, words, |call| engine.attempt(slot, call, taking, &mut record));
        match outcome {
            Outcome::Done => return record.0,
            Outcome::Busy => assert!(record.0.is_empty(), "nothing has been said"),
            other => panic!("{other:?}"),
        }
        thread::yield_now();
    }
}

/// Doors on threads of their own, as workers with ports are, and two threads that take turns as
/// holder of the global lock and wait for tokens.
#[test]
fn doors_side_by_side() {
    const DOORS: usize = 5;
    const LOCKED: usize = 2;
    const STEPS: usize = 10_000;
    // No thread serves the inboxes: their slots are the doors'.
    let engine = engine(DOORS - LOCKED, 4, || {});
    let history = History::new(DOORS);
    let global_lock = Mutex::new(());
    thread::scope(|scope| {
        let run = |door: usize| {
            let (engine, history, global_lock) = (&engine, &history, &global_lock);
            scope.spawn(move || {
                let mut random = Random(door as u64 + 1);
                let mut has = None;
                for done in 0.. {
                    if done >= STEPS && has.is_none() {
                        break;
                    }
                    let (step, words) = history.begin(door, &mut random, has);
                    let said = if door < LOCKED {
                        let _guard = global_lock.lock();
                        run_now(engine, engine.main_slot(locked()), Taking::Wait(locked()), &words)
                    } else {
                        let slot = engine.worker_slot(door - LOCKED);
                        run_now(engine, slot, Taking::WORKER, &words)
                    };
                    history.end(&step, &said, &mut has);
                }
            })
        };
        // The scope joins them too, but the thread sanitizer does not see that.
        let threads: Vec<_> = (0..DOORS).map(run).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    history.close(|key| {
        run_now(&engine, engine.main_slot(locked()), Taking::MAIN, &line(&["get", key])).remove(0)
    });
    check_books(&engine);
}

/// Tickets are the clients' numbers, and each test has its own.
static TICKETS: AtomicUsize = AtomicUsize::new(0);

/// Replies that were too large for the main thread, by ticket.
static LARGE: Mutex<BTreeMap<usize, Vec<Said>>> = Mutex::new(BTreeMap::new());

/// A client by its ticket.
struct Ticket(usize);

impl Ticket {
    fn of(request: &Request) -> usize {
        let Origin::Main(client) = &request.origin else { panic!("none of a port's") };
        let client: &dyn Any = &**client;
        client.downcast_ref::<Ticket>().expect("made here").0
    }
}

impl HostClient for Ticket {
    fn most_reply(&self) -> usize {
        usize::MAX
    }

    fn author(&self) -> Author {
        Author::Nobody
    }

    fn write_large(&self, transcript: &Transcript) {
        assert!(self.0 < FOREIGN, "small replies only");
        assert!(LARGE.lock().insert(self.0, played(transcript)).is_none());
    }

    fn answer(self: Box<Self>, _: Locked<'_>, _: Transcript) {
        unreachable!("the driver looks into the request");
    }

    fn wait_for_job(self: Box<Self>, _: Locked<'_>, _: u32) -> (JobOwner, Box<dyn JobReply>) {
        unreachable!("jobs have clients of their own");
    }
}

/// Replies of jobs that have finished, by ticket.
type Finished = Arc<Mutex<Vec<(usize, Vec<Said>)>>>;

struct JobSink {
    transcript: Transcript,
    ticket: usize,
    finished: Finished,
    waker: Arc<Waker>,
}

impl JobReply for JobSink {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.transcript
    }

    fn close(&mut self) {
        unreachable!("there is no limit");
    }

    fn finish(self: Box<Self>) {
        self.finished.lock().push((self.ticket, played(&self.transcript)));
        self.waker.wake();
    }
}

/// Client numbers from here on are not the driver's: other threads pushed their requests.
const FOREIGN: usize = 1 << 40;

/// How many keys never change.
const STAY: usize = 500;

/// Long commands, one after the other, each with its expected reply.
struct Jobs {
    script: Vec<(u32, Vec<String>, Expected)>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Ok,
    Integer(i64),
    Keys(usize),
    ScanOf(usize),
}

impl Jobs {
    fn new(db: u32) -> Self {
        let many: Vec<String> = (0..1200).map(|n| format!("p:{n}")).collect();
        let many = |name: &str| [line(&[name]), many.clone()].concat();
        Jobs {
            script: vec![
                (db, line(&["populate", "3000", "p", "20"]), Expected::Ok),
                (db, line(&["keys", "p:*"]), Expected::Keys(3000)),
                (0, line(&["keys", "stay:*"]), Expected::Keys(STAY)),
                (
                    0,
                    line(&["scan", "0", "match", "stay:*", "count", "1000000"]),
                    Expected::ScanOf(STAY),
                ),
                (db, many("exists"), Expected::Integer(1200)),
                (db, many("del"), Expected::Integer(1200)),
                (db, line(&["keys", "*"]), Expected::Keys(1800)),
                (db, line(&["flushdb", "sync"]), Expected::Ok),
                (db, line(&["keys", "*"]), Expected::Keys(0)),
                (db, line(&["populate", "1000"]), Expected::Ok),
                (db, line(&["flushdb", "async"]), Expected::Ok),
            ],
            next: 0,
        }
    }

    fn check(&self, said: &[Said]) {
        let (_, words, expected) = &self.script[self.next % self.script.len()];
        match (*expected, said) {
            (Expected::Ok, [Said::Ok]) => {}
            (Expected::Integer(number), [Said::Integer(got)]) if *got == number => {}
            (Expected::Keys(count), [Said::Array(len), keys @ ..]) => {
                assert_eq!((*len, bulk_set(keys).len()), (count, count), "{words:?}");
            }
            (
                Expected::ScanOf(count),
                [Said::Array(2), Said::Bulk(cursor), Said::Array(_), keys @ ..],
            ) => {
                assert_eq!((&cursor[..], bulk_set(keys).len()), (&b"0"[..], count));
            }
            _ => panic!("{words:?}: {said:?}"),
        }
    }
}

/// The host's main thread with many clients, each with one command at a time.
struct Driver {
    engine: Arc<Engine>,
    waker: Arc<Waker>,
    history: History,
    random: Random,
    first_ticket: usize,
    clients: Vec<Client>,
    ready: VecDeque<usize>,
    #[expect(clippy::vec_box, reason = "requests are boxed for their whole way")]
    batch: Vec<Box<Request>>,
    jobs: Vec<Jobs>,
    finished: Finished,
    queued: u64,
    needed_main: u64,
    foreign: u64,
    large: u64,
}

#[derive(Default)]
struct Client {
    step: Option<Step>,
    large: bool,
    has: Option<usize>,
}

const LARGE_BYTES: usize = 20 << 10;

impl Driver {
    /// The client's next command: run at once, queued, batched, or waited for.
    fn begin(&mut self, client: usize) {
        let engine = Arc::clone(&self.engine);
        let words = if self.random.below(50) == 0 {
            self.clients[client].large = true;
            line(&["get", "large"])
        } else {
            let (step, words) =
                self.history.begin(client, &mut self.random, self.clients[client].has);
            self.clients[client].step = Some(step);
            words
        };
        let ticket = self.first_ticket + client;
        let request =
            |call: &Call<'_>| Box::new(Request::new(call, Origin::Main(Box::new(Ticket(ticket)))));
        let mut record = Record::default();
        let slot = engine.main_slot(locked());
        let done = with_call(&engine, 0, &words, |call| {
            let taking = match self.random.below(10) {
                0..5 => Taking::MAIN,
                5..9 => {
                    engine.ledger.books.book_queued(slot, usize::MAX).expect("room");
                    self.batch.push(request(call));
                    return false;
                }
                _ if self.clients[client].large => Taking::MAIN,
                _ => Taking::Wait(locked()),
            };
            match engine.attempt(slot, call, taking, &mut record) {
                Outcome::Done => slot.ran_at_once(1),
                Outcome::Busy | Outcome::TooLarge => {
                    assert!(record.0.is_empty() && taking == Taking::MAIN);
                    self.queued += 1;
                    engine.ledger.books.book_queued(slot, usize::MAX).expect("room");
                    engine.shards().enqueue(request(call));
                    return false;
                }
                Outcome::Long | Outcome::NeedsMain => {
                    unreachable!("no long command, nothing watched")
                }
            }
            true
        });
        if done {
            self.end(client, &record.0);
        }
    }

    fn end(&mut self, client: usize, said: &[Said]) {
        let state = &mut self.clients[client];
        if std::mem::take(&mut state.large) {
            assert!(matches!(said, [Said::Bulk(bytes)] if bytes.len() == LARGE_BYTES));
        } else {
            let step = state.step.take().expect("a reply to a command");
            self.history.end(&step, said, &mut state.has);
        }
        self.ready.push_back(client);
    }

    fn begin_job(&mut self, ticket: usize) {
        let jobs = &self.jobs[ticket];
        let (db, words, _) = &jobs.script[jobs.next % jobs.script.len()];
        let (finished, waker) = (Arc::clone(&self.finished), Arc::clone(&self.waker));
        with_call(&self.engine, *db, words, |call| {
            let work = long_work(&self.engine, call, Some(locked())).expect("good arguments");
            let sink = JobSink { transcript: Transcript::default(), ticket, finished, waker };
            let owner = JobOwner { db: *db, client: 1, ..JobOwner::default() };
            self.engine.jobs.start(
                self.engine.context(),
                Called::of(call.command, call.prefix, &call.args),
                owner,
                work,
                Box::new(sink),
            );
        });
    }

    /// A turn of the main loop. True if any request was completed.
    fn turn(&mut self, jobs_go_on: bool) -> bool {
        let engine = Arc::clone(&self.engine);
        let batch = std::mem::take(&mut self.batch);
        self.queued += batch.len() as u64;
        engine.shards().enqueue_batch(batch.into_iter());
        let came = engine.context().main.take(locked());
        let finished = std::mem::take(&mut *self.finished.lock());
        let any = !came.is_empty() || !finished.is_empty();
        for message in came {
            match message {
                ForMain::Answer(request) => self.completed(request, false),
                ForMain::Run(request) => self.completed(request, true),
                ForMain::Task(_) | ForMain::Write(_) | ForMain::Interrupt(_) => {
                    unreachable!("nobody runs main_tasks")
                }
                ForMain::Log | ForMain::Finish(..) => unreachable!("nothing is logged"),
            }
        }
        for (ticket, said) in finished {
            self.jobs[ticket].check(&said);
            self.jobs[ticket].next += 1;
            if jobs_go_on {
                self.begin_job(ticket);
            }
        }
        any
    }

    fn completed(&mut self, mut request: Box<Request>, needs_main: bool) {
        let ticket = Ticket::of(&request);
        if ticket >= FOREIGN {
            self.foreign += 1;
            assert!(!needs_main && !request.reply.is_empty());
            return;
        }
        self.engine.ledger.books.completed();
        let client = ticket - self.first_ticket;
        let mut reply = std::mem::take(&mut request.reply);
        if needs_main {
            self.needed_main += 1;
            assert!(reply.is_empty());
            let (engine, slot) = (&self.engine, self.engine.main_slot(locked()));
            let outcome = engine.context().with_call_of(&request, |call| {
                engine.attempt(slot, call, Taking::Wait(locked()), &mut reply)
            });
            assert_eq!(outcome, Outcome::Done);
        }
        let said = if self.clients[client].large && reply.is_empty() {
            self.large += 1;
            LARGE.lock().remove(&ticket).expect("said on the worker")
        } else {
            played(&reply)
        };
        self.end(client, &said);
    }

    /// As the host's main loop goes to sleep.
    fn rest(&self) {
        if self.engine.context().main.may_sleep(locked()) {
            let start = Instant::now();
            self.waker.sleep(FOREVER);
            assert!(start.elapsed() < FOREVER, "nobody woke the main thread");
            self.engine.context().main.awake(locked());
        }
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes tokens and leaves messages, as other workers and jobs would. Returns the number of
/// requests whose completion the main thread must receive.
fn meddle(engine: &Engine, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = Random(seed);
    let mut left = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = format!("stay:{}", random.below(STAY as u64));
        let shard = engine.shards().of_key(key.as_bytes());
        let shards = engine.shards();
        let request = || {
            with_call(engine, 0, &line(&["get", &key]), |call| {
                Box::new(Request::new(call, Origin::Main(Box::new(Ticket(FOREIGN)))))
            })
        };
        match random.below(5) {
            0 => {
                left += 1;
                if let Some(held) = shards.push(shard, request()) {
                    engine.ledger.release(engine.worker_slot(0), shard, held);
                }
            }
            1 => {
                left += 1;
                shards.enqueue(request());
            }
            which => {
                let held = match which {
                    2 => shards.try_take_long(shard),
                    3 => shards.take(shard, Taking::Try(10)),
                    _ => shards.try_take_with_pending(shard).ok(),
                };
                if let Some(held) = held {
                    let start = Instant::now();
                    let hold = Duration::from_micros(random.below(30));
                    while start.elapsed() < hold {
                        std::hint::spin_loop();
                    }
                    engine.ledger.release(engine.worker_slot(0), shard, held);
                }
            }
        }
        // With pauses, so that the others progress.
        thread::sleep(Duration::from_micros(random.below(100)));
    }
    left
}

fn abort_on_panic() {
    eprintln!("a worker panicked");
    std::process::abort();
}

fn the_whole_engine(workers: usize, shards: usize, steps: usize) {
    const CLIENTS: usize = 48;
    const AT_ONCE: usize = 32;
    let waker = Arc::new(Waker::new().expect("an eventfd"));
    let wake = Arc::clone(&waker);
    let engine = engine(workers, shards, move || wake.wake());
    let threads = Workers::start(&engine, abort_on_panic, Vec::new()).expect("threads");
    let slot = engine.main_slot(locked());
    for number in 0..STAY {
        run_now(
            &engine,
            slot,
            Taking::Wait(locked()),
            &line(&["set", &format!("stay:{number}"), "value"]),
        );
    }
    run_now(
        &engine,
        slot,
        Taking::Wait(locked()),
        &line(&["set", "large", &"x".repeat(LARGE_BYTES)]),
    );

    let mut driver = Driver {
        engine: Arc::clone(&engine),
        waker,
        history: History::new(CLIENTS),
        random: Random(steps as u64),
        first_ticket: TICKETS.fetch_add(CLIENTS, Ordering::Relaxed),
        clients: (0..CLIENTS).map(|_| Client::default()).collect(),
        ready: (0..CLIENTS).collect(),
        batch: Vec::new(),
        jobs: (1..4).map(Jobs::new).collect(),
        finished: Finished::default(),
        queued: 0,
        needed_main: 0,
        foreign: 0,
        large: 0,
    };
    let stop = AtomicBool::new(false);
    let left = thread::scope(|scope| {
        let meddlers: Vec<_> = (1..3)
            .map(|seed| {
                scope.spawn({
                    let (engine, stop) = (&engine, &stop);
                    move || meddle(engine, seed, stop)
                })
            })
            .collect();
        // Also if an assertion fails below: the scope waits for its threads.
        let stopping = StopAtEnd(&stop);
        (0..driver.jobs.len()).for_each(|ticket| driver.begin_job(ticket));
        let mut begun = 0;
        while begun < steps {
            for _ in 0..AT_ONCE {
                if let Some(client) = driver.ready.pop_front() {
                    begun += 1;
                    driver.begin(client);
                }
            }
            if !driver.turn(true) && driver.ready.is_empty() {
                driver.rest();
            }
        }
        drop(stopping);
        meddlers.into_iter().map(|meddler| meddler.join().expect("no panic")).sum::<u64>()
    });
    let stuck = Instant::now() + FOREVER;
    while driver.ready.len() < CLIENTS || driver.foreign < left || !engine.jobs.list().is_empty() {
        assert!(Instant::now() < stuck, "some requests did not come home");
        driver.turn(false);
        thread::yield_now();
    }
    driver.turn(false);

    driver
        .history
        .close(|key| run_now(&engine, slot, Taking::MAIN, &line(&["get", key])).remove(0));
    engine.context().workers.stop();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    check_books(&engine);
    assert_eq!(driver.foreign, left);
    let books = &engine.ledger.books;
    assert_eq!(books.slots().map(|slot| slot.queued.get()).sum::<u64>(), driver.queued);
    assert_eq!(
        books.slots().map(|slot| slot.ran_queued.get()).sum::<u64>(),
        driver.queued - driver.needed_main + driver.foreign
    );
    let jobs: Vec<usize> = driver.jobs.iter().map(|jobs| jobs.next).collect();
    println!(
        "{workers} workers, {shards} shards: {} at once, {} queued, {} of them to main, {} large, \
         {} foreign, jobs {jobs:?}",
        slot.at_once.get(),
        driver.queued,
        driver.needed_main,
        driver.large,
        driver.foreign
    );
    assert!(driver.queued > 0 && driver.large > 0 && jobs.iter().all(|&done| done > 0));
}

#[test]
fn one_worker_one_shard() {
    the_whole_engine(1, 1, 50_000);
}

#[test]
fn two_workers_four_shards() {
    the_whole_engine(2, 4, 50_000);
}

#[test]
fn three_workers_many_shards() {
    the_whole_engine(3, 128, 50_000);
}

/// Workers remove keys that are due, whether or not a client reads them.
#[test]
fn due_keys_are_removed_by_their_owners() {
    const KEYS: i64 = 5_000;
    let engine = engine(2, 8, || {});
    let threads = Workers::start(&engine, abort_on_panic, Vec::new()).expect("threads");
    let slot = engine.main_slot(locked());
    let base = clock();
    for number in 0..KEYS {
        let mut words = line(&["set", &format!("key:{number}"), "value"]);
        if number % 10 > 0 {
            words.extend(line(&["pxat", &(base + number).to_string()]));
        }
        run_now(&engine, slot, Taking::Wait(locked()), &words);
    }
    assert_eq!(engine.ledger.books.census(0).keys, KEYS);
    for passed in [KEYS / 2, KEYS] {
        CLOCK.store(base + passed, Ordering::Relaxed);
        let due = passed - passed / 10;
        let stuck = Instant::now() + FOREVER;
        while engine.ledger.books.census(0).keys > KEYS - due {
            assert!(Instant::now() < stuck, "{} keys are left", engine.ledger.books.census(0).keys);
            thread::sleep(Duration::from_millis(1));
        }
    }
    engine.context().workers.stop();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(
        (engine.ledger.books.census(0).keys, engine.ledger.books.census(0).expiring),
        (KEYS / 10, 0)
    );
    assert_eq!(engine.ledger.books.totals().expired, KEYS - KEYS / 10);
    check_books(&engine);
}

/// How many keys there are, under all tokens.
fn keys_at_one_moment(engine: &Engine) -> i64 {
    let all = engine.shards().hold_all(locked());
    let count = |shard| all.store(shard)?.table(0).map(|table| table.census().keys);
    let keys = (0..engine.shards().count()).filter_map(count).sum();
    all.release();
    keys
}

/// The main thread closes and opens the keyspace beside writers: it never finds half an MSET, and
/// what it finds once the keyspace is closed stays until it is opened.
#[test]
fn nothing_is_written_while_the_keyspace_is_closed() {
    const WRITERS: usize = 3;
    const ROUNDS: u64 = 100;
    let engine = engine(WRITERS, 16, || {});
    let (stop, written, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let write = |writer: usize| {
        let slot = engine.worker_slot(writer);
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            let (a, b) = (format!("a:{writer}:{number}"), format!("b:{writer}:{number}"));
            let outcome = with_call(&engine, 0, &line(&["mset", &a, "1", &b, "1"]), |call| {
                engine.attempt(slot, call, Taking::WORKER, &mut Record::default())
            });
            match outcome {
                Outcome::Done => {
                    written.fetch_add(1, Ordering::Relaxed);
                    number += 1;
                }
                Outcome::NeedsMain => drop(refused.fetch_add(1, Ordering::Relaxed)),
                Outcome::Busy => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let wait_for_more = |count: &AtomicU64| {
        let (before, stuck) = (count.load(Ordering::Relaxed), Instant::now() + FOREVER);
        while count.load(Ordering::Relaxed) == before {
            assert!(Instant::now() < stuck, "the writers do not go on");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let write = &write;
        let threads: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        for _ in 0..ROUNDS {
            wait_for_more(&written);
            assert_eq!(keys_at_one_moment(&engine) % 2, 0, "half an MSET");
            engine.ledger.set_gates(locked(), Gates::SAVING);
            assert_eq!(engine.mode(), Mode::Closed);
            let closed = keys_at_one_moment(&engine);
            wait_for_more(&refused);
            assert_eq!(keys_at_one_moment(&engine), closed, "written while it was closed");
            engine.ledger.set_gates(locked(), Gates::OPEN);
        }
        stop.store(true, Ordering::Relaxed);
        // The scope joins them too, but the thread sanitizer does not see that.
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    assert_eq!(keys_at_one_moment(&engine), 2 * written.load(Ordering::Relaxed) as i64);
    check_books(&engine);
}
