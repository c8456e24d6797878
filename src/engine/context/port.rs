//! Ports, which a worker serves beside its shards, as far as the worker must know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::engine::pubsub::HeardMessage;
use crate::engine::request::Request;
use crate::limits;

/// A worker's part of the ports. It stays on the worker's thread.
pub trait Port {
    /// A command that a connection had queued has run.
    fn completed(&mut self, request: Box<Request>);

    /// Serves what is ready. If nothing is, waits this long (zero: not at all), or until the
    /// worker's [`Waker`](crate::sync::Waker) is called; a long wait may take a tenth of a second
    /// more or less.
    fn turn(&mut self, wait: Duration) -> PortTurn;

    /// Whether there is nothing to do at once. After this call, a thread that leaves a message
    /// wakes the worker.
    fn may_sleep(&mut self) -> bool;

    /// The worker is awake again.
    fn awake(&mut self);
}

/// A report of a turn of a port.
pub struct PortTurn {
    /// The time at the end of the wait.
    pub began: Instant,
    /// Whether there were events for any connection.
    pub had_events: bool,
}

/// The ports of all workers, for INFO and for a forked child.
pub trait Ports: Send + Sync {
    /// Calls `field` with each name and value of INFO, in order.
    fn tell(&self, field: &mut dyn FnMut(&str, &str));

    /// Notes how much they have done, for the rates in INFO. The main thread does this from time to
    /// time.
    fn sample(&self);

    /// Why they move bytes with epoll although io_uring was asked for; `None` if all is as wanted.
    fn fallback(&self) -> Option<&str>;

    /// The descriptors that a forked child must close, because it may live longer than this
    /// process: what they listen on, whose address it would keep in use, and their rings.
    fn descriptors(&self) -> &[i32];

    /// Begins new TLS connections with these settings, and reads the files that they name.
    ///
    /// # Errors
    /// The setting that is wrong, and why: new connections begin as before.
    fn set_tls(&self, settings: &TlsSettings) -> Result<(), String>;

    /// This server is no master any more.
    fn demoted(&self);

    /// Gives a message to the subscribers of a worker.
    fn hear(&self, worker: usize, message: &Arc<HeardMessage>);
}

/// How the ports are opened. It cannot change while they are open.
#[derive(Clone, Debug, Default)]
pub struct PortConfig {
    /// What they listen on.
    pub listeners: Vec<ListenerRow>,
    /// The kernel's limit of connections that wait to be accepted.
    pub backlog: i32,
    /// How TLS is spoken, where listeners need it.
    pub tls: Option<TlsSettings>,
    /// `midi.io io_uring`: bytes are moved with io_uring, if the system offers it.
    pub uses_io_uring: bool,
    /// Why no port may be opened, if there is a reason.
    pub obstacle: Option<&'static str>,
}

impl PortConfig {
    /// Whether any port is opened.
    pub fn opens_any(&self) -> bool {
        self.obstacle.is_none() && !self.listeners.is_empty()
    }
}

/// Something that the ports listen on.
#[derive(Clone, Debug)]
pub struct ListenerRow {
    /// The setting that asks for it, without `midi.`, for messages.
    pub setting: &'static str,
    /// Where.
    pub at: ListenAt,
    /// Its connections speak TLS.
    pub is_tls: bool,
    /// Their protocol.
    pub speaks: Speaks,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// RESP, as Redis's clients do.
    Resp,
    /// memcached's text protocol.
    Memcached,
}

/// Where a listener listens.
#[derive(Clone, Debug)]
pub enum ListenAt {
    /// A TCP port.
    Tcp {
        /// Its number.
        port: u16,
        /// The addresses, as the host's `bind` writes them: `*` is all, and one that begins with
        /// `-` may be unavailable.
        bind: Vec<String>,
    },
    /// A Unix socket.
    Unix {
        /// Its path.
        path: String,
        /// A file mode; 0 keeps the mode that the umask gives.
        mode: u32,
    },
}

/// How the ports speak TLS: the values of `midi.tls-*`, or of the host's settings.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The server's certificate and those between it and an authority, in PEM.
    pub cert_file: String,
    /// Its key, in PEM; if empty, it is with the certificate.
    pub key_file: String,
    /// The authorities of clients' certificates, in PEM; empty for none.
    pub ca_cert_file: String,
    /// A folder of such files; empty for none.
    pub ca_cert_dir: String,
    /// Whether clients need certificates.
    pub clients: ClientCertificates,
    /// What of a certificate names a user.
    pub name: CertificateName,
    /// `TLSv1.2`, `TLSv1.3`, or both with a blank between them; both if empty.
    pub protocols: String,
    /// The suites of TLS 1.3, by OpenSSL's names, with `:` between them; all if empty.
    pub ciphersuites: String,
    /// The order of the server's suites decides, not that of the client's.
    pub prefer_server_ciphers: bool,
    /// How many sessions may be kept for clients that come again; 0 for none.
    pub session_cache: usize,
    /// How long.
    pub session_timeout: Duration,
    /// Settings that are set and that midi does not support.
    pub unsupported: Vec<&'static str>,
}

