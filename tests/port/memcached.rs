//! The promise: memcached's clients are served as memcached serves them, on the same keys as
//! Redis's clients, and what they store is saved, logged and replicated.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::common::memcached::{Memcached, WithMemcached};
use crate::common::replicas::{follow, wait_for_link};
use crate::common::{Builder, Mode, Value, aof, wait_until};

fn in_all_modes(body: impl Fn(&WithMemcached)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        body(&WithMemcached::start(mode.builder()));
    }
}

/// As memcached with -F.
#[test]
fn nothing_is_flushed_where_the_operator_has_disabled_flushdb() {
    let server = WithMemcached::start(Builder::new().config("rename-command FLUSHDB \"\""));
    let mut client = server.client();
    let refused = "STORED\nCLIENT_ERROR flush_all not allowed\nVALUE a 0 1\nx\nEND\n";
    assert_eq!(client.lines("set a 0 0 1\nx\nflush_all\nflush_all noreply\nget a\n"), refused);
}

#[test]
fn what_the_operator_has_disabled_is_not_there() {
    let disabled = ["GET", "SET", "DEL", "APPEND", "INCRBY", "CLIENT", "CONFIG", "FLUSHDB"]
        .map(|name| format!("rename-command {name} \"\""));
    let server = WithMemcached::start(disabled.into_iter().fold(Builder::new(), Builder::config));
    let mut client = server.client();
    for (sent, name) in [
        ("get a\n", "get"),
        ("gets a b\n", "get"),
        ("set a 0 0 1\nx\n", "set"),
        ("append a 0 0 1\nx\n", "append"),
        ("incr a 1\n", "incrby"),
        ("delete a\n", "del"),
        ("mg a v\n", "get"),
        ("ms a 1\nx\n", "set"),
        ("stats conns\n", "client|list"),
        ("stats reset\n", "config|resetstat"),
    ] {
        let said = client.lines(sent);
        assert_eq!(said, format!("SERVER_ERROR ERR unknown command '{name}'\n"), "{sent}");
    }
    assert!(client.lines("stats settings\n").contains("STAT flush_enabled no\n"));
}

#[test]
fn commands_are_answered_in_memcacheds_words() {
    in_all_modes(|server| {
        let mut client = server.client();
        for (sent, said) in [
            ("get a\n", "END\n"),
            ("set a 5 0 3\nabc\n", "STORED\n"),
            ("get a b a\n", "VALUE a 5 3\nabc\nVALUE a 5 3\nabc\nEND\n"),
            ("add a 1 0 1\ny\nadd b 1 0 1\ny\n", "NOT_STORED\nSTORED\n"),
            ("replace a 7 0 2\nzz\nreplace c 7 0 2\nzz\n", "STORED\nNOT_STORED\n"),
            (
                "append a 1 0 1\n!\nprepend a 1 0 1\n?\nget a\n",
                "STORED\nSTORED\nVALUE a 7 4\n?zz!\nEND\n",
            ),
            ("append c 1 0 1\n!\nprepend c 1 0 1\n?\n", "NOT_STORED\nNOT_STORED\n"),
            ("delete a\ndelete a\n", "DELETED\nNOT_FOUND\n"),
            ("set n 3 0 2\n10\nincr n 5\ndecr n 100\n", "STORED\n15\n0\n"),
            ("incr n 18446744073709551615\nincr n 2\n", "18446744073709551615\n1\n"),
            ("get n\nincr c 1\n", "VALUE n 3 1\n1\nEND\nNOT_FOUND\n"),
            ("incr b 1\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\n"),
            ("touch b 100\ntouch c 100\n", "TOUCHED\nNOT_FOUND\n"),
            ("gat 100 b c\ngat 0 b\n", "VALUE b 1 1\ny\nEND\nVALUE b 1 1\ny\nEND\n"),
            ("gat -1 b\nget b\n", "VALUE b 1 1\ny\nEND\nEND\n"),
            ("set a 0 -1 1\nb\nget a\n", "STORED\nEND\n"),
            ("set a 0 0 1 noreply\nb\nincr a 1 noreply\nget a\n", "VALUE a 0 1\nb\nEND\n"),
            ("set a 0 0 3\nabcdef\n", "CLIENT_ERROR bad data chunk\nERROR\n"),
            ("cas c 0 0 1 5\nx\n", "NOT_FOUND\n"),
            ("flush_all\nget a n\n", "OK\nEND\n"),
            (
                "flush_all noreply\nversion\n",
                concat!("VERSION 1.6.18-midi-", env!("CARGO_PKG_VERSION"), "\n"),
            ),
        ] {
            assert_eq!(client.lines(sent), said, "{sent}");
        }
    });
}

