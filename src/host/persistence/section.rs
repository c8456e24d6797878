//! midi's section in the host's RDB: the auxiliary data of a data type that has no keys.

use std::ffi::{CStr, c_int, c_void};
use std::time::Instant;

use midi_module_api as raw;

use super::super::api::{Ctx, Level, RawString, api};
use super::super::guarded;
use super::super::instance::instance;
use super::{fork, loading, report};
use crate::engine::{Gates, Locked};
use crate::snapshot::{self, SaveStats, SavedAs, Sink, Source};
use crate::store::Store;

/// The name of the data type: nine characters, by which RDB files know the module.
const TYPE_NAME: &CStr = c"midi-keys";

/// The version of the list of methods that has `aux_save2`. A host reads the ones that it knows.
const METHODS_VERSION: u64 = 5;

/// Registers the data type. False if the host refuses.
pub fn register(ctx: Ctx<'_>) -> bool {
    // SAFETY: a structure of numbers and optional functions; the host copies it.
    unsafe {
        let mut methods: raw::RedisModuleTypeMethods = std::mem::zeroed();
        methods.version = METHODS_VERSION;
        methods.rdb_load = Some(load_key);
        methods.rdb_save = Some(save_key);
        methods.aof_rewrite = Some(rewrite_key);
        methods.free = Some(free_key);
        methods.aux_load = Some(aux_load);
        methods.aux_save = Some(aux_save);
        // From Redis 7.2 on it takes the place of `aux_save`, and an RDB into which it writes
        // nothing can be loaded without midi. But one that a replica gets must not be.
        methods.aux_save2 = Some(aux_save_if_any);
        // Before the host's keys: the loading process is then told early of what is wrong.
        methods.aux_save_triggers = raw::REDISMODULE_AUX_BEFORE_RDB;
        let made = api!(RedisModule_CreateDataType)(
            ctx.raw(),
            TYPE_NAME.as_ptr(),
            snapshot::VERSION,
            &mut methods,
        );
        !made.is_null()
    }
}

/// Sets what midi can do while the host loads data. In OnLoad.
pub fn set_options(ctx: Ctx<'_>) {
    let options =
        raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    // SAFETY: in OnLoad.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx.raw(), options as c_int) };
}

/// The host's RDB, being written.
struct HostSink(*mut raw::RedisModuleIO);

impl Sink for HostSink {
    fn put(&mut self, string: &[u8]) {
        // SAFETY: valid during the callback that got it; the host copies the bytes.
        unsafe {
            api!(RedisModule_SaveStringBuffer)(self.0, string.as_ptr().cast(), string.len());
        }
    }

    /// A full disk, or a replica that has gone.
    fn has_failed(&self) -> bool {
        // SAFETY: as above.
        unsafe { api!(RedisModule_IsIOError)(self.0) != 0 }
    }
}

/// The host's RDB, being read.
struct HostSource(*mut raw::RedisModuleIO);

impl Source for HostSource {
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut len = 0;
        // SAFETY: valid during the callback that got it.
        let buffer = unsafe { api!(RedisModule_LoadStringBuffer)(self.0, &mut len) };
        if buffer.is_null() {
            return None;
        }
        if len == 0 {
            // SAFETY: ours to free; a vector without room owns no memory.
            unsafe { api!(RedisModule_Free)(buffer.cast()) };
            return Some(Vec::new());
        }
        // SAFETY: the host allocated these bytes, and they are ours; midi frees as the host does.
        Some(unsafe { Vec::from_raw_parts(buffer.cast(), len, len) })
    }
}

unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _: c_int) {
    instance().file.has_section.set(true);
    let saved = guarded(false, || save(io));
    if !saved {
        // The host then counts the save as failed, and keeps the old file. A panic outside of a
        // child ends the server: else the host would put half a section over a good file.
        // SAFETY: it ends the process at once.
        unsafe { libc::_exit(1) };
    }
}

