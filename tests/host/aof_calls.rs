//! The promise: what another module writes by RM_Call is logged as the host's own commands are:
//! with `!`, midi's writes and the host's in one transaction; without it not at all. Nobody sends
//! MIDI.JOURNAL through it.
//!
//! `tests/modules/calls` is the other module.

use super::aof::builder;
use crate::common::aof::{self, survives};
use crate::common::hold::with_calls;
use crate::common::witness::{Witness, beside};
use crate::common::{Builder, Client, Door, Mode, Server, Value, encoded, wait_until};

/// The words of a command that runs these lines by RM_Call.
pub fn calls(name: &str, flags: &str, lines: &[&str]) -> Vec<String> {
    let mut words = vec![name.to_owned(), flags.to_owned()];
    for line in lines {
        let line: Vec<&str> = line.split(' ').collect();
        words.push(line.len().to_string());
        words.extend(line.into_iter().map(str::to_owned));
    }
    words
}

/// A native write and midi's, in turn.
const LINES: [&str; 5] =
    ["SET n 1", "MIDI.SET a 1", "MIDI.APPEND a x", "INCR n", "MIDI.MSET b 1 c 2"];

/// Their form in the file.
const DONE: [&str; 8] =
    ["SET n 1", "MIDI.SET a 1", "MIDI.APPEND a x", "INCR n", "MULTI", "SET b 1", "SET c 2", "EXEC"];

/// The records that `work` adds to the file, without the choice of a database.
fn added(server: &Server, work: impl FnOnce()) -> Vec<String> {
    let before = aof::lines(server).len();
    work();
    let all = aof::lines(server);
    all[before..].iter().filter(|line| !line.starts_with("SELECT ")).cloned().collect()
}

fn run(client: &mut Client, flags: &str, lines: &[&str]) -> Vec<Value> {
    client.call(&calls("CALLS.RUN", flags, lines)).array()
}

#[test]
fn commands_called_together_are_one_transaction() {
    for mode in Mode::tried() {
        let mut server = with_calls(builder(mode)).start();
        let mut client = server.client();
        let done = added(&server, || {
            let replies = run(&mut client, "!", &LINES);
            assert!(!replies.iter().any(Value::is_error), "{replies:?}");
        });
        let inside: Vec<&str> = done.iter().map(String::as_str).collect();
        assert_eq!(inside.first(), Some(&"MULTI"), "{done:?}");
        assert_eq!(inside.last(), Some(&"EXEC"), "{done:?}");
        let inside: Vec<&str> = inside[1..inside.len() - 1].to_vec();
        assert_eq!(inside, DONE, "{mode:?}");
        survives(&mut server, "calls of another module");
    }
}

#[test]
fn calls_in_transactions_and_scripts() {
    let mut server = with_calls(builder(Mode::Adaptive)).start();
    let mut client = server.client();
    let script = b"return redis.call(unpack(ARGV))".to_vec();
    for _ in 0..3 {
        let call = calls("CALLS.RUN", "!", &LINES);
        client.ok("MULTI");
        client.run("MIDI.APPEND before x");
        client.call(&call);
        client.run("MIDI.APPEND behind x");
        assert_eq!(client.run("EXEC").array().len(), 3);
        let words = [vec![b"EVAL".to_vec(), script.clone(), b"0".to_vec()]];
        let words = words.into_iter().flatten().chain(call.into_iter().map(String::into_bytes));
        assert_eq!(client.call(&words.collect::<Vec<_>>()).array().len(), LINES.len());
    }
    survives(&mut server, "calls in units");
}

/// The tail of the ports comes in between: nothing is lost or doubled.
#[test]
fn calls_beside_writes_of_the_port() {
    for appendfsync in ["no", "always"] {
        let builder = builder(Mode::Adaptive).config(format!("appendfsync {appendfsync}"));
        let mut server = with_calls(builder).start();
        let mut witnesses: Vec<Witness> = (0..4)
            .map(|number| Witness::new([Door::Port, Door::Host][number % 2], number))
            .collect();
        beside(&mut server, &mut witnesses, 1, |server, answers| {
            let mut client = server.client();
            for _ in 0..100 {
                let lines = ["INCR n", "MIDI.INCR m", "MIDI.APPEND list x", "MIDI.RENAME m m2"];
                run(&mut client, "!", &lines);
                run(&mut client, "!", &["MIDI.RENAME m2 m", "INCR n"]);
                answers.wait_for(5);
            }
        });
        let mut client = survives(&mut server, "calls beside writes of the port");
        witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "after the crash"));
        assert_eq!(client.run("GET n"), Value::bulk("200"));
        assert_eq!(client.run("MIDI.GET m"), Value::bulk("100"));
        assert_eq!(client.integer("MIDI.STRLEN list"), 100);
    }
}

