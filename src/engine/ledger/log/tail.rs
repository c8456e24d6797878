//! The tail, and how far the log has come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::counts::LogCounts;
use super::logged::Logged;
use super::parted::Parted;
use super::past::Past;
use super::run::OpenRun;
use super::text::write_text;
use crate::command::record::{Gathered, RecordText};
use crate::limits::JOURNAL_TEXT_BYTES;
use crate::store::Table;
use crate::sync::Watermark;

/// The log of writes.
#[derive(Default)]
pub struct Log {
    pub(in crate::engine::ledger) tail: Mutex<Tail>,
    /// The last position that the host has in its log.
    logged: AtomicU64,
    /// The last safe position: written to disk as `appendfsync` says.
    safe: Watermark,
    /// The first and the last positions of runs that were taken back for good, and the last of all.
    undone: Mutex<Vec<(u64, u64)>>,
    last_undone: AtomicU64,
    /// What `logged` was when the main loop last began to sleep.
    before_sleep: AtomicU64,
    /// When that was, if more is to become safe.
    slept_at: Mutex<Option<Instant>>,
    /// Bytes of the tail.
    bytes: AtomicUsize,
    /// Whether a reply to a read waits until what it saw is safe: the policy is `always`.
    reads_wait: AtomicBool,
    /// The last position when that began.
    reads_wait_since: AtomicU64,
    pub(super) past: Mutex<Past>,
    /// The text that is being written, kept for its memory.
    pub(super) text: Mutex<RecordText>,
    /// What has come from a log, or a master, of a text whose last part has not. Only the holder of
    /// the global lock uses it.
    pub gathered: Mutex<Gathered>,
    /// Runs that were taken back. A forked child counts here too, so it takes no lock.
    pub(in crate::engine::ledger) taken_back: AtomicU64,
}

#[derive(Default)]
pub(in crate::engine::ledger) struct Tail {
    /// The oldest first. Not crossbeam's queue: a run gets its position in the same step.
    pub(in crate::engine::ledger) runs: VecDeque<PublishedRun>,
    /// The last position that was given.
    pub(in crate::engine::ledger) last: u64,
    /// Whether the main thread knows that there are runs.
    pub(in crate::engine::ledger) is_announced: bool,
    /// The newest unit among the runs that were last given to the host; 0 for none.
    last_unit: u64,
    /// Whether there may be a record about all keys.
    has_of_all: bool,
    /// The text of which the host has a part. Its runs are the first ones.
    pub(super) parted: Option<Parted>,
    /// The unit that last logged something, and how many bytes it has logged and kept so far.
    unit: (u64, usize),
}

impl Tail {
    /// How many runs make up the next text, of about `most` bytes. A unit is not torn apart: a text
    /// is in the host's file as a whole, or not at all. But a record about all keys ends the text.
    pub(super) fn count_of_text(&self, most: usize) -> usize {
        let mut bytes = 0;
        let fits = |published: &PublishedRun| {
            let first = bytes == 0;
            bytes += published.run.text.len();
            first || bytes <= most
        };
        let count = self.runs.iter().map(fits).take_while(|&fits| fits).count();
        let count = self.with_whole_unit(count);
        let end = self.runs.iter().take(count).position(|published| published.run.ends_text());
        end.map_or(count, |end| end + 1)
    }

    /// How many runs to take, to take at least so many and no unit in part. Runs of other threads
    /// may lie between those of a unit.
    pub(super) fn with_whole_unit(&self, count: usize) -> usize {
        let unit = self.runs.iter().take(count).map(|published| published.run.unit).max();
        let Some(unit) = unit.filter(|&unit| unit > 0) else { return count };
        let last = self.runs.iter().rposition(|published| published.run.unit == unit);
        last.map_or(count, |last| count.max(last + 1))
    }

    /// Whether a part of the unit that was last taken is left.
    pub(super) fn is_unit_torn(&self) -> bool {
        let unit = self.last_unit;
        unit > 0 && self.runs.iter().any(|published| published.run.unit == unit)
    }

    /// Counts what a unit logs, and keeps until that is logged.
    fn count_unit(&mut self, unit: u64, bytes: usize) {
        if unit != 0 {
            let before = if unit == self.unit.0 { self.unit.1 } else { 0 };
            self.unit = (unit, before + bytes);
        }
    }

    /// Gives a run of the holder of the global lock, which the host gets now, its position.
    fn number(&mut self, run: &mut OpenRun) {
        self.last += 1;
        self.last_unit = run.unit;
        self.count_unit(run.unit, run.text.len());
        run.position = self.last;
    }

