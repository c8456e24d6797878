//! The promise: midi's port answers commands about the connection and the server as Redis does,
//! byte for byte, except for values that belong to each server.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::hosts::{has_newer_flags, has_newer_tips, host, same_answer};
use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Server, Value, wait_until};

fn ported() -> Ported {
    Ported::start(Mode::Adaptive.builder())
}

/// A Redis without midi.
fn plain() -> Server {
    Builder::plain().start()
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(unescaped).collect()
}

/// `\n`, `\r` and `\0` within a word.
fn unescaped(word: &str) -> Vec<u8> {
    word.replace("\\n", "\n").replace("\\r", "\r").replace("\\0", "\0").into_bytes()
}

/// The answers of newer hosts.
const NEWER: [&str; 2] = ["CLIENT CAPA redirect", "CLIENT MAINT_NOTIFICATIONS ON"];

/// Runs the lines on both, on one connection each: the replies must be the same.
fn same_on(redis: &mut Client, port: &mut Client, lines: &[&str]) {
    for &line in lines {
        let (native, midi) = (redis.call(&words(line)), port.call(&words(line)));
        let (mut native, midi) = (masked(line, native), masked(line, midi));
        if line.to_ascii_uppercase().starts_with("CLIENT INFO") {
            native = without_newer_fields(native, &midi);
        }
        // midi's port lacks the commands that are newer than Redis 7.0.
        let newer =
            host().is_newer() && !native.is_error() && midi.is_error() && NEWER.contains(&line);
        let command = line.split(' ').next().unwrap_or_default();
        assert!(
            newer || same_answer(command, &native, &midi),
            "{line}: {midi:?}, and not {native:?}"
        );
    }
}

/// What each server reports of itself in HELLO. On Valkey midi's port names a compatible Redis.
fn greeting_of_its_own() -> &'static [&'static str] {
    if host().valkey { &["server", "version", "id", "modules"] } else { &["id", "modules"] }
}

/// More commands have this flag on newer hosts. Valkey lists subcommands as an array, Redis as a
/// set.
fn without_allow_busy(reply: Value) -> Value {
    let kept = |value: &Value| *value != Value::Simple(b"allow_busy".to_vec());
    match reply {
        Value::Array(list) | Value::Set(list) => {
            Value::Array(list.into_iter().filter(kept).map(without_allow_busy).collect())
        }
        other => other,
    }
}

/// Newer hosts report more about a client than Redis 7.0.
fn without_newer_fields(native: Value, midi: &Value) -> Value {
    match (native, midi) {
        (Value::Array(mut native), Value::Array(midi)) if host().is_newer() => {
            let name = |field: &Value| field.text().split('=').next().map(str::to_owned);
            let known: Vec<_> = midi.iter().map(name).collect();
            native.retain(|field| known.contains(&name(field)));
            Value::Array(native)
        }
        (native, _) => native,
    }
}

/// A reply without the values that belong to each server.
fn masked(line: &str, reply: Value) -> Value {
    let line = line.to_ascii_uppercase();
    match reply {
        Value::Integer(_) if line == "CLIENT ID" => Value::Integer(0),
        Value::Array(list) if line == "TIME" => Value::Array(
            list.iter()
                .map(|number| Value::bulk("0".repeat(number.bytes().len().min(3))))
                .collect(),
        ),
        Value::Map(pairs) if line.starts_with("HELLO") => {
            let own = |name: &Value| greeting_of_its_own().contains(&name.text().as_str());
            Value::Map(
                pairs
                    .into_iter()
                    .map(
                        |(name, value)| {
                            if own(&name) { (name, Value::Null) } else { (name, value) }
                        },
                    )
                    .collect(),
            )
        }
        Value::Array(mut flat) if line.starts_with("HELLO") => {
            for own in greeting_of_its_own() {
                let at = flat.iter().position(|word| *word == Value::bulk(own)).expect("its own");
                flat[at + 1] = Value::Null;
            }
            Value::Array(flat)
        }
        Value::Bulk(text) | Value::Verbatim(text) if line.starts_with("CLIENT INFO") => {
            Value::Array(fields(&text))
        }
        reply if line.starts_with("COMMAND INFO") && host().is_newer() => without_allow_busy(reply),
        other => other,
    }
}

/// The fields of a client line: in full if they depend neither on the connection nor on buffer
/// sizes, otherwise only their names.
fn fields(line: &[u8]) -> Vec<Value> {
    const COMPARED: [&str; 13] = [
        "name", "flags", "db", "sub", "psub", "ssub", "multi", "argv-mem", "events", "cmd", "user",
        "redir", "resp",
    ];
    // Redis 7.2 added these.
    const NEWER: [&str; 2] = ["lib-name", "lib-ver"];
    let line = String::from_utf8_lossy(line).into_owned();
    let line = line.strip_prefix("txt:").unwrap_or(&line);
    let fields = line.strip_suffix('\n').expect("a line end").split(' ');
    let fields = fields.map(|field| field.split_once('=').expect("name and value"));
    fields
        .filter(|(name, _)| !NEWER.contains(name))
        .map(|(name, value)| {
            // After EXEC Valkey reports a transaction without commands, not that there is no
            // transaction.
            let compared = COMPARED.contains(&name) && !(name == "multi" && host().valkey);
            if compared { Value::bulk(format!("{name}={value}")) } else { Value::bulk(name) }
        })
        .collect()
}

