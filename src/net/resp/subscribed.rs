//! What a connection subscribes to.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::command::SubscriptionKind;
use crate::engine::{ChannelName, HeardMessage, User};

/// All kinds of subscriptions.
const KINDS: [SubscriptionKind; 3] =
    [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard];

/// The subscriptions of a connection, and the messages that it has not been told.
#[derive(Default)]
pub struct SubscribedNames {
    by_kind: [BTreeSet<ChannelName>; 3],
    /// Messages that have come amid another reply.
    pub(in crate::net) waiting: VecDeque<Arc<HeardMessage>>,
    /// Their bytes.
    pub(in crate::net) waiting_bytes: usize,
}

impl SubscribedNames {
    /// Whether it subscribes to this.
    pub fn has(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.by_kind[kind as usize].contains(name)
    }

    pub(super) fn add(&mut self, kind: SubscriptionKind, name: ChannelName) {
        self.by_kind[kind as usize].insert(name);
    }

    pub(super) fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> Option<ChannelName> {
        self.by_kind[kind as usize].take(name)
    }

    /// The names of a kind.
    pub(super) fn names(&self, kind: SubscriptionKind) -> Vec<ChannelName> {
        self.by_kind[kind as usize].iter().map(Arc::clone).collect()
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(SubscriptionKind, ChannelName)> {
        let of_kind = |kind| self.names(kind).into_iter().map(move |name| (kind, name));
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    /// How many there are of each kind.
    pub fn counts(&self) -> [usize; 3] {
        self.by_kind.each_ref().map(BTreeSet::len)
    }

    /// How many there are of a kind.
    fn count(&self, kind: SubscriptionKind) -> usize {
        self.by_kind[kind as usize].len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_kind.iter().all(BTreeSet::is_empty)
    }

    /// The number that SUBSCRIBE and the like reply with: shard channels are counted apart.
    pub(super) fn counted_with(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::Shard => self.count(kind),
            _ => self.count(SubscriptionKind::Channel) + self.count(SubscriptionKind::Pattern),
        }
    }

    /// Whether the user's rules allow all of them.
    pub(super) fn are_allowed(&self, user: &User) -> bool {
        let is_allowed = |kind: SubscriptionKind, name: &ChannelName| user.may_hear(kind, name);
        KINDS
            .into_iter()
            .all(|kind| self.by_kind[kind as usize].iter().all(|name| is_allowed(kind, name)))
    }
}
