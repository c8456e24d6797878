//! The promise: midi's port speaks TLS 1.2 and 1.3 with the host's certificates or its own, lets in
//! whom they allow, and neither strangers nor slow clients hold anybody up.
//!
//! What follows the host's settings is tested on hosts that were built with TLS. All that `make
//! test` knows are; on others these tests count as skipped.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::{HandshakeKind, ProtocolVersion};

use crate::common::certificates::{Authority, Certified, authority, config, files, trusting};
use crate::common::{Builder, Client, HANG, Server, Value, Wire, skip, wait_until};

pub fn started(arguments: &str) -> Server {
    Builder::new().load("threads 2").load(arguments).with_tls().start()
}

pub fn connect(server: &Server, config: &Arc<ClientConfig>) -> std::io::Result<Client> {
    Wire::tls(server.tls_port(), config).map(Client::over)
}

/// Who the client with this certificate is, if it is let in.
pub fn user_of(server: &Server, own: Option<&Certified>) -> std::io::Result<String> {
    Ok(connect(server, &trusting(own))?.try_call(&["ACL", "WHOAMI"])?.text())
}

fn alice() -> Certified {
    authority().client("alice", &["urn:nobody", "urn:bob", "urn:off"])
}

/// Whether the host has settings of TLS; counts a skip if not.
pub fn host_has_tls(server: &Server) -> bool {
    let has = !server.client().run("CONFIG GET tls-cert-file").array().is_empty();
    if !has {
        skip("the host is built without TLS");
    }
    has
}

fn connected(server: &Server) -> i64 {
    server.client().info_number("midi_net", "midi_net_connections")
}

#[test]
fn both_protocols_are_spoken() {
    let server = started("");
    for (version, number) in [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let config = config(None, &[version], &authority().certificate);
        let mut client = connect(&server, &config).expect("a connection");
        assert_eq!(client.wire().session().protocol_version(), Some(number));
        client.ok("SET k v");
        assert_eq!(client.run("GET k"), Value::bulk("v"));
        let lines: Vec<Vec<String>> =
            (0..2000).map(|number| vec!["ECHO".into(), format!("{number}")]).collect();
        let replies = client.pipeline(&lines);
        assert!(replies.iter().enumerate().all(|(at, it)| *it == Value::bulk(at.to_string())));
        // close_notify, and not just the end of the connection.
        assert_eq!(client.run("QUIT"), Value::ok());
        let Wire::Tls(tls) = client.wire() else { panic!("this is TLS") };
        assert_eq!(tls.read(&mut [0]).expect("the session ends in order"), 0);
    }
    let stranger = Authority::new();
    let config = config(None, rustls::ALL_VERSIONS, &stranger.certificate);
    assert!(connect(&server, &config).is_err(), "the client does not know the authority");
    // The plain port beside it.
    assert_eq!(Client::connect(server.midi_port()).unwrap().run("GET k"), Value::bulk("v"));
}

#[test]
fn protocols_and_suites_are_those_that_are_set() {
    let server = started("tls-protocols TLSv1.3 tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256");
    let older = config(None, &[&rustls::version::TLS12], &authority().certificate);
    assert!(connect(&server, &older).is_err());
    let mut client = server.midi_client();
    let suite = client.wire().session().negotiated_cipher_suite().expect("a suite");
    assert_eq!(suite.suite().as_str(), Some("TLS13_CHACHA20_POLY1305_SHA256"));
    server.client().ok("CONFIG SET midi.tls-protocols TLSv1.2");
    connect(&server, &older).expect("a connection").ok("SET k v");
    client.ok("SET k w");
}

#[test]
fn clients_need_certificates_where_it_is_said() {
    let server = started("tls-auth-clients yes");
    let stranger = Authority::new().client("alice", &[]);
    assert!(user_of(&server, None).is_err());
    assert!(user_of(&server, Some(&stranger)).is_err());
    assert_eq!(user_of(&server, Some(&alice())).unwrap(), "default");
    server.client().ok("CONFIG SET midi.tls-auth-clients optional");
    assert_eq!(user_of(&server, None).unwrap(), "default");
    assert!(user_of(&server, Some(&stranger)).is_err());
    assert_eq!(user_of(&server, Some(&alice())).unwrap(), "default");
    server.client().ok("CONFIG SET midi.tls-auth-clients no");
    assert_eq!(user_of(&server, Some(&stranger)).unwrap(), "default");
}

