//! What a save has to report. A forked child writes it to memory that it shares with its parent, so
//! it consists of atomics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::snapshot::SaveStats;

/// A save of midi's keys, in this process or in a child.
pub struct Report {
    /// Whether the section has been written whole.
    written: AtomicU64,
    keys: AtomicU64,
    bytes: AtomicU64,
    micros: AtomicU64,
}

/// A section that was written whole.
#[derive(Clone, Copy, Default)]
pub struct Written {
    /// Its keys.
    pub keys: u64,
    /// Its bytes, before the host compresses it.
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
}

/// The memory, which lives as long as the process.
static SHARED: OnceLock<&'static Report> = OnceLock::new();

/// Makes the shared memory. False if the system has none.
pub fn prepare() -> bool {
    SHARED.get().is_some() || map().is_some_and(|report| SHARED.set(report).is_ok())
}

/// Zeroed memory that forked children share.
fn map() -> Option<&'static Report> {
    // SAFETY: new memory of the structure's size, which is never unmapped. It is aligned to a page,
    // and all bits zero are a valid report.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            size_of::<Report>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        (at != libc::MAP_FAILED).then(|| &*at.cast::<Report>())
    }
}

/// The report.
pub fn report() -> &'static Report {
    SHARED.get().expect("made before anything is registered that uses it")
}

impl Report {
    /// A section begins.
    pub fn begin(&self) {
        self.written.store(0, Ordering::Relaxed);
        self.progress(SaveStats::default());
    }

    /// So much has been written so far.
    pub fn progress(&self, stats: SaveStats) {
        self.keys.store(stats.keys, Ordering::Relaxed);
        self.bytes.store(stats.bytes, Ordering::Relaxed);
    }

    /// The section has been written whole.
    pub fn end(&self, stats: SaveStats, began: Instant) {
        self.progress(stats);
        self.micros.store(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        // The parent reads it when the host has waited for the child.
        self.written.store(1, Ordering::Release);
    }

    /// Takes the report of a section that was written whole, if there is one.
    pub fn take(&self) -> Option<Written> {
        let written = self.written.swap(0, Ordering::Acquire) != 0;
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        written.then(|| Written {
            keys: read(&self.keys),
            bytes: read(&self.bytes),
            micros: read(&self.micros),
        })
    }
}
