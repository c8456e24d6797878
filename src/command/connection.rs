//! Commands that concern a connection or the server and no key. Every Redis has
//! them, so on the host they are the host's own; a port has these.

/// A command of a port that is not in [`super::COMMANDS`].
pub struct PortCommand {
    /// The name, in lower case; `client|list` for a subcommand, as the host's ACL spells it.
    pub name: &'static str,
    /// Number of arguments, name and subcommand included; negative for "at least".
    pub arity: i32,
    /// Any client may call it, whatever its user's rules say, and before it has a user.
    pub open: bool,
    /// One sentence, for COMMAND DOCS.
    pub summary: &'static str,
    /// Which one it is.
    pub which: PortAction,
}

/// What a port's own command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAction {
    /// `PING [message]`.
    Ping,
    /// `ECHO message`.
    Echo,
    /// `SELECT db`.
    Select,
    /// `QUIT`.
    Quit,
    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    Hello,
    /// `AUTH [user] password`.
    Auth,
    /// `TIME`.
    Time,
}

const fn command(name: &'static str, arity: i32, which: PortAction, summary: &'static str) -> PortCommand {
    PortCommand { name, arity, open: false, summary, which }
}

impl PortCommand {
    const fn open(mut self) -> Self {
        self.open = true;
        self
    }
}

/// Every command of the ports that is not in [`super::COMMANDS`]. A command's place
/// is its number, for users' rights.
pub static PORT_COMMANDS: [PortCommand; 7] = [
    command("ping", -1, PortAction::Ping, "Says PONG, or the message."),
    command("echo", 2, PortAction::Echo, "Says the message."),
    command("select", 2, PortAction::Select, "Chooses the connection's database."),
    command("quit", -1, PortAction::Quit, "Closes the connection.").open(),
    command("hello", -1, PortAction::Hello, "Chooses the protocol, and tells of the server.").open(),
    command("auth", -2, PortAction::Auth, "Says who the client is.").open(),
    command("time", 1, PortAction::Time, "Tells the server's time."),
];
