//! An engine, and all that there is to know of its log from outside.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::name;
use super::world::{
    CLOCK, Client, DATABASES, Host, Keeper, Keys, Line, MAY_LOG, SHARDS, WORKERS, assert_same,
    content, content_of, fill, logging_engine, new_engine, replay, replayed, with_call,
};
use crate::command::{Keep, Transcript};
use crate::engine::ForMain;
use crate::engine::call::{Outcome, Taking};
use crate::engine::context::{JobPart, Message};
use crate::engine::dispatch::{Lines, Panic, Resumed};
use crate::engine::jobs::{JobDoor, Progress};
use crate::engine::request::{Origin as Waits, Request};
use crate::engine::{Engine, Gates, Mode, ShardNumbers, Watching};
use crate::store::{SharedValue, UnixMs};
use crate::sync::{LOCKED, Left};

/// How a command gets to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// On a worker, at once.
    Worker(usize),
    /// In the mailbox of its shard, or a worker's inbox, or as a job, whatever it needs.
    Queue,
    /// On the main thread, to its end.
    Main,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Run(Door, u32, Line),
    /// Commands on one shard each, with their tokens held together.
    Together(u32, Vec<Line>),
    /// A transaction on a worker.
    Exec(u32, Vec<Line>),
    /// A unit of the main thread, with a fork in it; for a port or not.
    Unit(u32, Vec<Line>, bool),
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
    /// The server becomes a replica, and then a master again.
    Demote,
    Crash,
}

pub(super) struct Model {
    pub(super) host: Arc<Host>,
    pub(super) engine: Engine,
    /// What the host's log begins with: a rewrite.
    base: Keys,
    /// Replays the host's log as it grows.
    pub(super) reader: Engine,
    read: usize,
    /// Texts that were logged before the main loop last began to sleep, and that are written.
    before_sleep: usize,
    disk: usize,
    /// What the log held when this was its last position.
    pub(super) states: BTreeMap<u64, Keys>,
    /// A run that last changed a key, or the first of those that did.
    pub(super) changed_at: BTreeMap<(u32, Vec<u8>), u64>,
    pub(super) now: Keys,
    pub(super) shards: Vec<u64>,
    /// Positions that replies still wait for.
    pub(super) held: Vec<u64>,
    acknowledged: u64,
    /// Positions of runs that were taken back for good, and those behind them, which no run has.
    pub(super) undone: u64,
    readers: Vec<SharedValue>,
    /// Parts of jobs, with their workers and clients.
    pub(super) jobs: VecDeque<(usize, Client, Box<dyn JobPart>)>,
    /// Where their clients are.
    pub(super) job_door: JobDoor,
}

