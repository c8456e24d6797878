//! Commands that could not run at once: requests, and their way home.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::call::{Call, Outcome};
use super::engine::{Engine, HeldShard};
use super::host::Errand;
use super::job::{JobOwner, JobReply};
use super::lock::{Locked, Seat};
use super::news::Author;
use super::token::Left;
use super::worker::Message;
use crate::command::{Args, COMMANDS, Error, Keys, OwnedArgs, Tape};
use crate::limits::MAX_MAIN_REPLY_BYTES;
use crate::store::Now;

/// Who wants a queued command's completion back.
pub enum Home {
    /// The host's main thread, for this client of the host's door.
    Main(Box<dyn HostClient>),
    /// The port of this worker, for the connection of that number.
    Worker {
        /// The worker.
        worker: usize,
        /// The connection, as its port numbers it.
        connection: u64,
    },
}

/// A client of the host's door that waits for a command's reply, or for a job.
pub trait HostClient: Any + Send {
    /// Writes a reply that is too large for the main thread; [`HostClient::answer`] follows. On any thread.
    fn write_large(&self, tape: &Tape);

    /// Answers it; nothing is left to be said where the reply is empty.
    fn answer(self: Box<Self>, locked: Locked<'_>, author: Author, reply: Tape);

    /// Has it wait for a job: whom the job is for, and how it answers.
    fn wait_for_job(self: Box<Self>, locked: Locked<'_>, db: u32) -> (JobOwner, Box<dyn JobReply>);
}

/// What the host's main thread finds in its inbox.
pub enum ForMain {
    /// A command that came home, or that only the main thread can go on with.
    Request(Box<Request>),
    /// Something to be done there.
    Errand(Errand),
}

/// What must happen to a request that came home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran: give its reply to the client.
    Done,
    /// Only the main thread can go on with it: tokens were not to be had
    /// together, it turned out to be long work, or it writes to a watched key.
    NeedsMain,
    /// It is long work: the port that asked for it starts the job.
    Long,
}

/// A queued command.
pub struct Request {
    /// The command's number.
    pub command: usize,
    /// Its arguments, copied or kept.
    pub args: OwnedArgs,
    /// The client's database.
    pub db: u32,
    /// See [`Call::prefix`].
    pub prefix: &'static str,
    /// See [`Call::author`].
    pub author: Author,
    /// Who gets the completion.
    pub home: Home,
    /// The reply, once it has run.
    pub reply: Tape,
    /// What happened to it.
    pub verdict: Verdict,
    /// How often tokens were not to be had.
    pub(super) tries: u8,
    /// Raised when the client's connection is closed, where the door tells.
    pub client_gone: Option<Arc<AtomicBool>>,
}

impl Request {
    /// It ran, and this is its reply.
    pub(super) fn finish(&mut self, seat: &Seat, tape: Tape) {
        seat.ran_queued.add(1);
        self.verdict = Verdict::Done;
        match &self.home {
            Home::Main(client) if tape.len() > MAX_MAIN_REPLY_BYTES => client.write_large(&tape),
            _ => self.reply = tape,
        }
    }

    /// Whether it is one of the host's door.
    pub fn is_of_host(&self) -> bool {
        matches!(self.home, Home::Main(_))
    }

    /// Where its reply is said: a port's client is not answered more than may wait for it.
    pub fn tape(&self, engine: &Engine) -> Tape {
        match self.home {
            Home::Main(_) => Tape::default(),
            Home::Worker { .. } => Tape::up_to(engine.settings.port.most_output()),
        }
    }

    /// Whether nobody waits for it any more: then it is not run.
    pub fn is_abandoned(&self) -> bool {
        self.client_gone.as_ref().is_some_and(|gone| gone.load(Ordering::Relaxed))
    }

    /// Whether one shard is all it needs.
    pub(super) fn is_on_one_shard(&self) -> bool {
        COMMANDS[self.command].is_on_one_shard(self.args.len())
    }

    /// The key that says which shard it needs, or needs first.
    fn first_key(&self) -> Option<&[u8]> {
        let row = COMMANDS[self.command];
        (row.keys != Keys::None).then(|| self.args.get(row.first_key()))
    }

    /// A copy of a call, for another thread.
    pub fn new(call: &Call<'_>, home: Home) -> Self {
        Request {
            command: call.command,
            args: call.args.to_owned(call.limits.keep_bytes),
            db: call.db,
            prefix: call.prefix,
            author: call.author,
            home,
            reply: Tape::default(),
            verdict: Verdict::Done,
            tries: 0,
            client_gone: None,
        }
    }
}

impl Engine {
    /// Runs a queued command that needs one shard in the hands of its shard's holder.
    pub(super) fn run_pending(
        &self,
        seat: &Seat,
        shard: u32,
        held: &mut HeldShard<'_>,
        mut request: Box<Request>,
    ) {
        if request.is_abandoned() {
            return self.done(seat, request, Tape::default());
        }
        let (args, mut tape) = (std::mem::take(&mut request.args), request.tape(self));
        let outcome = args.with(|args| {
            let call = self.call_of(&request, args);
            if let Some(error) = self.late_refusal(&call) {
                call.refuse(error, &mut tape);
                return Outcome::Done;
            }
            let hash = self.hasher.hash(call.first_key());
            self.run_one(seat, &call, hash, shard, held, &mut tape)
        });
        if outcome == Outcome::NeedsMain {
            request.args = args;
            return self.needs_main(request);
        }
        self.done(seat, request, tape);
    }

