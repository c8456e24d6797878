//! The promise: users' rules apply to midi's commands and keys as to the host's own.

use super::commands::{ROWS, Row, has_keys, stock, twins, words};
use super::described::{BITFIELDS, SETS};
use crate::common::{Client, Mode, Value, in_all_modes, skip};

/// The reply of ACL DRYRUN to a call.
pub fn dry_run(client: &mut Client, user: &str, call: &[String]) -> Value {
    let head = ["ACL", "DRYRUN", user].map(str::to_owned);
    client.call(&[&head[..], call].concat())
}

/// The call with keys that do not match `key*`.
fn elsewhere(call: &[String]) -> Vec<String> {
    let moved = call[1..].iter().map(|word| word.replace("key", "other"));
    std::iter::once(call[0].clone()).chain(moved).collect()
}

#[test]
fn acl_rules_name_commands_and_keys() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    for row in &ROWS {
        let name = format!("midi.{}", row.name);
        client.ok(&format!("ACL SETUSER u reset on -@all +{name} ~key*"));
        let call = words(row, "midi.");
        assert_eq!(dry_run(&mut client, "u", &call), Value::ok(), "{name}");
        assert_eq!(
            dry_run(&mut client, "u", &elsewhere(&call)) != Value::ok(),
            has_keys(row),
            "{name}"
        );
        for other in ROWS.iter().filter(|other| other.name != row.name) {
            let reply = dry_run(&mut client, "u", &words(other, "midi."));
            assert_ne!(reply, Value::ok(), "{} for a user of {name} alone", other.name);
        }
    }
}

/// Redis from 8.4 on may not ask midi for keys then: it finds them by the key specs.
#[test]
fn keys_are_found_where_the_host_may_not_ask_for_them() {
    for setting in ["io-threads 2", "cluster-enabled yes"] {
        let server = Mode::Adaptive.builder().config(setting).start();
        let mut client = server.client();
        client.ok("ACL SETUSER u reset on +@all ~key*");
        client.ok("ACL SETUSER reads reset on +@all %R~*");
        for row in ROWS.iter().filter(|row| has_keys(row)) {
            let (name, call) = (row.name, words(row, "midi."));
            let keys = [&["COMMAND".to_owned(), "GETKEYS".to_owned()], &call[..]].concat();
            assert!(!client.call(&keys).array().is_empty(), "{name}, {setting}");
            assert_eq!(dry_run(&mut client, "u", &call), Value::ok(), "{name}, {setting}");
            let denied = dry_run(&mut client, "u", &elsewhere(&call));
            assert_ne!(denied, Value::ok(), "{name}, {setting}");
            if row.flags.contains("write") {
                let denied = dry_run(&mut client, "reads", &call);
                assert_ne!(denied, Value::ok(), "{name}, {setting}");
            }
            if setting == "cluster-enabled yes" {
                let refused = client.call(&call).text();
                let is_refused = ["CLUSTERDOWN", "CROSSSLOT"].iter();
                assert!(
                    is_refused.clone().any(|word| refused.starts_with(word)),
                    "{name}: {refused}"
                );
            }
        }
    }
}

#[test]
fn acl_key_permissions_are_those_of_the_host() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let mut different = Vec::new();
    for pattern in [
        "~key*",
        "%R~key*",
        "%W~key*",
        "%RW~key*",
        "~key1",
        "%R~key* %W~key1",
        "~nosuch",
        "resetkeys",
    ] {
        client.ok(&format!("ACL SETUSER u reset on +@all {pattern}"));
        for row in twins() {
            let calls: &[&str] = match row.name {
                "set" => &SETS,
                "bitfield" => &BITFIELDS,
                _ => &[row.call],
            };
            for call in calls {
                let row = Row { call, ..*row };
                let midi = dry_run(&mut client, "u", &words(&row, "midi.")).text();
                let native = dry_run(&mut client, "u", &words(&row, "")).text();
                if midi.replace("midi.", "") != native {
                    different.push(format!(
                        "{} {call} with {pattern}: {midi} and not {native}",
                        row.name
                    ));
                }
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

#[test]
fn acl_rules_are_enforced() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET key1 1 other 2");
        client.ok("ACL SETUSER reader on nopass -@all +multi +exec +midi.get +midi.mget ~key*");
        client.ok("AUTH reader x");
        assert_eq!(client.run("MIDI.GET key1"), Value::bulk("1"));
        for line in [
            "MIDI.GET other",
            "MIDI.MGET key1 other",
            "MIDI.SET key1 2",
            "MIDI.KEYS *",
            "MIDI.FLUSHALL",
        ] {
            let reply = client.run(line);
            assert!(reply.is_error() && reply.text().starts_with("NOPERM"), "{line}: {reply:?}");
        }
        let mut admin = server.client();
        assert_eq!(
            admin.run("MIDI.MGET key1 other"),
            Value::Array(vec![Value::bulk("1"), Value::bulk("2")])
        );
        // In a transaction as well.
        client.ok("MULTI");
        assert!(client.run("MIDI.SET key1 2").is_error());
        assert!(client.run("EXEC").is_error());
    });
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
            let native = judged(&mut client, line);
            let midi = judged(&mut client, &format!("midi.{line}"));
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
        for name in stock() {
            let has = |name: &str| names.contains(&Value::bulk(name));
            assert_eq!(has(name), has(&format!("midi.{name}")), "{name} in {}", category.text());
        }
    }
}

fn judged(client: &mut Client, line: &str) -> String {
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
