//! The promise: fields of hashes expire as those of Redis 8.6 do, on every host and through every
//! door. HEXPIRE and its like, HPERSIST, HTTL and its like, HGETEX and HSETEX answer, store and
//! tell what they do there. Where the host is such a Redis, its own commands prove the tables.

use super::hashes_saved::set_fields;
use crate::common::aof::survives;
use crate::common::hosts::host;
use crate::common::port::Ported;
use crate::common::{
    Builder, Client, Door, Mode, Random, Server, Twin, Value, in_all_modes, skip, wait_until, words,
};

/// Commands and the replies to them, as [`shown`] shows those.
const TABLE: &str = "
    HSET h a 1 b 2 c 3 d 4 -> 4
    SET text x -> OK
    HEXPIRE h 1000 FIELDS 1 a -> [1]
    HTTL h FIELDS 1 a -> ~1000
    HPTTL h FIELDS 1 a -> ~1000000
    hexpire h 2000 nx fields 3 a b nosuch -> [0 1 -2]
    HTTL h FIELDS 1 b -> ~2000
    HPEXPIRE h 3000000 XX FIELDS 2 c b -> [0 1]
    HEXPIREAT h 4102444800 FIELDS 2 c d -> [1 1]
    HEXPIREAT h 4102444800 GT FIELDS 1 c -> [0]
    HEXPIREAT h 4102444800 LT FIELDS 1 c -> [0]
    HPEXPIREAT h 4102444800001 GT FIELDS 1 c -> [1]
    HPEXPIREAT h 4102444799999 FIELDS 1 d LT -> [1]
    HEXPIRETIME h FIELDS 3 c d nosuch -> [4102444801 4102444800 -2]
    HPEXPIRETIME h FIELDS 3 c d nosuch -> [4102444800001 4102444799999 -2]
    HPERSIST h FIELDS 4 a a nosuch c -> [1 -1 -2 1]
    HTTL h FIELDS 2 a c -> [-1 -1]
    HPEXPIREAT h 4102444800000 GT FIELDS 1 a -> [0]
    HPEXPIREAT h 4102444800000 LT FIELDS 1 a -> [1]
    HPEXPIREAT h 4102444800000 XX XX FIELDS 2 a c -> [1 0]
    HEXPIRE h 1000 FIELDS 2 a NX XX -> [1 -2]
    HGET h a -> 1
    HSET h a 1 -> 0
    HTTL h FIELDS 1 a -> [-1]
    HEXPIRE nosuch 1000 FIELDS 2 a b -> [-2 -2]
    HTTL nosuch FIELDS 2 a b -> [-2 -2]
    HPERSIST nosuch FIELDS 2 a b -> [-2 -2]
    HGETEX nosuch EX 10 FIELDS 2 a b -> [null null]
    HEXPIREAT h 70368744177 FIELDS 1 a -> [1]
    HEXPIREAT h 70368744178 FIELDS 1 a -> ERR TIME
    HPEXPIREAT h 70368744177663 FIELDS 1 a -> [1]
    HPEXPIREAT h 70368744177664 FIELDS 1 a -> ERR TIME
    HEXPIRE h 70368744177 FIELDS 1 a -> ERR TIME
    HPEXPIRE h 9223372036854775807 FIELDS 1 a -> ERR TIME
    HPEXPIRETIME h FIELDS 1 a -> [70368744177663]
    HEXPIRETIME h FIELDS 1 a -> [70368744178]
    HEXPIRE h 0 FIELDS 2 d d -> [2 -2]
    HEXPIREAT h 1 XX FIELDS 1 c -> [0]
    HPEXPIREAT h 1 GT FIELDS 1 b -> [0]
    HEXPIREAT h 1 LT FIELDS 1 c -> [2]
    HMGET h a b c d -> [1 2 null null]
    HPEXPIREAT h 1 FIELDS 2 a b -> [2 2]
    EXISTS h -> 0
    HSET h a 1 b 2 c 3 d 4 -> 4
    HEXPIRE h 1000 FIELDS 2 a -> ERR wrong number of arguments
    HEXPIRE h 1000 FIELDS 2147483648 a -> ERR GREATER
    HEXPIRE h 1000 FIELDS 0 a -> ERR GREATER
    HEXPIRE h 1000 FIELDS -1 a -> ERR GREATER
    HEXPIRE h 1000 FIELDS 01 a -> ERR GREATER
    HEXPIRE h 1000 FIELDS x a -> ERR GREATER
    HEXPIRE h 1000 FIELDS 1 a b -> ERR unknown argument: b
    HEXPIRE h 1000 bogus FIELDS 1 a -> ERR unknown argument: bogus
    HEXPIRE h 1000 NX bogus GT FIELDS 1 a -> ERR unknown argument: bogus
    HEXPIRE h 1000 NX GT FIELDS 1 a -> ERR Multiple condition flags specified
    HEXPIRE h 1000 NX FIELDS 1 a GT -> ERR Multiple condition flags specified
    HEXPIRE h 1000 NX GT FIELDS 9 a -> ERR wrong number of arguments
    HEXPIRE h 1000 NX NX NX NX -> ERR missing FIELDS argument
    HEXPIRE h 1000 NX GT GT LT -> ERR missing FIELDS argument
    HEXPIRE h 1000 NX FIELDS 1 -> ERR REQUIRES
    HEXPIRE h 1000 NX NX FIELDS -> ERR REQUIRES
    HEXPIRE h 1000 FIELDS 1 a FIELDS 1 b -> ERR FIELDS keyword specified multiple times
    HEXPIRE h 1000 FIELDS 1 a FIELDS -> ERR FIELDS keyword specified multiple times
    HEXPIRE h 1000 FIELDS 1 -> ERR ARITY
    HEXPIRE h x bogus 1 a -> ERR value is not an integer or out of range
    HEXPIRE h -1 bogus 1 a -> NEGATIVE
    HEXPIRE h 99999999999999 bogus 1 a -> ERR TIME
    HEXPIRE nosuch -10 FIELDS 1 a -> NEGATIVE
    HEXPIRE text x FIELDS 1 a -> WRONGTYPE
    HTTL h bogus 1 a -> ERR MANDATORY
    HTTL h 1 FIELDS a -> ERR MANDATORY
    HTTL h FIELDS 2 a -> ERR MATCH
    HTTL h FIELDS 1 a b -> ERR MATCH
    HTTL nosuch FIELDS 1 a b -> ERR MATCH
    HTTL h FIELDS 0 a -> ERR POSITIVE
    HPTTL h FIELDS +1 a -> ERR POSITIVE
    HEXPIRETIME h FIELDS 1 -> ERR ARITY
    HTTL text bogus 1 a -> WRONGTYPE
    HPERSIST h bogus 1 a -> ERR MANDATORY
    HPERSIST h FIELDS 0 a -> ERR POSITIVE
    HPERSIST h FIELDS 2 a -> ERR MATCH
    HPERSIST text bogus 1 a -> WRONGTYPE
    HGETEX h FIELDS 3 a nosuch b -> [1 null 2]
    HTTL h FIELDS 2 a b -> [-1 -1]
    HGETEX h EX 1000 FIELDS 2 a nosuch -> [1 null]
    HTTL h FIELDS 1 a -> ~1000
    HGETEX h FIELDS 1 a -> [1]
    HTTL h FIELDS 1 a -> ~1000
    HGETEX h FIELDS 2 a b PERSIST -> [1 2]
    HTTL h FIELDS 2 a b -> [-1 -1]
    HGETEX h PX 3000000 FIELDS 1 a -> [1]
    HTTL h FIELDS 1 a -> ~3000
    hgetex h exat 4102444800 fields 1 a -> [1]
    HGETEX h FIELDS 1 b PXAT 4102444800123 -> [2]
    HPEXPIRETIME h FIELDS 2 a b -> [4102444800000 4102444800123]
    HGETEX h PXAT 1 FIELDS 2 d d -> [4 null]
    HGETEX h EX 0 FIELDS 1 c -> [3]
    HGETEX h EXAT 0 FIELDS 2 a b -> [1 2]
    EXISTS h -> 0
    HSET h a 1 b 2 c 3 -> 3
    HGETEX h bogus FIELDS 1 a -> ERR unknown argument: bogus
    HGETEX h FIELDS 1 a b -> ERR unknown argument: b
    HGETEX h NX FIELDS 1 a -> ERR unknown argument: NX
    HGETEX h FIELDS 0 a -> ERR invalid number of fields
    HGETEX h FIELDS 01 a -> ERR invalid number of fields
    HGETEX h FIELDS 2147483648 a -> ERR invalid number of fields
    HGETEX h FIELDS 2 a -> ERR wrong number of arguments
    HGETEX h EX 10 FIELDS 1 -> ERR wrong number of arguments
    HGETEX h EX 10 FIELDS -> ERR ARITY
    HGETEX h EX 10 -> ERR ARITY
    HGETEX h EX FIELDS 1 a -> ERR value is not an integer or out of range
    HGETEX h EX -1 FIELDS 1 a -> NEGATIVE
    HGETEX h FIELDS 1 a EX -> ERR missing expire time
    HGETEX h EX 70368744178 FIELDS 1 a -> ERR TIME
    HGETEX h PXAT 70368744177664 FIELDS 1 a -> ERR TIME
    HGETEX h FIELDS 1 a FIELDS 1 b -> ERR FIELDS keyword specified multiple times
    HGETEX h KEEPTTL FIELDS 1 a -> ERR unknown argument
    HGETEX h FNX FIELDS 1 a -> ERR unknown argument
    HGETEX h FNX FXX FIELDS 1 a -> ONE FXX FNX
    HGETEX h EX 10 FXX -> ERR missing FIELDS argument
    HGETEX text EX x FIELDS 1 a -> WRONGTYPE
    HGETEX h EX 10 PX 10 FIELDS 1 a -> ONE PERSIST
    HGETEX h EX 10 EX 20 FIELDS 1 a -> ONE PERSIST
    HGETEX h PERSIST EX x FIELDS 1 a -> ONE PERSIST
    HGETEX h PERSIST PERSIST FIELDS 1 a -> ONE PERSIST
    HGETEX h EX 10 KEEPTTL FIELDS 1 a -> ONE PERSIST
    HSETEX h FIELDS 2 a 5 new 6 -> 1
    HSETEX h FNX FIELDS 2 other 1 a 7 -> 0
    HSETEX h FXX FIELDS 2 other 1 a 7 -> 0
    HSETEX h FNX FIELDS 2 other 1 other 2 -> 1
    HSETEX h FXX FIELDS 2 other 3 a 7 -> 1
    HMGET h a new other -> [7 6 3]
    HSETEX h EX 1000 FIELDS 1 a 8 -> 1
    HTTL h FIELDS 1 a -> ~1000
    HSETEX h KEEPTTL FIELDS 2 a 9 fresh 1 -> 1
    HTTL h FIELDS 1 a -> ~1000
    HTTL h FIELDS 1 fresh -> [-1]
    HSETEX h FIELDS 1 a 10 -> 1
    HTTL h FIELDS 1 a -> [-1]
    hsetex h fields 1 a 11 px 3000000 fxx -> 1
    HTTL h FIELDS 1 a -> ~3000
    HSETEX h EXAT 4102444800 FIELDS 1 a 12 -> 1
    HSETEX h PXAT 4102444800123 FIELDS 1 b 12 -> 1
    HPEXPIRETIME h FIELDS 2 a b -> [4102444800000 4102444800123]
    HSETEX h PXAT 1 FIELDS 2 a 13 missing 1 -> 1
    HMGET h a missing -> [null null]
    HSETEX nosuch FXX FIELDS 1 a 1 -> 0
    HSETEX nosuch EX 0 FIELDS 1 a 1 -> 1
    EXISTS nosuch -> 0
    HSETEX h FIELDS 1 a -> ERR ARITY
    HSETEX h EX 10 FIELDS 1 a -> ERR wrong number of arguments
    HSETEX h FIELDS 2 a 1 b -> ERR wrong number of arguments
    HSETEX h EX 10 FNX FIELDS 1 -> ERR wrong number of arguments
    HSETEX h EX 10 FNX FIELDS -> ERR ARITY
    HSETEX h FIELDS 1 a 1 b 2 -> ERR unknown argument: b
    HSETEX h FIELDS x a 1 -> ERR invalid number of fields
    HSETEX h FIELDS 0 a 1 -> ERR invalid number of fields
    HSETEX h FNX FXX EX x FIELDS 1 a 1 -> ONE FXX FNX
    HSETEX h FXX FXX FIELDS 1 a 1 -> ONE FXX FNX
    HSETEX h PERSIST FIELDS 1 a 1 -> ERR unknown argument
    HSETEX h PERSIST KEEPTTL FIELDS 1 a 1 -> ERR unknown argument
    HSETEX h KEEPTTL PERSIST KEEPTTL FIELDS 1 a 1 -> ONE KEEPTTL
    HGETEX h KEEPTTL PERSIST FIELDS 1 a -> ERR unknown argument
    HSETEX h PERSIST bogus FIELDS 1 a 1 -> ERR unknown argument: bogus
    HSETEX h EX 10 KEEPTTL FIELDS 1 a 1 -> ONE KEEPTTL
    HSETEX h KEEPTTL EX 10 FIELDS 1 a 1 -> ONE KEEPTTL
    HSETEX h KEEPTTL KEEPTTL FIELDS 1 a 1 -> ONE KEEPTTL
    HSETEX h FIELDS 1 a 1 EX -> ERR missing expire time
    HSETEX h EX -1 PX 10 FIELDS 1 a 1 -> NEGATIVE
    HSETEX h EX 9223372036854775807 FIELDS 1 a 1 -> ERR TIME
    HSETEX text EX x FIELDS 1 a 1 -> ERR value is not an integer or out of range
    HSETEX text bogus FIELDS 1 a 1 -> ERR unknown argument: bogus
    HSETEX text FNX FIELDS 1 a 1 -> WRONGTYPE
