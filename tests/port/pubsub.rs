//! The promise: clients of midi's port publish and subscribe as Redis's clients do, and a client of
//! either door hears what a client of either door says: once, and in the order of one publisher.

use crate::common::hosts::host;
use crate::common::port::Ported;
use crate::common::replicas::{Pair, builder};
use crate::common::{Builder, Client, Mode, Value, encoded, wait_until};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn message(value: Value) -> Vec<String> {
    let (Value::Array(list) | Value::Push(list)) = value else { panic!("{value:?}") };
    let text = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        value => value.text(),
    };
    list.iter().map(text).collect()
}

/// Reads the replies to a command that has several.
fn several(client: &mut Client, line: &str, count: usize) -> Vec<Value> {
    client.send_line(line);
    (0..count).map(|_| client.read()).collect()
}

/// What the publisher's client and two subscribers see of a conversation.
fn conversation(client: impl Fn() -> Client, resp3: bool) -> Vec<(String, Vec<Value>)> {
    let open = || if resp3 { client().resp3() } else { client() };
    let (mut publisher, mut one, mut other) = (open(), open(), open());
    let mut seen = Vec::new();
    let mut note = |what: &str, values: Vec<Value>| seen.push((what.to_owned(), values));
    note("subscribe", several(&mut one, "SUBSCRIBE a b a", 3));
    note("psubscribe", several(&mut one, "PSUBSCRIBE a* x", 2));
    note("ssubscribe", several(&mut one, "SSUBSCRIBE s", 1));
    note("others", several(&mut other, "PSUBSCRIBE *", 1));
    for line in [
        "PUBLISH a 1",
        "PUBLISH b 2",
        "PUBLISH nobody 3",
        "PUBLISH ax 4",
        "SPUBLISH s 5",
        "SPUBLISH a 6",
        "PUBLISH a",
        "PUBLISH a b c",
        "PUBSUB NUMSUB a b nobody",
        "PUBSUB NUMSUB",
        "PUBSUB SHARDNUMSUB s a",
        "PUBSUB SHARDCHANNELS",
        "PUBSUB SHARDCHANNELS x*",
        "PUBSUB CHANNELS a*",
        "PUBSUB CHANNELS a b",
        "pubsub shardchannels a b c",
        "PUBSUB NUMPAT",
        "PUBSUB NUMPAT x",
        "PUBSUB",
        "PUBSUB NOSUCH",
        "SUBSCRIBE",
        "PSUBSCRIBE",
    ] {
        note(line, vec![publisher.run(line)]);
    }
    note("sorted", publisher.run("PUBSUB CHANNELS").sorted());
    note("one hears", (0..5).map(|_| one.read()).collect());
    note("other hears", (0..4).map(|_| other.read()).collect());
    let pipeline: Vec<Vec<&str>> =
        ["SET k 1", "PUBLISH a p", "GET k", "PUBLISH b q", "PUBLISH b r"].map(words).into();
    note("pipeline", publisher.pipeline(&pipeline));
    for line in ["MULTI", "SETEX t 100 v", "PUBLISH a tx", "INCR k", "EXEC"] {
        note(line, vec![publisher.run(line)]);
    }
    note("one hears more", (0..6).map(|_| one.read()).collect());
    note("other hears more", (0..4).map(|_| other.read()).collect());
    for line in ["PING", "PING x", "GET k", "MULTI", "HELLO", "CLIENT ID", "PING x y"] {
        if !resp3 {
            note(line, vec![one.run(line)]);
        }
    }
    note("unsubscribe", several(&mut one, "UNSUBSCRIBE a nosuch", 2));
    note("punsubscribe", several(&mut one, "PUNSUBSCRIBE x a*", 2));
    note("all", several(&mut one, "UNSUBSCRIBE", 1));
    note("none", several(&mut one, "UNSUBSCRIBE", 1));
    note("none", several(&mut one, "PUNSUBSCRIBE", 1));
    note("shards", several(&mut one, "SUNSUBSCRIBE", 1));
    note("usual again", vec![one.run("GET k"), one.run("PING")]);
    // Subscriptions in a transaction.
    for line in ["MULTI", "SUBSCRIBE m", "SET k 5", "UNSUBSCRIBE m", "GET k", "EXEC"] {
        note(line, vec![one.run(line)]);
    }
    note("reset", vec![other.run("RESET")]);
    seen
}

