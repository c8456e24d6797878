//! What all integration tests use: a redis-server of their own, a client that
//! shows replies as they are on the wire, and the three modes.
//!
//! Environment: `MIDI_REDIS_SERVER` (server binary), `MIDI_MODULE` (libmidi.so),
//! `MIDI_SERVER_PRELOAD` (LD_PRELOAD of the server, for sanitizers), `MIDI_SKIPS` (the file that
//! names tests that cannot run), `MIDI_STREAM` (how midi's port is connected to: tcp, unix or tls),
//! `MIDI_IO` (how it moves bytes: epoll or io_uring), `MIDI_FIRST_PORT` (servers listen from there
//! on; for runs beside each other).

pub mod aof;
pub mod certificates;
mod client;
pub mod clock;
pub mod described;
pub mod disk;
mod door;
mod fields;
mod forbidden;
mod free_port;
pub mod grammar;
pub mod hold;
pub mod hosts;
pub mod linear;
pub mod linear_hashes;
pub mod link;
pub mod load;
pub mod memcached;
pub mod memcached_writer;
pub mod port;
pub mod proxy;
mod random;
pub mod replicas;
mod sandbox;
mod server;
mod skip;
pub mod sockets;
mod twin;
mod wire;
pub mod witness;

pub use client::{Client, Value, encoded, shown, text};
pub use door::Door;
pub use free_port::free_port;
pub use random::Random;
pub use server::{Builder, Server, driver_of_this_run, module, own_library, redis_server};
pub use skip::skip;
pub use twin::{Difference, Step, Twin, Words, prefixed, words};
pub use wire::{Way, Wire};

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything here takes, even under a sanitizer: a guard against hangs.
pub const HANG: Duration = Duration::from_secs(90);

/// The ways in which the module executes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `midi.dispatch adaptive`, the default.
    Adaptive,
    /// `midi.dispatch pool`.
    Pool,
    /// `SAFEMODE`.
    Safe,
}

impl Mode {
    /// All of them. With `MIDI_BRIEF` one: each test has another one, on each host another one.
    #[track_caller]
    pub fn tried() -> impl Iterator<Item = Mode> {
        Self::drawn(&[Mode::Adaptive, Mode::Pool, Mode::Safe])
    }

    /// The same of those in which long commands are jobs.
    #[track_caller]
    pub fn with_jobs() -> impl Iterator<Item = Mode> {
        Self::drawn(&[Mode::Adaptive, Mode::Pool])
    }

    #[track_caller]
    fn drawn(from: &'static [Mode]) -> impl Iterator<Item = Mode> {
        let host = std::env::var("MIDI_HOST").unwrap_or_default();
        let number = host.bytes().map(usize::from).sum::<usize>();
        let one = (number + Location::caller().line() as usize) % from.len();
        let drawn = if is_brief() { &from[one..=one] } else { from };
        drawn.iter().copied()
    }

    /// Its load arguments.
    pub fn arguments(self) -> &'static str {
        match self {
            Mode::Adaptive => "dispatch adaptive",
            Mode::Pool => "dispatch pool",
            Mode::Safe => "SAFEMODE",
        }
    }

    /// A server in this mode, with two workers.
    pub fn server(self) -> Server {
        self.builder().start()
    }

    /// The same, for further configuration.
    pub fn builder(self) -> Builder {
        Builder::new().load(self.arguments()).load("threads 2")
    }
}

/// Whether `make test` tries another host than the first: what is tried there in every mode is
/// tried in one here. `make test-hosts` tries all.
pub fn is_brief() -> bool {
    std::env::var_os("MIDI_BRIEF").is_some()
}

/// Runs one test body in all three modes, each with a server of its own; see [`Mode::tried`].
#[track_caller]
pub fn in_all_modes(body: impl Fn(Mode, &Server)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        body(mode, &mode.server());
    }
}

/// Runs one test body in all three modes with both protocols; the body compares the host's command
/// with midi's.
#[track_caller]
pub fn in_all_modes_and_protocols(body: impl Fn(&mut Twin)) {
    in_all_modes(|_, server| {
        for resp3 in [false, true] {
            let client = server.client();
            let client = if resp3 { client.resp3() } else { client };
            let twin = &mut Twin::new(client);
            body(twin);
            twin.flush();
            twin.client().ok("SELECT 0");
            twin.client().ok("FLUSHALL");
        }
    });
}

/// Runs `noise` over and over on `threads` connections of their own, while
/// `body` runs on this thread.
pub fn beside<R>(
    server: &Server,
    threads: usize,
    noise: impl Fn(&mut Client, &mut Random) + Sync,
    body: impl FnOnce() -> R,
) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, noise) = (&stop, &noise);
        for number in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(number as u64);
                let mut client = server.client();
                while !stop.load(Ordering::Relaxed) {
                    noise(&mut client, &mut random);
                }
            });
        }
        // Needed if `body` panics, too: the scope waits for the threads.
        let _stop = StopAtEnd(stop);
        body()
    })
}

/// Sets this when it is dropped.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on this many threads at once; each gets its number.
pub fn at_once(threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        let work = &work;
        for number in 0..threads {
            scope.spawn(move || work(number));
        }
    });
}

/// Cases of a property test: `PROPTEST_CASES`, or this many.
pub fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").map_or(default, |text| text.parse().expect("PROPTEST_CASES"))
}

/// Waits until `done` returns true; a hang fails the test.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < HANG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_millis() as i64
}
