//! For `slots`: slots that move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Instant;

use parking_lot::Mutex;

use super::{Flag, part};

part! {
    /// Slots that move, and their owners.
    pub struct SlotMoves {
        /// For `slots::lost`: their owners.
        pub known: LazyLock<Mutex<SlotOwners>> = LazyLock::new(Mutex::default),
        /// Whether a command has come that may change what this node owns.
        pub may_change: Flag = Flag::new(false),
        /// For `slots::migrating`: this node may give slots away, key by key.
        pub may_migrate: Flag = Flag::new(true),
        /// Whether what became of a SETSLOT is not known yet.
        pub is_unsettled: Flag = Flag::new(false),
        /// One of this turn may give a slot away: workers do not write in the rest of the turn.
        pub gives: Flag = Flag::new(false),
        /// The host is asked whether it serves a slot.
        pub asks: Flag = Flag::new(false),
        /// For `slots::migration`: slots come to this node, with commands that must not be refused.
        pub coming: Flag = Flag::new(false),
        /// Slots leave this node now: the log must name the keys of its records, or they do not go
        /// along.
        pub leaving: Flag = Flag::new(false),
        /// All keys have been removed while slots came or left.
        pub flushed: Flag = Flag::new(false),
    }
}

/// The owners of the slots.
#[derive(Default)]
pub struct SlotOwners {
    /// The owner of each at the last look; `None` before the first one, and on a replica.
    pub owners: Option<Vec<Owner>>,
    /// Those that another master has taken from this node since it was started.
    pub lost: BTreeSet<u16>,
    /// Those of which a migration that failed may have left keys here. Kept on a replica, too: it
    /// may become a master.
    pub left_over: BTreeSet<u16>,
    /// Those that this node gives away, key by key.
    pub migrating: BTreeSet<u16>,
    /// Those that it may yet begin to give away, by a command that was seen already, and until
    /// when.
    pub may_migrate: BTreeMap<u16, Instant>,
    /// Those of the SETSLOTs of this turn.
    pub in_doubt: BTreeSet<u16>,
    /// The clients whose SETSLOT may not be over.
    pub setters: Vec<Setter>,
    /// When the next look is due, and when it may be at the earliest.
    pub next: Option<(Instant, Instant)>,
}

/// A client of the host that has sent a SETSLOT, and nothing since.
pub struct Setter {
    /// The slot.
    pub slot: u16,
    /// The client's id.
    pub client: u64,
    /// Whether this node may give the slot away by it.
    pub gives: bool,
    /// Whether the client waited for its end when the last turn ended.
    pub waited: bool,
}

/// The owner of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Nobody,
    /// This node.
    Me,
    /// Another master.
    Another,
}
