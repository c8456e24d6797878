//! AOF files, as the host has written them: the commands in them, and the first damage, also inside
//! of the texts of MIDI.JOURNAL, which the host's own tool does not read.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::parts::is_last_part;
use super::{Gathered, RecordError, Records};
use crate::limits::MAX_STRING_BYTES;

/// What is wrong with a file, and where. Positions are in bytes from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it is.
    pub at: u64,
    /// The file is whole up to this place: the beginning of the command, or of its MULTI.
    pub whole_until: u64,
    /// What is wrong.
    pub reason: String,
    /// Inside of a MIDI.JOURNAL: the key of the damaged record, or of the last one before it.
    pub key: Option<Vec<u8>>,
}

/// The longest line of a file: the head of a command or of a word, or an annotation.
const LINE_BYTES: u64 = 1024;

/// The most words of a command: what a host has executed, its file may have.
const WORDS: usize = i32::MAX as usize;

/// How much of a file is read at once, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// The parts that an AOF's manifest lists, in order.
///
/// # Errors
/// The manifest cannot be read.
pub fn parts_of(manifest: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = manifest.parent().unwrap_or(Path::new(""));
    let text = fs::read_to_string(manifest)?;
    let parts = text.split_terminator('\n').filter_map(|line| {
        // `file NAME seq 1 type i`, perhaps in quotes; of type `h` are parts that are no longer
        // needed.
        let rest = line.strip_prefix("file ")?;
        let (name, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(' ')?,
        };
        Some(folder.join(name)).filter(|_| !rest.contains("type h"))
    });
    Ok(parts.collect())
}

/// Opens a part to read its commands; `None` if it is an RDB, or begins with one.
///
/// # Errors
/// The file cannot be read.
pub fn open(part: &Path) -> io::Result<Option<BufReader<File>>> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(part)?);
    let beginning = file.fill_buf()?;
    let is_rdb = beginning.starts_with(b"REDIS") || beginning.starts_with(b"VALKEY");
    Ok((!is_rdb).then_some(file))
}

/// The name of the command whose argument is a text of records.
pub fn is_journal(command: &[Vec<u8>]) -> bool {
    command.len() == 2 && command[0].eq_ignore_ascii_case(b"midi.journal")
}

/// Reads a file to its end, or up to the first damage. `each` gets every whole command. A text in
/// parts is one command, with all of it, once the last part is there. If its first parts are in
/// another file, it is the last part.
///
/// # Errors
/// The file cannot be read.
pub fn read(
    input: impl BufRead,
    each: &mut dyn FnMut(&[Vec<u8>]),
) -> io::Result<Result<(), Damage>> {
    let gathered = Gathered::default();
    let mut file = AofFile { input, at: 0, multi: None, gathered, is_begun: false };
    loop {
        let begin = file.at;
        match file.next()? {
            Ok(None) => return Ok(file.end()),
            Ok(Some(command)) => each(&command),
            Err(FileFlaw { at, reason, key }) => {
                let whole_until = file.multi.unwrap_or(begin);
                return Ok(Err(Damage { at, whole_until, reason, key }));
            }
        }
    }
}

/// A file that is being read.
struct AofFile<R> {
    input: R,
    /// How much of it has been read.
    at: u64,
    /// Where the MULTI began that is open.
    multi: Option<u64>,
    gathered: Gathered,
    /// Whether a text, or the first part of one, has been read.
    is_begun: bool,
}

struct FileFlaw {
    at: u64,
    reason: String,
    key: Option<Vec<u8>>,
}

impl FileFlaw {
    fn new(at: u64, reason: &str) -> Self {
        FileFlaw { at, reason: reason.into(), key: None }
    }

    fn cut(at: u64) -> Self {
        FileFlaw::new(at, "the file ends in the middle of a command")
    }
}

type Sound<T> = io::Result<Result<T, FileFlaw>>;

/// Returns the flaw of a part, or its value.
macro_rules! sound {
    ($parsed:expr) => {
        match $parsed? {
            Ok(value) => value,
            Err(flaw) => return Ok(Err(flaw)),
        }
    };
}

impl<R: BufRead> AofFile<R> {
    /// The next command; `None` at the end.
    fn next(&mut self) -> Sound<Option<Vec<Vec<u8>>>> {
        loop {
            match sound!(self.next_or_part()) {
                Some(command) if command.is_empty() => {}
                command => return Ok(Ok(command)),
            }
        }
    }

