//! The replies that EXEC still owes.

use super::caller::RespCaller;
use super::commands::{run_own, run_wait_in_exec};
use super::transaction::ExecReply;
use crate::command::{Action, Args, PortCommand, Reply};
use crate::limits::OUTPUT_PAUSE;
use crate::net::flow::State;
use crate::net::turn::Pace;

/// Writes replies of a connection's transaction, and runs its commands of the port's own, until one
/// must be waited for, or it is the turn of others: then `exec_replies` is still set.
pub fn say_exec_replies(caller: &mut RespCaller<'_>) {
    if caller.session.exec_replies.is_none() {
        return;
    }
    say_some(caller);
    let flow = &mut caller.session.flow;
    if caller.session.exec_replies.is_none() && flow.ends_after_exec {
        flow.state = State::Closing;
    }
}

fn say_some(caller: &mut RespCaller<'_>) {
    let mut pace = Pace::default();
    while caller.session.flow.state != State::Waiting
        && caller.output.len() <= OUTPUT_PAUSE
        && !caller.turn.timed.is_over()
        && !pace.is_over(caller.turn.at_once)
    {
        let Some(mut exec_replies) = caller.session.exec_replies.take() else { return };
        let at = exec_replies.next;
        let Some(said) = exec_replies.said.next() else { return };
        exec_replies.next += 1;
        match said {
            ExecReply::Transcript(transcript) => transcript.play(&mut caller.reply()),
            ExecReply::Error(text) => caller.reply().error(&text),
            ExecReply::Encoded(reply) => caller.reply().encoded(&reply.unwrap_or_default()),
            ExecReply::Own => {
                let args = exec_replies.transaction.arguments_of(at);
                let args = Args::new(&args);
                // Not when the last command ended: EXEC has run others since.
                caller.turn.timed.interrupt();
                let began = caller.turn.timed.command_begins();
                let named = exec_replies.transaction.commands[at].named;
                match named.row().action {
                    Action::Port(PortCommand::Wait | PortCommand::WaitAof) => {
                        run_wait_in_exec(caller, named, &args);
                    }
                    _ => run_own(caller, named, &args),
                }
                let flow = &mut caller.session.flow;
                if flow.ends_after_exec && flow.state == State::Closing {
                    flow.state = State::Open;
                }
                let (took, log) =
                    (caller.turn.timed.command_ended(began), &caller.engine().slow_log);
                if caller.session.flow.state != State::Waiting && log.ran_for(took) {
                    let client = &caller.session.flow.client;
                    log.log(took, named.number, &args, || client.called_from());
                }
            }
        }
        caller.session.exec_replies = Some(exec_replies);
    }
}