#[test]
fn replies_and_messages_are_those_of_redis() {
    for mode in [Mode::Adaptive, Mode::Safe] {
        for resp3 in [false, true] {
            let (ported, plain) = (Ported::start(mode.builder()), Builder::plain().start());
            let native = conversation(|| plain.client(), resp3);
            let own = conversation(|| ported.client(), resp3);
            assert_eq!(native.len(), own.len());
            for ((what, native), (_, own)) in native.into_iter().zip(own) {
                // Hosts differ in the texts of such errors.
                let is_same = |native: &Value, own: &Value| {
                    native == own || host().is_newer() && native.is_error() && own.is_error()
                };
                let same = native.len() == own.len()
                    && native.iter().zip(&own).all(|(native, own)| is_same(native, own));
                assert!(same, "{what}: {own:?}, and not {native:?}");
            }
        }
    }
}

#[test]
fn both_doors_hear_both_doors_once_and_in_order() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut at_port, mut at_host) = (ported.client(), ported.host());
    let mut by_pattern = ported.client();
    at_port.run("SUBSCRIBE c");
    at_host.run("SUBSCRIBE c");
    by_pattern.run("PSUBSCRIBE c*");
    let (mut port, mut host) = (ported.client(), ported.host());
    for round in 0..50 {
        assert_eq!(port.integer(&format!("PUBLISH c p{round}")), 3);
        // The host counts the listener: once for the channel and once for the pattern.
        assert_eq!(host.integer(&format!("PUBLISH c h{round}")), 3);
    }
    let script = ["EVAL", "return redis.call('publish', 'c', 'script')", "0"];
    assert_eq!(port.call(&script), Value::Integer(3));
    for round in 0..50 {
        for from in ["p", "h"] {
            let text = format!("{from}{round}");
            for client in [&mut at_port, &mut at_host] {
                assert_eq!(message(client.read()), ["message", "c", &text]);
            }
            assert_eq!(message(by_pattern.read()), ["pmessage", "c*", "c", &text]);
        }
    }
    for client in [&mut at_port, &mut at_host, &mut by_pattern] {
        assert_eq!(message(client.read()).last().map(String::as_str), Some("script"));
    }
    assert_eq!(port.integer("PUBLISH other x"), 0);
    let list = host.run("CLIENT LIST TYPE pubsub").text();
    assert!(list.lines().any(|line| line.contains(" sub=1 psub=1 ") && line.contains("user=midi")));
    let list = port.run("CLIENT LIST TYPE pubsub").text();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains(" flags=P ") && list.contains(" sub=0 psub=1 ssub=0 "), "{list}");
}

/// As Celery's result backend does: it subscribes, asks on another connection whether the result is
/// there, and waits for the message if not.
#[test]
fn who_does_not_wait_for_the_answer_hears_what_is_published_afterwards() {
    for mode in [Mode::Adaptive, Mode::Safe] {
        let ported = Ported::start(Builder::new().load(mode.arguments()).load("threads 1"));
        let (mut publisher, mut host) = (ported.client(), ported.host());
        for round in 0..40 {
            let (mut one, mut other) = (ported.client(), ported.client());
            let list = format!("CLIENT LIST ID {} {}", one.id(), other.id());
            // The host confirms nothing for a while in half of the rounds.
            if round % 2 == 0 {
                host.send_line("DEBUG SLEEP 0.02");
            }
            one.send_line(&format!("SUBSCRIBE r{round}"));
            other.send_line(&format!("PSUBSCRIBE r{round}*"));
            // The worker has taken both, which the kernel may bring in any order; the answers need
            // not have come.
            wait_until("both are taken", || {
                let taken = publisher.run(&list).text();
                taken.contains(" cmd=subscribe ") && taken.contains(" cmd=psubscribe ")
            });
            publisher.send_line(&format!("GET r{round}"));
            let seen = if round % 4 < 2 {
                publisher.send_line("MULTI");
                publisher.send_line(&format!("SETEX r{round} 100 v"));
                publisher.send_line(&format!("PUBLISH r{round} done"));
                publisher.send_line("EXEC");
                assert!(publisher.read().is_null());
                (0..3).for_each(|_| drop(publisher.read()));
                publisher.read().array()[1].integer()
            } else {
                publisher.send_line(&format!("PUBLISH r{round} done"));
                assert!(publisher.read().is_null());
                publisher.read().integer()
            };
            assert_eq!(seen, 2, "round {round}");
            one.read();
            assert_eq!(message(one.read())[2], "done");
            other.read();
            assert_eq!(message(other.read())[3], "done");
            if round % 2 == 0 {
                host.read();
            }
        }
    }
}

