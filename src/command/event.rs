//! Events: what a command did to a key, in the words of Redis's keyspace notifications.

use std::ffi::CStr;

/// The classes of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `g`: commands on any type.
    Generic,
    /// `$`: commands on strings.
    String,
    /// `x`: keys that expire.
    Expired,
}

/// A change of a key, as those are told of it who listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its class.
    pub class: Class,
    /// Its name.
    pub name: &'static CStr,
}

impl Event {
    /// A value was set.
    pub const SET: Event = Event { class: Class::String, name: c"set" };
    /// The key was removed.
    pub const DEL: Event = Event { class: Class::Generic, name: c"del" };
    /// An expiry was set.
    pub const EXPIRE: Event = Event { class: Class::Generic, name: c"expire" };
    /// The expiry was taken away.
    pub const PERSIST: Event = Event { class: Class::Generic, name: c"persist" };
    /// The key's time was over.
    pub const EXPIRED: Event = Event { class: Class::Expired, name: c"expired" };
}

/// The events of one command, noted where anybody listens. Boxed, because as a
/// rule nobody does.
#[derive(Default)]
pub struct Events {
    noted: Option<Box<Noted>>,
}

#[derive(Default)]
struct Noted {
    /// The key that a command on one key has in its hands.
    first: usize,
    list: Vec<(usize, Event)>,
}

impl Events {
    /// None so far.
    #[inline]
    pub fn new(wanted: bool) -> Self {
        Events { noted: wanted.then(Box::default) }
    }

    /// Whether anybody listens.
    #[inline]
    pub fn are_wanted(&self) -> bool {
        self.noted.is_some()
    }

    /// What a command on one key says next is about key number `key`.
    #[inline]
    pub fn begin(&mut self, key: usize) {
        if let Some(noted) = &mut self.noted {
            noted.first = key;
        }
    }

    /// Key number `key` (counted among the keys) has changed.
    #[inline]
    pub(super) fn note(&mut self, key: usize, event: Event) {
        if let Some(noted) = &mut self.noted {
            noted.list.push((noted.first + key, event));
        }
    }

    /// What was noted, in order.
    #[inline]
    pub fn list(&self) -> &[(usize, Event)] {
        self.noted.as_ref().map_or(&[], |noted| &noted.list)
    }
}