#[test]
fn certificates_name_users() {
    let server = started("tls-auth-clients optional tls-auth-clients-user CN");
    let mut host = server.client();
    host.ok("ACL SETUSER alice on >secret ~* +@all");
    host.ok("ACL SETUSER urn:bob on >secret ~* +@all");
    host.ok("ACL SETUSER urn:off off >secret ~* +@all");
    assert_eq!(user_of(&server, Some(&alice())).unwrap(), "alice");
    assert_eq!(user_of(&server, None).unwrap(), "default");
    let failed = |host: &mut Client| host.info_number("midi_net", "midi_net_failed_logins");
    assert_eq!(failed(&mut host), 0);
    for name in ["nobody", "urn:off"] {
        let before = failed(&mut host);
        let own = authority().client(name, &[]);
        assert_eq!(user_of(&server, Some(&own)).unwrap(), "default", "{name}");
        assert_eq!(failed(&mut host), before + 1);
        let log = format!("{:?}", host.run("ACL LOG"));
        assert!(log.contains(name), "{log}");
    }
    host.ok("CONFIG SET midi.tls-auth-clients-user URI");
    assert_eq!(user_of(&server, Some(&alice())).unwrap(), "urn:bob");
    assert_eq!(user_of(&server, Some(&authority().client("alice", &[]))).unwrap(), "default");
    let off = authority().client("alice", &["urn:off"]);
    assert_eq!(user_of(&server, Some(&off)).unwrap(), "default");
    host.ok("CONFIG SET midi.tls-auth-clients-user off");
    assert_eq!(user_of(&server, Some(&alice())).unwrap(), "default");
    // One that is not logged in may be by its certificate, and its first command knows.
    host.ok("CONFIG SET midi.tls-auth-clients-user CN");
    host.ok("CONFIG SET requirepass top");
    let noauth = Value::error("NOAUTH Authentication required.");
    assert_eq!(server.midi_client().run("GET k"), noauth);
    let mut client = connect(&server, &trusting(Some(&alice()))).expect("a connection");
    client.ok("SET k v");
    client.ok("AUTH top");
    assert_eq!(client.run("ACL WHOAMI").text(), "default");
}

#[test]
fn certificates_are_read_again() {
    let server = started("");
    let mut host = server.client();
    let mut before = server.midi_client();
    let [cert, key, _] = files(server.dir());
    let other = Authority::new();
    let new = other.server();
    let path = server.dir().join("both.pem");
    std::fs::write(&path, format!("{}{}", new.certificate, new.key)).expect("a file");
    // Not while the key is that of another certificate.
    let set = format!("CONFIG SET midi.tls-cert-file {}", path.display());
    let reply = host.run(&set);
    assert!(reply.is_error() && reply.text().contains("tls-key-file"), "{reply:?}");
    let got = host.run("CONFIG GET midi.tls-cert-file").map();
    assert_eq!(got["midi.tls-cert-file"].text(), cert.display().to_string());
    server.midi_client().ok("SET k v");
    let reply = host.call(&[
        "CONFIG",
        "SET",
        "midi.tls-ca-cert-file",
        "/nonsense",
        "midi.tls-auth-clients",
        "yes",
    ]);
    assert!(reply.is_error() && reply.text().contains("/nonsense"), "{reply:?}");
    server.midi_client().ok("SET k v");
    // The key may be in the certificate's file.
    let both = path.display().to_string();
    let set = ["CONFIG", "SET", "midi.tls-cert-file", &both, "midi.tls-key-file", ""];
    assert_eq!(host.call(&set), Value::ok());
    assert!(server.try_midi_client().is_err(), "an authority that it does not know");
    let knowing = config(None, rustls::ALL_VERSIONS, &other.certificate);
    connect(&server, &knowing).expect("a connection").ok("SET k w");
    assert_eq!(before.run("GET k"), Value::bulk("w"), "it goes on with what it had");
    let key = key.display().to_string();
    let cert = cert.display().to_string();
    let set = ["CONFIG", "SET", "midi.tls-cert-file", &cert, "midi.tls-key-file", &key];
    assert_eq!(host.call(&set), Value::ok());
    server.midi_client().ok("SET k v");
}

