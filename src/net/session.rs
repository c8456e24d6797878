//! Who a connection is and how it is spoken to; and the commands about that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::connection::{Connection, State};
use super::describe::describe;
use super::driver::Driver;
use super::resp::RespReply;
use super::run::Service;
use super::shared::{Client, count};
use super::transaction::{Saying, Transaction};
use crate::command::{
    Action, Args, COMMANDS, DoorCommand, Error, Limits, PORT_COMMANDS, PortAction, PortCall, Reply,
    error_about, find, find_port, parse_integer,
};
use crate::shard::{
    Author, Call, DEFAULT_USER, Denied, Engine, Gate, Gates, Outcome, PasswordSum, Refusal, Taking, User,
    Users,
};
use crate::store::Now;

/// What a connection is, apart from its bytes.
pub struct Session {
    /// The database.
    pub db: u32,
    /// RESP3 is spoken.
    pub resp3: bool,
    /// Who it is; nobody yet where `None`.
    pub user: Option<Arc<User>>,
    /// The epoch of the list of users when that was looked up; [`UNSETTLED`] where the list was about to change.
    epoch: u64,
    /// Commands run here and now: no SAFEMODE.
    plain: bool,
    /// Whether they are answered.
    replies: Replies,
    /// Between MULTI and EXEC.
    pub(super) in_multi: bool,
    /// What MULTI and WATCH have led to.
    pub(super) transaction: Option<Box<Transaction>>,
    /// What EXEC has still to answer.
    pub(super) saying: Option<Box<Saying>>,
    /// What the buffer that it is answered into may hold.
    pub(super) most_output: usize,
}

/// A user, as of some epoch: sessions for which they are equal have equal rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Where it lies, if anybody has logged in; sessions of one user share it.
    user: Option<usize>,
    epoch: u64,
}

/// Whether a client wants replies: CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// It does.
    Wanted,
    /// It does not.
    Unwanted,
    /// Not to the next command.
    SkipNext,
    /// Not to the one that runs.
    Skipping,
}

/// A command, by the name that a client gave.
#[derive(Clone, Copy)]
pub enum Named {
    /// One of the command table.
    Table {
        /// Its number in [`crate::command::COMMANDS`].
        number: usize,
        /// What stood before its standard name.
        prefix: &'static str,
    },
    /// One of the port's own: its number in [`PORT_COMMANDS`].
    Port(usize),
}

/// What every command of the table may be called with.
pub const PREFIX: &str = "midi.";

/// Whether a standard name means another command: INFO without `midi.` tells of the whole server.
#[inline]
fn is_shadowed(number: usize) -> bool {
    matches!(COMMANDS[number].action, Action::Door(DoorCommand::Info))
}

impl Named {
    /// The command of the table of that name, in any case, with or without `midi.` in front.
    #[inline]
    pub fn find(name: &[u8]) -> Option<Named> {
        if let Some((prefix, rest)) = name.split_at_checked(PREFIX.len())
            && prefix.eq_ignore_ascii_case(PREFIX.as_bytes())
        {
            return find(rest).map(|number| Named::Table { number, prefix: PREFIX });
        }
        let number = find(name).filter(|&number| !is_shadowed(number))?;
        Some(Named::Table { number, prefix: "" })
    }

    /// As a number of [`Client::last_command`]; not 0.
    fn packed(self) -> u32 {
        match self {
            Named::Table { number, prefix } => 1 + 4 * number as u32 + u32::from(!prefix.is_empty()),
            Named::Port(number) => 3 + 4 * number as u32,
        }
    }

    /// The command that such a number stands for; `None` where there is none.
    pub fn of_packed(packed: u32) -> Option<Named> {
        let number = (packed / 4) as usize;
        match packed % 4 {
            1 => Some(Named::Table { number, prefix: "" }),
            2 => Some(Named::Table { number, prefix: PREFIX }),
            3 => Some(Named::Port(number)),
            _ => None,
        }
    }

