//! The promise: settings come from load arguments, redis.conf and CONFIG SET,
//! survive CONFIG REWRITE, and say clearly when they are wrong; limits are kept
//! and named in their errors; `maxmemory` holds; the module cannot be unloaded.

mod common;

use std::sync::Mutex;

use common::{Builder, Client, Mode, Server, Value, beside, in_all_modes, module, redis_server, wait_until};

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

/// The engine works with this.
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
            ("shards", "1024"),
            ("safemode", "no"),
            ("dispatch", "adaptive"),
            ("max-jobs", "128"),
            ("max-queued-commands", "100000"),
            ("max-pattern-bytes", "4096"),
            ("max-key-bytes", "536870912"),
            ("max-value-bytes", "536870912"),
            ("keep-bytes", "32768"),
        ],
    );
    assert_eq!(client.run("CONFIG GET midi.*").map().len(), 10);
    let cores = std::thread::available_parallelism().expect("cores").get() as i64;
    assert_eq!(client.info_number("midi_shards", "midi_threads"), cores);
    assert_eq!(client.info_number("midi_shards", "midi_shards"), 1024);
    let log = server.log();
    assert!(log.contains("save points, BGSAVE and replication do not cover midi's data yet"), "{log}");
}

#[test]
fn load_arguments() {
    for (arguments, expected) in [
        ("threads 3 shards 64", &[("threads", "3"), ("shards", "64"), ("dispatch", "adaptive")][..]),
        ("midi.threads 1 MIDI.SHARDS 1", &[("threads", "1"), ("shards", "1")]),
        ("SHARDS 65536", &[("shards", "65536")]),
        ("safemode", &[("safemode", "yes")]),
        ("SAFEMODE threads 2", &[("safemode", "yes"), ("threads", "2")]),
        ("midi.safemode yes", &[("safemode", "yes")]),
        ("dispatch pool", &[("dispatch", "pool")]),
        ("max-jobs 7 max-queued-commands 9", &[("max-jobs", "7"), ("max-queued-commands", "9")]),
        ("max-pattern-bytes 10 keep-bytes 1024", &[("max-pattern-bytes", "10"), ("keep-bytes", "1024")]),
        ("max-key-bytes 100 max-value-bytes 200", &[("max-key-bytes", "100"), ("max-value-bytes", "200")]),
    ] {
        let server = Builder::new().load(arguments).start();
        let mut client = server.client();
        check_settings(&mut client, expected);
        smoke(&mut client);
    }
}

#[test]
fn load_arguments_reach_the_engine() {
    let server = Builder::new().load("threads 3 shards 64 SAFEMODE max-value-bytes 20").start();
    let mut client = server.client();
    assert_eq!(client.info_number("midi_shards", "midi_threads"), 3);
    assert_eq!(client.info_number("midi_shards", "midi_shards"), 64);
    assert_eq!(client.info("midi_shards")["midi_safemode"], "yes");
    assert!(client.info("midi_workers").contains_key("midi_worker2"));
    assert!(client.run("MIDI.SET k 123456789012345678901").is_error());
}

/// Sizes are written with units everywhere else.
#[test]
fn load_arguments_take_units() {
    let server = Builder::new().load("keep-bytes 64kb max-value-bytes 1mb").start();
    check_settings(&mut server.client(), &[("keep-bytes", "65536"), ("max-value-bytes", "1048576")]);
}

/// Wrong load arguments, and what the log says of each.
const WRONG: [(&str, &str); 21] = [
    ("nosuch", "unknown load argument 'nosuch'"),
    ("nosuch 1", "unknown load argument 'nosuch'"),
    ("midi.nosuch 1", "unknown load argument 'midi.nosuch'"),
    ("SAFEMODE extra", "unknown load argument 'extra'"),
    ("safemode no", "unknown load argument 'no'"),
    ("threads", "load argument threads needs a value"),
    ("threads 2 shards", "load argument shards needs a value"),
    ("dispatch", "load argument dispatch needs a value"),
    ("threads abc", "load argument threads must be between 0 and 256, not 'abc'"),
    ("threads -1", "load argument threads must be between 0 and 256, not '-1'"),
    ("threads 257", "load argument threads must be between 0 and 256, not '257'"),
    ("threads 1.5", "load argument threads must be between 0 and 256, not '1.5'"),
    ("shards 0", "load argument shards must be between 1 and 65536, not '0'"),
    ("shards 3", "midi.shards must be a power of two, not 3"),
    ("shards 131072", "load argument shards must be between 1 and 65536, not '131072'"),
    ("shards 99999999999999999999", "load argument shards must be between"),
    ("dispatch fast", "load argument dispatch must be one of adaptive, pool, not 'fast'"),
    ("midi.safemode maybe", "load argument safemode must be one of no, yes, not 'maybe'"),
    ("max-jobs 0", "load argument max-jobs must be between 1 and"),
    ("keep-bytes 1", "load argument keep-bytes must be between 1024 and"),
    ("max-key-bytes 4294967296", "load argument max-key-bytes must be between 1 and"),
];

