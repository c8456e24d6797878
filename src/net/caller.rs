//! Who calls a command: a connection, as its worker runs it.

use super::client::Client;
use super::flow::State;
use super::protocol::{Protocol, Serving};
use super::transport::Output;
use super::turn::ThisTurn;
use super::waiting::{AwaitingClient, MakeReply};
use super::worker::PortWorker;
use crate::command::Limits;
use crate::engine::{Engine, Origin, ThreadSlot, WaitsFor};
use crate::limits::{HELD_OUTPUT, OUTPUT_PAUSE};

/// What a connection's commands run with.
pub struct PortCaller<'a, P> {
    /// The worker that runs them.
    pub worker: &'a PortWorker,
    /// The worker's turn.
    pub turn: &'a mut ThisTurn,
    /// The connection.
    pub session: &'a mut P,
    /// The limits of commands outside of any transaction or script.
    pub limits: Limits,
    /// Replies are appended here.
    pub output: &'a mut Output,
    /// The end of the output before the reply to the command that runs.
    pub said: usize,
}

impl<'a, P: Protocol> PortCaller<'a, P> {
    /// For a connection whose replies begin at the end of `output`. Limits them to the bytes that
    /// may wait for it, plus what is written before the length is checked.
    #[inline]
    pub fn new(serving: &'a mut Serving<'_>, session: &'a mut P) -> Self {
        let Serving { worker, turn, output } = serving;
        let (context, said) = (worker.engine().context(), output.end());
        let most = context.settings.port.most_output();
        session.flow_mut().most_output =
            most.saturating_add(output.len() + OUTPUT_PAUSE + HELD_OUTPUT);
        let limits = context.limits_alone(usize::MAX);
        PortCaller { worker, turn, session, limits, output, said }
    }

    /// The keyspace.
    #[inline]
    pub fn engine(&self) -> &'a Engine {
        self.worker.engine()
    }

    /// The worker's place in the engine.
    #[inline]
    pub fn slot(&self) -> &'a ThreadSlot {
        self.worker.slot()
    }

    /// The connection waits for its command, which runs elsewhere.
    pub fn wait_for<R: MakeReply>(&mut self, whom: WaitsFor, reply: R) -> Origin {
        let since = (whom == WaitsFor::Shard).then_some(self.turn.now);
        let waiting = self.waiting(reply);
        self.session.flow_mut().queued_since = since;
        let Client { worker, key, .. } = *self.session.flow().client;
        Origin::Worker { worker, connection: key.packed(), client: Box::new(waiting) }
    }

    /// The connection waits; if for a job, `reply` makes the reply.
    pub fn waiting<R: MakeReply>(&mut self, reply: R) -> AwaitingClient<R> {
        let flow = self.session.flow_mut();
        flow.state = State::Waiting;
        AwaitingClient::new(&self.worker.shared, &flow.client, reply)
    }
}
