//! The content of a server's AOF, and the keys that a server must have again after a crash.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use super::client::{Client, Value, shown};
use super::hosts::host;
use super::server::{Server, redis_server};
use super::twin::Words;
use super::wait_until;

/// How often a test kills the server: `MIDI_CRASHES`, or twice.
pub fn crashes() -> u64 {
    let text = std::env::var("MIDI_CRASHES");
    text.map_or(2, |text| text.parse().expect("MIDI_CRASHES"))
}

/// The file that the server appends to.
pub fn incr_file(server: &Server) -> PathBuf {
    let folder = server.dir().join("appendonlydir");
    let mut file = None;
    // Redis 8.6 names it a moment after it has begun to serve clients.
    wait_until("the manifest names an incr file", || {
        let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest"));
        let manifest = manifest.expect("a manifest");
        let line = manifest.lines().rfind(|line| line.contains(" type i"));
        file = line.and_then(|line| line.split(' ').nth(1)).map(|name| folder.join(name));
        file.is_some()
    });
    file.expect("named")
}

/// The commands of a RESP text, and the bytes at its end that are no whole command.
pub fn parse(mut text: &[u8]) -> (Vec<Words>, &[u8]) {
    let mut commands = Vec::new();
    while let Some((command, rest)) = first_command(text) {
        commands.push(command);
        text = rest;
    }
    (commands, text)
}

fn first_command(text: &[u8]) -> Option<(Words, &[u8])> {
    let (count, mut rest) = number(text, b'*')?;
    let mut words = Words::new();
    for _ in 0..count {
        let (length, after) = number(rest, b'$')?;
        let word = after.get(..length)?;
        rest = after[length..].strip_prefix(b"\r\n")?;
        words.push(word.to_vec());
    }
    Some((words, rest))
}

fn number(text: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    let text = text.strip_prefix(&[mark])?;
    let end = text.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(&text[..end]).ok()?.parse().ok()?, &text[end + 2..]))
}

/// The commands of the file that the server appends to, which must be whole.
#[track_caller]
pub fn commands(server: &Server) -> Vec<Words> {
    let text = fs::read(incr_file(server)).expect("the AOF");
    let (commands, rest) = parse(&text);
    assert!(rest.is_empty(), "no RESP: {}", super::text(rest));
    commands
}

/// The same, with the records of each MIDI.JOURNAL in its place, checked for what must be there.
#[track_caller]
pub fn records(server: &Server) -> Vec<Words> {
    let mut all = Vec::new();
    for command in commands(server) {
        if command[0] != b"MIDI.JOURNAL" {
            all.push(command);
            continue;
        }
        assert_eq!(command.len(), 2, "one text");
        let (records, rest) = parse(&command[1]);
        assert!(rest.is_empty(), "no RESP: {}", super::text(rest));
        // See the list in docs/commands/journal.md.
        let needs_2 = |record: &Words| match &record[0][..] {
            b"SETRANGE" => record.len() > 4,
            name => name == b"RESTORE" || name == b"BITOP",
        };
        let needs_5 = |record: &Words| record[0].starts_with(b"H");
        let version = match &records {
            records if records.iter().any(|record| record[0] == b"TRAITS") => "VERSION 6",
            records if records.iter().any(needs_5) => "VERSION 5",
            records if records.iter().any(needs_2) => "VERSION 2",
            _ => "VERSION 1",
        };
        assert_eq!(records[0], super::words(version), "the head of a text");
        assert_eq!(records[1][0], b"SELECT", "what follows it");
        all.extend(records.into_iter().skip(1));
    }
    all
}

/// The records as lines.
pub fn lines(server: &Server) -> Vec<String> {
    records(server).iter().map(|words| shown(words)).collect()
}

/// Waits until the host has given its AOF to the operating system: with `everysec` it may answer
/// before.
pub fn wait_until_written(client: &mut Client) {
    wait_until("the AOF is written", || {
        client.info_number("persistence", "aof_buffer_length") == 0
    });
}

/// Waits until no rewrite runs or is about to; the last one must have succeeded.
pub fn wait_for_rewrite(client: &mut Client) {
    wait_until("the rewrite is done", || {
        let info = client.info("persistence");
        info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0"
    });
    assert_eq!(client.info("persistence")["aof_last_bgrewrite_status"], "ok");
}

