//! `appendfsync always` at the host's door: no reply shows what a crash could take back.
//!
//! The host writes and syncs its AOF before it sends the replies of a turn of its main loop. So a
//! command that has seen runs which the host does not have yet hands them over in its own context,
//! and its reply comes after them. There are two exceptions:
//!
//! - While clients are paused, nothing may be logged. A command then waits, and in a unit, where it
//!   cannot, it answers TRYAGAIN. A unit that writes is not begun during a pause, so that it has
//!   changed nothing by then.
//! - Some versions, with I/O threads, send replies before they sync the AOF ([`IoThreads`]). There
//!   a client is blocked, and unblocked at once: the host answers it after the next sync.
//!
//! [`IoThreads`]: super::super::super::io_threads::IoThreads

use super::super::super::api::Ctx;
use super::super::super::blocked::Blocked;
use super::super::super::door::{HostCaller, may_wait};
use super::super::super::instance::instance;
use super::super::super::reply::HostReply;
use super::context::may_log;
use crate::command::{DoorCommand, Error, Transcript};
use crate::engine::{
    Call, Caller, Engine, ForMain, HostClient, JobOwner, JobReply, Locked, Origin, Request,
    WaitsFor,
};

/// Runs a command so that its reply waits for what it shows.
#[cold]
pub fn run(ctx: Ctx<'_>, engine: &Engine, call: &mut Call<'_>) {
    let locked = ctx.locked();
    let slot = engine.main_slot(locked);
    let is_paused = !may_log(ctx, Some(call.row()));
    // A run is counted in these bytes before anybody can see what it has done.
    if is_paused && engine.ledger.log.tail_bytes() > 0 {
        return wait(ctx, engine, call, may_wait(ctx));
    }
    slot.take_seen();
    let mut late = LateCaller { ctx, reply: Transcript::default() };
    let answers_later = instance().io_threads.answer_early() && may_wait(ctx);
    let is_late = is_paused || answers_later;
    if is_late {
        engine.run(slot, call, &mut late);
    } else {
        engine.run(slot, call, &mut HostCaller(ctx));
    }
    let seen = slot.take_seen();
    let is_logged = seen <= engine.ledger.log.logged() || engine.ledger.log_whole_tail(locked);
    // In a pause that has just begun a worker may have published a run: it cannot be logged now.
    if is_paused && !is_logged && !call.row().flags.write && !late.reply.is_empty() {
        return wait(ctx, engine, call, may_wait(ctx));
    }
    if is_late {
        late.answer(locked, answers_later && seen > engine.ledger.log.safe());
    }
}

/// Has the client of a command wait until the tail is logged.
fn wait(ctx: Ctx<'_>, engine: &Engine, call: &Call<'_>, can_wait: bool) {
    let Some(blocked) = can_wait.then(|| Blocked::new(ctx)).flatten() else {
        return call.refuse(Error::LogWaits, &mut HostReply::new(ctx));
    };
    let slot = engine.main_slot(ctx.locked());
    // It has been admitted: it is not refused for the number of those that wait.
    let _ = engine.ledger.books.book_queued(slot, usize::MAX);
    let request = Box::new(Request::new(call, Origin::Main(blocked)));
    engine.context().main.keep_until_logged(engine.ledger.log.last(), ForMain::Run(request));
}

/// A client whose reply may have to wait until the host has synced its AOF.
struct LateCaller<'a> {
    ctx: Ctx<'a>,
    reply: Transcript,
}

impl LateCaller<'_> {
    /// Sends the reply, at once or after the next sync. Nothing is left to be sent if the command
    /// waits.
    fn answer(self, locked: Locked<'_>, late: bool) {
        if self.reply.is_empty() {
            return;
        }
        match late.then(|| Blocked::new(self.ctx)).flatten() {
            Some(blocked) => blocked.answer(locked, self.reply),
            None => self.reply.play(&mut HostReply::new(self.ctx)),
        }
    }
}

impl Caller for LateCaller<'_> {
    type Reply<'r>
        = &'r mut Transcript
    where
        Self: 'r;

    fn reply(&mut self) -> &mut Transcript {
        &mut self.reply
    }

    fn take_back(&mut self) {
        self.reply = Transcript::default();
    }

    fn may_wait(&self) -> bool {
        HostCaller(self.ctx).may_wait()
    }

    fn wait(&mut self, whom: WaitsFor) -> Option<Origin> {
        HostCaller(self.ctx).wait(whom)
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        HostCaller(self.ctx).wait_for_job(db)
    }

    fn hold_up(&mut self) {}

    fn run_by_host(&mut self, call: &Call<'_>, which: DoorCommand) {
        HostCaller(self.ctx).run_by_host(call, which);
    }
}
