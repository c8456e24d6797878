//! A connection's command, as its worker runs it: who calls, how it is answered, how it waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::job::PortReply;
use super::session::{BUSY, Session};
use super::{ArgList, RespReply};
use crate::command::{DoorCommand, Limits, Reply};
use crate::engine::{
    self, Author, Call, CalledFrom, Engine, JobDoor, JobOwner, JobReply, Origin, PortClient,
    ThreadSlot, WaitsFor,
};
use crate::limits::{HELD_OUTPUT, OUTPUT_PAUSE};
use crate::net::client::Client;
use crate::net::flow::State;
use crate::net::protocol::Serving;
use crate::net::shared::Shared;
use crate::net::transport::Output;
use crate::net::turn::ThisTurn;
use crate::net::worker::PortWorker;
use crate::store::Now;

/// What a connection's commands run with.
pub struct PortCaller<'a> {
    /// The worker that runs them.
    pub worker: &'a PortWorker,
    /// The worker's turn.
    pub turn: &'a mut ThisTurn,
    /// The connection.
    pub session: &'a mut Session,
    /// The limits of commands outside of any transaction or script.
    pub limits: Limits,
    /// Replies are appended here.
    pub output: &'a mut Output,
    /// The end of the output before the reply to the command that runs.
    pub said: usize,
    /// Its client sends no more.
    pub ended: bool,
}

impl<'a> PortCaller<'a> {
    /// For a connection whose replies begin at the end of `output`. Limits them to the bytes that
    /// may wait for it, plus what is written before the length is checked.
    #[inline]
    pub fn new(
        serving: &'a mut Serving<'_, Session>,
        session: &'a mut Session,
    ) -> (Self, &'a mut ArgList) {
        let Serving { worker, turn, scratch, output, ended } = serving;
        let (context, said) = (worker.engine().context(), output.end());
        let most = context.settings.port.most_output();
        session.flow.most_output = most.saturating_add(output.len() + OUTPUT_PAUSE + HELD_OUTPUT);
        let limits = context.limits_alone(usize::MAX);
        let caller = PortCaller { worker, turn, session, limits, output, said, ended: *ended };
        (caller, scratch)
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

    /// The reply to the command that runs.
    #[inline]
    pub fn reply(&mut self) -> RespReply<'_> {
        self.session.reply(self.output)
    }

    /// Replies `+OK`, or this error.
    pub fn say(&mut self, result: Result<(), Vec<u8>>) {
        match result {
            Ok(()) => self.reply().ok(),
            Err(text) => self.reply().error(&text),
        }
    }

    fn pending(&self) -> Pending {
        Pending {
            shared: Arc::clone(&self.worker.shared),
            client: Arc::clone(&self.session.flow.client),
            resp3: self.session.resp3,
        }
    }
}

impl engine::Caller for PortCaller<'_> {
    type Reply<'r>
        = RespReply<'r>
    where
        Self: 'r;

    #[inline]
    fn reply(&mut self) -> RespReply<'_> {
        self.session.reply(self.output)
    }

    fn take_back(&mut self) {
        self.output.truncate(self.said);
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn wait(&mut self, whom: WaitsFor) -> Option<Origin> {
        self.session.flow.state = State::Waiting;
        self.session.flow.queued_since = (whom == WaitsFor::Shard).then_some(self.turn.now);
        let client = &self.session.flow.client;
        let (worker, connection) = (client.worker, client.key.packed());
        Some(Origin::Worker { worker, connection, client: Box::new(self.pending()) })
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        self.session.flow.state = State::Waiting;
        Some(self.pending().job(db))
    }

    fn hold_up(&mut self) {
        self.session.flow.state = State::Deferred;
    }

    /// The main thread runs it.
    fn run_by_host(&mut self, call: &Call<'_>, which: DoorCommand) {
        self.session.flow.state = State::Waiting;
        let (command, db, limits, prefix) = (call.command, call.db, call.limits, call.prefix);
        let args = call.args.to_owned(usize::MAX);
        let user = self.session.user.clone();
        let pending = self.pending();
        let reply = pending.reply().seeing_all();
        self.engine().context().send_main_task(Box::new(move |locked, engine, host| {
            if pending.is_gone() {
                return;
            }
            let Some(host) = host else { return reply.say(|reply| reply.error(BUSY)) };
            args.with(|args| {
                let now = Now::lazy(engine.config().clock);
                let call = Call { command, args, db, now, limits, prefix, author: Author::Nobody };
                let user = user.as_ref().map_or(&b""[..], |user| &user.name);
                host.run_door_command(locked, &call, which, user, pending.owner(db), reply);
            });
        }));
    }
}

/// A client whose command, or job, runs elsewhere.
struct Pending {
    shared: Arc<Shared>,
    client: Arc<Client>,
    resp3: bool,
}

impl Pending {
    fn reply(&self) -> Box<PortReply> {
        PortReply::new(&self.shared, &self.client, self.resp3)
    }

    /// The owner of its job.
    fn owner(&self, db: u32) -> JobOwner {
        let client = &self.client;
        let (from, gone) = (client.called_from(), Arc::clone(&client.gone));
        JobOwner { db, client: client.id, door: JobDoor::Port, from, gone }
    }

    fn job(&self, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        (self.owner(db), self.reply())
    }
}

impl PortClient for Pending {
    fn is_gone(&self) -> bool {
        self.client.killed.load(Ordering::Relaxed)
    }

    fn called_from(&self) -> CalledFrom {
        self.client.called_from()
    }

    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        let (owner, reply) = (self.owner(db), self.reply());
        reply.begin();
        (owner, reply)
    }
}
