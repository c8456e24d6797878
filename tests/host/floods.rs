//! The promise: no client can block the host's main thread. Whatever a client sends, the host keeps
//! answering the others, and what waits for its main thread takes bounded memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::port::Ported;
use crate::common::{Client, Mode, Server, Value, encoded, wait_until};

const MIB: i64 = 1 << 20;

fn used_memory(client: &mut Client) -> i64 {
    client.info_number("memory", "used_memory")
}

/// Sends these bytes repeatedly on two connections of midi's port, and reads the replies, while
/// `body` runs.
fn flooded(ported: &Ported, bytes: &[u8], replies: usize, body: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = ported.client();
                while !stop.load(Ordering::Relaxed) {
                    client.send(bytes);
                    (0..replies).for_each(|_| assert!(!client.read().is_error()));
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        body();
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A pipeline of SETs of a few keys with long names.
fn sets(count: usize) -> Vec<u8> {
    let key = |number: usize| format!("{}{}", "k".repeat(1000), number % 10);
    (0..count).map(|number| encoded(&["SET", &key(number), "v"])).collect::<Vec<_>>().concat()
}

/// The largest `used_memory` in 300 of the host's answers, minus its value before.
fn growth(ported: &Ported) -> i64 {
    let mut host = ported.host();
    let before = used_memory(&mut host);
    let mut most = 0;
    flooded(ported, &sets(500), 500, || {
        for _ in 0..300 {
            assert_eq!(host.run("PING"), Value::Simple(b"PONG".to_vec()));
            most = most.max(used_memory(&mut host));
        }
    });
    most - before
}

#[test]
fn changes_that_nobody_can_tell_of_so_fast_wait() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut host = ported.host();
    host.ok("CONFIG SET notify-keyspace-events KEA");
    // Another module, or a script, keeps the main thread from sending notifications.
    let mut sleeper = ported.host();
    sleeper.send_line("DEBUG SLEEP 2");
    thread::sleep(Duration::from_millis(100));
    let before = resident(&ported.server);
    flooded(&ported, &sets(500), 500, || thread::sleep(Duration::from_millis(1700)));
    assert_eq!(sleeper.read(), Value::ok());
    let grown = resident(&ported.server) - before;
    assert!(grown < 64 * MIB, "{} MiB of news", grown / MIB);
    let grown = growth(&ported);
    assert!(grown < 64 * MIB, "{} MiB of news", grown / MIB);
}

/// The memory of the server's process, measured without asking the server.
fn resident(server: &Server) -> i64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number") << 10
}

#[test]
fn none_of_the_changes_is_lost_when_they_wait() {
    const CLIENTS: usize = 2;
    const SETS: usize = 20_000;
    let ported = Ported::start(Mode::Adaptive.builder());
    ported.host().ok("CONFIG SET notify-keyspace-events E$");
    let limits = ["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"];
    assert_eq!(ported.host().call(&limits), Value::ok());
    let mut subscriber = ported.host();
    subscriber.send_line("SUBSCRIBE __keyevent@0__:set");
    subscriber.read();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let ported = &ported;
            scope.spawn(move || {
                let key = |number: usize| format!("{client}:{number}");
                let bytes: Vec<u8> = (0..SETS)
                    .map(|number| encoded(&["SET", &key(number), "v"]))
                    .collect::<Vec<_>>()
                    .concat();
                let mut port = ported.client();
                port.send(&bytes);
                (0..SETS).for_each(|_| assert_eq!(port.read(), Value::ok()));
            });
        }
        let mut next = [0; CLIENTS];
        for _ in 0..CLIENTS * SETS {
            let key = subscriber.read().array()[2].text();
            let (client, number) = key.split_once(':').expect("client:number");
            let next = &mut next[client.parse::<usize>().expect("a client")];
            assert_eq!(number, next.to_string(), "in the order of the changes");
            *next += 1;
        }
    });
}

#[test]
fn kept_arguments_do_not_pile_up() {
    let server = Mode::Pool.builder().start();
    let mut host = server.client();
    let before = used_memory(&mut host);
    let value = vec![b'v'; MIB as usize];
    let mut most = 0;
    for round in 0..60 {
        let keys = (0..8).map(|key| encoded(&[b"MIDI.SET", format!("k{key}").as_bytes(), &value]));
        host.send(&keys.flatten().collect::<Vec<u8>>());
        (0..8).for_each(|_| assert_eq!(host.read(), Value::ok()));
        if round % 4 == 0 {
            most = most.max(used_memory(&mut host));
        }
    }
    let held = (most - before) / MIB;
    assert!(held < 8 + 64 + 48, "{held} MiB for 8 MiB of data");
}

