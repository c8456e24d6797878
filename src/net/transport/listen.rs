//! Listening: addresses, Unix sockets, the range of descriptors, and accepting.

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::Duration;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind,
    connect, listen, socket_with,
};

use super::driver::Driver;
use crate::engine::{ListenAt, ListenerRow, PortConfig};

/// A listening socket.
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// Its row in [`PortConfig::listeners`].
    row: usize,
}

/// A connection that was accepted and has no worker yet.
pub struct Accepted {
    /// Its socket.
    pub socket: OwnedFd,
    /// The client's address; `None` on a Unix socket.
    pub address: Option<SocketAddr>,
    /// The row of its listener in [`PortConfig::listeners`].
    pub row: usize,
}

/// Opens the listeners of each worker. The kernel spreads TCP connections over the workers'
/// sockets. Only the first worker has the Unix sockets.
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
    for (number, row) in config.listeners.iter().enumerate() {
        let failed = |at: &dyn Display, error: io::Error| {
            format!("midi.{}: cannot listen on {at}: {error}", row.setting)
        };
        match &row.at {
            ListenAt::Tcp { port, bind } => {
                for address in addresses(row, bind, *port)? {
                    let failed = |error| failed(&address, error);
                    // First without SO_REUSEPORT: with it, we would share the port with another
                    // server of the same user.
                    drop(tcp(address, false).map_err(failed)?);
                    for own in &mut all {
                        let socket = tcp(address, true).and_then(|socket| {
                            listen(&socket, config.backlog)?;
                            raised(socket, first_descriptor)
                        });
                        own.push(Listener { socket: socket.map_err(failed)?, row: number });
                    }
                }
            }
            ListenAt::Unix { path, mode } => {
                let socket = unix(path, *mode, config.backlog);
                let socket = socket.and_then(|socket| raised(socket, first_descriptor));
                let socket = socket.map_err(|error| failed(path, error))?;
                all[0].push(Listener { socket, row: number });
            }
        }
    }
    Ok(all)
}

/// A worker's listeners, by number.
pub struct Listeners {
    all: Vec<Listener>,
    /// Numbers of those that are not watched at the moment.
    resting: Vec<usize>,
}

impl Listeners {
    /// None of them is watched yet: see [`Listeners::wake`].
    pub fn new(all: Vec<Listener>) -> Self {
        let resting = (0..all.len()).collect();
        Listeners { all, resting }
    }

    /// Accepts the next connection of a listener, if there is one.
    pub fn accept<D: Driver>(&mut self, number: usize, driver: &mut D) -> Option<Accepted> {
        let listener = self.all.get(number)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            return match acceptfrom_with(&listener.socket, flags) {
                Ok((socket, address)) => {
                    let address = address.and_then(address_of);
                    Some(Accepted { socket, address, row: listener.row })
                }
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => None,
                Err(_) => {
                    // The system has no descriptor or memory left for it, and may not have for a
                    // while. Until then the listener would constantly report the connection.
                    driver.remove(&listener.socket);
                    self.resting.push(number);
                    None
                }
            };
        }
    }

    /// Has the driver report connections that wait, for the listeners for which it does not do so.
    /// The mark of a listener is its number.
    pub fn wake<D: Driver>(&mut self, driver: &mut D) {
        self.resting.retain(|&number| {
            driver.add_listener(number as u64, &self.all[number].socket).is_err()
        });
    }
}

/// The internet address of a socket's end; `None` on a Unix socket.
pub fn address_of(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

/// The addresses to bind. One that begins with `-` is skipped if this machine does not have it.
fn addresses(row: &ListenerRow, bind: &[String], port: u16) -> Result<Vec<SocketAddr>, String> {
    let mut found: Vec<SocketAddr> = Vec::new();
    for name in bind {
        let (name, optional) =
            name.strip_prefix('-').map_or((name.as_str(), false), |name| (name, true));
        let host = match name {
            "*" => "0.0.0.0",
            "::*" => "::",
            other => other,
        };
        let resolved = (host, port).to_socket_addrs().map_err(|error| error.to_string());
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
            Err(why) => {
                return Err(format!("midi.{}: cannot listen on {name}: {why}", row.setting));
            }
        }
    }
    if found.is_empty() {
        Err(format!("midi.{}: this machine has none of the addresses of midi.bind", row.setting))
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

/// A listening Unix socket.
fn unix(path: &str, mode: u32, backlog: i32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    make_way(path, &address)?;
    bind(&socket, &address)?;
    if mode != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    listen(&socket, backlog)?;
    Ok(socket)
}

/// Removes the socket that an earlier run has left. Redis removes whatever has the name.
///
/// # Errors
/// Another kind of file is there, or a socket that somebody listens on.
fn make_way(path: &str, address: &SocketAddrUnix) -> io::Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    if !there.file_type().is_socket() {
        return Err(io::Error::other("there is a file that is not a socket"));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, address) {
        // Its queue is full.
        Ok(()) | Err(Errno::AGAIN) => Err(io::Error::other("somebody listens on it")),
        Err(_) => fs::remove_file(path),
    }
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
