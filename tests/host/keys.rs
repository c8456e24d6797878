//! The promise: MIDI.* commands that handle keys regardless of their values (delete, expire, list,
//! scan, flush) do exactly what the stock commands do: alone, in transactions and in scripts.

use crate::common::hosts::same_answer;
use crate::common::{
    Mode, Random, Server, Twin, Value, in_all_modes, in_all_modes_and_protocols, shown,
};

#[test]
fn del_unlink_exists_and_type_count_the_same() {
    in_all_modes_and_protocols(|twin| {
        for line in [
            "MSET a 1 b 2 c 3 d 4 e 5",
            "EXISTS a",
            "EXISTS a a nosuch b",
            "TOUCH a a nosuch b",
            "TYPE a",
            "TYPE nosuch",
            "DEL a",
            "DEL a",
            "del b b nosuch",
            "UNLINK c d c",
            "UNLINK nosuch",
            "EXISTS a b c d e",
            "DBSIZE",
            "SET e 1 PXAT 1",
            "DEL e",
            "SET e 1 PXAT 1",
            "TYPE e",
        ] {
            twin.push_line(line);
        }
        twin.push(&["SET", "", "empty"]);
        twin.push(&["EXISTS", "", "\0", ""]);
        twin.push(&["TYPE", ""]);
        twin.push(&["DEL", "\0", ""]);
        let many: Vec<String> =
            ["DEL".to_owned()].into_iter().chain((0..1000).map(|n| n.to_string())).collect();
        twin.push(&many);
    });
}

#[test]
fn wrong_arities_are_refused_in_the_same_words() {
    let names = [
        "DEL",
        "UNLINK",
        "EXISTS",
        "TYPE",
        "EXPIRE",
        "PEXPIRE",
        "EXPIREAT",
        "PEXPIREAT",
        "TTL",
        "PTTL",
        "EXPIRETIME",
        "PEXPIRETIME",
        "TOUCH",
        "PERSIST",
        "KEYS",
        "SCAN",
        "RANDOMKEY",
        "DBSIZE",
        "FLUSHDB",
        "FLUSHALL",
        "keys",
        "dbSize",
    ];
    in_all_modes_and_protocols(|twin| {
        for name in names {
            for count in 0..5 {
                let mut args = vec![name.to_owned()];
                args.extend((0..count).map(|number| number.to_string()));
                twin.push(&args);
            }
        }
    });
}

/// Conditions of EXPIRE: all words alone, in pairs and in threes.
fn conditions() -> Vec<Vec<&'static str>> {
    const WORDS: [&str; 6] = ["NX", "xx", "Gt", "lT", "CH", "10"];
    let mut lists = vec![vec![]];
    for one in WORDS {
        lists.push(vec![one]);
        for two in WORDS {
            lists.push(vec![one, two]);
            lists.extend(WORDS.map(|three| vec![one, two, three]));
        }
    }
    lists
}

#[test]
fn expire_and_pexpire_keep_the_same_conditions() {
    in_all_modes_and_protocols(|twin| {
        for before in ["DEL k", "SET k v", "SET k v EX 500"] {
            for (name, times) in [
                ("EXPIRE", ["1000", "100", "-1"]),
                ("PEXPIRE", ["1000000", "100000", "0"]),
                ("EXPIREAT", ["4000000000", "1", "-1"]),
                ("PEXPIREAT", ["4000000000000", "1000", "0"]),
            ] {
                for time in times {
                    for words in conditions() {
                        twin.push_line(before);
                        twin.push(&[&[name, "k", time], words.as_slice()].concat());
                        twin.push_line("PTTL k");
                        twin.push_line("PEXPIRETIME k");
                        twin.push_line("GET k");
                    }
                }
            }
        }
    });
}

