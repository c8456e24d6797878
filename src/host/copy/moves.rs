//! MOVE: a key leaves one keyspace and enters the other in one hold of the global lock.
//!
//! The host's part is done by RM_Call, and midi's is logged in the same context. So both are in one
//! MULTI and EXEC of the host's stream: its AOF and its replicas have a key in exactly one place,
//! too. A unit keeps the key's shard meanwhile, so no port sees half of it.

use super::super::api::{Ctx, Level, log};
use super::super::instance::instance;
use super::super::persistence::hand_over::{self, Logging};
use crate::command::{Error, ImportArgs};
use crate::engine::Mode;

/// Refuses MOVE to a caller that cannot have it.
///
/// # Errors
/// [`Error::HostRefused`] if another module does: it decides whether the host logs its own part, so
/// the parts could get into the stream without each other.
pub fn check_caller(args: &ImportArgs, ctx: Ctx<'_>) -> Result<(), Error> {
    let is_logged = instance().engine.mode() != Mode::Fast;
    if !args.moves || !is_logged || !hand_over::is_called_by_module(ctx) {
        return Ok(());
    }
    let text = "Another module cannot call MIDI.IMPORT or MIDI.EXPORT with MOVE while writes are \
                logged.";
    log(ctx, Level::Warning, text);
    Err(Error::HostRefused)
}

/// While it lives, what this thread moves is logged in this context.
pub struct Moving(Option<Logging>);

impl Moving {
    /// The context must be one in which the host lets midi log: clients are not paused.
    pub fn begin(ctx: Ctx<'_>) -> Self {
        Moving(Logging::begin(ctx))
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        if self.0.take().is_some() {
            // Nothing else has a sleeping main thread write to its AOF.
            instance().engine.context().outside.wake_main();
        }
    }
}
