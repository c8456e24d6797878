//! The promise: a server that attaches as a replica gets midi's keys, however the host transfers
//! them; a transfer that fails leaves nothing half loaded, and is tried again.

use std::fs;

use crate::common::hosts::{fetched_hosts, host};
use crate::common::link::Link;
use crate::common::{Builder, Client, Server, Value, redis_server, skip, wait_until};

/// Becomes a replica of the server on this port.
pub fn attach(replica: &Server, port: u16) {
    replica.client().ok(&format!("REPLICAOF 127.0.0.1 {port}"));
}

/// Waits until the link to the master is up.
pub fn wait_for_link(replica: &Server) {
    let mut client = replica.client();
    wait_until("the link is up", || {
        client.info("replication").get("master_link_status").is_some_and(|status| status == "up")
    });
}

/// MIDI.KEYSPACEDIGEST of all databases.
pub fn digest(server: &Server) -> String {
    server.client().run("MIDI.KEYSPACEDIGEST").text()
}

/// Sets keys of several kinds in databases 0, 1 and 6.
pub fn fill(server: &Server) {
    let mut client = server.client();
    client.ok("MIDI.MSET a 1 b two empty '' c 3.5");
    client.ok("MIDI.SET lasting v EX 10000");
    client.integer("MIDI.APPEND edited abc");
    let large = vec![b'x'; 300_000];
    assert_eq!(client.call(&[b"MIDI.SET".as_slice(), b"large", &large]), Value::ok());
    client.ok("SET native 1");
    client.ok("SELECT 1");
    client.ok("MIDI.POPULATE 5000 key 100");
    client.ok("SELECT 6");
    client.ok("MIDI.SET six 6");
}

fn database(server: &Server, db: u32) -> Client {
    let mut client = server.client();
    client.ok(&format!("SELECT {db}"));
    client
}

/// A replica's ways to load what its master sends.
const LOADS: [&str; 3] = ["disabled", "on-empty-db", "swapdb"];

/// The replica has other threads, shards and databases, and keys of its own.
#[test]
fn every_full_sync_brings_the_keys() {
    let master = Builder::new().load("threads 2 shards 8").start();
    fill(&master);
    for diskless in ["yes", "no"] {
        master.client().ok(&format!("CONFIG SET repl-diskless-sync {diskless}"));
        for load in LOADS {
            println!("repl-diskless-sync {diskless}, repl-diskless-load {load}");
            let replica = Builder::new()
                .load("threads 1 shards 64")
                .config("databases 32")
                .config(format!("repl-diskless-load {load}"))
                .start();
            let mut client = replica.client();
            wait_until("the last one is gone", || {
                master.client().run("MIDI.SET a 1") == Value::ok()
            });
            client.ok("MIDI.MSET own 1 a other");
            database(&replica, 31).ok("MIDI.SET own 1");
            attach(&replica, master.port());
            wait_for_link(&replica);
            assert_eq!(digest(&replica), digest(&master));
            assert_eq!(client.run("MIDI.MGET own a").array(), [Value::NullBulk, Value::bulk("1")]);
            assert_eq!(database(&replica, 1).integer("MIDI.DBSIZE"), 5000);
            assert_eq!(database(&replica, 31).integer("MIDI.DBSIZE"), 0);
            assert_eq!(client.run("GET native"), Value::bulk("1"));
            // The host did as it was told: it skips diskless loading if a module is in its way.
            let log = replica.log();
            assert_eq!(log.contains("to parser"), load != "disabled", "{log}");
            assert!(!log.contains("Skipping diskless-load"), "{log}");
        }
    }
}

/// The section of a master without midi's keys is empty, or, on newer hosts, not there.
#[test]
fn an_empty_master_empties_its_replica() {
    let master = Builder::new().start();
    master.client().ok("SET native 1");
    for load in LOADS {
        let replica = Builder::new().config(format!("repl-diskless-load {load}")).start();
        replica.client().ok("MIDI.MSET a 1 b 2");
        attach(&replica, master.port());
        wait_for_link(&replica);
        assert_eq!(replica.client().integer("MIDI.DBSIZE"), 0, "{load}");
        assert_eq!(digest(&replica), digest(&master));
    }
}

