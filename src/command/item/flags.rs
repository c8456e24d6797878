//! The flags of memcached's meta commands: words of one letter, some with an argument behind it.

use crate::command::base64::decode;

use super::{signed_32, unsigned_32, unsigned_64};

/// The most words of a request; memcached's own.
const MOST_WORDS: usize = 19;

/// The longest opaque word, with its letter; memcached's own.
const OPAQUE_BYTES: usize = 32;

/// Which meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCommand {
    /// `mg`.
    Get,
    /// `ms`.
    Set,
    /// `md`.
    Delete,
    /// `ma`.
    Count,
}

/// The flags of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags<'i> {
    text: &'i [u8],
    letters: u128,
    /// `N`: when an item expires that is made because there is none, in seconds.
    pub(super) vivify: i32,
    /// `T`: when the item expires, in seconds.
    pub(super) expiry: i32,
    /// `R`: an item that expires before is to be renewed, in seconds.
    pub(super) recache: i32,
    /// `F`: the item's flags.
    pub(super) client_flags: u32,
    /// `C`: the number that the item must have.
    pub(super) number: u64,
    /// `E`: the number that it gets.
    pub(super) next_number: u64,
    /// `M`: the mode.
    pub(super) mode: u8,
    /// `J`: the first value of a new counter.
    pub(super) initial: u64,
    /// `D`: by how much is counted.
    pub(super) delta: u64,
}

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";

/// The words of a text.
fn words_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}

impl<'i> MetaFlags<'i> {
    /// Reads the flags of a request for this key; for `ms` those behind the length of its data.
    ///
    /// # Errors
    /// memcached's answer to wrong ones.
    pub fn read(command: MetaCommand, key: &[u8], text: &'i [u8]) -> Result<Self, &'static str> {
        let of_data = usize::from(command == MetaCommand::Set);
        if words_of(text).count() + 2 + of_data > MOST_WORDS {
            return Err(match command {
                MetaCommand::Get => "CLIENT_ERROR options flags are too long",
                _ => "CLIENT_ERROR options flags too long",
            });
        }
        let flags = MetaFlags::of_words(key, text).map_err(|error| match command {
            MetaCommand::Get | MetaCommand::Set => error,
            _ => "CLIENT_ERROR invalid or duplicate flag",
        })?;
        flags.check_mode(command)?;
        let is_long = |word: &[u8]| word[0] == b'O' && word.len() > OPAQUE_BYTES;
        if flags.words().any(is_long) {
            return Err("CLIENT_ERROR opaque token too long");
        }
        // Eviction has no more than two bits of an item's use, which do not tell.
        match command {
            MetaCommand::Get if flags.has(b'h') => Err("CLIENT_ERROR flag h is not supported"),
            MetaCommand::Get if flags.has(b'l') => Err("CLIENT_ERROR flag l is not supported"),
            _ => Ok(flags),
        }
    }

    /// Those that [`MetaFlags::read`] has read before.
    pub(super) fn read_again(text: &'i [u8]) -> Option<Self> {
        MetaFlags::of_words(b"AAAA", text).ok()
    }

    fn of_words(key: &[u8], text: &'i [u8]) -> Result<Self, &'static str> {
        let mut flags = MetaFlags {
            text,
            letters: 0,
            vivify: 0,
            expiry: 0,
            recache: 0,
            client_flags: 0,
            number: 0,
            next_number: 0,
            mode: 0,
            initial: 0,
            delta: 1,
        };
        let mut error = None;
        for word in words_of(text) {
            let letter = word[0];
            if letter >= 127 || flags.has(letter) {
                return Err("CLIENT_ERROR duplicate flag");
            }
            flags.letters |= 1 << letter;
            if !b"bNTRlOPLkstcfvhuqxFCEMJDI".contains(&letter) {
                return Err("CLIENT_ERROR invalid flag");
            }
            // As with memcached the last wrong argument is the one that is told.
            match flags.add(letter, &word[1..]) {
                Some(()) if letter == b'b' && decode(key).is_none() => error = Some(BAD_KEY),
                Some(()) => {}
                None if letter == b'F' => _ = error.get_or_insert(BAD_FORMAT),
                None => error = Some(error_of(letter)),
            }
        }
        error.map_or(Ok(flags), Err)
    }

    /// Takes the argument of a flag; `None` if it is wrong.
    fn add(&mut self, letter: u8, argument: &[u8]) -> Option<()> {
        match letter {
            b'N' => self.vivify = signed_32(argument)?,
            b'T' => self.expiry = signed_32(argument)?,
            b'R' => self.recache = signed_32(argument)?,
            b'F' => self.client_flags = unsigned_32(argument)?,
            b'C' => self.number = unsigned_64(argument)?,
            b'E' => self.next_number = unsigned_64(argument)?,
            b'J' => self.initial = unsigned_64(argument)?,
            b'D' => self.delta = unsigned_64(argument)?,
            b'M' => {
                let &[mode] = argument else { return None };
                self.mode = mode;
            }
            _ => {}
        }
        Some(())
    }

    fn check_mode(&self, command: MetaCommand) -> Result<(), &'static str> {
        match (command, self.mode) {
            (MetaCommand::Set, 0 | b'E' | b'A' | b'P' | b'R' | b'S') => Ok(()),
            (MetaCommand::Count, 0 | b'I' | b'+' | b'D' | b'-') => Ok(()),
            (MetaCommand::Set, _) => Err("CLIENT_ERROR invalid mode for ms M token"),
            (MetaCommand::Count, _) => Err("CLIENT_ERROR invalid mode for ma M token"),
            _ => Ok(()),
        }
    }

    /// Whether there is a flag with this letter.
    pub fn has(&self, letter: u8) -> bool {
        letter < 127 && self.letters & 1 << letter != 0
    }

    /// Their text.
    pub fn text(&self) -> &'i [u8] {
        self.text
    }

