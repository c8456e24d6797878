//! The promise: a replica that attaches, or loses its link, while both doors of its master write
//! ends with the same keys, however the host brings them; and so do its own replicas.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::hosts::host;
use crate::common::link::Link;
use crate::common::replicas::{
    Stopped, builder, follow, full_syncs, must_become_equal, wait_for_link,
};
use crate::common::witness::{at_both_doors, beside};
use crate::common::{Mode, Server, StopAtEnd, Value, wait_until, words};

/// A master, and keys that make a transfer last.
fn master(lines: &[&str]) -> Server {
    let lines = lines.iter().fold(builder(Mode::Adaptive), |it, line| it.config(*line));
    let server = lines.start();
    assert!(!server.client().run("MIDI.POPULATE 20000 key 100").is_error());
    server
}

fn replica(lines: &[&str]) -> Server {
    lines.iter().fold(builder(Mode::Adaptive), |it, line| it.config(*line)).start()
}

#[test]
fn full_syncs_under_load() {
    for diskless in ["repl-diskless-sync yes", "repl-diskless-sync no"] {
        let mut master = master(&[diskless]);
        let mut witnesses = at_both_doors(4);
        let loads = ["disabled", "swapdb"].map(|load| format!("repl-diskless-load {load}"));
        let replicas = loads.map(|load| replica(&[&load]));
        beside(&mut master, &mut witnesses, 1, |master, answers| {
            for replica in &replicas {
                assert!(!replica.client().run("MIDI.POPULATE 100 own 10").is_error());
                answers.wait_for(100);
                follow(replica, master.port());
            }
            answers.wait_for(200);
        });
        must_become_equal(&[&master, &replicas[0], &replicas[1]], diskless);
        for server in [&master, &replicas[0], &replicas[1]] {
            let mut client = server.client();
            witnesses.iter_mut().for_each(|witness| witness.check(&mut client, diskless));
        }
    }
}

/// A transfer to a replica with `swapdb` breaks half way: it goes on with the keys that it had.
#[test]
fn a_swap_that_is_given_up() {
    let master = master(&["repl-diskless-sync yes", "repl-backlog-size 16kb"]);
    let replica = replica(&["repl-diskless-load swapdb"]);
    let link = Link::to(master.port());
    follow(&replica, link.port());
    must_become_equal(&[&master, &replica], "at first");
    link.close();
    let mut client = master.client();
    wait_until("the link is down", || client.info("replication")["connected_slaves"] == "0");
    let old = replica.client().run("MIDI.KEYSPACEDIGEST");
    for number in 0..200 {
        client.ok(&format!("MIDI.SET more:{number} {}", "x".repeat(5000)));
    }
    // The host's keys stand in front of midi's: so it has begun to read these.
    link.break_after(300_000);
    link.open();
    let (mut of_replica, mut of_port) = (replica.client(), replica.midi_client());
    wait_until("two transfers have broken", || {
        let digest = of_replica.run("MIDI.KEYSPACEDIGEST");
        assert!(digest == old || digest.is_error(), "{digest:?}");
        let value = of_port.run("GET more:1");
        assert!(value == Value::NullBulk || value.is_error(), "{value:?}");
        link.broken() >= 2
    });
    link.break_after(u64::MAX);
    link.cut();
    must_become_equal(&[&master, &replica], "at last");
}

/// Before a replica loads what its master sends it frees the keys that it has, its own ones first
/// of all the host's. Its clients are told that it loads, not that there is no such key.
#[test]
fn nobody_reads_emptied_keys() {
    emptied_keys(&[]);
    let host = host();
    if host.valkey {
        emptied_keys(&["repl-diskless-sync yes", "dual-channel-replication-enabled yes"]);
    } else if host.version.0 >= 8 {
        emptied_keys(&["repl-diskless-sync yes", "repl-rdb-channel yes"]);
    }
}

