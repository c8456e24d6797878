//! The host's modules: HELLO on midi's ports lists them, as the host's does.

use super::api::{Answer, Ctx};
use super::instance::{VERSION, instance};
use crate::command::{Reply, Transcript};

/// Whether midi is the only module.
pub fn is_midi_alone() -> bool {
    instance().is_alone.get() && !instance().modules_may_change.get()
}

/// Asks the host for its list if that may have changed. Between commands.
pub fn refresh(ctx: Ctx<'_>) {
    if instance().modules_may_change.take() {
        instance().engine.context().outside.set_modules(list(ctx));
    }
}

/// The list as HELLO replies with it: a map for each module.
fn list(ctx: Ctx<'_>) -> Transcript {
    let mut transcript = Transcript::default();
    let mut modules = ctx.call(c"MODULE", &[b"LIST"]).list();
    instance().is_alone.set(modules.len() == 1);
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
        Answer::Error(text) => transcript.error(&text),
        Answer::Other => transcript.null(),
    }
}
