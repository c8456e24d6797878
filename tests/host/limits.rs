//! The promise: limits and `maxmemory` hold, in every mode, and refusals name them.

use crate::common::{Client, Value, in_all_modes, wait_until};

fn refused(client: &mut Client, line: &str, limit: &str) {
    let reply = client.run(line);
    let shown: String = line.chars().take(60).collect();
    assert!(reply.is_error() && reply.text().contains(limit), "{shown}: {reply:?}");
}

#[test]
fn limits_are_kept_and_named() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok(
            "CONFIG SET midi.max-pattern-bytes 10 midi.max-key-bytes 20 midi.max-value-bytes 30",
        );
        let (pattern, key, value) =
            (format!("*{}", "p".repeat(10)), "k".repeat(21), "v".repeat(31));
        for line in ["MIDI.KEYS #", "MIDI.SCAN 0 MATCH #", "MIDI.IMPORT #", "MIDI.EXPORT #"] {
            refused(&mut client, &line.replace('#', &pattern), "midi.max-pattern-bytes 10");
            // The bytes in front of the first star or class cost no more than a key has bytes.
            for fine in [&pattern[..10], &"p".repeat(300), &format!("{}[p]*", "?".repeat(300))] {
                assert!(!client.run(&line.replace('#', fine)).is_error(), "{line} {fine}");
            }
            let class = format!("{}[{pattern}", "p".repeat(30));
            refused(&mut client, &line.replace('#', &class), "midi.max-pattern-bytes 10");
        }
        for line in ["MIDI.SET # v", "MIDI.MSET a 1 # 2", "MIDI.RENAME a #"] {
            refused(&mut client, &line.replace('#', &key), "midi.max-key-bytes 20");
            client.ok(&line.replace('#', &key[1..]));
        }
        for line in ["MIDI.SET k #", "MIDI.MSET x 1 y #", "MIDI.SET k # EX 100"] {
            refused(&mut client, &line.replace('#', &value), "midi.max-value-bytes 30");
            client.ok(&line.replace('#', &value[1..]));
        }
        refused(&mut client, "MIDI.POPULATE 5 p 31", "midi.max-value-bytes 30");
        assert!(client.run(&format!("MIDI.GET {key}")).is_null(), "looking is no harm");
        client.ok("MIDI.FLUSHALL");
        client.run(&format!("MIDI.MSET a 1 {key} 2"));
        assert_eq!(client.integer("MIDI.DBSIZE"), 0, "a refused MSET has no effect");
    });
}

/// A command that is atomic over its keys holds all their shards at once, so their number is
/// limited.
#[test]
fn atomic_commands_have_so_many_keys_at_most() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-atomic-keys 3");
        let refusal =
            Value::error("ERR too many keys for one atomic command (midi.max-atomic-keys 3)");
        client.ok("MIDI.MSET a 1 b 2 c 3");
        assert_eq!(client.run("MIDI.MSET a x b x c x d x"), refusal);
        assert_eq!(client.run("MIDI.MGET a b c d"), refusal);
        let pipeline = ["MIDI.MGET a b c", "MIDI.EXISTS a b c d", "MIDI.TOUCH a b c d"];
        let pipeline: Vec<Vec<&str>> =
            pipeline.iter().map(|line| line.split(' ').collect()).collect();
        let three = Value::Array(["1", "2", "3"].map(Value::bulk).to_vec());
        assert_eq!(client.pipeline(&pipeline), [three, Value::Integer(3), Value::Integer(3)]);
        client.ok("MULTI");
        client.run("MIDI.MSET a x b x c x d x");
        client.run("MIDI.MGET a a a a");
        assert_eq!(client.run("EXEC"), Value::Array(vec![refusal.clone(), refusal.clone()]));
        let script = "EVAL redis.pcall('MIDI.MSET','a','x','b','x','c','x','d','x') 0";
        client.run(script);
        assert_eq!(client.integer("MIDI.DBSIZE"), 3);
        assert_eq!(client.run("MIDI.GET a"), Value::bulk("1"));
        client.ok("CONFIG SET midi.max-atomic-keys 4");
        client.ok("MIDI.MSET a x b x c x d x");
        assert_eq!(client.integer("MIDI.DEL a b c d e f"), 4);
    });
}

/// Imported strings must respect midi's limits.
#[test]
fn imported_strings_are_held_to_the_limits() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-key-bytes 20 midi.max-value-bytes 30");
        client.ok(&format!("SET {} v", "k".repeat(21)));
        client.ok(&format!("SET k {}", "v".repeat(31)));
        client.run("MIDI.IMPORT *");
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
    });
}

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn maxmemory_stops_writes_and_nothing_else() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET a 1 b 2");
        client.ok("SET a native");
        client.ok("CONFIG SET maxmemory 1");
        for line in [
            "SET x 1",
            "MIDI.SET x 1",
            "MIDI.MSET x 1",
            "MIDI.COPY a x",
            "MIDI.RESTORE x 0 v",
            "MIDI.POPULATE 10",
            "MIDI.IMPORT *",
            "MIDI.EXPORT *",
        ] {
            assert_eq!(client.run(line), Value::error(OOM), "{line}");
        }
        assert_eq!(
            client.run("MIDI.MGET a b"),
            Value::Array(vec![Value::bulk("1"), Value::bulk("2")])
        );
        assert_eq!(client.integer("MIDI.EXPIRE a 100"), 1);
        client.ok("MIDI.RENAME a a");
        assert_eq!(client.run("MIDI.KEYS a"), Value::Array(vec![Value::bulk("a")]));
        assert_eq!(client.integer("MIDI.DEL a"), 1);
        client.ok("MIDI.FLUSHALL");
        client.ok("CONFIG SET maxmemory 0");
        client.ok("MIDI.SET x 1");
    });
}

/// How far above `maxmemory` a long write may end. It leaves room for what the host itself needs,
/// and is far less than the command asks for.
const OVERSHOOT: i64 = 32 << 20;

#[test]
fn populate_stops_at_maxmemory() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let limit = client.info_number("memory", "used_memory") + (40 << 20);
        client.ok(&format!("CONFIG SET maxmemory {limit}"));
        // This would take 400 MB if nothing stopped it.
        assert_eq!(client.run("MIDI.POPULATE 400000 p 1000"), Value::error(OOM));
        let used = client.info_number("memory", "used_memory");
        assert!(used < limit + OVERSHOOT, "{} MB above maxmemory", (used - limit) >> 20);
        assert!(client.integer("MIDI.DBSIZE") > 1000, "there was room for some");
        // The job has freed its own memory, so there may be a little room.
        let value = "v".repeat(100_000);
        let full = (0..100).any(|number| {
            client.call(&["MIDI.SET", &format!("x{number}"), &value]) == Value::error(OOM)
        });
        assert!(full, "writes are refused too");
        client.ok("MIDI.FLUSHALL SYNC");
        wait_until("there is room again", || client.run("MIDI.SET x 1") == Value::ok());
    });
}

/// Transactions and scripts must not go far beyond `maxmemory` either.
#[test]
fn populate_stops_at_maxmemory_where_it_cannot_block() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let limit = client.info_number("memory", "used_memory") + (40 << 20);
        client.ok(&format!("CONFIG SET maxmemory {limit}"));
        client.ok("MULTI");
        client.run("MIDI.POPULATE 400000 p 1000");
        let reply = client.run("EXEC").array();
        let used = client.info_number("memory", "used_memory");
        assert!(used < limit + OVERSHOOT, "{} MB above maxmemory", (used - limit) >> 20);
        assert_eq!(reply, [Value::error(OOM)]);
    });
}
