//! Commands that concern a connection or the server and no value. Every Redis has
//! them, so on the host they are the host's own; a port has these.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::spec::tips;
use super::table::{NAME_BYTES, packed};
use super::{Access, Arg, ArgKind, Args, Docs, Keys, arg, word};

/// A command of a port that is not in [`super::COMMANDS`].
pub struct PortCommand {
    /// The name, in lower case; `client|list` for a subcommand, as the host's ACL spells it.
    pub name: &'static str,
    /// Number of arguments, name and subcommand included; negative for "at least".
    pub arity: i32,
    /// Any client may call it, whatever its user's rules say, and before it has a user.
    pub open: bool,
    /// What COMMAND says about it, in Redis's words.
    pub flags: &'static str,
    /// ACL categories, without `@`.
    pub categories: &'static str,
    /// Tips of COMMAND, in Redis's words.
    pub tips: &'static [&'static str],
    /// What Redis's documentation files it under.
    pub group: &'static str,
    /// Which arguments are keys.
    pub keys: Keys,
    /// For COMMAND DOCS.
    pub docs: Docs,
    /// Which one it is.
    pub which: PortAction,
}

/// What a port's own command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAction {
    /// `PING [message]`.
    Ping,
    /// `ECHO message`.
    Echo,
    /// `SELECT db`.
    Select,
    /// `QUIT`.
    Quit,
    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    Hello,
    /// `AUTH [user] password`.
    Auth,
    /// `RESET`.
    Reset,
    /// `TIME`.
    Time,
    /// `MULTI`.
    Multi,
    /// `EXEC`.
    Exec,
    /// `DISCARD`.
    Discard,
    /// `WATCH key [key ...]`.
    Watch,
    /// `UNWATCH`.
    Unwatch,
    /// Nothing by itself: it has subcommands.
    Container,
    /// One of CLIENT's.
    Client(ClientCommand),
    /// `COMMAND` or one of its subcommands.
    Describe(Describe),
    /// `INFO [section ...]`.
    Info,
    /// `CONFIG GET pattern ...`.
    ConfigGet,
    /// `DEBUG POPULATE count [prefix] [size]`.
    Debug,
    /// `ACL WHOAMI`.
    WhoAmI,
    /// `MODULE LIST`.
    ModuleList,
    /// `LASTSAVE`.
    LastSave,
    /// `ROLE`.
    Role,
}

/// CLIENT's subcommands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCommand {
    /// `CLIENT ID`.
    Id,
    /// `CLIENT GETNAME`.
    GetName,
    /// `CLIENT SETNAME name`.
    SetName,
    /// `CLIENT SETINFO LIB-NAME|LIB-VER text`.
    SetInfo,
    /// `CLIENT INFO`.
    Info,
    /// `CLIENT LIST [TYPE type | ID id ...]`.
    List,
    /// `CLIENT KILL address`, or filters.
    Kill,
    /// `CLIENT NO-EVICT ON|OFF`.
    NoEvict,
    /// `CLIENT NO-TOUCH ON|OFF`.
    NoTouch,
    /// `CLIENT REPLY ON|OFF|SKIP`.
    Reply,
    /// `CLIENT TRACKINGINFO`.
    TrackingInfo,
    /// `CLIENT GETREDIR`.
    GetRedir,
    /// `CLIENT HELP`.
    Help,
}

/// COMMAND and its subcommands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Describe {
    /// `COMMAND`.
    All,
    /// `COMMAND COUNT`.
    Count,
    /// `COMMAND INFO [command ...]`.
    Info,
    /// `COMMAND DOCS [command ...]`.
    Docs,
    /// `COMMAND LIST [FILTERBY ...]`.
    List,
    /// `COMMAND GETKEYS command ...`.
    GetKeys,
    /// `COMMAND GETKEYSANDFLAGS command ...`.
    GetKeysAndFlags,
    /// `COMMAND HELP`.
    Help,
}

/// Flags of a command that any client may call.
const OPEN: &str = "noscript loading stale fast no_auth allow_busy";
const FAST: &str = "loading stale fast";
const PLAIN: &str = "loading stale";
const NOSCRIPT: &str = "noscript loading stale";
const ADMIN: &str = "admin noscript loading stale";

const fn docs(summary: &'static str) -> Docs {
    Docs { summary, complexity: "O(1)", args: &[] }
}