#[test]
fn a_number_is_of_one_change_through_whatever_door() {
    in_all_modes(|server| {
        let (mut client, mut redis) = (server.client(), server.server.midi_client());
        let mut host = server.server.client();
        client.lines("set a 1 0 1\nx\n");
        let mut last = client.number_of("a");
        assert_eq!(client.number_of("a"), last, "asking changes nothing");
        assert_eq!(client.lines("touch a 1000\n"), "TOUCHED\n");
        assert_eq!(client.number_of("a"), last, "nor does an expiry");
        let changes: [&mut dyn FnMut(&mut Memcached); 5] = [
            &mut |client| drop(client.lines("set a 1 0 1\nx\n")),
            &mut |client| drop(client.lines("append a 1 0 1\nx\n")),
            &mut |_| redis.ok("SET a 1"),
            &mut |_| drop(redis_append(&server.server)),
            &mut |_| host.ok("MIDI.SET a 1"),
        ];
        for change in changes {
            change(&mut client);
            assert_eq!(client.lines(&format!("cas a 0 0 1 {last}\ny\n")), "EXISTS\n");
            let next = client.number_of("a");
            assert!(next > last);
            last = next;
        }
        assert_eq!(client.lines(&format!("cas a 9 0 1 {last}\ny\n")), "STORED\n");
        assert_eq!(client.lines(&format!("cas a 9 0 1 {last}\nz\n")), "EXISTS\n");
        assert_eq!(client.lines("get a\n"), "VALUE a 9 1\ny\nEND\n");
    });
}

fn redis_append(server: &crate::common::Server) -> Value {
    server.midi_client().run("APPEND a 1")
}

#[test]
fn redis_clients_see_the_same_keys() {
    in_all_modes(|server| {
        let (mut client, mut redis) = (server.client(), server.server.midi_client());
        client.lines("set a 5 100 3\nabc\n");
        assert_eq!(redis.run("GET a"), Value::bulk("abc"));
        assert!((99..=100).contains(&redis.integer("TTL a")));
        // Flags stay with the key and with a changed value, not with a new one.
        redis.ok("RENAME a b");
        redis.run("COPY b c");
        redis.run("APPEND c !");
        assert_eq!(client.lines("get b c\n"), "VALUE b 5 3\nabc\nVALUE c 5 4\nabc!\nEND\n");
        redis.ok("SET b new");
        assert_eq!(client.lines("get b\n"), "VALUE b 0 3\nnew\nEND\n");
        let memory = server.server.client().run("MIDI.MEMORY USAGE c").integer();
        assert!(memory < 100, "{memory}");
    });
}

/// Items of every kind.
fn fill(client: &mut Memcached) {
    for number in 0..200 {
        client.lines(&format!("set k{number} {number} 0 2\nab\n"));
    }
    let large = "x".repeat(100_000);
    client.lines(&format!("set large 7 10000 {}\n{large}\nappend large 0 0 1\n!\n", large.len()));
    client
        .lines("set edited 4294967295 0 1\na\nappend edited 0 0 1\nb\nset n 9 0 1\n1\nincr n 6\n");
}

fn is_filled(client: &mut Memcached, when: &str) {
    for number in 0..200 {
        let said = client.lines(&format!("get k{number}\n"));
        assert_eq!(said, format!("VALUE k{number} {number} 2\nab\nEND\n"), "{when}");
    }
    let said = client.lines("get large edited n\n");
    let expected = format!(
        "VALUE large 7 100001\n{}!\nVALUE edited 4294967295 2\nab\nVALUE n 9 1\n7\nEND\n",
        "x".repeat(100_000)
    );
    assert!(said == expected, "{when}: {} bytes", said.len());
}

#[test]
fn items_survive_a_crash_a_rewrite_and_a_restart() {
    for preamble in ["yes", "no"] {
        let builder = Builder::new().config("appendonly yes").config("appendfsync always");
        let builder = builder.config(format!("aof-use-rdb-preamble {preamble}"));
        let mut server = WithMemcached::start(builder);
        fill(&mut server.client());
        let old = server.client().number_of("k1");
        drop(aof::crash(&mut server.server));
        is_filled(&mut server.client(), "after a crash");
        let said = server.client().lines(&format!("cas k1 0 0 1 {old}\nx\n"));
        assert_eq!(said, "EXISTS\n", "numbers are of one process");
        aof::rewrite(&mut server.server.client());
        drop(aof::crash(&mut server.server));
        is_filled(&mut server.client(), "after a rewrite");
        server.server.client().ok("SAVE");
        server.server.client().ok("DEBUG RELOAD");
        is_filled(&mut server.client(), "after a reload");
    }
}

