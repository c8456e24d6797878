//! The promise: a replica that serves reads shows what belongs together at once; and whatever
//! commands its master ran, it ends with the same. It serves no state that it cannot follow.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::link::Link;
use crate::common::replicas::{builder, follow, full_syncs, must_become_equal};
use crate::common::{
    Client, Door, Mode, Random, Server, Value, at_once, beside, redis_server, wait_until, words,
};

/// A value of a group: a number, again and again.
fn value(number: u64, bytes: usize) -> String {
    format!("{number:09}").repeat(bytes / 9 + 1)
}

/// MSET and EXEC of keys on several shards, through both doors; also of more than the host's log
/// gets in one text.
#[test]
fn groups_are_seen_whole() {
    const KEYS: usize = 16;
    for bytes in [9, 90_000] {
        let master = builder(Mode::Adaptive).start();
        let replica = builder(Mode::Adaptive).start();
        follow(&replica, master.port());
        let seen = AtomicU64::new(0);
        let keys = |group: usize| (0..KEYS).map(move |key| format!("g:{group}:{key}"));
        let read = |door: Door, group: usize, client: &mut Client| {
            let commands: Vec<_> = [words("MULTI")]
                .into_iter()
                .chain(keys(group).map(|key| door.named(&["GETRANGE", &key, "0", "8"])))
                .chain([words("EXEC")])
                .collect();
            let values = client.pipeline(&commands).pop().expect("EXEC").array();
            assert!(values.iter().all(|value| *value == values[0]), "{door:?}: {values:?}");
            seen.fetch_add(1, Ordering::Relaxed);
        };
        let noise = |client: &mut Client, random: &mut Random| {
            let _ = client;
            let door = [Door::Host, Door::Port][random.below(2)];
            let mut client = door.client(&replica);
            (0..20).for_each(|_| read(door, random.below(4), &mut client));
        };
        beside(&replica, 2, noise, || {
            let rounds = if bytes > 9 { 12 } else { 150 };
            at_once(4, |group| {
                let door = [Door::Host, Door::Port][group % 2];
                let mut client = door.client(&master);
                for number in 0..rounds {
                    let value = value(number, bytes);
                    let pairs: Vec<String> =
                        keys(group).flat_map(|key| [key, value.clone()]).collect();
                    if group < 2 {
                        let command: Vec<String> =
                            ["MSET".to_owned()].into_iter().chain(pairs).collect();
                        assert_eq!(client.call(&door.named(&command)), Value::ok());
                        continue;
                    }
                    let sets = pairs.chunks(2).map(|pair| door.named(&["SET", &pair[0], &pair[1]]));
                    let commands: Vec<_> =
                        [words("MULTI")].into_iter().chain(sets).chain([words("EXEC")]).collect();
                    assert!(!client.pipeline(&commands).pop().expect("EXEC").is_error());
                }
            });
            let last = seen.load(Ordering::Relaxed);
            wait_until("all is read again", || seen.load(Ordering::Relaxed) > last + 100);
        });
        must_become_equal(&[&master, &replica], "groups");
    }
}

/// Commands whose effect depends on what is there, on the time, or on both keyspaces.
const LINES: [&str; 36] = [
    "SET K 5",
    "SET K x NX",
    "SET K y XX GET",
    "SET K 1 PX 1",
    "SET K 2 PX 2",
    "SET K z KEEPTTL",
    "SETEX K 1 v",
    "GETDEL K",
    "GETEX K PX 3",
    "GETSET K 9",
    "INCR K",
    "INCRBYFLOAT K 1.5",
    "APPEND K 7",
    "SETRANGE K 5 abc",
    "SETBIT K 77 1",
    "BITFIELD K INCRBY u8 9 1",
    "BITOP XOR K K K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K DB 1 REPLACE",
    "MOVE K 1",
    "MSETNX K 1 K 2",
    "PEXPIRE K 1",
    "PEXPIRE K 60000 GT",
    "PERSIST K",
    "EXPIREAT K 1",
    "DEL K K",
    "UNLINK K",
    "SELECT 0",
    "SELECT 1",
    "SWAPDB 0 1",
    "!SET K 3",
    "!SWAPDB 0 1",
    "!MIDI.IMPORT k1*",
    "!MIDI.EXPORT k2*",
    "!EVAL \"redis.call('MIDI.SET', 'k3', '1') redis.call('SET', 'k3', '2') \
     return redis.call('MIDI.INCR', 'k3')\" 0",
];

/// Commands that are drawn seldom: they leave nothing to work on.
const FLUSHES: [&str; 3] = ["FLUSHDB", "FLUSHALL", "!FLUSHALL"];

