//! Servers whose time of day is wrong.

use super::{Builder, own_library};

/// With a time of day that is wrong by so many milliseconds.
pub fn wrong_by(builder: Builder, ahead_ms: i64) -> Builder {
    let library = own_library("libmidi_test_clock.so");
    builder.preload(library).env("CLOCK_AHEAD_MS", ahead_ms.to_string())
}
