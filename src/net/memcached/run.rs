//! Running a connection's requests: parsed ahead, run in the order sent.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::alone::{has_failed, own_request, run_alone, say_line};
use super::caller::{ItemCaller, MemcachedCaller};
use super::login;
use super::parse::{
    KeysOfLine, MemcachedRequest, ParsedRequest, next_key, parse_other, plain_get, plain_set,
};
use super::plan::{Planned, PlannedCalls, RequestPlan};
use super::reply::MemcachedReply;
use super::session::KeptKeys;
use crate::command::{COMMANDS, Limits, is_withdrawn};
use crate::engine::{Gate, Gates, Intent, Outcome, Taking, may_be_slow};
use crate::limits::{HELD_OUTPUT, HELD_TIME, OUTPUT_PAUSE};
use crate::net::access::UserState;
use crate::net::flow::State;
use crate::net::shared::count;
use crate::net::turn::Pace;

/// Runs the requests at the start of a connection's input, as long as it may go on; returns their
/// length.
pub fn run(caller: &mut MemcachedCaller<'_>, input: &[u8]) -> usize {
    let mut at = 0;
    let mut pace = Pace::default();
    // What other work on this thread has seen does not concern this connection.
    caller.slot().take_seen();
    caller.session.flow.missing = 0;
    while caller.session.flow.may_run()
        && caller.output.len() <= OUTPUT_PAUSE
        && !caller.turn.timed.is_over()
        && !pace.is_over(caller.turn.at_once)
    {
        at += run_some(caller, &input[at..]);
        if at == input.len() && caller.session.flow.missing == 0 {
            caller.session.flow.missing = 1;
        }
    }
    let seen = caller.slot().take_seen();
    caller.session.flow.wait_for(seen);
    at
}

/// To a client whose database does not exist.
const NO_DATABASE: &[u8] =
    b"SERVER_ERROR midi.memcached-database is not the number of a database of the server";

/// The limits of requests.
pub(super) fn limits(caller: &MemcachedCaller<'_>) -> Limits {
    let most = caller.engine().settings().port.memcached_item_size.load(Ordering::Relaxed);
    Limits { max_value_bytes: caller.limits.max_value_bytes.min(most), ..caller.limits }
}

/// What follows the requests that run together.
enum PlanStop<'i> {
    /// The end of the input, or of the room for more.
    End,
    /// A call that runs by itself.
    Alone(Planned<'i>),
    /// A request that is no call of one key, up to there, and whether it is silent.
    Own(MemcachedRequest<'i>, usize, bool),
    /// The beginning of a request, as the parser says.
    Incomplete(ParsedRequest<'i>),
}

fn run_some(caller: &mut MemcachedCaller<'_>, input: &[u8]) -> usize {
    let session = &mut caller.session;
    if session.skipped > 0 {
        let skipped = session.skipped.min(input.len());
        session.skipped -= skipped;
        return skipped;
    }
    match caller.session.access.refresh(caller.engine()) {
        UserState::Good => {}
        UserState::Unknown => {
            caller.session.flow.state = State::Deferred;
            return 0;
        }
        UserState::Gone => {
            caller.session.flow.state = State::Closing;
            return 0;
        }
    }
    if caller.session.access.user.is_none() {
        return login::run(caller, input);
    }
    if caller.session.access.db >= caller.engine().config().databases {
        say_line(caller, NO_DATABASE);
        caller.session.flow.state = State::Closing;
        return input.len();
    }
    let kept = caller.session.keys.clone();
    let mut plan = RequestPlan::default();
    let stop = fill(caller, input, kept.as_ref().map(KeptKeys::keys), &mut plan);
    if !plan.0.is_empty() {
        return run_together(caller, &plan);
    }
    match stop {
        PlanStop::End => 0,
        PlanStop::Alone(planned) => run_alone(caller, &planned),
        PlanStop::Own(request, end, is_silent) => {
            caller.session.seen = 0;
            own_request(caller, request, end, is_silent)
        }
        PlanStop::Incomplete(parsed) => not_whole(caller, input, &parsed),
    }
}

/// The input begins with a request that has not come as a whole.
pub(super) fn not_whole(
    caller: &mut MemcachedCaller<'_>,
    input: &[u8],
    parsed: &ParsedRequest<'_>,
) -> usize {
    match parsed {
        ParsedRequest::Incomplete(missing) => caller.session.flow.missing = *missing,
        ParsedRequest::NoLine => {
            caller.session.seen = input.len();
            caller.session.flow.missing = 1;
        }
        ParsedRequest::TooLong | ParsedRequest::Request(..) => {
            caller.session.flow.state = State::Closing;
            return input.len();
        }
    }
    0
}

/// Adds the calls at the start of the input to a plan, until something stops it.
fn fill<'i>(
    caller: &mut MemcachedCaller<'_>,
    input: &'i [u8],
    mut keys: Option<KeysOfLine<'i>>,
    plan: &mut RequestPlan<'i>,
) -> PlanStop<'i> {
    let most = limits(caller).max_value_bytes;
    let is_full = is_full(caller);
    let mut seen = std::mem::take(&mut caller.session.seen);
    let mut at = 0;
    while !plan.0.is_full() {
        let planned = if let Some(line) = keys {
            let Some((key, end, left)) = next_key(&input[at..], line) else {
                (at, keys) = ((at + line.left + line.line_end).min(input.len()), None);
                continue;
            };
            let mut planned = Planned::get(key, left, at + end);
            if is_full {
                planned.draw_no_number();
            }
            planned
        } else if at == input.len() {
            break;
        } else if let Some((key, end)) = plain_get(&input[at..]) {
            seen = 0;
            Planned::get(key, KeysOfLine::NONE, at + end)
        } else if let Some((set, end)) = plain_set(&input[at..], most) {
            seen = 0;
            Planned::store(set, (at + end, false))
        } else {
            match parse_other(&input[at..], most, std::mem::take(&mut seen)) {
                ParsedRequest::Request(MemcachedRequest::Get(line), end, _) => {
                    (at, keys) = (at + end, Some(line));
                    continue;
                }
                ParsedRequest::Request(
                    request @ MemcachedRequest::TooLarge(..),
                    end,
                    is_silent,
                ) => {
                    return PlanStop::Own(request, at + end, is_silent);
                }
                ParsedRequest::Request(request, end, is_silent) => {
                    match planned(caller, request, at + end, is_silent) {
                        Some(planned) => planned,
                        None => return PlanStop::Own(request, at + end, is_silent),
                    }
                }
                parsed => return PlanStop::Incomplete(parsed),
            }
        };
        if !goes(caller, &planned) {
            return PlanStop::Alone(planned);
        }
        (at, keys) = (planned.end, planned.keys);
        plan.0.push(planned);
    }
    PlanStop::End
}

