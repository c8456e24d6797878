//! COPY of a hash that has many fields: they are copied a few at a time, and again if they change
//! meanwhile (see [`HashCopy`]). The command takes effect at its last step, with both keys in hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::on_main::{Answer, OnMain};
use crate::command::{Args, Error, HeldKeys, Reply};
use crate::engine::call::KeptCall;
use crate::engine::ledger::Unfinished;
use crate::engine::{Call, Engine, Gate, Intent, Part, Progress, Slice, Work};
use crate::limits::{COPIED_BEFORE_LAST_FIELDS, COPY_ROUNDS, MANY_TRIES};
use crate::store::HashCopy;

/// The copy of a call's first key.
pub(super) fn work(engine: &Engine, call: &Call<'_>) -> Work {
    let shared = Arc::new(CopyJob {
        call: KeptCall::of(call, usize::MAX),
        made: Mutex::new(None),
        is_copied: AtomicBool::new(false),
    });
    let part = CopyPart { shared: Arc::clone(&shared), stage: CopyStage::Begin, rounds: 0 };
    let say = move |reply: &mut dyn Reply, _: &Slice<'_>| {
        reply.integer(i64::from(shared.is_copied.load(Ordering::Relaxed)));
        true
    };
    // The total is set once the key has been found.
    Work::on_one_worker(engine.shards().owner_of(call.first_key()), say, 0, part)
}

/// The call, and the copy as far as it has come. The part and the main thread have it in turn.
struct CopyJob {
    call: KeptCall,
    made: Mutex<Option<BegunCopy>>,
    /// The reply: whether the key was copied.
    is_copied: AtomicBool,
}

struct BegunCopy {
    copy: HashCopy,
    counted: Unfinished,
}

struct CopyPart {
    shared: Arc<CopyJob>,
    stage: CopyStage,
    /// How often it had to begin again, or to fall back to copying fields.
    rounds: u8,
}

enum CopyStage {
    Begin,
    /// Fields are copied. So many were `left` to be copied again at the last look, no fewer than
    /// before at so many looks in a row: then others change them as fast as they are copied.
    Copy {
        left: usize,
        in_vain: u8,
    },
    /// The key gets the copy: `tries` is how often that could not be done here.
    Last {
        tries: u8,
    },
    /// The main thread has been asked to do that: it may wait for tokens, and write to keys that
    /// the host watches.
    OnMain(OnMain<Result<bool, Error>>),
}

impl CopyStage {
    const COPY: Self = CopyStage::Copy { left: usize::MAX, in_vain: 0 };
}

impl Part for CopyPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        // What the main thread has done is done, whatever has become of the gates.
        if let CopyStage::OnMain(step) = &self.stage {
            match step.take(slice) {
                Answer::NotYet => return Progress::Blocked,
                Answer::NotNow => self.stage = CopyStage::Last { tries: 0 },
                Answer::Done(result) => return self.end_with(result, slice),
            }
        }
        match self.shared.gate(slice) {
            Gate::Go => {}
            Gate::Wait => return Progress::Blocked,
            Gate::Refuse(error) => {
                slice.refuse(error);
                return Progress::Done;
            }
        }
        match self.stage {
            CopyStage::Begin => self.begin(slice),
            CopyStage::Copy { left, in_vain } => self.copy_some(slice, left, in_vain),
            CopyStage::Last { tries } => self.end(slice, tries),
            CopyStage::OnMain(_) => Progress::Blocked,
        }
    }

    fn must_finish(&self) -> bool {
        matches!(self.stage, CopyStage::OnMain(_))
    }
}

impl CopyPart {
    fn in_one_go(&self) -> bool {
        self.rounds >= COPY_ROUNDS
    }

    /// Looks the key up. A value that is no large hash by now is copied by the last step, as is one
    /// that could not be copied before.
    fn begin(&mut self, slice: &Slice<'_>) -> Progress {
        let (engine, call) = (slice.engine, &self.shared.call);
        let key = call.args.get(1);
        let shard = engine.shards().of_key(key);
        let Some(mut held) = slice.take(shard) else { return Progress::Blocked };
        let (mut copy, mut fields, in_one_go) = (None, 0, self.in_one_go());
        engine.ledger.look(slice.slot, &mut held, call.db, key, &slice.now(), |edit| {
            copy = if in_one_go { None } else { edit.begin_copy() };
            fields = edit.fields().ok().flatten().map_or(0, |fields| fields.len());
        });
        slice.release(shard, held);
        if let Some(job) = slice.job {
            job.total.store(fields as u64, Ordering::Relaxed);
            job.done.store(0, Ordering::Relaxed);
        }
        self.stage = match copy {
            Some(_) => CopyStage::COPY,
            None => CopyStage::Last { tries: 0 },
        };
        let counted = engine.ledger.books.unfinished();
        *self.shared.made.lock() = copy.map(|copy| BegunCopy { copy, counted });
        Progress::More
    }