";

/// Words of the table, and the texts that they stand for.
const TEXTS: [(&str, &str); 12] = [
    ("ERR TIME", "ERR invalid expire time in 'COMMAND' command"),
    ("ERR ARITY", "ERR wrong number of arguments for 'COMMAND' command"),
    ("ERR MATCH", "ERR The `numfields` parameter must match the number of arguments"),
    ("ERR MANDATORY", "ERR Mandatory argument FIELDS is missing or not at the right position"),
    ("ERR REQUIRES", "ERR FIELDS requires at least numfields and one field argument"),
    ("ERR GREATER", "ERR Parameter `numFields` should be greater than 0"),
    ("ERR POSITIVE", "ERR Number of fields must be a positive integer"),
    ("ONE FXX FNX", "ERR Only one of FXX or FNX arguments can be specified"),
    ("ONE PERSIST", "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified"),
    ("ONE KEEPTTL", "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"),
    ("WRONGTYPE", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("NEGATIVE", "ERR invalid expire time, must be >= 0"),
];

/// Whether the host's own commands are those that midi's are like.
fn is_the_model() -> bool {
    !host().valkey && host().version >= (8, 6)
}

/// A reply as the table has it.
fn shown(reply: &Value) -> String {
    match reply {
        Value::Array(list) => {
            format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        Value::Integer(number) => number.to_string(),
        null if null.is_null() => "null".to_owned(),
        other => other.text(),
    }
}

/// The lines of the table: the command, and the reply to it.
fn table() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = TABLE.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| line.split_once(" -> ").expect(line))
}

