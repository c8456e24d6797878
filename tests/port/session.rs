//! The promise: midi's port answers commands about the connection and the server as Redis does,
//! byte for byte, except for values that belong to each server.

use crate::common::hosts::{host, same_answer};
use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Server, Value, Way};

pub fn ported() -> Ported {
    Ported::start(Mode::Adaptive.builder())
}

/// A Redis without midi.
pub fn plain() -> Server {
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
        let (mut native, mut midi) = (masked(line, native), masked(line, midi));
        if line.to_ascii_uppercase().starts_with("CLIENT INFO") {
            native = without_newer_fields(native, &midi);
            if Way::of_this_run() == Way::Unix {
                midi = without_unix_flag(midi);
            }
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

/// The names and versions that the servers report in HELLO. On Valkey midi's port names a
/// compatible Redis.
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

/// The fields of a client on a Unix socket as if it used TCP, as the client of Redis does.
fn without_unix_flag(reply: Value) -> Value {
    let Value::Array(mut fields) = reply else { return reply };
    for field in fields.iter_mut().filter(|field| field.bytes().starts_with(b"flags=")) {
        let others = field.text().replace('U', "");
        *field = Value::bulk(if others == "flags=" { "flags=N" } else { &others });
    }
    Value::Array(fields)
}

/// A reply without the values that belong to each server.
fn masked(line: &str, reply: Value) -> Value {
    let line = line.to_ascii_uppercase();
    match reply {
        Value::Integer(_) if line == "CLIENT ID" => Value::Integer(0),
        Value::Array(list) if line == "TIME" => Value::Array(
            // Microseconds have one to six digits.
            list.iter()
                .map(|number| Value::bulk("0".repeat(number.bytes().len().min(1))))
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
        "COMMAND GETKEYS eval x 0",
        "COMMAND GETKEYS fcall x 0 a",
        "COMMAND GETKEYS eval x 3 a",
        "COMMAND GETKEYSANDFLAGS evalsha_ro x 0",
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

/// The additions of Redis 7.2 and 7.4, in their words.
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

/// As in newer hosts: Redis 7.0 takes the options before the wrong one.
#[test]
fn a_wrong_option_of_hello_undoes_the_others() {
    let ported = ported();
    ported.host().ok("CONFIG SET requirepass secret");
    let mut client = ported.client();
    for wrong in [&["BOGUS"][..], &["SETNAME", "a b"]] {
        let words = ["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me"];
        let reply = client.call(&[&words, wrong].concat());
        assert!(reply.is_error(), "{reply:?}");
        assert!(client.run("GET k").text().starts_with("NOAUTH "));
    }
    assert!(client.run("HELLO 3 SETNAME me").text().starts_with("NOAUTH "));
    client.ok("AUTH secret");
    assert_eq!(client.run("CLIENT GETNAME"), Value::NullBulk);
}

/// As in hosts from 7.2 on.
#[test]
fn reset_ends_no_evict() {
    let server = Builder::new().with_port().start();
    let mut client = server.midi_client();
    let mut is_kept = |line: &str| {
        client.run(line);
        let info = client.run("CLIENT INFO").text();
        let flags = info.split(' ').find_map(|field| field.strip_prefix("flags="));
        flags.expect("flags").contains('e')
    };
    assert!(is_kept("CLIENT NO-EVICT ON"));
    assert!(!is_kept("RESET"));
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
    let scenes: [&[&str]; 13] = [
        &["PING a", "CLIENT REPLY OFF", "PING b", "FOO", "GET k", "CLIENT REPLY ON", "PING c"],
        &["CLIENT REPLY SKIP", "PING a", "PING b", "GET k"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING a", "PING b"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING a"],
        &["CLIENT REPLY OFF", "CLIENT REPLY SKIP", "PING a", "CLIENT REPLY ON", "PING b"],
        &["CLIENT REPLY OFF", "PING a", "RESET", "PING b"],
        &["CLIENT REPLY SKIP", "RESET", "PING a"],
        &["CLIENT REPLY SKIP", "", "PING a", "PING b"],
        &["CLIENT REPLY SKIP", "PUBLISH c m", "", "PING a"],
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

/// It would concern a part of EXEC's reply. Valkey refuses it from 9.1 on.
#[test]
fn client_reply_is_refused_in_multi() {
    let ported = ported();
    for mode in ["ON", "OFF", "SKIP"] {
        for other in ["SET k v", "KEYS *", "EVAL 'return 1' 0", "WAIT 0 0", "PUBLISH c m"] {
            let mut client = ported.client();
            let lines = [&format!("CLIENT REPLY {mode}")[..], other, "EXEC", "PING a"];
            client.send(format!("MULTI\r\n{}\r\n", lines.join("\r\n")).as_bytes());
            let [begun, refused, queued, aborted, last] = std::array::from_fn(|_| client.read());
            assert_eq!([begun, last], [Value::ok(), Value::bulk("a")]);
            assert_eq!(queued.text(), "QUEUED");
            let text = "ERR Command 'client|reply' not allowed inside a transaction";
            assert_eq!(refused, Value::error(text));
            assert!(aborted.text().starts_with("EXECABORT"), "{mode} {other}: {aborted:?}");
        }
    }
}

#[test]
fn long_patterns_of_command_list_are_refused() {
    let ported = ported();
    let pattern = format!("*[{}", "a".repeat(5000));
    let refused = ported.client().call(&["COMMAND", "LIST", "FILTERBY", "PATTERN", &pattern]);
    assert!(refused.text().contains("midi.max-pattern-bytes 4096"), "{refused:?}");
}

#[test]
fn commands_of_the_host_are_said_to_be_there() {
    let ported = ported();
    let mut client = ported.client();
    for (line, name) in [
        ("monitor", "monitor"),
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
    for line in ["LPUSH l a", "GEOPOS k", "SORT k", "XGROUP CREATE k g 0", "PFCOUNT k", "BLPOP k 0"]
    {
        let name = line.split(' ').next().expect("a name").to_lowercase();
        let expected = format!(
            "ERR unknown command '{name}': not supported by midi; the host's port has it, but not \
             for midi's keys"
        );
        assert_eq!(client.run(line), Value::error(&expected), "{line}");
    }
}
