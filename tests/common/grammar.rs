//! Random commands, valid and invalid. The stock server's COMMAND DOCS say which arguments a
//! command takes, so a command that is added to midi is covered automatically.

use super::client::{Client, Value};
use super::hosts::host;
use super::random::Random;
use super::twin::{FIXED_TIMES_MS, Words};

/// The commands that both midi and the stock server have.
pub struct Grammar {
    shapes: Vec<Shape>,
    /// Indexes of shapes, each as often as its weight.
    urn: Vec<usize>,
    /// Payloads of the stock server's DUMP, for RESTORE.
    dumps: Vec<Vec<u8>>,
    /// Commands of midi that are left out, and why.
    pub left_out: Vec<String>,
}

/// A command or subcommand.
struct Shape {
    name: Vec<String>,
    arguments: Vec<Argument>,
}

/// An argument as COMMAND DOCS describes it.
pub struct Argument {
    /// Its name.
    pub name: String,
    /// `key`, `string`, `oneof` and so on.
    pub kind: String,
    /// The word in front of it, or the word that it consists of.
    pub token: Option<String>,
    /// Optional.
    pub optional: bool,
    /// Can be repeated.
    pub multiple: bool,
    /// The choices of `oneof`, the members of `block`.
    pub inner: Vec<Argument>,
}

/// Stock subcommands that midi does not have, or answers with words of its own.
const OTHER_SUBCOMMANDS: [&str; 7] = [
    "object|help",
    "object|idletime",
    "memory|help",
    "memory|doctor",
    "memory|malloc-stats",
    "memory|purge",
    "memory|stats",
];

/// Commands whose replies and times `tests/host/field_expiry.rs` compares itself.
const OF_FIELD_EXPIRY: [&str; 11] = [
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
];

/// Few keys, so that commands often use the same ones.
const KEYS: [&[u8]; 12] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"counter",
    b"",
    b"\0",
    b"\r\n",
    b"\xff\xfe\0x",
    b"with space",
    b"k[a-c]*?",
    b"a-key-that-is-longer-than-what-a-short-header-of-an-entry-can-tell-in-one-byte-so-that-both-\
      forms-of-headers-are-met-when-it-is-written-read-renamed-and-removed-again-and-again-\
      and-again-and-again-and-again-and-again-and-again-and-again-and-again-and-again-and-again-\
      and-again-and-again-and-on",
];

/// Few fields, so that commands often hit the same ones.
const FIELDS: [&[u8]; 10] =
    [b"a", b"b", b"c", b"n", b"number", b"", b"\0", b"\r\n\xff", b"12", b"-7"];

/// Numbers at the limits, and texts that are almost numbers. None is a time that expires in a run.
const NUMBERS: [&str; 30] = [
    "0",
    "-0",
    "00",
    "-1",
    "-100",
    "+1",
    " 1",
    "1 ",
    "",
    "-",
    "abc",
    "1e3",
    "0x10",
    "1.0",
    "9223372036854775",
    "9223372036854776",
    "-9223372036854775",
    "-9223372036854776",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999",
    "9223370000000000000",
    "2147483648",
    "-4294967297",
    "1\0",
    "\u{661}",
];

const FLOATS: [&str; 24] = [
    "0", "-0", "1", "0.1", "-0.1", "1.5", "3.0e3", "1e-5", "1e17", "-1e17", "1e300", "1.7e308",
    "-1.7e308", "1e5000", "inf", "-inf", "nan", "0x1p3", ".5", "5.", " 1", "1 ", "", "abc",
];

/// Keywords of all commands, for places where they are not expected.
const WORDS: [&str; 25] = [
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "MATCH",
    "COUNT",
    "TYPE",
    "ASYNC",
    "SYNC",
    "REPLACE",
    "ABSTTL",
    "DB",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "FREQ",
    "nosuch",
];

const PATTERNS: [&[u8]; 14] = [
    b"*",
    b"?",
    b"a",
    b"[a-c]",
    b"[^a]*",
    b"*e*",
    b"",
    b"\\*",
    b"[",
    b"[a",
    b"a-key-*",
    b"\0",
    b"*\xfe*",
    b"k\\[a-c\\]\\*\\?",
];

