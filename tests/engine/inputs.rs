//! The promise: no bytes from outside crash a parser or make it find what is not there.
//!
//! The fuzzer looks for such bytes for as long as one likes (`fuzz/`, `scripts/test-long.sh`). Here
//! its checks run over its corpus and over changed copies of it, the same in every run.
//! `MIDI_FUZZ_INPUTS` sets how many.
#[path = "../../fuzz/checks/mod.rs"]
mod checks;
#[path = "../../fuzz/checks/streams.rs"]
mod streams;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use crate::common::Random;

#[test]
fn requests() {
    run("request", checks::request::check, 25_000);
}

#[test]
fn payloads() {
    run("payload", checks::payload::check, 25_000);
}

#[test]
fn payloads_of_hashes() {
    run("hash_payload", checks::hash_payload::check, 50_000);
}

#[test]
fn records() {
    run("records", checks::records::check, 50_000);
}

#[test]
fn pushed_messages() {
    run("pushed", checks::pushed::check, 50_000);
}

#[test]
fn snapshots() {
    run("snapshot", checks::snapshot::check, 10_000);
}

#[test]
fn tls_records() {
    run("tls", checks::tls::check, 15_000);
}

#[test]
fn streams() {
    run("streams", streams::check, 150);
}

#[test]
fn memcacheds_requests() {
    run("memcached", checks::memcached::check, 150_000);
}

#[test]
fn patterns() {
    run("glob", checks::glob::check, 250_000);
}

fn run(target: &str, check: fn(&[u8]), inputs: usize) {
    let corpus = corpus(target);
    let inputs = std::env::var("MIDI_FUZZ_INPUTS")
        .map_or(inputs, |inputs| inputs.parse().expect("a number"));
    corpus.iter().for_each(|input| checked(check, input));
    let mut random = Random::new(1);
    for _ in 0..inputs {
        checked(check, &changed(&corpus, &mut random));
    }
}

/// Sorted by name, so that all runs are equal.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(paths.len() > 5, "the corpus was not found");
    paths.iter().map(|path| fs::read(path).expect("a readable file")).collect()
}

fn checked(check: fn(&[u8]), input: &[u8]) {
    assert!(
        catch_unwind(|| check(input)).is_ok(),
        "with these bytes: b\"{}\"",
        input.escape_ascii()
    );
}

/// Bytes that have a meaning to one of the parsers.
const TOKENS: [&[u8]; 24] = [
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b"\xff",
    b"*",
    b"$",
    b"-1",
    b"0",
    b"1",
    b"99999999999",
    b"\"",
    b"'",
    b"\\x",
    b"\\",
    b"[",
    b"[^",
    b"]",
    b"-",
    b"?",
    b" ",
    b"get ",
    b"noreply",
    b"set k 0 0 1\r\n",
];

/// A file of the corpus after some random changes.
fn changed(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..1 + random.below(5) {
        let from = random.below(bytes.len() + 1);
        let to = from + random.below((bytes.len() - from).min(16) + 1);
        match random.below(5) {
            0 => drop(bytes.drain(from..to)),
            1 => drop(bytes.splice(from..to, random.pick(&TOKENS).iter().copied())),
            2 => bytes.extend_from_within(from..to),
            3 => bytes[from..to].iter_mut().take(1).for_each(|byte| *byte = random.next() as u8),
            _ => {
                let other = &corpus[random.below(corpus.len())];
                bytes.splice(from.., other[random.below(other.len() + 1)..].iter().copied());
            }
        }
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

/// Long enough for anything that depends on the input's form.
const MOST_BYTES: usize = 2000;
