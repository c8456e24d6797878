//! The promise: WAIT on midi's port counts the replicas that have what the connection wrote, and
//! answers in the host's words. Writes that it has confirmed survive the master.

use std::time::Duration;

use super::replica_confirmed::force_failover;
use crate::common::replicas::{
    Pair, Stopped, builder, follow, kill, wait_for_role, with_aof_always,
};
use crate::common::witness::{Witness, beside_pair, check_pair};
use crate::common::{Client, Door, Mode, Server, Value, hosts, wait_until, words};

/// A master and its replica, which has confirmed a write of this client of the port.
fn pair(mode: Mode) -> (Pair, Client) {
    let pair = Pair::start(&builder(mode));
    let client = confirmed(&pair);
    (pair, client)
}

fn confirmed(pair: &Pair) -> Client {
    let mut client = pair.master().midi_client();
    client.ok("SET first 1");
    assert_eq!(client.run("WAIT 1 0"), Value::Integer(1));
    client
}

fn in_wait(server: &Server) -> i64 {
    server.client().info_number("midi_persistence", "midi_clients_in_wait")
}

fn wait_until_in_wait(server: &Server, clients: i64) {
    wait_until("so many wait", || in_wait(server) == clients);
}

/// Ways to write on the port.
const WRITES: [&[&str]; 9] = [
    &["SET a 1"],
    &["SET a 1 GET", "GET a"],
    &["MSET a 2 b 2 c 2 d 2"],
    &["POPULATE 5000 key 10"],
    &["MULTI", "INCR a", "INCR e", "EXEC"],
    &["MULTI", "INCR a", "POPULATE 10 more 10", "EXEC"],
    &["EXPORT a"],
    &["MULTI", "EXPORT d", "EXEC"],
    &["FLUSHALL"],
];

/// Writes that a stopped replica has not confirmed are not counted, whatever has run them. The same
/// connection, and one that has WAIT behind its write in a pipeline.
#[test]
fn it_counts_what_a_replica_has() {
    for mode in Mode::tried() {
        let (pair, mut client) = pair(mode);
        for lines in WRITES {
            let mut other = pair.master().midi_client().resp3();
            let stopped = Stopped::stop(pair.replica());
            for line in lines {
                let reply = client.run(line);
                assert!(!reply.is_error(), "{mode:?} {line}: {reply:?}");
            }
            assert_eq!(client.run("WAIT 1 50"), Value::Integer(0), "{mode:?} {lines:?}");
            let wait = lines.iter().chain(&["WAIT 1 50"]);
            let pipeline: Vec<_> = wait.map(|line| words(line)).collect();
            let replies = other.pipeline(&pipeline);
            assert_eq!(replies.last(), Some(&Value::Integer(0)), "{mode:?} {lines:?}: {replies:?}");
            drop(stopped);
            for client in [&mut client, &mut other] {
                assert_eq!(client.run("WAIT 1 0"), Value::Integer(1), "{mode:?} {lines:?}");
                // Asking has made the stream longer, but the write is confirmed.
                assert_eq!(client.run("WAIT 0 0"), Value::Integer(1), "{mode:?} {lines:?}");
            }
            pair.must_become_equal(&format!("{mode:?} {lines:?}"));
        }
    }
}

/// A client that has written nothing has nothing to wait for; and a replica that is stopped has
/// what was written before.
#[test]
fn it_waits_for_no_more_than_was_written() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let _stopped = Stopped::stop(pair.replica());
    let mut other = pair.master().midi_client();
    assert_eq!(other.run("WAIT 1 0"), Value::Integer(1));
    assert_eq!(other.run("GET first"), Value::bulk("1"));
    assert_eq!(other.run("WAIT 1 0"), Value::Integer(1));
    // Nor do those write that the main thread answers.
    for line in ["INFO server", "AUTH default x", "PUBSUB NUMPAT", "ACL WHOAMI"] {
        other.run(line);
        assert_eq!(other.run("WAIT 1 1000"), Value::Integer(1), "{line}");
    }
    other.ok("SET second 1");
    assert_eq!(other.run("WAIT 1 1"), Value::Integer(0));
    assert_eq!(client.run("WAIT 1 0"), Value::Integer(1), "what it wrote is confirmed");
}

