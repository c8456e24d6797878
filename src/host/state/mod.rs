//! The state of the host layer: the parts of [`super::instance::Instance`]. They stand below the
//! files that use them, so a part has few methods of its own; each says which file it is for. Two
//! parts are for everybody: [`doing`] says what the host is doing, and `pause` whether its clients
//! are paused.
//!
//! Flags and numbers are written under the global lock, so by one thread at a time; the fork of
//! another thread only makes one of them stricter. Other threads that read them see the host as it
//! was a moment ago, and nothing else depends on the order: all loads and stores are relaxed.

pub mod clients;
pub mod doing;
pub mod gates;
pub mod listener;
pub mod messages;
pub mod persistence;
pub mod scripts;
pub mod slots;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Declares a part: each field with its value before anything has happened.
macro_rules! part {
    ($(#[$about:meta])* pub struct $part:ident {
        $($(#[$doc:meta])* $visible:vis $field:ident: $type:ty = $value:expr,)*
    }) => {
        $(#[$about])*
        pub struct $part {
            $($(#[$doc])* $visible $field: $type,)*
        }

        impl $part {
            /// Before anything has happened.
            pub const fn new() -> Self {
                $part { $($field: $value,)* }
            }
        }
    };
}
pub(super) use part;

/// The values of all settings that midi was built with: numbers, switches and texts.
pub type BuiltSettings = (Vec<i64>, Vec<bool>, Vec<String>);

/// Yes or no.
pub struct Flag(AtomicBool);

impl Flag {
    /// The value before anything has happened.
    pub const fn new(is_set: bool) -> Self {
        Flag(AtomicBool::new(is_set))
    }

    /// Whether it is set.
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it, or clears it.
    #[inline]
    pub fn set(&self, is_set: bool) {
        self.0.store(is_set, Ordering::Relaxed);
    }

    /// Sets it, or clears it. True if it was set before.
    #[inline]
    pub fn replace(&self, is_set: bool) -> bool {
        self.0.swap(is_set, Ordering::Relaxed)
    }

    /// Clears it. True if it was set.
    #[inline]
    pub fn take(&self) -> bool {
        self.get() && self.replace(false)
    }
}

/// A number.
pub struct Gauge(AtomicU64);

impl Gauge {
    /// The value before anything has happened.
    pub const fn new(number: u64) -> Self {
        Gauge(AtomicU64::new(number))
    }

    /// The number.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the number.
    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Sets the number. The one before.
    #[inline]
    pub fn replace(&self, number: u64) -> u64 {
        self.0.swap(number, Ordering::Relaxed)
    }

    /// Adds to the number.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}
