//! The promise: when a server turns on its AOF, gets a replica, becomes one, or reloads its data
//! during midi's work, midi goes on, or ends that work with an error that gives the reason. The
//! server continues.

use crate::common::{
    Builder, Client, Mode, Random, Server, Value, beside, in_all_modes, redis_server, wait_until,
};

const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// Makes the server a replica, of nobody, whose clients may write to its own keys.
fn become_replica(client: &mut Client) {
    client.ok("CONFIG SET replica-read-only no");
    client.ok("REPLICAOF 127.0.0.1 1");
}

/// All commands that change midi's data.
const WRITES: [&str; 12] = [
    "MIDI.SET k v",
    "MIDI.SET k v XX GET",
    "MIDI.MSET k v l w",
    "MIDI.DEL k",
    "MIDI.UNLINK k l",
    "MIDI.EXPIRE k 100",
    "MIDI.PEXPIRE k 100000",
    "MIDI.PERSIST k",
    "MIDI.FLUSHDB",
    "MIDI.FLUSHALL SYNC",
    "MIDI.POPULATE 10",
    "MIDI.IMPORT *",
];

/// In a transaction and in scripts the text is the same.
#[test]
fn every_write_of_a_unit_is_refused() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET k value l 2");
        become_replica(&mut client);
        client.ok("MULTI");
        for line in WRITES {
            assert_eq!(client.run(line), Value::Simple(b"QUEUED".to_vec()), "{line}");
        }
        assert_eq!(client.run("EXEC").array(), vec![Value::error(READ_ONLY); WRITES.len()]);
        for line in WRITES {
            let mut call = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
            call.extend(line.split(' '));
            assert_eq!(client.call(&call), Value::error(READ_ONLY), "{line} in a script");
        }
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("value"));
        client.ok("REPLICAOF NO ONE");
    });
}

#[test]
fn the_host_writes_on_with_aof() {
    let mut server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("MIDI.MSET a 1 b 2 c 3");
    client.ok("CONFIG SET appendonly yes");
    client.ok("CONFIG REWRITE");
    wait_until("the AOF is written", || {
        client.info_number("persistence", "aof_rewrite_in_progress") == 0
    });
    client.ok("SET native 1");
    // Writes to the host's keyspace are logged like the host's own.
    assert_eq!(client.run("MIDI.EXPORT *"), Value::integers(&[3, 0, 0]));
    server.restart(redis_server());
    let mut client = server.client();
    let values = ["1", "2", "3", "1"].map(Value::bulk).to_vec();
    assert_eq!(client.run("MGET a b c native"), Value::Array(values));
    assert_eq!(client.integer("MIDI.DBSIZE"), 3, "they are in the AOF's base");
    client.ok("MIDI.SET k v");
}

/// Jobs that write go on, and what they write from then on is in the AOF.
#[test]
fn jobs_go_on_when_aof_comes() {
    for (line, keys) in [("MIDI.POPULATE 1000000", 1_000_000), ("MIDI.IMPORT *", 200_000)] {
        let mut server = Mode::Adaptive.server();
        let mut client = server.client();
        client.ok("DEBUG POPULATE 200000");
        let mut busy = start(&server, line);
        client.ok("CONFIG SET appendonly yes");
        client.ok("CONFIG REWRITE");
        assert!(!busy.read().is_error(), "{line}");
        wait_until("the AOF is written", || {
            let info = client.info("persistence");
            ["aof_rewrite_in_progress", "aof_rewrite_scheduled", "aof_buffer_length"]
                .iter()
                .all(|field| info[*field] == "0")
        });
        assert_eq!(client.integer("MIDI.DBSIZE"), keys);
        let digest = client.run("MIDI.KEYSPACEDIGEST");
        server.crash();
        server.restart(redis_server());
        assert_eq!(server.client().run("MIDI.KEYSPACEDIGEST"), digest, "{line}");
    }
}

#[test]
fn the_hosts_flushall_acts_on_both_with_aof() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        client.ok("SET native 1");
        client.ok("CONFIG SET appendonly yes");
        client.ok("FLUSHALL");
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
        assert_eq!(client.integer("DBSIZE"), 0);
        // A server that is writing its first AOF refuses to shut down.
        client.ok("CONFIG SET appendonly no");
    });
}

const MANY: i64 = 30_000_000;

/// Starts `line` in database 0 and waits until it runs.
fn start(server: &Server, line: &str) -> Client {
    let mut client = server.client();
    client.send_line(line);
    let mut watcher = server.client();
    wait_until("it runs", || !watcher.run("MIDI.JOBS").array().is_empty());
    client
}

/// Whether this is the reply to a command that a new role has ended.
fn is_refusal(reply: &Value) -> bool {
    let starts = |word| reply.is_error() && reply.text().starts_with(word);
    starts("READONLY ") || starts("UNBLOCKED ")
}