/// A master whose RDB is sent as it is, and a link to it.
fn linked_master() -> (Server, Link) {
    let master = Builder::new()
        .config("repl-backlog-size 16384")
        .config("repl-diskless-sync yes")
        .config("rdbcompression no")
        .start();
    fill(&master);
    let link = Link::to(master.port());
    (master, link)
}

/// The middle of its section: so many bytes after the beginning.
const MIDDLE: u64 = 400_000;

/// Only a replica that has had a full sync of the same master serves its old data meanwhile.
#[test]
fn an_aborted_swap_leaves_the_old_keys() {
    let (master, link) = linked_master();
    let replica = Builder::new().config("repl-diskless-load swapdb").start();
    attach(&replica, link.port());
    wait_for_link(&replica);
    let before = digest(&replica);
    assert_eq!(before, digest(&master));
    link.close();
    let mut client = master.client();
    wait_until("the replica is gone", || client.run("MIDI.SET a newer") == Value::ok());
    // More than the backlog holds: no partial resync.
    for _ in 0..10 {
        let value = vec![b'v'; 10_000];
        assert_eq!(client.call(&[b"SET".as_slice(), b"long", &value]), Value::ok());
    }
    link.break_after(MIDDLE);
    link.open();
    wait_until("transfers broke", || link.broken() >= 2);
    let mut client = replica.client();
    assert_eq!(client.run("MIDI.GET a"), Value::bulk("1"));
    assert_eq!(client.run("GET native"), Value::bulk("1"));
    assert_eq!(digest(&replica), before);
    link.break_after(u64::MAX);
    wait_for_link(&replica);
    assert_eq!(client.run("MIDI.GET a"), Value::bulk("newer"));
    assert_eq!(digest(&replica), digest(&master));
    let log = replica.log();
    assert!(log.contains("The keys are not loaded: "), "{log}");
    assert!(!log.contains("midi has no keys"), "{log}");
}

/// The host takes a server that has only midi's keys for empty, and gives up what it has before the
/// new data is there. The log says that these keys go, and how many.
#[test]
fn a_broken_transfer_costs_keys_with_a_word_in_the_log() {
    let (master, link) = linked_master();
    let replica = Builder::new().config("repl-diskless-load on-empty-db").start();
    replica.client().ok("MIDI.MSET own 1 a other");
    link.break_after(MIDDLE);
    attach(&replica, link.port());
    wait_until("transfers broke", || link.broken() >= 2);
    wait_until("the log says so", || replica.log().contains("midi has no keys until the next"));
    let log = replica.log();
    assert!(log.contains("A full sync takes the place of midi's 2 keys"), "{log}");
    let reply = replica.client().run("MIDI.MGET own a");
    let nothing = Value::Array(vec![Value::NullBulk; 2]);
    assert!(reply == nothing || reply.text().starts_with("LOADING"), "{reply:?}");
    link.break_after(u64::MAX);
    wait_for_link(&replica);
    assert_eq!(digest(&replica), digest(&master));
}

/// Where the data is loaded from a file, the old is there until the file is.
#[test]
fn a_broken_transfer_to_disk_costs_no_keys() {
    let (master, link) = linked_master();
    let replica = Builder::new().config("repl-diskless-load disabled").start();
    replica.client().ok("MIDI.MSET own 1 a other");
    let before = digest(&replica);
    link.break_after(MIDDLE);
    attach(&replica, link.port());
    wait_until("transfers broke", || link.broken() >= 2);
    assert_eq!(digest(&replica), before);
    assert!(!replica.log().contains("takes the place"));
    link.break_after(u64::MAX);
    wait_for_link(&replica);
    assert_eq!(digest(&replica), digest(&master));
}

/// How an RDB names the section and this version of it: nine letters of six bits, and ten bits for
/// the version.
fn section_id(version: u64) -> [u8; 8] {
    let letters = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['-', '_']);
    let letters: String = letters.collect();
    let number = |letter| letters.find(letter).expect("a letter of a type's name") as u64;
    let name = "midi-keys".chars().fold(0, |id, letter| id << 6 | number(letter));
    (name << 10 | version).to_be_bytes()
}

