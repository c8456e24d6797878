//! The promise: midi's keys keep within `midi.maxmemory`, or within what is left of the host's
//! `maxmemory`, by the policy that is set; and what is evicted is a removed key like any other.

use std::time::Duration;

use crate::common::{
    Client, Door, Mode, Random, Server, Value, at_once, beside, encoded, redis_server, replicas,
    wait_until,
};

const MIB: i64 = 1 << 20;
const LIMIT: i64 = 4 * MIB;

const POLICIES: [&str; 8] = [
    "allkeys-auto",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// midi's keys take so many bytes.
fn bytes(client: &mut Client) -> i64 {
    client.info_number("midi_memory", "midi_table_bytes")
}

fn evicted(client: &mut Client) -> i64 {
    client.info_number("midi_memory", "midi_evicted_keys")
}

/// SETs through a door; `arguments` follow the value. Returns the errors.
fn fill(
    door: Door,
    client: &mut Client,
    keys: std::ops::Range<usize>,
    size: usize,
    arguments: &[&str],
) -> Vec<String> {
    let value = "v".repeat(size);
    let mut errors = Vec::new();
    for keys in keys.collect::<Vec<_>>().chunks(500) {
        let set = |key: &usize| {
            let key = format!("key:{key}");
            let set: Vec<&str> = [&["SET", &key, &value], arguments].concat();
            door.named(&set)
        };
        let calls: Vec<_> = keys.iter().map(set).collect();
        let replies = client.pipeline(&calls);
        errors.extend(replies.iter().filter(|reply| reply.is_error()).map(Value::text));
    }
    errors
}

fn limited(mode: Mode, policy: &str) -> Server {
    mode.builder().with_port().load(&format!("maxmemory {LIMIT} maxmemory-policy {policy}")).start()
}

#[test]
fn every_policy_keeps_to_the_limit_on_every_door() {
    for mode in Mode::tried() {
        let all = mode == Mode::Adaptive;
        for policy in if all { &POLICIES[..] } else { &POLICIES[..1] } {
            let server = limited(mode, policy);
            let mut host = server.client();
            for door in [Door::Host, Door::Port] {
                let mut client = door.client(&server);
                let before = evicted(&mut host);
                let errors = fill(door, &mut client, 0..30_000, 200, &["EX", "1000"]);
                assert_eq!(errors, [""; 0], "{mode:?} {policy} {door:?}");
                let (used, evicted) = (bytes(&mut host), evicted(&mut host) - before);
                assert!(used <= LIMIT + LIMIT / 50, "{mode:?} {policy} {door:?}: {used}");
                assert!(used > LIMIT / 10 * 9, "{mode:?} {policy} {door:?}: {used}");
                assert!(evicted > 10_000, "{mode:?} {policy} {door:?}: {evicted}");
            }
            wait_until("nothing is evicted", || bytes(&mut host) <= LIMIT);
            let keys = host.integer("MIDI.DBSIZE") as usize;
            assert_eq!(host.run("MIDI.KEYS *").array().len(), keys);
        }
    }
}

const OOM: &str = "OOM command not allowed when used memory > 'midi.maxmemory'.";

#[test]
fn without_eviction_writes_that_need_memory_are_refused() {
    for mode in Mode::tried() {
        let server = limited(mode, "noeviction");
        for door in [Door::Host, Door::Port] {
            let mut client = door.client(&server);
            let errors = fill(door, &mut client, 0..30_000, 200, &[]);
            assert!(errors.len() > 5000, "{}", errors.len());
            assert!(errors.iter().all(|error| error == OOM), "{:?}", errors[0]);
            assert!(bytes(&mut server.client()) < LIMIT + LIMIT / 50);
            let call = |client: &mut Client, words: &[&str]| client.call(&door.named(words));
            assert_eq!(call(&mut client, &["SET", "a", "b"]), Value::error(OOM));
            assert_eq!(call(&mut client, &["MSET", "a", "b", "c", "d"]), Value::error(OOM));
            assert_eq!(call(&mut client, &["STRLEN", "key:0"]), Value::Integer(200));
            // Room at once, for the same client and for others.
            assert_eq!(call(&mut client, &["DEL", "key:0", "key:1"]), Value::Integer(2));
            let names: Vec<String> = (2..200).map(|n| format!("key:{n}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            call(&mut client, &[&["DEL"], &names[..]].concat());
            assert_eq!(call(&mut client, &["SET", "a", "b"]), Value::ok());
            server.client().ok("MIDI.FLUSHALL SYNC");
        }
    }
}

/// The reference's complaint: with one limit for both, a growing midi emptied the host.
#[test]
fn who_grows_pays() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let server = Mode::Adaptive.builder().with_port().start();
        let (mut host, mut port) = (server.client(), server.midi_client());
        let native = |client: &mut Client| client.integer("DBSIZE");
        for keys in (0..5000).collect::<Vec<_>>().chunks(500) {
            let set = |n: &usize| vec!["SET".to_string(), format!("n:{n}"), "v".repeat(100)];
            host.pipeline(&keys.iter().map(set).collect::<Vec<_>>());
        }
        let used = host.info_number("memory", "used_memory");
        host.ok(&format!("CONFIG SET maxmemory-policy {policy}"));
        host.ok(&format!("CONFIG SET maxmemory {}", used + 16 * MIB));
        let errors = fill(Door::Port, &mut port, 0..150_000, 200, &[]);
        assert_eq!(errors, [""; 0], "{policy}");
        assert_eq!(native(&mut host), 5000, "{policy}");
        assert!(evicted(&mut host) > 50_000, "{policy}");
        assert_eq!(host.info_number("stats", "evicted_keys"), 0, "{policy}");
        let errors = fill(Door::Host, &mut host, 0..50_000, 300, &[]);
        assert_eq!(errors, [""; 0], "{policy}");
        assert_eq!(native(&mut host), 5000, "{policy}");
        // The host's own growth is paid by its own keys.
        let kept = host.integer("MIDI.DBSIZE");
        for keys in (5000..60_000).collect::<Vec<_>>().chunks(500) {
            let set = |n: &usize| vec!["SET".to_string(), format!("n:{n}"), "v".repeat(100)];
            host.pipeline(&keys.iter().map(set).collect::<Vec<_>>());
        }
        assert!(host.info_number("stats", "evicted_keys") > 0, "{policy}");
        assert!(host.integer("MIDI.DBSIZE") > kept * 9 / 10, "{policy}");
    }
}

/// Else the server's own writes would be refused from then on, with all its own keys evicted.
#[test]
fn a_lower_limit_of_the_host_is_kept() {
    let mut server = Mode::Adaptive.builder().with_port().start();
    let mut host = server.client();
    let used = host.info_number("memory", "used_memory");
    host.ok("CONFIG SET maxmemory-policy allkeys-lru");
    host.ok(&format!("CONFIG SET maxmemory {}", used + 64 * MIB));
    host.ok("MIDI.POPULATE 150000 key 200");
    host.ok("SAVE");
    let is_kept = |host: &mut Client, limit: i64| {
        let used = |host: &mut Client| host.info_number("memory", "used_memory");
        wait_until("the host is below its limit", || used(host) < limit);
        wait_until("the host's writes are taken", || host.run("SET a b") == Value::ok());
        assert!(bytes(host) > limit / 4);
    };
    host.ok(&format!("CONFIG SET maxmemory {}", used + 16 * MIB));
    is_kept(&mut host, used + 16 * MIB);
    host.ok("CONFIG REWRITE");
    server.crash();
    server.restart(redis_server());
    is_kept(&mut server.client(), used + 16 * MIB);
}

#[test]
fn a_host_that_has_filled_its_memory_leaves_none() {
    let server = Mode::Adaptive.builder().with_port().start();
    let (mut host, mut port) = (server.client(), server.midi_client());
    let used = host.info_number("memory", "used_memory");
    host.ok("CONFIG SET maxmemory-policy allkeys-lru");
    host.ok(&format!("CONFIG SET maxmemory {}", used + 8 * MIB));
    for keys in (0..100_000).collect::<Vec<_>>().chunks(500) {
        let set = |n: &usize| vec!["SET".to_string(), format!("n:{n}"), "v".repeat(100)];
        host.pipeline(&keys.iter().map(set).collect::<Vec<_>>());
    }
    wait_until("midi knows", || port.run("SET a b").is_error());
    let error = port.run("SET a b").text();
    assert!(error.starts_with("OOM ") && error.contains("midi.maxmemory"), "{error}");
    // With a limit of its own midi has its memory, and the host gives way.
    host.ok("CONFIG SET midi.maxmemory 2mb");
    wait_until("midi has room", || port.run("SET a b") == Value::ok());
    assert_eq!(fill(Door::Port, &mut port, 0..20_000, 200, &[]), [""; 0]);
    assert!(bytes(&mut host) > MIB);
    assert_eq!(host.info("midi_memory")["midi_evictable_host_keys"], "all");
}

/// As in a cache that has all its data in midi: what else grows takes the place of midi's keys.
#[test]
fn a_host_without_keys_does_not_pay() {
    let server = Mode::Adaptive.builder().with_port().start();
    let (mut host, mut port) = (server.client(), server.midi_client());
    let limit = host.info_number("memory", "used_memory") + 40 * MIB;
    host.ok("CONFIG SET maxmemory-policy allkeys-lru");
    host.ok(&format!("CONFIG SET maxmemory {limit}"));
    assert_eq!(fill(Door::Port, &mut port, 0..150_000, 300, &[]), [""; 0]);
    let before = host.integer("MIDI.DBSIZE");
    // A command that never ends takes 12 MiB.
    let mut other = server.client();
    other.send(format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n", 12 * MIB).as_bytes());
    other.send(&vec![b'v'; 11 << 20]);
    wait_until("the host is below its limit again", || {
        host.info_number("memory", "used_memory") < limit
            && host.integer("MIDI.DBSIZE") < before * 9 / 10
    });
    assert_eq!(host.run("MIDI.SET a b"), Value::ok());
    assert_eq!(fill(Door::Port, &mut port, 0..20_000, 300, &[]), [""; 0]);
    assert!(host.integer("MIDI.DBSIZE") > before / 2);
}

/// While it runs it keeps nearly all shards, and the workers find little in the others.
#[test]
fn a_long_script_is_not_refused_memory() {
    let (server, script) = (
        limited(Mode::Adaptive, "allkeys-lru"),
        "for i = 1, 4000 do redis.call('SET', 'e' .. i, '') end \
         redis.call('SET', 'large', string.rep('v', 3000000)) \
         local till = redis.call('TIME'); till = till[1] * 1000000 + till[2] + 200000 \
         repeat local now = redis.call('TIME') until now[1] * 1000000 + now[2] > till \
         return redis.call('SET', 'last', 1)",
    );
    let (mut client, mut other) = (server.midi_client(), server.midi_client());
    assert_eq!(fill(Door::Port, &mut client, 0..60_000, 600, &[]), [""; 0]);
    client.send(&encoded(&["EVAL", script, "0"]));
    for _ in 0..20 {
        assert_eq!(fill(Door::Port, &mut other, 60_000..60_500, 10, &[]), [""; 0]);
    }
    assert_eq!(client.read(), Value::ok());
}

fn has(client: &mut Client, key: &str) -> bool {
    client.run(&format!("MIDI.EXISTS {key}")) == Value::Integer(1)
}

#[test]
fn the_frequency_of_keys_is_told_under_an_lfu_policy() {
    let server = limited(Mode::Adaptive, "allkeys-lfu");
    let (mut host, mut port) = (server.client(), server.midi_client());
    port.ok("SET hot v");
    assert_eq!(port.run("OBJECT FREQ hot"), Value::Integer(0));
    port.run("GET hot");
    for client in [&mut port, &mut host] {
        assert_eq!(client.run("MIDI.OBJECT FREQ hot"), Value::Integer(1));
    }
    for keys in (0..60_000).collect::<Vec<_>>().chunks(500) {
        let set = |n: &usize| vec!["SET".to_string(), format!("n:{n}"), "v".repeat(200)];
        port.pipeline(&keys.iter().map(set).collect::<Vec<_>>());
        port.run("GET hot");
    }
    assert_eq!(port.run("OBJECT FREQ hot"), Value::Integer(3));
    for (setting, is_told) in [
        ("midi.maxmemory-policy allkeys-lru", false),
        ("midi.maxmemory-policy allkeys-auto", true),
        ("midi.maxmemory-policy host", false),
        ("maxmemory-policy allkeys-lru", false),
        ("maxmemory-policy volatile-lfu", true),
    ] {
        host.ok(&format!("CONFIG SET {setting}"));
        assert_eq!(port.run("OBJECT FREQ hot").is_error(), !is_told, "{setting}");
    }
}

/// A key that nobody reads does not look like one that is used, however it was made. Without a
/// limit, too.
#[test]
fn making_a_key_is_no_use_of_it() {
    let builder = Mode::Adaptive.builder().config("maxmemory-policy allkeys-lfu");
    let server = builder.with_port().start();
    for mut client in [server.client(), server.midi_client()] {
        let mut run = |line: &str| client.run(&format!("MIDI.{line}"));
        run("SET source v");
        run("HSET hash f v");
        let many = (0..600).map(|number| format!(" f{number} v")).collect::<String>();
        for line in [
            "SET k v",
            "SET k v EX 100",
            "SETNX k v",
            "SETEX k 100 v",
            "GETSET k v",
            "APPEND k v",
            "INCR k",
            "INCRBYFLOAT k 1",
            "SETRANGE k 0 v",
            "SETBIT k 7 1",
            "BITFIELD k SET u8 0 1",
            "BITOP NOT k source",
            "MSET k v",
            "MSET k v l w",
            "MSETNX k v",
            "COPY source k",
            "COPY hash k",
            "HSET k f v",
            &format!("HSET k{many}"),
            "HSETNX k f v",
            "HINCRBY k f 1",
            "HINCRBYFLOAT k f 1",
        ] {
            run("DEL k l");
            let made = run(line);
            assert!(!made.is_error(), "{line}: {made:?}");
            assert_eq!(run("OBJECT FREQ k"), Value::Integer(0), "{line}");
            run("TOUCH k");
            assert_eq!(run("OBJECT FREQ k"), Value::Integer(1), "{line}");
        }
    }
}

#[test]
fn what_is_used_stays() {
    for (policy, door) in [
        ("allkeys-lru", Door::Port),
        ("allkeys-lfu", Door::Port),
        ("allkeys-auto", Door::Host),
        ("allkeys-lfu", Door::Host),
    ] {
        let server = limited(Mode::Adaptive, policy);
        let mut client = door.client(&server);
        let mut host = server.client();
        let mut silent = server.midi_client();
        let knows_no_touch = silent.run("CLIENT NO-TOUCH ON") == Value::ok();
        let names =
            |kind: &str| -> Vec<String> { (0..100).map(|n| format!("{kind}:{n}")).collect() };
        let value = "v".repeat(100);
        for kind in ["get", "mget", "append", "touch", "exists", "silent"] {
            names(kind).iter().for_each(|name| {
                assert_eq!(client.call(&door.named(&["SET", name, &value])), Value::ok());
            });
        }
        for round in 0..60 {
            let gets: Vec<_> = names("get").iter().map(|key| door.named(&["GET", key])).collect();
            client.pipeline(&gets);
            let mget = names("mget");
            let words: Vec<&str> =
                ["MGET"].into_iter().chain(mget.iter().map(|n| &n[..])).collect();
            client.call(&door.named(&words));
            for name in names("append") {
                client.call(&door.named(&["GETRANGE", &name, "0", "1"]));
            }
            for name in names("exists") {
                client.call(&door.named(&["EXISTS", &name]));
                client.call(&door.named(&["TTL", &name]));
                silent.run(&format!("GET silent:{}", &name[7..]));
                silent.run(&format!("TOUCH touch:{}", &name[7..]));
            }
            let first = 1_000_000 + round * 2000;
            assert_eq!(fill(door, &mut client, first..first + 2000, 100, &[]), [""; 0]);
        }
        let mut left = |kind: &str| names(kind).iter().filter(|name| has(&mut host, name)).count();
        for kind in ["get", "mget", "append", "touch"] {
            assert!(left(kind) >= 97, "{policy} {door:?}: {} of {kind} are left", left(kind));
        }
        assert!(left("exists") < 50, "{policy} {door:?}: {}", left("exists"));
        assert!(!knows_no_touch || left("silent") < 50, "{policy} {door:?}: {}", left("silent"));
    }
}

#[test]
fn volatile_policies_leave_the_others_alone() {
    for policy in POLICIES.into_iter().filter(|policy| policy.starts_with("volatile-")) {
        let server = limited(Mode::Adaptive, policy);
        let (mut host, mut port) = (server.client(), server.midi_client());
        assert_eq!(fill(Door::Port, &mut port, 0..5000, 200, &[]), [""; 0]);
        assert_eq!(fill(Door::Port, &mut port, 5000..40_000, 200, &["EX", "1000"]), [""; 0]);
        let kept = (0..5000).filter(|n| has(&mut host, &format!("key:{n}"))).count();
        assert_eq!(kept, 5000, "{policy}");
        // Where all that is left is to stay, there is nothing to evict.
        let errors = fill(Door::Port, &mut port, 40_000..80_000, 200, &[]);
        assert!(errors.len() > 10_000, "{policy}: {}", errors.len());
        assert!(errors.iter().all(|error| error == OOM), "{policy}: {}", errors[0]);
        assert_eq!(host.info_number("midi_expiry", "midi_expiring_keys"), 0, "{policy}");
    }
}

/// Wherever the few keys that may go are: in another database than most of the memory, and among
/// many others of one shard.
#[test]
fn volatile_keys_are_found() {
    for shards in [1, 1024] {
        let server = Mode::Adaptive
            .builder()
            .with_port()
            .load(&format!("shards {shards} maxmemory {LIMIT} maxmemory-policy volatile-lru"))
            .start();
        let mut port = server.midi_client();
        assert_eq!(fill(Door::Port, &mut port, 0..12_000, 200, &[]), [""; 0]);
        for db in [1, 0] {
            port.ok(&format!("SELECT {db}"));
            let errors = fill(Door::Port, &mut port, 20_000..60_000, 200, &["EX", "1000"]);
            assert_eq!(errors, [""; 0], "{shards} shards, database {db}");
        }
        assert_eq!(fill(Door::Port, &mut port, 0..12_000, 200, &["XX"]), [""; 0]);
    }
}

/// A limit that cannot be kept holds up no other.
#[test]
fn each_limit_has_its_turn() {
    let server = Mode::Adaptive.builder().with_port().start();
    let (mut host, mut port) = (server.client(), server.midi_client());
    for db in [1, 2] {
        port.ok(&format!("SELECT {db}"));
        assert_eq!(fill(Door::Port, &mut port, 0..20_000, 200, &[]), [""; 0]);
    }
    let policies = "1:volatile-lru 2:allkeys-lru";
    host.call(&["CONFIG", "SET", "midi.db-maxmemory-policy", policies]);
    host.call(&["CONFIG", "SET", "midi.db-maxmemory", "1:1mb 2:1mb"]);
    wait_until("the second database keeps to its limit", || port.integer("DBSIZE") < 6000);
    port.ok("SELECT 1");
    assert_eq!(port.integer("DBSIZE"), 20_000);
}

#[test]
fn what_is_due_goes_first() {
    let server = limited(Mode::Adaptive, "allkeys-lru");
    let (mut host, mut port) = (server.client(), server.midi_client());
    assert_eq!(fill(Door::Port, &mut port, 0..8000, 200, &[]), [""; 0]);
    assert_eq!(fill(Door::Port, &mut port, 8000..12_000, 200, &["PX", "300"]), [""; 0]);
    std::thread::sleep(Duration::from_millis(1500));
    let before = evicted(&mut host);
    assert_eq!(fill(Door::Port, &mut port, 20_000..23_000, 200, &[]), [""; 0]);
    assert_eq!(evicted(&mut host), before, "what was due made room");
}

#[test]
fn a_lower_limit_is_reached_under_load() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        let mut host = server.client();
        host.ok("CONFIG SET midi.maxmemory-policy allkeys-auto");
        host.ok("CONFIG SET midi.maxmemory 16mb");
        let load = |_: &mut Client, random: &mut Random| {
            let first = random.below(1_000_000);
            let errors = fill(Door::Port, &mut server.midi_client(), first..first + 2000, 200, &[]);
            assert_eq!(errors, [""; 0]);
        };
        beside(&server, 2, load, || {
            wait_until("16 MiB are full", || bytes(&mut host) > 15 * MIB);
            host.ok("CONFIG SET midi.maxmemory 2mb");
            wait_until("2 MiB are left", || bytes(&mut host) < 2 * MIB + MIB / 10);
            host.ok("CONFIG SET midi.maxmemory 8mb");
            wait_until("8 MiB are full", || bytes(&mut host) > 7 * MIB);
        });
        assert!(bytes(&mut host) < 8 * MIB + MIB / 5);
    }
}

