//! The standstill under loom, as `interleavings.rs` has the token: the thread that stops all shards
//! writes nothing to those that nobody holds, and yet has them for itself.
//!
//! They show, for two or three threads and two shards:
//!
//! * at the standstill no thread touches the data, and what was done before is seen;
//! * a run is whole or has not begun;
//! * whoever was refused finds the shard again afterwards, and no message is lost.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use midi::engine::WaitingRoom;
use midi::engine::{Held, Locked, OnlyThread, Pushed, Released, StopFlag, Taken, Token};
use midi::limits::OPEN_AFTER;

/// As in `interleavings.rs`.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

fn locked<'a>() -> Locked<'a> {
    // SAFETY: there is no host, and no other thread of the model claims the lock.
    unsafe { Locked::assume() }
}

/// Runs that a shard has seen.
type Seen = Vec<usize>;

/// The shards of the engine, as far as a standstill concerns them.
struct Keyspace {
    tokens: [Token<Seen, usize>; 2],
    room: WaitingRoom,
    stop: StopFlag,
    /// How often the owner has been told of messages.
    told: AtomicUsize,
}

impl Keyspace {
    fn new() -> Arc<Self> {
        Arc::new(Keyspace {
            tokens: [Token::new(Seen::new()), Token::new(Seen::new())],
            room: WaitingRoom::new(1),
            stop: StopFlag::default(),
            told: AtomicUsize::new(0),
        })
    }

    /// Shards::let_go.
    fn let_go(&self, held: Held<'_, Seen, usize>) {
        if held.release(&self.room) == Released::Pending {
            self.told.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Shards::unless_stopped.
    fn unless_stopped<'e>(
        &'e self,
        held: Option<Held<'e, Seen, usize>>,
    ) -> Option<Held<'e, Seen, usize>> {
        let held = held?;
        if !self.stop.is_up() {
            return Some(held);
        }
        self.let_go(held);
        None
    }

    /// Shards::alone.
    fn alone<'e>(&'e self, taken: Taken<'e, Seen, usize>) -> Option<Held<'e, Seen, usize>> {
        match taken.alone(&self.room, 0) {
            Ok(held) => self.unless_stopped(Some(held)),
            Err(taken) => {
                if taken.release(&self.room) == Released::Pending {
                    self.told.fetch_add(1, Ordering::AcqRel);
                }
                None
            }
        }
    }

    /// Shards::try_share, of the second shard.
    fn read(&self) -> Option<usize> {
        let shared = self.tokens[1].try_share(self.room.marks(0), 0)?;
        (!self.stop.is_up()).then(|| shared.len())
    }

    fn try_take(&self, shard: usize) -> Option<Held<'_, Seen, usize>> {
        self.unless_stopped(self.tokens[shard].try_take())
    }

    /// A run over both shards, which holds them together.
    fn run_over_both(&self, run: usize) -> bool {
        let Some(mut a) = self.try_take(0) else { return false };
        let b = self.try_take(1);
        let has_both = b.is_some();
        if let Some(mut b) = b {
            a.push(run);
            b.push(run);
            self.let_go(b);
        }
        self.let_go(a);
        has_both
    }

    /// Worker::leave_in_shard, of a message for the first shard.
    fn push(&self, message: usize) {
        if let Pushed::Taken(taken) = self.tokens[0].push(message)
            && let Some(held) = self.alone(taken)
        {
            self.run_pending(held);
        }
    }

    fn run_pending(&self, mut held: Held<'_, Seen, usize>) {
        while let Some(message) = held.next_pending() {
            held.push(message);
        }
        self.let_go(held);
    }

    /// Worker::visit_shards.
    fn owner_looks(&self) {
        if self.told.swap(0, Ordering::AcqRel) > 0
            && let Some(taken) = self.tokens[0].try_take_with_pending()
            && let Some(held) = self.alone(taken)
        {
            self.run_pending(held);
        }
    }

    /// Shards::stop. Returns what the data was then, as a child would find it, after which `own` is
    /// added to it.
    fn stop(&self, own: Option<usize>) -> [Seen; 2] {
        self.stop.raise();
        for token in &self.tokens {
            if !token.is_at_rest(locked()) {
                self.let_go(token.take_waiting(locked(), &self.room, 0));
            }
        }
        self.room.wait_for_readers(locked());
        // SAFETY: this is what the models are to show.
        let mut alone = unsafe { OnlyThread::assume() };
        let found = self.tokens.each_ref().map(|token| {
            let seen = token.data_mut(&mut alone);
            let found = seen.clone();
            seen.extend(own);
            found
        });
        self.stop.lower();
        found
    }
}