#[test]
fn wrong_load_arguments_stop_the_server() {
    for (arguments, reason) in WRONG {
        let Err(log) = Builder::new().load(arguments).try_start() else {
            panic!("{arguments} was accepted");
        };
        assert!(log.contains(&format!("midi: not loaded: {reason}")), "{arguments}: {log}");
        assert!(log.contains("server aborting") && !log.contains("BUG REPORT"), "{arguments}: {log}");
    }
}

#[test]
fn wrong_load_arguments_fail_module_load_alone() {
    let server = Builder::plain().start();
    let mut client = server.client();
    let path = module().to_string_lossy().into_owned();
    client.ok("SET native 1");
    for (arguments, reason) in WRONG {
        let reply = client.run(&format!("MODULE LOAD {path} {arguments}"));
        assert_eq!(reply, Value::error("ERR Error loading the extension. Please check the server logs."));
        assert!(server.log().contains(&format!("midi: not loaded: {reason}")), "{arguments}");
        assert_eq!(client.run("MODULE LIST"), Value::Array(vec![]));
        assert!(client.run("MIDI.GET k").text().starts_with("ERR unknown command"));
        assert_eq!(client.run("CONFIG GET midi.*"), Value::Array(vec![]));
    }
    // Nothing of the failures stays.
    client.ok(&format!("MODULE LOAD {path} threads 2"));
    check_settings(&mut client, &[("safemode", "no"), ("threads", "2"), ("shards", "1024")]);
    smoke(&mut client);
    assert_eq!(client.run("GET native"), Value::bulk("1"));
}

#[test]
fn loading_it_twice_is_refused() {
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
    for wrong in
        ["CONFIG midi.max-jobs 0", "CONFIG midi.shards 3", "ARGS nosuch", "CONFIG midi.threads 2 ARGS x"]
    {
        assert!(client.run(&format!("{loadex} {wrong}")).is_error(), "{wrong}");
        assert_eq!(client.run("MODULE LIST"), Value::Array(vec![]), "{wrong}");
    }
    client.ok(&format!("{loadex} CONFIG midi.max-jobs 5 CONFIG midi.max-key-bytes 1kb ARGS threads 2"));
    check_settings(&mut client, &[("max-jobs", "5"), ("max-key-bytes", "1024"), ("threads", "2")]);
    smoke(&mut client);
}

/// The host notices a name that nobody knows after the module is loaded, and
/// wants to unload it again, which is refused.
#[test]
fn module_loadex_with_an_unknown_setting_harms_nobody() {
    let server = Builder::plain().start();
    let mut client = server.client();
    let line = format!("MODULE LOADEX {} CONFIG midi.nosuch 1", module().display());
    assert!(client.run(&line).is_error());
    assert!(server.log().contains("midi: MODULE UNLOAD refused"));
    smoke(&mut client);
}

#[test]
fn lines_of_redis_conf() {
    let server = Builder::new()
        .config("midi.threads 3\nmidi.shards 128\nmidi.dispatch pool\nmidi.max-value-bytes 2mb")
        .config("midi.keep-bytes 64kb\nmidi.max-pattern-bytes 100")
        .start();
    let mut client = server.client();
    check_settings(
        &mut client,
        &[
            ("threads", "3"),
            ("shards", "128"),
            ("dispatch", "pool"),
            ("max-value-bytes", "2097152"),
            ("keep-bytes", "65536"),
            ("max-pattern-bytes", "100"),
        ],
    );
    assert_eq!(client.info_number("midi_shards", "midi_shards"), 128);
    assert_eq!(client.info("midi_dispatch")["midi_dispatch"], "pool");
    assert!(client.call(&["MIDI.KEYS", &"x".repeat(101)]).is_error());
    smoke(&mut client);
    let server = Builder::new().config("midi.safemode yes").start();
    assert_eq!(server.client().info("midi_shards")["midi_safemode"], "yes");
}

