//! Names that clients of the host may watch: the age of each mark, and its clients if the host
//! reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use crate::limits::{WATCHED_BYTES, WATCHED_KEYS, WATCHED_NAME_BYTES};
use crate::store::UnixMs;
use crate::sync::Locked;

/// A name, shared by shards, ages and clients.
pub(in crate::engine) type Name = Arc<[u8]>;

/// All marks.
#[derive(Default)]
pub(in crate::engine) struct Marks {
    by_name: HashMap<Name, Mark>,
    by_age: BTreeMap<u64, Name>,
    by_client: HashMap<u64, ClientMarks>,
    /// How many requests there have been so far.
    asked: u64,
    /// The number of requests when the host had last executed a WATCH, as far as is known.
    confirmed: u64,
    bytes: usize,
}

#[derive(Default)]
struct Mark {
    /// The number of the first request for it.
    first: u64,
    /// The number of the last request for it.
    asked: u64,
    /// Each client's last request for it. Empty if the host does not report the client.
    clients: HashMap<u64, u64>,
}

#[derive(Default)]
struct ClientMarks {
    names: HashSet<Name>,
    /// The first request of the client's last WATCH.
    latest: u64,
}

fn weight(name: &Name) -> usize {
    name.len() + WATCHED_NAME_BYTES
}

impl Marks {
    /// A client sends WATCH.
    pub(super) fn begin(&mut self, client: Option<u64>) {
        if let Some(client) = client {
            self.by_client.entry(client).or_default().latest = self.asked + 1;
        }
    }

    /// The client names this key.
    pub(super) fn ask(&mut self, key: &[u8], client: Option<u64>) -> Name {
        self.asked += 1;
        let name = match self.by_name.get_key_value(key) {
            Some((name, _)) => Arc::clone(name),
            None => key.into(),
        };
        let mark = self.by_name.entry(Arc::clone(&name)).or_default();
        if self.by_age.remove(&mark.asked).is_none() {
            self.bytes += weight(&name);
            mark.first = self.asked;
        }
        mark.asked = self.asked;
        self.by_age.insert(self.asked, Arc::clone(&name));
        if let Some(client) = client {
            mark.clients.insert(client, self.asked);
            self.by_client.entry(client).or_default().names.insert(Arc::clone(&name));
        }
        name
    }

    /// The number of names, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.by_age.len(), self.bytes)
    }

    /// The names that were requested so far may be watched.
    pub(super) fn confirm(&mut self) {
        self.confirmed = self.asked;
    }

    /// Whether any name was requested since.
    pub(super) fn has_unconfirmed(&self) -> bool {
        self.confirmed != self.asked
    }

    /// No client watches what was requested since: takes out the names that are new among them.
    pub(super) fn take_unconfirmed(&mut self) -> Vec<Name> {
        let since = self.by_age.range(self.confirmed + 1..);
        let is_new =
            |name: &&Name| self.by_name.get(*name).is_some_and(|mark| mark.first > self.confirmed);
        let names: Vec<Name> = since.map(|(_, name)| name).filter(is_new).cloned().collect();
        names.iter().for_each(|name| self.remove(name));
        self.confirm();
        names
    }

    /// Takes out the oldest, if there are too many. While clients are paused, a client's last WATCH
    /// may still have to be executed, so its marks stay.
    pub(super) fn take_surplus(&mut self, paused: bool) -> Option<Name> {
        let is_too_much = self.by_age.len() > WATCHED_KEYS || self.bytes > WATCHED_BYTES;
        if !is_too_much || self.by_age.len() == 1 {
            return None;
        }
        let name = self.by_age.values().find(|name| !paused || !self.may_wait(name)).cloned()?;
        self.remove(&name);
        Some(name)
    }

    fn may_wait(&self, name: &Name) -> bool {
        let is_latest = |(client, asked): (&u64, &u64)| {
            self.by_client.get(client).is_some_and(|client| *asked >= client.latest)
        };
        self.by_name.get(name).is_some_and(|mark| mark.clients.iter().any(is_latest))
    }

    /// The client has gone: takes out the names that no client watches any more.
    pub(super) fn take_of(&mut self, client: u64) -> Vec<Name> {
        let Some(ClientMarks { names, .. }) = self.by_client.remove(&client) else {
            return Vec::new();
        };
        let mut unwatched = Vec::new();
        for name in names {
            let Some(mark) = self.by_name.get_mut(&name) else { continue };
            mark.clients.remove(&client);
            if mark.clients.is_empty() {
                self.remove(&name);
                unwatched.push(name);
            }
        }
        unwatched
    }

    fn remove(&mut self, name: &Name) {
        let Some(mark) = self.by_name.remove(name) else { return };
        self.by_age.remove(&mark.asked);
        self.bytes -= weight(name);
        for client in mark.clients.keys() {
            if let Some(client) = self.by_client.get_mut(client) {
                client.names.remove(name);
            }
        }
    }
}

/// A key of a database.
pub(in crate::engine) type KeyName = (u32, Name);

/// Notifies the host that a key has changed in these databases.
pub(in crate::engine) type Tell = fn(Locked<'_>, &[u32], &[u8]);

/// What is known of watched keys, beside the marks in their shards.
#[derive(Default)]
pub(in crate::engine) struct Watch {
    /// Notifies the host of a changed key.
    pub(super) tell: OnceLock<Tell>,
    /// Marks by age and client.
    pub(super) marks: Mutex<Marks>,
    /// When watched keys expire.
    pub(super) due: Mutex<BTreeSet<(UnixMs, KeyName)>>,
    /// Changes that jobs are about to make.
    pub(super) announced: Mutex<HashSet<KeyName>>,
    /// Whether there are any; read every turn.
    pub(super) any_announced: AtomicBool,
}
