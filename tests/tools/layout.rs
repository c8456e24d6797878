//! The promise: data flows one way, and folder names are accurate.
//!
//! `store ← command ← engine ← snapshot ← net, host`, and `sync ← engine`; only `host` (and the
//! entry in lib.rs) names the module API; `unsafe` is only where the design allows it, with its
//! reason. No protocol of the ports knows another. Lines and files are short enough to be read,
//! every file is part of the crate, and a type name has one meaning.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, lowest first, and what each may not use.
pub const LAYERS: [(&str, &[&str]); 7] = [
    ("sync", &["store", "command", "engine", "snapshot", "net", "host"]),
    ("store", &["sync", "command", "engine", "snapshot", "net", "host"]),
    ("command", &["sync", "engine", "snapshot", "net", "host"]),
    ("engine", &["snapshot", "net", "host"]),
    ("snapshot", &["net", "host"]),
    ("net", &["host"]),
    ("host", &["net"]),
];

/// The protocols of the ports, each a folder in src/net/.
const PROTOCOLS: [&str; 2] = ["resp", "memcached"];

/// Other files of src/net/ that name one of them. The list only gets shorter.
const KNOW_PROTOCOLS: [&str; 6] =
    ["mod.rs", "session.rs", "port.rs", "service.rs", "deliveries.rs", "turn.rs"];

/// Where `unsafe` is allowed.
const UNSAFE: [&str; 11] = [
    "src/lib.rs",
    "src/store/arena/",
    "src/store/bucket.rs",
    "src/store/entry.rs",
    "src/store/entry/other.rs",
    "src/store/entry/overwrite.rs",
    "src/store/fields/large.rs",
    "src/sync/",
    "src/engine/slot.rs",
    "src/host/",
    "src/net/transport/driver/",
];

/// Longest line, in columns, in every file.
const COLUMNS: usize = 100;

/// Longest file in src/, in lines.
const FILE_LINES: usize = 500;

/// The folders with code that is not of the module.
const TEST_FOLDERS: [&str; 5] = ["tests", "benches", "fuzz", "tools", "module-api"];

/// Longest file in these, in lines.
const TEST_FILE_LINES: usize = 800;

/// Files in src/ that are longer, each with its reason.
const LONGER: &[(&str, &str)] = &[];

/// Statics of the host's layer, besides constant tables. The number only falls: the host's state
/// becomes one struct. It rose by one for what the allocator has learned of the host, which that
/// struct's own memory needs.
const HOST_STATICS: usize = 17;

/// Type names of src/ with several meanings: how many, and why that is not misleading. No other
/// name may be defined twice.
const SEVERAL_MEANINGS: &[(&str, usize, &str)] = &[
    (
        "Answer",
        3,
        "the host's to a call; a port's to a connection; private: of main to a long MGET",
    ),
    ("Asker", 2, "in the host's layer: of a right, by module; of a copy, only in its folder"),
    ("Changes", 3, "each used in its own folder alone"),
    ("Mark", 2, "of a descriptor, in net; private: of a key, in engine"),
    ("Origin", 2, "of a value, in store; of a command, in engine: no file knows both"),
    ("Users", 2, "those midi knows, in engine; the host's, in host"),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            // Cargo's target directory, wherever it is.
            if !path.ends_with("target") {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

/// Every source file of the module: its path from the project's root, and its text.
pub fn all_sources() -> Vec<(String, String)> {
    sources_of("src")
}

fn sources_of(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let relative =
        |path: &Path| path.strip_prefix(root).expect("below the root").display().to_string();
    sources(&root.join(folder))
        .iter()
        .map(|path| (relative(path), fs::read_to_string(path).expect("readable text")))
        .collect()
}

/// Whether a file has nothing but the tests of the file above it.
pub fn is_of_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The text before a file's own tests.
pub fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// The lines that are not comments, numbered from 1.
pub fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.starts_with("//"))
}

/// The text behind `pub`, `pub(super)` and the like.
pub fn behind_visibility(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("pub") else { return text };
    let limited = rest.strip_prefix('(').and_then(|limit| limit.split_once(") "));
    limited.map_or(rest, |(_, rest)| rest).trim_start()
}

