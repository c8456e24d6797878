//! INCREX, after Redis 8.8: adds to a number within bounds, and sets when it expires.

use std::cmp::Ordering;

use super::extended::{Extended, Finite};
use super::string::{EXPIRY, ExpiryOption};
use super::{
    Access, Action, ArgKind, Args, Command, Docs, Error, Event, Flags, IncrexNumber, Keys, OneKey,
    ReadsKey, Reply, Run, arg, parse_integer, word,
};
use crate::store::{Origin, Value};

pub(super) static INCREX: Command = Command {
    name: "increx",
    arity: -2,
    keys: Keys::One(Access::ReadOverwrite),
    // SET with GET and an expiry can do the same.
    twins: &["increx", "set"],
    docs: Docs {
        summary: "Adds a number to the value of a key, within bounds if wanted, and optionally \
                  changes its expiry; 0 if there is no key.",
        complexity: "O(1)",
        args: &[
            arg("key", ArgKind::Key),
            arg(
                "increment",
                ArgKind::OneOf(&[
                    arg("increment", ArgKind::Double).token("BYFLOAT"),
                    arg("increment", ArgKind::Integer).token("BYINT"),
                ]),
            )
            .optional(),
            arg("lowerbound", ArgKind::Double).token("LBOUND").optional(),
            arg("upperbound", ArgKind::Double).token("UBOUND").optional(),
            word("saturate", "SATURATE").optional(),
            arg(
                "expiration",
                ArgKind::OneOf(&[
                    EXPIRY[0],
                    EXPIRY[1],
                    EXPIRY[2],
                    EXPIRY[3],
                    word("persist", "PERSIST"),
                ]),
            )
            .optional(),
            word("enx", "ENX").optional(),
        ],
    },
    action: Action::OneKey(Run::Edit(increx)),
    ..Command::on_strings(Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE })
};

fn increx(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let options = Options::parse(&cx.args)?;
    match options.float {
        Some(at) => run::<Finite>(cx, reply, &options, Some(at)),
        None => run::<i64>(cx, reply, &options, options.integer),
    }
}

/// The options: for those with a number, the index of that number.
#[derive(Default)]
struct Options {
    float: Option<usize>,
    integer: Option<usize>,
    lower: Option<usize>,
    upper: Option<usize>,
    saturate: bool,
    expiry: Option<ExpiryOption>,
    persist: bool,
    /// The expiry is for a key that has none.
    if_none: bool,
}

impl Options {
    /// Each option may be given once.
    fn parse(args: &Args<'_>) -> Result<Self, Error> {
        let mut options = Options::default();
        let mut at = 2;
        while at < args.len() {
            at += options.take(args, at)?;
        }
        match () {
            _ if options.persist && options.if_none => Err(Error::Syntax),
            _ if options.if_none && options.expiry.is_none() => Err(Error::EnxWithoutExpiry),
            _ => Ok(options),
        }
    }

    /// Takes the option at argument `at`; returns how many arguments it has.
    fn take(&mut self, args: &Args<'_>, at: usize) -> Result<usize, Error> {
        let by_number = self.float.is_some() || self.integer.is_some();
        let (taken, with) = match () {
            _ if args.is(at, "byfloat") => (by_number, &mut self.float),
            _ if args.is(at, "byint") => (by_number, &mut self.integer),
            _ if args.is(at, "lbound") => (self.lower.is_some(), &mut self.lower),
            _ if args.is(at, "ubound") => (self.upper.is_some(), &mut self.upper),
            _ => return self.take_other(args, at),
        };
        if taken || at + 1 == args.len() {
            return Err(Error::Syntax);
        }
        *with = Some(at + 1);
        Ok(2)
    }

    fn take_other(&mut self, args: &Args<'_>, at: usize) -> Result<usize, Error> {
        let has_expiry = self.persist || self.expiry.is_some();
        let (taken, flag) = match () {
            _ if args.is(at, "saturate") => (self.saturate, &mut self.saturate),
            _ if args.is(at, "persist") => (has_expiry, &mut self.persist),
            _ if args.is(at, "enx") => (self.if_none, &mut self.if_none),
            _ => {
                self.expiry = Some(ExpiryOption::parse(args, at, None, has_expiry)?);
                return Ok(2);
            }
        };
        *flag = true;
        if taken { Err(Error::Syntax) } else { Ok(1) }
    }
}

/// The numbers that INCREX adds: integers, or those of INCRBYFLOAT.
trait Addend: Copy + Ord {
    const ZERO: Self;
    const ONE: Self;
    const LEAST: Self;
    const MOST: Self;

    /// The number of an option, `which`, in these words.
    fn read(text: &[u8], which: IncrexNumber) -> Result<Self, Error>;
    /// The value that a key holds.
    fn read_value(text: &[u8]) -> Result<Self, Error>;
    /// The sum, if there is such a number.
    fn plus(self, other: Self) -> Option<Self>;
    /// The difference, if there is such a number.
    fn minus(self, other: Self) -> Option<Self>;
    /// Sets the key to this value and keeps its expiry.
    fn store(self, cx: &mut OneKey<'_>) -> Result<(), Error>;
    fn write(self, reply: &mut dyn Reply);
}

impl Addend for i64 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    const LEAST: Self = i64::MIN;
    const MOST: Self = i64::MAX;

