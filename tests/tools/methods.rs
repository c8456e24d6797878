//! The promise: a type has its methods in few files, and a call leads no other way than an import
//! may.
//!
//! A call through `&self` needs no import, so `imports.rs` does not see it. Here it is an arrow
//! from the file that calls to the file that defines the method. The text does not tell the type of
//! most receivers, so a call counts in three cases: no other type of src has a method of that name,
//! it is called on `self` within an `impl` block of its type, or its type stands before it
//! (`Type::name`). A trait's methods are defined where the trait is.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{CIRCLE_FILES, circles, edges};
use super::layout::{LAYERS, all_sources, behind_visibility, is_of_tests, without_tests};

/// No more files than this may have `impl` blocks of one type; those of traits do not count.
const IMPL_FILES: usize = 6;

/// The files of circles above [`CIRCLE_FILES`] that are left, by layer, and what ends them. The
/// lists only get shorter.
const LARGE_CIRCLES: &[(&str, &str, &str)] = &[];

/// Methods of src that types of other crates have, too: a call by one of these names may be theirs.
const NAMES_OF_OTHERS: &[&str] = &[
    "any", "append", "bits", "drain", "elapsed", "first", "join", "last", "lock", "map", "ok",
    "pop", "position", "resize", "size", "sum", "swap", "to_owned", "truncate", "try_lock",
    "values",
];

/// An `impl` block or a trait.
#[derive(Clone, Copy)]
struct Block<'s> {
    /// The type or the trait.
    owner: &'s str,
    /// Whether its functions are the owner's: those of `impl Trait for Type` are the trait's.
    is_own: bool,
}

/// The name that a text begins with.
fn name(text: &str) -> &str {
    let end = text.find(|sign: char| !sign.is_alphanumeric() && sign != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The name that a text ends with.
fn last_name(text: &str) -> &str {
    let sign = |sign: char| !sign.is_alphanumeric() && sign != '_';
    text.rsplit(sign).next().unwrap_or(text)
}

/// The text behind `<…>`, if it begins with that.
fn behind_generics(text: &str) -> &str {
    let mut depth = 0;
    for (at, sign) in text.char_indices() {
        match sign {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text[at..].trim_start_matches('>');
        }
    }
    text
}

/// The block that begins with this line.
fn block(line: &str) -> Option<Block<'_>> {
    let line = behind_visibility(line);
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    if let Some(owner) = line.strip_prefix("trait ") {
        return Some(Block { owner: name(owner), is_own: true });
    }
    let head = line.strip_prefix("impl").filter(|head| head.starts_with([' ', '<']))?;
    let head = behind_generics(head);
    let of_trait = head.split_once(" for ");
    let owner = of_trait.map_or(head, |(_, owner)| owner).trim_start_matches([' ', '&']);
    let path = owner.strip_prefix("dyn ").unwrap_or(owner).split(['<', ' ']).next()?;
    Some(Block { owner: last_name(path), is_own: of_trait.is_none() })
}

/// The lines of code of a file, each with the block around it.
fn lines(text: &str) -> impl Iterator<Item = (Option<Block<'_>>, &str)> {
    let mut around = None;
    let code = without_tests(text).lines().filter(|line| !line.trim_start().starts_with("//"));
    code.map(move |line| {
        let goes_on = line.is_empty() || line.starts_with([' ', '{']) || line == "where";
        if !goes_on {
            around = block(line);
        }
        (around, line)
    })
}

/// The name of the function that begins with this line of a block.
fn function(line: &str) -> Option<&str> {
    let head = line.strip_prefix("    ").map(behind_visibility)?;
    let (qualifiers, rest) = head.split_once("fn ")?;
    let known = ["const", "unsafe", "extern", "\"C\""];
    let is_head =
        !head.starts_with(' ') && qualifiers.split_whitespace().all(|word| known.contains(&word));
    is_head.then(|| name(rest))
}

/// The methods that a line names, each behind its type, `self`, or nothing for other receivers.
fn named(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, sign) in line.match_indices(['.', ':']) {
        let (before, method) = (&line[..at], name(&line[at + 1..]));
        let after = &line[at + 1 + method.len()..];
        let is_call = after.starts_with('(') || after.starts_with("::<");
        if method.is_empty() || method.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        match (sign, before.strip_suffix(':')) {
            (":", Some(path)) if !last_name(path).is_empty() => {
                found.push((last_name(path), method));
            }
            (".", _) if is_call && !before.ends_with('.') => {
                let on_self = last_name(before) == "self";
                found.push((if on_self { "self" } else { "" }, method));
            }
            _ => {}
        }
    }
    found
}

/// The files that define methods: by name, then by type.
#[derive(Default)]
struct Methods<'s>(BTreeMap<&'s str, BTreeMap<&'s str, BTreeSet<&'s str>>>);

