//! The rights of a user, checked without asking the host.

use crate::command::glob::Pattern;
use crate::command::{
    Access, Args, COMMANDS, Command, Error, QUESTIONS, SubscriptionKind, Walk, question,
    subcommand_numbers,
};

/// A user and its rights.
#[derive(Clone, Default)]
pub struct User {
    /// The user's name.
    pub name: Box<[u8]>,
    /// Changes with every change to the host's user, including its passwords.
    pub revision: u64,
    /// Distinguishes users of the same name, of which one was deleted.
    pub(super) born: u64,
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
    pub databases: Option<Databases>,
    /// Patterns of channels; `None` is every channel.
    pub channels: Option<Vec<Pattern>>,
}

/// Databases that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Databases {
    /// Their numbers.
    pub allowed: Vec<u32>,
    /// How many databases there are. Others are for a command to refuse.
    pub count: u32,
}

impl Databases {
    fn allow(&self, db: u32) -> bool {
        db >= self.count || self.allowed.contains(&db)
    }
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

/// A set of commands: a bit for each [question](crate::command::Question). The bit of a row with
/// subcommands is set if those of all its subcommands are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commands([u64; Commands::WORDS]);

impl Commands {
    /// How many words the bits take.
    pub const WORDS: usize = QUESTIONS.div_ceil(64);

    /// The commands of the table for which `is_in` returns true.
    pub fn of(is_in: impl Fn(&Command) -> bool) -> Self {
        let mut commands = Commands::default();
        let rows = COMMANDS.iter().enumerate().filter(|(_, row)| is_in(row));
        rows.for_each(|(number, _)| commands.allow(number));
        commands
    }

    /// The bits: that of number `n` is in word `n / 64`, at bit `n % 64`.
    pub fn words(self) -> [u64; Commands::WORDS] {
        self.0
    }

    /// Adds the command with this number.
    pub fn allow(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// Adds the rows of which all subcommands are in the set.
    pub fn allow_whole_rows(&mut self) {
        for row in 0..COMMANDS.len() {
            let mut subcommands = subcommand_numbers(row).peekable();
            if subcommands.peek().is_some() && subcommands.all(|number| self.has(number)) {
                self.allow(row);
            }
        }
    }

    /// Removes the commands of another set.
    pub fn remove(&mut self, other: Commands) {
        self.0.iter_mut().zip(other.0).for_each(|(bits, others)| *bits &= !others);
    }

    /// Adds the commands of another set.
    pub fn add(&mut self, other: Commands) {
        self.0.iter_mut().zip(other.0).for_each(|(bits, others)| *bits |= others);
    }

    /// Whether the command with this number is in the set.
    #[inline]
    pub fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 != 0)
    }
}

/// A right that a user lacks. Ordered: the greatest, which is the most specific, is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// Call this command.
    Command,
    /// Call a command of this name, which does a part of the same.
    Part(&'static str),
    /// Use this database.
    Database,
    /// Access the key that is this argument.
    Key(usize),
    /// Use the channel that is this argument.
    Channel(usize),
}

/// Valkey's text; Redis has no such rules.
const NO_DATABASE: &[u8] = b"NOPERM No permissions to access database";

/// Redis's text.
const NO_CHANNEL: &[u8] =
    b"NOPERM this user has no permissions to access one of the channels used as arguments";

fn no_command(name: &str) -> Vec<u8> {
    format!("NOPERM this user has no permissions to run the '{name}' command").into_bytes()
}

impl Denied {
    /// Whether it is about a key.
    pub fn is_of_key(self) -> bool {
        matches!(self, Denied::Key(_))
    }

    /// Redis's error text, for a command of this name.
    pub fn text(self, name: &str, args: &Args<'_>) -> Vec<u8> {
        match self {
            Denied::Command => no_command(name),
            Denied::Part(name) => no_command(name),
            Denied::Key(_) => Error::NoPermission.text(name, args),
            Denied::Database => NO_DATABASE.to_vec(),
            Denied::Channel(_) => NO_CHANNEL.to_vec(),
        }
    }
}

