//! A user in the host's words: its text in ACL LIST, which the host keeps until the user changes.

use crate::command::glob::Pattern;
use crate::engine::{KeyRule, PasswordSum};

/// A user as its text describes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// May log in.
    pub on: bool,
    /// Needs no password.
    pub open: bool,
    /// The user's own rules, and then each selector.
    pub rules: Vec<RulesText>,
}

/// One set of rules: the user's own, or a selector's.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RulesText {
    /// Rules on commands, in their order: first `+@all` or `-@all`.
    pub commands: Vec<Vec<u8>>,
    /// Key patterns. `~*` alone may stand for every key: see [`RulesText::may_be_all_keys`].
    pub keys: Vec<KeyRule>,
    /// `None` is every database.
    pub databases: Option<Vec<u32>>,
    /// Patterns of channels. `&*` alone is every channel.
    pub channels: Vec<Vec<u8>>,
}

/// The rule that matches every key but the empty one.
const ANY: &[u8] = b"~*";

impl Description {
    /// Reads a text such as `on #… ~a* resetchannels -@all +get (%R~* resetchannels -@all +@read)`.
    /// Words about anything else are skipped.
    pub fn read(text: &[u8]) -> Self {
        let mut user = Description { rules: vec![RulesText::default()], ..Description::default() };
        let mut in_selector = false;
        for mut word in text.split(|&byte| byte == b' ').filter(|word| !word.is_empty()) {
            // Patterns may contain brackets. But outside a selector a word begins with one only
            // where a selector begins, and rules on commands, which come last in a selector,
            // contain none.
            if !in_selector && let Some(rest) = word.strip_prefix(b"(") {
                user.rules.push(RulesText::default());
                (in_selector, word) = (true, rest);
            }
            if in_selector
                && matches!(word.first(), Some(b'+' | b'-'))
                && let Some(rest) = word.strip_suffix(b")")
            {
                (in_selector, word) = (false, rest);
            }
            user.note(word);
        }
        user
    }

    fn note(&mut self, word: &[u8]) {
        match word {
            b"on" => self.on = true,
            b"nopass" => self.open = true,
            word => {
                if let Some(rules) = self.rules.last_mut() {
                    rules.note(word);
                }
            }
        }
    }
}

impl RulesText {
    fn note(&mut self, word: &[u8]) {
        match word {
            [b'+' | b'-', ..] => self.commands.push(word.to_vec()),
            b"resetchannels" => self.channels.clear(),
            [b'&', pattern @ ..] => self.channels.push(pattern.to_vec()),
            b"resetdbs" => self.databases = Some(Vec::new()),
            [b'd', b'b', b'=', list @ ..] => self.databases = Some(numbers(list)),
            word => self.keys.extend(key_rule(word)),
        }
    }

    /// The patterns of channels; `None` if every channel is allowed.
    pub fn some_channels(&self) -> Option<Vec<Pattern>> {
        let is_limited = !self.channels.iter().any(|pattern| pattern == b"*");
        is_limited.then(|| self.channels.iter().map(|text| Pattern::strict(text)).collect())
    }

    /// Whether all is allowed that is not taken away, and so also what these rules do not name.
    pub fn begins_with_all(&self) -> bool {
        self.commands.first().is_some_and(|rule| rule == b"+@all")
    }

    /// Whether all commands are allowed, and no rule adds or takes away any.
    pub fn is_all(&self) -> bool {
        self.begins_with_all() && self.commands.len() == 1
    }

    /// Whether the rules contain this one literally.
    pub fn names(&self, rule: &[u8]) -> bool {
        self.commands.iter().any(|known| known == rule)
    }

    /// Whether `~*` is the only key rule. The host writes both `allkeys` and `%RW~*` this way: they
    /// differ for the empty key, which the pattern does not match.
    pub fn may_be_all_keys(&self) -> bool {
        self.keys.len() == 1 && key_rule(ANY).is_some_and(|any| any == self.keys[0])
    }
}

