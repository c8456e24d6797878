//! Where runs are made and published, and how they get into the host's log.

use std::sync::atomic::{Ordering, fence};

use super::super::Ledger;
use super::super::edit::RecordOf;
use super::super::gates::Gates;
use super::super::mode::Mode;
use super::{ChangeOfAll, Logged, OpenRun};
use crate::command::Error;
use crate::command::record::Record;
use crate::engine::call::Call;
use crate::engine::context::{ForMain, Message};
use crate::engine::shards::KeyAt;
use crate::engine::slot::ThreadSlot;
use crate::limits::{GATHERED_BYTES, JOURNAL_TEXT_BYTES};
use crate::store::{ChangeKind, Done, Entry, Keeping, ShardLog, Store, Table, Type};
use crate::sync::Locked;

impl Ledger {
    /// Whether an edit keeps the key as it was. To be asked by a thread that holds a token.
    #[inline]
    pub(in crate::engine) fn keeping(&self) -> Keeping {
        if self.mode().is_logged() { Keeping::Before } else { Keeping::Nothing }
    }

    /// Notes the end of an edit in the run that is under way.
    #[inline(never)]
    pub(in crate::engine::ledger) fn note_edit(
        &self,
        slot: &ThreadSlot,
        store: &mut Store,
        at: KeyAt,
        key: &[u8],
        done: &mut Done,
        record: RecordOf<'_>,
    ) {
        let before = done.take_before();
        if matches!(done.kind(), ChangeKind::Nothing) && !done.expired {
            return;
        }
        store.log.is_changed = true;
        let mut run = slot.log.run.lock();
        run.note(at.db, key, before);
        if let RecordOf::Command = record {
            if done.expired {
                run.add(at.db, Record::Del { key });
            }
        } else {
            // A replay finds the key that has expired.
            let is_part = matches!(done.kind(), ChangeKind::Parts { .. } | ChangeKind::Fields(_));
            if done.expired && is_part {
                run.add(at.db, Record::Del { key });
            }
            let entry = store
                .table(at.db)
                .and_then(|table| table.find(at.hash, key).map(|found| table.entry(found)));
            let packed = if let RecordOf::Packed(value) = record { Some(value) } else { None };
            // Of a hash there may be several records. All that a unit does is a group already.
            let is_in_group = entry.as_ref().is_some_and(|it| it.value_type() == Type::Hash)
                && !self.marks_groups(slot);
            run.add_to_group(is_in_group, |run| {
                run.add_key(at.db, key, entry, done.kind(), packed);
            });
        }
    }

    /// Notes in the run that is under way that a key was removed by no command: it was due, or is
    /// evicted.
    pub(in crate::engine::ledger) fn note_removed(&self, slot: &ThreadSlot, db: u32, entry: Entry) {
        let mut run = slot.log.run.lock();
        run.add(db, Record::Del { key: entry.key() });
        run.note_removed(db, entry);
    }

    /// Whether groups are marked in a run of this thread. All that a unit does is a group.
    fn marks_groups(&self, slot: &ThreadSlot) -> bool {
        self.mode().is_logged()
            && !slot.locked().is_some_and(|locked| self.shards.is_in_unit(locked))
    }

    /// The records up to [`Ledger::end_group`] belong together.
    pub(in crate::engine) fn begin_group(&self, slot: &ThreadSlot) {
        if self.marks_groups(slot) {
            slot.log.run.lock().begin_group();
        }
    }

    /// Ends what [`Ledger::begin_group`] began. The mode is still the same: the caller holds the
    /// tokens.
    pub(in crate::engine) fn end_group(&self, slot: &ThreadSlot) {
        if self.marks_groups(slot) {
            slot.log.run.lock().end_group();
        }
    }

    /// A thread is about to release a shard: publishes its run, if that has changed the shard, and
    /// notes what its replies must wait for.
    #[inline(never)]
    pub(in crate::engine::ledger) fn end_run(&self, slot: &ThreadSlot, shard: &mut ShardLog) {
        if shard.is_changed {
            shard.is_changed = false;
            shard.position = self.publish(slot);
            slot.log.see(shard.position);
        } else {
            self.see_read(slot, shard);
        }
    }

    /// The thread has read a shard: its replies wait for what has changed it, if reads wait.
    #[inline]
    pub(in crate::engine::ledger) fn see_read(&self, slot: &ThreadSlot, shard: &ShardLog) {
        if self.log.reads_wait() && shard.position > self.log.safe() {
            slot.log.see(shard.position);
        }
    }

