//! The ports' own commands: about connections, logins, transactions and the server.

mod client;
mod describe;
mod exec;
mod help;
mod login;
mod server;
mod transaction;
mod wait;

pub(super) use exec::aborted;
pub(super) use server::not_here;
pub(super) use transaction::queue;
pub(super) use wait::wait;

use client::client;
use describe::describe;
use login::{auth, hello, select};
use server::{ask_host, config_get, debug, info, modules, time, who_am_i};
use transaction::{discard, exec, multi, unwatch, watch};

use super::context::Context;
use super::session::State;
use crate::command::{Action, Args, Error, Named, PortCommand, Reply};

/// Runs one of the port's own commands.
pub fn run_own(cx: &mut Context<'_>, named: Named, args: &Args<'_>) {
    let row = named.row();
    let Action::Port(which) = row.action else { return };
    match which {
        PortCommand::Ping if args.len() > 2 => {
            cx.reply().error(&Error::Arity.text(row.name, args));
        }
        PortCommand::Ping if args.len() == 2 => cx.reply().bulk(args.get(1)),
        PortCommand::Ping => cx.reply().simple("PONG"),
        PortCommand::Echo => cx.reply().bulk(args.get(1)),
        PortCommand::Select => select(cx, args),
        PortCommand::Quit => {
            cx.reply().ok();
            cx.session.state = State::Closing;
        }
        PortCommand::Hello => hello(cx, args),
        PortCommand::Auth => auth(cx, args),
        PortCommand::Reset => {
            cx.session.reset(cx.engine());
            cx.reply().simple("RESET");
        }
        PortCommand::Time => time(cx),
        // Without a subcommand its arity is wrong.
        PortCommand::Container => {}
        PortCommand::Client(which) => client(cx, which, args),
        PortCommand::Describe(which) => describe(which, args, &mut cx.reply()),
        PortCommand::Info => info(cx, args),
        PortCommand::ConfigGet => config_get(cx, args),
        PortCommand::Debug => debug(cx, args),
        PortCommand::WhoAmI => who_am_i(cx),
        PortCommand::ModuleList => modules(cx),
        PortCommand::LastSave => ask_host(cx, c"LASTSAVE"),
        PortCommand::Role => ask_host(cx, c"ROLE"),
        PortCommand::Wait | PortCommand::WaitAof => wait(cx, which, args, true),
        PortCommand::Multi => multi(cx),
        PortCommand::Exec => exec(cx, args),
        PortCommand::Discard => discard(cx),
        PortCommand::Watch => watch(cx, args),
        PortCommand::Unwatch => unwatch(cx),
    }
}