/// Whether no key may take more memory.
fn is_full(caller: &MemcachedCaller<'_>) -> bool {
    caller.engine().gates().has(Gates::FULL.and(Gates::OUT_OF_MEMORY))
}

/// The call for a request, if it is about one key. Where nothing can be written now, `mg` only
/// reads.
#[inline]
pub(super) fn planned<'i>(
    caller: &MemcachedCaller<'_>,
    request: MemcachedRequest<'i>,
    end: usize,
    is_silent: bool,
) -> Option<Planned<'i>> {
    let mut planned = Planned::of(request, end, is_silent)?;
    if is_full(caller) {
        planned.draw_no_number();
    }
    if planned.may_only_read(&request) {
        let (flags, engine) = (COMMANDS[planned.command].flags, caller.engine());
        let may_mark =
            || caller.session.access.may(engine, Planned::MARKS, &planned.args_of_rights());
        if engine.ledger.gate(Intent::OfPort(flags)) != Gate::Go || !may_mark() {
            planned.only_read();
        }
    }
    Some(planned)
}

/// Whether a call may run together with others.
fn goes(caller: &MemcachedCaller<'_>, planned: &Planned<'_>) -> bool {
    let (engine, session) = (caller.engine(), &*caller.session);
    session.access.plain
        && !planned.is_no_use
        && engine.ledger.gate(Intent::OfPort(COMMANDS[planned.command].flags)) == Gate::Go
        && planned.rights.iter().all(|&row| {
            !is_withdrawn(row) && session.access.may(engine, row, &planned.args_of_rights())
        })
}

/// Runs calls that go together; returns where the last one that ran ends.
fn run_together(caller: &mut MemcachedCaller<'_>, plan: &RequestPlan<'_>) -> usize {
    caller.turn.timed.interrupt();
    let (engine, slot, limits) = (caller.engine(), caller.slot(), limits(caller));
    let calls = PlannedCalls { plan, engine, db: caller.session.access.db, limits };
    let list = plan.0.iter().map(|planned| (planned.key(), planned.answered));
    let most = caller.session.flow.most_output;
    let mut reply = MemcachedReply::new(caller.output, list).up_to(most);
    let is_timed = plan.0.iter().any(|planned| may_be_slow(COMMANDS[planned.command]));
    let start = is_timed.then(Instant::now);
    let (done, outcome) = if let [planned] = &plan.0[..] {
        let call = planned.call(engine, caller.session.access.db, limits);
        match engine.attempt(slot, &call, Taking::WORKER, &mut reply) {
            Outcome::Done => (1, Outcome::Done),
            other => (0, other),
        }
    } else {
        let enough = reply.len() + HELD_OUTPUT;
        engine.attempt_run(slot, &calls, &mut reply, |reply| {
            reply.ends_line()
                || reply.len() > enough
                || start.is_some_and(|start| start.elapsed() > HELD_TIME)
        })
    };
    let mut ends_line = reply.ends_line();
    if let Some(start) = start {
        caller.turn.timed.ran_together(done, start.elapsed());
    }
    slot.ran_at_once(done);
    count(&caller.worker.counts().commands, done as u64);
    let last = if outcome == Outcome::Done { &plan.0[done - 1] } else { &plan.0[done] };
    if outcome != Outcome::Done {
        caller.said = caller.output.end();
        let mut call = last.call(engine, caller.session.access.db, limits);
        let (key, answered) = (last.key(), last.answered);
        let said = caller.said;
        engine.go_on(slot, &mut call, outcome, &mut ItemCaller { port: caller, key, answered });
        // If the reply comes later, `Protocol::say` ends the line.
        ends_line = has_failed(caller, said);
    }
    caller.session.keys = last.keys.map(KeptKeys::of);
    if ends_line {
        caller.session.skip_line();
    }
    last.end
}
