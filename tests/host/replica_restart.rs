//! The promise: a replica or a master that is started again has what its file says, and goes on
//! from there: the link is mended without a full sync where the host's own rules allow it.

use crate::common::aof::{wait_for_rewrite, wait_until_written};
use crate::common::replicas::{
    Stopped, builder, follow, full_syncs, must_become_equal, wait_for_link,
};
use crate::common::witness::{at_both_doors, beside};
use crate::common::{Mode, Server, Value, redis_server, wait_until};

fn digest(server: &Server) -> Value {
    server.client().run("MIDI.KEYSPACEDIGEST")
}

/// Its own AOF has what it applied, during rewrites too, and what it wrote once it was promoted.
#[test]
fn a_replica_has_an_aof_of_its_own() {
    let mut master = builder(Mode::Adaptive).start();
    let aof = builder(Mode::Adaptive).config("appendonly yes").config("appendfsync no");
    let mut replica = aof.start();
    let mut witnesses = at_both_doors(4);
    for round in 0..2 {
        beside(&mut master, &mut witnesses, round, |master, answers| {
            follow(&replica, master.port());
            answers.wait_for(100);
            replica.client().run("BGREWRITEAOF");
            answers.wait_for(100);
        });
        must_become_equal(&[&master, &replica], "it follows");
        let mut client = replica.client();
        // Until the rewrite after a full sync is done, the host's AOF is that from before it.
        wait_for_rewrite(&mut client);
        client.ok("REPLICAOF NO ONE");
        assert!(!client.run("MIDI.APPEND own x").is_error());
        let before = digest(&replica);
        wait_until_written(&mut client);
        replica.crash();
        replica.restart(redis_server());
        assert_eq!(digest(&replica), before, "from its AOF");
    }
}

/// It resumes where its RDB ends.
#[test]
fn a_replica_that_restarts_resumes() {
    let mut master = builder(Mode::Adaptive).start();
    let master_port = master.port();
    let line = format!("replicaof 127.0.0.1 {master_port}");
    let mut replica = builder(Mode::Adaptive).config(line).config("save 3600 1000000").start();
    wait_for_link(&replica);
    let mut witnesses = at_both_doors(4);
    beside(&mut master, &mut witnesses, 1, |master, answers| {
        answers.wait_for(100);
        // SIGTERM saves.
        replica.restart(redis_server());
        wait_for_link(&replica);
        answers.wait_for(100);
        assert_eq!(full_syncs(&[master]), 1, "it resumed");
    });
    must_become_equal(&[&master, &replica], "at the end");
    let mut client = replica.client();
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "at the replica"));
}

/// SHUTDOWN waits for a slow replica. Writes of the ports meanwhile are neither in the RDB nor
/// acknowledged, so the replica resumes, and both have the same.
#[test]
fn a_master_that_restarts_has_what_its_replica_has() {
    let mut master =
        builder(Mode::Adaptive).config("save 3600 1000000").config("shutdown-timeout 10").start();
    let replica = builder(Mode::Adaptive).start();
    follow(&replica, master.port());
    let mut witnesses = at_both_doors(6);
    beside(&mut master, &mut witnesses, 1, |master, answers| {
        answers.wait_for(100);
        let stopped = Stopped::stop(&replica);
        answers.wait_for(30);
        // SAFETY: a signal to our own child, which has not been waited for.
        unsafe { libc::kill(master.pid() as i32, libc::SIGTERM) };
        wait_until("it waits", || master.log().contains("Waiting for replicas before shutting"));
        drop(stopped);
    });
    wait_until("it has saved", || master.log().contains("DB saved on disk"));
    master.restart(redis_server());
    wait_for_link(&replica);
    assert_eq!(full_syncs(&[&master]), 0, "the replica resumed");
    must_become_equal(&[&master, &replica], "after the restart");
    for server in [&master, &replica] {
        let mut client = server.client();
        witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "after the restart"));
    }
    let mut client = master.client();
    client.ok("MIDI.SET after 1");
    master.midi_client().ok("SET after 2");
    must_become_equal(&[&master, &replica], "the link goes on");
    assert_eq!(full_syncs(&[&master]), 0);
}

/// It comes back with less than its replica had.
#[test]
fn a_master_that_is_killed_after_it_has_saved() {
    let mut master = builder(Mode::Adaptive).start();
    let replica = builder(Mode::Adaptive).start();
    follow(&replica, master.port());
    for round in 0..3 {
        // These are killed with the server, and do not look for what they wrote.
        let mut witnesses = at_both_doors(4);
        witnesses.iter_mut().for_each(|witness| witness.look(&mut master.client()));
        beside(&mut master, &mut witnesses, round, |master, answers| {
            answers.wait_for(50);
            let mut client = master.client();
            client.run("BGSAVE");
            wait_until("it has saved", || {
                client.info("persistence")["rdb_bgsave_in_progress"] == "0"
            });
            answers.wait_for(10 * round);
            master.crash();
        });
        master.restart(redis_server());
        wait_for_link(&replica);
        master.midi_client().ok(&format!("SET after {round}"));
        must_become_equal(&[&master, &replica], "after the crash");
    }
}
