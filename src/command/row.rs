//! The rows of the command table: whatever the code must know of a command besides its function.

use arrayvec::ArrayVec;

use super::{Action, Args, Docs, Error, Keys, Limits, PortCommand};
use crate::limits::KEYS_AT_ONCE;

/// A row of the command table.
pub struct Command {
    /// The standard name, in lower case; `client|list` for a subcommand, as the host's ACL spells
    /// it.
    pub name: &'static str,
    /// Number of arguments, name and subcommand included; negative for "at least".
    pub arity: i32,
    /// Who has it, and under which names.
    pub doors: Doors,
    /// What the host and the ports must know before running it.
    pub flags: Flags,
    /// Which arguments are keys, and what happens to them.
    pub keys: Keys,
    /// Databases besides the client's own that it touches.
    pub other_dbs: OtherDbs,
    /// ACL categories, as the host spells them, without `@`.
    pub categories: &'static str,
    /// Native commands whose rights count for this one, too: the first of them that the host has;
    /// `container|sub` is a subcommand. Empty where that is the command of the same name.
    pub twins: &'static [&'static str],
    /// Its subcommands where they are no rows: there is one function for all.
    pub subcommands: Option<&'static Subcommands>,
    /// When it is long work.
    pub long: Long,
    /// Whether it may be queued by MULTI.
    pub in_multi: InMulti,
    /// What Redis's documentation files it under.
    pub group: &'static str,
    /// What Redis tells clients of clusters, and proxies, about sharing it out and about its
    /// reply.
    pub tips: &'static [&'static str],
    /// For COMMAND DOCS and the pages under docs/commands.
    pub docs: Docs,
    /// What it does.
    pub action: Action,
}

impl Command {
    /// What most commands are: a row says where its own is otherwise. Name, arity, categories, docs
    /// and action every row must say; the compiler sees to that in `table.rs`.
    pub(super) const USUAL: Command = Command {
        name: "",
        arity: 0,
        doors: Doors::Both,
        flags: Flags::NONE,
        keys: Keys::None,
        other_dbs: OtherDbs::None,
        categories: "",
        twins: &[],
        subcommands: None,
        long: Long::Never,
        in_multi: InMulti::Queued,
        group: "generic",
        tips: &[],
        docs: Docs { summary: "", complexity: "", args: &[] },
        action: Action::Port(PortCommand::Container),
    };
}

/// Which doors have a command. The host's has it as `midi.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doors {
    /// The host's, and the ports with `midi.` and without.
    Both,
    /// The same, but on the ports the name alone means another command.
    OnlyPrefixed,
    /// The ports alone, without `midi.`: the host has its own.
    Port,
}

/// Properties that gates in front of a command look at.
#[derive(Clone, Copy)]
pub struct Flags {
    /// Changes midi's data: refused on read-only replicas and wherever midi's writes are.
    pub write: bool,
    /// Changes nothing.
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
    /// Runs where the host is a replica that lacks its master.
    pub stale: bool,
    /// Is not told to those who look for slow commands.
    pub skip_slowlog: bool,
    /// Any client may call it, whatever its user's rules say, and before it has a user.
    pub no_auth: bool,
    /// Runs while a script takes too long.
    pub allow_busy: bool,
}

impl Flags {
    /// None of them.
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
    };
}

