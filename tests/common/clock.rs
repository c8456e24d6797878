//! Servers whose time of day the test sets.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use super::{Builder, own_library};

/// The time of day of one server: that of the machine, and so many milliseconds more.
pub struct Clock {
    path: PathBuf,
    ahead_ms: AtomicI64,
}

impl Clock {
    /// A clock that is right.
    pub fn new() -> Clock {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("midi-clock-{}-{number}", std::process::id()));
        fs::write(&path, 0_i64.to_ne_bytes()).expect("the clock's file");
        Clock { path, ahead_ms: AtomicI64::new(0) }
    }

    /// Has a server go by this clock, also after a restart.
    pub fn of(&self, builder: Builder) -> Builder {
        builder.preload(own_library("libmidi_test_clock.so")).env("CLOCK_FILE", &self.path)
    }

    /// So many milliseconds pass at once.
    pub fn pass(&self, ms: i64) {
        let ahead_ms = self.ahead_ms.fetch_add(ms, Ordering::Relaxed) + ms;
        let file = File::options().write(true).open(&self.path).expect("the clock's file");
        file.write_all_at(&ahead_ms.to_ne_bytes(), 0).expect("a number in the clock's file");
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
