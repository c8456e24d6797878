//! The promise: the workers' ports serve many clients at once, and every reply is right, whatever
//! the other clients do meanwhile: connect and leave, are killed, run transactions, jobs or
//! main-thread tasks. How a client's bytes are split into reads does not matter either.
//!
//! Real sockets and real threads on a real engine; this test plays the host. So the thread
//! sanitizer sees the ports' code, which it cannot inside a server:
//!
//! ```text
//! RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo +nightly test --target x86_64-unknown-linux-gnu --test engine port_threads
//! ```
//!
//! Environment: `MIDI_PORT_ROUNDS` (rounds of each client).
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{Client, HANG, Random, Value, encoded, wait_until, words};
use crate::played::{Opened, locked, port_number, read_users, run_messages};
use midi::engine::{Engine, Gates, Waker};
use midi::limits::ARGUMENTS_KEPT;
use midi::store::Census;

/// Everything that runs: the workers with their ports, and the host's main thread.
struct Running {
    engine: Arc<Engine>,
    waker: Arc<Waker>,
    port: u16,
    stop: Arc<AtomicBool>,
    main: JoinHandle<usize>,
    workers: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(shards: usize, safemode: bool) -> Self {
        let Opened { engine, waker, port, workers } = Opened::new(2, shards, safemode);
        let stop = Arc::new(AtomicBool::new(false));
        let main = thread::spawn({
            let (engine, waker, stop) =
                (Arc::clone(&engine), Arc::clone(&waker), Arc::clone(&stop));
            move || run_main(&engine, &waker, &stop)
        });
        Running { engine, waker, port, stop, main, workers }
    }

    fn client(&self) -> Client {
        Client::connect(self.port).expect("a connection")
    }

    /// All clients have gone: nothing of them is left, and the engine's counts are right.
    fn end(self) {
        let told = |name: &str| port_number(&self.engine, name);
        wait_until("all connections are closed", || told("net_connections") == 0);
        wait_until("all jobs have ended", || self.engine.jobs.list().is_empty());
        println!("{} commands, {} main_tasks", told("net_commands"), {
            self.stop.store(true, Ordering::Relaxed);
            self.waker.wake();
            self.main.join().expect("no panic")
        });
        self.engine.context().workers.stop();
        self.workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        check_books(&self.engine);
    }
}

/// The host's main thread, as far as the ports need it. Returns the number of main-thread tasks.
fn run_main(engine: &Engine, waker: &Waker, stop: &AtomicBool) -> usize {
    let (mut main_tasks, mut random) = (0, Random::new(7));
    while !stop.load(Ordering::Relaxed) {
        main_tasks += run_messages(engine);
        // The host may do this to the ports at any time.
        match random.below(200) {
            0 => engine.ledger.set_gates(locked(), Gates::PAUSED),
            1 => engine.users.mark_stale(locked()),
            2 => engine.context().outside.ports().expect("ports").tell(&mut |_, _| {}),
            3 => drop((engine.ledger.books.census(0), engine.ledger.books.totals())),
            _ => {
                engine.ledger.set_gates(locked(), Gates::OPEN);
                if engine.users.are_stale() {
                    read_users(engine);
                    engine.context().wake_ports();
                }
            }
        }
        if engine.context().main.may_sleep(locked()) {
            waker.sleep(Duration::from_millis(1));
            engine.context().main.awake(locked());
        }
    }
    main_tasks
}

/// Every token is free, nothing waits, and the counts match the tables.
fn check_books(engine: &Engine) {
    for shard in 0..engine.shards().count() {
        let held = engine.shards().try_take(shard).expect("free, and nothing pending");
        engine.ledger.release(engine.worker_slot(0), shard, held);
    }
    for db in 0..engine.config().databases {
        let (mut keys, mut expiring) = (0, 0);
        for shard in 0..engine.shards().count() {
            let held = engine.shards().try_take(shard).expect("nobody else is here");
            let census = held.table(db).map_or(Census::default(), |table| table.census());
            engine.ledger.release(engine.worker_slot(0), shard, held);
            keys += census.keys;
            expiring += census.expiring;
        }
        let books = engine.ledger.books.census(db);
        assert_eq!((books.keys, books.expiring), (keys, expiring), "database {db}");
    }
    assert_eq!(engine.ledger.books.queued_now(), 0);
}

/// Rounds of each client.
fn rounds() -> i64 {
    std::env::var("MIDI_PORT_ROUNDS").map_or(300, |text| text.parse().expect("MIDI_PORT_ROUNDS"))
}

