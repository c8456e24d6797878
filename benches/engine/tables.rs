//! The worst insert while a table grows, bytes per key, and look-ups compared with hashbrown's.

use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::process::Command as Process;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use midi::command::find;
use midi::engine::Taking;
use midi::store::{Edit, Entry, EntryRef, KeyHasher, Now, Table, Value, block_bytes};

use super::keys::{KEYS, Key, Random, Zipf};
use super::{Figures, Sink, VALUE, call, engine, fill, locked, median, processor_time};

/// How long this thread was without a processor since the last call.
struct Away(Instant, Duration);

impl Away {
    fn new() -> Self {
        Away(Instant::now(), processor_time(libc::CLOCK_THREAD_CPUTIME_ID))
    }

    fn since(&mut self) -> Duration {
        let now = Away::new();
        let away = (now.0 - self.0).saturating_sub(now.1 - self.1);
        *self = now;
        away
    }
}

/// Times each of `count` inserts, and subtracts from slow ones the time that the thread
/// was without a processor.
fn time_inserts(name: &str, count: u64, mut insert: impl FnMut(u64)) {
    const SLOW: Duration = Duration::from_micros(20);
    let mut times = vec![1u32; count as usize];
    let (mut worst, mut own_worst, mut own_slow) = (Duration::ZERO, Duration::ZERO, 0u32);
    let mut away = Away::new();
    let begun = Instant::now();
    for number in 0..count {
        let start = Instant::now();
        insert(number);
        let mut time = start.elapsed();
        if time > SLOW || number % 1024 == 0 {
            worst = worst.max(time);
            time = time.saturating_sub(away.since());
            own_worst = own_worst.max(time);
            own_slow += u32::from(time > Duration::from_micros(100));
        }
        times[number as usize] = time.as_nanos() as u32;
    }
    let total = begun.elapsed();
    let mut at = |part: f64| {
        let place = ((count - 1) as f64 * part) as usize;
        f64::from(*times.select_nth_unstable(place).1) / 1000.0
    };
    let percentiles = [0.5, 0.99, 0.999, 0.9999, 0.99999].map(&mut at);
    println!(
        "  {name:<22}  {:>6.2}  {:>6.2}  {:>6.2}  {:>7.2}  {:>8.2}  {:>8.1}  {own_slow:>8}  \
         {:>6.1}  {:>8.1}  {:>6.2}",
        percentiles[0],
        percentiles[1],
        percentiles[2],
        percentiles[3],
        percentiles[4],
        own_worst.as_nanos() as f64 / 1000.0,
        f64::from(own_slow) / total.as_secs_f64(),
        worst.as_nanos() as f64 / 1000.0,
        count as f64 / total.as_secs_f64() / 1e6,
    );
}

pub fn growth(count: u64) {
    println!(
        "\nInserts while a keyspace of 1024 shards grows to {count} keys, values of 8 bytes; \
         microseconds"
    );
    println!(
        "  (without the time that the scheduler took the processor away; only 'elapsed' has it. \
         Page"
    );
    println!(
        "  faults are in all of it: the row without a table shows what the machine itself costs.)\n"
    );
    println!(
        "  {:<22}  {:>6}  {:>6}  {:>6}  {:>7}  {:>8}  {:>8}  {:>8}  {:>6}  {:>8}  {:>6}",
        "",
        "50%",
        "99%",
        "99.9%",
        "99.99%",
        "99.999%",
        "worst",
        "> 100 us",
        "per s",
        "elapsed",
        "M/s"
    );
    {
        let engine = engine(1, 1024);
        let set = find(b"set").expect("a command");
        time_inserts("midi, SET", count, |number| {
            let key = Key::new(number);
            let list: [&[u8]; 3] = [b"set", key.bytes(), b"8 bytes."];
            let call = call(&engine, set, &list);
            engine.attempt(engine.main_slot(locked()), &call, Taking::MAIN, &mut Sink(0));
        });
    }
    {
        // Allocator, kernel and other processes contribute this to all of these.
        let mut entries = Vec::with_capacity(count as usize);
        time_inserts("entries, no table", count, |number| {
            entries.push(Entry::new(Key::new(number).bytes(), Value::Inline(b"8 bytes."), None));
        });
    }
    {
        let mut shards = Own::new(1024);
        time_inserts("midi, tables alone", count, |number| {
            shards.insert(Key::new(number).bytes(), b"8 bytes.");
        });
    }
    {
        let mut shards = Hashbrown::new(1024);
        time_inserts("hashbrown, 1024 tables", count, |number| {
            shards.insert(Key::new(number).bytes(), b"8 bytes.");
        });
    }
}

