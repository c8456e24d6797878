//! The token of a shard and its mailbox: one atomic word.
//!
//! ```text
//! word = UNIT │ pointer to the newest pending message │ LEFT │ WAITER │ LONG │ HELD
//! ```
//!
//! | word              | meaning                                                    |
//! |-------------------|------------------------------------------------------------|
//! | 0                 | free, nothing to do: one CAS takes it                      |
//! | HELD              | somebody is at work                                        |
//! | HELD, LONG        | a job's slice: not worth spinning for                      |
//! | HELD, pointer     | messages were pushed meanwhile                             |
//! | pointer or LEFT   | free, but messages lie here: the owner has been told       |
//! | HELD, WAITER      | the holder of the host's global lock sleeps until let in   |
//! | HELD, UNIT        | a unit's, in the hands of one of its commands              |
//! | HELD, UNIT, LONG  | a unit's, between two of its commands                      |
//!
//! Letting go is a CAS too, which fails when a message came in between, so
//! no message is overlooked, and nobody is woken just to pass the token on.
//! LEFT says that messages, older than those at the pointer, wait inside.
//!
//! A *unit* is several commands that the holder of the host's global lock runs as
//! one. Letting go of a unit's token only lays it aside, until the unit ends.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::ptr;

use super::locked::Locked;
use super::primitives::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, UnsafeCell, spin_loop};

const HELD: usize = 1;
const LONG: usize = 1 << 1;
const WAITER: usize = 1 << 2;
const LEFT: usize = 1 << 3;
/// The top bit, which no address of ours has.
const UNIT: usize = 1 << (usize::BITS - 1);
/// What tells of holders and waiters, not of messages.
const HOLDING: usize = HELD | LONG | WAITER | UNIT;
const FLAGS: usize = HOLDING | LEFT;

/// A message on its way. Aligned, so that the flags fit below its address.
#[repr(align(16))]
struct MailboxNode<M> {
    older: *mut MailboxNode<M>,
    message: M,
}

/// Data that only the holder of its token touches, and a mailbox for everyone else.
pub struct Token<T, M> {
    word: AtomicUsize,
    inside: UnsafeCell<Inside<T, M>>,
}

struct Inside<T, M> {
    data: T,
    /// Messages taken from the word but not yet run, oldest first.
    left: VecDeque<M>,
}

// SAFETY: `inside` is touched by the holder of HELD alone; messages are handed
// over through the word with release and acquire order.
unsafe impl<T: Send, M: Send> Send for Token<T, M> {}
// SAFETY: as above; a shared Token gives access to T and M to one thread at a time.
unsafe impl<T: Send, M: Send> Sync for Token<T, M> {}

/// Where the one thread that may wait for tokens sleeps. One per keyspace.
#[derive(Default)]
pub struct WaitingRoom {
    slot: Mutex<()>,
    call: Condvar,
}

/// What became of a message.
pub enum Pushed<'a, T, M> {
    /// It waits; the holder or the owner will run it.
    Queued,
    /// The shard was free: the caller now holds it, and the message is
    /// pending in its hands.
    Taken(Held<'a, T, M>),
}

/// What became of a message that must not be run by who pushed it.
pub enum Left<M> {
    /// It waits; the holder or the owner will run it.
    Queued,
    /// The shard is free, so it can be had at once.
    Free(M),
}

/// The state after letting go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "pending messages need the owner's attention"]
pub enum Released {
    /// Nothing is pending, or it went to a waiter who sees to it.
    Clean,
    /// Messages lie in the mailbox: tell the owner.
    Pending,
}

impl Released {
    /// Of what is left in the word.
    fn of(rest: usize) -> Self {
        if rest == 0 { Released::Clean } else { Released::Pending }
    }
}

impl<T, M> Token<T, M> {
    /// A free token over `data`.
    pub fn new(data: T) -> Self {
        Token {
            word: AtomicUsize::new(0),
            inside: UnsafeCell::new(Inside { data, left: VecDeque::new() }),
        }
    }

