//! What is promised without a host: the engine and its ports on real threads, the protocol, parsers
//! under any bytes, and the concurrent parts under loom (`--cfg loom`), which then are all that
//! there is here.

#[cfg(not(loom))]
#[path = "../common/mod.rs"]
mod common;

#[cfg(not(loom))]
mod inputs;
#[cfg(loom)]
mod interleavings;
#[cfg(not(loom))]
mod port_threads;
#[cfg(not(loom))]
mod resp;
#[cfg(not(loom))]
mod shard_threads;

/// What the thread sanitizer is not to report, because it does not see the order
/// that std makes:
///
/// * the last owner of an Arc frees it after a fence, and fences it does not know;
/// * the table of names is made under the lock of a LazyLock, inside std, which is not instrumented
///   (so is the test harness's channel).
///
/// SAFETY of the name: the sanitizer's runtime looks for it, and nobody else.
#[cfg(not(loom))]
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_suppressions() -> *const u8 {
    // It is asked before the sanitizer is ready: nothing may be called here.
    &raw const NOT_RACES as *const u8
}

#[cfg(not(loom))]
static NOT_RACES: [u8; 96] =
    *b"race:alloc::sync::Arc\nrace:alloc::sync::Weak\nrace:midi::command::table::find\n\
       race:CompletedTest\0";
