//! The promise: where the host has rules on databases (Valkey 9.1), they hold for every command of
//! midi's, on both doors, however it arrives.

use crate::common::hold::with_calls;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value};

const REFUSED: &str = "NOPERM No permissions to access database";

/// A server where key `k` is in databases 0 and 1; `None` where there are no rules on databases.
fn start() -> Option<Ported> {
    let ported = Ported::start(with_calls(Mode::Adaptive.builder()));
    let mut admin = ported.host();
    let reply = admin.run("ACL SETUSER probe resetdbs");
    if reply.is_error() {
        // There is nothing to keep to; a host that learns the rule gets tested.
        assert!(reply.text().contains("Syntax error"), "{reply:?}");
        return None;
    }
    for db in [1, 0] {
        admin.ok(&format!("SELECT {db}"));
        admin.ok(&format!("MIDI.SET k {db}"));
    }
    Some(ported)
}

/// The two doors of one user.
fn doors(ported: &Ported, user: &str) -> [(&'static str, Client); 2] {
    [("host", ported.host_of(user)), ("port", ported.client_of(user))]
}

fn is_refused(reply: &Value) -> bool {
    reply.is_error() && reply.text().contains("No permissions to access database")
}

/// Commands that touch database 1 from database 0.
const ELSEWHERE: [&str; 9] = [
    "MIDI.FLUSHALL",
    "MIDI.FLUSHALL SYNC",
    "MIDI.SWAPDB 0 1",
    "MIDI.SWAPDB 1 0",
    "MIDI.COPY k j DB 1",
    "MIDI.MOVE k 1",
    "MIDI.KEYSPACEDIGEST 1",
    "MIDI.KEYSPACEDIGEST",
    "MIDI.COPY k k REPLACE DB 1",
];

/// The line alone, queued and from a script, a function and another module.
fn every_way(client: &mut Client, door: &str, line: &str) -> Vec<(&'static str, Value)> {
    let mut all = vec![("alone", client.run(line))];
    client.ok("MULTI");
    let queued = client.run(line);
    let done = client.run("EXEC");
    let in_multi = if queued.is_error() { queued } else { done.array().remove(0) };
    all.push(("in MULTI", in_multi));
    if door == "host" {
        let words: Vec<&str> = line.split(' ').collect();
        let script = "return redis.pcall(unpack(ARGV))";
        all.push(("in a script", client.call(&[&["EVAL", script, "0"], &words[..]].concat())));
        all.push(("in a function", client.call(&[&["FCALL", "run", "0"], &words[..]].concat())));
        let count = words.len().to_string();
        let replies = client.call(&[&["CALLS.RUN", "C", &count], &words[..]].concat()).array();
        all.push(("by a module", replies[0].clone()));
    }
    all
}

#[test]
fn commands_keep_to_the_databases_of_their_user() {
    let Some(ported) = start() else { return };
    let mut admin = ported.host();
    let function = "#!lua name=f\nredis.register_function('run', function(keys, args) return \
                    redis.pcall(unpack(args)) end)";
    assert_eq!(admin.call(&["FUNCTION", "LOAD", function]), Value::bulk("f"));
    admin.ok("ACL SETUSER some on >some ~* +@all resetdbs db=0,2");
    admin.ok("ACL SETUSER all on >all ~* +@all");
    // A selector counts by itself: no one set allows both databases.
    let parts =
        ["ACL", "SETUSER", "parts", "on", ">parts", "~*", "+@all", "db=0", "(~* +@all db=1)"];
    assert_eq!(admin.call(&parts), Value::ok());
    admin.run("SELECT 0");
    let digest = admin.run("MIDI.KEYSPACEDIGEST");
    for user in ["some", "parts"] {
        for (door, mut client) in doors(&ported, user) {
            for line in ELSEWHERE {
                // A job: the pool of clients that scripts run with has served another user.
                assert_eq!(admin.run("MIDI.KEYSPACEDIGEST"), digest);
                for (way, reply) in every_way(&mut client, door, line) {
                    assert!(is_refused(&reply), "{line} {way} of {user} at {door}: {reply:?}");
                    assert_eq!(admin.run("MIDI.KEYSPACEDIGEST"), digest, "{line} {way}");
                }
            }
            if user == "some" {
                for line in [
                    "MIDI.COPY k j DB 2",
                    "MIDI.SWAPDB 0 2",
                    "MIDI.SWAPDB 2 0",
                    "MIDI.COPY k k2",
                    "MIDI.COPY k k2 DB 0 REPLACE",
                    "MIDI.DEL k2",
                ] {
                    assert!(!client.run(line).is_error(), "{line} at {door}");
                }
                // Arguments that the command refuses are not about rights.
                for line in ["MIDI.COPY k j DB 99", "MIDI.MOVE k x", "MIDI.SWAPDB 0 99"] {
                    assert!(client.run(line).text().starts_with("ERR "), "{line} at {door}");
                }
                client.ok("SELECT 2");
                client.run("MIDI.DEL j");
            }
        }
    }
    assert_eq!(admin.run("MIDI.KEYSPACEDIGEST"), digest);
    for (door, mut client) in doors(&ported, "all") {
        for line in ELSEWHERE.iter().skip(2) {
            assert!(!client.run(line).is_error(), "{line} at {door}");
        }
    }
}

/// The rules that hold when a command comes deny it.
#[test]
fn rules_on_databases_hold_from_the_next_command_on() {
    let Some(ported) = start() else { return };
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u ~* +@all");
    let mut clients = doors(&ported, "u");
    for _ in 0..20 {
        for (rule, allowed) in
            [("db=0", false), ("db=0,1", true), ("resetdbs", false), ("alldbs", true)]
        {
            admin.ok(&format!("ACL SETUSER u {rule}"));
            for (door, client) in &mut clients {
                let reply = client.run("MIDI.SWAPDB 0 1");
                assert_eq!(!is_refused(&reply), allowed, "{rule} at {door}: {reply:?}");
            }
        }
    }
}

/// As on the host, a queued SELECT counts for what is queued behind it.
#[test]
fn a_transaction_is_judged_in_the_database_that_it_selects() {
    let Some(ported) = start() else { return };
    let mut admin = ported.host();
    admin.ok("ACL SETUSER here on >here ~* +@all db=0");
    admin.ok("ACL SETUSER there on >there ~* +@all db=1");
    let queued = Value::Simple(b"QUEUED".to_vec());
    for (door, mut client) in doors(&ported, "here") {
        client.ok("MULTI");
        assert_eq!(client.run("SELECT 1"), Value::error(REFUSED), "{door}");
        assert_eq!(client.run("MIDI.SET k lost"), queued, "{door}");
        assert!(client.run("EXEC").text().starts_with("EXECABORT"), "{door}");
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("0"), "{door}");
        assert_eq!(client.run("SELECT 1"), Value::error(REFUSED), "{door}");
        assert_eq!(client.run("SELECT 99"), Value::error("ERR DB index is out of range"));
    }
    for (door, mut client) in doors(&ported, "there") {
        assert!(is_refused(&client.run("MIDI.GET k")), "{door}");
        client.ok("MULTI");
        assert_eq!(client.run("SELECT 1"), queued, "{door}");
        assert_eq!(client.run("MIDI.GET k"), queued, "{door}");
        assert_eq!(client.run("EXEC").array(), [Value::ok(), Value::bulk("1")], "{door}");
        // DISCARD forgets what was queued.
        client.ok("SELECT 1");
        client.ok("MULTI");
        assert!(is_refused(&client.run("SELECT 0")), "{door}");
        client.ok("DISCARD");
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("1"), "{door}");
    }
}

/// Rules on databases do not concern commands that touch no data.
#[test]
fn commands_without_data_need_no_database() {
    let Some(ported) = start() else { return };
    ported.host().ok("ACL SETUSER there on >there ~* +@all db=1");
    for (door, mut client) in doors(&ported, "there") {
        for line in ["MIDI.JOBS", "MIDI.INFO", "MIDI.HELP", "PING"] {
            assert!(!client.run(line).is_error(), "{line} at {door}");
        }
        for line in ["MIDI.GET k", "MIDI.IMPORT *", "MIDI.EXPORT *", "MIDI.POPULATE 1", "WATCH k"] {
            assert!(is_refused(&client.run(line)), "{line} at {door}");
        }
    }
}
