//! A command of a connection that speaks memcached's protocol, as its worker runs it: how it is
//! answered, and how it waits.

use super::reply::{MemcachedReply, OneWording, Wording};
use super::session::MemcachedSession;
use crate::command::{DoorCommand, Reply, Transcript};
use crate::engine::{self, Call, JobOwner, JobReply, Origin, WaitsFor};
use crate::net::caller::PortCaller;
use crate::net::client::Client;
use crate::net::flow::State;
use crate::net::protocol::Protocol;
use crate::net::waiting::{MakeReply, WaitingConnection};

/// What a connection's requests run with.
pub type MemcachedCaller<'a> = PortCaller<'a, MemcachedSession>;

/// A command of a connection.
pub struct ItemCaller<'c, 'p> {
    /// The connection.
    pub port: &'c mut MemcachedCaller<'p>,
    /// The command's key.
    pub key: &'c [u8],
    /// How it is answered.
    pub answered: Wording,
}

impl ItemCaller<'_, '_> {
    /// Keeps what its answer needs, for whoever runs it.
    fn keep_wording(&mut self) {
        self.port.session.waiting = Some((self.key.into(), self.answered));
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
        self.keep_wording();
        Some(self.port.wait_for(whom, ItemReplyMaker))
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        self.keep_wording();
        Some(self.port.waiting(ItemReplyMaker).job(db))
    }

    fn hold_up(&mut self) {
        self.port.session.flow.state = State::Deferred;
    }

    fn run_by_host(&mut self, call: &Call<'_>, _: DoorCommand) {
        call.refuse(crate::command::Error::Internal, &mut engine::Caller::reply(self));
    }
}

/// Makes replies of jobs.
struct ItemReplyMaker;

impl MakeReply for ItemReplyMaker {
    fn make(self, to: WaitingConnection, client: &Client) -> Box<dyn JobReply> {
        Box::new(ItemJobAnswer { to, client: client.id, said: Transcript::default(), seen: 0 })
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
        to.answers(seen, move |session: &mut MemcachedSession, output| session.say(&said, output));
    }
}
