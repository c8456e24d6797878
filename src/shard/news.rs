//! News of changes, for those who listen at the host: keyspace notifications and
//! client-side caching.
//!
//! Whoever changes a key while somebody listens leaves the news, in the order of the
//! changes, before letting go of the shard. The main thread takes them to the host
//! when no token is in its hands: what the host does then may call our commands.

use std::sync::atomic::{AtomicBool, Ordering};

use super::counters::Seat;
use super::engine::Engine;
use super::inbox::Inbox;
use crate::command::Event;
use crate::store::Table;

/// A change of a key.
pub struct News {
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
    waiting: Inbox<News>,
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
    pub(super) fn leave_news(&self, db: u32, key: &[u8], event: Event) {
        // The main thread looks for them with every completion.
        let _ = self.news.waiting.push(News { db, key: key.into(), event });
    }

    /// Leaves news of the keys that a table found to have expired. True where there were any.
    pub(super) fn leave_expired(&self, db: u32, table: &mut Table) -> bool {
        let expired = table.take_expired();
        expired.iter().for_each(|key| self.leave_news(db, key, Event::EXPIRED));
        !expired.is_empty()
    }

    /// News that come with no completion: the main thread is woken for them.
    pub(super) fn announce_news(&self, seat: &Seat) {
        if !seat.is_main() {
            self.wake_main();
        }
    }
}
