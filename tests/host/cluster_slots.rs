//! The promise: when a slot of a cluster moves, midi's keys move with it or keep it from moving,
//! and none stays behind to come back later.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::replicas::{Stopped, is_master, must_become_equal, wait_for_role};
use crate::common::{
    Builder, Client, Mode, Random, Server, StopAtEnd, Value, at_once, redis_server, skip,
    wait_until,
};

/// The slot of `{bar}`, which is the first node's.
const SLOT: u16 = 5061;

fn node(builder: Builder) -> Server {
    builder.config("cluster-enabled yes").config("cluster-node-timeout 5000").start()
}

fn wait_for_cluster(nodes: &[Server], known: usize) {
    for node in nodes {
        let mut client = node.client();
        wait_until("the cluster is up", || {
            let info = client.run("CLUSTER INFO").text();
            info.contains("cluster_state:ok") && info.contains(&format!("known_nodes:{known}"))
        });
    }
}

fn wait_until_up(client: &mut Client) {
    wait_until("the cluster is up", || {
        client.run("CLUSTER INFO").text().contains("cluster_state:ok")
    });
}

/// Two masters with half of the slots each.
fn two_nodes(builder: &Builder) -> [Server; 2] {
    let nodes = [(); 2].map(|()| node(builder.clone()));
    nodes[0].client().ok("CLUSTER ADDSLOTSRANGE 0 8191");
    nodes[1].client().ok("CLUSTER ADDSLOTSRANGE 8192 16383");
    for (number, node) in nodes.iter().enumerate() {
        node.client().ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
    }
    nodes[0].client().ok(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port()));
    wait_for_cluster(&nodes, 2);
    nodes
}

/// The same, and a replica of the first.
fn two_nodes_and_a_replica(builder: &Builder) -> [Server; 3] {
    let [first, second] = two_nodes(builder);
    let replica = node(builder.clone());
    replica.client().ok(&format!("CLUSTER MEET 127.0.0.1 {}", first.port()));
    let nodes = [first, second, replica];
    wait_for_cluster(&nodes[..2], 3);
    let [first, _, replica] = &nodes;
    let mut client = replica.client();
    let line = format!("CLUSTER REPLICATE {}", id(first));
    wait_until("it knows its master", || client.run(&line) == Value::ok());
    wait_until("the link is up", || {
        client.info("replication").get("master_link_status").is_some_and(|status| status == "up")
    });
    nodes
}

fn id(node: &Server) -> String {
    node.client().run("CLUSTER MYID").text()
}

fn keys_in_slot(node: &Server) -> i64 {
    node.client().integer(&format!("MIDI.COUNTKEYSINSLOT {SLOT}"))
}

