//! The promise: a command that a pause of all clients has held up has the consequences that it
//! would have had without the pause. Newer hosts execute it when the pause ends, and no module sees
//! that it comes then.

use std::time::Duration;

use super::aof;
use crate::common::aof::survives;
use crate::common::witness::{at_both_doors, beside_interruptions};
use crate::common::{Builder, Client, Mode, Server, Value, encoded, words};

/// Keys that are there before.
const KEYS: usize = 1000;

fn interrupted(builder: &Builder, debug: &str) {
    let server = builder.clone().start();
    let mut client = server.client();
    client.ok(&format!("MIDI.POPULATE {KEYS}"));
    let mut witnesses = at_both_doors(3);
    beside_interruptions(&server, &mut witnesses, |answers| {
        let mut pauser = server.client();
        for _ in 0..3 {
            answers.wait_for(60);
            pauser.ok("CLIENT PAUSE 50 ALL");
            client.ok(debug);
        }
    });
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, debug));
    assert_eq!(client.run(&format!("MIDI.EXISTS key:{}", KEYS - 1)), Value::Integer(1), "{debug}");
}

#[test]
fn a_debug_command_takes_nothing_away() {
    for mode in Mode::tried() {
        interrupted(&mode.builder().with_port(), "DEBUG RELOAD");
        interrupted(&aof::builder(mode), "DEBUG RELOAD");
        interrupted(&aof::builder(mode).config("appendfsync always"), "DEBUG LOADAOF");
    }
}

/// Sends these lines during a pause, and reads the replies, of which none is an error.
fn held_up(server: &Server, lines: &[&str]) {
    let mut client = server.client();
    server.client().ok("CLIENT PAUSE 150 ALL");
    let replies = client.pipeline(&lines.iter().map(|line| words(line)).collect::<Vec<_>>());
    assert!(!replies.iter().any(Value::is_error), "{lines:?}: {replies:?}");
}

fn alice(server: &Server) -> Client {
    server.client().ok("ACL SETUSER alice reset on >secret ~* &* +@all");
    let mut alice = server.midi_client();
    alice.ok("AUTH alice secret");
    alice.ok("SET k v");
    alice
}

/// Nobody sees such a pause.
#[test]
fn a_pause_within_one_turn_holds_up_too() {
    let server = Mode::Adaptive.builder().with_port().start();
    let mut alice = alice(&server);
    let [mut first, mut pauser, mut admin, mut last] = [(); 4].map(|()| server.client());
    first.send_line("DEBUG SLEEP 0.2");
    std::thread::sleep(Duration::from_millis(50));
    // All these come in one turn of the main loop.
    pauser.send_line("CLIENT PAUSE 2 ALL");
    admin.send_line("ACL SETUSER alice -@all");
    last.send_line("DEBUG SLEEP 0.01");
    assert_eq!(admin.read(), Value::ok());
    let reply = alice.run("GET k").text();
    assert!(reply.starts_with("NOPERM"), "{reply}");
}

#[test]
fn changes_of_users_hold_when_they_are_answered() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        for lines in
            [&["ACL SETUSER alice -@all"][..], &["MULTI", "ACL SETUSER alice -get", "EXEC"]]
        {
            let mut alice = alice(&server);
            held_up(&server, lines);
            let reply = alice.run("GET k").text();
            assert!(reply.starts_with("NOPERM"), "{mode:?} {lines:?}: {reply}");
        }
        for lines in [
            &["ACL DELUSER alice"][..],
            &["ACL DELUSER alice", "ACL SETUSER alice on >secret ~* &* +@all"],
            &["ACL DELUSER alice", "ACL SETUSER alice on >other ~k"],
        ] {
            let mut alice = alice(&server);
            held_up(&server, lines);
            assert!(alice.is_closed(), "{mode:?} {lines:?}");
        }
        held_up(&server, &["CONFIG SET requirepass secret"]);
        let reply = server.midi_client().run("GET k").text();
        assert!(reply.starts_with("NOAUTH"), "{mode:?}: {reply}");
    }
}

/// What a blocked client sent behind its command comes behind BEFORE_SLEEP, and so does this save;
/// the writes, which only the main thread can run, come before the next one.
#[test]
fn writes_behind_such_a_save_are_logged() {
    for mode in Mode::tried() {
        let mut server = aof::builder(mode).start();
        let mut blocked = server.client();
        let lines = ["BLPOP nosuch 0.05", "DEBUG SLEEP 0.3", "SAVE"];
        lines.iter().for_each(|line| blocked.send_line(line));
        std::thread::sleep(Duration::from_millis(150));
        let mut writers = [(); 3].map(|()| server.midi_client());
        writers[0].send_line("SET one 1");
        writers[1].send_line("MSET two 2 three 3");
        writers[2].send_line("EVAL redis.call('SET',KEYS[1],4) 1 four");
        lines.iter().for_each(|line| assert!(!blocked.read().is_error(), "{line}"));
        let replies = writers.each_mut().map(Client::read);
        assert!(!replies.iter().any(Value::is_error), "{mode:?}: {replies:?}");
        survives(&mut server, &format!("{mode:?}"));
    }
}

/// No filter sees the EXEC on newer hosts, and clients were paused when it came.
#[test]
fn a_transaction_that_pauses_clients_is_logged_whole() {
    for mode in Mode::tried() {
        let mut server = aof::builder(mode).start();
        let mut client = server.client();
        client.ok("MULTI");
        ["CLIENT PAUSE 60000 WRITE", "MIDI.SET x 1", "SET n 1"]
            .iter()
            .for_each(|line| assert_eq!(client.run(line).text(), "QUEUED"));
        server.client().ok("CLIENT PAUSE 150 ALL");
        let replies = client.run("EXEC");
        assert_eq!(replies.array(), [Value::ok(), Value::ok(), Value::ok()], "{mode:?}");
        let mut client = survives(&mut server, &format!("{mode:?}"));
        assert_eq!(client.run("GET n"), Value::bulk("1"));
    }
}

/// The keyspace is closed behind a save until something else runs.
#[test]
fn what_was_written_before_a_save_and_a_pause_is_logged() {
    for mode in Mode::tried() {
        let mut server = aof::builder(mode).start();
        let mut busy = server.client();
        let lines = ["DEBUG SLEEP 0.3", "SAVE", "CLIENT PAUSE 600000 WRITE"];
        busy.send(&lines.iter().flat_map(|line| encoded(&words(line))).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(100));
        let mut writer = server.midi_client();
        writer.send_line("SET x 1");
        lines.iter().for_each(|line| assert_eq!(busy.read(), Value::ok(), "{line}"));
        if mode != Mode::Safe {
            // Only the main thread writes in that mode, and it was busy.
            assert_eq!(writer.read(), Value::ok(), "{mode:?}");
        }
        survives(&mut server, &format!("{mode:?}"));
    }
}
