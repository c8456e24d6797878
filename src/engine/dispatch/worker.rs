//! The workers: one thread each, one loop. A turn handles the inbox's messages, gives the next job
//! a slice, removes due keys, frees hashes, evicts, packs memory, and sleeps if it is idle.

mod mailboxes;

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::eviction::{Evicting, may_evict};
use super::packing::Packing;
use super::{Panic, Resumed};
use crate::engine::Engine;
use crate::engine::call::Taking;
use crate::engine::context::{ForMain, JobPart, Message, Port, Workers};
use crate::engine::jobs::{Progress, free_flushed};
use crate::engine::ledger::{Gate, Gates, Intent};
use crate::engine::request::Request;
use crate::engine::shards::HeldShard;
use crate::engine::slot::ThreadSlot;
use crate::limits::{
    ANSWERED_TOGETHER, BREATHER, BREATHER_EVERY, EXPIRY_PER_TICK, EXPIRY_TICK, GATHERED_FOR,
    MANY_TRIES, QUEUED_PER_TURN, SLICE,
};
use crate::store::{Now, UnixMs, free_left, has_left, prepare_chunk};

/// How long a worker sleeps if all its work is blocked by others.
const BLOCKED_NAP: Duration = Duration::from_micros(50);

impl Workers<Message> {
    /// Starts the threads, each with its part of the ports, if there are any.
    ///
    /// # Errors
    /// The system's error if it has no more threads.
    pub fn start(
        engine: &Arc<Engine>,
        on_panic: fn(),
        ports: Vec<Box<dyn Port + Send>>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        let mut ports = ports.into_iter();
        (0..engine.config().workers)
            .map(|number| {
                let (engine, port) = (Arc::clone(engine), ports.next());
                std::thread::Builder::new()
                    .name(format!("midi-{number}"))
                    .spawn(move || Worker::new(&engine, number, on_panic, port).run())
            })
            .collect()
    }

    /// Asks all threads to end.
    pub fn stop(&self) {
        for worker in 0..self.len() {
            self.send(worker, Message::Stop);
        }
    }
}

struct Worker<'a> {
    engine: &'a Engine,
    number: usize,
    slot: &'a ThreadSlot,
    on_panic: fn(),
    port: Option<Box<dyn Port + Send>>,
    /// Commands to run; a blocked one is tried again.
    requests: VecDeque<Box<Request>>,
    /// Commands that ran in this turn; they return to their origins together.
    #[expect(clippy::vec_box, reason = "requests are boxed for their whole way")]
    answered: Vec<Box<Request>>,
    /// Shards with messages in their mailboxes.
    shards: VecDeque<u32>,
    parts: VecDeque<Box<dyn JobPart>>,
    expiry: ExpirySweep,
    evicting: Evicting,
    packing: Packing,
    /// When this turn began, roughly.
    now: Instant,
    /// When it last slept, or had nothing to do.
    rested: Instant,
    /// Since when it gathers for a tail that it has begun.
    tail_since: Option<Instant>,
    stopped: bool,
}

/// The search for keys that are due.
struct ExpirySweep {
    next_tick: Instant,
    /// Shards still to visit in this round.
    shards: VecDeque<u32>,
    db: u32,
    position: usize,
    spent: Duration,
}

impl<'a> Worker<'a> {
    fn new(
        engine: &'a Engine,
        number: usize,
        on_panic: fn(),
        port: Option<Box<dyn Port + Send>>,
    ) -> Self {
        Worker {
            engine,
            number,
            slot: engine.worker_slot(number),
            on_panic,
            port,
            requests: VecDeque::new(),
            answered: Vec::new(),
            shards: VecDeque::new(),
            parts: VecDeque::new(),
            expiry: ExpirySweep {
                next_tick: Instant::now() + EXPIRY_TICK,
                shards: VecDeque::new(),
                db: 0,
                position: 0,
                spent: Duration::ZERO,
            },
            evicting: Evicting::new(number),
            packing: Packing::new(Instant::now()),
            now: Instant::now(),
            rested: Instant::now(),
            tail_since: None,
            stopped: false,
        }
    }

    fn run(mut self) {
        while !self.stopped {
            // A panic that holds no token costs the request or the job's part in which it happened;
            // one that holds a token ends the process (see `Held`).
            let turn = catch_unwind(AssertUnwindSafe(|| self.turn()));
            if turn.is_err() {
                (self.on_panic)();
            }
        }
    }