/// A call that is not replicated does not take the port's writes with it, not even one that may
/// block (`K`, from Redis 7.2 on).
#[test]
fn calls_that_are_not_replicated_lose_no_writes_of_the_port() {
    for mode in Mode::with_jobs() {
        let mut server = with_calls(builder(mode)).start();
        let knows_k = !run(&mut server.client(), "K", &["PING"])[0].is_error();
        let mut witnesses: Vec<Witness> =
            (0..4).map(|number| Witness::new(Door::Port, number)).collect();
        beside(&mut server, &mut witnesses, 1, |server, answers| {
            let mut client = server.client();
            for _ in 0..200 {
                for flags in ["-", "C", if knows_k { "K" } else { "-" }] {
                    run(&mut client, flags, &["MIDI.INCR m"]);
                }
                answers.wait_for(3);
            }
        });
        let mut client = aof::crash(&mut server);
        witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "after the crash"));
    }
}

/// As with the host's own commands: it is in the memory, and not in the file.
#[test]
fn calls_that_are_not_replicated_are_not_logged() {
    let mut server = with_calls(builder(Mode::Adaptive)).start();
    let mut client = server.client();
    let done = added(&server, || {
        let replies = run(&mut client, "-", &LINES);
        assert!(!replies.iter().any(Value::is_error), "{replies:?}");
    });
    assert_eq!(done, Vec::<String>::new());
    assert_eq!(client.run("MIDI.GET a"), Value::bulk("1x"));
    let mut client = aof::crash(&mut server);
    assert_eq!([client.integer("MIDI.DBSIZE"), client.integer("DBSIZE")], [0, 0]);
}

/// A text that would set a key.
fn journal() -> Vec<Vec<u8>> {
    let records: [&[&str]; 3] = [&["VERSION", "1"], &["SELECT", "0"], &["SET", "k", "v"]];
    let text: Vec<u8> = records.iter().map(|record| encoded(record)).collect::<Vec<_>>().concat();
    vec![b"MIDI.JOURNAL".to_vec(), text]
}

/// All ways in which a client of the host can send a command.
fn check_journal_is_refused(client: &mut Client, is_replica: bool) {
    let refused = "NOPERM this user has no permissions to run the 'midi.journal' command";
    let mut check = |prefix: &[&[u8]]| {
        let mut words: Vec<Vec<u8>> = prefix.iter().map(|word| word.to_vec()).collect();
        words.extend(journal());
        let reply = client.call(&words);
        let reply = if let Value::Array(mut list) = reply { list.remove(0) } else { reply };
        // The host itself refuses writes of a replica's clients.
        let is_refused =
            |text: &str| text.contains(refused) || is_replica && text.contains("READONLY");
        assert!(reply.is_error() && is_refused(&reply.text()), "{prefix:?}: {reply:?}");
    };
    check(&[]);
    for flags in [b"-".as_slice(), b"!", b"S!", b"C!", b"0!"] {
        check(&[b"CALLS.READ", flags, b"2"]);
    }
    let code = b"return redis.call(unpack(ARGV))".as_slice();
    check(&[
        b"EVAL",
        b"#!lua flags=no-writes\nreturn redis.pcall('CALLS.READ', '!', '2', unpack(ARGV))",
        b"0",
    ]);
    if !is_replica {
        for flags in [b"-".as_slice(), b"!", b"S!"] {
            check(&[b"CALLS.RUN", flags, b"2"]);
        }
        check(&[b"EVAL", code, b"0"]);
        check(&[b"EVAL", code, b"0", b"CALLS.RUN", b"!", b"2"]);
        check(&[b"FCALL", b"f", b"0"]);
        check(&[b"FCALL", b"f", b"0", b"CALLS.RUN", b"!", b"2"]);
    }
}

#[test]
fn nobody_sends_a_journal_through_others() {
    let server = with_calls(builder(Mode::Adaptive)).start();
    let mut client = server.client();
    let library = "#!lua name=l\nredis.register_function('f', function(_, args) \
                   return redis.call(unpack(args)) end)";
    client.call(&["FUNCTION", "LOAD", library]);
    let done = added(&server, || {
        check_journal_is_refused(&mut client, false);
        client.ok("MULTI");
        client.call(&journal());
        let mut words = calls("CALLS.RUN", "!", &[]);
        words.push("2".into());
        let words = words.into_iter().map(String::into_bytes).chain(journal());
        client.call(&words.collect::<Vec<_>>());
        let replies = client.run("EXEC").array();
        assert!(replies[0].is_error(), "{replies:?}");
        assert!(replies[1].clone().array()[0].is_error(), "{replies:?}");
    });
    assert_eq!(done, Vec::<String>::new());
    assert_eq!(client.integer("MIDI.DBSIZE"), 0);
}

/// Where MIDI.JOURNAL from the master is replayed, no other is.
#[test]
fn nobody_sends_a_journal_to_a_replica() {
    let master = Builder::plain().start();
    let replica = with_calls(builder(Mode::Adaptive)).start();
    let mut client = replica.client();
    client.ok(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the link is up", || client.info("replication")["master_link_status"] == "up");
    check_journal_is_refused(&mut client, true);
    assert_eq!(client.integer("MIDI.DBSIZE"), 0);
}
