//! SUBSCRIBE and UNSUBSCRIBE with their kin, and PUBSUB. PUBLISH runs as scripts do (`scripts.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::command::{Args, Error, PubSubQuestion, Reply, SubscriptionKind};
use crate::engine::{ChannelName, SubscriptionWait};
use crate::net::main_task::{ask_main, wait_for_task};
use crate::net::resp::RespReply;
use crate::net::resp::caller::RespCaller;
use crate::net::resp::session::{BUSY, RespSession};
use crate::net::shared::PortMessage;
use crate::net::transport::Output;
use crate::net::waiting::WaitingConnection;
use crate::net::worker::PortWorker;

/// The replies to a SUBSCRIBE, and what it has begun.
#[derive(Default)]
struct Subscribing {
    said: Output,
    begun: Vec<ChannelName>,
}

/// SUBSCRIBE and the like. The client is answered when the host has confirmed all subscriptions:
/// from then on it hears every message.
pub(super) fn subscribe(caller: &mut RespCaller<'_>, kind: SubscriptionKind, args: &Args<'_>) {
    let (worker, engine) = (caller.worker, caller.engine());
    let most = engine.settings().port.max_channel_bytes.load(Ordering::Relaxed);
    if args.from(1).iter().any(|name| name.len() > most) {
        return caller.reply().error(&Error::ChannelTooLong(most).bare_text());
    }
    let (resp3, key) = (caller.session.resp3, caller.session.flow.client.key);
    let subscribing = Arc::new(Mutex::new(Subscribing::default()));
    let mut wait: Option<Arc<SubscriptionWait>> = None;
    for name in args.from(1) {
        let is_new = caller.session.subscribed.as_ref().is_none_or(|it| !it.has(kind, name));
        if is_new {
            let name = engine.pubsub.subscribe(worker.number, kind, name, || {
                let begin = || wait_for(wait_for_task(caller), kind, Arc::clone(&subscribing));
                Arc::clone(wait.get_or_insert_with(begin))
            });
            worker.subscribers.borrow_mut().add(kind, &name, key);
            subscribing.lock().begun.push(Arc::clone(&name));
            caller.session.subscribed.get_or_insert_default().add(kind, name);
        }
        let count = caller.session.subscribed.as_ref().map_or(0, |it| it.counted_with(kind));
        let mut subscribing = subscribing.lock();
        let mut reply = RespReply::new(&mut subscribing.said, resp3);
        confirm(&mut reply, words(kind).0, Some(name), count);
    }
    // If all is confirmed meanwhile, the wait ends here.
    if wait.is_none() {
        caller.reply().encoded(&subscribing.lock().said.own);
    }
}

/// The wait of a connection for the host. It ends with the replies, or with an error.
fn wait_for(
    waiting: WaitingConnection,
    kind: SubscriptionKind,
    subscribing: Arc<Mutex<Subscribing>>,
) -> Arc<SubscriptionWait> {
    SubscriptionWait::new(move |failure| {
        let Subscribing { said, begun } = std::mem::take(&mut *subscribing.lock());
        waiting.ends(|key| match failure {
            None => PortMessage::Part { key, said, seen: 0, last: true },
            Some(why) => {
                let text = format!("ERR no subscriptions on midi's port: {why}");
                PortMessage::NotSubscribed { key, kind, names: begun, text }
            }
        });
    })
}

/// UNSUBSCRIBE and the like: from these names, or from all of the kind.
pub(super) fn unsubscribe(caller: &mut RespCaller<'_>, kind: SubscriptionKind, args: &Args<'_>) {
    let all = match &caller.session.subscribed {
        Some(names) if args.len() == 1 => names.names(kind),
        _ => Vec::new(),
    };
    let all: Vec<&[u8]> = all.iter().map(|name| &**name).collect();
    let names = if args.len() == 1 { &all[..] } else { args.from(1) };
    let worker = caller.worker;
    for name in names {
        leave(worker, caller.session, kind, name);
        let count = counted(caller.session, kind);
        confirm(&mut caller.reply(), words(kind).1, Some(name), count);
    }
    if names.is_empty() {
        let count = counted(caller.session, kind);
        confirm(&mut caller.reply(), words(kind).1, None, count);
    }
}

