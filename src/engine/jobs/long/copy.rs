//! COPY of a hash that has many fields: they are copied a few at a time, and again if they change
//! meanwhile (see [`HashCopy`]). The command takes effect at its last step, with both keys in hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::on_main::{Answer, OnMain};
use crate::command::{Args, Error, HeldKeys, Limits, Reply};
use crate::engine::call::KeptCall;
use crate::engine::{Call, Engine, Gate, Intent, Part, Progress, Slice, Work};
use crate::limits::{COPIED_LAST_FIELDS, COPY_ROUNDS, MANY_TRIES};
use crate::store::HashCopy;

/// The copy of a call's first key.
pub(super) fn work(engine: &Engine, call: &Call<'_>) -> Work {
    let is_copied = Arc::new(AtomicBool::new(false));
    let part = CopyPart {
        shared: Arc::new(CopyJob { call: KeptCall::of(call, usize::MAX), copy: Mutex::new(None) }),
        stage: CopyStage::Begin,
        rounds: 0,
        is_copied: Arc::clone(&is_copied),
    };
    let say = move |reply: &mut dyn Reply, _: &Slice<'_>| {
        reply.integer(i64::from(is_copied.load(Ordering::Relaxed)));
        true
    };
    // The total is set once the key has been found.
    Work::on_one_worker(engine.shards().owner_of(call.first_key()), say, 0, part)
}

/// The call, and the copy as far as it has come. The part and the main thread have it in turn.
struct CopyJob {
    call: KeptCall,
    copy: Mutex<Option<HashCopy>>,
}

struct CopyPart {
    shared: Arc<CopyJob>,
    stage: CopyStage,
    /// How often the copy has begun.
    rounds: u8,
    is_copied: Arc<AtomicBool>,
}

enum CopyStage {
    Begin,
    /// Fields are copied. So many were left to be copied again at the last look.
    Copy(usize),
    /// The key gets the copy: `tries` is how often that could not be done here.
    Last {
        tries: u8,
    },
    /// The main thread has been asked to do that: it may wait for tokens, and write to keys that
    /// the host watches.
    OnMain(OnMain<Result<bool, Error>>),
}

impl Part for CopyPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        match self.shared.gate(slice) {
            Gate::Go => {}
            Gate::Wait => return Progress::Blocked,
            Gate::Refuse(error) => {
                slice.refuse(error);
                return Progress::Done;
            }
        }
        match &self.stage {
            CopyStage::Begin => self.begin(slice),
            CopyStage::Copy(left) => self.copy_some(slice, *left),
            CopyStage::Last { tries } => self.end(slice, *tries),
            CopyStage::OnMain(_) => self.look_at_answer(slice),
        }
    }
}

impl CopyPart {
    /// Looks the key up. A value that is no large hash by now is copied by the last step, and so is
    /// one that could not be copied before.
    fn begin(&mut self, slice: &Slice<'_>) -> Progress {
        let (engine, call) = (slice.engine, &self.shared.call);
        let key = call.args.get(1);
        let shard = engine.shards().of_key(key);
        let Some(mut held) = slice.take(shard) else { return Progress::Blocked };
        let (mut copy, mut fields) = (None, 0);
        engine.ledger.look(slice.slot, &mut held, call.db, key, &slice.now(), |edit| {
            copy = if self.rounds < COPY_ROUNDS { edit.begin_copy() } else { None };
            fields = edit.fields().ok().flatten().map_or(0, |fields| fields.len());
        });
        slice.release(shard, held);
        if let Some(job) = slice.job {
            job.total.store(fields as u64, Ordering::Relaxed);
            job.done.store(0, Ordering::Relaxed);
        }
        self.rounds += 1;
        self.stage =
            if copy.is_some() { CopyStage::Copy(usize::MAX) } else { CopyStage::Last { tries: 0 } };
        *self.shared.copy.lock() = copy;
        Progress::More
    }

