//! Subscriptions of the ports' clients, and the messages that they hear.
//!
//! ```text
//! worker: SUBSCRIBE ─► PubSub ─► listener (host) ─► SUBSCRIBE, on one connection to the host
//!         replied   ◄─────────── confirmed       ◄─
//!         each client ◄─ Ports::hear, of workers with subscribers ◄─ message
//! ```
//!
//! The host matches messages with channels and patterns. What it confirms is heard from then on, so
//! a client is answered when the host has confirmed its subscription. Per name, one request is on
//! its way at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::command::SubscriptionKind;
use crate::command::glob;
use crate::limits::UNHEARD_BYTES;
use crate::store::SharedValue;

/// Subscriptions of the ports' clients.
#[derive(Default)]
pub struct PubSub {
    list: Mutex<SubscriptionList>,
    /// Wakes the listener.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Bytes of messages that workers have not given to their clients.
    unheard: Arc<AtomicUsize>,
}

/// A channel, or a pattern, that clients subscribe to. All that keep it share its bytes.
pub type ChannelName = Arc<[u8]>;

/// A change that the host must be told of: a subscription begins (true), or ends.
pub type SubscriptionChange = (SubscriptionKind, ChannelName, bool);

#[derive(Default)]
struct SubscriptionList {
    by_kind: [HashMap<ChannelName, Subscription>; 3],
    /// Names whose subscription at the host may have to change.
    changed: Vec<(SubscriptionKind, ChannelName)>,
}

#[derive(Default)]
struct Subscription {
    /// Workers, and how many of their clients subscribe.
    clients: SmallVec<[(usize, usize); 2]>,
    /// The host has confirmed it.
    is_at_host: bool,
    /// A request to begin or end it is on its way to the host.
    is_asked: bool,
    /// It is on the list of changes.
    is_listed: bool,
    /// Clients that wait until the host has confirmed it.
    waiting: Vec<Arc<SubscriptionWait>>,
}

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
}

impl Drop for SubscriptionWait {
    fn drop(&mut self) {
        if let Some(end) = self.end.get_mut().take() {
            end(self.failure.get_mut().take());
        }
    }
}

/// A message, as the workers that have subscribers get it.
pub struct HeardMessage {
    /// What the subscription is to ...
    pub kind: SubscriptionKind,
    /// ... and its channel or pattern.
    pub name: Box<[u8]>,
    /// The message's channel.
    pub channel: Box<[u8]>,
    /// The message.
    pub payload: SharedValue,
    unheard: Arc<AtomicUsize>,
    is_uncounted: AtomicBool,
}

impl HeardMessage {
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

/// Who hears a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receivers {
    /// Subscriptions of the listener's connection, each of which the host counts as a client.
    pub at_host: usize,
    /// Subscriptions of the ports' clients.
    pub clients: usize,
}

impl Subscription {
    fn clients(&self) -> usize {
        self.clients.iter().map(|(_, clients)| clients).sum()
    }

    fn add(&mut self, worker: usize) {
        match self.clients.iter_mut().find(|(of, _)| *of == worker) {
            Some((_, clients)) => *clients += 1,
            None => self.clients.push((worker, 1)),
        }
    }

    fn remove(&mut self, worker: usize) {
        if let Some(at) = self.clients.iter().position(|(of, _)| *of == worker) {
            self.clients[at].1 -= 1;
            if self.clients[at].1 == 0 {
                self.clients.swap_remove(at);
            }
        }
    }

    fn count(&self, receivers: &mut Receivers) {
        receivers.at_host += usize::from(self.is_at_host);
        receivers.clients += self.clients();
    }
}

