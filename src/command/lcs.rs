//! LCS: the longest common subsequence of two values, after Redis's t_string.c.
//!
//! Redis fills a table with the length for each pair of prefixes. Here a row of that table is kept
//! as bits, which mark the columns where the length grows. A row is computed from the row before,
//! 64 columns at a time (a recurrence of Crochemore and others, in Hyyrö's form). Redis's way back
//! through the table depends on these bits only: where the two bytes differ, the cell above is
//! larger than the cell to the left exactly if the length grows here.

use super::{
    Access, Action, Arg, ArgKind, Args, Command, Docs, Error, Flags, Keys, Long, LongKeys,
    ManyKeys, Reply, Run, arg, word,
};
use crate::limits::LCS_CELLS_AT_ONCE;
use crate::store::{SharedValue, StringRef};

const LEAST: Arg = arg("len", ArgKind::Integer).token("MINMATCHLEN");

pub(super) static LCS: Command = Command {
    name: "lcs",
    arity: -3,
    keys: Keys::Two(Access::Read, Access::Read),
    long: Long::Found(LongKeys::Lcs),
    docs: Docs {
        summary: "Finds the longest common subsequence of two values; other commands go on \
                  meanwhile.",
        complexity: "O(N*M), N and M being the lengths of the values",
        args: &[
            arg("key1", ArgKind::Key),
            arg("key2", ArgKind::Key),
            word("len", "LEN").optional(),
            word("idx", "IDX").optional(),
            LEAST.optional(),
            word("withmatchlen", "WITHMATCHLEN").optional(),
        ],
    },
    action: Action::ManyKeys(Run::Read(lcs)),
    ..Command::on_strings(Flags { readonly: true, ..Flags::NONE })
};

fn lcs(cx: &ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    // Redis looks at the types before the options.
    cx.lcs_value(0)?;
    cx.lcs_value(1)?;
    let options = LcsOptions::parse(&cx.args)?;
    if cx.lcs_cells()? > LCS_CELLS_AT_ONCE {
        return Err(Error::LongWork);
    }
    let mut lcs = Lcs::new(cx.lcs_values()?, options);
    lcs.go_on(&mut || false);
    cx.limits.reply(lcs.reply_bytes())?;
    lcs.reply(reply, &mut || false);
    Ok(())
}

impl ManyKeys<'_> {
    /// The number of cells of Redis's table. Fails if the table would exceed Redis's limit.
    fn lcs_cells(&self) -> Result<usize, Error> {
        let [first, second] = [self.lcs_value(0)?, self.lcs_value(1)?];
        let [rows, columns] = [first, second].map(|value| value.map_or(0, |value| value.len()) + 1);
        let cells = rows.saturating_mul(columns);
        if cells.saturating_mul(size_of::<u32>()) > self.limits.max_value_bytes {
            return Err(Error::LcsTooLarge);
        }
        Ok(cells)
    }

    /// The values of the two keys, for work after their shards are released. A missing key counts
    /// as empty.
    ///
    /// # Errors
    /// [`Error::LcsTooLarge`] if they are too long, [`Error::LcsWrongType`] if one is not a string.
    pub fn lcs_values(&self) -> Result<[SharedValue; 2], Error> {
        self.lcs_cells()?;
        let shared = |value: Option<StringRef<'_>>| {
            value.as_ref().map_or_else(|| SharedValue::new(Vec::new()), StringRef::to_shared)
        };
        Ok([shared(self.lcs_value(0)?), shared(self.lcs_value(1)?)])
    }

    fn lcs_value(&self, number: usize) -> Result<Option<StringRef<'_>>, Error> {
        let value = self.keys.read(number).map(|entry| entry.string()).transpose();
        value.map_err(|_| Error::LcsWrongType)
    }
}

/// The options of LCS.
#[derive(Clone, Copy)]
pub struct LcsOptions {
    form: Form,
    /// The minimum length of a match in the reply of IDX.
    least: i64,
    /// Whether the reply of IDX has the length of each match.
    with_lengths: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The bytes of the subsequence.
    Text,
    /// The length of the subsequence.
    Length,
    /// The positions of its matches in the values.
    Matches,
}

