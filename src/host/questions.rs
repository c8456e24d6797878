//! Questions of the engine and the ports to the host.

use std::ffi::CStr;
use std::sync::Arc;

use midi_module_api as raw;
use parking_lot::Mutex;

use super::acl::log_refusal;
use super::api::{Answer, Ctx};
use super::instance::instance;
use super::persistence::hand_over::confirmed;
use super::users::{self, USERS};
use super::{PREFIX, info, modules, own_commands, publish, scripts};
use crate::command::{DoorCommand, Error, HostCommand, Reply, Transcript};
use crate::engine::{
    Awaited, Call, Host, JobOwner, JobReply, Locked, PasswordSum, Refusal, ReplicaWait, RunScript,
    ScriptCaller, User,
};

/// Answers for the host.
pub struct TheHost {
    version: String,
    /// The last text of INFO: making it takes the main thread some 100 µs, and many clients may ask
    /// at once.
    cached: Mutex<Option<CachedInfo>>,
}

/// A text of INFO, with its sections and the batch of messages that it was made for.
struct CachedInfo {
    batch: u64,
    sections: Vec<Vec<u8>>,
    text: Arc<[u8]>,
}

impl TheHost {
    /// Asks for what does not change. Valkey reports which Redis it is compatible with.
    pub fn new(ctx: Ctx<'_>) -> Self {
        let version = ctx.info_text(c"server", c"redis_version").unwrap_or_default();
        TheHost {
            version: String::from_utf8_lossy(&version).into_owned(),
            cached: Mutex::default(),
        }
    }
}

impl Host for TheHost {
    fn version(&self) -> &str {
        &self.version
    }

    fn authenticate(&self, locked: Locked<'_>, user: &[u8], password: &PasswordSum) -> bool {
        users::authenticate(locked, user, password)
    }

    fn is_on(&self, locked: Locked<'_>, user: &[u8]) -> bool {
        users::is_on(locked, user)
    }

    fn user(&self, locked: Locked<'_>, name: &[u8]) -> Option<User> {
        USERS.look(locked, name)
    }

    fn refused(&self, locked: Locked<'_>, refusal: &Refusal) {
        log_refusal(instance().ctx(locked), refusal);
    }

    fn reply_to(&self, locked: Locked<'_>, command: &CStr, args: &[&[u8]]) -> Transcript {
        let mut transcript = Transcript::default();
        match instance().ctx(locked).call(command, args) {
            // LATENCY DOCTOR and LATENCY GRAPH: for people.
            Answer::Text(text) => transcript.verbatim(&text),
            answer => modules::say(answer, &mut transcript),
        }
        transcript
    }

    fn refuses_wait(&self, locked: Locked<'_>, awaited: Option<Awaited>) -> Option<Vec<u8>> {
        let ctx = instance().ctx(locked);
        if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_SLAVE == 0 {
            return None;
        }
        if matches!(awaited, Some(Awaited::Aof(_))) {
            return Some(Error::WaitAofOnReplica.bare_text());
        }
        // Hosts differ in the text. This one never waits.
        let text = ctx.call(c"WAIT", &[b"0", b"0"]).error();
        Some(text.unwrap_or_else(|| Error::WaitOnReplica.bare_text()))
    }

    fn wait_for_replicas(&self, locked: Locked<'_>, wait: ReplicaWait) {
        confirmed::wait(locked, wait);
    }

    fn info(&self, locked: Locked<'_>, sections: &[&[u8]]) -> Arc<[u8]> {
        // The text for one message of a batch is recent enough for the others.
        let batch = instance().messages.waiting.lock().batch;
        let mut cached = self.cached.lock();
        if let Some(cached) =
            cached.as_ref().filter(|cached| cached.batch == batch && cached.sections == sections)
        {
            return Arc::clone(&cached.text);
        }
        let text: Arc<[u8]> = info_text(locked, sections).into();
        let sections = sections.iter().map(|section| section.to_vec()).collect();
        *cached = Some(CachedInfo { batch, sections, text: Arc::clone(&text) });
        text
    }

    fn run_door_command(
        &self,
        locked: Locked<'_>,
        call: &Call<'_>,
        which: DoorCommand,
        user: &[u8],
        owner: JobOwner,
        reply: Box<dyn JobReply>,
    ) {
        own_commands::run_for_port(locked, call, which, user, owner, reply);
    }

    fn run_scripts(
        &self,
        locked: Locked<'_>,
        caller: &ScriptCaller<'_>,
        work: &mut dyn FnMut(RunScript<'_>),
    ) {
        scripts::run_all(locked, caller, work);
    }

    fn pubsub(&self, locked: Locked<'_>, words: &[&[u8]]) -> Vec<Vec<u8>> {
        publish::ask(locked, words)
    }

    fn commands(&self, locked: Locked<'_>) -> Vec<(Vec<u8>, HostCommand)> {
        let mut all: Vec<_> =
            listed(locked, &[]).map(|name| (name, HostCommand::OfServer)).collect();
        for category in CATEGORIES_OF_KEYS {
            let of_keys = listed(locked, &[b"FILTERBY", b"ACLCAT", category]);
            // The container of such a subcommand is about keys, too.
            let names = of_keys.flat_map(|name| {
                let container =
                    name.split(|&byte| byte == b'|').next().unwrap_or_default().to_vec();
                [container, name]
            });
            all.extend(names.map(|name| (name, HostCommand::OfKeys)));
        }
        all
    }

    fn config_get(&self, locked: Locked<'_>, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let words: Vec<&[u8]> = [&b"GET"[..]].into_iter().chain(patterns.iter().copied()).collect();
        let mut found = instance()
            .ctx(locked)
            .call(c"CONFIG", &words)
            .list()
            .into_iter()
            .filter_map(Answer::text);
        std::iter::from_fn(|| Some((found.next()?, found.next()?))).collect()
    }
}

/// ACL categories of commands about keys. Scripts are among them, because the commands that they
/// call are the host's.
const CATEGORIES_OF_KEYS: [&[u8]; 4] = [b"keyspace", b"read", b"write", b"scripting"];

/// The names that COMMAND LIST returns with this filter, except midi's.
fn listed(locked: Locked<'_>, filter: &[&[u8]]) -> impl Iterator<Item = Vec<u8>> + use<> {
    let words = [&[&b"LIST"[..]], filter].concat();
    let names =
        instance().ctx(locked).call(c"COMMAND", &words).list().into_iter().filter_map(Answer::text);
    names.filter(|name| !name.starts_with(PREFIX.as_bytes()))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// INFO with these sections, midi's included.
fn info_text(locked: Locked<'_>, sections: &[&[u8]]) -> Vec<u8> {
    let mut text = instance().ctx(locked).call(c"INFO", sections).text().unwrap_or_default();
    let general =
        |word: &&[u8]| [&b"default"[..], b"all"].iter().any(|it| word.eq_ignore_ascii_case(it));
    // The host leaves out a module's sections unless they are named, or everything is asked for.
    let left_out = sections.is_empty() || sections.iter().any(general);
    if left_out && !contains(&text, info::HEAD.as_bytes()) {
        if !text.is_empty() {
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(info::text(&instance().engine, &[]).as_bytes());
    }
    text
}