/// Moves the slot as redis-cli does, with the server's own keys of it.
fn move_slot(from: &Server, to: &Server) {
    let (mut old, mut new) = (from.client(), to.client());
    new.ok(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", id(from)));
    old.ok(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", id(to)));
    let names = old.run(&format!("CLUSTER GETKEYSINSLOT {SLOT} 1000")).array();
    if !names.is_empty() {
        let (port, names) = (to.port().to_string(), names.iter().map(Value::text));
        let line = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].map(String::from);
        let line: Vec<String> = line.into_iter().chain(names).collect();
        assert_eq!(old.call(&line), Value::ok());
    }
    let done = format!("CLUSTER SETSLOT {SLOT} NODE {}", id(to));
    new.ok(&done);
    old.ok(&done);
}

/// The new owner takes the slot, and asks nobody.
fn take_slot(from: &Server, to: &Server) {
    let mut new = to.client();
    new.ok(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", id(from)));
    new.ok(&format!("CLUSTER SETSLOT {SLOT} NODE {}", id(to)));
}

#[test]
fn a_slot_with_keys_stays_until_they_have_left() {
    for mode in Mode::tried() {
        let [first, second] = &two_nodes(&mode.builder());
        let mut client = first.client();
        client.ok("MIDI.SET {bar}1 one");
        client.ok("MIDI.SET {bar}2 two PX 1000000");
        client.ok("MIDI.SET {b}3 another");
        client.ok("SET {bar}own x");
        assert_eq!(keys_in_slot(first), 2);

        for action in ["MIGRATING", "migrating", "NODE"] {
            let line = format!("CLUSTER SETSLOT {SLOT} {action} {}", id(second));
            let reply = client.run(&line).text();
            let way_out = format!("2 keys in slot {SLOT}");
            assert!(reply.contains(&way_out), "{mode:?}: {line}: {reply}");
            assert!(reply.contains(&format!("MIDI.EXPORT * SLOT {SLOT} MOVE")), "{reply}");
        }
        let nodes = client.run("CLUSTER NODES").text();
        assert!(!nodes.contains("->-"), "nothing migrates: {nodes}");

        // Other errors are reported as ever.
        client.ok("ACL SETUSER other on nopass ~* &* +@all -cluster");
        let mut other = first.client();
        other.ok("AUTH other x");
        let line = format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", id(second));
        assert!(other.run(&line).text().starts_with("NOPERM"));
        let unknown = client.run(&format!("CLUSTER SETSLOT {SLOT} MIGRATING nosuchnode")).text();
        assert_eq!(unknown, "ERR I don't know about node nosuchnode");
        assert!(client.run(&format!("CLUSTER SETSLOT {SLOT} STABLE")) == Value::ok());

        assert_eq!(
            client.run(&format!("MIDI.EXPORT * SLOT {SLOT} MOVE")),
            Value::integers(&[2, 0, 0])
        );
        assert_eq!(keys_in_slot(first), 0);
        assert_eq!(client.run("MIDI.GET {b}3"), Value::bulk("another"));
        move_slot(first, second);
        let mut client = second.client();
        client.ok("MIDI.SET {foo}x y");
        let moved = client.run(&format!("MIDI.IMPORT {{bar}}[0-9] SLOT {SLOT} MOVE"));
        assert_eq!(moved, Value::integers(&[2, 0, 0]));
        assert_eq!(client.run("MIDI.GET {bar}1"), Value::bulk("one"));
        assert!(client.integer("MIDI.PTTL {bar}2") > 900_000);
        assert_eq!(client.run("GET {bar}own"), Value::bulk("x"));
        assert_eq!((keys_in_slot(first), keys_in_slot(second)), (0, 2));

        // And back: what was there has not waited for it.
        assert_eq!(client.integer("MIDI.DEL {bar}1 {bar}2"), 2);
        wait_until("the old owner knows the new one", || {
            first.client().run("MIDI.GET {bar}1").text().starts_with("MOVED")
        });
        move_slot(second, first);
        wait_until("the slot is back", || !first.client().run("MIDI.GET {bar}1").is_error());
        assert_eq!(first.client().run("MIDI.MGET {bar}1 {bar}2").array().len(), 2);
        assert!(first.client().run("MIDI.GET {bar}1").is_null());
    }
}

/// midi's key of this name has become the host's own, so the host redirects nobody.
fn begin_to_move(from: &Server, to: &Server) {
    let mut old = from.client();
    old.ok("MIDI.SET {bar}1 one");
    let exported = old.run(&format!("MIDI.EXPORT * SLOT {SLOT} MOVE"));
    assert_eq!(exported, Value::integers(&[1, 0, 0]));
    to.client().ok(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", id(from)));
    old.ok(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", id(to)));
}

/// The server's error if a slot migrates.
fn migrates(reply: &Value) -> bool {
    reply.text() == "TRYAGAIN The slot migrates to another node"
}

#[test]
fn a_slot_that_migrates_gets_no_keys() {
    for mode in Mode::tried() {
        let [first, second] = &two_nodes(&mode.builder());
        begin_to_move(first, second);
        let mut client = first.client();
        for line in ["MIDI.SET {bar}1 new", "MIDI.GET {bar}1", "MIDI.HSET {bar}1 f v"] {
            let reply = client.run(line);
            assert!(migrates(&reply), "{mode:?} {line}: {reply:?}");
        }
        let script = "return redis.pcall('midi.append', KEYS[1], 'x')";
        let reply = client.call(&["EVAL", script, "1", "{bar}1"]);
        assert!(migrates(&reply), "{mode:?}: {reply:?}");
        client.ok("MULTI");
        client.run("MIDI.SET {bar}1 new");
        assert!(migrates(&client.run("EXEC").array()[0]), "{mode:?}");
        assert!(migrates(&client.run("MIDI.IMPORT {bar}1 MOVE")), "{mode:?}");
        // The host's own answer for a name that it does not have.
        assert!(client.run("MIDI.SET {bar}2 new").text().starts_with("ASK"), "{mode:?}");
        client.ok("MIDI.SET {b}1 other");
        assert_eq!(keys_in_slot(first), 0, "{mode:?}");
        // The new node is no worse off for a slot of its own that migrates.
        let mut new = second.client();
        new.ok(&format!("CLUSTER SETSLOT 12182 MIGRATING {}", id(first)));
        new.ok("ASKING");
        new.ok("MIDI.SET {bar}3 new");
        new.ok("ASKING");
        new.ok("SET {bar}4 new");
        let copied = new.run("MIDI.IMPORT {bar}4");
        assert_eq!(copied, Value::integers(&[1, 0, 0]), "{mode:?}");
        for line in ["MIDI.DEL {bar}3", "MIDI.DEL {bar}4", "DEL {bar}4"] {
            new.ok("ASKING");
            assert_eq!(new.integer(line), 1, "{mode:?} {line}");
        }

        client.ok(&format!("CLUSTER SETSLOT {SLOT} STABLE"));
        client.ok("MIDI.SET {bar}1 new");
        assert_eq!(client.integer("MIDI.DEL {bar}1"), 1);
        move_slot(first, second);
        let moved = second.client().run(&format!("MIDI.IMPORT * SLOT {SLOT} MOVE"));
        assert_eq!(moved, Value::integers(&[1, 0, 0]));
        assert_eq!(second.client().run("MIDI.GET {bar}1"), Value::bulk("one"));
    }
}

/// The slot still migrates after a restart, and after a SETSLOT that was seen long before.
#[test]
fn a_slot_that_migrates_unseen_gets_no_keys() {
    let [first, second] = &mut two_nodes(&Mode::Pool.builder().config("appendonly yes"));
    begin_to_move(first, second);
    first.restart(redis_server());
    wait_until_up(&mut first.client());
    let mut client = first.client();
    assert!(migrates(&client.run("MIDI.SET {bar}1 new")));
    client.ok(&format!("CLUSTER SETSLOT {SLOT} STABLE"));
    client.ok("MULTI");
    client.run(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", id(second)));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(client.run("EXEC").array()[0], Value::ok());
    assert!(migrates(&client.run("MIDI.SET {bar}1 new")));
    assert_eq!(keys_in_slot(first), 0);
}

/// Whoever may not give a slot away does not close it.
#[test]
fn a_setslot_that_is_refused_changes_nothing() {
    let [first, second] = &two_nodes(&Mode::Pool.builder());
    first.client().ok("ACL SETUSER other on nopass ~* &* +@all -cluster");
    let mut other = first.client();
    other.ok("AUTH other x");
    let (line, ended) =
        (format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", id(second)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopAtEnd(&ended);
            let mut writer = first.client();
            for number in 0..3000 {
                writer.ok(&format!("MIDI.SET {{bar}}{number} v"));
                assert_eq!(writer.integer(&format!("MIDI.DEL {{bar}}{number}")), 1);
            }
        });
        while !ended.load(Ordering::Relaxed) {
            assert!(other.run(&line).text().starts_with("NOPERM"));
        }
    });
}

/// Either the slot goes, or a write on it is answered OK.
#[test]
fn a_slot_does_not_go_with_writes_that_are_under_way() {
    for mode in Mode::tried() {
        let [first, second] = &two_nodes(&mode.builder());
        let (mine, others) = (id(first), id(second));
        let (mut giver, mut gone) = (first.client(), 0);
        let mut writers: Vec<Client> = (0..6).map(|_| first.client()).collect();
        for round in 0..600 {
            let action = if round % 2 == 0 { "NODE" } else { "MIGRATING" };
            let line = format!("CLUSTER SETSLOT {SLOT} {action} {others}");
            for (number, writer) in writers.iter_mut().enumerate() {
                if number == round % 6 {
                    giver.send_line(&line);
                }
                writer.send_line(&format!("MIDI.SET {{bar}}{number} v"));
            }
            let goes = giver.read() == Value::ok();
            let replies: Vec<Value> = writers.iter_mut().map(Client::read).collect();
            let written = replies.iter().filter(|reply| **reply == Value::ok()).count();
            if goes {
                // Those before it would have had it refused.
                assert_eq!(written, 0, "{mode:?} {action}: {replies:?}");
                giver.ok(&format!("CLUSTER SETSLOT {SLOT} NODE {mine}"));
                giver.ok(&format!("CLUSTER SETSLOT {SLOT} STABLE"));
                gone += 1;
            }
            giver.run("MIDI.FLUSHALL");
        }
        println!("{mode:?}: {gone} of 600");
    }
}

/// Valkey first has the replicas confirm it.
#[test]
fn a_slot_gets_no_keys_while_its_setslot_waits() {
    let [first, second, replica] = &two_nodes_and_a_replica(&Mode::Pool.builder());
    let (mut giver, mut client) = (first.client(), first.client());
    for action in ["MIGRATING", "NODE"] {
        let stopped = Stopped::stop(replica);
        giver.send_line(&format!("CLUSTER SETSLOT {SLOT} {action} {}", id(second)));
        // A key that is written before it would have it refused.
        std::thread::sleep(std::time::Duration::from_millis(100));
        for number in 0..50 {
            let reply = client.run(&format!("MIDI.SET {{bar}}{number} v")).text();
            assert!(
                ["TRYAGAIN", "ASK", "MOVED"].iter().any(|error| reply.starts_with(error)),
                "{action}: {reply}"
            );
        }
        drop(stopped);
        assert_eq!(giver.read(), Value::ok(), "{action}");
        assert_eq!(keys_in_slot(first), 0, "{action}");
    }
}

/// What is written before it would be lost: newer hosts execute it when the pause ends, and no
/// module sees that.
#[test]
fn a_slot_is_not_given_away_behind_a_pause() {
    let [first, second] = &two_nodes(&Mode::Adaptive.builder());
    let (mut writer, mut giver, to) = (first.client(), first.client(), id(second));
    // Valkey holds it up for those of writes, too.
    for kind in ["ALL", "WRITE"] {
        first.client().ok(&format!("CLIENT PAUSE 200 {kind}"));
        writer.send_line("MIDI.SET {bar}1 v");
        let reply = giver.run(&format!("CLUSTER SETSLOT {SLOT} NODE {to}")).text();
        assert!(reply.contains("clients are paused"), "{kind}: {reply}");
        assert_eq!(writer.read(), Value::ok());
        assert_eq!(keys_in_slot(first), 1);
        assert_eq!(writer.integer("MIDI.DEL {bar}1"), 1);
    }
}

/// A SETSLOT in a transaction is executed long after it was seen. What has come for the slot by
/// then stays.
#[test]
fn keys_that_come_behind_a_queued_setslot_stay() {
    let [first, second] = &two_nodes(&Mode::Adaptive.builder());
    take_slot(first, second);
    // Each of them asks once a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let mut client = first.client();
    client.ok("MULTI");
    client.run(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", id(second)));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(client.run("EXEC").array(), [Value::ok()]);
    client.ok("ASKING");
    client.ok("MIDI.SET {bar}1 v");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(keys_in_slot(first), 1);
}

/// As under its own name, if the operator has renamed it.
#[test]
fn a_renamed_cluster_command_is_seen() {
    let builder = Mode::Adaptive.builder().config("rename-command CLUSTER KLUSTER");
    let server = builder.config("cluster-enabled yes").start();
    let mut client = server.client();
    client.ok("KLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("the cluster is up", || {
        client.run("KLUSTER INFO").text().contains("cluster_state:ok")
    });
    client.ok("MIDI.SET {bar}1 one");
    let other = "0123456789012345678901234567890123456789";
    let reply = client.run(&format!("KLUSTER SETSLOT {SLOT} MIGRATING {other}")).text();
    assert!(reply.contains("MIDI.EXPORT"), "{reply}");
}

#[test]
fn keys_of_a_slot_that_another_node_takes_are_removed() {
    for mode in Mode::tried() {
        let builder = mode.builder().config("appendonly yes");
        let [first, second] = &mut two_nodes(&builder);
        let mut client = first.client();
        for number in 0..2000 {
            client.ok(&format!("MIDI.SET {{bar}}{number} old"));
            client.ok(&format!("MIDI.SET other:{{b}}{number} kept"));
        }
        take_slot(first, second);
        wait_until("the keys are gone", || keys_in_slot(first) == 0);
        let mut new = second.client();
        new.ok("MIDI.SET {bar}1 new");
        wait_until("no job runs", || client.run("MIDI.JOBS").array().is_empty());
        assert_eq!(client.integer("MIDI.DBSIZE"), 2000, "{mode:?}: the others' slots are its own");
        assert_eq!(new.integer("MIDI.DBSIZE"), 1);

        // Back, and none of them rises again; the AOF has it so, too. Both ask the host several
        // times a second whose the slot is, and must have seen the new owner.
        std::thread::sleep(std::time::Duration::from_millis(500));
        take_slot(second, first);
        wait_until("the keys are gone", || keys_in_slot(second) == 0);
        let left = (0..2000)
            .filter(|number| !first.client().run(&format!("MIDI.GET {{bar}}{number}")).is_null());
        assert_eq!(left.count(), 0, "{mode:?}");
        client.ok("MIDI.SET {bar}2 newer");
        let binary = crate::common::redis_server();
        first.restart(&binary);
        wait_until_up(&mut first.client());
        assert_eq!(first.client().integer("MIDI.DBSIZE"), 2001, "{mode:?}");
        assert_eq!(keys_in_slot(first), 1);
    }
}

/// A slot that is about to come back is not emptied.
#[test]
fn keys_that_come_for_a_lost_slot_stay() {
    let [first, second] = &two_nodes(&Mode::Adaptive.builder());
    first.client().ok("MIDI.SET {bar}1 old");
    take_slot(first, second);
    wait_until("the keys are gone", || keys_in_slot(first) == 0);
    let mut client = first.client();
    client.ok(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", id(second)));
    client.ok("ASKING");
    client.ok("MIDI.SET {bar}1 new");
    // Another slot is lost meanwhile: the host has been asked, and keys have been removed.
    client.ok("MIDI.SET {b}1 old");
    let slot = client.integer("CLUSTER KEYSLOT {b}1");
    let mut other = second.client();
    other.ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(first)));
    other.ok(&format!("CLUSTER SETSLOT {slot} NODE {}", id(second)));
    wait_until("the other slot's keys are gone", || {
        client.integer(&format!("MIDI.COUNTKEYSINSLOT {slot}")) == 0
    });
    assert_eq!(keys_in_slot(first), 1);
    client.ok(&format!("CLUSTER SETSLOT {SLOT} NODE {}", id(first)));
    assert_eq!(client.run("MIDI.GET {bar}1"), Value::bulk("new"));
}

#[test]
fn a_failover_removes_nothing() {
    let [first, _, replica] = &two_nodes_and_a_replica(&Mode::Adaptive.builder());
    for number in 0..500 {
        first.client().ok(&format!("MIDI.SET {{bar}}{number} v"));
    }
    must_become_equal(&[first, replica], "before");
    for (old, new) in [(first, replica), (replica, first)] {
        new.client().ok("CLUSTER FAILOVER TAKEOVER");
        wait_for_role(new, true);
        wait_until("the old master follows", || !is_master(&mut old.client()));
        wait_until("the link is up", || {
            old.client()
                .info("replication")
                .get("master_link_status")
                .is_some_and(|status| status == "up")
        });
        must_become_equal(&[first, replica], "after a failover");
        // The host is asked again before this has gone: a job would run, or keys would be missing.
        let mut client = new.client();
        let looks = client.info("commandstats").get("cmdstat_cluster|nodes").cloned();
        wait_until("it has looked who owns the slots", || {
            client.info("commandstats").get("cmdstat_cluster|nodes").cloned() != looks
        });
        assert_eq!((keys_in_slot(new), keys_in_slot(old)), (500, 500));
        assert!(client.run("MIDI.JOBS").array().is_empty());
    }
}

/// Names of three slots, and one of each that has its own.
fn name(random: &mut Random) -> String {
    match random.below(4) {
        0 => format!("{{bar}}{}", random.below(40)),
        1 => format!("{{foo}}{}", random.below(40)),
        2 => format!("{{}}{}", random.below(40)),
        _ => format!("key:{}", random.below(40)),
    }
}

/// Compares all counts with what is there.
#[track_caller]
fn counts_must_be_right(client: &mut Client, what: &str) {
    // Keys that are due count until they are removed, and one may become due in between.
    wait_until(&format!("the counts are right, {what}"), || {
        let mut there: BTreeMap<i64, i64> = BTreeMap::new();
        for key in client.run("MIDI.KEYS *").array() {
            let slot = client.call(&[b"CLUSTER", b"KEYSLOT", key.bytes()]).integer();
            *there.entry(slot).or_default() += 1;
        }
        let lines: Vec<Vec<String>> =
            (0..16384).map(|slot| vec!["MIDI.COUNTKEYSINSLOT".into(), slot.to_string()]).collect();
        let counted = client.pipeline(&lines);
        let counted = (0..).zip(counted).map(|(slot, count)| (slot, count.integer()));
        counted.filter(|(_, count)| *count != 0).collect::<BTreeMap<i64, i64>>() == there
    });
}

#[test]
fn counts_are_exact() {
    for mode in Mode::tried() {
        let mut server = node(mode.builder().config("appendonly yes").config("save \"\""));
        let mut client = server.client();
        client.ok("CLUSTER ADDSLOTSRANGE 0 16383");
        wait_until_up(&mut client);
        at_once(4, |thread| {
            let (mut client, mut random) = (server.client(), Random::new(thread as u64));
            for _ in 0..700 {
                let key = name(&mut random);
                let line = match random.below(12) {
                    0..=3 => format!("MIDI.SET {key} v"),
                    4 => format!("MIDI.SET {key} v PX 1"),
                    5 => format!("MIDI.MSET {key} 1 {key} 2"),
                    6 | 7 => format!("MIDI.DEL {key}"),
                    8 => format!("MIDI.RENAME {key} {{bar}}renamed"),
                    9 => format!("MIDI.COPY {{bar}}1 {{bar}}{} REPLACE", random.below(40)),
                    10 => format!("MIDI.GETDEL {key}"),
                    _ => format!("MIDI.APPEND {key} x"),
                };
                client.run(&line);
            }
        });
        counts_must_be_right(&mut client, &format!("{mode:?}: after commands"));
        client.ok("DEBUG RELOAD");
        counts_must_be_right(&mut client, &format!("{mode:?}: after DEBUG RELOAD"));
        client.ok("MIDI.POPULATE 3000 p");
        assert!(!client.run("BGREWRITEAOF").is_error());
        wait_until("it is rewritten", || {
            client.info_number("persistence", "aof_rewrite_in_progress") == 0
        });
        client.ok("MIDI.SET after 1");
        counts_must_be_right(&mut client, &format!("{mode:?}: after POPULATE"));
        drop(client);
        server.restart(crate::common::redis_server());
        let mut client = server.client();
        wait_until_up(&mut client);
        counts_must_be_right(&mut client, &format!("{mode:?}: after a restart"));
        client.ok("MIDI.FLUSHDB");
        counts_must_be_right(&mut client, &format!("{mode:?}: after FLUSHDB"));
        client.ok("MIDI.SET {bar}1 1");
        client.ok("FLUSHALL");
        assert_eq!(keys_in_slot(&server), 0, "{mode:?}: after FLUSHALL");
    }
}

#[test]
fn wrong_slots_are_refused() {
    let [first, _] = &two_nodes(&Mode::Adaptive.builder());
    let mut client = first.client();
    for slot in ["-1", "16384", "x", ""] {
        let native = client.call(&["CLUSTER", "COUNTKEYSINSLOT", slot]);
        assert_eq!(client.call(&["MIDI.COUNTKEYSINSLOT", slot]), native, "{slot}");
        for command in ["MIDI.EXPORT", "MIDI.IMPORT"] {
            assert_eq!(client.call(&[command, "*", "SLOT", slot]), native, "{command} {slot}");
        }
    }
    assert_eq!(client.run("MIDI.EXPORT * SLOT"), Value::error("ERR syntax error"));
    let alone = Mode::Adaptive.server();
    let mut client = alone.client();
    let refused = Value::error("ERR This instance has cluster support disabled");
    assert_eq!(client.run("MIDI.COUNTKEYSINSLOT 0"), refused);
    client.ok("MIDI.SET {bar}1 1");
    client.ok("MIDI.SET {foo}1 1");
    assert_eq!(client.run("MIDI.EXPORT * SLOT 5061"), Value::integers(&[1, 0, 0]));
}

/// A client that follows its slot.
struct Follower<'a> {
    nodes: &'a [Server; 2],
    client: Client,
    at: usize,
}