impl LcsOptions {
    /// Parses the arguments after the keys.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::NotAnInteger`] or [`Error::LcsLenAndIdx`].
    pub fn parse(args: &Args<'_>) -> Result<Self, Error> {
        let (mut len, mut idx, mut least, mut with_lengths) = (false, false, 0, false);
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "idx") {
                idx = true;
            } else if args.is(at, "len") {
                len = true;
            } else if args.is(at, "withmatchlen") {
                with_lengths = true;
            } else if args.is(at, "minmatchlen") && at + 1 < args.len() {
                least = args.integer(at + 1)?;
                at += 1;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        let form = match (len, idx) {
            (true, true) => return Err(Error::LcsLenAndIdx),
            (true, false) => Form::Length,
            (false, true) => Form::Matches,
            (false, false) => Form::Text,
        };
        Ok(LcsOptions { form, least, with_lengths })
    }

    fn wants(&self, found: &Match) -> bool {
        self.form == Form::Matches && found.length as i64 >= self.least
    }
}

/// Steps between two checks of the clock: some microseconds.
const STEPS_BETWEEN_LOOKS: usize = 4096;

/// Matches in the reply between two checks of the clock.
const MATCHES_BETWEEN_LOOKS: usize = 16;

/// Columns of a row per word.
const WORD_BITS: usize = u64::BITS as usize;

/// The approximate size of one match in a reply.
const MATCH_BYTES: usize = 64;

/// The search for a subsequence, step by step. The first value's bytes are the rows, the second
/// value's bytes are the columns.
pub struct Lcs {
    values: [SharedValue; 2],
    options: LcsOptions,
    stage: LcsStage,
    /// For each byte of the first value, a bit set of its positions in the second.
    places: Vec<Option<Box<[u64]>>>,
    /// The rows so far, one after the other; only the latest if just the length is wanted. A bit is
    /// 0 where the length grows.
    rows: Vec<u64>,
    words: usize,
    length: usize,
    text: Vec<u8>,
    matches: Vec<Match>,
}

/// A part of the subsequence without a gap in either value: its offsets in both, and its length.
#[derive(Clone, Copy)]
struct Match {
    begins: [usize; 2],
    length: usize,
}

/// The next step.
#[derive(Clone, Copy)]
enum LcsStage {
    /// Allocate the positions of the first value's byte at this offset.
    Bytes(usize),
    /// Note the position of the second value's byte at this offset.
    Places(usize),
    /// Compute a word of a row, with the carry of the word before.
    Rows { row: usize, word: usize, carry: bool },
    /// Walk back from these lengths of the two values, possibly within a match.
    Way { left: [usize; 2], open: Option<Match> },
    /// Write the reply from this match on.
    Reply(usize),
}

