//! The engine: a parsed call goes in, a reply comes out. It knows neither the host nor sockets.
//!
//! It is made of parts. Each part has its fields and its `impl`, and owns the part that it stands
//! on: so it can call that one and those below, and no part above. A returned value goes up, or a
//! message.
//!
//! ```text
//! Engine ─┬─ users             the rights of users on the ports
//!         ├─ jobs              long work in slices: what runs, how it is cut (long/)
//!         └─ ledger            how an edit ends, and what goes before the release of a token
//!              └─ shards       who may touch a shard: tokens, units, mailboxes
//!                   └─ context settings, the ways to other threads, to the host and to the ports
//! ```
//!
//! `dispatch` works on the whole: it decides whether a command runs now (`attempt`, `transaction`),
//! and where and when otherwise, and has the loop of the workers (`worker`). `replay` puts back the
//! changes of a log.
//!
//! ```text
//! door ─ Call ─► Engine::run ─ Engine::attempt ── token free ──► runs here, at once
//!                     │ busy
//!                     ▼
//!               Shards::enqueue ─► shard's mailbox or owner's inbox ─► worker ─► its origin
//! ```

mod call;
mod context;
mod counters;
mod dispatch;
mod error_counts;
mod jobs;
mod latency;
mod ledger;
mod pubsub;
mod replay;
mod replica_wait;
mod request;
mod shards;
mod slot;
mod slow_log;
#[cfg(test)]
mod testing;
mod times;
mod users;

pub use call::{Author, Call, Outcome, Taking};
pub use context::{
    CertificateName, ClientCertificates, Config, Context, ForMain, Host, HostLog, ListenAt,
    ListenerRow, MainInbox, MainTask, Outside, Port, PortConfig, PortSettings, PortTurn, Ports,
    RunScript, ScriptCaller, ScriptReply, Settings, Speaks, TlsSettings, Workers,
};
pub use counters::{Census, CommandCount, ThreadCounts};
pub use dispatch::{Apart, Caller, Holding, ShardNumbers, Together, WaitsFor, Watching};
pub use error_counts::ErrorCounts;
pub use jobs::{
    FieldSink, FieldsReader, Job, JobDoor, JobOwner, JobReply, Jobs, Part, Progress, Slice, Task,
    Work, free_later, long_work, remove_lost_keys, remove_lost_keys_now, without_reply,
};
pub use ledger::{
    Admission, Books, ChangedBy, Counted, CountedCommand, Gate, Gates, Intent, Ledger, Limit, Log,
    LogCounts, Logged, Mode, Notification, Notifications, Policy, SlotCounts, StagedKey,
    StagedShard, Staging,
};
pub use pubsub::{
    ChannelName, HeardMessage, PubSub, Receivers, SubscriptionChange, SubscriptionWait, remove_name,
};
pub use replay::{Replay, ReplayError, Replayed, TextError, is_for_here, replay_here};
pub use replica_wait::{Awaited, ReplicaWait, Waited};
pub use request::{HostClient, Origin, PortClient, Request};
pub use shards::{AllHeld, HeldShard, Shard, Shards, Standstill};
pub use slot::ThreadSlot;
pub use slow_log::{Called, CalledFrom, SlowCall, SlowLog, may_be_slow};
pub use users::{
    Commands, DEFAULT_USER, Databases, Denied, KeyRule, PasswordSum, Refusal, RefusalReason, Rules,
    User, Users,
};

pub use crate::sync::{Held, Inbox, Left, Locked, OnlyThread, Pushed, Released, StopFlag, Taken};
pub use crate::sync::{Token, Waiting, WaitingRoom, Waker, Watermark};

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Instant;

use dispatch::Batch;

use crate::limits::{FALLS_ASLEEP_IN_CRASH, WORKERS_END_IN_CRASH};

/// The keyspace, its workers and its counters.
pub struct Engine {
    /// The users that the ports know.
    pub users: Users,
    /// The subscriptions of the ports' clients.
    pub pubsub: PubSub,
    /// The end of every edit; it owns the shards, and through them the context.
    pub ledger: Ledger,
    /// The running long commands.
    pub jobs: Jobs,
    /// The last slow commands.
    pub slow_log: SlowLog,
    /// Commands that the main thread has gathered for the workers.
    batch: Batch,
}

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
        let context = Context::new(config, settings, wake_main)?;
        Ok(Engine {
            users: Users::default(),
            pubsub: PubSub::default(),
            ledger: Ledger::new(Shards::new(context)),
            jobs: Jobs::default(),
            slow_log: SlowLog::default(),
            batch: Batch::default(),
        })
    }

    /// The shards and their tokens.
    #[inline]
    pub fn shards(&self) -> &Shards {
        &self.ledger.shards
    }

    /// The settings, and the ways to other threads, to the host and to the ports.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.ledger.shards.context
    }

    /// Settings that cannot change.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.context().config
    }

    /// Settings that can change.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.context().settings
    }

    /// The host has crashed, and is about to test all memory, which changes it for a moment: the
    /// workers end their turns and touch none any more, not even their stacks. Waits for that, up
    /// to [`WORKERS_END_IN_CRASH`]: a worker that has crashed itself ends none. Takes no lock, for
    /// the handler of a signal.
    pub fn end_in_crash(&self) {
        let context = self.context();
        context.is_crashing.store(true, Ordering::Relaxed);
        self.shards().stop_for_good();
        context.wake_ports();
        let end = Instant::now() + WORKERS_END_IN_CRASH;
        while context.ended.load(Ordering::Relaxed) < context.config.workers && Instant::now() < end
        {
            sleep(FALLS_ASLEEP_IN_CRASH);
        }
        // The last one has still to fall asleep.
        sleep(FALLS_ASLEEP_IN_CRASH);
    }

    /// The current reasons to let no commands through, or no writes.
    #[inline]
    pub fn gates(&self) -> Gates {
        self.ledger.admission.gates()
    }

    /// The mode. It stays as it is while the caller holds a token.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.ledger.admission.mode()
    }

    /// Has the host note that a user was refused something. On any thread.
    pub fn note_refusal(&self, refusal: impl FnOnce() -> Refusal) {
        if self.users.refusals.add(refusal) {
            self.context().send_main_task(Box::new(report_refusals));
        }
    }

    /// A tick of the host's cron: the host may take more refusals.
    pub fn allow_more_refusals(&self, _: Locked<'_>) {
        if self.users.refusals.tick() {
            self.context().send_main_task(Box::new(report_refusals));
        }
    }

    /// The slot of the holder of the global lock.
    #[inline]
    pub fn main_slot<'l>(&'l self, locked: Locked<'l>) -> &'l ThreadSlot {
        self.ledger.books.main_slot(locked)
    }

    /// The slot of a worker.
    #[inline]
    pub fn worker_slot(&self, worker: usize) -> &ThreadSlot {
        self.ledger.books.worker_slot(worker)
    }
}

/// While a script keeps the host busy, these refusals are dropped.
fn report_refusals(locked: Locked<'_>, engine: &Engine, host: Option<&dyn Host>) {
    let (some, more) = engine.users.refusals.take_some();
    if let Some(host) = host {
        some.iter().for_each(|refusal| host.refused(locked, refusal));
    }
    if more {
        engine.context().send_main_task(Box::new(report_refusals));
    }
}
