//! Shards that are read without their tokens, under loom, as `interleavings.rs` has the token.
//!
//! They show, for two or three threads:
//!
//! * nobody changes a shard while it is read, and what was changed before is seen;
//! * whoever takes the token waits for readers, or leaves the shard so that no message is lost.

use loom::sync::Arc;
use midi::engine::Released;
use midi::limits::OPEN_AFTER;

use super::interleavings::{Letter, Shard, check, join, locked, spawn};

/// A shard that threads may read together.
fn open_shard() -> Arc<Shard> {
    let shard = Shard::new();
    for _ in 0..OPEN_AFTER {
        let held = shard.token.try_take().unwrap();
        assert_eq!(held.release_read(&shard.room), Released::Clean);
    }
    assert!(shard.token.try_take().is_none(), "it is open");
    shard
}

/// Engine::attempt_run, of a command that reads: it shares the shard, or takes it. Returns how much
/// it has seen.
fn read(shard: &Shard, reader: usize) -> Option<usize> {
    if let Some(shared) = shard.token.try_share(shard.room.marks(reader), 0) {
        return Some(shared.len());
    }
    let held = shard.try_take()?;
    let seen = held.len();
    shard.note(held.release_read(&shard.room));
    Some(seen)
}

/// Nobody changes a shard while it is read, and what was changed before is seen. Readers open the
/// shard again, and close it by taking it.
#[test]
fn readers_share_what_nobody_changes() {
    check(3, || {
        let shard = open_shard();
        let threads = vec![
            spawn(&shard, |shard| (0..2).for_each(|_| _ = read(shard, 0))),
            spawn(&shard, |shard| _ = read(shard, 1)),
        ];
        let mut changes = 0;
        for _ in 0..2 {
            if let Some(mut held) = shard.try_take() {
                held.push((0, changes));
                changes += 1;
                shard.release(held);
            }
            assert!(read(&shard, 2).is_none_or(|seen| seen == changes));
        }
        join(threads);
        shard.ends_with(&[changes]);
    });
}

/// A message for a shard that is read finds somebody to run it, however long that takes.
#[test]
fn messages_find_their_way_past_readers() {
    check(3, || {
        let shard = open_shard();
        let threads = vec![
            spawn(&shard, |shard| _ = read(shard, 0)),
            spawn(&shard, |shard| shard.push(Letter::new(0, 0), 1)),
        ];
        shard.owner_looks(1);
        join(threads);
        shard.ends_with(&[1]);
    });
}

/// The holder of the global lock waits until nobody reads.
#[test]
fn the_waiter_waits_for_readers() {
    for is_unit in [false, true] {
        check(3, move || {
            let shard = open_shard();
            let threads = vec![
                spawn(&shard, |shard| _ = read(shard, 0)),
                spawn(&shard, |shard| shard.push(Letter::new(0, 0), 1)),
            ];
            let mut held = match is_unit {
                true => shard.token.take_for_unit(locked(), &shard.room, 0).0,
                false => shard.token.take_waiting(locked(), &shard.room, 0),
            };
            held.push((1, 0));
            shard.release(held);
            if is_unit {
                shard.note(shard.token.leave_unit(locked()));
            }
            join(threads);
            shard.ends_with(&[1, 1]);
        });
    }
}