    /// The call that a request stands for, on a worker: any reply size will do.
    pub fn call_of<'a>(&self, request: &Request, args: Args<'a>) -> Call<'a> {
        Call {
            command: request.command,
            args,
            db: request.db,
            now: Now::lazy(self.config.clock),
            limits: self.settings.limits(usize::MAX),
            prefix: request.prefix,
            author: request.author,
        }
    }

    /// Sends a request home with its reply.
    pub(super) fn done(&self, seat: &Seat, mut request: Box<Request>, tape: Tape) {
        request.finish(seat, tape);
        self.send_home(std::iter::once(request));
    }

    /// Sends requests home: one message and at most one wake-up for all. A main thread that
    /// is woken for the first of many would take the processor from the worker.
    pub(super) fn send_home(&self, requests: impl Iterator<Item = Box<Request>>) {
        let for_main = requests.filter_map(|request| match request.home {
            Home::Worker { worker, .. } if request.verdict != Verdict::NeedsMain => {
                self.workers.send(worker, Message::Home(request));
                None
            }
            _ => Some(ForMain::Request(request)),
        });
        if self.main.push_all(for_main) {
            self.wake_main();
        }
    }

    /// Sends a request of a port back to it, once the main thread has run it.
    pub fn send_back(&self, request: Box<Request>) {
        self.send_home(std::iter::once(request));
    }

    /// Has the main thread do something, between two commands.
    pub fn send_errand(&self, errand: Errand) {
        if self.main.push(ForMain::Errand(errand)) {
            self.wake_main();
        }
    }

    /// Sends a request to the main thread, which alone can go on with it.
    pub fn needs_main(&self, mut request: Box<Request>) {
        request.verdict = Verdict::NeedsMain;
        self.send_home(std::iter::once(request));
    }

    /// Takes a request out of the books when it has come home.
    pub fn came_home(&self) {
        self.queued_now.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one more command that will be queued.
    ///
    /// # Errors
    /// [`Error::TooManyQueued`] at the limit.
    pub fn book_queued(&self, seat: &Seat) -> Result<(), Error> {
        let max = self.settings.max_queued.load(Ordering::Relaxed);
        if self.queued_now() >= max {
            return Err(Error::TooManyQueued(max));
        }
        seat.queued.add(1);
        self.queued_now.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Queues a command whose token was busy, once it is booked. A command on one shard waits in its
    /// shard's mailbox, where the holder finds it; others go to a worker.
    pub fn enqueue(&self, request: Box<Request>) {
        if !request.is_on_one_shard() {
            let (worker, message) = self.addressed(request);
            self.workers.send(worker, message);
            return;
        }
        let shard = self.shard_of_request(&request);
        if let Left::Free(request) = self.shard(shard).token.leave(request) {
            self.workers.send(self.owner(shard), Message::Run(request));
        }
    }

    /// The shard that a request needs, or needs first.
    pub(super) fn shard_of_request(&self, request: &Request) -> u32 {
        request
            .first_key()
            .map_or_else(|| self.draw() as u32 & self.mask, |key| self.shard_of(self.hasher.hash(key)))
    }

    /// Writes a finished request's reply on a worker, because it is too large
    /// for the main thread; then it comes home again.
    pub fn reply_on_worker(&self, request: Box<Request>) {
        let worker = self.draw() as usize % self.config.workers;
        self.workers.send(worker, Message::Reply(request));
    }

    /// Queues many booked commands at once: one message and at most one wake-up for each worker.
    pub fn enqueue_batch(&self, requests: impl Iterator<Item = Box<Request>>) {
        let mut batches: Vec<Vec<Message>> = Vec::new();
        batches.resize_with(self.config.workers, Vec::new);
        for request in requests {
            let (worker, message) = self.addressed(request);
            batches[worker].push(message);
        }
        for (worker, batch) in batches.into_iter().enumerate() {
            if !batch.is_empty() {
                self.workers.send(worker, Message::Batch(batch));
            }
        }
    }

    /// The worker that a command is best run by: the owner of its first key's
    /// shard; any, where it has none.
    fn addressed(&self, request: Box<Request>) -> (usize, Message) {
        (self.owner(self.shard_of_request(&request)), Message::Run(request))
    }
}
