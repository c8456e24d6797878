//! Two nodes and the link between them. Each is a [`Model`] with all of its promises; what the
//! host's log of one holds goes to the other, which has the same at the same offset, whatever
//! happens to roles, link and nodes.

use std::sync::atomic::Ordering;

use super::model::{Door, Model, Step};
use super::world::{CLOCK, Keys, Line, assert_same, content_of, replay};
use crate::command::record::Gathered;
use crate::engine::Gates;
use crate::store::UnixMs;
use crate::sync::LOCKED;

/// How wrong the clock of the second node is, in milliseconds.
const SKEW: UnixMs = 400;

#[derive(Clone, Debug)]
pub(super) enum PairStep {
    /// A step of the master.
    Master(Step),
    /// A client of the replica: it may read.
    Replica(u32, Line),
    /// So many texts reach the replica, if there is a link.
    Deliver(usize),
    Break,
    /// With a full sync if the backlog does not reach so far back, or if this says so.
    Link(bool),
    /// FAILOVER: the master's clients are paused, and go on writing; the replica gets all that is
    /// logged; then the roles change.
    FailOver(Vec<Step>),
    /// The replica becomes the master with what it has.
    Promote,
    Save(usize),
    /// The node ends, and comes back with what it saved last.
    Restart(usize),
}

struct Node {
    model: Model,
    /// The offset of the stream at which the host's log of the model begins.
    begins: usize,
    saved: Saved,
}

/// What a node's file has.
#[derive(Clone)]
struct Saved {
    keys: Keys,
    offset: usize,
    /// What the log has of a text whose last part it does not have.
    gathered: Vec<u8>,
}

impl Node {
    fn new(keys: Keys, begins: usize, is_master: bool) -> Node {
        let model = Model::new(keys.clone());
        let saved = Saved { keys, offset: begins, gathered: Vec::new() };
        let node = Node { model, begins, saved };
        if !is_master {
            node.model.engine.ledger.set_gates(LOCKED, Gates::AOF_ON.and(Gates::READ_ONLY));
        }
        node
    }

    /// The node again, with what it has saved.
    fn restarted(&self, is_master: bool) -> Node {
        let Saved { keys, offset, gathered } = self.saved.clone();
        let mut node = Node::new(keys, offset, is_master);
        *node.model.reader.ledger.log.gathered.lock() = Gathered::new(gathered.clone());
        if !is_master {
            *node.model.engine.ledger.log.gathered.lock() = Gathered::new(gathered);
        }
        node.saved = self.saved.clone();
        node
    }

    /// What it saves.
    fn save(&mut self) -> Saved {
        let gathered = self.model.engine.ledger.log.begun_text(0, usize::MAX);
        Saved { keys: self.logged(), offset: self.offset(), gathered }
    }

    /// How much of the stream it has.
    fn offset(&self) -> usize {
        self.begins + self.model.host.texts.lock().len()
    }

    fn text(&self, offset: usize) -> Option<Vec<u8>> {
        self.model.host.texts.lock().get(offset.checked_sub(self.begins)?).cloned()
    }

    /// What its log holds.
    fn logged(&mut self) -> Keys {
        self.model.read_log();
        content_of(&self.model.reader)
    }

    /// What comes from the master; the host passes it on to its own log.
    fn apply(&mut self, text: Vec<u8>) {
        replay(&self.model.engine, &text);
        self.model.host.texts.lock().push(text);
        self.model.now = content_of(&self.model.engine);
        self.model.step(Step::LogTail);
    }
}

pub(super) struct Pair {
    nodes: [Node; 2],
    master: usize,
    is_linked: bool,
    /// The replica has what the master never had, or has lost.
    has_diverged: bool,
}

impl Pair {
    pub(super) fn new() -> Pair {
        let nodes = [true, false].map(|is_master| Node::new(Keys::new(), 0, is_master));
        Pair { nodes, master: 0, is_linked: true, has_diverged: false }
    }

