//! The promise: a command logs no more than it is long, however large the values are that it makes
//! or changes; many of them in one transaction keep no more than the keys had before it; and a
//! transaction that logs too much is told so.

use super::aof::builder;
use crate::common::aof::{incr_file, survives, wait_until_written};
use crate::common::replicas::{follow, full_syncs, must_become_equal};
use crate::common::{Client, Door, Mode, Server, Value, Words, redis_server, words};

/// The length of a large value, and the offset of its last byte in bits.
const LARGE: usize = 2 << 20;
const FAR: usize = 8 * (LARGE - 1);

/// The most that a short command may log.
const LITTLE: u64 = 1000;

/// The log of a server: the bytes of its file, and those of its stream.
fn logged(server: &Server) -> [u64; 2] {
    let mut client = server.client();
    wait_until_written(&mut client);
    let file = std::fs::metadata(incr_file(server)).expect("the AOF").len();
    let stream = client.info_number("replication", "master_repl_offset");
    [file, stream as u64]
}

#[track_caller]
fn logs_at_most(server: &Server, most: u64, what: &str, work: impl FnOnce()) {
    let before = logged(server);
    work();
    for (now, before) in logged(server).into_iter().zip(before) {
        assert!(now - before <= most, "{what}: {} bytes", now - before);
    }
}

/// Short commands that make or change large values.
fn lines() -> Vec<String> {
    [
        "BITOP NOT d big",
        "BITOP NOT d d",
        "BITOP AND d big two small none",
        "BITOP OR d two d d",
        "BITOP XOR big big two",
        "BITFIELD big SET u8 0 7 SET u8 FAR 9",
        "BITFIELD new SET u8 0 7 INCRBY i16 FAR 9 GET u8 8 SET u8 40000 1",
        "BITFIELD new OVERFLOW FAIL SET u2 99999 9 SET u8 5000000 1",
        "BITFIELD failed OVERFLOW FAIL SET u8 0 999 SET u2 FAR 9",
        "SETBIT bits FAR 1",
        "SETBIT bits 100 1",
        "SETRANGE range 2000000 x",
        "SETRANGE small 2000000 x",
        "COPY big c",
        "SETBIT c 7 1",
        "COPY big c REPLACE",
        "BITFIELD c SET u8 16 200 SET u8 FAR 9",
        "COPY big c REPLACE",
        "APPEND c x",
        "GETEX c PX 10000000",
        "SETRANGE c 100 y",
        "RENAME c e",
        "PERSIST e",
    ]
    .map(|line| line.replace("FAR", &FAR.to_string()))
    .to_vec()
}

/// Sets what [`lines`] begin with.
fn fill(client: &mut Client, door: Door) {
    for key in ["d", "none", "new", "failed", "bits", "range", "c", "e", "r"] {
        client.call(&door.named(&["DEL", key]));
    }
    let value = |byte: u8| (0..LARGE).map(|at| byte ^ (at / 7) as u8).collect::<Vec<u8>>();
    for (key, value) in [("big", value(1)), ("two", value(9)), ("small", b"tiny".to_vec())] {
        let command = [b"SET".to_vec(), key.into(), value];
        assert_eq!(client.call(&door.named(&command)), Value::ok());
    }
}

fn exec(client: &mut Client, commands: impl IntoIterator<Item = Words>) -> Vec<Value> {
    let commands: Vec<Words> =
        [words("MULTI")].into_iter().chain(commands).chain([words("EXEC")]).collect();
    client.pipeline(&commands).pop().expect("EXEC").array()
}