/// A server whose certificates are the host's settings.
pub fn following() -> Server {
    let server = Builder::new().load("threads 2").with_tls().start();
    let [cert, key, ca] = files(server.dir()).map(|path| path.display().to_string());
    let mut host = server.client();
    let set = ["tls-cert-file", &cert, "tls-key-file", &key, "tls-ca-cert-file", &ca];
    if !host.run("CONFIG GET tls-cert-file").array().is_empty() {
        assert_eq!(host.call(&[&["CONFIG", "SET"][..], &set].concat()), Value::ok());
        let own = ["midi.tls-cert-file", "", "midi.tls-key-file", "", "midi.tls-ca-cert-file", ""];
        assert_eq!(host.call(&[&["CONFIG", "SET"][..], &own].concat()), Value::ok());
    }
    server
}

#[test]
fn the_hosts_settings_are_followed() {
    let server = following();
    if !host_has_tls(&server) {
        return;
    }
    let mut host = server.client();
    server.midi_client().ok("SET k v");
    // The same path, with another certificate in the file.
    let [cert, key, _] = files(server.dir());
    let other = Authority::new();
    let new = other.server();
    std::fs::write(&cert, &new.certificate).expect("a file");
    std::fs::write(&key, &new.key).expect("a file");
    server.midi_client().ok("SET k v");
    host.ok(&format!("CONFIG SET tls-cert-file {}", cert.display()));
    assert!(server.try_midi_client().is_err());
    let knowing = config(None, rustls::ALL_VERSIONS, &other.certificate);
    connect(&server, &knowing).expect("a connection").ok("SET k v");
    // Newer hosts have it.
    if host.run("CONFIG SET tls-auth-clients-user CN") == Value::ok() {
        host.ok("ACL SETUSER alice on nopass ~* +@all");
        host.ok("CONFIG SET midi.tls-auth-clients optional");
        let config = config(Some(&alice()), rustls::ALL_VERSIONS, &other.certificate);
        let mut client = connect(&server, &config).expect("a connection");
        assert_eq!(client.run("ACL WHOAMI").text(), "alice");
        host.ok("CONFIG SET midi.tls-auth-clients no");
    }
    // What the host takes and midi cannot honour.
    host.ok("CONFIG SET tls-ciphers HIGH");
    let line = "midi's TLS port goes on with what it had: tls-ciphers is set";
    assert!(server.log().contains(line), "{}", server.log());
    connect(&server, &knowing).expect("a connection").ok("SET k v");
    let reply = host.run("CONFIG SET midi.tls-auth-clients yes");
    assert!(reply.is_error() && reply.text().contains("tls-ciphers is set"), "{reply:?}");
    assert_eq!(host.call(&["CONFIG", "SET", "tls-ciphers", ""]), Value::ok());
    host.ok("CONFIG SET tls-protocols TLSv1.2");
    let newer = config(None, &[&rustls::version::TLS13], &other.certificate);
    assert!(connect(&server, &newer).is_err());
}

