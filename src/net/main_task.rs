//! What only the host's main thread can do for a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::caller::PortCaller;
use super::client::Client;
use super::flow::State;
use super::protocol::Protocol;
use super::shared::Answer;
use super::waiting::WaitingConnection;
use crate::command::{Args, COMMANDS};
use crate::engine::{Engine, Host, Locked, MainTask};

/// Sends the main thread a task for a connection, which waits for the answer.
pub fn ask_main<P: Protocol>(
    caller: &mut PortCaller<'_, P>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer<P> + Send + 'static,
) {
    let task = question_task(caller, question);
    caller.engine().context().send_main_task(task);
}

/// The task of [`ask_main`], not sent yet. The connection waits for it.
pub fn question_task<P: Protocol>(
    caller: &mut PortCaller<'_, P>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer<P> + Send + 'static,
) -> MainTask {
    let flow = &caller.session.flow();
    let task = answering(flow.own_command, Arc::clone(&flow.client), question);
    task_for(caller, task)
}

/// Sends the main thread a task for a connection, which waits until the task, or whoever gets the
/// waiting connection from it, ends that.
pub fn ask_main_later<P: Protocol, T>(caller: &mut PortCaller<'_, P>, task: T)
where
    T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
{
    let task = task_for(caller, task);
    caller.engine().context().send_main_task(task);
}

fn task_for<P: Protocol, T>(caller: &mut PortCaller<'_, P>, task: T) -> MainTask
where
    T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
{
    let waiting = wait_for_task(caller);
    let killed = Arc::clone(&caller.session.flow().client.killed);
    Box::new(move |locked, engine, host| {
        if !killed.load(Ordering::Relaxed) {
            task(locked, engine, host, waiting);
        }
    })
}

/// Has a connection wait for a task of the main thread.
pub fn wait_for_task<P: Protocol>(caller: &mut PortCaller<'_, P>) -> WaitingConnection {
    let flow = caller.session.flow_mut();
    flow.state = State::Waiting;
    let client = &flow.client;
    WaitingConnection::new(&caller.worker.shared, client.worker, client.key)
}

/// A task that ends the connection's waiting with the answer to a question, which is a part of this
/// client's command.
fn answering<P: Protocol>(
    command: Option<usize>,
    client: Arc<Client>,
    question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer<P> + Send + 'static,
) -> impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static {
    move |locked, engine, host, waiting| {
        // What other tasks have seen does not concern this one.
        engine.main_slot(locked).take_seen();
        let began = Instant::now();
        let answer = question(locked, engine, host);
        if let Some(command) = command {
            let took = began.elapsed();
            engine.main_slot(locked).timed(command, took);
            if engine.slow_log.ran_for(took) {
                log_slow(engine, took, command, &client);
            }
        }
        let seen = engine.main_slot(locked).take_seen();
        waiting.answers(seen, answer);
    }
}

/// Logs a slow command of a connection, by its name alone: its arguments are not kept.
#[cold]
fn log_slow(engine: &Engine, took: Duration, command: usize, client: &Client) {
    let name = COMMANDS[command].name.to_uppercase();
    let words: SmallVec<[&[u8]; 2]> = name.split('|').map(str::as_bytes).collect();
    engine.slow_log.log(took, command, &Args::new(&words), || client.called_from());
}
