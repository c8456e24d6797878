//! Removes the keys of slots that the host's node has lost: each worker those of its own shards,
//! while clients go on with the other slots. Each is logged as a DEL.

use std::sync::Arc;

use super::say_ok;
use crate::command::Transcript;
use crate::command::slot::slot_of;
use crate::engine::ledger::Account;
use crate::engine::shards::KeyAt;
use crate::engine::{Engine, Gate, Gates, HeldShard, Part, Progress, Slice, Work};
use crate::store::{Now, UnixMs};
use crate::sync::Locked;

/// The name of the job.
const NAME: &str = "slots";

/// The host's clients are paused, or may not write.
const WAITS: Gates = Gates::PAUSED.and(Gates::WRITES_PAUSED).and(Gates::SAVING);

/// This node's keys are not its own any more.
const ENDS: Gates = Gates::READ_ONLY.and(Gates::LOADING);

/// Has the workers remove the keys of lost slots. False if they are at it.
pub fn remove_lost_keys(engine: &Engine) -> bool {
    let starts = engine.jobs.list().iter().all(|job| job.name != NAME);
    if starts {
        engine.jobs.start_own(engine.context(), NAME, work(engine));
    }
    starts
}

/// Removes the keys of lost slots here and now, however long that takes.
pub fn remove_lost_keys_now(engine: &Engine, locked: Locked<'_>) {
    work(engine).run_to_end(engine, locked, &mut Transcript::default());
}

/// The removal of the keys of lost slots from all shards.
fn work(engine: &Engine) -> Work {
    let part =
        |worker| LostPart { shards: engine.shards().owned_by(worker).collect(), db: 0, at: 0 };
    Work::on_every_worker(engine, Arc::new(say_ok), u64::from(engine.shards().count()), part)
}

struct LostPart {
    /// Shards that are not done, the next one last.
    shards: Vec<u32>,
    /// Its next database, and the next place in that.
    db: u32,
    at: u32,
}

impl Part for LostPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let engine = slice.engine;
        while let Some(&shard) = self.shards.last() {
            if engine.gates().has(ENDS) {
                return Progress::Done;
            }
            let waits = || engine.gates().has(WAITS) || slice.gate(false) == Gate::Wait;
            if !slice.is_endless() && waits() {
                return Progress::Blocked;
            }
            let Some(mut held) = slice.take(shard) else { return Progress::Blocked };
            let may_write = slice.is_endless() || !engine.ledger.admission.is_closed_to_workers();
            let may_go_on = may_write && self.remove_some(slice, shard, &mut held);
            slice.release(shard, held);
            if !may_go_on {
                return Progress::Blocked;
            }
            if slice.spent() {
                return Progress::More;
            }
        }
        Progress::Done
    }
}

impl LostPart {
    /// Removes the next keys of the shard. False if the host must first be notified of a key that
    /// it watches.
    fn remove_some(&mut self, slice: &Slice<'_>, shard: u32, held: &mut HeldShard<'_>) -> bool {
        let (engine, db) = (slice.engine, self.db);
        let mut names: Vec<Vec<u8>> = Vec::new();
        let next = held.table(db).and_then(|table| {
            table.scan_segment(&engine.shards().hasher, self.at, &mut |entry| {
                if engine.ledger.slots.is_lost(slot_of(entry.key())) {
                    names.push(entry.key().to_vec());
                }
            })
        });
        let watched = names.iter().filter(|name| held.watched.concerns(db, name));
        if !slice.is_endless()
            && watched.map(|name| engine.ledger.announce_change(db, name)).count() > 0
        {
            return false;
        }
        let account = Account::new(slice.slot, false);
        for name in names {
            let at = KeyAt { shard, db, hash: engine.shards().hasher.hash(&name) };
            // A moment at which no key has expired.
            engine
                .ledger
                .edit_key(account, held, at, &name, &Now::at(UnixMs::MIN), |edit| edit.remove());
        }
        match next {
            Some(next) => self.at = next,
            None => self.go_to_next(slice, held),
        }
        true
    }

    /// Goes on with the next database of the shard, or the next shard.
    fn go_to_next(&mut self, slice: &Slice<'_>, held: &HeldShard<'_>) {
        self.at = 0;
        self.db = held.next_db(self.db + 1).unwrap_or_else(|| {
            self.shards.pop();
            slice.advance(1);
            0
        });
    }
}
