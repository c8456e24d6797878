//! Finds the first damage in AOF files with midi's records, cuts it off, and writes such files as
//! plain commands. See docs/persistence.md.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use midi::command::record::aof::{self, Damage};
use midi::command::record::{Record, Records};

const USAGE: &str = "\
midi-check-aof [--fix] FILE       finds the first damage; --fix cuts it off, after a question
midi-check-aof --commands FILE    writes FILE as plain commands, for redis-cli --pipe

FILE is a part of an AOF, or its manifest. A part that is an RDB is not read.";

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut option = |name: &str| {
        let at = args.iter().position(|arg| arg == name);
        at.map(|at| args.remove(at)).is_some()
    };
    let (fix, commands) = (option("--fix"), option("--commands"));
    let [path] = args.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let done = files_of(Path::new(path)).and_then(|files| {
        if commands { write_all(&files).map(|()| true) } else { check_all(&files, fix) }
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// The parts that a manifest lists, in order; or the file itself.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.extension().is_some_and(|extension| extension == "manifest") {
        return aof::parts_of(path);
    }
    Ok(vec![path.into()])
}

/// Checks the parts one after the other. True if all are whole, or have been mended.
fn check_all(files: &[PathBuf], fix: bool) -> io::Result<bool> {
    for (number, path) in files.iter().enumerate() {
        let Some(file) = aof::open(path)? else {
            println!("{}: begins with an RDB, which is not read", path.display());
            continue;
        };
        let mut commands = 0_u64;
        let Err(damage) = aof::read(file, &mut |_| commands += 1)? else {
            println!("{}: {commands} commands, no damage", path.display());
            continue;
        };
        let bytes = fs::metadata(path)?.len();
        tell(path, &damage, commands, bytes);
        if !fix {
            return Ok(false);
        }
        if number + 1 < files.len() {
            println!("Not cut off: other parts of the AOF follow this one.");
            return Ok(false);
        }
        return cut(path, &damage, bytes);
    }
    Ok(true)
}

fn tell(path: &Path, damage: &Damage, commands: u64, bytes: u64) {
    let key = damage.key.as_ref().map_or(String::new(), |key| {
        format!(", at or behind a record of key '{}'", key.escape_ascii())
    });
    println!("{}: damage at byte {}: {}{key}", path.display(), damage.at, damage.reason);
    println!(
        "The first {} of its {bytes} bytes are whole; {commands} commands were read. The {} bytes \
         behind them would be cut off.",
        damage.whole_until,
        bytes.saturating_sub(damage.whole_until),
    );
}

fn cut(path: &Path, damage: &Damage, bytes: u64) -> io::Result<bool> {
    print!("Cut off the last {} bytes? [y/N] ", bytes.saturating_sub(damage.whole_until));
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if !answer.trim().eq_ignore_ascii_case("y") {
        println!("Nothing was changed.");
        return Ok(false);
    }
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(damage.whole_until)?;
    file.sync_all()?;
    println!("Done.");
    Ok(true)
}

