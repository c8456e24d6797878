//! The promise: MIDI.KEYSPACEDIGEST is the same for equal data, in any server and through either
//! door, and another for any other data. Others are served while it is computed.

use crate::common::port::Ported;
use crate::common::{
    Builder, Client, Mode, Random, Value, beside, encoded, in_all_modes, wait_until,
};

const EMPTY: &str = "00000000000000000000000000000000";

/// A time long after this test.
const FAR: i64 = 4_102_444_800_000;

/// Some are hashed in one piece, some in several. Through a port they are copied, and kept from the
/// host.
const LARGE: [usize; 3] = [16_384, 16_385, 3_000_000];

fn digest(client: &mut Client, arguments: &str) -> String {
    let reply = client.run(format!("MIDI.KEYSPACEDIGEST {arguments}").trim());
    let Value::Bulk(digits) = &reply else { panic!("{reply:?}") };
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    assert!(digits.len() == 32 && digits.iter().all(is_digit), "{reply:?}");
    reply.text()
}

/// Of all databases, and of the first three.
fn digests(client: &mut Client) -> [String; 4] {
    ["", "0", "1", "2"].map(|arguments| digest(client, arguments))
}

/// Keys in three databases, in this order; two databases have equal ones.
fn fill(client: &mut Client, numbers: impl Iterator<Item = usize> + Clone) {
    for db in ["0", "1", "2"] {
        client.ok(&format!("SELECT {db}"));
        let commands: Vec<Vec<String>> = numbers
            .clone()
            .map(|number| {
                let line = match number % 3 {
                    0 => format!("MIDI.SET key:{number} {db} PXAT {}", FAR + number as i64),
                    1 => format!("MIDI.SET key:{number} {number}"),
                    _ => format!("MIDI.APPEND key:{number} {}", "x".repeat(number % 300)),
                };
                let line = if db == "2" { line.replace(" 2 PXAT", " 1 PXAT") } else { line };
                line.split(' ').map(str::to_owned).collect()
            })
            .collect();
        client.pipeline(&commands);
        for (number, bytes) in LARGE.into_iter().enumerate() {
            let value: Vec<u8> = (0..bytes).map(|at| (at ^ at >> 8) as u8).collect();
            let call = [b"MIDI.SET".to_vec(), format!("large:{number}").into_bytes(), value];
            assert_eq!(client.call(&call), Value::ok());
        }
    }
    client.ok("SELECT 0");
}

#[test]
fn equal_data_have_equal_digests_in_any_server() {
    const KEYS: usize = 2000;
    let mut found: Vec<[String; 4]> = Vec::new();
    let mut check = |found_here: [String; 4], what: &str| {
        found.push(found_here);
        assert_eq!(found[found.len() - 1], found[0], "{what}");
    };
    for mode in Mode::tried() {
        let ported = Ported::start(mode.builder());
        let (host, port) = (|| ported.host(), || ported.client());
        for (mut filler, mut asker) in [(host(), port()), (port(), host())] {
            assert_eq!(digests(&mut asker), [EMPTY; 4]);
            fill(&mut filler, (0..KEYS).rev());
            let first = digests(&mut asker);
            check(first, &format!("{mode:?}"));
            assert_eq!(asker.run("MIDI.FLUSHALL"), Value::ok());
        }
    }
    for load in ["shards 1 threads 1", "shards 1 threads 4", "shards 4096 threads 3"] {
        let server = Builder::new().load(load).start();
        let mut client = server.client();
        client.ok("MIDI.POPULATE 30000 gone");
        fill(&mut client, (0..KEYS).map(|number| number * 7 % KEYS));
        for number in 0..30 {
            let names: Vec<String> =
                (number * 1000..(number + 1) * 1000).map(|key| format!("gone:{key}")).collect();
            client.integer(&format!("MIDI.DEL {}", names.join(" ")));
        }
        check(digests(&mut client), load);
    }
    let [all, first, second, third] = &found[0];
    assert!(second == third && first != second && all != first && all != EMPTY);
}

#[test]
fn every_change_changes_it() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        fill(&mut client, 0..100);
        let before = digests(&mut client);
        for (change, back) in [
            (
                "MIDI.SETRANGE large:2 2999999 x",
                &["SELECT 1", "MIDI.COPY large:2 large:2 DB 0 REPLACE"][..],
            ),
            ("MIDI.SET key:1 2", &["MIDI.SET key:1 1"]),
            ("MIDI.PEXPIREAT key:1 5000000000000", &["MIDI.PERSIST key:1"]),
            ("MIDI.PEXPIREAT key:0 4102444800001", &["MIDI.PEXPIREAT key:0 4102444800000"]),
            ("MIDI.RENAME key:1 key:x", &["MIDI.RENAME key:x key:1"]),
            ("MIDI.MOVE key:1 5", &["SELECT 5", "MIDI.MOVE key:1 0"]),
            ("MIDI.SET new v", &["MIDI.DEL new"]),
        ] {
            assert!(!client.run(change).is_error(), "{change}");
            let [all, first, ..] = digests(&mut client);
            assert!(all != before[0] && first != before[1], "{mode:?}: {change}");
            for line in back {
                assert!(!client.run(line).is_error(), "{line}");
            }
            client.ok("SELECT 0");
            assert_eq!(digests(&mut client), before, "{mode:?}: {back:?}");
        }
        // A database's number counts only beside others.
        client.ok("MIDI.SWAPDB 0 5");
        assert_ne!(digest(&mut client, ""), before[0], "{mode:?}");
        assert_eq!([digest(&mut client, "0"), digest(&mut client, "5")], [EMPTY, &before[1]]);
        client.ok("MIDI.SWAPDB 0 5");
        assert_eq!(digests(&mut client), before, "{mode:?}");
    });
}

