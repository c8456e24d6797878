//! The promise, as Redis's own tests check it: its units for strings, hashes, counters, bitmaps,
//! keys, expiry and SCAN run against midi's commands, through a proxy that renames them; its unit
//! for transactions runs on midi's own port.
//!
//! Environment: `MIDI_REDIS_TESTS`, the directory `tests` of the sources of Redis 7.0,
//! `MIDI_REDIS_8_TESTS`, that of Redis 8, and tclsh. Without them nothing runs: the units are not
//! part of this project.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use crate::common::port::Ported;
use crate::common::{Client, Mode, Words, proxy, skip};

/// Tests that use other types indirectly, or rely on the effects of such a test. Two expect long
/// values of a hash in the order in which they came: midi has such fields in a table.
const SKIPPED: [&str; 5] = [
    "Hash ziplist of various encodings",
    "Hash ziplist of various encodings - sanitize dump",
    "COPY basic usage for skiplist sorted set",
    "MOVE basic usage",
    "MOVE against key existing in the target DB",
];

/// Tests of features that midi does not have yet (the AOF and replicas) or of the
/// server's internal structures.
const TAGS: &str = "-needs:repl -needs:debug";

/// Commands that stay the server's own: those that empty or swap databases act on both
/// keyspaces.
const KEPT: [&str; 10] = [
    "flushall", "flushdb", "swapdb", "info", "help", "jobs", "populate", "import", "export",
    "slowlog",
];

const UNITS: [&str; 8] = [
    "unit/type/string",
    "unit/type/hash",
    "unit/type/incr",
    "unit/bitops",
    "unit/bitfield",
    "unit/keyspace",
    "unit/expire",
    "unit/scan",
];

#[test]
fn adaptive() {
    run(Mode::Adaptive);
}

#[test]
fn pool() {
    run(Mode::Pool);
}

#[test]
fn safemode() {
    run(Mode::Safe);
}

/// The units write files to their directory, and some measure times.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Redis 8's units for hashes and for fields that expire.
#[test]
fn hashes_of_redis_8() {
    let Some(tests) = std::env::var_os("MIDI_REDIS_8_TESTS").map(PathBuf::from) else {
        return skip("MIDI_REDIS_8_TESTS is not set; make test-long sets it");
    };
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for mode in Mode::tried() {
        let server = mode.server();
        let tests = for_a_server_that_runs(&tests, server.dir());
        let (renamed, missing) = names(&mut server.client());
        // Limits of listpacks are midi's own settings.
        let change = move |args: &mut Words| {
            proxy::rename(args, &renamed);
            let is_set = args.len() > 3 && args[0].eq_ignore_ascii_case(b"config");
            if is_set && args[2].starts_with(b"hash-max-listpack-") {
                args[2] = [b"midi.", &args[2][..]].concat();
            }
        };
        let port = proxy::start(server.port(), change).expect("a proxy");
        let units = ["unit/type/hash", FIELD_EXPIRY];
        let mut skipped: Vec<String> =
            units.iter().flat_map(|unit| tests_with(&tests, unit, &missing)).collect();
        println!("{mode:?}: left out, because they use what midi does not have: {skipped:#?}");
        skipped.extend(OF_REDIS_8.map(str::to_owned));
        judge(&format!("{mode:?}"), 50, &run_units(&tests, port, &units, TAGS, &skipped));
    }
}

const FIELD_EXPIRY: &str = "unit/type/hash-field-expire";

/// Tests of Redis's internal structures and of its figures; and those that expect a read of a field
/// that has expired to remove it, which midi leaves to the search for due fields, as Valkey does.
const OF_REDIS_8: [&str; 13] = [
    "/^Test listpack debug listpack$",
    "/allow-access-expired",
    "/^Statistics - ",
    "/^HPEXPIRETIME persists after RDB reload",
    "/^Verify hash with PERSIST.d field won.t be counted in INFO",
    "/^Test HRANDFIELD deletes all expired fields",
    "/^Lazy Expire - fields are lazy deleted",
    "/^Lazy Expire - verify various HASH commands",
    "/^Lazy Expire - delete hash with expired fields",
    "/^HGETDEL - delete field with ttl",
    "/^HGETEX - Test with lazy expiry",
    "/^HSETEX - Test FXX flag with lazy expire",
    "/^HSETEX - Test FNX flag with lazy expire",
];

