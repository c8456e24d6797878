//! AUTH, HELLO and SELECT: a connection's user, protocol and database.

use std::sync::Arc;

use crate::command::{Args, Error, PortCommand, Reply, error_about, parse_integer};
use crate::engine::{DEFAULT_USER, Engine, Gates};
use crate::net::login::{Login, ask_for_login};
use crate::net::resp::caller::RespCaller;
use crate::net::resp::session::{BUSY, INVALID_NAME, RespSession, is_valid_name};
use crate::net::transport::Output;

/// `SELECT index`.
pub(super) fn select(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let chosen = selected(caller.engine(), args).map(|db| caller.session.select(db));
    caller.say(chosen);
}

/// `AUTH [user] password`.
pub(super) fn auth(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    if args.len() == 2 && caller.engine().users.default_is_open() {
        return caller.reply().error(
            b"ERR AUTH <password> called without any password configured for the default user. \
              Are you sure your configuration is correct?",
        );
    }
    let Some((name, password)) = login_of(caller.engine(), PortCommand::Auth, args) else {
        return caller.reply().error(&Error::Syntax.text("auth", args));
    };
    log_in(caller, name, password, |session, output| session.reply(output).ok());
}

/// Has the host check a name and password; calls `then` if they are right.
fn log_in(
    caller: &mut RespCaller<'_>,
    name: &[u8],
    password: &[u8],
    then: impl FnOnce(&mut RespSession, &mut Output) + Send + 'static,
) {
    ask_for_login(caller, name, password, |login, session, output| match login {
        Login::Done => then(session, output),
        Login::Wrong => session.reply(output).error(WRONG_PASSWORD),
        Login::Busy => session.reply(output).error(BUSY),
    });
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
pub(super) fn hello(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let options = match HelloOptions::read(args) {
        Ok(options) => options,
        Err(text) => return caller.reply().error(&text),
    };
    let HelloOptions { resp3, name, .. } = options;
    let name: Option<Vec<u8>> = name.map(<[u8]>::to_vec);
    let engine = Arc::clone(&caller.worker.shared.engine);
    let answer = move |session: &mut RespSession, output: &mut Output| {
        if session.access.user.is_none() {
            return session.reply(output).error(HELLO_NEEDS_AUTH);
        }
        if let Some(name) = name {
            session.flow.client.names.lock().name = name;
        }
        if let Some(resp3) = resp3 {
            session.resp3 = resp3;
        }
        greet(&engine, session, output);
    };
    match options.login {
        Some((user, password)) => log_in(caller, user, password, answer),
        None => answer(caller.session, caller.output),
    }
}

/// The database that SELECT chooses.
///
/// # Errors
/// Redis's text about a wrong number.
pub(super) fn selected(engine: &Engine, args: &Args<'_>) -> Result<u32, Vec<u8>> {
    let number = args.integer(1).and_then(|db| i32::try_from(db).map_err(|_| Error::OutOfIntRange));
    let known = |db: i32| u32::try_from(db).ok().filter(|&db| db < engine.config().databases);
    let db = number.and_then(|db| known(db).ok_or(Error::DbOutOfRange));
    db.map_err(|error| error.text("select", args))
}

/// The name and password of an AUTH or HELLO, if it has any.
pub(super) fn login_of<'a>(
    engine: &Engine,
    which: PortCommand,
    args: &Args<'a>,
) -> Option<(&'a [u8], &'a [u8])> {
    match (which, args.len()) {
        (PortCommand::Auth, 2) if !engine.users.default_is_open() => {
            Some((DEFAULT_USER, args.get(1)))
        }
        (PortCommand::Auth, 3) => Some((args.get(1), args.get(2))),
        (PortCommand::Hello, _) => HelloOptions::read(args).ok()?.login,
        _ => None,
    }
}

const WRONG_PASSWORD: &[u8] = b"WRONGPASS invalid username-password pair or user is disabled.";

const HELLO_NEEDS_AUTH: &[u8] =
    b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
      <user> <pass> option can be used to authenticate the client and select the RESP protocol \
      version at the same time";

/// HELLO's options.
#[derive(Default)]
struct HelloOptions<'a> {
    resp3: Option<bool>,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> HelloOptions<'a> {
    /// # Errors
    /// Redis's text about a wrong version or option; as in newer hosts, no option applies then.
    fn read(args: &Args<'a>) -> Result<Self, Vec<u8>> {
        let mut options = HelloOptions::default();
        if args.len() > 1 {
            options.resp3 = Some(match parse_integer(args.get(1)) {
                Some(2) => false,
                Some(3) => true,
                Some(_) => return Err(b"NOPROTO unsupported protocol version".to_vec()),
                None => {
                    return Err(b"ERR Protocol version is not an integer or out of range".to_vec());
                }
            });
        }
        let mut at = 2;
        while at < args.len() {
            let left = args.len() - at - 1;
            if args.is(at, "auth") && left >= 2 {
                options.login = Some((args.get(at + 1), args.get(at + 2)));
                at += 3;
            } else if args.is(at, "setname") && left >= 1 {
                let name = args.get(at + 1);
                if !is_valid_name(name) {
                    return Err(INVALID_NAME.to_vec());
                }
                options.name = Some(name);
                at += 2;
            } else {
                return Err(error_about("ERR Syntax error in HELLO option '", args.get(at), "'"));
            }
        }
        Ok(options)
    }
}

fn greet(engine: &Engine, session: &RespSession, output: &mut Output) {
    let mut reply = session.reply(output);
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(engine.context().outside.host_version().as_bytes());
    reply.bulk(b"proto");
    reply.integer(if session.resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(session.flow.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(if engine.gates().has(Gates::READ_ONLY) { b"replica" } else { b"master" });
    reply.bulk(b"modules");
    let modules = engine.context().outside.modules();
    if modules.is_empty() { reply.array(0) } else { modules.play(&mut reply) }
}
