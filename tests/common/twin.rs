//! Runs stock commands and MIDI.* commands side by side: the replies must be the same.

use std::time::Instant;

use super::client::{Client, Value, encoded, shown};
use super::door::Door;
use super::fields::same_fields;
use super::hosts::same_answer;

/// A command: its name and its arguments.
pub type Words = Vec<Vec<u8>>;

/// A step that is run both ways on one connection.
#[derive(Clone, Debug)]
pub enum Step {
    /// A command, and midi's version of it.
    Plain(Words),
    /// Commands in one MULTI/EXEC, both ways.
    Transaction(Vec<Words>),
    /// A command from a script, and midi's version of it. Without scripts: sent directly.
    Script(Words),
    /// A command that is sent unchanged, once on each connection, and not compared.
    Alone(Words),
}

impl Step {
    /// Its commands.
    pub fn commands(&self) -> &[Words] {
        match self {
            Step::Plain(args) | Step::Script(args) | Step::Alone(args) => {
                std::slice::from_ref(args)
            }
            Step::Transaction(commands) => commands,
        }
    }

    /// The command that is sent for it.
    fn wire(&self) -> Vec<Words> {
        let both = |commands: &[Words]| {
            commands.iter().flat_map(|args| Exchange::of(args).commands).collect()
        };
        match self {
            Step::Plain(_) => both(self.commands()),
            Step::Script(_) => both(self.commands()).into_iter().map(from_script).collect(),
            Step::Transaction(_) => {
                let mut all = vec![words("MULTI")];
                all.extend::<Vec<Words>>(both(self.commands()));
                all.push(words("EXEC"));
                all
            }
            Step::Alone(args) => vec![args.clone()],
        }
    }

    /// The command for one side that has its own connection.
    fn wire_apart(&self, named: impl Fn(&Words) -> Words) -> Vec<Words> {
        match self {
            Step::Plain(args) | Step::Script(args) => vec![named(args)],
            Step::Alone(args) => vec![args.clone()],
            Step::Transaction(commands) => {
                let mut all = vec![words("MULTI")];
                all.extend(commands.iter().map(named));
                all.push(words("EXEC"));
                all
            }
        }
    }

    /// Compares the replies of two sides.
    fn judge_apart(&self, native: &[Value], midi: &[Value], margin_ms: i64) -> Result<(), String> {
        let check = |args: &Words, native: &Value, midi: &Value| match same(
            args, native, midi, margin_ms,
        ) {
            true => Ok(()),
            false => Err(difference(args, native, midi)),
        };
        let commands = match self {
            Step::Alone(_) => return Ok(()),
            Step::Plain(args) | Step::Script(args) => return check(args, &native[0], &midi[0]),
            Step::Transaction(commands) => commands,
        };
        for (args, (native, midi)) in commands.iter().zip(native[1..].iter().zip(&midi[1..])) {
            if !same_text(native, midi) {
                return Err(format!("when queued: {}", difference(args, native, midi)));
            }
        }
        match (&native[native.len() - 1], &midi[midi.len() - 1]) {
            (Value::Array(native), Value::Array(midi)) if native.len() == midi.len() => commands
                .iter()
                .zip(native.iter().zip(midi))
                .try_for_each(|(args, (native, midi))| check(args, native, midi)),
            (native, midi) => check(&words("EXEC"), native, midi),
        }
    }

    /// Compares the replies to what was sent.
    fn judge(&self, replies: &[Value], margin_ms: i64) -> Result<(), String> {
        match self {
            Step::Plain(args) | Step::Script(args) => {
                Exchange::of(args).judge(args, replies, margin_ms)
            }
            Step::Transaction(commands) => judge_transaction(commands, replies, margin_ms),
            Step::Alone(_) => Ok(()),
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let commands: Vec<String> = self.commands().iter().map(|args| shown(args)).collect();
        match self {
            Step::Plain(_) => write!(f, "{}", commands[0]),
            Step::Script(_) => write!(f, "(script) {}", commands[0]),
            Step::Alone(_) => write!(f, "(once) {}", commands[0]),
            Step::Transaction(_) => write!(f, "MULTI; {}; EXEC", commands.join("; ")),
        }
    }
}

/// Two replies that differ.
#[derive(Debug)]
pub struct Difference {
    /// Index of the step in its batch.
    pub step: usize,
    /// The command and both replies.
    pub text: String,
}

/// One connection on which every command is run twice, or two connections.
pub struct Twin {
    client: Client,
    /// Where midi's commands run, if elsewhere, and their names there.
    midi: Option<(Client, Door)>,
    waiting: Vec<Step>,
    /// The longest time that a batch took: the two sides' times can differ by this much.
    slowest_ms: i64,
}

/// How much more two times of the same key may differ, in milliseconds.
const MARGIN_MS: i64 = 50;

impl Twin {
    /// On this connection, whose protocol and database apply to both.
    pub fn new(client: Client) -> Self {
        Twin { client, midi: None, waiting: Vec::new(), slowest_ms: 0 }
    }

