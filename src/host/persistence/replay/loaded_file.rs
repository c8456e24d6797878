//! The file of the AOF that the host is loading, for the log line of a load that fails: the host
//! reports neither its name nor how far it has read.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::command::logged_name;
use crate::command::record::aof;

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
    let mut input = BufReader::with_capacity(1 << 20, File::open(path).ok()?);
    if aof::is_rdb(input.fill_buf().ok()?) {
        return None;
    }
    let damage = aof::read(input, &mut |_| {}).ok()?.err()?;
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
