//! DUMP and RESTORE, after Redis's cluster.c. `payload/` has the payloads.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use super::payload::{HashWriter, PackedHash, PayloadField, Restored, WrittenHash, read_payload};
use super::{
    Access, Action, ArgKind, Args, Command, Docs, Error, Event, Flags, Keys, Limits, LoggedAs,
    Long, LongKeys, OneKey, ReadKey, ReadsKey, Reply, Run,
};
use super::{arg, payload, tips, word};
use crate::limits::{LISTPACK_TEXT_BYTES, PACKED_HASH_BYTES};
use crate::store::{EntryRef, FieldRef, Fields, Type, UnixMs, Value, WrongType};

pub(super) static DUMP: Command = Command {
    name: "dump",
    arity: 2,
    keys: Keys::One(Access::Read),
    tips: &[tips::ANY_OUTPUT],
    docs: Docs {
        summary: "Returns a value in the form that RESTORE takes, midi's and the host's; it is \
                  Redis 7.0's, packed where that saves room.",
        complexity: "O(N), N being the length of the value",
        args: &[arg("key", ArgKind::Key)],
    },
    long: Long::FoundAlone(LongKeys::Dump),
    action: Action::OneKey(Run::Read(dump)),
    ..Command::on_keys(Flags { readonly: true, ..Flags::NONE })
};

pub(super) static RESTORE: Command = Command {
    name: "restore",
    arity: -4,
    keys: Keys::One(Access::Overwrite),
    categories: "keyspace write slow dangerous",
    docs: Docs {
        summary: "Creates a key from what DUMP returned, midi's or that of a host up to Redis 8 \
                  and Valkey 9. Strings and hashes are accepted. IDLETIME and FREQ are dropped.",
        complexity: "O(N), N being the length of the value",
        args: &[
            arg("key", ArgKind::Key),
            arg("ttl", ArgKind::Integer),
            arg("serialized-value", ArgKind::String),
            word("replace", "REPLACE").optional(),
            word("absttl", "ABSTTL").optional(),
            arg("seconds", ArgKind::Integer).token("IDLETIME").optional(),
            arg("frequency", ArgKind::Integer).token("FREQ").optional(),
        ],
    },
    logged_as: LoggedAs::Packed(3),
    action: Action::OneKey(Run::Edit(restore)),
    ..Command::on_keys(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

fn dump(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let Some(entry) = cx.entry() else {
        reply.null();
        return Ok(());
    };
    // The reply is judged by this before the work, because packing takes longer than replying.
    let weight = entry.weight();
    if entry.value_type() == Type::Hash {
        let fields = Fields::of(entry)?;
        if cx.reads_long(fields.len()) {
            return Err(Error::LongWork);
        }
        cx.limits.reply(weight)?;
        reply.bulk(&payload_of_hash(fields, cx.limits));
    } else {
        cx.limits.reply(weight)?;
        reply.bulk(&payload::of(entry.string()?.bytes()));
    }
    Ok(())
}

/// What DUMP says of a key, made a few fields at a time.
#[derive(Default)]
pub enum Dumped {
    /// There is no such key.
    #[default]
    Nothing,
    /// The payload of a hash, as far as its fields have been added.
    Hash(HashWriter),
    /// The payload of another value.
    Other(Vec<u8>),
}

impl Dumped {
    /// Of a hash that has these fields, which are added next.
    pub fn begin(fields: Fields<'_>, limits: &Limits) -> Self {
        Dumped::Hash(hash_writer(fields, limits))
    }

    /// Of a value that is no hash.
    ///
    /// # Errors
    /// [`WrongType`] if there is no payload of this type.
    pub fn of_other(entry: EntryRef<'_>) -> Result<Self, WrongType> {
        Ok(Dumped::Other(payload::of(entry.string()?.bytes())))
    }

    /// Adds a field.
    pub fn add(&mut self, field: FieldRef<'_>) {
        if let Dumped::Hash(writer) = self {
            writer.add(field.name, field.value, field.expire_at);
        }
    }

    /// Gets memory for so many more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        if let Dumped::Hash(writer) = self {
            writer.reserve(bytes);
        }
    }

    /// How many bytes the payload has so far.
    pub fn written(&self) -> usize {
        match self {
            Dumped::Nothing => 0,
            Dumped::Hash(writer) => writer.written(),
            Dumped::Other(payload) => payload.len(),
        }
    }

    /// The payload.
    pub fn finish(self) -> Option<Vec<u8>> {
        match self {
            Dumped::Nothing => None,
            Dumped::Hash(writer) => Some(writer.finish()),
            Dumped::Other(payload) => Some(payload),
        }
    }
}

/// Whether the host is Valkey, which has another form of a hash with fields that expire.
static IS_VALKEY: AtomicBool = AtomicBool::new(false);

