//! A worker's port: its connections, and the order in which they are served.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slotmap::SlotMap;

use super::accept::{Accepted, accept, client, let_in};
use super::client::{Key, NewConnection};
use super::connection::{Backlog, Connection, State};
use super::driver::{Driver, Happened};
use super::group::{Gathered, Group};
use super::listen::Listener;
use super::resp::{RequestParser, RespReply};
use super::service::{Service, TurnOutcome};
use super::session::Session;
use super::shared::{PortMessage, Shared, count};
use crate::engine::{Gates, Origin, Port, PortTurn, Request};
use crate::limits::{
    ACCEPTED_PER_TURN, DEFERRED_NAP, LEAVERS_WAIT, MESSAGES_TURN, PORT_CLOCK, PORT_TICK,
    READY_PER_TURN,
};

/// The mark of a listener is its number; the marks of connections are above.
const LISTENERS: u64 = 1 << 32;

/// A worker's port.
pub struct WorkerPort<D: Driver> {
    service: Service<D>,
    /// Connections that are served together.
    group: Group,
    listeners: Vec<Listener>,
    /// Numbers of the listeners that are not watched at the moment.
    resting: Vec<usize>,
    connections: SlotMap<Key, Connection>,
    /// Connections that can go on without a new event.
    ready: VecDeque<Key>,
    /// Connections whose turns are long and that can go on, or have an event. They share a time of
    /// their own, so that all together delay no other connection.
    heavy: VecDeque<Key>,
    /// Connections that the host holds up.
    deferred: Vec<Key>,
    /// Connections whose clients seem to have left while a command of theirs waits for a shard.
    leaving: Vec<Key>,
    happened: Vec<Happened>,
    /// Messages that have been taken out of the inbox, oldest first.
    messages: VecDeque<PortMessage>,
    unixsocket: Box<str>,
    next_tick: Instant,
    next_look: Instant,
}

impl<D: Driver> WorkerPort<D> {
    /// # Errors
    /// The system's.
    pub fn new(
        shared: Arc<Shared>,
        worker: usize,
        mut driver: D,
        listeners: Vec<Listener>,
        unixsocket: &str,
    ) -> io::Result<Self> {
        for (number, listener) in listeners.iter().enumerate() {
            driver.add_listener(number as u64, &listener.socket)?;
        }
        Ok(WorkerPort {
            service: Service::new(shared, worker, driver),
            group: Group::default(),
            listeners,
            resting: Vec::new(),
            connections: SlotMap::with_key(),
            ready: VecDeque::new(),
            heavy: VecDeque::new(),
            deferred: Vec::new(),
            leaving: Vec::new(),
            happened: Vec::new(),
            messages: VecDeque::new(),
            unixsocket: unixsocket.into(),
            next_tick: Instant::now(),
            next_look: Instant::now(),
        })
    }

    fn shared(&self) -> &Shared {
        &self.service.shared
    }

    /// The connection, if it still exists.
    fn connection(&mut self, key: Key) -> Option<&mut Connection> {
        self.connections.get_mut(key)
    }

    fn heard(&mut self, event: Happened) {
        if event.mark < LISTENERS {
            return self.accept(event.mark as usize);
        }
        let key = Key::unpacked(event.mark);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.readable |= event.input;
        connection.ended |= event.ended;
        if event.ended && connection.is_waiting() {
            // The client may have left: a job for it may stop.
            connection.client.gone.store(true, Ordering::Relaxed);
        }
        if connection.is_ready {
            // It is in the queue already: other connections come first.
            return;
        }
        if connection.is_heavy {
            connection.is_ready = true;
            return self.heavy.push_back(key);
        }
        self.service.alone.hear_light();
        match self.service.gather(&mut self.group, connection) {
            Gathered::No => self.serve(key),
            Gathered::End => self.close(key),
            Gathered::Yes => {}
            Gathered::Full => self.serve_group(),
        }
    }

