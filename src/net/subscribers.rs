//! The subscribers among a worker's connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::transport::Key;
use crate::command::SubscriptionKind;
use crate::engine::{ChannelName, HeardMessage, remove_name};

/// The subscribers among a worker's connections, by what they subscribe to.
#[derive(Default)]
pub struct Subscribers {
    by_kind: [HashMap<ChannelName, Subscribed>; 3],
}

/// The subscribers of a name.
#[derive(Default)]
struct Subscribed {
    keys: BTreeSet<Key>,
    /// The same as a list, which all messages share that are given meanwhile.
    list: Option<Arc<[Key]>>,
}

impl Subscribers {
    /// A connection subscribes.
    pub fn add(&mut self, kind: SubscriptionKind, name: &ChannelName, key: Key) {
        let subscribed = self.by_kind[kind as usize].entry(Arc::clone(name)).or_default();
        subscribed.keys.insert(key);
        subscribed.list = None;
    }

    /// It no longer does.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &ChannelName, key: Key) {
        let names = &mut self.by_kind[kind as usize];
        if let Some(subscribed) = names.get_mut(name) {
            subscribed.keys.remove(&key);
            subscribed.list = None;
            if subscribed.keys.is_empty() {
                remove_name(names, name);
            }
        }
    }

    /// Those that hear a message.
    pub fn of(&mut self, message: &HeardMessage) -> Arc<[Key]> {
        let names = &mut self.by_kind[message.kind as usize];
        let Some(subscribed) = names.get_mut(&*message.name) else { return Arc::default() };
        let Subscribed { keys, list } = subscribed;
        Arc::clone(list.get_or_insert_with(|| keys.iter().copied().collect()))
    }
}