impl SubscriptionList {
    /// Notes that the host may have to be told of this name. True if it was not noted before.
    fn note(&mut self, kind: SubscriptionKind, name: &ChannelName) -> bool {
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
    fn settle(&mut self, kind: SubscriptionKind, name: &ChannelName) -> Vec<Arc<SubscriptionWait>> {
        let names = &mut self.by_kind[kind as usize];
        let Some(subscription) = names.get_mut(name) else { return Vec::new() };
        let ended = std::mem::take(&mut subscription.waiting);
        if subscription.clients.is_empty() {
            names.remove(name);
        }
        ended
    }
}

impl PubSub {
    /// Sets how the listener is woken. Once.
    pub fn on_change(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// A client of this worker subscribes. If the host has not confirmed the subscription, `wait`
    /// is asked for the client's wait.
    pub fn subscribe(
        &self,
        worker: usize,
        kind: SubscriptionKind,
        name: &[u8],
        wait: impl FnOnce() -> Arc<SubscriptionWait>,
    ) -> ChannelName {
        let mut list = self.list.lock();
        let known = list.by_kind[kind as usize].get_key_value(name);
        let name = known.map_or_else(|| ChannelName::from(name), |(name, _)| Arc::clone(name));
        let subscription = list.by_kind[kind as usize].entry(Arc::clone(&name)).or_default();
        subscription.add(worker);
        if subscription.is_at_host && !subscription.is_asked {
            return name;
        }
        subscription.waiting.push(wait());
        let is_new = list.note(kind, &name);
        drop(list);
        if is_new {
            self.wake();
        }
        name
    }

    /// A client of this worker no longer subscribes.
    pub fn unsubscribe(&self, worker: usize, kind: SubscriptionKind, name: &ChannelName) {
        let mut list = self.list.lock();
        let Some(subscription) = list.by_kind[kind as usize].get_mut(name) else { return };
        subscription.remove(worker);
        let is_new = subscription.clients.is_empty() && list.note(kind, name);
        drop(list);
        if is_new {
            self.wake();
        }
    }

    /// Who hears a message on this channel.
    pub fn receivers(&self, channel: &[u8], is_shard: bool) -> Receivers {
        let (mut receivers, list) = (Receivers::default(), self.list.lock());
        let kind = if is_shard { SubscriptionKind::Shard } else { SubscriptionKind::Channel };
        if let Some(subscription) = list.by_kind[kind as usize].get(channel) {
            subscription.count(&mut receivers);
        }
        if !is_shard {
            let patterns = &list.by_kind[SubscriptionKind::Pattern as usize];
            let matching = patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
            matching.for_each(|(_, subscription)| subscription.count(&mut receivers));
        }
        receivers
    }

    /// Who subscribes to exactly this.
    pub fn subscribers(&self, kind: SubscriptionKind, name: &[u8]) -> Receivers {
        let mut receivers = Receivers::default();
        if let Some(subscription) = self.list.lock().by_kind[kind as usize].get(name) {
            subscription.count(&mut receivers);
        }
        receivers
    }

    /// How many channels, patterns and shard channels clients subscribe to.
    pub fn counts(&self) -> [usize; 3] {
        self.list.lock().by_kind.each_ref().map(HashMap::len)
    }

    /// For the listener: whether any client subscribes.
    pub fn is_needed(&self) -> bool {
        self.list.lock().by_kind.iter().any(|names| !names.is_empty())
    }

    /// For the listener: what the host must be told now.
    pub fn take_changes(&self) -> Vec<SubscriptionChange> {
        let mut ended = Vec::new();
        let mut list = self.list.lock();
        let changed = std::mem::take(&mut list.changed);
        let mut changes = Vec::new();
        for (kind, name) in changed {
            let names = &mut list.by_kind[kind as usize];
            let Some(subscription) = names.get_mut(&name) else { continue };
            subscription.is_listed = false;
            let is_wanted = !subscription.clients.is_empty();
            if is_wanted != subscription.is_at_host {
                subscription.is_asked = true;
                changes.push((kind, name, is_wanted));
            } else {
                ended.extend(list.settle(kind, &name));
            }
        }
        // The waits end without the lock.
        drop(list);
        changes
    }

    /// For the listener: the host has confirmed the beginning or the end of a subscription. True if
    /// that has to change again.
    pub fn confirmed(&self, kind: SubscriptionKind, name: &[u8], is_there: bool) -> bool {
        let mut list = self.list.lock();
        let Some((known, _)) = list.by_kind[kind as usize].get_key_value(name) else {
            return false;
        };
        let name = Arc::clone(known);
        let names = &mut list.by_kind[kind as usize];
        let Some(subscription) = names.get_mut(&name) else { return false };
        (subscription.is_asked, subscription.is_at_host) = (false, is_there);
        let changes = subscription.clients.is_empty() == is_there;
        let ended = if changes {
            list.note(kind, &name);
            Vec::new()
        } else {
            list.settle(kind, &name)
        };
        // The waits end without the lock.
        drop(list);
        drop(ended);
        changes
    }

    /// For the listener: its connection is lost, and with it all subscriptions at the host. If
    /// there is a reason why there will be no other one soon, clients that wait get it.
    pub fn lost(&self, failure: Option<&str>) {
        let failure = failure.map(Arc::<str>::from);
        let mut failed = Vec::new();
        let mut list = self.list.lock();
        let list = &mut *list;
        list.changed.clear();
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard]
        {
            let names = &mut list.by_kind[kind as usize];
            names.retain(|_, subscription| !subscription.clients.is_empty());
            for (name, subscription) in names.iter_mut() {
                (subscription.is_asked, subscription.is_at_host) = (false, false);
                subscription.is_listed = true;
                list.changed.push((kind, Arc::clone(name)));
                if failure.is_some() {
                    failed.append(&mut subscription.waiting);
                }
            }
        }
        failed.iter().for_each(|wait| *wait.failure.lock() = failure.clone());
    }