    /// Serves the connections that were gathered.
    fn serve_group(&mut self) {
        let keys = self.group.keys();
        if keys.is_empty() {
            return;
        }
        let (service, group, connections) =
            (&mut self.service, &mut self.group, &mut self.connections);
        if catch_unwind(AssertUnwindSafe(|| service.serve_group(group, connections))).is_err() {
            self.after_panic();
            keys.into_iter().for_each(|key| self.close(key));
        }
        let mut outcomes = self.group.take_outcomes();
        outcomes.drain(..).for_each(|(key, outcome)| self.settle(key, outcome));
        self.group.give_back_outcomes(outcomes);
        if self.service.output_is_full() {
            self.send_all();
        }
    }

    /// Some replies of this turn are lost: a reply with missing parts would be worse than a closed
    /// connection.
    fn after_panic(&mut self) {
        (self.shared().on_panic)();
        for piece in self.service.take_outbox() {
            self.close(piece.key);
        }
    }

    /// Sends the replies of this turn.
    fn send_all(&mut self) {
        let pieces = self.service.take_outbox();
        for piece in &pieces {
            let Some(connection) = self.connections.get_mut(piece.key) else { continue };
            if self.service.send_piece(connection, piece) == TurnOutcome::Ends {
                self.close(piece.key);
            }
        }
        self.service.clear_output(pieces);
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTED_PER_TURN {
            let new_connection = match self.listeners.get(listener).map(accept) {
                Some(Accepted::NewConnection(new_connection)) => new_connection,
                Some(Accepted::NoRoom) => return self.rest_listener(listener),
                Some(Accepted::None) | None => return,
            };
            let worker = self.shared().emptiest(self.service.worker);
            let Some(new_connection) = let_in(self.shared(), self.service.worker, new_connection)
            else {
                continue;
            };
            self.shared().counts(worker).connected.fetch_add(1, Ordering::Relaxed);
            if worker == self.service.worker {
                self.welcome(new_connection);
            } else {
                self.shared().send(worker, PortMessage::NewConnection(new_connection));
            }
        }
    }

    /// Does not watch a listener until the next tick: it would constantly report a connection that
    /// cannot be accepted.
    fn rest_listener(&mut self, number: usize) {
        if let Some(listener) = self.listeners.get(number) {
            self.service.driver.remove(&listener.socket);
            self.resting.push(number);
        }
    }

    fn wake_listeners(&mut self) {
        for number in std::mem::take(&mut self.resting) {
            let Some(listener) = self.listeners.get(number) else { continue };
            if self.service.driver.add_listener(number as u64, &listener.socket).is_err() {
                self.resting.push(number);
            }
        }
    }