    /// Puts runs back that the host has refused.
    fn put_back(&mut self, batch: Vec<PublishedRun>) {
        self.has_of_all |= batch.iter().any(|published| published.run.ends_text());
        batch.into_iter().rev().for_each(|published| self.runs.push_front(published));
    }

    /// Takes so many runs.
    fn take(&mut self, count: usize) -> Vec<PublishedRun> {
        let taken: Vec<PublishedRun> = self.runs.drain(..count).collect();
        self.has_of_all &= !self.runs.is_empty();
        self.last_unit = taken.iter().map(|published| published.run.unit).max().unwrap_or(0);
        taken
    }
}

pub(in crate::engine::ledger) struct PublishedRun {
    pub(in crate::engine::ledger) run: Box<OpenRun>,
    /// What it counts for in the tail.
    bytes: usize,
    pub(in crate::engine::ledger) at: Instant,
}

impl PublishedRun {
    fn new(run: Box<OpenRun>) -> Self {
        PublishedRun { bytes: run.bytes(), run, at: Instant::now() }
    }
}

impl Log {
    /// The last position that is written as the host's policy says: replies up to it may be sent.
    #[inline]
    pub fn safe(&self) -> u64 {
        self.safe.get()
    }

    /// The last position that was given.
    pub fn last(&self) -> u64 {
        self.tail.lock().last
    }

    /// The last position that the host has in its log.
    pub fn logged(&self) -> u64 {
        // Acquire: who sees an undone position here sees it as undone.
        self.logged.load(Ordering::Acquire)
    }

    /// Whether the run of a position that has become safe was taken back instead of logged: its
    /// reply must not be sent.
    #[inline]
    pub fn is_undone(&self, position: u64) -> bool {
        position != 0
            && position <= self.last_undone()
            && self.undone.lock().iter().any(|(first, last)| (first..=last).contains(&&position))
    }

    /// The last position that is undone; 0 for none.
    pub fn last_undone(&self) -> u64 {
        self.last_undone.load(Ordering::Relaxed)
    }

    /// Takes all runs out of the tail.
    pub(in crate::engine::ledger) fn take_tail(&self) -> VecDeque<PublishedRun> {
        let mut tail = self.tail.lock();
        (tail.is_announced, tail.has_of_all, tail.parted) = (false, false, None);
        std::mem::take(&mut tail.runs)
    }

    /// The host will never have these runs: replies need not wait for them any longer.
    pub(in crate::engine::ledger) fn forget(&self, runs: &VecDeque<PublishedRun>) {
        let (Some(first), Some(last)) = (runs.front(), runs.back()) else { return };
        let (first, last) = (first.run.position, last.run.position);
        self.undone.lock().push((first, last));
        self.last_undone.store(last, Ordering::Relaxed);
        self.bytes.fetch_sub(runs.iter().map(|published| published.bytes).sum(), Ordering::Relaxed);
        // A reply that waits for the last position has seen nothing that is undone: so no run has
        // that position.
        let mut tail = self.tail.lock();
        tail.last = last + 1;
        // A thread that sees the position as safe sees it as undone: `safe` is raised later.
        self.logged.store(tail.last, Ordering::Release);
    }

    /// Whether replies to reads wait until what they saw is safe.
    #[inline]
    pub fn reads_wait(&self) -> bool {
        self.reads_wait.load(Ordering::Relaxed)
    }

    /// Sets whether replies to reads wait.
    pub fn set_reads_wait(&self, wait: bool) {
        if wait && !self.reads_wait() {
            self.reads_wait_since.store(self.last(), Ordering::Relaxed);
        }
        self.reads_wait.store(wait, Ordering::Relaxed);
    }

    /// Whether all runs up to a position are synced: the host's policy is `always`, and was when
    /// they ran. Of older runs that is not known.
    pub fn is_synced(&self, position: u64) -> bool {
        let since = self.reads_wait_since.load(Ordering::Relaxed);
        self.reads_wait() && position <= self.safe() && (since == 0 || position > since)
    }

    /// Bytes of the tail.
    pub fn tail_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What a unit has logged and kept so far, in bytes.
    pub(in crate::engine::ledger) fn bytes_of_unit(&self, unit: u64) -> usize {
        let tail = self.tail.lock();
        if tail.unit.0 == unit { tail.unit.1 } else { 0 }
    }

    /// Whether the host has all runs, and all are safe.
    pub fn is_settled(&self) -> bool {
        let tail = self.tail.lock();
        tail.runs.is_empty() && self.safe() >= tail.last
    }

