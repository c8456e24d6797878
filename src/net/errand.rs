//! What only the host's main thread can do for a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::connection::{Connection, State};
use super::driver::Driver;
use super::job::PortReply;
use super::service::Service;
use super::session::BUSY;
use super::shared::{Answer, Mail};
use super::waiting::Waiting;
use crate::command::Action;
use crate::shard::{Author, Call, Engine, Host, JobDoor, JobOwner, Locked, Outcome, Taking, long_work};
use crate::store::Now;

impl<D: Driver> Service<D> {
    /// Has the main thread look something up, or do something, for a connection; what it answers is told
    /// to the connection, which waits for it.
    pub(super) fn ask_main(
        &self,
        connection: &mut Connection,
        question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
    ) {
        connection.state = State::Waiting;
        let waiting = Waiting::new(&self.shared, self.worker, connection.key);
        let killed = Arc::clone(&connection.client.killed);
        self.engine().send_errand(Box::new(move |locked, engine, host| {
            if killed.load(Ordering::Relaxed) {
                return;
            }
            let answer = question(locked, engine, host);
            waiting.ends(|key| Mail::Answer(key, answer));
        }));
    }

    /// Has the main thread run a command.
    pub(super) fn on_main(&self, connection: &mut Connection, call: &Call<'_>) {
        connection.state = State::Waiting;
        let (command, db, limits, prefix) = (call.command, call.db, call.limits, call.prefix);
        let args = call.args.to_owned(usize::MAX);
        let reply = PortReply::new(&self.shared, self.worker, connection);
        let owner = self.owner(connection);
        let user = connection.session.user.clone();
        let killed = Arc::clone(&connection.client.killed);
        self.engine().send_errand(Box::new(move |locked, engine, host| {
            if killed.load(Ordering::Relaxed) {
                return;
            }
            args.with(|args| {
                let now = Now::lazy(engine.config.clock);
                let call = Call { command, args, db, now, limits, prefix, author: Author::Nobody };
                match (host, call.row().action) {
                    (None, _) => reply.say(|reply| reply.error(BUSY)),
                    (Some(host), Action::Door(which)) => {
                        let user = user.as_ref().map_or(&b""[..], |user| &user.name);
                        host.run_door_command(locked, &call, which, user, owner, reply);
                    }
                    (Some(_), _) => run_on_main(locked, engine, &call, owner, reply),
                }
            });
        }));
    }

    /// Who a connection's job is for.
    pub(super) fn owner(&self, connection: &Connection) -> JobOwner {
        let client = &connection.client;
        let (db, gone) = (connection.session.db, Arc::clone(&client.gone));
        JobOwner { db, client: client.id, door: JobDoor::Port, gone }
    }
}

/// Runs a command to its end, or starts it as a job.
fn run_on_main(
    locked: Locked<'_>,
    engine: &Engine,
    call: &Call<'_>,
    owner: JobOwner,
    mut reply: Box<PortReply>,
) {
    if let Some(error) = engine.late_refusal(call) {
        return reply.say(|reply| call.refuse(error, reply));
    }
    let seat = engine.main_seat(locked);
    engine.book_at_once(seat);
    if engine.attempt(seat, call, Taking::Wait(locked), &mut *reply) != Outcome::Long {
        return reply.say(|_| {});
    }
    let work = engine.room_for_job(call.command).and_then(|()| long_work(engine, call, Some(locked)));
    match work {
        Err(error) => reply.say(|reply| call.refuse(error, reply)),
        Ok(work) if engine.config.safemode => {
            engine.run_to_end(locked, work, &mut *reply);
            reply.say(|_| {});
        }
        Ok(work) => engine.start_job(call.command, owner, work, reply),
    }
}
