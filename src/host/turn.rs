//! A turn of the main loop: messages to the main thread are handled in the order in which they
//! came.
//!
//! ```text
//! main's inbox ── take_new ──► waiting ── next ──► handled: a reply, a command, a task
//!        │                        ▲
//!        │ (a script that takes   │ first of all in the next turn
//!        └─  too long, loading)───┴── put off: completions of the host's own door
//! ```

use midi_module_api as raw;

use super::instance::instance;
use super::persistence::hand_over;
use super::users::USERS;
use super::{count_panic, guarded, notifications, scripts};
use crate::command::Error;
use crate::engine::{Engine, ForMain, Locked};

/// Sends what `pool` gathered, and answers completed requests. Between commands.
pub fn turn(locked: Locked<'_>) {
    let engine = &*instance().engine;
    engine.ledger.notifications.turn_begins(locked);
    engine.send_batch(locked);
    engine.ledger.tell_announced(locked);
    USERS.refresh(locked);
    instance().messages.take_new(engine, locked);
    if instance().messages.has_waiting.get() {
        answer(engine, locked);
    }
    tell(engine, locked);
}

/// Whether something is left over for the next turn.
pub fn has_left_over(engine: &Engine) -> bool {
    instance().messages.has_waiting.get() || engine.ledger.admission.has_notification_backlog()
}

/// Notifies the host of changes, as far as the budget allows.
pub fn tell(engine: &Engine, locked: Locked<'_>) {
    if engine.ledger.notifications.are_waiting()
        || engine.ledger.admission.has_notification_backlog()
    {
        notifications::tell_up_to(locked, u64::MAX);
    }
}

/// Handles messages, as far as the budget allows.
fn answer(engine: &Engine, locked: Locked<'_>) {
    // The host is notified of the senders' changes before they are answered.
    let notifications = instance().messages.waiting.lock().notifications;
    if notifications::tell_up_to(locked, notifications) {
        instance().budget.spend(|| {
            let message = instance().messages.next();
            message.map(|message| guarded((), || handle(engine, locked, message))).is_some()
        });
    }
}

fn handle(engine: &Engine, locked: Locked<'_>, message: ForMain) {
    if engine.ledger.admission.waits_for_pause(&message) {
        return instance().messages.wait_for_pause(message);
    }
    match message {
        ForMain::Answer(request) => engine.answer(locked, request),
        ForMain::Run(request) => engine.resume_on_main(locked, request, count_panic),
        ForMain::Task(task) | ForMain::Write(task) | ForMain::Interrupt(task) => {
            task(locked, engine, engine.context().outside.host());
            hand_over::after_task(locked);
        }
        // The tail is logged when the turn ends.
        ForMain::Log => instance().hand_over.tail_is_due.set(true),
        ForMain::Finish(position, reply) if position > engine.ledger.log.logged() => {
            engine.context().main.keep_until_logged(position, ForMain::Finish(position, reply));
        }
        ForMain::Finish(position, mut reply) => {
            if engine.ledger.log.is_undone(position) {
                reply.close();
            }
            reply.finish();
        }
    }
}

/// Sends the answers whose writes the host's log has now.
pub fn answer_logged(engine: &Engine, locked: Locked<'_>) {
    for answer in engine.context().main.take_logged(locked, engine.ledger.log.logged()) {
        guarded((), || handle(engine, locked, answer));
    }
}

/// Does what can be done for the ports while a script that takes too long, or loading, keeps the
/// main loop from turning. Called from the host's event loop.
pub fn turn_aside(locked: Locked<'_>) {
    let engine = &*instance().engine;
    let has_messages = instance().messages.has_waiting.get() || !engine.context().main.is_empty();
    if !has_messages && !engine.users.are_stale() {
        return;
    }
    let _own_calls = scripts::leave();
    let flags = instance().ctx(locked).flags();
    let busy = flags & raw::REDISMODULE_CTX_FLAGS_LUA != 0;
    let loading = raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    if !busy && flags & loading == 0 {
        return;
    }
    USERS.refresh(locked);
    instance().budget.renew();
    let all_done = instance().budget.spend(|| {
        let message = instance().messages.next_of_all(engine, locked);
        message.map(|message| guarded((), || handle_aside(engine, locked, message, busy))).is_some()
    });
    instance().messages.waiting.lock().notifications = engine.ledger.notifications.so_far(locked);
    if !all_done {
        engine.context().outside.wake_main();
    }
}

fn handle_aside(engine: &Engine, locked: Locked<'_>, message: ForMain, busy: bool) {
    let (host, refusal) =
        if busy { (None, Error::Busy) } else { (engine.context().outside.host(), Error::Loading) };
    match message {
        ForMain::Task(task) | ForMain::Write(task) => task(locked, engine, host),
        ForMain::Interrupt(task) => task(locked, engine, engine.context().outside.host()),
        ForMain::Run(request) if !request.is_of_host() => engine.refuse(locked, request, refusal),
        ForMain::Run(_) | ForMain::Answer(_) | ForMain::Finish(..) => {
            instance().messages.put_off(message)
        }
        ForMain::Log => instance().hand_over.tail_is_due.set(true),
    }
}
