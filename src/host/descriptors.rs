//! File descriptors for the ports. The host's event loop takes those below
//! `maxclients` + 128, and refuses a client of its own whose descriptor is higher.
//! So the ports' are higher, and the process may open so many more.

use std::sync::atomic::Ordering;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::api::{Ctx, Level, log};
use super::{config, door::door};
use crate::limits::{DESCRIPTORS_DIVISOR, DESCRIPTORS_MIN, DESCRIPTORS_SPARE};
use crate::shard::Settings;

/// Descriptors of the host's that are no client's, as it reckons itself.
const HOST_SPARE: usize = 128;

/// Between the host's and ours.
const MARGIN: usize = 16;

/// Makes room for the ports' clients, before the ports are opened. Where the system does not give that many,
/// `midi.maxclients` is lowered, and in the last resort the ports share the host's.
pub fn reserve(ctx: Ctx, settings: &Settings) {
    let wanted = config::max_clients();
    let first = first(ctx);
    let enough = first + wanted + DESCRIPTORS_SPARE;
    let limit = raise(enough);
    let (first, possible) = share(limit, first, wanted);
    settings.port.first_descriptor.store(first, Ordering::Relaxed);
    if possible < wanted {
        config::lower_max_clients(settings, possible);
        let text = format!(
            "midi: no room for {wanted} clients of the port: this process may have {limit} files open, those of \
             the server's own clients included. midi.maxclients is {possible} now; 'ulimit -n {enough}' would do."
        );
        log(ctx, Level::Warning, &text);
    }
}

/// With so many files at most: the ports' first descriptor, and how many clients they may have.
fn share(limit: usize, first: usize, wanted: usize) -> (usize, usize) {
    let above = limit.saturating_sub(first + DESCRIPTORS_SPARE);
    let least = (limit / DESCRIPTORS_DIVISOR).max(DESCRIPTORS_MIN);
    let possible = above.max(least).min(wanted);
    (first.min(limit.saturating_sub(possible + DESCRIPTORS_SPARE)), possible)
}

/// The same while the ports are open: the host's `maxclients` may have changed.
pub fn refresh(ctx: Ctx) {
    let settings = &door().engine.settings;
    let first_now = settings.port.first_descriptor.load(Ordering::Relaxed);
    if first_now != 0 && first_now != first(ctx) {
        reserve(ctx, settings);
    }
}

/// Makes room for so many clients, where the ports are open.
///
/// # Errors
/// What to tell whoever wants that many.
pub fn make_room(clients: usize) -> Result<(), String> {
    if !super::door::opened() {
        return Ok(());
    }
    let first = door().engine.settings.port.first_descriptor.load(Ordering::Relaxed);
    if first == 0 {
        return Ok(());
    }
    let limit = raise(first + clients + DESCRIPTORS_SPARE);
    let possible = limit.saturating_sub(first + DESCRIPTORS_SPARE);
    if clients <= possible {
        return Ok(());
    }
    Err(format!("the operating system gives out descriptors for {possible} clients of the port"))
}

/// The lowest descriptor that the host has no use for.
fn first(ctx: Ctx) -> usize {
    let clients = ctx.config_number(c"maxclients").and_then(|clients| usize::try_from(clients).ok());
    clients.unwrap_or(config::max_clients()) + HOST_SPARE + MARGIN
}

/// Lets the process have so many files open, or as many as it may; how many those are.
fn raise(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // None is "as many as you like".
    let now = limit.current.map_or(usize::MAX, |now| now as usize);
    if now >= wanted {
        return now;
    }
    let hard = limit.maximum.map_or(usize::MAX, |hard| hard as usize);
    let more = |current: usize, maximum: Option<u64>| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current as u64), maximum }).is_ok()
    };
    // Above the hard limit only a privileged process can go.
    if more(wanted, Some(hard.max(wanted) as u64).filter(|_| limit.maximum.is_some())) {
        wanted
    } else if hard < wanted && more(hard, limit.maximum) {
        hard
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_take_what_the_host_has_no_use_for() {
        assert_eq!(share(usize::MAX, 10_144, 10_000), (10_144, 10_000));
        assert_eq!(share(20_208, 10_144, 10_000), (10_144, 10_000));
        assert_eq!(share(15_000, 10_144, 10_000), (10_144, 4792), "fewer clients");
        assert_eq!(share(10_032, 10_144, 10_000), (8714, 1254), "an eighth of the host's");
        assert_eq!(share(10_032, 10_144, 5), (9963, 5));
        assert_eq!(share(128, 1000, 10_000), (32, 32), "a few at least");
        assert_eq!(share(16, 1000, 10_000), (0, 32));
    }
}