    /// Its name; a subcommand's is `container|subcommand`.
    pub fn full_name(self) -> String {
        match self {
            Named::Table { number, prefix } => format!("{prefix}{}", COMMANDS[number].name),
            Named::Port(number) => PORT_COMMANDS[number].name.to_owned(),
        }
    }

    /// Notes that a client has called it.
    #[inline]
    pub fn note(self, client: &Client) {
        client.last_command.store(self.packed(), Ordering::Relaxed);
    }
}

impl Session {
    /// Of a new connection.
    pub fn new(engine: &Engine, client: &Client) -> Self {
        let plain = !engine.config.safemode;
        let mut session = Session {
            db: 0,
            resp3: false,
            user: None,
            epoch: UNSETTLED,
            plain,
            replies: Replies::Wanted,
            in_multi: false,
            transaction: None,
            saying: None,
            most_output: usize::MAX,
        };
        session.be_nobody(engine, client);
        session
    }

    /// Makes it as it was when it was new: RESET.
    fn reset(&mut self, engine: &Engine, client: &Client) {
        self.resp3 = false;
        // A reply that CLIENT REPLY SKIP has given up stays so, be it this one.
        if self.replies != Replies::Skipping {
            self.replies = Replies::Wanted;
        }
        self.leave_transaction();
        self.select(0, client);
        client.names.lock().name.clear();
        self.be_nobody(engine, client);
    }

    /// It has not said who it is: the user `default`, where that one needs no password.
    fn be_nobody(&mut self, engine: &Engine, client: &Client) {
        let users = &engine.users;
        self.epoch = settled(users.epoch());
        self.user = if users.default_is_open() { users.find(DEFAULT_USER) } else { None };
        client.names.lock().user = DEFAULT_USER.to_vec();
    }

    fn select(&mut self, db: u32, client: &Client) {
        self.db = db;
        client.db.store(db, Ordering::Relaxed);
    }

    /// Whether its commands may run together with others.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain && self.replies == Replies::Wanted && !self.in_multi
    }

    /// CLIENT REPLY.
    pub fn set_replies(&mut self, replies: Replies) {
        self.replies = replies;
    }

    /// Whether it wants replies to what comes.
    pub fn wants_replies(&self) -> bool {
        !matches!(self.replies, Replies::Unwanted | Replies::SkipNext)
    }

    /// Whether the command that runs is not to be answered.
    pub fn is_muted(&self) -> bool {
        matches!(self.replies, Replies::Unwanted | Replies::Skipping)
    }

    /// A command begins that does not run together with others.
    pub fn begin_command(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skipping,
            Replies::Skipping => Replies::Wanted,
            same => same,
        };
    }

    /// It has not run: it begins again later.
    pub fn put_off_command(&mut self) {
        if self.replies == Replies::Skipping {
            self.replies = Replies::SkipNext;
        }
    }

    /// What commands that run together must have in common: the database, and the protocol.
    #[inline]
    pub fn kind(&self) -> (u32, bool) {
        (self.db, self.resp3)
    }

    /// What its rights follow from.
    #[inline]
    pub fn rights(&self) -> Rights {
        Rights { user: self.user.as_ref().map(|user| Arc::as_ptr(user).addr()), epoch: self.epoch }
    }

    /// Whether it may call that command of the table on every key.
    #[inline]
    pub fn may_on_all_keys(&self, number: usize) -> bool {
        self.user.as_ref().is_some_and(|user| user.may_anywhere(number))
    }

    /// Whether it may call that command of the table, as far as is known without asking anybody.
    #[inline]
    pub fn may(&self, engine: &Engine, number: usize, args: &Args<'_>) -> bool {
        self.epoch == engine.users.epoch()
            && self.user.as_ref().is_some_and(|user| user.check(number, args, self.db).is_ok())
    }
}

/// An epoch that the list of users never has: who was looked up then is looked up again.
const UNSETTLED: u64 = u64::MAX;

fn settled(epoch: u64) -> u64 {
    if Users::is_stale(epoch) { UNSETTLED } else { epoch }
}

/// What came of looking at who a connection is.
enum Standing {
    /// It may go on.
    Good,
    /// Nobody knows yet: the host's rules are changing.
    Unknown,
    /// Its user is gone.
    Gone,
}

