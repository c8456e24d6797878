//! Running EXEC's commands: on a worker that holds all shards, or on the main thread as a unit.

use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::login::{login_of, selected};
use super::server::{POPULATE_ARGUMENTS_MAX, populate_of};
use crate::command::{
    Action, Args, COMMANDS, DoorCommand, Error, Limits, Named, PortCommand, Reply, Transcript,
};
use crate::engine::{
    Author, Call, Denied, Engine, Gate, Host, Intent, JobOwner, JobReply, Locked, PasswordSum,
    Refusal, ScriptCaller, ScriptReply, ShardNumbers, User,
};
use crate::net::client::Client;
use crate::net::resp::RespReply;
use crate::net::resp::scripts::note_error;
use crate::net::resp::transaction::{ExecReply, Transaction};
use crate::store::{Now, UnixMs};

/// What EXEC does for one of the commands.
pub(super) enum ExecStep<'a> {
    /// Runs it.
    Run(Call<'a>),
    /// Refuses it.
    Refuse(Vec<u8>),
    /// Has the host run it.
    Script(ScriptStep<'a>),
    /// Runs it with its connection, when its reply is due.
    Own,
}

/// A command about scripts, for the host.
pub(super) struct ScriptStep<'a> {
    number: usize,
    args: Args<'a>,
    user: Arc<User>,
    db: u32,
}

/// Whose transaction it is.
pub(super) struct ExecAsker {
    pub(super) client: Arc<Client>,
    pub(super) user: Arc<User>,
    pub(super) db: u32,
    pub(super) resp3: bool,
}

impl ExecAsker {
    /// Runs one of the commands; logs it if it is slow.
    fn timed<R>(
        &self,
        engine: &Engine,
        command: usize,
        args: &Args<'_>,
        run: impl FnOnce() -> R,
    ) -> R {
        engine.slow_log.timed(command, args, || self.client.called_from(), run)
    }
}

/// What EXEC does for all its commands.
pub(super) struct Plan<'a> {
    steps: SmallVec<[ExecStep<'a>; 4]>,
    pub(super) shards: ShardNumbers,
    /// Only the main thread can run it.
    pub(super) is_for_main: bool,
    /// Some commands are the port's own.
    pub(super) has_own: bool,
    /// Refusals of commands that the user may no longer call.
    pub(super) refusals: Vec<Refusal>,
}

/// Redis's text if rights have changed since a command was queued.
fn denied_now(denied: Denied) -> Vec<u8> {
    let reason = match denied {
        Denied::Command | Denied::Part(_) => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        Denied::Database => "no permission",
    };
    let text = "NOPERM ACLs rules changed between the moment the transaction was accumulated and \
                the EXEC call. This command is no longer allowed for the following reason: ";
    [text, reason].concat().into_bytes()
}

/// The error if EXEC itself is refused with `text`.
pub fn aborted(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"ERR ").unwrap_or(text);
    [b"EXECABORT Transaction discarded because of: ", text].concat()
}

impl<'a> Plan<'a> {
    /// The plan for these commands; `all` has the arguments of all of them. If one of them logs in,
    /// `host` checks it; only the main thread has it.
    pub(super) fn new(
        engine: &Engine,
        host: Option<(Locked<'_>, &dyn Host)>,
        transaction: &Transaction,
        all: &'a [&'a [u8]],
        user: &Arc<User>,
        mut db: u32,
        limits: &Limits,
    ) -> Self {
        let mut user = Arc::clone(user);
        let mut plan = Plan {
            steps: SmallVec::new(),
            shards: ShardNumbers::new(),
            is_for_main: false,
            has_own: false,
            refusals: Vec::new(),
        };
        for (number, queued) in transaction.commands.iter().enumerate() {
            let args = transaction.args_of(number, all);
            let step = match queued.named.row().action {
                Action::Port(which) => {
                    let step = plan.own_step(engine, &user, queued.named, args, db, limits);
                    if matches!(step, ExecStep::Own) {
                        if which == PortCommand::Select {
                            db = selected(engine, &args).unwrap_or(db);
                        }
                        if let Some((name, password)) = login_of(engine, which, &args) {
                            plan.is_for_main |= host.is_none();
                            user = host
                                .and_then(|(locked, host)| {
                                    log_in(locked, engine, host, name, password)
                                })
                                .unwrap_or(user);
                        }
                    }
                    step
                }
                _ => {
                    let (Named { number: command, prefix }, now) =
                        (queued.named, Now::lazy(engine.config().clock));
                    let call = Call {
                        command,
                        args,
                        db,
                        now,
                        limits: *limits,
                        prefix,
                        author: Author::Nobody,
                    };
                    plan.step(engine, &user, call)
                }
            };
            plan.steps.push(step);
        }
        plan
    }

