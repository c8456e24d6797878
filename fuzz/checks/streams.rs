//! Streams: the same bytes get the same replies, and the same end, however they are cut, over TCP,
//! a Unix socket and TLS.
//!
//! A whole port runs here, without a server: the includer has `played` of tests/engine.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use midi::engine::{
    CertificateName, ClientCertificates, ListenAt, ListenerRow, PortConfig, Speaks, TlsSettings,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::ServerName;

use crate::common::free_port;
use crate::played::{Opened, on_tcp, run_messages};

/// A client's bytes that may be in flight while nobody reads.
const MOST_BYTES: usize = 16 << 10;

/// After so many pieces there is a pause, in which the port probably reads what it has.
const PAUSES: usize = 20;

/// Parts of commands whose replies differ from one connection or run to the next.
const DIFFERENT: [&[u8]; 11] = [
    b"client", b"hello", b"info", b"jobs", b"keys", b"latency", b"memory", b"object", b"random",
    b"scan", b"slowlog",
];

/// The first byte decides how the bytes are cut, and whether RESP3 is spoken. The rest is sent.
pub fn check(data: &[u8]) {
    let [mode, cut, text @ ..] = data else { return };
    let lower = text.to_ascii_lowercase();
    let differs = |part: &[u8]| lower.windows(part.len()).any(|window| window == part);
    if text.len() > MOST_BYTES || DIFFERENT.iter().any(|part| differs(part)) {
        return;
    }
    let hello = if mode & 1 == 0 { &b""[..] } else { b"HELLO 3\r\n" };
    let whole = Pieces { hello, text, step: &mut || usize::MAX };
    let expected = whole.said_over(Carrier::Tcp);
    for carrier in [Carrier::Unix, Carrier::Tcp, Carrier::Tls] {
        let mut step = steps(*cut);
        assert_eq!(
            Pieces { hello, text, step: &mut step }.said_over(carrier),
            expected,
            "{carrier:?}"
        );
    }
    if text.len() < 200 {
        let single = Pieces { hello, text, step: &mut || 1 };
        assert_eq!(single.said_over(Carrier::Unix), expected, "byte by byte");
    }
}

/// Lengths of pieces: short ones and, now and then, a longer one.
fn steps(cut: u8) -> impl FnMut() -> usize {
    let mut state = u32::from(cut);
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let drawn = (state >> 16) as usize;
        if drawn.is_multiple_of(8) { drawn } else { 1 + drawn % 24 }.max(1)
    }
}

#[derive(Clone, Copy, Debug)]
enum Carrier {
    Tcp,
    Unix,
    Tls,
}

/// What a client sends, and in which pieces.
struct Pieces<'a> {
    hello: &'a [u8],
    text: &'a [u8],
    step: &'a mut dyn FnMut() -> usize,
}

