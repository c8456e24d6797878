//! The promise: large values go from the socket into their buffer and from there to the socket
//! again. Nothing is copied, and a client that reads slowly takes no memory for them.

use crate::common::port::Ported;
use crate::common::{Builder, Client, Random, Value, Way, Wire, encoded, wait_until};

const LARGE: usize = 100_000;
const MIB: usize = 1 << 20;

fn start() -> Ported {
    Ported::start(Builder::new().load("threads 1"))
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    encoded(words)
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    command(&[b"SET", key.as_bytes(), value])
}

/// How many large values were received and sent, and how many bytes of each were copied.
fn counts(host: &mut Client) -> [i64; 4] {
    ["received", "received_copied_bytes", "sent", "sent_copied_bytes"]
        .map(|field| host.info_number("midi_net", &format!("midi_net_large_{field}")))
}

/// Without TLS, where values come in records.
fn plain_client(ported: &Ported) -> Client {
    match Way::of_this_run() {
        Way::Tls => Client::over(Wire::tcp(ported.number()).expect("a connection")),
        _ => ported.client(),
    }
}

#[test]
fn nothing_is_copied() {
    let ported = start();
    let mut client = plain_client(&ported);
    let (mut host, value) = (ported.host(), vec![b'v'; LARGE]);
    // The first one is not expected.
    client.call(&[b"SET", &b"key0"[..], &value]);
    let [received, received_copied, sent, sent_copied] = counts(&mut host);
    for number in 0..100 {
        let key = format!("key{}", number % 10);
        assert_eq!(client.call(&[b"SET", key.as_bytes(), &value]), Value::ok());
        assert_eq!(client.call(&[b"GET", key.as_bytes()]), Value::bulk(&value));
    }
    client.send(&(0..8).flat_map(|_| set("key0", &value)).collect::<Vec<_>>());
    (0..8).for_each(|_| assert_eq!(client.read(), Value::ok()));
    client.send(&command(&[b"GET", b"key0"]).repeat(8));
    (0..8).for_each(|_| assert_eq!(client.read(), Value::bulk(&value)));
    wait_until("all is counted", || counts(&mut host)[2] == sent + 108);
    assert_eq!(counts(&mut host), [received + 108, received_copied, sent + 108, sent_copied]);
}

/// Connections that are served together, with keys whose lengths differ.
#[test]
fn no_connection_forgets_what_it_expects() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 50;
    let ported = start();
    let mut host = ported.host();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| plain_client(&ported)).collect();
    let value = vec![b'v'; LARGE];
    for round in 0..ROUNDS {
        let key = "k".repeat(1 + round % 4);
        let set = set(&key, &value);
        // Heads come together, and then the values.
        let (head, rest) = set.split_at(set.len() - LARGE - 2);
        clients.iter_mut().for_each(|client| client.send(head));
        clients.iter_mut().for_each(|client| client.send(rest));
        clients.iter_mut().for_each(|client| assert_eq!(client.read(), Value::ok()));
    }
    let [received, copied, ..] = counts(&mut host);
    assert_eq!(received as usize, CLIENTS * ROUNDS);
    let most = CLIENTS * (64 << 10) + CLIENTS * ROUNDS * 64;
    assert!(copied as usize <= most, "{copied} bytes, at most {most}");
}

/// A reply to `GET` of these values, as a client reads it that has stopped in the middle.
fn read_all(client: &mut Client, value: u8, len: usize) {
    let reply = client.read();
    let bytes = reply.bytes();
    assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == value), "one value, whole");
}

#[test]
fn readers_that_stop_take_no_memory_and_get_whole_values() {
    const READERS: usize = 100;
    const VALUES: usize = 4;
    const BYTES: usize = 16 * MIB;
    let ported = start();
    let (mut host, mut client) = (ported.host(), ported.client());
    for number in 0..VALUES {
        let value = vec![b'a' + number as u8; BYTES];
        assert_eq!(client.call(&[b"SET".to_vec(), vec![b'0' + number as u8], value]), Value::ok());
    }
    let mut readers: Vec<Client> = (0..READERS).map(|_| ported.client()).collect();
    let used = |host: &mut Client| host.info_number("memory", "used_memory") as usize;
    let start = used(&mut host);
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(&command(&[b"GET", &[b'0' + (number % VALUES) as u8]]));
    }
    let sent = |host: &mut Client| host.info_number("midi_net", "midi_net_large_sent") as usize;
    wait_until("all have begun", || sent(&mut host) >= READERS);
    assert!(used(&mut host) < start + READERS * (64 << 10), "{} bytes", used(&mut host) - start);
    // The readers still get what they have asked for.
    client.ok("SET 0 other");
    assert_eq!(client.integer("DEL 1"), 1);
    assert_eq!(client.integer("APPEND 2 more"), BYTES as i64 + 4);
    assert_eq!(client.run("GETRANGE 2 -5 -1"), Value::bulk("cmore"));
    assert_eq!(client.integer("SETRANGE 3 0 start"), BYTES as i64);
    for (number, reader) in readers.iter_mut().enumerate() {
        read_all(reader, b'a' + (number % VALUES) as u8, BYTES);
    }
    drop(readers);
    wait_until("two values are gone", || used(&mut host) < start - 2 * BYTES + 8 * MIB);
}