/// A copy of the tests whose unit for fields that expire takes a server that runs already: it is
/// tagged for one that the suite starts, which only its part about the AOF needs. A script's
/// commands are not renamed, so its one script is left out.
fn for_a_server_that_runs(tests: &Path, to: &Path) -> PathBuf {
    let copied = Command::new("cp").arg("-R").args([tests, to]).status();
    assert!(copied.expect("cp").success());
    let copy = to.join("tests");
    let unit = copy.join(FIELD_EXPIRY).with_extension("tcl");
    let text = fs::read_to_string(&unit).expect("a unit");
    let parts = text.split("\nstart_server {").filter(|part| !part.contains("appendonly"));
    let parts: Vec<&str> = parts.collect();
    let text = parts.join("\nstart_server {").replace("external:skip needs:debug", "hash");
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("{r EVAL ")).collect();
    fs::write(unit, lines.join("\n")).expect("our own copy");
    copy
}

/// The port has its own MULTI and WATCH; elsewhere they are the host's.
#[test]
fn transactions_on_the_port() {
    let Some(tests) = std::env::var_os("MIDI_REDIS_TESTS").map(PathBuf::from) else {
        return skip("MIDI_REDIS_TESTS is not set; make test-long sets it");
    };
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let ported = Ported::start(Mode::Adaptive.builder());
    let (_, mut missing) = names(&mut ported.host());
    for name in ported.client().run("COMMAND LIST").array() {
        missing.remove(&name.text());
    }
    // The suite begins with FUNCTION FLUSH. Some tests disable active expiry, but do not need it.
    // Neither is sent while anything is watched.
    let change = |args: &mut Words| {
        if ["function", "debug"].iter().any(|name| args[0].eq_ignore_ascii_case(name.as_bytes())) {
            *args = vec![b"UNWATCH".to_vec()];
        }
    };
    let port = proxy::start(ported.number(), change).expect("a proxy");
    let mut skipped = tests_with(&tests, "unit/multi", &missing);
    skipped.extend(OF_THE_HOST.map(str::to_owned));
    println!("left out, because they use what the port does not have: {skipped:#?}");
    let tags = "-needs:repl -needs:config-maxmemory";
    judge("the port", 20, &run_units(&tests, port, &["unit/multi"], tags, &skipped));
}

/// Tests of unit/multi that use commands of the host's port, or the server's internals.
const OF_THE_HOST: [&str; 6] = [
    "MULTI and script timeout",
    "EXEC and script timeout",
    "MULTI-EXEC body and script timeout",
    "just EXEC and script timeout",
    "/^MULTI with (SAVE|SHUTDOWN)$",
    "MULTI with config error",
];

fn run(mode: Mode) {
    let Some(tests) = std::env::var_os("MIDI_REDIS_TESTS").map(PathBuf::from) else {
        return skip("MIDI_REDIS_TESTS is not set; make test-long sets it");
    };
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let server = mode.server();
    let (renamed, missing) = names(&mut server.client());
    let rename = move |args: &mut Words| proxy::rename(args, &renamed);
    let port = proxy::start(server.port(), rename).expect("a proxy");
    let skipped: Vec<String> =
        UNITS.iter().flat_map(|unit| tests_with(&tests, unit, &missing)).collect();
    println!("{mode:?}: left out, because they use what midi does not have: {skipped:#?}");
    judge(&format!("{mode:?}"), 50, &run_units(&tests, port, &UNITS, TAGS, &skipped));
}

