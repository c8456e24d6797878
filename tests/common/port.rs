//! A server with midi's own port open.

use std::net::TcpListener;

use super::client::Client;
use super::server::{Builder, Server};

/// See above.
pub struct Ported {
    /// The server.
    pub server: Server,
    port: u16,
}

impl Ported {
    /// Starts a server with the port open besides.
    pub fn start(builder: Builder) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        Ported { server: builder.load(&format!("port {port}")).start(), port }
    }

    /// Where midi's port is.
    pub fn number(&self) -> u16 {
        self.port
    }

    /// A new connection to midi's port.
    pub fn client(&self) -> Client {
        Client::connect(self.port).unwrap_or_else(|error| panic!("cannot connect to midi's port: {error}"))
    }

    /// A new connection to the host's port.
    pub fn host(&self) -> Client {
        self.server.client()
    }

    /// A connection to midi's port as that user, whose password is its name.
    pub fn client_of(&self, user: &str) -> Client {
        let mut client = self.client();
        client.ok(&format!("AUTH {user} {user}"));
        client
    }

    /// The same at the host's port.
    pub fn host_of(&self, user: &str) -> Client {
        let mut client = self.host();
        client.ok(&format!("AUTH {user} {user}"));
        client
    }
}
