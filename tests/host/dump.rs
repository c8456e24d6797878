//! The promise: MIDI.DUMP gives the same bytes as the stock DUMP. Each side restores what the other
//! dumped. No claim in a payload can do harm.

use crate::common::{
    Client, Mode, Random, Value, in_all_modes, in_all_modes_and_protocols, now_ms, wait_until,
};

/// A value of any kind: numbers, noise, words, runs, repetitions.
fn random_value(random: &mut Random, longest: usize) -> Vec<u8> {
    let len = random.below(longest);
    match random.below(6) {
        0 => (random.next() as i64 >> random.below(64)).to_string().into_bytes(),
        1 => (0..len).map(|_| random.next() as u8).collect(),
        2 => (0..len).map(|_| random.below(4) as u8).collect(),
        3 => {
            const WORDS: [&str; 8] =
                ["the ", "key", " and ", "value", "of ", "midi", "\n", "a longer piece of text "];
            (0..len / 5).flat_map(|_| random.pick(&WORDS).bytes()).collect()
        }
        4 => {
            let piece: Vec<u8> = (0..1 + random.below(40)).map(|_| random.next() as u8).collect();
            piece.into_iter().cycle().take(len).collect()
        }
        _ => (0..6).flat_map(|_| vec![random.next() as u8; random.below(len / 6 + 1)]).collect(),
    }
}

#[test]
fn payloads_are_the_same_byte_for_byte() {
    in_all_modes_and_protocols(|twin| {
        twin.push_line("DUMP nosuch");
        twin.push_line("DUMP");
        twin.push_line("DUMP a b");
        let mut random = Random::new(77);
        let mut values: Vec<Vec<u8>> = (0..1500).map(|_| random_value(&mut random, 700)).collect();
        values.extend((0..20).map(|_| random_value(&mut random, 40_000)));
        values.extend((0..4).map(|_| random_value(&mut random, 600_000)));
        for number in
            ["0", "-1", "127", "128", "-128", "-129", "32767", "32768", "-32768", "-32769"]
        {
            values.push(number.into());
        }
        for text in ["2147483647", "2147483648", "-2147483648", "-2147483649", "01", "-0", "", " 1"]
        {
            values.push(text.into());
        }
        for len in [1, 4, 5, 20, 21, 22, 63, 64, 65, 16_383, 16_384, 16_385, 32_767, 32_768, 70_000]
        {
            values.push(vec![b'a'; len]);
            values.push((0..len).map(|at| (at % 251) as u8).collect());
        }
        for value in &values {
            twin.push(&[b"SET".as_slice(), b"k", value]);
            twin.push_line("DUMP k");
        }
    });
}

#[test]
fn each_side_restores_what_the_other_dumped() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let mut random = Random::new(78);
        for number in 0..400 {
            let longest = if number % 50 == 0 { 300_000 } else { 600 };
            let value = random_value(&mut random, longest);
            client.call(&[b"SET".as_slice(), b"k", &value]);
            let native = client.run("DUMP k");
            client.call(&[b"MIDI.SET".as_slice(), b"k", &value]);
            let midi = client.run("MIDI.DUMP k");
            let restored =
                client.call(&[b"MIDI.RESTORE".as_slice(), b"r", b"0", native.bytes(), b"REPLACE"]);
            assert_eq!(restored, Value::ok());
            assert_eq!(client.run("MIDI.GET r").bytes(), value);
            let restored =
                client.call(&[b"RESTORE".as_slice(), b"r", b"0", midi.bytes(), b"REPLACE"]);
            assert_eq!(restored, Value::ok());
            assert_eq!(client.run("GET r").bytes(), value);
        }
        // midi also accepts what the host does not compress.
        client.ok("CONFIG SET rdbcompression no");
        client.ok(&format!("SET k {}", "a".repeat(50_000)));
        let native = client.run("DUMP k");
        assert!(native.bytes().len() > 50_000);
        assert_eq!(
            client.call(&[b"MIDI.RESTORE", b"plain".as_slice(), b"0", native.bytes()]),
            Value::ok()
        );
        assert_eq!(client.run("MIDI.GET plain"), client.run("GET k"));
    });
}

/// Where no client may be blocked, midi processes large values at once.
#[test]
fn large_values_go_through_transactions_and_scripts() {
    in_all_modes_and_protocols(|twin| {
        let mut random = Random::new(80);
        for len in [10, 20_000, 200_000] {
            let value: Vec<u8> = (0..len).map(|_| random.below(5) as u8).collect();
            twin.push(&[b"SET".as_slice(), b"k", &value]);
            let payload = twin.same_line("DUMP k").bytes().to_vec();
            let restore =
                [b"RESTORE".as_slice(), b"r", b"0", &payload, b"REPLACE"].map(<[u8]>::to_vec);
            let words = |line: &str| {
                line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>()
            };
            twin.transaction(&[words("DUMP k"), restore.to_vec(), words("GET r"), words("DEL r")]);
            twin.script(&words("DUMP k"));
            twin.script(&restore);
            twin.push_line("GET r");
        }
    });
}