#[test]
fn wrong_lines_of_redis_conf_stop_the_server() {
    for (line, reason) in [
        ("midi.threads abc", "midi: not loaded: a midi.* setting in the configuration file is not valid"),
        ("midi.threads 257", "must be between 0 and 256"),
        ("midi.shards 100", "midi: not loaded: midi.shards must be a power of two, not 100"),
        ("midi.dispatch fast", "adaptive, pool"),
        ("midi.safemode maybe", "midi.safemode"),
        ("midi.max-jobs 0", "midi.max-jobs"),
        ("midi.nosuch 1", "Module Configuration detected without loadmodule directive"),
    ] {
        let Err(log) = Builder::new().config(line).try_start() else { panic!("{line} was accepted") };
        assert!(log.contains(reason) && log.contains("abort"), "{line}: {log}");
    }
}

#[test]
fn config_set_changes_what_can_change() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (name, value, shown) in [
            ("max-jobs", "3", "3"),
            ("max-queued-commands", "77", "77"),
            ("max-pattern-bytes", "1kb", "1024"),
            ("max-key-bytes", "1mb", "1048576"),
            ("max-value-bytes", "4294967295", "4294967295"),
            ("keep-bytes", "100kb", "102400"),
            ("dispatch", "pool", "pool"),
            ("dispatch", "ADAPTIVE", "adaptive"),
        ] {
            client.ok(&format!("CONFIG SET midi.{name} {value}"));
            assert_eq!(setting(&mut client, name), shown);
            smoke(&mut client);
        }
        client.ok("CONFIG SET midi.max-jobs 4 midi.dispatch pool maxmemory 0");
        check_settings(&mut client, &[("max-jobs", "4"), ("dispatch", "pool")]);
        assert_eq!(client.info("midi_dispatch")["midi_dispatch"], "pool");
    });
}

#[test]
fn config_set_refuses_the_rest() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let before = client.run("CONFIG GET midi.*").map();
    for (line, reason) in [
        ("midi.threads 4", "can't set immutable config"),
        ("midi.shards 64", "can't set immutable config"),
        ("midi.safemode yes", "can't set immutable config"),
        ("midi.max-jobs 0", "argument must be between 1 and 1048576 inclusive"),
        ("midi.max-jobs -1", "argument must be between"),
        ("midi.max-jobs abc", "argument couldn't be parsed into an integer"),
        ("midi.max-queued-commands 0", "argument must be between"),
        ("midi.max-pattern-bytes 0", "argument must be between"),
        ("midi.max-key-bytes 4gb", "argument must be between"),
        ("midi.max-value-bytes 1xb", "argument must be a memory value"),
        ("midi.keep-bytes 1023", "argument must be between"),
        ("midi.dispatch fast", "argument(s) must be one of the following: adaptive, pool"),
        ("midi.max-jobs 3 midi.dispatch fast", "argument(s) must be one of the following"),
        ("midi.nosuch 1", "Unknown option"),
    ] {
        let reply = client.run(&format!("CONFIG SET {line}"));
        assert!(reply.is_error() && reply.text().contains(reason), "{line}: {reply:?}");
        assert_eq!(client.run("CONFIG GET midi.*").map(), before, "{line}");
    }
    smoke(&mut client);
}

const NEW_SETTINGS: [(&str, &str); 7] = [
    ("max-jobs", "3"),
    ("max-queued-commands", "77"),
    ("max-pattern-bytes", "1000"),
    ("max-key-bytes", "1048576"),
    ("max-value-bytes", "2097152"),
    ("keep-bytes", "100000"),
    ("dispatch", "pool"),
];

fn set_and_rewrite(client: &mut Client, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        client.ok(&format!("CONFIG SET midi.{name} {value}"));
    }
    client.ok("CONFIG REWRITE");
}

