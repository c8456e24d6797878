//! A command of a connection that speaks memcached's protocol, as its worker runs it: how it is
//! answered, and how it waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::reply::{MemcachedReply, OneWording, Wording};
use crate::command::{DoorCommand, Reply, Transcript};
use crate::engine::{
    self, Call, CalledFrom, JobDoor, JobOwner, JobReply, Origin, PortClient, WaitsFor,
};
use crate::net::client::Client;
use crate::net::flow::State;
use crate::net::protocol::Protocol;
use crate::net::resp::PortCaller;
use crate::net::shared::{PortMessage, Shared};
use crate::net::transport::Output;
use crate::net::waiting::WaitingConnection;

/// A command of a connection.
pub struct ItemCaller<'c, 'p> {
    /// The connection.
    pub port: &'c mut PortCaller<'p>,
    /// The command's key.
    pub key: &'c [u8],
    /// How it is answered.
    pub answered: Wording,
}

impl ItemCaller<'_, '_> {
    /// The command is answered later, by whoever runs it.
    fn wait_with(&mut self) -> AwaitedItem {
        let session = &mut *self.port.session;
        session.flow.state = State::Waiting;
        if let Some(conversation) = &mut session.memcached {
            conversation.waiting = Some((self.key.into(), self.answered));
        }
        let client = Arc::clone(&session.flow.client);
        AwaitedItem { shared: Arc::clone(&self.port.worker.shared), client }
    }
}

impl engine::Caller for ItemCaller<'_, '_> {
    type Reply<'r>
        = MemcachedReply<'r, 'r, OneWording<'r>>
    where
        Self: 'r;

    fn reply(&mut self) -> MemcachedReply<'_, '_, OneWording<'_>> {
        let most = self.port.session.flow.most_output;
        MemcachedReply::of_one(self.port.output, self.key, self.answered).up_to(most)
    }

    fn take_back(&mut self) {
        self.port.output.truncate(self.port.said);
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn wait(&mut self, whom: WaitsFor) -> Option<Origin> {
        let awaited = self.wait_with();
        let queued = (whom == WaitsFor::Shard).then_some(self.port.turn.now);
        self.port.session.flow.queued_since = queued;
        let (worker, connection) = (awaited.client.worker, awaited.client.key.packed());
        Some(Origin::Worker { worker, connection, client: Box::new(awaited) })
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        Some(self.wait_with().job(db))
    }

    fn hold_up(&mut self) {
        self.port.session.flow.state = State::Deferred;
    }

    fn run_by_host(&mut self, call: &Call<'_>, _: DoorCommand) {
        call.refuse(crate::command::Error::Internal, &mut engine::Caller::reply(self));
    }
}

/// A client whose command, or job, runs elsewhere.
struct AwaitedItem {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

impl AwaitedItem {
    fn job(&self, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        let client = &self.client;
        let gone = Arc::clone(&client.gone);
        let from = client.called_from();
        let owner = JobOwner { db, client: client.id, door: JobDoor::Port, from, gone };
        let to = WaitingConnection::new(&self.shared, client.worker, client.key);
        (
            owner,
            Box::new(ItemJobAnswer { to, client: client.id, said: Transcript::default(), seen: 0 }),
        )
    }
}

impl PortClient for AwaitedItem {
    fn is_gone(&self) -> bool {
        self.client.killed.load(Ordering::Relaxed)
    }

    fn called_from(&self) -> CalledFrom {
        self.client.called_from()
    }

    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        let (said, seen, last) = (Output::default(), 0, false);
        let (worker, key) = (self.client.worker, self.client.key);
        // From now on it waits for a job, not for a shard.
        self.shared.send(worker, PortMessage::Part { key, said, seen, last });
        self.job(db)
    }
}

/// The short reply of a job.
struct ItemJobAnswer {
    to: WaitingConnection,
    client: u64,
    said: Transcript,
    seen: u64,
}

impl JobReply for ItemJobAnswer {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.said
    }

    fn is_awaited(&self) -> bool {
        self.to.is_there(self.client)
    }

    fn waits_for(&mut self, position: u64) {
        self.seen = self.seen.max(position);
    }

    fn close(&mut self) {}

    fn finish(self: Box<Self>) {
        let ItemJobAnswer { to, said, seen, .. } = *self;
        let answer = Box::new(move |session: &mut _, output: &mut _| {
            Protocol::say(session, &said, output);
        });
        to.ends(|key| PortMessage::Answer(key, seen, answer));
    }
}
