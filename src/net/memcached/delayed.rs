//! `flush_all` with a delay, when its time has come.
//!
//! The process that was asked keeps the time. When it has come the flush is a FLUSHDB like any
//! other, so the log and replicas have it; a server that is no master any more refuses it.

use super::alone::FLUSHDB;
use crate::command::{Args, DoorCommand, Transcript};
use crate::engine::{self, Author, Call, JobOwner, JobReply, Origin, PortClient, WaitsFor};
use crate::net::transport::Key;
use crate::net::worker::PortWorker;
use crate::store::Now;

/// Empties the databases whose time has come, if this worker is the one to do so. It may be called
/// now and then.
pub fn flush_due(worker: &PortWorker) {
    let clock = worker.engine().config().clock;
    if worker.number != 0 {
        return;
    }
    while let Some((db, at)) = worker.shared.flushes.due(clock()) {
        let mut call = Call {
            command: FLUSHDB,
            args: Args::new(&[b"flushdb"]),
            db,
            now: Now::lazy(clock),
            limits: worker.engine().settings().limits(usize::MAX),
            prefix: "",
            author: Author::Nobody,
        };
        let mut flush = DelayedFlush { said: Transcript::default(), is_held_up: false };
        worker.engine().run(worker.slot(), &mut call, &mut flush);
        // A server that is no master any more forgets it; any other gate will open.
        let comes_later = |error: &[u8]| !error.starts_with(b"READONLY ");
        if flush.is_held_up || flush.said.first_error().is_some_and(comes_later) {
            return;
        }
        worker.shared.flushes.forget(db, at);
    }
}

/// A flush that nobody waits for.
struct DelayedFlush {
    said: Transcript,
    is_held_up: bool,
}

impl engine::Caller for DelayedFlush {
    type Reply<'r> = &'r mut Transcript;

    fn reply(&mut self) -> &mut Transcript {
        &mut self.said
    }

    fn take_back(&mut self) {
        self.said = Transcript::default();
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn wait(&mut self, _: WaitsFor) -> Option<Origin> {
        // No connection has this number.
        let connection = Key::default().packed();
        Some(Origin::Worker { worker: 0, connection, client: Box::new(Nobody::default()) })
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        Some(Box::new(Nobody::default()).wait_for_job(db))
    }

    fn hold_up(&mut self) {
        self.is_held_up = true;
    }

    fn run_by_host(&mut self, _: &Call<'_>, _: DoorCommand) {}
}

/// Stands where a client would: it reads no reply.
#[derive(Default)]
struct Nobody(Transcript);

impl PortClient for Nobody {
    fn is_gone(&self) -> bool {
        false
    }

    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        (JobOwner { db, ..JobOwner::default() }, self)
    }
}

impl JobReply for Nobody {
    fn sink(&mut self) -> &mut dyn crate::command::Reply {
        &mut self.0
    }

    fn close(&mut self) {}

    fn finish(self: Box<Self>) {}
}
