//! memcached's protocols as one of the ports'.

use super::UNDONE;
use super::caller::MemcachedCaller;
use super::reply::MemcachedReply;
use super::run::run;
use super::session::MemcachedSession;
use crate::command::Transcript;
use crate::net::access::SessionAccess;
use crate::net::flow::Flow;
use crate::net::protocol::{Kind, NextInput, Protocol, Serving};
use crate::net::transport::Output;

impl Protocol for MemcachedSession {
    type Scratch = ();

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

    fn kind(&self) -> Option<Kind> {
        None
    }

    fn say_owed(&mut self, _: &mut Serving<'_>) {}

    fn next_input(&mut self) -> NextInput<'_> {
        NextInput::Common(usize::MAX)
    }

    fn gathered(&self) -> (usize, usize) {
        (0, 0)
    }

    fn run(&mut self, serving: &mut Serving<'_>, (): &mut (), input: &[u8]) -> usize {
        run(&mut MemcachedCaller::new(serving, self), input)
    }

    fn is_muted(&self) -> bool {
        self.waiting.as_ref().is_some_and(|(_, answered)| answered.is_silent)
    }

    fn say(&mut self, reply: &Transcript, output: &mut Output) {
        let Some((key, answered)) = &self.waiting else { return };
        let mut said = MemcachedReply::of_one(output, key, *answered);
        reply.play(&mut said);
        if said.ends_line() {
            self.skip_line();
        }
    }

    fn undo(&mut self) -> Vec<u8> {
        UNDONE.to_vec()
    }

    fn queued_bytes(&self) -> usize {
        self.waiting.as_ref().map_or(0, |(key, _)| key.len())
    }

    fn show_condition(&self) {
        self.flow.show_condition(self.queued_bytes());
    }
}
