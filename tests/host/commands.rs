//! The promise: the host knows midi's commands as well as its own (arity, flags, keys,
//! documentation, ACL rules). What midi reports about itself (INFO, MIDI.INFO, MIDI.JOBS,
//! MIDI.HELP) has the right form in RESP2 and RESP3.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::port::Ported;
use crate::common::{Client, Mode, Server, Twin, Value, in_all_modes, wait_until};

/// A command: its name, its flags, its documented arguments, and a call of it. The call's keys, if
/// any, begin with `key`.
struct Row {
    name: &'static str,
    flags: &'static str,
    arguments: &'static str,
    call: &'static str,
}

const fn row(
    name: &'static str,
    flags: &'static str,
    arguments: &'static str,
    call: &'static str,
) -> Row {
    Row { name, flags, arguments, call }
}

const ROWS: [Row; 71] = [
    row("get", "readonly fast", "key", "key1"),
    row("set", "write denyoom movablekeys", "key value condition get expiration", "key1 v NX"),
    row("mget", "readonly fast", "key", "key1 key2 key3"),
    row("mset", "write denyoom", "data", "key1 a key2 b"),
    row("del", "write", "key", "key1 key2"),
    row("unlink", "write fast", "key", "key1 key2"),
    row("exists", "readonly fast", "key", "key1 key2"),
    row("touch", "readonly fast", "key", "key1 key2"),
    row("type", "readonly fast", "key", "key1"),
    row("expire", "write fast", "key seconds condition", "key1 10 NX"),
    row("pexpire", "write fast", "key milliseconds condition", "key1 10000"),
    row("expireat", "write fast", "key unix-time-seconds condition", "key1 1999999999 NX"),
    row("pexpireat", "write fast", "key unix-time-milliseconds condition", "key1 1999999999000"),
    row("ttl", "readonly fast", "key", "key1"),
    row("pttl", "readonly fast", "key", "key1"),
    row("expiretime", "readonly fast", "key", "key1"),
    row("pexpiretime", "readonly fast", "key", "key1"),
    row("persist", "write fast", "key", "key1"),
    row("rename", "write", "key newkey", "key1 key2"),
    row("renamenx", "write fast", "key newkey", "key1 key2"),
    row(
        "copy",
        "write denyoom",
        "source destination destination-db replace",
        "key1 key2 DB 1 REPLACE",
    ),
    row("move", "write fast", "key db", "key1 1"),
    row("object", "readonly", "subcommand key", "ENCODING key1"),
    row("memory", "readonly", "subcommand key count", "USAGE key1 SAMPLES 0"),
    row("dump", "readonly", "key", "key1"),
    row(
        "restore",
        "write denyoom",
        "key ttl serialized-value replace absttl seconds frequency",
        "key1 0 payload REPLACE ABSTTL IDLETIME 1",
    ),
    row("keys", "readonly", "pattern", "x*"),
    row("scan", "readonly", "cursor pattern count type", "0 MATCH x*"),
    row("randomkey", "readonly", "", ""),
    row("dbsize", "readonly fast", "", ""),
    row("countkeysinslot", "readonly", "slot", "0"),
    row("keyspacedigest", "readonly", "db", "0"),
    row("flushdb", "write", "flush-type", "ASYNC"),
    row("flushall", "write", "flush-type", ""),
    row("swapdb", "write fast", "index1 index2", "0 1"),
    row("populate", "write denyoom", "count prefix size", "10 x 5"),
    row("import", "write denyoom", "pattern count replace move slot", "x* COUNT 1 REPLACE"),
    row("export", "write denyoom", "pattern count replace move slot", "x* COUNT 1"),
    row("jobs", "admin", "id", "CANCEL 1"),
    row("info", "", "section", "memory"),
    row("help", "", "", ""),
    row("incr", "write denyoom fast", "key", "key1"),
    row("decr", "write denyoom fast", "key", "key1"),
    row("incrby", "write denyoom fast", "key increment", "key1 5"),
    row("decrby", "write denyoom fast", "key decrement", "key1 5"),
    row("incrbyfloat", "write denyoom fast", "key increment", "key1 0.5"),
    row(
        "increx",
        "write denyoom fast",
        "key increment lowerbound upperbound saturate expiration enx",
        "key9 BYINT 2 LBOUND 0 UBOUND 10 SATURATE EX 10 ENX",
    ),
    row("append", "write denyoom fast", "key value", "key1 x"),
    row("strlen", "readonly fast", "key", "key1"),
    row("getrange", "readonly", "key start end", "key1 0 -1"),
    row("substr", "readonly", "key start end", "key1 0 -1"),
    row("setrange", "write denyoom", "key offset value", "key1 3 x"),
    row("setnx", "write denyoom fast", "key value", "key1 v"),
    row("setex", "write denyoom", "key seconds value", "key1 10 v"),
    row("psetex", "write denyoom", "key milliseconds value", "key1 10000 v"),
    row("getset", "write denyoom fast", "key value", "key1 v"),
    row("msetnx", "write denyoom", "data", "key1 a key2 b"),
    row(
        "msetex",
        "write denyoom movablekeys",
        "numkeys data condition expiration",
        "2 key1 a key2 b NX EX 10",
    ),
    row("getdel", "write fast", "key", "key1"),
    row("getex", "write fast", "key expiration", "key1 EX 10"),
    row("digest", "readonly fast", "key", "key1"),
    row("delex", "write fast movablekeys", "key condition", "key1 IFEQ v"),
    row("lcs", "readonly", "key1 key2 len idx len withmatchlen", "key1 key2 LEN"),
    row("delifeq", "write fast", "key value", "key1 v"),
    row("setbit", "write denyoom", "key offset value", "key1 9 1"),
    row("getbit", "readonly fast", "key offset", "key1 9"),
    row("bitcount", "readonly", "key range", "key1 0 -2 BIT"),
    row("bitpos", "readonly", "key bit range", "key1 1 2 -1 BIT"),
    row("bitop", "write denyoom", "operation destkey key", "XOR key1 key2 key3"),
    row("bitfield", "write denyoom movablekeys", "key operation", "key1 GET u8 0 INCRBY i5 3 1"),
    row("bitfield_ro", "readonly fast", "key get", "key1 GET u8 0 GET i64 #1"),
];

