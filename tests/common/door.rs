//! The ways in: the host's commands with their prefix, and midi's own port.

use super::client::Client;
use super::server::Server;
use super::twin::{Words, prefixed};

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The host's port; midi's commands are called with the prefix.
    Host,
    /// midi's port, and the standard names.
    Port,
    /// midi's port, and names with the prefix.
    PortPrefixed,
}

impl Door {
    /// All of them.
    pub const ALL: [Door; 3] = [Door::Host, Door::Port, Door::PortPrefixed];

    /// Opens a new connection through it.
    pub fn client(self, server: &Server) -> Client {
        match self {
            Door::Host => server.client(),
            Door::Port | Door::PortPrefixed => server.midi_client(),
        }
    }

    /// A command given by its standard name, under its name here.
    pub fn named<A: AsRef<[u8]>>(self, args: &[A]) -> Words {
        match self {
            Door::Host | Door::PortPrefixed => prefixed(args),
            Door::Port => args.iter().map(|arg| arg.as_ref().to_vec()).collect(),
        }
    }
}
