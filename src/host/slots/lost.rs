//! Slots that this node has lost to another master: midi's keys of them are removed, as the host
//! removes its own.
//!
//! No event tells a module the owner of a slot, but for Redis's own migrations. So the host is
//! asked from time to time. A slot counts as lost if it was this node's at one look, and another
//! master's at the next: never on a replica, never because the host has just been started, and
//! never if nobody has it.
//!
//! A slot becomes this node's, or gets keys before that, only by commands to this node, which the
//! filter sees. From there on nothing of it is removed until the host has been asked again.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::api::{Ctx, Level, log};
use super::super::instance::instance;
use super::super::state::slots::{Owner, SlotOwners};
use super::owners;
use crate::engine::{Gates, remove_lost_keys, remove_lost_keys_now};
use crate::limits::{OWNERS_ASKED_EVERY, OWNERS_SHARE, OWNERS_SHARE_AT_COMMANDS};

/// A tenth of a second has passed.
pub fn on_cron(ctx: Ctx<'_>) {
    if instance().engine.ledger.slots.are_on() {
        look(ctx);
    }
}

/// Asks the host, if it is time.
pub(super) fn look(ctx: Ctx<'_>) {
    let slots = &instance().slots;
    if instance().engine.gates().has(Gates::READ_ONLY.and(Gates::LOADING)) {
        return slots.known.lock().forget();
    }
    let due = slots.known.lock().next;
    let is_due = due.is_none_or(|(next, earliest)| {
        Instant::now() >= if slots.may_change.get() { earliest } else { next }
    });
    if is_due {
        look_now(ctx);
    }
}

/// Asks the host.
pub(super) fn look_now(ctx: Ctx<'_>) {
    instance().slots.may_change.set(false);
    let began = Instant::now();
    // Not under the lock: our filter sees the question, too.
    let slots = owners::ask(ctx);
    let mut known = instance().slots.known.lock();
    if let Some(slots) = slots {
        known.compare(ctx, slots.owners, &slots.importing);
        known.are_migrating(ctx, slots.migrating);
    }
    let (ended, took) = (Instant::now(), began.elapsed());
    let next = ended + OWNERS_ASKED_EVERY.max(took * OWNERS_SHARE);
    known.next = Some((next, ended + took * OWNERS_SHARE_AT_COMMANDS));
}

/// Whether another master had the slot when the host was last asked.
pub fn is_of_another(slot: u16) -> bool {
    let known = instance().slots.known.lock();
    known.owners.as_ref().is_some_and(|owners| owners[usize::from(slot)] == Owner::Another)
}

/// The slot, or any, may become this node's again, or get keys for that: nothing of it is removed
/// until the host has been asked. Any client can send such a command.
pub fn may_come_back(slot: Option<u16>) {
    instance().slots.may_change.set(true);
    let known = instance().slots.known.lock();
    if slot.is_none_or(|slot| known.lost.contains(&slot)) {
        instance().engine.ledger.slots.lose(&BTreeSet::new());
    }
}

/// The host gets keys for these slots: keys that come from now on are not to be removed. Those that
/// are there already, from before or of an attempt that failed, are removed here and now.
pub fn comes_back(ctx: Ctx<'_>, slots: impl Iterator<Item = u16> + Clone) {
    let (engine, mut known) = (&instance().engine, instance().slots.known.lock());
    known.have_come(slots.clone());
    if engine.gates().has(Gates::READ_ONLY.and(Gates::LOADING)) {
        return;
    }
    let slots: BTreeSet<u16> = slots.collect();
    if slots.iter().any(|&slot| engine.ledger.slots.keys(slot) > 0) {
        engine.ledger.slots.lose(&slots);
        remove_lost_keys_now(engine, ctx.locked());
    }
    known.are_of_another(slots.iter().copied());
    known.lost.retain(|slot| !slots.contains(slot));
    engine.ledger.slots.lose(&known.lost);
}

/// A migration has brought these slots' keys, and the slots.
pub fn have_come(slots: impl Iterator<Item = u16>) {
    instance().slots.known.lock().have_come(slots);
}

/// A migration has brought keys of these slots, and not the slots. The host trims only slots in
/// which it has keys itself, and nothing if this node fails over first: so it is not waited for.
pub fn came_in_vain(slots: impl Iterator<Item = u16>) {
    let mut known = instance().slots.known.lock();
    known.left_over.extend(slots);
    // It may get them in another way by now.
    instance().slots.may_change.set(true);
}

/// Another node has taken these slots: writes that still come for them are refused. The host will
/// say when their keys are to be removed.
pub fn are_gone(slots: impl Iterator<Item = u16> + Clone) {
    let mut known = instance().slots.known.lock();
    known.are_of_another(slots.clone());
    known.lost.extend(slots);
    instance().engine.ledger.slots.lose(&known.lost);
}

/// The host removes its own keys of these slots, because another node has them.
pub fn goes(ctx: Ctx<'_>, slots: impl Iterator<Item = u16> + Clone) {
    let mut known = instance().slots.known.lock();
    if !instance().engine.gates().has(Gates::READ_ONLY.and(Gates::LOADING)) {
        known.are_of_another(slots.clone());
        known.lost.extend(slots);
        known.remove_keys(ctx);
    }
}

impl SlotOwners {
    /// This node is a replica, or loads its data: its slots are not its own.
    fn forget(&mut self) {
        if self.owners.take().is_some() || !self.lost.is_empty() {
            self.lost.clear();
            instance().engine.ledger.slots.lose(&self.lost);
            self.gives_nothing();
        }
    }

    fn have_come(&mut self, slots: impl Iterator<Item = u16>) {
        slots.for_each(|slot| _ = self.left_over.remove(&slot));
    }

    /// An event has said so: the next look finds no change.
    fn are_of_another(&mut self, slots: impl Iterator<Item = u16>) {
        if let Some(owners) = &mut self.owners {
            slots.for_each(|slot| owners[usize::from(slot)] = Owner::Another);
        }
    }

    /// Compares the owners with those of the last look. This node gets keys of the slots
    /// `importing` before it owns them.
    fn compare(&mut self, ctx: Ctx<'_>, owners: Vec<Owner>, importing: &BTreeSet<u16>) {
        for (slot, owner) in (0..).zip(&owners) {
            let before = self.owners.as_ref().map(|before| before[usize::from(slot)]);
            if *owner != Owner::Another {
                self.lost.remove(&slot);
            } else if before == Some(Owner::Me) || self.left_over.contains(&slot) {
                self.lost.insert(slot);
            }
        }
        self.left_over.clear();
        self.owners = Some(owners);
        // A SETSLOT that was held up, or queued, is executed long after it was seen.
        importing.iter().for_each(|slot| _ = self.lost.remove(slot));
        self.remove_keys(ctx);
    }

    /// How many keys midi has in the lost slots.
    fn keys(&self) -> u64 {
        self.lost.iter().map(|&slot| instance().engine.ledger.slots.keys(slot)).sum()
    }

    /// Has the workers remove midi's keys of the lost slots.
    fn remove_keys(&self, ctx: Ctx<'_>) {
        let engine = &instance().engine;
        engine.ledger.slots.lose(&self.lost);
        let keys = self.keys();
        if keys > 0 && remove_lost_keys(engine) {
            let text = format!(
                "Other nodes have taken slots in which midi has {keys} keys: these are removed."
            );
            log(ctx, Level::Notice, &text);
        }
    }
}
