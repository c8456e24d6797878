//! The rows of the command table: everything that the code must know about a command.

use std::borrow::Cow;
use std::ops::Range;

use arrayvec::ArrayVec;

use super::glob::KeySet;
use super::record::Record;
use super::{
    Access, Action, Args, Docs, DoorCommand, Error, FieldParts, InMulti, Keys, Limits, PortCommand,
};
use crate::limits::{KEYS_AT_ONCE, LINES_OF_HASH, LINES_OF_STRING};

/// A row of the command table.
pub struct Command {
    /// The standard name, in lower case; `client|list` for a subcommand, as the host's ACL spells
    /// it.
    pub name: &'static str,
    /// Number of arguments, name and subcommand included; negative for "at least".
    pub arity: i32,
    /// Which doors have it, and under which names.
    pub doors: Doors,
    /// Its properties that the host and the ports must know before they run it.
    pub flags: Flags,
    /// Which arguments are keys, and what happens to them.
    pub keys: Keys,
    /// The databases that it touches besides the client's.
    pub other_dbs: OtherDbs,
    /// Arguments up to this one, as in a key spec, are channels that belong to slots as keys do.
    pub slots_by_channels: Option<i32>,
    /// Its way over keys that no argument names.
    pub walk: Option<&'static Walk>,
    /// ACL categories, as the host spells them, without `@`.
    pub categories: &'static str,
    /// Native commands whose rights apply to this one too: the first of them that the host has
    /// counts; `container|sub` is a subcommand. Empty if that is the command of the same name.
    pub twins: &'static [&'static str],
    /// Its subcommands if they are not rows: one function handles all of them.
    pub subcommands: Option<&'static Subcommands>,
    /// How the log has it, once it has changed something.
    pub logged_as: LoggedAs,
    /// When it is long work.
    pub long: Long,
    /// What happens to it between MULTI and EXEC.
    pub in_multi: InMulti,
    /// Its group in Redis's documentation.
    pub group: &'static str,
    /// Redis's tips for clients of clusters and proxies: how to split it, what its reply is like.
    pub tips: &'static [&'static str],
    /// The documentation, for COMMAND DOCS and the pages under docs/commands.
    pub docs: Docs,
    /// What it does.
    pub action: Action,
    /// It replies with the string at its key, or null, and does nothing else. So whoever holds the
    /// shards of several such commands may read the entries itself.
    pub reads_value: bool,
    /// It replies with an array of the strings at its keys, null for none, and does nothing else.
    pub reads_values: bool,
    /// Eviction takes it for a use of its keys. A look at what is known of a key is none.
    pub uses: bool,
    /// If so, from a client with CLIENT NO-TOUCH, too.
    pub always_uses: bool,
    /// Which of its look-ups INFO counts as hits and misses.
    pub looks_up: LooksUp,
    /// With three arguments it sets its key to the last one and replies OK.
    pub sets_value: bool,
    /// How long it takes follows from its arguments behind the key, not from the key's value.
    pub long_by_arguments: bool,
    /// Redis flags it `fast`, but its time grows with its key's value.
    pub slow_by_value: bool,
    /// How many cache lines of an entry are asked for before its key is compared.
    pub lines: usize,
}

impl Command {
    /// The defaults. A row lists only what differs from them. Every row must have a name, an arity,
    /// categories, docs and an action; `table.rs` checks that at compile time.
    pub(super) const USUAL: Command = Command {
        name: "",
        arity: 0,
        doors: Doors::Both,
        flags: Flags::NONE,
        keys: Keys::None,
        other_dbs: OtherDbs::None,
        slots_by_channels: None,
        walk: None,
        categories: "",
        twins: &[],
        subcommands: None,
        logged_as: LoggedAs::Keys,
        long: Long::Never,
        in_multi: InMulti::Queued,
        group: "generic",
        tips: &[],
        docs: Docs { summary: "", complexity: "", args: &[] },
        action: Action::Port(PortCommand::Container),
        reads_value: false,
        reads_values: false,
        uses: true,
        always_uses: false,
        looks_up: LooksUp::IfReadOnly,
        sets_value: false,
        long_by_arguments: false,
        slow_by_value: false,
        lines: LINES_OF_STRING,
    };

    /// The defaults of a command on keys whatever their values.
    pub(super) const fn on_keys(flags: Flags) -> Command {
        let reads = ["keyspace read slow", "keyspace read fast"];
        Command::on("generic", reads, ["keyspace write slow", "keyspace write fast"], flags)
    }

