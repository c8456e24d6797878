//! A library that a server is started with (LD_PRELOAD): the time of day is wrong by as many
//! milliseconds as the file `CLOCK_FILE` of the environment says, in its first eight bytes. The
//! number may be negative, and may change while the server runs. Clocks that only count go on as
//! they are.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use libc::{clockid_t, time_t, timespec, timeval};

/// The file, which the environment has named when the program began. Servers overwrite theirs.
static AHEAD_MS: OnceLock<&'static AtomicI64> = OnceLock::new();

/// Runs before the program's main().
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    static RIGHT: AtomicI64 = AtomicI64::new(0);
    AHEAD_MS.get_or_init(|| {
        let file = std::env::var_os("CLOCK_FILE").and_then(|path| File::open(path).ok());
        file.and_then(|file| mapped(&file)).unwrap_or(&RIGHT)
    });
}

/// The number in the file, as others change it.
fn mapped(file: &File) -> Option<&'static AtomicI64> {
    // SAFETY: new memory, which is never unmapped; a page is aligned for the number. The file has
    // one: reading beyond its end would end the process.
    unsafe {
        let (size, shared) = (size_of::<AtomicI64>(), libc::MAP_SHARED);
        let at =
            libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, shared, file.as_raw_fd(), 0);
        (at != libc::MAP_FAILED).then(|| &*at.cast::<AtomicI64>())
    }
}

fn shift(time: &mut timespec) {
    let ahead_ms = AHEAD_MS.get().map_or(0, |ahead| ahead.load(Ordering::Relaxed));
    let ns = time.tv_nsec + ahead_ms * 1_000_000;
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

/// libc's dlopen(), without RTLD_DEEPBIND: with it modules of Valkey would call libc's clocks.
///
/// # Safety
/// As dlopen()'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: the next function of that name is libc's, which has this type; its caller's promise.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr());
        let next: Dlopen = std::mem::transmute(next);
        next(name, flags & !libc::RTLD_DEEPBIND)
    }
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
