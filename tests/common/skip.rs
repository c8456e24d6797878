//! Tests that cannot run here say so to a counter, so that none passes in silence.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;

/// Counts the calling test, or a part of it, as one that cannot run here, for this reason.
///
/// It is a line in the file that `MIDI_SKIPS` names: host (`MIDI_HOST`), test, reason, with tabs
/// between them. `make test` counts and names them at its end. `.ci/run` fails at those that
/// `.ci/skips` does not expect.
///
/// # Panics
/// If the file cannot be written.
#[track_caller]
pub fn skip(reason: &str) {
    let place = Location::caller();
    let thread = std::thread::current();
    // With one test at a time, tests run on the main thread.
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    };
    println!("SKIPPED: {test}: {reason}");
    let Some(path) = std::env::var_os("MIDI_SKIPS").filter(|path| !path.is_empty()) else { return };
    let mut file =
        OpenOptions::new().create(true).append(true).open(path).expect("the file of MIDI_SKIPS");
    // One write: tests of other processes may append, too.
    let host = std::env::var("MIDI_HOST").unwrap_or_else(|_| "?".to_owned());
    let line = format!("{host}\t{test}\t{reason}\n");
    file.write_all(line.as_bytes()).expect("a line in the file of MIDI_SKIPS");
}