impl User {
    /// A user of this name.
    pub fn new(name: &[u8], rules: Vec<Rules>) -> Self {
        let is_unlimited = |rules: &&Rules| rules.keys.is_none() && rules.databases.is_none();
        let mut anywhere = Commands::default();
        rules.iter().filter(is_unlimited).for_each(|rules| anywhere.add(rules.commands));
        // Each of these needs the rights to other commands, or to channels, too.
        anywhere.remove(Commands::of(|row| row.walk.is_some() || row.names_channels()));
        User { name: name.into(), revision: 0, born: 0, rules, anywhere }
    }

    /// The same user with other sets of commands.
    pub fn with_commands(&self, commands: impl IntoIterator<Item = Commands>) -> Self {
        let rules = self.rules.iter().cloned().zip(commands);
        let rules = rules.map(|(rules, commands)| Rules { commands, ..rules }).collect();
        User { revision: self.revision, born: self.born, ..User::new(&self.name, rules) }
    }

    /// Whether the user may run this command.
    ///
    /// # Errors
    /// The right that is missing: as in Redis, if any rules allow the command, the last key that
    /// any of them checked.
    #[inline]
    pub fn check(&self, number: usize, args: &Args<'_>, db: u32) -> Result<(), Denied> {
        if self.anywhere.has(number) { Ok(()) } else { self.check_rules(number, args, db) }
    }

    /// Whether rules of the user still allow a subscription that it has.
    pub fn may_hear(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let is_pattern = kind == SubscriptionKind::Pattern;
        self.rules.iter().any(|rules| rules.allow_channel(name, is_pattern))
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
        // The command refuses a subcommand that it does not have.
        let Some(asked) = question(number, args) else { return Ok(()) };
        self.any(asked, |rules| rules.check(row, args, db))?;
        row.walk.map_or(Ok(()), |walk| self.check_walk(walk, args, db))
    }

    /// Whether any of the rules that allow this command pass `check`.
    fn any(
        &self,
        question: usize,
        check: impl Fn(&Rules) -> Result<(), Denied>,
    ) -> Result<(), Denied> {
        let mut worst = Denied::Command;
        for rules in self.rules.iter().filter(|rules| rules.commands.has(question)) {
            match check(rules) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Whether the user may take all steps of a walk on all keys that it may find. So the verdict
    /// does not tell which of them are there.
    fn check_walk(&self, walk: &Walk, args: &Args<'_>, db: u32) -> Result<(), Denied> {
        let keys = (walk.keys)(args);
        (walk.steps)(args).iter().try_for_each(|step| {
            let covers = |rule: &KeyRule| rule.allows(step.access) && rule.pattern.covers(&keys);
            let checked = self.any(step.question(), |rules| {
                rules.check_db(db)?;
                if rules.on_any_key(covers) { Ok(()) } else { Err(Denied::Key(walk.argument)) }
            });
            checked.map_err(|denied| match denied {
                Denied::Command => Denied::Part(step.command),
                denied => denied,
            })
        })
    }

    /// Whether the user may take these steps on this key: the numbers of the questions about their
    /// commands, and how they access the key.
    pub fn may_take(&self, steps: &[(usize, Access)], key: &[u8], db: u32) -> bool {
        steps.iter().all(|&(question, access)| {
            let allowed = self.any(question, |rules| {
                rules.check_db(db)?;
                if rules.allow_key(key, access) { Ok(()) } else { Err(Denied::Key(1)) }
            });
            allowed.is_ok()
        })
    }
}

impl Rules {
    fn check(&self, row: &Command, args: &Args<'_>, db: u32) -> Result<(), Denied> {
        if row.touches_db() {
            self.check_db(db)?;
            self.check_keys(row, args)?;
        }
        self.check_channels(row, args)?;
        let may_use = |db| self.check_db(db).is_ok();
        if self.databases.is_none() || row.keeps_to(may_use, args, db) {
            Ok(())
        } else {
            Err(Denied::Database)
        }
    }

    fn check_channels(&self, row: &Command, args: &Args<'_>) -> Result<(), Denied> {
        let Some(named) = row.channels(args) else { return Ok(()) };
        let is_denied = |name: &&[u8]| !self.allow_channel(name, named.are_patterns);
        let denied = named.names.iter().position(is_denied);
        denied.map_or(Ok(()), |at| Err(Denied::Channel(named.first + at)))
    }

    /// A pattern of channels is allowed by the rule with the same pattern only, as in Redis.
    fn allow_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        let allows = |rule: &Pattern| if is_pattern { rule.is(name) } else { rule.matches(name) };
        self.channels.as_ref().is_none_or(|rules| rules.iter().any(allows))
    }

    fn check_db(&self, db: u32) -> Result<(), Denied> {
        let may_use = self.databases.as_ref().is_none_or(|databases| databases.allow(db));
        if may_use { Ok(()) } else { Err(Denied::Database) }
    }

    fn check_keys(&self, row: &Command, args: &Args<'_>) -> Result<(), Denied> {
        if self.keys.is_none() {
            return Ok(());
        }
        let mut keys = row.key_positions(args).enumerate();
        let denied =
            keys.find(|&(number, at)| !self.allow_key(args.get(at), row.keys.access(number, args)));
        denied.map_or(Ok(()), |(_, at)| Err(Denied::Key(at)))
    }

    fn allow_key(&self, key: &[u8], access: Access) -> bool {
        self.on_any_key(|rule| rule.allows(access) && rule.pattern.matches(key))
    }

    /// Whether every key is allowed, or a rule on keys passes `is_enough`.
    fn on_any_key(&self, is_enough: impl Fn(&KeyRule) -> bool) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.iter().any(is_enough))
    }
}

