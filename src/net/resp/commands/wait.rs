//! WAIT and WAITAOF: the connection waits until replicas, or the AOF, have what it wrote.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::command::{Args, Error, PortCommand, Reply, parse_integer};
use crate::engine::{Awaited, ReplicaWait, Waited};
use crate::net::flow::State;
use crate::net::main_task::ask_main_later;
use crate::net::resp::caller::RespCaller;
use crate::net::resp::session::{BUSY, RespSession};
use crate::net::transport::Output;
use crate::store::UnixMs;

/// `WAIT numreplicas timeout`, or `WAITAOF numlocal numreplicas timeout`. In EXEC they do not
/// block, but return what is the case.
pub fn wait(caller: &mut RespCaller<'_>, which: PortCommand, args: &Args<'_>, blocks: bool) {
    let now = (caller.engine().config().clock)();
    let asked = match which {
        PortCommand::WaitAof => match WaitArguments::of_aof(args, now) {
            Err(error) => return caller.reply().error(&error.bare_text()),
            asked => asked,
        },
        // A replica refuses it whatever its arguments.
        _ => WaitArguments::of_replicas(args, now),
    };
    if blocks {
        // What the connection has run in this turn comes before it.
        let seen = caller.slot().take_seen();
        caller.session.flow.wait_for(seen);
        caller.session.flow.hears_meanwhile = true;
    }
    let session = &*caller.session;
    let (position, offset) = (session.flow.last_write.position, session.flow.last_write.offset);
    let gone = Arc::clone(&session.flow.client.gone);
    ask_main_later(caller, move |locked, _, host, waiting| {
        let answer = move |answer: Answered| {
            waiting.answers(0, move |session, output| tell(session, position, answer, output));
        };
        let Some(host) = host else { return answer(Err(BUSY.to_vec())) };
        let awaited = asked.map(|asked| asked.awaited).ok();
        if let Some(text) = host.refuses_wait(locked, awaited) {
            return answer(Err(text));
        }
        let WaitArguments { awaited, until } = match asked {
            Err(error) => return answer(Err(error.bare_text())),
            Ok(asked) => asked,
        };
        let answer = Box::new(move |waited| answer(Ok(waited)));
        let wait = ReplicaWait { position, offset, awaited, until, blocks, gone, answer };
        host.wait_for_replicas(locked, wait);
    });
}

/// The outcome, or the text of an error.
type Answered = Result<Waited, Vec<u8>>;

/// What to wait for, and how long.
#[derive(Clone, Copy)]
struct WaitArguments {
    awaited: Awaited,
    /// Until when; `None` for ever.
    until: Option<Instant>,
}

impl WaitArguments {
    /// WAIT's arguments.
    fn of_replicas(args: &Args<'_>, now: UnixMs) -> Result<Self, Error> {
        let replicas = parse_integer(args.get(1)).ok_or(Error::NotAnInteger)?;
        Ok(WaitArguments { awaited: Awaited::Replicas(replicas), until: end(args.get(2), now)? })
    }

    /// WAITAOF's arguments.
    fn of_aof(args: &Args<'_>, now: UnixMs) -> Result<Self, Error> {
        let local = match parse_integer(args.get(1)).ok_or(Error::NotAnInteger)? {
            local @ (0 | 1) => local == 1,
            _ => return Err(Error::NotZeroOrOne),
        };
        let replicas = parse_integer(args.get(2)).filter(|&replicas| replicas >= 0);
        let replicas = replicas.ok_or(Error::NotPositive)?;
        let until = end(args.get(3), now)?;
        if replicas > 0 {
            return Err(Error::WaitAofOfReplicas);
        }
        Ok(WaitArguments { awaited: Awaited::Aof(local), until })
    }
}

/// When a timeout in milliseconds ends; `None` for never.
fn end(timeout: &[u8], now: UnixMs) -> Result<Option<Instant>, Error> {
    let timeout = parse_integer(timeout).ok_or(Error::TimeoutNotAnInteger)?;
    if timeout == 0 {
        return Ok(None);
    }
    let timeout_ms = u64::try_from(timeout).map_err(|_| Error::TimeoutNegative)?;
    now.checked_add(timeout).ok_or(Error::TimeoutOutOfRange)?;
    Ok(Instant::now().checked_add(Duration::from_millis(timeout_ms)))
}

fn tell(session: &mut RespSession, position: u64, answer: Answered, output: &mut Output) {
    match answer {
        Ok(Waited::Counted { replicas, offset }) => {
            // In EXEC, what EXEC wrote before it has come after.
            if session.flow.last_write.position == position {
                session.flow.last_write.offset = offset;
            }
            session.reply(output).integer(replicas as i64);
        }
        Ok(Waited::Synced(is_synced)) => {
            let mut reply = session.reply(output);
            reply.array(2);
            reply.integer(is_synced.into());
            reply.integer(0);
        }
        Ok(Waited::Refused(error)) => session.reply(output).error(&error.bare_text()),
        Ok(Waited::Undone) => {
            session.exec_replies = None;
            session.reply(output).error(&Error::Unblocked.bare_text());
            session.flow.state = State::Closing;
        }
        Err(text) => session.reply(output).error(&text),
    }
}