/// Whether the user with this text may log in with this password. Reads only the beginning of the
/// text, and allocates nothing.
pub fn lets_in(text: &[u8], password: &PasswordSum) -> bool {
    let (mut on, mut open, mut known) = (false, false, false);
    for word in text.split(|&byte| byte == b' ') {
        match word {
            b"on" => on = true,
            b"nopass" => open = true,
            b"off" | b"sanitize-payload" | b"skip-sanitize-payload" => {}
            [b'#', sum @ ..] => known |= password.is(sum),
            // Flags come first, then passwords.
            _ => break,
        }
    }
    on && (open | known)
}

fn numbers(list: &[u8]) -> Vec<u32> {
    let numbers = list.split(|&byte| byte == b',');
    numbers.filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok()).collect()
}

fn key_rule(word: &[u8]) -> Option<KeyRule> {
    let (read, write, pattern) = match word {
        [b'~', pattern @ ..] => (true, true, pattern),
        [b'%', b'R', b'~', pattern @ ..] => (true, false, pattern),
        [b'%', b'W', b'~', pattern @ ..] => (false, true, pattern),
        _ => return None,
    };
    Some(KeyRule { pattern: Pattern::strict(pattern), read, write })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(words: &str) -> Vec<Vec<u8>> {
        words.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn rule(pattern: &str, read: bool, write: bool) -> KeyRule {
        KeyRule { pattern: Pattern::strict(pattern.as_bytes()), read, write }
    }

    #[test]
    fn a_user_is_read_from_its_text() {
        let user = Description::read(
            b"on nopass sanitize-payload #00ff #11 ~a:* %R~b &* -@all +get (%W~x) resetchannels \
              db=3,12 +@all -del) (resetchannels resetdbs -@all)",
        );
        assert!(user.on && user.open);
        assert!(user.rules[0].some_channels().is_none());
        assert_eq!(user.rules[1].some_channels(), Some(Vec::new()));
        let [own, first, second] = &user.rules[..] else { panic!("{user:?}") };
        assert_eq!(own.commands, rules("-@all +get"));
        assert_eq!(own.keys, [rule("a:*", true, true), rule("b", true, false)]);
        assert_eq!(own.databases, None);
        assert_eq!(first.commands, rules("+@all -del"));
        assert_eq!(first.keys, [rule("x)", false, true)]);
        assert_eq!(first.databases, Some(vec![3, 12]));
        assert_eq!((&second.commands, &second.databases), (&rules("-@all"), &Some(vec![])));
        assert!(second.keys.is_empty());
        let off = Description::read(b"off resetchannels -@all");
        assert!(!off.on && !off.open);
    }

    #[test]
    fn passwords_are_known_by_their_sums() {
        let sum = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
        let lets_in =
            |text: String, password: &[u8]| lets_in(text.as_bytes(), &PasswordSum::of(password));
        let two = format!("on sanitize-payload #{} #{sum} ~* -@all", "0".repeat(64));
        assert!(
            lets_in(two.clone(), b"p") && !lets_in(two.clone(), b"P") && !lets_in(two.clone(), b"")
        );
        assert!(!lets_in(two.replace("on ", "off "), b"p"));
        assert!(lets_in("on nopass ~* -@all".into(), b"any"));
        assert!(!lets_in(format!("on ~* -@all #{sum}"), b"p"), "a rule is no password");
        assert!(!lets_in("on".into(), b""));
    }

    #[test]
    fn rules_are_told_apart() {
        let rules = |text: &[u8]| Description::read(text).rules.remove(0);
        assert!(rules(b"+@all").is_all());
        assert!(!rules(b"+@all -set").is_all() && rules(b"+@all -set").begins_with_all());
        assert!(!rules(b"-@all +midi.get").begins_with_all());
        assert!(rules(b"-@all +midi.get").names(b"+midi.get"));
        assert!(!rules(b"-@all +midi.getex").names(b"+midi.get"));
        assert!(rules(b"~* +@all").may_be_all_keys());
        assert!(!rules(b"~* ~a +@all").may_be_all_keys());
        assert!(!rules(b"%R~* +@all").may_be_all_keys() && !rules(b"+@all").may_be_all_keys());
    }
}
