//! A connection's session: its user, its protocol, what it runs and what it waits for, its
//! transaction.
//!
//! A transaction begins with MULTI or WATCH, and ends with EXEC, DISCARD or RESET; see
//! `transaction.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pending_scripts::PendingScripts;
use super::subscribed::SubscribedNames;
use super::transaction::{ExecReplies, Transaction};
use super::{RequestParser, RespReply};
use crate::command::Args;
use crate::engine::{DEFAULT_USER, Engine, Gates, User, Users};
use crate::net::client::Client;
use crate::net::flow::{Flow, State};
use crate::net::memcached::Conversation;
use crate::net::transport::Output;

/// The state of a connection apart from its bytes.
pub struct Session {
    /// What it waits for.
    pub flow: Flow,
    /// Parses its input into commands.
    pub parser: RequestParser,
    /// The database.
    pub db: u32,
    /// RESP3 is used.
    pub resp3: bool,
    /// The user; `None` if a login is needed first.
    pub user: Option<Arc<User>>,
    /// The epoch of the list of users when the user was looked up; [`UNSETTLED`] if the list was
    /// about to change.
    epoch: u64,
    /// Commands run here and now: no SAFEMODE.
    plain: bool,
    /// Whether commands are answered.
    pub(super) replies: Replies,
    /// It imports keys: CLIENT IMPORT-SOURCE.
    import_source: bool,
    no_touch: bool,
    /// Between MULTI and EXEC.
    pub(super) in_multi: bool,
    /// The transaction that MULTI or WATCH has begun.
    pub(super) transaction: Option<Box<Transaction>>,
    /// The replies that EXEC still owes.
    pub(super) exec_replies: Option<Box<ExecReplies>>,
    /// What it subscribes to, if it does.
    pub subscribed: Option<Box<SubscribedNames>>,
    /// Scripts that are about to go to the main thread.
    pub(super) scripts: PendingScripts,
    /// What it keeps if it speaks memcached's protocol instead of RESP.
    pub memcached: Option<Box<Conversation>>,
}

/// A user as of an epoch: sessions with equal values have equal rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionRights {
    /// The address of the user, if logged in; sessions of one user share it.
    user: Option<usize>,
    epoch: u64,
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

impl Session {
    /// The session of a new connection.
    pub fn new(engine: &Engine, client: Arc<Client>) -> Self {
        let mut session = Session {
            flow: Flow::new(client),
            parser: RequestParser::default(),
            db: 0,
            resp3: false,
            user: None,
            epoch: UNSETTLED,
            plain: !engine.config().safemode,
            replies: Replies::Wanted,
            import_source: false,
            no_touch: false,
            in_multi: false,
            transaction: None,
            exec_replies: None,
            subscribed: None,
            scripts: PendingScripts::default(),
            memcached: None,
        };
        session.be_nobody(engine);
        session
    }

    /// Whether its next command may run: there may be one, and all earlier replies are written.
    #[inline]
    pub fn may_run(&self) -> bool {
        self.flow.missing == 0 && self.flow.state == State::Open && self.exec_replies.is_none()
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
        self.select(0);
        self.flow.client.names.lock().name.clear();
        self.be_nobody(engine);
    }

    /// Without a login: the user `default`, if that one needs no password.
    fn be_nobody(&mut self, engine: &Engine) {
        let users = &engine.users;
        self.epoch = settled(users.epoch());
        self.user = if users.default_is_open() { users.find(DEFAULT_USER) } else { None };
        self.flow.client.names.lock().user = DEFAULT_USER.to_vec();
    }

    pub(super) fn select(&mut self, db: u32) {
        self.db = db;
        self.flow.client.db.store(db, Ordering::Relaxed);
    }

    /// Whether its commands may run together with others.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain && self.replies == Replies::Wanted && !self.in_multi && !self.is_special()
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

    /// Whether its client subscribes and its user has lost rights: it need not send anything for
    /// that to be found out.
    pub fn may_no_longer_hear(&mut self, engine: &Engine) -> bool {
        self.subscribed.is_some() && matches!(self.refresh(engine), UserState::Gone)
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

    /// The values that its rights depend on.
    #[inline]
    pub fn rights(&self) -> SessionRights {
        SessionRights {
            user: self.user.as_ref().map(|user| Arc::as_ptr(user).addr()),
            epoch: self.epoch,
        }
    }

    /// Whether it may call command `number` on every key.
    #[inline]
    pub fn may_on_all_keys(&self, number: usize) -> bool {
        self.user.as_ref().is_some_and(|user| user.may_anywhere(number))
    }

    /// Whether it may call command `number`, as far as is known without asking the host.
    #[inline]
    pub fn may(&self, engine: &Engine, number: usize, args: &Args<'_>) -> bool {
        self.epoch == engine.users.epoch()
            && self.user.as_ref().is_some_and(|user| user.check(number, args, self.db).is_ok())
    }

    /// A reply at the end of `output`.
    #[inline]
    pub fn reply<'o>(&self, output: &'o mut Output) -> RespReply<'o> {
        RespReply::new(output, self.resp3).up_to(self.flow.most_output)
    }

    /// Looks the user up again if the list of users has changed.
    pub fn refresh(&mut self, engine: &Engine) -> UserState {
        let epoch = engine.users.epoch();
        if epoch == self.epoch {
            return UserState::Good;
        }
        if Users::is_stale(epoch) {
            return UserState::Unknown;
        }
        self.epoch = epoch;
        match self.user.take() {
            // No login is needed any more.
            None if engine.users.default_is_open() => self.user = engine.users.find(DEFAULT_USER),
            None => {}
            Some(user) => {
                self.user = engine.users.find_again(&user);
                let Some(user) = &self.user else { return UserState::Gone };
                // As in Redis, a subscriber whose rules no longer allow what it has is closed.
                if self.subscribed.as_ref().is_some_and(|names| !names.are_allowed(user)) {
                    return UserState::Gone;
                }
            }
        }
        UserState::Good
    }

    /// Sets the user after a login.
    pub fn log_in(&mut self, user: Arc<User>, epoch: u64) {
        self.flow.client.names.lock().user = user.name.to_vec();
        self.user = Some(user);
        self.epoch = settled(epoch);
    }

    /// The database in which the next command will run: between MULTI and EXEC, that of the latest
    /// SELECT that is queued.
    pub(super) fn next_db(&self) -> u32 {
        let queued = self.transaction.as_ref().filter(|_| self.in_multi);
        queued.and_then(|transaction| transaction.db).unwrap_or(self.db)
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

/// An epoch that the list of users never has: a user with it is always looked up again.
const UNSETTLED: u64 = u64::MAX;

fn settled(epoch: u64) -> u64 {
    if Users::is_stale(epoch) { UNSETTLED } else { epoch }
}

/// The result of refreshing a session's user.
pub enum UserState {
    /// It may go on.
    Good,
    /// The host's rules are changing, so the user is not known yet.
    Unknown,
    /// Its user is gone.
    Gone,
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
