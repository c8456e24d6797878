//! The script of a port's client that runs. For `scripts`.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::super::PREFIX;
use super::super::string::{HostString, OwnString};
use super::{Flag, part};
use crate::command::Named;
use crate::engine::User;

part! {
    /// The script of a port's client that runs, and what its commands may do.
    pub struct PortScripts {
        /// Whether the host runs such a script now, and nothing that its commands have called.
        pub is_running: Flag = Flag::new(false),
        /// See [`ScriptTerms`].
        pub terms: Mutex<Option<ScriptTerms>> = Mutex::new(None),
        /// Digests of scripts that may take memory above `maxmemory`, as far as the port has seen
        /// their texts.
        pub allow_oom: LazyLock<Mutex<HashSet<Vec<u8>>>> = LazyLock::new(Mutex::default),
        /// The names under which the host knows midi's commands.
        pub names: Mutex<CommandNames> = Mutex::new(CommandNames(Vec::new())),
    }
}

/// The names under which the host knows midi's commands, as its own strings: a script's commands
/// get them one by one. By the number of the command.
pub struct CommandNames(Vec<Option<OwnString>>);

// SAFETY: kept in `PortScripts`, and used under the global lock only.
unsafe impl Send for CommandNames {}

impl CommandNames {
    /// The name of this command.
    pub fn of(&mut self, command: Named) -> HostString<'_> {
        let number = command.number;
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        let name = || OwnString::new(format!("{PREFIX}{}", command.row().name).as_bytes());
        self.0[number].get_or_insert_with(name).get()
    }
}

/// What the commands of a script may do.
pub struct ScriptTerms {
    /// The user with its rights at the ports.
    pub user: Arc<User>,
    /// Memory was above the host's limit when the script began, and it must not take more.
    pub lacks_memory: bool,
}