impl Grammar {
    /// Asks the server which commands it has.
    pub fn ask(client: &mut Client) -> Grammar {
        let dumps = [
            "10",
            "text",
            "a longer text that is longer than what is kept in short form",
            "-1",
            "",
        ];
        let dumps = dumps
            .map(|value| {
                assert_eq!(client.call(&["SET", "dumped", value]), Value::ok());
                client.run("DUMP dumped").bytes().to_vec()
            })
            .into();
        client.run("DEL dumped");
        let mut grammar =
            Grammar { shapes: Vec::new(), urn: Vec::new(), dumps, left_out: Vec::new() };
        let mut names: Vec<String> = client
            .run("COMMAND LIST FILTERBY MODULE midi")
            .array()
            .iter()
            .map(Value::text)
            .collect();
        names.sort();
        assert!(names.len() > 20, "midi's commands were not found");
        for name in &names {
            grammar.learn(client, name.strip_prefix("midi.").expect("midi's prefix"));
        }
        grammar
    }

    fn learn(&mut self, client: &mut Client, name: &str) {
        if OF_FIELD_EXPIRY.contains(&name) {
            self.left_out.push(format!("{name}: field_expiry.rs has it"));
            return;
        }
        let docs = client.call(&["COMMAND", "DOCS", name]).map();
        let own = ["info", "help", "slowlog"].contains(&name);
        match docs.get(name).filter(|_| !own) {
            Some(docs) => self.learn_docs(name, docs.clone()),
            None => self.left_out.push(format!("{name}: midi's own")),
        }
    }

    fn learn_docs(&mut self, name: &str, docs: Value) {
        let mut fields = docs.map();
        let mut shapes = Vec::new();
        match fields.remove("subcommands") {
            None => shapes.push(Shape {
                name: vec![name.to_owned()],
                arguments: fields.remove("arguments").map_or(Vec::new(), arguments),
            }),
            Some(subcommands) => {
                let mut subcommands: Vec<_> = subcommands.map().into_iter().collect();
                subcommands.sort_by(|a, b| a.0.cmp(&b.0));
                subcommands.retain(|(name, _)| !OTHER_SUBCOMMANDS.contains(&name.as_str()));
                shapes.extend(subcommands.into_iter().map(|(name, docs)| Shape {
                    name: name.split('|').map(str::to_owned).collect(),
                    arguments: docs.map().remove("arguments").map_or(Vec::new(), arguments),
                }));
            }
        }
        for shape in shapes {
            let number = self.shapes.len();
            self.urn.extend(std::iter::repeat_n(number, weight(name)));
            self.shapes.push(shape);
        }
    }

    /// The names of the commands that are drawn from.
    pub fn names(&self) -> Vec<String> {
        self.shapes.iter().map(|shape| shape.name.join(" ")).collect()
    }

    /// A random command.
    pub fn draw(&self, random: &mut Random) -> Words {
        loop {
            let shape = &self.shapes[self.urn[random.below(self.urn.len())]];
            let mut args: Words = shape.name.iter().map(|word| any_case(word, random)).collect();
            self.draw_arguments(shape, random, &mut args);
            // For queued commands and those from a script, the server itself checks its own
            // subcommands; of midi's it knows the first word only.
            if random.below(12) == 0 && shape.name.len() == 1 {
                spoil(&mut args, random);
            }
            if !is_unfit(&args) {
                return args;
            }
        }
    }

    fn draw_arguments(&self, shape: &Shape, random: &mut Random, args: &mut Words) {
        let (required, mut options): (Vec<_>, Vec<_>) =
            shape.arguments.iter().partition(|argument| !argument.optional);
        for argument in required {
            self.draw_argument(&shape.name[0], argument, random, args);
        }
        // Options come in any order. Often all of them are left out.
        let share = if random.below(3) == 0 { 0 } else { 1 + random.below(3) };
        while !options.is_empty() {
            let option = options.swap_remove(random.below(options.len()));
            if random.below(4) < share {
                self.draw_argument(&shape.name[0], option, random, args);
            }
        }
    }