/// Lines for one connection each.
const SCENES: [&[&str]; 12] = [
    &[
        "PING",
        "PING hello",
        "ping \\0\\r\\n",
        "PING a b",
        "ECHO hello",
        "ECHO",
        "ECHO a b",
        "TIME",
        "TIME x",
        "SELECT 1",
        "CLIENT INFO",
        "SELECT 15",
        "SELECT 16",
        "SELECT -1",
        "SELECT abc",
        "SELECT ",
        "SELECT",
        "SELECT 2147483648",
        "SELECT 99999999999999999999",
        "SELECT 01",
        "CLIENT INFO",
        "SELECT 0",
    ],
    &[
        "CLIENT ID",
        "CLIENT ID x",
        "CLIENT GETNAME",
        "CLIENT SETNAME me",
        "CLIENT GETNAME",
        "CLIENT INFO",
        "CLIENT SETNAME a\\nb",
        "CLIENT GETNAME",
        "CLIENT SETNAME ",
        "CLIENT GETNAME",
        "CLIENT SETNAME a b",
        "CLIENT SETNAME",
        "client getname x",
        "CLIENT NO-EVICT ON",
        "CLIENT INFO",
        "CLIENT NO-EVICT OFF",
        "CLIENT INFO",
        "CLIENT NO-EVICT maybe",
        "CLIENT NO-EVICT",
        "CLIENT REPLY maybe",
        "CLIENT REPLY",
        "CLIENT REPLY ON",
        "CLIENT INFO x",
    ],
    &[
        "CLIENT",
        "CLIENT FOO",
        "CLIENT FOO BAR",
        "client foo\\r\\nbar",
        "cLiEnT foo\\0bar",
        "COMMAND FOO",
        "CONFIG",
        "CONFIG FOO",
        "ACL",
        "ACL FOO",
        "CLIENT MAINT_NOTIFICATIONS ON",
        "CLIENT CAPA redirect",
        "CONFIG GET",
        "ACL WHOAMI x",
        "ACL WHOAMI",
        "DEBUG",
        "DEBUG POPULATE",
        "DEBUG PoPulate 1 k 1 x",
    ],
    &[
        "CLIENT KILL",
        "CLIENT KILL 1.2.3.4:5",
        "CLIENT KILL ID",
        "CLIENT KILL ID abc",
        "CLIENT KILL ID 0",
        "CLIENT KILL ID -1",
        "CLIENT KILL ID 99999",
        "CLIENT KILL ID 99999 ADDR",
        "CLIENT KILL TYPE foo",
        "CLIENT KILL TYPE master",
        "CLIENT KILL TYPE replica SKIPME no",
        "CLIENT KILL TYPE slave",
        "CLIENT KILL TYPE pubsub",
        "CLIENT KILL USER nobody",
        "CLIENT KILL USER default ID 99999",
        "CLIENT KILL SKIPME maybe",
        "CLIENT KILL SKIPME yes ID 99999",
        "CLIENT KILL FOO bar",
        "CLIENT KILL ADDR 1.2.3.4:5",
        "CLIENT KILL LADDR 1.2.3.4:5 TYPE normal",
        "CLIENT KILL TYPE a\\nb",
        "CLIENT LIST TYPE foo",
        "CLIENT LIST TYPE replica",
        "CLIENT LIST TYPE master",
        "CLIENT LIST TYPE pubsub",
        "CLIENT LIST ID abc",
        "CLIENT LIST ID 99999",
        "CLIENT LIST ID -1",
        "CLIENT LIST ID",
        "CLIENT LIST FOO",
        "CLIENT LIST FOO bar",
        "CLIENT LIST TYPE normal x",
    ],
    &[
        "COMMAND INFO nosuch",
        "COMMAND INFO nosuch client|nosuch ping|x get|x",
        "COMMAND DOCS nosuch",
        "COMMAND LIST FOO",
        "COMMAND LIST FILTERBY foo bar",
        "COMMAND LIST FILTERBY PATTERN",
        "COMMAND LIST FILTERBY PATTERN client|k*",
        "COMMAND LIST FILTERBY PATTERN CLIENT|K*",
        "COMMAND LIST FILTERBY ACLCAT nosuch",
        "COMMAND LIST FILTERBY MODULE nosuch",
        "COMMAND LIST FILTERBY PATTERN ping",
        "COMMAND LIST FILTERBY PATTERN a b",
        "COMMAND GETKEYS",
        "COMMAND GETKEYS get",
        "COMMAND GETKEYS get a",
        "COMMAND GETKEYS get a b",
        "COMMAND GETKEYS mset a 1 b 2",
        "COMMAND GETKEYS nosuch a",
        "COMMAND GETKEYS ping a",
        "COMMAND GETKEYS client id",
        "COMMAND GETKEYS client nosuch",
        "COMMAND GETKEYSANDFLAGS get a",
        "COMMAND GETKEYSANDFLAGS del a b",
        "COMMAND GETKEYSANDFLAGS rename a b",
        "COMMAND GETKEYSANDFLAGS ping x",
        "COMMAND COUNT x",
        "COMMAND INFO auth",
        "COMMAND INFO echo select",
        "COMMAND INFO client|id",
        "COMMAND INFO client|trackinginfo client|getredir module|list lastsave role",
        "COMMAND GETKEYSANDFLAGS set k v",
        "COMMAND GETKEYSANDFLAGS set k v EX 1 GET",
        "CLIENT TRACKINGINFO",
        "CLIENT TRACKINGINFO x",
        "CLIENT GETREDIR",
        "LASTSAVE x",
        "ROLE x",
        "WAIT",
        "WAIT 0 x",
        "WAIT 1 -1",
        "WAIT 0 0",
        "MULTI",
        "WAIT 1 0",
        "EXEC",
        "ROLE",
        "MODULE",
        "MODULE LIST x",
    ],
    &[
        "HELLO",
        "HELLO 2",
        "HELLO 3",
        "HELLO 4",
        "HELLO 1",
        "HELLO abc",
        "HELLO 99999999999999999999",
        "HELLO 3 FOO",
        "HELLO 3 a\\nb",
        "HELLO 3 SETNAME",
        "HELLO 3 SETNAME a\\nb",
        "CLIENT GETNAME",
        "HELLO 3 SETNAME me",
        "CLIENT GETNAME",
        "HELLO 2 SETNAME you FOO",
        // Redis 7.0 has set the name; newer hosts have not.
        "CLIENT SETNAME you",
        "HELLO 3 AUTH default",
        "HELLO 2 AUTH nobody x",
        "HELLO 2 AUTH nobody x FOO",
        "HELLO 3 AUTH default x",
        "HELLO",
        "HELLO 2 AUTH default x SETNAME z",
        "CLIENT INFO",
    ],
    &[
        "SELECT 3",
        "CLIENT SETNAME me",
        "HELLO 3",
        "CLIENT NO-EVICT ON",
        "CLIENT INFO",
        // Newer hosts reset it at RESET.
        "CLIENT NO-EVICT OFF",
        "RESET",
        "CLIENT INFO",
        "RESET x",
        "CLIENT GETNAME",
        "ACL WHOAMI",
        "AUTH x",
        "AUTH default x",
        "AUTH nobody x",
        "AUTH a b c",
        "AUTH",
        "ACL WHOAMI",
    ],
    &[
        "FOO",
        "FOO bar",
        "foo bar baz",
        "FOO a\\r\\nb c\\0d e",
        "foo\\nbar",
        "foo\\0bar baz",
        " x",
        "GET",
        "GET a b",
        "DEL",
        "MSET a",
        "midi",
        "SET a b FOO",
        "FOO aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
         aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
         a b",
        "FOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOO\
         OOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOO a b",
        "FOO 123456789012345678901234567890 123456789012345678901234567890 \
         123456789012345678901234567890 1234567890 c d",
    ],
    &[
        "MULTI",
        "SELECT 3",
        "CLIENT SETNAME x",
        "CLIENT GETNAME",
        "ACL WHOAMI",
        "COMMAND GETKEYS get a",
        "HELLO 9",
        "AUTH default x",
        "PING hello",
        "EXEC",
        "CLIENT INFO",
        "MULTI",
        "CLIENT FOO",
        "EXEC",
        "CLIENT GETNAME",
    ],
    &[
        "MULTI",
        "HELLO 3 SETNAME y",
        "DISCARD",
        "CLIENT GETNAME",
        "MULTI",
        "RESET",
        "EXEC",
        "CLIENT INFO",
    ],
    &[
        "MULTI",
        "PING a b",
        "ECHO",
        "SELECT abc",
        "EXEC",
        "MULTI",
        "SELECT abc",
        "CLIENT KILL ID 0",
        "EXEC",
    ],
    &["QUIT x y"],
];