    /// Stock commands on a connection to their own server, midi's on one through this door.
    pub fn apart(client: Client, midi: Client, door: Door) -> Self {
        Twin { midi: Some((midi, door)), ..Twin::new(client) }
    }

    /// Runs a line unchanged on every connection; it must not fail.
    #[track_caller]
    pub fn each(&mut self, line: &str) {
        self.flush();
        let midi = self.midi.as_mut().map(|(client, _)| client);
        for client in [&mut self.client].into_iter().chain(midi) {
            assert!(!client.run(line).is_error(), "{line}");
        }
    }

    /// Runs a line both ways, one after the other; returns both replies, the stock command's first.
    #[track_caller]
    pub fn both(&mut self, line: &str) -> (Value, Value) {
        let native = self.client.run(line);
        let midi = match &mut self.midi {
            None => self.client.call(&prefixed(&words(line))),
            Some((client, door)) => client.call(&door.named(&words(line))),
        };
        (native, midi)
    }

    /// The connection (or that of the stock commands), for commands that are not compared.
    pub fn client(&mut self) -> &mut Client {
        self.flush();
        &mut self.client
    }

    /// Sends a command both ways; [`Twin::flush`] compares the replies.
    #[track_caller]
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.waiting.push(Step::Plain(owned(args)));
        if self.waiting.len() >= 100 {
            self.flush();
        }
    }

    /// The same, given as words.
    #[track_caller]
    pub fn push_line(&mut self, line: &str) {
        self.push(&line.split_whitespace().collect::<Vec<_>>());
    }

    /// Runs a command both ways; returns midi's reply.
    #[track_caller]
    pub fn same<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.flush();
        self.must(&[Step::Plain(owned(args))]).pop().expect("two replies")
    }

    /// The same, given as words.
    #[track_caller]
    pub fn same_line(&mut self, line: &str) -> Value {
        self.same(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Compares the push messages.
    #[track_caller]
    pub fn flush(&mut self) {
        let steps = std::mem::take(&mut self.waiting);
        self.must(&steps);
    }

    /// Runs these commands both ways as one transaction.
    #[track_caller]
    pub fn transaction(&mut self, commands: &[Words]) {
        self.flush();
        self.must(&[Step::Transaction(commands.to_vec())]);
    }

    /// Runs a command both ways from a script.
    #[track_caller]
    pub fn script<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.flush();
        self.must(&[Step::Script(owned(args))]);
    }

    #[track_caller]
    fn must(&mut self, steps: &[Step]) -> Vec<Value> {
        self.batch(steps).unwrap_or_else(|Difference { step, text }| {
            let before: Vec<_> =
                steps[step.saturating_sub(8)..step].iter().map(Step::to_string).collect();
            panic!("after {before:#?}\n{text}")
        })
    }

    /// Sends everything at once; returns all replies, or the first difference among them.
    #[track_caller]
    pub fn batch(&mut self, steps: &[Step]) -> Result<Vec<Value>, Difference> {
        let started = Instant::now();
        if self.midi.is_some() {
            return self.batch_apart(steps, started);
        }
        let commands: Vec<Vec<Words>> = steps.iter().map(Step::wire).collect();
        let bytes: Vec<u8> =
            commands.iter().flatten().map(|args| encoded(args)).collect::<Vec<_>>().concat();
        self.client.send(&bytes);
        let replies: Vec<Value> = commands.iter().flatten().map(|_| self.client.read()).collect();
        self.slowest_ms = self.slowest_ms.max(started.elapsed().as_millis() as i64);
        let mut rest = replies.as_slice();
        for (step, commands) in commands.iter().enumerate() {
            let (own, others) = rest.split_at(commands.len());
            rest = others;
            steps[step]
                .judge(own, self.slowest_ms + MARGIN_MS)
                .map_err(|text| Difference { step, text: format!("{}\n{text}", steps[step]) })?;
        }
        Ok(replies)
    }

    /// The same on two connections; returns midi's replies.
    #[track_caller]
    fn batch_apart(&mut self, steps: &[Step], started: Instant) -> Result<Vec<Value>, Difference> {
        let (client, door) = self.midi.as_mut().expect("two connections");
        let native: Vec<_> = steps.iter().flat_map(|step| step.wire_apart(Words::clone)).collect();
        let midi: Vec<_> =
            steps.iter().flat_map(|step| step.wire_apart(|args| door.named(args))).collect();
        let bytes = |commands: &[Words]| {
            commands.iter().map(|args| encoded(args)).collect::<Vec<_>>().concat()
        };
        self.client.send(&bytes(&native));
        client.send(&bytes(&midi));
        let natives: Vec<Value> = native.iter().map(|_| self.client.read()).collect();
        let midis: Vec<Value> = midi.iter().map(|_| client.read()).collect();
        self.slowest_ms = self.slowest_ms.max(started.elapsed().as_millis() as i64);
        let mut at = 0;
        for (step, what) in steps.iter().enumerate() {
            let own = at..at + what.wire_apart(Words::clone).len();
            at = own.end;
            what.judge_apart(&natives[own.clone()], &midis[own], self.slowest_ms + MARGIN_MS)
                .map_err(|text| Difference { step, text: format!("{what}\n{text}") })?;
        }
        Ok(midis)
    }
}