impl<'s> Methods<'s> {
    fn of(sources: &'s [(String, String)]) -> Self {
        let mut methods = Methods::default();
        for (file, text) in sources.iter().filter(|(file, _)| !is_of_tests(file)) {
            for (around, line) in lines(text) {
                let owner = around.filter(|block| block.is_own).map(|block| block.owner);
                if let (Some(owner), Some(name)) = (owner, function(line)) {
                    methods.0.entry(name).or_default().entry(owner).or_default().insert(file);
                }
            }
        }
        methods
    }

    /// The file of a type's method.
    fn of_type(&self, owner: &str, name: &str) -> Option<&'s str> {
        only(self.0.get(name)?.get(owner)?).copied()
    }

    /// The file of the only method of a name.
    fn of_any(&self, name: &str) -> Option<&'s str> {
        let owners = self.0.get(name).filter(|_| !NAMES_OF_OTHERS.contains(&name))?;
        only(owners.values()).and_then(only).copied()
    }
}

/// The only one of several.
fn only<T>(several: impl IntoIterator<Item = T>) -> Option<T> {
    let mut several = several.into_iter();
    several.next().filter(|_| several.next().is_none())
}

/// A call from one file to a method in another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call<'s> {
    from: &'s str,
    to: &'s str,
    name: &'s str,
}

fn calls(sources: &[(String, String)]) -> BTreeSet<Call<'_>> {
    let methods = Methods::of(sources);
    let mut calls = BTreeSet::new();
    for (from, text) in sources.iter().filter(|(file, _)| !is_of_tests(file)) {
        for (around, line) in lines(text) {
            let own = around.map_or("", |block| block.owner);
            for (on, name) in named(line) {
                let to = match on {
                    "" => methods.of_any(name),
                    "self" => methods.of_type(own, name).or_else(|| methods.of_any(name)),
                    "Self" => methods.of_type(own, name),
                    owner => methods.of_type(owner, name),
                };
                calls.extend(to.filter(|to| to != from).map(|to| Call { from, to, name }));
            }
        }
    }
    calls
}

/// Each call as a line.
fn told<'s>(calls: impl IntoIterator<Item = &'s Call<'s>>) -> Vec<String> {
    let line = |call: &Call<'_>| format!("{} → {}: {}", call.from, call.to, call.name);
    calls.into_iter().map(line).collect()
}

/// The layer of a file, which is its folder in src.
fn layer(file: &str) -> Option<&str> {
    file.strip_prefix("src/")?.split_once('/').map(|(layer, _)| layer)
}

/// The calls that lead from a layer to one that it may not use.
fn wrong_ways(calls: &BTreeSet<Call<'_>>) -> Vec<String> {
    let is_wrong = |call: &&Call<'_>| {
        let (from, to) = (layer(call.from), layer(call.to).unwrap_or_default());
        let rule = LAYERS.iter().find(|(layer, _)| from == Some(*layer));
        rule.is_some_and(|(_, forbidden)| forbidden.contains(&to))
    };
    told(calls.iter().filter(is_wrong))
}

#[test]
fn no_call_leads_to_a_layer_that_may_not_be_used() {
    let sources = all_sources();
    let calls = calls(&sources);
    assert!(calls.len() > 300, "only {} calls were found", calls.len());
    let wrong = wrong_ways(&calls);
    assert!(
        wrong.is_empty(),
        "Calls of methods of a layer that may not be used: {wrong:#?}\nReturn what that layer \
         needs, or take it as an argument. If the method is another crate's, its name goes into \
         NAMES_OF_OTHERS."
    );
}

/// The circles of imports and calls inside of layers that have too many files.
fn large_circles(
    sources: &[(String, String)],
    calls: &BTreeSet<Call<'_>>,
) -> Vec<BTreeSet<String>> {
    let mut arrows = edges(sources);
    for call in calls.iter().filter(|call| layer(call.from) == layer(call.to)) {
        arrows.entry(call.from.to_owned()).or_default().insert(call.to.to_owned());
    }
    circles(&arrows).into_iter().filter(|circle| circle.len() > CIRCLE_FILES).collect()
}

#[test]
fn files_reach_each_other_in_no_large_circles() {
    let sources = all_sources();
    let calls = calls(&sources);
    let circles = large_circles(&sources, &calls);
    if std::env::var_os("MIDI_SHOW_IMPORTS").is_some() {
        println!("{:#?}\n{} calls; large circles: {circles:#?}", told(&calls), calls.len());
    }
    let known: BTreeSet<String> = LARGE_CIRCLES
        .iter()
        .flat_map(|(layer, files, _)| {
            files.split(' ').map(move |file| format!("src/{layer}/{file}.rs"))
        })
        .collect();
    for circle in &circles {
        let new: Vec<_> = circle.difference(&known).collect();
        let inside = |call: &&Call<'_>| {
            let is_new = new.iter().any(|file| *file == call.from || *file == call.to);
            is_new && circle.contains(call.from) && circle.contains(call.to)
        };
        assert!(
            new.is_empty(),
            "{new:?} in a circle of more than {CIRCLE_FILES} files that import or call each other: \
             {circle:#?}\nTheir calls there: {:#?}\nReturn what the other file must do as a value, \
             or move the method to the file whose fields it uses. If the method is another \
             crate's, its name goes into NAMES_OF_OTHERS.",
            told(calls.iter().filter(inside))
        );
    }
    let gone: Vec<_> =
        known.iter().filter(|file| !circles.iter().any(|circle| circle.contains(*file))).collect();
    assert!(gone.is_empty(), "In no large circle any more: take out of LARGE_CIRCLES {gone:#?}");
}