#[test]
fn config_rewrite_keeps_the_settings() {
    let mut server = Builder::new().load("threads 2 shards 64").start();
    set_and_rewrite(&mut server.client(), &NEW_SETTINGS);
    for _ in 0..2 {
        let file = server.config_file();
        assert!(file.contains("midi.max-jobs 3") && file.contains("midi.dispatch pool"), "{file}");
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

/// What was set last and rewritten counts, also where a load argument said otherwise.
#[test]
fn config_rewrite_outlives_load_arguments() {
    let mut server = Builder::new().load("dispatch adaptive max-jobs 9").start();
    let changed = [("dispatch", "pool"), ("max-jobs", "3")];
    set_and_rewrite(&mut server.client(), &changed);
    server.restart(redis_server());
    check_settings(&mut server.client(), &changed);
}

#[test]
fn max_jobs_is_kept() {
    for mode in [Mode::Adaptive, Mode::Pool] {
        let server = mode.builder().load("max-jobs 2").start();
        let (mut one, mut two, mut three) = (server.client(), server.client(), server.client());
        one.send_line("MIDI.POPULATE 2000000 a");
        two.send_line("MIDI.POPULATE 2000000 b");
        wait_until("two jobs run", || three.run("MIDI.JOBS").array().len() == 2);
        let refused =
            Value::error("BUSY too many long commands are running (midi.max-jobs 2). See MIDI.JOBS.");
        for line in ["MIDI.KEYS *", "MIDI.POPULATE 1000", "MIDI.IMPORT *", "MIDI.EXPORT nosuch"] {
            assert_eq!(three.run(line), refused, "{line}");
        }
        smoke_without_keys(&mut three);
        three.ok("CONFIG SET midi.max-jobs 3");
        assert_eq!(three.run("MIDI.KEYS nosuch"), Value::Array(vec![]));
        for client in [&mut one, &mut two] {
            assert_eq!(client.read(), Value::ok());
        }
    }
}

fn smoke_without_keys(client: &mut Client) {
    client.ok("MIDI.SET smoke 1");
    assert_eq!(client.run("MIDI.GET smoke"), Value::bulk("1"));
}

/// Commands that come in one turn of the main loop wait together.
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
fn max_pattern_bytes_is_kept() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let refused = |limit: usize| {
            Value::Error(
                format!("ERR pattern exceeds maximum allowed size (midi.max-pattern-bytes {limit})").into(),
            )
        };
        for limit in [4096, 10] {
            client.ok(&format!("CONFIG SET midi.max-pattern-bytes {limit}"));
            for (length, fits) in [(limit, true), (limit + 1, false), (10 * limit, false)] {
                let pattern = "x".repeat(length);
                for command in
                    [&["MIDI.KEYS"][..], &["MIDI.SCAN", "0", "MATCH"], &["MIDI.IMPORT"], &["MIDI.EXPORT"]]
                {
                    let reply = client.call(&[command, &[pattern.as_str()]].concat());
                    let right = if fits { !reply.is_error() } else { reply == refused(limit) };
                    assert!(right, "{command:?} {length} of {limit}: {reply:?}");
                }
            }
        }
    });
}

#[test]
fn max_key_bytes_is_kept() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-key-bytes 100");
        let (fits, long) = ("k".repeat(100), "k".repeat(101));
        let refused = Value::error("ERR key exceeds maximum allowed size (midi.max-key-bytes 100)");
        assert_eq!(client.call(&["MIDI.SET", &fits, "v"]), Value::ok());
        assert_eq!(client.call(&["MIDI.SET", &long, "v"]), refused);
        assert_eq!(client.call(&["MIDI.SET", &long, "v", "EX", "10"]), refused);
        // All or nothing.
        assert_eq!(client.call(&["MIDI.MSET", "a", "1", &long, "v", "b", "2"]), refused);
        assert_eq!(client.integer("MIDI.EXISTS a b"), 0);
        assert!(client.call(&["MIDI.GET", &long]).is_null());
        assert_eq!(client.call(&["MIDI.DEL", &long, &fits]), Value::Integer(1));
    });
}

#[test]
fn max_value_bytes_is_kept() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for limit in [100_000, 100] {
            client.ok(&format!("CONFIG SET midi.max-value-bytes {limit}"));
            let (fits, long) = ("v".repeat(limit), "v".repeat(limit + 1));
            let text = format!("ERR string exceeds maximum allowed size (midi.max-value-bytes {limit})");
            let refused = Value::error(&text);
            assert_eq!(client.call(&["MIDI.SET", "k", &fits]), Value::ok());
            assert_eq!(client.call(&["MIDI.SET", "k", &long]), refused);
            assert_eq!(client.call(&["MIDI.SET", "k", &long, "GET"]), refused);
            assert_eq!(client.call(&["MIDI.MSET", "a", "1", "k", &long]), refused);
            assert_eq!(client.run(&format!("MIDI.POPULATE 10 p {}", limit + 1)), refused);
            assert_eq!(client.run("MIDI.GET k"), Value::bulk(&fits));
            assert_eq!(client.integer("MIDI.DBSIZE"), 1);
        }
    });
}

/// The limits count for whatever way a key comes in.
#[test]
fn import_keeps_the_limits_too() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("CONFIG SET midi.max-value-bytes 100 midi.max-key-bytes 50");
    client.ok(&format!("SET value {}", "v".repeat(101)));
    client.ok(&format!("SET {} v", "k".repeat(51)));
    client.run("MIDI.IMPORT *");
    assert_eq!(client.run("MIDI.KEYS *"), Value::Array(vec![]));
}

