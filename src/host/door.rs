//! The host door: MIDI.* commands on the host's own port.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use redis_module::raw;

use super::api::{Ctx, RawCtx, RawString};
use super::blocked::Blocked;
use super::context::DetachedCtx;
use super::copy::{Caller, Wait};
use super::kept::HostArgs;
use super::reply::HostReply;
use super::string::HostString;
use super::{budget, copy, gates, guarded, info, keys, news, unit, users};
use crate::command::{Action, Args, COMMANDS, Command, DoorCommand, Error, Reply, Tape};
use crate::limits::{MAIN_ARGUMENTS, MAX_MAIN_REPLY_BYTES};
use crate::shard::{
    Author, Call, Engine, ForMain, Home, HostClient, JobOwner, JobReply, Locked, Outcome, Request, Taking,
    Verdict, Waker, Work, is_long, long_work,
};
use crate::store::Now;

/// What the host's commands begin with.
pub const PREFIX: &str = "midi.";

/// Arguments of most commands: their list takes no allocation.
const FEW_ARGUMENTS: usize = 6;

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
    /// Whether there are any, for a look without the lock: every turn looks.
    has_batch: AtomicBool,
    /// What has been taken out of the main thread's inbox, and waits for its turn.
    waiting: Mutex<Waiting>,
    /// Whether there is any, for a look without the lock.
    has_waiting: AtomicBool,
    /// The host door's own completions that came while the main loop was kept from turning.
    put_off: Mutex<VecDeque<ForMain>>,
    has_put_off: AtomicBool,
    /// For questions to the host outside of any command.
    ctx: DetachedCtx,
    /// What the main thread sleeps on, in the host's event loop.
    waker: &'static Waker,
}

/// Messages for the main thread, oldest first.
#[derive(Default)]
struct Waiting {
    messages: VecDeque<ForMain>,
    /// Their senders' changes have been told when so many have been.
    news: u64,
    /// How often messages have been taken.
    batch: u64,
}

static DOOR: OnceLock<Door> = OnceLock::new();

/// Opens the door. Once, in OnLoad.
pub fn open(ctx: Ctx<'_>, engine: Arc<Engine>, waker: &'static Waker) {
    let door = Door {
        engine,
        batch: Mutex::default(),
        has_batch: AtomicBool::new(false),
        waiting: Mutex::default(),
        has_waiting: AtomicBool::new(false),
        put_off: Mutex::default(),
        has_put_off: AtomicBool::new(false),
        ctx: DetachedCtx::new(ctx),
        waker,
    };
    assert!(DOOR.set(door).is_ok(), "the host loads a module once");
}

/// The door. Everything that asks for it is registered after it was opened.
#[inline]
pub fn door() -> &'static Door {
    DOOR.get().expect("opened before anything could ask for it")
}

/// The host has taken the module back.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether there has been a door.
pub fn opened() -> bool {
    DOOR.get().is_some()
}

/// The door, if there is one.
pub fn while_open() -> Option<&'static Door> {
    DOOR.get().filter(|_| !CLOSED.load(Ordering::Relaxed))
}

/// Nobody comes through it any more.
pub fn close() {
    CLOSED.store(true, Ordering::Relaxed);
}

/// What the host calls for a command.
pub type Trampoline = unsafe extern "C" fn(*mut RawCtx, *mut *mut RawString, c_int) -> c_int;

/// Each command has a trampoline of its own, at its number: by the one that it
/// calls the host says which command it is, and no name is looked up.
/// docs/design.md has the figures.
pub static TRAMPOLINES: [Trampoline; 96] = [
    on::<0>, on::<1>, on::<2>, on::<3>, on::<4>, on::<5>, on::<6>, on::<7>, on::<8>, on::<9>, on::<10>,
    on::<11>, on::<12>, on::<13>, on::<14>, on::<15>, on::<16>, on::<17>, on::<18>, on::<19>, on::<20>,
    on::<21>, on::<22>, on::<23>, on::<24>, on::<25>, on::<26>, on::<27>, on::<28>, on::<29>, on::<30>,
    on::<31>, on::<32>, on::<33>, on::<34>, on::<35>, on::<36>, on::<37>, on::<38>, on::<39>, on::<40>,
    on::<41>, on::<42>, on::<43>, on::<44>, on::<45>, on::<46>, on::<47>, on::<48>, on::<49>, on::<50>,
    on::<51>, on::<52>, on::<53>, on::<54>, on::<55>, on::<56>, on::<57>, on::<58>, on::<59>, on::<60>,
    on::<61>, on::<62>, on::<63>, on::<64>, on::<65>, on::<66>, on::<67>, on::<68>, on::<69>, on::<70>,
    on::<71>, on::<72>, on::<73>, on::<74>, on::<75>, on::<76>, on::<77>, on::<78>, on::<79>, on::<80>,
    on::<81>, on::<82>, on::<83>, on::<84>, on::<85>, on::<86>, on::<87>, on::<88>, on::<89>, on::<90>,
    on::<91>, on::<92>, on::<93>, on::<94>, on::<95>,
];