/// The files with `impl` blocks of each type, without those of traits.
fn homes(sources: &[(String, String)]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, text) in sources.iter().filter(|(file, _)| !is_of_tests(file)) {
        for block in lines(text).filter_map(|(around, _)| around).filter(|block| block.is_own) {
            homes.entry(block.owner).or_default().insert(file);
        }
    }
    homes
}

#[test]
fn a_type_has_its_methods_in_few_files() {
    let sources = all_sources();
    let homes = homes(&sources);
    assert!(homes.len() > 200, "only {} types were found", homes.len());
    for (owner, files) in &homes {
        assert!(
            files.len() <= IMPL_FILES,
            "`impl {owner}` stands in {} files, and may in {IMPL_FILES}: {files:#?}\nGive the new \
             method to the part whose fields it uses, or to the type that it is about.",
            files.len()
        );
    }
}

#[test]
fn names_of_others_are_methods_of_src_too() {
    let sources = all_sources();
    let methods = Methods::of(&sources);
    for name in NAMES_OF_OTHERS {
        assert!(methods.0.contains_key(name), "no method `{name}`: take it out of NAMES_OF_OTHERS");
    }
}

fn made_up(sources: &[(&str, &str)]) -> Vec<(String, String)> {
    sources.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect()
}

const A: &str = "
pub struct A;
impl A {
    pub fn new() -> Self {
        A
    }
    fn own(&self) {
        self.both();
        self
            .chained(1)
    }
}
fn free(b: &B) {
    self.both();
    A::new();
    B::made::<u8>();
}
";

const B: &str = "
unsafe impl<F: Fn() -> u8> Trait for B<F> {
    fn of_trait(&self) {}
}
impl<'a, T> super::B<T>
where
    T: Copy,
{
    pub(in crate::net) const fn made() {}
    fn both(&self) {
        x.of_trait(A::new());
        0..x.only();
    }
}
";

const C: &str = "
impl A {
    // fn commented() {}
    fn both(&self) {}
    fn chained(&self) {
        fn inner() {}
    }
    fn only(&self) {}
}
pub trait Trait {
    fn of_trait(&self);
}
#[cfg(test)]
mod tests {
    fn f() { A::new() }
}
";

#[test]
fn calls_are_found() {
    let sources = made_up(&[("src/net/a.rs", A), ("src/net/b.rs", B), ("src/net/c.rs", C)]);
    let methods = Methods::of(&sources);
    let names: Vec<_> = methods.0.keys().copied().collect();
    assert_eq!(names, ["both", "chained", "made", "new", "of_trait", "only", "own"]);
    assert_eq!(
        told(&calls(&sources)),
        [
            "src/net/a.rs → src/net/b.rs: made",
            "src/net/a.rs → src/net/c.rs: both",
            "src/net/a.rs → src/net/c.rs: chained",
            "src/net/b.rs → src/net/a.rs: new",
            "src/net/b.rs → src/net/c.rs: of_trait",
            "src/net/b.rs → src/net/c.rs: only",
        ]
    );
    assert_eq!(homes(&sources)["A"].len(), 2);
    assert_eq!(homes(&sources)["B"].len(), 1);
}

#[test]
fn a_circle_of_calls_and_a_wrong_way_are_found() {
    // Each file calls the next one, the last one imports the first.
    let mut sources: Vec<(String, String)> = (0..5)
        .map(|number| {
            let next = number + 1;
            let text = format!(
                "impl Engine {{\n    fn step_{number}(&self) {{\n        self.step_{next}();\n    \
                 }}\n}}\n"
            );
            (format!("src/engine/f{number}.rs"), text)
        })
        .collect();
    assert!(large_circles(&sources, &calls(&sources)).is_empty());
    sources[4].1 += "use super::f0::First;\n";
    sources.push(("src/engine/mod.rs".into(), "mod f0;\nmod f4;\n".into()));
    sources.push(("src/store/table.rs".into(), "fn f(e: &E) {\n    e.step_2();\n}\n".into()));
    let calls = calls(&sources);
    assert_eq!(large_circles(&sources, &calls).iter().map(BTreeSet::len).collect::<Vec<_>>(), [5]);
    assert_eq!(wrong_ways(&calls), ["src/store/table.rs → src/engine/f2.rs: step_2"]);
}
