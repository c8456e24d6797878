//! A database that was taken out of its shard, on its way to the allocator.

use super::segment::Segment;

/// A dropped table that is freed in pieces.
pub struct Remains {
    keys: usize,
    segments: Vec<Segment>,
}

impl Remains {
    pub(super) fn new(keys: usize, segments: Vec<Segment>) -> Self {
        Remains { keys, segments }
    }

    /// Calls `name` with each key that [`Remains::free_some`] frees next.
    pub fn name_next(&self, mut name: impl FnMut(&[u8])) {
        let segment = self.segments.last();
        segment.into_iter().flat_map(Segment::entries).for_each(|entry| name(entry.key()));
    }

    /// Frees one segment; returns how many keys it had.
    pub fn free_some(&mut self) -> usize {
        let freed = self.segments.pop().map_or(0, |segment| segment.used());
        self.keys -= freed;
        freed
    }

    /// Whether all has been freed.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Keys not yet freed.
    pub fn keys(&self) -> usize {
        self.keys
    }
}
