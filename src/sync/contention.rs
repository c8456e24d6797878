//! Counts of what threads do to each other: tokens that change hands, tries that fail, messages,
//! wake-ups. Only builds with the feature `contention` count; docs/design/scaling.md has the
//! figures and the model that they feed.

/// Something that one thread does to another, or might.
#[derive(Clone, Copy, Debug)]
pub enum Contact {
    /// A token was taken.
    Taken,
    /// A shard was read without its token.
    Shared,
    /// The one before was released by another thread: the shard's lines are in its cache.
    ChangedHands,
    /// A try for a token failed.
    Busy,
    /// A message was left in an inbox or a mailbox.
    Message,
    /// A sleeping thread was woken.
    WakeUp,
}

#[cfg(feature = "contention")]
mod counted {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Contact;

    const CONTACTS: [(Contact, &str); 6] = [
        (Contact::Taken, "taken"),
        (Contact::Shared, "shared"),
        (Contact::ChangedHands, "changed_hands"),
        (Contact::Busy, "busy"),
        (Contact::Message, "messages"),
        (Contact::WakeUp, "wake_ups"),
    ];

    /// The counts of one thread, on cache lines of their own.
    type Counts = crossbeam_utils::CachePadded<[AtomicU64; CONTACTS.len()]>;

    static THREADS: std::sync::Mutex<Vec<Arc<Counts>>> = std::sync::Mutex::new(Vec::new());

    thread_local! {
        static OWN: (u32, Arc<Counts>) = {
            let own = Arc::new(Counts::default());
            let mut threads = THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            threads.push(Arc::clone(&own));
            (threads.len() as u32, own)
        };
    }

    /// The number of this thread; 0 is none.
    pub fn thread() -> u32 {
        OWN.with(|(number, _)| *number)
    }

    /// Counts it.
    pub fn note(contact: Contact) {
        OWN.with(|(_, own)| own[contact as usize].fetch_add(1, Ordering::Relaxed));
    }

    /// All counts by their names.
    pub fn counts() -> Vec<(&'static str, u64)> {
        let threads = THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let sum = |contact: Contact| {
            threads.iter().map(|it| it[contact as usize].load(Ordering::Relaxed)).sum()
        };
        CONTACTS.iter().map(|&(contact, name)| (name, sum(contact))).collect()
    }
}

#[cfg(feature = "contention")]
pub use counted::{counts, note, thread};

/// Counts it, in a build that counts.
#[cfg(not(feature = "contention"))]
#[inline(always)]
pub fn note(_: Contact) {}