/// Commands that only midi or newer hosts have.
pub const OWN: [&str; 13] = [
    "populate",
    "import",
    "export",
    "jobs",
    "info",
    "help",
    "digest",
    "delex",
    "delifeq",
    "msetex",
    "increx",
    "keyspacedigest",
    "countkeysinslot",
];

/// Single commands where the host has one for every subcommand.
const CONTAINERS: [&str; 2] = ["object", "memory"];

/// The commands that the host also has in the same form.
fn twins() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(|row| !OWN.contains(&row.name) && !CONTAINERS.contains(&row.name))
}

fn has_keys(row: &Row) -> bool {
    row.call.contains("key")
}

fn words(row: &Row, prefix: &str) -> Vec<String> {
    let call = format!("{prefix}{} {}", row.name, row.call);
    call.split_whitespace().map(str::to_owned).collect()
}

/// Every row in every mode: alone, in a transaction and from a script, with correct and wrong
/// numbers of arguments. The reply is the host's where the host has the command, and any reply
/// otherwise.
#[test]
fn every_row_runs_in_every_mode() {
    in_all_modes(|mode, server| {
        let mut twin = Twin::new(server.client());
        for row in twins() {
            let call: Vec<Vec<u8>> = words(row, "").into_iter().map(String::into_bytes).collect();
            twin.client().ok("FLUSHALL");
            twin.same_line("MSET key1 1 key2 abc");
            twin.same(&call);
            twin.transaction(std::slice::from_ref(&call));
            twin.script(&call);
            twin.same(&call[..1]);
            let too_many = [call.clone(), vec![b"x".to_vec(); 9]].concat();
            if !matches!(
                row.name,
                "del" | "unlink" | "exists" | "touch" | "mget" | "flushall" | "flushdb"
            ) {
                twin.same(&too_many);
            }
        }
        let mut client = server.client();
        for row in ROWS.iter().filter(|row| !twins().any(|twin| twin.name == row.name)) {
            client.ok("MIDI.SET key1 v");
            let reply = client.call(&words(row, "midi."));
            // No job has that number, so CANCEL fails; and no cluster has slots here.
            let expected_error = matches!(row.name, "jobs" | "countkeysinslot");
            assert_eq!(reply.is_error(), expected_error, "{mode:?}: {}: {reply:?}", row.name);
        }
        assert_eq!(client.info_number("midi_shards", "midi_panics"), 0);
    });
}