impl Session {
    /// Looks the user up again where the list of users has changed.
    fn refresh(&mut self, engine: &Engine) -> Standing {
        let epoch = engine.users.epoch();
        if epoch == self.epoch {
            return Standing::Good;
        }
        if Users::is_stale(epoch) {
            return Standing::Unknown;
        }
        self.epoch = epoch;
        match self.user.take() {
            // Nobody need say who they are any more.
            None if engine.users.default_is_open() => self.user = engine.users.find(DEFAULT_USER),
            None => {}
            Some(user) => {
                self.user = engine.users.find_again(&user);
                if self.user.is_none() {
                    return Standing::Gone;
                }
            }
        }
        Standing::Good
    }

    /// It is this user from now on.
    pub fn log_in(&mut self, client: &Client, user: Arc<User>, epoch: u64) {
        client.names.lock().user = user.name.to_vec();
        self.user = Some(user);
        self.epoch = settled(epoch);
    }
}

/// Redis's words to somebody who has not said who they are.
pub const NO_AUTH: &[u8] = b"NOAUTH Authentication required.";

impl<D: Driver> Service<D> {
    /// Runs one command, whatever it is.
    pub(super) fn run_command(
        &mut self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        match connection.session.refresh(&self.shared.engine) {
            Standing::Good => {}
            Standing::Unknown => return connection.state = State::Deferred,
            Standing::Gone => return connection.state = State::Closing,
        }
        if connection.session.in_multi {
            return self.run_in_multi(connection, args, limits, output);
        }
        if let Some(named @ Named::Table { number, prefix }) = Named::find(args.get(0)) {
            named.note(&connection.client);
            let call = self.call(connection, number, prefix, args, limits);
            return self.run_table_command(connection, &call, output);
        }
        match find_port(args) {
            Some(PortCall::Known(number)) => {
                Named::Port(number).note(&connection.client);
                match self.judge_own(connection, number, args) {
                    Judged::Go => self.run_own(connection, number, args, limits, output),
                    Judged::Wait => connection.state = State::Deferred,
                    Judged::Refuse(text) => self.refuse_own(connection, number, &text, output),
                }
            }
            other => {
                connection.client.last_command.store(0, Ordering::Relaxed);
                self.not_here(connection, args, other.is_some(), output);
            }
        }
    }