#[test]
fn no_layer_uses_what_it_may_not() {
    let mut checked = 0;
    for (path, text) in all_sources() {
        let Some((_, forbidden)) =
            LAYERS.iter().find(|(layer, _)| path.starts_with(&format!("src/{layer}/")))
        else {
            continue;
        };
        for (number, line) in code(&text) {
            for layer in *forbidden {
                assert!(!line.contains(&format!("crate::{layer}")), "{path}:{number} uses {layer}");
            }
            checked += 1;
        }
    }
    assert!(checked > 1000, "the sources were not found");
}

/// Whether a line names a protocol: as a module, or as the beginning of another name.
fn names_protocol(line: &str, protocol: &str) -> bool {
    let (first, rest) = protocol.split_at(1);
    let title = first.to_uppercase() + rest;
    line.split(|sign: char| !sign.is_alphanumeric()).any(|word| {
        let after = word.strip_prefix(&title);
        word == protocol
            || after.is_some_and(|after| !after.starts_with(|next: char| next.is_lowercase()))
    })
}

#[test]
fn no_protocol_knows_another() {
    let mut checked = 0;
    for (path, text) in all_sources() {
        let Some(path) = path.strip_prefix("src/net/") else { continue };
        let own = PROTOCOLS.into_iter().find(|own| path.starts_with(&format!("{own}/")));
        if KNOW_PROTOCOLS.contains(&path) {
            continue;
        }
        for (number, line) in code(without_tests(&text)) {
            for other in PROTOCOLS.into_iter().filter(|other| own != Some(*other)) {
                assert!(!names_protocol(line, other), "src/net/{path}:{number} knows {other}");
            }
            checked += 1;
        }
    }
    assert!(checked > 1000, "the sources were not found");
}

#[test]
fn names_of_protocols_are_found() {
    for line in ["use super::resp::Head;", "x: RespReply<'_>", "Speaks::Resp =>", "ask_resp()"] {
        assert!(names_protocol(line, "resp"), "{line}");
    }
    for line in ["session.resp3", "let response = 1;", "Responds", "memcached::FULL"] {
        assert!(!names_protocol(line, "resp"), "{line}");
    }
}

#[test]
fn only_the_host_layer_names_the_module_api() {
    for (path, text) in all_sources() {
        if path.starts_with("src/host/") || path == "src/lib.rs" {
            continue;
        }
        for (number, line) in code(&text) {
            assert!(
                !line.contains("midi_module_api") && !line.contains("RedisModule_"),
                "{path}:{number}"
            );
        }
    }
}

#[test]
fn every_function_of_the_module_api_is_asked_for_at_load() {
    let declarations = sources_of("module-api/src");
    let (_, functions) =
        declarations.iter().find(|(path, _)| path.ends_with("/functions.rs")).expect("the lists");
    let (_, list) = functions.split_once("each_required:\n").expect("the list");
    let (list, _) = list.split_once("\n}").expect("the list's end");
    let mut used = 0;
    for (path, text) in all_sources() {
        for call in text.split("api!(RedisModule_").skip(1) {
            let name = call.split(')').next().expect("a closing bracket");
            assert!(
                list.contains(&format!("    RedisModule_{name}(")),
                "{path}: {name} is not in the list"
            );
            used += 1;
        }
    }
    assert!(used > 50, "the calls were not found");
}

#[test]
fn unsafe_stands_only_where_it_may() {
    for (path, text) in all_sources() {
        if UNSAFE.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        for (number, line) in code(&text) {
            assert!(!line.contains("unsafe "), "{path}:{number}");
        }
    }
}

#[test]
fn keys_are_changed_in_one_place() {
    // The compiler checks the rest: all else that changes a table is private to the store.
    let doors = [
        "Edit::new(",
        "Edit {",
        ".take_db(",
        ".take_all(",
        ".swap_dbs(",
        ".replace_db(",
        "table.remove_due(",
    ];
    // The engine's own, which uses the table's.
    let engines = ["ledger.swap_dbs("];
    let places = [
        "src/store/",
        "src/engine/ledger/edit.rs",
        "src/engine/ledger/held_keys.rs",
        "src/engine/dispatch/attempt.rs",
        "src/engine/ledger/databases.rs",
        "src/engine/ledger/staging.rs",
        "src/engine/ledger/log/take_back.rs",
    ];
    for (path, text) in all_sources() {
        if places.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        for (number, line) in code(&text) {
            let is_engines = engines.iter().any(|call| line.contains(call));
            let found = doors.iter().find(|door| line.contains(**door) && !is_engines);
            assert!(found.is_none(), "{path}:{number}: {line}");
        }
    }
}

