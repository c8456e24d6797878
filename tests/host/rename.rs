//! The promise: RENAME, RENAMENX, COPY, MOVE and SWAPDB do to midi's keys what the stock commands
//! do to the host's. Value and expiry move together, no client sees a partial move, and the
//! counters of both databases stay right.

use crate::common::{
    Client, Mode, Random, Server, Twin, Value, beside, in_all_modes, in_all_modes_and_protocols,
    words,
};

/// The values of both keyspaces under a few names, in a few databases.
fn push_look(twin: &mut Twin) {
    for db in ["3", "1", "0"] {
        twin.client().ok(&format!("SELECT {db}"));
        twin.push_line("MGET a b c");
        for key in ["a", "b", "c"] {
            twin.push_line(&format!("PEXPIRETIME {key}"));
        }
        twin.push_line("DBSIZE");
    }
}

#[test]
fn every_case_answers_the_same() {
    let commands = [
        "RENAME a b",
        "RENAME a a",
        "RENAMENX a b",
        "RENAMENX a a",
        "rename b a",
        "COPY a b",
        "COPY a a",
        "COPY a b REPLACE",
        "COPY a b DB 0",
        "COPY a a DB 0 REPLACE",
        "COPY a a DB 1",
        "COPY a c DB 1 REPLACE",
        "COPY a b DB 3 DB 1",
        "copy a b replace db 3",
        "COPY a b REPLACE REPLACE",
        "COPY nosuch a",
        "MOVE a 1",
        "MOVE a 0",
        "MOVE b 3",
        "MOVE nosuch 1",
        "MOVE nosuch 0",
    ];
    let before: [&[&str]; 5] = [
        &[],
        &["SET a 1"],
        &["SET a 1 PXAT 4000000000123", "SET b 2"],
        &["SET a 1", "SET b 2 PXAT 4000000000123", "COPY b a DB 1", "COPY a c DB 1"],
        &["SET a 1 PXAT 1", "SET b 2 PXAT 1", "COPY b a DB 1"],
    ];
    in_all_modes_and_protocols(|twin| {
        for setup in before {
            for command in commands {
                for line in setup.iter().chain([&command]) {
                    twin.push_line(line);
                }
                push_look(twin);
                twin.push_line("FLUSHALL");
            }
        }
    });
}

#[test]
fn the_same_is_refused_in_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        twin.push_line("MSET a 1 b 2");
        for name in ["RENAME", "RENAMENX", "COPY", "MOVE", "SWAPDB", "swapDb"] {
            for count in 0..6 {
                let words: Vec<String> = [name.to_owned()]
                    .into_iter()
                    .chain((0..count).map(|n| n.to_string()))
                    .collect();
                twin.push(&words);
            }
        }
        let numbers = [
            "",
            "x",
            "-1",
            "16",
            "15",
            "01",
            " 1",
            "+1",
            "2147483647",
            "2147483648",
            "-2147483648",
            "-2147483649",
            "9223372036854775807",
            "9223372036854775808",
        ];
        for number in numbers {
            for head in [
                &["MOVE", "a"][..],
                &["MOVE", "nosuch"],
                &["COPY", "a", "b", "DB"],
                &["SWAPDB", "0"],
            ] {
                twin.push(&[head, &[number]].concat());
            }
            twin.push(&["SWAPDB", number, "0"]);
            twin.push(&["SWAPDB", number, "x"]);
            twin.push(&["COPY", "a", "a", "DB", number, "what"]);
            twin.push_line("MGET a b");
        }
        for options in ["DB", "REPLACE DB", "what", "DB 1 what", "NX", "DB DB", "REPLACE x REPLACE"]
        {
            twin.push_line(&format!("COPY a b {options}"));
            twin.push_line(&format!("COPY nosuch b {options}"));
        }
        twin.push_line("RENAME nosuch nosuch");
        twin.push_line("RENAMENX nosuch nosuch");
        twin.push(&["RENAME", "a", ""]);
        twin.push(&["RENAME", "", "\0\r\n"]);
        twin.push(&["GET", "\0\r\n"]);
    });
}

