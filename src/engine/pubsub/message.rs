//! A message on its way to the ports' clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::ChannelName;
use crate::command::SubscriptionKind;
use crate::store::SharedValue;

/// A message, as the workers that have subscribers get it.
pub struct HeardMessage {
    /// What the subscription is to ...
    pub kind: SubscriptionKind,
    /// ... and its channel or pattern.
    pub name: ChannelName,
    /// The message's channel.
    pub channel: Arc<[u8]>,
    /// The message.
    pub payload: SharedValue,
    unheard: Arc<AtomicUsize>,
    is_uncounted: AtomicBool,
}

impl HeardMessage {
    /// As the host said it. `unheard` counts its bytes until it is heard.
    pub(super) fn new(
        kind: SubscriptionKind,
        name: ChannelName,
        channel: Arc<[u8]>,
        payload: SharedValue,
        unheard: &Arc<AtomicUsize>,
    ) -> Self {
        let message = HeardMessage {
            kind,
            name,
            channel,
            payload,
            unheard: Arc::clone(unheard),
            is_uncounted: AtomicBool::new(false),
        };
        unheard.fetch_add(message.bytes(), Ordering::Relaxed);
        message
    }

    /// It no longer counts as unheard: it waits with a client, whose own limit counts it, so that a
    /// client that is never ready for it does not hold up the others.
    pub fn uncount(&self) {
        if !self.is_uncounted.swap(true, Ordering::Relaxed) {
            self.unheard.fetch_sub(self.bytes(), Ordering::Relaxed);
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.channel.len() + self.payload.bytes().len() + size_of::<Self>()
    }
}

impl Drop for HeardMessage {
    fn drop(&mut self) {
        self.uncount();
    }
}
