//! The promise: a subscription that the host refuses, and a moment in which it refuses all of them,
//! concern the clients that ask for them. Others hear every message meanwhile.

use std::time::Duration;

use crate::common::hosts::host;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, encoded, wait_until};

fn hears(subscriber: &mut Client, text: &str) {
    let message = ["message", "c", text].map(Value::bulk);
    assert_eq!(subscriber.read().array(), message);
}

/// A client that subscribes to `c`.
fn subscriber(ported: &Ported) -> Client {
    let mut client = ported.client();
    assert_eq!(client.run("SUBSCRIBE c").array()[0], Value::bulk("subscribe"));
    client
}

#[test]
fn a_host_without_psubscribe_is_told_of() {
    let renamed = Mode::Adaptive.builder().config("rename-command PSUBSCRIBE another");
    let renamed = Ported::start(renamed);
    let (mut other, mut client, mut publisher) =
        (subscriber(&renamed), renamed.client(), renamed.client());
    for round in 0..3 {
        let refused = client.run("PSUBSCRIBE p*").text();
        assert!(
            refused.starts_with("ERR no subscriptions on midi's port: the server says"),
            "{refused}"
        );
        assert_eq!(publisher.integer(&format!("PUBLISH c {round}")), 1);
        hears(&mut other, &round.to_string());
    }
    assert_eq!(renamed.server.log().matches("cannot subscribe").count(), 1);
}

/// A busy host refuses the ends of subscriptions as well.
#[test]
fn a_long_script_costs_nobody_a_message() {
    let ported = Ported::start(Mode::Adaptive.builder().config("lua-time-limit 50"));
    let (mut other, mut leaver, mut comer) =
        (subscriber(&ported), ported.client(), ported.client());
    leaver.run("SUBSCRIBE left");
    let mut host = ported.host();
    let script = "local begin = redis.call('TIME') \
                  repeat local now = redis.call('TIME') \
                  until (now[1] - begin[1]) * 1000000 + now[2] - begin[2] > 600000 \
                  redis.call('PUBLISH', 'c', 'from script')";
    host.send(&encoded(&["EVAL", script, "0"]));
    std::thread::sleep(Duration::from_millis(250));
    drop(leaver);
    comer.send_line("SUBSCRIBE c new");
    hears(&mut other, "from script");
    host.read();
    assert_eq!(host.run("PUBLISH c next"), Value::Integer(1));
    hears(&mut other, "next");
    comer.read();
    wait_until("the end is told later", || {
        host.run("PUBSUB NUMSUB left").array()[1] == Value::Integer(0)
    });
    assert!(!ported.server.log().contains("has ended"));
}

/// Redis 8.6 refuses subscriptions then.
#[test]
fn a_host_without_memory_keeps_the_subscriptions() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut other, mut client) = (subscriber(&ported), ported.client());
    let mut at_host = ported.host();
    at_host.ok("CONFIG SET maxmemory 1");
    let refuses = at_host.run("SUBSCRIBE c").is_error();
    assert!(refuses || host().valkey || host().version < (8, 6));
    let mut publisher = ported.host();
    for round in 0..3 {
        assert_eq!(client.run("SUBSCRIBE new").is_error(), refuses);
        publisher.integer(&format!("PUBLISH c {round}"));
        hears(&mut other, &round.to_string());
    }
    // A new listener gets none of them before there is room again.
    publisher.integer("CLIENT KILL TYPE pubsub");
    publisher.ok("CONFIG SET maxmemory 0");
    wait_until("they are back", || publisher.integer("PUBLISH c back") > 0);
    hears(&mut other, "back");
    client.run("SUBSCRIBE new");
    publisher.integer("PUBLISH c last");
    hears(&mut other, "last");
}