unsafe extern "C" fn aux_save_if_any(io: *mut raw::RedisModuleIO, when: c_int) {
    if is_nothing_to_save() && !is_for_replica() {
        instance().file.has_section.set(true);
        report::report().begin();
        return report::report().end(SaveStats::default(), Instant::now());
    }
    // SAFETY: the host's own arguments.
    unsafe { aux_save(io, when) };
}

/// Whether midi has no keys, for certain, so that a file without a section says all that there is.
pub fn is_nothing_to_save() -> bool {
    // While all tokens are held, and while the keyspace is closed, the count is exact.
    let is_certain = !instance().doing.is_child() || fork::held_in_child().is_some();
    let ledger = &instance().engine.ledger;
    let is_empty = || ledger.books.keys() == 0 && ledger.log.begun_text(0, 1).is_empty();
    is_certain && !is_distrusted() && is_empty()
}

/// Whether the file may be for a replica. That needs a section, also an empty one: a server without
/// midi would take the file, and later confirm writes that it does not have. Any other file it may
/// load.
fn is_for_replica() -> bool {
    let here = instance();
    here.doing.is_child() && !here.file.is_base.get() && here.backlog.is_rdb_awaited()
}

/// Whether these are keys of a replica that could not follow its master.
pub fn is_distrusted() -> bool {
    instance().engine.gates().has(Gates::UNSYNCED)
}

/// Writes the section. False if it cannot be written.
fn save(io: *mut raw::RedisModuleIO) -> bool {
    let (engine, report, began) = (&*instance().engine, report::report(), Instant::now());
    report.begin();
    let mut sink = HostSink(io);
    let mut progress = |stats| report.progress(stats);
    let stats = if let Some(all) = fork::held_in_child() {
        snapshot::save(engine, SavedAs::Section, &mut fork::lend(all), &mut sink, &mut progress)
    } else if instance().doing.is_child() {
        let text = format!("The keys cannot be saved: {}.", fork::NOT_HELD);
        instance().log(Level::Warning, &text);
        return false;
    } else {
        // SAFETY: the host saves on the thread that holds the global lock.
        let locked = unsafe { Locked::assume() };
        let mut visit =
            |shard, look: &mut dyn FnMut(&Store)| engine.shards().visit(locked, shard, look);
        snapshot::save(engine, SavedAs::Section, &mut visit, &mut sink, &mut progress)
    };
    if !sink.has_failed() {
        report.end(stats, began);
    }
    true
}

unsafe extern "C" fn aux_load(io: *mut raw::RedisModuleIO, version: c_int, _: c_int) -> c_int {
    // SAFETY: the host loads on the thread that holds the global lock.
    let locked = unsafe { Locked::assume() };
    let loaded = guarded(Err("internal error".to_owned()), || {
        loading::load(locked, version, &mut HostSource(io))
    });
    match loaded {
        Ok(()) => raw::REDISMODULE_OK,
        Err(reason) => {
            let text = format!("The keys are not loaded: {reason}");
            instance().log(Level::Warning, &text);
            if instance().doing.is_starting() {
                // The host would exit, too, but with the code for success.
                // SAFETY: what the host does with a file that it cannot load.
                unsafe { libc::exit(1) };
            }
            raw::REDISMODULE_ERR
        }
    }
}

/// No RDB has keys of this type.
unsafe extern "C" fn load_key(_: *mut raw::RedisModuleIO, _: c_int) -> *mut c_void {
    instance()
        .log(Level::Warning, "A key of the type midi-keys: no version of midi makes such keys.");
    std::ptr::null_mut()
}

unsafe extern "C" fn save_key(_: *mut raw::RedisModuleIO, _: *mut c_void) {}

unsafe extern "C" fn rewrite_key(_: *mut raw::RedisModuleIO, _: *mut RawString, _: *mut c_void) {}

unsafe extern "C" fn free_key(_: *mut c_void) {}