#[test]
fn expire_reads_numbers_as_redis_does() {
    let numbers = [
        "0",
        "-0",
        "-1",
        "01",
        "+1",
        " 1",
        "",
        "abc",
        "1.5",
        "1000",
        "9223372036854775",
        "9223372036854776",
        "-9223372036854775",
        "-9223372036854776",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "9221000000000000000",
        "99999999999999999999",
    ];
    in_all_modes_and_protocols(|twin| {
        for name in ["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"] {
            for number in numbers {
                for key in ["k", "nosuch"] {
                    twin.push_line("SET k v");
                    twin.push(&[name, key, number]);
                    twin.push(&[name, key, number, "what"]);
                    twin.push(&[name, key, number, "wh\r\nat\0x"]);
                    if !(name == "PEXPIRE" && number == "1000") {
                        twin.push_line("EXISTS k");
                        twin.push_line("PTTL k");
                        twin.push_line("TTL k");
                        twin.push_line("EXPIRETIME k");
                        twin.push_line("PEXPIRETIME k");
                    }
                }
            }
        }
    });
}

#[test]
fn ttl_and_persist_follow_the_expiry() {
    in_all_modes_and_protocols(|twin| {
        for line in [
            "TTL k",
            "PTTL k",
            "PERSIST k",
            "SET k v",
            "TTL k",
            "PTTL k",
            "PERSIST k",
            "EXPIRE k 100",
            "TTL k",
            "PTTL k",
            "PERSIST k",
            "PERSIST k",
            "TTL k",
            "PEXPIRE k 100000",
            "SET k w",
            "TTL k",
            "SET k w EX 100",
            "SET k w KEEPTTL",
            "TTL k",
            "MSET k x",
            "TTL k",
            "EXPIRE k 100 GT",
            "EXPIRE k 100 LT",
            "EXPIRE k 200 GT",
            "TTL k",
            // Not 200 again: whether that is later depends on the millisecond.
            "EXPIRE k 150 GT",
            "EXPIRE k -1 GT",
            "EXPIRE k -1 LT",
            "EXISTS k",
            "EXPIRETIME k",
            "SET k v",
            "EXPIRETIME k",
            "PEXPIRETIME k",
            "EXPIREAT k 4000000000",
            "EXPIRETIME k",
            "PEXPIRETIME k",
            "PEXPIREAT k 4000000000499",
            "EXPIRETIME k",
            "PEXPIREAT k 4000000000500",
            "EXPIRETIME k",
            "PEXPIREAT k 1",
            "EXISTS k",
        ] {
            twin.push_line(line);
        }
    });
}

/// Keys that are hard for pattern matching.
fn odd_keys() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "a",
        "b",
        "-",
        "^",
        "[",
        "]",
        "\\",
        "*",
        "?",
        "aa",
        "ab",
        "ba",
        "a-b",
        "a]b",
        "a[b",
        "a^b",
        "a*b",
        "a?b",
        "a\\b",
        "aaaa",
        "abab",
        "[a]",
        "[^a]",
        "a\\",
        "\\a",
        "-a",
        "]-",
        "\0",
        "a\0b",
        "\r\n",
        "A",
        "é",
        "!",
        "abcdefghijklmnopqrstuvwxyz",
    ];
    let mut keys: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    keys.extend([vec![0xff], vec![0x80, b'a'], vec![0xff, 0, 0xfe]]);
    keys
}

fn set_odd_keys(twin: &mut Twin) {
    for key in odd_keys() {
        twin.push(&[b"SET".as_slice(), &key, b"v"]);
    }
}

#[test]
fn keys_matches_every_short_pattern_as_redis_does() {
    const BYTES: &[u8] = b"*?[]^-\\ab";
    in_all_modes(|_, server| {
        let twin = &mut Twin::new(server.client());
        set_odd_keys(twin);
        let mut patterns = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..4 {
            let longest = patterns[from..].to_vec();
            from = patterns.len();
            for pattern in longest {
                patterns.extend(BYTES.iter().map(|byte| [pattern.as_slice(), &[*byte]].concat()));
            }
        }
        for pattern in patterns {
            twin.push(&[b"KEYS".as_slice(), &pattern]);
        }
        twin.flush();
    });
}

