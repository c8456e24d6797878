//! The host's users, for the ports: passwords, and rules in the ports' own form.
//!
//! A user is read from ACL GETUSER. What its rules on commands come to, the host says
//! itself: a user of our own gets them, and all keys, and is asked about one command after
//! the other. So categories, subcommands and their order are judged as the host judges them.

use std::ffi::CString;
use std::io;
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::Mutex;
use redis_module::raw;
use sha2::{Digest, Sha256};

use super::api::{Answer, Ctx, RawString, api, bytes, string};
use super::door::{PREFIX, door};
use super::unit::filter_arg;
use crate::command::glob::Pattern;
use crate::command::{COMMANDS, PORT_COMMANDS};
use crate::limits::USERS_NOTICED_EVERY;
use crate::shard::{Commands, DEFAULT_USER, KeyRule, Refusal, RefusalReason, Rules, User};

/// A user as ACL GETUSER describes it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Description {
    /// May log in.
    on: bool,
    /// Needs no password.
    open: bool,
    /// SHA-256 sums in hexadecimal digits.
    passwords: Vec<Vec<u8>>,
    /// The user's own rules, and then each selector.
    rules: Vec<RulesText>,
}

/// Rules that belong together, in the host's words.
#[derive(Debug, Default, PartialEq, Eq)]
struct RulesText {
    commands: Vec<u8>,
    keys: Vec<u8>,
    /// `None` where the host has no such rules.
    databases: Option<Vec<u8>>,
}

impl Description {
    fn of_user(ctx: Ctx, name: &[u8]) -> Option<Self> {
        Description::read(ctx.call(c"ACL", &[b"GETUSER", name]))
    }

    fn read(answer: Answer) -> Option<Self> {
        let Answer::List(fields) = answer else { return None };
        let mut description = Description { rules: vec![RulesText::default()], ..Description::default() };
        for (name, value) in pairs(fields) {
            match (&*name, value) {
                (b"flags", flags) => {
                    let flags = texts(flags);
                    description.on = flags.iter().any(|flag| flag == b"on");
                    description.open = flags.iter().any(|flag| flag == b"nopass");
                }
                (b"passwords", passwords) => description.passwords = texts(passwords),
                (b"selectors", selectors) => {
                    for selector in selectors.list() {
                        let mut rules = RulesText::default();
                        pairs(selector.list()).for_each(|(name, value)| rules.note(&name, value));
                        description.rules.push(rules);
                    }
                }
                (name, value) => description.rules[0].note(name, value),
            }
        }
        Some(description)
    }

    fn has_password(&self, password: &[u8]) -> bool {
        let hexadecimal: String = Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect();
        // All are looked at to their ends: how long that takes tells nothing of them.
        self.passwords.iter().fold(false, |found, known| found | same(known, hexadecimal.as_bytes()))
    }
}

impl RulesText {
    fn note(&mut self, name: &[u8], value: Answer) {
        match (name, value) {
            (b"commands", Answer::Text(text)) => self.commands = text,
            (b"keys", Answer::Text(text)) => self.keys = text,
            (b"databases", Answer::Text(text)) => self.databases = Some(text),
            _ => {}
        }
    }

    fn rules(&self) -> Rules {
        Rules { commands: allowed(&self.commands), keys: key_rules(&self.keys), databases: self.databases() }
    }

    /// `alldbs`, or `db=` and numbers.
    fn databases(&self) -> Option<Vec<u32>> {
        let text = self.databases.as_ref().filter(|text| *text != b"alldbs")?;
        let words = words(text).filter_map(|word| word.strip_prefix(b"db="));
        let numbers = words.flat_map(|list| list.split(|&byte| byte == b','));
        Some(numbers.filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok()).collect())
    }
}

/// Names and values in turn.
fn pairs(list: Vec<Answer>) -> impl Iterator<Item = (Vec<u8>, Answer)> {
    let mut list = list.into_iter();
    std::iter::from_fn(move || Some((list.next()?.text()?, list.next()?)))
}

