//! The promise: SETNX, SETEX, PSETEX, GETSET, GETDEL, GETEX and MSETNX answer and store exactly
//! what the stock commands do. The conditions of SET, and DELEX, DIGEST and MSETEX, do what Redis
//! 8.4 does.

use crate::common::{
    Client, Mode, Random, Twin, Value, in_all_modes, in_all_modes_and_protocols, now_ms,
};

/// Invalid and unusual numbers for an expiry. None expires during a run.
const NUMBERS: &[&str] = &[
    "10000000",
    "100000",
    "0",
    "-1",
    "-0",
    "01",
    "",
    "abc",
    "1e3",
    "1.0",
    " 100",
    "9223372036854775",
    "9223372036854776",
    "-9223372036854776",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9223370000000000000",
    "1000\0",
];

/// The values that the key may hold before.
const BEFORE: [&str; 5] =
    ["DEL k", "SET k old", "SET k old EX 500", "SET k old PXAT 1", "SET k 12345"];

fn push_state(twin: &mut Twin) {
    for look in ["GET k", "PTTL k", "EXISTS k"] {
        twin.push_line(look);
    }
}

#[test]
fn other_forms_of_set() {
    in_all_modes_and_protocols(|twin| {
        for before in BEFORE {
            for value in ["new", "", "17", "\0\r\n"] {
                for name in ["SETNX", "setNX", "GETSET", "getset"] {
                    twin.push_line(before);
                    twin.push(&[name, "k", value]);
                    push_state(twin);
                }
                for number in NUMBERS {
                    for name in ["SETEX", "PSETEX", "pSetEx"] {
                        twin.push_line(before);
                        twin.push(&[name, "k", number, value]);
                        push_state(twin);
                    }
                }
            }
        }
    });
}

#[test]
fn getdel_takes_keys_out() {
    in_all_modes_and_protocols(|twin| {
        for before in BEFORE {
            twin.push_line(before);
            twin.push_line("GETDEL k");
            push_state(twin);
            twin.push_line("getdel k");
        }
    });
}

/// GETEX's options, valid and invalid.
fn getex_options() -> Vec<Vec<String>> {
    let (seconds, ms) = (now_ms() / 1000 + 1000, now_ms() + 1_000_000);
    let lines = [
        "EX 1000".into(),
        "px 1000000".into(),
        format!("EXAT {seconds}"),
        format!("PXat {ms}"),
        "EXAT 1".into(),
        "PXAT 1".into(),
        "Persist".into(),
        "PERSIST".into(),
        "KEEPTTL".into(),
        "NX".into(),
        "GET".into(),
        "EX".into(),
        "PX 0".into(),
        "EXAT -5".into(),
        "EX abc".into(),
        "1000".into(),
    ];
    lines.iter().map(|line: &String| line.split(' ').map(str::to_owned).collect()).collect()
}

fn push_getex(twin: &mut Twin, options: &[&Vec<String>]) {
    for before in BEFORE {
        twin.push_line(before);
        let mut args = vec!["GETEX", "k"];
        args.extend(options.iter().flat_map(|option| option.iter().map(String::as_str)));
        twin.push(&args);
        push_state(twin);
    }
}

#[test]
fn getex_takes_and_refuses_the_same_options() {
    in_all_modes_and_protocols(|twin| {
        let options = getex_options();
        push_getex(twin, &[]);
        for one in &options {
            push_getex(twin, &[one]);
            for two in &options {
                push_getex(twin, &[one, two]);
            }
        }
        for option in ["EX", "PX", "EXAT", "PXAT"] {
            for number in NUMBERS {
                twin.push_line("SET k old");
                twin.push(&["GETEX", "k", option, number]);
                push_state(twin);
                twin.push(&["GETEX", "nosuch", option, number]);
            }
        }
    });
}

