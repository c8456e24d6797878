//! The questions to users' rules. Most rows are one question. A row with subcommands is one for
//! each of them, because the host's rules can tell them apart, and a row that finds its keys itself
//! asks about the commands that would do the same to each key.

use super::{Args, COMMANDS, Command, PREFIX, Subcommands, WalkStep};

/// How many questions there are. Each has a number: first the rows, by their index in [`COMMANDS`];
/// then the subcommands that are no rows; then the host's own commands that a [`Walk`] names.
pub const QUESTIONS: usize = OF_HOST + HOST_COMMANDS.len();

/// The number of the first subcommand.
const OF_SUBCOMMANDS: usize = COMMANDS.len();
/// The number of the first command of the host.
const OF_HOST: usize = OF_SUBCOMMANDS + SUBCOMMANDS;
/// How many subcommands there are that are no rows.
const SUBCOMMANDS: usize = count_subcommands();

/// The host's commands that touch the host's keys as IMPORT and EXPORT do.
const HOST_COMMANDS: [&str; 5] = ["get", "set", "del", "hgetall", "hset"];

const fn count_subcommands() -> usize {
    let (mut count, mut row) = (0, 0);
    while row < COMMANDS.len() {
        if let Some(of) = COMMANDS[row].subcommands {
            count += of.own.len();
        }
        row += 1;
    }
    count
}

/// The subject of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The command of this number.
    Row(usize),
    /// A subcommand of the command of this number.
    Subcommand(usize, &'static str),
    /// The host's own command of this name.
    OfHost(&'static str),
}

impl Question {
    /// The number of the row that it is about, if it is about one.
    pub fn row(self) -> Option<usize> {
        match self {
            Question::Row(row) | Question::Subcommand(row, _) => Some(row),
            Question::OfHost(_) => None,
        }
    }
}

/// All questions, in the order of their numbers.
pub fn questions() -> impl Iterator<Item = Question> {
    let rows = (0..COMMANDS.len()).map(Question::Row);
    rows.chain(subcommand_questions()).chain(HOST_COMMANDS.into_iter().map(Question::OfHost))
}

fn subcommand_questions() -> impl Iterator<Item = Question> {
    let of_row = |(row, command): (usize, &&Command)| {
        let own = command.subcommands.map_or(&[][..], |of| of.own);
        own.iter().map(move |(name, _)| Question::Subcommand(row, name))
    };
    COMMANDS.iter().enumerate().flat_map(of_row)
}

/// The numbers of the questions about the subcommands of a row; empty if it has none.
pub fn subcommand_numbers(row: usize) -> impl Iterator<Item = usize> {
    let is_of_row =
        move |question: &Question| matches!(question, Question::Subcommand(of, _) if *of == row);
    (OF_SUBCOMMANDS..)
        .zip(subcommand_questions())
        .filter(move |(_, of)| is_of_row(of))
        .map(|(at, _)| at)
}

/// The question about a call of row `row`. `None` if it has no such subcommand, which the command
/// refuses itself.
pub fn question(row: usize, args: &Args<'_>) -> Option<usize> {
    let Some(Subcommands { own, .. }) = COMMANDS[row].subcommands else { return Some(row) };
    let at = own.iter().position(|(name, _)| args.is(1, name))?;
    subcommand_numbers(row).nth(at)
}

impl WalkStep {
    /// The number of the question about its command. A command that no question is about gets a
    /// number that no set has: nobody may take that step.
    pub fn question(&self) -> usize {
        let of_host = || HOST_COMMANDS.iter().position(|name| *name == self.command);
        let number = match self.command.strip_prefix(PREFIX) {
            Some(name) => super::number_of(name),
            None => of_host().map(|number| OF_HOST + number),
        };
        number.unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Walk;

    #[test]
    fn every_question_has_its_number() {
        let all: Vec<Question> = questions().collect();
        assert_eq!(all.len(), QUESTIONS);
        for (row, command) in COMMANDS.iter().enumerate() {
            let own = command.subcommands.map_or(&[][..], |of| of.own);
            assert_eq!(subcommand_numbers(row).count(), own.len());
            for (name, _) in own {
                let upper = name.to_uppercase();
                let number = question(row, &Args::new(&[b"x", upper.as_bytes()])).expect("its own");
                assert_eq!(all[number], Question::Subcommand(row, name));
            }
            let unknown = question(row, &Args::new(&[b"x", b"nosuch"]));
            assert_eq!(unknown, own.is_empty().then_some(row));
            let args = Args::new(&[b"x", b"p", b"MOVE"]);
            let steps = |walk: &&'static Walk| [(walk.steps)(&args), (walk.hash_steps)(&args)];
            for step in command.walk.iter().flat_map(steps).flatten() {
                let known = match all[step.question()] {
                    Question::Row(row) => format!("{PREFIX}{}", COMMANDS[row].name),
                    Question::OfHost(name) => name.to_owned(),
                    Question::Subcommand(..) => String::new(),
                };
                assert_eq!(known, step.command);
            }
        }
    }
}
