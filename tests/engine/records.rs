//! The promise: records come back as they were written, other bytes are refused, and texts of older
//! versions stay readable.
//!
//! `tests/golden/` has a text for each version, which stays as it is for ever. When the version is
//! raised: run this once with `MIDI_WRITE_GOLDEN=1`, which writes a new file and never over one.

use std::fs;
use std::path::PathBuf;

use midi::command::record::{Pieces, RECORD_VERSION, Record, RecordError, Records, Words, header};
use midi::store::{Origin, Traits};
use proptest::prelude::*;

fn read(text: &[u8]) -> Result<Vec<Record<'_>>, RecordError> {
    Records::new(text)?.collect()
}

/// The text of the oldest version that can hold them, and where each of its records ends.
fn written(records: &[Record<'_>]) -> (Vec<u8>, Vec<usize>) {
    written_as(records.iter().map(Record::version).max().unwrap_or(1), records)
}

fn written_as(version: u32, records: &[Record<'_>]) -> (Vec<u8>, Vec<usize>) {
    let mut text = Vec::new();
    header(version, &mut text);
    let ends = records.iter().map(|record| {
        record.write(&mut text);
        text.len()
    });
    let ends = ends.collect();
    (text, ends)
}

/// A record that owns its bytes: which it is, key, second key or bytes, number, and origin.
type Made = (u8, Vec<u8>, Vec<u8>, Option<i64>, u8);

fn record((kind, key, other, number, origin): &Made) -> Record<'_> {
    let db = number.map_or(0, |number| number.unsigned_abs() as u32 >> 1);
    let at = number.unwrap_or_default();
    let origin = match origin {
        0 => Origin::Given.into(),
        1 => Origin::Edited.into(),
        2 => Origin::Computed.into(),
        3 => Traits { flags: 7, ..Traits::default() },
        _ => Traits { flags: u32::MAX, stale: true, won: true, ..Origin::Edited.into() },
    };
    match kind {
        0 => Record::Set { key, value: other, expire_at: *number, traits: origin },
        1 => Record::Del { key },
        2 => Record::PexpireAt { key, at },
        3 => Record::Persist { key },
        4 => Record::Append { key, bytes: other },
        5 => Record::SetRange { key, offset: db, bytes: other },
        6 => Record::Rename { key, to: other },
        7 => Record::Copy { key, to: other, db },
        8 => Record::Move { key, db },
        9 => Record::SwapDb { a: db, b: 3 },
        10 => Record::FlushDb,
        11 => Record::FlushAll,
        13 => Record::SetRanges { key, pieces: Pieces::Of(other, &[(0, 2), (4, 5), (9, 18)]) },
        14 => Record::Restore { key, payload: other, expire_at: number.filter(|at| *at != 0) },
        15 => Record::BitOp { args: words_of(&[b"xor", key, other, b"", key]) },
        16 => Record::BitOp { args: words_of(&[b"NOT", other, key]) },
        17 => Record::HSet { key, pairs: words_of(&[b"", other, other, key]) },
        19 => Record::Traits { key, expire_at: *number, traits: origin },
        18 => Record::HDel { key, fields: words_of(&[other, b"field"]) },
        _ => Record::Select { db },
    }
}

/// Words that outlive the list: a record only refers to its words.
fn words_of<'a>(list: &[&'a [u8]]) -> Words<'a> {
    Words::List(Box::leak(list.into()))
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        Just(vec![b'x'; 300]),
        Just(b"\r\n$3\r\nDEL\r\n".to_vec()),
    ]
}

fn made() -> impl Strategy<Value = Vec<Made>> {
    let number = prop_oneof![Just(None), any::<i64>().prop_map(Some), Just(Some(i64::MIN))];
    prop::collection::vec((0..20_u8, bytes(), bytes(), number, 0..5_u8), 0..12)
}

