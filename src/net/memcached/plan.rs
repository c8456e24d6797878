//! The requests of a connection as calls of the command table, several of which may run together.

use arrayvec::ArrayVec;

use super::parse::{DebugRequest, KeysOfLine, MemcachedRequest, MetaRequest, StoreRequest};
use super::reply::{ReplyForm, Wording};
use crate::command::{Args, KNOWN_ONLY, Limits, MetaCommand, number_of};
use crate::engine::{Author, Call, Engine, Together};
use crate::limits::AHEAD;
use crate::store::Now;

/// The most arguments of a call.
const ARGUMENTS: usize = 7;

/// The numbers of rows.
struct ItemRows {
    get: usize,
    set: usize,
    del: usize,
    append: usize,
    getex: usize,
    incrby: usize,
    decrby: usize,
    expireat: usize,
    gets: usize,
    gat: usize,
    store: usize,
    count: usize,
    touch: usize,
    getset: usize,
    mg: usize,
    mg_renew: usize,
    mg_vivify: usize,
    ms: usize,
    md: usize,
    ma: usize,
    me: usize,
}

const ROWS: ItemRows = ItemRows {
    get: number("get"),
    set: number("set"),
    del: number("del"),
    append: number("append"),
    getex: number("getex"),
    incrby: number("incrby"),
    decrby: number("decrby"),
    expireat: number("expireat"),
    gets: number("mc-gets"),
    gat: number("mc-gat"),
    store: number("mc-store"),
    count: number("mc-count"),
    touch: number("mc-touch"),
    getset: number("getset"),
    mg: number("mc-mg"),
    mg_renew: number("mc-mg-renew"),
    mg_vivify: number("mc-mg-vivify"),
    ms: number("mc-ms"),
    md: number("mc-md"),
    ma: number("mc-ma"),
    me: number("mc-me"),
};

/// The number of a row that exists.
pub(super) const fn number(name: &str) -> usize {
    match number_of(name) {
        Some(number) => number,
        None => panic!("a row of this name"),
    }
}

/// A call of the command table on one key.
pub struct Planned<'i> {
    /// The row that runs.
    pub command: usize,
    /// The rows whose rights the user needs.
    pub rights: ArrayVec<usize, 2>,
    /// Its arguments; the key is number 1.
    pub args: ArrayVec<&'i [u8], ARGUMENTS>,
    /// How it is answered.
    pub answered: Wording,
    /// Whether it is no use of its key.
    pub is_no_use: bool,
    /// Where it ends in the input.
    pub end: usize,
    /// The keys behind it in its line.
    pub keys: Option<KeysOfLine<'i>>,
}

