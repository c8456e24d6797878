//! CLIENT: listing, naming and killing clients, and settings of the own connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::help::help;
use crate::command::{Args, ClientCommand, Error, Named, Reply, error_about, parse_integer};
use crate::engine::Gates;
use crate::net::client::Client;
use crate::net::flow::State;
use crate::net::main_task::ask_main;
use crate::net::protocol::Protocol;
use crate::net::resp::caller::RespCaller;
use crate::net::resp::named;
use crate::net::resp::session::{BUSY, INVALID_NAME, Replies, is_valid_name};
use crate::net::shared::Shared;

/// Runs one of CLIENT's subcommands.
pub(super) fn client(caller: &mut RespCaller<'_>, which: ClientCommand, args: &Args<'_>) {
    let client = Arc::clone(&caller.session.flow.client);
    match which {
        ClientCommand::Id => caller.reply().integer(client.id as i64),
        ClientCommand::GetName => {
            let names = client.names.lock();
            let mut reply = caller.reply();
            if names.name.is_empty() { reply.null() } else { reply.bulk(&names.name) }
        }
        ClientCommand::SetName => {
            let name = args.get(2);
            if !is_valid_name(name) {
                return caller.reply().error(INVALID_NAME);
            }
            client.names.lock().name = name.to_vec();
            caller.reply().ok();
        }
        ClientCommand::SetInfo => caller.say(set_info(&client, args)),
        ClientCommand::Info | ClientCommand::List => {
            show(caller, args);
            match listed(caller, which, args) {
                Ok(text) => caller.reply().verbatim(&text),
                Err(text) => caller.reply().error(&text),
            }
            client.condition.arguments.store(0, Ordering::Relaxed);
        }
        ClientCommand::Kill => kill(caller, args),
        ClientCommand::NoEvict => {
            let on = on_or_off(args);
            if let Ok(on) = on {
                client.condition.no_evict.store(on, Ordering::Relaxed);
            }
            say(caller, args, on);
        }
        ClientCommand::NoTouch => {
            let result = on_or_off(args).map(|on| caller.session.set_no_touch(on));
            say(caller, args, result);
        }
        ClientCommand::ImportSource => {
            let result = import_source(caller, args);
            say(caller, args, result);
        }
        ClientCommand::Reply => reply_mode(caller, args),
        ClientCommand::TrackingInfo => {
            let mut reply = caller.reply();
            reply.map(3);
            reply.bulk(b"flags");
            reply.set(1);
            reply.bulk(b"off");
            reply.bulk(b"redirect");
            reply.integer(NOT_TRACKING);
            reply.bulk(b"prefixes");
            reply.array(0);
        }
        ClientCommand::GetRedir => caller.reply().integer(NOT_TRACKING),
        ClientCommand::Help => help(args, &mut caller.reply()),
    }
}

/// Publishes the condition of the client that asks, whose input is being run.
fn show(caller: &RespCaller<'_>, args: &Args<'_>) {
    caller.session.show_condition();
    let condition = &caller.session.flow.client.condition;
    condition.unread.store(0, Ordering::Relaxed);
    condition.unread_memory.store(0, Ordering::Relaxed);
    let bytes = args.from(0).iter().map(|arg| arg.len()).sum();
    condition.arguments.store(bytes, Ordering::Relaxed);
}

/// The text of CLIENT LIST or CLIENT INFO.
fn listed(
    caller: &RespCaller<'_>,
    which: ClientCommand,
    args: &Args<'_>,
) -> Result<Vec<u8>, Vec<u8>> {
    let shared = &caller.worker.shared;
    let clients = if matches!(which, ClientCommand::Info) {
        vec![Arc::clone(&caller.session.flow.client)]
    } else if args.len() == 4 && args.is(2, "type") {
        let kind = ClientKind::read(args.get(3))?;
        shared.clients().into_iter().filter(|client| kind.has(client)).collect()
    } else if args.len() > 3 && args.is(2, "id") {
        let id = |text: &&[u8]| parse_integer(text).ok_or(b"ERR Invalid client ID".to_vec());
        let ids = args.from(3).iter().map(id).collect::<Result<Vec<i64>, _>>()?;
        ids.into_iter().filter_map(|id| shared.find(u64::try_from(id).ok()?)).collect()
    } else if args.len() == 2 {
        shared.clients()
    } else {
        return Err(Error::Syntax.text("client", args));
    };
    let now = shared.clock(caller.turn.now);
    // The same id may be asked for very often.
    let most = caller.session.flow.most_output;
    let mut text = Vec::with_capacity((clients.len() * LINE_BYTES).min(most));
    for client in clients {
        put_line(shared, &client, now, &mut text);
        if text.len() > most {
            break;
        }
    }
    Ok(text)
}

