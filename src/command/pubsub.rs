//! Publish and subscribe. The host brings the messages; only the ports have these rows.

use super::{
    Action, Arg, ArgKind, Args, Command, Describe, Docs, Flags, PortCommand, PubSubQuestion,
    Scripting, SubscriptionKind, arg, docs,
};

const HELPS: Flags = Flags { loading: true, stale: true, ..Flags::NONE };
const ASKS: Flags = Flags { pubsub: true, ..HELPS };
const SUBSCRIBES: Flags = Flags { noscript: true, ..ASKS };
const PUBLISHES: Flags = Flags { fast: true, script: true, ..ASKS };

const CHANNEL: Arg = arg("channel", ArgKind::String);
const SHARD_CHANNEL: Arg = arg("shardchannel", ArgKind::String);
const PATTERN: Arg = arg("pattern", ArgKind::Pattern);
const MESSAGE: Arg = arg("message", ArgKind::String);

const PER_NAME: &str = "O(N), N being the number of names";
const PER_CHANNEL: &str = "O(N), N being the number of channels";

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    which: PortCommand,
    docs: Docs,
) -> Command {
    Command {
        categories: if flags.fast { "pubsub fast" } else { "pubsub slow" },
        group: "pubsub",
        ..Command::of_ports(name, arity, flags, which, docs)
    }
}

const fn subscribe(name: &'static str, kind: SubscriptionKind, docs: Docs) -> Command {
    row(name, -2, SUBSCRIBES, PortCommand::Subscribe(kind), docs.costs(PER_NAME))
}

const fn unsubscribe(name: &'static str, kind: SubscriptionKind, docs: Docs) -> Command {
    row(name, -1, SUBSCRIBES, PortCommand::Unsubscribe(kind), docs.costs(PER_NAME))
}

const fn publish(name: &'static str, docs: Docs) -> Command {
    let docs = docs.costs("O(N), N being the number of subscribers and of patterns");
    row(name, 3, PUBLISHES, PortCommand::Scripting(Scripting::Publish), docs)
}

const fn ask(name: &'static str, arity: i32, which: PubSubQuestion, docs: Docs) -> Command {
    row(name, arity, ASKS, PortCommand::PubSub(which), docs)
}

/// The names are in the places of keys, for clients of clusters.
const fn on_slots(row: Command, last: i32) -> Command {
    Command { slots_by_channels: Some(last), ..row }
}

/// The rows. Subcommands follow their container.
pub(super) static ROWS: [Command; 15] = [
    subscribe(
        "subscribe",
        SubscriptionKind::Channel,
        docs("Subscribes to channels.").takes(&[CHANNEL.multiple()]),
    ),
    subscribe(
        "psubscribe",
        SubscriptionKind::Pattern,
        docs("Subscribes to all channels that match patterns.").takes(&[PATTERN.multiple()]),
    ),
    on_slots(
        subscribe(
            "ssubscribe",
            SubscriptionKind::Shard,
            docs("Subscribes to shard channels.").takes(&[SHARD_CHANNEL.multiple()]),
        ),
        -1,
    ),
    unsubscribe(
        "unsubscribe",
        SubscriptionKind::Channel,
        docs("Ends subscriptions to channels.").takes(&[CHANNEL.optional().multiple()]),
    ),
    unsubscribe(
        "punsubscribe",
        SubscriptionKind::Pattern,
        docs("Ends subscriptions to patterns.").takes(&[PATTERN.optional().multiple()]),
    ),
    on_slots(
        unsubscribe(
            "sunsubscribe",
            SubscriptionKind::Shard,
            docs("Ends subscriptions to shard channels.")
                .takes(&[SHARD_CHANNEL.optional().multiple()]),
        ),
        -1,
    ),
    publish("publish", docs("Sends a message to a channel.").takes(&[CHANNEL, MESSAGE])),
    on_slots(
        publish(
            "spublish",
            docs("Sends a message to a shard channel.").takes(&[SHARD_CHANNEL, MESSAGE]),
        ),
        0,
    ),
    Command {
        categories: "slow",
        ..row(
            "pubsub",
            -2,
            Flags::NONE,
            PortCommand::Container,
            docs("Questions about channels and subscriptions."),
        )
    },
    ask(
        "pubsub|channels",
        -2,
        PubSubQuestion::Channels,
        docs("Lists channels with subscribers.").costs(PER_CHANNEL).takes(&[PATTERN.optional()]),
    ),
    ask("pubsub|numpat", 2, PubSubQuestion::NumPat, docs("Counts patterns with subscribers.")),
    ask(
        "pubsub|numsub",
        -2,
        PubSubQuestion::NumSub,
        docs("Counts the subscribers of channels.")
            .costs(PER_NAME)
            .takes(&[CHANNEL.optional().multiple()]),
    ),
    ask(
        "pubsub|shardchannels",
        -2,
        PubSubQuestion::ShardChannels,
        docs("Lists shard channels with subscribers.")
            .costs(PER_CHANNEL)
            .takes(&[PATTERN.optional()]),
    ),
    ask(
        "pubsub|shardnumsub",
        -2,
        PubSubQuestion::ShardNumSub,
        docs("Counts the subscribers of shard channels.")
            .costs(PER_NAME)
            .takes(&[SHARD_CHANNEL.optional().multiple()]),
    ),
    Command {
        categories: "slow",
        ..row(
            "pubsub|help",
            2,
            HELPS,
            PortCommand::Describe(Describe::Help),
            docs("Lists PUBSUB's subcommands."),
        )
    },
];

/// The channels that a command names.
pub struct NamedChannels<'a> {
    /// The number of its argument that has the first of them.
    pub first: usize,
    /// The channels, or patterns of them.
    pub names: &'a [&'a [u8]],
    /// They are patterns.
    pub are_patterns: bool,
}

impl Command {
    /// Whether rules on channels concern it.
    pub fn names_channels(&self) -> bool {
        matches!(
            self.action,
            Action::Port(PortCommand::Subscribe(_) | PortCommand::Scripting(Scripting::Publish))
        )
    }

    /// The channels that its user needs rights on. As in Redis, an end of a subscription needs
    /// none.
    pub fn channels<'a>(&self, args: &Args<'a>) -> Option<NamedChannels<'a>> {
        let Action::Port(which) = self.action else { return None };
        let names = args.from(1);
        match which {
            PortCommand::Subscribe(kind) => Some(NamedChannels {
                first: 1,
                names,
                are_patterns: kind == SubscriptionKind::Pattern,
            }),
            PortCommand::Scripting(Scripting::Publish) => {
                let names = names.get(..1).unwrap_or_default();
                Some(NamedChannels { first: 1, names, are_patterns: false })
            }
            _ => None,
        }
    }
}
