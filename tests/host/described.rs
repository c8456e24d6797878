//! The promise: COMMAND describes midi's commands as it describes the host's own: arity, flags,
//! keys, tips and documentation.

use std::collections::BTreeSet;

use super::acl::dry_run;
use super::commands::{ROWS, has_keys, names, stock, twins, words};
use crate::common::described::{key_specs, texts};
use crate::common::hosts::has_newer_tips;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value};

fn command_info(client: &mut Client, name: &str) -> Vec<Value> {
    client.run(&format!("COMMAND INFO {name}")).array().remove(0).array()
}

#[test]
fn the_host_lists_exactly_these() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let listed = texts(&client.run("COMMAND LIST FILTERBY MODULE midi"));
    // Those that clients may not call have no row here.
    let names = ROWS.iter().map(|row| row.name).chain(["journal", "unsupported", "listen"]);
    assert_eq!(listed, names.map(|name| format!("midi.{name}")).collect());
}

/// Flags that mean the same for any command. The others describe how the host runs its own.
const FLAGS: [&str; 5] = ["write", "readonly", "denyoom", "fast", "admin"];

#[test]
fn flags() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    for row in &ROWS {
        let found = texts(&command_info(&mut client, &format!("midi.{}", row.name))[2]);
        let mut expected: BTreeSet<_> = row.flags.split_whitespace().map(str::to_owned).collect();
        expected.insert("module".into());
        assert_eq!(found, expected, "{}", row.name);
    }
    for row in twins() {
        let native = texts(&command_info(&mut client, row.name)[2]);
        let native: Vec<_> = FLAGS.iter().filter(|flag| native.contains(**flag)).collect();
        let midi: Vec<_> = FLAGS.iter().filter(|flag| row.flags.contains(**flag)).collect();
        assert_eq!(midi, native, "{}", row.name);
    }
}

#[test]
fn arity_and_keys_are_those_of_the_host() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    let mut different = Vec::new();
    for row in twins() {
        let midi = command_info(&mut client, &format!("midi.{}", row.name));
        let native = command_info(&mut client, row.name);
        // Arity, first, last, step.
        for field in [1, 3, 4, 5] {
            assert_eq!(midi[field], native[field], "field {field} of {}", row.name);
        }
        let (midi, native) = (key_specs(&midi[8]), key_specs(&native[8]));
        if midi != native {
            different.push(format!("{}: {midi:?} and not {native:?}", row.name));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// To the host, a command with subcommands looks like its subcommand for a key.
#[test]
fn containers_are_like_their_subcommands() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    for (name, subcommand) in [("object", "encoding"), ("memory", "usage")] {
        let midi = command_info(&mut client, &format!("midi.{name}"));
        let native = command_info(&mut client, &format!("{name}|{subcommand}"));
        assert_eq!(key_specs(&midi[8]), key_specs(&native[8]), "{name}");
        for field in [3, 4, 5] {
            assert_eq!(midi[field], native[field], "field {field} of {name}");
        }
        assert_eq!(midi[1], command_info(&mut client, name)[1], "arity of {name}");
        let midi = client.run(&format!("COMMAND GETKEYS midi.{name} {subcommand} key1"));
        assert_eq!(midi, client.run(&format!("COMMAND GETKEYS {name} {subcommand} key1")));
    }
}

#[test]
fn getkeys_finds_the_same_keys() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    for row in twins() {
        let mut ask = |prefix| {
            let head = ["COMMAND".to_owned(), "GETKEYS".to_owned()];
            client.call(&[&head[..], &words(row, prefix)].concat())
        };
        let (midi, native) = (ask("midi."), ask(""));
        assert_eq!(midi, native, "{}", row.name);
        assert_eq!(midi.is_error(), !has_keys(row), "{}", row.name);
    }
    let keys = client.run("COMMAND GETKEYS midi.msetex 2 a 1 b 2 EX 10");
    assert_eq!(keys, Value::Array(vec![Value::bulk("a"), Value::bulk("b")]));
    client.ok("ACL SETUSER u reset on +@all ~key*");
    for (call, allowed) in
        [("2 key1 a key2 b EX 10", true), ("2 key1 a other b", false), ("2 other a key1 b", false)]
    {
        let call: Vec<String> =
            format!("midi.msetex {call}").split(' ').map(str::to_owned).collect();
        assert_eq!(dry_run(&mut client, "u", &call) == Value::ok(), allowed, "{call:?}");
    }
    for row in ["populate 3 x", "import x", "export x", "jobs", "info"] {
        assert!(client.run(&format!("COMMAND GETKEYS midi.{row}")).is_error(), "{row}");
    }
}

#[test]
fn every_command_is_documented() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    for row in &ROWS {
        let name = format!("midi.{}", row.name);
        let docs =
            client.run(&format!("COMMAND DOCS {name}")).map().remove(&name).expect("docs").map();
        assert!(docs["summary"].text().ends_with('.'), "{name}");
        assert!(docs["complexity"].text().starts_with("O("), "{name}");
        assert_eq!(docs["module"].text(), "midi");
        assert_eq!(docs["since"].text(), "0.1.0");
        let arguments = docs.get("arguments").map_or(Vec::new(), |list| list.clone().array());
        let names: Vec<_> =
            arguments.iter().map(|argument| argument.clone().map()["name"].text()).collect();
        assert_eq!(names.join(" "), row.arguments, "{name}");
    }
}

