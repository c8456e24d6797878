//! Token, mailbox and sleep flag under loom, which tries every interleaving and every value that
//! the memory model lets a load see:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --test engine
//! ```
//!
//! They show, for two or three threads and a few messages:
//!
//! * the data has one holder at a time, and each sees what the one before did;
//! * every message is run once, and each thread's messages in their order;
//! * if messages wait in a free shard, its owner has been notified;
//! * a thread that waits for a token gets it, and one that sleeps is woken;
//! * the log's tail has all that was done, and nobody sleeps while something in it waits;
//! * a thread that waits for a mark to rise is told of it, or sees it.
//!
//! docs/design/tokens.md documents what these tests have decided.
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use midi::engine::{Held, Inbox, Left, Locked, Pushed, Released, Taken, Token, WaitingRoom};
use midi::engine::{Waiting, Watermark};

/// Tries all interleavings with up to this many preemptions (loom's advice is two or three, which
/// finds all but a few bugs). LOOM_MAX_PREEMPTIONS overrides.
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// The global lock, for the thread that waits for tokens. There is one in each model.
pub fn locked<'a>() -> Locked<'a> {
    // SAFETY: there is no host, and no other thread of the model claims the lock.
    unsafe { Locked::assume() }
}

/// A message whose content loom watches: reading it without having acquired what its writer
/// released is an error.
pub struct Letter {
    from: usize,
    number: UnsafeCell<usize>,
}

impl Letter {
    pub fn new(from: usize, number: usize) -> Self {
        let letter = Letter { from, number: UnsafeCell::new(0) };
        // SAFETY: no other thread has the letter yet.
        letter.number.with_mut(|inside| unsafe { *inside = number });
        letter
    }

    fn read(self) -> (usize, usize) {
        // SAFETY: this thread alone owns the letter; loom checks that.
        (self.from, self.number.with(|inside| unsafe { *inside }))
    }
}

pub type Hold<'a> = Held<'a, Vec<(usize, usize)>, Letter>;

/// A shard whose data is the list of the letters that were run, and of the work that was done at
/// once (as separate letters).
pub struct Shard {
    pub token: Token<Vec<(usize, usize)>, Letter>,
    pub room: WaitingRoom,
    /// How often the owner has been notified since it last looked.
    told: AtomicUsize,
}

impl Shard {
    pub fn new() -> Arc<Self> {
        Arc::new(Shard {
            token: Token::new(Vec::new()),
            room: WaitingRoom::new(3),
            told: AtomicUsize::new(0),
        })
    }

    pub fn release(&self, held: Hold<'_>) {
        self.note(held.release(&self.room));
    }

    pub fn note(&self, released: Released) {
        if released == Released::Pending {
            self.told.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Shards::alone: a token that was just taken, unless somebody still reads the shard.
    pub fn alone<'a>(&'a self, taken: Taken<'a, Vec<(usize, usize)>, Letter>) -> Option<Hold<'a>> {
        taken.alone(&self.room, 0).map_err(|taken| self.note(taken.release(&self.room))).ok()
    }

    /// A worker with a request whose token was busy: it leaves the request, and runs `at_most` if
    /// the shard turns out to be free.
    pub fn push(&self, letter: Letter, at_most: usize) {
        if let Pushed::Taken(taken) = self.token.push(letter)
            && let Some(mut held) = self.alone(taken)
        {
            run(&mut held, at_most);
            self.release(held);
        }
    }

    /// The owner, notified or not.
    pub fn owner_looks(&self, at_most: usize) {
        if self.told.swap(0, Ordering::AcqRel) > 0
            && let Some(taken) = self.token.try_take_with_pending()
            && let Some(mut held) = self.alone(taken)
        {
            run(&mut held, at_most);
            self.release(held);
        }
    }

    /// Shards::try_take.
    pub fn try_take(&self) -> Option<Hold<'_>> {
        self.token.try_take().or_else(|| self.alone(self.token.try_take_from_readers()?))
    }

    /// All threads are done: the owner handles its notifications. Then nothing may be left, and
    /// everything must have been run, each thread's letters in order.
    pub fn ends_with(&self, expected: &[usize]) {
        while self.told.load(Ordering::Acquire) > 0 {
            self.owner_looks(usize::MAX);
        }
        let held = self.try_take().expect("messages are left, and nobody has been told");
        for (from, &count) in expected.iter().enumerate() {
            let numbers: Vec<usize> =
                held.iter().filter(|done| done.0 == from).map(|done| done.1).collect();
            assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "thread {from}'s messages");
        }
        assert_eq!(held.len(), expected.iter().sum::<usize>());
        assert_eq!(held.release(&self.room), Released::Clean);
    }
}

