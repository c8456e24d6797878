//! Who a connection is and how it is spoken to; and the commands about that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::connection::{Connection, State};
use super::driver::Driver;
use super::resp::RespReply;
use super::run::Service;
use super::shared::{Client, count};
use crate::command::{Action, Args, Error, Limits, PORT_COMMANDS, PortAction, Reply, find, parse_integer};
use crate::shard::{Call, DEFAULT_USER, Denied, Engine, Gate, Outcome, Refusal, RefusalReason, Taking, User};
use crate::store::Now;

/// What a connection is, apart from its bytes.
pub struct Session {
    /// The database.
    pub db: u32,
    /// RESP3 is spoken.
    pub resp3: bool,
    /// Who it is; nobody yet where `None`.
    pub user: Option<Arc<User>>,
    /// The epoch of the list of users when that was looked up.
    epoch: u64,
    /// Commands run here and now, and are answered: no transaction, no SAFEMODE.
    plain: bool,
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
const PREFIX: &str = "midi.";

impl Named {
    /// The command of that name, in any case, with or without `midi.` in front.
    #[inline]
    pub fn find(name: &[u8]) -> Option<Named> {
        if let Some((prefix, rest)) = name.split_at_checked(PREFIX.len())
            && prefix.eq_ignore_ascii_case(PREFIX.as_bytes())
        {
            return find(rest).map(|number| Named::Table { number, prefix: PREFIX });
        }
        find(name).map(|number| Named::Table { number, prefix: "" })
    }
}

impl Session {
    /// Of a new connection.
    pub fn new(engine: &Engine, client: &Client) -> Self {
        let users = &engine.users;
        let epoch = users.epoch();
        let user = if users.default_is_open() { users.find(DEFAULT_USER) } else { None };
        if user.is_some() {
            client.names.lock().user = DEFAULT_USER.to_vec();
        }
        Session { db: 0, resp3: false, user, epoch, plain: !engine.config.safemode }
    }

