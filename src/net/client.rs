//! A client as all workers may know it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Instant;

use parking_lot::Mutex;
use slotmap::{Key as _, KeyData, new_key_type};

new_key_type! {
    /// A connection of a worker: one that comes after it has another key, also in the same place.
    pub struct Key;
}

impl Key {
    /// As one number, for whoever can only remember one; 2^32 or above.
    pub fn packed(self) -> u64 {
        self.data().as_ffi()
    }

    /// Of that number.
    pub fn unpacked(packed: u64) -> Self {
        KeyData::from_ffi(packed).into()
    }
}

/// What everybody may know of a client.
pub struct Client {
    /// Its id: CLIENT ID.
    pub id: u64,
    /// The worker that serves it.
    pub worker: usize,
    /// The connection there.
    pub key: Key,
    /// Its address, as CLIENT LIST shows it.
    pub address: String,
    /// Ours.
    pub local_address: String,
    /// It came through the Unix socket.
    pub unix: bool,
    /// The descriptor.
    pub descriptor: i32,
    /// When it came.
    pub since: Instant,
    /// What it is called, who it is, and what it says of itself.
    pub names: Mutex<Names>,
    /// Its database.
    pub db: AtomicU32,
    /// When it last sent anything, in ms since the ports were opened.
    pub last_seen: AtomicU64,
    /// The end of its connection, for who works for it.
    pub gone: Arc<AtomicBool>,
    /// CLIENT KILL, or its connection is closed: nothing that it has sent is run any more.
    pub killed: Arc<AtomicBool>,
    /// What it called last: see [`super::named::note`]; 0 where there is no such command.
    pub last_command: AtomicU32,
    /// How it is doing, as of its last turn.
    pub condition: Condition,
}

/// How a connection is doing, for CLIENT LIST.
#[derive(Default)]
pub struct Condition {
    /// RESP3 is spoken.
    pub resp3: AtomicBool,
    /// It waits for a reply from elsewhere.
    pub waiting: AtomicBool,
    /// It is closed when its replies have been sent.
    pub closing: AtomicBool,
    /// One more than there are commands queued between MULTI and EXEC; 0 elsewhere.
    pub queued: AtomicUsize,
    /// Bytes of those commands.
    pub queued_bytes: AtomicUsize,
    /// Bytes of the arguments of the command that runs, where it is CLIENT LIST or INFO.
    pub arguments: AtomicUsize,
    /// CLIENT NO-EVICT ON.
    pub no_evict: AtomicBool,
    /// Bytes received and not run.
    pub unread: AtomicUsize,
    /// Memory for those.
    pub unread_memory: AtomicUsize,
    /// Bytes of replies that have not been sent.
    pub unsent: AtomicUsize,
    /// Memory for those.
    pub unsent_memory: AtomicUsize,
}

/// What a client is called.
#[derive(Default)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The user.
    pub user: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
}

/// A connection that was accepted and has no worker yet.
pub struct NewConnection {
    /// Its socket.
    pub socket: OwnedFd,
    /// Its address; a Unix socket's client has none.
    pub address: Option<SocketAddr>,
}