/// The baseline for midi's tables: the same entries in hashbrown's.
struct Hashbrown {
    hasher: RandomState,
    shards: Vec<HashTable<Entry>>,
}

impl Hashbrown {
    fn new(shards: usize) -> Self {
        Hashbrown {
            hasher: RandomState::default(),
            shards: (0..shards).map(|_| HashTable::new()).collect(),
        }
    }

    #[inline]
    fn hash(hasher: &RandomState, key: &[u8]) -> u64 {
        let mut hash = hasher.build_hasher();
        hash.write(key);
        hash.finish()
    }

    /// Bits that hashbrown does not use: it takes low ones and the top seven.
    #[inline]
    fn shard(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        let hash = Self::hash(&self.hasher, key);
        let shard = self.shard(hash);
        // Looks for the key first, as midi's table does and SET has to.
        if self.shards[shard].find(hash, |entry| entry.key() == key).is_some() {
            return;
        }
        let entry = Entry::new(key, Value::Inline(value), None);
        self.shards[shard]
            .insert_unique(hash, entry, |entry| Self::hash(&self.hasher, entry.key()));
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Option<&Entry> {
        let hash = Self::hash(&self.hasher, key);
        self.shards[self.shard(hash)].find(hash, |entry| entry.key() == key)
    }

    fn bytes(&self) -> usize {
        self.shards.iter().map(HashTable::allocation_size).sum()
    }
}

/// midi's own tables, in as many shards.
struct Own {
    hasher: KeyHasher,
    shards: Vec<Table>,
}

impl Own {
    fn new(shards: usize) -> Self {
        Own {
            hasher: KeyHasher::default(),
            shards: (0..shards).map(|_| Table::default()).collect(),
        }
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        let hash = self.hasher.hash(key);
        let shard = hash.shard(self.shards.len() as u32 - 1) as usize;
        let (now, mut done) = (Now::at(0), midi::store::Done::default());
        Edit::new(&mut self.shards[shard], &self.hasher, hash, key, &now, &mut done)
            .set(Value::Inline(value), None);
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let hash = self.hasher.hash(key);
        let table = &self.shards[hash.shard(self.shards.len() as u32 - 1) as usize];
        table.find(hash, key).map(|found| table.entry(found))
    }

    /// Of the buckets; entries are the same in both.
    fn bytes(&self, entries: usize) -> usize {
        self.shards.iter().map(|table| table.census().bytes as usize).sum::<usize>() - entries
    }
}

fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.expect("a number") * 1024
}

/// Each size runs in its own process, so that none inherits another's memory.
pub fn bytes(counts: &[u64], figures: &mut Figures) {
    println!(
        "\nBytes per key above key and value, 1024 shards, the engine's fixed parts not counted"
    );
    println!(
        "  (books: as midi counts them, which is what jemalloc's size classes take; resident: what \
         the"
    );
    println!("  kernel says, everything included)\n");
    println!(
        "  {:>9}  {:>10}  {:>6}  {:>8}  {:>6}",
        "keys", "value size", "books", "resident", "table"
    );
    for &count in counts {
        for size in [8, 64, 200] {
            let child = Process::new(std::env::current_exe().expect("a path"))
                .args(["--bytes-of", &count.to_string(), &size.to_string()])
                .output()
                .expect("itself again");
            let row = String::from_utf8_lossy(&child.stdout);
            print!("{row}");
            let books = row.split_whitespace().nth(2).and_then(|field| field.parse().ok());
            figures.note(
                format!("overhead: {count} keys, {size}-byte values"),
                books.expect("the row's third column"),
            );
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        }
    }
}