#[test]
fn replies_are_those_of_redis() {
    let (redis, ported) = (plain(), ported());
    for resp3 in [false, true] {
        for scene in SCENES {
            let (mut native, mut midi) = (redis.client(), ported.client());
            if resp3 {
                same_on(&mut native, &mut midi, &["HELLO 3"]);
            }
            same_on(&mut native, &mut midi, scene);
        }
    }
}

/// What Redis 7.2 and 7.4 added, in their words.
#[test]
fn newer_subcommands_are_answered_as_newer_servers_do() {
    let ported = ported();
    let mut client = ported.client();
    for (line, reply) in [
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
        ("client setinfo lib-ver 5.0", "+OK"),
        ("CLIENT SETINFO FOO bar", "-ERR Unrecognized option 'FOO'"),
        (
            "CLIENT SETINFO LIB-NAME a\\nb",
            "-ERR LIB-NAME cannot contain spaces, newlines or special characters.",
        ),
        (
            "CLIENT SETINFO lib-ver \\0",
            "-ERR lib-ver cannot contain spaces, newlines or special characters.",
        ),
        ("CLIENT SETINFO LIB-NAME", "-ERR wrong number of arguments for 'client|setinfo' command"),
        ("CLIENT NO-TOUCH ON", "+OK"),
        ("CLIENT NO-TOUCH off", "+OK"),
        ("CLIENT NO-TOUCH x", "-ERR syntax error"),
        ("CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0"),
        ("CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range"),
        ("CLIENT KILL MAXAGE 1000", ":0"),
    ] {
        let found = match client.call(&words(line)) {
            Value::Integer(number) => format!(":{number}"),
            Value::Error(text) => format!("-{}", String::from_utf8_lossy(&text)),
            other => format!("+{}", other.text()),
        };
        assert_eq!(found, reply, "{line}");
    }
    let line = client.run("CLIENT INFO").text();
    assert!(line.ends_with(" lib-name=redis-py lib-ver=5.0\n"), "{line}");
    assert_eq!(client.call(&words("CLIENT SETINFO LIB-NAME ")), Value::ok());
}

