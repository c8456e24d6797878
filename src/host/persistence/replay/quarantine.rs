//! A replica that does not follow midi's log must not count as one: its master would take what it
//! acknowledges for kept, and Sentinel, the cluster or FAILOVER could promote it.
//!
//! ```text
//!             cannot follow, and the link is up
//! Following ───────────────────────────────────► Apart: link cut, priority 0, no failover
//!    ▲                                             │  ▲
//!    │ a full sync that can be followed,           │  │ a partial resync
//!    │ or it is a master now                       ▼  │
//!    └───────────────────────────────────────── Trying: REPLICAOF was called
//! ```
//!
//! A module has no way to keep a replica from acknowledging. So the link is cut, before the turn of
//! the main loop ends in which it could acknowledge, and stays cut: the replica logs in to its
//! master as a user that nobody has. Where CONFIG is not to be had, it is told to follow port 0 of
//! its master's host, which no server has.
//!
//! For that, settings of the operator's are changed. They are put back before a CONFIG SET or
//! CONFIG REWRITE runs, and changed again when the turn ends: so the file never has ours, and
//! settings that the operator changes meanwhile are kept.

use std::ffi::CStr;

use midi_module_api as raw;

use super::super::super::api::{Answer, Ctx, Level, log};
use super::super::super::context::Filtered;
use super::super::super::instance::instance;
use super::super::super::state::persistence::{Quarantine, Setting};
use crate::engine::Locked;

/// Keeps it from being promoted: by Sentinel, and by the cluster.
const NOT_PROMOTED: [Setting<&str>; 2] =
    [(c"replica-priority", "0"), (c"cluster-replica-no-failover", "yes")];

/// Keeps the link cut: the master knows no such user. The name is there for who reads the master's
/// ACL LOG. A login is only tried with a password.
const NOT_LINKED: [Setting<&str>; 2] =
    [(c"masteruser", "midi-does-not-follow"), (c"masterauth", "none")];

/// The server has been told whom to follow: a full sync may mend it.
pub fn has_master() {
    if !instance().quarantine.is_ours.get() {
        instance().quarantine.may_try.set(true);
        instance().sync.look_later();
    }
}

/// A CONFIG command is about to be executed, queued or refused.
pub fn before_config(command: Filtered<'_>) {
    let word = command.arg(1);
    if word.eq_ignore_ascii_case(b"set") || word.eq_ignore_ascii_case(b"rewrite") {
        put_back(command.locked());
    }
}

/// The operator's settings are in force until the turn ends. Also before an EXEC: such a CONFIG may
/// be queued in it.
pub fn put_back(locked: Locked<'_>) {
    if !instance().quarantine.is_ours.get() && !instance().quarantine.kept.lock().is_empty() {
        instance().quarantine.restore(instance().ctx(locked));
        instance().sync.look_later();
    }
}

/// The main loop is about to sleep: no command is running, and no acknowledgement of this turn has
/// been sent.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) {
    if instance().sync.changed.take() {
        instance().quarantine.settle(ctx);
    }
}

impl Quarantine {
    #[cold]
    fn settle(&self, ctx: Ctx<'_>) {
        let flags = ctx.flags();
        let may_try = self.may_try.take();
        // A master that was started from such a replica's file. But a cluster tells a replica only
        // after its start that it is one.
        if flags & (raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_CLUSTER) == 0 {
            instance().sync.became_master();
        }
        if flags & raw::REDISMODULE_CTX_FLAGS_SLAVE == 0 || !instance().sync.untrusted.get() {
            self.is_cut.set(false);
            return self.restore(ctx);
        }
        if may_try && self.is_cut.get() {
            self.is_cut.set(false);
            self.restore(ctx);
        }
        self.change(ctx, &NOT_PROMOTED);
        let is_linked = flags & raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_ONLINE != 0;
        if !is_linked && !self.is_cut.get() {
            return;
        }
        let stays_cut = self.change(ctx, &NOT_LINKED);
        let is_cut = !is_linked || stays_cut && kill_link(ctx) || self.follow_nobody(ctx);
        self.is_cut.set(is_cut);
        if !is_cut {
            let text = "The link to the master cannot be cut, because CONFIG, CLIENT and REPLICAOF \
                        are not to be had: this replica goes on acknowledging what it does not \
                        follow. Do not promote it.";
            log(ctx, Level::Warning, text);
        }
    }

    /// Has it follow a port that no server has. A cluster refuses that.
    fn follow_nobody(&self, ctx: Ctx<'_>) -> bool {
        let host = ctx.info_text(c"replication", c"master_host").unwrap_or_default();
        self.is_ours.set(true);
        let answer = ctx.call(c"REPLICAOF", &[&host, b"0"]);
        self.is_ours.set(false);
        let done = answer == Answer::Text(b"OK".to_vec());
        if done {
            let text = "CONFIG or CLIENT is not to be had. To cut the link, this replica follows \
                        port 0 of its master's host now; its priority may still be the \
                        operator's. REPLICAOF with the right port has it try again.";
            log(ctx, Level::Warning, text);
        }
        done
    }

    /// Makes these settings ours. False if the host does not take them.
    fn change(&self, ctx: Ctx<'_>, settings: &[Setting<&str>]) -> bool {
        let all_changed = settings.iter().map(|&(name, value)| {
            let is_ours = self.kept.lock().iter().any(|(kept, _)| *kept == name);
            is_ours || self.change_one(ctx, name, value)
        });
        all_changed.fold(true, |all, one| all & one)
    }

    fn change_one(&self, ctx: Ctx<'_>, name: &'static CStr, value: &str) -> bool {
        let Some(before) = ctx.config_text(name) else { return false };
        let done = self.set(ctx, name, value.as_bytes());
        if done {
            self.kept.lock().push((name, before));
        }
        done
    }

    /// Puts the operator's values back.
    fn restore(&self, ctx: Ctx<'_>) {
        let kept = std::mem::take(&mut *self.kept.lock());
        for (name, value) in kept {
            self.set(ctx, name, &value);
        }
    }

    fn set(&self, ctx: Ctx<'_>, name: &CStr, value: &[u8]) -> bool {
        self.is_ours.set(true);
        let done = ctx.set_config(name, value);
        self.is_ours.set(false);
        done
    }
}

/// Ends the connection to the master.
fn kill_link(ctx: Ctx<'_>) -> bool {
    let killed = ctx.call(c"CLIENT", &[b"KILL", b"TYPE", b"master"]);
    matches!(killed, Answer::Number(1..))
}