#[test]
fn every_module_file_belongs_to_a_layer() {
    for (path, _) in all_sources() {
        let known = LAYERS.iter().any(|(layer, _)| path.starts_with(&format!("src/{layer}/")));
        assert!(
            known || path == "src/lib.rs" || path.starts_with("src/limits"),
            "{path} has no place in the layout"
        );
    }
}

/// The numbers of lines that are too long. Drawings in comments may be; links have to be.
fn long_lines(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_drawing = false;
    for (number, line) in text.lines().enumerate() {
        let comment =
            line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
        match comment.map(str::trim) {
            Some("```text") => is_drawing = true,
            Some("```") | None => is_drawing = false,
            Some(_) => {}
        }
        let is_link = line.contains("http://") || line.contains("https://");
        if line.chars().count() > COLUMNS && !is_drawing && !is_link {
            found.push(number + 1);
        }
    }
    found
}

#[test]
fn lines_are_short() {
    let mut checked = 0;
    for folder in TEST_FOLDERS.iter().chain(&["src"]) {
        for (path, text) in sources_of(folder) {
            let long = long_lines(&text);
            assert!(long.is_empty(), "{path}: more than {COLUMNS} columns in lines {long:?}");
            checked += 1;
        }
    }
    assert!(checked > 250, "the sources were not found");
}

#[test]
fn long_lines_are_found() {
    let long = "–".repeat(COLUMNS + 1);
    assert_eq!(long_lines(&"–".repeat(COLUMNS)), []);
    assert_eq!(long_lines(&format!("a\n{long}\n    \"{long}\"\n// {long}")), [2, 3, 4]);
    assert_eq!(long_lines(&format!("//! ```text\n//! {long}\n//! ```\n//! {long}")), [4]);
    assert_eq!(long_lines(&format!("//! ```text\nlet text = \"{long}\";")), [2]);
    assert_eq!(long_lines(&format!("/// https://example.org/{long}")), []);
}

#[test]
fn files_are_short() {
    for (path, text) in all_sources() {
        let lines = text.lines().count();
        let reason = LONGER.iter().find(|(longer, _)| *longer == path);
        assert_eq!(lines > FILE_LINES, reason.is_some(), "{path} has {lines} lines: {reason:?}");
    }
    for (path, text) in TEST_FOLDERS.iter().flat_map(|folder| sources_of(folder)) {
        let lines = text.lines().count();
        assert!(
            lines <= TEST_FILE_LINES,
            "{path} has {lines} lines, and may have {TEST_FILE_LINES}: move the tests of one \
             promise to a file of its own, and helpers of several to tests/common"
        );
    }
}

/// The names of the statics of a file, thread-local ones and those within functions included. A
/// reference or an array of references is a constant table.
fn statics(text: &str) -> impl Iterator<Item = &str> {
    code(without_tests(text)).filter_map(|(_, line)| {
        let (name, rest) = behind_visibility(line).strip_prefix("static ")?.split_once(':')?;
        let kind = rest.trim_start();
        let is_table = kind.starts_with('&') || kind.starts_with("[&");
        (!is_table).then(|| name.trim_start_matches("mut "))
    })
}

#[test]
fn the_host_has_few_statics() {
    let sources = all_sources();
    let of_host = sources.iter().filter(|(path, _)| path.starts_with("src/host/"));
    let found: Vec<(&str, Vec<&str>)> = of_host
        .map(|(path, text)| (path.as_str(), statics(text).collect::<Vec<_>>()))
        .filter(|(_, names)| !names.is_empty())
        .collect();
    let count: usize = found.iter().map(|(_, names)| names.len()).sum();
    assert!(
        count <= HOST_STATICS,
        "{count} statics in src/host, and may be {HOST_STATICS}: make the new one a field of the \
         host's state in instance.rs. {found:#?}"
    );
    assert_eq!(count, HOST_STATICS, "fewer statics in src/host: lower HOST_STATICS to {count}");
}

