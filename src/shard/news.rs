//! News of changes, for those who listen at the host: keyspace notifications and
//! client-side caching.
//!
//! Whoever changes a key while somebody listens leaves the news, in the order of the
//! changes, before letting go of the shard. The main thread takes them to the host
//! when no token is in its hands: what the host does then may call our commands.
//!
//! The keys of a flush are news for client-side caching only. Their names go to the main
//! thread as the memory is freed, a few at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::counters::Seat;
use super::engine::Engine;
use super::inbox::Inbox;
use crate::command::Event;
use crate::store::Table;

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

/// News on their way to the host.
#[derive(Default)]
pub(super) struct NewsDesk {
    listening: AtomicBool,
    tracked: AtomicBool,
    waiting: Inbox<News>,
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
    pub fn set_listening(&self, listening: bool) {
        self.news.listening.store(listening, Ordering::Relaxed);
    }

    /// Whether anybody at the host listens.
    #[inline]
    pub fn is_listening(&self) -> bool {
        self.news.listening.load(Ordering::Relaxed)
    }

    /// Sets whether clients of the host may keep values in caches of their own, and so want to
    /// hear what keys have gone.
    pub fn set_tracked(&self, tracked: bool) {
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
        self.send_errand(Box::new(move |engine, _| {
            names.iter().for_each(|key| engine.tell_flushed(key));
            drop(naming);
        }));
    }

    /// Tells clients that cache a key that it has gone. For the holder of the global lock.
    ///
    /// Caches know no databases, but WATCH does: so it is told of the last one, where a transaction
    /// of somebody who has watched the key since is hit least likely.
    pub(super) fn tell_flushed(&self, key: &[u8]) {
        self.tell(self.config.databases - 1, key);
    }

    /// Whether news wait to be told.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.waiting.is_empty()
    }

    /// News that wait to be told, oldest first.
    pub fn take_news(&self) -> impl Iterator<Item = News> + use<> {
        self.news.waiting.take().into_iter()
    }

    /// Leaves news. The shard is still held.
    pub(super) fn leave_news(&self, author: Author, db: u32, key: &[u8], event: Event) {
        // The main thread looks for them with every completion.
        let _ = self.news.waiting.push(News { author, db, key: key.into(), event });
    }

    /// Leaves news of the keys that a table found to have expired. True where there were any.
    pub(super) fn leave_expired(&self, db: u32, table: &mut Table) -> bool {
        let expired = table.take_expired();
        expired.iter().for_each(|key| self.leave_news(Author::Nobody, db, key, Event::EXPIRED));
        !expired.is_empty()
    }

    /// News that come with no completion: the main thread is woken for them.
    pub(super) fn announce_news(&self, seat: &Seat) {
        if !seat.is_main() {
            self.wake_main();
        }
    }
}
