//! The promise: a client that has not logged in, or lacks the rights, costs others nothing that
//! matters: docs/security.md.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::hold::{hold_main_after, with_calls};
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, at_once, encoded, words};

const MIB: usize = 1 << 20;

fn ported() -> Ported {
    Ported::start(Mode::Adaptive.builder())
}

fn used_memory_peak(admin: &mut Client) -> i64 {
    admin.info_number("memory", "used_memory_peak")
}

/// A user change that the host refuses delays the port no longer than the main thread needs to
/// check it.
#[test]
fn changes_of_users_that_are_refused_hold_nobody_up() {
    let ported = Ported::start(with_calls(Mode::Adaptive.builder()));
    let mut admin = ported.host();
    admin.ok("ACL SETUSER holder on >holder +calls.hold");
    let mut reader = ported.client();
    reader.ok("SET k v");
    for said in
        ["ACL SETUSER other on +@all", "ACL DELUSER other", "ACL LOAD", "CONFIG SET requirepass x"]
    {
        let mut holder = ported.host_of("holder");
        let held = hold_main_after(&ported.server, &mut holder, &[encoded(&words(said))], &[]);
        // A reader that waited for the main loop would have no reply.
        reader.send_line("GET k");
        assert!(reader.has_reply_within(Duration::from_secs(10)), "{said}");
        assert_eq!(reader.read(), Value::bulk("v"));
        drop(held);
        assert!(holder.read().text().starts_with("NOPERM"), "{said}");
        assert_eq!(holder.read(), Value::ok());
    }
}

/// Refusals wait for the host's ACL log in bounded memory, however fast they come and however long
/// the names are.
#[test]
fn refusals_wait_in_bounded_memory() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u -@all +midi.get ~a");
    let before = used_memory_peak(&mut admin);
    at_once(2, |number| {
        let mut client = ported.client_of("u");
        for round in 0..300 {
            let key = format!("{number}:{round}:").into_bytes();
            let key = [key, vec![b'x'; MIB]].concat();
            let commands =
                vec![vec![b"GET".to_vec(), key.clone()], vec![b"SET".to_vec(), key, b"v".to_vec()]];
            for reply in client.pipeline(&commands) {
                assert!(reply.text().starts_with("NOPERM"), "{reply:?}");
            }
            if number == 0 {
                assert_eq!(ported.host().run("PING"), Value::Simple(b"PONG".to_vec()));
            }
        }
    });
    let grown = used_memory_peak(&mut admin) - before;
    assert!(grown < 100 * MIB as i64, "{grown} bytes");
    let entries = admin.run("ACL LOG 128").array();
    assert!(entries.len() > 10);
    for entry in entries {
        assert!(entry.map()["object"].bytes().len() <= 1024);
    }
}

/// An unknown name and a wrong password get indistinguishable answers.
#[test]
fn wrong_logins_are_all_the_same() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u ~* +@all");
    admin.ok("ACL SETUSER off off >off ~* +@all");
    let long = "x".repeat(10_000);
    let mut client = ported.client();
    let wrong = Value::error("WRONGPASS invalid username-password pair or user is disabled.");
    for (name, password) in
        [("u", "x"), ("nobody", "u"), ("off", "off"), ("u", &long), (&long, "u"), ("u", "")]
    {
        assert_eq!(client.call(&["AUTH", name, password]), wrong, "{name}");
        assert_eq!(client.call(&["HELLO", "3", "AUTH", name, password]), wrong, "{name}");
    }
    client.ok("AUTH u u");
    let failed = admin.info_number("midi_net", "midi_net_failed_logins");
    assert_eq!(failed, 12);
}

/// Clients that ask for INFO at the same time get the same text, but never one that is older than
/// their request.
#[test]
fn info_is_as_new_as_the_question() {
    let ported = ported();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut asker = ported.client();
                while !stop.load(Ordering::Relaxed) {
                    asker.run("INFO persistence");
                }
            });
        }
        let (mut host, mut port) = (ported.host(), ported.client());
        // A field of the host's: midi's own are as new as the reply.
        let rounds = (1..=300).map(|round| {
            host.ok("SET k v");
            (port.info_number("persistence", "rdb_changes_since_last_save"), round)
        });
        let wrong: Vec<_> = rounds.filter(|(told, round)| told != round).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}
