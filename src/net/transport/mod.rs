//! Connections as bytes: listening, accepting, receiving, sending. Nothing here knows what the
//! bytes mean.
//!
//! ```text
//! listener ─► channel ─┬─ wire, plain or TLS ◄─► driver ◄─► system
//!                      ├─ unread: received and not run
//!                      └─ outgoing: said and not sent
//! ```

mod backlog;
mod channel;
mod driver;
mod large;
mod listen;
mod outgoing;
mod output;
mod tls;
mod wire;

pub use channel::{Channel, Ended};
pub use driver::{Driver, Epoll, Happened, Sent, Uring};
pub use large::{Announced, LargeInput, room_for};
pub use listen::{Accepted, Listener, Listeners, address_of, open, prepare_tcp, raised};
pub use outgoing::{LogWait, Outbox};
pub use output::Output;
pub use tls::{TlsServer, TlsStream, tls_server};
pub use wire::{Io, Wire};

use slotmap::{Key as _, KeyData, new_key_type};

new_key_type! {
    /// A connection of a worker. A later connection in the same slot has a different key.
    pub struct Key;
}

impl Key {
    /// The key as one number, at least 2^32, for the driver and the engine.
    pub fn packed(self) -> u64 {
        self.data().as_ffi()
    }

    /// The key of a number from [`Key::packed`].
    pub fn unpacked(packed: u64) -> Self {
        KeyData::from_ffi(packed).into()
    }
}
