//! MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! ```text
//! MULTI ─► queue ─► EXEC ─► plan ─┬─ this worker: all shards held ─► replies
//!                                 ├─ busy: again in the next turn, some times
//!                                 └─ the main thread: a unit ─► replies on tapes ─► said here
//! ```
//!
//! The port's own commands concern the connection, so they are run here, in their places
//! among the replies; what those of the table said is on tapes until then. A transaction
//! without such commands is answered straight into the connection's buffer.

use std::mem::{replace, take};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::connection::{Connection, State};
use super::driver::Driver;
use super::resp::RespReply;
use super::run::{Pace, Service};
use super::server::POPULATE_ARGUMENTS_MAX;
use super::session::{BUSY, Judged, Named, Session, login_of, selected};
use super::shared::{Shared, count};
use crate::command::{
    Action, Args, COMMANDS, DoorCommand, Error, Flags, Limits, PORT_COMMANDS, PortAction, PortCall, Reply,
    Tape, find, find_port,
};
use crate::limits::{MANY_TRIES, OUTPUT_PAUSE, TRANSACTION_BYTES_KEPT};
use crate::shard::{
    Author, Call, Denied, Engine, Gate, Host, JobOwner, JobReply, PasswordSum, Refusal, Shards, Taking, User,
    Watching,
};
use crate::store::{Now, UnixMs};

/// What a connection has said of its next transaction.
#[derive(Default)]
pub struct Transaction {
    /// A command was refused: EXEC will be, too.
    is_spoiled: bool,
    /// How often tokens were not to be had.
    tries: u8,
    /// Everything that the queued commands are, those aside that run whatever the host is.
    flags: Option<Flags>,
    /// Keys of the queued commands.
    keys: usize,
    commands: Vec<Queued>,
    /// All their arguments, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    watching: Watching,
}

/// A queued command.
struct Queued {
    named: Named,
    /// Its first argument's number among all.
    first: usize,
}

impl Transaction {
    fn add(&mut self, named: Named, args: &Args<'_>) {
        self.commands.push(Queued { named, first: self.ends.len() });
        for arg in args.from(0) {
            self.bytes.extend_from_slice(arg);
            self.ends.push(self.bytes.len());
        }
        match named {
            Named::Table { number, .. } => {
                let (row, flags) = (COMMANDS[number], self.flags.get_or_insert(Flags::NONE));
                flags.write |= row.flags.write;
                flags.host_write |= row.flags.host_write;
                flags.deny_oom |= row.flags.deny_oom;
                self.keys += row.key_positions(args).len();
            }
            // A stale replica refuses it, so it refuses EXEC as well.
            Named::Port(number) if !PORT_COMMANDS[number].runs_when_stale() => {
                self.flags.get_or_insert(Flags::NONE);
            }
            Named::Port(_) => {}
        }
    }

    /// Its memory, to be used again: most transactions are alike. Not where it is much.
    fn emptied(mut self: Box<Self>) -> Option<Box<Self>> {
        let (mut commands, mut bytes, mut ends) =
            (take(&mut self.commands), take(&mut self.bytes), take(&mut self.ends));
        if bytes.capacity() + ends.capacity() * size_of::<usize>() > TRANSACTION_BYTES_KEPT {
            return None;
        }
        commands.clear();
        bytes.clear();
        ends.clear();
        *self = Transaction { commands, bytes, ends, ..Transaction::default() };
        Some(self)
    }

    /// Keys that EXEC must hold, each as often as it is named.
    fn all_keys(&self) -> usize {
        self.keys + self.watching.len()
    }

    /// Memory that it takes, roughly.
    fn memory(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>() + self.commands.len() * size_of::<Queued>()
    }

    /// All arguments of all commands.
    fn arguments(&self) -> SmallVec<[&[u8]; 16]> {
        let mut start = 0;
        self.ends.iter().map(|&end| &self.bytes[replace(&mut start, end)..end]).collect()
    }

