//! A timer that ends long waits now and then. A timeout for each wait would have to be set and
//! cleared each time, which costs more than everything else between two waits.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// How often long waits end.
const TICK: Duration = Duration::from_millis(100);

/// A wait of this length or longer counts as long.
pub const LONG: Duration = Duration::from_millis(20);

/// A descriptor that can be read ten times a second. It must be read each time.
///
/// # Errors
/// The system's.
pub fn ticker() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let ticker = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let every = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    let ticks = Itimerspec { it_interval: every, it_value: every };
    timerfd_settime(&ticker, TimerfdTimerFlags::empty(), &ticks)?;
    Ok(ticker)
}