#[test]
fn msetnx_sets_all_or_none() {
    in_all_modes_and_protocols(|twin| {
        for line in [
            "MSETNX a 1 b 2 c 3",
            "MGET a b c",
            "MSETNX d 4 c 5",
            "EXISTS d",
            "GET c",
            "MSETNX d 1 d 2 d 3",
            "GET d",
            "SET gone x PXAT 1",
            "msetnx gone 1 new 2",
            "MGET gone new",
            "SET lives x EX 1000",
            "MSETNX e 1 lives 2",
            "TTL lives",
            "EXISTS e",
            "MSETNX a",
            "MSETNX a 1 b",
            "MSETNX",
        ] {
            twin.push_line(line);
        }
        let mut args = vec!["MSETNX".to_owned()];
        args.extend((0..600).map(|number| format!("x{number}")));
        twin.push(&args);
        twin.push(&args);
        args[599] = "x0".into();
        twin.push(&args);
    });
}

#[test]
fn wrong_arities_are_refused_in_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        for name in ["SETNX", "SETEX", "PSETEX", "GETSET", "GETDEL", "GETEX", "MSETNX", "sEtNx"] {
            for count in 0..6 {
                let mut args = vec![name.to_owned()];
                // Large ones, or a key expires between two commands.
                args.extend((0..count).map(|number| (100_000 + number).to_string()));
                twin.push(&args);
            }
        }
    });
}

#[test]
fn large_values_come_and_go() {
    in_all_modes_and_protocols(|twin| {
        for len in [16_383, 16_385, 32_768, 300_000] {
            let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            twin.push(&[b"SETNX", &b"k"[..], &value]);
            twin.push(&[b"SETNX", &b"k"[..], b"x"]);
            twin.push(&[b"GETSET", &b"k"[..], b"small"]);
            twin.push(&[b"GETSET", &b"k"[..], &value]);
            twin.push_line("GETEX k EX 1000");
            twin.push_line("PTTL k");
            twin.push_line("GETEX k PERSIST");
            twin.push_line("GETEX k EXAT 1");
            twin.push(&[b"SETEX", &b"k"[..], b"1000", &value]);
            twin.push_line("GETDEL k");
            twin.push(&[b"PSETEX", &b"k"[..], b"1000000", &value]);
            push_state(twin);
            twin.push(&[b"MSETNX", &b"k2"[..], &value, b"k3", &value]);
            twin.push_line("MGET k2 k3");
            twin.push_line("DEL k k2 k3");
        }
    });
}

#[test]
fn too_long_keys_and_values_change_nothing() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-value-bytes 5");
        client.ok("CONFIG SET midi.max-key-bytes 3");
        let key = Value::error("ERR key exceeds maximum allowed size (midi.max-key-bytes 3)");
        let value =
            Value::error("ERR string exceeds maximum allowed size (midi.max-value-bytes 5)");
        client.run("MIDI.SET k old");
        for line in [
            "SETNX k 123456",
            "SETEX k 9 123456",
            "PSETEX k 9 123456",
            "GETSET k 123456",
            "MSETNX a 1 b 123456",
            "MSETEX 2 a 1 b 123456",
        ] {
            assert_eq!(client.run(&format!("MIDI.{line}")), value, "{line}");
        }
        for line in [
            "SETNX long v",
            "SETEX long 9 v",
            "PSETEX long 9 v",
            "GETSET long v",
            "MSETNX a 1 long v",
            "MSETEX 2 a 1 long v",
        ] {
            assert_eq!(client.run(&format!("MIDI.{line}")), key, "{line}");
        }
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("old"));
        assert_eq!(client.run("MIDI.EXISTS a b long"), Value::Integer(0));
    });
}

const SYNTAX: &str = "-ERR syntax error";
const DIGEST_WANTED: &str = "-ERR must be exactly 16 hexadecimal characters";
const CONDITION_WANTED: &str = "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE";

/// The XXH3 digest of `hello`, and a digest of no value stored here.
const HELLO: &str = "9555e8555c62dcfd";
const OTHER: &str = "0123456789abcdef";

