//! Stock commands and MIDI.* commands side by side: the replies must be the same.

use super::client::{Client, Value, encoded, shown};

/// One connection on which every command is run twice.
pub struct Twin {
    client: Client,
    waiting: Vec<Pair>,
}

/// A command, and its number among the connection's replies.
struct Pair {
    args: Vec<Vec<u8>>,
}

/// How far apart two times of the same key may be, in milliseconds.
const MARGIN_MS: i64 = 5000;

impl Twin {
    /// On this connection, whose protocol and database count for both.
    pub fn new(client: Client) -> Self {
        Twin { client, waiting: Vec::new() }
    }

    /// The connection, for what is not to be compared.
    pub fn client(&mut self) -> &mut Client {
        self.flush();
        &mut self.client
    }

    /// Sends a command both ways; [`Twin::flush`] compares the replies.
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_ref().to_vec()).collect();
        self.waiting.push(Pair { args });
        if self.waiting.len() >= 100 {
            self.flush();
        }
    }

    /// The same with words.
    pub fn push_line(&mut self, line: &str) {
        self.push(&line.split_whitespace().collect::<Vec<_>>());
    }

    /// Runs a command both ways; its reply.
    #[track_caller]
    pub fn same<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.flush();
        let native = self.client.call(args);
        let midi = self.client.call(&prefixed(args));
        compare(args, &native, &midi);
        midi
    }

    /// The same with words.
    #[track_caller]
    pub fn same_line(&mut self, line: &str) -> Value {
        self.same(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Compares what was pushed.
    #[track_caller]
    pub fn flush(&mut self) {
        let pairs = std::mem::take(&mut self.waiting);
        let bytes: Vec<u8> = pairs
            .iter()
            .flat_map(|pair| [encoded(&pair.args), encoded(&prefixed(&pair.args))].concat())
            .collect();
        self.client.send(&bytes);
        for (at, pair) in pairs.iter().enumerate() {
            let (native, midi) = (self.client.read(), self.client.read());
            let before: Vec<_> =
                pairs[at.saturating_sub(8)..at].iter().map(|pair| shown(&pair.args)).collect();
            if !same(&pair.args, &native, &midi) {
                panic!("after {before:#?}\n{}", difference(&pair.args, &native, &midi));
            }
        }
    }

    /// Runs what `body` pushes as one transaction.
    #[track_caller]
    pub fn transaction(&mut self, commands: &[Vec<Vec<u8>>]) {
        self.flush();
        let mut bytes = encoded(&["MULTI"]);
        for args in commands {
            bytes.extend(encoded(args));
            bytes.extend(encoded(&prefixed(args)));
        }
        bytes.extend(encoded(&["EXEC"]));
        self.client.send(&bytes);
        assert_eq!(self.client.read(), Value::ok(), "MULTI");
        for args in commands {
            let (native, midi) = (self.client.read(), self.client.read());
            assert!(same_text(&native, &midi), "queueing {}: {native:?} {midi:?}", shown(args));
        }
        let replies = match self.client.read() {
            Value::Array(replies) => replies,
            Value::Error(_) => return, // A wrong arity, refused at queueing, both ways.
            other => panic!("EXEC: {other:?}"),
        };
        for (args, pair) in commands.iter().zip(replies.chunks_exact(2)) {
            compare(args, &pair[0], &pair[1]);
        }
    }

    /// Runs a command both ways from a script.
    pub fn script<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.flush();
        const CALL: &str = "return redis.pcall(unpack(ARGV))";
        let mut call = |args: &[Vec<u8>]| {
            let mut all = vec![b"EVAL".to_vec(), CALL.into(), b"0".to_vec()];
            all.extend_from_slice(args);
            self.client.call(&all)
        };
        let plain: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_ref().to_vec()).collect();
        let native = call(&plain);
        let midi = call(&prefixed(args));
        compare(args, &native, &midi);
    }
}

/// The command under midi's name, in the case of its own.
pub fn prefixed<A: AsRef<[u8]>>(args: &[A]) -> Vec<Vec<u8>> {
    let mut args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_ref().to_vec()).collect();
    args[0] = [b"midi.", args[0].as_slice()].concat();
    args
}

#[track_caller]
fn compare<A: AsRef<[u8]>>(args: &[A], native: &Value, midi: &Value) {
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_ref().to_vec()).collect();
    if !same(&args, native, midi) {
        panic!("{}", difference(&args, native, midi));
    }
}

fn difference(args: &[Vec<u8>], native: &Value, midi: &Value) -> String {
    format!("{}\n  native: {native:?}\n    midi: {midi:?}", shown(args))
}

/// Whether the replies are the same, as far as the command promises.
fn same(args: &[Vec<u8>], native: &Value, midi: &Value) -> bool {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
    match (name.as_str(), native, midi) {
        ("ttl" | "expiretime", Value::Integer(a), Value::Integer(b)) => near(*a, *b, MARGIN_MS / 1000),
        ("pttl" | "pexpiretime", Value::Integer(a), Value::Integer(b)) => near(*a, *b, MARGIN_MS),
        ("keys", Value::Array(_), Value::Array(_)) => native.clone().sorted() == midi.clone().sorted(),
        ("scan" | "randomkey", a, b) if !a.is_error() => {
            std::mem::discriminant(a) == std::mem::discriminant(b)
        }
        _ => same_text(native, midi),
    }
}

/// -1 and -2 have a meaning of their own.
fn near(a: i64, b: i64, margin: i64) -> bool {
    if a < 0 || b < 0 { a == b } else { a.abs_diff(b) <= margin as u64 }
}

/// Byte for byte, but for the prefix in error texts.
fn same_text(native: &Value, midi: &Value) -> bool {
    match (native, midi) {
        (Value::Error(native), Value::Error(midi)) => {
            String::from_utf8_lossy(native) == String::from_utf8_lossy(midi).replacen("midi.", "", 1)
        }
        _ => native == midi,
    }
}
