//! Replies of fields, which have no order and may be drawn at random.

use std::mem::discriminant;

use super::client::Value;

/// Whether both replies have the same fields, as far as the command says which ones.
pub fn same_fields(name: &str, args: &[Vec<u8>], native: &Value, midi: &Value) -> bool {
    match (name, native, midi) {
        ("hgetall", Value::Map(a), Value::Map(b)) => {
            let sorted = |pairs: &[(Value, Value)]| {
                let mut pairs = pairs.to_vec();
                pairs.sort();
                pairs
            };
            sorted(a) == sorted(b)
        }
        ("hkeys" | "hvals", Value::Array(a), Value::Array(b)) => sorted(a, 1) == sorted(b, 1),
        ("hgetall", Value::Array(a), Value::Array(b)) => sorted(a, 2) == sorted(b, 2),
        ("hscan", Value::Array(a), Value::Array(b)) => same_scan(args, a, b),
        ("hrandfield", Value::Array(a), Value::Array(b)) => same_draw(args, a, b),
        // One field, or none.
        _ => discriminant(native) == discriminant(midi),
    }
}

/// The elements in groups of this size, sorted.
fn sorted(list: &[Value], size: usize) -> Vec<&[Value]> {
    let mut groups: Vec<&[Value]> = list.chunks(size).collect();
    groups.sort();
    groups
}

/// A scan that ends at once must return the same; otherwise each server has its own cursors.
fn same_scan(args: &[Vec<u8>], native: &[Value], midi: &[Value]) -> bool {
    let fields = |reply: &[Value]| match reply {
        [next, Value::Array(fields)] => Some((*next == Value::bulk("0"), fields.clone())),
        _ => None,
    };
    let (Some((native_ends, native)), Some((midi_ends, midi))) = (fields(native), fields(midi))
    else {
        return false;
    };
    if !(args[2] == b"0" && native_ends && midi_ends) {
        return true;
    }
    let size = if has_word(args, "novalues") { 1 } else { 2 };
    // A field may be returned twice.
    let each_once = |list: &[Value]| {
        let mut groups: Vec<Vec<Value>> =
            sorted(list, size).into_iter().map(<[Value]>::to_vec).collect();
        groups.dedup();
        groups
    };
    each_once(&native) == each_once(&midi)
}

/// All fields if no fewer are wanted, else as many of the same form.
fn same_draw(args: &[Vec<u8>], native: &[Value], midi: &[Value]) -> bool {
    let form = |list: &[Value]| (list.len(), list.first().map(discriminant));
    if form(native) != form(midi) {
        return false;
    }
    // In RESP3 each pair is an array of its own.
    let is_flat = !matches!(native.first(), Some(Value::Array(_)));
    let size = if has_word(args, "withvalues") && is_flat { 2 } else { 1 };
    let wanted = String::from_utf8_lossy(&args[2]).parse::<i64>().unwrap_or_default();
    (wanted <= (native.len() / size) as i64) || sorted(native, size) == sorted(midi, size)
}

fn has_word(args: &[Vec<u8>], word: &str) -> bool {
    args.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
}
