//! A library that a server is started with (LD_PRELOAD): the system calls of midi's sockets do less
//! than they were asked to, as a kernel may.
//!
//! * A call that receives or sends moves some of the bytes, is interrupted (EINTR), or finds
//!   nothing (EAGAIN).
//! * Accepting a connection is interrupted, finds nothing, or finds that it is gone (ECONNABORTED).
//! * A wait is interrupted, or reports only some of the events.
//!
//! midi makes these calls without libc, so a filter (seccomp) has the kernel raise SIGSYS instead
//! of running them, and the signal's handler runs them. It knows midi's sockets by the way in which
//! they are registered with epoll: edge-triggered, or for one waiter alone. The host's are not.
//!
//! A kernel that moves some of the bytes because no more are there, or that finds nothing, reports
//! an edge when that changes. So after such a call the socket is registered again, which makes
//! epoll report what is there. An interrupted call has found out nothing: no edge follows.
//!
//! The environment says what it does:
//!
//! * `SOCKETS_SEED`: the number of the sequence from which all of this is drawn.
//! * `SOCKETS_COUNTS`: a file of at least 32 bytes, where four numbers count what was received in
//!   part, what was sent in part, what was interrupted, and what found nothing.
//!
//! Only on x86-64. Elsewhere it does nothing.

#![cfg(target_arch = "x86_64")]

use std::ffi::{c_int, c_long, c_void};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, epoll_event};

/// Descriptors from this one on are left alone.
const DESCRIPTORS: usize = 1 << 17;

/// The most pieces of one message; longer ones are left alone.
const PIECES: usize = 64;

/// The sixth argument of calls that the filter lets pass: the handler's own. None of them uses it.
const PASS: c_long = 0x6d69_6469;

/// How a descriptor is registered.
struct Registered {
    /// With which epoll instance; 0 if with none.
    epoll: AtomicI32,
    events: AtomicU32,
    mark: AtomicU64,
}

/// By descriptor. An epoll instance itself counts as registered if it has such sockets.
static REGISTERED: [Registered; DESCRIPTORS] = [const {
    Registered { epoll: AtomicI32::new(0), events: AtomicU32::new(0), mark: AtomicU64::new(0) }
}; DESCRIPTORS];

/// What was done, as the file shows it.
static COUNTS: OnceLock<&'static [AtomicU64; 4]> = OnceLock::new();

/// The state of the sequence.
static DRAWN: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
enum Count {
    Received,
    Sent,
    Interrupted,
    Nothing,
}

impl Count {
    fn add(self) {
        if let Some(counts) = COUNTS.get() {
            counts[self as usize].fetch_add(1, Relaxed);
        }
    }
}

/// What becomes of a call.
enum Fate {
    /// It is made as it is.
    Whole,
    Interrupted,
    Nothing,
    /// It gets no more than this.
    Part(usize),
}

impl Fate {
    /// Of a call that asks for so much.
    fn draw(most: usize) -> Fate {
        match below(8) {
            0 => Fate::Interrupted,
            1 => Fate::Nothing,
            // Lengths of all orders of magnitude.
            2..5 if most > 1 => Fate::Part((1 + below(1 << below(18))).min(most - 1)),
            _ => Fate::Whole,
        }
    }
}

/// The next number of the sequence (SplitMix64), below `limit`.
fn below(limit: usize) -> usize {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = DRAWN.fetch_add(STEP, Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % limit as u64) as usize
}

/// Runs before the program's main().
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let file = std::env::var_os("SOCKETS_COUNTS")
        .and_then(|path| File::options().read(true).write(true).open(path).ok());
    let Some(counts) = file.and_then(|file| mapped(&file)) else { return };
    let _ = COUNTS.set(counts);
    let seed = std::env::var("SOCKETS_SEED").ok().and_then(|text| text.parse().ok());
    DRAWN.store(seed.unwrap_or(0), Relaxed);
    filter_calls();
}

/// The numbers in the file, which others see.
fn mapped(file: &File) -> Option<&'static [AtomicU64; 4]> {
    // SAFETY: new memory, which is never unmapped; a page is aligned for the numbers. The file has
    // them: writing beyond its end would end the process.
    unsafe {
        let (size, rights) = (size_of::<[AtomicU64; 4]>(), libc::PROT_READ | libc::PROT_WRITE);
        let fd = file.as_raw_fd();
        let at = libc::mmap(std::ptr::null_mut(), size, rights, libc::MAP_SHARED, fd, 0);
        (at != libc::MAP_FAILED).then(|| &*at.cast::<[AtomicU64; 4]>())
    }
}

/// Has the kernel raise SIGSYS for the calls of midi's sockets, in all threads to come.
fn filter_calls() {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};
    let load = |at| sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: at };
    let result = |k| sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k };
    let equal = |k, jt, jf| sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt, jf, k };
    // In struct seccomp_data: the call's number, and the lower halves of two arguments.
    let (number, fifth, sixth) = (0, 48, 56);
    let [recvfrom, sendto, pwait, pwait2, sendmsg, accept4, ctl] = [
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_sendmsg,
        libc::SYS_accept4,
        libc::SYS_epoll_ctl,
    ]
    .map(|call| call as u32);
    let mut program = [
        load(number),
        equal(recvfrom, 7, 0),
        equal(sendto, 6, 0),
        equal(pwait, 5, 0),
        equal(pwait2, 4, 0),
        equal(sendmsg, 5, 0),
        equal(accept4, 4, 0),
        equal(ctl, 3, 0),
        result(libc::SECCOMP_RET_ALLOW),
        // With an address, or a mask of signals, the sixth argument is used.
        load(fifth),
        equal(0, 0, 3),
        load(sixth),
        equal(PASS as u32, 1, 0),
        result(libc::SECCOMP_RET_TRAP),
        result(libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the structures live as long as the calls, and the handler is one of three arguments.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        let handled = libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let filter = libc::SECCOMP_SET_MODE_FILTER;
        if handled != 0 || libc::syscall(libc::SYS_seccomp, filter, 0, &program) != 0 {
            eprintln!("midi-test-sockets: no filter: {}", std::io::Error::last_os_error());
            libc::abort();
        }
    }
}

