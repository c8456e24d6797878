//! The promise: what belongs together is one transaction of the AOF, in its order: EXEC, scripts
//! and functions with the host's writes and midi's. Flushes, exchanged databases, long commands and
//! expiry are in it as what they did.

use super::aof::builder;
use crate::common::aof::{self, survives};
use crate::common::{Client, Door, Mode, Server, Value, wait_until, words};

/// A server with AOF on, in each mode.
fn in_each_mode(body: impl Fn(&mut Server)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        body(&mut builder(mode).start());
    }
}

/// The records that `work` adds to the file, without the choice of a database.
fn added(server: &Server, work: impl FnOnce()) -> Vec<String> {
    let before = aof::lines(server).len();
    work();
    let all = aof::lines(server);
    all[before..].iter().filter(|line| !line.starts_with("SELECT ")).cloned().collect()
}

/// The commands of each unit of these tests.
const DONE: [&str; 6] = ["MULTI", "SET n 1", "MIDI.SET a 1", "MIDI.APPEND a x", "SET n 2", "EXEC"];

const SCRIPT: &str = "redis.call('SET', 'n', '1') redis.call('MIDI.SET', 'a', '1') \
    redis.call('MIDI.GET', 'a') redis.call('MIDI.APPEND', 'a', 'x') \
    return redis.call('SET', 'n', '2')";

fn exec(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    client.ok("MULTI");
    for line in lines {
        assert_eq!(client.run(line), Value::Simple(b"QUEUED".to_vec()), "{line}");
    }
    client.run("EXEC").array()
}

#[test]
fn units_of_the_host_are_one_transaction() {
    in_each_mode(|server| {
        let mut client = server.client();
        let lines = ["SET n 1", "MIDI.SET a 1", "MIDI.GET a", "MIDI.APPEND a x", "SET n 2"];
        assert_eq!(added(server, || drop(exec(&mut client, &lines))), DONE, "EXEC");
        let script = added(server, || drop(client.call(&["EVAL", SCRIPT, "0"])));
        assert_eq!(script, DONE, "a script");
        let library =
            format!("#!lua name=l\nredis.register_function('f', function() {SCRIPT} end)");
        client.call(&["FUNCTION", "LOAD", &library]);
        assert_eq!(added(server, || drop(client.run("FCALL f 0"))), DONE, "a function");
        survives(server, "units");
    });
}

/// With writes of the ports before, in between and behind.
#[test]
fn units_among_writes_of_the_port() {
    in_each_mode(|server| {
        let (mut client, mut port) = (server.client(), server.midi_client());
        for number in 0..50 {
            port.send_line(&format!("APPEND a p{number}"));
            let appended = format!("MIDI.APPEND a h{number}");
            exec(&mut client, &[&appended, "INCR n", "MIDI.RENAME a b", "MIDI.RENAME b a"]);
            client.call(&["EVAL", "return redis.call('MIDI.APPEND', 'a', 's')", "0"]);
        }
        (0..50).for_each(|_| assert!(!port.read().is_error()));
        survives(server, "units among writes of the port");
    });
}

#[test]
fn a_transaction_of_the_port_is_one_of_the_log() {
    in_each_mode(|server| {
        let (mut client, mut port) = (server.client(), server.midi_client());
        let done = added(server, || {
            exec(&mut port, &["SET a 1", "GET a", "APPEND b x", "MSET c 1 d 2", "RENAME c e"]);
            client.ok("MIDI.SET end 1");
        });
        let text = done.join("; ");
        let parts = ["MULTI; SET a 1", "SET b x", "SET c 1", "SET d 2", "RENAME c e"];
        assert!(text.starts_with(&parts.join("; ")), "{text}");
        assert!(text.contains("RENAME c e; EXEC;"), "{text}");
        // These run on the main thread.
        exec(&mut port, &["SET x 1", "SELECT 1", "SET y 2", "FLUSHDB", "SET z 3", "SWAPDB 0 1"]);
        exec(&mut port, &["SET x 1", "FLUSHALL", "SET z 3", "APPEND z 4", "FLUSHDB", "SET v 5"]);
        let mut client = survives(server, "transactions of the port");
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
        client.ok("SELECT 1");
        assert_eq!(client.run("MIDI.GET v"), Value::bulk("5"));
        assert_eq!(client.integer("MIDI.DBSIZE"), 1);
    });
}

