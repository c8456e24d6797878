//! Messages that a connection publishes. They wait for clients of the ports that are about to hear
//! them.

use std::sync::Arc;

use crate::command::{Action, Args, Command, PortCommand, Scripting};
use crate::engine::{ChannelName, MainTask, SubscriptionWait};
use crate::net::shared::Shared;

/// A channel to which a message goes, and whether it is a shard channel.
pub type PublishedTo = (ChannelName, bool);

/// Where the message of this command goes, if it sends one.
pub fn published_to(row: &Command, args: &Args<'_>) -> Option<PublishedTo> {
    let publishes = matches!(row.action, Action::Port(PortCommand::Scripting(Scripting::Publish)));
    (publishes && args.len() > 1).then(|| (args.get(1).into(), args.is(0, "spublish")))
}

/// A task that publishes to these channels. If clients wait for subscriptions to them when its time
/// comes, it waits for those, once. So a client hears what is published after it has subscribed,
/// whether or not it has waited for the answer.
pub fn after_subscribers(
    shared: &Arc<Shared>,
    channels: Vec<PublishedTo>,
    task: MainTask,
) -> MainTask {
    if channels.is_empty() {
        return task;
    }
    let shared = Arc::clone(shared);
    Box::new(move |locked, engine, host| {
        let awaited: Vec<_> = channels
            .iter()
            .flat_map(|(channel, is_shard)| engine.pubsub.awaited(channel, *is_shard))
            .collect();
        if awaited.is_empty() {
            return task(locked, engine, host);
        }
        // If none of them waits any more, this wait ends here.
        let send = move |_| shared.engine.context().send_writing_task(task);
        engine.pubsub.wait_with(&awaited, &SubscriptionWait::new(send));
    })
}
