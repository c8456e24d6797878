//! What stands for the host of an engine under test: its log, its clients, and who reads the log.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::command::record::{Record, Records};
use crate::command::slot::slot_of;
use crate::command::{Args, Cluster, Keep, Reply, Transcript};
use crate::engine::call::{Author, Call, Taking};
use crate::engine::jobs::{JobDoor, JobOwner, JobReply};
use crate::engine::ledger::Account;
use crate::engine::request::PortClient;
use crate::engine::testing::number_of;
use crate::engine::{AllHeld, Config, Engine, Gates, HostLog, Locked, Logged, Settings};
use crate::store::{Census, Entry, Fields, Now, SharedValue, Traits, Type, UnixMs, Value};
use crate::sync::LOCKED;

/// Values of this many bytes are shared buffers.
pub(super) const LARGE: usize = 64;

pub(super) const WORKERS: usize = 2;
pub(super) const SHARDS: usize = 4;
pub(super) const DATABASES: u32 = 3;

thread_local! {
    pub(super) static CLOCK: Cell<UnixMs> = const { Cell::new(1000) };
    /// Whether what the main thread does is logged at once.
    pub(super) static MAY_LOG: Cell<bool> = const { Cell::new(true) };
}

/// All keys: value, expiry and what is known of the value, without the number of its last change.
pub(super) type Keys = BTreeMap<(u32, Vec<u8>), (Stored, Option<UnixMs>, Traits)>;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    String(Vec<u8>),
    /// Values and expiries by field.
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, Option<UnixMs>)>),
}

/// What the host has taken for its log.
#[derive(Default)]
pub(super) struct Host {
    pub(super) texts: Mutex<Vec<Vec<u8>>>,
    pub(super) refuses: AtomicBool,
}

pub(super) fn new_engine(gates: Gates) -> Engine {
    let config = Config {
        workers: WORKERS,
        shards: SHARDS,
        databases: DATABASES,
        cluster: Cluster::ManyDatabases,
        safemode: false,
        clock: || CLOCK.get(),
    };
    let settings = Settings::default();
    settings.keep_bytes.store(LARGE, Ordering::Relaxed);
    let engine = Engine::new(config, settings, Box::new(|| ())).expect("a few descriptors");
    engine.ledger.set_gates(LOCKED, gates);
    engine
}

impl HostLog for Arc<Host> {
    fn may_log(&self, _: Locked<'_>) -> bool {
        MAY_LOG.get()
    }

    fn write(&self, _: Locked<'_>, logged: Logged<'_>) -> bool {
        let takes = !self.refuses.load(Ordering::Relaxed);
        if takes {
            self.texts.lock().push(logged.text().into_owned());
        }
        takes
    }
}

pub(super) fn logging_engine(host: &Arc<Host>) -> Engine {
    let engine = new_engine(Gates::AOF_ON);
    engine.context().outside.set_log(Box::new(Arc::clone(host)));
    engine
}

pub(super) fn replay(engine: &Engine, text: &[u8]) {
    let whole = engine.ledger.log.gathered.lock().add(text).expect("a part that follows");
    let Some(text) = &whole else { return };
    let (slot, mut db) = (engine.main_slot(LOCKED), 0);
    for record in Records::new(text).expect("a version") {
        let record = record.expect("a record");
        if let Record::Select { db: next } = record {
            db = next;
        }
        if engine.replay_of_all(LOCKED, db, record).expect("a database") {
            continue;
        }
        if let Record::BitOp { args } = record {
            engine.replay_bit_op(LOCKED, db, args).expect("it was done once");
            continue;
        }
        let Some(replayed) = engine.to_replay(db, record).expect("a database") else { continue };
        assert_eq!(engine.replay(slot, &[replayed], Taking::Wait(LOCKED)), (1, None));
    }
}

pub(super) fn replayed(base: &Keys, texts: &[Vec<u8>]) -> Engine {
    let engine = new_engine(Gates::LOADING);
    fill(&engine, base);
    texts.iter().for_each(|text| replay(&engine, text));
    engine
}

