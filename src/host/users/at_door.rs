//! Rights at the host's door of Redis 7.0. That host leaves module commands out of categories, both ways:
//! `+@all -@write` would allow every one of midi's writes, and `+@all -flushall` MIDI.FLUSHALL. So after the host
//! has judged a command by its own rules, it is judged by midi's: see [`super::judge::verdict`]. Later hosts
//! know the categories of midi's commands, and their verdict is the last word.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use redis_module::raw;

use super::super::PREFIX;
use super::super::api::Ctx;
use super::super::instance::instance;
use super::super::renamed::is_renamed;
use super::super::rights::{self, Asker};
use super::text::Description;
use super::{HostText, refused, with_seen};
use crate::limits::DOOR_CLIENTS_KEPT;
use crate::shard::{Call, Commands, Locked, Refusal};

/// Whether any user's rules may allow less than the host does: one load where none do.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether the host's users may have changed since all of them were looked at.
static STALE: AtomicBool = AtomicBool::new(true);

/// What the host may allow too kindly, by client. A client's user changes with AUTH, HELLO, RESET or EXEC only.
static KEPT: Mutex<Option<HashMap<u64, Commands>>> = Mutex::new(None);

/// Whether a filter sees by their names the commands that may change a client's user: `rename-command` may hide them.
fn changes_are_seen(locked: Locked<'_>) -> bool {
    static SEEN: OnceLock<bool> = OnceLock::new();
    let any_renamed = || ["auth", "hello", "reset", "exec"].into_iter().any(|name| is_renamed(locked, name));
    *SEEN.get_or_init(|| !any_renamed())
}

/// Whether this host leaves the categories of module commands alone.
fn is_needed() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_SetCommandACLCategories }.is_none()
}

/// The users may be about to change: until all have been looked at, every command is judged.
pub fn users_may_change() {
    if is_needed() {
        ASKED.store(true, Ordering::Relaxed);
        STALE.store(true, Ordering::Relaxed);
        forget();
    }
}

/// A client's user may be about to change; whose, a filter does not learn.
pub fn forget() {
    if ASKED.load(Ordering::Relaxed) {
        *KEPT.lock() = None;
    }
}

/// Finds out whether any user's rules matter here.
pub fn look_at_all(locked: Locked<'_>) {
    if is_needed() && STALE.swap(false, Ordering::Relaxed) {
        let names = instance().ctx(locked).call(c"ACL", &[b"USERS"]).list();
        let may_differ = |name: &[u8]| {
            let text = HostText::of_user(locked, name);
            let rules = text.map_or_else(Vec::new, |text| Description::read(text.bytes()).rules);
            rules.iter().any(|rules| rules.begins_with_all() && !rules.is_all())
        };
        // A host without the ACL command does not tell who there is.
        let asked = names.is_empty()
            || names.into_iter().any(|name| name.text().is_some_and(|name| may_differ(&name)));
        ASKED.store(asked, Ordering::Relaxed);
    }
}

/// Whether the client may run its command, as far as the host has not seen to that.
///
/// # Errors
/// The host's words on what is not allowed.
#[inline]
pub fn check(ctx: Ctx<'_>, call: &Call<'_>, in_unit: bool) -> Result<(), Vec<u8>> {
    if ASKED.load(Ordering::Relaxed) { ask(ctx, call, in_unit) } else { Ok(()) }
}

#[inline(never)]
fn ask(ctx: Ctx<'_>, call: &Call<'_>, in_unit: bool) -> Result<(), Vec<u8>> {
    let id = ctx.client_id();
    // A unit may change its user half way, and a script's client has a number of its own.
    if !in_unit
        && let Some(too_kind) = KEPT.lock().as_ref().and_then(|kept| kept.get(&id))
        && !too_kind.has(call.command)
    {
        return Ok(());
    }
    let (name, is_real) = match rights::asker(ctx) {
        Asker::Client(name) => (name, true),
        Asker::Other(name) => (name, false),
        Asker::Nobody => return Ok(()),
    };
    // A user that another module has made for itself is not on the host's list: what the host says of it holds.
    let verdict = with_seen(ctx.locked(), &name, |seen| {
        if is_real && !in_unit && changes_are_seen(ctx.locked()) {
            keep(id, seen.host_is_too_kind);
        }
        if !seen.host_is_too_kind.has(call.command) {
            return Ok(());
        }
        seen.user.check(call.command, &call.args, call.db).map_err(|denied| {
            let command = format!("{PREFIX}{}", call.row().name);
            let refusal = Refusal::new(&seen.user, denied, &command, &call.args);
            (refusal, denied.text(&command, &call.args))
        })
    });
    let Some(Err((refusal, text))) = verdict else { return Ok(()) };
    refused(ctx, &refusal);
    Err(text)
}

fn keep(id: u64, too_kind: Commands) {
    let mut kept = KEPT.lock();
    let kept = kept.get_or_insert_default();
    if kept.len() >= DOOR_CLIENTS_KEPT {
        kept.clear();
    }
    kept.insert(id, too_kind);
}
