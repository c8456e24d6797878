//! Freeing the tables that FLUSHDB and FLUSHALL took out, and notifying clients that may have
//! cached their keys.

use std::sync::Arc;

use super::say_ok;
use crate::engine::{Engine, Part, Progress, Slice, Work};
use crate::limits::{FLUSHED_NAME_BYTES, FLUSHED_NAMES};
use crate::store::Remains;

/// Frees tables, divided among the workers; replies OK. If clients may have `cached` these keys,
/// they have been notified of all of them by then.
pub(super) fn work(engine: &Engine, remains: Vec<Remains>, cached: bool) -> Work {
    let total = remains.iter().map(|table| table.keys() as u64).sum();
    let mut tables: Vec<Vec<Remains>> = Vec::new();
    tables.resize_with(engine.config().workers, Vec::new);
    for (number, table) in remains.into_iter().enumerate() {
        tables[number % engine.config().workers].push(table);
    }
    let part = |worker| FreePart { tables: std::mem::take(&mut tables[worker]), cached };
    Work::on_every_worker(engine, Arc::new(say_ok), total, part)
}

struct FreePart {
    tables: Vec<Remains>,
    cached: bool,
}

impl Part for FreePart {
    /// Flushed tables are freed to the end, even if no client waits any more.
    fn must_finish(&self) -> bool {
        true
    }

    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let engine = slice.engine;
        // The clients that cached them may have left meanwhile.
        if !self.cached || !engine.ledger.notifications.is_tracked() {
            return self.free(slice, |_| true);
        }
        if let Some(locked) = slice.locked() {
            return self.free(slice, |table| {
                table.name_next(|key| engine.ledger.tell_flushed(locked, key));
                true
            });
        }
        // Even if nothing is left to free: then the last names have been sent.
        let Some(names_permit) = engine.ledger.notifications.may_name() else {
            return Progress::Blocked;
        };
        let (mut names, mut bytes) = (Vec::<Box<[u8]>>::new(), 0);
        let progress = self.free(slice, |table| {
            table.name_next(|key| {
                bytes += key.len();
                names.push(key.into());
            });
            names.len() < FLUSHED_NAMES && bytes < FLUSHED_NAME_BYTES
        });
        if names.is_empty() {
            return progress;
        }
        engine.context().send_main_task(Box::new(move |locked, engine, _| {
            names.iter().for_each(|key| engine.ledger.tell_flushed(locked, key));
            // The right to send more is free again.
            drop(names_permit);
        }));
        Progress::More
    }
}

impl FreePart {
    /// Frees tables until the slice is over, or until `go_on` returns false; it gets each table
    /// before the next piece of it is freed.
    fn free(&mut self, slice: &Slice<'_>, mut go_on: impl FnMut(&Remains) -> bool) -> Progress {
        while let Some(table) = self.tables.last_mut() {
            let more = go_on(table);
            let freed = table.free_some();
            slice.advance(freed as u64);
            if table.is_empty() {
                self.tables.pop();
            }
            if slice.spent() || !more {
                return Progress::More;
            }
        }
        Progress::Done
    }
}
