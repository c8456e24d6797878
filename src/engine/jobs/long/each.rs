//! DEL, UNLINK and EXISTS of very many keys, a few keys at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use smallvec::SmallVec;

use crate::command::{Args, OnEachKey, Reply};
use crate::engine::call::KeptCall;
use crate::engine::{Call, Engine, Gate, Intent, Part, Progress, Slice, Work};

/// Keys between two reads of the clock.
const KEYS_AT_A_TIME: usize = 16;

/// Calls `each` on every key; replies for how many it gave true.
pub(super) fn work(engine: &Engine, call: &Call<'_>, each: OnEachKey) -> Work {
    let count = Arc::new(AtomicI64::new(0));
    let call = KeptCall::of(call, usize::MAX);
    let (total, owner) = (call.args.len() as u64 - 1, engine.shards().owner_of(call.args.get(1)));
    let part = EachPart { call, next: 1, each, count: Arc::clone(&count) };
    let say = move |reply: &mut dyn Reply, _: &Slice<'_>| {
        reply.integer(count.load(Ordering::Relaxed));
        true
    };
    Work::on_one_worker(owner, say, total, part)
}

struct EachPart {
    call: KeptCall,
    next: usize,
    each: OnEachKey,
    count: Arc<AtomicI64>,
}

impl Part for EachPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let args = &self.call.args;
        while self.next < args.len() {
            let end = (self.next + KEYS_AT_A_TIME).min(args.len());
            let words: SmallVec<[&[u8]; KEYS_AT_A_TIME + 1]> =
                std::iter::once(0).chain(self.next..end).map(|at| args.get(at)).collect();
            let (call, keys) = (slice.call(&self.call, Args::new(&words)), &words[1..]);
            if let Gate::Refuse(error) = slice.engine.ledger.gate(Intent::Late(&call)) {
                slice.refuse(error);
                return Progress::Done;
            }
            if slice.gate(false) == Gate::Wait {
                return Progress::Blocked;
            }
            let taking = slice.taking();
            // Busy, or the main thread has been asked to announce a change.
            let Ok(count) = slice.engine.each_key(slice.slot, &call, keys, taking, self.each)
            else {
                return Progress::Blocked;
            };
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