#[test]
fn values_of_any_size_keep_to_the_limit() {
    let server = limited(Mode::Adaptive, "allkeys-auto");
    let (mut host, mut port) = (server.client(), server.midi_client());
    for round in 0..20 {
        assert_eq!(fill(Door::Port, &mut port, 0..5000, 50 + round, &[]), [""; 0]);
        for size in [100_000, 1_000_000] {
            let value = vec![b'v'; size];
            let key = format!("large:{round}");
            assert_eq!(port.call(&[b"SET".as_slice(), key.as_bytes(), &value]), Value::ok());
            let set = [b"MIDI.SET".as_slice(), b"other", &value];
            assert_eq!(host.call(&set), Value::ok());
        }
        // One value more than the limit may be there.
        assert!(bytes(&mut host) < LIMIT + 2 * MIB, "{}", bytes(&mut host));
        wait_until("the rest is evicted", || bytes(&mut host) < LIMIT + LIMIT / 50);
    }
    assert!(port.run("EXISTS large:19") == Value::Integer(1) || evicted(&mut host) > 0);
}

#[test]
fn nothing_vanishes_within_a_transaction() {
    let server = limited(Mode::Adaptive, "allkeys-random");
    let (mut host, mut port) = (server.client(), server.midi_client());
    assert_eq!(fill(Door::Port, &mut port, 0..30_000, 200, &[]), [""; 0]);
    let value = "v".repeat(500);
    for (client, door) in [(&mut host, Door::Host), (&mut port, Door::Port)] {
        client.ok("MULTI");
        for n in 0..300 {
            client.call(&door.named(&["SET", &format!("m:{n}"), &value]));
        }
        for n in 0..300 {
            client.call(&door.named(&["STRLEN", &format!("m:{n}")]));
        }
        let replies = client.run("EXEC").array();
        assert!(replies[300..].iter().all(|reply| *reply == Value::Integer(500)));
    }
    wait_until("the debt is paid", || bytes(&mut host) < LIMIT + LIMIT / 50);
}

