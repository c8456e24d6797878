//! Users that may have changed, by name, in bounded memory: anybody can say many names to the host, whether or not
//! that is allowed.

use hashbrown::HashMap;

use crate::limits::TOUCHED_NAME_BYTES;

/// What may have become of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It has other rules, or another password; its sessions go on.
    Changed,
    /// It was deleted, and perhaps made again under the same name: its sessions end, as on the host.
    Replaced,
}

/// Users that may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    names: HashMap<Box<[u8]>, Fate>,
    bytes: usize,
    everybody: Option<Fate>,
}

impl Touched {
    /// All of them.
    pub fn everybody(fate: Fate) -> Self {
        Touched { everybody: Some(fate), ..Touched::default() }
    }

    /// Those of these names.
    pub fn these<'a>(names: impl Iterator<Item = &'a [u8]>, fate: Fate) -> Self {
        let mut touched = Touched::default();
        names.for_each(|name| touched.add_one(name, fate));
        touched
    }

    fn add_one(&mut self, name: &[u8], fate: Fate) {
        if let Some(known) = self.names.get_mut(name) {
            *known = fate.max(*known);
        } else if self.bytes + name.len() < TOUCHED_NAME_BYTES {
            self.bytes += name.len() + 1;
            self.names.insert(name.into(), fate);
        } else {
            self.everybody = self.everybody.max(Some(fate));
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Touched) {
        other.names.iter().for_each(|(name, &fate)| self.add_one(name, fate));
        self.everybody = self.everybody.max(other.everybody);
    }

    /// Whether it is known that so much may have become of that one.
    pub fn has(&self, name: &[u8], fate: Fate) -> bool {
        self.fate(name) >= Some(fate)
    }

    /// What may have become of that one.
    pub fn fate(&self, name: &[u8]) -> Option<Fate> {
        self.names.get(name).copied().max(self.everybody)
    }

    /// Their names, unless it is everybody.
    pub fn names(&self) -> Option<impl Iterator<Item = &[u8]>> {
        self.everybody.is_none().then(|| self.names.keys().map(|name| &**name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_fate_counts() {
        let mut touched = Touched::these([&b"a"[..], b"b"].into_iter(), Fate::Changed);
        touched.add(&Touched::these([&b"b"[..]].into_iter(), Fate::Replaced));
        touched.add(&Touched::these([&b"b"[..]].into_iter(), Fate::Changed));
        assert_eq!(touched.fate(b"a"), Some(Fate::Changed));
        assert_eq!(touched.fate(b"b"), Some(Fate::Replaced));
        assert_eq!(touched.fate(b"c"), None);
        assert!(touched.has(b"b", Fate::Replaced) && touched.has(b"b", Fate::Changed));
        assert!(touched.has(b"a", Fate::Changed) && !touched.has(b"a", Fate::Replaced));
        assert!(!touched.has(b"c", Fate::Changed));
        assert_eq!(touched.names().map(Iterator::count), Some(2));
        touched.add(&Touched::everybody(Fate::Changed));
        assert_eq!(touched.fate(b"c"), Some(Fate::Changed));
        assert_eq!(touched.fate(b"b"), Some(Fate::Replaced));
        assert!(touched.names().is_none());
    }

    #[test]
    fn very_many_names_are_everybody() {
        let names: Vec<Vec<u8>> =
            (0..TOUCHED_NAME_BYTES).map(|number| number.to_string().into_bytes()).collect();
        let touched = Touched::these(names.iter().map(Vec::as_slice), Fate::Replaced);
        assert_eq!(touched.fate(b"nobody"), Some(Fate::Replaced));
        assert!(touched.bytes <= TOUCHED_NAME_BYTES);
    }
}
