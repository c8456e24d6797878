//! Long commands: their replies come from other threads, piece by piece.

use std::sync::Arc;

use super::connection::{Connection, State};
use super::driver::Driver;
use super::resp::RespReply;
use super::service::Service;
use super::shared::{Mail, Shared};
use super::waiting::Waiting;
use crate::command::{Action, Keyspace, Reply};
use crate::limits::PART_BYTES;
use crate::shard::{Call, JobReply, Request, long_work};
use crate::store::StringRef;

/// A reply that another thread makes, sent to the connection in pieces.
pub struct PortReply {
    to: Waiting,
    client: u64,
    resp3: bool,
    bytes: Vec<u8>,
    /// So many bytes may wait for the client.
    most: usize,
    /// All of it would be more.
    is_too_large: bool,
}

impl PortReply {
    /// For this connection of this worker.
    pub fn new(shared: &Arc<Shared>, worker: usize, connection: &Connection) -> Box<Self> {
        Box::new(PortReply {
            to: Waiting::new(shared, worker, connection.key),
            client: connection.client.id,
            resp3: connection.session.resp3,
            bytes: Vec::new(),
            most: shared.engine.settings.port.most_output(),
            is_too_large: false,
        })
    }

    /// Says the rest, or all of it, and sends it.
    pub fn say(mut self, rest: impl FnOnce(&mut dyn Reply)) {
        rest(&mut self);
        self.send_last();
    }

    fn send_last(self) {
        if self.is_too_large || self.bytes.len() > self.most {
            return self.to.ends(Mail::TooLarge);
        }
        self.to.ends(|key| Mail::Part { key, bytes: self.bytes, last: true });
    }

    fn resp(&mut self) -> RespReply<'_> {
        RespReply::new(&mut self.bytes, self.resp3).up_to(self.most)
    }
}

impl Reply for PortReply {
    fn simple(&mut self, text: &'static str) {
        self.resp().simple(text);
    }
    fn null(&mut self) {
        self.resp().null();
    }
    fn integer(&mut self, number: i64) {
        self.resp().integer(number);
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.resp().bulk(bytes);
    }
    fn verbatim(&mut self, text: &[u8]) {
        self.resp().verbatim(text);
    }
    fn error(&mut self, text: &[u8]) {
        self.resp().error(text);
    }
    fn array(&mut self, len: usize) {
        self.resp().array(len);
    }
    fn map(&mut self, len: usize) {
        self.resp().map(len);
    }
    fn value(&mut self, value: &StringRef<'_>) {
        self.resp().value(value);
    }
}

impl JobReply for PortReply {
    fn sink(&mut self) -> &mut dyn Reply {
        if self.bytes.len() >= PART_BYTES {
            let bytes = std::mem::take(&mut self.bytes);
            self.to.send(|key| Mail::Part { key, bytes, last: false });
        }
        self
    }

    /// Half a reply with others behind it would be none.
    fn is_awaited(&self) -> bool {
        self.to.is_there(self.client)
    }

    fn close(&mut self) {
        self.is_too_large = true;
    }

    fn finish(self: Box<Self>) {
        self.send_last();
    }
}

impl<D: Driver> Service<D> {
    /// Starts a long command's job; the connection waits for it.
    pub(super) fn long(&self, connection: &mut Connection, call: &Call<'_>, output: &mut Vec<u8>) {
        // These happen at once and everywhere, before the long part of them begins.
        if matches!(
            call.row().action,
            Action::Keyspace(Keyspace::FlushDb | Keyspace::FlushAll | Keyspace::SwapDb)
        ) {
            return self.on_main(connection, call);
        }
        let engine = &*self.shared.engine;
        match engine.room_for_job(call.command).and_then(|()| long_work(engine, call, None)) {
            Err(error) => call.refuse(error, &mut connection.session.reply(output)),
            Ok(work) => {
                connection.state = State::Waiting;
                let reply = PortReply::new(&self.shared, self.worker, connection);
                engine.start_job(call.command, self.owner(connection), work, reply);
            }
        }
    }

    /// The same for a command that turned out to be long after it was queued.
    pub fn start_job(
        &mut self,
        connection: &mut Connection,
        mut request: Box<Request>,
        output: &mut Vec<u8>,
    ) {
        let args = std::mem::take(&mut request.args);
        args.with(|args| {
            let call = self.shared.engine.call_of(&request, args);
            self.long(connection, &call, output);
        });
    }
}
