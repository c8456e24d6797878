//! Large arguments that are kept instead of copied.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::api::api;
use super::instance::{if_in_use, instance};
use super::state::part;
use super::string::{HostString, OwnString};
use crate::command::Keep;
use crate::engine::{Inbox, Locked};
use crate::limits::{DROPPED_BYTES, FREEING_TURN, FREEING_WAKES};
use crate::store::{SharedBytes, SharedValue};

thread_local! {
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
}

part! {
    /// Strings that other threads have dropped. They write to it at any time, so it stands apart.
    pub struct Drops {
        /// How many arguments were kept, for INFO.
        kept: AtomicU64 = AtomicU64::new(0),
        /// For the main thread to free.
        dropped: LazyLock<Inbox<Dropped>> = LazyLock::new(Inbox::default),
        /// Those that the main thread has taken, and is still to free.
        to_free: Mutex<VecDeque<Dropped>> = Mutex::new(VecDeque::new()),
        /// The bytes of all these strings.
        bytes: AtomicUsize = AtomicUsize::new(0),
    }
}

static DROPS: Drops = Drops::new();

struct Dropped {
    string: OwnString,
    bytes: usize,
}

// SAFETY: only carried to the main thread.
unsafe impl Send for Dropped {}

/// How many arguments were kept, for INFO.
pub fn count() -> u64 {
    DROPS.kept.load(Ordering::Relaxed)
}

/// Marks this thread as the host's main thread.
pub fn this_is_main() {
    IS_MAIN.set(true);
}

/// Whether this is the host's main thread.
pub fn is_main() -> bool {
    IS_MAIN.get()
}

/// A string of the host to which midi holds a reference.
struct Kept {
    /// Until it is dropped.
    string: Option<OwnString>,
    text: &'static [u8],
}

// SAFETY: the text does not change or move while the reference is held (the
// string was trimmed before, so the host has no reason to reallocate it), and
// the count is touched on the main thread only.
unsafe impl Send for Kept {}
// SAFETY: as above.
unsafe impl Sync for Kept {}

impl SharedBytes for Kept {
    fn bytes(&self) -> &[u8] {
        self.text
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(string) = self.string.take() else { return };
        if IS_MAIN.get() {
            drop(string);
        } else {
            drop_later(Dropped { string, bytes: self.text.len() });
        }
    }
}

/// Leaves a string to the main thread. A few may wait until its next turn; many wake it.
fn drop_later(dropped: Dropped) {
    let bytes = dropped.bytes;
    let before = DROPS.bytes.fetch_add(bytes, Ordering::Relaxed);
    let _ = DROPS.dropped.push(dropped);
    if before < FREEING_WAKES
        && before + bytes >= FREEING_WAKES
        && let Some(instance) = if_in_use()
    {
        instance.engine.context().outside.wake_main();
    }
}

/// Frees what other threads dropped, for a short time: each may be large. Called in every turn of
/// the main loop, after the work that has a budget there: it may take the rest of that. True if
/// nothing is left.
pub fn free_dropped(locked: Locked<'_>) -> bool {
    if DROPS.bytes.load(Ordering::Relaxed) == 0 {
        return true;
    }
    let (start, most) = (Instant::now(), instance().budget.left().max(FREEING_TURN));
    let mut to_free = DROPS.to_free.lock();
    loop {
        if !free_next(locked, &mut to_free) {
            return true;
        }
        if start.elapsed() >= most {
            return false;
        }
    }
}

/// Frees twice as much as comes in, if much is waiting to be freed.
fn make_room(locked: Locked<'_>, incoming: usize) {
    let now = DROPS.bytes.load(Ordering::Relaxed);
    if now < DROPPED_BYTES {
        return;
    }
    let enough = now.saturating_sub(2 * incoming);
    let mut to_free = DROPS.to_free.lock();
    while DROPS.bytes.load(Ordering::Relaxed) > enough && free_next(locked, &mut to_free) {}
}

fn free_next(_: Locked<'_>, to_free: &mut VecDeque<Dropped>) -> bool {
    if to_free.is_empty() {
        *to_free = DROPS.dropped.take();
    }
    let Some(Dropped { string, bytes }) = to_free.pop_front() else { return false };
    drop(string);
    DROPS.bytes.fetch_sub(bytes, Ordering::Relaxed);
    true
}

/// The arguments of a command on the main thread.
pub struct HostArgs<'a> {
    args: &'a [HostString<'a>],
    locked: Locked<'a>,
}

impl<'a> HostArgs<'a> {
    /// The arguments of the running command.
    #[inline]
    pub fn new(locked: Locked<'a>, args: &'a [HostString<'a>]) -> Self {
        HostArgs { args, locked }
    }

    /// The bytes of argument `index`. If it may be kept (`keep_bytes` or more), its spare room is
    /// trimmed first, so that the host does not move it later.
    #[inline]
    pub fn text(&self, index: usize, keep_bytes: usize) -> &'a [u8] {
        let string = self.args[index];
        let text = string.bytes();
        if text.len() < keep_bytes {
            return text;
        }
        // SAFETY: an argument of the running command, on the main thread; nothing uses its text
        // from before.
        unsafe { api!(RedisModule_TrimStringAllocation)(string.raw()) };
        string.bytes()
    }
}

impl Keep for HostArgs<'_> {
    fn keep(&self, index: usize) -> Option<SharedValue> {
        let &string = self.args.get(index)?;
        make_room(self.locked, string.bytes().len());
        DROPS.kept.fetch_add(1, Ordering::Relaxed);
        let string = string.hold();
        // SAFETY: the reference keeps the text for as long as the slice is used.
        let text = unsafe { &*std::ptr::from_ref(string.bytes()) };
        Some(SharedValue::new(Kept { string: Some(string), text }))
    }
}