    /// The defaults of a command on strings.
    pub(super) const fn on_strings(flags: Flags) -> Command {
        let reads = ["read string slow", "read string fast"];
        Command::on("string", reads, ["write string slow", "write string fast"], flags)
    }

    /// The defaults of a command on the bits of strings.
    pub(super) const fn on_bitmaps(flags: Flags) -> Command {
        let reads = ["read bitmap slow", "read bitmap fast"];
        Command::on("bitmap", reads, ["write bitmap slow", "write bitmap fast"], flags)
    }

    /// The defaults of a command on hashes.
    pub(super) const fn on_hashes(flags: Flags) -> Command {
        let reads = ["read hash slow", "read hash fast"];
        let row = Command::on("hash", reads, ["write hash slow", "write hash fast"], flags);
        Command { lines: LINES_OF_HASH, ..row }
    }

    /// A command that only the ports have; its group and its ACL categories are the caller's.
    pub(super) const fn of_ports(
        name: &'static str,
        arity: i32,
        flags: Flags,
        which: PortCommand,
        docs: Docs,
    ) -> Command {
        let (doors, action) = (Doors::Port, Action::Port(which));
        Command { name, arity, doors, flags, docs, action, ..Command::USUAL }
    }

    /// The defaults of a group: a command's ACL categories follow from its flags.
    const fn on(
        group: &'static str,
        reads: [&'static str; 2],
        writes: [&'static str; 2],
        flags: Flags,
    ) -> Command {
        let of_flags = if flags.write { writes } else { reads };
        Command { categories: of_flags[flags.fast as usize], flags, group, ..Command::USUAL }
    }
}

/// Which of a command's look-ups count as hits and misses: those that Redis does to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LooksUp {
    /// All, if it only reads.
    IfReadOnly,
    /// None.
    Nothing,
    /// That of its first key.
    First,
    /// That of its first key, with the word GET.
    FirstWithGet,
    /// That of its first key, without the words SET and INCRBY.
    FirstWithoutWrite,
    /// All but that of the first key, which it writes.
    BehindFirst,
}

/// How the log has a command.
#[derive(Clone, Copy)]
pub enum LoggedAs {
    /// By what became of its keys.
    Keys,
    /// As itself, with this record of its arguments in the client's database.
    Itself(RecordOfCommand),
    /// As itself, if that is shorter than the value that it has given its first key: a small
    /// command must not make a large log.
    Shorter(RecordOfCommand),
    /// By what became of its key; or as RESTORE, if the payload at this argument is shorter than
    /// the value in it.
    Packed(usize),
}

/// Makes the record of a command.
pub type RecordOfCommand = for<'a> fn(&Args<'a>, u32) -> Record<'a>;

/// Which doors have a command. At the host door it is `midi.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doors {
    /// The host door, and the ports with `midi.` and without.
    Both,
    /// The host door, and the ports with `midi.` only: there the name alone means another command.
    OnlyPrefixed,
    /// The ports only, without `midi.`: the host has its own command.
    Port,
    /// The host door only, and there only in the host's AOF and replication stream.
    Host,
    /// The memcached port only, which calls it by its number.
    Memcached,
}

/// The properties of a command that are checked before it runs.
#[derive(Clone, Copy)]
pub struct Flags {
    /// Changes midi's data: refused on read-only replicas, and whenever midi refuses writes.
    pub write: bool,
    /// Reads midi's data.
    pub readonly: bool,
    /// May need more memory: refused above `maxmemory`.
    pub deny_oom: bool,
    /// Constant or logarithmic time.
    pub fast: bool,
    /// Changes the host's own keyspace: the host must treat it as a write.
    pub host_write: bool,
    /// For administrators.
    pub admin: bool,
    /// Not for scripts.
    pub noscript: bool,
    /// Runs while the host loads.
    pub loading: bool,
    /// Runs while the host is a replica that has lost its master.
    pub stale: bool,
    /// Is not recorded in the slow log.
    pub skip_slowlog: bool,
    /// Any client may call it, whatever its user's rules are, and before it has logged in.
    pub no_auth: bool,
    /// Runs while a script takes too long.
    pub allow_busy: bool,
    /// Runs a script, which may write, or sends a message to replicas, too: waits as a write does
    /// while clients are paused.
    pub script: bool,
    /// Is about channels.
    pub pubsub: bool,
}