    fn turn(&mut self) {
        self.slot.turns.add(1);
        // No token can be had while the process forks.
        while self.engine.shards().are_stopped() {
            self.engine.context().rest(BLOCKED_NAP);
        }
        prepare_chunk();
        let queue = self.engine.context().workers.queue(self.number);
        if !queue.inbox.is_empty() {
            for message in queue.inbox.take() {
                self.accept(message);
            }
        }
        let mut progress = self.run_requests();
        progress |= self.visit_shards();
        progress |= self.one_slice();
        progress |= self.expire();
        progress |= self.free_hashes();
        let evicted = self.evicting.slice(self.engine, self.slot, self.now);
        progress |= evicted == Progress::More;
        let packed = self.packing.slice(self.engine, self.number, self.now);
        progress |= packed == Progress::More;
        self.announce(!progress && self.tail_since.is_some());
        if progress || self.stopped {
            self.serve(Duration::ZERO);
            return self.breathe();
        }
        self.rested = self.now;
        let blocked_expiry = !self.expiry.shards.is_empty()
            && self.expiry.spent <= EXPIRY_PER_TICK
            && !self.engine.ledger.admission.has_notification_backlog();
        let idle = self.requests.is_empty()
            && self.shards.is_empty()
            && self.parts.is_empty()
            && !blocked_expiry
            && evicted != Progress::Blocked
            && packed != Progress::Blocked;
        let nap = if idle { self.until_tick() } else { BLOCKED_NAP };
        self.sleep(nap);
    }

    /// Frees large hashes that nothing refers to any more, as far as a slice allows. True if some
    /// are left.
    fn free_hashes(&self) -> bool {
        if !has_left() {
            return false;
        }
        let end = Instant::now() + SLICE;
        !free_left(&mut || Instant::now() < end)
    }

    /// Sleeps, or waits for the port's connections, until woken or until `nap` is over.
    fn sleep(&mut self, nap: Duration) {
        let queue = self.engine.context().workers.queue(self.number);
        if !queue.inbox.may_sleep() {
            return;
        }
        match &mut self.port {
            None => {
                queue.waker.sleep(nap);
                self.now = Instant::now();
            }
            Some(port) => {
                // While it gathers it only looks whether its connections have more.
                let may_wait = port.may_sleep() && self.tail_since.is_none();
                let wait = if may_wait { nap } else { Duration::ZERO };
                let turn = port.turn(wait);
                self.now = turn.began;
                port.awake();
                self.announce(turn.had_events);
            }
        }
        queue.inbox.awake();
    }

    /// Tells the main thread of notifications, and of a tail that this worker has begun. While it
    /// gathers for a tail, it does so only after [`GATHERED_FOR`].
    fn announce(&mut self, gathers: bool) {
        if !self.slot.log.announces() {
            self.engine.ledger.announce_notifications();
            self.tail_since = None;
            return;
        }
        let since = *self.tail_since.get_or_insert(self.now);
        if !gathers || self.now - since >= GATHERED_FOR {
            self.tail_since = None;
            self.engine.ledger.announce_tail_of(self.slot);
        }
    }

    fn serve(&mut self, wait: Duration) {
        self.now = match &mut self.port {
            Some(port) => port.turn(wait).began,
            None => Instant::now(),
        };
        self.announce(false);
    }

    fn accept(&mut self, message: Message) {
        match message {
            Message::Run(request) => self.requests.push_back(request),
            Message::Batch(messages) => {
                messages.into_iter().for_each(|message| self.accept(message))
            }
            Message::Completed(request) => {
                self.engine.ledger.books.completed();
                if let Some(port) = &mut self.port {
                    port.completed(request);
                }
            }
            // The port itself looks how far the log is safe.
            Message::Safe => {}
            Message::Reply(mut request) => {
                request.finish(self.slot);
                self.answered.push(request);
            }
            Message::Shard(shard) => self.shards.push_back(shard),
            Message::Free => free_flushed(self.engine),
            Message::Part(part) => self.parts.push_back(part),
            Message::Stop => self.stopped = true,
        }
    }

    /// From time to time, gives the core to other threads for a moment.
    fn breathe(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        // Replies wait for the main thread, which perhaps waits for this core. Yield only then: the
        // scheduler may take a whole time slice from a thread that yields.
        if !self.engine.context().main.is_empty() {
            std::thread::yield_now();
        }
        if self.rested.elapsed() >= BREATHER_EVERY {
            let queue = self.engine.context().workers.queue(self.number);
            if queue.inbox.may_sleep() {
                queue.waker.sleep(BREATHER);
                queue.inbox.awake();
            }
            self.rested = Instant::now();
        }
    }

    /// Runs each waiting command once, as long as there is time. True if any ran.
    fn run_requests(&mut self) -> bool {
        let (began, mut progress) = (Instant::now(), false);
        for _ in 0..self.requests.len() {
            let Some(request) = self.requests.pop_front() else {
                break;
            };
            progress |= self.run_request(request);
            // The first of very many need not wait for the last.
            if self.answered.len() >= ANSWERED_TOGETHER {
                self.send_back();
            }
            if began.elapsed() > QUEUED_PER_TURN {
                break;
            }
        }
        self.send_back();
        progress
    }

    fn send_back(&mut self) {
        if !self.answered.is_empty() {
            self.engine.context().send_back(self.answered.drain(..));
        }
    }

