//! The promise: the ports tell no client of a write that the log can still lose. A reply waits
//! until the log is safe, and everything that the same client is told after it waits too.
//!
//! These tests play the host's main thread and decide when it logs.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{Client, HANG, Random, Value, encoded, wait_until, words};
use crate::played::{Opened, locked, port_number};
use midi::command::record::{Record, Records};
use midi::engine::{ForMain, Gates, HostLog, Locked, Logged};

/// An engine in logged mode, whose log goes on only when the test says so.
struct Logging(Opened);

impl Logging {
    fn start(workers: usize) -> Self {
        let opened = Opened::new(workers, 1024, false);
        opened.engine.ledger.set_gates(locked(), Gates::AOF_ON);
        Logging(opened)
    }

    /// The policy is `always`.
    fn reads_wait(self) -> Self {
        self.0.engine.ledger.log.set_reads_wait(true);
        self
    }

    fn client(&self) -> Client {
        Client::connect(self.0.port).expect("a connection")
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.0.port)).expect("a connection");
        stream.set_read_timeout(Some(HANG)).expect("an option");
        stream
    }

    /// The main thread handles its messages, and logs nothing.
    fn main_turn(&self) {
        let engine = &*self.0.engine;
        for message in engine.context().main.take(locked()) {
            match message {
                ForMain::Answer(_) => unreachable!("the host's door has no clients here"),
                ForMain::Run(request) => engine.resume_on_main(locked(), request, || panic!()),
                ForMain::Task(task) | ForMain::Write(task) | ForMain::Interrupt(task) => {
                    task(locked(), engine, engine.context().outside.host())
                }
                ForMain::Log => {}
                ForMain::Finish(_, reply) => reply.finish(),
            }
        }
        // So that workers wake it; it looks without that.
        if engine.context().main.may_sleep(locked()) {
            engine.context().main.awake(locked());
        }
    }

    /// Everything that has been done is logged, and safe.
    fn log(&self) {
        let engine = &*self.0.engine;
        while engine.ledger.log_tail(locked()) {}
        engine.ledger.log.before_sleep();
        engine.ledger.after_sleep(locked());
    }

    fn held(&self) -> u64 {
        port_number(&self.0.engine, "net_held_connections")
    }

    /// Waits until the replies of this many connections are held.
    #[track_caller]
    fn wait_until_held(&self, connections: u64) {
        wait_until(&format!("{connections} are held"), || {
            self.main_turn();
            self.held() == connections
        });
    }

    /// The main thread works, and logs, until the client has a reply.
    #[track_caller]
    fn reply_to(&self, client: &mut Client) -> Value {
        wait_until("it is answered", || {
            self.main_turn();
            self.log();
            client.has_reply_within(Duration::from_millis(1))
        });
        client.read()
    }

    /// The client's command is answered, and only once the log is safe.
    #[track_caller]
    fn is_held(&self, client: &mut Client, line: &str) -> Value {
        client.send_line(line);
        self.wait_until_held(1);
        assert!(!client.has_reply_within(Duration::from_millis(5)), "{line} is answered early");
        self.log();
        let reply = client.read();
        assert_eq!(self.held(), 0);
        reply
    }

    /// All clients have gone.
    fn end(self) {
        wait_until("all connections are closed", || {
            self.main_turn();
            self.log();
            port_number(&self.0.engine, "net_connections") == 0
        });
        assert_eq!(self.held(), 0);
        self.0.engine.context().workers.stop();
        self.0.workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    }
}

#[test]
fn a_reply_to_a_write_waits_and_so_does_what_follows() {
    let logging = Logging::start(1);
    let (mut client, mut other) = (logging.client(), logging.client());
    client.send_line("SET key 1");
    logging.wait_until_held(1);
    client.send_line("GET key");
    client.send_line("PING");
    assert_eq!(other.run("GET key"), Value::bulk("1"), "it wrote nothing");
    assert_eq!(other.integer("DBSIZE"), 1);
    assert!(!client.has_reply_within(Duration::from_millis(5)));
    logging.log();
    assert_eq!([client.read(), client.read()], [Value::ok(), Value::bulk("1")]);
    assert_eq!(client.read().text(), "PONG");
    // A write that changes nothing has nothing to wait for.
    assert!(client.run("SET key 2 NX").is_null());
    assert_eq!(client.run("GET key"), Value::bulk("1"));
    assert_eq!(port_number(&logging.0.engine, "net_holds"), 1);
    assert!(port_number(&logging.0.engine, "net_held_usec") >= 5_000);
    drop((client, other));
    logging.end();
}

