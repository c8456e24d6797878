//! The documentation of a command, in the form of Redis's COMMAND DOCS.

/// The documentation of a command.
pub struct Docs {
    /// One sentence.
    pub summary: &'static str,
    /// In big-O notation.
    pub complexity: &'static str,
    /// The arguments, without the command's name.
    pub args: &'static [Arg],
}

/// The documentation of a command that takes constant time and has no arguments.
pub(super) const fn docs(summary: &'static str) -> Docs {
    Docs { summary, complexity: "O(1)", args: &[] }
}

impl Docs {
    pub(super) const fn takes(mut self, args: &'static [Arg]) -> Self {
        self.args = args;
        self
    }

    pub(super) const fn costs(mut self, complexity: &'static str) -> Self {
        self.complexity = complexity;
        self
    }
}

/// A documented argument.
#[derive(Clone, Copy)]
pub struct Arg {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: ArgKind,
    /// The keyword before it, or the keyword that it is.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
}

/// Kinds of documented arguments.
#[derive(Clone, Copy)]
pub enum ArgKind {
    /// A key of the keyspace.
    Key,
    /// The second key of [`super::Keys::Two`], or the sources of [`super::Keys::MadeOf`].
    SecondKey,
    /// Any bytes.
    String,
    /// A 64-bit integer.
    Integer,
    /// A glob pattern.
    Pattern,
    /// Seconds or milliseconds since 1970.
    UnixTime,
    /// The token alone.
    Token,
    /// One of these.
    OneOf(&'static [Arg]),
    /// All of these, in order.
    Block(&'static [Arg]),
    /// A number with a fraction.
    Double,
}

/// A required argument.
pub(super) const fn arg(name: &'static str, kind: ArgKind) -> Arg {
    Arg { name, kind, token: None, optional: false, multiple: false }
}

impl Arg {
    pub(super) const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(super) const fn multiple(mut self) -> Self {
        self.multiple = true;
        self
    }

    pub(super) const fn token(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }
}

/// An argument that is a keyword alone.
pub(super) const fn word(name: &'static str, token: &'static str) -> Arg {
    arg(name, ArgKind::Token).token(token)
}
