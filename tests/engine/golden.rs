//! The promise: a snapshot that any midi has written is read by every newer one.
//!
//! `tests/golden/` has one file for each version of the format, and for each change of what is
//! written within a version. They stay as they are for ever. In a file, each string stands behind
//! its length, 4 bytes, little-endian; `snapshot-<version>.<name>` is the file's name. The texts
//! beside them are those of `records.rs`.
//!
//! When the format changes: raise `VERSION` if older readers must refuse it (or add a field or kind
//! as `format.rs` says), give [`expected`] what is new, and run this once with
//! `MIDI_WRITE_GOLDEN=<name>`, which writes a new file and never over one. Then add its name and
//! what it must hold to [`FILES`].

use std::fs;
use std::path::PathBuf;

use midi::snapshot::VERSION;

use super::snapshots::{Keys, Loaded, filled, loaded_as, saved};

/// A golden file.
struct Golden {
    name: &'static str,
    /// The version that the host would give.
    version: i32,
    /// The keys that it must load as.
    holds: fn() -> Keys,
}

/// The files.
const FILES: [Golden; 2] = [
    Golden { name: "snapshot-1.strings", version: 1, holds: of_strings },
    Golden { name: "snapshot-1.items", version: 1, holds: expected },
];

/// Keys with everything that can be saved: expiries, origins, empty and large ones, databases.
fn of_strings() -> Keys {
    let mut keys = Keys::new();
    let mut add = |db: u32, key: &[u8], value: Vec<u8>, expire_at, origin| {
        assert!(keys.insert((db, key.to_vec()), (value, expire_at, origin)).is_none());
    };
    for number in 0..200_u32 {
        let key = format!("key:{number}");
        let expire_at = number.is_multiple_of(3).then_some(1_700_000_000_000 + i64::from(number));
        add(number % 2 * 9, key.as_bytes(), vec![b'v'; number as usize], expire_at, 0);
    }
    add(0, b"", vec![], None, 0);
    add(0, b"\r\n\0\xff", vec![0, 255], Some(-1), 1);
    add(0, b"computed", b"0.1".to_vec(), Some(i64::MAX), 2);
    add(5, &[b'k'; 1000], b"a long name".to_vec(), None, 1);
    add(5, b"65535", vec![b'a'; 65_535], None, 0);
    add(5, b"65536", vec![b'b'; 65_536], Some(1), 1);
    add(9, b"larger", vec![b'c'; 70_000], None, 0);
    keys
}

/// Those, and items of memcached.
fn expected() -> Keys {
    let mut keys = of_strings();
    for number in 3..6 {
        let expire_at = (number == 4).then_some(1_700_000_000_000);
        keys.insert((0, vec![b'i', number]), (b"an item".to_vec(), expire_at, number));
        keys.insert((5, vec![b'i', number]), (vec![number; 70_000], expire_at, number));
    }
    keys
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn packed(strings: &[Vec<u8>]) -> Vec<u8> {
    let packed = |string: &Vec<u8>| [&(string.len() as u32).to_le_bytes(), &string[..]].concat();
    strings.iter().flat_map(packed).collect()
}

fn unpacked(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    while let Some((len, rest)) = file.split_first_chunk() {
        let (string, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        strings.push(string.to_vec());
        file = rest;
    }
    assert!(file.is_empty(), "bytes behind the last string");
    strings
}

#[test]
fn files_of_older_versions_are_read() {
    let files = fs::read_dir(path("")).expect("a folder");
    let names = files.map(|file| file.expect("a readable folder").file_name());
    let snapshots = names.filter(|name| name.to_string_lossy().starts_with("snapshot-"));
    assert_eq!(snapshots.count(), FILES.len(), "all are listed");
    for Golden { name, version, holds } in FILES {
        let strings = unpacked(&fs::read(path(name)).expect(name));
        for (shards, workers) in [(1, 1), (64, 2)] {
            let to = Loaded::new(shards, workers, 10).running();
            let keys = loaded_as(&to, version, &strings).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(keys == holds(), "{name}");
        }
    }
    let newest = FILES.iter().map(|file| file.version).max();
    assert_eq!(newest, Some(VERSION), "each version has a file");
}

#[test]
fn files_of_this_version_are_read() {
    let from = Loaded::new(8, 1, 10);
    filled(&from.engine, &expected());
    let strings = saved(&from.engine);
    assert_eq!(unpacked(&packed(&strings)), strings);
    let to = Loaded::new(1, 1, 10);
    assert!(loaded_as(&to, VERSION, &strings) == Ok(expected()));
    if let Ok(name) = std::env::var("MIDI_WRITE_GOLDEN") {
        let path = path(&format!("snapshot-{VERSION}.{name}"));
        assert!(!path.exists(), "golden files stay as they are");
        fs::write(path, packed(&strings)).expect("a new file");
    }
}
