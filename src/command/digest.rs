//! Conditions on values: IFEQ, IFNE, IFDEQ and IFDNE of SET and DELEX, and DIGEST, after Redis 8.4;
//! DELIFEQ, after Valkey 9.0.

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Access, Action, Arg, ArgKind, Args, ByOptions, Command, Error, Flags, Keys, Limits, OneKey,
    ReadKey, ReadsKey, Reply, Run, arg, docs,
};

const KEY: Arg = arg("key", ArgKind::Key);

/// The comparisons, for the documentation.
pub(super) const COMPARISONS: [Arg; 4] = [
    arg("ifeq-value", ArgKind::String).token("IFEQ"),
    arg("ifne-value", ArgKind::String).token("IFNE"),
    arg("ifdeq-digest", ArgKind::String).token("IFDEQ"),
    arg("ifdne-digest", ArgKind::String).token("IFDNE"),
];

pub(super) static DIGEST: Command = Command {
    name: "digest",
    arity: 2,
    keys: Keys::One(Access::Read),
    twins: &["digest", "get"],
    docs: docs("Returns the XXH3 hash of a key's value, as 16 hexadecimal digits.")
        .costs("O(N), N being the length of the value")
        .takes(&[KEY]),
    action: Action::OneKey(Run::Read(digest)),
    slow_by_value: true,
    ..Command::on_strings(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static DELEX: Command = Command {
    name: "delex",
    arity: -2,
    keys: Keys::ByOptions(ByOptions {
        most: Access::Take,
        plain: Access::Remove,
        words: &[
            ("ifeq", Access::RemoveIf),
            ("ifne", Access::RemoveIf),
            ("ifdeq", Access::RemoveIf),
            ("ifdne", Access::RemoveIf),
        ],
        first: 2,
    }),
    twins: &["delex", "getdel"],
    docs: docs(
        "Deletes a key, if its value, or the hash of its value, is or is not the given one.",
    )
    .costs("O(N), N being the length of the value; O(1) without a condition")
    .takes(&[KEY, arg("condition", ArgKind::OneOf(&COMPARISONS)).optional()]),
    action: Action::OneKey(Run::Edit(delex)),
    slow_by_value: true,
    ..Command::on_strings(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static DELIFEQ: Command = Command {
    name: "delifeq",
    arity: 3,
    keys: Keys::One(Access::Remove),
    twins: &["delifeq", "delex", "getdel"],
    docs: docs("Deletes a key if its value is the given one.")
        .costs("O(N), N being the length of the value")
        .takes(&[KEY, arg("value", ArgKind::String)]),
    action: Action::OneKey(Run::Edit(delifeq)),
    slow_by_value: true,
    ..Command::on_strings(Flags { write: true, fast: true, ..Flags::NONE })
};

fn digest(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    match cx.string()? {
        None => reply.null(),
        Some(value) => reply.bulk(digest_of(value.bytes(), cx.limits)?.as_bytes()),
    }
    Ok(())
}

fn digest_of(value: &[u8], limits: &Limits) -> Result<String, Error> {
    limits.touch(value.len())?;
    Ok(format!("{:0DIGEST_BYTES$x}", xxh3_64(value)))
}

const DIGEST_BYTES: usize = 16;

fn delex(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let conditional = match cx.args.len() {
        2 => false,
        4 => true,
        _ => return Err(Error::Arity),
    };
    // Redis parses the condition only if the key exists, and is a string.
    let mut due = cx.key.is_there();
    if due && conditional {
        cx.string().map_err(|_| Error::ConditionOfOther)?;
        due = Comparison::parse(&cx.args, 2).ok_or(Error::InvalidComparison)?.holds_for(cx)?;
    }
    if due {
        cx.delete();
    }
    reply.integer(i64::from(due));
    Ok(())
}

fn delifeq(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let same = Comparison { argument: 2, by_digest: false, equal: true }.holds_for(cx)?;
    if same {
        cx.delete();
    }
    reply.integer(i64::from(same));
    Ok(())
}

/// A condition on a key's value.
#[derive(Clone, Copy)]
pub(super) struct Comparison {
    /// The index of the argument to compare with, a value or a digest.
    argument: usize,
    by_digest: bool,
    /// Whether the two must be equal, or different.
    equal: bool,
}

impl Comparison {
    /// Parses the condition whose keyword is argument `at`.
    pub(super) fn parse(args: &Args<'_>, at: usize) -> Option<Self> {
        let (by_digest, equal) = match () {
            _ if args.is(at, "ifeq") => (false, true),
            _ if args.is(at, "ifne") => (false, false),
            _ if args.is(at, "ifdeq") => (true, true),
            _ if args.is(at, "ifdne") => (true, false),
            _ => return None,
        };
        Some(Comparison { argument: at + 1, by_digest, equal })
    }

    /// Whether it is the same condition, perhaps with another value.
    pub(super) fn is_like(self, other: Comparison) -> bool {
        (self.by_digest, self.equal) == (other.by_digest, other.equal)
    }

    /// Whether it fails for a missing key.
    pub(super) fn needs_key(self) -> bool {
        self.equal
    }

    /// Whether it holds for the key, which may be missing.
    pub(super) fn holds_for(self, cx: &OneKey<'_>) -> Result<bool, Error> {
        match cx.string()? {
            Some(value) => self.holds(&cx.args, value.bytes(), cx.limits),
            None => Ok(!self.needs_key()),
        }
    }

    /// Whether it holds for this value.
    fn holds(self, args: &Args<'_>, value: &[u8], limits: &Limits) -> Result<bool, Error> {
        let other = args.get(self.argument);
        let same = if self.by_digest {
            if other.len() != DIGEST_BYTES {
                return Err(Error::InvalidDigest);
            }
            digest_of(value, limits)?.as_bytes().eq_ignore_ascii_case(other)
        } else {
            value.len() == other.len() && {
                limits.touch(value.len())?;
                value == other
            }
        };
        Ok(same == self.equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_have_sixteen_digits() {
        let limits = Limits::NONE;
        let zeros =
            b"v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytl\
              s2kwlj7626sd";
        assert_eq!(digest_of(zeros, &limits).as_deref(), Ok("00006c38adf31777"));
        assert_eq!(digest_of(b"", &limits).as_deref(), Ok("2d06800538d394c2"));
    }
}