/// How a command is run both ways.
struct Exchange {
    commands: Vec<Words>,
    /// The replies that must be the same: the index of the stock command's, and of midi's.
    pairs: &'static [(usize, usize)],
}

impl Exchange {
    fn of(args: &Words) -> Self {
        let (native, midi) = (args.clone(), prefixed(args));
        match lower(&args[0]).as_str() {
            // The stock command empties midi, too: midi's runs first, and its effect is compared.
            "flushall" | "flushdb" => Exchange {
                commands: vec![midi, words("MIDI.DBSIZE"), native, words("DBSIZE")],
                pairs: &[(2, 0), (3, 1)],
            },
            // The stock command swaps midi's databases, too: an odd number of swaps in all.
            "swapdb" => {
                Exchange { commands: vec![native, midi.clone(), midi], pairs: &[(0, 1), (0, 2)] }
            }
            _ => Exchange { commands: vec![native, midi], pairs: &[(0, 1)] },
        }
    }

    fn judge(&self, args: &Words, replies: &[Value], margin_ms: i64) -> Result<(), String> {
        match self
            .pairs
            .iter()
            .find(|pair| !same(args, &replies[pair.0], &replies[pair.1], margin_ms))
        {
            None => Ok(()),
            Some(pair) => Err(difference(args, &replies[pair.0], &replies[pair.1])),
        }
    }
}

fn judge_transaction(commands: &[Words], replies: &[Value], margin_ms: i64) -> Result<(), String> {
    let exchanges: Vec<Exchange> = commands.iter().map(Exchange::of).collect();
    let (ends, queued) = (replies.len() - 1, &replies[1..replies.len() - 1]);
    let ran = match &replies[ends] {
        Value::Array(ran) => ran.as_slice(),
        Value::Error(_) => &[], // A wrong arity, refused at queueing, both ways.
        other => return Err(format!("EXEC: {other:?}")),
    };
    let mut at = 0;
    for (args, exchange) in commands.iter().zip(&exchanges) {
        let own = at..at + exchange.commands.len();
        at = own.end;
        for pair in exchange.pairs {
            let (native, midi) = (&queued[own.start + pair.0], &queued[own.start + pair.1]);
            if !same_text(native, midi) {
                return Err(format!("when queued: {}", difference(args, native, midi)));
            }
        }
        if !ran.is_empty() {
            exchange.judge(args, &ran[own], margin_ms)?;
        }
    }
    Ok(())
}

fn from_script(args: Words) -> Words {
    const CALL: &str = "return redis.pcall(unpack(ARGV))";
    let mut all = vec![b"EVAL".to_vec(), CALL.into(), b"0".to_vec()];
    all.extend(args);
    all
}

fn owned<A: AsRef<[u8]>>(args: &[A]) -> Words {
    args.iter().map(|arg| arg.as_ref().to_vec()).collect()
}

