//! WAIT: the connection waits until replicas have what it wrote.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::command::{Args, Error, Reply, parse_integer};
use crate::engine::{ReplicaWait, Waited};
use crate::net::connection::{Connection, State};
use crate::net::driver::Driver;
use crate::net::service::Service;
use crate::net::session::BUSY;
use crate::net::shared::PortMessage;
use crate::store::UnixMs;

impl<D: Driver> Service<D> {
    /// `WAIT numreplicas timeout`. In EXEC it does not block, but returns what the count is.
    pub(in crate::net) fn wait(
        &mut self,
        connection: &mut Connection,
        args: &Args<'_>,
        blocks: bool,
    ) {
        if blocks {
            // What the connection has run in this turn comes before it.
            let seen = self.slot().take_seen();
            self.wait_for(connection, seen);
        }
        if connection.ended {
            // It sends no more, so it may have left.
            connection.client.gone.store(true, Ordering::Relaxed);
        }
        let asked = read(args, (self.engine().config.clock)());
        let (position, offset) = (connection.last_write.position, connection.last_write.offset);
        let gone = Arc::clone(&connection.client.gone);
        self.ask_main_later(connection, move |locked, _, host, waiting| {
            let answer = move |answer: Answered| {
                waiting.ends(move |key| {
                    let tell = move |connection: &mut Connection, output: &mut Vec<u8>| {
                        tell(connection, position, answer, output)
                    };
                    PortMessage::Answer(key, 0, Box::new(tell))
                });
            };
            let Some(host) = host else { return answer(Err(BUSY.to_vec())) };
            let asked = match host.refuses_wait(locked) {
                Some(text) => Err(text),
                None => asked.map_err(Error::bare_text),
            };
            match asked {
                Err(text) => answer(Err(text)),
                Ok((replicas, until)) => {
                    let answer = Box::new(move |waited| answer(Ok(waited)));
                    let wait =
                        ReplicaWait { position, offset, replicas, until, blocks, gone, answer };
                    host.wait_for_replicas(locked, wait);
                }
            }
        });
    }
}

/// The outcome, or the text of an error.
type Answered = Result<Waited, Vec<u8>>;

/// How many replicas to wait for, and until when; `None` for ever.
fn read(args: &Args<'_>, now: UnixMs) -> Result<(i64, Option<Instant>), Error> {
    let replicas = parse_integer(args.get(1)).ok_or(Error::NotAnInteger)?;
    let timeout = parse_integer(args.get(2)).ok_or(Error::TimeoutNotAnInteger)?;
    if timeout == 0 {
        return Ok((replicas, None));
    }
    let timeout_ms = u64::try_from(timeout).map_err(|_| Error::TimeoutNegative)?;
    now.checked_add(timeout).ok_or(Error::TimeoutOutOfRange)?;
    Ok((replicas, Instant::now().checked_add(Duration::from_millis(timeout_ms))))
}

fn tell(connection: &mut Connection, position: u64, answer: Answered, output: &mut Vec<u8>) {
    match answer {
        Ok(Waited::Counted { replicas, offset }) => {
            // In EXEC, what EXEC wrote before it has come after.
            if connection.last_write.position == position {
                connection.last_write.offset = offset;
            }
            connection.session.reply(output).integer(replicas as i64);
        }
        Ok(Waited::Undone) => {
            connection.forget_commands();
            connection.session.exec_replies = None;
            connection.session.reply(output).error(&Error::Unblocked.bare_text());
            connection.state = State::Closing;
        }
        Err(text) => connection.session.reply(output).error(&text),
    }
}
