//! What a connection's commands may do, whatever its protocol: the rights of its user.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::Client;
use crate::command::Args;
use crate::engine::{DEFAULT_USER, Engine, User, Users};

/// The user of a connection, and its database.
pub struct SessionAccess {
    /// The user; `None` if a login is needed first.
    pub user: Option<Arc<User>>,
    /// The epoch of the list of users when the user was looked up; [`UNSETTLED`] if the list was
    /// about to change.
    epoch: u64,
    /// Nobody has logged in, and whether the user needs no password was asked while the list was
    /// about to change.
    is_guess: bool,
    /// The database.
    pub db: u32,
    /// Commands run here and now: no SAFEMODE.
    pub plain: bool,
}

/// A user as of an epoch: sessions with equal values have equal rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionRights {
    /// The address of the user, if logged in; sessions of one user share it.
    user: Option<usize>,
    epoch: u64,
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

/// An epoch that the list of users never has: a user with it is always looked up again.
const UNSETTLED: u64 = u64::MAX;

fn settled(epoch: u64) -> u64 {
    if Users::is_stale(epoch) { UNSETTLED } else { epoch }
}

impl SessionAccess {
    /// Of a new connection.
    pub fn new(engine: &Engine, client: &Client) -> Self {
        let plain = !engine.config().safemode;
        let mut access =
            SessionAccess { user: None, epoch: UNSETTLED, is_guess: true, db: 0, plain };
        access.be_nobody(engine, client);
        access
    }

    /// Without a login: the user `default`, if that one needs no password.
    pub fn be_nobody(&mut self, engine: &Engine, client: &Client) {
        let users = &engine.users;
        self.epoch = settled(users.epoch());
        self.is_guess = self.epoch == UNSETTLED;
        self.user = if users.default_is_open() { users.find(DEFAULT_USER) } else { None };
        client.names.lock().user = DEFAULT_USER.to_vec();
    }

    /// Chooses the database.
    pub fn select(&mut self, db: u32, client: &Client) {
        self.db = db;
        client.db.store(db, Ordering::Relaxed);
    }

    /// The values that the rights depend on.
    #[inline]
    pub fn rights(&self) -> SessionRights {
        SessionRights {
            user: self.user.as_ref().map(|user| Arc::as_ptr(user).addr()),
            epoch: self.epoch,
        }
    }

    /// Whether command `number` may be called on every key.
    #[inline]
    pub fn may_on_all_keys(&self, number: usize) -> bool {
        self.user.as_ref().is_some_and(|user| user.may_anywhere(number))
    }

    /// Whether command `number` may be called, as far as is known without asking the host.
    #[inline]
    pub fn may(&self, engine: &Engine, number: usize, args: &Args<'_>) -> bool {
        let Some(user) = &self.user else { return false };
        self.is_current(engine) && user.check(number, args, self.db).is_ok()
    }

    /// Whether the list of users has not changed since the user was looked up.
    #[inline]
    pub fn is_current(&self, engine: &Engine) -> bool {
        self.epoch == engine.users.epoch()
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
        if take(&mut self.is_guess) {
            self.user = None;
        }
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
    pub fn log_in(&mut self, user: Arc<User>, epoch: u64, client: &Client) {
        client.names.lock().user = user.name.to_vec();
        self.user = Some(user);
        self.is_guess = false;
        self.epoch = settled(epoch);
    }
}
