//! What the ports of all workers share: their clients, and how to send them messages.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::client::Client;
use super::figures::Figures;
use super::flushes::DelayedFlushes;
use super::transport::{Accepted, Announced, Key, Output, TlsServer};
use crate::command::{HostCommand, SubscriptionKind};
use crate::engine::{ChannelName, Engine, HeardMessage, Inbox, ListenerRow};

/// What the ports of all workers share.
pub struct Shared {
    /// The keyspace.
    pub engine: Arc<Engine>,
    /// Counts a panic that was caught.
    pub on_panic: fn(),
    /// The size of a connection.
    pub connection_bytes: usize,
    workers: Box<[CachePadded<PerWorker>]>,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_id: AtomicU64,
    connected: AtomicUsize,
    started: Instant,
    /// The rows of the listeners.
    pub listeners: Vec<ListenerRow>,
    /// Memory for input that is announced.
    pub announced: Announced,
    /// The beginning of new TLS connections.
    pub tls: Mutex<Option<TlsServer>>,
    /// What INFO reports of the ports.
    pub figures: Mutex<Figures>,
    /// The host's commands; set after a client has sent a command that the ports do not have.
    pub host_commands: OnceLock<HashMap<Vec<u8>, HostCommand>>,
    /// The databases that memcached's clients want emptied later.
    pub flushes: DelayedFlushes,
}

/// One worker's part.
#[derive(Default)]
struct PerWorker {
    inbox: Inbox<PortMessage>,
    counts: PortCounts,
}

/// A worker's counters of its port. Only that worker writes them, except `connected`.
#[derive(Default)]
pub struct PortCounts {
    /// Connections now. A worker that accepts for another adds to the other's.
    pub connected: AtomicUsize,
    /// Connections ever.
    pub accepted: AtomicU64,
    /// Connections refused: too many, or because of protected mode.
    pub refused: AtomicU64,
    /// Commands.
    pub commands: AtomicU64,
    /// Bytes received.
    pub received: AtomicU64,
    /// Bytes sent.
    pub sent: AtomicU64,
    /// Calls of the system that received something.
    pub reads: AtomicU64,
    /// Calls of the system that sent something.
    pub writes: AtomicU64,
    /// Large arguments received.
    pub large_received: AtomicU64,
    /// Bytes of them that were copied after they had been received.
    pub large_received_copied: AtomicU64,
    /// Large values in replies.
    pub large_sent: AtomicU64,
    /// Bytes of them that were copied before they were sent.
    pub large_sent_copied: AtomicU64,
    /// Bytes in buffers of connections.
    pub buffered: AtomicUsize,
    /// Logins with a wrong name or password.
    pub failed_logins: AtomicU64,
    /// Uses of commands and keys that users' rules did not allow.
    pub denied: AtomicU64,
    /// Those of keys.
    pub denied_keys: AtomicU64,
    /// Connections whose replies wait for the log, now.
    pub held: AtomicUsize,
    /// Bytes of those replies.
    pub held_bytes: AtomicUsize,
    /// How often replies of a connection have waited for the log.
    pub holds: AtomicU64,
    /// For how many microseconds in all.
    pub held_usec: AtomicU64,
    /// Connections closed for a limit: of query, of output, or of idle time.
    pub closed_for_limits: AtomicU64,
}

/// Adds to a counter that only this thread writes.
#[inline]
pub fn count(counter: &AtomicU64, number: u64) {
    counter.store(counter.load(Ordering::Relaxed) + number, Ordering::Relaxed);
}

/// A message to a worker's port.
pub enum PortMessage {
    /// A connection that another worker accepted.
    NewConnection(Accepted),
    /// A piece of a long command's reply; after the last one the connection goes on.
    Part {
        /// The connection.
        key: Key,
        /// The piece.
        said: Output,
        /// The position of the log that it must wait for; 0 for none.
        seen: u64,
        /// It is the last piece.
        last: bool,
    },
    /// The result of a main-thread task for a connection, which then goes on, and the position of
    /// the log that it must wait for; 0 for none.
    Answer(Key, u64, Answer<dyn Any>),
    /// A message for subscribers.
    Heard(Arc<HeardMessage>),
    /// The host was not told of these subscriptions of a connection, which gets this error.
    NotSubscribed {
        /// The connection.
        key: Key,
        /// What they are to ...
        kind: SubscriptionKind,
        /// ... and its channels or patterns.
        names: Vec<ChannelName>,
        /// The error's text.
        text: String,
    },
    /// Close this connection.
    Close(Key),
    /// Close this connection, because its reply is larger than may wait for it; not if it wants no
    /// reply.
    TooLarge(Key),
}

