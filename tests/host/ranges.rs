//! The promise: APPEND, STRLEN, GETRANGE, SUBSTR and SETRANGE answer and store exactly what the
//! stock commands do, for small and large values.

use crate::common::{Mode, Random, Twin, Value, beside, in_all_modes, in_all_modes_and_protocols};

const OFFSETS: &[&str] = &[
    "0",
    "1",
    "5",
    "11",
    "12",
    "100",
    "-1",
    "-5",
    "-12",
    "-13",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "x",
    "",
    "1.5",
    " 1",
    "-0",
];

#[test]
fn parts_are_read_at_any_offsets() {
    in_all_modes_and_protocols(|twin| {
        for before in ["DEL k", "SET k 0123456789ab", "SET k x", "SET k 12345678"] {
            twin.push_line(before);
            for start in OFFSETS {
                for end in OFFSETS {
                    twin.push(&["GETRANGE", "k", start, end]);
                    twin.push(&["substr", "k", start, end]);
                }
            }
            twin.push_line("STRLEN k");
        }
        twin.push(&["SET", "k", ""]);
        twin.push_line("GETRANGE k 0 -1");
        twin.push_line("GETRANGE k -1 0");
        twin.push_line("STRLEN k");
    });
}

#[test]
fn parts_are_written_at_any_offset() {
    in_all_modes_and_protocols(|twin| {
        for before in ["DEL k", "SET k 0123456789ab", "SET k 17 EX 1000", "SET k old PXAT 1"] {
            // The error for a length names the setting, which is a different one in midi.
            for offset in OFFSETS.iter().filter(|offset| **offset != "9223372036854775807") {
                for value in ["", "x", "\0\r\n", "a longer one that goes beyond the end"] {
                    twin.push_line(before);
                    twin.push(&["SETRANGE", "k", offset, value]);
                    twin.push_line("GET k");
                    twin.push_line("PTTL k");
                    twin.push_line("EXISTS k");
                }
            }
        }
    });
}

#[test]
fn values_grow_at_the_end() {
    in_all_modes_and_protocols(|twin| {
        for before in ["DEL k", "SET k 10", "SET k old EX 1000", "SET k old PXAT 1"] {
            for value in ["", "x", "0", "\0\r\n", "\u{fc}ber"] {
                twin.push_line(before);
                for _ in 0..3 {
                    twin.push(&["APPEND", "k", value]);
                    twin.push_line("STRLEN k");
                }
                twin.push_line("GET k");
                twin.push_line("INCR k");
                twin.push_line("PTTL k");
                twin.push_line("EXISTS k");
            }
        }
    });
}

#[test]
fn wrong_arities_are_refused_in_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        for name in ["APPEND", "STRLEN", "GETRANGE", "SUBSTR", "SETRANGE", "setRange"] {
            for count in 0..6 {
                let mut args = vec![name.to_owned()];
                args.extend((0..count).map(|number| format!("{number}")));
                twin.push(&args);
            }
        }
    });
}

#[test]
fn large_values_are_read_and_changed_in_parts() {
    in_all_modes_and_protocols(|twin| {
        for len in [16_383, 16_384, 40_000, 300_000, 1_000_000] {
            let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            // From a value of the host, from one of midi, and from a missing key.
            twin.push(&[b"SET", &b"big"[..], &value]);
            twin.push_line("GETRANGE big 100 -100");
            twin.push_line("GETRANGE big -20 -1");
            twin.push_line("PEXPIRE big 1000000");
            for (offset, part) in
                [(0, "start"), (len, "end"), (5, "in"), (len + 1000, "beyond"), (9, "")]
            {
                twin.push(&["SETRANGE", "big", &offset.to_string(), part]);
                twin.push_line("STRLEN big");
            }
            twin.push_line("APPEND big more");
            twin.push(&[b"APPEND", &b"big"[..], &value]);
            twin.push_line("GET big");
            twin.push_line("PTTL big");
            twin.push(&[b"APPEND", &b"new"[..], &value]);
            twin.push(&[b"APPEND", &b"new"[..], b"x"]);
            twin.push_line("GET new");
            twin.push_line("DEL new");
            twin.push(&["SETRANGE", "new", &len.to_string(), "x"]);
            twin.push_line("GET new");
            twin.push_line("SET new small");
            twin.push_line("GETRANGE new 0 -1");
            twin.push_line("DEL new big");
        }
    });
}