    /// Whether the host has all runs.
    pub fn is_tail_empty(&self) -> bool {
        self.tail.lock().runs.is_empty()
    }

    /// Whether a part of the unit that was last taken is left.
    pub(in crate::engine::ledger) fn is_unit_torn(&self) -> bool {
        self.tail.lock().is_unit_torn()
    }

    /// Whether the tail may have a record about all keys.
    pub(in crate::engine::ledger) fn has_of_all(&self) -> bool {
        self.tail.lock().has_of_all
    }

    /// Adds a run to the tail; returns its position, and whether the main thread does not know yet
    /// that there are runs.
    pub(in crate::engine::ledger) fn push(&self, run: Box<OpenRun>) -> (u64, bool) {
        let run = match self.join_unit(run) {
            Ok(position) => return (position, false),
            Err(run) => run,
        };
        let mut published = PublishedRun::new(run);
        self.bytes.fetch_add(published.bytes, Ordering::Relaxed);
        let mut tail = self.tail.lock();
        tail.count_unit(published.run.unit, published.bytes);
        tail.last += 1;
        let position = tail.last;
        published.run.position = position;
        tail.has_of_all |= published.run.ends_text();
        tail.runs.push_back(published);
        (position, !std::mem::replace(&mut tail.is_announced, true))
    }

    /// Makes a run a part of the last one, if both are of the same unit: what a unit does is one
    /// run, as far as nobody else has published any. Returns its position, or gives the run back.
    #[inline]
    fn join_unit(&self, run: Box<OpenRun>) -> Result<u64, Box<OpenRun>> {
        if run.unit == 0 || run.of_all.is_some() {
            return Err(run);
        }
        let (mut tail, unit) = (self.tail.lock(), run.unit);
        if tail.is_last_parted() {
            return Err(run);
        }
        let goes_on = |last: &&mut PublishedRun| last.run.unit == unit && last.run.of_all.is_none();
        let Some(begun) = tail.runs.back_mut().filter(goes_on) else { return Err(run) };
        begun.run.join(run);
        let before = std::mem::replace(&mut begun.bytes, begun.run.bytes());
        let (more, position) = (begun.bytes - before, begun.run.position);
        self.bytes.fetch_add(more, Ordering::Relaxed);
        tail.count_unit(unit, more);
        Ok(position)
    }

    /// An empty run.
    pub(in crate::engine::ledger) fn spare_run(&self) -> Box<OpenRun> {
        let spare = self.past.try_lock().and_then(|mut past| past.pop());
        let mut run = spare.unwrap_or_default();
        run.clear();
        run
    }

    /// Frees what spare runs keep of keys.
    pub fn clear_spares(&self) {
        self.past.lock().clear();
    }