#[test]
fn short_commands_log_little() {
    for mode in Mode::tried() {
        let mut server = builder(mode).start();
        let replica = builder(mode).start();
        follow(&replica, server.port());
        for door in [Door::Host, Door::Port] {
            println!("{mode:?}, {door:?}");
            let mut client = door.client(&server);
            fill(&mut client, door);
            for line in lines() {
                logs_at_most(&server, LITTLE, &line, || {
                    let reply = client.call(&door.named(&words(&line)));
                    assert!(!reply.is_error(), "{line}: {reply:?}");
                });
            }
            // A key that has expired, and may be there still.
            for _ in 0..10 {
                logs_at_most(&server, 2 * LITTLE, "with expired keys", || {
                    for line in ["SET gone v PX 1", "SET d v PX 1", "DEBUG SLEEP 0.003"] {
                        let is_own = line.starts_with("SET");
                        let mut host = server.client();
                        let line = words(line);
                        let reply =
                            if is_own { client.call(&door.named(&line)) } else { host.call(&line) };
                        assert_eq!(reply, Value::ok());
                    }
                    for line in ["BITOP AND d two gone d", "BITOP OR e big gone", "SETBIT gone 9 1"]
                    {
                        assert!(!client.call(&door.named(&words(line))).is_error());
                    }
                });
            }
            fill(&mut client, door);
            let all = lines();
            let most = LITTLE * all.len() as u64;
            for together in [&[][..], &["DBSIZE"]] {
                logs_at_most(&server, most, "all in one transaction", || {
                    let lines = all.iter().map(String::as_str).chain(together.iter().copied());
                    let replies = exec(&mut client, lines.map(|line| door.named(&words(line))));
                    assert!(!replies.iter().any(Value::is_error), "{replies:?}");
                });
            }
            must_become_equal(&[&server, &replica], "short commands");
        }
        logs_at_most(&server, LITTLE * lines().len() as u64, "a script", || {
            let calls = lines().into_iter().map(|line| {
                let words: Vec<String> =
                    format!("MIDI.{line}").split(' ').map(|word| format!("'{word}'")).collect();
                format!("redis.call({}) ", words.join(","))
            });
            let script: String = calls.collect();
            server.client().run("MIDI.DEL c");
            assert!(!server.client().call(&["EVAL", &script, "0"]).is_error());
        });
        must_become_equal(&[&server, &replica], "a script");
        survives(&mut server, "short commands");
    }
}

/// RESTORE of a value that is short when it is packed; and one that is not.
#[test]
fn payloads_are_logged_as_they_came() {
    let mut server = builder(Mode::Adaptive).start();
    let replica = builder(Mode::Adaptive).start();
    follow(&replica, server.port());
    for door in [Door::Host, Door::Port] {
        let mut client = door.client(&server);
        for (key, value) in [("zeros", vec![0; LARGE]), ("short", b"x".to_vec())] {
            client.call(&door.named(&[b"SET".to_vec(), key.into(), value]));
            let payload = client.call(&door.named(&["DUMP", key])).bytes().to_vec();
            for (ttl, options) in
                [("0", &["REPLACE"][..]), ("4102444800000", &["REPLACE", "ABSTTL"])]
            {
                let command: Words = [b"RESTORE", &b"r"[..], ttl.as_bytes(), &payload]
                    .into_iter()
                    .chain(options.iter().map(|word| word.as_bytes()))
                    .map(<[u8]>::to_vec)
                    .collect();
                let most = payload.len() as u64 + LITTLE;
                logs_at_most(&server, most, "RESTORE", || {
                    assert_eq!(client.call(&door.named(&command)), Value::ok());
                });
                logs_at_most(&server, 2 * most, "RESTORE in a transaction", || {
                    let commands = [&command, &command].map(|command| door.named(command));
                    assert_eq!(exec(&mut client, commands), [Value::ok(), Value::ok()]);
                });
                must_become_equal(&[&server, &replica], "RESTORE");
            }
        }
    }
    survives(&mut server, "RESTORE");
}

#[test]
fn a_transaction_keeps_only_what_was_there_before() {
    const VALUE: usize = 8 << 20;
    const TIMES: usize = 60;
    let server = builder(Mode::Adaptive).start();
    let replica = builder(Mode::Adaptive).start();
    follow(&replica, server.port());
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "replica 8mb 8mb 60"];
    assert_eq!(server.client().call(&limit), Value::ok());
    let syncs = full_syncs(&[&server]);
    for door in [Door::Host, Door::Port] {
        let mut client = door.client(&server);
        for key in ["big", "d"] {
            // Room in the replica's buffer for one such value, made of a short command.
            client.call(&door.named(&["SETRANGE", key, &(VALUE - 1).to_string(), "x"]));
        }
        for lines in [&["BITOP NOT d big"][..], &["COPY big d REPLACE", "SETBIT d 9 1"]] {
            for last in [&[][..], &["DBSIZE"]] {
                server.forget_peak();
                let before = server.peak_memory();
                let commands = (0..TIMES).flat_map(|_| lines).chain(last);
                let replies = exec(&mut client, commands.map(|line| door.named(&words(line))));
                assert!(!replies.iter().any(Value::is_error), "{replies:?}");
                let more = server.peak_memory().saturating_sub(before);
                println!("{door:?} {lines:?} {last:?}: {} MB", more >> 20);
                assert!(more < TIMES / 6 * VALUE, "{door:?}, {lines:?}: {more} bytes");
            }
        }
    }
    must_become_equal(&[&server, &replica], "large values");
    assert_eq!(full_syncs(&[&server]), syncs, "the replica was not cut off");
}

