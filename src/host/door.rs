//! The host door: MIDI.* commands on the host's own port.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use redis_module::raw;
use smallvec::SmallVec;

use super::api::{Ctx, RawCtx, RawString, api, bytes};
use super::blocked::{Blocked, BlockedReply};
use super::kept::HostArgs;
use super::reply::HostReply;
use super::{copy, events, guarded, info, news, unit};
use crate::command::{Action, Args, COMMANDS, DoorCommand, Error, Reply, Tape, find};
use crate::limits::MAX_MAIN_REPLY_BYTES;
use crate::shard::{
    Call, Engine, Home, JobOwner, Outcome, Request, Taking, Verdict, Waker, Work, is_long, long_work,
};
use crate::store::Now;

/// What the host's commands begin with.
pub const PREFIX: &str = "midi.";

/// Where no client may be blocked: the command must run here and now.
const MUST_NOT_BLOCK: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
    | raw::REDISMODULE_CTX_FLAGS_LUA
    | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
    | raw::REDISMODULE_CTX_FLAGS_LOADING
    | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
    | raw::REDISMODULE_CTX_FLAGS_REPLICATED;

/// The door, once the module is loaded.
pub struct Door {
    /// The keyspace.
    pub engine: Arc<Engine>,
    /// `midi.dispatch pool`: commands of this turn of the main loop.
    #[expect(clippy::vec_box, reason = "requests are boxed for their whole way")]
    batch: Mutex<Vec<Box<Request>>>,
    /// For questions to the host outside of any command. Under the lock only.
    ctx: usize,
    /// Whether the main thread's eventfd was written to since it was last read.
    called: &'static Calls,
}

/// How other threads end the main thread's sleep.
pub struct Calls {
    /// In the host's event loop.
    pub waker: Waker,
    pending: AtomicBool,
}

impl Calls {
    /// # Errors
    /// The system's, where it gives out no more descriptors.
    pub fn new() -> std::io::Result<Self> {
        Ok(Calls { waker: Waker::new()?, pending: AtomicBool::new(false) })
    }

    /// Ends the sleep.
    pub fn call(&self) {
        // In this order: a call that is read too early is read again.
        self.waker.wake();
        self.pending.store(true, Ordering::Release);
    }
}

static DOOR: OnceLock<Door> = OnceLock::new();

/// Opens the door. Once, in OnLoad.
pub fn open(ctx: Ctx, engine: Arc<Engine>, called: &'static Calls) {
    // SAFETY: on the main thread, with a valid context.
    let ctx = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx.0) } as usize;
    let door = Door { engine, batch: Mutex::default(), ctx, called };
    assert!(DOOR.set(door).is_ok(), "the host loads a module once");
}

/// The door. Everything that asks for it is registered after it was opened.
#[inline]
pub fn door() -> &'static Door {
    DOOR.get().expect("opened before anything could ask for it")
}

/// Whether there is a door yet.
pub fn opened() -> bool {
    DOOR.get().is_some()
}

/// Every MIDI.* command comes in here.
pub unsafe extern "C" fn on_command(ctx: *mut RawCtx, argv: *mut *mut RawString, argc: c_int) -> c_int {
    let done = guarded(false, || {
        // SAFETY: the host's own arguments, alive until this returns.
        let argv = unsafe { std::slice::from_raw_parts(argv, argc as usize) };
        door().command(Ctx(ctx), argv);
        true
    });
    if !done {
        HostReply(Ctx(ctx)).error(&Error::Internal.text("", &Args::new(&[])));
    }
    raw::REDISMODULE_OK as c_int
}

impl Door {
    /// A context for the holder of the global lock.
    pub fn ctx(&self) -> Ctx {
        Ctx(self.ctx as *mut RawCtx)
    }

    /// The main thread is up: calls so far have been heard. Reading the eventfd
    /// is a system call, so it is done only where there was a call.
    pub fn forget_calls(&self) {
        if self.called.pending.swap(false, Ordering::Acquire) {
            self.called.waker.clear();
        }
    }