    fn run_request(&mut self, request: Box<Request>) -> bool {
        let (engine, slot) = (self.engine, self.slot);
        if engine.gates().has(Gates::EVICTING)
            && request.brings_several_keys()
            && may_evict(&engine.ledger, slot)
        {
            // Its client waits anyway. This worker evicts before it asks again.
            self.requests.push_back(request);
            return false;
        }
        let resumed =
            engine.resume(slot, request, Panic::Caught(self.on_panic), |call, transcript| {
                engine.attempt_outlined(slot, call, Taking::WORKER, transcript)
            });
        match resumed {
            Resumed::Answered(mut request) => {
                request.finish(slot);
                self.answered.push(request);
            }
            Resumed::Busy(request) if request.is_on_one_shard() => self.leave_in_shard(request),
            Resumed::Busy(mut request) => {
                request.tries += 1;
                if request.tries < MANY_TRIES {
                    self.requests.push_back(request);
                    return false;
                }
                engine.context().send_to_main(ForMain::Run(request));
            }
            Resumed::HandedOn => {}
        }
        true
    }

    /// One slice of the next job in turn.
    fn one_slice(&mut self) -> bool {
        for _ in 0..self.parts.len() {
            let Some(mut part) = self.parts.pop_front() else {
                break;
            };
            self.slot.slices.add(1);
            let slice = AssertUnwindSafe(|| part.slice(self.engine, self.slot));
            let progress = catch_unwind(slice).unwrap_or_else(|_| {
                (self.on_panic)();
                part.failed(self.engine, self.slot)
            });
            if progress != Progress::Done {
                self.parts.push_back(part);
            }
            if progress != Progress::Blocked {
                return true;
            }
        }
        false
    }

    fn until_tick(&self) -> Duration {
        self.expiry.next_tick.saturating_duration_since(self.now)
    }

    /// One slice of expiry, if any is due and its time in this tick is not used up.
    fn expire(&mut self) -> bool {
        let now = self.now;
        if now >= self.expiry.next_tick {
            self.expiry.next_tick = now + EXPIRY_TICK;
            self.expiry.spent = Duration::ZERO;
            // The main thread may be busy with a script or loading data; it reads its inbox when it
            // is woken.
            if !self.engine.context().main.is_empty() || self.engine.users.are_stale() {
                self.engine.context().outside.wake_main();
            }
            if self.expiry.shards.is_empty() {
                self.find_due();
            }
        }
        if self.expiry.shards.is_empty()
            || self.expiry.spent > EXPIRY_PER_TICK
            || self.engine.ledger.admission.has_notification_backlog()
        {
            return false;
        }
        let start = Instant::now();
        let progress = self.expire_slice(start);
        self.expiry.spent += start.elapsed();
        progress
    }

    fn find_due(&mut self) {
        let engine = self.engine;
        let horizon = Now::at((engine.config().clock)()).horizon();
        if engine.ledger.gate(Intent::Expiry) != Gate::Go {
            return;
        }
        let is_due = |&shard: &u32| engine.shards().due(shard) < horizon;
        self.expiry.shards = engine.shards().owned_by(self.number).filter(is_due).collect();
        (self.expiry.db, self.expiry.position) = (0, 0);
    }

    fn expire_slice(&mut self, start: Instant) -> bool {
        let (engine, expiry) = (self.engine, &mut self.expiry);
        let now = Now::at((engine.config().clock)());
        let mut progress = false;
        while let Some(&shard) = expiry.shards.front() {
            let Some(mut held) = engine.shards().try_take_long(shard) else {
                // Continue later, from the start of this shard: it may change meanwhile.
                expiry.shards.rotate_left(1);
                (expiry.db, expiry.position) = (0, 0);
                return progress;
            };
            // Asked again with the token: the keyspace may have been closed since.
            if engine.ledger.gate(Intent::Expiry) != Gate::Go {
                engine.shards().let_go(shard, held);
                expiry.shards.clear();
                return progress;
            }
            progress = true;
            let done = expire_shard(engine, self.slot, expiry, &mut held, &now, start);
            if done {
                engine.shards().set_due(shard, &held);
                expiry.shards.pop_front();
                (expiry.db, expiry.position) = (0, 0);
            }
            engine.ledger.release(self.slot, shard, held);
            if start.elapsed() > SLICE {
                break;
            }
        }
        progress
    }
}

/// Goes through the databases of one shard. True when all are done.
fn expire_shard(
    engine: &Engine,
    slot: &ThreadSlot,
    expiry: &mut ExpirySweep,
    held: &mut HeldShard<'_>,
    now: &Now,
    start: Instant,
) -> bool {
    while let Some(db) = held.next_db(expiry.db) {
        if db != expiry.db {
            (expiry.db, expiry.position) = (db, 0);
        }
        let next_due = held.table(db).map_or(UnixMs::MAX, |table| table.next_due());
        if next_due < now.horizon() || expiry.position > 0 {
            let more = &mut || start.elapsed() < SLICE;
            let done =
                engine.ledger.expire_due(slot, held, db, now.horizon(), &mut expiry.position, more);
            if !done {
                return false;
            }
        }
        (expiry.db, expiry.position) = (db + 1, 0);
    }
    true
}