/// Hashes with fields that expire are written as Valkey writes them. To be called before commands
/// run.
pub fn dump_as_valkey() {
    IS_VALKEY.store(true, Ordering::Relaxed);
}

/// The payload of a hash, as the host's DUMP writes it.
pub fn payload_of_hash(fields: Fields<'_>, limits: &Limits) -> Vec<u8> {
    let mut writer = hash_writer(fields, limits);
    fields.iter().for_each(|it| writer.add(it.name, it.value, it.expire_at));
    writer.finish()
}

/// A writer for these fields, which are added next, in the form that the host's DUMP would choose.
fn hash_writer(fields: Fields<'_>, limits: &Limits) -> HashWriter {
    let count = fields.len();
    // Hosts write longer ones in different ways.
    let longest = limits.listpack_value.min(LISTPACK_TEXT_BYTES);
    // A listpack adds at most ten bytes to a name and to a value. No host keeps a longer one.
    let bytes = |it: FieldRef<'_>| it.name.len() + it.value.len() + 20;
    let is_too_long = || fields.iter().map(bytes).sum::<usize>() > PACKED_HASH_BYTES - 8;
    let form = match fields.least_due() {
        Some(_) if IS_VALKEY.load(Ordering::Relaxed) => WrittenHash::ValkeyDueTable(count),
        Some(at) => WrittenHash::RedisDueTable { fields: count, least_due: at.max(0) },
        None if fields.is_above(limits.listpack_entries, longest) || is_too_long() => {
            WrittenHash::Table(count)
        }
        None => WrittenHash::Listpack,
    };
    HashWriter::new(form)
}

/// The hash in a payload.
///
/// # Errors
/// It holds another value, or none.
pub fn unpacked_hash<'a>(payload: &'a [u8], limits: &Limits) -> Result<PackedHash<'a>, Error> {
    match read_payload(payload, limits)? {
        Restored::Hash(hash) => Ok(hash),
        Restored::String(_) => Err(Error::BadData),
    }
}

fn restore(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let options = RestoreOptions::parse(&cx.args)?;
    if cx.key.is_there() && !options.replace {
        return Err(Error::BusyKey);
    }
    let ttl = cx.args.integer(2)?;
    if ttl < 0 {
        return Err(Error::InvalidTtl);
    }
    let payload = cx.args.get(3);
    cx.limits.key(cx.key.name())?;
    // Checking and unpacking a large payload is for a worker, like a large reply.
    cx.limits.reply(payload.len())?;
    let restored = read_payload(payload, cx.limits)?;
    // All of it is checked before the key changes.
    let fields = match &restored {
        Restored::Hash(hash) => hash.fields(cx.limits)?,
        Restored::String(_) => Vec::new(),
    };

    let base = if options.absolute { 0 } else { cx.now().ms() };
    let expire_at = (ttl > 0).then(|| base.saturating_add(ttl));
    if expire_at.is_some_and(|at| cx.now().deletes(at)) {
        cx.delete();
        reply.ok();
        return Ok(());
    }
    match restored {
        Restored::String(value) => {
            Value::lend(value.into(), cx.limits.keep_bytes, |value| cx.key.set(value, expire_at));
        }
        Restored::Hash(_) => restore_hash(cx, &fields, expire_at)?,
    }
    cx.tell(Event::RESTORE);
    reply.ok();
    Ok(())
}

fn restore_hash(
    cx: &mut OneKey<'_>,
    fields: &[PayloadField<'_>],
    expire_at: Option<UnixMs>,
) -> Result<(), Error> {
    cx.key.remove();
    for field in fields {
        let value = Cow::Borrowed(field.value.bytes());
        Value::lend(value, cx.limits.keep_bytes, |value| {
            cx.key.set_field(field.field.bytes(), value, field.expire_at)
        })?;
    }
    if expire_at.is_some() {
        cx.key.expire_at(expire_at);
    }
    Ok(())
}

/// RESTORE's options.
#[derive(Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    idle_time: bool,
    frequency: bool,
}

impl RestoreOptions {
    fn parse(args: &Args<'_>) -> Result<Self, Error> {
        let mut options = RestoreOptions::default();
        let mut at = 4;
        while at < args.len() {
            let more = at + 1 < args.len();
            if args.is(at, "replace") {
                options.replace = true;
            } else if args.is(at, "absttl") {
                options.absolute = true;
            } else if args.is(at, "idletime") && more && !options.frequency {
                at += 1;
                if args.integer(at)? < 0 {
                    return Err(Error::InvalidIdleTime);
                }
                options.idle_time = true;
            } else if args.is(at, "freq") && more && !options.idle_time {
                at += 1;
                if !(0..=255).contains(&args.integer(at)?) {
                    return Err(Error::InvalidFrequency);
                }
                options.frequency = true;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}
