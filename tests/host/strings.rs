//! The promise: MIDI.GET, SET, MGET and MSET answer exactly what the stock commands answer, in
//! RESP2 and RESP3, whatever their arguments.

use crate::common::{
    Client, Mode, Random, Twin, Value, in_all_modes, in_all_modes_and_protocols, now_ms,
};

/// Invalid and unusual numbers, as people and programs write them.
const NUMBERS: &[&str] = &[
    "1",
    "0",
    "-0",
    "00",
    "01",
    "-1",
    "-100",
    "+1",
    " 1",
    "1 ",
    "",
    "-",
    "abc",
    "1e3",
    "0x10",
    "1.0",
    "100",
    "9223372036854775",
    "9223372036854776",
    "-9223372036854776",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999",
    "9223370000000000000",
    "1\0",
    "\u{661}",
];

#[test]
fn get_and_set_take_any_bytes() {
    in_all_modes_and_protocols(|twin| {
        let long = vec![b'x'; 3000];
        let all: Vec<u8> = (0..=255).collect();
        let texts: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"\r\n",
            b" ",
            b"12",
            b"-12",
            b"9223372036854775807",
            b"a\0b",
            &all,
            &long,
            b"\xff\xfe",
        ];
        for key in &texts {
            twin.push(&[b"GET", *key]);
            for value in &texts {
                twin.push(&[b"SET", *key, value]);
                twin.push(&[b"GET", *key]);
                twin.push(&[b"SET", *key, value, b"GET"]);
            }
        }
        twin.push(&[&b"MGET"[..]].iter().chain(&texts).copied().collect::<Vec<_>>());
        twin.push_line("KEYS *");
    });
}

/// SET's options, valid and invalid.
fn set_options() -> Vec<Vec<String>> {
    let (seconds, ms) = (now_ms() / 1000 + 1000, now_ms() + 1_000_000);
    let lines = [
        "NX".into(),
        "xx".into(),
        "Get".into(),
        "EX 1000".into(),
        "pX 1000000".into(),
        format!("EXAT {seconds}"),
        format!("PXAT {ms}"),
        "KEEPTTL".into(),
        "EX".into(),
        "PX 0".into(),
        "EXAT -5".into(),
        "PXAT abc".into(),
        "PERSIST".into(),
    ];
    lines.iter().map(|line: &String| line.split(' ').map(str::to_owned).collect()).collect()
}

/// The values that the key may hold before.
const BEFORE: [&str; 3] = ["DEL k", "SET k old", "SET k old EX 500"];

fn set_with(twin: &mut Twin, options: &[&Vec<String>]) {
    for before in BEFORE {
        twin.push_line(before);
        let mut args = vec!["SET", "k", "new"];
        args.extend(options.iter().flat_map(|option| option.iter().map(String::as_str)));
        twin.push(&args);
        twin.push_line("GET k");
        twin.push_line("PTTL k");
    }
}

#[test]
fn set_takes_and_refuses_the_same_options() {
    in_all_modes_and_protocols(|twin| {
        let options = set_options();
        set_with(twin, &[]);
        for one in &options {
            set_with(twin, &[one]);
            for two in &options {
                set_with(twin, &[one, two]);
            }
        }
    });
}

#[test]
fn set_takes_and_refuses_the_same_three_options() {
    in_all_modes(|_, server| {
        let twin = &mut Twin::new(server.client());
        let options = set_options();
        for one in &options {
            for two in &options {
                for three in &options {
                    set_with(twin, &[one, two, three]);
                }
            }
        }
        twin.flush();
    });
}

#[test]
fn set_reads_numbers_as_redis_does() {
    in_all_modes_and_protocols(|twin| {
        for option in ["EX", "PX", "EXAT", "PXAT", "ex"] {
            for number in NUMBERS {
                twin.push_line("SET k old");
                twin.push(&["SET", "k", "new", option, number]);
                // Short times expire during the run, on one side before the other.
                if ["1", "100"].contains(number) {
                    continue;
                }
                twin.push_line("EXISTS k");
                if number.len() > 3 {
                    twin.push_line("PTTL k");
                    twin.push_line("TTL k");
                }
            }
        }
    });
}

#[test]
fn an_expiry_in_the_past_hides_the_key() {
    in_all_modes_and_protocols(|twin| {
        for option in ["EXAT 1", "PXAT 1", "PXAT 1000"] {
            twin.push_line("SET k old");
            twin.push_line(&format!("SET k new {option}"));
            for look in [
                "GET k",
                "EXISTS k",
                "TTL k",
                "TYPE k",
                "MGET k k",
                "PERSIST k",
                "KEYS *",
                "SET k v XX",
            ] {
                twin.push_line(look);
            }
            twin.push_line("SET k v GET NX");
        }
    });
}

