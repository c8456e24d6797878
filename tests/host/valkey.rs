//! The promise: the module loads and works on Valkey 9 too, in every mode.
//!
//! `MIDI_VALKEY_SERVER` names the server binary; without it nothing is tested.

use crate::common::{Client, Mode, Random, Server, Twin, Value, at_once, beside, wait_until};

/// Runs `body` on Valkey in all modes, where there is one.
fn on_valkey(body: impl Fn(Mode, &Server)) {
    let Some(binary) = std::env::var_os("MIDI_VALKEY_SERVER").filter(|binary| !binary.is_empty()) else {
        println!("skipped: MIDI_VALKEY_SERVER is not set");
        return;
    };
    for mode in Mode::ALL {
        println!("mode: {mode:?}");
        body(mode, &mode.builder().binary(&binary).start());
    }
}

#[test]
fn commands_work() {
    on_valkey(|_, server| {
        let mut client = server.client();
        assert!(client.info("server").contains_key("valkey_version"), "this is no Valkey");
        client.ok("MIDI.SET k v");
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
        client.ok("MIDI.MSET a 1 b 2");
        assert_eq!(client.run("MIDI.MGET a b"), Value::Array(vec![Value::bulk("1"), Value::bulk("2")]));
        assert_eq!(client.integer("MIDI.EXPIRE a 100"), 1);
        assert!((90..=100).contains(&client.integer("MIDI.TTL a")));
        assert_eq!(client.integer("MIDI.PERSIST a"), 1);
        assert_eq!(client.integer("MIDI.DEL a nosuch"), 1);
        assert_eq!(client.integer("MIDI.EXISTS a b k"), 2);
        assert_eq!(client.integer("MIDI.DBSIZE"), 2);
        client.ok("MIDI.POPULATE 20000 p 30");
        assert_eq!(client.run("MIDI.KEYS p:1999?").array().len(), 10);
        assert_eq!(client.scan_all("COUNT 3000").len(), 20_002);
        assert!(!client.run("MIDI.RANDOMKEY").is_null());
        client.ok("SET native v");
        assert_eq!(client.run("MIDI.IMPORT native"), Value::integers(&[1, 0, 0]));
        assert_eq!(client.run("MIDI.EXPORT p:1?"), Value::integers(&[10, 0, 0]));
        assert!(client.run("MIDI.JOBS").array().is_empty());
        assert!(client.run("MIDI.INFO").text().contains("# midi_shards"));
        assert!(client.run("MIDI.HELP").array().len() > 20);
        client.ok("MIDI.FLUSHALL SYNC");
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
        assert!(client.run("MODULE UNLOAD midi").is_error());
    });
}

#[test]
fn replies_are_those_of_the_stock_commands() {
    on_valkey(|_, server| {
        for client in [server.client(), server.client().resp3()] {
            let twin = &mut Twin::new(client);
            for line in [
                "SET k v",
                "GET k",
                "GET nosuch",
                "SET k w GET",
                "SET k v NX",
                "SET k v XX EX 100",
                "TTL k",
                "SET k v EX 0",
                "SET k v FOO",
                "GET",
                "EXPIRE k 100 NX",
                "EXPIRE k abc",
                "EXPIRE k 10 NX XX",
                "MGET k nosuch",
                "TYPE k",
                "KEYS *",
                "DBSIZE",
                "SCAN abc",
                "SCAN 0 COUNT 0",
                "FLUSHDB WRONG",
                "DEL k",
                "RANDOMKEY",
                "FLUSHALL",
            ] {
                twin.push_line(line);
            }
            twin.flush();
        }
    });
}

#[test]
fn units_work() {
    on_valkey(|_, server| {
        let mut client = server.client();
        client.ok("MULTI");
        for line in ["MIDI.SET k v", "MIDI.POPULATE 3000 p", "MIDI.KEYS p:*", "MIDI.DBSIZE"] {
            assert_eq!(client.run(line), Value::Simple(b"QUEUED".to_vec()));
        }
        let replies = client.run("EXEC").array();
        assert_eq!((replies[0].clone(), replies[3].clone()), (Value::ok(), Value::Integer(3001)));
        let script = "return redis.call('MIDI.GET', KEYS[1])";
        assert_eq!(client.call(&["EVAL", script, "1", "k"]), Value::bulk("v"));
    });
}

fn work(client: &mut Client, random: &mut Random) {
    let key = random.next();
    let commands: Vec<Vec<String>> = (0..20)
        .flat_map(|number| [format!("MIDI.SET {key}:{number} {number}"), format!("MIDI.GET {key}:{number}")])
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    for (number, pair) in client.pipeline(&commands).chunks_exact(2).enumerate() {
        assert_eq!(pair, [Value::ok(), Value::bulk(number.to_string())]);
    }
}

#[test]
fn many_clients_large_values_and_the_vanishing() {
    on_valkey(|_, server| {
        let big = "x".repeat(300_000);
        beside(server, 4, work, || {
            at_once(4, |number| {
                let mut client = server.client();
                for _ in 0..30 {
                    client.ok(&format!("MIDI.SET big:{number} {big}"));
                    assert_eq!(client.run(&format!("MIDI.GET big:{number}")).bytes().len(), big.len());
                    server.client().send_line("MIDI.KEYS *");
                    server.client().send_line(&format!("MIDI.GET big:{number}"));
                }
            });
        });
        server.wait_until_idle();
        assert!(server.client().info_number("midi_memory", "midi_kept_arguments") >= 120);
    });
}

#[test]
fn io_threads_work() {
    let Some(binary) = std::env::var_os("MIDI_VALKEY_SERVER").filter(|binary| !binary.is_empty()) else {
        println!("skipped: MIDI_VALKEY_SERVER is not set");
        return;
    };
    for mode in Mode::ALL {
        let server = mode.builder().binary(&binary).config("io-threads 3").start();
        at_once(8, |number| {
            let mut client = server.client();
            let mut random = Random::new(number as u64);
            for _ in 0..100 {
                work(&mut client, &mut random);
            }
        });
    }
}

#[test]
fn the_host_acts_on_both_and_expiry_works() {
    on_valkey(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET short v PX 50");
        client.ok("MIDI.SET k v");
        wait_until("it has expired", || client.integer("MIDI.DBSIZE") == 1);
        client.ok("SWAPDB 0 1");
        assert!(client.run("MIDI.GET k").is_null());
        client.ok("SELECT 1");
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
        client.ok("CONFIG SET appendonly yes");
        assert!(client.run("MIDI.SET k w").text().starts_with("MISCONF"));
        client.ok("CONFIG SET appendonly no");
        client.ok("FLUSHALL");
        assert!(client.run("MIDI.GET k").is_null());
    });
}
