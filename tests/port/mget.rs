//! The promise: an MGET of values that are large together answers them as they were at one moment.
//! Others are served meanwhile, on both doors, and the memory that it takes is bounded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Random, Value, beside, encoded, wait_until};

const MEGABYTE: usize = 1 << 20;

/// A server whose port has one worker, which all clients share.
fn narrow(builder: Builder) -> Ported {
    Ported::start(builder.load("threads 1"))
}

/// One whose replies copy all values, as they have no buffers of their own: that takes time.
fn copying() -> Builder {
    Mode::Adaptive.builder().load("keep-bytes 536870912")
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key:{number}")).collect()
}

/// Creates keys of this many bytes each, through a door with this prefix.
fn fill(client: &mut Client, prefix: &str, keys: &[String], bytes: usize) {
    let value = vec![b'v'; bytes];
    for key in keys {
        let set = [format!("{prefix}SET").into_bytes(), key.clone().into_bytes(), value.clone()];
        assert_eq!(client.call(&set), Value::ok());
    }
}

fn mget(prefix: &str, keys: &[String]) -> Vec<String> {
    [&[format!("{prefix}MGET")], keys].concat()
}

/// The jobs that run MGET, as MIDI.JOBS lists them.
fn jobs(client: &mut Client) -> usize {
    let jobs = client.run("MIDI.JOBS").array();
    jobs.iter().filter(|job| format!("{job:?}").contains("mget")).count()
}

/// The doors, each with its clients' prefix.
fn doors(ported: &Ported) -> [(Client, &'static str); 2] {
    [(ported.client(), ""), (ported.host(), "MIDI.")]
}

#[test]
fn others_are_served_while_one_mget_runs() {
    let ported = narrow(copying());
    let keys = keys(300);
    fill(&mut ported.client(), "", &keys, MEGABYTE);
    for (mut large, prefix) in doors(&ported) {
        let mut other = ported.client();
        // On a very busy machine it may have ended before we have our turn.
        wait_until("others are served", || {
            large.send(&encoded(&mget(prefix, &keys)));
            wait_until("it is a job", || {
                jobs(&mut other) == 1 || large.has_reply_within(Duration::from_millis(1))
            });
            let mut pings = 0;
            while jobs(&mut other) == 1 {
                assert_eq!(other.run("PING").text(), "PONG");
                pings += 1;
            }
            let values = large.read().array();
            assert_eq!(values.len(), 300);
            assert!(values.iter().all(|value| value.bytes().len() == MEGABYTE));
            pings > 3
        });
    }
}

/// The values of each generation.
fn generation(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![b'0' + (number % 10) as u8; bytes];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// All values are of one generation, which is returned.
#[track_caller]
fn check_generation(values: &[Value], bytes: usize) -> u64 {
    let number = u64::from_be_bytes(values[0].bytes()[..8].try_into().expect("eight bytes"));
    let expected = generation(number, bytes);
    assert!(values.iter().all(|value| value.bytes() == expected), "a mixture");
    number
}

/// Sets a flag when it is dropped, also by a failed assertion: otherwise the other threads would go
/// on for ever.
struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writers that never rest, and some that leave time for a round without a change.
#[test]
fn an_mget_sees_one_moment() {
    let (keys, bytes) = (keys(120), 50_000);
    for pause in [0, 40] {
        let ported = Ported::start(Mode::Adaptive.builder().load("threads 2"));
        let generations = AtomicU64::new(0);
        let write = |client: &mut Client, prefix: &str| {
            let value = generation(generations.fetch_add(1, Ordering::Relaxed), bytes);
            let name = format!("{prefix}MSET");
            let mut call: Vec<&[u8]> = vec![name.as_bytes()];
            call.extend(keys.iter().flat_map(|key| [key.as_bytes(), &value]));
            assert_eq!(client.call(&call), Value::ok());
            std::thread::sleep(Duration::from_millis(pause));
        };
        write(&mut ported.client(), "");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stops = StopsAtEnd(&stop);
            for (mut client, prefix) in doors(&ported) {
                let (write, stop) = (&write, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        write(&mut client, prefix);
                    }
                });
            }
            // One key several times, and one that does not exist.
            let mut asked = [keys.clone(), keys[..10].to_vec()].concat();
            asked.insert(30, "nosuch".into());
            for (mut client, prefix) in doors(&ported) {
                let mut last = 0;
                for _ in 0..40 {
                    let mut values = client.call(&mget(prefix, &asked)).array();
                    assert!(values.len() == 131 && values.remove(30).is_null());
                    last = check_generation(&values, bytes).max(last);
                }
                assert!(last > 0);
            }
        });
    }
}

#[test]
fn keys_that_expire_together_are_there_together() {
    let ported = Ported::start(Mode::Adaptive.builder().load("threads 2"));
    let keys = keys(200);
    for (mut client, prefix) in doors(&ported) {
        fill(&mut client, prefix, &keys, 40_000);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970")
            .as_millis();
        let at = now + 150;
        for key in &keys {
            assert_eq!(client.integer(&format!("{prefix}PEXPIREAT {key} {at}")), 1);
        }
        loop {
            let values = client.call(&mget(prefix, &keys)).array();
            let there = values.iter().filter(|value| !value.is_null()).count();
            assert!(there == 0 || there == keys.len(), "{there}");
            if there == 0 {
                break;
            }
        }
    }
}

