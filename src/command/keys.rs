//! Which arguments of a command are keys, and what happens to them.

use super::{Args, Error, parse_integer};

/// Which arguments of a command are keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// No argument is a key.
    None,
    /// Argument 1.
    One(Access),
    /// Argument 2, after a subcommand.
    Second(Access),
    /// Arguments 1 and 2, each with its own access.
    Two(Access, Access),
    /// Argument 2 is made of the keys from argument 3 on; argument 1 is a keyword.
    MadeOf(Access, Access),
    /// Every argument.
    All(Access),
    /// Every other argument, each followed by its value.
    Pairs(Access),
    /// Argument 1 is the number of pairs of key and value that follow.
    CountedPairs(Access),
    /// Argument 2 is the number of keys that follow.
    Counted(Access),
    /// Argument 1; what happens to it depends on the options.
    ByOptions(ByOptions),
    /// Argument 1; it is only read if all of BITFIELD's operations are GET.
    Fields,
}

/// The access to a key if it depends on options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ByOptions {
    /// The widest access that any option asks for.
    pub(super) most: Access,
    /// The access without any of the options below.
    pub(super) plain: Access,
    /// Options and their access; the first one that is given counts.
    pub(super) words: &'static [(&'static str, Access)],
    /// The index of the first option.
    pub(super) first: usize,
}

impl ByOptions {
    fn access(self, args: &Args<'_>) -> Access {
        let is_given = |word: &str| (self.first..args.len()).any(|at| args.is(at, word));
        let given = self.words.iter().find(|(word, _)| is_given(word));
        given.map_or(self.plain, |&(_, access)| access)
    }
}

/// A command's access to a key; the terms are those of Redis's key specs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads metadata only: `RO`.
    Look,
    /// Reads values: `RO ACCESS`.
    Read,
    /// Overwrites values: `OW UPDATE`.
    Overwrite,
    /// Writes a key that must not exist: `OW INSERT`.
    Insert,
    /// Overwrites values and returns the old ones: `RW ACCESS UPDATE`.
    ReadOverwrite,
    /// Returns the value, or moves it to another key, and removes the key: `RW ACCESS DELETE`.
    Take,
    /// Changes metadata: `RW UPDATE`.
    Update,
    /// Removes keys: `RM DELETE`.
    Remove,
    /// Removes a key if its value is the expected one: `RW DELETE`.
    RemoveIf,
    /// Adds to the value: `RW INSERT`.
    Extend,
}

impl Keys {
    /// The index of the first key, if there is any.
    #[inline]
    pub(super) fn first(self) -> usize {
        match self {
            Keys::Second(_) | Keys::MadeOf(..) | Keys::CountedPairs(_) => 2,
            Keys::Counted(_) => 3,
            _ => 1,
        }
    }

    /// The indexes of the arguments that are keys.
    pub fn positions(
        self,
        args: &Args<'_>,
    ) -> impl ExactSizeIterator<Item = usize> + Clone + use<> {
        let (end, step) = match self {
            Keys::None => (1, 1),
            Keys::One(_) | Keys::ByOptions(_) | Keys::Fields => (2, 1),
            Keys::Second(_) | Keys::Two(..) => (3, 1),
            Keys::MadeOf(..) | Keys::All(_) => (usize::MAX, 1),
            Keys::Pairs(_) => (usize::MAX, 2),
            Keys::CountedPairs(_) => (2 + 2 * pair_count(args).unwrap_or(0), 2),
            Keys::Counted(_) => (3 + key_count(args), 1),
        };
        let first = self.first();
        (first..end.min(args.len()).max(first)).step_by(step)
    }

    /// The access to key number `number`, counted among the keys.
    pub fn access(self, number: usize, args: &Args<'_>) -> Access {
        match self {
            Keys::ByOptions(options) => options.access(args),
            Keys::Fields => field_access(args),
            Keys::Two(_, others) | Keys::MadeOf(_, others) if number > 0 => others,
            Keys::One(access)
            | Keys::Second(access)
            | Keys::Two(access, _)
            | Keys::MadeOf(access, _)
            | Keys::All(access)
            | Keys::Pairs(access)
            | Keys::CountedPairs(access)
            | Keys::Counted(access) => access,
            Keys::None => Access::Look,
        }
    }
}

impl Access {
    /// Whether it reveals anything of the value.
    pub fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadOverwrite | Access::Take)
    }

    /// Whether it changes anything.
    pub fn writes(self) -> bool {
        !matches!(self, Access::Look | Access::Read)
    }
}

/// The access of BITFIELD's operations to its key. Where they are wrong it is the widest one, as on
/// the host: a user that may not write the key learns that, and not the fault.
fn field_access(args: &Args<'_>) -> Access {
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        at += match () {
            _ if args.is(at, "get") && left >= 2 => 3,
            _ if args.is(at, "overflow") && left >= 1 => 2,
            _ => return Access::ReadOverwrite,
        };
    }
    Access::Read
}

/// EVAL's number of keys; none if it is invalid or there are fewer arguments, which the host
/// refuses.
fn key_count(args: &Args<'_>) -> usize {
    let count = parse_integer(args.get(2)).and_then(|count| usize::try_from(count).ok());
    count.filter(|&count| count <= args.len().saturating_sub(3)).unwrap_or(0)
}

/// MSETEX's number of pairs. Fails if it is invalid or there are fewer arguments.
pub(super) fn pair_count(args: &Args<'_>) -> Result<usize, Error> {
    let count =
        parse_integer(args.get(1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or(Error::InvalidPairCount)? as usize;
    if 2 * count + 2 > args.len() { Err(Error::MissingPairs) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_keys_are_as_many_as_the_number_says() {
        for (line, positions) in [
            ("eval s 2 a b c", &[3, 4][..]),
            ("eval s 0 a", &[]),
            ("eval s 3 a b c", &[3, 4, 5]),
            ("eval s 4 a b c", &[]),
            ("eval s -1 a", &[]),
            ("eval s x a", &[]),
            ("eval s 9223372036854775807 a", &[]),
            ("eval s 0", &[]),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let found: Vec<usize> =
                Keys::Counted(Access::Read).positions(&Args::new(&words)).collect();
            assert_eq!(found, positions, "{line}");
        }
    }
}