    /// Takes the token if it is free and nothing is pending.
    #[inline]
    pub fn try_take(&self) -> Option<Held<'_, T, M>> {
        self.try_take_as(HELD)
    }

    /// The same, for a job's slice.
    #[inline]
    pub fn try_take_long(&self) -> Option<Held<'_, T, M>> {
        self.try_take_as(HELD | LONG)
    }

    #[inline]
    fn try_take_as(&self, flags: usize) -> Option<Held<'_, T, M>> {
        self.word
            .compare_exchange(0, flags, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| Held { token: self })
    }

    /// Tries again for a while, unless a job's slice holds the token.
    #[inline]
    pub fn try_take_spinning(&self, tries: u32) -> Option<Held<'_, T, M>> {
        for _ in 0..tries {
            if let Some(held) = self.try_take() {
                return Some(held);
            }
            // A slice takes long; messages in a free shard are for its owner.
            let word = self.word.load(Ordering::Relaxed);
            if word & LONG != 0 || word != 0 && word & HELD == 0 {
                return None;
            }
            spin_loop();
        }
        self.try_take()
    }

    /// Takes the token if nobody holds it, with whatever is pending.
    pub fn try_take_with_pending(&self) -> Option<Held<'_, T, M>> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & HELD == 0 {
            match self.word.compare_exchange_weak(
                word,
                word | HELD,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Held { token: self }),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Waits for the token. Only for the thread that holds the host's global
    /// lock, so there is one waiter at most in the whole keyspace. What is
    /// pending stays pending: it is other connections' work.
    pub fn take_waiting(&self, _: Locked<'_>, room: &WaitingRoom, tries: u32) -> Held<'_, T, M> {
        for _ in 0..tries {
            if let Some(held) = self.try_take_with_pending() {
                return held;
            }
            spin_loop();
        }
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let waiting = if word & HELD == 0 { word | HELD } else { word | WAITER };
            // AcqRel: taking, or telling the holder that somebody sleeps.
            if self
                .word
                .compare_exchange(word, waiting, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            if word & HELD != 0 {
                self.sleep_until_let_in(room);
            }
            return Held { token: self };
        }
    }

    /// The holder clears WAITER but leaves HELD set: the token is then ours.
    fn sleep_until_let_in(&self, room: &WaitingRoom) {
        let mut slot = lock(&room.slot);
        while self.word.load(Ordering::Acquire) & WAITER != 0 {
            slot = wait(&room.call, slot);
        }
    }

    /// Waits for the token on behalf of a unit, or takes it up again where it is the
    /// unit's already: true where it is new to it. From here on letting go of it
    /// lays it aside for the unit's next command, until [`Token::leave_unit`]. Only
    /// for the thread that may wait.
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

    /// Gives a token back that a unit has laid aside. Only for the thread that may wait.
    pub fn leave_unit(&self, _: Locked<'_>) -> Released {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            assert!(word & (UNIT | LONG) == UNIT | LONG, "a unit ends between its commands");
            let rest = word & !HOLDING;
            // Release: what the unit did to the data is the next holder's to see.
            match self.word.compare_exchange_weak(word, rest, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return Released::of(rest),
                Err(now) => word = now,
            }
        }
    }

    /// Leaves a message, and takes the token where it is free.
    pub fn push(&self, message: M) -> Pushed<'_, T, M> {
        let node = Box::into_raw(Box::new(MailboxNode { older: ptr::null_mut(), message }));
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until the CAS succeeds.
            unsafe { (*node).older = pointer(word) };
            let new = node as usize | (word & FLAGS) | HELD;
            // AcqRel: the message is published; a free shard is acquired.
            match self.word.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if word & HELD == 0 => return Pushed::Taken(Held { token: self }),
                Ok(_) => return Pushed::Queued,
                Err(now) => word = now,
            }
        }
    }

    /// Leaves a message for others to run, unless there is nothing in the way
    /// of running it at once.
    pub fn leave(&self, message: M) -> Left<M> {
        let mut word = self.word.load(Ordering::Relaxed);
        let node = Box::into_raw(Box::new(MailboxNode { older: ptr::null_mut(), message }));
        while word != 0 {
            // SAFETY: the node is ours until the CAS succeeds.
            unsafe { (*node).older = pointer(word) };
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
        // SAFETY: nobody else has the token any more.
        drop(unsafe { messages::<M>(pointer(word)) });
    }
}

fn pointer<M>(word: usize) -> *mut MailboxNode<M> {
    (word & !FLAGS) as *mut MailboxNode<M>
}

/// The messages of a list that has been taken out of its word, oldest first.
///
/// # Safety
/// The caller alone has the list.
unsafe fn messages<M>(mut newest: *mut MailboxNode<M>) -> VecDeque<M> {
    let mut found = VecDeque::new();
    while !newest.is_null() {
        // SAFETY: whoever took the list owns its nodes, each made by `push`.
        let node = unsafe { Box::from_raw(newest) };
        newest = node.older;
        found.push_front(node.message);
    }
    found
}

/// The token in the hands of its holder. It must be given back with
/// [`Held::release`]; dropping it any other way ends the process, because a
/// shard that a panic left half-changed must not be served or saved.
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
        if left.is_empty() {
            let taken = word.fetch_and(HOLDING, Ordering::Acquire);
            // SAFETY: taken out of the word just now.
            *left = unsafe { messages(pointer(taken)) };
            if left.len() > 1 {
                word.fetch_or(LEFT, Ordering::Relaxed);
            }
        } else if left.len() == 1 {
            word.fetch_and(!LEFT, Ordering::Relaxed);
        }
        left.pop_front()
    }

    /// Gives the token back: to a waiter, or to nobody.
    #[inline]
    pub fn release(self, room: &WaitingRoom) -> Released {
        let token = self.token;
        std::mem::forget(self);
        // Release: what we did to the data is the next holder's to see.
        match token.word.compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Released::Clean,
            Err(word) => Held { token }.release_slow(word, room),
        }
    }

    #[cold]
    fn release_slow(self, mut word: usize, room: &WaitingRoom) -> Released {
        let token = self.token;
        std::mem::forget(self);
        if word & UNIT != 0 {
            // Relaxed: only this thread takes it up again, and `leave_unit` publishes.
            token.word.fetch_or(LONG, Ordering::Relaxed);
            return Released::Clean;
        }
        loop {
            let rest = word & !HOLDING;
            let to_waiter = word & WAITER != 0;
            let new = if to_waiter { rest | HELD } else { rest };
            match token.word.compare_exchange_weak(word, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) if to_waiter => {
                    // The slot is locked so that the call cannot fall between
                    // the waiter's look and its sleep.
                    drop(lock(&room.slot));
                    room.call.notify_all();
                    return Released::Clean;
                }
                Ok(_) => return Released::of(rest),
                Err(now) => word = now,
            }
        }
    }
}

impl<T, M> Deref for Held<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the token, so nobody else touches the inside.
        unsafe { &(*self.inside()).data }
    }
}

impl<T, M> DerefMut for Held<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the token, so nobody else touches the inside.
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
