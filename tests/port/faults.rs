//! The promise: whatever one client of midi's port does (nonsense, halves, absurd lengths, never
//! reading, vanishing), it gets an error or loses its connection. All other clients are served, and
//! nothing of it is left behind.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{
    Builder, Client, Mode, Random, Server, Value, at_once, beside, encoded, skip, text, wait_until,
};

const MIB: usize = 1 << 20;

/// In SAFEMODE the main thread serves the port's commands.
fn in_all_modes(body: impl Fn(&Server)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        let server = mode.builder().with_port().start();
        body(&server);
        check_healthy(&server);
    }
}

/// Other clients are served, and nothing is left of those that have gone.
#[track_caller]
pub fn check_healthy(server: &Server) {
    let mut client = server.midi_client();
    client.ok("SET health good");
    assert_eq!(client.run("GET health"), Value::bulk("good"));
    let mut host = server.client();
    assert_eq!(host.run("MIDI.GET health"), Value::bulk("good"));
    server.wait_until_idle();
    wait_until("the dead are gone", || connections(server) == 1);
    wait_until("nothing is queued", || host.info_number("midi_dispatch", "midi_queue_depth") == 0);
    assert_eq!(host.info_number("midi_shards", "midi_panics"), 0);
    drop(client);
    wait_until("all are gone", || connections(server) == 0);
    wait_until("their buffers are given back", || buffers(server) == 0);
}

/// How many clients the port has, according to the host's INFO.
fn connections(server: &Server) -> i64 {
    server.client().info_number("midi_net", "midi_net_connections")
}

/// Bytes in buffers of the port's clients.
fn buffers(server: &Server) -> i64 {
    server.client().info_number("midi_net", "midi_net_buffer_bytes")
}

fn used(host: &mut Client) -> usize {
    host.info_number("memory", "used_memory") as usize
}

fn open(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.midi_port())).expect("a connection");
    stream.set_read_timeout(Some(crate::common::HANG)).expect("a timeout");
    stream.set_write_timeout(Some(crate::common::HANG)).expect("a timeout");
    stream
}

/// Sends exactly these bytes. Returns all that arrives until the connection ends.
#[track_caller]
fn said_to(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = open(server);
    // The server may have closed it before all was sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    said(&mut stream)
}

#[track_caller]
fn said(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
            panic!("not closed: {error}")
        }
        _ => all,
    }
}

