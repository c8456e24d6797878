//! The token of a shard and its mailbox: one atomic word.
//!
//! ```text
//! word = UNIT │ OPEN │ READ │ pointer to the newest pending message │ LEFT │ WAITER │ LONG │ HELD
//! ```
//!
//! | word              | meaning                                                    |
//! |-------------------|------------------------------------------------------------|
//! | 0                 | free, nothing to do: one CAS takes it                      |
//! | HELD              | a thread is at work                                        |
//! | HELD, LONG        | a job's slice: not worth spinning for                      |
//! | HELD, pointer     | messages were pushed meanwhile                             |
//! | pointer or LEFT   | free, but messages wait: the owner has been notified       |
//! | HELD, WAITER      | the holder of the host's global lock sleeps until let in   |
//! | HELD, UNIT        | a unit's, held by one of its commands                      |
//! | HELD, UNIT, LONG  | a unit's, between two of its commands                      |
//! | OPEN              | free, and threads may read it together: see `shared`       |
//! | READ, any other   | no longer open; who read it then may still do so           |
//!
//! A release is a CAS too, which fails if a message has come in between. So no message is
//! overlooked, and no thread is woken just to pass the token on. LEFT means that messages older
//! than those at the pointer wait in `left`.
//!
//! Each taking is sequentially consistent: see `standstill`.
//!
//! A *unit* is several commands that the holder of the host's global lock runs as one. Releasing a
//! unit's token only lays it aside, until the unit ends.

mod shared;

use std::ops::{Deref, DerefMut};
use std::ptr;

use super::locked::Locked;
use super::primitives::{
    AtomicU32, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, UnsafeCell, spin_loop,
};
use super::standstill::OnlyThread;

use shared::Readers;
pub use shared::{HeldShared, ReadMarks, Taken};

const HELD: usize = 1;
const LONG: usize = 1 << 1;
const WAITER: usize = 1 << 2;
const LEFT: usize = 1 << 3;
/// The top bit, which no user-space address has.
const UNIT: usize = 1 << (usize::BITS - 1);
/// Nor does any have the two bits below it.
const OPEN: usize = 1 << (usize::BITS - 2);
const READ: usize = 1 << (usize::BITS - 3);
/// The flags of holders and waiters, not of messages.
const HOLDING: usize = HELD | LONG | WAITER | UNIT;
const FLAGS: usize = HOLDING | LEFT | OPEN | READ;

/// A message on its way. Aligned, so that the flags fit below its address.
#[repr(align(16))]
struct MailboxNode<M> {
    /// In the word's list the one before it, in `left` the one after it.
    next: *mut MailboxNode<M>,
    message: M,
}

/// Data that only the holder of its token may touch, or threads read together, and a mailbox for
/// all other threads. Not crossbeam's queue: a release must fail while the mailbox has a message,
/// so both are one word.
// In this order: the first two are on one cache line.
#[repr(C)]
pub struct Token<T, M> {
    word: AtomicUsize,
    /// How often in a row it was taken only to be read, since it was open last. Its holder writes
    /// this.
    reads: AtomicU32,
    inside: UnsafeCell<Inside<T, M>>,
}

struct Inside<T, M> {
    data: T,
    /// Messages taken out of the word but not run yet, oldest first.
    left: *mut MailboxNode<M>,
}

// SAFETY: only the holder of HELD touches `inside`, but for those who share it (see `shared`);
// messages are handed over through the word with release and acquire order.
unsafe impl<T: Send, M: Send> Send for Token<T, M> {}
// SAFETY: as above; a shared Token gives access to M to one thread at a time, and to T as well:
// `try_share` gives it to several, and asks for T: Sync.
unsafe impl<T: Send, M: Send> Sync for Token<T, M> {}

/// Where the one thread that may wait for tokens sleeps, and what the others read without them. One
/// per engine.
pub struct WaitingRoom {
    slot: Mutex<()>,
    call: Condvar,
    readers: Readers,
}

/// The outcome of pushing a message.
pub enum Pushed<'a, T, M> {
    /// It waits; the holder or the owner will run it.
    Queued,
    /// The shard was free: the caller now has it, with the message pending.
    Taken(Taken<'a, T, M>),
}