fn texts(answer: Answer) -> Vec<Vec<u8>> {
    answer.list().into_iter().filter_map(Answer::text).collect()
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Patterns as ACL LIST writes them; `~*` alone is every key.
fn key_rules(text: &[u8]) -> Option<Vec<KeyRule>> {
    if text == b"~*" {
        return None;
    }
    Some(words(text).filter_map(key_rule).collect())
}

fn key_rule(word: &[u8]) -> Option<KeyRule> {
    let (read, write, pattern) = match word {
        [b'~', pattern @ ..] => (true, true, pattern),
        [b'%', b'R', b'~', pattern @ ..] => (true, false, pattern),
        [b'%', b'W', b'~', pattern @ ..] => (false, true, pattern),
        _ => return None,
    };
    Some(KeyRule { pattern: Pattern::strict(pattern), read, write })
}

/// The commands that these rules allow.
fn allowed(rules: &[u8]) -> Commands {
    let mut commands = Commands::default();
    let Some(judge) = Judge::new(rules) else { return commands };
    for (number, row) in COMMANDS.iter().enumerate() {
        if judge.allows(&format!("{PREFIX}{}", row.name)) {
            commands.allow(number);
        }
    }
    for (number, row) in PORT_COMMANDS.iter().enumerate() {
        if judge.allows(row.name) {
            commands.allow_port(number);
        }
    }
    commands
}

/// A user of the host's that nobody else knows, to be asked about commands.
struct Judge {
    user: *mut raw::RedisModuleUser,
    all: bool,
}

impl Judge {
    /// `None` where the host does not take the rules back, which should not be.
    fn new(rules: &[u8]) -> Option<Self> {
        // SAFETY: under the global lock; freed by Drop.
        let user = unsafe { api!(RedisModule_CreateModuleUser)(c"midi".as_ptr()) };
        let judge = Judge { user, all: rules == b"+@all" };
        let known = [&b"on"[..], b"allkeys"].into_iter().chain(words(rules)).all(|rule| judge.set(rule));
        // Not every host knows it.
        judge.set(b"alldbs");
        known.then_some(judge)
    }

    fn set(&self, rule: &[u8]) -> bool {
        let Ok(rule) = CString::new(rule) else { return false };
        // SAFETY: our own user; the text ends with NUL.
        unsafe { api!(RedisModule_SetModuleUserACL)(self.user, rule.as_ptr()) == raw::REDISMODULE_OK as i32 }
    }

    /// Whether the command may be called; `container|sub` is a subcommand.
    fn allows(&self, name: &str) -> bool {
        let words: Vec<&str> = name.split('|').collect();
        match (self.asks(&words), &words[..]) {
            (Some(allowed), _) => allowed,
            // A subcommand that this host lacks is as good as the command.
            (None, [container, _]) => self.asks(&[container]).unwrap_or(self.all),
            // Any other that it lacks may be called by whoever may call all that there will be.
            (None, _) => self.all,
        }
    }

    /// `None` where the host has no such command.
    fn asks(&self, words: &[&str]) -> Option<bool> {
        let mut strings: Vec<*mut RawString> = words.iter().map(|word| string(word.as_bytes())).collect();
        // SAFETY: our own user and strings, each of which is freed once. The host tells
        // of an unknown command in errno.
        unsafe {
            let verdict = api!(RedisModule_ACLCheckCommandPermissions)(
                self.user,
                strings.as_mut_ptr(),
                strings.len() as i32,
            );
            let unknown = io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
            strings.into_iter().for_each(|string| free(string));
            if verdict == raw::REDISMODULE_OK as i32 { Some(true) } else { (!unknown).then_some(false) }
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and freed once.
        unsafe { api!(RedisModule_FreeModuleUser)(self.user) };
    }
}

/// # Safety
/// A string of [`string`]'s that nobody else has or frees.
unsafe fn free(string: *mut RawString) {
    // SAFETY: the caller's promise.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), string) };
}

/// What was last seen of the users that somebody asked for: all their rules, as ACL LIST
/// writes them, and what they came to.
static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);

/// See [`SEEN`]; by name.
type Seen = HashMap<Box<[u8]>, (Vec<u8>, User)>;

/// Whether a user was perhaps deleted, and made anew under the same name.
static REPLACED: AtomicBool = AtomicBool::new(false);

/// What a user may do; `None` where there is no such user. Under the global lock.
pub fn look(ctx: Ctx, name: &[u8]) -> Option<User> {
    let text = rules_text(name);
    let mut seen = SEEN.lock();
    if let (Some(text), Some((before, user))) = (&text, seen.get(name))
        && text == before
    {
        return Some(user.clone());
    }
    let Some(description) = Description::of_user(ctx, name) else {
        seen.remove(name);
        return None;
    };
    let rules = description.rules.iter().map(RulesText::rules).collect();
    let user = User::new(name, rules);
    if let Some(text) = text {
        seen.insert(name.into(), (text, user.clone()));
    }
    Some(user)
}

/// All rules of a user, as ACL LIST writes them. `None` where there is no such user, or
/// the host is so old that it does not tell; then every look is a long one.
fn rules_text(name: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: under the global lock; user and strings are freed once.
    unsafe {
        let describe = raw::RedisModule_GetModuleUserACLString?;
        let name = string(name);
        let user = api!(RedisModule_GetModuleUserFromUserName)(name);
        free(name);
        if user.is_null() {
            return None;
        }
        let text = describe(user);
        let copy = bytes(text).to_vec();
        free(text);
        api!(RedisModule_FreeModuleUser)(user);
        Some(copy)
    }
}

/// Whether that is the user's password. Under the global lock.
pub fn authenticate(ctx: Ctx, name: &[u8], password: &[u8]) -> bool {
    let Some(user) = Description::of_user(ctx, name) else { return false };
    let known = user.has_password(password);
    user.on && (user.open || known)
}

/// Puts a refusal on the host's list, ACL LOG. Under the global lock.
pub fn refused(ctx: Ctx, refusal: &Refusal) {
    let reason = match refusal.reason {
        RefusalReason::Auth => raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_AUTH,
        RefusalReason::Command => raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CMD,
        RefusalReason::Key => raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_KEY,
    };
    // What follows a NUL is not a user's name.
    let name = refusal.user.split(|&byte| byte == 0).next().unwrap_or_default();
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: the host copies the name of a user that lives for this call only (there may be
    // none of that name, or none any more) and the object.
    unsafe {
        let user = api!(RedisModule_CreateModuleUser)(name.as_ptr());
        let object = string(&refusal.object);
        api!(RedisModule_ACLAddLogEntry)(ctx.0, user, object, reason);
        free(object);
        api!(RedisModule_FreeModuleUser)(user);
    }
}

/// The host's users may be about to change; `replaced`: some may be gone then.
fn may_change(replaced: bool) {
    REPLACED.fetch_or(replaced, Ordering::Relaxed);
    let engine = &door().engine;
    engine.users.mark_stale();
    // Where a script keeps the main loop from turning, this is how we get to look again.
    engine.wake_main();
}

/// An ACL command is about to be executed, queued or refused.
pub fn before_acl(filter: *mut Filter) {
    let subcommand = filter_arg(filter, 1);
    let is = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
    let replaces = is(b"deluser") || is(b"load");
    if replaces || is(b"setuser") {
        before_change(filter, replaces);
    }
}

/// A CONFIG command is about to be executed, queued or refused.
pub fn before_config(filter: *mut Filter) {
    // SAFETY: the filter's own context.
    let count = unsafe { api!(RedisModule_CommandFilterArgsCount)(filter) };
    let mut names = (2..count).step_by(2).map(|number| filter_arg(filter, number));
    if filter_arg(filter, 1).eq_ignore_ascii_case(b"set")
        && names.any(|name| name.eq_ignore_ascii_case(b"requirepass"))
    {
        before_change(filter, false);
    }
}

fn before_change(filter: *mut Filter, replaces: bool) {
    // What an EXEC has changed is not to be taken for this one's.
    if NOTICE.load(Ordering::Relaxed) && !any_changed() {
        end_notice();
    }
    if queues(filter) {
        QUEUED.store(true, Ordering::Relaxed);
        let (client, mut queued) = (client_id(filter), QUEUED_BY.lock());
        let before = queued.iter().any(|&(other, replaces)| other == client && replaces);
        queued.retain(|(other, _)| *other != client);
        queued.truncate(QUEUED_BY_MAX - 1);
        queued.insert(0, (client, replaces | before));
    }
    may_change(replaces);
}

/// An EXEC is about to be executed: a change may have been queued in it.
pub fn before_exec(filter: *mut Filter) {
    if !QUEUED.load(Ordering::Relaxed) {
        return;
    }
    let client = client_id(filter);
    let mut queued = QUEUED_BY.lock();
    let Some(&(_, replaces)) = queued.iter().find(|(other, _)| *other == client) else { return };
    if client.is_none() {
        // Any EXEC may be the one. It is looked into before its client gets the reply.
        NOTICE_REPLACES.fetch_or(replaces, Ordering::Relaxed);
        NOTICE.store(true, Ordering::Relaxed);
    } else {
        queued.retain(|(other, _)| *other != client);
        may_change(replaces);
    }
}

type Filter = raw::RedisModuleCommandFilterCtx;

/// Whether any change of users may have been queued in a transaction.
static QUEUED: AtomicBool = AtomicBool::new(false);

/// Whose changes those are, the latest first, and whether they may replace users; `None` where
/// the host does not tell.
static QUEUED_BY: Mutex<Vec<(Option<u64>, bool)>> = Mutex::new(Vec::new());

/// Those before them, from so long ago, are noticed a moment late.
const QUEUED_BY_MAX: usize = 256;

/// An EXEC has come that may have changed users.
static NOTICE: AtomicBool = AtomicBool::new(false);

/// It may have replaced them, too.
static NOTICE_REPLACES: AtomicBool = AtomicBool::new(false);

/// Redis 7.2 and later tell.
fn client_id(filter: *mut Filter) -> Option<u64> {
    // SAFETY: the filter's own context.
    unsafe { raw::RedisModule_CommandFilterGetClientId.map(|ask| ask(filter)) }
}

/// Whether the command is one of a transaction's, or may be.
fn queues(filter: *mut Filter) -> bool {
    let Some(client) = client_id(filter) else { return true };
    // SAFETY: a structure of numbers and bytes, which says its version to the host; a client
    // that the host does not know queues nothing.
    unsafe {
        let mut client_info: raw::RedisModuleClientInfoV1 = std::mem::zeroed();
        client_info.version = u64::from(raw::REDISMODULE_CLIENTINFO_VERSION);
        let found = api!(RedisModule_GetClientInfoById)((&raw mut client_info).cast(), client);
        found == raw::REDISMODULE_OK as i32
            && client_info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_MULTI) != 0
    }
}

/// Looks at the known users again, where they may have changed. Under the global lock, and
/// before any reply of this turn of the main loop leaves the host.
#[inline]
pub fn refresh(ctx: Ctx) {
    if door().engine.users.are_stale() {
        look_again(ctx);
    }
    if NOTICE.load(Ordering::Relaxed) {
        notice_changes(ctx);
    }
}

#[cold]
fn look_again(ctx: Ctx) {
    let engine = &door().engine;
    let open = Description::of_user(ctx, DEFAULT_USER).is_some_and(|user| user.on && user.open);
    let replaced = REPLACED.swap(false, Ordering::Relaxed) | end_notice();
    engine.users.refresh(open, replaced, |name| look(ctx, name));
    engine.users.find_or_look(DEFAULT_USER, |name| look(ctx, name));
    engine.wake_ports();
}

/// Now and then: the filter does not see what another module does to a user, nor the ACL
/// command under another name.
pub fn on_cron(ctx: Ctx) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock();
    if last.is_none_or(|last| last.elapsed() >= USERS_NOTICED_EVERY) {
        *last = Some(Instant::now());
        notice_changes(ctx);
    }
}

