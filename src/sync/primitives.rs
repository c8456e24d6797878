//! The atomics, or loom's replacements when the models are checked.

#[cfg(not(loom))]
pub(super) use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

/// The inside of a cell that nobody changes now.
#[cfg(not(loom))]
#[inline(always)]
pub(super) fn to_read<T>(cell: &UnsafeCell<T>) -> *const T {
    cell.get()
}

#[cfg(loom)]
pub(super) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(loom)]
pub(super) use loom_cell::{UnsafeCell, to_read};

/// loom's cell takes closures; this one has std's interface, and loom still tracks it.
#[cfg(loom)]
mod loom_cell {
    pub struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> Self {
            UnsafeCell(loom::cell::UnsafeCell::new(value))
        }

        pub fn get(&self) -> *mut T {
            self.0.with_mut(|inside| inside)
        }
    }

    pub fn to_read<T>(cell: &UnsafeCell<T>) -> *const T {
        cell.0.with(|inside| inside)
    }
}