/// Databases besides the client's own that a command touches.
#[derive(Clone, Copy)]
pub enum OtherDbs {
    /// None.
    None,
    /// Those that its arguments name, seen from the client's own; none where it will refuse them.
    Named(fn(&Args<'_>, u32) -> ArrayVec<u32, 2>),
    /// All.
    All,
}

/// When a command is long work, which is done in slices.
#[derive(Clone, Copy)]
pub enum Long {
    /// It is not.
    Never,
    /// Always.
    Always,
    /// Where its arguments say so.
    If(fn(&Args<'_>, &Limits) -> bool),
    /// Where its function says so, with [`Error::LongWork`]: then this is done instead.
    Found(LongKeys),
    /// The same, but only for a command that stands alone, and where there is room for a job: else
    /// it is done in one go.
    FoundAlone(LongKeys),
}

/// Long work on certain keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongKeys {
    /// LCS.
    Lcs,
    /// MGET of large values.
    Mget,
}

impl Long {
    /// Whether it is known, before anything is done, that a call is long work.
    pub fn is_known(self, args: &Args<'_>, limits: &Limits) -> bool {
        match self {
            Long::Never | Long::Found(_) | Long::FoundAlone(_) => false,
            Long::Always => true,
            Long::If(is_long) => is_long(args, limits),
        }
    }

    /// Whether a call may turn out to be long work that cannot be done in one go.
    pub fn may_be(self, args: &Args<'_>, limits: &Limits) -> bool {
        matches!(self, Long::Found(_)) || self.is_known(args, limits)
    }
}

/// Of a command whose arguments are all keys: whether they are too many to be done at once.
pub(super) fn has_many_keys(args: &Args<'_>, _: &Limits) -> bool {
    args.len() > KEYS_AT_ONCE + 1
}

/// What a command is between MULTI and EXEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InMulti {
    /// It is queued.
    Queued,
    /// It runs at once, and ends the transaction.
    Ends,
    /// It runs at once, and answers that it must not stand there.
    Refused,
}

/// Whether so many arguments are right where the arity is this: negative for "at least".
pub(super) fn takes(arity: i32, args: &Args<'_>) -> bool {
    let count = args.len() as i32;
    if arity >= 0 { count == arity } else { count >= -arity }
}

/// Subcommands of a command that has one function for all.
pub struct Subcommands {
    /// With their arity, counted as a command's.
    pub(super) own: &'static [(&'static str, i32)],
    /// Those that are about a whole server.
    pub(super) of_host: &'static [&'static str],
}

impl Subcommands {
    /// The one at argument 1.
    ///
    /// # Errors
    /// There is no such one, or not with so many arguments.
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

    /// Whether its row allows so many arguments.
    pub fn takes(&self, args: &Args<'_>) -> bool {
        takes(self.arity, args)
    }

    /// Refuses what Redis refuses to queue between MULTI and EXEC: an arity that is not the row's,
    /// or a subcommand, which is a command of its own there. The rest fails when it is
    /// executed.
    pub fn check_form(&self, args: &Args<'_>) -> Result<(), Error> {
        if !self.takes(args) {
            return Err(Error::Arity);
        }
        self.subcommands.map_or(Ok(()), |known| known.find(args).map(|_| ()))
    }

    /// Whether it keeps to these databases besides the client's own. One that will refuse its
    /// arguments does.
    pub fn keeps_to(&self, databases: &[u32], args: &Args<'_>, own: u32) -> bool {
        match self.other_dbs {
            OtherDbs::None => true,
            OtherDbs::Named(of) => of(args, own).iter().all(|db| databases.contains(db)),
            OtherDbs::All => false,
        }
    }

    /// Whether one shard is all it needs, with so many arguments.
    #[inline]
    pub fn is_on_one_shard(&self, arguments: usize) -> bool {
        match self.action {
            Action::OneKey(_) => true,
            Action::EachKey(_) => arguments == 2,
            _ => false,
        }
    }

    /// Whether it is about a connection or the server, and touches no data.
    #[inline]
    pub fn is_of_ports(&self) -> bool {
        matches!(self.action, Action::Port(_))
    }

    /// The container of a subcommand, and its own name there.
    pub fn split(&self) -> Option<(&'static str, &'static str)> {
        self.name.split_once('|')
    }

    /// Where its first key stands, if it has any.
    #[inline]
    pub fn first_key(&self) -> usize {
        self.keys.first()
    }

    /// Where the arguments stand that are keys.
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
