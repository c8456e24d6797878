//! A worker's port: its connections, and the order in which they are served.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slotmap::SlotMap;

use super::accept::{client, let_in, wire};
use super::connection::Connection;
use super::deferred::Deferred;
use super::deliveries::Deliveries;
use super::flow::State;
use super::held::no_longer_held;
use super::intake::TakenUp;
use super::memcached::flush_due;
use super::protocol::Protocol;
use super::service::{Member, Service};
use super::session::Session;
use super::shared::{PortMessage, Shared, count};
use super::transport::{Accepted, Channel, Driver, Happened, Io, Key, Listener, Listeners, Output};
use super::turn::TurnOutcome;
use crate::command::{Reply, Transcript};
use crate::engine::{Origin, Port, PortTurn, Request};
use crate::limits::{
    ACCEPTED_PER_TURN, LEAVERS_WAIT, MESSAGES_TURN, PORT_CLOCK, PORT_TICK, READY_PER_TURN,
};

/// The mark of a listener is its number; the marks of connections are above.
const LISTENERS: u64 = 1 << 32;

/// A worker's port.
pub struct WorkerPort<D: Driver> {
    service: Service,
    /// Moves bytes between sockets and buffers.
    io: Io<D>,
    listeners: Listeners,
    /// Whether it accepts connections: not before the users are known. Until then nobody can say
    /// who must log in, or be kept out.
    is_open: bool,
    connections: SlotMap<Key, Connection>,
    /// Connections that can go on without a new event.
    ready: VecDeque<Key>,
    /// Connections whose turns are long and that can go on, or have an event. They share a time of
    /// their own, so that all together delay no other connection.
    heavy: VecDeque<Key>,
    deferred: Deferred,
    /// Connections whose clients seem to have left while a command of theirs waits for a shard.
    leaving: Vec<Key>,
    /// Messages for subscribers.
    deliveries: Deliveries,
    happened: Vec<Happened>,
    /// Messages that have been taken out of the inbox, oldest first.
    messages: VecDeque<PortMessage>,
    next_tick: Instant,
    next_look: Instant,
}

impl<D: Driver> WorkerPort<D> {
    /// A port of this worker.
    pub fn new(shared: Arc<Shared>, worker: usize, driver: D, listeners: Vec<Listener>) -> Self {
        WorkerPort {
            listeners: Listeners::new(listeners),
            is_open: false,
            service: Service::new(shared, worker),
            io: Io::new(driver),
            connections: SlotMap::with_key(),
            ready: VecDeque::new(),
            heavy: VecDeque::new(),
            deferred: Deferred::new(Instant::now()),
            leaving: Vec::new(),
            deliveries: Deliveries::default(),
            happened: Vec::new(),
            messages: VecDeque::new(),
            next_tick: Instant::now(),
            next_look: Instant::now(),
        }
    }

    fn shared(&self) -> &Shared {
        &self.service.worker.shared
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
        connection.channel.readable |= event.input;
        connection.channel.ended |= event.ended;
        connection.channel.urgent |= event.urgent;
        connection.note_leaving();
        if connection.is_ready {
            // It is in the queue already: other connections come first.
            return;
        }
        if connection.is_heavy {
            connection.is_ready = true;
            return self.heavy.push_back(key);
        }
        self.service.turn.timed.hear_light();
        self.take_up(key, true);
    }

    /// Gives a connection its turn, by itself.
    fn serve(&mut self, key: Key) {
        self.take_up(key, false);
    }

    /// Gives a connection its turn, or lets it wait for others that have input too, if it may.
    fn take_up(&mut self, key: Key, may_wait: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let first = self.service.members.len();
        match self.service.take_up(&mut self.io, connection) {
            TakenUp::No(outcome) => self.settle(key, outcome),
            TakenUp::WithOthers if !may_wait => self.run_members(first),
            TakenUp::WithOthers if !self.service.has_enough() => {}
            TakenUp::WithOthers => self.run_members(0),
            TakenUp::Alone => self.run_members(first),
        }
    }

