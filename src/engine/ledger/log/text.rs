//! How runs become the text that the host logs.

use super::run::OpenRun;
use super::tail::PublishedRun;
use crate::command::record::{Record, RecordText, header, select};

/// Writes the records of these runs as one text.
pub(super) fn write_text(batch: &[PublishedRun], text: &mut RecordText) {
    let version = batch.iter().map(|published| published.run.version).max();
    header(version.unwrap_or(1).max(1), &mut text.own);
    write_records(batch, text);
}

/// Appends the records of these runs to a text. All runs of a unit are one group, where its last
/// one stands: a unit keeps its tokens to its end, so no other run between its own knows of it.
pub(super) fn write_records(batch: &[PublishedRun], text: &mut RecordText) {
    let (mut left, mut selected) = (batch, None);
    while let Some(first) = left.first() {
        let unit = first.run.unit;
        // The numbers of units grow.
        let before_next = left.iter().take_while(|published| published.run.unit <= unit);
        let of_unit = before_next.enumerate().filter(|(_, published)| published.run.unit == unit);
        let (together, rest) = left.split_at(of_unit.last().map_or(1, |(last, _)| last + 1));
        left = rest;
        let runs = || together.iter().map(|published| &*published.run);
        for run in runs().filter(|run| run.unit != unit) {
            write_group(std::iter::once(run), &mut selected, text);
        }
        write_group(runs().filter(|run| run.unit == unit), &mut selected, text);
    }
}

/// Appends the records of runs that belong together; `selected` is the database of the text so far.
fn write_group<'r>(
    runs: impl Iterator<Item = &'r OpenRun> + Clone,
    selected: &mut Option<u32>,
    text: &mut RecordText,
) {
    let records: u32 = runs.clone().map(|run| run.records).sum();
    // A record about all keys cannot stand in a group.
    let is_group = records > 1 && runs.clone().all(|run| run.unit != 0 && run.of_all.is_none());
    for (number, run) in runs.enumerate() {
        if let Some((first, last)) = run.databases {
            if *selected != Some(first) {
                select(first, &mut text.own);
            }
            *selected = Some(last);
        }
        if is_group && number == 0 {
            Record::Multi.write(&mut text.own);
        }
        text.add(&run.text);
    }
    if is_group {
        Record::Exec.write(&mut text.own);
    }
}
