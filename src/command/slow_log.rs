//! SLOWLOG, one command with a subcommand as its first argument.

use super::object::say_help;
use super::row::Subcommands;
use super::{
    Action, Arg, ArgKind, Args, Command, Docs, DoorCommand, Error, Flags, Reply, all_keys, arg,
    tips, word,
};

const SUBCOMMANDS: &[Arg] =
    &[word("get", "GET"), word("len", "LEN"), word("reset", "RESET"), word("help", "HELP")];

pub(super) static SLOWLOG: Command = Command {
    subcommands: Some(&OF_SLOWLOG),
    tips: &[tips::ANY_OUTPUT, tips::ALL_NODES],
    ..all_keys::row(
        "slowlog",
        -2,
        Flags { admin: true, ..Flags::NONE },
        "admin slow dangerous",
        Docs {
            summary: "Returns, counts or forgets the last slow commands of midi's ports, and those \
                      of both doors that waited for another thread.",
            complexity: "O(N), N being the number of commands in the slow log",
            args: &[
                arg("subcommand", ArgKind::OneOf(SUBCOMMANDS)),
                arg("count", ArgKind::Integer).optional(),
            ],
        },
        Action::Door(DoorCommand::SlowLog),
    )
};

static OF_SLOWLOG: Subcommands =
    Subcommands { own: &[("get", -2), ("len", 2), ("reset", 2), ("help", 2)], of_host: &[] };

const HELP: &[&str] = &[
    "GET [<count>]",
    "    The newest slow commands (10, or so many; all with -1): number, time in seconds since",
    "    1970, duration in microseconds, arguments, address and name of the client.",
    "LEN",
    "    How many there are.",
    "RESET",
    "    Forgets them.",
    "HELP",
    "    Prints this help.",
];

/// What a call of SLOWLOG asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowLogQuestion {
    /// The newest slow commands, so many at most.
    Get(usize),
    /// Their number.
    Len,
    /// That they be forgotten.
    Reset,
    /// Help.
    Help,
}

impl SlowLogQuestion {
    /// How many commands GET returns without a number.
    const USUAL: usize = 10;

    /// Reads the arguments.
    ///
    /// # Errors
    /// Redis's about them.
    pub fn of(args: &Args<'_>) -> Result<Self, Error> {
        Ok(match OF_SLOWLOG.find(args)? {
            "get" if args.len() > 3 => return Err(Error::SubcommandSyntax),
            "get" if args.len() == 2 => SlowLogQuestion::Get(Self::USUAL),
            "get" => match args.integer(2) {
                Ok(-1) => SlowLogQuestion::Get(usize::MAX),
                Ok(count) if count >= 0 => SlowLogQuestion::Get(count as usize),
                _ => return Err(Error::SlowLogCount),
            },
            "len" => SlowLogQuestion::Len,
            "reset" => SlowLogQuestion::Reset,
            _ => SlowLogQuestion::Help,
        })
    }
}

/// SLOWLOG HELP.
pub fn slow_log_help(args: &Args<'_>, reply: &mut dyn Reply) {
    say_help(args, HELP, reply);
}
