//! Users of the host, as the ports know them: the rights of each, checked without asking the host.
//! The host's main thread keeps the list. Workers look users up in it when its *epoch* has changed,
//! and keep the users that they found.

mod refusals;
mod user;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use refusals::Refusals;
pub use refusals::{Refusal, RefusalReason};
pub use user::{Commands, Databases, Denied, KeyRule, Rules, User};

use crate::sync::Locked;

/// A password's SHA-256 sum in hexadecimal digits, as the host keeps it. Making one costs more than
/// comparing two: workers make them, even if the name is unknown.
pub struct PasswordSum([u8; 64]);

impl PasswordSum {
    /// The sum of this password.
    pub fn of(password: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut sum = [0; 64];
        for (digits, byte) in sum.chunks_exact_mut(2).zip(Sha256::digest(password)) {
            digits
                .copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        PasswordSum(sum)
    }

    /// The digits.
    pub fn digits(&self) -> &[u8] {
        &self.0
    }

    /// Whether the sums are equal. The time that the comparison takes reveals nothing about them.
    pub fn is(&self, known: &[u8]) -> bool {
        self.0.ct_eq(known).into()
    }
}

/// The list of users.
#[derive(Default)]
pub struct Users {
    /// Odd while the host's rules may have changed and the list is not up to date.
    epoch: AtomicU64,
    /// Whether a client that does not log in is the user `default`.
    default_is_open: AtomicBool,
    /// Users that were added to the list so far.
    born: AtomicU64,
    known: Mutex<HashMap<Box<[u8]>, Arc<User>>>,
    /// Refusals that the host has not been told of.
    pub(super) refusals: Refusals,
}

/// The first epoch of a list that was read.
const FIRST_READ: u64 = 2;

/// The user of clients that have not logged in.
pub const DEFAULT_USER: &[u8] = b"default";

impl Users {
    /// Changes with every change to the host's rules. If it is odd, wait until it is even again.
    /// Acquire: a thread that reads a new epoch finds the new list.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether the list has been read since the start.
    #[inline]
    pub fn are_known(&self) -> bool {
        self.epoch() >= FIRST_READ
    }

    /// Whether the rules may have changed since the list was last updated.
    pub fn are_stale(&self) -> bool {
        Users::is_stale(self.epoch())
    }

    /// Whether this is the epoch of a list that is out of date, perhaps.
    pub fn is_stale(epoch: u64) -> bool {
        epoch % 2 == 1
    }

    /// The host's rules may be about to change. AcqRel: a thread that finds the mark also finds the
    /// list as of the last epoch.
    pub fn mark_stale(&self, _: Locked<'_>) {
        self.epoch.fetch_or(1, Ordering::AcqRel);
    }

    /// Updates the known users of these names, or all, with `look`, because their rules may have
    /// changed. Sets whether `default`, which is on the list from now on, needs no password. A
    /// `replaced` user that has changed becomes another user of the same name: see
    /// [`Users::find_again`].
    pub fn refresh<'a>(
        &self,
        locked: Locked<'_>,
        default_is_open: bool,
        names: Option<impl Iterator<Item = &'a [u8]>>,
        replaced: impl Fn(&[u8]) -> bool,
        look: impl Fn(&[u8]) -> Option<User>,
    ) {
        let look_again = |name: &[u8], user: &mut Arc<User>| match look(name) {
            Some(now) if now.revision == user.revision => true,
            Some(mut now) => {
                now.born = if replaced(name) { self.next_born() } else { user.born };
                *user = Arc::new(now);
                true
            }
            None => false,
        };
        let mut known = self.known.lock();
        match names {
            None => known.retain(|name, user| look_again(name, user)),
            Some(names) => names.for_each(|name| {
                if known.get_mut(name).is_some_and(|user| !look_again(name, user)) {
                    known.remove(name);
                }
            }),
        }
        drop(known);
        // A thread that reads the new epoch must find this user.
        self.find_or_look(locked, DEFAULT_USER, look);
        self.default_is_open.store(default_is_open, Ordering::Relaxed);
        let next = self.epoch().next_multiple_of(2);
        // It is a change even if the list was not marked before. Release: a thread that reads the
        // new epoch finds the new list.
        self.epoch.store(if next == self.epoch() { next + 2 } else { next }, Ordering::Release);
    }

