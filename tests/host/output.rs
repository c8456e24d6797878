//! The promise: where the host has a hard limit for a client's pending output, midi makes no
//! replies beyond it. A client gets every reply that the host would have let pass.

use crate::common::{Client, Mode, Server, Value};

const MEGABYTE: usize = 1 << 20;

fn server(mode: Mode, limits: &str) -> Server {
    mode.builder().config(format!("client-output-buffer-limit {limits}")).start()
}

/// Keys whose names take 100 MB, and values of 1 MB: kept ones, copied ones, and one of 200 MB.
fn fill(client: &mut Client) {
    client.ok(&format!("MIDI.POPULATE 900000 {}", "n".repeat(110)));
    let value = vec![b'v'; MEGABYTE];
    for number in 0..100 {
        let keep = if number % 2 == 0 { "32768" } else { "4294967295" };
        client.ok(&format!("CONFIG SET midi.keep-bytes {keep}"));
        assert_eq!(
            client.call(&[b"MIDI.SET", format!("v{number}").as_bytes(), &value]),
            Value::ok()
        );
    }
    assert_eq!(client.integer("MIDI.SETRANGE large 200000000 x"), 200_000_001);
}

/// MGET of this many of the values.
fn mget(values: usize) -> String {
    let keys: String = (0..values).map(|number| format!(" v{number}")).collect();
    format!("MIDI.MGET{keys}")
}

fn try_run(server: &Server, line: &str) -> Option<Value> {
    let words: Vec<&str> = line.split_whitespace().collect();
    server.client().try_call(&words).ok()
}

#[test]
fn replies_beyond_the_output_limit_are_not_made() {
    for mode in Mode::with_jobs() {
        let server = server(mode, "normal 10mb 0 0");
        let mut other = server.client();
        fill(&mut other);
        let lines = [
            mget(100),
            "MIDI.KEYS *".into(),
            "MIDI.SCAN 0 COUNT 10000000".into(),
            "MIDI.GET large".into(),
        ];
        for line in &lines {
            let before = server.peak_memory();
            assert!(try_run(&server, line).is_none(), "{mode:?}: {line}");
            let taken = server.peak_memory().saturating_sub(before);
            // The larger of both classes' limits, where a client's class is not known.
            assert!(taken < 60 * MEGABYTE, "{mode:?}: {line}: {taken} bytes");
            assert_eq!(other.run("PING").text(), "PONG");
        }
        let closed = server.log().matches("closed for overcoming of output buffer limits").count();
        assert_eq!(closed, lines.len(), "{}", server.log());
        // As much as the host lets pass.
        let values = try_run(&server, &mget(9)).expect("a reply").array();
        assert!(values.iter().all(|value| value.bytes().len() == MEGABYTE));
        assert_eq!(
            other.call(&["CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0"]),
            Value::ok()
        );
        assert_eq!(try_run(&server, &mget(100)).expect("a reply").array().len(), 100);
        assert_eq!(try_run(&server, "MIDI.KEYS *").expect("a reply").array().len(), 900_101);
        assert_eq!(try_run(&server, "MIDI.GET large").expect("a reply").bytes().len(), 200_000_001);
    }
}

/// Other classes of clients may have other limits.
#[test]
fn a_value_is_not_copied_for_a_client_that_may_not_have_it() {
    for mode in Mode::with_jobs() {
        let server = server(mode, "normal 1mb 0 0 pubsub 0 0 0");
        let mut other = server.client();
        assert_eq!(other.integer("MIDI.SETRANGE large 200000000 x"), 200_000_001);
        let before = server.peak_memory();
        for line in ["MIDI.GET large", "MIDI.GETRANGE large 0 -1", "MIDI.GETDEL large"] {
            assert!(try_run(&server, line).is_none(), "{mode:?}: {line}");
            assert_eq!(other.run("PING").text(), "PONG");
        }
        let taken = server.peak_memory().saturating_sub(before);
        assert!(taken < 60 * MEGABYTE, "{mode:?}: {taken} bytes");
        assert_eq!(other.integer("MIDI.EXISTS large"), 0);
    }
}

/// Replies of sizes near the host's limit: midi and the host must agree, except for what is in
/// buffers.
#[test]
fn the_limit_is_the_hosts() {
    let server = server(Mode::Pool, "normal 1mb 0 0");
    let mut other = server.client();
    let value = vec![b'x'; 1000];
    assert_eq!(other.call(&[&b"SET"[..], b"k", &value]), Value::ok());
    assert_eq!(other.call(&[&b"MIDI.SET"[..], b"k", &value]), Value::ok());
    let most = |name: &str| {
        let passes =
            |&times: &usize| try_run(&server, &format!("{name}{}", " k".repeat(times))).is_some();
        (980..1140).step_by(10).filter(passes).max().expect("one that passes")
    };
    let (hosts, midis) = (most("MGET"), most("MIDI.MGET"));
    assert!(hosts < 1100 && (hosts..=hosts + 30).contains(&midis), "{hosts}, {midis}");
}

/// Some hosts do not block clients with subscriptions. Their commands run to the end at once.
#[test]
fn a_subscriber_is_answered_whatever_it_asks() {
    for mode in Mode::with_jobs() {
        let server = server(mode, "normal 0 0 0");
        let mut client = server.client().resp3();
        client.send_line("SUBSCRIBE news");
        assert_eq!(client.read().array().len(), 3);
        client.ok("MIDI.POPULATE 50000 key");
        client.ok("MIDI.SET k v");
        assert_eq!(client.run("MIDI.GET k").text(), "v");
        assert_eq!(client.run("MIDI.KEYS *").array().len(), 50_001);
        let keys: String = (0..200).map(|number| format!(" key:{number}")).collect();
        assert_eq!(client.run(&format!("MIDI.MGET{keys}")).array().len(), 200);
        client.ok("SET native v");
        assert_eq!(client.run("MIDI.IMPORT native").array().len(), 3);
        client.ok("MIDI.FLUSHALL");
        assert_eq!(client.run("MIDI.GET k"), Value::Null);
    }
}

#[test]
fn a_subscriber_has_the_limit_of_its_class() {
    for (limits, is_answered) in [
        ("normal 1mb 0 0 pubsub 0 0 0", true),
        ("normal 1mb 0 0 pubsub 20mb 0 0", true),
        ("normal 20mb 0 0 pubsub 1mb 0 0", false),
        ("normal 0 0 0 pubsub 1mb 0 0", false),
    ] {
        let server = server(Mode::Adaptive, limits);
        let mut client = server.client().resp3();
        client.ok(&format!("MIDI.POPULATE 50000 {}", "n".repeat(100)));
        client.send_line("SUBSCRIBE news");
        assert_eq!(client.read().array().len(), 3);
        match client.try_call(&["MIDI.KEYS", "*"]) {
            Ok(keys) => assert!(is_answered && keys.array().len() == 50_000, "{limits}"),
            Err(_) => assert!(!is_answered, "{limits}"),
        }
        assert_eq!(server.client().run("PING").text(), "PONG");
    }
}