    /// The arguments of one command.
    fn arguments_of(&self, command: usize) -> SmallVec<[&[u8]; 16]> {
        let first = self.commands[command].first;
        let end = self.commands.get(command + 1).map_or(self.ends.len(), |next| next.first);
        let mut start = if first == 0 { 0 } else { self.ends[first - 1] };
        self.ends[first..end].iter().map(|&end| &self.bytes[replace(&mut start, end)..end]).collect()
    }

    /// Those of a command, among all.
    fn args_of<'a>(&self, command: usize, all: &'a [&'a [u8]]) -> Args<'a> {
        let end = self.commands.get(command + 1).map_or(all.len(), |next| next.first);
        Args::new(&all[self.commands[command].first..end])
    }
}

/// What EXEC does for one of the commands.
enum Step<'a> {
    /// Runs it.
    Run(Call<'a>),
    /// Refuses it.
    Refuse(Vec<u8>),
    /// Runs it with the connection at hand.
    Own,
}

/// What EXEC does.
struct Plan<'a> {
    steps: SmallVec<[Step<'a>; 4]>,
    shards: Shards,
    /// Only the main thread can do it.
    is_for_main: bool,
    /// Some commands are the port's own.
    has_own: bool,
    /// What the user is not allowed any more.
    refusals: Vec<Refusal>,
}

/// What came of it for one of the commands.
enum Said {
    Tape(Tape),
    Error(Vec<u8>),
    /// It is to be run when its turn has come.
    Own,
}

impl Said {
    fn is_cut(&self) -> bool {
        matches!(self, Said::Tape(tape) if tape.is_cut())
    }
}

/// Replies of a transaction that have not been said yet.
pub struct Saying {
    transaction: Box<Transaction>,
    said: std::vec::IntoIter<Said>,
    next: usize,
}

/// What came of a try.
enum Tried {
    Done,
    /// A watched key has changed.
    Changed,
    Busy,
    ForMain,
    /// It ran, and its replies are to be said.
    Said(Vec<Said>),
}

const SPOILED: &[u8] = b"EXECABORT Transaction discarded because of previous errors.";
const NOT_IN_MULTI: [&[u8]; 2] = [b"ERR EXEC without MULTI", b"ERR DISCARD without MULTI"];
const NESTED: &[u8] = b"ERR MULTI calls can not be nested";
const WATCH_IN_MULTI: &[u8] = b"ERR WATCH inside MULTI is not allowed";

/// Redis's words where rights have changed since a command was queued.
fn denied_now(denied: Denied) -> Vec<u8> {
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Database => "no permission",
    };
    let text = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
                This command is no longer allowed for the following reason: ";
    [text, reason].concat().into_bytes()
}

/// Why EXEC itself was refused.
fn aborted(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"ERR ").unwrap_or(text);
    [b"EXECABORT Transaction discarded because of: ", text].concat()
}

/// Whether a command of the port's own runs between MULTI and EXEC as elsewhere.
fn runs_at_once(which: PortAction) -> bool {
    use PortAction::{Discard, Exec, Multi, Quit, Reset, Watch};
    matches!(which, Exec | Discard | Multi | Watch | Quit | Reset)
}

impl<D: Driver> Service<D> {
    /// A command between MULTI and EXEC: it is queued, but for those that run at once.
    pub(super) fn run_in_multi(
        &mut self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let (named, judged) = match Named::find(args.get(0)) {
            Some(named @ Named::Table { number, prefix }) => {
                let call = self.call(connection, number, prefix, args, limits);
                (named, self.judge_queued(connection, &call))
            }
            _ => match find_port(args) {
                Some(PortCall::Known(number)) => {
                    (Named::Port(number), self.judge_own(connection, number, args))
                }
                other => {
                    connection.client.last_command.store(0, Ordering::Relaxed);
                    connection.session.spoil();
                    return self.not_here(connection, args, other.is_some(), output);
                }
            },
        };
        named.note(&connection.client);
        match (judged, named) {
            (Judged::Wait, _) => connection.state = State::Deferred,
            (Judged::Refuse(text), Named::Port(number)) => self.refuse_own(connection, number, &text, output),
            (Judged::Refuse(text), Named::Table { .. }) => {
                connection.session.spoil();
                connection.session.reply(output).error(&text);
            }
            (Judged::Go, Named::Port(number)) if runs_at_once(PORT_COMMANDS[number].which) => {
                self.run_own(connection, number, args, limits, output);
            }
            (Judged::Go, named) => self.queue(connection, named, args, output),
        }
    }