const fn connection(
    name: &'static str,
    arity: i32,
    flags: &'static str,
    which: PortAction,
    docs: Docs,
) -> PortCommand {
    let categories = "slow connection";
    PortCommand {
        name,
        arity,
        open: false,
        flags,
        categories,
        tips: &[],
        group: "connection",
        keys: Keys::None,
        docs,
        which,
    }
}

const fn server(
    name: &'static str,
    arity: i32,
    flags: &'static str,
    categories: &'static str,
    which: PortAction,
    docs: Docs,
) -> PortCommand {
    PortCommand { categories, group: "server", ..connection(name, arity, flags, which, docs) }
}

const fn transaction(name: &'static str, arity: i32, which: PortAction, docs: Docs) -> PortCommand {
    let (flags, categories) = ("noscript loading stale fast allow_busy", "fast transaction");
    PortCommand { flags, categories, group: "transactions", ..connection(name, arity, flags, which, docs) }
}

const fn client(
    name: &'static str,
    arity: i32,
    flags: &'static str,
    which: ClientCommand,
    docs: Docs,
) -> PortCommand {
    connection(name, arity, flags, PortAction::Client(which), docs)
}

const fn describe(name: &'static str, arity: i32, which: Describe, docs: Docs) -> PortCommand {
    server(name, arity, PLAIN, "slow connection", PortAction::Describe(which), docs)
}

impl PortCommand {
    const fn open(mut self) -> Self {
        self.open = true;
        self
    }

    const fn categories(mut self, categories: &'static str) -> Self {
        self.categories = categories;
        self
    }

    const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    /// Whether it runs where the host is a replica that lacks its master, or loads.
    pub fn runs_when_stale(&self) -> bool {
        self.flags.split(' ').any(|flag| flag == "stale")
    }

    /// The container of a subcommand, and its own name there.
    pub fn split(&self) -> Option<(&'static str, &'static str)> {
        self.name.split_once('|')
    }
}

impl Docs {
    const fn takes(mut self, args: &'static [Arg]) -> Self {
        self.args = args;
        self
    }

    const fn costs(mut self, complexity: &'static str) -> Self {
        self.complexity = complexity;
        self
    }
}

const LOGIN: &[Arg] = &[arg("username", ArgKind::String), arg("password", ArgKind::String)];
const SWITCH: &[Arg] = &[arg("enabled", ArgKind::OneOf(&[word("on", "ON"), word("off", "OFF")]))];
const PER_CLIENT: &str = "O(N), N being the number of connections";
const PER_COMMAND: &str = "O(N), N being the number of commands";

const CLIENT_TYPE: Arg = arg(
    "client-type",
    ArgKind::OneOf(&[
        word("normal", "NORMAL"),
        word("master", "MASTER"),
        word("replica", "REPLICA"),
        word("pubsub", "PUBSUB"),
    ]),
)
.token("TYPE");

const KILL_FILTERS: &[Arg] = &[
    arg("client-id", ArgKind::Integer).token("ID"),
    CLIENT_TYPE,
    arg("username", ArgKind::String).token("USER"),
    arg("address", ArgKind::String).token("ADDR"),
    arg("local-address", ArgKind::String).token("LADDR"),
    arg("skipme", ArgKind::OneOf(&[word("yes", "YES"), word("no", "NO")])).token("SKIPME"),
    arg("maxage", ArgKind::Integer).token("MAXAGE"),
];

const LIST_FILTER: &[Arg] = &[
    arg("module-name", ArgKind::String).token("MODULE"),
    arg("category", ArgKind::String).token("ACLCAT"),
    arg("pattern", ArgKind::Pattern).token("PATTERN"),
];

const NAMES: &[Arg] = &[arg("command-name", ArgKind::String).optional().multiple()];

const FULL_COMMAND: &[Arg] =
    &[arg("command", ArgKind::String), arg("arg", ArgKind::String).optional().multiple()];

