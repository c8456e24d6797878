//! The promise: every command of midi's runs in every mode, through either door, as the host's own
//! does. The table of the commands here is what other files compare, too.

use crate::common::described::texts;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Twin, Value, in_all_modes};

/// A command: its name, its flags, its documented arguments, and a call of it. The call's keys, if
/// any, begin with `key`.
pub struct Row {
    pub name: &'static str,
    pub flags: &'static str,
    pub arguments: &'static str,
    pub call: &'static str,
}

const fn row(
    name: &'static str,
    flags: &'static str,
    arguments: &'static str,
    call: &'static str,
) -> Row {
    Row { name, flags, arguments, call }
}

pub const ROWS: [Row; 100] = [
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
    row("slowlog", "admin", "subcommand count", "GET 5"),
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
    row("hset", "write denyoom fast", "key data", "key3 f v g w"),
    row("hmset", "write denyoom fast", "key data", "key3 f v g w"),
    row("hsetnx", "write denyoom fast", "key field value", "key3 f v"),
    row("hget", "readonly fast", "key field", "key3 f"),
    row("hmget", "readonly fast", "key field", "key3 f g"),
    row("hdel", "write fast", "key field", "key3 f g"),
    row("hexists", "readonly fast", "key field", "key3 f"),
    row("hlen", "readonly fast", "key", "key3"),
    row("hstrlen", "readonly fast", "key field", "key3 f"),
    row("hkeys", "readonly", "key", "key3"),
    row("hvals", "readonly", "key", "key3"),
    row("hgetall", "readonly", "key", "key3"),
    row("hincrby", "write denyoom fast", "key field increment", "key3 f 5"),
    row("hincrbyfloat", "write denyoom fast", "key field increment", "key3 f 0.5"),
    row("hrandfield", "readonly", "key options", "key3 -2 WITHVALUES"),
    row("hscan", "readonly", "key cursor pattern count novalues", "key3 0 MATCH x*"),
    row("hgetdel", "write fast", "key fields", "key3 FIELDS 2 f g"),
    row("hexpire", "write fast", "key seconds condition fields", "key3 10 NX FIELDS 1 f"),
    row("hpexpire", "write fast", "key milliseconds condition fields", "key3 10000 FIELDS 1 f"),
    row(
        "hexpireat",
        "write fast",
        "key unix-time-seconds condition fields",
        "key3 1999999999 LT FIELDS 1 f",
    ),
    row(
        "hpexpireat",
        "write fast",
        "key unix-time-milliseconds condition fields",
        "key3 1999999999000 FIELDS 2 f g",
    ),
    row("hpersist", "write fast", "key fields", "key3 FIELDS 2 f g"),
    row("httl", "readonly fast", "key fields", "key3 FIELDS 2 f g"),
    row("hpttl", "readonly fast", "key fields", "key3 FIELDS 2 f g"),
    row("hexpiretime", "readonly fast", "key fields", "key3 FIELDS 2 f g"),
    row("hpexpiretime", "readonly fast", "key fields", "key3 FIELDS 2 f g"),
    row("hgetex", "write fast", "key expiration fields", "key3 EX 100 FIELDS 2 f g"),
    row(
        "hsetex",
        "write denyoom fast",
        "key condition expiration fields",
        "key3 FNX PX 100000 FIELDS 1 f v",
    ),
];

/// Commands that only midi or newer hosts have.
const OWN: [&str; 25] = [
    "hexpire",
    "hpexpire",
    "hexpireat",
    "hpexpireat",
    "hpersist",
    "httl",
    "hpttl",
    "hexpiretime",
    "hpexpiretime",
    "hgetex",
    "hsetex",
    "hgetdel",
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
const CONTAINERS: [&str; 3] = ["object", "memory", "slowlog"];

/// The commands that the host also has in the same form.
pub fn twins() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(|row| !OWN.contains(&row.name) && !CONTAINERS.contains(&row.name))
}

/// Their names.
pub fn stock() -> impl Iterator<Item = &'static str> {
    twins().map(|row| row.name)
}

/// The names of all commands at the host's door.
pub fn names() -> impl Iterator<Item = String> {
    ROWS.iter().map(|row| format!("midi.{}", row.name))
}

pub fn has_keys(row: &Row) -> bool {
    row.call.contains("key")
}

pub fn words(row: &Row, prefix: &str) -> Vec<String> {
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
        ("jobs" | "slowlog", Value::Array(_)) => Value::bulk("any"),
        ("info", Value::Bulk(_) | Value::Verbatim(_)) => Value::bulk("any"),
        (_, reply) => reply,
    }
}

/// An error whose command name has no prefix.
fn unprefixed(reply: Value) -> Value {
    match reply {
        Value::Error(text) => Value::error(
            &String::from_utf8_lossy(&text).replacen("'midi.", "'", 1).replacen("MIDI.", "", 1),
        ),
        other => other,
    }
}

/// Every row in every mode through midi's port, under both of its names, with correct and wrong
/// numbers of arguments. The reply is that of the host door.
#[test]
fn every_row_runs_through_the_port() {
    for mode in Mode::tried() {
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
const PORT_ROWS: [(&str, &str); 59] = [
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
    ("config|resetstat", ""),
    ("latency|histogram", "get"),
    ("latency|latest", ""),
    ("latency|history", "e"),
    ("latency|doctor", ""),
    ("latency|reset", ""),
    ("latency|help", ""),
    ("debug", "POPULATE 10"),
    ("acl|whoami", ""),
    ("module|list", ""),
    ("lastsave", ""),
    ("role", ""),
    ("time", ""),
    ("publish", "c m"),
    ("spublish", "c m"),
    ("pubsub|channels", ""),
    ("pubsub|numpat", ""),
    ("pubsub|numsub", "c"),
    ("pubsub|shardchannels", ""),
    ("pubsub|shardnumsub", "c"),
    ("pubsub|help", ""),
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
    for mode in Mode::tried() {
        let ported = Ported::start(mode.builder());
        let (mut host, mut port) = (ported.host(), ported.client());
        let known = |name: &str| {
            PORT_ROWS.iter().any(|(own, _)| *own == name || own.starts_with(&format!("{name}|")))
        };
        for name in texts(&port.run("COMMAND LIST")) {
            let of_table =
                ROWS.iter().any(|row| name == row.name || name == format!("midi.{}", row.name));
            // `tests/port/scripts.rs` and `tests/port/pubsub.rs` have these.
            let of_scripts = ["eval", "fcall", "script", "function"];
            let elsewhere = of_scripts.iter().any(|kind| name.starts_with(kind))
                || name.ends_with("subscribe")
                // `tests/port/slow_log.rs`: there must be something to draw.
                || name == "latency|graph"
                || name == "client|import-source";
            let tried = of_table || known(&name) || elsewhere;
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
