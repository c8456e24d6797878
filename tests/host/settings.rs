//! The promise: an invalid setting is reported where it is set, and leaves nothing behind. The last
//! value set is the one that counts after CONFIG REWRITE and a restart. Limits on jobs and memory
//! hold while long commands run.

use std::fs;
use std::sync::Mutex;

use crate::common::hosts::host;
use crate::common::{
    Builder, Client, Mode, Random, Server, Value, beside, free_port, in_all_modes, module,
    redis_server, wait_until,
};

/// A setting as CONFIG GET shows it.
#[track_caller]
fn setting(client: &mut Client, name: &str) -> String {
    let name = format!("midi.{name}");
    client.call(&["CONFIG", "GET", &name]).map()[&name].text()
}

#[track_caller]
fn check_settings(client: &mut Client, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(setting(client, name), *value, "{name}");
    }
}

/// The engine works with these settings.
#[track_caller]
fn smoke(client: &mut Client) {
    client.ok("MIDI.SET smoke 1");
    assert_eq!(client.run("MIDI.GET smoke"), Value::bulk("1"));
    assert_eq!(client.run("MIDI.KEYS smoke"), Value::Array(vec![Value::bulk("smoke")]));
    assert_eq!(client.integer("MIDI.DEL smoke"), 1);
}

#[test]
fn defaults() {
    let server = Builder::new().start();
    let mut client = server.client();
    check_settings(
        &mut client,
        &[
            ("threads", "0"),
            ("shards", "0"),
            ("safemode", "no"),
            ("dispatch", "adaptive"),
            ("max-jobs", "128"),
            ("max-queued-commands", "100000"),
            ("max-pattern-bytes", "4096"),
            ("max-key-bytes", "536870912"),
            ("max-value-bytes", "536870912"),
            ("keep-bytes", "32768"),
            ("max-atomic-keys", "10000"),
        ],
    );
    let cores = std::thread::available_parallelism().expect("cores").get() as i64;
    assert_eq!(client.info_number("midi_shards", "midi_threads"), cores);
    smoke(&mut client);
}

#[test]
fn the_least_and_the_most_work() {
    for arguments in
        ["threads 1 shards 1", "shards 65536", "threads 64 shards 2", "SAFEMODE shards 1 threads 1"]
    {
        let server = Builder::new().load(arguments).start();
        smoke(&mut server.client());
        server.client().ok("MIDI.POPULATE 10000");
        assert_eq!(server.client().run("MIDI.KEYS *").array().len(), 10_000);
    }
}

/// Sizes are written with units in all other places.
#[test]
fn load_arguments_take_units() {
    let server = Builder::new().load("keep-bytes 64kb max-value-bytes 1mb").start();
    check_settings(
        &mut server.client(),
        &[("keep-bytes", "65536"), ("max-value-bytes", "1048576")],
    );
}

#[test]
fn a_refused_module_load_leaves_nothing() {
    let server = Builder::plain().start();
    let mut client = server.client();
    let path = module().to_string_lossy().into_owned();
    client.ok("SET native 1");
    for (arguments, reason) in [
        ("SAFEMODE threads 7 shards 64 nosuch", "unknown load argument 'nosuch'"),
        (
            "max-jobs 3 dispatch fast",
            "load argument dispatch must be one of adaptive, pool, not 'fast'",
        ),
        ("shards 3", "midi.shards must be a power of two, not 3"),
        ("shards 99999999999999999999", "load argument shards must be between"),
        ("max-key-bytes 4294967296", "load argument max-key-bytes must be between 1 and"),
    ] {
        let reply = client.run(&format!("MODULE LOAD {path} {arguments}"));
        assert_eq!(
            reply,
            Value::error("ERR Error loading the extension. Please check the server logs.")
        );
        assert!(server.log().contains(&format!("<midi> Not loaded: {reason}")), "{arguments}");
        assert_eq!(client.run("COMMAND LIST FILTERBY MODULE midi"), Value::Array(vec![]));
        assert!(client.run("MIDI.GET k").text().starts_with("ERR unknown command"));
        assert_eq!(client.run("CONFIG GET midi.*"), Value::Array(vec![]));
    }
    client.ok(&format!("MODULE LOAD {path} threads 2"));
    check_settings(&mut client, &[("safemode", "no"), ("shards", "0"), ("max-jobs", "128")]);
    smoke(&mut client);
    assert_eq!(client.run("GET native"), Value::bulk("1"));
}

