//! The promise: MIDI.OBJECT and MIDI.MEMORY answer and refuse as the stock commands do where midi
//! knows the answer, and report it where midi does not.

use crate::common::{Client, Value, in_all_modes, in_all_modes_and_protocols};

#[test]
fn encoding_and_refcount_are_those_of_a_value_that_was_set() {
    let numbers = [
        "0",
        "1",
        "-1",
        "9999",
        "10000",
        "-0",
        "007",
        "+1",
        " 1",
        "1 ",
        "1.5",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
    ];
    in_all_modes_and_protocols(|twin| {
        let mut values: Vec<Vec<u8>> =
            numbers.iter().map(|text| text.as_bytes().to_vec()).collect();
        values.extend([0, 1, 20, 21, 43, 44, 45, 100, 32_768].map(|len| vec![b'x'; len]));
        values.extend([20, 21, 44, 45].map(|len| vec![b'1'; len]));
        for value in &values {
            twin.push(&[b"SET".as_slice(), b"k", value]);
            for line in ["OBJECT ENCODING k", "object refCount k", "OBJECT FREQ k"] {
                twin.push_line(line);
            }
            twin.push_line("COPY k other");
            twin.push_line("OBJECT ENCODING other");
            twin.push_line("DEL other");
        }
        for line in [
            "OBJECT ENCODING nosuch",
            "OBJECT REFCOUNT nosuch",
            "OBJECT IDLETIME nosuch",
            "OBJECT FREQ nosuch",
        ] {
            twin.push_line(line);
        }
    });
}

/// A value's history also decides: APPEND, SETRANGE and bit writes leave `raw`, and INCRBYFLOAT
/// never leaves `int`.
#[test]
fn encoding_is_that_of_a_value_that_was_made() {
    let beginnings = [
        "",
        "SET k 7",
        "SET k 7 EX 100",
        "SET k word",
        "APPEND k 7",
        "SETRANGE k 0 7",
        "INCRBYFLOAT k 7",
    ];
    let changes = [
        "APPEND k 5",
        "APPEND k \"\"",
        "SETRANGE k 0 5",
        "SETRANGE k 3 5",
        "SETRANGE k 0 \"\"",
        "SETBIT k 0 0",
        "SETBIT k 3 0",
        "BITFIELD k SET u1 0 0",
        "BITFIELD k GET u8 0",
        "BITOP OR k k",
        "INCRBYFLOAT k 5",
        "INCRBYFLOAT k 0.5",
        "INCRBY k 5",
    ];
    let later = [
        "GET k",
        "EXPIRE k 100",
        "PERSIST k",
        "SET k 5 XX KEEPTTL",
        "INCR k",
        "GETSET k 12345",
        "MSET k 5",
        "SETEX k 100 word",
        "GETEX k EX 100",
    ];
    in_all_modes_and_protocols(|twin| {
        for beginning in beginnings {
            for change in changes {
                for line in later {
                    for line in [beginning, change, "OBJECT ENCODING k", line, "OBJECT ENCODING k"]
                    {
                        let words: Vec<&str> =
                            line.split_whitespace().map(|word| word.trim_matches('"')).collect();
                        if !words.is_empty() {
                            twin.push(&words);
                        }
                    }
                    for line in [
                        "COPY k l",
                        "OBJECT ENCODING l",
                        "RENAME k m",
                        "OBJECT ENCODING m",
                        "DEL k l m",
                    ] {
                        twin.push_line(line);
                    }
                }
            }
        }
    });
}

#[track_caller]
fn check(client: &mut Client, args: &[&[u8]], error: &str) {
    let reply = client.call(args);
    assert_eq!(reply, Value::error(error), "{}", crate::common::shown(args));
}

