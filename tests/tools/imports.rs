//! The promise: inside a layer, imports form no large cycles.
//!
//! The graph is read from the text: the paths of `use`, and those in the code that begin with
//! `crate`, `super`, `self`, a child module or an imported name. A name that a module re-exports
//! counts as the file that defines it; a re-export itself is no edge.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{all_sources, code, without_tests};

/// No more files than this may import each other in a cycle.
pub const CIRCLE_FILES: usize = 4;

/// Messages that carry work for the whole engine name its type, and call nothing of it.
const NAMES_ONLY: [&str; 2] = ["src/engine/context/main.rs", "src/engine/context/workers.rs"];

type Path = Vec<String>;
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// One `use`: the name that it introduces, and the path behind it.
struct Import {
    name: String,
    path: Path,
    is_public: bool,
}

struct Module {
    file: String,
    imports: Vec<Import>,
    /// Everything but `use`.
    code: String,
    /// Paths in the code.
    mentions: Vec<Path>,
}

/// `src/engine/long/mod.rs` is `engine::long`.
fn module_path(file: &str) -> Path {
    let inner = file.trim_start_matches("src/").trim_end_matches(".rs");
    let inner = inner.trim_end_matches("/mod").split('/').filter(|part| *part != "lib");
    inner.map(str::to_owned).collect()
}

/// The paths of `a::{b, c::d as e}`, each with the name that it introduces.
fn tree(text: &str, before: &[String], paths: &mut Vec<(String, Path)>) {
    let text = text.trim();
    if let Some((head, list)) = text.split_once('{') {
        let list = list.strip_suffix('}').expect("a use tree that ends");
        let head = head.split("::").map(str::trim).filter(|part| !part.is_empty());
        let before: Path = before.iter().cloned().chain(head.map(str::to_owned)).collect();
        let (mut depth, mut start) = (0, 0);
        for (at, sign) in list.char_indices().chain([(list.len(), ',')]) {
            match sign {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    tree(&list[start..at], &before, paths);
                    start = at + 1;
                }
                _ => {}
            }
        }
    } else if !text.is_empty() {
        let (text, alias) = text.split_once(" as ").map_or((text, None), |(a, b)| (a, Some(b)));
        let mut path: Path = before.to_vec();
        path.extend(text.split("::").map(|part| part.trim().to_owned()));
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let last = path.last().expect("a path has parts").clone();
        paths.push((alias.map_or(last, |alias| alias.trim().to_owned()), path));
    }
}

/// The paths of two or more parts in a line of code.
fn mentions(line: &str, found: &mut Vec<Path>) {
    let words = line.split(|sign: char| !sign.is_alphanumeric() && sign != '_' && sign != ':');
    for word in words.filter(|word| word.contains("::")) {
        let parts: Path = word.split("::").map(str::to_owned).collect();
        if parts.iter().all(|part| !part.is_empty() && !part.contains(':')) {
            found.push(parts);
        }
    }
}

fn read(file: &str, text: &str) -> Module {
    let mut module = Module {
        file: file.to_owned(),
        imports: Vec::new(),
        code: String::new(),
        mentions: Vec::new(),
    };
    let mut lines = code(without_tests(text)).map(|(_, line)| line);
    while let Some(line) = lines.next() {
        let is_use = line.starts_with("use ") || line.starts_with("pub") && line.contains(" use ");
        if !is_use {
            mentions(line, &mut module.mentions);
            module.code += line;
            module.code.push('\n');
            continue;
        }
        let mut whole = line.to_owned();
        while !whole.contains(';') {
            whole += lines.next().expect("a use that ends");
        }
        let (visibility, paths) = whole.split_once("use ").expect("a use");
        let mut named = Vec::new();
        tree(paths.split(';').next().expect("a use that ends"), &[], &mut named);
        let is_public = !visibility.is_empty();
        let imports = named.into_iter().map(|(name, path)| Import { name, path, is_public });
        module.imports.extend(imports);
    }
    module
}

type Modules = BTreeMap<Path, Module>;

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    module: Path,
    /// Not the module itself, but an item that it defines.
    is_inside: bool,
}

/// The target of a path that is written in module `from`; `None` for other crates. `steps` limits
/// how many re-exports are followed.
fn resolve(modules: &Modules, from: &[String], path: &[String], steps: usize) -> Option<Target> {
    let (first, rest) = path.split_first()?;
    let root = match first.as_str() {
        "crate" => &[],
        "self" => from,
        "super" => from.split_last()?.1,
        _ => return within(modules, from, path, steps, false),
    };
    if rest.first().is_some_and(|part| part == "super") {
        return resolve(modules, root, rest, steps);
    }
    within(modules, root, rest, steps, true)
}

/// The target of `path` from `module`. A name that the module neither has as a child nor imports
/// is its own if the path is `qualified`; otherwise another crate's or the language's.
fn within(
    modules: &Modules,
    module: &[String],
    path: &[String],
    steps: usize,
    qualified: bool,
) -> Option<Target> {
    let own = |is_inside| Target { module: module.to_vec(), is_inside };
    let Some((first, rest)) = path.split_first() else { return Some(own(false)) };
    let child: Path = module.iter().chain([first]).cloned().collect();
    if modules.contains_key(&child) {
        return within(modules, &child, rest, steps, true);
    }
    let mut imports = modules.get(module)?.imports.iter();
    match imports.find(|import| import.name == *first && import.path != [first.as_str()]) {
        Some(import) => {
            let target: Path = import.path.iter().chain(rest).cloned().collect();
            resolve(modules, module, &target, steps.checked_sub(1)?)
        }
        None => qualified.then(|| own(true)),
    }
}

