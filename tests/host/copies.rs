//! The promise: a copy counts as what it would take without the one it was made of. So `maxmemory`
//! holds for copies as the host's own do, and neither a replica nor a restart needs more memory.

use crate::common::aof::rewrite;
use crate::common::replicas::{follow, must_become_equal};
use crate::common::{
    Builder, Client, Mode, Random, Server, Value, in_all_modes, redis_server, wait_until,
};

const MIB: usize = 1 << 20;

fn set(client: &mut Client, name: &str, key: &str, bytes: usize) {
    assert_eq!(client.call(&[name.as_bytes(), key.as_bytes(), &vec![b'x'; bytes]]), Value::ok());
}

fn used(client: &mut Client) -> usize {
    client.info_number("memory", "used_memory") as usize
}

/// A value's size: with what the host or midi put before it, of the size class of 1 MiB.
const BYTES: usize = 1_000_000;

/// Copies such a value until the server refuses; returns how many copies it made.
fn copies_until_oom(client: &mut Client, prefix: &str) -> usize {
    set(client, &format!("{prefix}SET"), "original", BYTES);
    let refusal = |number: &usize| {
        let reply = client.run(&format!("{prefix}COPY original copy{number}"));
        if reply.is_error() {
            assert!(reply.text().starts_with("OOM "), "{}", reply.text());
        }
        reply.is_error()
    };
    (0..400).find(refusal).expect("the server refuses")
}

fn limited(mode: Mode) -> Builder {
    mode.builder().config("maxmemory 100mb").config("maxmemory-policy noeviction")
}

#[test]
fn maxmemory_holds_for_copies_and_a_restart_may_write() {
    for mode in Mode::tried() {
        let mut server = limited(mode).with_port().config("appendonly yes").start();
        let mut client = server.client();
        let natives = copies_until_oom(&mut client, "");
        client.ok("FLUSHALL SYNC");
        wait_until("the memory is back", || used(&mut client) < 20 * MIB);
        for at_the_port in [true, false] {
            let copies = if at_the_port {
                copies_until_oom(&mut server.midi_client(), "")
            } else {
                copies_until_oom(&mut client, "MIDI.")
            };
            let both = format!("{mode:?}: {copies} copies of midi's, {natives} of the host's");
            assert!(copies * 5 < natives * 6 && natives * 5 < copies * 6, "{both}");
            if at_the_port {
                client.ok("MIDI.FLUSHALL SYNC");
                wait_until("the memory is back", || used(&mut client) < 20 * MIB);
            }
        }
        // One for the command that passed the limit, one that was admitted beside it.
        assert_eq!(client.run("MIDI.DEL copy0 copy1 copy2 copy3 copy4"), Value::Integer(5));
        wait_until("the memory is back", || used(&mut client) < 97 * MIB);
        let before = used(&mut client);
        // From records of copies, then from a snapshot.
        for _ in 0..2 {
            server.restart(redis_server());
            client = server.client();
            // What the records had removed again is freed soon after.
            wait_until(&format!("{mode:?}: it has no more than before, {before} bytes"), || {
                used(&mut client) < 99 * MIB
            });
            client.ok("MIDI.SET a-key a-value");
            rewrite(&mut client);
        }
    }
}

#[test]
fn a_replica_needs_no_more_than_its_master() {
    let [master, replica] = [(), ()].map(|()| Mode::Adaptive.server());
    let mut client = master.client();
    set(&mut client, "MIDI.SET", "original", BYTES);
    let copy = |client: &mut Client, numbers: std::ops::Range<usize>| {
        for number in numbers {
            assert_eq!(client.integer(&format!("MIDI.COPY original copy{number}")), 1);
        }
    };
    copy(&mut client, 0..50);
    // The first ones come with the full sync, the others one by one.
    follow(&replica, master.port());
    copy(&mut client, 50..100);
    must_become_equal(&[&master, &replica], "copies");
    let (here, there) = (used(&mut client), used(&mut replica.client()));
    assert!(here > 95 * MIB && there < here + 30 * MIB, "{here} bytes, {there} on the replica");
    client.ok("MIDI.FLUSHALL");
    for server in [&master, &replica] {
        wait_until("the memory is back", || used(&mut server.client()) < 40 * MIB);
    }
}

/// The values that a test has set: the size of each key's value.
type Sizes = std::collections::BTreeMap<String, usize>;

fn any_key(random: &mut Random) -> String {
    format!("k{}", random.below(20))
}

/// Does something to the keys, and to the model of them.
fn step(client: &mut Client, sizes: &mut Sizes, random: &mut Random) {
    let (a, b) = (any_key(random), any_key(random));
    let has_a = sizes.contains_key(&a);
    match random.below(8) {
        0 => {
            let bytes = MIB + random.below(MIB);
            set(client, "MIDI.SET", &a, bytes);
            sizes.insert(a, bytes);
        }
        1..=3 if a != b => {
            let made = client.integer(&format!("MIDI.COPY {a} {b} REPLACE"));
            assert_eq!(made == 1, has_a);
            if has_a {
                sizes.insert(b, sizes[&a]);
            }
        }
        4 if has_a && a != b => {
            client.ok(&format!("MIDI.RENAME {a} {b}"));
            let bytes = sizes.remove(&a).expect("it is there");
            sizes.insert(b, bytes);
        }
        5 if has_a => {
            assert_eq!(client.integer(&format!("MIDI.APPEND {a} !")), sizes[&a] as i64 + 1);
            *sizes.get_mut(&a).expect("it is there") += 1;
        }
        6 => {
            client.integer(&format!("MIDI.PEXPIRE {a} 100000000"));
        }
        _ => {
            assert_eq!(
                client.integer(&format!("MIDI.UNLINK {a}")) == 1,
                sizes.remove(&a).is_some()
            );
        }
    }
}

fn follows_the_model(server: &Server) {
    let (mut client, mut random) = (server.client(), Random::new(11));
    let mut sizes = Sizes::new();
    set(&mut client, "MIDI.SET", "warm", MIB);
    client.ok("MIDI.FLUSHALL SYNC");
    let start = used(&mut client);
    for round in 0..600 {
        step(&mut client, &mut sizes, &mut random);
        if round % 20 == 0 {
            let whole: usize = sizes.values().sum();
            // A value that can grow has a quarter more, and size classes are an eighth apart.
            let most = start + whole + whole / 2 + 4 * MIB;
            wait_until("used_memory is what the keys take", || {
                (start + whole..=most).contains(&(used(&mut client) + 2 * MIB))
            });
        }
    }
    client.ok("MIDI.FLUSHALL SYNC");
    wait_until("the memory is back", || used(&mut client) < start + 3 * MIB);
}

#[test]
fn memory_follows_the_keys_exactly() {
    in_all_modes(|_, server| follows_the_model(server));
    follows_the_model(&Mode::Adaptive.builder().config("appendonly yes").start());
}
