//! The session of a connection, in the protocol of its listener: the one place that knows them all.

use std::any::Any;
use std::sync::Arc;

use super::access::{SessionAccess, UserState};
use super::caller::PortCaller;
use super::client::Client;
use super::flow::Flow;
use super::login::log_in_by_certificate;
use super::memcached::{self, MemcachedSession};
use super::protocol::{Kind, NextInput, Protocol, Serving};
use super::resp::{self, ArgList, RespSession, leave, leave_all};
use super::transport::Output;
use super::worker::PortWorker;
use crate::command::{SubscriptionKind, Transcript};
use crate::engine::{ChannelName, Engine, Request, Speaks};

/// The session of a connection. With this layout the mark of the protocol comes first, so what all
/// sessions begin with is in the same place in each.
#[repr(u8)]
pub enum Session {
    /// It speaks RESP.
    Resp(RespSession),
    /// It speaks memcached's protocol.
    Memcached(MemcachedSession),
}

/// Does the same for a session of any protocol.
macro_rules! each {
    ($session:expr, $own:ident => $does:expr) => {
        match $session {
            Session::Resp($own) => $does,
            Session::Memcached($own) => $does,
        }
    };
}

impl Session {
    /// Appends the reply to a command that has run elsewhere.
    pub fn answer(&mut self, request: &Request, output: &mut Output) {
        if request.writes() {
            // In SAFEMODE the main thread has run it: its position is not known.
            self.flow_mut().has_written_to_host();
        }
        self.say(&request.reply, output);
    }

    /// The session of a new connection.
    pub fn begin(engine: &Engine, client: Arc<Client>) -> Self {
        match client.speaks {
            Speaks::Resp => Session::Resp(RespSession::new(engine, client)),
            Speaks::Memcached => Session::Memcached(MemcachedSession::new(engine, client)),
        }
    }

    /// To a client that connects when all places are taken.
    pub fn full(speaks: Speaks) -> &'static [u8] {
        match speaks {
            Speaks::Resp => resp::FULL,
            Speaks::Memcached => memcached::FULL,
        }
    }

    /// To a client from another machine where protected mode refuses it.
    pub fn protected(speaks: Speaks) -> &'static [u8] {
        match speaks {
            Speaks::Resp => resp::PROTECTED,
            Speaks::Memcached => memcached::PROTECTED,
        }
    }

    /// Its client's certificate has these names, any of which may be a user's.
    pub fn certified(&mut self, serving: &mut Serving<'_>, names: Vec<Box<[u8]>>) {
        each!(self, own => log_in_by_certificate(&mut PortCaller::new(serving, own), names));
    }

    /// It, if it speaks RESP.
    #[inline]
    pub fn resp(&mut self) -> Option<&mut RespSession> {
        match self {
            Session::Resp(own) => Some(own),
            Session::Memcached(_) => None,
        }
    }

    /// Whether its client subscribes to anything.
    #[inline]
    pub fn is_subscriber(&self) -> bool {
        matches!(self, Session::Resp(own) if own.subscribed.is_some())
    }

    /// Bytes of messages that wait until a reply is complete.
    #[inline]
    pub fn unheard_bytes(&self) -> usize {
        match self {
            Session::Resp(own) => own.subscribed.as_ref().map_or(0, |names| names.waiting_bytes),
            Session::Memcached(_) => 0,
        }
    }

    /// Whether its user is no more, or has lost rights to what the client subscribes to: it need
    /// not send anything for that to be found out.
    pub fn is_user_gone(&mut self, engine: &Engine) -> bool {
        let state = match self {
            Session::Resp(own) => own.refresh(engine),
            Session::Memcached(own) => own.access.refresh(engine),
        };
        matches!(state, UserState::Gone)
    }

    /// Ends these subscriptions, as far as it has them.
    pub fn leave(&mut self, worker: &PortWorker, kind: SubscriptionKind, names: &[ChannelName]) {
        if let Some(own) = self.resp() {
            names.iter().for_each(|name| leave(worker, own, kind, name));
        }
    }

    /// Its connection is closed.
    pub fn end(&mut self, worker: &PortWorker) {
        if let Some(own) = self.resp() {
            leave_all(worker, own);
        }
    }

    /// That of its protocol.
    pub fn own(&mut self) -> &mut dyn Any {
        each!(self, own => own)
    }
}

impl Protocol for Session {
    type Scratch = ArgList;

    #[inline]
    fn flow(&self) -> &Flow {
        each!(self, own => &own.flow)
    }

    #[inline]
    fn flow_mut(&mut self) -> &mut Flow {
        each!(self, own => &mut own.flow)
    }

    #[inline]
    fn access(&self) -> &SessionAccess {
        each!(self, own => &own.access)
    }

    #[inline]
    fn access_mut(&mut self) -> &mut SessionAccess {
        each!(self, own => &mut own.access)
    }

    #[inline]
    fn kind(&self) -> Option<Kind> {
        each!(self, own => own.kind())
    }

    fn say_owed(&mut self, serving: &mut Serving<'_>) {
        each!(self, own => own.say_owed(serving));
    }

    #[inline]
    fn next_input(&mut self) -> NextInput<'_> {
        each!(self, own => own.next_input())
    }

    #[inline]
    fn gathered(&self) -> (usize, usize) {
        each!(self, own => own.gathered())
    }

    #[inline]
    fn run(&mut self, serving: &mut Serving<'_>, args: &mut ArgList, input: &[u8]) -> usize {
        match self {
            Session::Resp(own) => own.run(serving, args, input),
            Session::Memcached(own) => own.run(serving, &mut (), input),
        }
    }

    fn is_muted(&self) -> bool {
        each!(self, own => own.is_muted())
    }

    fn say(&mut self, reply: &Transcript, output: &mut Output) {
        each!(self, own => own.say(reply, output));
    }

    fn undo(&mut self) -> Vec<u8> {
        each!(self, own => own.undo())
    }

    #[inline]
    fn queued_bytes(&self) -> usize {
        each!(self, own => own.queued_bytes())
    }

    #[inline]
    fn show_condition(&self) {
        each!(self, own => own.show_condition());
    }
}