fn kill(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let (shared, own) = (&caller.worker.shared, caller.session.flow.client.id);
    let filter = match Filter::read(args, own) {
        Ok(filter) => filter,
        Err(text) => return caller.reply().error(&text),
    };
    // The port knows the user of every connected client; for another name, the host is asked
    // whether the user exists.
    if let Some(user) = filter.user.filter(|user| caller.engine().users.find(user).is_none()) {
        let user = user.to_vec();
        return ask_main(caller, move |locked, _, host| {
            let there = host.map(|host| host.user(locked, &user).is_some());
            Box::new(move |session, output| match there {
                Some(true) => session.reply(output).integer(0),
                Some(false) => {
                    let text = error_about("ERR No such user '", &user, "'");
                    session.reply(output).error(&text);
                }
                None => session.reply(output).error(BUSY),
            })
        });
    }
    let now = shared.clock(caller.turn.now);
    let mut killed = 0;
    for client in shared.clients().iter().filter(|client| filter.matches(shared, client, now)) {
        if client.id == own {
            caller.session.flow.state = State::Closing;
            caller.session.flow.ends_after_exec = true;
            killed += 1;
        } else if shared.kill(client) {
            killed += 1;
        }
    }
    match (filter.old_form, killed) {
        (true, 0) => caller.reply().error(b"ERR No such client"),
        (true, _) => caller.reply().ok(),
        (false, killed) => caller.reply().integer(killed),
    }
}

/// CLIENT GETREDIR's reply for a client without tracking.
const NOT_TRACKING: i64 = -1;

fn say<T>(caller: &mut RespCaller<'_>, args: &Args<'_>, result: Result<T, Error>) {
    caller.say(result.map(|_| ()).map_err(|error| error.text("client", args)));
}

fn on_or_off(args: &Args<'_>) -> Result<bool, Error> {
    match (args.is(2, "on"), args.is(2, "off")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(Error::Syntax),
    }
}

/// CLIENT IMPORT-SOURCE. As on Valkey, a client can become none at any time.
fn import_source(caller: &mut RespCaller<'_>, args: &Args<'_>) -> Result<(), Error> {
    if !caller.engine().gates().has(Gates::IMPORTING) && !args.is(2, "off") {
        return Err(Error::NotImporting);
    }
    caller.session.set_import_source(on_or_off(args)?);
    Ok(())
}

fn reply_mode(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    if args.is(2, "on") {
        caller.session.set_replies(Replies::Wanted);
        caller.reply().ok();
    } else if args.is(2, "off") {
        caller.session.set_replies(Replies::Unwanted);
    } else if args.is(2, "skip") {
        if caller.session.wants_replies() {
            caller.session.set_replies(Replies::SkipNext);
        }
    } else {
        caller.reply().error(&Error::Syntax.text("client", args));
    }
}

fn set_info(client: &Client, args: &Args<'_>) -> Result<(), Vec<u8>> {
    let (attribute, text) = (args.get(2), args.get(3));
    let mut names = client.names.lock();
    let place = if args.is(2, "lib-name") {
        &mut names.library
    } else if args.is(2, "lib-ver") {
        &mut names.library_version
    } else {
        return Err(error_about("ERR Unrecognized option '", attribute, "'"));
    };
    if !is_valid_name(text) {
        let after = " cannot contain spaces, newlines or special characters.";
        return Err(error_about("ERR ", attribute, after));
    }
    *place = text.to_vec();
    Ok(())
}

