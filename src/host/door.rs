//! The host door: MIDI.* commands on the host's own port.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis_module::raw;

use super::api::{Ctx, RawCtx, RawString};
use super::blocked::Blocked;
use super::copy::{Caller, Wait};
use super::gates::GATES;
use super::instance::instance;
use super::kept::HostArgs;
use super::register::Trampoline;
use super::reply::HostReply;
use super::string::HostString;
use super::users::USERS;
use super::{PREFIX, guarded, keys, news, own_commands, unit};
use crate::command::{Action, Args, COMMANDS, Command, DoorCommand, Error, Reply, rows_of_host};
use crate::limits::{MAIN_ARGUMENTS, MAX_MAIN_REPLY_BYTES};
use crate::shard::{
    Author, Call, Engine, Home, HostClient, Locked, Outcome, Request, Taking, Work, is_long, long_work,
};
use crate::store::Now;

/// Arguments of most commands: their list takes no allocation.
const FEW_ARGUMENTS: usize = 6;

/// Where no client may be blocked: the command must run here and now.
const MUST_NOT_BLOCK: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
    | raw::REDISMODULE_CTX_FLAGS_LUA
    | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
    | raw::REDISMODULE_CTX_FLAGS_LOADING
    | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
    | raw::REDISMODULE_CTX_FLAGS_REPLICATED;

/// One for each row, at the row's number.
macro_rules! trampolines {
    ($($family:ident::$row:ident)*) => {{
        // Counts the rows.
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        enum Number { $($row),* }
        [$(on::<{ Number::$row as usize }> as Trampoline),*]
    }};
}

/// Each command has a trampoline of its own, at its number: by the one that it
/// calls the host says which command it is, and no name is looked up.
/// docs/design.md has the figures.
pub static TRAMPOLINES: &[Trampoline] = &rows_of_host!(trampolines);

unsafe extern "C" fn on<const N: usize>(ctx: *mut RawCtx, argv: *mut *mut RawString, argc: c_int) -> c_int {
    // SAFETY: the host's own context and arguments, alive until this returns.
    let (ctx, argv) = unsafe { (Ctx::new(ctx), HostString::arguments(argv, argc)) };
    on_command(N, ctx, argv)
}

/// Every MIDI.* command comes in here.
#[inline(never)]
fn on_command(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) -> c_int {
    let done = guarded(false, || {
        command(number, ctx, argv);
        true
    });
    if !done {
        // Another command must not be taken for the author of what this one did.
        guarded((), || news::tell(ctx.locked(), None));
        HostReply::new(ctx).error(&Error::Internal.text("", &Args::new(&[])));
    }
    raw::REDISMODULE_OK as c_int
}

#[inline(always)]
fn command(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) {
    let (engine, row) = (&*instance().engine, COMMANDS[number]);
    if keys::are_asked_for(row.keys) && keys::answer(ctx, row, argv) {
        return;
    }
    let inside = unit::is_inside(ctx);
    let limits = engine.settings.limits(MAX_MAIN_REPLY_BYTES);
    let (mut few, mut many) = ([&[][..]; FEW_ARGUMENTS], Vec::new());
    let list = if argv.len() <= few.len() {
        &mut few[..argv.len()]
    } else {
        many.resize(argv.len(), &[][..]);
        &mut many[..]
    };
    let host_args = HostArgs::new(ctx.locked(), argv);
    for (index, text) in list.iter_mut().enumerate() {
        *text = if index == 0 { row.name.as_bytes() } else { host_args.text(index, limits.keep_bytes) };
    }
    let mut call = Call {
        command: number,
        args: Args::with_keeper(list, &host_args),
        db: ctx.selected_db(),
        now: if inside { engine.main_now(ctx.locked()) } else { Now::lazy(engine.config.clock) },
        limits,
        prefix: PREFIX,
        author: Author::Running,
    };
    if let Err(error) = row.check_arity(&call.args) {
        return call.refuse(error, &mut HostReply::new(ctx));
    }
    if let Err(text) = USERS.check(ctx, &call, inside) {
        return HostReply::new(ctx).error(&text);
    }
    if let Err(error) = write_gate(engine, ctx, row) {
        return call.refuse(error, &mut HostReply::new(ctx));
    }
    match row.action {
        Action::Door(which) => own_command(engine, ctx, &call, which),
        _ => run(engine, ctx, &mut call, inside),
    }
    // What the others' reads take out is told in the next turn.
    if row.flags.write {
        news::tell(ctx.locked(), Some(ctx));
    }
}

#[inline]
fn write_gate(engine: &Engine, ctx: Ctx<'_>, row: &Command) -> Result<(), Error> {
    if row.flags.write {
        GATES.check(ctx);
        // The host itself has judged memory (deny-oom).
        if let Some(error) = engine.write_refusal(false) {
            return Err(error);
        }
    }
    Ok(())
}

