//! Tables of fields that nothing refers to any more, to be freed bit by bit.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::limits::FREED_AT_ONCE_FIELDS;
use crate::store::{Remains, Table};

static LEFT: Unfreed = Unfreed::new();

/// Tables that wait for their end.
struct Unfreed {
    list: Mutex<Vec<Remains>>,
    /// Whether the list has any, for a look without its lock; written with it alone.
    has_any: AtomicBool,
}

impl Unfreed {
    const fn new() -> Self {
        Unfreed { list: Mutex::new(Vec::new()), has_any: AtomicBool::new(false) }
    }

    fn push(&self, mut list: MutexGuard<'_, Vec<Remains>>, remains: Remains) {
        list.push(remains);
        self.has_any.store(true, Relaxed);
    }

    fn pop(&self) -> Option<Remains> {
        let mut list = self.list.lock();
        let popped = list.pop();
        self.has_any.store(!list.is_empty(), Relaxed);
        popped
    }

    /// See [`free_left`].
    fn free(&self, more: &mut dyn FnMut() -> bool) -> bool {
        while let Some(mut remains) = self.pop() {
            while !remains.is_empty() {
                remains.free_some();
                if !more() {
                    if !remains.is_empty() {
                        self.push(self.list.lock(), remains);
                    }
                    return false;
                }
            }
        }
        true
    }
}

/// Frees a table of few fields; leaves another to [`free_left`].
pub(super) fn leave(table: Table) {
    if table.len() <= FREED_AT_ONCE_FIELDS {
        return;
    }
    // Nobody waits here: a token may be held. A forked child may find the list locked forever.
    for _ in 0..1000 {
        if let Some(list) = LEFT.list.try_lock() {
            LEFT.push(list, table.into_remains());
            return;
        }
        std::hint::spin_loop();
    }
}

/// Whether [`free_left`] has anything to do.
#[inline]
pub fn has_left() -> bool {
    LEFT.has_any.load(Relaxed)
}

/// Frees tables that nothing refers to any more, a few hundred fields at a time, while `more`
/// returns true. It has freed all that nobody else is freeing if it returns true.
pub fn free_left(more: &mut dyn FnMut() -> bool) -> bool {
    LEFT.free(more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Entry, KeyHasher, Value};

    /// A thread that finds nothing, while another frees the last one, does not hide that.
    #[test]
    fn what_a_thread_has_no_time_for_is_not_forgotten() {
        let (hasher, mut table) = (KeyHasher::default(), Table::default());
        for number in 0..3000 {
            let field = format!("field:{number}").into_bytes();
            table.put(&hasher, hasher.hash(&field), Entry::new(&field, Value::Inline(b""), None));
        }
        let left = Unfreed::new();
        left.push(left.list.lock(), table.into_remains());
        let mut slices = 0;
        while left.has_any.load(Relaxed) {
            slices += 1;
            assert!(!left.free(&mut || !left.free(&mut || true)));
        }
        assert!(slices > 10 && left.list.lock().is_empty(), "{slices} slices");
    }
}
