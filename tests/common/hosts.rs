//! The differences of hosts from midi, which answers like Redis 7.0 on every host, and in a few
//! points like the newest. Tests that take the expected reply from the host's own command look here
//! when the two differ.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::client::Value;
use super::server::{redis_server, target_dir};

/// A server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Valkey, not Redis.
    pub valkey: bool,
    /// Major and minor version.
    pub version: (u32, u32),
}

impl Host {
    /// Newer than the host whose replies midi gives in most points.
    pub fn is_newer(self) -> bool {
        self.version > (7, 0)
    }

    /// Whether its BITOP has DIFF, DIFF1, ANDOR and ONE.
    pub fn has_newer_bitops(self) -> bool {
        !self.valkey && self.version >= (8, 2)
    }
}

/// The host that the tests run on.
pub fn host() -> Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    *HOST.get_or_init(|| {
        let output =
            Command::new(redis_server()).arg("--version").output().expect("run the server");
        parse(&String::from_utf8_lossy(&output.stdout)).expect("what --version says")
    })
}

/// The servers of other versions that the tests on all hosts have fetched: names like `redis-8.0`,
/// and programs. Perhaps none.
pub fn fetched_hosts() -> Vec<(String, PathBuf)> {
    let folders = std::fs::read_dir(target_dir().join("hosts")).into_iter().flatten().flatten();
    let mut found: Vec<_> = folders
        .map(|folder| {
            (folder.file_name().to_string_lossy().into_owned(), folder.path().join("server"))
        })
        .filter(|(_, program)| program.exists())
        .collect();
    found.sort();
    found
}

/// `Redis server v=8.6.3 sha=...`
fn parse(text: &str) -> Option<Host> {
    let mut numbers = text.split_once(" v=")?.1.split('.').map(|number| number.parse().ok());
    Some(Host { valkey: text.starts_with("Valkey"), version: (numbers.next()??, numbers.next()??) })
}

/// The hosts that have a difference.
enum On {
    /// Redis 7.0.
    Older,
    /// Valkey, and Redis after 7.0.
    Newer,
    /// Valkey alone.
    Valkey,
}

/// Any reply that is not an error.
const FINE: &str = "";

/// Any command.
const ANY: &str = "";

/// The hosts, the command, the start of the host's reply, the start of midi's.
const DIFFERENCES: [(On, &str, &str, &str); 29] = [
    // Redis 7.0 takes a cursor below zero and the empty one, and refuses one with white space in
    // front; other errors come after that.
    (On::Older, "scan", FINE, "ERR invalid cursor"),
    (On::Older, "scan", "ERR ", "ERR invalid cursor"),
    (On::Older, "scan", "ERR invalid cursor", FINE),
    (On::Older, "scan", "ERR invalid cursor", "ERR "),
    (On::Older, "hscan", FINE, "ERR invalid cursor"),
    (On::Older, "hscan", "ERR ", "ERR invalid cursor"),
    (On::Older, "hscan", "WRONGTYPE ", "ERR invalid cursor"),
    (On::Older, "hscan", "ERR invalid cursor", FINE),
    (On::Older, "hscan", "ERR invalid cursor", "ERR "),
    (On::Older, "hscan", "ERR invalid cursor", "WRONGTYPE "),
    (On::Valkey, "scan", "ERR unknown type name", FINE),
    (On::Valkey, "scan", "ERR unknown type name", "ERR "),
    (On::Newer, "command", "ERR Invalid number of arguments", "ERR wrong number of arguments"),
    // Newer hosts look at the password after all options.
    (On::Older, "hello", "WRONGPASS ", "ERR Syntax error in HELLO option"),
    // Newer hosts end the text if there are no arguments. Valkey checks the login first of all.
    (On::Newer, ANY, "ERR unknown command", "ERR unknown command"),
    (On::Valkey, ANY, "NOAUTH ", "ERR wrong number of arguments"),
    (On::Valkey, ANY, "NOAUTH ", "ERR unknown "),
    // The filters of CLIENT LIST and KILL.
    (On::Valkey, "client", "ERR ", "ERR "),
    (On::Valkey, "client", "ERR ", FINE),
    // Redis had MSETEX first, with other error texts.
    (On::Valkey, "msetex", "ERR ", "ERR "),
    // Newer hosts check all arguments first, then whether the key exists; and Valkey allows the
    // end to be left out.
    (On::Newer, "bitcount", "ERR ", FINE),
    (On::Newer, "bitcount", "ERR ", "ERR "),
    (On::Valkey, "bitcount", FINE, "ERR syntax error"),
    (On::Newer, "bitpos", "ERR ", FINE),
    (On::Newer, "bitpos", "ERR ", "ERR "),
    (On::Newer, "bitcount", "ERR ", "WRONGTYPE "),
    (On::Newer, "bitpos", "ERR ", "WRONGTYPE "),
    // Valkey has other texts, and looks at the arguments before the key.
    (On::Valkey, "hgetdel", "ERR ", "ERR "),
    (On::Valkey, "hgetdel", "ERR ", "WRONGTYPE "),
];

