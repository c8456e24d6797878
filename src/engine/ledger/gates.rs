//! The host's reasons to let no commands through, or no writes. The holder of the global lock keeps
//! them in one word.

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates(u32);

impl Gates {
    /// No reason: everything may run.
    pub const OPEN: Gates = Gates(0);
    /// The host is loading its data.
    pub const LOADING: Gates = Gates(1);
    /// A replica that has lost its master, and must not serve stale data.
    pub const STALE: Gates = Gates(1 << 1);
    /// All commands of clients are paused.
    pub const PAUSED: Gates = Gates(1 << 2);
    /// Writes of clients are paused.
    pub const WRITES_PAUSED: Gates = Gates(1 << 3);
    /// A replica: nobody may write to midi's keys, whatever `replica-read-only` says.
    pub const READ_ONLY: Gates = Gates(1 << 4);
    /// The host could not save its data, and its settings refuse writes then.
    pub const DISK_ERROR: Gates = Gates(1 << 5);
    /// The host has fewer replicas than its settings require for writes.
    pub const FEW_REPLICAS: Gates = Gates(1 << 6);
    /// Memory is above the host's limit: commands that may need more are refused.
    pub const OUT_OF_MEMORY: Gates = Gates(1 << 7);
    /// Memory has a limit: commands that may need more must have credit.
    pub const METERED: Gates = Gates(1 << 8);
    /// The host has AOF on.
    pub const AOF_ON: Gates = Gates(1 << 9);
    /// The host has a replication backlog: what is written is for replicas too, or for those that
    /// come back.
    pub const BACKLOG: Gates = Gates(1 << 10);
    /// A replica on which clients may not write to the host's keys either.
    pub const HOST_READ_ONLY: Gates = Gates(1 << 11);
    /// Too many notifications wait for the main thread. Unlike the other reasons, this one is set
    /// by workers.
    pub const NOTIFICATIONS: Gates = Gates(1 << 12);
    /// The host saves without a fork.
    pub const SAVING: Gates = Gates(1 << 13);
    /// A replica whose master may have changed midi's keys without telling it.
    pub const UNSYNCED: Gates = Gates(1 << 14);

    /// Too much of the log waits for the main thread. Set by workers.
    pub const LOG_FULL: Gates = Gates(1 << 16);
    /// The host could not write to its AOF.
    pub const AOF_ERROR: Gates = Gates(1 << 18);

    /// The host imports keys from another server, which decides what has expired: Valkey's
    /// `import-mode`, and slots that another node of the cluster sends.
    pub const IMPORTING: Gates = Gates(1 << 19);
    /// The host was told by DEBUG not to look for keys that have expired.
    pub const NO_ACTIVE_EXPIRY: Gates = Gates(1 << 20);
    /// Clients are paused, or may be about to be, and the host has a log: only the main thread may
    /// write.
    pub const WORKERS_PAUSED: Gates = Gates(1 << 21);

    /// The host has a child that saves: what is moved in memory is copied for it.
    pub const HAS_CHILD: Gates = Gates(1 << 22);

    /// midi's keys have reached their limit, and none may be evicted. Set by whoever adds up
    /// their memory.
    pub const FULL: Gates = Gates(1 << 23);
    /// midi's keys are far above their limit, and workers evict. Set as [`Gates::FULL`].
    pub const EVICTING: Gates = Gates(1 << 24);

    /// This process is a forked child, which keeps all tokens: its commands would wait for ever.
    pub const FORKED: Gates = Gates(1 << 15);

    /// The union of both sets.
    pub const fn and(self, others: Gates) -> Gates {
        Gates(self.0 | others.0)
    }

    /// `self`, with `others` added if `so`.
    pub const fn and_if(self, so: bool, others: Gates) -> Gates {
        if so { self.and(others) } else { self }
    }

    /// Whether the sets have a reason in common.
    #[inline]
    pub const fn has(self, any: Gates) -> bool {
        self.0 & any.0 != 0
    }

    /// `self` without `others`.
    pub const fn without(self, others: Gates) -> Gates {
        Gates(self.0 & !others.0)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn of_bits(bits: u32) -> Gates {
        Gates(bits)
    }
}