impl<'a> Follower<'a> {
    fn new(nodes: &'a [Server; 2]) -> Self {
        Follower { nodes, client: nodes[0].client(), at: 0 }
    }

    /// The reply of whoever owns the slot; an error if nobody knows whether it has run.
    fn run(&mut self, line: &str) -> io::Result<Value> {
        let words: Vec<&str> = line.split(' ').collect();
        loop {
            let reply = self.client.try_call(&words);
            match &reply {
                Ok(value) if !value.is_error() => return reply,
                Ok(value) if value.text().starts_with("MOVED") => {
                    self.at = 1 - self.at;
                    self.client = self.nodes[self.at].client();
                }
                Ok(value) if value.text().starts_with("TRYAGAIN") => {}
                Ok(value) if value.text().starts_with("UNBLOCKED") => {}
                Ok(value) => panic!("{line}: {value:?}"),
                Err(_) => {
                    self.client = self.nodes[self.at].client();
                    return reply;
                }
            }
        }
    }
}

/// Redis's own migration, from 8.4 on.
fn has_migration(node: &Server) -> bool {
    let help = node.client().run("CLUSTER HELP").array();
    help.iter().any(|line| line.text().starts_with("MIGRATION "))
}

fn migrate(to: &Server) {
    let mut client = to.client();
    // The node may not have heard yet whose the slot is.
    let mut task = Value::Null;
    wait_until("the slot begins to move", || {
        task = client.run(&format!("CLUSTER MIGRATION IMPORT {SLOT} {SLOT}"));
        !task.is_error()
    });
    let task = task.text();
    wait_until("the slot has moved", || {
        let status = client.run(&format!("CLUSTER MIGRATION STATUS ID {task}"));
        format!("{status:?}").contains("completed")
    });
}

