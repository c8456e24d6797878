//! Running a connection's commands: parsed ahead, run in the order sent.

use std::time::Duration;

use smallvec::SmallVec;

use super::ArgList;
use super::batch::{CommandBatch, Stop, request_limits};
use super::caller::RespCaller;
use super::dispatch::run_command;
use super::exec_replies::say_exec_replies;
use super::named::note;
use super::scripts::{joins_scripts, send_scripts};
use crate::command::{Args, FoundCommand, Reply, find_call};
use crate::engine::Outcome;
use crate::limits::OUTPUT_PAUSE;
use crate::net::flow::State;
use crate::net::protocol::Protocol;
use crate::net::shared::count;
use crate::net::turn::Pace;

/// Runs the commands at the start of a connection's input, as long as it may go on; returns their
/// length.
pub fn run(caller: &mut RespCaller<'_>, args: &mut ArgList, input: &[u8]) -> usize {
    let mut at = 0;
    let mut pace = Pace::default();
    // What other work on this thread has seen does not concern this connection.
    caller.slot().take_seen();
    caller.session.flow.missing = 0;
    caller.session.parser.hear(input.len());
    while caller.session.may_run()
        && caller.output.len() <= OUTPUT_PAUSE
        && !caller.turn.timed.is_over()
        && !pace.is_over(caller.turn.at_once)
    {
        at += run_some(caller, args, &input[at..]);
        // Most reads end with a command.
        if at == input.len() && caller.session.flow.missing == 0 {
            caller.session.flow.missing = 1;
        }
    }
    send_scripts(caller);
    if caller.session.owes_replies() {
        // It goes on with them.
        caller.session.flow.missing = 0;
    }
    let seen = caller.slot().take_seen();
    caller.session.flow.wait_for(seen);
    at
}

/// Runs the next commands that can run together, or one that cannot.
fn run_some(caller: &mut RespCaller<'_>, args: &mut ArgList, input: &[u8]) -> usize {
    if let Some(gathered) = caller.session.parser.gathered()
        && gathered.missing() > 0
    {
        let taken = gathered.fill_from(input);
        caller.session.flow.missing = gathered.missing();
        return taken;
    }
    let limits = request_limits(caller.session, &caller.limits);
    let mut batch = CommandBatch::default();
    let stop = batch.take(caller.engine(), caller.session, input, args, &limits);
    if !caller.session.scripts.is_empty()
        && let Some(taken) = go_on_with_scripts(caller, args, input, &stop, !batch.is_empty())
    {
        return taken;
    }
    if !batch.is_empty() {
        if stop != Stop::End {
            // These come first; the command parsed last is parsed again.
            caller.session.parser.begin_again();
        }
        return run_together(caller, &mut batch);
    }
    match stop {
        Stop::Alone { end } => {
            run_alone(caller, args, input);
            // A command that must be retried has not been run.
            if matches!(caller.session.flow.state, State::Deferred | State::Again) {
                caller.session.parser.put_back(args);
                return 0;
            }
            args.forget_gathered();
            end
        }
        Stop::Large(large) => {
            let (parser, announced) = (&mut caller.session.parser, &caller.worker.shared.announced);
            let taken = parser.gather(input, large, args, announced);
            caller.session.flow.missing = parser.gathered().map_or(0, |it| it.missing());
            taken
        }
        Stop::Empty { end } => {
            // CLIENT REPLY SKIP counts it as a command.
            caller.session.begin_command();
            end
        }
        Stop::Incomplete { missing } => {
            caller.session.flow.missing = missing;
            0
        }
        Stop::Malformed(error) => {
            if caller.session.wants_replies() {
                caller.reply().error(&error.text());
            }
            caller.session.flow.state = State::Closing;
            input.len()
        }
        Stop::End | Stop::Full => 0,
    }
}

/// Goes on where scripts are about to go to the main thread: takes another script, or sends them
/// before anything else is answered. Returns how much of the input it has taken; `None` for what is
/// not answered at once.
#[cold]
fn go_on_with_scripts(
    caller: &mut RespCaller<'_>,
    args: &mut ArgList,
    input: &[u8],
    stop: &Stop,
    any_before: bool,
) -> Option<usize> {
    match stop {
        Stop::Alone { end } if !any_before => {
            let list: SmallVec<[&[u8]; 8]> = args.iter(input).collect();
            if args.gathered().is_none() && joins_scripts(caller, &Args::new(&list)) {
                return Some(*end);
            }
            drop(list);
            caller.session.parser.put_back(args);
        }
        // A blank line counts for CLIENT REPLY SKIP: after the scripts.
        Stop::Malformed(_) | Stop::Empty { .. } => caller.session.parser.begin_again(),
        _ if !any_before => return None,
        Stop::End => {}
        _ => caller.session.parser.begin_again(),
    }
    send_scripts(caller);
    Some(0)
}

/// Runs commands that go together; returns where the last one that ran ends.
fn run_together(caller: &mut RespCaller<'_>, batch: &mut CommandBatch<'_>) -> usize {
    caller.turn.timed.interrupt();
    let (db, mut reply) = (caller.session.access.db, caller.session.reply(caller.output));
    let (done, outcome) = batch.run(caller.worker, db, &caller.limits, &mut reply, |_| ());
    if let Some(took) = batch.took() {
        caller.turn.timed.ran_together(done, took);
    }
    let client = &caller.session.flow.client;
    note(batch.named(done.min(batch.len() - 1)), client);
    batch.log_slow(caller.engine(), 0..done, client);
    if outcome == Outcome::Done {
        batch.end_of(done - 1)
    } else {
        batch.go_on(done, outcome, caller)
    }
}

/// Runs one command by itself. It may take any time, so it is timed.
fn run_alone(caller: &mut RespCaller<'_>, args: &ArgList, input: &[u8]) {
    let list: SmallVec<[&[u8]; 8]> = args.iter(input).collect();
    let list = match args.gathered() {
        None => Args::new(&list),
        Some(gathered) => {
            count_large(caller, gathered.counts());
            Args::with_keeper(&list, gathered)
        }
    };
    caller.session.begin_command();
    let (said, began) = (caller.output.end(), caller.turn.timed.command_begins());
    caller.said = said;
    run_command(caller, &list);
    say_exec_replies(caller);
    let took = caller.turn.timed.command_ended(began);
    if matches!(caller.session.flow.state, State::Deferred | State::Again) {
        return caller.session.put_off_command();
    }
    if caller.engine().slow_log.ran_for(took) {
        log_slow(caller, &list, took);
    }
    if caller.session.is_muted() {
        caller.output.truncate(said);
    }
    count(&caller.worker.counts().commands, 1);
}

/// Logs a slow command that has its reply. What MULTI queues is logged when EXEC runs it.
#[cold]
fn log_slow(caller: &RespCaller<'_>, args: &Args<'_>, took: Duration) {
    let session = &caller.session;
    if session.flow.state != State::Waiting
        && session.scripts.is_empty()
        && session.access.user.is_some()
        && !session.in_multi
        && let Some(FoundCommand::Command(named)) = find_call(args)
    {
        let from = || session.flow.client.called_from();
        caller.engine().slow_log.log(took, named.number, args, from);
    }
}

/// Counts large arguments, and their bytes that were copied.
#[cold]
fn count_large(caller: &RespCaller<'_>, (arguments, copied): (u64, u64)) {
    let counts = caller.worker.counts();
    count(&counts.large_received, arguments);
    count(&counts.large_received_copied, copied);
}
