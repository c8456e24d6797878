//! The promise: memcached's clients are told why they are refused, hostile ones harm nobody, and
//! one order explains what they and Redis's clients saw.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::certificates::trusting;
use crate::common::clock::Clock;
use crate::common::linear::{Operation, explain_by_key};
use crate::common::memcached::{Memcached, WithMemcached};
use crate::common::replicas::{follow, wait_for_link};
use crate::common::{
    Builder, Door, Mode, Random, Value, Wire, Words, aof, at_once, free_port, wait_until, words,
};

fn starts_with(client: &mut Memcached, sent: &str, said: &str) {
    let answer = client.lines(sent);
    assert!(answer.starts_with(said), "{sent}: {answer}");
}

#[test]
fn who_is_refused_is_told_why() {
    let server = WithMemcached::start(Builder::new());
    let (mut host, mut client) = (server.server.client(), server.client());
    client.lines("set old 1 0 1\nx\nset known 1 0 1\nx\ngets known\n");
    host.ok("CONFIG SET maxmemory 1");
    for sent in [
        "set a 0 0 1\nx\n",
        "set a 1 0 1\nx\n",
        "ms a 1\nx\n",
        "ma a N0\n",
        "mg a N0\n",
        // A number for a key that has none.
        "gets old\n",
        "gats 0 old\n",
        "mg old c\n",
        "me old\n",
    ] {
        starts_with(&mut client, sent, "SERVER_ERROR OOM ");
    }
    // One error for a line, and then what comes behind it.
    let answer = client.lines("gets old older oldest\nmn\n");
    assert!(answer.starts_with("SERVER_ERROR OOM ") && answer.ends_with("\nMN\n"), "{answer}");
    assert_eq!(answer.lines().count(), 2, "{answer}");
    let said = "VALUE old 1 1\nx\nEND\nHD f1\nTOUCHED\nVALUE old 1 1\nx\nEND\n";
    assert_eq!(client.lines("get old\nmg old f\ntouch old 1000\ngat 0 old\n"), said);
    let number = client.number_of("known");
    assert_eq!(
        client.lines(&format!("mg known c\nmd known C{number}\n")),
        format!("HD c{number}\nHD\n")
    );
    host.ok("CONFIG SET maxmemory 0");
    wait_until("there is room", || client.lines("gets old\n").starts_with("VALUE old 1 1 "));
    host.ok("CONFIG SET min-replicas-to-write 1");
    wait_until("that is seen", || {
        client.lines("set a 0 0 1\nx\n").starts_with("SERVER_ERROR NOREPLICAS ")
    });
    starts_with(&mut client, "flush_all 10\n", "SERVER_ERROR NOREPLICAS ");
    starts_with(&mut client, "get old\n", "VALUE ");
    host.ok("CONFIG SET min-replicas-to-write 0");
    // No file can be renamed over a folder.
    let in_the_way = server.server.dir().join("dump.rdb");
    std::fs::create_dir(&in_the_way).expect("a folder");
    assert_eq!(host.call(&["CONFIG", "SET", "save", "3600 1000000"]), Value::ok());
    assert!(!host.run("BGSAVE").is_error());
    wait_until("a failed save is seen", || {
        client.lines("set a 0 0 1\nx\n").starts_with("SERVER_ERROR MISCONF ")
    });
    starts_with(&mut client, "md old I\n", "SERVER_ERROR MISCONF ");
    starts_with(&mut client, "get old\n", "VALUE ");
    std::fs::remove_dir(&in_the_way).expect("our folder");
}