/// The figures of all clients together.
struct World {
    running: Running,
    /// Transfers that EXEC has answered.
    transferred: AtomicI64,
    /// Clients that still work.
    working: AtomicUsize,
    /// A client has failed: the others must not wait for it.
    failed: AtomicBool,
}

type Work = fn(&World, usize);

/// Counts, in pipelines: a client sees its own writes, and the others' only all at once.
fn count(world: &World, number: usize) {
    let (mut client, mut last) = (world.running.client(), 0);
    let (own, mset) =
        (format!("own:{number}"), |v: i64| format!("MSET a {v}.{number} b {v}.{number}"));
    for round in 1..=rounds() {
        let lines = [
            format!("INCR {own}"),
            "INCR all".into(),
            format!("GET {own}"),
            mset(round),
            "MGET a b".into(),
            format!("SET brief:{number} {round} PX 2"),
            format!("EXISTS {own}"),
        ];
        let said = client.pipeline(&lines.map(|line| words(&line)));
        let all = said[1].integer();
        assert!(all > last, "{all} after {last}");
        last = all;
        assert_eq!(
            (said[0].integer(), said[2].text(), said[6].integer()),
            (round, round.to_string(), 1)
        );
        assert_eq!((&said[3], &said[5]), (&Value::ok(), &Value::ok()));
        let together = said[4].clone().array();
        assert_eq!(together[0], together[1]);
    }
}