#[test]
fn flushed_kept_arguments_are_freed_without_anybody_turning_the_main_loop() {
    const VALUES: usize = 20_000;
    let server = Mode::Adaptive
        .builder()
        .load("keep-bytes 1024")
        .config("hz 1")
        .config("dynamic-hz no")
        .start();
    let mut host = server.client();
    let before = used_memory(&mut host);
    let value = "v".repeat(2000);
    for start in (0..VALUES).step_by(500) {
        let sets: Vec<_> = (start..start + 500)
            .map(|key| vec!["MIDI.SET".to_owned(), key.to_string(), value.clone()])
            .collect();
        assert!(host.pipeline(&sets).iter().all(|reply| *reply == Value::ok()));
    }
    assert!(used_memory(&mut host) - before > 30 * MIB);
    host.ok("MIDI.FLUSHALL SYNC");
    // Each check wakes the main loop, so there are few.
    for _ in 0..10 {
        thread::sleep(Duration::from_secs(1));
        if used_memory(&mut host) - before < 12 * MIB {
            return;
        }
    }
    panic!("{} MiB are still there", (used_memory(&mut host) - before) / MIB);
}

#[test]
fn an_administrator_can_flush_whatever_jobs_there_are() {
    let ported = Ported::start(Mode::Adaptive.builder().load("max-jobs 1"));
    let (mut host, mut port) = (ported.host(), ported.client());
    for line in ["MIDI.FLUSHALL", "MIDI.FLUSHALL SYNC", "MIDI.FLUSHDB"] {
        let mut greedy = ported.client();
        greedy.send_line("POPULATE 100000000");
        wait_until("the job runs", || !host.run("MIDI.JOBS").array().is_empty());
        assert!(host.run("MIDI.KEYS *").is_error(), "there is room for one job");
        host.ok(line);
        port.ok(line);
        host.run("MULTI");
        host.run(line);
        assert_eq!(host.run("EXEC"), Value::Array(vec![Value::ok()]));
        drop(greedy);
        wait_until("the job has ended", || host.run("MIDI.JOBS").array().is_empty());
    }
}

/// A logged-in client of a server that requires a password from now on. Other new clients are not
/// logged in.
fn administrator(ported: &Ported) -> Client {
    let mut host = ported.host();
    host.ok("CONFIG SET requirepass secret");
    host.ok("AUTH secret");
    host
}

fn open_again(mut host: Client) {
    assert_eq!(host.call(&["CONFIG", "SET", "requirepass", ""]), Value::ok());
}

#[test]
fn a_stranger_pauses_nobody() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut host, mut stranger, mut port) =
        (administrator(&ported), ported.host(), ported.client());
    port.ok("AUTH secret");
    port.ok("SET k v");
    host.ok("CLIENT PAUSE 1000000 WRITE");
    for line in ["CLIENT PAUSE 1000000 ALL", "CLIENT PAUSE 1000000", "EXEC"] {
        assert!(stranger.run(line).is_error());
        assert_eq!(port.run("GET k"), Value::bulk("v"), "{line}");
    }
    host.ok("CLIENT UNPAUSE");
    // The host reports that it has carried these out.
    for lines in [&["CLIENT PAUSE 500 ALL"][..], &["MULTI", "CLIENT PAUSE 500", "EXEC"]] {
        let started = Instant::now();
        for line in lines {
            assert!(!host.run(line).is_error());
        }
        assert_eq!(port.run("GET k"), Value::bulk("v"));
        // The host counts whole milliseconds, by another clock.
        assert!(started.elapsed() > Duration::from_millis(490), "{lines:?}");
        assert_eq!(host.run("PING"), Value::Simple(b"PONG".to_vec()), "the pause is over");
    }
    open_again(host);
}

#[test]
fn a_client_that_reads_in_the_same_breath_as_it_asks_hears_of_changes() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut port = ported.client();
    for round in 0..20 {
        port.ok("SET k 1");
        let mut caching = ported.host().resp3();
        caching
            .send(&[encoded(&["CLIENT", "TRACKING", "ON"]), encoded(&["MIDI.GET", "k"])].concat());
        assert_eq!((caching.read(), caching.read()), (Value::ok(), Value::bulk("1")), "{round}");
        port.ok("SET k 2");
        let push =
            Value::Push(vec![Value::bulk("invalidate"), Value::Array(vec![Value::bulk("k")])]);
        assert_eq!(caching.read(), push, "{round}");
    }
}

/// Sends commands at once and returns their replies, errors included.
fn say(client: &mut Client, commands: impl Iterator<Item = Vec<u8>>) -> Vec<Value> {
    let commands: Vec<Vec<u8>> = commands.collect();
    client.send(&commands.concat());
    commands.iter().map(|_| client.read()).collect()
}

#[test]
fn names_that_a_stranger_watches_take_bounded_memory() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut host, mut stranger) = (administrator(&ported), ported.host());
    let before = used_memory(&mut host);
    for round in 0..80 {
        let names = (0..100).map(|name| format!("{round}:{name}:{}", "n".repeat(16_000)));
        let replies = say(&mut stranger, names.map(|name| encoded(&["WATCH", &name])));
        assert!(replies.iter().all(Value::is_error));
    }
    let held = (used_memory(&mut host) - before) / MIB;
    assert!(held < 48, "{held} MiB of 128");
    open_again(host);
}

