//! Whether the host has a replication backlog: then what is written is for replicas, also for one
//! that is away and comes back. And whether a replica waits for an RDB.
//!
//! The host tells nobody when it gets a backlog: from a replica's PSYNC, as a replica itself, and
//! from an RDB that knows of its stream. So whatever may bring one is taken for one, until INFO
//! says otherwise. A backlog that nobody uses goes after `repl-backlog-ttl`.
//!
//! Nor does it say what an RDB is for. INFO does, when the host is about to fork.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::api::{Ctx, InfoSection, c_text};

static MAY_BE_THERE: AtomicBool = AtomicBool::new(true);
static IS_AWAITED: AtomicBool = AtomicBool::new(true);

/// Something has happened that may give the host a backlog.
pub fn may_come() {
    MAY_BE_THERE.store(true, Ordering::Relaxed);
}

/// Asks the host.
pub fn look(ctx: Ctx<'_>) {
    look_at(&ctx.info(c"replication"));
}

fn look_at(info: &InfoSection<'_>) {
    let active = info.number(c"repl_backlog_active");
    MAY_BE_THERE.store(active != Some(0), Ordering::Relaxed);
}

/// Asks the host, which is about to fork, for its replicas too.
pub fn before_fork(ctx: Ctx<'_>) {
    let info = ctx.info(c"replication");
    look_at(&info);
    let is_awaited = info.number(c"connected_slaves").is_none_or(|replicas| {
        let line = |number| info.text(&c_text(&format!("slave{number}")));
        // The host leaves out those whose state has no name.
        (0..replicas).any(|number| line(number).is_none_or(awaits_rdb))
    });
    IS_AWAITED.store(is_awaited, Ordering::Relaxed);
}

/// The host may be about to fork, and cannot be asked.
pub fn before_unknown_fork() {
    IS_AWAITED.store(true, Ordering::Relaxed);
}

/// Whether this replica, as INFO has it, waits for an RDB. A client that only wants a backup, as
/// `redis-cli --rdb` does, has no port.
fn awaits_rdb(line: &[u8]) -> bool {
    let has = |field: &[u8]| line.split(|&byte| byte == b',').any(|one| one == field);
    !has(b"state=online") && !has(b"state=send_bulk") && !has(b"port=0")
}

/// Whether the host has one, or may have one.
pub fn may_be_there() -> bool {
    MAY_BE_THERE.load(Ordering::Relaxed)
}

/// Whether a replica waited, or may have waited, for an RDB when this process was forked.
pub fn is_rdb_awaited() -> bool {
    IS_AWAITED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_an_rdb() {
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
