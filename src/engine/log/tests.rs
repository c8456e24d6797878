//! The promises of the log, without a host. A list of texts stands for the host's log, how many of
//! them are written for its disk, and a second engine, which replays them, for who reads it:
//!
//! * the keyspace with its tail taken back is what the log replays to, after every step;
//! * taking back and making again is the identity, and the counters go with it;
//! * a reply waits for the position of what it did, and under `always` of what it saw;
//! * positions have no gaps, and those of a shard grow;
//! * what is on the disk at a crash has all that was acknowledged.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::{Logged, Wrote};
use crate::command::record::{Record, Records, header, select};
use crate::command::{Action, Args, Cluster, Keep, Reply, Transcript, find, host_commands};
use crate::engine::call::{Author, Call, Outcome, Taking};
use crate::engine::dispatch::{Panic, Resumed};
use crate::engine::edit::Account;
use crate::engine::job::{JobDoor, JobOwner, JobReply, Progress};
use crate::engine::request::{Origin as Waits, PortClient, Request};
use crate::engine::state::{ForMain, JobPart, Message};
use crate::engine::{AllHeld, Config, Engine, Gates, Mode, Settings, Shards, Watching};
use crate::store::{Census, Entry, Now, Origin, SharedValue, UnixMs, Value};
use crate::sync::{LOCKED, Left};

/// Values of this many bytes are shared buffers.
const LARGE: usize = 64;

const WORKERS: usize = 2;
const SHARDS: usize = 4;
const DATABASES: u32 = 3;

thread_local! {
    static CLOCK: Cell<UnixMs> = const { Cell::new(1000) };
}

/// All keys: value, expiry and origin.
type Keys = BTreeMap<(u32, Vec<u8>), (Vec<u8>, Option<UnixMs>, Origin)>;

/// What the host has taken for its log.
#[derive(Default)]
struct Host {
    texts: Mutex<Vec<Vec<u8>>>,
    refuses: AtomicBool,
}

fn new_engine(gates: Gates) -> Engine {
    let config = Config {
        workers: WORKERS,
        shards: SHARDS,
        databases: DATABASES,
        cluster: Cluster::Off,
        safemode: false,
        clock: || CLOCK.get(),
    };
    let settings = Settings::default();
    settings.keep_bytes.store(LARGE, Ordering::Relaxed);
    let engine = Engine::new(config, settings, Box::new(|| ())).expect("a few descriptors");
    engine.set_gates(LOCKED, gates);
    engine
}

fn logging_engine(host: &Arc<Host>) -> Engine {
    let (engine, host) = (new_engine(Gates::AOF_ON), Arc::clone(host));
    engine.outside.on_log(Box::new(move |_, logged| {
        if host.refuses.load(Ordering::Relaxed) {
            return Wrote::Refused;
        }
        let mut text = logged.text.to_vec();
        if let Some((db, record)) = logged.command {
            text.clear();
            header(&mut text);
            select(db, &mut text);
            record.write(&mut text);
        }
        host.texts.lock().push(text);
        Wrote::Taken
    }));
    engine
}

fn replay(engine: &Engine, text: &[u8]) {
    let (slot, mut db) = (engine.main_slot(LOCKED), 0);
    for record in Records::new(text).expect("a version") {
        let record = record.expect("a record");
        if let Record::Select { db: next } = record {
            db = next;
        }
        if engine.replay_of_all(LOCKED, db, record).expect("a database") {
            continue;
        }
        let Some(replayed) = engine.to_replay(db, record).expect("a database") else { continue };
        assert_eq!(engine.replay(slot, &[replayed], Taking::Wait(LOCKED)), (1, None));
    }
}

fn replayed(base: &Keys, texts: &[Vec<u8>]) -> Engine {
    let engine = new_engine(Gates::LOADING);
    fill(&engine, base);
    texts.iter().for_each(|text| replay(&engine, text));
    engine
}