impl Flags {
    /// No flag is set.
    pub const NONE: Flags = Flags {
        write: false,
        readonly: false,
        deny_oom: false,
        fast: false,
        host_write: false,
        admin: false,
        noscript: false,
        loading: false,
        stale: false,
        skip_slowlog: false,
        no_auth: false,
        allow_busy: false,
        script: false,
        pubsub: false,
    };
}

/// The databases that a command touches besides the client's.
#[derive(Clone, Copy)]
pub enum OtherDbs {
    /// None.
    None,
    /// The databases that its arguments name, given the client's; none if it will refuse its
    /// arguments.
    Named(fn(&Args<'_>, u32) -> ArrayVec<u32, 2>),
    /// All.
    All,
}

/// A command's way over keys that it finds itself.
pub struct Walk {
    /// The keys that it may find.
    pub keys: for<'a> fn(&Args<'a>) -> KeySet<'a>,
    /// The argument that names them.
    pub argument: usize,
    /// Its steps at each of them.
    pub steps: fn(&Args<'_>) -> &'static [WalkStep],
    /// Its steps at each that is a hash, instead. A user who may not take them can begin the walk,
    /// which ends at the first hash.
    pub hash_steps: fn(&Args<'_>) -> &'static [WalkStep],
}

/// A step of a walk at a key: as much as the command whose rights it needs.
pub struct WalkStep {
    /// The command, as users' rules name it: the host's own without `midi.`.
    pub command: &'static str,
    /// What happens to the key.
    pub access: Access,
}

/// All keys.
pub(super) fn every_key<'a>(_: &Args<'a>) -> KeySet<'a> {
    KeySet::Beginning(Cow::Borrowed(b""))
}

/// When a command is long work, which runs in slices as a job.
#[derive(Clone, Copy)]
pub enum Long {
    /// Never.
    Never,
    /// Always.
    Always,
    /// If this function of its arguments returns true.
    If(fn(&Args<'_>, &Limits) -> bool),
    /// If its function returns [`Error::LongWork`]: then this work runs instead.
    Found(LongKeys),
    /// If its function returns [`Error::LongWork`], the command is not part of a transaction or
    /// script, and there is room for a job. Otherwise it runs in one go.
    FoundAlone(LongKeys),
}

/// Long work on certain keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongKeys {
    /// LCS.
    Lcs,
    /// MGET of large values.
    Mget,
    /// DUMP of a hash that has many fields.
    Dump,
    /// COPY of a hash that has many fields.
    Copy,
    /// These parts of all fields of a hash that has many.
    Fields(FieldParts),
}

impl Long {
    /// Whether a call is known to be long work before it runs.
    pub fn is_known(self, args: &Args<'_>, limits: &Limits) -> bool {
        match self {
            Long::Never | Long::Found(_) | Long::FoundAlone(_) => false,
            Long::Always => true,
            Long::If(is_long) => is_long(args, limits),
        }
    }

    /// Whether a call may be long work that cannot run in one go.
    pub fn may_be(self, args: &Args<'_>, limits: &Limits) -> bool {
        matches!(self, Long::Found(_)) || self.is_known(args, limits)
    }
}

/// Whether a command whose arguments are all keys has too many of them for one go.
pub(super) fn has_many_keys(args: &Args<'_>, _: &Limits) -> bool {
    args.len() > KEYS_AT_ONCE + 1
}

/// Whether the number of arguments matches the arity; a negative one means "at least".
pub(super) fn takes(arity: i32, args: &Args<'_>) -> bool {
    let count = args.len() as i32;
    if arity >= 0 { count == arity } else { count >= -arity }
}

/// The subcommands of a command that has one function for all of them.
pub struct Subcommands {
    /// Those that midi has, with their arity, which counts the command's name too.
    pub(super) own: &'static [(&'static str, i32)],
    /// Those about the whole server, which only the host has.
    pub(super) of_host: &'static [&'static str],
}