/// As in memcached, an error in a line of keys is the line's last reply: a client that reads no
/// further would take what follows for the reply to its next request.
#[test]
fn an_error_ends_the_line() {
    for mode in Mode::tried() {
        let server = WithMemcached::start(mode.builder());
        let mut client = server.client();
        server.server.client().run("MIDI.HSET h f v");
        client.lines("set a 0 0 1\nx\nset b 0 0 1\ny\n");
        let many = "b ".repeat(70);
        for line in ["get a h b", "gets a h", "get a h h b", &format!("get a h {many}")] {
            let answer = client.lines(&format!("{line}\nmn\nget b\n"));
            let lines: Vec<&str> = answer.lines().collect();
            let [value, "x", error, "MN", "VALUE b 0 1", "y", "END"] = lines[..] else {
                panic!("{mode:?} {line}: {answer}");
            };
            assert!(
                value.starts_with("VALUE a 0 1") && error.starts_with("SERVER_ERROR WRONGTYPE")
            );
        }
        // The value before the error is in another batch.
        let many = "a ".repeat(100);
        let answer = client.lines(&format!("get {many}h b\nmn\n"));
        assert_eq!(answer.matches("VALUE").count(), 100, "{mode:?}");
        assert!(answer.ends_with("\nMN\n") && !answer.contains("END"), "{mode:?} {answer}");
    }
}

/// As SET and DEL of midi's other doors.
#[test]
fn a_hash_is_replaced_and_removed_whole() {
    let server = WithMemcached::start(Builder::new());
    let (mut host, mut client) = (server.server.client(), server.client());
    for (lines, answer) in [
        ("set h 0 0 1\nx\n", "STORED\n"),
        ("set h 5 60 1\nx\n", "STORED\n"),
        ("ms h 1\nx\n", "HD\n"),
        ("ms h 1 MS T60\nx\n", "HD\n"),
        ("delete h\n", "DELETED\n"),
        ("md h\n", "HD\n"),
    ] {
        host.run("MIDI.DEL h");
        host.run("MIDI.HSET h f v");
        assert_eq!(client.lines(lines), answer, "{lines}");
        assert_ne!(host.run("MIDI.TYPE h").text(), "hash", "{lines}");
    }
    host.run("MIDI.DEL h");
    host.run("MIDI.HSET h f v");
    for lines in ["add h 0 0 1\nx\n", "append h 0 0 1\nx\n", "ms h 1 MA\nx\n", "md h I\n"] {
        let answer = client.lines(lines);
        assert!(answer.starts_with("SERVER_ERROR WRONGTYPE"), "{lines}: {answer}");
    }
    assert_eq!(host.run("MIDI.TYPE h").text(), "hash");
}

#[test]
fn a_server_that_loads_says_so() {
    let server = WithMemcached::start(Builder::new());
    let (mut host, mut client) = (server.server.client(), server.client());
    client.lines("set k 1 0 1\nv\n");
    host.ok("DEBUG POPULATE 2000");
    host.ok("CONFIG SET key-load-delay 500 loading-process-events-interval-bytes 1024");
    host.send_line("DEBUG RELOAD");
    wait_until("it loads", || client.lines("get k\n").starts_with("SERVER_ERROR LOADING "));
    assert_eq!(host.read(), Value::ok());
    assert_eq!(client.lines("get k\n"), "VALUE k 1 1\nv\nEND\n");
}

#[test]
fn a_flush_may_come_later() {
    let clock = Clock::new();
    let builder = clock.of(Builder::new()).config("appendonly yes").config("appendfsync always");
    let mut master = WithMemcached::start(builder);
    let replica = WithMemcached::start(Builder::new());
    follow(&replica.server, master.server.port());
    wait_for_link(&replica.server);
    let (mut client, mut other) = (master.client(), replica.client());
    starts_with(&mut other, "flush_all 10\n", "SERVER_ERROR READONLY ");
    let said =
        client.lines("set a 0 0 1\nx\nflush_all 1000\nget a\nflush_all 1000 noreply\nget a\n");
    assert_eq!(said, "STORED\nOK\nVALUE a 0 1\nx\nEND\nVALUE a 0 1\nx\nEND\n");
    wait_until("the replica has it", || other.lines("get a\n") != "END\n");
    assert_eq!(client.lines("flush_all 30\n"), "OK\n");
    // Refused when its time comes, it comes later.
    let mut host = master.server.client();
    host.ok("CONFIG SET min-replicas-to-write 2");
    clock.pass(30_001);
    std::thread::sleep(Duration::from_millis(500));
    assert_ne!(client.lines("get a\n"), "END\n");
    host.ok("CONFIG SET min-replicas-to-write 0");
    wait_until("it is flushed", || client.lines("get a\n") == "END\n");
    wait_until("the replica, too", || other.lines("get a\n") == "END\n");
    assert_eq!(client.lines("set b 0 0 1\nx\n"), "STORED\n");
    drop(aof::crash(&mut master.server));
    assert_eq!(master.client().lines("get a b\n"), "VALUE b 0 1\nx\nEND\n");
}

