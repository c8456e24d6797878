//! Random programs: commands on few keys, of every shape, and time that passes.

use proptest::prelude::*;

use super::model::{DATABASES, KEEP_BYTES, START};

#[derive(Clone, Debug)]
pub enum Step {
    Command(Vec<Vec<u8>>),
    /// Time passes.
    Later(i64),
    Select(u32),
    SwapDbs(u32, u32),
    DbSize,
    RandomKey,
    Keys(&'static str, fn(&[u8]) -> bool),
    /// A whole SCAN, with commands between its calls.
    Scan(usize, Vec<Vec<Vec<u8>>>),
}

pub fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Few keys, so that commands hit each other's: most are short, and some have every shape of an
/// entry.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        40 => (0..30u32).prop_map(|n| format!("key:{n}").into_bytes()),
        20 => (0..3000u32).prop_map(|n| format!("many:{n}").into_bytes()),
        1 => Just(Vec::new()),
        1 => Just(vec![0xff; 255]),
        1 => Just(b"\0\r\n".repeat(100)),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        8 => 0..40usize,
        2 => 250..260usize,
        1 => 1000..1010usize,
        2 => Just(KEEP_BYTES - 1),
        2 => KEEP_BYTES..KEEP_BYTES + 3,
    ];
    (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
}

fn number() -> impl Strategy<Value = String> {
    let odd = &[
        "0",
        "-1",
        "abc",
        "",
        "01",
        "9223372036854775807",
        "9223372036854775",
        "-9223372036854775808",
    ];
    prop_oneof![
        12 => (1..20i64).prop_map(|n| n.to_string()),
        6 => (1..20_000i64).prop_map(|n| n.to_string()),
        1 => (-20_000..0i64).prop_map(|n| n.to_string()),
        2 => proptest::sample::select(&odd[..]).prop_map(str::to_owned),
    ]
}

/// An expiry time, near the start of the clock.
fn moment() -> impl Strategy<Value = String> {
    (-5_000..30_000i64).prop_map(|ms| (START + ms).to_string())
}

fn set_option() -> impl Strategy<Value = Vec<String>> {
    let word = |word: &str| Just(vec![word.to_owned()]).boxed();
    let with = |word: &'static str, number: BoxedStrategy<String>| {
        number.prop_map(move |number| vec![word.to_owned(), number]).boxed()
    };
    prop_oneof![
        3 => word("nx"),
        3 => word("XX"),
        4 => word("Get"),
        4 => word("keepTTL"),
        4 => with("ex", number().boxed()),
        4 => with("PX", number().boxed()),
        2 => with("exat", moment().prop_map(|ms| ms[..ms.len() - 3].to_owned()).boxed()),
        2 => with("PXAT", moment().boxed()),
        1 => with("pxat", number().boxed()),
        1 => word("ex"),
        1 => word("nonsense"),
    ]
}

fn set_options() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let how_many = prop_oneof![3 => 0..1usize, 3 => 1..2usize, 2 => 2..4usize];
    how_many
        .prop_flat_map(|count| proptest::collection::vec(set_option(), count))
        .prop_map(|options| options.into_iter().flatten().map(String::into_bytes).collect())
}

fn expire_conditions() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = proptest::sample::select(&["nx", "XX", "gt", "LT", "gt", "lt", "what"][..]);
    proptest::collection::vec(word.prop_map(|word| word.as_bytes().to_vec()), 0..3)
}

