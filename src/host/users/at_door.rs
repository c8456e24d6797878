//! Rights at the host door, as far as the host has not judged them. After its own verdict midi
//! judges, by its own reading of the user's rules:
//!
//! * on Redis 7.0, all commands. That host leaves module commands out of categories, so
//!   `+@all -@write` would allow all of midi's writes, and `+@all -flushall` would allow
//!   MIDI.FLUSHALL: see [`super::judge::verdict`]. Later hosts know the categories of midi's
//!   commands, and their verdict on a command is final;
//! * where users have rules on databases (Valkey 9.1), commands that touch other databases than the
//!   client's: of a module's commands the host does not know that they do;
//! * on every host, commands that find keys themselves: the host does not know which.
//!
//! For each command a bit tells whether it has to be judged:
//!
//! | the bits | stale | |
//! |---|---|---|
//! | all that this host can leave open | yes | a user may have changed, until all users are read |
//! | all that some user's rules leave open | no | |
//!
//! So where no user's rules matter, a command costs one load. On Redis 7.0 the verdict on a client
//! is kept until its user may have changed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::super::PREFIX;
use super::super::acl::{HostUser, log_refusal};
use super::super::api::{Answer, Ctx};
use super::super::instance::instance;
use super::super::modules::is_midi_alone;
use super::super::renamed::is_renamed;
use super::super::rights::{self, Asker};
use super::super::state::{Flag, part};
use super::known::{HostText, Known, lacks_categories, other_databases, walks};
use super::text::{Description, RulesText};
use crate::engine::{Call, Commands, Locked, Refusal};
use crate::limits::DOOR_CLIENTS_KEPT;

part! {
    /// Which commands have to be judged, and for whom.
    pub struct AtDoor {
        /// A bit for each command, as in [`Commands`].
        judged: [AtomicU64; BITS] = [const { AtomicU64::new(0) }; BITS],
        /// Whether the host's users may have changed since all of them were read.
        stale: Flag = Flag::new(false),
        /// By client, the commands that the host may wrongly allow. A client's user changes only
        /// with AUTH, HELLO, RESET or EXEC, unless another module logs clients in.
        kept: Mutex<Option<HashMap<u64, Commands>>> = Mutex::new(None),
        /// Whether a filter sees these commands by name: `rename-command` may hide them.
        changes_are_seen: OnceLock<bool> = OnceLock::new(),
        /// Whether this host has rules on databases.
        has_databases: OnceLock<bool> = OnceLock::new(),
    }
}

/// How many words the bits of all commands take.
const BITS: usize = Commands::WORDS;

impl AtDoor {
    /// The users may be about to change: until all have been read, all is judged that this host can
    /// leave open. Also at load. Any client can cause this: a repetition costs little.
    pub fn users_may_change(&self, locked: Locked<'_>) {
        if !self.stale.get() {
            self.stale.set(true);
            self.set_judged(self.open_at_most(locked));
        }
        self.forget();
    }

    fn set_judged(&self, commands: Commands) {
        let words = self.judged.iter().zip(commands.words());
        words.for_each(|(judged, bits)| judged.store(bits, Ordering::Relaxed));
    }

    /// A client's user may be about to change; a filter does not learn which client's.
    pub fn forget(&self) {
        if lacks_categories() {
            *self.kept.lock() = None;
        }
    }

    /// Finds out which commands any user's rules leave open.
    pub fn look_at_all(&self, locked: Locked<'_>) {
        // A change that a pause holds up is made later, and no filter sees it then.
        if instance().pause.was_lately() || !self.stale.take() {
            return;
        }
        let most = self.open_at_most(locked);
        let mut open = walks();
        // Nothing but walks depends on no user's rules.
        if most != open {
            let names = instance().ctx(locked).call(c"ACL", &[b"USERS"]).list();
            let names: Vec<Vec<u8>> = names.into_iter().filter_map(Answer::text).collect();
            names.iter().for_each(|name| open.add(open_for(locked, name)));
            // Without the ACL command the host does not list its users.
            if names.is_empty() {
                open = most;
            }
        }
        self.set_judged(open);
    }

