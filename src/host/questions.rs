//! The host, as the engine and the ports ask it.

use super::api::{Answer, Ctx};
use super::door::door;
use super::users;
use crate::shard::{Host, Refusal, User};

/// Answers in the host's name.
pub struct TheHost {
    version: String,
}

impl TheHost {
    /// Asks what does not change. Valkey tells which Redis it is like.
    pub fn new(ctx: Ctx) -> Self {
        let version = ctx.info_text(c"server", c"redis_version").unwrap_or_default();
        TheHost { version: String::from_utf8_lossy(&version).into_owned() }
    }
}

impl Host for TheHost {
    fn version(&self) -> &str {
        &self.version
    }

    fn authenticate(&self, user: &[u8], password: &[u8]) -> bool {
        users::authenticate(door().ctx(), user, password)
    }

    fn user(&self, name: &[u8]) -> Option<User> {
        users::look(door().ctx(), name)
    }

    fn refused(&self, refusal: &Refusal) {
        users::refused(door().ctx(), refusal);
    }

    fn info(&self, sections: &[&[u8]]) -> Vec<u8> {
        door().ctx().call(c"INFO", sections).text().unwrap_or_default()
    }

    fn commands(&self) -> Vec<Vec<u8>> {
        let ctx = door().ctx();
        ctx.call(c"COMMAND", &[b"LIST"]).list().into_iter().filter_map(Answer::text).collect()
    }

    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let words: Vec<&[u8]> = [&b"GET"[..]].into_iter().chain(patterns.iter().copied()).collect();
        let mut found = door().ctx().call(c"CONFIG", &words).list().into_iter().filter_map(Answer::text);
        std::iter::from_fn(|| Some((found.next()?, found.next()?))).collect()
    }
}
