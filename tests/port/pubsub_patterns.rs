//! The promise: clients of the port may subscribe to any number of patterns, of which the host
//! matches some and midi the others. Each hears what it would hear on the host, and a client with
//! very many of them harms itself alone.

use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, wait_until};

/// Patterns of one digit, or two, behind a `c`, and those that are not matched like others.
const PATTERNS: usize = 42;

fn subscribe(client: &mut Client) {
    let mut words = vec!["PSUBSCRIBE".to_owned(), "*".to_owned(), String::new()];
    words.extend((0..PATTERNS - 2).map(|at| format!("c{at}*")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(client.call(&words).array()[0], Value::bulk("psubscribe"));
    for count in 2..=PATTERNS as i64 {
        assert_eq!(client.read().array()[2], Value::Integer(count));
    }
}

/// The patterns by which the client hears messages on these channels, in order of their texts.
fn heard(client: &mut Client, times: usize) -> Vec<String> {
    let mut all: Vec<String> = (0..times)
        .map(|_| {
            let [kind, pattern, channel, text] = &client.read().array()[..] else { panic!() };
            assert_eq!((kind, text), (&Value::bulk("pmessage"), &Value::bulk("m")));
            format!("{} of {}", pattern.text(), channel.text())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn many_patterns_hear_what_they_would_on_the_host() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut on_port, mut on_host) = (ported.client(), ported.host());
    let (mut client, mut host) = (ported.client(), ported.host());
    subscribe(&mut on_port);
    assert_eq!(client.integer("PUBSUB NUMPAT"), PATTERNS as i64);
    assert!(host.integer("PUBSUB NUMPAT") < PATTERNS as i64, "midi matches some");
    subscribe(&mut on_host);
    for (channel, times) in [("c1", 2), ("c11", 3), ("c39", 3), ("c398", 3), ("d", 1), ("", 1)] {
        assert_eq!(client.call(&["PUBLISH", channel, "m"]), Value::Integer(2 * times));
        let expected = heard(&mut on_host, times as usize);
        assert_eq!(heard(&mut on_port, times as usize), expected, "{channel}");
    }
    // A new listener hears the same.
    drop(on_host);
    host.integer("CLIENT KILL TYPE pubsub");
    wait_until("it is back", || client.integer("PUBSUB NUMPAT") == PATTERNS as i64);
    wait_until("all are back", || client.integer("PUBLISH c39 m") == 3);
    while on_port.read().array()[1] != Value::bulk("c39*") {}
    on_port.send_line("PUNSUBSCRIBE");
    wait_until("the host forgets all", || host.integer("PUBSUB NUMPAT") == 0);
    assert_eq!(client.integer("PUBSUB NUMPAT"), 0);
    assert_eq!(client.integer("PUBLISH c39 m"), 0);
}

/// One message for each of these patterns is more than the host keeps for a client.
#[test]
fn very_many_patterns_close_their_own_client() {
    const VERY_MANY: usize = 4000;
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut greedy, mut other) = (ported.client(), ported.client());
    other.run("SUBSCRIBE c");
    let names: Vec<String> = (0..VERY_MANY).map(|at| format!("[c{at}]")).collect();
    let words: Vec<&str> =
        ["PSUBSCRIBE"].into_iter().chain(names.iter().map(String::as_str)).collect();
    assert!(!greedy.call(&words).is_error());
    (1..VERY_MANY).for_each(|_| assert!(!greedy.read().is_error()));
    let large = "y".repeat(16 << 10);
    let mut client = ported.client();
    for _ in 0..3 {
        assert!(client.call(&["PUBLISH", "c", &large]).integer() >= 1);
        assert_eq!(other.read().array()[2], Value::bulk(&large));
    }
    assert!(!ported.server.log().contains("has ended"), "the listener was closed");
    wait_until("its own limit closes it", || client.integer("PUBSUB NUMPAT") == 0);
}
