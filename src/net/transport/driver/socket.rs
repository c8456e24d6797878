//! Receiving and sending by a system call for each socket.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use arrayvec::ArrayVec;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::{Received, Sent};
use crate::limits::SENT_TOGETHER;

/// Receives at most `most` bytes into the free capacity of `into`, after what it holds.
#[inline]
pub fn receive(socket: &OwnedFd, into: &mut Vec<u8>, most: usize) -> Received {
    let room = most.min(into.capacity() - into.len());
    let place = &mut into.spare_capacity_mut()[..room];
    let received = rustix::net::recv(socket, place, RecvFlags::empty());
    match received.map(|(_, bytes)| room.min(bytes)) {
        Ok(0) => Received::End,
        Ok(some) => {
            // SAFETY: the system has written so many bytes behind those that were there, and they
            // fit in the capacity.
            unsafe { into.set_len(into.len() + some) };
            // Less than asked for means nothing is left; an event reports what comes later. Urgent
            // bytes are the exception: `Happened::urgent`.
            if some < room { Received::All(some) } else { Received::More(some) }
        }
        Err(Errno::AGAIN) => Received::All(0),
        Err(Errno::INTR) => Received::More(0),
        Err(_) => Received::End,
    }
}

/// Sends as many of these bytes as there is room for.
#[inline]
pub fn send(socket: &OwnedFd, bytes: &[u8]) -> Sent {
    sent(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
}

/// The same of pieces that follow each other.
pub fn send_pieces(socket: &OwnedFd, pieces: &[&[u8]]) -> Sent {
    let slices: ArrayVec<IoSlice<'_>, SENT_TOGETHER> =
        pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut nothing = SendAncillaryBuffer::default();
    sent(|| rustix::net::sendmsg(socket, &slices, &mut nothing, SendFlags::NOSIGNAL))
}

/// What has become of bytes that `send` sends. It is called again if it was interrupted: that says
/// nothing about the room, so no event need follow.
#[inline]
fn sent(send: impl FnMut() -> Result<usize, Errno>) -> Sent {
    match retry_on_intr(send) {
        Ok(sent) => Sent::Bytes(sent),
        Err(Errno::AGAIN) => Sent::Bytes(0),
        Err(_) => Sent::Broken,
    }
}
