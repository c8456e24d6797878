//! RESP as one of the ports' protocols.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::caller::PortCaller;
use super::exec_replies::say_exec_replies;
use super::gathered::GatheredCommand;
use super::group::RespGroup;
use super::run::run;
use super::session::{Replies, Session};
use super::{ArgList, RespReply};
use crate::command::{Error, Reply, SubscriptionKind, Transcript};
use crate::engine::{Engine, Speaks};
use crate::net::client::Client;
use crate::net::login::log_in_by_certificate;
use crate::net::memcached;
use crate::net::protocol::{Kind, NextInput, Protocol, Serving};
use crate::net::transport::Output;

/// To a client from another machine where protected mode refuses it, in Redis's words.
const PROTECTED: &[u8] =
    b"-DENIED Redis is running in protected mode because protected mode is enabled and no \
        password is set for the default user. In this mode connections are only accepted from \
        the loopback interface. If you want to connect from external computers to midi's port \
        you may adopt one of the following solutions: 1) Disable protected mode with the command \
        'CONFIG SET midi.protected-mode no' on the host's port, from the same machine the server \
        is running on, but make sure midi's port is not publicly accessible from the internet if \
        you do so. Use CONFIG REWRITE to make this change permanent. 2) Disable it in the \
        configuration file, with the option 'midi.protected-mode no', and restart the server. 3) \
        Set up an authentication password for the default user. NOTE: You only need to do one of \
        the above things in order for the server to start accepting connections from the \
        outside.\r\n";

impl Protocol for Session {
    type Scratch = ArgList;
    type Group<'i> = RespGroup<'i>;

    fn full(speaks: Speaks) -> &'static [u8] {
        match speaks {
            Speaks::Resp => b"-ERR max number of clients reached (midi.maxclients)\r\n",
            Speaks::Memcached => memcached::FULL,
        }
    }

    fn protected(speaks: Speaks) -> &'static [u8] {
        match speaks {
            Speaks::Resp => PROTECTED,
            Speaks::Memcached => memcached::PROTECTED,
        }
    }

    fn begin(engine: &Engine, client: Arc<Client>, speaks: Speaks) -> Self {
        let mut session = Session::new(engine, client);
        if speaks == Speaks::Memcached {
            session.memcached = Some(Box::default());
            session
                .select(engine.settings().port.memcached_database.load(Ordering::Relaxed) as u32);
        }
        session
    }

    fn speaks(&self) -> Speaks {
        if self.memcached.is_some() { Speaks::Memcached } else { Speaks::Resp }
    }

    fn is_logged_in(&self) -> bool {
        self.user.is_some()
    }

    fn certified(&mut self, serving: &mut Serving<'_, Self>, names: Vec<Box<[u8]>>) {
        log_in_by_certificate(&mut PortCaller::new(serving, self).0, names);
    }

    #[inline]
    fn kind(&self) -> Option<Kind> {
        let together = self.is_plain() && !self.parser.has_gathered() && self.memcached.is_none();
        together.then_some((self.db, self.resp3))
    }

    #[inline]
    fn owes_replies(&self) -> bool {
        self.exec_replies.is_some()
    }

    fn say_owed(&mut self, serving: &mut Serving<'_, Self>) {
        let said = serving.output.end();
        say_exec_replies(&mut PortCaller::new(serving, self).0);
        if self.is_muted() {
            serving.output.truncate(said);
        }
    }

    #[inline]
    fn next_input(&mut self) -> NextInput<'_> {
        if !self.parser.has_gathered() {
            return NextInput::Common(self.parser.expected());
        }
        let most = self.parser.expected();
        let filling = self.parser.gathered().and_then(GatheredCommand::filling);
        filling.map_or(NextInput::Common(most), NextInput::Large)
    }

    fn gathered(&self) -> (usize, usize) {
        self.parser.gathered_bytes()
    }

    fn run(&mut self, serving: &mut Serving<'_, Self>, input: &[u8]) -> usize {
        let (mut caller, args) = PortCaller::new(serving, self);
        if caller.session.memcached.is_some() {
            return memcached::run(&mut caller, input);
        }
        run(&mut caller, args, input)
    }

    fn is_muted(&self) -> bool {
        let is_silent = self.memcached.as_ref().is_some_and(|it| it.is_muted());
        is_silent || matches!(self.replies, Replies::Unwanted | Replies::Skipping)
    }

    fn say(&self, reply: &Transcript, output: &mut Output) {
        if let Some(conversation) = &self.memcached {
            return conversation.say(reply, output);
        }
        reply.play(&mut RespReply::new(output, self.resp3));
    }

    fn undo(&mut self) -> Vec<u8> {
        self.exec_replies = None;
        if self.memcached.is_some() {
            return memcached::UNDONE.to_vec();
        }
        let mut words = Output::default();
        self.reply(&mut words).error(&Error::Unblocked.bare_text());
        std::mem::take(&mut words.own)
    }

    fn queued_bytes(&self) -> usize {
        let conversation = self.memcached.as_ref().map_or(0, |it| it.memory());
        conversation + self.transaction.as_ref().map_or(0, |transaction| transaction.memory())
    }

    fn show_condition(&self) {
        self.flow.show_condition();
        let condition = &self.flow.client.condition;
        condition.resp3.store(self.resp3, Ordering::Relaxed);
        condition.queued.store(self.queued().map_or(0, |queued| queued + 1), Ordering::Relaxed);
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard]
        {
            let count = self.subscribed.as_ref().map_or(0, |names| names.count(kind));
            condition.subscriptions[kind as usize].store(count, Ordering::Relaxed);
        }
        condition.queued_bytes.store(self.queued_bytes(), Ordering::Relaxed);
    }
}
