//! Random programs on hashes: few keys and fields, values that make a hash large, hashes of more
//! fields than a small one may have, and time that passes.

use proptest::prelude::*;

use super::model::{KEEP_BYTES, START};

#[derive(Clone, Debug)]
pub enum Step {
    Command(Vec<Vec<u8>>),
    /// Time passes.
    Later(i64),
    /// A whole HSCAN, with commands between its calls.
    Scan(Vec<u8>, usize, Vec<Vec<Vec<u8>>>),
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    (0..4u32).prop_map(|number| format!("key:{number}").into_bytes())
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        30 => (0..10u32).prop_map(|number| format!("f{number}").into_bytes()),
        6 => (0..800u32).prop_map(|number| format!("many:{number}").into_bytes()),
        1 => Just(Vec::new()),
        1 => Just(vec![0xff; 255]),
        1 => Just(b"\0\r\n".repeat(100)),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        20 => 0..20usize,
        1 => 254..258usize,
        1 => Just(KEEP_BYTES),
    ];
    prop_oneof![
        3 => (0..100i64).prop_map(|number| number.to_string().into_bytes()),
        6 => (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

/// An expiry near the start of the clock.
fn moment() -> impl Strategy<Value = Vec<u8>> {
    (-2_000..20_000i64).prop_map(|ms| (START + ms).to_string().into_bytes())
}

fn fields() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::btree_set(field(), 1..5).prop_map(|names| names.into_iter().collect())
}

fn pairs() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let pairs = proptest::collection::btree_map(field(), value(), 1..5);
    pairs.prop_map(|pairs| pairs.into_iter().flat_map(|(name, value)| [name, value]).collect())
}

/// A word, and more, behind a key: `head` has `KEY` where that stands.
fn with(
    heads: &'static [&'static str],
    rest: BoxedStrategy<Vec<Vec<u8>>>,
) -> impl Strategy<Value = Vec<Vec<u8>>> {
    (proptest::sample::select(heads), key(), key(), moment(), rest).prop_map(
        |(head, key, other, moment, rest)| {
            let count = |each: usize| (rest.len() / each).to_string().into_bytes();
            let word = |word: Vec<u8>| match &word[..] {
                b"KEY" => key.clone(),
                b"OTHER" => other.clone(),
                b"WHEN" => moment.clone(),
                b"COUNT" => count(1),
                b"PAIRS" => count(2),
                _ => word,
            };
            [words(head).into_iter().map(word).collect(), rest.clone()].concat()
        },
    )
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let alone: &[&str] =
        &["hgetall KEY", "hkeys KEY", "hvals KEY", "hlen KEY", "type KEY", "exists KEY", "get KEY"];
    let moved: &[&str] = &["rename KEY OTHER", "copy KEY OTHER", "copy KEY OTHER REPLACE"];
    let gone: &[&str] = &["del KEY", "set KEY text", "pexpire KEY 5000", "pexpire KEY 300"];
    let on_one: &[&str] = &["hget KEY", "hexists KEY", "hstrlen KEY"];
    let on_listed: &[&str] = &[
        "hpexpireat KEY WHEN FIELDS COUNT",
        "hpexpireat KEY WHEN FIELDS COUNT",
        "hpexpireat KEY WHEN NX FIELDS COUNT",
        "hpexpireat KEY WHEN XX FIELDS COUNT",
        "hpexpireat KEY WHEN GT FIELDS COUNT",
        "hpexpireat KEY WHEN LT FIELDS COUNT",
        "hpexpiretime KEY FIELDS COUNT",
        "hpersist KEY FIELDS COUNT",
        "hgetdel KEY FIELDS COUNT",
        "hgetex KEY PXAT WHEN FIELDS COUNT",
        "hgetex KEY PERSIST FIELDS COUNT",
    ];
    let with_pairs: &[&str] = &[
        "hsetex KEY PXAT WHEN FIELDS PAIRS",
        "hsetex KEY FNX PXAT WHEN FIELDS PAIRS",
        "hsetex KEY KEEPTTL FXX FIELDS PAIRS",
        "hsetex KEY FIELDS PAIRS",
    ];
    let one = || field().prop_map(|name| vec![name]).boxed();
    prop_oneof![
        8 => with(alone, Just(vec![]).boxed()),
        3 => with(moved, Just(vec![]).boxed()),
        2 => with(gone, Just(vec![]).boxed()),
        4 => with(on_one, one()),
        12 => with(&["hset KEY"], pairs().boxed()),
        3 => with(&["hsetnx KEY"], (field(), value()).prop_map(|(a, b)| vec![a, b]).boxed()),
        3 => with(&["hincrby KEY"], field().prop_map(|name| vec![name, b"3".to_vec()]).boxed()),
        4 => with(&["hmget KEY", "hdel KEY"], fields().boxed()),
        10 => with(on_listed, fields().boxed()),
        4 => with(with_pairs, pairs().boxed()),
        // More than a small hash may have.
        1 => (key(), 400..700u32).prop_map(|(key, count)| {
            let pairs = (0..count).flat_map(|number| words(&format!("many:{number} {number}")));
            [vec![b"hset".to_vec(), key], pairs.collect()].concat()
        }),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => command().prop_map(Step::Command),
        4 => prop_oneof![3 => 0..50i64, 1 => 0..3_000i64].prop_map(Step::Later),
        1 => (key(), 1..50usize, proptest::collection::vec(command(), 0..20))
            .prop_map(|(key, count, between)| Step::Scan(key, count, between)),
    ]
}
