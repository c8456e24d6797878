//! The promise: every command has its page in docs/commands, the pages' syntax is that of
//! the command table, and their examples give the printed output, as do those of the
//! README.
//!
//! A page has a generated part, between two marks, and a part that is written by hand.
//! `MIDI_UPDATE_DOCS=1 cargo test --release --test tools docs` generates the first again.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crate::common::grammar::{Argument, arguments};
use crate::common::{Client, Mode, Value};
use midi::command::{Command, host_commands};

const BEGIN: &str = "<!-- made from the command table: MIDI_UPDATE_DOCS=1 cargo test --release \
                     --test tools docs -->\n";
const END: &str = "<!-- written by hand from here on; tests/tools/docs.rs runs the examples -->\n";

/// The headings that every page has below its generated part.
const SECTIONS: [&str; 3] = ["## Replies", "## Errors", "## Examples"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/commands")
}

/// Whether this run generates the pages again; it checks nothing else.
fn updating() -> bool {
    std::env::var_os("MIDI_UPDATE_DOCS").is_some()
}

fn page_path(command: &Command) -> PathBuf {
    folder().join(format!("{}.md", command.name))
}

fn host_name(command: &Command) -> String {
    format!("MIDI.{}", command.name.to_ascii_uppercase())
}

#[test]
fn every_command_has_its_page_and_every_page_its_command() {
    let wanted: BTreeSet<PathBuf> =
        host_commands().map(page_path).chain([folder().join("README.md")]).collect();
    let found: BTreeSet<PathBuf> = fs::read_dir(folder())
        .expect("docs/commands")
        .map(|file| file.expect("a file").path())
        .collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    let needless: Vec<_> = found.difference(&wanted).collect();
    assert!(
        updating() || missing.is_empty(),
        "no page: {missing:#?}; make them with MIDI_UPDATE_DOCS=1"
    );
    assert!(needless.is_empty(), "no command: {needless:#?}");
}

#[test]
fn the_made_parts_are_fresh() {
    let server = Mode::Adaptive.server();
    let mut client = server.client().resp3();
    for command in host_commands() {
        let title = format!("# {}\n\n", host_name(command));
        let sections = SECTIONS.map(|section| format!("\n{section}\n")).concat();
        refresh(page_path(command), &title, &made_part(&mut client, command), &sections);
    }
    refresh(folder().join("README.md"), "# The commands\n\n", &index(), "");
}

/// Compares a page's generated part, or writes it, with `hand` below it if there is no page.
fn refresh(path: PathBuf, title: &str, made: &str, hand: &str) {
    let page = fs::read_to_string(&path).unwrap_or_default();
    let hand = page.split_once(END).map_or(hand, |(_, hand)| hand);
    let fresh = format!("{title}{BEGIN}{made}{END}{hand}");
    if updating() {
        fs::write(&path, fresh).expect("write the page");
    } else {
        let how = "make it anew with MIDI_UPDATE_DOCS=1";
        assert!(page == fresh, "{} is not what the command table says: {how}", path.display());
    }
}

fn made_part(client: &mut Client, command: &Command) -> String {
    let name = host_name(command);
    let mut docs =
        client.call(&["COMMAND", "DOCS", &name]).map().into_values().next().expect("docs").map();
    let info = client.call(&["COMMAND", "INFO", &name]).array().remove(0).array();
    let list = docs.remove("arguments").map_or(Vec::new(), arguments);
    let mut page = format!("{}\n\n```\n{name}", docs["summary"].text());
    list.iter().for_each(|argument| {
        let _ = write!(page, " {}", syntax(argument));
    });
    page += "\n```\n\n| | |\n|---|---|\n";
    let mut row = |name: &str, text: String| {
        let _ = writeln!(page, "| {name} | {text} |");
    };
    row("Complexity", docs["complexity"].text());
    row("Arguments", argument_count(info[1].integer()));
    row("Keys", key_specs(info[8].clone()));
    row("Flags", flags(info[2].clone()));
    row(
        "ACL categories",
        command.categories.split(' ').map(|name| format!("@{name}")).collect::<Vec<_>>().join(" "),
    );
    page.push('\n');
    if !list.is_empty() {
        page += "| argument | kind | |\n|---|---|---|\n";
        list.iter().for_each(|argument| argument_rows(argument, "", &mut page));
        page.push('\n');
    }
    page
}

