//! A server's clock that goes with the requests: a run of half a minute is one of several, with the
//! same figures on a fast machine and on a slow one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

/// Milliseconds between two positions of the clock.
const STEP_MS: u64 = 20;

/// Sets the clock.
pub struct Clock {
    /// The file with the milliseconds that the server's clock is ahead.
    file: Option<File>,
    began: Instant,
    pace: u64,
    requests: u64,
    /// The request with which it is set again.
    next: u64,
}

impl Clock {
    /// In this file, if any; so many requests take a second.
    ///
    /// # Errors
    /// There is no such file.
    pub fn new(path: Option<&Path>, pace: u64) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().write(true).open(path);
            file.with_context(|| path.display().to_string())
        };
        let file = path.map(open).transpose()?;
        Ok(Clock { file, began: Instant::now(), pace, requests: 0, next: 0 })
    }

    /// Another request.
    #[inline]
    pub fn tick(&mut self) {
        self.requests += 1;
        if self.requests > self.next {
            self.set();
        }
    }

    #[cold]
    fn set(&mut self) {
        self.next = self.requests + (self.pace * STEP_MS / 1000).max(1);
        let Some(file) = &self.file else { return };
        let wanted_ms = (self.requests * 1000 / self.pace) as i64;
        let ahead_ms = wanted_ms - self.began.elapsed().as_millis() as i64;
        // Without its clock a run is less exact, and no failure.
        let _ = file.write_all_at(&ahead_ms.to_ne_bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ahead_as_far_as_the_requests_are() {
        let path = std::env::temp_dir().join(format!("midi-bench-clock-{}", std::process::id()));
        std::fs::write(&path, 0_i64.to_ne_bytes()).expect("a file");
        let mut clock = Clock::new(Some(&path), 1000).expect("a clock");
        for _ in 0..3_600_000 {
            clock.tick();
        }
        let bytes = std::fs::read(&path).expect("the file").try_into().expect("eight bytes");
        std::fs::remove_file(&path).expect("removed");
        // An hour, less the time that this took.
        let ahead_ms = i64::from_ne_bytes(bytes);
        assert!((3_000_000..=3_600_000).contains(&ahead_ms), "{ahead_ms}");
    }
}
