//! The beginning of a command that has large arguments, each received into a buffer of its own.

use smallvec::SmallVec;

use super::arg_list::ArgList;
use super::plain::{ArgRange, LINE_END};
use crate::command::Keep;
use crate::net::transport::{Announced, LargeInput};
use crate::store::SharedValue;

/// All of a command up to its last large argument so far.
#[derive(Default)]
pub struct GatheredCommand {
    /// Its bytes but for the large arguments.
    text: Vec<u8>,
    /// Its arguments so far, unless the parser has them; those that are not large are in `text`.
    args: Vec<ArgRange>,
    /// How many these are.
    count: usize,
    /// The large ones and their numbers, in ascending order: there may be very many.
    large: SmallVec<[(usize, SharedValue); 1]>,
    /// The bytes of these.
    large_bytes: usize,
    /// The last one, as long as it has not come as a whole.
    filling: Option<LargeInput>,
    /// How many arguments are to come behind it.
    arguments: usize,
    /// How many bytes came before the first large argument, ...
    head: usize,
    /// ... and between the last two; 0 if that is not known.
    between: usize,
    /// How many bytes of the large arguments were copied.
    copied: usize,
}

/// A large argument at the end of what has been parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeArgument {
    /// Where in the input it begins.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// How many arguments follow it.
    pub arguments: usize,
}

impl GatheredCommand {
    /// Adds the part of the command that `input` begins with, up to a large argument. `args` are
    /// all arguments before it. Returns how much of the input it has taken.
    pub fn add(
        &mut self,
        input: &[u8],
        args: &mut ArgList,
        large: LargeArgument,
        announced: &Announced,
    ) -> usize {
        let LargeArgument { start, len, arguments } = large;
        self.text.extend_from_slice(&input[..start]);
        if self.large.is_empty() {
            self.head = start;
            self.args.extend_from_slice(args.ranges());
        } else {
            self.between = start;
            self.take_args(args, args.len());
        }
        self.args.push(ArgRange { start: 0, end: 0 });
        (self.count, self.arguments) = (self.args.len(), arguments);
        self.filling = Some(LargeInput::new(len, announced));
        start + self.fill_from(&input[start..])
    }

    /// The command has not been run: takes the arguments back up to the last large one.
    pub fn put_back(&mut self, args: &mut ArgList) {
        self.take_args(args, self.count);
    }

    /// Takes the first `count` arguments out of a list. They are not copied for each large one.
    fn take_args(&mut self, args: &mut ArgList, count: usize) {
        std::mem::swap(&mut self.args, &mut args.slots);
        self.args.truncate(count);
        args.len = 0;
    }

    /// The large argument that has not come as a whole. One that has is an argument from now on.
    pub fn filling(&mut self) -> Option<&mut LargeInput> {
        if self.filling.as_ref().is_some_and(|large| large.missing() == 0)
            && let Some(large) = self.filling.take()
        {
            let (bytes, copied) = large.whole();
            self.large_bytes += bytes.len();
            self.copied += copied;
            self.large.push((self.count - 1, SharedValue::new(bytes)));
        }
        self.filling.as_mut()
    }

    /// Takes what it needs for that from the input; returns how much.
    pub fn fill_from(&mut self, input: &[u8]) -> usize {
        let taken = self.filling().map_or(0, |large| large.take_from(input));
        self.filling();
        taken
    }

    /// How many bytes of it are to come; 0 if there is no such argument.
    pub fn missing(&self) -> usize {
        self.filling.as_ref().map_or(0, LargeInput::missing)
    }

    /// Gives the parser the arguments so far; returns how many are to come.
    pub fn give_args(&mut self, found: &mut Vec<ArgRange>) -> usize {
        std::mem::swap(&mut self.args, found);
        self.arguments
    }

    /// Where in the text, as ranges of arguments name it, the rest of the input begins.
    pub fn base(&self) -> usize {
        self.text.len()
    }

    /// How many bytes came before the first large argument.
    pub fn head(&self) -> usize {
        self.head
    }

    /// How many bytes probably follow before the next one; `None` if that is not known.
    pub fn expected(&self) -> Option<usize> {
        match self.arguments {
            0 => Some(LINE_END + self.head),
            _ => Some(self.between).filter(|&bytes| bytes > 0),
        }
    }

    /// How many bytes have been received, and the memory that they take.
    pub fn bytes(&self) -> (usize, usize) {
        let filling = self.filling.as_ref();
        (
            self.text.len() + self.large_bytes + filling.map_or(0, LargeInput::received),
            self.text.capacity() + self.large_bytes + filling.map_or(0, LargeInput::capacity),
        )
    }

    /// How many large arguments there are, and how many of their bytes were copied.
    pub fn counts(&self) -> (u64, u64) {
        (self.large.len() as u64, self.copied as u64)
    }

    fn large_argument(&self, number: usize) -> Option<&SharedValue> {
        let found = self.large.binary_search_by_key(&number, |&(number, _)| number);
        found.ok().map(|at| &self.large[at].1)
    }

    /// The bytes of an argument; `input` is what follows the text.
    pub fn argument<'a>(&'a self, number: usize, range: ArgRange, input: &'a [u8]) -> &'a [u8] {
        let ArgRange { start, end } = range;
        match self.large_argument(number) {
            Some(value) => value.bytes(),
            None if end <= self.text.len() => &self.text[start..end],
            None => &input[start - self.text.len()..end - self.text.len()],
        }
    }
}

impl Keep for GatheredCommand {
    fn keep(&self, index: usize) -> Option<SharedValue> {
        self.large_argument(index).cloned()
    }
}
