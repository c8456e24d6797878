//! A connection that waits for another thread.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::Client;
use super::protocol::Protocol;
use super::shared::{PortMessage, Shared};
use super::transport::{Key, Output};
use crate::engine::{CalledFrom, JobDoor, JobOwner, JobReply, PortClient};

/// A connection that waits for a message of another thread. If none comes, as after a panic there,
/// the connection is closed.
pub struct WaitingConnection {
    shared: Arc<Shared>,
    worker: usize,
    key: Key,
    ended: bool,
}

impl WaitingConnection {
    /// For this connection of this worker.
    pub fn new(shared: &Arc<Shared>, worker: usize, key: Key) -> Self {
        WaitingConnection { shared: Arc::clone(shared), worker, key, ended: false }
    }

    /// Sends it a message; it still waits afterwards.
    pub fn send(&self, message: impl FnOnce(Key) -> PortMessage) {
        self.shared.send(self.worker, message(self.key));
    }

    /// Whether the client with this id is still connected.
    pub fn is_there(&self, client: u64) -> bool {
        self.shared.find(client).is_some()
    }

    /// At most this many bytes may wait for the client.
    pub fn most_output(&self) -> usize {
        self.shared.engine.settings().port.most_output()
    }

    /// The last position of the log so far.
    pub fn last_position(&self) -> u64 {
        self.shared.engine.ledger.log.last()
    }

    /// Ends its wait: `answer` is given its session, and appends the reply. `seen` is the position
    /// of the log that the reply must wait for; 0 for none.
    pub fn answers<P: Protocol>(
        self,
        seen: u64,
        answer: impl FnOnce(&mut P, &mut Output) + Send + 'static,
    ) {
        let answer = move |session: &mut dyn Any, output: &mut Output| {
            if let Some(session) = session.downcast_mut() {
                answer(session, output);
            }
        };
        self.ends(|key| PortMessage::Answer(key, seen, Box::new(answer)));
    }

    /// Sends it the message that ends its wait.
    pub fn ends(mut self, message: impl FnOnce(Key) -> PortMessage) {
        self.ended = true;
        self.send(message);
    }
}

impl Drop for WaitingConnection {
    fn drop(&mut self) {
        if !self.ended {
            self.send(PortMessage::Close);
        }
    }
}

/// Makes the reply of a job for a client.
pub trait MakeReply: Send + 'static {
    /// Makes it.
    fn make(self, to: WaitingConnection, client: &Client) -> Box<dyn JobReply>;
}

/// A client whose command, or job, runs elsewhere.
pub struct AwaitingClient<R> {
    shared: Arc<Shared>,
    /// The client.
    pub client: Arc<Client>,
    reply: R,
}

impl<R: MakeReply> AwaitingClient<R> {
    /// If it waits for a job, `reply` makes the reply.
    pub fn new(shared: &Arc<Shared>, client: &Arc<Client>, reply: R) -> Self {
        AwaitingClient { shared: Arc::clone(shared), client: Arc::clone(client), reply }
    }

    /// Its connection.
    pub fn connection(&self) -> WaitingConnection {
        WaitingConnection::new(&self.shared, self.client.worker, self.client.key)
    }

    /// The owner of its job.
    pub fn owner(&self, db: u32) -> JobOwner {
        let client = &self.client;
        let (from, gone) = (client.called_from(), Arc::clone(&client.gone));
        JobOwner { db, client: client.id, door: JobDoor::Port, from, gone }
    }

    /// The owner and the reply of its job.
    pub fn job(self, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        let (owner, to) = (self.owner(db), self.connection());
        (owner, self.reply.make(to, &self.client))
    }
}

impl<R: MakeReply> PortClient for AwaitingClient<R> {
    fn is_gone(&self) -> bool {
        self.client.killed.load(Ordering::Relaxed)
    }

    fn called_from(&self) -> CalledFrom {
        self.client.called_from()
    }

    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        let (said, seen, last) = (Output::default(), 0, false);
        let Client { worker, key, .. } = *self.client;
        // From now on it waits for a job, not for a shard.
        self.shared.send(worker, PortMessage::Part { key, said, seen, last });
        self.job(db)
    }
}
