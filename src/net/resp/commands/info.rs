//! INFO on a port: the host's text, with midi's own figures in the sections that are midi's.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::is_subscriber;
use crate::command::{Action, Args, COMMANDS, Named, PortCommand, Reply, SubscriptionKind};
use crate::engine::{Counted, Engine, ListenAt, Speaks};
use crate::net::client::Client;
use crate::net::figures::PortFigures;
use crate::net::main_task::ask_main;
use crate::net::resp::caller::RespCaller;
use crate::net::resp::named::last;
use crate::net::resp::session::BUSY;
use crate::net::shared::Shared;

/// INFO, of the host and of midi.
///
/// Which sections there are, and in what order, the host decides.
pub(super) fn info(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let sections: Vec<Vec<u8>> = args.from(1).iter().map(|section| section.to_vec()).collect();
    let shared = Arc::clone(&caller.worker.shared);
    ask_main(caller, move |locked, _, host| {
        let sections: Vec<&[u8]> = sections.iter().map(Vec::as_slice).collect();
        let text = host.map(|host| host.info(locked, &sections));
        Box::new(move |session, output| match text {
            Some(text) => session.reply(output).verbatim(&of_the_port(&text, &shared)),
            None => session.reply(output).error(BUSY),
        })
    });
}

/// CONFIG RESETSTAT.
pub(super) fn reset_stats(caller: &mut RespCaller<'_>) {
    caller.worker.shared.reset_figures();
    caller.reply().ok();
}

/// LATENCY HISTOGRAM, of all commands that were called or of these. A container stands for its
/// subcommands, as on the host.
pub(super) fn latency_histogram(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let counted = caller.engine().ledger.books.counted();
    let asked: HashSet<Vec<u8>> =
        (2..args.len()).map(|at| args.get(at).to_ascii_lowercase()).collect();
    let is_wanted = |name: &str| {
        let container = name.split('|').next().unwrap_or(name);
        args.len() == 2 || asked.contains(name.as_bytes()) || asked.contains(container.as_bytes())
    };
    let rows = COMMANDS.iter().zip(&counted.commands);
    let lines: Vec<_> = rows
        .filter(|(row, _)| is_wanted(row.name))
        .filter_map(|(row, command)| {
            let times = command.times.as_ref().filter(|times| times.count() > 0)?;
            Some((row.name, command.count.calls, times.lines(command.count.calls)))
        })
        .collect();
    let mut reply = caller.reply();
    reply.map(lines.len());
    for (name, calls, lines) in lines {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(calls as i64);
        reply.bulk(b"histogram_usec");
        reply.map(lines.len());
        for (usec, calls) in lines {
            reply.integer(usec as i64);
            reply.integer(calls as i64);
        }
    }
}

/// What midi reports, as it is at one moment.
struct InfoOfPort<'a> {
    shared: &'a Shared,
    engine: &'a Engine,
    counted: Counted,
    port: PortFigures,
    errors: u64,
    clients: Vec<Arc<Client>>,
}

impl<'a> InfoOfPort<'a> {
    fn new(shared: &'a Shared) -> Self {
        let engine = &*shared.engine;
        InfoOfPort {
            shared,
            engine,
            counted: engine.ledger.books.counted(),
            port: shared.figures.lock().now(shared),
            errors: engine.ledger.books.errors().total,
            clients: shared.clients(),
        }
    }

    /// The value of a field; `None` if it is the host's.
    fn field(&self, section: &str, name: &str, hosts: &str) -> Option<String> {
        match section {
            "Server" if name == "tcp_port" => Some(tcp_port(self.shared).to_string()),
            // Whether the host's clients are paused: the port's are then, too.
            "Clients" if name.starts_with("paused_") => None,
            "Clients" => Some(self.about_clients(name).to_string()),
            "Memory" => self.about_memory(name),
            "Stats" => self.about_commands(name).or_else(|| self.about_the_port(name, hosts)),
            _ => None,
        }
    }