/// CRC-64 as in Redis, bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| {
            if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x95ac_9329_ac4b_c9b5 }
        })
    })
}

/// A payload with a correct footer.
fn sealed(content: &[u8], version: u16) -> Vec<u8> {
    let payload = [content, &version.to_le_bytes()].concat();
    [&payload[..], &crc64(&payload).to_le_bytes()].concat()
}

fn payload_of(client: &mut Client, value: &str) -> Vec<u8> {
    client.ok(&format!("SET made {value}"));
    let payload = client.run("DUMP made").bytes().to_vec();
    client.integer("DEL made");
    payload
}

#[test]
fn options_and_order_of_refusals_are_the_same() {
    in_all_modes_and_protocols(|twin| {
        let good = payload_of(twin.client(), "value");
        let wrong = [&good[..good.len() - 1], b"!"].concat();
        for name in ["RESTORE", "DUMP"] {
            for count in 0..5 {
                twin.push(&[&[name], &["a", "0", "x", "y", "z"][..count]].concat());
            }
        }
        let options: &[&[&str]] = &[
            &[],
            &["REPLACE"],
            &["absttl"],
            &["ABSTTL", "REPLACE", "REPLACE"],
            &["IDLETIME", "10"],
            &["IDLETIME", "-1"],
            &["IDLETIME", "x"],
            &["IDLETIME"],
            &["IDLETIME", "10", "IDLETIME", "20"],
            &["FREQ", "255"],
            &["FREQ", "256"],
            &["FREQ", "-1"],
            &["FREQ", "x"],
            &["FREQ"],
            &["FREQ", "1", "IDLETIME", "1"],
            &["IDLETIME", "1", "FREQ", "1", "REPLACE"],
            &["REPLACE", "what"],
            &["replace", "freq", "3", "absttl"],
        ];
        for before in ["DEL k", "SET k old", "SET k old PXAT 4000000000000", "SET k old PXAT 1"] {
            for ttl in ["0", "-1", "x", "", "4000000000123", "1", "01"] {
                for payload in [&good, &wrong, &Vec::new(), &vec![b'x'; 9]] {
                    for options in options {
                        // With a relative time of one millisecond, the key may or may not exist.
                        if ttl == "1"
                            && !options.iter().any(|word| word.eq_ignore_ascii_case("absttl"))
                        {
                            continue;
                        }
                        twin.push_line(before);
                        let options: Vec<&[u8]> =
                            options.iter().map(|word| word.as_bytes()).collect();
                        twin.push(
                            &[
                                &[b"RESTORE".as_slice(), b"k", ttl.as_bytes(), payload],
                                &options[..],
                            ]
                            .concat(),
                        );
                        twin.push_line("GET k");
                        twin.push_line("PTTL k");
                    }
                }
            }
        }
    });
}

#[test]
fn a_time_to_live_counts_from_now_on() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let payload = payload_of(&mut client, "value");
        assert_eq!(
            client.call(&[b"MIDI.RESTORE", b"k".as_slice(), b"100000", &payload]),
            Value::ok()
        );
        let left = client.integer("MIDI.PTTL k");
        assert!((90_000..=100_000).contains(&left), "{left}");
        let at = (now_ms() + 50).to_string();
        let line = [b"MIDI.RESTORE", b"short".as_slice(), at.as_bytes(), &payload, b"ABSTTL"];
        assert_eq!(client.call(&line), Value::ok());
        wait_until("it is over", || client.integer("MIDI.EXISTS short") == 0);
        let forever = i64::MAX.to_string();
        let line = [b"MIDI.RESTORE", b"long".as_slice(), forever.as_bytes(), &payload];
        assert_eq!(client.call(&line), Value::ok());
        assert_eq!(client.run("MIDI.GET long"), Value::bulk("value"));
    });
}

#[test]
fn payloads_of_newer_hosts_are_taken() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let mut restore = |content: &[u8], version: u16| {
            client.call(&[
                b"MIDI.RESTORE".as_slice(),
                b"k",
                b"0",
                &sealed(content, version),
                b"REPLACE",
            ])
        };
        // Redis 7.0, 7.2, 7.4 and 8, Valkey 8 (11) and 9 (80).
        for version in [10, 11, 12, 13, 14, 80] {
            assert_eq!(restore(b"\0\x05value", version), Value::ok(), "{version}");
        }
        let refusal = Value::error("ERR DUMP payload version or checksum are wrong");
        assert_eq!(restore(b"\0\x05value", 81), refusal);
        assert_eq!(restore(b"\0\x05value", u16::MAX), refusal);
    });
}

#[test]
fn other_types_are_refused_clearly() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let refusal =
            Value::error("ERR the DUMP payload is of another type; midi holds strings and hashes");
        for (make, key) in [
            ("RPUSH list a b c", "list"),
            ("SADD set a b c", "set"),
            ("SADD ints 1 2 3", "ints"),
            ("ZADD zset 1 a", "zset"),
            ("XADD stream * a 1", "stream"),
        ] {
            client.run(make);
            let payload = client.run(&format!("DUMP {key}"));
            assert_eq!(
                client.call(&[b"MIDI.RESTORE".as_slice(), b"k", b"0", payload.bytes()]),
                refusal,
                "{make}"
            );
        }
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
    });
}

