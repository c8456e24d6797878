//! Subscriptions of the ports' clients, and the messages that they hear.
//!
//! ```text
//! worker: SUBSCRIBE ─► PubSub ─► listener (host) ─► SUBSCRIBE, on one connection to the host
//!         replied   ◄─────────── confirmed       ◄─
//!         each client ◄─ Ports::hear, of workers with subscribers ◄─ message
//! ```
//!
//! The host matches messages with channels, and with as many patterns as are cheap for it. Those
//! beyond hear `*`, and are matched here: a message that matches very many would otherwise fill the
//! host's output to the listener, on which all clients depend. What the host confirms is heard from
//! then on, so a client is answered when the host has confirmed its subscription. Per name, one
//! request is on its way at a time.

mod message;
mod subscriptions;

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;

pub use message::HeardMessage;
pub use subscriptions::{
    ChannelName, Receivers, SubscriptionChange, SubscriptionWait, remove_name,
};
use subscriptions::{HearingWorkers, Subscription, SubscriptionList};

use crate::command::SubscriptionKind;
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
        let name = list.enter(kind, name);
        let at_host = list.name_at_host(kind, &name);
        let names = &mut list.by_kind[kind as usize];
        names.entry(Arc::clone(&name)).or_default().add(worker);
        let subscription = names.entry(Arc::clone(&at_host)).or_default();
        if subscription.is_at_host && !subscription.is_asked {
            return name;
        }
        subscription.waiting.push(wait());
        let is_new = list.note(kind, &at_host);
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
        let is_new = subscription.clients.is_empty() && list.leave(kind, name);
        drop(list);
        if is_new {
            self.wake();
        }
    }

    /// Subscriptions that hear a message on this channel, and that their clients wait for.
    pub fn awaited(&self, channel: &[u8], is_shard: bool) -> Vec<(SubscriptionKind, ChannelName)> {
        let (mut awaited, list) = (Vec::new(), self.list.lock());
        let waits = |subscription: &Subscription| !subscription.waiting.is_empty();
        list.each_of(channel, is_shard, waits, |kind, name, _| {
            awaited.push((kind, Arc::clone(name)));
        });
        awaited
    }

    /// Has `wait` last until the clients that wait for these subscriptions need no longer do so.
    pub fn wait_with(
        &self,
        awaited: &[(SubscriptionKind, ChannelName)],
        wait: &Arc<SubscriptionWait>,
    ) {
        let mut list = self.list.lock();
        for (kind, name) in awaited {
            if let Some(subscription) = list.by_kind[*kind as usize].get_mut(name)
                && !subscription.waiting.is_empty()
            {
                subscription.waiting.push(Arc::clone(wait));
            }
        }
    }

    /// Who hears a message on this channel now: nobody whose subscription the host has not
    /// confirmed, or while the listener is not connected.
    pub fn receivers(&self, channel: &[u8], is_shard: bool) -> Receivers {
        let (mut receivers, list) = (Receivers::default(), self.list.lock());
        let hears = |subscription: &Subscription| list.is_heard(subscription);
        list.each_of(channel, is_shard, hears, |_, _, subscription| {
            subscription.count(&mut receivers);
        });
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
        let list = self.list.lock();
        let [channels, patterns, shards] = list.by_kind.each_ref().map(HashMap::len);
        let is_midis = list.all().is_some_and(|all| all.clients.is_empty());
        [channels, patterns - usize::from(is_midis), shards]
    }

    /// How many patterns more the clients subscribe to than the host knows of.
    pub fn patterns_beyond_host(&self) -> usize {
        self.list.lock().beyond_host()
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
            let is_wanted = subscription.is_wanted();
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
        let changes = subscription.is_wanted() != is_there;
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

    /// For the listener: the host has refused to begin or end a subscription, and clients that wait
    /// for it get the reason. True if the host should be asked [again](PubSub::ask_again) later.
    pub fn refused(&self, (kind, name, _): &SubscriptionChange, why: &str) -> bool {
        let mut list = self.list.lock();
        let names = &mut list.by_kind[*kind as usize];
        let Some(subscription) = names.get_mut(name) else { return false };
        subscription.is_asked = false;
        let is_open = subscription.is_wanted() != subscription.is_at_host;
        let ended = if is_open {
            std::mem::take(&mut subscription.waiting)
        } else {
            list.settle(*kind, name)
        };
        // The waits end without the lock.
        drop(list);
        if is_open {
            let why = Arc::<str>::from(why);
            ended.iter().for_each(|wait| wait.fail(Some(Arc::clone(&why))));
        }
        is_open
    }

    /// For the listener: the host is to be told of these again.
    pub fn ask_again(&self, refused: &[SubscriptionChange]) {
        let mut list = self.list.lock();
        for (kind, name, _) in refused {
            list.note(*kind, name);
        }
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
            names.retain(|_, subscription| subscription.is_wanted());
            for (name, subscription) in names.iter_mut().filter(|(_, it)| !it.is_covered) {
                (subscription.is_asked, subscription.is_at_host) = (false, false);
                subscription.is_listed = true;
                list.changed.push((kind, Arc::clone(name)));
                if failure.is_some() {
                    failed.append(&mut subscription.waiting);
                }
            }
        }
        failed.iter().for_each(|wait| wait.fail(failure.clone()));
    }

    /// For the listener: whether the workers have so much to do that no more should be read.
    pub fn is_behind(&self) -> bool {
        self.unheard.load(Ordering::Relaxed) > UNHEARD_BYTES
    }

    /// For the listener: a message of the host's, as the clients of each of these workers hear it:
    /// several times if patterns are matched here.
    pub fn hear(
        &self,
        kind: SubscriptionKind,
        name: &[u8],
        channel: &[u8],
        payload: &[u8],
    ) -> Vec<(HearingWorkers, Arc<HeardMessage>)> {
        let hearing = self.list.lock().hearing(kind, name, channel);
        let shared = OnceCell::new();
        let message = |name: ChannelName| {
            let (channel, payload) = shared
                .get_or_init(|| (Arc::from(channel), SharedValue::new(payload.to_vec())))
                .clone();
            Arc::new(HeardMessage::new(kind, name, channel, payload, &self.unheard))
        };
        hearing.into_iter().map(|(name, workers)| (workers, message(name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::limits::PATTERNS_AT_HOST;

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
        let heard = all.hear(KIND, b"c", b"c", b"m");
        let [(workers, message)] = &heard[..] else { panic!("{} times", heard.len()) };
        assert_eq!((&workers[..], message.payload.bytes()), (&[0, 1][..], &b"m"[..]));
        assert_eq!(all.receivers(b"c", false), Receivers { at_host: 1, clients: 2 });
        assert_eq!(all.receivers(b"c", true), Receivers::default());
        assert!(all.unheard.load(Ordering::Relaxed) > 0);
        drop(heard);
        assert_eq!(all.unheard.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_publisher_waits_with_those_that_subscribe() {
        let all = PubSub::default();
        let (first, _first_ends) = wait();
        all.subscribe(0, KIND, b"c", || first);
        let (second, _second_ends) = wait();
        all.subscribe(0, SubscriptionKind::Pattern, b"c*", || second);
        assert_eq!(all.awaited(b"c", true), []);
        assert_eq!(all.awaited(b"d", false), []);
        let awaited = all.awaited(b"c", false);
        assert_eq!(awaited.len(), 2);
        let (publisher, ends) = wait();
        all.wait_with(&awaited, &publisher);
        drop(publisher);
        all.take_changes();
        all.confirmed(KIND, b"c", true);
        assert!(ends.lock().is_empty());
        all.confirmed(SubscriptionKind::Pattern, b"c*", true);
        assert_eq!(*ends.lock(), [false]);
        assert_eq!(all.awaited(b"c", false), []);
        // Who is late does not wait.
        let (late, ends) = wait();
        all.wait_with(&awaited, &late);
        drop(late);
        assert_eq!(*ends.lock(), [false]);
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
    fn a_map_gives_back_the_memory_of_many_names() {
        let names: Vec<ChannelName> =
            (0..20_000).map(|number: u32| number.to_string().into_bytes().into()).collect();
        let mut map: HashMap<ChannelName, usize> = names.iter().cloned().zip(0..).collect();
        let full = map.capacity();
        names[100..].iter().for_each(|name| remove_name(&mut map, name));
        assert!(map.capacity() < full / 10);
        assert!((0..100).all(|number| map.get(&names[number]) == Some(&number)));
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
    fn what_the_host_refuses_concerns_those_who_wait_for_it() {
        let all = PubSub::default();
        let first = subscribe(&all, 0);
        let asked = all.take_changes();
        assert!(all.refused(&asked[0], "no") && *first.lock() == [true]);
        // The client has not left yet, or others are there: it is asked for again.
        all.ask_again(&asked);
        assert_eq!(all.take_changes(), asked);
        all.confirmed(KIND, b"c", true);
        // The end is refused: it is heard on, and somebody who comes need not wait.
        let name = &asked[0].1;
        all.unsubscribe(0, KIND, name);
        let end = all.take_changes();
        assert!(all.refused(&end[0], "no"));
        all.subscribe(0, KIND, b"c", || unreachable!());
        all.unsubscribe(0, KIND, name);
        assert_eq!(all.take_changes(), end);
        let second = subscribe(&all, 0);
        assert!(!all.refused(&end[0], "no") && *second.lock() == [false]);
    }

    #[test]
    fn the_host_matches_some_patterns_and_midi_the_others() {
        const PATTERN: SubscriptionKind = SubscriptionKind::Pattern;
        let all = PubSub::default();
        let names: Vec<ChannelName> =
            (0..PATTERNS_AT_HOST + 2).map(|at| format!("c{at:02}*").into_bytes().into()).collect();
        let ends: Vec<_> = names
            .iter()
            .map(|name| {
                let (wait, ends) = wait();
                all.subscribe(0, PATTERN, name, || wait);
                ends
            })
            .collect();
        let asked = all.take_changes();
        assert_eq!(asked.len(), PATTERNS_AT_HOST + 1, "{asked:?}");
        assert!(asked.contains(&(PATTERN, b"*"[..].into(), true)));
        assert!(all.receivers(b"c16", false).clients == 0 && ends[16].lock().is_empty());
        all.confirmed(PATTERN, b"*", true);
        assert_eq!(all.receivers(b"c16", false), Receivers { at_host: 1, clients: 1 });
        assert_eq!((&**ends[16].lock(), &**ends[17].lock()), (&[false][..], &[false][..]));
        assert!(ends[0].lock().is_empty());
        assert_eq!((all.counts(), all.patterns_beyond_host()), ([0, names.len(), 0], 1));
        // Those that the host matches are heard by their own names alone.
        assert!(all.hear(PATTERN, b"*", b"c00", b"m").is_empty());
        let heard = all.hear(PATTERN, b"*", b"c17", b"m");
        assert!(heard.len() == 1 && heard[0].1.name == names[17]);
        // A client's own `*` hears it, too, and keeps it.
        all.subscribe(1, PATTERN, b"*", || unreachable!());
        assert_eq!(all.hear(PATTERN, b"*", b"c17", b"m").len(), 2);
        all.lost(None);
        assert_eq!(all.take_changes().len(), PATTERNS_AT_HOST + 1);
        all.confirmed(PATTERN, b"*", true);
        all.unsubscribe(1, PATTERN, &b"*"[..].into());
        all.unsubscribe(0, PATTERN, &names[17]);
        assert!(all.take_changes().is_empty());
        all.unsubscribe(0, PATTERN, &names[16]);
        assert_eq!(all.take_changes(), [(PATTERN, b"*"[..].into(), false)]);
        all.confirmed(PATTERN, b"*", false);
        assert_eq!(all.counts(), [0, PATTERNS_AT_HOST, 0]);
    }

    #[test]
    fn patterns_match_as_the_hosts() {
        let all = PubSub::default();
        let (wait, _ends) = wait();
        all.subscribe(0, SubscriptionKind::Pattern, b"a*", || wait);
        assert_eq!(all.receivers(b"ab", false), Receivers::default());
        assert_eq!(all.receivers(b"b", false), Receivers::default());
        assert_eq!(all.subscribers(SubscriptionKind::Pattern, b"a*").clients, 1);
    }
}