#[test]
fn loading_it_twice_changes_nothing() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("MIDI.SET k v");
    for arguments in ["", "SAFEMODE", "threads 3"] {
        assert!(client.run(&format!("MODULE LOAD {} {arguments}", module().display())).is_error());
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
        check_settings(&mut client, &[("safemode", "no"), ("threads", "2")]);
        smoke(&mut client);
    }
}

#[test]
fn module_loadex() {
    let server = Builder::plain().start();
    let mut client = server.client();
    let loadex = format!("MODULE LOADEX {}", module().display());
    for wrong in [
        "CONFIG midi.max-jobs 0",
        "CONFIG midi.shards 3",
        "ARGS nosuch",
        "CONFIG midi.threads 2 ARGS x",
    ] {
        assert!(client.run(&format!("{loadex} {wrong}")).is_error(), "{wrong}");
        assert_eq!(
            client.run("COMMAND LIST FILTERBY MODULE midi"),
            Value::Array(vec![]),
            "{wrong}"
        );
    }
    client.ok(&format!(
        "{loadex} CONFIG midi.max-jobs 5 CONFIG midi.max-key-bytes 1kb ARGS threads 2"
    ));
    check_settings(&mut client, &[("max-jobs", "5"), ("max-key-bytes", "1024"), ("threads", "2")]);
    smoke(&mut client);
}

/// After the module is loaded, the host finds an unknown setting and takes the module back. A
/// data type makes that go wrong on all hosts but Redis from 8 on: docs/hosts.md says how.
#[test]
fn module_loadex_with_an_unknown_setting() {
    let mut server = Builder::plain().start();
    let mut client = server.client();
    let port = free_port();
    let line =
        format!("MODULE LOADEX {} CONFIG midi.nosuch 1 ARGS port {port}", module().display());
    if host().valkey || [(7, 2), (7, 4)].contains(&host().version) {
        // A bug of these hosts, with every module that has a data type: a null pointer.
        let words: Vec<_> = line.split(' ').collect();
        assert!(
            client.try_call(&words).is_err(),
            "the host no longer crashes: adapt docs/hosts.md"
        );
        server.wait_for_exit();
        return;
    }
    assert!(client.run(&line).is_error());
    if !host().is_newer() {
        return smoke(&mut client); // It stays all the same.
    }
    assert!(
        server.log().contains("LOADEX names a setting that midi does not have"),
        "{}",
        server.log()
    );
    assert!(Client::connect(port).is_err(), "its port is closed");
    assert!(client.run("MIDI.GET k").is_error());
    assert!(client.run(&line).is_error());
    assert!(server.log().contains("this process has loaded midi before"), "{}", server.log());
    client.ok("SET k v");
    assert!(!client.run("BGSAVE SCHEDULE").is_error(), "it can fork");
    assert_eq!(client.run("GET k"), Value::bulk("v"));
}

#[test]
fn wrong_lines_of_redis_conf_are_named() {
    for (line, reason) in [
        (
            "midi.threads abc",
            "<midi> Not loaded: a midi.* setting in the configuration file is not valid",
        ),
        ("midi.threads 257", "midi.threads : argument must be between 0 and 256"),
        ("midi.shards 100", "<midi> Not loaded: midi.shards must be a power of two, not 100"),
        ("midi.dispatch fast", "adaptive, pool"),
        ("midi.safemode maybe", "midi.safemode"),
        ("midi.max-jobs 0", "midi.max-jobs"),
        ("midi.nosuch 1", "Module Configuration detected without loadmodule directive"),
    ] {
        let Err(log) = Builder::new().config(line).try_start() else {
            panic!("{line} was accepted")
        };
        assert!(log.contains(reason) && log.contains("abort"), "{line}: {log}");
    }
}

