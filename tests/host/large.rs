//! The promise: midi keeps values of 32 KiB and more without copying them. They are returned whole
//! in every mode, even if they are overwritten, deleted, expired or flushed while clients read
//! them.

use crate::common::{
    Client, Mode, Random, Server, Value, at_once, beside, in_all_modes, wait_until,
};

/// A value whose bytes all carry its tag, so that any mixture of two values is noticed.
fn value(tag: u8, len: usize) -> Vec<u8> {
    vec![tag; len]
}

#[track_caller]
fn check_whole(bytes: &[u8], lengths: &[usize]) {
    assert!(lengths.contains(&bytes.len()), "{} bytes", bytes.len());
    let first = bytes.first().copied().unwrap_or_default();
    assert!(bytes.iter().all(|&byte| byte == first), "a mixture of values");
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    assert_eq!(client.call(&[b"MIDI.SET", key.as_bytes(), value]), Value::ok());
}

fn kept(client: &mut Client) -> i64 {
    client.info_number("midi_memory", "midi_kept_arguments")
}

#[test]
fn large_arguments_are_kept_and_small_ones_are_not() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for len in [1, 1000, 16_000, 32_767] {
            set(&mut client, "k", &value(b'x', len));
        }
        assert_eq!(kept(&mut client), 0);
        for (number, len) in [32_768, 40_000, 1_000_000].into_iter().enumerate() {
            set(&mut client, "k", &value(b'y', len));
            assert_eq!(kept(&mut client), number as i64 + 1, "{len} bytes");
            assert!(client.run("MIDI.GET k").bytes() == value(b'y', len));
        }
        let big = value(b'z', 50_000);
        client.call(&[b"MIDI.MSET".as_slice(), b"a", &big, b"b", b"small", b"c", &big]);
        assert_eq!(kept(&mut client), 5);
        client.ok("CONFIG SET midi.keep-bytes 100000");
        set(&mut client, "k", &big);
        assert_eq!(kept(&mut client), 5);
    });
}

/// Memory of kept values is counted. Every way of losing them frees it.
#[test]
fn kept_values_are_given_back() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        set(&mut client, "warm", &value(b'w', 5 << 20));
        client.integer("MIDI.DEL warm");
        let before = client.info_number("memory", "used_memory");
        let ways = [
            "MIDI.DEL a b",
            "MIDI.UNLINK a b",
            "MIDI.MSET a x b y",
            "MIDI.FLUSHDB SYNC",
            "FLUSHALL",
            "MIDI.PEXPIRE",
        ];
        for way in ways {
            for key in ["a", "b"] {
                set(&mut client, key, &value(b'v', 20 << 20));
            }
            let full = client.info_number("memory", "used_memory");
            assert!(full > before + (38 << 20), "{way}: {full} after {before}");
            if way == "MIDI.PEXPIRE" {
                client.integer("MIDI.PEXPIRE a 50");
                client.integer("MIDI.PEXPIRE b 1");
            } else {
                client.run(way);
            }
            wait_until("the memory is given back", || {
                client.info_number("memory", "used_memory") < before + (4 << 20)
            });
        }
    });
}

#[test]
fn replies_of_every_size_are_whole() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let lengths: Vec<usize> =
            [0, 1, 16_383, 16_384, 16_385, 20_000, 32_767, 32_768, 65_536, 65_537, 300_000].into();
        for (number, &len) in lengths.iter().enumerate() {
            set(&mut client, &format!("k{number}"), &value(b'a' + number as u8, len));
        }
        // Alternating small and large replies in one pipeline.
        let mut commands: Vec<Vec<String>> = Vec::new();
        for round in 0..20 {
            for number in 0..lengths.len() {
                commands.push(vec![
                    "MIDI.GET".into(),
                    format!("k{}", (number * 7 + round) % lengths.len()),
                ]);
            }
        }
        for (command, reply) in commands.iter().zip(client.pipeline(&commands)) {
            let number: usize = command[1][1..].parse().unwrap();
            assert!(reply.bytes() == value(b'a' + number as u8, lengths[number]), "{command:?}");
        }
        let all: Vec<String> = ["MIDI.MGET".to_owned()]
            .into_iter()
            .chain((0..lengths.len()).map(|n| format!("k{n}")))
            .collect();
        for (number, reply) in client.call(&all).array().iter().enumerate() {
            assert_eq!(reply.bytes().len(), lengths[number]);
        }
    });
}

#[test]
fn values_of_many_megabytes() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        for megabytes in [1, 7, 50] {
            let big = value(b'0' + megabytes as u8 % 10, megabytes << 20);
            set(&mut client, "big", &big);
            assert!(client.run("MIDI.GET big").bytes() == big, "{megabytes} MB in {mode:?}");
            let old = client.run("MIDI.SET big small GET");
            assert!(old.bytes() == big);
        }
        assert_eq!(client.run("MIDI.GET big"), Value::bulk("small"));
    });
}

/// Through transactions and scripts as well.
#[test]
fn large_values_in_units() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let big = value(b'u', 2 << 20);
        client.ok("MULTI");
        client.call(&[b"MIDI.SET", b"k".as_slice(), &big]);
        client.run("MIDI.GET k");
        client.run("MIDI.MGET k k nosuch");
        let replies = client.run("EXEC").array();
        assert!(replies[1].bytes() == big);
        assert!(replies[2].clone().array()[1].bytes() == big);
        let script = "redis.call('MIDI.SET', KEYS[1], ARGV[1] .. ARGV[1]) return \
                      redis.call('MIDI.GET', KEYS[1])";
        let reply = client.call(&[b"EVAL".as_slice(), script.as_bytes(), b"1", b"s", &big]);
        assert!(reply.bytes() == value(b'u', 4 << 20));
        assert!(client.run("MIDI.GET s").bytes().len() == 4 << 20);
    });
}