/// Runs lines of `command -> reply`. A reply is `-error`, `:number`, `nil`, `+status` or a value.
/// `:~100` is a hundred seconds, of which some may have passed.
fn check_table(client: &mut Client, table: &str) {
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, expected) = line.split_once(" -> ").expect("a command and its reply");
        let expected = expected.replace("SYNTAX", SYNTAX);
        let expected = expected.replace("DIGEST_WANTED", DIGEST_WANTED);
        let expected = expected.replace("CONDITION_WANTED", CONDITION_WANTED);
        let command = command.replace("HELLO", HELLO).replace("OTHER", OTHER);
        let args: Vec<&str> =
            command.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
        let reply = client.call(&args);
        let shown = match &reply {
            Value::Simple(text) => format!("+{}", String::from_utf8_lossy(text)),
            Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
            Value::Integer(number) => format!(":{number}"),
            Value::NullBulk | Value::Null => "nil".into(),
            Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{command}: {other:?}"),
        };
        match expected.strip_prefix(":~").and_then(|most| most.parse::<i64>().ok()) {
            Some(most) => {
                assert!((most - 60..=most).contains(&reply.integer()), "{command}: {shown}")
            }
            None => assert_eq!(shown, expected, "{command}"),
        }
    }
}

fn check_in_all_modes_and_protocols(table: &str) {
    in_all_modes(|_, server| {
        for mut client in [server.client(), server.client().resp3()] {
            check_table(&mut client, table);
            client.ok("FLUSHALL");
        }
    });
}

#[test]
fn set_on_conditions_as_in_redis_8_4() {
    check_in_all_modes_and_protocols(
        "
        MIDI.SET k hello -> +OK
        MIDI.DIGEST k -> HELLO_DIGEST
        MIDI.SET k world IFEQ nosuch -> nil
        MIDI.SET k world ifeq hello -> +OK
        MIDI.SET k hello IfNe world -> nil
        MIDI.SET k hello IFNE other -> +OK
        MIDI.SET k world IFDEQ OTHER -> nil
        MIDI.SET k world IFDEQ HELLO -> +OK
        MIDI.SET k hello -> +OK
        MIDI.SET k world IFDEQ 9555E8555C62DCFD -> +OK
        MIDI.SET k hello -> +OK
        MIDI.SET k world IFDNE HELLO -> nil
        MIDI.SET k world IFDNE OTHER -> +OK
        MIDI.GET k -> world
        MIDI.SET k x IFEQ world GET -> world
        MIDI.SET k y IFEQ world GET -> x
        MIDI.SET k y IFNE x GET -> x
        MIDI.SET k y GET IFNE z -> x
        MIDI.GET k -> y
        MIDI.SET new v IFEQ v -> nil
        MIDI.SET new v IFDEQ OTHER -> nil
        MIDI.SET new v IFDEQ short -> nil
        MIDI.SET new v IFEQ v GET -> nil
        MIDI.EXISTS new -> :0
        MIDI.SET new v IFNE v -> +OK
        MIDI.DEL new -> :1
        MIDI.SET new v IFNE v GET -> nil
        MIDI.GET new -> v
        MIDI.DEL new -> :1
        MIDI.SET new v IFDNE short -> +OK
        MIDI.SET new w IFDNE short -> DIGEST_WANTED
        MIDI.SET new w IFDEQ 0OTHER -> DIGEST_WANTED
        MIDI.SET new w IFDEQ '' -> DIGEST_WANTED
        MIDI.SET new w IFDEQ short GET -> DIGEST_WANTED
        MIDI.SET new w IFDEQ zzzzzzzzzzzzzzzz -> nil
        MIDI.GET new -> v
        MIDI.SET new '' IFEQ v -> +OK
        MIDI.SET new w IFNE '' -> nil
        MIDI.SET new w IFEQ '' EX 100 -> +OK
        MIDI.TTL new -> :~100
        MIDI.SET new x IFEQ nosuch PX 5 -> nil
        MIDI.SET new x IFEQ w KEEPTTL -> +OK
        MIDI.TTL new -> :~100
        MIDI.SET new x IFEQ x -> +OK
        MIDI.TTL new -> :-1
        MIDI.SET new 5 IFEQ x -> +OK
        MIDI.INCR new -> :6
        MIDI.SET new 7 IFEQ 6 -> +OK
        MIDI.SET gone x PXAT 1 -> +OK
        MIDI.SET gone y IFEQ x -> nil
        MIDI.SET gone y IFNE x -> +OK
        "
        .replace("HELLO_DIGEST", HELLO)
        .as_str(),
    );
}