#[test]
fn every_way_to_write_waits() {
    let logging = Logging::start(2);
    let mut client = logging.client();
    let many: Vec<String> = (0..3000).map(|number| format!("p:{number}")).collect();
    let lines = [
        "SET key value",
        "APPEND key x",
        "MSET a 1 b 2",
        "RENAME a c",
        "COPY key copy",
        "PEXPIREAT key 99999999999999",
        "DEBUG POPULATE 3000 p 10",
        &format!("DEL {}", many.join(" ")),
        "SWAPDB 0 1",
        "SWAPDB 0 1",
        "SET key value",
        "FLUSHDB",
        "SET key value",
        "FLUSHALL ASYNC",
    ];
    for line in lines {
        let reply = logging.is_held(&mut client, line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    drop(client);
    logging.end();
}

#[test]
fn transactions_wait() {
    let logging = Logging::start(2);
    for resp3 in [false, true] {
        let mut client = logging.client();
        client = if resp3 { client.resp3() } else { client };
        let exec = |client: &mut Client, lines: &[&str]| {
            client.ok("MULTI");
            lines.iter().for_each(|line| assert_eq!(client.run(line).text(), "QUEUED"));
            logging.is_held(client, "EXEC").array()
        };
        let null = |value: &Value| assert!(value.is_null());
        let said = exec(&mut client, &["SET a 1", "GET a", "GET none"]);
        assert_eq!(said[..2], [Value::ok(), Value::bulk("1")]);
        null(&said[2]);
        // With replies of the port's own commands.
        let said = exec(&mut client, &["INCR a", "ECHO x", "GET a"]);
        assert_eq!(said[1..], [Value::bulk("x"), Value::bulk("2")]);
        // The main thread runs it.
        let said = exec(&mut client, &["SET a 3", "FLUSHALL", "GET a"]);
        assert_eq!(said[..2], [Value::ok(), Value::ok()]);
        null(&said[2]);
        client.ok("MULTI");
        client.run("GET a");
        assert!(client.run("EXEC").array()[0].is_null(), "it wrote nothing");
    }
    logging.end();
}

#[test]
fn with_always_reads_wait_for_what_they_saw() {
    let logging = Logging::start(2).reads_wait();
    let (mut writer, mut reader) = (logging.client(), logging.client());
    let engine = &logging.0.engine;
    let shard = |key: &str| engine.shards().of_key(key.as_bytes());
    let other = (0..).map(|n| format!("n{n}")).find(|n| shard(n) != shard("key")).expect("one");
    writer.send_line("SET key 1");
    logging.wait_until_held(1);
    assert!(reader.run(&format!("GET {other}")).is_null(), "nobody wrote there");
    for line in ["GET key", "MGET key none", "SET key 2 NX", "KEYS *"] {
        reader.send_line(line);
        logging.wait_until_held(2);
        assert!(!reader.has_reply_within(Duration::from_millis(2)), "{line} is answered early");
        logging.log();
        reader.read();
        assert_eq!(writer.read(), Value::ok());
        assert!(!reader.run(line).is_error(), "{line}: all is safe");
        writer.send_line("SET key 1");
        logging.wait_until_held(1);
    }
    drop((writer, reader));
    logging.end();
}

#[test]
fn in_a_group_those_that_read_do_not_wait_for_those_that_write() {
    let logging = Logging::start(1);
    let mut readers: Vec<Client> = (0..6).map(|_| logging.client()).collect();
    let mut writer = logging.client();
    for round in 0..300 {
        readers[..3].iter_mut().for_each(|reader| reader.send_line("GET other"));
        writer.send_line(&format!("SET key {round}"));
        readers[3..].iter_mut().for_each(|reader| reader.send_line("GET key"));
        readers.iter_mut().for_each(|reader| assert!(!reader.read().is_error()));
        logging.wait_until_held(1);
        logging.log();
        assert_eq!(writer.read(), Value::ok());
    }
    drop((readers, writer));
    logging.end();
}

#[test]
fn a_long_pipeline_is_taken_in_bit_by_bit() {
    const COUNT: i64 = 10_000;
    let logging = Logging::start(1);
    let mut client = logging.client();
    let one = encoded(&words("INCR counter"));
    client.send(&one.repeat(100));
    logging.wait_until_held(1);
    // While it waits, it is not read.
    client.send(&one.repeat(COUNT as usize - 100));
    let mut other = logging.client();
    let counted = other.run("GET counter").text();
    for _ in 0..3 {
        assert_eq!(other.run("GET counter").text(), counted);
    }
    assert!(counted.parse::<i64>().expect("a number") < COUNT);
    for number in 1..=COUNT {
        assert_eq!(logging.reply_to(&mut client), Value::Integer(number));
    }
    drop((client, other));
    logging.end();
}

/// Sends this, closes the sending half if `half`, and returns what is said before the end, all of
/// it after the log was safe.
fn said_at_the_end(logging: &Logging, bytes: &[u8], half: bool) -> String {
    let mut stream = logging.stream();
    stream.write_all(bytes).expect("open");
    if half {
        stream.shutdown(Shutdown::Write).expect("open");
    }
    logging.wait_until_held(1);
    stream.set_nonblocking(true).expect("an option");
    assert!(stream.peek(&mut [0]).is_err(), "nothing is said, and it is open");
    stream.set_nonblocking(false).expect("an option");
    logging.log();
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it is closed in order");
    said
}

#[test]
fn connections_that_end_are_told_first() {
    let logging = Logging::start(1);
    let set = encoded(&words("SET key value"));
    let quit = said_at_the_end(&logging, &[&set[..], b"QUIT\r\nSET key no\r\n"].concat(), false);
    assert_eq!(quit, "+OK\r\n+OK\r\n");
    let wrong = said_at_the_end(&logging, &[&set[..], b"*1\r\n!\r\n"].concat(), false);
    assert!(wrong.starts_with("+OK\r\n-ERR Protocol error"), "{wrong}");
    assert_eq!(said_at_the_end(&logging, &set, true), "+OK\r\n");
    let alone = said_at_the_end(&logging, b"APPEND key x\r\nGET key\r\n", true);
    assert_eq!(alone, ":6\r\n$6\r\nvaluex\r\n");
    // Without anything to say.
    let muted = b"CLIENT REPLY OFF\r\nSET key value\r\nQUIT\r\n";
    assert_eq!(said_at_the_end(&logging, muted, false), "");
    logging.end();
}

#[test]
fn killed_and_vanished_clients_leave_nothing() {
    let logging = Logging::start(1);
    let (mut killed, mut admin) = (logging.client(), logging.client());
    let id = killed.id();
    killed.send_line("SET key value");
    logging.wait_until_held(1);
    assert_eq!(admin.integer(&format!("CLIENT KILL ID {id}")), 1);
    assert!(killed.is_closed(), "nothing is said before");
    logging.wait_until_held(0);
    let mut vanished = logging.client();
    vanished.send_line("SET key value");
    logging.wait_until_held(1);
    drop(vanished);
    logging.log();
    wait_until("it is gone", || port_number(&logging.0.engine, "net_connections") == 1);
    drop((killed, admin));
    logging.end();
}

#[test]
fn a_pause_holds_only_what_has_not_run() {
    let logging = Logging::start(1);
    let (mut client, engine) = (logging.client(), &logging.0.engine);
    client.send_line("SET key 1");
    logging.wait_until_held(1);
    engine.ledger.set_gates(locked(), Gates::AOF_ON.and(Gates::WRITES_PAUSED));
    client.send_line("SET key 2");
    client.send_line("GET key");
    logging.log();
    assert_eq!(client.read(), Value::ok());
    let mut other = logging.client();
    assert_eq!(other.run("GET key"), Value::bulk("1"));
    engine.ledger.set_gates(locked(), Gates::AOF_ON);
    logging.wait_until_held(1);
    assert!(!client.has_reply_within(Duration::from_millis(5)));
    logging.log();
    assert_eq!([client.read(), client.read()], [Value::ok(), Value::bulk("2")]);
    drop((client, other));
    logging.end();
}

#[test]
fn clients_that_want_no_reply_wait_all_the_same() {
    let logging = Logging::start(1);
    let mut client = logging.client();
    client.send(b"CLIENT REPLY SKIP\r\nSET key 1\r\nGET key\r\n");
    logging.wait_until_held(1);
    assert!(!client.has_reply_within(Duration::from_millis(5)));
    logging.log();
    assert_eq!(client.read(), Value::bulk("1"));
    client.send(b"CLIENT REPLY OFF\r\nSET key 2\r\n");
    logging.wait_until_held(1);
    client.send(b"SET key 3\r\nCLIENT REPLY ON\r\n");
    let mut other = logging.client();
    assert_eq!(other.run("GET key"), Value::bulk("2"));
    assert_eq!(logging.reply_to(&mut client), Value::ok());
    assert_eq!(other.run("GET key"), Value::bulk("3"));
    drop((client, other));
    logging.end();
}

#[test]
fn reply_after_run_waits_for_nothing_but_with_always() {
    let logging = Logging::start(1);
    let mut client = logging.client();
    logging.0.engine.settings().port.reply_after_run.store(true, Ordering::Relaxed);
    client.ok("SET key 1");
    assert_eq!(client.integer("APPEND key x"), 2);
    assert_eq!(port_number(&logging.0.engine, "net_holds"), 0);
    let logging = logging.reads_wait();
    assert_eq!(logging.is_held(&mut client, "SET key 2"), Value::ok());
    drop(client);
    logging.end();
}

#[test]
fn held_output_has_the_limits_of_output() {
    let logging = Logging::start(1);
    let mut client = logging.client();
    let id = client.id();
    let settings = &logging.0.engine.settings().port;
    client.send_line(&format!("SET key {}", "v".repeat(50_000)));
    logging.wait_until_held(1);
    let line = || line_of(&logging, id);
    assert!(line().contains(" obl=5 "), "{}", line());
    wait_until("INFO has the bytes", || port_number(&logging.0.engine, "net_held_bytes") == 5);
    logging.log();
    assert_eq!(client.read(), Value::ok());
    settings.output_hard.store(10_000, Ordering::Relaxed);
    // They run together.
    client.send(&[encoded(&words("SET other 1")), encoded(&words("GET key"))].concat());
    assert!(client.is_closed(), "nothing is said before");
    assert_eq!(port_number(&logging.0.engine, "net_closed_for_limits"), 1);
    logging.end();
}

/// A client's line of CLIENT LIST.
fn line_of(logging: &Logging, id: i64) -> String {
    logging.client().run(&format!("CLIENT LIST ID {id}")).text()
}

#[test]
fn a_connection_that_waits_for_the_log_is_not_idle() {
    let logging = Logging::start(1);
    let mut waiting = logging.client();
    waiting.send_line("SET key 1");
    logging.wait_until_held(1);
    // It has been heard from later than the other.
    let mut idle = logging.client();
    assert!(idle.run("GET none").is_null());
    logging.0.engine.settings().port.timeout.store(1, Ordering::Relaxed);
    assert!(idle.is_closed(), "its time is over");
    assert_eq!(logging.held(), 1);
    logging.log();
    assert_eq!(waiting.read(), Value::ok());
    assert_eq!(waiting.run("GET key"), Value::bulk("1"));
    drop((waiting, idle));
    logging.end();
}

/// The host's log, of which the last value of a counter is kept.
struct LastCounter(Arc<Mutex<i64>>);

impl HostLog for LastCounter {
    fn may_log(&self, _: Locked<'_>) -> bool {
        true
    }

    fn write(&self, _: Locked<'_>, logged: Logged<'_>) -> bool {
        for record in Records::new(&logged.text()).expect("a text") {
            if let Record::Set { key: b"counter", value, .. } = record.expect("a record") {
                let value = std::str::from_utf8(value).expect("digits");
                *self.0.lock().expect("no panic") = value.parse().expect("a number");
            }
        }
        true
    }
}

/// Clients count together, in pipelines of all kinds. None of them is told a number that is not in
/// the log, or, where reads wait, reads one.
fn no_reply_is_ahead_of_the_log(reads_wait: bool) {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 60;
    let mut logging = Logging::start(2);
    if reads_wait {
        logging = logging.reads_wait();
    }
    let (logged, safe) = (Arc::new(Mutex::new(0)), AtomicI64::new(0));
    let last = Arc::clone(&logged);
    logging.0.engine.context().outside.set_log(Box::new(LastCounter(last)));
    let (working, failed) = (AtomicI64::new(CLIENTS as i64), AtomicBool::new(false));
    let work = |number: usize| {
        let (mut client, mut random) = (logging.client(), Random::new(number as u64));
        let (mut lines, mut told) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            lines.clear();
            for _ in 0..1 + random.below(40) {
                lines.push(random.pick(&["INCR counter", "GET counter", "MULTI", "PING"]));
                if lines.last() == Some(&"MULTI") {
                    lines.extend(["INCR counter", "EXEC"]);
                }
            }
            let said = client.pipeline(&lines.iter().map(|line| words(line)).collect::<Vec<_>>());
            let ahead = safe.load(Ordering::SeqCst);
            for (line, reply) in lines.iter().zip(&said) {
                let count = match (*line, reply) {
                    ("INCR counter", Value::Integer(count)) => *count,
                    ("GET counter", Value::Bulk(count)) if reads_wait => {
                        String::from_utf8_lossy(count).parse().expect("a number")
                    }
                    ("EXEC", Value::Array(all)) => all[0].integer(),
                    _ => continue,
                };
                assert!(count <= ahead, "{line} said {count}, and the log has {ahead}");
                assert!(count >= told, "{count} after {told}");
                told = count;
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (work, working, failed) = (&work, &working, &failed);
            scope.spawn(move || {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(number)));
                failed.fetch_or(done.is_err(), Ordering::Relaxed);
                working.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let engine = &*logging.0.engine;
        while working.load(Ordering::Relaxed) > 0 {
            logging.main_turn();
            while engine.ledger.log_tail(locked()) {}
            engine.ledger.log.before_sleep();
            // It takes as long to be written as it likes.
            thread::sleep(Duration::from_micros(fastrand::u64(..500)));
            safe.store(*logged.lock().expect("no panic"), Ordering::SeqCst);
            engine.ledger.after_sleep(locked());
        }
    });
    assert!(!failed.load(Ordering::Relaxed));
    assert!(port_number(&logging.0.engine, "net_holds") > 0);
    logging.end();
}

#[test]
fn no_write_is_answered_ahead_of_the_log() {
    no_reply_is_ahead_of_the_log(false);
}

#[test]
fn with_always_no_read_is_answered_ahead_of_the_log() {
    no_reply_is_ahead_of_the_log(true);
}

/// A reply on its way to its worker when the write is taken back comes after the worker has heard
/// of that.
#[test]
fn a_reply_that_comes_after_its_write_was_undone() {
    for _ in 0..50 {
        let logging = Logging::start(1);
        let engine = &*logging.0.engine;
        let (mut first, mut second) = (logging.client(), logging.client());
        first.send_line("SET key 1");
        logging.wait_until_held(1);
        // Only the main thread can run it.
        second.send_line("FLUSHALL");
        wait_until("it has run", || {
            logging.main_turn();
            engine.ledger.log.counts().positions.0 == 2
        });
        engine.ledger.set_gates(locked(), Gates::AOF_ON.and(Gates::READ_ONLY));
        assert_eq!(engine.ledger.drop_tail(locked()), 2);
        engine.ledger.log.before_sleep();
        engine.ledger.after_sleep(locked());
        for client in [&mut first, &mut second] {
            assert!(client.read().text().starts_with("UNBLOCKED"));
            assert!(client.is_closed());
        }
        drop((first, second));
        logging.end();
    }
}

#[test]
fn without_a_log_nothing_waits() {
    let logging = Logging::start(1);
    logging.0.engine.ledger.set_gates(locked(), Gates::OPEN);
    let mut client = logging.client();
    client.ok("SET key 1");
    assert_eq!(client.run("GET key"), Value::bulk("1"));
    assert_eq!(port_number(&logging.0.engine, "net_holds"), 0);
    drop(client);
    logging.end();
}
