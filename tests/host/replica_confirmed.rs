//! The promises that clients can rely on over a failover: what WAIT has confirmed is there, even if
//! the failover is forced; and over one that is not forced, all commands of all clients took effect
//! in one order, each at one moment between its call and its reply.
//!
//! Environment: `MIDI_FAILOVERS` (how many in each mode).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::linear::{Operation, explain_by_key};
use crate::common::link::Link;
use crate::common::replicas::{
    Pair, builder, failovers, full_syncs, is_master, wait_for_link, wait_for_role, with_aof_always,
};
use crate::common::witness::{Answers, Witness, beside_pair, check_pair};
use crate::common::{Client, Door, Mode, Random, StopAtEnd, Value, Words, wait_until, words};

/// Writes go on while the link swallows them: no WAIT confirms those. Once there are so many, a
/// failover is forced.
pub fn force_failover(pair: &Pair, link: &Link, answers: &Answers, unconfirmed: u64) {
    answers.wait_for(60);
    link.swallow();
    answers.wait_for_unconfirmed(unconfirmed);
    let port = pair.replica().port();
    let failover = format!("FAILOVER TO 127.0.0.1 {port} FORCE TIMEOUT 50");
    pair.master().client().ok(&failover);
    wait_for_role(pair.replica(), true);
    pair.exchange();
    wait_for_link(pair.replica());
    answers.wait_for(60);
}

/// The new master lacks what the link has lost: nobody was told that it has it.
#[test]
fn forced_failovers_keep_what_was_confirmed() {
    for mode in Mode::tried() {
        (0..failovers(1)).for_each(|_| forced_failover(mode));
    }
}

fn forced_failover(mode: Mode) {
    const WITNESSES: u64 = 6;
    let (pair, link) = Pair::start_linked(&builder(mode));
    let mut witnesses: Vec<Witness> =
        (0..WITNESSES as usize).map(|n| Witness::new(Door::Host, n).confirming()).collect();
    beside_pair(&pair, &mut witnesses, |answers| {
        // Each witness may have one of before.
        force_failover(&pair, &link, answers, 2 * WITNESSES);
    });
    check_pair(&pair, &mut witnesses);
    let lost: u64 = witnesses.iter().map(Witness::lost).sum();
    assert!(lost > 0, "the failover took nothing, so this shows nothing");
}

/// Commands of clients beside one failover.
struct Record<'a> {
    pair: &'a Pair,
    /// Those that the clients use, in rotation.
    doors: &'a [Door],
    /// The commands: `K` is the key, and `V` is a unique value.
    lines: &'a [&'static str],
    /// A part of the keys' names: each record has its own.
    round: usize,
    clock: AtomicU64,
    operations: Mutex<Vec<Operation>>,
    confirmed: AtomicU64,
}