    /// The next command, without words if it is a part of a text that others follow.
    fn next_or_part(&mut self) -> Sound<Option<Vec<Vec<u8>>>> {
        let begin = self.at;
        let count = loop {
            let line = sound!(self.line());
            match line.split_first() {
                None => return Ok(Ok(None)),
                // An annotation, such as a time.
                Some((b'#', _)) => {}
                Some((b'*', digits)) => match number(digits) {
                    Some(count) if (1..=WORDS).contains(&count) => break count,
                    _ => return Ok(Err(FileFlaw::new(begin, "no number of words"))),
                },
                Some(_) => {
                    return Ok(Err(FileFlaw::new(begin, "no command in the Redis protocol")));
                }
            }
        };
        let mut command = Vec::new();
        let mut last_at = 0;
        for _ in 0..count {
            let word = sound!(self.word());
            last_at = self.at - 2 - word.len() as u64;
            command.push(word);
        }
        if is_journal(&command) {
            match self.whole(&mut command[1]) {
                Ok(true) => {}
                Ok(false) => return Ok(Ok(Some(Vec::new()))),
                Err((error, key)) => {
                    let (at, reason) = (last_at + error.offset as u64, error.reason());
                    let reason = format!("in a MIDI.JOURNAL: {reason}");
                    return Ok(Err(FileFlaw { at, reason, key }));
                }
            }
        }
        match () {
            _ if command[0].eq_ignore_ascii_case(b"multi") => self.multi = Some(begin),
            _ if command[0].eq_ignore_ascii_case(b"exec") => self.multi = None,
            _ => {}
        }
        Ok(Ok(Some(command)))
    }

    /// Makes the last part of a text the whole text, and reads its records. False if it is another
    /// part.
    fn whole(&mut self, text: &mut Vec<u8>) -> Result<bool, (RecordError, Option<Vec<u8>>)> {
        let whole = match self.gathered.add(text) {
            Err(error) if self.is_begun => return Err((error, None)),
            Err(error) if !error.is_gap() => return Err((error, None)),
            Err(_) => return Ok(is_last_part(text)),
            Ok(whole) => whole,
        };
        self.is_begun = true;
        let Some(whole) = whole else { return Ok(false) };
        records(&whole).map_err(|(error, key)| {
            // Of a text in parts, where it ends in the file is all that can be said.
            let is_in_parts = matches!(whole, Cow::Owned(_));
            (if is_in_parts { RecordError { offset: 0, ..error } } else { error }, key)
        })?;
        if let Cow::Owned(whole) = whole {
            *text = whole;
        }
        Ok(true)
    }

    fn end(&self) -> Result<(), Damage> {
        let reason = "the file ends inside of a MULTI".to_owned();
        self.multi.map_or(Ok(()), |multi| {
            Err(Damage { at: self.at, whole_until: multi, reason, key: None })
        })
    }

