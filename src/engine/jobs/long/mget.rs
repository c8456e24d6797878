//! MGET of values that are large together: they are copied one after the other, each as it was at
//! the same moment.
//!
//! ```text
//! each key gets an observer ─► each value is copied ─► the reply is made
//!           ▲                            │ a key that is not copied yet has changed
//!           └────────────────────────────┘ a few times; then all are copied at once
//! ```
//!
//! The moment is the one at which the last observer has been added. Each key stays as it was until
//! its value has been copied, because a thread that changes it raises a flag before it releases the
//! shard. Expired keys are found by the clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::on_main::{Answer, OnMain};
use crate::command::{Copied, Error, LEAST_ELEMENT_BYTES, Reply};
use crate::engine::call::KeptCall;
use crate::engine::{Call, Engine, HeldShard, Part, Progress, Slice, Work};
use crate::limits::{MANY_TRIES, MGET_PIECE_BYTES, MGET_ROUNDS, MGET_WATCHED};
use crate::store::{Done, Now, SharedValue, StringRef, UnixMs, read};

/// The values of a call's keys.
pub(super) fn work(engine: &Engine, call: &Call<'_>) -> Work {
    let keys = call.args.len() - 1;
    let found = Arc::new(Mutex::new(UnwrittenReply { keys: Some(keys), values: VecDeque::new() }));
    let part = MgetPart {
        asked: Arc::new(Asked(KeptCall::of(call, usize::MAX))),
        stage: if keys > MGET_WATCHED {
            Stage::InOneGo { tries: 0 }
        } else {
            Stage::Round(Round::new(keys))
        },
        rounds: 1,
        found: Arc::clone(&found),
    };
    let say = move |reply: &mut dyn Reply, slice: &Slice<'_>| found.lock().say(reply, slice);
    Work::on_one_worker(engine.shards().owner_of(call.first_key()), say, keys as u64, part)
}

/// The call.
struct Asked(KeptCall);

impl Asked {
    fn key(&self, number: usize) -> &[u8] {
        self.0.args.get(1 + number)
    }

    fn keys(&self) -> usize {
        self.0.args.len() - 1
    }

    /// Copies all values while all shards are held. `None` if they were not free together.
    fn copy_in_one_go(&self, slice: &Slice<'_>, most: usize) -> Option<Result<Vec<Copied>, Error>> {
        let (engine, taking) = (slice.engine, slice.taking());
        self.0.args.with(|args| {
            let call = slice.call(&self.0, args);
            let keys = call.row().key_arguments(&call.args);
            let values = engine.with_many(slice.slot, &call, keys, taking, |keys, events| {
                engine.many_keys(&call, keys, events).copied(most)
            });
            // It only reads, so a busy token is the only obstacle.
            values.ok()
        })
    }
}

struct MgetPart {
    asked: Arc<Asked>,
    stage: Stage,
    /// The number of this round, from 1.
    rounds: u8,
    found: Arc<Mutex<UnwrittenReply>>,
}

enum Stage {
    Round(Round),
    /// After too many rounds, or with too many keys: `tries` is how often the tokens were busy.
    InOneGo {
        tries: u8,
    },
    /// The main thread has been asked to do it, because it may wait for tokens.
    OnMain(OnMain<Result<Vec<Copied>, Error>>),
}

/// How a step ended.
enum Step {
    /// The next one may follow.
    Next,
    /// The shard was busy.
    Busy,
    /// A key has changed.
    Changed,
    /// There is no more to do.
    Done,
}

impl Part for MgetPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let mut progress = Progress::Blocked;
        loop {
            let step = match &mut self.stage {
                Stage::Round(round) if round.unwatched > 0 => round.watch(&self.asked, slice),
                Stage::Round(round) => round.copy(&self.asked, slice),
                Stage::InOneGo { .. } => return self.in_one_go(slice),
                Stage::OnMain(_) => return self.look_at_answer(slice),
            };
            match step {
                Step::Next => progress = Progress::More,
                Step::Busy => return progress,
                Step::Changed => self.begin_again(slice),
                Step::Done => return self.end(slice),
            }
            if slice.spent() {
                return Progress::More;
            }
        }
    }
}

