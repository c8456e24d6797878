//! The promise: settings come from load arguments, redis.conf and CONFIG. Wrong settings are
//! refused with a clear message. Limits hold, and refusals name them. COMMAND, ACL, INFO,
//! MIDI.INFO, JOBS and HELP report on midi.

use super::commands::OWN;
use crate::common::hosts::has_newer_tips;
use crate::common::{
    Builder, Client, Mode, Server, Value, in_all_modes, module, redis_server, skip, wait_until,
};

/// Every MIDI command with a stock command of the same kind.
const STOCK: [&str; 56] = [
    "get",
    "set",
    "mget",
    "mset",
    "del",
    "unlink",
    "exists",
    "touch",
    "type",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "ttl",
    "pttl",
    "expiretime",
    "pexpiretime",
    "persist",
    "rename",
    "renamenx",
    "copy",
    "move",
    "dump",
    "restore",
    "keys",
    "scan",
    "randomkey",
    "dbsize",
    "flushdb",
    "flushall",
    "swapdb",
    "incr",
    "decr",
    "incrby",
    "decrby",
    "incrbyfloat",
    "append",
    "strlen",
    "getrange",
    "substr",
    "setrange",
    "setnx",
    "setex",
    "psetex",
    "getset",
    "msetnx",
    "getdel",
    "getex",
    "lcs",
    "setbit",
    "getbit",
    "bitcount",
    "bitpos",
    "bitop",
    "bitfield",
    "bitfield_ro",
];

/// Commands that have subcommands in stock servers only.
const WITHOUT_SUBCOMMANDS: [&str; 2] = ["object", "memory"];

fn every_command() -> impl Iterator<Item = String> {
    STOCK.iter().chain(&OWN).chain(&WITHOUT_SUBCOMMANDS).map(|name| format!("midi.{name}"))
}

#[track_caller]
fn setting(client: &mut Client, name: &str) -> String {
    let found = client.run(&format!("CONFIG GET midi.{name}")).map();
    found.get(&format!("midi.{name}")).unwrap_or_else(|| panic!("no midi.{name}")).text()
}

#[test]
fn load_arguments_are_taken() {
    let server = Builder::new()
        .load(
            "threads 3 SHARDS 64 midi.dispatch pool max-jobs 7 Max-Queued-Commands 50 \
             max-pattern-bytes 100",
        )
        .load("max-key-bytes 200 max-value-bytes 5000 keep-bytes 4096 max-atomic-keys 9")
        .start();
    let mut client = server.client();
    for (name, value) in [
        ("threads", "3"),
        ("shards", "64"),
        ("dispatch", "pool"),
        ("max-jobs", "7"),
        ("max-queued-commands", "50"),
        ("max-pattern-bytes", "100"),
        ("max-key-bytes", "200"),
        ("max-value-bytes", "5000"),
        ("keep-bytes", "4096"),
        ("max-atomic-keys", "9"),
        ("safemode", "no"),
    ] {
        assert_eq!(setting(&mut client, name), value, "{name}");
    }
    let shards = client.info("midi_shards");
    assert_eq!((shards["midi_threads"].as_str(), shards["midi_shards"].as_str()), ("3", "64"));
    assert_eq!(client.info("midi_workers").len(), 3);
}

#[test]
fn safemode_is_a_word_or_a_setting() {
    for arguments in ["SAFEMODE", "safemode", "midi.safemode yes"] {
        let server = Builder::new().load(arguments).start();
        assert_eq!(setting(&mut server.client(), "safemode"), "yes", "{arguments}");
    }
    let server = Builder::new().load("midi.safemode no").start();
    assert_eq!(setting(&mut server.client(), "safemode"), "no");
}