    /// A field about clients; 0 for kinds of clients that the port does not have.
    fn about_clients(&self, name: &str) -> usize {
        let clients = self.clients.iter();
        match name {
            "connected_clients" => self.clients.len(),
            "maxclients" => self.engine.settings().port.max_clients.load(Ordering::Relaxed),
            "pubsub_clients" => clients.filter(|client| is_subscriber(client)).count(),
            "blocked_clients" => clients.filter(|client| is_blocked(client)).count(),
            "client_recent_max_input_buffer" => {
                let most = clients.map(|it| it.condition.unread_memory.load(Ordering::Relaxed));
                most.max().unwrap_or(0)
            }
            "client_recent_max_output_buffer" => {
                let most = clients.map(|it| it.condition.unsent_memory.load(Ordering::Relaxed));
                most.max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn about_memory(&self, name: &str) -> Option<String> {
        let (port, limit) = (&self.port, self.engine.ledger.eviction.limit());
        let (used, peak) = (port.used_memory, port.peak_memory);
        let share = |part: u64, of: u64| format!("{:.2}%", 100.0 * part as f64 / of.max(1) as f64);
        let own_limit = |text: String| limit.is_own.then_some(text);
        match name {
            "used_memory" => Some(used.to_string()),
            "used_memory_human" => Some(human_bytes(used as i64)),
            "used_memory_peak" => Some(peak.to_string()),
            "used_memory_peak_human" => Some(human_bytes(peak as i64)),
            "used_memory_peak_perc" => Some(share(used, peak)),
            "used_memory_startup" => Some("0".into()),
            "used_memory_overhead" | "mem_clients_normal" => Some(port.buffered.to_string()),
            "used_memory_dataset" => Some((used - port.buffered).to_string()),
            "used_memory_dataset_perc" => Some(share(used - port.buffered, used)),
            "maxmemory" => own_limit(limit.bytes.to_string()),
            "maxmemory_human" => own_limit(human_bytes(limit.bytes)),
            "maxmemory_policy" if self.engine.ledger.eviction.is_on() => {
                Some(limit.policy.name().into())
            }
            _ => None,
        }
    }

    /// A field about what commands of both doors did.
    fn about_commands(&self, name: &str) -> Option<String> {
        let counted = &self.counted;
        let value = match name {
            "total_commands_processed" => counted.calls(),
            "keyspace_hits" => counted.hits,
            "keyspace_misses" => counted.misses,
            "expired_keys" => counted.expired,
            "evicted_keys" => counted.evicted,
            "total_error_replies" => self.errors,
            _ => return None,
        };
        Some(value.to_string())
    }

    /// A field about the port's connections; 0 for what the port does not have.
    fn about_the_port(&self, name: &str, hosts: &str) -> Option<String> {
        let port = &self.port;
        let rate = |bytes: u64| Some(format!("{:.2}", bytes as f64 / 1024.0));
        let subscribed = |kind| self.engine.pubsub.counts()[kind as usize] as u64;
        let value = match name {
            "total_connections_received" => port.counts.accepted,
            "rejected_connections" => port.counts.refused,
            "instantaneous_ops_per_sec" => port.rates.commands,
            "total_net_input_bytes" => port.counts.received,
            "total_net_output_bytes" => port.counts.sent,
            "instantaneous_input_kbps" => return rate(port.rates.received),
            "instantaneous_output_kbps" => return rate(port.rates.sent),
            "pubsub_channels" => subscribed(SubscriptionKind::Channel),
            "pubsub_patterns" => subscribed(SubscriptionKind::Pattern),
            "pubsubshard_channels" => subscribed(SubscriptionKind::Shard),
            "total_reads_processed" => port.counts.reads,
            "total_writes_processed" => port.counts.writes,
            "acl_access_denied_auth" => port.counts.failed_logins,
            // Workers count both while they are read.
            "acl_access_denied_cmd" => port.counts.denied.saturating_sub(port.counts.denied_keys),
            "acl_access_denied_key" => port.counts.denied_keys,
            // These are about the process, or the host's replicas.
            _ if OF_THE_HOST.iter().any(|beginning| name.starts_with(beginning)) => return None,
            _ if hosts.contains('.') => return Some("0.00".into()),
            _ => 0,
        };
        Some(value.to_string())
    }

    /// The fields of a section that has one for each command, kind of error or database.
    fn write_list(&self, section: &str, out: &mut String) {
        match section {
            "Commandstats" => self.write_commands(out),
            "Latencystats" => self.write_times(out),
            "Errorstats" => self.write_errors(out),
            "Keyspace" => self.write_keys(out),
            _ => {}
        }
    }

    fn write_commands(&self, out: &mut String) {
        let counts = self.counted.commands.iter().map(|command| command.count);
        for (row, count) in COMMANDS.iter().zip(counts).filter(|(_, count)| count.is_anything()) {
            _ = write!(
                out,
                "cmdstat_{}:calls={},usec={},usec_per_call={:.2},rejected_calls={},\
                 failed_calls={}\r\n",
                row.name,
                count.calls,
                count.usec(),
                count.usec_per_call(),
                count.rejected,
                count.failed
            );
        }
    }

    fn write_times(&self, out: &mut String) {
        for (row, command) in COMMANDS.iter().zip(&self.counted.commands) {
            let Some(times) = command.times.as_ref().filter(|times| times.count() > 0) else {
                continue;
            };
            let usec = |share: f64| times.within(share) as f64 / 1000.0;
            _ = write!(
                out,
                "latency_percentiles_usec_{}:p50={:.3},p99={:.3},p99.9={:.3}\r\n",
                row.name,
                usec(0.5),
                usec(0.99),
                usec(0.999)
            );
        }
    }

    fn write_errors(&self, out: &mut String) {
        for (kind, number) in self.engine.ledger.books.errors().sorted() {
            _ = write!(
                out,
                "errorstat_{}:count={number}\r\n",
                as_name(&String::from_utf8_lossy(&kind))
            );
        }
    }

    fn write_keys(&self, out: &mut String) {
        for db in 0..self.engine.config().databases {
            let census = self.engine.ledger.books.census(db);
            if census.keys != 0 {
                _ = write!(
                    out,
                    "db{db}:keys={},expires={},avg_ttl=0\r\n",
                    census.keys, census.expiring
                );
            }
        }
    }
}

/// Sections whose lines are about the host's commands, errors and keys.
const OF_OTHERS: [&str; 5] = ["Commandstats", "Latencystats", "Errorstats", "Keyspace", "Keysizes"];

/// The beginnings of fields of Stats that remain the host's.
const OF_THE_HOST: [&str; 12] = [
    "sync_",
    "latest_fork",
    "total_forks",
    "migrate_cached",
    "slave_expires",
    "active_defrag",
    "total_active_defrag",
    "current_active_defrag",
    "dump_payload",
    "instantaneous_input_repl",
    "instantaneous_output_repl",
    "total_net_repl",
];

/// Whether a client waits for replicas or for the AOF, as the host counts blocked clients.
fn is_blocked(client: &Client) -> bool {
    let waits = |named: Named| {
        matches!(named.row().action, Action::Port(PortCommand::Wait | PortCommand::WaitAof))
    };
    client.condition.waiting.load(Ordering::Relaxed) && last(client).is_some_and(waits)
}

/// The number of the first port that speaks RESP without TLS; 0 if there is none.
fn tcp_port(shared: &Shared) -> u16 {
    let rows = shared.listeners.iter().filter(|row| !row.is_tls && row.speaks == Speaks::Resp);
    let mut numbers = rows.filter_map(|row| match row.at {
        ListenAt::Tcp { port, .. } => Some(port),
        ListenAt::Unix { .. } => None,
    });
    numbers.next().unwrap_or(0)
}

/// The first word of an error as INFO can have it: Redis's own are such words.
fn as_name(word: &str) -> String {
    word.chars().map(|it| if it.is_control() || ":=".contains(it) { '_' } else { it }).collect()
}

/// INFO's text, with midi's figures in place of the host's.
fn of_the_port(text: &[u8], shared: &Shared) -> Vec<u8> {
    let (text, report) = (String::from_utf8_lossy(text), InfoOfPort::new(shared));
    let mut out = String::with_capacity(text.len());
    let mut section = "";
    for line in text.split_inclusive("\r\n") {
        if let Some(title) = line.trim_end().strip_prefix("# ") {
            section = title;
            out.push_str(line);
            report.write_list(section, &mut out);
            continue;
        }
        let Some((name, value)) = line.split_once(':') else {
            out.push_str(line);
            continue;
        };
        if OF_OTHERS.contains(&section) {
            continue;
        }
        match report.field(section, name, value) {
            Some(value) => _ = write!(out, "{name}:{value}\r\n"),
            None => out.push_str(line),
        }
        if (section, name) == ("Memory", "used_memory") {
            _ = write!(out, "midi_host_used_memory:{}\r\n", value.trim_end());
        }
    }
    out.into_bytes()
}

/// Bytes for people, as Redis's INFO has them: `1.50M`.
fn human_bytes(bytes: i64) -> String {
    const KIB: i64 = 1 << 10;
    if bytes < KIB {
        return format!("{bytes}B");
    }
    let (mut unit, mut units) = (KIB, "KMGTP".chars());
    let mut name = units.next().unwrap_or_default();
    while bytes / KIB >= unit
        && let Some(next) = units.next()
    {
        (unit, name) = (unit * KIB, next);
    }
    format!("{:.2}{name}", bytes as f64 / unit as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_people_are_redis_s() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (50 << 20, "50.00M"),
            ((1 << 20) - 1, "1024.00K"),
            (3 << 29, "1.50G"),
            (1 << 40, "1.00T"),
            (i64::MAX, "8192.00P"),
        ] {
            assert_eq!(human_bytes(bytes), text, "{bytes}");
        }
    }
}