#[test]
fn keys_matches_long_and_binary_patterns_as_redis_does() {
    const PIECES: [&[u8]; 22] = [
        b"*",
        b"**",
        b"?",
        b"[a-c]",
        b"[^a-c]",
        b"[c-a]",
        b"[a-",
        b"[^",
        b"[",
        b"]",
        b"[]",
        b"[^]",
        b"[\\]]",
        b"[a\\",
        b"\\",
        b"\\*",
        b"a",
        b"b",
        b"\0",
        b"\xff",
        b"[\x80-\xff]",
        b"[!-~]",
    ];
    in_all_modes_and_protocols(|twin| {
        set_odd_keys(twin);
        let mut random = Random::new(11);
        for _ in 0..1500 {
            let pattern: Vec<u8> = (0..1 + random.below(6))
                .flat_map(|_| PIECES[random.below(PIECES.len())].to_vec())
                .collect();
            twin.push(&[b"KEYS".as_slice(), &pattern]);
        }
        // Patterns that take a naive matcher forever, and long runs of stars.
        twin.push(&["KEYS", &"*a".repeat(20)]);
        twin.push(&["KEYS", &"*".repeat(2000)]);
        twin.push(&["KEYS", &format!("{}[", "*[a]".repeat(50))]);
    });
}

/// Keys may be much longer than patterns may be from their first star on.
#[test]
fn patterns_with_a_long_beginning_match_as_in_redis() {
    in_all_modes(|_, server| {
        let twin = &mut Twin::new(server.client());
        let long = "k".repeat(20_000);
        for end in ["", "1", "2", "*", "x1"] {
            twin.push(&["SET", &format!("{long}{end}"), "v"]);
        }
        for end in ["", "1", "?", "*", "\\*", "[12]", "[^1]", "*1", "nosuch", "?1*"] {
            let pattern = format!("{long}{end}");
            twin.push(&["KEYS", &pattern]);
            twin.push(&["SCAN", "0", "COUNT", "1000", "MATCH", &pattern]);
        }
        let escaped = "\\k".repeat(20_000);
        twin.push(&["KEYS", &escaped]);
        twin.push(&["KEYS", &"?".repeat(20_001)]);
        twin.flush();
    });
}

#[test]
fn scan_refuses_the_same_arguments() {
    in_all_modes_and_protocols(|twin| {
        for line in [
            "SCAN",
            "SCAN abc",
            "SCAN 0x0",
            "SCAN 1x",
            "SCAN 99999999999999999999",
            "SCAN -",
            "SCAN 0 COUNT",
            "SCAN 0 COUNT 0",
            "SCAN 0 COUNT -1",
            "SCAN 0 COUNT abc",
            "SCAN 0 COUNT 99999999999999999999",
            "SCAN 0 MATCH",
            "SCAN 0 TYPE",
            "SCAN 0 NOSUCH",
            "SCAN 0 NOSUCH x",
            "SCAN 0 MATCH * COUNT",
            "SCAN abc COUNT 0",
            "SCAN 0 COUNT 0 MATCH",
            "SCAN 0 COUNT x NOSUCH",
            "SCAN 0 TYPE string TYPE",
            "SCAN 0 0",
        ] {
            let reply = twin.same_line(line);
            assert!(reply.is_error(), "{line}");
        }
        for args in [
            ["SCAN", " 0"],
            ["SCAN", "0 "],
            ["SCAN", "0\0"],
            ["SCAN", ""],
            ["SCAN", "+"],
            ["SCAN", "\t0"],
        ] {
            twin.same(&args);
        }
        // On an empty database every scan ends at once, whatever the cursor.
        for line in [
            "SCAN 0",
            "scan 0 count 1 match x",
            "SCAN 0 TYPE string",
            "SCAN 0 TYPE nosuch",
            "SCAN 17",
            "SCAN 18446744073709551615",
            "SCAN -1",
            "SCAN +5",
            "SCAN 0 COUNT 9223372036854775807",
            "SCAN 0 COUNT 5000",
        ] {
            let native = twin.client().run(line);
            let midi = twin.client().run(&format!("MIDI.{line}"));
            assert!(same_answer("scan", &native, &midi), "{line}: {midi:?}, and not {native:?}");
        }
    });
}

/// All keys of a full SCAN by either family, sorted and without duplicates.
fn scanned(twin: &mut Twin, command: &str, options: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let mut args: Vec<&[u8]> = vec![command.as_bytes(), &cursor];
        args.extend(options);
        let reply = twin.client().call(&args).array();
        keys.extend(reply[1].clone().array().iter().map(|key| key.bytes().to_vec()));
        cursor = reply[0].bytes().to_vec();
        if cursor == b"0" {
            keys.sort();
            keys.dedup();
            return keys;
        }
    }
}

