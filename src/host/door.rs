//! The host door: MIDI.* commands on the host's own port.
//!
//! ```text
//! OnLoad   command::rows_of_host ─ register: name, flags, keys, categories, docs ─► the host
//!
//! a call   the host ─► on::<N>, N being the row's number
//!           └ on_command
//!              └ command ─┬ a record of its AOF or its master's ─► replaying
//!                         ├ a question for keys ─► keys::answer
//!                         ├ arity, rights that the host does not judge (users::at_door), gates
//!                         └ Engine::run ─┬ a reply at once ─► reply::HostReply
//!                                        ├ a worker or a job ─► blocked::Blocked
//!                                        └ IMPORT, EXPORT, JOBS, SLOWLOG, INFO, HELP ─► own_commands
//! ```
//!
//! The host looks up the name, so `rename-command` is none of the door's business: see `renamed`
//! for the ports and the command filter.

use std::ffi::c_int;

use midi_module_api as raw;

use super::api::{Ctx, RawCtx, RawString};
use super::blocked::Blocked;
use super::copy::{self, Wait};
use super::instance::instance;
use super::kept::HostArgs;
use super::persistence::hand_over::{self, Logging, always};
use super::persistence::replay;
use super::register::Trampoline;
use super::reply::HostReply;
use super::slots::{migrating, migration};
use super::string::HostString;
use super::users::USERS;
use super::{PREFIX, guarded, import_source, keys, notifications, own_commands, scripts, unit};
use crate::command::{Action, Args, COMMANDS, DoorCommand, Error, OnAllKeys, Reply, rows_of_host};
use crate::engine::{
    Author, Call, Caller, Gates, HostClient, JobOwner, JobReply, Origin, WaitsFor,
};
use crate::limits::MAX_MAIN_REPLY_BYTES;
use crate::store::Now;

/// Most commands have at most this many arguments: their list needs no allocation.
const FEW_ARGUMENTS: usize = 6;

/// Flags under which no client may be blocked: the command must run here and now.
const MUST_NOT_BLOCK: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
    | raw::REDISMODULE_CTX_FLAGS_LUA
    | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
    | raw::REDISMODULE_CTX_FLAGS_LOADING
    | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
    | raw::REDISMODULE_CTX_FLAGS_REPLICATED;

/// Gates that are closed while commands may come from the host's AOF, from its master, or from
/// midi itself.
const FROM_LOG: Gates = Gates::LOADING.and(Gates::READ_ONLY).and(Gates::WORKERS_PAUSED);

/// One trampoline per row, at the row's number.
macro_rules! trampolines {
    ($($family:ident::$row:ident)*) => {{
        // Numbers the rows.
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        enum Number { $($row),* }
        [$(on::<{ Number::$row as usize }> as Trampoline),*]
    }};
}

/// Each command has its own trampoline, at its number: the one that the host calls identifies the
/// command, and no name is looked up. docs/design/overview.md has the figures.
pub static TRAMPOLINES: &[Trampoline] = &rows_of_host!(trampolines);

unsafe extern "C" fn on<const N: usize>(
    ctx: *mut RawCtx,
    argv: *mut *mut RawString,
    argc: c_int,
) -> c_int {
    // SAFETY: the host's own context and arguments, alive until this returns.
    let (ctx, argv) = unsafe { (Ctx::new(ctx), HostString::arguments(argv, argc)) };
    on_command(N, ctx, argv)
}

/// Runs every MIDI.* command.
#[inline(never)]
fn on_command(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) -> c_int {
    let outside = scripts::leave();
    let done = guarded(false, || {
        command(number, ctx, argv, outside.is_called_by_script());
        true
    });
    if !done {
        guarded((), || replay::has_panicked(ctx));
        // No other command may be taken for the author of this one's changes.
        guarded((), || notifications::tell(ctx.locked(), None));
        HostReply::new(ctx).error(&Error::Internal.bare_text());
    }
    raw::REDISMODULE_OK
}

