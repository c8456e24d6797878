//! The promise: with MOVE, MIDI.IMPORT and MIDI.EXPORT leave each key in exactly one keyspace, with
//! its value and expiry. A key that cannot enter the other keyspace stays where it is. The log has
//! a move in one transaction.

use super::aof::builder;
use super::aof_calls::calls;
use super::copy::{WAYS, Way, counts, in_both_ways};
use super::copy_jobs::start;
use crate::common::aof::{self, survives};
use crate::common::hold::with_calls;
use crate::common::{Client, Mode, Server, Value, in_all_modes, text, wait_until};

/// A time long after this test.
const FAR: i64 = 4_102_444_800_000;

#[test]
fn every_value_moves_with_its_expiry() {
    in_both_ways(|client, Way { copy, from, to }| {
        let sizes = [0, 1, 5, 44, 45, 1023, 1024, 20_000, 3_000_000];
        for size in sizes {
            let (key, value) = (format!("k:{size}"), vec![b'7'; size]);
            client.call(&[format!("{from}SET").as_bytes(), key.as_bytes(), &value]);
        }
        client.ok(&format!("{from}SET lasting v PXAT {FAR}"));
        let all = sizes.len() as i64 + 1;
        assert_eq!(client.run(&format!("{copy} * MOVE")), counts(all, 0, 0));
        assert_eq!(client.integer(&format!("{from}DBSIZE")), 0);
        assert_eq!(client.integer(&format!("{to}DBSIZE")), all);
        for size in sizes {
            let value = client.run(&format!("{to}GET k:{size}"));
            assert!(value.bytes() == vec![b'7'; size], "{size} bytes");
        }
        assert_eq!(client.integer(&format!("{to}PEXPIRETIME lasting")), FAR);
        assert_eq!(client.run(&format!("{copy} * MOVE")), counts(0, 0, 0));
    });
}

#[test]
fn keys_that_are_not_copied_stay() {
    in_both_ways(|client, Way { copy, from, to }| {
        for key in ["a", "b", "c"] {
            client.ok(&format!("{from}SET {key} new"));
        }
        client.ok(&format!("{to}SET b old"));
        client.integer("RPUSH list 1");
        let lists = i64::from(*copy == "MIDI.IMPORT");
        assert_eq!(client.run(&format!("{copy} b move")), counts(0, 1, 0));
        assert_eq!(client.run(&format!("{from}GET b")), Value::bulk("new"));
        assert_eq!(client.run(&format!("{to}GET b")), Value::bulk("old"));
        assert_eq!(client.run(&format!("{copy} * MOVE COUNT 1")).array()[0], Value::Integer(1));
        assert_eq!(client.run(&format!("{from}EXISTS a b c")), Value::Integer(2));
        assert_eq!(client.run(&format!("{copy} * MOVE REPLACE")), counts(2, 0, lists));
        assert_eq!(
            client.run(&format!("{to}MGET a b c")),
            Value::Array(vec![Value::bulk("new"); 3])
        );
        assert_eq!(client.run(&format!("{from}EXISTS a b c")), Value::Integer(0));
        assert_eq!(client.run("TYPE list"), Value::Simple(b"list".to_vec()));
    });
}

/// The commands that `work` adds to the AOF, without the choice of a database.
fn added(server: &Server, work: impl FnOnce() -> Value) -> Vec<String> {
    let lines = |client: &mut Client| {
        aof::wait_until_written(client);
        aof::lines(server)
    };
    let mut client = server.client();
    let before = lines(&mut client).len();
    let reply = work();
    assert_eq!(reply, counts(1, 0, 0));
    let after = lines(&mut client).split_off(before);
    after.into_iter().filter(|line| !line.starts_with("SELECT ")).collect()
}

fn in_multi(client: &mut Client, line: &str) -> Value {
    client.ok("MULTI");
    client.run(line);
    client.run("EXEC").array().remove(0)
}

