//! Whether the host has a replication backlog: then what is written is for replicas, also for one
//! that is away and comes back. And whether a replica waits for an RDB.
//!
//! The host tells nobody when it gets a backlog: from a replica's PSYNC, as a replica itself, and
//! from an RDB that knows of its stream. So whatever may bring one is taken for one, until INFO
//! says otherwise. A backlog that nobody uses goes after `repl-backlog-ttl`.
//!
//! Nor does it say what an RDB is for. INFO does, when the host is about to fork.

use super::super::api::{Ctx, InfoSection, c_text};
use super::super::state::{Flag, part};

part! {
    /// What is known of the host's backlog.
    pub struct HostBacklog {
        may_be_there: Flag = Flag::new(true),
        is_awaited: Flag = Flag::new(true),
    }
}

impl HostBacklog {
    /// Something has happened that may give the host a backlog.
    pub fn may_come(&self) {
        self.may_be_there.set(true);
    }

    /// Asks the host.
    pub fn look(&self, ctx: Ctx<'_>) {
        self.look_at(&ctx.info(c"replication"));
    }

    fn look_at(&self, info: &InfoSection<'_>) {
        let active = info.number(c"repl_backlog_active");
        self.may_be_there.set(active != Some(0));
    }

    /// Asks the host, which is about to fork, for its replicas too.
    pub fn before_fork(&self, ctx: Ctx<'_>) {
        let info = ctx.info(c"replication");
        self.look_at(&info);
        let is_awaited = info.number(c"connected_slaves").is_none_or(|replicas| {
            let line = |number| info.text(&c_text(&format!("slave{number}")));
            // The host leaves out those whose state has no name.
            (0..replicas).any(|number| line(number).is_none_or(awaits_rdb))
        });
        self.is_awaited.set(is_awaited);
    }

    /// The host may be about to fork, and cannot be asked.
    pub fn before_unknown_fork(&self) {
        self.is_awaited.set(true);
    }

    /// Whether the host has one, or may have one.
    pub fn may_be_there(&self) -> bool {
        self.may_be_there.get()
    }

    /// Whether a replica waited, or may have waited, for an RDB when this process was forked.
    pub fn is_rdb_awaited(&self) -> bool {
        self.is_awaited.get()
    }
}

/// Whether this replica, as INFO has it, waits for an RDB. A client that only wants a backup, as
/// `redis-cli --rdb` does, has no port.
fn awaits_rdb(line: &[u8]) -> bool {
    let has = |field: &[u8]| line.split(|&byte| byte == b',').any(|one| one == field);
    !has(b"state=online") && !has(b"state=send_bulk") && !has(b"port=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_wait_for_an_rdb() {
        for (line, waits) in [
            ("ip=::1,port=7001,state=wait_bgsave,offset=0,lag=0", true),
            ("ip=::1,port=7001,state=wait_bgsave,offset=0,lag=0,type=rdb-channel", true),
            ("ip=::1,port=7001,state=another,offset=0,lag=0", true),
            ("ip=::1,port=7001,state=online,offset=0,lag=0", false),
            ("ip=::1,port=7001,state=send_bulk,offset=0,lag=0", false),
            ("ip=::1,port=0,state=wait_bgsave,offset=0,lag=0", false),
            ("", true),
        ] {
            assert_eq!(awaits_rdb(line.as_bytes()), waits, "{line}");
        }
    }
}