impl Record<'_> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn key(&self, number: usize) -> String {
        format!("key{}:{number}", self.round)
    }

    /// Sends commands to the master, whichever server that is, until it is told to stop.
    fn go_on(&self, number: usize, stop: &AtomicBool) {
        let door = self.doors[number % self.doors.len()];
        let mut random = Random::new((self.round * 100 + number) as u64);
        let mut unique = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(mut client) = self.at_the_master(door) else { continue };
            let mut done = true;
            while done && !stop.load(Ordering::Relaxed) {
                unique += 1;
                let (line, key) = (random.pick(self.lines), self.key(random.below(KEYS)));
                let value = format!("c{number}.{unique}");
                let command = words(&line.replace('K', &key).replace('V', &value));
                done = self.one(&mut client, number, door, command);
                if self.len() > MANY {
                    // The search for an order takes long enough.
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    fn at_the_master(&self, door: Door) -> Option<Client> {
        let server = self.pair.master();
        let mut client = Client::connect(server.port()).ok()?;
        if !is_master(&mut client) {
            std::thread::sleep(Duration::from_millis(1));
            return None;
        }
        if door == Door::Host { Some(client) } else { Client::connect(server.midi_port()).ok() }
    }

    /// Sends a command and notes its reply. False if the server is no master any more, and has not
    /// run it.
    fn one(&self, client: &mut Client, number: usize, door: Door, command: Words) -> bool {
        let called = self.tick();
        let Ok(reply) = client.try_call(&door.named(&command)) else { return false };
        let returned = self.tick();
        if reply.is_error() {
            let text = reply.text();
            assert!(REFUSALS.iter().any(|it| text.starts_with(it)), "{text}");
            return false;
        }
        let (commands, replies) = (vec![command], vec![reply]);
        let operation = Operation { client: number, commands, replies, called, returned };
        self.operations.lock().expect("no panic yet").push(operation);
        if door != Door::Host {
            return true;
        }
        let reply = client.try_call(&words("WAIT 1 2000"));
        let confirmed = reply.is_ok_and(|reply| reply == Value::Integer(1));
        self.confirmed.fetch_add(confirmed.into(), Ordering::Relaxed);
        confirmed
    }

    fn len(&self) -> usize {
        self.operations.lock().expect("no panic yet").len()
    }

    fn wait_for(&self, more: usize) {
        let wanted = self.len() + more;
        wait_until("more commands are answered", || self.len() >= wanted);
    }

    /// The values at the end must fit, too.
    fn look(&self) {
        let mut client = self.pair.master().client();
        for number in 0..KEYS {
            let command = words(&format!("GET {}", self.key(number)));
            assert!(self.one(&mut client, usize::MAX, Door::Host, command));
        }
    }
}

/// So many commands are enough.
const MANY: usize = 1000;

/// How a command is refused that has not run.
const REFUSALS: [&str; 4] = ["READONLY", "UNBLOCKED", "MOVED", "CLUSTERDOWN"];

/// Few, so that clients conflict.
const KEYS: usize = 3;

/// Each changes its key, so each reply waits for the log.
const CHANGES: [&str; 5] = ["SET K V", "SET K V GET", "APPEND K V", "GETSET K V", "SET K V GET"];

/// Some change nothing, depending on what they see.
const ALL: [&str; 8] = [
    "SET K V GET",
    "SET K V NX",
    "SET K V XX",
    "SETNX K V",
    "APPEND K V",
    "GETDEL K",
    "DEL K",
    "DELIFEQ K V",
];

fn one_order_over_failovers(
    pair: &Pair,
    doors: &[Door],
    lines: &[&'static str],
    count: usize,
    fail_over: impl Fn(&Pair),
) {
    let full = full_syncs(&[&pair.servers[0], &pair.servers[1]]);
    for round in 0..count {
        let record = Record {
            pair,
            doors,
            lines,
            round,
            clock: AtomicU64::new(0),
            operations: Mutex::default(),
            confirmed: AtomicU64::new(0),
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (record, stop) = (&record, &stop);
                scope.spawn(move || record.go_on(number, stop));
            }
            let _stop = StopAtEnd(&stop);
            record.wait_for(60);
            fail_over(pair);
            record.wait_for(60);
        });
        record.look();
        assert!(record.confirmed.load(Ordering::Relaxed) > 0);
        let history = record.operations.into_inner().expect("no panic");
        if let Err(best) = explain_by_key(&history) {
            panic!("round {round}: no order explains what follows these: {best:#?}");
        }
    }
    pair.must_become_equal("at the end");
    assert_eq!(full_syncs(&[&pair.servers[0], &pair.servers[1]]), full, "partial resyncs only");
}

fn cluster_fail_over(pair: &Pair) {
    let mut client = pair.replica().client();
    // On a busy machine the host may give one up.
    let has_failed_over = (0..20).any(|_| {
        client.ok("CLUSTER FAILOVER");
        let is_over = || {
            std::thread::sleep(Duration::from_millis(20));
            is_master(&mut client)
        };
        std::iter::repeat_with(is_over).take(MANUAL_FAILOVER_MS / 20).any(|over| over)
    });
    assert!(has_failed_over);
    cluster_exchange(pair);
}

/// After this time the host gives a CLUSTER FAILOVER up.
const MANUAL_FAILOVER_MS: usize = 5000;

/// The replica becomes the master, and the master, which has lost all of its slots, its replica.
fn cluster_exchange(pair: &Pair) {
    wait_for_role(pair.replica(), true);
    wait_for_role(pair.master(), false);
    pair.exchange();
    wait_for_link(pair.replica());
}

const BOTH: [Door; 2] = [Door::Host, Door::Port];

#[test]
fn one_order_over_a_failover() {
    for mode in Mode::tried() {
        let pair = Pair::start(&builder(mode));
        one_order_over_failovers(&pair, &BOTH, &CHANGES, failovers(3), Pair::fail_over);
    }
}

/// With `always` no reply shows what a failover could take back.
#[test]
fn one_order_over_a_failover_with_aof_always() {
    let pair = Pair::start(&with_aof_always(builder(Mode::Adaptive)));
    one_order_over_failovers(&pair, &BOTH, &ALL, failovers(5), Pair::fail_over);
}

/// A cluster of one master with all slots, and its replica. midi's own port is closed there.
fn cluster() -> Pair {
    let config = [
        "cluster-enabled yes",
        "cluster-node-timeout 1000",
        // Only when it is told to.
        "cluster-replica-no-failover yes",
        "repl-backlog-size 64mb",
    ];
    let builder = config.iter().fold(Mode::Adaptive.builder(), |it, line| it.config(*line));
    let pair = Pair::of([(); 2].map(|()| builder.clone().start()));
    let [mut master, mut replica] = [pair.master().client(), pair.replica().client()];
    master.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    master.ok(&format!("CLUSTER MEET 127.0.0.1 {}", pair.replica().port()));
    let follow = format!("CLUSTER REPLICATE {}", master.run("CLUSTER MYID").text());
    wait_until("it knows its master", || replica.run(&follow) == Value::ok());
    wait_for_link(pair.replica());
    for client in [&mut master, &mut replica] {
        wait_until("the cluster is up", || {
            client.run("CLUSTER INFO").text().contains("cluster_state:ok")
        });
    }
    pair
}

#[test]
fn one_order_over_a_failover_of_a_cluster() {
    // A third one at once may win with the votes of the first: then Redis 8.6 has two masters.
    one_order_over_failovers(&cluster(), &[Door::Host], &CHANGES, 2, cluster_fail_over);
}

/// Another node says that it has all slots: what only the old master has is lost, as with Redis.
#[test]
fn a_cluster_node_that_loses_its_slots() {
    let pair = cluster();
    for round in 0..failovers(3) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (pair, stop) = (&pair, &stop);
                scope.spawn(move || append_on(pair, number, stop));
            }
            let _stop = StopAtEnd(&stop);
            let mut client = pair.master().client();
            let key = format!("here:{round}");
            client.ok(&format!("MIDI.SET {key} 1"));
            let mut of_replica = pair.replica().client();
            of_replica.ok("READONLY");
            wait_until("it follows", || {
                of_replica.run(&format!("MIDI.GET {key}")) == Value::bulk("1")
            });
            of_replica.ok("CLUSTER FAILOVER TAKEOVER");
            cluster_exchange(&pair);
            let mut client = pair.master().client();
            assert_eq!(client.run(&format!("MIDI.GET {key}")), Value::bulk("1"));
        });
        pair.must_become_equal("after the roles have changed");
    }
}

/// Writes to whichever node is the master, and may be refused.
fn append_on(pair: &Pair, number: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::connect(pair.master().port()) else { continue };
        let line = words(&format!("MIDI.APPEND list:{number} x"));
        while !stop.load(Ordering::Relaxed)
            && client.try_call(&line).is_ok_and(|reply| !reply.is_error())
        {}
    }
}