#[test]
fn info_counts_the_ports_own() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut one, mut other, mut client) = (ported.client(), ported.client(), ported.client());
    several(&mut one, "SUBSCRIBE a b", 2);
    several(&mut one, "PSUBSCRIBE p*", 1);
    several(&mut other, "SUBSCRIBE b", 1);
    several(&mut ported.host(), "SUBSCRIBE host", 1);
    let counts = |client: &mut Client| {
        ["pubsub_channels", "pubsub_patterns"].map(|field| client.info_number("stats", field))
    };
    assert_eq!(counts(&mut client), [2, 1]);
    if let Some(clients) = client.info("clients").get("pubsub_clients") {
        assert_eq!(clients, "2");
    }
    several(&mut one, "PUNSUBSCRIBE", 1);
    several(&mut one, "UNSUBSCRIBE a", 1);
    // The host has to confirm the end of a subscription.
    wait_until("the ends of subscriptions", || counts(&mut client) == [1, 0]);
}

#[test]
fn keyspace_notifications_of_midis_keys_are_heard() {
    let ported = Ported::start(Mode::Adaptive.builder().config("notify-keyspace-events KEA"));
    let (mut client, mut subscriber) = (ported.client(), ported.client());
    subscriber.run("PSUBSCRIBE __key*__:*");
    client.ok("SET k v");
    let heard = [message(subscriber.read()), message(subscriber.read())];
    assert_eq!(heard[0][2..], ["__keyspace@0__:k", "set"]);
    assert_eq!(heard[1][2..], ["__keyevent@0__:set", "k"]);
}

#[test]
fn rules_on_channels_hold() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut host = ported.host();
    let denied = "NOPERM this user has no permissions to access one of the channels used as \
                  arguments";
    host.ok("ACL SETUSER some on >some allkeys +@all resetchannels &a* &b");
    host.ok("ACL SETUSER none on >none allkeys +@all resetchannels");
    let (mut some, mut none) = (ported.client_of("some"), ported.client_of("none"));
    for line in [
        "SUBSCRIBE c",
        "SUBSCRIBE a1 c",
        "PSUBSCRIBE a",
        "PSUBSCRIBE a1*",
        "PUBLISH c m",
        "SPUBLISH c m",
    ] {
        assert_eq!(some.run(line), Value::error(denied), "{line}");
        assert_eq!(none.run(line), Value::error(denied), "{line}");
    }
    assert_eq!(host.run("ACL LOG 1").array().len(), 1);
    assert_eq!(some.integer("PUBLISH a1 m"), 0);
    assert_eq!(message(none.run("UNSUBSCRIBE c")), ["unsubscribe", "c", "0"]);
    several(&mut some, "SUBSCRIBE a1 b", 2);
    some.run("PSUBSCRIBE a*");
    // More rights, and others that do not concern it.
    host.ok("ACL SETUSER some &x");
    host.ok("ACL SETUSER none &x");
    assert_eq!(message(some.run("PING")), ["pong", ""]);
    host.ok("ACL SETUSER some resetchannels &b");
    assert!(some.is_closed(), "what it has is not allowed any more");
    let mut some = ported.client_of("some");
    some.run("SUBSCRIBE b");
    assert_eq!(host.integer("ACL DELUSER some"), 1);
    assert!(some.is_closed());
    let mut client = ported.client();
    wait_until("nobody is left", || client.run("PUBSUB NUMSUB b").array()[1] == Value::Integer(0));
}

