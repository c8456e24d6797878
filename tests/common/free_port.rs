//! A search for a free port, used by everything that starts servers: the tests and the
//! experiments' harness.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

/// Servers listen on this many ports from here on. The range stays below 32,768, where the system
/// takes ports for connections: it could take one before the server listens. The bus port of a
/// cluster node, 10,000 above, is outside of the range, too.
const FIRST: u16 = 10_000;
const PORTS: u16 = 12_000;

/// A port for a server on 127.0.0.1. Each call returns another one; processes that run beside each
/// other start far apart.
///
/// # Panics
/// If none is free.
pub fn free_port() -> u16 {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    // The golden section of the range: numbers that follow each other are far apart.
    let process = (std::process::id().wrapping_mul(7417) % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let number = process + NUMBER.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = FIRST + number % PORTS;
        // A listener of our own would answer the same. But a process that another thread has just
        // forked keeps it open for a moment, and whoever waits for the server would find that one.
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            return port;
        }
    }
    panic!("no port of {PORTS} from {FIRST} on is free");
}
