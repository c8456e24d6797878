//! A turn of the main loop: what others have sent to the main thread is seen to, in the order in which it came.
//!
//! ```text
//! main's inbox ── take_new ──► waiting ── next ──► seen to: a reply, a command to go on with, an errand
//!        │                        ▲
//!        │ (a script that takes   │ first of all in the next turn
//!        └─  too long, loading)───┴── put off: completions of the host's own door
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis_module::raw;

use super::door::{long_work_with_room, send_batch, start_job};
use super::instance::instance;
use super::users::USERS;
use super::{budget, guarded, news};
use crate::command::{Action, Error, Tape};
use crate::shard::{Call, Engine, ForMain, Home, Locked, Outcome, Request, Taking, Verdict, Work};

static MESSAGES: Messages = Messages {
    waiting: Mutex::new(Waiting { messages: VecDeque::new(), news: 0, batch: 0 }),
    has_waiting: AtomicBool::new(false),
    put_off: Mutex::new(VecDeque::new()),
    has_put_off: AtomicBool::new(false),
};

/// Messages for the main thread.
struct Messages {
    /// What has been taken out of its inbox, and waits for its turn.
    waiting: Mutex<Waiting>,
    /// Whether there is any, for a look without the lock.
    has_waiting: AtomicBool,
    /// The host door's own completions that came while the main loop was kept from turning.
    put_off: Mutex<VecDeque<ForMain>>,
    has_put_off: AtomicBool,
}

/// Oldest first.
struct Waiting {
    messages: VecDeque<ForMain>,
    /// Their senders' changes have been told when so many have been.
    news: u64,
    /// How often messages have been taken.
    batch: u64,
}

impl Messages {
    /// Takes the messages that have come, once those before them have been seen to.
    #[inline]
    fn take_new(&self, engine: &Engine, locked: Locked<'_>) {
        let has_put_off = self.has_put_off.load(Ordering::Relaxed);
        let has_new = !engine.main.is_empty() && !self.has_waiting.load(Ordering::Relaxed);
        if !has_put_off && !has_new {
            return;
        }
        let mut waiting = self.waiting.lock();
        if has_put_off {
            self.has_put_off.store(false, Ordering::Relaxed);
            // They came before all others.
            let mut put_off = std::mem::take(&mut *self.put_off.lock());
            put_off.append(&mut waiting.messages);
            waiting.messages = put_off;
        } else if waiting.messages.is_empty() {
            waiting.messages = engine.main.take(locked);
        }
        waiting.batch += 1;
        // Asked afterwards: who sends a message has left its news before.
        waiting.news = engine.news_so_far(locked);
        self.has_waiting.store(!waiting.messages.is_empty(), Ordering::Relaxed);
    }

    fn next(&self) -> Option<ForMain> {
        let mut waiting = self.waiting.lock();
        let message = waiting.messages.pop_front();
        self.has_waiting.store(!waiting.messages.is_empty(), Ordering::Relaxed);
        message
    }

    /// The next one, of those too that have just come.
    fn next_of_all(&self, engine: &Engine, locked: Locked<'_>) -> Option<ForMain> {
        self.next().or_else(|| {
            let mut waiting = self.waiting.lock();
            waiting.messages = engine.main.take(locked);
            waiting.batch += 1;
            drop(waiting);
            self.next()
        })
    }

    fn put_off(&self, request: Box<Request>) {
        self.put_off.lock().push_back(ForMain::Request(request));
        self.has_put_off.store(true, Ordering::Relaxed);
    }
}

/// Sends what `pool` gathered, and answers what has come home. Between commands.
pub fn turn(locked: Locked<'_>) {
    let engine = &*instance().engine;
    send_batch(engine);
    engine.tell_announced(locked);
    USERS.refresh(locked);
    MESSAGES.take_new(engine, locked);
    if MESSAGES.has_waiting.load(Ordering::Relaxed) {
        answer(engine, locked);
    }
    tell(engine, locked);
}

/// Whether something is left over for the next turn.
pub fn has_left_over(engine: &Engine) -> bool {
    MESSAGES.has_waiting.load(Ordering::Relaxed) || engine.has_much_news()
}

/// The number of the batch of messages that is seen to: what has been found out for one of them is not older
/// than the others.
pub fn batch() -> u64 {
    MESSAGES.waiting.lock().batch
}

/// Tells what has changed, as far as the time goes.
pub fn tell(engine: &Engine, locked: Locked<'_>) {
    if engine.has_news() || engine.has_much_news() {
        news::tell_up_to(locked, u64::MAX);
    }
}

/// Sees to messages, as far as the time goes.
fn answer(engine: &Engine, locked: Locked<'_>) {
    // What their senders did is told before they are answered.
    let news = MESSAGES.waiting.lock().news;
    if news::tell_up_to(locked, news) {
        budget::spend(|| {
            let message = MESSAGES.next();
            message.map(|message| guarded((), || see_to(engine, locked, message))).is_some()
        });
    }
}

