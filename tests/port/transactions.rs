//! The promise: MULTI, EXEC, DISCARD, WATCH and UNWATCH on midi's port work as in Redis. What EXEC
//! does happens at one moment, for clients of every door, and nothing is left behind. Which changes
//! end a transaction is the promise of `watch.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::hosts::{host, in_older_words, same_answer};
use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Random, Value, at_once, encoded, wait_until};

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Runs the commands as one transaction. Returns what EXEC answered.
#[track_caller]
pub fn exec(client: &mut Client, lines: &[&str]) -> Value {
    let mut commands = vec![words("MULTI")];
    commands.extend(lines.iter().map(|line| words(line)));
    commands.push(words("EXEC"));
    client.pipeline(&commands).pop().expect("EXEC's reply")
}

/// Servers with an open port and few shards, so that all clients contend.
fn in_crowded_modes(body: impl Fn(&Ported)) {
    for mode in [Mode::Adaptive, Mode::Safe] {
        println!("mode: {mode:?}");
        body(&Ported::start(mode.builder().load("shards 4")));
    }
}

/// Runs `noise` with a connection of each door, on this many threads, while `body` runs.
fn beside(
    ported: &Ported,
    threads: usize,
    noise: impl Fn(&mut [Client; 2], &mut Random) + Sync,
    body: impl FnOnce(),
) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, noise) = (&stop, &noise);
        for number in 0..threads {
            scope.spawn(move || {
                let (mut random, mut clients) =
                    (Random::new(number as u64), [ported.client(), ported.host()]);
                while !stop.load(Ordering::Relaxed) {
                    noise(&mut clients, &mut random);
                }
            });
        }
        // Also where `body` panics: the scope waits for the threads.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(stop);
        body();
    });
}

// ---------------------------------------------------------------- as Redis answers

/// Two servers that get the same lines, each on two connections.
struct Pair {
    redis: [Client; 2],
    midi: [Client; 2],
    /// For the report.
    asked: Vec<String>,
}

impl Pair {
    #[track_caller]
    fn ask(&mut self, who: usize, line: &str) -> Value {
        self.asked.push(format!("{who}: {line}"));
        let redis = greetings_aside(self.redis[who].run(line));
        let midi = greetings_aside(self.midi[who].run(line));
        assert!(
            same(line, &redis, &midi),
            "{midi:?}, and not {redis:?}\n{}",
            self.asked.join("\n")
        );
        midi
    }
}

/// Whether the replies to a line, or to what was queued before it, are the same.
fn same(line: &str, native: &Value, midi: &Value) -> bool {
    let command = line.split(' ').next().unwrap_or_default();
    match (native, midi) {
        (Value::Array(natives), Value::Array(midis))
            if command == "EXEC" && natives.len() == midis.len() =>
        {
            natives.iter().zip(midis).all(|(native, midi)| same_answer("", native, midi))
        }
        _ => same_answer(command, native, midi),
    }
}

/// Whether a transaction is open on a connection. A host that refuses a nested MULTI or WATCH by
/// its flags aborts the whole transaction, which Redis and midi do not: such lines are left out
/// there.
#[derive(Default)]
struct Opened(bool);

impl Opened {
    /// The line, or the one to send in its place.
    fn instead<'a>(&mut self, line: &'a str) -> &'a str {
        let name = line.split(' ').next().unwrap_or_default();
        if self.0 && host().valkey && ["MULTI", "WATCH"].contains(&name) {
            return "PING";
        }
        match line {
            "MULTI" => self.0 = true,
            "EXEC" | "DISCARD" | "RESET" => self.0 = false,
            _ => {}
        }
        line
    }
}

/// HELLO describes the server, so it differs.
fn greetings_aside(value: Value) -> Value {
    match value {
        Value::Map(pairs) if pairs.first().is_some_and(|pair| pair.0 == Value::bulk("server")) => {
            Value::Simple(b"a greeting".to_vec())
        }
        Value::Array(list) if list.first() == Some(&Value::bulk("server")) => {
            Value::Simple(b"a greeting".to_vec())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(greetings_aside).collect()),
        other => other,
    }
}