/// A command with some large arguments, and the reply that it gets.
fn random_command(random: &mut Random, last: &mut Vec<u8>) -> (Vec<u8>, Value) {
    let value = |random: &mut Random| {
        let sizes = [0, 5, 9_999, 10_000, 32_767, 32_768, 40_000, 70_000, 150_000];
        let byte = b'a' + random.below(26) as u8;
        vec![byte; sizes[random.below(sizes.len())]]
    };
    let (a, b) = (value(random), value(random));
    match random.below(9) {
        0 => {
            *last = a;
            (set("k", last), Value::ok())
        }
        1 => (command(&[b"GET", b"k"]), Value::bulk(&*last)),
        2 => {
            *last = a;
            (command(&[b"SET", b"k", last, b"EX", b"100"]), Value::ok())
        }
        3 => {
            last.clone_from(&b);
            (command(&[b"MSET", b"x", &a, b"k", &b, b"y", b"z"]), Value::ok())
        }
        4 => (command(&[b"ECHO", &a]), Value::bulk(a)),
        5 => {
            last.extend_from_slice(&a);
            let reply = Value::Integer(last.len() as i64);
            (command(&[b"APPEND", b"k", &a]), reply)
        }
        6 => {
            let before = std::mem::replace(last, a);
            (command(&[b"GETSET", b"k", last]), Value::bulk(before))
        }
        7 => {
            *last = a;
            let all = [command(&[b"MULTI"]), set("k", last), command(&[b"EXEC"])].concat();
            (all, Value::Array(vec![Value::ok()]))
        }
        _ => (command(&[b"MGET", b"k", b"k"]), Value::Array(vec![Value::bulk(&*last); 2])),
    }
}

#[test]
fn however_a_stream_is_cut() {
    let ported = start();
    for seed in 0..6 {
        let (mut random, mut last) = (Random::new(seed), Vec::new());
        let mut client = ported.client();
        client.ok("FLUSHALL");
        client.ok("SET k ''");
        last.extend_from_slice(b"''");
        let mut wanted = Vec::new();
        let mut stream = Vec::new();
        for _ in 0..60 {
            let (bytes, reply) = random_command(&mut random, &mut last);
            if bytes.starts_with(&command(&[b"MULTI"])) {
                wanted.extend([Value::ok(), Value::Simple("QUEUED".into())]);
            }
            stream.extend(bytes);
            wanted.push(reply);
        }
        // The port takes in what comes, however many replies wait for this client.
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let most = [1, 40, 3_000, 66_000, 300_000][random.below(5)];
            let (piece, later) = rest.split_at(rest.len().min(1 + random.below(most)));
            client.send(piece);
            rest = later;
        }
        for (number, wanted) in wanted.iter().enumerate() {
            assert!(client.read() == *wanted, "seed {seed}, reply {number}");
        }
    }
}

/// A command that the host holds up is tried again: its large argument has come, and is kept.
#[test]
fn a_large_value_waits_for_the_end_of_a_pause() {
    let ported = start();
    let (mut host, mut client, mut other) = (ported.host(), ported.client(), ported.client());
    host.ok("CLIENT PAUSE 100000 WRITE");
    let value = vec![b'v'; LARGE];
    client.send(&[set("k", &value), command(&[b"GET", b"k"]), set("l", &value)].concat());
    assert_eq!(other.run("GET k"), Value::NullBulk);
    assert!(!client.has_reply_within(std::time::Duration::from_millis(50)));
    host.ok("CLIENT UNPAUSE");
    assert_eq!(client.read(), Value::ok());
    assert_eq!(client.read(), Value::bulk(&value));
    assert_eq!(client.read(), Value::ok());
    assert_eq!(other.run("GET l"), Value::bulk(&value));
}

#[test]
fn no_reply_has_no_value() {
    let ported = start();
    let mut client = ported.client();
    client.call(&[b"SET", &b"k"[..], &vec![b'v'; LARGE]]);
    client.send(&command(&[b"CLIENT", b"REPLY", b"OFF"]));
    client.send(&command(&[b"GET", b"k"]).repeat(20));
    client.send(&set("k", &vec![b'w'; LARGE]));
    client.send(&command(&[b"CLIENT", b"REPLY", b"ON"]));
    assert_eq!(client.read(), Value::ok());
    client.send(&command(&[b"CLIENT", b"REPLY", b"SKIP"]));
    client.send(&command(&[b"GET", b"k"]));
    assert_eq!(client.run("GETRANGE k 0 1"), Value::bulk("ww"));
}

#[test]
fn a_limit_of_input_counts_large_arguments() {
    let ported = start();
    let (mut host, mut client) = (ported.host(), ported.client());
    host.ok("CONFIG SET midi.client-query-buffer-limit 1mb");
    assert_eq!(client.call(&[b"SET", &b"k"[..], &vec![b'v'; MIB - 100]]), Value::ok());
    let _ = client.try_send(&set("k", &vec![b'w'; 2 * MIB]));
    assert!(client.try_read().is_err(), "it is closed");
    assert_eq!(ported.client().run("GETRANGE k 0 1"), Value::bulk("vv"));
}
