//! The next key: uniform, Zipf or in sequence; and the values.

use std::str::FromStr;

use anyhow::{Result, bail};
use rand::rngs::{SmallRng, SysRng};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

use super::template::Fill;

/// How key numbers are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every key equally often.
    Uniform,
    /// The n-th most popular key, with a weight of 1/n^s.
    Zipf(f64),
    /// One after the other from 0, starting again after the last.
    Sequential,
}

impl FromStr for Distribution {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "uniform" => Ok(Distribution::Uniform),
            None if text == "sequential" => Ok(Distribution::Sequential),
            None if text == "zipf" => Ok(Distribution::Zipf(0.99)),
            Some(("zipf", exponent)) => Ok(Distribution::Zipf(exponent.parse()?)),
            _ => bail!("{text}: uniform, sequential, zipf or zipf:EXPONENT"),
        }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Sequential => f.write_str("sequential"),
            Distribution::Zipf(exponent) => write!(f, "zipf:{exponent}"),
        }
    }
}

/// Drawn beforehand: a Zipf draw costs more than sending the command.
const ZIPF_DRAWS: usize = 1 << 20;

/// Values start at any place in this many random bytes.
const POOL_BYTES: usize = 1 << 20;

/// A share of the key space: the numbers congruent to `index` modulo `of`.
#[derive(Clone, Copy)]
pub struct Share {
    /// Its index.
    pub index: u64,
    /// The number of shares.
    pub of: u64,
}

impl Share {
    /// The whole key space.
    pub const WHOLE: Share = Share { index: 0, of: 1 };
}

/// Draws keys and values for one thread.
pub struct Source {
    random: SmallRng,
    keys: u64,
    draw: Draw,
    connection: usize,
    share: Share,
    pool: Vec<u8>,
    value_bytes: (usize, usize),
}

enum Draw {
    Uniform,
    /// Key numbers, and the position of the next.
    Zipf(Vec<u32>, usize),
    Sequential {
        /// For each connection: how many keys of its share come before its next one, and how many
        /// connections divide that share.
        next: Vec<Share>,
    },
}

impl Source {
    /// Draws from keys 0 to `keys` - 1. In sequence, each connection has its part of its server's
    /// keys, given by `sequences`.
    ///
    /// # Errors
    /// An exponent that gives no distribution.
    pub fn new(
        distribution: Distribution,
        keys: u64,
        value_bytes: (usize, usize),
        sequences: Vec<Share>,
    ) -> Result<Self> {
        let mut random = SmallRng::try_from_rng(&mut SysRng)?;
        let draw = match distribution {
            Distribution::Uniform => Draw::Uniform,
            Distribution::Zipf(exponent) => Draw::Zipf(zipf_draws(keys, exponent, &mut random)?, 0),
            Distribution::Sequential => Draw::Sequential { next: sequences },
        };
        // Letters only: easy to read, and no server stores them as a number.
        let pool =
            (0..POOL_BYTES + value_bytes.1).map(|_| random.random_range(b'a'..=b'z')).collect();
        Ok(Source { random, keys, draw, connection: 0, share: Share::WHOLE, pool, value_bytes })
    }

    /// The following keys are for this connection, which has this share of them.
    #[inline]
    pub fn keep_to(&mut self, connection: usize, share: Share) {
        self.connection = connection;
        self.share = share;
    }

    /// A number from 0 to `below` - 1.
    pub fn below(&mut self, below: u32) -> u32 {
        self.random.random_range(0..below)
    }
}

impl Fill for Source {
    #[inline]
    fn key(&mut self) -> u64 {
        let share = self.share;
        let key = match &mut self.draw {
            Draw::Uniform => self.random.random_range(0..self.keys),
            Draw::Zipf(draws, at) => {
                *at = (*at + 1) % draws.len();
                u64::from(draws[*at])
            }
            Draw::Sequential { next } => {
                let next = &mut next[self.connection];
                let key = next.index * share.of % self.keys;
                next.index += next.of;
                key
            }
        };
        if share.of == 1 { key } else { key - key % share.of + share.index }
    }

    #[inline]
    fn value(&mut self) -> &[u8] {
        let (least, most) = self.value_bytes;
        let length = if least == most { least } else { self.random.random_range(least..=most) };
        let start = self.random.random_range(0..POOL_BYTES);
        &self.pool[start..start + length]
    }
}

/// Popular keys are scattered over the key space, as in practice: rank times a large prime,
/// modulo the number of keys.
fn zipf_draws(keys: u64, exponent: f64, random: &mut SmallRng) -> Result<Vec<u32>> {
    const PRIME: u64 = 2_654_435_761;
    if keys > u64::from(u32::MAX) {
        bail!("Zipf draws are for fewer than 2^32 keys");
    }
    let zipf = Zipf::new(keys as f64, exponent)?;
    let scattered = |rank: f64| ((rank as u64 - 1) * PRIME % keys) as u32;
    Ok((0..ZIPF_DRAWS).map(|_| scattered(zipf.sample(random))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(distribution: Distribution, sequences: &[(u64, u64)]) -> Source {
        let sequences = sequences.iter().map(|&(index, of)| Share { index, of }).collect();
        Source::new(distribution, 1000, (3, 5), sequences).expect("a source")
    }

    #[test]
    fn keys_are_in_range_and_values_in_size() {
        for distribution in
            [Distribution::Uniform, Distribution::Zipf(0.99), Distribution::Sequential]
        {
            let mut source = source(distribution, &[(0, 1)]);
            let mut seen = vec![0; 1000];
            for _ in 0..100_000 {
                seen[source.key() as usize] += 1;
                assert!((3..=5).contains(&source.value().len()));
            }
            let most = *seen.iter().max().expect("some");
            match distribution {
                Distribution::Sequential => assert_eq!(most, 100),
                Distribution::Uniform => assert!(most < 200, "{most}"),
                Distribution::Zipf(_) => assert!(most > 8000, "{most}"),
            }
        }
    }

    #[test]
    fn connections_share_a_sequence() {
        // Two shares; three connections have the first one's keys, one the second's.
        let mut source = source(Distribution::Sequential, &[(0, 3), (1, 3), (2, 3), (0, 1)]);
        let mut all: Vec<u64> = Vec::new();
        for (connection, index, count) in [(0, 0, 167), (3, 1, 500), (1, 0, 167), (2, 0, 166)] {
            source.keep_to(connection, Share { index, of: 2 });
            all.extend((0..count).map(|_| source.key()));
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000));
    }

    #[test]
    fn a_share_of_the_keys() {
        let mut source = source(Distribution::Uniform, &[]);
        source.keep_to(0, Share { index: 1, of: 2 });
        assert!((0..1000).all(|_| source.key() % 2 == 1));
    }

    #[test]
    fn distributions_by_name() {
        for name in ["uniform", "sequential", "zipf:0.99", "zipf:1.2"] {
            assert_eq!(name.parse::<Distribution>().expect("a name").to_string(), name);
        }
        assert!("pareto".parse::<Distribution>().is_err());
        assert!("zipf:x".parse::<Distribution>().is_err());
    }
}
