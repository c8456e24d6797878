//! Loading the module: what must be available, and in which order things start.

use std::ffi::{OsStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path};
use std::sync::Arc;

use midi_module_api as raw;

use super::api::{Ctx, Level, RawCtx, RawString, log};
use super::instance::{self, VERSION, instance};
use super::persistence::{hand_over, report, section};
use super::questions::TheHost;
use super::state::doing::ModuleStage;
use super::string::HostString;
use super::users::USERS;
use super::{
    config, count_panic, descriptors, door, events, import_source, info, kept, listener,
    log_panics, notifications, output, register, renamed, reply, slow_log, unit, version, watch,
};
use crate::command::Cluster;
use crate::engine::{Engine, ListenAt, Port, PortConfig, Waker, Workers};

/// Versions with the functions that midi needs.
const HOSTS: &str = "Redis 7.0.6 or Valkey 7.2, or a later one";

/// Each worker's part of the ports.
pub type PortParts = Vec<Box<dyn Port + Send>>;

/// Opens the ports, or returns for the log why it cannot. The last argument counts a caught panic.
pub type OpenPorts = fn(&Arc<Engine>, &PortConfig, fn()) -> Result<PortParts, String>;

/// RedisModule_OnLoad.
///
/// # Safety
/// Called by the host, once, on its main thread, with its arguments.
pub unsafe fn on_load(
    ctx: *mut RawCtx,
    argv: *mut *mut RawString,
    argc: c_int,
    open_ports: OpenPorts,
) -> c_int {
    let (ok, err) = (raw::REDISMODULE_OK, raw::REDISMODULE_ERR);
    // SAFETY: the host's context. Nothing was allocated before this: from here
    // on the host's allocator is used.
    let registered = unsafe { raw::init(ctx, c"midi", VERSION) };
    if registered != ok {
        return err;
    }
    // SAFETY: nothing was allocated yet. If midi is loaded a second time, the first one counts.
    unsafe { super::alloc::learn_alignment() };
    // SAFETY: the host's own context, array and strings, alive during this call.
    let (ctx, strings) = unsafe { (Ctx::new(ctx), HostString::arguments(argv, argc)) };
    let args: Vec<&[u8]> = strings.iter().map(|string| string.bytes()).collect();
    let loaded = super::guarded(Err("internal error while loading".to_owned()), || {
        load(ctx, &args, open_ports)
    });
    match loaded {
        Ok(()) => ok,
        Err(reason) => {
            log(ctx, Level::Warning, &format!("Not loaded: {reason}"));
            err
        }
    }
}