#[test]
fn mget_and_mset_see_all_keys_in_order() {
    in_all_modes_and_protocols(|twin| {
        for line in [
            "MSET a 1 b 2 c 3",
            "MGET a b c nosuch a",
            "MSET a 1 a 2 a 3",
            "GET a",
            "MSET a",
            "MSET a 1 b",
            "MSET",
            "MGET",
            "SET ttl v EX 1000",
            "MSET ttl w x 1",
            "TTL ttl",
            "MGET ttl x y z",
        ] {
            twin.push_line(line);
        }
        let many: Vec<String> = (0..400)
            .flat_map(|number| [format!("key:{}", number % 300), format!("value:{number}")])
            .collect();
        let mut args = vec!["MSET".to_owned()];
        args.extend(many);
        twin.push(&args);
        let mut args = vec!["MGET".to_owned()];
        args.extend((0..500).map(|number| format!("key:{}", number % 350)));
        twin.push(&args);
    });
}

#[test]
fn wrong_arities_are_refused_in_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        for name in ["GET", "get", "SET", "sEt", "MGET", "MSET"] {
            for count in 0..6 {
                let mut args = vec![name.to_owned()];
                args.extend((0..count).map(|number| format!("a{number}")));
                twin.push(&args);
            }
        }
    });
}

#[test]
fn large_values_come_back_whole() {
    in_all_modes_and_protocols(|twin| {
        for len in [16_383, 16_384, 16_385, 32_767, 32_768, 32_769, 100_000, 1_000_000] {
            let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            twin.push(&[b"SET", &b"big"[..], &value]);
            twin.push_line("GET big");
            twin.push_line("MGET big nosuch big");
            twin.push(&[b"SET", &b"big"[..], b"small", b"GET"]);
            twin.push(&[b"MSET", &b"big"[..], &value, b"big2", &value]);
            twin.push_line("MGET big big2");
            twin.push_line("SET big x KEEPTTL GET");
        }
    });
}

/// An ordinary client library works, pipelines included.
#[test]
fn redis_rs_works() -> redis::RedisResult<()> {
    for mode in Mode::tried() {
        let server = mode.server();
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port()))?;
        let mut connection = client.get_connection()?;
        let () = redis::cmd("MIDI.SET").arg("k").arg(42).query(&mut connection)?;
        let number: i64 = redis::cmd("MIDI.GET").arg("k").query(&mut connection)?;
        assert_eq!(number, 42);
        let none: Option<String> = redis::cmd("MIDI.GET").arg("nosuch").query(&mut connection)?;
        assert_eq!(none, None);
        let mut pipeline = redis::pipe();
        for number in 0..500 {
            pipeline.cmd("MIDI.SET").arg(format!("key:{number}")).arg(number).ignore();
            pipeline.cmd("MIDI.GET").arg(format!("key:{number}"));
        }
        let numbers: Vec<i64> = pipeline.query(&mut connection)?;
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
        let (first, last): (String, Vec<String>) = redis::pipe()
            .atomic()
            .cmd("MIDI.GET")
            .arg("key:0")
            .cmd("MIDI.MGET")
            .arg("key:1")
            .arg("key:2")
            .query(&mut connection)?;
        assert_eq!((first.as_str(), last), ("0", vec!["1".to_owned(), "2".to_owned()]));
        let wrong: redis::RedisResult<()> = redis::cmd("MIDI.SET").arg("k").query(&mut connection);
        assert!(wrong.is_err());
    }
    Ok(())
}

/// A client that sends commands as plain lines, one byte at a time.
#[test]
fn inline_commands_and_trickling_bytes_work() {
    in_all_modes(|_, server| {
        let mut client: Client = server.client();
        client.send(b"MIDI.SET inline 1\r\nMIDI.GET inline\r\n");
        assert_eq!([client.read(), client.read()], [Value::ok(), Value::bulk("1")]);
        for byte in crate::common::encoded(&["MIDI.SET", "slow", "\0\r\n"]) {
            client.send(&[byte]);
        }
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.run("MIDI.GET slow"), Value::bulk("\0\r\n"));
    });
}

/// Values of random length, which cover every size class of an entry.
#[test]
fn overwriting_with_other_sizes_keeps_the_rest() {
    in_all_modes(|mode, server| {
        let twin = &mut Twin::new(server.client());
        let mut random = Random::new(7);
        let rounds = if mode == Mode::Pool { 2000 } else { 4000 };
        for _ in 0..rounds {
            let key = format!("{}{}", "k".repeat(1 + random.below(40)), random.below(8));
            let value = vec![b'a' + random.below(26) as u8; random.below(400)];
            twin.push(&[b"SET", key.as_bytes(), &value]);
            twin.push(&[b"GET", key.as_bytes()]);
            if random.below(4) == 0 {
                twin.push(&[b"PEXPIRE", key.as_bytes(), b"1000000"]);
            }
        }
        twin.push_line("KEYS *");
        twin.flush();
    });
}
