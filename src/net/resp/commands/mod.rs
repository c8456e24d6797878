//! The ports' own commands: about connections, logins, transactions and the server.

mod client;
mod describe;
mod exec;
mod help;
mod info;
mod login;
mod pubsub;
mod server;
mod transaction;
mod wait;

pub(super) use exec::aborted;
pub use pubsub::{leave, leave_all};
pub(super) use server::{not_here, populate_of};
pub(super) use transaction::queue;

use client::client;
use describe::describe;
use help::help;
use info::{info, latency_histogram, reset_stats};
use login::{auth, hello, select};
use pubsub::{pong, pubsub, subscribe, unsubscribe};
use server::{ask_host, config_get, debug, modules, time, who_am_i};
use transaction::{discard, exec, multi, unwatch, watch};
use wait::wait;

use super::caller::RespCaller;
use crate::command::{Action, Args, Error, Named, PortCommand, Reply};
use crate::net::flow::State;
use crate::net::resp::scripts::run_script;

/// Runs one of the port's own commands, and counts it. One that waits for its reply is counted when
/// that has come, scripts where they run.
pub fn run_own(caller: &mut RespCaller<'_>, named: Named, args: &Args<'_>) {
    let Action::Port(which) = named.row().action else { return };
    if let PortCommand::Scripting(which) = which {
        return run_script(caller, named, which, args);
    }
    counted(caller, named, |caller| act(caller, named, which, args));
}

/// Runs WAIT or WAITAOF in EXEC, where they do not block, and counts it as [`run_own`] does.
pub fn run_wait_in_exec(caller: &mut RespCaller<'_>, named: Named, args: &Args<'_>) {
    let Action::Port(which) = named.row().action else { return };
    counted(caller, named, |caller| wait(caller, which, args, false));
}

fn counted(caller: &mut RespCaller<'_>, named: Named, run: impl FnOnce(&mut RespCaller<'_>)) {
    let (slot, said) = (caller.slot(), caller.output.end());
    let start = slot.begin(named.number);
    caller.session.flow.own_command = Some(named.number);
    run(caller);
    if caller.session.flow.state == State::Waiting {
        return;
    }
    caller.session.flow.own_command = None;
    if matches!(caller.session.flow.state, State::Deferred | State::Again) {
        return;
    }
    slot.end(named.number, start);
    if caller.output.own.get(said) == Some(&b'-') {
        slot.failed(named.number);
    }
}

fn act(caller: &mut RespCaller<'_>, named: Named, which: PortCommand, args: &Args<'_>) {
    let row = named.row();
    match which {
        PortCommand::Ping if args.len() > 2 => {
            caller.reply().error(&Error::Arity.text(row.name, args));
        }
        PortCommand::Ping if caller.session.only_hears() => pong(caller, args),
        PortCommand::Ping if args.len() == 2 => caller.reply().bulk(args.get(1)),
        PortCommand::Ping => caller.reply().simple("PONG"),
        PortCommand::Echo => caller.reply().bulk(args.get(1)),
        PortCommand::Select => select(caller, args),
        PortCommand::Quit => {
            caller.reply().ok();
            caller.session.flow.state = State::Closing;
        }
        PortCommand::Hello => hello(caller, args),
        PortCommand::Auth => auth(caller, args),
        PortCommand::Reset => {
            leave_all(caller.worker, caller.session);
            caller.session.reset(caller.engine());
            caller.reply().simple("RESET");
        }
        PortCommand::Time => time(caller),
        // Without a subcommand its arity is wrong.
        PortCommand::Container => {}
        PortCommand::Client(which) => client(caller, which, args),
        PortCommand::Describe(which) => {
            let limits = caller.limits;
            describe(which, args, &limits, &mut caller.reply())
        }
        PortCommand::Info => info(caller, args),
        PortCommand::ConfigGet => config_get(caller, args),
        PortCommand::ConfigResetStat => reset_stats(caller),
        PortCommand::LatencyHistogram => latency_histogram(caller, args),
        PortCommand::Latency => ask_host(caller, c"LATENCY", args),
        PortCommand::LatencyHelp => help(args, &mut caller.reply()),
        PortCommand::Debug => debug(caller, args),
        PortCommand::WhoAmI => who_am_i(caller),
        PortCommand::ModuleList => modules(caller),
        PortCommand::LastSave => ask_host(caller, c"LASTSAVE", args),
        PortCommand::Role => ask_host(caller, c"ROLE", args),
        PortCommand::Wait | PortCommand::WaitAof => wait(caller, which, args, true),
        PortCommand::Subscribe(kind) => subscribe(caller, kind, args),
        PortCommand::Unsubscribe(kind) => unsubscribe(caller, kind, args),
        PortCommand::PubSub(which) => pubsub(caller, which, args),
        // See above.
        PortCommand::Scripting(_) => {}
        PortCommand::Multi => multi(caller),
        PortCommand::Exec => exec(caller, args),
        PortCommand::Discard => discard(caller),
        PortCommand::Watch => watch(caller, args),
        PortCommand::Unwatch => unwatch(caller),
    }
}
