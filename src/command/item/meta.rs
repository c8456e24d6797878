//! What memcached's meta commands do, after memcached 1.6's protocol.txt. They have their flags in
//! one argument, as the client has sent them.

use super::flags::MetaFlags;
use super::{
    ItemExpiry, ReadsKey, draw_number, number_after, number_of, row, set_expiry, unsigned_64,
};
use crate::command::base64::encode;
use crate::command::{
    Access, Command, Error, Event, Flags, Keys, LooksUp, OneKey, Reply, docs, record::put_value,
};
use crate::store::{Now, Traits, UnixMs, Value};

const READ: Flags = Flags { readonly: true, fast: true, ..Flags::NONE };
const WRITE: Flags = Flags { write: true, fast: true, ..Flags::NONE };
const GROW: Flags = Flags { deny_oom: true, ..WRITE };

/// `mg` where nothing may be written, and without flags that write.
pub(super) const GET: Command = Command {
    arity: -3,
    keys: Keys::One(Access::Read),
    ..row("mc-mg", docs("Returns an item, and what is known of it."), get, READ)
};

/// `mg`, which may tell a client that it is the one to renew the item.
pub(super) const RENEW: Command = Command {
    arity: -3,
    keys: Keys::One(Access::ReadOverwrite),
    looks_up: LooksUp::First,
    ..row("mc-mg-renew", docs("Returns an item, and who is to renew it."), get_or_renew, WRITE)
};

/// `mg` with `N`.
pub(super) const VIVIFY: Command = Command {
    arity: -3,
    keys: Keys::One(Access::ReadOverwrite),
    looks_up: LooksUp::First,
    ..row("mc-mg-vivify", docs("Returns an item, or makes an empty one."), get_or_renew, GROW)
};

/// `ms`.
pub(super) const SET: Command = Command {
    arity: 4,
    keys: Keys::One(Access::Overwrite),
    slow_by_value: true,
    ..row("mc-ms", docs("Stores an item, on conditions."), set, GROW)
};

/// `md`.
pub(super) const DELETE: Command = Command {
    arity: 3,
    keys: Keys::One(Access::Overwrite),
    ..row("mc-md", docs("Removes an item, or marks it as stale."), delete, WRITE)
};

/// `ma`.
pub(super) const COUNT: Command = Command {
    arity: 3,
    keys: Keys::One(Access::ReadOverwrite),
    ..row("mc-ma", docs("Counts an item up or down."), count, GROW)
};

/// `me`.
pub(super) const DEBUG: Command = Command {
    arity: -3,
    keys: Keys::One(Access::Read),
    uses: false,
    looks_up: LooksUp::Nothing,
    ..row("mc-me", docs("Tells what is known of an item but its value."), debug, READ)
};

/// The flags, which are argument number `argument`.
fn flags_of<'a>(cx: &OneKey<'a>, argument: usize) -> Result<MetaFlags<'a>, Error> {
    MetaFlags::read_again(cx.args.get(argument)).ok_or(Error::Syntax)
}

/// A line of a reply: its first word, and behind it what the flags ask for.
struct MetaLine<'k> {
    text: Vec<u8>,
    key: &'k [u8],
    is_base64: bool,
}

impl<'k> MetaLine<'k> {
    fn new(cx: &OneKey<'k>, flags: &MetaFlags<'_>) -> Self {
        MetaLine { text: Vec::with_capacity(64), key: cx.key.name(), is_base64: flags.has(b'b') }
    }

