use std::collections::{BTreeSet, HashMap};

use midi_test_common::cases;
use proptest::prelude::*;

use super::super::look::Look;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Set(u16, Option<UnixMs>),
    Remove(u16),
    Expire(u16, Option<UnixMs>),
    RemoveDue(UnixMs),
    Expect(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let expiry = || proptest::option::weighted(0.3, 1..1000i64);
    prop_oneof![
        6 => (any::<u16>(), expiry()).prop_map(|(k, at)| Step::Set(k, at)),
        4 => any::<u16>().prop_map(Step::Remove),
        1 => (any::<u16>(), expiry()).prop_map(|(k, at)| Step::Expire(k, at)),
        1 => (0..1000i64).prop_map(Step::RemoveDue),
        1 => any::<u16>().prop_map(Step::Expect),
    ]
}

struct Tested {
    table: Table,
    hasher: KeyHasher,
    model: HashMap<Vec<u8>, Option<UnixMs>>,
}

impl Tested {
    fn new() -> Self {
        Tested { table: Table::default(), hasher: KeyHasher::default(), model: HashMap::new() }
    }

    fn set(&mut self, key: &[u8], expire_at: Option<UnixMs>) {
        let hash = self.hasher.hash(key);
        match self.table.find(hash, key) {
            Some(found) => self.table.overwrite(found, Value::Inline(key), expire_at),
            None => {
                self.table.put(&self.hasher, hash, Entry::new(key, Value::Inline(key), expire_at))
            }
        }
        self.model.insert(key.to_vec(), expire_at);
    }

    fn remove(&mut self, key: &[u8]) {
        let hash = self.hasher.hash(key);
        let found = self.table.find(hash, key);
        assert_eq!(found.is_some(), self.model.remove(key).is_some());
        if let Some(found) = found {
            self.table.remove(&self.hasher, hash, found);
        }
    }

    fn expire(&mut self, key: &[u8], expire_at: Option<UnixMs>) {
        let hash = self.hasher.hash(key);
        if let Some(found) = self.table.find(hash, key) {
            self.table.set_expire_at(found, expire_at);
            self.model.insert(key.to_vec(), expire_at);
        }
    }

    fn remove_due(&mut self, now: UnixMs) {
        let mut position = 0;
        while !self.table.remove_due(&self.hasher, now, &mut position, &mut || false, &mut |_| ()) {
        }
        self.model.retain(|_, at| at.is_none_or(|at| at >= now));
        let first = self.model.values().flatten().min();
        assert!(self.table.next_due() <= *first.unwrap_or(&UnixMs::MAX));
        assert!(self.table.next_due() >= now);
    }

    fn apply(&mut self, step: &Step) {
        let name = |k: u16| format!("k{}", k % 3000).into_bytes();
        match *step {
            Step::Set(k, at) => self.set(&name(k), at),
            Step::Remove(k) => self.remove(&name(k)),
            Step::Expire(k, at) => self.expire(&name(k), at),
            Step::RemoveDue(now) => self.remove_due(now),
            Step::Expect(keys) => self.table.presize(keys.into()),
        }
    }

    fn check(&self) {
        let census = self.table.census();
        assert_eq!(census.keys as usize, self.model.len());
        assert_eq!(census.expiring as usize, self.model.values().flatten().count());
        let mut bytes = 0;
        for (key, &expire_at) in &self.model {
            let found = self.table.find(self.hasher.hash(key), key).expect("a key of the model");
            let entry = self.table.entry(found);
            assert_eq!(entry.value().bytes(), key);
            assert_eq!(entry.expire_at(), expire_at);
            bytes += entry.bytes() as i64;
        }
        let live: i64 = self.table.segments.iter().map(Segment::bytes).sum();
        assert_eq!(census.bytes, bytes + live);
        self.check_looks();
        assert_eq!(self.scan(true), self.scan(false));
        assert_eq!(self.scan(true).len(), self.model.len());
    }

    /// A look-up in steps says what [`Table::find`] does, or nothing.
    fn check_looks(&self) -> usize {
        let others = (0..3000).map(|n| format!("k{n}").into_bytes());
        let mut known = 0;
        for name in others.chain(self.model.keys().cloned()) {
            let hash = self.hasher.hash(&name);
            match self.table.home(hash).candidate(hash).look(&name) {
                Look::Entry(entry) => {
                    assert!(entry.key() == name && self.model.contains_key(&name))
                }
                Look::Nothing => assert!(!self.model.contains_key(&name)),
                Look::Unknown => continue,
            }
            known += 1;
        }
        known
    }