fn check(client: &mut Client, named: impl Fn(&str) -> Vec<Vec<u8>>) {
    for (command, expected) in table() {
        let args = named(command);
        let name = String::from_utf8_lossy(&args[0]).to_lowercase();
        let text = TEXTS.iter().find(|(word, _)| *word == expected);
        let expected = text.map_or(expected, |(_, text)| text).replace("COMMAND", &name);
        let reply = shown(&client.call(&args));
        match expected.strip_prefix('~') {
            Some(most) => {
                let (got, most): (i64, i64) =
                    (reply.trim_matches(['[', ']']).parse().expect(&reply), most.parse().unwrap());
                assert!((most / 2..=most).contains(&got), "{command}: {got}");
            }
            None => assert_eq!(reply, expected, "{command}"),
        }
    }
}

#[test]
fn replies_are_those_of_redis_8_6() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        for door in Door::ALL {
            for resp3 in [false, true] {
                println!("{mode:?}, {door:?}, RESP3: {resp3}");
                server.client().ok("FLUSHALL");
                let client = door.client(&server);
                let mut client = if resp3 { client.resp3() } else { client };
                check(&mut client, |line| door.named(&words(line)));
                // Redis 8.6.3 itself counts too far here.
                for line in [
                    "HEXPIRE h 10 FIELDS 2147483647 a",
                    "HGETEX h FIELDS 2147483647 a",
                    "HSETEX h FIELDS 2147483647 a 1",
                ] {
                    let reply = client.call(&door.named(&words(line)));
                    assert_eq!(shown(&reply), "ERR wrong number of arguments", "{line}");
                }
            }
        }
        if is_the_model() {
            println!("the host's own commands");
            check(&mut server.client(), words);
        }
    }
}

