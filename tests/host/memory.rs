//! The promise: midi frees everything that it no longer needs. A client that has requested a value
//! gets it whole, even if it is deleted meanwhile.

use crate::common::{Client, Random, Server, Value, in_all_modes, wait_until};

const MIB: usize = 1 << 20;

/// Bytes that depend on their position, so that a shifted or torn copy is noticed.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    assert_eq!(client.call(&[b"MIDI.SET".as_slice(), key.as_bytes(), value]), Value::ok());
}

/// Fails without printing megabytes.
#[track_caller]
fn check(reply: Value, expected: &[u8], what: &str) {
    assert!(reply == Value::bulk(expected), "{what}: not the value");
}

fn used(client: &mut Client) -> usize {
    client.info_number("memory", "used_memory") as usize
}

/// Waits until the server uses less memory than this.
fn memory_comes_back(server: &Server, below: usize) {
    let mut client = server.client();
    wait_until("memory is back", || used(&mut client) < below);
}

/// The memory that the server may use when it is empty again.
fn empty(client: &mut Client) -> usize {
    set(client, "warm", &pattern(MIB, 0));
    client.ok("MIDI.FLUSHALL SYNC");
    used(client) + 3 * MIB
}

/// Sets keys `k0`, `k1`, … to values of 1 MiB.
fn fill(client: &mut Client, count: usize) {
    for number in 0..count {
        set(client, &format!("k{number}"), &pattern(MIB, number as u64));
    }
}

#[test]
fn swapped_databases_are_freed() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let start = empty(&mut client);
        fill(&mut client, 20);
        assert!(used(&mut client) > start + 15 * MIB);
        client.ok("SWAPDB 0 1");
        client.ok("MIDI.FLUSHDB");
        assert!(used(&mut client) > start + 15 * MIB, "the other database was flushed");
        client.ok("SELECT 1");
        client.ok("MIDI.FLUSHDB");
        memory_comes_back(server, start);
    });
}

#[test]
fn replaced_values_are_freed() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let start = empty(&mut client);
        for round in 0..60 {
            set(&mut client, "k", &pattern(MIB, round));
        }
        memory_comes_back(server, start + MIB);
        check(client.run("MIDI.GET k"), &pattern(MIB, 59), "the last one");
        for round in 0..30 {
            let (old, new) = (pattern(MIB, 59 + round), pattern(MIB, 60 + round));
            check(client.call(&[b"MIDI.SET".as_slice(), b"k", &new, b"GET"]), &old, "SET GET");
        }
        client.ok("MIDI.SET k small");
        memory_comes_back(server, start);
    });
}

/// Expired, and never accessed again.
#[test]
fn expired_values_are_freed() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let start = empty(&mut client);
        fill(&mut client, 20);
        for number in 0..20 {
            assert_eq!(client.integer(&format!("MIDI.PEXPIRE k{number} 50")), 1);
        }
        wait_until("all have expired", || client.integer("MIDI.DBSIZE") == 0);
        memory_comes_back(server, start);
    });
}

/// Nothing remains of a command that was refused or had no effect.
#[test]
fn refused_values_are_freed() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let start = empty(&mut client);
        client.ok("MIDI.SET present v");
        client.ok("CONFIG SET midi.max-value-bytes 1500000");
        let (value, long) = (pattern(MIB, 1), pattern(2 * MIB, 2));
        for _ in 0..20 {
            assert!(client.call(&[b"MIDI.SET".as_slice(), b"present", &value, b"NX"]).is_null());
            assert!(client.call(&[b"MIDI.SET".as_slice(), b"absent", &value, b"XX"]).is_null());
            assert!(
                client.call(&[b"MIDI.SET".as_slice(), b"present", &value, b"WRONG"]).is_error()
            );
            assert!(client.call(&[b"MIDI.SET".as_slice(), b"present", &long]).is_error());
            assert!(client.call(&[b"MIDI.MSET".as_slice(), b"a", &value, b"b", &long]).is_error());
            assert!(client.call(&[b"MIDI.GET".as_slice(), &value]).is_null());
        }
        memory_comes_back(server, start);
        assert_eq!(client.integer("MIDI.DBSIZE"), 1);
    });
}

#[test]
fn values_in_transactions_and_scripts_are_freed() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let start = empty(&mut client);
        let value = pattern(MIB, 3);
        let script = "redis.call('MIDI.SET', KEYS[1], ARGV[1]) \
                      redis.call('MIDI.SET', KEYS[2], string.reverse(ARGV[1])) \
                      return redis.call('MIDI.MGET', KEYS[1], KEYS[2])";
        let reversed: Vec<_> = value.iter().rev().copied().collect();
        for _ in 0..20 {
            client.ok("MULTI");
            client.call(&[b"MIDI.SET".as_slice(), b"m", &value]);
            client.run("MIDI.GET m");
            client.run("MIDI.DEL m");
            check(client.run("EXEC").array().remove(1), &value, "in MULTI");
            let call = [b"EVAL".as_slice(), script.as_bytes(), b"2", b"a", b"b", &value];
            let replies = client.call(&call).array();
            check(replies[0].clone(), &value, "first in a script");
            check(replies[1].clone(), &reversed, "second in a script");
        }
        check(client.run("MIDI.GET b"), &reversed, "after the script");
        client.ok("MIDI.FLUSHALL");
        client.ok("SCRIPT FLUSH");
        // Lua's garbage collector runs at its own pace.
        memory_comes_back(server, start + 2 * MIB);
    });
}

#[test]
fn many_small_keys_are_freed() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let start = used(&mut client) + 4 * MIB;
        for gone in ["MIDI.FLUSHALL", "FLUSHALL ASYNC", "MIDI.FLUSHDB SYNC"] {
            client.ok("MIDI.POPULATE 300000 key 100");
            assert!(used(&mut client) > start + 20 * MIB);
            client.ok(gone);
            memory_comes_back(server, start);
            assert_eq!(client.info_number("midi_memory", "midi_table_bytes"), 0, "{gone}");
        }
        // One by one, until their tables are freed too.
        client.ok("MIDI.POPULATE 100000");
        let keys: Vec<Vec<String>> = (0..100)
            .map(|part| (0..1000).map(|number| format!("key:{}", part * 1000 + number)).collect())
            .map(|keys: Vec<String>| [vec!["MIDI.DEL".to_owned()], keys].concat())
            .collect();
        assert!(client.pipeline(&keys).iter().all(|reply| *reply == Value::Integer(1000)));
        memory_comes_back(server, start);
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
    });
}

/// A client that requests much and reads nothing, while all the values are deleted.
#[test]
fn values_go_before_their_reader_reads() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let ways = ["MIDI.DEL k", "MIDI.SET k v", "MIDI.FLUSHALL", "FLUSHALL", "MIDI.PEXPIRE k 1"];
        for (number, gone) in ways.iter().enumerate() {
            let value = pattern(5 * MIB, number as u64);
            set(&mut client, "k", &value);
            let mut slow = server.client();
            for _ in 0..4 {
                slow.send_line("MIDI.GET k");
            }
            wait_until("all four have run", || {
                let stats = client.info("midi_commandstats");
                let calls = format!("calls={},", 4 * (number + 1));
                stats.get("midi_cmdstat_get").is_some_and(|line| line.starts_with(&calls))
            });
            assert!(!client.run(gone).is_error());
            for _ in 0..4 {
                check(slow.read(), &value, gone);
            }
        }
    });
}