/// Through each door, with writes of the other one in the tail.
#[test]
fn flushes_and_exchanged_databases() {
    const CHANGES: [&str; 6] =
        ["FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "FLUSHDB ASYNC", "SWAPDB 1 0", "FLUSHALL SYNC"];
    in_each_mode(|server| {
        for line in CHANGES {
            for number in 0..3 {
                let mut port = server.midi_client();
                let mut client = server.client();
                for key in 0..30 {
                    port.send_line(&format!("SET p{key} {key}"));
                }
                port.send_line("SELECT 1");
                port.send_line("APPEND a 1");
                client.ok("MIDI.SET h 1");
                match number {
                    0 => client.ok(line),
                    1 => client.ok(&format!("MIDI.{line}")),
                    _ => port.send_line(line),
                }
                port.send_line("APPEND a 2");
                client.ok("MIDI.SET h2 1");
                client.ok("SET native 1");
                for _ in 0..if number == 2 { 34 } else { 33 } {
                    assert!(!port.read().is_error());
                }
            }
            survives(server, line);
        }
    });
}

#[test]
fn long_commands() {
    in_each_mode(|server| {
        for door in [Door::Host, Door::PortPrefixed] {
            let mut client = door.client(server);
            client.ok("MIDI.POPULATE 4000 p 20");
            client.ok("MIDI.POPULATE 4000 q 20");
            let del: Vec<String> = std::iter::once("MIDI.DEL".to_owned())
                .chain((0..3000).map(|number| format!("p:{number}")))
                .collect();
            assert_eq!(client.call(&del), Value::Integer(3000));
            let mut host = survives(server, "POPULATE, and DEL of many keys");

            let pairs: String = (0..1000).map(|number| format!(" n:{number} {number}")).collect();
            host.ok(&format!("MSET{pairs}"));
            host.ok("SET n:7 v PXAT 4102444800000");
            let mut client = door.client(server);
            let reply = client.run("MIDI.IMPORT n:* REPLACE");
            assert_eq!(reply, Value::integers(&[1000, 0, 0]), "{door:?}");
            let reply = client.run("MIDI.EXPORT q:* REPLACE");
            assert_eq!(reply, Value::integers(&[4000, 0, 0]), "{door:?}");
            survives(server, "IMPORT and EXPORT");
            server.client().ok("FLUSHALL");
        }
    });
}

/// Keys that expire are removed by a record, whoever finds them.
#[test]
fn expiry_is_a_record() {
    in_each_mode(|server| {
        let (mut client, mut port) = (server.client(), server.midi_client());
        let done = added(server, || {
            for number in 0..100 {
                client.ok(&format!("MIDI.SET h{number} v PX 30"));
                port.ok(&format!("SET p{number} v PX 30"));
            }
            wait_until("all have expired", || client.integer("MIDI.DBSIZE") == 0);
            client.ok("MIDI.SET end 1");
        });
        for number in 0..100 {
            for door in ["h", "p"] {
                let ends = [format!("DEL {door}{number}"), format!("MIDI.DEL {door}{number}")];
                let count = done.iter().filter(|line| ends.contains(line)).count();
                assert_eq!(count, 1, "{door}{number}: {done:?}");
            }
        }
        // A write that finds an expired key.
        for door in [Door::Host, Door::Port] {
            let mut client = door.client(server);
            for number in 0..20 {
                client.call(&door.named(&words(&format!("SET w{number} old PX 1"))));
                std::thread::sleep(std::time::Duration::from_millis(2));
                client.call(&door.named(&words(&format!("APPEND w{number} new"))));
            }
        }
        survives(server, "expiry");
    });
}
