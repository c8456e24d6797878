//! Scripts and functions. The host runs them; only the ports have these rows.

use super::{
    Access, Action, Arg, ArgKind, Command, Describe, Docs, Flags, Keys, PortCommand, Scripting,
    arg, docs, spec::tips, word,
};

const NOSCRIPT: Flags = Flags { noscript: true, ..Flags::NONE };
const STALE: Flags = Flags { stale: true, ..NOSCRIPT };
const RUNS: Flags = Flags { script: true, ..STALE };
const RUNS_READING: Flags = Flags { readonly: true, ..RUNS };
const CHANGES: Flags = Flags { host_write: true, ..NOSCRIPT };
const ADDS: Flags = Flags { deny_oom: true, ..CHANGES };
/// The flags of a command that is there while a script takes too long.
const INTERRUPTS: Flags = Flags { allow_busy: true, ..NOSCRIPT };
const HELPS: Flags = Flags { loading: true, stale: true, ..Flags::NONE };

const ON_SHARDS: [&str; 2] = [tips::ALL_SHARDS, tips::ALL_SUCCEEDED];
const ON_NODES: [&str; 2] = [tips::ALL_NODES, tips::ALL_SUCCEEDED];
const INTERRUPTS_ONE: [&str; 2] = [tips::ALL_SHARDS, tips::ONE_SUCCEEDED];

const PER_SCRIPT: &str = "O(N), N being the work of the script";
const PER_FUNCTION: &str = "O(N), N being the number of functions";
const PER_BYTE: &str = "O(N), N being the length of the text";

const SCRIPT: Arg = arg("script", ArgKind::String);
const SHA1: Arg = arg("sha1", ArgKind::String);
const FUNCTION: Arg = arg("function", ArgKind::String);
const LIBRARY: Arg = arg("library-name", ArgKind::String);
const NUMKEYS: Arg = arg("numkeys", ArgKind::Integer);
const KEY: Arg = arg("key", ArgKind::Key).optional().multiple();
const ARGUMENT: Arg = arg("arg", ArgKind::String).optional().multiple();
const WHEN: Arg =
    arg("flush-type", ArgKind::OneOf(&[word("async", "ASYNC"), word("sync", "SYNC")])).optional();

const EVAL: &[Arg] = &[SCRIPT, NUMKEYS, KEY, ARGUMENT];
const EVALSHA: &[Arg] = &[SHA1, NUMKEYS, KEY, ARGUMENT];
const FCALL: &[Arg] = &[FUNCTION, NUMKEYS, KEY, ARGUMENT];

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    which: Scripting,
    docs: Docs,
) -> Command {
    Command {
        categories: if flags.host_write { "write slow scripting" } else { "slow scripting" },
        group: "scripting",
        ..Command::of_ports(name, arity, flags, PortCommand::Scripting(which), docs)
    }
}

/// A command that runs a script, or a function.
const fn run(
    name: &'static str,
    flags: Flags,
    summary: &'static str,
    args: &'static [Arg],
) -> Command {
    let access = if flags.readonly { Access::Read } else { Access::ReadOverwrite };
    let docs = docs(summary).costs(PER_SCRIPT).takes(args);
    Command { keys: Keys::Counted(access), ..row(name, -3, flags, Scripting::Run, docs) }
}

const fn tell(name: &'static str, arity: i32, flags: Flags, docs: Docs) -> Command {
    row(name, arity, flags, Scripting::Manage, docs)
}

const fn interrupt(name: &'static str, docs: Docs) -> Command {
    row(name, 2, INTERRUPTS, Scripting::Interrupt, docs)
}

const fn container(name: &'static str, docs: Docs) -> Command {
    let action = Action::Port(PortCommand::Container);
    let row = row(name, -2, Flags::NONE, Scripting::Manage, docs);
    Command { categories: "slow", action, ..row }
}

const fn help(name: &'static str, docs: Docs) -> Command {
    let action = Action::Port(PortCommand::Describe(Describe::Help));
    Command { action, ..row(name, 2, HELPS, Scripting::Manage, docs) }
}