fn draw(door: Door, random: &mut Random) -> Vec<Vec<u8>> {
    let line = if random.below(400) == 0 { random.pick(&FLUSHES) } else { random.pick(&LINES) };
    let (native, line) = line.strip_prefix('!').map_or((false, line), |line| (true, line));
    let mut command = words(line);
    for word in &mut command {
        if word == b"K" {
            *word = format!("k{}", random.below(40)).into_bytes();
        }
    }
    match native {
        true if door == Door::Host => command,
        true => words("PING"),
        false if line.starts_with("SELECT") => command,
        false => door.named(&command),
    }
}

#[test]
fn a_replica_equals_its_master_whatever_ran() {
    let master = builder(Mode::Adaptive).start();
    let other_workers = builder(Mode::Adaptive).load("threads 1").start();
    let replicas = [other_workers, builder(Mode::Pool).start(), builder(Mode::Safe).start()];
    for replica in &replicas {
        follow(replica, master.port());
    }
    for round in 0..4 {
        at_once(4, |number| {
            let door = [Door::Host, Door::Port][number % 2];
            let mut client = door.client(&master);
            let mut random = Random::new(round * 4 + number as u64);
            for _ in 0..40 {
                let mut commands: Vec<_> = (0..16).map(|_| draw(door, &mut random)).collect();
                if random.below(8) == 0 {
                    commands.insert(0, words("MULTI"));
                    commands.push(words("EXEC"));
                }
                client.pipeline(&commands);
            }
        });
        let all: Vec<&Server> = [&master].into_iter().chain(&replicas).collect();
        must_become_equal(&all, "after a round");
    }
    assert_eq!(full_syncs(&[&master]), 3);
}

const MASTERDOWN: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set \
                          to 'no'.";

/// It says so once, and answers no reads of midi's keys until a full sync; not after a partial one,
/// nor after a restart. (`replica_apart` has what becomes of its link.)
#[test]
fn a_newer_masters_records_are_not_skipped() {
    let master = builder(Mode::Adaptive).start();
    let mut replica = builder(Mode::Adaptive).start();
    let sub_replica = builder(Mode::Adaptive).start();
    let link = Link::to(master.port());
    follow(&replica, link.port());
    follow(&sub_replica, replica.port());
    let mut port = master.midi_client();
    port.ok("SET a 1");
    must_become_equal(&[&master, &replica, &sub_replica], "before");
    link.falsify(b"VERSION\r\n$1\r\n1", b"VERSION\r\n$1\r\n9");
    port.ok("SET a newer");
    let refuses = |server: &Server| {
        let down = Value::error(MASTERDOWN);
        server.client().run("MIDI.GET a") == down && server.midi_client().run("GET a") == down
    };
    for server in [&replica, &sub_replica] {
        wait_until("it refuses", || refuses(server));
        let log = server.log();
        assert_eq!(log.matches("does not follow its master any more").count(), 1, "{log}");
        assert!(log.contains("version '9', written by a newer midi"), "{log}");
    }
    link.be_honest();
    port.ok("SET a after");
    // A server that is told of another master tries once more.
    let try_again = |replica: &Server, link: &Link| {
        replica.client().ok(&format!("REPLICAOF 127.0.0.1 {}", link.port()));
    };
    let partial_resyncs = || master.client().info_number("stats", "sync_partial_ok");
    let (other, third) = (Link::to(master.port()), Link::to(master.port()));
    let before = partial_resyncs();
    try_again(&replica, &other);
    wait_until("it has resynced partially", || partial_resyncs() > before);
    assert!(refuses(&replica), "a partial resync mends nothing");
    replica.client().ok("CONFIG REWRITE");
    let mut saver = replica.client();
    wait_until("no child saves any more", || saver.run("SAVE") == Value::ok());
    replica.crash();
    let before = partial_resyncs();
    replica.restart(redis_server());
    wait_until("it has resynced partially", || partial_resyncs() > before);
    assert!(refuses(&replica), "its RDB says so");
    assert_eq!(full_syncs(&[&master]), 1);
    master.client().ok("DEBUG CHANGE-REPL-ID");
    try_again(&replica, &third);
    follow(&sub_replica, master.port());
    wait_until("full syncs", || full_syncs(&[&master]) == 3);
    must_become_equal(&[&master, &replica, &sub_replica], "after a full sync");
    assert!(!refuses(&replica));
    // A promotion takes the keys that it has.
    third.falsify(b"VERSION\r\n$1\r\n1", b"VERSION\r\n$1\r\n9");
    port.ok("SET a lost");
    wait_until("it does not follow", || refuses(&replica));
    let mut client = replica.client();
    client.ok("REPLICAOF NO ONE");
    assert_eq!(client.run("MIDI.GET a"), Value::bulk("after"));
    client.ok("MIDI.SET a 2");
    assert!(replica.log().contains("This server is a master now. Its keys of midi's are those"));
}
