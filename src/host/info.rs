//! The reports of midi about itself: INFO, MIDI.INFO, MIDI.JOBS, MIDI.HELP. All of it comes from
//! counters: no token is taken, and no thread waits.

use std::ffi::c_int;
use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

use midi_module_api as raw;

use super::api::{Ctx, api, c_text};
use super::instance::instance;
use super::{PANICS, PREFIX, guarded, kept};
use crate::command::{COMMANDS, Doors, Error, Reply, host_commands};
use crate::engine::{Call, Engine, Gates};
use crate::store::arena_usage;

/// Takes sections and their fields, in order.
trait InfoSink {
    /// Begins a section; false if it is not wanted.
    fn section(&mut self, name: &str) -> bool;
    fn text(&mut self, name: &str, value: &str);
}

impl dyn InfoSink + '_ {
    fn field(&mut self, name: &str, value: impl Display) {
        self.text(name, &value.to_string());
    }

    fn yes_or_no(&mut self, name: &str, is_yes: bool) {
        self.text(name, if is_yes { "yes" } else { "no" });
    }
}

type Section = (&'static str, fn(&Engine, &mut dyn InfoSink));

const SECTIONS: [Section; 10] = [
    ("shards", shards),
    ("keyspace", keyspace),
    ("persistence", persistence),
    ("memory", memory),
    ("expiry", expiry),
    ("dispatch", dispatch),
    ("workers", workers),
    ("net", net),
    ("jobs", jobs_section),
    ("commandstats", command_stats),
];

fn write_sections(engine: &Engine, sink: &mut dyn InfoSink) {
    for (name, fields) in SECTIONS {
        if sink.section(name) {
            fields(engine, sink);
        }
    }
    #[cfg(feature = "contention")]
    if sink.section("contention") {
        crate::sync::contention::counts().into_iter().for_each(|(name, it)| sink.field(name, it));
    }
}

fn shards(engine: &Engine, sink: &mut dyn InfoSink) {
    sink.field("shards", engine.shards().count());
    sink.field("threads", engine.config().workers);
    sink.yes_or_no("safemode", engine.config().safemode);
    sink.field("version", env!("CARGO_PKG_VERSION"));
    sink.field("panics", PANICS.load(Ordering::Relaxed));
}

fn keyspace(engine: &Engine, sink: &mut dyn InfoSink) {
    for db in 0..engine.config().databases {
        let census = engine.ledger.books.census(db);
        if census.keys != 0 {
            let value = format!("keys={},expires={}", census.keys, census.expiring);
            sink.field(&format!("db{db}"), value);
        }
    }
}

fn memory(engine: &Engine, sink: &mut dyn InfoSink) {
    let keys: i64 =
        (0..engine.config().databases).map(|db| engine.ledger.books.census(db).keys).sum();
    let bytes = engine.ledger.books.totals().bytes;
    sink.field("table_bytes", bytes);
    let per_key = if keys > 0 { bytes as f64 / keys as f64 } else { 0.0 };
    sink.field("bytes_per_key", format_args!("{per_key:.1}"));
    let arenas = arena_usage();
    sink.field("arena_used_bytes", arenas.used);
    sink.field("arena_mapped_bytes", arenas.mapped);
    sink.field("arena_huge_page_bytes", arenas.huge);
    sink.field("kept_arguments", kept::count());
    let (watched, watched_bytes) = engine.ledger.marks();
    sink.field("watched_names", watched);
    sink.field("watched_bytes", watched_bytes);
    let (policy, set) = instance().eviction.as_set();
    let limit = engine.ledger.eviction.limit();
    sink.field("maxmemory", set);
    sink.field("maxmemory_policy", policy.name());
    sink.field("maxmemory_in_force", if limit.bytes == i64::MAX { 0 } else { limit.bytes });
    sink.field("evicted_keys", engine.ledger.books.evicted());
    sink.field("evictable_host_keys", instance().eviction.evictable_host_keys());
}

fn persistence(engine: &Engine, sink: &mut dyn InfoSink) {
    let saves = *instance().saves.lock();
    sink.field("changes", engine.ledger.books.changes());
    sink.field("last_save_time", saves.time);
    sink.field("last_save_keys", saves.last.keys);
    sink.field("last_save_bytes", saves.last.bytes);
    sink.field("last_save_usec", saves.last.micros);
    sink.field("failed_saves", saves.failed);
    let forks = &instance().forks;
    sink.field("forks", forks.count.load(Ordering::Relaxed));
    sink.field("last_fork_pause_usec", forks.last_pause.load(Ordering::Relaxed));
    sink.field("longest_fork_pause_usec", forks.longest_pause.load(Ordering::Relaxed));
    let (progress, (keys, millis)) = {
        let loads = instance().loads.lock();
        (loads.progress, loads.last)
    };
    sink.field("last_load_keys", keys);
    sink.field("last_load_msec", millis);
    sink.field("loading", u64::from(progress.is_some()));
    if let Some(stats) = progress {
        sink.field("loading_keys", stats.keys);
        sink.field("loading_expected_keys", stats.expected_keys);
        sink.field("loading_bytes", stats.bytes);
    }
    sink.field("last_save_status", if saves.have_failed.contains(&true) { "err" } else { "ok" });
    sink.field("mode", engine.mode().name());
    journal_fields(engine, sink);
}

fn journal_fields(engine: &Engine, sink: &mut dyn InfoSink) {
    let log = engine.ledger.log.counts();
    let mut number = |name: &str, value: u64| sink.field(&format!("journal_{name}"), value);
    number("tail_runs", log.tail_runs as u64);
    number("tail_bytes", log.tail_bytes as u64);
    number("tail_age_msec", log.tail_age.as_millis() as u64);
    number("batches", log.batches);
    number("runs", log.runs);
    number("records", log.records);
    number("bytes", log.text_bytes);
    number("usec_until_logged", log.until_logged_us.checked_div(log.runs).unwrap_or(0));
    number("usec_until_safe", log.until_safe_us.checked_div(log.safe_steps).unwrap_or(0));
    number("undone_runs", log.taken_back);
    let (last, logged, safe) = log.positions;
    number("position", last);
    number("logged_position", logged);
    number("safe_position", safe);
    let skips = *instance().hand_over.skips_fsyncs.lock();
    let skips = skips.map_or("unknown", |skips| if skips { "yes" } else { "no" });
    sink.field("journal_skips_fsyncs_beside_children", skips);
    sink.yes_or_no("journal_reads_wait", engine.ledger.log.reads_wait());
    sink.yes_or_no("journal_for_replicas", engine.gates().has(Gates::BACKLOG));
    sink.field("clients_in_wait", instance().waits.list.lock().clients.len());
    if engine.gates().has(Gates::READ_ONLY) {
        let reason = instance().sync.reason();
        sink.yes_or_no("follows_master", reason.is_none());
        if let Some(reason) = reason {
            sink.field("follows_master_error", reason);
            sink.yes_or_no("master_link_cut", instance().quarantine.is_cut.get());
        }
    }
}

fn expiry(engine: &Engine, sink: &mut dyn InfoSink) {
    let expiring: i64 =
        (0..engine.config().databases).map(|db| engine.ledger.books.census(db).expiring).sum();
    sink.field("expiring_keys", expiring);
    sink.field("expired_keys", engine.ledger.books.totals().expired);
}

fn dispatch(engine: &Engine, sink: &mut dyn InfoSink) {
    let Some(main) = engine.ledger.books.slots().next() else { return };
    let pool = engine.settings().pool.load(Ordering::Relaxed);
    sink.field("dispatch", if pool { "pool" } else { "adaptive" });
    sink.field("ran_at_once", main.at_once.get());
    sink.field("queued", main.queued.get());
    sink.field("queue_depth", engine.ledger.books.queued_now());
}

fn workers(engine: &Engine, sink: &mut dyn InfoSink) {
    for slot in engine.ledger.books.slots().skip(1) {
        let value = format!(
            "commands={},slices={},turns={}",
            slot.ran_queued.get(),
            slot.slices.get(),
            slot.turns.get()
        );
        sink.field(&format!("worker{}", slot.number - 1), value);
    }
}

fn net(engine: &Engine, sink: &mut dyn InfoSink) {
    if let Some(ports) = engine.context().outside.ports() {
        ports.tell(&mut |name, value| sink.field(name, value));
    }
}

fn jobs_section(engine: &Engine, sink: &mut dyn InfoSink) {
    let jobs = engine.jobs.list();
    sink.field("jobs_running", jobs.len());
    sink.field("jobs_started", engine.jobs.started());
    for job in jobs {
        let value = format!(
            "command={},db={},client={},door={},done={},total={},elapsed_ms={}",
            job.name,
            job.owner.db,
            job.owner.client,
            job.owner.door.name(),
            job.done.load(Ordering::Relaxed),
            job.total.load(Ordering::Relaxed),
            job.elapsed().as_millis(),
        );
        sink.field(&format!("job{}", job.id), value);
    }
}

fn command_stats(engine: &Engine, sink: &mut dyn InfoSink) {
    for (number, command) in COMMANDS.iter().enumerate() {
        let count = engine.ledger.books.command_count(number);
        if count.calls > 0 {
            let value = format!(
                "calls={},usec={},usec_per_call={:.2}",
                count.calls,
                count.usec(),
                count.usec_per_call()
            );
            sink.field(&format!("cmdstat_{}", command.name), value);
        }
    }
}

/// Adds midi's sections to the host's INFO.
pub unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report == 0 {
        return guarded((), || write_sections(&instance().engine, &mut HostInfo(info)));
    }
    // No lock may be taken now, and the counters are of little use. The host tests memory next.
    instance().engine.end_in_crash();
}

