//! `rename-command`: commands that the operator has renamed, or disabled by renaming them to
//! nothing. A disabled command must not come back through midi's ports.
//!
//! The host looks up commands by their new names, but its ACL rules use the old ones, and COMMAND
//! LIST shows the old names of all that can still be called. So a name that rules know and a
//! look-up does not was renamed; if the list does not have it either, it was disabled.

use std::sync::atomic::AtomicPtr;
use std::{iter, ptr};

use hashbrown::HashMap;
use midi_module_api as raw;
use parking_lot::Mutex;

use super::acl::{HostUser, MayCall};
use super::api::{Answer, Ctx, Level, log};
use super::context::Filtered;
use super::guarded;
use super::state::{Flag, part};
use super::string::OwnString;
use crate::command::{Action, COMMANDS, Command, Doors, withdraw};
use crate::engine::Locked;

/// Commands of the host that the filter must recognise, even if they are renamed.
const SEEN: [&str; 12] = [
    "acl", "client", "cluster", "config", "debug", "exec", "failover", "flushall", "multi", "save",
    "shutdown", "watch",
];

/// Any command that is not in [`SEEN`].
const ANOTHER: &str = "";

part! {
    /// The commands of [`SEEN`] and their names.
    pub struct Renamed {
        /// Whether any of them is renamed.
        any_seen: Flag = Flag::new(false),
        /// The meanings of names that clients have used, in lower case: a command of [`SEEN`], or
        /// [`ANOTHER`]. No more names than the host has commands.
        meanings: Mutex<Option<HashMap<Vec<u8>, &'static str>>> = Mutex::new(None),
        /// A user of ours that may call nothing, on any key.
        without_rights: AtomicPtr<raw::RedisModuleUser> = AtomicPtr::new(ptr::null_mut()),
    }
}

impl Renamed {
    /// Finds out whether any command of [`SEEN`] is renamed. In OnLoad.
    pub fn note_seen(&self, locked: Locked<'_>) {
        self.any_seen.set(SEEN.into_iter().any(|name| is_renamed(locked, name)));
    }

    /// The original name, if `name` is a renamed command of [`SEEN`]; else `name` itself.
    #[inline]
    pub fn meaning<'n>(&self, name: &'n [u8], command: Filtered<'_>) -> &'n [u8] {
        if self.any_seen.get() { guarded(name, || self.look_up(name, command)) } else { name }
    }

    #[cold]
    fn look_up<'n>(&self, name: &'n [u8], command: Filtered<'_>) -> &'n [u8] {
        let key = name.to_ascii_lowercase();
        let known = self.meanings.lock().get_or_insert_default().get(&key).copied();
        let Some(meaning) = known.or_else(|| self.ask(command)) else { return name };
        if known.is_none() {
            self.meanings.lock().get_or_insert_default().insert(key, meaning);
        }
        if meaning == ANOTHER { name } else { meaning.as_bytes() }
    }

    /// Finds the command of [`SEEN`] whose rule alone allows this call. `None` if the host has no
    /// such command, or the call is incomplete: the next one by this name may show it. Any client
    /// can cause that, as often as it likes, so no user is made for it: to free one takes the host
    /// longer the more clients it has.
    fn ask(&self, command: Filtered<'_>) -> Option<&'static str> {
        let words: Vec<_> =
            (0..command.count()).filter_map(|number| command.string(number)).collect();
        let locked = command.locked();
        // AUTH and similar commands are allowed to every user, whatever the rules.
        let user = HostUser::kept(locked, &self.without_rights, iter::once(&b"allkeys"[..]))?;
        match user.may_call(&words) {
            MayCall::Yes => return Some(ANOTHER),
            MayCall::No => {}
            MayCall::NoCommand | MayCall::WrongArity => return None,
        }
        let may_call = |name: &&str| {
            let user = HostUser::unknown(locked);
            for rule in [format!("+{name}").as_str(), "allkeys"] {
                user.set(rule.as_bytes());
            }
            user.may_call(&words) == MayCall::Yes
        };
        Some(SEEN.into_iter().find(may_call).unwrap_or(ANOTHER))
    }
}

/// Removes disabled commands from the ports, and logs those and the renamed ones. In OnLoad.
pub fn note_for_ports(ctx: Ctx<'_>) {
    let renamed: Vec<Twin> = twins().filter(|twin| is_renamed(ctx.locked(), twin.name)).collect();
    if renamed.is_empty() {
        return;
    }
    // If COMMAND is disabled too, the difference is unknown: then all of them count as disabled.
    let listed: Vec<Vec<u8>> =
        ctx.call(c"COMMAND", &[b"LIST"]).list().into_iter().filter_map(Answer::text).collect();
    let is_listed =
        |twin: &Twin| listed.iter().any(|name| name.eq_ignore_ascii_case(twin.name.as_bytes()));
    let (kept, gone): (Vec<Twin>, Vec<Twin>) = renamed.into_iter().partition(is_listed);
    gone.iter().for_each(|twin| withdraw(twin.number));
    log_twins(
        ctx,
        "rename-command disabled these commands on the server, and so on midi's port",
        &gone,
    );
    log_twins(
        ctx,
        "rename-command renamed these commands, which midi's port still knows by their old names",
        &kept,
    );
}

/// A command of the ports that the host may have too, under the same name.
struct Twin {
    name: &'static str,
    number: usize,
}

fn twins() -> impl Iterator<Item = Twin> {
    // A door command is midi's own, INFO too. A subcommand goes with its container.
    let is_named = |row: &Command| row.split().is_none() && row.doors != Doors::Memcached;
    let is_twin = move |row: &Command| !matches!(row.action, Action::Door(_)) && is_named(row);
    let rows = COMMANDS.iter().enumerate().filter(move |(_, row)| is_twin(row));
    rows.map(|(number, row)| Twin { name: row.name, number })
}

fn log_twins(ctx: Ctx<'_>, what: &str, twins: &[Twin]) {
    if !twins.is_empty() {
        let names: Vec<String> = twins.iter().map(|twin| twin.name.to_uppercase()).collect();
        log(ctx, Level::Warning, &format!("{what}: {}", names.join(", ")));
    }
}

/// Whether the host has this command, but under another name.
pub fn is_renamed(locked: Locked<'_>, name: &str) -> bool {
    // The user has no rights when the host is asked: else the host would look for keys after the
    // name.
    let (user, word) = (HostUser::unknown(locked), OwnString::new(name.as_bytes()));
    user.may_call(&[word.get()]) == MayCall::NoCommand && user.set(format!("+{name}").as_bytes())
}
