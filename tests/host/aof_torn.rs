//! The promise: an AOF whose end was cut off is loaded up to the last whole command: a state that
//! was. `redis-check-aof --fix` comes to the same.
//!
//! Environment: `MIDI_AOF_CUTS` (at how many places it is cut, from the end).

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::aof::builder;
use crate::common::aof::{self, State};
use crate::common::{Client, Door, Mode, Server, redis_server, words};

fn cuts() -> usize {
    let text = std::env::var("MIDI_AOF_CUTS");
    text.map_or(24, |text| text.parse().expect("MIDI_AOF_CUTS"))
}

/// Adds the next number to both lists, together.
fn append(server: &Server, number: usize) {
    let mut client = server.client();
    let both = [format!("APPEND l {number},"), format!("APPEND m {number},")];
    let door = [Door::Host, Door::Port][number % 2];
    if number % 4 < 2 {
        let mut client = door.client(server);
        client.ok("MULTI");
        both.iter().for_each(|line| drop(client.call(&door.named(&words(line)))));
        client.run("EXEC");
    } else {
        let script = "redis.call('MIDI.APPEND', 'l', ARGV[1]) redis.call('INCR', 'n') \
            return redis.call('MIDI.APPEND', 'm', ARGV[1])";
        client.call(&["EVAL", script, "0", &format!("{number},")]);
    }
    // The port's writes are in the file.
    client.ok("MIDI.SET end 1");
}

/// How many numbers the lists have, which must be equal, and without a gap.
fn count(client: &mut Client) -> usize {
    let lists = ["l", "m"].map(|name| {
        let text = client.run(&format!("MIDI.GET {name}"));
        if text.is_null() { String::new() } else { text.text() }
    });
    assert_eq!(lists[0], lists[1], "half of a transaction");
    let count = lists[0].matches(',').count();
    let expected: String = (0..count).map(|number| format!("{number},")).collect();
    assert_eq!(lists[0], expected);
    count
}

/// Starts the server with this as the end of its AOF.
fn started_with(server: &mut Server, text: &[u8]) -> Client {
    server.crash();
    fs::write(aof::incr_file(server), text).expect("the AOF");
    server.restart(redis_server());
    server.client()
}

#[test]
fn a_torn_end() {
    let mut server = builder(Mode::Adaptive).start();
    (0..8).for_each(|number| append(&server, number));
    aof::wait_until_written(&mut server.client());
    let whole = fs::read(aof::incr_file(&server)).expect("the AOF");
    // The last four.
    let marks: Vec<usize> = (0..whole.len()).filter(|&at| whole[at..].starts_with(b"3,")).collect();
    let from = marks.last().copied().expect("number 3");
    let step = ((whole.len() - from) / cuts()).max(1);
    let mut last = 8;
    for at in (from..=whole.len()).rev().step_by(step) {
        let mut client = started_with(&mut server, &whole[..at]);
        let now = count(&mut client);
        assert!(now <= last && now >= 3, "{now} after {last}, cut at {at}");
        last = now;
        let loaded = State::of(&mut client);
        let fixed = fixed(&server, &whole[..at]);
        let mut client = started_with(&mut server, &fixed);
        loaded.must_equal(&State::of(&mut client), &format!("repaired, cut at {at}"));
    }
    assert!(last < 5, "{last} are left of a file that ends behind number 3");
}

/// The verdict of the host's tool on a file.
fn fixed(server: &Server, text: &[u8]) -> Vec<u8> {
    let path = server.dir().join("torn.aof");
    fs::write(&path, text).expect("a file");
    let mut command = Command::new(aof::check_tool(server));
    command.arg("--fix").arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the host's tool");
    // It asks first, if there is something to repair.
    let _ = child.stdin.take().expect("a pipe").write_all(b"y\n");
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    fs::read(path).expect("the repaired file")
}