#[test]
fn wrong_load_arguments_end_the_start() {
    for (arguments, reason) in [
        ("nosuch 1", "unknown load argument 'nosuch'"),
        ("threads", "threads needs a value"),
        ("threads abc", "threads must be between 0 and 256, not 'abc'"),
        ("threads -1", "threads must be between"),
        ("threads 257", "threads must be between"),
        ("threads 2x", "threads must be between"),
        ("shards 0", "shards must be between"),
        ("shards 1000", "midi.shards must be a power of two, not 1000"),
        ("shards 131072", "shards must be between"),
        ("dispatch fast", "dispatch must be one of adaptive, pool, not 'fast'"),
        ("dispatch", "dispatch needs a value"),
        ("midi.safemode maybe", "safemode must be one of no, yes, not 'maybe'"),
        ("max-jobs 0", "max-jobs must be between"),
        ("keep-bytes 10", "keep-bytes must be between"),
        ("SAFEMODE 1", "unknown load argument '1'"),
        ("midi.midi.threads 1", "unknown load argument"),
    ] {
        let log = Builder::new().load(arguments).try_start().err();
        let log = log.unwrap_or_else(|| panic!("{arguments:?} was taken"));
        let line = log.lines().find(|line| line.contains("<midi> Not loaded:"));
        let line = line.unwrap_or_else(|| panic!("{arguments:?} without a reason:\n{log}"));
        assert!(line.contains(reason), "{arguments:?}: {line}");
        assert!(!log.contains("BUG REPORT"), "{arguments:?}:\n{log}");
    }
}

#[test]
fn module_load_at_run_time_works_and_refuses() {
    let server = Builder::plain().start();
    let mut client = server.client();
    let path = module().display().to_string();
    let mut load = |arguments: &str| client.run(format!("MODULE LOAD {path} {arguments}").trim());
    assert!(load("nosuch 1").is_error());
    assert!(load("shards 3").is_error());
    assert_eq!(load("threads 2"), Value::ok());
    assert!(load("").is_error(), "it is loaded already");
    client.ok("MIDI.SET k v");
    assert_eq!(client.run("MIDI.KEYS *"), Value::Array(vec![Value::bulk("k")]));
    assert_eq!(setting(&mut client, "threads"), "2");
    assert!(server.log().contains("<midi> Not loaded: unknown load argument 'nosuch'"));
}

#[test]
fn redis_conf_sets_what_load_arguments_do_not() {
    let server = Builder::new()
        .load("threads 2")
        .config("midi.shards 32")
        .config("midi.dispatch pool")
        .config("midi.max-value-bytes 1mb")
        .config("midi.threads 4")
        .start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "shards"), "32");
    assert_eq!(setting(&mut client, "dispatch"), "pool");
    assert_eq!(setting(&mut client, "max-value-bytes"), "1048576");
    assert_eq!(setting(&mut client, "threads"), "4", "redis.conf counts more than a load argument");
    assert_eq!(client.info("midi_shards")["midi_shards"], "32");
    for line in [
        "midi.nosuch 1",
        "midi.threads abc",
        "midi.shards 5",
        "midi.dispatch fast",
        "midi.max-jobs 0",
    ] {
        let log = Builder::new().config(line).try_start().err();
        let log = log.unwrap_or_else(|| panic!("{line:?} was taken"));
        assert!(!log.contains("BUG REPORT"), "{line:?}:\n{log}");
    }
}

#[test]
fn config_set_changes_what_can_change() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    for (name, value) in [
        ("dispatch", "pool"),
        ("dispatch", "adaptive"),
        ("max-jobs", "3"),
        ("max-queued-commands", "1000"),
        ("max-pattern-bytes", "10"),
        ("max-key-bytes", "20"),
        ("max-value-bytes", "30"),
        ("keep-bytes", "65536"),
        ("max-atomic-keys", "2"),
    ] {
        client.ok(&format!("CONFIG SET midi.{name} {value}"));
        assert_eq!(setting(&mut client, name), value);
    }
    for (name, value) in [("threads", "1"), ("shards", "16"), ("safemode", "yes")] {
        let reply = client.run(&format!("CONFIG SET midi.{name} {value}"));
        assert!(reply.is_error() && reply.text().contains("immutable"), "{name}: {reply:?}");
    }
    for line in [
        "midi.dispatch fast",
        "midi.max-jobs 0",
        "midi.max-jobs -1",
        "midi.max-key-bytes x",
        "midi.nosuch 1",
    ] {
        let reply = client.run(&format!("CONFIG SET {line}"));
        assert!(reply.is_error(), "{line}: {reply:?}");
    }
    assert_eq!(setting(&mut client, "max-jobs"), "3");
    assert_eq!(setting(&mut client, "dispatch"), "adaptive");
    assert!(client.run("CONFIG GET midi.*").map().len() >= 10);
}