    /// What is to become of a command of the table, as far as can be said before EXEC.
    fn judge_queued(&self, connection: &Connection, call: &Call<'_>) -> Judged {
        let error_text =
            |error: Error| error.text(&format!("{}{}", call.prefix, call.row().name), &call.args);
        let checked = call.row().check_form(&call.args).map_err(error_text);
        let checked = checked.and_then(|()| self.check_rights(connection, call));
        let checked = checked.and_then(|()| self.check_memory().map_err(error_text));
        if let Err(text) = checked {
            return Judged::Refuse(text);
        }
        match self.engine().port_gate(call.row().flags) {
            Gate::Go => {}
            Gate::Wait => return Judged::Wait,
            Gate::Refuse(error) => return Judged::Refuse(error_text(error)),
        }
        let before = connection.session.transaction.as_ref().map_or(0, |transaction| transaction.all_keys());
        let most = call.limits.max_atomic_keys;
        if before + call.row().key_positions(&call.args).len() > most {
            return Judged::Refuse(error_text(Error::TooManyKeys(most)));
        }
        Judged::Go
    }

    /// What is queued takes memory, whatever it is.
    fn check_memory(&self) -> Result<(), Error> {
        match self.engine().write_refusal(true) {
            Some(Error::OutOfMemory) => Err(Error::OutOfMemory),
            _ => Ok(()),
        }
    }

    /// The same for the port's own commands.
    pub(super) fn check_room_for(&self, connection: &Connection, which: PortAction) -> Result<(), Error> {
        use PortAction::{Discard, Exec, Quit, Reset};
        if !connection.session.in_multi || matches!(which, Exec | Discard | Quit | Reset) {
            return Ok(());
        }
        self.check_memory()
    }

    /// Answers that one of the port's own commands is refused, inside MULTI or not.
    pub(super) fn refuse_own(
        &self,
        connection: &mut Connection,
        number: usize,
        text: &[u8],
        output: &mut Vec<u8>,
    ) {
        let session = &mut connection.session;
        if PORT_COMMANDS[number].which == PortAction::Exec {
            session.leave_transaction();
            return session.reply(output).error(&aborted(text));
        }
        session.spoil();
        session.reply(output).error(text);
    }

    fn queue(&self, connection: &mut Connection, named: Named, args: &Args<'_>, output: &mut Vec<u8>) {
        let most = self.engine().settings.port.query_limit.load(Ordering::Relaxed);
        let transaction = connection.session.transaction.get_or_insert_default();
        // What will not be run need not be kept.
        if !transaction.is_spoiled && !transaction.watching.is_lost() {
            transaction.add(named, args);
            if transaction.memory() > most {
                count(&self.shared.counts(self.worker).closed_for_limits, 1);
                return connection.state = State::Closing;
            }
        }
        connection.session.reply(output).simple("QUEUED");
    }

    /// MULTI.
    pub(super) fn multi(&mut self, connection: &mut Connection, output: &mut Vec<u8>) {
        let session = &mut connection.session;
        if session.in_multi {
            return session.reply(output).error(NESTED);
        }
        session.transaction.get_or_insert_with(|| self.spare.take().unwrap_or_default());
        session.in_multi = true;
        session.reply(output).ok();
    }

    /// DISCARD.
    pub(super) fn discard(&self, connection: &mut Connection, output: &mut Vec<u8>) {
        let session = &mut connection.session;
        if !session.in_multi {
            return session.reply(output).error(NOT_IN_MULTI[1]);
        }
        session.leave_transaction();
        session.reply(output).ok();
    }

    /// UNWATCH, which comes between MULTI and EXEC only where EXEC has ended that already.
    pub(super) fn unwatch(&self, connection: &mut Connection, output: &mut Vec<u8>) {
        connection.session.leave_transaction();
        connection.session.reply(output).ok();
    }

