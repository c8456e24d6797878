//! File descriptors for the ports. The host's event loop takes those below `maxclients` + 128, and
//! refuses a client of its own whose descriptor is higher. So the ports use higher ones, and the
//! process's limit is raised by as many.

use std::sync::atomic::Ordering;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::api::{Ctx, Level, log};
use super::config::table as config;
use super::instance::{if_begun, instance};
use crate::engine::{ListenAt, PortConfig, Settings};
use crate::limits::{
    DESCRIPTORS_DIVISOR, DESCRIPTORS_MIN, DESCRIPTORS_OF_WORKER, DESCRIPTORS_SPARE,
};

/// Descriptors that the host reserves for other uses than clients.
const HOST_SPARE: usize = 128;

/// The gap between the host's descriptors and ours.
const MARGIN: usize = 16;

/// From the host's `maxclients` to the ports' first descriptor.
const ABOVE_HOST: usize = HOST_SPARE + MARGIN;

/// Descriptors that the host keeps free below the limit, for files and the like.
const HOST_FILES: usize = 32;

/// A `maxclients` that the host has lowered is at most this far below the limit: 32, and up to 16
/// more because it tries in steps of 16.
const HOST_LOWERED: usize = HOST_FILES + 16;

/// Redis's default of `maxclients`.
const HOST_CLIENTS_DEFAULT: usize = 10_000;

/// Reserves descriptors for the ports before they are opened, and before the workers of this number
/// have any.
pub fn prepare(ctx: Ctx<'_>, settings: &Settings, ports: &PortConfig, workers: usize) {
    let addresses = ports.listeners.iter().map(|row| match &row.at {
        ListenAt::Tcp { bind, .. } => bind.len(),
        ListenAt::Unix { .. } => 0,
    });
    let of_worker = DESCRIPTORS_OF_WORKER + addresses.sum::<usize>();
    let own = DESCRIPTORS_SPARE + workers * of_worker;
    settings.port.own_descriptors.store(own, Ordering::Relaxed);
    reserve(ctx, settings);
}

/// Reserves descriptors for the ports and their clients. If the system does not grant that many,
/// `midi.maxclients` is lowered; as a last resort the ports take some of the host's: see
/// [`leave_files`].
fn reserve(ctx: Ctx<'_>, settings: &Settings) {
    let (wanted, own) =
        (config::max_clients(), settings.port.own_descriptors.load(Ordering::Relaxed));
    let host = clients_of_host(ctx);
    let first = host + ABOVE_HOST;
    let limit = raise(first + wanted + own);
    let (first, possible) = share(limit, first, wanted, own);
    settings.port.first_descriptor.store(first, Ordering::Relaxed);
    if possible < wanted {
        config::lower_max_clients(settings, possible);
        let hint = hint(limit, host, wanted, own);
        let text = format!(
            "Too few file descriptors for {wanted} clients of the port: this process may open \
             {limit} files, including those of the server's own clients. midi.maxclients is now \
             {possible}; {hint}"
        );
        log(ctx, Level::Warning, &text);
    }
}

/// If the host's clients could take every descriptor below the ports' first one, lowers its
/// `maxclients`: it needs some for its files, and a client that finds none is not even refused. To
/// be called when the load can fail no more.
pub fn leave_files(ctx: Ctx<'_>, settings: &Settings) {
    let first = settings.port.first_descriptor.load(Ordering::Relaxed);
    let (host, possible) = (clients_of_host(ctx), first.saturating_sub(HOST_FILES).max(1));
    if first == 0 || possible >= host {
        return;
    }
    let done = ctx.set_config(c"maxclients", possible.to_string().as_bytes());
    let what = if done { "is now" } else { "cannot be set here. Set it to" };
    let text = format!(
        "Too few file descriptors for the server's clients beside those of the port. The server's \
         own maxclients, {host}, {what} {possible}."
    );
    log(ctx, Level::Warning, &text);
}