/// Short, long, kept: every form of an entry moves together with its expiry.
#[test]
fn every_shape_of_value_goes_along() {
    in_all_modes_and_protocols(|twin| {
        for len in [0, 1, 44, 255, 256, 1000, 32_767, 32_768, 100_000] {
            let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let long = "n".repeat(len.min(300));
            for at in [&[][..], &[b"PXAT".as_slice(), b"4000000000123"]] {
                twin.push(&[&[b"SET".as_slice(), b"a", &value], at].concat());
                for words in [
                    ["RENAME", "a", &long],
                    ["COPY", &long, "b"],
                    ["RENAMENX", "b", "c"],
                    ["MOVE", "c", "2"],
                ] {
                    twin.push(&words);
                }
                twin.push(&["GET", &long]);
                twin.push(&["PEXPIRETIME", &long]);
                twin.client().ok("SELECT 2");
                twin.push_line("GET c");
                twin.push_line("PEXPIRETIME c");
                twin.push_line("FLUSHALL");
                twin.client().ok("SELECT 0");
            }
        }
    });
}

/// Memory that the system has given to the server, in bytes.
fn resident(server: &Server) -> usize {
    let path = format!("/proc/{}/statm", server.pid());
    let pages = std::fs::read_to_string(path).expect("the server's memory");
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

/// Its copies count as values, and take nothing from the system.
#[test]
fn a_kept_value_is_shared_by_its_copies() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let value = "v".repeat(4 << 20);
        client.ok(&format!("MIDI.SET a {value}"));
        let before = (client.info_number("memory", "used_memory"), resident(server));
        for number in 0..20 {
            assert_eq!(client.integer(&format!("MIDI.COPY a copy:{number}")), 1);
            assert_eq!(client.integer(&format!("MIDI.COPY a copy:{number} DB 5")), 1);
        }
        let after = (client.info_number("memory", "used_memory"), resident(server));
        assert!(after.0 - before.0 >= 160 << 20, "{before:?} {after:?}");
        assert!(after.1 < before.1 + (40 << 20), "{before:?} {after:?}");
        client.integer("MIDI.DEL a");
        assert_eq!(client.run("MIDI.GET copy:19").bytes(), value.as_bytes());
    });
}

#[test]
fn swapdb_exchanges_midis_keys_alone() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET a 0 x 0");
        client.ok("SET native 0");
        client.ok("SELECT 1");
        client.ok("MIDI.SET a 1 EX 1000");
        client.ok("SET native 1");
        client.ok("MIDI.SWAPDB 0 1");
        client.ok("MIDI.SWAPDB 3 3");
        assert_eq!(
            client.run("MIDI.MGET a x"),
            Value::Array(vec![Value::bulk("0"), Value::bulk("0")])
        );
        assert_eq!(client.run("GET native"), Value::bulk("1"));
        assert_eq!((client.integer("MIDI.DBSIZE"), client.integer("DBSIZE")), (2, 1));
        client.ok("SELECT 0");
        assert_eq!(client.run("MIDI.GET a"), Value::bulk("1"));
        assert_eq!(client.run("GET native"), Value::bulk("0"));
        assert_eq!(client.info("midi_keyspace")["midi_db0"], "keys=1,expires=1");
        assert_eq!(client.info("midi_keyspace")["midi_db1"], "keys=2,expires=0");
        client.ok("MULTI");
        client.run("MIDI.SWAPDB 1 0");
        client.run("MIDI.GET a");
        let swapped = Value::Array(vec![Value::ok(), Value::bulk("0")]);
        assert_eq!(client.run("EXEC"), swapped);
    });
}