/// Commands that are sent to a hash with the fields `a 1 b 2 c 3`, of which `c` expires; the events
/// that they cause.
const EVENTS: [(&str, &[&str]); 33] = [
    ("HEXPIRE h 1000 FIELDS 2 a nosuch", &["hexpire"]),
    ("HEXPIRE h 1000 FIELDS 2 a a", &["hexpire"]),
    ("HEXPIRE h 1000 FIELDS 1 nosuch", &[]),
    ("HPEXPIRE h 1000000 XX FIELDS 1 a", &[]),
    ("HPEXPIRE h 1000000 XX FIELDS 2 a c", &["hexpire"]),
    ("HEXPIREAT h 4102444800 FIELDS 1 c", &["hexpire"]),
    ("HEXPIREAT h 4102444800 LT FIELDS 1 c", &[]),
    ("HEXPIRE h 0 FIELDS 2 a b", &["hdel"]),
    ("HPEXPIREAT h 1 FIELDS 2 a nosuch", &["hdel"]),
    ("HPEXPIREAT h 1 FIELDS 1 nosuch", &[]),
    ("HPEXPIREAT h 1 FIELDS 5 a b c a nosuch", &["hdel", "del"]),
    ("HPEXPIREAT h 1 NX FIELDS 1 c", &[]),
    ("HPERSIST h FIELDS 2 b c", &["hpersist"]),
    ("HPERSIST h FIELDS 2 a b", &[]),
    ("HTTL h FIELDS 2 a c", &[]),
    ("HGETEX h FIELDS 2 a c", &[]),
    ("HGETEX h PERSIST FIELDS 2 a b", &[]),
    ("HGETEX h PERSIST FIELDS 2 a c", &["hpersist"]),
    ("HGETEX h EX 1000 FIELDS 2 a nosuch", &["hexpire"]),
    ("HGETEX h EX 1000 FIELDS 1 nosuch", &[]),
    ("HGETEX h PXAT 1 FIELDS 2 a nosuch", &["hdel"]),
    ("HGETEX h PXAT 1 FIELDS 4 a b c a", &["hdel", "del"]),
    ("HSETEX h FIELDS 2 a 1 new 2", &["hset"]),
    ("HSETEX h KEEPTTL FIELDS 1 c 4", &["hset"]),
    ("HSETEX h EX 1000 FIELDS 2 a 1 new 2", &["hset", "hexpire"]),
    ("HSETEX h FNX FIELDS 1 a 4", &[]),
    ("HSETEX h FXX EX 1000 FIELDS 1 new 4", &[]),
    ("HSETEX h PXAT 1 FIELDS 2 a 1 new 2", &["hset", "hdel"]),
    ("HSETEX h PXAT 1 FIELDS 1 new 2", &["hset", "hdel"]),
    ("HSETEX h PXAT 1 FIELDS 3 a 1 b 2 c 3", &["hset", "hdel", "del"]),
    ("HSETEX other PXAT 1 FIELDS 1 a 1", &["hset", "hdel", "del"]),
    ("HSETEX other EX 1000 FIELDS 1 a 1", &["hset", "hexpire"]),
    ("HSET h c 4", &["hset"]),
];

