//! System calls that a program may not make: it is started with a filter (seccomp), as programs in
//! a container are.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

/// Has the kernel refuse these calls to the program (EPERM).
pub fn forbid(command: &mut Command, calls: &[libc::c_long]) {
    let code = |bits: u32| bits as u16;
    let result = |k| sock_filter { code: code(BPF_RET | BPF_K), jt: 0, jf: 0, k };
    // The number of the call is the first field of the structure.
    let load = sock_filter { code: code(BPF_LD | BPF_W | BPF_ABS), jt: 0, jf: 0, k: 0 };
    let mut program = vec![load];
    for &call in calls {
        let jump = code(BPF_JMP | BPF_JEQ | BPF_K);
        program.push(sock_filter { code: jump, jt: 0, jf: 1, k: call as u32 });
        program.push(result(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    program.push(result(libc::SECCOMP_RET_ALLOW));
    let set = move || {
        let len = program.len() as u16;
        let filter = sock_fprog { len, filter: program.as_ptr().cast_mut() };
        // SAFETY: the program lives as long as the calls, which read it.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &filter) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    };
    // SAFETY: between fork and exec it makes two system calls.
    unsafe { command.pre_exec(set) };
}