#[test]
fn evicted_keys_are_told_and_watched() {
    let server = limited(Mode::Adaptive, "allkeys-lru");
    let (mut host, mut port) = (server.client(), server.midi_client());
    host.ok("CONFIG SET notify-keyspace-events Ee");
    let mut listener = server.client();
    listener.run("SUBSCRIBE __keyevent@0__:evicted");
    host.ok("MIDI.SET watched v");
    port.ok("SET seen v");
    let mut of_port = server.midi_client();
    of_port.ok("WATCH seen");
    let mut of_host = server.client();
    of_host.ok("WATCH watched");
    assert_eq!(fill(Door::Port, &mut port, 0..60_000, 200, &[]), [""; 0]);
    let message = listener.read().array();
    assert_eq!(message[1], Value::bulk("__keyevent@0__:evicted"));
    let gone = message[2].text();
    assert!(!has(&mut host, &gone) || gone.starts_with("key:"), "{gone}");
    assert_eq!(host.call(&["CONFIG", "SET", "notify-keyspace-events", ""]), Value::ok());
    for (client, key, door) in
        [(&mut of_port, "seen", Door::Port), (&mut of_host, "watched", Door::Host)]
    {
        let is_gone = !has(&mut host, key);
        client.ok("MULTI");
        client.call(&door.named(&["GET", key]));
        let reply = client.run("EXEC");
        assert_eq!(reply.is_null(), is_gone, "{key}: {reply:?}");
    }
    assert!(!has(&mut host, "seen"), "it was not used");
}

