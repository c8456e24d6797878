//! `stats`: what memcached's tools ask for, as far as it means something here.

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::alone::{VERSION, say_line};
use crate::command::number_of;
use crate::net::resp::PortCaller;

/// Answers `stats`, with the word behind it.
pub(super) fn say(caller: &mut PortCaller<'_>, which: &[u8]) {
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
        b"reset" | b"conns" | b"detail" | b"cachedump" => {
            return say_line(caller, b"SERVER_ERROR this report is not supported");
        }
        _ => return say_line(caller, b"ERROR"),
    }
    say_line(caller, b"END");
}

fn stat(caller: &mut PortCaller<'_>, name: &str, value: impl Display) {
    say_line(caller, format!("STAT {name} {value}").as_bytes());
}

fn general(caller: &mut PortCaller<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let uptime = caller.worker.shared.clock(caller.turn.now) / 1000;
    let engine = caller.engine();
    let workers = engine.config().workers;
    let counts = |worker: usize| caller.worker.shared.counts(worker);
    let connected: usize =
        (0..workers).map(|worker| counts(worker).connected.load(Ordering::Relaxed)).sum();
    let sum = |number: fn(&crate::net::shared::PortCounts) -> u64| -> u64 {
        (0..workers).map(|worker| number(counts(worker))).sum()
    };
    let accepted = sum(|counts| counts.accepted.load(Ordering::Relaxed));
    let refused = sum(|counts| counts.refused.load(Ordering::Relaxed));
    let read = sum(|counts| counts.received.load(Ordering::Relaxed));
    let written = sum(|counts| counts.sent.load(Ordering::Relaxed));
    let calls = |names: &[&str]| -> u64 {
        let numbers = names.iter().filter_map(|name| number_of(name));
        numbers.map(|number| engine.ledger.books.command_count(number).calls).sum()
    };
    let census = engine.ledger.books.census(caller.session.db);
    let limit = match engine.ledger.eviction.limit().bytes {
        i64::MAX => 0,
        bytes => bytes,
    };
    let evicted = engine.ledger.books.evicted();
    let max = caller.engine().settings().port.max_clients.load(Ordering::Relaxed);
    stat(caller, "pid", std::process::id());
    stat(caller, "uptime", uptime);
    stat(caller, "time", now);
    stat(caller, "version", VERSION);
    stat(caller, "pointer_size", usize::BITS);
    stat(caller, "max_connections", max);
    stat(caller, "curr_connections", connected);
    stat(caller, "total_connections", accepted);
    stat(caller, "rejected_connections", refused);
    stat(caller, "cmd_get", calls(&["get", "mc-gets", "mc-mg", "mc-mg-renew", "mc-mg-vivify"]));
    stat(caller, "cmd_set", calls(&["set", "mc-store", "mc-ms"]));
    stat(caller, "cmd_flush", calls(&["flushdb"]));
    stat(caller, "cmd_touch", calls(&["mc-touch", "mc-gat"]));
    stat(caller, "bytes_read", read);
    stat(caller, "bytes_written", written);
    stat(caller, "limit_maxbytes", limit);
    stat(caller, "threads", workers);
    stat(caller, "bytes", census.bytes);
    stat(caller, "curr_items", census.keys);
    stat(caller, "evictions", evicted);
}

fn settings(caller: &mut PortCaller<'_>) {
    let port = &caller.engine().settings().port;
    let max = port.max_clients.load(Ordering::Relaxed);
    let size = port.memcached_item_size.load(Ordering::Relaxed);
    let workers = caller.engine().config().workers;
    stat(caller, "maxconns", max);
    stat(caller, "cas_enabled", "yes");
    stat(caller, "item_size_max", size);
    stat(caller, "num_threads", workers);
    stat(caller, "flush_enabled", "yes");
    stat(caller, "binding_protocol", "ascii");
}
