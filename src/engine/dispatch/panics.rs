//! Panics of queued commands.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Next;
use crate::command::{Error, Transcript};
use crate::engine::call::Call;

/// How a panic of a queued command ends.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Panic {
    /// Count it with this function, and answer the client with an error.
    Caught(fn()),
    /// The caller holds a token: end the process.
    Fatal,
}

impl Panic {
    /// Runs a part of a call; a panic that is caught becomes its reply.
    pub(super) fn guard(
        self,
        call: &Call<'_>,
        transcript: &mut Transcript,
        run: impl FnOnce(&mut Transcript) -> Next,
    ) -> Next {
        let Panic::Caught(count) = self else { return run(transcript) };
        catch_unwind(AssertUnwindSafe(|| run(transcript))).unwrap_or_else(|_| {
            count();
            *transcript = Transcript::default();
            call.refuse(Error::Internal, transcript);
            Next::Answered
        })
    }
}
