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

use describe::describe;

use crate::command::{Action, Args, Error, Limits, Named, PortCommand, Reply};
use crate::net::connection::{Connection, State};
use crate::net::driver::Driver;
use crate::net::service::Service;

impl<D: Driver> Service<D> {
    /// Runs one of the port's own commands.
    pub(in crate::net) fn run_own(
        &mut self,
        connection: &mut Connection,
        named: Named,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let row = named.row();
        let Action::Port(which) = row.action else { return };
        match which {
            PortCommand::Ping if args.len() > 2 => {
                connection.session.reply(output).error(&Error::Arity.text(row.name, args));
            }
            PortCommand::Ping if args.len() == 2 => {
                connection.session.reply(output).bulk(args.get(1))
            }
            PortCommand::Ping => connection.session.reply(output).simple("PONG"),
            PortCommand::Echo => connection.session.reply(output).bulk(args.get(1)),
            PortCommand::Select => self.select(connection, args, output),
            PortCommand::Quit => {
                connection.session.reply(output).ok();
                connection.state = State::Closing;
            }
            PortCommand::Hello => self.hello(connection, args, output),
            PortCommand::Auth => self.auth(connection, args, output),
            PortCommand::Reset => {
                connection.session.reset(&self.shared.engine, &connection.client);
                connection.session.reply(output).simple("RESET");
            }
            PortCommand::Time => self.time(connection, output),
            // Without a subcommand its arity is wrong.
            PortCommand::Container => {}
            PortCommand::Client(which) => self.client(connection, which, args, output),
            PortCommand::Describe(which) => {
                describe(which, args, &mut connection.session.reply(output))
            }
            PortCommand::Info => self.info(connection, args),
            PortCommand::ConfigGet => self.config_get(connection, args),
            PortCommand::Debug => self.debug(connection, args, limits, output),
            PortCommand::WhoAmI => self.who_am_i(connection, output),
            PortCommand::ModuleList => self.modules(connection, output),
            PortCommand::LastSave => self.ask_host(connection, c"LASTSAVE"),
            PortCommand::Role => self.ask_host(connection, c"ROLE"),
            PortCommand::Wait | PortCommand::WaitAof => {
                self.wait(connection, which, args, true, output)
            }
            PortCommand::Multi => self.multi(connection, output),
            PortCommand::Exec => self.exec(connection, args, limits, output),
            PortCommand::Discard => self.discard(connection, output),
            PortCommand::Watch => self.watch(connection, args, limits, output),
            PortCommand::Unwatch => self.unwatch(connection, output),
        }
    }
}