impl KeyRule {
    fn allows(&self, access: Access) -> bool {
        (self.read || !access.reads()) && (self.write || !access.writes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str) -> usize {
        crate::command::number_of(name).expect("a command")
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
    fn channels_are_kept_to() {
        let commands = ["publish", "subscribe", "psubscribe", "unsubscribe"];
        let channels = [&b"a*"[..], b"b"].map(Pattern::strict).to_vec();
        let own = Rules { channels: Some(channels), ..rules(&commands, None) };
        let user = User::new(b"u", vec![own]);
        for (line, verdict) in [
            ("publish a1 c", Ok(())),
            ("publish c a1", Err(Denied::Channel(1))),
            ("subscribe a1 b", Ok(())),
            ("subscribe b c a1", Err(Denied::Channel(2))),
            ("psubscribe a*", Ok(())),
            ("psubscribe a1", Err(Denied::Channel(1))),
            ("unsubscribe c", Ok(())),
        ] {
            assert_eq!(check(&user, line), verdict, "{line}");
        }
        assert!(user.may_hear(SubscriptionKind::Shard, b"a"));
        assert!(!user.may_hear(SubscriptionKind::Pattern, b"a"));
        let user = User::new(b"u", vec![rules(&commands, None)]);
        assert_eq!(check(&user, "subscribe any"), Ok(()));
    }

    #[test]
    fn databases_are_kept_to() {
        let commands = ["get", "copy", "move", "swapdb", "flushdb", "flushall", "select", "help"];
        let mut here = rules(&commands, None);
        here.databases = Some(Databases { allowed: vec![0, 2], count: 16 });
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
            ("swapdb 0 99", Ok(())),
            ("select 2", Ok(())),
            ("select 1", Err(Denied::Database)),
            ("select 99", Ok(())),
            ("flushdb", Ok(())),
            ("flushall", Err(Denied::Database)),
        ] {
            assert_eq!(check(&user, line), verdict, "{line}");
        }
        assert_eq!(check_in(&user, 1, "get a"), Err(Denied::Database));
        assert_eq!(check_in(&user, 1, "help"), Ok(()), "it touches no data");
        assert_eq!(check_in(&user, 1, "select 2"), Ok(()));
    }
}