#[test]
fn config_rewrite_keeps_changes() {
    let mut server = Builder::new().load("threads 2").start();
    let mut client = server.client();
    client.ok("CONFIG SET midi.dispatch pool");
    client.ok("CONFIG SET midi.max-jobs 5");
    client.ok("CONFIG REWRITE");
    let file = server.config_file();
    assert!(file.contains("midi.dispatch pool") && file.contains("midi.max-jobs 5"), "{file}");
    drop(client);
    server.restart(redis_server());
    let mut client = server.client();
    assert_eq!(setting(&mut client, "dispatch"), "pool");
    assert_eq!(setting(&mut client, "max-jobs"), "5");
    assert_eq!(setting(&mut client, "threads"), "2");
    client.ok("MIDI.SET k v");
}

fn refused(client: &mut Client, line: &str, limit: &str) {
    let reply = client.run(line);
    let shown: String = line.chars().take(60).collect();
    assert!(reply.is_error() && reply.text().contains(limit), "{shown}: {reply:?}");
}

#[test]
fn limits_are_kept_and_named() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok(
            "CONFIG SET midi.max-pattern-bytes 10 midi.max-key-bytes 20 midi.max-value-bytes 30",
        );
        let (pattern, key, value) =
            (format!("*{}", "p".repeat(10)), "k".repeat(21), "v".repeat(31));
        for line in ["MIDI.KEYS #", "MIDI.SCAN 0 MATCH #", "MIDI.IMPORT #", "MIDI.EXPORT #"] {
            refused(&mut client, &line.replace('#', &pattern), "midi.max-pattern-bytes 10");
            // What is in front of the first star or class costs no more than a key has bytes.
            for fine in [&pattern[..10], &"p".repeat(300), &format!("{}[p]*", "?".repeat(300))] {
                assert!(!client.run(&line.replace('#', fine)).is_error(), "{line} {fine}");
            }
            let class = format!("{}[{pattern}", "p".repeat(30));
            refused(&mut client, &line.replace('#', &class), "midi.max-pattern-bytes 10");
        }
        for line in ["MIDI.SET # v", "MIDI.MSET a 1 # 2", "MIDI.RENAME a #"] {
            refused(&mut client, &line.replace('#', &key), "midi.max-key-bytes 20");
            client.ok(&line.replace('#', &key[1..]));
        }
        for line in ["MIDI.SET k #", "MIDI.MSET x 1 y #", "MIDI.SET k # EX 100"] {
            refused(&mut client, &line.replace('#', &value), "midi.max-value-bytes 30");
            client.ok(&line.replace('#', &value[1..]));
        }
        refused(&mut client, "MIDI.POPULATE 5 p 31", "midi.max-value-bytes 30");
        assert!(client.run(&format!("MIDI.GET {key}")).is_null(), "looking is no harm");
        client.ok("MIDI.FLUSHALL");
        client.run(&format!("MIDI.MSET a 1 {key} 2"));
        assert_eq!(client.integer("MIDI.DBSIZE"), 0, "a refused MSET has no effect");
    });
}

/// A command that is atomic over its keys holds all their shards at once, so their number is
/// limited.
#[test]
fn atomic_commands_have_so_many_keys_at_most() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-atomic-keys 3");
        let refusal =
            Value::error("ERR too many keys for one atomic command (midi.max-atomic-keys 3)");
        client.ok("MIDI.MSET a 1 b 2 c 3");
        assert_eq!(client.run("MIDI.MSET a x b x c x d x"), refusal);
        assert_eq!(client.run("MIDI.MGET a b c d"), refusal);
        let pipeline = ["MIDI.MGET a b c", "MIDI.EXISTS a b c d", "MIDI.TOUCH a b c d"];
        let pipeline: Vec<Vec<&str>> =
            pipeline.iter().map(|line| line.split(' ').collect()).collect();
        let three = Value::Array(["1", "2", "3"].map(Value::bulk).to_vec());
        assert_eq!(client.pipeline(&pipeline), [three, Value::Integer(3), Value::Integer(3)]);
        client.ok("MULTI");
        client.run("MIDI.MSET a x b x c x d x");
        client.run("MIDI.MGET a a a a");
        assert_eq!(client.run("EXEC"), Value::Array(vec![refusal.clone(), refusal.clone()]));
        let script = "EVAL redis.pcall('MIDI.MSET','a','x','b','x','c','x','d','x') 0";
        client.run(script);
        assert_eq!(client.integer("MIDI.DBSIZE"), 3);
        assert_eq!(client.run("MIDI.GET a"), Value::bulk("1"));
        client.ok("CONFIG SET midi.max-atomic-keys 4");
        client.ok("MIDI.MSET a x b x c x d x");
        assert_eq!(client.integer("MIDI.DEL a b c d e f"), 4);
    });
}

