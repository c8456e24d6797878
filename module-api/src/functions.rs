//! The functions of the module API that midi and its tests' modules call.
//!
//! The host fills in the pointers ([`crate::init`]). Each has the name that the host knows the
//! function by, so that the API's reference explains it.

use std::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulonglong, c_void};

use crate::types::*;

/// Declares a pointer to each function, and a function that visits them all: it calls `visit` with
/// each name, which ends with NUL, and the place of its pointer.
macro_rules! functions {
    ($each:ident: $($name:ident($($args:tt)*) $(-> $result:ty)?;)*) => {
        $(
            #[doc = concat!("The host's `", stringify!($name), "`; `None` if it has none.")]
            pub static mut $name: Option<unsafe extern "C" fn($($args)*) $(-> $result)?> = None;
        )*

        pub(crate) fn $each(visit: &mut dyn FnMut(&'static str, *mut *mut c_void)) {
            $(visit(concat!(stringify!($name), "\0"), (&raw mut $name).cast());)*
        }
    };
}

// Redis 7.0.6 has these. midi does not load without them.
functions! {
    each_required:
    RedisModule_ACLAddLogEntry(
        ctx: *mut RedisModuleCtx, user: *mut RedisModuleUser, object: *mut RedisModuleString,
        reason: c_uint
    );
    RedisModule_ACLCheckCommandPermissions(
        user: *mut RedisModuleUser, args: *mut *mut RedisModuleString, count: c_int
    ) -> c_int;
    RedisModule_ACLCheckKeyPermissions(
        user: *mut RedisModuleUser, key: *mut RedisModuleString, flags: c_int
    ) -> c_int;
    RedisModule_Alloc(bytes: usize) -> *mut c_void;
    RedisModule_AuthenticateClientWithUser(
        ctx: *mut RedisModuleCtx, user: *mut RedisModuleUser, callback: RedisModuleUserChangedFunc,
        data: *mut c_void, client_id: *mut u64
    ) -> c_int;
    RedisModule_AvoidReplicaTraffic() -> c_int;
    RedisModule_BlockClient(
        ctx: *mut RedisModuleCtx, reply_callback: RedisModuleCmdFunc,
        timeout_callback: RedisModuleCmdFunc,
        free_data: Option<unsafe extern "C" fn(*mut RedisModuleCtx, *mut c_void)>,
        timeout_ms: c_longlong
    ) -> *mut RedisModuleBlockedClient;
    RedisModule_BlockedClientMeasureTimeEnd(client: *mut RedisModuleBlockedClient) -> c_int;
    RedisModule_BlockedClientMeasureTimeStart(client: *mut RedisModuleBlockedClient) -> c_int;
    RedisModule_Call(
        ctx: *mut RedisModuleCtx, command: *const c_char, format: *const c_char, ...
    ) -> *mut RedisModuleCallReply;
    RedisModule_CallReplyArrayElement(
        reply: *mut RedisModuleCallReply, index: usize
    ) -> *mut RedisModuleCallReply;
    RedisModule_CallReplyInteger(reply: *mut RedisModuleCallReply) -> c_longlong;
    RedisModule_CallReplyLength(reply: *mut RedisModuleCallReply) -> usize;
    RedisModule_CallReplyProto(reply: *mut RedisModuleCallReply, len: *mut usize) -> *const c_char;
    RedisModule_CallReplyStringPtr(
        reply: *mut RedisModuleCallReply, len: *mut usize
    ) -> *const c_char;
    RedisModule_CallReplyType(reply: *mut RedisModuleCallReply) -> c_int;
    RedisModule_Calloc(count: usize, size: usize) -> *mut c_void;
    RedisModule_CloseKey(key: *mut RedisModuleKey);
    RedisModule_CommandFilterArgGet(
        filter: *mut RedisModuleCommandFilterCtx, pos: c_int
    ) -> *mut RedisModuleString;
    RedisModule_CommandFilterArgInsert(
        filter: *mut RedisModuleCommandFilterCtx, pos: c_int, arg: *mut RedisModuleString
    ) -> c_int;
    RedisModule_CommandFilterArgReplace(
        filter: *mut RedisModuleCommandFilterCtx, pos: c_int, arg: *mut RedisModuleString
    ) -> c_int;
    RedisModule_CommandFilterArgsCount(filter: *mut RedisModuleCommandFilterCtx) -> c_int;
    RedisModule_CreateCommand(
        ctx: *mut RedisModuleCtx, name: *const c_char, callback: RedisModuleCmdFunc,
        flags: *const c_char, first_key: c_int, last_key: c_int, key_step: c_int
    ) -> c_int;
    RedisModule_CreateDataType(
        ctx: *mut RedisModuleCtx, name: *const c_char, version: c_int,
        methods: *mut RedisModuleTypeMethods
    ) -> *mut RedisModuleType;
    RedisModule_CreateModuleUser(name: *const c_char) -> *mut RedisModuleUser;
    RedisModule_CreateString(
        ctx: *mut RedisModuleCtx, bytes: *const c_char, len: usize
    ) -> *mut RedisModuleString;
    RedisModule_CreateTimer(
        ctx: *mut RedisModuleCtx, period: c_longlong, callback: RedisModuleTimerProc,
        data: *mut c_void
    ) -> u64;
    RedisModule_DbSize(ctx: *mut RedisModuleCtx) -> c_ulonglong;
    RedisModule_DeauthenticateAndCloseClient(ctx: *mut RedisModuleCtx, client_id: u64) -> c_int;
    RedisModule_EventLoopAdd(
        fd: c_int, mask: c_int, callback: RedisModuleEventLoopFunc, data: *mut c_void
    ) -> c_int;
    RedisModule_EventLoopDel(fd: c_int, mask: c_int) -> c_int;
    RedisModule_Free(block: *mut c_void);
    RedisModule_FreeCallReply(reply: *mut RedisModuleCallReply);
    RedisModule_FreeModuleUser(user: *mut RedisModuleUser);
    RedisModule_FreeServerInfo(ctx: *mut RedisModuleCtx, data: *mut RedisModuleServerInfoData);
    RedisModule_FreeString(ctx: *mut RedisModuleCtx, string: *mut RedisModuleString);
    RedisModule_FreeThreadSafeContext(ctx: *mut RedisModuleCtx);
    RedisModule_GetAbsExpire(key: *mut RedisModuleKey) -> c_longlong;
    RedisModule_GetBlockedClientPrivateData(ctx: *mut RedisModuleCtx) -> *mut c_void;
    RedisModule_GetClientId(ctx: *mut RedisModuleCtx) -> c_ulonglong;
    RedisModule_GetClientInfoById(ci: *mut c_void, id: u64) -> c_int;
    RedisModule_GetClientNameById(ctx: *mut RedisModuleCtx, id: u64) -> *mut RedisModuleString;
    RedisModule_GetClientUserNameById(ctx: *mut RedisModuleCtx, id: u64) -> *mut RedisModuleString;
    RedisModule_GetCommand(
        ctx: *mut RedisModuleCtx, name: *const c_char
    ) -> *mut RedisModuleCommand;
    RedisModule_GetContextFlags(ctx: *mut RedisModuleCtx) -> c_int;
    RedisModule_GetCurrentUserName(ctx: *mut RedisModuleCtx) -> *mut RedisModuleString;
    RedisModule_GetDetachedThreadSafeContext(ctx: *mut RedisModuleCtx) -> *mut RedisModuleCtx;
    RedisModule_GetModuleUserACLString(user: *mut RedisModuleUser) -> *mut RedisModuleString;
    RedisModule_GetModuleUserFromUserName(name: *mut RedisModuleString) -> *mut RedisModuleUser;
    RedisModule_GetMyClusterID() -> *const c_char;
    RedisModule_GetNotifyKeyspaceEvents() -> c_int;
    RedisModule_GetSelectedDb(ctx: *mut RedisModuleCtx) -> c_int;
    RedisModule_GetServerInfo(
        ctx: *mut RedisModuleCtx, section: *const c_char
    ) -> *mut RedisModuleServerInfoData;
    RedisModule_GetThreadSafeContext(client: *mut RedisModuleBlockedClient) -> *mut RedisModuleCtx;
    RedisModule_HoldString(
        ctx: *mut RedisModuleCtx, string: *mut RedisModuleString
    ) -> *mut RedisModuleString;
    RedisModule_InfoAddFieldCString(
        ctx: *mut RedisModuleInfoCtx, field: *const c_char, value: *const c_char
    ) -> c_int;
    RedisModule_InfoAddSection(ctx: *mut RedisModuleInfoCtx, name: *const c_char) -> c_int;
    RedisModule_IsIOError(io: *mut RedisModuleIO) -> c_int;
    RedisModule_IsKeysPositionRequest(ctx: *mut RedisModuleCtx) -> c_int;
    RedisModule_KeyAtPosWithFlags(ctx: *mut RedisModuleCtx, pos: c_int, flags: c_int);
    RedisModule_KeyType(key: *mut RedisModuleKey) -> c_int;
    RedisModule_LatencyAddSample(event: *const c_char, latency: c_longlong);
    RedisModule_LoadConfigs(ctx: *mut RedisModuleCtx) -> c_int;
    RedisModule_LoadStringBuffer(io: *mut RedisModuleIO, len: *mut usize) -> *mut c_char;
    RedisModule_Log(ctx: *mut RedisModuleCtx, level: *const c_char, format: *const c_char, ...);
    RedisModule_NotifyKeyspaceEvent(
        ctx: *mut RedisModuleCtx, kind: c_int, event: *const c_char, key: *mut RedisModuleString
    ) -> c_int;
    RedisModule_OpenKey(
        ctx: *mut RedisModuleCtx, key: *mut RedisModuleString, mode: c_int
    ) -> *mut RedisModuleKey;
    RedisModule_Realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    RedisModule_RegisterBoolConfig(
        ctx: *mut RedisModuleCtx, name: *const c_char, default: c_int, flags: c_uint,
        get: RedisModuleConfigGetBoolFunc, set: RedisModuleConfigSetBoolFunc,
        apply: RedisModuleConfigApplyFunc, data: *mut c_void
    ) -> c_int;
    RedisModule_RegisterCommandFilter(
        ctx: *mut RedisModuleCtx, callback: RedisModuleCommandFilterFunc, flags: c_int
    ) -> *mut RedisModuleCommandFilter;
    RedisModule_RegisterEnumConfig(
        ctx: *mut RedisModuleCtx, name: *const c_char, default: c_int, flags: c_uint,
        names: *mut *const c_char, values: *const c_int, count: c_int,
        get: RedisModuleConfigGetEnumFunc, set: RedisModuleConfigSetEnumFunc,
        apply: RedisModuleConfigApplyFunc, data: *mut c_void
    ) -> c_int;
    RedisModule_RegisterInfoFunc(ctx: *mut RedisModuleCtx, callback: RedisModuleInfoFunc) -> c_int;
    RedisModule_RegisterNumericConfig(
        ctx: *mut RedisModuleCtx, name: *const c_char, default: c_longlong, flags: c_uint,
        min: c_longlong, max: c_longlong, get: RedisModuleConfigGetNumericFunc,
        set: RedisModuleConfigSetNumericFunc, apply: RedisModuleConfigApplyFunc,
        data: *mut c_void
    ) -> c_int;
    RedisModule_RegisterStringConfig(
        ctx: *mut RedisModuleCtx, name: *const c_char, default: *const c_char, flags: c_uint,
        get: RedisModuleConfigGetStringFunc, set: RedisModuleConfigSetStringFunc,
        apply: RedisModuleConfigApplyFunc, data: *mut c_void
    ) -> c_int;
    RedisModule_Replicate(
        ctx: *mut RedisModuleCtx, command: *const c_char, format: *const c_char, ...
    ) -> c_int;
    RedisModule_ReplicateVerbatim(ctx: *mut RedisModuleCtx) -> c_int;
    RedisModule_ReplyWithArray(ctx: *mut RedisModuleCtx, len: c_long) -> c_int;
    RedisModule_ReplyWithCallReply(
        ctx: *mut RedisModuleCtx, reply: *mut RedisModuleCallReply
    ) -> c_int;
    RedisModule_ReplyWithDouble(ctx: *mut RedisModuleCtx, number: f64) -> c_int;
    RedisModule_ReplyWithError(ctx: *mut RedisModuleCtx, error: *const c_char) -> c_int;
    RedisModule_ReplyWithLongLong(ctx: *mut RedisModuleCtx, number: c_longlong) -> c_int;
    RedisModule_ReplyWithMap(ctx: *mut RedisModuleCtx, len: c_long) -> c_int;
    RedisModule_ReplyWithNull(ctx: *mut RedisModuleCtx) -> c_int;
    RedisModule_ReplyWithSimpleString(ctx: *mut RedisModuleCtx, text: *const c_char) -> c_int;
    RedisModule_ReplyWithStringBuffer(
        ctx: *mut RedisModuleCtx, text: *const c_char, len: usize
    ) -> c_int;
    RedisModule_ReplyWithVerbatimStringType(
        ctx: *mut RedisModuleCtx, text: *const c_char, len: usize, ext: *const c_char
    ) -> c_int;
    RedisModule_SaveStringBuffer(io: *mut RedisModuleIO, string: *const c_char, len: usize);
    RedisModule_Scan(
        ctx: *mut RedisModuleCtx, cursor: *mut RedisModuleScanCursor, callback: RedisModuleScanCB,
        data: *mut c_void
    ) -> c_int;
    RedisModule_ScanCursorCreate() -> *mut RedisModuleScanCursor;
    RedisModule_ScanCursorDestroy(cursor: *mut RedisModuleScanCursor);
    RedisModule_SelectDb(ctx: *mut RedisModuleCtx, db: c_int) -> c_int;
    RedisModule_ServerInfoGetFieldC(
        data: *mut RedisModuleServerInfoData, field: *const c_char
    ) -> *const c_char;
    RedisModule_ServerInfoGetFieldUnsigned(
        data: *mut RedisModuleServerInfoData, field: *const c_char, error: *mut c_int
    ) -> c_ulonglong;
    RedisModule_SetCommandInfo(
        command: *mut RedisModuleCommand, info: *const RedisModuleCommandInfo
    ) -> c_int;
    RedisModule_SetContextUser(ctx: *mut RedisModuleCtx, user: *const RedisModuleUser);
    RedisModule_SetDisconnectCallback(
        client: *mut RedisModuleBlockedClient, callback: RedisModuleDisconnectFunc
    );
    RedisModule_SetModuleOptions(ctx: *mut RedisModuleCtx, options: c_int);
    RedisModule_SetModuleUserACL(user: *mut RedisModuleUser, acl: *const c_char) -> c_int;
    RedisModule_SignalModifiedKey(
        ctx: *mut RedisModuleCtx, key: *mut RedisModuleString
    ) -> c_int;
    RedisModule_StringDMA(key: *mut RedisModuleKey, len: *mut usize, mode: c_int) -> *mut c_char;
    RedisModule_StringPtrLen(string: *const RedisModuleString, len: *mut usize) -> *const c_char;
    RedisModule_SubscribeToServerEvent(
        ctx: *mut RedisModuleCtx, event: RedisModuleEvent, callback: RedisModuleEventCallback
    ) -> c_int;
    RedisModule_ThreadSafeContextTryLock(ctx: *mut RedisModuleCtx) -> c_int;
    RedisModule_ThreadSafeContextUnlock(ctx: *mut RedisModuleCtx);
    RedisModule_TrimStringAllocation(string: *mut RedisModuleString);
    RedisModule_UnblockClient(client: *mut RedisModuleBlockedClient, data: *mut c_void) -> c_int;
    RedisModule_ValueLength(key: *mut RedisModuleKey) -> usize;
}

// Those that only newer hosts have, that midi can do without, or that only the tests' modules call.
functions! {
    each_other:
    RedisModule_AddACLCategory(ctx: *mut RedisModuleCtx, name: *const c_char) -> c_int;
    RedisModule_CallReplyPromiseSetUnblockHandler(
        reply: *mut RedisModuleCallReply, callback: RedisModuleOnUnblocked,
        data: *mut c_void
    );
    RedisModule_ClusterPropagateForSlotMigration(
        ctx: *mut RedisModuleCtx, command: *const c_char, format: *const c_char, ...
    ) -> c_int;
    RedisModule_CommandFilterGetClientId(filter: *mut RedisModuleCommandFilterCtx) -> c_ulonglong;
    RedisModule_ConfigGet(
        ctx: *mut RedisModuleCtx, name: *const c_char, result: *mut *mut RedisModuleString
    ) -> c_int;
    RedisModule_ConfigSet(
        ctx: *mut RedisModuleCtx, name: *const c_char, value: *mut RedisModuleString,
        error: *mut *mut RedisModuleString
    ) -> c_int;
    RedisModule_ExitFromChild(code: c_int) -> c_int;
    RedisModule_Fork(callback: RedisModuleForkDoneHandler, data: *mut c_void) -> c_int;
    RedisModule_SetCommandACLCategories(
        command: *mut RedisModuleCommand, categories: *const c_char
    ) -> c_int;
    RedisModule_StringToLongLong(
        string: *const RedisModuleString, number: *mut c_longlong
    ) -> c_int;
    RedisModule_ThreadSafeContextLock(ctx: *mut RedisModuleCtx);
    RedisModule_WrongArity(ctx: *mut RedisModuleCtx) -> c_int;
}