    /// Runs the connections that have been taken up, from this one on.
    fn run_members(&mut self, first: usize) {
        let (service, connections) = (&mut self.service, &mut self.connections);
        if service.members.len() == first {
            return;
        }
        let run = AssertUnwindSafe(|| service.run_members(first, connections));
        if catch_unwind(run).is_err() {
            self.after_panic();
        }
        for member in first..self.service.members.len() {
            let Member { key, outcome, .. } = self.service.members[member];
            self.settle(key, outcome);
        }
        self.service.forget_members(first);
        if self.service.outbox.is_full() {
            self.send_all();
        }
    }

    /// Some replies of this turn are lost: a reply with missing parts would be worse than a closed
    /// connection.
    fn after_panic(&mut self) {
        (self.shared().on_panic)();
        take(&mut self.service.outbox.keys).into_iter().for_each(|key| self.close(key));
        self.service.after_panic();
    }

    /// Sends the replies of this turn.
    fn send_all(&mut self) {
        self.service.count_errors();
        let outbox = &self.service.outbox;
        let speaking = outbox.keys.iter().filter_map(|key| self.connections.get(*key));
        self.io.driver.send_ahead(speaking.filter_map(|it| it.channel.sends_next(outbox)));
        for number in 0..outbox.keys.len() {
            let key = self.service.outbox.keys[number];
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if self.service.send_said(&mut self.io, number, connection) == TurnOutcome::Ends {
                self.close(key);
            }
        }
        self.service.outbox.clear();
        self.service.count_large();
    }

    fn accept(&mut self, listener: usize) {
        let number = self.service.worker.number;
        for _ in 0..ACCEPTED_PER_TURN {
            let io = &mut self.io;
            let Some(accepted) = self.listeners.accept(listener, &mut io.driver) else { return };
            let worker = self.shared().emptiest(number);
            let Some(accepted) = let_in(self.shared(), number, accepted) else { continue };
            self.shared().counts(worker).connected.fetch_add(1, Ordering::Relaxed);
            if worker == number {
                self.welcome(accepted);
            } else {
                self.shared().send(worker, PortMessage::NewConnection(accepted));
            }
        }
    }

    /// Adds a connection. Its place has been counted.
    fn welcome(&mut self, accepted: Accepted) {
        let worker = &self.service.worker;
        let Some(wire) = wire(&worker.shared, &accepted) else {
            worker.leave_place();
            return;
        };
        count(&worker.counts().accepted, 1);
        let key = self.connections.insert_with_key(|key| {
            let client = client(&worker.shared, worker.number, key, &accepted);
            let session = Session::begin(worker.engine(), client);
            Connection::new(key, Channel::new(accepted.socket, wire), session)
        });
        let connection = &self.connections[key];
        if self.io.driver.add(key.packed(), &connection.channel.socket).is_ok() {
            return worker.shared.list(&connection.session.flow().client);
        }
        self.connections.remove(key);
        worker.leave_place();
    }

    /// Keeps, queues or closes a connection after its turn.
    fn settle(&mut self, key: Key, outcome: TurnOutcome) {
        match outcome {
            TurnOutcome::Stays => {
                if self.connection(key).is_some_and(|it| it.is_leaving()) {
                    self.leaving.push(key);
                }
            }
            TurnOutcome::Deferred => self.deferred.push(key),
            TurnOutcome::Ends => self.close(key),
            TurnOutcome::Ready => {
                let Some(connection) = self.connection(key) else { return };
                if !replace(&mut connection.is_ready, true) {
                    let queue = if connection.is_heavy { &mut self.heavy } else { &mut self.ready };
                    queue.push_back(key);
                }
            }
        }
    }

