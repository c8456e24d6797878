//! WAIT and WAITAOF on midi's port: clients that wait until replicas, or the AOF, have what they
//! wrote.
//!
//! ```text
//! a port ── wait ──► waits   ── before sleep: one look at INFO for all ──► answered
//!                                 │ a new one, with too few replicas  ▲
//!                                 ▼                                   │
//!          a timer, as a unit of its own: REPLCONF GETACK      REPLCONF ACK
//!                                 └────────────► replicas ────────────┘
//! ```
//!
//! A client's write is in the host's stream once its position is safe: then the main loop has
//! turned after it was logged. INFO tells where the stream is at that moment, and how far each
//! replica has acknowledged it. A filter sees that an acknowledgement comes, but anybody can send
//! one: it only has midi look, once a turn at most, and only while a client waits.

use std::ffi::c_void;
use std::time::Instant;

use midi_module_api as raw;

use super::super::super::api::{Ctx, RawCtx, api, c_text};
use super::super::super::instance::instance;
use super::super::super::state::persistence::{WaitList, WaitingClient};
use super::super::super::{guarded, pause};
use super::super::save_points;
use crate::command::Error;
use crate::engine::{Awaited, Locked, ReplicaWait, Waited};

/// How far the host's stream is, and how far each replica has acknowledged it.
struct Stream {
    offset: u64,
    acknowledged: Vec<u64>,
}

/// Has a client wait.
pub fn wait(_: Locked<'_>, wait: ReplicaWait) {
    let turns = if matches!(wait.awaited, Awaited::Aof(_)) { 2 } else { 1 };
    let waits = &instance().waits;
    let from = waits.turn.get() + turns;
    waits.list.lock().clients.push(WaitingClient { wait, from, has_asked: false });
    waits.any.set(true);
    waits.look.set(true);
}

/// Some client, perhaps a replica, has sent an acknowledgement; or a tenth of a second has passed:
/// clients may have left.
#[inline]
pub fn may_change() {
    if instance().waits.any.get() {
        instance().waits.look.set(true);
    }
}

/// The server is a replica now: nobody waits any more.
pub fn became_replica() {
    let waits = &instance().waits;
    waits.demoted_at.set(instance().engine.ledger.log.last());
    let clients = std::mem::take(&mut waits.list.lock().clients);
    waits.any.set(false);
    clients.into_iter().for_each(|client| (client.wait.answer)(Waited::Undone));
}

/// The main loop is about to sleep: what was done before this event is in the stream.
#[inline]
pub fn turn_ends() {
    if instance().waits.any.get() {
        instance().waits.turn.add(1);
    }
}

/// The main loop is about to sleep: answers those that need not wait any more. True if it must not
/// sleep: another turn must follow, or the timer that asks the replicas.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) -> bool {
    instance().waits.any.get() && turn(ctx)
}

fn turn(ctx: Ctx<'_>) -> bool {
    let (waits, mut again) = (&instance().waits, false);
    if waits.look.take() || is_due(&waits.list.lock()) {
        again = look(ctx);
        waits.look.set(again);
    }
    let asks = waits.ask.get() && !waits.is_asking.get() && !pause::is_on(ctx.locked());
    if asks {
        waits.ask.set(false);
        waits.is_asking.set(true);
        // SAFETY: the event's context; the callback takes no data.
        unsafe {
            api!(RedisModule_CreateTimer)(ctx.raw(), 0, Some(on_timer), std::ptr::null_mut())
        };
    }
    asks || again
}

/// Whether a client's time is over, or what another wrote is in the stream by now.
fn is_due(list: &WaitList) -> bool {
    list.next_position.is_some_and(|position| position <= instance().engine.ledger.log.safe())
        || list.next_end.is_some_and(|end| end <= Instant::now())
}

/// Answers those that need not wait any more. True if some have only just come.
#[cold]
fn look(ctx: Ctx<'_>) -> bool {
    let waits = &instance().waits;
    let turn = waits.turn.get();
    let mut is_any_new = false;
    let (stream, now) = (Stream::look(ctx), Instant::now());
    let mut over = Vec::new();
    // Few wait for it.
    let mut aof = None;
    let mut aof = || *aof.get_or_insert_with(|| look_at_aof(ctx));
    {
        let mut waiting = waits.list.lock();
        for mut client in std::mem::take(&mut waiting.clients) {
            let is_new = turn < client.from;
            is_any_new |= is_new;
            match if is_new { None } else { client.outcome(&stream, &mut aof, now) } {
                Some(outcome) => over.push((client.wait.answer, outcome)),
                None => waiting.clients.push(client),
            }
        }
        let each = || waiting.clients.iter().map(|client| &client.wait);
        let end = each().filter_map(|wait| wait.until).min();
        let position = each().filter(|wait| wait.offset.is_none()).map(|wait| wait.position).min();
        (waiting.next_end, waiting.next_position) = (end, position);
        waits.any.set(!waiting.clients.is_empty());
    }
    over.into_iter().for_each(|(answer, outcome)| answer(outcome));
    is_any_new
}

