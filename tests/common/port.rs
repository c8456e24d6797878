//! A server with midi's own port open.

use super::client::Client;
use super::server::{Builder, Server};

/// See above.
pub struct Ported {
    /// The server.
    pub server: Server,
}

impl Ported {
    /// Starts a server with midi's port open, too.
    pub fn start(builder: Builder) -> Self {
        Ported { server: builder.with_port().start() }
    }

    /// The number of midi's port.
    pub fn number(&self) -> u16 {
        self.server.midi_port()
    }

    /// The number of the host's port.
    pub fn number_of_host(&self) -> u16 {
        self.server.port()
    }

    /// A new connection to midi's port.
    pub fn client(&self) -> Client {
        self.server.midi_client()
    }

    /// A new connection to the host's port.
    pub fn host(&self) -> Client {
        self.server.client()
    }

    /// A connection to midi's port as this user, whose password equals its name.
    pub fn client_of(&self, user: &str) -> Client {
        let mut client = self.client();
        client.ok(&format!("AUTH {user} {user}"));
        client
    }

    /// The same on the host's port.
    pub fn host_of(&self, user: &str) -> Client {
        let mut client = self.host();
        client.ok(&format!("AUTH {user} {user}"));
        client
    }
}