pub(super) fn fill(engine: &Engine, keys: &Keys) {
    for ((db, key), (value, expire_at, traits)) in keys {
        let at = engine.shards().key_at(*db, key);
        let mut held = engine.shards().take_waiting(LOCKED, at.shard);
        let account = Account::new(engine.main_slot(LOCKED), false);
        engine.ledger.edit_key(account, &mut held, at, key, &Now::at(UnixMs::MIN), |edit| {
            let with_value = |value: &Vec<u8>, lend: &mut dyn FnMut(Value<'_>)| {
                let shared = SharedValue::new(value.clone());
                let is_large = value.len() >= LARGE;
                lend(if is_large { Value::Shared(&shared) } else { Value::Inline(value) });
            };
            match value {
                Stored::String(value) => with_value(value, &mut |value| {
                    edit.put(Entry::new(key, value, *expire_at));
                    edit.set_traits(*traits);
                }),
                Stored::Hash(fields) => {
                    for (field, (value, expire_at)) in fields {
                        with_value(value, &mut |value| {
                            assert_eq!(edit.set_field(field, value, *expire_at), Ok(true));
                        });
                    }
                    if expire_at.is_some() {
                        edit.expire_at(*expire_at);
                    }
                }
            }
        });
        engine.shards().let_go(at.shard, held);
    }
}

/// All keys of the engine. The error says which of its counters or due times is wrong: a panic
/// while tokens are held would end the process.
pub(super) fn content(engine: &Engine, all: &AllHeld<'_>) -> Result<Keys, String> {
    let (mut keys, mut bytes) = (Keys::new(), 0);
    let mut counted: BTreeMap<u32, Census> = BTreeMap::new();
    let check = |so, what: &str| if so { Ok(()) } else { Err(what.to_owned()) };
    for shard in 0..engine.shards().count() {
        let store = all.store(shard).ok_or("no shard")?;
        check(!store.log.is_changed, "a run has not been published")?;
        for db in store.databases() {
            let table = store.table(db).ok_or("no table")?;
            check(table.gained() == Census::default(), "something is left to be counted")?;
            *counted.entry(db).or_default() += table.census();
            for entry in table.entries() {
                let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
                check(
                    expire_at.is_none_or(|at| at >= engine.shards().due(shard)),
                    "nobody looks for it",
                )?;
                let content = match entry.value_type() {
                    Type::Hash => {
                        let fields = Fields::of(entry).map_err(|_| "no hash")?;
                        let pairs = fields
                            .iter()
                            .map(|it| (it.name.into(), (it.value.into(), it.expire_at)));
                        let map: BTreeMap<Vec<u8>, (Vec<u8>, Option<UnixMs>)> = pairs.collect();
                        let due = |at: UnixMs| at >= engine.shards().due(shard);
                        let mut times = map.values().filter_map(|(_, at)| *at);
                        check(times.all(due), "nobody looks for a field")?;
                        check(map.len() == fields.len() && !map.is_empty(), "number of fields")?;
                        let found = |name: &Vec<u8>| fields.find(name).map(|it| it.value.to_vec());
                        check(map.iter().all(|(k, v)| found(k).as_ref() == Some(&v.0)), "a field")?;
                        (Stored::Hash(map), expire_at, Traits::default())
                    }
                    _ => {
                        let value = entry.string().map_err(|_| "not a string")?;
                        let traits = Traits { number: 0, ..value.traits() };
                        (Stored::String(value.bytes().to_vec()), expire_at, traits)
                    }
                };
                check(keys.insert((db, key), content).is_none(), "a key twice")?;
            }
        }
    }
    for db in 0..DATABASES {
        let (books, there) =
            (engine.ledger.books.census(db), counted.get(&db).copied().unwrap_or_default());
        check((books.keys, books.expiring) == (there.keys, there.expiring), "count of keys")?;
        bytes += there.bytes;
    }
    check(engine.ledger.books.totals().bytes == bytes, "count of bytes")?;
    let mut of_slots: BTreeMap<(u32, u16), u64> = BTreeMap::new();
    keys.keys().for_each(|(db, key)| *of_slots.entry((*db, slot_of(key))).or_default() += 1);
    check(engine.ledger.slots.all() == of_slots, "count of the slots' keys")?;
    Ok(keys)
}