/// Imported strings must respect midi's limits.
#[test]
fn imported_strings_are_held_to_the_limits() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-key-bytes 20 midi.max-value-bytes 30");
        client.ok(&format!("SET {} v", "k".repeat(21)));
        client.ok(&format!("SET k {}", "v".repeat(31)));
        client.run("MIDI.IMPORT *");
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
    });
}

#[test]
fn more_waiting_commands_than_allowed_are_refused() {
    let server = Mode::Pool.builder().load("max-queued-commands 3").start();
    let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    let mut refusals = 0;
    for _ in 0..50 {
        clients.iter_mut().for_each(|client| client.send_line("MIDI.SET k v"));
        for client in &mut clients {
            match client.read() {
                Value::Error(text) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    assert!(
                        text.starts_with("BUSY ") && text.contains("midi.max-queued-commands 3"),
                        "{text}"
                    );
                    refusals += 1;
                }
                reply => assert_eq!(reply, Value::ok()),
            }
        }
    }
    println!("{refusals} refused");
    clients[0].ok("MIDI.SET k last");
    assert_eq!(clients[1].run("MIDI.GET k"), Value::bulk("last"));
}

/// The host refuses it, without asking midi: midi has a data type, for its section in the RDB.
#[test]
fn module_unload_is_refused() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        let reply = client.run("MODULE UNLOAD midi");
        assert!(reply.is_error() && reply.text().contains("data types"), "{reply:?}");
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
    });
}

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn maxmemory_stops_writes_and_nothing_else() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET a 1 b 2");
        client.ok("SET a native");
        client.ok("CONFIG SET maxmemory 1");
        for line in [
            "SET x 1",
            "MIDI.SET x 1",
            "MIDI.MSET x 1",
            "MIDI.COPY a x",
            "MIDI.RESTORE x 0 v",
            "MIDI.POPULATE 10",
            "MIDI.IMPORT *",
            "MIDI.EXPORT *",
        ] {
            assert_eq!(client.run(line), Value::error(OOM), "{line}");
        }
        assert_eq!(
            client.run("MIDI.MGET a b"),
            Value::Array(vec![Value::bulk("1"), Value::bulk("2")])
        );
        assert_eq!(client.integer("MIDI.EXPIRE a 100"), 1);
        client.ok("MIDI.RENAME a a");
        assert_eq!(client.run("MIDI.KEYS a"), Value::Array(vec![Value::bulk("a")]));
        assert_eq!(client.integer("MIDI.DEL a"), 1);
        client.ok("MIDI.FLUSHALL");
        client.ok("CONFIG SET maxmemory 0");
        client.ok("MIDI.SET x 1");
    });
}

/// How far above `maxmemory` a long write may end. It leaves room for what the host itself needs,
/// and is far less than the command asks for.
const OVERSHOOT: i64 = 32 << 20;

#[test]
fn populate_stops_at_maxmemory() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let limit = client.info_number("memory", "used_memory") + (40 << 20);
        client.ok(&format!("CONFIG SET maxmemory {limit}"));
        // This would take 400 MB if nothing stopped it.
        assert_eq!(client.run("MIDI.POPULATE 400000 p 1000"), Value::error(OOM));
        let used = client.info_number("memory", "used_memory");
        assert!(used < limit + OVERSHOOT, "{} MB above maxmemory", (used - limit) >> 20);
        assert!(client.integer("MIDI.DBSIZE") > 1000, "there was room for some");
        // The job has freed its own memory, so there may be a little room.
        let value = "v".repeat(100_000);
        let full = (0..100).any(|number| {
            client.call(&["MIDI.SET", &format!("x{number}"), &value]) == Value::error(OOM)
        });
        assert!(full, "writes are refused too");
        client.ok("MIDI.FLUSHALL SYNC");
        wait_until("there is room again", || client.run("MIDI.SET x 1") == Value::ok());
    });
}

