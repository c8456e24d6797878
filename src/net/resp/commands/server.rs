//! Commands about the server, and errors for commands that the ports do not have.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::command::{
    Action, Args, Error, FoundCommand, HostCommand, PREFIX, PortCommand, Reply, elsewhere,
    error_about, find, find_call, unknown_command,
};
use crate::engine::{Author, Call, Host, Locked};
use crate::net::flow::State;
use crate::net::main_task::ask_main;
use crate::net::resp::caller::RespCaller;
use crate::net::resp::session::{BUSY, NO_AUTH, RespSession};
use crate::net::transport::Output;
use crate::store::Now;

/// `DEBUG POPULATE count prefix size`.
pub(super) const POPULATE_ARGUMENTS_MAX: usize = 5;

pub(super) fn time(caller: &mut RespCaller<'_>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut reply = caller.reply();
    reply.array(2);
    reply.bulk(since.as_secs().to_string().as_bytes());
    reply.bulk(since.subsec_micros().to_string().as_bytes());
}

/// ACL WHOAMI.
pub(super) fn who_am_i(caller: &mut RespCaller<'_>) {
    let name = caller.session.access.user.as_ref().map_or(&b""[..], |user| &user.name);
    caller.session.reply(caller.output).bulk(name);
}

/// MODULE LIST.
pub(super) fn modules(caller: &mut RespCaller<'_>) {
    let modules = caller.engine().context().outside.modules();
    let mut reply = caller.reply();
    if modules.is_empty() { reply.array(0) } else { modules.play(&mut reply) }
}

/// Answers with the host's reply to this command.
pub(super) fn ask_host(caller: &mut RespCaller<'_>, command: &'static CStr, args: &Args<'_>) {
    let args: Vec<Vec<u8>> = args.from(1).iter().map(|arg| arg.to_vec()).collect();
    ask_main(caller, move |locked, _, host| {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let transcript = host.map(|host| host.reply_to(locked, command, &args));
        Box::new(move |session, output| {
            let mut reply = session.reply(output);
            match transcript {
                Some(transcript) => transcript.play(&mut reply),
                None => reply.error(BUSY),
            }
        })
    });
}

pub(super) fn config_get(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let patterns: Vec<Vec<u8>> = args.from(2).iter().map(|pattern| pattern.to_vec()).collect();
    ask_main(caller, move |locked, _, host| {
        let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
        let found = host.map(|host| settings_of_the_port(locked, host, &patterns));
        Box::new(move |session, output| {
            let mut reply = session.reply(output);
            let Some(found) = found else { return reply.error(BUSY) };
            reply.map(found.len());
            for (name, value) in found {
                reply.bulk(&name);
                reply.bulk(&value);
            }
        })
    });
}

/// The number of POPULATE, if DEBUG with these arguments runs it.
pub fn populate_of(args: &Args<'_>) -> Option<usize> {
    if args.is(1, "populate") { find(b"populate") } else { None }
}

/// DEBUG POPULATE, which runs POPULATE; only the host has the other subcommands.
pub(super) fn debug(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let Some(command) = populate_of(args) else {
        return caller.reply().error(&elsewhere(&full_name(args), HostCommand::OfServer));
    };
    if args.len() < 3 || args.len() > POPULATE_ARGUMENTS_MAX {
        let before = "ERR unknown subcommand or wrong number of arguments for '";
        let text = error_about(before, args.get(1), "'. Try DEBUG HELP.");
        return caller.reply().error(&text);
    }
    let mut call = Call {
        command,
        args: Args::new(args.from(1)),
        db: caller.session.access.db,
        now: Now::lazy(caller.engine().config().clock),
        limits: caller.limits,
        prefix: "",
        author: Author::Nobody,
    };
    caller.engine().run(caller.slot(), &mut call, caller);
}

/// Answers a command that the ports do not have: either that the host has it, or Redis's error for
/// an unknown command.
pub fn not_here(caller: &mut RespCaller<'_>, args: &Args<'_>, is_subcommand: bool) {
    // Lines of HTTP: a browser was made to send them, and no later line may run either.
    if args.is(0, "post") || args.is(0, "host:") {
        return caller.session.flow.state = State::Closing;
    }
    let unknown = match is_subcommand {
        true => Error::UnknownSubcommand.text(&String::from_utf8_lossy(args.get(0)), args),
        false => unknown_command(args),
    };
    let name = full_name(args);
    let known = caller.worker.shared.host_commands.get().map(|known| known.get(&name).copied());
    let about = name.clone();
    let answer = move |there: Option<HostCommand>, session: &RespSession, output: &mut Output| {
        let mut reply = session.reply(output);
        match there {
            Some(_) if session.access.user.is_none() => reply.error(NO_AUTH),
            Some(of_host) => reply.error(&elsewhere(&about, of_host)),
            None => reply.error(&unknown),
        }
    };
    if let Some(there) = known {
        return answer(there, caller.session, caller.output);
    }
    let shared = Arc::clone(&caller.worker.shared);
    ask_main(caller, move |locked, _, host| {
        let commands = host.map(|host| host.commands(locked));
        Box::new(move |session, output| {
            let Some(commands) = commands else {
                return session.reply(output).error(BUSY);
            };
            let known = shared.host_commands.get_or_init(|| commands.into_iter().collect());
            answer(known.get(&name).copied(), session, output);
        })
    });
}

/// The host's settings of which the port has its own, named `midi.` and this.
const OWN_SETTINGS: [&str; 10] = [
    "maxmemory",
    "maxmemory-policy",
    "port",
    "bind",
    "unixsocket",
    "unixsocketperm",
    "protected-mode",
    "maxclients",
    "timeout",
    "tcp-keepalive",
];

/// The result of CONFIG GET, with the port's values for settings about connections.
fn settings_of_the_port(
    locked: Locked<'_>,
    host: &dyn Host,
    patterns: &[&[u8]],
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = host.config_get(locked, patterns);
    let own =
        |(name, _): &&mut (Vec<u8>, Vec<u8>)| OWN_SETTINGS.iter().any(|own| name == own.as_bytes());
    for (name, value) in found.iter_mut().filter(own) {
        let own = host.config_get(locked, &[&[PREFIX.as_bytes(), name].concat()]);
        // Values that mean the host's.
        let own = own.into_iter().next().filter(|(_, own)| match &name[..] {
            b"bind" => !own.is_empty(),
            b"maxmemory" => own != b"0",
            b"maxmemory-policy" => own != b"host",
            _ => true,
        });
        if let Some((_, own)) = own {
            *value = own;
        }
    }
    found
}

/// The command's name in lower case, with its subcommand if it can have one.
fn full_name(args: &Args<'_>) -> Vec<u8> {
    let name = args.get(0).to_ascii_lowercase();
    let has_subcommands = match find_call(args) {
        Some(FoundCommand::Command(named)) => {
            matches!(named.row().action, Action::Port(PortCommand::Debug))
        }
        Some(FoundCommand::NoSuchSubcommand) => true,
        None => false,
    };
    if has_subcommands {
        [&name[..], b"|", &args.get(1).to_ascii_lowercase()].concat()
    } else {
        name
    }
}