impl Command {
    const fn tells(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }
}

/// The rows. Subcommands follow their container.
pub(super) static ROWS: [Command; 22] = [
    run("eval", RUNS, "Runs a script.", EVAL),
    run("evalsha", RUNS, "Runs a script that the server has, by its SHA-1 digest.", EVALSHA),
    run("eval_ro", RUNS_READING, "Runs a script that only reads.", EVAL),
    run(
        "evalsha_ro",
        RUNS_READING,
        "Runs a script that the server has and that only reads, by its SHA-1 digest.",
        EVALSHA,
    ),
    run("fcall", RUNS, "Calls a function.", FCALL),
    run("fcall_ro", RUNS_READING, "Calls a function that only reads.", FCALL),
    container("script", docs("Commands about scripts.")),
    tell(
        "script|load",
        3,
        STALE,
        docs("Has the server keep a script; returns its SHA-1 digest.")
            .costs(PER_BYTE)
            .takes(&[SCRIPT]),
    )
    .tells(&ON_NODES),
    tell(
        "script|exists",
        -3,
        NOSCRIPT,
        docs("Returns which scripts the server has.")
            .costs("O(N), N being the number of digests")
            .takes(&[SHA1.multiple()]),
    )
    .tells(&[tips::ALL_SHARDS, tips::LOGICAL_AND]),
    tell(
        "script|flush",
        -2,
        NOSCRIPT,
        docs("Has the server forget all scripts.")
            .costs("O(N), N being the number of scripts")
            .takes(&[WHEN]),
    )
    .tells(&ON_NODES),
    interrupt("script|kill", docs("Ends the script that runs, if it has written nothing."))
        .tells(&INTERRUPTS_ONE),
    help("script|help", docs("Lists SCRIPT's subcommands.")),
    container("function", docs("Commands about functions.")),
    tell(
        "function|load",
        -3,
        ADDS,
        docs("Adds a library of functions.").costs(PER_BYTE).takes(&[
            arg("replace", ArgKind::Token).token("REPLACE").optional(),
            arg("function-code", ArgKind::String),
        ]),
    )
    .tells(&ON_SHARDS),
    tell("function|delete", 3, CHANGES, docs("Removes a library.").takes(&[LIBRARY]))
        .tells(&ON_SHARDS),
    tell(
        "function|list",
        -2,
        NOSCRIPT,
        docs("Describes the libraries.").costs(PER_FUNCTION).takes(&[
            arg("library-name-pattern", ArgKind::String).token("LIBRARYNAME").optional(),
            arg("withcode", ArgKind::Token).token("WITHCODE").optional(),
        ]),
    )
    .tells(&[tips::ANY_ORDER]),
    tell("function|dump", 2, NOSCRIPT, docs("Returns all libraries.").costs(PER_FUNCTION)),
    tell(
        "function|restore",
        -3,
        ADDS,
        docs("Restores libraries from FUNCTION DUMP's reply.").costs(PER_FUNCTION).takes(&[
            arg("serialized-value", ArgKind::String),
            arg(
                "policy",
                ArgKind::OneOf(&[
                    word("flush", "FLUSH"),
                    word("append", "APPEND"),
                    word("replace", "REPLACE"),
                ]),
            )
            .optional(),
        ]),
    )
    .tells(&ON_SHARDS),
    tell(
        "function|flush",
        -2,
        CHANGES,
        docs("Removes all libraries.").costs(PER_FUNCTION).takes(&[WHEN]),
    )
    .tells(&ON_SHARDS),
    interrupt("function|kill", docs("Ends the function that runs, if it has written nothing."))
        .tells(&INTERRUPTS_ONE),
    interrupt("function|stats", docs("Tells which function runs, and counts the libraries."))
        .tells(&[tips::ANY_OUTPUT, tips::ALL_SHARDS, tips::SPECIAL_RESPONSE]),
    help("function|help", docs("Lists FUNCTION's subcommands.")),
];