    fn draw_argument(
        &self,
        command: &str,
        argument: &Argument,
        random: &mut Random,
        args: &mut Words,
    ) {
        let times = if argument.multiple { 1 + random.below(4) } else { 1 };
        for _ in 0..times {
            if let Some(token) = &argument.token {
                args.push(any_case(token, random));
            }
            match argument.kind.as_str() {
                "pure-token" => {}
                "oneof" => {
                    let chosen = &argument.inner[random.below(argument.inner.len())];
                    self.draw_argument(command, chosen, random, args);
                }
                "block" => {
                    argument
                        .inner
                        .iter()
                        .for_each(|inner| self.draw_argument(command, inner, random, args));
                }
                kind => args.push(self.draw_word(command, &argument.name, kind, random)),
            }
        }
    }

    fn draw_word(&self, command: &str, argument: &str, kind: &str, random: &mut Random) -> Vec<u8> {
        let text = match (command, argument, kind) {
            (_, _, "key") => return key(random),
            (_, _, "pattern") => return PATTERNS[random.below(PATTERNS.len())].to_vec(),
            ("restore", "serialized-value", _) => return self.dump(random),
            ("scan", "type", _) => random.pick(&["string", "STRING", "hash", "nosuch"]).to_owned(),
            ("scan", "cursor", _) if random.below(4) > 0 => "0".to_owned(),
            ("scan", "count", _) if random.below(4) > 0 => "100000".to_owned(),
            ("hscan", "cursor", _) if random.below(4) > 0 => "0".to_owned(),
            ("hgetdel", "numfields", _) if random.below(8) > 0 => (1 + random.below(4)).to_string(),
            // The host would have to build a reply of so many.
            ("hrandfield", "count", _) if random.below(8) > 0 => {
                (random.below(41) as i64 - 20).to_string()
            }
            ("hrandfield", "count", _) => {
                random.pick(&["0", "-9223372036854775808", "9223372036854775807", "x"]).to_owned()
            }
            (_, "field", _) => return field(random),
            // Not the largest allowed value: the server would allocate it.
            ("setrange", "offset", _) if random.below(6) > 0 => random.below(500).to_string(),
            ("setrange", "offset", _) => {
                random.pick(&["536870912", "536870911x", "-1", "9223372036854775807"]).to_owned()
            }
            ("bitop", "operation", _) => {
                let operations: &[&str] = &[
                    "and", "or", "xor", "not", "AND", "Or", "nosuch", "diff", "Diff1", "ANDOR",
                    "one",
                ];
                operations[random.below(operations.len())].to_owned()
            }
            (_, "encoding", _) => encoding(random),
            ("setbit" | "getbit" | "bitfield" | "bitfield_ro", "offset", _) => bit_offset(random),
            ("setbit", "value", _) | ("bitpos", "bit", _) if random.below(8) > 0 => {
                random.below(2).to_string()
            }
            (_, "db" | "destination-db" | "index1" | "index2", _) => random
                .pick(&["0", "1", "2", "3", "0", "1", "15", "16", "-1", "abc", "99999999999"])
                .to_owned(),
            (_, "seconds" | "milliseconds" | "ttl", "integer") => relative_time(argument, random),
            (_, _, "unix-time") => fixed_time(argument, random),
            (_, _, "double") => random.pick(&FLOATS).to_owned(),
            (_, _, "integer") => integer(random),
            _ => return value(random),
        };
        text.into_bytes()
    }

    fn dump(&self, random: &mut Random) -> Vec<u8> {
        let mut dump = self.dumps[random.below(self.dumps.len())].clone();
        if random.below(5) == 0 {
            let at = random.below(dump.len());
            dump[at] ^= 1 << random.below(8);
        }
        dump
    }
}

/// The field `arguments` of COMMAND DOCS.
pub fn arguments(list: Value) -> Vec<Argument> {
    list.array().into_iter().map(argument).collect()
}

fn argument(docs: Value) -> Argument {
    let mut fields = docs.map();
    let flags: Vec<String> = fields
        .remove("flags")
        .map_or(Vec::new(), |flags| flags.array().iter().map(Value::text).collect());
    Argument {
        name: fields["name"].text(),
        kind: fields["type"].text(),
        token: fields.get("token").map(Value::text),
        optional: flags.iter().any(|flag| flag == "optional"),
        multiple: flags.iter().any(|flag| flag == "multiple"),
        inner: fields.remove("arguments").map_or(Vec::new(), arguments),
    }
}