impl WaitingClient {
    /// What the client is told; `None` if it must wait.
    fn outcome(
        &mut self,
        stream: &Stream,
        aof: &mut impl FnMut() -> Result<bool, Error>,
        now: Instant,
    ) -> Option<Waited> {
        let (wait, log) = (&mut self.wait, &instance().engine.ledger.log);
        let waits = &instance().waits;
        let is_old = wait.position != 0 && wait.position <= waits.demoted_at.get();
        if is_old || log.is_undone(wait.position) {
            return Some(Waited::Undone);
        }
        if wait.offset.is_none() && wait.position <= log.safe() {
            wait.offset = Some(stream.offset);
        }
        let wanted = match wait.awaited {
            Awaited::Replicas(wanted) => wanted,
            Awaited::Aof(is_wanted) => {
                let is_synced = match aof() {
                    Err(error) if is_wanted => return Some(Waited::Refused(error)),
                    aof => aof == Ok(true) && log.is_synced(wait.position),
                };
                let is_over = is_synced || !is_wanted || wait.is_over(now);
                return is_over.then_some(Waited::Synced(is_synced));
            }
        };
        let replicas = wait.offset.map_or(0, |offset| stream.replicas_at(offset));
        if replicas as i64 >= wanted || wait.is_over(now) {
            return Some(Waited::Counted { replicas, offset: wait.offset });
        }
        if wait.offset.is_some() && !std::mem::replace(&mut self.has_asked, true) {
            waits.ask.set(!stream.acknowledged.is_empty());
        }
        None
    }
}

/// Whether the server's AOF is on, and complete.
///
/// # Errors
/// Nothing tells what of it is synced.
fn look_at_aof(ctx: Ctx<'_>) -> Result<bool, Error> {
    if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_AOF == 0 {
        return Err(Error::WaitAofIsOff);
    }
    // An answer that the host does not give may be yes: then nothing is known to be synced.
    let is_always = ctx.config_is(c"appendfsync", b"always");
    if !is_always || !ctx.config_is(c"no-appendfsync-on-rewrite", b"no") {
        return Err(Error::WaitAofUnknown);
    }
    let is_known_complete = &instance().waits.aof_is_complete;
    if !is_known_complete.get() {
        let info = ctx.info(c"persistence");
        // Until an AOF that was turned on is complete, a rewrite is under way or scheduled.
        let is_not = |name| info.number(name) == Some(0);
        let is_complete = is_not(c"aof_rewrite_in_progress") && is_not(c"aof_rewrite_scheduled");
        is_known_complete.set(is_complete);
    }
    Ok(is_known_complete.get())
}

impl Stream {
    /// As the host's INFO tells.
    fn look(ctx: Ctx<'_>) -> Self {
        let info = ctx.info(c"replication");
        let replicas = info.number(c"connected_slaves").unwrap_or(0);
        let acknowledged = (0..replicas)
            .filter_map(|number| acknowledged(info.text(&c_text(&format!("slave{number}")))?));
        Stream {
            // No replica has come as far as an offset that is not known.
            offset: info.number(c"master_repl_offset").unwrap_or(u64::MAX),
            acknowledged: acknowledged.collect(),
        }
    }

    /// How many replicas have come so far.
    fn replicas_at(&self, offset: u64) -> usize {
        self.acknowledged.iter().filter(|&&acknowledged| acknowledged >= offset).count()
    }
}

/// How far a replica is, by its line in INFO; `None` if it is not synced.
fn acknowledged(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    let field =
        |name: &str| line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    if field("state")? == "online" { field("offset")?.parse().ok() } else { None }
}

/// Asks the replicas how far they are. In a unit of its own: beside other writes it would be a part
/// of a transaction, and they would acknowledge what stands before that.
unsafe extern "C" fn on_timer(ctx: *mut RawCtx, _: *mut c_void) {
    // SAFETY: the timer's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        instance().waits.is_asking.set(false);
        if pause::is_on(ctx.locked()) {
            return instance().waits.ask.set(true);
        }
        // SAFETY: the context may replicate now. The format has the host leave out the AOF, and
        // take two C strings.
        let done = unsafe {
            let (command, format) = (c"REPLCONF".as_ptr(), c"Acc".as_ptr());
            let (get, all) = (c"GETACK".as_ptr(), c"*".as_ptr());
            api!(RedisModule_Replicate)(ctx.raw(), command, format, get, all)
        };
        if done == raw::REDISMODULE_OK {
            save_points::host_logged();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::acknowledged;

    #[test]
    fn lines_of_info() {
        let line = |state: &str| format!("ip=::1,port=6380,state={state},offset=1017,lag=0");
        assert_eq!(acknowledged(line("online").as_bytes()), Some(1017));
        assert_eq!(acknowledged(line("wait_bgsave").as_bytes()), None);
        let valkey = line("online") + ",type=replica";
        assert_eq!(acknowledged(valkey.as_bytes()), Some(1017));
        assert_eq!(acknowledged(b"ip=::1,port=6380"), None);
    }
}