    /// Whether replies to reads wait now: the policy is `always`, and there may be something that
    /// is not safe.
    #[inline]
    pub fn reads_wait(&self) -> bool {
        self.log.reads_wait() && self.mode() != Mode::Fast
    }

    /// Counters are about to be shown: if reads wait, the thread's replies must wait for all that
    /// has been counted. A run is counted before it is published, so only who can hold all tokens
    /// knows its position: false on any other thread.
    pub(in crate::engine) fn see_counted(&self, slot: &ThreadSlot) -> bool {
        if !self.reads_wait() {
            return true;
        }
        let Some(locked) = slot.locked() else { return false };
        self.shards.hold_all(locked).release();
        slot.log.see(self.log.last());
        true
    }

    /// Publishes what the thread has done with the tokens that it holds, before it does more.
    #[inline]
    pub(in crate::engine) fn publish_run(&self, slot: &ThreadSlot) {
        if self.mode() != Mode::Fast {
            self.publish(slot);
        }
    }

    /// Publishes the run that is under way; returns its position. If it has been published already,
    /// returns that one.
    pub(in crate::engine::ledger) fn publish(&self, slot: &ThreadSlot) -> u64 {
        let mut open = slot.log.run.lock();
        if open.is_empty() {
            return open.position;
        }
        let mut run = std::mem::replace(&mut *open, self.log.spare_run());
        let locked = slot.locked();
        run.unit = locked.map_or(0, |locked| self.shards.unit_number(locked));
        let position = match locked.filter(|&locked| self.context().outside.may_log(locked)) {
            Some(locked) => {
                let position = self.log_at_once(locked, run);
                self.free_flushed();
                position
            }
            None => self.add_to_tail(slot, run),
        };
        open.position = position;
        position
    }

    fn add_to_tail(&self, slot: &ThreadSlot, run: Box<OpenRun>) -> u64 {
        let (position, is_first) = self.log.push(run);
        if is_first {
            slot.log.announces.store(true, Ordering::Relaxed);
        }
        let gathers = !slot.is_main() && self.log.tail_bytes() < GATHERED_BYTES;
        if !gathers {
            self.announce_tail_of(slot);
        }
        if self.is_log_full() {
            self.admission.close_gate(Gates::LOG_FULL);
            // The main thread may have made room meanwhile, and found the gate open.
            self.open_gate_if_room();
        }
        position
    }

