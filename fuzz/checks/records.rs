//! Texts of records: the reader accepts or rejects any bytes, and what it accepted is written as it
//! was read.

use midi::command::record::{Records, header, select};

/// If the first byte is odd, the rest stands behind a version and a SELECT.
pub fn check(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let mut text = Vec::new();
    if mode % 2 == 1 {
        header(u32::from(mode / 2 % 2) + 1, &mut text);
        select(0, &mut text);
    }
    text.extend_from_slice(rest);
    let Ok(records) = Records::new(&text) else { return };
    let mut again = Vec::new();
    header(records.version(), &mut again);
    for record in records {
        match record {
            Ok(record) => record.write(&mut again),
            Err(error) => {
                assert!(error.offset < text.len() || error.offset == again.len());
                return;
            }
        }
    }
    assert_eq!(again, text);
}