/// The events that a subscriber has seen of one command.
fn events(server: &Server, prefix: &str, line: &str) -> Vec<String> {
    let mut client = server.client();
    for line in ["DEL h other", "HSET h a 1 b 2 c 3", "HEXPIREAT h 4102444000 FIELDS 1 c"] {
        client.run(&format!("{prefix}{line}"));
    }
    let mut subscriber = server.client();
    subscriber.send_line("PSUBSCRIBE __keyevent@0__:* end");
    (0..2).for_each(|_| drop(subscriber.read()));
    let reply = client.run(&format!("{prefix}{line}"));
    assert!(!reply.is_error(), "{prefix}{line}: {reply:?}");
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
fn events_are_those_of_redis_8_6() {
    in_all_modes(|mode, server| {
        server.client().ok("CONFIG SET notify-keyspace-events KEA");
        for (line, expected) in EVENTS {
            assert_eq!(events(server, "MIDI.", line), expected, "{mode:?}: {line}");
            if is_the_model() {
                assert_eq!(events(server, "", line), expected, "the host: {line}");
            }
        }
    });
}

/// A time in the text of a random command: in the past, one of a few in the far future, at the
/// limits, or none.
fn time(random: &mut Random, unit_ms: i64) -> String {
    match random.below(8) {
        0 => random
            .pick(&["0", "-1", "x", "", "01", "70368744177663", "70368744177664", "70368744178"])
            .to_owned(),
        1 => "1".to_owned(),
        _ => ((4_102_444_800_000 + random.below(6) as i64 * 500) / unit_ms).to_string(),
    }
}

fn field(random: &mut Random) -> &'static str {
    random.pick(&["a", "b", "c", "d", "e"])
}

