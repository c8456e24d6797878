//! The promise: a snapshot that was saved loads as exactly what was saved, into an engine with any
//! number of shards and workers; a damaged, cut or foreign one is refused.
//!
//! Without a host: strings in memory stand for the module's section of its RDB. The golden files
//! keep what each version has written; see [`golden`](super::golden).

use std::collections::BTreeMap;
use std::sync::Arc;

use midi::command::Cluster;
use midi::engine::{
    Config, Engine, Gates, Locked, Settings, StagedKey, Staging, Workers, free_later,
};
use midi::snapshot::{Fault, LoadError, LoadStats, SaveStats, SavedAs, VERSION, load, save};
use midi::snapshot::{Sink, Source};
use midi::store::{Census, Origin, SharedValue, Store, Traits, UnixMs, Value};
use midi_test_common::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// The global lock, for the thread that plays the host's main thread.
pub fn locked<'a>() -> Locked<'a> {
    // SAFETY: there is no host, and one thread at a time claims the lock of each test's engine.
    unsafe { Locked::assume() }
}

const NOW: UnixMs = 1_600_000_000_000;

const DATABASES: u32 = 16;

/// An engine, and its workers' threads if they run.
pub struct Loaded {
    pub engine: Arc<Engine>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Loaded {
    pub fn new(shards: usize, workers: usize, databases: u32) -> Self {
        let config = Config {
            workers,
            shards,
            databases,
            cluster: Cluster::Off,
            safemode: false,
            clock: || NOW,
        };
        let engine = Engine::new(config, Settings::default(), Box::new(|| {})).expect("eventfds");
        engine.ledger.set_gates(locked(), Gates::OPEN);
        Loaded { engine: Arc::new(engine), threads: Vec::new() }
    }

    /// Its workers run. As on a host that loads, they do not remove keys that are due.
    pub fn running(mut self) -> Self {
        self.engine.ledger.set_gates(locked(), Gates::LOADING);
        self.threads =
            Workers::start(&self.engine, || panic!("in a worker"), Vec::new()).expect("threads");
        self
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.engine.context().workers.stop();
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
    }
}

/// A key's database and name, and what there is to know of it.
pub type Keys = BTreeMap<(u32, Vec<u8>), (Vec<u8>, Option<UnixMs>, u8)>;

/// The traits of values, by the number in [`Keys`].
fn traits(number: u8) -> Traits {
    let plain = |origin| Traits { origin, ..Traits::default() };
    match number {
        0 => plain(Origin::Given),
        1 => plain(Origin::Edited),
        2 => plain(Origin::Computed),
        3 => Traits { flags: 5, ..Traits::default() },
        4 => Traits { flags: u32::MAX, stale: true, ..plain(Origin::Edited) },
        _ => Traits { stale: true, won: true, ..Traits::default() },
    }
}

pub fn stage(staging: &Staging, keys: &Keys) {
    for ((db, key), (value, expire_at, number)) in keys {
        let shared = SharedValue::new(value.clone());
        // As the ports make them.
        let value =
            if value.len() < 32 << 10 { Value::Inline(value) } else { Value::Shared(&shared) };
        let hash = staging.hash(key);
        let new = StagedKey { key, value, expire_at: *expire_at, traits: traits(*number) };
        assert!(staging.lock(staging.shard_of(hash)).insert(*db, hash, &new));
    }
}

pub fn filled(engine: &Engine, keys: &Keys) {
    let staging = Staging::new(engine.shards());
    stage(&staging, keys);
    assert_eq!(staging.keys(), keys.len() as u64);
    assert!(staging.install(&engine.ledger, locked()).is_empty(), "there was nothing before");
}

fn visit(engine: &Engine, shard: u32, look: &mut dyn FnMut(&Store)) {
    let held = engine.shards().try_take(shard).expect("nobody else has it");
    look(&held);
    engine.ledger.release(engine.worker_slot(0), shard, held);
}

/// All keys of an engine; checks its counters on the way.
pub fn content(engine: &Engine) -> Keys {
    let mut keys = Keys::new();
    let mut censuses: BTreeMap<u32, Census> = BTreeMap::new();
    for shard in 0..engine.shards().count() {
        visit(engine, shard, &mut |store| {
            for db in store.databases() {
                let table = store.table(db).expect("a database of the list");
                *censuses.entry(db).or_default() += table.census();
                assert_eq!(table.gained(), Census::default(), "nothing is counted again");
                for entry in table.entries() {
                    let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
                    assert_eq!(engine.shards().of_key(&key), shard);
                    assert!(expire_at.is_none_or(|at| at >= store.next_due()));
                    let Ok(value) = entry.string() else { panic!("a string") };
                    let number = (0..6).find(|&number| traits(number) == value.traits());
                    let number = number.expect("known traits");
                    let is_shared = value.shared().is_some();
                    assert_eq!(is_shared, value.len() >= 32 << 10, "as the ports make them");
                    let content = (value.bytes().to_vec(), expire_at, number);
                    assert!(keys.insert((db, key), content).is_none());
                }
            }
        });
    }
    let mut bytes = 0;
    for db in 0..engine.config().databases {
        let (counted, there) =
            (engine.ledger.books.census(db), censuses.get(&db).copied().unwrap_or_default());
        assert_eq!((counted.keys, counted.expiring), (there.keys, there.expiring));
        bytes += there.bytes;
    }
    assert_eq!(engine.ledger.books.totals().bytes, bytes);
    keys
}

#[derive(Default)]
struct List(Vec<Vec<u8>>);

impl Sink for List {
    fn put(&mut self, string: &[u8]) {
        self.0.push(string.to_vec());
    }
}

/// Strings in memory.
pub struct Strings<'a>(pub std::slice::Iter<'a, Vec<u8>>);