const _: () = assert!(COMMANDS.len() <= TRAMPOLINES.len(), "list more trampolines");

unsafe extern "C" fn on<const N: usize>(ctx: *mut RawCtx, argv: *mut *mut RawString, argc: c_int) -> c_int {
    // SAFETY: the host's own context and arguments, alive until this returns.
    let (ctx, argv) = unsafe { (Ctx::new(ctx), HostString::arguments(argv, argc)) };
    on_command(N, ctx, argv)
}

/// Every MIDI.* command comes in here.
#[inline(never)]
fn on_command(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) -> c_int {
    let done = guarded(false, || {
        door().command(number, ctx, argv);
        true
    });
    if !done {
        // Another command must not be taken for the author of what this one did.
        guarded((), || news::tell(ctx.locked(), None));
        HostReply::new(ctx).error(&Error::Internal.text("", &Args::new(&[])));
    }
    raw::REDISMODULE_OK as c_int
}

impl Door {
    /// A context that belongs to no command.
    pub fn ctx<'l>(&'l self, locked: Locked<'l>) -> Ctx<'l> {
        self.ctx.ctx(locked)
    }

    /// The descriptor that ends the main loop's sleep.
    pub fn wakes_at(&self) -> c_int {
        self.waker.descriptor()
    }

    /// Calls so far have ended the main thread's sleep.
    pub fn forget_calls(&self) {
        self.waker.clear();
    }

