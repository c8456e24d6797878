//! Events: what a command did to a key, in the terms of Redis's keyspace notifications.

use std::ffi::CStr;

/// The classes of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `g`: commands on any type.
    Generic,
    /// `$`: commands on strings.
    String,
    /// `h`: commands on hashes.
    Hash,
    /// `x`: keys that expire.
    Expired,
    /// `e`: keys that are evicted.
    Evicted,
}

/// A change of a key, as listeners are notified of it.
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
    /// The expiry was removed.
    pub const PERSIST: Event = Event { class: Class::Generic, name: c"persist" };
    /// An integer was added to the value.
    pub const INCRBY: Event = Event { class: Class::String, name: c"incrby" };
    /// A floating-point number was added to the value.
    pub const INCRBYFLOAT: Event = Event { class: Class::String, name: c"incrbyfloat" };
    /// Bytes were appended to the value.
    pub const APPEND: Event = Event { class: Class::String, name: c"append" };
    /// A part of the value was overwritten.
    pub const SETRANGE: Event = Event { class: Class::String, name: c"setrange" };
    /// Bits of the value were written.
    pub const SETBIT: Event = Event { class: Class::String, name: c"setbit" };
    /// Fields of the hash were set.
    pub const HSET: Event = Event { class: Class::Hash, name: c"hset" };
    /// Fields of the hash were removed.
    pub const HDEL: Event = Event { class: Class::Hash, name: c"hdel" };
    /// Fields of the hash got an expiry.
    pub const HEXPIRE: Event = Event { class: Class::Hash, name: c"hexpire" };
    /// Fields of the hash lost their expiry.
    pub const HPERSIST: Event = Event { class: Class::Hash, name: c"hpersist" };
    /// Fields of the hash expired.
    pub const HEXPIRED: Event = Event { class: Class::Hash, name: c"hexpired" };
    /// An integer was added to a field's value.
    pub const HINCRBY: Event = Event { class: Class::Hash, name: c"hincrby" };
    /// A floating-point number was added to a field's value.
    pub const HINCRBYFLOAT: Event = Event { class: Class::Hash, name: c"hincrbyfloat" };
    /// The key was renamed; the event of the old name.
    pub const RENAME_FROM: Event = Event { class: Class::Generic, name: c"rename_from" };
    /// The key was renamed; the event of the new name.
    pub const RENAME_TO: Event = Event { class: Class::Generic, name: c"rename_to" };
    /// The key was moved; the event in the old database.
    pub const MOVE_FROM: Event = Event { class: Class::Generic, name: c"move_from" };
    /// The key was moved; the event in the new database.
    pub const MOVE_TO: Event = Event { class: Class::Generic, name: c"move_to" };
    /// The value is a copy of another key's.
    pub const COPY_TO: Event = Event { class: Class::Generic, name: c"copy_to" };
    /// The value was restored from a payload.
    pub const RESTORE: Event = Event { class: Class::Generic, name: c"restore" };
    /// The key expired.
    pub const EXPIRED: Event = Event { class: Class::Expired, name: c"expired" };
    /// The key was evicted.
    pub const EVICTED: Event = Event { class: Class::Evicted, name: c"evicted" };
}

/// The events of one command, noted if a client listens. Boxed, because as a rule none does.
pub struct Events {
    noted: Option<Box<Noted>>,
}

struct Noted {
    /// The client's database.
    db: u32,
    /// The number of the key that a command on one key works on.
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
    /// An empty list; `db` is the client's database. Without `wanted` nothing is noted.
    #[inline]
    pub fn new(wanted: bool, db: u32) -> Self {
        Events { noted: wanted.then(|| Box::new(Noted { db, first: 0, list: Vec::new() })) }
    }

    /// Whether a client listens.
    #[inline]
    pub fn are_wanted(&self) -> bool {
        self.noted.is_some()
    }

    /// The next events of a command on one key are about key number `key`.
    #[inline]
    pub fn begin(&mut self, key: usize) {
        if let Some(noted) = &mut self.noted {
            noted.first = key;
        }
    }

    /// Notes an event of key number `key`, counted among the command's keys.
    #[inline]
    pub(super) fn note(&mut self, key: usize, event: Event) {
        if let Some(noted) = &mut self.noted {
            let key = noted.first + key;
            noted.list.push(KeyEvent { key, db: noted.db, event });
        }
    }

    /// Notes an event of key number `key` in another database.
    pub(super) fn note_in(&mut self, key: usize, db: u32, event: Event) {
        if let Some(noted) = &mut self.noted {
            noted.list.push(KeyEvent { key, db, event });
        }
    }

    /// The noted events, in order.
    #[inline]
    pub fn list(&self) -> &[KeyEvent] {
        self.noted.as_ref().map_or(&[], |noted| &noted.list)
    }
}