/// A server that requires a password: clients before and after login.
#[test]
fn strangers_are_told_what_redis_tells_them() {
    let (redis, ported) = (plain(), ported());
    redis.client().ok("CONFIG SET requirepass secret");
    ported.host().ok("CONFIG SET requirepass secret");
    let scenes: [&[&str]; 5] = [
        &[
            "PING",
            "GET k",
            "GET",
            "NOSUCH",
            "NOSUCH a",
            "CLIENT",
            "CLIENT FOO",
            "OBJECT",
            "OBJECT FOO k",
            "OBJECT ENCODING",
            "OBJECT ENCODING k",
            "MEMORY USAGE",
            "MSET a 1 b",
            "MSET a",
            "CLIENT ID",
            "COMMAND COUNT",
            "INFO server",
            "CONFIG GET port",
            "ACL WHOAMI",
            "DEBUG POPULATE 1",
            "SELECT 1",
            "TIME",
        ],
        &[
            "HELLO",
            "HELLO 3",
            "HELLO 4",
            "HELLO x",
            "HELLO 3 FOO",
            "HELLO 3 AUTH default wrong",
            "RESET",
            "GET k",
        ],
        &[
            "HELLO 3 AUTH default secret",
            "GET k",
            "CLIENT INFO",
            "RESET",
            "GET k",
            "AUTH wrong",
            "AUTH secret",
            "GET k",
        ],
        &[
            "AUTH default secret",
            "ACL WHOAMI",
            "RESET",
            "ACL WHOAMI",
            "HELLO 2 AUTH default secret SETNAME a",
            "CLIENT GETNAME",
        ],
        &["QUIT"],
    ];
    for scene in scenes {
        same_on(&mut redis.client(), &mut ported.client(), scene);
    }
}

#[test]
fn quit_and_http_close() {
    let ported = ported();
    for line in ["QUIT", "quit now"] {
        let mut client = ported.client();
        client.ok(line);
        assert!(client.try_read().is_err(), "{line}");
    }
    for lines in ["POST / HTTP/1.1\r\nPING\r\n", "Host: here\r\nPING\r\n"] {
        let mut client = ported.client();
        client.send(lines.as_bytes());
        assert!(client.try_read().is_err(), "{lines}");
    }
}

/// All that arrives until the connection is closed.
fn stream(mut client: Client, lines: &[&str]) -> Vec<Value> {
    let lines: Vec<&str> = lines.iter().copied().chain(["CLIENT REPLY ON", "QUIT"]).collect();
    client.send(format!("{}\r\n", lines.join("\r\n")).as_bytes());
    std::iter::from_fn(|| client.try_read().ok()).collect()
}

#[test]
fn client_reply_mutes_as_in_redis() {
    let (redis, ported) = (plain(), ported());
    let scenes: [&[&str]; 12] = [
        &["PING a", "CLIENT REPLY OFF", "PING b", "FOO", "GET k", "CLIENT REPLY ON", "PING c"],
        &["CLIENT REPLY SKIP", "PING a", "PING b", "GET k"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING a", "PING b"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING a"],
        &["CLIENT REPLY OFF", "CLIENT REPLY SKIP", "PING a", "CLIENT REPLY ON", "PING b"],
        &["CLIENT REPLY OFF", "PING a", "RESET", "PING b"],
        &["CLIENT REPLY SKIP", "RESET", "PING a"],
        &["CLIENT REPLY SKIP", "", "PING a", "PING b"],
        &["CLIENT REPLY SKIP", "PING a", "", "PING b", "CLIENT REPLY OFF", "", "PING c"],
        &[
            "CLIENT REPLY SKIP",
            "CONFIG GET maxmemory",
            "PING a",
            "CLIENT REPLY OFF",
            "INFO",
            "KEYS *",
            "SET a 1",
        ],
        &[
            "CLIENT REPLY OFF",
            "MSET a 1 b 2",
            "GET a",
            "GET b",
            "CLIENT REPLY foo",
            "CLIENT REPLY ON",
            "MGET a b",
        ],
        &["SET k v", "GET k", "CLIENT REPLY SKIP", "GET k", "GET k", "GET nosuch", "GET k"],
    ];
    for lines in scenes {
        let native = stream(redis.client(), lines);
        assert_eq!(stream(ported.client(), lines), native, "{lines:?}");
        redis.client().ok("FLUSHALL");
        ported.client().ok("FLUSHALL");
    }
}

