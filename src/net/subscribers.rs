//! The subscribers among a worker's connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::transport::Key;
use crate::command::SubscriptionKind;
use crate::engine::{ChannelName, HeardMessage};

/// The subscribers among a worker's connections, by what they subscribe to.
#[derive(Default)]
pub struct Subscribers {
    by_kind: [HashMap<ChannelName, BTreeSet<Key>>; 3],
}

impl Subscribers {
    /// A connection subscribes.
    pub fn add(&mut self, kind: SubscriptionKind, name: &ChannelName, key: Key) {
        self.by_kind[kind as usize].entry(Arc::clone(name)).or_default().insert(key);
    }

    /// It no longer does.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &ChannelName, key: Key) {
        let names = &mut self.by_kind[kind as usize];
        if let Some(keys) = names.get_mut(name) {
            keys.remove(&key);
            if keys.is_empty() {
                names.remove(name);
            }
        }
    }

    /// Those that hear a message.
    pub fn of(&self, message: &HeardMessage) -> Vec<Key> {
        let keys = self.by_kind[message.kind as usize].get(&*message.name);
        keys.into_iter().flatten().copied().collect()
    }
}