#[test]
fn limits_hold_for_restored_values() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let long = payload_of(&mut client, &"a".repeat(100_000));
        let plain = sealed(&[b"\0\x40\x65".as_slice(), &[b'x'; 101]].concat(), 10);
        client.ok("CONFIG SET midi.max-value-bytes 100 midi.max-key-bytes 10");
        client.ok("MIDI.SET there old");
        let refusal =
            Value::error("ERR string exceeds maximum allowed size (midi.max-value-bytes 100)");
        for payload in [&long, &plain] {
            for key in ["k", "there"] {
                let line = [b"MIDI.RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"];
                assert_eq!(client.call(&line), refusal);
            }
        }
        let short = sealed(b"\0\x01a", 10);
        let reply = client.call(&[b"MIDI.RESTORE".as_slice(), b"a long name", b"0", &short]);
        assert_eq!(
            reply,
            Value::error("ERR key exceeds maximum allowed size (midi.max-key-bytes 10)")
        );
        assert_eq!(client.run("MIDI.GET there"), Value::bulk("old"));
        assert_eq!(client.integer("MIDI.DBSIZE"), 1);
    });
}

/// First bytes of a length or an encoding.
const HEADS: [u8; 8] = [0, 0x3f, 0x40, 0x80, 0x81, 0xc0, 0xc3, 0xff];

/// Damaged content with a correct footer: midi refuses what stock refuses, in the same words. What
/// it accepts is the same value. Two kinds differ and are handled separately: strings that reach
/// into the footer, which midi refuses, and other types.
#[test]
fn damaged_payloads_do_no_harm() {
    for mode in Mode::tried() {
        let server = mode.server();
        let mut client = server.client();
        let mut random = Random::new(79);
        let bad = Value::error("ERR Bad data format");
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..4000 {
            let value = random_value(&mut random, 300);
            client.call(&[b"SET".as_slice(), b"k", &value]);
            let payload = client.run("DUMP k").bytes().to_vec();
            let mut content = payload[..payload.len() - 10].to_vec();
            for _ in 0..random.below(4) {
                let at = 1 + random.below(content.len() - 1);
                match random.below(4) {
                    0 => content.truncate(at),
                    1 => content.insert(at, random.next() as u8),
                    2 if at < 12 => content[at] = HEADS[random.below(HEADS.len())],
                    _ => content[at] = random.next() as u8,
                }
                if content.len() < 2 {
                    break;
                }
            }
            let payload = sealed(&content, 10);
            let restore = |client: &mut Client, name: &str| {
                client.call(&[name.as_bytes(), b"r", b"0", &payload, b"REPLACE"])
            };
            client.run("DEL r");
            client.run("MIDI.DEL r");
            let (native, midi) =
                (restore(&mut client, "RESTORE"), restore(&mut client, "MIDI.RESTORE"));
            if midi == Value::ok() {
                assert_eq!(native, midi, "{payload:?}");
                assert_eq!(client.run("GET r"), client.run("MIDI.GET r"), "{payload:?}");
                taken += 1;
            } else {
                assert_eq!(midi, bad, "{payload:?}");
                let longer = sealed(&[&content[..], &[0; 10]].concat(), 10);
                let into_footer = native == Value::ok()
                    && client.call(&[b"MIDI.RESTORE".as_slice(), b"x", b"0", &longer, b"REPLACE"])
                        == Value::ok();
                assert!(native == bad || into_footer, "{native:?} {payload:?}");
                refused += 1;
            }
        }
        println!("{taken} taken, {refused} refused");
        assert!(taken > 500 && refused > 500, "{taken} {refused}");
        // Random bytes as well.
        for _ in 0..2000 {
            let noise: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
            let reply = client.call(&[b"MIDI.RESTORE".as_slice(), b"r", b"0", &noise, b"REPLACE"]);
            assert_eq!(reply, Value::error("ERR DUMP payload version or checksum are wrong"));
        }
    }
}

/// midi refuses a payload that claims to be large before it allocates memory for it.
#[test]
fn claims_take_no_memory() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let before = client.info_number("memory", "used_memory_peak");
        let bad = Value::error("ERR Bad data format");
        for content in [
            b"\0\x81\x00\x00\x00\xff\xff\xff\xff\xff".as_slice(),
            b"\0\x80\x1f\xff\xff\xffabc",
            b"\0\xc3\x05\x80\x1f\xff\xff\xff\x00a\x20\x00a",
            b"\0\xc3\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01aaaa",
        ] {
            for version in [6, 10, 80] {
                let payload = sealed(content, version);
                assert_eq!(client.call(&[b"MIDI.RESTORE".as_slice(), b"k", b"0", &payload]), bad);
            }
        }
        let after = client.info_number("memory", "used_memory_peak");
        assert!(after < before + (16 << 20), "{before} {after}");
    });
}
