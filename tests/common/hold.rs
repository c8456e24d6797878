//! A main thread that is busy for as long as a test wants: `CALLS.HOLD` of tests/modules/calls.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Builder, Client, Server, encoded, own_library, wait_until};

/// A server with the module.
pub fn with_calls(builder: Builder) -> Builder {
    let module = own_library("libmidi_test_calls.so");
    builder.config(format!("loadmodule {}", module.display()))
}

/// A main thread that is held. It goes on when this is dropped.
#[must_use = "the main thread goes on at once"]
pub struct HeldMain {
    _until_closed: File,
}

/// Has the main thread of a server [`with_calls`] wait, and then run these commands, which are
/// encoded, before anything else. It waits when this returns. The client gets OK first.
pub fn hold_main(server: &Server, client: &mut Client, behind: &[Vec<u8>]) -> HeldMain {
    hold_main_after(server, client, &[], behind)
}

/// The same, after other commands in the same turn of the main loop, whose replies come when it
/// goes on.
pub fn hold_main_after(
    server: &Server,
    client: &mut Client,
    before: &[Vec<u8>],
    behind: &[Vec<u8>],
) -> HeldMain {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let path = server.dir().join(format!("hold-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success(), "{}", path.display());
    let hold = encoded(&["CALLS.HOLD", path.to_str().expect("a path of text")]);
    client.send(&[before, &[hold], behind].concat().concat());
    let mut held = None;
    wait_until("the main thread is held", || {
        // Nobody has opened it to read before.
        held = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).ok();
        held.is_some()
    });
    HeldMain { _until_closed: held.expect("it is open") }
}