/// The arity without the name.
fn argument_count(arity: i64) -> String {
    match arity {
        1 => "none".into(),
        2.. => format!("{}", arity - 1),
        -1 => "any number".into(),
        _ => format!("at least {}", -arity - 1),
    }
}

fn flags(flags: Value) -> String {
    let names: Vec<String> =
        flags.array().iter().map(Value::text).filter(|name| name != "module").collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Where the keys are and what happens to them, as in COMMAND INFO.
fn key_specs(specs: Value) -> String {
    let specs: Vec<String> = specs.array().into_iter().map(key_spec).collect();
    if specs.is_empty() { "none".into() } else { specs.join("; ") }
}

fn key_spec(spec: Value) -> String {
    let mut fields = spec.map();
    let mut part = |name: &str| {
        let mut part = fields.remove(name).expect("a key spec").map();
        (part["type"].text(), part.remove("spec").expect("its spec").map())
    };
    let (begin, find) = (part("begin_search"), part("find_keys"));
    let place = match (begin.0.as_str(), find.0.as_str()) {
        ("index", "range") => {
            let number = |name: &str| find.1[name].integer();
            let first = begin.1["index"].integer();
            match (number("lastkey"), number("keystep")) {
                (0, _) => format!("argument {first}"),
                (-1, 1) => format!("all arguments from {first} on"),
                (-1, step) => {
                    format!("every {step}nd argument from {first} on").replace("3nd", "3rd")
                }
                (last, _) => format!("arguments {first} to {}", first + last),
            }
        }
        ("index", "keynum") => format!("as many as argument {} says", begin.1["index"].integer()),
        other => panic!("no words for {other:?}"),
    };
    let flags: Vec<String> = fields["flags"].clone().array().iter().map(Value::text).collect();
    format!("{place} ({})", flags.join(", "))
}

/// An argument as it appears in a synopsis.
fn syntax(argument: &Argument) -> String {
    let list = |between: &str| argument.inner.iter().map(syntax).collect::<Vec<_>>().join(between);
    let body = match argument.kind.as_str() {
        "pure-token" => String::new(),
        "oneof" if argument.token.is_some() => format!("<{}>", list(" | ")),
        "oneof" => list(" | "),
        "block" => list(" "),
        _ => argument.name.clone(),
    };
    let token = argument.token.as_deref().unwrap_or_default();
    let once = format!("{token} {body}").trim().to_owned();
    match (argument.multiple, argument.optional) {
        (false, false) if argument.kind == "oneof" => format!("<{once}>"),
        (false, false) => once,
        (false, true) => format!("[{once}]"),
        (true, false) => format!("{once} [{once} ...]"),
        (true, true) => format!("[{once} ...]"),
    }
}

/// A row for every argument that is typed; choices and blocks are expanded.
fn argument_rows(argument: &Argument, outer: &str, page: &mut String) {
    let mut notes: Vec<&str> = outer.split(", ").filter(|note| !note.is_empty()).collect();
    let mut note = |is_so: bool, note| {
        if is_so && !notes.contains(&note) {
            notes.push(note);
        }
        notes.join(", ")
    };
    note(argument.optional, "optional");
    let notes = note(argument.multiple, "may be repeated");
    let inner_notes = note(argument.kind == "oneof", "one of these");
    if matches!(argument.kind.as_str(), "oneof" | "block") {
        if let Some(token) = &argument.token {
            let _ = writeln!(page, "| `{token}` | word | {notes} |");
        }
        argument.inner.iter().for_each(|inner| argument_rows(inner, &inner_notes, page));
        return;
    }
    let (token, name) = (argument.token.as_deref().unwrap_or_default(), argument.name.as_str());
    let (shown, kind) = match argument.kind.as_str() {
        "pure-token" => (token.to_owned(), "word"),
        kind => (format!("{token} {name}").trim().to_owned(), kind),
    };
    let _ = writeln!(page, "| `{shown}` | {kind} | {notes} |");
}

fn index() -> String {
    let family = |command: &Command| {
        let is = |category: &str| command.categories.split(' ').any(|name| name == category);
        match () {
            _ if is("string") => 0,
            _ if is("hash") => 1,
            _ if is("bitmap") => 2,
            _ if command
                .key_arguments(&midi::command::Args::new(&[b"", b"", b"", b""]))
                .next()
                .is_some() =>
            {
                3
            }
            _ => 4,
        }
    };
    let mut page = String::new();
    for (number, title) in
        ["Strings", "Hashes", "Bitmaps", "Keys", "The keyspace, and midi itself"].iter().enumerate()
    {
        let _ = write!(page, "## {title}\n\n| | |\n|---|---|\n");
        for command in host_commands().filter(|command| family(command) == number) {
            let (name, file) = (host_name(command), command.name);
            let _ = writeln!(page, "| [{name}]({file}.md) | {} |", command.docs.summary);
        }
        page.push('\n');
    }
    page
}

#[test]
fn every_page_is_written() {
    if updating() {
        return;
    }
    for command in host_commands() {
        let page = fs::read_to_string(page_path(command)).unwrap_or_default();
        let (_, hand) = page.split_once(END).unwrap_or_default();
        for section in SECTIONS {
            let text = hand.split_once(&format!("{section}\n")).map_or("", |(_, text)| text);
            let text = text.split("\n## ").next().unwrap_or_default().trim();
            assert!(text.len() > 3, "{}: {section} is empty", command.name);
        }
        let name = format!("> {}", host_name(command));
        assert!(hand.contains(&name), "{}: no example has it", command.name);
    }
}

#[test]
fn the_examples_are_right() {
    if updating() {
        return;
    }
    let server = Mode::Adaptive.server();
    let mut wrong = String::new();
    let mut pages: Vec<PathBuf> = fs::read_dir(folder())
        .expect("docs/commands")
        .map(|file| file.expect("a file").path())
        .collect();
    pages.sort();
    pages.push(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    for path in pages {
        let page = fs::read_to_string(&path).expect("a page");
        for session in sessions(&page) {
            // Each session starts with empty databases and its own connection.
            let mut client = server.client();
            client.ok("FLUSHALL");
            server.wait_until_idle();
            let mut client = if session.resp3 { client.resp3() } else { client };
            for (command, printed) in &session.commands {
                let got = rendered(&client.call(&split(command)));
                if !fits(printed, &got) {
                    let _ = writeln!(
                        wrong,
                        "{}:\n> {command}\n{got}\ninstead of\n{printed}\n",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A fenced block of commands, each with what it prints.
struct Session {
    resp3: bool,
    commands: Vec<(String, String)>,
}

fn sessions(page: &str) -> Vec<Session> {
    // The README has no generated part.
    let hand = page.split_once(END).map_or(page, |(_, hand)| hand);
    let blocks = hand.split("\n```").skip(1).step_by(2);
    let begins = |block: &&str| block.lines().nth(1).is_some_and(|line| line.starts_with("> "));
    blocks.filter(begins).map(session).collect()
}

fn session(block: &str) -> Session {
    let (kind, text) = block.split_once('\n').expect("a line end");
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("> "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, printed))) => {
                printed.push_str(if printed.is_empty() { "" } else { "\n" });
                printed.push_str(line);
            }
            (None, None) => panic!("a reply without a command: {line}"),
        }
    }
    Session { resp3: kind == "resp3", commands }
}

/// Whether the reply is as printed. A line `...` matches any number of lines; on a line with
/// `# varies` the numbers may differ.
fn fits(printed: &str, got: &str) -> bool {
    let (printed, got): (Vec<_>, Vec<_>) = (printed.lines().collect(), got.lines().collect());
    match printed.iter().position(|line| *line == "...") {
        None => all_fit(&printed, &got),
        Some(at) => {
            let (before, after) = (&printed[..at], &printed[at + 1..]);
            got.len() >= before.len() + after.len()
                && all_fit(before, &got[..at])
                && all_fit(after, &got[got.len() - after.len()..])
        }
    }
}

fn all_fit(printed: &[&str], got: &[&str]) -> bool {
    let fits = |(printed, got): (&&str, &&str)| match printed.split_once("  # ") {
        // The width of the leading numbers depends on how many there are.
        None => printed.trim_start() == got.trim_start(),
        Some((line, "varies")) => without_numbers(line) == without_numbers(got),
        Some((line, _)) => line == *got,
    };
    printed.len() == got.len() && printed.iter().zip(got).all(fits)
}

fn without_numbers(line: &str) -> String {
    line.split(|letter: char| letter.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("0")
}

/// The words of a line as redis-cli splits them.
fn split(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let end = rest.find(' ').unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), &rest[end..])
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

/// The bytes up to the closing quote, and the rest after it.
fn unquoted(text: &str) -> (Vec<u8>, &str) {
    let mut bytes = Vec::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (bytes, &text[at + 1..]),
            '\\' => match letters.next().expect("a letter after \\").1 {
                'n' => bytes.push(b'\n'),
                'r' => bytes.push(b'\r'),
                'x' => {
                    let digits: String = letters.by_ref().take(2).map(|(_, digit)| digit).collect();
                    bytes.push(u8::from_str_radix(&digits, 16).expect("two hexadecimal digits"));
                }
                other => bytes.extend(other.to_string().bytes()),
            },
            other => bytes.extend(other.to_string().bytes()),
        }
    }
    panic!("no closing quote: {text}");
}

/// A reply as redis-cli prints it.
fn rendered(value: &Value) -> String {
    match value {
        Value::Simple(bytes) | Value::Verbatim(bytes) => {
            // The client keeps the format of a verbatim string, `txt:`.
            let text = String::from_utf8_lossy(bytes);
            text.strip_prefix("txt:").unwrap_or(&text).trim_end().to_owned()
        }
        Value::Error(bytes) => format!("(error) {}", String::from_utf8_lossy(bytes)),
        Value::Integer(number) => format!("(integer) {number}"),
        Value::Bulk(bytes) => quoted(bytes),
        Value::NullBulk | Value::NullArray | Value::Null => "(nil)".to_owned(),
        Value::Bool(yes) => format!("({yes})"),
        Value::Double(bytes) => format!("(double) {}", String::from_utf8_lossy(bytes)),
        Value::BigNumber(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(list) if list.is_empty() => "(empty array)".to_owned(),
        Value::Set(list) if list.is_empty() => "(empty set)".to_owned(),
        Value::Map(pairs) if pairs.is_empty() => "(empty hash)".to_owned(),
        Value::Array(list) | Value::Push(list) => {
            numbered(list.iter().map(rendered).collect(), ")")
        }
        Value::Set(list) => numbered(list.iter().map(rendered).collect(), "~"),
        Value::Map(pairs) => {
            let pair =
                |pair: &(Value, Value)| format!("{} => {}", rendered(&pair.0), rendered(&pair.1));
            numbered(pairs.iter().map(pair).collect(), "#")
        }
    }
}

/// Elements with their numbers; the further lines of an element are below its first.
fn numbered(elements: Vec<String>, mark: &str) -> String {
    let width = elements.len().to_string().len();
    let shift = format!("\n{}", " ".repeat(width + 2));
    let element = |(at, text): (usize, &String)| {
        format!("{:>width$}{mark} {}", at + 1, text.replace('\n', &shift))
    };
    elements.iter().enumerate().map(element).collect::<Vec<_>>().join("\n")
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', byte.into()]),
            b'\n' => text += "\\n",
            b'\r' => text += "\\r",
            b'\t' => text += "\\t",
            b' '..=b'~' => text.push(byte.into()),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text + "\""
}