    /// A connection's call of a command of the table.
    #[inline]
    pub(super) fn call<'a>(
        &self,
        connection: &Connection,
        command: usize,
        prefix: &'static str,
        args: &Args<'a>,
        limits: &Limits,
    ) -> Call<'a> {
        let now = Now::lazy(self.engine().config.clock);
        Call {
            command,
            args: *args,
            db: connection.session.db,
            now,
            limits: *limits,
            prefix,
            author: Author::Nobody,
        }
    }

    /// Runs a command of the table, if it is allowed.
    fn run_table_command(&mut self, connection: &mut Connection, call: &Call<'_>, output: &mut Vec<u8>) {
        if let Err(error) = call.row().check_form(&call.args) {
            return call.refuse(error, &mut connection.session.reply(output));
        }
        match self.check_rights(connection, call) {
            Ok(()) => self.run_allowed(connection, call, output),
            Err(text) => connection.session.reply(output).error(&text),
        }
    }

    /// Runs a command of the table that the user may call.
    pub(super) fn run_allowed(&mut self, connection: &mut Connection, call: &Call<'_>, output: &mut Vec<u8>) {
        match self.engine().port_gate(call.row().flags) {
            Gate::Go => {}
            Gate::Wait => return connection.state = State::Deferred,
            Gate::Refuse(error) => return call.refuse(error, &mut connection.session.reply(output)),
        }
        // A key without a value is found when everybody else has nothing against the command.
        if let Err(error) = call.row().check_arity(&call.args) {
            return call.refuse(error, &mut connection.session.reply(output));
        }
        if self.engine().config.safemode || matches!(call.row().action, Action::Door(_)) {
            return self.on_main(connection, call);
        }
        let mut reply = connection.session.reply(output);
        match self.engine().attempt(self.seat(), call, Taking::WORKER, &mut reply) {
            Outcome::Done => self.engine().book_many_at_once(self.seat(), 1),
            outcome => self.hand_over(connection, call, outcome, output),
        }
    }

    /// Whether the user may do that.
    ///
    /// # Errors
    /// Redis's words on what is not allowed.
    pub(super) fn check_rights(&self, connection: &Connection, call: &Call<'_>) -> Result<(), Vec<u8>> {
        let Some(user) = &connection.session.user else { return Err(NO_AUTH.to_vec()) };
        let Err(denied) = user.check(call.command, &call.args, call.db) else { return Ok(()) };
        let name = format!("{PREFIX}{}", call.row().name);
        self.note_refusal(Refusal::new(user, denied, &name, &call.args));
        Err(denied.text(&name, &call.args))
    }

    /// Has the host note a refusal.
    pub(super) fn note_refusal(&self, refusal: Refusal) {
        count(&self.shared.counts(self.worker).denied, 1);
        self.engine().note_refusal(refusal);
    }

    /// What is to become of a command of the port's own.
    pub(super) fn judge_own(&self, connection: &Connection, number: usize, args: &Args<'_>) -> Judged {
        let row = &PORT_COMMANDS[number];
        let given = args.len() as i32;
        if given != row.arity && (row.arity >= 0 || given < -row.arity) {
            return Judged::Refuse(Error::Arity.text(row.name, args));
        }
        if !row.open {
            let Some(user) = &connection.session.user else { return Judged::Refuse(NO_AUTH.to_vec()) };
            if let Err(denied) = user.check_own(number, args, connection.session.db) {
                self.note_refusal(Refusal::new(user, denied, row.name, args));
                return Judged::Refuse(denied.text(row.name, args));
            }
        }
        if let Err(error) = self.check_room_for(connection, row.which) {
            return Judged::Refuse(error.text(row.name, args));
        }
        match self.engine().own_gate(row.which == PortAction::Ping) {
            Gate::Go => Judged::Go,
            Gate::Wait => Judged::Wait,
            Gate::Refuse(error) => Judged::Refuse(error.text(row.name, args)),
        }
    }

    /// Runs a command of the port's own.
    pub(super) fn run_own(
        &mut self,
        connection: &mut Connection,
        number: usize,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let row = &PORT_COMMANDS[number];
        match row.which {
            PortAction::Ping if args.len() > 2 => {
                connection.session.reply(output).error(&Error::Arity.text(row.name, args));
            }
            PortAction::Ping if args.len() == 2 => connection.session.reply(output).bulk(args.get(1)),
            PortAction::Ping => connection.session.reply(output).simple("PONG"),
            PortAction::Echo => connection.session.reply(output).bulk(args.get(1)),
            PortAction::Select => self.select(connection, args, output),
            PortAction::Quit => {
                connection.session.reply(output).ok();
                connection.state = State::Closing;
            }
            PortAction::Hello => self.hello(connection, args, output),
            PortAction::Auth => self.auth(connection, args, output),
            PortAction::Reset => {
                connection.session.reset(&self.shared.engine, &connection.client);
                connection.session.reply(output).simple("RESET");
            }
            PortAction::Time => self.time(connection, output),
            // Without a subcommand its arity is wrong.
            PortAction::Container => {}
            PortAction::Client(which) => self.client(connection, which, args, output),
            PortAction::Describe(which) => describe(which, args, &mut connection.session.reply(output)),
            PortAction::Info => self.info(connection, args),
            PortAction::ConfigGet => self.config_get(connection, args),
            PortAction::Debug => self.debug(connection, args, limits, output),
            PortAction::WhoAmI => self.who_am_i(connection, output),
            PortAction::ModuleList => self.modules(connection, output),
            PortAction::LastSave => self.ask_host(connection, c"LASTSAVE"),
            PortAction::Role => self.ask_host(connection, c"ROLE"),
            PortAction::Multi => self.multi(connection, output),
            PortAction::Exec => self.exec(connection, args, limits, output),
            PortAction::Discard => self.discard(connection, output),
            PortAction::Watch => self.watch(connection, args, limits, output),
            PortAction::Unwatch => self.unwatch(connection, output),
        }
    }

    fn select(&self, connection: &mut Connection, args: &Args<'_>, output: &mut Vec<u8>) {
        match selected(self.engine(), connection.session.user.as_deref(), args) {
            Ok(db) => {
                connection.session.select(db, &connection.client);
                connection.session.reply(output).ok();
            }
            Err(text) => connection.session.reply(output).error(&text),
        }
    }

    /// `AUTH [user] password`.
    fn auth(&mut self, connection: &mut Connection, args: &Args<'_>, output: &mut Vec<u8>) {
        if args.len() == 2 && self.engine().users.default_is_open() {
            return connection.session.reply(output).error(
                b"ERR AUTH <password> called without any password configured for the default user. \
                  Are you sure your configuration is correct?",
            );
        }
        let Some((name, password)) = login_of(self.engine(), PortAction::Auth, args) else {
            return connection.session.reply(output).error(&Error::Syntax.text("auth", args));
        };
        self.log_in(connection, name, password, |connection, output| connection.session.reply(output).ok());
    }

    /// Asks the host about a name and password; goes on with `then` where they are right.
    fn log_in(
        &mut self,
        connection: &mut Connection,
        name: &[u8],
        password: &[u8],
        then: impl FnOnce(&mut Connection, &mut Vec<u8>) + Send + 'static,
    ) {
        let (name, password): (Box<[u8]>, _) = (name.into(), PasswordSum::of(password));
        let (shared, worker) = (Arc::clone(&self.shared), self.worker);
        self.ask_main(connection, move |engine, host| {
            let Some(host) = host else {
                return Box::new(|connection, output| connection.session.reply(output).error(BUSY));
            };
            let epoch = engine.users.epoch();
            let right = host.authenticate(&name, &password);
            let user = right.then(|| engine.users.find_or_look(&name, |name| host.user(name))).flatten();
            if user.is_none() {
                engine.note_refusal(Refusal::of_login(&name));
                shared.counts(worker).failed_logins.fetch_add(1, Ordering::Relaxed);
            }
            Box::new(move |connection: &mut Connection, output: &mut Vec<u8>| match user {
                Some(user) => {
                    let client = Arc::clone(&connection.client);
                    connection.session.log_in(&client, user, epoch);
                    then(connection, output);
                }
                None => connection.session.reply(output).error(WRONG_PASSWORD),
            })
        });
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    fn hello(&mut self, connection: &mut Connection, args: &Args<'_>, output: &mut Vec<u8>) {
        let options = match HelloOptions::read(args) {
            Ok(options) => options,
            Err(text) => return connection.session.reply(output).error(&text),
        };
        let HelloOptions { resp3, name, wrong, .. } = options;
        let name: Option<Vec<u8>> = name.map(<[u8]>::to_vec);
        let engine = Arc::clone(&self.shared.engine);
        let answer = move |connection: &mut Connection, output: &mut Vec<u8>| {
            if let Some(name) = name {
                connection.client.names.lock().name = name;
            }
            if let Some(text) = wrong {
                return connection.session.reply(output).error(&text);
            }
            if connection.session.user.is_none() {
                return connection.session.reply(output).error(HELLO_NEEDS_AUTH);
            }
            if let Some(resp3) = resp3 {
                connection.session.resp3 = resp3;
            }
            greet(&engine, connection, output);
        };
        match options.login {
            Some((user, password)) => self.log_in(connection, user, password, answer),
            None => answer(connection, output),
        }
    }
}

