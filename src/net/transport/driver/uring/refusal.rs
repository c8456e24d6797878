//! Why there is no io_uring, in words.

use std::io;

/// Why a call of the system's means that there is no io_uring.
pub fn refusal(call: &str, error: &io::Error) -> String {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = disabled.as_deref().map_or("0", str::trim);
    why(call, error, disabled)
}

fn why(call: &str, error: &io::Error, disabled: &str) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) if disabled != "0" => {
            format!("kernel.io_uring_disabled is {disabled}")
        }
        Some(libc::EPERM | libc::EACCES) => {
            format!("{call} is forbidden, as by a seccomp filter ({error})")
        }
        Some(libc::ENOSYS) => format!("this system has no io_uring, or hides it ({error})"),
        Some(libc::EINVAL) => format!("the kernel is older than Linux 6.1 ({call}: {error})"),
        _ => format!("{call}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_in_words() {
        let error = io::Error::from_raw_os_error;
        assert_eq!(
            why("io_uring_setup", &error(libc::EPERM), "2"),
            "kernel.io_uring_disabled is 2"
        );
        let forbidden = why("io_uring_enter", &error(libc::EPERM), "0");
        assert!(forbidden.starts_with("io_uring_enter is forbidden, as by a"), "{forbidden}");
        let old = why("io_uring_setup", &error(libc::EINVAL), "0");
        assert!(old.starts_with("the kernel is older than Linux 6.1"), "{old}");
        let none = why("io_uring_setup", &error(libc::ENOSYS), "0");
        assert!(none.starts_with("this system has no io_uring"), "{none}");
    }
}
