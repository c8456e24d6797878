//! The promise: midi's TLS port follows the host's settings as the host's own TLS port does, or
//! says which of them it cannot honour. OpenSSL's own tool is the client, and makes the files.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustls::HandshakeKind;
use rustls::client::{ClientConfig, Resumption};

use crate::common::certificates::{Authority, Certified, authority, config, files, trusting};
use crate::common::{Builder, Client, Server, Value, skip};
use crate::tls::{connect, following, host_has_tls, started, user_of};

/// Runs openssl; its output.
fn openssl(line: &str, dir: &Path, input: &str) -> Output {
    let mut child = Command::new("openssl")
        .args(line.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl runs");
    // It may end before it has read everything.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("its end")
}

/// The same, for what must succeed; its output as text.
#[track_caller]
fn made(line: &str, dir: &Path) -> String {
    let output = openssl(line, dir, "");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether there is the tool; counts a skip if not.
#[track_caller]
fn has_openssl() -> bool {
    let has = Command::new("openssl").arg("version").output().is_ok_and(|it| it.status.success());
    if !has {
        skip("there is no openssl (Debian package openssl)");
    }
    has
}

/// Sets some settings together.
#[track_caller]
fn set(server: &Server, settings: &[&str]) {
    let line = [&["CONFIG", "SET"][..], settings].concat();
    assert_eq!(server.client().call(&line), Value::ok(), "{settings:?}");
}

fn written(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).expect("a file");
    path
}

#[test]
fn openssl_is_a_client_like_others() {
    if !has_openssl() {
        return;
    }
    let server = started("tls-auth-clients yes");
    let own = authority().client("alice", &[]);
    written(server.dir(), "own.crt", &own.certificate);
    written(server.dir(), "own.key", &own.key);
    let line = |more: &str| {
        let to = format!("s_client -connect 127.0.0.1:{} -ign_eof", server.tls_port());
        format!("{to} -CAfile ca.crt -verify_return_error {more}")
    };
    // -ign_eof: it ends when the server does, which QUIT has it do.
    let said = |more: &str| {
        let output = openssl(&line(more), server.dir(), "PING\r\nECHO over-tls\r\nQUIT\r\n");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text)
    };
    let with_own = "-cert own.crt -key own.key";
    for (more, protocol, cipher) in [
        ("-tls1_3", "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ("-tls1_2", "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("-tls1_2 -cipher ECDHE+CHACHA20", "TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("-tls1_3 -servername other.example", "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ] {
        let (succeeded, text) = said(&format!("{more} {with_own}"));
        assert!(succeeded, "{more}: {text}");
        assert!(text.contains(&format!("New, {protocol}, Cipher is {cipher}")), "{more}: {text}");
        assert!(text.contains("Verify return code: 0 (ok)"), "{more}: {text}");
        assert!(text.contains("+PONG\r\n$8\r\nover-tls\r\n+OK\r\n"), "{more}: {text}");
    }
    for more in [
        "-tls1_3",
        "-tls1_2",
        &format!("-tls1_2 -cipher AES256-SHA {with_own}"),
        &format!("-tls1_1 -cipher ALL:@SECLEVEL=0 {with_own}"),
    ] {
        let (_, text) = said(more);
        assert!(!text.contains("+PONG"), "{more}: {text}");
    }
}

#[test]
fn authorities_may_have_a_folder() {
    if !has_openssl() {
        return;
    }
    let server = started("");
    let other = Authority::new();
    let [ours, theirs] = [authority().client("alice", &[]), other.client("bob", &[])];
    let dir = server.dir().join("authorities");
    fs::create_dir(&dir).expect("a folder");
    written(&dir, "ours.pem", &authority().certificate);
    written(&dir, "README", "not a certificate");
    made("rehash .", &dir);
    assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 3, "a link by the name's hash");
    let path = dir.display().to_string();
    let lets_in = |own: &Certified| user_of(&server, Some(own)).is_ok();
    let own = ["midi.tls-ca-cert-file", "", "midi.tls-ca-cert-dir", &path];
    set(&server, &[&own[..], &["midi.tls-auth-clients", "yes"]].concat());
    assert_eq!((lets_in(&ours), lets_in(&theirs)), (true, false));
    assert!(user_of(&server, None).is_err());
    // Both a file and a folder.
    let file = written(server.dir(), "theirs.crt", &other.certificate).display().to_string();
    set(&server, &["midi.tls-ca-cert-file", &file]);
    assert_eq!((lets_in(&ours), lets_in(&theirs)), (true, true));
    if host_has_tls(&server) {
        // The host's folder; what is new there is seen at the next CONFIG SET.
        let [cert, key, _] = files(server.dir()).map(|path| path.display().to_string());
        set(&server, &["tls-cert-file", &cert, "tls-key-file", &key, "tls-ca-cert-dir", &path]);
        set(&server, &["midi.tls-ca-cert-file", "", "midi.tls-ca-cert-dir", ""]);
        assert_eq!((lets_in(&ours), lets_in(&theirs)), (true, false));
        written(&dir, "theirs.pem", &other.certificate);
        set(&server, &["tls-ca-cert-dir", &path]);
        assert_eq!((lets_in(&ours), lets_in(&theirs)), (true, true));
    }
}

#[test]
fn keys_with_a_password_are_refused() {
    if !has_openssl() {
        return;
    }
    let server = following();
    let fault = "tls-key-file-pass is set, and midi's TLS port does not support it";
    if host_has_tls(&server) {
        made("pkey -in server.key -aes256 -passout pass:secret -out locked.key", server.dir());
        let locked = server.dir().join("locked.key").display().to_string();
        // The host takes it, and midi goes on with the old one.
        set(&server, &["tls-key-file", &locked, "tls-key-file-pass", "secret"]);
        let log = server.log();
        assert!(
            log.contains(&format!("midi's TLS port goes on with what it had: {fault}")),
            "{log}"
        );
        server.midi_client().ok("SET k v");
        // The host's password is that of the host's key, not of midi's own.
        let [cert, key, _] = files(server.dir()).map(|path| path.display().to_string());
        set(&server, &["midi.tls-cert-file", &cert, "midi.tls-key-file", &key]);
        server.midi_client().ok("SET k v");
        let line = ["CONFIG", "SET", "midi.tls-key-file", &locked];
        let reply = server.client().call(&line);
        assert!(reply.is_error() && reply.text().contains("tls-key-file: "), "{reply:?}");
        server.midi_client().ok("SET k v");
    }
}

#[test]
fn certificates_of_version_1_are_refused() {
    if !has_openssl() {
        return;
    }
    let server = started("tls-auth-clients optional");
    let dir = server.dir();
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    made(&format!("{new} -x509 -subj /CN=old -keyout old-ca.key -out old-ca.crt"), dir);
    made(&format!("{new} -subj /CN=alice -keyout old.key -out old.csr"), dir);
    let sign = "x509 -req -in old.csr -CA old-ca.crt -CAkey old-ca.key -CAcreateserial";
    made(&format!("{sign} -out old.crt"), dir);
    if !made("x509 -in old.crt -noout -text", dir).contains("Version: 1 ") {
        return skip("this openssl makes certificates of version 3 alone");
    }
    written(dir, "extensions", "subjectAltName=URI:urn:alice\n");
    made(&format!("{sign} -extfile extensions -out new.crt"), dir);
    let ca = dir.join("old-ca.crt").display().to_string();
    set(&server, &["midi.tls-ca-cert-file", &ca]);
    // rustls does not even show such a one.
    let is_let_in = |own: &str| {
        let to = format!("s_client -connect 127.0.0.1:{} -ign_eof {own}", server.tls_port());
        let output = openssl(&to, dir, "PING\r\nQUIT\r\n");
        String::from_utf8_lossy(&output.stdout).contains("+PONG")
    };
    assert!(is_let_in("-cert new.crt -key old.key"), "version 3");
    assert!(!is_let_in("-cert old.crt -key old.key"), "version 1");
    assert!(is_let_in(""), "they may show none");
}

/// A client that resumes its sessions.
fn resuming(version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut config = (*config(None, &[version], &authority().certificate)).clone();
    config.resumption = Resumption::in_memory_sessions(8);
    Arc::new(config)
}

/// How such a client's next connection begins.
fn handshake(server: &Server, config: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let mut client = connect(server, config).expect("a connection");
    // The tickets come with the first reply.
    client.ok("SET k v");
    client.wire().session().handshake_kind()
}

#[test]
fn sessions_end_as_the_host_says() {
    let server = following();
    if !host_has_tls(&server) {
        return;
    }
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        set(&server, &["tls-session-cache-timeout", "1"]);
        let client = resuming(version);
        assert_eq!(handshake(&server, &client), Some(HandshakeKind::Full));
        thread::sleep(Duration::from_millis(1100));
        assert_eq!(handshake(&server, &client), Some(HandshakeKind::Full), "{version:?}");
        set(&server, &["tls-session-cache-timeout", "300"]);
        let client = resuming(version);
        assert_eq!(handshake(&server, &client), Some(HandshakeKind::Full));
        thread::sleep(Duration::from_millis(1100));
        assert_eq!(handshake(&server, &client), Some(HandshakeKind::Resumed), "{version:?}");
    }
}

