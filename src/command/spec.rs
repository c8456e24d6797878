//! The rows of the command table in the terms of Redis's COMMAND: for the registration with the
//! host, and for the ports, which answer COMMAND themselves.

use super::{Access, Arg, ArgKind, Command, Keys};

/// The version of midi that introduced these commands.
pub const SINCE: &str = "0.1.0";

/// The tips of COMMAND, as Redis spells them.
pub(super) mod tips {
    pub const MULTI_SHARD: &str = "request_policy:multi_shard";
    pub const ALL_SHARDS: &str = "request_policy:all_shards";
    pub const ALL_NODES: &str = "request_policy:all_nodes";
    pub const SPECIAL_REQUEST: &str = "request_policy:special";
    pub const ALL_SUCCEEDED: &str = "response_policy:all_succeeded";
    pub const ONE_SUCCEEDED: &str = "response_policy:one_succeeded";
    pub const LOGICAL_AND: &str = "response_policy:agg_logical_and";
    pub const SUM: &str = "response_policy:agg_sum";
    pub const LEAST: &str = "response_policy:agg_min";
    pub const SPECIAL_RESPONSE: &str = "response_policy:special";
    pub const ANY_OUTPUT: &str = "nondeterministic_output";
    pub const ANY_ORDER: &str = "nondeterministic_output_order";
}

/// A key spec: keys that are found in one way and have the same access.
pub struct KeySpec {
    /// The access to the keys; the widest one if it varies.
    pub access: Access,
    /// Whether the access depends on the call.
    pub varies: bool,
    /// The index of the argument at which the search begins.
    pub begin: i32,
    /// How the search continues.
    pub find: FindKeys,
}

/// How keys are found from the first argument of the search on.
#[derive(Clone, Copy)]
pub enum FindKeys {
    /// Every `step`-th argument is a key, up to `last`, which counts from the beginning of the
    /// search, or from the end of all arguments if it is negative.
    Range {
        /// The last key.
        last: i32,
        /// The distance between two keys.
        step: i32,
    },
    /// The argument is the number of keys; the first key is the next argument.
    Counted {
        /// The distance between two keys.
        step: i32,
    },
}

impl Keys {
    /// First, last and step, as COMMAND shows them; zeros if a range cannot express the keys.
    pub fn range(self) -> (i32, i32, i32) {
        match self {
            Keys::None | Keys::CountedPairs(_) | Keys::Counted(_) => (0, 0, 0),
            Keys::One(_) | Keys::ByOptions(_) | Keys::Fields => (1, 1, 1),
            Keys::Second(_) => (2, 2, 1),
            Keys::Two(..) => (1, 2, 1),
            Keys::MadeOf(..) => (2, -1, 1),
            Keys::All(_) => (1, -1, 1),
            Keys::Pairs(_) => (1, -1, 2),
        }
    }

    /// The key specs, in the order of the keys.
    pub fn specs(self) -> Vec<KeySpec> {
        let spec = |access, begin, last, step| KeySpec {
            access,
            varies: false,
            begin,
            find: FindKeys::Range { last, step },
        };
        match self {
            Keys::None => vec![],
            Keys::One(access) => vec![spec(access, 1, 0, 1)],
            Keys::Second(access) => vec![spec(access, 2, 0, 1)],
            Keys::Two(first, second) if first == second => vec![spec(first, 1, 1, 1)],
            Keys::Two(first, second) => vec![spec(first, 1, 0, 1), spec(second, 2, 0, 1)],
            Keys::MadeOf(first, others) => vec![spec(first, 2, 0, 1), spec(others, 3, -1, 1)],
            Keys::All(access) => vec![spec(access, 1, -1, 1)],
            Keys::Pairs(access) => vec![spec(access, 1, -1, 2)],
            Keys::CountedPairs(access) => {
                let find = FindKeys::Counted { step: 2 };
                vec![KeySpec { access, varies: false, begin: 1, find }]
            }
            Keys::Counted(access) => {
                let find = FindKeys::Counted { step: 1 };
                vec![KeySpec { access, varies: false, begin: 2, find }]
            }
            Keys::ByOptions(options) => {
                vec![KeySpec { varies: true, ..spec(options.most, 1, 0, 1) }]
            }
            Keys::Fields => {
                vec![KeySpec { varies: true, ..spec(Access::ReadOverwrite, 1, 0, 1) }]
            }
        }
    }
}

impl Access {
    /// The flags of key specs.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Access::Look => &["RO"],
            Access::Read => &["RO", "access"],
            Access::Overwrite => &["OW", "update"],
            Access::Insert => &["OW", "insert"],
            Access::Take => &["RW", "access", "delete"],
            Access::ReadOverwrite => &["RW", "access", "update"],
            Access::Update => &["RW", "update"],
            Access::Remove => &["RM", "delete"],
            Access::RemoveIf => &["RW", "delete"],
            Access::Extend => &["RW", "insert"],
        }
    }
}

impl ArgKind {
    /// The type's name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            ArgKind::Key | ArgKind::SecondKey => "key",
            ArgKind::String => "string",
            ArgKind::Integer => "integer",
            ArgKind::Double => "double",
            ArgKind::Pattern => "pattern",
            ArgKind::UnixTime => "unix-time",
            ArgKind::Token => "pure-token",
            ArgKind::OneOf(_) => "oneof",
            ArgKind::Block(_) => "block",
        }
    }

    /// The arguments that it is made of.
    pub fn inner(self) -> &'static [Arg] {
        match self {
            ArgKind::OneOf(inner) | ArgKind::Block(inner) => inner,
            _ => &[],
        }
    }

    /// The index of the key spec that finds it, if it is a key.
    pub fn key_spec(self) -> Option<i32> {
        match self {
            ArgKind::Key => Some(0),
            ArgKind::SecondKey => Some(1),
            _ => None,
        }
    }
}

impl Command {
    /// First, last and step of its keys, or of its channels where those have slots.
    pub fn range(&self) -> (i32, i32, i32) {
        match self.slots_by_channels {
            Some(last) => (1, if last < 0 { last } else { 1 + last }, 1),
            None => self.keys.range(),
        }
    }

    /// Its flags, as COMMAND spells them.
    pub fn flag_words(&self) -> impl Iterator<Item = &'static str> {
        let flags = self.flags;
        let all = [
            (flags.write || flags.host_write, "write"),
            (flags.readonly, "readonly"),
            (flags.deny_oom, "denyoom"),
            (flags.admin, "admin"),
            (flags.pubsub, "pubsub"),
            (flags.noscript, "noscript"),
            (flags.loading, "loading"),
            (flags.stale, "stale"),
            (flags.skip_slowlog, "skip_slowlog"),
            (flags.fast, "fast"),
            (flags.no_auth, "no_auth"),
            (flags.allow_busy, "allow_busy"),
            (flags.script && !flags.pubsub, "skip_monitor"),
            (flags.script && !flags.pubsub, "no_mandatory_keys"),
            (matches!(self.keys, Keys::CountedPairs(_) | Keys::Counted(_)), "movablekeys"),
        ];
        all.into_iter().filter(|(set, _)| *set).map(|(_, word)| word)
    }

    /// Its ACL categories, without `@`.
    pub fn category_words(&self) -> impl Iterator<Item = &'static str> {
        self.categories.split_ascii_whitespace()
    }
}
