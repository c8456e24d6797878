//! midi's own ports: they serve clients without the host.
//!
//! ```text
//! listen ─► accept ─► port ─► intake: bytes in ─► run ─┬─► batch: several together ─► engine
//!                      ▲      (driver)                 └─► by itself: dispatch ─► commands ─► engine
//!                      │      bytes out (driver) ◄─ outgoing ◄─ resp: replies ◄───┘
//!                      └─ messages (shared): replies of jobs and main-thread tasks, new connections
//! ```
//!
//! Each worker has one port: the order in which its connections are served. `service.rs` has what
//! they are served with, and how those that have input at the same time run together.
//!
//! A connection (`connection.rs`) is a socket, bytes that have come and not run, bytes that it has
//! to say (`outgoing.rs`), and a session (`session.rs`): its user and its commands. Its client is
//! what all workers may read (`client.rs`). Commands are functions of a caller (`caller.rs`): the
//! worker, the session, the output.
//!
//! The host's main thread takes no part in this, and this layer does not use the module API.

mod accept;
mod backlog;
mod batch;
mod caller;
mod client;
mod commands;
mod connection;
mod dispatch;
mod driver;
mod exec_replies;
mod held;
mod intake;
mod job;
mod listen;
mod main_task;
mod named;
mod outgoing;
mod port;
mod report;
pub mod resp;
mod run;
mod service;
mod session;
mod shared;
mod transaction;
mod turn;
mod waiting;
mod worker;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use driver::{Driver, Epoll};
use port::WorkerPort;
use report::{Closed, Open};
use shared::Shared;

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
    if !config.are_wanted() || config.obstacle.is_some() {
        engine
            .context()
            .outside
            .set_ports(Box::new(Closed(config.obstacle.filter(|_| config.are_wanted()))));
        return Ok(Vec::new());
    }
    let first_descriptor = engine.settings().port.first_descriptor.load(Ordering::Relaxed) as i32;
    let listeners = listen::open(config, engine.config().workers, first_descriptor)?;
    let shared = Arc::new(Shared::new(Arc::clone(engine), on_panic));
    let descriptors =
        listeners.iter().flatten().map(|listener| listener.socket.as_raw_fd()).collect();
    let report =
        Open { shared: Arc::downgrade(&shared), backend: Epoll::NAME, listeners: descriptors };
    engine.context().outside.set_ports(Box::new(report));
    let mut ports: Vec<Box<dyn Port + Send>> = Vec::new();
    for (worker, listeners) in listeners.into_iter().enumerate() {
        let driver = Epoll::new(engine.context().workers.waker(worker), first_descriptor);
        let driver = driver.map_err(|error| format!("midi.port: {error}"))?;
        let port =
            WorkerPort::new(Arc::clone(&shared), worker, driver, listeners, &config.unixsocket);
        ports.push(Box::new(port.map_err(|error| format!("midi.port: {error}"))?));
    }
    Ok(ports)
}
