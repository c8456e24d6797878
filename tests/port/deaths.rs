//! The promise: a connection may die after any byte that it has sent, in any way, also in the midst
//! of a TLS handshake. What it was told has been done stays done, no half of a command is run, and
//! nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::{ClientConnection, StreamOwned};

use super::faults::{check_healthy, reset};
use crate::common::certificates::trusting;
use crate::common::{Builder, Client, HANG, Server, Way, at_once, encoded, text, wait_until};

const LARGE: usize = 100_000;

/// The ways in which a connection dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Close,
    /// What was not sent or read yet is lost.
    Reset,
    /// It sends no more, and reads to the end.
    HalfClose,
}

const DEATHS: [Death; 3] = [Death::Close, Death::Reset, Death::HalfClose];

/// A part of the conversation: it is sent, and the replies are read, before the next one follows.
struct Phrase {
    sent: Vec<u8>,
    reply: Vec<u8>,
    /// The keys that exist when it has been run, and those that no longer do.
    made: Vec<String>,
    gone: Vec<String>,
}

fn phrase(commands: &[&[&[u8]]], reply: impl Into<Vec<u8>>) -> Phrase {
    let sent = commands.iter().flat_map(|command| encoded(command)).collect();
    Phrase { sent, reply: reply.into(), made: Vec::new(), gone: Vec::new() }
}

/// What a client says. Its keys begin with its name.
fn conversation(name: &str) -> Vec<Phrase> {
    let key = |number: usize| format!("{name}:{number}");
    let keys: Vec<String> = (0..8).map(key).collect();
    let [small, large, first, second, watched, last, ..] = &keys[..] else { unreachable!() };
    let value = vec![b'v'; LARGE];
    let bulk = [format!("${LARGE}\r\n").as_bytes(), &value, b"\r\n"].concat();
    let bytes = |key: &String| key.clone().into_bytes();
    let with = |phrase: Phrase, made: &[&String], gone: &[&String]| Phrase {
        made: made.iter().map(|key| (*key).clone()).collect(),
        gone: gone.iter().map(|key| (*key).clone()).collect(),
        ..phrase
    };
    vec![
        phrase(&[&[b"AUTH", b"alice", b"secret"]], "+OK\r\n"),
        phrase(&[&[b"CLIENT", b"SETNAME", b"me"]], "+OK\r\n"),
        with(phrase(&[&[b"SET", &bytes(small), b"v"]], "+OK\r\n"), &[small], &[]),
        with(phrase(&[&[b"SET", &bytes(large), &value]], "+OK\r\n"), &[large], &[]),
        phrase(
            &[&[b"GET", &bytes(small)], &[b"GET", &bytes(large)]],
            [b"$1\r\nv\r\n", &bulk[..]].concat(),
        ),
        phrase(&[&[b"WATCH", &bytes(watched)], &[b"MULTI"]], "+OK\r\n+OK\r\n"),
        phrase(
            &[&[b"SET", &bytes(first), &value[..40_000]], &[b"DEL", &bytes(small)]],
            "+QUEUED\r\n+QUEUED\r\n",
        ),
        phrase(&[&[b"SET", &bytes(second), b"v"]], "+QUEUED\r\n"),
        with(phrase(&[&[b"EXEC"]], "*3\r\n+OK\r\n:1\r\n+OK\r\n"), &[first, second], &[small]),
        // A job.
        phrase(&[&[b"KEYS", &bytes(second)]], format!("*1\r\n${}\r\n{second}\r\n", second.len())),
        // A task of the main thread.
        phrase(&[&[b"CONFIG", b"GET", b"nosuch"]], "*0\r\n"),
        with(
            phrase(&[&[b"MSET", &bytes(last), b"v", &bytes(small), b"v"]], "+OK\r\n"),
            &[last, small],
            &[],
        ),
        phrase(
            &[&[b"WATCH", &bytes(watched)], &[b"MULTI"], &[b"GET", &bytes(large)]],
            "+OK\r\n+OK\r\n+QUEUED\r\n",
        ),
        // These replies are not waited for.
        phrase(
            &[&[b"EXEC"], &[b"GET", &bytes(large)], &[b"MGET", &bytes(large), &bytes(large)]],
            "",
        ),
    ]
}

/// A stream that dies after so many bytes were written.
struct Mortal<S> {
    stream: S,
    left: usize,
}

impl<S: Read> Read for Mortal<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl<S: Write> Write for Mortal<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now = bytes.len().min(self.left);
        if now == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = self.stream.write(&bytes[..now])?;
        self.left -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Talks until the stream dies; returns how many phrases were answered.
fn talk(stream: &mut (impl Read + Write), phrases: &[Phrase]) -> usize {
    for (number, phrase) in phrases.iter().enumerate() {
        if stream.write_all(&phrase.sent).and_then(|()| stream.flush()).is_err() {
            return number;
        }
        let mut reply = vec![0; phrase.reply.len()];
        stream.read_exact(&mut reply).expect("a reply");
        assert!(reply == phrase.reply, "{}, and not {}", text(&reply), text(&phrase.reply));
    }
    phrases.len()
}