/// The part of a reply that depends only on the command and the keys.
fn settled(row: &Row, reply: Value) -> Value {
    match (row.name, reply) {
        ("keys", Value::Array(keys)) => Value::Array(Value::Array(keys).sorted()),
        ("scan", Value::Array(mut reply)) if reply.len() == 2 => {
            let keys = reply.remove(1).sorted();
            Value::Array(vec![reply.remove(0), Value::Array(keys)])
        }
        ("randomkey", Value::Bulk(_)) => Value::bulk("any"),
        // An earlier row's FLUSHALL may still be freeing memory.
        ("jobs", Value::Array(_)) => Value::bulk("any"),
        ("info", Value::Bulk(_) | Value::Verbatim(_)) => Value::bulk("any"),
        (_, reply) => reply,
    }
}

/// An error whose command name has no prefix.
fn unprefixed(reply: Value) -> Value {
    match reply {
        Value::Error(text) => {
            Value::error(&String::from_utf8_lossy(&text).replacen("'midi.", "'", 1))
        }
        other => other,
    }
}

/// Every row in every mode through midi's port, under both of its names, with correct and wrong
/// numbers of arguments. The reply is that of the host door.
#[test]
fn every_row_runs_through_the_port() {
    for mode in Mode::ALL {
        let ported = Ported::start(mode.builder());
        for resp3 in [false, true] {
            let connect = |client: Client| if resp3 { client.resp3() } else { client };
            let (mut host, mut port) = (connect(ported.host()), connect(ported.client()));
            for row in &ROWS {
                let good = words(row, "");
                let many = [good.clone(), vec!["x".to_owned(); 9]].concat();
                for call in [&good, &good[..1].to_vec(), &many] {
                    let mut ask = |at_host: bool, prefix: &str| {
                        host.ok("MIDI.FLUSHALL SYNC");
                        host.ok("MIDI.MSET key1 1 key2 abc");
                        let mut call = call.clone();
                        call[0].insert_str(0, prefix);
                        let client = if at_host { &mut host } else { &mut port };
                        settled(row, client.call(&call))
                    };
                    let (expected, prefixed) = (ask(true, "midi."), ask(false, "midi."));
                    assert_eq!(prefixed, expected, "{mode:?}: midi.{call:?}");
                    // INFO alone is another command.
                    if row.name != "info" {
                        assert_eq!(ask(false, ""), unprefixed(expected), "{mode:?}: {call:?}");
                    }
                }
            }
        }
        assert_eq!(ported.host().info_number("midi_shards", "midi_panics"), 0);
    }
}

/// The port's own commands, each with a call that succeeds.
const PORT_ROWS: [(&str, &str); 44] = [
    ("ping", ""),
    ("echo", "a"),
    ("select", "1"),
    ("hello", "3"),
    ("reset", ""),
    ("client|id", ""),
    ("client|getname", ""),
    ("client|setname", "me"),
    ("client|setinfo", "LIB-NAME x"),
    ("client|info", ""),
    ("client|list", "TYPE normal"),
    ("client|kill", "ID 999999"),
    ("client|no-evict", "ON"),
    ("client|no-touch", "ON"),
    ("client|reply", "ON"),
    ("client|trackinginfo", ""),
    ("client|getredir", ""),
    ("client|help", ""),
    ("command", ""),
    ("command|count", ""),
    ("command|info", "get"),
    ("command|docs", "get"),
    ("command|list", ""),
    ("command|getkeys", "get a"),
    ("command|getkeysandflags", "get a"),
    ("command|help", ""),
    ("info", "server"),
    ("config|get", "port"),
    ("debug", "POPULATE 10"),
    ("acl|whoami", ""),
    ("module|list", ""),
    ("lastsave", ""),
    ("role", ""),
    ("time", ""),
    ("wait", "0 0"),
    ("waitaof", "0 0 0"),
    ("multi", ""),
    ("exec", ""),
    ("watch", "a"),
    ("unwatch", ""),
    ("multi", ""),
    ("discard", ""),
    ("auth", "default x"),
    ("quit", ""),
];

