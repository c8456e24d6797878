//! The promise: the process may fork in any way and at any moment, and neither it nor its child
//! hangs: BGSAVE, another module's RM_Fork, a fork by another thread with or without the host's
//! lock, inside of EXEC and of a script. A fork by the holder of the lock saves the state of one
//! moment.
//!
//! `tests/modules/forks` is the other module.
//!
//! Environment: `MIDI_FORKS` (forks in each mode).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::hosts::host;
use crate::common::load::{Checker, Load};
use crate::common::{
    Builder, Client, HANG, Mode, Random, Server, Value, encoded, own_library, redis_server, skip,
    wait_until, words,
};

fn forks() -> i64 {
    let text = std::env::var("MIDI_FORKS");
    text.map_or(30, |text| text.parse().expect("MIDI_FORKS"))
}

/// No fork may hold the server up for so long: it only waits for runs that are under way, and for
/// [`midi::limits::FORK_PATIENCE`] at most where it may not wait. In microseconds.
const BOUND: i64 = 5_000_000;

/// The module that forks.
const MODULE: &str = "libmidi_test_forks.so";

fn builder(mode: Mode) -> Builder {
    // The host looks for children that have ended in every tick of its cron.
    let load = format!("loadmodule {}", own_library(MODULE).display());
    mode.builder().load("shards 64").with_port().config(load).config("hz 500")
}

fn rdb(server: &Server) -> PathBuf {
    server.dir().join("dump.rdb")
}

/// Like [`wait_until`], for what ends within milliseconds.
fn wait_briefly(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < HANG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_child(client: &mut Client) -> bool {
    let info = client.info("persistence");
    let fields = ["rdb_bgsave_in_progress", "module_fork_in_progress"];
    // A host that is busy with a script does not say.
    fields.iter().any(|field| info.get(*field).is_none_or(|count| count != "0"))
}

/// How many children of the other module, and threads that had the host fork, have ended.
fn ended(client: &mut Client) -> i64 {
    let reply = client.run("FORKS.ENDED");
    if reply.is_error() && reply.text().starts_with("BUSY ") {
        return -1;
    }
    let counts = reply.array();
    assert_eq!(counts[1], Value::Integer(0), "children that ended badly");
    counts[0].integer()
}

/// A script that changes midi's keys, runs a command, and changes them again.
fn script(command: &str) -> Vec<String> {
    let code = format!(
        "redis.call('MIDI.MSET', 'u:1', ARGV[1], 'u:2', ARGV[1]) \
         local reply = redis.pcall('{command}') \
         redis.call('MIDI.MSET', 'u:2', ARGV[1] + 1, 'u:3', ARGV[1]) \
         return reply"
    );
    ["EVAL", &code, "0", "1"].map(str::to_owned).to_vec()
}

/// Forks in one of all ways, and waits for the child.
fn fork(client: &mut Client, random: &mut Random) {
    let before = ended(client);
    let way = random.below(8);
    // Whether the way has begun that many children and threads that `FORKS.ENDED` counts.
    let begun = match way {
        0 => i64::from(!client.run("FORKS.CHILD").is_error()),
        1 => i64::from(!client.call(&script("FORKS.CHILD")).is_error()),
        2 => {
            let lines = ["MULTI", "MIDI.MSET u:1 1 u:2 1", "FORKS.CHILD", "MIDI.SET u:3 1", "EXEC"];
            let replies = client.pipeline(&lines.map(words)).pop().expect("EXEC's").array();
            assert_eq!([&replies[0], &replies[2]], [&Value::ok(), &Value::ok()]);
            i64::from(!replies[1].is_error())
        }
        3 => 2 * client.integer("FORKS.PLAIN 2"),
        4 => client.integer("FORKS.SAVE_ELSEWHERE"),
        5 => {
            // The host puts it off.
            let replies =
                client.pipeline(&["MULTI", "MIDI.SET u:1 1", "BGSAVE", "EXEC"].map(words));
            assert!(!replies[3].is_error(), "{replies:?}");
            0
        }
        6 => {
            client.call(&script("FORKS.SAVE"));
            0
        }
        _ => {
            client.run("BGSAVE");
            0
        }
    };
    wait_briefly("the children have ended", || {
        !has_child(client) && ended(client) >= before + begun
    });
}

/// All ways to fork, beside clients that write at both doors.
fn check_forks(server: &Server) {
    let load = Load::new();
    load.beside(server, || {
        let (mut client, mut random) = (server.client(), Random::new(1));
        while client.info_number("midi_persistence", "midi_forks") < forks() {
            fork(&mut client, &mut random);
        }
    });
    let mut client = server.client();
    let info = client.info("midi_persistence");
    let pause: i64 = info["midi_longest_fork_pause_usec"].parse().expect("a number");
    println!("longest pause of {} forks: {pause} us", info["midi_forks"]);
    assert!(pause < BOUND, "{pause} us");
    assert_eq!(client.info_number("midi_shards", "midi_panics"), 0);
    assert_eq!(client.info("persistence")["rdb_last_bgsave_status"], "ok");
    // A BGSAVE that the host has put off may begin only now.
    wait_briefly("no other save runs", || client.run("SAVE") == Value::ok());
    Checker::start().check(&load, &rdb(server));
}

#[test]
fn forks_in_adaptive() {
    check_forks(&builder(Mode::Adaptive).start());
}

#[test]
fn forks_in_pool() {
    check_forks(&builder(Mode::Pool).start());
}

#[test]
fn forks_in_safemode() {
    check_forks(&builder(Mode::Safe).start());
}

/// With more shards than one unit or one cache can hold.
#[test]
fn forks_with_many_shards() {
    check_forks(&builder(Mode::Adaptive).load("shards 16384").start());
}

/// Page faults of the server so far, but those that read from a disk.
fn page_faults(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it runs");
    let fields = stat.rsplit_once(") ").expect("a name").1;
    fields.split(' ').nth(7).and_then(|count| count.parse().ok()).expect("a count")
}

/// A fork writes nothing to the shards. They are in 4096 pages here, and whoever took and released
/// all tokens would have a fault at each, because the fork has write-protected them.
#[test]
fn forks_write_to_no_shard() {
    let server = builder(Mode::Adaptive).load("shards 65536").start();
    let mut client = server.client();
    for round in 0..3 {
        let before = page_faults(&server);
        client.integer("FORKS.CHILD");
        wait_briefly("the child has ended", || !has_child(&mut client));
        let faults = page_faults(&server) - before;
        assert!(faults < 2000, "fork {round}: {faults} page faults");
    }
}

/// The path of a library that the server has mapped.
fn mapped(server: &Server, name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).ok()?;
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let is_it = |path: &&str| Path::new(path).file_name().is_some_and(|file| file == name);
    paths.find(is_it).map(PathBuf::from)
}

