//! What only the host's main thread can do for a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::caller::PortCaller;
use crate::engine::{Engine, Host, Locked, MainTask};
use crate::net::flow::State;
use crate::net::shared::{Answer, PortMessage};
use crate::net::waiting::WaitingConnection;

/// Sends the main thread a task for a connection, which waits for the answer.
pub fn ask_main(
    caller: &mut PortCaller<'_>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
) {
    let command = caller.session.flow.own_command;
    ask_main_later(caller, answering(command, question));
}

/// As [`ask_main`], of a task that writes to keys.
pub fn have_main_write(
    caller: &mut PortCaller<'_>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
) {
    let command = caller.session.flow.own_command;
    let task = task_for(caller, answering(command, question));
    caller.engine().context().send_writing_task(task);
}

/// Sends the main thread a task for a connection, which waits until the task, or whoever gets the
/// waiting connection from it, ends that.
pub fn ask_main_later<T>(caller: &mut PortCaller<'_>, task: T)
where
    T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
{
    let task = task_for(caller, task);
    caller.engine().context().send_main_task(task);
}

fn task_for<T>(caller: &mut PortCaller<'_>, task: T) -> MainTask
where
    T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
{
    let waiting = wait_for_task(caller);
    let killed = Arc::clone(&caller.session.flow.client.killed);
    Box::new(move |locked, engine, host| {
        if !killed.load(Ordering::Relaxed) {
            task(locked, engine, host, waiting);
        }
    })
}

/// Has a connection wait for a task of the main thread.
pub fn wait_for_task(caller: &mut PortCaller<'_>) -> WaitingConnection {
    caller.session.flow.state = State::Waiting;
    let client = &caller.session.flow.client;
    WaitingConnection::new(&caller.worker.shared, client.worker, client.key)
}

/// A task that ends the connection's waiting with the answer to a question, which is a part of this
/// command.
fn answering(
    command: Option<usize>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
) -> impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static {
    move |locked, engine, host, waiting| {
        // What other tasks have seen does not concern this one.
        engine.main_slot(locked).take_seen();
        let began = Instant::now();
        let answer = question(locked, engine, host);
        if let Some(command) = command {
            engine.main_slot(locked).timed(command, began.elapsed());
        }
        let seen = engine.main_slot(locked).take_seen();
        waiting.ends(|key| PortMessage::Answer(key, seen, answer));
    }
}
