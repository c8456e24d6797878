//! The commands on hashes of [`super::linear`]'s model. A hash is the text of its fields, sorted,
//! each with its value and its expiry: `f v -`. So keys of all kinds are renamed and copied alike.
//! No expiry passes while clients run: it is far away, or has passed before the command.

use std::collections::BTreeMap;

use super::client::Value;
use super::linear::State;
use super::twin::Words;

/// A value, and the second at which its field expires; `-` for never.
type Field = (String, String);

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("fields and values are words")
}

fn fields(state: &State, key: &[u8]) -> BTreeMap<String, Field> {
    let hash = state.get(key).map(|hash| text(hash)).unwrap_or_default();
    let words: Vec<String> = hash.split_whitespace().map(str::to_owned).collect();
    let field = |three: &[String]| (three[0].clone(), (three[1].clone(), three[2].clone()));
    words.chunks_exact(3).map(field).collect()
}

/// A hash goes with its last field.
fn put(state: &mut State, key: &[u8], fields: &BTreeMap<String, Field>) {
    let texts = fields.iter().map(|(name, (value, due))| format!("{name} {value} {due}"));
    let hash = texts.collect::<Vec<_>>().join(" ");
    if hash.is_empty() {
        state.remove(key);
    } else {
        state.insert(key.to_vec(), hash.into_bytes());
    }
}

/// Executes a command on a hash, and returns its reply, in RESP2; `None` if it is another command.
pub fn run(state: &mut State, args: &Words) -> Option<Value> {
    let key = args[1].as_slice();
    let mut hash = fields(state, key);
    let names: Vec<String> = args[2..].iter().map(|name| text(name)).collect();
    // Behind FIELDS and their number.
    let listed: Vec<String> =
        names.iter().skip_while(|name| *name != "FIELDS").skip(2).cloned().collect();
    let value = |hash: &BTreeMap<String, Field>, name: &String| {
        hash.get(name).map_or(Value::NullBulk, |(value, _)| Value::bulk(value))
    };
    let count = |count: usize| Value::Integer(count as i64);
    let bulks = |texts: Vec<&String>| Value::Array(texts.into_iter().map(Value::bulk).collect());
    let reply = match args[0].as_slice() {
        b"HGET" => value(&hash, &names[0]),
        b"HMGET" => Value::Array(names.iter().map(|name| value(&hash, name)).collect()),
        b"HLEN" => count(hash.len()),
        b"HEXISTS" => count(hash.contains_key(&names[0]).into()),
        b"HSTRLEN" => count(hash.get(&names[0]).map_or(0, |(value, _)| value.len())),
        b"HKEYS" => bulks(hash.keys().collect()),
        b"HVALS" => bulks(sorted(hash.values().map(|(value, _)| value).collect())),
        b"HGETALL" => bulks(hash.iter().flat_map(|(name, (value, _))| [name, value]).collect()),
        b"HEXPIRETIME" => Value::Array(listed.iter().map(|name| expiry(&hash, name)).collect()),
        b"HSET" | b"HSETNX" if args[0] == b"HSETNX" && hash.contains_key(&names[0]) => count(0),
        b"HSET" | b"HSETNX" => {
            let before = hash.len();
            let pairs = names.chunks_exact(2);
            hash.extend(pairs.map(|pair| (pair[0].clone(), (pair[1].clone(), "-".into()))));
            count(hash.len() - before)
        }
        b"HINCRBY" => {
            let (value, due) = hash.entry(names[0].clone()).or_insert(("0".into(), "-".into()));
            let sum = value.parse::<i64>().expect("a number") + 1;
            (*value, *due) = (sum.to_string(), due.clone());
            Value::Integer(sum)
        }
        b"HDEL" => count(names.iter().filter(|name| hash.remove(*name).is_some()).count()),
        b"HGETDEL" => {
            let values = listed.iter().map(|name| value(&hash, name)).collect();
            listed.iter().for_each(|name| drop(hash.remove(name)));
            Value::Array(values)
        }
        b"HEXPIREAT" => {
            let due = names[0].parse::<u64>().expect("a time");
            Value::Array(listed.iter().map(|name| expire(&mut hash, name, due)).collect())
        }
        b"HPERSIST" => Value::Array(listed.iter().map(|name| persist(&mut hash, name)).collect()),
        _ => return None,
    };
    put(state, key, &hash);
    Some(reply)
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

fn expiry(hash: &BTreeMap<String, Field>, name: &str) -> Value {
    Value::Integer(match hash.get(name) {
        None => -2,
        Some((_, due)) => due.parse().unwrap_or(-1),
    })
}

fn expire(hash: &mut BTreeMap<String, Field>, name: &str, due: u64) -> Value {
    const PASSED: u64 = 1_000_000_000;
    Value::Integer(match hash.get_mut(name) {
        None => -2,
        Some(_) if due < PASSED => {
            hash.remove(name);
            2
        }
        Some(field) => {
            field.1 = due.to_string();
            1
        }
    })
}

fn persist(hash: &mut BTreeMap<String, Field>, name: &str) -> Value {
    Value::Integer(match hash.get_mut(name) {
        None => -2,
        Some((_, due)) if due == "-" => -1,
        Some((_, due)) => {
            *due = "-".into();
            1
        }
    })
}

/// The reply with its fields in the order of the model's: midi has them in the order in which they
/// were added, or in that of a table.
pub fn in_order(args: &Words, reply: &Value) -> Value {
    let (Value::Array(list), size) = (reply, if args[0] == b"HGETALL" { 2 } else { 1 }) else {
        return reply.clone();
    };
    match args[0].as_slice() {
        b"HGETALL" | b"HKEYS" | b"HVALS" => {
            Value::Array(sorted(list.chunks(size).collect()).concat())
        }
        _ => reply.clone(),
    }
}