fn notice_changes(ctx: Ctx) {
    if any_changed() {
        look_again(ctx);
    } else {
        end_notice();
    }
}

/// Whether any user's rules are others than when they were last looked at.
fn any_changed() -> bool {
    SEEN.lock().iter().any(|(name, (before, _))| rules_text(name).is_none_or(|now| now != *before))
}

/// What EXEC may have changed has been looked into; whether users may have been replaced by it.
fn end_notice() -> bool {
    NOTICE.store(false, Ordering::Relaxed);
    NOTICE_REPLACES.swap(false, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Answer {
        Answer::Text(text.into())
    }

    fn list(list: &[&str]) -> Answer {
        Answer::List(list.iter().map(|word| text(word)).collect())
    }

    #[test]
    fn a_user_is_read_from_the_hosts_reply() {
        let selector =
            list(&["commands", "+@all -del", "keys", "~x*", "channels", "", "databases", "db=3,12"]);
        let fields = vec![
            text("flags"),
            list(&["on", "nopass", "sanitize-payload"]),
            text("passwords"),
            list(&["00ff"]),
            text("commands"),
            text("-@all +get"),
            text("keys"),
            text("~a:* %R~b"),
            text("channels"),
            text("&*"),
            text("selectors"),
            Answer::List(vec![selector]),
        ];
        let user = Description::read(Answer::List(fields)).expect("a user");
        assert!(user.on && user.open);
        assert_eq!(user.passwords, [b"00ff"]);
        assert_eq!(user.rules[0].commands, b"-@all +get");
        assert_eq!(user.rules[0].databases(), None);
        assert_eq!(user.rules[1].commands, b"+@all -del");
        assert_eq!(user.rules[1].databases(), Some(vec![3, 12]));
        assert_eq!(Description::read(Answer::Other), None);
        let off = Description::read(Answer::List(vec![text("flags"), list(&["off"])])).expect("a user");
        assert!(!off.on && !off.open);
    }

    #[test]
    fn databases_are_all_some_or_none() {
        let databases = |text: Option<&str>| {
            RulesText { databases: text.map(|text| text.into()), ..RulesText::default() }.databases()
        };
        assert_eq!(databases(None), None);
        assert_eq!(databases(Some("alldbs")), None);
        assert_eq!(databases(Some("")), Some(vec![]));
        assert_eq!(databases(Some("resetdbs")), Some(vec![]));
        assert_eq!(databases(Some("db=0,1")), Some(vec![0, 1]));
    }

    #[test]
    fn key_patterns_have_their_rights() {
        let rule = |pattern: &str, read, write| KeyRule {
            pattern: Pattern::strict(pattern.as_bytes()),
            read,
            write,
        };
        assert_eq!(key_rules(b"~*"), None);
        assert_eq!(key_rules(b""), Some(vec![]));
        let expected = vec![
            rule("a:*", true, true),
            rule("*", true, false),
            rule("", false, true),
            rule("%R~x", true, true),
        ];
        assert_eq!(key_rules(b"~a:* %R~* %W~ ~%R~x"), Some(expected));
    }

    #[test]
    fn passwords_are_known_by_their_sums() {
        let sum = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
        let user = Description { passwords: vec![b"0".repeat(64), sum.into()], ..Description::default() };
        assert!(user.has_password(b"p"));
        assert!(!user.has_password(b"P"));
        assert!(!user.has_password(b""));
        assert!(!Description::default().has_password(b""));
    }
}
