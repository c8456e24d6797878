#![no_main]

#[path = "../../tests/common/free_port.rs"]
mod free_port;
#[allow(dead_code)]
#[path = "../../tests/engine/played.rs"]
mod played;
#[path = "../checks/streams.rs"]
mod streams;

/// What `played` uses of the tests.
mod common {
    pub use crate::free_port::free_port;

    pub fn now_ms() -> i64 {
        0
    }
}

libfuzzer_sys::fuzz_target!(
    // The port may close a connection that is still written to.
    // SAFETY: no handler is set, and nothing else runs yet.
    init: unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    },
    |data: &[u8]| streams::check(data)
);
