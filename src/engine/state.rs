//! The engine: a parsed call goes in, a reply comes out. It knows neither the host nor sockets.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::all_held::Unreleased;
use super::batch::Batch;
use super::books::Books;
use super::gates::Gates;
use super::host::Host;
use super::job::{JobReply, Jobs, Progress};
use super::log::Log;
use super::marks::Watch;
use super::mode::Mode;
use super::notification::NotificationQueue;
use super::outside::Outside;
use super::refusals::Refusals;
use super::request::Request;
use super::settings::{Config, Settings};
use super::slot::ThreadSlot;
use super::slots::SlotCounts;
use super::unit::Unit;
use super::users::Users;
use super::workers::Workers;
use crate::store::{KeyHash, KeyHasher, Store, UnixMs, prefetch};
use crate::sync::{Held, Inbox, Locked, Token, WaitingRoom};

/// A shard: token, mailbox and data, and the next due time in it.
pub struct Shard {
    /// Only its holder may touch the data.
    pub token: Token<Store, Box<Request>>,
    pub(super) due: AtomicI64,
}

/// The cost of a shard that limits.rs states.
#[cfg(not(loom))]
const _: () = assert!(size_of::<CachePadded<Shard>>() <= 256);

/// The keyspace, its workers and its counters.
pub struct Engine {
    /// What cannot change.
    pub config: Config,
    /// What can.
    pub settings: Settings,
    /// Gives a key its hash, which places the key.
    pub hasher: KeyHasher,
    /// Messages for the host's main thread.
    pub main: MainInbox,
    /// The running long commands.
    pub jobs: Jobs,
    /// Commands that the main thread has gathered for the workers.
    pub(super) batch: Batch,
    /// What users were refused.
    pub(super) refusals: Refusals,
    /// The users that the ports know.
    pub users: Users,
    /// Where the holder of the global lock waits for a token.
    pub room: WaitingRoom,
    pub(super) workers: Workers<Message>,
    pub(super) unit: Unit,
    pub(super) watch: Watch,
    pub(super) notifications: NotificationQueue,
    shards: Box<[CachePadded<Shard>]>,
    pub(super) unreleased: Unreleased,
    pub(super) mask: u32,
    pub(super) gates: AtomicU32,
    /// A [`Mode`]; changed only while all tokens are held.
    pub(super) mode: AtomicU8,
    pub(super) age: AtomicU64,
    /// The log of writes.
    pub log: Log,
    /// Messages for the main thread, each with the position that must be logged before.
    pub(super) unlogged: Mutex<Vec<(u64, ForMain)>>,
    /// Counters, memory credit and queued commands.
    pub books: Books,
    /// The keys of each slot of a cluster.
    pub slots: SlotCounts,
    /// The host and the ports.
    pub outside: Outside,
}

/// A shard whose token this thread holds.
pub type HeldShard<'a> = Held<'a, Store, Box<Request>>;

/// Tokens of several shards, in the order of their numbers.
pub(super) type ManyHeld<'a> = SmallVec<[(u32, HeldShard<'a>); 8]>;

impl Engine {
    /// An engine without threads; [`Workers::start`] starts them. `wake_main` wakes the host's main
    /// thread.
    ///
    /// # Errors
    /// The system's error if it has no more descriptors.
    pub fn new(
        config: Config,
        settings: Settings,
        wake_main: Box<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let shard = || {
            CachePadded::new(Shard {
                token: Token::new(Store::default()),
                due: AtomicI64::new(UnixMs::MAX),
            })
        };
        Ok(Engine {
            config,
            settings,
            hasher: KeyHasher::default(),
            main: MainInbox::default(),
            jobs: Jobs::default(),
            batch: Batch::default(),
            refusals: Refusals::default(),
            users: Users::default(),
            room: WaitingRoom::default(),
            workers: Workers::new(config.workers)?,
            unit: Unit::default(),
            watch: Watch::default(),
            notifications: NotificationQueue::default(),
            shards: (0..config.shards).map(|_| shard()).collect(),
            unreleased: Unreleased::default(),
            mask: config.shards as u32 - 1,
            books: Books::new(&config),
            slots: SlotCounts::of(&config),
            outside: Outside::new(wake_main),
            // Until the host reports otherwise: it loads its data before anything else.
            gates: AtomicU32::new(Gates::LOADING.bits()),
            mode: AtomicU8::new(Mode::Closed as u8),
            age: AtomicU64::new(0),
            log: Log::default(),
            unlogged: Mutex::default(),
        })
    }

    /// The slot of the holder of the global lock.
    #[inline]
    pub fn main_slot<'l>(&'l self, locked: Locked<'l>) -> &'l ThreadSlot {
        self.books.main_slot(locked)
    }

    /// The slot of a worker.
    #[inline]
    pub fn worker_slot(&self, worker: usize) -> &ThreadSlot {
        self.books.worker_slot(worker)
    }

    /// A shard.
    #[inline]
    pub fn shard(&self, number: u32) -> &Shard {
        &self.shards[number as usize]
    }

    /// Prefetches a shard.
    #[inline]
    pub(super) fn prefetch_shard(&self, number: u32) {
        prefetch(&raw const *self.shards[number as usize]);
    }

    /// The number of shards.
    pub fn shard_count(&self) -> u32 {
        self.mask + 1
    }

    /// The shard that a key is in.
    #[inline]
    pub fn shard_of(&self, hash: KeyHash) -> u32 {
        hash.shard(self.mask)
    }