impl MgetPart {
    fn begin_again(&mut self, slice: &Slice<'_>) {
        if let Some(job) = slice.job {
            job.done.store(0, Ordering::Relaxed);
        }
        let is_last = self.rounds == MGET_ROUNDS;
        self.rounds += 1;
        self.stage = if is_last {
            Stage::InOneGo { tries: 0 }
        } else {
            Stage::Round(Round::new(self.asked.keys()))
        };
    }

    fn in_one_go(&mut self, slice: &Slice<'_>) -> Progress {
        let most = slice.most_reply();
        if let Some(copied) = self.asked.copy_in_one_go(slice, most) {
            return self.end_with(copied, slice);
        }
        let Stage::InOneGo { tries } = &mut self.stage else { return Progress::More };
        *tries += 1;
        if *tries == MANY_TRIES {
            self.ask_main(slice.engine, most);
        }
        Progress::Blocked
    }

    fn ask_main(&mut self, engine: &Engine, most: usize) {
        let asked = Arc::clone(&self.asked);
        let (step, task) = OnMain::new(move |slice| asked.copy_in_one_go(slice, most));
        self.stage = Stage::OnMain(step);
        engine.context().send_main_task(task);
    }

    fn look_at_answer(&mut self, slice: &Slice<'_>) -> Progress {
        let Stage::OnMain(step) = &self.stage else { return Progress::More };
        match step.take(slice) {
            Answer::NotYet => return Progress::Blocked,
            Answer::NotNow => self.stage = Stage::InOneGo { tries: 0 },
            Answer::Done(copied) => return self.end_with(copied, slice),
        }
        Progress::More
    }

    fn end_with(&mut self, copied: Result<Vec<Copied>, Error>, slice: &Slice<'_>) -> Progress {
        match copied {
            Ok(copied) => {
                slice.advance(copied.len() as u64);
                count_found(&copied, slice);
                self.found.lock().values = copied.into();
            }
            Err(error) => slice.refuse(error),
        }
        Progress::Done
    }

    /// A round has ended, or was refused.
    fn end(&mut self, slice: &Slice<'_>) -> Progress {
        if let Stage::Round(round) = &mut self.stage {
            count_found(&round.copied, slice);
            self.found.lock().values = std::mem::take(&mut round.copied).into();
        }
        Progress::Done
    }
}

/// Counts how many of the keys were found, for INFO.
fn count_found(copied: &[Copied], slice: &Slice<'_>) {
    copied.iter().for_each(|value| slice.slot.looked_up(value.is_some()));
}

/// One attempt to copy the values one after the other.
struct Round {
    flag: Arc<AtomicBool>,
    /// How many keys have no observer yet: this many from the first.
    unwatched: usize,
    /// Whether the observer was added for this key, not for an equal one after it: the observer
    /// belongs to the last of equal keys.
    is_own: Vec<bool>,
    /// The first time at which one of the keys expires.
    due: UnixMs,
    /// The least that all take in a reply.
    bytes: usize,
    copied: Vec<Copied>,
    /// The part of the next value that has been copied.
    partial: Vec<u8>,
}

impl Round {
    fn new(keys: usize) -> Self {
        Round {
            flag: Arc::default(),
            unwatched: keys,
            is_own: vec![false; keys],
            due: UnixMs::MAX,
            bytes: 0,
            copied: Vec::new(),
            partial: Vec::new(),
        }
    }

