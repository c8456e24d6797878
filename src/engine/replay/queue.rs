//! Texts that wait for the shares, and where shares wait for each other.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::TextError;
use crate::limits::LOAD_WAITING_BYTES;

/// The texts, and how far the shares are.
pub(super) struct Queue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    /// Texts that some share is not through with. Not crossbeam's queue: every share reads each.
    texts: VecDeque<Arc<Vec<u8>>>,
    /// Bytes of these.
    bytes: usize,
    /// The number of the first of them.
    first: u64,
    /// The number of the text that each share gets next.
    next: Vec<u64>,
    /// Records of two shares, by number, at which one share waits for the other.
    waiting: BTreeSet<u64>,
    /// The first error that was found, with the number of its text.
    error: Option<(u64, TextError)>,
    ended: bool,
}

impl Queue {
    pub(super) fn new(shares: usize) -> Self {
        Queue(Mutex::new(QueueState { next: vec![0; shares], ..QueueState::default() }))
    }

    /// Whether a text of so many bytes must wait. One above the limit waits alone.
    pub(super) fn is_full(&self, bytes: usize) -> bool {
        let state = self.0.lock();
        !state.texts.is_empty() && state.bytes + bytes > LOAD_WAITING_BYTES
    }

    /// Adds a text. True if it is the only one.
    pub(super) fn push(&self, text: Vec<u8>) -> bool {
        let mut state = self.0.lock();
        state.bytes += text.len();
        state.texts.push_back(Arc::new(text));
        state.texts.len() == 1
    }

    /// Whether all shares are through with all texts.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().texts.is_empty()
    }

    /// The next text of a share, and its number.
    pub(super) fn text(&self, share: usize) -> Option<(u64, Arc<Vec<u8>>)> {
        let state = self.0.lock();
        if state.error.is_some() || state.ended {
            return None;
        }
        let number = state.next[share];
        let text = state.texts.get((number - state.first) as usize)?;
        Some((number, Arc::clone(text)))
    }

    /// A share is through with its text.
    pub(super) fn done(&self, share: usize) {
        let mut state = self.0.lock();
        state.next[share] += 1;
        let all_done = state.next.iter().copied().min().unwrap_or(0);
        while state.first < all_done {
            let text = state.texts.pop_front();
            state.bytes -= text.map_or(0, |text| text.len());
            state.first += 1;
        }
    }

    /// A share has got to this record of two shares. True if the other one waits there: this one
    /// replays the record. False if it is the first, and must wait.
    pub(super) fn meet(&self, record: u64) -> bool {
        !self.0.lock().waiting.insert(record)
    }

    /// The record has been replayed: the share that waits can go on.
    pub(super) fn met(&self, record: u64) {
        self.0.lock().waiting.remove(&record);
    }

    /// Whether a share that waits at this record must go on waiting.
    pub(super) fn must_wait(&self, record: u64) -> bool {
        self.0.lock().waiting.contains(&record)
    }

    /// Notes an error in this text.
    pub(super) fn fail(&self, text: u64, error: TextError) {
        let mut state = self.0.lock();
        if state.error.as_ref().is_none_or(|&(known, _)| text < known) {
            state.error = Some((text, error));
        }
    }

    /// # Errors
    /// The error that a share has met.
    pub(super) fn check(&self) -> Result<(), TextError> {
        self.0.lock().error.clone().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Ends it: there is nothing more to do.
    pub(super) fn end(&self) {
        self.0.lock().ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.lock().ended
    }
}
