//! The promise: on a cluster node, which has only database 0, midi's commands answer what the
//! host's commands answer.

use crate::common::{Builder, Client, Mode, Server, Value, skip, wait_until};

/// Commands that name another database, or might. `{t}` puts keys into one slot.
const LINES: [&str; 17] = [
    "SET {t}k 1",
    "COPY {t}k {t}l",
    "COPY {t}k {t}l DB 0 REPLACE",
    "COPY {t}k {t}l DB 1",
    "COPY {t}k {t}k DB 1",
    "COPY {t}k {t}k",
    "COPY {t}nosuch {t}l DB 1",
    "COPY {t}k {t}l DB 99",
    "COPY {t}k {t}l DB x",
    "MOVE {t}k 1",
    "MOVE {t}k 0",
    "MOVE {t}k x",
    "MOVE {t}nosuch 1",
    "SWAPDB 0 1",
    "SWAPDB 1 1",
    "SWAPDB x 1",
    "RENAME {t}k {t}m",
];

/// A client of a cluster with one node.
fn client_of(builder: Builder) -> (Server, Client) {
    let server = builder.config("cluster-enabled yes").start();
    let mut client = server.client();
    client.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("the cluster is up", || {
        client.run("CLUSTER INFO").text().contains("cluster_state:ok")
    });
    assert!(server.log().contains("a slot that has midi's keys cannot leave"));
    (server, client)
}

fn same_replies(client: &mut Client, what: &str) {
    for line in LINES {
        let native = client.run(line);
        assert_eq!(client.run(&format!("MIDI.{line}")), native, "{what}: {line}");
    }
}

#[test]
fn other_databases_are_refused_in_the_hosts_words() {
    for mode in Mode::tried() {
        let (_server, mut client) = client_of(mode.builder());
        same_replies(&mut client, &format!("{mode:?}"));
        for prefix in ["", "MIDI."] {
            assert_eq!(client.run(&format!("{prefix}GET {{t}}l")), Value::bulk("1"));
            assert_eq!(client.integer(&format!("{prefix}DEL {{t}}l {{t}}m")), 2);
        }
        for db in ["0", "1", "99", "x"] {
            let native = client.run(&format!("SELECT {db}"));
            let midi = client.run(&format!("MIDI.KEYSPACEDIGEST {db}"));
            assert_eq!(midi.is_error(), native.is_error(), "{mode:?}: {db}: {midi:?}");
            if midi.is_error() {
                let expected = native.text().replace("SELECT", "Reading another database");
                assert_eq!(midi.text(), expected, "{mode:?}: {db}");
            }
        }
        let [native, midi] = ["", "MIDI."].map(|prefix| {
            client.ok("MULTI");
            for line in ["MOVE {t}k 1", "SWAPDB 0 1"] {
                assert!(!client.run(&format!("{prefix}{line}")).is_error());
            }
            client.run("EXEC").array()
        });
        assert!(native.iter().all(Value::is_error), "{native:?}");
        assert_eq!(midi, native);
    }
}

/// On some hosts a cluster may have several databases. Clients can write to all of them.
#[test]
fn several_databases_are_several_of_midis() {
    let (_server, mut client) = client_of(Mode::Adaptive.builder());
    if client.run("CONFIG GET cluster-databases").array().is_empty() {
        return skip("this host's clusters have one database");
    }
    let (_server, mut client) = client_of(Mode::Adaptive.builder().config("cluster-databases 4"));
    same_replies(&mut client, "four databases");
    client.ok("SELECT 1");
    assert_eq!(client.run("MIDI.GET {t}k"), Value::bulk("1"));
}