/// Transactions and scripts must not go far beyond `maxmemory` either.
#[test]
fn populate_stops_at_maxmemory_where_it_cannot_block() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let limit = client.info_number("memory", "used_memory") + (40 << 20);
        client.ok(&format!("CONFIG SET maxmemory {limit}"));
        client.ok("MULTI");
        client.run("MIDI.POPULATE 400000 p 1000");
        let reply = client.run("EXEC").array();
        let used = client.info_number("memory", "used_memory");
        assert!(used < limit + OVERSHOOT, "{} MB above maxmemory", (used - limit) >> 20);
        assert_eq!(reply, [Value::error(OOM)]);
    });
}

/// The parts of a COMMAND INFO reply that clients use.
fn command_info(client: &mut Client, name: &str) -> (i64, Vec<String>, [i64; 3]) {
    let reply = client.run(&format!("COMMAND INFO {name}")).array().remove(0).array();
    let mut flags: Vec<String> = reply[2].clone().array().iter().map(Value::text).collect();
    flags.retain(|flag| {
        !matches!(flag.as_str(), "module" | "loading" | "stale" | "random" | "sort_for_script")
    });
    flags.sort();
    (reply[1].integer(), flags, [3, 4, 5].map(|at| reply[at].integer()))
}

#[test]
fn command_info_is_that_of_the_stock_command() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    for name in STOCK {
        let native = command_info(&mut client, name);
        let mut midi = command_info(&mut client, &format!("midi.{name}"));
        if ["set", "bitfield"].contains(&name) {
            // A module's command can only report what its options do to a key if it reports the key
            // itself.
            let at = midi
                .1
                .iter()
                .position(|flag| flag == "movablekeys")
                .expect("the module is asked for keys");
            midi.1.remove(at);
        }
        assert_eq!(native, midi, "{name}");
    }
    for (name, flag) in
        [("populate", "write"), ("import", "denyoom"), ("export", "write"), ("jobs", "admin")]
    {
        let (_, flags, _) = command_info(&mut client, &format!("midi.{name}"));
        assert!(flags.iter().any(|found| found == flag), "{name}: {flags:?}");
    }
}

/// Tips for clients of clusters and proxies.
#[test]
fn tips_are_those_of_the_stock_command() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let mut tips = |name: &str| {
        let info = client.run(&format!("COMMAND INFO {name}")).array().remove(0).array();
        info[7].clone().sorted()
    };
    // Redis also reports tips of OBJECT's subcommands, and midi has none.
    for name in STOCK.into_iter().chain(["info"]).filter(|name| !has_newer_tips(name)) {
        assert_eq!(tips(&format!("midi.{name}")), tips(name), "{name}");
    }
    assert_eq!(
        tips("midi.dbsize"),
        ["request_policy:all_shards", "response_policy:agg_sum"].map(Value::bulk)
    );
}