    /// Adds an observer to the next key, from the last to the first.
    fn watch(&mut self, asked: &Asked, slice: &Slice<'_>) -> Step {
        let (engine, number) = (slice.engine, self.unwatched - 1);
        let (key, db) = (asked.key(number), asked.0.db);
        let shard = engine.shards().key_at(db, key).shard;
        let Some(mut held) = engine.shards().take(shard, slice.taking()) else { return Step::Busy };
        self.is_own[number] =
            held.watched.observe(db, key, &self.flag, engine.ledger.most_watched());
        self.look(key, db, &mut held, slice);
        slice.release(shard, held);
        if self.bytes > slice.most_reply() {
            slice.refuse(Error::ReplyTooLarge);
            return Step::Done;
        }
        self.unwatched = number;
        Step::Next
    }

    /// Notes a key's size, and when it expires; removes an expired one now.
    fn look(&mut self, key: &[u8], db: u32, held: &mut HeldShard<'_>, slice: &Slice<'_>) {
        self.bytes += LEAST_ELEMENT_BYTES;
        slice.engine.ledger.look(slice.slot, held, db, key, &slice.now(), |edit| {
            let Some(entry) = edit.read() else { return };
            self.due = self.due.min(entry.expire_at().unwrap_or(UnixMs::MAX));
            self.bytes += entry.string().map_or(0, |value| value.len());
        });
    }

    /// Copies the next value, or continues with it.
    fn copy(&mut self, asked: &Asked, slice: &Slice<'_>) -> Step {
        let (engine, db, number) = (slice.engine, asked.0.db, self.copied.len());
        if number == asked.keys() {
            return Step::Done;
        }
        let key = asked.key(number);
        let at = engine.shards().key_at(db, key);
        let Some(mut held) = slice.take(at.shard) else { return Step::Busy };
        // Read while the shard is held.
        let now = slice.now();
        let mut step = Step::Changed;
        if !self.has_changed(&now) {
            let entry =
                held.table(db).and_then(|table| read(table, at.hash, key, &now, &Done::default()));
            if self.copy_value(entry.and_then(|entry| entry.string().ok()), slice) {
                slice.advance(1);
                if self.is_own[number] {
                    held.watched.forget(db, key, &self.flag);
                }
            }
            step = Step::Next;
        }
        slice.release(at.shard, held);
        step
    }

    fn has_changed(&self, now: &Now) -> bool {
        self.flag.load(Ordering::Relaxed) || self.due != UnixMs::MAX && now.hides(self.due)
    }

    /// Copies as much of a value as the slice allows. True when all of it is copied.
    fn copy_value(&mut self, value: Option<StringRef<'_>>, slice: &Slice<'_>) -> bool {
        let Some(value) = value else {
            self.copied.push(None);
            return true;
        };
        if let Some(shared) = value.shared() {
            self.copied.push(Some(shared));
            return true;
        }
        let bytes = value.bytes();
        self.partial.reserve_exact(bytes.len() - self.partial.len());
        while self.partial.len() < bytes.len() {
            let from = self.partial.len();
            self.partial.extend_from_slice(&bytes[from..bytes.len().min(from + MGET_PIECE_BYTES)]);
            if slice.spent() {
                break;
            }
        }
        let is_all = self.partial.len() == bytes.len();
        if is_all {
            self.copied.push(Some(SharedValue::new(std::mem::take(&mut self.partial))));
        }
        is_all
    }
}

/// The reply, as far as it is not written yet.
struct UnwrittenReply {
    /// The length of the array, until that is written.
    keys: Option<usize>,
    /// A value is freed once it is written, so that the reply is not in memory twice.
    values: VecDeque<Copied>,
}

impl UnwrittenReply {
    fn say(&mut self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool {
        if let Some(keys) = self.keys.take() {
            reply.array(keys);
        }
        while let Some(value) = self.values.pop_front() {
            match value {
                Some(value) => reply.shared(&value),
                None => reply.null(),
            }
            if slice.spent() {
                return self.values.is_empty();
            }
        }
        true
    }
}