/// Commands, valid and invalid, that run the same on both. K is a key, N a small number.
const COMMANDS: [&str; 47] = [
    "SET K N",
    "SET K v NX",
    "GET K",
    "INCR K",
    "INCRBY K x",
    "APPEND K N",
    "DEL K",
    "DEL K K",
    "MSET K N K v",
    "MSET K N K",
    "MGET K K",
    "MSETNX K N K N",
    "EXISTS K K",
    "EXPIRE K 1000",
    "PERSIST K",
    "PEXPIRE K -1",
    "GETDEL K",
    "GETEX K PERSIST",
    "SETRANGE K N x",
    "STRLEN K",
    "SETBIT K N 1",
    "BITFIELD K INCRBY u4 #3 1",
    "BITOP OR K K K",
    "RENAME K K",
    "COPY K K",
    "COPY K K DB 1",
    "MOVE K 1",
    "TTL K",
    "TYPE K",
    "LCS K K LEN",
    "KEYS zz*",
    "FLUSHDB",
    "FLUSHALL",
    "SWAPDB 0 1",
    "SELECT N",
    "SELECT x",
    "SELECT 99",
    "PING",
    "PING N",
    "PING a b",
    "ECHO N",
    "ECHO",
    "CLIENT SETNAME N",
    "CLIENT GETNAME",
    "CLIENT NOSUCH",
    "OBJECT NOSUCH K",
    "OBJECT FREQ K N",
];

const WRONG: [&str; 8] =
    ["NOSUCH K", "GET", "SET K", "EXEC N", "MULTI N", "DISCARD N", "WATCH", "UNWATCH N"];

fn filled(random: &mut Random, line: &str) -> String {
    let filled = line.split(' ').map(|word| match word {
        "K" => random.pick(&["a", "b", "c", "d"]).to_owned(),
        "N" => random.below(4).to_string(),
        word => word.to_owned(),
    });
    filled.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_reply_is_redis_s() {
    let redis = Builder::plain().start();
    in_crowded_modes(|ported| {
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let mut pair = Pair {
                redis: [redis.client(), redis.client()],
                midi: [ported.client(), ported.client()],
                asked: vec![format!("seed {seed}")],
            };
            pair.ask(1, "FLUSHALL");
            let mut opened = [Opened::default(), Opened::default()];
            for _ in 0..300 {
                // The second connection interferes with the first.
                let who = usize::from(random.below(4) == 0);
                let line = match random.below(20) {
                    0 | 1 => "MULTI",
                    2..5 => "EXEC",
                    5 => "DISCARD",
                    6 | 7 => random.pick(&["WATCH K", "WATCH K K", "WATCH K"]),
                    8 => "UNWATCH",
                    9 if random.below(3) == 0 => random.pick(&WRONG),
                    9 if random.below(4) == 0 => {
                        random.pick(&["HELLO 2", "HELLO 3", "RESET", "HELLO 9"])
                    }
                    10 if random.below(3) == 0 => "SET K v PX 1",
                    _ => random.pick(&COMMANDS),
                };
                let line = filled(&mut random, opened[who].instead(line));
                pair.ask(who, &line);
                if line.ends_with("PX 1") || line == "EXEC" {
                    // No key may expire at a moment that differs between the two.
                    std::thread::sleep(Duration::from_millis(3));
                }
            }
        }
    });
}

#[test]
fn pipelines_are_answered_as_by_redis() {
    let redis = Builder::plain().start();
    let ported = Ported::start(Mode::Adaptive.builder());
    for (resp3, seed) in [(false, 1), (true, 2), (false, 3), (true, 4)] {
        let mut random = Random::new(seed);
        let clients = || [redis.client(), ported.client()];
        let mut clients = if resp3 { clients().map(Client::resp3) } else { clients() };
        clients.iter_mut().for_each(|client| client.ok("FLUSHALL"));
        let mut opened = Opened::default();
        for _ in 0..100 {
            let lines = (0..40).map(|_| match random.below(12) {
                0 => "WATCH K",
                1 | 2 => "MULTI",
                3..5 => "EXEC",
                5 => random.pick(&WRONG),
                _ => random.pick(&COMMANDS),
            });
            let lines: Vec<&str> = lines.collect();
            let lines: Vec<String> =
                lines.iter().map(|line| filled(&mut random, opened.instead(line))).collect();
            let commands: Vec<Vec<String>> = lines.iter().map(|line| words(line)).collect();
            let [expected, found] = clients.each_mut().map(|client| client.pipeline(&commands));
            for (line, (found, expected)) in lines.iter().zip(found.iter().zip(&expected)) {
                assert!(
                    same(line, expected, found),
                    "{line}: {found:?}, and not {expected:?}, in {lines:?}"
                );
            }
        }
    }
}

