//! One search for a port that is free, for all that start servers: the tests, and the experiments'
//! harness.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Where servers listen: so many ports from there on. Not those from 32,768 on that the system
/// gives to connections: until the server listens, one might get it. Nor is the bus of a cluster's
/// node one of them, 10,000 above.
const FIRST: u16 = 10_000;
const PORTS: u16 = 12_000;

/// A port for a server on 127.0.0.1: each call gives another one. Processes begin at different
/// ones.
///
/// # Panics
/// Where none is free.
pub fn free_port() -> u16 {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    let process = (std::process::id().wrapping_mul(61) % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let number = process + NUMBER.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = FIRST + number % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS} from {FIRST} on is free");
}
