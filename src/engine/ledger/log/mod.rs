//! The log of writes: what threads have done to keys, on its way into the host's own log.
//!
//! A *run* is what a thread does while it holds tokens. In logged mode a run that changed something
//! is published before its first token is released: it takes the next *position* and joins the
//! *tail*, the runs that the host does not have yet. So runs that share a shard have positions in
//! the order in which they happened, and whoever holds all tokens sees the whole tail.
//!
//! ```text
//!  a thread, with tokens            any thread                 main thread
//!  edit ends ─► record, and what ─► publish: position, tail ─► log_tail ─► the host's log
//!               the key was         before a token is released      │ host has written it
//!                                                                   ▼
//!                                                             set_safe ─► held replies
//! ```
//!
//! `run` is the run that a thread has under way, `tail` the log with its tail; `publish` is the way
//! of a run from the end of an edit into the tail, and to the host; `text` makes texts of runs, and
//! `parted` is the way of long ones.
//!
//! A reply to a write is held until its run's position is *safe*: written as the host's policy
//! says. `take_back` takes the tail back, and makes it again.

mod counts;
mod logged;
mod parted;
mod past;
mod publish;
mod run;
mod tail;
mod take_back;
mod text;
mod thread_log;

#[cfg(test)]
mod tests;

pub use counts::LogCounts;
pub use logged::Logged;
pub(super) use run::{Change, ChangeOfAll, OpenRun};
pub use tail::Log;
pub(in crate::engine) use thread_log::ThreadLog;
