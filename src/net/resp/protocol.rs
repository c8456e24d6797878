//! RESP as one of the ports' protocols.

use std::sync::atomic::Ordering;

use super::caller::RespCaller;
use super::exec_replies::say_exec_replies;
use super::gathered::GatheredCommand;
use super::run::run;
use super::session::{Replies, RespSession};
use super::{ArgList, RespReply};
use crate::command::{Error, Reply, Transcript};
use crate::net::access::SessionAccess;
use crate::net::flow::Flow;
use crate::net::protocol::{Kind, NextInput, Protocol, Serving};
use crate::net::transport::Output;

/// To a client that connects when all places are taken.
pub const FULL: &[u8] = b"-ERR max number of clients reached (midi.maxclients)\r\n";

/// To a client from another machine where protected mode refuses it, in Redis's words.
pub const PROTECTED: &[u8] =
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

impl Protocol for RespSession {
    type Scratch = ArgList;

    #[inline]
    fn flow(&self) -> &Flow {
        &self.flow
    }

    #[inline]
    fn flow_mut(&mut self) -> &mut Flow {
        &mut self.flow
    }

    fn access(&self) -> &SessionAccess {
        &self.access
    }

    fn access_mut(&mut self) -> &mut SessionAccess {
        &mut self.access
    }

    #[inline]
    fn kind(&self) -> Option<Kind> {
        let together = self.is_plain() && !self.parser.has_gathered();
        together.then_some((self.access.db, self.resp3))
    }

    fn say_owed(&mut self, serving: &mut Serving<'_>) {
        let said = serving.output.end();
        say_exec_replies(&mut RespCaller::new(serving, self));
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

    fn run(&mut self, serving: &mut Serving<'_>, args: &mut ArgList, input: &[u8]) -> usize {
        run(&mut RespCaller::new(serving, self), args, input)
    }

    fn is_muted(&self) -> bool {
        matches!(self.replies, Replies::Unwanted | Replies::Skipping)
    }

    fn say(&mut self, reply: &Transcript, output: &mut Output) {
        reply.play(&mut RespReply::new(output, self.resp3));
    }

    fn undo(&mut self) -> Vec<u8> {
        self.exec_replies = None;
        let mut words = Output::default();
        self.reply(&mut words).error(&Error::Unblocked.bare_text());
        std::mem::take(&mut words.own)
    }

    fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.memory())
    }

    fn show_condition(&self) {
        self.flow.show_condition(self.queued_bytes());
        let condition = &self.flow.client.condition;
        condition.resp3.store(self.resp3, Ordering::Relaxed);
        condition.queued.store(self.queued().map_or(0, |queued| queued + 1), Ordering::Relaxed);
        let counts = self.subscribed.as_ref().map_or([0; 3], |names| names.counts());
        for (shown, count) in condition.subscriptions.iter().zip(counts) {
            shown.store(count, Ordering::Relaxed);
        }
    }
}
