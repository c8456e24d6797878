//! The promise: a replica that takes over has what memcached's clients were told, `cas` and marks
//! included, and nothing twice. After FAILOVER it has all of it. After the end of a master it has
//! what WAIT has confirmed.
//!
//! Environment: `MIDI_FAILOVERS` (how many in each mode).

use std::time::{Duration, Instant};

use crate::common::memcached::WithMemcached;
use crate::common::memcached_writer::{Writer, beside};
use crate::common::replicas::{
    failovers, follow, kill, must_become_equal, wait_for_link, wait_for_role,
};
use crate::common::{Builder, Mode, Value};

/// Clients at once.
const WRITERS: usize = 3;

fn servers(builder: &Builder) -> [WithMemcached; 2] {
    let servers = [(); 2].map(|()| WithMemcached::start(builder.clone()));
    follow(&servers[1].server, servers[0].server.port());
    servers
}

fn fail_over_under_load(builder: &Builder) {
    let servers = servers(builder);
    let mut writers = Writer::several(WRITERS, &mut servers[0].client());
    for round in 0..failovers(1) {
        let [master, replica] = [&servers[round % 2], &servers[(round + 1) % 2]];
        beside(master, &mut writers, round as u64, |told| {
            told.wait_for(200);
            master.server.client().ok("FAILOVER");
            wait_for_role(&replica.server, true);
        });
        wait_for_role(&master.server, false);
        wait_for_link(&master.server);
        must_become_equal(&[&master.server, &replica.server], "after a failover");
        let mut client = replica.client();
        writers.iter_mut().for_each(|writer| writer.check(&mut client, "after a failover"));
    }
}

#[test]
fn what_clients_were_told_survives_a_failover() {
    for (mode, fsync) in [(Mode::Adaptive, "always"), (Mode::Safe, "everysec")] {
        let logging = mode.builder().config("appendonly yes");
        fail_over_under_load(&logging.config(format!("appendfsync {fsync}")));
    }
}

/// What is kept for later would empty the database of another master.
#[test]
fn a_delayed_flush_is_forgotten_with_the_masters_role() {
    let [one, other] = [(); 2].map(|()| WithMemcached::start(Mode::Adaptive.builder()));
    let (mut asker, mut writer) = (one.client(), other.client());
    assert_eq!(asker.lines("flush_all 2\n"), "OK\n");
    let asked = Instant::now();
    assert_eq!(writer.lines("set precious 0 0 1\nx\n"), "STORED\n");
    follow(&one.server, other.server.port());
    one.server.client().ok("REPLICAOF NO ONE");
    wait_for_role(&one.server, true);
    // The time must have come; a busy machine may need longer.
    std::thread::sleep(Duration::from_millis(3500).saturating_sub(asked.elapsed()));
    assert_eq!(asker.lines("get precious\n"), "VALUE precious 0 1\nx\nEND\n");
}

/// The master ends in the middle of what it does, and its replica goes on.
#[test]
fn what_was_confirmed_survives_the_end_of_the_master() {
    for mode in Mode::tried() {
        for round in 0..failovers(1) {
            let [mut master, replica] = servers(&mode.builder());
            let mut writers = Writer::several(WRITERS, &mut master.client());
            beside(&master, &mut writers, round as u64, |told| told.wait_for(100));
            let mut host = master.server.client();
            host.ok("SET mark 1");
            assert_eq!(host.run("WAIT 1 0"), Value::Integer(1));
            beside(&master, &mut writers, round as u64 + 1000, |told| {
                told.wait_for(100);
                kill(&master.server);
            });
            master.server.wait_for_exit();
            replica.server.client().ok("REPLICAOF NO ONE");
            wait_for_role(&replica.server, true);
            let mut client = replica.client();
            let when = format!("{mode:?}, round {round}");
            writers.iter_mut().for_each(|writer| writer.check(&mut client, &when));
            beside(&replica, &mut writers, round as u64, |told| told.wait_for(100));
        }
    }
}