struct HostInfo(*mut raw::RedisModuleInfoCtx);

impl InfoSink for HostInfo {
    fn section(&mut self, name: &str) -> bool {
        // SAFETY: the context is valid for the callback; the host puts `midi_` in front.
        unsafe { api!(RedisModule_InfoAddSection)(self.0, c_text(name).as_ptr()) == 0 }
    }

    fn text(&mut self, name: &str, value: &str) {
        // SAFETY: as above; both are copied.
        unsafe {
            api!(RedisModule_InfoAddFieldCString)(
                self.0,
                c_text(name).as_ptr(),
                c_text(value).as_ptr(),
            )
        };
    }
}

/// The beginning of a section's title in INFO's text; the host writes the same one.
pub const HEAD: &str = "# midi_";

/// Writes the sections as text, for MIDI.INFO.
struct TextInfo<'a> {
    wanted: &'a [&'a [u8]],
    text: String,
}

impl InfoSink for TextInfo<'_> {
    fn section(&mut self, name: &str) -> bool {
        let named = |word: &&[u8]| {
            let word = word.to_ascii_lowercase();
            let word = word.strip_prefix(b"midi_").unwrap_or(&word);
            word == name.as_bytes() || matches!(word, b"all" | b"default" | b"everything")
        };
        let wanted = self.wanted.is_empty() || self.wanted.iter().any(named);
        if wanted {
            let gap = if self.text.is_empty() { "" } else { "\r\n" };
            let _ = write!(self.text, "{gap}{HEAD}{name}\r\n");
        }
        wanted
    }

    fn text(&mut self, name: &str, value: &str) {
        let _ = write!(self.text, "midi_{name}:{value}\r\n");
    }
}

