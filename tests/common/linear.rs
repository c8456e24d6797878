//! Checks whether one order of the clients' commands explains what they saw, each
//! taking effect at one moment between its call and its return: the search of Wing and
//! Gong, with Lowe's cache of the states that were tried in vain.
//!
//! It has its own model of the commands and knows no server.

use std::collections::{BTreeMap, HashSet};

use super::client::Value;
use super::linear_hashes::{self, in_order};
use super::twin::Words;

/// Something a client did.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The client that did it. Its operations take effect in the order of their calls.
    pub client: usize,
    /// The commands; several took effect at the same moment.
    pub commands: Vec<Words>,
    /// Their replies.
    pub replies: Vec<Value>,
    /// When it was sent. From the same clock as `returned`; no two readings are equal.
    pub called: u64,
    /// When its reply had arrived.
    pub returned: u64,
}

/// The existing keys.
pub type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Searches for an order that explains the history, starting from empty databases. If there is
/// none, returns the most operations that could be explained, in their order.
pub fn explain(history: &[Operation]) -> Result<(), Vec<Operation>> {
    let mut history = history.to_vec();
    history.sort_by_key(|operation| operation.called);
    let mut search = Search {
        open: history.len(),
        done: vec![0; history.len().div_ceil(64)],
        history: &history,
        tried: HashSet::new(),
        order: Vec::new(),
        best: Vec::new(),
    };
    match search.go_on(&State::new()) {
        true => Ok(()),
        false => Err(search.best.iter().map(|&at| history[at].clone()).collect()),
    }
}

/// The same for commands on one key each: the keys' histories are independent.
pub fn explain_by_key(history: &[Operation]) -> Result<(), Vec<Operation>> {
    let mut keys: BTreeMap<&[u8], Vec<Operation>> = BTreeMap::new();
    for operation in history {
        assert!(operation.commands.len() == 1 && keys_of(&operation.commands[0]).len() == 1);
        keys.entry(keys_of(&operation.commands[0])[0]).or_default().push(operation.clone());
    }
    keys.values().try_for_each(|history| explain(history))
}

struct Search<'a> {
    history: &'a [Operation],
    /// A bit for every operation that is already placed.
    done: Vec<u64>,
    /// How many are not placed yet.
    open: usize,
    /// States that are known to be dead ends.
    tried: HashSet<(Vec<u64>, State)>,
    order: Vec<usize>,
    best: Vec<usize>,
}

impl Search<'_> {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] & 1 << (at % 64) != 0
    }

    /// Places all remaining operations, starting from this state.
    fn go_on(&mut self, state: &State) -> bool {
        if self.open == 0 {
            return true;
        }
        if !self.tried.insert((self.done.clone(), state.clone())) {
            return false;
        }
        for at in self.candidates() {
            let Some(next) = after(state, &self.history[at]) else { continue };
            self.done[at / 64] |= 1 << (at % 64);
            self.open -= 1;
            self.order.push(at);
            if self.order.len() > self.best.len() {
                self.best.clone_from(&self.order);
            }
            if self.go_on(&next) {
                return true;
            }
            self.order.pop();
            self.open += 1;
            self.done[at / 64] &= !(1 << (at % 64));
        }
        false
    }

    /// The operations that can come next: no unplaced operation had returned before they were
    /// called, and their client's earlier ones are placed.
    fn candidates(&self) -> Vec<usize> {
        let open = || (0..self.history.len()).filter(|&at| !self.is_done(at));
        let first_return = open().map(|at| self.history[at].returned).min().unwrap_or(u64::MAX);
        let mut clients = HashSet::new();
        let mut candidates: Vec<usize> = open()
            .take_while(|&at| self.history[at].called < first_return)
            .filter(|&at| clients.insert(self.history[at].client))
            .collect();
        candidates.sort_by_key(|&at| self.history[at].returned);
        candidates
    }
}

/// The state after the operation, if its replies in this state would be those it got.
fn after(state: &State, operation: &Operation) -> Option<State> {
    let mut state = state.clone();
    let mut pairs = operation.commands.iter().zip(&operation.replies);
    pairs.all(|(args, reply)| run(&mut state, args) == in_order(args, reply)).then_some(state)
}

/// The keys of a command that [`run`] knows.
fn keys_of(args: &Words) -> Vec<&[u8]> {
    if args[0] == b"BITOP" {
        return args[2..].iter().map(Vec::as_slice).collect();
    }
    let step = if matches!(args[0].as_slice(), b"MSET" | b"MSETNX") { 2 } else { 1 };
    let several = matches!(args[0].as_slice(), b"MSET" | b"MSETNX" | b"MGET" | b"DEL" | b"EXISTS");
    let two = matches!(args[0].as_slice(), b"RENAME" | b"RENAMENX" | b"COPY");
    let count = if several { usize::MAX } else { 1 + usize::from(two) };
    args[1..].iter().step_by(step).take(count).map(Vec::as_slice).collect()
}

