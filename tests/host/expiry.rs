//! The promise: from the moment a key expires, no client sees it. midi removes it soon, whether or
//! not a client accesses it.

use std::time::Duration;

use crate::common::clock::Clock;
use crate::common::{Client, Mode, Random, Value, beside, in_all_modes, now_ms, wait_until};

fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Sets keys that live until `at`, in milliseconds since 1970.
fn set_until(client: &mut Client, prefix: &str, count: usize, at: i64) {
    let commands: Vec<Vec<String>> = (0..count)
        .map(|number| {
            ["MIDI.SET", &format!("{prefix}:{number}"), "v", "PXAT", &at.to_string()]
                .map(str::to_owned)
                .into()
        })
        .collect();
    for reply in client.pipeline(&commands) {
        assert_eq!(reply, Value::ok());
    }
}

/// No command sees any key but `there`.
#[track_caller]
fn check_only(client: &mut Client, gone: &str, there: &[&str]) {
    assert!(client.run(&format!("MIDI.GET {gone}")).is_null());
    assert_eq!(client.integer(&format!("MIDI.EXISTS {gone} {gone}")), 0);
    assert_eq!(client.run(&format!("MIDI.TYPE {gone}")), Value::Simple(b"none".to_vec()));
    assert_eq!(client.integer(&format!("MIDI.TTL {gone}")), -2);
    assert_eq!(client.integer(&format!("MIDI.PTTL {gone}")), -2);
    let mut listed: Vec<String> =
        client.run("MIDI.KEYS *").array().iter().map(Value::text).collect();
    listed.sort();
    assert_eq!(listed, there, "KEYS");
    for options in ["COUNT 10", "COUNT 100000"] {
        let scanned = client.scan_all(options);
        assert!(
            scanned.iter().all(|key| there.contains(&&*String::from_utf8_lossy(key))),
            "SCAN {options}"
        );
    }
    let drawn = client.run("MIDI.RANDOMKEY");
    assert!(
        if there.is_empty() { drawn.is_null() } else { there.contains(&&*drawn.text()) },
        "{drawn:?}"
    );
    assert!(client.run(&format!("MIDI.MGET {gone} {gone}")).array().iter().all(Value::is_null));
}

#[test]
fn expired_keys_are_not_visible() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET lasting v");
        for round in 0..15 {
            // Before an active expiry cycle, and after it.
            let at = now_ms() + 20;
            set_until(&mut client, "short", 200, at);
            while now_ms() <= at {
                sleep_ms(1);
            }
            check_only(&mut client, &format!("short:{round}"), &["lasting"]);
        }
        client.integer("MIDI.DEL lasting");
        check_only(&mut client, "lasting", &[]);
    });
}

#[test]
fn writes_do_not_see_expired_keys_either() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (line, reply) in [
            ("MIDI.PERSIST k", Value::Integer(0)),
            ("MIDI.EXPIRE k 100", Value::Integer(0)),
            ("MIDI.PEXPIRE k 100000 LT", Value::Integer(0)),
            ("MIDI.SET k v XX", Value::NullBulk),
            ("MIDI.SET k v GET", Value::NullBulk),
            ("MIDI.SET k v NX", Value::ok()),
            ("MIDI.DEL k", Value::Integer(0)),
            ("MIDI.UNLINK k k", Value::Integer(0)),
            ("MIDI.EXPORT k", Value::integers(&[0, 0, 0])),
        ] {
            client.ok("MIDI.SET k old PX 1");
            sleep_ms(3);
            assert_eq!(client.run(line), reply, "{line}");
            client.integer("MIDI.DEL k");
        }
        client.ok("MIDI.SET k old PX 1");
        sleep_ms(3);
        client.ok("MIDI.SET k new KEEPTTL");
        assert_eq!(client.integer("MIDI.TTL k"), -1, "an expiry that is over is not kept");
    });
}

#[test]
fn keys_are_removed_without_being_looked_at() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let before = client.info_number("midi_memory", "midi_table_bytes");
        for db in 0..3 {
            client.ok(&format!("SELECT {db}"));
            set_until(&mut client, "due", 8000, now_ms() + 1000);
            set_until(&mut client, "later", 1000, now_ms() + 1_000_000);
            client.ok("MIDI.POPULATE 1000 lasting");
        }
        for db in 0..3 {
            client.ok(&format!("SELECT {db}"));
            wait_until("what is due has gone", || client.integer("MIDI.DBSIZE") == 2000);
        }
        assert_eq!(client.info_number("midi_expiry", "midi_expired_keys"), 24_000);
        assert_eq!(client.info_number("midi_expiry", "midi_expiring_keys"), 3000);
        client.ok("MIDI.FLUSHALL SYNC");
        wait_until("memory is given back", || {
            client.info_number("midi_memory", "midi_table_bytes") <= before + (64 << 10)
        });
    });
}