/// Every command of the ports that is not in [`super::COMMANDS`]. A command's place
/// is its number, for users' rights. Subcommands follow their container.
pub static PORT_COMMANDS: [PortCommand; 45] = [
    connection(
        "ping",
        -1,
        "fast",
        PortAction::Ping,
        docs("Says PONG, or the message.").takes(&[arg("message", ArgKind::String).optional()]),
    )
    .categories("fast connection")
    .tips(&[tips::ALL_SHARDS, tips::ALL_SUCCEEDED]),
    connection(
        "echo",
        2,
        FAST,
        PortAction::Echo,
        docs("Says the message.").takes(&[arg("message", ArgKind::String)]),
    )
    .categories("fast connection"),
    connection(
        "select",
        2,
        FAST,
        PortAction::Select,
        docs("Chooses the connection's database.").takes(&[arg("index", ArgKind::Integer)]),
    )
    .categories("fast connection"),
    connection("quit", -1, OPEN, PortAction::Quit, docs("Closes the connection."))
        .categories("fast connection")
        .open(),
    connection(
        "hello",
        -1,
        OPEN,
        PortAction::Hello,
        docs("Chooses the protocol, and tells of the server.").takes(&[arg(
            "arguments",
            ArgKind::Block(&[
                arg("protover", ArgKind::Integer),
                arg("username_password", ArgKind::Block(LOGIN)).token("AUTH").optional(),
                arg("clientname", ArgKind::String).token("SETNAME").optional(),
            ]),
        )
        .optional()]),
    )
    .categories("fast connection")
    .open(),
    connection(
        "auth",
        -2,
        OPEN,
        PortAction::Auth,
        docs("Says who the client is.")
            .takes(&[arg("username", ArgKind::String).optional(), arg("password", ArgKind::String)]),
    )
    .categories("fast connection")
    .open(),
    connection("reset", 1, OPEN, PortAction::Reset, docs("Makes the connection as it was when it was new."))
        .categories("fast connection")
        .open(),
    connection("client", -2, "", PortAction::Container, docs("Commands about connections."))
        .categories("slow"),
    client("client|id", 2, NOSCRIPT, ClientCommand::Id, docs("Tells the connection's id.")),
    client("client|getname", 2, NOSCRIPT, ClientCommand::GetName, docs("Tells the connection's name.")),
    client(
        "client|setname",
        3,
        NOSCRIPT,
        ClientCommand::SetName,
        docs("Names the connection.").takes(&[arg("connection-name", ArgKind::String)]),
    ),
    client(
        "client|setinfo",
        4,
        NOSCRIPT,
        ClientCommand::SetInfo,
        docs("Notes which library the client uses.").takes(&[arg(
            "attr",
            ArgKind::OneOf(&[
                arg("libname", ArgKind::String).token("LIB-NAME"),
                arg("libver", ArgKind::String).token("LIB-VER"),
            ]),
        )]),
    ),
    client("client|info", 2, NOSCRIPT, ClientCommand::Info, docs("Describes the connection."))
        .tips(&[tips::ANY_OUTPUT]),
    client(
        "client|list",
        -2,
        ADMIN,
        ClientCommand::List,
        docs("Describes the connections of midi's ports.").costs(PER_CLIENT).takes(&[
            CLIENT_TYPE.optional(),
            arg("client-id", ArgKind::Integer).token("ID").optional().multiple(),
        ]),
    )
    .categories("admin slow dangerous connection")
    .tips(&[tips::ANY_OUTPUT]),
    client(
        "client|kill",
        -3,
        ADMIN,
        ClientCommand::Kill,
        docs("Closes connections of midi's ports.").costs(PER_CLIENT).takes(&[arg(
            "filter",
            ArgKind::OneOf(&[
                arg("old-format", ArgKind::String),
                arg("new-format", ArgKind::OneOf(KILL_FILTERS)).multiple(),
            ]),
        )]),
    )
    .categories("admin slow dangerous connection"),
    client(
        "client|no-evict",
        3,
        ADMIN,
        ClientCommand::NoEvict,
        docs("Accepted; midi closes no connection to free memory.").takes(SWITCH),
    )
    .categories("admin slow dangerous connection"),
    client(
        "client|no-touch",
        3,
        NOSCRIPT,
        ClientCommand::NoTouch,
        docs("Accepted; midi notes no access times.").takes(SWITCH),
    ),
    client(
        "client|reply",
        3,
        NOSCRIPT,
        ClientCommand::Reply,
        docs("Says whether the connection wants replies.").takes(&[arg(
            "on_off_skip",
            ArgKind::OneOf(&[word("on", "ON"), word("off", "OFF"), word("skip", "SKIP")]),
        )]),
    ),
    client(
        "client|trackinginfo",
        2,
        NOSCRIPT,
        ClientCommand::TrackingInfo,
        docs("Tells that the connection tracks nothing."),
    ),
    client(
        "client|getredir",
        2,
        NOSCRIPT,
        ClientCommand::GetRedir,
        docs("Tells that the connection tracks nothing for another one."),
    ),
    client("client|help", 2, PLAIN, ClientCommand::Help, docs("Lists CLIENT's subcommands.")),
    describe("command", -1, Describe::All, docs("Describes all commands of the port.").costs(PER_COMMAND))
        .tips(&[tips::ANY_ORDER]),
    describe("command|count", 2, Describe::Count, docs("Counts the commands of the port.")),
    describe(
        "command|info",
        -2,
        Describe::Info,
        docs("Describes commands, for programs.").costs(PER_COMMAND).takes(NAMES),
    )
    .tips(&[tips::ANY_ORDER]),
    describe(
        "command|docs",
        -2,
        Describe::Docs,
        docs("Describes commands, for people.").costs(PER_COMMAND).takes(NAMES),
    )
    .tips(&[tips::ANY_ORDER]),
    describe(
        "command|list",
        -2,
        Describe::List,
        docs("Lists the names of the port's commands.").costs(PER_COMMAND).takes(&[arg(
            "filterby",
            ArgKind::OneOf(LIST_FILTER),
        )
        .token("FILTERBY")
        .optional()]),
    )
    .tips(&[tips::ANY_ORDER]),
    describe(
        "command|getkeys",
        -4,
        Describe::GetKeys,
        docs("Tells the keys of a command.")
            .costs("O(N), N being the number of arguments")
            .takes(FULL_COMMAND),
    ),
    describe(
        "command|getkeysandflags",
        -4,
        Describe::GetKeysAndFlags,
        docs("Tells the keys of a command, and what it does to them.")
            .costs("O(N), N being the number of arguments")
            .takes(FULL_COMMAND),
    ),
    describe("command|help", 2, Describe::Help, docs("Lists COMMAND's subcommands.")),
    server(
        "info",
        -1,
        PLAIN,
        "slow dangerous",
        PortAction::Info,
        docs("Tells about the server and midi.")
            .takes(&[arg("section", ArgKind::String).optional().multiple()]),
    )
    .tips(&[tips::ANY_OUTPUT, tips::ALL_SHARDS, tips::SPECIAL_RESPONSE]),
    server("config", -2, "", "slow", PortAction::Container, docs("Commands about settings.")),
    server(
        "config|get",
        -3,
        ADMIN,
        "admin slow dangerous",
        PortAction::ConfigGet,
        docs("Tells settings of the server and of midi.")
            .costs("O(N), N being the number of settings")
            .takes(&[arg("parameter", ArgKind::String).multiple()]),
    ),
    server(
        "debug",
        -2,
        ADMIN,
        "admin slow dangerous",
        PortAction::Debug,
        docs("DEBUG POPULATE makes keys as POPULATE does; nothing else of DEBUG is here.")
            .costs("O(N), N being the number of keys"),
    ),
    server("acl", -2, "", "slow", PortAction::Container, docs("Commands about users.")),
    server("acl|whoami", 2, NOSCRIPT, "slow", PortAction::WhoAmI, docs("Tells who the client is.")),
    server("module", -2, "", "slow", PortAction::Container, docs("Commands about modules.")),
    server(
        "module|list",
        2,
        "admin noscript",
        "admin slow dangerous",
        PortAction::ModuleList,
        docs("Lists the server's modules.").costs("O(N), N being the number of modules"),
    )
    .tips(&[tips::ANY_ORDER]),
    server(
        "lastsave",
        1,
        FAST,
        "admin fast dangerous",
        PortAction::LastSave,
        docs("Tells when the server last saved its own keys."),
    )
    .tips(&[tips::ANY_OUTPUT]),
    server(
        "role",
        1,
        "noscript loading stale fast",
        "admin fast dangerous",
        PortAction::Role,
        docs("Tells whether the server is a master or a replica."),
    ),
    server("time", 1, FAST, "fast", PortAction::Time, docs("Tells the server's time."))
        .tips(&[tips::ANY_OUTPUT]),
    transaction("multi", 1, PortAction::Multi, docs("Begins a transaction: what follows is queued.")),
    PortCommand {
        flags: "noscript loading stale skip_slowlog",
        categories: "slow transaction",
        ..transaction(
            "exec",
            1,
            PortAction::Exec,
            docs("Runs the commands of the transaction as one.")
                .costs("O(N), N being the work of its commands"),
        )
    },
    transaction("discard", 1, PortAction::Discard, docs("Ends the transaction; its commands do not run.")),
    PortCommand {
        keys: Keys::All(Access::Look),
        ..transaction(
            "watch",
            -2,
            PortAction::Watch,
            docs("Lets the next transaction run only if none of these keys has changed by then.")
                .costs("O(1) for each key")
                .takes(&[arg("key", ArgKind::Key).multiple()]),
        )
    },
    transaction("unwatch", 1, PortAction::Unwatch, docs("Watches no key any more.")),
];