impl Model {
    pub(super) fn new(base: Keys) -> Self {
        let host = Arc::<Host>::default();
        let engine = logging_engine(&host);
        engine.ledger.set_gates(LOCKED, Gates::AOF_ON.and(Gates::LOADING));
        fill(&engine, &base);
        engine.ledger.set_gates(LOCKED, Gates::AOF_ON);
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
            undone: 0,
            readers: Vec::new(),
            jobs: VecDeque::new(),
            job_door: JobDoor::Port,
        };
        model.rewrite();
        model
    }

    fn is_logged(&self) -> bool {
        self.engine.mode() == Mode::Logged
    }

    pub(super) fn last(&self) -> u64 {
        self.engine.ledger.log.counts().positions.0
    }

    /// The host's log begins anew with what there is now.
    fn rewrite(&mut self) {
        self.base = content_of(&self.engine);
        self.reader = replayed(&self.base, &[]);
        self.host.texts.lock().clear();
        (self.read, self.before_sleep, self.disk) = (0, 0, 0);
        self.states = BTreeMap::from([(self.engine.ledger.log.logged(), self.base.clone())]);
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Run(door, db, line) => self.run(door, db, &line),
            Step::Together(db, lines) => self.run_together(db, &lines),
            Step::Exec(db, lines) => self.exec(db, &lines),
            Step::Unit(db, lines, of_port) => {
                // What the main thread does for a port is logged later.
                MAY_LOG.set(!of_port);
                self.unit(db, &lines);
                MAY_LOG.set(true);
            }
            Step::Read(db, key) => self.hold_value(db, key),
            Step::Slices => self.slices(),
            Step::Expire(shard) => self.expire(shard),
            Step::LogTail => {
                self.engine.ledger.log_tail(LOCKED);
            }
            Step::BeforeSleep => {
                while self.engine.ledger.log_tail(LOCKED) {}
                self.before_sleep = self.host.texts.lock().len();
                self.engine.ledger.log.before_sleep();
            }
            Step::AfterSleep => self.after_sleep(),
            Step::Clock(ms) => CLOCK.set(CLOCK.get() + ms),
            Step::Pause(refuses) => self.host.refuses.store(refuses, Ordering::Relaxed),
            Step::Always(wait) => self.engine.ledger.log.set_reads_wait(wait),
            Step::Aof(on) => self.set_aof(on),
            Step::SaveWithoutFork => self.save_without_fork(),
            Step::Demote => self.demote(),
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
        let log = &self.engine.ledger.log;
        let waits = self.engine.ledger.reads_wait();
        for word in line.0[1..].iter().filter(|_| waits) {
            let Some(&at) = self.changed_at.get(&(db, word.clone())) else { continue };
            assert!(at <= log.safe() || at <= seen, "{line:?} has seen {at}, waits for {seen}");
        }
    }

    pub(super) fn run(&mut self, door: Door, db: u32, line: &Line) {
        let (engine, before) = (&self.engine, self.last());
        let seen = match door {
            Door::Worker(worker) => {
                let slot = engine.worker_slot(worker);
                let outcome = with_call(engine, db, line, |call| {
                    engine.attempt(slot, call, Taking::WORKER, &mut Transcript::default())
                });
                // What is counted is shown by the main thread only, if reads wait.
                let is_counted = line.0.len() == 1 && self.engine.ledger.log.reads_wait();
                let late = self.engine.mode() == Mode::Closed || is_counted;
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
        let (engine, before, client) = (&self.engine, self.last(), Client::of(self.job_door));
        let (slot, worker) = (engine.worker_slot(0), 1);
        engine.ledger.books.book_queued(slot, usize::MAX).expect("no limit");
        let request = with_call(engine, db, line, |call| {
            let client = Box::new(client.clone());
            Box::new(Request::new(call, Waits::Worker { worker, connection: 0, client }))
        });
        if request.is_on_one_shard() {
            let shard = engine.shards().of_request(&request);
            let mut held = engine.shards().take_waiting(LOCKED, shard);
            assert!(matches!(engine.shards().leave(shard, request), Left::Queued));
            let request = held.next_pending().expect("it was left there");
            engine.resume_on_held(slot, shard, &mut held, request);
            engine.ledger.before_release(slot, &mut held);
            engine.shards().let_go(shard, held);
        } else {
            let resumed = engine.resume(slot, request, Panic::Fatal, |call, transcript| {
                engine.attempt_outlined(slot, call, Taking::WORKER, transcript)
            });
            match resumed {
                Resumed::Answered(request) => engine.context().send_back(std::iter::once(request)),
                Resumed::Busy(_) => panic!("nobody else is here"),
                Resumed::HandedOn => {}
            }
        }
        for message in engine.context().main.take(LOCKED) {
            match message {
                ForMain::Run(request) => engine.resume_on_main(LOCKED, request, || panic!()),
                ForMain::Log => {}
                _ => panic!("not of a port"),
            }
        }
        let mut completed = None;
        for number in 0..WORKERS {
            for message in engine.context().workers.queue(number).inbox.take() {
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
        (0..self.jobs.len()).for_each(|_| self.one_slice());
    }

    /// Gives a turn to one part of a job.
    pub(super) fn one_slice(&mut self) {
        let Some((worker, client, mut part)) = self.jobs.pop_front() else { return };
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

    fn run_together<'l>(&mut self, db: u32, lines: &'l [Line]) {
        let (engine, before, slot) = (&self.engine, self.last(), self.engine.worker_slot(1));
        let keepers: Vec<_> = lines.iter().map(Keeper).collect();
        let words = |line: &'l Line| line.0.iter().map(Vec::as_slice).collect();
        let kept = keepers.iter().map(|keeper| Some(keeper as &dyn Keep));
        let calls = Lines::new(engine, db, CLOCK.get(), lines.iter().map(words).zip(kept));
        engine.attempt_run(slot, &calls, &mut Transcript::default(), |_| false);
        let seen = slot.take_seen();
        self.replied(before, seen);
    }

    fn exec(&mut self, db: u32, lines: &[Line]) {
        let (engine, before, slot) = (&self.engine, self.last(), self.engine.worker_slot(0));
        let (mut shards, mut runs) = (ShardNumbers::new(), Vec::new());
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
        self.engine.shards().open_unit(LOCKED);
        for (number, line) in lines.iter().enumerate() {
            // Now and then it chooses another database.
            let db = if number % 4 == 2 { (db + 1) % DATABASES } else { db };
            with_call(&self.engine, db, line, |call| {
                self.engine.run_waiting(LOCKED, call, &mut Transcript::default());
            });
            if number == middle && self.engine.mode() != Mode::Fast {
                self.read_log();
                self.fork();
            }
        }
        self.engine.shards().end_unit(LOCKED);
        let seen = self.engine.main_slot(LOCKED).take_seen();
        self.replied(before, seen);
    }

    fn hold_value(&mut self, db: u32, key: u8) {
        self.readers.truncate(2);
        let key = name(key);
        let all = self.engine.shards().hold_all(LOCKED);
        let at = self.engine.shards().key_at(db, &key);
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
        let mut held = engine.shards().take_waiting(LOCKED, shard);
        for db in 0..DATABASES {
            let (mut at, now) = (0, CLOCK.get());
            while !engine.ledger.expire_due(slot, &mut held, db, now, &mut at, &mut || true) {}
        }
        engine.shards().set_due(shard, &held);
        engine.ledger.release(slot, shard, held);
        let seen = slot.take_seen();
        self.replied(before, seen);
    }

    fn after_sleep(&mut self) {
        self.engine.ledger.after_sleep(LOCKED);
        self.disk = self.before_sleep;
        let safe = self.engine.ledger.log.safe();
        self.held.retain(|&position| position > safe);
        self.acknowledged = self.acknowledged.max(safe);
        self.engine.ledger.set_gates(LOCKED, self.engine.gates());
        if self.engine.mode() == Mode::Fast {
            assert!(self.engine.ledger.log.is_tail_empty() && self.held.is_empty());
        }
    }

    fn set_aof(&mut self, on: bool) {
        let was_fast = self.engine.mode() == Mode::Fast;
        self.engine.ledger.set_gates(LOCKED, if on { Gates::AOF_ON } else { Gates::OPEN });
        if was_fast && on {
            self.rewrite();
        }
    }

    fn save_without_fork(&mut self) {
        if self.engine.mode() == Mode::Fast {
            return;
        }
        let gates = self.engine.gates();
        self.engine.ledger.set_gates(LOCKED, gates.and(Gates::SAVING));
        let line = Line(vec![b"append".to_vec(), name(0), b"x".to_vec()]);
        self.run(Door::Worker(0), 0, &line);
        self.read_log();
        self.fork();
        self.engine.ledger.set_gates(LOCKED, gates);
    }

    /// The server ends, and comes back with what is on its disk.
    fn crash(&mut self) {
        if !self.is_logged() {
            return;
        }
        let safe = self.engine.ledger.log.safe();
        assert!(self.acknowledged <= safe);
        let mut texts = std::mem::take(&mut *self.host.texts.lock());
        texts.truncate(self.disk);
        let again = content_of(&replayed(&self.base, &texts));
        if let Some(state) = self.states.get(&safe) {
            assert_same(&again, state, "what the disk had, and the log");
        }
        *self = Model::new(again);
    }

    pub(super) fn read_log(&mut self) {
        let texts = self.host.texts.lock();
        texts[self.read..].iter().for_each(|text| replay(&self.reader, text));
        self.read = texts.len();
    }

    /// Takes the tail back as a fork and a save do, and makes it again.
    fn fork(&self) {
        let log = content_of(&self.reader);
        let mut all = self.engine.shards().hold_all(LOCKED);
        let before = content(&self.engine, &all);
        let again = [(); 2].map(|()| {
            self.engine.ledger.take_back(LOCKED, &mut all);
            let without = content(&self.engine, &all);
            self.engine.ledger.make_again(LOCKED, &mut all);
            (without, content(&self.engine, &all))
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
            self.engine
                .shards()
                .visit(LOCKED, shard as u32, &mut |store| position = store.log.position);
            assert!(position >= self.shards[shard], "positions of a shard grow");
            self.shards[shard] = position;
        }
        let counts = self.engine.ledger.log.counts();
        let (last, logged, safe) = counts.positions;
        let ended = counts.runs + self.undone;
        assert_eq!(ended + counts.tail_runs as u64, last, "positions have no gaps");
        assert!(ended == logged && safe <= logged);
        assert_eq!(counts.tail_bytes > 0, counts.tail_runs > 0);
        if self.engine.mode() != Mode::Fast {
            self.read_log();
            self.fork();
            self.states.insert(logged, content_of(&self.reader));
        }
    }
}
