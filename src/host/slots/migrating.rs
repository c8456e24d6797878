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

use midi_module_api as raw;

use super::super::api::{Answer, Ctx, Level, client_flags, log};
use super::super::context::Filtered;
use super::super::instance::instance;
use super::super::renamed::is_renamed;
use super::super::state::slots::{Setter, SlotOwners};
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

/// Whether the slot of this key migrates. It may be another node's.
#[inline]
pub fn migrates(ctx: Ctx<'_>, key: &[u8]) -> bool {
    instance().slots.may_migrate.get() && is_leaving(ctx, key) && !is_of_another(slot_of(key))
}

/// The same, if the slot is this node's.
#[cold]
fn is_leaving(ctx: Ctx<'_>, key: &[u8]) -> bool {
    let engine = &instance().engine;
    if !engine.ledger.slots.are_on() {
        instance().slots.may_migrate.set(false);
        return false;
    }
    let slot = slot_of(key);
    if engine.gates().has(Gates::READ_ONLY) || !may_leave_now(slot) {
        return false;
    }
    is_given(ctx, slot) || serves(ctx, slot) == Some(false)
}

/// Whether a client waits for the end of a SETSLOT that gives the slot away, or has waited in this
/// turn.
fn is_given(ctx: Ctx<'_>, slot: u16) -> bool {
    let known = instance().slots.known.lock();
    let mut of_slot = known.setters.iter().filter(|setter| setter.slot == slot && setter.gives);
    // Who runs a command does not wait.
    of_slot.any(|setter| setter.waited || setter.client != ctx.client_id() && setter.waits())
}

/// Whether the slot migrates, or may have begun to.
fn may_leave_now(slot: u16) -> bool {
    let known = instance().slots.known.lock();
    known.owners.is_none()
        || known.may_migrate.contains_key(&slot)
        || instance().engine.ledger.slots.is_migrating(slot)
}

impl Setter {
    /// Whether it waits for the end of SETSLOT: Valkey first asks the replicas. Who was refused
    /// does not wait.
    fn waits(&self) -> bool {
        client_flags(self.client) & raw::REDISMODULE_CLIENTINFO_FLAG_BLOCKED != 0
    }
}

/// Whether the host runs a command on a key of the slot that it does not have: not if the slot
/// migrates, or is another node's. `None` if it has no such command by its usual name.
fn serves(ctx: Ctx<'_>, slot: u16) -> Option<bool> {
    let key = [NO_KEY, &name_in(slot)].concat();
    for (command, name) in [(c"EXISTS", "exists"), (c"TTL", "ttl"), (c"STRLEN", "strlen")] {
        instance().slots.asks.set(true);
        let answer = ctx.call(command, &[&key]);
        instance().slots.asks.set(false);
        if matches!(answer, Answer::Number(_)) {
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
pub(super) fn may_leave(command: Filtered<'_>, slot: u16) {
    let (slots, locked) = (&instance().slots, command.locked());
    slots.known.lock().may_migrate.insert(slot, Instant::now() + SETSLOT_TAKES);
    slots.may_migrate.set(true);
    if !slots.gives.replace(true) {
        instance().gates.look(instance().ctx(locked));
    }
    note(command, slot, true);
}

/// The same for a SETSLOT that may give the slot to this node, or leave it there.
pub(super) fn may_stay(command: Filtered<'_>, slot: u16) {
    note(command, slot, false);
}

fn note(command: Filtered<'_>, slot: u16, gives: bool) {
    let (slots, mut known) = (&instance().slots, instance().slots.known.lock());
    let setter = command.client_id().map(|client| Setter { slot, client, gives, waited: false });
    known.setters.extend(setter);
    known.in_doubt.insert(slot);
    slots.is_unsettled.set(true);
}

/// A client sends any command: its SETSLOT, if it has sent one, is over. This says nothing of one
/// that waited: Valkey 9.1 gives its id to commands that modules call meanwhile, and crashes if it
/// is asked about that id within them.
#[cold]
pub fn sends_another(command: Filtered<'_>) {
    if !instance().slots.asks.get() {
        let mut known = instance().slots.known.lock();
        let sender = command.client_id();
        known.setters.retain(|setter| sender != Some(setter.client) || setter.waited);
    }
}

/// The main loop is about to sleep: the SETSLOTs of this turn have been executed, or have not, or
/// wait. Returns whether they have changed anything.
pub(super) fn settle(ctx: Ctx<'_>) -> bool {
    let slots = &instance().slots;
    let (in_doubt, has_waited) = {
        let mut known = slots.known.lock();
        let over: Vec<Setter> = known.setters.extract_if(.., |setter| !setter.waits()).collect();
        known.setters.iter_mut().for_each(|setter| setter.waited = true);
        slots.is_unsettled.set(!known.setters.is_empty());
        let mut in_doubt = std::mem::take(&mut known.in_doubt);
        in_doubt.extend(over.iter().map(|setter| setter.slot));
        (in_doubt, over.iter().any(|setter| setter.waited))
    };
    // Who has waited was not refused, and may have changed what only CLUSTER NODES tells.
    let changed =
        in_doubt.into_iter().fold(has_waited, |changed, slot| changed | differs(ctx, slot));
    slots.known.lock().close_given();
    changed
}

/// Whether a slot is not as it was known to be: asks the host, and notes whether it migrates.
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

/// The SETSLOTs of this turn are settled: workers write again.
pub(super) fn turn_ends(ctx: Ctx<'_>) {
    if instance().slots.gives.take() {
        instance().gates.look(ctx);
        instance().engine.context().outside.wake_main();
    }
}

impl SlotOwners {
    /// Slots whose SETSLOT waits count as migrating.
    fn close_given(&self) {
        let counts = &instance().engine.ledger.slots;
        let givers = self.setters.iter().filter(|setter| setter.gives);
        givers.for_each(|setter| counts.set_migrating(setter.slot, true));
    }

    /// The host has been asked which slots migrate.
    pub(super) fn are_migrating(&mut self, ctx: Ctx<'_>, slots: BTreeSet<u16>) {
        let counts = &instance().engine.ledger.slots;
        counts.migrate(&slots);
        self.close_given();
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
        let none =
            self.migrating.is_empty() && self.may_migrate.is_empty() && self.setters.is_empty();
        instance().slots.may_migrate.set(!none);
    }

    /// This node is a replica, or loads its data: it gives no slot away.
    pub(super) fn gives_nothing(&mut self) {
        self.migrating.clear();
        instance().engine.ledger.slots.migrate(&self.migrating);
        // The host is asked again before any is given away.
        instance().slots.may_migrate.set(true);
    }
}