/// The replicas are asked: they do not only tell by themselves, once a second. In the stream that
/// stands outside of any transaction, or else they would tell what stands before that.
#[test]
fn the_replicas_are_asked() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let asked = || {
        let stats = pair.replica().client().info("commandstats");
        let calls = |name: &str| {
            let fields = stats.get(name).cloned().unwrap_or_default();
            let calls = fields.strip_prefix("calls=").and_then(|text| text.split(',').next());
            calls.map_or(0, |text| text.parse::<u64>().expect("a number"))
        };
        (calls("cmdstat_replconf"), calls("cmdstat_multi"))
    };
    let before = asked();
    for number in 0..20 {
        client.ok(&format!("SET key {number}"));
        assert_eq!(client.run("WAIT 1 0"), Value::Integer(1));
    }
    let after = asked();
    assert!(after.0 >= before.0 + 20, "{before:?} {after:?}");
    assert_eq!(after.1, before.1);
}

/// Bad calls, and calls that need not wait: as the host answers, on a master and on a replica.
#[test]
fn it_answers_in_the_words_of_the_host() {
    let (pair, _) = pair(Mode::Adaptive);
    let lines = [
        "WAIT",
        "WAIT 1",
        "WAIT 1 2 3",
        "WAIT x 0",
        "WAIT 0 x",
        "WAIT 0 1.5",
        "WAIT 0 -1",
        "WAIT x -1",
        "WAIT 9223372036854775808 0",
        "WAIT 0 9223372036854775808",
        "WAIT 1 0",
        "MULTI",
        "WAIT x",
        "EXEC",
    ];
    for server in [pair.master(), pair.replica()] {
        let (mut host, mut port) = (server.client(), server.midi_client());
        for line in lines {
            assert_eq!(port.run(line), host.run(line), "{line}");
        }
    }
    // Redis 7.0 adds the time without a look at the sum.
    let reply = pair.master().midi_client().run("WAIT 1 9223372036854775807");
    assert_eq!(reply, Value::error("ERR timeout is out of range"));
}

/// In EXEC it does not wait, but tells how many have what was written so far.
#[test]
fn in_exec_it_does_not_block() {
    for mode in Mode::tried() {
        let (pair, mut client) = pair(mode);
        let _stopped = Stopped::stop(pair.replica());
        let lines = ["MULTI", "SET a 1", "WAIT 1 0", "SET b 1", "EXEC", "WAIT 1 1"].map(words);
        let replies = client.pipeline(&lines);
        let Value::Array(replies_of_exec) = &replies[4] else { panic!("{replies:?}") };
        assert!(matches!(replies_of_exec[1], Value::Integer(0 | 1)), "{mode:?}: {replies:?}");
        assert_eq!(replies_of_exec[2], Value::ok());
        assert_eq!(replies[5], Value::Integer(0), "{mode:?}");
    }
}

/// The commands behind it run after it, and its connection alone waits.
#[test]
fn a_pipeline_goes_on_behind_it() {
    for mode in Mode::tried() {
        let (pair, mut client) = pair(mode);
        let stopped = Stopped::stop(pair.replica());
        let lines =
            ["INCR n", "WAIT 1 0", "INCR n", "WAIT 1 0", "CLIENT REPLY SKIP", "WAIT 1 0", "GET n"];
        lines.iter().for_each(|line| client.send_line(line));
        assert_eq!(client.read(), Value::Integer(1));
        wait_until_in_wait(pair.master(), 1);
        let mut other = pair.master().midi_client();
        for number in 0..100 {
            assert_eq!(other.run("GET n"), Value::bulk("1"), "{mode:?}");
            other.ok(&format!("SET other {number}"));
        }
        let list = other.run("CLIENT LIST").text();
        assert!(list.lines().any(|line| line.contains("cmd=wait") && line.contains("flags=b")));
        drop(stopped);
        for expected in [Value::Integer(1), Value::Integer(2), Value::Integer(1)] {
            assert_eq!(client.read(), expected, "{mode:?}");
        }
        assert_eq!(client.read(), Value::bulk("2"), "{mode:?}");
        assert_eq!(in_wait(pair.master()), 0);
    }
}

/// Clients that have left, or were killed, wait no longer. One that only sends no more gets its
/// reply.
#[test]
fn a_client_that_leaves_waits_no_longer() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let master = pair.master();
    let _stopped = Stopped::stop(pair.replica());
    client.ok("SET a 1");
    client.send_line("WAIT 1 0");
    let mut killed = master.midi_client();
    let id = killed.id();
    killed.ok("SET b 1");
    killed.send_line("WAIT 1 0");
    let mut half = master.midi_client();
    half.send_line("SET c 1");
    half.send_line("WAIT 1 0");
    wait_until_in_wait(master, 3);
    half.send_no_more();
    assert_eq!([half.read(), half.read()], [Value::ok(), Value::Integer(0)]);
    assert!(half.is_closed());
    drop(client);
    wait_until_in_wait(master, 1);
    assert_eq!(master.midi_client().integer(&format!("CLIENT KILL ID {id}")), 1);
    assert!(killed.is_closed());
    wait_until_in_wait(master, 0);
    let mut early = master.midi_client();
    early.send(b"SET d 1\r\nWAIT 1 0\r\n");
    early.send_no_more();
    assert_eq!([early.read(), early.read()], [Value::ok(), Value::Integer(0)]);
}

