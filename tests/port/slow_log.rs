//! The promise: SLOWLOG on the port has the port's slow commands, and those of both doors that
//! waited for another thread, as the host's has them.

use super::session::ported;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, wait_until};

/// What SLOWLOG GET returns of a command: its arguments, its client's address, its client's name.
type Logged = (Vec<String>, String, String);

fn logged(client: &mut Client) -> Vec<Logged> {
    let of_call = |call: Value| {
        let fields = call.array();
        let [_, _, micros, words, address, name] = &fields[..] else {
            panic!("six fields: {fields:?}")
        };
        assert!(micros.integer() >= 0);
        let words = words.clone().array().iter().map(Value::text).collect();
        (words, address.text(), name.text())
    };
    client.run("SLOWLOG GET -1").array().into_iter().map(of_call).collect()
}

/// The arguments alone, the oldest command first.
fn lines(client: &mut Client) -> Vec<String> {
    logged(client).into_iter().rev().map(|(words, ..)| words.join(" ")).collect()
}

fn set_threshold(ported: &Ported, micros: i64) {
    ported.host().ok(&format!("CONFIG SET slowlog-log-slower-than {micros}"));
}

/// The address that CLIENT LIST or CLIENT INFO has of a client.
fn address(client: &mut Client) -> String {
    let info = client.run("CLIENT INFO").text();
    let mut words = info.split(' ').filter_map(|word| word.strip_prefix("addr="));
    words.next().expect("an address").to_owned()
}

/// A script that takes far more than 10 ms anywhere. TIME stands still in scripts of newer hosts,
/// and older ones have no other clock.
const SLOW: &str = "for _ = 1, 3e7 do end";

#[test]
fn all_commands_are_logged_if_the_threshold_is_zero() {
    let ported = ported();
    let (mut client, mut asker) = (ported.client(), ported.client());
    client.ok("CLIENT SETNAME someone");
    let from = address(&mut client);
    set_threshold(&ported, 0);
    asker.ok("SLOWLOG RESET");
    client.ok("SET a 1");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    client.pipeline(&["SET b 2", "GET a", "GET b", "INCR a", "GET none"].map(words));
    client.run("MGET a b");
    client.call(&["EVAL", "return 1", "0"]);
    // On a worker, with a command of the port's own, and on the main thread.
    for commands in [["GET a", "MGET a b"], ["GET a", "PING"], ["GET b", "KEYS a"]] {
        client.pipeline(&["MULTI", commands[0], commands[1], "EXEC"].map(words));
    }
    client.run("NOSUCH");
    let expected = [
        "SET a 1",
        "SET b 2",
        "GET a",
        "GET b",
        "INCR a",
        "GET none",
        "MGET a b",
        "EVAL return 1 0",
        "GET a",
        "MGET a b",
        "GET a",
        "PING",
        "GET b",
        "KEYS a",
    ];
    assert_eq!(lines(&mut asker), expected);
    assert_eq!(asker.integer("SLOWLOG LEN"), expected.len() as i64);
    assert!(logged(&mut asker).iter().all(|(_, address, name)| {
        (address.as_str(), name.as_str()) == (from.as_str(), "someone")
    }));
    assert_eq!(ported.host().run("MIDI.SLOWLOG GET 2").array().len(), 2);
    // Numbers go on, and the newest comes first.
    let first = asker.run("SLOWLOG GET 1").array()[0].clone().array();
    assert_eq!(first[3], Value::Array(["KEYS", "a"].map(Value::bulk).into()));
    asker.ok("SLOWLOG RESET");
    client.run("GET a");
    let next = asker.run("SLOWLOG GET").array().remove(0).array();
    assert_eq!(next[0].integer(), first[0].integer() + 1);
    assert!((next[1].integer() - first[1].integer()).abs() < 1_000, "both are now");
}

#[test]
fn each_command_of_exec_has_its_own_time() {
    let ported = ported();
    let mut client = ported.client();
    set_threshold(&ported, 1);
    let mut set = vec!["HSET".to_owned(), "h".to_owned()];
    set.extend((0..100_000).map(|number| number.to_string()));
    let one = |word: &str| vec![word.to_owned()];
    client.pipeline(&[one("MULTI"), set, one("PING"), one("EXEC")]);
    let micros = |name: &str, client: &mut Client| -> i64 {
        let calls = client.run("SLOWLOG GET").array().into_iter().map(Value::array);
        let of_name = calls.filter(|call| call[3].clone().array()[0].text() == name);
        of_name.map(|call| call[2].integer()).sum()
    };
    let (set, ping) = (micros("HSET", &mut client), micros("PING", &mut client));
    assert!(set > 2 * ping, "{set} and {ping}");
}

#[test]
fn the_host_s_settings_hold() {
    let ported = ported();
    let (mut client, mut host) = (ported.client(), ported.host());
    set_threshold(&ported, -1);
    client.call(&["EVAL", SLOW, "0"]);
    assert_eq!(lines(&mut client), [""; 0]);
    set_threshold(&ported, 10_000);
    for (first, last) in [("MULTI", "EXEC"), ("PING", "PING")] {
        client.run("SLOWLOG RESET");
        client.run(first);
        client.call(&["EVAL", SLOW, "0"]);
        client.run("GET a");
        client.run(last);
        let found = logged(&mut client);
        assert!(found.len() == 1 && found[0].0[..2] != ["GET", "a"], "{found:?}");
    }
    assert!(client.run("SLOWLOG GET").array()[0].clone().array()[2].integer() >= 10_000);
    set_threshold(&ported, 0);
    host.ok("CONFIG SET slowlog-max-len 3");
    for number in 0..5 {
        client.run(&format!("GET {number}"));
    }
    assert_eq!(lines(&mut client), ["GET 2", "GET 3", "GET 4"]);
    host.ok("CONFIG SET slowlog-max-len 1");
    assert_eq!(lines(&mut client), ["GET 4"]);
}

