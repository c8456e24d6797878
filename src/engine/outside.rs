//! What the engine asks of the world, and tells of it: the host, and the ports of all workers.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::host::Host;
use super::port::Ports;
use crate::command::Transcript;
use crate::sync::Locked;

/// The world outside, as far as it has been introduced.
pub struct Outside {
    /// Ends the sleep of the main thread.
    wake_main: Box<dyn Fn() + Send + Sync>,
    /// Asks the host whether, and how much, midi may write.
    ask_host: OnceLock<fn(Locked<'_>)>,
    host: OnceLock<Box<dyn Host>>,
    /// What HELLO tells of the host's modules.
    modules: Mutex<Arc<Transcript>>,
    ports: OnceLock<Box<dyn Ports>>,
}

impl Outside {
    pub(super) fn new(wake_main: Box<dyn Fn() + Send + Sync>) -> Self {
        Outside {
            wake_main,
            ask_host: OnceLock::new(),
            host: OnceLock::new(),
            modules: Mutex::default(),
            ports: OnceLock::new(),
        }
    }

    /// Ends the main thread's sleep.
    pub fn wake_main(&self) {
        (self.wake_main)();
    }

    /// Sets how the holder of the global lock asks the host about writing; what
    /// it learns comes back through `Engine::set_gates` and `Engine::set_credit`.
    pub fn on_ask_host(&self, ask: fn(Locked<'_>)) {
        let _ = self.ask_host.set(ask);
    }

    pub(super) fn ask_host(&self, locked: Locked<'_>) {
        if let Some(ask) = self.ask_host.get() {
            ask(locked);
        }
    }

    /// Introduces the host, for main_tasks to it.
    pub fn meet_host(&self, host: Box<dyn Host>) {
        let _ = self.host.set(host);
    }

    /// The host, where it has been introduced.
    pub fn host(&self) -> Option<&dyn Host> {
        self.host.get().map(|host| &**host)
    }

    /// What the host calls its version, as clients understand it.
    pub fn host_version(&self) -> &str {
        self.host.get().map_or("7.0.0", |host| host.version())
    }

    /// Sets what HELLO tells of the host's modules: a list.
    pub fn set_modules(&self, list: Transcript) {
        *self.modules.lock() = Arc::new(list);
    }

    /// What HELLO tells of the host's modules; nothing yet where it is empty.
    pub fn modules(&self) -> Arc<Transcript> {
        Arc::clone(&self.modules.lock())
    }

    /// Introduces the ports, for those who tell of them.
    pub fn meet_ports(&self, ports: Box<dyn Ports>) {
        let _ = self.ports.set(ports);
    }

    /// The ports, where they have been introduced.
    pub fn ports(&self) -> Option<&dyn Ports> {
        self.ports.get().map(|ports| &**ports)
    }
}