    fn command(&self, ctx: Ctx, argv: &[*mut RawString]) {
        // SAFETY: arguments of the running command.
        let Some(number) = find(&unsafe { bytes(argv[0]) }[PREFIX.len()..]) else {
            return HostReply(ctx).error(b"ERR unknown midi command");
        };
        let row = COMMANDS[number];
        let inside = unit::is_inside(ctx);
        let limits = self.engine.settings.limits(MAX_MAIN_REPLY_BYTES);
        let list: SmallVec<[&[u8]; 8]> = argv
            .iter()
            .map(|&string| {
                // SAFETY: arguments of the running command. What is going to be
                // kept is trimmed first, which may move it.
                unsafe {
                    let text = bytes(string);
                    if text.len() >= limits.keep_bytes {
                        HostArgs::trim(string);
                        return bytes(string);
                    }
                    text
                }
            })
            .collect();
        let keeper = HostArgs(argv);
        let call = Call {
            command: number,
            args: Args::with_keeper(&list, &keeper),
            db: ctx.selected_db(),
            now: if inside { self.engine.main_now() } else { Now::lazy(self.engine.config.clock) },
            limits,
            prefix: PREFIX,
        };
        if let Err(error) = self.gates(ctx, &call) {
            return call.refuse(error, &mut HostReply(ctx));
        }
        match row.action {
            Action::Door(which) => self.own_command(ctx, &call, which),
            _ => self.run(ctx, call, inside),
        }
        news::tell();
    }

    #[inline]
    fn gates(&self, ctx: Ctx, call: &Call<'_>) -> Result<(), Error> {
        let row = call.row();
        row.check_arity(&call.args)?;
        if row.flags.write {
            events::check_write_gate(ctx);
            // The host itself has judged memory (deny-oom).
            if let Some(error) = self.engine.write_refusal(false) {
                return Err(error);
            }
        }
        Ok(())
    }

    fn run(&self, ctx: Ctx, mut call: Call<'_>, inside_unit: bool) {
        let engine = &*self.engine;
        let seat = engine.main_seat();
        if !inside_unit && !engine.config.safemode {
            let pool = engine.settings.pool.load(Ordering::Relaxed);
            if pool && may_block(ctx) {
                return self.hand_over(ctx, &call, true);
            }
            match engine.attempt(seat, &call, Taking::MAIN, &mut HostReply(ctx)) {
                Outcome::Done => return engine.book_at_once(seat),
                Outcome::Long if may_block(ctx) => return self.start_long(ctx, &call),
                Outcome::Busy | Outcome::TooLarge if may_block(ctx) => {
                    return self.hand_over(ctx, &call, false);
                }
                _ => {}
            }
        }
        call.limits.max_reply_bytes = usize::MAX;
        self.run_to_end(&call, &mut HostReply(ctx));
    }

    /// Runs a command here and now, waiting for tokens, however long it takes.
    fn run_to_end(&self, call: &Call<'_>, reply: &mut dyn Reply) {
        let engine = &*self.engine;
        let seat = engine.main_seat();
        if engine.attempt(seat, call, Taking::Wait, reply) == Outcome::Long {
            let started = Instant::now();
            match long_work(engine, call) {
                Ok(work) => engine.run_to_end(work, reply),
                Err(error) => call.refuse(error, reply),
            }
            engine.book_long(seat, call.command, started);
        }
        engine.book_at_once(seat);
    }

    /// Starts long work as a job. A flush has its effect here, so what could
    /// refuse the job comes first.
    fn start_long(&self, ctx: Ctx, call: &Call<'_>) {
        let work = self.engine.room_for_job().and_then(|()| long_work(&self.engine, call));
        match work {
            Ok(work) => self.start_job(call, work, Blocked::new(ctx)),
            Err(error) => call.refuse(error, &mut HostReply(ctx)),
        }
    }