    /// Adds a connection. Its place has been counted.
    fn welcome(&mut self, new_connection: NewConnection) {
        let (worker, shared) = (self.service.worker, Arc::clone(&self.service.shared));
        count(&shared.counts(worker).accepted, 1);
        let key = self.connections.insert_with_key(|key| {
            let client = client(&shared, worker, key, &new_connection, &self.unixsocket);
            let session = Session::new(&shared.engine, &client);
            Connection {
                key,
                socket: new_connection.socket,
                client,
                session,
                state: State::Open,
                readable: false,
                ended: false,
                queued_since: None,
                is_ready: false,
                is_heavy: false,
                parser: RequestParser::default(),
                unread: Backlog::default(),
                has_commands: false,
                missing: 0,
                unsent: Backlog::default(),
                waits_for: 0,
                last_write: Default::default(),
                held_since: None,
                has_outgoing: false,
                over_soft_limit: None,
            }
        });
        let connection = &self.connections[key];
        if self.service.driver.add(key.packed(), &connection.socket).is_ok() {
            return shared.list(&connection.client);
        }
        self.connections.remove(key);
        shared.leave_place();
        shared.counts(worker).connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives a connection its turn.
    fn serve(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let service = &mut self.service;
        let served = catch_unwind(AssertUnwindSafe(|| service.serve(connection)));
        let outcome = served.unwrap_or_else(|_| {
            self.after_panic();
            TurnOutcome::Ends
        });
        self.settle(key, outcome);
        if self.service.output_is_full() {
            self.send_all();
        }
    }

    /// Keeps, queues or closes a connection after its turn.
    fn settle(&mut self, key: Key, outcome: TurnOutcome) {
        match outcome {
            TurnOutcome::Stays => {
                if self.connection(key).is_some_and(|connection| connection.is_leaving()) {
                    self.leaving.push(key);
                }
            }
            TurnOutcome::Deferred => self.deferred.push(key),
            TurnOutcome::Ends => self.close(key),
            TurnOutcome::Ready => {
                let Some(connection) = self.connection(key) else { return };
                if !std::mem::replace(&mut connection.is_ready, true) {
                    let queue = if connection.is_heavy { &mut self.heavy } else { &mut self.ready };
                    queue.push_back(key);
                }
            }
        }
    }

    fn close(&mut self, key: Key) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        self.service.no_longer_held(&mut connection);
        self.service.driver.remove(&connection.socket);
        let shared = self.shared();
        shared.unlist(connection.client.id);
        shared.leave_place();
        shared.counts(self.service.worker).connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writes the reply that a connection waited for, and lets it go on. `seen` is the position of
    /// the log that the reply must wait for; 0 for none.
    fn goes_on(&mut self, key: Key, seen: u64, reply: impl FnOnce(&mut Connection, &mut Vec<u8>)) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.state == State::Waiting {
            connection.state = State::Open;
        }
        connection.queued_since = None;
        connection.session.most_output = usize::MAX;
        // It may have written what is not in midi's log: keys of the host's.
        connection.last_write.offset = None;
        let mut bytes = Vec::new();
        if catch_unwind(AssertUnwindSafe(|| reply(connection, &mut bytes))).is_err() {
            (self.shared().on_panic)();
            return self.close(key);
        }
        self.service.wait_for(connection, seen);
        if !connection.session.is_muted() {
            self.service.claim(connection);
            connection.unsent.append(bytes);
        }
        connection.has_commands = true;
        self.serve(key);
    }

    /// Handles the messages of other threads while there is time; the rest waits for the next turn.
    fn take_messages(&mut self) {
        if self.messages.is_empty() {
            self.messages = self.shared().inbox(self.service.worker).take();
        }
        while let Some(message) = self.messages.pop_front() {
            self.take_message(message);
            if self.service.now.elapsed() >= MESSAGES_TURN {
                break;
            }
        }
    }

    fn take_message(&mut self, message: PortMessage) {
        match message {
            PortMessage::NewConnection(new_connection) => self.welcome(new_connection),
            PortMessage::Part { key, bytes, seen, last: true } => {
                self.goes_on(key, seen, |_, out| *out = bytes)
            }
            PortMessage::Part { key, bytes, seen, last: false } => {
                let Some(connection) = self.connections.get_mut(key) else { return };
                connection.queued_since = None;
                self.service.wait_for(connection, seen);
                if !connection.session.is_muted() {
                    self.service.claim(connection);
                    connection.unsent.append(bytes);
                }
                self.serve(key);
            }
            PortMessage::Answer(key, seen, answer) => self.goes_on(key, seen, answer),
            PortMessage::Close(key) => self.close(key),
            PortMessage::TooLarge(key) => {
                let Some(connection) = self.connections.get_mut(key) else { return };
                if connection.session.is_muted() {
                    // A client that wants no replies gets none, however large.
                    return self.goes_on(key, 0, |_, _| ());
                }
                self.service.note_limit();
                self.close(key);
            }
        }
    }

    /// Updates the ports' clock, and now and then closes overdue connections.
    fn tick(&mut self) {
        let now = self.service.now;
        if now < self.next_look {
            return;
        }
        self.next_look = now + PORT_CLOCK;
        self.service.recently = self.shared().clock(now);
        self.close_those_who_left();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + PORT_TICK;
        self.wake_listeners();
        let (mut buffered, mut held_bytes) = (0, 0);
        let mut late: Vec<Key> = Vec::new();
        for (_, connection) in &self.connections {
            buffered += connection.buffered();
            held_bytes += if connection.is_held() { connection.unsent.len() } else { 0 };
            if self.service.is_overdue(connection) {
                late.push(connection.key);
            }
        }
        let counts = self.shared().counts(self.service.worker);
        counts.buffered.store(buffered, Ordering::Relaxed);
        counts.held_bytes.store(held_bytes, Ordering::Relaxed);
        count(&counts.closed_for_limits, late.len() as u64);
        late.into_iter().for_each(|key| self.close(key));
    }
}

