//! The last command of each client, by the name that the client used.

use std::sync::atomic::Ordering;

use crate::command::{COMMANDS, Named, PREFIX};
use crate::net::client::Client;

/// The value for [`Client::last_command`]; never 0.
fn packed(named: Named) -> u32 {
    2 + 2 * named.number as u32 + u32::from(!named.prefix.is_empty())
}

/// Notes that a client has called this command.
#[inline]
pub fn note(named: Named, client: &Client) {
    client.last_command.store(packed(named), Ordering::Relaxed);
}

/// The command that a client called last; `None` if it called none or an unknown one.
pub fn last(client: &Client) -> Option<Named> {
    let packed = client.last_command.load(Ordering::Relaxed);
    let number = (packed / 2).checked_sub(1)? as usize;
    let prefix = if packed.is_multiple_of(2) { "" } else { PREFIX };
    (number < COMMANDS.len()).then_some(Named { number, prefix })
}