    fn close(&mut self, key: Key) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        let worker = &self.service.worker;
        no_longer_held(worker, &mut connection);
        connection.session.end(worker);
        connection.channel.end(&mut self.io);
        self.io.driver.remove(&connection.channel.socket);
        worker.shared.unlist(connection.session.flow().client.id);
        worker.leave_place();
    }

    /// Writes the reply that a connection waited for, and lets it go on. `seen` is the position of
    /// the log that the reply must wait for; 0 for none.
    fn goes_on(&mut self, key: Key, seen: u64, reply: impl FnOnce(&mut Session, &mut Output)) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let session = &mut connection.session;
        session.flow_mut().ends_waiting();
        let mut said = Output::default();
        if catch_unwind(AssertUnwindSafe(|| reply(session, &mut said))).is_err() {
            (self.shared().on_panic)();
            return self.close(key);
        }
        if session.flow().state != State::Waiting
            && let Some(command) = session.flow_mut().own_command.take()
        {
            let slot = self.service.worker.slot();
            slot.called(command);
            if said.own.first() == Some(&b'-') {
                slot.failed(command);
            }
        }
        if session.flow().state == State::Closing {
            connection.forget_input();
        }
        connection.session.flow_mut().missing = 0;
        self.say_more(key, seen, said);
    }

    /// Says what another thread has for a connection, after what it has said before.
    fn say_more(&mut self, key: Key, seen: u64, mut said: Output) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.session.flow_mut().queued_since = None;
        connection.session.flow_mut().wait_for(seen);
        self.service.outbox.said.count_also(&mut said);
        if !connection.session.is_muted() {
            connection.channel.outgoing.say_more(said, &self.service.outbox);
        }
        self.serve(key);
    }

    /// Handles the messages of other threads while there is time; the rest waits for the next turn.
    fn take_messages(&mut self) {
        if self.messages.is_empty() {
            self.messages = self.shared().inbox(self.service.worker.number).take();
        }
        while let Some(message) = self.messages.pop_front() {
            self.take_message(message);
            if self.service.turn.now.elapsed() >= MESSAGES_TURN {
                break;
            }
        }
    }

    fn take_message(&mut self, message: PortMessage) {
        match message {
            PortMessage::NewConnection(accepted) => self.welcome(accepted),
            PortMessage::Part { key, said, seen, last: true } => {
                self.goes_on(key, seen, |session, out| {
                    session.flow_mut().has_written_to_host(); // A job of MOVE, perhaps.
                    *out = said;
                })
            }
            PortMessage::Part { key, said, seen, last: false } => self.say_more(key, seen, said),
            PortMessage::Answer(key, seen, answer) => {
                self.goes_on(key, seen, |session, out| answer(session.own(), out))
            }
            PortMessage::Heard(message) => {
                self.deliveries.add(message, &mut self.service.worker.subscribers.borrow_mut())
            }
            PortMessage::NotSubscribed { key, kind, names, text } => {
                let Some(connection) = self.connections.get_mut(key) else { return };
                connection.session.leave(&self.service.worker, kind, &names);
                let mut said = Transcript::default();
                said.error(text.as_bytes());
                self.goes_on(key, 0, |session, out| session.say(&said, out));
            }
            PortMessage::Close(key) => self.close(key),
            PortMessage::TooLarge(key) => {
                let Some(connection) = self.connections.get_mut(key) else { return };
                if connection.session.is_muted() {
                    // A client that wants no replies gets none, however large.
                    return self.goes_on(key, 0, |it, _| it.flow_mut().has_written_to_host());
                }
                self.service.worker.note_limit();
                self.close(key);
            }
        }
    }

    /// Updates the ports' clock, and now and then closes overdue connections.
    fn tick(&mut self) {
        if !self.is_open && self.service.worker.engine().users.are_known() {
            self.is_open = true;
            self.listeners.wake(&mut self.io.driver);
        }
        let now = self.service.turn.now;
        if now < self.next_look {
            return;
        }
        self.next_look = now + PORT_CLOCK;
        self.service.turn.recently = self.shared().clock(now);
        self.close_those_who_left();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + PORT_TICK;
        if self.is_open {
            self.listeners.wake(&mut self.io.driver);
        }
        flush_due(&self.service.worker);
        let (mut buffered, mut held_bytes) = (0, 0);
        let (mut late, mut gone): (Vec<Key>, Vec<Key>) = Default::default();
        for (_, connection) in &mut self.connections {
            if connection.session.is_user_gone(self.service.worker.engine()) {
                gone.push(connection.key);
            }
            buffered += connection.buffered();
            let outgoing = &connection.channel.outgoing;
            held_bytes += if outgoing.is_held() { outgoing.unsent() } else { 0 };
            if self.service.is_overdue(connection) {
                late.push(connection.key);
            }
        }
        let counts = self.service.worker.counts();
        counts.buffered.store(buffered, Ordering::Relaxed);
        counts.held_bytes.store(held_bytes, Ordering::Relaxed);
        count(&counts.closed_for_limits, late.len() as u64);
        late.into_iter().chain(gone).for_each(|key| self.close(key));
    }

    /// Sends the replies that have waited for the log.
    fn release(&mut self) {
        let Service { held, worker, .. } = &mut self.service;
        for key in held.release(worker, &mut self.connections) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let outcome = self.service.send_released(&mut self.io, connection);
            if outcome != TurnOutcome::Stays {
                self.settle(key, outcome);
            }
        }
    }

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

    /// Gives subscribers their messages.
    fn deliver(&mut self) {
        for key in self.deliveries.give(&mut self.service, &mut self.connections) {
            self.close(key);
        }
    }

    fn go_on_deferred(&mut self) {
        let (began, gates) = (Instant::now(), self.shared().engine.gates());
        let ran = |port: &Self| port.service.worker.counts().commands.load(Ordering::Relaxed);
        let (due, before) = (self.deferred.take_due(began, gates), ran(self));
        for &key in &due {
            if self.connection(key).is_some_and(|connection| connection.goes_on(gates)) {
                self.serve(key);
            }
        }
        if !due.is_empty() && ran(self) == before {
            self.deferred.were_held_up(began, began.elapsed());
        }
    }

    /// Closes the connections whose clients have left while a command has waited for a shard for
    /// long: the command is not run, and another client can have the place.
    fn close_those_who_left(&mut self) {
        let now = self.service.turn.now;
        for key in take(&mut self.leaving) {
            let Some(connection) = self.connection(key) else { continue };
            match connection.session.flow().queued_since {
                Some(since) if now - since > LEAVERS_WAIT => self.close(key),
                Some(_) => self.leaving.push(key),
                None => {}
            }
        }
    }
}