fn fill(engine: &Engine, keys: &Keys) {
    for ((db, key), (value, expire_at, origin)) in keys {
        let at = engine.key_at(*db, key);
        let mut held = engine.take_waiting(LOCKED, at.shard);
        let account = Account::new(engine.main_slot(LOCKED), false);
        engine.edit_key(account, &mut held, at, key, &Now::at(UnixMs::MIN), |edit| {
            let shared = SharedValue::new(value.clone());
            let is_large = value.len() >= LARGE;
            let value = if is_large { Value::Shared(&shared) } else { Value::Inline(value) };
            edit.put(Entry::new(key, value, *expire_at));
            edit.set_origin(*origin);
        });
        engine.let_go(at.shard, held);
    }
}

/// All keys of the engine. The error says which of its counters or due times is wrong: a panic while
/// tokens are held would end the process.
fn content(all: &AllHeld<'_>) -> Result<Keys, String> {
    let (engine, mut keys, mut bytes) = (all.engine(), Keys::new(), 0);
    let mut counted: BTreeMap<u32, Census> = BTreeMap::new();
    let check = |so, what: &str| if so { Ok(()) } else { Err(what.to_owned()) };
    for shard in 0..engine.shard_count() {
        let store = all.store(shard).ok_or("no shard")?;
        check(!store.log.is_changed, "a run has not been published")?;
        for db in store.databases() {
            let table = store.table(db).ok_or("no table")?;
            check(table.gained() == Census::default(), "something is left to be counted")?;
            *counted.entry(db).or_default() += table.census();
            for entry in table.entries() {
                let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
                let value = entry.string().map_err(|_| "not a string")?;
                check(expire_at.is_none_or(|at| at >= engine.due(shard)), "nobody looks for it")?;
                let content = (value.bytes().to_vec(), expire_at, value.origin());
                check(keys.insert((db, key), content).is_none(), "a key twice")?;
            }
        }
    }
    for db in 0..DATABASES {
        let (books, there) =
            (engine.books.census(db), counted.get(&db).copied().unwrap_or_default());
        check((books.keys, books.expiring) == (there.keys, there.expiring), "count of keys")?;
        bytes += there.bytes;
    }
    check(engine.books.totals().bytes == bytes, "count of bytes")?;
    Ok(keys)
}

fn content_of(engine: &Engine) -> Keys {
    let all = engine.hold_all(LOCKED);
    let keys = content(&all);
    all.release();
    keys.expect("right counters")
}

/// Checks that both are the same; names the keys that are not.
fn assert_same(a: &Keys, b: &Keys, what: &str) {
    let differs = |name: &&(u32, Vec<u8>)| a.get(*name) != b.get(*name);
    let show = |keys: &Keys, name: &(u32, Vec<u8>)| {
        keys.get(name).map_or("none".to_owned(), |(value, at, origin)| {
            let start = value[..value.len().min(20)].escape_ascii();
            format!("{start} ({} bytes) {at:?} {origin:?}", value.len())
        })
    };
    let names: BTreeSet<_> = a.keys().chain(b.keys()).filter(differs).collect();
    let different = names.iter().map(|name| {
        let key = name.1.escape_ascii();
        format!("{} {key}: {}, {}", name.0, show(a, name), show(b, name))
    });
    let different: Vec<String> = different.collect();
    assert!(different.is_empty(), "{what}: {different:#?}");
}

/// A command line.
#[derive(Clone)]
struct Line(Vec<Vec<u8>>);

impl std::fmt::Debug for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{}\"", self.0.join(&b' ').escape_ascii())
    }
}

/// Arguments that may be kept, as the doors' are.
struct Keeper<'a>(&'a Line);

impl Keep for Keeper<'_> {
    fn keep(&self, index: usize) -> Option<SharedValue> {
        Some(SharedValue::new(self.0.0[index].clone()))
    }
}