#[test]
fn a_client_that_leaves_ends_its_mget() {
    let ported = narrow(copying());
    let keys = keys(300);
    fill(&mut ported.client(), "", &keys, MEGABYTE);
    let (mut other, mut host) = (ported.client(), ported.host());
    let before = host.info_number("memory", "used_memory");
    let mut is_back = move || {
        wait_until("its memory is given back", || {
            host.info_number("memory", "used_memory") < before + (5 << 20)
        });
    };
    for (mut large, prefix) in doors(&ported) {
        large.send(&encoded(&mget(prefix, &keys)));
        wait_until("it is a job", || jobs(&mut other) == 1);
        drop(large);
        wait_until("it has ended", || jobs(&mut other) == 0);
        is_back();
    }
    let mut large = ported.client();
    let id = large.id();
    large.send(&encoded(&mget("", &keys)));
    wait_until("it is a job", || jobs(&mut other) == 1);
    assert_eq!(other.run(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
    wait_until("it has ended", || jobs(&mut other) == 0);
    is_back();
}

#[test]
fn values_beyond_the_output_limit_are_not_copied() {
    let ported = narrow(Mode::Adaptive.builder().load("output-buffer-hard-limit 10485760"));
    let keys = keys(300);
    fill(&mut ported.client(), "", &keys, MEGABYTE);
    let (mut other, before) = (ported.client(), ported.server.peak_memory());
    let mut large = ported.client();
    assert!(large.try_call(&mget("", &keys)).is_err());
    let taken = ported.server.peak_memory().saturating_sub(before);
    assert!(taken < 10 << 20, "{taken} bytes");
    assert_eq!(other.info_number("midi_net", "midi_net_closed_for_limits"), 1);
    let values = other.call(&mget("", &keys[..9])).array();
    assert!(values.iter().all(|value| value.bytes().len() == MEGABYTE));
}

/// There it runs to its end, as every command does.
#[test]
fn in_transactions_and_scripts_it_is_no_job() {
    let ported = Ported::start(Mode::Adaptive.builder().load("threads 2"));
    let keys = keys(50);
    fill(&mut ported.client(), "", &keys, 100_000);
    let started = |client: &mut Client| client.info_number("midi_jobs", "midi_jobs_started");
    let mut host = ported.host();
    let before = started(&mut host);
    let check = |values: Vec<Value>| {
        assert!(values.len() == 50 && values.iter().all(|value| value.bytes().len() == 100_000));
    };
    for (mut client, prefix) in doors(&ported) {
        client.ok("MULTI");
        assert_eq!(client.call(&mget(prefix, &keys)).text(), "QUEUED");
        check(client.run("EXEC").array().remove(0).array());
    }
    let script = "return redis.call('MIDI.MGET', unpack(KEYS))".to_owned();
    check(host.call(&[&["EVAL".to_owned(), script, "50".to_owned()], &keys[..]].concat()).array());
    assert_eq!(started(&mut host), before);
    check(host.call(&mget("MIDI.", &keys)).array());
    assert_eq!(started(&mut host), before + 1);
}

#[test]
fn at_the_limit_of_jobs_it_runs_in_one_go() {
    let ported = narrow(Mode::Adaptive.builder().load("max-jobs 1"));
    let keys = keys(50);
    fill(&mut ported.client(), "", &keys, 100_000);
    let mut host = ported.host();
    // A job that takes many seconds.
    let mut busy = ported.host();
    busy.send_line("MIDI.POPULATE 500000000");
    wait_until("it runs", || host.info_number("midi_jobs", "midi_jobs_running") == 1);
    for (mut client, prefix) in doors(&ported) {
        let values = client.call(&mget(prefix, &keys)).array();
        assert!(values.iter().all(|value| value.bytes().len() == 100_000), "{:?}", values[0]);
        assert!(client.run(&format!("{prefix}KEYS *")).is_error());
    }
    drop(busy);
}

#[test]
fn beside_writes_to_other_keys_it_ends() {
    let ported = Ported::start(Mode::Pool.builder().load("threads 2"));
    let keys = keys(300);
    fill(&mut ported.client(), "", &keys[..150], 100_000);
    fill(&mut ported.host(), "MIDI.", &keys[150..], 100_000);
    let noise = |client: &mut Client, random: &mut Random| {
        let commands: Vec<_> = (0..50)
            .map(|_| {
                vec!["MIDI.SET".to_owned(), format!("other:{}", random.below(1000)), "x".to_owned()]
            })
            .collect();
        client.pipeline(&commands);
    };
    beside(&ported.server, 3, noise, || {
        for (mut client, prefix) in doors(&ported) {
            for _ in 0..20 {
                let values = client.call(&mget(prefix, &keys)).array();
                assert!(values.iter().all(|value| value.bytes().len() == 100_000));
            }
        }
    });
}
