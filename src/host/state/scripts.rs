//! The script of a port's client that runs. For `scripts`.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::{Flag, part};
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
    }
}

/// What the commands of a script may do.
pub struct ScriptTerms {
    /// The user with its rights at the ports.
    pub user: Arc<User>,
    /// Memory was above the host's limit when the script began, and it must not take more.
    pub lacks_memory: bool,
}
