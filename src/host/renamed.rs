//! `rename-command`: what the host's operator has renamed, or taken away by renaming it to nothing.
//! What was taken away is not to come back through midi's ports.
//!
//! The host looks commands up by their new names, but its rules on users go by the old ones, and
//! COMMAND LIST shows those of all that can still be called. So: a name that rules know and a
//! look-up does not was renamed; and if the list does not have it either, it was taken away.

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::acl::{HostUser, MayCall};
use super::api::{Answer, Ctx, Level, log};
use super::context::Filtered;
use super::guarded;
use super::string::OwnString;
use crate::command::{Action, COMMANDS, Command, withdraw};
use crate::engine::Locked;

/// Commands of the host's that the filter must know, whatever they are called.
const SEEN: [&str; 5] = ["acl", "client", "config", "exec", "watch"];

/// Whether any of those is renamed.
static ANY_SEEN: AtomicBool = AtomicBool::new(false);

/// What the host's commands are, by the names that clients have called them by, in lower case: one
/// of [`SEEN`], or another. No more of them than the host has.
static MEANINGS: Mutex<Option<HashMap<Vec<u8>, &'static str>>> = Mutex::new(None);

/// Stands for all others.
const ANOTHER: &str = "";

/// Looks whether any command that the filter must know is renamed. In OnLoad.
pub fn note_seen(locked: Locked<'_>) {
    ANY_SEEN.store(SEEN.into_iter().any(|name| is_renamed(locked, name)), Ordering::Relaxed);
}

/// What is called by that name, where it may be one of [`SEEN`] under another; else the name
/// itself.
#[inline]
pub fn meaning<'n>(name: &'n [u8], command: Filtered<'_>) -> &'n [u8] {
    if ANY_SEEN.load(Ordering::Relaxed) { guarded(name, || look_up(name, command)) } else { name }
}

#[cold]
fn look_up<'n>(name: &'n [u8], command: Filtered<'_>) -> &'n [u8] {
    let key = name.to_ascii_lowercase();
    let known = MEANINGS.lock().get_or_insert_default().get(&key).copied();
    let Some(meaning) = known.or_else(|| ask(command)) else { return name };
    if known.is_none() {
        MEANINGS.lock().get_or_insert_default().insert(key, meaning);
    }
    if meaning == ANOTHER { name } else { meaning.as_bytes() }
}

/// Asks whether somebody who may call one of [`SEEN`] only may call this. `None` where this is no
/// whole command: the next one of its name may tell.
fn ask(command: Filtered<'_>) -> Option<&'static str> {
    // AUTH and its kin are everybody's, whatever the rules.
    if may_call(command, "allkeys") == MayCall::Yes {
        return Some(ANOTHER);
    }
    let mut whole = false;
    for name in SEEN {
        match may_call(command, &format!("+{name}")) {
            MayCall::Yes => return Some(name),
            verdict => whole |= verdict == MayCall::No,
        }
    }
    whole.then_some(ANOTHER)
}

/// Whether a user with that rule, who may touch all keys, may call the command that the filter
/// sees.
fn may_call(command: Filtered<'_>, rule: &str) -> MayCall {
    let words: Vec<_> = (0..command.count()).filter_map(|number| command.string(number)).collect();
    let user = HostUser::unknown(command.locked());
    for rule in [rule, "allkeys"] {
        user.set(rule.as_bytes());
    }
    user.may_call(&words)
}

/// Has the ports forget what the host's operator has taken away, and logs what is renamed. In
/// OnLoad.
pub fn note_for_ports(ctx: Ctx<'_>) {
    let renamed: Vec<Twin> = twins().filter(|twin| is_renamed(ctx.locked(), twin.name)).collect();
    if renamed.is_empty() {
        return;
    }
    // Where COMMAND is gone too nobody can tell: then all of them count as taken away.
    let listed: Vec<Vec<u8>> =
        ctx.call(c"COMMAND", &[b"LIST"]).list().into_iter().filter_map(Answer::text).collect();
    let is_listed =
        |twin: &Twin| listed.iter().any(|name| name.eq_ignore_ascii_case(twin.name.as_bytes()));
    let (kept, gone): (Vec<Twin>, Vec<Twin>) = renamed.into_iter().partition(is_listed);
    gone.iter().for_each(|twin| withdraw(twin.number));
    tell(ctx, "rename-command took from the server, and so from midi's port", &gone);
    tell(ctx, "rename-command gave another name to what midi's port still calls", &kept);
}

/// A command of the ports that the host may have too, under the same name.
struct Twin {
    name: &'static str,
    number: usize,
}

fn twins() -> impl Iterator<Item = Twin> {
    // What needs the host's means is midi's own, its INFO too. A subcommand goes with its
    // container.
    let is_twin = |row: &Command| !matches!(row.action, Action::Door(_)) && row.split().is_none();
    let rows = COMMANDS.iter().enumerate().filter(move |(_, row)| is_twin(row));
    rows.map(|(number, row)| Twin { name: row.name, number })
}

fn tell(ctx: Ctx<'_>, what: &str, twins: &[Twin]) {
    if !twins.is_empty() {
        let names: Vec<String> = twins.iter().map(|twin| twin.name.to_uppercase()).collect();
        log(ctx, Level::Warning, &format!("{what}: {}", names.join(", ")));
    }
}

/// Whether the host has such a command, but does not call it so.
pub fn is_renamed(locked: Locked<'_>, name: &str) -> bool {
    // The user has no rights when it is asked about: else the host would look for keys behind the
    // name.
    let (user, word) = (HostUser::unknown(locked), OwnString::new(name.as_bytes()));
    user.may_call(&[word.get()]) == MayCall::NoCommand && user.set(format!("+{name}").as_bytes())
}