/// The outcome of leaving a message that its sender must not run while others hold the shard.
pub enum Left<M> {
    /// It waits; the holder or the owner will run it.
    Queued,
    /// The shard is free, so the sender can take it at once.
    Free(M),
}

/// The mailbox after a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "pending messages need the owner's attention"]
pub enum Released {
    /// Nothing is pending, or the token went to a waiter, which handles the messages.
    Clean,
    /// Messages wait in the mailbox: notify the owner.
    Pending,
}

impl Released {
    /// Made from the rest of the word.
    fn of(rest: usize) -> Self {
        if rest & !READ == 0 { Released::Clean } else { Released::Pending }
    }
}

impl<T, M> Token<T, M> {
    /// A free token with `data`.
    pub fn new(data: T) -> Self {
        Token {
            word: AtomicUsize::new(0),
            reads: AtomicU32::new(0),
            inside: UnsafeCell::new(Inside { data, left: ptr::null_mut() }),
        }
    }

    /// Takes the token if it is free and nothing is pending.
    #[inline]
    pub fn try_take(&self) -> Option<Held<'_, T, M>> {
        self.try_take_as(HELD)
    }

    /// Takes the token for a job's slice, if it is free and nothing is pending.
    #[inline]
    pub fn try_take_long(&self) -> Option<Held<'_, T, M>> {
        self.try_take_as(HELD | LONG)
    }

    #[inline]
    fn try_take_as(&self, flags: usize) -> Option<Held<'_, T, M>> {
        self.word
            .compare_exchange(0, flags, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
            .then(|| Held { token: self })
    }

    /// Tries this many times, unless a job's slice holds the token.
    #[inline]
    pub fn try_take_spinning(&self, tries: u32) -> Option<Held<'_, T, M>> {
        for _ in 0..tries {
            if let Some(held) = self.try_take() {
                return Some(held);
            }
            // A slice takes long; messages in a free shard are for its owner, and a shard that was
            // open is taken in another way (`try_take_from_readers`).
            let word = self.word.load(Ordering::Relaxed);
            if word & LONG != 0 || word != 0 && word & HELD == 0 {
                return None;
            }
            spin_loop();
        }
        self.try_take()
    }

    /// Takes the token if no thread holds it, also with messages pending.
    pub fn try_take_with_pending(&self) -> Option<Taken<'_, T, M>> {
        let take = |word| (word & HELD == 0).then(|| closed(word) | HELD);
        let taken = self.word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, take);
        taken.is_ok().then(|| Taken::of(self))
    }

    /// Waits for the token, and for those who still read. Only for the thread that holds the host's
    /// global lock, so there is at most one waiter in the whole engine. Pending messages stay
    /// pending: they are for other clients.
    pub fn take_waiting(
        &self,
        locked: Locked<'_>,
        room: &WaitingRoom,
        tries: u32,
    ) -> Held<'_, T, M> {
        self.wait_for_word(room, tries).wait_alone(locked, room)
    }

    fn wait_for_word(&self, room: &WaitingRoom, tries: u32) -> Taken<'_, T, M> {
        for _ in 0..tries {
            if let Some(taken) = self.try_take_with_pending() {
                return taken;
            }
            spin_loop();
        }
        let wait = |word| Some(if word & HELD == 0 { closed(word) | HELD } else { word | WAITER });
        // It takes the token, or shows the holder that a thread sleeps.
        let (Ok(word) | Err(word)) =
            self.word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, wait);
        if word & HELD != 0 {
            self.sleep_until_let_in(room);
        }
        Taken::of(self)
    }

    /// Sleeps until the holder clears WAITER. It leaves HELD set: the token is then ours.
    fn sleep_until_let_in(&self, room: &WaitingRoom) {
        let mut slot = lock(&room.slot);
        while self.word.load(Ordering::Acquire) & WAITER != 0 {
            slot = wait(&room.call, slot);
        }
    }

    /// Waits for the token on behalf of a unit, or takes it up again if the unit already has it;
    /// true if it is new to the unit. From now on, a release lays it aside for the unit's next
    /// command, until [`Token::leave_unit`]. Only for the thread that may wait.
    pub fn take_for_unit(
        &self,
        locked: Locked<'_>,
        room: &WaitingRoom,
        tries: u32,
    ) -> (Held<'_, T, M>, bool) {
        if self.word.load(Ordering::Relaxed) & UNIT == 0 {
            let held = self.take_waiting(locked, room, tries);
            self.word.fetch_or(UNIT, Ordering::Relaxed);
            return (held, true);
        }
        let before = self.word.fetch_and(!LONG, Ordering::Relaxed);
        assert!(before & LONG != 0, "a command of a unit took a token twice");
        (Held { token: self }, false)
    }

    /// Whether a unit has laid the token aside, or one of its commands holds it.
    pub fn is_kept_by_unit(&self, _: Locked<'_>) -> bool {
        self.word.load(Ordering::Relaxed) & UNIT != 0
    }

    /// Releases a token that a unit has laid aside. Only for the thread that may wait.
    pub fn leave_unit(&self, _: Locked<'_>) -> Released {
        let word = self.word.load(Ordering::Relaxed);
        assert!(word & (UNIT | LONG) == UNIT | LONG, "a unit ends between its commands");
        // Release: publishes the unit's changes to the next holder.
        Released::of(self.word.fetch_and(!HOLDING, Ordering::Release) & !HOLDING)
    }

    /// Whether no thread holds the token; a unit that has laid it aside does not. For a thread
    /// that has raised the [`StopFlag`](super::StopFlag).
    pub fn is_at_rest(&self, _: Locked<'_>) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        assert!(word & (UNIT | LONG) != UNIT, "a command of a unit holds a token");
        word & HELD == 0 || word & UNIT != 0
    }

    /// The data, without the token.
    pub fn data<'a>(&'a self, _: &'a OnlyThread) -> &'a T {
        // SAFETY: no other thread touches the inside, and the proof is borrowed.
        unsafe { &(*self.inside.get()).data }
    }

    /// The data, without the token, to be changed.
    pub fn data_mut<'a>(&'a self, _: &'a mut OnlyThread) -> &'a mut T {
        // SAFETY: no other thread touches the inside, and the one proof is borrowed by this alone.
        unsafe { &mut (*self.inside.get()).data }
    }

    /// Leaves a message, and takes the token if it is free.
    pub fn push(&self, message: M) -> Pushed<'_, T, M> {
        let node = Box::into_raw(Box::new(MailboxNode { next: ptr::null_mut(), message }));
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until the CAS succeeds.
            unsafe { (*node).next = pointer(word) };
            let new = node as usize | (closed(word) & FLAGS) | HELD;
            // It publishes the message; it acquires a free shard.
            match self.word.compare_exchange_weak(word, new, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) if word & HELD == 0 => return Pushed::Taken(Taken::of(self)),
                Ok(_) => return Pushed::Queued,
                Err(now) => word = now,
            }
        }
    }

    /// Leaves a message for other threads to run, unless the shard is free and nothing is pending:
    /// then gives it back.
    pub fn leave(&self, message: M) -> Left<M> {
        let mut word = self.word.load(Ordering::Relaxed);
        let node = Box::into_raw(Box::new(MailboxNode { next: ptr::null_mut(), message }));
        while word & !(OPEN | READ) != 0 {
            // SAFETY: the node is ours until the CAS succeeds.
            unsafe { (*node).next = pointer(word) };
            let new = node as usize | (word & FLAGS);
            match self.word.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Left::Queued,
                Err(now) => word = now,
            }
        }
        // SAFETY: made above, and never published.
        Left::Free(unsafe { Box::from_raw(node) }.message)
    }
}

