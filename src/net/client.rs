//! A client, as all workers may read it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Instant;

use parking_lot::Mutex;

use super::transport::Key;
use crate::engine::{CalledFrom, Speaks};

/// What all threads may read of a client.
pub struct Client {
    /// Its id: CLIENT ID.
    pub id: u64,
    /// The worker that serves it.
    pub worker: usize,
    /// Its connection on that worker.
    pub key: Key,
    /// Its address, as CLIENT LIST shows it.
    pub address: String,
    /// Our own address.
    pub local_address: String,
    /// Its internet address; `None` if it is connected through the Unix socket.
    pub remote: Option<SocketAddr>,
    /// Its protocol.
    pub speaks: Speaks,
    /// Its file descriptor.
    pub descriptor: i32,
    /// When it connected.
    pub since: Instant,
    /// Its name, its user, and its library.
    pub names: Mutex<Names>,
    /// Its database.
    pub db: AtomicU32,
    /// When it last sent anything, or was sent something, in ms since the ports were opened.
    pub last_seen: AtomicU64,
    /// Its connection has ended: jobs for it may stop.
    pub gone: Arc<AtomicBool>,
    /// It was killed (CLIENT KILL) or its connection is closed: none of its commands run any more.
    pub killed: Arc<AtomicBool>,
    /// Its last command: see `resp/named.rs`; 0 if there is none, or it is unknown.
    pub last_command: AtomicU32,
    /// Its condition, as of its last turn.
    pub condition: Condition,
}

impl Client {
    /// It, as the slow log names it.
    pub fn called_from(&self) -> CalledFrom {
        CalledFrom { address: self.address.clone(), name: self.names.lock().name.clone() }
    }
}

/// The condition of a connection, for CLIENT LIST.
#[derive(Default)]
pub struct Condition {
    /// It speaks RESP3.
    pub resp3: AtomicBool,
    /// It waits for a reply from another thread.
    pub waiting: AtomicBool,
    /// It is closed after its replies have been sent.
    pub closing: AtomicBool,
    /// Commands queued after MULTI, plus one; 0 outside MULTI.
    pub queued: AtomicUsize,
    /// Bytes of those commands.
    pub queued_bytes: AtomicUsize,
    /// Bytes of the arguments of the running command, if it is CLIENT LIST or INFO.
    pub arguments: AtomicUsize,
    /// CLIENT NO-EVICT ON.
    pub no_evict: AtomicBool,
    /// CLIENT NO-TOUCH ON.
    pub no_touch: AtomicBool,
    /// CLIENT IMPORT-SOURCE: it imports keys.
    pub import_source: AtomicBool,
    /// How many channels, patterns and shard channels it subscribes to.
    pub subscriptions: [AtomicUsize; 3],
    /// Bytes received and not run.
    pub unread: AtomicUsize,
    /// Memory of those.
    pub unread_memory: AtomicUsize,
    /// Bytes of replies that have not been sent.
    pub unsent: AtomicUsize,
    /// Memory of those.
    pub unsent_memory: AtomicUsize,
}

/// The names of a client.
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
