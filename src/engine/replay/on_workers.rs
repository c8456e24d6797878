//! Replaying texts of records, on all workers.
//!
//! The shards are divided into *shares*, one for each worker: the shards that it owns. Every share
//! is taken through every text, in order, and only the records of its shards are replayed. So the
//! order is kept where it matters, and nobody has to deal out the records.
//!
//! ```text
//! offer ─► texts ─┬─► share 0: its records of text 1, text 2, …      on worker 0
//!                 └─► share 1: its records of text 1, text 2, …      on worker 1
//! ```
//!
//! A record on shards of two shares (RENAME, COPY) is replayed by the share that gets to it last,
//! and the other one waits there: then all that stands before it is done in both. The share that is
//! furthest back in the texts never waits, so they all arrive. A text that may have a record on any
//! number of shards (BITOP) is replayed by the main thread, once all before it are: see `here`.
//!
//! Any thread may go on with a share. As a rule that is its worker; a thread that waits for all of
//! them helps. Groups between MULTI and EXEC are not kept together: nobody reads while the host
//! loads. The main thread alone replays a master's stream, which is read meanwhile: see `here`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::TextError;
use super::queue::Queue;
use super::share::Share;
use crate::engine::{Engine, Part, Progress, Slice, Work, without_reply};
use crate::sync::Locked;

/// How long a thread that waits for the workers sleeps when it cannot help them.
const NAP: Duration = Duration::from_micros(50);

/// Texts on their way into the keyspace. Dropping it ends the workers' part; what has not been
/// replayed by then is lost.
pub struct Replay(Arc<AllShares>);

/// The texts, and how far each share is.
struct AllShares {
    queue: Queue,
    shares: Box<[Mutex<Share>]>,
}

impl Replay {
    /// Starts the workers' part.
    pub fn start(engine: &Engine) -> Self {
        let count = engine.config().workers;
        let shares = (0..count).map(|number| Mutex::new(Share::new(number))).collect();
        let all = Arc::new(AllShares { queue: Queue::new(count), shares });
        let part = |number| SharePart { all: Arc::clone(&all), number };
        let work = Work::on_every_worker(engine, Arc::new(without_reply), 0, part);
        engine.jobs.start_own(engine.context(), "replay", work);
        Replay(all)
    }

    /// Leaves a text for the workers. While too much waits for them, helps.
    ///
    /// # Errors
    /// This text, or an earlier one, cannot be replayed.
    pub fn offer(
        &self,
        engine: &Engine,
        locked: Locked<'_>,
        text: Vec<u8>,
    ) -> Result<(), TextError> {
        while self.0.queue.is_full(text.len()) {
            self.help(engine, locked, 1);
            self.0.queue.check()?;
        }
        if self.0.queue.push(text) {
            engine.context().wake_ports();
        }
        self.0.queue.check()
    }

    /// Whether all texts have been replayed.
    pub fn is_idle(&self) -> bool {
        self.0.queue.is_empty()
    }

    /// Waits until all texts have been replayed.
    ///
    /// # Errors
    /// One of them cannot be.
    pub fn settle(&self, engine: &Engine, locked: Locked<'_>) -> Result<(), TextError> {
        while !self.0.queue.is_empty() {
            self.help(engine, locked, usize::MAX);
            self.0.queue.check()?;
        }
        self.0.queue.check()
    }

    /// Takes each share that no worker has through some texts; naps if that was nothing.
    fn help(&self, engine: &Engine, locked: Locked<'_>, texts: usize) {
        let slice = Slice::endless(engine, locked);
        let mut helped = false;
        for share in &self.0.shares {
            if let Some(mut share) = share.try_lock() {
                helped |= share.go_on(&self.0.queue, &slice, texts);
            }
        }
        if !helped {
            std::thread::sleep(NAP);
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.0.queue.end();
    }
}

/// A worker's part: one share.
struct SharePart {
    all: Arc<AllShares>,
    number: usize,
}

impl Part for SharePart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        if self.all.queue.has_ended() {
            return Progress::Done;
        }
        // Another thread helps.
        let Some(mut share) = self.all.shares[self.number].try_lock() else {
            return Progress::Blocked;
        };
        let is_further = share.go_on(&self.all.queue, slice, usize::MAX);
        if is_further { Progress::More } else { Progress::Blocked }
    }
}
