//! What memcached's commands do where Redis's do otherwise, after memcached 1.6's protocol.txt.
//!
//! Only the memcached port calls these rows, with arguments that it has checked: so they have no
//! names of their own at other doors. They differ from their relatives in flags, in the numbers of
//! changes (CAS), and in numbers of 64 bits without a sign.

mod flags;
mod meta;
mod numbers;

pub use flags::{MetaCommand, MetaFlags};
pub use numbers::{signed_32, unsigned_32, unsigned_64};

use std::sync::atomic::{AtomicU64, Ordering};

use super::record::put_value;
use super::{
    Access, Action, Command, Docs, Doors, Error, Event, Flags, Keys, LooksUp, OneKey, ReadsKey,
    Reply, Run, docs,
};
use crate::store::{Edit, Now, Origin, Traits, UnixMs, Value};

/// An expiry up to this many seconds is one from now on, a longer one is a time since 1970.
const RELATIVE_SECONDS: i64 = 60 * 60 * 24 * 30;

/// The rows that only the memcached port has.
pub(super) const ROWS: [Command; 12] = [
    Command {
        arity: -2,
        keys: Keys::One(Access::Read),
        ..row(
            "mc-gets",
            docs("Returns a value, its flags and the number of its last change."),
            gets,
            Flags { readonly: true, fast: true, ..Flags::NONE },
        )
    },
    Command {
        arity: -3,
        keys: Keys::One(Access::ReadOverwrite),
        looks_up: LooksUp::First,
        ..row(
            "mc-gat",
            docs("Returns a value and sets when it expires."),
            get_and_touch,
            Flags { write: true, fast: true, ..Flags::NONE },
        )
    },
    Command {
        arity: -6,
        keys: Keys::One(Access::Overwrite),
        ..row(
            "mc-store",
            docs("Stores an item, on conditions."),
            store,
            Flags { write: true, deny_oom: true, ..Flags::NONE },
        )
    },
    Command {
        arity: 4,
        keys: Keys::One(Access::Overwrite),
        ..row(
            "mc-count",
            docs("Counts an item up or down."),
            count,
            Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE },
        )
    },
    Command {
        arity: 3,
        keys: Keys::One(Access::Overwrite),
        ..row(
            "mc-touch",
            docs("Sets when an item expires."),
            touch,
            Flags { write: true, fast: true, ..Flags::NONE },
        )
    },
    meta::GET,
    meta::RENEW,
    meta::VIVIFY,
    meta::SET,
    meta::DELETE,
    meta::COUNT,
    meta::DEBUG,
];

const fn row(
    name: &'static str,
    docs: Docs,
    action: fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>,
    flags: Flags,
) -> Command {
    Command {
        name,
        doors: Doors::Memcached,
        docs,
        action: Action::OneKey(Run::Edit(action)),
        ..Command::on_strings(flags)
    }
}

/// When something expires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemExpiry {
    Never,
    At(UnixMs),
    /// It has expired.
    Passed,
}

impl ItemExpiry {
    /// As memcached understands a number of seconds.
    fn of(seconds: i64, now: &Now) -> Self {
        let at = match seconds {
            0 => return ItemExpiry::Never,
            1..=RELATIVE_SECONDS => now.ms() + seconds * 1000,
            _ => seconds * 1000,
        };
        if seconds > 0 && at > now.ms() { ItemExpiry::At(at) } else { ItemExpiry::Passed }
    }

    fn of_argument(cx: &OneKey<'_>, argument: usize) -> Result<Self, Error> {
        let seconds = signed_32(cx.args.get(argument)).ok_or(Error::NotAnInteger)?;
        Ok(ItemExpiry::of(seconds.into(), cx.now()))
    }
}

/// When something happens that is asked for in so many seconds; `None` for at once.
pub fn expires_at(seconds: i32, now: UnixMs) -> Option<UnixMs> {
    match ItemExpiry::of(seconds.into(), &Now::at(now)) {
        ItemExpiry::At(at) => Some(at),
        _ => None,
    }
}

/// The last number of a change that was given to a key; 0 before the first.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Goes on with numbers far above those so far: this server becomes a master, and numbers that its
/// clients have of another one are to be none of its own.
pub fn draw_new_base() {
    draw_number();
    LAST_NUMBER.fetch_add(fastrand::u64(1 << 40..1 << 46), Ordering::Relaxed);
}

/// The next number of a change. They only grow in one process; a process begins at random, so that
/// a number of another one is most probably none of its own. They stay below 2^53, as some clients
/// read them as floating-point numbers.
pub fn draw_number() -> u64 {
    if LAST_NUMBER.load(Ordering::Relaxed) == 0 {
        let base = fastrand::u64(1 << 40..1 << 52);
        let _ = LAST_NUMBER.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed);
    }
    LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1
}

