//! The host: Redis or Valkey, through its module API. Only this folder and `lib.rs` name that API.
//!
//! ```text
//! load ─ config, register ─► door ─ attempt ─► engine
//!                             └─ blocked ─► worker ─► main's inbox ─► events ─ turn ─► reply
//! ```
//!
//! The layers, lowest first: `instance` (the engine, the state of this layer, and the way to the
//! host); reports from the host and notifications to it (`gates`, `notifications`, `users`,
//! `watch`, `unit`); `door`, which shows the way of a command, and `own_commands`; `turn`;
//! `events` and `questions`; `load`.

mod acl;
mod active_expiry;
mod alloc;
mod api;
mod blocked;
mod budget;
mod config;
mod context;
mod copy;
mod descriptors;
mod door;
mod events;
mod eviction;
mod gates;
mod import_source;
mod info;
mod instance;
mod io_threads;
mod kept;
mod keys;
mod listener;
mod load;
mod lock;
mod modules;
mod notifications;
mod output;
mod own_commands;
mod pause;
mod persistence;
mod publish;
mod questions;
mod register;
mod renamed;
mod reply;
mod rights;
mod scripts;
mod slots;
mod slow_log;
mod state;
mod string;
mod turn;
mod unit;
mod users;
mod version;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

pub use alloc::HostAlloc;
pub use load::{on_load, on_unload};

use crate::command::PREFIX;

/// Panics that were caught, for INFO.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Runs `run` for a call by the host. A panic must not take the server down: its place is logged,
/// it is counted, and `otherwise` is returned.
fn guarded<R>(otherwise: R, run: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        count_panic();
        otherwise
    })
}

/// Counts a caught panic.
fn count_panic() {
    PANICS.fetch_add(1, Ordering::Relaxed);
}

/// Logs where a panic happened, on any thread.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = format!("midi: internal error: {panic}");
        api::log_anywhere(api::Level::Warning, &text.replace('\n', " "));
    }));
}