#[test]
fn a_new_master_has_numbers_of_its_own() {
    let master = WithMemcached::start(Builder::new());
    let replica = WithMemcached::start(Builder::new());
    let mut client = master.client();
    client.lines("set a 0 0 1\nx\nset b 0 0 1\nx\n");
    let old = client.number_of("a");
    follow(&replica.server, master.server.port());
    wait_for_link(&replica.server);
    let mut client = replica.client();
    let of_replica = client.number_of("a");
    replica.server.client().ok("REPLICAOF NO ONE");
    wait_until("it is a master", || client.lines(&format!("cas b 0 0 1 {old}\nx\n")) == "EXISTS\n");
    assert!(client.number_of("b") > of_replica + (1 << 40) - 1, "numbers go on far above");
    assert_eq!(client.lines(&format!("cas a 0 0 1 {of_replica}\ny\n")), "STORED\n");
}

#[test]
fn what_never_ends_takes_no_memory() {
    let server = WithMemcached::start(Builder::new());
    let memory = || server.server.client().info_number("memory", "used_memory");
    let mut client = server.client();
    let large = "v".repeat(1_000_000);
    client.lines(&format!("set large 0 0 {}\n{large}\n", large.len()));
    let before = memory();
    // A value that never ends.
    let mut endless = server.client();
    endless.send(b"set a 0 0 2000000000\r\n");
    assert_eq!(endless.read_until("\r\n"), "SERVER_ERROR object too large for cache\r\n");
    (0..30).for_each(|_| endless.send(large.as_bytes()));
    let mut endless_meta = server.client();
    endless_meta.send(b"ms a 2000000000\r\n");
    assert_eq!(endless_meta.read_until("\r\n"), "SERVER_ERROR object too large for cache\r\n");
    (0..30).for_each(|_| endless_meta.send(large.as_bytes()));
    // A key, and a line, that never end.
    for line in ["mg ", "set ", "gat 0 ", "ms a 1 "] {
        let mut client = server.client();
        let _ = client.try_send(format!("{line}{}", "k".repeat(5000)).as_bytes());
        assert!(client.is_closed(), "{line}");
    }
    // Replies that nobody reads: 500 MB.
    let mut slow = server.client();
    slow.send("get large\r\n".repeat(500).as_bytes());
    assert_eq!(client.lines("get none\nmg none\n"), "END\nEN\n");
    let grown = memory() - before;
    assert!(grown < 40 << 20, "{grown} bytes");
    for _ in 0..500 {
        assert_eq!(slow.try_read_line().as_deref(), Some("VALUE large 0 1000000"));
        slow.skip(large.len() + "\r\nEND\r\n".len());
    }
}

#[test]
fn tls_is_spoken() {
    let port = free_port();
    let builder = Builder::new().load(&format!("memcached-tls-port {port}"));
    let server = builder.with_tls().start();
    let wire = Wire::tls(port, &trusting(None)).expect("a connection");
    let mut client = Memcached::over(wire);
    let large = "v".repeat(300_000);
    let said = client.lines(&format!("set a 5 0 {}\n{large}\nmg a v\n", large.len()));
    assert!(said == format!("STORED\nVA {}\n{large}\n", large.len()));
    assert_eq!(server.midi_client().run("STRLEN a").integer(), large.len() as i64);
}

