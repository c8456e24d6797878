//! TLS, by rustls: the server's settings, and the sessions of connections.

mod names;
mod server;
mod stream;

pub use names::names;
pub use server::{TlsServer, tls_server};
pub use stream::TlsStream;
