//! What newer hosts do otherwise than Redis 7.0. midi answers as 7.0 does on every host, so a test
//! that takes the expected words from the host's own command looks here when they are not the same.

use std::process::Command;
use std::sync::OnceLock;

use super::client::Value;
use super::server::redis_server;

/// A server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Valkey, and not Redis.
    pub valkey: bool,
    /// Major and minor.
    pub version: (u32, u32),
}

impl Host {
    /// Newer than the host whose words midi has.
    pub fn is_newer(self) -> bool {
        self.version > (7, 0)
    }
}

/// The host that is tested on.
pub fn host() -> Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    *HOST.get_or_init(|| {
        let output =
            Command::new(redis_server()).arg("--version").output().expect("run the server");
        parse(&String::from_utf8_lossy(&output.stdout)).expect("what --version says")
    })
}

/// `Redis server v=8.6.3 sha=...`
fn parse(text: &str) -> Option<Host> {
    let mut numbers = text.split_once(" v=")?.1.split('.').map(|number| number.parse().ok());
    Some(Host { valkey: text.starts_with("Valkey"), version: (numbers.next()??, numbers.next()??) })
}

/// Where a difference is to be met.
enum On {
    /// Valkey, and Redis after 7.0.
    Newer,
    /// Valkey alone.
    Valkey,
}

/// Any reply that is no error.
const FINE: &str = "";

/// Any command.
const ANY: &str = "";

/// Where, the command, what the host's reply begins with, what midi's begins with.
const DIFFERENCES: [(On, &str, &str, &str); 20] = [
    // Newer hosts refuse a cursor below zero, and take one with a space in front; what else is
    // wrong comes after.
    (On::Newer, "scan", "ERR invalid cursor", FINE),
    (On::Newer, "scan", "ERR invalid cursor", "ERR "),
    (On::Newer, "scan", "ERR ", "ERR invalid cursor"),
    (On::Newer, "scan", FINE, "ERR invalid cursor"),
    (On::Valkey, "scan", "ERR unknown type name", FINE),
    (On::Valkey, "scan", "ERR unknown type name", "ERR "),
    (On::Newer, "command", "ERR Invalid number of arguments", "ERR wrong number of arguments"),
    (On::Newer, "hello", "ERR Syntax error in HELLO option", "WRONGPASS "),
    // To strangers newer hosts do not repeat what they have sent, and Valkey says this first of
    // all.
    (On::Newer, ANY, "ERR unknown command", "ERR unknown command"),
    (On::Valkey, ANY, "NOAUTH ", "ERR wrong number of arguments"),
    (On::Valkey, ANY, "NOAUTH ", "ERR unknown "),
    // The filters of CLIENT LIST and KILL.
    (On::Valkey, "client", "ERR ", "ERR "),
    (On::Valkey, "client", "ERR ", FINE),
    // Redis had MSETEX first, in other words.
    (On::Valkey, "msetex", "ERR ", "ERR "),
    // Valkey looks at the time to live first, then whether there is a key.
    (On::Valkey, "getex", "ERR ", FINE),
    // Newer hosts look at all arguments first, then whether there is a key; and Valkey does
    // without an end.
    (On::Newer, "bitcount", "ERR ", FINE),
    (On::Newer, "bitcount", "ERR ", "ERR "),
    (On::Valkey, "bitcount", FINE, "ERR syntax error"),
    (On::Newer, "bitpos", "ERR ", FINE),
    (On::Newer, "bitpos", "ERR ", "ERR "),
];

/// Whether midi's reply to a command is the host's, or the one of Redis 7.0 where the host's is
/// known to be another.
pub fn same_answer(command: &str, native: &Value, midi: &Value) -> bool {
    native == midi
        || host().is_newer()
            && (in_older_words(native) == in_older_words(midi)
                || differ_as_known(command, native, midi))
}

fn differ_as_known(command: &str, native: &Value, midi: &Value) -> bool {
    let begins = |reply: &Value, text: &str| match reply {
        Value::Error(error) => text != FINE && error.starts_with(text.as_bytes()),
        _ => text == FINE,
    };
    DIFFERENCES.iter().any(|(on, name, of_host, of_midi)| {
        let here = match on {
            On::Newer => true,
            On::Valkey => host().valkey,
        };
        here && (*name == ANY || command.eq_ignore_ascii_case(name))
            && begins(native, of_host)
            && begins(midi, of_midi)
    })
}

/// Whether a command's tips are not those that Redis 7.0 gives it, and midi on every host.
pub fn has_newer_tips(command: &str) -> bool {
    host().is_newer() && ["scan", "randomkey", "msetnx"].contains(&command)
}

/// Texts of newer hosts, and what Redis 7.0 says there.
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

/// An error as Redis 7.0 would have put it.
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
