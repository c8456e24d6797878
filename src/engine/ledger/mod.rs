//! The ledger: what must happen when the edit of a key ends, and when a token is released.
//!
//! ```text
//! an edit ends ─► log (its run) ─► counters, credit, slots, due time ─► WATCH, notifications
//! a token is released ─► the run is published: it has its place in the log
//! ```
//!
//! Commands, jobs, expiry, copies from the host and replaying change a key through
//! [`Ledger::edit_key`] or end their edits by [`Ledger::end_edit`] (`edit`, `held_keys`); whole
//! databases change through [`Ledger::edit_all`] (`databases`); runs that the host will never
//! have in its log are taken back (`log/take_back`). [`Admission`] says what may run at all.

mod admission;
mod books;
mod counted;
mod databases;
mod edit;
mod eviction;
mod gates;
mod held_keys;
mod log;
mod marks;
mod mode;
mod notifications;
mod slots;
mod staging;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};

pub use admission::{Admission, Gate, Intent};
pub use books::Books;
pub(in crate::engine) use books::Unfinished;
pub use counted::{Counted, CountedCommand};
pub use databases::ChangedBy;
pub(in crate::engine) use edit::Account;
pub use eviction::{Eviction, Limit, Policy};
pub(in crate::engine) use eviction::{Scope, Search};
pub use gates::Gates;
pub(in crate::engine) use held_keys::{KeysInHand, NamedKey, shards_of};
pub(super) use log::ThreadLog;
pub use log::{Log, LogCounts, Logged};
use marks::Watch;
pub use mode::Mode;
pub use notifications::{Notification, Notifications};
pub use slots::SlotCounts;
pub use staging::{StagedKey, StagedShard, Staging};
pub(in crate::engine) use watch::is_live;

use super::call::Call;
use super::context::Context;
use super::shards::{HeldShard, InHand, Shards, SharedShard};
use super::slot::ThreadSlot;
use crate::command::Error;
use crate::command::slot::slot_of;
use crate::sync::Locked;

/// The one end of every edit, and of every hold.
pub struct Ledger {
    /// The shards.
    pub shards: Shards,
    /// Gates, mode and memory credit.
    pub admission: Admission,
    /// The limit of memory, and what is evicted at it.
    pub eviction: Eviction,
    /// The log of writes.
    pub log: Log,
    /// Counters and queued commands.
    pub books: Books,
    /// The keys of each slot of a cluster.
    pub slots: SlotCounts,
    /// Notifications on their way to the host.
    pub notifications: Notifications,
    watch: Watch,
    /// Grows with every flush and exchange of databases.
    age: AtomicU64,
}

impl Ledger {
    /// A ledger of empty shards.
    pub(super) fn new(shards: Shards) -> Self {
        let config = &shards.context.config;
        Ledger {
            books: Books::new(config),
            slots: SlotCounts::of(config),
            admission: Admission::default(),
            eviction: Eviction::new(config.databases),
            log: Log::default(),
            notifications: Notifications::default(),
            watch: Watch::default(),
            age: AtomicU64::new(0),
            shards,
        }
    }

    #[inline]
    pub(super) fn context(&self) -> &Context {
        &self.shards.context
    }

    #[inline]
    pub(super) fn mode(&self) -> Mode {
        self.admission.mode()
    }