    fn master(&mut self) -> &mut Node {
        &mut self.nodes[self.master]
    }

    fn replica(&mut self) -> &mut Node {
        &mut self.nodes[1 - self.master]
    }

    /// Lets a node do something, with its own clock.
    fn at<R>(&mut self, number: usize, work: impl FnOnce(&mut Node) -> R) -> R {
        let skew = SKEW * number as UnixMs;
        CLOCK.set(CLOCK.get() + skew);
        let done = work(&mut self.nodes[number]);
        CLOCK.set(CLOCK.get() - skew);
        done
    }

    pub(super) fn step(&mut self, step: PairStep) {
        let (master, replica) = (self.master, 1 - self.master);
        match step {
            PairStep::Master(step) => self.at(master, |node| node.model.step(step)),
            PairStep::Replica(db, line) => self.read(db, line),
            PairStep::Deliver(count) => self.deliver(count),
            PairStep::Break => self.is_linked = false,
            PairStep::Link(full) => self.link(full),
            PairStep::FailOver(steps) => self.fail_over(steps),
            PairStep::Promote => {
                self.exchange();
                self.is_linked = false;
            }
            PairStep::Save(number) => {
                self.nodes[number].saved = self.nodes[number].save();
            }
            PairStep::Restart(number) => {
                self.nodes[number] = self.nodes[number].restarted(number == master);
                self.is_linked = false;
                self.has_diverged |= self.nodes[replica].offset() > self.nodes[master].offset();
            }
        }
        self.compare();
    }

    fn read(&mut self, db: u32, line: Line) {
        let replica = 1 - self.master;
        self.at(replica, |node| {
            let before = node.model.now.clone();
            node.model.step(Step::Run(Door::Worker(0), db, line));
            assert_same(&node.model.now, &before, "a replica writes nothing");
        });
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let offset = self.replica().offset();
            let text = self.master().text(offset).filter(|_| self.is_linked);
            let Some(text) = text else { return };
            let replica = 1 - self.master;
            self.at(replica, |node| node.apply(text));
        }
    }

    fn link(&mut self, full: bool) {
        if self.is_linked {
            return;
        }
        self.is_linked = true;
        let (offset, begins) = (self.replica().offset(), self.master().begins);
        if full || self.has_diverged || offset < begins {
            self.replica().saved = self.master().save();
            *self.replica() = self.replica().restarted(false);
            self.has_diverged = false;
        }
    }

    fn fail_over(&mut self, steps: Vec<Step>) {
        self.link(false);
        let master = self.master;
        self.master().model.host.refuses.store(true, Ordering::Relaxed);
        steps.into_iter().for_each(|step| self.at(master, |node| node.model.step(step)));
        // A step may have ended the pause.
        self.master().model.host.refuses.store(true, Ordering::Relaxed);
        self.deliver(usize::MAX);
        self.exchange();
        assert!(!self.has_diverged, "the old master goes on from where it is");
    }

    /// The roles change.
    fn exchange(&mut self) {
        let (old, new) = (self.master, 1 - self.master);
        self.at(old, |node| node.model.become_replica());
        for node in &mut self.nodes {
            node.model.host.refuses.store(false, Ordering::Relaxed);
        }
        // What the old master has beyond the new one's offset is no longer in the stream.
        self.has_diverged |= self.nodes[old].offset() > self.nodes[new].offset();
        self.at(new, |node| node.model.become_master());
        self.master = new;
    }

    /// At the same offset both have the same.
    fn compare(&mut self) {
        if self.has_diverged {
            return;
        }
        let (offset, of_master) = (self.replica().offset(), self.master().offset());
        assert!(offset <= of_master, "the replica is ahead of its master");
        if offset == of_master {
            let (keys, logged) = (content_of(&self.replica().model.engine), self.master().logged());
            assert_same(&keys, &logged, "the replica, and what its master has logged");
        }
    }
}