#[test]
fn statics_are_found() {
    let text = "pub static A: AtomicBool = AtomicBool::new(false);\nfn f(x: &'static str) {\n    \
                static mut B: [u8; 2] = [0; 2];\n}\nstatic TABLE: &[u8] = &[];\n\
                pub(super) static C: Mutex<u8> =\n    Mutex::new(0);\n// static D: u8 = 0;\n\
                static TEXTS: [&Text; 4] = [];\n#[cfg(test)]\nmod tests {\nstatic E: u8 = 0;\n}\n";
    assert_eq!(statics(text).collect::<Vec<_>>(), ["A", "B", "C"]);
}

/// The files that no `mod` declares.
fn undeclared(sources: &[(String, String)]) -> Vec<&str> {
    let declares = |parent: &str, name: &str| {
        let text = sources.iter().find(|(path, _)| path == parent).map(|(_, text)| text.as_str());
        let wanted = format!("mod {name};");
        code(text.unwrap_or_default()).any(|(_, line)| {
            line == wanted || line.starts_with("pub") && line.ends_with(&format!(" {wanted}"))
        })
    };
    let is_declared = |path: &str| {
        let inner = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let (folder, name) = inner.rsplit_once('/').expect("a path below src");
        [format!("{folder}/mod.rs"), format!("{folder}.rs"), format!("{folder}/lib.rs")]
            .iter()
            .any(|parent| declares(parent, name))
    };
    let paths = sources.iter().map(|(path, _)| path.as_str());
    paths.filter(|path| *path != "src/lib.rs" && !is_declared(path)).collect()
}

#[test]
fn every_file_is_part_of_the_crate() {
    let sources = all_sources();
    assert_eq!(undeclared(&sources), Vec::<&str>::new());
}

#[test]
fn files_outside_of_the_crate_are_found() {
    let sources = [
        ("src/lib.rs", "pub mod a;\n// mod b;\nmod of_c;\n"),
        ("src/a/mod.rs", "pub(super) mod inner;\n"),
        ("src/a/inner.rs", "#[cfg(test)]\nmod tests;\n"),
        ("src/a/inner/tests.rs", ""),
        ("src/a/lost.rs", ""),
        ("src/b.rs", ""),
        ("src/c/mod.rs", ""),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(undeclared(&sources), ["src/a/lost.rs", "src/b.rs", "src/c/mod.rs"]);
}

/// The types that a file defines outside of functions and its own tests.
fn types(text: &str) -> impl Iterator<Item = &str> {
    without_tests(text).lines().filter_map(|line| {
        // Structs within a macro's braces are indented.
        let inner = line.strip_prefix("    ").filter(|inner| inner.starts_with("pub struct "));
        let line = inner.unwrap_or(line);
        let words = behind_visibility(line).split_whitespace();
        let mut words = words.skip_while(|word| *word == "unsafe");
        let is_type = !line.starts_with(char::is_whitespace)
            && matches!(words.next(), Some("struct" | "enum" | "union" | "trait" | "type"));
        let name = words.next().filter(|_| is_type)?;
        name.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
    })
}

/// Where each type name is defined.
fn definitions(sources: &[(String, String)]) -> BTreeMap<&str, Vec<&str>> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources.iter().filter(|(path, _)| !is_of_tests(path)) {
        for name in types(text) {
            places.entry(name).or_default().push(path);
        }
    }
    places
}

#[test]
fn a_type_name_has_one_meaning() {
    let sources = all_sources();
    let places = definitions(&sources);
    assert!(places.len() > 300, "the types were not found");
    for (name, places) in places {
        let known = SEVERAL_MEANINGS.iter().find(|(known, ..)| *known == name);
        let meanings = known.map_or(1, |(_, meanings, _)| *meanings);
        assert_eq!(places.len(), meanings, "{name} is defined in {places:?}: {known:?}");
    }
}

#[test]
fn names_with_two_meanings_are_found() {
    let sources = [
        ("src/a.rs", "pub(super) struct Part<'a>(&'a u8);\nunsafe trait Place: Send {}\n"),
        ("src/b.rs", "enum Part {\n    struct Inner;\n}\n// struct Place;\nstruct Places;\n"),
        (
            "src/c.rs",
            "fn f() {\n    type Part = u8;\n}\n#[cfg(test)]\nmod tests {\nstruct Part;\n}\n",
        ),
        ("src/c/tests.rs", "struct Place;\n"),
        ("src/c/tests/model.rs", "struct Place;\n"),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()));
    let found = definitions(&sources);
    assert_eq!(found["Part"], ["src/a.rs", "src/b.rs"]);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["Part", "Place", "Places"]);
}