/// Replicas evict nothing: they follow.
#[test]
fn replicas_and_restarts_have_the_same_keys() {
    let builder = || {
        replicas::with_aof_always(Mode::Adaptive.builder().with_port())
            .load(&format!("maxmemory {LIMIT} maxmemory-policy allkeys-auto"))
    };
    let (mut server, replica) = (builder().start(), builder().start());
    replicas::follow(&replica, server.port());
    replicas::wait_for_link(&replica);
    let load = |number: usize| {
        let mut port = server.midi_client();
        for round in 0..5 {
            let first = number * 1_000_000 + round * 5000;
            assert_eq!(fill(Door::Port, &mut port, first..first + 5000, 200, &[]), [""; 0]);
        }
    };
    at_once(3, load);
    assert!(evicted(&mut server.client()) > 10_000);
    replicas::must_become_equal(&[&server, &replica], "after evictions");
    assert_eq!(evicted(&mut replica.client()), 0);
    let digest = |server: &Server| server.client().run("MIDI.KEYSPACEDIGEST");
    let before = digest(&server);
    server.crash();
    server.restart(redis_server());
    assert_eq!(digest(&server), before);
}

/// A load is never cut: what is too much goes after it.
#[test]
fn a_load_above_the_limit_is_evicted_after_it() {
    let mut server = Mode::Adaptive.builder().with_port().start();
    let mut host = server.client();
    host.ok("MIDI.POPULATE 50000 key 200");
    host.ok("SAVE");
    host.ok("CONFIG SET midi.maxmemory-policy allkeys-lru");
    host.ok("CONFIG SET midi.maxmemory 4mb");
    wait_until("4 MiB are left", || bytes(&mut host) < LIMIT + LIMIT / 50);
    host.ok("CONFIG REWRITE");
    server.crash();
    server.restart(redis_server());
    let mut host = server.client();
    wait_until("4 MiB are left again", || bytes(&mut host) < LIMIT + LIMIT / 50);
    assert_eq!(host.run("CONFIG GET midi.maxmemory-policy").array()[1].text(), "allkeys-lru");
}