    /// Copies fields, until few are left, or no fewer than at the last look: others change them as
    /// fast as they are copied.
    fn copy_some(&mut self, slice: &Slice<'_>, left_before: usize) -> Progress {
        let mut copy = self.shared.copy.lock();
        let Some(copy) = &mut *copy else { return Progress::More };
        if !copy_until_spent(copy, slice) {
            return Progress::Blocked;
        }
        match copy.left() {
            None => {}
            Some(left) if left > COPIED_LAST_FIELDS && left < left_before => {
                self.stage = CopyStage::Copy(left);
            }
            Some(_) => self.stage = CopyStage::Last { tries: 0 },
        }
        Progress::More
    }

    fn end(&mut self, slice: &Slice<'_>, tries: u8) -> Progress {
        let in_one_go = self.rounds > COPY_ROUNDS;
        if let Some(result) = self.shared.end(slice, in_one_go) {
            return self.end_with(result, slice);
        }
        self.stage = CopyStage::Last { tries: tries + 1 };
        if tries + 1 == MANY_TRIES {
            let shared = Arc::clone(&self.shared);
            let (step, task) = OnMain::new(move |slice| match shared.gate(slice) {
                Gate::Go => shared.end(slice, in_one_go),
                Gate::Wait => None,
                Gate::Refuse(error) => Some(Err(error)),
            });
            self.stage = CopyStage::OnMain(step);
            slice.engine.context().send_writing_task(task);
        }
        Progress::Blocked
    }

    fn look_at_answer(&mut self, slice: &Slice<'_>) -> Progress {
        let CopyStage::OnMain(step) = &self.stage else { return Progress::More };
        match step.take() {
            Answer::NotYet => return Progress::Blocked,
            Answer::NotNow => self.stage = CopyStage::Last { tries: 0 },
            Answer::Done(result, seen) => {
                slice.slot.log.see(seen);
                return self.end_with(result, slice);
            }
        }
        Progress::More
    }

    fn end_with(&mut self, result: Result<bool, Error>, slice: &Slice<'_>) -> Progress {
        match result {
            // The key has another hash by now, or too much of this one has changed.
            Err(Error::LongWork) => {
                self.stage = CopyStage::Begin;
                return Progress::More;
            }
            Ok(is_copied) => self.is_copied.store(is_copied, Ordering::Relaxed),
            Err(error) => slice.refuse(error),
        }
        Progress::Done
    }
}

impl CopyJob {
    /// Whether the command may still write.
    fn gate(&self, slice: &Slice<'_>) -> Gate {
        let late = self.call.args.with(|args| {
            let call = slice.call(&self.call, args);
            slice.engine.ledger.gate(Intent::Late(&call))
        });
        if late == Gate::Go { slice.gate(true) } else { late }
    }

    /// The last step: the key gets the copy. `None` if this thread may not do that, or not now.
    fn end(&self, slice: &Slice<'_>, in_one_go: bool) -> Option<Result<bool, Error>> {
        let mut copy = self.copy.lock();
        self.call.args.with(|args| {
            let call = self.call_again(slice, args, in_one_go);
            let keys = call.row().key_arguments(&call.args);
            let ended =
                slice.engine.with_many(slice.slot, &call, keys, slice.taking(), |keys, events| {
                    let is_there = keys.read(0).is_some();
                    let result = slice.engine.many_keys(&call, keys, events).copy(copy.take());
                    if result.is_ok() {
                        slice.slot.looked_up(is_there);
                    }
                    result
                });
            ended.ok()
        })
    }

    fn call_again<'c>(&self, slice: &Slice<'_>, args: Args<'c>, in_one_go: bool) -> Call<'c> {
        let call = slice.call(&self.call, args);
        let limits: Limits = if in_one_go { call.limits } else { call.limits.alone() };
        Call { limits, ..call }
    }
}

/// Copies fields until the slice is over, or all have been copied but the last few. False if the
/// shard is busy.
fn copy_until_spent(copy: &mut HashCopy, slice: &Slice<'_>) -> bool {
    let shards = slice.engine.shards();
    let Some(home) = copy.home() else { return true };
    let shard = shards.of(home);
    let Some(held) = slice.take(shard) else { return false };
    // The key may have been renamed before the shard was held.
    while copy.home() == Some(home) && copy.left().is_none_or(|left| left > COPIED_LAST_FIELDS) {
        slice.advance(copy.copy_some(&held) as u64);
        if slice.spent() {
            break;
        }
    }
    shards.let_go(shard, held);
    true
}
