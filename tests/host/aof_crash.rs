//! The promise: whenever the process is killed, what was acknowledged is there after the restart,
//! nothing is there twice, and nothing by half. `everysec` is judged while no fsync runs: beside
//! one the host holds its write() back, and answers all the same.
//!
//! Environment: `MIDI_CRASHES` (how often each test kills the server).

use std::time::Duration;

use super::aof::builder;
use crate::common::aof::crashes;
use crate::common::disk::{Disk, now_ns};
use crate::common::witness::{Answers, Witness, beside};
use crate::common::{
    Builder, Client, Door, Mode, Random, Server, aof, now_ms, redis_server, wait_until,
};

fn witnesses() -> Vec<Witness> {
    (0..6).map(|number| Witness::new([Door::Host, Door::Port][number % 2], number)).collect()
}

fn with(appendfsync: &str) -> Builder {
    builder(Mode::Adaptive).config(format!("appendfsync {appendfsync}"))
}

#[track_caller]
fn check(witnesses: &mut [Witness], client: &mut Client, when: &str) {
    witnesses.iter_mut().for_each(|witness| witness.check(client, when));
}

/// Has clients write, does something beside that, kills the server, and looks for what the clients
/// were answered. With `is_quiet` they have stopped before.
#[track_caller]
fn crash(builder: Builder, is_quiet: bool, disturb: impl Fn(&mut Server, &Answers, &mut Random)) {
    let (mut server, mut witnesses) = (builder.start(), witnesses());
    for round in 0..crashes() {
        let mut random = Random::new(round);
        beside(&mut server, &mut witnesses, round, |server, answers| {
            answers.wait_for(50 + random.below(500) as u64);
            disturb(server, answers, &mut random);
            answers.wait_for(1 + random.below(300) as u64);
            if !is_quiet {
                server.crash();
            }
        });
        if is_quiet {
            aof::wait_until_written(&mut server.client());
            server.crash();
        }
        server.restart(redis_server());
        let when = format!("after crash {round}");
        check(&mut witnesses, &mut server.client(), &when);
    }
}

#[test]
fn under_load_with_always() {
    crash(with("always"), false, |_, _, _| {});
}

#[test]
fn under_load_with_no() {
    crash(with("no"), false, |_, _, _| {});
}

#[test]
fn after_load_with_everysec() {
    crash(with("everysec"), true, |_, _, _| {});
}

/// Milliseconds after the end of an fsync of `everysec` in which the server is not about to begin
/// the next one. It begins one a second, Redis 7.0 with each new second of the clock.
const QUIET: std::ops::Range<u64> = 50..500;

/// Whether no fsync runs: one that began at this time or later has ended, and none is due.
fn no_fsync_runs(disk: &Disk, server: &Server, since_ns: u64) -> bool {
    let Some(last) = disk.fsyncs_of(server).pop() else { return false };
    let age = |at_ns: u64| now_ns().saturating_sub(at_ns) / 1_000_000;
    let of_second = now_ms() as u64 % 1000;
    last.began_ns > since_ns
        && QUIET.contains(&age(last.ended_ns))
        && age(last.began_ns) < of_second
        && of_second < 900
}

/// Kills the server under load, while no fsync runs, and looks for what was acknowledged. False if
/// the server may have begun another one meanwhile: then nothing was looked for.
fn crash_between_fsyncs(seed: u64) -> bool {
    let disk = Disk::with_delay(Duration::from_millis(200));
    let (mut server, mut witnesses) = (disk.under(with("everysec")).start(), witnesses());
    let is_sure = beside(&mut server, &mut witnesses, seed, |server, answers| {
        answers.wait_for(100);
        let since = now_ns();
        loop {
            wait_until("no fsync runs", || no_fsync_runs(&disk, server, since));
            // The host has written by now all that it held back.
            answers.wait_for(30);
            if no_fsync_runs(&disk, server, since) {
                break;
            }
        }
        server.crash();
        no_fsync_runs(&disk, server, since)
    });
    server.restart(redis_server());
    if is_sure {
        check(&mut witnesses, &mut server.client(), "after a crash between two fsyncs");
    }
    is_sure
}

#[test]
fn between_the_fsyncs_of_everysec() {
    let sure = (0..20 * crashes()).filter(|&seed| crash_between_fsyncs(seed));
    assert_eq!(sure.take(crashes() as usize).count() as u64, crashes(), "never between two");
}

