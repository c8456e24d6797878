//! The promise: what no replica has is taken back from hashes, too, when their server is demoted:
//! fields that were added, changed and removed, keys that came and went, hashes that changed their
//! form or their name.

use super::hashes_saved::set_fields;
use crate::common::hold::{hold_main, with_calls};
use crate::common::replicas::{Pair, builder, full_syncs, undone, wait_for_link, wait_for_role};
use crate::common::{Client, Mode, Value, encoded, wait_until, words};

/// Sets of keys, so that many writes find their shards free.
const SETS: usize = 10;

/// Hashes of both forms, and some that are about to become large.
fn fill(client: &mut Client) {
    for set in 0..SETS {
        for key in ["small", "over", "renamed", "copied", "moved", "gone"] {
            set_fields(client, &format!("{key}:{set}"), 0..3, "old");
            set_fields(client, &format!("large:{key}:{set}"), 0..600, "old");
        }
        set_fields(client, &format!("grows:{set}"), 0..511, "old");
        client.integer(&format!("MIDI.HSET one:{set} f v"));
        client.integer(&format!("MIDI.HSET numbers:{set} i 1 f 1.5"));
    }
}

/// What a connection sends; `K` is the end of the keys' names. The first of each group makes
/// `done:K` or a field that its group is known by.
const GROUPS: [&[&str]; 12] = [
    &["HSET small:K field:0 new added 1", "HDEL small:K field:1", "HSET small:K field:1 again"],
    &[
        "HSET large:small:K field:0 new added 1",
        "HDEL large:small:K field:1 field:2",
        "HSET large:small:K field:1 again",
    ],
    &["HSET grows:K more:1 1 more:2 2 more:3 3", "HDEL grows:K field:0 more:1", "HSET grows:K a b"],
    &["HDEL one:K f", "HSET one:K g 1"],
    &["HINCRBY numbers:K i 5", "HINCRBYFLOAT numbers:K f 0.5", "HSETNX numbers:K new 1"],
    &["SET over:K text", "DEL over:K", "HSET over:K other 1"],
    &["DEL large:over:K", "HSET large:over:K other 1", "SET large:over:K text"],
    &["RENAME renamed:K name:K", "HSET name:K field:0 new", "HDEL name:K field:1"],
    &[
        "RENAME large:renamed:K large:name:K",
        "HSET large:name:K field:0 new",
        "HDEL large:name:K field:1",
        "RENAME large:name:K large:another:K",
        "HSET large:another:K field:2 new",
    ],
    &[
        "COPY large:copied:K large:copy:K",
        "HSET large:copy:K field:0 new",
        "HSET large:copied:K field:1 new",
        "HGETDEL copied:K FIELDS 3 field:0 field:1 field:2",
    ],
    &["MOVE moved:K 3", "MOVE large:moved:K 3", "HSET moved:K other 1"],
    &["MULTI", "HDEL gone:K field:0", "RENAME large:gone:K gone:K", "HSET gone:K a b", "EXEC"],
];

/// What a write is answered that nobody has.
fn is_taken_back(reply: &Value) -> bool {
    let text = reply.text();
    reply.is_error() && ["UNBLOCKED", "READONLY", "EXECABORT"].iter().any(|it| text.starts_with(it))
}

#[test]
fn a_demoted_master_takes_back_changes_of_fields() {
    let pair = Pair::start(&with_calls(builder(Mode::Adaptive)));
    let mut client = pair.master().client();
    fill(&mut client);
    pair.must_become_equal("before");
    let before = pair.replica().client().run("MIDI.KEYSPACEDIGEST");
    let full = full_syncs(&[&pair.servers[0], &pair.servers[1]]);
    let connect = || {
        let mut client = pair.master().midi_client();
        assert_eq!(client.run("HGET one:0 f"), Value::bulk("v"));
        client
    };
    let mut connections: Vec<Client> = (0..SETS * GROUPS.len()).map(|_| connect()).collect();
    let mut reader = connect();
    client.ok("SET lag 1");
    let replicaof = format!("REPLICAOF 127.0.0.1 {}", pair.replica().port());
    let held = hold_main(pair.master(), &mut client, &[encoded(&words(&replicaof))]);
    let mut of_replica = pair.replica().client();
    wait_until("it has followed", || of_replica.run("GET lag") == Value::bulk("1"));
    of_replica.ok("REPLICAOF NO ONE");
    for (number, connection) in connections.iter_mut().enumerate() {
        let (set, group) = (number % SETS, GROUPS[number / SETS]);
        let lines = group.iter().map(|line| encoded(&words(&line.replace('K', &set.to_string()))));
        connection.send(&lines.collect::<Vec<_>>().concat());
    }
    // Not all: what finds its shards busy waits for the main thread.
    wait_until("many have run", || {
        let probes = ["small", "large:small"]
            .iter()
            .flat_map(|key| (0..SETS).map(move |set| format!("HGET {key}:{set} field:0")));
        let changed = probes.filter(|line| reader.run(line) == Value::bulk("new")).count();
        let grown = (0..SETS).map(|set| format!("HEXISTS grows:{set} more:1"));
        let grown = grown.filter(|line| reader.run(line) == Value::Integer(1)).count();
        changed + grown >= SETS
    });
    drop(held);
    assert_eq!(client.read(), Value::ok(), "CALLS.HOLD");
    assert_eq!(client.read(), Value::ok());
    wait_for_role(pair.master(), false);
    for mut connection in connections {
        let mut reply = connection.read();
        while matches!(reply, Value::Simple(_)) {
            // What MULTI, and a command behind it, is answered.
            reply = connection.read();
        }
        assert!(is_taken_back(&reply), "{reply:?}");
    }
    pair.exchange();
    wait_for_link(pair.replica());
    pair.must_become_equal("after it");
    assert_eq!(pair.replica().client().run("MIDI.KEYSPACEDIGEST"), before, "nothing is left");
    assert!(undone(pair.replica()) >= SETS as u64, "many were in the tail");
    assert_eq!(full_syncs(&[&pair.servers[0], &pair.servers[1]]), full, "a partial resync");
    // Both go on with them.
    let mut port = pair.master().midi_client();
    for set in 0..SETS {
        port.integer(&format!("HSET large:small:{set} field:0 after more 1"));
        port.integer(&format!("HSET grows:{set} a 1 b 2"));
        port.integer(&format!("HDEL large:renamed:{set} field:5"));
    }
    pair.must_become_equal("new writes");
}
