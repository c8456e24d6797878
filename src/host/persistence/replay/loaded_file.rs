//! The files of the AOF that the host is loading, for the log line of a load that fails: the host
//! reports neither their names nor how far it has read.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::super::api::Ctx;
use crate::command::record::aof;
use crate::command::{PREFIX, logged_name, parse_integer};

/// The endings of files with commands.
const ENDINGS: [&str; 2] = [".incr.aof", ".base.aof"];

/// Where the first damage is in the AOF, as the end of a sentence; `None` if there is none to be
/// found. Reads the file from its beginning.
pub fn damage() -> Option<String> {
    let open = open_file()?;
    // The workers may have met the damage in a file that the host has closed since.
    let folder = fs::read_dir(open.parent()?).ok()?;
    let mut others: Vec<PathBuf> = folder
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| *path != open && is_part(path))
        .collect();
    others.sort();
    [open].into_iter().chain(others).find_map(|path| damage_of(&path))
}

/// The name of the file, as the end of a sentence.
pub fn name() -> Option<String> {
    Some(format!(" of a text in {}", open_file()?.display()))
}

fn damage_of(path: &Path) -> Option<String> {
    let damage = aof::read(aof::open(path).ok()??, &mut |_| {}).ok()?.err()?;
    let key = damage.key.map_or(String::new(), |key| {
        format!(", at or behind a record of key '{}'", logged_name(&key))
    });
    Some(format!(
        " of its text, which is byte {} of {}{key}. What is in front of byte {} is whole; \
         'midi-check-aof --fix FILE' cuts off the rest",
        damage.at,
        path.display(),
        damage.whole_until,
    ))
}

/// What midi's keys have lost in an AOF that needs more than this many databases, as a sentence:
/// the host has run commands in the database that was selected before. `None` if they have lost
/// nothing, or the file does not say so. Reads it from its beginning.
pub fn misplaced(ctx: Ctx<'_>, databases: u32) -> Option<String> {
    let parts = manifests(ctx).into_iter().filter_map(|manifest| aof::parts_of(&manifest).ok());
    parts.flatten().find_map(|part| {
        let mut commands = PartDatabases { databases, beyond: None, first: None };
        _ = aof::read(aof::open(&part).ok()??, &mut |command| commands.add(command)).ok()?;
        let (name, database) = commands.first?;
        Some(format!(
            "{name} of database {database} in {}, but there are {databases}: raise `databases`",
            part.display()
        ))
    })
}

/// The manifest of the AOF, or all that may be it, if the host does not tell its name.
fn manifests(ctx: Ctx<'_>) -> Vec<PathBuf> {
    let setting = |name| String::from_utf8(ctx.config_text(name)?).ok();
    if let (Some(folder), Some(name)) = (setting(c"appenddirname"), setting(c"appendfilename")) {
        return vec![Path::new(&folder).join(format!("{name}.manifest"))];
    }
    let files = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let all = files(".".into()).flat_map(|folder| files(folder.path())).map(|file| file.path());
    all.filter(|path| path.extension().is_some_and(|it| it == "manifest")).collect()
}

/// The databases of a part's commands.
struct PartDatabases {
    /// How many there are.
    databases: u32,
    /// The one that has been selected, if it is not there.
    beyond: Option<String>,
    /// The first command that midi has misplaced, and its database.
    first: Option<(String, String)>,
}

impl PartDatabases {
    fn add(&mut self, command: &[Vec<u8>]) {
        let is_word = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let is = |name: &str| is_word(&command[0], name);
        let beyond = |word: &Vec<u8>| {
            parse_integer(word)
                .filter(|&database| database >= i64::from(self.databases))
                .map(|database| database.to_string())
        };
        // FLUSHDB may have another name.
        let may_flush = || {
            let is_how = |word: &[u8]| ["async", "sync"].iter().any(|how| is_word(word, how));
            let is_short = matches!(command, [_]) || matches!(command, [_, how] if is_how(how));
            is_short && !["multi", "exec", "flushall"].into_iter().any(is)
        };
        let misplaced = if is("select") {
            self.beyond = command.get(1).and_then(beyond);
            None
        } else if is("swapdb") {
            command[1..].iter().find_map(beyond)
        } else if is_of_database(&command[0]) || may_flush() {
            self.beyond.clone()
        } else {
            None
        };
        if let (None, Some(database)) = (&self.first, misplaced) {
            self.first = Some((logged_name(&command[0]).to_uppercase(), database));
        }
    }
}

/// Whether this is a command of midi's on keys of the database that is selected.
fn is_of_database(name: &[u8]) -> bool {
    let prefix = name.get(..PREFIX.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX.as_bytes()))
        && !name.eq_ignore_ascii_case(b"midi.journal")
}

fn is_part(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| ENDINGS.iter().any(|ending| name.ends_with(ending)))
}

/// The part of the AOF that this process has open; of several, the one that it only reads.
fn open_file() -> Option<PathBuf> {
    let descriptors = fs::read_dir("/proc/self/fd").ok()?.flatten();
    let parts = descriptors.filter_map(|entry| {
        let path = fs::read_link(entry.path()).ok().filter(|path| is_part(path))?;
        let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
        Some((!only_reads(&info), path))
    });
    parts.min().map(|(_, path)| path)
}

/// Whether a descriptor's flags, which are octal, have no right to write.
fn only_reads(info: &Path) -> bool {
    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.is_some_and(|flags| flags.trim_end().ends_with(['0', '4']))
}
