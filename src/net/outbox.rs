//! What a turn's connections are answered lies in one buffer, and is sent when all of them have been
//! served: whoever waits for the replies is woken once for many of them, and not in between.

use std::ops::Range;

use super::connection::{Connection, Key};
use super::driver::Driver;
use super::run::Service;
use crate::limits::{OUTPUT_KEPT, OUTPUT_PER_TURN};

/// Some connection's replies in the turn's buffer.
pub struct Piece {
    /// Whose.
    pub key: Key,
    /// Where.
    pub bytes: Range<usize>,
}

impl<D: Driver> Service<D> {
    /// Leaves replies to be sent at the end of the turn.
    pub(super) fn put_in_outbox(&mut self, connection: &mut Connection, bytes: Range<usize>) {
        if !bytes.is_empty() {
            connection.has_outgoing = true;
            self.outbox.push(Piece { key: connection.key, bytes });
        }
    }

    /// Takes a connection's replies out of the box, in front of what it is to be sent next.
    pub fn claim(&mut self, connection: &mut Connection) {
        if !connection.has_outgoing {
            return;
        }
        connection.has_outgoing = false;
        for piece in self.outbox.iter_mut().filter(|piece| piece.key == connection.key) {
            connection.unsent.add(&self.output[std::mem::take(&mut piece.bytes)]);
        }
    }

    /// Whether so much lies there that it must not wait for the end of the turn.
    pub fn output_is_full(&self) -> bool {
        self.output.len() > OUTPUT_PER_TURN
    }

    /// What is to be sent.
    pub fn take_outbox(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.outbox)
    }

    /// Everything has been sent; `sent` is what [`Service::take_outbox`] gave. One very large reply does not
    /// make every later one dear.
    pub fn clear_output(&mut self, mut sent: Vec<Piece>) {
        sent.clear();
        self.outbox = sent;
        self.output.clear();
        if self.output.capacity() > OUTPUT_KEPT {
            self.output = Vec::new();
        }
    }
}