/// Names a limit that is enough when this one is not.
fn hint(limit: usize, host: usize, wanted: usize, own: usize) -> String {
    let enough = |host: usize| host + ABOVE_HOST + wanted + own;
    if host + HOST_LOWERED < limit {
        return format!("'ulimit -n {}' is enough.", enough(host));
    }
    // The host had too few itself, and does not report its original setting.
    let enough = enough(host.max(HOST_CLIENTS_DEFAULT));
    format!(
        "the server's own maxclients, {host}, was lowered for the same reason. 'ulimit -n \
         {enough}' is enough for both, unless redis.conf sets maxclients to more than \
         {HOST_CLIENTS_DEFAULT}."
    )
}

/// With at most `limit` open files, of which the ports need `own` besides those of their clients:
/// the ports' first descriptor, and how many clients they may have. The host keeps half of them.
fn share(limit: usize, first: usize, wanted: usize, own: usize) -> (usize, usize) {
    let above = limit.saturating_sub(first + own);
    let least = (limit / DESCRIPTORS_DIVISOR).max(DESCRIPTORS_MIN);
    let possible = above.max(least).min(wanted);
    (first.min(limit.saturating_sub(possible + own).max(limit / 2)), possible)
}

/// Reserves again while the ports are open: the host's `maxclients` may have changed.
pub fn refresh(ctx: Ctx<'_>) {
    let settings = instance().engine.settings();
    let first_now = settings.port.first_descriptor.load(Ordering::Relaxed);
    if first_now != 0 && first_now != clients_of_host(ctx) + ABOVE_HOST {
        reserve(ctx, settings);
        leave_files(ctx, settings);
    }
}

/// Raises the limit for `clients` clients of the ports, if the ports are open.
///
/// # Errors
/// The error text for CONFIG SET, if the system does not grant that many.
pub fn make_room(clients: usize) -> Result<(), String> {
    let Some(instance) = if_begun() else { return Ok(()) };
    let settings = &instance.engine.settings().port;
    let first = settings.first_descriptor.load(Ordering::Relaxed);
    let own = settings.own_descriptors.load(Ordering::Relaxed);
    if first == 0 {
        return Ok(());
    }
    let limit = raise(first + clients + own);
    let possible = limit.saturating_sub(first + own);
    if clients <= possible {
        return Ok(());
    }
    Err(format!("the operating system grants descriptors for only {possible} clients of the port"))
}

/// The host's `maxclients`.
fn clients_of_host(ctx: Ctx<'_>) -> usize {
    let clients = ctx.info_number(c"clients", c"maxclients");
    clients.map_or(HOST_CLIENTS_DEFAULT, |clients| clients as usize)
}

/// Raises the limit of open files to `wanted`, or as far as the system allows. Returns the limit.
fn raise(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // `None` means no limit.
    let now = limit.current.map_or(usize::MAX, |now| now as usize);
    if now >= wanted {
        return now;
    }
    let hard = limit.maximum.map_or(usize::MAX, |hard| hard as usize);
    let more = |current: usize, maximum: Option<u64>| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current as u64), maximum }).is_ok()
    };
    // Only a privileged process can go above the hard limit.
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
    fn the_hint_is_enough() {
        assert_eq!(hint(15_000, 10_000, 10_000, 64), "'ulimit -n 20208' is enough.");
        assert!(hint(1024, 992, 10_000, 64).contains("992, was lowered"));
        assert!(hint(1024, 992, 10_000, 64).contains("'ulimit -n 20208'"), "the host's default");
        assert!(hint(1020, 976, 10_000, 64).contains("'ulimit -n 20208'"), "in steps of 16");
        assert!(
            hint(40_000, 39_968, 10, 64).contains("'ulimit -n 40186'"),
            "more than the default"
        );
    }

    #[test]
    fn the_ports_take_the_hosts_spare_descriptors() {
        assert_eq!(share(usize::MAX, 10_144, 10_000, 64), (10_144, 10_000));
        assert_eq!(share(20_208, 10_144, 10_000, 64), (10_144, 10_000));
        assert_eq!(share(15_000, 10_144, 10_000, 64), (10_144, 4792), "fewer clients");
        assert_eq!(share(10_032, 10_144, 10_000, 64), (8714, 1254), "an eighth of the host's");
        assert_eq!(share(10_032, 10_144, 5, 64), (9963, 5));
        assert_eq!(share(128, 1000, 10_000, 64), (64, 32), "a few at least");
        assert_eq!(share(1024, 1136, 10_000, 704), (512, 128), "half for the host");
    }
}