/// A job that is refused in the middle ends, and no part of it continues.
#[test]
fn a_refused_populate_does_not_go_on() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut busy = start(&server, &format!("MIDI.POPULATE {MANY}"));
        let mut client = server.client();
        become_replica(&mut client);
        assert!(is_refusal(&busy.read()));
        let left = client.integer("MIDI.DBSIZE");
        client.ok("REPLICAOF NO ONE");
        wait_until("a write works", || client.run("MIDI.SET k v") == Value::ok());
        server.wait_until_idle();
        assert_eq!(client.integer("MIDI.DBSIZE"), left + 1);
    }
}

#[test]
fn a_refused_import_does_not_go_on() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut client = server.client();
        client.ok("DEBUG POPULATE 500000");
        let mut busy = start(&server, "MIDI.IMPORT *");
        become_replica(&mut client);
        assert!(is_refusal(&busy.read()));
        assert!(client.integer("MIDI.DBSIZE") < 500_000);
    }
}

#[test]
fn a_replica_that_comes_gets_what_a_running_populate_writes() {
    const KEYS: i64 = 300_000;
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let replica = mode.server();
        let mut busy = start(&server, &format!("MIDI.POPULATE {KEYS}"));
        replica.client().ok(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
        assert_eq!(busy.read(), Value::ok());
        let (mut of_master, mut of_replica) = (server.client(), replica.client());
        wait_until("it follows", || of_replica.integer("MIDI.DBSIZE") == KEYS);
        let digest = |client: &mut Client| client.run("MIDI.KEYSPACEDIGEST").text();
        assert_eq!(digest(&mut of_replica), digest(&mut of_master));
    }
}

/// Keys that EXPORT writes, alone or in a unit, reach a replica's own keyspace.
#[test]
fn export_is_replicated() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 3000");
        client.ok("MIDI.SET far v PXAT 4102444800000");
        client.ok("SELECT 2");
        client.ok("MIDI.SET two 2");
        let replica =
            mode.builder().config(format!("replicaof 127.0.0.1 {}", server.port())).start();
        wait_until("it is attached", || client.info_number("replication", "connected_slaves") == 1);
        client.ok("MULTI");
        client.run("SET before 1");
        client.run("MIDI.EXPORT *");
        client.run("SET after 1");
        assert_eq!(client.run("EXEC").array()[1], Value::integers(&[1, 0, 0]));
        client.ok("SELECT 0");
        assert_eq!(client.run("MIDI.EXPORT *"), Value::integers(&[3001, 0, 0]));
        let mut copy = replica.client();
        wait_until("all arrived", || copy.integer("DBSIZE") == 3001);
        assert_eq!(copy.run("GET key:2999"), Value::bulk("value:2999"));
        assert_eq!(copy.integer("PEXPIRETIME far"), 4_102_444_800_000);
        copy.ok("SELECT 2");
        let values = ["1", "2", "1"].map(Value::bulk).to_vec();
        assert_eq!(copy.run("MGET before two after"), Value::Array(values));
    });
}

/// A server that becomes a replica during midi's work.
#[test]
fn work_ends_well_when_the_role_changes() {
    for mode in Mode::with_jobs() {
        for line in ["MIDI.POPULATE 3000000", "MIDI.KEYS *", "MIDI.EXPORT *", "MIDI.IMPORT *"] {
            let primary = Builder::plain().start();
            primary.client().ok("SET native 1");
            let server = mode.server();
            let mut client = server.client();
            if !line.contains("POPULATE") {
                client.ok("MIDI.POPULATE 200000 p");
                client.ok("DEBUG POPULATE 200000 n");
            }
            let mut busy = server.client();
            busy.send_line(line);
            client.ok(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
            wait_until("the data is there", || client.run("GET native") == Value::bulk("1"));
            assert!(client.run("MIDI.SET k v").text().starts_with("READONLY"));
            busy.read();
            server.wait_until_idle();
            assert_eq!(
                client.integer("DBSIZE"),
                1,
                "a replica must not differ from its primary: {line}"
            );
            client.ok("REPLICAOF NO ONE");
            wait_until("a write works", || client.run("MIDI.SET k v") == Value::ok());
            assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
        }
    }
}

/// Readers meanwhile see a key with its value, or not at all.
#[test]
fn debug_reload_harms_nobody() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for round in 0..3 {
            client.ok("SET native 1");
            client.ok("MIDI.POPULATE 50000");
            let busy = |client: &mut Client, _: &mut Random| {
                let reply = client.run("MIDI.GET key:7");
                assert!(reply.is_null() || reply == Value::bulk("value:7"), "{reply:?}");
                client.run("MIDI.KEYS key:1*").array();
            };
            beside(server, 2, busy, || client.ok("DEBUG RELOAD"));
            assert_eq!(client.run("GET native"), Value::bulk("1"));
            assert_eq!(client.integer("MIDI.DBSIZE"), 50_000 + i64::from(round > 0));
            assert_eq!(
                client.integer("MIDI.DBSIZE"),
                client.run("MIDI.KEYS *").array().len() as i64
            );
            client.ok(&format!("MIDI.SET k {round}"));
            assert_eq!(client.run("MIDI.GET k"), Value::bulk(round.to_string()));
        }
    });
}