/// Executes the command on the model and returns its reply, in RESP2.
pub fn run(state: &mut State, args: &Words) -> Value {
    let (name, key) = (args[0].as_slice(), &args[1]);
    match name {
        b"GET" => found(state.get(key)),
        b"SET" => set(state, args),
        b"GETSET" => found(state.insert(key.clone(), args[2].clone()).as_ref()),
        b"GETDEL" => found(state.remove(key).as_ref()),
        b"DEL" => count(keys_of(args).iter().filter(|key| state.remove(**key).is_some()).count()),
        b"EXISTS" => count(keys_of(args).iter().filter(|key| state.contains_key(**key)).count()),
        b"STRLEN" => count(state.get(key).map_or(0, Vec::len)),
        b"APPEND" => {
            let value = state.entry(key.clone()).or_default();
            value.extend_from_slice(&args[2]);
            count(value.len())
        }
        b"INCR" => incr(state, key),
        b"SETBIT" | b"GETBIT" => one_bit(state, args),
        b"BITCOUNT" => count(
            state
                .get(key)
                .map_or(0, |value| value.iter().map(|byte| byte.count_ones() as usize).sum()),
        ),
        b"BITFIELD" => increment_bytes(state, args),
        b"BITOP" => bitop(state, args),
        b"DELIFEQ" => {
            let same = state.get(key) == Some(&args[2]);
            if same {
                state.remove(key);
            }
            count(same.into())
        }
        b"SETNX" => {
            let is_new = !state.contains_key(key);
            if is_new {
                state.insert(key.clone(), args[2].clone());
            }
            count(is_new.into())
        }
        b"RENAME" | b"RENAMENX" | b"COPY" => to_other_key(state, args),
        b"MGET" => Value::Array(keys_of(args).iter().map(|key| found(state.get(*key))).collect()),
        b"MSETNX" if keys_of(args).iter().any(|key| state.contains_key(*key)) => Value::Integer(0),
        b"MSET" | b"MSETNX" => {
            state.extend(args[1..].chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())));
            if name == b"MSET" { Value::ok() } else { Value::Integer(1) }
        }
        _ => linear_hashes::run(state, args)
            .unwrap_or_else(|| panic!("no model of {}", super::shown(args))),
    }
}

fn found(value: Option<&Vec<u8>>) -> Value {
    value.map_or(Value::NullBulk, Value::bulk)
}

fn count(number: usize) -> Value {
    Value::Integer(number as i64)
}

/// SET key value [NX | XX] [GET].
fn set(state: &mut State, args: &Words) -> Value {
    let has = |word: &[u8]| args[3..].iter().any(|option| option == word);
    let old = found(state.get(&args[1]));
    let may = if old.is_null() { !has(b"XX") } else { !has(b"NX") };
    if may {
        state.insert(args[1].clone(), args[2].clone());
    }
    match (has(b"GET"), may) {
        (true, _) => old,
        (false, true) => Value::ok(),
        (false, false) => Value::NullBulk,
    }
}

/// RENAME, RENAMENX and COPY: from argument 1 to argument 2.
fn to_other_key(state: &mut State, args: &Words) -> Value {
    let (copies, always) = (args[0] == b"COPY", args[0] == b"RENAME" || args.len() > 3);
    let Some(value) = state.get(&args[1]).cloned() else {
        return if copies { Value::Integer(0) } else { Value::error("ERR no such key") };
    };
    if !always && state.contains_key(&args[2]) {
        return Value::Integer(0);
    }
    if !copies {
        state.remove(&args[1]);
    }
    state.insert(args[2].clone(), value);
    if args[0] == b"RENAME" { Value::ok() } else { Value::Integer(1) }
}

fn incr(state: &mut State, key: &[u8]) -> Value {
    let old = state.get(key).map_or(Ok("0"), |value| std::str::from_utf8(value));
    match old.ok().and_then(|text| text.parse::<i64>().ok()) {
        None => Value::error("ERR value is not an integer or out of range"),
        Some(old) => {
            state.insert(key.to_vec(), (old + 1).to_string().into_bytes());
            Value::Integer(old + 1)
        }
    }
}

/// SETBIT key offset value, or GETBIT key offset.
fn one_bit(state: &mut State, args: &Words) -> Value {
    let at: usize = String::from_utf8_lossy(&args[2]).parse().expect("made so");
    let (byte, mask) = (at / 8, 0x80 >> (at % 8));
    let old =
        state.get(&args[1]).and_then(|value| value.get(byte)).is_some_and(|byte| byte & mask != 0);
    if let Some(on) = args.get(3) {
        let value = state.entry(args[1].clone()).or_default();
        value.resize(value.len().max(byte + 1), 0);
        value[byte] = if on == b"1" { value[byte] | mask } else { value[byte] & !mask };
    }
    count(old.into())
}

/// BITFIELD key INCRBY u8 #number increment, once or more.
fn increment_bytes(state: &mut State, args: &Words) -> Value {
    let number = |text: &[u8]| {
        String::from_utf8_lossy(text).replace('#', "").parse::<usize>().expect("made so")
    };
    let value = state.entry(args[1].clone()).or_default();
    let sums = args[2..].chunks(4).map(|step| {
        assert!(step[0] == b"INCRBY" && step[1] == b"u8");
        let byte = number(&step[2]);
        value.resize(value.len().max(byte + 1), 0);
        value[byte] = value[byte].wrapping_add(number(&step[3]) as u8);
        count(value[byte].into())
    });
    Value::Array(sums.collect())
}

/// BITOP operation destination source [source].
fn bitop(state: &mut State, args: &Words) -> Value {
    let values: Vec<Vec<u8>> =
        args[3..].iter().map(|key| state.get(key).cloned().unwrap_or_default()).collect();
    let longest = values.iter().map(Vec::len).max().unwrap_or(0);
    let byte = |number: usize, at: usize| values[number].get(at).copied().unwrap_or(0);
    let result: Vec<u8> = (0..longest)
        .map(|at| match args[1].as_slice() {
            b"NOT" => !byte(0, at),
            b"XOR" => byte(0, at) ^ byte(1, at),
            _ => byte(0, at) | byte(1, at),
        })
        .collect();
    state.remove(&args[2]);
    if longest > 0 {
        state.insert(args[2].clone(), result);
    }
    count(longest)
}