/// MIDI.INFO [section ...].
pub fn info(engine: &Engine, call: &Call<'_>, reply: &mut dyn Reply) {
    reply.verbatim(text(engine, call.args.from(1)).as_bytes());
}

/// The sections `wanted` as text; all if none are named.
pub fn text(engine: &Engine, wanted: &[&[u8]]) -> String {
    let mut sink = TextInfo { wanted, text: String::new() };
    write_sections(engine, &mut sink);
    sink.text
}

/// MIDI.JOBS [CANCEL id].
pub fn jobs(engine: &Engine, call: &Call<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    match call.args.len() {
        1 => list_jobs(engine, reply),
        3 if call.args.is(1, "cancel") => {
            let id = call.args.integer(2)?;
            let jobs = engine.jobs.list();
            let found = jobs.iter().find(|job| job.id as i64 == id && job.command.is_some());
            found.ok_or(Error::NoSuchJob)?.cancel();
            reply.ok();
        }
        _ => return Err(Error::Syntax),
    }
    Ok(())
}

fn number(reply: &mut dyn Reply, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(value as i64);
}

/// `elapsed` is in milliseconds.
fn list_jobs(engine: &Engine, reply: &mut dyn Reply) {
    let jobs = engine.jobs.list();
    reply.array(jobs.len());
    for job in jobs {
        reply.map(8);
        number(reply, "id", job.id);
        reply.bulk(b"command");
        reply.bulk(job.name.as_bytes());
        number(reply, "database", job.owner.db.into());
        number(reply, "client", job.owner.client);
        reply.bulk(b"door");
        reply.bulk(job.owner.door.name().as_bytes());
        number(reply, "done", job.done.load(Ordering::Relaxed));
        number(reply, "total", job.total.load(Ordering::Relaxed));
        number(reply, "elapsed", job.elapsed().as_millis() as u64);
    }
}

/// MIDI.HELP.
pub fn help(reply: &mut dyn Reply) {
    let for_clients = || host_commands().filter(|command| command.doors != Doors::Host);
    reply.array(for_clients().count());
    for command in for_clients() {
        let name = format!("{PREFIX}{}", command.name).to_uppercase();
        reply.bulk(format!("{name} -- {}", command.docs.summary).as_bytes());
    }
}

/// Registers INFO's sections. False if the host refuses.
pub fn register(ctx: Ctx<'_>) -> bool {
    // SAFETY: in OnLoad.
    unsafe { api!(RedisModule_RegisterInfoFunc)(ctx.raw(), Some(on_info)) == 0 }
}
