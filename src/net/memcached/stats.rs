//! `stats`: what memcached's tools ask for, as far as it means something here.

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::alone::{FLUSHDB, VERSION, denied, say_line};
use super::caller::MemcachedCaller;
use super::plan::number;
use super::reply::{MemcachedReply, ReplyForm, Wording};
use crate::command::{Args, Reply, is_withdrawn, number_of};
use crate::engine::Speaks;
use crate::net::client::Client;

/// Answers `stats`, with the words behind it.
pub(super) fn say(caller: &mut MemcachedCaller<'_>, which: &[u8], how: &[u8]) {
    match which {
        b"" => general(caller),
        b"settings" => settings(caller),
        // There are no classes of slabs, and items are not counted by their sizes.
        b"items" => {}
        b"slabs" => {
            let bytes = caller.engine().ledger.books.totals().bytes;
            stat(caller, "active_slabs", 0);
            stat(caller, "total_malloced", bytes);
        }
        b"sizes" => stat(caller, "sizes_status", "disabled"),
        b"conns" => {
            if !may(caller, CLIENT_LIST, &[b"client", b"list"]) {
                return;
            }
            connections(caller);
        }
        b"reset" => return reset(caller),
        // Counts of prefixes would cost every command.
        b"detail" => match how {
            b"on" => return say_line(caller, b"SERVER_ERROR prefixes are not counted here"),
            b"off" => return say_line(caller, b"OK"),
            b"dump" => {}
            _ => return say_line(caller, b"CLIENT_ERROR usage: stats detail on|off|dump"),
        },
        b"cachedump" => return say_line(caller, b"CLIENT_ERROR stats cachedump not allowed"),
        _ => return say_line(caller, b"ERROR"),
    }
    say_line(caller, b"END");
}

/// The rows whose rights a report needs.
const CLIENT_LIST: usize = number("client|list");
const RESET_STAT: usize = number("config|resetstat");

/// Whether the user has the rights of a row; if not, it has been told.
fn may(caller: &mut MemcachedCaller<'_>, rights: usize, command: &[&[u8]]) -> bool {
    let refused = denied(caller, rights, &Args::new(command));
    let answered = Wording { form: ReplyForm::Said, is_silent: false };
    if let Some(text) = &refused {
        MemcachedReply::of_one(caller.output, b"", answered).error(text);
    }
    refused.is_none()
}

fn reset(caller: &mut MemcachedCaller<'_>) {
    if may(caller, RESET_STAT, &[b"config", b"resetstat"]) {
        caller.worker.shared.reset_figures();
        say_line(caller, b"RESET");
    }
}

/// The connections that speak memcached's protocol, by their descriptors.
fn connections(caller: &mut MemcachedCaller<'_>) {
    let shared = &caller.worker.shared;
    let (now, own) = (shared.clock(caller.turn.now), caller.session.flow.client.id);
    let clients = shared.clients();
    for client in clients.iter().filter(|client| client.speaks == Speaks::Memcached) {
        let idle = now.saturating_sub(client.last_seen.load(Ordering::Relaxed)) / 1000;
        let state = if client.id == own { "conn_parse_cmd" } else { state(client) };
        let mut of = |name: &str, value: &dyn Display| {
            stat(caller, &format!("{}:{name}", client.descriptor), value)
        };
        of("addr", &name(client, &client.address));
        of("listen_addr", &name(client, &client.local_address));
        of("state", &state);
        of("secs_since_last_cmd", &idle);
    }
}

/// An address of a client, as memcached writes it.
fn name(client: &Client, address: &str) -> String {
    match client.remote {
        Some(remote) if remote.is_ipv6() => format!("tcp6:{address}"),
        Some(_) => format!("tcp:{address}"),
        None => format!("unix:{}", address.strip_suffix(":0").unwrap_or(address)),
    }
}

/// What a connection does, in memcached's words.
fn state(client: &Client) -> &'static str {
    let condition = &client.condition;
    if condition.closing.load(Ordering::Relaxed) {
        "conn_closing"
    } else if condition.unsent.load(Ordering::Relaxed) > 0 {
        "conn_mwrite"
    } else if condition.waiting.load(Ordering::Relaxed) {
        "conn_io_queue"
    } else {
        "conn_read"
    }
}

fn stat(caller: &mut MemcachedCaller<'_>, name: &str, value: impl Display) {
    say_line(caller, format!("STAT {name} {value}").as_bytes());
}

fn general(caller: &mut MemcachedCaller<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let uptime = caller.worker.shared.clock(caller.turn.now) / 1000;
    let engine = caller.engine();
    let workers = engine.config().workers;
    let counts = |worker: usize| caller.worker.shared.counts(worker);
    let connected: usize =
        (0..workers).map(|worker| counts(worker).connected.load(Ordering::Relaxed)).sum();
    let totals = caller.worker.shared.figures.lock().now(&caller.worker.shared).counts;
    let counted = engine.ledger.books.counted();
    let calls = |names: &[&str]| -> u64 {
        let numbers = names.iter().filter_map(|name| number_of(name));
        numbers.map(|number| counted.commands[number].count.calls).sum()
    };
    let census = engine.ledger.books.census(caller.session.access.db);
    let limit = match engine.ledger.eviction.limit().bytes {
        i64::MAX => 0,
        bytes => bytes,
    };
    let max = caller.engine().settings().port.max_clients.load(Ordering::Relaxed);
    stat(caller, "pid", std::process::id());
    stat(caller, "uptime", uptime);
    stat(caller, "time", now);
    stat(caller, "version", VERSION);
    stat(caller, "pointer_size", usize::BITS);
    stat(caller, "max_connections", max);
    stat(caller, "curr_connections", connected);
    stat(caller, "total_connections", totals.accepted);
    stat(caller, "rejected_connections", totals.refused);
    stat(caller, "cmd_get", calls(&["get", "mc-gets", "mc-mg", "mc-mg-renew", "mc-mg-vivify"]));
    stat(caller, "cmd_set", calls(&["set", "mc-store", "mc-ms"]));
    stat(caller, "cmd_flush", calls(&["flushdb"]));
    stat(caller, "cmd_touch", calls(&["mc-touch", "mc-gat"]));
    stat(caller, "get_hits", counted.hits);
    stat(caller, "get_misses", counted.misses);
    stat(caller, "bytes_read", totals.received);
    stat(caller, "bytes_written", totals.sent);
    stat(caller, "limit_maxbytes", limit);
    stat(caller, "threads", workers);
    stat(caller, "bytes", census.bytes);
    stat(caller, "curr_items", census.keys);
    stat(caller, "evictions", counted.evicted);
}

fn settings(caller: &mut MemcachedCaller<'_>) {
    let port = &caller.engine().settings().port;
    let max = port.max_clients.load(Ordering::Relaxed);
    let size = port.memcached_item_size.load(Ordering::Relaxed);
    let workers = caller.engine().config().workers;
    stat(caller, "maxconns", max);
    stat(caller, "cas_enabled", "yes");
    stat(caller, "item_size_max", size);
    stat(caller, "num_threads", workers);
    let flushes = !is_withdrawn(FLUSHDB);
    stat(caller, "flush_enabled", if flushes { "yes" } else { "no" });
    stat(caller, "binding_protocol", "ascii");
}
