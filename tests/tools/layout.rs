//! The promise: data flows one way, and the folders do not lie.
//!
//! `store ← command ← engine ← net, host`, and `sync ← engine`; only `host` (and the entry in lib.rs)
//! names the module API; `unsafe` lives where the design allows it, with its reason.

use std::fs;
use std::path::{Path, PathBuf};

/// The layers, lowest first, and what each may not use.
const LAYERS: [(&str, &[&str]); 6] = [
    ("sync", &["store", "command", "engine", "net", "host"]),
    ("store", &["sync", "command", "engine", "net", "host"]),
    ("command", &["sync", "engine", "net", "host"]),
    ("engine", &["net", "host"]),
    ("net", &["host"]),
    ("host", &["net"]),
];

/// Where `unsafe` may stand.
const UNSAFE: [&str; 6] = [
    "src/lib.rs",
    "src/store/entry.rs",
    "src/store/segment.rs",
    "src/sync/",
    "src/engine/slot.rs",
    "src/host/",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

/// Every source file: its path from the project's root, and its text.
fn all_sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let relative =
        |path: &Path| path.strip_prefix(root).expect("below the root").display().to_string();
    sources(&root.join("src"))
        .iter()
        .map(|path| (relative(path), fs::read_to_string(path).expect("readable text")))
        .collect()
}

/// The lines that are not comments, numbered from 1.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.starts_with("//"))
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

#[test]
fn only_the_host_layer_names_the_module_api() {
    for (path, text) in all_sources() {
        if path.starts_with("src/host/") || path == "src/lib.rs" {
            continue;
        }
        for (number, line) in code(&text) {
            assert!(
                !line.contains("redis_module") && !line.contains("RedisModule_"),
                "{path}:{number}"
            );
        }
    }
}

#[test]
fn every_function_of_the_module_api_is_asked_for_at_load() {
    let sources = all_sources();
    let (_, api) =
        sources.iter().find(|(path, _)| path == "src/host/api.rs").expect("the list's file");
    let (_, list) = api.split_once("first_missing! {\n").expect("the list");
    let (list, _) = list.split_once('}').expect("the list's end");
    let listed: Vec<&str> = list.split_whitespace().collect();
    let mut used = 0;
    for (path, text) in &sources {
        for call in text.split("api!(RedisModule_").skip(1) {
            let name = call.split(')').next().expect("a closing bracket");
            assert!(
                listed.contains(&format!("RedisModule_{name}").as_str()),
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
    // The rest the compiler sees to: what else changes a table is private to the store.
    let doors = ["Edit::new(", "Edit {", ".take_db(", ".swap_dbs(", "table.remove_due("];
    let places =
        ["src/store/", "src/engine/edit.rs", "src/engine/attempt.rs", "src/engine/all_keys.rs"];
    for (path, text) in all_sources() {
        if places.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        for (number, line) in code(&text) {
            let found = doors
                .iter()
                .find(|door| line.contains(**door) && !line.contains("engine.swap_dbs("));
            assert!(found.is_none(), "{path}:{number}: {line}");
        }
    }
}

#[test]
fn every_module_file_belongs_to_a_layer() {
    for (path, _) in all_sources() {
        let known = LAYERS.iter().any(|(layer, _)| path.starts_with(&format!("src/{layer}/")));
        assert!(
            known || path == "src/lib.rs" || path == "src/limits.rs",
            "{path} has no place in the layout"
        );
    }
}
