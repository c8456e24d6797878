//! Commands about a connection, transactions and the commands themselves. The host has its own, so
//! only the ports have these.

use super::rename::database;
use super::spec::tips;
use super::{
    Access, Arg, ArgKind, ClientCommand, Command, Describe, Docs, Flags, InMulti, Keys, OtherDbs,
    PortCommand, arg, docs, word,
};

pub(super) const PLAIN: Flags = Flags { loading: true, stale: true, ..Flags::NONE };
pub(super) const FAST: Flags = Flags { fast: true, ..PLAIN };
pub(super) const NOSCRIPT: Flags = Flags { noscript: true, ..PLAIN };
pub(super) const ADMIN: Flags = Flags { admin: true, ..NOSCRIPT };
/// The flags of a command of a transaction.
const IN_TRANSACTION: Flags = Flags { fast: true, allow_busy: true, ..NOSCRIPT };
/// The flags of a command that any client may call.
const OPEN: Flags = Flags { no_auth: true, ..IN_TRANSACTION };

const fn connection(
    name: &'static str,
    arity: i32,
    flags: Flags,
    which: PortCommand,
    docs: Docs,
) -> Command {
    Command {
        categories: "slow connection",
        group: "connection",
        ..Command::of_ports(name, arity, flags, which, docs)
    }
}

pub(super) const fn server(
    name: &'static str,
    arity: i32,
    flags: Flags,
    categories: &'static str,
    which: PortCommand,
    docs: Docs,
) -> Command {
    Command { categories, group: "server", ..connection(name, arity, flags, which, docs) }
}

const fn transaction(name: &'static str, arity: i32, which: PortCommand, docs: Docs) -> Command {
    let row = connection(name, arity, IN_TRANSACTION, which, docs);
    Command { categories: "fast transaction", group: "transactions", ..row }
}

const fn client(
    name: &'static str,
    arity: i32,
    flags: Flags,
    which: ClientCommand,
    docs: Docs,
) -> Command {
    connection(name, arity, flags, PortCommand::Client(which), docs)
}

const fn describe(name: &'static str, arity: i32, which: Describe, docs: Docs) -> Command {
    server(name, arity, PLAIN, "slow connection", PortCommand::Describe(which), docs)
}

/// A command that waits for replicas, or for the AOF.
const fn waiting(name: &'static str, arity: i32, which: PortCommand, docs: Docs) -> Command {
    let flags = Flags { noscript: true, ..Flags::NONE };
    let row = connection(name, arity, flags, which, docs);
    Command { group: "generic", tips: &[tips::ALL_SHARDS, tips::LEAST], ..row }
}

/// A container of subcommands, whose rows follow it.
pub(super) const fn container(name: &'static str, docs: Docs) -> Command {
    server(name, -2, Flags::NONE, "slow", PortCommand::Container, docs)
}

impl Command {
    const fn categories(mut self, categories: &'static str) -> Self {
        self.categories = categories;
        self
    }

    pub(super) const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    const fn in_multi(mut self, in_multi: InMulti) -> Self {
        self.in_multi = in_multi;
        self
    }
}

const LOGIN: &[Arg] = &[arg("username", ArgKind::String), arg("password", ArgKind::String)];
const SWITCH: &[Arg] = &[arg("enabled", ArgKind::OneOf(&[word("on", "ON"), word("off", "OFF")]))];
const PER_CLIENT: &str = "O(N), N being the number of connections";
pub(super) const PER_COMMAND: &str = "O(N), N being the number of commands";

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

pub(super) const NAMES: &[Arg] = &[arg("command-name", ArgKind::String).optional().multiple()];

const FULL_COMMAND: &[Arg] =
    &[arg("command", ArgKind::String), arg("arg", ArgKind::String).optional().multiple()];

