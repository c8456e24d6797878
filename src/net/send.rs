//! Sending replies, and limiting how many may wait.
//!
//! The replies of a turn's connections are in one buffer, and are sent after all of them have been
//! served: a client that waits for the replies is woken once for many of them, and not in between.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::{Backlog, Connection, State};
use super::driver::{Driver, Sent};
use super::service::{Piece, Service, TurnOutcome};
use super::shared::count;
use crate::limits::{OUTPUT_KEPT, OUTPUT_PER_TURN, UNAUTHENTICATED_OUTPUT_BYTES};

impl<D: Driver> Service<D> {
    /// Leaves replies in the turn's buffer, to be sent at its end.
    pub(super) fn put_in_outbox(&mut self, connection: &mut Connection, bytes: Range<usize>) {
        if !bytes.is_empty() {
            connection.has_outgoing = true;
            self.outbox.push(Piece { key: connection.key, bytes });
        }
    }

    /// Moves a connection's replies from the turn's buffer to `unsent`, before further replies.
    pub fn claim(&mut self, connection: &mut Connection) {
        if !connection.has_outgoing {
            return;
        }
        connection.has_outgoing = false;
        for piece in self.outbox.iter_mut().filter(|piece| piece.key == connection.key) {
            connection.unsent.add(&self.output[std::mem::take(&mut piece.bytes)]);
        }
    }

    /// Whether the turn's buffer must be sent before the end of the turn.
    pub fn output_is_full(&self) -> bool {
        self.output.len() > OUTPUT_PER_TURN
    }

    /// The pieces to send. Return the list with [`Service::clear_output`].
    pub fn take_outbox(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.outbox)
    }

    /// Empties the turn's buffer after all has been sent; `sent` is the list of
    /// [`Service::take_outbox`]. After a very large reply the memory is freed.
    pub fn clear_output(&mut self, mut sent: Vec<Piece>) {
        sent.clear();
        self.outbox = sent;
        self.output.clear();
        if self.output.capacity() > OUTPUT_KEPT {
            self.output = Vec::new();
        }
    }

    /// Sends a connection's replies of this turn.
    pub fn send_piece(&mut self, connection: &mut Connection, piece: &Piece) -> TurnOutcome {
        connection.has_outgoing = false;
        let mut output = std::mem::take(&mut self.output);
        let is_last = piece.bytes.end == output.len();
        let outcome = if is_last && piece.bytes.len() > OUTPUT_KEPT && connection.unsent.is_empty()
        {
            // The other replies have been sent already, so the rest need not be copied.
            connection.unsent = Backlog::of(std::mem::take(&mut output), piece.bytes.start);
            self.send(connection, &[])
        } else {
            self.send(connection, &output[piece.bytes.clone()])
        };
        self.output = output;
        if !connection.unsent.is_empty() {
            connection.show_condition();
        }
        outcome
    }

    /// Sends what waits and `output`, or keeps it for a connection that is held. `Ends` if the
    /// connection is broken, or was closing and has been sent everything, or does not read its
    /// replies.
    pub(super) fn send(&mut self, connection: &mut Connection, output: &[u8]) -> TurnOutcome {
        if connection.is_held() {
            connection.unsent.add(output);
            return self.outcome_of_unsent(connection);
        }
        let first = connection.unsent.is_empty();
        if !first {
            connection.unsent.add(output);
        }
        let bytes = if first { output } else { connection.unsent.bytes() };
        let mut sent = 0;
        if !bytes.is_empty() {
            match self.driver.send(&connection.socket, bytes) {
                Sent::Broken => return TurnOutcome::Ends,
                Sent::Bytes(bytes) => sent = bytes,
            }
            count(&self.shared.counts(self.worker).sent, sent as u64);
        }
        if first {
            connection.unsent.add(&output[sent..]);
        } else {
            connection.unsent.use_up(sent);
        }
        if connection.unsent.is_empty() {
            connection.over_soft_limit = None;
            return if connection.state == State::Closing {
                TurnOutcome::Ends
            } else {
                TurnOutcome::Stays
            };
        }
        self.outcome_of_unsent(connection)
    }

    fn outcome_of_unsent(&self, connection: &mut Connection) -> TurnOutcome {
        if self.is_over_limit(connection) { TurnOutcome::Ends } else { TurnOutcome::Stays }
    }

    /// Whether more replies wait for a connection than may.
    fn is_over_limit(&self, connection: &mut Connection) -> bool {
        let settings = &self.shared.engine.settings().port;
        let (mut hard, soft) =
            (settings.most_output(), settings.output_soft.load(Ordering::Relaxed));
        if connection.session.user.is_none() {
            hard = hard.min(UNAUTHENTICATED_OUTPUT_BYTES);
        }
        let unsent = connection.unsent.len();
        if unsent > hard {
            self.note_limit();
            return true;
        }
        if soft > 0 && unsent > soft {
            connection.over_soft_limit.get_or_insert(self.now);
        } else {
            connection.over_soft_limit = None;
        }
        false
    }

    /// Whether a connection has been idle, or above the soft limit, for too long.
    pub fn is_overdue(&self, connection: &Connection) -> bool {
        let settings = &self.shared.engine.settings().port;
        let soft = settings.output_soft_seconds.load(Ordering::Relaxed) as u64;
        if connection
            .over_soft_limit
            .is_some_and(|since| self.now - since > Duration::from_secs(soft))
        {
            return true;
        }
        let timeout = settings.timeout.load(Ordering::Relaxed) as u64;
        let seen = connection.client.last_seen.load(Ordering::Relaxed);
        let idle = self.shared.clock(self.now).saturating_sub(seen);
        timeout > 0 && !connection.is_waiting() && !connection.is_held() && idle > timeout * 1000
    }
}
