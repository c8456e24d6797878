//! What the host says of its cluster's slots, in CLUSTER NODES: who owns them, and which come to
//! this node or leave it, key by key.
//!
//! ```text
//! <id> <address> <flags> <master> <ping> <pong> <epoch> <link> 0-100 102 [103->-<id>] [200-<-<id>]
//! ```

use std::collections::BTreeSet;

use super::super::api::{Ctx, api};
use super::super::state::slots::Owner;
use crate::command::slot::{SLOTS, slot_of_text};

/// How many bytes the id of a node has.
pub const NODE_ID: usize = 40;

/// The words of a line before its first slot.
const WORDS_BEFORE_SLOTS: usize = 8;

/// The slots of a cluster at one moment.
pub struct ClusterSlots {
    /// The owner of each.
    pub owners: Vec<Owner>,
    /// Those for which this node gets keys before it owns them.
    pub importing: BTreeSet<u16>,
    /// Those that this node owns, and whose keys leave it.
    pub migrating: BTreeSet<u16>,
}

/// Asks the host. `None` if it does not tell: CLUSTER is renamed.
pub fn ask(ctx: Ctx<'_>) -> Option<ClusterSlots> {
    let nodes = ctx.call(c"CLUSTER", &[b"NODES"]).text()?;
    parse(&String::from_utf8(nodes).ok()?, is_my_id)
}

/// Whether this is the id of the host's own node.
pub fn is_my_id(id: &[u8]) -> bool {
    // SAFETY: no arguments; the host's own text of 40 bytes, or null outside of a cluster.
    let mine = unsafe { api!(RedisModule_GetMyClusterID)() };
    // SAFETY: as above.
    !mine.is_null() && unsafe { std::slice::from_raw_parts(mine.cast::<u8>(), NODE_ID) } == id
}

fn parse(nodes: &str, is_mine: impl Fn(&[u8]) -> bool) -> Option<ClusterSlots> {
    let mut slots = ClusterSlots {
        owners: vec![Owner::Nobody; SLOTS],
        importing: BTreeSet::new(),
        migrating: BTreeSet::new(),
    };
    for line in nodes.lines() {
        let mut words = line.split(' ');
        let owner = if is_mine(words.next()?.as_bytes()) { Owner::Me } else { Owner::Another };
        words.skip(WORDS_BEFORE_SLOTS - 1).try_for_each(|word| slots.add(word, owner))?;
    }
    Some(slots)
}

impl ClusterSlots {
    /// Adds what a node's line says of a slot, or of a range.
    fn add(&mut self, word: &str, owner: Owner) -> Option<()> {
        let slot = |text: &str| slot_of_text(text.as_bytes());
        if let Some(moves) = word.strip_prefix('[') {
            let (of, is_leaving) = match moves.split_once("->-") {
                Some((of, _)) => (of, true),
                None => (moves.split_once("-<-")?.0, false),
            };
            let list = if is_leaving { &mut self.migrating } else { &mut self.importing };
            list.insert(slot(of)?);
        } else {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let range = usize::from(slot(first)?)..=usize::from(slot(last)?);
            self.owners.get_mut(range)?.fill(owner);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
aaaa 127.0.0.1:30001@31001,name myself,master - 0 1426238317239 4 connected 0-2 7 [7->-bbbb] \
[9-<-bbbb]
bbbb 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 8-10
cccc 127.0.0.1:30003@31003 slave bbbb 0 1426238316232 2 disconnected
";

    #[test]
    fn the_answer_is_read() {
        let slots = parse(NODES, |id| id == b"aaaa").unwrap();
        let of = |owner| (0..).zip(&slots.owners).filter(move |(_, of)| **of == owner);
        let mine: Vec<u16> = of(Owner::Me).map(|(slot, _)| slot).collect();
        let others: Vec<u16> = of(Owner::Another).map(|(slot, _)| slot).collect();
        assert_eq!((mine, others), (vec![0, 1, 2, 7], vec![8, 9, 10]));
        assert_eq!((slots.migrating, slots.importing), ([7].into(), [9].into()));
    }

    #[test]
    fn an_answer_that_is_not_understood_says_nothing() {
        for slots in ["7-", "x", "-1", "16384", "9-7", "[7", "[x->-bbbb]"] {
            let line = format!("aaaa 127.0.0.1:1@2 master - 0 0 1 connected {slots}\n");
            assert!(parse(&line, |_| true).is_none(), "{slots}");
        }
    }
}
