//! The requests of a connection as calls of the command table, several of which may run together.

use arrayvec::ArrayVec;

use super::parse::{KeysOfLine, MemcachedRequest, StoreRequest};
use super::reply::{ReplyForm, Wording};
use crate::command::{Args, Limits, number_of};
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
    /// The row whose rights the user needs.
    pub rights: usize,
    /// Its arguments; the key is number 1.
    pub args: ArrayVec<&'i [u8], ARGUMENTS>,
    /// How it is answered.
    pub answered: Wording,
    /// Where it ends in the input.
    pub end: usize,
    /// The keys behind it in its line.
    pub keys: Option<KeysOfLine<'i>>,
}

impl<'i> Planned<'i> {
    fn new(
        (command, rights): (usize, usize),
        args: &[&'i [u8]],
        form: ReplyForm,
        (end, is_silent): (usize, bool),
    ) -> Self {
        let args = args.iter().copied().collect();
        let answered = Wording { form, is_silent };
        Planned { command, rights, args, answered, end, keys: None }
    }

    /// The call for a request, if it is about one key. Those of `get` come one by one.
    pub fn of(request: MemcachedRequest<'i>, end: usize, is_silent: bool) -> Option<Self> {
        let (rows, ends) = (&ROWS, (end, is_silent));
        Some(match request {
            MemcachedRequest::Store(store) => Planned::store(rows, store, ends),
            MemcachedRequest::Delete(key) => {
                Planned::new((rows.del, rows.del), &[b"del", key], ReplyForm::Deleted, ends)
            }
            MemcachedRequest::Count(word, key, delta) => {
                let rights = if word == b"incr" { rows.incrby } else { rows.decrby };
                let args: [&[u8]; 4] = [b"mc-count", key, word, delta];
                Planned::new((rows.count, rights), &args, ReplyForm::Counted, ends)
            }
            MemcachedRequest::Touch(key, expiry) => {
                let args: [&[u8]; 3] = [b"mc-touch", key, expiry];
                Planned::new((rows.touch, rows.expireat), &args, ReplyForm::Said, ends)
            }
            MemcachedRequest::TooLarge(Some(key), _) => {
                let silent = (end, true);
                Planned::new((rows.del, rows.del), &[b"del", key], ReplyForm::Deleted, silent)
            }
            _ => return None,
        })
    }

    fn store(rows: &ItemRows, store: StoreRequest<'i>, ends: (usize, bool)) -> Self {
        let StoreRequest { mode, key, flags, expiry, number, value } = store;
        if (mode, flags, expiry) == (b"set", b"0", b"0") {
            let args: [&[u8]; 3] = [b"set", key, value];
            return Planned::new((rows.set, rows.set), &args, ReplyForm::Stored, ends);
        }
        let rights = if mode == b"append" { rows.append } else { rows.set };
        let args: [&[u8]; 7] = [b"mc-store", key, value, mode, flags, expiry, number];
        Planned::new((rows.store, rights), &args, ReplyForm::Stored, ends)
    }

    /// The call for a key of a `get`, behind which there are these keys.
    pub fn get(key: &'i [u8], keys: KeysOfLine<'i>, end: usize) -> Self {
        let (rows, is_last) = (&ROWS, keys.left == 0);
        let end = if is_last { end + keys.line_end } else { end };
        let (form, ends) = (ReplyForm::Value { is_last }, (end, false));
        let mut planned = if keys.touch.is_empty() {
            let command = if keys.numbers { rows.gets } else { rows.get };
            Planned::new((command, rows.get), &[b"get", key], form, ends)
        } else {
            let args: [&[u8]; 4] = [b"mc-gat", key, keys.touch, b"number"];
            let args = &args[..if keys.numbers { 4 } else { 3 }];
            Planned::new((rows.gat, rows.getex), args, form, ends)
        };
        planned.keys = (!is_last).then_some(keys);
        planned
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
            now: Now::lazy(engine.config().clock),
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
    fn call(&self, number: usize) -> Call<'_> {
        self.plan.0[number].call(self.engine, self.db, self.limits)
    }
}
