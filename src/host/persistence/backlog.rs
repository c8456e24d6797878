//! Whether the host has a replication backlog: then what is written is for replicas, also for one
//! that is away and comes back.
//!
//! The host tells nobody when it gets one: from a replica's PSYNC, as a replica itself, and from an
//! RDB that knows of its stream. So whatever may bring one is taken for one, until INFO says
//! otherwise. A backlog that nobody uses goes after `repl-backlog-ttl`.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::api::Ctx;

static MAY_BE_THERE: AtomicBool = AtomicBool::new(true);

/// Something has happened that may give the host a backlog.
pub fn may_come() {
    MAY_BE_THERE.store(true, Ordering::Relaxed);
}

/// Asks the host.
pub fn look(ctx: Ctx<'_>) {
    let active = ctx.info_number(c"replication", c"repl_backlog_active");
    MAY_BE_THERE.store(active != Some(0), Ordering::Relaxed);
}

/// Whether the host has one, or may have one.
pub fn may_be_there() -> bool {
    MAY_BE_THERE.load(Ordering::Relaxed)
}