/// As the host, which closes those that wait when it becomes a replica.
#[test]
fn a_demotion_ends_it() {
    for lines in [&["REPLICAOF 127.0.0.1 1"][..], &["REPLICAOF NO ONE"]] {
        let (pair, mut client) = pair(Mode::Adaptive);
        let master = pair.master();
        let stopped = Stopped::stop(pair.replica());
        client.ok("SET a 1");
        let mut native = master.client();
        native.ok("SET native 1");
        for client in [&mut client, &mut native] {
            client.send_line("WAIT 1 0");
        }
        wait_until_in_wait(master, 1);
        lines.iter().for_each(|line| master.client().ok(line));
        if lines[0].ends_with("ONE") {
            // Nothing has changed.
            drop(stopped);
            assert_eq!([client.read(), native.read()], [Value::Integer(1), Value::Integer(1)]);
            continue;
        }
        let reply = client.read();
        assert_eq!(reply, native.read());
        assert!(reply.text().starts_with("UNBLOCKED"), "{reply:?}");
        assert!(client.is_closed() && native.is_closed());
        assert_eq!(in_wait(master), 0);
        master.client().ok("REPLICAOF NO ONE");
    }
}

/// Writes from before the server was a replica may be lost, whatever the stream says in which it is
/// a master again.
#[test]
fn writes_before_a_demotion_are_not_confirmed() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let mut other = confirmed(&pair);
    pair.fail_over();
    pair.fail_over();
    // Both have written on the server's former stream. Redis confirms that; midi does not know.
    let reply = client.run("WAIT 1 1000");
    assert!(reply.text().starts_with("UNBLOCKED"), "{reply:?}");
    assert!(client.is_closed());
    other.ok("SET first 2");
    assert_eq!(other.run("WAIT 1 0"), Value::Integer(1));
}

/// While clients are paused replicas may not be asked, but they tell by themselves.
#[test]
fn a_pause_holds_up_no_more_than_it_must() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let mut host = pair.master().client();
    for round in 0..20 {
        client.ok(&format!("SET key {round}"));
        client.send_line("WAIT 1 0");
        host.ok("CLIENT PAUSE 100000 WRITE");
        assert_eq!(client.read(), Value::Integer(1));
        // It waits for the end of the pause, and then is confirmed.
        client.send(b"SET paused 1\r\nWAIT 1 0\r\n");
        host.ok("CLIENT UNPAUSE");
        assert_eq!([client.read(), client.read()], [Value::ok(), Value::Integer(1)]);
    }
}

/// Anybody can send an acknowledgement. Only those of replicas count.
#[test]
fn acknowledgements_of_strangers_do_not_count() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let stopped = Stopped::stop(pair.replica());
    client.ok("SET a 1");
    client.send_line("WAIT 1 0");
    wait_until_in_wait(pair.master(), 1);
    let mut stranger = pair.master().client();
    for _ in 0..100 {
        (0..100).for_each(|_| stranger.send_line("REPLCONF ACK 9000000000"));
        assert_eq!(stranger.run("PING"), Value::Simple(b"PONG".to_vec()));
        assert!(!client.has_reply_within(Duration::from_millis(1)));
    }
    drop(stopped);
    assert_eq!(client.read(), Value::Integer(1));
}

/// `midi.reply-after run` answers before a write is logged, but WAIT waits until it is.
#[test]
fn it_waits_for_the_log_whatever_replies_do() {
    for always in [false, true] {
        let builder = builder(Mode::Adaptive);
        let builder = if always { with_aof_always(builder) } else { builder };
        let pair = Pair::start(&builder.config("midi.reply-after run"));
        let mut client = confirmed(&pair);
        for round in 0..50 {
            let stopped = Stopped::stop(pair.replica());
            client.ok(&format!("SET key {round}"));
            assert_eq!(client.run("WAIT 1 1"), Value::Integer(0), "always: {always}");
            drop(stopped);
            assert_eq!(client.run("WAIT 1 0"), Value::Integer(1), "always: {always}");
        }
    }
}

