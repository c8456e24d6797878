//! Errors and log lines that quote what a client has sent.

use super::Args;

/// An error's text that quotes a client's words: up to their first NUL, and on one line.
pub fn error_about(before: &str, said: &[u8], after: &str) -> Vec<u8> {
    one_line(&[before.as_bytes(), printable(said), after.as_bytes()].concat())
}

/// A command that a port lacks and the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCommand {
    /// It is about keys, or runs scripts. The host's port runs it on the host's own keys.
    OfKeys,
    /// It is about the server, or about clients.
    OfServer,
}

/// The error of a port for a command that only the host has.
pub fn elsewhere(name: &[u8], what: HostCommand) -> Vec<u8> {
    let after = match what {
        HostCommand::OfKeys => {
            "': not supported by midi; the host's port has it, but not for midi's keys"
        }
        HostCommand::OfServer => "' on midi's port; use the host's port",
    };
    error_about("ERR unknown command '", name, after)
}

/// The error for a command that scripts on a port do not have. It begins as Redis's does: clients
/// take `unknown command` for a server that has no EVALSHA, for example.
pub fn not_for_scripts(name: &[u8]) -> Vec<u8> {
    let after = "': scripts on midi's port have midi's commands, and PING, ECHO, TIME, SELECT, \
                 PUBLISH and INFO";
    error_about("ERR Unknown Redis command called from script: '", name, after)
}

/// The most bytes of a name in a line of the log.
const LOGGED_BYTES: usize = 64;

/// A name from outside, as a line of the log shows it.
pub fn logged_name(name: &[u8]) -> String {
    let cut = &name[..name.len().min(LOGGED_BYTES)];
    let dots = if cut.len() < name.len() { "..." } else { "" };
    format!("{}{dots}", cut.escape_ascii())
}

/// The number of bytes that Redis shows of an unknown command or subcommand.
const SHOWN_BYTES: usize = 128;

/// As much of a name as Redis shows.
pub(super) fn shown(name: &[u8]) -> &[u8] {
    &name[..name.len().min(SHOWN_BYTES)]
}

/// Redis's error for an unknown command, with the beginning of its arguments.
pub fn unknown_command(args: &Args<'_>) -> Vec<u8> {
    let mut called_with: Vec<u8> = Vec::new();
    for arg in args.from(1) {
        let Some(room) = SHOWN_BYTES.checked_sub(called_with.len()).filter(|&room| room > 0) else {
            break;
        };
        let arg = printable(arg);
        called_with.extend_from_slice(&[b"'", &arg[..arg.len().min(room)], b"' "].concat());
    }
    let name = printable(shown(args.get(0)));
    spaced(
        [b"ERR unknown command '", name, b"', with args beginning with: ", &called_with].concat(),
    )
}

/// Removes line ends at the end and replaces the others by spaces.
fn one_line(text: &[u8]) -> Vec<u8> {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    spaced(text[..end.map_or(0, |last| last + 1)].to_vec())
}

fn spaced(mut text: Vec<u8>) -> Vec<u8> {
    replace_line_ends(&mut text);
    text
}

/// Replaces the line ends in an error's text by spaces: a line end would end the reply.
pub fn replace_line_ends(text: &mut [u8]) {
    for byte in text.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')) {
        *byte = b' ';
    }
}

/// The bytes up to the first NUL, as Redis prints an argument.
fn printable(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}
