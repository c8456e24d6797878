//! Eviction: which key goes first when memory is short.
//!
//! Each key has two marks in its bucket: its class (probation or main) and whether it was used
//! (hit). A new key is on probation. Two hands go round the table in the order of the hashes, one
//! for each class:
//!
//! ```text
//!              not hit ─► evicted                       not hit ─► evicted
//! probation ◄──── hand                       main ◄──── hand
//!              hit ─────► main, hit cleared             hit ─────► hit cleared
//! ```
//!
//! The probation hand moves while that class has at least its share of the keys, else the main
//! hand. A small share keeps what is used often (as LFU does), a large one what was used last (as
//! LRU). It is S3-FIFO with hash order in place of its queues: so it needs no lists, and a hand
//! reads buckets and no entries.

use smallvec::SmallVec;

use super::{Entry, KeyHasher, Table, UnixMs};
use crate::limits::{BUCKETS_PER_VICTIM, LINES_OF_STRING};
use crate::store::bucket::SlotMarks;
use crate::store::segment::BucketSlot;

/// Which keys may be evicted, and which of them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victims {
    /// Only keys that have an expiry.
    pub volatile: bool,
    /// The first of them.
    pub first: First,
}

/// Which key is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// One that was not used; this share of the keys, in percent, is on probation.
    Unused(u8),
    /// Any.
    Any,
    /// The one that expires first.
    Due,
}

/// The outcome of [`Table::evict`].
pub enum Evicted {
    /// This entry was evicted.
    Entry(Entry),
    /// None was found among the buckets that one call may look at. The next call goes on behind
    /// them.
    NotYet,
    /// The table has no key that may be evicted, or for [`First::Due`] none among the earliest.
    Nothing,
}

/// A place in the order of the hashes: the bucket of an order, and in the low four bits a slot in
/// it. No bucket is that narrow.
#[derive(Clone, Copy, Default)]
struct Hand(u32);

impl Hand {
    const SLOT: u32 = 0b1111;

    fn at(order: u64, slot: u8) -> Self {
        // The end of the order is its beginning.
        Hand(order as u32 & !Self::SLOT | u32::from(slot))
    }

    fn order(self) -> u32 {
        self.0 & !Self::SLOT
    }

    fn slot(self) -> u8 {
        (self.0 & Self::SLOT) as u8
    }
}

/// The hands of a table.
#[derive(Default)]
pub(super) struct Hands {
    probation: Hand,
    /// For keys of the main class, or of any if classes do not matter.
    main: Hand,
}

/// The keys that a hand stops at.
#[derive(Clone, Copy)]
struct Stops {
    /// Of one class, or of any.
    main: Option<bool>,
    volatile: bool,
}

impl Stops {
    fn at(self, marks: SlotMarks) -> bool {
        self.main.is_none_or(|main| main == marks.has(SlotMarks::MAIN))
            && (!self.volatile || marks.has(SlotMarks::EXPIRES))
    }
}

/// A key that a hand has found.
#[derive(Clone, Copy)]
struct FoundKey {
    segment: usize,
    place: BucketSlot,
    marks: SlotMarks,
}

