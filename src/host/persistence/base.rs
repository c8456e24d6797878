//! The base of an AOF that is not an RDB (`aof-use-rdb-preamble no`). The host writes it as
//! commands, and asks modules for their keys only, of which midi has none there. So when the child
//! has written it, midi appends its keys, before the host puts the file in its place. Where it
//! cannot, the child fails, and the old files stay.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::Instant;

use super::super::api::Level;
use super::super::guarded;
use super::super::instance::instance;
use super::{fork, report, section};
use crate::limits::BASE_SYNCED_EVERY;
use crate::snapshot::{self, SavedAs, Sink};

/// Only an RDB can say that its keys are not to be trusted.
const DISTRUSTED: &str = "this replica could not follow its master. Wait for its next full sync, \
                          or set aof-use-rdb-preamble to yes.";

/// The host begins to write a file, in this process.
pub fn begin(is_base: bool) {
    instance().file.is_base.set(is_base);
    instance().file.has_section.set(false);
}

/// Whether the file is whole but for midi's keys. An RDB that the host writes without any data, for
/// `redis-cli --functions-rdb`, or for the slots that another node takes, is no such file.
fn lacks_keys() -> bool {
    let file = &instance().file;
    file.is_base.get() && !file.has_section.get() && !section::is_nothing_to_save()
}

/// The child has written its file, and has not reported yet.
pub fn end_in_child() {
    let is_done = guarded(false, || {
        if !lacks_keys() {
            return true;
        }
        append().map_err(|reason| refuse(&reason)).is_ok()
    });
    if !is_done {
        // The host then counts the rewrite as failed, and removes the file.
        // SAFETY: nothing is left to be done in this process.
        unsafe { libc::_exit(1) };
    }
}

/// The host has written a file without a fork. False if midi's keys are missing in it.
pub fn end_here() -> bool {
    if !lacks_keys() {
        return true;
    }
    // The host writes a base without a fork only where it starts without data. Another module may
    // have written to midi's keys while it was loaded.
    refuse("the server has begun one without a fork. Start it with aof-use-rdb-preamble yes.");
    if instance().doing.is_starting() {
        // SAFETY: what the host does if it cannot write that file.
        unsafe { libc::exit(1) };
    }
    false
}

fn refuse(reason: &str) {
    let text = format!("The AOF cannot be rewritten with midi's keys: {reason}");
    instance().log(Level::Warning, &text);
}

/// Appends midi's keys to the file that the child has just written.
fn append() -> Result<(), String> {
    let (engine, report, began) = (&*instance().engine, report::report(), Instant::now());
    let all = fork::held_in_child().ok_or(fork::NOT_HELD)?;
    if section::is_distrusted() {
        return Err(DISTRUSTED.into());
    }
    // Every host names it so, in its working folder, until the parent renames it.
    let path = format!("temp-rewriteaof-bg-{}.aof", std::process::id());
    let failed = |error: io::Error| format!("{path}: {error}");
    let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
    let mut sink = BaseSink { file, unsynced: 0, result: Ok(()) };
    report.begin();
    let mut progress = |stats| report.progress(stats);
    let stats =
        snapshot::save(engine, SavedAs::Records, &mut fork::lend(all), &mut sink, &mut progress);
    sink.result.and_then(|()| sink.file.sync_all()).map_err(failed)?;
    report.end(stats, began);
    Ok(())
}

/// The base of an AOF, being written.
struct BaseSink {
    file: File,
    unsynced: usize,
    result: io::Result<()>,
}

impl Sink for BaseSink {
    fn put(&mut self, string: &[u8]) {
        if self.result.is_err() {
            return;
        }
        self.result = self.file.write_all(string);
        self.unsynced += string.len();
        if self.unsynced >= BASE_SYNCED_EVERY && self.result.is_ok() {
            self.unsynced = 0;
            self.result = self.file.sync_data();
        }
    }

    fn has_failed(&self) -> bool {
        self.result.is_err()
    }
}