#[inline(always)]
fn command(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>], by_script: bool) {
    let (engine, row) = (&*instance().engine, COMMANDS[number]);
    if engine.gates().has(FROM_LOG) {
        if hand_over::hands_over(ctx) {
            return HostReply::new(ctx).ok();
        }
        if replay::run(number, ctx, argv) {
            return;
        }
    }
    if keys::are_asked_for(row.keys) && keys::answer(ctx, row, argv) {
        return;
    }
    if instance().slots.coming.get() && replay::import(number, ctx, argv) {
        return;
    }
    let inside = unit::is_inside(ctx);
    let limits = engine.context().limits_alone(MAX_MAIN_REPLY_BYTES);
    let (mut few, mut many) = ([&[][..]; FEW_ARGUMENTS], Vec::new());
    let list = if argv.len() <= few.len() {
        &mut few[..argv.len()]
    } else {
        many.resize(argv.len(), &[][..]);
        &mut many[..]
    };
    let host_args = HostArgs::new(ctx.locked(), argv);
    for (index, text) in list.iter_mut().enumerate() {
        *text =
            if index == 0 { row.name.as_bytes() } else { host_args.text(index, limits.keep_bytes) };
    }
    let now = if inside {
        engine.shards().main_now(ctx.locked())
    } else {
        Now::lazy(engine.config().clock)
    };
    let mut call = Call {
        command: number,
        args: Args::with_keeper(list, &host_args),
        db: ctx.selected_db(),
        now: now.seeing_passed(import_source::is_one(ctx, inside)),
        limits,
        prefix: PREFIX,
        author: Author::Running,
    };
    if let Err(error) = row.check_arity(&call.args) {
        engine.main_slot(ctx.locked()).rejected(number);
        return call.refuse(error, &mut HostReply::new(ctx));
    }
    let checked =
        if by_script { scripts::check(ctx, &call) } else { USERS.check(ctx, &call, inside) };
    if let Err(text) = checked {
        engine.main_slot(ctx.locked()).rejected(number);
        return HostReply::new(ctx).error(&text);
    }
    if migrating::has_key_there(ctx, &call) {
        engine.main_slot(ctx.locked()).rejected(number);
        return call.refuse(Error::SlotMigrates, &mut HostReply::new(ctx));
    }
    if row.flags.write {
        instance().gates.check(ctx);
        if engine.gates().has(Gates::LOADING) {
            // The host does not know its role yet. What it loads itself has been replayed.
            engine.main_slot(ctx.locked()).rejected(number);
            return call.refuse(Error::Loading, &mut HostReply::new(ctx));
        }
        if matches!(row.action, Action::AllKeys(OnAllKeys::FlushDb | OnAllKeys::FlushAll)) {
            migration::before_flush();
        }
    }
    {
        let _logging = Logging::begin_command(ctx, row, argv);
        if engine.ledger.reads_wait() {
            always::run(ctx, engine, &mut call);
        } else {
            engine.run(engine.main_slot(ctx.locked()), &mut call, &mut HostCaller(ctx));
        }
    }
    // Reads by the others may remove due keys: the host is notified of those in the next turn.
    if row.flags.write {
        notifications::tell(ctx.locked(), Some(ctx));
    }
}

/// Whether the client of this context may be blocked.
pub fn may_wait(ctx: Ctx<'_>) -> bool {
    ctx.flags() & MUST_NOT_BLOCK == 0
}

/// A client of the host door.
pub struct HostCaller<'a>(pub Ctx<'a>);

impl<'a> Caller for HostCaller<'a> {
    type Reply<'r>
        = HostReply<'a>
    where
        Self: 'r;

    #[inline]
    fn reply(&mut self) -> HostReply<'a> {
        HostReply::new(self.0)
    }

    /// Nothing has been written yet: at this door an attempt returns `TooLarge` first.
    fn take_back(&mut self) {}

    fn may_wait(&self) -> bool {
        may_wait(self.0)
    }

    fn wait(&mut self, _: WaitsFor) -> Option<Origin> {
        Blocked::new(self.0).map(|blocked| Origin::Main(blocked))
    }

    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)> {
        Some(Blocked::new(self.0)?.wait_for_job(self.0.locked(), db))
    }

    /// The host itself holds up its clients.
    fn hold_up(&mut self) {}

    fn run_by_host(&mut self, call: &Call<'_>, which: DoorCommand) {
        let (ctx, engine) = (self.0, &*instance().engine);
        let may_wait = self.may_wait();
        let mut block = || self.wait_for_job(call.db);
        let wait: Option<Wait<'_>> = if may_wait { Some(&mut block) } else { None };
        match own_commands::run(engine, copy::Asker { ctx, user: None, wait }, call, which) {
            Ok(Some(transcript)) => transcript.play(&mut HostReply::new(ctx)),
            Ok(None) => {}
            Err(error) => call.refuse(error, &mut HostReply::new(ctx)),
        }
    }
}
