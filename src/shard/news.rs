//! News of changes, for those who listen at the host: keyspace notifications and
//! client-side caching.
//!
//! Whoever changes a key while somebody listens leaves the news, in the order of the
//! changes, before letting go of the shard. The main thread takes them to the host
//! when no token is in its hands: what the host does then may call our commands.
//!
//! Where changes come faster than it can tell of them, writes on the ports wait, jobs that write pause, and keys
//! expire later. The main thread itself never waits: it tells of its own changes after each command.
//!
//! The keys of a flush are news for client-side caching only. Their names go to the main
//! thread as the memory is freed, a few at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::engine::Engine;
use super::gate::Gates;
use super::inbox::Inbox;
use super::lock::{Locked, Seat};
use crate::command::Event;
use crate::limits::{NEWS_BYTES, NEWS_ITEM_BYTES};

/// The client of the host that makes a change. It may have asked to hear nothing of its own ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// None, or one that need not be known.
    Nobody,
    /// The one whose command the main thread runs.
    Running,
    /// The one of that id, which waits for its reply.
    Waiting(u64),
}

/// A change of a key.
pub struct News {
    /// Who made it.
    pub author: Author,
    /// The database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// What happened.
    pub event: Event,
}

impl News {
    fn weight(&self) -> usize {
        self.key.len() + NEWS_ITEM_BYTES
    }
}

/// News on their way to the host.
#[derive(Default)]
pub(super) struct NewsDesk {
    listening: AtomicBool,
    tracked: AtomicBool,
    waiting: Inbox<News>,
    /// Those that have been taken out of there, oldest first.
    untold: Mutex<VecDeque<News>>,
    /// How many have been told so far.
    told: AtomicU64,
    /// What all that wait take, in bytes.
    weight: AtomicUsize,
    /// Whether somebody has the right to send names of flushed keys.
    naming: Arc<AtomicBool>,
}

/// The right to send names of flushed keys to the main thread: until it has told of
/// them nobody sends more, so that they cannot hold it up, nor pile up.
pub(super) struct Naming(Arc<AtomicBool>);

impl Drop for Naming {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Engine {
    /// Sets whether anybody at the host listens.
    pub fn set_listening(&self, _: Locked<'_>, listening: bool) {
        self.news.listening.store(listening, Ordering::Relaxed);
    }

    /// Whether anybody at the host listens.
    #[inline]
    pub fn is_listening(&self) -> bool {
        self.news.listening.load(Ordering::Relaxed)
    }

    /// Sets whether clients of the host may keep values in caches of their own, and so want to
    /// hear what keys have gone.
    pub fn set_tracked(&self, _: Locked<'_>, tracked: bool) {
        self.news.tracked.store(tracked, Ordering::Relaxed);
    }

    /// Whether clients of the host may keep values in caches of their own.
    pub fn is_tracked(&self) -> bool {
        self.news.tracked.load(Ordering::Relaxed)
    }

    /// The right to send names of flushed keys, if nobody has it.
    pub(super) fn may_name(&self) -> Option<Naming> {
        let naming = &self.news.naming;
        (!naming.swap(true, Ordering::Acquire)).then(|| Naming(Arc::clone(naming)))
    }

    /// Has the main thread tell of flushed keys; the right to send more ends with that.
    pub(super) fn send_names(&self, names: Vec<Box<[u8]>>, naming: Naming) {
        self.send_errand(Box::new(move |locked, engine, _| {
            names.iter().for_each(|key| engine.tell_flushed(locked, key));
            drop(naming);
        }));
    }

    /// Tells clients that cache a key that it has gone.
    ///
    /// Caches know no databases, but WATCH does: so it is told of the last one, where a transaction
    /// of somebody who has watched the key since is hit least likely.
    pub(super) fn tell_flushed(&self, locked: Locked<'_>, key: &[u8]) {
        self.tell(locked, &[self.config.databases - 1], key);
    }

    /// Whether news wait to be told.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.news.weight.load(Ordering::Relaxed) > 0
    }

    /// Whether so many news wait that nobody should make more.
    #[inline]
    pub fn has_much_news(&self) -> bool {
        self.gates().has(Gates::NEWS)
    }

    /// The oldest news that wait to be told.
    pub fn next_news(&self, _: Locked<'_>) -> Option<News> {
        let mut untold = self.news.untold.lock();
        if untold.is_empty() {
            *untold = self.news.waiting.take();
        }
        let news = untold.pop_front()?;
        self.news.told.fetch_add(1, Ordering::Relaxed);
        self.news.weight.fetch_sub(news.weight(), Ordering::Relaxed);
        Some(news)
    }

    /// How many news there have been ever: those of before now have been told when so many have.
    pub fn news_so_far(&self, _: Locked<'_>) -> u64 {
        let mut untold = self.news.untold.lock();
        untold.extend(self.news.waiting.take());
        self.news_told() + untold.len() as u64
    }

    /// How many have been told.
    pub fn news_told(&self) -> u64 {
        self.news.told.load(Ordering::Relaxed)
    }

    /// Lets those go on who wait until news have been told, if enough have been.
    pub fn make_room_for_news(&self, _: Locked<'_>) {
        if self.has_much_news() && self.news.weight.load(Ordering::Relaxed) <= NEWS_BYTES / 2 {
            self.open_gate(Gates::NEWS);
        }
    }

    /// Leaves news. The shard is still held.
    pub(super) fn leave_news(&self, author: Author, db: u32, key: &[u8], event: Event) {
        let news = News { author, db, key: key.into(), event };
        // Counted first: who finds them finds them counted.
        let before = self.news.weight.fetch_add(news.weight(), Ordering::Relaxed);
        let is_much = before + news.weight() >= NEWS_BYTES;
        // The main thread looks for them with every completion.
        let _ = self.news.waiting.push(news);
        if is_much && !self.has_much_news() && self.close_gate(Gates::NEWS) {
            self.wake_main();
        }
    }

    /// News that come with no completion: the main thread is woken for them.
    pub(super) fn announce_news(&self, seat: &Seat) {
        if !seat.is_main() {
            self.wake_main();
        }
    }
}