/// The files of its layer that each file uses.
pub fn edges(sources: &[(String, String)]) -> Edges {
    let modules: Modules =
        sources.iter().map(|(file, text)| (module_path(file), read(file, text))).collect();
    let mut edges = Edges::new();
    for (path, module) in &modules {
        // A module does not itself use what it only re-exports to its users or its children.
        let is_folder = module.file.ends_with("/mod.rs");
        let imported = module.imports.iter().filter(|import| {
            let mut words = module.code.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
            !is_folder && !import.is_public || words.any(|word| word == import.name)
        });
        for used in imported.map(|import| &import.path).chain(&module.mentions) {
            // An imported module counts if an item of it is used.
            let target = resolve(&modules, path, used, 8).filter(|target| target.is_inside);
            let Some(Target { module: target, .. }) = target else { continue };
            let names_only =
                NAMES_ONLY.contains(&&*module.file) && modules[&target].file == "src/engine/mod.rs";
            if path.first() == target.first() && target != *path && !names_only {
                let targets = edges.entry(module.file.clone()).or_default();
                targets.insert(modules[&target].file.clone());
            }
        }
    }
    edges
}

/// Files that reach each other; each group once.
pub fn circles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in edges.get(file).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|file| (file, reached(file))).collect();
    let both = |a: &String, b: &String| {
        reach[a].contains(b) && reach.get(b).is_some_and(|back| back.contains(a))
    };
    let groups: BTreeSet<BTreeSet<String>> = edges
        .keys()
        .map(|file| edges.keys().filter(|other| both(file, other)).cloned().collect())
        .collect();
    groups.into_iter().filter(|group: &BTreeSet<String>| group.len() > 1).collect()
}

#[test]
fn imports_run_in_no_large_circles() {
    let edges = edges(&all_sources());
    let count: usize = edges.values().map(BTreeSet::len).sum();
    if std::env::var_os("MIDI_SHOW_IMPORTS").is_some() {
        for (file, targets) in &edges {
            println!(
                "{file}: {}",
                targets.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
            );
        }
        println!("{count} edges; circles: {:#?}", circles(&edges));
    }
    assert!(count > 300, "only {count} imports were found");
    for circle in circles(&edges) {
        assert!(circle.len() <= CIRCLE_FILES, "import each other in a circle: {circle:#?}");
    }
}

fn made_up(sources: &[(&str, &str)]) -> Edges {
    edges(&sources.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect::<Vec<_>>())
}

#[test]
fn a_circle_is_found() {
    let edges = made_up(&[
        ("src/lib.rs", "pub mod net;\n"),
        (
            "src/net/mod.rs",
            "mod a;\nmod b;\nmod c;\nmod d;\npub use b::B;\npub use d::D;\nfn f(d: D) {}\n",
        ),
        // Through a re-export, in a list over several lines, beside another crate's name.
        ("src/net/a.rs", "use std::fmt;\nuse super::{\n    B,\n    c as other,\n};\n"),
        ("src/net/b.rs", "struct B;\nfn f() { crate::net::c::f() }\n"),
        ("src/net/c/mod.rs", "mod inner;\nuse inner::Inner;\nstruct C(Inner);\n"),
        ("src/net/c/inner.rs", "use super::super::a::{self, A};\n"),
        // Tests, comments and other layers make no edges.
        (
            "src/net/d.rs",
            "// crate::net::a::A\nuse crate::store::Store;\n#[cfg(test)]\nmod tests {\n\
             use super::super::a::A;\n}\n",
        ),
        ("src/store/mod.rs", "use crate::net::D;\n"),
    ]);
    let expected = [
        ("src/net/a.rs", "src/net/b.rs"),
        ("src/net/b.rs", "src/net/c/mod.rs"),
        ("src/net/c/inner.rs", "src/net/a.rs"),
        ("src/net/c/mod.rs", "src/net/c/inner.rs"),
        // Used, and re-exported, too.
        ("src/net/mod.rs", "src/net/d.rs"),
    ];
    let found: Vec<(&str, &str)> = edges
        .iter()
        .flat_map(|(from, to)| to.iter().map(|to| (from.as_str(), to.as_str())))
        .collect();
    assert_eq!(found, expected);
    let circles = circles(&edges);
    assert_eq!(circles.len(), 1);
    assert_eq!(circles[0].len(), 4);
}

#[test]
fn a_module_counts_by_what_is_used_of_it() {
    let edges = made_up(&[
        ("src/net/mod.rs", "mod a;\nmod c;\n"),
        ("src/net/a.rs", "use super::c;\nfn f() { c::inner::f(); c::Given::new() }\n"),
        ("src/net/c/mod.rs", "mod inner;\nmod given;\npub use given::Given;\nuse inner::f;\n"),
        ("src/net/c/inner.rs", ""),
        ("src/net/c/given.rs", "pub struct Given;\n"),
    ]);
    let expected = ["src/net/c/given.rs", "src/net/c/inner.rs"].map(str::to_owned);
    assert_eq!(edges["src/net/a.rs"], BTreeSet::from(expected));
    assert!(circles(&edges).is_empty());
}