#[test]
fn commands_of_the_host_are_said_to_be_there() {
    let ported = ported();
    let mut client = ported.client();
    for (line, name) in [
        ("PUBLISH c m", "publish"),
        ("subscribe c", "subscribe"),
        ("CONFIG SET a b", "config|set"),
        ("CLIENT TRACKING ON", "client|tracking"),
        ("ACL SETUSER x", "acl|setuser"),
        ("DEBUG SLEEP 0", "debug|sleep"),
        ("BGSAVE", "bgsave"),
        ("MEMORY STATS", "memory|stats"),
        ("memory Malloc-Stats x", "memory|malloc-stats"),
        ("MEMORY doctor", "memory|doctor"),
    ] {
        let expected = format!("ERR unknown command '{name}' on midi's port; use the host's port");
        assert_eq!(client.run(line), Value::error(&expected), "{line}");
    }
}

/// The host's port has these commands, but only for its own keys.
#[test]
fn commands_about_keys_are_not_said_to_be_elsewhere() {
    let ported = ported();
    let mut client = ported.client();
    for line in [
        "LPUSH l a",
        "GEOPOS k",
        "SORT k",
        "XGROUP CREATE k g 0",
        "PFCOUNT k",
        "EVAL x 0",
        "EVALSHA x 0",
        "SCRIPT LOAD x",
        "FCALL f 0",
        "BLPOP k 0",
    ] {
        let name = line.split(' ').next().expect("a name").to_lowercase();
        let expected = format!(
            "ERR unknown command '{name}': not supported by midi; the host's port has it, but not \
             for midi's keys"
        );
        assert_eq!(client.run(line), Value::error(&expected), "{line}");
    }
}

#[test]
fn the_server_is_described_as_at_the_hosts_port() {
    let ported = ported();
    for (mut host, mut port) in
        [(ported.host(), ported.client()), (ported.host().resp3(), ported.client().resp3())]
    {
        let mut same = || {
            for line in ["MODULE LIST", "LASTSAVE", "CLIENT TRACKINGINFO", "CLIENT GETREDIR"] {
                assert_eq!(port.run(line), host.run(line), "{line}");
            }
            // The state of the link may change between two commands.
            let role = |client: &mut Client| client.run("ROLE").array()[..1].to_vec();
            assert_eq!(role(&mut port), role(&mut host));
        };
        same();
        ported.host().ok("REPLICAOF 127.0.0.1 1");
        same();
        ported.host().ok("REPLICAOF NO ONE");
    }
}

#[test]
fn settings_and_counts_of_connections_are_the_ports() {
    let builder = Mode::Adaptive.builder().load("midi.maxclients 77");
    let ported = Ported::start(builder);
    let (mut host, mut port) = (ported.host().resp3(), ported.client().resp3());
    let setting = |client: &mut Client, name: &str| {
        client.run(&format!("CONFIG GET {name}")).map()[name].text()
    };
    assert_eq!(setting(&mut port, "port"), ported.number().to_string());
    assert_eq!(setting(&mut port, "maxclients"), "77");
    assert_ne!(setting(&mut host, "maxclients"), "77");
    for name in ["bind", "timeout", "maxmemory", "databases"] {
        assert_eq!(setting(&mut port, name), setting(&mut host, name), "{name}");
    }
    let all = port.run("CONFIG GET *").map();
    assert_eq!(all["port"].text(), ported.number().to_string());

    host.ok("SET native 1");
    port.ok("SET k 1 EX 100");
    port.ok("SELECT 3");
    port.run("MSET a 1 b 2");
    port.ok("SELECT 0");
    let _others = [ported.client(), ported.client()];
    wait_until("they are let in", || port.info("clients")["connected_clients"] == "3");
    for section in ["clients", "everything", "default"] {
        let info = port.info(section);
        assert_eq!((&*info["connected_clients"], &*info["maxclients"]), ("3", "77"), "{section}");
        assert_eq!(info["blocked_clients"], "0");
    }
    for section in ["keyspace", "everything", "default"] {
        let info = port.info(section);
        assert_eq!(info["db0"], "keys=1,expires=1,avg_ttl=0", "{section}");
        assert_eq!(info["db3"], "keys=2,expires=0,avg_ttl=0", "{section}");
    }
    assert!(host.info("keyspace")["db0"].starts_with("keys=1,expires=0"));
    port.ok("FLUSHALL");
    assert_eq!(port.run("INFO keyspace").text().lines().count(), 1);
}