/// These records behind a SELECT, those from `from` on, at most `len`, between MULTI and EXEC.
fn in_order<'a>(made: &'a [Made], from: usize, len: usize) -> Vec<Record<'a>> {
    let mut records: Vec<_> = made.iter().map(record).collect();
    let from = from.min(records.len());
    let to = (from + len).min(records.len());
    records.insert(to, Record::Exec);
    records.insert(from, Record::Multi);
    records.insert(0, Record::Select { db: 3 });
    records
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn records_come_back(made in made(), from in 0..12_usize, len in 0..12_usize) {
        let records = in_order(&made, from, len);
        let (text, ends) = written(&records);
        prop_assert_eq!(read(&text), Ok(records.clone()));
        let begin = written(&[]).0.len();
        let version = Records::new(&text).map(|records| records.version());
        let needed = made.iter().map(|made| match made {
            (0, _, _, _, 3..) => 4,
            (19, ..) => 6,
            (17.., ..) => 5,
            (13.., ..) => 2,
            _ => 1,
        });
        prop_assert_eq!(version, Ok(needed.max().unwrap_or(1)));
        for cut in 0..text.len() {
            let whole = ends.iter().position(|&end| end == cut).map_or(0, |at| at + 1);
            match read(&text[..cut]) {
                Ok(read) => {
                    prop_assert!(whole > 0 || cut == begin, "cut at {}", cut);
                    prop_assert_eq!(&read[..], &records[..whole]);
                }
                Err(error) => prop_assert!(error.offset <= cut),
            }
        }
    }

    #[test]
    fn changed_bytes_are_read_or_refused(made in made(), at in 0..2000_usize, byte in 1..=255_u8) {
        let (mut text, _) = written(&in_order(&made, 0, 3));
        let at = at % text.len();
        text[at] ^= byte;
        match read(&text) {
            Ok(records) => {
                let version = Records::new(&text).expect("it was read").version();
                prop_assert_eq!(written_as(version, &records).0, text);
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}

/// A text of these arrays of words behind the version.
fn text_of(version: u32, arrays: &[&[&str]]) -> Vec<u8> {
    let mut text = written_as(version, &[]).0;
    for words in arrays {
        text.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| {
            text.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        });
    }
    text
}

fn refusal(text: &[u8]) -> String {
    read(text).expect_err("a text that cannot be read").to_string()
}

#[test]
fn errors_say_what_is_wrong() {
    let select: &[&str] = &["SELECT", "0"];
    for (arrays, expected) in [
        (&[select, &["NEW", "a"]][..], "unknown record 'NEW', perhaps written by a newer midi"),
        (&[&["a\r\nb", "a", "", "", "", "", "", ""]], "unknown record 'a\\r\\nb'"),
        (&[select, &["del", "a"]], "unknown record 'del'"),
        (&[select, &["SET", "a"]], "wrong arguments of record 'SET'"),
        (&[select, &["SET", "a", "b", "EDITED", "PXAT", "1"]], "wrong arguments of record 'SET'"),
        (&[select, &["DEL", "a", "b", "c", "d", "e", "f"]], "wrong arguments of record 'DEL'"),
        (&[select, &["PEXPIREAT", "a", "1.5"]], "wrong arguments of record 'PEXPIREAT'"),
        (&[select, &["MOVE", "a", "-1"]], "wrong arguments of record 'MOVE'"),
        (&[select, &["COPY", "a", "b", "DB", "1"]], "wrong arguments of record 'COPY'"),
        (&[&["DEL", "a"]], "a record before the first SELECT"),
        (&[&["MULTI"]], "MULTI and EXEC do not match"),
        (&[&["EXEC"]], "MULTI and EXEC do not match"),
        (&[&["MULTI"], &["MULTI"]], "MULTI and EXEC do not match"),
    ] {
        for version in [1, 2] {
            let refusal = refusal(&text_of(version, arrays));
            assert!(refusal.starts_with(expected), "{version} {arrays:?}: {refusal}");
        }
    }
    let ranges: &[&str] = &["SETRANGE", "a", "1", "b", "300", "c"];
    let restore: &[&str] = &["RESTORE", "a", "0", "b", "REPLACE", "ABSTTL"];
    let [unknown, wrong] = ["unknown record", "wrong arguments of record"];
    for (words, old, new) in [
        (ranges, wrong, None),
        (restore, unknown, None),
        (&["BITOP", "or", "a", "b"], unknown, None),
        (&["BITOP", "or", "a", "b", "c", "d", "e", "f"], unknown, None),
        (&ranges[..5], wrong, Some(wrong)),
        (&["SETRANGE", "a", "1", "b", "-1", "c"], wrong, Some(wrong)),
        (&restore[..5], unknown, Some(wrong)),
        (&["RESTORE", "a", "x", "b", "REPLACE", "ABSTTL"], unknown, Some(wrong)),
        (&["BITOP", "or", "a"], unknown, Some(wrong)),
    ] {
        assert!(refusal(&text_of(1, &[select, words])).starts_with(old), "{words:?}");
        let text = text_of(2, &[select, words]);
        match new {
            None => assert_eq!(written(&read(&text).expect("records")).0, text),
            Some(new) => assert!(refusal(&text).starts_with(new), "{words:?}"),
        }
    }
    let long = refusal(&text_of(1, &[&[&"N".repeat(1000)]]));
    assert_eq!(
        long,
        format!(
            "unknown record '{}...', perhaps written by a newer midi, at byte {}",
            "N".repeat(64),
            written(&[]).0.len()
        )
    );
}

#[test]
fn versions_are_checked() {
    for (text, expected) in [
        (
            &b"*2\r\n$7\r\nVERSION\r\n$1\r\n7\r\n*1\r\n$3\r\nNEW\r\n"[..],
            "version '7', written by a newer midi (this one reads up to version 6), at byte 0",
        ),
        (
            b"*3\r\n$7\r\nVERSION\r\n$1\r\n7\r\n$1\r\nx\r\n",
            "version '7', written by a newer midi (this one reads up to version 6), at byte 0",
        ),
        (
            b"*2\r\n$7\r\nVERSION\r\n$1\r\n3\r\n*1\r\n$4\r\nLAST\r\n",
            "no part of a text, where its version says so, at byte 0",
        ),
        (
            b"*3\r\n$7\r\nVERSION\r\n$1\r\n1\r\n$1\r\nx\r\n",
            "wrong arguments of record 'VERSION', at byte 0",
        ),
        (b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", "the text does not begin with a version, at byte 0"),
        (b"", "the text ends in the middle of a record, at byte 0"),
        (b"VERSION 1\r\n", "no array of bulk strings, at byte 0"),
        (b"*0\r\n", "no array of bulk strings, at byte 0"),
        (b"*02\r\n", "no array of bulk strings, at byte 0"),
        (b"*1\r\n$99999999999\r\n", "no array of bulk strings, at byte 0"),
    ] {
        assert_eq!(refusal(text), expected);
    }
}

/// All kinds of records of version 1, with everything that they can have.
fn golden_1() -> Vec<Record<'static>> {
    let set = |key, value, expire_at, origin: Origin| {
        let traits = origin.into();
        Record::Set { key, value, expire_at, traits }
    };
    vec![
        Record::Select { db: 0 },
        set(b"key", b"value", None, Origin::Given),
        set(b"expires", b"", Some(1_700_000_000_000), Origin::Given),
        set(b"edited", b"\0\r\n\xff", None, Origin::Edited),
        set(b"computed", b"0.1", Some(-1), Origin::Computed),
        Record::Del { key: b"key" },
        Record::Select { db: 15 },
        Record::Multi,
        Record::PexpireAt { key: b"key", at: i64::MAX },
        Record::Persist { key: b"key" },
        Record::Exec,
        Record::Append { key: b"key", bytes: b"more" },
        Record::SetRange { key: b"key", offset: 100, bytes: b"part" },
        Record::Rename { key: b"key", to: b"newkey" },
        Record::Copy { key: b"newkey", to: b"", db: 3 },
        Record::Move { key: b"newkey", db: 4_294_967 },
        Record::SwapDb { a: 0, b: 15 },
        Record::FlushDb,
        Record::FlushAll,
    ]
}

/// The kinds that version 2 has added, and some of version 1.
fn golden_2() -> Vec<Record<'static>> {
    let restore = |expire_at| Record::Restore { key: b"key", payload: b"\0\r\n\xff", expire_at };
    vec![
        Record::Select { db: 0 },
        Record::SetRange { key: b"key", offset: 100, bytes: b"part" },
        Record::SetRanges { key: b"key", pieces: Pieces::Of(b"0123456789", &[(0, 1), (4, 10)]) },
        Record::Multi,
        restore(None),
        restore(Some(1_700_000_000_000)),
        Record::BitOp { args: Words::List(&[b"or", b"key", b"", b"a", b"b", b"c", b"d", b"e"]) },
        Record::Exec,
        Record::BitOp { args: Words::List(&[b"NOT", b"key", b"\r\n"]) },
        Record::FlushDb,
    ]
}

