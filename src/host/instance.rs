//! midi as this host has loaded it: the engine, and the way from here to the host. Everything else
//! in this layer uses it, and it uses none of that.
//!
//! ```text
//!          the main loop turns         SHUTDOWN
//! Loaded ──────────────────► Settled ───────────► Ending
//!    │                          ▲                    │
//!    │ MODULE LOADEX            └────────────────────┘
//!    ▼ takes it back             the last save failed: the main loop turns
//! Withdrawn
//! ```

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use super::api::{Ctx, Level};
use super::context::DetachedCtx;
use crate::engine::{Engine, Locked, Waker};

/// MODULE LIST's `ver`, as Redis's own modules count: 1.2.3 is 10203.
pub const VERSION: c_int = {
    const fn number(digits: &str) -> c_int {
        let (digits, mut at, mut number) = (digits.as_bytes(), 0, 0);
        while at < digits.len() {
            number = number * 10 + (digits[at] - b'0') as c_int;
            at += 1;
        }
        number
    }
    number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
        + number(env!("CARGO_PKG_VERSION_PATCH"))
};

/// The module, once it is loaded.
pub struct Instance {
    /// The keyspace.
    pub engine: Arc<Engine>,
    /// The context for calls to the host outside of any command.
    ctx: DetachedCtx,
    /// What the main thread sleeps on, in the host's event loop.
    waker: &'static Waker,
    /// A [`ModuleStage`].
    stage: AtomicU8,
}

/// What the host has done with the module so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ModuleStage {
    /// The host's main loop has not turned since.
    Loaded,
    /// The module stays.
    Settled,
    /// The host exits, unless its last save fails.
    Ending,
    /// The host has taken the module back, and no longer calls it.
    Withdrawn,
}

static INSTANCE: OnceLock<Instance> = OnceLock::new();

/// Makes the instance. Once, in OnLoad, before anything is registered that uses it.
pub fn begin(ctx: Ctx<'_>, engine: Arc<Engine>, waker: &'static Waker) {
    let stage = AtomicU8::new(ModuleStage::Loaded as u8);
    let new = Instance { engine, ctx: DetachedCtx::new(ctx), waker, stage };
    assert!(INSTANCE.set(new).is_ok(), "the host loads a module once");
}

/// The instance. Everything that uses it is registered after it was made.
#[inline]
pub fn instance() -> &'static Instance {
    INSTANCE.get().expect("made before anything could ask for it")
}

/// The instance; `None` if it has not been made yet.
pub fn if_begun() -> Option<&'static Instance> {
    INSTANCE.get()
}

/// The instance; `None` if it has not been made yet, or has been withdrawn.
pub fn if_in_use() -> Option<&'static Instance> {
    if_begun().filter(|instance| !instance.is(ModuleStage::Withdrawn))
}

impl Instance {
    /// A context that belongs to no command.
    pub fn ctx<'l>(&'l self, locked: Locked<'l>) -> Ctx<'l> {
        self.ctx.ctx(locked)
    }

    /// Writes a line to the host's log, on any thread.
    pub fn log(&self, level: Level, text: &str) {
        self.ctx.log(level, text);
    }

    /// The descriptor that ends the main loop's sleep.
    pub fn wakes_at(&self) -> c_int {
        self.waker.descriptor()
    }

    /// Clears the wake-ups of the main thread so far.
    pub fn forget_calls(&self) {
        self.waker.clear();
    }

    /// Whether the module is at this stage.
    pub fn is(&self, stage: ModuleStage) -> bool {
        self.stage.load(Ordering::Relaxed) == stage as u8
    }

    /// Whether the host loads its data for the first time, before its main loop turns.
    pub fn is_starting(&self) -> bool {
        self.is(ModuleStage::Loaded)
    }

    /// Notes that the main loop turns.
    #[inline]
    pub fn main_turns(&self) {
        if !self.is(ModuleStage::Settled) {
            self.enter(ModuleStage::Settled);
        }
    }

    /// Notes that the host is about to exit.
    pub fn host_ends(&self) {
        self.enter(ModuleStage::Ending);
    }

    /// Notes that the host takes the module back.
    pub fn withdraw(&self) {
        self.enter(ModuleStage::Withdrawn);
    }

    /// Under the global lock, so one at a time. Nothing comes after [`ModuleStage::Withdrawn`].
    fn enter(&self, stage: ModuleStage) {
        if !self.is(ModuleStage::Withdrawn) {
            self.stage.store(stage as u8, Ordering::Relaxed);
        }
    }
}