#[test]
fn conditions_exclude_each_other_as_in_redis_8_4() {
    check_in_all_modes_and_protocols(
        "
        MIDI.SET k hello -> +OK
        MIDI.SET k v IFEQ -> SYNTAX
        MIDI.SET k v IFDNE -> SYNTAX
        MIDI.SET k v IFEQ hello IFNE x -> SYNTAX
        MIDI.SET k v IFEQ hello IFDEQ OTHER -> SYNTAX
        MIDI.SET k v IFDNE OTHER IFDEQ OTHER -> SYNTAX
        MIDI.SET k v NX IFEQ hello -> SYNTAX
        MIDI.SET k v XX IFNE x -> SYNTAX
        MIDI.SET k v XX IFDEQ OTHER -> SYNTAX
        MIDI.SET k v IFEQ hello NX XX -> SYNTAX
        MIDI.SET k v IFEQ hello EX -> SYNTAX
        MIDI.SET k v IFEQ hello EX 0 -> -ERR invalid expire time in 'midi.set' command
        MIDI.GET k -> hello
        MIDI.SET k v IFEQ x IFEQ hello -> +OK
        MIDI.SET k w IFEQ v IFEQ x -> nil
        MIDI.SET k w IFEQ v NX -> nil
        MIDI.SET k w IFEQ v XX -> +OK
        MIDI.SET new w IFNE v XX -> nil
        MIDI.SET new w IFNE v NX -> +OK
        MIDI.SET new w IFNE v NX -> nil
        MIDI.SET k IFEQ IFEQ w -> +OK
        MIDI.SET k v IFEQ IFEQ -> +OK
        ",
    );
}

#[test]
fn delex_and_digest_as_in_redis_8_4() {
    check_in_all_modes_and_protocols(
        "
        MIDI.DIGEST k -> nil
        MIDI.SET k hello -> +OK
        MIDI.DIGEST k -> 9555e8555c62dcfd
        MIDI.SET e '' -> +OK
        MIDI.DIGEST e -> 2d06800538d394c2
        MIDI.SET z v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26\
            nnf961u2jkfzkjytls2kwlj7626sd -> +OK
        MIDI.DIGEST z -> 00006c38adf31777
        MIDI.DELEX z IFDEQ 6c38adf31777 -> DIGEST_WANTED
        MIDI.DELEX z IFDEQ 00006C38ADF31777 -> :1
        MIDI.DELEX k IFEQ hell -> :0
        MIDI.DELEX k IFNE hello -> :0
        MIDI.DELEX k IFDEQ OTHER -> :0
        MIDI.DELEX k IFDNE HELLO -> :0
        MIDI.DELEX k IFDNE 9555E8555C62DCFD -> :0
        MIDI.DELEX k IFDEQ '' -> DIGEST_WANTED
        MIDI.DELEX k IFDNE 0HELLO -> DIGEST_WANTED
        MIDI.DELEX k EQ hello -> CONDITION_WANTED
        MIDI.DELEX k NX hello -> CONDITION_WANTED
        MIDI.DELEX nosuch EQ hello -> :0
        MIDI.DELEX nosuch IFDEQ short -> :0
        MIDI.DELEX k IFEQ -> -ERR wrong number of arguments for 'midi.delex' command
        MIDI.DELEX k IFEQ hello x -> -ERR wrong number of arguments for 'midi.delex' command
        MIDI.DELEX nosuch IFEQ -> -ERR wrong number of arguments for 'midi.delex' command
        MIDI.DELEX -> -ERR wrong number of arguments for 'midi.delex' command
        MIDI.DIGEST -> -ERR wrong number of arguments for 'midi.digest' command
        MIDI.EXISTS k -> :1
        MIDI.DELEX k ifeq hello -> :1
        MIDI.DELEX k ifeq hello -> :0
        MIDI.SET k hello -> +OK
        MIDI.DELEX k IFNE other -> :1
        MIDI.SET k hello -> +OK
        MIDI.DELEX k IFDEQ HELLO -> :1
        MIDI.SET k hello EX 100 -> +OK
        MIDI.DELEX k IFDNE OTHER -> :1
        MIDI.SET k hello -> +OK
        MIDI.DELEX k -> :1
        MIDI.DELEX k -> :0
        MIDI.SET gone x PXAT 1 -> +OK
        MIDI.DELEX gone -> :0
        MIDI.SET gone x PXAT 1 -> +OK
        MIDI.DELEX gone IFEQ x -> :0
        ",
    );
}