/// A clock that every event reads once.
static CLOCK: AtomicU64 = AtomicU64::new(0);

fn tick() -> u64 {
    CLOCK.fetch_add(1, Ordering::SeqCst)
}

/// A command of memcached's, the one of Redis's that does the same, and the reply to that which
/// means what memcached's said.
fn as_redis(client: &mut Memcached, command: &str, key: &str, value: usize) -> (Words, Value) {
    let len = value.to_string().len();
    let (sent, redis) = match command {
        "get" => (format!("get {key}"), format!("GET {key}")),
        "mg" => (format!("mg {key} v"), format!("GET {key}")),
        "delete" => (format!("delete {key}"), format!("DEL {key}")),
        "md" => (format!("md {key}"), format!("DEL {key}")),
        "set" => (format!("set {key} 0 0 {len}\n{value}"), format!("SET {key} {value}")),
        "ms" => (format!("ms {key} {len} F7\n{value}"), format!("SET {key} {value}")),
        _ => (format!("add {key} 0 0 {len}\n{value}"), format!("SETNX {key} {value}")),
    };
    let said = client.lines(&format!("{sent}\n"));
    let reply = match (command, said.trim_end()) {
        ("get", "END") | ("mg", "EN") => Value::NullBulk,
        ("get" | "mg", said) => Value::bulk(said.lines().nth(1).expect("a value")),
        ("set", "STORED") | ("ms", "HD") => Value::ok(),
        (_, "STORED" | "DELETED" | "HD") => Value::Integer(1),
        (_, "NOT_STORED" | "NOT_FOUND" | "NF") => Value::Integer(0),
        (_, said) => panic!("{sent}: {said}"),
    };
    (words(&redis), reply)
}

#[test]
fn one_order_explains_what_clients_of_all_doors_saw() {
    const CLIENTS: usize = 6;
    const STEPS: usize = 12;
    for mode in Mode::tried() {
        let server = WithMemcached::start(mode.builder());
        for round in 0..15 {
            server.client().lines("flush_all\n");
            let history: Mutex<Vec<Operation>> = Mutex::default();
            at_once(CLIENTS, |number| {
                let mut random = Random::new((round * CLIENTS + number) as u64);
                let mut step = client_of(&server, number);
                for at in 0..STEPS {
                    let called = tick();
                    let (command, reply) = step(&mut random, number * STEPS + at);
                    let (commands, replies, returned) = (vec![command], vec![reply], tick());
                    let done = Operation { client: number, commands, replies, called, returned };
                    history.lock().expect("whole").push(done);
                }
            });
            let history = history.into_inner().expect("whole");
            if let Err(best) = explain_by_key(&history) {
                panic!("{mode:?}, round {round}: {history:?}\nexplained: {best:?}");
            }
        }
    }
}

type Step<'s> = Box<dyn FnMut(&mut Random, usize) -> (Words, Value) + 's>;

/// What a client does next; each third one uses another door.
fn client_of(server: &WithMemcached, number: usize) -> Step<'_> {
    const KEYS: [&str; 2] = ["x", "y"];
    if number.is_multiple_of(3) {
        let mut client = server.client();
        return Box::new(move |random, unique| {
            let names = ["get", "mg", "delete", "md", "set", "ms", "add"];
            as_redis(&mut client, random.pick(&names), random.pick(&KEYS), unique)
        });
    }
    let door = [Door::Host, Door::Port][number % 2];
    let mut client = door.client(&server.server);
    Box::new(move |random, unique| {
        let line = random.pick(&["GET K", "DEL K", "SET K V", "SETNX K V", "GETSET K V"]);
        let line = line.replace('K', random.pick(&KEYS)).replace('V', &unique.to_string());
        let command = words(&line);
        let reply = client.call(&door.named(&command));
        (command, reply)
    })
}
