//! Admitting new connections, and refusing some.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use rustix::net::{SendFlags, getsockname, send};

use super::client::{Client, Condition, Names};
use super::session::Session;
use super::shared::{Shared, count};
use super::transport::{Accepted, Key, Wire, address_of, prepare_tcp, raised};
use crate::engine::{ListenAt, ListenerRow};

/// Admits a new connection: moves the socket to its descriptor range and sets its options. `None`
/// if it is refused; the client has been sent the reason.
pub fn let_in(shared: &Shared, worker: usize, accepted: Accepted) -> Option<Accepted> {
    let settings = &shared.engine.settings().port;
    let &ListenerRow { is_tls, speaks, .. } = &shared.listeners[accepted.row];
    let refuse = |text: &[u8]| {
        count(&shared.counts(worker).refused, 1);
        if !is_tls {
            // Best effort: the client may be gone.
            let _ = send(&accepted.socket, text, SendFlags::NOSIGNAL);
        }
        None
    };
    // With TLS it can be told why only after its handshake.
    if !is_tls && is_kept_out(shared, accepted.address) {
        return refuse(Session::protected(speaks));
    }
    if !shared.take_place() {
        return refuse(Session::full(speaks));
    }
    let first = settings.first_descriptor.load(Ordering::Relaxed) as i32;
    let Ok(socket) = raised(accepted.socket, first) else {
        shared.leave_place();
        count(&shared.counts(worker).refused, 1);
        return None;
    };
    if accepted.address.is_some() {
        prepare_tcp(&socket, settings.keepalive.load(Ordering::Relaxed) as u64);
    }
    Some(Accepted { socket, ..accepted })
}

/// Whether protected mode refuses a client from this address.
pub fn is_kept_out(shared: &Shared, address: Option<SocketAddr>) -> bool {
    address.is_some_and(|address| !is_loopback(address.ip()))
        && shared.engine.settings().port.protected.load(Ordering::Relaxed)
        && shared.engine.users.default_is_open()
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}

/// The form of a new connection's bytes; `None` if its session cannot begin.
pub fn wire(shared: &Shared, accepted: &Accepted) -> Option<Wire> {
    if !shared.listeners[accepted.row].is_tls {
        return Some(Wire::Plain);
    }
    let server = shared.tls.lock().clone()?;
    server.stream().map(|stream| Wire::Tls(Box::new(stream)))
}

/// The part of a new connection that other threads may read.
pub fn client(shared: &Shared, worker: usize, key: Key, accepted: &Accepted) -> Arc<Client> {
    let now = Instant::now();
    let local = getsockname(&accepted.socket).ok().and_then(address_of);
    let unix = || match &shared.listeners[accepted.row].at {
        ListenAt::Unix { path, .. } => format!("{path}:0"),
        ListenAt::Tcp { .. } => String::new(),
    };
    Arc::new(Client {
        id: shared.new_id(),
        worker,
        key,
        address: accepted.address.map_or_else(unix, |address| address.to_string()),
        local_address: local.map_or_else(unix, |address| address.to_string()),
        remote: accepted.address,
        speaks: shared.listeners[accepted.row].speaks,
        descriptor: accepted.socket.as_raw_fd(),
        since: now,
        names: parking_lot::Mutex::new(Names::default()),
        db: AtomicU32::new(0),
        last_seen: AtomicU64::new(shared.clock(now)),
        gone: Arc::new(AtomicBool::new(false)),
        killed: Arc::new(AtomicBool::new(false)),
        last_command: AtomicU32::new(0),
        condition: Condition::default(),
    })
}