/// Every such command in every mode, if the host has it and gives the same kind of reply.
#[test]
fn every_command_of_the_ports_own_runs_in_every_mode() {
    for mode in Mode::ALL {
        let ported = Ported::start(mode.builder());
        let (mut host, mut port) = (ported.host(), ported.client());
        let known = |name: &str| {
            PORT_ROWS.iter().any(|(own, _)| *own == name || own.starts_with(&format!("{name}|")))
        };
        for name in texts(port.run("COMMAND LIST")) {
            let of_table =
                ROWS.iter().any(|row| name == row.name || name == format!("midi.{}", row.name));
            let tried = of_table || known(&name) || name == "client|import-source";
            assert!(tried, "{name} is not tried");
        }
        // The host knows whether it can import keys; midi's port has what the host has.
        let import = "CLIENT IMPORT-SOURCE OFF";
        let (own, of_host) = (port.run(import), host.run(import));
        assert_eq!(own.is_error(), of_host.is_error(), "{own:?} and not {of_host:?}");
        let help = port.run("CLIENT HELP").array();
        let is_listed = help.iter().any(|line| line.text().starts_with("IMPORT-SOURCE"));
        assert_eq!(is_listed, !of_host.is_error(), "{help:?}");
        for (name, args) in PORT_ROWS {
            let call = format!("{} {args}", name.replace('|', " "));
            let (own, of_host) = (port.run(&call), host.run(&call));
            assert!(
                !own.is_error() || *name == *"auth" && of_host.is_error(),
                "{mode:?}: {call}: {own:?}"
            );
            let newer = ["client|setinfo", "client|no-touch", "waitaof"].contains(&name)
                && of_host.is_error();
            let same_kind = std::mem::discriminant(&own) == std::mem::discriminant(&of_host);
            assert!(same_kind || newer, "{mode:?}: {call}: {own:?} and not {of_host:?}");
        }
    }
}

fn texts(list: Value) -> BTreeSet<String> {
    list.array().iter().map(Value::text).collect()
}

fn command_info(client: &mut Client, name: &str) -> Vec<Value> {
    client.run(&format!("COMMAND INFO {name}")).array().remove(0).array()
}

#[test]
fn the_host_lists_exactly_these() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let listed = texts(client.run("COMMAND LIST FILTERBY MODULE midi"));
    // The one that clients may not call has no row here.
    let names = ROWS.iter().map(|row| row.name).chain(["journal"]);
    assert_eq!(listed, names.map(|name| format!("midi.{name}")).collect());
}

/// Flags that mean the same for any command. The others describe how the host runs its own.
const FLAGS: [&str; 5] = ["write", "readonly", "denyoom", "fast", "admin"];

