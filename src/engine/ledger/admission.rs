//! Gates of commands: a thread that runs one reads the word of [`Gates`] first.
//!
//! A worker may have read the word just before the holder of the global lock changes it, and run
//! its command just after: as if the command had come before the change.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, Ordering};

use super::gates::Gates;
use super::mode::Mode;
use crate::command::{COMMANDS, Error, Flags};
use crate::engine::call::Call;
use crate::engine::context::{Context, ForMain};
use crate::engine::slot::ThreadSlot;

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
    .and(Gates::LOG_FULL);

/// Reasons that also concern commands that may need memory.
const FOR_MEMORY: Gates =
    Gates::OUT_OF_MEMORY.and(Gates::METERED).and(Gates::FULL).and(Gates::EVICTING);

/// Those that follow from the memory of midi's keys.
const OF_MEMORY: Gates = Gates::FULL.and(Gates::EVICTING);

/// The answer to [`Intent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Run it.
    Go,
    /// Answer this error.
    Refuse(Error),
    /// Keep a command, and those after it, until the worker is woken; then ask again.
    Wait,
}

/// What is about to be done, and for whom.
#[derive(Clone, Copy)]
pub enum Intent<'a> {
    /// A command of the table, for a client of a port whose right to it is known.
    OfPort(Flags),
    /// A command of a port that reads no data; true for PING, which Redis answers only if the
    /// server is well.
    OfPortAlone(Flags, bool),
    /// A command for a client of the host's door. The host has checked its own reasons, and those
    /// of memory one by one.
    OfHost(Flags),
    /// A command that has waited, or that a job goes on with: the gates may have closed since the
    /// door asked.
    Late(&'a Call<'a>),
    /// A write that the holder of the global lock makes, or that would be kept; true if it may need
    /// memory.
    Write(bool),
    /// A slice of a job that writes on a worker; true if it may need memory.
    Slice(bool),
    /// Removing keys that are due, on a worker.
    Expiry,
}

impl Intent<'_> {
    /// A command about scripts, for a client of a port.
    pub fn of_script(flags: Flags) -> Self {
        if flags.host_write { Intent::OfPort(flags) } else { Intent::OfPortAlone(flags, false) }
    }
}

/// Granted even if nothing is left, as long as the host does not refuse memory: the host's own
/// figures are coarser than midi's.
const MIN_CREDIT: i64 = 1 << 20;

/// The gates, the mode that follows from them, and the memory that writes may take.
pub struct Admission {
    gates: AtomicU32,
    /// A [`Mode`]; changed only while all tokens are held.
    pub(super) mode: AtomicU8,
    /// Bytes that writes may still take before the host is asked again.
    credit: AtomicI64,
    credit_wanted: AtomicBool,
    /// The system's number of the error that keeps the host from writing to its AOF; 0 if unknown.
    pub aof_errno: AtomicI32,
}

impl Default for Admission {
    fn default() -> Self {
        Admission {
            // Until the host reports otherwise: it loads its data before anything else.
            gates: AtomicU32::new(Gates::LOADING.bits()),
            mode: AtomicU8::new(Mode::Closed as u8),
            credit: AtomicI64::new(i64::MAX),
            credit_wanted: AtomicBool::new(false),
            aof_errno: AtomicI32::new(0),
        }
    }
}

impl Admission {
    /// The current reasons.
    #[inline]
    pub fn gates(&self) -> Gates {
        Gates::of_bits(self.gates.load(Ordering::Relaxed))
    }

    /// Sets the host's gates; those that workers set themselves are kept. True if somebody may wait
    /// for the change.
    pub(super) fn set_gates(&self, gates: Gates) -> bool {
        const KEPT: Gates = Gates::NOTIFICATIONS.and(Gates::LOG_FULL).and(OF_MEMORY);
        let kept = |before: u32| before & KEPT.bits();
        let (set, look) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.gates.fetch_update(set, look, |before| Some(gates.bits() | kept(before)));
        // Nobody waits at a gate for that one: see `Admission::waits_for_pause`.
        let waited_for = |gates: Gates| gates.without(KEPT.and(Gates::WORKERS_PAUSED));
        before.is_ok_and(|before| waited_for(Gates::of_bits(before)) != waited_for(gates))
    }

