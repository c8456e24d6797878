//! The promise: an RDB saved while clients write at both doors has the state at one moment. EXEC,
//! a script, MSET, RENAME, FLUSHALL and SWAPDB are in it whole or not at all, and so is everything
//! that was acknowledged before the save began. That holds however the host saves.
//!
//! Environment: `MIDI_SNAPSHOT_ROUNDS` (saves for each test and mode).

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::load::{Checker, Load};
use crate::common::{Builder, Client, Mode, Server, Value, wait_until, words};

fn rounds() -> usize {
    let text = std::env::var("MIDI_SNAPSHOT_ROUNDS");
    text.map_or(10, |text| text.parse().expect("MIDI_SNAPSHOT_ROUNDS"))
}

fn builder(mode: Mode) -> Builder {
    mode.builder().load("shards 64").with_port()
}

fn rdb(server: &Server) -> PathBuf {
    server.dir().join("dump.rdb")
}

/// BGSAVE, and its end. A FLUSHALL of the host ends a child that saves: then once more.
fn bgsave(client: &mut Client, rdb: &Path) {
    let _ = fs::remove_file(rdb);
    while !rdb.exists() {
        let reply = client.run("BGSAVE");
        assert_eq!(reply, Value::Simple(b"Background saving started".to_vec()));
        wait_until("the child has ended", || {
            client.info_number("persistence", "rdb_bgsave_in_progress") == 0
        });
        assert_eq!(client.info("persistence")["rdb_last_bgsave_status"], "ok");
    }
}

/// Saves over and over beside the load, and checks each file.
fn check_saves(mode: Mode, load: &Load, save: impl Fn(&mut Client, &Path)) {
    println!("{mode:?}");
    let server = builder(mode).start();
    let mut checker = Checker::start();
    load.beside(&server, || {
        let mut client = server.client();
        for _ in 0..rounds() {
            let least = load.acknowledged();
            save(&mut client, &rdb(&server));
            let most = load.begun();
            Checker::check_counters(&checker.check(load, &rdb(&server)), &least, &most);
        }
    });
    checker.check_at_start(load, &rdb(&server));
    assert_eq!(server.client().info_number("midi_shards", "midi_panics"), 0);
}

#[test]
fn background_saves() {
    for mode in Mode::tried() {
        check_saves(mode, &Load::new(), bgsave);
    }
}

#[test]
fn background_saves_beside_flushes() {
    for mode in Mode::tried() {
        check_saves(mode, &Load::with_flushes(), bgsave);
    }
}

#[test]
fn saves_without_a_fork() {
    for mode in Mode::tried() {
        check_saves(mode, &Load::new(), |client, _| client.ok("SAVE"));
        check_saves(mode, &Load::with_flushes(), |client, _| client.ok("SAVE"));
    }
}

/// The server goes on with what it has saved: nothing acknowledged is taken back (the clients'
/// counters), and what it saves next keeps the invariants.
#[test]
fn reloads() {
    for mode in Mode::tried() {
        check_saves(mode, &Load::that_may_fail(), |client, rdb| {
            client.ok("DEBUG RELOAD");
            bgsave(client, rdb);
        });
    }
}

/// FLUSHALL with save points empties the RDB, too. The file is never one of a half-empty keyspace.
#[test]
fn flushes_that_save() {
    for mode in Mode::tried() {
        let load = Load::with_flushes();
        let server = builder(mode).config("save 3600 1000000").start();
        let mut checker = Checker::start();
        load.beside(&server, || {
            let mut client = server.client();
            for _ in 0..rounds() {
                bgsave(&mut client, &rdb(&server));
                checker.check(&load, &rdb(&server));
            }
        });
    }
}

/// The server's last save has everything that it has ever acknowledged.
fn check_end(mode: Mode, save_points: &str, end: impl Fn(&Server, &mut Client)) {
    println!("{mode:?}");
    let load = Load::that_may_fail();
    let mut server = builder(mode).config(save_points).start();
    load.beside(&server, || {
        let written = || load.acknowledged().iter().all(|&number| number > 20);
        wait_until("all clients have written", written);
        let mut client = server.client();
        end(&server, &mut client);
        wait_until("the server has ended", || client.try_call(&["PING"]).is_err());
    });
    server.wait_for_end();
    let found = Checker::start().check_at_start(&load, &rdb(&server));
    Checker::check_counters(&found, &load.acknowledged(), &load.begun());
}

#[test]
fn shutdowns() {
    for mode in Mode::tried() {
        check_end(mode, "save \"\"", |_, client| client.send_line("SHUTDOWN SAVE"));
    }
}

#[test]
fn signals_to_end() {
    for mode in Mode::tried() {
        check_end(mode, "save 3600 1000000", |server, _| {
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(server.pid() as i32, libc::SIGTERM) };
        });
    }
}

/// Save points alone: the host counts midi's writes, and saves.
#[test]
fn save_points() {
    for mode in Mode::tried() {
        println!("{mode:?}");
        let load = Load::new();
        let server = builder(mode).config("save 1 100").start();
        let mut checker = Checker::start();
        load.beside(&server, || {
            wait_until("the server has saved", || rdb(&server).exists());
            checker.check(&load, &rdb(&server));
        });
    }
}

/// A save closes the keyspace for the turn of the main loop that it is in, and no longer: also if a
/// write of the host's door comes in the same turn.
#[test]
fn writes_go_on_after_a_save() {
    for mode in Mode::tried() {
        let server = builder(mode).start();
        let (mut host, mut port) = (server.client(), server.midi_client());
        for _ in 0..20 {
            let replies = host.pipeline(&["SAVE", "MIDI.SET a 1", "MIDI.GET a"].map(words));
            assert_eq!(replies, [Value::ok(), Value::ok(), Value::bulk("1")], "{mode:?}");
            port.ok("SET b 1");
            assert_eq!(host.info("midi_persistence")["midi_mode"], "fast");
        }
    }
}
