//! The ports' own commands: about connections, logins, transactions and the server.

mod client;
mod describe;
mod exec;
mod help;
mod login;
mod server;
mod transaction;

pub(super) use exec::aborted;

use describe::describe;

use crate::command::{Args, Error, Limits, PORT_COMMANDS, PortAction, Reply};
use crate::net::connection::{Connection, State};
use crate::net::driver::Driver;
use crate::net::service::Service;

impl<D: Driver> Service<D> {
    /// Runs a command of the port's own.
    pub(in crate::net) fn run_own(
        &mut self,
        connection: &mut Connection,
        number: usize,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let row = &PORT_COMMANDS[number];
        match row.which {
            PortAction::Ping if args.len() > 2 => {
                connection.session.reply(output).error(&Error::Arity.text(row.name, args));
            }
            PortAction::Ping if args.len() == 2 => connection.session.reply(output).bulk(args.get(1)),
            PortAction::Ping => connection.session.reply(output).simple("PONG"),
            PortAction::Echo => connection.session.reply(output).bulk(args.get(1)),
            PortAction::Select => self.select(connection, args, output),
            PortAction::Quit => {
                connection.session.reply(output).ok();
                connection.state = State::Closing;
            }
            PortAction::Hello => self.hello(connection, args, output),
            PortAction::Auth => self.auth(connection, args, output),
            PortAction::Reset => {
                connection.session.reset(&self.shared.engine, &connection.client);
                connection.session.reply(output).simple("RESET");
            }
            PortAction::Time => self.time(connection, output),
            // Without a subcommand its arity is wrong.
            PortAction::Container => {}
            PortAction::Client(which) => self.client(connection, which, args, output),
            PortAction::Describe(which) => describe(which, args, &mut connection.session.reply(output)),
            PortAction::Info => self.info(connection, args),
            PortAction::ConfigGet => self.config_get(connection, args),
            PortAction::Debug => self.debug(connection, args, limits, output),
            PortAction::WhoAmI => self.who_am_i(connection, output),
            PortAction::ModuleList => self.modules(connection, output),
            PortAction::LastSave => self.ask_host(connection, c"LASTSAVE"),
            PortAction::Role => self.ask_host(connection, c"ROLE"),
            PortAction::Multi => self.multi(connection, output),
            PortAction::Exec => self.exec(connection, args, limits, output),
            PortAction::Discard => self.discard(connection, output),
            PortAction::Watch => self.watch(connection, args, limits, output),
            PortAction::Unwatch => self.unwatch(connection, output),
        }
    }
}
