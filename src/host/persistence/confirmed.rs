//! WAIT and WAITAOF on midi's port: clients that wait until replicas, or the AOF, have what they
//! wrote.
//!
//! ```text
//! a port ── wait ──► WAITING ── before sleep: one look at INFO for all ──► answered
//!                                 │ a new one, with too few replicas  ▲
//!                                 ▼                                   │
//!          a timer, as a unit of its own: REPLCONF GETACK      REPLCONF ACK
//!                                 └────────────► replicas ────────────┘
//! ```
//!
//! What a client wrote is in the host's stream once its position is safe: then the main loop has
//! turned after it was logged. Where the stream is at that moment, INFO tells, and how far each
//! replica has acknowledged it. A filter sees that an acknowledgement comes, but anybody can send
//! one: it only has midi look, once a turn at most, and only while a client waits.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use redis_module::raw;

use super::super::api::{Ctx, RawCtx, api, c_text, must_not_replicate};
use super::super::guarded;
use super::super::instance::instance;
use super::save_points;
use crate::command::Error;
use crate::engine::{Awaited, Locked, ReplicaWait, Waited};

/// The clients that wait. Each is a connection of a port, so there are at most `midi.maxclients`.
static WAITING: Mutex<WaitList> =
    Mutex::new(WaitList { clients: Vec::new(), next_end: None, next_position: None });

/// Whether there are any, readable without the lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether something has come that may end a wait, or begin one.
static LOOK: AtomicBool = AtomicBool::new(false);

/// The number of this turn of the main loop, as far as clients have come.
static TURN: AtomicU64 = AtomicU64::new(0);

/// Whether replicas are to be asked how far they are.
static ASK: AtomicBool = AtomicBool::new(false);

/// Whether the timer that asks them is under way.
static IS_ASKING: AtomicBool = AtomicBool::new(false);

/// The last position when the server last became a replica. What was written until then may be
/// lost, whatever the stream says in which it is a master again.
static DEMOTED_AT: AtomicU64 = AtomicU64::new(0);

/// Whether the AOF is known to be complete: one that is turned on at run time is not at once.
static AOF_IS_COMPLETE: AtomicBool = AtomicBool::new(false);

struct WaitList {
    clients: Vec<WaitingClient>,
    /// When the first of them waits no longer.
    next_end: Option<Instant>,
    /// The first position that was not safe when they were last looked through.
    next_position: Option<u64>,
}

struct WaitingClient {
    wait: ReplicaWait,
    /// The turn of the main loop from which on it is looked at. What a command of the client did to
    /// the host's own keys is in the stream when the event is over in which it ran, and in the AOF
    /// one turn later.
    from: u64,
    /// The replicas have been asked since what it wrote is in the stream.
    has_asked: bool,
}

/// How far the host's stream is, and how far each replica has acknowledged it.
struct Stream {
    offset: u64,
    acknowledged: Vec<u64>,
}

/// Has a client wait.
pub fn wait(_: Locked<'_>, wait: ReplicaWait) {
    let turns = if matches!(wait.awaited, Awaited::Aof(_)) { 2 } else { 1 };
    let from = TURN.load(Ordering::Relaxed) + turns;
    WAITING.lock().clients.push(WaitingClient { wait, from, has_asked: false });
    ANY.store(true, Ordering::Relaxed);
    LOOK.store(true, Ordering::Relaxed);
}

/// How many clients wait.
pub fn waiting() -> usize {
    WAITING.lock().clients.len()
}

/// Some client, perhaps a replica, has sent an acknowledgement; or a tenth of a second has passed:
/// clients may have left.
#[inline]
pub fn may_change() {
    if ANY.load(Ordering::Relaxed) {
        LOOK.store(true, Ordering::Relaxed);
    }
}

/// The server is a replica now: nobody waits any more.
pub fn became_replica() {
    DEMOTED_AT.store(instance().engine.ledger.log.last(), Ordering::Relaxed);
    let clients = std::mem::take(&mut WAITING.lock().clients);
    ANY.store(false, Ordering::Relaxed);
    clients.into_iter().for_each(|client| (client.wait.answer)(Waited::Undone));
}

/// The main loop is about to sleep: what was done before this event is in the stream.
#[inline]
pub fn turn_ends() {
    if ANY.load(Ordering::Relaxed) {
        TURN.fetch_add(1, Ordering::Relaxed);
    }
}

/// The main loop is about to sleep: answers those that need not wait any more. True if it must not
/// sleep: another turn must follow, or the timer that asks the replicas.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) -> bool {
    ANY.load(Ordering::Relaxed) && turn(ctx)
}