    /// Whether a change of a key's value ends with its count: nothing is logged or hidden,
    /// and nobody listens. Clients that watch keys are noted in their shards.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.admission.is_plain() && !self.notifications.is_listening()
    }

    /// Whether this may be done now. [`Intent`] says what is to be asked; nothing else decides it.
    #[inline(always)]
    pub fn gate(&self, intent: Intent<'_>) -> Gate {
        match intent {
            Intent::OfPort(flags) if self.admission.is_free(flags) => Gate::Go,
            Intent::OfPort(flags) => {
                self.of_memory(flags.deny_oom, |at| at.judge(self.context(), flags))
            }
            Intent::OfHost(flags) => self.of_memory(flags.deny_oom, |at| at.host_gate(flags)),
            Intent::OfPortAlone(flags, ping) => self.admission.own_gate(flags, ping),
            Intent::Write(needs_memory) => {
                self.of_memory(needs_memory, |at| at.write_gate(needs_memory))
            }
            Intent::Late(call) => self.late_gate(call),
            Intent::Slice(needs_memory) => self.slice_gate(needs_memory),
            Intent::Expiry if self.may_expire() => Gate::Go,
            Intent::Expiry => Gate::Wait,
        }
    }

    fn late_gate(&self, call: &Call<'_>) -> Gate {
        let gates = self.admission.gates();
        if gates.has(Gates::LOADING) {
            return Gate::Refuse(Error::Loading);
        }
        if gates.has(Gates::UNSYNCED) && !call.row().flags.stale {
            return Gate::Refuse(Error::MasterDown);
        }
        if !call.row().flags.write {
            return Gate::Go;
        }
        let refusal = |at| self.slots.refusal(slot_of(call.args.get(at)));
        let mut keys = call.row().key_positions(&call.args);
        if self.slots.are_on()
            && let Some(error) = keys.find_map(refusal)
        {
            return Gate::Refuse(error);
        }
        self.admission.write_gate(false)
    }

    fn slice_gate(&self, needs_memory: bool) -> Gate {
        self.refresh_memory(needs_memory);
        let waits = needs_memory
            && (!self.has_credit() || self.admission.gates().has(Gates::EVICTING))
            || self.is_log_full()
            || self.admission.has_notification_backlog();
        if waits { Gate::Wait } else { self.in_own_words(self.admission.write_gate(needs_memory)) }
    }

    /// A gate that may be closed for want of memory.
    #[inline]
    fn of_memory(&self, needs_memory: bool, judge: impl FnOnce(&Admission) -> Gate) -> Gate {
        self.refresh_memory(needs_memory);
        self.in_own_words(judge(&self.admission))
    }

    /// The bytes may be fewer by now than when writes were held back.
    #[inline]
    fn refresh_memory(&self, needs_memory: bool) {
        if needs_memory && self.admission.gates().has(Gates::FULL.and(Gates::EVICTING)) {
            self.add_up_memory();
        }
    }

    fn in_own_words(&self, gate: Gate) -> Gate {
        if gate == Gate::Refuse(Error::OverOwnLimit) {
            return Gate::Refuse(self.eviction.error());
        }
        gate
    }

    /// Sets the limit of memory.
    pub fn set_limit(&self, _: Locked<'_>, limit: Limit) {
        self.eviction.set_limit(limit);
        self.add_up_memory();
        self.context().wake_ports();
    }

    /// Sets the limits of single databases: number, policy, bytes. The others have none.
    pub fn set_database_limits(&self, _: Locked<'_>, limits: &[(u32, Policy, i64)]) {
        self.eviction.set_database_limits(limits);
        self.add_up_memory();
        self.context().wake_ports();
    }

    /// Why a command that may need memory is refused in the database that it would fill.
    #[inline]
    pub(in crate::engine) fn refusal_in_database(&self, call: &Call<'_>) -> Option<Error> {
        if call.row().flags.deny_oom { self.refusal_in(call.filled_db()) } else { None }
    }

    /// Why writes that may need memory are refused in this database.
    #[inline]
    pub fn refusal_in(&self, db: u32) -> Option<Error> {
        if self.eviction.is_on() { self.refusal_now(db) } else { None }
    }

    #[cold]
    fn refusal_now(&self, db: u32) -> Option<Error> {
        let has_victims = |policy: Policy| {
            let census = self.books.census(db);
            if policy.is_volatile() { census.expiring > 0 } else { census.keys > 0 }
        };
        // A load, or a master, brings what it brings.
        if self.mode() == Mode::Closed {
            return None;
        }
        self.eviction.refusal_in(db, has_victims)?;
        // There may be room by now.
        self.add_up_memory();
        self.eviction.refusal_in(db, has_victims)
    }

    /// Adds up the memory if this thread has changed much since the last time.
    pub(in crate::engine) fn look_at_memory(&self, slot: &ThreadSlot) {
        if self.eviction.is_sum_old(slot.changed_bytes.get()) {
            slot.changed_bytes.set(0);
            self.add_up_memory();
        }
    }

    /// A value that is being made takes so many bytes by now.
    pub(in crate::engine) fn note_unfinished(
        &self,
        slot: &ThreadSlot,
        value: &mut Unfinished,
        bytes: usize,
    ) {
        let growth = value.set(bytes);
        self.admission.spend_credit(growth);
        slot.changed_bytes.add(growth.unsigned_abs());
        self.look_at_memory(slot);
    }

    /// Adds up the memory of all tables, and opens or closes the gates that follow from it.
    pub fn add_up_memory(&self) {
        let (eviction, mut gates) = (&self.eviction, Gates::OPEN);
        if eviction.is_on() {
            for db in eviction.limited_databases() {
                eviction.note_sum(Scope::Database(db), self.books.bytes_of(db));
            }
            let is_above = eviction.note_sum(Scope::All, self.books.totals().bytes);
            let policy = eviction.policy_of(Scope::All);
            let left = if policy.is_volatile() { self.books.expiring() } else { self.books.keys() };
            let evicts = policy.evicts() && left > 0 && !eviction.is_stuck();
            let is_full = if policy.evicts() { eviction.has_no_room() } else { is_above };
            gates = gates
                .and_if(evicts && eviction.is_far_above(), Gates::EVICTING)
                .and_if(!evicts && is_full, Gates::FULL);
        }
        self.admission.set_memory_gates(self.context(), gates);
    }

    /// Only the host's log may decide that a key has expired where the keyspace is closed.
    fn may_expire(&self) -> bool {
        !self.admission.is_closed_to_workers()
            && !self.admission.expiry_rests()
            && !self.admission.gates().has(Gates::WRITES_PAUSED)
            && !self.is_log_full()
            && !self.admission.has_notification_backlog()
    }

    /// Sets the host's gates, and the mode that follows from them. The gates that workers set
    /// themselves are kept. The caller holds no token, but for those that an open unit has laid
    /// aside.
    pub fn set_gates(&self, locked: Locked<'_>, gates: Gates) {
        let are_waited_for = self.admission.set_gates(gates);
        let next_mode = || self.admission.next_mode(|| self.log.is_settled());
        if next_mode().is_some() {
            let all = self.shards.hold_all(locked);
            // A worker may have published a run before all its tokens were taken.
            if let Some(word) = next_mode() {
                self.admission.set_mode(word);
                self.eviction.set_resting(gates.has(Gates::IMPORTING));
            }
            all.release();
            // What that opens or closes.
            self.add_up_memory();
        }
        if are_waited_for {
            self.context().wake_ports();
        }
    }

    /// Grants bytes that writes may take before the host is asked again; `i64::MAX` for no limit.
    pub fn set_credit(&self, _: Locked<'_>, credit: i64) {
        if self.admission.grant_credit(credit) {
            self.context().wake_ports();
        }
    }

    /// Whether a write has credit left; if not, asks the main thread for more.
    pub fn has_credit(&self) -> bool {
        self.admission.has_credit(self.context())
    }

    /// Opens the gate for notifications again, if enough have been sent.
    pub fn make_room_for_notifications(&self, _: Locked<'_>) {
        if self.admission.has_notification_backlog() && self.notifications.have_room() {
            self.admission.open_gate(self.context(), Gates::NOTIFICATIONS);
        }
    }

    /// Grows with every flush and exchange of databases: what was read before is then out of date.
    pub fn age(&self) -> u64 {
        self.age.load(Ordering::Relaxed)
    }

    /// Releases a token, once the run that has changed the shard is in the log.
    #[inline]
    pub fn release(&self, slot: &ThreadSlot, shard: u32, mut held: HeldShard<'_>) {
        self.before_release(slot, &mut held);
        self.shards.let_go(shard, held);
    }

    /// Ends the hold of a shard: its run is published.
    #[inline]
    pub(super) fn before_release(&self, slot: &ThreadSlot, held: &mut HeldShard<'_>) {
        if self.mode() != Mode::Fast {
            self.end_run(slot, &mut held.log);
        }
    }

    /// Ends the reading of a shard that was shared.
    #[inline]
    pub(super) fn end_read(&self, slot: &ThreadSlot, shared: SharedShard<'_>) {
        if self.mode() != Mode::Fast {
            self.see_read(slot, &shared.log);
        }
    }

    /// [`Ledger::release`] for a shard that was only read.
    #[inline]
    pub(super) fn release_read(&self, slot: &ThreadSlot, shard: u32, mut held: HeldShard<'_>) {
        self.before_release(slot, &mut held);
        self.shards.let_go_read(shard, held);
    }

    /// Ends the reading of several shards.
    #[inline]
    pub(super) fn release_all_read<'h>(
        &self,
        slot: &ThreadSlot,
        held: impl IntoIterator<Item = (u32, InHand<'h>)>,
    ) {
        for (shard, in_hand) in held {
            match in_hand {
                InHand::Alone(held) => self.release_read(slot, shard, held),
                InHand::Shared(shared) => self.end_read(slot, shared),
                InHand::Ended => {}
            }
        }
    }

    /// Releases the tokens of several shards, in their order. The run is published before the first
    /// of them, changed or not: a record that is a command (COPY, BITOP) reads its sources when it
    /// is replayed, so no later change of a source may come before it in the log.
    #[inline]
    pub(super) fn release_many<'h>(
        &self,
        slot: &ThreadSlot,
        held: impl IntoIterator<Item = (u32, HeldShard<'h>)>,
    ) {
        self.publish_run(slot);
        for (shard, token) in held {
            self.release(slot, shard, token);
        }
    }
}