impl<D: Driver> Port for WorkerPort<D> {
    fn completed(&mut self, request: Box<Request>) {
        let Origin::Worker { connection, .. } = request.origin else { return };
        let key = Key::unpacked(connection);
        if request.reply.is_cut() && self.connection(key).is_some_and(|it| !it.session.is_muted()) {
            self.service.note_limit();
            return self.close(key);
        }
        self.goes_on(key, request.seen, |connection, out| {
            request.reply.play(&mut RespReply::new(out, connection.session.resp3));
        });
    }

    fn turn(&mut self, wait: Duration) -> PortTurn {
        let wait = if !self.deferred.is_empty() { wait.min(DEFERRED_NAP) } else { wait };
        let mut happened = std::mem::take(&mut self.happened);
        self.service.driver.wait(wait, &mut happened);
        self.service.now = Instant::now();
        for (key, outcome) in self.service.release(&mut self.connections) {
            self.settle(key, outcome);
        }
        self.service.share_out(happened.len() + self.ready.len());
        if !self.ready.is_empty() {
            self.service.alone.hear_light();
        }
        let had_events = !happened.is_empty();
        for event in happened.drain(..) {
            self.heard(event);
        }
        self.happened = happened;
        self.serve_group();
        self.take_messages();
        for key in std::mem::take(&mut self.deferred) {
            self.goes_on_deferred(key);
        }
        self.serve_ready();
        self.send_all();
        self.tick();
        PortTurn { began: self.service.now, had_events }
    }

    fn may_sleep(&mut self) -> bool {
        self.ready.is_empty()
            && self.heavy.is_empty()
            && self.messages.is_empty()
            && !self.service.may_release()
            && self.shared().inbox(self.service.worker).may_sleep()
    }

    fn awake(&mut self) {
        self.shared().inbox(self.service.worker).awake();
    }
}

impl<D: Driver> WorkerPort<D> {
    /// Serves each connection that can go on once, while there is time: others may have events
    /// meanwhile.
    fn serve_ready(&mut self) {
        self.serve_queue(|port| &mut port.ready);
        self.serve_queue(|port| &mut port.heavy);
    }

    fn serve_queue(&mut self, queue: fn(&mut Self) -> &mut VecDeque<Key>) {
        let most = queue(self).len();
        if most == 0 {
            return;
        }
        let started = Instant::now();
        for _ in 0..most {
            let Some(key) = queue(self).pop_front() else { return };
            if let Some(connection) = self.connection(key) {
                connection.is_ready = false;
                self.serve(key);
            }
            if started.elapsed() > READY_PER_TURN {
                return;
            }
        }
    }

    fn goes_on_deferred(&mut self, key: Key) {
        let is_paused = self.shared().engine.gates().has(Gates::PAUSED.and(Gates::WRITES_PAUSED));
        if let Some(connection) = self.connection(key) {
            connection.state = State::Open;
            connection.has_commands = true;
            if is_paused && connection.ended {
                // As in Redis: a client that leaves during a pause has none of its commands run.
                connection.forget_commands();
            }
            self.serve(key);
        }
    }

    /// Closes the connections whose clients have left while a command has waited for a shard for
    /// long: the command is not run, and another client can have the place.
    fn close_those_who_left(&mut self) {
        let now = self.service.now;
        for key in std::mem::take(&mut self.leaving) {
            let Some(connection) = self.connection(key) else { continue };
            match connection.queued_since {
                Some(since) if now - since > LEAVERS_WAIT => self.close(key),
                Some(_) => self.leaving.push(key),
                None => {}
            }
        }
    }
}