fn turn(ctx: Ctx<'_>) -> bool {
    let mut again = false;
    if LOOK.swap(false, Ordering::Relaxed) || WAITING.lock().is_due() {
        again = look(ctx);
        LOOK.store(again, Ordering::Relaxed);
    }
    let asks = ASK.load(Ordering::Relaxed)
        && !IS_ASKING.load(Ordering::Relaxed)
        && !must_not_replicate(ctx.locked());
    if asks {
        ASK.store(false, Ordering::Relaxed);
        IS_ASKING.store(true, Ordering::Relaxed);
        // SAFETY: the event's context; the callback takes no data.
        unsafe {
            api!(RedisModule_CreateTimer)(ctx.raw(), 0, Some(on_timer), std::ptr::null_mut())
        };
    }
    asks || again
}

impl WaitList {
    /// Whether a client's time is over, or what another wrote is in the stream by now.
    fn is_due(&self) -> bool {
        self.next_position.is_some_and(|position| position <= instance().engine.ledger.log.safe())
            || self.next_end.is_some_and(|end| end <= Instant::now())
    }
}

/// Answers those that need not wait any more. True if some have only just come.
#[cold]
fn look(ctx: Ctx<'_>) -> bool {
    let turn = TURN.load(Ordering::Relaxed);
    let mut is_any_new = false;
    let (stream, now) = (Stream::look(ctx), Instant::now());
    let mut over = Vec::new();
    // Few wait for it.
    let mut aof = None;
    let mut aof = || *aof.get_or_insert_with(|| look_at_aof(ctx));
    {
        let mut waiting = WAITING.lock();
        for mut client in std::mem::take(&mut waiting.clients) {
            let is_new = turn < client.from;
            is_any_new |= is_new;
            match if is_new { None } else { client.outcome(&stream, &mut aof, now) } {
                Some(outcome) => over.push((client.wait.answer, outcome)),
                None => waiting.clients.push(client),
            }
        }
        let waits = || waiting.clients.iter().map(|client| &client.wait);
        let end = waits().filter_map(|wait| wait.until).min();
        let position = waits().filter(|wait| wait.offset.is_none()).map(|wait| wait.position).min();
        (waiting.next_end, waiting.next_position) = (end, position);
        ANY.store(!waiting.clients.is_empty(), Ordering::Relaxed);
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
        let is_old = wait.position != 0 && wait.position <= DEMOTED_AT.load(Ordering::Relaxed);
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
            ASK.store(!stream.acknowledged.is_empty(), Ordering::Relaxed);
        }
        None
    }
}

/// Whether the server's AOF is on, and complete.
///
/// # Errors
/// What of it is synced cannot be told.
fn look_at_aof(ctx: Ctx<'_>) -> Result<bool, Error> {
    if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_AOF == 0 {
        return Err(Error::WaitAofIsOff);
    }
    // What the host does not tell may be the case: then nothing is known of what is synced.
    let is_always = ctx.config_is(c"appendfsync", b"always");
    if !is_always || !ctx.config_is(c"no-appendfsync-on-rewrite", b"no") {
        return Err(Error::WaitAofUnknown);
    }
    if !AOF_IS_COMPLETE.load(Ordering::Relaxed) {
        let info = ctx.info(c"persistence");
        // Until an AOF that was turned on is complete, a rewrite is under way or scheduled.
        let is_not = |name| info.number(name) == Some(0);
        let is_complete = is_not(c"aof_rewrite_in_progress") && is_not(c"aof_rewrite_scheduled");
        AOF_IS_COMPLETE.store(is_complete, Ordering::Relaxed);
    }
    Ok(AOF_IS_COMPLETE.load(Ordering::Relaxed))
}

/// The AOF is off, or may have been turned on: it is not known to be complete.
#[inline]
pub fn aof_may_change() {
    AOF_IS_COMPLETE.store(false, Ordering::Relaxed);
}

impl Stream {
    /// As the host's INFO tells.
    fn look(ctx: Ctx<'_>) -> Self {
        let info = ctx.info(c"replication");
        let replicas = info.number(c"connected_slaves").unwrap_or(0);
        let acknowledged = (0..replicas)
            .filter_map(|number| acknowledged(info.text(&c_text(&format!("slave{number}")))?));
        Stream {
            // What is not known no replica has.
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
        IS_ASKING.store(false, Ordering::Relaxed);
        if must_not_replicate(ctx.locked()) {
            return ASK.store(true, Ordering::Relaxed);
        }
        // SAFETY: the context may replicate now. The format has the host leave out the AOF, and
        // take two C strings.
        let done = unsafe {
            let (command, format) = (c"REPLCONF".as_ptr(), c"Acc".as_ptr());
            let (get, all) = (c"GETACK".as_ptr(), c"*".as_ptr());
            api!(RedisModule_Replicate)(ctx.raw(), command, format, get, all)
        };
        if done == raw::REDISMODULE_OK as i32 {
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