#[test]
fn settings_that_are_not_supported_keep_the_server_from_starting() {
    let refused = |builder: Builder, text: &str| {
        let log = builder.with_tls().try_start().err().expect("it does not start");
        assert!(log.contains(&format!("midi.tls-port: {text}")), "{text}:\n{log}");
    };
    for (argument, text) in [
        ("tls-protocols TLSv1.1", "tls-protocols: midi's TLS port does not support 'TLSv1.1'"),
        ("tls-ciphersuites X", "tls-ciphersuites: midi's TLS port does not support 'X'"),
        ("tls-cert-file /nonsense", "tls-cert-file: /nonsense"),
        ("tls-key-file /nonsense", "tls-key-file: /nonsense"),
        ("tls-auth-clients yes tls-ca-cert-file /nonsense", "tls-ca-cert-file: /nonsense"),
        ("tls-auth-clients yes tls-ca-cert-dir /nonsense", "tls-ca-cert-dir: /nonsense"),
    ] {
        refused(Builder::new().load(argument), text);
    }
    if host_has_tls(&Builder::plain().start()) {
        refused(Builder::new().config("tls-ciphers HIGH"), "tls-ciphers is set");
        refused(Builder::new().config("tls-dh-params-file x"), "tls-dh-params-file is set");
    }
    let log = Builder::new().load("tls-auth-clients maybe").try_start().err().expect("refused");
    assert!(log.contains("tls-auth-clients cannot be 'maybe'"), "{log}");
}

/// What a client sends at its first step: a whole ClientHello.
fn hello() -> Vec<u8> {
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut session = ClientConnection::new(trusting(None), name).expect("a session");
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).expect("bytes");
    bytes
}

fn raw(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.tls_port())).expect("a connection");
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(HANG)).expect("a timeout");
    stream
}

/// Shakes hands and sends a PING, at most this many bytes at a time, and gives up after
/// `most` bytes. Returns how many were sent, and whether the reply came.
fn ping_in_pieces(server: &Server, piece: usize, most: usize) -> (usize, bool) {
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut session = ClientConnection::new(trusting(None), name).expect("a session");
    session.writer().write_all(b"PING\r\n").expect("room");
    let (mut stream, mut sent) = (raw(server), 0);
    loop {
        let mut bytes = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut bytes).expect("bytes");
        }
        for piece in bytes[..bytes.len().min(most - sent)].chunks(piece) {
            stream.write_all(piece).expect("sent");
            sent += piece.len();
        }
        if sent == most {
            return (sent, false);
        }
        // A byte at a time, too.
        let mut byte = [0; 1];
        let got = stream.read(&mut byte).expect("an answer");
        session.read_tls(&mut &byte[..got]).expect("bytes");
        session.process_new_packets().expect("the server keeps to the protocol");
        let mut reply = [0; 7];
        if session.reader().read(&mut reply).is_ok_and(|bytes| reply[..bytes] == *b"+PONG\r\n") {
            return (sent, true);
        }
    }
}

#[test]
fn records_may_come_in_any_pieces() {
    let server = started("");
    for piece in [1, 2, 5, 100] {
        assert!(ping_in_pieces(&server, piece, usize::MAX).1, "{piece}");
    }
}

#[test]
fn a_handshake_may_end_at_every_byte() {
    let server = started("");
    let (all, _) = ping_in_pieces(&server, usize::MAX, usize::MAX);
    for most in 1..all {
        ping_in_pieces(&server, usize::MAX, most);
    }
    wait_until("all of them are gone", || connected(&server) == 0);
    server.midi_client().ok("SET k v");
}