fn emptied_keys(lines: &[&str]) {
    let (master, replica) = (master(lines), replica(&[lines, &["replica-lazy-flush no"]].concat()));
    for client in [&mut master.client(), &mut replica.client()] {
        client.ok("MIDI.SET there v");
    }
    let mut client = replica.client();
    for _ in 0..3 {
        client.ok("REPLICAOF NO ONE");
        client.ok("DEBUG POPULATE 300000");
        beside_readers(
            &replica,
            |reply| *reply == Value::bulk("v") || reply.is_error(),
            || {
                follow(&replica, master.port());
            },
        );
    }
    assert!(full_syncs(&[&master]) >= 3);
}

/// A FLUSHALL of the master's is no load, in whatever form it comes.
#[test]
fn a_flush_of_the_masters_is_no_load() {
    let lines = ["rename-command FLUSHALL empty", "replica-lazy-flush no"];
    let (master, replica) = (master(&lines), replica(&lines));
    follow(&replica, master.port());
    let mut client = master.client();
    for flush in ["EMPTY SYNC", "EXEC"] {
        // The master does not send this one.
        for client in [&mut client, &mut replica.client()] {
            client.ok("DEBUG POPULATE 100000");
        }
        client.ok("MIDI.SET there v");
        must_become_equal(&[&master, &replica], flush);
        beside_readers(
            &replica,
            |reply| *reply == Value::bulk("v") || reply.is_null(),
            || {
                if flush == "EXEC" {
                    let sets =
                        (0..2000).map(|number| format!("SET key:{number} {}", "x".repeat(100)));
                    let middle = ["MULTI".into(), "EMPTY SYNC".into()].into_iter().chain(sets);
                    let lines = middle.chain(["EXEC".to_owned()]);
                    client.pipeline(&lines.map(|line| words(&line)).collect::<Vec<_>>());
                } else {
                    client.ok(flush);
                }
                must_become_equal(&[&master, &replica], flush);
            },
        );
        assert!(replica.client().run("MIDI.GET there").is_null());
    }
    assert_eq!(full_syncs(&[&master]), 1);
}

/// Does this while two clients read a key on the server's port, and look at each reply.
fn beside_readers(server: &Server, is_right: fn(&Value) -> bool, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for mut reader in [server.midi_client(), server.midi_client()] {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reply = reader.run("GET there");
                    assert!(is_right(&reply), "{reply:?}");
                }
            });
        }
        work();
    });
}

#[test]
fn links_that_break_under_load() {
    let mut master = master(&[]);
    let replica = replica(&[]);
    let link = Link::to(master.port());
    follow(&replica, link.port());
    let mut witnesses = at_both_doors(4);
    beside(&mut master, &mut witnesses, 2, |master, answers| {
        for round in 0..12 {
            // In the middle of a command, as a rule.
            link.break_after(if round % 2 == 0 { u64::MAX } else { 3001 });
            answers.wait_for(30);
            link.cut();
            link.break_after(u64::MAX);
        }
        wait_for_link(&replica);
        assert_eq!(full_syncs(&[master]), 1, "the backlog had it all");
        answers.wait_for(50);
    });
    must_become_equal(&[&master, &replica], "after short breaks");
    beside(&mut master, &mut witnesses, 3, |master, answers| {
        link.close();
        master.client().ok("CONFIG SET repl-backlog-size 16384");
        master.client().ok(&format!("MIDI.SET large {}", "x".repeat(500_000)));
        answers.wait_for(300);
        link.open();
        wait_until("a full sync", || full_syncs(&[master]) > 1);
        wait_for_link(&replica);
        answers.wait_for(50);
    });
    must_become_equal(&[&master, &replica], "beyond the backlog");
    let mut client = replica.client();
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "at the replica"));
}