#[test]
fn in_pool_and_in_safemode() {
    for mode in [Mode::Pool, Mode::Safe] {
        crash(builder(mode), false, |_, _, _| {});
    }
}

/// Makes saves and rewrites last.
fn slow_down(client: &mut Client) {
    client.ok("DEBUG POPULATE 30");
    client.ok("CONFIG SET rdb-key-save-delay 10000");
}

#[test]
fn beside_a_save() {
    for appendfsync in ["always", "no"] {
        crash(with(appendfsync), false, |server, answers, _| {
            let mut client = server.client();
            slow_down(&mut client);
            client.run("BGSAVE");
            answers.wait_for(100);
            client.ok("CONFIG SET rdb-key-save-delay 0");
        });
    }
}

/// Killed while the AOF is rewritten, and right after.
#[test]
fn beside_a_rewrite() {
    for appendfsync in ["always", "no"] {
        crash(with(appendfsync), false, |server, answers, random| {
            let mut client = server.client();
            slow_down(&mut client);
            client.run("BGREWRITEAOF");
            answers.wait_for(100);
            client.ok("CONFIG SET rdb-key-save-delay 0");
            if random.below(2) == 0 {
                aof::rewrite(&mut client);
            }
        });
    }
}

/// The rewrite's child is killed; the next one succeeds, or is under way at the crash.
#[test]
fn beside_a_rewrite_that_is_killed() {
    crash(with("no"), false, |server, answers, random| {
        let mut client = server.client();
        slow_down(&mut client);
        client.run("BGREWRITEAOF");
        answers.wait_for(50);
        for child in server.children() {
            // SAFETY: a signal to a child of the server that this test has started.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        wait_until("the child is gone", || {
            client.info_number("persistence", "aof_rewrite_in_progress") == 0
        });
        client.ok("CONFIG SET rdb-key-save-delay 0");
        answers.wait_for(50);
        if random.below(2) == 0 {
            aof::rewrite(&mut client);
        }
    });
}

/// After its first rewrite the AOF has all again, also if a save had to end before.
#[test]
fn switched_off_and_on() {
    crash(with("no"), false, |server, answers, random| {
        let mut client = server.client();
        slow_down(&mut client);
        client.ok("CONFIG SET appendonly no");
        answers.wait_for(100);
        if random.below(2) == 0 {
            client.run("BGSAVE");
        }
        client.ok("CONFIG SET appendonly yes");
        answers.wait_for(50);
        client.ok("CONFIG SET rdb-key-save-delay 0");
        answers.wait_for(50);
        client.ok("CONFIG SET appendfsync always");
        aof::wait_for_rewrite(&mut client);
    });
}

/// Killed while it loads, more than once.
#[test]
fn while_it_loads() {
    let (mut server, mut witnesses) = (with("no").start(), witnesses());
    server.client().ok("SELECT 7");
    server.client().ok("MIDI.POPULATE 200000 before 50");
    aof::rewrite(&mut server.client());
    for round in 0..crashes() {
        let mut random = Random::new(round);
        beside(&mut server, &mut witnesses, round, |server, answers| {
            server.client().ok("MIDI.POPULATE 50000 behind 50");
            answers.wait_for(500);
            server.crash();
        });
        for _ in 0..3 {
            server.begin_restart(redis_server());
            std::thread::sleep(std::time::Duration::from_millis(random.below(250) as u64));
            server.crash();
        }
        server.restart(redis_server());
        check(&mut witnesses, &mut server.client(), "after crashes while it loaded");
    }
}

/// Long commands run in slices; what they did up to the crash is there, and in its order.
#[test]
fn beside_long_commands() {
    crash(with("no"), false, |server, answers, random| {
        let mut client = server.client();
        client.ok("SELECT 9");
        let pairs: String = (0..5000).map(|number| format!(" n:{number} {number}")).collect();
        client.ok(&format!("MSET{pairs}"));
        let mut port = server.midi_client();
        port.ok("SELECT 9");
        port.send_line("MIDI.POPULATE 200000 p 20");
        let keys: String = (0..5000).map(|number| format!(" p:{number}")).collect();
        port.send_line(&format!("DEL{keys}"));
        client.send_line("MIDI.IMPORT n:*");
        client.send_line("MIDI.EXPORT p:1* REPLACE");
        answers.wait_for(1 + random.below(300) as u64);
    });
}
