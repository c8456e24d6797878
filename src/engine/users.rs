//! Users of the host, as the ports know them: what each may do, checked without asking the host.
//! The host's main thread keeps the list. Workers look users up in it when its *epoch* has changed,
//! and keep what they found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::command::glob::Pattern;
use crate::command::{Access, Args, COMMANDS, Error, Keys};
use crate::sync::Locked;

/// What a user may do.
#[derive(Clone, Default)]
pub struct User {
    /// The user's name.
    pub name: Box<[u8]>,
    /// Changes with every change to the host's user, including its passwords.
    pub revision: u64,
    /// Distinguishes users of the same name, of which one was deleted.
    born: u64,
    /// A match of any one is enough. The first are the user's own rules, the others selectors.
    rules: Vec<Rules>,
    /// The commands that at least one rule allows on all keys of all databases.
    anywhere: Commands,
}

/// Rules that apply together: the same set must allow a command and all its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The commands that may be called.
    pub commands: Commands,
    /// The keys that may be accessed; `None` is every key.
    pub keys: Option<Vec<KeyRule>>,
    /// The databases; `None` is every one.
    pub databases: Option<Vec<u32>>,
}

/// A pattern of keys, and the access that it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// The keys.
    pub pattern: Pattern,
    /// Whether they may be read.
    pub read: bool,
    /// Whether they may be written.
    pub write: bool,
}

/// A set of commands: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commands([u64; COMMANDS.len().div_ceil(64)]);

impl Commands {
    /// Adds the command with this number in [`COMMANDS`].
    pub fn allow(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// Adds the commands of another set.
    pub fn add(&mut self, other: Commands) {
        self.0.iter_mut().zip(other.0).for_each(|(bits, others)| *bits |= others);
    }

    /// Whether the command with this number in [`COMMANDS`] is in the set.
    #[inline]
    pub fn has(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 != 0
    }
}

/// What a user may not do. Ordered: the greatest, which is the most specific, is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// Call this command.
    Command,
    /// Use this database.
    Database,
    /// Access the key that is this argument.
    Key(usize),
}

/// Valkey's text; Redis has no such rules.
const NO_DATABASE: &[u8] = b"NOPERM No permissions to access database";

impl Denied {
    /// Redis's error text, for a command of this name.
    pub fn text(self, name: &str, args: &Args<'_>) -> Vec<u8> {
        match self {
            Denied::Command => {
                format!("NOPERM this user has no permissions to run the '{name}' command")
                    .into_bytes()
            }
            Denied::Key(_) => Error::NoPermission.text(name, args),
            Denied::Database => NO_DATABASE.to_vec(),
        }
    }
}

impl User {
    /// A user of this name.
    pub fn new(name: &[u8], rules: Vec<Rules>) -> Self {
        let mut anywhere = Commands::default();
        for rules in rules.iter().filter(|rules| rules.keys.is_none() && rules.databases.is_none())
        {
            anywhere.add(rules.commands);
        }
        User { name: name.into(), revision: 0, born: 0, rules, anywhere }
    }

    /// Whether the user may run this command.
    ///
    /// # Errors
    /// What is denied: as in Redis, if any rules allow the command, the last key that any of them
    /// checked.
    #[inline]
    pub fn check(&self, number: usize, args: &Args<'_>, db: u32) -> Result<(), Denied> {
        if self.anywhere.has(number) { Ok(()) } else { self.check_rules(number, args, db) }
    }

    /// Whether the user may run this command on every key of every database.
    #[inline]
    pub fn may_anywhere(&self, number: usize) -> bool {
        self.anywhere.has(number)
    }

