//! The promise: what one client of midi's port causes is bounded, in memory and in time, and others are
//! served meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Value};

/// A server whose port has one worker: everybody is in everybody's way.
fn narrow(builder: Builder) -> Ported {
    Ported::start(builder.load("threads 1"))
}

/// MULTI, so many times the command, and EXEC, as they are sent.
fn transaction(command: &str, times: usize) -> Vec<u8> {
    format!("MULTI\r\n{}EXEC\r\n", format!("{command}\r\n").repeat(times)).into_bytes()
}

/// What EXEC answers to so many commands.
#[track_caller]
fn executed(client: &mut Client, times: usize) -> Vec<Value> {
    assert_eq!(client.read(), Value::ok());
    for _ in 0..times {
        assert_eq!(client.read().text(), "QUEUED");
    }
    client.read().array()
}

#[test]
fn the_ports_own_commands_in_a_large_transaction_leave_others_their_turns() {
    let ported = narrow(Mode::Adaptive.builder());
    let times = 300_000;
    let (mut large, mut other) = (ported.client(), ported.client());
    let served = AtomicBool::new(false);
    let sent = transaction("PING", times);
    std::thread::scope(|scope| {
        let (large, served) = (&mut large, &served);
        scope.spawn(move || {
            large.send(&sent);
            assert_eq!(executed(large, times), vec![Value::Simple(b"PONG".to_vec()); times]);
            served.store(true, Ordering::Relaxed);
        });
        let mut pings = 0;
        while !served.load(Ordering::Relaxed) {
            assert_eq!(other.run("PING").text(), "PONG");
            pings += 1;
        }
        // One that had to wait for the whole transaction would come to few of them.
        assert!(pings > 20, "{pings}");
    });
}