/// Where the client cannot wait, the digest is the same: in MULTI, in scripts, on either door.
#[test]
fn transactions_and_scripts_have_the_same() {
    for mode in Mode::tried() {
        let ported = Ported::start(mode.builder());
        let (mut host, mut port) = (ported.host(), ported.client());
        fill(&mut host, 0..500);
        let expected: Vec<Value> =
            [digest(&mut host, ""), digest(&mut host, "1")].iter().map(Value::bulk).collect();
        for (at_port, name) in [
            (false, "MIDI.KEYSPACEDIGEST"),
            (true, "KEYSPACEDIGEST"),
            (true, "midi.keyspacedigest"),
        ] {
            let client = if at_port { &mut port } else { &mut host };
            assert_eq!([client.run(name), client.run(&format!("{name} 1"))], expected[..]);
            client.ok("MULTI");
            let of_db = |db: u32| format!("{name} {db}");
            for line in ["MIDI.SET other v", name, &of_db(1), "MIDI.DEL other", name, &of_db(16)] {
                assert_eq!(client.run(line).text(), "QUEUED", "{line}");
            }
            let replies = client.run("EXEC").array();
            assert!(replies[1] != expected[0] && replies[2] == expected[1], "{mode:?}: {name}");
            assert_eq!(replies[4], expected[0], "{mode:?}: {name}");
            assert_eq!(replies[5], Value::error("ERR DB index is out of range"));
        }
        let script = "local name = 'MIDI.KEYSPACEDIGEST' \
                      return {redis.call(name), redis.call(name, 1)}";
        assert_eq!(host.call(&["EVAL", script, "0"]), Value::Array(expected));
    }
}

#[test]
fn wrong_arguments() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (arguments, error) in [
            ("x", "ERR value is not an integer or out of range"),
            ("1.0", "ERR value is not an integer or out of range"),
            ("16", "ERR DB index is out of range"),
            ("-1", "ERR DB index is out of range"),
            ("0 1", "ERR syntax error"),
        ] {
            let reply = client.run(&format!("MIDI.KEYSPACEDIGEST {arguments}"));
            assert_eq!(reply, Value::error(error), "{arguments}");
        }
    });
}

/// Keys that nobody changes count once each, whatever happens to other databases, and to them
/// without changing what they are.
#[test]
fn writes_elsewhere_do_not_disturb_it() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        fill(&mut client, 0..5000);
        let expected = digest(&mut client, "0");
        let write = |client: &mut Client, random: &mut Random| {
            let number = 3 * random.below(1500) + 1;
            client.ok("SELECT 0");
            client.ok(&format!("MIDI.SET key:{number} {number}"));
            client.ok(&format!("SELECT {}", 1 + random.below(3)));
            client.ok(&format!("MIDI.SET key:{number} v PX {}", 1 + random.below(20)));
            match random.below(20) {
                0 => client.ok("MIDI.FLUSHDB"),
                1 => client.ok("MIDI.POPULATE 3000 more"),
                2 => client.ok("MIDI.SWAPDB 1 2"),
                _ => {}
            }
        };
        beside(server, 3, write, || {
            for _ in 0..20 {
                assert_eq!(digest(&mut client, "0"), expected, "{mode:?}");
                digest(&mut client, "");
            }
        });
    });
}

#[test]
fn it_is_a_job() {
    for mode in Mode::with_jobs() {
        let ported = Ported::start(mode.builder().load("threads 1"));
        let mut other = ported.host();
        other.ok("MIDI.POPULATE 300000 key 100");
        let expected = digest(&mut other, "");
        let doors = [(ported.host(), "MIDI.KEYSPACEDIGEST"), (ported.client(), "KEYSPACEDIGEST")];
        for (mut client, name) in doors {
            // However fast it is, it will be seen once.
            wait_until("the job is listed", || {
                client.send(&encoded(&[name]));
                let jobs = other.run("MIDI.JOBS").array();
                assert_eq!(client.read().text(), expected);
                jobs.into_iter().any(|job| job.map()["command"] == Value::bulk("keyspacedigest"))
            });
        }
    }
}
