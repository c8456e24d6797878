//! Snapshots: the reader accepts or rejects any strings, and what it accepted survives being saved
//! and loaded again.

use std::collections::BTreeMap;
use std::sync::Arc;

use midi::command::Cluster;
use midi::engine::{Config, Engine, Locked, Settings, Staging};
use midi::snapshot::{LoadError, SavedAs, Sink, Source, VERSION, load, save};
use midi::store::{Origin, Store, UnixMs};
use xxhash_rust::xxh3::xxh3_64;

/// The first byte says whether the strings get the checksums that they should have. Each string
/// stands behind its length, 2 bytes, little-endian; the last one may be shorter.
pub fn check(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let mut strings = strings(rest);
    if mode % 2 == 1 {
        seal(&mut strings);
    }
    let Ok(first) = loaded(&strings) else { return };
    let again = loaded(&saved(&first)).expect("what was saved is read");
    let keys = content(&first);
    assert_eq!(content(&again), keys);
    let bytes: usize = keys.iter().map(|((_, key), (value, ..))| key.len() + value.len()).sum();
    assert!(bytes <= data.len(), "there is no more than was given");
}

fn strings(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (string, after) = after.split_at(after.len().min(u16::from_le_bytes(*len).into()));
        strings.push(string.to_vec());
        rest = after;
    }
    strings
}

const LARGE_ENTRY: u8 = 3;

/// Appends its checksum to each frame; before it, to a large entry, that of the next string.
fn seal(strings: &mut [Vec<u8>]) {
    let mut at = 0;
    while at < strings.len() {
        let is_large = strings[at].first() == Some(&LARGE_ENTRY);
        if let (true, Some(value)) = (is_large, strings.get(at + 1)) {
            let sum = xxh3_64(value);
            strings[at].extend(sum.to_le_bytes());
        }
        let sum = xxh3_64(&strings[at]);
        strings[at].extend(sum.to_le_bytes());
        at += 1 + usize::from(is_large);
    }
}

fn locked<'a>() -> Locked<'a> {
    // SAFETY: there is no host, and each engine is on one thread.
    unsafe { Locked::assume() }
}

struct Strings<'a>(std::slice::Iter<'a, Vec<u8>>);

impl Source for Strings<'_> {
    fn next(&mut self) -> Option<Vec<u8>> {
        self.0.next().cloned()
    }

    fn is_at_end(&mut self) -> bool {
        self.0.as_slice().is_empty()
    }
}

fn loaded(strings: &[Vec<u8>]) -> Result<Engine, LoadError> {
    let config = Config {
        workers: 1,
        shards: 2,
        databases: 4,
        cluster: Cluster::Off,
        safemode: false,
        clock: || 1_600_000_000_000,
    };
    let engine = Engine::new(config, Settings::default(), Box::new(|| {})).expect("an eventfd");
    let staging = Arc::new(Staging::new(engine.shards()));
    let source = &mut Strings(strings.iter());
    let stats = load(&engine, locked(), VERSION, &staging, source, &mut |_| ());
    let staging = Arc::into_inner(staging).expect("nobody else has it");
    assert!(stats?.keys >= staging.keys(), "unknown types are skipped");
    staging.install(&engine.ledger, locked());
    Ok(engine)
}

#[derive(Default)]
struct List(Vec<Vec<u8>>);

impl Sink for List {
    fn put(&mut self, string: &[u8]) {
        self.0.push(string.to_vec());
    }
}

fn visit(engine: &Engine, shard: u32, look: &mut dyn FnMut(&Store)) {
    let held = engine.shards().try_take(shard).expect("nobody else has it");
    look(&held);
    engine.ledger.release(engine.worker_slot(0), shard, held);
}

fn saved(engine: &Engine) -> Vec<Vec<u8>> {
    let mut list = List::default();
    save(
        engine,
        SavedAs::Section,
        &mut |shard, look| visit(engine, shard, look),
        &mut list,
        &mut |_| (),
    );
    list.0
}

type Keys = BTreeMap<(u32, Vec<u8>), (Vec<u8>, Option<UnixMs>, u8)>;

fn content(engine: &Engine) -> Keys {
    let mut keys = Keys::new();
    for shard in 0..engine.shards().count() {
        visit(engine, shard, &mut |store| {
            for db in store.databases() {
                for entry in store.table(db).expect("a database of the list").entries() {
                    let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
                    let Ok(value) = entry.string() else { panic!("a string") };
                    let origin = match value.origin() {
                        Origin::Given => 0,
                        Origin::Edited => 1,
                        Origin::Computed => 2,
                    };
                    let content = (value.bytes().to_vec(), expire_at, origin);
                    assert!(keys.insert((db, key), content).is_none());
                }
            }
        });
    }
    keys
}
