//! What stands in front of commands: whoever runs them reads the word of [`Gates`] first.
//!
//! A worker that has just read the word may run its command a moment after the holder of
//! the lock has changed it, as if the two had happened the other way round.

use std::sync::atomic::Ordering;

use super::call::Call;
use super::gates::Gates;
use super::slot::ThreadSlot;
use super::state::Engine;
use crate::command::{Error, Flags};

/// What concerns all commands.
const FOR_ALL: Gates = Gates::LOADING.and(Gates::STALE).and(Gates::PAUSED);

/// What concerns writes to the host's own keys in addition.
const FOR_HOST_WRITES: Gates =
    Gates::WRITES_PAUSED.and(Gates::READ_ONLY).and(Gates::DISK_ERROR).and(Gates::FEW_REPLICAS);

/// What concerns writes to midi's.
const FOR_WRITES: Gates =
    FOR_HOST_WRITES.and(Gates::AOF_ON).and(Gates::HAS_REPLICAS).and(Gates::NOTIFICATIONS);

/// What concerns commands that may need memory in addition.
const FOR_MEMORY: Gates = Gates::OUT_OF_MEMORY.and(Gates::METERED);

/// What a port is to do with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Run it.
    Go,
    /// Answer this error.
    Refuse(Error),
    /// Keep it, and those behind it, until the worker is woken; then ask again.
    Wait,
}

impl Engine {
    /// The reasons as last seen.
    #[inline]
    pub fn gates(&self) -> Gates {
        Gates::of_bits(self.gates.load(Ordering::Relaxed))
    }

    /// What a port is to do with a command of the table, once its user may run it.
    #[inline]
    pub fn port_gate(&self, flags: Flags) -> Gate {
        let concerned = FOR_ALL
            .and_if(flags.write, FOR_WRITES)
            .and_if(flags.host_write, FOR_HOST_WRITES)
            .and_if(flags.deny_oom, FOR_MEMORY);
        if self.gates().has(concerned) { self.judge(flags) } else { Gate::Go }
    }

    /// In the order of Redis's processCommand.
    #[cold]
    fn judge(&self, flags: Flags) -> Gate {
        let gates = self.gates();
        if let Some(error) = refusal(gates, flags) {
            return Gate::Refuse(error);
        }
        let writes = flags.write || flags.host_write;
        if gates.has(Gates::PAUSED) || writes && gates.has(Gates::WRITES_PAUSED) {
            return Gate::Wait;
        }
        if flags.write && gates.has(Gates::NOTIFICATIONS) {
            return Gate::Wait;
        }
        if let Some(error) = self.write_refusal(false).filter(|_| flags.write) {
            return Gate::Refuse(error);
        }
        // The main thread looks at memory again, grants more, and wakes us.
        if flags.deny_oom && !self.has_credit() { Gate::Wait } else { Gate::Go }
    }

    /// What a port is to do with a command of its own that tells of no data: `ping` says whether
    /// it is PING, which Redis answers only where the server is well.
    pub fn own_gate(&self, ping: bool) -> Gate {
        let gates = self.gates();
        let error = if !ping {
            None
        } else if gates.has(Gates::DISK_ERROR) {
            Some(Error::DiskError)
        } else if gates.has(Gates::STALE) {
            Some(Error::MasterDown)
        } else {
            gates.has(Gates::LOADING).then_some(Error::Loading)
        };
        match error {
            Some(error) => Gate::Refuse(error),
            None if gates.has(Gates::PAUSED) => Gate::Wait,
            None => Gate::Go,
        }
    }

    /// Why a write may not be done now, if so, as far as midi itself is the reason: the host has
    /// judged its own on its door. `needs_memory` says whether it may need more.
    #[inline]
    pub fn write_refusal(&self, needs_memory: bool) -> Option<Error> {
        const ALL: Gates = Gates::AOF_ON.and(Gates::HAS_REPLICAS).and(Gates::OUT_OF_MEMORY);
        let gates = self.gates();
        if !gates.has(ALL) {
            None
        } else if gates.has(Gates::AOF_ON) {
            Some(Error::AofOn)
        } else if gates.has(Gates::HAS_REPLICAS) {
            Some(Error::HasReplicas)
        } else {
            needs_memory.then_some(Error::OutOfMemory)
        }
    }

    /// Whether what a command takes is to be booked: the host has judged the memory of those that
    /// come through its own door, one by one.
    #[inline]
    pub(super) fn is_metered(&self, slot: &ThreadSlot, call: &Call<'_>) -> bool {
        self.gates().has(Gates::METERED) && call.row().flags.deny_oom && !slot.is_main()
    }

    /// Why a queued command may not run any more: the gates may have closed since the door
    /// looked at them.
    pub fn late_refusal(&self, call: &Call<'_>) -> Option<Error> {
        if self.gates().has(Gates::LOADING) {
            return Some(Error::Loading);
        }
        if call.row().flags.write { self.write_refusal(false) } else { None }
    }
}

/// What the host answers before it looks whether clients are paused.
fn refusal(gates: Gates, flags: Flags) -> Option<Error> {
    if flags.deny_oom && gates.has(Gates::OUT_OF_MEMORY) {
        return Some(Error::OutOfMemory);
    }
    let writes = [
        (Gates::DISK_ERROR, Error::DiskError),
        (Gates::FEW_REPLICAS, Error::FewReplicas),
        (Gates::READ_ONLY, Error::ReadOnly),
    ];
    let all = [(Gates::STALE, Error::MasterDown), (Gates::LOADING, Error::Loading)];
    let writes = writes.into_iter().filter(|_| flags.write || flags.host_write);
    writes.chain(all).find(|&(reason, _)| gates.has(reason)).map(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{COMMANDS, find};

    fn flags(name: &str) -> Flags {
        COMMANDS[find(name.as_bytes()).expect("a command")].flags
    }

    #[test]
    fn the_first_reason_in_redis_order_is_given() {
        let all = Gates::of_bits(u32::MAX);
        let order = [
            (Gates::OUT_OF_MEMORY, Error::OutOfMemory),
            (Gates::DISK_ERROR, Error::DiskError),
            (Gates::FEW_REPLICAS, Error::FewReplicas),
            (Gates::READ_ONLY, Error::ReadOnly),
            (Gates::STALE, Error::MasterDown),
            (Gates::LOADING, Error::Loading),
        ];
        let mut gates = all;
        for (reason, error) in order {
            assert_eq!(refusal(gates, flags("set")), Some(error));
            assert_eq!(refusal(reason, flags("set")), Some(error));
            gates = gates.without(reason);
        }
        assert_eq!(refusal(gates, flags("set")), None);
        assert_eq!(refusal(all, flags("del")), Some(Error::DiskError), "it needs no memory");
        assert_eq!(refusal(all, flags("get")), Some(Error::MasterDown), "it writes nothing");
        assert_eq!(refusal(Gates::READ_ONLY.and(Gates::DISK_ERROR), flags("get")), None);
    }
}