fn see_to(engine: &Engine, locked: Locked<'_>, message: ForMain) {
    match message {
        ForMain::Request(request) => came_home(engine, locked, request),
        ForMain::Errand(errand) => errand(locked, engine, engine.host()),
    }
}

/// What can be done for the ports while a script that takes too long, or loading, keeps the main
/// loop from turning. Called from its event loop.
pub fn turn_aside(locked: Locked<'_>) {
    let engine = &*instance().engine;
    let has_messages = MESSAGES.has_waiting.load(Ordering::Relaxed) || !engine.main.is_empty();
    if !has_messages && !engine.users.are_stale() {
        return;
    }
    let flags = instance().ctx(locked).flags();
    let busy = flags & raw::REDISMODULE_CTX_FLAGS_LUA != 0;
    let loading = raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    if !busy && flags & loading == 0 {
        return;
    }
    USERS.refresh(locked);
    budget::renew();
    let all_done = budget::spend(|| {
        let message = MESSAGES.next_of_all(engine, locked);
        message.map(|message| guarded((), || see_to_aside(engine, locked, message, busy))).is_some()
    });
    MESSAGES.waiting.lock().news = engine.news_so_far(locked);
    if !all_done {
        engine.wake_main();
    }
}

fn see_to_aside(engine: &Engine, locked: Locked<'_>, message: ForMain, busy: bool) {
    let (host, refusal) = if busy { (None, Error::Busy) } else { (engine.host(), Error::Loading) };
    match message {
        ForMain::Errand(errand) => errand(locked, engine, host),
        ForMain::Request(request) if request.is_of_host() => MESSAGES.put_off(request),
        ForMain::Request(request) => send_back_refused(engine, request, refusal),
    }
}

fn send_back_refused(engine: &Engine, mut request: Box<Request>, error: Error) {
    let args = std::mem::take(&mut request.args);
    let mut tape = Tape::default();
    args.with(|args| engine.call_of(&request, args).refuse(error, &mut tape));
    request.verdict = Verdict::Done;
    (request.args, request.reply) = (args, tape);
    engine.send_back(request);
}

fn came_home(engine: &Engine, locked: Locked<'_>, request: Box<Request>) {
    if request.verdict != Verdict::Done {
        return go_on(engine, locked, request);
    }
    engine.came_home();
    let Request { home, author, reply, .. } = *request;
    if let Home::Main(client) = home {
        client.answer(locked, author, reply);
    }
}

/// Goes on with a command that a worker could not run.
fn go_on(engine: &Engine, locked: Locked<'_>, mut request: Box<Request>) {
    if request.is_abandoned() {
        request.verdict = Verdict::Done;
        return engine.send_back(request);
    }
    let args = std::mem::take(&mut request.args);
    let mut tape = engine.tape_for(&request);
    let (outcome, work) = args.with(|args| {
        let call = engine.call_of(&request, args);
        // Whatever happens, there is a client that waits.
        guarded(None, || Some(run_here(engine, locked, &call, &request, &mut tape))).unwrap_or_else(|| {
            tape = Tape::default();
            call.refuse(Error::Internal, &mut tape);
            (Outcome::Done, None)
        })
    });
    if !request.is_of_host() {
        // A port starts its jobs itself.
        request.verdict = if outcome == Outcome::Long { Verdict::Long } else { Verdict::Done };
        (request.args, request.reply) = (args, tape);
        return engine.send_back(request);
    }
    if let Some(work) = work {
        engine.came_home();
        let Request { command, db, home, .. } = *request;
        if let Home::Main(client) = home {
            start_job(engine, locked, command, db, work, client);
        }
        return;
    }
    request.verdict = Verdict::Done;
    request.reply = tape;
    if request.reply.is_large() {
        return engine.reply_on_worker(request);
    }
    came_home(engine, locked, request);
}

/// Runs it, waiting for tokens; gives what is to be started for a client of the host's as a job.
fn run_here(
    engine: &Engine,
    locked: Locked<'_>,
    call: &Call<'_>,
    request: &Request,
    tape: &mut Tape,
) -> (Outcome, Option<Work>) {
    if let Some(error) = engine.late_refusal(call) {
        call.refuse(error, tape);
        return (Outcome::Done, None);
    }
    let outcome = match request.verdict {
        // Found out already, but for what only the holder of the global lock can do.
        Verdict::Long if !matches!(call.row().action, Action::Keyspace(_)) => Outcome::Long,
        _ => engine.attempt(engine.main_seat(locked), call, Taking::Wait(locked), tape),
    };
    if outcome != Outcome::Long || !request.is_of_host() {
        return (outcome, None);
    }
    match long_work_with_room(engine, locked, call) {
        Ok(work) => (outcome, Some(work)),
        Err(error) => {
            call.refuse(error, tape);
            (Outcome::Done, None)
        }
    }
}