/// How often a command is drawn, relative to others.
fn weight(name: &str) -> usize {
    match name {
        "flushall" | "flushdb" | "swapdb" => 1,
        "keys" | "scan" | "randomkey" | "dbsize" => 4,
        "set" => 40,
        "get" | "pttl" => 20,
        _ => 10,
    }
}

fn any_case(word: &str, random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => word.to_ascii_uppercase().into_bytes(),
        1 => word
            .bytes()
            .map(|byte| if random.below(2) == 0 { byte.to_ascii_uppercase() } else { byte })
            .collect(),
        _ => word.as_bytes().to_vec(),
    }
}

/// One of the few keys, some more often than others.
pub fn key(random: &mut Random) -> Vec<u8> {
    let among = if random.below(3) > 0 { 5 } else { KEYS.len() };
    KEYS[random.below(among)].to_vec()
}

/// All keys that can be drawn.
pub fn all_keys() -> impl Iterator<Item = Vec<u8>> {
    KEYS.iter().map(|key| key.to_vec())
}

/// One of the few fields, or any other.
fn field(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => value(random),
        // So many in all that hashes change their form.
        1..4 => format!("field:{}", random.below(700)).into_bytes(),
        _ => FIELDS[random.below(FIELDS.len())].to_vec(),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    let mut bytes = |len: usize| (0..len).map(|_| random.next() as u8).collect::<Vec<u8>>();
    match bytes(1)[0] {
        0..80 => integer(random).into_bytes(),
        80..110 => random.pick(&FLOATS).as_bytes().to_vec(),
        110..130 => random.pick(&WORDS).as_bytes().to_vec(),
        130..200 => {
            let len = random.below(24);
            (0..len).map(|_| b'a' + random.below(3) as u8).collect()
        }
        200..240 => bytes(1)[..].repeat(random.below(40)),
        240..254 => {
            let len = random.below(500);
            (0..len).map(|_| random.next() as u8).collect()
        }
        // Above the sizes at which replies are built elsewhere and arguments are kept.
        _ => {
            let len = 20_000 + random.below(30_000);
            vec![b'a' + random.below(3) as u8; len]
        }
    }
}

fn integer(random: &mut Random) -> String {
    match random.below(4) {
        0 => random.pick(&NUMBERS).to_owned(),
        _ => (random.below(41) as i64 - 20).to_string(),
    }
}

/// An integer type of BITFIELD.
fn encoding(random: &mut Random) -> String {
    match random.below(12) {
        0 => random.pick(&["u64", "i65", "u0", "u", "8", "U8", "i-1", "u08", ""]).to_owned(),
        1 => random.pick(&["u63", "i64", "u1", "i1"]).to_owned(),
        2..7 => format!("u{}", 1 + random.below(63)),
        _ => format!("i{}", 1 + random.below(64)),
    }
}

/// Not the largest allowed offset: the server would allocate the value.
fn bit_offset(random: &mut Random) -> String {
    match random.below(12) {
        0 => random
            .pick(&["4294967296", "-1", "#-1", "9223372036854775807", "1x", "#", "##1", ""])
            .to_owned(),
        1..4 => format!("#{}", random.below(60)),
        _ => random.below(3000).to_string(),
    }
}

/// Far in the future and never the same twice: two clocks must not decide which is later.
fn relative_time(argument: &str, random: &mut Random) -> String {
    if random.below(6) == 0 {
        return random.pick(&NUMBERS).to_owned();
    }
    let seconds = 10_000_000 + random.below(1 << 27);
    if argument == "seconds" { seconds.to_string() } else { (seconds * 1000).to_string() }
}

/// Far in the past, or one of a few in the range that needs no clock.
fn fixed_time(argument: &str, random: &mut Random) -> String {
    let (start, end) = (FIXED_TIMES_MS.start, FIXED_TIMES_MS.end);
    let at = start + (random.below(8) as i64) * (end - start) / 8 + random.below(2) as i64 * 500;
    match random.below(12) {
        0 => random.pick(&NUMBERS).to_owned(),
        1 => random.pick(&["1", "1000", "-1"]).to_owned(),
        _ if argument.ends_with("milliseconds") => at.to_string(),
        _ => (at / 1000).to_string(),
    }
}