/// Usually the number of a database.
fn db_number() -> impl Strategy<Value = Vec<u8>> {
    const ODD: &[&str] =
        &["-1", "3", "01", "x", "2147483648", "-2147483649", "9223372036854775808"];
    prop_oneof![
        15 => (0..DATABASES).prop_map(|db| db.to_string().into_bytes()),
        1 => proptest::sample::select(ODD).prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn copy_options() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let option = prop_oneof![
        6 => Just(words(&["Replace"])),
        6 => db_number().prop_map(|db| vec![b"db".to_vec(), db]),
        1 => Just(words(&["db"])),
        1 => Just(words(&["what"])),
    ];
    proptest::collection::vec(option, 0..3).prop_map(|options| options.concat())
}

/// Commands about bits.
fn bits() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let offset = || prop_oneof![8 => 0..300i64, 2 => 0..9000i64];
    let last = i64::MAX - 1;
    let end = || prop_oneof![4 => offset(), 2 => -300..0i64, 1 => Just(i64::MIN), 1 => Just(last)];
    let range = prop_oneof![
        1 => Just(String::new()),
        3 => (end(), end()).prop_map(|(start, end)| format!(" {start} {end} BIT")),
    ];
    let far = proptest::sample::select(&["-1", "80000", "abc"][..]);
    let combined = [
        "bitop and KEY OTHER KEY",
        "bitop or OTHER KEY OTHER",
        "bitop xor KEY OTHER",
        "bitop not KEY OTHER",
        "bitop or KEY many:1 many:2 OTHER",
    ];
    let combined = proptest::sample::select(combined.to_vec());
    let line = prop_oneof![
        4 => (offset(), 0..2).prop_map(|(at, bit)| format!("setbit KEY {at} {bit}")),
        2 => offset().prop_map(|at| format!("getbit KEY {at}")),
        1 => far.prop_map(|at| format!("setbit KEY {at} 1")),
        2 => range.clone().prop_map(|range| format!("bitcount KEY{range}")),
        2 => (0..2, range).prop_map(|(bit, range)| format!("bitpos KEY {bit}{range}")),
        2 => (offset(), -9..9)
            .prop_map(|(at, more)| format!("bitfield KEY incrby u16 {at} {more}")),
        2 => combined.prop_map(str::to_owned),
    ];
    (line, key(), key()).prop_map(|(line, first, second)| {
        let word = |word: &str| match word {
            "KEY" => first.clone(),
            "OTHER" => second.clone(),
            word => word.as_bytes().to_vec(),
        };
        line.split(' ').map(word).collect()
    })
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = |names: &'static [&'static str]| {
        (proptest::sample::select(names), key()).prop_map(|(name, key)| vec![name.into(), key])
    };
    let one_of = |names: &'static [&'static str]| proptest::sample::select(names);
    let many = |names: &'static [&'static str]| {
        (proptest::sample::select(names), proptest::collection::vec(key(), 1..6))
            .prop_map(|(name, keys)| [words(&[name]), keys].concat())
    };
    prop_oneof![
        6 => one(&["get", "type", "ttl", "pttl", "expiretime", "pexpiretime", "persist"]),
        8 => (key(), value(), set_options())
            .prop_map(|(key, value, options)| {
                [vec![b"set".to_vec(), key, value], options].concat()
            }),
        3 => many(&["mget", "exists", "touch", "del", "unlink", "mset"]),
        3 => proptest::collection::vec((key(), value()), 1..5).prop_map(|pairs| {
            let pairs = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            [words(&["mset"]), pairs.collect()].concat()
        }),
        4 => (one_of(&["expire", "pexpire"]), key(), number(), expire_conditions())
            .prop_map(|(name, key, number, conditions)| {
                [vec![name.into(), key, number.into_bytes()], conditions].concat()
            }),
        2 => (key(), prop_oneof![3 => moment(), 1 => number()], expire_conditions())
            .prop_map(|(key, number, conditions)| {
                [vec![b"pexpireat".to_vec(), key, number.into_bytes()], conditions].concat()
            }),
        1 => (key(), moment(), expire_conditions()).prop_map(|(key, ms, conditions)| {
            let seconds = ms.as_bytes()[..ms.len() - 3].to_vec();
            [vec![b"expireat".to_vec(), key, seconds], conditions].concat()
        }),
        2 => (proptest::sample::select(&["rename", "renamenx"][..]), key(), key())
            .prop_map(|(name, from, to)| vec![name.into(), from, to]),
        2 => (key(), key(), copy_options())
            .prop_map(|(from, to, options)| [vec![b"copy".to_vec(), from, to], options].concat()),
        2 => (key(), db_number()).prop_map(|(key, db)| vec![b"move".to_vec(), key, db]),
        4 => bits(),
        1 => (key(), value()).prop_map(|(key, value)| vec![b"delifeq".to_vec(), key, value]),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    type Test = fn(&[u8]) -> bool;
    const PATTERNS: [(&str, Test); 4] = [
        ("*", |_| true),
        ("key:1?", |key| key.len() == 6 && key.starts_with(b"key:1")),
        ("many:*", |key| key.starts_with(b"many:")),
        ("nothing", |_| false),
    ];
    prop_oneof![
        400 => command().prop_map(Step::Command),
        20 => prop_oneof![3 => 0..20i64, 1 => 0..10_000i64].prop_map(Step::Later),
        6 => (0..DATABASES).prop_map(Step::Select),
        2 => (0..DATABASES, 0..DATABASES).prop_map(|(a, b)| Step::SwapDbs(a, b)),
        2 => (db_number(), db_number())
            .prop_map(|(a, b)| Step::Command(vec![b"swapdb".to_vec(), a, b])),
        8 => Just(Step::DbSize),
        8 => Just(Step::RandomKey),
        4 => proptest::sample::select(&PATTERNS[..])
            .prop_map(|(text, matches)| Step::Keys(text, matches)),
        4 => (1..50usize, proptest::collection::vec(command(), 0..60))
            .prop_map(|(count, between)| Step::Scan(count, between)),
        2 => (0..400u32, 0..30u32).prop_map(|(count, size)| {
            Step::Command(words(&["populate", &count.to_string(), "many", &size.to_string()]))
        }),
        1 => proptest::sample::select(&["flushdb", "flushall"][..])
            .prop_map(|name| Step::Command(words(&[name]))),
        1 => Just(Step::Command(words(&["flushdb", "SYNC"]))),
    ]
}