fn run(engine: &Engine, ctx: Ctx<'_>, call: &mut Call<'_>, inside_unit: bool) {
    let seat = engine.main_seat(ctx.locked());
    if !inside_unit && !engine.config.safemode {
        let pool = engine.settings.pool.load(Ordering::Relaxed);
        if (pool || is_broad(call)) && may_block(ctx) {
            return hand_over(engine, ctx, call, pool);
        }
        match engine.attempt(seat, call, Taking::MAIN, &mut HostReply::new(ctx)) {
            Outcome::Done => return engine.book_at_once(seat),
            Outcome::Long if may_block(ctx) => return start_long(engine, ctx, call),
            Outcome::Busy | Outcome::TooLarge if may_block(ctx) => {
                return hand_over(engine, ctx, call, false);
            }
            _ => {}
        }
    }
    call.limits.max_reply_bytes = usize::MAX;
    engine.run_waiting(ctx.locked(), call, &mut HostReply::new(ctx));
}

/// Whether a command takes so many keys that a worker had better run it.
fn is_broad(call: &Call<'_>) -> bool {
    call.args.len() > MAIN_ARGUMENTS && matches!(call.row().action, Action::ManyKeys(_))
}

/// Whether this command's client may be blocked.
fn may_block(ctx: Ctx<'_>) -> bool {
    ctx.flags() & MUST_NOT_BLOCK == 0
}

/// Runs a command that needs the host's means.
fn own_command(engine: &Engine, ctx: Ctx<'_>, call: &Call<'_>, which: DoorCommand) {
    let mut block = || Blocked::new(ctx).wait_for_job(ctx.locked(), call.db);
    let wait: Option<Wait<'_>> = if may_block(ctx) { Some(&mut block) } else { None };
    match own_commands::run(engine, Caller { ctx, user: None, wait }, call, which) {
        Ok(Some(tape)) => tape.play(&mut HostReply::new(ctx)),
        Ok(None) => {}
        Err(error) => call.refuse(error, &mut HostReply::new(ctx)),
    }
}

/// Starts long work as a job. A flush has its effect here, so what could
/// refuse the job comes first.
fn start_long(engine: &Engine, ctx: Ctx<'_>, call: &Call<'_>) {
    let work = long_work_with_room(engine, ctx.locked(), call);
    match work {
        Ok(work) => start_job(engine, ctx.locked(), call.command, call.db, work, Blocked::new(ctx)),
        Err(error) => call.refuse(error, &mut HostReply::new(ctx)),
    }
}

/// Long work that is to be a job, where there is room for one more.
pub fn long_work_with_room(engine: &Engine, locked: Locked<'_>, call: &Call<'_>) -> Result<Work, Error> {
    engine.room_for_job(call.command)?;
    long_work(engine, call, Some(locked))
}

/// Starts a job for a client that waits for its reply.
pub fn start_job(
    engine: &Engine,
    locked: Locked<'_>,
    command: usize,
    db: u32,
    work: Work,
    client: Box<dyn HostClient>,
) {
    let (owner, reply) = client.wait_for_job(locked, db);
    engine.start_job(command, owner, work, reply);
}

/// Gives a command to the workers.
fn hand_over(engine: &Engine, ctx: Ctx<'_>, call: &mut Call<'_>, batched: bool) {
    if is_long(call) {
        return start_long(engine, ctx, call);
    }
    if let Err(error) = engine.book_queued(engine.main_seat(ctx.locked())) {
        return call.refuse(error, &mut HostReply::new(ctx));
    }
    let blocked = Blocked::new(ctx);
    call.author = Author::Waiting(blocked.client_id());
    let request = Box::new(Request::new(call, Home::Main(blocked)));
    if batched { BATCH.add(engine, request) } else { engine.enqueue(request) }
}

static BATCH: Batch = Batch { requests: Mutex::new(Vec::new()), has_any: AtomicBool::new(false) };

/// `midi.dispatch pool`: commands of this turn of the main loop.
struct Batch {
    #[expect(clippy::vec_box, reason = "requests are boxed for their whole way")]
    requests: Mutex<Vec<Box<Request>>>,
    /// Whether there are any, for a look without the lock: every turn looks.
    has_any: AtomicBool,
}

impl Batch {
    fn add(&self, engine: &Engine, request: Box<Request>) {
        let mut requests = self.requests.lock();
        // Commands also run after BEFORE_SLEEP; the batch must not lie until
        // something else wakes the main loop.
        if requests.is_empty() && engine.main.is_asleep() {
            engine.wake_main();
        }
        requests.push(request);
        self.has_any.store(true, Ordering::Relaxed);
    }
}

/// Sends what `pool` gathered. Between commands.
#[inline]
pub fn send_batch(engine: &Engine) {
    if BATCH.has_any.load(Ordering::Relaxed) {
        BATCH.has_any.store(false, Ordering::Relaxed);
        let batch = std::mem::take(&mut *BATCH.requests.lock());
        engine.enqueue_batch(batch.into_iter());
    }
}
