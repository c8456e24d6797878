//! What several unit tests of the engine begin with.

use super::{Config, Engine, Gates, Settings};
use crate::command::{COMMANDS, Cluster, Reply};
use crate::store::UnixMs;
use crate::sync::LOCKED;

/// An engine without threads or a host, with 4 databases. Its gates are open: no host is loading
/// its data.
pub(super) fn open_engine(workers: usize, shards: usize, clock: fn() -> UnixMs) -> Engine {
    let config =
        Config { workers, shards, databases: 4, cluster: Cluster::Off, safemode: false, clock };
    let engine = Engine::new(config, Settings::default(), Box::new(|| ()));
    let engine = engine.expect("a few descriptors");
    engine.ledger.set_gates(LOCKED, Gates::OPEN);
    engine
}

/// The number of the row of this name, also of one that only the memcached port has.
pub(super) fn number_of(name: &[u8]) -> usize {
    COMMANDS.iter().position(|row| row.name.as_bytes() == name).expect("a command of the table")
}

/// Replies as text.
#[derive(Default)]
pub(super) struct Said(Vec<String>);

impl Said {
    /// The elements of all of them, joined by spaces.
    pub(super) fn text(&self) -> String {
        self.0.join(" ")
    }

    fn say(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}

impl Reply for Said {
    fn simple(&mut self, text: &'static str) {
        self.say(text);
    }
    fn null(&mut self) {
        self.say("null");
    }
    fn integer(&mut self, number: i64) {
        self.say(number.to_string());
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.say(String::from_utf8_lossy(bytes));
    }
    fn double(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }
    fn verbatim(&mut self, text: &[u8]) {
        self.bulk(text);
    }
    fn error(&mut self, text: &[u8]) {
        self.bulk(text);
    }
    fn array(&mut self, _: usize) {}
    fn map(&mut self, _: usize) {}
}
