//! Large arguments that are kept instead of copied.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::api::{Ctx, RawString, api, bytes};
use crate::command::Keep;
use crate::limits::FREED_PER_TURN;
use crate::shard::Inbox;
use crate::store::{SharedBytes, SharedValue};

/// How many arguments were kept, for INFO.
pub static KEPT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
}

/// Strings that another thread dropped, for the main thread to free.
static DROPPED: std::sync::LazyLock<Inbox<Dropped>> = std::sync::LazyLock::new(Inbox::default);

struct Dropped(*mut RawString);

// SAFETY: only carried to the main thread.
unsafe impl Send for Dropped {}

/// Marks this thread as the host's main thread.
pub fn this_is_main() {
    IS_MAIN.set(true);
}

/// A string of the host's that midi holds a reference to.
struct Kept {
    string: *mut RawString,
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
        if IS_MAIN.get() {
            free(self.string);
        } else {
            // The main thread frees it on its next turn; no hurry.
            let _ = DROPPED.push(Dropped(self.string));
        }
    }
}

fn free(string: *mut RawString) {
    // SAFETY: on the main thread, once for each HoldString.
    unsafe { api!(RedisModule_FreeString)(std::ptr::null_mut(), string) };
}

/// Strings that are still to be freed.
static TO_FREE: Mutex<VecDeque<Dropped>> = Mutex::new(VecDeque::new());

/// Whether there are any, for a look without the lock: every turn looks.
static MORE_TO_FREE: AtomicBool = AtomicBool::new(false);

/// Frees some of what other threads dropped: few, because each may be large.
/// On the main thread, every turn.
pub fn free_dropped() {
    if DROPPED.is_empty() && !MORE_TO_FREE.load(Ordering::Relaxed) {
        return;
    }
    let mut to_free = TO_FREE.lock();
    to_free.extend(DROPPED.take());
    let now = FREED_PER_TURN.min(to_free.len());
    for Dropped(string) in to_free.drain(..now) {
        free(string);
    }
    MORE_TO_FREE.store(!to_free.is_empty(), Ordering::Relaxed);
}

/// The arguments of a command on the main thread.
pub struct HostArgs<'a>(pub &'a [*mut RawString]);

impl<'a> HostArgs<'a> {
    /// The bytes of argument `index`. One that may be kept gives its spare room
    /// away first, so that the host will not move it later.
    #[inline]
    pub fn text(&self, index: usize, keep_bytes: usize) -> &'a [u8] {
        let string = self.0[index];
        // SAFETY: an argument of the running command, on the main thread.
        unsafe {
            let text = bytes(string);
            if text.len() < keep_bytes {
                return text;
            }
            api!(RedisModule_TrimStringAllocation)(string);
            bytes(string)
        }
    }
}

impl Keep for HostArgs<'_> {
    fn keep(&self, index: usize) -> Option<SharedValue> {
        let &string = self.0.get(index)?;
        KEPT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: an argument of the running command, on the main thread; the
        // reference keeps it for as long as the slice is used.
        let (string, text) = unsafe {
            let held = api!(RedisModule_HoldString)(Ctx(std::ptr::null_mut()).0, string);
            (held, bytes(held))
        };
        Some(SharedValue::new(Kept { string, text }))
    }
}
