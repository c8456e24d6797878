//! The arguments of `loadmodule`.

use std::sync::atomic::Ordering;

use super::table::{BYTES, NUMBERS, Number, SAFEMODE, SWITCHES, TEXTS, split_unit};
use crate::command::parse_integer;

/// Reads `SAFEMODE`, or names and values as in the configuration file, with or without `midi.` in
/// front.
///
/// # Errors
/// The fault in them.
pub fn read(args: &[&[u8]]) -> Result<(), String> {
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let word = String::from_utf8_lossy(arg).to_ascii_lowercase();
        let name = word.strip_prefix("midi.").unwrap_or(&word);
        let switch =
            |next: &&&[u8]| next.eq_ignore_ascii_case(b"yes") || next.eq_ignore_ascii_case(b"no");
        if word == SAFEMODE.name && !args.peek().is_some_and(switch) {
            SAFEMODE.value.store(true, Ordering::Relaxed);
            continue;
        }
        let mut value = || {
            let value = args.next().ok_or(format!("load argument {name} needs a value"))?;
            Ok::<_, String>(String::from_utf8_lossy(value).into_owned())
        };
        read_argument(name, &mut value)?;
    }
    Ok(())
}

fn read_argument(
    name: &str,
    value: &mut dyn FnMut() -> Result<String, String>,
) -> Result<(), String> {
    if let Some(switch) = SWITCHES.iter().find(|switch| switch.name == name) {
        let chosen = one_of(name, &value()?, &switch.words)?;
        switch.value.store(chosen == 1, Ordering::Relaxed);
    } else if let Some(number) = NUMBERS.iter().find(|number| number.name == name) {
        number.value.store(parse_number(number, &value()?)?, Ordering::Relaxed);
    } else if let Some(text) = TEXTS.iter().find(|text| text.name == name) {
        let value = value()?;
        if !(text.valid)(&value) {
            return Err(format!("load argument {name} cannot be '{value}'"));
        }
        *text.value.lock() = value;
    } else {
        return Err(format!("unknown load argument '{name}'"));
    }
    Ok(())
}

fn one_of(name: &str, value: &str, allowed: &[&str]) -> Result<usize, String> {
    let value = value.to_ascii_lowercase();
    let found = allowed.iter().position(|&word| word == value);
    found.ok_or_else(|| {
        format!("load argument {name} must be one of {}, not '{value}'", allowed.join(", "))
    })
}

fn parse_number(number: &Number, value: &str) -> Result<i64, String> {
    let value = value.to_ascii_lowercase();
    let (digits, unit) = if number.flags & BYTES != 0 { split_unit(&value) } else { (&*value, 1) };
    parse_integer(digits.as_bytes())
        .and_then(|number| number.checked_mul(unit))
        .filter(|value| (number.min..=number.max).contains(value))
        .ok_or_else(|| {
            let Number { name, min, max, .. } = number;
            format!("load argument {name} must be between {min} and {max}, not '{value}'")
        })
}