#[test]
fn the_listener_comes_back() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut client, mut host) = (ported.client(), ported.host());
    let (mut subscriber, mut by_pattern) = (ported.client(), ported.client());
    subscriber.run("SUBSCRIBE c");
    by_pattern.run("PSUBSCRIBE p*");
    for round in 0..3 {
        assert_eq!(host.integer("CLIENT KILL TYPE pubsub"), 1);
        wait_until("it is back", || host.integer(&format!("PUBLISH c {round}")) == 1);
        wait_until("the pattern too", || host.integer(&format!("PUBLISH p1 {round}")) == 1);
        assert_eq!(message(subscriber.read())[2], round.to_string());
        assert_eq!(message(by_pattern.read())[3], round.to_string());
    }
    assert!(ported.server.log().contains("midi hears messages for clients of its port again"));
    // Nobody can log in as it does.
    assert_eq!(
        host.run("MIDI.LISTEN 00000000000000000000000000000000"),
        Value::error("NOPERM this user has no permissions to run the 'midi.listen' command")
    );
    subscriber.run("UNSUBSCRIBE");
    by_pattern.run("PUNSUBSCRIBE");
    wait_until("the host forgets them", || host.integer("PUBSUB NUMPAT") == 0);
    assert_eq!(client.integer("PUBLISH c x"), 0);
}

#[test]
fn passwords_do_not_matter() {
    let closed = Ported::start(Mode::Adaptive.builder());
    closed.host().ok("CONFIG SET requirepass secret");
    let mut client = closed.client();
    assert_eq!(client.run("SUBSCRIBE c"), Value::error("NOAUTH Authentication required."));
    client.ok("AUTH secret");
    assert_eq!(message(client.run("SUBSCRIBE c")), ["subscribe", "c", "1"]);
}

/// All clients share the connection on which the host confirms names.
#[test]
fn names_are_bounded() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut client = ported.client();
    client.ok("SET k v");
    for command in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
        let refused = client.call(&[command, "c", &"*".repeat((64 << 10) + 1)]);
        assert_eq!(
            refused,
            Value::error("ERR channel exceeds maximum allowed size (midi.max-channel-bytes 65536)")
        );
        assert_eq!(client.run("GET k"), Value::bulk("v"), "nothing has begun");
    }
    ported.host().ok("CONFIG SET midi.max-channel-bytes 3");
    assert!(client.run("SUBSCRIBE long").is_error());
    assert_eq!(message(client.run("SUBSCRIBE c")), ["subscribe", "c", "1"]);
}

#[test]
fn who_does_not_read_costs_its_own_connection() {
    let limits = "client-output-buffer-limit pubsub 1mb 0 0";
    let ported = Ported::start(Mode::Adaptive.builder().config(limits));
    let (mut deaf, mut hears) = (ported.client(), ported.client());
    deaf.run("SUBSCRIBE c");
    hears.run("SUBSCRIBE c");
    let mut client = ported.client();
    let text = "x".repeat(100_000);
    wait_until("the other is closed", || {
        let number = client.call(&["PUBLISH", "c", &text]).integer();
        assert_eq!(message(hears.read())[2], text);
        number == 1
    });
    // Behind what has reached it.
    while deaf.try_read().is_ok() {}
    assert!(deaf.is_closed());
    assert!(ported.client().info_number("midi", "midi_net_closed_for_limits") >= 1);
}

/// How many replies [`stay_amid`] has the client not read: more than the kernel keeps. Each is so
/// short that it is copied.
const UNREAD: usize = 1600;

