//! The promise: a value of any size that fits is logged once, and a byte appended to it is logged
//! as that byte.
//!
//! Environment: `MIDI_LARGE_MB` (the size of the value; 512, the host's limit, takes the server
//! 2.1 GB).

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use super::aof::builder;
use crate::common::aof::{crash, incr_file, parse};
use crate::common::{Door, Mode, Server, Value, shown};

/// The size of the value once a byte has been appended.
fn size() -> usize {
    let text = std::env::var("MIDI_LARGE_MB");
    text.map_or(32, |text| text.parse().expect("MIDI_LARGE_MB")) << 20
}

fn file_size(server: &Server) -> u64 {
    std::fs::metadata(incr_file(server)).expect("the AOF").len()
}

/// The last command of the file, as records if it is a text of them, in one line.
fn last_line(server: &Server, from: u64) -> String {
    let mut file = File::open(incr_file(server)).expect("the AOF");
    file.seek(SeekFrom::Start(from)).expect("a place in it");
    let mut text = Vec::new();
    file.read_to_end(&mut text).expect("its end");
    let (commands, rest) = parse(&text);
    assert!(rest.is_empty(), "whole commands");
    let last = commands.last().expect("a command");
    let text = if last[0] == b"MIDI.JOURNAL" { &last[1][..] } else { &[] };
    let (records, _) = parse(text);
    shown(records.last().unwrap_or(last))
}

#[test]
fn a_large_value_and_one_byte_more() {
    let size = size();
    for door in [Door::Host, Door::Port] {
        let builder = builder(Mode::Adaptive).config("auto-aof-rewrite-percentage 0");
        let mut server = builder.start();
        let mut client = door.client(&server);
        let words = [b"SET".to_vec(), b"k".to_vec(), vec![b'v'; size - 1]];
        assert_eq!(client.call(&door.named(&words)), Value::ok());
        let logged = file_size(&server);
        // Parts have a head each.
        let most = size + 1000 + 100 * (size >> 20);
        assert!((size as u64..most as u64).contains(&logged), "{logged} bytes");
        let reply = client.call(&door.named(&["APPEND", "k", "x"]));
        assert_eq!(reply, Value::Integer(size as i64), "{door:?}");
        assert!(file_size(&server) - logged < 1000);
        // A worker may have done it for the host's door.
        let line = last_line(&server, logged);
        assert_eq!(line.strip_prefix("MIDI.").unwrap_or(&line), "APPEND k x");
        let digest = server.client().run("MIDI.KEYSPACEDIGEST");
        let mut client = crash(&mut server);
        assert_eq!(client.run("MIDI.KEYSPACEDIGEST"), digest);
        assert_eq!(client.integer("MIDI.STRLEN k"), size as i64);
        assert_eq!(client.run("MIDI.GETRANGE k -2 -1"), Value::bulk("vx"));
    }
}