/// The server in the middle loses both its links, and then becomes the master.
#[test]
fn a_chain_of_three() {
    let mut first = master(&[]);
    let [mut second, third] = [replica(&[]), replica(&["appendonly yes"])];
    let mut witnesses = at_both_doors(4);
    beside(&mut first, &mut witnesses, 4, |first, answers| {
        follow(&second, first.port());
        follow(&third, second.port());
        answers.wait_for(100);
        for line in ["CLIENT KILL TYPE master", "CLIENT KILL TYPE slave"] {
            assert!(!second.client().run(line).is_error());
            answers.wait_for(50);
        }
    });
    must_become_equal(&[&first, &second, &third], "a chain");
    second.client().ok("REPLICAOF NO ONE");
    let port = second.port();
    beside(&mut second, &mut witnesses, 5, |_, answers| {
        answers.wait_for(50);
        follow(&first, port);
        answers.wait_for(100);
    });
    must_become_equal(&[&second, &first, &third], "with another head");
    let mut client = third.client();
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "at the end of the chain"));
}

/// A replica that is away for so long that the host gives its backlog up is not forgotten about:
/// midi writes without a log meanwhile.
#[test]
fn replicas_that_come_and_go() {
    let mut master = master(&["repl-backlog-ttl 1"]);
    let replica = replica(&[]);
    let mut witnesses = at_both_doors(4);
    for round in 0..2 {
        beside(&mut master, &mut witnesses, round, |master, answers| {
            let mut client = master.client();
            wait_until("nothing is logged", || {
                client.info("midi_persistence")["midi_mode"] == "fast"
            });
            answers.wait_for(50);
            follow(&replica, master.port());
            answers.wait_for(100);
        });
        must_become_equal(&[&master, &replica], "it has followed");
        replica.client().ok("REPLICAOF NO ONE");
    }
}

/// WAIT does not count writes that a stopped replica has not confirmed, whatever the command waited
/// for before: a shard, the main thread, a job.
#[test]
fn wait_counts_what_a_replica_has() {
    for mode in Mode::tried() {
        let master = builder(mode).start();
        let replica = builder(mode).start();
        follow(&replica, master.port());
        let mut client = master.client();
        client.ok("MIDI.SET first 1");
        client.ok("MSET native:1 a native:2 b native:3 c");
        wait_until("it is confirmed", || client.run("WAIT 1 100") == Value::Integer(1));
        let commands = [
            vec!["MIDI.SET a 1"],
            vec!["MIDI.MSET a 2 b 2 c 2 d 2"],
            vec!["MIDI.POPULATE 5000 key 10"],
            vec!["MULTI", "MIDI.INCR a", "MIDI.INCR e", "EXEC"],
            vec!["EVAL return(redis.call('MIDI.INCR','e')) 0"],
            vec!["MIDI.BITOP OR f a b"],
            vec!["MIDI.DEL a b f"],
            vec!["MIDI.UNLINK c"],
            vec!["MIDI.IMPORT native:1"],
            vec!["MIDI.IMPORT native:2 MOVE"],
            vec!["MIDI.EXPORT d"],
            vec!["MIDI.EXPORT e MOVE"],
            vec!["MIDI.EXPORT key:1* MOVE"],
            vec!["MIDI.SWAPDB 0 1"],
            vec!["MIDI.FLUSHALL ASYNC"],
            vec!["MIDI.POPULATE 100 key 10"],
            vec!["MIDI.FLUSHDB SYNC"],
        ];
        for lines in commands {
            let stopped = Stopped::stop(&replica);
            let wait = lines.iter().chain(&["WAIT 1 50"]);
            let pipeline: Vec<_> = wait.map(|line| crate::common::words(line)).collect();
            let replies = client.pipeline(&pipeline);
            assert!(!replies.iter().any(Value::is_error), "{mode:?} {lines:?}: {replies:?}");
            assert_eq!(replies.last(), Some(&Value::Integer(0)), "{mode:?} {lines:?}: {replies:?}");
            drop(stopped);
            assert_eq!(client.run("WAIT 1 0"), Value::Integer(1), "{mode:?} {lines:?}");
            let digest = |server: &Server| server.client().run("MIDI.KEYSPACEDIGEST");
            assert_eq!(digest(&replica), digest(&master), "{mode:?} {lines:?}");
        }
    }
}