/// Moves ones from one key to another in transactions that others' transactions abort.
fn transfer(world: &World, _: usize) {
    let mut client = world.running.client();
    for round in 0..rounds() {
        client.ok("WATCH from to");
        let mut sum = client.run("MGET from to").array().into_iter();
        let mut next = || {
            sum.next()
                .filter(|value| !value.is_null())
                .map_or(0, |value| value.text().parse().unwrap())
        };
        let (from, to): (i64, i64) = (next(), next());
        assert_eq!(from + to, 0);
        let lines = [
            "MULTI",
            &format!("SET from {}", from - 1),
            "ECHO x",
            &format!("SET to {}", to + 1),
            "EXEC",
        ];
        // Without the port's own command the transaction takes another path.
        let lines = lines.into_iter().filter(|line| round % 2 == 0 || *line != "ECHO x");
        let said = client.pipeline(&lines.map(words).collect::<Vec<_>>());
        if !said.last().expect("a reply").is_null() {
            world.transferred.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Long commands in databases of their own, while others run theirs.
fn work_long(world: &World, number: usize) {
    let mut client = world.running.client();
    client.ok(&format!("SELECT {}", 1 + number % 3));
    for _ in 0..rounds() / 20 {
        client.ok("DEBUG POPULATE 3000 p 20");
        assert_eq!(client.run("KEYS p:*").array().len(), 3000);
        assert_eq!(client.integer("DBSIZE"), 3000);
        let many: Vec<String> = (0..1200).map(|n| format!("p:{n}")).collect();
        let many = |name: &str| [&[name.to_owned()], &many[..]].concat();
        assert_eq!(client.call(&many("EXISTS")), Value::Integer(1200));
        assert_eq!(client.call(&many("DEL")), Value::Integer(1200));
        client.ok(if number.is_multiple_of(2) { "FLUSHDB ASYNC" } else { "FLUSHDB SYNC" });
    }
}

/// Requests that need the main thread, and requests about all connections.
fn ask(world: &World, number: usize) {
    for round in 0..rounds() / 5 {
        let mut client = world.running.client();
        client.ok(&format!("CLIENT SETNAME asker:{number}"));
        client.ok("AUTH default default");
        assert!(client.run("AUTH default wrong").is_error());
        assert!(client.run("LPUSH key value").text().contains("not for midi's keys"));
        assert!(client.run("NOSUCH").text().starts_with("ERR unknown command"));
        assert_eq!(client.run("INFO midi_net").text(), "midi_net");
        assert_eq!(client.run("MIDI.JOBS"), Value::Integer(0));
        let mut client = if round % 2 == 0 { client.resp3() } else { client };
        assert_eq!(client.run("CONFIG GET what").map()["what"].text(), "value");
        assert!(client.run("CLIENT LIST").text().contains(&format!("name=asker:{number} ")));
        let said =
            client.pipeline(&["MULTI", "AUTH default default", "GET all", "EXEC"].map(words));
        assert_eq!(said[3].clone().array().len(), 2);
        match round % 4 {
            0 => client.ok("QUIT"),
            // No client waits for these replies; half of the bytes are not even a command.
            1 => client.send(b"*1\r\n$6\r\nDBSIZE\r\n*3\r\n$3\r\nSET\r\n$100\r\nhalf"),
            2 => client.send_line("KEYS *"),
            _ => client.send(b"*1\r\n!\r\n"),
        }
    }
}

/// Is killed again and again, in the middle of any command.
fn fall(world: &World, number: usize) {
    for _ in 0..rounds() / 10 {
        let mut client = world.running.client();
        let named = client.try_call(&words("CLIENT SETNAME victim"));
        if named.is_err() {
            continue;
        }
        let lines = [
            words("GET all"),
            words(&format!("APPEND victim:{number} x")),
            words("MGET a b from to"),
        ];
        let burst: Vec<u8> = lines.iter().flat_map(|line| encoded(line)).collect();
        while !world.failed.load(Ordering::Relaxed)
            && client.try_send(&burst).is_ok()
            && lines.iter().all(|_| client.try_read().is_ok())
        {
            std::hint::spin_loop();
        }
    }
}

/// Kills victims until all others have finished.
fn kill(world: &World, _: usize) {
    let mut client = world.running.client();
    while world.working.load(Ordering::Relaxed) > 1 {
        for line in
            client.run("CLIENT LIST").text().lines().filter(|line| line.contains(" name=victim "))
        {
            let id =
                line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect("an id");
            let killed = client.integer(&format!("CLIENT KILL ID {id}"));
            assert!(killed <= 1);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends in small pieces, large pieces, and many arguments; reads late.
fn strain(world: &World, number: usize) {
    let (mut client, mut random) = (world.running.client(), Random::new(number as u64));
    let key = format!("large:{number}");
    for round in 0..rounds() / 10 {
        let value = vec![b'a' + (round % 26) as u8; 1 + random.below(600_000)];
        assert_eq!(client.call(&[b"SET", key.as_bytes(), &value]), Value::ok());
        let gets = encoded(&["GET", &key]).repeat(4);
        gets.chunks(1 + random.below(30)).for_each(|piece| client.send(piece));
        (0..4).for_each(|_| assert_eq!(client.read().bytes(), value));
        let many = 2 * ARGUMENTS_KEPT;
        let mget: Vec<&str> =
            std::iter::once("MGET").chain(std::iter::repeat_n("own:0", many)).collect();
        client.send(
            &[encoded(&mget), encoded(&["STRLEN", &key]), b"EXISTS \"all\" none\r\n".to_vec()]
                .concat(),
        );
        assert_eq!(client.read().array().len(), many);
        assert_eq!(client.read(), Value::Integer(value.len() as i64));
        assert!(client.read().integer() <= 1);
    }
}

/// All clients at once: each kind of work, and how many clients do it.
const CLIENTS: [(usize, Work); 7] =
    [(4, count), (2, transfer), (2, work_long), (2, ask), (2, fall), (1, kill), (2, strain)];

fn all_at_once(shards: usize, safemode: bool) {
    let clients: Vec<(usize, Work)> = CLIENTS
        .iter()
        .flat_map(|&(times, work)| (0..times).map(move |number| (number, work)))
        .collect();
    let world = Arc::new(World {
        running: Running::start(shards, safemode),
        transferred: AtomicI64::new(0),
        working: AtomicUsize::new(clients.len()),
        failed: AtomicBool::new(false),
    });
    // The thread sanitizer does not see how a scope joins its threads.
    let threads: Vec<_> = clients
        .into_iter()
        .map(|(number, work)| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let _leaves = Leaves(&world);
                work(&world, number);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let world = Arc::into_inner(world).expect("nobody else has it");
    let mut client = world.running.client();
    assert_eq!(client.run("GET all").text(), (4 * rounds()).to_string());
    let transferred = world.transferred.into_inner();
    assert!(transferred > 0);
    assert_eq!(client.run("GET to").text(), transferred.to_string());
    assert_eq!(client.run("GET from").text(), (-transferred).to_string());
    drop(client);
    world.running.end();
}

/// Counts down the clients, also if one panics.
struct Leaves<'a>(&'a World);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.failed.fetch_or(thread::panicking(), Ordering::Relaxed);
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn one_shard() {
    all_at_once(1, false);
}

#[test]
fn many_shards() {
    all_at_once(128, false);
}

#[test]
fn one_after_the_other() {
    all_at_once(16, true);
}

/// Marks the client in keys and values; no other byte is like it.
const MARK: u8 = 0xf0;

/// Clients that send the same.
const ALIKE: u8 = 4;

/// The commands of clients: `K` is a key, `V` a value.
const LINES: [&str; 39] = [
    "SET K V",
    "SET K V",
    "SET K V",
    "GET K",
    "GET K",
    "GET K",
    "GET K",
    "SET K V NX GET",
    "APPEND K V",
    "INCR N",
    "INCRBY N 7",
    "INCR K",
    "DEL K",
    "DEL K K",
    "EXISTS K K",
    "MGET K K N",
    "MSET K V N 5",
    "GETSET K V",
    "STRLEN K",
    "SETRANGE K 3 V",
    "GETRANGE K 1 -2",
    "GETBIT K 3",
    "BITOP OR K K",
    "COPY K K",
    "RENAME K K",
    "TYPE K",
    "GET",
    "SET K",
    "NOSUCH V",
    "midi.get K",
    "MIDI.SET K V",
    "ECHO V",
    "PING",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "UNWATCH",
];

/// The last request of most clients, and its reply.
const LAST: [&[u8]; 2] = [b"DISCARD\r\nECHO the-end\r\n", b"$7\r\nthe-end\r\n"];

/// The last bytes of the others. Nothing is sent after them, or the system might discard replies
/// that were not read yet.
const NO_REQUESTS: [&[u8]; 4] =
    [b"*x\r\n", b"*2\r\n$3\r\nGET\r\n!\r\n", b"*1\r\n$-1\r\n", b"GET \"\r\n"];

fn stream(random: &mut Random) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..1 + random.below(60) {
        let line = random.pick(&LINES);
        let mut words = words(line);
        for word in &mut words {
            match &word[..] {
                b"K" => *word = vec![b'k', MARK, b'0' + random.below(3) as u8],
                b"N" => *word = vec![b'n', MARK],
                b"V" => {
                    let longest = *[4, 30, 300, 30_000].get(random.below(30)).unwrap_or(&20);
                    *word = vec![b'a' + random.below(26) as u8; random.below(longest)];
                    word.push(MARK);
                }
                _ => {}
            }
        }
        match random.below(12) {
            0 if !words.concat().is_empty() => {
                stream.extend([&words.join(&b' ')[..], b"\r\n"].concat())
            }
            1 => stream.extend_from_slice(b"\r\n*0\r\n"),
            _ => stream.extend(encoded(&words)),
        }
    }
    stream.extend_from_slice(if random.below(4) == 0 {
        random.pick(&NO_REQUESTS)
    } else {
        LAST[0]
    });
    stream
}

/// The same bytes as another client sends or receives them.
fn with_mark(bytes: &[u8], from: u8, to: u8) -> Vec<u8> {
    bytes.iter().map(|&byte| if byte == from { to } else { byte }).collect()
}

/// Everything that a client receives, to the end of the stream or of the connection.
fn told(socket: &mut TcpStream) -> Vec<u8> {
    let (mut told, mut piece) = (Vec::new(), [0; 4096]);
    while !told.ends_with(LAST[1]) {
        match socket.read(&mut piece).expect("a reply, or the end") {
            0 => break,
            some => told.extend_from_slice(&piece[..some]),
        }
    }
    told
}

/// Clients send the same, each about keys of its own: one in one piece, the others in pieces of any
/// size.
fn all_are_told_the_same(running: &Running, random: &mut Random) {
    let stream = stream(random);
    let mut sockets: Vec<(TcpStream, Vec<u8>, usize)> = (MARK..MARK + ALIKE)
        .map(|mark| {
            let socket = TcpStream::connect(("127.0.0.1", running.port)).expect("a connection");
            socket.set_nodelay(true).expect("an option");
            socket.set_read_timeout(Some(HANG)).expect("an option");
            (socket, with_mark(&stream, MARK, mark), 0)
        })
        .collect();
    while sockets.iter().any(|(_, bytes, sent)| *sent < bytes.len()) {
        let which = random.below(sockets.len());
        let (socket, bytes, sent) = &mut sockets[which];
        let longest = if random.below(10) == 0 { 20_000 } else { 60 };
        let length = if which == 0 { bytes.len() } else { 1 + random.below(longest) };
        let end = bytes.len().min(*sent + length);
        socket.write_all(&bytes[*sent..end]).expect("it is open");
        *sent = end;
    }
    let mut told =
        (MARK..).zip(&mut sockets).map(|(mark, (socket, ..))| with_mark(&told(socket), mark, MARK));
    let first = told.next().expect("several clients");
    for other in told {
        assert!(first == other, "{}\n{}\n{}", shown(&stream), shown(&first), shown(&other));
    }
    drop(sockets);
    let mut client = running.client();
    client.ok("FLUSHDB");
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn pieces_do_not_matter() {
    for shards in [1, 64] {
        let (running, mut random) = (Running::start(shards, false), Random::new(shards as u64));
        for _ in 0..rounds() {
            all_are_told_the_same(&running, &mut random);
        }
        running.end();
    }
}