/// The rows. Subcommands follow their container.
pub(super) static ROWS: [Command; 37] = [
    connection(
        "ping",
        -1,
        Flags { fast: true, ..Flags::NONE },
        PortCommand::Ping,
        docs("Returns PONG, or the message.").takes(&[arg("message", ArgKind::String).optional()]),
    )
    .categories("fast connection")
    .tips(&[tips::ALL_SHARDS, tips::ALL_SUCCEEDED]),
    connection(
        "echo",
        2,
        FAST,
        PortCommand::Echo,
        docs("Returns the message.").takes(&[arg("message", ArgKind::String)]),
    )
    .categories("fast connection"),
    Command {
        other_dbs: OtherDbs::Named(|args, _| database(args, 1, u32::MAX).into_iter().collect()),
        ..connection(
            "select",
            2,
            FAST,
            PortCommand::Select,
            docs("Chooses the connection's database.").takes(&[arg("index", ArgKind::Integer)]),
        )
        .categories("fast connection")
    },
    connection("quit", -1, OPEN, PortCommand::Quit, docs("Closes the connection."))
        .categories("fast connection")
        .in_multi(InMulti::Ends),
    connection(
        "hello",
        -1,
        OPEN,
        PortCommand::Hello,
        docs("Chooses the protocol, and describes the server.").takes(&[arg(
            "arguments",
            ArgKind::Block(&[
                arg("protover", ArgKind::Integer),
                arg("username_password", ArgKind::Block(LOGIN)).token("AUTH").optional(),
                arg("clientname", ArgKind::String).token("SETNAME").optional(),
            ]),
        )
        .optional()]),
    )
    .categories("fast connection"),
    connection(
        "auth",
        -2,
        OPEN,
        PortCommand::Auth,
        docs("Logs the client in as a user.").takes(&[
            arg("username", ArgKind::String).optional(),
            arg("password", ArgKind::String),
        ]),
    )
    .categories("fast connection"),
    connection(
        "reset",
        1,
        OPEN,
        PortCommand::Reset,
        docs("Resets the connection to the state of a new one."),
    )
    .categories("fast connection")
    .in_multi(InMulti::Ends),
    Command { group: "connection", ..container("client", docs("Commands about connections.")) },
    client("client|id", 2, NOSCRIPT, ClientCommand::Id, docs("Returns the connection's id.")),
    client(
        "client|getname",
        2,
        NOSCRIPT,
        ClientCommand::GetName,
        docs("Returns the connection's name."),
    ),
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
        docs("Sets whether eviction hears of the keys that the connection uses.").takes(SWITCH),
    ),
    client(
        "client|import-source",
        3,
        NOSCRIPT,
        ClientCommand::ImportSource,
        docs("Marks the connection as one that imports keys, which sees expired ones.")
            .takes(SWITCH),
    ),
    client(
        "client|reply",
        3,
        NOSCRIPT,
        ClientCommand::Reply,
        docs("Sets whether the connection gets replies.").takes(&[arg(
            "on_off_skip",
            ArgKind::OneOf(&[word("on", "ON"), word("off", "OFF"), word("skip", "SKIP")]),
        )]),
    ),
    client(
        "client|trackinginfo",
        2,
        NOSCRIPT,
        ClientCommand::TrackingInfo,
        docs("Reports that tracking is off."),
    ),
    client(
        "client|getredir",
        2,
        NOSCRIPT,
        ClientCommand::GetRedir,
        docs("Reports that invalidations are not redirected."),
    ),
    client("client|help", 2, PLAIN, ClientCommand::Help, docs("Lists CLIENT's subcommands.")),
    describe(
        "command",
        -1,
        Describe::All,
        docs("Describes all commands of the port.").costs(PER_COMMAND),
    )
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
        docs("Returns the keys of a command.")
            .costs("O(N), N being the number of arguments")
            .takes(FULL_COMMAND),
    ),
    describe(
        "command|getkeysandflags",
        -4,
        Describe::GetKeysAndFlags,
        docs("Returns the keys of a command, and what it does to them.")
            .costs("O(N), N being the number of arguments")
            .takes(FULL_COMMAND),
    ),
    describe("command|help", 2, Describe::Help, docs("Lists COMMAND's subcommands.")),
    waiting(
        "wait",
        3,
        PortCommand::Wait,
        docs("Waits until replicas have what the connection wrote.")
            .takes(&[arg("numreplicas", ArgKind::Integer), arg("timeout", ArgKind::Integer)]),
    ),
    waiting(
        "waitaof",
        4,
        PortCommand::WaitAof,
        docs("Waits until what the connection wrote is synced in the server's AOF.").takes(&[
            arg("numlocal", ArgKind::Integer),
            arg("numreplicas", ArgKind::Integer),
            arg("timeout", ArgKind::Integer),
        ]),
    ),
    transaction(
        "multi",
        1,
        PortCommand::Multi,
        docs("Begins a transaction: the following commands are queued."),
    )
    .in_multi(InMulti::Refused),
    Command {
        in_multi: InMulti::Ends,
        flags: Flags { skip_slowlog: true, ..NOSCRIPT },
        categories: "slow transaction",
        ..transaction(
            "exec",
            1,
            PortCommand::Exec,
            docs("Runs the commands of the transaction as one.")
                .costs("O(N), N being the work of its commands"),
        )
    },
    transaction(
        "discard",
        1,
        PortCommand::Discard,
        docs("Ends the transaction without running its commands."),
    )
    .in_multi(InMulti::Ends),
    Command {
        in_multi: InMulti::Refused,
        keys: Keys::All(Access::Look),
        ..transaction(
            "watch",
            -2,
            PortCommand::Watch,
            docs("Makes the next transaction run only if none of these keys has changed.")
                .costs("O(1) for each key")
                .takes(&[arg("key", ArgKind::Key).multiple()]),
        )
    },
    transaction("unwatch", 1, PortCommand::Unwatch, docs("Forgets all watched keys.")),
];