/// What a client means by a command's name and first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCall {
    /// The command of that number in [`PORT_COMMANDS`].
    Known(usize),
    /// A command with subcommands that has none of that name.
    NoSuchSubcommand,
}

/// The names of those that are no subcommands, packed, and how many subcommands each has: the
/// names of rows are looked at by the compiler alone.
static BY_NAME: [((u64, u64), usize); PORT_COMMANDS.len()] = {
    let mut names = [((0, 0), 0); PORT_COMMANDS.len()];
    let (mut number, mut container) = (0, 0);
    while number < names.len() {
        let name = PORT_COMMANDS[number].name.as_bytes();
        if is_subcommand(name) {
            names[container].1 += 1;
        } else {
            names[number].0 = packed(name);
            container = number;
        }
        number += 1;
    }
    names
};

const fn is_subcommand(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() && name[at] != b'|' {
        at += 1;
    }
    at < name.len()
}

/// Commands that are not to be found any more.
static WITHDRAWN: [AtomicBool; PORT_COMMANDS.len()] = [const { AtomicBool::new(false) }; PORT_COMMANDS.len()];

/// From now on [`find_port`] does not know the command of that number, nor its subcommands.
pub fn withdraw_port(number: usize) {
    WITHDRAWN[number].store(true, Ordering::Relaxed);
}