#[test]
fn settings_are_told() {
    let server = Mode::Adaptive.builder().with_port().start();
    let (mut host, mut port) = (server.client(), server.midi_client());
    let memory = |port: &mut Client| {
        let info = port.info("memory");
        (info["maxmemory"].clone(), info["maxmemory_policy"].clone())
    };
    assert_eq!(memory(&mut port), ("0".into(), "noeviction".into()));
    host.ok("CONFIG SET midi.maxmemory 3mb");
    host.ok("CONFIG SET midi.maxmemory-policy volatile-ttl");
    assert_eq!(memory(&mut port), ("3145728".into(), "volatile-ttl".into()));
    let of_port =
        |port: &mut Client, name: &str| port.run(&format!("CONFIG GET {name}")).array()[1].text();
    assert_eq!(of_port(&mut port, "maxmemory"), "3145728");
    assert_eq!(of_port(&mut port, "maxmemory-policy"), "volatile-ttl");
    let wrong = host.run("CONFIG SET midi.maxmemory-policy lru").text();
    assert!(wrong.contains("volatile-ttl"), "{wrong}");
    host.ok("CONFIG SET maxmemory 2mb");
    wait_until("it is warned of", || server.log().contains("is not below maxmemory"));
}

/// A database with a limit of its own evicts its own keys, and no others. Each shard evicts before
/// a write, so it may have one key more than its share.
#[test]
fn a_noisy_database_pays_for_itself() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        let (mut host, mut port) = (server.client(), server.midi_client());
        host.ok("CONFIG SET midi.maxmemory 16mb");
        host.ok("CONFIG SET midi.maxmemory-policy allkeys-lru");
        host.call(&["CONFIG", "SET", "midi.db-maxmemory", "1:2mb 2:1mb"]);
        host.ok("CONFIG SET midi.db-maxmemory-policy 2:noeviction");
        assert_eq!(fill(Door::Port, &mut port, 0..20_000, 200, &[]), [""; 0]);
        for door in [Door::Port, Door::Host] {
            let mut noisy = door.client(&server);
            noisy.ok("SELECT 1");
            assert_eq!(fill(door, &mut noisy, 0..30_000, 200, &[]), [""; 0], "{mode:?}");
            let kept = noisy.call(&door.named(&["DBSIZE"])).integer();
            let most = (2 << 20) / 200 + 1024;
            assert!((5000..most).contains(&kept), "{mode:?} {door:?}: {kept}");
            noisy.ok("SELECT 2");
            let errors = fill(door, &mut noisy, 0..10_000, 200, &[]);
            assert!(errors.len() > 4000, "{mode:?} {door:?}: {}", errors.len());
            let named =
                "OOM command not allowed when used memory > 'midi.db-maxmemory' of database 2.";
            assert!(errors.iter().all(|error| error == named), "{}", errors[0]);
            assert_eq!(noisy.call(&door.named(&["MSET", "a", "b"])), Value::error(named));
            for long in ["MIDI.POPULATE 1000 more", "MIDI.IMPORT *"] {
                assert_eq!(noisy.run(long), Value::error(named), "{mode:?} {door:?}");
            }
            assert_eq!(noisy.call(&door.named(&["STRLEN", "key:0"])), Value::Integer(200));
        }
        assert_eq!(host.integer("MIDI.DBSIZE"), 20_000, "{mode:?}: the quiet one");
        port.ok("SELECT 2");
        port.ok("FLUSHDB");
        assert_eq!(port.run("SET a b"), Value::ok(), "{mode:?}");
        // A job stops where it reaches the limit, also where it runs in one go.
        let reply = port.run("POPULATE 100000 key 200").text();
        assert!(reply.ends_with("'midi.db-maxmemory' of database 2."), "{mode:?}: {reply}");
        assert!(port.integer("DBSIZE") < 50_000, "{mode:?}");
        for wrong in ["1", "1:", "x:1mb", "1:lots"] {
            assert!(
                host.call(&["CONFIG", "SET", "midi.db-maxmemory", wrong]).is_error(),
                "{wrong}"
            );
        }
    }
}