#[test]
fn msetex_as_in_redis_8_4() {
    check_in_all_modes_and_protocols(
        "
        MIDI.MSETEX 2 a 1 b 2 -> :1
        MIDI.GET a -> 1
        MIDI.TTL b -> :-1
        MIDI.MSETEX 2 a 3 b 4 EX 100 -> :1
        MIDI.TTL a -> :~100
        MIDI.TTL b -> :~100
        MIDI.MSETEX 1 a 5 KEEPTTL -> :1
        MIDI.GET a -> 5
        MIDI.TTL a -> :~100
        MIDI.MSETEX 1 a 5 -> :1
        MIDI.TTL a -> :-1
        MIDI.MSETEX 2 c 1 a 2 NX PX 100000 -> :0
        MIDI.EXISTS c -> :0
        MIDI.MSETEX 2 c 1 d 2 px 100000 nx -> :1
        MIDI.TTL d -> :~100
        MIDI.MSETEX 2 c 3 nosuch 4 XX -> :0
        MIDI.GET c -> 1
        MIDI.MSETEX 2 c 3 d 4 XX KEEPTTL -> :1
        MIDI.TTL c -> :~100
        MIDI.MSETEX 3 e 1 e 2 e 3 NX -> :1
        MIDI.GET e -> 3
        MIDI.MSETEX 1 e x EXAT 1 -> :1
        MIDI.EXISTS e -> :0
        MIDI.MSETEX 1 e x PXAT 99999999999999 -> :1
        MIDI.MSETEX 1 NX NX NX -> :1
        MIDI.GET NX -> NX
        MIDI.MSETEX 0 a 1 -> -ERR invalid numkeys value
        MIDI.MSETEX -1 a 1 -> -ERR invalid numkeys value
        MIDI.MSETEX x a 1 -> -ERR invalid numkeys value
        MIDI.MSETEX 2147483648 a 1 -> -ERR invalid numkeys value
        MIDI.MSETEX 2147483647 a 1 -> -ERR wrong number of key-value pairs
        MIDI.MSETEX 2 a 1 b -> -ERR wrong number of key-value pairs
        MIDI.MSETEX 1 a 1 b -> SYNTAX
        MIDI.MSETEX 1 a 1 b 2 -> SYNTAX
        MIDI.MSETEX 1 a 1 NX XX -> SYNTAX
        MIDI.MSETEX 1 a 1 EX 5 PX 5 -> SYNTAX
        MIDI.MSETEX 1 a 1 EX 5 KEEPTTL -> SYNTAX
        MIDI.MSETEX 1 a 1 KEEPTTL PXAT 5 -> SYNTAX
        MIDI.MSETEX 1 a 1 GET -> SYNTAX
        MIDI.MSETEX 1 a 1 IFEQ 5 -> SYNTAX
        MIDI.MSETEX 1 a 1 PERSIST -> SYNTAX
        MIDI.MSETEX 1 a 1 EX -> SYNTAX
        MIDI.MSETEX 1 a 1 EX x -> -ERR value is not an integer or out of range
        MIDI.MSETEX 1 a 1 EX 0 -> -ERR invalid expire time in 'midi.msetex' command
        MIDI.MSETEX 1 a 1 PXAT -5 -> -ERR invalid expire time in 'midi.msetex' command
        MIDI.MSETEX 1 a -> -ERR wrong number of arguments for 'midi.msetex' command
        MIDI.GET a -> 5
        ",
    );
}

