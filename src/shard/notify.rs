//! Leaving news of changes, and taking them to the host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::call::Author;
use super::engine::Engine;
use super::gates::Gates;
use super::news::{Naming, News};
use super::slot::ThreadSlot;
use crate::command::Event;
use crate::limits::NEWS_BYTES;
use crate::sync::Locked;

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
        self.send_main_task(Box::new(move |locked, engine, _| {
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
            self.outside.wake_main();
        }
    }

    /// News that come with no completion: the main thread is woken for them.
    pub(super) fn announce_news(&self, slot: &ThreadSlot) {
        if !slot.is_main() {
            self.outside.wake_main();
        }
    }
}