/// Workers leave alone what clients of the host watch. Where they find nothing else that may go,
/// writes are refused, and do not wait for ever.
#[test]
fn what_may_not_go_holds_nobody_up() {
    for (policy, shards) in [("volatile-lru", 1024), ("volatile-lru", 1), ("volatile-ttl", 1)] {
        what_may_not_go(policy, shards);
    }
}

fn what_may_not_go(policy: &str, shards: usize) {
    let limit = format!("shards {shards} maxmemory {LIMIT} maxmemory-policy {policy}");
    let server = Mode::Adaptive.builder().with_port().load(&limit).start();
    let mut port = server.midi_client();
    let names: Vec<String> = (0..100).map(|n| format!("key:{n}")).collect();
    assert_eq!(fill(Door::Port, &mut port, 0..100, 200, &["EX", "1000"]), [""; 0]);
    let mut watcher = server.client();
    let watch: Vec<&str> =
        ["WATCH"].into_iter().chain(names.iter().map(|name| &name[..])).collect();
    assert_eq!(watcher.call(&watch), Value::ok());
    let errors = fill(Door::Port, &mut port, 1000..40_000, 200, &[]);
    assert!(errors.len() > 10_000 && errors.iter().all(|error| error == OOM), "{}", errors.len());
    // The main thread may evict them, and tells: it runs what a worker cannot.
    let is_gone = |name: &&String| port.run(&format!("EXISTS {name}")) != Value::Integer(1);
    let gone: Vec<&String> = names.iter().filter(is_gone).collect();
    watcher.ok("MULTI");
    watcher.run("MIDI.GET key:0");
    let reply = watcher.run("EXEC");
    assert_eq!(reply.is_null(), !gone.is_empty(), "{gone:?}: {reply:?}");
    // Some of the others make room.
    for n in 1000..2000 {
        port.run(&format!("DEL key:{n}"));
    }
    assert_eq!(port.run("SET a b"), Value::ok());
}