    fn step(&mut self, engine: &Engine, user: &User, call: Call<'a>) -> ExecStep<'a> {
        if let Err(denied) = user.check(call.command, &call.args, call.db) {
            return self.refuse(user, denied, &format!("midi.{}", call.row().name), &call.args);
        }
        if let Err(error) = call.row().check_arity(&call.args) {
            let name = format!("{}{}", call.prefix, call.row().name);
            return ExecStep::Refuse(error.text(&name, &call.args));
        }
        self.is_for_main |= engine.is_for_unit(&call);
        engine.add_shards(&call, &mut self.shards);
        ExecStep::Run(call)
    }

    fn own_step(
        &mut self,
        engine: &Engine,
        user: &Arc<User>,
        named: Named,
        args: Args<'a>,
        db: u32,
        limits: &Limits,
    ) -> ExecStep<'a> {
        let row = named.row();
        if let Err(denied) = user.check(named.number, &args, db) {
            return self.refuse(user, denied, row.name, &args);
        }
        // DEBUG POPULATE is the only one of them that changes data.
        if let Some(call) = populate(engine, row.action, &args, db, limits) {
            if let Err(denied) = user.check(call.command, &call.args, db) {
                return self.refuse(user, denied, "midi.populate", &call.args);
            }
            self.is_for_main = true;
            return ExecStep::Run(call);
        }
        if matches!(row.action, Action::Port(PortCommand::Scripting(_))) {
            self.is_for_main = true;
            let (number, user) = (named.number, Arc::clone(user));
            return ExecStep::Script(ScriptStep { number, args, user, db });
        }
        self.has_own = true;
        ExecStep::Own
    }

