//! Saving and loading of snapshots.

use std::sync::Arc;
use std::time::Instant;

use midi::engine::{Staging, Workers};
use midi::snapshot;
use midi::store::Store;

use super::{VALUE, engine, fill, locked, processor_time};

/// Strings in memory, in the place of a section of an RDB.
#[derive(Default)]
struct Strings(Vec<Vec<u8>>, usize);

impl snapshot::Sink for Strings {
    fn put(&mut self, string: &[u8]) {
        self.0.push(string.to_vec());
    }
}

impl snapshot::Source for Strings {
    fn next(&mut self) -> Option<Vec<u8>> {
        self.1 += 1;
        self.0.get(self.1 - 1).cloned()
    }
}

/// Saving and loading. The strings are copied to and from memory, which a host does, too, among
/// other things.
pub fn snapshot(count: u64) {
    println!("\nSnapshots of {count} keys, values of 64 bytes, 1024 shards; nanoseconds per key\n");
    let from = engine(1, 1024);
    fill(&from, count, &VALUE);
    let mut strings = Strings::default();
    let per_key = |start: Instant| start.elapsed().as_nanos() as f64 / count as f64;
    for _ in 0..3 {
        strings.0.clear();
        let start = Instant::now();
        let mut lend = |shard: u32, look: &mut dyn FnMut(&Store)| {
            let held = from.shards().try_take(shard).expect("one thread");
            look(&held);
            from.ledger.release(from.worker_slot(0), shard, held);
        };
        snapshot::save(&from, snapshot::SavedAs::Section, &mut lend, &mut strings, &mut |_| ());
        println!("  save                           {:>6.1}", per_key(start));
    }
    for workers in [0, 1, 2, 2, 2] {
        let to = engine(workers.max(1), 1024);
        let threads = match workers {
            0 => Vec::new(),
            _ => Workers::start(&to, || (), Vec::new()).expect("threads"),
        };
        let staging = Arc::new(Staging::new(to.shards()));
        strings.1 = 0;
        let (start, busy) = (Instant::now(), processor_time(libc::CLOCK_PROCESS_CPUTIME_ID));
        let version = snapshot::VERSION;
        let mut none = |_| ();
        snapshot::load(&to, locked(), version, &staging, &mut strings, &mut none).expect("whole");
        let load = per_key(start);
        let busy = processor_time(libc::CLOCK_PROCESS_CPUTIME_ID) - busy;
        let busy = busy.as_nanos() as f64 / count as f64;
        let staging = Arc::into_inner(staging).expect("the only one");
        let start = Instant::now();
        staging.install(&to.ledger, locked());
        let install = start.elapsed().as_micros();
        println!(
            "  load, {workers} workers' threads       {load:>6.1}   processors {busy:>6.1}   \
             install {install} us in all"
        );
        to.context().workers.stop();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