/// Has a client not read the replies of an EXEC: a part of them has not been written yet, as the
/// port writes them one by one where a command is its own.
fn stay_amid(port: &mut Client, client: &mut Client) {
    let id = client.id();
    port.call(&["SET", "large", &"x".repeat(10_000)]);
    let commands = ["MULTI", "PING"].map(|own| encoded(&[own])).concat();
    client.send(&[commands, encoded(&["GET", "large"]).repeat(UNREAD - 1)].concat());
    (0..=UNREAD).for_each(|_| assert!(!client.read().is_error()));
    client.send_line("EXEC");
    wait_until("it has not read all", || port.unsent_of(id) > 500_000);
}

/// What waits with clients that are amid another reply, as long as it takes, holds up nobody else.
#[test]
fn who_waits_for_a_reply_holds_up_no_other() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut publisher = ported.client();
    let waiting = ["a", "b"].map(|channel| {
        let mut client = ported.client().resp3();
        client.run(&format!("SUBSCRIBE {channel}"));
        stay_amid(&mut publisher, &mut client);
        client
    });
    let text = "x".repeat(1_000_000);
    for _ in 0..20 {
        for channel in ["a", "b"] {
            assert_eq!(publisher.call(&["PUBLISH", channel, &text]), Value::Integer(1));
        }
    }
    let mut other = ported.client();
    other.run("SUBSCRIBE c");
    assert_eq!(publisher.integer("PUBLISH c m"), 1);
    assert_eq!(message(other.read()), ["message", "c", "m"]);
    drop(waiting);
}

/// A message that has waited for the end of a reply, where CLIENT LIST shows it, does not come
/// behind the confirmation that the client has left the channel.
#[test]
fn nothing_is_heard_behind_unsubscribe() {
    /// As many go to the main thread as one task, which takes eight turns of the main loop.
    const SCRIPTS: usize = 32;
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut client, mut other) = (ported.client().resp3(), ported.client());
    let (mut publisher, id) = (ported.host(), client.id());
    several(&mut client, "SUBSCRIBE a b", 2);
    let script = encoded(&["EVAL", "for i = 1, 5000000 do end return 1", "0"]).repeat(SCRIPTS);
    client.send(&[&script[..], b"UNSUBSCRIBE a\r\nPING\r\n"].concat());
    let line = |other: &mut Client| other.run(&format!("CLIENT LIST ID {id}")).text();
    wait_until("it waits", || line(&mut other).contains(" cmd=eval "));
    let late = "x".repeat(10_000);
    let publish =
        "return {redis.call('PUBLISH', 'a', ARGV[1]), redis.call('PUBLISH', 'b', ARGV[1])}";
    let heard = publisher.call(&["EVAL", publish, "0", &late]);
    assert_eq!(heard.array(), [Value::Integer(1), Value::Integer(1)]);
    wait_until("they wait", || other.unsent_of(id) > 2 * late.len());
    let mut read = || client.read();
    (0..SCRIPTS).for_each(|_| assert_eq!(read(), Value::Integer(1)));
    assert_eq!(message(read())[..2], ["unsubscribe", "a"]);
    let rest = [read(), read()];
    assert!(rest.contains(&Value::Simple(b"PONG".to_vec())), "{rest:?}");
    let heard = rest.into_iter().find(|it| matches!(it, Value::Push(_))).expect("a message");
    assert_eq!(message(heard), ["message", "b", &late]);
}

/// What waits with a client that is amid another reply counts against its limits.
#[test]
fn what_waits_for_the_end_of_a_reply_counts() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut client, mut port) = (ported.client().resp3(), ported.client());
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 10mb 1"];
    assert_eq!(ported.host().call(&limit), Value::ok());
    client.run("SUBSCRIBE c");
    stay_amid(&mut port, &mut client);
    port.call(&["PUBLISH", "c", &"x".repeat(20_000_000)]);
    let closed = |port: &mut Client| port.info_number("midi_net", "midi_net_closed_for_limits");
    wait_until("it is closed", || closed(&mut port) == 1);
}