/// A command from a line.
pub fn words(line: &str) -> Words {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

/// The command under midi's name, in the original's case.
pub fn prefixed<A: AsRef<[u8]>>(args: &[A]) -> Words {
    let mut args = owned(args);
    args[0] = [b"midi.", args[0].as_slice()].concat();
    args
}

fn difference(args: &[Vec<u8>], native: &Value, midi: &Value) -> String {
    format!("{}\n  native: {native:?}\n    midi: {midi:?}", shown(args))
}

/// Whether the replies are the same, as far as the command guarantees it.
fn same(args: &[Vec<u8>], native: &Value, midi: &Value, margin_ms: i64) -> bool {
    let name = lower(&args[0]);
    match (name.as_str(), native, midi) {
        ("ttl", Value::Integer(a), Value::Integer(b)) => near(*a, *b, margin_ms / 1000 + 1),
        ("pttl", Value::Integer(a), Value::Integer(b)) => near(*a, *b, margin_ms),
        ("expiretime", Value::Integer(a), Value::Integer(b)) => {
            near(*a, *b, if is_fixed(a.saturating_mul(1000)) { 0 } else { margin_ms / 1000 + 1 })
        }
        ("pexpiretime", Value::Integer(a), Value::Integer(b)) => {
            near(*a, *b, if is_fixed(*a) { 0 } else { margin_ms })
        }
        ("keys", Value::Array(_), Value::Array(_)) => {
            native.clone().sorted() == midi.clone().sorted()
        }
        ("scan", Value::Array(a), Value::Array(b)) => same_scan(args, a, b),
        ("hkeys" | "hvals" | "hgetall" | "hscan" | "hrandfield", a, b)
            if !a.is_error() && !b.is_error() =>
        {
            same_fields(&name, args, a, b)
        }
        // Their replies depend on the server: which key, who else holds it, how large it is.
        ("randomkey" | "memory", a, b) if !a.is_error() => same_kind(a, b),
        // Redis remembers which command made a value; midi's encoding depends on the value alone.
        ("object", a, b) if !a.is_error() => same_kind(a, b),
        // DUMP of a hash has its fields in an order of its own, or midi does not have it.
        ("dump", Value::Bulk(a), _) if a.first().is_some_and(|&of| of != 0) => true,
        ("dump", Value::Bulk(a), Value::Bulk(b)) => without_trailer(a) == without_trailer(b),
        _ => same_text(native, midi) || same_answer(&name, native, midi),
    }
}

/// A payload without its version and checksum: every host writes its own version, midi writes
/// Redis 7.0's.
fn without_trailer(payload: &[u8]) -> &[u8] {
    &payload[..payload.len().saturating_sub(10)]
}

fn same_kind(native: &Value, midi: &Value) -> bool {
    std::mem::discriminant(native) == std::mem::discriminant(midi)
}

/// Times in this range were given as absolute ones, so no clock was read: the beginning of the
/// year 2100, in milliseconds.
pub const FIXED_TIMES_MS: std::ops::Range<i64> = 4_102_444_800_000..4_112_444_800_000;

fn is_fixed(at_ms: i64) -> bool {
    FIXED_TIMES_MS.contains(&at_ms)
}

/// A scan that ends at once must return the same keys; otherwise each server has its own cursors.
fn same_scan(args: &[Vec<u8>], native: &[Value], midi: &[Value]) -> bool {
    let ends = |reply: &[Value]| reply.len() == 2 && reply[0] == Value::bulk("0");
    let many = args.windows(2).any(|pair| lower(&pair[0]) == "count" && pair[1].len() > 4);
    let from_start = args.get(1).is_some_and(|cursor| cursor == b"0");
    if !(many && from_start && ends(native) && ends(midi)) {
        return native.len() == midi.len();
    }
    let keys = |reply: &[Value]| {
        let mut keys = reply[1].clone().sorted();
        keys.dedup();
        keys
    };
    keys(native) == keys(midi)
}

/// -1 and -2 have special meanings.
fn near(a: i64, b: i64, margin: i64) -> bool {
    if a < 0 || b < 0 { a == b } else { a.abs_diff(b) <= margin as u64 }
}

/// Byte for byte, except for the prefix in error texts and the name of the setting that a size
/// exceeds.
fn same_text(native: &Value, midi: &Value) -> bool {
    match (native, midi) {
        (Value::Error(native), Value::Error(midi)) => {
            let native = String::from_utf8_lossy(native);
            let midi = String::from_utf8_lossy(midi).replacen("midi.", "", 1);
            native == midi
                || native.contains("maximum allowed size (")
                    && native.split(" (").next() == midi.split(" (").next()
        }
        _ => native == midi,
    }
}