#[test]
fn jobs_and_queued_commands_of_both_doors_are_logged() {
    let ported = Ported::start(Mode::Pool.builder());
    let (mut client, mut host) = (ported.client(), ported.host());
    host.ok("CLIENT SETNAME named");
    let addresses = [address(&mut client), address(&mut host)];
    set_threshold(&ported, 0);
    client.ok("SLOWLOG RESET");
    client.run("KEYS x*");
    host.run("MIDI.KEYS y*");
    host.run("MIDI.GET z");
    let mut asker = ported.client();
    // A job's end is noted before its reply leaves, a queued command's with its reply.
    wait_until("all are logged", || asker.integer("SLOWLOG LEN") >= 3);
    let mut found = logged(&mut asker);
    found.sort();
    let entry = |line: &str, address: &str, name: &str| {
        let words = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        (words, address.to_owned(), name.to_owned())
    };
    let [of_port, of_host] = addresses;
    let expected = [
        entry("KEYS x*", &of_port, ""),
        entry("MIDI.GET z", &of_host, "named"),
        entry("MIDI.KEYS y*", &of_host, "named"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn passwords_are_not_logged() {
    let ported = ported();
    let mut client = ported.client();
    set_threshold(&ported, 0);
    client.run("AUTH default secret1");
    client.run("AUTH secret2");
    client.run("HELLO 3 AUTH default secret3 SETNAME x");
    ported.host().ok("CONFIG SET requirepass secret4");
    client.ok("AUTH secret4");
    let mut stranger = ported.client();
    stranger.run("HELLO 3 AUTH default wrong");
    stranger.run("GET a");
    let all = lines(&mut client).join("\n");
    assert!(!all.contains("secret") && !all.contains("wrong") && !all.contains("GET"), "{all}");
}

#[test]
fn arguments_are_cut_and_errors_are_as_on_the_host() {
    let ported = ported();
    let (mut client, mut host) = (ported.client(), ported.host());
    set_threshold(&ported, 0);
    let long = "x".repeat(300);
    let many: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let set = ["SET".to_owned(), "k".to_owned(), long];
    let mget = [&["MGET".to_owned()][..], &many].concat();
    for client in [&mut client, &mut host] {
        client.ok("SLOWLOG RESET");
        client.call(&set);
        client.call(&mget);
    }
    let own = |line: &&String| line.starts_with("SET") || line.starts_with("MGET");
    let of_host = lines(&mut host);
    assert_eq!(lines(&mut client), of_host.iter().filter(own).cloned().collect::<Vec<_>>());
    for line in [
        "SLOWLOG",
        "SLOWLOG GET -2",
        "SLOWLOG GET x",
        "SLOWLOG GET 1 2",
        "SLOWLOG LEN 1",
        "SLOWLOG RESET 1",
        "SLOWLOG NOSUCH",
    ] {
        assert_eq!(client.run(line), host.run(line), "{line}");
    }
    assert!(client.run("SLOWLOG HELP").array().len() > 4);
    let in_multi = |client: &mut Client| {
        client.ok("MULTI");
        client.run("SLOWLOG RESET");
        client.run("SLOWLOG LEN");
        client.run("EXEC")
    };
    assert_eq!(in_multi(&mut client), in_multi(&mut host));
}

#[test]
fn the_slow_log_is_for_administrators() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER plain on >plain ~* +@all -@dangerous");
    admin.ok("ACL SETUSER reader on >reader ~* +@all -slowlog|reset");
    for line in ["SLOWLOG GET", "SLOWLOG LEN", "SLOWLOG RESET"] {
        assert!(ported.client_of("plain").run(line).text().starts_with("NOPERM"), "{line}");
        let at_host = ported.host_of("plain").run(&format!("MIDI.{line}"));
        assert!(at_host.text().starts_with("NOPERM"), "{line}");
    }
    let mut reader = ported.client_of("reader");
    assert_eq!(reader.run("SLOWLOG GET"), Value::Array(vec![]));
    assert!(reader.run("SLOWLOG RESET").text().starts_with("NOPERM"));
}

#[test]
fn the_latency_monitor_has_slow_commands_of_the_port() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    port.ok("DEBUG POPULATE 100000");
    assert_eq!(port.run("LATENCY HISTORY midi-command"), Value::Array(Vec::new()));
    host.ok("CONFIG SET latency-monitor-threshold 1");
    wait_until("the host knows of a slow command", || {
        port.run("KEYS nosuch*");
        !port.run("LATENCY HISTORY midi-command").array().is_empty()
    });
    let latest = port.run("LATENCY LATEST").array();
    assert!(latest.iter().any(|event| event.clone().array()[0].text() == "midi-command"));
    for line in
        ["LATENCY GRAPH nosuch", "LATENCY HISTORY", "LATENCY RESET nosuch", "LATENCY NOSUCH"]
    {
        assert_eq!(port.run(line), host.run(line), "{line}");
    }
    assert!(port.run("LATENCY GRAPH midi-command").text().contains("midi-command"));
    assert!(port.run("LATENCY DOCTOR").text().contains("midi-command"));
    assert!(port.run("LATENCY HELP").array().len() > 10);
    port.run("HELLO 3");
    for line in ["LATENCY GRAPH midi-command", "LATENCY DOCTOR"] {
        assert!(matches!(port.run(line), Value::Verbatim(_)), "{line}");
    }
    host.ok("CONFIG SET latency-monitor-threshold 0");
    assert_eq!(port.integer("LATENCY RESET midi-command"), 1);
}