/// What is to become of a command that a client has sent.
pub enum Judged {
    /// It is run, or queued.
    Go,
    /// It waits: the host holds it up.
    Wait,
    /// It is answered this error.
    Refuse(Vec<u8>),
}

/// The database that SELECT chooses.
///
/// # Errors
/// What is wrong with it.
pub fn selected(engine: &Engine, user: Option<&User>, args: &Args<'_>) -> Result<u32, Vec<u8>> {
    let number = args.integer(1).and_then(|db| i32::try_from(db).map_err(|_| Error::OutOfIntRange));
    let known = |db: i32| u32::try_from(db).ok().filter(|&db| db < engine.config.databases);
    let db = number.and_then(|db| known(db).ok_or(Error::DbOutOfRange));
    let db = db.map_err(|error| error.text("select", args))?;
    if user.is_some_and(|user| !user.may_use(db)) {
        Err(Denied::Database.text("select", &Args::new(&[])))
    } else {
        Ok(db)
    }
}

/// The name and password that AUTH or HELLO brings, if it does.
pub fn login_of<'a>(engine: &Engine, which: PortAction, args: &Args<'a>) -> Option<(&'a [u8], &'a [u8])> {
    match (which, args.len()) {
        (PortAction::Auth, 2) if !engine.users.default_is_open() => Some((DEFAULT_USER, args.get(1))),
        (PortAction::Auth, 3) => Some((args.get(1), args.get(2))),
        (PortAction::Hello, _) => HelloOptions::read(args).ok()?.login,
        _ => None,
    }
}

