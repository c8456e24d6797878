//! A library that a server is started with (LD_PRELOAD): the time of day is wrong by
//! `CLOCK_AHEAD_MS` milliseconds of the environment, which may be negative. Clocks that only count
//! go on as they are.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libc::{clockid_t, time_t, timespec, timeval};

/// What the environment said when the program began. Servers overwrite theirs.
static AHEAD_MS: OnceLock<i64> = OnceLock::new();

/// Runs before the program's main().
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    AHEAD_MS.get_or_init(|| {
        std::env::var("CLOCK_AHEAD_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    });
}

fn shift(time: &mut timespec) {
    let ns = time.tv_nsec + AHEAD_MS.get().copied().unwrap_or(0) * 1_000_000;
    time.tv_sec += ns.div_euclid(1_000_000_000);
    time.tv_nsec = ns.rem_euclid(1_000_000_000);
}

/// The wrong time of day.
fn now() -> timespec {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to a structure on the stack.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &mut time) };
    shift(&mut time);
    time
}

/// libc's clock_gettime().
///
/// # Safety
/// As clock_gettime()'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    if result == 0 && matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) {
        // SAFETY: the kernel has written there.
        shift(unsafe { &mut *time });
    }
    result as c_int
}

/// libc's gettimeofday(), without time zones.
///
/// # Safety
/// As gettimeofday()'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, _: *mut c_void) -> c_int {
    let now = now();
    // SAFETY: the caller's promise: it can be written to, or is null.
    if let Some(time) = unsafe { time.as_mut() } {
        (time.tv_sec, time.tv_usec) = (now.tv_sec, now.tv_nsec / 1000);
    }
    0
}

/// libc's time().
///
/// # Safety
/// As time()'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut time_t) -> time_t {
    let now = now().tv_sec;
    // SAFETY: as above.
    if let Some(time) = unsafe { time.as_mut() } {
        *time = now;
    }
    now
}
