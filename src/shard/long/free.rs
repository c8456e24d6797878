//! Freeing what FLUSHDB and FLUSHALL took out.

use std::sync::Arc;

use super::SayOk;
use crate::shard::{Engine, Part, Progress, Slice, Work};
use crate::store::Remains;

/// Frees tables, each worker its share; answers OK.
pub(super) fn work(engine: &Engine, remains: Vec<Remains>) -> Work {
    let total = remains.iter().map(|table| table.keys() as u64).sum();
    let mut parts: Vec<FreePart> = Vec::new();
    parts.resize_with(engine.config.workers, FreePart::default);
    for (number, table) in remains.into_iter().enumerate() {
        parts[number % engine.config.workers].tables.push(table);
    }
    Work {
        task: Arc::new(SayOk),
        parts: parts.into_iter().map(|part| Box::new(part) as Box<dyn Part>).collect(),
        total,
        first_worker: 0,
    }
}

#[derive(Default)]
struct FreePart {
    tables: Vec<Remains>,
}

impl Part for FreePart {
    /// What a flush took out is freed bit by bit, even if nobody waits for it any more.
    fn must_finish(&self) -> bool {
        true
    }

    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        while let Some(table) = self.tables.last_mut() {
            let freed = table.free_some();
            slice.advance(freed as u64);
            if table.is_empty() {
                self.tables.pop();
            }
            if slice.spent() {
                return Progress::More;
            }
        }
        Progress::Done
    }
}