/// Each key is judged by its current expiry time, not by an earlier one.
#[test]
fn changed_times_count() {
    for mode in Mode::tried() {
        let clock = Clock::new();
        let server = clock.of(mode.builder()).start();
        let mut client = server.client();
        set_until(&mut client, "k", 400, now_ms() + 100_000);
        let mut changes: Vec<Vec<String>> = (0..400)
            .map(|number| match number % 5 {
                0 => format!("MIDI.PERSIST k:{number}"),
                1 => format!("MIDI.EXPIRE k:{number} 1000"),
                2 => format!("MIDI.SET k:{number} v"),
                3 => format!("MIDI.SET k:{number} w KEEPTTL"),
                _ => format!("MIDI.PEXPIRE k:{number} 100"),
            })
            .map(|line| line.split(' ').map(str::to_owned).collect())
            .collect();
        changes.push(["MIDI.MSET", "new", "1", "k:3", "set-again"].map(str::to_owned).into());
        // Long before the first key expires.
        client.pipeline(&changes);
        clock.pass(100_001);
        wait_until("the others are gone", || client.integer("MIDI.DBSIZE") == 242);
        sleep_ms(300);
        assert_eq!(client.integer("MIDI.DBSIZE"), 242, "{mode:?}");
        for number in 0..400 {
            let expected = i64::from(number % 5 < 3 || number == 3);
            assert_eq!(client.integer(&format!("MIDI.EXISTS k:{number}")), expected, "k:{number}");
        }
    }
}

/// Swapped databases keep their keys' expiry times.
#[test]
fn expiry_follows_swapdb_and_copies() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        set_until(&mut client, "k", 1000, now_ms() + 500);
        client.ok("SWAPDB 0 7");
        client.ok("SELECT 7");
        client.ok("MIDI.SET lasting v");
        wait_until("what is due has gone", || client.integer("MIDI.DBSIZE") == 1);
        wait_until("it is copied before it has expired", || {
            client.ok("SET native v PX 500");
            client.run("MIDI.IMPORT native") == Value::integers(&[1, 0, 0])
        });
        wait_until("the copy expires too", || client.integer("MIDI.DBSIZE") == 1);
        assert!(client.run("MIDI.GET native").is_null());
    });
}

/// Keys expire while all clients work on them.
#[test]
fn expiry_beside_work_shows_no_old_value() {
    in_all_modes(|_, server| {
        let work = |client: &mut Client, random: &mut Random| {
            let number = random.below(500);
            let at = now_ms() + random.below(30) as i64;
            let value = "v".repeat(random.below(100)) + ":" + &at.to_string();
            client.run(&format!("MIDI.SET k:{number} {value} PXAT {at}"));
        };
        beside(server, 3, work, || {
            let mut client = server.client();
            for round in 0..4000 {
                let asked = now_ms();
                let reply = client.run(&format!("MIDI.GET k:{}", round % 500));
                if !reply.is_null() {
                    let text = reply.text();
                    let at: i64 =
                        text.split_once(':').expect("value:time").1.parse().expect("a time");
                    assert!(at >= asked, "{} ms too late", asked - at);
                }
            }
        });
        let mut client = server.client();
        wait_until("all are gone", || client.integer("MIDI.DBSIZE") == 0);
        assert_eq!(client.info_number("midi_expiry", "midi_expiring_keys"), 0);
    });
}

/// More keys at once than one expiry cycle can remove.
#[test]
fn very_many_keys_at_once_are_removed_while_clients_are_served() {
    for mode in Mode::tried() {
        let server = mode.server();
        let at = now_ms() + 4000;
        crate::common::at_once(4, |number| {
            let mut client = server.client();
            for part in 0..10 {
                set_until(&mut client, &format!("k:{number}:{part}"), 5000, at);
            }
        });
        let mut client = server.client();
        wait_until("all are gone", || {
            client.ok("MIDI.SET served yes");
            assert_eq!(client.run("MIDI.GET served"), Value::bulk("yes"));
            client.integer("MIDI.DBSIZE") == 1
        });
        assert_eq!(client.run("MIDI.KEYS *").array().len(), 1);
    }
}
