//! Messages on their way to the subscribers among a worker's connections.
//!
//! Messages are given in the order in which they have come, a few connections in each turn: a
//! message to very many must not keep others from their commands. Between the elements of another
//! reply there is no place for a message, so it waits with its connection until that is complete.

use std::collections::VecDeque;
use std::sync::Arc;

use slotmap::SlotMap;

use super::access::UserState;
use super::connection::Connection;
use super::flow::State;
use super::resp::{RespReply, RespSession};
use super::service::Service;
use super::subscribers::Subscribers;
use super::transport::{Key, Output};
use crate::command::{Reply, SubscriptionKind};
use crate::engine::HeardMessage;
use crate::limits::HEARD_PER_TURN;

/// Messages on their way to a worker's connections.
#[derive(Default)]
pub struct Deliveries {
    /// Each with its connections, and how many of those have been given it. Messages of one name
    /// share the list: there may be very many of either.
    queue: VecDeque<(Arc<HeardMessage>, Arc<[Key]>, usize)>,
    /// Connections that messages wait with.
    behind: Vec<Key>,
}

impl Deliveries {
    /// Whether there are none that could be given.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a message, for those that subscribe now.
    pub fn add(&mut self, message: Arc<HeardMessage>, subscribers: &mut Subscribers) {
        let keys = subscribers.of(&message);
        self.queue.push_back((message, keys, 0));
    }

    /// Gives some of them. Returns the connections that are to be closed.
    #[inline]
    pub fn give(
        &mut self,
        service: &mut Service,
        connections: &mut SlotMap<Key, Connection>,
    ) -> Vec<Key> {
        if self.is_empty() && self.behind.is_empty() {
            return Vec::new();
        }
        self.give_some(service, connections)
    }

    fn give_some(
        &mut self,
        service: &mut Service,
        connections: &mut SlotMap<Key, Connection>,
    ) -> Vec<Key> {
        let mut closed = Vec::new();
        self.catch_up(service, connections);
        for _ in 0..HEARD_PER_TURN {
            let Some((message, keys, given)) = self.queue.front() else { break };
            let Some(&key) = keys.get(*given) else {
                self.queue.pop_front();
                continue;
            };
            let message = Arc::clone(message);
            match connections.get_mut(key) {
                None => {}
                Some(connection) => match refresh(service, connection) {
                    UserState::Good => {
                        if self.give_one(service, connection, message) {
                            closed.push(key);
                        }
                    }
                    // Its rights are not known yet: this message, and those behind it, wait.
                    UserState::Unknown => break,
                    UserState::Gone => closed.push(key),
                },
            }
            if let Some((_, _, given)) = self.queue.front_mut() {
                *given += 1;
            }
        }
        closed
    }

    /// Gives a message to a connection. True if too much waits for it.
    fn give_one(
        &mut self,
        service: &mut Service,
        connection: &mut Connection,
        message: Arc<HeardMessage>,
    ) -> bool {
        let Some(session) = connection.session.resp() else { return false };
        let is_amid = is_amid_reply(session);
        let Some(names) = session.subscribed.as_mut() else { return false };
        // It may have unsubscribed meanwhile.
        if session.flow.state == State::Closing || !names.has(message.kind, &message.name) {
            return false;
        }
        if !is_amid && names.waiting.is_empty() {
            say(service, connection, &message);
            return false;
        }
        if names.waiting.is_empty() {
            self.behind.push(connection.key);
        }
        names.waiting_bytes += message.bytes();
        message.uncount();
        names.waiting.push_back(message);
        connection.show_condition();
        service.is_over_output_limit(connection)
    }

    /// Gives connections what has waited with them, if they are not amid a reply any more.
    fn catch_up(&mut self, service: &mut Service, connections: &mut SlotMap<Key, Connection>) {
        self.behind.retain(|&key| {
            let Some(connection) = connections.get_mut(key) else { return false };
            let Some(session) = connection.session.resp() else { return false };
            if is_amid_reply(session) {
                return true;
            }
            let Some(names) = session.subscribed.as_mut() else { return false };
            let mut waiting = std::mem::take(&mut names.waiting);
            names.waiting_bytes = 0;
            // It may have unsubscribed meanwhile.
            waiting.retain(|message| names.has(message.kind, &message.name));
            waiting.iter().for_each(|message| say(service, connection, message));
            connection.show_condition();
            false
        });
    }
}

/// Whether a reply to the connection may be incomplete.
fn is_amid_reply(session: &RespSession) -> bool {
    let flow = &session.flow;
    (flow.is_waiting() && !flow.hears_meanwhile) || session.owes_replies()
}

fn refresh(service: &Service, connection: &mut Connection) -> UserState {
    let resp = connection.session.resp();
    resp.map_or(UserState::Good, |session| session.refresh(service.worker.engine()))
}

fn say(service: &mut Service, connection: &mut Connection, message: &HeardMessage) {
    let Some(session) = connection.session.resp() else { return };
    let outbox = &mut service.outbox;
    let said = outbox.said.end();
    write_message(message, session.resp3, &mut outbox.said);
    let end = outbox.said.end();
    connection.channel.outgoing.say(connection.key, said..end, outbox);
}

fn write_message(message: &HeardMessage, resp3: bool, output: &mut Output) {
    let mut reply = RespReply::new(output, resp3);
    let (word, is_pattern) = match message.kind {
        SubscriptionKind::Channel => ("message", false),
        SubscriptionKind::Pattern => ("pmessage", true),
        SubscriptionKind::Shard => ("smessage", false),
    };
    reply.push(3 + usize::from(is_pattern));
    reply.bulk(word.as_bytes());
    if is_pattern {
        reply.bulk(&message.name);
    }
    reply.bulk(&message.channel);
    reply.shared(&message.payload);
}
