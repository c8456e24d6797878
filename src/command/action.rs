//! How commands are carried out: the action of a row.

use super::{Error, ManyKeys, OneKey, ReadKey, Reply};

/// A command's function. One that only reads gets its keys by shared reference, so it cannot change
/// them.
#[derive(Clone, Copy)]
pub enum Run<R, E> {
    /// Reads.
    Read(R),
    /// Reads and changes.
    Edit(E),
}

impl<R, E> Run<R, E> {
    /// Whether it is unable to change anything.
    pub fn only_reads(self) -> bool {
        matches!(self, Run::Read(_))
    }
}

type ReadOne = fn(&ReadKey<'_>, &mut dyn Reply) -> Result<(), Error>;
type EditOne = fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>;
type ReadEach = fn(&ReadKey<'_>) -> bool;
type EditEach = fn(&mut OneKey<'_>) -> bool;
type ReadMany = fn(&ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>;
type EditMany = fn(&mut ManyKeys<'_>, &mut dyn Reply) -> Result<(), Error>;

impl Run<ReadOne, EditOne> {
    /// Runs the function.
    ///
    /// # Errors
    /// The reason why nothing was done.
    #[inline(always)]
    pub fn run(self, cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
        match self {
            Run::Read(read) => read(&cx.as_read(), reply),
            Run::Edit(edit) => edit(cx, reply),
        }
    }
}

impl Run<ReadEach, EditEach> {
    /// Runs it on one of the keys.
    pub fn run(self, cx: &mut OneKey<'_>) -> bool {
        match self {
            Run::Read(read) => read(&cx.as_read()),
            Run::Edit(edit) => edit(cx),
        }
    }
}

impl Run<ReadMany, EditMany> {
    /// Runs the function.
    ///
    /// # Errors
    /// The reason why nothing was done.
    pub fn run(self, cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
        match self {
            Run::Read(read) => read(cx, reply),
            Run::Edit(edit) => edit(cx, reply),
        }
    }
}

/// What [`Action::EachKey`] does to each key.
pub type OnEachKey = Run<ReadEach, EditEach>;
/// What [`Action::ManyKeys`] does.
pub type OnManyKeys = Run<ReadMany, EditMany>;

/// How a command is carried out.
#[derive(Clone, Copy)]
pub enum Action {
    /// On the shard of its one key.
    OneKey(Run<ReadOne, EditOne>),
    /// On the shard of each of its keys; the reply is the number of keys for which it returned
    /// true. Not atomic over many keys.
    EachKey(Run<ReadEach, EditEach>),
    /// On the shards of all its keys, held together.
    ManyKeys(Run<ReadMany, EditMany>),
    /// Over all keys, by the engine.
    AllKeys(OnAllKeys),
    /// By the door, because it needs what only the door has.
    Door(DoorCommand),
    /// By a port: it is about a connection or the server, and touches no data.
    Port(PortCommand),
}

impl Action {
    /// Whether it only reads one key, if it is on one.
    #[inline(always)]
    pub fn reads_key(self) -> bool {
        matches!(self, Action::OneKey(Run::Read(_)) | Action::EachKey(Run::Read(_)))
    }

    /// Runs it on one key, which it only reads.
    ///
    /// # Errors
    /// The reason why nothing was done, not even written to the reply.
    #[inline(always)]
    pub fn read(self, cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
        match self {
            Action::OneKey(Run::Read(read)) => read(cx, reply),
            Action::EachKey(Run::Read(read)) => {
                reply.integer(read(cx).into());
                Ok(())
            }
            _ => Err(Error::Internal),
        }
    }
}

/// Commands over all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAllKeys {
    /// All keys that match a pattern.
    Keys,
    /// Some keys and a cursor.
    Scan,
    /// One key, drawn at random.
    RandomKey,
    /// How many keys.
    DbSize,
    /// How many keys of a slot.
    CountKeysInSlot,
    /// A digest of all keys and values.
    KeyspaceDigest,
    /// Empties the client's database.
    FlushDb,
    /// Empties all databases.
    FlushAll,
    /// Exchanges two databases.
    SwapDb,
    /// Creates keys for tests.
    Populate,
}

/// Commands that need the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorCommand {
    /// Copies the host's keys into midi.
    Import,
    /// Copies midi's keys to the host.
    Export,
    /// Lists and cancels long commands.
    Jobs,
    /// The slow log.
    SlowLog,
    /// The sections of INFO about midi.
    Info,
    /// A line of help for each command.
    Help,
    /// Writes from the host's AOF or from a master.
    Journal,
    /// The error for a command that scripts on a port do not have.
    Unsupported,
    /// The login of midi's own connection.
    Listen,
}

/// Commands about a connection or the server. The host has its own, so only the ports have these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCommand {
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
    /// A container of subcommands, which does nothing by itself.
    Container,
    /// A subcommand of CLIENT.
    Client(ClientCommand),
    /// `COMMAND` or one of its subcommands.
    Describe(Describe),
    /// `INFO [section ...]`.
    Info,
    /// `CONFIG GET pattern ...`.
    ConfigGet,
    /// `CONFIG RESETSTAT`.
    ConfigResetStat,
    /// `LATENCY HISTOGRAM [command ...]`.
    LatencyHistogram,
    /// Another subcommand of LATENCY, which the host answers.
    Latency,
    /// `LATENCY HELP`.
    LatencyHelp,
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
    /// `WAIT numreplicas timeout`.
    Wait,
    /// `WAITAOF numlocal numreplicas timeout`.
    WaitAof,
    /// A command about scripts or functions, which the host runs.
    Scripting(Scripting),
    /// SUBSCRIBE and the like.
    Subscribe(SubscriptionKind),
    /// UNSUBSCRIBE and the like.
    Unsubscribe(SubscriptionKind),
    /// A subcommand of PUBSUB.
    PubSub(PubSubQuestion),
}

/// What a client subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionKind {
    /// A channel: SUBSCRIBE.
    Channel,
    /// All channels that match a pattern: PSUBSCRIBE.
    Pattern,
    /// A shard channel: SSUBSCRIBE.
    Shard,
}

/// PUBSUB's subcommands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PubSubQuestion {
    /// `PUBSUB CHANNELS [pattern]`.
    Channels,
    /// `PUBSUB NUMPAT`.
    NumPat,
    /// `PUBSUB NUMSUB [channel ...]`.
    NumSub,
    /// `PUBSUB SHARDCHANNELS [pattern]`.
    ShardChannels,
    /// `PUBSUB SHARDNUMSUB [channel ...]`.
    ShardNumSub,
}

/// Commands about scripts and functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripting {
    /// Runs a script or a function: EVAL and the like.
    Run,
    /// Changes or tells what scripts and functions there are.
    Manage,
    /// Ends or describes the one that runs, so it is there while one takes too long.
    Interrupt,
    /// Sends a message: PUBLISH and SPUBLISH. The host does that as it runs a script: on its main
    /// thread, between commands, not while clients are paused.
    Publish,
}

/// What happens to a command between MULTI and EXEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InMulti {
    /// It is queued.
    Queued,
    /// It runs at once, and ends the transaction.
    Ends,
    /// It runs at once and replies with an error.
    Refused,
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
    /// `CLIENT IMPORT-SOURCE ON|OFF`, which only Valkey has.
    ImportSource,
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