impl Subcommands {
    /// The name of the subcommand at argument 1, in lower case.
    ///
    /// # Errors
    /// The subcommand is unknown or the host's, or the number of arguments is wrong.
    pub(super) fn find(&self, args: &Args<'_>) -> Result<&'static str, Error> {
        match self.own.iter().find(|(name, _)| args.is(1, name)) {
            Some(&(name, arity)) if takes(arity, args) => Ok(name),
            Some(_) => Err(Error::SubcommandArity),
            None if self.of_host.iter().any(|name| args.is(1, name)) => Err(Error::HostsSubcommand),
            None => Err(Error::UnknownSubcommand),
        }
    }
}

impl Command {
    /// Refuses a wrong number of arguments.
    pub fn check_arity(&self, args: &Args<'_>) -> Result<(), Error> {
        if self.takes(args) { Ok(()) } else { Err(Error::Arity) }
    }

    /// Whether the number of arguments matches its arity.
    pub fn takes(&self, args: &Args<'_>) -> bool {
        takes(self.arity, args)
    }

    /// Refuses what Redis refuses to queue between MULTI and EXEC: a wrong number of arguments, and
    /// a wrong subcommand, because in Redis a subcommand is a command of its own. Other errors are
    /// reported when the command is executed.
    pub fn check_form(&self, args: &Args<'_>) -> Result<(), Error> {
        if !self.takes(args) {
            return Err(Error::Arity);
        }
        self.subcommands.map_or(Ok(()), |known| known.find(args).map(|_| ()))
    }

    /// Whether it touches no other database than the client's and those that `allowed` returns true
    /// for. That includes a command that will refuse its arguments.
    pub fn keeps_to(&self, allowed: impl Fn(u32) -> bool, args: &Args<'_>, own: u32) -> bool {
        match self.other_dbs {
            OtherDbs::None => true,
            OtherDbs::Named(of) => of(args, own).into_iter().all(allowed),
            OtherDbs::All => false,
        }
    }

    /// Whether it ever touches another database than the client's.
    pub const fn leaves_its_db(&self) -> bool {
        !matches!(self.other_dbs, OtherDbs::None)
    }

    /// Whether it reads or changes anything of the client's database.
    pub fn touches_db(&self) -> bool {
        match self.action {
            Action::Port(_) => self.keys != Keys::None,
            Action::Door(which) => matches!(which, DoorCommand::Import | DoorCommand::Export),
            _ => true,
        }
    }

    /// Whether it needs one shard only, if it has this many arguments.
    #[inline]
    pub fn is_on_one_shard(&self, arguments: usize) -> bool {
        match self.action {
            Action::OneKey(_) => true,
            Action::EachKey(_) => arguments == 2,
            _ => false,
        }
    }

    /// Whether it is a command of the ports: about a connection or the server, without data.
    #[inline]
    pub fn is_of_ports(&self) -> bool {
        matches!(self.action, Action::Port(_))
    }

    /// The names of a subcommand's container and of itself; `None` for other commands.
    pub fn split(&self) -> Option<(&'static str, &'static str)> {
        self.name.split_once('|')
    }

    /// The index of its first key, if it has any.
    #[inline]
    pub fn first_key(&self) -> usize {
        self.keys.first()
    }

    /// Whether the look-up of its first key counts as a hit or a miss.
    #[inline(always)]
    pub fn looks_up_first(&self, args: &Args<'_>) -> bool {
        match self.looks_up {
            LooksUp::IfReadOnly => self.flags.readonly && args.len() > self.first_key(),
            LooksUp::Nothing | LooksUp::BehindFirst => false,
            LooksUp::First => true,
            LooksUp::FirstWithGet => (3..args.len()).any(|at| args.is(at, "get")),
            LooksUp::FirstWithoutWrite => {
                !(2..args.len()).any(|at| args.is(at, "set") || args.is(at, "incrby"))
            }
        }
    }

    /// Which of its keys, by their order among so many, have look-ups that count.
    pub fn looked_up(&self, args: &Args<'_>, keys: usize) -> Range<usize> {
        match self.looks_up {
            LooksUp::IfReadOnly if self.flags.readonly => 0..keys,
            LooksUp::BehindFirst => keys.min(1)..keys,
            _ => 0..usize::from(self.looks_up_first(args)),
        }
    }

    /// The indexes of the arguments that are keys.
    pub fn key_positions(
        &self,
        args: &Args<'_>,
    ) -> impl ExactSizeIterator<Item = usize> + Clone + use<> {
        self.keys.positions(args)
    }

    /// The arguments that are keys.
    pub fn key_arguments<'a>(
        &self,
        args: &Args<'a>,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let args = *args;
        self.key_positions(&args).map(move |at| args.get(at))
    }
}
