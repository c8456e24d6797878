//! The engine: who may touch a shard, and when; mailboxes, workers, jobs.
//!
//! At the bottom are modules that know nothing of the engine: `call`, `request`, `batch`, `job`,
//! `gates`, `marks`, `notification`, `refusals`, `replica_wait`, `unit`, `users`, `workers`, and
//! the traits for the world outside, `host` and `port`. `state.rs` puts them together. The rest
//! works on the whole: taking tokens (`holding`), changing keys (`edit`), running a command with
//! its tokens (`attempt`, `all_keys`), holding all of them and closing the keyspace (`all_held`,
//! `mode`), choosing where and when it runs (`dispatch`, `queue`, `transaction`), long work
//! (`work`, `long/`), judging gates (`gate`), WATCH (`watch`), notifications (`notify`), replaying
//! a log (`replay`) and the workers' loop (`worker`).
//!
//! ```text
//! door ─ Call ─► Engine::run ─ Engine::attempt ── token free ──► runs here, at once
//!                     │ busy
//!                     ▼
//!               Engine::enqueue ─► shard's mailbox or owner's inbox ─► worker ─► its origin
//! ```

mod all_held;
mod all_keys;
mod attempt;
mod batch;
mod books;
mod by_shard;
mod call;
mod counters;
mod dispatch;
mod edit;
mod gate;
mod gates;
mod holding;
mod host;
mod job;
mod log;
mod long;
mod marks;
mod mode;
mod notification;
mod notify;
mod outside;
mod port;
mod queue;
mod refusals;
mod replay;
mod replica_wait;
mod request;
mod settings;
mod slot;
mod slots;
mod staging;
mod state;
mod transaction;
mod unit;
mod user;
mod users;
mod watch;
mod work;
mod worker;
mod workers;

pub use all_held::AllHeld;
pub use all_keys::ChangedBy;
pub use books::Books;
pub use call::{Author, Call, Outcome, Taking};
pub use counters::{Census, CommandCount, ThreadCounts};
pub use dispatch::{Caller, WaitsFor};
pub use gate::Gate;
pub use gates::Gates;
pub use host::Host;
pub use job::{Job, JobDoor, JobOwner, JobReply, Progress};
pub use log::{Log, LogCounts, Logged, Wrote, as_command};
pub use long::long_work;
pub use mode::Mode;
pub use notification::Notification;
pub use outside::{MayLog, Outside, WriteLog};
pub use port::{Port, PortConfig, PortSettings, PortTurn, Ports};
pub use refusals::{Refusal, RefusalReason};
pub use replay::{ReplayError, Replayed};
pub use replica_wait::{Awaited, ReplicaWait, Waited};
pub use request::{HostClient, Origin, PortClient, Request};
pub use settings::{Config, Settings};
pub use slot::ThreadSlot;
pub use slots::SlotCounts;
pub use staging::{StagedKey, StagedShard, Staging};
pub use state::{Engine, ForMain, HeldShard, MainInbox, MainTask, Shard};
pub use transaction::{Apart, Holding, Shards, Watching};
pub use user::{Commands, Databases, Denied, KeyRule, Rules, User};
pub use users::{DEFAULT_USER, PasswordSum, Users};
pub use work::{Part, Slice, Task, Work};
pub use workers::Workers;

pub use crate::sync::{Held, Inbox, Left, Locked, Pushed, Released, Token, WaitingRoom, Waker};
pub use crate::sync::{Waiting, Watermark};
