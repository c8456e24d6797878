//! The promise: INCREX answers and stores what Redis 8.8 documents, on every host and through both
//! doors: its sums are those of INCRBY and INCRBYFLOAT, within its bounds.

use crate::common::aof::survives;
use crate::common::{Client, Door, Mode, Random, Server, Twin, Value, in_all_modes, words};

/// Commands and the replies to them, as [`shown`] shows those.
const TABLE: &str = "
    INCREX n -> [1 1]
    INCREX n BYINT 5 -> [6 5]
    increx n byint -10 -> [-4 -10]
    INCREX n BYINT 0 -> [-4 0]
    GET n -> -4
    SET n 10 EX 1000 -> OK
    INCREX n -> [11 1]
    TTL n -> ~1000
    INCREX n EX 500 ENX -> [12 1]
    TTL n -> ~1000
    INCREX n PX 500000 -> [13 1]
    TTL n -> ~500
    INCREX n PERSIST -> [14 1]
    TTL n -> -1
    INCREX n PERSIST -> [15 1]
    INCREX n BYINT 5 ENX EX 300 -> [20 5]
    TTL n -> ~300
    INCREX n BYINT 100 UBOUND 50 EX 900 -> [20 0]
    INCREX n BYINT -100 LBOUND 0 PERSIST -> [20 0]
    TTL n -> ~300
    GET n -> 20
    INCREX n BYINT 100 UBOUND 50 SATURATE EX 900 -> [50 30]
    TTL n -> ~900
    INCREX n UBOUND 30 SATURATE -> [30 -20]
    INCREX n BYINT -5 UBOUND 20 -> [30 0]
    INCREX n BYINT -10 UBOUND 20 -> [20 -10]
    INCREX n LBOUND 0 BYINT 100 SATURATE UBOUND 25 -> [25 5]
    INCREX n EXAT 1 ENX -> [26 1]
    INCREX n EXAT 1 -> [27 1]
    EXISTS n -> 0
    INCREX n PXAT 1 -> [1 1]
    EXISTS n -> 0
    INCREX n BYINT 5 LBOUND 10 -> [0 0]
    EXISTS n -> 0
    INCREX n LBOUND 10 SATURATE -> [10 10]
    SET n 9223372036854775800 -> OK
    INCREX n BYINT 9223372036854775800 -> [9223372036854775800 0]
    INCREX n BYINT 9223372036854775800 SATURATE -> [9223372036854775807 7]
    INCREX n UBOUND -2 SATURATE -> ERR applied increment would overflow
    SET n -9223372036854775800 -> OK
    INCREX n BYINT -9223372036854775800 SATURATE LBOUND -9223372036854775807 -> \
        [-9223372036854775807 -7]
    INCREX f BYFLOAT 1.5 -> [1.5 1.5]
    INCREX f BYFLOAT 0.1 -> [1.6 0.1]
    GET f -> 1.6
    INCREX f -> ERR value is not an integer or out of range
    INCREX f BYFLOAT 100 UBOUND 42.5 -> [1.6 0]
    INCREX f BYFLOAT 100 UBOUND 42.5 SATURATE -> [42.5 40.9]
    INCREX f BYFLOAT -1e3 LBOUND -5.25 UBOUND inf SATURATE -> [-5.25 -47.75]
    INCREX f BYFLOAT -1 LBOUND -inf -> [-6.25 -1]
    INCREX f BYFLOAT 1 UBOUND -inf -> ERR LBOUND can't be greater than UBOUND
    SET f 3 -> OK
    INCREX f BYFLOAT 2 EX 100 -> [5 2]
    TTL f -> ~100
    SET f inf -> OK
    INCREX f BYFLOAT 1 -> ERR value cannot be Infinity
    INCREX g BYFLOAT 0.5 LBOUND 1 -> [0 0]
    EXISTS g -> 0
    SET s text -> OK
    INCREX s -> ERR value is not an integer or out of range
    INCREX s BYFLOAT 1 -> ERR value is not a valid float
    INCREX -> ERR wrong number of arguments for 'COMMAND' command
    INCREX n FOO -> ERR syntax error
    INCREX n BYINT -> ERR syntax error
    INCREX n BYINT 1 BYFLOAT 1 -> ERR syntax error
    INCREX n BYINT 1 BYINT 2 -> ERR syntax error
    INCREX n LBOUND 1 LBOUND 1 -> ERR syntax error
    INCREX n UBOUND 1 UBOUND 1 -> ERR syntax error
    INCREX n SATURATE SATURATE -> ERR syntax error
    INCREX n ENX ENX EX 10 -> ERR syntax error
    INCREX n PERSIST PERSIST -> ERR syntax error
    INCREX n EX 10 EX 20 -> ERR syntax error
    INCREX n EX 10 PX 20 -> ERR syntax error
    INCREX n EX 10 PERSIST -> ERR syntax error
    INCREX n PERSIST EX 10 -> ERR syntax error
    INCREX n PERSIST ENX -> ERR syntax error
    INCREX n ENX PERSIST -> ERR syntax error
    INCREX n KEEPTTL -> ERR syntax error
    INCREX n ENX -> ERR ENX flag requires an expiration
    INCREX n BYINT abc -> ERR Increment is not an integer or out of range
    INCREX n BYINT 1.5 -> ERR Increment is not an integer or out of range
    INCREX n LBOUND 1.5 -> ERR LBOUND is not an integer or out of range
    INCREX n UBOUND x -> ERR UBOUND is not an integer or out of range
    INCREX n BYFLOAT abc -> ERR Increment is not a valid float
    INCREX n BYFLOAT nan -> ERR Increment is not a valid float
    INCREX n BYFLOAT 1 LBOUND x -> ERR LBOUND is not a valid float
    INCREX n BYFLOAT -inf -> ERR BYFLOAT increment cannot be Infinity
    INCREX n LBOUND 10 UBOUND 5 -> ERR LBOUND can't be greater than UBOUND
    INCREX n BYFLOAT 1 LBOUND 1.5 UBOUND 1 -> ERR LBOUND can't be greater than UBOUND
    INCREX n EX 0 -> ERR invalid expire time in 'COMMAND' command
    INCREX n PXAT -5 -> ERR invalid expire time in 'COMMAND' command
    INCREX n EX soon -> ERR value is not an integer or out of range
    GET n -> -9223372036854775807
