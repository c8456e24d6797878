//! Commands that need the host, whichever door they come through: MIDI.IMPORT, EXPORT, JOBS,
//! SLOWLOG, INFO, HELP, LISTEN, JOURNAL, UNSUPPORTED.

use super::copy::{self, Asker, Wait};
use super::info;
use super::instance::instance;
use super::listener;
use super::slow_log::slow_log;
use crate::command::{DoorCommand, Error, Reply, Transcript, not_for_scripts};
use crate::engine::{Call, Engine, Gate, Intent, JobOwner, JobReply, Locked};

/// Runs one. `None` if a job will answer.
///
/// # Errors
/// Why it was refused or failed.
pub fn run(
    engine: &Engine,
    caller: Asker<'_>,
    call: &Call<'_>,
    which: DoorCommand,
) -> Result<Option<Transcript>, Error> {
    if let Some(error) = engine.ledger.refusal_in_unit(caller.ctx.locked(), call) {
        return Err(error);
    }
    let mut transcript = Transcript::default();
    match which {
        DoorCommand::Import => return copy::import(engine, caller, call),
        DoorCommand::Export => return copy::export(engine, caller, call),
        DoorCommand::Jobs => info::jobs(engine, call, &mut transcript)?,
        DoorCommand::SlowLog => slow_log(engine, &call.args, &mut transcript)?,
        DoorCommand::Info => info::info(engine, call, &mut transcript),
        DoorCommand::Help => info::help(&mut transcript),
        DoorCommand::Journal => return Err(Error::NotForClients),
        DoorCommand::Listen if caller.user.is_none() => {
            if !listener::log_in(caller.ctx, call.args.get(1)) {
                return Err(Error::NotForClients);
            }
            transcript.ok();
        }
        DoorCommand::Listen => return Err(Error::NotForClients),
        DoorCommand::Unsupported => transcript.error(&not_for_scripts(call.args.get(1))),
    }
    Ok(Some(transcript))
}

/// Runs one for a client of a port. Between commands.
pub fn run_for_port(
    locked: Locked<'_>,
    call: &Call<'_>,
    which: DoorCommand,
    user: &[u8],
    owner: JobOwner,
    reply: Box<dyn JobReply>,
) {
    let engine = &*instance().engine;
    let mut client = Some((owner, reply));
    let result = match engine.ledger.gate(Intent::Late(call)) {
        Gate::Refuse(error) => Err(error),
        Gate::Go | Gate::Wait => {
            let mut wait = || client.take();
            // In a transaction the client cannot wait.
            let wait: Option<Wait<'_>> =
                if engine.shards().is_in_unit(locked) { None } else { Some(&mut wait) };
            let caller = Asker { ctx: instance().ctx(locked), user: Some(user), wait };
            run(engine, caller, call, which)
        }
    };
    let Some((_, mut reply)) = client else { return };
    match result {
        Ok(Some(transcript)) => transcript.play(reply.sink()),
        Ok(None) => {}
        Err(error) => call.refuse(error, reply.sink()),
    }
    reply.finish();
}