    /// The mode; 0 if none is given.
    pub fn mode(&self) -> u8 {
        self.mode
    }

    /// Them, in the order given.
    pub(super) fn words(&self) -> impl Iterator<Item = &'i [u8]> + use<'i> {
        words_of(self.text)
    }
}

/// The error for a wrong argument of a flag.
fn error_of(letter: u8) -> &'static str {
    match letter {
        b'M' => "CLIENT_ERROR incorrect length for M token",
        b'J' => "CLIENT_ERROR invalid numeric initial value",
        b'D' => "CLIENT_ERROR invalid numeric delta value",
        _ => BAD_TOKEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let text = b"N30 T-1  R5 F7 C8 E9 MA J10 D11 Oab k";
        let flags = MetaFlags::read(MetaCommand::Set, b"", text).expect("well-formed");
        assert_eq!((flags.vivify, flags.expiry, flags.recache), (30, -1, 5));
        assert_eq!((flags.client_flags, flags.number, flags.next_number), (7, 8, 9));
        assert_eq!((flags.mode, flags.initial, flags.delta), (b'A', 10, 11));
        assert!(flags.has(b'k') && !flags.has(b'c') && !flags.has(255));
        assert_eq!(flags.words().count(), 11);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let many = "k ".repeat(20);
        let opaque = format!("O{}", "x".repeat(32));
        for (command, text, error) in [
            (MetaCommand::Get, "k k", "CLIENT_ERROR duplicate flag"),
            (MetaCommand::Get, "v z", "CLIENT_ERROR invalid flag"),
            (MetaCommand::Get, "Tx z", "CLIENT_ERROR invalid flag"),
            (MetaCommand::Get, "T", BAD_TOKEN),
            (MetaCommand::Get, "h", "CLIENT_ERROR flag h is not supported"),
            (MetaCommand::Get, "l", "CLIENT_ERROR flag l is not supported"),
            (MetaCommand::Get, &many, "CLIENT_ERROR options flags are too long"),
            (MetaCommand::Set, &many, "CLIENT_ERROR options flags too long"),
            (MetaCommand::Set, &opaque, "CLIENT_ERROR opaque token too long"),
            (MetaCommand::Set, "Fx", BAD_FORMAT),
            (MetaCommand::Set, "Tx b Fx", BAD_KEY),
            (MetaCommand::Set, "b Tx Fx", BAD_TOKEN),
            (MetaCommand::Set, "Cx Fx", BAD_TOKEN),
            (MetaCommand::Set, "MAB", "CLIENT_ERROR incorrect length for M token"),
            (MetaCommand::Set, "MX", "CLIENT_ERROR invalid mode for ms M token"),
            (MetaCommand::Count, "MX", "CLIENT_ERROR invalid mode for ma M token"),
            (MetaCommand::Count, "Dx", "CLIENT_ERROR invalid or duplicate flag"),
            (MetaCommand::Delete, "z", "CLIENT_ERROR invalid or duplicate flag"),
        ] {
            assert_eq!(
                MetaFlags::read(command, b"Zg=", text.as_bytes()).err(),
                Some(error),
                "{text}"
            );
        }
    }
}