";

/// A reply as the table has it. Doubles have as many digits as their door knows.
fn shown(reply: &Value) -> String {
    match reply {
        Value::Array(list) => {
            format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        Value::Double(text) => {
            let number: f64 = String::from_utf8_lossy(text).parse().expect("a number");
            number.to_string()
        }
        Value::Integer(number) => number.to_string(),
        other => other.text(),
    }
}

fn check(client: &mut Client, door: Door) {
    let table = TABLE.replace("\\\n", "");
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, expected) = line.split_once(" -> ").expect(line);
        let args = door.named(&words(command));
        let name = String::from_utf8_lossy(&args[0]).to_lowercase();
        let expected = expected.trim().replace("COMMAND", &name);
        let reply = shown(&client.call(&args));
        match expected.strip_prefix('~') {
            Some(seconds) => {
                let (got, most): (i64, i64) = (reply.parse().unwrap(), seconds.parse().unwrap());
                assert!((most - 100..=most).contains(&got), "{line}: {got}");
            }
            None => assert_eq!(reply, expected, "{line}"),
        }
    }
}

#[test]
fn increx_does_what_redis_8_8_documents() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        for door in [Door::Host, Door::Port, Door::PortPrefixed] {
            for resp3 in [false, true] {
                println!("{mode:?}, {door:?}, RESP3: {resp3}");
                let client = door.client(&server);
                let mut client = if resp3 { client.resp3() } else { client };
                check(&mut client, door);
                server.client().ok("MIDI.FLUSHALL");
            }
        }
    }
}

#[test]
fn numbers_are_doubles_in_resp3_only() {
    let server = Mode::Adaptive.builder().with_port().start();
    for door in [Door::Host, Door::Port] {
        let line = door.named(&words("INCREX f BYFLOAT 0.25"));
        server.client().ok("MIDI.SET f 1");
        let two = door.client(&server).call(&line);
        assert_eq!(two, Value::Array(vec![Value::bulk("1.25"), Value::bulk("0.25")]), "{door:?}");
        let three = door.client(&server).resp3().call(&line);
        let double = |text: &str| Value::Double(text.into());
        assert_eq!(three, Value::Array(vec![double("1.5"), double("0.25")]), "{door:?}");
    }
}