fn counted(session: &RespSession, kind: SubscriptionKind) -> usize {
    session.subscribed.as_ref().map_or(0, |names| names.counted_with(kind))
}

/// Ends a subscription of a connection, if it has that.
pub fn leave(worker: &PortWorker, session: &mut RespSession, kind: SubscriptionKind, name: &[u8]) {
    let Some(names) = session.subscribed.as_mut() else { return };
    if let Some(name) = names.remove(kind, name) {
        worker.subscribers.borrow_mut().remove(kind, &name, session.flow.client.key);
        worker.engine().pubsub.unsubscribe(worker.number, kind, &name);
    }
    if names.is_empty() {
        session.subscribed = None;
    }
}

/// Ends all subscriptions of a connection.
pub fn leave_all(worker: &PortWorker, session: &mut RespSession) {
    let all = session.subscribed.as_ref().map_or_else(Vec::new, |names| names.all());
    all.iter().for_each(|(kind, name)| leave(worker, session, *kind, name));
}

/// The words of replies to the beginning and the end of a subscription.
fn words(kind: SubscriptionKind) -> (&'static str, &'static str) {
    match kind {
        SubscriptionKind::Channel => ("subscribe", "unsubscribe"),
        SubscriptionKind::Pattern => ("psubscribe", "punsubscribe"),
        SubscriptionKind::Shard => ("ssubscribe", "sunsubscribe"),
    }
}

fn confirm(reply: &mut RespReply<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
}

/// PING on a connection that speaks RESP2 and subscribes.
pub(super) fn pong(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let mut reply = caller.reply();
    reply.array(2);
    reply.bulk(b"pong");
    reply.bulk(if args.len() == 2 { args.get(1) } else { b"" });
}

/// PUBSUB's subcommands. The host's clients count as well as the ports'; the listener, by which the
/// ports hear, does not.
pub(super) fn pubsub(caller: &mut RespCaller<'_>, which: PubSubQuestion, args: &Args<'_>) {
    let lists = matches!(which, PubSubQuestion::Channels | PubSubQuestion::ShardChannels);
    if lists && args.len() > 3 {
        return caller.reply().error(&Error::SubcommandSyntax.text("pubsub", args));
    }
    let words: Vec<Vec<u8>> = args.from(1).iter().map(|word| word.to_vec()).collect();
    ask_main(caller, move |locked, engine, host| {
        let asked: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let found = host.map(|host| host.pubsub(locked, &asked));
        let kind = match which {
            PubSubQuestion::ShardNumSub => SubscriptionKind::Shard,
            _ => SubscriptionKind::Channel,
        };
        let beyond_host = engine.pubsub.patterns_beyond_host() as i64;
        let own: Vec<_> =
            asked[1..].iter().map(|name| engine.pubsub.subscribers(kind, name)).collect();
        Box::new(move |session, output| {
            let mut reply = session.reply(output);
            let Some(found) = found else { return reply.error(BUSY) };
            let number = |at: usize| {
                found.get(at).and_then(|text| crate::command::parse_integer(text)).unwrap_or(0)
            };
            match which {
                PubSubQuestion::Channels | PubSubQuestion::ShardChannels => {
                    reply.array(found.len());
                    found.iter().for_each(|name| reply.bulk(name));
                }
                // The host counts the patterns that the listener has, each once.
                PubSubQuestion::NumPat => reply.integer(number(0) + beyond_host),
                PubSubQuestion::NumSub | PubSubQuestion::ShardNumSub => {
                    reply.array(2 * own.len());
                    for (at, (name, own)) in words[1..].iter().zip(&own).enumerate() {
                        let others = (number(2 * at + 1) - own.at_host as i64).max(0);
                        reply.bulk(name);
                        reply.integer(others + own.clients as i64);
                    }
                }
            }
        })
    });
}
