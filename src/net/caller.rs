//! The caller of a command that runs for a connection: how it is answered, and how it waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::client::Client;
use super::connection::{Connection, State};
use super::driver::Driver;
use super::job::PortReply;
use super::resp::RespReply;
use super::service::Service;
use super::session::BUSY;
use super::shared::Shared;
use crate::command::DoorCommand;
use crate::engine::{
    self, Author, Call, JobDoor, JobOwner, JobReply, Origin, PortClient, WaitsFor,
};
use crate::store::Now;

/// A connection, as its worker runs a command for it.
pub(super) struct PortCaller<'a> {
    shared: &'a Arc<Shared>,
    now: Instant,
    connection: &'a mut Connection,
    output: &'a mut Vec<u8>,
    /// The length of the output before this command's reply.
    said: usize,
}

impl<D: Driver> Service<D> {
    /// The caller for this connection; its reply is appended to `output`.
    #[inline]
    pub(super) fn caller<'a>(
        &'a self,
        connection: &'a mut Connection,
        output: &'a mut Vec<u8>,
    ) -> PortCaller<'a> {
        let said = output.len();
        PortCaller { shared: &self.shared, now: self.now, connection, output, said }
    }
}

impl PortCaller<'_> {
    fn pending(&self) -> Pending {
        Pending {
            shared: Arc::clone(self.shared),
            client: Arc::clone(&self.connection.client),
            resp3: self.connection.session.resp3,
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
        self.connection.session.reply(self.output)
    }

    fn take_back(&mut self) {
        self.output.truncate(self.said);
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn wait(&mut self, whom: WaitsFor) -> Option<Origin> {
        self.connection.state = State::Waiting;
        self.connection.queued_since = (whom == WaitsFor::Shard).then_some(self.now);
        let client = &self.connection.client;
        let (worker, connection) = (client.worker, client.key.packed());
        Some(Origin::Worker { worker, connection, client: Box::new(self.pending()) })
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        self.connection.state = State::Waiting;
        Some(self.pending().job(db))
    }

    fn hold_up(&mut self) {
        self.connection.state = State::Deferred;
    }

    /// The main thread runs it.
    fn run_by_host(&mut self, call: &Call<'_>, which: DoorCommand) {
        self.connection.state = State::Waiting;
        let (command, db, limits, prefix) = (call.command, call.db, call.limits, call.prefix);
        let args = call.args.to_owned(usize::MAX);
        let user = self.connection.session.user.clone();
        let pending = self.pending();
        let reply = pending.reply().seeing_all();
        self.shared.engine.context().send_main_task(Box::new(move |locked, engine, host| {
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
        JobOwner { db, client: client.id, door: JobDoor::Port, gone: Arc::clone(&client.gone) }
    }

    fn job(&self, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        (self.owner(db), self.reply())
    }
}

impl PortClient for Pending {
    fn is_gone(&self) -> bool {
        self.client.killed.load(Ordering::Relaxed)
    }

    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        let (owner, reply) = (self.owner(db), self.reply());
        reply.begin();
        (owner, reply)
    }
}
