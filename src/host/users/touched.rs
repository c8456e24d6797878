//! Users that may have changed, by name, in bounded memory: any client can send the host many
//! names, whether or not it is allowed to.

use std::collections::BTreeMap;

use crate::limits::TOUCHED_NAME_BYTES;

/// How a user may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserChange {
    /// It has other rules or another password; its sessions continue.
    Changed,
    /// It was deleted, and perhaps created again under the same name: its sessions end, as on the
    /// host.
    Replaced,
}

/// Users that may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    names: BTreeMap<Box<[u8]>, UserChange>,
    bytes: usize,
    everybody: Option<UserChange>,
}

impl Touched {
    /// Nobody.
    pub const NONE: Touched = Touched { names: BTreeMap::new(), bytes: 0, everybody: None };

    /// All users.
    pub fn everybody(change: UserChange) -> Self {
        Touched { everybody: Some(change), ..Touched::default() }
    }

    /// The users of these names.
    pub fn these<'a>(names: impl Iterator<Item = &'a [u8]>, change: UserChange) -> Self {
        let mut touched = Touched::default();
        names.for_each(|name| touched.add_one(name, change));
        touched
    }

    fn add_one(&mut self, name: &[u8], change: UserChange) {
        if let Some(known) = self.names.get_mut(name) {
            *known = change.max(*known);
        } else if self.bytes + name.len() < TOUCHED_NAME_BYTES {
            self.bytes += name.len() + 1;
            self.names.insert(name.into(), change);
        } else {
            self.everybody = self.everybody.max(Some(change));
        }
    }

    /// Adds the users of `other`.
    pub fn add(&mut self, other: &Touched) {
        other.names.iter().for_each(|(name, &change)| self.add_one(name, change));
        self.everybody = self.everybody.max(other.everybody);
    }

    /// Whether user `name` is noted with this change or a greater one.
    pub fn has(&self, name: &[u8], change: UserChange) -> bool {
        self.change(name) >= Some(change)
    }

    /// How user `name` may have changed; `None` if it is not noted.
    pub fn change(&self, name: &[u8]) -> Option<UserChange> {
        self.names.get(name).copied().max(self.everybody)
    }

    /// Their names; `None` if it is all users.
    pub fn names(&self) -> Option<impl Iterator<Item = &[u8]>> {
        self.everybody.is_none().then(|| self.names.keys().map(|name| &**name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_change_counts() {
        let mut touched = Touched::these([&b"a"[..], b"b"].into_iter(), UserChange::Changed);
        touched.add(&Touched::these([&b"b"[..]].into_iter(), UserChange::Replaced));
        touched.add(&Touched::these([&b"b"[..]].into_iter(), UserChange::Changed));
        assert_eq!(touched.change(b"a"), Some(UserChange::Changed));
        assert_eq!(touched.change(b"b"), Some(UserChange::Replaced));
        assert_eq!(touched.change(b"c"), None);
        assert!(touched.has(b"b", UserChange::Replaced) && touched.has(b"b", UserChange::Changed));
        assert!(touched.has(b"a", UserChange::Changed) && !touched.has(b"a", UserChange::Replaced));
        assert!(!touched.has(b"c", UserChange::Changed));
        assert_eq!(touched.names().map(Iterator::count), Some(2));
        touched.add(&Touched::everybody(UserChange::Changed));
        assert_eq!(touched.change(b"c"), Some(UserChange::Changed));
        assert_eq!(touched.change(b"b"), Some(UserChange::Replaced));
        assert!(touched.names().is_none());
    }

    #[test]
    fn very_many_names_are_everybody() {
        let names: Vec<Vec<u8>> =
            (0..TOUCHED_NAME_BYTES).map(|number| number.to_string().into_bytes()).collect();
        let touched = Touched::these(names.iter().map(Vec::as_slice), UserChange::Replaced);
        assert_eq!(touched.change(b"nobody"), Some(UserChange::Replaced));
        assert!(touched.bytes <= TOUCHED_NAME_BYTES);
    }
}