    /// Whether clients need not log in.
    pub fn default_is_open(&self) -> bool {
        self.default_is_open.load(Ordering::Relaxed)
    }

    /// A user that is on the list.
    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.known.lock().get(name).cloned()
    }

    /// A user of the host: found on the list, or added to it.
    pub fn find_or_look(
        &self,
        _: Locked<'_>,
        name: &[u8],
        look: impl Fn(&[u8]) -> Option<User>,
    ) -> Option<Arc<User>> {
        if let Some(user) = self.find(name) {
            return Some(user);
        }
        let mut user = look(name)?;
        user.born = self.next_born();
        let user = Arc::new(user);
        self.known.lock().insert(name.into(), Arc::clone(&user));
        Some(user)
    }

    /// The user with its current rules; `None` if it was deleted. A new user of that name is
    /// another user; the connection is then closed.
    pub fn find_again(&self, user: &User) -> Option<Arc<User>> {
        self.find(&user.name).filter(|now| now.born == user.born)
    }

    fn next_born(&self) -> u64 {
        self.born.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;
    use crate::engine::Rules;
    use crate::sync::LOCKED;

    const ALL: Option<std::iter::Empty<&[u8]>> = None;

    fn number(name: &str) -> usize {
        find(name.as_bytes()).expect("a command")
    }

    /// A look that finds a user with the right to one command.
    fn user(revision: u64, command: &str) -> impl Fn(&[u8]) -> Option<User> + Copy {
        let number = number(command);
        move |name: &[u8]| {
            let mut rules = Rules::default();
            rules.commands.allow(number);
            let mut user = User::new(name, vec![rules]);
            user.revision = revision;
            Some(user)
        }
    }

    #[test]
    fn the_list_tells_users_of_one_name_apart() {
        let users = Users::default();
        let (one, two, three) = (user(1, "get"), user(2, "set"), user(3, "set"));
        let found = users.find_or_look(LOCKED, b"u", one).expect("a user");
        users.mark_stale(LOCKED);
        assert!(users.are_stale());
        users.refresh(LOCKED, false, ALL, |_| true, one);
        assert!(!users.are_stale());
        assert!(users.find_again(&found).is_some(), "it is what it was");
        users.refresh(LOCKED, false, ALL, |name| name == b"other", two);
        let changed = users.find_again(&found).expect("the same user with other rules");
        assert!(changed.may_anywhere(number("set")) && !changed.may_anywhere(number("get")));
        users.refresh(LOCKED, false, ALL, |name| name == b"u", three);
        assert!(users.find_again(&changed).is_none(), "another of that name, with the same rules");
        assert!(users.find(b"u").is_some());
        let others = [&b"v"[..]].into_iter();
        users.refresh(LOCKED, true, Some(others), |_| false, |_| None);
        assert!(users.find(b"u").is_some(), "nobody has asked for this one");
        users.refresh(LOCKED, true, ALL, |_| false, |_| None);
        assert!(users.find(b"u").is_none());
        assert!(users.default_is_open());
    }

    #[test]
    fn every_look_is_another_epoch() {
        let users = Users::default();
        let first = users.epoch();
        users.refresh(LOCKED, false, ALL, |_| false, |_| None);
        let second = users.epoch();
        users.mark_stale(LOCKED);
        users.mark_stale(LOCKED);
        users.refresh(LOCKED, false, ALL, |_| false, |_| None);
        assert!(first < second && second < users.epoch() && !users.are_stale());
    }
}
