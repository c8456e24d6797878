//! What the engine and the ports ask of the host, whatever it is.

use std::ffi::CStr;
use std::sync::Arc;

use super::call::Call;
use super::engine::Engine;
use super::job::{JobOwner, JobReply};
use super::lock::Locked;
use super::users::{Denied, PasswordSum, User};
use crate::command::{Args, DoorCommand, HostCommand, Tape};
use crate::limits::REFUSED_NAME_BYTES;

/// The host. Questions are asked by the holder of its global lock, between
/// commands: from elsewhere they go there as an [`Errand`].
pub trait Host: Send + Sync {
    /// Its version in terms of Redis's.
    fn version(&self) -> &str;

    /// Whether that is the user's password.
    fn authenticate(&self, locked: Locked<'_>, user: &[u8], password: &PasswordSum) -> bool;

    /// What a user may do; `None` where there is no such user.
    fn user(&self, locked: Locked<'_>, name: &[u8]) -> Option<User>;

    /// A user was refused something: for the host's own list of such cases. Also where
    /// [`Host::authenticate`] said no.
    fn refused(&self, locked: Locked<'_>, refusal: &Refusal);

    /// Its own reply to a command without arguments, which must change nothing.
    fn reply_to(&self, locked: Locked<'_>, command: &CStr) -> Tape;

    /// INFO's text for these sections.
    fn info(&self, locked: Locked<'_>, sections: &[&[u8]]) -> Arc<[u8]>;

    /// Runs a command that needs the host's means for a client of a port, with this user's rights. It
    /// is answered now, or by a job; within a unit it is answered now.
    fn run_door_command(
        &self,
        locked: Locked<'_>,
        call: &Call<'_>,
        which: DoorCommand,
        user: &[u8],
        owner: JobOwner,
        reply: Box<dyn JobReply>,
    );

    /// All its commands but midi's by name, more than once perhaps; then the last one counts. A
    /// subcommand's is `container|subcommand`.
    fn commands(&self, locked: Locked<'_>) -> Vec<(Vec<u8>, HostCommand)>;

    /// Settings whose names match any of these patterns, each with its value.
    fn config_get(&self, locked: Locked<'_>, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)>;
}

/// Something that a user was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The user's name.
    pub user: Box<[u8]>,
    /// The command or the key that it was about; for a password, the command that brought it.
    pub object: Box<[u8]>,
    /// What it was.
    pub reason: RefusalReason,
}

impl Refusal {
    /// Of a command of that name.
    pub fn new(user: &User, denied: Denied, name: &str, args: &Args<'_>) -> Self {
        let (object, reason) = match denied {
            Denied::Key(at) => (args.get(at), RefusalReason::Key),
            Denied::Command | Denied::Database => (name.as_bytes(), RefusalReason::Command),
        };
        Refusal { user: user.name.clone(), object: beginning(object).into(), reason }
    }

    /// Of a login by that name.
    pub fn of_login(name: &[u8]) -> Self {
        Refusal { user: beginning(name).into(), object: (*b"AUTH").into(), reason: RefusalReason::Auth }
    }
}

fn beginning(name: &[u8]) -> &[u8] {
    &name[..name.len().min(REFUSED_NAME_BYTES)]
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// A wrong password.
    Auth,
    /// A command that the user may not call.
    Command,
    /// A key that the user may not touch.
    Key,
}

/// Something that only the holder of the host's global lock can do. There is no host
/// for it where the host is busy with a script that takes too long: then the errand
/// answers that.
pub type Errand = Box<dyn FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) + Send>;
