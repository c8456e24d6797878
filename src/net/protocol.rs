//! The seam between a connection's bytes and their meaning.

use std::ops::Range;
use std::sync::Arc;

use super::client::Client;
use super::transport::{LargeInput, Output};
use super::turn::ThisTurn;
use super::worker::PortWorker;
use crate::command::Transcript;
use crate::engine::{Engine, Speaks};

/// A protocol, as the session of a connection that speaks it. The port decides when a connection
/// has its turn, and the transport moves its bytes; all else is the protocol's.
pub trait Protocol: Sized {
    /// Memory that a worker's connections use in turn while they parse.
    type Scratch: Default;

    /// Commands of several connections that run together.
    type Group<'i>: ProtocolGroup<'i, Self>;

    /// To a client that connects when all places are taken.
    fn full(speaks: Speaks) -> &'static [u8];

    /// To a client from another machine where protected mode refuses it.
    fn protected(speaks: Speaks) -> &'static [u8];

    /// The session of a new connection.
    fn begin(engine: &Engine, client: Arc<Client>, speaks: Speaks) -> Self;

    /// What it speaks.
    fn speaks(&self) -> Speaks;

    /// Whether its client has logged in, or needs no login.
    fn is_logged_in(&self) -> bool;

    /// Its client's certificate has these names, any of which may be a user's.
    fn certified(&mut self, serving: &mut Serving<'_, Self>, names: Vec<Box<[u8]>>);

    /// Whether its commands may run together with those of others that have the same kind: their
    /// database, and the form of their replies.
    fn kind(&self) -> Option<Kind>;

    /// Whether it has replies to write before it runs more.
    fn owes_replies(&self) -> bool;

    /// Writes such replies, until one must be waited for or it is the turn of others.
    fn say_owed(&mut self, serving: &mut Serving<'_, Self>);

    /// Where the next bytes of its input go.
    fn next_input(&mut self) -> NextInput<'_>;

    /// How many bytes it has taken of a command that has not come as a whole, and the memory that
    /// they take.
    fn gathered(&self) -> (usize, usize);

    /// Runs the commands at the start of `input` as long as it may go on; returns their length.
    fn run(&mut self, serving: &mut Serving<'_, Self>, input: &[u8]) -> usize;

    /// Whether the command that runs is not to be answered.
    fn is_muted(&self) -> bool;

    /// Writes a reply that another thread has made.
    fn say(&self, reply: &Transcript, output: &mut Output);

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

/// Commands of several connections that run together, as those of one pipeline do. Each connection
/// has a range of their numbers.
pub trait ProtocolGroup<'i, P: Protocol> {
    /// No commands so far.
    fn begin(worker: &'i PortWorker, kind: Kind) -> Self;

    /// Adds the commands of a connection, if its whole input are such that can run together;
    /// returns their numbers.
    fn add(&mut self, session: &mut P, input: &'i [u8], scratch: &mut P::Scratch) -> Range<usize>;

    /// Runs them, and appends their replies to `output`. False if there are none.
    fn run(&mut self, output: &mut Output) -> bool;

    /// Ends the part of a connection; the first of its commands that could not run here and now
    /// goes on elsewhere. `None` if the connection's reply was cut off, because it is too large.
    fn end(
        &self,
        session: &mut P,
        commands: Range<usize>,
        serving: &mut Serving<'_, P>,
    ) -> Option<Ran>;
}

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
pub struct Serving<'a, P: Protocol> {
    /// The worker.
    pub worker: &'a PortWorker,
    /// The worker's turn.
    pub turn: &'a mut ThisTurn,
    /// Memory for parsing.
    pub scratch: &'a mut P::Scratch,
    /// Replies are appended here.
    pub output: &'a mut Output,
    /// Its client sends no more.
    pub ended: bool,
}
