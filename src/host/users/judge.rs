//! Which commands a set of rules allows. The host itself decides what its rules on commands mean: a
//! private user of ours gets them, and all keys, and the host is asked about one command after the
//! other. So categories, subcommands and their order count as they do for the host.

use super::super::PREFIX;
use super::super::acl::{HostUser, MayCall};
use super::super::string::OwnString;
use super::text::RulesText;
use crate::command::{COMMANDS, Command, Doors, Question, questions};
use crate::engine::{Commands, Locked};

/// The commands that a set of rules allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The commands that may be called.
    pub allowed: Commands,
    /// The commands that the host alone would allow although these rules do not: see [`verdict`].
    pub host_is_too_kind: Commands,
}

impl Verdict {
    /// The commands that the host alone would allow.
    pub fn of_host(&self) -> Commands {
        let mut of_host = self.allowed;
        of_host.add(self.host_is_too_kind);
        of_host
    }
}

/// Judges a set of rules. A command that only the ports have, or that only the host has, is allowed
/// if the host allows its own of that name. Any other command is allowed if the host allows
/// `midi.x`, and
///
/// * also allows its native twin, so that rules on `x`, or on a category of it, hold for midi even
///   if the host knows no categories of `midi.x` (Redis 7.0), or
/// * the rules name it (`+midi.x`), or allow nothing but what they name (`-@all`).
///
/// The twin of a subcommand is the native subcommand: to the host `midi.object` is one command, and
/// `object|freq` another than `object|encoding`.
pub fn verdict(locked: Locked<'_>, rules: &RulesText) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(judge) = Judge::new(locked, rules) else { return verdict };
    for (number, question) in questions().enumerate() {
        let (host_allows, twin_allows) = judge.answers(question);
        if !host_allows {
            continue;
        }
        let is_named =
            |row: usize| rules.names(format!("+{PREFIX}{}", COMMANDS[row].name).as_bytes());
        let named = !rules.begins_with_all() || question.row().is_some_and(is_named);
        if named || twin_allows {
            verdict.allowed.allow(number);
        } else {
            verdict.host_is_too_kind.allow(number);
            question.row().into_iter().for_each(|row| verdict.host_is_too_kind.allow(row));
        }
    }
    verdict.allowed.allow_whole_rows();
    verdict
}

/// A private user of ours, for questions to the host about commands.
struct Judge<'l> {
    user: HostUser<'l>,
    all: bool,
}

/// Hosts from 8.6 on do not judge a command with a wrong number of arguments: up to this many words
/// are tried.
const ARGUMENTS_MOST: usize = 8;

/// A placeholder for any argument. No rule on first arguments names it.
const ARGUMENT: &[u8] = b"";

impl<'l> Judge<'l> {
    /// `None` if the host does not accept its own rules, which should not happen.
    fn new(locked: Locked<'l>, rules: &RulesText) -> Option<Self> {
        let judge = Judge { user: HostUser::unknown(locked), all: rules.is_all() };
        // Newer hosts judge channels, too.
        let own = [&b"on"[..], b"allkeys", b"allchannels"].into_iter();
        let known =
            own.chain(rules.commands.iter().map(Vec::as_slice)).all(|rule| judge.user.set(rule));
        // Not every host knows this rule.
        judge.user.set(b"alldbs");
        known.then_some(judge)
    }

    /// Whether the host allows the command, and whether it allows its native twin.
    fn answers(&self, question: Question) -> (bool, bool) {
        let of_midi = |row: &Command| self.allows(&format!("{PREFIX}{}", row.name));
        let both = |allows: bool| (allows, allows);
        match question {
            Question::OfHost(name) => both(self.allows(name)),
            Question::Subcommand(row, name) => {
                let row = COMMANDS[row];
                (of_midi(row), self.allows(&format!("{}|{name}", row.name)))
            }
            Question::Row(row) => match COMMANDS[row] {
                row if row.doors == Doors::Port => both(self.allows(row.name)),
                // The memcached port asks for the rights of the command that it stands for.
                row if row.doors == Doors::Memcached => both(false),
                // Its subcommands are asked about instead.
                row if row.subcommands.is_some() => both(false),
                row => (of_midi(row), self.allows_twin(row)),
            },
        }
    }

    fn allows_twin(&self, row: &Command) -> bool {
        let own_name = [row.name];
        let twins = if row.twins.is_empty() { &own_name[..] } else { row.twins };
        twins.iter().find_map(|name| self.asks(name)).unwrap_or(self.all)
    }

    /// Whether the command may be called; `container|sub` is a subcommand.
    fn allows(&self, name: &str) -> bool {
        // A subcommand that this host lacks counts as its container. Any other command that it
        // lacks is allowed to users that may call all commands, future ones too.
        let container = || self.asks(name.split_once('|')?.0);
        self.asks(name).or_else(container).unwrap_or(self.all)
    }

    /// `None` if the host has no such command.
    fn asks(&self, name: &str) -> Option<bool> {
        let mut words: Vec<OwnString> =
            name.split('|').map(|word| OwnString::new(word.as_bytes())).collect();
        loop {
            match self.user.may_call(&words.iter().map(OwnString::get).collect::<Vec<_>>()) {
                MayCall::WrongArity if words.len() < ARGUMENTS_MOST => {
                    words.push(OwnString::new(ARGUMENT))
                }
                MayCall::NoCommand | MayCall::WrongArity => return None,
                verdict => return Some(verdict == MayCall::Yes),
            }
        }
    }
}
