//! The subscriptions of the ports' clients, and who waits for them.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::command::SubscriptionKind;
use crate::command::glob;
use crate::limits::{NAMES_KEPT, PATTERNS_AT_HOST};

/// A channel, or a pattern, that clients subscribe to. All that keep it share its bytes.
pub type ChannelName = Arc<[u8]>;

/// Workers whose clients hear a message.
pub type HearingWorkers = SmallVec<[usize; 16]>;

/// A change that the host must be told of: a subscription begins (true), or ends.
pub type SubscriptionChange = (SubscriptionKind, ChannelName, bool);

#[derive(Default)]
pub(super) struct SubscriptionList {
    pub(super) by_kind: [HashMap<ChannelName, Subscription>; 3],
    /// Names whose subscription at the host may have to change.
    pub(super) changed: Vec<(SubscriptionKind, ChannelName)>,
}

#[derive(Default)]
pub(super) struct Subscription {
    /// Workers, and how many of their clients subscribe.
    pub(super) clients: SmallVec<[(usize, usize); 2]>,
    /// The host has confirmed it.
    pub(super) is_at_host: bool,
    /// A request to begin or end it is on its way to the host.
    pub(super) is_asked: bool,
    /// It is on the list of changes.
    pub(super) is_listed: bool,
    /// Waits of clients that subscribe, and of those that publish to them, until the host has
    /// confirmed it.
    pub(super) waiting: Vec<Arc<SubscriptionWait>>,
    /// A pattern that the host is not told of: its messages come by `*`.
    pub(super) is_covered: bool,
    /// How many such patterns there are, at `*`.
    covers: usize,
}

/// Removes a name that nobody subscribes to. A map that was much larger gives memory back.
pub fn remove_name<V>(names: &mut HashMap<ChannelName, V>, name: &ChannelName) {
    const SPARSE: usize = 8;
    names.remove(name);
    if names.capacity() > NAMES_KEPT && names.len() < names.capacity() / SPARSE {
        names.shrink_to(2 * names.len());
    }
}

/// The pattern by which messages for others come, too.
const ALL: &[u8] = b"*";

/// A client's wait for subscriptions. It ends when nobody keeps this any more: each subscription
/// that the host has not confirmed does.
pub struct SubscriptionWait {
    failure: Mutex<Option<Arc<str>>>,
    end: Mutex<Option<EndOfWait>>,
}

/// Ends a wait. It gets the reason if the host could not be told of the subscriptions.
type EndOfWait = Box<dyn FnOnce(Option<Arc<str>>) + Send>;

impl SubscriptionWait {
    /// A wait that is ended by `end`.
    pub fn new(end: impl FnOnce(Option<Arc<str>>) + Send + 'static) -> Arc<Self> {
        Arc::new(SubscriptionWait {
            failure: Mutex::default(),
            end: Mutex::new(Some(Box::new(end))),
        })
    }

    /// It will end with this failure.
    pub(super) fn fail(&self, why: Option<Arc<str>>) {
        *self.failure.lock() = why;
    }
}

impl Drop for SubscriptionWait {
    fn drop(&mut self) {
        if let Some(end) = self.end.get_mut().take() {
            end(self.failure.get_mut().take());
        }
    }
}

/// Who hears a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receivers {
    /// Subscriptions of the listener's connection, each of which the host counts as a client.
    pub at_host: usize,
    /// Subscriptions of the ports' clients.
    pub clients: usize,
}

impl Subscription {
    /// Whether the host should have it, unless it is covered.
    pub(super) fn is_wanted(&self) -> bool {
        !self.clients.is_empty() || self.covers > 0
    }

    fn clients(&self) -> usize {
        self.clients.iter().map(|(_, clients)| clients).sum()
    }

    pub(super) fn add(&mut self, worker: usize) {
        match self.clients.iter_mut().find(|(of, _)| *of == worker) {
            Some((_, clients)) => *clients += 1,
            None => self.clients.push((worker, 1)),
        }
    }

    pub(super) fn remove(&mut self, worker: usize) {
        if let Some(at) = self.clients.iter().position(|(of, _)| *of == worker) {
            self.clients[at].1 -= 1;
            if self.clients[at].1 == 0 {
                self.clients.swap_remove(at);
            }
        }
    }

    pub(super) fn count(&self, receivers: &mut Receivers) {
        receivers.at_host += usize::from(self.is_at_host);
        receivers.clients += self.clients();
    }
}

impl SubscriptionList {
    /// The shared form of a name that a client subscribes to.
    pub(super) fn enter(&mut self, kind: SubscriptionKind, name: &[u8]) -> ChannelName {
        let names = &mut self.by_kind[kind as usize];
        if let Some((known, _)) = names.get_key_value(name) {
            return Arc::clone(known);
        }
        let covered = names.get(ALL).map_or(0, |all| all.covers);
        // `*` does not match the empty channel.
        let is_covered = kind == SubscriptionKind::Pattern
            && ![b"", ALL].contains(&name)
            && names.len() - covered >= PATTERNS_AT_HOST;
        if is_covered {
            names.entry(ALL.into()).or_default().covers += 1;
        }
        let name = ChannelName::from(name);
        let subscription = Subscription { is_covered, ..Subscription::default() };
        names.insert(Arc::clone(&name), subscription);
        name
    }