pub fn run(held: &mut Hold<'_>, at_most: usize) {
    for _ in 0..at_most {
        let Some(letter) = held.next_pending() else {
            return;
        };
        let done = letter.read();
        held.push(done);
    }
}

pub fn spawn(shard: &Arc<Shard>, work: impl FnOnce(&Shard) + 'static) -> thread::JoinHandle<()> {
    let shard = Arc::clone(shard);
    thread::spawn(move || work(&shard))
}

pub fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_token_has_one_holder() {
    check(4, || {
        let shard = Shard::new();
        let got = Arc::new(AtomicUsize::new(0));
        let try_once = |from: usize| {
            let got = Arc::clone(&got);
            move |shard: &Shard| {
                let held =
                    if from == 0 { shard.token.try_take_long() } else { shard.token.try_take() };
                if let Some(mut held) = held {
                    got.fetch_add(1, Ordering::Relaxed);
                    held.push((from, 0));
                    shard.release(held);
                }
            }
        };
        let threads = vec![spawn(&shard, try_once(0)), spawn(&shard, try_once(1))];
        try_once(2)(&shard);
        join(threads);
        let held = shard.token.try_take().unwrap();
        assert_eq!(held.len(), got.load(Ordering::Relaxed));
        assert!(!held.is_empty(), "somebody must have got it");
        shard.release(held);
        assert_eq!(shard.told.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn spinning_takes_or_gives_up() {
    check(4, || {
        let shard = Shard::new();
        let other = spawn(&shard, |shard| {
            if let Some(mut held) = shard.token.try_take() {
                held.push((0, 0));
                shard.release(held);
            }
        });
        let mut own = 0;
        if let Some(mut held) = shard.token.try_take_spinning(2) {
            held.push((1, 0));
            own = 1;
            shard.release(held);
        }
        join(vec![other]);
        let held = shard.token.try_take().unwrap();
        let others = held.len() - own;
        assert!(others <= 1 && own + others >= 1);
        shard.release(held);
    });
}

/// Two threads push two messages each; the one that finds the shard free runs some and leaves the
/// rest to the owner.
#[test]
fn pushed_messages_run_once_and_in_order() {
    for at_most in [1, 2] {
        check(4, move || {
            let shard = Shard::new();
            let pusher = |from| {
                move |shard: &Shard| {
                    shard.push(Letter::new(from, 0), at_most);
                    shard.push(Letter::new(from, 1), at_most);
                }
            };
            let threads = vec![spawn(&shard, pusher(0))];
            pusher(1)(&shard);
            join(threads);
            shard.ends_with(&[2, 2]);
        });
    }
}

/// The same while the owner handles the shard at the same time.
#[test]
fn the_owner_runs_what_is_left() {
    check(3, || {
        let shard = Shard::new();
        let threads = vec![
            spawn(&shard, |shard| {
                shard.push(Letter::new(0, 0), 0);
                shard.push(Letter::new(0, 1), 1);
            }),
            spawn(&shard, |shard| shard.push(Letter::new(1, 0), 1)),
        ];
        shard.owner_looks(1);
        shard.owner_looks(1);
        join(threads);
        shard.ends_with(&[2, 1]);
    });
}

/// A holder takes several messages out of the word, runs one and releases the token: the others
/// wait inside, and stay older than messages pushed later.
#[test]
fn messages_left_inside_keep_their_place() {
    check(3, || {
        let shard = Shard::new();
        let mut held = shard.token.try_take().unwrap();
        for number in 0..3 {
            assert!(matches!(shard.token.push(Letter::new(0, number)), Pushed::Queued));
        }
        run(&mut held, 1);
        shard.release(held);
        assert_eq!(shard.told.load(Ordering::Relaxed), 1);
        let threads = vec![
            spawn(&shard, |shard| shard.push(Letter::new(0, 3), 2)),
            spawn(&shard, |shard| match shard.token.leave(Letter::new(1, 0)) {
                Left::Queued => {}
                Left::Free(letter) => shard.push(letter, 1),
            }),
        ];
        shard.owner_looks(1);
        join(threads);
        shard.ends_with(&[4, 1]);
    });
}

/// A shard with messages inside is not free: no thread overtakes them.
#[test]
fn messages_left_inside_are_not_overtaken() {
    check(4, || {
        let shard = Shard::new();
        let mut held = shard.token.try_take().unwrap();
        for number in 0..2 {
            assert!(matches!(shard.token.push(Letter::new(0, number)), Pushed::Queued));
        }
        run(&mut held, 1);
        shard.release(held);
        let owner = spawn(&shard, |shard| shard.owner_looks(1));
        if let Some(mut held) = shard.token.try_take() {
            assert_eq!(held.len(), 2, "the owner has been there");
            held.push((1, 0));
            shard.release(held);
        } else {
            shard.push(Letter::new(1, 0), usize::MAX);
        }
        join(vec![owner]);
        shard.ends_with(&[2, 1]);
    });
}

/// Doors that leave a message if the token is busy, and go to a worker (here: push) if it has
/// become free.
#[test]
fn left_messages_are_found() {
    check(4, || {
        let shard = Shard::new();
        let door = |from| {
            move |shard: &Shard| {
                if let Some(mut held) = shard.token.try_take() {
                    held.push((from, 0));
                    shard.release(held);
                } else if let Left::Free(letter) = shard.token.leave(Letter::new(from, 0)) {
                    shard.push(letter, 1);
                }
            }
        };
        let threads = vec![spawn(&shard, door(0)), spawn(&shard, door(1))];
        door(2)(&shard);
        join(threads);
        shard.ends_with(&[1, 1, 1]);
    });
}

/// The holder of the global lock waits, while one thread holds the token (as a job does) and
/// another pushes.
#[test]
fn the_waiter_is_let_in() {
    for long in [false, true] {
        check(3, move || {
            let shard = Shard::new();
            let threads = vec![
                spawn(&shard, move |shard| {
                    let held =
                        if long { shard.token.try_take_long() } else { shard.token.try_take() };
                    match held {
                        Some(mut held) => {
                            held.push((0, 0));
                            shard.release(held);
                        }
                        None => shard.push(Letter::new(0, 0), 1),
                    }
                }),
                spawn(&shard, |shard| shard.push(Letter::new(1, 0), 1)),
            ];
            let mut held = shard.token.take_waiting(locked(), &shard.room, 0);
            held.push((2, 0));
            shard.release(held);
            join(threads);
            shard.ends_with(&[1, 1, 1]);
        });
    }
}

/// The same if messages already wait inside: the waiter leaves them there.
#[test]
fn the_waiter_leaves_what_is_pending() {
    check(4, || {
        let shard = Shard::new();
        let mut held = shard.token.try_take().unwrap();
        for number in 0..2 {
            assert!(matches!(shard.token.push(Letter::new(0, number)), Pushed::Queued));
        }
        run(&mut held, 1);
        shard.release(held);
        let owner = spawn(&shard, |shard| shard.owner_looks(usize::MAX));
        let mut held = shard.token.take_waiting(locked(), &shard.room, 1);
        held.push((1, 0));
        shard.release(held);
        join(vec![owner]);
        shard.ends_with(&[2, 1]);
    });
}

/// The holder of the global lock waits for one token while it holds another; all other threads only
/// try. One room serves the whole keyspace.
#[test]
fn the_waiter_takes_several_tokens() {
    check(4, || {
        let keyspace = Arc::new((Shard::new(), Shard::new()));
        let there = Arc::clone(&keyspace);
        let other = thread::spawn(move || {
            let (first, second) = &*there;
            // In the opposite order, which is wrong in general; but this thread does not wait.
            let Some(mut held) = second.token.try_take() else {
                return;
            };
            if let Some(mut more) = first.token.try_take() {
                more.push((0, 0));
                held.push((0, 0));
                assert_eq!(more.release(&first.room), Released::Clean);
            }
            assert_eq!(held.release(&first.room), Released::Clean);
        });
        let (first, second) = &*keyspace;
        let mut a = first.token.take_waiting(locked(), &first.room, 0);
        let mut b = second.token.take_waiting(locked(), &first.room, 0);
        assert_eq!(a.len(), b.len(), "both or none");
        a.push((1, 0));
        b.push((1, 0));
        assert_eq!(b.release(&first.room), Released::Clean);
        assert_eq!(a.release(&first.room), Released::Clean);
        join(vec![other]);
    });
}

/// The mode changes while the holder of the global lock holds all tokens; it is read and written
/// relaxed, and readers hold one of them. Nothing is done in the old mode after the change, and who
/// comes later reads the new one.
#[test]
fn the_mode_changes_under_all_tokens() {
    check(3, || {
        let keyspace = Arc::new(([Shard::new(), Shard::new()], AtomicUsize::new(0)));
        let writer = |mine: usize| {
            let there = Arc::clone(&keyspace);
            thread::spawn(move || {
                let (shards, mode) = &*there;
                if let Some(mut held) = shards[mine].token.try_take() {
                    let now = mode.load(Ordering::Relaxed);
                    held.push((now, mine));
                    shards[mine].release(held);
                }
            })
        };
        let threads = vec![writer(0), writer(1)];
        let (shards, mode) = &*keyspace;
        let a = shards[0].token.take_waiting(locked(), &shards[0].room, 0);
        let b = shards[1].token.take_waiting(locked(), &shards[1].room, 0);
        let (before, of_old) = ([a.len(), b.len()], a.iter().chain(b.iter()).all(|run| run.0 == 0));
        assert!(of_old, "before the change");
        mode.store(1, Ordering::Relaxed);
        shards[0].release(a);
        shards[1].release(b);
        join(threads);
        for (shard, before) in shards.iter().zip(before) {
            let held = shard.token.try_take().expect("all have gone");
            assert!(held[before..].iter().all(|run| run.0 == 1), "after the change: {:?}", *held);
            shard.release(held);
        }
    });
}

/// A unit puts its token aside between two commands: what others do comes before the first or after
/// the last, and their messages are not forgotten.
#[test]
fn nothing_happens_within_a_unit() {
    for long in [false, true] {
        check(3, move || {
            let shard = Shard::new();
            let threads = vec![
                spawn(&shard, move |shard| {
                    let held = if long {
                        shard.token.try_take_long()
                    } else {
                        shard.token.try_take_with_pending().and_then(|it| shard.alone(it))
                    };
                    match held {
                        Some(mut held) => {
                            held.push((0, 0));
                            shard.release(held);
                        }
                        None => shard.push(Letter::new(0, 0), 1),
                    }
                }),
                spawn(&shard, |shard| shard.push(Letter::new(1, 0), 1)),
            ];
            let (mut held, new) = shard.token.take_for_unit(locked(), &shard.room, 0);
            let before = held.len();
            assert!(new);
            held.push((2, 0));
            assert_eq!(held.release(&shard.room), Released::Clean);
            let (mut held, new) = shard.token.take_for_unit(locked(), &shard.room, 0);
            assert!(!new && held.len() == before + 1);
            held.push((2, 1));
            assert_eq!(held.release(&shard.room), Released::Clean);
            if shard.token.leave_unit(locked()) == Released::Pending {
                shard.told.fetch_add(1, Ordering::AcqRel);
            }
            join(threads);
            shard.ends_with(&[1, 1, 2]);
        });
    }
}

/// The waker of a worker, like its eventfd: a call before the sleep ends it.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    call: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.call.notify_one();
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.call.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// A thread's inbox and what it sleeps on.
struct WorkerQueue<M> {
    inbox: Inbox<M>,
    bell: Bell,
}

impl<M> WorkerQueue<M> {
    fn new() -> Self {
        WorkerQueue { inbox: Inbox::default(), bell: Bell::default() }
    }

    fn send(&self, message: M) {
        if self.inbox.push(message) {
            self.bell.ring();
        }
    }

    /// As a worker's turn ends.
    fn rest(&self) {
        if self.inbox.may_sleep() {
            self.bell.sleep();
            self.inbox.awake();
        }
    }
}

/// A lost wake-up is an endless sleep, which loom reports as a deadlock.
#[test]
fn a_sleeper_is_woken() {
    for (pushers, each, preemptions) in [(1, 2, 3), (2, 1, 3), (2, 2, 2)] {
        check(preemptions, move || {
            let queue = Arc::new(WorkerQueue::new());
            let threads = (0..pushers)
                .map(|from| {
                    let queue = Arc::clone(&queue);
                    thread::spawn(move || {
                        (0..each).for_each(|number| queue.send(Letter::new(from, number)))
                    })
                })
                .collect();
            let mut read = Vec::new();
            while read.len() < pushers * each {
                let found = queue.inbox.take();
                if found.is_empty() {
                    queue.rest();
                }
                read.extend(found.into_iter().map(Letter::read));
            }
            join(threads);
            for from in 0..pushers {
                let numbers: Vec<usize> =
                    read.iter().filter(|done| done.0 == from).map(|done| done.1).collect();
                assert_eq!(numbers, (0..each).collect::<Vec<_>>());
            }
            assert!(queue.inbox.take().is_empty());
        });
    }
}

/// The messages of an owner, as in engine/engine.rs.
enum Message {
    Run(Letter),
    Look,
    Stop,
}

/// Doors, a shard and its sleeping owner, combined as in the engine.
struct Whole {
    shard: Arc<Shard>,
    owner: WorkerQueue<Message>,
}

impl Whole {
    fn release(&self, held: Hold<'_>) {
        if held.release(&self.shard.room) == Released::Pending {
            self.owner.send(Message::Look);
        }
    }

    /// Engine::attempt, then Engine::enqueue.
    fn door(&self, from: usize) {
        if let Some(mut held) = self.shard.token.try_take() {
            held.push((from, 0));
            self.release(held);
        } else if let Left::Free(letter) = self.shard.token.leave(Letter::new(from, 0)) {
            self.owner.send(Message::Run(letter));
        }
    }

    /// Worker::run, with a turn that runs one message and postpones the rest.
    fn owner_works(&self) {
        let (mut look, mut stopped) = (false, false);
        while !stopped || look {
            for message in self.owner.inbox.take() {
                match message {
                    Message::Run(letter) => {
                        if let Pushed::Taken(taken) = self.shard.token.push(letter)
                            && let Some(mut held) = self.shard.alone(taken)
                        {
                            run(&mut held, 1);
                            look |= held.release(&self.shard.room) == Released::Pending;
                        }
                    }
                    Message::Look => look = true,
                    Message::Stop => stopped = true,
                }
            }
            if look {
                look = false;
                if let Some(taken) = self.shard.token.try_take_with_pending()
                    && let Some(mut held) = self.shard.alone(taken)
                {
                    run(&mut held, 1);
                    look = held.release(&self.shard.room) == Released::Pending;
                }
            } else if !stopped {
                self.owner.rest();
            }
        }
    }
}

fn whole_ends_well(preemptions: usize, main: fn(&Whole)) {
    check(preemptions, move || {
        let whole = Arc::new(Whole { shard: Shard::new(), owner: WorkerQueue::new() });
        let there = Arc::clone(&whole);
        let owner = thread::spawn(move || there.owner_works());
        let there = Arc::clone(&whole);
        let other = thread::spawn(move || there.door(0));
        main(&whole);
        join(vec![other]);
        // The owner was notified of all its messages before this.
        whole.owner.send(Message::Stop);
        join(vec![owner]);
        whole.shard.ends_with(&[1, 1]);
    });
}

#[test]
fn two_doors_and_a_sleeping_owner() {
    whole_ends_well(4, |whole| whole.door(1));
}

#[test]
fn a_door_a_waiter_and_a_sleeping_owner() {
    whole_ends_well(4, |whole| {
        let mut held = whole.shard.token.take_waiting(locked(), &whole.shard.room, 0);
        held.push((1, 0));
        whole.release(held);
    });
}

/// The tail of the log, as engine/log/tail.rs has it: runs, and whether the main thread knows of
/// any.
#[derive(Default)]
struct Tail {
    runs: Mutex<(Vec<(usize, usize)>, bool)>,
}

impl Tail {
    /// Log::push: whether the main thread must be told.
    fn push(&self, run: (usize, usize)) -> bool {
        let mut tail = self.runs.lock().unwrap();
        tail.0.push(run);
        !std::mem::replace(&mut tail.1, true)
    }

    /// Log::take_batch: at most one run, and whether more are left.
    fn take(&self) -> (Option<(usize, usize)>, bool) {
        let mut tail = self.runs.lock().unwrap();
        let run = (!tail.0.is_empty()).then(|| tail.0.remove(0));
        tail.1 = !tail.0.is_empty();
        (run, tail.1)
    }
}

/// A run is in the tail before the first of its tokens is released: whoever holds all tokens finds
/// all that was done in the tail, in the order in which it was done, and nothing else there.
#[test]
fn the_holder_of_all_tokens_sees_the_whole_tail() {
    check(3, || {
        let keyspace = Arc::new(([Shard::new(), Shard::new()], Tail::default()));
        let writer = |from: usize| {
            let there = Arc::clone(&keyspace);
            thread::spawn(move || {
                let ([first, second], tail) = &*there;
                let Some(mut a) = first.token.try_take() else { return };
                let b = second.token.try_take();
                a.push((from, 0));
                let b = b.map(|mut b| {
                    b.push((from, 0));
                    b
                });
                tail.push((from, 0));
                first.release(a);
                b.into_iter().for_each(|b| second.release(b));
            })
        };
        let threads = vec![writer(0), writer(1)];
        let ([first, second], tail) = &*keyspace;
        let a = first.token.take_waiting(locked(), &first.room, 0);
        let b = second.token.take_waiting(locked(), &second.room, 0);
        let runs = tail.runs.lock().unwrap().0.clone();
        assert_eq!(*a, runs, "each run is in the first shard");
        let of_both: Vec<_> = runs.iter().filter(|run| b.contains(run)).copied().collect();
        assert_eq!(*b, of_both, "and some in the second one, in the same order");
        first.release(a);
        second.release(b);
        join(threads);
    });
}

/// No run lies in the tail while the main thread sleeps: who adds the first one that it does not
/// know of leaves it a message. It takes the runs left by one turn in the next, without sleeping.
#[test]
fn runs_in_the_tail_are_announced() {
    for (writers, each) in [(1, 2), (2, 1), (2, 2)] {
        check(3, move || {
            let there = Arc::new((Tail::default(), WorkerQueue::<()>::new()));
            let writer = |from: usize| {
                let there = Arc::clone(&there);
                thread::spawn(move || {
                    let (tail, main) = &*there;
                    for number in 0..each {
                        if tail.push((from, number)) {
                            main.send(());
                        }
                    }
                })
            };
            let threads = (0..writers).map(writer).collect();
            let (tail, main) = &*there;
            let mut logged = Vec::new();
            while logged.len() < writers * each {
                main.inbox.take();
                let (run, is_more) = tail.take();
                logged.extend(run);
                if !is_more && logged.len() < writers * each {
                    main.rest();
                }
            }
            join(threads);
            for from in 0..writers {
                let numbers: Vec<_> = logged.iter().filter(|run| run.0 == from).collect();
                assert_eq!(numbers.len(), each, "thread {from}'s runs");
                assert!(numbers.is_sorted());
            }
        });
    }
}

/// A port looks how far the log is safe, announces that it holds a reply, and looks again before it
/// sleeps. The main thread raises the mark, and then leaves a message for who has announced it:
/// whether the port sees the mark at once or is woken, it does not sleep for ever.
#[test]
fn a_port_that_holds_replies_is_woken() {
    check(4, || {
        let queue = WorkerQueue::<()>::new();
        let there = Arc::new((Watermark::default(), Waiting::default(), queue));
        let main = {
            let there = Arc::clone(&there);
            thread::spawn(move || {
                let (safe, holds, port) = &*there;
                for position in 1..=2 {
                    safe.raise(position);
                    if holds.is_announced() {
                        port.send(());
                    }
                }
            })
        };
        let (safe, holds, port) = &*there;
        for position in 1..=2 {
            if safe.get() < position {
                holds.announce(true);
                while safe.get() < position {
                    port.rest();
                    port.inbox.take();
                }
                holds.announce(false);
            }
        }
        join(vec![main]);
    });
}