impl Source for Strings<'_> {
    fn next(&mut self) -> Option<Vec<u8>> {
        self.0.next().cloned()
    }

    fn is_at_end(&mut self) -> bool {
        self.0.as_slice().is_empty()
    }
}

pub fn saved(engine: &Engine) -> Vec<Vec<u8>> {
    let (mut list, mut last) = (List::default(), SaveStats::default());
    let mut lend = |shard, look: &mut dyn FnMut(&Store)| visit(engine, shard, look);
    let stats = save(engine, SavedAs::Section, &mut lend, &mut list, &mut |stats| last = stats);
    assert_eq!(stats, last, "the progress ends with the whole");
    list.0
}

fn load_into(
    engine: &Engine,
    version: i32,
    strings: &[Vec<u8>],
) -> Result<(LoadStats, Staging), LoadError> {
    let staging = Arc::new(Staging::new(engine.shards()));
    let source = &mut Strings(strings.iter());
    let stats = load(engine, locked(), version, &staging, source, &mut |_| ())?;
    Ok((stats, Arc::into_inner(staging).expect("nobody else has it")))
}

/// The keys that the strings load as, with one of their keys' databases to spare.
pub fn loaded(to: &Loaded, strings: &[Vec<u8>]) -> Result<Keys, LoadError> {
    loaded_as(to, VERSION, strings)
}

pub fn loaded_as(to: &Loaded, version: i32, strings: &[Vec<u8>]) -> Result<Keys, LoadError> {
    let (stats, staging) = load_into(&to.engine, version, strings)?;
    assert_eq!((stats.keys, stats.keys), (staging.keys(), stats.expected_keys));
    free_later(&to.engine, staging.install(&to.engine.ledger, locked()));
    let keys = content(&to.engine);
    assert_eq!(stats.expiring, keys.values().filter(|(_, at, _)| at.is_some()).count() as u64);
    let bytes: usize = keys.iter().map(|((_, key), (value, ..))| key.len() + value.len()).sum();
    assert_eq!(stats.bytes, bytes as u64);
    Ok(keys)
}

