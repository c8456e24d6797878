//! Clients that import keys: on Valkey from 8.1 on, with `import-mode yes`, CLIENT IMPORT-SOURCE ON
//! lets a client see keys whose expiry has passed. The API does not tell which clients have sent
//! it, so the host's CLIENT LIST is asked. The answer is kept until a client may have changed it.

use super::api::Ctx;
use super::instance::instance;
use crate::command::{number_of, withdraw};
use crate::engine::Gates;
use crate::limits::DOOR_CLIENTS_KEPT;

/// In OnLoad: the ports have CLIENT IMPORT-SOURCE if the host has an `import-mode`, as far as it
/// can be asked.
pub fn prepare(ctx: Ctx<'_>) {
    let number = number_of("client|import-source");
    if let Some(number) = number.filter(|_| ctx.config_text(c"import-mode").is_none()) {
        withdraw(number);
    }
}

/// A client may be about to become a source, or to be none any more: CLIENT IMPORT-SOURCE, RESET,
/// or EXEC with one of these.
pub fn may_change() {
    if instance().engine.gates().has(Gates::IMPORTING) {
        *instance().import_sources.lock() = None;
    }
}

/// Whether the client of this context is a source. Within an EXEC it may change with each command.
/// A script's client has a number of its own and is none, as is any client of a host whose CLIENT
/// command is renamed.
#[inline]
pub fn is_one(ctx: Ctx<'_>, in_unit: bool) -> bool {
    instance().engine.gates().has(Gates::IMPORTING) && ask(ctx, in_unit)
}

#[cold]
fn ask(ctx: Ctx<'_>, in_unit: bool) -> bool {
    let id = ctx.client_id();
    if !in_unit
        && let Some(&known) =
            instance().import_sources.lock().as_ref().and_then(|known| known.get(&id))
    {
        return known;
    }
    let line = ctx.call(c"CLIENT", &[b"LIST", b"ID", id.to_string().as_bytes()]).text();
    let is_source = line.is_some_and(|line| has_flag(&line, b'I'));
    if !in_unit {
        let mut known = instance().import_sources.lock();
        let known = known.get_or_insert_default();
        if known.len() >= DOOR_CLIENTS_KEPT {
            known.clear();
        }
        known.insert(id, is_source);
    }
    is_source
}

/// Whether a line of CLIENT LIST has this letter among its flags. A client's name has no spaces.
fn has_flag(line: &[u8], flag: u8) -> bool {
    line.split(|&byte| byte == b' ')
        .find_map(|field| field.strip_prefix(b"flags="))
        .is_some_and(|flags| flags.contains(&flag))
}
