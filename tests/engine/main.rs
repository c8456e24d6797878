//! The promises that need no host: the engine and its ports on real threads, the protocol, and
//! parsers under any bytes. With `--cfg loom` only the concurrent parts under loom are compiled.

#[cfg(not(loom))]
use midi_test_common as common;

#[cfg(not(loom))]
mod golden;
#[cfg(not(loom))]
mod held_replies;
#[cfg(not(loom))]
mod history;
#[cfg(not(loom))]
mod inputs;
#[cfg(loom)]
mod interleavings;
#[cfg(not(loom))]
mod log_threads;
#[cfg(not(loom))]
mod played;
#[cfg(not(loom))]
mod port_threads;
#[cfg(not(loom))]
mod records;
#[cfg(not(loom))]
mod resp;
#[cfg(not(loom))]
mod shard_threads;
#[cfg(loom)]
mod shared_reads;
#[cfg(not(loom))]
mod snapshots;
#[cfg(loom)]
mod standstills;

/// Reports that the thread sanitizer must suppress, because it does not see the order that std
/// guarantees:
///
/// * the last owner of an Arc frees it after a fence, and the sanitizer does not support fences;
/// * the table of names is made under the lock of a LazyLock, inside std, which is not instrumented
///   (nor is the test harness's channel).
///
/// SAFETY of the name: only the sanitizer's runtime looks for it.
#[cfg(not(loom))]
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_suppressions() -> *const u8 {
    // The sanitizer calls this before it is ready: nothing may be called here.
    &raw const NOT_RACES as *const u8
}

#[cfg(not(loom))]
static NOT_RACES: [u8; 96] =
    *b"race:alloc::sync::Arc\nrace:alloc::sync::Weak\nrace:midi::command::table::find\n\
       race:CompletedTest\0";
