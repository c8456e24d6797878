//! The host's threads that read requests and send replies (`io-threads`). What they do beside the
//! main thread has changed with the host's versions.

use super::api::Ctx;
use super::state::{Flag, part};
use super::version::is_since;

part! {
    /// What the host's I/O threads do. Without an answer of the host: everything.
    pub struct IoThreads {
        /// Whether there may be any.
        pub are_any: Flag = Flag::new(true),
        /// Whether a host with such threads sends some replies before it has synced its AOF, even
        /// with `appendfsync always`.
        answer_early: Flag = Flag::new(true),
    }
}

impl IoThreads {
    /// Asks the host for its version and its threads. In OnLoad.
    pub fn prepare(&self, ctx: Ctx<'_>) {
        // Redis runs their commands after it has synced its AOF, and sends the replies in the same
        // turn of the main loop. Valkey (9.1.2, `processIOThreadsResponses`) runs commands that
        // have been read, and then, if an earlier reply to the same client has just been sent,
        // sends the replies before it syncs.
        self.answer_early.set(is_since(ctx, (8, 2), Some((9, 1))));
        self.look(ctx);
    }

    /// Asks the host for its threads: Valkey changes their number while it runs. At load, and when
    /// a setting has changed.
    pub fn look(&self, ctx: Ctx<'_>) {
        self.are_any.set(ctx.config_number(c"io-threads") != Some(1));
    }

    /// Whether a reply may leave before the AOF is synced.
    pub fn answer_early(&self) -> bool {
        self.are_any.get() && self.answer_early.get()
    }

    /// Whether such threads ask modules for the keys of commands. In OnLoad: the hosts whose
    /// threads do so cannot change their number later.
    ///
    /// This is a defect of Redis (8.6.3, `moduleGetCommandKeysViaAPI`): such a question counts as a
    /// command that is being executed, in a counter that only the main thread may touch. When the
    /// counter is wrong, Redis leaves writes out of its AOF, or ends with a failed assertion.
    pub fn ask_for_keys(&self, ctx: Ctx<'_>) -> bool {
        self.are_any.get() && is_since(ctx, (8, 4), None)
    }
}