/// Few names, so that several databases have keys of the same name.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => Just(Vec::new()),
        8 => (0..60_u32).prop_map(|number| format!("key:{number}").into_bytes()),
        4 => vec(any::<u8>(), 0..20),
        1 => (120..140_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => Just(vec![b'k'; 70_000]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => Just(Vec::new()),
        8 => vec(any::<u8>(), 0..300),
        1 => (32_760..32_780_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (65_530..65_540_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (65_536..200_000_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn expiry() -> impl Strategy<Value = Option<UnixMs>> {
    prop_oneof![
        4 => Just(None),
        2 => (-1000..1000_i64).prop_map(|ms| Some(NOW + ms)),
        1 => any::<i64>().prop_map(|ms| Some(ms.max(UnixMs::MIN + 1))),
        1 => Just(Some(UnixMs::MAX)),
    ]
}

fn keyspace(most: usize) -> impl Strategy<Value = Keys> {
    let db = prop_oneof![3 => Just(0), 3 => 0..DATABASES];
    proptest::collection::btree_map((db, name()), (value(), expiry(), 0..3_u8), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(75),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn saved_keys_are_loaded(
        keys in keyspace(300),
        from_shards in prop::sample::select(vec![1, 4, 64, 1024]),
        to_shards in prop::sample::select(vec![1, 2, 256]),
        // Without workers' threads the loading thread does everything.
        workers in 0..4_usize,
    ) {
        let from = Loaded::new(from_shards, 1, DATABASES);
        filled(&from.engine, &keys);
        let strings = saved(&from.engine);
        let needed = keys.keys().map(|&(db, _)| db + 1).max().unwrap_or(0);
        let mut to = Loaded::new(to_shards, workers.max(1), needed);
        if workers > 0 {
            to = to.running();
        }
        prop_assert_eq!(&loaded(&to, &strings).unwrap(), &keys);
        // And it is what is saved from there.
        let to = Loaded::new(to_shards, 1, needed.max(1));
        prop_assert_eq!(&loaded(&to, &strings).unwrap(), &keys);
        let again = saved(&to.engine);
        prop_assert_eq!(&loaded(&to, &again).unwrap(), &keys);
        if needed > 0 {
            let few = Loaded::new(1, 1, needed - 1);
            let error = loaded(&few, &strings).unwrap_err();
            let there = needed - 1;
            prop_assert_eq!(error.fault, Fault::TooManyDatabases { needed: needed.into(), there });
        }
    }

    #[test]
    fn staged_keys_replace_or_join_the_others(
        old in keyspace(60),
        new in keyspace(60),
        merges in any::<bool>(),
    ) {
        let both = Loaded::new(8, 1, DATABASES);
        filled(&both.engine, &old);
        let staging = Staging::new(both.engine.shards());
        stage(&staging, &new);
        let shares = new.keys().any(|name| old.contains_key(name));
        prop_assert_eq!(staging.is_any_in(&both.engine.ledger, locked()), shares);
        let mut expected = new.clone();
        if merges {
            staging.merge(&both.engine.ledger, locked());
            old.iter().for_each(|(name, old)| {
                expected.entry(name.clone()).or_insert_with(|| old.clone());
            });
        } else {
            let remains = staging.install(&both.engine.ledger, locked());
            let keys: usize = remains.iter().map(|table| table.keys()).sum();
            prop_assert_eq!(keys, old.len());
        }
        prop_assert_eq!(content(&both.engine), expected);
    }
}

/// A small snapshot with every kind of frame and field.
fn small() -> (Keys, Vec<Vec<u8>>) {
    let keys = Keys::from([
        ((0, b"key".to_vec()), (b"value".to_vec(), None, 0)),
        ((0, b"edited".to_vec()), (b"value".to_vec(), Some(NOW), 1)),
        ((3, b"key".to_vec()), (vec![b'v'; 300], Some(-1), 2)),
        ((3, b"large".to_vec()), (vec![7; 65_536], Some(NOW + 1), 1)),
    ]);
    let from = Loaded::new(2, 1, DATABASES);
    filled(&from.engine, &keys);
    (keys, saved(&from.engine))
}

fn refusal(strings: &[Vec<u8>]) -> LoadError {
    loaded(&Loaded::new(2, 1, DATABASES), strings).expect_err("not what was saved")
}

#[test]
fn every_prefix_is_refused() {
    let (keys, strings) = small();
    let to = Loaded::new(2, 1, DATABASES);
    assert_eq!(loaded(&to, &strings), Ok(keys));
    for end in 0..strings.len() {
        assert!(loaded(&to, &strings[..end]).is_err(), "{end} strings");
        let lengths: Vec<usize> = match strings[end].len() {
            // The large value.
            long @ 60_000.. => [0, 1, 2, long / 2, long - 1].into(),
            short => (0..short).collect(),
        };
        for len in lengths {
            let mut cut = strings.clone();
            cut[end].truncate(len);
            assert!(loaded(&to, &cut).is_err(), "string {end} of {len} bytes");
            cut.truncate(end + 1);
            assert!(loaded(&to, &cut).is_err(), "the last string, {end}, of {len} bytes");
        }
        let mut without = strings.clone();
        without.remove(end);
        assert!(loaded(&to, &without).is_err(), "without string {end}");
        let mut twice = strings.clone();
        twice.insert(end, strings[end].clone());
        assert!(loaded(&to, &twice).is_err(), "string {end} twice");
    }
}

#[test]
fn every_changed_byte_is_refused() {
    let (_, strings) = small();
    let to = Loaded::new(2, 1, DATABASES);
    let mut flips = 0;
    for at in 0..strings.len() {
        let step = if strings[at].len() > 60_000 { 997 } else { 1 };
        for byte in (0..strings[at].len()).step_by(step) {
            for bit in [0x01, 0x80, 0xff] {
                let mut changed = strings.clone();
                changed[at][byte] ^= bit;
                assert!(loaded(&to, &changed).is_err(), "byte {byte} of string {at}");
                flips += 1;
            }
        }
    }
    assert!(flips > 1500);
}

/// A frame with the right checksum.
pub fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    frame.extend(xxh3_64(&frame).to_le_bytes());
    frame
}

/// Frames of a section between a header for two databases and an end with these counts.
fn section(frames: &[&[u8]], counts: [u8; 3]) -> Vec<Vec<u8>> {
    let [keys, expiring, bytes] = counts;
    let before = frames.len() as u8 + 1;
    let end = [4, 1, 1, before, 2, 1, keys, 3, 1, expiring, 4, 1, bytes];
    let mut section = vec![sealed(vec![1, 1, 1, 2, 0x83, 1, keys])];
    section.extend(frames.iter().map(|frame| sealed(frame.to_vec())));
    section.push(sealed(end.to_vec()));
    section
}

fn message(frames: &[&[u8]], counts: [u8; 3]) -> String {
    refusal(&section(frames, counts)).to_string()
}

#[test]
fn a_section_by_hand_is_read() {
    let to = Loaded::new(2, 1, 2);
    let keys = loaded(&to, &section(&[b"\x02\x01\0\0\x01k\x02vv\0\0\0\0"], [2, 0, 3]));
    let value = |value: &[u8]| (value.to_vec(), None, 0);
    let expected = [((1, b"k".to_vec()), value(b"vv")), ((1, vec![]), value(b""))];
    assert_eq!(keys, Ok(Keys::from(expected)), "four bytes besides key and value");
    let skipped: [&[u8]; 2] = [b"\x02\0\0\x04\x84\0\x90\0\x01k\x01v", b"\x99what may be skipped"];
    let keys = loaded(&to, &section(&skipped, [1, 0, 2]));
    assert_eq!(keys, Ok(Keys::from([((0, b"k".to_vec()), value(b"v"))])));
    let (stats, staging) =
        load_into(&to.engine, VERSION, &section(&[b"\x02\0\x85\0\x01k\x01?"], [1, 0, 2])).unwrap();
    assert_eq!((stats.keys, staging.keys()), (1, 0), "a value of a type that may be skipped");
}

#[test]
fn damage_is_refused_and_named() {
    let newer = loaded_as(&Loaded::new(1, 1, 1), 2, &[]).unwrap_err().to_string();
    let expected = "written by a newer midi (section version 2; this one reads up to 1)";
    assert_eq!(newer, expected);
    let older = loaded_as(&Loaded::new(1, 1, 1), 0, &[]).unwrap_err().to_string();
    assert_eq!(older, "section version 0 is unknown");
    let cases: [(&[u8], &str); 22] = [
        (b"\x05", "frame 2 (kind 5): frames of kind 5 are unknown here"),
        (b"\x01\x01\x01\x02", "frame 2 (header): a second header"),
        (b"\x02\x02", "frame 2 (entries): database 2 is beyond what the header says"),
        (b"\x02\0\x07\0\0\0", "frame 2 (entries): values of type 7 are unknown here"),
        (b"\x02\0\0\x02\x04\0\0\0", "frame 2 (entries): field 4 is unknown here"),
        (b"\x02\0\0\x02\x02\0\0\0", "frame 2 (entries): field 2 is malformed"),
        (b"\x02\0\0\x03\x03\x01\x04\0\0", "frame 2 (entries): field 3 is malformed"),
        (b"\x02\0\0\x01\x01\0\0", "frame 2 (entries): a length reaches beyond the frame"),
        (b"\x02\0\0\x03\x01\x01\0\0\0", "frame 2 (entries): field 1 is malformed"),
        (b"\x02\0\0\x0a\x01\x08\0\0\0\0\0\0\0\x80\0\0", "frame 2 (entries): field 1 is malformed"),
        (b"\x02\0\0\x02\x82\0\0\0", "frame 2 (entries): field 130 is malformed"),
        (b"\x02\0\0\x04\x84\0\x84\0\0\0", "frame 2 (entries): field 132 is out of order"),
        (b"\x02\0\0\x04\x85\0\x84\0\0\0", "frame 2 (entries): field 132 is out of order"),
        (b"\x02\0\0\0\x02k", "frame 2 (entries): a length reaches beyond the frame"),
        (b"\x02\0\0\0\x01k\x05v", "frame 2 (entries): a length reaches beyond the frame"),
        (b"\x02\0\0\0\x01k", "frame 2 (entries): a length reaches beyond the frame"),
        (b"\x02\0\0\0\x81\0k\0", "frame 2 (entries): a number is malformed"),
        (
            b"\x02\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01k",
            "frame 2 (entries): a length reaches beyond the frame",
        ),
        (
            b"\x02\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02k",
            "frame 2 (entries): a number is malformed",
        ),
        (
            b"\x02\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01k",
            "frame 2 (entries): a number is malformed",
        ),
        (
            b"\x02\x01\0\0\x01\xff\0\0\0\x01\xff\0",
            "frame 2 (entries): key \"\\xff\" of database 1 is there twice (shard 0 here)",
        ),
        (b"\x02\0\0\0\x01k\0", "frame 3 (end): the section should have 2 keys, and has 1"),
    ];
    for (frame, expected) in cases {
        let error = loaded(&Loaded::new(1, 1, 2), &section(&[frame], [2, 0, 2]));
        assert_eq!(error.unwrap_err().to_string(), expected, "{}", frame.escape_ascii());
    }
    let frame: &[u8] = b"\x02\0\0\0\x01k\0";
    assert!(message(&[frame], [1, 1, 1]).contains("1 keys with an expiry, and has 0"));
    assert!(message(&[frame], [1, 0, 2]).contains("2 bytes of keys and values, and has 1"));
    assert!(message(&[frame, frame], [2, 0, 2]).contains("key \"k\" of database 0 is there twice"));
}

#[test]
fn a_section_without_its_ends_is_refused() {
    let frame: &[u8] = b"\x02\0\0\0\x01k\0";
    let whole = section(&[frame], [1, 0, 1]);
    let said = |strings: &[Vec<u8>]| refusal(strings).to_string();
    assert_eq!(said(&[]), "frame 1 (empty): the section ends here, before its end frame");
    assert_eq!(said(&whole[1..]), "frame 1 (entries): the first frame is not a header");
    assert_eq!(said(&whole[..2]), "frame 3 (empty): the section ends here, before its end frame");
    let more = [&whole[..], &[vec![]]].concat();
    assert_eq!(said(&more), "frame 4 (empty): the section goes on after its end frame");
    let mut end = whole.clone();
    end[2] = sealed(vec![4, 1, 1, 2, 2, 1, 1, 4, 1, 1]);
    assert_eq!(said(&end), "frame 3 (end): field 3 is missing");
    end[2] = sealed(vec![4, 1, 1, 3, 2, 1, 1, 3, 1, 0, 4, 1, 1]);
    assert_eq!(
        said(&end),
        "frame 3 (end): the section should have 3 frames before this one, and has 2"
    );
    end[2] = sealed(vec![4, 1, 2, 2, 0]);
    assert_eq!(said(&end), "frame 3 (end): field 1 is malformed");
    let header = |content: &[u8]| said(&[&[sealed(content.to_vec())], &whole[1..]].concat());
    assert_eq!(header(&[1]), "frame 1 (header): field 1 is missing");
    assert_eq!(header(&[1, 1, 1, 2, 3, 0]), "frame 1 (header): field 3 is unknown here");
    assert_eq!(header(&[1, 1, 1, 2, 2, 1, 0]), "frame 1 (header): field 2 is malformed");
    assert_eq!(
        header(&[1, 1, 1, 17]),
        "frame 1 (header): the section needs 17 databases, and there are 16: raise `databases`"
    );
    let short = [&whole[..1], &[b"\x02234567".to_vec()], &whole[2..]].concat();
    assert_eq!(said(&short), "frame 2 (entries): too short for a frame");
    let empty = [&whole[..1], &[vec![]], &whole[2..]].concat();
    assert_eq!(said(&empty), "frame 2 (empty): too short for a frame");
}

/// An error that a worker finds ends a load, wherever the reader is.
#[test]
fn one_bad_frame_among_many_is_found_on_any_thread() {
    let key = |number: u32| (0, format!("key:{number}").into_bytes());
    let keys: Keys = (0..40_000).map(|number| (key(number), (vec![1; 100], None, 0))).collect();
    let from = Loaded::new(16, 1, DATABASES);
    filled(&from.engine, &keys);
    let strings = saved(&from.engine);
    assert!(strings.len() > 50, "{} strings", strings.len());
    for workers in 1..4 {
        let to = Loaded::new(64, workers, DATABASES).running();
        assert!(loaded(&to, &strings).unwrap() == keys);
        for bad in [1, 20, strings.len() - 2] {
            let mut changed = strings.clone();
            changed[bad][1000] ^= 1;
            let error = loaded(&to, &changed).unwrap_err().to_string();
            assert_eq!(error, format!("frame {} (entries): the checksum differs", bad + 1));
        }
        assert!(loaded(&to, &strings).unwrap() == keys, "and then again a good one");
    }
}

/// More than may wait for the workers: the reader does a part, or everything.
#[test]
fn a_load_goes_on_while_the_workers_have_enough() {
    let mut keys = Keys::new();
    for number in 0..30_u8 {
        keys.insert((0, vec![number]), (vec![number; 1 << 20], None, 0));
    }
    keys.insert((1, b"larger than all that may wait".to_vec()), (vec![1; 20 << 20], None, 0));
    let from = Loaded::new(4, 1, 2);
    filled(&from.engine, &keys);
    let strings = saved(&from.engine);
    assert!(strings.iter().map(Vec::len).sum::<usize>() > 2 * midi::limits::LOAD_WAITING_BYTES);
    assert!(loaded(&Loaded::new(4, 1, 2), &strings).unwrap() == keys);
    assert!(loaded(&Loaded::new(4, 2, 2).running(), &strings).unwrap() == keys);
}