#[test]
fn a_migration_takes_the_keys_along() {
    for mode in Mode::tried() {
        let nodes = two_nodes(&mode.builder());
        if !has_migration(&nodes[0]) {
            return skip("this host has no CLUSTER MIGRATION");
        }
        let large = "x".repeat(3_000_000);
        let mut client = nodes[0].client();
        for number in 0..3000 {
            client.ok(&format!("MIDI.SET {{bar}}k:{number} value{number}"));
        }
        client.ok(&format!("MIDI.SET {{bar}}large {large}"));
        client.ok("MIDI.SET {bar}expires x PX 1000000");
        client.ok("MIDI.SET {b}stays x");
        client.ok("SET {bar}own x");
        let stop = AtomicBool::new(false);
        let counters: Vec<(i64, i64)> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..6)
                .map(|writer| {
                    let (nodes, stop) = (&nodes, &stop);
                    scope.spawn(move || {
                        let (mut follower, mut sent) = (Follower::new(nodes), 0);
                        let mut acknowledged = 0;
                        while !stop.load(Ordering::Relaxed) {
                            sent += 1;
                            if let Ok(value) = follower.run(&format!("MIDI.INCR {{bar}}c:{writer}"))
                            {
                                acknowledged = value.integer();
                            }
                        }
                        (acknowledged, sent)
                    })
                })
                .collect();
            for round in 0..6 {
                migrate(&nodes[1 - round % 2]);
                let old = &nodes[round % 2];
                wait_until("the old owner's keys are gone", || keys_in_slot(old) == 0);
            }
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
        });
        for (writer, (acknowledged, sent)) in counters.into_iter().enumerate() {
            let found = client.run(&format!("MIDI.GET {{bar}}c:{writer}")).text();
            let found: i64 = found.parse().expect("a number");
            assert!(acknowledged > 0);
            assert!(
                (acknowledged..=sent).contains(&found),
                "{mode:?}: {acknowledged} acknowledged, {sent} sent, {found} found"
            );
        }
        for number in 0..3000 {
            let value = client.run(&format!("MIDI.GET {{bar}}k:{number}"));
            assert_eq!(value, Value::bulk(format!("value{number}")), "{mode:?}: {number}");
        }
        assert_eq!(client.run("MIDI.GET {bar}large"), Value::bulk(&large));
        assert!(client.integer("MIDI.PTTL {bar}expires") > 500_000);
        assert_eq!(client.run("GET {bar}own"), Value::bulk("x"));
        assert_eq!(client.run("MIDI.GET {b}stays"), Value::bulk("x"));
        assert_eq!(nodes[1].client().integer("MIDI.DBSIZE"), 0);
        assert_eq!(keys_in_slot(&nodes[0]), 3000 + 6 + 2);
    }
}