/// Protocol errors, in Redis 7.0's words; the connection ends after each.
#[test]
fn nonsense_is_answered_and_the_connection_closed() {
    in_all_modes(|server| {
        let endless = [b"*3\r\n$3\r\nSET\r\n$".as_slice(), &[b'1'; 70_000]].concat();
        let too_long_inline = vec![b'x'; 70_000];
        for (bytes, expected) in [
            (&b"*abc\r\n"[..], "-ERR Protocol error: invalid multibulk length\r\n"),
            (b"*2147483648\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
            (b"*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
            (b"*1\r\nGET\r\n", "-ERR Protocol error: expected '$', got 'G'\r\n"),
            (b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
            (b"*1\r\n$abc\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
            (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
            (b"*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
            (b"*1\r\n$99999999999999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
            (b"SET \"k\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
            (&endless, "-ERR Protocol error: too big bulk count string\r\n"),
            (&too_long_inline, "-ERR Protocol error: too big inline request\r\n"),
            // The commands before it have been answered.
            (
                b"*1\r\n$4\r\nPING\r\n*x\r\n",
                "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n",
            ),
            // An empty request is not a command.
            (b"\r\n*0\r\n*-5\r\n\r\nPING\r\n", "+PONG\r\n"),
        ] {
            let reply = said_to(server, bytes);
            assert_eq!(text(&reply), text(expected.as_bytes()), "{}", text(bytes));
        }
    });
}

/// Random bytes: whatever is sent, other clients do not notice.
#[test]
fn noise_harms_nobody() {
    in_all_modes(|server| {
        at_once(6, |number| {
            let mut random = Random::new(number as u64);
            for _ in 0..150 {
                let bytes: Vec<u8> = match random.below(3) {
                    0 => (0..random.below(5000)).map(|_| random.next() as u8).collect(),
                    // Almost commands.
                    1 => {
                        let mut bytes =
                            encoded(&["SET", "noise", &"v".repeat(random.below(300))]).repeat(3);
                        for _ in 0..1 + random.below(4) {
                            let at = random.below(bytes.len());
                            bytes[at] = random.next() as u8;
                        }
                        bytes
                    }
                    _ => {
                        const PIECES: [&[u8]; 9] = [
                            b"*",
                            b"$",
                            b"\r\n",
                            b"3",
                            b"-1",
                            b"GET",
                            b"9999999999",
                            b"\0",
                            b"*1\r\n$4\r\nPING\r\n",
                        ];
                        (0..random.below(60))
                            .flat_map(|_| PIECES[random.below(PIECES.len())].to_vec())
                            .collect()
                    }
                };
                let mut stream = open(server);
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(Shutdown::Write);
                said(&mut stream);
            }
        });
    });
}

/// A connection may end after any byte, and in the middle of any reply.
#[test]
fn halves_of_commands_are_no_commands() {
    in_all_modes(|server| {
        let whole = encoded(&["SET", "half", "value"]);
        for end in 0..whole.len() {
            let mut stream = open(server);
            stream.write_all(&whole[..end]).expect("sent");
        }
        // Sent byte by byte, it is a whole command.
        let mut client = server.midi_client();
        assert_eq!(client.run("EXISTS half"), Value::Integer(0));
        for byte in &whole {
            client.send(&[*byte]);
        }
        assert_eq!(client.read(), Value::ok());
    });
}

/// Lengths that are allowed, but whose bytes never arrive: memory is taken only for received bytes.
#[test]
fn promises_of_much_take_no_memory() {
    in_all_modes(|server| {
        let mut host = server.client();
        let before = used(&mut host);
        let promising: Vec<TcpStream> = (0..100)
            .map(|number| {
                let mut stream = open(server);
                let promise: &[u8] = match number % 3 {
                    0 => b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc",
                    1 => b"*1048576\r\n$4\r\nMGET\r\n$1\r\n",
                    _ => b"*3\r\n$3\r\nSET\r\n$536870912\r\n",
                };
                stream.write_all(promise).expect("sent");
                stream
            })
            .collect();
        wait_until("all are there", || connections(server) == 100);
        let mut client = server.midi_client();
        for round in 0..100 {
            client.ok(&format!("SET other {round}"));
        }
        let taken = used(&mut host).saturating_sub(before);
        assert!(taken < 100 * 256 * 1024, "{taken} bytes for 100 promises");
        drop(promising);
    });
}

/// A pipeline larger than all socket buffers, sent whole before anything is read, as libraries do:
/// the server must not wait for its client to read.
#[test]
fn a_long_pipeline_is_read_to_its_end() {
    in_all_modes(|server| {
        let mut client = server.midi_client();
        let value = "v".repeat(10_000);
        let pair = [encoded(&["SET", "k", &value]), encoded(&["GET", "k"])].concat();
        let count = 3000;
        client.send(&pair.repeat(count));
        for _ in 0..count {
            assert_eq!(client.read(), Value::ok());
            assert!(client.read() == Value::bulk(&value));
        }
    });
}

/// Clients that ask for much more than they ever read.
#[test]
fn nobody_waits_for_slow_readers() {
    for mode in Mode::tried() {
        let server = mode.builder().load("output-buffer-hard-limit 64mb").with_port().start();
        let mut host = server.client();
        let mut client = server.midi_client();
        client.ok(&format!("SET large {}", "v".repeat(MIB)));
        let before = used(&mut host);
        let mut deaf: Vec<Client> = (0..4).map(|_| server.midi_client()).collect();
        for slow in &mut deaf {
            // 200 MiB of replies each.
            let _ = slow.try_send(&encoded(&["GET", "large"]).repeat(200));
        }
        let mut most = 0;
        for round in 0..300 {
            client.ok(&format!("SET small {round}"));
            assert_eq!(client.run("GET small"), Value::bulk(round.to_string()));
            most = most.max(used(&mut host).saturating_sub(before));
        }
        println!("{mode:?}: {} MiB for slow readers", most / MIB);
        assert!(most < 4 * 70 * MIB, "{} MiB for slow readers", most / MIB);
        // Clients that were not cut off get their replies when they read at last.
        for slow in &mut deaf {
            let mut replies = 0;
            while replies < 200 && slow.try_read().is_ok_and(|reply| reply.bytes().len() == MIB) {
                replies += 1;
            }
            println!("{replies} replies");
        }
        wait_until("their memory is given back", || used(&mut host) < before + 4 * MIB);
        drop((deaf, client, host));
        check_healthy(&server);
    }
}

/// A client that sends without end and never reads.
#[test]
fn endless_senders_are_cut_off() {
    for mode in Mode::tried() {
        let server = mode.builder().load("client-query-buffer-limit 4mb").with_port().start();
        let (mut client, mut host) = (server.midi_client(), server.client());
        client.ok(&format!("SET k {}", "v".repeat(10_000)));
        let before = used(&mut host);
        let mut endless = open(&server);
        let commands = encoded(&["GET", "k"]).repeat(10_000);
        wait_until("it is cut off", || {
            client.ok("SET other 1");
            assert!(used(&mut host) < before + 32 * MIB);
            endless.write_all(&commands).is_err()
        });
        drop((endless, client, host));
        check_healthy(&server);
    }
}

/// A reset while replies are on their way, large and small.
#[test]
fn resets_in_the_midst_of_replies() {
    in_all_modes(|server| {
        let mut client = server.midi_client();
        client.ok(&format!("SET large {}", "v".repeat(8 * MIB)));
        client.ok("MIDI.POPULATE 50000");
        at_once(4, |number| {
            let mut random = Random::new(number as u64);
            for _ in 0..60 {
                let mut stream = open(server);
                let line = [
                    "GET large",
                    "KEYS *",
                    "SCAN 0 COUNT 20000",
                    "MGET large large",
                    "MIDI.POPULATE 70000 more",
                ][random.below(5)];
                let command = encoded(&line.split(' ').collect::<Vec<_>>());
                let _ = stream.write_all(&command.repeat(1 + random.below(4)));
                let mut piece = vec![0; random.below(100_000)];
                if !line.starts_with("MIDI") {
                    let _ = stream.read_exact(&mut piece);
                }
                if random.below(2) == 0 {
                    reset(&stream);
                }
            }
        });
    });
}

/// Ends the connection with a reset, not in order.
pub fn reset(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option's value is a linger of that size, and outlives the call.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
}

/// Reading stops at an urgent byte, which is no part of the commands.
#[test]
fn urgent_bytes_hold_nothing_up() {
    use std::os::fd::AsRawFd;
    in_all_modes(|server| {
        for _ in 0..40 {
            let mut stream = open(server);
            stream.set_nodelay(true).expect("an option");
            let echo = "e".repeat(100);
            stream.write_all(format!("ECHO {echo}\r\nPI").as_bytes()).expect("sent");
            // SAFETY: one byte of a static.
            let sent =
                unsafe { libc::send(stream.as_raw_fd(), b"X".as_ptr().cast(), 1, libc::MSG_OOB) };
            assert_eq!(sent, 1);
            stream.write_all(b"NG\r\nPING\r\n").expect("sent");
            let expected = format!("$100\r\n{echo}\r\n+PONG\r\n+PONG\r\n");
            let mut reply = vec![0; expected.len()];
            stream.read_exact(&mut reply).expect("all replies");
            assert_eq!(text(&reply), text(expected.as_bytes()));
        }
    });
}

/// More than the sockets hold: the rest is sent when there is room.
#[test]
fn half_closed_connections_are_answered_to_the_end() {
    in_all_modes(|server| {
        let value = "x".repeat(100_000);
        let mut all = encoded(&["SET", "large", &value]);
        (0..80).for_each(|_| all.extend(encoded(&["GET", "large"])));
        all.extend(encoded(&["PING"]));
        for _ in 0..3 {
            let mut stream = open(server);
            stream.write_all(&all).expect("a connection");
            stream.shutdown(Shutdown::Write).expect("a connection");
            std::thread::sleep(Duration::from_millis(100));
            let reply = said(&mut stream);
            let expected =
                "+OK\r\n+PONG\r\n".len() + 80 * "$100000\r\n\r\n".len() + 80 * value.len();
            assert!(reply.ends_with(b"+PONG\r\n"), "{} bytes of {expected}", reply.len());
            assert_eq!(reply.len(), expected);
        }
    });
}

/// A half-closed client of a long command gets the full reply or an error, never a part.
#[test]
fn half_closed_connections_get_no_half_replies() {
    in_all_modes(|server| {
        let commands = [
            &["DEBUG", "POPULATE", "100000"][..],
            &["PING"],
            &["KEYS", "*"],
            &["FLUSHALL"],
            &["ECHO", "end"],
        ];
        let all: Vec<u8> = commands.iter().flat_map(|args| encoded(args)).collect();
        let end = "+OK\r\n$3\r\nend\r\n";
        for number in 0..40 {
            let mut stream = open(server);
            stream.write_all(&all).expect("a connection");
            std::thread::sleep(Duration::from_millis(2 * number));
            stream.shutdown(Shutdown::Write).expect("a connection");
            let reply = String::from_utf8(said(&mut stream)).expect("text");
            let told: Vec<&str> = reply.split("\r\n").collect();
            let keys =
                told[2].strip_prefix('*').map(|count| count.parse::<usize>().expect("a number"));
            let expected = match keys {
                Some(count) => 3 + 2 * count,
                None => 3,
            };
            assert!(
                keys.is_some() || told[2].contains(" has ended: its client sends no more"),
                "{}",
                told[2]
            );
            assert_eq!(told[1], "+PONG");
            assert_eq!(told[expected..].join("\r\n"), end, "after {}", told[2]);
        }
    });
}

/// A client that shuts down its sending side still gets its replies. (Not those of jobs: the server
/// cannot tell it from a client that has gone, and ends its jobs. So no KEYS here.)
#[test]
fn half_closed_connections_are_answered() {
    in_all_modes(|server| {
        let mut all = Vec::new();
        for number in 0..1000 {
            all.extend(encoded(&["SET", &format!("k{number}"), "v"]));
        }
        // Over several shards; in some modes other threads run it.
        let names: Vec<String> = (990..1000).map(|number| format!("k{number}")).collect();
        all.extend(encoded(
            &[&["MGET"], &names.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat(),
        ));
        all.extend(encoded(&["GET", "k7"]));
        let reply = said_to(server, &all);
        let oks = b"+OK\r\n".repeat(1000);
        assert!(reply.starts_with(&oks), "{}", text(&reply));
        let values = format!("*10\r\n{}", "$1\r\nv\r\n".repeat(11));
        assert_eq!(text(&reply[oks.len()..]), text(values.as_bytes()));
        // An empty request, and half a command.
        assert_eq!(said_to(server, b""), b"");
        assert_eq!(said_to(server, b"*2\r\n$3\r\nGET\r\n"), b"");
    });
}

/// Client processes that are killed while they work.
#[test]
fn killed_programs_leave_nothing() {
    if !Command::new("redis-benchmark")
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success())
    {
        return skip("there is no redis-benchmark");
    }
    in_all_modes(|server| {
        let port = server.midi_port().to_string();
        for round in 0..10 {
            let pipeline = ["1", "100"][round % 2];
            let mut program = Command::new("redis-benchmark")
                .args([
                    "-p",
                    &port,
                    "-c",
                    "100",
                    "-n",
                    "100000000",
                    "-t",
                    "set,get",
                    "-d",
                    "1000",
                    "-P",
                    pipeline,
                ])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-benchmark");
            wait_until("it is at work", || connections(server) > 50);
            program.kill().expect("our own child");
            program.wait().expect("our own child");
            wait_until("its connections are gone", || connections(server) == 0);
        }
    });
}

/// How many descriptors this process may have; raised as far as possible.
fn descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write one rlimit, which we own.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_cur as usize
}

/// Descriptors of the port's clients do not get in the way of the host's.
#[test]
fn ten_thousand_idle_connections_beside_the_hosts_clients() {
    let spare = descriptors().saturating_sub(1200);
    let idle = spare.min(10_000);
    if idle < 10_000 {
        println!("only {idle} idle connections: this process may not have more descriptors");
    }
    let server = Mode::Adaptive
        .builder()
        .load("maxclients 20000")
        .config("maxclients 1100")
        .with_port()
        .start();
    let mut host = server.client();
    let before = used(&mut host);
    let idle_ones: Vec<TcpStream> = (0..idle).map(|_| open(&server)).collect();
    wait_until("all are there", || connections(&server) == idle as i64);
    let each = (used(&mut host).saturating_sub(before)) / idle.max(1);
    println!("{idle} idle connections, {each} bytes of used_memory each");
    let mut clients: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ok(&format!("SET host{number} v"));
        client.ok(&format!("MIDI.SET midi{number} v"));
    }
    let mut client = server.midi_client();
    for number in 0..1000 {
        assert_eq!(client.run(&format!("GET midi{number}")), Value::bulk("v"));
    }
    drop((idle_ones, clients, client, host));
    check_healthy(&server);
}

/// Clients above the limit get an error, and those that are connected stay.
#[test]
fn too_many_clients_are_refused() {
    for mode in Mode::tried() {
        let server = mode.builder().load("maxclients 10").with_port().start();
        let mut clients: Vec<Client> = (0..10).map(|_| server.midi_client()).collect();
        for client in &mut clients {
            client.ok("SET k v");
        }
        for _ in 0..20 {
            let reply = said(&mut open(&server));
            assert!(reply.starts_with(b"-ERR max number of clients reached"), "{}", text(&reply));
        }
        for client in &mut clients {
            assert_eq!(client.run("GET k"), Value::bulk("v"));
        }
        clients.pop();
        wait_until("there is room again", || {
            server.midi_client().try_call(&["PING"]).is_ok_and(|reply| !reply.is_error())
        });
        drop(clients);
        wait_until("they are seen to be gone", || connections(&server) == 0);
        check_healthy(&server);
    }
}

/// Idle clients are closed after the time that is set; active ones are not.
#[test]
fn idle_connections_end_when_that_is_set() {
    // Three seconds: a busy machine may hold up the active one for more than one.
    let server = Mode::Adaptive.builder().load("timeout 3").with_port().start();
    let (mut idle, mut busy) = (open(&server), server.midi_client());
    let work = |_: &mut Client, _: &mut Random| std::thread::sleep(Duration::from_millis(10));
    beside(&server, 1, work, || {
        wait_until("one is closed", || {
            busy.ok("SET k v");
            connections(&server) == 1
        });
    });
    assert_eq!(said(&mut idle), b"");
    drop((idle, busy));
    check_healthy(&server);
}

/// A client that waits for a reply, or is held up, or reads a long one, is not idle.
#[test]
fn clients_that_get_replies_are_not_idle() {
    // Five seconds: a busy machine may stand still for two.
    let server = Mode::Adaptive.builder().load("timeout 5").with_port().start();
    let (mut waiting, mut reading) = (server.midi_client(), open(&server));
    waiting.call(&["SET", "large", &"x".repeat(64 << 20)]);
    waiting.send(b"WAIT 1 6000\r\n");
    let paused = Mode::Adaptive.builder().load("timeout 5").with_port().start();
    let mut held_up = paused.midi_client();
    paused.client().ok("CLIENT PAUSE 6500 WRITE");
    held_up.send(b"SET k v\r\n");
    reading.write_all(b"GET large\r\n").expect("it is open");
    let mut piece = vec![0; 4 << 20];
    for _ in 0..16 {
        std::thread::sleep(Duration::from_millis(400));
        reading.read_exact(&mut piece).expect("all of it");
    }
    assert_eq!(waiting.read(), Value::Integer(0));
    // Longer than until the next look at who is idle.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(waiting.run("PING").text(), "PONG");
    assert_eq!(held_up.read(), Value::ok());
}

/// The job of a client that leaves as soon as it has sent its command ends.
#[test]
fn a_job_ends_with_a_client_that_has_left_already() {
    const KEYS: i64 = 5_000_000;
    let server = Mode::Adaptive.builder().with_port().start();
    let mut other = server.midi_client();
    let started = |other: &mut Client| other.info_number("midi_jobs", "midi_jobs_started");
    for _ in 0..5 {
        let before = started(&mut other);
        let mut leaver = server.midi_client();
        leaver.send(format!("POPULATE {KEYS} k\r\n").as_bytes());
        drop(leaver);
        wait_until("it has ended", || {
            started(&mut other) > before && other.run("MIDI.JOBS").array().is_empty()
        });
        assert!(other.run("DBSIZE").integer() < KEYS);
    }
}

/// The host tests all memory before it ends, and changes it meanwhile. It does not stop the threads
/// of its own allocator, which may wake up then. Nor does it spare what glibc shares with the
/// kernel for restartable sequences: if its thread loses the processor while that is changed, the
/// kernel ends it, with midi or without (1 of 96 crashes of a stock Redis 7.0 on a busy machine).
#[test]
fn after_a_crash_nobody_is_served() {
    let builder = Builder::new().with_port().config("jemalloc-bg-thread no");
    let mut server = builder.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0").start();
    let mut admin = server.client();
    admin.ok("MIDI.POPULATE 200000 p 100");
    let gets: Vec<u8> = (0..50).flat_map(|key| encoded(&["GET", &format!("p:{key}")])).collect();
    let length = server.midi_client().run("GET p:7").text().len();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (gets, mut client) = (&gets, server.midi_client());
            scope.spawn(move || {
                while client.try_send(gets).is_ok() {
                    for _ in 0..50 {
                        let Ok(reply) = client.try_read() else { return };
                        assert_eq!(reply.text().len(), length);
                    }
                }
            });
        }
        admin.send_line("DEBUG SEGFAULT");
        server.wait_for_exit();
    });
    assert!(server.log().contains("BUG REPORT END"));
}