/// Names that clients of the host may watch.
fn watched_names(host: &mut Client) -> i64 {
    host.info_number("midi_memory", "midi_watched_names")
}

#[test]
fn names_that_a_stranger_watches_are_forgotten() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut host, mut stranger) = (administrator(&ported), ported.host());
    let mut watching = ported.host();
    watching.ok("AUTH secret");
    watching.ok("WATCH mine");
    // midi checks ten times a second, so it may mistake a refused client for the one beside it.
    thread::sleep(Duration::from_millis(300));
    for round in 0..3 {
        // A few more than are marked at once, and too few for their errors to close the connection.
        for names in [1, 25] {
            let names = (0..names).map(|name| format!("{round}:{name}:{}", "n".repeat(1000)));
            let replies = say(&mut stranger, names.map(|name| encoded(&["WATCH", &name])));
            assert!(replies.iter().all(Value::is_error));
        }
        wait_until("they are forgotten", || watched_names(&mut host) == 1);
    }
    host.ok("MIDI.SET mine changed");
    assert!(!goes_through(&mut watching));
    open_again(host);
}

/// However many names arrive at once, and whatever follows in the same turn of the main loop.
#[test]
fn of_many_watches_at_once_none_is_forgotten() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut watching, mut writer) = (ported.host(), ported.client());
    for last in [0, 39, 40, 999] {
        watching.ok("CONFIG RESETSTAT");
        let watches = (0..1000).map(|name| encoded(&["WATCH", &format!("name:{name}")]));
        let key = format!("name:{last}");
        let replies = say(&mut watching, watches.chain([encoded(&["MIDI.GET", &key])]));
        assert!(!replies.iter().any(Value::is_error));
        writer.ok(&format!("SET {key} {last}"));
        assert!(!goes_through(&mut watching), "{key}");
    }
}

#[test]
fn long_names_are_let_go_when_they_are_watched_no_longer() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut host = ported.host();
    let before = used_memory(&mut host);
    for client in [ported.host(), ported.client()] {
        let mut client = client;
        let name = |number: usize| format!("{number}{}", "n".repeat(4 << 20));
        let names: Vec<String> = (0..20).map(name).collect();
        let words: Vec<&str> =
            std::iter::once("WATCH").chain(names.iter().map(String::as_str)).collect();
        assert_eq!(client.call(&words), Value::ok());
        drop(client);
        wait_until("the names have gone", || used_memory(&mut host) - before < 48 * MIB);
    }
}

/// However many names are watched, no change to them is missed.
#[test]
fn a_name_that_is_given_up_counts_as_changed() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut watching, mut writer) = (ported.host(), ported.client());
    watching.ok("WATCH first");
    let mut other = ported.host();
    let watch = |client: &mut Client, names: &[String]| {
        let words: Vec<&str> =
            std::iter::once("WATCH").chain(names.iter().map(String::as_str)).collect();
        assert_eq!(client.call(&words), Value::ok());
    };
    let names: Vec<String> = (0..70_000).map(|name| format!("other:{name}")).collect();
    for names in names.chunks(1000) {
        watch(&mut other, names);
        other.ok("UNWATCH");
    }
    writer.ok("SET first changed");
    assert!(!goes_through(&mut watching));
    // One WATCH of more names than midi remembers.
    let names: Vec<String> = (0..40).map(|name| format!("{name}{}", "n".repeat(1 << 20))).collect();
    for changed in [0, 39] {
        watch(&mut watching, &names);
        assert_eq!(writer.call(&["SET", &names[changed], "v"]), Value::ok());
        assert!(!goes_through(&mut watching), "{changed}");
    }
    watching.ok("WATCH last");
    assert!(goes_through(&mut watching));
}

fn goes_through(client: &mut Client) -> bool {
    client.ok("MULTI");
    client.run("MIDI.SET done 1");
    !client.run("EXEC").is_null()
}

/// The same on the port, where a flush may change any key whose name midi does not keep.
#[test]
fn changes_of_long_names_are_seen() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut watching, mut writer) = (ported.client(), ported.client());
    let name = |last: &str| format!("{}{last}", "n".repeat(100_000));
    let other = name("other");
    for (change, expected) in [
        (vec!["SET", "unlike", "v"], true),
        (vec!["SET", &other, "v"], true),
        (vec!["SET", &name("mine"), "v"], false),
        (vec!["DEL", &name("mine")], false),
        (vec!["SWAPDB", "1", "2"], true),
        (vec!["FLUSHALL"], false),
    ] {
        writer.call(&["SET", &name("mine"), "v"]);
        assert_eq!(watching.call(&["WATCH", &name("mine")]), Value::ok());
        assert!(!writer.call(&change).is_error());
        watching.ok("MULTI");
        watching.run("SET done 1");
        assert_eq!(!watching.run("EXEC").is_null(), expected, "{}", change[0]);
    }
}