fn spawn(there: &Arc<Keyspace>, work: impl FnOnce(&Keyspace) + 'static) -> thread::JoinHandle<()> {
    let there = Arc::clone(there);
    thread::spawn(move || work(&there))
}

/// Runs are whole in what is seen at the standstill, and all are there in the end.
#[test]
fn a_standstill_sees_whole_runs() {
    for runners in [1, 2] {
        check(3, move || {
            let there = Keyspace::new();
            let ran = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..runners)
                .map(|run| {
                    let ran = Arc::clone(&ran);
                    spawn(&there, move |there| {
                        ran.fetch_add(usize::from(there.run_over_both(run)), Ordering::Relaxed);
                    })
                })
                .collect();
            let [first, second] = there.stop(Some(9));
            assert_eq!(first, second, "a run is half done");
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let held = there.tokens[0].try_take().expect("all have gone");
            assert_eq!(held.len(), ran.load(Ordering::Relaxed) + 1);
            assert_eq!(held.iter().position(|&run| run == 9), Some(first.len()));
            assert_eq!(held.release(&there.room), Released::Clean);
        });
    }
}

/// Nobody reads at the standstill, although an open shard is not taken.
#[test]
fn nobody_reads_at_a_standstill() {
    check(3, || {
        let there = Keyspace::new();
        for _ in 0..OPEN_AFTER {
            let held = there.tokens[1].try_take().unwrap();
            assert_eq!(held.release_read(&there.room), Released::Clean);
        }
        let reader = spawn(&there, |there| {
            for _ in 0..2 {
                assert!(there.read().is_none_or(|seen| seen <= 1));
            }
        });
        assert_eq!(there.stop(Some(9)), [Seen::new(), Seen::new()]);
        reader.join().unwrap();
        assert_eq!(there.read(), Some(1));
    });
}

/// A message that comes at the standstill waits, and its owner is told of it.
#[test]
fn messages_outlast_a_standstill() {
    check(3, || {
        let there = Keyspace::new();
        let threads =
            [spawn(&there, |there| there.push(0)), spawn(&there, |there| there.owner_looks())];
        let [found, _] = there.stop(None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(found.len() <= 1);
        while there.told.load(Ordering::Acquire) > 0 {
            there.owner_looks();
        }
        let held = there.tokens[0].try_take().expect("a message is left, and nobody was told");
        assert_eq!(*held, [0]);
        assert_eq!(held.release(&there.room), Released::Clean);
    });
}

/// A shard that a unit has laid aside is at rest, and the unit takes it up again.
#[test]
fn a_unit_lasts_over_a_standstill() {
    check(3, || {
        let there = Keyspace::new();
        let (held, _) = there.tokens[0].take_for_unit(locked(), &there.room, 0);
        assert_eq!(held.release(&there.room), Released::Clean);
        let other = spawn(&there, |there| assert!(!there.run_over_both(0), "it is the unit's"));
        assert_eq!(there.stop(None), [Seen::new(), Seen::new()]);
        let (mut held, is_new) = there.tokens[0].take_for_unit(locked(), &there.room, 0);
        assert!(!is_new);
        held.push(1);
        assert_eq!(held.release(&there.room), Released::Clean);
        other.join().unwrap();
        assert_eq!(there.tokens[0].leave_unit(locked()), Released::Clean);
    });
}