    /// The shards that a worker owns.
    pub fn owned_by(&self, worker: usize) -> impl Iterator<Item = u32> + use<> {
        (worker as u32..self.shard_count()).step_by(self.config.workers)
    }

    /// The worker that owns a shard.
    pub fn owner(&self, shard: u32) -> usize {
        shard as usize % self.config.workers
    }

    /// Sets the host's gates, and the mode that follows from them. The gates that workers set
    /// themselves are kept. The caller holds no token, but for those that an open unit has laid
    /// aside.
    pub fn set_gates(&self, locked: Locked<'_>, gates: Gates) {
        const KEPT: Gates = Gates::NOTIFICATIONS.and(Gates::JOURNAL);
        let kept = |before: u32| before & KEPT.bits();
        let (set, look) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.gates.fetch_update(set, look, |before| Some(gates.bits() | kept(before)));
        self.settle_mode(locked);
        // Nobody waits at a gate for that one: see `Engine::waits_for_pause`.
        let waited_for = |gates: Gates| gates.without(KEPT.and(Gates::WORKERS_PAUSED));
        if before.is_ok_and(|before| waited_for(Gates::of_bits(before)) != waited_for(gates)) {
            self.wake_ports();
        }
    }

    /// Closes a gate for this reason. True if it was open.
    pub(super) fn close_gate(&self, reason: Gates) -> bool {
        let before = self.gates.fetch_or(reason.bits(), Ordering::Relaxed);
        !Gates::of_bits(before).has(reason)
    }

    /// Closes the gate of a forked child: its main thread, the only one that there is, has the
    /// tokens already.
    pub fn close_in_child(&self) {
        self.close_gate(Gates::FORKED);
    }

    /// Opens the gate again, as far as this reason goes.
    pub(super) fn open_gate(&self, reason: Gates) {
        self.gates.fetch_and(!reason.bits(), Ordering::Relaxed);
        self.wake_ports();
    }

    /// Grants bytes that writes may take before the host is asked again; `i64::MAX` for no limit.
    pub fn set_credit(&self, _: Locked<'_>, credit: i64) {
        if self.books.grant_credit(credit) {
            self.wake_ports();
        }
    }

    /// Has every worker visit its port's connections again: the reason that they wait may be gone.
    pub fn wake_ports(&self) {
        self.workers.wake_all();
    }

    /// Whether a write has credit left; if not, asks the main thread for more.
    pub fn has_credit(&self) -> bool {
        if self.books.credit_left() {
            return true;
        }
        if self.books.want_credit() {
            self.outside.wake_main();
        }
        false
    }

    /// Grows with every flush and exchange of databases: what was read before is then out of date.
    pub fn age(&self) -> u64 {
        self.age.load(Ordering::Relaxed)
    }
}

/// A message to a worker.
pub enum Message {
    /// Run this command.
    Run(Box<Request>),
    /// More of the log is safe: replies may be sent.
    Safe,
    /// Handle all of these.
    Batch(Vec<Message>),
    /// A port's command has run and is back on the worker of its connection.
    Completed(Box<Request>),
    /// Write this request's reply, which is too large for the main thread.
    Reply(Box<Request>),
    /// Messages wait in this shard's mailbox.
    Shard(u32),
    /// Release tokens that are left from a fork.
    Release,
    /// Take part in a job.
    Part(Box<dyn JobPart>),
    /// End the thread.
    Stop,
}

/// A worker's part of a job.
pub trait JobPart: Send {
    /// One slice. `Done` when this part is finished for good.
    fn slice(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress;

    /// After a panic in a slice: the job ends with an error, and its client is answered.
    fn failed(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress;
}

/// A message to the host's main thread.
pub enum ForMain {
    /// A client's command has its reply.
    Answer(Box<Request>),
    /// Only the main thread can go on with this command.
    Run(Box<Request>),
    /// Run this task.
    Task(MainTask),
    /// Run this task, which writes to keys.
    Write(MainTask),
    /// There are runs in the tail of the log.
    Log,
    /// A job's reply, for a client of the host's door, is to be finished once this position is
    /// logged.
    Finish(u64, Box<dyn JobReply>),
}

/// A task that only the holder of the host's global lock can do. If the host is busy with a script
/// that takes too long, the task gets no host, and must answer that.
pub type MainTask = Box<dyn FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) + Send>;
/// Messages for the host's main thread. Any thread may leave one; the holder of the global lock
/// takes them out.
#[derive(Default)]
pub struct MainInbox(Inbox<ForMain>);

impl MainInbox {
    /// Leaves a message. True when the caller must wake the main thread.
    #[must_use]
    pub(super) fn push(&self, message: ForMain) -> bool {
        self.0.push(message)
    }

    /// Leaves several messages, the oldest first. True when the caller must wake the main thread.
    #[must_use]
    pub(super) fn push_all(&self, messages: impl Iterator<Item = ForMain>) -> bool {
        self.0.push_all(messages)
    }

    /// Whether there is no message.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the main thread has announced that it sleeps.
    pub fn is_asleep(&self) -> bool {
        self.0.is_asleep()
    }

    /// Takes all messages, the oldest first.
    pub fn take(&self, _: Locked<'_>) -> std::collections::VecDeque<ForMain> {
        self.0.take()
    }

    /// See [`Inbox::may_sleep`].
    pub fn may_sleep(&self, _: Locked<'_>) -> bool {
        self.0.may_sleep()
    }

    /// See [`Inbox::awake`].
    pub fn awake(&self, _: Locked<'_>) {
        self.0.awake();
    }
}
