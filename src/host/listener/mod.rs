//! The listener: a thread with one connection to midi's own host, which subscribes to what clients
//! of the ports subscribe to, and hears every message once. The host does the matching.
//!
//! ```text
//! engine::PubSub ─► changes ─► SUBSCRIBE c ─► host
//!    workers ◄─ Ports::hear ◄─ message ◄──────┘
//! ```
//!
//! The thread begins with the first subscription. It connects again whenever its connection ends;
//! messages between are lost, as they are for any subscriber.

mod dial;
mod login;
mod talk;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::{Duration, Instant};

pub use login::log_in;

use super::api::Level;
use super::guarded;
use super::instance::instance;
use super::output::pubsub_limits;
use crate::engine::{Engine, Waker};
use crate::limits::LISTENER_RETRY;

/// Has the listener begin with the first subscription. In OnLoad.
///
/// # Errors
/// The system's error if it has no more descriptors.
pub fn prepare(engine: &Arc<Engine>) -> std::io::Result<()> {
    let _ = instance().listening.waker.set(Waker::new()?);
    let weak = Arc::downgrade(engine);
    engine.pubsub.on_change(move || {
        let Some(engine) = weak.upgrade() else { return };
        if !instance().listening.runs.replace(true) {
            begin(engine);
        }
        if let Some(waker) = instance().listening.waker.get() {
            waker.wake();
        }
    });
    Ok(())
}

fn begin(engine: Arc<Engine>) {
    let listener = Arc::clone(&engine);
    let run = move || {
        loop {
            guarded((), || run(&listener));
            listener.pubsub.lost(None);
        }
    };
    if let Err(error) = Builder::new().name("midi-listener".to_owned()).spawn(run) {
        instance().listening.runs.set(false);
        engine.pubsub.lost(Some(&format!("no thread: {error}")));
    }
}

/// How long it sleeps if nobody subscribes.
const IDLE: Duration = Duration::from_secs(3600);

fn run(engine: &Engine) {
    let Some(waker) = instance().listening.waker.get() else { return };
    let mut last_failure: Option<String> = None;
    let mut was_lost = false;
    let mut lost_at: Option<Instant> = None;
    loop {
        while !engine.pubsub.is_needed() {
            waker.sleep(IDLE);
        }
        let connected = dial::connect(engine);
        let why = match connected {
            Ok(mut connection) => {
                let mut heard = |refusal: Option<&str>| match refusal {
                    Some(why) => log_failure(&mut last_failure, why),
                    None => {
                        let has_failed = last_failure.take().is_some();
                        if was_lost || has_failed {
                            let text = "midi hears messages for clients of its port again.";
                            instance().log(Level::Notice, text);
                        }
                    }
                };
                let (why, has_begun) = connection.talk(engine, waker, &mut heard);
                let is_again = lost_at.is_some_and(|at| at.elapsed() < LISTENER_RETRY);
                lost_at = Some(Instant::now());
                // Again so soon: what clients subscribe to may be the reason.
                if has_begun && !is_again {
                    was_lost = engine.pubsub.is_needed();
                    engine.pubsub.lost(None);
                    if was_lost {
                        log_lost(&why);
                    }
                    last_failure = None;
                    continue;
                }
                why
            }
            Err(why) => why,
        };
        engine.pubsub.lost(Some(&why));
        log_failure(&mut last_failure, &why);
        std::thread::sleep(LISTENER_RETRY);
    }
}

/// Logs why clients cannot subscribe, unless that was the last thing to be logged.
fn log_failure(last: &mut Option<String>, why: &str) {
    if last.as_deref() != Some(why) {
        let text = format!("Clients of midi's port cannot subscribe to channels: {why}");
        instance().log(Level::Warning, &text);
    }
    *last = Some(why.to_owned());
}

fn log_lost(why: &str) {
    let text = format!(
        "The connection by which midi hears messages for clients of its port has ended: {why}. It \
         connects again; messages until then do not reach them."
    );
    instance().log(Level::Warning, &text);
}

/// Takes over the host's `client-output-buffer-limit pubsub` for subscribers of the ports.
pub fn take_limits(setting: &[u8]) {
    let port = &instance().engine.settings().port;
    let [hard, soft, seconds] = pubsub_limits(setting);
    port.pubsub_hard.store(hard, Ordering::Relaxed);
    port.pubsub_soft.store(soft, Ordering::Relaxed);
    port.pubsub_soft_seconds.store(seconds, Ordering::Relaxed);
}