/// FIELDS and what follows it; now and then its number is wrong.
fn fields(random: &mut Random, with_values: bool) -> String {
    let count = 1 + random.below(4);
    let said = if random.below(12) == 0 {
        random.pick(&["0", "-1", "x", "2", "01", "100"]).to_owned()
    } else {
        count.to_string()
    };
    let mut text = format!("FIELDS {said}");
    for _ in 0..count {
        text += &format!(" {}", field(random));
        if with_values {
            text += &format!(" {}", random.below(100));
        }
    }
    text
}

/// Joins options in any order.
fn in_any_order(random: &mut Random, mut options: Vec<String>) -> String {
    let mut text = String::new();
    while !options.is_empty() {
        text += " ";
        text += &options.swap_remove(random.below(options.len()));
    }
    text
}

/// A random command about the expiry of fields; most are right.
fn command(random: &mut Random) -> String {
    let key = random.pick(&["h", "h", "h", "g", "nosuch", "text"]);
    match random.below(10) {
        0 => format!("HSET {key} {} {}", field(random), random.below(100)),
        1 => format!("HDEL {key} {} {}", field(random), field(random)),
        2 => format!("HINCRBY {key} {} 1", field(random)),
        3 => format!("HPERSIST {key} {}", fields(random, false)),
        4 | 5 => {
            let (name, unit_ms) = [("HEXPIREAT", 1000), ("HPEXPIREAT", 1)][random.below(2)];
            let at = time(random, unit_ms);
            let mut options = vec![fields(random, false)];
            for _ in 0..random.below(5).saturating_sub(2) {
                options.push(random.pick(&["NX", "XX", "GT", "LT", "gt", "EX"]).to_owned());
            }
            format!("{name} {key} {at}{}", in_any_order(random, options))
        }
        6 | 7 => {
            let mut options = vec![fields(random, false)];
            if random.below(2) == 0 {
                options.push(expiry(random, "PERSIST"));
            }
            if random.below(12) == 0 {
                options.push(random.pick(&["FNX", "KEEPTTL", "PERSIST", "NX", "EX"]).to_owned());
            }
            format!("HGETEX {key}{}", in_any_order(random, options))
        }
        _ => {
            let mut options = vec![fields(random, true)];
            if random.below(2) == 0 {
                options.push(expiry(random, "KEEPTTL"));
            }
            if random.below(3) == 0 {
                options.push(random.pick(&["FNX", "FXX", "fxx"]).to_owned());
            }
            if random.below(12) == 0 {
                options.push(random.pick(&["FNX", "KEEPTTL", "PERSIST", "XX", "PX"]).to_owned());
            }
            format!("HSETEX {key}{}", in_any_order(random, options))
        }
    }
}