    /// Closes a gate for this reason. True if it was open.
    pub(super) fn close_gate(&self, reason: Gates) -> bool {
        let before = self.gates.fetch_or(reason.bits(), Ordering::Relaxed);
        !Gates::of_bits(before).has(reason)
    }

    /// Sets the gates that follow from the memory of midi's keys.
    pub(super) fn set_memory_gates(&self, context: &Context, gates: Gates) {
        let before = self.gates();
        if Gates::of_bits(before.bits() & OF_MEMORY.bits()) == gates {
            return;
        }
        let (set, look) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.gates.fetch_update(set, look, |before| {
            Some(Gates::of_bits(before).without(OF_MEMORY).and(gates).bits())
        });
        // Those that waited ask again; workers that sleep begin to evict.
        context.wake_ports();
    }

    /// Closes the gate of a forked child: its main thread, the only one that there is, has the
    /// tokens already.
    pub fn close_in_child(&self) {
        self.close_gate(Gates::FORKED);
    }

    /// Opens the gate again, as far as this reason goes.
    pub(super) fn open_gate(&self, context: &Context, reason: Gates) {
        self.gates.fetch_and(!reason.bits(), Ordering::Relaxed);
        context.wake_ports();
    }

    /// Deducts the bytes that a write took.
    #[inline]
    pub(super) fn spend_credit(&self, bytes: i64) {
        if self.credit.load(Ordering::Relaxed) != i64::MAX {
            self.credit.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether writes may take memory before the host is asked again.
    pub(in crate::engine) fn credit_left(&self) -> bool {
        self.credit.load(Ordering::Relaxed) > 0
    }

    /// Whether a write waits for more credit.
    pub fn wants_credit(&self) -> bool {
        self.credit_wanted.load(Ordering::Relaxed)
    }

    /// Grants bytes that writes may take before the host is asked again; `i64::MAX` for no limit.
    /// True if a write has waited for them.
    pub(super) fn grant_credit(&self, credit: i64) -> bool {
        self.credit.store(credit.max(MIN_CREDIT), Ordering::Relaxed);
        self.credit_wanted.swap(false, Ordering::Relaxed)
    }

    /// Whether a write has credit left; if not, asks the main thread for more.
    pub(super) fn has_credit(&self, context: &Context) -> bool {
        if self.credit_left() {
            return true;
        }
        if !self.credit_wanted.swap(true, Ordering::Relaxed) {
            context.outside.wake_main();
        }
        false
    }

    /// Whether too many notifications wait to make more.
    #[inline]
    pub fn has_notification_backlog(&self) -> bool {
        self.gates().has(Gates::NOTIFICATIONS)
    }

    /// Whether a message must wait until clients are not paused any more. A server that is a
    /// replica by then refuses it.
    pub fn waits_for_pause(&self, message: &ForMain) -> bool {
        self.are_workers_paused()
            && match message {
                ForMain::Run(request) => COMMANDS[request.call.command].flags.write,
                ForMain::Write(_) => true,
                _ => false,
            }
    }

    /// Whether writes that only the main thread can run wait for the end of a pause.
    pub fn are_workers_paused(&self) -> bool {
        let gates = self.gates();
        gates.has(Gates::WORKERS_PAUSED) && !gates.has(Gates::READ_ONLY)
    }

    /// Whether a port's command with these flags need not be judged.
    #[inline]
    pub(super) fn is_free(&self, flags: Flags) -> bool {
        let concerned = FOR_ALL
            .and_if(flags.write, FOR_WRITES)
            .and_if(flags.host_write, FOR_HOST_WRITES)
            .and_if(flags.script, Gates::WRITES_PAUSED)
            .and_if(flags.deny_oom, FOR_MEMORY);
        !self.gates().has(concerned)
    }

    /// What a port must do with a command of the table, in the order of Redis's processCommand.
    #[cold]
    pub(super) fn judge(&self, context: &Context, flags: Flags) -> Gate {
        let gates = self.gates();
        if let Some(error) = self.refusal(gates, flags) {
            return Gate::Refuse(error);
        }
        let writes = flags.write || flags.host_write || flags.script;
        if gates.has(Gates::PAUSED) || writes && gates.has(Gates::WRITES_PAUSED) {
            return Gate::Wait;
        }
        if flags.write && gates.has(Gates::NOTIFICATIONS.and(Gates::SAVING).and(Gates::LOG_FULL)) {
            return Gate::Wait;
        }
        if flags.write
            && let refused @ Gate::Refuse(_) = self.write_gate(false)
        {
            return refused;
        }
        if flags.deny_oom && gates.has(Gates::EVICTING) {
            return Gate::Wait;
        }
        // The main thread checks memory again, grants more, and wakes this worker.
        if flags.deny_oom && !self.has_credit(context) { Gate::Wait } else { Gate::Go }
    }

    pub(super) fn own_gate(&self, flags: Flags, ping: bool) -> Gate {
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
            None if flags.script && gates.has(Gates::WRITES_PAUSED) => Gate::Wait,
            None => Gate::Go,
        }
    }

    #[inline]
    pub(super) fn host_gate(&self, flags: Flags) -> Gate {
        let gates = self.gates();
        if gates.has(Gates::UNSYNCED.and(Gates::FORKED)) && !flags.stale {
            let is_child = gates.has(Gates::FORKED);
            return Gate::Refuse(if is_child { Error::InChild } else { Error::MasterDown });
        }
        // A load, or a master, brings what it brings.
        let is_full = gates.has(Gates::FULL) && !gates.has(Gates::READ_ONLY.and(Gates::LOADING));
        if flags.deny_oom && is_full {
            return Gate::Refuse(Error::OverOwnLimit);
        }
        if flags.write { self.write_gate(false) } else { Gate::Go }
    }

    #[inline]
    pub(super) fn write_gate(&self, needs_memory: bool) -> Gate {
        let gates = self.gates();
        if gates.has(Gates::READ_ONLY) {
            Gate::Refuse(Error::ReadOnly)
        } else if needs_memory && gates.has(Gates::OUT_OF_MEMORY) {
            Gate::Refuse(Error::OutOfMemory)
        } else if needs_memory && gates.has(Gates::FULL) {
            Gate::Refuse(Error::OverOwnLimit)
        } else {
            Gate::Go
        }
    }

    /// Whether a command's memory is deducted from the credit. The host has checked the memory of
    /// commands from its own door one by one.
    #[inline]
    pub(in crate::engine) fn is_metered(&self, slot: &ThreadSlot, call: &Call<'_>) -> bool {
        self.gates().has(Gates::METERED) && call.row().flags.deny_oom && !slot.is_main()
    }

    /// The host's errors that come before it checks whether clients are paused.
    fn refusal(&self, gates: Gates, flags: Flags) -> Option<Error> {
        let error = refusal(gates, flags)?;
        Some(if let Error::AofError(_) = error { self.aof_error() } else { error })
    }

    /// Why the host cannot write to its AOF.
    fn aof_error(&self) -> Error {
        Error::AofError(self.aof_errno.load(Ordering::Relaxed))
    }
}

/// The host's errors that come before it checks whether clients are paused.
fn refusal(gates: Gates, flags: Flags) -> Option<Error> {
    if flags.deny_oom && gates.has(Gates::OUT_OF_MEMORY) {
        return Some(Error::OutOfMemory);
    }
    if flags.deny_oom && gates.has(Gates::FULL) {
        return Some(Error::OverOwnLimit);
    }
    let writes = [
        (Gates::DISK_ERROR, Error::DiskError),
        (Gates::AOF_ERROR, Error::AofError(0)),
        (Gates::FEW_REPLICAS, Error::FewReplicas),
        (Gates::HOST_READ_ONLY, Error::ReadOnly),
    ];
    let stale = (Gates::STALE.and(Gates::UNSYNCED), Error::MasterDown);
    let writes = writes.into_iter().filter(|_| flags.write || flags.host_write);
    let mut all = writes
        .chain((!flags.stale).then_some(stale))
        .chain((!flags.loading).then_some((Gates::LOADING, Error::Loading)));
    all.find(|&(reason, _)| gates.has(reason)).map(|(_, error)| error)
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
            (Gates::FULL, Error::OverOwnLimit),
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