/// Commands on several keys, and transactions, make room as those on one do.
#[test]
fn commands_on_several_keys_keep_to_the_limits() {
    let mset = |first: usize| {
        let pairs = (first..first + 100).flat_map(|n| [format!("key:{n}"), "v".repeat(200)]);
        ["MSET".to_owned()].into_iter().chain(pairs).collect::<Vec<_>>()
    };
    for mode in Mode::tried() {
        let server = limited(mode, "allkeys-lru");
        let mut host = server.client();
        host.call(&["CONFIG", "SET", "midi.db-maxmemory", "1:1mb"]);
        host.ok("CONFIG SET midi.db-maxmemory-policy 1:allkeys-lru");
        for (door, db, limit) in [
            (Door::Host, 0, LIMIT),
            (Door::Port, 0, LIMIT),
            (Door::Host, 1, MIB),
            (Door::Port, 1, MIB),
        ] {
            let mut client = door.client(&server);
            client.ok(&format!("SELECT {db}"));
            for part in 0..300 {
                if part % 3 == 0 && door == Door::Port {
                    client.ok("MULTI");
                    assert_eq!(client.call(&mset(part * 100)).text(), "QUEUED");
                    assert_eq!(client.run("EXEC").array(), [Value::ok()]);
                } else {
                    assert_eq!(client.call(&door.named(&mset(part * 100))), Value::ok());
                }
            }
            let keys = client.call(&door.named(&["DBSIZE"])).integer();
            let most = limit / 200;
            assert!(keys < most, "{mode:?} {door:?}, database {db}: {keys} keys");
            assert!(keys > most / 2, "{mode:?} {door:?}, database {db}: {keys} keys");
            host.ok("MIDI.FLUSHALL SYNC");
        }
    }
}