    /// `WATCH key [key ...]`.
    pub(super) fn watch(
        &self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let (db, engine) = (connection.session.db, self.engine());
        if connection.session.in_multi {
            return connection.session.reply(output).error(WATCH_IN_MULTI);
        }
        let transaction = connection.session.transaction.get_or_insert_default();
        let keys = args.from(1);
        if transaction.watching.is_lost() {
            return connection.session.reply(output).ok();
        }
        // Once: when it is tried again, some of its keys are watched already.
        let is_new = transaction.tries == 0;
        if is_new && transaction.watching.len() + keys.len() > limits.max_atomic_keys {
            let error = Error::TooManyKeys(limits.max_atomic_keys);
            return connection.session.reply(output).error(&error.text("watch", args));
        }
        if engine.config.safemode || transaction.tries >= MANY_TRIES {
            return self.watch_on_main(connection, keys);
        }
        let watching = &mut transaction.watching;
        let mut observe = |key| engine.observe(self.seat(), watching, db, key, Taking::WORKER);
        if !keys.iter().all(|key| observe(key)) {
            // Those that are watched already stay so.
            transaction.tries += 1;
            return connection.state = State::Again;
        }
        transaction.tries = 0;
        connection.session.reply(output).ok();
    }

    fn watch_on_main(&self, connection: &mut Connection, keys: &[&[u8]]) {
        let db = connection.session.db;
        let keys: Vec<Box<[u8]>> = keys.iter().map(|&key| key.into()).collect();
        let transaction = connection.session.transaction.take().unwrap_or_default();
        let mut watching = transaction.watching;
        self.ask_main(connection, move |engine, _| {
            for key in &keys {
                let seat = engine.main_seat();
                let _ = engine.observe(seat, &mut watching, db, key, Taking::Wait);
            }
            Box::new(move |connection, output| {
                let transaction = Transaction { watching, ..Transaction::default() };
                connection.session.transaction = Some(Box::new(transaction));
                connection.session.reply(output).ok();
            })
        });
    }

    /// EXEC.
    pub(super) fn exec(
        &mut self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let session = &mut connection.session;
        if !session.in_multi {
            return session.reply(output).error(NOT_IN_MULTI[0]);
        }
        let flags = session.transaction.as_ref().and_then(|transaction| transaction.flags);
        match flags.map_or(Gate::Go, |flags| self.shared.engine.port_gate(flags)) {
            Gate::Go => {}
            Gate::Wait => return connection.state = State::Deferred,
            Gate::Refuse(error) => {
                session.leave_transaction();
                return session.reply(output).error(&aborted(&error.text("exec", args)));
            }
        }
        let Some(mut transaction) = session.leave_transaction() else { return };
        if transaction.is_spoiled {
            return session.reply(output).error(SPOILED);
        }
        if transaction.watching.is_lost() {
            return session.reply(output).null_array();
        }
        match self.try_exec(connection, &transaction, limits, output) {
            Tried::Done => self.spare = transaction.emptied(),
            Tried::Changed => connection.session.reply(output).null_array(),
            Tried::Busy => {
                transaction.tries += 1;
                connection.session.transaction = Some(transaction);
                connection.session.in_multi = true;
                connection.state = State::Again;
            }
            Tried::ForMain => self.exec_on_main(connection, transaction, *limits),
            Tried::Said(said) => {
                self.shared.begin_saying(connection, transaction, said, output);
                self.go_on_saying(connection, limits, output);
            }
        }
    }

