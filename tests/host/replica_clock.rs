//! The promise: a replica whose clock is wrong by minutes has what its master has. By its clock it
//! hides keys, or shows them for too long; only its master removes them.

use crate::common::clock::Clock;
use crate::common::replicas::{builder, follow, must_become_equal};
use crate::common::{Client, Door, Mode, Server, Value, wait_until, words};

const KEYS: i64 = 200;
const WRONG_BY_MS: i64 = 600_000;

/// Lines that are sent for each of some keys; # is its number.
const LINES: [&str; 6] = [
    "SET soon:# x PX #",
    "SET later:# x EX 300",
    "SET never:# x",
    "SET kept:# x EX 300",
    "PERSIST kept:#",
    "APPEND later:# y",
];

fn write(client: &mut Client, door: Door, numbers: impl Iterator<Item = i64>) {
    let of_key = |number: i64| {
        let line = move |line: &str| line.replace('#', &(1 + number).to_string());
        LINES.map(|it| door.named(&words(&line(it))))
    };
    let commands: Vec<_> = numbers.flat_map(of_key).collect();
    for reply in client.pipeline(&commands) {
        assert!(!reply.is_error(), "{reply:?}");
    }
}

/// A replica's view of a key that its master has, and that has expired by the replica's clock.
fn shows(replica: &Server, value: Value) {
    for mut client in [replica.client(), replica.midi_client()] {
        wait_until("it shows so", || client.run("MIDI.GET later:1") == value);
        assert_eq!(client.run("MIDI.GET never:1"), Value::bulk("x"));
        assert_eq!(client.run("MIDI.GET kept:1"), Value::bulk("x"));
    }
}

/// The server's time, in seconds.
fn time(client: &mut Client) -> i64 {
    client.run("TIME").array()[0].text().parse().expect("a number")
}

#[test]
fn a_wrong_clock_changes_nothing() {
    for (ahead, seen) in [(WRONG_BY_MS, Value::NullBulk), (-WRONG_BY_MS, Value::bulk("xy"))] {
        let master = builder(Mode::Adaptive).start();
        let (mut host, mut port) = (master.client(), master.midi_client());
        let clock = Clock::new();
        clock.pass(ahead);
        let replica = clock.of(builder(Mode::Adaptive)).start();
        let right = time(&mut host);
        let is_ahead = |client: &mut Client| (time(client) - right - ahead / 1000).abs() < 60;
        assert!(is_ahead(&mut replica.client()), "the host's clock is wrong");
        assert!(is_ahead(&mut replica.midi_client()), "midi's clock is wrong");
        write(&mut host, Door::Host, (0..KEYS).step_by(4));
        write(&mut port, Door::Port, (1..KEYS).step_by(4));
        // These come with a full sync, the others in the stream.
        follow(&replica, master.port());
        write(&mut host, Door::Host, (2..KEYS).step_by(4));
        write(&mut port, Door::Port, (3..KEYS).step_by(4));
        wait_until("they expire", || host.run("MIDI.DBSIZE") == Value::Integer(3 * KEYS));
        must_become_equal(&[&master, &replica], "after keys have expired");
        assert_eq!(replica.client().run("MIDI.DBSIZE"), Value::Integer(3 * KEYS));
        shows(&replica, seen);
        for number in 1..=KEYS {
            port.run(&format!("PERSIST later:{number}"));
        }
        shows(&replica, Value::bulk("xy"));
        must_become_equal(&[&master, &replica], "at the end");
    }
}