/// Changes keys on their old owner while they come to a new one with this limit, with `line` where
/// `#` is a number. Returns the numbers of those for which this is the reply.
fn change_while_they_come(
    [first, second]: &[Server; 2],
    limit: &str,
    line: &str,
    reply: i64,
) -> Vec<usize> {
    let (mut old, mut new) = (first.client(), second.client());
    new.ok(&format!("CONFIG SET midi.maxmemory {limit}"));
    let began = new.run(&format!("CLUSTER MIGRATION IMPORT {SLOT} {SLOT}"));
    assert!(!began.is_error(), "{began:?}");
    std::thread::sleep(std::time::Duration::from_millis(200));
    let changes =
        |number: &usize| old.run(&line.replace('#', &number.to_string())) == Value::Integer(reply);
    let changed: Vec<usize> = (0..1000).filter(changes).collect();
    wait_until("the slot has moved", || {
        format!("{:?}", new.run("CLUSTER MIGRATION STATUS ALL")).contains("completed")
    });
    println!("{} of 1000 were changed", changed.len());
    new.ok("CONFIG SET midi.maxmemory 0");
    changed
}

/// Nothing expires or goes while it is coming: what the old owner still changes would not be found.
#[test]
fn keys_that_are_coming_neither_expire_nor_are_evicted() {
    let value = "x".repeat(20_000);
    for (arguments, limit, line, reply) in [
        ("PX 700", "0", "MIDI.PERSIST {bar}#", 1),
        ("", "2mb", "MIDI.APPEND {bar}# y", value.len() as i64 + 1),
    ] {
        let nodes = &two_nodes(&Mode::Adaptive.builder().config("maxmemory-policy allkeys-lru"));
        if !has_migration(&nodes[0]) {
            return skip("this host has no CLUSTER MIGRATION");
        }
        let mut client = nodes[0].client();
        // So many that they are still coming when midi's would expire.
        client.ok("DEBUG POPULATE 250000 {bar}of-host");
        for number in 0..1000 {
            client.run(format!("MIDI.SET {{bar}}{number} {value} {arguments}").trim_end());
        }
        let changed = change_while_they_come(nodes, limit, line, reply);
        for number in changed {
            let len = nodes[1].client().integer(&format!("MIDI.STRLEN {{bar}}{number}"));
            // What came at last may have been evicted, but as a whole.
            let is_evicted = limit != "0" && len == 0;
            let expected = value.len() as i64 + i64::from(limit != "0");
            assert!(is_evicted || len == expected, "{line}: {len} of {number}");
        }
    }
}