#[test]
fn a_move_is_one_transaction_of_the_log() {
    const IN: [&str; 4] = ["MULTI", "DEL k", "MIDI.SET k v", "EXEC"];
    const OUT: [&str; 4] = ["MULTI", "SET k v NX", "MIDI.DEL k", "EXEC"];
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        let mut server = builder(mode).start();
        let (mut client, mut port) = (server.client(), server.midi_client());
        client.ok("SET k v");
        for (line, done) in [("IMPORT k MOVE", IN), ("EXPORT k MOVE", OUT)] {
            let line = format!("MIDI.{line}");
            assert_eq!(added(&server, || client.run(&line)), done, "{line}");
        }
        for (line, done) in [("MIDI.IMPORT k MOVE", IN), ("MIDI.EXPORT k MOVE", OUT)] {
            assert_eq!(added(&server, || in_multi(&mut client, line)), done, "{line} in MULTI");
        }
        for (line, done) in [("IMPORT", IN), ("EXPORT", OUT)] {
            let script = format!("return redis.call('MIDI.{line}', 'k', 'MOVE')");
            let run = || client.call(&["EVAL", &script, "0"]);
            assert_eq!(added(&server, run), done, "{line} in a script");
        }
        for (line, done) in [("IMPORT k MOVE", IN), ("EXPORT k MOVE", OUT)] {
            assert_eq!(added(&server, || port.run(line)), done, "{line} on the port");
        }
        survives(&mut server, "moves");
    }
}

/// An EXEC's changes before and after it moves a key belong together, too.
#[test]
fn moves_in_transactions_of_the_port() {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        let mut server = builder(mode).start();
        let (mut client, mut port) = (server.client(), server.midi_client());
        port.ok("SET k v");
        for line in ["EXPORT k MOVE", "IMPORT k MOVE"] {
            aof::wait_until_written(&mut client);
            let before = aof::commands(&server).len();
            port.ok("MULTI");
            for line in ["SET before 1", line, "SET behind 1"] {
                port.run(line);
            }
            assert_eq!(port.run("EXEC").array()[1], counts(1, 0, 0));
            aof::wait_until_written(&mut client);
            let added = aof::commands(&server).split_off(before);
            let names: Vec<String> = added.iter().map(|words| text(&words[0])).collect();
            let of = |name| names.iter().filter(|&other| other == name).count();
            assert_eq!((of("MULTI"), of("EXEC")), (1, 1), "{names:?}");
            let first = names.iter().find(|&name| name != "SELECT");
            assert_eq!((first, names.last()), (Some(&"MULTI".into()), Some(&"EXEC".into())));
        }
        survives(&mut server, "moves in transactions");
    }
}

/// A pause holds a move up; nothing is half moved meanwhile.
#[test]
fn a_pause_holds_moves_up() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let (mut client, mut admin) = (server.client(), server.client());
        admin.ok("DEBUG POPULATE 200000");
        for Way { copy, to, .. } in &WAYS {
            client.send_line(&format!("{copy} * MOVE"));
            wait_until("it has begun", || admin.integer(&format!("{to}DBSIZE")) > 0);
            admin.ok("CLIENT PAUSE 60000 WRITE");
            let sizes =
                |admin: &mut Client| (admin.integer("DBSIZE"), admin.integer("MIDI.DBSIZE"));
            let before = sizes(&mut admin);
            assert_eq!(before.0 + before.1, 200_000);
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert_eq!(sizes(&mut admin), before, "{copy} goes on although writes are paused");
            admin.ok("CLIENT UNPAUSE");
            assert_eq!(client.read(), counts(200_000, 0, 0));
            assert_eq!(admin.integer(&format!("{to}DBSIZE")), 200_000);
        }
    }
}

#[test]
fn a_move_can_be_cancelled() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut admin = server.client();
        for Way { copy, to, .. } in &WAYS {
            let fill = if to.is_empty() { "MIDI.POPULATE" } else { "DEBUG POPULATE" };
            admin.ok(&format!("{fill} 300000"));
            let line = format!("{copy} * MOVE");
            let (mut client, _) = start(&server, &line);
            wait_until("some are moved", || admin.integer(&format!("{to}DBSIZE")) > 0);
            let job = admin.run("MIDI.JOBS").array().remove(0).map();
            admin.ok(&format!("MIDI.JOBS CANCEL {}", job["id"].integer()));
            assert!(client.read().is_error());
            let (native, midi) = (admin.integer("DBSIZE"), admin.integer("MIDI.DBSIZE"));
            assert_eq!(native + midi, 300_000, "{line}: {native} and {midi}");
            assert!(native > 0 && midi > 0, "{line}: {native} and {midi}");
            admin.ok("FLUSHALL");
        }
    }
}