fn expiry(random: &mut Random, word: &str) -> String {
    match random.below(3) {
        0 => word.to_owned(),
        1 => format!("EXAT {}", time(random, 1000)),
        _ => format!("PXAT {}", time(random, 1)),
    }
}

/// The hashes stay small: Redis 8.6.3 itself ends at an assertion when HSETEX with a time names a
/// field of a large hash twice.
fn random_commands(twin: &mut Twin, seed: u64) {
    const ALL: &str = "a b c d e";
    let mut random = Random::new(seed);
    for line in ["DEL h g nosuch text", "SET text 1"] {
        twin.push_line(line);
    }
    for _ in 0..400 {
        twin.push_line(&command(&mut random));
        for key in ["h", "g"] {
            twin.push_line(&format!("HPEXPIRETIME {key} FIELDS 5 {ALL}"));
            twin.push_line(&format!("HEXPIRETIME {key} FIELDS 5 {ALL}"));
            twin.push_line(&format!("HMGET {key} {ALL}"));
            twin.push_line(&format!("HLEN {key}"));
            twin.push_line(&format!("EXISTS {key}"));
        }
    }
    twin.flush();
}

#[test]
fn random_commands_answer_as_redis_8s() {
    if !is_the_model() {
        return skip("this host does not have these commands of Redis 8.6");
    }
    let plain = Builder::plain().start();
    for (number, mode) in Mode::tried().enumerate() {
        let ported = Ported::start(mode.builder());
        for resp3 in [false, true] {
            let adapt = |client: Client| if resp3 { client.resp3() } else { client };
            let seed = (2 * number + usize::from(resp3)) as u64;
            random_commands(&mut Twin::new(adapt(ported.server.client())), 10 + seed);
            for door in [Door::Port, Door::PortPrefixed] {
                plain.client().ok("FLUSHALL");
                ported.server.client().ok("MIDI.FLUSHALL");
                let (native, midi) = (adapt(plain.client()), adapt(ported.client()));
                random_commands(&mut Twin::apart(native, midi, door), 20 + seed);
            }
        }
    }
}

#[test]
fn fields_whose_time_has_come_are_removed() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        client.ok("CONFIG SET notify-keyspace-events KEA");
        let mut subscriber = server.client();
        subscriber.send_line("SUBSCRIBE __keyspace@0__:h");
        subscriber.read();
        client.run("MIDI.HSETEX h PX 1 FIELDS 2 a 1 b 2");
        wait_until("they are gone", || client.integer("MIDI.HLEN h") == 0);
        assert_eq!(client.integer("MIDI.EXISTS h"), 0, "{mode:?}");
        let mut seen = Vec::new();
        while seen.last().is_none_or(|event| event != "del") {
            seen.push(subscriber.read().array()[2].text());
        }
        assert_eq!(seen[..2], ["hset", "hexpire"], "{mode:?}");
        let expired = &seen[2..seen.len() - 1];
        assert!(!expired.is_empty() && expired.iter().all(|event| event == "hexpired"), "{seen:?}");
    });
}