impl<'i> Planned<'i> {
    #[inline]
    fn new<const N: usize>(
        (command, rights): (usize, usize),
        args: [&'i [u8]; N],
        form: ReplyForm,
        (end, is_silent): (usize, bool),
    ) -> Self {
        let args = args.into_iter().collect();
        let (answered, rights) = (Wording { form, is_silent }, [rights].into_iter().collect());
        Planned { command, rights, args, answered, is_no_use: false, end, keys: None }
    }

    /// The call for a request, if it is about one key. Those of `get` come one by one.
    #[inline]
    pub fn of(request: MemcachedRequest<'i>, end: usize, is_silent: bool) -> Option<Self> {
        let (rows, ends) = (&ROWS, (end, is_silent));
        Some(match request {
            MemcachedRequest::Store(store) => Planned::store(store, ends),
            MemcachedRequest::Delete(key) => {
                Planned::new((rows.del, rows.del), [b"del", key], ReplyForm::Deleted, ends)
            }
            MemcachedRequest::Count(word, key, delta) => {
                let rights = if word == b"incr" { rows.incrby } else { rows.decrby };
                let args: [&[u8]; 4] = [b"mc-count", key, word, delta];
                Planned::new((rows.count, rights), args, ReplyForm::Counted, ends)
            }
            MemcachedRequest::Touch(key, expiry) => {
                let args: [&[u8]; 3] = [b"mc-touch", key, expiry];
                Planned::new((rows.touch, rows.expireat), args, ReplyForm::Said, ends)
            }
            MemcachedRequest::Meta(meta) if !meta.is_base64 => Planned::meta(rows, meta, ends),
            MemcachedRequest::Debug(DebugRequest { key, is_base64: false, flags }) => {
                let args: [&[u8]; 3] = [b"mc-me", key, flags];
                Planned::new((rows.me, rows.get), args, ReplyForm::Said, ends)
            }
            MemcachedRequest::TooLarge(Some((key, false)), _) => {
                let silent = (end, true);
                Planned::new((rows.del, rows.set), [b"del", key], ReplyForm::Deleted, silent)
            }
            _ => return None,
        })
    }

    /// The call for a storage command, which ends there and may be silent.
    #[inline(always)]
    pub fn store(store: StoreRequest<'i>, ends: (usize, bool)) -> Self {
        let (rows, StoreRequest { mode, key, flags, expiry, number, value }) = (&ROWS, store);
        if (mode, flags, expiry) == (b"set", b"0", b"0") {
            let args: [&[u8]; 3] = [b"set", key, value];
            return Planned::new((rows.set, rows.set), args, ReplyForm::Stored, ends);
        }
        let rights = if mode == b"append" { rows.append } else { rows.set };
        let args: [&[u8]; 7] = [b"mc-store", key, value, mode, flags, expiry, number];
        Planned::new((rows.store, rights), args, ReplyForm::Stored, ends)
    }

    fn meta(rows: &ItemRows, meta: MetaRequest<'i>, ends: (usize, bool)) -> Self {
        let MetaRequest { command, key, flags, value, .. } = meta;
        // It sets an expiry, or marks the item as somebody's to renew.
        let renews = flags.has(b'T') || flags.has(b'R');
        let (numbers, name): (_, &[u8]) = match command {
            // It returns what was there, and may set a value, or its expiry.
            MetaCommand::Get if flags.has(b'N') => ((rows.mg_vivify, rows.getset), b"mc-mg"),
            MetaCommand::Get if renews => ((rows.mg_renew, rows.getex), b"mc-mg"),
            MetaCommand::Get => ((rows.mg_renew, rows.get), b"mc-mg"),
            MetaCommand::Set if flags.mode() == b'A' => ((rows.ms, rows.append), b"mc-ms"),
            MetaCommand::Set => ((rows.ms, rows.set), b"mc-ms"),
            MetaCommand::Delete if flags.has(b'I') || flags.has(b'x') => {
                ((rows.md, rows.set), b"mc-md")
            }
            MetaCommand::Delete => ((rows.md, rows.del), b"mc-md"),
            MetaCommand::Count if matches!(flags.mode(), b'D' | b'-') => {
                ((rows.ma, rows.decrby), b"mc-ma")
            }
            MetaCommand::Count => ((rows.ma, rows.incrby), b"mc-ma"),
        };
        let mut planned = if command == MetaCommand::Set {
            let args: [&[u8]; 4] = [name, key, value, flags.text()];
            Planned::new(numbers, args, ReplyForm::Said, ends)
        } else {
            Planned::new(numbers, [name, key, flags.text()], ReplyForm::Said, ends)
        };
        match command {
            MetaCommand::Get if flags.has(b'N') && renews => {
                planned.rights.push(rows.getex);
            }
            MetaCommand::Count if flags.has(b'N') || flags.has(b'T') => {
                planned.rights.push(rows.expireat);
            }
            _ => {}
        }
        planned.is_no_use = command == MetaCommand::Get && flags.has(b'u');
        planned
    }

    /// Whether it writes only if the item is stale: then it may run as one that only reads.
    pub fn may_only_read(&self, request: &MemcachedRequest<'_>) -> bool {
        let writes = |meta: &MetaRequest<'_>| meta.flags.has(b'T') || meta.flags.has(b'R');
        matches!(request, MemcachedRequest::Meta(meta) if !writes(meta))
            && self.command == ROWS.mg_renew
    }

    /// The row whose rights its user needs to mark a stale item.
    pub const MARKS: usize = ROWS.getex;

    /// Makes it one that only reads.
    pub fn only_read(&mut self) {
        self.command = ROWS.mg;
    }

    /// The call for a key of a `get`, behind which there are these keys.
    #[inline]
    pub fn get(key: &'i [u8], keys: KeysOfLine<'i>, end: usize) -> Self {
        let (rows, is_last) = (&ROWS, keys.left == 0);
        let end = if is_last { end + keys.line_end } else { end };
        let (form, ends) = (ReplyForm::Value { is_last }, (end, false));
        let mut planned = if keys.touch.is_empty() {
            let command = if keys.numbers { rows.gets } else { rows.get };
            Planned::new((command, rows.get), [b"get", key], form, ends)
        } else {
            let args: [&[u8]; 3] = [b"mc-gat", key, keys.touch];
            let mut gat = Planned::new((rows.gat, rows.getex), args, form, ends);
            gat.args.extend(keys.numbers.then_some(&b"number"[..]));
            gat
        };
        planned.keys = (!is_last).then_some(keys);
        planned
    }

    /// There is no memory for numbers of keys that have none.
    #[cold]
    pub fn draw_no_number(&mut self) {
        let rows = &ROWS;
        let draws = [rows.gets, rows.mg, rows.mg_renew, rows.mg_vivify, rows.me];
        // `gats` is a `gat` with one more argument.
        let is_gats = self.command == rows.gat && self.args.len() == 4;
        if is_gats || draws.contains(&self.command) {
            self.args.push(KNOWN_ONLY);
        }
    }

    /// Its key.
    pub fn key(&self) -> &'i [u8] {
        self.args.get(1).copied().unwrap_or_default()
    }

    /// The arguments that its user's rights depend on.
    pub fn args_of_rights(&self) -> Args<'_> {
        Args::new(&self.args[..self.args.len().min(2)])
    }

    /// It as a call.
    pub fn call(&self, engine: &Engine, db: u32, limits: Limits) -> Call<'_> {
        Call {
            command: self.command,
            args: Args::new(&self.args),
            db,
            now: Now::lazy(engine.config().clock).silent(self.is_no_use),
            limits,
            prefix: "",
            author: Author::Nobody,
        }
    }
}

/// Calls that run together.
#[derive(Default)]
pub struct RequestPlan<'i>(pub ArrayVec<Planned<'i>, AHEAD>);

/// A plan, and what all of its calls have in common.
pub struct PlannedCalls<'p, 'i> {
    /// The calls.
    pub plan: &'p RequestPlan<'i>,
    /// The keyspace.
    pub engine: &'p Engine,
    /// The database.
    pub db: u32,
    /// The limits.
    pub limits: Limits,
}

impl Together for PlannedCalls<'_, '_> {
    fn count(&self) -> usize {
        self.plan.0.len()
    }

    fn db(&self) -> u32 {
        self.db
    }

    fn now(&self) -> Now {
        Now::lazy(self.engine.config().clock)
    }

    #[inline]
    fn command(&self, number: usize) -> usize {
        self.plan.0[number].command
    }

    #[inline]
    fn key(&self, number: usize) -> &[u8] {
        self.plan.0[number].key()
    }

    #[inline]
    fn args(&self, number: usize) -> Args<'_> {
        Args::new(&self.plan.0[number].args)
    }

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    fn call(&self, number: usize) -> Call<'_> {
        self.plan.0[number].call(self.engine, self.db, self.limits)
    }
}
