//! Fields that a call lists behind the word FIELDS, and when they are to expire.

use std::ops::Range;

use super::FIELD;
use crate::command::{Arg, ArgKind, Args, Error, OneKey, ReadsKey, arg, parse_integer};
use crate::limits::FIELD_EXPIRY_MAX_MS;
use crate::store::UnixMs;

pub(super) const NUMFIELDS: Arg = arg("numfields", ArgKind::Integer);

pub(super) const FIELDS: Arg =
    arg("fields", ArgKind::Block(&[NUMFIELDS, FIELD.multiple()])).token("FIELDS");

/// The names behind FIELDS, which is argument 2 and whose fields are the last arguments.
pub(super) fn listed_at_end<'a>(args: &Args<'a>) -> Result<&'a [&'a [u8]], Error> {
    if !args.is(2, "fields") {
        return Err(Error::NoFieldsWord);
    }
    let count = parse_integer(args.get(3)).filter(|&count| count > 0);
    if count.ok_or(Error::BadNumberOfFields)? != args.len() as i64 - 4 {
        return Err(Error::NumberOfFieldsDiffers);
    }
    Ok(args.from(4))
}

/// The arguments that belong to FIELDS at `at`, which options may follow: `each` for a field.
///
/// # Errors
/// `not_a_number` if their number is none; [`Error::TooFewFields`].
pub(super) fn listed(
    args: &Args<'_>,
    at: usize,
    each: usize,
    not_a_number: Error,
) -> Result<Range<usize>, Error> {
    let count =
        parse_integer(args.get(at + 1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or(not_a_number)? as usize;
    let first = at + 2;
    if count * each > args.len().saturating_sub(first) {
        return Err(Error::TooFewFields);
    }
    Ok(first..first + count * each)
}

/// The unit of a time, and whether it counts from now on or from 1970.
#[derive(Clone, Copy)]
pub(super) struct TimeKind {
    pub(super) unit_ms: i64,
    pub(super) relative: bool,
}

impl TimeKind {
    /// Seconds from now on.
    pub(super) const EX: TimeKind = TimeKind { unit_ms: 1000, relative: true };
    /// Milliseconds from now on.
    pub(super) const PX: TimeKind = TimeKind { unit_ms: 1, relative: true };
    /// Seconds since 1970.
    pub(super) const EXAT: TimeKind = TimeKind { unit_ms: 1000, relative: false };
    /// Milliseconds since 1970.
    pub(super) const PXAT: TimeKind = TimeKind { unit_ms: 1, relative: false };

    /// That of the option at `at`, if it is one with a time.
    pub(super) fn of_option(args: &Args<'_>, at: usize) -> Option<Self> {
        match () {
            _ if args.is(at, "ex") => Some(TimeKind::EX),
            _ if args.is(at, "px") => Some(TimeKind::PX),
            _ if args.is(at, "exat") => Some(TimeKind::EXAT),
            _ if args.is(at, "pxat") => Some(TimeKind::PXAT),
            _ => None,
        }
    }

    /// The time that an argument means.
    pub(super) fn time(self, cx: &OneKey<'_>, argument: usize) -> Result<UnixMs, Error> {
        let number = cx.args.integer(argument)?;
        if number < 0 {
            return Err(Error::NegativeFieldExpiry);
        }
        let base = if self.relative { cx.now().ms() } else { 0 };
        let at = number.checked_mul(self.unit_ms).and_then(|ms| ms.checked_add(base));
        at.filter(|&at| at <= FIELD_EXPIRY_MAX_MS).ok_or(Error::InvalidExpireTime)
    }
}