/// HSCAN looks at no more fields than it is asked to, also if all of them have expired.
#[test]
fn a_scan_of_fields_that_have_expired_ends_in_time() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    set_fields(&mut client, "h", 0..1000, "v");
    for number in 0..1000 {
        client.run(&format!("MIDI.HPEXPIRE h 1 FIELDS 1 field:{number}"));
    }
    wait_until("all have expired", || client.run("MIDI.HGETALL h").array().is_empty());
    let (mut cursor, mut calls) = ("0".to_owned(), 0);
    loop {
        let reply = client.run(&format!("MIDI.HSCAN h {cursor} COUNT 100")).array();
        assert_eq!(reply[1], Value::Array(vec![]));
        (cursor, calls) = (reply[0].text(), calls + 1);
        if cursor == "0" {
            break;
        }
    }
    assert!(calls > 5, "{calls} calls");
    assert_eq!(client.integer("MIDI.HLEN h"), 1000);
}

#[test]
fn what_expires_is_hidden_at_once_and_others_stay() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        client.run("MIDI.HSET h a 1 b 2");
        client.run("MIDI.HPEXPIRE h 1 FIELDS 1 a");
        wait_until("it is gone", || client.run("MIDI.HGET h a").is_null());
        assert_eq!(shown(&client.run("MIDI.HTTL h FIELDS 2 a b")), "[-2 -1]", "{mode:?}");
        assert_eq!(shown(&client.run("MIDI.HGETALL h")), "[b 2]", "{mode:?}");
        // It is a new field to every writer.
        assert_eq!(client.integer("MIDI.HSETEX h FXX FIELDS 1 a 5"), 0, "{mode:?}");
        assert_eq!(client.integer("MIDI.HSETEX h FNX FIELDS 1 a 5"), 1, "{mode:?}");
        assert_eq!(shown(&client.run("MIDI.HTTL h FIELDS 1 a")), "[-1]", "{mode:?}");
    });
}

#[test]
fn they_survive_a_kill() {
    for mode in Mode::tried() {
        let builder = mode.builder().with_port().config("appendonly yes");
        let mut server = builder.config("appendfsync always").start();
        for door in [Door::Host, Door::Port] {
            let mut client = door.client(&server);
            client.call(&door.named(&words("DEL h g")));
            for line in [
                "HSET h a 1 b 2 c 3 d 4",
                "HPEXPIREAT h 4102444800123 FIELDS 2 a b",
                "HGETEX h EXAT 4102444801 FIELDS 1 c",
                "HPERSIST h FIELDS 1 b",
                "HSETEX h KEEPTTL FIELDS 1 a 5",
                "HPEXPIREAT h 1 FIELDS 1 d",
                "HSETEX g PXAT 4102444802456 FIELDS 2 e 1 f 2",
                "MULTI",
                "HSETEX g PXAT 4102444803000 FIELDS 2 x 1 y 2",
                "HEXPIREAT g 4102444804 FIELDS 2 x e",
                "EXEC",
            ] {
                let is_own = ["MULTI", "EXEC"].contains(&line);
                let args = if is_own { words(line) } else { door.named(&words(line)) };
                assert!(!client.call(&args).is_error(), "{mode:?}, {door:?}: {line}");
            }
            let mut client = survives(&mut server, &format!("{mode:?}, {door:?}"));
            for (line, expected) in [
                ("MIDI.HPEXPIRETIME h FIELDS 4 a b c d", "[4102444800123 -1 4102444801000 -2]"),
                ("MIDI.HMGET h a b c d", "[5 2 3 null]"),
                (
                    "MIDI.HPEXPIRETIME g FIELDS 4 e f x y",
                    "[4102444804000 4102444802456 4102444804000 4102444803000]",
                ),
                ("MIDI.HMGET g e f x y", "[1 2 1 2]"),
            ] {
                assert_eq!(shown(&client.run(line)), expected, "{mode:?}, {door:?}: {line}");
            }
        }
    }
}