impl Lcs {
    /// Begins the search in these two values.
    pub fn new(values: [SharedValue; 2], options: LcsOptions) -> Self {
        let words = values[1].bytes().len().div_ceil(WORD_BITS);
        let empty = values.iter().any(|value| value.bytes().is_empty());
        Lcs {
            values,
            options,
            stage: if empty { LcsStage::Reply(0) } else { LcsStage::Bytes(0) },
            places: vec![None; 256],
            rows: Vec::new(),
            words,
            length: 0,
            text: Vec::new(),
            matches: Vec::new(),
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.values[0].bytes().len() as u64
    }

    /// The number of finished rows.
    pub fn rows_done(&self) -> u64 {
        match self.stage {
            LcsStage::Bytes(_) | LcsStage::Places(_) => 0,
            LcsStage::Rows { row, .. } => row as u64,
            LcsStage::Way { .. } | LcsStage::Reply(_) => self.rows(),
        }
    }

    /// Continues until all is known that the reply needs, or until `spent` returns true. Returns
    /// whether all is known.
    pub fn go_on(&mut self, spent: &mut dyn FnMut() -> bool) -> bool {
        loop {
            self.stage = match self.stage {
                LcsStage::Bytes(at) => self.make_room(at),
                LcsStage::Places(at) => self.note_places(at),
                LcsStage::Rows { row, word, carry } => self.fill_rows(row, word, carry),
                LcsStage::Way { left, open } => self.walk_back(left, open),
                LcsStage::Reply(_) => return true,
            };
            if spent() {
                return matches!(self.stage, LcsStage::Reply(_));
            }
        }
    }

    fn make_room(&mut self, at: usize) -> LcsStage {
        let bytes = self.values[0].bytes();
        let end = bytes.len().min(at + STEPS_BETWEEN_LOOKS);
        for &byte in &bytes[at..end] {
            self.places[usize::from(byte)]
                .get_or_insert_with(|| vec![0; self.words].into_boxed_slice());
        }
        if end < bytes.len() { LcsStage::Bytes(end) } else { LcsStage::Places(0) }
    }

    fn note_places(&mut self, at: usize) -> LcsStage {
        let bytes = self.values[1].bytes();
        let end = bytes.len().min(at + STEPS_BETWEEN_LOOKS);
        for (column, &byte) in bytes[at..end].iter().enumerate() {
            let column = at + column;
            if let Some(places) = &mut self.places[usize::from(byte)] {
                places[column / WORD_BITS] |= 1 << (column % WORD_BITS);
            }
        }
        if end < bytes.len() { LcsStage::Places(end) } else { self.first_row() }
    }

    fn first_row(&mut self) -> LcsStage {
        let rows = if self.options.form == Form::Length { 1 } else { self.values[0].bytes().len() };
        self.rows.reserve_exact(rows * self.words);
        LcsStage::Rows { row: 0, word: 0, carry: false }
    }

    fn fill_rows(&mut self, mut row: usize, mut word: usize, mut carry: bool) -> LcsStage {
        let bytes = self.values[0].bytes();
        let only_latest = self.options.form == Form::Length;
        for _ in 0..STEPS_BETWEEN_LOOKS {
            let places =
                self.places[usize::from(bytes[row])].as_ref().map_or(0, |places| places[word]);
            // In the row above the first the length is 0 everywhere.
            let above = match (row, only_latest) {
                (0, _) => u64::MAX,
                (_, true) => self.rows[word],
                (_, false) => self.rows[self.rows.len() - self.words],
            };
            let (sum, carry_1) = above.overflowing_add(above & places);
            let (sum, carry_2) = sum.overflowing_add(u64::from(carry));
            carry = carry_1 || carry_2;
            let this = sum | above & !places;
            if only_latest && row > 0 {
                self.rows[word] = this;
            } else {
                self.rows.push(this);
            }
            let last_row = row + 1 == bytes.len();
            if last_row {
                self.length += this.count_zeros() as usize;
            }
            word += 1;
            if word == self.words {
                if last_row {
                    return self.last_cell();
                }
                (row, word, carry) = (row + 1, 0, false);
            }
        }
        LcsStage::Rows { row, word, carry }
    }

    fn last_cell(&mut self) -> LcsStage {
        match self.options.form {
            Form::Length => return LcsStage::Reply(0),
            Form::Text => self.text.reserve_exact(self.length),
            Form::Matches => {}
        }
        LcsStage::Way { left: self.values.each_ref().map(|value| value.bytes().len()), open: None }
    }

    fn grows_at(&self, row: usize, column: usize) -> bool {
        self.rows[row * self.words + column / WORD_BITS] >> (column % WORD_BITS) & 1 == 0
    }

    /// Walks from the last cell to the first row or column in Redis's order, so that of several
    /// subsequences of the same length it finds the one that Redis finds.
    fn walk_back(&mut self, mut left: [usize; 2], mut open: Option<Match>) -> LcsStage {
        for _ in 0..STEPS_BETWEEN_LOOKS {
            if left.contains(&0) {
                self.text.reverse();
                return LcsStage::Reply(0);
            }
            let [row, column] = left.map(|bytes| bytes - 1);
            let byte = self.values[0].bytes()[row];
            let same = byte == self.values[1].bytes()[column];
            if same {
                left = [row, column];
                open = Some(Match { begins: left, length: open.map_or(0, |open| open.length) + 1 });
                if self.options.form == Form::Text {
                    self.text.push(byte);
                }
            } else if self.grows_at(row, column) {
                left[0] = row;
            } else {
                left[1] = column;
            }
            // A match ends where the bytes differ, or where one of the values begins.
            if !same || left.contains(&0) {
                self.matches.extend(open.take().filter(|open| self.options.wants(open)));
            }
        }
        LcsStage::Way { left, open }
    }

    /// The approximate size of the reply, once all is known.
    fn reply_bytes(&self) -> usize {
        self.text.len() + self.matches.len() * MATCH_BYTES
    }

    /// Continues the reply until `spent` returns true. Returns whether the reply is complete.
    pub fn reply(&mut self, reply: &mut dyn Reply, spent: &mut dyn FnMut() -> bool) -> bool {
        let LcsStage::Reply(mut written) = self.stage else { return true };
        match self.options.form {
            Form::Text => reply.bulk(&self.text),
            Form::Length => reply.integer(self.length as i64),
            Form::Matches => {
                if written == 0 {
                    reply.map(2);
                    reply.bulk(b"matches");
                    reply.array(self.matches.len());
                }
                while let Some(found) = self.matches.get(written) {
                    found.say(reply, self.options.with_lengths);
                    written += 1;
                    self.stage = LcsStage::Reply(written);
                    if written.is_multiple_of(MATCHES_BETWEEN_LOOKS) && spent() {
                        return false;
                    }
                }
                reply.bulk(b"len");
                reply.integer(self.length as i64);
            }
        }
        true
    }
}

impl Match {
    fn say(&self, reply: &mut dyn Reply, with_length: bool) {
        reply.array(2 + usize::from(with_length));
        for begin in self.begins {
            reply.array(2);
            reply.integer(begin as i64);
            reply.integer((begin + self.length - 1) as i64);
        }
        if with_length {
            reply.integer(self.length as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Transcript;

    /// The plain table, and the way back through it.
    fn plainly(a: &[u8], b: &[u8]) -> (usize, Vec<u8>) {
        let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table[i][j] = if a[i - 1] == b[j - 1] {
                    table[i - 1][j - 1] + 1
                } else {
                    table[i - 1][j].max(table[i][j - 1])
                };
            }
        }
        let (mut i, mut j, mut text) = (a.len(), b.len(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                text.push(a[i - 1]);
                (i, j) = (i - 1, j - 1);
            } else if table[i - 1][j] > table[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        text.reverse();
        (table[a.len()][b.len()], text)
    }

    fn run(a: &[u8], b: &[u8], form: Form, looks: &mut usize) -> Lcs {
        let options = LcsOptions { form, least: 0, with_lengths: true };
        let mut lcs = Lcs::new([a, b].map(|value| SharedValue::new(value.to_vec())), options);
        while !lcs.go_on(&mut || true) {
            *looks += 1;
        }
        lcs
    }

    #[test]
    fn the_same_subsequence_as_a_plain_table_gives() {
        let mut seed = 7u64;
        let mut draw = |limit: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % limit
        };
        let mut looks = 0;
        for round in 0..400 {
            let letters = [2, 4, 20, 256][round % 4];
            let [a, b]: [Vec<u8>; 2] = [0, 1].map(|_| {
                let len = draw([5, 70, 300][round % 3]);
                (0..len).map(|_| draw(letters) as u8).collect()
            });
            let (length, text) = plainly(&a, &b);
            let lcs = run(&a, &b, Form::Text, &mut looks);
            assert_eq!((lcs.length, &lcs.text), (length, &text), "{a:?} {b:?}");
            assert_eq!(run(&a, &b, Form::Length, &mut looks).length, length);
            let matches = run(&a, &b, Form::Matches, &mut looks).matches;
            let mut from_matches = Vec::new();
            for found in matches.iter().rev() {
                let [in_a, in_b] = found.begins;
                assert_eq!(a[in_a..in_a + found.length], b[in_b..in_b + found.length]);
                from_matches.extend_from_slice(&a[in_a..in_a + found.length]);
            }
            assert_eq!(from_matches, text);
        }
        assert!(looks > 400, "the work was not cut");
    }

    #[test]
    fn a_reply_in_pieces_is_the_same() {
        let (a, b) = (b"ab".repeat(500), b"axb".repeat(500));
        let [mut whole, mut pieces] = [0, 1].map(|_| run(&a, &b, Form::Matches, &mut 0));
        let (mut at_once, mut piecewise) = (Transcript::default(), Transcript::default());
        assert!(whole.reply(&mut at_once, &mut || false));
        let mut turns = 1;
        while !pieces.reply(&mut piecewise, &mut || true) {
            turns += 1;
        }
        assert!(turns > 10, "{turns} turns");
        assert_eq!(at_once.len(), piecewise.len());
    }
}
