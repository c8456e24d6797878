//! DEL, UNLINK and EXISTS of very many keys, a few keys at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use smallvec::SmallVec;

use crate::command::{Args, OnEachKey, OwnedArgs, Reply};
use crate::engine::{Author, Call, Engine, Gate, Intent, Part, Progress, Slice, Task, Work};

/// Keys between two reads of the clock.
const KEYS_AT_A_TIME: usize = 16;

/// Calls `each` on every key; replies for how many it gave true.
pub(super) fn work(engine: &Engine, call: &Call<'_>, each: OnEachKey) -> Work {
    let count = Arc::new(AtomicI64::new(0));
    let part = EachPart {
        args: call.args.to_owned(usize::MAX),
        command: call.command,
        db: call.db,
        prefix: call.prefix,
        next: 1,
        each,
        count: Arc::clone(&count),
    };
    Work {
        parts: vec![Box::new(part)],
        task: Arc::new(EachTask(count)),
        total: call.args.len() as u64 - 1,
        first_worker: engine.shards().owner(engine.shards().of_key(call.args.get(1))),
        sees_passed: false,
    }
}

struct EachPart {
    args: OwnedArgs,
    command: usize,
    db: u32,
    prefix: &'static str,
    next: usize,
    each: OnEachKey,
    count: Arc<AtomicI64>,
}

impl Part for EachPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        while self.next < self.args.len() {
            let end = (self.next + KEYS_AT_A_TIME).min(self.args.len());
            let keys: SmallVec<[&[u8]; KEYS_AT_A_TIME]> =
                (self.next..end).map(|at| self.args.get(at)).collect();
            let call = Call {
                command: self.command,
                args: Args::new(&keys),
                db: self.db,
                now: slice.now(),
                limits: slice.engine.settings().limits(usize::MAX),
                prefix: self.prefix,
                author: Author::Nobody,
            };
            if let Gate::Refuse(error) = slice.engine.ledger.gate(Intent::Late(&call)) {
                slice.refuse(error);
                return Progress::Done;
            }
            if slice.gate(false) == Gate::Wait {
                return Progress::Blocked;
            }
            let taking = slice.taking();
            // Busy, or the main thread has been asked to announce a change.
            let Ok(count) = slice.engine.each_key(slice.slot, &call, &keys, taking, self.each)
            else {
                return Progress::Blocked;
            };
            if slice.engine.ledger.notifications.is_listening() {
                slice.engine.ledger.announce_notifications(slice.slot);
            }
            self.count.fetch_add(count, Ordering::Relaxed);
            slice.advance((end - self.next) as u64);
            self.next = end;
            if slice.spent() {
                return Progress::More;
            }
        }
        Progress::Done
    }
}

struct EachTask(Arc<AtomicI64>);

impl Task for EachTask {
    fn reply(&self, reply: &mut dyn Reply, _: &Slice<'_>) -> bool {
        reply.integer(self.0.load(Ordering::Relaxed));
        true
    }
}