#[test]
fn garbage_ends_the_connection() {
    let server = started("");
    let mut random = crate::common::Random::new(1);
    let mut inputs: Vec<Vec<u8>> = vec![b"PING\r\n".to_vec(), vec![0; 100], vec![0xff; 40_000]];
    // A record that announces more than one may have.
    inputs.push([&[22, 3, 1, 0xff, 0xff][..], &[0; 70_000]].concat());
    // A message of the handshake that announces 16 MiB, in many records.
    inputs.push(
        [&[22, 3, 1, 0, 5, 1, 0xff, 0xff, 0xff, 0][..], &[22, 3, 1, 0, 1, 0].repeat(20_000)]
            .concat(),
    );
    for _ in 0..100 {
        let mut bytes = hello();
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        inputs.push(bytes);
    }
    for input in inputs {
        let mut stream = raw(&server);
        // It may have been closed meanwhile.
        let _ = stream.write_all(&input);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    wait_until("all of them are gone", || connected(&server) == 0);
    server.midi_client().ok("SET k v");
}

#[test]
fn large_values_go_both_ways() {
    let server = started("");
    let value: Vec<u8> = (0..10 << 20).map(|at: u32| (at % 251) as u8).collect();
    let mut client = server.midi_client();
    assert_eq!(client.call(&[&b"SET"[..], b"k", &value]), Value::ok());
    assert_eq!(client.run("GET k").bytes(), value);
    // Several clients, one of which reads slowly.
    let mut slow = server.midi_client();
    (0..4).for_each(|_| slow.send_line("GET k"));
    for _ in 0..3 {
        assert_eq!(client.run("GET k").bytes().len(), value.len());
    }
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(50));
        assert_eq!(slow.read().bytes(), value);
    }
    // Half of the connection ends: the replies still come.
    (0..2).for_each(|_| slow.send_line("GET k"));
    slow.send_no_more();
    for _ in 0..2 {
        assert_eq!(slow.read().bytes(), value);
    }
    assert!(slow.is_closed());
    // One that does not read at all is closed.
    server.client().ok("CONFIG SET midi.output-buffer-hard-limit 2mb");
    let closed = || server.client().info_number("midi_net", "midi_net_closed_for_limits");
    let before = closed();
    let mut lazy = server.midi_client();
    let mget: Vec<&str> = std::iter::once("MGET").chain(std::iter::repeat_n("k", 4)).collect();
    lazy.try_send(&crate::common::encoded(&mget)).expect("it is let in");
    wait_until("it is closed", || closed() > before);
}

#[test]
fn half_open_handshakes_hold_nobody_up() {
    let server = started("timeout 0");
    let rss = || server.client().info_number("memory", "used_memory");
    let mut client = server.midi_client();
    client.ok("SET k v");
    let before = rss();
    let hello = hello();
    let mut half: Vec<TcpStream> = (0..200).map(|_| raw(&server)).collect();
    for (number, stream) in half.iter_mut().enumerate() {
        let most = if number % 2 == 0 { hello.len() } else { hello.len() - 1 };
        stream.write_all(&hello[..most]).expect("sent");
    }
    let started = Instant::now();
    for _ in 0..100 {
        assert_eq!(client.run("GET k"), Value::bulk("v"));
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    wait_until("all are connected", || connected(&server) == 201);
    let growth = rss() - before;
    assert!(growth < 200 * (64 << 10), "{growth} bytes for 200 handshakes");
    server.client().ok("CONFIG SET midi.timeout 3");
    // This one is not idle, unless the machine holds it up for so long.
    let started = Instant::now();
    while connected(&server) > 1 {
        assert_eq!(client.run("GET k"), Value::bulk("v"));
        assert!(started.elapsed() < HANG);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(half[0].read_to_end(&mut Vec::new()).is_ok());
}

#[test]
fn limits_hold_for_tls() {
    let server = started("maxclients 2 timeout 0");
    let mut clients = [server.midi_client(), server.midi_client()];
    assert!(server.try_midi_client().is_err(), "no place is left");
    clients.iter_mut().for_each(|client| client.ok("SET k v"));
    let list = clients[0].run("CLIENT LIST").text();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains(&format!("laddr=127.0.0.1:{} ", server.tls_port())), "{list}");
    let id = clients[1].id();
    assert_eq!(clients[0].integer(&format!("CLIENT KILL ID {id}")), 1);
    assert!(clients[1].is_closed());
    wait_until("a place is free", || server.try_midi_client().is_ok());
}

#[test]
fn nobody_is_somebody_else_while_the_host_cannot_say() {
    let server = started("tls-auth-clients optional tls-auth-clients-user CN");
    let mut host = server.client();
    host.ok("ACL SETUSER alice on nopass ~* +@all");
    host.ok("CONFIG SET lua-time-limit 1");
    let mut script = server.client();
    script.send(&crate::common::encoded(&["EVAL", "while true do end", "0"]));
    wait_until("the script takes too long", || host.run("PING").text().starts_with("BUSY"));
    let let_in = user_of(&server, Some(&alice()));
    assert!(let_in.is_err(), "{let_in:?}");
    host.ok("SCRIPT KILL");
    assert!(script.read().is_error());
    assert_eq!(user_of(&server, Some(&alice())).unwrap(), "alice");
}

/// The reply to a line that a client sends with the last record of its handshake, and with the end
/// of what it sends.
fn asked_at_once(server: &Server, own: &Certified, line: &str) -> String {
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut session = ClientConnection::new(trusting(Some(own)), name).expect("a session");
    session.writer().write_all(line.as_bytes()).expect("room");
    let (mut stream, mut reply, mut has_ended) = (raw(server), Vec::new(), false);
    loop {
        if !session.is_handshaking() && !has_ended {
            session.send_close_notify();
            has_ended = true;
        }
        let mut bytes = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut bytes).expect("bytes");
        }
        stream.write_all(&bytes).expect("sent");
        let mut room = [0; 16 << 10];
        let got = stream.read(&mut room).expect("an answer");
        if got == 0 {
            return String::from_utf8_lossy(&reply).into_owned();
        }
        let mut got = &room[..got];
        while !got.is_empty() {
            session.read_tls(&mut got).expect("bytes");
            session.process_new_packets().expect("the server keeps to the protocol");
        }
        let mut text = [0; 1000];
        while let Ok(bytes @ 1..) = session.reader().read(&mut text) {
            reply.extend_from_slice(&text[..bytes]);
        }
    }
}

