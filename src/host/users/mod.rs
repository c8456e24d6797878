//! The host's users, for the ports and, on hosts that do not judge module commands by categories, for the
//! host's door: passwords, and rules in midi's own form.
//!
//! A user is read from the text that the host keeps of it (RM_GetModuleUserACLString), so no ACL command is
//! called, and none need be there. [`text`] reads it, [`judge`] asks the host what the rules come to,
//! [`changes`] finds out when to look again and [`touched`] at whom, [`at_door`] judges commands at the host's door.

pub mod at_door;
pub mod changes;
mod judge;
mod text;
mod touched;

use std::ffi::CString;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use redis_module::raw;

use super::acl::HostUser;
use super::api::Ctx;
use super::string::OwnString;
use crate::limits::JUDGED_RULES_KEPT;
use crate::shard::{Commands, DEFAULT_USER, Locked, PasswordSum, Refusal, RefusalReason, Rules, User};
use judge::Verdict;
use text::{Description, RulesText};

/// What was last seen of the users that somebody asked for, by name.
static SEEN: LazyLock<Mutex<HashMap<Box<[u8]>, Seen>>> = LazyLock::new(Mutex::default);

/// A user as it was when it was last looked at.
struct Seen {
    text: HostText,
    user: User,
    /// Commands of the table that the host allows under some rules that do not allow them.
    host_is_too_kind: Commands,
}

impl Seen {
    fn read(locked: Locked<'_>, name: &[u8], text: HostText) -> Self {
        static REVISIONS: AtomicU64 = AtomicU64::new(1);
        let description = Description::read(text.bytes());
        let all_keys =
            description.rules.iter().any(RulesText::may_be_all_keys) && may_touch_empty_key(locked, name);
        let mut host_is_too_kind = Commands::default();
        let rules = description.rules.into_iter().map(|rules| {
            let verdict = judged(locked, &rules);
            host_is_too_kind.add(verdict.host_is_too_kind);
            let keys = if all_keys && rules.may_be_all_keys() { None } else { Some(rules.keys) };
            Rules { commands: verdict.allowed, keys, databases: rules.databases }
        });
        let mut user = User::new(name, rules.collect());
        user.revision = REVISIONS.fetch_add(1, Ordering::Relaxed);
        Seen { text, user, host_is_too_kind }
    }
}

/// The host's text of a user. It makes a new one with every change, and with every user that it makes: as long
/// as this one is kept, another at the same address would be the same.
struct HostText(OwnString);

// SAFETY: kept in `SEEN`, which is looked at under the global lock only.
unsafe impl Send for HostText {}

impl PartialEq for HostText {
    fn eq(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

impl HostText {
    /// `None` where there is no such user.
    fn of_user(locked: Locked<'_>, name: &[u8]) -> Option<Self> {
        HostUser::of_name(locked, name)?.text().map(HostText)
    }

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Whether the user may read and write the key with the empty name.
fn may_touch_empty_key(locked: Locked<'_>, name: &[u8]) -> bool {
    HostUser::of_name(locked, name).is_some_and(|user| user.may_touch(OwnString::new(b"").get()))
}

/// What those rules on commands come to. Most users share them with others.
fn judged(locked: Locked<'_>, rules: &RulesText) -> Verdict {
    static JUDGED: LazyLock<Mutex<HashMap<Vec<Vec<u8>>, Verdict>>> = LazyLock::new(Mutex::default);
    let mut judged = JUDGED.lock();
    if let Some(verdict) = judged.get(&rules.commands) {
        return *verdict;
    }
    let verdict = judge::verdict(locked, rules);
    if judged.len() >= JUDGED_RULES_KEPT {
        judged.clear();
    }
    judged.insert(rules.commands.clone(), verdict);
    verdict
}

/// Calls `with` with what is known of a user, looked at anew where it has changed; `None` where there is no such
/// user.
fn with_seen<R>(locked: Locked<'_>, name: &[u8], with: impl FnOnce(&Seen) -> R) -> Option<R> {
    let mut seen = SEEN.lock();
    let Some(text) = HostText::of_user(locked, name) else {
        seen.remove(name);
        return None;
    };
    if seen.get(name).is_none_or(|seen| seen.text != text) {
        seen.insert(name.into(), Seen::read(locked, name, text));
    }
    seen.get(name).map(with)
}

/// What a user may do; `None` where there is no such user.
pub fn look(locked: Locked<'_>, name: &[u8]) -> Option<User> {
    with_seen(locked, name, |seen| seen.user.clone())
}

/// Whether that is the user's password. The host waits, so it is quick: no more is done for any name.
pub fn authenticate(locked: Locked<'_>, name: &[u8], password: &PasswordSum) -> bool {
    let text = HostText::of_user(locked, name);
    text::lets_in(text.as_ref().map_or(NOBODY, HostText::bytes), password)
}

/// Where there is no such user, this one is asked for its password: it takes as long.
const NOBODY: &[u8] =
    b"off #0000000000000000000000000000000000000000000000000000000000000000 resetchannels -@all";

/// Puts a refusal on the host's list, ACL LOG.
pub fn refused(ctx: Ctx<'_>, refusal: &Refusal) {
    let reason = match refusal.reason {
        RefusalReason::Auth => raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_AUTH,
        RefusalReason::Command => raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CMD,
        RefusalReason::Key => raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_KEY,
    };
    // What follows a NUL is not a user's name.
    let name = refusal.user.split(|&byte| byte == 0).next().unwrap_or_default();
    let Ok(name) = CString::new(name) else { return };
    // One that lives for this call only: there may be none of that name, or none any more.
    HostUser::new(ctx.locked(), &name).was_refused(ctx, &refusal.object, reason);
}

/// Whether clients need not say who they are.
fn default_is_open(locked: Locked<'_>) -> bool {
    let text = HostText::of_user(locked, DEFAULT_USER);
    text.is_some_and(|text| {
        let user = Description::read(text.bytes());
        user.on && user.open
    })
}

/// Forgets users that have changed, or are gone: whoever asks for them looks anew. Those of these names, or all;
/// whether there were any.
fn forget_changed<'a>(locked: Locked<'_>, names: Option<impl Iterator<Item = &'a [u8]>>) -> bool {
    let mut seen = SEEN.lock();
    let before = seen.len();
    let is_the_same =
        |name: &[u8], seen: &Seen| HostText::of_user(locked, name).is_some_and(|text| text == seen.text);
    match names {
        None => seen.retain(|name, seen| is_the_same(name, seen)),
        Some(names) => names.for_each(|name| {
            if seen.get(name).is_some_and(|seen| !is_the_same(name, seen)) {
                seen.remove(name);
            }
        }),
    }
    seen.len() < before
}
