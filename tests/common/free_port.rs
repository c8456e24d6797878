//! A search for a free port, used by everything that starts servers: the tests and the
//! experiments' harness.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

/// Servers listen on this many ports. The ranges of all runs stay below 32,768, where the system
/// takes ports for connections: it could take one before the server listens. The bus port of a
/// cluster node, 10,000 above, is below that, too, and outside of the ranges.
const PORTS: u16 = 5000;

/// The first port of this run: `MIDI_FIRST_PORT`, or 10,000. Runs beside each other have ranges of
/// their own: a server that restarts leaves its ports free for a moment.
fn first() -> u16 {
    std::env::var("MIDI_FIRST_PORT").map_or(10_000, |text| text.parse().expect("MIDI_FIRST_PORT"))
}

/// A port for a server on 127.0.0.1. Each call returns another one; processes that run beside each
/// other start far apart.
///
/// # Panics
/// If none is free.
pub fn free_port() -> u16 {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    let first = first();
    // The golden section of the range: numbers that follow each other are far apart.
    let process = (std::process::id().wrapping_mul(3091) % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let number = process + NUMBER.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = first + number % PORTS;
        // A listener of our own would answer the same. But a process that another thread has just
        // forked keeps it open for a moment, and whoever waits for the server would find that one.
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            return port;
        }
    }
    panic!("no port of {PORTS} from {first} on is free");
}
