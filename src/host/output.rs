//! The host's `client-output-buffer-limit`: replies that other threads make for its clients end at
//! this limit. The host itself checks it only when such a reply is complete.
//!
//! It then closes the client, and sends nothing of the reply. So the rest of the reply is not
//! needed, and the client is closed here. The soft limit, which applies only after some seconds,
//! does not count.

use std::sync::atomic::Ordering;

use midi_module_api as raw;

use super::api::{Ctx, Level, api, client_flags, log};
use super::instance::instance;
use super::listener;
use crate::command::{LEAST_ELEMENT_BYTES, Reply};
use crate::engine::Locked;
use crate::limits::{
    HOST_OUTPUT_BESIDE, PUBSUB_OUTPUT_HARD, PUBSUB_OUTPUT_SECONDS, PUBSUB_OUTPUT_SOFT,
};

/// Reads the host's setting. At load, and when a setting has changed. If normal clients have no
/// limit, or the host reports none, no client has one: the host then judges whole replies, and a
/// guess would close clients that it lets live.
pub fn look(ctx: Ctx<'_>) {
    let text = ctx.config_text(c"client-output-buffer-limit").unwrap_or_default();
    let normal = hard_limit(&text, b"normal").map_or(usize::MAX, reply_limit);
    let pubsub = hard_limit(&text, b"pubsub").map_or(usize::MAX, reply_limit);
    instance().output.normal.set(normal as u64);
    instance().output.pubsub.set(pubsub as u64);
    listener::take_limits(&text);
    let largest = if normal == usize::MAX { normal } else { normal.max(pubsub) };
    instance().engine.settings().host_output.store(largest, Ordering::Relaxed);
}

/// The size beyond which the host cannot let a reply pass.
fn reply_limit(hard: usize) -> usize {
    hard.saturating_add(HOST_OUTPUT_BESIDE)
}

/// The hard limit of a class, if it has any, in `class hard soft seconds class hard …`.
fn hard_limit(text: &[u8], class: &[u8]) -> Option<usize> {
    let mut words = text.split(|&byte| byte == b' ').skip_while(|&word| word != class);
    let hard = std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()?;
    (hard > 0).then_some(hard)
}

/// The limits of the class of subscribers: hard, soft, seconds. Redis's defaults if the host does
/// not report them.
pub fn pubsub_limits(text: &[u8]) -> [usize; 3] {
    let words = text.split(|&byte| byte == b' ').skip_while(|&word| word != b"pubsub");
    let numbers =
        words.skip(1).take(3).map_while(|word| std::str::from_utf8(word).ok()?.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let default = [PUBSUB_OUTPUT_HARD, PUBSUB_OUTPUT_SOFT, PUBSUB_OUTPUT_SECONDS];
    numbers.try_into().unwrap_or(default.map(|number| number as usize))
}

/// The largest reply that the client may get now, in bytes.
pub fn most_for(_: Locked<'_>, client: u64) -> usize {
    let limits = &instance().output;
    let (normal, pubsub) = (limits.normal.get() as usize, limits.pubsub.get() as usize);
    if normal == usize::MAX || normal == pubsub {
        return normal;
    }
    let is_pubsub = client_flags(client) & raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB != 0;
    if is_pubsub { pubsub } else { normal }
}

/// Closes a client whose reply was too large to be made in full.
pub fn close(ctx: Ctx<'_>, client: u64) {
    // SAFETY: a valid context on the main thread. The host marks the client, and frees it later.
    let known = unsafe { api!(RedisModule_DeauthenticateAndCloseClient)(ctx.raw(), client) };
    if known == raw::REDISMODULE_OK {
        let text = format!("Client id={client} closed for overcoming of output buffer limits.");
        log(ctx, Level::Warning, &text);
    }
}

/// A sink that takes `most` bytes, and nothing more once a reply exceeds them.
pub struct UpTo<R> {
    to: R,
    written: usize,
    most: usize,
}

impl<R: Reply> UpTo<R> {
    /// Passes on up to `most` bytes to `to`.
    pub fn new(to: R, most: usize) -> Self {
        UpTo { to, written: 0, most }
    }

    /// Whether something was left out.
    pub fn is_cut(&self) -> bool {
        self.written > self.most
    }

    /// Leaves out everything from here on.
    pub fn cut(&mut self) {
        (self.written, self.most) = (1, 0);
    }

    /// The sink, if there is room for `bytes` more bytes.
    fn room_for(&mut self, bytes: usize) -> Option<&mut R> {
        if self.is_cut() {
            return None;
        }
        self.written = self.written.saturating_add(bytes + LEAST_ELEMENT_BYTES);
        if self.is_cut() { None } else { Some(&mut self.to) }
    }
}

/// Passes a part of a reply on, if there is room for so many bytes.
macro_rules! if_room {
    ($($part:ident($($arg:ident: $type:ty)?): $bytes:expr;)*) => {$(
        fn $part(&mut self, $($arg: $type)?) {
            if let Some(to) = self.room_for($bytes) {
                to.$part($($arg)?);
            }
        }
    )*};
}

impl<R: Reply> Reply for UpTo<R> {
    if_room! {
        simple(text: &'static str): text.len();
        null(): 0;
        integer(number: i64): 0;
        bulk(bytes: &[u8]): bytes.len();
        double(text: &str): text.len();
        verbatim(text: &[u8]): text.len();
        error(text: &[u8]): text.len();
        array(len: usize): 0;
        map(len: usize): 0;
        pairs(len: usize): 0;
        pair(): 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Transcript;

    #[test]
    fn the_hosts_text_is_read() {
        let text = b"normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        assert_eq!(
            (hard_limit(text, b"normal"), hard_limit(text, b"pubsub")),
            (None, Some(32 << 20))
        );
        assert_eq!(pubsub_limits(text), [33_554_432, 8_388_608, 60]);
        assert_eq!(pubsub_limits(b"normal 1 1 1 pubsub 0 7 9"), [0, 7, 9]);
        assert_eq!(pubsub_limits(b"pubsub 0 7"), pubsub_limits(b""));
        assert_eq!(hard_limit(b"normal 10 5 1 pubsub 0 0 0", b"normal"), Some(10));
        for text in [&b""[..], b"normal", b"normal x", b"pubsub 7 7 7"] {
            assert_eq!(hard_limit(text, b"normal"), None);
        }
    }

    #[test]
    fn nothing_is_written_beyond_the_limit() {
        let mut reply = UpTo::new(Transcript::default(), 100);
        reply.bulk(&[b'x'; 50]);
        assert!(!reply.is_cut());
        let before = reply.to.len();
        reply.bulk(&[b'x'; 50]);
        reply.null();
        assert!(reply.is_cut() && reply.to.len() == before);
        let mut reply = UpTo::new(Transcript::default(), usize::MAX);
        reply.bulk(b"");
        reply.cut();
        reply.null();
        assert!(reply.is_cut() && reply.to.len() == 9);
    }
}
