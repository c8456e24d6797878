//! The files of the AOF that the host is loading, for the log line of a load that fails: the host
//! reports neither their names nor how far it has read.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::super::api::Ctx;
use crate::command::record::aof;
use crate::command::{Args, Named, PREFIX, logged_name, parse_integer};

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

/// The first command that has run in the wrong database, as a sentence, because the AOF needs more
/// than `databases`. `None` if there is none, or the AOF is not found. Reads it from its beginning.
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
    beyond: Option<i64>,
    /// The first command that was run in another database, and its own.
    first: Option<(String, i64)>,
}

impl PartDatabases {
    fn add(&mut self, command: &[Vec<u8>]) {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let args = Args::new(&words);
        let beyond =
            |word| parse_integer(word).filter(|&database| database >= i64::from(self.databases));
        if args.is(0, "select") {
            self.beyond = beyond(args.get(1));
            return;
        }
        let misplaced = if args.is(0, "swapdb") {
            words[1..].iter().find_map(|word| beyond(word))
        } else {
            self.beyond.filter(|_| is_of_database(&args) || may_be_flushdb(&args))
        };
        if self.first.is_none() {
            let name = || logged_name(args.get(0)).to_uppercase();
            self.first = misplaced.map(|database| (name(), database));
        }
    }
}

/// Whether this is a command of midi's on keys of the database that is selected. MIDI.JOURNAL names
/// its databases itself, and has no entry here, as no client can call it.
fn is_of_database(args: &Args<'_>) -> bool {
    Named::find(args.get(0)).is_some_and(|named| named.prefix == PREFIX)
}

/// Whether this is FLUSHDB, as far as its form tells: the operator may have renamed it.
fn may_be_flushdb(args: &Args<'_>) -> bool {
    let has_form =
        args.len() == 1 || args.len() == 2 && (args.is(1, "async") || args.is(1, "sync"));
    has_form && !["multi", "exec", "flushall"].iter().any(|name| args.is(0, name))
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
