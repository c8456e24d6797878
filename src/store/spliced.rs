//! Bytes with large values between them, which are referred to and not copied.

use std::ops::Range;

use super::SharedValue;

/// Bytes, and large values between them.
#[derive(Default)]
pub struct Spliced {
    /// All but the values.
    pub own: Vec<u8>,
    /// The values, each with its place in `own`, in ascending order.
    values: Vec<(usize, SharedValue)>,
    /// The bytes of these.
    value_bytes: usize,
}

/// A piece of it.
#[derive(Clone, Copy)]
pub enum Piece<'a> {
    /// Own bytes.
    Own(&'a [u8]),
    /// A large value.
    Value(&'a SharedValue),
}

impl<'a> Piece<'a> {
    /// The bytes, wherever they are.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Value(value) => value.bytes(),
        }
    }
}

impl Spliced {
    /// The length of all of it, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.own.len() + self.value_bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, each with its place in the own bytes.
    #[inline]
    pub fn values(&self) -> &[(usize, SharedValue)] {
        &self.values
    }

    /// Appends a large value.
    pub fn refer(&mut self, value: SharedValue) {
        self.value_bytes += value.bytes().len();
        self.values.push((self.own.len(), value));
    }

    /// Appends another one.
    #[inline]
    pub fn add(&mut self, other: &Spliced) {
        if !other.values.is_empty() {
            let before = self.own.len();
            let moved = other.values.iter().map(|(at, value)| (before + at, value.clone()));
            self.values.extend(moved);
            self.value_bytes += other.value_bytes;
        }
        self.own.extend_from_slice(&other.own);
    }

    /// Removes so many of its own bytes from this place of them on. No value stands among them.
    pub fn remove_own(&mut self, start: usize, len: usize) {
        self.own.drain(start..start + len);
        let behind = self.values.iter_mut().filter(|(at, _)| *at >= start + len);
        behind.for_each(|(at, _)| *at -= len);
    }

    /// Drops everything from this place of its own bytes on.
    pub fn truncate(&mut self, end: usize) {
        self.own.truncate(end);
        while let Some((_, value)) = self.values.pop_if(|(at, _)| *at >= end) {
            self.value_bytes -= value.bytes().len();
        }
    }

    /// Lets go of its values.
    #[inline]
    pub fn forget_values(&mut self) {
        if !self.values.is_empty() {
            self.values = Vec::new();
            self.value_bytes = 0;
        }
    }

    /// Makes it empty, and keeps memory for so many own bytes at most.
    #[inline]
    pub fn clear(&mut self, kept: usize) {
        if self.own.capacity() > kept {
            self.own = Vec::new();
        }
        self.own.clear();
        self.forget_values();
    }

    /// All of it, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.pieces_with(&self.values, 0..self.own.len())
    }

    /// What is between two places of its own bytes. No value stands at either of them.
    pub fn pieces_between(&self, own: Range<usize>) -> impl Iterator<Item = Piece<'_>> {
        let first = self.values.partition_point(|(at, _)| *at < own.start);
        let behind = self.values.partition_point(|(at, _)| *at < own.end);
        self.pieces_with(&self.values[first..behind], own)
    }

    fn pieces_with<'a>(
        &'a self,
        values: &'a [(usize, SharedValue)],
        own: Range<usize>,
    ) -> impl Iterator<Item = Piece<'a>> {
        let last = values.last().map_or(own.start, |(at, _)| *at);
        let mut from = own.start;
        let before = values.iter().flat_map(move |(at, value)| {
            let bytes = &self.own[std::mem::replace(&mut from, *at)..*at];
            [Piece::Own(bytes), Piece::Value(value)]
        });
        before.chain([Piece::Own(&self.own[last..own.end])])
    }
}

impl From<Vec<u8>> for Spliced {
    fn from(own: Vec<u8>) -> Self {
        Spliced { own, ..Spliced::default() }
    }
}