    fn scan(&self, whole_segments: bool) -> BTreeSet<Vec<u8>> {
        let mut seen = BTreeSet::new();
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            cursor = self.scan_step(from, whole_segments, &mut seen);
        }
        seen
    }

    fn scan_step(
        &self,
        from: u32,
        whole_segments: bool,
        seen: &mut BTreeSet<Vec<u8>>,
    ) -> Option<u32> {
        let mut visit =
            |entry: EntryRef<'_>| assert!(seen.insert(entry.key().to_vec()), "seen twice");
        if whole_segments {
            self.table.scan_segment(&self.hasher, from, &mut visit)
        } else {
            self.table.scan_bucket(&self.hasher, from, &mut visit)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(100),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn behaves_as_a_map(steps in proptest::collection::vec(step(), 0..2000)) {
        let mut tested = Tested::new();
        for step in &steps {
            tested.apply(step);
        }
        tested.check();
    }

    #[test]
    fn scan_sees_what_stays(
        stay in 0..2000usize,
        steps in proptest::collection::vec(step(), 1..4000),
        pace in 1..100usize,
        whole_segments: bool,
    ) {
        let mut tested = Tested::new();
        let stays: Vec<_> = (0..stay).map(|n| format!("stay{n}").into_bytes()).collect();
        for key in &stays {
            tested.set(key, None);
        }
        let mut seen = BTreeSet::new();
        let mut cursor = Some(0);
        for burst in steps.chunks(pace) {
            let Some(from) = cursor else { break };
            // A key that is removed and set again may be visited twice; those that stay may not,
            // and those are asserted on below.
            let mut visited = BTreeSet::new();
            cursor = tested.scan_step(from, whole_segments, &mut visited);
            for key in visited {
                prop_assert!(seen.insert(key.clone()) || !key.starts_with(b"stay"));
            }
            for step in burst {
                tested.apply(step);
            }
        }
        while let Some(from) = cursor {
            let mut visited = BTreeSet::new();
            cursor = tested.scan_step(from, whole_segments, &mut visited);
            seen.extend(visited);
        }
        for key in &stays {
            prop_assert!(seen.contains(key));
        }
    }
}

#[test]
fn grows_and_shrinks_back_to_nothing() {
    let mut tested = Tested::new();
    let keys: Vec<_> = (0..20_000).map(|n| format!("key:{n}").into_bytes()).collect();
    for key in &keys {
        tested.set(key, None);
    }
    tested.check();
    assert!(tested.table.directory.len() >= 64);
    for key in &keys[10..] {
        tested.remove(key);
    }
    tested.check();
    assert_eq!(tested.table.directory.len(), 1);
    for key in &keys[..10] {
        tested.remove(key);
    }
    assert_eq!(tested.table.census(), Census::default());
    assert_eq!(tested.table.segments.len(), 0);
}

#[test]
fn grows_at_once_to_the_expected_size_but_not_far_beyond_what_is_there() {
    let segments_with = |expected, keys: usize| {
        let mut tested = Tested::new();
        tested.table.presize(expected);
        for n in 0..keys {
            tested.set(format!("key:{n}").as_bytes(), None);
        }
        tested.check();
        let buckets: i64 = tested.table.segments.iter().map(Segment::bytes).sum();
        (tested.table.segments.len(), buckets)
    };
    assert_eq!(segments_with(4000, 8), (1, 64));
    assert_eq!(segments_with(4000, 9), (1, 32 * 64));
    assert_eq!(segments_with(100, 9), (1, 16 * 64));
    assert_eq!(segments_with(4000, 257), (16, 16 * 32 * 64));
    assert_eq!(segments_with(usize::MAX, 9), (1, 32 * 64));
    assert_eq!(segments_with(usize::MAX, 257), (32, 32 * 32 * 64));
    assert_eq!(segments_with(0, 9), (1, 2 * 64));
    assert_eq!(segments_with(0, 257), (2, 2 * 32 * 64));
}

/// Only keys whose hashes begin alike make it have more buckets than order values.
#[test]
fn a_segment_that_outgrew_its_order_is_scanned() {
    let hasher = KeyHasher::default();
    let hash = hasher.hash(b"k");
    let start = hash.order() & !0b11;
    let mut segment = Segment::new(start, 30, 5);
    let entry = Entry::new(b"k", Value::Inline(b"v"), None);
    let marks = SlotMarks::of_new(&entry);
    segment.insert(hash, (entry, marks));
    let (mut at, mut seen) = (u64::from(start), 0);
    while at < segment.end() {
        at = segment.visit_bucket(&hasher, at as u32, &mut |_| seen += 1);
    }
    assert_eq!((at, seen), (segment.end(), 1));
}

/// Where a key has passed a full bucket, or two have one tag, a look-up in steps may not know.
#[test]
fn most_keys_are_found_at_their_home() {
    let mut tested = Tested::new();
    assert_eq!(tested.check_looks(), 3000, "an empty table has none of them");
    for n in 0..20_000 {
        tested.set(format!("key:{n}").as_bytes(), None);
    }
    let known = tested.check_looks();
    assert!((17_000..23_000).contains(&known), "{known}");
}

#[test]
fn remains_are_freed_piece_by_piece() {
    let mut tested = Tested::new();
    for n in 0..1000 {
        tested.set(format!("key:{n}").as_bytes(), None);
    }
    let mut remains = std::mem::take(&mut tested.table).into_remains();
    assert_eq!(remains.keys(), 1000);
    let mut pieces = 0;
    let mut freed = 0;
    while !remains.is_empty() {
        pieces += 1;
        freed += remains.free_some();
    }
    assert!(pieces >= 4);
    assert_eq!(freed, 1000);
}
