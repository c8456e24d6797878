//! midi's own ports: they serve clients without the host.
//!
//! ```text
//! system ◄─► transport: bytes ◄─► port, service: whose turn it is ◄─► protocol: commands ◄─► engine
//!                                   ▲
//!                                   └─ messages (shared) of jobs, main-thread tasks, other ports
//! ```
//!
//! Each worker has one port (`port.rs`): the order in which its connections are served.
//! `service.rs` has what they are served with, and how those that have input at the same time run
//! together.
//!
//! A connection (`connection.rs`) is a channel of the transport, which knows no protocol, and a
//! session, which knows no socket (`protocol.rs`). `session.rs` chooses between the protocols,
//! which do not know each other. Its client is what all workers may read (`client.rs`).
//!
//! The host's main thread takes no part in this, and this layer does not use the module API.

mod accept;
mod access;
mod caller;
mod client;
mod connection;
mod deferred;
mod deliveries;
mod figures;
mod flow;
mod flushes;
mod held;
mod intake;
mod login;
mod main_task;
pub mod memcached;
mod port;
mod protocol;
mod report;
pub mod resp;
mod service;
mod session;
mod shared;
mod subscribers;
mod transport;
mod turn;
mod waiting;
mod worker;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use connection::Connection;
use port::WorkerPort;
use report::{Closed, Open};
use shared::Shared;
pub use transport::{Announced, Output, TlsStream};
use transport::{Driver, Epoll, Listener, Uring, tls_server};

use crate::engine::{Engine, Port, PortConfig};
use crate::sync::Waker;

/// Opens the ports: one for each of the engine's workers; none if the settings ask for none.
///
/// # Errors
/// What could not be opened, and why, for the log.
pub fn open(
    engine: &Arc<Engine>,
    config: &PortConfig,
    on_panic: fn(),
) -> Result<Vec<Box<dyn Port + Send>>, String> {
    if !config.opens_any() {
        engine.context().outside.set_ports(Box::new(Closed(config.obstacle)));
        return Ok(Vec::new());
    }
    let first_descriptor = engine.settings().port.first_descriptor.load(Ordering::Relaxed) as i32;
    let listeners = transport::open(config, engine.config().workers, first_descriptor)?;
    let tls = config.tls.as_ref().map(tls_server).transpose();
    let tls = tls.map_err(|why| format!("midi.tls-port: {why}"))?;
    let (rows, connection_bytes) = (config.listeners.clone(), size_of::<Connection>());
    let shared = Arc::new(Shared::new(Arc::clone(engine), rows, on_panic, connection_bytes));
    *shared.tls.lock() = tls;
    let sockets = listeners.iter().flatten().map(|listener| listener.socket.as_raw_fd());
    let mut descriptors: Vec<i32> = sockets.collect();
    let uring = config.uses_io_uring.then(|| rings(engine, first_descriptor));
    let (backend, fallback, ports) = match uring {
        Some(Ok(drivers)) => {
            descriptors.extend(drivers.iter().map(Uring::descriptor));
            (Uring::NAME, None, ports(&shared, drivers, listeners))
        }
        other => {
            let drivers = wakers(engine).map(|waker| Epoll::new(waker, first_descriptor));
            let drivers = drivers.collect::<Result<Vec<_>, _>>();
            let drivers = drivers.map_err(|error| format!("midi.port: {error}"))?;
            (Epoll::NAME, other.and_then(Result::err), ports(&shared, drivers, listeners))
        }
    };
    let report = Open { shared: Arc::downgrade(&shared), backend, fallback, descriptors };
    engine.context().outside.set_ports(Box::new(report));
    Ok(ports)
}

fn wakers(engine: &Engine) -> impl Iterator<Item = &Waker> {
    (0..engine.config().workers).map(|worker| engine.context().workers.waker(worker))
}

/// A ring for each worker.
///
/// # Errors
/// Why there can be none.
fn rings(engine: &Engine, first_descriptor: i32) -> Result<Vec<Uring>, String> {
    let make = || {
        Uring::try_out()?;
        wakers(engine).map(|waker| Uring::new(waker, first_descriptor)).collect()
    };
    // After the end of a ring the kernel interrupts the threads that have made or used it. The
    // host's main thread must not be one of them.
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, make);
        let thread = thread.map_err(|error| error.to_string())?;
        thread.join().unwrap_or_else(|_| Err("the attempt has panicked".into()))
    })
}

/// The ports of all workers, each with its driver and its listeners.
fn ports<D: Driver + Send + 'static>(
    shared: &Arc<Shared>,
    drivers: Vec<D>,
    listeners: Vec<Vec<Listener>>,
) -> Vec<Box<dyn Port + Send>> {
    let parts = drivers.into_iter().zip(listeners).enumerate();
    let ports = parts.map(|(worker, (driver, listeners))| {
        let port = WorkerPort::new(Arc::clone(shared), worker, driver, listeners);
        Box::new(port) as Box<dyn Port + Send>
    });
    ports.collect()
}