/// A type of clients, as CLIENT LIST and CLIENT KILL name them.
#[derive(Clone, Copy, Default)]
enum ClientKind {
    /// Any.
    #[default]
    Any,
    /// Those that do not subscribe.
    Normal,
    /// Subscribers.
    PubSub,
    /// One that the ports do not have.
    Elsewhere,
}

impl ClientKind {
    fn read(kind: &[u8]) -> Result<Self, Vec<u8>> {
        let is = |word: &str| kind.eq_ignore_ascii_case(word.as_bytes());
        match () {
            () if is("normal") => Ok(ClientKind::Normal),
            () if is("pubsub") => Ok(ClientKind::PubSub),
            () if ["slave", "replica", "master"].into_iter().any(is) => Ok(ClientKind::Elsewhere),
            () => Err(error_about("ERR Unknown client type '", kind, "'")),
        }
    }

    fn has(self, client: &Client) -> bool {
        match self {
            ClientKind::Any => true,
            ClientKind::Normal => !is_subscriber(client),
            ClientKind::PubSub => is_subscriber(client),
            ClientKind::Elsewhere => false,
        }
    }
}

/// Whether the client subscribes to anything.
pub(super) fn is_subscriber(client: &Client) -> bool {
    client.condition.subscriptions.iter().any(|count| count.load(Ordering::Relaxed) > 0)
}

/// The clients that CLIENT KILL names.
#[derive(Default)]
struct Filter<'a> {
    old_form: bool,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    id: Option<u64>,
    kind: ClientKind,
    /// In seconds.
    min_age: u64,
    skip: Option<u64>,
}

impl<'a> Filter<'a> {
    /// Reads the filter from a command of the client `own`.
    fn read(args: &Args<'a>, own: u64) -> Result<Self, Vec<u8>> {
        if args.len() == 3 {
            return Ok(Filter { old_form: true, address: Some(args.get(2)), ..Filter::default() });
        }
        let mut filter = Filter { skip: Some(own), ..Filter::default() };
        for at in (2..args.len()).step_by(2) {
            if at + 1 == args.len() {
                return Err(Error::Syntax.text("client", args));
            }
            filter.read_option(args, at, own)?;
        }
        Ok(filter)
    }

    fn read_option(&mut self, args: &Args<'a>, at: usize, own: u64) -> Result<(), Vec<u8>> {
        let value = args.get(at + 1);
        if args.is(at, "id") {
            let id =
                parse_integer(value).and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0);
            self.id = Some(id.ok_or(b"ERR client-id should be greater than 0".to_vec())?);
        } else if args.is(at, "type") {
            self.kind = ClientKind::read(value)?;
        } else if args.is(at, "addr") {
            self.address = Some(value);
        } else if args.is(at, "laddr") {
            self.local_address = Some(value);
        } else if args.is(at, "user") {
            self.user = Some(value);
        } else if args.is(at, "maxage") {
            let age = parse_integer(value)
                .ok_or(b"ERR maxage is not an integer or out of range".to_vec())?;
            let age = u64::try_from(age).ok().filter(|&age| age > 0);
            self.min_age = age.ok_or(b"ERR maxage should be greater than 0".to_vec())?;
        } else if args.is(at, "skipme") && args.is(at + 1, "yes") {
            self.skip = Some(own);
        } else if args.is(at, "skipme") && args.is(at + 1, "no") {
            self.skip = None;
        } else {
            return Err(Error::Syntax.text("client", args));
        }
        Ok(())
    }

    fn matches(&self, shared: &Shared, client: &Client, now: u64) -> bool {
        let is_or_any =
            |wanted: Option<&[u8]>, text: &str| wanted.is_none_or(|it| it == text.as_bytes());
        self.kind.has(client)
            && self.skip != Some(client.id)
            && self.id.is_none_or(|id| id == client.id)
            && is_or_any(self.address, &client.address)
            && is_or_any(self.local_address, &client.local_address)
            && self.user.is_none_or(|user| client.names.lock().user == user)
            && seconds(now, shared.clock(client.since)) >= self.min_age
    }
}

