//! The promise of `linearizability.rs`, for hashes: while they are small, while they are large, and
//! when one becomes the other, with fields that have an expiry and fields that have none.

use super::linearizability::{KEYS, Unit, check_rounds, rounds};
use crate::common::linear::{explain, explain_by_key};
use crate::common::{Mode, Random, Words, words};

/// Histories for each mode and way in: short ones, because a hash is a larger state than a text.
const ROUNDS: usize = 6;

/// Random commands on one hash. `K` is the key, `V` a unique value, and `L` one that is so long
/// that the hash becomes large.
const ON_ONE_HASH: [&str; 25] = [
    "HSET K f V",
    "HSET K f V g V",
    "HSET K f L",
    "HSET K g L h V",
    "HSETNX K g V",
    "HGET K f",
    "HGET K g",
    "HMGET K f g h",
    "HGETALL K",
    "HGETALL K",
    "HKEYS K",
    "HVALS K",
    "HLEN K",
    "HEXISTS K g",
    "HSTRLEN K f",
    "HINCRBY K n 1",
    "HDEL K f",
    "HDEL K g h n",
    "HGETDEL K FIELDS 2 f g",
    "HEXPIREAT K 4102444800 FIELDS 2 f n",
    "HEXPIREAT K 1 FIELDS 2 f g",
    "HPERSIST K FIELDS 1 f",
    "HEXPIRETIME K FIELDS 3 f g n",
    "DEL K",
    "EXISTS K",
];

/// Commands on several hashes, which take them along in either form.
const ON_SEVERAL_HASHES: [&str; 8] = [
    "RENAME x y",
    "RENAME y z",
    "RENAMENX y x",
    "COPY x y REPLACE",
    "COPY z x",
    "COPY y z REPLACE",
    "DEL x y",
    "EXISTS x y z",
];

fn command(line: &str, random: &mut Random, unique: u64) -> Words {
    let key = KEYS[random.below(KEYS.len())];
    let value = format!("v{unique}");
    let long = format!("{value}{}", "-".repeat(300));
    let word = |word: &str| match word {
        "K" => key.into(),
        "V" => value.clone().into(),
        "L" => long.clone().into(),
        word => word.as_bytes().to_vec(),
    };
    line.split(' ').map(word).collect()
}

/// One to three commands on single hashes, sent at once.
#[test]
fn commands_on_one_hash() {
    for mode in Mode::tried() {
        let plan = |random: &mut Random, unique: u64| -> Vec<Unit> {
            let one = |at: usize, random: &mut Random| {
                let line = random.pick(&ON_ONE_HASH);
                vec![command(line, random, 10 * unique + at as u64)]
            };
            (0..1 + random.below(3)).map(|at| one(at, random)).collect()
        };
        check_rounds(rounds(ROUNDS), mode, "shards 1", &plan, explain_by_key);
    }
}

/// Alone and in transactions, over keys in shards of different workers.
#[test]
fn hashes_that_move_and_transactions() {
    for mode in Mode::tried() {
        let plan = |random: &mut Random, unique: u64| -> Vec<Unit> {
            let some = |at: usize, random: &mut Random| match random.below(3) {
                0 => words(random.pick(&ON_SEVERAL_HASHES)),
                _ => {
                    let line = random.pick(&ON_ONE_HASH);
                    command(line, random, 10 * unique + at as u64)
                }
            };
            vec![(0..1 + random.below(3)).map(|at| some(at, random)).collect()]
        };
        check_rounds(rounds(ROUNDS), mode, "shards 64", &plan, explain);
    }
}
