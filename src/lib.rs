//! midi: a second keyspace for Redis and Valkey that every core can serve.
//!
//! ```text
//! redis clients ─► host's main thread ─► host::door ─┐            ┌─ shard 0: token, mailbox, tables
//!                    (MIDI.* commands)               ├─► engine ─►├─ shard 1
//!                    worker threads: queued          │            └─ …
//!                    commands, jobs, expiry ─────────┘
//! ```
//!
//! Data flows one way: `store ← command ← engine ← snapshot ← net, host`, and `sync ← engine`. A
//! module may use those before it in this list, never those after it; `net` and `host` do not use
//! each other. A test checks this. docs/design.md explains the parts, docs/glossary.md the terms.

pub mod limits;

pub mod sync;

pub mod store;

pub mod command;

pub mod engine;

pub mod snapshot;

pub mod net;

pub mod host;

use std::ffi::c_int;

use midi_module_api::{RedisModuleCtx, RedisModuleString};

/// All memory comes from the host.
#[global_allocator]
static ALLOCATOR: host::HostAlloc = host::HostAlloc;

/// Called by the host when it loads the module.
///
/// # Safety
/// Only the host may call this, with its own context and arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the host's promise.
    unsafe { host::on_load(ctx, argv, argc, net::open) }
}

/// Called by the host when it is asked to unload the module.
///
/// # Safety
/// Only the host may call this, with its own context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut RedisModuleCtx) -> c_int {
    // SAFETY: the host's promise.
    unsafe { host::on_unload(ctx) }
}