    /// Runs a transaction on this worker, if that can be done.
    fn try_exec(
        &self,
        connection: &Connection,
        transaction: &Transaction,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) -> Tried {
        let (engine, session) = (self.engine(), &connection.session);
        if engine.config.safemode || transaction.tries >= MANY_TRIES {
            return Tried::ForMain;
        }
        let Some(user) = &session.user else { return Tried::ForMain };
        let all = transaction.arguments();
        let mut plan = Plan::new(engine, None, transaction, &all, user, session.db, limits);
        if plan.is_for_main {
            return Tried::ForMain;
        }
        engine.add_watched(&transaction.watching, &mut plan.shards);
        let Some(mut holding) = engine.hold(self.seat(), &mut plan.shards) else { return Tried::Busy };
        if holding.concerns_host(plan.calls()) {
            holding.let_go();
            return Tried::ForMain;
        }
        // Read while the shards are held: what has expired by then, nobody has taken out before.
        let now = Now::at((engine.config.clock)());
        if !holding.is_unchanged(&transaction.watching, &now) {
            holding.let_go();
            return Tried::Changed;
        }
        plan.set_time(now.ms());
        let refusals = take(&mut plan.refusals);
        let tried = if plan.has_own {
            Tried::Said(plan.run(engine, |call, tape| holding.run(call, tape)))
        } else {
            plan.run_and_say(&mut session.reply(output), |call, reply| holding.run(call, reply));
            Tried::Done
        };
        holding.let_go();
        refusals.into_iter().for_each(|refusal| self.note_refusal(refusal));
        engine.book_many_at_once(self.seat(), transaction.commands.len());
        tried
    }

    /// Has the main thread run a transaction as a unit.
    fn exec_on_main(&self, connection: &mut Connection, transaction: Box<Transaction>, limits: Limits) {
        let Some(user) = connection.session.user.clone() else { return };
        let (db, shared) = (connection.session.db, Arc::clone(&self.shared));
        self.ask_main(connection, move |engine, host| {
            let Some(host) = host else {
                return Box::new(|connection, output| connection.session.reply(output).error(&aborted(BUSY)));
            };
            let result = run_as_unit(engine, host, &transaction, &user, db, &limits);
            Box::new(move |connection, output| match result {
                Ok(Some(said)) => shared.begin_saying(connection, transaction, said, output),
                Ok(None) => connection.session.reply(output).null_array(),
                Err(text) => connection.session.reply(output).error(&text),
            })
        });
    }

    /// Goes on with a transaction's replies, until one must be waited for, or others have their turn: then
    /// `saying` is left.
    pub(super) fn go_on_saying(
        &mut self,
        connection: &mut Connection,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let mut pace = Pace::default();
        while connection.state != State::Waiting
            && output.len() <= OUTPUT_PAUSE
            && self.spent <= self.at_once
            && !pace.is_over(self.at_once)
        {
            let Some(mut saying) = connection.session.saying.take() else { return };
            let at = saying.next;
            let Some(said) = saying.said.next() else { return };
            saying.next += 1;
            match said {
                Said::Tape(tape) => tape.play(&mut connection.session.reply(output)),
                Said::Error(text) => connection.session.reply(output).error(&text),
                Said::Own => {
                    let args = saying.transaction.arguments_of(at);
                    let args = Args::new(&args);
                    if let Named::Port(number) = saying.transaction.commands[at].named {
                        let started = Instant::now();
                        self.run_own(connection, number, &args, limits, output);
                        self.spent += started.elapsed();
                    }
                }
            }
            connection.session.saying = Some(saying);
        }
    }
}

