//! The ground of every part of the engine: its settings, and the ways to other threads, to the host
//! and to the ports.

mod host;
mod main;
mod outside;
mod port;
mod settings;
mod workers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

pub use host::{Host, RunScript, ScriptCaller, ScriptReply};
pub use main::{ForMain, MainInbox, MainTask};
pub use outside::{HostLog, Outside};
pub use port::{
    CertificateName, ClientCertificates, ListenAt, ListenerRow, Port, PortConfig, PortSettings,
    PortTurn, Ports, Speaks, TlsSettings,
};
pub use settings::{Config, Settings};
pub use workers::{JobPart, Message, Workers};

use super::call::Call;
use super::jobs::JobDoor;
use super::request::{Origin, Request};
use crate::command::{Limits, Transcript};
use crate::store::Now;

/// The settings, and the ways to other threads, to the host and to the ports.
pub struct Context {
    /// Settings that cannot change.
    pub config: Config,
    /// Settings that can change.
    pub settings: Settings,
    /// Messages for the host's main thread.
    pub main: MainInbox,
    /// The inboxes of the workers.
    pub workers: Workers<Message>,
    /// The host and the ports.
    pub outside: Outside,
    /// The process is about to end: see [`Engine::end_in_crash`](super::Engine::end_in_crash).
    pub(super) is_crashing: AtomicBool,
    /// How many workers have ended their turns for that.
    pub(super) ended: AtomicUsize,
}

impl Context {
    /// `wake_main` wakes the host's main thread.
    ///
    /// # Errors
    /// The system's error if it has no more descriptors.
    pub(super) fn new(
        config: Config,
        settings: Settings,
        wake_main: Box<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let first_descriptor = settings.port.first_descriptor.load(Ordering::Relaxed);
        Ok(Context {
            config,
            settings,
            main: MainInbox::default(),
            workers: Workers::new(config.workers, first_descriptor)?,
            outside: Outside::new(wake_main),
            is_crashing: AtomicBool::new(false),
            ended: AtomicUsize::new(0),
        })
    }

    /// A worker that finds all shards stopped rests: for `nap`, or for good.
    pub(super) fn rest(&self, nap: Duration) {
        if !self.is_crashing.load(Ordering::Relaxed) {
            return sleep(nap);
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        loop {
            sleep(Duration::MAX);
        }
    }

    /// Leaves a message for the main thread.
    pub(super) fn send_to_main(&self, message: ForMain) {
        if self.main.push(message) {
            self.outside.wake_main();
        }
    }

    /// Has the main thread run a task between two commands.
    pub fn send_main_task(&self, task: MainTask) {
        self.send_to_main(ForMain::Task(task));
    }

    /// As [`Context::send_main_task`], of a task that writes to keys: it waits while clients are
    /// paused.
    pub fn send_writing_task(&self, task: MainTask) {
        self.send_to_main(ForMain::Write(task));
    }

    /// As [`Context::send_main_task`], of a task that ends the script that takes too long, or asks
    /// about it.
    pub fn send_interrupting_task(&self, task: MainTask) {
        self.send_to_main(ForMain::Interrupt(task));
    }

    /// Sends requests that have their replies to their origins: one message and at most one wake-up
    /// for all. If the main thread were woken for the first of many, it would take the processor
    /// from the worker.
    pub(super) fn send_back(&self, requests: impl Iterator<Item = Box<Request>>) {
        let for_main = requests.filter_map(|request| match request.origin {
            Origin::Main(_) => Some(ForMain::Answer(request)),
            Origin::Worker { worker, .. } => {
                self.workers.send(worker, Message::Completed(request));
                None
            }
        });
        if self.main.push_all(for_main) {
            self.outside.wake_main();
        }
    }

    /// Writes a finished request's reply on a worker, because it is too large for the main thread;
    /// then the request returns to its origin.
    pub(super) fn reply_on_worker(&self, request: Box<Request>) {
        self.workers.send_to_any(Message::Reply(request));
    }

    /// Has every worker visit its port's connections again: the reason that they wait may be gone.
    pub fn wake_ports(&self) {
        self.workers.wake_all();
    }

    /// The limits of a command outside of any transaction or script, on a thread that may make
    /// replies of up to `max_reply_bytes`.
    #[inline]
    pub fn limits_alone(&self, max_reply_bytes: usize) -> Limits {
        let limits = self.settings.limits(max_reply_bytes);
        if self.config.safemode { limits } else { limits.alone() }
    }

    /// The largest reply that a client of that door may get, in bytes.
    pub fn most_reply(&self, door: JobDoor) -> usize {
        match door {
            JobDoor::Port => self.settings.port.most_output(),
            JobDoor::Host => self.settings.host_output.load(Ordering::Relaxed),
            JobDoor::None => usize::MAX,
        }
    }

    /// The transcript for a request's reply, limited to the bytes that may wait for its client.
    pub(super) fn transcript_for(&self, request: &Request) -> Transcript {
        Transcript::up_to(match &request.origin {
            Origin::Main(client) => client.most_reply(),
            Origin::Worker { .. } => self.most_reply(JobDoor::Port),
        })
    }

    /// Lends the call of a request, for a worker, which may make a reply of any size.
    pub fn with_call_of<R>(&self, request: &Request, run: impl FnOnce(&Call<'_>) -> R) -> R {
        let (limits, call) = (self.limits_alone(usize::MAX), &request.call);
        let now = Now::lazy(self.config.clock);
        let now = now.seeing_passed(call.sees_passed).silent(call.is_silent);
        call.args.with(|args| run(&call.again(args, now, limits, request.author())))
    }
}