#[test]
fn rights_are_judged_again_and_memory_at_once() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let redis = Builder::plain().start();
    let mut admins = [redis.client(), ported.host()];
    for (admin, prefix) in admins.iter_mut().zip(["", "midi."]) {
        let user = format!(
            "ACL SETUSER u on >u ~* +@connection +@transaction +{prefix}set +{prefix}get \
             +{prefix}del"
        );
        admin.ok(&user);
    }
    let mut clients = [redis.client(), ported.client()];
    // The commands' names differ, as do the host's rules.
    let plain = |value: Value| format!("{:?}", in_older_words(&value)).replace("midi.", "");
    let mut ask = |line: &str| {
        let [expected, found] = clients.each_mut().map(|client| plain(client.run(line)));
        // Redis 8.6 runs commands that were queued while the keys were still allowed.
        let known = host().version >= (8, 0) && found.contains("touch the specified keys");
        assert!(found == expected || known, "{line}: {found}, and not {expected}");
        found
    };
    let mut both = |line: &str| {
        admins[0].ok(line);
        admins[1].ok(&line.replace("-set", "-midi.set").replace("-get", "-midi.get"));
    };
    for line in
        ["AUTH u u", "MULTI", "SET k 1", "INCR k", "EXEC", "MULTI", "SET k 1", "GET k", "DEL k"]
    {
        ask(line);
    }
    both("ACL SETUSER u -get");
    assert!(ask("EXEC").contains("ACLs rules changed"));
    ask("MULTI");
    ask("SET k 1");
    ask("PING");
    both("ACL SETUSER u resetkeys ~other*");
    assert!(ask("EXEC").contains("touch the specified keys"));
    for line in ["WATCH k", "WATCH other", "MULTI", "SET other 1", "SET k 1", "EXEC"] {
        ask(line);
    }
    ask("MULTI");
    both("ACL SETUSER u -exec");
    assert!(ask("EXEC").contains("EXECABORT Transaction discarded because of: NOPERM"));
    ask("PING");
    both("ACL SETUSER u resetkeys ~* +exec +publish &a");
    for line in ["MULTI", "PUBLISH a x"] {
        ask(line);
    }
    both("ACL SETUSER u resetchannels");
    assert!(ask("EXEC").contains("no permission to access one of the channels"));
    // Queued before memory ran out, and after.
    for line in ["MULTI", "SET k 1"] {
        ask(line);
    }
    // Newer hosts still queue commands that need no memory, and run them.
    if host().is_newer() {
        return;
    }
    both("CONFIG SET maxmemory 1");
    wait_until("memory is out", || ported.client().run("SET x 1").is_error());
    assert!(ask("EXEC").contains("EXECABORT"));
    for line in
        ["MULTI", "PING", "GET k", "MULTI", "WATCH k", "DISCARD", "MULTI", "UNWATCH", "EXEC"]
    {
        ask(line);
    }
    both("CONFIG SET maxmemory 0");
}

// ---------------------------------------------------------------- at one moment