#[test]
fn a_full_scan_gives_the_same_keys() {
    in_all_modes_and_protocols(|twin| {
        set_odd_keys(twin);
        for number in 0..500 {
            twin.push_line(&format!("SET key:{number} v"));
        }
        let options: [&[&[u8]]; 9] = [
            &[],
            &[b"COUNT", b"1"],
            &[b"COUNT", b"100000"],
            &[b"MATCH", b"key:*"],
            &[b"match", b"[^k]*", b"count", b"3"],
            &[b"MATCH", b"nosuch"],
            &[b"TYPE", b"string"],
            &[b"TYPE", b"STRING"],
            &[b"TYPE", b"hash", b"COUNT", b"2000"],
        ];
        for options in options {
            let native = scanned(twin, "SCAN", options);
            let midi = scanned(twin, "MIDI.SCAN", options);
            assert_eq!(native, midi, "{}", shown(options));
        }
    });
}

#[test]
fn randomkey_and_dbsize_know_what_is_there() {
    in_all_modes_and_protocols(|twin| {
        twin.same_line("RANDOMKEY");
        twin.same_line("DBSIZE");
        let names: Vec<Vec<u8>> =
            (0..50).map(|number| format!("key:{number}").into_bytes()).collect();
        for (number, name) in names.iter().enumerate() {
            twin.push(&[b"SET".as_slice(), name, b"v"]);
            assert_eq!(twin.same_line("DBSIZE").integer(), number as i64 + 1);
        }
        let mut drawn: Vec<Vec<u8>> =
            (0..1000).map(|_| twin.same_line("RANDOMKEY").bytes().to_vec()).collect();
        drawn.sort();
        drawn.dedup();
        assert!(drawn.iter().all(|key| names.contains(key)));
        assert!(drawn.len() > 10, "only {} of 50 keys were ever drawn", drawn.len());
    });
}

#[test]
fn flushes_take_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        for name in ["FLUSHDB", "FLUSHALL", "flushdb"] {
            for options in ["", "SYNC", "async", "Sync", "WRONG", "SYNC ASYNC", "SYNC x", "0"] {
                twin.push_line("MSET a 1 b 2");
                twin.push_line("DBSIZE");
                twin.push_line(&format!("{name} {options}"));
                twin.push_line("DBSIZE");
                twin.push_line("KEYS *");
                twin.push_line("GET a");
            }
        }
    });
}

#[test]
fn flushes_of_midi_leave_the_host_alone() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (db, flush, left) in
            [(0, "MIDI.FLUSHDB", 1), (1, "MIDI.FLUSHALL SYNC", 0), (2, "MIDI.FLUSHDB SYNC", 1)]
        {
            for fill in 0..4 {
                client.ok(&format!("SELECT {fill}"));
                client.ok("MSET native 1");
                client.ok("MIDI.MSET a 1 b 2");
            }
            client.ok(&format!("SELECT {db}"));
            client.ok(flush);
            assert_eq!(client.integer("MIDI.DBSIZE"), 0, "{flush}");
            assert_eq!(client.integer("DBSIZE"), 1, "{flush}");
            client.ok("SELECT 3");
            assert_eq!(client.integer("MIDI.DBSIZE"), 2 * left, "{flush}");
            assert_eq!(client.integer("DBSIZE"), 1, "{flush}");
        }
    });
}

