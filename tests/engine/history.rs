//! A history of commands whose replies can be checked one by one, whatever order they ran in.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use midi::command::{Reply, Transcript};
use parking_lot::Mutex;

/// An element of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Ok,
    Null,
    Integer(i64),
    Bulk(Vec<u8>),
    Array(usize),
}

/// Records a reply. No command here fails.
#[derive(Default)]
pub struct Record(pub Vec<Said>);

impl Reply for Record {
    fn simple(&mut self, text: &'static str) {
        assert_eq!(text, "OK");
        self.0.push(Said::Ok);
    }
    fn null(&mut self) {
        self.0.push(Said::Null);
    }
    fn integer(&mut self, number: i64) {
        self.0.push(Said::Integer(number));
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.0.push(Said::Bulk(bytes.to_vec()));
    }
    fn double(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }
    fn verbatim(&mut self, text: &[u8]) {
        self.bulk(text);
    }
    fn error(&mut self, text: &[u8]) {
        panic!("{}", String::from_utf8_lossy(text));
    }
    fn array(&mut self, len: usize) {
        self.0.push(Said::Array(len));
    }
    fn map(&mut self, len: usize) {
        self.array(2 * len);
    }
}

pub fn played(transcript: &Transcript) -> Vec<Said> {
    let mut record = Record::default();
    transcript.play(&mut record);
    record.0
}

fn bulk_number(said: &Said) -> u64 {
    match said {
        Said::Null => 0,
        Said::Bulk(digits) => std::str::from_utf8(digits).unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn bulk(number: u64) -> Said {
    if number == 0 { Said::Null } else { Said::Bulk(number.to_string().into_bytes()) }
}

pub fn line(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// xorshift64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The commands of all doors so far, to check replies against.
///
/// * `own:N` is written by door N alone, with 1, 2, 3, …: a reader gets at least the last value
///   finished before the read began, and at most the last one begun when it ended.
/// * `chain:N` is swapped for unique values: each comes back once.
/// * `a:N`, `b:N`, `c:N` are written together, so they read the same together.
/// * `lock:N` has one holder at a time.
pub struct History {
    begun: Vec<AtomicU64>,
    finished: Vec<AtomicU64>,
    unique: AtomicU64,
    given: Vec<Mutex<BTreeSet<u64>>>,
    taken: Vec<Mutex<BTreeSet<u64>>>,
    inside: Vec<AtomicUsize>,
}

const CHAINS: usize = 4;

/// A command of a history, and the facts to check its reply with.
#[derive(Debug)]
pub enum Step {
    Count(usize, u64),
    Look(usize, u64),
    Swap(usize, u64),
    Together,
    LookTogether,
    Lock(usize),
    Unlock,
}

impl History {
    pub fn new(doors: usize) -> Self {
        let numbers = || (0..doors).map(|_| AtomicU64::new(0)).collect();
        let sets = || (0..CHAINS).map(|_| Mutex::default()).collect();
        History {
            begun: numbers(),
            finished: numbers(),
            unique: AtomicU64::new(0),
            given: sets(),
            taken: sets(),
            inside: (0..CHAINS).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// The next command of door `door`; a door that holds a lock releases it.
    pub fn begin(
        &self,
        door: usize,
        random: &mut Random,
        has: Option<usize>,
    ) -> (Step, Vec<String>) {
        if let Some(lock) = has
            && random.below(2) == 0
        {
            self.inside[lock].fetch_sub(1, Ordering::AcqRel);
            return (Step::Unlock, line(&["del", &format!("lock:{lock}")]));
        }
        let which = random.below(CHAINS as u64) as usize;
        match random.below(8) {
            0 | 1 => {
                let number = self.begun[door].fetch_add(1, Ordering::AcqRel) + 1;
                let words = ["set", &format!("own:{door}"), &number.to_string()];
                (Step::Count(door, number), line(&words))
            }
            2 | 3 => {
                let other = random.below(self.begun.len() as u64) as usize;
                let least = self.finished[other].load(Ordering::Acquire);
                (Step::Look(other, least), line(&["get", &format!("own:{other}")]))
            }
            4 => {
                let number = self.unique.fetch_add(1, Ordering::Relaxed) + 1;
                self.given[which].lock().insert(number);
                let words = ["set", &format!("chain:{which}"), &number.to_string(), "get"];
                (Step::Swap(which, number), line(&words))
            }
            5 => {
                let number = self.unique.fetch_add(1, Ordering::Relaxed) + 1;
                let (a, b, c) = (format!("a:{which}"), format!("b:{which}"), format!("c:{which}"));
                let text = number.to_string();
                (Step::Together, line(&["mset", &a, &text, &b, &text, &c, &text]))
            }
            6 => {
                let (a, b, c) = (format!("a:{which}"), format!("b:{which}"), format!("c:{which}"));
                (Step::LookTogether, line(&["mget", &a, &b, &c]))
            }
            _ if has.is_some() => (Step::LookTogether, line(&["exists", "a:0", "b:0", "c:0"])),
            _ => (Step::Lock(which), line(&["set", &format!("lock:{which}"), "x", "nx"])),
        }
    }

    /// Checks the reply.
    pub fn end(&self, step: &Step, said: &[Said], has: &mut Option<usize>) {
        match (step, said) {
            (Step::Count(door, number), [Said::Ok]) => {
                self.finished[*door].store(*number, Ordering::Release);
            }
            (Step::Look(door, least), [said]) => {
                let (number, most) = (bulk_number(said), self.begun[*door].load(Ordering::Acquire));
                assert!((*least..=most).contains(&number), "{number} is not in {least}..={most}");
            }
            (Step::Swap(chain, number), [said]) => {
                let old = bulk_number(said);
                assert_ne!(old, *number);
                assert!(self.taken[*chain].lock().insert(old), "{old} came back twice");
            }
            (Step::Together, [Said::Ok]) => {}
            (Step::LookTogether, [Said::Array(3), a, b, c]) => {
                assert!(a == b && b == c, "{said:?}");
            }
            // Written together, so present together.
            (Step::LookTogether, [Said::Integer(0 | 3)]) => {}
            (Step::Lock(_), [Said::Null]) => {}
            (Step::Lock(lock), [Said::Ok]) => {
                assert_eq!(
                    self.inside[*lock].fetch_add(1, Ordering::AcqRel),
                    0,
                    "two have the lock"
                );
                *has = Some(*lock);
            }
            (Step::Unlock, [Said::Integer(1)]) => *has = None,
            other => panic!("{other:?}"),
        }
    }

    /// All have stopped: each key holds its last written value.
    pub fn close(&self, mut get: impl FnMut(&str) -> Said) {
        for door in 0..self.begun.len() {
            assert_eq!(get(&format!("own:{door}")), bulk(self.begun[door].load(Ordering::Acquire)));
        }
        for chain in 0..CHAINS {
            let mut taken = self.taken[chain].lock().clone();
            taken.insert(bulk_number(&get(&format!("chain:{chain}"))));
            taken.remove(&0);
            assert_eq!(taken, *self.given[chain].lock(), "each value is given once and taken once");
        }
    }
}