#[test]
fn a_replica_has_the_items_and_refuses_writes() {
    let master = WithMemcached::start(Builder::new());
    fill(&mut master.client());
    let replica = WithMemcached::start(Builder::new());
    follow(&replica.server, master.server.port());
    wait_for_link(&replica.server);
    is_filled(&mut replica.client(), "after the sync");
    let mut client = master.client();
    client.lines("set later 77 0 1\nx\nset k1 5 0 1\ny\nappend k1 0 0 1\nz\n");
    let mut other = replica.client();
    wait_until("the replica has it", || {
        other.lines("get later k1\n") == "VALUE later 77 1\nx\nVALUE k1 5 2\nyz\nEND\n"
    });
    let number = other.number_of("later");
    assert!(other.lines("gets later\n").starts_with("VALUE later 77 1 "));
    for write in ["set a 0 0 1\nx\n", &format!("cas later 0 0 1 {number}\nx\n"), "incr n 1\n"] {
        let said = other.lines(write);
        assert!(said.starts_with("SERVER_ERROR READONLY "), "{write}: {said}");
    }
    assert!(other.lines("delete a\n").starts_with("SERVER_ERROR READONLY "));
    assert!(other.lines("flush_all\n").starts_with("SERVER_ERROR READONLY "));
}

#[test]
fn who_has_not_logged_in_is_told_so_and_a_user_keeps_to_its_rights() {
    let server = WithMemcached::start(Builder::new());
    let mut host = server.server.client();
    host.ok("ACL SETUSER some on >pass ~a* +get +set +del +midi.get +midi.set +midi.del");
    host.ok("CONFIG SET requirepass secret");
    let mut client = server.client();
    for sent in ["get a\n", "version\n", "set a 0 0\n", "gets a b c\n"] {
        assert_eq!(
            lines_of_stranger(&mut client, sent),
            "CLIENT_ERROR unauthenticated\n",
            "{sent}"
        );
    }
    for (token, said) in [
        ("secret", "CLIENT_ERROR bad authentication token format\n"),
        ("default wrong", "CLIENT_ERROR authentication failure\n"),
        ("nobody secret", "CLIENT_ERROR authentication failure\n"),
        ("default secret", "STORED\n"),
    ] {
        let sent = format!("set x 0 0 {}\n{token}\n", token.len());
        assert_eq!(lines_of_stranger(&mut client, &sent), said, "{token}");
    }
    assert_eq!(client.lines("set a 0 0 1\nx\nget a\n"), "STORED\nVALUE a 0 1\nx\nEND\n");
    let mut some = server.client();
    assert_eq!(lines_of_stranger(&mut some, "set x 0 0 9\nsome pass\n"), "STORED\n");
    assert_eq!(some.lines("set a 3 0 1\ny\nget a\n"), "STORED\nVALUE a 3 1\ny\nEND\n");
    for sent in
        ["get a b\n", "set b 0 0 1\nx\n", "incr a 1\n", "flush_all\n", "append a 0 0 1\nx\n"]
    {
        let said = some.lines(sent);
        let last = said.lines().last().expect("a line");
        assert!(last.starts_with("SERVER_ERROR NOPERM "), "{sent}: {said}");
    }
    // Others may send such a line.
    let mut stranger = server.client();
    stranger.send(format!("get {}", "a ".repeat(1500)).as_bytes());
    assert!(stranger.is_closed(), "a line that does not end");
    host.call(&["CONFIG", "SET", "requirepass", ""]);
}

/// As [`Memcached::lines`], for a client that gets one line for whatever it sends.
fn lines_of_stranger(client: &mut Memcached, lines: &str) -> String {
    client.send(lines.replace('\n', "\r\n").as_bytes());
    client.read_until("\r\n").replace("\r\n", "\n")
}

