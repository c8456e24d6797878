//! The promise, of the tests' own tools: a server on [`Disk`] waits for its fsyncs and meets the
//! errors that the disk is told to make. Shown with the host's own commands.

use std::time::Duration;

use crate::common::disk::{Disk, Failure, now_ns};
use crate::common::{Builder, Value, redis_server, wait_until};

const DELAY: Duration = Duration::from_millis(20);

fn builder(fsync: &str) -> Builder {
    Builder::plain().config("appendonly yes").config(format!("appendfsync {fsync}"))
}

/// With `always` a SET is answered after the end of an fsync that began after the SET was sent.
#[test]
fn replies_wait_for_a_slow_fsync() {
    let disk = Disk::with_delay(DELAY);
    let mut server = disk.under(builder("always")).start();
    for round in 0..2 {
        let mut client = server.client();
        for number in 0..10 {
            let sent = now_ns();
            client.ok(&format!("SET key:{number} value"));
            let answered = now_ns();
            let covers = disk.fsyncs_of(&server).into_iter().any(|fsync| {
                sent < fsync.began_ns
                    && fsync.began_ns + DELAY.as_nanos() as u64 <= fsync.ended_ns
                    && fsync.ended_ns < answered
            });
            assert!(covers, "round {round}: {:?}", disk.fsyncs());
        }
        // The disk stays slow after a restart.
        server.restart(redis_server());
    }
}

/// Nobody waits for the fsync of `everysec`, but it comes.
#[test]
fn a_fsync_in_the_background_is_seen() {
    let disk = Disk::with_delay(DELAY);
    let server = disk.under(builder("everysec")).start();
    let mut client = server.client();
    let before = disk.fsyncs_of(&server).len();
    wait_until("an fsync has ended", || {
        client.ok("SET key value");
        disk.fsyncs_of(&server).len() > before
    });
}

/// A full disk stops writes until it has room again.
#[test]
fn a_full_disk_can_be_repaired() {
    let disk = Disk::with_delay(Duration::ZERO);
    let server = disk.under(builder("everysec")).start();
    let mut client = server.client();
    client.ok("SET key before");
    disk.fail_writes(Failure::Full);
    wait_until("writes are refused", || client.run("SET key later").is_error());
    assert!(server.log().contains("No space left on device"), "{}", server.log());
    assert_eq!(client.run("GET key"), Value::bulk("later"));
    disk.repair();
    wait_until("writes are accepted", || !client.run("SET key after").is_error());
}

/// With `always` a server ends when its fsync or its write fails.
#[test]
fn a_broken_disk_ends_a_server() {
    let breaks = [Disk::fail_fsyncs, Disk::fail_writes];
    for fail in breaks {
        let disk = Disk::with_delay(Duration::ZERO);
        let mut server = disk.under(builder("always")).start();
        let mut client = server.client();
        client.ok("SET key before");
        fail(&disk, Failure::Broken);
        assert!(client.try_call(&["SET", "key", "never"]).is_err(), "it was answered");
        assert!(!server.wait_for_exit().success());
        assert!(server.log().contains("Input/output error"), "{}", server.log());
    }
}
