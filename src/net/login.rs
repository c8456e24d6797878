//! Logins: who a connection's user is, as the host says.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::caller::PortCaller;
use super::flow::State;
use super::main_task::ask_main;
use super::protocol::Protocol;
use super::transport::Output;
use crate::engine::{PasswordSum, Refusal, User};

/// The outcome of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// The client is logged in.
    Done,
    /// The name or the password is wrong.
    Wrong,
    /// The host cannot be asked: a script takes too long.
    Busy,
}

/// Has the host check a name and password, and logs the client in if they are right; calls `then`
/// in any case.
pub fn ask_for_login<P: Protocol>(
    caller: &mut PortCaller<'_, P>,
    name: &[u8],
    password: &[u8],
    then: impl FnOnce(Login, &mut P, &mut Output) + Send + 'static,
) {
    let (name, password): (Box<[u8]>, _) = (name.into(), PasswordSum::of(password));
    let (shared, worker) = (Arc::clone(&caller.worker.shared), caller.worker.number);
    ask_main(caller, move |locked, engine, host| {
        let Some(host) = host else {
            return Box::new(|session, output| then(Login::Busy, session, output));
        };
        let epoch = engine.users.epoch();
        let right = host.authenticate(locked, &name, &password);
        let user = right
            .then(|| engine.users.find_or_look(locked, &name, |name| host.user(locked, name)))
            .flatten();
        if user.is_none() {
            engine.note_refusal(|| Refusal::of_login(&name));
            shared.counts(worker).failed_logins.fetch_add(1, Ordering::Relaxed);
        }
        Box::new(move |session: &mut P, output: &mut Output| match user {
            Some(user) => {
                log_in(session, user, epoch);
                then(Login::Done, session, output);
            }
            None => then(Login::Wrong, session, output),
        })
    });
}

/// Logs a client in as the first user whose name its certificate has, if there is one: no password
/// is needed. Otherwise it stays what it is. It runs nothing until that is known.
pub fn log_in_by_certificate<P: Protocol>(caller: &mut PortCaller<'_, P>, names: Vec<Box<[u8]>>) {
    let (shared, worker) = (Arc::clone(&caller.worker.shared), caller.worker.number);
    ask_main(caller, move |locked, engine, host| {
        // A script takes too long. As somebody else it might do what it may not.
        let Some(host) = host else {
            return Box::new(|session, _| session.flow_mut().state = State::Closing);
        };
        let epoch = engine.users.epoch();
        let name = names.iter().find(|name| host.is_on(locked, name));
        let user = name.and_then(|name| {
            engine.users.find_or_look(locked, name, |name| host.user(locked, name))
        });
        if user.is_none() {
            engine.note_refusal(|| Refusal::of_certificate(names.first().map_or(b"", |name| name)));
            shared.counts(worker).failed_logins.fetch_add(1, Ordering::Relaxed);
        }
        Box::new(move |session: &mut P, _: &mut Output| {
            if let Some(user) = user {
                log_in(session, user, epoch);
            }
        })
    });
}

fn log_in(session: &mut impl Protocol, user: Arc<User>, epoch: u64) {
    let client = Arc::clone(&session.flow().client);
    session.access_mut().log_in(user, epoch, &client);
}
