//! The promise: memcached's meta commands do what its protocol.txt says, and the marks that they
//! leave are saved, logged and replicated. `memcached_beside` compares them with a memcached; here
//! is what an older one does not know, and what nobody but midi has.

use crate::common::memcached::{Memcached, WithMemcached};
use crate::common::replicas::{follow, wait_for_link};
use crate::common::{Builder, Mode, Value, aof, wait_until};

fn in_all_modes(body: impl Fn(&mut Memcached, &WithMemcached)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        let server = WithMemcached::start(mode.builder());
        body(&mut server.client(), &server);
    }
}

/// A reply whose times to live are whole hundreds of seconds: a test may take a while.
fn rounded(said: &str) -> String {
    let round = |word: &str| match word.strip_prefix('t').map(str::parse::<u64>) {
        Some(Ok(seconds)) => format!("t{}", seconds.next_multiple_of(100)),
        _ => word.to_owned(),
    };
    let lines = said.split('\n').map(|line| {
        let words: Vec<String> = line.split(' ').map(round).collect();
        words.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn check(client: &mut Memcached, steps: &[(&str, &str)]) {
    for (sent, said) in steps {
        assert_eq!(rounded(&client.lines(sent)), *said, "{sent}");
    }
}

#[test]
fn items_are_told_as_their_flags_ask() {
    in_all_modes(|client, server| {
        check(
            client,
            &[
                ("mn\n", "MN\n"),
                ("mg a v\nmg a v q\nmg a k Oxy q\nmg a k Oxy\n", "EN\nEN ka Oxy\n"),
                ("ms a 3 T100 F5 k Oq s\nabc\n", "HD ka Oq s3\n"),
                ("mg a s v f t k Oz\n", "VA 3 s3 f5 t100 ka Oz\nabc\n"),
                ("mg a\nmg a T0 t\nmg a t\n", "HD\nHD t-1\nHD t-1\n"),
                ("ms a 1 q\nx\nmd a q\nmd a q\nmd a\n", "NF\nNF\n"),
                ("mg a h\n", "CLIENT_ERROR flag h is not supported\n"),
                ("mg a l\n", "CLIENT_ERROR flag l is not supported\n"),
                ("ms AP8gCg== 1 b k\nx\n", "HD kAP8gCg== b\n"),
                ("mg AP8gCg== b v k\n", "VA 1 kAP8gCg== b\nx\n"),
                (
                    "ma n N0 J18446744073709551615 v\nma n v\n",
                    "VA 20\n18446744073709551615\nVA 1\n0\n",
                ),
                ("ma n D7 q\nma n MD D3 v T500 t\n", "VA 1 t500\n4\n"),
                ("ma n N0 q\nma m N9 q\nma none q\nget m\n", "HD\nNF\nVALUE m 0 1\n0\nEND\n"),
            ],
        );
        let mut redis = server.server.midi_client();
        assert_eq!(redis.call(&[b"GET" as &[u8], b"\x00\xff \n"]), Value::bulk("x"));
        let said = client.lines("ms a 1\nx\nme a\nme none\nme AP8gCg== b\n");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[1].starts_with("ME a exp=-1 cas="), "{said}");
        assert_eq!(lines[2], "EN");
        assert!(lines[3].starts_with("ME AP8gCg== exp=-1 cas="), "{said}");
    });
}

#[test]
fn one_client_wins_the_right_to_renew() {
    in_all_modes(|client, _| {
        check(
            client,
            &[
                ("mg a N300 v t\nmg a N300 v t\n", "VA 0 t300 W\n\nVA 0 t300 Z\n\n"),
                ("ms a 1 T100\nx\nmg a v\n", "HD\nVA 1\nx\n"),
                ("md a I T500\nmg a v t\nmg a v\nget a\n", {
                    "HD\nVA 1 t500 X W\nx\nVA 1 Z X\nx\nVALUE a 0 1\nx\nEND\n"
                }),
                ("md a I\nmg a R30\nmg a R30\n", "HD\nHD X W\nHD Z X\n"),
                ("ms a 1\ny\nmg a\n", "HD\nHD\n"),
                (
                    "ms a 1 T2000\nz\nmg a R1000\nmg a R3000\nmg a R3000\nmg a\n",
                    "HD\nHD\nHD W\nHD Z\nHD Z\n",
                ),
                // What the value was is gone, and the item stays.
                ("ms a 1 F7\nz\nmd a x\nmg a v f t\n", "HD\nHD\nVA 0 f0 t-1\n\n"),
                ("ms a 1 F7\nz\nmd a x I T900 F3\nmg a v f t\n", "HD\nHD\nVA 0 f3 t900 X W\n\n"),
            ],
        );
    });
}

#[test]
fn numbers_decide_who_changes_an_item() {
    in_all_modes(|client, _| {
        check(
            client,
            &[
                (
                    "ms a 1 E100 c\nx\nmg a c\ngets a\n",
                    "HD c100\nHD c100\nVALUE a 0 1 100\nx\nEND\n",
                ),
                ("mg a C100 v\nmg a C99 v\n", "HD\nVA 1\nx\n"),
                ("ms a 1 C99 c\ny\nms none 1 C1\ny\n", "EX c0\nNF\n"),
                ("ms a 1 C100 E200\ny\nmg a c v\n", "HD\nVA 1 c200\ny\n"),
                // An older number makes it stale, a newer one is refused.
                ("ms a 1 C150 I E201\nz\nmg a c v\n", "HD\nVA 1 c201 X W\nz\n"),
                ("ms a 1 C300 I\nz\nms a 1 C201 I E202\nu\nmg a v\n", "EX\nHD\nVA 1\nu\n"),
                ("md a C1\nmd a C202 I E203\nmg a c\n", "EX\nHD\nHD c203 X W\n"),
                ("ms a 1 MA C1\n!\nms a 1 MA C203 s E204\n!\nmg a v c\n", {
                    "EX\nHD s2\nVA 2 c204\nu!\n"
                }),
                ("ms b 1 MA\nx\nms b 1 MA N100 F2\nx\nmg b t f v\n", "NS\nHD\nVA 1 t100 f2\nx\n"),
                ("ms b 1 MP\ny\nms b 1 ME\nz\nms none 1 MR\nz\nget b\n", {
                    "HD\nNS\nNS\nVALUE b 2 2\nyx\nEND\n"
                }),
                ("ms n 1 E5\n1\nma n C4\nma n C5 E6 c\nmd n C6\n", "HD\nEX\nHD c6\nHD\n"),
                ("mg v N0 E77 c\nmd v C77\n", "HD c77 W\nHD\n"),
            ],
        );
    });
}

#[test]
fn too_much_data_is_skipped_and_the_item_removed() {
    let server = WithMemcached::start(Builder::new());
    let mut client = server.client();
    let large = "x".repeat((1 << 20) + 1);
    for (key, flags) in [("a", ""), ("eA==", " b"), ("a", " ME")] {
        let base64 = if flags == " b" { flags } else { "" };
        client.lines(&format!("ms {key} 1{flags}\nx\n"));
        let said =
            client.lines(&format!("ms {key} {}{flags}\n{large}\nmg {key}{base64}\n", large.len()));
        assert_eq!(said, format!("SERVER_ERROR object too large for cache\nEN\n"), "{key}");
    }
    let said = client.lines("ms a 3 MX\nabc\nms a 3 z\nabc\nms a 3\nabcd\n");
    assert_eq!(
        said,
        "CLIENT_ERROR invalid mode for ms M token\nCLIENT_ERROR invalid flag\n\
         CLIENT_ERROR bad data chunk\nERROR\n"
    );
}

/// Items that are marked.
fn mark(client: &mut Memcached) {
    client.lines("ms stale 1 F9\nx\nmd stale I\nms won 1\nx\nmd won I\nmg won\n");
    client.lines("ms plain 1\nx\nms both 1 T1000\nx\nmg both R2000\n");
}

fn are_marked(client: &mut Memcached, when: &str) {
    for (key, said) in [("won", "HD Z X\n"), ("plain", "HD\n"), ("both", "HD Z\n")] {
        assert_eq!(client.lines(&format!("mg {key}\n")), said, "{when}: {key}");
    }
}

#[test]
fn marks_survive_a_crash_a_rewrite_and_a_restart() {
    for preamble in ["yes", "no"] {
        let builder = Builder::new().config("appendonly yes").config("appendfsync always");
        let builder = builder.config(format!("aof-use-rdb-preamble {preamble}"));
        let mut server = WithMemcached::start(builder);
        mark(&mut server.client());
        drop(aof::crash(&mut server.server));
        are_marked(&mut server.client(), "after a crash");
        aof::rewrite(&mut server.server.client());
        drop(aof::crash(&mut server.server));
        are_marked(&mut server.client(), "after a rewrite");
        assert_eq!(server.client().lines("mg stale f\nmg stale\n"), "HD f9 X W\nHD Z X\n");
    }
}

#[test]
fn a_mark_is_logged_without_the_value() {
    let server = WithMemcached::start(Builder::new().config("appendonly yes"));
    let (mut client, value) = (server.client(), "v".repeat(100_000));
    client.lines(&format!("ms k {}\n{value}\nmd k I\nmg k\nmd k I T1000\n", value.len()));
    client.lines("md k I T0\n");
    aof::wait_until_written(&mut server.server.client());
    let lines: Vec<String> = aof::lines(&server.server);
    let lines: Vec<&str> = lines.iter().filter(|it| it.contains(" k")).map(|it| &it[..]).collect();
    let [set, stale, won, expires, stays] = lines[..] else { panic!("{} records", lines.len()) };
    assert!(set.starts_with("SET k vvv"), "{}", &set[..20]);
    assert_eq!([stale, won, stays], ["TRAITS k STALE", "TRAITS k STALE,WON", "TRAITS k STALE"]);
    assert!(expires.starts_with("TRAITS k PXAT ") && expires.ends_with(" STALE"), "{expires}");
}

#[test]
fn a_replica_tells_of_stale_items_and_lets_nobody_win() {
    let master = WithMemcached::start(Builder::new());
    mark(&mut master.client());
    let replica = WithMemcached::start(Builder::new());
    follow(&replica.server, master.server.port());
    wait_for_link(&replica.server);
    let mut client = replica.client();
    are_marked(&mut client, "after the sync");
    assert_eq!(client.lines("mg stale\nmg stale v\n"), "HD X\nVA 1 X\nx\n");
    for write in ["mg none N10\n", "mg won T10\n", "mg won R10\n", "ma n\n", "md won\n"] {
        let said = client.lines(write);
        assert!(said.starts_with("SERVER_ERROR READONLY "), "{write}: {said}");
    }
    assert_eq!(master.client().lines("mg stale\nmd plain I\n"), "HD X W\nHD\n");
    wait_until("the replica has it", || client.lines("mg stale\nmg plain\n") == "HD Z X\nHD X\n");
}

/// A client of the user `some`.
fn logged_in(server: &WithMemcached) -> Memcached {
    let mut client = server.client();
    client.send(b"set x 0 0 9\r\nsome pass\r\n");
    assert_eq!(client.read_until("\r\n"), "STORED\r\n");
    client
}

#[test]
fn a_user_needs_the_rights_for_what_a_flag_does() {
    let server = WithMemcached::start(Builder::new());
    let mut host = server.server.client();
    server.client().lines("ms a 1\nx\nms stale 1\nx\nmd stale I\n");
    host.ok("ACL SETUSER some on >pass ~* +get +midi.get");
    host.ok("CONFIG SET requirepass secret");
    let mut client = server.client();
    client.send(b"mg a v\r\n");
    assert_eq!(client.read_until("\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    client.send(b"set x 0 0 9\r\nsome pass\r\n");
    assert_eq!(client.read_until("\r\n"), "STORED\r\n");
    assert_eq!(client.lines("mg a v\nmg stale\nmg stale\n"), "VA 1\nx\nHD X\nHD X\n");
    for sent in [
        "mg a T10\n",
        "mg a R10\n",
        "mg a N10\n",
        "ms a 1\ny\n",
        "ms a 1 q\ny\n",
        "md a\n",
        "md a I\n",
        "ma a\n",
    ] {
        let said = client.lines(sent);
        assert!(said.starts_with("SERVER_ERROR NOPERM "), "{sent}: {said}");
    }
    host.ok("ACL SETUSER some +getex +midi.getex");
    let mut winner = logged_in(&server);
    assert_eq!(winner.lines("mg a R10\nmg stale\n"), "HD\nHD X W\n");
    // Flags that do more than their command.
    for (rights, refused) in [("+getset", "mg a N10 T10\n"), ("+incrby", "ma n T10\nma n N10\n")] {
        let midis = rights.replace('+', "+midi.");
        host.call(&["ACL", "SETUSER", "some", "reset", "on", ">pass", "~*", rights, &midis]);
        host.ok("MIDI.SET n 1");
        let mut client = logged_in(&server);
        for sent in refused.split_inclusive('\n') {
            let said = client.lines(sent);
            assert!(said.starts_with("SERVER_ERROR NOPERM "), "{sent}: {said}");
        }
        let allowed = if rights == "+getset" { "mg a N10\n" } else { "ma n\n" };
        assert_eq!(client.lines(allowed), "HD\n");
    }
    // A `set` that is too large removes what it should have replaced, with the rights of SET.
    host.call(&["ACL", "SETUSER", "some", "reset", "on", ">pass", "~*", "+set", "+midi.set"]);
    let mut client = logged_in(&server);
    let large = format!("set a 0 0 2000000\n{}\n", "v".repeat(2_000_000));
    assert_eq!(client.lines(&large), "SERVER_ERROR object too large for cache\n");
    assert_eq!(host.integer("MIDI.EXISTS a"), 0);
    host.call(&["CONFIG", "SET", "requirepass", ""]);
}