fn with_call<R>(engine: &Engine, db: u32, line: &Line, with: impl FnOnce(&Call<'_>) -> R) -> R {
    let (words, keeper): (Vec<&[u8]>, _) =
        (line.0.iter().map(Vec::as_slice).collect(), Keeper(line));
    let limits = engine.settings.limits(usize::MAX);
    with(&Call {
        command: find(words[0]).expect("a command of the table"),
        args: Args::with_keeper(&words, &keeper),
        db,
        now: Now::at(CLOCK.get()),
        limits,
        prefix: "",
        author: Author::Nobody,
    })
}

/// A client of a port: where the positions go that its job's reply waits for.
#[derive(Clone, Default)]
struct Client(Arc<Mutex<Answer>>);

#[derive(Default)]
struct Answer {
    transcript: Transcript,
    waits_for: u64,
    /// The last position that the job has taken.
    must_wait_for: u64,
    is_finished: bool,
}

impl PortClient for Client {
    fn is_gone(&self) -> bool {
        false
    }

    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        (
            JobOwner { db, door: JobDoor::Port, ..JobOwner::default() },
            Box::new(JobAnswer::of(*self)),
        )
    }
}

struct JobAnswer {
    client: Client,
    transcript: Transcript,
}

impl JobAnswer {
    fn of(client: Client) -> Self {
        JobAnswer { client, transcript: Transcript::default() }
    }
}

impl JobReply for JobAnswer {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.transcript
    }

    fn close(&mut self) {}

    fn waits_for(&mut self, position: u64) {
        let mut answer = self.client.0.lock();
        answer.waits_for = answer.waits_for.max(position);
    }

    fn finish(self: Box<Self>) {
        let mut answer = self.client.0.lock();
        (answer.transcript, answer.is_finished) = (self.transcript, true);
    }
}

/// How a command gets to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// On a worker, at once.
    Worker(usize),
    /// In the mailbox of its shard, or a worker's inbox, or as a job, whatever it needs.
    Queue,
    /// On the main thread, to its end.
    Main,
}

#[derive(Clone, Debug)]
enum Step {
    Run(Door, u32, Line),
    /// Commands on one shard each, with their tokens held together.
    Together(u32, Vec<Line>),
    /// A transaction on a worker.
    Exec(u32, Vec<Line>),
    /// A unit of the main thread, with a fork in it.
    Unit(u32, Vec<Line>),
    /// Somebody reads a large value for a while.
    Read(u32, u8),
    /// Gives a turn to each worker's jobs.
    Slices,
    Expire(u32),
    LogTail,
    BeforeSleep,
    AfterSleep,
    Clock(UnixMs),
    /// The host logs nothing, from now on or no longer.
    Pause(bool),
    /// Whether reads wait.
    Always(bool),
    Aof(bool),
    SaveWithoutFork,
    Crash,
}

struct Model {
    host: Arc<Host>,
    engine: Engine,
    /// What the host's log begins with: a rewrite.
    base: Keys,
    /// Replays the host's log as it grows.
    reader: Engine,
    read: usize,
    /// Texts that were logged before the main loop last began to sleep, and that are written.
    before_sleep: usize,
    disk: usize,
    /// What the log held when this was its last position.
    states: BTreeMap<u64, Keys>,
    /// A run that last changed a key, or the first of those that did.
    changed_at: BTreeMap<(u32, Vec<u8>), u64>,
    now: Keys,
    shards: Vec<u64>,
    /// Positions that replies still wait for.
    held: Vec<u64>,
    acknowledged: u64,
    readers: Vec<SharedValue>,
    /// Parts of jobs, with their workers and clients.
    jobs: VecDeque<(usize, Client, Box<dyn JobPart>)>,
}

impl Model {
    fn new(base: Keys) -> Self {
        let host = Arc::<Host>::default();
        let engine = logging_engine(&host);
        engine.set_gates(LOCKED, Gates::AOF_ON.and(Gates::LOADING));
        fill(&engine, &base);
        engine.set_gates(LOCKED, Gates::AOF_ON);
        let mut model = Model {
            host,
            engine,
            base: Keys::new(),
            reader: new_engine(Gates::LOADING),
            read: 0,
            before_sleep: 0,
            disk: 0,
            states: BTreeMap::new(),
            changed_at: BTreeMap::new(),
            now: base,
            shards: vec![0; SHARDS],
            held: Vec::new(),
            acknowledged: 0,
            readers: Vec::new(),
            jobs: VecDeque::new(),
        };
        model.rewrite();
        model
    }

    fn is_logged(&self) -> bool {
        self.engine.mode() == Mode::Logged
    }

