//! Scripts of a connection on their way to the main thread.

use std::collections::VecDeque;

use crate::command::{Args, OwnedArgs};
use crate::limits::{AHEAD, SCRIPTS_BYTES_TOGETHER};

/// Scripts of a connection that are about to go to the main thread.
#[derive(Default)]
pub struct PendingScripts {
    pub(super) calls: VecDeque<ScriptCall>,
    bytes: usize,
}

/// One of them: the number of its command, and its arguments.
pub type ScriptCall = (usize, OwnedArgs);

impl PendingScripts {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether no more may go with them.
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= AHEAD || self.bytes > SCRIPTS_BYTES_TOGETHER
    }

    /// Adds one.
    pub(super) fn add(&mut self, number: usize, args: &Args<'_>) {
        self.bytes += args.bytes();
        self.calls.push_back((number, args.to_owned(usize::MAX)));
    }
}
