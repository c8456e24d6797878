//! What only the host's main thread can do for a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::connection::{Connection, State};
use super::driver::Driver;
use super::service::Service;
use super::shared::{Answer, PortMessage};
use super::waiting::WaitingConnection;
use crate::engine::{Engine, Host, Locked, MainTask};

impl<D: Driver> Service<D> {
    /// Sends the main thread a task for a connection, which waits for the answer.
    pub(super) fn ask_main(
        &self,
        connection: &mut Connection,
        question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
    ) {
        self.ask_main_later(connection, answering(question));
    }

    /// As [`Service::ask_main`], of a task that writes to keys.
    pub(super) fn have_main_write(
        &self,
        connection: &mut Connection,
        question: impl FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) -> Answer + Send + 'static,
    ) {
        let task = self.task_for(connection, answering(question));
        self.engine().context().send_writing_task(task);
    }

    /// Sends the main thread a task for a connection, which waits until the task, or whoever gets
    /// the waiting connection from it, ends that.
    pub(super) fn ask_main_later<T>(&self, connection: &mut Connection, task: T)
    where
        T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
    {
        let task = self.task_for(connection, task);
        self.engine().context().send_main_task(task);
    }

    fn task_for<T>(&self, connection: &mut Connection, task: T) -> MainTask
    where
        T: FnOnce(Locked<'_>, &Engine, Option<&dyn Host>, WaitingConnection) + Send + 'static,
    {
        connection.state = State::Waiting;
        let waiting = WaitingConnection::new(&self.shared, self.worker, connection.key);
        let killed = Arc::clone(&connection.client.killed);
        Box::new(move |locked, engine, host| {
            if !killed.load(Ordering::Relaxed) {
                task(locked, engine, host, waiting);
            }
        })
    }
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