impl Table {
    /// Evicts one key. `keep` may keep one that was chosen: it then counts as used.
    pub fn evict(
        &mut self,
        hasher: &KeyHasher,
        victims: Victims,
        keep: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Evicted {
        let candidates = if victims.volatile { self.census.expiring } else { self.census.keys };
        if candidates == 0 {
            return Evicted::Nothing;
        }
        if victims.first == First::Due {
            return self.evict_due(hasher, keep);
        }
        let mut buckets = BUCKETS_PER_VICTIM;
        while buckets > 0 {
            let Some(found) = self.next_candidate(victims, &mut buckets) else { continue };
            let is_spared = !matches!(victims.first, First::Any) && self.has_second_chance(found);
            if !is_spared && !self.is_kept(found, keep) {
                let evicted = self.take_found(hasher, found);
                self.prefetch_candidate(victims);
                return Evicted::Entry(evicted);
            }
        }
        Evicted::NotYet
    }

    /// Prefetches the key that is probably evicted next: it is read then, after many others.
    fn prefetch_candidate(&self, victims: Victims) {
        let (stops, hand) = self.next_stop(victims);
        // An empty table has no directory.
        let Some(&segment) = self.directory.get(self.cell(hand.order())) else { return };
        let segment = &self.segments[segment as usize];
        let next = segment.next_marked(hand.order(), hand.slot(), |marks| stops.at(marks));
        if let Some((place, _)) = next {
            segment.entry(place).prefetch(LINES_OF_STRING);
        }
    }

    /// What the hand that moves next stops at, and where it is.
    fn next_stop(&self, victims: Victims) -> (Stops, Hand) {
        // Of the keys that have an expiry nobody knows how many are on probation.
        let main = match victims.first {
            First::Unused(share) if !victims.volatile => Some(self.turn_of_main(share)),
            _ => None,
        };
        let hand = if main == Some(false) { self.hands.probation } else { self.hands.main };
        (Stops { main, volatile: victims.volatile }, hand)
    }

    /// The next key that the policy stops at, if it is in the bucket where the hand is; else the
    /// hand goes on to the next bucket.
    fn next_candidate(&mut self, victims: Victims, buckets: &mut u32) -> Option<FoundKey> {
        let (stops, mut hand) = self.next_stop(victims);
        let on_probation = stops.main == Some(false);
        let segment = self.directory[self.cell(hand.order())] as usize;
        let of_segment = &self.segments[segment];
        let found = of_segment.next_marked(hand.order(), hand.slot(), |marks| stops.at(marks));
        match found {
            Some((place, _)) => hand = Hand::at(hand.order().into(), place.slot() + 1),
            None => {
                *buckets -= 1;
                hand = Hand::at(of_segment.bucket_end(hand.order()), 0);
            }
        }
        *(if on_probation { &mut self.hands.probation } else { &mut self.hands.main }) = hand;
        found.map(|(place, marks)| FoundKey { segment, place, marks })
    }

    /// Whether the main class has to give up a key: the other one has not its share.
    fn turn_of_main(&self, share: u8) -> bool {
        let (keys, probation) = (self.len(), self.probation as usize);
        let wanted = keys * usize::from(share) / 100;
        probation == 0 || probation < keys && probation < wanted
    }

    /// Spares a key that was used: one on probation comes to the main class.
    fn has_second_chance(&mut self, found: FoundKey) -> bool {
        if !found.marks.has(SlotMarks::HIT) {
            return false;
        }
        let segment = &mut self.segments[found.segment];
        segment.set_mark(found.place, SlotMarks::HIT, false);
        if !found.marks.has(SlotMarks::MAIN) {
            segment.set_mark(found.place, SlotMarks::MAIN, true);
            self.probation -= 1;
        }
        true
    }

    fn is_kept(&mut self, found: FoundKey, keep: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let segment = &mut self.segments[found.segment];
        let is_kept = keep(segment.entry(found.place).key());
        if is_kept {
            segment.set_mark(found.place, SlotMarks::HIT, true);
        }
        is_kept
    }

    fn take_found(&mut self, hasher: &KeyHasher, found: FoundKey) -> Entry {
        let segment = &mut self.segments[found.segment];
        let hash = hasher.hash(segment.entry(found.place).key());
        let removed = segment.remove(hash, found.place);
        self.forget(&removed);
        self.shrink(hasher, found.segment);
        removed.0
    }

    /// Evicts the key that expires first, or one of the next if that is kept. If all of the
    /// earliest are, there is nothing to evict: another search would look at the same keys.
    fn evict_due(&mut self, hasher: &KeyHasher, keep: &mut dyn FnMut(&[u8]) -> bool) -> Evicted {
        let mut tried = SmallVec::<[usize; 8]>::new();
        for _ in 0..BUCKETS_PER_VICTIM {
            let due = self.segments.iter().map(|segment| segment.next_due).enumerate();
            let others = due.filter(|(at, due)| *due < UnixMs::MAX && !tried.contains(at));
            let Some((at, _)) = others.min_by_key(|(_, due)| *due) else { break };
            if let Some(victim) = self.due_in(at, keep) {
                return Evicted::Entry(self.take_found(hasher, victim));
            }
            tried.push(at);
        }
        Evicted::Nothing
    }

    /// The key of a segment with the earliest expiry; makes its `next_due` exact for when that key
    /// is gone.
    fn due_in(&mut self, at: usize, keep: &mut dyn FnMut(&[u8]) -> bool) -> Option<FoundKey> {
        let segment = &self.segments[at];
        let (mut victim, mut next_due) = (None, UnixMs::MAX);
        for (place, due) in segment.expiring() {
            let is_earlier = victim.is_none_or(|(_, earliest)| due < earliest);
            if is_earlier && !keep(segment.entry(place).key()) {
                next_due = next_due.min(victim.map_or(UnixMs::MAX, |(_, due)| due));
                victim = Some((place, due));
            } else {
                next_due = next_due.min(due);
            }
        }
        self.segments[at].next_due = next_due;
        victim.map(|(place, _)| FoundKey { segment: at, place, marks: SlotMarks::EXPIRES })
    }
}

#[cfg(test)]
mod tests;
