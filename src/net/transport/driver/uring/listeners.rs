//! The epoll instance that watches the listening sockets.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};

use super::super::{EVENTS, Happened};

/// Reports the listeners where connections wait to be accepted.
pub fn report(listeners: &OwnedFd, happened: &mut Vec<Happened>) {
    let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Without an answer the ring reports them again.
    let waiting = epoll::wait(listeners, &mut events[..], Some(&none));
    happened.extend(waiting.iter().flat_map(|(events, _)| events.iter()).map(|event| {
        let mark = event.data.u64();
        Happened { mark, input: true, room: false, ended: false, urgent: false }
    }));
}