pub(super) fn content_of(engine: &Engine) -> Keys {
    let all = engine.shards().hold_all(LOCKED);
    let keys = content(engine, &all);
    all.release();
    keys.expect("right counters")
}

/// Checks that both are the same; names the keys that are not.
pub(super) fn assert_same(a: &Keys, b: &Keys, what: &str) {
    let differs = |name: &&(u32, Vec<u8>)| a.get(*name) != b.get(*name);
    let show = |keys: &Keys, name: &(u32, Vec<u8>)| {
        keys.get(name).map_or("none".to_owned(), |(value, at, traits)| {
            let text = match value {
                Stored::String(value) => {
                    let start = value[..value.len().min(20)].escape_ascii();
                    format!("{start} ({} bytes)", value.len())
                }
                Stored::Hash(fields) => {
                    let field = |(name, (value, at)): (&Vec<u8>, &(Vec<u8>, Option<UnixMs>))| {
                        format!("{}: {} bytes {at:?}", name.escape_ascii(), value.len())
                    };
                    format!("{:?}", fields.iter().map(field).collect::<Vec<_>>())
                }
            };
            format!("{text} {at:?} {traits:?}")
        })
    };
    let names: BTreeSet<_> = a.keys().chain(b.keys()).filter(differs).collect();
    let different = names.iter().map(|name| {
        let key = name.1.escape_ascii();
        format!("{} {key}: {}, {}", name.0, show(a, name), show(b, name))
    });
    let different: Vec<String> = different.collect();
    assert!(different.is_empty(), "{what}: {different:#?}");
}

/// A command line.
#[derive(Clone)]
pub(super) struct Line(pub(super) Vec<Vec<u8>>);

impl std::fmt::Debug for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{}\"", self.0.join(&b' ').escape_ascii())
    }
}

/// Arguments that may be kept, as the doors' are.
pub(super) struct Keeper<'a>(pub(super) &'a Line);

impl Keep for Keeper<'_> {
    fn keep(&self, index: usize) -> Option<SharedValue> {
        Some(SharedValue::new(self.0.0[index].clone()))
    }
}

pub(super) fn with_call<R>(
    engine: &Engine,
    db: u32,
    line: &Line,
    with: impl FnOnce(&Call<'_>) -> R,
) -> R {
    let (words, keeper): (Vec<&[u8]>, _) =
        (line.0.iter().map(Vec::as_slice).collect(), Keeper(line));
    let limits = engine.settings().limits(usize::MAX);
    with(&Call {
        command: number_of(words[0]),
        args: Args::with_keeper(&words, &keeper),
        db,
        now: Now::at(CLOCK.get()),
        limits,
        prefix: "",
        author: Author::Nobody,
    })
}

/// A client: where the positions go that its job's reply waits for.
#[derive(Clone)]
pub(super) struct Client(pub(super) Arc<Mutex<Answer>>, JobDoor);

impl Client {
    pub(super) fn of(door: JobDoor) -> Self {
        Client(Arc::default(), door)
    }
}

#[derive(Default)]
pub(super) struct Answer {
    pub(super) transcript: Transcript,
    pub(super) waits_for: u64,
    /// The last position that the job has taken.
    pub(super) must_wait_for: u64,
    pub(super) is_finished: bool,
}

impl PortClient for Client {
    fn is_gone(&self) -> bool {
        false
    }

    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        (JobOwner { db, door: self.1, ..JobOwner::default() }, Box::new(JobAnswer::of(*self)))
    }
}

pub(super) struct JobAnswer {
    client: Client,
    transcript: Transcript,
}

impl JobAnswer {
    fn of(client: Client) -> Self {
        JobAnswer { client, transcript: Transcript::default() }
    }
}

impl JobReply for JobAnswer {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.transcript
    }

    fn close(&mut self) {}

    fn waits_for(&mut self, position: u64) {
        let mut answer = self.client.0.lock();
        answer.waits_for = answer.waits_for.max(position);
    }

    fn finish(self: Box<Self>) {
        let mut answer = self.client.0.lock();
        (answer.transcript, answer.is_finished) = (self.transcript, true);
    }
}
