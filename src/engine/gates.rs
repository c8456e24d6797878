//! Reasons of the host's to let no commands through, or no writes: what the holder of the global
//! lock leaves in one word.

/// Reasons, any number of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates(u32);

impl Gates {
    /// None.
    pub const OPEN: Gates = Gates(0);
    /// The host loads its data.
    pub const LOADING: Gates = Gates(1);
    /// A replica without its master, that is not to serve stale data.
    pub const STALE: Gates = Gates(1 << 1);
    /// Clients are paused, whatever they send.
    pub const PAUSED: Gates = Gates(1 << 2);
    /// Clients are paused if they write.
    pub const WRITES_PAUSED: Gates = Gates(1 << 3);
    /// A replica that clients may not write to.
    pub const READ_ONLY: Gates = Gates(1 << 4);
    /// The host could not save its data, and is set to refuse writes then.
    pub const DISK_ERROR: Gates = Gates(1 << 5);
    /// Fewer replicas are there than the host is set to have for writes.
    pub const FEW_REPLICAS: Gates = Gates(1 << 6);
    /// Memory is above the host's limit: what needs more is refused.
    pub const OUT_OF_MEMORY: Gates = Gates(1 << 7);
    /// Memory has a limit: what needs more must have credit.
    pub const METERED: Gates = Gates(1 << 8);
    /// The host has AOF on.
    pub const AOF_ON: Gates = Gates(1 << 9);
    /// The host has replicas.
    pub const HAS_REPLICAS: Gates = Gates(1 << 10);
    /// The host is a replica. It concerns no command by itself, but HELLO tells.
    pub const REPLICA: Gates = Gates(1 << 11);
    /// The main thread has not told enough of the changes so far. Unlike the others, workers find
    /// that out.
    pub const NOTIFICATIONS: Gates = Gates(1 << 12);

    /// These and those.
    pub const fn and(self, others: Gates) -> Gates {
        Gates(self.0 | others.0)
    }

    /// Those too, if so.
    pub const fn and_if(self, so: bool, others: Gates) -> Gates {
        if so { self.and(others) } else { self }
    }

    /// Whether any of those is among these.
    #[inline]
    pub const fn has(self, any: Gates) -> bool {
        self.0 & any.0 != 0
    }

    /// Those without these.
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