/// A random command on a few keys. Expiry times are either past or far in the future.
fn random_command(random: &mut Random) -> Vec<Vec<u8>> {
    const KEYS: &[&str] =
        &["a", "b", "c", "d", "", "\0\u{1}", "key:with:a:long:name:of:more:than:forty:bytes", "z"];
    const VALUES: &[&str] =
        &["", "1", "12345", "-7", "some text", "\r\n\0", "another value that is not short at all"];
    const TIMES: &[&str] = &["-1", "0", "abc", "99999999999999999999"];
    const WORDS: &[&str] =
        &["NX", "XX", "GET", "KEEPTTL", "EX 1000", "PX 2000000", "GT", "LT", "EX", "foo", "PX 0"];
    const PATTERNS: &[&str] = &["*", "?", "[ab]", "[^ab]*", "key*", "nosuch", "a"];
    let key = random.pick(KEYS).to_owned();
    let value = random.pick(VALUES).to_owned();
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    match random.below(24) {
        0..=3 => {
            add(&["SET", &key, &value]);
            for _ in 0..random.below(4).saturating_sub(1) {
                add(&random.pick(WORDS).split(' ').collect::<Vec<_>>());
            }
        }
        4..=6 => add(&["GET", &key]),
        7 => add(&["MSET", &key, &value, random.pick(KEYS), random.pick(VALUES)]),
        8 => add(&["MGET", &key, random.pick(KEYS), random.pick(KEYS)]),
        9 => add(&["DEL", &key, random.pick(KEYS)]),
        10 => add(&["UNLINK", &key]),
        11 => add(&["EXISTS", &key, random.pick(KEYS)]),
        12 => add(&["TYPE", &key]),
        13..=15 => {
            // No two times are close to each other, so GT and LT decide the same on both sides.
            let far = 1000 + random.below(1_000_000);
            let (name, far) = match random.below(2) {
                0 => ("EXPIRE", far.to_string()),
                _ => ("PEXPIRE", (1000 * far).to_string()),
            };
            let time = if random.below(2) == 0 { far } else { random.pick(TIMES).to_owned() };
            add(&[name, &key, &time]);
            for _ in 0..random.below(3).saturating_sub(1) {
                add(&[random.pick(WORDS)]);
            }
        }
        16 => add(&[random.pick(&["TTL", "EXPIRETIME"]), &key]),
        17 => add(&[random.pick(&["PTTL", "PEXPIRETIME", "TOUCH"]), &key]),
        18 => add(&["PERSIST", &key]),
        19 => add(&["KEYS", random.pick(PATTERNS)]),
        20 => add(&["DBSIZE"]),
        21 if random.below(20) == 0 => {
            add(&[random.pick(&["FLUSHDB", "FLUSHALL", "FLUSHDB SYNC"])])
        }
        22 => add(&["SCAN", "0", "COUNT", random.pick(&["1", "100", "0", "5000", "x"])]),
        _ => add(&["RANDOMKEY"]),
    }
    args.into_iter().map(String::into_bytes).collect()
}

/// Splits an argument of several words.
fn spread(args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    match args.as_slice() {
        [one] => one.split(|&byte| byte == b' ').map(<[u8]>::to_vec).collect(),
        _ => args,
    }
}

fn random_run(server: &Server, seed: u64, count: usize) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let client = if seed.is_multiple_of(2) { server.client() } else { server.client().resp3() };
    let twin = &mut Twin::new(client);
    for number in 0..count {
        if number.is_multiple_of(200) {
            twin.client().ok(&format!("SELECT {}", random.below(3)));
        }
        let args = spread(random_command(&mut random));
        match random.below(20) {
            0 => twin.script(&args),
            1 => {
                let commands: Vec<_> =
                    (0..1 + random.below(6)).map(|_| spread(random_command(&mut random))).collect();
                twin.transaction(&commands);
            }
            2 => drop(twin.same(&args)),
            _ => twin.push(&args),
        }
    }
    twin.flush();
}

#[test]
fn a_random_run_is_the_same_at_once() {
    random_run(&Mode::Adaptive.server(), 2001, 20_000);
    random_run(&Mode::Adaptive.server(), 2002, 20_000);
}

#[test]
fn a_random_run_is_the_same_in_pool() {
    random_run(&Mode::Pool.server(), 2003, 10_000);
    random_run(&Mode::Pool.server(), 2004, 10_000);
}

#[test]
fn a_random_run_is_the_same_in_safemode() {
    random_run(&Mode::Safe.server(), 2005, 10_000);
    random_run(&Mode::Safe.server(), 2006, 10_000);
}

/// With one shard, all commands work on the same table.
#[test]
fn a_random_run_is_the_same_with_one_shard_and_many() {
    random_run(&Mode::Adaptive.builder().load("shards 1").start(), 2007, 10_000);
    random_run(&Mode::Pool.builder().load("shards 16384 threads 5").start(), 2008, 5_000);
}

/// The differential runs would notice a difference.
#[test]
#[should_panic(expected = "native: ")]
fn a_difference_is_noticed() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("SET k native");
    client.ok("MIDI.SET k midi");
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("midi"));
    Twin::new(client).same_line("GET k");
}
