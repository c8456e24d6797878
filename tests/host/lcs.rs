//! The promise: LCS answers exactly what the stock command answers, for short and long values.
//! Other commands need not wait for long ones.

use crate::common::{Mode, Random, Twin, Value, beside, in_all_modes_and_protocols};

/// Valid and invalid options.
const OPTIONS: &[&str] = &[
    "",
    "LEN",
    "len",
    "IDX",
    "Idx WithMatchLen",
    "WITHMATCHLEN",
    "LEN WITHMATCHLEN",
    "IDX MINMATCHLEN 4",
    "MINMATCHLEN 4 IDX WITHMATCHLEN",
    "IDX MINMATCHLEN 1",
    "IDX MINMATCHLEN 0",
    "IDX MINMATCHLEN -7",
    "IDX MINMATCHLEN 1000000",
    "IDX MINMATCHLEN 9223372036854775807",
    "IDX MINMATCHLEN 2 MINMATCHLEN 3",
    "LEN MINMATCHLEN 4",
    "IDX IDX",
    "LEN LEN",
    "IDX LEN",
    "LEN IDX",
    "IDX MINMATCHLEN",
    "MINMATCHLEN",
    "IDX MINMATCHLEN x",
    "IDX MINMATCHLEN 1.5",
    "IDX LEN MINMATCHLEN x",
    "IDX LEN x",
    "x",
    "LEN x",
];

fn push_with_options(twin: &mut Twin, keys: &str) {
    for options in OPTIONS {
        twin.push_line(&format!("LCS {keys} {options}"));
    }
}

#[test]
fn short_values_with_all_options() {
    in_all_modes_and_protocols(|twin| {
        for (a, b) in [
            ("ohmytext", "mynewtext"),
            ("", ""),
            ("", "x"),
            ("x", ""),
            ("same", "same"),
            ("abc", "xyz"),
            ("aaaa", "aa"),
            ("ab", "ba"),
            ("12345678", "2468"),
            ("0", "0"),
            ("a\0b\r\nc", "\0\r\n"),
            ("abcabcabc", "cbacbacba"),
            ("xaxbxcxd", "yaybycyd"),
        ] {
            twin.push(&["SET", "a", a]);
            twin.push(&["SET", "b", b]);
            push_with_options(twin, "a b");
            push_with_options(twin, "b a");
            push_with_options(twin, "a a");
            push_with_options(twin, "a nosuch");
            push_with_options(twin, "nosuch a");
            push_with_options(twin, "nosuch nosuch");
        }
        twin.push_line("SET gone abc PXAT 1");
        twin.push_line("LCS gone a");
        twin.push_line("LCS a");
        twin.push_line("LCS");
    });
}

/// Bytes from an alphabet of this many letters. Few letters cause many ties.
fn letters(random: &mut Random, count: usize, len: usize) -> Vec<u8> {
    (0..len).map(|_| b'a'.wrapping_add(random.below(count) as u8)).collect()
}

fn push_random(twin: &mut Twin, random: &mut Random, longest: usize, rounds: usize) {
    for round in 0..rounds {
        let alphabet = [1, 2, 3, 10, 256][round % 5];
        for key in ["a", "b"] {
            let len = random.below(longest);
            twin.push(&[b"SET", key.as_bytes(), &letters(random, alphabet, len)]);
        }
        let options = OPTIONS[random.below(14)];
        twin.push_line(&format!("LCS a b {options}"));
        twin.push_line("LCS b a");
        twin.push_line("LCS a b IDX WITHMATCHLEN");
        twin.push_line("LCS a b LEN");
    }
}

#[test]
fn random_values() {
    in_all_modes_and_protocols(|twin| {
        let mut random = Random::new(5);
        push_random(twin, &mut random, 30, 200);
        push_random(twin, &mut random, 130, 100);
        push_random(twin, &mut random, 600, 50);
        push_random(twin, &mut random, 3000, 10);
    });
}