#[test]
fn a_transaction_that_logs_too_much_is_told_so() {
    const LIMIT: &str = "midi.max-transaction-bytes 1048576";
    let mut server = builder(Mode::Adaptive).start();
    server.client().ok("CONFIG SET midi.max-transaction-bytes 1mb");
    let value = "v".repeat(300_000);
    let check = |replies: &[Value], what: &str| {
        for (number, reply) in replies.iter().enumerate() {
            if number < 3 {
                assert_eq!(*reply, Value::ok(), "{what}, {number}");
            } else {
                assert!(reply.is_error() && reply.text().contains(LIMIT), "{what}: {reply:?}");
            }
        }
    };
    for door in [Door::Host, Door::Port] {
        let mut client = door.client(&server);
        for (last, expected) in [("DEL", Value::Integer(1)), ("STRLEN", Value::Integer(300_000))] {
            for in_unit in [false, true] {
                client.call(&door.named(&words("DEL k:0 k:1 k:2 k:3 k:4 k:5")));
                let keys = (0..6).map(|key| door.named(&["SET", &format!("k:{key}"), &value]));
                let more = [[last, "k:0"], ["DBSIZE", ""]].map(|words| {
                    door.named(
                        words
                            .into_iter()
                            .filter(|it| !it.is_empty())
                            .collect::<Vec<_>>()
                            .as_slice(),
                    )
                });
                let more = more.into_iter().take(1 + usize::from(in_unit));
                let replies = exec(&mut client, keys.chain(more));
                check(&replies[..6], &format!("{door:?}, {in_unit}"));
                assert_eq!(replies[6], expected, "what needs no memory runs");
            }
        }
        server.client().ok(&format!("SET n {value}"));
        let imports = ["IMPORT n REPLACE"; 6].map(|line| door.named(&words(line)));
        client.call(&door.named(&words("DEL n")));
        for (number, reply) in exec(&mut client, imports).iter().enumerate() {
            // On the port what the key was before each of them is kept, too.
            match number {
                0 | 1 => assert_eq!(*reply, Value::integers(&[1, 0, 0])),
                2 | 3 => {}
                _ => assert!(reply.is_error() && reply.text().contains(LIMIT), "{reply:?}"),
            }
        }
        // Alone each may be as large as it likes, and as the first of a transaction.
        let large = "v".repeat(2 << 20);
        let set = door.named(&["SET", "large", &large]);
        assert_eq!(client.call(&set), Value::ok());
        assert_eq!(exec(&mut client, [set]), [Value::ok()]);
    }
    let script = "local said = {} for key = 0, 5 do \
        local reply = redis.pcall('MIDI.SET', 's:' .. key, ARGV[1]) \
        said[key + 1] = reply end return said";
    check(&server.client().call(&["EVAL", script, "0", &value]).array(), "a script");
    survives(&mut server, "refused commands");
}

/// A command in the log is replayed although the host does not have it any more.
#[test]
fn a_disabled_command_is_replayed() {
    let mut server = builder(Mode::Adaptive).start();
    let mut port = server.midi_client();
    assert_eq!(port.integer("SETRANGE big 2000000 x"), 2_000_001);
    for client in [&mut port, &mut server.client()] {
        assert_eq!(client.integer("MIDI.BITOP NOT d big"), 2_000_001);
    }
    let digest = port.run("KEYSPACEDIGEST");
    wait_until_written(&mut server.client());
    server.crash();
    server.reconfigure("appendonly yes", "appendonly yes\nrename-command BITOP \"\"");
    server.restart(redis_server());
    let mut port = server.midi_client();
    assert!(port.run("BITOP NOT e big").is_error());
    assert_eq!(port.run("KEYSPACEDIGEST"), digest);
}