/// Fails if tests failed, or if fewer than this many ran.
fn judge(what: &str, at_least: usize, output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let count = |mark: &str| text.lines().filter(|line| line.contains(mark)).count();
    // The marks are coloured: ESC [ ... m.
    let (passed, failed) =
        (count("ok\u{1b}[0m]: "), count("err\u{1b}[0m]: ") + count("exception\u{1b}[0m]: "));
    println!("{what}: {passed} passed, {failed} failed");
    assert!(passed > at_least, "the units did not run:\n{text}");
    assert!(failed == 0 && output.status.success(), "{what}: {failed} tests failed:\n{text}");
}

/// The commands of midi that the proxy renames, and the stock commands on keys that midi
/// does not have.
fn names(client: &mut Client) -> (HashSet<Vec<u8>>, HashSet<String>) {
    let midi: HashSet<String> = client
        .run("COMMAND LIST FILTERBY MODULE midi")
        .array()
        .iter()
        .map(|name| name.text().trim_start_matches("midi.").to_owned())
        .collect();
    let mut missing = HashSet::new();
    for row in client.run("COMMAND").array() {
        let row = row.array();
        let (name, first_key) = (row[0].text(), row[3].integer());
        // Containers such as OBJECT have their keys in their subcommands.
        let on_keys = first_key > 0 || ["object", "memory"].contains(&name.as_str());
        if on_keys && !name.starts_with("midi.") && !midi.contains(&name) {
            missing.insert(name);
        }
    }
    let renamed = midi.into_iter().filter(|name| !KEPT.contains(&name.as_str()));
    (renamed.map(String::into_bytes).collect(), missing)
}

/// The tests of a unit that use one of these commands in text or name, as patterns of their names.
fn tests_with(tests: &Path, unit: &str, missing: &HashSet<String>) -> Vec<String> {
    let text = fs::read_to_string(tests.join(format!("{unit}.tcl"))).expect("a unit");
    let uses = |body: &str| {
        let name = name_pattern(body);
        let mut named = name.split(|letter: char| !letter.is_ascii_uppercase());
        if named.any(|word| missing.contains(&word.to_ascii_lowercase())) {
            return true;
        }
        let words: Vec<&str> = body.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        // The units' connections are `r` and `$rd`.
        words.windows(2).any(|pair| {
            ["r", "rd"].contains(&pair[0]) && missing.contains(&pair[1].to_ascii_lowercase())
        })
    };
    text.split("\n    test ")
        .flat_map(|part| part.split("\n        test "))
        .skip(1)
        .filter(|part| uses(part))
        .map(name_pattern)
        .collect()
}

/// The name at the beginning of a test's text; variables in it match anything.
fn name_pattern(test: &str) -> String {
    let end = if test.starts_with('{') { '}' } else { '"' };
    let name = test[1..].split(end).next().unwrap_or_default();
    let mut pattern = String::from("/^");
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => {
                while letters.next_if(|letter| letter.is_ascii_alphanumeric()).is_some() {}
                pattern += ".*";
            }
            _ if letter.is_ascii_alphanumeric() || letter == ' ' => pattern.push(letter),
            _ => pattern.push('.'),
        }
    }
    pattern + "$"
}

fn run_units(tests: &Path, port: u16, units: &[&str], tags: &str, skipped: &[String]) -> Output {
    let mut command = Command::new("tclsh");
    command
        .current_dir(tests.parent().expect("the directory of the sources"))
        .arg("tests/test_helper.tcl");
    command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--durable", "--tags", tags]);
    // midi derives an encoding from the value alone; Redis remembers what APPEND or SETRANGE made.
    command.arg("--ignore-encoding");
    command.args(units.iter().flat_map(|unit| ["--single", unit]));
    let skipped = skipped.iter().map(String::as_str).chain(SKIPPED);
    command.args(skipped.flat_map(|name| ["--skiptest", name]));
    command.output().expect("tclsh")
}
