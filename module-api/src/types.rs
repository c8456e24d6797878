//! The structures and callbacks of the module API.

#![allow(missing_docs, reason = "the fields are those of the API's reference")]

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};

/// Declares types of which only the host knows what is in them.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            /// The host's own.
            #[repr(C)]
            pub struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque! {
    RedisModuleBlockedClient RedisModuleCallReply RedisModuleCommand RedisModuleCommandFilter
    RedisModuleCommandFilterCtx RedisModuleCtx RedisModuleDefragCtx RedisModuleDigest RedisModuleIO
    RedisModuleInfoCtx RedisModuleKey RedisModuleKeyOptCtx RedisModuleScanCursor
    RedisModuleServerInfoData RedisModuleString RedisModuleType RedisModuleUser
}

/// Declares types of callbacks; `None` is no callback.
macro_rules! callbacks {
    ($($name:ident($($args:ty),*) $(-> $result:ty)?;)*) => {
        $(
            /// A callback.
            pub type $name = Option<unsafe extern "C" fn($($args),*) $(-> $result)?>;
        )*
    };
}

callbacks! {
    RedisModuleCmdFunc(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int) -> c_int;
    RedisModuleCommandFilterFunc(*mut RedisModuleCommandFilterCtx);
    RedisModuleConfigApplyFunc(
        *mut RedisModuleCtx, *mut c_void, *mut *mut RedisModuleString) -> c_int;
    RedisModuleConfigGetBoolFunc(*const c_char, *mut c_void) -> c_int;
    RedisModuleConfigGetEnumFunc(*const c_char, *mut c_void) -> c_int;
    RedisModuleConfigGetNumericFunc(*const c_char, *mut c_void) -> c_longlong;
    RedisModuleConfigGetStringFunc(*const c_char, *mut c_void) -> *mut RedisModuleString;
    RedisModuleConfigSetBoolFunc(
        *const c_char, c_int, *mut c_void, *mut *mut RedisModuleString) -> c_int;
    RedisModuleConfigSetEnumFunc(
        *const c_char, c_int, *mut c_void, *mut *mut RedisModuleString) -> c_int;
    RedisModuleConfigSetNumericFunc(
        *const c_char, c_longlong, *mut c_void, *mut *mut RedisModuleString) -> c_int;
    RedisModuleConfigSetStringFunc(
        *const c_char, *mut RedisModuleString, *mut c_void, *mut *mut RedisModuleString) -> c_int;
    RedisModuleDisconnectFunc(*mut RedisModuleCtx, *mut RedisModuleBlockedClient);
    RedisModuleEventCallback(*mut RedisModuleCtx, RedisModuleEvent, u64, *mut c_void);
    RedisModuleEventLoopFunc(c_int, *mut c_void, c_int);
    RedisModuleForkDoneHandler(c_int, c_int, *mut c_void);
    RedisModuleInfoFunc(*mut RedisModuleInfoCtx, c_int);
    RedisModuleOnUnblocked(*mut RedisModuleCtx, *mut RedisModuleCallReply, *mut c_void);
    RedisModuleScanCB(
        *mut RedisModuleCtx, *mut RedisModuleString, *mut RedisModuleKey, *mut c_void);
    RedisModuleTimerProc(*mut RedisModuleCtx, *mut c_void);
    RedisModuleUserChangedFunc(u64, *mut c_void);

    // Of a data type.
    RedisModuleTypeLoadFunc(*mut RedisModuleIO, c_int) -> *mut c_void;
    RedisModuleTypeSaveFunc(*mut RedisModuleIO, *mut c_void);
    RedisModuleTypeAuxLoadFunc(*mut RedisModuleIO, c_int, c_int) -> c_int;
    RedisModuleTypeAuxSaveFunc(*mut RedisModuleIO, c_int);
    RedisModuleTypeRewriteFunc(*mut RedisModuleIO, *mut RedisModuleString, *mut c_void);
    RedisModuleTypeMemUsageFunc(*const c_void) -> usize;
    RedisModuleTypeMemUsageFunc2(*mut RedisModuleKeyOptCtx, *const c_void, usize) -> usize;
    RedisModuleTypeDigestFunc(*mut RedisModuleDigest, *mut c_void);
    RedisModuleTypeFreeFunc(*mut c_void);
    RedisModuleTypeFreeEffortFunc(*mut RedisModuleString, *const c_void) -> usize;
    RedisModuleTypeFreeEffortFunc2(*mut RedisModuleKeyOptCtx, *const c_void) -> usize;
    RedisModuleTypeUnlinkFunc(*mut RedisModuleString, *const c_void);
    RedisModuleTypeUnlinkFunc2(*mut RedisModuleKeyOptCtx, *const c_void);
    RedisModuleTypeCopyFunc(
        *mut RedisModuleString, *mut RedisModuleString, *const c_void) -> *mut c_void;
    RedisModuleTypeCopyFunc2(*mut RedisModuleKeyOptCtx, *const c_void) -> *mut c_void;
    RedisModuleTypeDefragFunc(
        *mut RedisModuleDefragCtx, *mut RedisModuleString, *mut *mut c_void) -> c_int;
}