#[test]
fn config_set_says_what_is_wrong_and_changes_nothing() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let before = client.run("CONFIG GET midi.*").map();
    for (line, reason) in [
        ("midi.shards 64", "can't set immutable config"),
        ("midi.max-jobs 0", "argument must be between 1 and 1048576 inclusive"),
        ("midi.max-jobs abc", "argument couldn't be parsed into an integer"),
        ("midi.max-key-bytes 4gb", "argument must be between"),
        ("midi.max-value-bytes 1xb", "argument must be a memory value"),
        ("midi.keep-bytes 1023", "argument must be between"),
        ("midi.dispatch fast", "argument(s) must be one of the following: adaptive, pool"),
        ("midi.max-jobs 3 midi.dispatch fast", "argument(s) must be one of the following"),
        ("midi.dispatch pool midi.keep-bytes 1", "argument must be between"),
        ("midi.nosuch 1", "Unknown option"),
    ] {
        let reply = client.run(&format!("CONFIG SET {line}"));
        assert!(reply.is_error() && reply.text().contains(reason), "{line}: {reply:?}");
        assert_eq!(client.run("CONFIG GET midi.*").map(), before, "{line}");
    }
    assert_eq!(client.info("midi_dispatch")["midi_dispatch"], "adaptive");
    smoke(&mut client);
}

const NEW_SETTINGS: [(&str, &str); 11] = [
    ("max-jobs", "3"),
    ("max-queued-commands", "77"),
    ("max-pattern-bytes", "1000"),
    ("max-key-bytes", "1048576"),
    ("max-value-bytes", "2097152"),
    ("keep-bytes", "100000"),
    ("dispatch", "pool"),
    ("maxmemory", "3145728"),
    ("maxmemory-policy", "volatile-lfu"),
    ("db-maxmemory", "2:100mb"),
    ("db-maxmemory-policy", "2:allkeys-lru"),
];

fn set_and_rewrite(client: &mut Client, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        client.ok(&format!("CONFIG SET midi.{name} {value}"));
    }
    client.ok("CONFIG REWRITE");
}

#[test]
fn config_rewrite_keeps_every_setting() {
    let mut server = Builder::new().load("threads 2 shards 64").start();
    set_and_rewrite(&mut server.client(), &NEW_SETTINGS);
    for _ in 0..2 {
        server.restart(redis_server());
        let mut client = server.client();
        check_settings(&mut client, &NEW_SETTINGS);
        check_settings(&mut client, &[("threads", "2"), ("shards", "64"), ("safemode", "no")]);
        smoke(&mut client);
        client.ok("CONFIG REWRITE");
    }
}

#[test]
fn config_rewrite_keeps_safemode() {
    let mut server = Mode::Safe.server();
    server.client().ok("CONFIG REWRITE");
    server.restart(redis_server());
    check_settings(&mut server.client(), &[("safemode", "yes"), ("threads", "2")]);
}

/// The last value set and rewritten counts, even if a load argument differs.
#[test]
fn config_rewrite_outlives_load_arguments() {
    let mut server = Builder::new().load("dispatch adaptive max-jobs 9").start();
    let changed = [("dispatch", "pool"), ("max-jobs", "3")];
    set_and_rewrite(&mut server.client(), &changed);
    server.restart(redis_server());
    check_settings(&mut server.client(), &changed);
}

/// As the Debian package has it: the server's file includes one of settings, and loads the module.
/// With `loadmodule` in the file of settings, CONFIG REWRITE adds it to the server's, too, and the
/// server does not start again.
#[test]
fn the_packages_settings_outlive_config_rewrite() {
    let mut server = Builder::new().start();
    let packaged = include_str!("../../packaging/deb/midi.conf");
    let settings = packaged.replace("midi.port 6390", "midi.port 0") + "midi.max-jobs 3\n";
    let file = server.dir().join("midi.conf");
    fs::write(&file, &settings).expect("a file of settings");
    let include = format!("include {}/midi*.conf\nloadmodule", server.dir().display());
    server.reconfigure("loadmodule", &include);
    server.restart(redis_server());
    check_settings(&mut server.client(), &[("port", "0"), ("max-jobs", "3")]);
    set_and_rewrite(&mut server.client(), &[("dispatch", "pool")]);
    for _ in 0..2 {
        server.restart(redis_server());
        let all = [("port", "0"), ("max-jobs", "3"), ("dispatch", "pool")];
        check_settings(&mut server.client(), &all);
        server.client().ok("CONFIG REWRITE");
    }
    assert_eq!(fs::read_to_string(file).expect("the file"), settings);
}

