//! Slots that this node gives away key by key: CLUSTER SETSLOT MIGRATING, MIGRATE, SETSLOT NODE.
//!
//! Such a slot has no keys of midi's, or SETSLOT would have been refused (`mod`). It must get none
//! either, for they would be removed with it. The host redirects a command to the new node only if
//! it does not have the key's name itself. It does have the name of a key that was midi's and has
//! been exported, until MIGRATE has moved that key. So midi refuses commands on such a slot.
//!
//! ```text
//!  filter        SETSLOT comes: workers stop writing, keys are counted; it is refused if there are any
//!  door          commands on a slot that may have begun to migrate ask the host
//!  BEFORE_SLEEP  what has changed is known: queued writes go on, or are refused
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::api::{Answer, Ctx, Level, log};
use super::super::instance::instance;
use super::super::renamed::is_renamed;
use super::super::state::slots::SlotOwners;
use super::lost::is_of_another;
use crate::command::slot::{name_in, slot_of};
use crate::engine::{Call, Gates, Locked};
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
    let slot = slot_of(key);
    !engine.gates().has(Gates::READ_ONLY)
        && may_leave_now(slot)
        && serves(ctx, slot) == Some(false)
        && !is_of_another(slot)
}

/// Whether the slot migrates, or may have begun to.
fn may_leave_now(slot: u16) -> bool {
    let known = instance().slots.known.lock();
    known.owners.is_none()
        || known.may_migrate.contains_key(&slot)
        || instance().engine.ledger.slots.is_migrating(slot)
}

/// Whether the host runs a command on a key of the slot that it does not have: not if the slot
/// migrates, or is another node's. `None` if it has no such command by its usual name.
fn serves(ctx: Ctx<'_>, slot: u16) -> Option<bool> {
    let key = [NO_KEY, &name_in(slot)].concat();
    for (command, name) in [(c"EXISTS", "exists"), (c"TTL", "ttl"), (c"STRLEN", "strlen")] {
        if matches!(ctx.call(command, &[&key]), Answer::Number(_)) {
            return Some(true);
        }
        if !is_renamed(ctx.locked(), name) {
            return Some(false);
        }
    }
    None
}

/// A SETSLOT that may give a slot away is about to be executed, queued or refused. Any client can
/// send it. No worker writes from here on, until it is known.
pub fn may_leave(locked: Locked<'_>, slot: u16) {
    let slots = &instance().slots;
    slots.known.lock().may_migrate.insert(slot, Instant::now() + SETSLOT_TAKES);
    slots.may_migrate.set(true);
    if !slots.gives.replace(true) {
        instance().gates.look(instance().ctx(locked));
    }
    may_stay(slot);
}

/// The same for a SETSLOT that may give the slot to this node, or leave it there.
pub fn may_stay(slot: u16) {
    instance().slots.known.lock().in_doubt.push(slot);
    instance().slots.setslot_came.set(true);
}

/// The main loop is about to sleep: the SETSLOTs of this turn have been executed, or have not. Is
/// anything not as it is known to be?
pub fn settle(ctx: Ctx<'_>) -> bool {
    let slots = &instance().slots;
    slots.setslot_came.set(false);
    let in_doubt = std::mem::take(&mut slots.known.lock().in_doubt);
    in_doubt.into_iter().fold(false, |has_changed, slot| has_changed | differs(ctx, slot))
}

fn differs(ctx: Ctx<'_>, slot: u16) -> bool {
    let counts = &instance().engine.ledger.slots;
    let (is_known, is_others) = (counts.is_migrating(slot), is_of_another(slot));
    match serves(ctx, slot) {
        Some(true) => {
            counts.set_migrating(slot, false);
            is_known || is_others
        }
        Some(false) if !is_others => {
            counts.set_migrating(slot, true);
            !is_known
        }
        _ => false,
    }
}

/// Workers write again.
pub fn turn_ends(ctx: Ctx<'_>) {
    if instance().slots.gives.take() {
        instance().gates.look(ctx);
        instance().engine.context().outside.wake_main();
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
        self.migrating = slots;
        self.may_migrate.retain(|_, until| *until > Instant::now());
        let may_migrate = !self.migrating.is_empty() || !self.may_migrate.is_empty();
        instance().slots.may_migrate.set(may_migrate);
    }

    /// This node is a replica, or loads its data: it gives no slot away.
    pub(super) fn gives_nothing(&mut self) {
        self.migrating.clear();
        instance().engine.ledger.slots.migrate(&self.migrating);
        // The host is asked again before any is given away.
        instance().slots.may_migrate.set(true);
    }
}
