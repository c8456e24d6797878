//! The form of a command, which the next one may have, too.

use super::arg_list::ArgList;
use super::plain::{HEAD, LINE_END, plain_head, plain_line};
use super::request::RequestLimits;

/// What a command of the form that nearly all have begins with: the lines of its count and its
/// name. Others that begin so are the same command with as many arguments.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: u128,
    mask: u128,
    len: usize,
    arguments: usize,
}

impl Head {
    /// The head of the command at the start of `input`, which was parsed into `args`. `None` if it
    /// is too long for one comparison, or not plain.
    pub fn of(input: &[u8], args: &ArgList, limits: &RequestLimits) -> Option<Head> {
        let name = args.ranges().first().filter(|_| args.is_simple() && limits.allow_plain())?;
        let len = name.end + LINE_END;
        let mask = u128::MAX >> (size_of::<u128>().checked_sub(len)? * 8);
        let (count, _) =
            plain_head(input).filter(|&head| head == (args.len(), name.end - name.start))?;
        Some(Head { bytes: leading(input)? & mask, mask, len, arguments: count - 1 })
    }

    /// Cuts another such command from the beginning of `input`: its name, then the arguments. Its
    /// length. `None` says nothing, except that what was given to `take` is to be forgotten.
    #[inline(always)]
    pub fn take<'i>(&self, input: &'i [u8], mut take: impl FnMut(&'i [u8])) -> Option<usize> {
        if leading(input)? & self.mask != self.bytes {
            return None;
        }
        take(&input[HEAD..self.len - LINE_END]);
        let mut rest = &input[self.len..];
        for _ in 0..self.arguments {
            let (length, line) = plain_line(b'$', rest)?;
            let (argument, others) = rest.split_at_checked(line + length + LINE_END)?;
            take(&argument[line..line + length]);
            rest = others;
        }
        Some(input.len() - rest.len())
    }
}

/// The first bytes, as one number.
#[inline(always)]
fn leading(input: &[u8]) -> Option<u128> {
    input.first_chunk().map(|bytes| u128::from_le_bytes(*bytes))
}
