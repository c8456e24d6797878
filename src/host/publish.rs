//! PUBLISH, SPUBLISH and PUBSUB of the ports' clients. The host does them: so its own clients, its
//! replicas and, through the listener, the ports' clients hear each message once, and in one order.

use super::api::Answer;
use super::instance::instance;
use super::scripts::append_reply_of_host;
use crate::command::{Args, parse_integer};
use crate::engine::{Locked, ScriptReply};
use crate::host::api::Ctx;

/// Sends a message, and appends the reply. The user's rights have been judged. False if the host
/// has no such command any more.
pub fn publish(ctx: Ctx<'_>, args: &Args<'_>, reply: &mut ScriptReply) -> bool {
    let is_shard = args.is(0, "spublish");
    let receivers = instance().engine.pubsub.receivers(args.get(1), is_shard);
    let begin = reply.len();
    if !append_reply_of_host(ctx, c"vE!", args, reply) {
        return false;
    }
    let number = reply[begin..].strip_prefix(b":").map(|text| parse_integer(text.trim_ascii_end()));
    if let Some(of_host) = number.flatten() {
        // The listener is one of the clients that the host counts.
        let others = (of_host - receivers.at_host as i64).max(0);
        reply.truncate(begin);
        reply.extend_from_slice(format!(":{}\r\n", others + receivers.clients as i64).as_bytes());
    }
    true
}

/// The host's reply to PUBSUB with these words: its texts and numbers, as texts.
pub fn ask(locked: Locked<'_>, words: &[&[u8]]) -> Vec<Vec<u8>> {
    let texts = |answer: Answer| match answer {
        Answer::Text(text) => Some(text),
        Answer::Number(number) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    match instance().ctx(locked).call(c"PUBSUB", words) {
        Answer::List(list) => list.into_iter().filter_map(texts).collect(),
        other => texts(other).into_iter().collect(),
    }
}
