use std::collections::BTreeMap;
use std::thread;

use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::classes::{CLASSES, MAX_SMALL, class_of};
use super::system::CHUNK_BYTES;
use super::*;

/// A block that knows what was written to it.
struct Block {
    at: NonNull<u8>,
    bytes: usize,
    mark: u8,
}

// SAFETY: the block alone owns its memory.
unsafe impl Send for Block {}

impl Block {
    /// A block with room for so many bytes.
    fn new(bytes: usize, mark: u8) -> Self {
        let bytes = block_bytes(bytes);
        let at = take(bytes);
        assert!(at.addr().get().is_multiple_of(ALIGN));
        if (64..=MAX_SLOT).contains(&bytes) && bytes.is_power_of_two() {
            assert!(at.addr().get().is_multiple_of(64));
        }
        // SAFETY: the block has so many bytes.
        unsafe { at.write_bytes(mark, bytes) };
        Block { at, bytes, mark }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `new` wrote so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) };
        assert!(bytes.iter().all(|byte| *byte == self.mark), "somebody else wrote to it");
        // SAFETY: taken with this size; nothing uses it any more.
        unsafe { free(self.at, self.bytes) };
    }
}

/// What the thread's own arena has: used bytes and chunks.
fn own() -> (usize, usize) {
    let counts = &ALL[home()].counts;
    (counts.used.load(Relaxed), counts.chunks.load(Relaxed))
}

/// In a thread of its own, which has an arena of its own: `ARENAS` threads later another one has
/// it, too. One at a time: [`give_up_chunks`] and [`enter_another`] do not stop at others' arenas.
fn alone<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    // A test that fails does not poison it for the others.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