/// Texts of a master that are refused, and the words of the log: what it sends, what comes in its
/// place, the log.
fn bad_sections() -> [(Vec<u8>, Vec<u8>, &'static str); 2] {
    [
        (section_id(1).to_vec(), section_id(2).to_vec(), "not loaded: written by a newer midi"),
        (b"spoil-me".to_vec(), b"spoil-ME".to_vec(), "(entries): the checksum differs"),
    ]
}

#[test]
fn a_refused_section_is_not_served_and_tried_again() {
    let (master, link) = linked_master();
    for (before, after, words) in bad_sections() {
        for load in ["on-empty-db", "swapdb"] {
            println!("{words}: {load}");
            let replica = Builder::new().config(format!("repl-diskless-load {load}")).start();
            let mut client = master.client();
            wait_until("the last one is gone", || {
                client.run("MIDI.SET spoiled spoil-me") == Value::ok()
            });
            replica.client().ok("MIDI.SET own 1");
            link.falsify(&before, &after);
            attach(&replica, link.port());
            let mut client = replica.client();
            let own = Value::Array(vec![Value::bulk("1"), Value::NullBulk, Value::NullBulk]);
            let nothing = Value::Array(vec![Value::NullBulk; 3]);
            wait_until("two tries", || {
                let reply = client.run("MIDI.MGET own a spoiled");
                let is_loading =
                    matches!(&reply, Value::Error(text) if text.starts_with(b"LOADING"));
                assert!(is_loading || reply == own || reply == nothing, "{reply:?}");
                assert!(load == "on-empty-db" || reply != nothing, "swapdb keeps the old keys");
                replica.log().matches(words).count() >= 2
            });
            link.be_honest();
            wait_for_link(&replica);
            assert_eq!(digest(&replica), digest(&master));
        }
    }
}

/// A host that loads a file and cannot ends, with the file in its place: so it is in stock.
#[test]
fn a_refused_section_on_disk_ends_the_replica() {
    let (master, link) = linked_master();
    for (before, after, words) in bad_sections() {
        let mut replica = Builder::new().config("repl-diskless-load disabled").start();
        let mut client = master.client();
        wait_until("the last one is gone", || {
            client.run("MIDI.SET spoiled spoil-me") == Value::ok()
        });
        link.falsify(&before, &after);
        attach(&replica, link.port());
        replica.wait_for_exit();
        let log = replica.log();
        assert!(log.contains(words), "{log}");
    }
}

/// The same as for the host's own databases, except that it ends then in all cases.
#[test]
fn a_section_with_more_databases_than_here_is_refused() {
    const WORDS: &str = "the section needs 7 databases, and there are 6: raise `databases`";
    let (master, _) = linked_master();
    let replica = Builder::new().config("databases 6").config("repl-diskless-load swapdb").start();
    replica.client().ok("MIDI.SET own 1");
    attach(&replica, master.port());
    wait_until("two tries", || replica.log().matches(WORDS).count() >= 2);
    let mut client = replica.client();
    client.ok("REPLICAOF NO ONE");
    assert_eq!(client.run("MIDI.MGET own a").array(), [Value::bulk("1"), Value::NullBulk]);
    let mut from_disk = Builder::new().config("databases 6").start();
    from_disk.client().ok("CONFIG SET repl-diskless-load disabled");
    attach(&from_disk, master.port());
    from_disk.wait_for_exit();
    assert!(from_disk.log().contains(WORDS), "{}", from_disk.log());
    // Databases that are not needed may be missing.
    let smaller = Builder::new().config("databases 7").start();
    attach(&smaller, master.port());
    wait_for_link(&smaller);
    assert_eq!(digest(&smaller), digest(&master));
}

#[test]
fn a_replica_of_a_replica_has_the_keys_and_follows() {
    let master = Builder::new().start();
    fill(&master);
    let replicas = [Builder::new().load("shards 4").start(), Builder::new().start()];
    attach(&replicas[0], master.port());
    wait_for_link(&replicas[0]);
    attach(&replicas[1], replicas[0].port());
    wait_for_link(&replicas[1]);
    let sizes = |server: &Server| [0, 1, 6].map(|db| database(server, db).integer("MIDI.DBSIZE"));
    assert_eq!(sizes(&master), [7, 5000, 1]);
    for (line, after) in
        [("SWAPDB 0 1", [5000, 7, 1]), ("FLUSHDB", [0, 7, 1]), ("FLUSHALL", [0, 0, 0])]
    {
        for replica in &replicas {
            assert_eq!(digest(replica), digest(&master), "before {line}");
        }
        master.client().ok(line);
        assert_eq!(sizes(&master), after, "{line}");
        for replica in &replicas {
            wait_until("it follows", || sizes(replica) == after);
        }
    }
}

/// The replica's replica is not asked again when the replica gets other data: it gets them, too.
#[test]
fn a_full_sync_goes_down_the_chain() {
    let [first, second] = [(); 2].map(|()| Builder::new().start());
    fill(&first);
    second.client().ok("MIDI.SET of second");
    let replicas = [(); 2].map(|()| Builder::new().start());
    attach(&replicas[0], first.port());
    wait_for_link(&replicas[0]);
    attach(&replicas[1], replicas[0].port());
    wait_for_link(&replicas[1]);
    attach(&replicas[0], second.port());
    for replica in &replicas {
        wait_until("it has the other data", || {
            replica.client().run("MIDI.GET of") == Value::bulk("second")
        });
        assert_eq!(digest(replica), digest(&second));
    }
}

#[test]
fn after_a_failover_the_old_master_gets_the_new_ones_keys() {
    let [old, new] = [(); 2].map(|()| Builder::new().start());
    fill(&old);
    attach(&new, old.port());
    wait_for_link(&new);
    new.client().ok("REPLICAOF NO ONE");
    new.client().ok("MIDI.SET a new");
    let mut client = old.client();
    wait_until("the replica is gone", || client.run("MIDI.SET a old") == Value::ok());
    new.client().ok("DEBUG CHANGE-REPL-ID");
    attach(&old, new.port());
    wait_for_link(&old);
    assert_eq!(client.run("MIDI.GET a"), Value::bulk("new"));
    assert_eq!(digest(&old), digest(&new));
}

/// Hosts that read each other's RDB, by the versions that the hosts give them: a section travels
/// with it.
const READERS: [(&str, &[&str]); 5] = [
    ("redis-7.0", &["redis-8.0", "redis-8.6", "valkey-8.1", "valkey-9.1"]),
    ("valkey-8.1", &["redis-8.0", "redis-8.6", "valkey-9.1"]),
    ("redis-8.0", &["redis-8.6"]),
    ("redis-8.6", &[]),
    ("valkey-9.1", &[]),
];

/// On hosts that the tests on all hosts have fetched.
#[test]
fn a_file_of_one_host_loads_on_others() {
    if host().is_newer() {
        return skip("one run shows it for all hosts: that on Redis 7.0");
    }
    let hosts = fetched_hosts();
    let program = |name: &str| match name {
        "redis-7.0" => Some(redis_server()),
        _ => hosts.iter().find(|(known, _)| known == name).map(|(_, program)| program.clone()),
    };
    for (name, readers) in READERS {
        let Some(writer) = program(name) else {
            skip(&format!("{name} has not been fetched; make test-hosts does"));
            continue;
        };
        let writer = Builder::new().binary(writer).start();
        fill(&writer);
        writer.client().ok("SAVE");
        for reader in readers.iter().chain([&name]) {
            let Some(program) = program(reader) else { continue };
            println!("{name} to {reader}");
            let mut server = Builder::new().binary(&program).start();
            fs::copy(writer.dir().join("dump.rdb"), server.dir().join("dump.rdb")).expect("a copy");
            server.restart(&program);
            assert_eq!(digest(&server), digest(&writer), "{name} to {reader}");
        }
    }
}