/// Gives the session of a connection the result of a main-thread task; appends its reply to the
/// buffer.
pub type Answer<S> = Box<dyn FnOnce(&mut S, &mut Output) + Send>;

impl Shared {
    /// For as many workers as the engine has.
    pub fn new(
        engine: Arc<Engine>,
        listeners: Vec<ListenerRow>,
        on_panic: fn(),
        connection_bytes: usize,
    ) -> Self {
        let per_worker = |_| CachePadded::new(PerWorker::default());
        Shared {
            workers: (0..engine.config().workers).map(per_worker).collect(),
            engine,
            on_panic,
            connection_bytes,
            clients: Mutex::default(),
            next_id: AtomicU64::new(1),
            connected: AtomicUsize::new(0),
            started: Instant::now(),
            listeners,
            announced: Announced::default(),
            tls: Mutex::default(),
            figures: Mutex::default(),
            host_commands: OnceLock::new(),
            flushes: DelayedFlushes::default(),
        }
    }

    /// The inbox of a worker's port.
    pub fn inbox(&self, worker: usize) -> &Inbox<PortMessage> {
        &self.workers[worker].inbox
    }

    /// The counters of a worker.
    pub fn counts(&self, worker: usize) -> &PortCounts {
        &self.workers[worker].counts
    }

    /// Sends a message to a worker's port, and wakes the worker if it sleeps.
    pub fn send(&self, worker: usize, message: PortMessage) {
        if self.inbox(worker).push(message) {
            self.engine.context().workers.waker(worker).wake();
        }
    }

    /// Begins the figures of INFO again: CONFIG RESETSTAT.
    pub fn reset_figures(&self) {
        self.engine.ledger.books.reset();
        self.figures.lock().reset(self);
    }

    /// Milliseconds since the ports were opened.
    pub fn clock(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_millis() as u64
    }

    /// The worker with the fewest connections; `own` if no other has fewer.
    pub fn emptiest(&self, own: usize) -> usize {
        let connected = |worker: usize| self.counts(worker).connected.load(Ordering::Relaxed);
        let fewest = (0..self.workers.len()).min_by_key(|&worker| connected(worker)).unwrap_or(own);
        if connected(fewest) < connected(own) { fewest } else { own }
    }

    /// Takes a place for a connection; false if none is left.
    pub fn take_place(&self) -> bool {
        let most = self.engine.settings().port.max_clients.load(Ordering::Relaxed);
        let taken = self.connected.fetch_add(1, Ordering::Relaxed);
        if taken >= most {
            self.connected.fetch_sub(1, Ordering::Relaxed);
        }
        taken < most
    }

    /// Gives a place back.
    pub fn leave_place(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// The next client's id.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a client to the list.
    pub fn list(&self, client: &Arc<Client>) {
        self.clients.lock().insert(client.id, Arc::clone(client));
    }

    /// Removes a client from the list; false if it was not in it any more.
    pub fn unlist(&self, id: u64) -> bool {
        self.clients.lock().remove(&id).is_some()
    }

    /// Ends a client; false if it has been ended already.
    pub fn kill(&self, client: &Client) -> bool {
        let there = self.unlist(client.id);
        if there {
            client.killed.store(true, Ordering::Relaxed);
            client.gone.store(true, Ordering::Relaxed);
            self.send(client.worker, PortMessage::Close(client.key));
        }
        there
    }

    /// A connected client, by its id.
    pub fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.clients.lock().get(&id).cloned()
    }

    /// All clients, oldest first.
    pub fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }
}
