//! `rename-command`: what the host's operator has renamed, or taken away by renaming it to nothing. What was
//! taken away is not to come back through midi's ports.
//!
//! The host looks commands up by their new names, but its rules on users go by the old ones, and COMMAND LIST
//! shows those of all that can still be called. So: a name that rules know and a look-up does not was renamed; and
//! if the list does not have it either, it was taken away.

use std::ffi::c_int;
use std::io;

use redis_module::raw;

use super::api::{Answer, Ctx, Level, api, c_text, log, string};
use crate::command::{Action, COMMANDS, PORT_COMMANDS, withdraw, withdraw_port};

/// Has the ports forget what the host's operator has taken away, and logs what is renamed. In OnLoad.
pub fn note(ctx: Ctx) {
    let renamed: Vec<Twin> = twins().filter(|twin| is_renamed(twin.name)).collect();
    if renamed.is_empty() {
        return;
    }
    // Where COMMAND is gone too nobody can tell: then all of them count as taken away.
    let listed: Vec<Vec<u8>> =
        ctx.call(c"COMMAND", &[b"LIST"]).list().into_iter().filter_map(Answer::text).collect();
    let is_listed = |twin: &Twin| listed.iter().any(|name| name.eq_ignore_ascii_case(twin.name.as_bytes()));
    let (kept, gone): (Vec<Twin>, Vec<Twin>) = renamed.into_iter().partition(is_listed);
    gone.iter().for_each(|twin| (twin.withdraw)(twin.number));
    tell(ctx, "rename-command took from the server, and so from midi's port", &gone);
    tell(ctx, "rename-command gave another name to what midi's port still calls", &kept);
}

/// A command of the ports that the host may have too, under the same name.
struct Twin {
    name: &'static str,
    number: usize,
    withdraw: fn(usize),
}

fn twins() -> impl Iterator<Item = Twin> {
    // What needs the host's means is midi's own, its INFO too.
    let table = COMMANDS.iter().enumerate().filter(|(_, row)| !matches!(row.action, Action::Door(_)));
    let table = table.map(|(number, row)| Twin { name: row.name, number, withdraw });
    let ports = PORT_COMMANDS.iter().enumerate().filter(|(_, row)| row.split().is_none());
    table.chain(ports.map(|(number, row)| Twin { name: row.name, number, withdraw: withdraw_port }))
}

fn tell(ctx: Ctx, what: &str, twins: &[Twin]) {
    if !twins.is_empty() {
        let names: Vec<String> = twins.iter().map(|twin| twin.name.to_uppercase()).collect();
        log(ctx, Level::Warning, &format!("{what}: {}", names.join(", ")));
    }
}

/// Whether the host has such a command, but does not call it so.
fn is_renamed(name: &str) -> bool {
    let (rule, ok) = (c_text(&format!("+{name}")), raw::REDISMODULE_OK as c_int);
    // SAFETY: a user of our own, which nobody else sees, and a name; each is freed once. The user has no rights
    // when it is asked about: else the host would look for keys behind the name.
    unsafe {
        let (user, name) = (api!(RedisModule_CreateModuleUser)(c"midi".as_ptr()), string(name.as_bytes()));
        let mut words = [name];
        let refused = api!(RedisModule_ACLCheckCommandPermissions)(user, words.as_mut_ptr(), 1) != ok;
        let is_unknown = refused && io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
        let renamed = is_unknown && api!(RedisModule_SetModuleUserACL)(user, rule.as_ptr()) == ok;
        api!(RedisModule_FreeString)(std::ptr::null_mut(), name);
        api!(RedisModule_FreeModuleUser)(user);
        renamed
    }
}