impl<D: Driver> Port for WorkerPort<D> {
    fn completed(&mut self, request: Box<Request>) {
        let Origin::Worker { connection, .. } = request.origin else { return };
        let key = Key::unpacked(connection);
        if request.reply.is_cut() && self.connection(key).is_some_and(|it| !it.session.is_muted()) {
            self.service.worker.note_limit();
            return self.close(key);
        }
        self.goes_on(key, request.seen, |session, out| session.answer(&request, out));
    }

    fn turn(&mut self, wait: Duration) -> PortTurn {
        self.io.driver.wait(self.deferred.wait(wait), &mut self.happened);
        self.service.turn.now = Instant::now();
        self.release();
        let events = self.happened.len();
        self.service.turn.divide(events + self.ready.len(), self.heavy.len());
        if !self.ready.is_empty() {
            self.service.turn.timed.hear_light();
        }
        for event in 0..events {
            self.heard(self.happened[event]);
        }
        self.happened.clear();
        self.run_members(0);
        self.take_messages();
        self.go_on_deferred();
        self.serve_ready();
        self.deliver();
        self.send_all();
        self.tick();
        PortTurn { began: self.service.turn.now, had_events: events > 0 }
    }

    fn may_sleep(&mut self) -> bool {
        self.ready.is_empty()
            && self.heavy.is_empty()
            && self.messages.is_empty()
            && self.deliveries.is_empty()
            // Replies of other threads, which came between two turns.
            && self.service.outbox.keys.is_empty()
            && !self.service.held.may_release(&self.service.worker)
            && self.shared().inbox(self.service.worker.number).may_sleep()
    }

    fn awake(&mut self) {
        self.shared().inbox(self.service.worker.number).awake();
    }
}