#[test]
fn publishing_waits_for_the_end_of_a_pause() {
    let ported = Ported::start(Mode::Adaptive.builder().config("appendonly yes"));
    let (mut host, mut client, mut subscriber) = (ported.host(), ported.client(), ported.client());
    subscriber.run("SUBSCRIBE c");
    host.ok("CLIENT PAUSE 600 WRITE");
    client.send_line("PUBLISH c 1");
    client.send_line("MULTI");
    client.send_line("PUBLISH c 2");
    client.send_line("EXEC");
    assert!(ported.client().run("GET k").is_null());
    assert_eq!(client.read(), Value::Integer(1));
    assert_eq!(client.read(), Value::ok());
    client.read();
    assert_eq!(client.read(), Value::Array(vec![Value::Integer(1)]));
    for text in ["1", "2"] {
        assert_eq!(message(subscriber.read())[2], text);
    }
}

#[test]
fn in_exec_subscribers_hear_in_the_order_of_the_commands() {
    let keys = "notify-keyspace-events KEA";
    let ported = Ported::start(Mode::Adaptive.builder().config(keys));
    let mut subscribers = [ported.client(), ported.host()];
    for subscriber in &mut subscribers {
        several(subscriber, "SUBSCRIBE c __keyevent@0__:set", 2);
    }
    let mut client = ported.client();
    for line in ["MULTI", "SET k v", "PUBLISH c m", "SET l v", "EXEC"] {
        client.run(line);
    }
    for subscriber in &mut subscribers {
        let heard: Vec<String> = (0..3).map(|_| message(subscriber.read())[2].clone()).collect();
        assert_eq!(heard, ["k", "m", "l"]);
    }
}

#[test]
fn who_waits_for_replicas_hears_meanwhile() {
    for mode in Mode::with_jobs() {
        let ported = Ported::start(builder(mode));
        let mut publisher = ported.client();
        for mut subscriber in [ported.host(), ported.client()].map(Client::resp3) {
            subscriber.run("SUBSCRIBE c");
            // Nobody will ever answer it.
            subscriber.send_line("WAIT 1 0");
            for text in ["1", "2"] {
                publisher.run(&format!("PUBLISH c {text}"));
                assert_eq!(message(subscriber.read()), ["message", "c", text]);
            }
        }
    }
}

/// Redis lets its clients subscribe then, too.
#[test]
fn a_stale_replica_has_subscribers() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut host = ported.host();
    host.ok("CONFIG SET replica-serve-stale-data no");
    host.ok("REPLICAOF 127.0.0.1 1");
    let mut client = ported.client();
    wait_until("it is stale", || client.run("GET k").text().starts_with("MASTERDOWN"));
    assert_eq!(message(client.run("SUBSCRIBE c")), ["subscribe", "c", "1"]);
    assert_eq!(host.integer("PUBLISH c m"), 1);
    assert_eq!(message(client.read()), ["message", "c", "m"]);
}

#[test]
fn a_message_to_many_reaches_each_of_them() {
    const MANY: usize = 600;
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut all: Vec<Client> = (0..MANY).map(|_| ported.client()).collect();
    for client in &mut all {
        client.run("SUBSCRIBE c");
    }
    let mut client = ported.client();
    let large = "y".repeat(70_000);
    for text in ["1", &large, "3"] {
        assert_eq!(client.call(&["PUBLISH", "c", text]).integer(), MANY as i64);
        for subscriber in &mut all {
            assert_eq!(message(subscriber.read()), ["message", "c", text]);
        }
    }
    drop(all);
    wait_until("all have left", || client.integer("PUBLISH c x") == 0);
}

#[test]
fn replicas_hear_what_the_masters_port_says() {
    let pair = Pair::start(&builder(Mode::Adaptive));
    let mut subscriber = pair.replica().midi_client();
    subscriber.run("SUBSCRIBE c");
    let mut client = pair.master().midi_client();
    assert_eq!(client.integer("PUBLISH c m"), 0);
    assert_eq!(message(subscriber.read()), ["message", "c", "m"]);
    assert_eq!(pair.replica().midi_client().integer("PUBLISH c own"), 1);
    assert_eq!(message(subscriber.read()), ["message", "c", "own"]);
}