/// Transactions and scripts of both doors, readers of both doors.
#[test]
fn nobody_sees_half_a_transaction() {
    in_crowded_modes(|ported| {
        ported.client().ok("MSET a 0 b 0 c 0");
        let numbers = AtomicU64::new(1);
        let same = |values: Vec<Value>| {
            assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{values:?}")
        };
        let noise = |[port, host]: &mut [Client; 2], random: &mut Random| {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            let set = |prefix: &str, key: &str| format!("{prefix}SET {key} {number}");
            match random.below(8) {
                0 => {
                    let [a, b, c] = ["a", "b", "c"].map(|key| set("", key));
                    let replies = exec(port, &[&a, &b, "PING", &c, "MGET a b c"]).array();
                    assert_eq!(replies[4], Value::Array(vec![Value::bulk(number.to_string()); 3]));
                }
                1 => {
                    // One that the main thread runs.
                    let [a, b, c] = ["a", "b", "c"].map(|key| set("", key));
                    let replies =
                        exec(port, &[&a, "DBSIZE", &b, "LCS a b LEN", &c, "MGET a b c"]).array();
                    assert_eq!(replies[5], Value::Array(vec![Value::bulk(number.to_string()); 3]));
                }
                2 => {
                    let [a, b, c] = ["a", "b", "c"].map(|key| set("MIDI.", key));
                    let replies = exec(host, &[&c, &b, &a, "MIDI.MGET a b c"]).array();
                    assert_eq!(replies[3], Value::Array(vec![Value::bulk(number.to_string()); 3]));
                }
                3 => {
                    let script = "for _, key in ipairs({'b', 'a', 'c'}) do redis.call('MIDI.SET', \
                                  key, ARGV[1]) end return redis.call('MIDI.MGET', 'a', 'b', 'c')";
                    same(host.call(&["EVAL", script, "0", &number.to_string()]).array());
                }
                4 => port.ok(&format!("MSET a {number} b {number} c {number}")),
                5 => same(host.run("MIDI.MGET a b c").array()),
                6 => same(exec(port, &["GET a", "GET b", "GET c"]).array()),
                _ => port
                    .pipeline(&vec![words("MGET a b c"); 10])
                    .into_iter()
                    .for_each(|reply| same(reply.array())),
            }
        };
        beside(ported, 8, noise, || {
            let mut client = ported.client();
            for _ in 0..300 {
                same(exec(&mut client, &["GET c", "GET a", "GET b"]).array());
            }
        });
    });
}