/// Writes the parts as plain commands, up to the first damage.
fn write_all(files: &[PathBuf]) -> io::Result<()> {
    let mut writer = Plain { out: io::stdout().lock(), db: b"0".to_vec(), in_multi: false };
    for path in files {
        let Some(file) = aof::open(path)? else {
            eprintln!("{}: begins with an RDB, which is not read", path.display());
            continue;
        };
        let mut written = Ok(());
        let read = aof::read(file, &mut |command| {
            if written.is_ok() {
                written = writer.command(command);
            }
        })?;
        written?;
        read.map_err(|damage| {
            let text = format!("{}: damage at byte {}", path.display(), damage.at);
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
    }
    writer.out.flush()
}

/// Writes commands that any client may send. The records of a MIDI.JOURNAL are in databases of
/// their own; the commands behind it are in the one that was chosen before it.
struct Plain<W> {
    out: W,
    db: Vec<u8>,
    in_multi: bool,
}

impl<W: Write> Plain<W> {
    fn command(&mut self, command: &[Vec<u8>]) -> io::Result<()> {
        if aof::is_journal(command) {
            let Ok(records) = Records::new(&command[1]) else {
                eprintln!("A large value is left out: its first parts are in the file before.");
                return Ok(());
            };
            for record in records.map_while(Result::ok) {
                let is_inner = matches!(record, Record::Multi | Record::Exec) && self.in_multi;
                if !is_inner {
                    self.record(&record)?;
                }
            }
            let db = self.db.clone();
            return self.words(&[b"SELECT".to_vec(), db]);
        }
        match command {
            [name, db] if name.eq_ignore_ascii_case(b"select") => self.db.clone_from(db),
            [name] if name.eq_ignore_ascii_case(b"multi") => self.in_multi = true,
            [name] if name.eq_ignore_ascii_case(b"exec") => self.in_multi = false,
            _ => {}
        }
        self.words(command)
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Record::SetRanges { key, pieces } = *record else {
            return self.words(&plain(record));
        };
        pieces.iter().try_for_each(|(offset, bytes)| {
            self.words(&plain(&Record::SetRange { key, offset: offset as u32, bytes }))
        })
    }

    fn words(&mut self, words: &[Vec<u8>]) -> io::Result<()> {
        write!(self.out, "*{}\r\n", words.len())?;
        words.iter().try_for_each(|word| {
            write!(self.out, "${}\r\n", word.len())?;
            self.out.write_all(word)?;
            self.out.write_all(b"\r\n")
        })
    }
}

/// The command that does what a record does; nothing for one that takes several.
fn plain(record: &Record<'_>) -> Vec<Vec<u8>> {
    let text = |words: &[&dyn ToString]| -> Vec<Vec<u8>> {
        words.iter().map(|word| word.to_string().into_bytes()).collect()
    };
    let of = |name: &str, words: &[&[u8]]| -> Vec<Vec<u8>> {
        let name = format!("MIDI.{name}").into_bytes();
        [name].into_iter().chain(words.iter().map(|word| word.to_vec())).collect()
    };
    match *record {
        Record::Select { db } => text(&[&"SELECT", &db]),
        Record::Multi => text(&[&"MULTI"]),
        Record::Exec => text(&[&"EXEC"]),
        Record::Set { key, value, expire_at: None, .. } => of("SET", &[key, value]),
        Record::Set { key, value, expire_at: Some(at), .. } => {
            // A time before 1970 is none to SET, and has passed as well.
            let at = at.max(1).to_string();
            of("SET", &[key, value, b"PXAT", at.as_bytes()])
        }
        Record::Del { key } => of("DEL", &[key]),
        // The marks of memcached's clients are in no command, as in SET above.
        Record::PexpireAt { key, at } | Record::Traits { key, expire_at: Some(at), .. } => {
            of("PEXPIREAT", &[key, at.to_string().as_bytes()])
        }
        Record::Persist { key } | Record::Traits { key, .. } => of("PERSIST", &[key]),
        Record::Append { key, bytes } => of("APPEND", &[key, bytes]),
        Record::SetRange { key, offset, bytes } => {
            of("SETRANGE", &[key, offset.to_string().as_bytes(), bytes])
        }
        Record::SetRanges { .. } => Vec::new(),
        Record::Restore { key, payload, expire_at } => {
            let at = expire_at.unwrap_or(0).to_string();
            of("RESTORE", &[key, at.as_bytes(), payload, b"REPLACE", b"ABSTTL"])
        }
        Record::BitOp { args } => of("BITOP", &args.iter().collect::<Vec<_>>()),
        Record::HPexpireAt { key, at, fields } => {
            let (at, count) = (at.to_string(), fields.iter().count().to_string());
            let head = [key, at.as_bytes(), b"FIELDS", count.as_bytes()];
            of("HPEXPIREAT", &head.into_iter().chain(fields.iter()).collect::<Vec<_>>())
        }
        Record::HPersist { key, fields } => {
            let count = fields.iter().count().to_string();
            let head = [key, b"FIELDS", count.as_bytes()];
            of("HPERSIST", &head.into_iter().chain(fields.iter()).collect::<Vec<_>>())
        }
        Record::HSet { key, pairs: words } | Record::HDel { key, fields: words } => {
            let name = if matches!(record, Record::HSet { .. }) { "HSET" } else { "HDEL" };
            of(name, &[key].into_iter().chain(words.iter()).collect::<Vec<_>>())
        }
        Record::Rename { key, to } => of("RENAME", &[key, to]),
        Record::Copy { key, to, db } => {
            of("COPY", &[key, to, b"DB", db.to_string().as_bytes(), b"REPLACE"])
        }
        Record::Move { key, db } => of("MOVE", &[key, db.to_string().as_bytes()]),
        Record::FlushDb => of("FLUSHDB", &[]),
        Record::FlushAll => of("FLUSHALL", &[]),
        Record::SwapDb { a, b } => {
            of("SWAPDB", &[a.to_string().as_bytes(), b.to_string().as_bytes()])
        }
    }
}