/// Stock replies the same for its own commands. The prefix appears in upper and lower case.
#[test]
fn wrong_subcommands_are_refused_in_redis_words() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for name in ["OBJECT", "MEMORY"] {
            let long = "y".repeat(200);
            for word in ["x", "", "ENCODINGS", "enco\r\nding", "a\0b", &long] {
                for more in [&[][..], &["k"], &["k", "l"]] {
                    let args = [&[name, word], more].concat();
                    let native = client.call(&args);
                    let prefixed = format!("midi.{name}");
                    let midi = client.call(&[&[prefixed.as_str(), word], more].concat());
                    let expected =
                        native.text().replace(&format!("Try {name}"), &format!("Try MIDI.{name}"));
                    assert_eq!(midi, Value::error(&expected));
                    assert!(expected.starts_with("ERR unknown subcommand '"), "{expected}");
                }
            }
            let lower = name.to_lowercase();
            let midi = format!("MIDI.{name}");
            let error = format!("ERR wrong number of arguments for 'midi.{lower}' command");
            check(&mut client, &[midi.as_bytes()], &error);
        }
        for (line, name) in [
            ("ENCODING", "object|encoding"),
            ("encoding a b", "object|encoding"),
            ("REFCOUNT", "object|refcount"),
            ("FREQ a b", "object|freq"),
            ("IdleTime", "object|idletime"),
            ("HELP me", "object|help"),
        ] {
            let error = format!("ERR wrong number of arguments for '{name}' command");
            assert_eq!(client.run(&format!("OBJECT {line}")), Value::error(&error));
            let error = format!("ERR wrong number of arguments for 'midi.{name}' command");
            assert_eq!(client.run(&format!("MIDI.OBJECT {line}")), Value::error(&error));
        }
        let error = "ERR wrong number of arguments for 'midi.memory|usage' command";
        assert_eq!(client.run("MIDI.MEMORY USAGE"), Value::error(error));
    });
}

#[test]
fn idle_times_are_not_tracked_and_the_error_says_so() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        let error = "ERR midi does not track the idle time of keys yet";
        assert_eq!(client.run("MIDI.OBJECT IDLETIME k"), Value::error(error));
    });
}

#[test]
fn help_lists_the_subcommands() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (name, subcommands) in [
            ("OBJECT", &["ENCODING", "FREQ", "IDLETIME", "REFCOUNT", "HELP"][..]),
            ("MEMORY", &["USAGE", "HELP"]),
        ] {
            let lines = client.run(&format!("midi.{name} help")).array();
            assert!(lines[0].text().starts_with(&format!("{name} <subcommand>")), "{lines:?}");
            for (at, subcommand) in subcommands.iter().enumerate() {
                assert!(lines[1 + 2 * at].text().starts_with(subcommand), "{lines:?}");
            }
        }
    });
}

#[test]
fn memory_usage_checks_its_option_as_redis_does() {
    in_all_modes_and_protocols(|twin| {
        twin.same_line("MEMORY USAGE nosuch");
        twin.same_line("memory usage nosuch samples 5");
        for options in [
            "SAMPLES",
            "SAMPLES -1",
            "SAMPLES x",
            "x",
            "SAMPLES 1 SAMPLES",
            "x 1",
            "SAMPLES 1 x",
            "5",
        ] {
            for key in ["k", "nosuch"] {
                assert!(twin.same_line(&format!("MEMORY USAGE {key} {options}")).is_error());
            }
        }
        twin.client().ok("MIDI.SET k v");
        for options in ["", "SAMPLES 0", "SAMPLES 5 samples 9223372036854775807"] {
            assert!(twin.client().integer(&format!("MIDI.MEMORY USAGE k {options}")) > 0);
        }
    });
}

#[test]
fn memory_usage_is_what_a_key_takes() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 200000 p 100");
        server.wait_until_idle();
        let bytes = client.info_number("midi_memory", "midi_table_bytes");
        let mut sum = 0;
        for number in 0..200 {
            sum += client.integer(&format!("MIDI.MEMORY USAGE p:{}", number * 997));
        }
        // Each table has its own overhead. The mean over many keys is the mean over all.
        let (told, taken) = (sum as f64 / 200.0, bytes as f64 / 200_000.0);
        assert!((told / taken - 1.0).abs() < 0.1, "{told} {taken}");
        for len in [10, 1000, 32_768, 1_000_000] {
            client.ok(&format!("MIDI.SET k {}", "v".repeat(len)));
            let usage = client.integer("MIDI.MEMORY USAGE k") as usize;
            assert!(usage >= len && usage < len + len / 4 + 1000, "{len}: {usage}");
        }
    });
}