/// What version 4 has added.
fn golden_4() -> Vec<Record<'static>> {
    let set = |expire_at, traits| Record::Set { key: b"key", value: b"value", expire_at, traits };
    vec![
        Record::Select { db: 0 },
        set(None, Traits { flags: 5, ..Traits::default() }),
        set(Some(1_700_000_000_000), Traits { flags: u32::MAX, ..Origin::Edited.into() }),
        set(None, Traits { stale: true, ..Origin::Computed.into() }),
        set(None, Traits { flags: 1, stale: true, won: true, ..Traits::default() }),
        set(None, Traits::default()),
    ]
}

/// What version 5 has added.
fn golden_5() -> Vec<Record<'static>> {
    vec![
        Record::Select { db: 0 },
        Record::HSet { key: b"key", pairs: Words::List(&[b"field", b"value"]) },
        Record::HSet { key: b"key", pairs: Words::List(&[b"", b"\r\n", b"a", b"1", b"b", b""]) },
        Record::HDel { key: b"key", fields: Words::List(&[b"field"]) },
        Record::HDel { key: b"key", fields: Words::List(&[b"a", b"", b"b", b"c", b"d", b"e"]) },
    ]
}

/// What version 6 has added, and two records of version 5.
fn golden_6() -> Vec<Record<'static>> {
    let known = |expire_at, traits| Record::Traits { key: b"key", expire_at, traits };
    let fields = Words::List(&[b"field", b""]);
    vec![
        Record::Select { db: 0 },
        known(None, Traits::default()),
        known(Some(1_700_000_000_000), Traits::default()),
        known(None, Traits { flags: 5, stale: true, ..Traits::default() }),
        known(Some(-1), Traits { stale: true, won: true, ..Origin::Edited.into() }),
        Record::HPexpireAt { key: b"key", at: 1_700_000_000_000, fields },
        Record::HPersist { key: b"key", fields },
    ]
}

#[test]
fn texts_of_all_versions_are_read() {
    let path = |version| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        folder.join(format!("records-{version}.resp"))
    };
    let now = written(&golden_6()).0;
    if std::env::var("MIDI_WRITE_GOLDEN").is_ok() && !path(RECORD_VERSION).exists() {
        fs::write(path(RECORD_VERSION), &now).expect("a new file");
    }
    let older = [(1, golden_1()), (2, golden_2()), (4, golden_4()), (5, golden_5())];
    for (version, golden) in older {
        let written_before = fs::read(path(version)).expect("a golden file");
        assert_eq!(read(&written_before), Ok(golden.clone()));
        assert_eq!(written(&golden).0, written_before, "version {version} is what it was");
    }
    assert_eq!(read(&now), Ok(golden_6()));
    assert!(now == fs::read(path(RECORD_VERSION)).expect("each version has a file"));
}
