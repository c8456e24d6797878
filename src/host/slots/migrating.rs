//! Slots that this node gives away key by key: CLUSTER SETSLOT MIGRATING, MIGRATE, SETSLOT NODE.
//!
//! Such a slot has no keys of midi's, or SETSLOT would have been refused (`mod`). It must get none
//! either, for they would be removed with it. The host redirects a command to the new node only if
//! it does not have the key's name itself. It does have the name of a key that was midi's and has
//! been exported, until MIGRATE has moved that key. So midi refuses commands on such a slot.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::api::{Answer, Ctx, Level, log};
use super::super::instance::instance;
use super::super::renamed::is_renamed;
use super::super::state::slots::SlotOwners;
use super::lost::is_of_another;
use crate::command::slot::{name_in, slot_of};
use crate::engine::{Call, Gates};
use crate::limits::SETSLOT_TAKES;

/// The beginning of a name that no key has. NULs in front of a name leave its slot as it is.
const NO_KEY: &[u8] = &[0; 16];

/// Whether a command has a key in a slot that migrates. All its keys are in one slot.
#[inline]
pub fn has_key_there(ctx: Ctx<'_>, call: &Call<'_>) -> bool {
    instance().slots.may_migrate.get() && {
        let first = call.row().key_positions(&call.args).next();
        first.is_some_and(|at| is_leaving(ctx, call.args.get(at)))
    }
}

/// Whether the slot of this key migrates.
#[inline]
pub fn migrates(ctx: Ctx<'_>, key: &[u8]) -> bool {
    instance().slots.may_migrate.get() && is_leaving(ctx, key)
}

#[cold]
fn is_leaving(ctx: Ctx<'_>, key: &[u8]) -> bool {
    let engine = &instance().engine;
    if !engine.ledger.slots.are_on() {
        instance().slots.may_migrate.set(false);
        return false;
    }
    !engine.gates().has(Gates::READ_ONLY) && ask(ctx, slot_of(key))
}

/// Asks the host whether a slot of this node migrates: then it redirects each command on a key that
/// it does not have.
fn ask(ctx: Ctx<'_>, slot: u16) -> bool {
    let is_known = || instance().engine.ledger.slots.is_migrating(slot);
    match ctx.call(c"EXISTS", &[&[NO_KEY, &name_in(slot)].concat()]) {
        Answer::Number(0) => false,
        Answer::Number(_) => is_known(),
        // The host has refused it, or has no command of this name.
        _ if is_renamed(ctx.locked(), "exists") => is_known(),
        _ => !is_of_another(slot),
    }
}

/// A SETSLOT MIGRATING is about to be executed, queued or refused. Any client can send it.
pub fn may_migrate(slot: u16) {
    let (slots, mut known) = (&instance().slots, instance().slots.known.lock());
    instance().engine.ledger.slots.may_migrate(slot);
    known.in_doubt.push(slot);
    known.may_migrate_until = Some(Instant::now() + SETSLOT_TAKES);
    slots.may_migrate.set(true);
    slots.may_change.set(true);
}

/// The same for a SETSLOT STABLE.
pub fn may_stay(slot: u16) {
    if instance().engine.ledger.slots.is_migrating(slot) {
        instance().slots.known.lock().in_doubt.push(slot);
        instance().slots.may_change.set(true);
    }
}

/// The main loop is about to sleep: what has been seen in this turn was executed, or was not.
pub(super) fn settle(ctx: Ctx<'_>) {
    let in_doubt = std::mem::take(&mut instance().slots.known.lock().in_doubt);
    for slot in in_doubt {
        if !ask(ctx, slot) {
            instance().engine.ledger.slots.stays(slot);
        }
    }
}

impl SlotOwners {
    /// The host has been asked which slots migrate.
    pub(super) fn are_migrating(&mut self, ctx: Ctx<'_>, slots: BTreeSet<u16>) {
        let counts = &instance().engine.ledger.slots;
        counts.migrate(&slots);
        for &slot in slots.difference(&self.migrating) {
            let keys = counts.keys(slot);
            if keys > 0 {
                let text = format!(
                    "Slot {slot} migrates, and midi has {keys} keys in it, which will be removed \
                     with it. To keep them: MIDI.EXPORT * SLOT {slot} MOVE."
                );
                log(ctx, Level::Warning, &text);
            }
        }
        self.may_migrate_until.take_if(|until| *until < Instant::now());
        let may_migrate = !slots.is_empty() || self.may_migrate_until.is_some();
        instance().slots.may_migrate.set(may_migrate);
        self.migrating = slots;
    }

    /// This node is a replica, or loads its data: it gives no slot away.
    pub(super) fn gives_nothing(&mut self) {
        self.migrating.clear();
        instance().engine.ledger.slots.migrate(&self.migrating);
        // The host is asked again before any is given away.
        instance().slots.may_migrate.set(true);
    }
}