impl<'a> Plan<'a> {
    /// What is to be done for these commands, whose arguments are all in `all`. Where they say who
    /// the client is, `host` is asked; the main thread alone has it.
    fn new(
        engine: &Engine,
        host: Option<&dyn Host>,
        transaction: &Transaction,
        all: &'a [&'a [u8]],
        user: &Arc<User>,
        mut db: u32,
        limits: &Limits,
    ) -> Self {
        let mut user = Arc::clone(user);
        let mut plan = Plan {
            steps: SmallVec::new(),
            shards: Shards::new(),
            is_for_main: false,
            has_own: false,
            refusals: Vec::new(),
        };
        for (number, queued) in transaction.commands.iter().enumerate() {
            let args = transaction.args_of(number, all);
            let step = match queued.named {
                Named::Table { number: command, prefix } => {
                    let now = Now::lazy(engine.config.clock);
                    let call =
                        Call { command, args, db, now, limits: *limits, prefix, author: Author::Nobody };
                    plan.step(engine, &user, call)
                }
                Named::Port(command) => {
                    let step = plan.own_step(engine, &user, command, args, db, limits);
                    if matches!(step, Step::Own) {
                        let which = PORT_COMMANDS[command].which;
                        if which == PortAction::Select {
                            db = selected(engine, Some(&user), &args).unwrap_or(db);
                        }
                        if let Some((name, password)) = login_of(engine, which, &args) {
                            plan.is_for_main |= host.is_none();
                            user = host.and_then(|host| log_in(engine, host, name, password)).unwrap_or(user);
                        }
                    }
                    step
                }
            };
            plan.steps.push(step);
        }
        plan
    }

    fn step(&mut self, engine: &Engine, user: &User, call: Call<'a>) -> Step<'a> {
        if let Err(denied) = user.check(call.command, &call.args, call.db) {
            return self.refuse(user, denied, &format!("midi.{}", call.row().name), &call.args);
        }
        if let Err(error) = call.row().check_arity(&call.args) {
            let name = format!("{}{}", call.prefix, call.row().name);
            return Step::Refuse(error.text(&name, &call.args));
        }
        self.is_for_main |= engine.is_for_unit(&call);
        engine.add_shards(&call, &mut self.shards);
        Step::Run(call)
    }

    fn own_step(
        &mut self,
        engine: &Engine,
        user: &User,
        command: usize,
        args: Args<'a>,
        db: u32,
        limits: &Limits,
    ) -> Step<'a> {
        let row = &PORT_COMMANDS[command];
        if let Err(denied) = user.check_own(command, &args, db) {
            return self.refuse(user, denied, row.name, &args);
        }
        // The one of them that changes data.
        if let Some(call) = populate(engine, row.which, &args, db, limits) {
            self.is_for_main = true;
            return Step::Run(call);
        }
        self.has_own = true;
        Step::Own
    }

    fn refuse(&mut self, user: &User, denied: Denied, name: &str, args: &Args<'_>) -> Step<'a> {
        self.refusals.push(Refusal::new(user, denied, name, args));
        Step::Refuse(denied_now(denied))
    }

    /// Everything happens at this moment.
    fn set_time(&mut self, ms: UnixMs) {
        for step in &mut self.steps {
            if let Step::Run(call) = step {
                call.now = Now::at(ms);
            }
        }
    }

    fn calls(&self) -> impl Iterator<Item = &Call<'a>> {
        self.steps.iter().filter_map(|step| match step {
            Step::Run(call) => Some(call),
            _ => None,
        })
    }

    /// Runs what is to be run, where all of it is, and says what comes of it.
    fn run_and_say(&self, reply: &mut RespReply<'_>, mut run: impl FnMut(&Call<'_>, &mut RespReply<'_>)) {
        reply.array(self.steps.len());
        for step in &self.steps {
            match step {
                Step::Run(call) => run(call, reply),
                Step::Refuse(text) => reply.error(text),
                Step::Own => {}
            }
        }
    }

    /// Runs what is to be run, all of it; what was said, for later, as far as it may wait for a client.
    fn run(self, engine: &Engine, mut run: impl FnMut(&Call<'_>, &mut Tape)) -> Vec<Said> {
        let mut room = engine.settings.port.most_output();
        let steps = self.steps.into_iter();
        steps
            .map(|step| match step {
                Step::Run(call) => {
                    let mut tape = Tape::up_to(room);
                    run(&call, &mut tape);
                    room = room.saturating_sub(tape.len());
                    Said::Tape(tape)
                }
                Step::Refuse(text) => Said::Error(text),
                Step::Own => Said::Own,
            })
            .collect()
    }
}

/// What DEBUG POPULATE stands for; `None` where it is something else, or wrong.
fn populate<'a>(
    engine: &Engine,
    which: PortAction,
    args: &Args<'a>,
    db: u32,
    limits: &Limits,
) -> Option<Call<'a>> {
    let is_populate = which == PortAction::Debug && args.is(1, "populate");
    if !is_populate || args.len() > POPULATE_ARGUMENTS_MAX {
        return None;
    }
    let now = Now::lazy(engine.config.clock);
    let call = Call {
        command: find(b"populate")?,
        args: Args::new(args.from(1)),
        db,
        now,
        limits: *limits,
        prefix: "",
        author: Author::Nobody,
    };
    call.row().check_arity(&call.args).is_ok().then_some(call)
}