    fn refuse(&mut self, user: &User, denied: Denied, name: &str, args: &Args<'_>) -> ExecStep<'a> {
        self.refusals.push(Refusal::new(user, denied, name, args));
        ExecStep::Refuse(denied_now(denied))
    }

    /// Sets the time of all commands to `ms`, for the transaction's client.
    pub(super) fn set_time(&mut self, ms: UnixMs, transaction: &Transaction) {
        let now =
            || Now::at(ms).seeing_passed(transaction.sees_passed).silent(transaction.is_silent);
        for step in &mut self.steps {
            if let ExecStep::Run(call) = step {
                call.now = now();
            }
        }
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = &Call<'a>> + Clone {
        self.steps.iter().filter_map(|step| match step {
            ExecStep::Run(call) => Some(call),
            _ => None,
        })
    }

    /// Runs all commands and writes their replies. The plan must have none of the port's own.
    pub(super) fn run_and_say(
        &self,
        reply: &mut RespReply<'_>,
        mut run: impl FnMut(&Call<'_>, &mut RespReply<'_>),
    ) {
        reply.array(self.steps.len());
        for step in &self.steps {
            match step {
                ExecStep::Run(call) => run(call, reply),
                ExecStep::Refuse(text) => reply.error(text),
                // A plan with one of these is for the main thread.
                ExecStep::Script(_) | ExecStep::Own => {}
            }
        }
    }

    /// Runs all commands except the port's own. The replies are kept for later, up to the size that
    /// may wait for a client.
    pub(super) fn run(
        self,
        engine: &Engine,
        mut run: impl FnMut(&Call<'_>, &mut Transcript),
        mut script: impl FnMut(&ScriptStep<'_>) -> Option<ScriptReply>,
    ) -> Vec<ExecReply> {
        let mut room = engine.settings().port.most_output();
        let steps = self.steps.into_iter();
        steps
            .map(|step| match step {
                ExecStep::Run(call) => {
                    let mut transcript = Transcript::up_to(room);
                    run(&call, &mut transcript);
                    room = room.saturating_sub(transcript.len());
                    ExecReply::Transcript(transcript)
                }
                ExecStep::Refuse(text) => ExecReply::Error(text),
                ExecStep::Script(step) => match script(&step) {
                    None => ExecReply::Error(Error::LogWaits.bare_text()),
                    Some(reply) => {
                        let fits = reply.len() <= room;
                        room = room.saturating_sub(reply.len());
                        ExecReply::Encoded(fits.then_some(reply))
                    }
                },
                ExecStep::Own => ExecReply::Own,
            })
            .collect()
    }
}

/// DEBUG POPULATE as a call of POPULATE; `None` if it is another command, or wrong.
fn populate<'a>(
    engine: &Engine,
    action: Action,
    args: &Args<'a>,
    db: u32,
    limits: &Limits,
) -> Option<Call<'a>> {
    let is_debug = matches!(action, Action::Port(PortCommand::Debug));
    if !is_debug || args.len() > POPULATE_ARGUMENTS_MAX {
        return None;
    }
    let now = Now::lazy(engine.config().clock);
    let call = Call {
        command: populate_of(args)?,
        args: Args::new(args.from(1)),
        db,
        now,
        limits: *limits,
        prefix: "",
        author: Author::Nobody,
    };
    call.row().check_arity(&call.args).is_ok().then_some(call)
}

/// The user after a login with this name and password, if they are right.
fn log_in(
    locked: Locked<'_>,
    engine: &Engine,
    host: &dyn Host,
    name: &[u8],
    password: &[u8],
) -> Option<Arc<User>> {
    let is_right = host.authenticate(locked, name, &PasswordSum::of(password));
    is_right
        .then(|| engine.users.find_or_look(locked, name, |name| host.user(locked, name)))
        .flatten()
}

/// Runs a transaction on the main thread. `None` if a watched key has changed.
///
/// # Errors
/// Why it may not run any more.
pub(super) fn run_as_unit(
    locked: Locked<'_>,
    engine: &Engine,
    host: &dyn Host,
    transaction: &Transaction,
    asker: &ExecAsker,
    limits: &Limits,
) -> Result<Option<Vec<ExecReply>>, Vec<u8>> {
    // The gates may have closed since the worker looked.
    if let Some(Gate::Refuse(error)) =
        transaction.flags.map(|flags| engine.ledger.gate(Intent::OfPort(flags)))
    {
        return Err(aborted(&error.text("exec", &Args::new(&[]))));
    }
    engine.shards().in_unit(locked, || {
        if !engine.is_unchanged(locked, &transaction.watching) {
            return Ok(None);
        }
        let (all, user) = (transaction.arguments(), &asker.user);
        let door = Some((locked, host));
        let mut plan = Plan::new(engine, door, transaction, &all, user, asker.db, limits);
        plan.set_time(engine.shards().main_now(locked).ms(), transaction);
        take(&mut plan.refusals).into_iter().for_each(|refusal| engine.note_refusal(|| refusal));
        let run = |call: &Call<'_>, transcript: &mut Transcript| {
            asker.timed(engine, call.command, &call.args, || match call.row().action {
                Action::Door(which) => {
                    run_by_host(locked, host, call, which, user).play(transcript)
                }
                _ => engine.run_waiting(locked, call, transcript),
            })
        };
        let script = |step: &ScriptStep<'_>| {
            let (db, resp3) = (step.db, asker.resp3);
            let caller = ScriptCaller { user: &step.user.name, db, resp3 };
            let (mut reply, mut has_run) = (ScriptReply::new(), false);
            let errors = engine.ledger.books.errors_of_main();
            asker.timed(engine, step.number, &step.args, || {
                host.run_scripts(locked, &caller, &mut |run| {
                    has_run = run(COMMANDS[step.number], &step.args, &mut reply);
                })
            });
            if has_run {
                let slot = engine.main_slot(locked);
                slot.called(step.number);
                note_error(slot, engine, step.number, &reply, errors);
            }
            has_run.then_some(reply)
        };
        Ok(Some(plan.run(engine, run, script)))
    })
}

/// Has the host run a command that needs the module API; within a unit it does so at once.
fn run_by_host(
    locked: Locked<'_>,
    host: &dyn Host,
    call: &Call<'_>,
    which: DoorCommand,
    user: &User,
) -> Transcript {
    let done = Arc::new(Mutex::new(Transcript::default()));
    let owner = JobOwner { db: call.db, ..JobOwner::default() };
    let reply = OnTranscript { transcript: Transcript::default(), done: Arc::clone(&done) };
    host.run_door_command(locked, call, which, &user.name, owner, Box::new(reply));
    take(&mut *done.lock())
}

/// A reply that is handed over when it is complete.
struct OnTranscript {
    transcript: Transcript,
    done: Arc<Mutex<Transcript>>,
}

impl JobReply for OnTranscript {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.transcript
    }

    fn close(&mut self) {
        self.transcript = Transcript::up_to(0);
        self.transcript.bulk(b"-");
    }

    fn finish(self: Box<Self>) {
        *self.done.lock() = self.transcript;
    }
}
