//! Writes that come back: from the host's AOF when it is loaded, and from its master.
//!
//! MIDI.JOURNAL has texts of records. Other MIDI.* commands stand for what a main thread itself has
//! done; they run at a time at which nothing has expired, past gates and limits, and to their end.
//!
//! While an AOF is loaded, the workers replay the texts. Before each other command, before the
//! host's own FLUSHALL and SWAPDB, and at the end, all texts have been replayed: so the order is
//! that of the file. The main thread replays a master's stream as it comes, groups under all their
//! tokens, and has the host log it as it stands in its own AOF. The host passes the stream on to
//! replicas of this one.
//!
//! A command that cannot be replayed is never skipped. It ends the load, and with it the process,
//! as the host does with commands that it does not know. A replica does not follow its master any
//! more: see `sync`.

mod loaded_file;
pub mod quarantine;
pub mod sync;

use midi_module_api as raw;

use super::super::PREFIX;
use super::super::api::{Ctx, Level};
use super::super::instance::instance;
use super::super::kept::HostArgs;
use super::super::reply::HostReply;
use super::super::string::HostString;
use super::super::unit;
use super::hand_over::{Logging, replicate_command};
use super::loading;
use crate::command::{Action, Args, COMMANDS, DoorCommand, Reply};
use crate::engine::{Gates, Locked};
use crate::engine::{Replay, TextError, is_for_here, replay_here};
use crate::limits::{KEYS_AT_ONCE, REPLAYED_HERE_BYTES};

/// The id that every host gives the client that replays its AOF.
const AOF_CLIENT: u64 = u64::MAX;

/// A replica, and a command that its master has sent.
const FROM_MASTER: u32 = raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_REPLICATED;

/// Runs a command if it comes from the AOF, or from the master. False for others, and for a node
/// from which slots come: that one is like a master, but not this one's.
#[cold]
pub fn run(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) -> bool {
    let is_journal = matches!(COMMANDS[number].action, Action::Door(DoorCommand::Journal));
    if ctx.client_id() == AOF_CLIENT {
        if is_journal {
            journal(ctx, argv);
        } else {
            loading::take_effect(ctx.locked());
            command(number, ctx, argv).unwrap_or_else(|reason| give_up(&reason));
        }
    } else if ctx.flags() & FROM_MASTER == FROM_MASTER {
        if !instance().sync.untrusted.get() {
            follow(number, is_journal, ctx, argv);
        }
        HostReply::new(ctx).ok();
    } else {
        return false;
    }
    true
}

/// A command has panicked: one of the AOF or of the master must not be missing.
#[cold]
pub fn has_panicked(ctx: Ctx<'_>) {
    if ctx.client_id() == AOF_CLIENT {
        give_up("internal error");
    }
    if ctx.flags() & FROM_MASTER == FROM_MASTER {
        instance().sync.refuse(ctx, "internal error");
    }
}

/// Runs a command of the node from which slots come. False for others. The host sends it as its
/// master's, and would not stop if it were refused. Its effect is logged.
#[cold]
pub fn import(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) -> bool {
    if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_REPLICATED == 0 {
        return false;
    }
    let _logging = Logging::begin_command(ctx, COMMANDS[number], argv);
    match command(number, ctx, argv) {
        Ok(()) => HostReply::new(ctx).ok(),
        Err(reason) => {
            let text = format!("A write of slots that come to this node has failed: {reason}");
            instance().log(Level::Warning, &text);
            HostReply::new(ctx).error(reason.as_bytes());
        }
    }
    true
}

/// A MIDI.JOURNAL of the AOF.
fn journal(ctx: Ctx<'_>, argv: &[HostString<'_>]) {
    let (engine, locked) = (&*instance().engine, ctx.locked());
    let [_, text] = argv else { give_up("a MIDI.JOURNAL without one text") };
    let text = text.bytes();
    // A unit keeps the tokens that it takes, so the workers may not be able to go on.
    let is_inside = unit::is_inside(ctx);
    let is_for_here = is_for_here(text);
    if is_for_here {
        settle(locked);
    }
    let mut replay = instance().replay.lock();
    let is_idle = replay.as_ref().is_none_or(Replay::is_idle);
    if is_inside || is_for_here || is_idle && text.len() < REPLAYED_HERE_BYTES {
        drop(replay);
        loading::take_effect(locked);
        return replay_here(engine, locked, text).unwrap_or_else(|error| refuse(&error));
    }
    if replay.is_none() {
        drop(replay);
        loading::take_effect(locked);
        replay = instance().replay.lock();
    }
    let offered =
        replay.get_or_insert_with(|| Replay::start(engine)).offer(engine, locked, text.to_vec());
    offered.unwrap_or_else(|error| refuse(&error));
}

