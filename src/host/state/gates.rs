//! For `gates`: the host's reasons to refuse commands.

use super::{Flag, Gauge, part};

part! {
    /// The host's reasons to refuse all commands, or writes, as last read.
    pub struct HostGates {
        /// Something happened: everything must be read again.
        pub stale: Flag = Flag::new(true),
        /// The host's settings may have changed.
        pub settings_stale: Flag = Flag::new(true),
        /// Whether any port is open: then the flags are read in every turn.
        pub ports: Flag = Flag::new(false),
        /// The host's verdict on a write tells of its AOF also between commands.
        pub judges_at_any_time: Flag = Flag::new(false),
        /// From INFO, while a port is open.
        pub disk_error: Flag = Flag::new(false),
        pub aof_error: Flag = Flag::new(false),
        pub few_replicas: Flag = Flag::new(false),
        /// From CONFIG.
        pub serves_stale: Flag = Flag::new(true),
        pub stops_at_disk_error: Flag = Flag::new(false),
        /// Valkey's `import-mode`.
        pub imports: Flag = Flag::new(false),
        /// `min-replicas-to-write`; `gates::UNKNOWN` if the host does not report it.
        pub replicas_wanted: Gauge = Gauge::new(0),
    }
}

impl HostGates {
    /// Something happened that may have changed the gates.
    pub fn may_change(&self) {
        self.stale.set(true);
    }
}
