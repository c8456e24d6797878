//! TLS: however a client's bytes are cut into reads, the session opens the same text, or breaks
//! with the same alert; and what it seals is what the client opens.

use std::io::{Read, Write};
use std::mem::take;
use std::sync::{Arc, OnceLock};

use midi::net::TlsStream;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};

/// The first byte decides what a client does, the second how its bytes are cut, two more where one
/// of them is changed. What follows is its text, or all that it sends.
pub fn check(data: &[u8]) {
    let [mode, cut, place @ .., _] = data else { return };
    let [high, low, text @ ..] = place else { return };
    if mode & 1 != 0 {
        return anything(text, *cut);
    }
    let mut both = Both::new(mode & 2 != 0, (mode & 4 != 0).then_some(32 + usize::from(*cut)));
    let mut steps = steps(*cut);
    if mode & 8 != 0 {
        // Somewhere in what the client sends there is another byte.
        both.change = Some((usize::from(u16::from_be_bytes([*high, *low])), mode | 1));
    }
    both.client.writer().write_all(text).expect("room");
    let sound = both.talk(&mut steps);
    let changed = both.change.is_some_and(|(place, _)| place < both.sent);
    assert!(sound || changed, "the client keeps to the protocol");
    assert!(text.starts_with(&both.opened), "no text that was not sent");
    if sound && !changed {
        assert_eq!(both.opened, text);
        both.echo(text);
    }
}

/// Bytes that need not be TLS.
fn anything(bytes: &[u8], cut: u8) {
    let heard = |mut step: Box<dyn FnMut() -> usize>| {
        let mut server = TlsStream::new(&settings().0).expect("randomness");
        let (mut at, mut text, mut sound) = (0, Vec::new(), true);
        while at < bytes.len() && sound {
            let end = bytes.len().min(at + step());
            sound = receive(&mut server, &bytes[at..end], &mut text);
            at = end;
        }
        server.end();
        assert!(text.is_empty(), "there is no text before a handshake");
        let said = server.sealed.bytes();
        // A ServerHello and what follows it differ each time. An alert alone does not.
        (sound, said.get(7).is_none().then(|| said.to_vec()))
    };
    let whole = heard(Box::new(|| usize::MAX >> 1));
    assert_eq!(heard(Box::new(steps(cut))), whole);
    if bytes.len() < 4096 {
        assert_eq!(heard(Box::new(|| 1)), whole);
    }
}

/// Has a session receive bytes. False if it breaks.
fn receive(server: &mut TlsStream, bytes: &[u8], text: &mut Vec<u8>) -> bool {
    let mut records = Vec::new();
    server.begin(&mut records);
    records.extend_from_slice(bytes);
    server.open_records(&mut records, text).is_ok()
}

/// Lengths of reads: short ones and, now and then, a longer one.
fn steps(cut: u8) -> impl FnMut() -> usize {
    let mut state = u32::from(cut);
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let drawn = (state >> 16) as usize;
        if drawn.is_multiple_of(8) { drawn } else { 1 + drawn % 24 }.max(1)
    }
}

/// A client and a session.
struct Both {
    client: ClientConnection,
    server: TlsStream,
    /// What the session has opened.
    opened: Vec<u8>,
    /// How many bytes the client has sent.
    sent: usize,
    /// Which of them is changed, and by what.
    change: Option<(usize, u8)>,
}

impl Both {
    fn new(older: bool, fragments: Option<usize>) -> Self {
        let (server, newest, oldest) = settings();
        let mut config = if older { (**oldest).clone() } else { (**newest).clone() };
        config.max_fragment_size = fragments;
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        Both {
            client: ClientConnection::new(Arc::new(config), name).expect("a session"),
            server: TlsStream::new(server).expect("randomness"),
            opened: Vec::new(),
            sent: 0,
            change: None,
        }
    }

    /// Lets both send until neither has anything to say. False if one of them breaks.
    fn talk(&mut self, step: &mut dyn FnMut() -> usize) -> bool {
        loop {
            let mut bytes = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut bytes).expect("bytes");
            }
            if let Some((place, by)) = self.change
                && let Some(byte) = place.checked_sub(self.sent).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= by;
            }
            self.sent += bytes.len();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(step()));
                if !receive(&mut self.server, now, &mut self.opened) {
                    // Of no more use, and it knows.
                    self.server.end();
                    assert_eq!(self.server.seal(b"text", &mut Vec::new(), 0), 0);
                    assert!(self.server.is_closed());
                    return false;
                }
                rest = later;
            }
            let answer = self.server.sealed.bytes().to_vec();
            self.server.sealed.use_up(answer.len());
            if answer.is_empty() {
                return true;
            }
            if !self.hear(&answer) {
                return false;
            }
        }
    }

    /// The client receives. False if it breaks.
    fn hear(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).expect("bytes");
            if self.client.process_new_packets().is_err() {
                return false;
            }
        }
        true
    }

    /// The session sends the text back, and both end.
    fn echo(&mut self, text: &[u8]) {
        assert!(!self.server.is_in_handshake());
        let mut room = Vec::new();
        // Meanwhile a record has come in part.
        self.client.writer().write_all(b"more").expect("room");
        let mut record = Vec::new();
        self.client.write_tls(&mut record).expect("bytes");
        let (most, last) = record.split_at(record.len() - 1);
        assert!(receive(&mut self.server, most, &mut self.opened));
        let sealed = self.server.seal(text, &mut room, 0);
        assert!(sealed > text.len() || text.is_empty());
        room.truncate(sealed);
        assert!(receive(&mut self.server, last, &mut self.opened));
        assert!(self.opened.ends_with(b"more"));
        self.server.end();
        room.extend_from_slice(self.server.sealed.bytes());
        assert!(self.hear(&take(&mut room)), "records as TLS has them");
        let mut got = Vec::new();
        self.client.reader().read_to_end(&mut got).expect("the session ends in order");
        assert_eq!(got, text);
    }
}

type Settings = (Arc<ServerConfig>, Arc<ClientConfig>, Arc<ClientConfig>);

/// Of the server, and of clients with TLS 1.3 and 1.2.
fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("one");
        let certificate = own.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .expect("protocols")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("a certificate");
        let client = |version| {
            let mut roots = RootCertStore::empty();
            roots.add(certificate.clone()).expect("an authority");
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
            let builder = builder.with_protocol_versions(&[version]).expect("protocols");
            Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
        };
        (Arc::new(server), client(&rustls::version::TLS13), client(&rustls::version::TLS12))
    })
}
