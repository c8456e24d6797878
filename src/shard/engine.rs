//! The engine: a parsed call goes in, a reply comes out. It knows no host and
//! no socket.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam::utils::CachePadded;
use smallvec::SmallVec;

use super::counters::{Census, CommandCount, Seat};
use super::inbox::Inbox;
use super::job::Jobs;
use super::token::{Held, Left, Released, Token, WaitingRoom};
use super::worker::{Message, Workers};
use crate::command::{
    Action, Args, COMMANDS, Command, Error, HeldTables, Keyspace, Limits, ManyKeys, OneKey, OwnedArgs, Reply,
    ScanArgs, Tape,
};
use crate::limits::{MAIN_SPINS, SCAN_AT_ONCE, WORKER_SPINS};
use crate::store::{KeyHash, KeyHasher, Now, Store, Table, UnixMs, Value};

/// What cannot change while the engine lives.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of workers, at least 1.
    pub workers: usize,
    /// Number of shards, a power of two up to 65,536.
    pub shards: usize,
    /// Number of databases.
    pub databases: u32,
    /// Every command alone, in one serial order.
    pub safemode: bool,
    /// The wall clock.
    pub clock: fn() -> UnixMs,
}

/// What can change at any time.
#[derive(Debug)]
pub struct Settings {
    /// `midi.dispatch pool`: nothing runs at once.
    pub pool: AtomicBool,
    /// `midi.max-jobs`.
    pub max_jobs: AtomicUsize,
    /// `midi.max-queued-commands`.
    pub max_queued: AtomicUsize,
    /// `midi.max-pattern-bytes`.
    pub max_pattern_bytes: AtomicUsize,
    /// `midi.max-key-bytes`.
    pub max_key_bytes: AtomicUsize,
    /// `midi.max-value-bytes`.
    pub max_value_bytes: AtomicUsize,
    /// `midi.keep-bytes`.
    pub keep_bytes: AtomicUsize,
}

impl Settings {
    /// The limits of a command on a thread that may make replies of up to
    /// `max_reply_bytes`.
    #[inline]
    pub fn limits(&self, max_reply_bytes: usize) -> Limits {
        Limits {
            max_pattern_bytes: self.max_pattern_bytes.load(Ordering::Relaxed),
            max_key_bytes: self.max_key_bytes.load(Ordering::Relaxed),
            max_value_bytes: self.max_value_bytes.load(Ordering::Relaxed),
            keep_bytes: self.keep_bytes.load(Ordering::Relaxed),
            max_reply_bytes,
        }
    }
}

/// Whether writes are allowed, as last seen by the host's main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteGate {
    /// They are.
    Open,
    /// Memory is above the host's limit: what needs more is refused.
    OutOfMemory,
    /// The host has AOF on.
    AofOn,
    /// The host has replicas.
    HasReplicas,
}

/// One call of a command.
pub struct Call<'a> {
    /// The command's number in [`COMMANDS`].
    pub command: usize,
    /// Its arguments.
    pub args: Args<'a>,
    /// The client's database.
    pub db: u32,
    /// When it happens.
    pub now: Now,
    /// What it must keep to.
    pub limits: Limits,
    /// What the door puts before the standard name, for error texts.
    pub prefix: &'static str,
}

impl Request {
    /// A copy of a call, for another thread.
    pub fn new(call: &Call<'_>, home: Home, ticket: usize, large: fn(usize, &Tape)) -> Self {
        Request {
            command: call.command,
            args: call.args.to_owned(call.limits.keep_bytes),
            db: call.db,
            prefix: call.prefix,
            home,
            ticket,
            reply: Tape::default(),
            verdict: Verdict::Done,
            tries: 0,
            large,
        }
    }
}

impl Call<'_> {
    /// The row of the command table.
    #[inline]
    pub fn row(&self) -> &'static Command {
        COMMANDS[self.command]
    }

    /// Says an error in Redis's words.
    #[cold]
    pub fn refuse(&self, error: Error, reply: &mut dyn Reply) {
        let name = format!("{}{}", self.prefix, self.row().name);
        reply.error(&error.text(&name, &self.args));
    }
}

