//! The promise: the memcached port answers as a real memcached does, byte for byte, to random
//! requests, in pipelines and pieces. What differs by design is made alike before it is compared:
//! numbers of changes, and the spaces with which memcached fills up a number that became shorter.
//!
//! Environment: `MIDI_MEMCACHED` (the program), `MIDI_MEMCACHED_REQUESTS` (how many in each mode)
//! and `MIDI_MEMCACHED_SEED`.

use std::process::{Child, Command, Stdio};

use crate::common::memcached::{Memcached, WithMemcached};
use crate::common::{Mode, Random, free_port, skip, wait_until};

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().expect(name))
}

struct Real {
    process: Child,
    port: u16,
}

impl Real {
    fn start() -> Option<Self> {
        let program = std::env::var("MIDI_MEMCACHED").unwrap_or_else(|_| "memcached".to_owned());
        let port = free_port();
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-u", "root", "-p"]);
        command.arg(port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().ok()?;
        let real = Real { process, port };
        wait_until("memcached listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(real)
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const KEYS: [&str; 6] = ["a", "b", "c", "long-key", "n", "m"];
/// Those that are counted and nothing is appended to: memcached would append behind its spaces.
const COUNTED: [&str; 2] = ["n", "m"];
const APPENDED: [&str; 4] = ["a", "b", "c", "long-key"];
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "5",
    "65535",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "-1",
    "x",
    "+3",
    "1x",
    "18446744073709551616",
];
const TIMES: [&str; 8] = ["0", "100", "2592000", "-1", "1000", "x", "4000000000", "+100"];

/// Some flags of a meta command, each once, in any order, and the opaque one with an argument.
fn flags(random: &mut Random, which: &[&str]) -> String {
    let mut text = String::new();
    let mut taken = Vec::new();
    for _ in 0..random.below(5) {
        let flag = random.pick(which);
        if !taken.contains(&flag.as_bytes()[0]) || random.below(40) == 0 {
            taken.push(flag.as_bytes()[0]);
            text += &format!("{}{flag}", if random.below(20) == 0 { "  " } else { " " });
        }
    }
    text
}

/// Keys in base64; none of them is one that text commands have: memcached would then give it
/// in base64 to them, too.
const BASE64_KEYS: [&str; 4] = ["AP8=", "Zm9vIGJhcg==", "eA==", "!!!!"];
/// Those that are marked: memcached forgets the marks of a number that becomes longer.
const MARKED: [&str; 4] = ["a", "b", "c", "long-key"];

/// A meta request, now and then a wrong one.
fn meta_request(random: &mut Random) -> Vec<u8> {
    let is_base64 = random.below(6) == 0;
    let key_of = |random: &mut Random, keys: &[&'static str]| {
        if is_base64 { random.pick(&BASE64_KEYS) } else { random.pick(keys) }
    };
    let base64 = if is_base64 { " b" } else { "" };
    let end = if random.below(10) == 0 { "\n" } else { "\r\n" };
    let line = match random.below(16) {
        0..6 => {
            let known = [
                "v", "v", "k", "s", "t", "f", "q", "Oabc", "u", "N100", "N0", "T100", "T0", "Px",
                "Ly", "Nx", "T", "z", "I", "M", "F1x", "R30", "R200", "R0",
            ];
            let key = key_of(random, &KEYS);
            let may_renew = !COUNTED.contains(&key);
            let of_key = if may_renew { known.len() } else { known.len() - 3 };
            let mut flags = flags(random, &known[..of_key]);
            if is_base64 {
                // memcached gives the key of an item that it makes as bytes.
                flags = flags.replace(" N", " P");
            }
            format!("mg {key}{base64}{flags}{end}")
        }
        6..10 => {
            let known = [
                "k",
                "q",
                "O12",
                "T100",
                "T0",
                "T-1",
                "F5",
                "F4294967295",
                "Fx",
                "ME",
                "MA",
                "MP",
                "MR",
                "MS",
                "MX",
                "MAB",
                "C1",
                "C0",
                "Cx",
                "I",
            ];
            let key = key_of(random, &APPENDED);
            let flags = flags(random, &known);
            let value = random.pick(&["", "1", "10", "value", "a\r\nb"]);
            let len = value.len() + usize::from(random.below(30) == 0);
            format!("ms {key} {len}{base64}{flags}{end}{value}\r\n")
        }
        10..12 => {
            let known = ["k", "q", "Ox", "I", "I", "T100", "T0", "C5", "Cx", "z"];
            let (key, flags) = (key_of(random, &MARKED), flags(random, &known));
            format!("md {key}{base64}{flags}{end}")
        }
        12..15 => {
            let known = [
                "k",
                "Ox",
                "v",
                "v",
                "t",
                "N100",
                "N0",
                "J10",
                "J18446744073709551615",
                "Jx",
                "D5",
                "D18446744073709551615",
                "D",
                "T100",
                "MI",
                "M+",
                "MD",
                "M-",
                "MX",
                "C7",
            ];
            let (key, flags) = (random.pick(&COUNTED), flags(random, &known));
            format!("ma {key}{flags}{end}")
        }
        _ => {
            let line = random.pick(&[
                "mn",
                "mn x",
                "mg",
                "ms",
                "ms a",
                "md",
                "ma",
                "me",
                "mx a",
                "m",
                "mg a k k",
                "me nosuch",
                "ms a x",
                "ms a -1",
                "mg nosuch q k",
                "mg nosuch k Ofirst",
                "mg a Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            ]);
            format!("{line}{end}")
        }
    };
    line.into_bytes()
}

/// A request of the grammar, now and then a wrong one.
fn request(random: &mut Random) -> Vec<u8> {
    if random.below(2) == 0 { meta_request(random) } else { text_request(random) }
}

fn text_request(random: &mut Random) -> Vec<u8> {
    let key = random.pick(&KEYS);
    let noreply = if random.below(8) == 0 { " noreply" } else { "" };
    let end = if random.below(10) == 0 { "\n" } else { "\r\n" };
    let some_keys = |random: &mut Random| -> String {
        (0..1 + random.below(4)).map(|_| format!(" {}", random.pick(&KEYS))).collect()
    };
    let line = match random.below(12) {
        0..3 => {
            let name = random.pick(&["set", "set", "add", "replace", "append", "prepend"]);
            let appends = matches!(name, "append" | "prepend");
            let key = if appends { random.pick(&APPENDED) } else { key };
            let value =
                random.pick(&["", "1", "10", "99", "value", "a\r\nb", "18446744073709551615"]);
            let (flags, time) = (random.pick(&NUMBERS), random.pick(&TIMES));
            let len = value.len() + usize::from(random.below(30) == 0);
            format!("{name} {key} {flags} {time} {len}{noreply}{end}{value}\r\n")
        }
        3..6 => {
            let name = random.pick(&["get", "get", "gets"]);
            format!("{name}{}{end}", some_keys(random))
        }
        6 => {
            let (name, time) = (random.pick(&["gat", "gats"]), random.pick(&TIMES));
            format!("{name} {time}{}{end}", some_keys(random))
        }
        7 => {
            let (name, number) = (random.pick(&["incr", "decr"]), random.pick(&NUMBERS));
            let key = random.pick(&COUNTED);
            format!("{name} {key} {number}{noreply}{end}")
        }
        8 => {
            let zero = random.pick(&["", "", " 0", " 5"]);
            format!("delete {key}{zero}{noreply}{end}")
        }
        9 => format!("touch {key} {}{noreply}{end}", random.pick(&TIMES)),
        10 => {
            // None that a key may have.
            let number = random.pick(&["18446744073709551615", "4294967296", "0", "x", "-1"]);
            format!("cas {key} 0 0 1 {number}{noreply}{end}x\r\n")
        }
        _ => {
            let line = random.pick(&[
                "verbosity 1",
                "verbosity",
                "nosuch",
                "get",
                "gets",
                "gat",
                "gat 5",
                "set a",
                "incr a",
                "touch a",
                "delete",
                "flush_all x",
                "cache_memlimit 1",
                "cache_memlimit",
                "shutdown",
                "  get  a ",
                "x",
                "",
                "GET a",
                "cas a 0 0 1",
            ]);
            format!("{line}{end}")
        }
    };
    line.into_bytes()
}

/// The flags of a meta reply. A clock may have ticked between the two servers, and a number that
/// became shorter is shorter here.
fn alike_flags(words: &[&str]) -> String {
    let alike = |word: &&str| match word.strip_prefix('t').map(str::parse::<u64>) {
        Some(Ok(seconds)) => format!(" t{}", (seconds + 20) / 50),
        _ if word.starts_with('s') => " s".to_owned(),
        _ => format!(" {word}"),
    };
    words.iter().map(alike).collect()
}

/// A reply with what differs by design made alike.
fn alike(said: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut parts = said.split("\r\n").peekable();
    while let Some(line) = parts.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let is_number = |text: &str| {
            let digits = text.trim_end_matches(' ');
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        match (words[..].as_ref(), parts.peek()) {
            (["VALUE", key, flags, len, rest @ ..], Some(value)) => {
                let number = if rest.is_empty() { "" } else { " N" };
                let is_filled_up = is_number(value) && value.ends_with(' ');
                let len =
                    if is_filled_up { value.trim_end().len().to_string() } else { (*len).into() };
                lines.push(format!("VALUE {key} {flags} {len}{number}"));
                if is_filled_up {
                    lines.push(value.trim_end().into());
                    parts.next();
                }
            }
            (["VA", len, rest @ ..], Some(value)) => {
                let is_filled_up = is_number(value) && value.ends_with(' ');
                let len =
                    if is_filled_up { value.trim_end().len().to_string() } else { (*len).into() };
                lines.push(format!("VA {len}{}", alike_flags(rest)));
                if is_filled_up {
                    lines.push(value.trim_end().into());
                    parts.next();
                }
            }
            ([code @ ("HD" | "NF" | "EX" | "NS" | "EN"), rest @ ..], _) => {
                lines.push(format!("{code}{}", alike_flags(rest)));
            }
            _ => lines.push(line.into()),
        }
    }
    lines.join("\r\n")
}

#[test]
fn random_requests_are_answered_as_memcached_does() {
    let Some(real) = Real::start() else { return skip("there is no memcached") };
    let requests = from_environment("MIDI_MEMCACHED_REQUESTS", 3_000) as usize;
    let seed = from_environment("MIDI_MEMCACHED_SEED", 1);
    for mode in Mode::tried() {
        let server = WithMemcached::start(mode.builder());
        let mut random = Random::new(seed);
        let (mut ours, mut theirs) = (server.client(), Memcached::connect(real.port));
        theirs.ask(b"flush_all\r\n");
        let mut done = 0;
        while done < requests {
            let mut pipeline: Vec<Vec<u8>> =
                (0..1 + random.below(20)).map(|_| request(&mut random)).collect();
            // Data of a wrong length may take its beginning.
            pipeline.push(b"nosuch\r\n".to_vec());
            done += pipeline.len();
            let bytes = pipeline.concat();
            let cut = random.below(bytes.len() + 1);
            ours.send(&bytes[..cut]);
            let (our_reply, their_reply) = (ours.ask(&bytes[cut..]), theirs.ask(&bytes));
            assert_eq!(
                alike(&our_reply),
                alike(&their_reply),
                "{mode:?}, seed {seed}, {done}: {}",
                bytes.escape_ascii()
            );
            if done % 7 == 0 {
                ours.ask(b"flush_all\r\n");
                theirs.ask(b"flush_all\r\n");
            }
        }
    }
}
