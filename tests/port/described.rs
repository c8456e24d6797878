//! The promise: COMMAND on midi's port describes the port's commands as Redis describes its own.

use std::collections::{BTreeMap, BTreeSet};

use super::session::{plain, ported};
use crate::common::Value;
use crate::common::described::{key_specs, texts};
use crate::common::hosts::{has_newer_flags, has_newer_tips, host};

/// The rows of COMMAND, by name.
fn described(list: Value) -> BTreeMap<String, Vec<Value>> {
    list.array().into_iter().map(|row| (row.clone().array()[0].text(), row.array())).collect()
}

/// Newer hosts have more flags and tips.
#[track_caller]
fn same_or_fewer(own: &Value, of_host: &Value, what: &str) {
    // Valkey has renamed this flag.
    let renamed = |text: String| text.replace("skip_commandlog", "skip_slowlog");
    let (own, of_host): (_, BTreeSet<_>) =
        (texts(own), texts(of_host).into_iter().map(renamed).collect());
    let same = own == of_host || host().is_newer() && own.is_subset(&of_host);
    assert!(same, "{what}: {own:?}, and not {of_host:?}");
}

/// Newer hosts repeat an argument's name for display.
fn without_display_text(docs: Value) -> Value {
    match docs {
        Value::Array(list) => Value::Array(list.into_iter().map(without_display_text).collect()),
        Value::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .filter(|(name, _)| *name != Value::bulk("display_text"))
                .map(|(name, value)| (name, without_display_text(value)))
                .collect(),
        ),
        other => other,
    }
}

#[test]
fn command_describes_the_ports_commands_as_redis_its_own() {
    /// Flags that do not describe how Redis runs its own commands.
    const FLAGS: [&str; 5] = ["write", "readonly", "denyoom", "fast", "admin"];
    let (redis, ported) = (plain(), ported());
    let (mut native, mut midi) = (redis.client().resp3(), ported.client().resp3());
    let all = described(midi.run("COMMAND"));
    assert_eq!(all.len() as i64, midi.integer("COMMAND COUNT"));
    assert_eq!(described(midi.run("COMMAND INFO")), all);
    let listed = texts(&midi.run("COMMAND LIST"));
    let mut compared = 0;
    for name in &listed {
        let own = midi.run(&format!("COMMAND INFO {name}")).array().remove(0).array();
        assert_eq!(own[0].text(), *name);
        assert!(name.contains('|') || all[name] == own, "{name}");
        // Each is one command here; Redis has one for every subcommand.
        let of_redis = native.run(&format!("COMMAND INFO {name}")).array().remove(0);
        if of_redis.is_null() || ["object", "memory", "slowlog"].contains(&name.as_str()) {
            continue;
        }
        let of_redis = of_redis.array();
        // Newer hosts accept COMMAND GETKEYS with a name alone.
        let other_arity = host().is_newer() && name.starts_with("command|getkeys");
        for field in if other_arity { &[3, 4, 5][..] } else { &[1, 3, 4, 5] } {
            assert_eq!(own[*field], of_redis[*field], "field {field} of {name}");
        }
        let of_midi_itself = all.contains_key(&format!("midi.{name}")) && name != "info";
        if of_midi_itself {
            let kept = |row: &[Value]| -> BTreeSet<String> {
                texts(&row[2]).into_iter().filter(|flag| FLAGS.contains(&flag.as_str())).collect()
            };
            assert_eq!(kept(&own), kept(&of_redis), "flags of {name}");
        } else if !has_newer_flags(name) {
            same_or_fewer(&own[2], &of_redis[2], &format!("flags of {name}"));
        }
        if !has_newer_flags(name) {
            assert_eq!(texts(&own[6]), texts(&of_redis[6]), "categories of {name}");
        }
        if !has_newer_tips(name) {
            same_or_fewer(&own[7], &of_redis[7], &format!("tips of {name}"));
        }
        // Redis added DELEX later, and does not count the value that it compares as read. Valkey's
        // HSETEX says that it inserts, Redis's that it updates.
        if name != "delex" && !(host().valkey && name == "hsetex") {
            assert_eq!(key_specs(&own[8]), key_specs(&of_redis[8]), "keys of {name}");
        }
        compared += 1;
    }
    assert!(compared > 70, "{compared}");
}

#[test]
fn command_docs_has_all_for_every_command() {
    let ported = ported();
    let mut client = ported.client().resp3();
    let listed = texts(&client.run("COMMAND LIST"));
    let docs = client.run("COMMAND DOCS").map();
    for name in &listed {
        let own = client.run(&format!("COMMAND DOCS {name}")).map().remove(name).expect("docs");
        assert!(name.contains('|') || docs[name] == own, "{name}");
        let own = own.map();
        assert!(own["summary"].text().ends_with('.'), "{name}");
        assert!(own["complexity"].text().starts_with("O("), "{name}");
        for field in ["since", "group"] {
            assert!(!own[field].text().is_empty(), "{name}");
        }
    }
    // The host documents midi's commands in the same way, and as a module's.
    let mut host = ported.host().resp3();
    for name in listed.iter().filter(|name| name.starts_with("midi.")) {
        let ask = format!("COMMAND DOCS {name}");
        let own = client.run(&ask).map().remove(name).expect("docs").map();
        let of_host = host.run(&ask).map().remove(name).expect("docs").map();
        for field in ["summary", "since", "complexity", "arguments"] {
            let of_host = of_host.get(field).cloned().map(without_display_text);
            assert_eq!(own.get(field), of_host.as_ref(), "{field} of {name}");
        }
    }
}

#[test]
fn command_list_filters() {
    let ported = ported();
    let mut client = ported.client();
    let of_module = texts(&client.run("COMMAND LIST FILTERBY MODULE midi"));
    let mut at_host = texts(&ported.host().run("COMMAND LIST FILTERBY MODULE midi"));
    for name in ["midi.journal", "midi.unsupported", "midi.listen"] {
        assert!(at_host.remove(name), "clients may not call it, so the port has no such name");
    }
    assert_eq!(of_module, at_host);
    let admin = texts(&client.run("COMMAND LIST FILTERBY ACLCAT admin"));
    assert!(
        admin.contains("client|kill") && admin.contains("jobs") && !admin.contains("get"),
        "{admin:?}"
    );
    let found = texts(&client.run("COMMAND LIST FILTERBY PATTERN *GETSET"));
    assert_eq!(found, ["getset", "midi.getset"].map(str::to_owned).into());
}

#[test]
fn help_lists_subcommands() {
    let ported = ported();
    let mut client = ported.client();
    for container in ["CLIENT", "COMMAND"] {
        let lines: Vec<String> =
            client.run(&format!("{container} HELP")).array().iter().map(Value::text).collect();
        assert_eq!(
            lines[0],
            format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
        );
        assert_eq!(lines[lines.len() - 2], "HELP");
        assert!(lines.len() > 10);
    }
}