    /// For the listener: whether the workers have so much to do that no more should be read.
    pub fn is_behind(&self) -> bool {
        self.unheard.load(Ordering::Relaxed) > UNHEARD_BYTES
    }

    /// For the listener: a message of the host's, and the workers whose clients hear it.
    pub fn hear(
        &self,
        kind: SubscriptionKind,
        name: &[u8],
        channel: &[u8],
        payload: &[u8],
    ) -> (SmallVec<[usize; 16]>, Arc<HeardMessage>) {
        let message = HeardMessage {
            kind,
            name: name.into(),
            channel: channel.into(),
            payload: SharedValue::new(payload.to_vec()),
            unheard: Arc::clone(&self.unheard),
            is_uncounted: AtomicBool::new(false),
        };
        self.unheard.fetch_add(message.bytes(), Ordering::Relaxed);
        let list = self.list.lock();
        let subscription = list.by_kind[kind as usize].get(name);
        let workers =
            subscription.into_iter().flat_map(|it| &it.clients).map(|(worker, _)| *worker);
        (workers.collect(), Arc::new(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: SubscriptionKind = SubscriptionKind::Channel;

    /// A wait, and whether it has ended with a failure.
    fn wait() -> (Arc<SubscriptionWait>, Arc<Mutex<Vec<bool>>>) {
        let ends = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&ends);
        (SubscriptionWait::new(move |failure| seen.lock().push(failure.is_some())), ends)
    }

    fn subscribe(all: &PubSub, worker: usize) -> Arc<Mutex<Vec<bool>>> {
        let (wait, ends) = wait();
        all.subscribe(worker, KIND, b"c", || wait);
        ends
    }

    #[test]
    fn a_client_waits_until_the_host_has_confirmed() {
        let all = PubSub::default();
        let woken = Arc::new(AtomicBool::new(false));
        let wakes = Arc::clone(&woken);
        all.on_change(move || wakes.store(true, Ordering::Relaxed));
        let ends = subscribe(&all, 0);
        assert!(woken.load(Ordering::Relaxed));
        assert_eq!(all.take_changes(), [(KIND, b"c"[..].into(), true)]);
        assert!(all.take_changes().is_empty() && ends.lock().is_empty());
        assert!(!all.confirmed(KIND, b"c", true));
        assert_eq!(*ends.lock(), [false]);
        // The next one need not wait.
        all.subscribe(1, KIND, b"c", || unreachable!());
        let (workers, message) = all.hear(KIND, b"c", b"c", b"m");
        assert_eq!((&workers[..], message.payload.bytes()), (&[0, 1][..], &b"m"[..]));
        assert_eq!(all.receivers(b"c", false), Receivers { at_host: 1, clients: 2 });
        assert_eq!(all.receivers(b"c", true), Receivers::default());
        assert!(all.unheard.load(Ordering::Relaxed) > 0);
        drop(message);
        assert_eq!(all.unheard.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_request_is_on_its_way_at_a_time() {
        let all = PubSub::default();
        let name = b"c"[..].into();
        let first = subscribe(&all, 0);
        assert_eq!(all.take_changes().len(), 1);
        all.unsubscribe(0, KIND, &name);
        assert!(all.take_changes().is_empty(), "the first has not been confirmed");
        assert!(all.confirmed(KIND, b"c", true), "and has to be taken back");
        assert_eq!(all.take_changes(), [(KIND, Arc::clone(&name), false)]);
        let second = subscribe(&all, 0);
        assert!(all.take_changes().is_empty());
        assert!(all.confirmed(KIND, b"c", false), "it is wanted again");
        assert_eq!(all.take_changes(), [(KIND, name, true)]);
        assert!(second.lock().is_empty());
        assert!(!all.confirmed(KIND, b"c", true));
        assert_eq!((first.lock().len(), &**second.lock()), (1, &[false][..]));
    }

    #[test]
    fn a_lost_connection_begins_again() {
        let all = PubSub::default();
        let ends = subscribe(&all, 0);
        all.take_changes();
        all.lost(None);
        assert!(ends.lock().is_empty());
        assert_eq!(all.take_changes().len(), 1);
        all.lost(Some("no way"));
        assert_eq!(*ends.lock(), [true]);
        all.unsubscribe(0, KIND, &b"c"[..].into());
        assert!(all.take_changes().is_empty() && !all.is_needed());
    }

    #[test]
    fn patterns_match_as_the_hosts() {
        let all = PubSub::default();
        let (wait, _ends) = wait();
        all.subscribe(0, SubscriptionKind::Pattern, b"a*", || wait);
        assert_eq!(all.receivers(b"ab", false), Receivers { at_host: 0, clients: 1 });
        assert_eq!(all.receivers(b"b", false), Receivers::default());
        assert_eq!(all.subscribers(SubscriptionKind::Pattern, b"a*").clients, 1);
    }
}