/// A connection without TLS.
trait Socket: Read + Write {
    fn die(&mut self, death: Death);
}

impl Socket for TcpStream {
    fn die(&mut self, death: Death) {
        match death {
            Death::Close => {}
            Death::Reset => reset(self),
            Death::HalfClose => {
                let _ = self.shutdown(Shutdown::Write);
                // All that midi says before it closes, in whatever form.
                self.read_to_end(&mut Vec::new()).expect("the end");
            }
        }
    }
}

impl Socket for UnixStream {
    fn die(&mut self, death: Death) {
        // There, a reset is a close with something unread.
        if death == Death::HalfClose {
            let _ = self.shutdown(Shutdown::Write);
            self.read_to_end(&mut Vec::new()).expect("the end");
        }
    }
}

/// A client that dies after so many bytes. Returns how many phrases were answered.
fn live(server: &Server, way: Way, phrases: &[Phrase], left: usize, death: Death) -> usize {
    fn plain(socket: impl Socket, phrases: &[Phrase], left: usize, death: Death) -> usize {
        let mut mortal = Mortal { stream: socket, left };
        let answered = talk(&mut mortal, phrases);
        mortal.stream.die(death);
        answered
    }
    let tcp = |port| {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(HANG)).expect("a timeout");
        stream
    };
    match way {
        Way::Tcp => plain(tcp(server.midi_port()), phrases, left, death),
        Way::Unix => {
            let stream = UnixStream::connect(server.midi_socket()).expect("a connection");
            stream.set_read_timeout(Some(HANG)).expect("a timeout");
            plain(stream, phrases, left, death)
        }
        Way::Tls => {
            let name = rustls_pki_types::ServerName::try_from("127.0.0.1").expect("an address");
            let session = ClientConnection::new(trusting(None), name).expect("a session");
            let mortal = Mortal { stream: tcp(server.tls_port()), left };
            let mut tls = StreamOwned::new(session, mortal);
            let answered = talk(&mut tls, phrases);
            tls.sock.stream.die(death);
            answered
        }
    }
}

/// The numbers of bytes after which a client dies: all at the beginning, and then some.
fn lives(way: Way, all: usize) -> Vec<usize> {
    let dense = if way == Way::Tls { 2000 } else { 600 };
    let step = if way == Way::Tls { 41 } else { 3 };
    let mut lives: BTreeSet<usize> = (0..dense).step_by(step).collect();
    lives.extend((0..all).step_by(all / 60));
    // Around the end of all, byte by byte: commands that are not waited for.
    lives.extend(all.saturating_sub(140)..all);
    lives.into_iter().collect()
}

fn die_everywhere(way: Way) {
    let server = Builder::new().load("threads 2").config("appendonly yes").with_tls().start();
    let mut host = server.client();
    host.ok("ACL SETUSER alice on >secret ~* &* +@all");
    let used = |host: &mut Client| host.info_number("memory", "used_memory") as usize;
    let before = used(&mut host);
    let all: usize = conversation("x:0000").iter().map(|phrase| phrase.sent.len()).sum();
    let lives = lives(way, all);
    let next = AtomicUsize::new(0);
    at_once(4, |_| {
        let mut witness = Client::connect(server.midi_port()).expect("a connection");
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&left) = lives.get(number / DEATHS.len()) else { return };
            let death = DEATHS[number % DEATHS.len()];
            let phrases = conversation(&format!("x:{number:04}"));
            let answered = live(&server, way, &phrases, left, death);
            check(&mut witness, &phrases, answered, &format!("{way:?} {death:?} after {left}"));
        }
    });
    wait_until("all are gone", || host.info_number("midi_net", "midi_net_connections") == 0);
    assert_eq!(host.integer("MIDI.DBSIZE"), 0, "the witnesses have removed all");
    // Every shard takes writes, also all at once.
    for number in 0..2000 {
        host.ok(&format!("MIDI.SET key:{number} v"));
    }
    host.ok("MIDI.FLUSHALL");
    check_healthy(&server);
    wait_until("its memory is free", || used(&mut host) < before + (8 << 20));
}

/// All that a client was told has been done is so, and nothing else that it has said: of the phrase
/// in which it died, a part is missing.
fn check(witness: &mut Client, phrases: &[Phrase], answered: usize, who: &str) {
    let mut keys = BTreeMap::new();
    for (number, phrase) in phrases.iter().enumerate() {
        for key in &phrase.made {
            *keys.entry(key).or_insert(false) |= number < answered;
        }
        for key in phrase.gone.iter().filter(|_| number < answered) {
            keys.insert(key, false);
        }
    }
    for (key, exists) in keys {
        assert_eq!(witness.integer(&format!("DEL {key}")), i64::from(exists), "{who}: {key}");
    }
}

#[test]
fn on_tcp_they_leave_nothing() {
    die_everywhere(Way::Tcp);
}

#[test]
fn on_the_unix_socket_they_leave_nothing() {
    die_everywhere(Way::Unix);
}

#[test]
fn with_tls_they_leave_nothing() {
    die_everywhere(Way::Tls);
}