#[test]
fn clients_are_listed_and_killed() {
    let ported = ported();
    let mut client = ported.client();
    client.ok("CLIENT SETNAME boss");
    client.ok("SELECT 4");
    let mut others: Vec<Client> = (0..6).map(|_| ported.client()).collect();
    let ids: Vec<i64> = others.iter_mut().map(|other| other.id()).collect();
    let text = client.run("CLIENT LIST").text();
    assert_eq!(text.lines().count(), 7, "{text}");
    assert!(
        text.lines().any(|line| line.contains(" name=boss ") && line.contains(" db=4 ")),
        "{text}"
    );
    let two = client.run(&format!("CLIENT LIST ID {} {} 12345", ids[1], ids[4])).text();
    let found: Vec<&str> = two.lines().map(|line| line.split(' ').next().expect("an id")).collect();
    assert_eq!(found, [format!("id={}", ids[1]), format!("id={}", ids[4])]);
    let line = client.run(&format!("CLIENT LIST ID {}", ids[2])).text();
    let address =
        line.split(' ').nth(1).and_then(|field| field.strip_prefix("addr=")).expect("an address");
    client.ok(&format!("CLIENT KILL {address}"));
    assert_eq!(client.integer(&format!("CLIENT KILL ID {}", ids[3])), 1);
    assert_eq!(client.integer(&format!("CLIENT KILL ID {}", ids[3])), 0);
    for killed in [2, 3] {
        assert!(others[killed].try_call(&["PING"]).is_err());
    }
    assert_eq!(client.integer(&format!("CLIENT KILL LADDR 127.0.0.1:{}", ported.number())), 4);
    assert_eq!(client.run("CLIENT LIST").text().lines().count(), 1);
    assert!(others.iter_mut().all(|other| other.try_call(&["PING"]).is_err()));
    let me = client.id();
    assert_eq!(client.integer(&format!("CLIENT KILL ID {me} SKIPME yes")), 0);
    assert_eq!(client.integer(&format!("CLIENT KILL ID {me} SKIPME no")), 1);
    assert!(client.try_call(&["PING"]).is_err());
    let mut host = ported.host();
    wait_until("all are gone", || host.info_number("midi_net", "midi_net_connections") == 0);
}

#[test]
fn clients_in_transactions_are_listed_as_such() {
    let ported = ported();
    let (mut client, mut other) = (ported.client(), ported.client());
    let line = |client: &mut Client, id: i64| client.run(&format!("CLIENT LIST ID {id}")).text();
    let id = other.id();
    other.ok("MULTI");
    other.run("GET a");
    other.run("PING");
    let text = line(&mut client, id);
    assert!(
        text.contains(" flags=x ") && text.contains(" multi=2 ") && text.contains(" cmd=ping "),
        "{text}"
    );
    assert!(!text.contains(" multi-mem=0 "), "{text}");
    other.run("EXEC");
    let text = line(&mut client, id);
    assert!(
        text.contains(" flags=N ") && text.contains(" multi=-1 ") && text.contains(" cmd=exec "),
        "{text}"
    );
    assert!(text.contains(" argv-mem=0 multi-mem=0 "), "{text}");
}

#[test]
fn users_are_listed_and_killed_by_name() {
    let ported = ported();
    ported.host().ok("ACL SETUSER alice on >alice +@all ~*");
    let (mut client, mut alice) = (ported.client(), ported.client_of("alice"));
    assert_eq!(alice.run("ACL WHOAMI"), Value::bulk("alice"));
    assert!(client.run("CLIENT LIST").text().contains(" user=alice "));
    assert_eq!(client.integer("CLIENT KILL USER alice"), 1);
    assert!(alice.try_call(&["PING"]).is_err());
    assert_eq!(client.integer("CLIENT KILL USER alice"), 0);
    ported.host().ok("ACL SETUSER bob on >bob +@all ~*");
    assert_eq!(client.integer("CLIENT KILL USER bob"), 0);
}

fn names(list: Value) -> BTreeSet<String> {
    list.array().iter().map(Value::text).collect()
}

/// The rows of COMMAND, by name.
fn described(list: Value) -> BTreeMap<String, Vec<Value>> {
    list.array().into_iter().map(|row| (row.clone().array()[0].text(), row.array())).collect()
}