/// Whole seconds between two times in milliseconds.
fn seconds(now: u64, since: u64) -> u64 {
    now.saturating_sub(since) / 1000
}

/// The size of most lines of CLIENT LIST.
const LINE_BYTES: usize = 384;

/// Adds a client's line of CLIENT LIST as Redis 7.0 writes it, with the two fields that 7.2 added.
fn put_line(shared: &Shared, client: &Client, now: u64, text: &mut Vec<u8>) {
    let condition = &client.condition;
    let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    let of = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    let (unread, unread_memory) = (of(&condition.unread), of(&condition.unread_memory));
    let (unsent, unsent_memory) = (of(&condition.unsent), of(&condition.unsent_memory));
    let (arguments, queued) = (of(&condition.arguments), of(&condition.queued_bytes));
    let memory = shared.connection_bytes
        + size_of::<Client>()
        + unread_memory
        + unsent_memory
        + arguments
        + queued;
    let names = client.names.lock();
    let mut line = Line(text);
    line.number("id=", client.id);
    line.text(" addr=", client.address.as_bytes());
    line.text(" laddr=", client.local_address.as_bytes());
    line.number(" fd=", client.descriptor);
    line.text(" name=", &names.name);
    line.number(" age=", seconds(now, shared.clock(client.since)));
    line.number(" idle=", seconds(now, client.last_seen.load(Ordering::Relaxed)));
    line.flags(client);
    line.number(" db=", client.db.load(Ordering::Relaxed));
    let [channels, patterns, shards] = &condition.subscriptions;
    line.number(" sub=", of(channels));
    line.number(" psub=", of(patterns));
    line.number(" ssub=", of(shards));
    line.number(" multi=", of(&condition.queued) as i64 - 1);
    line.number(" qbuf=", unread);
    line.number(" qbuf-free=", unread_memory.saturating_sub(unread));
    line.number(" argv-mem=", arguments);
    line.number(" multi-mem=", queued);
    line.number(" rbs=0 rbp=0 obl=", unsent);
    line.number(" oll=0 omem=", unsent_memory);
    line.number(" tot-mem=", memory);
    line.text(" events=", if unsent > 0 { b"rw" } else { b"r" });
    line.command(named::last(client));
    line.text(" user=", &names.user);
    line.number(" redir=-1 resp=", if is(&condition.resp3) { 3 } else { 2 });
    line.text(" lib-name=", &names.library);
    line.text(" lib-ver=", &names.library_version);
    text.push(b'\n');
}

/// A line being written. A client can ask for very many lines, so fields are written in place,
/// without a string for each.
struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    fn text(&mut self, field: &str, text: &[u8]) {
        self.0.extend_from_slice(field.as_bytes());
        self.0.extend_from_slice(text);
    }

    fn number(&mut self, field: &str, number: impl itoa::Integer) {
        self.text(field, itoa::Buffer::new().format(number).as_bytes());
    }

    fn command(&mut self, last: Option<Named>) {
        let (prefix, name) = last.map_or(("", "NULL"), |named| (named.prefix, named.row().name));
        self.text(" cmd=", prefix.as_bytes());
        self.0.extend_from_slice(name.as_bytes());
    }

    fn flags(&mut self, client: &Client) {
        let condition = &client.condition;
        let all = [
            (is_subscriber(client), b'P'),
            (condition.queued.load(Ordering::Relaxed) > 0, b'x'),
            (condition.waiting.load(Ordering::Relaxed), b'b'),
            (condition.closing.load(Ordering::Relaxed), b'c'),
            (client.remote.is_none(), b'U'),
            (condition.no_evict.load(Ordering::Relaxed), b'e'),
            (condition.no_touch.load(Ordering::Relaxed), b'T'),
            (condition.import_source.load(Ordering::Relaxed), b'I'),
        ];
        self.0.extend_from_slice(b" flags=");
        let before = self.0.len();
        self.0.extend(all.into_iter().filter(|(set, _)| *set).map(|(_, letter)| letter));
        if self.0.len() == before {
            self.0.push(b'N');
        }
    }
}