/// The words in a command's documentation.
fn tokens(docs: &Value, found: &mut BTreeSet<String>) {
    match docs {
        Value::Map(pairs) => {
            for (name, value) in pairs {
                if name.text() == "token" {
                    found.insert(value.text());
                }
                tokens(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| tokens(value, found)),
        _ => {}
    }
}

#[test]
fn the_documentation_names_the_same_words() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    for row in twins() {
        let mut words_of = |name: String| {
            let mut found = BTreeSet::new();
            tokens(&client.run(&format!("COMMAND DOCS {name}")), &mut found);
            found
        };
        let (mut midi, native) =
            (words_of(format!("midi.{}", row.name)), words_of(row.name.into()));
        // Words of SET that some hosts are too old to have.
        midi.retain(|word| row.name != "set" || !word.starts_with("IF") || native.contains(word));
        // A word of HSCAN that hosts before Redis 7.4 and Valkey 8.0 lack.
        midi.retain(|word| word != "NOVALUES" || native.contains(word));
        // Redis 7.0 does not document BITOP's operations, and newer hosts have more of them.
        if row.name == "bitop" {
            continue;
        }
        assert_eq!(midi, native, "{}", row.name);
    }
}

/// Calls of SET. Its options decide what happens to the key.
pub const SETS: [&str; 5] =
    ["key1 v", "key1 v NX", "key1 GET", "key1 v get", "key1 v EX 10 XX GET"];

/// The same for BITFIELD.
pub const BITFIELDS: [&str; 10] = [
    "key1",
    "key1 GET u8 0",
    "key1 GET u8 0 set u8 0 1",
    "key1 OVERFLOW FAIL INCRBY u8 0 1",
    "key1 OVERFLOW FAIL GET u8 0",
    // Wrong ones.
    "key1 GET REPLACE",
    "key1 GET set 0",
    "key1 OVERFLOW set",
    "key1 SET u8 0",
    "key1 GET u8 0 NOSUCH",
];

/// On both doors and in ACL rules, a command reads or writes the same keys as the host's command.
#[test]
fn getkeysandflags_say_what_happens_to_keys() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut host, mut port) = (ported.host(), ported.client());
    let ask = |client: &mut Client, call: &str| {
        let keys = client.run(&format!("COMMAND GETKEYSANDFLAGS {call}"));
        if keys.is_error() {
            return vec![(keys.text(), BTreeSet::new())];
        }
        let keys = keys.array().into_iter().map(Value::array);
        keys.map(|mut key| (key.remove(0).text(), texts(&key.remove(0)))).collect()
    };
    let others =
        twins().filter(|row| has_keys(row)).map(|row| format!("{} {}", row.name, row.call));
    let sets = SETS.iter().map(|call| format!("set {call}"));
    let bitfields = BITFIELDS.iter().map(|call| format!("bitfield {call}"));
    for call in others.chain(sets).chain(bitfields) {
        let native = ask(&mut host, &call);
        assert_eq!(ask(&mut host, &format!("midi.{call}")), native, "{call}");
        assert_eq!(ask(&mut port, &call), native, "{call} on the port");
        assert_eq!(ask(&mut port, &format!("midi.{call}")), native, "midi.{call} on the port");
    }
    // As in Redis 8.4.
    for (call, flags) in [
        ("set key1 v IFEQ x", "RW update"),
        ("set key1 v IFDNE x GET", "RW access update"),
        ("delifeq key1 x", "RM delete"),
        ("delex key1", "RM delete"),
        ("delex key1 IFNE x", "RW delete"),
    ] {
        let flags = flags.split(' ').map(str::to_owned).collect();
        let expected = vec![("key1".to_owned(), flags)];
        assert_eq!(ask(&mut host, &format!("midi.{call}")), expected, "{call}");
        assert_eq!(ask(&mut port, call), expected, "{call} on the port");
    }
}

/// The parts of a COMMAND INFO reply that clients use.
fn basics(client: &mut Client, name: &str) -> (i64, Vec<String>, [i64; 3]) {
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
    for name in stock() {
        let native = basics(&mut client, name);
        let mut midi = basics(&mut client, &format!("midi.{name}"));
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
        let (_, flags, _) = basics(&mut client, &format!("midi.{name}"));
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
    for name in stock().chain(["info"]).filter(|name| !has_newer_tips(name)) {
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
    for name in stock() {
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
    let all =
        || names().chain(["midi.journal", "midi.unsupported", "midi.listen"].map(str::to_owned));
    for name in all() {
        let mut docs = client.run(&format!("COMMAND DOCS {name}")).map();
        let docs = docs.remove(&name).unwrap_or_else(|| panic!("no docs of {name}")).map();
        for field in ["summary", "since", "complexity"] {
            assert!(!docs[field].text().is_empty(), "{name} {field}");
        }
        assert_eq!(docs["module"].text(), "midi");
        let (arity, _, _) = basics(&mut client, &name);
        assert_eq!(docs.contains_key("arguments"), arity != 1, "{name}");
    }
    assert_eq!(client.run("COMMAND LIST FILTERBY MODULE midi").array().len(), all().count());
}
