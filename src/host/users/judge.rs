//! Which commands a set of rules allows. What its rules on commands come to, the host says itself:
//! a user of our own gets them, and all keys, and the host is asked about one command after the
//! other. So categories, subcommands and their order are judged as the host judges them.

use super::super::PREFIX;
use super::super::acl::{HostUser, MayCall};
use super::super::string::OwnString;
use super::text::RulesText;
use crate::command::{COMMANDS, Command, Doors};
use crate::engine::{Commands, Locked};

/// What a set of rules comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What may be called.
    pub allowed: Commands,
    /// What the host alone would allow, although these rules do not: see [`verdict`].
    pub host_is_too_kind: Commands,
}

/// Judges a set of rules. What the ports alone have is allowed where the host allows its own of
/// that name; any other command where the host allows `midi.x`, and
///
/// * allows its native twin as well, so that what the rules say of `x`, or of a category of it,
///   holds for midi also where the host knows nothing of the categories of `midi.x` (Redis 7.0), or
/// * the rules name it (`+midi.x`), or allow nothing but what they name (`-@all`).
pub fn verdict(locked: Locked<'_>, rules: &RulesText) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(judge) = Judge::new(locked, rules) else { return verdict };
    for (number, row) in COMMANDS.iter().enumerate() {
        if row.doors == Doors::Port {
            if judge.allows(row.name) {
                verdict.allowed.allow(number);
            }
            continue;
        }
        let name = format!("{PREFIX}{}", row.name);
        if !judge.allows(&name) {
            continue;
        }
        let named = !rules.begins_with_all() || rules.names(format!("+{name}").as_bytes());
        if named || judge.allows_twin(row) {
            verdict.allowed.allow(number);
        } else {
            verdict.host_is_too_kind.allow(number);
        }
    }
    verdict
}

/// A user of the host's that nobody else knows, to be asked about commands.
struct Judge<'l> {
    user: HostUser<'l>,
    all: bool,
}

/// Hosts from 8.6 on judge no command with a wrong number of arguments: so many are tried.
const ARGUMENTS_MOST: usize = 8;

/// Stands for any argument. No rule on first arguments names it.
const ARGUMENT: &[u8] = b"";

impl<'l> Judge<'l> {
    /// `None` where the host does not take the rules back, which should not be.
    fn new(locked: Locked<'l>, rules: &RulesText) -> Option<Self> {
        let judge = Judge { user: HostUser::unknown(locked), all: rules.is_all() };
        let own = [&b"on"[..], b"allkeys"].into_iter();
        let known =
            own.chain(rules.commands.iter().map(Vec::as_slice)).all(|rule| judge.user.set(rule));
        // Not every host knows it.
        judge.user.set(b"alldbs");
        known.then_some(judge)
    }

    fn allows_twin(&self, row: &Command) -> bool {
        let own_name = [row.name];
        let twins = if row.twins.is_empty() { &own_name[..] } else { row.twins };
        twins.iter().find_map(|name| self.asks(name)).unwrap_or(self.all)
    }

    /// Whether the command may be called; `container|sub` is a subcommand.
    fn allows(&self, name: &str) -> bool {
        // A subcommand that this host lacks is as good as the command. Any other that it lacks may
        // be called by whoever may call all that there will be.
        let container = || self.asks(name.split_once('|')?.0);
        self.asks(name).or_else(container).unwrap_or(self.all)
    }

    /// `None` where the host has no such command.
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
