//! Commands that are not for clients: the one that carries records in the host's AOF and
//! replication stream, the one that stands for what scripts on a port do not have, and the one by
//! which midi's own connection to its host logs in.

use super::connection::FAST;
use super::{Action, Arg, ArgKind, Command, Docs, DoorCommand, Doors, Flags, arg};

const TEXT: &[Arg] = &[arg("text", ArgKind::String)];

pub(super) static JOURNAL: Command = Command {
    name: "journal",
    arity: 2,
    doors: Doors::Host,
    flags: Flags { host_write: true, admin: true, ..Flags::NONE },
    categories: "admin write slow dangerous",
    twins: &["replicaof"],
    group: "server",
    docs: Docs {
        summary: "Holds what was written to midi's keys, in the server's AOF and replication \
                  stream. Not for clients.",
        complexity: "O(N), N being the number of records",
        args: TEXT,
    },
    action: Action::Door(DoorCommand::Journal),
    ..Command::USUAL
};

const CALL: &[Arg] =
    &[arg("command", ArgKind::String), arg("arg", ArgKind::String).optional().multiple()];

pub(super) static UNSUPPORTED: Command = Command {
    name: "unsupported",
    arity: -2,
    doors: Doors::Host,
    categories: "fast",
    twins: &["ping"],
    group: "scripting",
    docs: Docs {
        summary: "Refuses a command that scripts on midi's port do not have. Not for clients.",
        complexity: "O(1)",
        args: CALL,
    },
    action: Action::Door(DoorCommand::Unsupported),
    ..Command::USUAL
};

pub(super) static LISTEN: Command = Command {
    name: "listen",
    arity: 2,
    doors: Doors::Host,
    flags: Flags { no_auth: true, noscript: true, ..FAST },
    categories: "fast connection",
    twins: &["auth"],
    group: "pubsub",
    docs: Docs {
        summary: "Logs in the connection by which midi hears messages for its port. Not for \
                  clients.",
        complexity: "O(1)",
        args: &[arg("token", ArgKind::String)],
    },
    action: Action::Door(DoorCommand::Listen),
    ..Command::USUAL
};