/// COPY is refused for the database that it would fill.
#[test]
fn a_copy_is_judged_by_the_database_that_it_fills() {
    let server = Mode::Adaptive.builder().with_port().start();
    let mut host = server.client();
    host.call(&["CONFIG", "SET", "midi.db-maxmemory", "2:1mb"]);
    host.ok("CONFIG SET midi.db-maxmemory-policy 2:noeviction");
    for door in [Door::Host, Door::Port] {
        let mut client = door.client(&server);
        let mut run = |line: &str| client.call(&door.named(&line.split(' ').collect::<Vec<_>>()));
        assert_eq!(run(&format!("SET k {}", "v".repeat(300_000))), Value::ok());
        let mut copied = (0..10).map(|n| run(&format!("COPY k copy:{n} DB 2")));
        let refused = copied.find(Value::is_error).expect("database 2 is full");
        assert!(refused.text().ends_with("'midi.db-maxmemory' of database 2."), "{refused:?}");
        let mut client = door.client(&server);
        client.ok("SELECT 2");
        let back = client.call(&door.named(&["COPY", "copy:0", "back", "DB", "0"]));
        assert_eq!(back, Value::Integer(1), "{door:?}");
        host.ok("MIDI.FLUSHALL SYNC");
    }
}

/// What makes room for a transaction does not count towards what it logs.
#[test]
fn victims_do_not_count_for_a_transaction() {
    let server = limited(Mode::Adaptive, "allkeys-lru");
    let mut host = server.client();
    host.ok("CONFIG SET appendonly yes");
    host.ok("CONFIG SET midi.max-transaction-bytes 1mb");
    let mut port = server.midi_client();
    let value = "v".repeat(1_500_000);
    for number in 0..20 {
        port.ok("MULTI");
        assert_eq!(port.call(&["SET", &format!("k:{number}"), &value]).text(), "QUEUED");
        // The first write of a transaction may always be made.
        assert_eq!(port.run("EXEC"), Value::Array(vec![Value::ok()]), "{number}");
    }
    assert!(evicted(&mut host) > 10);
}