#[test]
fn as_many_sessions_are_kept_as_the_host_says() {
    let server = following();
    if !host_has_tls(&server) {
        return;
    }
    // One session a connection: TLS 1.3 has more.
    let of_first_after = |others: usize| {
        let first = resuming(&rustls::version::TLS12);
        assert_eq!(handshake(&server, &first), Some(HandshakeKind::Full));
        for _ in 0..others {
            handshake(&server, &resuming(&rustls::version::TLS12));
        }
        handshake(&server, &first)
    };
    set(&server, &["tls-session-cache-size", "4"]);
    assert_eq!(of_first_after(2), Some(HandshakeKind::Resumed));
    assert_eq!(of_first_after(20), Some(HandshakeKind::Full));
    // None is without a limit there; the most that it takes is more than there is memory for.
    for size in ["2147483647", "0"] {
        set(&server, &["tls-session-cache-size", size]);
        assert_eq!(of_first_after(20), Some(HandshakeKind::Resumed), "{size}");
        let used = server.client().info_number("memory", "used_memory");
        assert!(used < 64 << 20, "{used} bytes with a size of {size}");
    }
}

/// The strictest answer where the host does not tell its own.
#[test]
fn midis_own_settings_do_where_the_host_tells_none() {
    let server =
        Builder::new().config("rename-command CONFIG \"\"").load("threads 2").with_tls().start();
    server.midi_client().ok("SET k v");
    drop(server);
    let dir = std::env::temp_dir().join(format!("midi-tls-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    let own = authority().server();
    let [cert, key, ca] = files(&dir);
    fs::write(&cert, own.certificate).expect("a file");
    fs::write(&key, own.key).expect("a file");
    fs::write(&ca, &authority().certificate).expect("a file");
    let port = crate::common::free_port();
    let with = |settings: String| {
        Builder::new()
            .config("rename-command CONFIG \"\"")
            .load(&format!("threads 2 tls-port {port}{settings}"))
            .try_start()
    };
    let none = with(String::new()).err().expect("it does not start");
    assert!(none.contains("midi.tls-port: tls-cert-file is not set"), "{none}");
    let files = format!(" tls-cert-file {} tls-key-file {}", cert.display(), key.display());
    let open = with(files.clone()).err().expect("it does not start");
    assert!(open.contains("name no authority, and tls-auth-clients is not no"), "{open}");
    let server = with(format!("{files} tls-ca-cert-file {}", ca.display())).expect("it starts");
    let wire = |own| crate::common::Wire::tls(port, &trusting(own)).map(Client::over);
    let alice = authority().client("alice", &[]);
    let greet = |own| wire(own).and_then(|mut client| client.try_call(&["PING"]));
    assert!(greet(None).is_err(), "clients need a certificate");
    assert_eq!(greet(Some(&alice)).expect("a reply").text(), "PONG");
    drop(server);
    let _ = fs::remove_dir_all(&dir);
}

#[test]
fn certificates_change_under_connected_clients() {
    let server = started("");
    let pairs: Vec<[String; 2]> = (0..2)
        .map(|number| {
            let own = authority().server();
            let file = |kind: &str, text: &str| {
                written(server.dir(), &format!("{number}.{kind}"), text).display().to_string()
            };
            [file("crt", &own.certificate), file("key", &own.key)]
        })
        .collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Some stay, and others come anew, all the time.
        for comes_anew in [false, false, true, true] {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut client = server.midi_client();
                while !done.load(Ordering::Relaxed) {
                    if comes_anew {
                        client = server.midi_client();
                    }
                    client.ok("SET k v");
                    assert_eq!(client.run("GET k"), Value::bulk("v"));
                }
            });
        }
        for round in 0..60 {
            let [cert, key] = &pairs[round % 2];
            set(&server, &["midi.tls-cert-file", cert, "midi.tls-key-file", key]);
        }
        done.store(true, Ordering::Relaxed);
    });
}
