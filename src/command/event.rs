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
    /// A number was added to.
    pub const INCRBY: Event = Event { class: Class::String, name: c"incrby" };
    /// The same with a fraction.
    pub const INCRBYFLOAT: Event = Event { class: Class::String, name: c"incrbyfloat" };
    /// The value has grown at its end.
    pub const APPEND: Event = Event { class: Class::String, name: c"append" };
    /// A part of the value was overwritten.
    pub const SETRANGE: Event = Event { class: Class::String, name: c"setrange" };
    /// Bits of the value were written.
    pub const SETBIT: Event = Event { class: Class::String, name: c"setbit" };
    /// The key has another name now: told of the old one.
    pub const RENAME_FROM: Event = Event { class: Class::Generic, name: c"rename_from" };
    /// The same, told of the new one.
    pub const RENAME_TO: Event = Event { class: Class::Generic, name: c"rename_to" };
    /// The key is in another database now: told where it was.
    pub const MOVE_FROM: Event = Event { class: Class::Generic, name: c"move_from" };
    /// The same, told where it is.
    pub const MOVE_TO: Event = Event { class: Class::Generic, name: c"move_to" };
    /// The value is a copy of another key's.
    pub const COPY_TO: Event = Event { class: Class::Generic, name: c"copy_to" };
    /// The value came from a payload.
    pub const RESTORE: Event = Event { class: Class::Generic, name: c"restore" };
    /// The key's time was over.
    pub const EXPIRED: Event = Event { class: Class::Expired, name: c"expired" };
}

/// The events of one command, noted where anybody listens. Boxed, because as a
/// rule nobody does.
pub struct Events {
    noted: Option<Box<Noted>>,
}

struct Noted {
    /// The client's database.
    db: u32,
    /// The key that a command on one key has in its hands.
    first: usize,
    list: Vec<KeyEvent>,
}

/// What happened to one key.
#[derive(Clone, Copy)]
pub struct KeyEvent {
    /// Its number among the command's keys.
    pub key: usize,
    /// Its database.
    pub db: u32,
    /// What happened.
    pub event: Event,
}

impl Events {
    /// None so far; `db` is the client's database.
    #[inline]
    pub fn new(wanted: bool, db: u32) -> Self {
        Events { noted: wanted.then(|| Box::new(Noted { db, first: 0, list: Vec::new() })) }
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
            let key = noted.first + key;
            noted.list.push(KeyEvent { key, db: noted.db, event });
        }
    }

    /// Key number `key` of another database has changed.
    pub(super) fn note_in(&mut self, key: usize, db: u32, event: Event) {
        if let Some(noted) = &mut self.noted {
            noted.list.push(KeyEvent { key, db, event });
        }
    }

    /// What was noted, in order.
    #[inline]
    pub fn list(&self) -> &[KeyEvent] {
        self.noted.as_ref().map_or(&[], |noted| &noted.list)
    }
}