/// Who the client is from here on, if that is the password.
fn log_in(engine: &Engine, host: &dyn Host, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
    let is_right = host.authenticate(name, &PasswordSum::of(password));
    is_right.then(|| engine.users.find_or_look(name, |name| host.user(name))).flatten()
}

/// Runs a transaction on the main thread. `None` where a watched key has changed; the error is why
/// it may not be run any more.
fn run_as_unit(
    engine: &Engine,
    host: &dyn Host,
    transaction: &Transaction,
    user: &Arc<User>,
    db: u32,
    limits: &Limits,
) -> Result<Option<Vec<Said>>, Vec<u8>> {
    // The gates may have closed since the worker looked.
    if let Some(Gate::Refuse(error)) = transaction.flags.map(|flags| engine.port_gate(flags)) {
        return Err(aborted(&error.text("exec", &Args::new(&[]))));
    }
    engine.in_unit(|| {
        if !engine.is_unchanged(&transaction.watching) {
            return Ok(None);
        }
        let all = transaction.arguments();
        let mut plan = Plan::new(engine, Some(host), transaction, &all, user, db, limits);
        plan.set_time(engine.main_now().ms());
        take(&mut plan.refusals).into_iter().for_each(|refusal| engine.note_refusal(refusal));
        Ok(Some(plan.run(engine, |call, tape| match call.row().action {
            Action::Door(which) => run_by_host(host, call, which, user).play(tape),
            _ => engine.run_waiting(call, tape),
        })))
    })
}

/// Has the host run a command that needs its means; within a unit it does so at once.
fn run_by_host(host: &dyn Host, call: &Call<'_>, which: DoorCommand, user: &User) -> Tape {
    let done = Arc::new(Mutex::new(Tape::default()));
    let owner = JobOwner { db: call.db, ..JobOwner::default() };
    let reply = OnTape { tape: Tape::default(), done: Arc::clone(&done) };
    host.run_door_command(call, which, &user.name, owner, Box::new(reply));
    take(&mut *done.lock())
}

/// A reply that is kept when it is complete.
struct OnTape {
    tape: Tape,
    done: Arc<Mutex<Tape>>,
}

impl JobReply for OnTape {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.tape
    }

    fn finish(self: Box<Self>) {
        *self.done.lock() = self.tape;
    }
}

impl Session {
    /// A command was refused: EXEC will be, too.
    fn spoil(&mut self) {
        if let Some(transaction) = self.transaction.as_mut().filter(|_| self.in_multi) {
            transaction.is_spoiled = true;
        }
    }

    /// Memory of what is queued.
    pub fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.memory())
    }

    /// Commands that are queued; `None` outside of MULTI.
    pub fn queued(&self) -> Option<usize> {
        let commands = self.transaction.as_ref().map_or(0, |transaction| transaction.commands.len());
        self.in_multi.then_some(commands)
    }

    /// Ends MULTI and WATCH, if they were said; what there was of a transaction.
    pub fn leave_transaction(&mut self) -> Option<Box<Transaction>> {
        self.in_multi = false;
        self.transaction.take()
    }
}

impl Shared {
    /// Says how many replies there are; [`Service::go_on_saying`] does the rest. A connection for which they
    /// are too large is closed.
    fn begin_saying(
        &self,
        connection: &mut Connection,
        transaction: Box<Transaction>,
        said: Vec<Said>,
        output: &mut Vec<u8>,
    ) {
        let session = &mut connection.session;
        if said.iter().any(Said::is_cut) && !session.is_muted() {
            count(&self.counts(connection.client.worker).closed_for_limits, 1);
            return connection.state = State::Closing;
        }
        session.reply(output).array(said.len());
        session.saying = Some(Box::new(Saying { transaction, said: said.into_iter(), next: 0 }));
    }
}