    fn last(&self) -> u64 {
        self.engine.log.counts().positions.0
    }

    /// The host's log begins anew with what there is now.
    fn rewrite(&mut self) {
        self.base = content_of(&self.engine);
        self.reader = replayed(&self.base, &[]);
        self.host.texts.lock().clear();
        (self.read, self.before_sleep, self.disk) = (0, 0, 0);
        self.states = BTreeMap::from([(self.engine.log.logged(), self.base.clone())]);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Run(door, db, line) => self.run(door, db, &line),
            Step::Together(db, lines) => self.run_together(db, &lines),
            Step::Exec(db, lines) => self.exec(db, &lines),
            Step::Unit(db, lines) => self.unit(db, &lines),
            Step::Read(db, key) => self.hold_value(db, key),
            Step::Slices => self.slices(),
            Step::Expire(shard) => self.expire(shard),
            Step::LogTail => {
                self.engine.log_tail(LOCKED);
            }
            Step::BeforeSleep => {
                while self.engine.log_tail(LOCKED) {}
                self.before_sleep = self.host.texts.lock().len();
                self.engine.log.before_sleep();
            }
            Step::AfterSleep => self.after_sleep(),
            Step::Clock(ms) => CLOCK.set(CLOCK.get() + ms),
            Step::Pause(refuses) => self.host.refuses.store(refuses, Ordering::Relaxed),
            Step::Always(wait) => self.engine.log.set_reads_wait(wait),
            Step::Aof(on) => self.set_aof(on),
            Step::SaveWithoutFork => self.save_without_fork(),
            Step::Crash => self.crash(),
        }
        self.check();
    }

    /// A reply that has seen `seen`, after something was run; `before` was the last position then.
    fn replied(&mut self, before: u64, seen: u64) {
        let (last, now) = (self.last(), content_of(&self.engine));
        let same = |name: &&(u32, Vec<u8>)| now.get(*name) == self.now.get(*name);
        let changed = now.keys().chain(self.now.keys()).filter(|name| !same(name));
        let changed: Vec<_> = changed.cloned().collect();
        if self.is_logged() {
            assert!(changed.is_empty() || last > before, "{changed:?} is not in the log");
            assert!(last == before || seen == last, "waits for {seen}, not for {last}");
            changed.into_iter().for_each(|name| {
                self.changed_at.insert(name, before + 1);
            });
        }
        self.now = now;
        self.held.push(seen);
    }

    /// Under `always`, a reply waits for the last change of the keys that it is about.
    fn has_seen(&self, db: u32, line: &Line, seen: u64) {
        let log = &self.engine.log;
        let waits = log.reads_wait() && self.engine.mode() != Mode::Fast;
        for word in line.0[1..].iter().filter(|_| waits) {
            let Some(&at) = self.changed_at.get(&(db, word.clone())) else { continue };
            assert!(at <= log.safe() || at <= seen, "{line:?} has seen {at}, waits for {seen}");
        }
    }

    fn run(&mut self, door: Door, db: u32, line: &Line) {
        let (engine, before) = (&self.engine, self.last());
        let seen = match door {
            Door::Worker(worker) => {
                let slot = engine.worker_slot(worker);
                let outcome = with_call(engine, db, line, |call| {
                    engine.attempt(slot, call, Taking::WORKER, &mut Transcript::default())
                });
                let late = self.engine.mode() == Mode::Closed;
                assert!(late || !matches!(outcome, Outcome::Busy | Outcome::NeedsMain));
                slot.take_seen()
            }
            Door::Main => {
                with_call(engine, db, line, |call| {
                    engine.run_waiting(LOCKED, call, &mut Transcript::default());
                });
                engine.main_slot(LOCKED).take_seen()
            }
            Door::Queue => return self.queue(db, line),
        };
        self.has_seen(db, line, seen);
        self.replied(before, seen);
    }

    fn queue(&mut self, db: u32, line: &Line) {
        let (engine, before, client) = (&self.engine, self.last(), Client::default());
        let (slot, worker) = (engine.worker_slot(0), 1);
        engine.books.book_queued(slot, usize::MAX).expect("no limit");
        let request = with_call(engine, db, line, |call| {
            let client = Box::new(client.clone());
            Box::new(Request::new(call, Waits::Worker { worker, connection: 0, client }))
        });
        if request.is_on_one_shard() {
            let shard = engine.shard_of_request(&request);
            let mut held = engine.take_waiting(LOCKED, shard);
            assert!(matches!(engine.shard(shard).token.leave(request), Left::Queued));
            let request = held.next_pending().expect("it was left there");
            engine.resume_on_held(slot, shard, &mut held, request);
            engine.before_release(slot, &mut held);
            engine.let_go(shard, held);
        } else {
            let resumed = engine.resume(slot, request, Panic::Fatal, |call, transcript| {
                engine.attempt_outlined(slot, call, Taking::WORKER, transcript)
            });
            match resumed {
                Resumed::Answered(request) => engine.send_back(std::iter::once(request)),
                Resumed::Busy(_) => panic!("nobody else is here"),
                Resumed::HandedOn => {}
            }
        }
        for message in engine.main.take(LOCKED) {
            match message {
                ForMain::Run(request) => engine.resume_on_main(LOCKED, request, || panic!()),
                ForMain::Log => {}
                _ => panic!("not of a port"),
            }
        }
        let mut completed = None;
        for number in 0..WORKERS {
            for message in engine.workers.queue(number).inbox.take() {
                match message {
                    Message::Completed(request) => completed = Some(request.seen),
                    Message::Part(part) => {
                        self.jobs.push_back((number, client.clone(), part));
                        if self.last() > before {
                            client.0.lock().must_wait_for = self.last();
                        }
                    }
                    _ => {}
                }
            }
        }
        match completed {
            Some(seen) => {
                self.has_seen(db, line, seen);
                self.replied(before, seen);
            }
            None => self.replied(before, self.last()),
        }
    }

    /// A turn of each job's parts.
    fn slices(&mut self) {
        for _ in 0..self.jobs.len() {
            let Some((worker, client, mut part)) = self.jobs.pop_front() else { break };
            let before = self.last();
            let slot = self.engine.worker_slot(worker);
            let progress = part.slice(&self.engine, slot);
            let mut answer = client.0.lock();
            if self.last() > before {
                answer.must_wait_for = self.last();
            }
            if answer.is_finished {
                assert!(answer.waits_for >= answer.must_wait_for, "the job's reply is early");
                self.held.push(answer.waits_for);
            }
            drop(answer);
            self.replied(before, self.last());
            if progress != Progress::Done {
                self.jobs.push_back((worker, client, part));
            }
        }
    }

    fn run_together(&mut self, db: u32, lines: &[Line]) {
        let (engine, before, slot) = (&self.engine, self.last(), self.engine.worker_slot(1));
        let words: Vec<Vec<&[u8]>> =
            lines.iter().map(|line| line.0.iter().map(Vec::as_slice).collect()).collect();
        let keepers: Vec<_> = lines.iter().map(Keeper).collect();
        let calls = words.iter().zip(&keepers).map(|(words, keeper)| Call {
            command: find(words[0]).expect("a command of the table"),
            args: Args::with_keeper(words, keeper),
            db,
            now: Now::at(CLOCK.get()),
            limits: engine.settings.limits(usize::MAX),
            prefix: "",
            author: Author::Nobody,
        });
        let calls = calls.filter(|call| call.row().is_on_one_shard(call.args.len()));
        engine.attempt_run(slot, calls, &mut Transcript::default(), |_| false);
        let seen = slot.take_seen();
        self.replied(before, seen);
    }

    fn exec(&mut self, db: u32, lines: &[Line]) {
        let (engine, before, slot) = (&self.engine, self.last(), self.engine.worker_slot(0));
        let (mut shards, mut runs) = (Shards::new(), Vec::new());
        for line in lines {
            with_call(engine, db, line, |call| {
                if !engine.is_for_unit(call) {
                    engine.add_shards(call, &mut shards);
                    runs.push(line);
                }
            });
        }
        let Ok((mut holding, _)) =
            engine.hold(slot, shards, &Watching::default(), std::iter::empty())
        else {
            panic!("nobody else is here")
        };
        for line in runs.iter().filter(|_| engine.mode() != Mode::Closed) {
            with_call(engine, db, line, |call| holding.run(call, &mut Transcript::default()));
        }
        holding.let_go();
        let seen = slot.take_seen();
        assert!(self.last() <= before + 1, "one run");
        self.replied(before, seen);
    }

    fn unit(&mut self, db: u32, lines: &[Line]) {
        let (middle, before) = (lines.len() / 2, self.last());
        self.engine.open_unit(LOCKED);
        for (number, line) in lines.iter().enumerate() {
            with_call(&self.engine, db, line, |call| {
                self.engine.run_waiting(LOCKED, call, &mut Transcript::default());
            });
            if number == middle && self.engine.mode() != Mode::Fast {
                self.read_log();
                self.fork();
            }
        }
        self.engine.end_unit(LOCKED);
        let seen = self.engine.main_slot(LOCKED).take_seen();
        self.replied(before, seen);
    }

    fn hold_value(&mut self, db: u32, key: u8) {
        self.readers.truncate(2);
        let key = name(key);
        let all = self.engine.hold_all(LOCKED);
        let at = self.engine.key_at(db, &key);
        let found = all
            .store(at.shard)
            .and_then(|store| store.table(db))
            .and_then(|table| table.entry(table.find(at.hash, &key)?).string().ok()?.shared());
        all.release();
        if let Some(value) = found {
            self.readers.insert(0, value);
        } else {
            self.readers.clear();
        }
    }

    fn expire(&mut self, shard: u32) {
        let (engine, before, slot) = (&self.engine, self.last(), self.engine.worker_slot(1));
        if engine.mode() == Mode::Closed {
            return;
        }
        let mut held = engine.take_waiting(LOCKED, shard);
        for db in 0..DATABASES {
            let (mut at, now) = (0, CLOCK.get());
            while !engine.expire_due(slot, &mut held, db, now, &mut at, &mut || true) {}
        }
        engine.set_due(shard, &held);
        engine.release(slot, shard, held);
        let seen = slot.take_seen();
        self.replied(before, seen);
    }

    fn after_sleep(&mut self) {
        self.engine.after_sleep(LOCKED);
        self.disk = self.before_sleep;
        let safe = self.engine.log.safe();
        self.held.retain(|&position| position > safe);
        self.acknowledged = self.acknowledged.max(safe);
        self.engine.set_gates(LOCKED, self.engine.gates());
        if self.engine.mode() == Mode::Fast {
            assert!(self.engine.log.is_tail_empty() && self.held.is_empty());
        }
    }

    fn set_aof(&mut self, on: bool) {
        let was_fast = self.engine.mode() == Mode::Fast;
        self.engine.set_gates(LOCKED, if on { Gates::AOF_ON } else { Gates::OPEN });
        if was_fast && on {
            self.rewrite();
        }
    }

    fn save_without_fork(&mut self) {
        if self.engine.mode() == Mode::Fast {
            return;
        }
        let gates = self.engine.gates();
        self.engine.set_gates(LOCKED, gates.and(Gates::SAVING));
        let line = Line(vec![b"append".to_vec(), name(0), b"x".to_vec()]);
        self.run(Door::Worker(0), 0, &line);
        self.read_log();
        self.fork();
        self.engine.set_gates(LOCKED, gates);
    }

    /// The server ends, and comes back with what is on its disk.
    fn crash(&mut self) {
        if !self.is_logged() {
            return;
        }
        let safe = self.engine.log.safe();
        assert!(self.acknowledged <= safe);
        let mut texts = std::mem::take(&mut *self.host.texts.lock());
        texts.truncate(self.disk);
        let again = content_of(&replayed(&self.base, &texts));
        if let Some(state) = self.states.get(&safe) {
            assert_same(&again, state, "what the disk had, and the log");
        }
        *self = Model::new(again);
    }

    fn read_log(&mut self) {
        let texts = self.host.texts.lock();
        texts[self.read..].iter().for_each(|text| replay(&self.reader, text));
        self.read = texts.len();
    }

    /// Takes the tail back as a fork and a save do, and makes it again.
    fn fork(&self) {
        let log = content_of(&self.reader);
        let mut all = self.engine.hold_all(LOCKED);
        let before = content(&all);
        let again = [(); 2].map(|()| {
            all.take_back(LOCKED);
            let without = content(&all);
            all.make_again(LOCKED);
            (without, content(&all))
        });
        all.release();
        let before = before.expect("right counters");
        for (without, with) in again {
            let without = without.expect("right counters without the tail");
            assert_same(&without, &log, "the state without the tail, and what the log holds");
            assert_same(&with.expect("right counters again"), &before, "made again, and before");
        }
    }

    fn check(&mut self) {
        for shard in 0..SHARDS {
            let mut position = 0;
            self.engine.visit(LOCKED, shard as u32, &mut |store| position = store.log.position);
            assert!(position >= self.shards[shard], "positions of a shard grow");
            self.shards[shard] = position;
        }
        let counts = self.engine.log.counts();
        let (last, logged, safe) = counts.positions;
        assert_eq!(counts.runs + counts.tail_runs as u64, last, "positions have no gaps");
        assert!(counts.runs == logged && safe <= logged);
        assert_eq!(counts.tail_bytes > 0, counts.tail_runs > 0);
        if self.engine.mode() != Mode::Fast {
            self.read_log();
            self.fork();
            self.states.insert(logged, content_of(&self.reader));
        }
    }
}

