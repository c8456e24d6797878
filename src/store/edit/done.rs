//! What edits have done to a key, for those who count, log and notify.

use std::cell::Cell;

use smallvec::SmallVec;

use crate::store::bucket::EntryRef;
use crate::store::{Before, ChangeKind};

/// The changes that edits have made to a key.
#[derive(Default)]
pub struct Done {
    /// The key was changed: clients that watch it must be notified.
    pub changed: bool,
    /// The key was removed because it was due. Clients that watch it are not notified of a change:
    /// they expect it.
    pub expired: bool,
    /// A read met the key hidden; the next [`Edit`] that ends checks whether it may be removed.
    pub(super) met_hidden: Cell<bool>,
    /// The details that a log wants.
    pub(super) keeping: Keeping,
    /// The kind of the change, if that is kept.
    pub(super) kind: ChangeKind,
    /// The key before each change, the oldest first, if that is kept.
    pub(super) before: SmallVec<[Before; 1]>,
    /// 1 if the key was added to the table, -1 if it was removed, else 0.
    pub(super) gained: i8,
    /// The key was put into the table, also in place of another one.
    pub(super) is_new: bool,
}

/// The details that an edit keeps for a log of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Nothing.
    #[default]
    Nothing,
    /// The kind of the change.
    Kind,
    /// That, and the key before the change.
    Before,
}

impl Done {
    /// For an edit that keeps this for a log.
    #[inline]
    pub fn keeping(keeping: Keeping) -> Self {
        Done { keeping, ..Done::default() }
    }

    /// The kind of the change, for a log.
    #[inline]
    pub fn kind(&self) -> &ChangeKind {
        &self.kind
    }

    /// Notes for eviction that the key was used, if it was there before the command.
    #[inline]
    pub fn note_use(&self, entry: &EntryRef<'_>) {
        if !self.is_new {
            entry.note_use();
        }
    }

    /// How many keys the table gained: 1, 0 or -1.
    #[inline]
    pub fn gained(&self) -> i64 {
        i64::from(self.gained)
    }

    /// Takes the states of the key before each change, the oldest first.
    pub fn take_before(&mut self) -> SmallVec<[Before; 1]> {
        std::mem::take(&mut self.before)
    }

    /// Drops it, without a call if it owns nothing.
    #[inline(always)]
    pub fn discard(self) {
        if self.before.is_empty() && !self.before.spilled() && self.kind.owns_nothing() {
            std::mem::forget(self);
        }
    }

    #[inline]
    pub(super) fn keep(&mut self, before: impl FnOnce() -> Before) {
        if self.keeping == Keeping::Before {
            self.before.push(before());
        }
    }

    /// Whether the key, or its table, has changed.
    #[inline]
    pub fn is_anything(&self) -> bool {
        self.changed || self.expired || !matches!(self.kind, ChangeKind::Nothing)
    }

    /// Whether a read met the key hidden, and no edit has handled it since.
    #[inline]
    pub fn has_met_hidden(&self) -> bool {
        self.met_hidden.get()
    }
}