/// Rewrites the AOF, and waits until that is done.
pub fn rewrite(client: &mut Client) {
    client.run("BGREWRITEAOF");
    wait_for_rewrite(client);
}

/// A key's value, expiry and encoding.
type Facts = (Value, i64, Value);

/// The keys of a server.
#[derive(PartialEq)]
pub struct State {
    /// By database and name.
    keys: BTreeMap<(u32, Vec<u8>), Facts>,
    digest: Value,
    /// Of the host's own keys.
    of_host: Value,
}

impl State {
    /// Reads it through the host's door.
    pub fn of(client: &mut Client) -> State {
        let mut keys = BTreeMap::new();
        for db in 0..16 {
            client.ok(&format!("SELECT {db}"));
            read_keys(client, db, &mut keys);
        }
        client.ok("SELECT 0");
        let digest = client.run("MIDI.KEYSPACEDIGEST");
        State { keys, digest, of_host: client.run("DEBUG DIGEST") }
    }

    /// The number of keys of midi's.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Fails the test if the other state is different.
    #[track_caller]
    pub fn must_equal(&self, other: &State, what: &str) {
        let differ = |key: &&(u32, Vec<u8>)| self.keys.get(*key) != other.keys.get(*key);
        let all = self.keys.keys().chain(other.keys.keys());
        let different: Vec<String> = all
            .filter(differ)
            .take(5)
            .map(|key| format!("{key:?}: {:?}, now {:?}", self.keys.get(key), other.keys.get(key)))
            .collect();
        assert!(different.is_empty(), "{what}:\n{}", different.join("\n"));
        assert_eq!(self.digest, other.digest, "{what}: the digest");
        assert_eq!(self.of_host, other.of_host, "{what}: the host's own keys");
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys, {:?}", self.len(), self.digest)
    }
}

/// Reads the keys of a database, once those that have expired are gone.
fn read_keys(client: &mut Client, db: u32, keys: &mut BTreeMap<(u32, Vec<u8>), Facts>) {
    let mut names = Vec::new();
    wait_until("expired keys are gone", || {
        names = client.run("MIDI.KEYS *").array();
        client.integer("MIDI.DBSIZE") == names.len() as i64
    });
    let questions: Vec<Words> = names
        .iter()
        .flat_map(|name| {
            let ask = |words: &str| {
                let mut command = super::words(words);
                command.push(name.bytes().to_vec());
                command
            };
            [ask("MIDI.GET"), ask("MIDI.PEXPIRETIME"), ask("MIDI.OBJECT ENCODING")]
        })
        .collect();
    let answers = client.pipeline(&questions);
    for (name, facts) in names.iter().zip(answers.chunks(3)) {
        let is_hash = facts[0].is_error();
        let value = if is_hash { fields(client, name.bytes()) } else { facts[0].clone() };
        let facts = (value, facts[1].integer(), facts[2].clone());
        keys.insert((db, name.bytes().to_vec()), facts);
    }
}

/// A hash's fields and values, in an order that depends on them alone.
fn fields(client: &mut Client, name: &[u8]) -> Value {
    let flat = client.call(&[b"MIDI.HGETALL".as_slice(), name]).array();
    let mut pairs: Vec<Value> = flat.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect();
    pairs.sort();
    Value::Array(pairs)
}

/// kill -9, a new start, and a client.
pub fn crash(server: &mut Server) -> Client {
    server.crash();
    server.restart(redis_server());
    server.client()
}

/// Crashes the server, which must have the same again. Nothing may be under way.
#[track_caller]
pub fn survives(server: &mut Server, what: &str) -> Client {
    let mut client = server.client();
    let before = State::of(&mut client);
    wait_until_written(&mut client);
    let mut client = crash(server);
    before.must_equal(&State::of(&mut client), what);
    client
}

/// The host's tool that checks and repairs an AOF: the server under another name.
pub fn check_tool(server: &Server) -> PathBuf {
    let name = if host().valkey { "valkey-check-aof" } else { "redis-check-aof" };
    let path = server.dir().join(name);
    if !path.exists() {
        std::os::unix::fs::symlink(redis_server(), &path).expect("a link");
    }
    path
}