fn texts(list: &Value) -> BTreeSet<String> {
    names(list.clone())
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

/// Key specs without the parts that depend on a command's options.
fn key_specs(list: &Value) -> Vec<(BTreeSet<String>, Value, Value)> {
    let specs = list.clone().array().into_iter().map(Value::map);
    specs
        .map(|spec| {
            let mut flags = texts(&spec["flags"]);
            flags.remove("variable_flags");
            (flags, spec["begin_search"].clone(), spec["find_keys"].clone())
        })
        .collect()
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
    let listed = names(midi.run("COMMAND LIST"));
    let mut compared = 0;
    for name in &listed {
        let own = midi.run(&format!("COMMAND INFO {name}")).array().remove(0).array();
        assert_eq!(own[0].text(), *name);
        assert!(name.contains('|') || all[name] == own, "{name}");
        // Each is one command here; Redis has one for every subcommand.
        let of_redis = native.run(&format!("COMMAND INFO {name}")).array().remove(0);
        if of_redis.is_null() || ["object", "memory"].contains(&name.as_str()) {
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
        // Redis added DELEX later, and does not count the value that it compares as read.
        if name != "delex" {
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
    let listed = names(client.run("COMMAND LIST"));
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
    let of_module = names(client.run("COMMAND LIST FILTERBY MODULE midi"));
    let mut at_host = names(ported.host().run("COMMAND LIST FILTERBY MODULE midi"));
    assert!(
        at_host.remove("midi.journal"),
        "clients may not call it, so the port has no such name"
    );
    assert_eq!(of_module, at_host);
    let admin = names(client.run("COMMAND LIST FILTERBY ACLCAT admin"));
    assert!(
        admin.contains("client|kill") && admin.contains("jobs") && !admin.contains("get"),
        "{admin:?}"
    );
    let found = names(client.run("COMMAND LIST FILTERBY PATTERN *GETSET"));
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

/// The names of INFO's sections, in order.
fn sections(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
}

#[test]
fn info_is_the_hosts_and_then_midis() {
    in_all_ported_modes(|_, ported| {
        let (mut client, mut host) = (ported.client(), ported.host());
        let of_midi = sections(&client.run("MIDI.INFO").text());
        assert!(of_midi.contains(&"midi_net".to_owned()));
        for ask in ["INFO", "INFO default", "INFO all"] {
            let mut expected = sections(&host.run(ask).text());
            expected.extend(of_midi.clone());
            assert_eq!(sections(&client.run(ask).text()), expected, "{ask}");
        }
        for ask in [
            "INFO everything",
            "INFO server clients",
            "INFO midi_net",
            "INFO modules",
            "INFO nosuch",
        ] {
            assert_eq!(sections(&client.run(ask).text()), sections(&host.run(ask).text()), "{ask}");
        }
        let mut client = ported.client().resp3();
        let reply = client.run("INFO server");
        let is_text = |text: &[u8]| text.starts_with(b"txt:# Server\r\n");
        assert!(matches!(reply, Value::Verbatim(text) if is_text(&text)));
    });
}

#[test]
fn config_get_is_the_hosts() {
    let ported = ported();
    for (mut client, mut host) in
        [(ported.client(), ported.host()), (ported.client().resp3(), ported.host().resp3())]
    {
        for ask in [
            "CONFIG GET save",
            "config get nosuch",
            "CONFIG GET midi.threads",
            "CONFIG GET maxmemory timeout",
        ] {
            let (own, of_host) = (client.run(ask), host.run(ask));
            assert_eq!(std::mem::discriminant(&own), std::mem::discriminant(&of_host), "{ask}");
            assert_eq!(own.map(), of_host.map(), "{ask}");
        }
        assert!(client.run("CONFIG GET *").map().len() > 100);
    }
}

#[test]
fn debug_populate_is_populate() {
    in_all_ported_modes(|_, ported| {
        let mut client = ported.client();
        client.ok("DEBUG POPULATE 1000");
        client.ok("debug populate 10 other 5");
        assert_eq!(client.integer("DBSIZE"), 1010);
        assert_eq!(client.integer("STRLEN other:3"), 5);
        assert_eq!(client.run("GET key:999"), Value::bulk("value:999"));
        assert!(client.run("DEBUG POPULATE").is_error());
        assert!(client.run("DEBUG POPULATE x").is_error());
    });
}

#[test]
fn net_is_counted() {
    let ported = ported();
    let mut client = ported.client();
    let mut host = ported.host();
    client.ok("SET a 1");
    client.run("NOSUCH");
    for _ in 0..10 {
        client.run("GET a");
    }
    client.run("AUTH nobody x");
    let fields = host.info("midi_net");
    assert_eq!(fields["midi_port_state"], "open");
    assert_eq!(fields["midi_net_backend"], "epoll");
    assert_eq!(fields["midi_net_connections"], "1");
    assert_eq!(fields["midi_net_commands"], "13");
    assert_eq!(fields["midi_net_failed_logins"], "1");
    let number = |name: &str| fields[name].parse::<u64>().expect("a number");
    assert!(number("midi_net_received_bytes") > 200 && number("midi_net_sent_bytes") > 80);
    let of_worker = |worker: usize| -> u64 {
        let text = &fields[&format!("midi_net_worker{worker}")];
        let commands =
            text.split(',').find_map(|field| field.strip_prefix("commands=")).expect("commands");
        commands.parse().expect("a number")
    };
    assert_eq!(of_worker(0) + of_worker(1), 13);
    let without = Mode::Adaptive.server();
    let fields = without.client().info("midi_net");
    assert_eq!(fields.len(), 1);
    assert_eq!(fields["midi_port_state"], "off");
}

/// Runs one test body in all three modes, each with a port of its own.
fn in_all_ported_modes(body: impl Fn(Mode, &Ported)) {
    for mode in Mode::ALL {
        println!("mode: {mode:?}");
        body(mode, &Ported::start(mode.builder()));
    }
}

/// The port imports and exports the host's keys as the host door does, with the user's rights.
#[test]
fn import_and_export_through_the_port() {
    in_all_ported_modes(|mode, ported| {
        let (mut host, mut client) = (ported.host(), ported.client());
        for key in 0..500 {
            host.ok(&format!("SET host:{key} {key}"));
        }
        host.run("LPUSH list a");
        assert_eq!(client.run("IMPORT *"), Value::integers(&[500, 0, 1]), "{mode:?}");
        assert_eq!(client.run("midi.import host:1*"), Value::integers(&[0, 111, 0]));
        client.ok("MSET own:1 1 own:2 2");
        assert_eq!(client.run("EXPORT own:*"), Value::integers(&[2, 0, 0]));
        assert_eq!(host.run("GET own:2"), Value::bulk("2"));
        client.ok("SELECT 3");
        assert_eq!(client.run("IMPORT *"), Value::integers(&[0, 0, 0]));
        assert_eq!(
            client.run("IMPORT"),
            Value::error("ERR wrong number of arguments for 'import' command")
        );
        assert_eq!(client.run("IMPORT * FOO"), Value::error("ERR syntax error"));
        assert_eq!(client.run("JOBS"), Value::Array(vec![]));
        assert_eq!(client.run("JOBS CANCEL 99"), Value::error("ERR no such job"));
        assert_eq!(client.run("HELP"), host.run("MIDI.HELP"));
        host.ok("ACL SETUSER some on >some +@all ~host:1*");
        let mut some = ported.client_of("some");
        let refusal = Value::error(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        );
        assert_eq!(some.run("IMPORT * REPLACE"), refusal);
        assert_eq!(some.run("EXPORT own:*"), refusal);
        assert_eq!(some.run("IMPORT host:1* REPLACE"), Value::integers(&[111, 0, 0]));
        // What the host would refuse its own clients.
        assert_eq!(client.run("HELLO").map()["role"].text(), "master");
        host.ok("REPLICAOF 127.0.0.1 1");
        client.ok("SELECT 0");
        wait_until("the port knows", || client.run("HELLO").map()["role"].text() == "replica");
        for line in ["EXPORT own:*", "IMPORT own:*"] {
            let refusal = Value::error("READONLY You can't write against a read only replica.");
            assert_eq!(client.run(line), refusal, "{mode:?}: {line}");
            assert_eq!(host.run(&format!("MIDI.{line}")), refusal, "{mode:?}: {line}");
        }
    });
}

/// HELLO lists the host's modules, midi among them, as the host does.
#[test]
fn hello_tells_of_modules() {
    let ported = ported();
    let (mut client, mut host) = (ported.client(), ported.host());
    for protocol in ["2", "3"] {
        let modules =
            |client: &mut Client| client.run(&format!("HELLO {protocol}")).map()["modules"].clone();
        let (of_host, of_port) = (modules(&mut host), modules(&mut client));
        assert_eq!(of_port, of_host);
        let mut modules = of_host.array().into_iter().map(Value::map);
        let midi = modules.find(|module| module["name"] == Value::bulk("midi")).expect("midi");
        assert!(midi["args"].clone().array().contains(&Value::bulk("port")), "{midi:?}");
    }
}

/// A long command of a port is listed at both doors, and can be ended from either.
#[test]
fn jobs_of_a_port_are_cancelled() {
    let ported = ported();
    let (mut client, mut host) = (ported.client(), ported.host());
    for cancelled_from_host in [false, true] {
        let mut busy = ported.client();
        let own = busy.id();
        busy.send_line("POPULATE 3000000");
        wait_until("it runs", || !client.run("JOBS").array().is_empty());
        let job = host.run("MIDI.JOBS").array().remove(0).map();
        assert_eq!((job["client"].integer(), job["door"].text()), (own, "port".to_owned()));
        let id = job["id"].integer();
        let door = if cancelled_from_host { &mut host } else { &mut client };
        door.ok(&format!("MIDI.JOBS CANCEL {id}"));
        assert_eq!(
            busy.read(),
            Value::error(&format!("ERR job {id} was cancelled by MIDI.JOBS CANCEL"))
        );
        busy.ok("FLUSHALL SYNC");
    }
    let mut busy = ported.client();
    busy.send_line("POPULATE 3000000");
    wait_until("it runs", || !client.run("JOBS").array().is_empty());
    drop(busy);
    wait_until("nobody waits for it", || client.run("JOBS").array().is_empty());
}
