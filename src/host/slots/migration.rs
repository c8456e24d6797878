//! CLUSTER MIGRATION of Redis 8.4 and later: midi's keys go with their slots.
//!
//! ```text
//!  old owner                                                          new owner
//!  MIGRATE_STARTED ─ fork ─ child: MIDI.SET of each string; ────────► run past gates and limits
//!                    │      HSET, HPEXPIREAT and PEXPIREAT of each hash
//!                    │      then the host's keys
//!                    writes: each record as a command with its key ─► as above, afterwards
//!  MIGRATE_COMPLETED (writes are paused): the log's tail is taken back, its clients are told
//!  trim ─ the keys are removed, and logged as DELs
//! ```

use std::ffi::{CStr, c_void};

use midi_module_api as raw;

use super::super::api::{Ctx, Level, RawCtx, RawEvent, log, subscribe};
use super::super::guarded;
use super::super::instance::instance;
use super::super::keys::has_migrations;
use super::super::persistence::{fork, hand_over};
use super::super::string::OwnString;
use super::lost;
use crate::command::slot::slot_of;
use crate::store::{EntryRef, Fields, Type};

/// A command is about to remove all keys: that does not go along, so no migration may go on. The
/// host's own FLUSHALL ends them, too. They end when the main loop is about to sleep: no slot
/// changes hands before that.
#[inline]
pub fn before_flush() {
    let slots = &instance().slots;
    if slots.leaving.get() || slots.coming.get() {
        slots.flushed.set(true);
    }
}

/// The turn is over: if a command has removed all keys in it, migrations end.
#[inline]
pub(super) fn turn_ends(ctx: Ctx<'_>) {
    if instance().slots.flushed.take() {
        ctx.call(c"CLUSTER", &[b"MIGRATION", b"CANCEL", b"ALL"]);
    }
}

/// Subscribes to the events of migrations, where the host has these. The numbers of the events mean
/// others in Valkey.
pub fn register(ctx: Ctx<'_>) {
    if has_migrations() {
        subscribe(ctx, raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION, on_migration);
        subscribe(ctx, raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM, on_trim);
    }
}

unsafe extern "C" fn on_migration(ctx: *mut RawCtx, _: RawEvent, sub: u64, data: *mut c_void) {
    // SAFETY: the event's own context, and its data is this structure.
    let (ctx, slots) = unsafe {
        (Ctx::new(ctx), ranges((*data.cast::<raw::RedisModuleClusterSlotMigrationInfo>()).slots))
    };
    guarded((), || match sub {
        raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_STARTED => {
            set_coming(ctx, true);
            lost::comes_back(ctx, each_of(&slots));
        }
        raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_FAILED => {
            set_coming(ctx, false);
            lost::came_in_vain(each_of(&slots));
        }
        raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED => {
            set_coming(ctx, false);
            lost::have_come(each_of(&slots));
        }
        raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_STARTED => {
            instance().slots.leaving.set(true);
        }
        raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_FAILED => {
            instance().slots.leaving.set(false);
        }
        raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_COMPLETED => {
            instance().slots.leaving.set(false);
            // The new owner has the log up to the pause, which is not over yet.
            lost::are_gone(each_of(&slots));
            hand_over::drop_tail(ctx, "Slots have moved to another node");
        }
        raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_MODULE_PROPAGATE => {
            if let Err(reason) = send_keys(ctx, &slots) {
                let text = format!("The slots cannot move, because midi's keys cannot: {reason}.");
                log(ctx, Level::Warning, &text);
                // The host then counts the migration as failed, and the slots stay.
                // SAFETY: this is a forked child, in which nothing is left to be done.
                unsafe { libc::_exit(1) };
            }
        }
        _ => {}
    });
}

/// Slots begin to come, or no longer do. Meanwhile nothing expires and nothing is evicted: commands
/// of the old owner would not find their keys. Nor do workers write: what they log while the host
/// runs a command of the old owner does not reach replicas.
fn set_coming(ctx: Ctx<'_>, comes: bool) {
    instance().slots.coming.set(comes);
    instance().gates.refresh(ctx);
}

/// The host trims slots: after a migration on the old owner, or after one that has failed on the
/// node that would have become the new one.
unsafe extern "C" fn on_trim(ctx: *mut RawCtx, _: RawEvent, sub: u64, data: *mut c_void) {
    // SAFETY: the event's own context, and its data is this structure.
    let (ctx, slots) = unsafe {
        let info = data.cast::<raw::RedisModuleClusterSlotMigrationTrimInfo>();
        (Ctx::new(ctx), ranges((*info).slots))
    };
    if sub != raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_TRIM_COMPLETED {
        guarded((), || lost::goes(ctx, each_of(&slots)));
    }
}

