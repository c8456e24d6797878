//! The primitives that threads share: the token of a shard, the inbox of a thread, the waker that
//! it sleeps on, a number that threads wait for, the flag that stops all, and the proof that the
//! host's global lock is held. They know nothing of the store. Checked under loom.

pub mod contention;
mod inbox;
mod locked;
mod primitives;
mod standstill;
mod token;
mod wake;
mod watermark;

pub use inbox::Inbox;
pub use locked::Locked;
pub use standstill::{OnlyThread, StopFlag};
pub use token::{Held, HeldShared, Left, Pushed, ReadMarks, Released, Taken, Token, WaitingRoom};
pub use wake::Waker;
pub use watermark::{Waiting, Watermark};

#[cfg(test)]
pub(crate) use locked::LOCKED;
