//! The command that carries records in the host's AOF and replication stream.

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
