//! A library that a server is started with (LD_PRELOAD): it stands in front of libc's write(),
//! fsync() and fdatasync(), counts the last two, makes them slow, and has all three fail.
//!
//! The environment says what it does, to files whose path contains `DISK_PATH` (all files, if that
//! is not set; never to sockets):
//!
//! * `DISK_SYNC_MS`: an fsync takes so many milliseconds longer.
//! * `DISK_LOG`: a file that gets a line for each fsync that has ended: the process, begin and end
//!   in nanoseconds of CLOCK_MONOTONIC, and 0 or the error's number.
//! * `DISK_FAIL_WRITE`, `DISK_FAIL_SYNC`: files. While one of them exists, that call fails with the
//!   error that the file names: `ENOSPC`, or else `EIO`. A failing fsync is slow, too.
//!
//! Writes of libc itself, for fwrite() and fprintf(), do not come by here: a server's log, an RDB,
//! and the base of an AOF are written.

use std::ffi::{CStr, OsString, c_int, c_long, c_void};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The environment's word when the program began. Servers overwrite theirs.
struct Settings {
    path: Option<OsString>,
    sync_delay: Duration,
    log: Option<File>,
    fail_write: Option<PathBuf>,
    fail_sync: Option<PathBuf>,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Runs before the program's main().
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    SETTINGS.get_or_init(Settings::from_environment);
}

impl Settings {
    fn from_environment() -> Settings {
        let milliseconds = std::env::var("DISK_SYNC_MS").ok().and_then(|text| text.parse().ok());
        let log = std::env::var_os("DISK_LOG")
            .and_then(|path| OpenOptions::new().create(true).append(true).open(path).ok());
        Settings {
            path: std::env::var_os("DISK_PATH"),
            sync_delay: Duration::from_millis(milliseconds.unwrap_or(0)),
            log,
            fail_write: std::env::var_os("DISK_FAIL_WRITE").map(PathBuf::from),
            fail_sync: std::env::var_os("DISK_FAIL_SYNC").map(PathBuf::from),
        }
    }

    fn concerns(&self, fd: c_int) -> bool {
        let mut path = [0; 4096];
        let path = path_of(fd, &mut path);
        let wanted = self.path.as_ref().map_or(&b""[..], |wanted| wanted.as_bytes());
        let contains = || path.windows(wanted.len().max(1)).any(|part| part.starts_with(wanted));
        // Sockets and pipes have names without a slash in front.
        path.starts_with(b"/") && contains()
    }

    /// Appends a line. One write, so that lines of several threads and processes do not mix.
    fn log(&self, began: u64, error: c_int) {
        let Some(log) = &self.log else { return };
        let mut line = [0; 96];
        let mut rest = &mut line[..];
        // SAFETY: getpid() always works.
        let pid = unsafe { libc::getpid() };
        let _ = writeln!(rest, "{pid} {began} {} {error}", now());
        let length = 96 - rest.len();
        // SAFETY: an open file, and bytes on the stack.
        unsafe { libc::syscall(libc::SYS_write, log.as_raw_fd(), line.as_ptr(), length) };
    }
}

/// The path of an open file; nothing if it cannot be said. Allocates nothing: write() may be called
/// in a signal handler.
fn path_of(fd: c_int, path: &mut [u8; 4096]) -> &[u8] {
    let mut link = [0; 40];
    // The last byte stays 0.
    let _ = write!(&mut link[..39], "/proc/self/fd/{fd}");
    let Ok(link) = CStr::from_bytes_until_nul(&link) else { return &[] };
    // SAFETY: a string that ends in 0, and a buffer with its length.
    let length = unsafe { libc::readlink(link.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    &path[..length.max(0) as usize]
}

/// CLOCK_MONOTONIC in nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to a structure on the stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The error that this switch asks for now.
fn failure(switch: Option<&PathBuf>) -> Option<c_int> {
    let name = std::fs::read(switch?).ok()?;
    Some(if name.starts_with(b"ENOSPC") { libc::ENOSPC } else { libc::EIO })
}

fn errno() -> c_int {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() }
}

fn set_errno(error: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// libc's write().
///
/// # Safety
/// As write()'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize {
    if let Some(settings) = SETTINGS.get()
        && settings.fail_write.is_some()
    {
        let before = errno();
        if settings.concerns(fd)
            && let Some(error) = failure(settings.fail_write.as_ref())
        {
            set_errno(error);
            return -1;
        }
        set_errno(before);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) as isize }
}

/// libc's fsync().
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    sync(libc::SYS_fsync, fd)
}

/// libc's fdatasync().
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(libc::SYS_fdatasync, fd)
}

fn sync(call: c_long, fd: c_int) -> c_int {
    let settings = SETTINGS.get().filter(|settings| settings.concerns(fd));
    let began = now();
    let error = match settings.and_then(|settings| failure(settings.fail_sync.as_ref())) {
        Some(error) => error,
        // SAFETY: any number will do: an fd that is not open is an error.
        None if unsafe { libc::syscall(call, fd) } == 0 => 0,
        None => errno(),
    };
    if let Some(settings) = settings {
        if !settings.sync_delay.is_zero() {
            std::thread::sleep(settings.sync_delay);
        }
        settings.log(began, error);
    }
    set_errno(error);
    if error == 0 { 0 } else { -1 }
}
