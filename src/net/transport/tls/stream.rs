//! A TLS session's records: those that come are opened, and what is said is sealed in some.

use std::mem::{replace, take};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls_pki_types::CertificateDer;

use crate::limits::TLS_PARTIAL_BYTES;
use crate::net::transport::backlog::Backlog;

/// The most bytes of text in a record.
const TEXT_BYTES: usize = 16 << 10;

/// The most bytes that sealing adds to a record: its header, its type, padding and a tag.
const RECORD_BESIDE: usize = 128;

/// Room for most messages of a handshake.
const HANDSHAKE_ROOM: usize = 2048;

/// The server's side of a TLS session. It touches no socket.
pub struct TlsStream {
    session: UnbufferedServerConnection,
    /// The beginning of a record, or of a message of the handshake. The session knows how much of
    /// this it has looked at: it must see it in each call.
    partial: Vec<u8>,
    /// Records that have not been sent.
    pub sealed: Backlog,
    state: TlsState,
    /// The handshake has ended, and nobody has asked yet.
    is_new: bool,
}

/// How far a session is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TlsState {
    Handshake,
    Open,
    /// The peer has said that it sends no more.
    Closed,
    /// Of no more use, but for an alert in [`TlsStream::sealed`].
    Broken,
}

/// The session is of no more use: the peer broke the protocol, or its certificate is refused.
pub struct Broken;

impl TlsStream {
    /// A session that waits for the client's first message. `None` if the system has no randomness.
    pub fn new(config: &Arc<ServerConfig>) -> Option<Self> {
        Some(TlsStream {
            session: UnbufferedServerConnection::new(Arc::clone(config)).ok()?,
            partial: Vec::new(),
            sealed: Backlog::default(),
            state: TlsState::Handshake,
            is_new: false,
        })
    }

    /// Whether the handshake is still going on.
    #[inline]
    pub fn is_in_handshake(&self) -> bool {
        self.state == TlsState::Handshake
    }

    /// Whether nothing more can come.
    #[inline]
    pub fn is_closed(&self) -> bool {
        matches!(self.state, TlsState::Closed | TlsState::Broken)
    }

    /// The client's certificate, once after a handshake in which it has shown one.
    pub fn new_certificate(&mut self) -> Option<&CertificateDer<'static>> {
        self.session.peer_certificates().filter(|_| take(&mut self.is_new))?.first()
    }

    /// Memory of its buffers, in bytes.
    pub fn buffered(&self) -> usize {
        self.partial.capacity() + self.sealed.capacity()
    }

    /// Moves the bytes of an incomplete record to `records`, before more are received there.
    pub fn begin(&mut self, records: &mut Vec<u8>) {
        records.append(&mut self.partial);
    }

    /// Takes them back: none were received.
    pub fn keep(&mut self, records: &[u8]) {
        self.partial.extend_from_slice(records);
    }

    /// Opens records and appends their text to `into`. Keeps the last one if it is incomplete.
    /// Adds the answers of the handshake to [`TlsStream::sealed`], and if this fails the alert.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn open_records(&mut self, records: &mut [u8], into: &mut Vec<u8>) -> Result<(), Broken> {
        let (mut at, mut is_broken) = (0, false);
        loop {
            let UnbufferedStatus { mut discard, state, .. } =
                self.session.process_tls_records(&mut records[at..]);
            let goes_on = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        into.extend_from_slice(record.payload);
                    }
                    true
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(self.sealed.buffer(), |room| match data.encode(room) {
                        Err(EncodeError::InsufficientSize(size)) => Err(size.required_size),
                        encoded => Ok(encoded.unwrap_or(0)),
                    });
                    // Of what has no end rustls would say so again.
                    !is_broken
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    true
                }
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.is_new |= self.is_in_handshake();
                    self.state = TlsState::Open;
                    false
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    // The end may come with the last record of the handshake.
                    self.is_new |= self.is_in_handshake() && !self.session.is_handshaking();
                    self.state = TlsState::Closed;
                    false
                }
                Ok(_) => false,
                // Once more, for the alert.
                Err(_) => !replace(&mut is_broken, true),
            };
            at += discard;
            if !goes_on {
                break;
            }
        }
        let rest = records.get(at..).unwrap_or_default();
        if is_broken || rest.len() > TLS_PARTIAL_BYTES {
            self.state = TlsState::Broken;
            return Err(Broken);
        }
        if rest.is_empty() {
            // A connection that waits keeps no memory.
            self.partial = Vec::new();
        }
        self.keep(rest);
        Ok(())
    }

    /// Seals text in records in `room` from `at` on, which grows as necessary; returns their
    /// length. 0 before the end of the handshake.
    pub fn seal(&mut self, text: &[u8], room: &mut Vec<u8>, at: usize) -> usize {
        if self.state == TlsState::Broken {
            return 0;
        }
        let state = self.session.process_tls_records(&mut self.partial).state;
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else { return 0 };
        let most = at + text.len() + (text.len() / TEXT_BYTES + 1) * RECORD_BESIDE;
        if room.len() < most {
            room.resize(most, 0);
        }
        loop {
            match traffic.encrypt(text, &mut room[at..]) {
                Ok(bytes) => return bytes,
                Err(EncryptError::InsufficientSize(size)) => {
                    room.resize(at + size.required_size, 0);
                }
                Err(EncryptError::EncryptExhausted) => return 0,
            }
        }
    }

    /// Adds the record that ends the session to [`TlsStream::sealed`].
    pub fn end(&mut self) {
        if self.state == TlsState::Broken {
            return;
        }
        let state = self.session.process_tls_records(&mut self.partial).state;
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            append(self.sealed.buffer(), |room| match traffic.queue_close_notify(room) {
                Err(EncryptError::InsufficientSize(size)) => Err(size.required_size),
                sealed => Ok(sealed.unwrap_or(0)),
            });
        }
    }
}

/// Appends to a buffer: `write` returns how many bytes it has written, or needs.
fn append(buffer: &mut Vec<u8>, mut write: impl FnMut(&mut [u8]) -> Result<usize, usize>) {
    let (start, mut room) = (buffer.len(), HANDSHAKE_ROOM);
    loop {
        buffer.resize(start + room, 0);
        match write(&mut buffer[start..]) {
            Ok(bytes) => return buffer.truncate(start + bytes),
            Err(needed) => room = needed,
        }
    }
}
