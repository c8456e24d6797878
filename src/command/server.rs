//! Commands about the server that only the ports have: the host has its own.

use super::connection::{ADMIN, FAST, NAMES, NOSCRIPT, PER_COMMAND, PLAIN, container, server};
use super::spec::tips;
use super::{Arg, ArgKind, Command, Docs, Flags, PortCommand, arg, docs};

/// A subcommand of LATENCY that the host answers.
const fn latency(name: &'static str, arity: i32, docs: Docs) -> Command {
    let row = server(name, arity, ADMIN, "admin slow dangerous", PortCommand::Latency, docs);
    row.tips(&[tips::ANY_OUTPUT, tips::ALL_NODES, tips::SPECIAL_RESPONSE])
}

const EVENT: &[Arg] = &[arg("event", ArgKind::String)];
const EVENTS: &[Arg] = &[arg("event", ArgKind::String).optional().multiple()];

/// The rows. Subcommands follow their container.
pub(super) static ROWS: [Command; 20] = [
    server(
        "info",
        -1,
        PLAIN,
        "slow dangerous",
        PortCommand::Info,
        docs("Returns information about the server and midi.").takes(&[arg(
            "section",
            ArgKind::String,
        )
        .optional()
        .multiple()]),
    )
    .tips(&[tips::ANY_OUTPUT, tips::ALL_SHARDS, tips::SPECIAL_RESPONSE]),
    container("config", docs("Commands about settings.")),
    server(
        "config|get",
        -3,
        ADMIN,
        "admin slow dangerous",
        PortCommand::ConfigGet,
        docs("Returns settings of the server and of midi.")
            .costs("O(N), N being the number of settings")
            .takes(&[arg("parameter", ArgKind::String).multiple()]),
    ),
    server(
        "config|resetstat",
        2,
        ADMIN,
        "admin slow dangerous",
        PortCommand::ConfigResetStat,
        docs("Resets the counts that INFO on the port reports."),
    ),
    container("latency", docs("Commands about how long commands and other events take.")),
    server(
        "latency|histogram",
        -2,
        ADMIN,
        "admin slow dangerous",
        PortCommand::LatencyHistogram,
        docs("Returns how many calls took how long.").costs(PER_COMMAND).takes(NAMES),
    )
    .tips(&[tips::ANY_OUTPUT, tips::ALL_NODES, tips::SPECIAL_RESPONSE]),
    latency("latency|latest", 2, docs("Returns the latest and longest times of all events.")),
    latency("latency|history", 3, docs("Returns the times of an event.").takes(EVENT)),
    latency("latency|graph", 3, docs("Draws the times of an event.").takes(EVENT)),
    latency("latency|doctor", 2, docs("Reports what may have made events slow.")),
    latency(
        "latency|reset",
        -2,
        docs("Forgets the times of all events, or of these.").takes(EVENTS),
    )
    .tips(&[tips::ALL_NODES, tips::SUM]),
    server(
        "latency|help",
        2,
        PLAIN,
        "slow",
        PortCommand::LatencyHelp,
        docs("Lists LATENCY's subcommands."),
    ),
    server(
        "debug",
        -2,
        ADMIN,
        "admin slow dangerous",
        PortCommand::Debug,
        docs("DEBUG POPULATE creates keys as POPULATE does; there is no other DEBUG subcommand.")
            .costs("O(N), N being the number of keys"),
    ),
    container("acl", docs("Commands about users.")),
    server(
        "acl|whoami",
        2,
        NOSCRIPT,
        "slow",
        PortCommand::WhoAmI,
        docs("Returns the client's user name."),
    ),
    container("module", docs("Commands about modules.")),
    server(
        "module|list",
        2,
        Flags { admin: true, noscript: true, ..Flags::NONE },
        "admin slow dangerous",
        PortCommand::ModuleList,
        docs("Lists the server's modules.").costs("O(N), N being the number of modules"),
    )
    .tips(&[tips::ANY_ORDER]),
    server(
        "lastsave",
        1,
        FAST,
        "admin fast dangerous",
        PortCommand::LastSave,
        docs("Returns when the server last saved its own keys."),
    )
    .tips(&[tips::ANY_OUTPUT]),
    server(
        "role",
        1,
        Flags { fast: true, ..NOSCRIPT },
        "admin fast dangerous",
        PortCommand::Role,
        docs("Returns whether the server is a master or a replica."),
    ),
    server("time", 1, FAST, "fast", PortCommand::Time, docs("Returns the server's time."))
        .tips(&[tips::ANY_OUTPUT]),
];
