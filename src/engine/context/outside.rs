//! The engine's links to the world outside: the host, and the ports of all workers.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::host::Host;
use super::port::Ports;
use crate::command::Transcript;
use crate::engine::ledger::Logged;
use crate::sync::Locked;

/// The host's log, as the holder of the global lock writes to it.
pub trait HostLog: Send + Sync {
    /// Whether it may be written to right now.
    fn may_log(&self, locked: Locked<'_>) -> bool;

    /// Writes to it, in the order of the calls. False if the host refuses: it logs nothing of what
    /// is done here.
    fn write(&self, locked: Locked<'_>, logged: Logged<'_>) -> bool;

    /// Whether it takes a long text in parts.
    fn takes_parts(&self) -> bool {
        true
    }

    /// Whether it has room for another part of a long text now. If not, it asks for the tail again.
    fn has_room_for_part(&self, _: Locked<'_>) -> bool {
        true
    }
}

/// The host and the ports, as far as they have been set.
pub struct Outside {
    /// Wakes the main thread.
    wake_main: Box<dyn Fn() + Send + Sync>,
    /// Asks the host whether midi may write, and how much.
    ask_host: OnceLock<fn(Locked<'_>)>,
    host: OnceLock<Box<dyn Host>>,
    log: OnceLock<Box<dyn HostLog>>,
    /// The host's modules, as HELLO lists them.
    modules: Mutex<Arc<Transcript>>,
    ports: OnceLock<Box<dyn Ports>>,
}

impl Outside {
    pub(super) fn new(wake_main: Box<dyn Fn() + Send + Sync>) -> Self {
        Outside {
            wake_main,
            ask_host: OnceLock::new(),
            host: OnceLock::new(),
            log: OnceLock::new(),
            modules: Mutex::default(),
            ports: OnceLock::new(),
        }
    }

    /// Wakes the main thread.
    pub fn wake_main(&self) {
        (self.wake_main)();
    }

    /// Sets how the holder of the global lock asks the host about writing; the answer comes back
    /// through `Ledger::set_gates` and `Ledger::set_credit`.
    pub fn on_ask_host(&self, ask: fn(Locked<'_>)) {
        let _ = self.ask_host.set(ask);
    }

    pub(in crate::engine) fn ask_host(&self, locked: Locked<'_>) {
        if let Some(ask) = self.ask_host.get() {
            ask(locked);
        }
    }

    /// Sets the host, for main-thread tasks.
    pub fn set_host(&self, host: Box<dyn Host>) {
        let _ = self.host.set(host);
    }

    /// Sets the host's log.
    pub fn set_log(&self, log: Box<dyn HostLog>) {
        let _ = self.log.set(log);
    }

    /// Whether there is a log of the host's, to which may be written right now.
    pub(in crate::engine) fn may_log(&self, locked: Locked<'_>) -> bool {
        self.log.get().is_some_and(|log| log.may_log(locked))
    }

    /// Writes to the host's log; false if the host refuses. Without a host, all is taken.
    pub(in crate::engine) fn log(&self, locked: Locked<'_>, logged: Logged<'_>) -> bool {
        self.log.get().is_none_or(|log| log.write(locked, logged))
    }

    /// Whether the host's log takes a long text in parts.
    pub(in crate::engine) fn takes_parts(&self) -> bool {
        self.log.get().is_none_or(|log| log.takes_parts())
    }

    /// Whether the host's log has room for another part of a long text.
    pub(in crate::engine) fn has_room_for_part(&self, locked: Locked<'_>) -> bool {
        self.log.get().is_none_or(|log| log.has_room_for_part(locked))
    }

    /// The host, once it has been set.
    pub fn host(&self) -> Option<&dyn Host> {
        self.host.get().map(|host| &**host)
    }

    /// The host's version, in terms of Redis's.
    pub fn host_version(&self) -> &str {
        self.host.get().map_or("7.0.0", |host| host.version())
    }

    /// Sets the list of the host's modules for HELLO.
    pub fn set_modules(&self, list: Transcript) {
        *self.modules.lock() = Arc::new(list);
    }

    /// The list of the host's modules for HELLO; empty until it is set.
    pub fn modules(&self) -> Arc<Transcript> {
        Arc::clone(&self.modules.lock())
    }

    /// Sets the ports, for INFO and for a forked child.
    pub fn set_ports(&self, ports: Box<dyn Ports>) {
        let _ = self.ports.set(ports);
    }

    /// The ports, once they have been set.
    pub fn ports(&self) -> Option<&dyn Ports> {
        self.ports.get().map(|ports| &**ports)
    }
}
