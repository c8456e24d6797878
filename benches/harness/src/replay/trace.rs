//! Requests to a cache: made by a rule, or read from a file. The same seed makes the same requests.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

/// One request: the key's number, and the bytes of its value, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key, which is written as a hexadecimal number.
    pub key: u64,
    /// The length of its value.
    pub value_bytes: usize,
}

/// A rule that makes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Popularity by Zipf's law, and it stays as it is.
    Zipf,
    /// The same, and of ten requests three are for keys that nobody asks for again.
    OneHit,
    /// Most requests are for a tenth of the keys, which is always another one; inside and outside
    /// of it all keys are alike.
    Drift,
    /// As [`Shape::Zipf`], with values of many sizes.
    Mixed,
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 4] = [Shape::Zipf, Shape::OneHit, Shape::Drift, Shape::Mixed];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Zipf => "zipf",
            Shape::OneHit => "one-hit",
            Shape::Drift => "drift",
            Shape::Mixed => "mixed",
        }
    }
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A rule.
    Made(Shape),
    /// A file.
    File(std::path::PathBuf),
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = Shape::ALL.into_iter().find(|shape| shape.name() == text);
        Ok(shape.map_or_else(|| Source::File(text.into()), Source::Made))
    }
}

/// The exponent of Zipf's law.
const EXPONENT: f64 = 0.99;
/// Of [`ONCE`]`.1` requests of [`Shape::OneHit`], so many are for keys of their own.
const ONCE: (u32, u32) = (3, 10);
/// Of [`HOT`]`.1` requests of [`Shape::Drift`], so many are for the hot set.
const HOT: (u32, u32) = (8, 10);
/// The hot set's part of the keys: one of so many.
const HOT_PART: u64 = 10;
/// Requests until the hot set loses a key and gets another: on average 16 requests for a key while
/// it is hot.
const DRIFT_EVERY: u64 = 20;
/// The smallest value of [`Shape::Mixed`], and the largest over it.
const MIXED_BYTES: (f64, f64) = (50.0, 80.0);

/// Makes requests without end.
pub struct Made {
    shape: Shape,
    random: SmallRng,
    ranks: Zipf<f64>,
    keys: u64,
    value_bytes: usize,
    drawn: u64,
}

impl Made {
    /// Of so many keys, beside those that are asked for once.
    ///
    /// # Errors
    /// No keys.
    pub fn new(shape: Shape, keys: u64, value_bytes: usize, seed: u64) -> Result<Self> {
        ensure!(keys > 0, "at least one key");
        let (random, ranks) = (SmallRng::seed_from_u64(seed), Zipf::new(keys as f64, EXPONENT)?);
        Ok(Made { shape, random, ranks, keys, value_bytes, drawn: 0 })
    }

    /// Keys in the order of their popularity at the beginning.
    fn number(&mut self) -> u64 {
        let drawn = self.drawn;
        self.drawn += 1;
        if self.shape == Shape::OneHit && self.random.random_ratio(ONCE.0, ONCE.1) {
            return self.keys + drawn;
        }
        if self.shape == Shape::Drift {
            let is_hot = self.random.random_ratio(HOT.0, HOT.1);
            let hot_keys = (self.keys / HOT_PART).max(1);
            let of = if is_hot { hot_keys } else { self.keys };
            return (drawn / DRIFT_EVERY + self.random.random_range(0..of)) % self.keys;
        }
        self.ranks.sample(&mut self.random) as u64 - 1
    }
}

impl Iterator for Made {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let key = scrambled(self.number());
        let value_bytes = match self.shape {
            Shape::Mixed => mixed_bytes(key),
            _ => self.value_bytes,
        };
        Some(Request { key, value_bytes })
    }
}

/// Another number for each number, so that a key says nothing about its popularity.
fn scrambled(number: u64) -> u64 {
    // Odd factors and shifts can be undone: no two numbers become one.
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Half of the values have less than 90 bytes, one in ten more than 1,200; the mean is 400.
fn mixed_bytes(key: u64) -> usize {
    let part = (scrambled(key) >> 11) as f64 / (1_u64 << 53) as f64;
    (MIXED_BYTES.0 * MIXED_BYTES.1.powf(part.powi(3))) as usize
}

/// The keys of a file: one on each line, or on each line the first number of several keys, how many
/// there are, and two numbers more, as in the traces of the ARC paper.
///
/// # Errors
/// It cannot be read; it has no keys.
pub fn read(path: &Path) -> Result<Vec<u64>> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8_lossy(&text);
    let keys = parse(&text).with_context(|| path.display().to_string())?;
    ensure!(!keys.is_empty(), "{}: no keys", path.display());
    Ok(keys)
}

fn parse(text: &str) -> Result<Vec<u64>> {
    let mut keys = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_ascii_whitespace();
        match [words.next(), words.next(), words.next(), words.next(), words.next()] {
            [Some(start), Some(count), Some(_), Some(_), None] => {
                let (start, count): (u64, u64) = (start.parse()?, count.parse()?);
                keys.extend((start..start + count).map(scrambled));
            }
            [Some(key), None, ..] => keys.push(named(key)),
            _ => bail!("{line:?}: a key, or START COUNT X X"),
        }
    }
    Ok(keys)
}

