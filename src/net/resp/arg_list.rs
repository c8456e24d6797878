//! The arguments of a command that has been parsed.

use super::gathered::GatheredCommand;
use super::plain::{ArgRange, HEAD, LINE_END, plain_arguments, plain_head, plain_line};
use crate::limits::ARGUMENTS_KEPT;

/// The arguments of a command; number 0 is its name. One list is reused for one command after
/// another, of any number of connections.
#[derive(Default)]
pub struct ArgList {
    /// The ranges of the command, followed by leftovers of earlier ones: overwriting is cheaper
    /// than pushing.
    pub(super) slots: Vec<ArgRange>,
    pub(super) len: usize,
    /// The arguments of an inline command, without quotes and backslashes.
    unquoted: Vec<u8>,
    is_inline: bool,
    /// The part of a command that has large arguments.
    pub(super) gathered: Option<Box<GatheredCommand>>,
}

impl ArgList {
    /// The number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges of the arguments in [`ArgList::source`].
    #[inline]
    pub fn ranges(&self) -> &[ArgRange] {
        &self.slots[..self.len]
    }

    /// The bytes that the ranges refer to: the input, or the list's own bytes for an inline
    /// command.
    #[inline]
    pub fn source<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        if self.is_inline { &self.unquoted } else { input }
    }

    /// The arguments; `input` is the parser's input.
    #[inline]
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let source = self.source(input);
        self.ranges().iter().enumerate().map(move |(number, range)| match &self.gathered {
            None => &source[range.start..range.end],
            Some(gathered) => gathered.argument(number, *range, input),
        })
    }

    /// Whether all its bytes are in the input.
    #[inline]
    pub fn is_simple(&self) -> bool {
        !self.is_inline && self.gathered.is_none()
    }

    /// The part of the command up to its last large argument, if it has one.
    #[inline]
    pub fn gathered(&self) -> Option<&GatheredCommand> {
        self.gathered.as_deref()
    }

    /// Forgets that part: it has run. To be called before another command is parsed.
    pub fn forget_gathered(&mut self) {
        self.gathered = None;
    }

    /// Adds an argument that `write` appends to the list's own bytes; returns the result of
    /// `write`.
    pub(super) fn own<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.unquoted.len();
        let result = write(&mut self.unquoted);
        self.push(ArgRange { start, end: self.unquoted.len() });
        self.is_inline = true;
        result
    }

    #[inline]
    pub(super) fn push(&mut self, range: ArgRange) {
        match self.slots.get_mut(self.len) {
            Some(slot) => *slot = range,
            None => self.slots.push(range),
        }
        self.len += 1;
    }

    pub(super) fn clear(&mut self) {
        if self.slots.len() > ARGUMENTS_KEPT {
            self.slots = Vec::new();
        }
        self.len = 0;
        self.unquoted.clear();
        self.is_inline = false;
        self.gathered = None;
    }

    /// Parses a plain command, the form of nearly all: complete, and without a number of more than
    /// four digits. Returns its length. `None` means that it may be in another form.
    #[inline]
    pub(super) fn take_plain(&mut self, input: &[u8]) -> Option<usize> {
        // A list that has grown too long must be cleared first.
        if self.slots.len() > ARGUMENTS_KEPT {
            return None;
        }
        let Some((count, name)) = plain_head(input) else { return self.take_long_head(input) };
        let (first, others) = self.slots.get_mut(..count)?.split_first_mut()?;
        *first = ArgRange { start: HEAD, end: HEAD + name };
        let consumed = plain_arguments(others, input, HEAD + name + LINE_END)?;
        self.len = count;
        self.is_inline = false;
        Some(consumed)
    }

    #[inline(never)]
    fn take_long_head(&mut self, input: &[u8]) -> Option<usize> {
        let (count, line) = plain_line(b'*', input).filter(|&(count, _)| count > 0)?;
        let consumed = plain_arguments(self.slots.get_mut(..count)?, input, line)?;
        self.len = count;
        self.is_inline = false;
        Some(consumed)
    }
}
