//! The primitives that threads meet at: the token of a shard, a thread's inbox, what it sleeps on,
//! and the proof that the host's global lock is held. They know no store. Checked under loom.

mod inbox;
mod locked;
mod primitives;
mod token;
mod wake;

pub use inbox::Inbox;
pub use locked::Locked;
pub use token::{Held, Left, Pushed, Released, Token, WaitingRoom};
pub use wake::Waker;

#[cfg(test)]
pub(crate) use locked::LOCKED;