    /// Gives a run of one record to `write` at once, if there is no tail. Returns whether that has
    /// taken it, or else it is the tail now, and its position.
    ///
    /// # Errors
    /// There is a tail, or the run is of another kind: gives it back.
    pub(in crate::engine::ledger) fn log_one(
        &self,
        mut run: Box<OpenRun>,
        write: &mut dyn FnMut(Logged<'_>) -> bool,
    ) -> Result<(bool, u64), Box<OpenRun>> {
        let Some((db, _)) = run.databases.filter(|_| run.records == 1) else { return Err(run) };
        {
            let mut tail = self.tail.lock();
            if !tail.runs.is_empty() {
                return Err(run);
            }
            tail.number(&mut run);
        }
        let position = run.position;
        if !write(Logged::Record { db, text: &run.text, version: run.version }) {
            let refused = PublishedRun::new(run);
            self.bytes.fetch_add(refused.bytes, Ordering::Relaxed);
            self.tail.lock().put_back(vec![refused]);
            return Ok((false, position));
        }
        self.logged.store(position, Ordering::Release);
        let (bytes, text_bytes) = (run.bytes(), run.text.len());
        let mut past = self.past.lock();
        past.counts.add(1, 1, text_bytes, Duration::ZERO);
        past.push(run, bytes);
        Ok((true, position))
    }

    /// Gives runs of the tail, the oldest first, and then `own`, to `write`: as many as make up
    /// `most` bytes, but at least one. With `own` all are given. If it refuses, they stay in the
    /// tail, and `own` joins them. Returns whether anything was taken, and the position of `own`.
    ///
    /// With `has_room_for_part`, a long text is given a part at a time, if that says so; its runs
    /// stay in the tail meanwhile. Else all that is left of such a text is given with the others.
    pub(in crate::engine::ledger) fn hand_over(
        &self,
        own: Option<Box<OpenRun>>,
        most: usize,
        has_room_for_part: Option<&dyn Fn() -> bool>,
        write: &mut dyn FnMut(Logged<'_>) -> bool,
    ) -> (bool, u64) {
        let is_own = own.is_some();
        if !is_own
            && let Some(has_room) = has_room_for_part
            && let Some(is_taken) = self.give_part(most, has_room, write)
        {
            return (is_taken, 0);
        }
        let (batch, parted) = self.take_batch(own, most);
        let Some(last) = batch.last().map(|published| published.run.position) else {
            return (false, 0);
        };
        let mut text = self.text.lock();
        match parted {
            Some(parted) => parted.write_last(&batch, &mut text),
            None => write_text(&batch, &mut text),
        }
        let is_taken = batch.iter().all(|published| published.run.records == 0)
            || write(Logged::Text { text: &text, is_own_only: is_own && batch.len() == 1 });
        let text_bytes = text.len();
        text.clear(4 * JOURNAL_TEXT_BYTES);
        drop(text);
        if !is_taken {
            self.tail.lock().put_back(batch);
            return (false, last);
        }
        self.logged.store(last, Ordering::Release);
        let bytes = batch.iter().map(|published| published.bytes).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Workers try for this lock: so it is taken late.
        let now = Instant::now();
        let waited = batch.iter().map(|published| now - published.at).sum();
        let records = batch.iter().map(|published| u64::from(published.run.records)).sum();
        let mut past = self.past.lock();
        past.counts.add(batch.len() as u64, records, text_bytes, waited);
        batch.into_iter().for_each(|published| past.push(published.run, published.bytes));
        (true, last)
    }

    /// Takes the runs of the next text, and the text of which the host has a part: they begin with
    /// its runs.
    fn take_batch(
        &self,
        own: Option<Box<OpenRun>>,
        most: usize,
    ) -> (Vec<PublishedRun>, Option<Parted>) {
        let own = own.map(PublishedRun::new);
        let mut tail = self.tail.lock();
        let parted = tail.take_begun();
        tail.is_announced = false;
        let Some(mut own) = own else {
            let begun = parted.as_ref().map_or(0, |parted| parted.runs);
            let count = tail.count_of_text(most).max(begun);
            tail.is_announced = count < tail.runs.len();
            return (tail.take(count), parted);
        };
        tail.number(&mut own.run);
        self.bytes.fetch_add(own.bytes, Ordering::Relaxed);
        tail.runs.push_back(own);
        (tail.runs.drain(..).collect(), parted)
    }

    /// Whether logged flushes have taken out tables that are to be freed.
    pub(in crate::engine::ledger) fn has_flushed(&self) -> bool {
        !self.past.lock().flushed.is_empty()
    }

    /// Tables that logged flushes have taken out, to be freed.
    pub(in crate::engine) fn take_flushed(&self) -> Vec<Table> {
        std::mem::take(&mut self.past.lock().flushed)
    }

    /// The main loop is about to sleep, and the host will write its log before. True if it should
    /// not sleep: something becomes safe when it wakes.
    pub fn before_sleep(&self) -> bool {
        let logged = self.logged();
        self.before_sleep.store(logged, Ordering::Relaxed);
        let more = logged > self.safe();
        if more {
            *self.slept_at.lock() = Some(Instant::now());
        }
        more
    }

    /// The main loop has slept: what was logged before is written as the policy says. True if more
    /// is safe than was.
    pub(in crate::engine::ledger) fn after_sleep(&self) -> bool {
        let logged = self.before_sleep.load(Ordering::Relaxed);
        let more = logged > self.safe();
        if more {
            self.safe.raise(logged);
            let waited = self.slept_at.lock().take().map_or(Duration::ZERO, |at| at.elapsed());
            self.past.lock().counts.add_safe_step(waited);
        }
        more
    }

    /// What is known of the log.
    pub fn counts(&self) -> LogCounts {
        let (tail_runs, oldest, last) = {
            let tail = self.tail.lock();
            (tail.runs.len(), tail.runs.front().map(|published| published.at), tail.last)
        };
        LogCounts {
            tail_runs,
            tail_bytes: self.tail_bytes(),
            tail_age: oldest.map_or(Duration::ZERO, |at| at.elapsed()),
            positions: (last, self.logged(), self.safe()),
            taken_back: self.taken_back.load(Ordering::Relaxed),
            ..self.past.lock().counts
        }
    }
}
