//! The promise: `stats` on the memcached port has memcached's reports, and tells nobody what its
//! user may not know.

use std::collections::BTreeMap;

use crate::common::Builder;
use crate::common::memcached::{Memcached, WithMemcached};

/// The fields of a report.
fn report(client: &mut Memcached, which: &str) -> BTreeMap<String, String> {
    let said = client.lines(&format!("{which}\n"));
    let lines = said.strip_suffix("END\n").unwrap_or_else(|| panic!("{which}: {said}"));
    let field = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    };
    lines.lines().map(|line| field(line).unwrap_or_else(|| panic!("{which}: {line}"))).collect()
}

#[test]
fn reports_are_in_memcacheds_words() {
    let server = WithMemcached::start(Builder::new());
    let mut client = server.client();
    for (sent, said) in [
        ("stats items\n", "END\n"),
        ("stats sizes\n", "STAT sizes_status disabled\nEND\n"),
        ("stats x\nstats noreply\n", "ERROR\nERROR\n"),
        ("stats detail\n", "CLIENT_ERROR usage: stats detail on|off|dump\n"),
        ("stats detail ON\n", "CLIENT_ERROR usage: stats detail on|off|dump\n"),
        ("stats detail on\n", "SERVER_ERROR prefixes are not counted here\n"),
        ("stats detail off\nstats detail dump x\n", "OK\nEND\n"),
        ("stats cachedump 1 1\n", "CLIENT_ERROR stats cachedump not allowed\n"),
        ("stats reset\nstats reset noreply\n", "RESET\nRESET\n"),
    ] {
        assert_eq!(client.lines(sent), said, "{sent}");
    }
}

#[test]
fn a_reset_begins_the_counts_again() {
    let server = WithMemcached::start(Builder::new());
    let mut client = server.client();
    client.lines("set a 0 0 1\nx\nget a\nget a b\n");
    const COUNTS: [(&str, &str); 4] =
        [("cmd_set", "1"), ("cmd_get", "3"), ("get_hits", "2"), ("get_misses", "1")];
    let before = report(&mut client, "stats");
    assert_eq!(COUNTS.map(|(name, _)| (name, &before[name][..])), COUNTS);
    assert_eq!(client.lines("stats reset\n"), "RESET\n");
    let after = report(&mut client, "stats");
    assert_eq!(COUNTS.map(|(name, _)| &after[name][..]), ["0"; COUNTS.len()]);
    assert_eq!(&after["curr_items"], "1");
}

#[test]
fn meta_gets_are_look_ups() {
    let server = WithMemcached::start(Builder::new());
    let mut client = server.client();
    client.lines("ms a 1\nx\nmg a v\nmg a\nmg b v\nmg c v N0\nmg a T0\nme a\nme nosuch\n");
    let after = report(&mut client, "stats");
    assert_eq!((&after["get_hits"][..], &after["get_misses"][..]), ("3", "2"));
}

#[test]
fn connections_are_those_of_memcacheds_clients() {
    let server = WithMemcached::start(Builder::new());
    let (mut client, mut other) = (server.client(), server.client());
    let mut redis = server.server.midi_client();
    redis.ok("SET a 1");
    assert_eq!(other.lines("get b\n"), "END\n");
    let connections = report(&mut client, "stats conns");
    let of = |field: &str| -> Vec<&str> {
        let with = connections.iter().filter(|(name, _)| name.ends_with(field));
        with.map(|(_, value)| &value[..]).collect()
    };
    let listens = format!("tcp:127.0.0.1:{}", server.number());
    assert_eq!(of(":listen_addr"), [&listens, &listens]);
    assert!(of(":addr").iter().all(|address| address.starts_with("tcp:127.0.0.1:")));
    assert_eq!(of(":state").iter().filter(|state| **state == "conn_parse_cmd").count(), 1);
    assert_eq!(of(":secs_since_last_cmd").len(), 2);
    assert_eq!(connections.len(), 8, "{connections:?}");
}

#[test]
fn a_report_needs_rights() {
    let server = WithMemcached::start(Builder::new());
    let mut host = server.server.client();
    host.ok("ACL SETUSER some on >pass ~* +get +midi.get");
    host.ok("CONFIG SET requirepass secret");
    for (login, conns, reset) in [("some pass", false, false), ("default secret", true, true)] {
        let mut client = server.client();
        client.send(format!("set x 0 0 {}\r\n{login}\r\n", login.len()).as_bytes());
        assert_eq!(client.read_until("\r\n"), "STORED\r\n");
        for (sent, may) in [("stats conns\n", conns), ("stats reset\n", reset)] {
            let said = client.lines(sent);
            assert_eq!(said.starts_with("SERVER_ERROR NOPERM "), !may, "{login}, {sent}: {said}");
        }
        assert!(report(&mut client, "stats").contains_key("uptime"));
    }
    host.call(&["CONFIG", "SET", "requirepass", ""]);
}