const NOT_KNOWN: &str = "ERR WAITAOF on midi's port needs appendfsync always and \
                         no-appendfsync-on-rewrite no: otherwise the server does not tell what is \
                         synced";

/// WAITAOF tells what is synced here where midi knows it, and says so where it does not.
#[test]
fn waitaof_counts_the_own_aof() {
    let [synced, not_synced] = [[1, 0], [0, 0]].map(|counts| Value::integers(&counts));
    for mode in Mode::tried() {
        let server = with_aof_always(builder(mode)).start();
        let (mut client, mut host) = (server.midi_client().resp3(), server.client());
        assert_eq!(client.run("WAITAOF 1 0 0"), synced, "nothing is to be synced");
        for number in 0..20 {
            client.ok(&format!("SET key {number}"));
            assert_eq!(client.run("WAITAOF 1 0 0"), synced, "{mode:?}");
            let lines = ["INCR n", "WAITAOF 1 0 0", "INCR n", "WAITAOF 1 0 0"].map(words);
            let replies = client.pipeline(&lines);
            assert_eq!([&replies[1], &replies[3]], [&synced; 2], "{mode:?}: {replies:?}");
            assert_eq!(client.run("WAITAOF 0 0 0"), synced, "{mode:?}");
        }
        let lines = ["MULTI", "SET a 1", "WAITAOF 1 0 0", "EXEC"].map(words);
        let replies = client.pipeline(&lines);
        assert_eq!(replies[3], Value::Array(vec![Value::ok(), synced.clone()]), "of before EXEC");
        for (setting, value) in [
            ("appendfsync", "everysec"),
            ("appendfsync", "no"),
            ("no-appendfsync-on-rewrite", "yes"),
        ] {
            host.ok(&format!("CONFIG SET {setting} {value}"));
            client.ok("SET before 1");
            assert_eq!(client.run("WAITAOF 1 0 0"), Value::error(NOT_KNOWN), "{setting} {value}");
            assert_eq!(client.run("WAITAOF 0 0 0"), not_synced, "{setting} {value}");
            host.ok("CONFIG SET appendfsync always");
            host.ok("CONFIG SET no-appendfsync-on-rewrite no");
        }
        host.ok("CONFIG SET appendfsync everysec");
        client.ok("SET before 1");
        host.ok("CONFIG SET appendfsync always");
        assert_eq!(client.run("WAITAOF 1 0 1"), not_synced, "{mode:?}: written before `always`");
        client.ok("SET after 1");
        assert_eq!(client.run("WAITAOF 1 0 0"), synced, "{mode:?}");
    }
}

/// An AOF that is turned on while the server runs counts once it is complete.
#[test]
fn waitaof_waits_until_the_aof_is_complete() {
    let server = builder(Mode::Adaptive).config("appendfsync always").start();
    let (mut client, mut host) = (server.midi_client(), server.client());
    host.ok("DEBUG POPULATE 2000");
    // A child writes about one of its keys in a millisecond.
    host.ok("CONFIG SET rdb-key-save-delay 1000");
    client.ok("SET a 1");
    host.ok("CONFIG SET appendonly yes");
    client.ok("SET a 2");
    assert_eq!(client.run("WAITAOF 1 0 1"), Value::integers(&[0, 0]));
    assert_eq!(
        host.info_number("persistence", "aof_rewrite_in_progress"),
        1,
        "or it shows nothing"
    );
    client.send_line("WAITAOF 1 0 0");
    host.ok("CONFIG SET rdb-key-save-delay 0");
    assert_eq!(client.read(), Value::integers(&[1, 0]));
    assert_eq!(host.info_number("persistence", "aof_rewrite_in_progress"), 0);
    host.send_line("BGREWRITEAOF");
    client.ok("SET a 3");
    assert_eq!(client.run("WAITAOF 1 0 0"), Value::integers(&[1, 0]), "beside a rewrite");
    host.read();
    wait_until("the rewrite is over", || {
        host.info_number("persistence", "aof_rewrite_in_progress") == 0
    });
}

