//! LCS of values that are not short: they are copied, or shared, while their shards are held; the
//! computation then needs no shard.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::command::{Error, Lcs, LcsOptions, Reply};
use crate::engine::call::KeptCall;
use crate::engine::{Call, Engine, Part, Progress, Slice, Work};
use crate::store::SharedValue;

/// The longest common subsequence of the values of a call's two keys.
pub(super) fn work(engine: &Engine, call: &Call<'_>) -> Result<Work, Error> {
    let found = Arc::new(Mutex::new(None));
    let part = LcsPart {
        call: KeptCall::of(call, usize::MAX),
        options: LcsOptions::parse(&call.args)?,
        lcs: None,
        found: Arc::clone(&found),
    };
    let say = move |reply: &mut dyn Reply, slice: &Slice<'_>| {
        let mut found = found.lock();
        found.as_mut().is_none_or(|lcs: &mut Lcs| lcs.reply(reply, &mut || slice.spent()))
    };
    // The total is set once the values are known.
    Ok(Work::on_one_worker(engine.shards().owner_of(call.first_key()), say, 0, part))
}

struct LcsPart {
    call: KeptCall,
    options: LcsOptions,
    /// Set once the values have been read.
    lcs: Option<Lcs>,
    found: Arc<Mutex<Option<Lcs>>>,
}

impl Part for LcsPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let Some(lcs) = &mut self.lcs else {
            return self.begin(slice);
        };
        let before = lcs.rows_done();
        let done = lcs.go_on(&mut || slice.spent());
        slice.advance(lcs.rows_done() - before);
        if !done {
            return Progress::More;
        }
        *self.found.lock() = self.lcs.take();
        Progress::Done
    }
}

impl LcsPart {
    fn begin(&mut self, slice: &Slice<'_>) -> Progress {
        match self.values(slice) {
            None => Progress::Blocked,
            Some(Err(error)) => {
                slice.refuse(error);
                Progress::Done
            }
            Some(Ok(values)) => {
                let lcs = Lcs::new(values, self.options);
                if let Some(job) = slice.job {
                    job.total.store(lcs.rows(), Ordering::Relaxed);
                }
                self.lcs = Some(lcs);
                Progress::More
            }
        }
    }

    /// `None` if a token was busy.
    fn values(&self, slice: &Slice<'_>) -> Option<Result<[SharedValue; 2], Error>> {
        let (engine, taking) = (slice.engine, slice.taking());
        self.call.args.with(|args| {
            let call = slice.call(&self.call, args);
            let keys = call.row().key_arguments(&call.args);
            let values = engine.with_many(slice.slot, &call, keys, taking, |keys, events| {
                let keys = engine.many_keys(&call, keys, events);
                (keys.lcs_values(), [0, 1].map(|number| keys.keys.read(number).is_some()))
            });
            // It only reads, so a busy token is the only obstacle.
            let (values, are_there) = values.ok()?;
            if values.is_ok() {
                are_there.into_iter().for_each(|is_there| slice.slot.looked_up(is_there));
            }
            Some(values)
        })
    }
}