/// The same random steps on both sides, across the sizes at which values change their form.
#[test]
fn values_change_at_random() {
    in_all_modes(|_, server| {
        let twin = &mut Twin::new(server.client());
        let mut random = Random::new(11);
        for _ in 0..3000 {
            let key = ["a", "b", "c"][random.below(3)];
            let part = vec![b'a' + random.below(26) as u8; random.below(4000)];
            let offset = random.below(40_000).to_string();
            match random.below(8) {
                0 => twin.push(&[b"SET", key.as_bytes(), &part]),
                1..=3 => twin.push(&[b"APPEND", key.as_bytes(), &part]),
                4 | 5 => twin.push(&[b"SETRANGE", key.as_bytes(), offset.as_bytes(), &part]),
                6 => twin.push(&["GETRANGE", key, &offset, "-1"]),
                _ => twin.push(&["GET", key]),
            }
        }
        twin.flush();
    });
}

#[test]
fn values_grow_up_to_the_limit_only() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-value-bytes 1000");
        let too_long = "ERR string exceeds maximum allowed size (midi.max-value-bytes 1000)";
        client.run("MIDI.SET k 0123456789");
        for (line, expected) in [
            ("MIDI.SETRANGE k 999 x", Value::Integer(1000)),
            ("MIDI.SETRANGE k 1000 x", Value::error(too_long)),
            ("MIDI.SETRANGE k 9223372036854775807 x", Value::error(too_long)),
            ("MIDI.SETRANGE k 999 xy", Value::error(too_long)),
            ("MIDI.SETRANGE nosuch 1000 x", Value::error(too_long)),
            ("MIDI.EXISTS nosuch", Value::Integer(0)),
            ("MIDI.APPEND k x", Value::error(too_long)),
            ("MIDI.STRLEN k", Value::Integer(1000)),
            ("MIDI.SETRANGE k -1 x", Value::error("ERR offset is out of range")),
        ] {
            assert_eq!(client.run(line), expected, "{line}");
        }
        assert_eq!(client.call(&["MIDI.SETRANGE", "k", "5000", ""]), Value::Integer(1000));
        assert_eq!(client.call(&["MIDI.APPEND", "k", ""]), Value::Integer(1000));
        client.ok("CONFIG SET midi.max-key-bytes 5");
        let too_long = "ERR key exceeds maximum allowed size (midi.max-key-bytes 5)";
        for line in ["MIDI.APPEND longkey x", "MIDI.SETRANGE longkey 3 x", "MIDI.INCR longkey"] {
            assert_eq!(client.run(line), Value::error(too_long), "{line}");
        }
    });
}

/// A reply in progress shows the value as it was, even if other clients change it meanwhile.
#[test]
fn replies_under_way_do_not_change() {
    let server = Mode::Adaptive.server();
    let len = 2_000_000;
    let mut client = server.client();
    client.call(&["MIDI.SETRANGE".into(), b"big".to_vec(), b"0".to_vec(), vec![b'a'; len]]);
    let change = |client: &mut crate::common::Client, random: &mut Random| {
        let letter = [b'a' + random.below(26) as u8; 1000];
        let whole: Vec<u8> = letter.repeat(len / 1000);
        client.call(&[b"MIDI.SETRANGE", &b"big"[..], b"0", &whole]);
    };
    beside(&server, 2, change, || {
        for _ in 0..100 {
            let Value::Bulk(value) = client.run("MIDI.GET big") else { panic!("no value") };
            assert_eq!(value.len(), len);
            assert!(value.iter().all(|&byte| byte == value[0]), "a mixture of two values");
        }
    });
}