/// Where the sum is within the bounds, INCREX is INCRBY or INCRBYFLOAT of the host.
#[test]
fn sums_are_those_of_the_hosts_commands() {
    const FLOATS: [&str; 14] = [
        "0", "0.1", "-0.1", "1.5", "3.0e3", "1e-5", "1e17", "-1e17", "1e300", "-1e300", "0x1p3",
        ".5", "1e4900", "-1e4931",
    ];
    in_all_modes(|mode, server| {
        let mut random = Random::new(8);
        let mut twin = Twin::new(server.client());
        let mut client = server.client();
        for _ in 0..300 {
            let (float, by) = (random.below(2) == 0, random.next() as i64 >> random.below(60));
            let by = if float { random.pick(&FLOATS).to_owned() } else { by.to_string() };
            let (native, midi) = if float {
                (format!("INCRBYFLOAT k {by}"), format!("MIDI.INCREX k BYFLOAT {by}"))
            } else {
                (format!("INCRBY k {by}"), format!("MIDI.INCREX k BYINT {by}"))
            };
            let before = client.run("GET k");
            let expected = client.run(&native);
            let reply = client.run(&midi);
            // A sum that does not fit is an error of one, and nothing to the other; a value that
            // is not an integer is the same error of both.
            let not_a_number = Value::error("ERR value is not an integer or out of range");
            if !expected.is_error() {
                let sum = shown(&reply.array()[0]);
                assert_eq!(sum, shown(&expected), "{mode:?}: {midi}");
            } else if expected == not_a_number {
                assert_eq!(reply, expected, "{mode:?}: {midi}");
            } else {
                assert_eq!(shown(&reply.array()[1]), "0", "{mode:?}: {midi}");
                assert_eq!(client.run("GET k"), before);
            }
            twin.same_line("GET k");
            twin.same_line("OBJECT ENCODING k");
            if random.below(10) == 0 {
                twin.same_line(&format!("SET k {}", random.below(1000)));
            }
        }
    });
}

/// The events that a subscriber has seen.
fn events(server: &Server, lines: &[&str]) -> Vec<String> {
    let mut subscriber = server.client();
    subscriber.send_line("PSUBSCRIBE __keyevent@0__:* end");
    (0..2).for_each(|_| drop(subscriber.read()));
    let mut client = server.client();
    lines.iter().for_each(|line| drop(client.run(line)));
    client.run("PUBLISH end end");
    let mut seen = Vec::new();
    loop {
        let message: Vec<String> = subscriber.read().array().iter().map(Value::text).collect();
        if message[2] == "end" {
            return seen;
        }
        seen.push(message[2].trim_start_matches("__keyevent@0__:").to_owned());
    }
}

#[test]
fn events_are_those_of_the_change_and_of_the_expiry() {
    in_all_modes(|mode, server| {
        server.client().ok("CONFIG SET notify-keyspace-events KEA");
        for (line, expected) in [
            ("MIDI.INCREX k", &["incrby"][..]),
            ("MIDI.INCREX k EX 100", &["incrby", "expire"]),
            ("MIDI.INCREX k EX 100 ENX", &["incrby"]),
            ("MIDI.INCREX k BYFLOAT 0.5 PERSIST", &["incrbyfloat", "persist"]),
            ("MIDI.INCREX k BYFLOAT 1 UBOUND 0", &[]),
            ("MIDI.INCREX k BYFLOAT 1 EXAT 1", &["del"]),
            ("MIDI.INCREX k EXAT 1", &[]),
        ] {
            // In pool mode the command has run when its reply comes; its events come before that.
            assert_eq!(events(server, &[line]), expected, "{mode:?}: {line}");
        }
    });
}

#[test]
fn increx_survives_a_kill() {
    for mode in Mode::tried() {
        let builder = mode.builder().with_port().config("appendonly yes");
        let mut server = builder.config("appendfsync always").start();
        for door in [Door::Host, Door::Port] {
            let mut client = door.client(&server);
            for line in [
                "SET a 5 EX 10000",
                "INCREX a BYINT 3",
                "INCREX b EXAT 4102444800",
                "INCREX b BYINT 500 UBOUND 100 SATURATE",
                "INCREX c BYFLOAT 0.125 PX 1000000000",
                "INCREX c BYFLOAT 1 PERSIST",
                "SET d 1",
                "INCREX d EXAT 1",
            ] {
                assert!(!client.call(&door.named(&words(line))).is_error(), "{line}");
            }
        }
        survives(&mut server, "after INCREX");
    }
}