/// `tls-auth-clients`: whether clients need certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked for any.
    Ignored,
    /// One that is sent must be valid.
    Optional,
    /// They need a valid one.
    Needed,
}

/// `tls-auth-clients-user`: what of a client's certificate names the user that it is logged in as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// Nothing.
    Off,
    /// The common name of its subject.
    CommonName,
    /// Its first URI that is the name of a user.
    Uri,
}

/// Settings of the ports that can change at any time.
#[derive(Debug)]
pub struct PortSettings {
    /// `midi.maxclients`: connections of all ports together.
    pub max_clients: AtomicUsize,
    /// `midi.max-channel-bytes`.
    pub max_channel_bytes: AtomicUsize,
    /// `midi.timeout` in seconds: idle connections are closed after it; 0 is never.
    pub timeout: AtomicUsize,
    /// `midi.tcp-keepalive` in seconds; 0 is off.
    pub keepalive: AtomicUsize,
    /// `midi.client-query-buffer-limit`, in bytes.
    pub query_limit: AtomicUsize,
    /// `midi.output-buffer-hard-limit`, in bytes; 0 is none.
    pub output_hard: AtomicUsize,
    /// `midi.output-buffer-soft-limit`, in bytes; 0 is none.
    pub output_soft: AtomicUsize,
    /// `midi.output-buffer-soft-seconds`.
    pub output_soft_seconds: AtomicUsize,
    /// `client-output-buffer-limit pubsub` of the host, for subscribers: the hard limit in bytes; 0
    /// is none.
    pub pubsub_hard: AtomicUsize,
    /// The soft limit; 0 is none.
    pub pubsub_soft: AtomicUsize,
    /// Its seconds.
    pub pubsub_soft_seconds: AtomicUsize,
    /// `midi.reply-after run`: a write is answered as soon as it has run, not when it is logged.
    pub reply_after_run: AtomicBool,
    /// `midi.memcached-database`: the database of memcached's clients.
    pub memcached_database: AtomicUsize,
    /// `midi.memcached-item-size`: their largest value, in bytes.
    pub memcached_item_size: AtomicUsize,
    /// `midi.protected-mode`.
    pub protected: AtomicBool,
    /// The lowest descriptor for the ports' connections: lower ones are left for the host's own
    /// clients, because the host refuses those that are too high.
    pub first_descriptor: AtomicUsize,
    /// How many descriptors the ports need besides those of their clients.
    pub own_descriptors: AtomicUsize,
}

impl PortSettings {
    /// The most bytes of replies that may wait for a client; `usize::MAX` for no limit.
    pub fn most_output(&self) -> usize {
        match self.output_hard.load(Ordering::Relaxed) {
            0 => usize::MAX,
            most => most,
        }
    }
}

/// The defaults of limits.rs; no limit if it has none.
impl Default for PortSettings {
    fn default() -> Self {
        let size = |limit: i64| AtomicUsize::new(limit as usize);
        PortSettings {
            max_clients: size(limits::MAX_CLIENTS_DEFAULT),
            max_channel_bytes: size(limits::MAX_CHANNEL_BYTES_DEFAULT),
            timeout: AtomicUsize::new(0),
            keepalive: AtomicUsize::new(0),
            query_limit: size(limits::QUERY_LIMIT_DEFAULT),
            output_hard: size(limits::OUTPUT_HARD_DEFAULT),
            output_soft: AtomicUsize::new(0),
            output_soft_seconds: AtomicUsize::new(0),
            pubsub_hard: size(limits::PUBSUB_OUTPUT_HARD),
            pubsub_soft: size(limits::PUBSUB_OUTPUT_SOFT),
            pubsub_soft_seconds: size(limits::PUBSUB_OUTPUT_SECONDS),
            reply_after_run: AtomicBool::new(false),
            memcached_database: AtomicUsize::new(0),
            memcached_item_size: size(limits::MEMCACHED_ITEM_SIZE_DEFAULT),
            protected: AtomicBool::new(false),
            first_descriptor: AtomicUsize::new(0),
            own_descriptors: size(limits::DESCRIPTORS_SPARE as i64),
        }
    }
}