/// A counter that is read, then written, loses no update: all clients use WATCH at once.
#[test]
fn no_update_is_lost_between_the_doors() {
    in_crowded_modes(|ported| {
        ported.client().ok("MSET n 0 m 0");
        let done = AtomicU64::new(0);
        at_once(6, |number| {
            let mut random = Random::new(number as u64);
            let mut clients = [(ported.client(), ""), (ported.host(), "MIDI.")];
            for _ in 0..150 {
                let (client, prefix) = &mut clients[random.below(2)];
                if random.below(5) == 0 {
                    client.integer(&format!("{prefix}INCR n"));
                    done.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                loop {
                    client.ok("WATCH n");
                    let value: i64 =
                        client.run(&format!("{prefix}GET n")).text().parse().expect("a number");
                    let set = format!("{prefix}SET n {}", value + 1);
                    let touch = format!("{prefix}INCR m");
                    if !exec(client, &[&set, &touch]).is_null() {
                        break;
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut client = ported.client();
        assert_eq!(client.run("GET n").text(), done.load(Ordering::Relaxed).to_string());
    });
}

/// Two clients each write a key if the other's is unchanged: only one may succeed. Watched keys are
/// also held while a transaction is checked and run.
#[test]
fn watched_keys_that_exec_does_not_write_count_as_well() {
    in_crowded_modes(|ported| {
        let barrier = std::sync::Barrier::new(2);
        let skewed = AtomicU64::new(0);
        at_once(2, |me| {
            let mut random = Random::new(me as u64);
            let (mut port, mut host) = (ported.client(), ported.host());
            for round in 0..1500 {
                let own = format!("own{me}:{round}");
                let other = format!("own{}:{round}", 1 - me);
                barrier.wait();
                let (client, prefix) =
                    if random.below(4) == 0 { (&mut host, "MIDI.") } else { (&mut port, "") };
                client.ok(&format!("WATCH {other}"));
                if client.run(&format!("{prefix}GET {other}")).is_null() {
                    exec(client, &[&format!("{prefix}SET {own} 1")]);
                }
                barrier.wait();
                if port.integer(&format!("EXISTS {own} {other}")) == 2 {
                    skewed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        assert_eq!(skewed.load(Ordering::Relaxed), 0, "both were written");
    });
}

/// Any command may be between MULTI and EXEC; it runs in its place.
#[test]
fn long_commands_run_within_a_transaction() {
    for mode in Mode::tried() {
        let ported = Ported::start(mode.builder());
        let (mut client, mut host) = (ported.client(), ported.host());
        host.ok("SET h:1 one");
        let many = (0..1500).map(|number| format!("p:{number}")).collect::<Vec<_>>().join(" ");
        let del = format!("DEL {many}");
        let lines = [
            "POPULATE 1500 p",
            "DBSIZE",
            &del,
            "DBSIZE",
            "DEBUG POPULATE 5 q",
            "DBSIZE",
            "SELECT 1",
            "DBSIZE",
            "SET x 1",
            "SWAPDB 0 1",
            "DBSIZE",
            "SELECT 0",
            "GET x",
            "KEYS *",
            "FLUSHALL SYNC",
            "DBSIZE",
            "IMPORT h:*",
            "GET h:1",
            "MSET a ohmytext b mynewtext",
            "LCS a b",
            "SCAN 0 COUNT 5000 MATCH a",
            "JOBS",
            "RANDOMKEY",
            "FLUSHDB",
            "RANDOMKEY",
        ];
        let replies = exec(&mut client, &lines).array();
        let told: Vec<String> = replies.iter().map(|reply| format!("{reply:?}")).collect();
        let shown = |number: usize| told[number].as_str();
        for (number, expected) in [
            (0, "+OK"),
            (1, ":1500"),
            (2, ":1500"),
            (3, ":0"),
            (4, "+OK"),
            (5, ":5"),
            (6, "+OK"),
            (7, ":0"),
            (8, "+OK"),
            (9, "+OK"),
            (10, ":5"),
            (11, "+OK"),
            (12, "\"1\""),
            (13, "*[\"x\"]"),
            (14, "+OK"),
            (15, ":0"),
            (17, "\"one\""),
            (18, "+OK"),
            (19, "\"mytext\""),
            (20, "*[\"0\", *[\"a\"]]"),
            (21, "*[]"),
            (23, "+OK"),
            (24, "$-1"),
        ] {
            assert_eq!(shown(number), expected, "{mode:?}: {}", lines[number]);
        }
        assert!(!replies[16].is_error() && !replies[22].is_null(), "{mode:?}: {told:?}");
        // The worker and its connections still work.
        assert_eq!(client.run("PING"), Value::Simple(b"PONG".to_vec()));
    }
}

// ---------------------------------------------------------------- bounds

#[test]
fn keys_and_memory_are_bounded() {
    let load = "max-atomic-keys 10 client-query-buffer-limit 1mb";
    let ported = Ported::start(Mode::Adaptive.builder().load(load));
    let mut client = ported.client();
    let text = "ERR too many keys for one atomic command (midi.max-atomic-keys 10)";
    let mut replies =
        |lines: &[&str]| client.pipeline(&lines.iter().map(|line| words(line)).collect::<Vec<_>>());
    let five = "MGET 1 2 3 4 5";
    let found = replies(&[
        "MULTI", five, five, "PING", "EXEC", "MULTI", five, five, "GET 6", "PING", "EXEC",
    ]);
    assert_eq!(found[4].clone().array().len(), 3);
    assert_eq!(found[8], Value::error(text));
    assert_eq!(
        found[10],
        Value::error("EXECABORT Transaction discarded because of previous errors.")
    );
    let found = replies(&[
        "WATCH 1 2 3 4 5 6",
        "WATCH a b c d e",
        "WATCH a",
        "MULTI",
        "GET 1",
        five,
        "EXEC",
    ]);
    assert_eq!(found[1], Value::error(text));
    assert_eq!((&found[2], &found[5]), (&Value::ok(), &Value::error(text)));
    // Queued commands stay below the limit of a query.
    let value = "x".repeat(200_000);
    client.ok("MULTI");
    let ended = (0..8).any(|_| client.try_call(&["SET", "k", &value]).is_err());
    assert!(ended, "more was queued than a query may be");
    assert_eq!(ported.client().integer("EXISTS k"), 0);
}

/// A transaction whose connection ends half-way leaves no trace.
#[test]
fn a_connection_that_ends_runs_nothing() {
    let ported = Ported::start(Mode::Adaptive.builder());
    for _ in 0..50 {
        let mut client = ported.client();
        client.send(&encoded(&["MULTI"]));
        client.send(&encoded(&["SET", "k", "1"]));
        drop(client);
    }
    assert_eq!(ported.client().integer("EXISTS k"), 0);
}

/// Takes a while between two writes. It counts, as newer hosts stop TIME while a script runs.
const SLOW_SCRIPT: &str = "redis.call('MIDI.SET', 'a', 1) \
    for step = 1, 300000 do redis.call('PING') end \
    redis.call('MIDI.SET', 'b', 1)";

/// A slow script of the host holds its shards. Transactions wait for it without delaying their
/// worker's other connections.
#[test]
fn a_unit_of_the_host_is_waited_for() {
    let ported = Ported::start(Mode::Adaptive.builder().load("threads 1"));
    let (mut host, mut client, mut other) = (ported.host(), ported.client(), ported.client());
    client.ok("MSET a 0 b 0");
    host.send(&encoded(&["EVAL", SLOW_SCRIPT, "0"]));
    std::thread::sleep(Duration::from_millis(50));
    client.send(&["MULTI", "GET a", "GET b", "EXEC"].map(|line| encoded(&words(line))).concat());
    other.ok("SET other 1");
    for _ in 0..3 {
        client.read();
    }
    let both = client.read().array();
    assert_eq!(both[0], both[1], "half a script");
    host.read();
}

/// Also if a command behind it waits for the main thread.
#[test]
fn a_client_that_kills_itself_in_exec_is_closed_behind_the_replies() {
    let ported = Ported::start(Mode::Adaptive.builder());
    ported.client().call(&["SET", "large", &"x".repeat(2 << 20)]);
    for last in ["PING", "INFO server", "WAIT 1 1", "GET large"] {
        let mut client = ported.client();
        let kill = format!("CLIENT KILL ID {} SKIPME no", client.id());
        let replies = exec(&mut client, &[&kill, last, "PING"]).array();
        assert_eq!((replies.len(), &replies[0]), (3, &Value::Integer(1)));
        assert!(client.is_closed(), "{last}");
    }
}

/// WATCH is retried if not all of its keys are free at once; those that it already has do not count
/// twice.
#[test]
fn watch_waits_for_a_unit_of_the_host() {
    let ported = Ported::start(Mode::Adaptive.builder().load("max-atomic-keys 2"));
    let (mut host, mut client) = (ported.host(), ported.client());
    host.send(&encoded(&["EVAL", SLOW_SCRIPT, "0"]));
    std::thread::sleep(Duration::from_millis(50));
    client.ok("WATCH free a");
    host.read();
    let text = "ERR too many keys for one atomic command (midi.max-atomic-keys 2)";
    assert_eq!(client.run("WATCH other"), Value::error(text));
    client.ok("SET a 2");
    assert_eq!(exec(&mut client, &["PING"]), Value::NullArray);
}

/// A command may lack the key by which its shard is found, as `OBJECT HELP` does.
#[test]
fn every_command_with_few_arguments_runs_beside_others() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut client = ported.client();
    // The connection goes on behind these in another way, or without a reply.
    let others =
        ["quit", "reset", "subscribe", "hello", "client", "multi", "exec", "discard", "watch"];
    let commands: Vec<(String, usize)> = client
        .run("COMMAND")
        .array()
        .iter()
        .map(|command| {
            let [name, arity, ..] = &command.clone().array()[..] else { panic!("{command:?}") };
            (name.text(), arity.integer().unsigned_abs() as usize)
        })
        .filter(|(name, _)| !others.iter().any(|other| name.ends_with(other)))
        .collect();
    assert!(commands.len() > 100, "{}", commands.len());
    for (name, arity) in &commands {
        for word in ["help", "1"] {
            let call = format!("{name}{}", format!(" {word}").repeat(arity - 1));
            for number in 0..8 {
                let lines = [&*call, &format!("GET k{number}")];
                let replies = exec(&mut client, &lines);
                assert!(
                    replies.is_error() || replies.clone().array().len() == 2,
                    "{call}: {replies:?}"
                );
            }
        }
    }
    assert_eq!(client.run("PING"), Value::Simple(b"PONG".to_vec()));
}
