//! The promise: one message to ten thousand subscribers of the port takes the host's main thread
//! 0.3 ms at most: the workers send it. Each of them hears it.
//!
//! Environment: `MIDI_SUBSCRIBERS` (how many). The test prints what the same message costs a host
//! without midi.

use std::fs;
use std::time::{Duration, Instant};

use crate::common::{Builder, Client, Mode, Server, Value, skip};

/// What a message may cost the main thread.
const MOST_NS: u64 = 300_000;

const MESSAGES: u64 = 50;

fn subscribers() -> usize {
    let text = std::env::var("MIDI_SUBSCRIBERS");
    text.map_or(300, |text| text.parse().expect("MIDI_SUBSCRIBERS"))
}

/// Lets this process, and the servers that it starts, open so many files. False if it may not.
fn may_open(files: usize) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is written to a structure on the stack.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let wanted = (files as u64).max(limit.rlim_cur);
    limit = libc::rlimit { rlim_cur: wanted, rlim_max: wanted.max(limit.rlim_max) };
    // SAFETY: the limit is read from a structure on the stack.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 }
}

/// Nanoseconds for which the main thread has run.
fn main_thread_ns(server: &Server) -> u64 {
    let path = format!("/proc/{0}/task/{0}/schedstat", server.pid());
    let text = fs::read_to_string(path).expect("the kernel counts");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds")
}

/// Subscribes clients, has each hear some messages, and returns what one cost the main thread.
fn ns_a_message(server: &Server, connect: impl Fn() -> Client) -> u64 {
    let mut all: Vec<Client> = (0..subscribers()).map(|_| connect()).collect();
    all.iter_mut().for_each(|client| client.send_line("SUBSCRIBE channel"));
    all.iter_mut().for_each(|client| assert!(!client.read().is_error()));
    let mut publisher = connect();
    let (mut spent, mut took) = (0, Duration::ZERO);
    for number in 0..=MESSAGES {
        let text = number.to_string();
        let (before, started) = (main_thread_ns(server), Instant::now());
        assert_eq!(publisher.integer(&format!("PUBLISH channel {text}")), all.len() as i64);
        let expected = Value::Array(["message", "channel", &text].map(Value::bulk).into());
        all.iter_mut().for_each(|client| assert_eq!(client.read(), expected));
        // The first one is not counted: it finds nothing in any cache.
        if number > 0 {
            spent += main_thread_ns(server) - before;
            took += started.elapsed();
        }
    }
    // What the main thread does without messages: it looks after its clients ten times a second.
    let before = main_thread_ns(server);
    std::thread::sleep(took);
    let idle = main_thread_ns(server) - before;
    println!("{spent} ns, and {idle} in the same time without messages");
    spent.saturating_sub(idle) / MESSAGES
}

#[test]
fn a_message_to_many_is_cheap_for_the_main_thread() {
    let most = subscribers() + 100;
    if !may_open(most + 1000) {
        return skip("this user may not open so many files");
    }
    let builder = Mode::Adaptive.builder().config("maxclients 100").with_port();
    let server = builder.load(&format!("maxclients {most}")).start();
    let own = ns_a_message(&server, || server.midi_client());
    let plain = Builder::plain().config(format!("maxclients {most}")).start();
    let native = ns_a_message(&plain, || plain.client());
    println!("{} subscribers, ns of the main thread: midi {own}, native {native}", subscribers());
    assert!(own <= MOST_NS, "{own} ns");
}