/// Whether midi's reply to a command equals the host's, or another where the host's is known to
/// differ.
pub fn same_answer(command: &str, native: &Value, midi: &Value) -> bool {
    native == midi
        || host().is_newer() && in_older_words(native) == in_older_words(midi)
        || differ_as_known(command, native, midi)
}

fn differ_as_known(command: &str, native: &Value, midi: &Value) -> bool {
    let begins = |reply: &Value, text: &str| match reply {
        Value::Error(error) => text != FINE && error.starts_with(text.as_bytes()),
        _ => text == FINE,
    };
    DIFFERENCES.iter().any(|(on, name, of_host, of_midi)| {
        let here = match on {
            On::Older => !host().is_newer(),
            On::Newer => host().is_newer(),
            On::Valkey => host().valkey,
        };
        here && (*name == ANY || command.eq_ignore_ascii_case(name))
            && begins(native, of_host)
            && begins(midi, of_midi)
    })
}

/// Whether a command's tips differ from midi's, which are those of the oldest Redis that has the
/// command, but for LATENCY RESET's: those are the newest host's.
pub fn has_newer_tips(command: &str) -> bool {
    command == "latency|reset"
        || host().is_newer() && ["scan", "randomkey", "msetnx"].contains(&command)
        || host().valkey && ["httl", "hpttl"].contains(&command)
}

/// Whether a command's flags, and its categories, differ from those of Redis 7.0: newer hosts say
/// that it blocks.
pub fn has_newer_flags(command: &str) -> bool {
    host().is_newer() && ["wait", "waitaof"].contains(&command)
}

/// Error texts of newer hosts, and those of Redis 7.0 in their place.
const OLDER_WORDS: [(&str, &str); 4] = [
    (
        "NOPERM No permissions to access a key",
        "NOPERM this user has no permissions to access one of the keys used as arguments",
    ),
    ("ERR Command 'multi' not allowed inside a transaction", "ERR MULTI calls can not be nested"),
    (
        "ERR Command 'watch' not allowed inside a transaction",
        "ERR WATCH inside MULTI is not allowed",
    ),
    ("the HELLO <proto> AUTH <user>", "the HELLO AUTH <user>"),
];

/// An error in the words of Redis 7.0.
pub fn in_older_words(reply: &Value) -> Value {
    let Value::Error(text) = reply else { return reply.clone() };
    let mut text = String::from_utf8_lossy(text).into_owned();
    for (newer, older) in OLDER_WORDS {
        text = text.replace(newer, older);
    }
    // Newer hosts name the user.
    if let (Some(start), Some(end)) = (text.find("NOPERM User "), text.find(" has no permissions"))
    {
        text.replace_range(start..end, "NOPERM this user");
    }
    Value::error(&text)
}
