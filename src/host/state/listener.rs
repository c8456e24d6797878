//! The connection by which midi hears the host's messages. For `listener`.

use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;

use midi_module_api as raw;
use parking_lot::Mutex;

use super::{Flag, part};
use crate::engine::Waker;

/// What the listener shows when it logs in: good for one login.
pub type ListenerToken = [u8; 32];

part! {
    /// The listener, and its login.
    pub struct Listening {
        /// Its descriptor to sleep on.
        pub waker: OnceLock<Waker> = OnceLock::new(),
        /// Its thread runs.
        pub runs: Flag = Flag::new(false),
        /// The token of the login that it tries.
        pub token: Mutex<Option<ListenerToken>> = Mutex::new(None),
        /// Its user at the host; null before the first login.
        pub user: AtomicPtr<raw::RedisModuleUser> = AtomicPtr::new(std::ptr::null_mut()),
    }
}
