//! Listening: addresses, Unix sockets, and the range of descriptors.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::engine::PortConfig;

/// A listening socket, and the kind of clients that connect to it.
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// Whether it is a Unix socket.
    pub unix: bool,
}

/// Opens the listeners of each worker. The kernel spreads TCP connections over the workers'
/// sockets. Only the first worker has the Unix socket.
///
/// # Errors
/// What could not be opened, and why, for the log.
pub fn open(
    config: &PortConfig,
    workers: usize,
    first_descriptor: i32,
) -> Result<Vec<Vec<Listener>>, String> {
    let mut all: Vec<Vec<Listener>> = Vec::new();
    all.resize_with(workers, Vec::new);
    if config.port != 0 && !config.bind.is_empty() {
        for address in addresses(config)? {
            let failed =
                |error: io::Error| format!("midi.port: cannot listen on {address}: {error}");
            // First without SO_REUSEPORT: with it, we would share the port with another server of
            // the same user.
            drop(tcp(address, false).map_err(failed)?);
            for own in &mut all {
                let socket = tcp(address, true).and_then(|socket| {
                    listen(&socket, config.backlog)?;
                    raised(socket, first_descriptor)
                });
                own.push(Listener { socket: socket.map_err(failed)?, unix: false });
            }
        }
    }
    if !config.unixsocket.is_empty() {
        let path = &config.unixsocket;
        let socket = unix(config).and_then(|socket| raised(socket, first_descriptor));
        let socket =
            socket.map_err(|error| format!("midi.unixsocket: cannot listen on {path}: {error}"))?;
        all[0].push(Listener { socket, unix: true });
    }
    Ok(all)
}

/// The addresses to bind. One that begins with `-` is skipped if this machine does not have it.
fn addresses(config: &PortConfig) -> Result<Vec<SocketAddr>, String> {
    let mut found: Vec<SocketAddr> = Vec::new();
    for name in &config.bind {
        let (name, optional) =
            name.strip_prefix('-').map_or((name.as_str(), false), |name| (name, true));
        let host = match name {
            "*" => "0.0.0.0",
            "::*" => "::",
            other => other,
        };
        let resolved = (host, config.port).to_socket_addrs().map_err(|error| error.to_string());
        let usable = resolved.and_then(|mut resolved| {
            let address = resolved.next().ok_or("no such address")?;
            if optional {
                tcp(address, false).map_err(|error| error.to_string())?;
            }
            Ok(address)
        });
        match usable {
            Ok(address) if found.contains(&address) => {}
            Ok(address) => found.push(address),
            Err(_) if optional => {}
            Err(why) => return Err(format!("midi.port: cannot listen on {name}: {why}")),
        }
    }
    if found.is_empty() {
        Err("midi.port: this machine has none of the addresses of midi.bind".into())
    } else {
        Ok(found)
    }
}

/// A bound socket.
fn tcp(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}

/// A listening Unix socket. The file of an earlier run is removed, as in Redis.
fn unix(config: &PortConfig) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(&*config.unixsocket)?;
    let _ = fs::remove_file(&config.unixsocket);
    bind(&socket, &address)?;
    if config.unixsocketperm != 0 {
        fs::set_permissions(&config.unixsocket, fs::Permissions::from_mode(config.unixsocketperm))?;
    }
    listen(&socket, config.backlog)?;
    Ok(socket)
}

/// Moves a descriptor to a number of at least `first`, if it is lower: the host takes low numbers
/// for its own clients, and refuses those of its clients that get a high one.
///
/// # Errors
/// The system's.
pub fn raised(descriptor: OwnedFd, first: i32) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() >= first {
        return Ok(descriptor);
    }
    Ok(fcntl_dupfd_cloexec(&descriptor, first)?)
}

/// Sets a new TCP connection's options: no delay, and probes of idle peers every `keepalive`
/// seconds (0: none), with the same options as Redis.
pub fn prepare_tcp(socket: impl AsFd, keepalive: u64) {
    // A connection works without them, so errors are ignored.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    if keepalive > 0 {
        let _ = sockopt::set_socket_keepalive(&socket, true);
        let _ = sockopt::set_tcp_keepidle(&socket, Duration::from_secs(keepalive));
        let _ = sockopt::set_tcp_keepintvl(&socket, Duration::from_secs((keepalive / 3).max(1)));
        let _ = sockopt::set_tcp_keepcnt(&socket, 3);
    }
}
