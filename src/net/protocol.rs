//! The seam between a connection's bytes and their meaning.

use std::any::Any;
use std::ops::Range;

use super::access::SessionAccess;
use super::flow::Flow;
use super::transport::{LargeInput, Output};
use super::turn::ThisTurn;
use super::worker::PortWorker;
use crate::command::Transcript;

/// A protocol, as the session of a connection that speaks it. The port decides when a connection
/// has its turn, and the transport moves its bytes; all else is the protocol's.
pub trait Protocol: Any {
    /// Memory that a worker's connections use in turn while they parse.
    type Scratch: Default;

    /// Whether it goes on, and what it waits for.
    fn flow(&self) -> &Flow;

    /// The same, to change it.
    fn flow_mut(&mut self) -> &mut Flow;

    /// Its user and its database.
    fn access(&self) -> &SessionAccess;

    /// The same, to change them.
    fn access_mut(&mut self) -> &mut SessionAccess;

    /// Whether its commands may run together with those of others that have the same kind: their
    /// database, and the form of their replies.
    fn kind(&self) -> Option<Kind>;

    /// Writes the replies that it owes before it runs more, until one must be waited for or it is
    /// the turn of others. While it owes any, its flow says that it can go on.
    fn say_owed(&mut self, serving: &mut Serving<'_>);

    /// Where the next bytes of its input go.
    fn next_input(&mut self) -> NextInput<'_>;

    /// How many bytes it has taken of a command that has not come as a whole, and the memory that
    /// they take.
    fn gathered(&self) -> (usize, usize);

    /// Runs the commands at the start of `input` as long as it may go on; returns their length.
    fn run(
        &mut self,
        serving: &mut Serving<'_>,
        scratch: &mut Self::Scratch,
        input: &[u8],
    ) -> usize;

    /// Whether the command that runs is not to be answered.
    fn is_muted(&self) -> bool;

    /// Writes a reply that another thread has made.
    fn say(&mut self, reply: &Transcript, output: &mut Output);

    /// Its commands were taken back: forgets the replies that it owes, and returns its last words.
    fn undo(&mut self) -> Vec<u8>;

    /// Memory of the commands that it keeps, in bytes.
    fn queued_bytes(&self) -> usize;

    /// Publishes its condition for other threads.
    fn show_condition(&self);
}

/// Where the next bytes of a connection's input go.
pub enum NextInput<'a> {
    /// Into a buffer for all kinds of input, at most so many.
    Common(usize),
    /// Into a buffer of their own.
    Large(&'a mut LargeInput),
}

/// What commands that run together have in common: the database, and the form of replies.
pub type Kind = (u32, bool);

/// The outcome of a connection's commands that ran with others.
pub struct Ran {
    /// Where the replies are in the output, ...
    pub replies: Range<usize>,
    /// ... and where the one after them is.
    pub more: Range<usize>,
    /// How many bytes of the input have run.
    pub used: usize,
}

/// What a connection is served with.
pub struct Serving<'a> {
    /// The worker.
    pub worker: &'a PortWorker,
    /// The worker's turn.
    pub turn: &'a mut ThisTurn,
    /// Replies are appended here.
    pub output: &'a mut Output,
}
