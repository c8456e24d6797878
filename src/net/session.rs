//! A connection's session: its user, its protocol, what it runs and what it waits for, its
//! transaction.
//!
//! A transaction begins with MULTI or WATCH, and ends with EXEC, DISCARD or RESET; see
//! `transaction.rs`.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::client::Client;
use super::resp::{RequestParser, RespReply};
use super::transaction::{ExecReplies, Transaction};
use crate::command::Args;
use crate::engine::{DEFAULT_USER, Engine, Gates, User, Users};

/// Whether a connection runs commands, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs them.
    Open,
    /// A command runs elsewhere; its reply will arrive as a message.
    Waiting,
    /// The host holds it up: it retries from time to time.
    Deferred,
    /// Other threads held the shards: it retries in the next turn.
    Again,
    /// It is closed after the remaining replies have been sent.
    Closing,
}

/// The last that a connection wrote: what WAIT waits for.
pub struct LastWrite {
    /// Its position in the log; 0 if it was not logged.
    pub position: u64,
    /// How far a replica must have come in the host's stream to have it; `None` if that is not
    /// known. A replica that has acknowledged anything has what was written without a log: there
    /// was no stream then, so the replica was synced later.
    pub offset: Option<u64>,
}

/// The state of a connection apart from its bytes.
pub struct Session {
    /// What other threads may read of it.
    pub client: Arc<Client>,
    /// Whether it runs commands.
    pub state: State,
    /// The peer sends no more.
    pub ended: bool,
    /// Parses its input into commands.
    pub parser: RequestParser,
    /// At least this many bytes of its next command are still to come, as far as its unread input
    /// shows; 0 if that may hold whole commands.
    pub missing: usize,
    /// Since when its command has waited for a shard that others hold.
    pub queued_since: Option<Instant>,
    /// The position of the log that its replies must wait for from now on; 0 for none.
    seen: u64,
    /// The last that it wrote.
    pub last_write: LastWrite,
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
    replies: Replies,
    /// It imports keys: CLIENT IMPORT-SOURCE.
    import_source: bool,
    /// Between MULTI and EXEC.
    pub(super) in_multi: bool,
    /// The transaction that MULTI or WATCH has begun.
    pub(super) transaction: Option<Box<Transaction>>,
    /// The replies that EXEC still owes.
    pub(super) exec_replies: Option<Box<ExecReplies>>,
    /// The most bytes that the reply buffer may hold.
    pub(super) most_output: usize,
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
            client,
            state: State::Open,
            ended: false,
            parser: RequestParser::default(),
            missing: 1,
            queued_since: None,
            seen: 0,
            last_write: LastWrite { position: 0, offset: Some(1) },
            db: 0,
            resp3: false,
            user: None,
            epoch: UNSETTLED,
            plain: !engine.config().safemode,
            replies: Replies::Wanted,
            import_source: false,
            in_multi: false,
            transaction: None,
            exec_replies: None,
            most_output: usize::MAX,
        };
        session.be_nobody(engine);
        session
    }

    /// Whether it waits for a reply from another thread.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Whether its next command may run: there may be one, and all earlier replies are written.
    #[inline]
    pub fn may_run(&self) -> bool {
        self.missing == 0 && self.state == State::Open && self.exec_replies.is_none()
    }

    /// Whether it may go on with what it has: commands, or replies of EXEC.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.missing == 0 || self.exec_replies.is_some()
    }

    /// Whether its client seems to have left while a command waited for a shard.
    pub fn is_leaving(&self) -> bool {
        self.ended && self.queued_since.is_some()
    }

    /// Its replies must wait for this position of the log; for none if it is 0.
    #[inline]
    pub fn wait_for(&mut self, position: u64) {
        if position != 0 {
            self.last_write = LastWrite { position, offset: None };
            self.seen = self.seen.max(position);
        }
    }

    /// The position that its replies must wait for from now on, if there is one.
    #[inline]
    pub(super) fn take_seen(&mut self) -> Option<u64> {
        (self.seen != 0).then(|| take(&mut self.seen))
    }

    /// Publishes its condition for other threads.
    pub fn show_condition(&self) {
        let condition = &self.client.condition;
        condition.resp3.store(self.resp3, Ordering::Relaxed);
        condition.waiting.store(self.is_waiting(), Ordering::Relaxed);
        condition.closing.store(self.state == State::Closing, Ordering::Relaxed);
        condition.queued.store(self.queued().map_or(0, |queued| queued + 1), Ordering::Relaxed);
        condition.queued_bytes.store(self.queued_bytes(), Ordering::Relaxed);
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
        self.select(0);
        self.client.names.lock().name.clear();
        self.be_nobody(engine);
    }

    /// Without a login: the user `default`, if that one needs no password.
    fn be_nobody(&mut self, engine: &Engine) {
        let users = &engine.users;
        self.epoch = settled(users.epoch());
        self.user = if users.default_is_open() { users.find(DEFAULT_USER) } else { None };
        self.client.names.lock().user = DEFAULT_USER.to_vec();
    }

    pub(super) fn select(&mut self, db: u32) {
        self.db = db;
        self.client.db.store(db, Ordering::Relaxed);
    }

    /// Whether its commands may run together with others.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain && self.replies == Replies::Wanted && !self.in_multi && !self.import_source
    }

    /// CLIENT IMPORT-SOURCE.
    pub fn set_import_source(&mut self, is_one: bool) {
        self.import_source = is_one;
        self.client.condition.import_source.store(is_one, Ordering::Relaxed);
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

    /// Whether the command that runs is not to be answered.
    pub fn is_muted(&self) -> bool {
        matches!(self.replies, Replies::Unwanted | Replies::Skipping)
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

    /// What commands that run together must have in common: database and protocol.
    #[inline]
    pub fn kind(&self) -> (u32, bool) {
        (self.db, self.resp3)
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
    pub fn reply<'o>(&self, output: &'o mut Vec<u8>) -> RespReply<'o> {
        RespReply::new(output, self.resp3).up_to(self.most_output)
    }

    /// Looks the user up again if the list of users has changed.
    pub(super) fn refresh(&mut self, engine: &Engine) -> UserState {
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
                if self.user.is_none() {
                    return UserState::Gone;
                }
            }
        }
        UserState::Good
    }

    /// Sets the user after a login.
    pub fn log_in(&mut self, user: Arc<User>, epoch: u64) {
        self.client.names.lock().user = user.name.to_vec();
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

    /// Memory of the queued commands, in bytes.
    pub fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.memory())
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
pub(super) enum UserState {
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