    /// Whether the command of this number has to be judged.
    #[inline]
    pub fn is_asked(&self, command: usize) -> bool {
        let word = self.judged.get(command / 64).map_or(0, |word| word.load(Ordering::Relaxed));
        word >> (command % 64) & 1 != 0
    }

    /// Checks whether the client may run its command, as far as the host has not checked it.
    ///
    /// # Errors
    /// The host's error text, if the command is not allowed.
    #[inline(never)]
    pub fn judge(
        &self,
        known: &Known,
        ctx: Ctx<'_>,
        call: &Call<'_>,
        in_unit: bool,
    ) -> Result<(), Vec<u8>> {
        let row = call.row();
        // The host has judged the client's own database, and knows the categories: a COPY within
        // it is settled.
        let stays = || row.keeps_to(|db| db == call.db, &call.args, call.db);
        if !lacks_categories() && row.walk.is_none() && stays() {
            return Ok(());
        }
        // A unit may change its user midway.
        let id = if in_unit { None } else { rights::client_of(ctx) };
        if let Some(id) = id
            && let Some(open) = self.kept.lock().as_ref().and_then(|kept| kept.get(&id))
            && !open.has(call.command)
        {
            return Ok(());
        }
        let (name, id) = match rights::asker(ctx) {
            Asker::Client(name) => (name, id),
            Asker::Other(name) => (name, None),
            Asker::Nobody => return Ok(()),
        };
        // A user that another module has made for itself is not on the host's list: the host's
        // verdict on it stands.
        let verdict = known.with(ctx.locked(), &name, |seen| {
            let may_keep = |_: &u64| is_midi_alone() && self.changes_are_seen(ctx.locked());
            if let Some(id) = id.filter(may_keep) {
                self.keep(id, seen.open);
            }
            if !seen.open.has(call.command) {
                return Ok(());
            }
            seen.at_door.check(call.command, &call.args, call.db).map_err(|denied| {
                let command = format!("{PREFIX}{}", call.row().name);
                let refusal = Refusal::new(&seen.at_door, denied, &command, &call.args);
                (refusal, denied.text(&command, &call.args))
            })
        });
        let Some(Err((refusal, text))) = verdict else { return Ok(()) };
        log_refusal(ctx, &refusal);
        Err(text)
    }

    fn keep(&self, id: u64, open: Commands) {
        let mut kept = self.kept.lock();
        let kept = kept.get_or_insert_default();
        if kept.len() >= DOOR_CLIENTS_KEPT {
            kept.clear();
        }
        kept.insert(id, open);
    }

    /// All commands on which this host's verdict may not be the last word, whatever the users'
    /// rules.
    fn open_at_most(&self, locked: Locked<'_>) -> Commands {
        let mut open = walks();
        if lacks_categories() {
            open.add(Commands::of(|_| true));
        }
        let has_databases = || HostUser::unknown(locked).set(b"alldbs");
        if *self.has_databases.get_or_init(has_databases) {
            open.add(other_databases());
        }
        open
    }

    fn changes_are_seen(&self, locked: Locked<'_>) -> bool {
        let any_renamed =
            || ["auth", "hello", "reset", "exec"].into_iter().any(|name| is_renamed(locked, name));
        *self.changes_are_seen.get_or_init(|| !any_renamed())
    }
}

/// The commands that this user's rules leave open; all of the host's door if rules on commands may.
fn open_for(locked: Locked<'_>, name: &[u8]) -> Commands {
    let text = HostText::of_user(locked, name);
    let rules = text.map_or_else(Vec::new, |text| Description::read(text.bytes()).rules);
    let takes_away = |rules: &RulesText| rules.begins_with_all() && !rules.is_all();
    let mut open = Commands::default();
    if lacks_categories() && rules.iter().any(takes_away) {
        open.add(Commands::of(|_| true));
    }
    if rules.iter().any(|rules| rules.databases.is_some()) {
        open.add(other_databases());
    }
    open
}