/// The port's own command that these arguments call, if any.
pub fn find_port(args: &Args<'_>) -> Option<PortCall> {
    let name = args.get(0);
    if name.is_empty() || name.len() > NAME_BYTES {
        return None;
    }
    let wanted = packed(name);
    let is_it = |(number, &(known, _)): (usize, &((u64, u64), usize))| {
        let found = known == wanted && PORT_COMMANDS[number].name.len() == name.len();
        (found && !WITHDRAWN[number].load(Ordering::Relaxed)).then_some(number)
    };
    let number = BY_NAME.iter().enumerate().find_map(is_it)?;
    if args.len() == 1 || BY_NAME[number].1 == 0 {
        return Some(PortCall::Known(number));
    }
    let found =
        subcommands(number).find(|&sub| PORT_COMMANDS[sub].split().is_some_and(|(_, own)| args.is(1, own)));
    Some(found.map_or(PortCall::NoSuchSubcommand, PortCall::Known))
}

/// The numbers of a command's subcommands.
pub fn subcommands(number: usize) -> Range<usize> {
    number + 1..number + 1 + BY_NAME[number].1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &[&str]) -> Option<PortCall> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        find_port(&Args::new(&words))
    }

    #[test]
    fn every_command_is_found_by_its_name() {
        for (number, row) in PORT_COMMANDS.iter().enumerate() {
            let words: Vec<&str> = row.name.split('|').collect();
            assert_eq!(found(&words), Some(PortCall::Known(number)), "{}", row.name);
            let upper: Vec<String> = words.iter().map(|word| word.to_uppercase()).collect();
            let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
            assert_eq!(found(&upper), Some(PortCall::Known(number)), "{}", row.name);
        }
        assert_eq!(found(&["client", "nosuch"]), Some(PortCall::NoSuchSubcommand));
        assert!(matches!(found(&["client"]), Some(PortCall::Known(_))));
        assert!(matches!(found(&["ping", "id"]), Some(PortCall::Known(_))));
        assert_eq!(found(&["get"]), None);
        assert_eq!(found(&["client|id"]), None);
        assert_eq!(found(&["\0"]), None);
        assert_eq!(found(&[""]), None);
        assert_eq!(found(&["clienu"]), None);
        assert_eq!(found(&["averyverylongname"]), None);
    }

    #[test]
    fn subcommands_follow_their_container() {
        for (number, row) in PORT_COMMANDS.iter().enumerate() {
            if let Some((container, _)) = row.split() {
                let of = PORT_COMMANDS.iter().position(|row| row.name == container).expect("the container");
                assert!(subcommands(of).contains(&number), "{}", row.name);
            }
            assert_eq!(row.open, row.flags.contains("no_auth"), "{}", row.name);
            assert!(row.docs.summary.ends_with('.'), "{}", row.name);
        }
    }
}