/// Key specs: where keys are and what happens to them.
#[test]
fn key_specs_are_those_of_the_stock_command() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    let mut specs = |name: &str| {
        client.run(&format!("COMMAND INFO {name}")).array()[0].clone().array()[8].clone()
    };
    let without_notes = |value: Value| -> Vec<Vec<(Value, Value)>> {
        let (Value::Set(list) | Value::Array(list)) = value else { panic!("{value:?}") };
        let maps = list.into_iter().map(|spec| match spec {
            Value::Map(pairs) => {
                pairs.into_iter().filter(|(key, _)| key.text() != "notes").collect()
            }
            other => panic!("{other:?}"),
        });
        maps.collect()
    };
    let mut differences = Vec::new();
    for name in STOCK {
        // SET's spec depends on its GET option. midi's spec declares the most that SET may do.
        let (native, midi) =
            (without_notes(specs(name)), without_notes(specs(&format!("midi.{name}"))));
        if native != midi && name != "set" {
            differences.push(format!("{name}: stock {native:?}, midi {midi:?}"));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn command_getkeys_finds_the_keys() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    for line in [
        "get a",
        "set a b",
        "set a b EX 10 GET",
        "mget a b c",
        "mset a 1 b 2 c 3",
        "del a b",
        "unlink a",
        "exists a b",
        "type a",
        "expire a 10",
        "pexpire a 10 NX",
        "ttl a",
        "pttl a",
        "persist a",
        "touch a b",
        "expireat a 10",
        "pexpiretime a",
        "rename a b",
        "renamenx a b",
        "copy a b DB 1",
        "move a 1",
        "object encoding a",
        "memory usage a",
        "dump a",
        "restore a 0 b",
    ] {
        let native = client.run(&format!("COMMAND GETKEYS {line}"));
        let midi = client.run(&format!("COMMAND GETKEYS midi.{line}"));
        assert_eq!(native, midi, "{line}");
        assert!(!midi.is_error(), "{line}");
    }
    assert!(client.run("COMMAND GETKEYS midi.keys *").is_error(), "a pattern is no key");
}

#[test]
fn command_docs_has_every_command() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    let all = || every_command().chain(["midi.journal".to_owned()]);
    for name in all() {
        let mut docs = client.run(&format!("COMMAND DOCS {name}")).map();
        let docs = docs.remove(&name).unwrap_or_else(|| panic!("no docs of {name}")).map();
        for field in ["summary", "since", "complexity"] {
            assert!(!docs[field].text().is_empty(), "{name} {field}");
        }
        assert_eq!(docs["module"].text(), "midi");
        let (arity, _, _) = command_info(&mut client, &name);
        assert_eq!(docs.contains_key("arguments"), arity != 1, "{name}");
    }
    assert_eq!(client.run("COMMAND LIST FILTERBY MODULE midi").array().len(), all().count());
}

/// ACL rules, each for the stock command and for midi's.
const RULES: [&str; 9] = [
    "+get ~key*",
    "+get +set ~key1 ~other*",
    "+@all ~key*",
    "+@all ~*",
    "+@all %R~key*",
    "+@all %W~key*",
    "+@all -set -del ~*",
    "+mset +mget %R~key* %W~other*",
    "-@all ~*",
];

/// The rule for both families of commands.
fn for_both(rule: &str) -> String {
    let twice = rule.split(' ').map(|word| match word.split_at(1) {
        (sign @ ("+" | "-"), name) if !name.starts_with('@') => format!("{word} {sign}midi.{name}"),
        _ => word.to_owned(),
    });
    twice.collect::<Vec<_>>().join(" ")
}