    fn number(&mut self, letter: u8, number: u64) {
        self.text.extend_from_slice(&[b' ', letter]);
        self.text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// `t`: the seconds until an item expires, -1 for never.
    fn seconds(&mut self, expiry: ItemExpiry, now: &Now) {
        match expiry {
            ItemExpiry::Never => self.text.extend_from_slice(b" t-1"),
            ItemExpiry::At(at) => self.number(b't', seconds_until(at, now)),
            ItemExpiry::Passed => self.number(b't', 0),
        }
    }

    fn key(&mut self) {
        if self.is_base64 {
            encode(self.key, &mut self.text);
        } else {
            self.text.extend_from_slice(self.key);
        }
    }

    /// What a flag that only copies asks for: the opaque word, the key.
    fn copy(&mut self, word: &[u8]) {
        match word[0] {
            b'O' => {
                self.text.push(b' ');
                self.text.extend_from_slice(word);
            }
            b'k' => {
                self.text.extend_from_slice(b" k");
                self.key();
                if self.is_base64 {
                    self.text.extend_from_slice(b" b");
                }
            }
            _ => {}
        }
    }

    /// `code` and the words that only copy.
    fn say(mut self, code: &str, flags: &MetaFlags<'_>, reply: &mut dyn Reply) {
        flags.words().for_each(|word| self.copy(word));
        self.send(code, reply);
    }

    /// Sends it, behind `code`.
    fn send(&mut self, code: &str, reply: &mut dyn Reply) {
        self.text.splice(..0, code.bytes());
        reply.bulk(&self.text);
    }
}

/// The seconds until then, as memcached counts them: it has no parts of seconds.
fn seconds_until(at: UnixMs, now: &Now) -> u64 {
    u64::try_from(at - now.ms()).unwrap_or(0).div_ceil(1000)
}

/// When the key expires.
fn expiry_of(cx: &OneKey<'_>) -> ItemExpiry {
    cx.key.expiry().map_or(ItemExpiry::Never, ItemExpiry::At)
}

/// Answers with nothing if `q` mutes this code.
fn is_muted(flags: &MetaFlags<'_>, reply: &mut dyn Reply) -> bool {
    if flags.has(b'q') {
        reply.simple("");
    }
    flags.has(b'q')
}

/// Gives a value that has just changed the number that `E` asks for.
fn take_number(cx: &mut OneKey<'_>, flags: &MetaFlags<'_>) {
    if flags.next_number != 0 {
        let _ = cx.key.number(|| flags.next_number);
    }
}

/// `mc-mg key flags [known]`. A stale item that nobody renews is not given to this client to renew.
fn get(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    say_item(cx, reply, false)
}

/// `mc-mg-renew key flags [known]`, `mc-mg-vivify key flags [known]`.
fn get_or_renew(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    say_item(cx, reply, true)
}

fn say_item(cx: &mut OneKey<'_>, reply: &mut dyn Reply, may_write: bool) -> Result<(), Error> {
    let flags = flags_of(cx, 2)?;
    let is_new = !cx.key.is_there();
    if is_new {
        if !may_write || !flags.has(b'N') {
            if !is_muted(&flags, reply) {
                MetaLine::new(cx, &flags).say("EN", &flags, reply);
            }
            return Ok(());
        }
        cx.limits.key(cx.key.name())?;
        cx.key.set(Value::Inline(b""), None);
        take_number(cx, &flags);
        cx.tell(Event::SET);
    }
    let traits = cx.string()?.map(|value| value.traits()).unwrap_or_default();
    let number = match flags.has(b'c') {
        true if is_new => cx.key.number(draw_number),
        true => number_of(cx, 3)?,
        false => Some(traits.number),
    };
    let number = number.unwrap_or_default();
    let (mut expiry, now) = (expiry_of(cx), cx.now());
    let (mut wins, len) = (is_new, cx.len()?.unwrap_or(0) as u64);
    let mut line = MetaLine::new(cx, &flags);
    for word in flags.words() {
        match word[0] {
            b'T' => expiry = ItemExpiry::of(flags.expiry.into(), now),
            b'N' if is_new => expiry = ItemExpiry::of(flags.vivify.into(), now),
            b'R' if !is_new => wins |= !traits.won && is_to_recache(expiry, flags.recache, now),
            b's' => line.number(b's', len),
            b't' => line.seconds(expiry, now),
            b'c' => line.number(b'c', number),
            b'f' => line.number(b'f', traits.flags.into()),
            _ => line.copy(word),
        }
    }
    if traits.won {
        line.text.extend_from_slice(b" Z");
    }
    if traits.stale {
        line.text.extend_from_slice(b" X");
        wins |= !traits.won && may_write;
    }
    if wins {
        line.text.extend_from_slice(b" W");
    }
    let is_known = flags.has(b'C') && flags.number == number && number != 0;
    if flags.has(b'v') && !is_known {
        reply.array(2);
        line.send(&format!("VA {len}"), reply);
        match cx.string()? {
            Some(value) => reply.value(&value),
            None => reply.bulk(b""),
        }
    } else {
        line.send("HD", reply);
    }
    if wins {
        cx.key.set_traits(Traits { won: true, number, ..traits });
    }
    if expiry != expiry_of(cx) {
        set_expiry(cx, expiry);
    }
    Ok(())
}

/// Whether an item expires so soon that a client is to renew it: in whole seconds, as memcached
/// counts.
pub(super) fn is_to_recache(expiry: ItemExpiry, recache: i32, now: &Now) -> bool {
    match (expiry, ItemExpiry::of(recache.into(), now)) {
        (ItemExpiry::At(at), ItemExpiry::At(before)) => at <= before - 1000,
        _ => false,
    }
}

/// What becomes of the data of `ms`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storing {
    /// It is the item.
    Whole,
    /// It is the item, which keeps its expiry and is stale.
    Stale,
    /// It is added to the item's, behind it or before it.
    Added,
    /// Nothing: this is the answer.
    Not(&'static str),
}

/// `mc-ms key value flags`.
fn set(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let flags = flags_of(cx, 3)?;
    cx.limits.key(cx.key.name())?;
    cx.limits.value(cx.args.get(2).len())?;
    // Values of all types are replaced where nothing is asked of the old one.
    let replaces = matches!(flags.mode, 0 | b'S') && !flags.has(b'C');
    let old = if replaces { None } else { cx.string()?.map(|value| value.traits()) };
    let storing = storing(cx, &flags, old);
    let code = match storing {
        Storing::Not(code) => code,
        Storing::Added => add(cx, flags.mode, old.unwrap_or_default())?,
        Storing::Whole | Storing::Stale => {
            put(cx, &flags, old.filter(|_| storing == Storing::Stale));
            "HD"
        }
    };
    let is_stored = code == "HD";
    if is_stored {
        take_number(cx, &flags);
    }
    if is_stored && is_muted(&flags, reply) {
        return Ok(());
    }
    let mut number = 0;
    if flags.has(b'c') && is_stored {
        // What had expired when it came has had a number, too.
        number = cx.key.number(draw_number).unwrap_or_else(draw_number);
    }
    let len = if storing == Storing::Added { cx.len()? } else { None };
    let len = len.unwrap_or(cx.args.get(2).len());
    let mut line = MetaLine::new(cx, &flags);
    for word in flags.words() {
        match word[0] {
            b'c' => line.number(b'c', number),
            b's' => line.number(b's', len as u64),
            _ => line.copy(word),
        }
    }
    line.send(code, reply);
    Ok(())
}

/// What becomes of the data. A number that an older client has is older than one that is drawn now.
fn storing(cx: &mut OneKey<'_>, flags: &MetaFlags<'_>, old: Option<Traits>) -> Storing {
    let Some(old) = old else {
        return match flags.mode {
            b'A' | b'P' if flags.has(b'N') => Storing::Whole,
            b'A' | b'P' => Storing::Not("NS"),
            b'E' => Storing::Whole,
            _ if flags.has(b'C') => Storing::Not("NF"),
            b'R' => Storing::Not("NS"),
            _ => Storing::Whole,
        };
    };
    let is_same = flags.number != 0 && old.number == flags.number;
    match flags.mode {
        b'E' => Storing::Not("NS"),
        b'A' | b'P' if flags.number != 0 && !is_same => Storing::Not("EX"),
        b'A' | b'P' => Storing::Added,
        _ if !flags.has(b'C') || is_same => Storing::Whole,
        _ if flags.has(b'I') && flags.number != 0 => match cx.key.number(draw_number) {
            Some(number) if flags.number < number => Storing::Stale,
            _ => Storing::Not("EX"),
        },
        _ => Storing::Not("EX"),
    }
}

/// Puts the data in place of any other. It is stale if there is an `old` one.
fn put(cx: &mut OneKey<'_>, flags: &MetaFlags<'_>, old: Option<Traits>) {
    let seconds = match flags.mode {
        b'A' | b'P' => flags.vivify,
        _ => flags.expiry,
    };
    let expiry = match old {
        Some(_) => expiry_of(cx),
        None => ItemExpiry::of(seconds.into(), cx.now()),
    };
    let (stale, won) = (old.is_some(), old.is_some_and(|old| old.won));
    let traits = Traits { flags: flags.client_flags, stale, won, ..Traits::default() };
    super::put_item(cx, expiry, traits);
}

/// Adds the data to the item's; returns the answer.
fn add(cx: &mut OneKey<'_>, mode: u8, old: Traits) -> Result<&'static str, Error> {
    let fits = if mode == b'A' { super::append(cx)? } else { super::prepend(cx, old)? };
    Ok(if fits { "HD" } else { "NS" })
}

/// `mc-md key flags`.
fn delete(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let flags = flags_of(cx, 2)?;
    let removes = !flags.has(b'x') && !flags.has(b'I');
    let code = if removes && !flags.has(b'C') {
        // Values of all types.
        if cx.delete() { "HD" } else { "NF" }
    } else {
        match cx.string()?.map(|value| value.traits()) {
            None => "NF",
            Some(old) if flags.has(b'C') && (old.number == 0 || old.number != flags.number) => "EX",
            Some(old) => {
                if removes {
                    cx.delete();
                } else {
                    invalidate(cx, &flags, old);
                }
                "HD"
            }
        }
    };
    if code != "HD" || !is_muted(&flags, reply) {
        MetaLine::new(cx, &flags).say(code, &flags, reply);
    }
    Ok(())
}

/// Takes the value of an item (`x`), marks it as stale (`I`).
fn invalidate(cx: &mut OneKey<'_>, flags: &MetaFlags<'_>, old: Traits) {
    let stale = flags.has(b'I');
    let number = match flags.next_number {
        // A new one is drawn when somebody asks.
        0 if stale => 0,
        0 => old.number,
        number => number,
    };
    if flags.has(b'x') {
        let traits = Traits { flags: flags.client_flags, stale, number, ..Traits::default() };
        cx.key.set_with(Value::Inline(b""), None, traits);
        cx.tell(Event::SET);
    } else {
        cx.key.set_traits(Traits { stale, won: false, number, ..old });
    }
    if flags.has(b'T') {
        set_expiry(cx, ItemExpiry::of(flags.expiry.into(), cx.now()));
    }
}

/// `mc-ma key flags`.
fn count(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let flags = flags_of(cx, 2)?;
    let is_new = !cx.key.is_there();
    let after = match count_of(cx, &flags)? {
        Ok(after) => after,
        Err("NON_NUMERIC") => {
            reply.simple("NON_NUMERIC");
            return Ok(());
        }
        Err(code) => {
            MetaLine::new(cx, &flags).say(code, &flags, reply);
            return Ok(());
        }
    };
    let mut text = itoa::Buffer::new();
    let text = text.format(after).as_bytes();
    if is_new {
        cx.limits.key(cx.key.name())?;
        put_value(&mut cx.key, text.into(), None, Traits::default(), cx.limits.keep_bytes);
    } else {
        super::replace_number(cx, text)?;
    }
    cx.tell(Event::INCRBY);
    take_number(cx, &flags);
    let number = if flags.has(b'c') { cx.key.number(draw_number).unwrap_or(0) } else { 0 };
    let (mut expiry, now) = (expiry_of(cx), cx.now());
    let mut line = MetaLine::new(cx, &flags);
    for word in flags.words() {
        match word[0] {
            b'c' => line.number(b'c', number),
            b't' => line.seconds(expiry, now),
            b'T' => expiry = ItemExpiry::of(flags.expiry.into(), now),
            b'N' if is_new => expiry = ItemExpiry::of(flags.vivify.into(), now),
            _ => line.copy(word),
        }
    }
    if expiry != expiry_of(cx) {
        set_expiry(cx, expiry);
    }
    // Its making is told.
    if !is_new && is_muted(&flags, reply) {
        return Ok(());
    }
    if flags.has(b'v') {
        reply.array(2);
        line.send(&format!("VA {}", text.len()), reply);
        reply.bulk(text);
    } else {
        line.send("HD", reply);
    }
    Ok(())
}

/// What an item counts after this, or the answer if nothing is counted.
fn count_of(cx: &OneKey<'_>, flags: &MetaFlags<'_>) -> Result<Result<u64, &'static str>, Error> {
    let Some(value) = cx.string()? else {
        return Ok(if flags.has(b'N') { Ok(flags.initial) } else { Err("NF") });
    };
    // As with memcached an empty item is no number, whatever its number is.
    let is_other = flags.number != 0 && value.traits().number != flags.number;
    if is_other && value.len() > 0 {
        return Ok(Err("EX"));
    }
    let Some(before) = unsigned_64(value.bytes()) else { return Ok(Err("NON_NUMERIC")) };
    Ok(Ok(number_after(before, flags.delta, matches!(flags.mode, b'D' | b'-'))))
}

/// `mc-me key flags [known]`: what memcached's `me` tells, as far as there is such a thing.
fn debug(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    cx.string()?;
    let Some(number) = number_of(cx, 3)? else {
        reply.simple("EN");
        return Ok(());
    };
    let is_base64 = cx.args.get(2).split(|&byte| byte == b' ').find(|word| !word.is_empty());
    let is_base64 = is_base64 == Some(b"b");
    let mut line = MetaLine { text: b"ME ".to_vec(), key: cx.key.name(), is_base64 };
    line.key();
    let expiry = cx.key.expiry().map_or(-1, |at| seconds_until(at, cx.now()) as i64);
    let bytes = cx.as_read().bytes().unwrap_or(0);
    let known = format!(" exp={expiry} cas={number} size={bytes}");
    line.text.extend_from_slice(known.as_bytes());
    line.send("", reply);
    Ok(())
}
