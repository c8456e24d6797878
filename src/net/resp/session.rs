//! The session of a connection that speaks RESP: its version, what it runs, its transaction.
//!
//! A transaction begins with MULTI or WATCH, and ends with EXEC, DISCARD or RESET; see
//! `transaction.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pending_scripts::PendingScripts;
use super::subscribed::SubscribedNames;
use super::transaction::{ExecReplies, Transaction};
use super::{RequestParser, RespReply};
use crate::engine::{Engine, Gates};
use crate::net::access::{SessionAccess, UserState};
use crate::net::client::Client;
use crate::net::flow::Flow;
use crate::net::transport::Output;

/// The session of a connection that speaks RESP. What sessions of all protocols have comes first,
/// as in each of them: so it is found without a branch.
#[repr(C)]
pub struct RespSession {
    /// What it waits for.
    pub flow: Flow,
    /// Its user and its database.
    pub access: SessionAccess,
    /// Parses its input into commands.
    pub parser: RequestParser,
    /// The transaction that MULTI or WATCH has begun.
    pub(super) transaction: Option<Box<Transaction>>,
    /// The replies that EXEC still owes.
    pub(super) exec_replies: Option<Box<ExecReplies>>,
    /// What it subscribes to, if it does.
    pub subscribed: Option<Box<SubscribedNames>>,
    /// Scripts that are about to go to the main thread.
    pub(super) scripts: PendingScripts,
    /// RESP3 is used.
    pub resp3: bool,
    /// Whether commands are answered.
    pub(super) replies: Replies,
    /// It imports keys: CLIENT IMPORT-SOURCE.
    import_source: bool,
    no_touch: bool,
    /// Between MULTI and EXEC.
    pub(super) in_multi: bool,
}

/// Whether a client wants replies: CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// It does.
    Wanted,
    /// It does not.
    Unwanted,
    /// Not for the next command.
    SkipNext,
    /// Not for the command that runs.
    Skipping,
}

impl RespSession {
    /// The session of a new connection.
    pub fn new(engine: &Engine, client: Arc<Client>) -> Self {
        RespSession {
            access: SessionAccess::new(engine, &client),
            flow: Flow::new(client),
            parser: RequestParser::default(),
            transaction: None,
            exec_replies: None,
            subscribed: None,
            scripts: PendingScripts::default(),
            resp3: false,
            replies: Replies::Wanted,
            import_source: false,
            no_touch: false,
            in_multi: false,
        }
    }

    /// Whether its next command may run: there may be one, and all earlier replies are written.
    #[inline]
    pub fn may_run(&self) -> bool {
        self.flow.may_run() && !self.owes_replies()
    }

    /// Whether EXEC still owes replies.
    #[inline]
    pub fn owes_replies(&self) -> bool {
        self.exec_replies.is_some()
    }

    /// Resets everything to the state of a new connection: RESET.
    pub(super) fn reset(&mut self, engine: &Engine) {
        self.resp3 = false;
        // A reply that CLIENT REPLY SKIP suppresses stays suppressed, even if it is the one to
        // RESET.
        if self.replies != Replies::Skipping {
            self.replies = Replies::Wanted;
        }
        self.leave_transaction();
        self.set_import_source(false);
        self.set_no_touch(false);
        self.flow.client.condition.no_evict.store(false, Ordering::Relaxed);
        self.select(0);
        self.flow.client.names.lock().name.clear();
        self.access.be_nobody(engine, &self.flow.client);
    }

    pub(super) fn select(&mut self, db: u32) {
        self.access.select(db, &self.flow.client);
    }