impl<T, M> Drop for Token<T, M> {
    fn drop(&mut self) {
        let word = self.word.load(Ordering::Acquire);
        // SAFETY: no other thread has the token any more.
        for mut list in [pointer(word), unsafe { (*self.inside.get()).left }] {
            // SAFETY: as above.
            while unsafe { take_first::<M>(&mut list) }.is_some() {}
        }
    }
}

/// The word of a shard that nobody else may begin to read.
fn closed(word: usize) -> usize {
    if word & OPEN != 0 { word & !OPEN | READ } else { word }
}

fn pointer<M>(word: usize) -> *mut MailboxNode<M> {
    (word & !FLAGS) as *mut MailboxNode<M>
}

/// The first message of a list, which is freed.
///
/// # Safety
/// The caller alone owns the list, whose nodes `push` or `leave` have made.
unsafe fn take_first<M>(list: &mut *mut MailboxNode<M>) -> Option<M> {
    if list.is_null() {
        return None;
    }
    // SAFETY: the caller owns the node.
    let node = unsafe { Box::from_raw(*list) };
    *list = node.next;
    Some(node.message)
}

/// A list that has been taken out of its word, oldest first.
///
/// # Safety
/// The caller alone owns the list.
unsafe fn oldest_first<M>(mut newest: *mut MailboxNode<M>) -> *mut MailboxNode<M> {
    let mut first = ptr::null_mut();
    while !newest.is_null() {
        // SAFETY: the caller owns the node.
        let before = unsafe { std::mem::replace(&mut (*newest).next, first) };
        first = newest;
        newest = before;
    }
    first
}