/// The node that slots come from sends as a master does, but its writes are this node's own to log,
/// once, whatever else closes a gate meanwhile.
#[test]
fn what_a_migration_brings_is_logged_once() {
    for mode in Mode::tried() {
        let mut nodes = two_nodes(&mode.builder().config("appendonly yes"));
        if !has_migration(&nodes[0]) {
            return skip("this host has no CLUSTER MIGRATION");
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (nodes, stop) = (&nodes, &stop);
                scope.spawn(move || {
                    let call = "redis.call('MIDI.APPEND',KEYS[1],ARGV[1])";
                    let script = format!("EVAL {call}{call} 1 {{bar}}k:{writer} x");
                    let (mut follower, mut count) = (Follower::new(nodes), 0);
                    while !stop.load(Ordering::Relaxed) {
                        count += 1;
                        let line = format!("MIDI.APPEND {{bar}}k:{writer} {count},");
                        let _ = follower.run(if count % 2 == 0 { &script } else { &line });
                    }
                });
            }
            // No pause comes of these, but midi cannot know that before the host has looked.
            let (node, stop) = (&nodes[1], &stop);
            scope.spawn(move || {
                let mut client = node.client();
                while !stop.load(Ordering::Relaxed) {
                    assert!(client.run("CLIENT PAUSE x").is_error());
                }
            });
            let _stop = StopAtEnd(stop);
            for round in 0..3 {
                migrate(&nodes[1 - round % 2]);
            }
        });
        assert_eq!(keys_in_slot(&nodes[1]), 4);
        let digest = nodes[1].client().run("MIDI.KEYSPACEDIGEST");
        nodes[1].restart(redis_server());
        assert_eq!(nodes[1].client().run("MIDI.KEYSPACEDIGEST"), digest, "{mode:?}");
    }
}

/// A node that has been running for long knows its role.
#[test]
fn a_node_that_loads_midi_while_it_runs_takes_writes_at_once() {
    let builder = Builder::plain().config("enable-module-command yes").config("hz 1");
    let server = node(builder.config("dynamic-hz no"));
    let mut client = server.client();
    let load = format!("MODULE LOAD {}", crate::common::module().display());
    client.ok(&load);
    client.ok("MIDI.FLUSHALL");
}
