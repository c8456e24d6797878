//! The questions of the engine and the ports to the host.

use std::ffi::CStr;
use std::sync::Arc;

use crate::command::{Args, Command, DoorCommand, HostCommand, Transcript};
use crate::engine::call::Call;
use crate::engine::jobs::{JobOwner, JobReply};
use crate::engine::replica_wait::{Awaited, ReplicaWait};
use crate::engine::users::{PasswordSum, Refusal, User};
use crate::sync::Locked;

/// The client of a port for which the host runs a script.
pub struct ScriptCaller<'a> {
    /// Its user's name.
    pub user: &'a [u8],
    /// Its database.
    pub db: u32,
    /// It speaks RESP3.
    pub resp3: bool,
}

/// The reply to a script's client, as the bytes that it is sent.
pub type ScriptReply = Vec<u8>;

/// Runs a command about scripts with its arguments, and appends its reply. False if clients are
/// paused: then it has not run, and is to be tried again as a writing task.
pub type RunScript<'a> = &'a mut dyn FnMut(&Command, &Args<'_>, &mut ScriptReply) -> bool;

/// The host. Only the holder of its global lock may ask it, between commands; other threads send a
/// [`MainTask`](super::MainTask).
pub trait Host: Send + Sync {
    /// Its version in terms of Redis's.
    fn version(&self) -> &str;

    /// Whether this is the user's password.
    fn authenticate(&self, locked: Locked<'_>, user: &[u8], password: &PasswordSum) -> bool;

    /// Whether there is a user of this name that may log in.
    fn is_on(&self, locked: Locked<'_>, user: &[u8]) -> bool;

    /// A user and its rights; `None` if there is no such user.
    fn user(&self, locked: Locked<'_>, name: &[u8]) -> Option<User>;

    /// A user was refused something, for the host's own log of such cases. Also called when
    /// [`Host::authenticate`] returned false.
    fn refused(&self, locked: Locked<'_>, refusal: &Refusal);

    /// The host's own reply to a command with these arguments, which must not concern keys.
    fn reply_to(&self, locked: Locked<'_>, command: &CStr, args: &[&[u8]]) -> Transcript;

    /// The host's own error to WAIT or WAITAOF, if it is a replica.
    fn refuses_wait(&self, locked: Locked<'_>, awaited: Option<Awaited>) -> Option<Vec<u8>>;

    /// Has a client wait.
    fn wait_for_replicas(&self, locked: Locked<'_>, wait: ReplicaWait);

    /// INFO's text for these sections.
    fn info(&self, locked: Locked<'_>, sections: &[&[u8]]) -> Arc<[u8]>;

    /// Runs a command that needs the host, for a client of a port, with this user's rights. The
    /// reply comes now or from a job; within a unit it comes now.
    fn run_door_command(
        &self,
        locked: Locked<'_>,
        call: &Call<'_>,
        which: DoorCommand,
        user: &[u8],
        owner: JobOwner,
        reply: Box<dyn JobReply>,
    );

    /// Gives `work` the way to run scripts, functions and commands about them, for a client of a
    /// port.
    fn run_scripts(
        &self,
        locked: Locked<'_>,
        caller: &ScriptCaller<'_>,
        work: &mut dyn FnMut(RunScript<'_>),
    );

    /// The host's reply to PUBSUB with these words: its texts, and its numbers as texts.
    fn pubsub(&self, locked: Locked<'_>, words: &[&[u8]]) -> Vec<Vec<u8>>;

    /// The host's commands by name, without midi's. A name may come more than once; then the last
    /// one counts. A subcommand's name is `container|subcommand`.
    fn commands(&self, locked: Locked<'_>) -> Vec<(Vec<u8>, HostCommand)>;

    /// Settings whose names match any of these patterns, each with its value.
    fn config_get(&self, locked: Locked<'_>, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)>;
}
