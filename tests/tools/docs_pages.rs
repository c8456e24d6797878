//! The promise: the pages can be read and followed. Prose lines have a bounded length, every link
//! has a target, every page is near, and docs/configuration.md has every setting once, with its
//! default and when it can be changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Builder, Value};

/// The longest line of prose, from CONTRIBUTING.md.
const WIDTH: usize = 100;

/// The part of a page between these marks is generated from the command table.
const MADE: (&str, &str) = ("<!-- made from", "<!-- written by hand");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All pages: those at the top, and those in docs and .github.
fn pages() -> Vec<PathBuf> {
    let mut folders = vec![root().join("docs"), root().join(".github")];
    let mut pages = files(&root());
    while let Some(folder) = folders.pop() {
        pages.extend(files(&folder));
        folders.extend(entries(&folder).into_iter().filter(|path| path.is_dir()));
    }
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.sort();
    assert!(pages.len() > 80, "the pages were not found");
    pages
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(folder).expect("a folder of the project");
    folder.map(|entry| entry.expect("a readable folder").path()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.is_file()).collect()
}

fn text(page: &Path) -> String {
    fs::read_to_string(page).expect("a page")
}

/// The lines outside of code blocks, numbered from 1.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((number + 1, line.to_owned()));
        }
    }
    lines
}

/// The line without the code in it.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of a line's links.
fn links(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// The line with its links replaced by their texts.
fn without_links(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, rest| line + "]" + rest.split_once(')').map_or("", |(_, after)| after))
}

#[test]
fn lines_are_not_too_long() {
    let mut wrong = String::new();
    for page in pages() {
        let mut is_made = false;
        for (number, line) in lines(&text(&page)) {
            is_made = (is_made || line.starts_with(MADE.0)) && !line.starts_with(MADE.1);
            // Tables, errors of commands, and code at the end of a line stand on one line.
            let is_free = is_made || line.starts_with('|') || line.starts_with("* `");
            let is_free = is_free || line.ends_with('`');
            if !is_free && without_links(&line).chars().count() > WIDTH {
                wrong += &format!("{}:{number}\n", page.display());
            }
        }
    }
    assert!(wrong.is_empty(), "more than {WIDTH} columns of prose:\n{wrong}");
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = String::new();
    for page in pages() {
        for (number, line) in lines(&text(&page)) {
            for link in
                links(&without_code(&line)).into_iter().filter(|link| !leads_somewhere(&page, link))
            {
                wrong += &format!("{}:{number}: {link}\n", page.display());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whether a link's target is another site, an existing file, or a heading of a page.
fn leads_somewhere(page: &Path, link: &str) -> bool {
    if link.starts_with("https://") {
        return true;
    }
    let (file, heading) =
        link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let target = if file.is_empty() { page.to_owned() } else { page.with_file_name(file) };
    target.exists()
        && heading.is_none_or(|heading| headings(&text(&target)).any(|other| other == heading))
}

/// The headings of a page, in the form that links use.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles.map(|title| title.trim_start_matches('#').trim().to_lowercase()).map(|title| {
        let letter = |letter: char| match letter {
            ' ' | '-' => Some('-'),
            letter => Some(letter).filter(|letter| letter.is_alphanumeric() || *letter == '_'),
        };
        title.chars().filter_map(letter).collect()
    })
}

/// The pages that a page has links to.
fn linked_pages(page: &Path) -> BTreeSet<PathBuf> {
    let text = text(page);
    let prose: Vec<String> = lines(&text).iter().map(|(_, line)| without_code(line)).collect();
    let targets = prose.iter().flat_map(|line| links(line));
    let files = targets.filter_map(|link| link.split('#').next().filter(|file| !file.is_empty()));
    let paths = files.filter(|file| file.ends_with(".md") && !file.contains("://"));
    paths.map(|file| page.with_file_name(file).canonicalize().expect("a page")).collect()
}

/// How far a reader may have to go from README.md.
const CLICKS: usize = 3;

#[test]
fn every_page_is_found_in_three_clicks() {
    let mut found = BTreeSet::from([root().join("README.md").canonicalize().expect("README")]);
    for _ in 0..CLICKS {
        found.extend(found.clone().iter().flat_map(|page| linked_pages(page)));
    }
    let of_docs = pages().into_iter().filter(|page| page.starts_with(root().join("docs")));
    let summary = root().join("docs/SUMMARY.md");
    let hidden: Vec<PathBuf> =
        of_docs.filter(|page| *page != summary && !found.contains(page)).collect();
    assert!(hidden.is_empty(), "more than {CLICKS} clicks away from README.md: {hidden:#?}");
}

#[test]
fn the_site_has_every_page() {
    let listed = linked_pages(&root().join("docs/SUMMARY.md"));
    let is_of_site = |page: &PathBuf| {
        let is_command = page.starts_with(root().join("docs/commands"));
        page.starts_with(root().join("docs"))
            && !page.ends_with("SUMMARY.md")
            // `make docs` adds these.
            && (!is_command || page.ends_with("README.md"))
    };
    let missing: Vec<PathBuf> =
        pages().into_iter().filter(is_of_site).filter(|page| !listed.contains(page)).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:#?}");
}

/// The cells of a setting in docs/configuration.md.
struct Row {
    default: String,
    changes: String,
}

fn rows() -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for line in text(&root().join("docs/configuration.md")).lines() {
        let Some((name, rest)) = line.strip_prefix("| `").and_then(|line| line.split_once('`'))
        else {
            continue;
        };
        let cells: Vec<&str> = rest.split('|').map(str::trim).collect();
        let row = Row { default: cells[1].into(), changes: cells[3].into() };
        assert!(rows.insert(name.to_owned(), row).is_none(), "{name} has two rows");
    }
    rows
}

/// A number as CONFIG GET returns it; other words unchanged.
fn unfolded(value: &str) -> String {
    let units = [("kb", 1_u64 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];
    let sized = |(unit, factor)| {
        value.strip_suffix(unit)?.parse::<u64>().ok().map(|number| number * factor)
    };
    units
        .into_iter()
        .find_map(sized)
        .map_or_else(|| value.replace("empty", ""), |number| number.to_string())
}

#[test]
fn every_setting_has_one_row() {
    let server = Builder::new().start();
    let mut client = server.client();
    let settings = client.call(&["CONFIG", "GET", "midi.*"]).map();
    let rows = rows();
    let (named, known): (Vec<&String>, Vec<&String>) =
        (rows.keys().collect(), settings.keys().collect());
    assert!(known.iter().all(|name| named.contains(name)), "{known:?} and {named:?}");
    assert_eq!(named.len(), known.len(), "{known:?} and {named:?}");
    for (name, row) in rows {
        let value = settings[&name].text();
        if row.default != "the host's" {
            assert_eq!(unfolded(&row.default), value, "{name}'s default");
        }
        let reply = client.call(&["CONFIG", "SET", &name, &value]);
        let changes = if matches!(reply, Value::Error(_)) { "at start" } else { "at runtime" };
        assert_eq!(row.changes, changes, "{name}");
    }
}

#[test]
fn settings_have_their_rows_in_one_page() {
    for page in pages().into_iter().filter(|page| !page.ends_with("docs/configuration.md")) {
        let found = text(&page).lines().any(|line| line.starts_with("| `midi."));
        assert!(!found, "{}: docs/configuration.md has the settings", page.display());
    }
}