    fn read(text: &[u8], which: IncrexNumber) -> Result<Self, Error> {
        parse_integer(text).ok_or(Error::IncrexNotAnInteger(which))
    }

    fn read_value(text: &[u8]) -> Result<Self, Error> {
        parse_integer(text).ok_or(Error::NotAnInteger)
    }

    fn plus(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    fn minus(self, other: Self) -> Option<Self> {
        self.checked_sub(other)
    }

    fn store(self, cx: &mut OneKey<'_>) -> Result<(), Error> {
        cx.replace(Value::Inline(itoa::Buffer::new().format(self).as_bytes()))?;
        cx.tell(Event::INCRBY);
        Ok(())
    }

    fn write(self, reply: &mut dyn Reply) {
        reply.integer(self);
    }
}

impl Addend for Finite {
    const ZERO: Self = Finite::ZERO;
    const ONE: Self = Finite::ONE;
    const LEAST: Self = Finite::LARGEST.negated();
    const MOST: Self = Finite::LARGEST;

    /// A bound may be infinite: then there is none on that side.
    fn read(text: &[u8], which: IncrexNumber) -> Result<Self, Error> {
        let negative = text.starts_with(b"-");
        match (Extended::parse(text), which) {
            (Some(Extended::Finite(number)), _) => Ok(number),
            (None, _) => Err(Error::IncrexNotAFloat(which)),
            (Some(Extended::Infinite), IncrexNumber::Increment) => Err(Error::InfiniteIncrement),
            (Some(Extended::Infinite), IncrexNumber::Lower) if negative => Ok(Self::LEAST),
            (Some(Extended::Infinite), IncrexNumber::Upper) if !negative => Ok(Self::MOST),
            (Some(Extended::Infinite), _) => Err(Error::BoundsCross),
        }
    }

    fn read_value(text: &[u8]) -> Result<Self, Error> {
        match Extended::parse(text).ok_or(Error::NotAFloat)? {
            Extended::Finite(number) => Ok(number),
            Extended::Infinite => Err(Error::InfiniteValue),
        }
    }

    fn plus(self, other: Self) -> Option<Self> {
        Finite::plus(self, other)
    }

    fn minus(self, other: Self) -> Option<Self> {
        Finite::plus(self, other.negated())
    }

    fn store(self, cx: &mut OneKey<'_>) -> Result<(), Error> {
        cx.replace(Value::Inline(self.text().as_bytes()))?;
        cx.key.set_origin(Origin::Computed);
        cx.tell(Event::INCRBYFLOAT);
        Ok(())
    }

    fn write(self, reply: &mut dyn Reply) {
        reply.double(&self.text());
    }
}

/// The fate of the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Stays,
    Goes,
    At(i64),
}

fn run<N: Addend>(
    cx: &mut OneKey<'_>,
    reply: &mut dyn Reply,
    options: &Options,
    increment: Option<usize>,
) -> Result<(), Error> {
    let args = cx.args;
    let number =
        |at: Option<usize>, usual, which| at.map_or(Ok(usual), |at| N::read(args.get(at), which));
    let by = number(increment, N::ONE, IncrexNumber::Increment)?;
    let least = number(options.lower, N::LEAST, IncrexNumber::Lower)?;
    let most = number(options.upper, N::MOST, IncrexNumber::Upper)?;
    if least > most {
        return Err(Error::BoundsCross);
    }
    let expire_at = options.expiry.map(|expiry| expiry.at(&args, cx.now())).transpose()?;
    let before = cx.string()?.map_or(Ok(N::ZERO), |value| N::read_value(value.bytes()))?;
    let after = match (before.plus(by), options.saturate) {
        (Some(sum), _) if (least..=most).contains(&sum) => sum,
        (_, false) => {
            // Out of bounds: nothing is done.
            answer(reply, before, N::ZERO);
            return Ok(());
        }
        (Some(sum), true) => sum.clamp(least, most),
        (None, true) if by.cmp(&N::ZERO) == Ordering::Less => least,
        (None, true) => most,
    };
    let added = after.minus(before).ok_or(Error::AppliedOverflow)?;
    let has_expiry = cx.key.expiry().is_some();
    let expiry = match expire_at {
        _ if options.persist && has_expiry => Expiry::Goes,
        Some(at) if !(options.if_none && has_expiry) => Expiry::At(at),
        _ => Expiry::Stays,
    };
    store(cx, after, expiry)?;
    answer(reply, after, added);
    Ok(())
}

fn answer<N: Addend>(reply: &mut dyn Reply, value: N, added: N) {
    reply.array(2);
    value.write(reply);
    added.write(reply);
}

/// Sets the value and the expiry. A key that would expire at once is deleted, without a word of the
/// new value.
fn store<N: Addend>(cx: &mut OneKey<'_>, value: N, expiry: Expiry) -> Result<(), Error> {
    match expiry {
        Expiry::At(at) if cx.now().deletes(at) => {
            cx.delete();
            return Ok(());
        }
        _ => value.store(cx)?,
    }
    match expiry {
        Expiry::Stays => {}
        Expiry::Goes => {
            cx.key.expire_at(None);
            cx.tell(Event::PERSIST);
        }
        Expiry::At(at) => {
            cx.key.expire_at(Some(at));
            cx.tell(Event::EXPIRE);
        }
    }
    Ok(())
}