/// Redis's words while a script takes too long.
pub const BUSY: &[u8] =
    b"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

const WRONG_PASSWORD: &[u8] = b"WRONGPASS invalid username-password pair or user is disabled.";

const HELLO_NEEDS_AUTH: &[u8] =
    b"NOAUTH HELLO must be called with the client already authenticated, otherwise \
    the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
    version at the same time";

/// What HELLO is asked.
#[derive(Default)]
struct HelloOptions<'a> {
    resp3: Option<bool>,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
    /// What is wrong with an option; those before it count.
    wrong: Option<Vec<u8>>,
}

impl<'a> HelloOptions<'a> {
    /// # Errors
    /// What is wrong with the version: then nothing counts.
    fn read(args: &Args<'a>) -> Result<Self, Vec<u8>> {
        let mut options = HelloOptions::default();
        if args.len() > 1 {
            options.resp3 = Some(match parse_integer(args.get(1)) {
                Some(2) => false,
                Some(3) => true,
                Some(_) => return Err(b"NOPROTO unsupported protocol version".to_vec()),
                None => return Err(b"ERR Protocol version is not an integer or out of range".to_vec()),
            });
        }
        let mut at = 2;
        while at < args.len() && options.wrong.is_none() {
            let left = args.len() - at - 1;
            if args.is(at, "auth") && left >= 2 {
                options.login = Some((args.get(at + 1), args.get(at + 2)));
                at += 3;
            } else if args.is(at, "setname") && left >= 1 {
                let name = args.get(at + 1);
                if is_valid_name(name) {
                    options.name = Some(name);
                } else {
                    options.wrong = Some(INVALID_NAME.to_vec());
                }
                at += 2;
            } else {
                options.wrong = Some(error_about("ERR Syntax error in HELLO option '", args.get(at), "'"));
            }
        }
        Ok(options)
    }
}

/// Redis's words on a connection's name that would break CLIENT LIST.
pub const INVALID_NAME: &[u8] = b"ERR Client names cannot contain spaces, newlines or special characters.";

/// Whether CLIENT LIST could show that as one word.
pub fn is_valid_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn greet(engine: &Engine, connection: &Connection, output: &mut Vec<u8>) {
    let mut reply = connection.session.reply(output);
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(engine.host_version().as_bytes());
    reply.bulk(b"proto");
    reply.integer(if connection.session.resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(connection.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(if engine.gates().has(Gates::REPLICA) { b"replica" } else { b"master" });
    reply.bulk(b"modules");
    let modules = engine.modules();
    if modules.is_empty() { reply.array(0) } else { modules.play(&mut reply) }
}

impl Session {
    /// Where its replies are said.
    #[inline]
    pub fn reply<'o>(&self, output: &'o mut Vec<u8>) -> RespReply<'o> {
        RespReply::new(output, self.resp3).up_to(self.most_output)
    }
}