/// How to come by tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// Try so often.
    Try(u32),
    /// Wait. Only the holder of the host's global lock may.
    Wait,
}

impl Taking {
    /// For the main thread: blocking a client costs it more than a short wait.
    pub const MAIN: Taking = Taking::Try(MAIN_SPINS);
    /// For workers.
    pub const WORKER: Taking = Taking::Try(WORKER_SPINS);
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply, or an error, has been said.
    Done,
    /// A token was not to be had. Nothing has been done.
    Busy,
    /// The reply is too large for this thread. Nothing has been done.
    TooLarge,
    /// This is long work: start a job, or run it to its end.
    Long,
}

/// Who wants a queued command's completion back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The host's main thread.
    Main,
}

/// What must happen to a request that came home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran: give its reply to the client.
    Done,
    /// Tokens were not to be had together: the main thread must run it.
    NeedsMain,
}

/// A queued command.
pub struct Request {
    /// The command's number.
    pub command: usize,
    /// Its arguments, copied or kept.
    pub args: OwnedArgs,
    /// The client's database.
    pub db: u32,
    /// See [`Call::prefix`].
    pub prefix: &'static str,
    /// Who gets the completion.
    pub home: Home,
    /// The door's own mark, to know the client again.
    pub ticket: usize,
    /// The reply, once it has run.
    pub reply: Tape,
    /// What happened to it.
    pub verdict: Verdict,
    /// How often tokens were not to be had.
    pub(super) tries: u8,
    /// Makes a reply sink on the worker for a reply too large for the home thread.
    pub large: fn(ticket: usize, tape: &Tape),
}

/// A shard: token, mailbox and data, and when something in it is due next.
pub struct Shard {
    /// Who holds this may touch the data.
    pub token: Token<Store, Box<Request>>,
    due: AtomicI64,
}

/// The keyspace, its workers and its books.
pub struct Engine {
    /// What cannot change.
    pub config: Config,
    /// What can.
    pub settings: Settings,
    /// Places keys.
    pub hasher: KeyHasher,
    /// Messages for the host's main thread.
    pub main: Inbox<Box<Request>>,
    /// Long commands.
    pub jobs: Jobs,
    /// Where the holder of the global lock waits for a token.
    pub room: WaitingRoom,
    pub(super) workers: Workers,
    shards: Box<[CachePadded<Shard>]>,
    mask: u32,
    seats: Box<[CachePadded<Seat>]>,
    gate: AtomicU8,
    /// Bytes that long writes may still take before the host is asked again.
    credit: AtomicI64,
    credit_wanted: AtomicBool,
    queued_now: AtomicUsize,
    /// Ends the sleep of the main thread.
    wake_main: Box<dyn Fn() + Send + Sync>,
    draws: AtomicU64,
}

/// Granted even where nothing is left, as long as the host does not refuse
/// memory: its own accounts are coarser than midi's.
const MIN_CREDIT: i64 = 1 << 20;

/// Tokens of several shards, in the order of their numbers.
type ManyHeld<'a> = SmallVec<[(u32, Held<'a, Store, Box<Request>>); 8]>;

impl Engine {
    /// An engine without threads; [`Workers::start`] gives it some.
    ///
    /// # Errors
    /// The system's, where it gives out no more descriptors.
    pub fn new(
        config: Config,
        settings: Settings,
        wake_main: Box<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let shard = || {
            CachePadded::new(Shard { token: Token::new(Store::default()), due: AtomicI64::new(UnixMs::MAX) })
        };
        let seat = |number| CachePadded::new(Seat::new(number, config.databases as usize));
        Ok(Engine {
            config,
            settings,
            hasher: KeyHasher::default(),
            main: Inbox::default(),
            jobs: Jobs::default(),
            room: WaitingRoom::default(),
            workers: Workers::new(config.workers)?,
            shards: (0..config.shards).map(|_| shard()).collect(),
            mask: config.shards as u32 - 1,
            seats: (0..=config.workers).map(seat).collect(),
            gate: AtomicU8::new(WriteGate::Open as u8),
            credit: AtomicI64::new(i64::MAX),
            credit_wanted: AtomicBool::new(false),
            queued_now: AtomicUsize::new(0),
            wake_main,
            draws: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
        })
    }

