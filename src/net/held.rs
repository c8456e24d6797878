//! Replies that wait for the log: a client must not be told of a write that a crash can take back.
//!
//! What a connection has run has a position in the log (`engine/log/`). Until that is safe, all of
//! its output stays in `unsent`, and it neither runs commands nor is read. So no reply overtakes
//! another, and a client that writes faster than the log is slowed down.

use std::sync::atomic::Ordering;
use std::time::Instant;

use slotmap::SlotMap;

use super::client::Key;
use super::connection::{Backlog, Connection, LastWrite, State};
use super::driver::Driver;
use super::service::{Service, TurnOutcome};
use super::shared::count;
use crate::command::Error;

/// A worker's connections whose replies wait for the log.
#[derive(Default)]
pub(super) struct HeldConnections {
    /// Some of them may have been closed.
    keys: Vec<Key>,
    /// How far the log was safe when they were last looked through; [`NEVER`] if they must be
    /// looked through anyway.
    looked_at: u64,
}

/// No log gets so far.
const NEVER: u64 = u64::MAX;

impl<D: Driver> Service<D> {
    /// A connection's replies must wait for this position of the log; for none if it is 0.
    #[inline]
    pub(super) fn wait_for(&mut self, connection: &mut Connection, position: u64) {
        if position != 0 {
            connection.last_write = LastWrite { position, offset: None };
            self.hold(connection, position);
        }
    }

    #[cold]
    fn hold(&mut self, connection: &mut Connection, position: u64) {
        let engine = &self.shared.engine;
        let is_past = position <= engine.ledger.log.safe();
        if is_past && !engine.ledger.log.is_undone(position) || self.replies_after_run() {
            return;
        }
        if is_past {
            // It was undone before its reply came here: no other message will follow.
            self.held.looked_at = NEVER;
        }
        if !connection.is_held() {
            connection.held_since = Some(Instant::now());
            if self.held.keys.is_empty() {
                self.slot().holds_replies(true);
            }
            self.held.keys.push(connection.key);
            self.shared.counts(self.worker).held.fetch_add(1, Ordering::Relaxed);
        }
        if !engine.ledger.log.is_undone(connection.waits_for) {
            connection.waits_for = connection.waits_for.max(position);
        }
    }

    /// Whether `midi.reply-after` is `run`, and counts: not where a read waits for the log.
    fn replies_after_run(&self) -> bool {
        let engine = &self.shared.engine;
        engine.settings().port.reply_after_run.load(Ordering::Relaxed)
            && !engine.ledger.log.reads_wait()
    }

    /// Whether the log has become safe to a position that connections may wait for.
    pub(super) fn may_release(&self) -> bool {
        !self.held.keys.is_empty() && self.held.looked_at != self.engine().ledger.log.safe()
    }

    /// Sends the replies that need not wait any more. Returns the connections that can go on, or
    /// have ended.
    pub(super) fn release(
        &mut self,
        connections: &mut SlotMap<Key, Connection>,
    ) -> Vec<(Key, TurnOutcome)> {
        let mut outcomes = Vec::new();
        if !self.may_release() {
            return outcomes;
        }
        let (safe, now) = (self.engine().ledger.log.safe(), Instant::now());
        self.held.looked_at = safe;
        for key in std::mem::take(&mut self.held.keys) {
            let Some(connection) = connections.get_mut(key) else { continue };
            if connection.waits_for > safe {
                self.held.keys.push(key);
                continue;
            }
            let outcome = self.release_one(connection, now);
            if outcome != TurnOutcome::Stays {
                outcomes.push((key, outcome));
            }
        }
        if self.held.keys.is_empty() {
            self.slot().holds_replies(false);
        }
        outcomes
    }

    fn release_one(&mut self, connection: &mut Connection, now: Instant) -> TurnOutcome {
        if self.shared.engine.ledger.log.is_undone(connection.waits_for) {
            undo_replies(connection);
        }
        self.no_longer_held(connection);
        if let Some(since) = connection.held_since.take() {
            let counts = self.shared.counts(self.worker);
            count(&counts.holds, 1);
            count(&counts.held_usec, (now - since).as_micros() as u64);
        }
        // It has waited for us, so it has not been idle.
        connection.client.last_seen.store(self.recently, Ordering::Relaxed);
        self.claim(connection);
        let sent = self.send(connection, &[]);
        connection.show_condition();
        match sent {
            TurnOutcome::Stays if connection.state == State::Open && connection.can_go_on() => {
                TurnOutcome::Ready
            }
            sent => sent,
        }
    }

    /// A connection's replies are released, or it is closed.
    pub(super) fn no_longer_held(&self, connection: &mut Connection) {
        if connection.is_held() {
            connection.waits_for = 0;
            self.shared.counts(self.worker).held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a connection has waited for was taken back: it gets none of its replies, and is closed.
fn undo_replies(connection: &mut Connection) {
    connection.forget_commands();
    connection.session.exec_replies = None;
    connection.unsent = Backlog::default();
    let text = Error::Unblocked.bare_text();
    for part in [b"-".as_slice(), &text, b"\r\n"] {
        connection.unsent.add(part);
    }
    connection.state = State::Closing;
}