/// Another MIDI.* command of the AOF, or of the master.
///
/// # Errors
/// It cannot be replayed, and why.
fn command(number: usize, ctx: Ctx<'_>, argv: &[HostString<'_>]) -> Result<(), String> {
    let (engine, row) = (&*instance().engine, COMMANDS[number]);
    unit::is_inside(ctx);
    let keep_bytes = engine.settings().limits(usize::MAX).keep_bytes;
    let host_args = HostArgs::new(ctx.locked(), argv);
    let text =
        |index| if index == 0 { row.name.as_bytes() } else { host_args.text(index, keep_bytes) };
    let list: Vec<&[u8]> = (0..argv.len()).map(text).collect();
    let is_long = matches!(row.action, Action::EachKey(_)) && list.len() > KEYS_AT_ONCE + 1;
    if !is_long {
        return run_call(number, ctx, Args::with_keeper(&list, &host_args));
    }
    // In one go it would be a job, whose keys expire by the clock.
    list[1..].chunks(KEYS_AT_ONCE).try_for_each(|keys| {
        let part = [&list[..1], keys].concat();
        run_call(number, ctx, Args::new(&part))
    })
}

fn run_call(number: usize, ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
    let (engine, db) = (&instance().engine, ctx.selected_db());
    engine.replay_command(ctx.locked(), db, number, args, PREFIX).map_err(|error| {
        let (name, error) = (COMMANDS[number].name.to_uppercase(), error.escape_ascii());
        format!("MIDI.{name} answers '{error}'")
    })
}

/// Applies a command of the master's.
fn follow(number: usize, is_journal: bool, ctx: Ctx<'_>, argv: &[HostString<'_>]) {
    let engine = &*instance().engine;
    let applied = if is_journal {
        unit::is_inside(ctx);
        let text = argv.get(1).map_or(&[][..], |text| text.bytes());
        replay_here(engine, ctx.locked(), text)
            .map_err(|error| format!("a MIDI.JOURNAL cannot be applied: {error}"))
    } else {
        command(number, ctx, argv)
    };
    if let Err(reason) = applied {
        return instance().sync.refuse(ctx, &reason);
    }
    if engine.gates().has(Gates::AOF_ON) {
        replicate_command(ctx);
    }
}

/// Waits until all texts have been replayed.
pub fn settle(locked: Locked<'_>) {
    if let Some(replay) = &*instance().replay.lock() {
        replay.settle(&instance().engine, locked).unwrap_or_else(|error| refuse(&error));
    }
}

/// The load is over.
pub fn end() {
    *instance().replay.lock() = None;
}

/// The host has loaded its AOF; it had `errors_before` errors before that. It goes on where a
/// SELECT fails because there are too few databases: then commands of midi's may have run in
/// another one.
pub fn check_databases(ctx: Ctx<'_>, errors_before: u64) {
    if sync::has_grown(sync::errors(ctx), errors_before)
        && let Some(reason) = loaded_file::misplaced(ctx, instance().engine.config().databases)
    {
        give_up(&reason);
    }
}

fn refuse(error: &TextError) {
    let place = match error {
        TextError::Record(_) => loaded_file::damage(),
        _ => loaded_file::name(),
    };
    let place = place.unwrap_or_default();
    give_up(&format!("a MIDI.JOURNAL cannot be replayed: {error}{place}"));
}

/// Ends the process, as the host does if it cannot load its AOF.
fn give_up(reason: &str) -> ! {
    instance().log(Level::Warning, &format!("The AOF is not loaded: {reason}"));
    // SAFETY: what the host does with a file that it cannot load.
    unsafe { libc::exit(1) }
}