/// Bad calls are answered as newer hosts do: Redis 7.0 has no WAITAOF.
#[test]
fn waitaof_answers_in_the_words_of_the_host() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let lines = [
        ("WAITAOF 1 0", "ERR wrong number of arguments for 'waitaof' command"),
        ("WAITAOF x 0 0", "ERR value is not an integer or out of range"),
        ("WAITAOF 2 0 0", "ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF -1 x x", "ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF 0 x 0", "ERR value is out of range, must be positive"),
        ("WAITAOF 0 -1 0", "ERR value is out of range, must be positive"),
        ("WAITAOF 0 0 x", "ERR timeout is not an integer or out of range"),
        ("WAITAOF 0 0 -1", "ERR timeout is negative"),
        ("WAITAOF 0 0 9223372036854775807", "ERR timeout is out of range"),
        (
            "WAITAOF 1 0 0",
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ),
    ];
    let mut host = pair.master().client();
    for (line, text) in lines {
        assert_eq!(client.run(line), Value::error(text), "{line}");
        if hosts::host().version >= (7, 2) {
            assert_eq!(host.run(line), Value::error(text), "{line}");
        }
    }
    let reply = client.run("WAITAOF 0 1 0");
    assert!(reply.text().starts_with("ERR WAITAOF on midi's port cannot tell"), "{reply:?}");
    let reply = pair.replica().midi_client().run("WAITAOF 0 0 0");
    assert!(reply.text().starts_with("ERR WAITAOF cannot be used with replica"), "{reply:?}");
    if hosts::host().version >= (7, 2) {
        assert_eq!(pair.replica().client().run("WAITAOF 0 0 0"), reply);
    }
}

/// Two replicas, one of which is stopped.
#[test]
fn it_counts_each_replica() {
    let (pair, mut client) = pair(Mode::Adaptive);
    let second = builder(Mode::Adaptive).start();
    follow(&second, pair.master().port());
    client.ok("SET a 1");
    assert_eq!(client.run("WAIT 2 0"), Value::Integer(2));
    let stopped = Stopped::stop(&second);
    client.ok("SET a 2");
    assert_eq!(client.run("WAIT 1 0"), Value::Integer(1));
    assert_eq!(client.run("WAIT 2 50"), Value::Integer(1));
    drop(stopped);
    assert_eq!(client.run("WAIT 2 0"), Value::Integer(2));
}

/// A write of before the first replica came is confirmed once it is synced.
#[test]
fn a_replica_that_comes_later_counts() {
    let servers = [(); 2].map(|()| builder(Mode::Adaptive).start());
    let mut client = servers[0].midi_client();
    client.ok("SET a 1");
    assert_eq!(client.run("WAIT 1 1"), Value::Integer(0));
    client.send_line("WAIT 1 0");
    wait_until_in_wait(&servers[0], 1);
    follow(&servers[1], servers[0].port());
    assert_eq!(client.read(), Value::Integer(1));
    let mut replica = servers[1].midi_client();
    assert_eq!(replica.run("GET a"), Value::bulk("1"));
}

/// Witnesses at the port, whose master is killed: the replica that takes its place has all that
/// WAIT has confirmed.
#[test]
fn confirmed_writes_survive_the_master() {
    for (mode, always) in Mode::tried().map(|mode| (mode, false)).chain([(Mode::Adaptive, true)]) {
        let builder = builder(mode);
        let builder = if always { with_aof_always(builder) } else { builder };
        let (mut pair, link) = Pair::start_linked(&builder);
        let mut witnesses: Vec<Witness> = (0..6)
            .map(|n| Witness::new([Door::Port, Door::PortPrefixed][n % 2], n).confirming())
            .collect();
        beside_pair(&pair, &mut witnesses, |answers| {
            answers.wait_for(200);
            // The master's writes from here on are lost, and not confirmed.
            link.swallow();
            // One of each witness may have come to the replica, and only its ACK is lost.
            answers.wait_for_unconfirmed(20);
            kill(pair.master());
            link.close();
            pair.replica().client().ok("REPLICAOF NO ONE");
            wait_for_role(pair.replica(), true);
            pair.exchange();
            // Without a replica nothing more is confirmed.
            answers.wait_for_unconfirmed(20);
        });
        let mut client = pair.master().client();
        witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "at the new master"));
        let lost: u64 = witnesses.iter().map(Witness::lost).sum();
        assert!(lost > 0, "{mode:?}: the end of the master took nothing, so this shows nothing");
        let dead = usize::from(pair.master().port() == pair.servers[0].port());
        pair.servers[dead].wait_for_exit();
    }
}

/// The same over failovers that are forced, with the host's door and the port together.
#[test]
fn confirmed_writes_survive_a_forced_failover() {
    let (pair, link) = Pair::start_linked(&builder(Mode::Adaptive));
    let mut witnesses: Vec<Witness> =
        (0..6).map(|n| Witness::new([Door::Port, Door::Host][n % 2], n).confirming()).collect();
    beside_pair(&pair, &mut witnesses, |answers| force_failover(&pair, &link, answers, 12));
    check_pair(&pair, &mut witnesses);
}
