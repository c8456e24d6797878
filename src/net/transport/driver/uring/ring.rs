//! A ring: requests that wait to be submitted, and completions.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Submitter, cqueue, opcode};

use crate::limits::{RING_COMPLETIONS, RING_REQUESTS};
use crate::net::transport::driver::ticker::LONG;

/// An io_uring instance. Only one thread may submit to it, and completions are made when that
/// thread asks for them: so nothing interrupts the thread, and nothing is locked.
pub struct Ring {
    ring: IoUring,
    /// Its thread has begun to use it.
    has_begun: bool,
    /// Its number among the thread's registered rings, by which the kernel finds it without
    /// looking for its descriptor.
    registered: Option<u32>,
    /// The kernel has refused a call: nothing that waits to be submitted may be any more, because
    /// what it refers to may be gone.
    has_failed: bool,
    /// How often all requests that waited have been submitted.
    submissions: u64,
}

/// `struct io_uring_rsrc_update`, as it registers a ring.
#[repr(C)]
struct Registration {
    number: u32,
    reserved: u32,
    descriptor: u64,
}

/// `IORING_REGISTER_RING_FDS`.
const REGISTER_RING_FDS: libc::c_uint = 20;
/// `IORING_UNREGISTER_RING_FDS`.
const UNREGISTER_RING_FDS: libc::c_uint = 21;

impl Ring {
    /// A ring that is not in use yet: requests can wait in it already.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        Self::sized(RING_REQUESTS, RING_COMPLETIONS)
    }

    /// The same with so much room.
    ///
    /// # Errors
    /// The system's.
    pub fn sized(requests: u32, completions: u32) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_r_disabled().setup_submit_all().setup_cqsize(completions);
        builder.setup_single_issuer().setup_defer_taskrun();
        Ok(Ring {
            ring: builder.build(requests)?,
            has_begun: false,
            registered: None,
            has_failed: false,
            submissions: 0,
        })
    }

    /// Its submitter, with which memory can be registered.
    pub fn submitter(&self) -> Submitter<'_> {
        self.ring.submitter()
    }

    /// The calling thread uses it from now on.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(&mut self) -> io::Result<()> {
        if !self.has_begun {
            self.ring.submitter().register_enable_rings()?;
            self.has_begun = true;
            self.registered = self.register();
        }
        Ok(())
    }

    /// Registers it with the calling thread; `None` if the system does not do that.
    fn register(&self) -> Option<u32> {
        let descriptor = self.ring.as_raw_fd() as u64;
        let mut it = Registration { number: u32::MAX, reserved: 0, descriptor };
        self.change_registration(REGISTER_RING_FDS, &mut it).then_some(it.number)
    }

    fn change_registration(&self, operation: libc::c_uint, of: &mut Registration) -> bool {
        let (call, ring) = (libc::SYS_io_uring_register, self.ring.as_raw_fd());
        // SAFETY: the kernel reads the structure, and writes the number into it.
        unsafe { libc::syscall(call, ring, operation, std::ptr::from_mut(of), 1) == 1 }
    }

    /// io_uring_enter(), with all requests. False if it had no effect for a reason that passes, or
    /// has waited for long enough.
    fn enter<T>(&mut self, want: u32, flags: EnterFlags, arg: Option<&T>) -> io::Result<bool> {
        if self.has_failed {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let submit = self.ring.submission().len();
        let (ring, flags) = match self.registered {
            Some(number) => (number as i32, flags | EnterFlags::REGISTERED_RING),
            None => (self.ring.as_raw_fd(), flags),
        };
        let arg = arg.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the kernel reads the argument, which lives as long as the call. What the requests
        // refer to lives longer, as `push` asks for.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                ring,
                submit as u32,
                want,
                flags.bits(),
                arg,
                size_of::<T>(),
            )
        };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if result >= 0 => {
                self.submissions += u64::from(self.ring.submission().is_empty());
                Ok(true)
            }
            Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME) => Ok(false),
            _ => {
                self.has_failed = true;
                Err(error)
            }
        }
    }

    /// Adds a request, and submits those before it if there is no room.
    ///
    /// # Safety
    /// Memory that it refers to must live until the kernel is done with it.
    ///
    /// # Errors
    /// The system's, if there is no room.
    pub unsafe fn push(&mut self, request: &Entry) -> io::Result<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(request) }.is_err() {
            if !self.has_begun {
                return Err(io::Error::from(io::ErrorKind::OutOfMemory));
            }
            self.submit()?;
        }
        Ok(())
    }

    /// Submits all requests, and has completions made that are due.
    ///
    /// # Errors
    /// The system's: some requests have not been submitted.
    pub fn submit(&mut self) -> io::Result<()> {
        loop {
            let nothing = None::<&SubmitArgs<'_, '_>>;
            if !self.enter(0, EnterFlags::GETEVENTS, nothing)? {
                std::thread::yield_now();
            }
            if self.ring.submission().is_empty() {
                return Ok(());
            }
        }
    }

    /// Submits all requests, and waits for a completion, at most this long if that is not long.
    ///
    /// # Errors
    /// The system's: some requests may not have been submitted.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let limit = Timespec::from(at_most);
        let arguments = SubmitArgs::new();
        let arguments = if at_most < LONG { arguments.timespec(&limit) } else { arguments };
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // If not all were submitted, there was no wait.
        if self.enter(1, flags, Some(&arguments))? && !self.ring.submission().is_empty() {
            return self.submit();
        }
        Ok(())
    }

    /// The oldest completion.
    #[inline]
    pub fn completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// How often all requests that waited have been submitted.
    pub fn submissions(&self) -> u64 {
        self.submissions
    }

    /// Whether the kernel keeps completions for which there was no room. It adds them when requests
    /// are submitted.
    pub fn has_overflowed(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Whether there are requests to be submitted.
    pub fn has_requests(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Its descriptor, which a forked child should close.
    pub fn descriptor(&self) -> i32 {
        self.ring.as_raw_fd()
    }

    /// Makes a request that does nothing and waits for its end, on the calling thread.
    ///
    /// # Errors
    /// The system's.
    pub fn try_out(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.has_begun = true;
        // SAFETY: it refers to no memory.
        unsafe { self.push(&opcode::Nop::new().build())? };
        self.wait(Duration::ZERO)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Its thread would keep it to its own end.
        if let Some(number) = self.registered {
            let mut it = Registration { number, reserved: 0, descriptor: 0 };
            self.change_registration(UNREGISTER_RING_FDS, &mut it);
        }
    }
}
