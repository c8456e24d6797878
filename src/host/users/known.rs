//! A cache of the users that have been asked for, as last read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;
use midi_module_api as raw;
use parking_lot::Mutex;

use super::super::acl::HostUser;
use super::super::instance::instance;
use super::super::state::part;
use super::super::string::OwnString;
use super::judge::{self, Verdict};
use super::text::{self, Description, RulesText};
use crate::command::Command;
use crate::engine::{Commands, DEFAULT_USER, Databases, Locked, PasswordSum, Rules, User};
use crate::limits::JUDGED_RULES_KEPT;

part! {
    /// Users as last read, and what their rules allow.
    pub struct Known {
        /// By name.
        seen: LazyLock<Mutex<HashMap<Box<[u8]>, Seen>>> = LazyLock::new(Mutex::default),
        /// The verdict on each list of command rules. Most users share theirs with others.
        judged: LazyLock<Mutex<HashMap<Vec<Vec<u8>>, Verdict>>> = LazyLock::new(Mutex::default),
        /// How many users have been read.
        revisions: AtomicU64 = AtomicU64::new(1),
    }
}

/// A user as last read.
pub struct Seen {
    text: HostText,
    /// Its rights at the ports.
    pub user: Arc<User>,
    /// Its rights at the host's door.
    pub at_door: Arc<User>,
    /// Commands of the table that the host may allow although the user's rules do not.
    pub open: Commands,
}

impl Known {
    /// Calls `with` with a user, which is read again if it has changed. `None` if there is no such
    /// user.
    pub fn with<R>(
        &self,
        locked: Locked<'_>,
        name: &[u8],
        with: impl FnOnce(&Seen) -> R,
    ) -> Option<R> {
        let mut seen = self.seen.lock();
        let Some(text) = HostText::of_user(locked, name) else {
            seen.remove(name);
            return None;
        };
        if seen.get(name).is_none_or(|seen| seen.text != text) {
            seen.insert(name.into(), self.read(locked, name, text));
        }
        seen.get(name).map(with)
    }

    fn read(&self, locked: Locked<'_>, name: &[u8], text: HostText) -> Seen {
        let description = Description::read(text.bytes());
        let all_keys = description.rules.iter().any(RulesText::may_be_all_keys)
            && may_touch_empty_key(locked, name);
        let verdicts: Vec<Verdict> =
            description.rules.iter().map(|rules| self.judge(locked, rules)).collect();
        let open = left_open(&description, &verdicts);
        let rules = description.rules.into_iter().zip(&verdicts).map(|(rules, verdict)| {
            let channels = rules.some_channels();
            let keys = if all_keys && rules.may_be_all_keys() { None } else { Some(rules.keys) };
            let count = instance().engine.config().databases;
            let databases = rules.databases.map(|allowed| Databases { allowed, count });
            Rules { commands: verdict.allowed, keys, databases, channels }
        });
        let mut user = User::new(name, rules.collect());
        user.revision = self.revisions.fetch_add(1, Ordering::Relaxed);
        let user = Arc::new(user);
        let is_same = |verdict: &Verdict| verdict.host_is_too_kind == Commands::default();
        let at_door = if lacks_categories() || verdicts.iter().all(is_same) {
            Arc::clone(&user)
        } else {
            Arc::new(user.with_commands(verdicts.iter().map(Verdict::of_host)))
        };
        Seen { text, user, at_door, open }
    }

    fn judge(&self, locked: Locked<'_>, rules: &RulesText) -> Verdict {
        let mut judged = self.judged.lock();
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

    /// Forgets users that have changed or are gone, so that they are read again when asked for:
    /// those of `names`, or all if `None`. True if there were any.
    pub fn forget_changed<'a>(
        &self,
        locked: Locked<'_>,
        names: Option<impl Iterator<Item = &'a [u8]>>,
    ) -> bool {
        let mut seen = self.seen.lock();
        let before = seen.len();
        let is_the_same = |name: &[u8], seen: &Seen| {
            HostText::of_user(locked, name).is_some_and(|text| text == seen.text)
        };
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
}

/// The commands on which the host's verdict at its own door is not the last word.
fn left_open(description: &Description, verdicts: &[Verdict]) -> Commands {
    let mut open = walks();
    if lacks_categories() {
        verdicts.iter().for_each(|verdict| open.add(verdict.host_is_too_kind));
    }
    if description.rules.iter().any(|rules| rules.databases.is_some()) {
        open.add(other_databases());
    }
    open
}

/// Commands that find keys themselves: the host does not know which.
pub fn walks() -> Commands {
    Commands::of(|row| row.walk.is_some())
}

/// Commands that touch other databases than the client's: the host does not know which.
pub fn other_databases() -> Commands {
    Commands::of(Command::leaves_its_db)
}

/// Whether this host has no categories for module commands.
pub fn lacks_categories() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_SetCommandACLCategories }.is_none()
}

/// The host's text of a user. The host makes a new string for every change, and for every user that
/// it creates. While this one is kept its address is not reused: the same address means the same
/// text.
pub struct HostText(OwnString);

// SAFETY: kept in `Known`, which is used under the global lock only.
unsafe impl Send for HostText {}

impl PartialEq for HostText {
    fn eq(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

impl HostText {
    /// The text of user `name`; `None` if there is no such user.
    pub fn of_user(locked: Locked<'_>, name: &[u8]) -> Option<Self> {
        HostUser::of_name(locked, name)?.text().map(HostText)
    }

    /// The bytes of the text.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Whether the user may read and write the key with the empty name.
fn may_touch_empty_key(locked: Locked<'_>, name: &[u8]) -> bool {
    HostUser::of_name(locked, name).is_some_and(|user| user.may_touch(OwnString::new(b"").get()))
}

/// Whether `password` is the user's. The main thread waits for this, so it is quick and does
/// nothing else, whatever the name.
pub fn authenticate(locked: Locked<'_>, name: &[u8], password: &PasswordSum) -> bool {
    let text = HostText::of_user(locked, name);
    text::lets_in(text.as_ref().map_or(NOBODY, HostText::bytes), password)
}

/// Whether there is a user of this name that may log in.
pub fn is_on(locked: Locked<'_>, name: &[u8]) -> bool {
    HostText::of_user(locked, name).is_some_and(|text| Description::read(text.bytes()).on)
}

/// Used if there is no such user, so that the answer takes as long.
const NOBODY: &[u8] =
    b"off #0000000000000000000000000000000000000000000000000000000000000000 resetchannels -@all";

/// Whether clients need not log in: the default user is on and needs no password.
pub fn default_is_open(locked: Locked<'_>) -> bool {
    let text = HostText::of_user(locked, DEFAULT_USER);
    text.is_some_and(|text| {
        let user = Description::read(text.bytes());
        user.on && user.open
    })
}