impl Pieces<'_> {
    /// All that the client is told until the connection ends. The keyspace is empty before.
    fn said_over(self, carrier: Carrier) -> Vec<u8> {
        let world = world();
        let mut flush = UnixStream::connect(&world.path).expect("a connection");
        flush.write_all(b"FLUSHALL SYNC\r\n").expect("room");
        flush.read_exact(&mut [0; 5]).expect("OK");
        match carrier {
            Carrier::Unix => {
                let mut stream = UnixStream::connect(&world.path).expect("a connection");
                self.talk(&mut stream, |stream| stream.shutdown(Shutdown::Write), Read::read)
            }
            Carrier::Tcp => {
                let mut stream = tcp(world.port);
                self.talk(&mut stream, |stream| stream.shutdown(Shutdown::Write), Read::read)
            }
            Carrier::Tls => {
                let name = ServerName::try_from("127.0.0.1").expect("an address");
                let client = ClientConnection::new(Arc::clone(&world.client), name);
                let mut stream = StreamOwned::new(client.expect("a session"), tcp(world.tls_port));
                stream.conn.complete_io(&mut stream.sock).expect("a handshake");
                let end = |stream: &mut TlsClient| {
                    stream.conn.send_close_notify();
                    stream.flush()?;
                    stream.sock.shutdown(Shutdown::Write)
                };
                self.talk(&mut stream, end, read_tls)
            }
        }
    }

    fn talk<S: Write>(
        self,
        stream: &mut S,
        end: impl FnOnce(&mut S) -> io::Result<()>,
        read: impl Fn(&mut S, &mut [u8]) -> io::Result<usize>,
    ) -> Vec<u8> {
        let mut rest = self.text;
        let mut sent = stream.write_all(self.hello);
        let mut pauses = PAUSES;
        while !rest.is_empty() && sent.is_ok() {
            let (now, later) = rest.split_at(rest.len().min((self.step)()));
            sent = stream.write_all(now).and_then(|()| stream.flush());
            rest = later;
            if pauses > 0 {
                thread::sleep(Duration::from_micros(30));
                pauses -= 1;
            }
        }
        // The port may have closed the connection already.
        let _ = sent.and_then(|()| end(stream));
        let mut said = Vec::new();
        let mut part = [0; 4096];
        loop {
            match read(stream, &mut part) {
                Ok(0) => return without_id(said),
                Ok(bytes) => said.extend_from_slice(&part[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Bytes came for a connection that was closed.
                Err(error) => {
                    let ended = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
                    assert!(ended.contains(&error.kind()), "{error}");
                    return without_id(said);
                }
            }
        }
    }
}

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Reads, and writes nothing: the port may have closed the connection, and left its last words.
fn read_tls(stream: &mut TlsClient, part: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.conn.reader().read(part) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        stream.conn.read_tls(&mut stream.sock)?;
        stream.conn.process_new_packets().map_err(io::Error::other)?;
    }
}

/// HELLO's reply without the connection's number.
fn without_id(mut said: Vec<u8>) -> Vec<u8> {
    let id = b"$2\r\nid\r\n:";
    if let Some(at) = said.windows(id.len()).position(|window| window == id) {
        let start = at + id.len();
        let digits = said[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        said.drain(start..start + digits);
    }
    said
}

fn tcp(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream
}

/// The port that all inputs talk to.
struct World {
    port: u16,
    tls_port: u16,
    path: String,
    client: Arc<ClientConfig>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(open)
}

fn open() -> World {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("one");
    let folder = std::env::temp_dir().join(format!("midi-streams-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a name").to_string()
    };
    let path = folder.join("port").to_str().expect("a name").to_string();
    let (port, tls_port) = (free_port(), free_port());
    let ports = PortConfig {
        listeners: vec![
            on_tcp(port, false),
            on_tcp(tls_port, true),
            ListenerRow {
                setting: "unixsocket",
                at: ListenAt::Unix { path: path.clone(), mode: 0 },
                is_tls: false,
                speaks: Speaks::Resp,
            },
        ],
        tls: Some(TlsSettings {
            cert_file: file("certificate", own.cert.pem()),
            key_file: file("key", own.signing_key.serialize_pem()),
            ca_cert_file: String::new(),
            ca_cert_dir: String::new(),
            clients: ClientCertificates::Ignored,
            name: CertificateName::Off,
            protocols: String::new(),
            ciphersuites: String::new(),
            prefer_server_ciphers: false,
            session_cache: 100,
            session_timeout: Duration::from_secs(300),
            unsupported: Vec::new(),
        }),
        ..PortConfig::default()
    };
    // The time stands still, so replies that depend on it are equal.
    let opened = Opened::with(2, 16, false, ports, || 1_000_000_000_000);
    thread::spawn(move || {
        loop {
            run_messages(&opened.engine);
            if opened.engine.context().main.may_sleep(crate::played::locked()) {
                opened.waker.sleep(Duration::from_millis(1));
                opened.engine.context().main.awake(crate::played::locked());
            }
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("protocols");
    let client = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    World { port, tls_port, path, client }
}