/// # Safety
/// `array` must be a live array of the host's.
unsafe fn ranges(array: *const raw::RedisModuleSlotRangeArray) -> Vec<(u16, u16)> {
    // SAFETY: the caller's promise; the ranges stand behind their number.
    unsafe {
        let first = (&raw const (*array).ranges).cast::<raw::RedisModuleSlotRange>();
        let number = usize::try_from((*array).num_ranges).unwrap_or(0);
        (0..number).map(|at| ((*first.add(at)).start, (*first.add(at)).end)).collect()
    }
}

fn each_of(ranges: &[(u16, u16)]) -> impl Iterator<Item = u16> + Clone {
    ranges.iter().flat_map(|&(first, last)| first..=last)
}

/// In the child of a migration: has the host send each key of these slots, as a command. It keeps
/// them all until midi has named the last one.
///
/// # Errors
/// The reason why not all can be sent.
fn send_keys(ctx: Ctx<'_>, slots: &[(u16, u16)]) -> Result<(), String> {
    let engine = &instance().engine;
    let Some(all) = fork::held_in_child() else {
        return Err("the process has forked on another thread".into());
    };
    let moves = |key: &[u8]| {
        let slot = slot_of(key);
        slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    };
    let tables = (0..engine.shards().count()).filter_map(|shard| all.store(shard)?.table(0));
    for entry in tables.flat_map(|table| table.entries()).filter(|entry| moves(entry.key())) {
        send_key(ctx, entry)?;
    }
    Ok(())
}

/// About how many words of a hash are in one command.
const WORDS_AT_ONCE: usize = 512;

fn send_key(ctx: Ctx<'_>, entry: EntryRef<'_>) -> Result<(), String> {
    if entry.value_type() == Type::Hash {
        return send_hash(ctx, entry);
    }
    let (expire_at, mut number) = (entry.expire_at(), itoa::Buffer::new());
    let value = entry.string().map_err(|_| "a key is not a string")?;
    let at = expire_at.map(|at| number.format(at).as_bytes());
    let key = value.entry().key();
    let with_expiry: [&[u8]; 4] = [key, value.bytes(), b"PXAT", at.unwrap_or_default()];
    let args = if at.is_some() { &with_expiry[..] } else { &with_expiry[..2] };
    send(ctx, c"MIDI.SET", args)
}

fn send_hash(ctx: Ctx<'_>, entry: EntryRef<'_>) -> Result<(), String> {
    let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
    let fields = Fields::of(entry).map_err(|_| "a key is not a hash")?;
    let mut args: Vec<&[u8]> = vec![&key];
    for field in fields.iter() {
        args.extend([field.name, field.value]);
        if args.len() > WORDS_AT_ONCE {
            send(ctx, c"MIDI.HSET", &args)?;
            args.truncate(1);
        }
    }
    if args.len() > 1 {
        send(ctx, c"MIDI.HSET", &args)?;
    }
    for field in fields.iter() {
        if let Some(at) = field.expire_at {
            let mut number = itoa::Buffer::new();
            let at = number.format(at).as_bytes();
            send(ctx, c"MIDI.HPEXPIREAT", &[&key, at, b"FIELDS", b"1", field.name])?;
        }
    }
    let Some(at) = expire_at else { return Ok(()) };
    send(ctx, c"MIDI.PEXPIREAT", &[&key, itoa::Buffer::new().format(at).as_bytes()])
}

/// Has the host send a command of midi's.
fn send(ctx: Ctx<'_>, name: &CStr, args: &[&[u8]]) -> Result<(), String> {
    let strings: Vec<OwnString> = args.iter().map(|text| OwnString::new(text)).collect();
    // SAFETY: filled in at load; the context is the event's. The host takes references of its own
    // to these strings, which are pointers to its strings, as `v` wants them, with their number.
    let sent = unsafe {
        raw::RedisModule_ClusterPropagateForSlotMigration.map(|send| {
            send(ctx.raw(), name.as_ptr(), c"v".as_ptr(), strings.as_ptr(), strings.len())
        })
    };
    if sent == Some(raw::REDISMODULE_OK) {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().to_string())
    }
}