#[test]
fn blocks_are_apart() {
    let steps = prop::collection::vec((0..40usize, 1..2200usize, any::<u8>()), 1..600);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    // All cases in one thread: of very many, some would have the arena of another test's.
    alone(|| {
        let outcome = TestRunner::new(config).run(&steps, |steps| {
            check_blocks(steps);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}

/// Each step puts a block of so many bytes, with this mark, in a place.
fn check_blocks(steps: Vec<(usize, usize, u8)>) {
    let before = own().0;
    let mut blocks = BTreeMap::new();
    for (place, bytes, mark) in steps {
        // Whoever is replaced checks its bytes.
        blocks.insert(place, Block::new(bytes, mark));
    }
    let slots = blocks.values().map(|block| block.bytes).filter(|bytes| *bytes <= MAX_SLOT);
    let (used, taken) = (own().0 - before, slots.sum::<usize>());
    assert!(used >= taken && used <= taken + taken / 8, "{used} for {taken}");
    drop(blocks);
    assert_eq!(own().0, before);
}

#[test]
fn sizes_are_those_of_the_classes_and_of_jemalloc() {
    let fine = |bytes: usize| bytes.next_multiple_of(ALIGN);
    for (bytes, block) in [
        (0, 8),
        (8, 8),
        (9, fine(9)),
        (17, fine(17)),
        (507, fine(507)),
        (MAX_SMALL + 1, 520),
        (1011, 1016),
        (2041, 2048),
        (2049, 2560),
        (2561, 3072),
        (4097, 5120),
    ] {
        assert_eq!(block_bytes(bytes), block, "{bytes}");
    }
    let classes: BTreeMap<usize, usize> =
        (1..=MAX_SLOT).map(|bytes| (class_of(block_bytes(bytes)), block_bytes(bytes))).collect();
    assert!(classes.keys().all(|class| *class < CLASSES));
    // No two sizes have the same class.
    let sizes: std::collections::BTreeSet<usize> = (1..=MAX_SLOT).map(block_bytes).collect();
    assert_eq!(classes.into_values().collect::<Vec<_>>(), sizes.into_iter().collect::<Vec<_>>());
}

#[test]
fn every_class_fills_its_spans() {
    alone(|| {
        for bytes in [1, 8, 12, 60, 64, 500, 512, 520, 1024, 1040, 2040, 2048] {
            let (used, chunks) = own();
            let blocks: Vec<Block> = (0..3 * CHUNK_BYTES / block_bytes(bytes))
                .map(|at| Block::new(bytes, at as u8))
                .collect();
            let taken = (own().1 - chunks) * CHUNK_BYTES;
            let needed = own().0 - used;
            assert!(taken <= needed + needed / 50 + CHUNK_BYTES, "{bytes}: {taken} for {needed}");
            drop(blocks);
            assert_eq!(own().0, used);
            assert!(own().1 <= 1, "all but one chunk go back to the system");
        }
    });
}

#[test]
fn a_chunk_serves_one_class_after_the_other() {
    alone(|| {
        for bytes in (1..=MAX_SLOT).step_by(4) {
            let blocks: Vec<Block> = (0..1000).map(|at| Block::new(bytes, at as u8)).collect();
            drop(blocks);
        }
        assert_eq!(own().1, 1);
    });
}

#[test]
fn blocks_of_all_sizes_take_little_more_than_they_need() {
    alone(|| {
        let mut random = fastrand::Rng::with_seed(1);
        let any = 1..=MAX_SLOT;
        let mut blocks: Vec<Block> =
            (0..10_000).map(|at| Block::new(random.usize(any.clone()), at as u8)).collect();
        let check = |blocks: &[Block]| {
            let needed: usize = blocks.iter().map(|block| block.bytes).sum();
            let taken = own().1 * CHUNK_BYTES;
            assert!(taken <= needed + needed / 8 + 6 * CHUNK_BYTES, "{taken} for {needed}");
        };
        check(&blocks);
        for at in 0..100_000 {
            let place = random.usize(..blocks.len());
            blocks[place] = Block::new(random.usize(any.clone()), at as u8);
        }
        check(&blocks);
        // Nobody shares where little is unused.
        drop(blocks);
        let (_larger, bytes) = (Block::new(1008, 1), block_bytes(1000));
        let used = own().0;
        let blocks: Vec<Block> = (0..10_000).map(|at| Block::new(bytes, at as u8)).collect();
        assert_eq!(own().0 - used, blocks.len() * bytes);
    });
}

#[test]
fn other_threads_free_slots() {
    alone(|| {
        let before = own().0;
        thread::scope(|scope| {
            let (give, take) = std::sync::mpsc::channel::<Block>();
            scope.spawn(move || take.into_iter().for_each(drop));
            for at in 0..200_000 {
                give.send(Block::new(8 + at % 300, at as u8)).expect("the thread takes them");
            }
        });
        // What was left is freed by the next one who enters.
        drop(Block::new(8, 0));
        assert_eq!(own().0, before);
    });
}

#[test]
fn a_busy_arena_holds_nobody_up() {
    alone(|| {
        let block = Block::new(100, 1);
        let before = own().0;
        let held = ALL[home()].try_enter().expect("nobody else uses it");
        let other = Block::new(100, 2);
        drop(block);
        assert_eq!(own().0, before, "the slot is left");
        drop(held);
        drop(Block::new(100, 3));
        assert_eq!(own().0, before - block_bytes(100));
        drop(other);
    });
}

#[test]
fn the_ballast_follows_what_is_used() {
    let mut ballast = ballast::Ballast::new();
    for used in [0, 1, 10 << 20, 9 << 20, 300_000, 50 << 20, 0] {
        ballast.follow(used);
        let counted = ballast.bytes();
        assert!(counted >= used && counted <= used + 2 * ballast::BLOCK_BYTES, "{used}: {counted}");
    }
}

#[test]
fn hardly_used_chunks_are_emptied() {
    alone(|| {
        let mut blocks: Vec<Block> =
            (0..4 * CHUNK_BYTES / 96 * 5).map(|at| Block::new(96, at as u8)).collect();
        // Larger than a slot: its address is not in a chunk.
        let large = Block::new(1 << 20, 7);
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 5 == 0
        });
        let (used, before) = own();
        assert!(before >= 20);
        assert!(give_up_chunks());
        let mut moved = 0;
        for block in &mut blocks {
            if is_leaving(block.at.addr().get()) {
                // SAFETY: taken with this size; the old place is forgotten.
                if let Some(at) = unsafe { relocate(block.at, block.bytes) } {
                    (block.at, moved) = (at, moved + 1);
                }
            }
        }
        assert!(!is_leaving(large.at.addr().get()));
        assert_eq!(own().0, used, "as much is in use as before");
        assert!(own().1 <= before / 5 + 4, "{} of {before} chunks, {moved} moved", own().1);
        assert!(!blocks.iter().any(|block| is_leaving(block.at.addr().get())));
        // Each block checks that its bytes came along.
        drop(blocks);
        assert_eq!(own().0, 0);
    });
}