const LENGTHS: [usize; 5] = [100, 20_000, 40_000, 200_000, 1_000_000];

/// Everything that can happen to a value while clients read it.
fn disturb(client: &mut Client, random: &mut Random) {
    let key = format!("k{}", random.below(4));
    match random.below(16) {
        0 => drop(client.run(&format!("MIDI.DEL {key}"))),
        1 => drop(client.run(&format!("MIDI.PEXPIRE {key} {}", random.below(5)))),
        2 => drop(client.run("MIDI.FLUSHDB")),
        3 => drop(client.run("FLUSHALL")),
        4 => drop(client.run("SWAPDB 0 1")),
        _ => {
            let tag = b'a' + random.below(26) as u8;
            set(client, &key, &value(tag, LENGTHS[random.below(LENGTHS.len())]));
        }
    }
}

fn read_all(client: &mut Client, rounds: usize) {
    for round in 0..rounds {
        let key = round % 4;
        let commands = [
            vec!["MIDI.GET".to_owned(), format!("k{key}")],
            vec!["MIDI.MGET".to_owned(), "k0".into(), "k1".into(), "k2".into(), "k3".into()],
            vec!["MIDI.GET".to_owned(), format!("k{}", (key + 1) % 4)],
        ];
        for reply in client.pipeline(&commands) {
            let values = if let Value::Array(values) = reply { values } else { vec![reply] };
            for value in values.iter().filter(|value| !value.is_null()) {
                check_whole(value.bytes(), &LENGTHS);
            }
        }
    }
}

#[test]
fn readers_see_whole_values_whatever_happens_to_them() {
    in_all_modes(|_, server| {
        beside(server, 3, disturb, || {
            at_once(3, |_| read_all(&mut server.client(), 120));
        });
        let mut client = server.client();
        client.ok("FLUSHALL");
        wait_until("nothing is left", || client.info_number("memory", "used_memory") < 40 << 20);
    });
}

/// Readers that disconnect while their large reply is being sent.
#[test]
fn readers_of_large_values_may_vanish() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        set(&mut client, "k0", &value(b'k', 8 << 20));
        for round in 0..60 {
            let mut reader = server.client();
            for _ in 0..1 + round % 3 {
                reader.send_line("MIDI.GET k0");
            }
            if round % 5 == 0 {
                set(&mut client, "k0", &value(b'a' + round as u8 % 26, 8 << 20));
            }
            if round % 7 == 0 {
                reader.read();
            }
        }
        assert_eq!(client.run("MIDI.GET k0").bytes().len(), 8 << 20);
        wait_until("the dead are gone", || client.info_number("clients", "connected_clients") == 1);
    });
}

/// The host and midi store the same argument in one buffer. The host may change its own value, and
/// midi's must not change.
#[test]
fn changes_of_the_hosts_strings_do_not_reach_midis() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let big = value(b'h', 100_000);
        let script = "redis.call('SET', 'h', ARGV[1]) redis.call('MIDI.SET', 'm', ARGV[1]) \
                      redis.call('APPEND', 'h', 'more') redis.call('SETRANGE', 'h', 0, 'changed') \
                      return 1";
        client.call(&[b"EVAL".as_slice(), script.as_bytes(), b"0", &big]);
        assert!(client.run("MIDI.GET m").bytes() == big);
        client.call(&[b"SET".as_slice(), b"i", &big]);
        client.run("MIDI.IMPORT i");
        client.run("APPEND i tail");
        assert!(client.run("MIDI.GET i").bytes() == big);
        client.run("MIDI.EXPORT m");
        client.run("SETRANGE m 5 xxx");
        assert!(client.run("MIDI.GET m").bytes() == big);
    });
}

/// Keys may be large as well.
#[test]
fn large_keys_work() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for len in [255, 256, 65_535, 65_536, 1 << 20] {
            let key = String::from_utf8(value(b'K', len)).unwrap();
            set(&mut client, &key, &value(b'v', 33_000));
            assert_eq!(client.call(&["MIDI.GET", &key]).bytes().len(), 33_000);
            assert_eq!(client.call(&["MIDI.EXISTS", &key]), Value::Integer(1));
            assert_eq!(client.run("MIDI.RANDOMKEY"), Value::bulk(&key));
            assert_eq!(client.run("MIDI.KEYS *"), Value::Array(vec![Value::bulk(&key)]));
            assert_eq!(client.scan_all("COUNT 5"), [key.as_bytes()]);
            assert_eq!(client.call(&["MIDI.DEL", &key]), Value::Integer(1));
        }
    });
}

/// Arguments that arrive in pieces are kept like those that arrive whole.
#[test]
fn arguments_in_pieces() {
    fn send_in_pieces(server: &Server, len: usize) {
        let mut client = server.client();
        let bytes = crate::common::encoded(&[b"MIDI.SET".as_slice(), b"p", &value(b'p', len)]);
        for piece in bytes.chunks(9000) {
            client.send(piece);
        }
        assert_eq!(client.read(), Value::ok());
        assert!(client.run("MIDI.GET p").bytes() == value(b'p', len));
    }
    for mode in Mode::tried() {
        let server = mode.server();
        for len in [33_000, 100_001, 3_000_000] {
            send_in_pieces(&server, len);
        }
    }
}