pub fn bytes_child(count: &str, size: &str) {
    let (count, size): (u64, usize) =
        (count.parse().expect("a number"), size.parse().expect("a number"));
    let engine = engine(1, 1024);
    let before = resident_bytes();
    let value = vec![b'v'; size];
    fill(&engine, count, &value);
    let resident = resident_bytes() - before;
    let (mut content, mut entries) = (0, 0);
    for number in 0..count {
        let key = Key::new(number);
        content += key.bytes().len() + size;
        entries += block_bytes(3 + key.bytes().len() + size);
    }
    let per_key = |bytes: usize| bytes as f64 / count as f64;
    let books = engine.ledger.books.totals().bytes as usize;
    println!(
        "  {count:>9}  {size:>10}  {:>6.1}  {:>8.1}  {:>6.1}",
        per_key(books - content),
        per_key(resident - content),
        per_key(books - entries),
    );
    std::process::exit(0); // Nobody needs the memory back.
}

pub fn lookup(quick: bool) {
    let counts: &[u64] = if quick { &[KEYS] } else { &[KEYS, 10 * KEYS] };
    let rounds = if quick { 3 } else { 7 };
    println!(
        "\nLook-ups in tables alone, 1024 shards, values of 64 bytes; nanoseconds each, medians\n"
    );
    println!(
        "  {:>9}  {:<10}  {:>8}  {:>10}  {:>8}  bytes of table per key",
        "keys", "", "uniform", "zipf 0.99", "misses"
    );
    for &count in counts {
        let (mut own, mut other) = (Own::new(1024), Hashbrown::new(1024));
        let mut entries = 0;
        for number in 0..count {
            let key = Key::new(number);
            own.insert(key.bytes(), &VALUE);
            other.insert(key.bytes(), &VALUE);
            entries += block_bytes(3 + key.bytes().len() + VALUE.len());
        }
        let len = 1 << 20;
        let mut random = Random(3);
        let zipf = Zipf::new(count, 0.99);
        let uniform: Vec<Key> = (0..len).map(|_| Key::new(random.next() % count)).collect();
        let skewed: Vec<Key> = (0..len).map(|_| Key::new(zipf.draw(&mut random))).collect();
        let misses: Vec<Key> = (0..len).map(|_| Key::new(count + random.next() % count)).collect();
        let mut times: [[Vec<f64>; 3]; 2] = Default::default();
        for _ in 0..rounds {
            for (at, stream) in [&uniform, &skewed, &misses].into_iter().enumerate() {
                times[0][at].push(time_each(stream, |key| {
                    own.find(key).map_or(0, |entry| touched(&entry))
                }));
                times[1][at].push(time_each(stream, |key| other.find(key).map_or(0, touched)));
            }
        }
        let per_key = |bytes: usize| bytes as f64 / count as f64;
        let bytes = [per_key(own.bytes(entries)), per_key(other.bytes())];
        for ((name, times), bytes) in ["midi", "hashbrown"].into_iter().zip(times).zip(bytes) {
            let [uniform, skewed, misses] = times.map(median);
            println!(
                "  {count:>9}  {name:<10}  {uniform:>8.1}  {skewed:>10.1}  {misses:>8.1}  \
                 {bytes:.1}"
            );
        }
    }
}

#[inline]
fn touched(entry: &Entry) -> usize {
    entry.string().map_or(0, |value| usize::from(value[0]))
}

fn time_each(stream: &[Key], mut look: impl FnMut(&[u8]) -> usize) -> f64 {
    let start = Instant::now();
    let mut sum = 0;
    for key in stream {
        sum += look(key.bytes());
    }
    black_box(sum);
    start.elapsed().as_nanos() as f64 / stream.len() as f64
}
