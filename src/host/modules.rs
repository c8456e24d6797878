//! What modules the host has: HELLO on midi's ports tells of them, as the host's does.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::api::{Answer, Ctx, RawCtx};
use super::instance::{VERSION, instance};
use crate::command::{Reply, Transcript};

/// Whether the host is to be asked: midi itself is on its list only after it was loaded.
static MAY_HAVE_CHANGED: AtomicBool = AtomicBool::new(true);

/// Another module was loaded, or unloaded; it may still be on the list.
pub unsafe extern "C" fn on_change(
    _: *mut RawCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    MAY_HAVE_CHANGED.store(true, Ordering::Relaxed);
}

/// Asks the host for its list where that may have changed. Between commands.
pub fn refresh(ctx: Ctx<'_>) {
    if MAY_HAVE_CHANGED.load(Ordering::Relaxed) {
        MAY_HAVE_CHANGED.store(false, Ordering::Relaxed);
        instance().engine.outside.set_modules(list(ctx));
    }
}

/// The list as HELLO tells it: a map for each.
fn list(ctx: Ctx<'_>) -> Transcript {
    let mut transcript = Transcript::default();
    let mut modules = ctx.call(c"MODULE", &[b"LIST"]).list();
    if modules.is_empty() {
        // MODULE is renamed: what is sure is that there is midi.
        let text = |text: &[u8]| Answer::Text(text.to_vec());
        modules.push(Answer::List(vec![
            text(b"name"),
            text(b"midi"),
            text(b"ver"),
            Answer::Number(VERSION.into()),
        ]));
    }
    transcript.array(modules.len());
    for module in modules {
        let fields = module.list();
        transcript.map(fields.len() / 2);
        fields.into_iter().for_each(|field| say(field, &mut transcript));
    }
    transcript
}

/// Says what the host has answered.
pub fn say(answer: Answer, transcript: &mut Transcript) {
    match answer {
        Answer::Text(text) => transcript.bulk(&text),
        Answer::Number(number) => transcript.integer(number),
        Answer::List(list) => {
            transcript.array(list.len());
            list.into_iter().for_each(|element| say(element, transcript));
        }
        Answer::Other => transcript.null(),
    }
}