    /// Whether its commands may run together with others.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether it may call that command of the table, as far as is known without asking anybody.
    #[inline]
    pub fn may(&self, engine: &Engine, number: usize, args: &Args<'_>) -> bool {
        self.epoch == engine.users.epoch()
            && self.user.as_ref().is_some_and(|user| user.check(number, args, self.db).is_ok())
    }
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
        if engine.users.are_stale() {
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
        self.epoch = epoch;
    }
}

/// Valkey's words; Redis has no such rules.
const NO_DATABASE: &[u8] = b"NOPERM No permissions to access database";

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
        if let Some(number) = port_command(args) {
            return self.run_port_command(connection, number, args, output);
        }
        let Some(Named::Table { number, prefix }) = Named::find(args.get(0)) else {
            return unknown(connection, args, output);
        };
        let now = Now::lazy(self.engine().config.clock);
        let call =
            Call { command: number, args: *args, db: connection.session.db, now, limits: *limits, prefix };
        if let Err(error) = call.row().check_arity(args) {
            return call.refuse(error, &mut connection.session.reply(output));
        }
        if !self.is_allowed(connection, &call, output) {
            return;
        }
        match self.engine().port_gate(call.row().flags) {
            Gate::Go => {}
            Gate::Wait => return connection.state = State::Deferred,
            Gate::Refuse(error) => return call.refuse(error, &mut connection.session.reply(output)),
        }
        if self.engine().config.safemode || matches!(call.row().action, Action::Door(_)) {
            return self.on_main(connection, &call);
        }
        let mut reply = connection.session.reply(output);
        match self.engine().attempt(self.seat(), &call, Taking::WORKER, &mut reply) {
            Outcome::Done => self.engine().book_many_at_once(self.seat(), 1),
            outcome => self.hand_over(connection, &call, outcome, output),
        }
    }

    /// Whether the user may do that; says so where not.
    fn is_allowed(&self, connection: &Connection, call: &Call<'_>, output: &mut Vec<u8>) -> bool {
        let mut reply = connection.session.reply(output);
        let Some(user) = &connection.session.user else {
            reply.error(NO_AUTH);
            return false;
        };
        let Err(denied) = user.check(call.command, &call.args, call.db) else { return true };
        let name = format!("midi.{}", call.row().name);
        let (text, object, reason) = match denied {
            Denied::Command => (no_permission(&name), name.as_bytes(), RefusalReason::Command),
            Denied::Key(at) => {
                (Error::NoPermission.text(&name, &call.args), call.args.get(at), RefusalReason::Key)
            }
            Denied::Database => (NO_DATABASE.to_vec(), name.as_bytes(), RefusalReason::Command),
        };
        reply.error(&text);
        self.note_refusal(Refusal { user: user.name.clone(), object: object.into(), reason });
        false
    }

    /// Has the host note a refusal.
    pub(super) fn note_refusal(&self, refusal: Refusal) {
        count(&self.shared.counts(self.worker).denied, 1);
        self.engine().send_errand(Box::new(move |_, host| {
            if let Some(host) = host {
                host.refused(&refusal);
            }
        }));
    }

    fn run_port_command(
        &mut self,
        connection: &mut Connection,
        number: usize,
        args: &Args<'_>,
        output: &mut Vec<u8>,
    ) {
        let row = &PORT_COMMANDS[number];
        let given = args.len() as i32;
        if given != row.arity && (row.arity >= 0 || given < -row.arity) {
            return connection.session.reply(output).error(&Error::Arity.text(row.name, args));
        }
        if !row.open {
            match &connection.session.user {
                None => return connection.session.reply(output).error(NO_AUTH),
                Some(user) if !user.may_call(number) => {
                    connection.session.reply(output).error(&no_permission(row.name));
                    let object = row.name.as_bytes().into();
                    let refusal = Refusal { user: user.name.clone(), object, reason: RefusalReason::Command };
                    return self.note_refusal(refusal);
                }
                Some(_) => {}
            }
        }
        match self.engine().own_gate(row.which == PortAction::Ping) {
            Gate::Go => {}
            Gate::Wait => return connection.state = State::Deferred,
            Gate::Refuse(error) => {
                return connection.session.reply(output).error(&error.text(row.name, args));
            }
        }
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
            PortAction::Time => self.time(connection, output),
        }
    }

    fn select(&self, connection: &mut Connection, args: &Args<'_>, output: &mut Vec<u8>) {
        let databases = i64::from(self.engine().config.databases);
        match parse_integer(args.get(1)) {
            Some(db) if (0..databases).contains(&db) => {
                let user = connection.session.user.as_ref();
                if user.is_some_and(|user| !user.may_use(db as u32)) {
                    return connection.session.reply(output).error(NO_DATABASE);
                }
                connection.session.db = db as u32;
                connection.client.db.store(db as u32, Ordering::Relaxed);
                connection.session.reply(output).ok();
            }
            Some(_) => connection.session.reply(output).error(b"ERR DB index is out of range"),
            None => connection.session.reply(output).error(b"ERR invalid DB index"),
        }
    }

    fn time(&self, connection: &Connection, output: &mut Vec<u8>) {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mut reply = connection.session.reply(output);
        reply.array(2);
        reply.bulk(since.as_secs().to_string().as_bytes());
        reply.bulk(since.subsec_micros().to_string().as_bytes());
    }

    /// `AUTH [user] password`.
    fn auth(&mut self, connection: &mut Connection, args: &Args<'_>, output: &mut Vec<u8>) {
        let (name, password) = match args.len() {
            2 if self.engine().users.default_is_open() => {
                return connection.session.reply(output).error(
                    b"ERR AUTH <password> called without any password configured for the default user. \
                      Are you sure your configuration is correct?",
                );
            }
            2 => (DEFAULT_USER, args.get(1)),
            3 => (args.get(1), args.get(2)),
            _ => return connection.session.reply(output).error(&Error::Syntax.text("auth", args)),
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
        let (name, password): (Box<[u8]>, Box<[u8]>) = (name.into(), password.into());
        let (shared, worker) = (Arc::clone(&self.shared), self.worker);
        self.ask_main(connection, move |engine, host| {
            let Some(host) = host else {
                return Box::new(|connection, output| connection.session.reply(output).error(BUSY));
            };
            let epoch = engine.users.epoch();
            let right = host.authenticate(&name, &password);
            let user = right.then(|| engine.users.find_or_look(&name, |name| host.user(name))).flatten();
            if user.is_none() {
                host.refused(&Refusal { user: name, object: (*b"AUTH").into(), reason: RefusalReason::Auth });
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
        let (resp3, login, name) = match hello_options(args) {
            Ok(options) => options,
            Err(text) => return connection.session.reply(output).error(&text),
        };
        let name: Option<Vec<u8>> = name.map(<[u8]>::to_vec);
        let engine = Arc::clone(&self.shared.engine);
        let answer = move |connection: &mut Connection, output: &mut Vec<u8>| {
            if let Some(name) = name {
                connection.client.names.lock().name = name;
            }
            if let Some(resp3) = resp3 {
                connection.session.resp3 = resp3;
            }
            greet(&engine, connection, output);
        };
        match login {
            Some((user, password)) => self.log_in(connection, user, password, answer),
            None if connection.session.user.is_none() => connection.session.reply(output).error(
                b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
                  <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                  version at the same time",
            ),
            None => answer(connection, output),
        }
    }
}

/// Redis's words while a script takes too long.
pub const BUSY: &[u8] =
    b"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

const WRONG_PASSWORD: &[u8] = b"WRONGPASS invalid username-password pair or user is disabled.";

/// The wanted protocol (RESP3 or not), name and password, and the connection's name.
type HelloOptions<'a> = (Option<bool>, Option<(&'a [u8], &'a [u8])>, Option<&'a [u8]>);

fn hello_options<'a>(args: &Args<'a>) -> Result<HelloOptions<'a>, Vec<u8>> {
    let version = match args.len() {
        1 => None,
        _ => Some(match parse_integer(args.get(1)) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err(b"NOPROTO unsupported protocol version".to_vec()),
            None => return Err(b"ERR Protocol version is not an integer or out of range".to_vec()),
        }),
    };
    let (mut login, mut name, mut at) = (None, None, 2);
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.is(at, "auth") && left >= 2 {
            login = Some((args.get(at + 1), args.get(at + 2)));
            at += 3;
        } else if args.is(at, "setname") && left >= 1 {
            let wanted = args.get(at + 1);
            if !is_valid_name(wanted) {
                return Err(INVALID_NAME.to_vec());
            }
            name = Some(wanted);
            at += 2;
        } else {
            let option = [&b"ERR Syntax error in HELLO option '"[..], args.get(at), b"'"].concat();
            return Err(option);
        }
    }
    Ok((version, login, name))
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
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}

fn no_permission(name: &str) -> Vec<u8> {
    format!("NOPERM this user has no permissions to run the '{name}' command").into_bytes()
}

/// The port's own command of that name, with its subcommand where it has any.
fn port_command(args: &Args<'_>) -> Option<usize> {
    PORT_COMMANDS.iter().position(|row| match row.name.split_once('|') {
        None => args.is(0, row.name),
        Some((container, subcommand)) => args.is(0, container) && args.is(1, subcommand),
    })
}

fn unknown(connection: &Connection, args: &Args<'_>, output: &mut Vec<u8>) {
    let mut reply = connection.session.reply(output);
    if connection.session.user.is_none() {
        return reply.error(NO_AUTH);
    }
    let name = String::from_utf8_lossy(args.get(0)).replace(['\r', '\n'], " ");
    reply.error(
        format!("ERR unknown command '{name}' on midi's port; the host's port may have it").as_bytes(),
    );
}

impl Session {
    /// Where its replies are said.
    #[inline]
    pub fn reply<'o>(&self, output: &'o mut Vec<u8>) -> RespReply<'o> {
        RespReply::new(output, self.resp3)
    }
}