    /// Gives a command to the workers.
    fn hand_over(&self, ctx: Ctx, call: &Call<'_>, batched: bool) {
        let engine = &*self.engine;
        if is_long(call) {
            return self.start_long(ctx, call);
        }
        if let Err(error) = engine.book_queued(engine.main_seat()) {
            return call.refuse(error, &mut HostReply(ctx));
        }
        let ticket = Blocked::new(ctx).into_ticket();
        let request = Box::new(Request::new(call, Home::Main, ticket, Blocked::write_large));
        if !batched {
            return engine.enqueue(request);
        }
        let mut batch = self.batch.lock();
        // Commands also run after BEFORE_SLEEP; the batch must not lie until
        // something else wakes the main loop.
        if batch.is_empty() && engine.main.is_asleep() {
            engine.wake_main();
        }
        batch.push(request);
    }

    /// Starts a job for a client that waits for its reply.
    pub fn start_job(&self, call: &Call<'_>, work: Work, blocked: Blocked) {
        let owner = JobOwner { db: call.db, client: blocked.client_id(), gone: blocked.watch() };
        self.engine.start_job(call.command, owner, work, Box::new(BlockedReply::new(blocked)));
    }

    /// Sends what `pool` gathered, and answers what has come home. On the main
    /// thread, between commands.
    pub fn turn(&self) {
        let batch = std::mem::take(&mut *self.batch.lock());
        if !batch.is_empty() {
            self.engine.enqueue_batch(batch.into_iter());
        }
        self.engine.tell_announced();
        let home = self.engine.main.take();
        // What they did is told before they are answered.
        news::tell();
        for request in home {
            guarded((), || self.came_home(request));
        }
        news::tell();
    }

    fn came_home(&self, mut request: Box<Request>) {
        if request.verdict == Verdict::NeedsMain {
            let args = std::mem::take(&mut request.args);
            return args.with(|args| self.go_on(request, args));
        }
        self.engine.came_home();
        Blocked::finish_request(request);
    }

    /// Goes on with a command that a worker could not run.
    fn go_on(&self, mut request: Box<Request>, args: Args<'_>) {
        let engine = &*self.engine;
        let call = engine.call_of(&request, args);
        let mut tape = Tape::default();
        let outcome = match engine.late_refusal(&call) {
            Some(error) => {
                call.refuse(error, &mut tape);
                Outcome::Done
            }
            None => engine.attempt(engine.main_seat(), &call, Taking::Wait, &mut tape),
        };
        if outcome == Outcome::Long {
            match engine.room_for_job().and_then(|()| long_work(engine, &call)) {
                Ok(work) => {
                    engine.came_home();
                    return self.start_job(&call, work, Blocked::of_ticket(request.ticket));
                }
                Err(error) => call.refuse(error, &mut tape),
            }
        }
        request.verdict = Verdict::Done;
        request.reply = tape;
        if request.reply.len() > MAX_MAIN_REPLY_BYTES {
            return engine.reply_on_worker(request);
        }
        engine.came_home();
        Blocked::finish_request(request);
    }

    fn own_command(&self, ctx: Ctx, call: &Call<'_>, which: DoorCommand) {
        let reply = &mut HostReply(ctx);
        let result = match which {
            DoorCommand::Import => copy::import(self, ctx, call),
            DoorCommand::Export => copy::export(self, ctx, call),
            DoorCommand::Jobs => info::jobs(&self.engine, call, reply),
            DoorCommand::Info => {
                info::info(&self.engine, call, reply);
                Ok(())
            }
            DoorCommand::Help => {
                info::help(reply);
                Ok(())
            }
        };
        if let Err(error) = result {
            call.refuse(error, reply);
        }
    }
}

/// Whether this command's client may be blocked.
pub fn may_block(ctx: Ctx) -> bool {
    ctx.flags() & MUST_NOT_BLOCK == 0
}
