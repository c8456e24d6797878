//! Commands by the names that clients give them.

use std::sync::atomic::Ordering;

use super::client::Client;
use crate::command::{Action, COMMANDS, DoorCommand, PORT_COMMANDS, find};

/// A command, by the name that a client gave.
#[derive(Clone, Copy)]
pub enum Named {
    /// One of the command table.
    Table {
        /// Its number in [`crate::command::COMMANDS`].
        number: usize,
        /// What stood before its standard name.
        prefix: &'static str,
    },
    /// One of the port's own: its number in [`PORT_COMMANDS`].
    Port(usize),
}

/// What every command of the table may be called with.
pub const PREFIX: &str = "midi.";

/// Whether a standard name means another command: INFO without `midi.` tells of the whole server.
#[inline]
fn is_shadowed(number: usize) -> bool {
    matches!(COMMANDS[number].action, Action::Door(DoorCommand::Info))
}

impl Named {
    /// The command of the table of that name, in any case, with or without `midi.` in front.
    #[inline]
    pub fn find(name: &[u8]) -> Option<Named> {
        if let Some((prefix, rest)) = name.split_at_checked(PREFIX.len())
            && prefix.eq_ignore_ascii_case(PREFIX.as_bytes())
        {
            return find(rest).map(|number| Named::Table { number, prefix: PREFIX });
        }
        let number = find(name).filter(|&number| !is_shadowed(number))?;
        Some(Named::Table { number, prefix: "" })
    }

    /// As a number of [`Client::last_command`]; not 0.
    fn packed(self) -> u32 {
        match self {
            Named::Table { number, prefix } => 1 + 4 * number as u32 + u32::from(!prefix.is_empty()),
            Named::Port(number) => 3 + 4 * number as u32,
        }
    }

    /// The command that such a number stands for; `None` where there is none.
    pub fn of_packed(packed: u32) -> Option<Named> {
        let number = (packed / 4) as usize;
        match packed % 4 {
            1 => Some(Named::Table { number, prefix: "" }),
            2 => Some(Named::Table { number, prefix: PREFIX }),
            3 => Some(Named::Port(number)),
            _ => None,
        }
    }

    /// Its name; a subcommand's is `container|subcommand`.
    pub fn full_name(self) -> String {
        match self {
            Named::Table { number, prefix } => format!("{prefix}{}", COMMANDS[number].name),
            Named::Port(number) => PORT_COMMANDS[number].name.to_owned(),
        }
    }

    /// Notes that a client has called it.
    #[inline]
    pub fn note(self, client: &Client) {
        client.last_command.store(self.packed(), Ordering::Relaxed);
    }
}
