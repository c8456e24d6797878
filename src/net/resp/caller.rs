//! A connection's command, as its worker runs it: who calls, how it is answered, how it waits.

use super::RespReply;
use super::job::PortReply;
use super::session::{BUSY, RespSession};
use crate::command::{DoorCommand, Reply};
use crate::engine::{self, Author, Call, JobOwner, JobReply, Origin, PortClient, WaitsFor};
use crate::net::caller::PortCaller;
use crate::net::client::Client;
use crate::net::flow::State;
use crate::net::waiting::{MakeReply, WaitingConnection};
use crate::store::Now;

/// What a connection's commands run with.
pub type RespCaller<'a> = PortCaller<'a, RespSession>;

impl RespCaller<'_> {
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

    fn reply_maker(&self) -> RespReplyMaker {
        RespReplyMaker { resp3: self.session.resp3 }
    }
}

impl engine::Caller for RespCaller<'_> {
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
        Some(self.wait_for(whom, self.reply_maker()))
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        Some(self.waiting(self.reply_maker()).job(db))
    }

    fn hold_up(&mut self) {
        self.session.flow.state = State::Deferred;
    }

    /// The main thread runs it.
    fn run_by_host(&mut self, call: &Call<'_>, which: DoorCommand) {
        let (command, db, limits, prefix) = (call.command, call.db, call.limits, call.prefix);
        let args = call.args.to_owned(usize::MAX);
        let user = self.session.access.user.clone();
        let waiting = self.waiting(self.reply_maker());
        let reply =
            PortReply::new(waiting.connection(), &waiting.client, self.session.resp3).seeing_all();
        self.engine().context().send_main_task(Box::new(move |locked, engine, host| {
            if waiting.is_gone() {
                return;
            }
            let Some(host) = host else { return reply.say(|reply| reply.error(BUSY)) };
            args.with(|args| {
                let now = Now::lazy(engine.config().clock);
                let call = Call { command, args, db, now, limits, prefix, author: Author::Nobody };
                let user = user.as_ref().map_or(&b""[..], |user| &user.name);
                host.run_door_command(locked, &call, which, user, waiting.owner(db), reply);
            });
        }));
    }
}

/// Makes replies of jobs, in RESP3 or RESP2.
struct RespReplyMaker {
    resp3: bool,
}

impl MakeReply for RespReplyMaker {
    fn make(self, to: WaitingConnection, client: &Client) -> Box<dyn JobReply> {
        PortReply::new(to, client, self.resp3)
    }
}
