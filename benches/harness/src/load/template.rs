//! Commands with placeholders, and their bytes on the wire.
//!
//! `{key}` stands for a key (`key:17`), `{key:9}` for one whose number has nine
//! digits (`key:000000017`), `{value}` for a value. A word may be repeated:
//! `MGET {key}*500` has 500 keys.

use anyhow::{Result, bail, ensure};

use super::Protocol;

/// The values for the placeholders.
pub trait Fill {
    /// The number of the next key.
    fn key(&mut self) -> u64;
    /// The next value.
    fn value(&mut self) -> &[u8];
}

/// A command, ready to be written many times.
pub struct Template {
    words: Vec<Word>,
    key_prefix: Vec<u8>,
    protocol: Protocol,
    /// A word with its placeholders filled, before its length is known.
    word: Vec<u8>,
}

enum Word {
    /// Is sent unchanged.
    Fixed(Vec<u8>),
    /// Is built for each command.
    Varying(Vec<Part>),
}

#[derive(Clone)]
enum Part {
    Text(Vec<u8>),
    /// With leading zeros up to this many digits.
    Key(usize),
    Value,
}

impl Template {
    /// # Errors
    /// An empty command, an unknown placeholder, a bad repetition.
    pub fn parse(text: &str, key_prefix: &str, protocol: Protocol) -> Result<Self> {
        let mut words: Vec<Vec<Part>> = Vec::new();
        for word in text.split_whitespace() {
            let (word, times) = repetition(word)?;
            words.extend(std::iter::repeat_n(parts(word)?, times));
        }
        ensure!(!words.is_empty(), "an empty command");
        let words = match protocol {
            Protocol::Resp => resp_words(words),
            Protocol::Memcached => words.into_iter().map(Word::Varying).collect(),
        };
        Ok(Template { words, key_prefix: key_prefix.into(), protocol, word: Vec::new() })
    }

    /// Appends one command.
    pub fn write(&mut self, fill: &mut impl Fill, to: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Resp => self.write_resp(fill, to),
            Protocol::Memcached => self.write_memcached(fill, to),
        }
    }

    fn write_resp(&mut self, fill: &mut impl Fill, to: &mut Vec<u8>) {
        for word in &self.words {
            match word {
                Word::Fixed(bytes) => to.extend_from_slice(bytes),
                Word::Varying(parts) => match parts.as_slice() {
                    [Part::Value] => bulk(fill.value(), to),
                    _ => {
                        self.word.clear();
                        for part in parts {
                            part.write(&self.key_prefix, fill, &mut self.word);
                        }
                        bulk(&self.word, to);
                    }
                },
            }
        }
    }

    /// A value is a data block: its length is at the end of the command line.
    fn write_memcached(&mut self, fill: &mut impl Fill, to: &mut Vec<u8>) {
        for (number, word) in self.words.iter().enumerate() {
            if number > 0 {
                to.push(b' ');
            }
            let Word::Varying(parts) = word else { continue };
            match parts.as_slice() {
                [Part::Value] => {
                    let value = fill.value();
                    to.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
                    to.extend_from_slice(b"\r\n");
                    to.extend_from_slice(value);
                }
                parts => parts.iter().for_each(|part| part.write(&self.key_prefix, fill, to)),
            }
        }
        to.extend_from_slice(b"\r\n");
    }
}

impl Part {
    fn write(&self, key_prefix: &[u8], fill: &mut impl Fill, to: &mut Vec<u8>) {
        match self {
            Part::Text(text) => to.extend_from_slice(text),
            Part::Value => to.extend_from_slice(fill.value()),
            Part::Key(digits) => {
                let mut number = itoa::Buffer::new();
                let number = number.format(fill.key()).as_bytes();
                to.extend_from_slice(key_prefix);
                to.extend(std::iter::repeat_n(b'0', digits.saturating_sub(number.len())));
                to.extend_from_slice(number);
            }
        }
    }
}