/// A random command on a few keys in a few databases.
fn random_command(random: &mut Random) -> Vec<String> {
    const KEYS: &[&str] = &["a", "b", "c", "d", "e"];
    const DBS: &[&str] = &["0", "1", "2", "2", "1", "0", "99", "x"];
    let (one, two) = (random.pick(KEYS), random.pick(KEYS));
    let line = match random.below(14) {
        0..=2 => format!("SET {one} {}", random.below(1_000_000)),
        3 => format!("SET {one} {} PXAT 4000000000{:03}", random.below(1000), random.below(1000)),
        4 | 5 => format!("RENAME {one} {two}"),
        6 => format!("RENAMENX {one} {two}"),
        7 => format!("COPY {one} {two}"),
        8 => format!("COPY {one} {two} DB {} REPLACE", random.pick(DBS)),
        9 => format!("COPY {one} {two} DB {}", random.pick(DBS)),
        10 => format!("MOVE {one} {}", random.pick(DBS)),
        11 => format!("PEXPIRETIME {one}"),
        12 => "MGET a b c d e".to_owned(),
        _ if random.below(4) == 0 => format!("DEL {one} {two}"),
        _ => "DBSIZE".to_owned(),
    };
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_random_run_is_the_same() {
    for (seed, mode) in Mode::tried().enumerate() {
        let server = mode.server();
        let mut random = Random::new(3100 + seed as u64);
        let twin = &mut Twin::new(server.client());
        for number in 0..8000 {
            if number % 50 == 0 {
                let db = random.below(3);
                twin.client().ok(&format!("SELECT {db}"));
            }
            // Swaps and swaps back, so that the two families stay together.
            if number % 333 == 0 {
                twin.client().ok("MIDI.SWAPDB 0 1");
                twin.client().ok("MIDI.SWAPDB 1 0");
            }
            match random.below(20) {
                0 => twin.script(&random_command(&mut random)),
                1 => {
                    let commands: Vec<Vec<Vec<u8>>> = (0..4)
                        .map(|_| {
                            random_command(&mut random)
                                .into_iter()
                                .map(String::into_bytes)
                                .collect()
                        })
                        .collect();
                    twin.transaction(&commands);
                }
                _ => twin.push(&random_command(&mut random)),
            }
        }
        twin.flush();
        let client = twin.client();
        for db in 0..3 {
            client.ok(&format!("SELECT {db}"));
            let expires = format!("db{db}");
            let native = client.info("keyspace").get(&expires).cloned().unwrap_or_default();
            let midi = client.info("midi_keyspace").get(&format!("midi_{expires}")).cloned();
            let midi = midi.unwrap_or_default();
            assert_eq!(native.split(",avg_ttl").next(), Some(midi.as_str()), "database {db}");
        }
    }
}

/// One value moves in a circle. Every reader finds it under exactly one name.
#[test]
fn a_renamed_key_is_never_there_twice_nor_not_at_all() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let names = ["n:0", "n:1", "n:2", "n:3"];
        server.client().ok("MIDI.SET n:0 value");
        let rename = |client: &mut Client, random: &mut Random| {
            let (from, to) = (random.pick(&names), random.pick(&names));
            client.run(&format!("MIDI.RENAME {from} {to}"));
            client.run(&format!("MIDI.RENAMENX {to} {from}"));
        };
        beside(&server, 3, rename, || {
            let mut client = server.client();
            for _ in 0..3000 {
                let found = client.run("MIDI.MGET n:0 n:1 n:2 n:3").array();
                let there = found.iter().filter(|value| !value.is_null()).count();
                assert_eq!(there, 1, "{found:?}");
            }
        });
    }
}

/// One key moves between two databases. A swap of both sees it in one of them.
#[test]
fn the_books_stay_right_beside_moves() {
    for mode in Mode::tried() {
        let server = mode.server();
        server.client().ok("MIDI.POPULATE 500 k");
        let moves = |client: &mut Client, random: &mut Random| {
            let (from, to) = (random.below(3), random.below(3));
            client.ok(&format!("SELECT {from}"));
            client.run(&format!("MIDI.MOVE k:{} {to}", random.below(500)));
            if random.below(100) == 0 {
                client.ok(&format!("MIDI.SWAPDB {from} {to}"));
            }
        };
        beside(&server, 3, moves, || std::thread::sleep(std::time::Duration::from_secs(1)));
        let mut client = server.client();
        let mut sum = 0;
        for db in 0..3 {
            client.ok(&format!("SELECT {db}"));
            let listed = client.run("MIDI.KEYS *").array().len() as i64;
            assert_eq!(client.integer("MIDI.DBSIZE"), listed, "database {db}");
            sum += listed;
        }
        assert_eq!(sum, 500);
    }
}

/// The main thread would be busy with it for long.
#[test]
fn a_large_hash_is_copied_by_a_job() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let mut set = words("MIDI.HSET h");
    set.extend((0..5000).flat_map(|field| [format!("field:{field}").into_bytes(), b"v".to_vec()]));
    assert_eq!(client.call(&set), Value::Integer(5000));
    let jobs = |client: &mut Client| client.info_number("midi_jobs", "midi_jobs_started");
    let before = jobs(&mut client);
    assert_eq!(client.integer("MIDI.COPY h copy"), 1);
    assert_eq!(jobs(&mut client) - before, 1);
    // Nothing is copied.
    assert_eq!(client.integer("MIDI.COPY h copy"), 0);
    assert_eq!(client.integer("MIDI.COPY nosuch copy REPLACE"), 0);
    assert_eq!(jobs(&mut client) - before, 1);
    client.integer("MIDI.HSET h field:1 other");
    client.pipeline(&["MULTI", "MIDI.COPY h whole", "EXEC"].map(words));
    for (key, value) in [("copy", "v"), ("whole", "other")] {
        assert_eq!(client.integer(&format!("MIDI.HLEN {key}")), 5000);
        assert_eq!(client.run(&format!("MIDI.HGET {key} field:1")), Value::bulk(value));
    }
}
