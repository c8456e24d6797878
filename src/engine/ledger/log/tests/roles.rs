//! Steps of the model that change the server's role.

use super::model::{Door, Model};
use super::name;
use super::world::{Line, assert_same, content_of};
use crate::engine::{Gates, Mode};
use crate::sync::LOCKED;

impl Model {
    /// The server becomes a replica, and then a master again.
    pub(super) fn demote(&mut self) {
        if self.engine.mode() == Mode::Fast {
            return;
        }
        let gates = self.engine.gates();
        self.become_replica();
        self.engine.ledger.set_gates(LOCKED, gates);
    }

    /// The server becomes a master.
    pub(super) fn become_master(&mut self) {
        self.engine.ledger.log.gathered.lock().clear();
        self.engine.ledger.set_gates(LOCKED, Gates::AOF_ON);
    }

    /// The server becomes a replica: it must have what the host's log has, as any replica of its
    /// own, and no reply may tell of more.
    pub(super) fn become_replica(&mut self) {
        let (gates, last) = (self.engine.gates(), self.last());
        let logged = self.engine.ledger.log.logged();
        self.engine.ledger.set_gates(LOCKED, gates.and(Gates::READ_ONLY));
        let dropped = self.engine.ledger.drop_tail(LOCKED) as u64;
        assert_eq!(dropped, last - logged);
        self.undone += self.last() - logged;
        self.read_log();
        let now = content_of(&self.engine);
        assert_same(&now, &content_of(&self.reader), "a demoted master, and what the log holds");
        for position in self.held.iter().copied().chain([logged, last]) {
            let is_undone = self.engine.ledger.log.is_undone(position);
            assert!(is_undone || position <= logged, "{position} would be answered");
            assert!(!is_undone || position > logged || position <= last - dropped, "{position}");
        }
        let log = &self.engine.ledger.log;
        assert!(!log.is_undone(log.last()), "who has seen all would be answered an error");
        self.held.retain(|&position| !log.is_undone(position));
        self.changed_at.retain(|_, &mut at| at <= logged);
        self.shards.fill(0);
        self.now = now;
        let line = Line(vec![b"append".to_vec(), name(0), b"x".to_vec()]);
        let last = self.last();
        self.run(Door::Worker(0), 0, &line);
        assert_eq!(self.last(), last, "a replica writes nothing");
    }
}