/// The same with the C library's allocator in place of jemalloc: after a fork each has locks of its
/// own to release in the child.
#[test]
fn forks_with_the_c_librarys_allocator() {
    if host().is_newer() {
        return skip("this host calls functions of jemalloc that the C library does not have");
    }
    let libc = mapped(&builder(Mode::Adaptive).start(), "libc.so.6");
    let Some(libc) = libc else { return skip("the server has no libc.so.6") };
    let server = builder(Mode::Adaptive).preload(libc).start();
    if mapped(&server, "libjemalloc.so.2").is_some() {
        // jemalloc has nothing to report but what it has for itself.
        let info = server.client().info("memory");
        let number = |field: &str| -> i64 { info[field].parse().expect("a number") };
        assert!(number("allocator_allocated") < number("used_memory") / 2, "{info:?}");
    }
    check_forks(&server);
}

/// A fork of a thread that is not the main one saves the state at one moment, too, if the thread
/// holds the host's lock.
#[test]
fn saves_of_another_thread() {
    for mode in Mode::tried() {
        let (server, load) = (builder(mode).start(), Load::new());
        let mut checker = Checker::start();
        load.beside(&server, || {
            let mut client = server.client();
            for round in 1..=5 {
                let _ = fs::remove_file(rdb(&server));
                let least = load.acknowledged();
                client.integer("FORKS.SAVE_ELSEWHERE");
                wait_briefly("the thread has begun to save", || ended(&mut client) == round);
                wait_briefly("the child has ended", || !has_child(&mut client));
                assert_eq!(client.info("persistence")["rdb_last_bgsave_status"], "ok", "{mode:?}");
                let found = checker.check(&load, &rdb(&server));
                Checker::check_counters(&found, &least, &load.begun());
            }
        });
    }
}

