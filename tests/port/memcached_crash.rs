//! The promise: whenever the process is killed, what memcached's clients were told is there after
//! the restart, with its flags and marks, nothing is there twice, and nothing by half.
//! `host/aof_crash.rs` promises the same to Redis's clients, and says when `everysec` is judged.
//!
//! Environment: `MIDI_CRASHES` (how often each test kills the server).

use crate::common::memcached::WithMemcached;
use crate::common::memcached_writer::{Told, Writer, beside};
use crate::common::replicas::kill;
use crate::common::{Client, Mode, Random, aof, redis_server};

/// Clients at once.
const WRITERS: usize = 3;

/// Has clients write, does something beside that, kills the server, and looks for what the clients
/// were told. With `is_quiet` they have stopped before.
fn crash(
    mode: Mode,
    appendfsync: &str,
    is_quiet: bool,
    disturb: impl Fn(&mut Client, &Told, &mut Random),
) {
    let builder = mode.builder().config("appendonly yes");
    let builder = builder.config(format!("appendfsync {appendfsync}"));
    let mut server = WithMemcached::start(builder);
    let mut writers = Writer::several(WRITERS, &mut server.client());
    for round in 0..aof::crashes() {
        let mut random = Random::new(round);
        beside(&server, &mut writers, round, |told| {
            told.wait_for(50 + random.below(300) as u64);
            disturb(&mut server.server.client(), told, &mut random);
            told.wait_for(1 + random.below(200) as u64);
            if !is_quiet {
                kill(&server.server);
            }
        });
        if is_quiet {
            aof::wait_until_written(&mut server.server.client());
        }
        server.server.crash();
        server.server.restart(redis_server());
        let when = format!("{mode:?}, {appendfsync}, after crash {round}");
        let mut client = server.client();
        writers.iter_mut().for_each(|writer| writer.check(&mut client, &when));
    }
}

#[test]
fn under_load() {
    for mode in Mode::tried() {
        crash(mode, "always", false, |_, _, _| {});
        crash(mode, "no", false, |_, _, _| {});
    }
}

#[test]
fn after_load_with_everysec() {
    crash(Mode::Adaptive, "everysec", true, |_, _, _| {});
}

/// Killed while the AOF is rewritten, and right after.
#[test]
fn beside_a_rewrite() {
    crash(Mode::Adaptive, "no", false, |client, told, random| {
        client.ok("DEBUG POPULATE 30");
        client.ok("CONFIG SET rdb-key-save-delay 10000");
        client.run("BGREWRITEAOF");
        told.wait_for(50);
        client.ok("CONFIG SET rdb-key-save-delay 0");
        if random.below(2) == 0 {
            aof::rewrite(client);
        }
    });
}