/// The word behind a command's arguments if no key may get its first number, because there is no
/// memory for it.
pub const KNOWN_ONLY: &[u8] = b"known";

/// The number of the key's last change, which is drawn if it has none.
///
/// # Errors
/// There is no memory for it, as argument number `argument` says.
fn number_of(cx: &mut OneKey<'_>, argument: usize) -> Result<Option<u64>, Error> {
    if cx.args.get(argument) == KNOWN_ONLY && cx.string()?.is_some_and(|it| it.traits().number == 0)
    {
        return Err(Error::OutOfMemory);
    }
    Ok(cx.key.number(draw_number))
}

/// A value in a reply, behind its number if there is one.
fn say(key: &Edit<'_>, reply: &mut dyn Reply, number: Option<u64>) -> Result<(), Error> {
    let Some(entry) = key.read() else {
        reply.null();
        return Ok(());
    };
    let value = entry.string().map_err(Error::from)?;
    if let Some(number) = number {
        reply.integer(number as i64);
    }
    reply.value(&value);
    Ok(())
}

/// `mc-gets key [known]`. No change: a number is neither logged nor counted.
fn gets(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let number = number_of(cx, 2)?;
    say(&cx.key, reply, number)
}

/// Sets the expiry of a key that exists; false if there is none.
fn set_expiry(cx: &mut OneKey<'_>, expiry: ItemExpiry) -> bool {
    if !cx.key.is_there() {
        return false;
    }
    match expiry {
        ItemExpiry::Passed => _ = cx.delete(),
        ItemExpiry::Never if cx.key.expiry().is_none() => {}
        ItemExpiry::Never => {
            cx.key.expire_at(None);
            cx.tell(Event::PERSIST);
        }
        ItemExpiry::At(at) => {
            cx.key.expire_at(Some(at));
            cx.tell(Event::EXPIRE);
        }
    }
    true
}

/// `mc-gat key seconds [number [known]]`.
fn get_and_touch(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let expiry = ItemExpiry::of_argument(cx, 2)?;
    let number = if cx.args.len() > 3 { number_of(cx, 4)? } else { None };
    say(&cx.key, reply, number)?;
    set_expiry(cx, expiry);
    Ok(())
}

/// `mc-touch key seconds`.
fn touch(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let expiry = ItemExpiry::of_argument(cx, 2)?;
    reply.simple(if set_expiry(cx, expiry) { "TOUCHED" } else { "NOT_FOUND" });
    Ok(())
}

/// `mc-store key value mode flags seconds [number]`; the mode is memcached's name of the command.
fn store(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    cx.limits.key(cx.key.name())?;
    cx.limits.value(cx.args.get(2).len())?;
    // `set` replaces values of all types.
    let replaces = cx.args.get(3) == b"set";
    let old = if replaces { None } else { cx.string()?.map(|value| value.traits()) };
    let refusal = match (cx.args.get(3), old) {
        (b"add", Some(_)) | (b"replace" | b"append" | b"prepend", None) => Some("NOT_STORED"),
        (b"cas", None) => Some("NOT_FOUND"),
        // A key without a number has changed since anybody asked.
        (b"cas", Some(old)) if old.number == 0 || old.number != number(cx, 6)? => Some("EXISTS"),
        _ => None,
    };
    if let Some(word) = refusal {
        reply.simple(word);
        return Ok(());
    }
    let fits = match (cx.args.get(3), old) {
        (b"append", Some(_)) => append(cx)?,
        (b"prepend", Some(old)) => prepend(cx, old)?,
        _ => {
            put(cx)?;
            true
        }
    };
    reply.simple(if fits { "STORED" } else { "NOT_STORED" });
    Ok(())
}

fn number(cx: &OneKey<'_>, argument: usize) -> Result<u64, Error> {
    unsigned_64(cx.args.get(argument)).ok_or(Error::NotAnInteger)
}

/// Puts the item in place of any other.
fn put(cx: &mut OneKey<'_>) -> Result<(), Error> {
    let flags = unsigned_32(cx.args.get(4)).ok_or(Error::NotAnInteger)?;
    let expiry = ItemExpiry::of_argument(cx, 5)?;
    put_item(cx, expiry, Traits { flags, ..Traits::default() });
    Ok(())
}

/// Puts the value that is argument number 2 in place of any other.
fn put_item(cx: &mut OneKey<'_>, expiry: ItemExpiry, traits: Traits) {
    let expire_at = match expiry {
        ItemExpiry::Never => None,
        ItemExpiry::At(at) => Some(at),
        ItemExpiry::Passed => {
            cx.delete();
            return;
        }
    };
    let kept = cx.args.keep(2, cx.limits.keep_bytes);
    let value = kept.as_ref().map_or(Value::Inline(cx.args.get(2)), Value::Shared);
    cx.key.set_with(value, expire_at, traits);
    cx.tell(Event::SET);
    if expire_at.is_some() {
        cx.tell(Event::EXPIRE);
    }
}

