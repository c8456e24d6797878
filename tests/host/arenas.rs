//! The promise: the memory of keys is counted by the host while they are there, goes back to the
//! system when they are gone, and is packed where few of them are left.

use crate::common::{Client, Mode, Value, in_all_modes, wait_until};

const MIB: i64 = 1 << 20;

/// The number of keys of these tests. With its value of 64 bytes, each needs about 100 bytes.
const KEYS: usize = 300_000;

fn used(client: &mut Client) -> i64 {
    client.info_number("memory", "used_memory")
}

fn arenas(client: &mut Client, what: &str) -> i64 {
    client.info_number("midi_memory", &format!("midi_arena_{what}_bytes"))
}

/// Calls a command with the numbers of these keys, in batches; `arguments` follow each key.
fn with_keys(client: &mut Client, command: &str, keys: &[usize], arguments: &[&str]) -> Vec<Value> {
    let mut replies = Vec::new();
    for keys in keys.chunks(1000) {
        let call = |key: &usize| [&[command, &format!("key:{key}")], arguments].concat().join(" ");
        let calls: Vec<Vec<String>> =
            keys.iter().map(|key| call(key).split(' ').map(String::from).collect()).collect();
        replies.extend(client.pipeline(&calls));
    }
    replies
}

fn remove_all_but_each_eighth(client: &mut Client) -> Vec<usize> {
    let (stay, go): (Vec<usize>, Vec<usize>) = (0..KEYS).partition(|key| key % 8 == 0);
    for keys in go.chunks(500) {
        let names = keys.iter().map(|key| format!("key:{key}"));
        let call: Vec<String> = ["MIDI.DEL".to_owned()].into_iter().chain(names).collect();
        assert_eq!(client.call(&call), Value::Integer(keys.len() as i64));
    }
    stay
}

#[test]
fn the_host_counts_the_memory_of_keys() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let before = used(&mut client);
        client.ok(&format!("MIDI.POPULATE {KEYS} key 64"));
        let table = client.info_number("midi_memory", "midi_table_bytes");
        let full = used(&mut client) - before;
        assert!(full >= table && full < table + table / 20 + 2 * MIB, "{full} for {table}");
        remove_all_but_each_eighth(&mut client);
        let left = used(&mut client) - before;
        assert!(left < full / 6 + 2 * MIB, "{left} of {full}");
        client.ok("MIDI.FLUSHALL SYNC");
        wait_until("the system has it back", || arenas(&mut client, "mapped") < 20 * MIB);
        assert!(used(&mut client) - before < 2 * MIB);
    });
}

#[test]
fn chunks_with_few_keys_are_emptied() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok(&format!("MIDI.POPULATE {KEYS} key 64"));
        let full = arenas(&mut client, "mapped");
        assert!(full > 25 * MIB);
        let stay = remove_all_but_each_eighth(&mut client);
        let values = with_keys(&mut client, "MIDI.GET", &stay, &[]);
        wait_until("the rest is packed", || arenas(&mut client, "mapped") < full * 2 / 3);
        assert_eq!(with_keys(&mut client, "MIDI.GET", &stay, &[]), values);
        assert_eq!(client.integer("MIDI.DBSIZE"), stay.len() as i64);
    });
}

/// Both in one large hash, and in several of one segment.
#[test]
fn chunks_with_few_fields_are_emptied() {
    for hashes in [1, 30] {
        let server = Mode::Adaptive.builder().start();
        let mut client = server.client();
        let value = "v".repeat(64);
        let of_fields =
            |command: &str, fields: &[usize], value: Option<&str>| -> Vec<Vec<String>> {
                let by_hash = (0..hashes).map(|hash| {
                    let own = fields.iter().filter(move |field| *field % hashes == hash);
                    own.collect::<Vec<_>>()
                });
                let calls = by_hash.enumerate().flat_map(|(hash, own)| {
                    let of = move |part: &[&usize]| {
                        let words = part.iter().map(|field| format!("field:{field}"));
                        let words = words.flat_map(|name| [Some(name), value.map(String::from)]);
                        let start = [command.to_owned(), format!("h:{hash}")];
                        start.into_iter().chain(words.flatten()).collect()
                    };
                    own.chunks(500).map(of).collect::<Vec<Vec<String>>>()
                });
                calls.collect()
            };
        let all: Vec<usize> = (0..KEYS).collect();
        client.pipeline(&of_fields("MIDI.HSET", &all, Some(&value)));
        let full = arenas(&mut client, "mapped");
        assert!(full > 25 * MIB);
        let (stay, go): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|field| field / hashes % 8 == 0);
        client.pipeline(&of_fields("MIDI.HDEL", &go, None));
        let digest = client.run("MIDI.KEYSPACEDIGEST");
        wait_until("the rest is packed", || {
            let fields = client.run("MIDI.HGETALL h:0").array();
            assert_eq!(fields.len(), 2 * stay.len() / hashes);
            arenas(&mut client, "mapped") < full * 2 / 3
        });
        assert_eq!(client.run("MIDI.KEYSPACEDIGEST"), digest);
        client.pipeline(&of_fields("MIDI.HDEL", &stay, None));
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
    }
}

#[test]
fn keys_that_change_while_they_are_moved_are_whole() {
    let server = Mode::Adaptive.builder().start();
    let mut client = server.client();
    client.ok(&format!("MIDI.POPULATE {KEYS} key 64"));
    let packed = |client: &mut Client| arenas(client, "mapped");
    let full = packed(&mut client);
    let stay = remove_all_but_each_eighth(&mut client);
    let mut round = 0;
    // Values of other sizes, expiries, copies that are made while their neighbours move.
    while packed(&mut client) >= full * 2 / 3 || round < 4 {
        let value = "v".repeat(10 + 30 * (round % 4));
        let replies = with_keys(&mut client, "MIDI.SET", &stay, &[&value, "EX", "1000"]);
        assert!(replies.iter().all(|reply| *reply == Value::ok()));
        let values = with_keys(&mut client, "MIDI.GET", &stay, &[]);
        assert!(values.iter().all(|reply| *reply == Value::bulk(value.as_bytes())), "{round}");
        round += 1;
        assert!(round < 500, "nothing is packed");
    }
}