/// A user has the same right to run midi's command on a key as to run the stock command. SET is
/// left out where reading and writing differ: stock SET checks its GET option before it requires
/// the right to read.
#[test]
fn acl_rules_count_as_for_stock_commands() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let mut differences = Vec::new();
    for rule in RULES {
        client.ok(&format!("ACL SETUSER alice reset on nopass {}", for_both(rule)));
        for line in [
            "get key1",
            "get other1",
            "set key1 v",
            "set other1 v",
            "set key1 v GET",
            "mget key1 key2",
            "mget key1 other1",
            "mset key1 v key2 v",
            "mset key1 v other1 v",
            "del key1",
            "unlink other1",
            "exists key1",
            "exists other1",
            "type key1",
            "expire key1 5",
            "pexpire other1 5",
            "ttl key1",
            "pttl key1",
            "persist key1",
            "touch key1 other1",
            "expireat key1 5",
            "expiretime other1",
            "rename key1 key2",
            "rename key1 other1",
            "renamenx other1 key1",
            "copy key1 key2",
            "copy key1 other1",
            "copy other1 key1",
            "move key1 1",
            "dump key1",
            "dump other1",
            "restore key1 0 v",
            "swapdb 0 1",
            "keys *",
            "scan 0",
            "randomkey",
            "dbsize",
            "flushdb",
            "flushall",
        ] {
            let native = dry_run(&mut client, line);
            let midi = dry_run(&mut client, &format!("midi.{line}"));
            if native != midi && !(line.starts_with("set ") && rule.contains('%')) {
                differences.push(format!("{rule}: {line}: stock {native}, midi {midi}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// On hosts where modules may name ACL categories.
#[test]
fn acl_categories_are_those_of_the_stock_command() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    if !client.run("ACL CAT read").array().contains(&Value::bulk("midi.get")) {
        return skip("this host gives modules no ACL categories");
    }
    for category in client.run("ACL CAT").array() {
        let names = client.run(&format!("ACL CAT {}", category.text())).array();
        for name in STOCK {
            let has = |name: &str| names.contains(&Value::bulk(name));
            assert_eq!(has(name), has(&format!("midi.{name}")), "{name} in {}", category.text());
        }
    }
}

fn dry_run(client: &mut Client, line: &str) -> String {
    client.run(&format!("ACL DRYRUN alice {line}")).text().replace("midi.", "")
}

/// A logged-in user as in the issue: `+midi.get ~key*`.
#[test]
fn a_restricted_user_is_restricted() {
    in_all_modes(|_, server| {
        server.client().ok("MIDI.MSET key1 1 other1 2");
        server.client().ok("ACL SETUSER alice on >secret +midi.get +midi.mget ~key*");
        let mut client = server.client();
        client.ok("AUTH alice secret");
        assert_eq!(client.run("MIDI.GET key1"), Value::bulk("1"));
        for line in [
            "MIDI.GET other1",
            "MIDI.MGET key1 other1",
            "MIDI.SET key1 v",
            "GET key1",
            "MIDI.KEYS *",
            "MIDI.JOBS",
        ] {
            let reply = client.run(line);
            assert!(reply.is_error() && reply.text().starts_with("NOPERM"), "{line}: {reply:?}");
        }
    });
}

#[test]
fn info_has_its_sections() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET a 1 b 2");
        client.ok("MIDI.SET c 3 EX 1000");
        for _ in 0..20 {
            client.run("MIDI.GET a");
        }
        for (section, fields) in [
            ("shards", vec!["shards", "threads", "safemode", "version", "panics"]),
            ("keyspace", vec!["db0"]),
            (
                "memory",
                vec![
                    "table_bytes",
                    "bytes_per_key",
                    "kept_arguments",
                    "watched_names",
                    "watched_bytes",
                    "evictable_host_keys",
                ],
            ),
            ("expiry", vec!["expiring_keys", "expired_keys"]),
            ("dispatch", vec!["dispatch", "ran_at_once", "queued", "queue_depth"]),
            ("workers", vec!["worker0", "worker1"]),
            ("jobs", vec!["jobs_running", "jobs_started"]),
            ("commandstats", vec!["cmdstat_get", "cmdstat_mset", "cmdstat_set"]),
        ] {
            let found = client.info(&format!("midi_{section}"));
            for field in fields {
                assert!(
                    found.contains_key(&format!("midi_{field}")),
                    "midi_{section}: no {field} in {found:?}"
                );
            }
        }
        assert_eq!(client.info("midi_keyspace")["midi_db0"], "keys=3,expires=1");
        assert!(client.info("midi_commandstats")["midi_cmdstat_get"].starts_with("calls=20,usec="));
        assert!(client.run("INFO everything").text().contains("# midi_shards"));
        assert!(!client.run("INFO").text().contains("# midi_"), "as other modules' sections");
    });
}

#[test]
fn midi_info_tells_the_same() {
    in_all_modes(|_, server| {
        for resp3 in [false, true] {
            let mut client = if resp3 { server.client().resp3() } else { server.client() };
            client.ok("MIDI.SET a 1");
            let reply = client.run("MIDI.INFO");
            assert!(if resp3 {
                matches!(reply, Value::Verbatim(_))
            } else {
                matches!(reply, Value::Bulk(_))
            });
            let all = reply.text();
            for section in [
                "shards",
                "keyspace",
                "memory",
                "expiry",
                "dispatch",
                "workers",
                "jobs",
                "commandstats",
            ] {
                assert!(all.contains(&format!("# midi_{section}\r\n")), "{all}");
                let one = client.run(&format!("MIDI.INFO {section}")).text();
                assert_eq!(one.matches("# midi_").count(), 1, "{section}: {one}");
                assert_eq!(
                    client.run(&format!("MIDI.INFO midi_{section}")).text().matches("# ").count(),
                    1
                );
            }
            assert!(client.run("MIDI.INFO SHARDS Jobs").text().matches("# midi_").count() == 2);
            assert!(!client.run("MIDI.INFO nosuch").text().contains('#'));
        }
    });
}

#[test]
fn midi_help_lists_every_command() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let lines: Vec<String> = client.run("MIDI.HELP").array().iter().map(Value::text).collect();
        for name in every_command() {
            let name = name.to_uppercase();
            assert!(
                lines.iter().any(|line| line.split([' ', '\t']).next() == Some(&name)),
                "{name}"
            );
        }
        assert!(client.run("MIDI.HELP x").is_error());
    });
}