/// Appends to the value; false if it would be too long.
fn append(cx: &mut OneKey<'_>) -> Result<bool, Error> {
    let (len, bytes) = (cx.len()?.unwrap_or(0), cx.args.get(2));
    if cx.limits.value(len + bytes.len()).is_err() {
        return Ok(false);
    }
    if bytes.is_empty() {
        // It changes nothing but what is known of the value.
        let flags = cx.string()?.map_or(0, |value| value.traits().flags);
        cx.key.set_traits(Traits { flags, ..Traits::default() });
    }
    cx.write_at(len, bytes)?;
    cx.key.set_origin(Origin::Edited);
    cx.tell(Event::APPEND);
    Ok(true)
}

/// Puts bytes in front of the value; false if it would be too long.
fn prepend(cx: &mut OneKey<'_>, old: Traits) -> Result<bool, Error> {
    let bytes = cx.args.get(2);
    let value = cx.string()?;
    let value = value.as_ref().map_or(&b""[..], |value| value.bytes());
    if cx.limits.value(value.len() + bytes.len()).is_err() {
        return Ok(false);
    }
    let value = [bytes, value].concat();
    replace(cx, value, Traits { flags: old.flags, ..Traits::default() });
    cx.tell(Event::SET);
    Ok(true)
}

/// Sets another value of an item, which keeps its expiry.
fn replace(cx: &mut OneKey<'_>, value: Vec<u8>, traits: Traits) {
    let (expire_at, keep_bytes) = (cx.key.expiry(), cx.limits.keep_bytes);
    put_value(&mut cx.key, value.into(), expire_at, traits, keep_bytes);
}

/// Sets another number, with the flags of the one before. As with memcached, one that is no longer
/// is the same item, and stays marked.
fn replace_number(cx: &mut OneKey<'_>, text: &[u8]) -> Result<(), Error> {
    let Some(value) = cx.string()? else { return Ok(()) };
    let (len, old) = (value.len(), value.traits());
    let stays = text.len() <= len;
    let (stale, won) = (old.stale && stays, old.won && stays);
    replace(cx, text.to_vec(), Traits { flags: old.flags, stale, won, ..Traits::default() });
    Ok(())
}

/// A number, counted up or down.
fn number_after(before: u64, delta: u64, is_down: bool) -> u64 {
    if is_down { before.saturating_sub(delta) } else { before.wrapping_add(delta) }
}

/// `mc-count key incr|decr delta`.
fn count(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let delta = number(cx, 3)?;
    let Some(value) = cx.string()? else {
        reply.null();
        return Ok(());
    };
    let Some(before) = unsigned_64(value.bytes()) else {
        reply.simple("NON_NUMERIC");
        return Ok(());
    };
    let after = number_after(before, delta, cx.args.get(2) != b"incr");
    let mut text = itoa::Buffer::new();
    let text = text.format(after).as_bytes();
    replace_number(cx, text)?;
    cx.tell(Event::INCRBY);
    reply.bulk(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_memcacheds() {
        let now = Now::at(1_700_000_000_000);
        let of = |seconds| ItemExpiry::of(seconds, &now);
        assert!(of(0) == ItemExpiry::Never);
        assert!(of(1) == ItemExpiry::At(1_700_000_001_000));
        assert!(of(RELATIVE_SECONDS) == ItemExpiry::At(1_702_592_000_000));
        assert!(of(RELATIVE_SECONDS + 1) == ItemExpiry::Passed);
        assert!(of(1_700_000_000) == ItemExpiry::Passed);
        assert!(of(1_700_000_001) == ItemExpiry::At(1_700_000_001_000));
        assert!(of(-1) == ItemExpiry::Passed && of(i32::MIN.into()) == ItemExpiry::Passed);
    }

    #[test]
    fn who_renews_is_decided_in_whole_seconds() {
        let now = Now::at(1_700_000_000_000);
        let at = |ms| ItemExpiry::At(now.ms() + ms);
        for (expiry, recache, is_due) in [
            (at(20_000), 20, false),
            (at(19_001), 20, false),
            (at(19_000), 20, true),
            (at(20_000), 21, true),
            (at(1), 1, false),
            (at(1), 0, false),
            (at(1), -1, false),
            (ItemExpiry::Never, 20, false),
            (ItemExpiry::At(UnixMs::MAX), i32::MAX, false),
            (at(20_000), 1_700_000_021, true),
            (at(20_000), 1_700_000_020, false),
        ] {
            assert_eq!(meta::is_to_recache(expiry, recache, &now), is_due, "{recache}");
        }
    }
}
