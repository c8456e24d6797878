//! The settings as registered with the host: CONFIG GET, SET and REWRITE.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use midi_module_api as raw;

use super::super::api::{Ctx, Level, RawCtx, RawString, api, c_text, leaked, log_anywhere};
use super::super::descriptors;
use super::super::instance::if_begun;
use super::super::string::{HostString, OwnString};
use super::table::{
    FIXED, MAX_CLIENTS, Mutability, NO_YES, NUMBERS, Number, SWITCHES, Switch, TEXTS, Text,
};
use super::tls;

/// Registers all settings with the host, with their current values as defaults. False if it refuses
/// one.
pub fn register(ctx: Ctx<'_>) -> bool {
    NUMBERS.iter().all(|number| register_number(ctx, number))
        && SWITCHES.iter().all(|switch| register_switch(ctx, switch))
        && TEXTS.iter().all(|text| register_text(ctx, text))
}

/// Lets the host set what its configuration file names. False if a value there is not valid.
pub fn read_file(ctx: Ctx<'_>) -> bool {
    // SAFETY: in OnLoad.
    unsafe { api!(RedisModule_LoadConfigs)(ctx.raw()) == raw::REDISMODULE_OK }
}

fn register_number(ctx: Ctx<'_>, number: &'static Number) -> bool {
    let private = ptr::from_ref(number).cast_mut().cast();
    // SAFETY: in OnLoad; name and private data live forever.
    let result = unsafe {
        api!(RedisModule_RegisterNumericConfig)(
            ctx.raw(),
            leaked(number.name),
            number.value.load(Ordering::Relaxed),
            number.flags as c_uint,
            number.min,
            number.max,
            Some(get_number),
            Some(set_number),
            None,
            private,
        )
    };
    result == raw::REDISMODULE_OK
}

fn register_switch(ctx: Ctx<'_>, switch: &'static Switch) -> bool {
    let private = ptr::from_ref(switch).cast_mut().cast();
    let (name, flags) = (leaked(switch.name), switch.flags as c_uint);
    let default = c_int::from(switch.value.load(Ordering::Relaxed));
    let (get, set) = (Some(get_switch as _), Some(set_switch as _));
    // SAFETY: as above; the host copies the words and values.
    let result = unsafe {
        if switch.words == NO_YES {
            let register = api!(RedisModule_RegisterBoolConfig);
            register(ctx.raw(), name, default, flags, get, set, None, private)
        } else {
            let (mut words, values) = (switch.words.map(leaked), [0, 1]);
            let (words, values, count) = (words.as_mut_ptr(), values.as_ptr(), 2);
            let register = api!(RedisModule_RegisterEnumConfig);
            register(ctx.raw(), name, default, flags, words, values, count, get, set, None, private)
        }
    };
    result == raw::REDISMODULE_OK
}

fn register_text(ctx: Ctx<'_>, text: &'static Text) -> bool {
    let private = ptr::from_ref(text).cast_mut().cast();
    let default = c_text(&text.value.lock());
    let flags = if text.mutability == Mutability::Never { FIXED } else { 0 };
    // SAFETY: as above; the host copies the default.
    let result = unsafe {
        api!(RedisModule_RegisterStringConfig)(
            ctx.raw(),
            leaked(text.name),
            default.as_ptr(),
            flags as c_uint,
            Some(get_text),
            Some(set_text),
            (text.mutability == Mutability::Tls).then_some(apply_tls),
            private,
        )
    };
    result == raw::REDISMODULE_OK
}

unsafe extern "C" fn get_number(_: *const c_char, private: *mut c_void) -> c_longlong {
    // SAFETY: registered with one of NUMBERS.
    unsafe { &*private.cast::<Number>() }.value.load(Ordering::Relaxed)
}

unsafe extern "C" fn set_number(
    _: *const c_char,
    value: c_longlong,
    private: *mut c_void,
    error: *mut *mut RawString,
) -> c_int {
    // SAFETY: registered with one of NUMBERS.
    let number = unsafe { &*private.cast::<Number>() };
    if number.name == MAX_CLIENTS
        && let Err(reason) = descriptors::make_room(value as usize)
    {
        // SAFETY: the host's own place for an error, which it frees.
        unsafe { *error = OwnString::new(reason.as_bytes()).into_raw() };
        return raw::REDISMODULE_ERR;
    }
    number.value.store(value, Ordering::Relaxed);
    if let (Some(target), Some(instance)) = (number.live, if_begun()) {
        target(instance.engine.settings()).store(value as usize, Ordering::Relaxed);
    }
    raw::REDISMODULE_OK
}

unsafe extern "C" fn get_switch(_: *const c_char, private: *mut c_void) -> c_int {
    // SAFETY: registered with one of SWITCHES.
    c_int::from(unsafe { &*private.cast::<Switch>() }.value.load(Ordering::Relaxed))
}

unsafe extern "C" fn set_switch(
    _: *const c_char,
    value: c_int,
    private: *mut c_void,
    _: *mut *mut RawString,
) -> c_int {
    // SAFETY: registered with one of SWITCHES.
    let switch = unsafe { &*private.cast::<Switch>() };
    switch.value.store(value != 0, Ordering::Relaxed);
    let Some(instance) = if_begun() else { return raw::REDISMODULE_OK };
    if let Some(target) = switch.live {
        target(instance.engine.settings()).store(value != 0, Ordering::Relaxed);
    }
    if let Some(text) = (switch.notice)(&instance.engine).filter(|_| value != 0) {
        log_anywhere(Level::Notice, text);
    }
    raw::REDISMODULE_OK
}

/// The host copies the string; it remains ours.
unsafe extern "C" fn get_text(_: *const c_char, private: *mut c_void) -> *mut RawString {
    // SAFETY: registered with one of TEXTS; each string is made here, and freed once, here.
    unsafe {
        let text = &*private.cast::<Text>();
        let now = OwnString::new(text.value.lock().as_bytes()).into_raw();
        drop(OwnString::of(text.told.swap(now, Ordering::Relaxed)));
        now
    }
}

unsafe extern "C" fn set_text(
    _: *const c_char,
    value: *mut RawString,
    private: *mut c_void,
    error: *mut *mut RawString,
) -> c_int {
    // SAFETY: registered with one of TEXTS; the host's string lives during the call.
    let (text, value) = unsafe { (&*private.cast::<Text>(), HostString::new(value)) };
    let value = String::from_utf8_lossy(value.map_or(&[], HostString::bytes));
    if !(text.valid)(&value) {
        // SAFETY: the host's own place for an error, which it frees.
        unsafe { *error = OwnString::new(text.error.as_bytes()).into_raw() };
        return raw::REDISMODULE_ERR;
    }
    *text.value.lock() = value.into_owned();
    raw::REDISMODULE_OK
}

/// A CONFIG SET has set some of TLS's settings: new connections begin with all of them.
unsafe extern "C" fn apply_tls(
    ctx: *mut RawCtx,
    _: *mut c_void,
    error: *mut *mut RawString,
) -> c_int {
    // SAFETY: the host's context, on the main thread.
    let ctx = unsafe { Ctx::new(ctx) };
    // This context has no client, which calls of the host's commands need.
    let refreshed = if_begun().map_or(Ok(()), |instance| tls::refresh(instance.ctx(ctx.locked())));
    match refreshed {
        Ok(()) => raw::REDISMODULE_OK,
        Err(why) => {
            // SAFETY: the host's own place for an error, which it frees.
            unsafe { *error = OwnString::new(why.as_bytes()).into_raw() };
            raw::REDISMODULE_ERR
        }
    }
}