/// The number of a key that may be any word.
fn named(word: &str) -> u64 {
    let number = word.parse::<u64>().map(scrambled);
    number.unwrap_or_else(|_| BuildHasherDefault::<DefaultHasher>::default().hash_one(word))
}

/// The different keys, in the order in which they first come.
pub fn distinct(keys: &[u64]) -> Vec<u64> {
    let mut seen = HashSet::new();
    keys.iter().copied().filter(|key| seen.insert(*key)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn some(shape: Shape, keys: u64, count: usize) -> Vec<Request> {
        Made::new(shape, keys, 200, 7).expect("a trace").take(count).collect()
    }

    fn counts(requests: &[Request]) -> HashMap<u64, usize> {
        let mut counts = HashMap::new();
        requests.iter().for_each(|request| *counts.entry(request.key).or_insert(0) += 1);
        counts
    }

    #[test]
    fn a_seed_makes_the_same_requests() {
        for shape in Shape::ALL {
            assert_eq!(some(shape, 1000, 5000), some(shape, 1000, 5000), "{shape:?}");
            let other: Vec<_> =
                Made::new(shape, 1000, 200, 8).expect("a trace").take(5000).collect();
            assert_ne!(some(shape, 1000, 5000), other, "{shape:?}");
        }
    }

    #[test]
    fn popularity_by_zipfs_law_has_nothing_to_do_with_the_keys() {
        let counts = counts(&some(Shape::Zipf, 1000, 100_000));
        assert!(counts.len() <= 1000);
        // 1/H of all requests, where H is the sum of 1/n^0.99: 0.130.
        let most = counts[&scrambled(0)];
        assert!((12_000..14_000).contains(&most), "{most}");
        assert!(counts.values().all(|&count| count <= most));
        let mut by_key: Vec<_> = counts.into_iter().collect();
        by_key.sort_unstable();
        let half: usize = by_key.iter().filter(|(key, _)| key >> 63 == 0).map(|(_, n)| n).sum();
        assert!((25_000..75_000).contains(&half), "{half}");
    }

    #[test]
    fn three_of_ten_requests_are_for_a_key_of_their_own() {
        let requests = some(Shape::OneHit, 1000, 100_000);
        let popular: HashSet<u64> = (0..1000).map(scrambled).collect();
        let mut once: Vec<u64> = requests
            .iter()
            .map(|request| request.key)
            .filter(|key| !popular.contains(key))
            .collect();
        let all = once.len();
        assert!((29_000..31_000).contains(&all), "{all}");
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all);
    }

    #[test]
    fn the_hot_set_is_always_another_one() {
        let requests = some(Shape::Drift, 1000, 20_000);
        let hot = |requests: &[Request]| -> HashSet<u64> {
            let counts = counts(requests);
            counts.into_iter().filter(|(_, count)| *count >= 6).map(|(key, _)| key).collect()
        };
        // 100 keys are hot, and 50 others 1000 requests later.
        let (first, next, last) =
            (hot(&requests[..1000]), hot(&requests[1000..2000]), hot(&requests[10_000..11_000]));
        for set in [&first, &next, &last] {
            assert!((60..150).contains(&set.len()), "{}", set.len());
        }
        let kept = first.intersection(&next).count();
        assert!((20..100).contains(&kept), "{kept}");
        assert!(first.intersection(&last).count() < 10);
    }

    #[test]
    fn a_key_always_has_the_same_size() {
        let mut sizes = HashMap::new();
        for request in some(Shape::Mixed, 10_000, 100_000) {
            assert!((50..=4000).contains(&request.value_bytes));
            let size = *sizes.entry(request.key).or_insert(request.value_bytes);
            assert_eq!(size, request.value_bytes);
        }
        let mean = sizes.values().sum::<usize>() / sizes.len();
        assert!((370..425).contains(&mean), "{mean}");
        assert!(some(Shape::Zipf, 10, 10).iter().all(|request| request.value_bytes == 200));
    }

    #[test]
    fn files_of_either_form() {
        assert_eq!(parse("5 3 0 0\n9 1 0 1\n").expect("ARC"), [5, 6, 7, 9].map(scrambled));
        let keys = parse("5\nuser:1\n\n5\n").expect("keys");
        assert_eq!((keys.len(), keys[0], keys[2]), (3, scrambled(5), scrambled(5)));
        assert_eq!(distinct(&keys), keys[..2]);
        assert!(parse("1 2\n").is_err());
        assert!(parse("a 1 0 0\n").is_err());
    }

    #[test]
    fn sources_by_name() {
        for shape in Shape::ALL {
            assert_eq!(shape.name().parse(), Ok(Source::Made(shape)));
        }
        assert_eq!("a/b.lis".parse(), Ok(Source::File("a/b.lis".into())));
    }
}