    #[cold]
    fn check_rules(&self, number: usize, args: &Args<'_>, db: u32) -> Result<(), Denied> {
        let row = COMMANDS[number];
        if row.flags.no_auth {
            return Ok(());
        }
        // A command that accesses no data needs no database either.
        let touches = !row.is_of_ports() || row.keys != Keys::None;
        let mut worst = Denied::Command;
        for rules in self.rules.iter().filter(|rules| rules.commands.has(number)) {
            if !touches {
                return Ok(());
            }
            let elsewhere =
                rules.databases.as_ref().is_some_and(|allowed| !row.keeps_to(allowed, args, db));
            match rules.check_keys(row.keys, args, db) {
                Ok(()) if elsewhere => worst = worst.max(Denied::Database),
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Whether the user may select this database.
    pub fn may_use(&self, db: u32) -> bool {
        self.rules
            .iter()
            .any(|rules| rules.databases.as_ref().is_none_or(|allowed| allowed.contains(&db)))
    }
}

impl Rules {
    fn check_keys(&self, keys: Keys, args: &Args<'_>, db: u32) -> Result<(), Denied> {
        if self.databases.as_ref().is_some_and(|allowed| !allowed.contains(&db)) {
            return Err(Denied::Database);
        }
        let Some(allowed) = &self.keys else { return Ok(()) };
        for (number, at) in keys.positions(args).enumerate() {
            let access = keys.access(number, args);
            if !allowed.iter().any(|rule| rule.allows(args.get(at), access)) {
                return Err(Denied::Key(at));
            }
        }
        Ok(())
    }
}

impl KeyRule {
    fn allows(&self, key: &[u8], access: Access) -> bool {
        (self.read || !access.reads())
            && (self.write || !access.writes())
            && self.pattern.matches(key)
    }
}

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
}

/// The user of clients that have not logged in.
pub const DEFAULT_USER: &[u8] = b"default";

impl Users {
    /// Changes with every change to the host's rules. If it is odd, wait until it is even again.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether the rules may have changed since the list was last updated.
    pub fn are_stale(&self) -> bool {
        Users::is_stale(self.epoch())
    }

    /// Whether this is the epoch of a list that is out of date, perhaps.
    pub fn is_stale(epoch: u64) -> bool {
        epoch % 2 == 1
    }

    /// The host's rules may be about to change.
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
        // It is a change even if the list was not marked before.
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
        let user = Arc::new(User { born: self.next_born(), ..look(name)? });
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
    use crate::sync::LOCKED;

    const ALL: Option<std::iter::Empty<&[u8]>> = None;

    fn number(name: &str) -> usize {
        find(name.as_bytes()).expect("a command")
    }

    /// Rules for some commands, and for keys as the host writes them.
    fn rules(commands: &[&str], keys: Option<&[&str]>) -> Rules {
        let mut rules = Rules::default();
        commands.iter().for_each(|name| rules.commands.allow(number(name)));
        rules.keys = keys.map(|keys| keys.iter().map(|rule| key_rule(rule)).collect());
        rules
    }

    fn key_rule(rule: &str) -> KeyRule {
        let (rights, pattern) = rule.split_once('~').expect("a tilde");
        KeyRule {
            pattern: Pattern::strict(pattern.as_bytes()),
            read: rights != "%W",
            write: rights != "%R",
        }
    }

    fn check_in(user: &User, db: u32, line: &str) -> Result<(), Denied> {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        user.check(number(line.split(' ').next().expect("a name")), &Args::new(&args), db)
    }

    fn check(user: &User, line: &str) -> Result<(), Denied> {
        check_in(user, 0, line)
    }

    #[test]
    fn all_keys_are_no_question_of_keys() {
        let user = User::new(b"u", vec![rules(&["get"], None)]);
        assert_eq!(check(&user, "get any"), Ok(()));
        assert_eq!(check(&user, "set any v"), Err(Denied::Command));
        assert_eq!(check(&User::new(b"u", vec![]), "get any"), Err(Denied::Command));
    }

    #[test]
    fn keys_are_read_or_written() {
        let commands = ["get", "set", "append", "getdel", "del", "exists", "copy", "rename"];
        let user = User::new(b"u", vec![rules(&commands, Some(&["~a*", "%R~r*", "%W~w*"]))]);
        for (line, verdict) in [
            ("get a1", Ok(())),
            ("get r1", Ok(())),
            ("get w1", Err(Denied::Key(1))),
            ("append w1 v", Ok(())),
            ("append r1 v", Err(Denied::Key(1))),
            ("getdel a1", Ok(())),
            ("getdel r1", Err(Denied::Key(1))),
            ("getdel w1", Err(Denied::Key(1))),
            ("exists w1 r1", Ok(())),
            ("exists w1 x", Err(Denied::Key(2))),
            ("copy r1 w1", Ok(())),
            ("copy w1 w2", Err(Denied::Key(1))),
            ("copy r1 r2", Err(Denied::Key(2))),
            ("rename a1 w1", Ok(())),
            ("rename r1 a1", Err(Denied::Key(1))),
        ] {
            assert_eq!(check(&user, line), verdict, "{line}");
        }
    }

    #[test]
    fn one_set_of_rules_must_allow_all_of_it() {
        let selectors = vec![
            rules(&["get", "mget"], Some(&["~a"])),
            rules(&["mget"], Some(&["~a", "~b", "~c"])),
        ];
        let user = User::new(b"u", selectors);
        assert_eq!(check(&user, "get a"), Ok(()));
        assert_eq!(check(&user, "get b"), Err(Denied::Key(1)));
        assert_eq!(check(&user, "mget a b c"), Ok(()));
        // The last key that any of them checked, in whatever order.
        assert_eq!(check(&user, "mget a b c d"), Err(Denied::Key(4)));
        assert_eq!(check(&user, "mget d"), Err(Denied::Key(1)));
        assert_eq!(check(&user, "set a v"), Err(Denied::Command));
    }

    #[test]
    fn databases_are_kept_to() {
        let commands = ["get", "copy", "move", "swapdb", "flushdb", "flushall"];
        let mut here = rules(&commands, None);
        here.databases = Some(vec![0, 2]);
        let user = User::new(b"u", vec![here]);
        for (line, verdict) in [
            ("get a", Ok(())),
            ("copy a b", Ok(())),
            ("copy a b DB 2 REPLACE", Ok(())),
            ("copy a b DB 1", Err(Denied::Database)),
            ("copy a b DB x", Ok(())),
            ("move a 2", Ok(())),
            ("move a 1", Err(Denied::Database)),
            ("swapdb 0 2", Ok(())),
            ("swapdb 0 1", Err(Denied::Database)),
            ("flushdb", Ok(())),
            ("flushall", Err(Denied::Database)),
        ] {
            assert_eq!(check(&user, line), verdict, "{line}");
        }
        assert_eq!(check_in(&user, 1, "get a"), Err(Denied::Database));
        assert!(user.may_use(2) && !user.may_use(1));
    }

    #[test]
    fn the_list_tells_users_of_one_name_apart() {
        let users = Users::default();
        let user = |revision, command| {
            move |name: &[u8]| {
                Some(User { revision, ..User::new(name, vec![rules(&[command], None)]) })
            }
        };
        let (one, two, three) = (user(1, "get"), user(2, "set"), user(3, "set"));
        let found = users.find_or_look(LOCKED, b"u", one).expect("a user");
        users.mark_stale(LOCKED);
        assert!(users.are_stale());
        users.refresh(LOCKED, false, ALL, |_| true, one);
        assert!(!users.are_stale());
        assert!(users.find_again(&found).is_some(), "it is what it was");
        users.refresh(LOCKED, false, ALL, |name| name == b"other", two);
        let changed = users.find_again(&found).expect("the same user with other rules");
        assert!(check(&changed, "set a v").is_ok());
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
