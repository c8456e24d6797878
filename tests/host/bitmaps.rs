//! The promise: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP, BITFIELD and BITFIELD_RO answer and store
//! exactly what the stock commands do, for small and large values. DELIFEQ does what Valkey's does.

use crate::common::hosts::host;
use crate::common::{
    Mode, Random, Twin, Value, beside, in_all_modes, in_all_modes_and_protocols, skip,
};

const OFFSETS: &[&str] = &[
    "0",
    "1",
    "7",
    "8",
    "13",
    "47",
    "48",
    "1000",
    "-1",
    "-5",
    "-8",
    "-48",
    "-49",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "x",
    "",
    "1.5",
    "-0",
];

const VALUES: [&str; 6] =
    ["DEL k", "SET k foobar", "SET k 7", "SET k \"\"", "SETBIT k 47 0", "SET k old PXAT 1"];

fn push(twin: &mut Twin, line: &str) {
    twin.push(&line.split_whitespace().map(|word| word.trim_matches('"')).collect::<Vec<_>>());
}

#[test]
fn bits_are_counted_and_found_in_any_range() {
    in_all_modes_and_protocols(|twin| {
        let ones = [b"SET".to_vec(), b"ones".to_vec(), vec![0xff; 6]];
        for before in VALUES {
            push(twin, before);
            twin.push(&ones);
            for key in ["k", "ones"] {
                push(twin, &format!("BITCOUNT {key}"));
                push(twin, &format!("BITPOS {key} 0"));
                push(twin, &format!("BITPOS {key} 1"));
                for start in OFFSETS {
                    twin.push(&["BITPOS", key, "0", start]);
                    twin.push(&["BITPOS", key, "1", start]);
                    for end in OFFSETS {
                        for unit in [&[][..], &["BIT"], &["byte"]] {
                            twin.push(&[&["BITCOUNT", key, start, end][..], unit].concat());
                            twin.push(&[&["BITPOS", key, "0", start, end][..], unit].concat());
                            twin.push(&[&["BITPOS", key, "1", start, end][..], unit].concat());
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn single_bits_are_read_and_written() {
    in_all_modes_and_protocols(|twin| {
        for before in VALUES {
            for offset in OFFSETS {
                for bit in ["0", "1", "2", "-1", "x"] {
                    push(twin, before);
                    twin.push(&["GETBIT", "k", offset]);
                    twin.push(&["SETBIT", "k", offset, bit]);
                    twin.push(&["SETBIT", "k", offset, bit]);
                    twin.push(&["GETBIT", "k", offset]);
                    push(twin, "GET k");
                    push(twin, "PTTL k");
                }
            }
        }
        push(twin, "SETBIT k 4294967296 1");
        push(twin, "GETBIT k 4294967296");
        push(twin, "GETBIT k 4294967295");
    });
}

#[test]
fn values_are_combined() {
    in_all_modes_and_protocols(|twin| {
        push(twin, "MSET a abcdef b 0123456789 c x empty \"\" to old");
        let sources = [
            "a",
            "b a",
            "a b c",
            "a nosuch",
            "nosuch",
            "empty",
            "a empty b",
            "to a",
            "to to",
            "a a a a a a a a a a",
        ];
        for operation in ["AND", "or", "XOR", "NOT", "nand"] {
            for sources in sources {
                push_bitop(twin, operation, sources);
            }
        }
    });
}

type Rule = fn(bool, usize) -> bool;

/// DIFF, DIFF1, ANDOR and ONE of Redis 8.2: from the bit in the first value, and how many of the
/// other values have it.
const OF_REDIS_8_2: [(&str, Rule); 4] = [
    ("DIFF", |first, others| first && others == 0),
    ("diff1", |first, others| !first && others > 0),
    ("AndOr", |first, others| first && others > 0),
    ("ONE", |first, others| usize::from(first) + others == 1),
];

/// The value that an operation makes of these, bit by bit.
fn combined(rule: Rule, values: &[&[u8]]) -> Vec<u8> {
    let has = |value: &[u8], at: usize, bit: u8| value.get(at).is_some_and(|byte| byte & bit != 0);
    let longest = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let byte = |at: usize| {
        (0..8).map(|shift| 1u8 << shift).fold(0, |byte, bit| {
            let others = values[1..].iter().filter(|value| has(value, at, bit)).count();
            byte | if rule(has(values[0], at, bit), others) { bit } else { 0 }
        })
    };
    (0..longest).map(byte).collect()
}

#[test]
fn the_operations_of_redis_8_2_combine_values() {
    let short: Vec<u8> = (0..40u32).map(|at| (at * 37 % 256) as u8).collect();
    let long: Vec<u8> = (0..30_000u32).map(|at| (at * at % 251) as u8).collect();
    let values: [(&str, &[u8]); 5] =
        [("a", b"abcdef"), ("b", b"0123456789"), ("s", &short), ("l", &long), ("nosuch", b"")];
    let sources = ["a b", "b a", "a b s", "s l b a", "l l", "nosuch a", "a nosuch", "l s l b"];
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (key, value) in values.iter().filter(|(_, value)| !value.is_empty()) {
            client.call(&[b"MIDI.SET", key.as_bytes(), value]);
        }
        for (operation, rule) in OF_REDIS_8_2 {
            for keys in sources {
                let value_of = |key| values.iter().find(|(name, _)| *name == key).unwrap().1;
                let made = combined(rule, &keys.split(' ').map(value_of).collect::<Vec<_>>());
                let line = format!("MIDI.BITOP {operation} to {keys}");
                assert_eq!(client.run(&line), Value::Integer(made.len() as i64), "{line}");
                assert_eq!(client.run("MIDI.GET to"), Value::bulk(&made), "{line}");
            }
            client.ok("MIDI.SET to old");
            assert_eq!(client.integer(&format!("MIDI.BITOP {operation} to nosuch nosuch")), 0);
            assert_eq!(client.integer("MIDI.EXISTS to"), 0, "{operation} of nothing");
        }
        assert_eq!(client.integer("MIDI.BITOP ONE to a"), 6);
        assert_eq!(client.run("MIDI.GET to"), Value::bulk(b"abcdef"));
        for name in ["DIFF", "Diff1", "andor"] {
            let text = format!(
                "ERR BITOP {} must be called with at least two source keys.",
                name.to_uppercase()
            );
            assert_eq!(client.run(&format!("MIDI.BITOP {name} to a")), Value::error(&text));
        }
    });
}

/// The operation with a destination that does not expire, and one that does: what is there then.
fn push_bitop(twin: &mut Twin, operation: &str, sources: &str) {
    push(twin, &format!("BITOP {operation} to {sources}"));
    push(twin, "GET to");
    push(twin, "SET to old EX 1000");
    push(twin, &format!("BITOP {operation} to {sources}"));
    push(twin, "PTTL to");
    push(twin, "SET to old");
}

#[test]
fn the_operations_of_redis_8_2_are_those_of_the_host_that_has_them() {
    if !host().has_newer_bitops() {
        return skip("this host has none of them: a model checks them on every host");
    }
    in_all_modes_and_protocols(|twin| {
        push(twin, "MSET a abcdef b 0123456789 c x empty \"\" to old");
        for (operation, _) in OF_REDIS_8_2 {
            for sources in [
                "a",
                "b a",
                "a b c",
                "a nosuch",
                "nosuch a",
                "nosuch",
                "a empty b",
                "to a",
                "to to",
            ] {
                push_bitop(twin, operation, sources);
            }
        }
    });
}

#[test]
fn wrong_calls_are_refused_in_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        push(twin, "SET k 12345678");
        for name in
            ["SETBIT", "GETBIT", "BITCOUNT", "BITPOS", "BITOP", "BITFIELD", "BITFIELD_RO", "setBit"]
        {
            for count in 0..8 {
                for word in ["k", "1", "x"] {
                    let mut args = vec![name, "k"];
                    args.resize(1 + count, word);
                    twin.push(&args);
                }
            }
        }
        for line in [
            "BITFIELD k GET u8",
            "BITFIELD k GET u64 0",
            "BITFIELD k GET i65 0",
            "BITFIELD k GET u0 0",
            "BITFIELD k GET U8 0",
            "BITFIELD k GET u08 0",
            "BITFIELD k GET x 0",
            "BITFIELD k GET u8 -1",
            "BITFIELD k GET u8 #-1",
            "BITFIELD k GET u8 #x",
            "BITFIELD k GET u8 4294967296",
            "BITFIELD k GET u8 #536870912",
            "BITFIELD k SET u8 0",
            "BITFIELD k SET u8 0 x",
            "BITFIELD k SET u8 0 9223372036854775808",
            "BITFIELD k OVERFLOW",
            "BITFIELD k OVERFLOW none",
            "BITFIELD k OVERFLOW FAIL",
            "BITFIELD k SET u8 0 255 SET u9 x 1",
            "BITFIELD k SETS u8 0 1",
            "BITFIELD_RO k SET u8 0 1",
            "BITFIELD_RO k SET u8 0 x",
            "BITFIELD_RO k OVERFLOW SAT",
            "BITFIELD_RO k GET u8 0 INCRBY u8 0 1",
        ] {
            push(twin, line);
        }
        push(twin, "GET k");
    });
}

/// Operations of BITFIELD.
fn some_fields(random: &mut Random, writes: bool) -> Vec<String> {
    let number = |random: &mut Random| match random.below(4) {
        0 => random.next() as i64,
        1 => [i64::MIN, i64::MAX, -1, 0][random.below(4)],
        _ => random.below(600) as i64 - 300,
    };
    let mut args = Vec::new();
    for _ in 0..random.below(6) {
        let signed = random.below(2) == 0;
        let encoding = format!(
            "{}{}",
            if signed { 'i' } else { 'u' },
            1 + random.below(63 + usize::from(signed))
        );
        let offset = match random.below(3) {
            0 => format!("#{}", random.below(20)),
            _ => random.below(400).to_string(),
        };
        match random.below(if writes { 4 } else { 1 }) {
            0 => args.extend(["GET".into(), encoding, offset]),
            1 => {
                args.extend(["OVERFLOW", random.pick(&["WRAP", "sat", "FAIL"])].map(str::to_owned))
            }
            2 => args.extend(["SET".into(), encoding, offset, number(random).to_string()]),
            _ => args.extend(["incrby".into(), encoding, offset, number(random).to_string()]),
        }
    }
    args
}

#[test]
fn fields_of_any_width_are_read_and_written() {
    in_all_modes_and_protocols(|twin| {
        let mut random = Random::new(5);
        for _ in 0..2000 {
            let key = ["a", "b"][random.below(2)].to_owned();
            let (name, writes) =
                if random.below(4) == 0 { ("BITFIELD_RO", false) } else { ("BITFIELD", true) };
            let fields = some_fields(&mut random, writes);
            twin.push(&[vec![name.to_owned(), key.clone()], fields].concat());
            match random.below(20) {
                0 => twin.push(&["DEL", &key]),
                1 => twin.push(&["SET", &key, "10"]),
                _ => twin.push(&["GET", &key]),
            }
        }
    });
}

/// The same random steps on both sides, across the sizes at which values change their form.
#[test]
fn large_values_change_at_random() {
    in_all_modes(|_, server| {
        let twin = &mut Twin::new(server.client());
        let mut random = Random::new(17);
        for _ in 0..1500 {
            let key = ["a", "b", "c"][random.below(3)];
            let other = ["a", "b", "c", "nosuch"][random.below(4)];
            let most = [300_000, 3_000_000][random.below(2)];
            let offset = random.below(most).to_string();
            let part: Vec<u8> = (0..random.below(60_000)).map(|at| (at % 251) as u8).collect();
            let bit = ["0", "1"][random.below(2)];
            let operation = ["AND", "OR", "XOR"][random.below(3)];
            match random.below(12) {
                0 => twin.push(&[b"SET", key.as_bytes(), &part]),
                1..=3 => twin.push(&["SETBIT", key, &offset, bit]),
                4 => {
                    twin.push(&["BITFIELD", key, "INCRBY", "u32", &offset, "1", "GET", "u63", "#7"])
                }
                5 => twin.push(&["BITCOUNT", key, &offset, "-30", "BIT"]),
                6 => twin.push(&["BITPOS", key, bit, &offset, "-1", "BIT"]),
                7 => twin.push(&["BITOP", operation, key, other, "b", "c"]),
                8 => twin.push(&["BITOP", "NOT", key, other]),
                9 => twin.push(&["BITCOUNT", key]),
                10 => twin.push(&["DEL", key]),
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
        let too_far = Value::error("ERR bit offset is not an integer or out of range");
        let too_long =
            Value::error("ERR string exceeds maximum allowed size (midi.max-value-bytes 1000)");
        for (line, expected) in [
            ("MIDI.SETBIT k 7999 1", Value::Integer(0)),
            ("MIDI.SETBIT k 8000 1", too_far.clone()),
            ("MIDI.GETBIT k 8000", too_far.clone()),
            ("MIDI.BITFIELD k GET u8 7999", Value::integers(&[128])),
            ("MIDI.BITFIELD k GET u8 8000", too_far.clone()),
            ("MIDI.BITFIELD k SET u2 7998 0", Value::integers(&[1])),
            ("MIDI.BITFIELD k SET u2 7999 0", too_long.clone()),
            ("MIDI.BITFIELD nosuch SET u2 7999 0", too_long.clone()),
            ("MIDI.BITFIELD k SET u2 #4000 0", too_far),
            ("MIDI.STRLEN k", Value::Integer(1000)),
            ("MIDI.EXISTS nosuch", Value::Integer(0)),
        ] {
            assert_eq!(client.run(line), expected, "{line}");
        }
        client.ok("CONFIG SET midi.max-value-bytes 999");
        assert_eq!(client.run("MIDI.BITOP NOT to k"), {
            Value::error("ERR string exceeds maximum allowed size (midi.max-value-bytes 999)")
        });
        client.ok("CONFIG SET midi.max-key-bytes 5");
        let too_long = "ERR key exceeds maximum allowed size (midi.max-key-bytes 5)";
        client.ok("MIDI.SET k x");
        for line in [
            "MIDI.SETBIT longkey 3 1",
            "MIDI.BITFIELD longkey SET u8 0 1",
            "MIDI.BITOP NOT longkey k",
        ] {
            assert_eq!(client.run(line), Value::error(too_long), "{line}");
        }
    });
}

/// A reply in progress, a copy and an operation each show a value as it was at one moment.
#[test]
fn bits_change_while_others_look() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let bits = 8 * 200_000;
    client.run(&format!("MIDI.SETBIT a {} 0", bits - 1));
    client.run("MIDI.BITOP NOT b a");
    // A bit that is 0 in one of them is 1 in the other.
    let change = |client: &mut crate::common::Client, _: &mut Random| {
        for line in ["MIDI.BITOP NOT a a", "MIDI.BITOP NOT b b"] {
            client.send_line("MULTI");
            client.send_line(line);
            client.send_line(&line.replace('a', "x").replace('b', "a").replace('x', "b"));
            client.send_line("EXEC");
            (0..4).for_each(|_| drop(client.read()));
        }
    };
    beside(&server, 2, change, || {
        for _ in 0..200 {
            assert_eq!(client.run("MIDI.BITOP XOR c a b"), Value::Integer(200_000));
            assert_eq!(client.integer("MIDI.BITCOUNT c"), bits);
            assert_eq!(client.integer("MIDI.BITPOS c 0"), bits);
        }
    });
}

#[test]
fn a_key_is_deleted_if_its_value_is_the_given_one() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        for (line, expected) in [
            ("MIDI.DELIFEQ k w", Value::Integer(0)),
            ("MIDI.DELIFEQ nosuch v", Value::Integer(0)),
            ("MIDI.EXISTS k", Value::Integer(1)),
            ("MIDI.DELIFEQ k v", Value::Integer(1)),
            ("MIDI.DELIFEQ k v", Value::Integer(0)),
            (
                "MIDI.DELIFEQ k",
                Value::error("ERR wrong number of arguments for 'midi.delifeq' command"),
            ),
            (
                "MIDI.DELIFEQ k v w",
                Value::error("ERR wrong number of arguments for 'midi.delifeq' command"),
            ),
        ] {
            assert_eq!(client.run(line), expected, "{line}");
        }
        let large = vec![b'x'; 1_000_000];
        client.call(&[b"MIDI.SET", &b"k"[..], &large]);
        assert_eq!(client.call(&[b"MIDI.DELIFEQ", &b"k"[..], &large[1..]]), Value::Integer(0));
        assert_eq!(client.call(&[b"MIDI.DELIFEQ", &b"k"[..], &large]), Value::Integer(1));
    });
}