fn jobs_of(server: &Server, resp3: bool) -> Vec<Value> {
    let mut client = server.client();
    client = if resp3 { client.resp3() } else { client };
    client.run("MIDI.JOBS").array()
}

#[test]
fn midi_jobs_shows_what_runs() {
    for mode in [Mode::Adaptive, Mode::Pool] {
        let server = mode.server();
        assert!(jobs_of(&server, false).is_empty());
        let mut client = server.client();
        client.ok("SELECT 3");
        let id = client.id();
        // More keys than POPULATE makes before the test ends it.
        client.send_line("MIDI.POPULATE 30000000");
        wait_until("the job runs", || !jobs_of(&server, false).is_empty());
        let mut number = 0;
        for resp3 in [false, true] {
            let job = jobs_of(&server, resp3).remove(0);
            assert_eq!(matches!(job, Value::Map(_)), resp3);
            let job = job.map();
            assert_eq!(job["command"].text(), "populate");
            assert_eq!(job["database"], Value::Integer(3));
            assert_eq!(
                (&job["client"], job["door"].text()),
                (&Value::Integer(id), "host".to_owned())
            );
            assert_eq!(job["total"], Value::Integer(30_000_000));
            assert!((0..=30_000_000).contains(&job["done"].integer()));
            number = job["id"].integer();
            assert!(number > 0 && job["elapsed"].integer() >= 0);
        }
        let mut admin = server.client();
        let fields = admin.info("midi_jobs");
        assert!(
            fields.values().any(|value| value.starts_with("command=populate,db=3,")),
            "{fields:?}"
        );
        for line in
            ["MIDI.JOBS CANCEL", "MIDI.JOBS NOSUCH", "MIDI.JOBS CANCEL 1 2", "MIDI.JOBS KILL 1"]
        {
            assert!(admin.run(line).is_error(), "{line}");
        }
        assert_eq!(
            admin.run("MIDI.JOBS CANCEL abc"),
            Value::error("ERR value is not an integer or out of range")
        );
        admin.ok(&format!("MIDI.JOBS CANCEL {number}"));
        assert!(client.read().is_error());
    }
}

/// MIDI.POPULATE makes the same keys as DEBUG POPULATE.
#[test]
fn populate_is_debug_populate() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for arguments in
            ["100", "50 p", "30 q 5", "30 r 100", "0", "5 z 0", "20 long-prefix-of-a-name 1"]
        {
            client.ok(&format!("DEBUG POPULATE {arguments}"));
            client.ok(&format!("MIDI.POPULATE {arguments}"));
            let keys = client.run("KEYS *").sorted();
            assert_eq!(keys, client.run("MIDI.KEYS *").sorted(), "{arguments}");
            for key in keys {
                assert_eq!(
                    client.call(&[b"GET".as_slice(), key.bytes()]),
                    client.call(&[b"MIDI.GET".as_slice(), key.bytes()])
                );
            }
        }
        // Existing keys keep their values.
        client.ok("MIDI.SET key:7 mine");
        client.ok("MIDI.POPULATE 200");
        assert_eq!(client.run("MIDI.GET key:7"), Value::bulk("mine"));
        for line in [
            "MIDI.POPULATE",
            "MIDI.POPULATE abc",
            "MIDI.POPULATE -1",
            "MIDI.POPULATE 1 p -1",
            "MIDI.POPULATE 1 p 1 x",
        ] {
            assert!(client.run(line).is_error(), "{line}");
        }
    });
}
