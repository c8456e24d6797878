//! Who may touch a shard, and when: tokens, mailboxes, workers, jobs.
//!
//! ```text
//! door ─ Call ─► Engine::attempt ── token free ──► runs here, at once
//!                     │ busy
//!                     ▼
//!               Engine::enqueue ─► shard's mailbox or owner's inbox ─► worker ─► back home
//! ```

mod counters;
mod engine;
mod inbox;
mod job;
mod long;
mod sync;
mod token;
mod wake;
mod worker;

pub use counters::{Census, CommandCount, Seat};
pub use engine::{Call, Config, Engine, Home, Outcome, Request, Settings, Shard, Taking, Verdict, WriteGate};
pub use inbox::Inbox;
pub use job::{Job, JobOwner, JobReply, Part, Progress, Slice, Task, Work};
pub use long::long_work;
pub use token::{Held, Left, Pushed, Released, Token, WaitingRoom};
pub use wake::Waker;
pub use worker::Workers;