#[test]
fn unloading_is_refused() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        for _ in 0..2 {
            assert!(client.run("MODULE UNLOAD midi").is_error());
            assert!(server.log().contains("midi: MODULE UNLOAD refused"));
            assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
            smoke(&mut client);
        }
        let job = |client: &mut Client, _: &mut common::Random| {
            client.ok("MIDI.POPULATE 100000");
        };
        beside(server, 2, job, || assert!(client.run("MODULE UNLOAD midi").is_error()));
    });
}

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn used_memory(client: &mut Client) -> i64 {
    client.info_number("memory", "used_memory")
}

#[test]
fn writes_above_maxmemory_are_refused() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET a 1 b 2 c 3");
        client.ok("SET native 1");
        client.ok("CONFIG SET maxmemory 1000");
        for line in [
            "MIDI.SET k v",
            "MIDI.SET a v XX GET",
            "MIDI.MSET k v a v",
            "MIDI.POPULATE 10",
            "MIDI.IMPORT *",
            "MIDI.EXPORT *",
        ] {
            assert_eq!(client.run(line), Value::error(OOM), "{line}");
        }
        assert_eq!(client.run("MIDI.MGET a k"), Value::Array(vec![Value::bulk("1"), Value::NullBulk]));
        assert_eq!(client.integer("MIDI.EXPIRE a 100"), 1);
        assert_eq!(client.integer("MIDI.PERSIST a"), 1);
        assert_eq!(client.integer("MIDI.DEL a"), 1);
        assert_eq!(client.integer("MIDI.DBSIZE"), 2);
        client.ok("MIDI.FLUSHALL");
        client.ok("CONFIG SET maxmemory 0");
        smoke(&mut client);
    });
}

/// How far a long write may go beyond `maxmemory`.
const OVERSHOOT: i64 = 10 << 20;
const ROOM: i64 = 40 << 20;

/// Fills the server by `line` until it is refused; the highest memory use seen.
fn fill(server: &Server, line: &str) -> i64 {
    let mut client = server.client();
    let limit = used_memory(&mut client) + ROOM;
    client.ok(&format!("CONFIG SET maxmemory {limit}"));
    let highest = Mutex::new(0);
    let watch = |client: &mut Client, _: &mut common::Random| {
        let used = used_memory(client);
        let mut highest = highest.lock().expect("highest");
        *highest = used.max(*highest);
    };
    let reply = beside(server, 1, watch, || client.run(line));
    assert_eq!(reply, Value::error(OOM), "{line}");
    let keys = client.integer("MIDI.DBSIZE");
    assert!(keys > 10, "only {keys} keys were made");
    assert_eq!(client.run("MIDI.SET k v"), Value::error(OOM));
    let highest = used_memory(&mut client).max(*highest.lock().expect("highest"));
    client.ok("CONFIG SET maxmemory 0");
    client.ok("MIDI.FLUSHALL SYNC");
    smoke(&mut client);
    highest - limit
}

#[test]
fn populate_stops_at_maxmemory() {
    for mode in [Mode::Adaptive, Mode::Pool] {
        let server = mode.server();
        for line in ["MIDI.POPULATE 3000000", "MIDI.POPULATE 200000 p 2000", "MIDI.POPULATE 300 p 1000000"] {
            let above = fill(&server, line);
            println!("{mode:?} {line}: {above} bytes above maxmemory");
            assert!(above < OVERSHOOT, "{line} went {above} bytes above maxmemory");
        }
    }
}

/// Where it runs to its end on the main thread, too.
#[test]
fn populate_stops_at_maxmemory_in_safemode() {
    let above = fill(&Mode::Safe.server(), "MIDI.POPULATE 1000000");
    assert!(above < OVERSHOOT, "it went {above} bytes above maxmemory");
}

#[test]
fn import_stops_at_maxmemory() {
    for mode in [Mode::Adaptive, Mode::Pool] {
        let server = mode.server();
        server.client().ok("DEBUG POPULATE 100000 key 1000");
        let above = fill(&server, "MIDI.IMPORT *");
        println!("{mode:?}: {above} bytes above maxmemory");
        assert!(above < OVERSHOOT, "it went {above} bytes above maxmemory");
    }
}

/// MIDI's deletions make room again.
#[test]
fn deleting_makes_room_below_maxmemory() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let limit = used_memory(&mut client) + (20 << 20);
        client.ok("MIDI.POPULATE 30000 p 1000");
        client.ok(&format!("CONFIG SET maxmemory {limit}"));
        assert_eq!(client.run("MIDI.SET k v"), Value::error(OOM));
        client.ok("MIDI.FLUSHALL");
        wait_until("there is room", || client.run("MIDI.SET k v") == Value::ok());
    });
}
