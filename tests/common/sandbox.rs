//! What Debian's and Ubuntu's units of Redis and Valkey do to a server that calls the kernel as it
//! may not: it is killed. They have `SystemCallFilter=@system-service`, without `@privileged` and
//! `@resources`.

use std::io::{Error, Result};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Calls that systemd 252 leaves out of what it allows such a unit, as far as a module may want
/// them.
const FORBIDDEN: [libc::c_long; 21] = [
    libc::SYS_bpf,
    libc::SYS_fanotify_init,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_ioprio_set,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_mincore,
    libc::SYS_move_pages,
    libc::SYS_perf_event_open,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_mprotect,
    libc::SYS_ptrace,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_seccomp,
    libc::SYS_set_mempolicy,
    libc::SYS_setpriority,
    libc::SYS_setrlimit,
];

/// Has the command run in such a unit.
pub fn enter(command: &mut Command) {
    let program = filter();
    // SAFETY: two calls of the kernel, with memory that was made before the fork.
    unsafe {
        command.pre_exec(move || install(&program));
    }
}

fn instruction(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k: value }
}

/// A program of the kernel's packet filter, which sees the number of each call.
fn filter() -> Vec<libc::sock_filter> {
    let load_number = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    let answer = |value| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let tests = FORBIDDEN.iter().enumerate().map(|(behind, &number)| {
        // Over the tests behind this one, and over the answer that allows.
        instruction(equals, behind as u8 + 1, 0, number as u32)
    });
    let mut program = vec![answer(libc::SECCOMP_RET_KILL_PROCESS), answer(libc::SECCOMP_RET_ALLOW)];
    program.extend(tests);
    program.push(load_number);
    program.reverse();
    program
}

fn install(program: &[libc::sock_filter]) -> Result<()> {
    let filter =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: a filter with its length; the kernel copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if done { Ok(()) } else { Err(Error::last_os_error()) }
}