/// Makes the call that the filter has stopped, and returns to behind it.
extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    use libc::{REG_R8, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RSI};
    // SAFETY: the kernel gives a handler that asks for it its thread's context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let of = |register: c_int| registers[register as usize];
    let args = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8].map(of);
    registers[REG_RAX as usize] = Call { number: of(REG_RAX), args }.make();
}

/// A system call.
struct Call {
    number: c_long,
    args: [c_long; 5],
}

impl Call {
    /// Makes it, or less than it. Returns what the kernel would: a result, or an error below 0.
    fn make(mut self) -> c_long {
        let descriptor = self.args[0];
        match self.number {
            libc::SYS_epoll_ctl => self.register(),
            _ if registered(descriptor).is_none() => self.pass(),
            libc::SYS_accept4 => match below(6) {
                0 => failed(libc::EINTR),
                1 => failed(libc::EAGAIN),
                2 => failed(libc::ECONNABORTED),
                _ => self.pass(),
            },
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => match below(6) {
                0 => failed(libc::EINTR),
                1 => {
                    self.args[2] = 1;
                    self.pass()
                }
                _ => self.pass(),
            },
            libc::SYS_recvfrom => self.move_bytes(Count::Received),
            libc::SYS_sendto => self.move_bytes(Count::Sent),
            _ => self.send_pieces(),
        }
    }

    /// Makes it as it is.
    fn pass(&self) -> c_long {
        let [a, b, c, d, e] = self.args;
        // SAFETY: it is what the program has asked for. errno is the program's own.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            let result = libc::syscall(self.number, a, b, c, d, e, PASS);
            let result = if result == -1 { failed(*errno) } else { result };
            *errno = before;
            result
        }
    }

    /// epoll_ctl(): notes how midi's sockets are registered.
    fn register(&self) -> c_long {
        let [epoll, operation, descriptor, event, _] = self.args;
        let result = self.pass();
        let Some(place) = REGISTERED.get(descriptor as usize).filter(|_| result == 0) else {
            return result;
        };
        match operation as c_int {
            EPOLL_CTL_ADD => {
                // SAFETY: the kernel has just read it.
                let event = unsafe { (event as *const epoll_event).read_unaligned() };
                if event.events & (EPOLLET | EPOLLEXCLUSIVE) as u32 != 0 {
                    place.events.store(event.events, Relaxed);
                    place.mark.store(event.u64, Relaxed);
                    place.epoll.store(epoll as i32, Relaxed);
                    REGISTERED[epoll as usize].epoll.store(-1, Relaxed);
                }
            }
            EPOLL_CTL_DEL => place.epoll.store(0, Relaxed),
            _ => {}
        }
        result
    }

    /// recv() or send().
    fn move_bytes(mut self, part: Count) -> c_long {
        self.suffer(self.args[2] as usize, part, |call, most| {
            call.args[2] = most as c_long;
            call.pass()
        })
    }

    /// sendmsg().
    fn send_pieces(mut self) -> c_long {
        // SAFETY: the program's own message, which it waits for.
        let mut message = unsafe { (self.args[1] as *const libc::msghdr).read() };
        if message.msg_iovlen > PIECES {
            return self.pass();
        }
        // SAFETY: as many pieces as it says.
        let all = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
        self.suffer(all.iter().map(|piece| piece.iov_len).sum(), Count::Sent, |call, mut most| {
            for (piece, whole) in pieces.iter_mut().zip(all) {
                let iov_len = whole.iov_len.min(most);
                *piece = libc::iovec { iov_len, ..*whole };
                most -= iov_len;
            }
            message.msg_iov = pieces.as_mut_ptr();
            call.args[1] = &raw const message as c_long;
            call.pass()
        })
    }

    /// Has a call that asks for `most` bytes made with `make`, or not.
    fn suffer(
        &mut self,
        most: usize,
        part: Count,
        make: impl FnOnce(&mut Self, usize) -> c_long,
    ) -> c_long {
        match Fate::draw(most) {
            Fate::Whole => make(self, most),
            Fate::Interrupted => {
                Count::Interrupted.add();
                failed(libc::EINTR)
            }
            Fate::Nothing => {
                Count::Nothing.add();
                renew(self.args[0]);
                failed(libc::EAGAIN)
            }
            Fate::Part(most) => {
                part.add();
                let moved = make(self, most);
                renew(self.args[0]);
                moved
            }
        }
    }
}

/// The kernel's result of a call that has failed.
fn failed(error: c_int) -> c_long {
    -c_long::from(error)
}

/// How this descriptor is registered, if it is midi's.
fn registered(descriptor: c_long) -> Option<&'static Registered> {
    let place = REGISTERED.get(descriptor as usize);
    place.filter(|place| place.epoll.load(Relaxed) != 0)
}

/// Has epoll report what there is on a socket, as if it had come just now.
fn renew(descriptor: c_long) {
    let Some(place) = registered(descriptor) else { return };
    let mut event =
        epoll_event { events: place.events.load(Relaxed), u64: place.mark.load(Relaxed) };
    let (epoll, event) = (place.epoll.load(Relaxed).into(), &raw mut event as c_long);
    let args = [epoll, EPOLL_CTL_MOD.into(), descriptor, event, 0];
    Call { number: libc::SYS_epoll_ctl, args }.pass();
}
