//! Ports: what a worker serves beside its shards, as far as the worker must know.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::request::Request;
use crate::limits;

/// A worker's share of the ports. It lives on the worker's thread.
pub trait Port {
    /// A command that a connection had queued has come home.
    fn completed(&mut self, request: Box<Request>);

    /// Serves what is ready. Where nothing is, waits for so long (zero: not at all), or
    /// until the worker's [`super::Waker`] calls; long waits may take a tenth of a second
    /// more or less. Gives the time when the wait was over.
    fn turn(&mut self, wait: Duration) -> Instant;

    /// Whether nothing is known that could be done at once; from here on whoever
    /// leaves something wakes the worker.
    fn may_sleep(&mut self) -> bool;

    /// The worker is up again.
    fn awake(&mut self);
}

/// The ports of all workers, for whoever tells of them.
pub trait Ports: Send + Sync {
    /// What INFO says of them: names and values, in order.
    fn tell(&self, field: &mut dyn FnMut(&str, &str));

    /// The descriptors that they listen on, for a forked child, which must not keep them
    /// open: it may live longer than this process, and would take up the address.
    fn listeners(&self) -> &[i32];
}

/// How the ports are opened. It cannot change while they are open.
#[derive(Clone, Debug, Default)]
pub struct PortConfig {
    /// `midi.port`; 0 opens none.
    pub port: u16,
    /// Addresses to listen on, as the host's `bind` writes them: `*` is all, and one
    /// that begins with `-` may be missing. None opens no TCP port.
    pub bind: Vec<String>,
    /// `midi.unixsocket`; empty opens none.
    pub unixsocket: String,
    /// `midi.unixsocketperm`, a file mode; 0 leaves what the umask gives.
    pub unixsocketperm: u32,
    /// Connections that the kernel keeps until they are accepted.
    pub backlog: i32,
    /// Why no port may be opened, if so.
    pub obstacle: Option<&'static str>,
}

impl PortConfig {
    /// Whether any port is to be opened, obstacles apart.
    pub fn are_wanted(&self) -> bool {
        self.port != 0 || !self.unixsocket.is_empty()
    }
}

/// What can change at any time.
#[derive(Debug)]
pub struct PortSettings {
    /// `midi.maxclients`: connections of all ports together.
    pub max_clients: AtomicUsize,
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
    /// `midi.protected-mode`.
    pub protected: AtomicBool,
    /// The ports' descriptors are this at least: the host gives lower ones to its own
    /// clients, and refuses those that are too high.
    pub first_descriptor: AtomicUsize,
}

impl PortSettings {
    /// The most bytes of replies that may wait for a client; there may be no limit.
    pub fn most_output(&self) -> usize {
        match self.output_hard.load(Ordering::Relaxed) {
            0 => usize::MAX,
            most => most,
        }
    }
}

/// What limits.rs says; there is no limit where it says nothing.
impl Default for PortSettings {
    fn default() -> Self {
        let size = |limit: i64| AtomicUsize::new(limit as usize);
        PortSettings {
            max_clients: size(limits::MAX_CLIENTS_DEFAULT),
            timeout: AtomicUsize::new(0),
            keepalive: AtomicUsize::new(0),
            query_limit: size(limits::QUERY_LIMIT_DEFAULT),
            output_hard: size(limits::OUTPUT_HARD_DEFAULT),
            output_soft: AtomicUsize::new(0),
            output_soft_seconds: AtomicUsize::new(0),
            protected: AtomicBool::new(false),
            first_descriptor: AtomicUsize::new(0),
        }
    }
}