#[test]
fn max_jobs_is_kept() {
    for mode in Mode::with_jobs() {
        let server = mode.builder().load("max-jobs 2").start();
        let (mut one, mut two, mut three) = (server.client(), server.client(), server.client());
        // More keys than the jobs make before they are ended.
        one.send_line("MIDI.POPULATE 30000000 a");
        two.send_line("MIDI.POPULATE 30000000 b");
        wait_until("two jobs run", || three.run("MIDI.JOBS").array().len() == 2);
        let refused = Value::error(
            "BUSY too many long commands are running (midi.max-jobs 2). See MIDI.JOBS.",
        );
        for line in ["MIDI.KEYS *", "MIDI.POPULATE 1000", "MIDI.IMPORT *", "MIDI.EXPORT nosuch"] {
            assert_eq!(three.run(line), refused, "{line}");
        }
        // Short commands still run.
        three.ok("MIDI.SET smoke 1");
        assert_eq!(three.run("MIDI.GET smoke"), Value::bulk("1"));
        three.ok("CONFIG SET midi.max-jobs 3");
        assert_eq!(three.run("MIDI.KEYS nosuch"), Value::Array(vec![]));
        for job in three.run("MIDI.JOBS").array() {
            three.ok(&format!("MIDI.JOBS CANCEL {}", job.map()["id"].integer()));
        }
        assert!(one.read().is_error() && two.read().is_error());
    }
}

/// Commands that arrive in one turn of the main loop wait together.
#[test]
fn max_queued_commands_is_kept() {
    let server = Mode::Pool.builder().load("max-queued-commands 5").start();
    let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
    let mut admin = server.client();
    let mut refused = 0;
    for _ in 0..5 {
        admin.send_line("DEBUG SLEEP 0.2");
        for client in &mut clients {
            client.send_line("MIDI.SET k v");
        }
        assert_eq!(admin.read(), Value::ok());
        for client in &mut clients {
            let reply = client.read();
            if reply != Value::ok() {
                let text = "BUSY too many commands are waiting (midi.max-queued-commands 5)";
                assert_eq!(reply, Value::error(text));
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "fifty at once were never too many");
    smoke(&mut admin);
}

#[test]
fn unloading_is_refused_beside_work() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let job = |client: &mut Client, _: &mut Random| client.ok("MIDI.POPULATE 100000");
        beside(server, 2, job, || {
            for _ in 0..5 {
                assert!(client.run("MODULE UNLOAD midi").is_error());
            }
        });
        smoke(&mut client);
    });
}

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// How far a long write may go beyond `maxmemory`, and how much room there is to fill.
const OVERSHOOT: i64 = 10 << 20;
const ROOM: i64 = 40 << 20;

fn used_memory(client: &mut Client) -> i64 {
    client.info_number("memory", "used_memory")
}

/// Fills the server with `line` until it is refused. Returns how far it went beyond `maxmemory`.
fn fill(server: &Server, line: &str) -> i64 {
    let mut client = server.client();
    let limit = used_memory(&mut client) + ROOM;
    client.ok(&format!("CONFIG SET maxmemory {limit}"));
    let highest = Mutex::new(0);
    let watch = |client: &mut Client, _: &mut Random| {
        let used = used_memory(client);
        let mut highest = highest.lock().expect("highest");
        *highest = used.max(*highest);
    };
    let reply = beside(server, 1, watch, || client.run(line));
    assert_eq!(reply, Value::error(OOM), "{line}");
    assert!(client.integer("MIDI.DBSIZE") > 10, "next to nothing was made");
    let used = used_memory(&mut client);
    assert!(used > limit - OVERSHOOT, "it gave up with much room left");
    client.ok("CONFIG SET maxmemory 0");
    client.ok("MIDI.FLUSHALL SYNC");
    smoke(&mut client);
    used.max(*highest.lock().expect("highest")) - limit
}

#[test]
fn populate_stops_at_maxmemory_whatever_the_size() {
    in_all_modes(|mode, server| {
        for line in
            ["MIDI.POPULATE 2000000", "MIDI.POPULATE 200000 p 2000", "MIDI.POPULATE 300 p 1000000"]
        {
            let above = fill(server, line);
            println!("{mode:?} {line}: {above} bytes above maxmemory");
            assert!(above < OVERSHOOT, "{line} went {above} bytes above maxmemory");
        }
    });
}

#[test]
fn import_stops_at_maxmemory() {
    in_all_modes(|mode, server| {
        server.client().ok("DEBUG POPULATE 100000 key 1000");
        let above = fill(server, "MIDI.IMPORT *");
        println!("{mode:?}: {above} bytes above maxmemory");
        assert!(above < OVERSHOOT, "it went {above} bytes above maxmemory");
    });
}