fn name(number: u8) -> Vec<u8> {
    format!("k:{}", number % 8).into_bytes()
}

/// Commands. K is a key; V a value, perhaps a large one; S a short one; N a number; T a moment; M
/// milliseconds from now; D a database; P what DUMP returned.
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
    "bitop or K K K",
    "bitop xor K K K",
    "bitfield K set u8 N 7 incrby i16 9 1",
    "bitfield K set u4 0 1",
    "bitfield K get u8 0",
    "bitcount K",
    "lcs K K",
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
        "V" if seed() % 3 == 0 => vec![seed(); LARGE + usize::from(seed() % 40)],
        "V" | "S" => vec![b'0' + seed() % 5; usize::from(seed() % 5)],
        "N" => (seed() % 120).to_string().into_bytes(),
        "M" => (1 + u32::from(seed())).to_string().into_bytes(),
        "T" => (900 + 8 * u32::from(seed())).to_string().into_bytes(),
        "D" => (u32::from(seed()) % DATABASES).to_string().into_bytes(),
        "P" => payload(vec![seed(); usize::from(seed())]),
        word => word.as_bytes().to_vec(),
    };
    Line(template.split(' ').map(word).collect())
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
        3 => (db(), lines()).prop_map(|(db, lines)| Step::Unit(db, lines)),
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
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
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

