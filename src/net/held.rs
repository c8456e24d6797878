//! Replies that wait for the log: a client must not be told of a write that a crash can take back.
//!
//! The commands of a connection have a position in the log (`engine/ledger/log/`). Until that is
//! safe, their replies stay with the connection (`transport/outgoing.rs`), which neither runs
//! commands nor is read. So no reply overtakes another, and a client that writes faster than the
//! log is slowed down.

use std::sync::atomic::Ordering;
use std::time::Instant;

use slotmap::SlotMap;
use smallvec::SmallVec;

use super::connection::Connection;
use super::flow::State;
use super::protocol::Protocol;
use super::shared::count;
use super::transport::{Key, LogWait};
use super::worker::PortWorker;

/// A worker's connections whose replies wait for the log.
#[derive(Default)]
pub struct HeldConnections {
    /// Some of them may have been closed.
    keys: Vec<Key>,
    /// How far the log was safe when they were last looked through; [`NEVER`] if they must be
    /// looked through anyway.
    looked_at: u64,
}

/// No log gets so far.
const NEVER: u64 = u64::MAX;

impl HeldConnections {
    /// Holds a connection if its commands have seen what is not safe.
    #[inline]
    pub fn hold(&mut self, worker: &PortWorker, connection: &mut Connection) {
        if let Some(position) = connection.session.flow_mut().take_seen() {
            self.hold_until(worker, connection, position);
        }
    }

    #[cold]
    fn hold_until(&mut self, worker: &PortWorker, connection: &mut Connection, position: u64) {
        let log = &worker.engine().ledger.log;
        let is_past = position <= log.safe();
        if is_past && !log.is_undone(position) || replies_after_run(worker) {
            return;
        }
        if is_past {
            // It was undone before its reply came here: no other message will follow.
            self.looked_at = NEVER;
        }
        match &mut connection.channel.outgoing.wait {
            Some(wait) if log.is_undone(wait.position) => {}
            Some(wait) => wait.position = wait.position.max(position),
            none => {
                *none = Some(LogWait { position, since: Instant::now() });
                if self.keys.is_empty() {
                    worker.slot().holds_replies(true);
                }
                self.keys.push(connection.key);
                worker.counts().held.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether the log has become safe to a position that connections may wait for.
    pub fn may_release(&self, worker: &PortWorker) -> bool {
        !self.keys.is_empty() && self.looked_at != worker.engine().ledger.log.safe()
    }

    /// Releases the connections that need not wait any more, and returns them.
    pub fn release(
        &mut self,
        worker: &PortWorker,
        connections: &mut SlotMap<Key, Connection>,
    ) -> SmallVec<[Key; 32]> {
        let mut released = SmallVec::new();
        if !self.may_release(worker) {
            return released;
        }
        let (safe, now) = (worker.engine().ledger.log.safe(), Instant::now());
        self.looked_at = safe;
        self.keys.retain(|&key| {
            let Some(connection) = connections.get_mut(key) else { return false };
            if connection.channel.outgoing.wait.as_ref().is_some_and(|wait| wait.position > safe) {
                return true;
            }
            release_one(worker, connection, now);
            released.push(key);
            false
        });
        if self.keys.is_empty() {
            worker.slot().holds_replies(false);
        }
        released
    }
}

/// Whether `midi.reply-after` is `run`, and counts: not where a read waits for the log.
fn replies_after_run(worker: &PortWorker) -> bool {
    let engine = worker.engine();
    engine.settings().port.reply_after_run.load(Ordering::Relaxed)
        && !engine.ledger.log.reads_wait()
}

fn release_one(worker: &PortWorker, connection: &mut Connection, now: Instant) {
    let Some(wait) = no_longer_held(worker, connection) else { return };
    if worker.engine().ledger.log.is_undone(wait.position) {
        undo_replies(connection);
    }
    let counts = worker.counts();
    count(&counts.holds, 1);
    count(&counts.held_usec, (now - wait.since).as_micros() as u64);
}

/// A connection's replies are released, or it is closed.
pub fn no_longer_held(worker: &PortWorker, connection: &mut Connection) -> Option<LogWait> {
    let wait = connection.channel.outgoing.wait.take()?;
    worker.counts().held.fetch_sub(1, Ordering::Relaxed);
    Some(wait)
}

/// Closes a connection whose commands were taken back: it gets none of their replies.
fn undo_replies(connection: &mut Connection) {
    connection.forget_input();
    connection.session.flow_mut().state = State::Closing;
    let words = connection.session.undo();
    connection.channel.outgoing.say_only(words);
}