/// A user needs the right to read and to write a key, as to copy it.
#[test]
fn rights_are_kept() {
    in_all_modes(|_, server| {
        let mut admin = server.client();
        admin.ok("ACL SETUSER reader on nopass +@all %R~k*");
        admin.ok("ACL SETUSER writer on nopass +@all %W~k*");
        for Way { copy, from, to } in &WAYS {
            admin.ok(&format!("{from}SET k v"));
            for user in ["reader", "writer"] {
                let mut client = server.client();
                client.ok(&format!("AUTH {user} x"));
                let reply = client.run(&format!("{copy} * MOVE"));
                assert!(reply.text().starts_with("NOPERM"), "{copy} by {user}: {reply:?}");
                assert_eq!(admin.run(&format!("{from}GET k")), Value::bulk("v"));
                assert!(admin.run(&format!("{to}GET k")).is_null());
            }
            admin.run(&format!("{from}DEL k"));
        }
    });
}

/// A key stays as it was where the host refuses to move it.
#[test]
fn a_refused_move_changes_nothing() {
    for (Way { copy, from, to }, renamed, how) in
        [(&WAYS[0], "DEL", "MSET"), (&WAYS[1], "SET", "SET")]
    {
        let mode = Mode::Adaptive;
        let server = builder(mode).config(format!("rename-command {renamed} \"\"")).start();
        let mut client = server.client();
        client.ok(&format!("{from}{how} k v"));
        for end in ["MOVE", "MOVE REPLACE"] {
            let reply = client.run(&format!("{copy} k {end}"));
            let refused = "ERR the host refused a write; its log has the reason";
            assert_eq!(reply, Value::error(refused), "{copy}");
            assert_eq!(client.run(&format!("{from}GET k")), Value::bulk("v"));
            assert!(client.run(&format!("{to}GET k")).is_null(), "{copy}");
        }
        assert!(server.log().contains("MIDI.IMPORT or MIDI.EXPORT stopped"));
    }
}

/// Another module decides whether the host logs its own part, so it cannot have both together.
#[test]
fn other_modules_cannot_move_while_writes_are_logged() {
    let mut server = with_calls(builder(Mode::Adaptive)).start();
    let mut client = server.client();
    client.ok("SET a 1");
    client.ok("MIDI.SET b 2");
    for flags in ["!", "-"] {
        let lines = ["MIDI.IMPORT a MOVE", "MIDI.EXPORT b MOVE"];
        let replies = client.call(&calls("CALLS.RUN", flags, &lines)).array();
        assert!(replies.iter().all(Value::is_error), "{replies:?}");
        assert_eq!(client.run("GET a"), Value::bulk("1"));
        assert_eq!(client.run("MIDI.GET b"), Value::bulk("2"));
    }
    survives(&mut server, "refused moves");
}

/// Clients that watch a key, or listen, learn of a move.
#[test]
fn a_move_is_noticed() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        let (mut client, mut listener) = (server.client(), server.client());
        client.ok("CONFIG SET notify-keyspace-events KEA");
        listener.send_line("PSUBSCRIBE __keyevent@0__:*");
        listener.read();
        for (copy, mut watching) in
            [("MIDI.IMPORT", server.client()), ("MIDI.EXPORT", server.midi_client())]
        {
            if copy == "MIDI.IMPORT" {
                client.ok("SET k v");
                listener.read();
            }
            watching.ok("WATCH k");
            assert_eq!(client.run(&format!("{copy} k MOVE")), counts(1, 0, 0));
            watching.ok("MULTI");
            watching.run("PING");
            assert!(watching.run("EXEC").is_null(), "{copy}: the watched key is gone");
            let mut events: Vec<String> =
                (0..2).map(|_| listener.read().array()[2].text()).collect();
            events.sort();
            assert_eq!(events, ["__keyevent@0__:del", "__keyevent@0__:set"], "{copy}");
        }
    }
}