/// Every command that writes is one of the model's.
#[test]
fn the_model_runs_every_command_that_writes() {
    let rows = host_commands().filter(|row| row.flags.write);
    for row in rows.filter(|row| !matches!(row.action, Action::Door(_))) {
        let is_run = LINES.iter().any(|line| line.split(' ').next() == Some(row.name));
        assert!(is_run, "{} is not run", row.name);
    }
}

/// A crash between two texts must not cut a unit in two, nor an EXEC of a worker.
#[test]
fn a_unit_is_in_one_text() {
    let host = Arc::<Host>::default();
    let engine = logging_engine(&host);
    host.refuses.store(true, Ordering::Relaxed);
    let set = |key| {
        let line = Line(vec![b"set".to_vec(), name(key), b"1".to_vec()]);
        with_call(&engine, 0, &line, |call| {
            engine.run_waiting(LOCKED, call, &mut Transcript::default());
        });
    };
    set(0);
    for keys in [1..4, 4..6] {
        engine.in_unit(LOCKED, || keys.for_each(set));
    }
    set(6);
    let mut texts = Vec::new();
    let mut write = |logged: Logged<'_>| {
        texts.push(Records::new(logged.text).expect("a version").count());
        Wrote::Taken
    };
    while !engine.log.is_tail_empty() {
        engine.log.hand_over(None, 1, &mut write);
    }
    // Each with the SELECT that it begins with.
    assert_eq!(texts, [2, 4, 3, 2]);
}
