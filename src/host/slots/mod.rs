//! Slots of a cluster: midi's keys must not be left behind when their slot moves to another node.
//!
//! The host moves a slot key by key (CLUSTER SETSLOT, MIGRATE), and knows nothing of midi's keys:
//! so a slot that has any may not leave (`mod`), and gets none while it leaves (`migrating`). From
//! Redis 8.4 on it also has CLUSTER MIGRATION, which takes midi's keys along (`migration`). What
//! remains on a node whose slot another one has taken is removed (`lost`). The host is asked who
//! owns which slots (`owners`).

pub mod lost;
pub mod migrating;
pub mod migration;
mod owners;

use super::api::Ctx;
use super::context::Filtered;
use super::instance::instance;
use crate::command::Cluster;
use crate::command::slot::slot_of_text;
use crate::engine::Gates;
use owners::{NODE_ID, is_my_id};

/// A CLUSTER command is about to be executed, queued or refused. A SETSLOT that would give away a
/// slot in which midi has keys gets a node id that no node has, with the reason in it. The host
/// then answers that it does not know the node, after it has judged all else: the client, its
/// rights, the slot. Only the host's own handler refuses after all of its checks, and it repeats
/// the id in its error.
pub fn before_cluster(command: Filtered<'_>) {
    let engine = &instance().engine;
    // A replica gets SETSLOT from its master, which has judged it.
    if !engine.ledger.slots.are_on() || engine.gates().has(Gates::READ_ONLY) {
        return;
    }
    let is = |number, word: &[u8]| command.arg(number).eq_ignore_ascii_case(word);
    if !is(1, b"setslot") {
        if is(1, b"addslots") || is(1, b"addslotsrange") {
            lost::may_come_back(None);
        }
        return;
    }
    let Some(slot) = slot_of_text(command.arg(2)) else { return };
    let comes = is(3, b"importing") || is(3, b"node") && is_my_id(command.arg(4));
    if comes {
        lost::may_come_back(Some(slot));
    }
    if comes || is(3, b"stable") {
        return migrating::may_stay(command, slot);
    }
    let leaves = is(3, b"migrating") || is(3, b"node") && !lost::is_of_another(slot);
    // The host knows no id of another length.
    if !leaves || command.arg(4).len() != NODE_ID {
        return;
    }
    // Newer hosts execute it after the pause, and no filter sees it then.
    let is_held_up = instance().pause.holds_up(command.locked());
    let keys = || engine.ledger.slots.keys(slot);
    if keys() == 0 && !is_held_up {
        migrating::may_leave(command, slot);
    }
    // Workers may have written until then.
    if keys() > 0 || is_held_up {
        command.replace(4, refusal(command.arg(4), slot, keys()).as_bytes());
    }
}

/// The main loop is about to sleep: the CLUSTER commands of this turn have been executed or
/// refused, or wait.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) {
    let slots = &instance().slots;
    if slots.is_unsettled.get() && migrating::settle(ctx) {
        lost::look_now(ctx);
    } else if slots.may_change.get() {
        lost::look(ctx);
    }
    migrating::turn_ends(ctx);
    migration::turn_ends(ctx);
}

/// The id of a node, and why the slot may not move there.
fn refusal(id: &[u8], slot: u16, keys: u64) -> String {
    let config = instance().engine.config();
    let several = config.cluster == Cluster::ManyDatabases && config.databases > 1;
    let each = if several { " in each database" } else { "" };
    let id = String::from_utf8_lossy(id);
    if keys == 0 {
        return format!("{id}: clients are paused, and midi may have keys in slot {slot} then");
    }
    format!(
        "{id}: midi has {keys} keys in slot {slot}, which would stay behind. First run MIDI.EXPORT \
         * SLOT {slot} MOVE{each}"
    )
}