    fn copy_some(&mut self, slice: &Slice<'_>, left_before: usize, in_vain: u8) -> Progress {
        let Some(left) = self.shared.copy_some(slice) else { return Progress::Blocked };
        let Some(left) = left else { return Progress::More };
        let in_vain = if left < left_before { 0 } else { in_vain + 1 };
        if in_vain == COPY_ROUNDS {
            self.rounds = COPY_ROUNDS;
        }
        self.stage = if left <= COPIED_BEFORE_LAST_FIELDS || self.in_one_go() {
            CopyStage::Last { tries: 0 }
        } else {
            CopyStage::Copy { left, in_vain }
        };
        Progress::More
    }

    fn end(&mut self, slice: &Slice<'_>, tries: u8) -> Progress {
        let in_one_go = self.in_one_go();
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

    fn end_with(&mut self, result: Result<bool, Error>, slice: &Slice<'_>) -> Progress {
        match result {
            Err(Error::LongWork) => {
                self.rounds += 1;
                let is_kept = self.shared.made.lock().is_some();
                self.stage = if is_kept { CopyStage::COPY } else { CopyStage::Begin };
                return Progress::More;
            }
            Ok(is_copied) => {
                self.shared.is_copied.store(is_copied, Ordering::Relaxed);
                if let Some(job) = slice.job {
                    job.took_effect();
                }
            }
            Err(error) => slice.refuse(error),
        }
        Progress::Done
    }
}

impl CopyJob {
    /// Whether the command may still write.
    fn gate(&self, slice: &Slice<'_>) -> Gate {
        let ledger = &slice.engine.ledger;
        let late = self.call.args.with(|args| {
            let call = slice.call(&self.call, args);
            match ledger.refusal_in_database(&call) {
                Some(error) => Gate::Refuse(error),
                None => ledger.gate(Intent::Late(&call)),
            }
        });
        if late == Gate::Go { slice.gate(true) } else { late }
    }

    /// Copies fields until the slice is over, or all have been copied but the last few. Returns
    /// what [`HashCopy::left`] says then; `None` if the shard is busy.
    fn copy_some(&self, slice: &Slice<'_>) -> Option<Option<usize>> {
        let mut made = self.made.lock();
        let Some(BegunCopy { copy, counted }) = &mut *made else { return Some(Some(0)) };
        let shards = slice.engine.shards();
        let home = copy.home()?;
        let shard = shards.of(home);
        let held = slice.take(shard)?;
        let mut left = None;
        // The key may have been renamed before the shard was held.
        while copy.home() == Some(home) {
            left = copy.left(&held);
            if slice.spent() || left.is_some_and(|left| left <= COPIED_BEFORE_LAST_FIELDS) {
                break;
            }
            slice.advance(copy.copy_some(&held) as u64);
        }
        shards.let_go(shard, held);
        slice.engine.ledger.note_unfinished(slice.slot, counted, copy.bytes());
        Some(left)
    }

    /// The last step: the key gets the copy. `None` if this thread may not do that, or not now.
    fn end(&self, slice: &Slice<'_>, in_one_go: bool) -> Option<Result<bool, Error>> {
        let (engine, slot) = (slice.engine, slice.slot);
        self.call.args.with(|args| {
            let call = self.call_again(slice, args, in_one_go);
            let keys = call.row().key_arguments(&call.args);
            let ended = engine.with_many(slot, &call, keys, slice.taking(), |keys, events| {
                let is_there = keys.read(0).is_some();
                let mut made = self.made.lock();
                let (mut copy, counted) =
                    made.take().map(|begun| (begun.copy, begun.counted)).unzip();
                let result = engine.many_keys(&call, keys, events).copy(&mut copy);
                // Otherwise it counts with the table from here on.
                *made = copy.zip(counted).map(|(copy, counted)| BegunCopy { copy, counted });
                if result.is_ok() {
                    slot.looked_up(is_there);
                }
                result
            });
            ended.ok()
        })
    }

    fn call_again<'c>(&self, slice: &Slice<'_>, args: Args<'c>, in_one_go: bool) -> Call<'c> {
        let call = slice.call(&self.call, args);
        let limits = if in_one_go { call.limits } else { call.limits.alone() };
        Call { limits, ..call }
    }
}