#[test]
fn long_values() {
    in_all_modes_and_protocols(|twin| {
        let mut random = Random::new(6);
        // A kept value with a copied one, and a very short value with a very long one.
        for (a, b) in
            [(40_000, 300), (300, 40_000), (2000, 2000), (1, 200_000), (200_000, 2), (0, 200_000)]
        {
            twin.push(&[b"SET", &b"a"[..], &letters(&mut random, 4, a)]);
            twin.push(&[b"SET", &b"b"[..], &letters(&mut random, 4, b)]);
            for options in ["", "LEN", "IDX", "IDX MINMATCHLEN 3 WITHMATCHLEN"] {
                twin.push_line(&format!("LCS a b {options}"));
                twin.flush();
            }
        }
        let value = letters(&mut random, 256, 3000);
        twin.push(&[b"SET", &b"a"[..], &value]);
        twin.push(&[b"SET", &b"b"[..], &value]);
        twin.push_line("LCS a b");
        twin.push_line("LCS a b IDX");
    });
}

#[test]
fn too_large_a_table_is_refused_in_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        // At 4 bytes each, 11,586 × 11,585 cells take more than 512 MB. In midi,
        // midi.max-value-bytes bounds them.
        let value = vec![b'x'; 11_585];
        twin.push(&[b"SET", &b"a"[..], &value]);
        twin.push(&[b"SET", &b"b"[..], &value]);
        twin.push_line("LCS a b");
        twin.push_line("LCS a b LEN");
        twin.push_line("LCS a b LEN IDX");
        twin.client().ok("CONFIG SET midi.max-value-bytes 1000");
        twin.client().ok("CONFIG SET proto-max-bulk-len 1mb");
        let client = twin.client();
        client.run("MIDI.SET a 012345678901234");
        client.run("MIDI.SET b 012345678901234");
        let refused =
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        assert_eq!(client.run("MIDI.LCS a b LEN"), Value::error(refused));
        client.run("MIDI.SET b 01234567890123");
        assert_eq!(client.run("MIDI.LCS a b LEN"), Value::Integer(14));
        client.ok("CONFIG SET midi.max-value-bytes 512mb");
        client.ok("CONFIG SET proto-max-bulk-len 512mb");
    });
}

#[test]
fn long_values_in_transactions_and_scripts() {
    in_all_modes_and_protocols(|twin| {
        let mut random = Random::new(8);
        for key in [b"a", b"b"] {
            twin.push(&[b"SET", &key[..], &letters(&mut random, 5, 2000)]);
        }
        let line =
            |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        twin.transaction(&[
            line("LCS a b"),
            line("LCS a b LEN"),
            line("LCS a nosuch"),
            line("LCS a b IDX"),
        ]);
        twin.script(&["LCS", "a", "b"]);
        twin.script(&["LCS", "b", "a", "LEN"]);
    });
}

/// Long LCS calls beside writers of their keys: each answer fits some state of both.
#[test]
fn values_that_change_meanwhile_are_seen_at_one_moment() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut client = server.client();
        let value = |letter: u8| vec![letter; 3000];
        let write = |client: &mut crate::common::Client, random: &mut Random| {
            let value = value(b'a' + random.below(4) as u8);
            client.call(&[b"MIDI.MSET", &b"a"[..], &value, b"b", &value]);
        };
        client.call(&[b"MIDI.MSET", &b"a"[..], &value(b'x'), b"b", &value(b'x')]);
        beside(&server, 3, write, || {
            for _ in 0..50 {
                assert_eq!(client.run("MIDI.LCS a b LEN"), Value::Integer(3000));
                let Value::Bulk(text) = client.run("MIDI.LCS a b") else { panic!("no text") };
                assert!(text.len() == 3000 && text.iter().all(|&byte| byte == text[0]));
            }
        });
        server.wait_until_idle();
    }
}

/// Several at once, while other clients disconnect before their reply is ready.
#[test]
fn many_at_once_and_clients_that_leave() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    let mut random = Random::new(9);
    for key in [b"a", b"b"] {
        client.call(&[b"MIDI.SET", &key[..], &letters(&mut random, 26, 10_000)]);
    }
    let expected = client.run("MIDI.LCS a b LEN");
    let leave = |_: &mut crate::common::Client, _: &mut Random| {
        let mut client = server.client();
        client.send(b"MIDI.LCS a b IDX\r\n");
    };
    beside(&server, 3, leave, || {
        for _ in 0..30 {
            let reply = client.run("MIDI.LCS a b LEN");
            let too_many =
                reply.is_error() && reply.text().starts_with("BUSY too many long commands");
            assert!(too_many || reply == expected, "{reply:?}");
        }
    });
    server.wait_until_idle();
    assert_eq!(client.run("MIDI.LCS a b LEN"), expected);
}
