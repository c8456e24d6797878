//! Parsing ahead: which commands at the start of the input run together, and what ends them.

use super::ahead::Ahead;
use super::connection::Connection;
use super::driver::Driver;
use super::resp::{ArgList, Parsed, ProtocolError, RequestLimits};
use super::service::Service;
use crate::command::{Args, Limits, Named};
use crate::engine::{Doing, Gate};
use crate::limits::{AHEAD_ARGUMENTS, LEAST_ARGUMENT_BYTES};

/// What follows the commands that run together.
#[derive(PartialEq, Eq)]
pub(super) enum Stop {
    /// The end of the input.
    End,
    /// There is no room for more commands.
    Full,
    /// A command that runs by itself, or later, up to `end`; its arguments are in the list.
    Alone { end: usize },
    /// An empty line, up to `end`.
    Empty { end: usize },
    /// The beginning of a command, of which at least this many bytes are missing.
    Incomplete { missing: usize },
    /// Input that is not a command.
    Malformed(ProtocolError),
}

impl<D: Driver> Service<D> {
    /// Adds the commands at the start of `input` to those that run together, until something stops
    /// it; returns their length in the input and what stopped it.
    #[inline]
    pub(super) fn take_commands<'i>(
        &self,
        connection: &mut Connection,
        input: &'i [u8],
        args: &mut ArgList,
        limits: &RequestLimits,
        ahead: &mut Ahead<'i>,
    ) -> (usize, Stop) {
        let mut at = 0;
        while at < input.len() {
            if let Some(end) = ahead.add_known(input, at) {
                at = end;
                continue;
            }
            if ahead.is_full() {
                return (at, Stop::Full);
            }
            let end = match connection.parser.next(&input[at..], args, limits) {
                Ok(Parsed::Command { consumed }) => at + consumed,
                Ok(Parsed::Empty { consumed }) => return (at, Stop::Empty { end: at + consumed }),
                Ok(Parsed::Incomplete { missing }) => return (at, Stop::Incomplete { missing }),
                Err(error) => return (at, Stop::Malformed(error)),
            };
            if !self.goes_with_others(connection, &input[at..], args, end, ahead) {
                return (at, Stop::Alone { end });
            }
            if ahead.are_several() || end < input.len() {
                ahead.expect_more(connection, &input[at..], args, limits);
            }
            at = end;
        }
        (at, Stop::End)
    }

    /// Adds a command to those that run together, if it can be: it is on one shard, it is allowed,
    /// and nothing holds it up. There must be room.
    #[inline]
    fn goes_with_others<'i>(
        &self,
        connection: &Connection,
        input: &'i [u8],
        args: &ArgList,
        end: usize,
        ahead: &mut Ahead<'i>,
    ) -> bool {
        if args.is_empty() || args.is_inline() || args.len() > AHEAD_ARGUMENTS {
            return false;
        }
        let list = Args::new(ahead.lay_out(input, args));
        let Some(named) = Named::find(list.get(0)) else {
            return false;
        };
        let row = named.row();
        let session = &connection.session;
        let free = row.is_on_one_shard(list.len())
            && session.is_plain()
            && row.check_arity(&list).is_ok()
            && self.engine().ledger.gate(Doing::OfPort(row.flags)) == Gate::Go
            && session.may(self.engine(), named.number, &list);
        if free {
            ahead.add(named, end);
        }
        free
    }
}

/// The limits for a connection's requests.
#[inline]
pub(super) fn request_limits(connection: &Connection, limits: &Limits) -> RequestLimits {
    // Limits of keys and values have their own errors, and do not apply to names and other
    // arguments.
    let max_bulk_bytes = limits.max_value_bytes.max(limits.max_key_bytes).max(LEAST_ARGUMENT_BYTES);
    RequestLimits { max_bulk_bytes, authenticated: connection.session.user.is_some() }
}
