//! Rights at the host's door of Redis 7.0. That host leaves module commands out of categories, both
//! ways: `+@all -@write` would allow every one of midi's writes, and `+@all -flushall`
//! MIDI.FLUSHALL. So after the host has judged a command by its own rules, it is judged by midi's:
//! see [`super::judge::verdict`]. Later hosts know the categories of midi's commands, and their
//! verdict is the last word: there nobody is ever asked.
//!
//! | asked | stale | |
//! |---|---|---|
//! | no | yes | at load: no client has come |
//! | yes | yes | a user may have changed: every command is judged until all users are looked at |
//! | yes | no | some user's rules make a difference: every command is judged |
//! | no | no | nobody's do: nothing is judged, at the cost of one load |
//!
//! While commands are judged, the verdict on a client is kept until its user may be another.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use redis_module::raw;

use super::super::PREFIX;
use super::super::acl::log_refusal;
use super::super::api::Ctx;
use super::super::instance::instance;
use super::super::renamed::is_renamed;
use super::super::rights::{self, Asker};
use super::known::{HostText, Known};
use super::text::Description;
use crate::engine::{Call, Commands, Locked, Refusal};
use crate::limits::DOOR_CLIENTS_KEPT;

/// Who may be allowed too much by the host.
pub struct AtDoor {
    /// Whether any user's rules may allow less than the host does.
    asked: AtomicBool,
    /// Whether the host's users may have changed since all of them were looked at.
    stale: AtomicBool,
    /// What the host may allow too kindly, by client. A client's user changes with AUTH, HELLO,
    /// RESET or EXEC only.
    kept: Mutex<Option<HashMap<u64, Commands>>>,
    /// Whether a filter sees these by their names: `rename-command` may hide them.
    changes_are_seen: OnceLock<bool>,
}

/// Whether this host leaves the categories of module commands alone.
fn is_needed() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_SetCommandACLCategories }.is_none()
}

impl AtDoor {
    /// As it is at load.
    pub const fn new() -> Self {
        AtDoor {
            asked: AtomicBool::new(false),
            stale: AtomicBool::new(true),
            kept: Mutex::new(None),
            changes_are_seen: OnceLock::new(),
        }
    }

    /// The users may be about to change: until all have been looked at, every command is judged.
    pub fn users_may_change(&self) {
        if is_needed() {
            self.asked.store(true, Ordering::Relaxed);
            self.stale.store(true, Ordering::Relaxed);
            self.forget();
        }
    }

    /// A client's user may be about to change; whose, a filter does not learn.
    pub fn forget(&self) {
        if self.is_asked() {
            *self.kept.lock() = None;
        }
    }

    /// Finds out whether any user's rules matter here.
    pub fn look_at_all(&self, locked: Locked<'_>) {
        if is_needed() && self.stale.swap(false, Ordering::Relaxed) {
            let names = instance().ctx(locked).call(c"ACL", &[b"USERS"]).list();
            // A host without the ACL command does not tell who there is.
            let asked = names.is_empty()
                || names
                    .into_iter()
                    .any(|name| name.text().is_some_and(|name| may_differ(locked, &name)));
            self.asked.store(asked, Ordering::Relaxed);
        }
    }

    /// Whether commands are to be judged.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether the client may run its command, as far as the host has not seen to that.
    ///
    /// # Errors
    /// The host's words on what is not allowed.
    #[inline(never)]
    pub fn judge(
        &self,
        known: &Known,
        ctx: Ctx<'_>,
        call: &Call<'_>,
        in_unit: bool,
    ) -> Result<(), Vec<u8>> {
        let id = ctx.client_id();
        // A unit may change its user half way, and a script's client has a number of its own.
        if !in_unit
            && let Some(too_kind) = self.kept.lock().as_ref().and_then(|kept| kept.get(&id))
            && !too_kind.has(call.command)
        {
            return Ok(());
        }
        let (name, is_real) = match rights::asker(ctx) {
            Asker::Client(name) => (name, true),
            Asker::Other(name) => (name, false),
            Asker::Nobody => return Ok(()),
        };
        // A user that another module has made for itself is not on the host's list: what the host
        // says of it holds.
        let verdict = known.with(ctx.locked(), &name, |seen| {
            if is_real && !in_unit && self.changes_are_seen(ctx.locked()) {
                self.keep(id, seen.host_is_too_kind);
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
        log_refusal(ctx, &refusal);
        Err(text)
    }

    fn keep(&self, id: u64, too_kind: Commands) {
        let mut kept = self.kept.lock();
        let kept = kept.get_or_insert_default();
        if kept.len() >= DOOR_CLIENTS_KEPT {
            kept.clear();
        }
        kept.insert(id, too_kind);
    }

    fn changes_are_seen(&self, locked: Locked<'_>) -> bool {
        let any_renamed =
            || ["auth", "hello", "reset", "exec"].into_iter().any(|name| is_renamed(locked, name));
        *self.changes_are_seen.get_or_init(|| !any_renamed())
    }
}

/// Whether the user's rules may allow less than the host does.
fn may_differ(locked: Locked<'_>, name: &[u8]) -> bool {
    let text = HostText::of_user(locked, name);
    let rules = text.map_or_else(Vec::new, |text| Description::read(text.bytes()).rules);
    rules.iter().any(|rules| rules.begins_with_all() && !rules.is_all())
}
