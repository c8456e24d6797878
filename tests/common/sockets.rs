//! Sockets that do less than they are asked to: a server that is started on them has
//! `tests/shims/sockets` between its port and the kernel.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Builder, own_library};

/// The sockets of one server.
pub struct Sockets {
    counts: PathBuf,
    seed: u64,
}

/// How often a server's sockets did less than they were asked to.
#[derive(Debug)]
pub struct SocketFaults {
    /// Some of the bytes were received.
    pub received: u64,
    /// Some of the bytes were sent.
    pub sent: u64,
    /// EINTR.
    pub interrupted: u64,
    /// EAGAIN.
    pub nothing: u64,
}

impl Sockets {
    /// Those whose faults are the ones of this number.
    pub fn new(seed: u64) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("midi-sockets-{}-{number}", std::process::id());
        let counts = std::env::temp_dir().join(name);
        fs::write(&counts, [0; 32]).expect("a file");
        Sockets { counts, seed }
    }

    /// Whether there are such sockets on this machine.
    pub const fn exist() -> bool {
        cfg!(target_arch = "x86_64")
    }

    /// Gives them to the server that `builder` will start.
    pub fn under(&self, builder: Builder) -> Builder {
        builder
            .preload(own_library("libmidi_test_sockets.so"))
            .env("SOCKETS_SEED", self.seed.to_string())
            .env("SOCKETS_COUNTS", &self.counts)
    }

    /// What has happened so far.
    pub fn faults(&self) -> SocketFaults {
        let bytes = fs::read(&self.counts).expect("the counts");
        let numbers = bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        let [received, sent, interrupted, nothing] =
            numbers.collect::<Vec<_>>().try_into().expect("four counts");
        SocketFaults { received, sent, interrupted, nothing }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.counts);
    }
}