/// A token that this thread holds. It must be released with [`Held::release`]. Dropping it any
/// other way ends the process, because a shard that a panic left half-changed must not be served or
/// saved.
pub struct Held<'a, T, M> {
    token: &'a Token<T, M>,
}

impl<T, M> Held<'_, T, M> {
    fn inside(&self) -> *mut Inside<T, M> {
        self.token.inside.get()
    }

    /// The next pending message, oldest first.
    #[inline]
    pub fn next_pending(&mut self) -> Option<M> {
        if self.token.word.load(Ordering::Relaxed) & !HOLDING == 0 {
            return None;
        }
        self.next_pending_slow()
    }

    /// LEFT is set in the word exactly while `left` holds messages.
    #[cold]
    fn next_pending_slow(&mut self) -> Option<M> {
        let word = &self.token.word;
        // SAFETY: we hold the token.
        let left = unsafe { &mut (*self.inside()).left };
        let was_empty = left.is_null();
        if was_empty {
            let taken = word.fetch_and(HOLDING, Ordering::Acquire);
            // SAFETY: just taken out of the word.
            *left = unsafe { oldest_first(pointer(taken)) };
        }
        // SAFETY: we hold the token.
        let message = unsafe { take_first(left) };
        if was_empty && !left.is_null() {
            word.fetch_or(LEFT, Ordering::Relaxed);
        } else if !was_empty && left.is_null() {
            word.fetch_and(!LEFT, Ordering::Relaxed);
        }
        message
    }

    /// Releases the token: to a waiter, or to no thread.
    #[inline]
    pub fn release(self, room: &WaitingRoom) -> Released {
        self.token.reads.store(0, Ordering::Relaxed);
        self.release_to(0, room)
    }

    /// The same, with this word if nothing has come in.
    #[inline(always)]
    fn release_to(self, free: usize, room: &WaitingRoom) -> Released {
        let token = self.token;
        std::mem::forget(self);
        // Release: publishes our changes to the next holder, and to those who read.
        match token.word.compare_exchange(HELD, free, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Released::Clean,
            Err(word) => Held { token }.release_slow(word, room),
        }
    }

    #[cold]
    fn release_slow(self, word: usize, room: &WaitingRoom) -> Released {
        let token = self.token;
        std::mem::forget(self);
        if word & UNIT != 0 {
            // Relaxed: only this thread takes it up again; `leave_unit` publishes.
            token.word.fetch_or(LONG, Ordering::Relaxed);
            return Released::Clean;
        }
        let pass_on = |word| {
            let rest = word & !HOLDING;
            Some(if word & WAITER != 0 { rest | HELD } else { rest })
        };
        let (Ok(word) | Err(word)) =
            token.word.fetch_update(Ordering::Release, Ordering::Relaxed, pass_on);
        if word & WAITER == 0 {
            return Released::of(word & !HOLDING);
        }
        // The slot is locked so that the call cannot fall between the waiter's check and its sleep.
        drop(lock(&room.slot));
        room.call.notify_all();
        Released::Clean
    }
}

impl<T, M> Deref for Held<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the token, so no other thread touches the inside.
        unsafe { &(*self.inside()).data }
    }
}

impl<T, M> DerefMut for Held<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the token, so no other thread touches the inside.
        unsafe { &mut (*self.inside()).data }
    }
}

impl<T, M> Drop for Held<'_, T, M> {
    fn drop(&mut self) {
        eprintln!(
            "midi: a thread lost a shard's token; the shard may be half-changed, so the server \
             stops"
        );
        std::process::abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn wait<'a, T>(call: &Condvar, slot: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    call.wait(slot).unwrap_or_else(|poisoned| poisoned.into_inner())
}