/// Digests of values that are compared on a worker.
#[test]
fn large_values_are_compared() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let value = vec![b'x'; 1_000_000];
        let mut other = value.clone();
        other[999_999] = b'y';
        for kept in [true, false] {
            let first: &[u8] = if kept { &value } else { b"" };
            client.call(&[b"MIDI.SET", &b"k"[..], first]);
            if !kept {
                client.call(&[b"MIDI.APPEND", &b"k"[..], &value]);
            }
            let digest = client.run("MIDI.DIGEST k");
            assert_eq!(
                client.call(&[b"MIDI.DELEX", &b"k"[..], b"IFEQ", &other]),
                Value::Integer(0)
            );
            assert!(client.call(&[b"MIDI.SET", &b"k"[..], b"z", b"IFNE", &value]).is_null());
            assert!(
                client
                    .call(&[b"MIDI.SET", &b"k"[..], b"z", b"IFDEQ", b"0123456789abcdef"])
                    .is_null()
            );
            assert_eq!(
                client.call(&["MIDI.DELEX", "k", "IFDEQ", &digest.text()]),
                Value::Integer(1)
            );
        }
    });
}

/// A string command on one of a few keys, with arguments that are usually valid.
fn random_command(random: &mut Random) -> Vec<String> {
    const NUMBERS: &[&str] =
        &["0", "1", "-1", "7", "100", "-100", "9223372036854775807", "0.5", "x", "1e3"];
    const TEXTS: &[&str] =
        &["", "a", "12", "-7", "3.25", "hello world", "9223372036854775800", "\0"];
    // Seconds or milliseconds, which either expire at once or not during a run.
    const TIMES: &[&str] = &["10000000", "20000000", "0", "-5", "x"];
    let key = |random: &mut Random| random.pick(&["a", "b", "c", "d", "e", "f"]).to_owned();
    let text = |random: &mut Random| match random.below(6) {
        0 => "x".repeat(random.below(30_000)),
        _ => random.pick(TEXTS).to_owned(),
    };
    let mut args = vec![
        random
            .pick(&[
                "SET",
                "GET",
                "SETNX",
                "SETEX",
                "PSETEX",
                "GETSET",
                "GETDEL",
                "GETEX",
                "APPEND",
                "STRLEN",
                "GETRANGE",
                "SUBSTR",
                "SETRANGE",
                "INCR",
                "DECR",
                "INCRBY",
                "DECRBY",
                "INCRBYFLOAT",
                "MSETNX",
                "MSET",
                "MGET",
                "PERSIST",
                "PTTL",
                "DEL",
            ])
            .to_owned(),
        key(random),
    ];
    match args[0].as_str() {
        "SET" | "SETNX" | "GETSET" | "APPEND" => args.push(text(random)),
        "SETEX" | "PSETEX" => args.extend([random.pick(TIMES).to_owned(), text(random)]),
        "GETEX" if random.below(2) == 0 => args.push("PERSIST".into()),
        "GETEX" => args.extend(["PX".into(), random.pick(TIMES).to_owned()]),
        "GETRANGE" | "SUBSTR" => {
            args.extend([random.pick(NUMBERS), random.pick(NUMBERS)].map(str::to_owned))
        }
        "SETRANGE" => args.extend([random.below(40_000).to_string(), text(random)]),
        "INCRBY" | "DECRBY" | "INCRBYFLOAT" => args.push(random.pick(NUMBERS).to_owned()),
        "MSETNX" | "MSET" => args.extend([text(random), key(random), text(random)]),
        "MGET" => args.push(key(random)),
        _ => {}
    }
    args
}

#[test]
fn a_random_run_is_the_same() {
    for (mode, shards) in
        [(Mode::Adaptive, 1024), (Mode::Pool, 1024), (Mode::Safe, 1024), (Mode::Adaptive, 1)]
    {
        let server = mode.builder().load(&format!("shards {shards}")).start();
        let twin = &mut Twin::new(server.client());
        let mut random = Random::new(31 + shards);
        for _ in 0..4000 {
            let args = random_command(&mut random);
            let bytes =
                |args: Vec<String>| args.into_iter().map(String::into_bytes).collect::<Vec<_>>();
            match random.below(30) {
                0 => twin.script(&args),
                1 => {
                    let more = (0..random.below(5)).map(|_| bytes(random_command(&mut random)));
                    let commands: Vec<_> = more.chain([bytes(args)]).collect();
                    twin.transaction(&commands);
                }
                _ => twin.push(&args),
            }
        }
        twin.flush();
    }
}