    #[inline(always)]
    fn command(&self, number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) {
        let row = COMMANDS[number];
        if keys::are_asked_for(row.keys) && keys::answer(ctx, row, argv) {
            return;
        }
        let inside = unit::is_inside(ctx);
        let limits = self.engine.settings.limits(MAX_MAIN_REPLY_BYTES);
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
            now: if inside {
                self.engine.main_now(ctx.locked())
            } else {
                Now::lazy(self.engine.config.clock)
            },
            limits,
            prefix: PREFIX,
            author: Author::Running,
        };
        if let Err(error) = row.check_arity(&call.args) {
            return call.refuse(error, &mut HostReply::new(ctx));
        }
        if let Err(text) = users::at_door::check(ctx, &call, inside) {
            return HostReply::new(ctx).error(&text);
        }
        if let Err(error) = self.write_gate(ctx, row) {
            return call.refuse(error, &mut HostReply::new(ctx));
        }
        match row.action {
            Action::Door(which) => self.own_command(ctx, &call, which),
            _ => self.run(ctx, &mut call, inside),
        }
        // What the others' reads take out is told in the next turn.
        if row.flags.write {
            news::tell(ctx.locked(), Some(ctx));
        }
    }

    #[inline]
    fn write_gate(&self, ctx: Ctx<'_>, row: &Command) -> Result<(), Error> {
        if row.flags.write {
            gates::check(ctx);
            // The host itself has judged memory (deny-oom).
            if let Some(error) = self.engine.write_refusal(false) {
                return Err(error);
            }
        }
        Ok(())
    }

    fn run(&self, ctx: Ctx<'_>, call: &mut Call<'_>, inside_unit: bool) {
        let engine = &*self.engine;
        let seat = engine.main_seat(ctx.locked());
        if !inside_unit && !engine.config.safemode {
            let pool = engine.settings.pool.load(Ordering::Relaxed);
            if (pool || is_broad(call)) && may_block(ctx) {
                return self.hand_over(ctx, call, pool);
            }
            match engine.attempt(seat, call, Taking::MAIN, &mut HostReply::new(ctx)) {
                Outcome::Done => return engine.book_at_once(seat),
                Outcome::Long if may_block(ctx) => return self.start_long(ctx, call),
                Outcome::Busy | Outcome::TooLarge if may_block(ctx) => {
                    return self.hand_over(ctx, call, false);
                }
                _ => {}
            }
        }
        call.limits.max_reply_bytes = usize::MAX;
        engine.run_waiting(ctx.locked(), call, &mut HostReply::new(ctx));
    }

    /// Starts long work as a job. A flush has its effect here, so what could
    /// refuse the job comes first.
    fn start_long(&self, ctx: Ctx<'_>, call: &Call<'_>) {
        let work = self.long_work(ctx.locked(), call);
        match work {
            Ok(work) => self.start_job(ctx.locked(), call.command, call.db, work, Blocked::new(ctx)),
            Err(error) => call.refuse(error, &mut HostReply::new(ctx)),
        }
    }

    /// Gives a command to the workers.
    fn hand_over(&self, ctx: Ctx<'_>, call: &mut Call<'_>, batched: bool) {
        let engine = &*self.engine;
        if is_long(call) {
            return self.start_long(ctx, call);
        }
        if let Err(error) = engine.book_queued(engine.main_seat(ctx.locked())) {
            return call.refuse(error, &mut HostReply::new(ctx));
        }
        let blocked = Blocked::new(ctx);
        call.author = Author::Waiting(blocked.client_id());
        let request = Box::new(Request::new(call, Home::Main(blocked)));
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
        self.has_batch.store(true, Ordering::Relaxed);
    }

    /// Starts a job for a client that waits for its reply.
    fn start_job(
        &self,
        locked: Locked<'_>,
        command: usize,
        db: u32,
        work: Work,
        client: Box<dyn HostClient>,
    ) {
        let (owner, reply) = client.wait_for_job(locked, db);
        self.engine.start_job(command, owner, work, reply);
    }

    /// Sends what `pool` gathered, and answers what has come home. Between commands.
    pub fn turn(&self, locked: Locked<'_>) {
        if self.has_batch.load(Ordering::Relaxed) {
            self.has_batch.store(false, Ordering::Relaxed);
            let batch = std::mem::take(&mut *self.batch.lock());
            self.engine.enqueue_batch(batch.into_iter());
        }
        self.engine.tell_announced(locked);
        users::changes::refresh(locked);
        self.take_messages(locked);
        if self.has_waiting.load(Ordering::Relaxed) {
            self.answer(locked);
        }
        self.tell(locked);
    }

    /// Whether something is left over for the next turn.
    pub fn has_left_over(&self) -> bool {
        self.has_waiting.load(Ordering::Relaxed) || self.engine.has_much_news()
    }

    /// Sees to messages, as far as the time goes.
    fn answer(&self, locked: Locked<'_>) {
        // What their senders did is told before they are answered.
        let news = self.waiting.lock().news;
        if news::tell_up_to(locked, news) {
            budget::spend(|| {
                let message = self.next_message();
                message.map(|message| guarded((), || self.see_to(locked, message))).is_some()
            });
        }
    }

    /// The number of the batch of messages that is seen to: what has been found out for one of them is not older
    /// than the others.
    pub fn batch(&self) -> u64 {
        self.waiting.lock().batch
    }

    /// Tells what has changed, as far as the time goes.
    pub fn tell(&self, locked: Locked<'_>) {
        if self.engine.has_news() || self.engine.has_much_news() {
            news::tell_up_to(locked, u64::MAX);
        }
    }

    /// Takes the messages that have come, once those before them have been seen to.
    fn take_messages(&self, locked: Locked<'_>) {
        let has_put_off = self.has_put_off.load(Ordering::Relaxed);
        let has_new = !self.engine.main.is_empty() && !self.has_waiting.load(Ordering::Relaxed);
        if !has_put_off && !has_new {
            return;
        }
        let mut waiting = self.waiting.lock();
        if has_put_off {
            self.has_put_off.store(false, Ordering::Relaxed);
            // They came before all others.
            let mut put_off = std::mem::take(&mut *self.put_off.lock());
            put_off.append(&mut waiting.messages);
            waiting.messages = put_off;
        } else if waiting.messages.is_empty() {
            waiting.messages = self.engine.main.take(locked);
        }
        waiting.batch += 1;
        // Asked afterwards: who sends a message has left its news before.
        waiting.news = self.engine.news_so_far(locked);
        self.has_waiting.store(!waiting.messages.is_empty(), Ordering::Relaxed);
    }

    fn next_message(&self) -> Option<ForMain> {
        let mut waiting = self.waiting.lock();
        let message = waiting.messages.pop_front();
        self.has_waiting.store(!waiting.messages.is_empty(), Ordering::Relaxed);
        message
    }

    fn see_to(&self, locked: Locked<'_>, message: ForMain) {
        match message {
            ForMain::Request(request) => self.came_home(locked, request),
            ForMain::Errand(errand) => errand(locked, &self.engine, self.engine.host()),
        }
    }

    /// What can be done for the ports while a script that takes too long, or loading, keeps the main
    /// loop from turning. Called from its event loop.
    pub fn turn_aside(&self, locked: Locked<'_>) {
        let engine = &self.engine;
        let has_messages = self.has_waiting.load(Ordering::Relaxed) || !engine.main.is_empty();
        if !has_messages && !engine.users.are_stale() {
            return;
        }
        let flags = self.ctx(locked).flags();
        let busy = flags & raw::REDISMODULE_CTX_FLAGS_LUA != 0;
        let loading = raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
        if !busy && flags & loading == 0 {
            return;
        }
        users::changes::refresh(locked);
        budget::renew();
        let all_done = budget::spend(|| {
            let message = self.next_message().or_else(|| {
                let mut waiting = self.waiting.lock();
                waiting.messages = engine.main.take(locked);
                waiting.batch += 1;
                drop(waiting);
                self.next_message()
            });
            message.map(|message| guarded((), || self.see_to_aside(locked, message, busy))).is_some()
        });
        self.waiting.lock().news = engine.news_so_far(locked);
        if !all_done {
            engine.wake_main();
        }
    }

    fn see_to_aside(&self, locked: Locked<'_>, message: ForMain, busy: bool) {
        let engine = &self.engine;
        let (host, refusal) = if busy { (None, Error::Busy) } else { (engine.host(), Error::Loading) };
        match message {
            ForMain::Errand(errand) => errand(locked, engine, host),
            ForMain::Request(request) if request.is_of_host() => self.put_off(request),
            ForMain::Request(request) => self.send_back_refused(request, refusal),
        }
    }

    fn put_off(&self, request: Box<Request>) {
        self.put_off.lock().push_back(ForMain::Request(request));
        self.has_put_off.store(true, Ordering::Relaxed);
    }

    fn send_back_refused(&self, mut request: Box<Request>, error: Error) {
        let args = std::mem::take(&mut request.args);
        let mut tape = Tape::default();
        args.with(|args| self.engine.call_of(&request, args).refuse(error, &mut tape));
        request.verdict = Verdict::Done;
        (request.args, request.reply) = (args, tape);
        self.engine.send_back(request);
    }

    fn came_home(&self, locked: Locked<'_>, request: Box<Request>) {
        if request.verdict == Verdict::NeedsMain {
            return self.go_on(locked, request);
        }
        self.engine.came_home();
        let Request { home, author, reply, .. } = *request;
        if let Home::Main(client) = home {
            client.answer(locked, author, reply);
        }
    }

    /// Goes on with a command that a worker could not run.
    fn go_on(&self, locked: Locked<'_>, mut request: Box<Request>) {
        let engine = &*self.engine;
        if request.is_abandoned() {
            request.verdict = Verdict::Done;
            return engine.send_back(request);
        }
        let args = std::mem::take(&mut request.args);
        let mut tape = request.tape(engine.most_reply());
        let (outcome, work) = args.with(|args| {
            let call = engine.call_of(&request, args);
            // Whatever happens, there is a client that waits.
            guarded(None, || Some(self.run_here(locked, &call, request.is_of_host(), &mut tape)))
                .unwrap_or_else(|| {
                    tape = Tape::default();
                    call.refuse(Error::Internal, &mut tape);
                    (Outcome::Done, None)
                })
        });
        if !request.is_of_host() {
            // A port starts its jobs itself.
            request.verdict = if outcome == Outcome::Long { Verdict::Long } else { Verdict::Done };
            (request.args, request.reply) = (args, tape);
            return engine.send_back(request);
        }
        if let Some(work) = work {
            engine.came_home();
            let Request { command, db, home, .. } = *request;
            if let Home::Main(client) = home {
                self.start_job(locked, command, db, work, client);
            }
            return;
        }
        request.verdict = Verdict::Done;
        request.reply = tape;
        if request.reply.len() > MAX_MAIN_REPLY_BYTES {
            return engine.reply_on_worker(request);
        }
        self.came_home(locked, request);
    }

    /// Runs it, waiting for tokens; gives what is to be started for a client of this door as a job.
    fn run_here(
        &self,
        locked: Locked<'_>,
        call: &Call<'_>,
        is_of_host: bool,
        tape: &mut Tape,
    ) -> (Outcome, Option<Work>) {
        let engine = &*self.engine;
        if let Some(error) = engine.late_refusal(call) {
            call.refuse(error, tape);
            return (Outcome::Done, None);
        }
        let outcome = engine.attempt(engine.main_seat(locked), call, Taking::Wait(locked), tape);
        if outcome != Outcome::Long || !is_of_host {
            return (outcome, None);
        }
        match self.long_work(locked, call) {
            Ok(work) => (outcome, Some(work)),
            Err(error) => {
                call.refuse(error, tape);
                (Outcome::Done, None)
            }
        }
    }

    /// Long work that is to be a job, where there is room for one more.
    fn long_work(&self, locked: Locked<'_>, call: &Call<'_>) -> Result<Work, Error> {
        self.engine.room_for_job(call.command)?;
        long_work(&self.engine, call, Some(locked))
    }

    fn own_command(&self, ctx: Ctx<'_>, call: &Call<'_>, which: DoorCommand) {
        let mut block = || Blocked::new(ctx).wait_for_job(ctx.locked(), call.db);
        let wait: Option<Wait<'_>> = if may_block(ctx) { Some(&mut block) } else { None };
        match self.door_command(Caller { ctx, user: None, wait }, call, which) {
            Ok(Some(tape)) => tape.play(&mut HostReply::new(ctx)),
            Ok(None) => {}
            Err(error) => call.refuse(error, &mut HostReply::new(ctx)),
        }
    }

    /// The same for a client of a port. Between commands.
    pub fn own_command_of_port(
        &self,
        locked: Locked<'_>,
        call: &Call<'_>,
        which: DoorCommand,
        user: &[u8],
        owner: JobOwner,
        reply: Box<dyn JobReply>,
    ) {
        let mut client = Some((owner, reply));
        let refusal = self.engine.late_refusal(call);
        let result = match refusal {
            Some(error) => Err(error),
            None => {
                let mut wait = || client.take().expect("a command starts one job");
                // Within a transaction there is no waiting.
                let wait: Option<Wait<'_>> =
                    if self.engine.is_in_unit(locked) { None } else { Some(&mut wait) };
                let caller = Caller { ctx: self.ctx(locked), user: Some(user), wait };
                self.door_command(caller, call, which)
            }
        };
        let Some((_, mut reply)) = client else { return };
        match result {
            Ok(Some(tape)) => tape.play(reply.sink()),
            Ok(None) => {}
            Err(error) => call.refuse(error, reply.sink()),
        }
        reply.finish();
    }

    /// Runs a command that needs the host's means. `None` where a job will answer.
    fn door_command(
        &self,
        caller: Caller<'_>,
        call: &Call<'_>,
        which: DoorCommand,
    ) -> Result<Option<Tape>, Error> {
        let (engine, mut tape) = (&*self.engine, Tape::default());
        match which {
            DoorCommand::Import => return copy::import(engine, caller, call),
            DoorCommand::Export => return copy::export(engine, caller, call),
            DoorCommand::Jobs => info::jobs(engine, call, &mut tape)?,
            DoorCommand::Info => info::info(engine, call, &mut tape),
            DoorCommand::Help => info::help(&mut tape),
        }
        Ok(Some(tape))
    }
}

/// Whether a command takes so many keys that a worker had better run it.
fn is_broad(call: &Call<'_>) -> bool {
    call.args.len() > MAIN_ARGUMENTS && matches!(call.row().action, Action::ManyKeys(_))
}

/// Whether this command's client may be blocked.
pub fn may_block(ctx: Ctx<'_>) -> bool {
    ctx.flags() & MUST_NOT_BLOCK == 0
}