#[test]
fn flags() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    for row in &ROWS {
        let found = texts(command_info(&mut client, &format!("midi.{}", row.name))[2].clone());
        let mut expected: BTreeSet<_> = row.flags.split_whitespace().map(str::to_owned).collect();
        expected.insert("module".into());
        assert_eq!(found, expected, "{}", row.name);
    }
    for row in twins() {
        let native = texts(command_info(&mut client, row.name)[2].clone());
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
        let (midi, native) = (key_specs(&midi), key_specs(&native));
        if midi != native {
            different.push(format!("{}: {midi:?} and not {native:?}", row.name));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// Key specifications, except for what depends on a command's options.
fn key_specs(command: &[Value]) -> Vec<(BTreeSet<String>, Value, Value)> {
    let specs = command[8].clone().array().into_iter();
    specs
        .map(|spec| {
            let spec = spec.map();
            let mut flags = texts(spec["flags"].clone());
            flags.remove("variable_flags");
            (flags, spec["begin_search"].clone(), spec["find_keys"].clone())
        })
        .collect()
}

/// To the host, a command with subcommands looks like its subcommand for a key.
#[test]
fn containers_are_like_their_subcommands() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    for (name, subcommand) in [("object", "encoding"), ("memory", "usage")] {
        let midi = command_info(&mut client, &format!("midi.{name}"));
        let native = command_info(&mut client, &format!("{name}|{subcommand}"));
        assert_eq!(key_specs(&midi), key_specs(&native), "{name}");
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
        // Redis 7.0 does not document BITOP's operations, and newer hosts have more of them.
        if row.name == "bitop" {
            continue;
        }
        assert_eq!(midi, native, "{}", row.name);
    }
}

/// Calls of SET. Its options decide what happens to the key.
const SETS: [&str; 5] = ["key1 v", "key1 v NX", "key1 GET", "key1 v get", "key1 v EX 10 XX GET"];

/// The same for BITFIELD.
const BITFIELDS: [&str; 10] = [
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
        keys.map(|mut key| (key.remove(0).text(), texts(key.remove(0)))).collect()
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

/// The reply of ACL DRYRUN to a call.
fn dry_run(client: &mut Client, user: &str, call: &[String]) -> Value {
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

/// All sections, with the first fields of each.
const SECTIONS: [(&str, &[&str]); 10] = [
    ("shards", &["shards", "threads", "safemode", "version", "panics"]),
    ("keyspace", &["db0", "db3"]),
    (
        "persistence",
        &[
            "changes",
            "last_save_time",
            "last_save_keys",
            "last_save_bytes",
            "last_save_usec",
            "last_save_status",
            "failed_saves",
            "forks",
            "last_fork_pause_usec",
            "longest_fork_pause_usec",
            "last_load_keys",
            "last_load_msec",
            "loading",
            "mode",
            "journal_tail_runs",
            "journal_tail_bytes",
            "journal_tail_age_msec",
            "journal_batches",
            "journal_runs",
            "journal_records",
            "journal_bytes",
            "journal_usec_until_logged",
            "journal_usec_until_safe",
            "journal_undone_runs",
            "journal_position",
            "journal_logged_position",
            "journal_safe_position",
            "journal_reads_wait",
            "journal_skips_fsyncs_beside_children",
            "journal_for_replicas",
            "clients_in_wait",
        ],
    ),
    (
        "memory",
        &[
            "table_bytes",
            "bytes_per_key",
            "kept_arguments",
            "watched_names",
            "watched_bytes",
            "evictable_host_keys",
        ],
    ),
    ("expiry", &["expiring_keys", "expired_keys"]),
    ("dispatch", &["dispatch", "ran_at_once", "queued", "queue_depth"]),
    ("workers", &["worker0", "worker1"]),
    ("net", &["port_state"]),
    ("jobs", &["jobs_running", "jobs_started"]),
    (
        "commandstats",
        &["cmdstat_get", "cmdstat_set", "cmdstat_mset", "cmdstat_expire", "cmdstat_keys"],
    ),
];

/// Some work for the reports to show.
fn some_work(server: &Server) {
    let mut client = server.client();
    for line in [
        "MIDI.SET a 1 EX 1000",
        "MIDI.MSET b 2 c 3",
        "MIDI.GET a",
        "MIDI.GET nosuch",
        "MIDI.KEYS *",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    client.ok("SELECT 3");
    client.ok("MIDI.SET a 1");
    client.run("MIDI.EXPIRE a 1000");
    server.wait_until_idle();
}

/// The sections of INFO's text, in either protocol version.
fn sections(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut section = String::new();
    let text = text.strip_prefix("txt:").unwrap_or(text);
    for line in text.split("\r\n").filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("# ") {
            section = name.to_owned();
            found.entry(section.clone()).or_default();
        } else {
            let (name, value) =
                line.split_once(':').unwrap_or_else(|| panic!("not a field: {line:?}"));
            found.get_mut(&section).expect("a section").insert(name.to_owned(), value.to_owned());
        }
    }
    found
}

#[track_caller]
fn check_section(found: &BTreeMap<String, BTreeMap<String, String>>, name: &str, fields: &[&str]) {
    let section =
        found.get(&format!("midi_{name}")).unwrap_or_else(|| panic!("no {name}: {found:?}"));
    let expected: BTreeSet<_> = fields.iter().map(|field| format!("midi_{field}")).collect();
    assert_eq!(section.keys().cloned().collect::<BTreeSet<_>>(), expected, "{name}");
}

#[test]
fn info_has_midis_sections() {
    in_all_modes(|mode, server| {
        some_work(server);
        for mut client in [server.client(), server.client().resp3()] {
            for (name, fields) in SECTIONS {
                let found = sections(&client.run(&format!("INFO midi_{name}")).text());
                assert_eq!(found.len(), 1, "{name}");
                check_section(&found, name, fields);
            }
            for all in ["everything", "modules"] {
                let found = sections(&client.run(&format!("INFO {all}")).text());
                let present =
                    SECTIONS.iter().filter(|(name, _)| found.contains_key(&format!("midi_{name}")));
                assert_eq!(present.count(), SECTIONS.len(), "INFO {all}");
            }
            assert!(client.info("server").contains_key("redis_version"));
        }
        check_values(server, mode);
    });
}

fn check_values(server: &Server, mode: Mode) {
    let mut client = server.client();
    let mut field = |section: &str, name: &str| {
        client.info(&format!("midi_{section}"))[&format!("midi_{name}")].clone()
    };
    assert_eq!(field("shards", "threads"), "2");
    assert_eq!(field("shards", "shards"), "1024");
    assert_eq!(field("shards", "panics"), "0");
    assert_eq!(field("shards", "safemode"), if mode == Mode::Safe { "yes" } else { "no" });
    assert_eq!(field("keyspace", "db0"), "keys=3,expires=1");
    assert_eq!(field("keyspace", "db3"), "keys=1,expires=1");
    assert_eq!(field("expiry", "expiring_keys"), "2");
    assert_eq!(field("persistence", "changes"), "5");
    assert_eq!(field("persistence", "mode"), "fast");
    assert_eq!(field("dispatch", "dispatch"), if mode == Mode::Pool { "pool" } else { "adaptive" });
    assert!(field("commandstats", "cmdstat_get").starts_with("calls=2,usec="));
    assert!(field("commandstats", "cmdstat_set").starts_with("calls=2,usec="));
    assert!(field("commandstats", "cmdstat_mset").contains(",usec_per_call="));
    assert!(field("workers", "worker1").starts_with("commands="));
    let bytes: i64 = field("memory", "table_bytes").parse().expect("a number");
    assert!(bytes > 0 && bytes < 1 << 20, "{bytes}");
}

#[test]
fn midi_info_tells_the_same() {
    in_all_modes(|_, server| {
        some_work(server);
        let mut client = server.client();
        let all = sections(&client.run("MIDI.INFO").text());
        assert_eq!(all.len(), SECTIONS.len());
        for (name, fields) in SECTIONS {
            check_section(&all, name, fields);
            for line in
                [format!("MIDI.INFO {name}"), format!("midi.info MIDI_{}", name.to_uppercase())]
            {
                let one = sections(&client.run(&line).text());
                assert_eq!(one.keys().collect::<Vec<_>>(), [&format!("midi_{name}")], "{line}");
                check_section(&one, name, fields);
            }
        }
        let two = sections(&client.run("MIDI.INFO workers dispatch nosuch").text());
        assert_eq!(two.keys().collect::<Vec<_>>(), ["midi_dispatch", "midi_workers"]);
        assert_eq!(client.run("MIDI.INFO nosuch"), Value::bulk(""));
        for word in ["all", "everything", "default"] {
            assert_eq!(
                sections(&client.run(&format!("MIDI.INFO {word}")).text()).len(),
                SECTIONS.len()
            );
        }
        let mut client = server.client().resp3();
        let Value::Verbatim(text) = client.run("MIDI.INFO shards") else { panic!("not verbatim") };
        assert!(text.starts_with(b"txt:# midi_shards\r\nmidi_shards:1024\r\n"));
    });
}

#[test]
fn help_has_a_line_for_every_command() {
    in_all_modes(|_, server| {
        let two = server.client().run("MIDI.HELP");
        assert_eq!(server.client().resp3().run("MIDI.HELP"), two);
        let lines = two.array();
        assert_eq!(lines.len(), ROWS.len());
        for row in &ROWS {
            let begin = format!("MIDI.{} -- ", row.name.to_uppercase());
            assert_eq!(
                lines.iter().filter(|line| line.text().starts_with(&begin)).count(),
                1,
                "{begin}"
            );
        }
        for line in ["MIDI.HELP x", "MIDI.HELP GET SET"] {
            let reply = server.client().run(line);
            assert_eq!(
                reply,
                Value::error("ERR wrong number of arguments for 'midi.help' command")
            );
        }
    });
}

/// The fields of a job, in RESP2 order.
const JOB_FIELDS: [&str; 8] =
    ["id", "command", "database", "client", "door", "done", "total", "elapsed"];

/// More keys than POPULATE makes before the test ends it.
const MANY: i64 = 30_000_000;

/// A client with a running POPULATE in database 2.
fn populating(server: &Server) -> Client {
    let mut client = server.client();
    client.ok("SELECT 2");
    client.send_line(&format!("MIDI.POPULATE {MANY}"));
    let mut watcher = server.client();
    wait_until("it runs", || !watcher.run("MIDI.JOBS").array().is_empty());
    client
}

#[test]
fn jobs_shows_what_runs() {
    for mode in [Mode::Adaptive, Mode::Pool] {
        let server = mode.server();
        let (mut two, mut three) = (server.client(), server.client().resp3());
        assert_eq!(two.run("MIDI.JOBS"), Value::Array(vec![]));
        assert_eq!(three.run("MIDI.JOBS"), Value::Array(vec![]));
        let mut busy = populating(&server);
        let jobs = two.run("midi.jobs").array();
        assert_eq!(jobs.len(), 1);
        let flat = jobs[0].clone().array();
        let names: Vec<_> = flat.iter().step_by(2).map(Value::text).collect();
        assert_eq!(names, JOB_FIELDS);
        check_job(&jobs[0]);
        let jobs = three.run("MIDI.JOBS").array();
        assert!(matches!(&jobs[0], Value::Map(pairs) if pairs.len() == 8), "{jobs:?}");
        check_job(&jobs[0]);
        let line = &two.info("midi_jobs")["midi_job1"];
        assert!(
            line.starts_with("command=populate,db=2,client=") && line.contains(",door=host,"),
            "{line}"
        );
        two.ok("MIDI.JOBS CANCEL 1");
        assert!(busy.read().is_error());
        server.wait_until_idle();
    }
}

#[track_caller]
fn check_job(job: &Value) {
    let job = job.clone().map();
    assert_eq!(job["id"], Value::Integer(1));
    assert_eq!(job["database"], Value::Integer(2));
    assert_eq!(job["command"], Value::bulk("populate"));
    assert_eq!(job["total"], Value::Integer(MANY));
    assert!((0..=MANY).contains(&job["done"].integer()));
    assert!(job["client"].integer() > 0 && job["elapsed"].integer() >= 0);
}

#[test]
fn jobs_cancel_ends_a_job() {
    for mode in [Mode::Adaptive, Mode::Pool] {
        let server = mode.server();
        let mut client = server.client();
        client.ok("SELECT 2");
        let mut busy = populating(&server);
        for line in ["MIDI.JOBS CANCEL 2", "MIDI.JOBS CANCEL 0", "MIDI.JOBS CANCEL -1"] {
            assert_eq!(client.run(line), Value::error("ERR no such job"), "{line}");
        }
        assert_eq!(client.run("midi.jobs cancel 1"), Value::ok());
        assert_eq!(busy.read(), Value::error("ERR job 1 was cancelled by MIDI.JOBS CANCEL"));
        server.wait_until_idle();
        assert_eq!(client.run("MIDI.JOBS CANCEL 1"), Value::error("ERR no such job"));
        let left = client.integer("MIDI.DBSIZE");
        assert!(left < MANY, "{left}");
        busy.ok("MIDI.FLUSHDB SYNC");
        busy.ok("MIDI.POPULATE 10");
        assert_eq!(busy.integer("MIDI.DBSIZE"), 10);
    }
}

#[test]
fn jobs_refuses_wrong_arguments() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for line in
            ["MIDI.JOBS LIST", "MIDI.JOBS CANCEL", "MIDI.JOBS CANCEL 1 2", "MIDI.JOBS KILL 1"]
        {
            assert_eq!(client.run(line), Value::error("ERR syntax error"), "{line}");
        }
        let reply = client.run("MIDI.JOBS CANCEL abc");
        assert_eq!(reply, Value::error("ERR value is not an integer or out of range"));
    });
}
