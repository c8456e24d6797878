//! midi's own ports: they serve clients without the host.
//!
//! ```text
//! system ◄─► transport: bytes ◄─► port, service: whose turn it is ◄─► resp: commands ◄─► engine
//!                                   ▲
//!                                   └─ messages (shared) of jobs, main-thread tasks, other ports
//! ```
//!
//! Each worker has one port (`port.rs`): the order in which its connections are served.
//! `service.rs` has what they are served with, and how those that have input at the same time run
//! together.
//!
//! A connection (`connection.rs`) is a channel of the transport, which knows no protocol, and a
//! session, which knows no socket (`protocol.rs`). Its client is what all workers may read
//! (`client.rs`).
//!
//! The host's main thread takes no part in this, and this layer does not use the module API.

mod accept;
mod client;
mod connection;
mod deliveries;
mod figures;
mod flow;
mod held;
mod intake;
pub mod memcached;
mod port;
mod protocol;
mod report;
pub mod resp;
mod service;
mod shared;
mod subscribers;
mod transport;
mod turn;
mod waiting;
mod worker;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use port::WorkerPort;
use report::{Closed, Open};
use shared::Shared;
pub use transport::{Announced, Output, TlsStream};
use transport::{Driver, Epoll, tls_server};

use crate::engine::{Engine, Port, PortConfig};

/// Opens the ports: one for each of the engine's workers; none if the settings ask for none.
///
/// # Errors
/// What could not be opened, and why, for the log.
pub fn open(
    engine: &Arc<Engine>,
    config: &PortConfig,
    on_panic: fn(),
) -> Result<Vec<Box<dyn Port + Send>>, String> {
    if config.listeners.is_empty() || config.obstacle.is_some() {
        engine.context().outside.set_ports(Box::new(Closed(config.obstacle)));
        return Ok(Vec::new());
    }
    let first_descriptor = engine.settings().port.first_descriptor.load(Ordering::Relaxed) as i32;
    let listeners = transport::open(config, engine.config().workers, first_descriptor)?;
    let tls = config.tls.as_ref().map(tls_server).transpose();
    let tls = tls.map_err(|why| format!("midi.tls-port: {why}"))?;
    let shared = Arc::new(Shared::new(Arc::clone(engine), config.listeners.clone(), on_panic));
    *shared.tls.lock() = tls;
    let descriptors =
        listeners.iter().flatten().map(|listener| listener.socket.as_raw_fd()).collect();
    let report =
        Open { shared: Arc::downgrade(&shared), backend: Epoll::NAME, listeners: descriptors };
    engine.context().outside.set_ports(Box::new(report));
    let mut ports: Vec<Box<dyn Port + Send>> = Vec::new();
    for (worker, listeners) in listeners.into_iter().enumerate() {
        let driver = Epoll::new(engine.context().workers.waker(worker), first_descriptor);
        let driver = driver.map_err(|error| format!("midi.port: {error}"))?;
        let port = WorkerPort::new(Arc::clone(&shared), worker, driver, listeners);
        ports.push(Box::new(port.map_err(|error| format!("midi.port: {error}"))?));
    }
    Ok(ports)
}