/// A fork within a script has what the script has done so far, of midi's keys as of the host's.
#[test]
fn a_fork_within_a_script_has_its_first_half() {
    const SCRIPT: &str = "redis.call('SET', 'n', 'first') redis.call('MIDI.SET', 'u', 'first') \
        local reply = redis.call('FORKS.SAVE') \
        redis.call('SET', 'n', 'second') redis.call('MIDI.SET', 'u', 'second') return reply";
    for mode in Mode::tried() {
        let (server, load) = (builder(mode).start(), Load::new());
        let other = Builder::new().start();
        load.beside(&server, || {
            let mut client = server.client();
            client.ok("SELECT 6");
            for _ in 0..3 {
                let _ = fs::remove_file(rdb(&server));
                assert_eq!(client.call(&["EVAL", SCRIPT, "0"]), Value::Integer(1), "{mode:?}");
                assert_eq!(client.run("MIDI.GET u"), Value::bulk("second"));
                wait_briefly("the child has ended", || !has_child(&mut client));
                fs::copy(rdb(&server), rdb(&other)).expect("an RDB");
                let mut other = other.client();
                other.ok("DEBUG RELOAD NOSAVE");
                other.ok("SELECT 6");
                assert_eq!(other.run("GET n"), Value::bulk("first"));
                assert_eq!(other.run("MIDI.GET u"), Value::bulk("first"), "{mode:?}");
            }
        });
    }
}

/// BGSAVE inside of EXEC: the host saves after it.
#[test]
fn a_bgsave_within_exec_has_all_of_it() {
    for mode in Mode::tried() {
        let (server, load) = (builder(mode).start(), Load::new());
        let mut other = Builder::new().start();
        load.beside(&server, || {
            let mut client = server.client();
            client.ok("SELECT 6");
            for _ in 0..3 {
                let _ = fs::remove_file(rdb(&server));
                let lines = ["MULTI", "MIDI.SET a 1", "BGSAVE", "MIDI.SET b 1", "EXEC"];
                client.pipeline(&lines.map(words));
                wait_until("it is saved", || rdb(&server).exists() && !has_child(&mut client));
            }
        });
        fs::copy(rdb(&server), rdb(&other)).expect("an RDB");
        other.restart(redis_server());
        let mut other = other.client();
        other.ok("SELECT 6");
        assert_eq!(other.integer("MIDI.EXISTS a b"), 2, "{mode:?}");
    }
}

/// While a script lasts, its shards are taken. A thread that forks without the lock does not wait
/// for its end, and BGSAVE saves all of the script or nothing of it.
#[test]
fn scripts_that_last() {
    const SCRIPT: &str = "redis.call('MIDI.SET', 'first', ARGV[1]) \
        for step = 1, 10000000 do end \
        redis.call('MIDI.SET', 'last', ARGV[1])";
    const FORKS: i64 = 10;
    for mode in Mode::tried() {
        let server = builder(mode).config("busy-reply-threshold 20").start();
        let other = Builder::new().start();
        let (mut client, mut busy) = (server.client(), server.client());
        for round in 1..=3 {
            client.integer(&format!("FORKS.PLAIN {FORKS}"));
            busy.send(&encoded(&["EVAL", SCRIPT, "0", &round.to_string()]));
            let _ = fs::remove_file(rdb(&server));
            wait_briefly("the host takes the command", || !client.run("BGSAVE").is_error());
            wait_briefly("the child has ended", || !has_child(&mut client));
            fs::copy(rdb(&server), rdb(&other)).expect("an RDB");
            let mut other = other.client();
            other.ok("DEBUG RELOAD NOSAVE");
            assert_eq!(other.run("MIDI.GET first"), other.run("MIDI.GET last"), "{mode:?}");
            assert!(busy.read().is_null());
            wait_briefly("the thread is done", || ended(&mut client) == round * FORKS);
        }
        assert!(client.info_number("midi_persistence", "midi_longest_fork_pause_usec") < BOUND);
    }
}