    /// Logs a change of all shards, which the caller holds: the tail, and then the record, unless
    /// the host itself logs what happened. Returns its position, and the tables that the change
    /// leaves to be freed now: if the host refuses the record, they are kept with it.
    pub(in crate::engine::ledger) fn log_change_of_all(
        &self,
        locked: Locked<'_>,
        record: Option<(u32, Record<'_>)>,
        emptied: Vec<(u32, u32, Table)>,
    ) -> (u64, Vec<Table>) {
        let mut run = self.log.spare_run();
        run.unit = self.shards.unit_number(locked);
        if let Some((db, record)) = record {
            run.add(db, record);
        }
        run.of_all = Some(match record {
            Some((_, Record::SwapDb { a, b })) => ChangeOfAll::Swapped(a, b),
            _ => ChangeOfAll::Emptied(emptied),
        });
        if self.context().outside.may_log(locked) || record.is_none() {
            (self.log_at_once(locked, run), self.log.take_flushed())
        } else {
            (self.add_to_tail(self.books.main_slot(locked), run), Vec::new())
        }
    }

    /// Has a worker see to it that what logged flushes have taken out is freed.
    fn free_flushed(&self) {
        if self.log.has_flushed() {
            self.context().workers.send_to_any(Message::Free);
        }
    }

    /// Logs a run of the holder of the global lock, and the tail before it.
    fn log_at_once(&self, locked: Locked<'_>, run: Box<OpenRun>) -> u64 {
        let mut write = |logged: Logged<'_>| self.context().outside.log(locked, logged);
        let (is_taken, position) = self.log.log_one(run, &mut write).unwrap_or_else(|run| {
            if self.log.has_of_all() {
                self.log_whole_tail(locked);
            }
            self.hand_over(locked, Some(run), usize::MAX)
        });
        if !is_taken {
            self.announce_tail();
        }
        position
    }

    /// Tells the main thread of the tail, if this thread has begun it. A worker does not do so at
    /// once: woken for the first of many runs, the main thread would log each by itself.
    #[inline]
    pub(in crate::engine) fn announce_tail_of(&self, slot: &ThreadSlot) {
        if slot.log.announces() {
            slot.log.announces.store(false, Ordering::Relaxed);
            self.announce_tail();
        }
    }

    /// Has the main thread log the tail in its next turn.
    fn announce_tail(&self) {
        self.context().send_to_main(ForMain::Log);
    }

    /// [`Log::hand_over`](super::Log::hand_over) to the host.
    fn hand_over(&self, locked: Locked<'_>, own: Option<Box<OpenRun>>, most: usize) -> (bool, u64) {
        let mut write = |logged: Logged<'_>| self.context().outside.log(locked, logged);
        let outside = &self.context().outside;
        let takes_parts = outside.takes_parts();
        if !takes_parts {
            self.log.begin_parts_again();
        }
        let has_room = || outside.has_room_for_part(locked);
        let in_parts = takes_parts && most != usize::MAX;
        let has_room: Option<&dyn Fn() -> bool> = in_parts.then_some(&has_room);
        let handed_over = self.log.hand_over(own, most, has_room, &mut write);
        self.open_gate_if_room();
        handed_over
    }

    /// Gives runs of the tail to the host's log, about [`JOURNAL_TEXT_BYTES`] of them, or a part of
    /// a long text. True if some are left. The host must be able to log: see its module's pauses.
    pub fn log_tail(&self, locked: Locked<'_>) -> bool {
        let (mut taken, _) = self.hand_over(locked, None, JOURNAL_TEXT_BYTES);
        // The host keeps together what it gets in one context.
        while taken && self.log.is_unit_torn() {
            (taken, _) = self.hand_over(locked, None, JOURNAL_TEXT_BYTES);
        }
        self.free_flushed();
        taken && !self.log.is_tail_empty()
    }

    /// If a part of a unit is in the host's log, gives it the rest: the host keeps together what it
    /// gets in one event.
    pub fn log_rest_of_unit(&self, locked: Locked<'_>) {
        if self.log.is_unit_torn() {
            self.log_whole_tail(locked);
        }
    }

    /// Gives the whole tail to the host's log. False if it refuses.
    pub fn log_whole_tail(&self, locked: Locked<'_>) -> bool {
        loop {
            let (taken, last) = self.hand_over(locked, None, usize::MAX);
            self.free_flushed();
            if !taken {
                return last == 0;
            }
        }
    }

    pub(super) fn open_gate_if_room(&self) {
        // One thread makes room while another closes the gate: one of the two sees the other's
        // work.
        fence(Ordering::SeqCst);
        if self.admission.gates().has(Gates::LOG_FULL)
            && self.log.tail_bytes()
                <= self.context().settings.journal_buffer.load(Ordering::Relaxed) / 2
        {
            self.admission.open_gate(self.context(), Gates::LOG_FULL);
        }
    }

    /// Whether the tail has reached its limit: writes must wait.
    pub(in crate::engine::ledger) fn is_log_full(&self) -> bool {
        self.log.tail_bytes() >= self.context().settings.journal_buffer.load(Ordering::Relaxed)
    }

    /// Why a command that may need memory may not follow those that have run together with it, in
    /// a transaction, script or function: with it they would log and keep too much. The first one
    /// always may.
    pub(in crate::engine) fn refusal_of_more(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
    ) -> Option<Error> {
        if !self.mode().is_logged() || !call.row().flags.deny_oom {
            return None;
        }
        let unit = slot.locked().map_or(0, |locked| self.shards.unit_number(locked));
        let logged = if unit == 0 { 0 } else { self.log.bytes_of_unit(unit) };
        let run = slot.log.run.lock();
        let so_far = logged + if run.is_empty() { 0 } else { run.bytes() };
        let limit = self.context().settings.max_transaction_bytes.load(Ordering::Relaxed);
        let is_too_much = so_far > 0 && so_far + call.args.bytes() > limit;
        is_too_much.then_some(Error::TransactionTooLarge(limit))
    }

    /// [`Ledger::refusal_of_more`] for a command of the open unit, if there is one.
    pub fn refusal_in_unit(&self, locked: Locked<'_>, call: &Call<'_>) -> Option<Error> {
        if !self.shards.is_in_unit(locked) {
            return None;
        }
        self.refusal_of_more(self.books.main_slot(locked), call)
    }

    /// The main loop has slept: replies to what was logged before may be sent.
    pub fn after_sleep(&self, _: Locked<'_>) {
        if self.log.after_sleep() {
            let workers = &self.context().workers;
            let waits = |&worker: &usize| self.books.worker_slot(worker).log.holds.is_announced();
            for worker in (0..workers.len()).filter(waits) {
                workers.send(worker, Message::Safe);
            }
        }
    }
}
