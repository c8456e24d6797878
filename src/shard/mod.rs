//! Who may touch a shard, and when: tokens, mailboxes, workers, jobs.
//!
//! ```text
//! door ─ Call ─► Engine::attempt ── token free ──► runs here, at once
//!                     │ busy
//!                     ▼
//!               Engine::enqueue ─► shard's mailbox or owner's inbox ─► worker ─► back home
//! ```

mod call;
mod counters;
mod edit;
mod engine;
mod gate;
mod host;
mod inbox;
mod job;
mod keyspace;
mod lock;
mod long;
mod marks;
mod news;
mod port;
mod queue;
mod refusals;
mod sync;
mod token;
mod transaction;
mod unit;
mod users;
mod wake;
mod watch;
mod worker;

pub use call::{Call, Outcome, Taking};
pub use counters::{Census, CommandCount, SeatCounts};
pub use engine::{Config, Engine, HeldShard, Settings, Shard};
pub use gate::{Gate, Gates};
pub use host::{Errand, Host, Refusal, RefusalReason};
pub use inbox::Inbox;
pub use job::{Job, JobDoor, JobOwner, JobReply, Part, Progress, Slice, Task, Work};
pub use lock::{Locked, MainInbox, Seat};
pub use long::{is_long, long_work};
pub use news::{Author, News};
pub use port::{Port, PortConfig, PortSettings, Ports};
pub use queue::{ForMain, Home, HostClient, Request, Verdict};
pub use token::{Held, Left, Pushed, Released, Token, WaitingRoom};
pub use transaction::{Holding, Shards, Watching};
pub use users::{Commands, DEFAULT_USER, Denied, KeyRule, PasswordSum, Rules, User, Users};
pub use wake::Waker;
pub use worker::Workers;
