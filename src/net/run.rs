//! Running a connection's commands: parsed ahead, run in the order sent.

use smallvec::SmallVec;

use super::batch::{CommandBatch, Stop, request_limits};
use super::context::Context;
use super::dispatch::run_command;
use super::exec_replies::say_exec_replies;
use super::named::note;
use super::resp::ArgList;
use super::session::State;
use super::shared::count;
use super::turn::Pace;
use crate::command::{Args, Reply};
use crate::engine::Outcome;
use crate::limits::OUTPUT_PAUSE;

/// Runs the commands at the start of a connection's input, as long as it may go on; returns their
/// length.
pub fn run(cx: &mut Context<'_>, args: &mut ArgList, input: &[u8]) -> usize {
    let mut at = 0;
    let mut pace = Pace::default();
    // What other work on this thread has seen does not concern this connection.
    cx.slot().take_seen();
    cx.session.missing = 0;
    while cx.session.may_run()
        && cx.output.len() <= OUTPUT_PAUSE
        && !cx.turn.alone.is_over()
        && !pace.is_over(cx.turn.at_once)
    {
        at += run_some(cx, args, &input[at..]);
        // Most reads end with a command.
        if at == input.len() && cx.session.missing == 0 {
            cx.session.missing = 1;
        }
    }
    let seen = cx.slot().take_seen();
    cx.session.wait_for(seen);
    at
}

/// Runs the next commands that can run together, or one that cannot.
fn run_some(cx: &mut Context<'_>, args: &mut ArgList, input: &[u8]) -> usize {
    let limits = request_limits(cx.session, &cx.limits);
    let mut batch = CommandBatch::default();
    let stop = batch.take(cx.engine(), cx.session, input, args, &limits);
    if !batch.is_empty() {
        if stop != Stop::End {
            // These come first; the command parsed last is parsed again.
            cx.session.parser = Default::default();
        }
        return run_together(cx, &batch);
    }
    match stop {
        Stop::Alone { end } => {
            run_alone(cx, args, input);
            // A command that must be retried has not been run.
            let again = matches!(cx.session.state, State::Deferred | State::Again);
            if again { 0 } else { end }
        }
        Stop::Empty { end } => {
            // CLIENT REPLY SKIP counts it as a command.
            cx.session.begin_command();
            end
        }
        Stop::Incomplete { missing } => {
            cx.session.missing = missing;
            0
        }
        Stop::Malformed(error) => {
            if cx.session.wants_replies() {
                cx.reply().error(&error.text());
            }
            cx.session.state = State::Closing;
            input.len()
        }
        Stop::End | Stop::Full => 0,
    }
}

/// Runs commands that go together; returns where the last one that ran ends.
fn run_together(cx: &mut Context<'_>, batch: &CommandBatch<'_>) -> usize {
    cx.turn.alone.interrupt();
    let (db, mut reply) = (cx.session.db, cx.session.reply(cx.output));
    let (done, outcome) = batch.run(cx.worker, db, &cx.limits, &mut reply, |_| ());
    note(batch.named(done.min(batch.len() - 1)), &cx.session.client);
    if outcome == Outcome::Done { batch.end_of(done - 1) } else { batch.go_on(done, outcome, cx) }
}

/// Runs one command by itself. It may take any time, so it is timed.
fn run_alone(cx: &mut Context<'_>, args: &ArgList, input: &[u8]) {
    let list: SmallVec<[&[u8]; 8]> = args.iter(input).collect();
    let list = Args::new(&list);
    cx.session.begin_command();
    let (said, began) = (cx.output.len(), cx.turn.alone.command_begins());
    cx.said = said;
    run_command(cx, &list);
    say_exec_replies(cx);
    cx.turn.alone.command_ended(began);
    if matches!(cx.session.state, State::Deferred | State::Again) {
        return cx.session.put_off_command();
    }
    if cx.session.is_muted() {
        cx.output.truncate(said);
    }
    count(&cx.worker.counts().commands, 1);
}
