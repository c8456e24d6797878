//! SLOWLOG and LATENCY, and what the host knows for them: its settings and its clients.

use midi_module_api as raw;

use super::api::{Ctx, api};
use super::instance::instance;
use super::string::OwnString;
use crate::command::{Args, Error, Reply, SlowLogQuestion, slow_log_help};
use crate::engine::{CalledFrom, Engine, Locked};
use crate::limits::{SLOW_CALLS_DEFAULT, SLOWER_THAN_DEFAULT};

/// Reads the host's settings. At load, and when a setting has changed. Redis's defaults if the host
/// does not report them.
pub fn look(ctx: Ctx<'_>) {
    let slower_than = ctx.config_number(c"slowlog-log-slower-than").unwrap_or(SLOWER_THAN_DEFAULT);
    let most = ctx.config_number(c"slowlog-max-len");
    let most = most.and_then(|most| most.try_into().ok()).unwrap_or(SLOW_CALLS_DEFAULT);
    let slow_log = &instance().engine.slow_log;
    slow_log.set(slower_than, most);
    let threshold = ctx.config_number(c"latency-monitor-threshold").unwrap_or(0);
    slow_log.latency.set(threshold.try_into().unwrap_or(0));
}

/// Hands the slowest command of the last tick to the host's LATENCY.
pub fn on_cron() {
    if let Some(millis) = instance().engine.slow_log.latency.take_longest() {
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        // SAFETY: on the main thread, which copies the name.
        unsafe { api!(RedisModule_LatencyAddSample)(c"midi-command".as_ptr(), millis) };
    }
}

/// A client of the host, as its own slow log names it.
pub fn called_from(locked: Locked<'_>, client: u64) -> CalledFrom {
    let ctx = instance().ctx(locked);
    // SAFETY: on the main thread; the string, if the host makes one, is ours.
    let name = unsafe { OwnString::of(api!(RedisModule_GetClientNameById)(ctx.raw(), client)) };
    let name = name.map(|name| name.bytes().to_vec()).unwrap_or_default();
    CalledFrom { address: address_of(locked, client).unwrap_or_default(), name }
}

/// The address of a client, as CLIENT LIST has it; `None` if it is gone.
fn address_of(_: Locked<'_>, client: u64) -> Option<String> {
    // SAFETY: a structure of numbers and bytes, whose first field names its version to the host.
    let info = unsafe {
        let mut info: raw::RedisModuleClientInfo = std::mem::zeroed();
        info.version = raw::REDISMODULE_CLIENTINFO_VERSION;
        let found = api!(RedisModule_GetClientInfoById)((&raw mut info).cast(), client);
        (found == raw::REDISMODULE_OK).then_some(info)
    }?;
    let bytes: Vec<u8> = info.addr.iter().map(|&it| it as u8).take_while(|&it| it != 0).collect();
    let (host, port) = (String::from_utf8_lossy(&bytes), info.port);
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// SLOWLOG.
///
/// # Errors
/// Redis's about its arguments.
pub fn slow_log(engine: &Engine, args: &Args<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    match SlowLogQuestion::of(args)? {
        SlowLogQuestion::Get(count) => say_newest(engine, count, reply),
        SlowLogQuestion::Len => reply.integer(engine.slow_log.len() as i64),
        SlowLogQuestion::Reset => {
            engine.slow_log.reset();
            reply.ok();
        }
        SlowLogQuestion::Help => slow_log_help(args, reply),
    }
    Ok(())
}

fn say_newest(engine: &Engine, count: usize, reply: &mut dyn Reply) {
    let calls = engine.slow_log.newest(count);
    reply.array(calls.len());
    for call in calls {
        reply.array(6);
        reply.integer(call.id);
        reply.integer(call.at);
        reply.integer(call.micros);
        reply.array(call.words.len());
        call.words.iter().for_each(|word| reply.bulk(word));
        reply.bulk(call.from.address.as_bytes());
        reply.bulk(&call.from.name);
    }
}
