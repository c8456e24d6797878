//! INFO's fields about the ports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::shared::{PortCounts, PortMessage, Shared};
use super::transport::tls_server;
use crate::engine::{HeardMessage, Ports, TlsSettings};

/// Ports that are open.
pub struct Open {
    /// Its upgrade fails after all workers have ended.
    pub shared: Weak<Shared>,
    /// The name of the driver.
    pub backend: &'static str,
    /// Why it is not the one that was asked for.
    pub fallback: Option<String>,
    /// The descriptors that a forked child must close.
    pub descriptors: Vec<i32>,
}

/// Ports that are not open; the reason, if the settings ask for any.
pub struct Closed(pub Option<&'static str>);

/// A counter and its name.
type NamedCount = (&'static str, fn(&PortCounts) -> u64);

/// The counters in INFO.
const COUNTED: [NamedCount; 18] = [
    ("connections", |counts| counts.connected.load(Ordering::Relaxed) as u64),
    ("accepted", |counts| of(&counts.accepted)),
    ("refused", |counts| of(&counts.refused)),
    ("commands", |counts| of(&counts.commands)),
    ("received_bytes", |counts| of(&counts.received)),
    ("sent_bytes", |counts| of(&counts.sent)),
    ("large_received", |counts| of(&counts.large_received)),
    ("large_received_copied_bytes", |counts| of(&counts.large_received_copied)),
    ("large_sent", |counts| of(&counts.large_sent)),
    ("large_sent_copied_bytes", |counts| of(&counts.large_sent_copied)),
    ("buffer_bytes", |counts| counts.buffered.load(Ordering::Relaxed) as u64),
    ("failed_logins", |counts| of(&counts.failed_logins)),
    ("denied", |counts| of(&counts.denied)),
    ("closed_for_limits", |counts| of(&counts.closed_for_limits)),
    ("held_connections", |counts| counts.held.load(Ordering::Relaxed) as u64),
    ("held_bytes", |counts| counts.held_bytes.load(Ordering::Relaxed) as u64),
    ("holds", |counts| of(&counts.holds)),
    ("held_usec", |counts| of(&counts.held_usec)),
];

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Ports for Open {
    fn tell(&self, field: &mut dyn FnMut(&str, &str)) {
        let Some(shared) = self.shared.upgrade() else { return Closed(None).tell(field) };
        field("port_state", "open");
        field("net_backend", self.backend);
        if let Some(reason) = &self.fallback {
            field("net_backend_reason", reason);
        }
        let workers = || (0..shared.engine.config().workers).map(|worker| shared.counts(worker));
        for (name, counted) in COUNTED {
            let sum: u64 = workers().map(counted).sum();
            field(&format!("net_{name}"), &sum.to_string());
        }
        let sum =
            |number: fn(&PortCounts) -> &AtomicU64| workers().map(number).map(of).sum::<u64>();
        let (usec, holds) = (sum(|counts| &counts.held_usec), sum(|counts| &counts.holds));
        field("net_usec_per_hold", &format!("{:.2}", usec as f64 / holds.max(1) as f64));
        for (worker, counts) in workers().enumerate() {
            let values: Vec<String> = COUNTED
                .iter()
                .map(|(name, counted)| format!("{name}={}", counted(counts)))
                .collect();
            field(&format!("net_worker{worker}"), &values.join(","));
        }
    }

    fn sample(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.figures.lock().sample(&shared, Instant::now());
        }
    }

    fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    fn descriptors(&self) -> &[i32] {
        &self.descriptors
    }

    fn set_tls(&self, settings: &TlsSettings) -> Result<(), String> {
        let server = tls_server(settings)?;
        if let Some(shared) = self.shared.upgrade() {
            *shared.tls.lock() = Some(server);
        }
        Ok(())
    }

    fn demoted(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.flushes.forget_all();
        }
    }

    fn hear(&self, worker: usize, message: &Arc<HeardMessage>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.send(worker, PortMessage::Heard(Arc::clone(message)));
        }
    }
}

impl Ports for Closed {
    fn tell(&self, field: &mut dyn FnMut(&str, &str)) {
        match self.0 {
            None => field("port_state", "off"),
            Some(obstacle) => {
                field("port_state", "closed");
                field("port_obstacle", obstacle);
            }
        }
    }

    fn sample(&self) {}

    fn fallback(&self) -> Option<&str> {
        None
    }

    fn descriptors(&self) -> &[i32] {
        &[]
    }

    fn set_tls(&self, _: &TlsSettings) -> Result<(), String> {
        Ok(())
    }

    fn demoted(&self) {}

    fn hear(&self, _: usize, _: &Arc<HeardMessage>) {}
}
