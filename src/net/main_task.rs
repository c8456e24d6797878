//! What only the host's main thread can do for a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::context::Context;
use super::session::State;
use super::shared::{Answer, PortMessage};
use super::waiting::WaitingConnection;
use crate::engine::{Engine, Host, Locked, MainTask};

/// Sends the main thread a task for a connection, which waits for the answer.
pub fn ask_main(
    cx: &mut Context<'_>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
) {
    ask_main_later(cx, answering(question));
}

/// As [`ask_main`], of a task that writes to keys.
pub fn have_main_write(
    cx: &mut Context<'_>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
) {
    let task = task_for(cx, answering(question));
    cx.engine().context().send_writing_task(task);
}

/// Sends the main thread a task for a connection, which waits until the task, or whoever gets the
/// waiting connection from it, ends that.
pub fn ask_main_later<T>(cx: &mut Context<'_>, task: T)
where
    T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
{
    let task = task_for(cx, task);
    cx.engine().context().send_main_task(task);
}

fn task_for<T>(cx: &mut Context<'_>, task: T) -> MainTask
where
    T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
{
    cx.session.state = State::Waiting;
    let client = &cx.session.client;
    let waiting = WaitingConnection::new(&cx.worker.shared, client.worker, client.key);
    let killed = Arc::clone(&client.killed);
    Box::new(move |locked, engine, host| {
        if !killed.load(Ordering::Relaxed) {
            task(locked, engine, host, waiting);
        }
    })
}

/// A task that ends the connection's waiting with the answer to a question.
fn answering(
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
) -> impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static {
    move |locked, engine, host, waiting| {
        // What other tasks have seen does not concern this one.
        engine.main_slot(locked).take_seen();
        let answer = question(locked, engine, host);
        let seen = engine.main_slot(locked).take_seen();
        waiting.ends(|key| PortMessage::Answer(key, seen, answer));
    }
}