    /// The seat of the holder of the global lock.
    pub fn main_seat(&self) -> &Seat {
        &self.seats[0]
    }

    /// All seats; 0 is the main thread's, `1 + n` worker n's.
    pub fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().map(|seat| &**seat)
    }

    pub(super) fn seat(&self, number: usize) -> &Seat {
        &self.seats[number]
    }

    /// A shard.
    #[inline]
    pub fn shard(&self, number: u32) -> &Shard {
        &self.shards[number as usize]
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> u32 {
        self.mask + 1
    }

    /// The shard that a key lives in.
    #[inline]
    pub fn shard_of(&self, hash: KeyHash) -> u32 {
        hash.shard(self.mask)
    }

    /// The worker that owns a shard.
    pub fn owner(&self, shard: u32) -> usize {
        shard as usize % self.config.workers
    }

    /// Sets whether writes are allowed, and how many bytes long ones may take
    /// before the host is asked again; `i64::MAX` for no limit.
    pub fn set_gate(&self, gate: WriteGate, credit: i64) {
        self.gate.store(gate as u8, Ordering::Relaxed);
        self.credit.store(credit.max(MIN_CREDIT), Ordering::Relaxed);
        self.credit_wanted.store(false, Ordering::Relaxed);
    }

    /// Whether a long write waits for more credit.
    pub fn wants_credit(&self) -> bool {
        self.credit_wanted.load(Ordering::Relaxed)
    }

    /// Whether a long write has credit left; asks the main thread where not.
    pub fn has_credit(&self) -> bool {
        if self.credit.load(Ordering::Relaxed) > 0 {
            return true;
        }
        if !self.credit_wanted.swap(true, Ordering::Relaxed) {
            self.wake_main();
        }
        false
    }

    /// Books bytes that a long write took.
    pub fn spend_credit(&self, bytes: i64) {
        if self.credit.load(Ordering::Relaxed) != i64::MAX {
            self.credit.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Ends the main thread's sleep.
    pub fn wake_main(&self) {
        (self.wake_main)();
    }

    /// Why a write may not be done now, if so. `needs_memory` says whether it
    /// may need more.
    #[inline]
    pub fn write_refusal(&self, needs_memory: bool) -> Option<Error> {
        match self.gate.load(Ordering::Relaxed) {
            gate if gate == WriteGate::Open as u8 => None,
            gate if gate == WriteGate::AofOn as u8 => Some(Error::AofOn),
            gate if gate == WriteGate::HasReplicas as u8 => Some(Error::HasReplicas),
            _ => needs_memory.then_some(Error::OutOfMemory),
        }
    }

    /// Tries to run a command on this thread.
    #[inline]
    pub fn attempt(&self, seat: &Seat, call: &Call<'_>, taking: Taking, reply: &mut dyn Reply) -> Outcome {
        match call.row().action {
            Action::OneKey(run) => self.attempt_one(seat, call, taking, run, reply),
            Action::ManyKeys(run) => self.attempt_many(seat, call, taking, run, reply),
            Action::Keyspace(which) => self.attempt_keyspace(seat, call, taking, which, reply),
            Action::Door(_) => {
                call.refuse(Error::Internal, reply);
                Outcome::Done
            }
        }
    }

    #[inline]
    fn take(&self, shard: u32, taking: Taking) -> Option<Held<'_, Store, Box<Request>>> {
        let token = &self.shard(shard).token;
        match taking {
            Taking::Try(spins) => token.try_take().or_else(|| token.try_take_spinning(spins)),
            Taking::Wait => Some(token.take_waiting(&self.room, MAIN_SPINS)),
        }
    }

    #[inline]
    fn attempt_one(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking,
        run: fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let hash = self.hasher.hash(call.args.get(1));
        let number = self.shard_of(hash);
        let Some(mut held) = self.take(number, taking) else {
            return Outcome::Busy;
        };
        let outcome = self.run_one(seat, call, hash, number, &mut held, run, reply);
        self.release(number, held);
        outcome
    }

    #[inline]
    #[allow(clippy::too_many_arguments)] // What one call needs, by name.
    fn run_one(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        hash: KeyHash,
        number: u32,
        held: &mut Held<'_, Store, Box<Request>>,
        run: fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let table = held.db(call.db);
        let before = table.census();
        let mut cx = OneKey {
            args: call.args,
            hash,
            table,
            hasher: &self.hasher,
            now: &call.now,
            limits: &call.limits,
        };
        let result = seat.counted(call.command, || run(&mut cx, reply));
        seat.book(call.db, table.census() - before);
        self.note_due(number, table);
        said(call, result, reply)
    }

    /// Keeps the shard's due time, which others read without the token.
    #[inline]
    fn note_due(&self, shard: u32, table: &Table) {
        let due = &self.shard(shard).due;
        if table.next_due() < due.load(Ordering::Relaxed) {
            due.store(table.next_due(), Ordering::Relaxed);
        }
    }

    pub(super) fn due(&self, shard: u32) -> UnixMs {
        self.shard(shard).due.load(Ordering::Relaxed)
    }

    pub(super) fn set_due(&self, shard: u32, held: &Held<'_, Store, Box<Request>>) {
        self.shard(shard).due.store(held.next_due(), Ordering::Relaxed);
    }

    /// Gives a token back, and tells the owner where messages are left.
    #[inline]
    pub fn release(&self, shard: u32, held: Held<'_, Store, Box<Request>>) {
        if held.release(&self.room) == Released::Pending {
            self.tell_owner(shard);
        }
    }

    #[cold]
    fn tell_owner(&self, shard: u32) {
        self.workers.send(self.owner(shard), Message::Shard(shard));
    }

    /// Takes the tokens of all these shards (in ascending order, each once), or none.
    fn take_many(&self, shards: &[u32], taking: Taking) -> Option<ManyHeld<'_>> {
        let mut held = ManyHeld::new();
        for &shard in shards {
            match self.take(shard, taking) {
                Some(token) => held.push((shard, token)),
                None => {
                    self.release_many(held);
                    return None;
                }
            }
        }
        Some(held)
    }

    fn release_many(&self, held: ManyHeld<'_>) {
        for (shard, token) in held {
            self.release(shard, token);
        }
    }

    fn attempt_many(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking,
        run: fn(&mut ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let hashes: SmallVec<[KeyHash; 8]> =
            call.row().key_arguments(&call.args).map(|key| self.hasher.hash(key)).collect();
        let mut shards: SmallVec<[u32; 8]> = hashes.iter().map(|&hash| self.shard_of(hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        let Some(mut held) = self.take_many(&shards, taking) else {
            return Outcome::Busy;
        };
        let before = census(&mut held, call.db);
        let mut tables = HeldByKey { engine: self, hashes: &hashes, held: &mut held, db: call.db };
        let mut cx = ManyKeys {
            args: call.args,
            tables: &mut tables,
            hasher: &self.hasher,
            now: &call.now,
            limits: &call.limits,
        };
        let result = seat.counted(call.command, || run(&mut cx, reply));
        seat.book(call.db, census(&mut held, call.db) - before);
        for (shard, token) in &mut held {
            self.note_due(*shard, token.db(call.db));
        }
        self.release_many(held);
        said(call, result, reply)
    }

    fn attempt_keyspace(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking,
        which: Keyspace,
        reply: &mut dyn Reply,
    ) -> Outcome {
        match which {
            Keyspace::DbSize => {
                seat.called(call.command);
                reply.integer(self.census(call.db).keys);
                Outcome::Done
            }
            Keyspace::RandomKey => self.random_key(seat, call, taking, reply),
            Keyspace::Scan => self.scan(seat, call, taking, reply),
            Keyspace::Keys | Keyspace::Populate | Keyspace::FlushDb | Keyspace::FlushAll => Outcome::Long,
        }
    }

    fn scan(&self, seat: &Seat, call: &Call<'_>, taking: Taking, reply: &mut dyn Reply) -> Outcome {
        let args = match ScanArgs::parse(&call.args, &call.limits) {
            Ok(args) => args,
            Err(error) => return said(call, Err(error), reply),
        };
        if args.count > SCAN_AT_ONCE {
            return Outcome::Long;
        }
        let mut scan = super::long::ScanState::new(self, &args, call.db);
        let mut held_any = false;
        while !scan.is_done() {
            let Some(mut held) = self.take(scan.shard(), taking) else {
                if held_any {
                    break; // A shorter answer with a good cursor is a good answer.
                }
                return Outcome::Busy;
            };
            held_any = true;
            scan.visit(self, seat, &mut held, &call.now, &mut || false);
            self.release(scan.visited(), held);
        }
        if scan.bytes() > call.limits.max_reply_bytes {
            return Outcome::TooLarge;
        }
        seat.counted(call.command, || scan.reply(reply));
        Outcome::Done
    }

    /// Draws shards until one gives a key. Each of the keyspace's keys lies in
    /// a shard drawn evenly, at a place drawn evenly.
    fn random_key(&self, seat: &Seat, call: &Call<'_>, taking: Taking, reply: &mut dyn Reply) -> Outcome {
        seat.called(call.command);
        let shards = self.shard_count();
        // A few rounds over all shards find a key if there is one that has
        // not expired, all but surely; then every shard is asked in order.
        let drawn = 4 * shards;
        for attempt in 0..drawn + shards {
            if self.census(call.db).keys == 0 {
                break;
            }
            let draw = self.draw();
            let shard = if attempt < drawn { draw as u32 & self.mask } else { attempt - drawn };
            let Some(mut held) = self.take(shard, taking) else {
                if taking == Taking::Wait || attempt < drawn {
                    continue;
                }
                return Outcome::Busy;
            };
            let key = random_entry(held.db(call.db), &self.hasher, (draw >> 32) as u32, &call.now);
            self.release(shard, held);
            if let Some(key) = key {
                reply.bulk(&key);
                return Outcome::Done;
            }
        }
        reply.null();
        Outcome::Done
    }

    /// A number drawn evenly (splitmix64).
    fn draw(&self) -> u64 {
        let mut draw = self.draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        draw ^ (draw >> 31)
    }

    /// Keys and expiring keys of a database, all threads' books added up.
    pub fn census(&self, db: u32) -> Census {
        let mut sum = Census::default();
        for seat in self.seats() {
            seat.add_census(db as usize, &mut sum);
        }
        sum
    }

    /// Bytes of the tables and expired keys so far.
    pub fn totals(&self) -> Census {
        let mut sum = Census::default();
        for seat in self.seats() {
            seat.add_totals(&mut sum);
        }
        sum
    }

    /// Calls and time of a command.
    pub fn command_count(&self, command: usize) -> CommandCount {
        let mut sum = CommandCount::default();
        for seat in self.seats() {
            seat.add_command(command, &mut sum);
        }
        sum
    }

    /// Commands waiting for a shard or on their way home.
    pub fn queued_now(&self) -> usize {
        self.queued_now.load(Ordering::Relaxed)
    }

    /// Runs a queued one-key command in the hands of its shard's holder.
    pub(super) fn run_pending(
        &self,
        seat: &Seat,
        number: u32,
        held: &mut Held<'_, Store, Box<Request>>,
        mut request: Box<Request>,
    ) {
        let Action::OneKey(run) = COMMANDS[request.command].action else {
            unreachable!("only one-key commands are left in a shard's mailbox");
        };
        let (args, mut tape) = (std::mem::take(&mut request.args), Tape::default());
        args.with(|args| {
            let call = self.call_of(&request, args);
            let hash = self.hasher.hash(args.get(1));
            self.run_one(seat, &call, hash, number, held, run, &mut tape);
        });
        self.done(seat, request, tape);
    }

    /// The call that a request stands for, on a worker: any reply size will do.
    pub fn call_of<'a>(&self, request: &Request, args: Args<'a>) -> Call<'a> {
        Call {
            command: request.command,
            args,
            db: request.db,
            now: Now::lazy(self.config.clock),
            limits: self.settings.limits(usize::MAX),
            prefix: request.prefix,
        }
    }

    /// Sends a request home with its reply.
    pub(super) fn done(&self, seat: &Seat, mut request: Box<Request>, tape: Tape) {
        seat.ran_queued.add(1);
        request.verdict = Verdict::Done;
        if tape.len() > crate::limits::MAX_MAIN_REPLY_BYTES {
            (request.large)(request.ticket, &tape);
        } else {
            request.reply = tape;
        }
        self.send_home(request);
    }

    pub(super) fn send_home(&self, request: Box<Request>) {
        match request.home {
            Home::Main => {
                if self.main.push(request) {
                    (self.wake_main)();
                }
            }
        }
    }

    /// Takes a request out of the books when it has come home.
    pub fn came_home(&self) {
        self.queued_now.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether one more command may be queued.
    ///
    /// # Errors
    /// [`Error::TooManyQueued`] at the limit.
    pub fn room_in_queue(&self) -> Result<(), Error> {
        let max = self.settings.max_queued.load(Ordering::Relaxed);
        if self.queued_now() >= max {
            return Err(Error::TooManyQueued(max));
        }
        Ok(())
    }

    /// Queues a command whose token was busy. A one-key command waits in its
    /// shard's mailbox, where the holder finds it; others go to a worker.
    pub fn enqueue(&self, seat: &Seat, request: Box<Request>) {
        self.book_queued(seat);
        if !matches!(COMMANDS[request.command].action, Action::OneKey(_)) {
            let (worker, message) = self.addressed(request);
            self.workers.send(worker, message);
            return;
        }
        let shard = request.args.with(|args| self.shard_of(self.hasher.hash(args.get(1))));
        if let Left::Free(request) = self.shard(shard).token.leave(request) {
            self.workers.send(self.owner(shard), Message::Run(request));
        }
    }

    fn book_queued(&self, seat: &Seat) {
        seat.queued.add(1);
        self.queued_now.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues many commands at once: one message and at most one wake-up for each worker.
    pub fn enqueue_batch(&self, seat: &Seat, requests: impl Iterator<Item = Box<Request>>) {
        let mut batches: Vec<Vec<Message>> = Vec::new();
        batches.resize_with(self.config.workers, Vec::new);
        for request in requests {
            self.book_queued(seat);
            let (worker, message) = self.addressed(request);
            batches[worker].push(message);
        }
        for (worker, batch) in batches.into_iter().enumerate() {
            if !batch.is_empty() {
                self.workers.send(worker, Message::Batch(batch));
            }
        }
    }

    /// The worker that a command is best run by: the owner of its first key's
    /// shard; any, where it has none.
    fn addressed(&self, request: Box<Request>) -> (usize, Message) {
        let worker = request.args.with(|args| match COMMANDS[request.command].key_arguments(&args).next() {
            Some(key) => self.owner(self.shard_of(self.hasher.hash(key))),
            None => self.draw() as usize % self.config.workers,
        });
        (worker, Message::Run(request))
    }

    /// Puts a key in, unless it is there and `replace` is not wanted. True when
    /// it was put in. For the holder of the global lock.
    pub fn put(
        &self,
        db: u32,
        key: &[u8],
        value: Value<'_>,
        expire_at: Option<UnixMs>,
        replace: bool,
    ) -> bool {
        let hash = self.hasher.hash(key);
        let shard = self.shard_of(hash);
        let mut held = self.shard(shard).token.take_waiting(&self.room, MAIN_SPINS);
        let table = held.db(db);
        let before = table.census();
        let found = table.find_live(&self.hasher, hash, key, &Now::lazy(self.config.clock));
        match found {
            None => table.insert(&self.hasher, hash, key, value, expire_at),
            Some(found) if replace => table.overwrite(found, value, expire_at),
            Some(_) => {}
        }
        let change = table.census() - before;
        self.main_seat().book(db, change);
        self.spend_credit(change.bytes);
        self.note_due(shard, table);
        self.release(shard, held);
        found.is_none() || replace
    }

    /// Calls `change` on every shard, all tokens held at once. For the holder
    /// of the global lock.
    pub fn on_all_shards(&self, mut change: impl FnMut(&mut Store)) {
        let all: Vec<u32> = (0..self.shard_count()).collect();
        let Some(mut held) = self.take_many(&all, Taking::Wait) else {
            return; // Waiting does not fail.
        };
        for (_, token) in &mut held {
            change(token);
        }
        for (shard, token) in &held {
            self.set_due(*shard, token);
        }
        self.release_many(held);
    }

    /// Empties databases at one moment; gives what is to be freed. For the
    /// holder of the global lock.
    pub fn flush(&self, only: Option<u32>) -> Vec<crate::store::Remains> {
        let mut remains = Vec::new();
        let mut lost = vec![Census::default(); self.config.databases as usize];
        self.on_all_shards(|store| {
            let dbs = match only {
                Some(db) => db..db + 1,
                None => 0..store.databases(),
            };
            for db in dbs {
                let table = store.take_db(db);
                if let Some(sum) = lost.get_mut(db as usize) {
                    let gone = table.census();
                    sum.keys -= gone.keys;
                    sum.expiring -= gone.expiring;
                    sum.bytes -= gone.bytes;
                }
                if !table.is_empty() {
                    remains.push(table.into_remains());
                }
            }
        });
        for (db, change) in lost.into_iter().enumerate() {
            self.main_seat().book(db as u32, change);
        }
        remains
    }

    /// Exchanges two databases at one moment. For the holder of the global lock.
    pub fn swap_dbs(&self, a: u32, b: u32) {
        let mut change = Census::default();
        self.on_all_shards(|store| {
            let (before_a, before_b) = (store.db(a).census(), store.db(b).census());
            change.keys += before_b.keys - before_a.keys;
            change.expiring += before_b.expiring - before_a.expiring;
            store.swap_dbs(a, b);
        });
        self.main_seat().book(a, change);
        self.main_seat().book(b, Census::default() - change);
    }

    /// Books what a table gained or lost on a thread.
    #[inline]
    pub(super) fn book(&self, seat: &Seat, db: u32, change: Census) {
        seat.book(db, change);
    }

    /// Counts a command that ran at once.
    #[inline]
    pub fn book_at_once(&self, seat: &Seat) {
        seat.at_once.add(1);
    }

    /// Books a long command's time, on the main thread.
    pub fn book_long(&self, seat: &Seat, command: usize, started: Instant) {
        seat.called(command);
        seat.timed(command, started.elapsed());
    }
}

/// Turns a command's result into an outcome, saying its error.
#[inline]
fn said(call: &Call<'_>, result: Result<(), Error>, reply: &mut dyn Reply) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(Error::ReplyTooLarge) => Outcome::TooLarge,
        Err(error) => {
            call.refuse(error, reply);
            Outcome::Done
        }
    }
}

fn census(held: &mut ManyHeld<'_>, db: u32) -> Census {
    let mut sum = Census::default();
    for (_, token) in held {
        let census = token.db(db).census();
        sum.keys += census.keys;
        sum.expiring += census.expiring;
        sum.bytes += census.bytes;
        sum.expired += census.expired;
    }
    sum
}

/// Some entry near a place of the scan order that is still alive.
fn random_entry(table: &mut Table, hasher: &KeyHasher, from: u32, now: &Now) -> Option<Vec<u8>> {
    if table.is_empty() {
        return None;
    }
    let mut cursor = Some(from);
    while let Some(at) = cursor {
        let (mut seen, mut chosen) = (0, None);
        cursor = table.scan_bucket(hasher, at, &mut |entry| {
            if !entry.is_expired(now) {
                seen += 1;
                // Each of the bucket's keys with the same chance.
                if from % seen == 0 {
                    chosen = Some(entry.key().to_vec());
                }
            }
        });
        if chosen.is_some() {
            return chosen;
        }
    }
    None
}

/// Gives a command the table of each of its keys.
struct HeldByKey<'a, 'b> {
    engine: &'a Engine,
    hashes: &'a [KeyHash],
    held: &'a mut ManyHeld<'b>,
    db: u32,
}

impl HeldTables for HeldByKey<'_, '_> {
    fn table(&mut self, key: usize) -> (KeyHash, &mut Table) {
        let hash = self.hashes[key];
        let shard = self.engine.shard_of(hash);
        let at = self.held.partition_point(|&(number, _)| number < shard);
        (hash, self.held[at].1.db(self.db))
    }
}