    /// Whether its commands may run together with others.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.access.plain && self.replies == Replies::Wanted && !self.in_multi && !self.is_special()
    }

    /// Whether commands run otherwise for it than for others.
    #[inline]
    fn is_special(&self) -> bool {
        self.import_source || self.no_touch || self.only_hears()
    }

    /// Whether only commands about subscriptions are allowed: as RESP2 has no place for messages
    /// among replies.
    #[inline]
    pub fn only_hears(&self) -> bool {
        self.subscribed.is_some() && !self.resp3
    }

    /// CLIENT NO-TOUCH.
    pub fn set_no_touch(&mut self, is_on: bool) {
        self.no_touch = is_on;
        self.flow.client.condition.no_touch.store(is_on, Ordering::Relaxed);
    }

    /// Whether its commands are no use of their keys.
    #[inline]
    pub fn is_silent(&self) -> bool {
        self.no_touch
    }

    /// CLIENT IMPORT-SOURCE.
    pub fn set_import_source(&mut self, is_one: bool) {
        self.import_source = is_one;
        self.flow.client.condition.import_source.store(is_one, Ordering::Relaxed);
    }

    /// Whether it sees keys whose expiry has passed, because it imports keys.
    #[inline]
    pub fn sees_passed(&self, engine: &Engine) -> bool {
        self.import_source && engine.gates().has(Gates::IMPORTING)
    }

    /// CLIENT REPLY.
    pub fn set_replies(&mut self, replies: Replies) {
        self.replies = replies;
    }

    /// Whether it wants replies to the commands that follow.
    pub fn wants_replies(&self) -> bool {
        !matches!(self.replies, Replies::Unwanted | Replies::SkipNext)
    }

    /// A command begins that does not run together with others.
    pub fn begin_command(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skipping,
            Replies::Skipping => Replies::Wanted,
            same => same,
        };
    }

    /// That command has not run, and will begin again later.
    pub fn put_off_command(&mut self) {
        if self.replies == Replies::Skipping {
            self.replies = Replies::SkipNext;
        }
    }

    /// A reply at the end of `output`.
    #[inline]
    pub fn reply<'o>(&self, output: &'o mut Output) -> RespReply<'o> {
        RespReply::new(output, self.resp3).up_to(self.flow.most_output)
    }

    /// Looks the user up again if the list of users has changed.
    pub fn refresh(&mut self, engine: &Engine) -> UserState {
        if self.access.is_current(engine) {
            return UserState::Good;
        }
        let state = self.access.refresh(engine);
        match (&self.access.user, &self.subscribed) {
            // As in Redis, a subscriber whose rules no longer allow what it has is closed.
            (Some(user), Some(names)) if !names.are_allowed(user) => UserState::Gone,
            _ => state,
        }
    }

    /// The database in which the next command will run: between MULTI and EXEC, that of the latest
    /// SELECT that is queued.
    pub(super) fn next_db(&self) -> u32 {
        let queued = self.transaction.as_ref().filter(|_| self.in_multi);
        queued.and_then(|transaction| transaction.db).unwrap_or(self.access.db)
    }

    /// A command was refused, so EXEC will be refused too.
    pub(super) fn spoil(&mut self) {
        if let Some(transaction) = self.transaction.as_mut().filter(|_| self.in_multi) {
            transaction.is_spoiled = true;
        }
    }

    /// The number of queued commands; `None` outside MULTI.
    pub fn queued(&self) -> Option<usize> {
        let commands =
            self.transaction.as_ref().map_or(0, |transaction| transaction.commands.len());
        self.in_multi.then_some(commands)
    }

    /// Ends MULTI and WATCH; returns the transaction if there was one.
    pub fn leave_transaction(&mut self) -> Option<Box<Transaction>> {
        self.in_multi = false;
        self.transaction.take()
    }
}

/// Redis's text to a client that has not logged in.
pub const NO_AUTH: &[u8] = b"NOAUTH Authentication required.";

/// Redis's text while a script takes too long.
pub const BUSY: &[u8] =
    b"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Redis's text about a connection name that would break CLIENT LIST.
pub const INVALID_NAME: &[u8] =
    b"ERR Client names cannot contain spaces, newlines or special characters.";

/// Whether CLIENT LIST could show this name as one word.
pub fn is_valid_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}