    /// A line without its end; empty at the end of the file.
    fn line(&mut self) -> Sound<Vec<u8>> {
        let mut line = Vec::new();
        let read = self.input.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)? as u64;
        let begin = self.at;
        self.at += read;
        if read == 0 || line.ends_with(b"\r\n") {
            line.truncate(line.len().saturating_sub(2));
            // An empty line is none.
            return Ok(if read == 2 {
                Err(FileFlaw::new(begin, "an empty line"))
            } else {
                Ok(line)
            });
        }
        Ok(Err(if read < LINE_BYTES && !line.ends_with(b"\n") {
            FileFlaw::cut(begin)
        } else {
            FileFlaw::new(begin, "no line in the Redis protocol")
        }))
    }

    fn word(&mut self) -> Sound<Vec<u8>> {
        let begin = self.at;
        let head = sound!(self.line());
        let len = match head.split_first() {
            None => return Ok(Err(FileFlaw::cut(begin))),
            Some((b'$', digits)) => {
                number(digits).filter(|&len| len as u64 <= MAX_STRING_BYTES as u64)
            }
            Some(_) => None,
        };
        let Some(len) = len else { return Ok(Err(FileFlaw::new(begin, "no length of a word"))) };
        let mut word = Vec::new();
        let read = self.input.by_ref().take(len as u64 + 2).read_to_end(&mut word)?;
        self.at += read as u64;
        if read < len + 2 {
            return Ok(Err(FileFlaw::cut(begin)));
        }
        let is_ended = word.ends_with(b"\r\n");
        word.truncate(len);
        Ok(if is_ended { Ok(word) } else { Err(FileFlaw::new(begin, "a word of another length")) })
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// Reads all records of a text.
fn records(text: &[u8]) -> Result<(), (RecordError, Option<Vec<u8>>)> {
    let mut last = None;
    let read = Records::new(text).and_then(|records| {
        for record in records {
            last = record?.key().or(last);
        }
        Ok(())
    });
    read.map_err(|error| {
        let own = key_at(&text[error.offset.min(text.len())..]);
        let key = own.or(last).map(<[u8]>::to_vec);
        (error, key)
    })
}

/// The second word of a text that begins like a record: its key, as a rule. A word of a wrong
/// length is taken to end with its line.
fn key_at(text: &[u8]) -> Option<&[u8]> {
    fn line(text: &[u8]) -> Option<(&[u8], &[u8])> {
        let end = text.windows(2).position(|end| end == b"\r\n")?;
        Some((&text[..end], &text[end + 2..]))
    }
    fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
        let (head, rest) = line(text)?;
        let len = number(head.strip_prefix(b"$")?);
        let sized = len.and_then(|len| rest.split_at_checked(len));
        let sized = sized.and_then(|(word, rest)| Some((word, rest.strip_prefix(b"\r\n")?)));
        sized.or_else(|| line(rest))
    }
    let (_, rest) = line(text).filter(|(head, _)| head.starts_with(b"*"))?;
    let (name, rest) = word(rest)?;
    let is_without_key = [&b"SELECT"[..], b"VERSION", b"SWAPDB"].contains(&name);
    word(rest).filter(|_| !is_without_key).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::super::{Record, header, journal_head, part_head, part_of_text, select};
    use super::*;
    use crate::store::Traits;

    fn journal(text: &[u8]) -> Vec<u8> {
        [&journal_head(text.len())[..], text, b"\r\n"].concat()
    }

    fn read_all(file: &[u8]) -> (Vec<Vec<Vec<u8>>>, Result<(), Damage>) {
        let mut commands = Vec::new();
        let read = read(file, &mut |command| commands.push(command.to_vec()));
        (commands, read.expect("no error of the system"))
    }

    #[test]
    fn a_command_may_have_a_million_words() {
        let count = 1_100_000;
        let file = [format!("*{count}\r\n").into_bytes(), b"$1\r\na\r\n".repeat(count)].concat();
        let (commands, end) = read_all(&file);
        assert!(end.is_ok() && commands.len() == 1 && commands[0].len() == count);
    }

    #[test]
    fn a_text_in_parts_is_one_command() {
        let mut text = Vec::new();
        header(1, &mut text);
        select(0, &mut text);
        Record::Set { key: b"k", value: b"value", expire_at: None, traits: Traits::default() }
            .write(&mut text);
        let (first, rest) = text.split_at(20);
        let (second, third) = rest.split_at(20);
        let mut last = Vec::new();
        part_head(true, 40, third.len(), &mut last);
        last.extend([third, b"\r\n"].concat());
        let parts = [journal(&part_of_text(0, first)), journal(&part_of_text(20, second))];
        let other = journal(&text);
        let whole = vec![b"MIDI.JOURNAL".to_vec(), text.clone()];
        let last = journal(&last);
        let file = [&other[..], &parts[0], &parts[1], &last, &other].concat();
        assert_eq!(read_all(&file), (vec![whole.clone(); 3], Ok(())));
        let unfinished = [&other[..], &parts[0], &parts[1]].concat();
        assert_eq!(read_all(&unfinished), (vec![whole.clone()], Ok(())));
        let (commands, read) = read_all(&[&parts[1][..], &last, &other].concat());
        assert_eq!((commands.len(), &commands[1], read), (2, &whole, Ok(())));
        assert!(Records::new(&commands[0][1]).is_err(), "it begins in another file");
        let (commands, read) = read_all(&[&other[..], &parts[0], &last].concat());
        assert_eq!(commands.len(), 1);
        assert_eq!(read.expect_err("a gap").whole_until, other.len() as u64);
    }
}