fn load(ctx: Ctx<'_>, args: &[&[u8]], open_ports: OpenPorts) -> Result<(), String> {
    if let Some(function) = raw::missing() {
        return Err(format!("this host is too old: it lacks {function}; midi needs {HOSTS}"));
    }
    if instance::if_begun().is_some() {
        return Err("this process has loaded midi before; restart it".into());
    }
    kept::this_is_main();
    log_panics();
    config::load(ctx, args, &instance().built_settings)?;
    warn_of_config(ctx);
    let (databases, cluster) = config::databases(ctx);
    let engine_config = config::engine_config(databases, cluster);
    let waker: &'static Waker =
        Box::leak(Box::new(Waker::new().map_err(|error| error.to_string())?));
    let (settings, port_config) = (config::settings(), config::port_config(ctx));
    check_sockets(ctx, &port_config)?;
    if port_config.opens_any() {
        descriptors::prepare(ctx, &settings, &port_config, engine_config.workers);
    }
    let engine = Engine::new(engine_config, settings, Box::new(|| waker.wake()));
    let engine = Arc::new(engine.map_err(|error| error.to_string())?);
    engine.context().outside.on_ask_host(|locked| instance().gates.ask_host(locked));
    engine.context().outside.set_log(Box::new(hand_over::TheLog));
    engine.users.mark_stale(ctx.locked());
    instance().io_threads.prepare(ctx);
    instance().gates.prepare(ctx);
    USERS.prepare(ctx);
    engine.ledger.on_watched_change(watch::tell);
    engine.context().outside.set_host(Box::new(TheHost::new(ctx)));
    instance().renamed.note_seen(ctx.locked());
    let ports = prepare_ports(ctx, &engine, &port_config, open_ports)?;
    // Threads first: what is registered with the host cannot be taken back.
    let workers = Workers::start(&engine, count_panic, ports);
    let workers = workers.map_err(|error| format!("cannot start threads: {error}"))?;
    reply::prepare(ctx);
    listener::prepare(&engine).map_err(|error| error.to_string())?;
    instance::begin(ctx, Arc::clone(&engine), waker, workers);
    section::set_options(ctx);
    let is_registered = report::prepare()
        && section::register(ctx)
        && register::register(ctx, door::TRAMPOLINES)
        && info::register(ctx)
        && events::register(ctx, waker)
        && unit::register(ctx);
    if !is_registered {
        let text = "the host refused a command, event, data type or INFO section; its log may say \
                    why";
        return Err(text.into());
    }
    descriptors::leave_files(ctx, engine.settings());
    // While a file is loaded, this has the users read: the ports accept nobody before.
    waker.wake();
    if ctx.info_number(c"replication", c"connected_slaves").is_some_and(|replicas| replicas > 0) {
        events::say_what_replicas_need(ctx);
    }
    version::adopt(ctx);
    instance().active_expiry.prepare(ctx);
    instance().eviction.look(ctx);
    output::look(ctx);
    slow_log::look(ctx);
    notifications::begin(ctx);
    if engine_config.cluster != Cluster::Off {
        let text = "MIGRATE does not move midi's keys, so a slot that has midi's keys cannot leave \
                    this node by CLUSTER SETSLOT. Have them leave midi first: MIDI.EXPORT * SLOT n \
                    MOVE.";
        log(ctx, Level::Notice, text);
    }
    // Valkey 9.2 and later. A save without a fork has no moment at which midi's keys hold still.
    if ctx.config_is(c"forkless-infrastructure-enabled", b"yes") {
        let text = "This server saves with a fork while midi is loaded, whatever \
                    bgsave-default-method says, and refuses BGSAVE FORKLESS.";
        log(ctx, Level::Warning, text);
    }
    let mode = if engine_config.safemode { ", SAFEMODE" } else { "" };
    let (workers, shards) =
        (counted(engine_config.workers, "worker"), counted(engine_config.shards, "shard"));
    log(
        ctx,
        Level::Notice,
        &format!("Version {}: {workers}, {shards}{mode}", env!("CARGO_PKG_VERSION")),
    );
    Ok(())
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Newer hosts remove a socket of ours in the place of their own, and listen there themselves.
///
/// # Errors
/// A port is to have the host's `unixsocket`.
fn check_sockets(ctx: Ctx<'_>, ports: &PortConfig) -> Result<(), String> {
    let text = ctx.config_text(c"unixsocket").unwrap_or_default();
    // The file need not be there yet, and its folder may have several names. To be asked for one of
    // them, libc allocates: by another allocator than the one with which a module would free it,
    // where the host is linked to one of its own.
    let place = |path: &Path| {
        let path = path::absolute(path).ok()?;
        let folder = path.parent()?.metadata().ok()?;
        Some((folder.dev(), folder.ino(), path.file_name()?.to_owned()))
    };
    let of_host = place(Path::new(OsStr::from_bytes(&text)));
    let same = ports.listeners.iter().find(|row| match &row.at {
        ListenAt::Unix { path, .. } => of_host.is_some() && place(Path::new(path)) == of_host,
        ListenAt::Tcp { .. } => false,
    });
    match same {
        Some(row) => Err(format!("midi.{}: the server listens there itself", row.setting)),
        None => Ok(()),
    }
}

/// Prepares and opens the ports; if an obstacle keeps them closed, it is logged.
fn prepare_ports(
    ctx: Ctx<'_>,
    engine: &Arc<Engine>,
    ports: &PortConfig,
    open_ports: OpenPorts,
) -> Result<PortParts, String> {
    match ports.obstacle {
        None if ports.listeners.is_empty() => {}
        None => {
            warn_of_ports(ctx, ports);
            renamed::note_for_ports(ctx);
            import_source::prepare(ctx);
            instance().gates.ports.set(true);
        }
        Some(obstacle) => {
            log(
                ctx,
                Level::Warning,
                &format!("midi.port and midi.unixsocket stay closed: {obstacle}"),
            );
        }
    }
    let opened = open_ports(engine, ports, count_panic)?;
    if let Some(reason) = engine.context().outside.ports().and_then(|ports| ports.fallback()) {
        let text = format!("midi.io io_uring cannot be had, midi uses epoll: {reason}");
        log(ctx, Level::Warning, &text);
    }
    Ok(opened)
}

/// Warns of what the ports cannot do with this configuration.
fn warn_of_ports(ctx: Ctx<'_>, ports: &PortConfig) {
    if let Some(setting) = config::port_without_address(ports) {
        let text = format!("midi.{setting} stays closed: {}", config::NO_ADDRESS);
        log(ctx, Level::Warning, &text);
    }
    if !config::are_told(ctx) {
        log(
            ctx,
            Level::Warning,
            "midi's port does not know the server's bind, protected-mode, timeout, tcp-keepalive \
             and tcp-backlog: set midi.bind (127.0.0.1 and ::1 until then), midi.protected-mode, \
             midi.timeout and midi.tcp-keepalive. It assumes that stop-writes-on-bgsave-error is \
             yes and replica-serve-stale-data no.",
        );
    }
}

/// Warns of what midi does not know if the host does not report its settings.
fn warn_of_config(ctx: Ctx<'_>) {
    if !config::are_told(ctx) {
        let policy = config::assumed_policy();
        let text = format!(
            "The server does not report its settings, because CONFIG has been renamed. midi \
             assumes appendfsync {policy}: if that is wrong, set midi.assume-appendfsync. It does \
             not know whether no-appendfsync-on-rewrite takes syncs away."
        );
        log(ctx, Level::Warning, &text);
    }
}

/// RedisModule_OnUnload: refuses. Threads run in the module's code, and its keys would be lost. The
/// host itself refuses MODULE UNLOAD before it asks, because midi has a data type.
///
/// But MODULE LOADEX takes back a module that has only just been loaded, if it names a setting that
/// the module does not have; Redis from 8 on asks here then, and exits if the module refuses.
///
/// # Safety
/// Called by the host with its own context.
pub unsafe fn on_unload(ctx: *mut RawCtx) -> c_int {
    // SAFETY: the caller's promise.
    let ctx = unsafe { Ctx::new(ctx) };
    if instance().doing.is(ModuleStage::Ending) {
        // Valkey from 9 on calls this for all modules when it exits.
        return raw::REDISMODULE_ERR;
    }
    if instance().doing.is_starting() && super::guarded(false, withdraw) {
        let text = "Not loaded: MODULE LOADEX names a setting that midi does not have. Restart the \
                    server before you load midi again.";
        log(ctx, Level::Warning, text);
        return raw::REDISMODULE_OK;
    }
    let text = "MODULE UNLOAD refused: it would lose midi's keys. Restart the server without the \
                module instead.";
    log(ctx, Level::Warning, text);
    raw::REDISMODULE_ERR
}

/// Stops what the host does not stop itself. False if that cannot be done.
fn withdraw() -> bool {
    if !stay_in_memory() {
        return false;
    }
    instance().doing.enter(ModuleStage::Withdrawn);
    events::stop_listening();
    instance().stop_workers();
    true
}

/// Keeps the library in memory when the host closes it: fork handlers point to it.
fn stay_in_memory() -> bool {
    let mut library = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the structure is written to if the call succeeds; its name is the loader's own.
    unsafe {
        let here: *const c_void = (stay_in_memory as fn() -> bool) as *const c_void;
        libc::dladdr(here, library.as_mut_ptr()) != 0
            && !libc::dlopen(
                library.assume_init().dli_fname,
                libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
            )
            .is_null()
    }
}