    /// No client subscribes to it any more. True if the host may have to be told, and that was not
    /// noted before.
    pub(super) fn leave(&mut self, kind: SubscriptionKind, name: &ChannelName) -> bool {
        let names = &mut self.by_kind[kind as usize];
        if names.get(name).is_none_or(|subscription| !subscription.is_covered) {
            return self.note(kind, name);
        }
        remove_name(names, name);
        let Some(all) = names.get_mut(ALL) else { return false };
        all.covers -= 1;
        !all.is_wanted() && self.note(kind, &ALL.into())
    }

    /// The name by which the host knows this subscription.
    pub(super) fn name_at_host(&self, kind: SubscriptionKind, name: &ChannelName) -> ChannelName {
        let subscription = self.by_kind[kind as usize].get(name);
        let is_covered = subscription.is_some_and(|subscription| subscription.is_covered);
        if is_covered { ALL.into() } else { Arc::clone(name) }
    }

    /// `*`, if clients subscribe to it, or it covers other patterns.
    pub(super) fn all(&self) -> Option<&Subscription> {
        self.by_kind[SubscriptionKind::Pattern as usize].get(ALL)
    }

    /// How many patterns the host does not know of; `*` is one less if no client subscribes to it.
    pub(super) fn beyond_host(&self) -> usize {
        let beyond = |all: &Subscription| all.covers - usize::from(all.clients.is_empty());
        self.all().filter(|all| all.covers > 0).map_or(0, beyond)
    }

    /// The names of clients' subscriptions that hear what comes for this one, and their workers.
    pub(super) fn hearing(
        &self,
        kind: SubscriptionKind,
        name: &[u8],
        channel: &[u8],
    ) -> Vec<(ChannelName, HearingWorkers)> {
        let names = &self.by_kind[kind as usize];
        let Some((name, subscription)) = names.get_key_value(name) else { return Vec::new() };
        let own = (!subscription.clients.is_empty()).then_some((name, subscription));
        let covers = subscription.covers > 0;
        let covered = covers.then(|| names.iter()).into_iter().flatten();
        let covered =
            covered.filter(|(pattern, other)| other.is_covered && glob::matches(pattern, channel));
        let workers = |of: &Subscription| of.clients.iter().map(|(worker, _)| *worker).collect();
        own.into_iter()
            .chain(covered)
            .map(|(name, subscription)| (Arc::clone(name), workers(subscription)))
            .collect()
    }

    /// Whether the host sends messages for it.
    pub(super) fn is_heard(&self, subscription: &Subscription) -> bool {
        match self.all() {
            Some(all) if subscription.is_covered => all.is_at_host,
            _ => subscription.is_at_host,
        }
    }

    /// Gives `to` those subscriptions to this channel, and to patterns that match it, that are
    /// `such`.
    pub(super) fn each_of(
        &self,
        channel: &[u8],
        is_shard: bool,
        such: impl Fn(&Subscription) -> bool,
        mut to: impl FnMut(SubscriptionKind, &ChannelName, &Subscription),
    ) {
        let kind = if is_shard { SubscriptionKind::Shard } else { SubscriptionKind::Channel };
        let exact = self.by_kind[kind as usize].get_key_value(channel);
        if let Some((name, subscription)) = exact.filter(|(_, subscription)| such(subscription)) {
            to(kind, name, subscription);
        }
        if !is_shard {
            let kind = SubscriptionKind::Pattern;
            let patterns = self.by_kind[kind as usize].iter();
            patterns
                .filter(|(_, subscription)| such(subscription))
                .filter(|(pattern, _)| glob::matches(pattern, channel))
                .for_each(|(pattern, subscription)| to(kind, pattern, subscription));
        }
    }

    /// Notes that the host may have to be told of this name. True if it was not noted before.
    pub(super) fn note(&mut self, kind: SubscriptionKind, name: &ChannelName) -> bool {
        let Some(subscription) = self.by_kind[kind as usize].get_mut(name) else { return false };
        if subscription.is_listed || subscription.is_asked {
            return false;
        }
        subscription.is_listed = true;
        self.changed.push((kind, Arc::clone(name)));
        true
    }

    /// A subscription is at the host as clients want it, so one that nobody wants is forgotten.
    /// Returns the waits that this ends.
    pub(super) fn settle(
        &mut self,
        kind: SubscriptionKind,
        name: &ChannelName,
    ) -> Vec<Arc<SubscriptionWait>> {
        let names = &mut self.by_kind[kind as usize];
        let Some(subscription) = names.get_mut(name) else { return Vec::new() };
        let ended = std::mem::take(&mut subscription.waiting);
        if !subscription.is_wanted() {
            remove_name(names, name);
        }
        ended
    }
}
