//! Gates of commands: a thread that runs one reads the word of [`Gates`] first.
//!
//! A worker may have read the word just before the holder of the global lock changes it, and run
//! its command just after: as if the command had come before the change.

use std::sync::atomic::Ordering;

use super::call::Call;
use super::gates::Gates;
use super::slot::ThreadSlot;
use super::state::Engine;
use crate::command::slot::slot_of;
use crate::command::{Error, Flags};

/// Reasons that concern all commands.
const FOR_ALL: Gates = Gates::LOADING.and(Gates::STALE).and(Gates::UNSYNCED).and(Gates::PAUSED);

/// Reasons that also concern writes to the host's own keys.
const FOR_HOST_WRITES: Gates = Gates::WRITES_PAUSED
    .and(Gates::HOST_READ_ONLY)
    .and(Gates::DISK_ERROR)
    .and(Gates::AOF_ERROR)
    .and(Gates::FEW_REPLICAS);

/// Reasons that also concern writes to midi's keys.
const FOR_WRITES: Gates = FOR_HOST_WRITES
    .and(Gates::READ_ONLY)
    .and(Gates::SAVING)
    .and(Gates::NOTIFICATIONS)
    .and(Gates::JOURNAL);

/// Reasons that also concern commands that may need memory.
const FOR_MEMORY: Gates = Gates::OUT_OF_MEMORY.and(Gates::METERED);

/// What a port must do with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Run it.
    Go,
    /// Answer this error.
    Refuse(Error),
    /// Keep it, and the commands after it, until the worker is woken; then ask again.
    Wait,
}

impl Engine {
    /// The current reasons.
    #[inline]
    pub fn gates(&self) -> Gates {
        Gates::of_bits(self.gates.load(Ordering::Relaxed))
    }

    /// What a port must do with a command of the table, once its user is known to have the right.
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
        if let Some(error) = self.refusal(gates, flags) {
            return Gate::Refuse(error);
        }
        let writes = flags.write || flags.host_write;
        if gates.has(Gates::PAUSED) || writes && gates.has(Gates::WRITES_PAUSED) {
            return Gate::Wait;
        }
        if flags.write && gates.has(Gates::NOTIFICATIONS.and(Gates::SAVING).and(Gates::JOURNAL)) {
            return Gate::Wait;
        }
        if let Some(error) = self.write_refusal(false).filter(|_| flags.write) {
            return Gate::Refuse(error);
        }
        // The main thread checks memory again, grants more, and wakes this worker.
        if flags.deny_oom && !self.has_credit() { Gate::Wait } else { Gate::Go }
    }

    /// What a port must do with one of its own commands that reads no data, with these flags.
    /// `ping`: it is PING, which Redis answers only if the server is well.
    pub fn own_gate(&self, flags: Flags, ping: bool) -> Gate {
        let gates = self.gates();
        let error = if ping && gates.has(Gates::DISK_ERROR) {
            Some(Error::DiskError)
        } else if ping && gates.has(Gates::AOF_ERROR) {
            Some(self.aof_error())
        } else if !flags.stale && gates.has(Gates::STALE.and(Gates::UNSYNCED)) {
            Some(Error::MasterDown)
        } else {
            (!flags.loading && gates.has(Gates::LOADING)).then_some(Error::Loading)
        };
        match error {
            Some(error) => Gate::Refuse(error),
            None if gates.has(Gates::PAUSED) => Gate::Wait,
            None => Gate::Go,
        }
    }

    /// What the host's door must do with a command, as far as midi is the reason: the host has
    /// checked its own reasons.
    #[inline]
    pub(super) fn host_gate(&self, flags: Flags) -> Gate {
        let gates = self.gates();
        if gates.has(Gates::UNSYNCED.and(Gates::FORKED)) && !flags.stale {
            let is_child = gates.has(Gates::FORKED);
            return Gate::Refuse(if is_child { Error::InChild } else { Error::MasterDown });
        }
        let refusal = if flags.write { self.write_refusal(false) } else { None };
        refusal.map_or(Gate::Go, Gate::Refuse)
    }

    /// Why a write may not run now, as far as midi is the reason. `needs_memory`: the write may
    /// need more memory.
    #[inline]
    pub fn write_refusal(&self, needs_memory: bool) -> Option<Error> {
        const ALL: Gates = Gates::READ_ONLY.and(Gates::OUT_OF_MEMORY);
        let gates = self.gates();
        if !gates.has(ALL) {
            None
        } else if gates.has(Gates::READ_ONLY) {
            Some(Error::ReadOnly)
        } else {
            needs_memory.then_some(Error::OutOfMemory)
        }
    }

    /// Whether a command's memory is deducted from the credit. The host has checked the memory of
    /// commands from its own door one by one.
    #[inline]
    pub(super) fn is_metered(&self, slot: &ThreadSlot, call: &Call<'_>) -> bool {
        self.gates().has(Gates::METERED) && call.row().flags.deny_oom && !slot.is_main()
    }

    /// Why a queued command may no longer run: the gates may have closed since the door read them.
    pub fn late_refusal(&self, call: &Call<'_>) -> Option<Error> {
        if self.gates().has(Gates::LOADING) {
            return Some(Error::Loading);
        }
        if self.gates().has(Gates::UNSYNCED) && !call.row().flags.stale {
            return Some(Error::MasterDown);
        }
        if !call.row().flags.write {
            return None;
        }
        let is_lost = |at| self.slots.is_lost(slot_of(call.args.get(at)));
        if self.slots.are_on() && call.row().key_positions(&call.args).any(is_lost) {
            return Some(Error::SlotMoved);
        }
        self.write_refusal(false)
    }
}

impl Engine {
    /// The host's errors that come before it checks whether clients are paused.
    fn refusal(&self, gates: Gates, flags: Flags) -> Option<Error> {
        let error = refusal(gates, flags)?;
        Some(if let Error::AofError(_) = error { self.aof_error() } else { error })
    }

    /// Why the host cannot write to its AOF.
    fn aof_error(&self) -> Error {
        Error::AofError(self.settings.aof_errno.load(Ordering::Relaxed))
    }
}

/// The host's errors that come before it checks whether clients are paused.
fn refusal(gates: Gates, flags: Flags) -> Option<Error> {
    if flags.deny_oom && gates.has(Gates::OUT_OF_MEMORY) {
        return Some(Error::OutOfMemory);
    }
    let writes = [
        (Gates::DISK_ERROR, Error::DiskError),
        (Gates::AOF_ERROR, Error::AofError(0)),
        (Gates::FEW_REPLICAS, Error::FewReplicas),
        (Gates::HOST_READ_ONLY, Error::ReadOnly),
    ];
    let all =
        [(Gates::STALE.and(Gates::UNSYNCED), Error::MasterDown), (Gates::LOADING, Error::Loading)];
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
            (Gates::AOF_ERROR, Error::AofError(0)),
            (Gates::FEW_REPLICAS, Error::FewReplicas),
            (Gates::HOST_READ_ONLY, Error::ReadOnly),
            (Gates::STALE, Error::MasterDown),
            (Gates::UNSYNCED, Error::MasterDown),
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
        assert_eq!(refusal(Gates::HOST_READ_ONLY.and(Gates::DISK_ERROR), flags("get")), None);
    }
}
