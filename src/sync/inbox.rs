//! A thread's inbox: messages from other threads, and whether the thread must be woken.
//!
//! Pushing costs one CAS. A wake-up is paid only if the thread has announced sleep, and by one
//! sender only.

use std::collections::VecDeque;
use std::ptr;

use super::contention::{Contact, note};
use super::primitives::{AtomicBool, AtomicPtr, Ordering};

struct InboxNode<M> {
    older: *mut InboxNode<M>,
    message: M,
}

/// Messages for one thread. Not crossbeam's queue: that tells no sender whether the thread sleeps.
pub struct Inbox<M> {
    newest: AtomicPtr<InboxNode<M>>,
    asleep: AtomicBool,
}

// SAFETY: nodes are handed over through `newest` with release and acquire order.
unsafe impl<M: Send> Send for Inbox<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Sync for Inbox<M> {}

impl<M> Default for Inbox<M> {
    fn default() -> Self {
        Inbox { newest: AtomicPtr::new(ptr::null_mut()), asleep: AtomicBool::new(false) }
    }
}

impl<M> Inbox<M> {
    /// Leaves a message. True when the caller must wake the thread.
    #[must_use]
    pub fn push(&self, message: M) -> bool {
        let node = Box::into_raw(Box::new(InboxNode { older: ptr::null_mut(), message }));
        // SAFETY: just made, and no other thread has it.
        unsafe { self.push_chain(node, node) }
    }

    /// Leaves these messages, the oldest first, at the cost of one. True as for [`Inbox::push`].
    #[must_use]
    pub fn push_all(&self, messages: impl Iterator<Item = M>) -> bool {
        let (mut oldest, mut newest) = (ptr::null_mut::<InboxNode<M>>(), ptr::null_mut());
        for message in messages {
            newest = Box::into_raw(Box::new(InboxNode { older: newest, message }));
            if oldest.is_null() {
                oldest = newest;
            }
        }
        // SAFETY: just made, each linked to the one before it, and no other thread has them.
        !oldest.is_null() && unsafe { self.push_chain(oldest, newest) }
    }

    /// Puts a chain of nodes at the front of the list.
    ///
    /// # Safety
    /// The nodes are boxed, linked by `older` from `first` to `last`, and owned by the caller
    /// alone.
    unsafe fn push_chain(&self, last: *mut InboxNode<M>, first: *mut InboxNode<M>) -> bool {
        let link = |newest| {
            // SAFETY: the chain is ours until the CAS succeeds.
            unsafe { (*last).older = newest };
            Some(first)
        };
        note(Contact::Message);
        // AcqRel: publishes the messages; see also `may_sleep`.
        let _ = self.newest.fetch_update(Ordering::AcqRel, Ordering::Relaxed, link);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }

    /// Whether there is no message that this thread can know of.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Takes all messages, oldest first.
    pub fn take(&self) -> VecDeque<M> {
        let mut found = VecDeque::new();
        if self.is_empty() {
            return found;
        }
        let mut newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        while !newest.is_null() {
            // SAFETY: the swap made the list ours; each node came from `push`.
            let node = unsafe { Box::from_raw(newest) };
            newest = node.older;
            found.push_front(node.message);
        }
        found
    }

    /// Announces sleep. False if there is a message: then do not sleep.
    ///
    /// The CAS changes nothing, but it takes its place in the order of changes to `newest`: it
    /// fails if a push came before it, and a push after it acquires `asleep`. (A load instead would
    /// need SeqCst in all of these, which loom cannot check. Stores in place of the swaps of
    /// `asleep` would do here and in `awake`. But loom does not know that no store comes between a
    /// swap and the value that it reads: it would let a sender's swap that has found false take
    /// effect behind a later announcement.)
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.asleep.swap(true, Ordering::Relaxed);
        let none = ptr::null_mut();
        if self.newest.compare_exchange(none, none, Ordering::Release, Ordering::Relaxed).is_ok() {
            return true;
        }
        self.asleep.swap(false, Ordering::Relaxed);
        false
    }

    /// Whether the thread has announced sleep.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Announces that the thread is awake again.
    pub fn awake(&self) {
        self.asleep.swap(false, Ordering::Relaxed);
    }
}

impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        self.take();
    }
}