/// A client that has sent all that it will ever send is its certificate's user, too.
#[test]
fn certificates_name_users_that_have_said_everything() {
    let server = started("tls-auth-clients optional tls-auth-clients-user CN");
    server.client().ok("ACL SETUSER alice on >secret ~* +@all");
    assert_eq!(asked_at_once(&server, &alice(), "ACL WHOAMI\r\n"), "$5\r\nalice\r\n");
}

/// An address of this machine other than 127.0.0.1, if it has one.
fn outer_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent; nobody owns TEST-NET-1.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn protected_mode_answers_after_the_handshake() {
    let Some(address) = outer_address() else {
        return skip("there is no address but 127.0.0.1");
    };
    let server = Builder::new().config("bind 0.0.0.0").load("threads 2").with_tls().start();
    let told = || {
        let mut stream = TcpStream::connect((address, server.tls_port())).expect("a connection");
        stream.set_read_timeout(Some(HANG)).expect("a timeout");
        // The certificate is that of 127.0.0.1.
        let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
        let mut session = ClientConnection::new(trusting(None), name).expect("a session");
        let mut tls = rustls::Stream::new(&mut session, &mut stream);
        tls.write_all(b"PING\r\n").expect("sent");
        let mut text = vec![0; 7];
        tls.read_exact(&mut text).expect("an answer");
        String::from_utf8(text).expect("text")
    };
    assert_eq!(told(), "-DENIED");
    wait_until("it is gone", || connected(&server) == 0);
    server.client().ok("CONFIG SET midi.protected-mode no");
    assert_eq!(told(), "+PONG\r\n");
}

#[test]
fn sessions_are_resumed() {
    let server = started("");
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
        let mut resuming = (*config(None, versions, &authority().certificate)).clone();
        resuming.resumption = Resumption::in_memory_sessions(8);
        let resuming = Arc::new(resuming);
        let kind = || {
            let mut client = connect(&server, &resuming).expect("a connection");
            client.ok("SET k v");
            client.wire().session().handshake_kind()
        };
        assert_eq!(kind(), Some(HandshakeKind::Full));
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        if host_has_tls(&server) {
            server.client().ok("CONFIG SET tls-session-caching no");
            assert_eq!(kind(), Some(HandshakeKind::Full));
            assert_eq!(kind(), Some(HandshakeKind::Full));
            server.client().ok("CONFIG SET tls-session-caching yes");
        }
    }
}