/// Changes a command so that it is usually invalid.
fn spoil(args: &mut Words, random: &mut Random) {
    let at = 1 + random.below(args.len());
    match random.below(6) {
        0 => args.truncate(at),
        1 if at < args.len() => drop(args.remove(at)),
        2 if at < args.len() => args[at] = random.pick(&NUMBERS).as_bytes().to_vec(),
        3 if at < args.len() => args.insert(at, args[at].clone()),
        4 => args.insert(at, value(random)),
        _ => args.insert(at, random.pick(&WORDS).as_bytes().to_vec()),
    }
}

/// Commands whose argument 2 is a time.
const TIME_FIRST: [&str; 5] = ["expire", "pexpire", "setex", "psetex", "restore"];

/// Other commands that can give the key at argument 1 a time to live.
const TIME_LATER: [&str; 4] = ["set", "getex", "expireat", "pexpireat"];

fn is_one_of(word: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether a key could get a time to live so short that it expires while others read it, or
/// could expire without being one of the keys that are compared. Also whether the server would
/// compute something that C leaves undefined (RESTORE does not check that its time fits
/// 64 bits), or whether the result depends on two clocks.
fn is_unfit(args: &[Vec<u8>]) -> bool {
    if is_answered_twice(args)
        || is_of_large_offset(args)
        || is_newer_bitop(args)
        || draws_without_end(args)
    {
        return true;
    }
    let time_first = is_one_of(&args[0], &TIME_FIRST);
    let takes_time = time_first || is_one_of(&args[0], &TIME_LATER);
    if takes_time && args.len() > 1 && !KEYS.contains(&args[1].as_slice()) {
        return true;
    }
    (2..args.len()).any(|at| {
        let number = std::str::from_utf8(&args[at]).ok().and_then(|text| text.parse::<i64>().ok());
        let is_time = time_first && at == 2 || is_one_of(&args[at - 1], &["ex", "px"]);
        let overflows =
            |number: i64| is_one_of(&args[0], &["restore"]) && number > FIXED_TIMES_MS.end;
        is_time
            && number.is_some_and(|number| (1..10_000_000).contains(&number) || overflows(number))
    }) || compares_twice(args)
}

/// Whether HRANDFIELD would draw so many fields that the server itself does not come to an end.
fn draws_without_end(args: &[Vec<u8>]) -> bool {
    let count = args.get(2).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
    is_one_of(&args[0], &["hrandfield"]) && count.is_some_and(|count| count < -10_000)
}

/// Whether EXPIRE compares with a time that other commands use, too: the same number is later
/// in the next millisecond, but not in the same one.
fn compares_twice(args: &[Vec<u8>]) -> bool {
    let compares = args.iter().skip(3).any(|word| is_one_of(word, &["gt", "lt"]));
    is_one_of(&args[0], &["expire", "pexpire"])
        && compares
        && is_one_of(&args[2], &NUMBERS)
        && std::str::from_utf8(&args[2])
            .is_ok_and(|text| text.parse().is_ok_and(|number: i64| number > 0))
}

/// Whether Redis 8.6 could answer with the old value and then with an error, too: SET with GET and
/// an invalid digest to compare with. midi answers with the error.
fn is_answered_twice(args: &[Vec<u8>]) -> bool {
    let has = |words: &[&str]| args.iter().skip(3).any(|word| is_one_of(word, words));
    is_one_of(&args[0], &["set"]) && has(&["ifdeq", "ifdne"]) && has(&["get"])
}

/// Whether a bit can be far behind the end of the value, which would grow to up to 512 MB.
fn is_of_large_offset(args: &[Vec<u8>]) -> bool {
    let number = |word: &Vec<u8>| {
        std::str::from_utf8(word).ok()?.trim_start_matches('#').parse::<i64>().ok()
    };
    is_one_of(&args[0], &["setbit", "bitfield"])
        && args[1..].iter().filter_map(number).any(|number| (100_000..1 << 32).contains(&number))
}

/// Whether it is an operation of Redis 8.2 that the host does not have.
fn is_newer_bitop(args: &[Vec<u8>]) -> bool {
    !host().has_newer_bitops()
        && is_one_of(&args[0], &["bitop"])
        && args.get(1).is_some_and(|word| is_one_of(word, &["diff", "diff1", "andor", "one"]))
}