#[test]
fn limits_are_memcacheds() {
    let server = WithMemcached::start(Builder::new());
    let mut client = server.client();
    let long = "k".repeat(251);
    assert_eq!(client.lines(&format!("get a {long}\n")), "CLIENT_ERROR bad command line format\n");
    let key = &long[..250];
    assert_eq!(client.lines(&format!("set {key} 0 0 1\nx\ndelete {key}\n")), "STORED\nDELETED\n");
    client.lines("set a 0 0 1\nx\n");
    let large = "x".repeat((1 << 20) + 1);
    for (name, left) in [("add", "VALUE a 0 1\nx\nEND\n"), ("set", "END\n")] {
        let said = client.lines(&format!("{name} a 0 0 {}\n{large}\nget a\n", large.len()));
        assert_eq!(said, format!("SERVER_ERROR object too large for cache\n{left}"));
    }
    server.server.client().ok("CONFIG SET midi.memcached-item-size 2mb");
    let said = client.lines(&format!("set a 0 0 {}\n{large}\n", large.len()));
    assert_eq!(said, "STORED\n");
    let keys: String = (0..10_000).map(|number| format!(" none{number}")).collect();
    assert!(client.lines(&format!("get{keys} a\n")).starts_with("VALUE a 0 1048577\n"));
    client.send(&[b'x'; 3000]);
    assert!(client.is_closed(), "a line that never ends");
    let mut client = server.client();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.is_closed(), "a browser");
}

#[test]
fn a_value_that_grows_keeps_the_limit() {
    in_all_modes(|server| {
        let mut client = server.client();
        server.server.client().ok("CONFIG SET midi.memcached-item-size 1kb");
        let most = "x".repeat(1023);
        for (sent, said) in [
            (&*format!("set a 0 0 1023\n{most}\n"), "STORED\n"),
            ("append a 0 0 2\n!!\nprepend a 0 0 2\n!!\n", "NOT_STORED\nNOT_STORED\n"),
            ("ms a 2 MA\n!!\nms a 2 MP\n!!\n", "NS\nNS\n"),
            ("append a 0 0 1\n!\nprepend a 0 0 1\n!\n", "STORED\nNOT_STORED\n"),
        ] {
            assert_eq!(client.lines(sent), said);
        }
    });
}

#[test]
fn requests_may_come_in_pieces() {
    in_all_modes(|server| {
        let mut client = server.client();
        let text =
            "set a 5 0 3\r\nabc\r\ngets b a  c \r\ncas a 0 0 1 1\r\nx\r\ndelete a\r\nget a\r\n";
        let expected = client.ask(text.as_bytes());
        let without_number = |said: &str| -> String {
            let words = said.split(' ').map(|word| match word.split_once("\r\n") {
                Some((number, rest)) if number.len() > 8 => format!("N\r\n{rest}"),
                _ => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        };
        assert!(expected.ends_with("EXISTS\r\nDELETED\r\nEND\r\n"), "{expected}");
        for cut in 1..text.len() {
            client.send(&text.as_bytes()[..cut]);
            // The second piece is mostly received by itself.
            std::thread::yield_now();
            let said = client.ask(&text.as_bytes()[cut..]);
            assert_eq!(without_number(&said), without_number(&expected), "cut at {cut}");
        }
        client.ask(b"flush_all\r\n");
        for byte in text.bytes() {
            client.send(&[byte]);
        }
        assert_eq!(without_number(&client.ask(b"")), without_number(&expected));
    });
}

#[test]
fn a_database_of_ones_own_and_a_unix_socket() {
    let builder = Builder::new().load("memcached-database 3 memcached-unixsocket memcached");
    let server = WithMemcached::start(builder);
    let mut client = server.client();
    assert_eq!(client.lines("set a 0 0 1\nx\n"), "STORED\n");
    let mut redis = server.server.midi_client();
    assert!(redis.run("GET a").is_null());
    redis.ok("SELECT 3");
    assert_eq!(redis.run("GET a"), Value::bulk("x"));
    let socket = server.server.dir().join("memcached");
    let mut stream = UnixStream::connect(socket).expect("a connection");
    stream.write_all(b"get a\r\nquit\r\n").expect("an open connection");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("a reply");
    assert_eq!(said, "VALUE a 0 1\r\nx\r\nEND\r\n");
    server.server.client().ok("CONFIG SET midi.memcached-database 1000000");
    let mut late = server.client();
    late.send(b"get a\r\n");
    let said = late.read_until("\r\n");
    assert!(said.starts_with("SERVER_ERROR midi.memcached-database "), "{said}");
    assert!(late.is_closed());
}
