//! What the driver knows of a descriptor, and how requests and completions name it.

use std::ops::{Index, IndexMut};
use std::os::fd::RawFd;

use super::buffers::Chain;
use crate::net::transport::driver::Mark;

/// A descriptor that is watched, or was.
#[derive(Default)]
pub struct Endpoint {
    /// Its mark among the events.
    pub mark: Mark,
    /// The number of its requests; 0 if it is not watched. Completions of earlier requests, of a
    /// descriptor that had the same number, have another.
    pub generation: u32,
    /// What it is.
    pub role: Role,
    /// How its input comes.
    pub reading: Reading,
    /// How often the ring had submitted its requests when streaming was asked for.
    pub streams_since: u64,
    /// The worker wants certain bytes, which must not be received elsewhere.
    pub is_exact: bool,
    /// What has come and was not taken.
    pub received: Chain,
    /// What has become of bytes that were sent ahead.
    pub ahead: Option<Ahead>,
    /// What has happened and was not reported: bits of [`News`].
    pub news: u8,
}

impl Endpoint {
    /// Whether its request for input may not be submitted yet. `submissions` is how often the ring
    /// has submitted its requests so far.
    pub fn may_be_unsubmitted(&self, submissions: u64) -> bool {
        matches!(self.reading, Reading::Streaming | Reading::Stopping)
            && self.streams_since == submissions
    }
}

/// What is known of descriptors, by their numbers.
#[derive(Default)]
pub struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    /// The place of a descriptor, which there may be none of yet.
    pub fn place(&mut self, descriptor: RawFd) -> &mut Endpoint {
        let at = descriptor as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Endpoint::default);
        }
        &mut self.0[at]
    }

    /// Whether the descriptor is watched with requests of this number.
    #[inline]
    pub fn has(&self, descriptor: RawFd, generation: u32) -> bool {
        let endpoint = self.0.get(descriptor as usize);
        endpoint.is_some_and(|endpoint| endpoint.generation == generation)
    }

    /// Whether the descriptor is watched.
    pub fn has_any(&self, descriptor: RawFd) -> bool {
        self.0.get(descriptor as usize).is_some_and(|endpoint| endpoint.generation != 0)
    }

    /// A number above all of the descriptors.
    pub fn end(&self) -> RawFd {
        self.0.len() as RawFd
    }
}

impl Index<RawFd> for Endpoints {
    type Output = Endpoint;

    #[inline]
    fn index(&self, descriptor: RawFd) -> &Endpoint {
        &self.0[descriptor as usize]
    }
}

impl IndexMut<RawFd> for Endpoints {
    #[inline]
    fn index_mut(&mut self, descriptor: RawFd) -> &mut Endpoint {
        &mut self.0[descriptor as usize]
    }
}

/// What a descriptor is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A connection's socket.
    #[default]
    Connection,
    /// The epoll instance that has the listening sockets.
    Listeners,
    /// The worker's waker. It need not be read: every wake-up is an event.
    Waker,
    /// The timer that ends long waits.
    Ticker,
}

/// How the input of a descriptor comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Nobody waits for it: it may have some.
    #[default]
    Idle,
    /// The kernel receives it into buffers of the ring, again and again.
    Streaming,
    /// The same, but it was told to end that.
    Stopping,
    /// The kernel will say once that there is some.
    Polling,
}

/// What has become of bytes that were sent ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// So many have been sent.
    Sent(usize),
    /// The connection is broken.
    Broken,
}

/// Bits for what has happened.
pub struct News;

impl News {
    /// There may be input.
    pub const INPUT: u8 = 1;
    /// There may be room.
    pub const ROOM: u8 = 2;
    /// The peer sends no more, or the connection is broken.
    pub const ENDED: u8 = 4;
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// To hear of each change of a descriptor.
    Events,
    /// To receive into the ring's buffers.
    Stream,
    /// To hear once that there is input.
    Poll,
    /// To send.
    Send,
    /// To end another request.
    Cancel,
}

impl Purpose {
    const ALL: [Purpose; 5] =
        [Purpose::Events, Purpose::Stream, Purpose::Poll, Purpose::Send, Purpose::Cancel];
}

/// The bits of a generation.
const GENERATION_BITS: u32 = 29;

/// The generation after this one; never 0.
pub fn generation_after(generation: u32) -> u32 {
    generation % ((1 << GENERATION_BITS) - 1) + 1
}

/// The name of a request.
pub fn name(purpose: Purpose, generation: u32, descriptor: RawFd) -> u64 {
    (purpose as u64) << (32 + GENERATION_BITS)
        | u64::from(generation) << 32
        | u64::from(descriptor as u32)
}

/// What a name means.
pub fn named(name: u64) -> Option<(Purpose, u32, RawFd)> {
    let purpose = Purpose::ALL.get((name >> (32 + GENERATION_BITS)) as usize)?;
    let generation = (name >> 32) as u32 & ((1 << GENERATION_BITS) - 1);
    Some((*purpose, generation, name as u32 as RawFd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_they_name() {
        let last = (1 << GENERATION_BITS) - 1;
        for purpose in Purpose::ALL {
            for generation in [1, 77, last] {
                for descriptor in [0, 12, RawFd::MAX] {
                    let name = name(purpose, generation, descriptor);
                    assert_eq!(named(name), Some((purpose, generation, descriptor)));
                }
            }
        }
        assert_eq!(named(u64::MAX), None);
        assert_eq!((generation_after(0), generation_after(last - 1)), (1, last));
        assert_eq!(generation_after(last), 1);
    }
}