/// The functions of a data type. All zero is a type that has none.
#[repr(C)]
pub struct RedisModuleTypeMethods {
    pub version: u64,
    pub rdb_load: RedisModuleTypeLoadFunc,
    pub rdb_save: RedisModuleTypeSaveFunc,
    pub aof_rewrite: RedisModuleTypeRewriteFunc,
    pub mem_usage: RedisModuleTypeMemUsageFunc,
    pub digest: RedisModuleTypeDigestFunc,
    pub free: RedisModuleTypeFreeFunc,
    pub aux_load: RedisModuleTypeAuxLoadFunc,
    pub aux_save: RedisModuleTypeAuxSaveFunc,
    pub aux_save_triggers: c_int,
    pub free_effort: RedisModuleTypeFreeEffortFunc,
    pub unlink: RedisModuleTypeUnlinkFunc,
    pub copy: RedisModuleTypeCopyFunc,
    pub defrag: RedisModuleTypeDefragFunc,
    pub mem_usage2: RedisModuleTypeMemUsageFunc2,
    pub free_effort2: RedisModuleTypeFreeEffortFunc2,
    pub unlink2: RedisModuleTypeUnlinkFunc2,
    pub copy2: RedisModuleTypeCopyFunc2,
    /// Read by a host only if `version` is 5 or higher: Redis 7.2 and later.
    pub aux_save2: RedisModuleTypeAuxSaveFunc,
}

/// An event of the server, by its number.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RedisModuleEvent {
    pub id: u64,
    pub dataver: u64,
}

/// What the host says of a client.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RedisModuleClientInfo {
    pub version: u64,
    pub flags: u64,
    pub id: u64,
    pub addr: [c_char; 46],
    pub port: u16,
    pub db: u16,
}

/// What the FLUSHDB event comes with.
#[repr(C)]
pub struct RedisModuleFlushInfo {
    pub version: u64,
    pub sync: i32,
    pub dbnum: i32,
}

/// What the CONFIG event comes with.
#[repr(C)]
pub struct RedisModuleConfigChange {
    pub version: u64,
    pub num_changes: u32,
    pub config_names: *mut *const c_char,
}

/// What the SWAPDB event comes with.
#[repr(C)]
pub struct RedisModuleSwapDbInfo {
    pub version: u64,
    pub dbnum_first: i32,
    pub dbnum_second: i32,
}

/// Slots from `start` to `end`, both included.
#[repr(C)]
pub struct RedisModuleSlotRange {
    pub start: u16,
    pub end: u16,
}

/// Ranges of slots: their number, and behind it the ranges.
#[repr(C)]
pub struct RedisModuleSlotRangeArray {
    pub num_ranges: i32,
    pub ranges: [RedisModuleSlotRange; 0],
}

/// What the CLUSTER_SLOT_MIGRATION event comes with.
#[repr(C)]
pub struct RedisModuleClusterSlotMigrationInfo {
    pub version: u64,
    pub source_node_id: [c_char; 41],
    pub destination_node_id: [c_char; 41],
    pub task_id: *const c_char,
    pub slots: *mut RedisModuleSlotRangeArray,
}

/// What the CLUSTER_SLOT_MIGRATION_TRIM event comes with.
#[repr(C)]
pub struct RedisModuleClusterSlotMigrationTrimInfo {
    pub version: u64,
    pub slots: *mut RedisModuleSlotRangeArray,
}

/// Tells the host how large the other structures of COMMAND DOCS are.
#[repr(C)]
pub struct RedisModuleCommandInfoVersion {
    pub version: c_int,
    pub sizeof_historyentry: usize,
    pub sizeof_keyspec: usize,
    pub sizeof_arg: usize,
}

/// What COMMAND DOCS tells of a command.
#[repr(C)]
pub struct RedisModuleCommandInfo {
    pub version: *const RedisModuleCommandInfoVersion,
    pub summary: *const c_char,
    pub complexity: *const c_char,
    pub since: *const c_char,
    pub history: *mut RedisModuleCommandHistoryEntry,
    pub tips: *const c_char,
    pub arity: c_int,
    pub key_specs: *mut RedisModuleCommandKeySpec,
    pub args: *mut RedisModuleCommandArg,
}

/// A change of a command.
#[repr(C)]
pub struct RedisModuleCommandHistoryEntry {
    pub since: *const c_char,
    pub changes: *const c_char,
}

/// An argument of a command. All zero ends a list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RedisModuleCommandArg {
    pub name: *const c_char,
    pub type_: c_uint,
    pub key_spec_index: c_int,
    pub token: *const c_char,
    pub summary: *const c_char,
    pub since: *const c_char,
    pub flags: c_int,
    pub deprecated_since: *const c_char,
    pub subargs: *mut RedisModuleCommandArg,
    /// Not read by Redis 7.0.
    pub display_text: *const c_char,
}

/// Where a command's keys are, and what it does to them. All zero ends a list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RedisModuleCommandKeySpec {
    pub notes: *const c_char,
    pub flags: u64,
    pub begin_search_type: c_uint,
    pub bs: BeginSearch,
    pub find_keys_type: c_uint,
    pub fk: FindKeys,
}

/// Where the search for keys begins, by `begin_search_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union BeginSearch {
    pub index: BeginSearchIndex,
    pub keyword: BeginSearchKeyword,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct BeginSearchIndex {
    pub pos: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct BeginSearchKeyword {
    pub keyword: *const c_char,
    pub startfrom: c_int,
}

/// Which arguments are keys from there on, by `find_keys_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union FindKeys {
    pub range: FindKeysRange,
    pub keynum: FindKeysKeynum,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct FindKeysRange {
    pub lastkey: c_int,
    pub keystep: c_int,
    pub limit: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct FindKeysKeynum {
    pub keynumidx: c_int,
    pub firstkey: c_int,
    pub keystep: c_int,
}
