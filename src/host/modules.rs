//! The host's modules: HELLO on midi's ports lists them, as the host's does.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::{Answer, Ctx, RawCtx, RawEvent};
use super::instance::{VERSION, instance};
use crate::command::{Reply, Transcript};

/// Whether to ask the host again. True at first: midi itself is on the list only after loading.
static MAY_HAVE_CHANGED: AtomicBool = AtomicBool::new(true);

/// Whether midi is the only module, as far as the host says.
static IS_ALONE: AtomicBool = AtomicBool::new(false);

/// Whether midi is the only module.
pub fn is_midi_alone() -> bool {
    IS_ALONE.load(Ordering::Relaxed) && !MAY_HAVE_CHANGED.load(Ordering::Relaxed)
}

/// A module was loaded or unloaded; an unloaded one may still be on the list.
pub unsafe extern "C" fn on_change(_: *mut RawCtx, _: RawEvent, _: u64, _: *mut c_void) {
    MAY_HAVE_CHANGED.store(true, Ordering::Relaxed);
}

/// Asks the host for its list if that may have changed. Between commands.
pub fn refresh(ctx: Ctx<'_>) {
    if MAY_HAVE_CHANGED.load(Ordering::Relaxed) {
        MAY_HAVE_CHANGED.store(false, Ordering::Relaxed);
        instance().engine.context().outside.set_modules(list(ctx));
    }
}

/// The list as HELLO replies with it: a map for each module.
fn list(ctx: Ctx<'_>) -> Transcript {
    let mut transcript = Transcript::default();
    let mut modules = ctx.call(c"MODULE", &[b"LIST"]).list();
    IS_ALONE.store(modules.len() == 1, Ordering::Relaxed);
    if modules.is_empty() {
        // MODULE is renamed: only midi is certain to be there.
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

/// Writes the host's answer to `transcript`.
pub fn say(answer: Answer, transcript: &mut Transcript) {
    match answer {
        Answer::Text(text) => transcript.bulk(&text),
        Answer::Number(number) => transcript.integer(number),
        Answer::List(list) => {
            transcript.array(list.len());
            list.into_iter().for_each(|element| say(element, transcript));
        }
        Answer::Other | Answer::Error(_) => transcript.null(),
    }
}