/// `word*3` is the word three times.
fn repetition(word: &str) -> Result<(&str, usize)> {
    match word.rsplit_once("}*") {
        None => Ok((word, 1)),
        Some((head, times)) => {
            let times: usize = times.parse()?;
            ensure!((1..=1_000_000).contains(&times), "{word}: from 1 to 1000000 times");
            Ok((&word[..=head.len()], times))
        }
    }
}

fn parts(word: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = word;
    while let Some(start) = rest.find('{') {
        let Some(length) = rest[start..].find('}') else { bail!("{word}: a {{ without }}") };
        if start > 0 {
            parts.push(Part::Text(rest[..start].into()));
        }
        parts.push(match &rest[start + 1..start + length] {
            "key" => Part::Key(0),
            "value" => Part::Value,
            name => match name.strip_prefix("key:").map(str::parse) {
                Some(Ok(digits)) => Part::Key(digits),
                _ => {
                    bail!("{{{name}}}: the placeholders are {{key}}, {{key:DIGITS}} and {{value}}")
                }
            },
        });
        rest = &rest[start + length + 1..];
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.into()));
    }
    Ok(parts)
}

/// The array's header, then the words; constant parts are encoded here, once.
fn resp_words(words: Vec<Vec<Part>>) -> Vec<Word> {
    let mut fixed = format!("*{}\r\n", words.len()).into_bytes();
    let mut encoded = Vec::new();
    for parts in words {
        if let [Part::Text(text)] = parts.as_slice() {
            bulk(text, &mut fixed);
            continue;
        }
        if !fixed.is_empty() {
            encoded.push(Word::Fixed(std::mem::take(&mut fixed)));
        }
        encoded.push(Word::Varying(parts));
    }
    if !fixed.is_empty() {
        encoded.push(Word::Fixed(fixed));
    }
    encoded
}

fn bulk(bytes: &[u8], to: &mut Vec<u8>) {
    to.push(b'$');
    to.extend_from_slice(itoa::Buffer::new().format(bytes.len()).as_bytes());
    to.extend_from_slice(b"\r\n");
    to.extend_from_slice(bytes);
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u64);

    impl Fill for Counting {
        fn key(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }

        fn value(&mut self) -> &[u8] {
            b"vv"
        }
    }

    fn wire(text: &str, protocol: Protocol) -> String {
        let mut to = Vec::new();
        let mut template = Template::parse(text, "key:", protocol).expect("a good template");
        template.write(&mut Counting(6), &mut to);
        String::from_utf8(to).expect("text")
    }

    #[test]
    fn resp_commands() {
        assert_eq!(wire("PING", Protocol::Resp), "*1\r\n$4\r\nPING\r\n");
        assert_eq!(wire("GET {key}", Protocol::Resp), "*2\r\n$3\r\nGET\r\n$5\r\nkey:7\r\n");
        assert_eq!(wire("GET {key:4}", Protocol::Resp), "*2\r\n$3\r\nGET\r\n$8\r\nkey:0007\r\n");
        assert_eq!(
            wire("SET a{key}b {value} EX 9", Protocol::Resp),
            "*5\r\n$3\r\nSET\r\n$7\r\nakey:7b\r\n$2\r\nvv\r\n$2\r\nEX\r\n$1\r\n9\r\n"
        );
        assert_eq!(
            wire("MGET {key}*2", Protocol::Resp),
            "*3\r\n$4\r\nMGET\r\n$5\r\nkey:7\r\n$5\r\nkey:8\r\n"
        );
        assert_eq!(
            wire("KEYS a*2", Protocol::Resp),
            "*2\r\n$4\r\nKEYS\r\n$3\r\na*2\r\n",
            "a glob is none"
        );
    }

    #[test]
    fn memcached_commands() {
        assert_eq!(wire("get {key}", Protocol::Memcached), "get key:7\r\n");
        assert_eq!(wire("set {key} 0 0 {value}", Protocol::Memcached), "set key:7 0 0 2\r\nvv\r\n");
    }

    #[test]
    fn bad_templates_are_refused() {
        for text in ["", "GET {nokey}", "GET {key", "GET {key:x}", "MGET {key}*0", "MGET {key}*x"] {
            assert!(Template::parse(text, "key:", Protocol::Resp).is_err(), "{text}");
        }
    }
}
