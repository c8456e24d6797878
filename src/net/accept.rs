//! Accepting new connections, and refusing some.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrAny, SocketFlags, acceptfrom_with, getsockname, send};

use super::client::{Client, Condition, Key, Names, NewConnection};
use super::driver::Driver;
use super::listen::{Listener, prepare_tcp, raised};
use super::shared::{Shared, count};

/// Redis's text to a client from another machine if no password is set.
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is \
                           enabled and no password is set for the default user. In this mode \
                           connections are only accepted from the loopback interface. If you want \
                           to connect from external computers to midi's port you may adopt one of \
                           the following solutions: 1) Disable protected mode with the command \
                           'CONFIG SET midi.protected-mode no' on the host's port, from the same \
                           machine the server is running on, but make sure midi's port is not \
                           publicly accessible from the internet if you do so. Use CONFIG REWRITE \
                           to make this change permanent. 2) Disable it in the configuration file, \
                           with the option 'midi.protected-mode no', and restart the server. 3) \
                           Set up an authentication password for the default user. NOTE: You only \
                           need to do one of the above things in order for the server to start \
                           accepting connections from the outside.\r\n";

/// To a client that connects when all places are taken.
const FULL: &[u8] = b"-ERR max number of clients reached (midi.maxclients)\r\n";

/// A worker's listeners, by number.
pub struct Listeners {
    all: Vec<Listener>,
    /// Numbers of those that are not watched at the moment.
    resting: Vec<usize>,
}

impl Listeners {
    /// Has the driver report connections that wait; the mark of a listener is its number.
    ///
    /// # Errors
    /// The system's.
    pub fn new<D: Driver>(all: Vec<Listener>, driver: &mut D) -> io::Result<Self> {
        for (number, listener) in all.iter().enumerate() {
            driver.add_listener(number as u64, &listener.socket)?;
        }
        Ok(Listeners { all, resting: Vec::new() })
    }

    /// Accepts the next connection of a listener, if there is one.
    pub fn accept<D: Driver>(&mut self, number: usize, driver: &mut D) -> Option<NewConnection> {
        let listener = self.all.get(number)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            return match acceptfrom_with(&listener.socket, flags) {
                Ok((socket, address)) => {
                    let address = if listener.unix { None } else { address };
                    let address = address.and_then(internet_address);
                    Some(NewConnection { socket, address })
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

    /// Watches again those that are not watched.
    pub fn wake<D: Driver>(&mut self, driver: &mut D) {
        self.resting.retain(|&number| {
            driver.add_listener(number as u64, &self.all[number].socket).is_err()
        });
    }
}

fn internet_address(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

/// Admits a new connection: moves the socket to its descriptor range and sets its options. `None`
/// if it is refused; the client has been sent the reason.
pub fn let_in(
    shared: &Shared,
    worker: usize,
    new_connection: NewConnection,
) -> Option<NewConnection> {
    let settings = &shared.engine.settings().port;
    let refuse = |text: &[u8]| {
        count(&shared.counts(worker).refused, 1);
        // Best effort: the client may be gone.
        let _ = send(&new_connection.socket, text, SendFlags::NOSIGNAL);
        None
    };
    let from_outside = new_connection.address.is_some_and(|address| !is_loopback(address.ip()));
    if from_outside
        && settings.protected.load(Ordering::Relaxed)
        && shared.engine.users.default_is_open()
    {
        return refuse(PROTECTED);
    }
    if !shared.take_place() {
        return refuse(FULL);
    }
    let first = settings.first_descriptor.load(Ordering::Relaxed) as i32;
    let Ok(socket) = raised(new_connection.socket, first) else {
        shared.leave_place();
        count(&shared.counts(worker).refused, 1);
        return None;
    };
    if new_connection.address.is_some() {
        prepare_tcp(&socket, settings.keepalive.load(Ordering::Relaxed) as u64);
    }
    Some(NewConnection { socket, address: new_connection.address })
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

/// The part of a new connection that other threads may read.
pub fn client(
    shared: &Shared,
    worker: usize,
    key: Key,
    new_connection: &NewConnection,
    unixsocket: &str,
) -> Arc<Client> {
    let now = Instant::now();
    let local = getsockname(&new_connection.socket).ok().and_then(internet_address);
    let unix = || format!("{unixsocket}:0");
    Arc::new(Client {
        id: shared.new_id(),
        worker,
        key,
        address: new_connection.address.map_or_else(unix, |address| address.to_string()),
        local_address: local.map_or_else(unix, |address| address.to_string()),
        unix: new_connection.address.is_none(),
        descriptor: new_connection.socket.as_raw_fd(),
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
