//! The arguments of IMPORT and EXPORT, whose rows are in `all_keys.rs`.

use super::glob::Pattern;
use super::slot::{slot_arg, slot_of};
use super::{Args, Error, Limits, key_pattern};

/// The arguments of IMPORT and EXPORT.
pub struct ImportArgs {
    /// The pattern of the keys to copy.
    pub pattern: Pattern,
    /// The maximum number of keys to copy.
    pub count: u64,
    /// Whether existing keys are replaced.
    pub replace: bool,
    /// Whether a key that was copied is removed where it was.
    pub moves: bool,
    /// The slot of the keys to copy; `None` for any.
    pub slot: Option<u16>,
}

impl ImportArgs {
    /// Parses pattern, COUNT, REPLACE, MOVE and SLOT.
    pub fn parse(args: &Args<'_>, limits: &Limits) -> Result<Self, Error> {
        let mut parsed = ImportArgs {
            pattern: key_pattern(args.get(1), limits)?,
            count: u64::MAX,
            replace: false,
            moves: false,
            slot: None,
        };
        let mut at = 2;
        while at < args.len() {
            if args.is(at, "replace") {
                parsed.replace = true;
                at += 1;
            } else if args.is(at, "move") {
                parsed.moves = true;
                at += 1;
            } else if args.is(at, "slot") && at + 1 < args.len() {
                parsed.slot = Some(slot_arg(args, at + 1)?);
                at += 2;
            } else if args.is(at, "count") && at + 1 < args.len() {
                parsed.count = u64::try_from(args.integer(at + 1)?)
                    .ok()
                    .filter(|&n| n > 0)
                    .ok_or(Error::NotPositive)?;
                at += 2;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(parsed)
    }

    /// Whether a key of this name is to be copied.
    pub fn want(&self, key: &[u8]) -> bool {
        self.pattern.matches(key) && self.slot.is_none_or(|slot| slot_of(key) == slot)
    }
}
