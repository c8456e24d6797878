//! HRANDFIELD.

use super::live::TRIES;
use super::{KEY, LiveFields};
use crate::command::string::ELEMENT_BYTES;
use crate::command::{
    Access, Action, Arg, ArgKind, Args, Command, Error, Flags, Keys, ReadKey, ReadsKey, Reply, Run,
    arg, docs, tips, word,
};
use crate::limits::DRAWN_FIELDS;
use crate::store::FieldRef;

const OPTIONS: &[Arg] =
    &[arg("count", ArgKind::Integer), word("withvalues", "WITHVALUES").optional()];

pub(in crate::command) static HRANDFIELD: Command = Command {
    name: "hrandfield",
    arity: -2,
    keys: Keys::One(Access::Read),
    tips: &[tips::ANY_OUTPUT],
    docs: docs(
        "Returns a field that is drawn at random, or several: different ones, or with a negative \
         count any.",
    )
    .costs("O(N), N being the number of fields returned")
    .takes(&[KEY, arg("options", ArgKind::Block(OPTIONS)).optional()]),
    action: Action::OneKey(Run::Read(hrandfield)),
    long_by_arguments: true,
    ..Command::on_hashes(Flags { readonly: true, ..Flags::NONE })
};

fn draw() -> u64 {
    fastrand::u64(..)
}

fn hrandfield(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    if cx.args.len() == 2 {
        match cx.fields()?.and_then(|fields| fields.drawn(&mut draw)) {
            Some(field) => reply.bulk(field.name),
            None => reply.null(),
        }
        return Ok(());
    }
    let (count, with_values) = options(&cx.args)?;
    let Some(fields) = cx.fields()?.filter(|_| count != 0) else {
        reply.array(0);
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 && wanted > DRAWN_FIELDS {
        return Err(Error::TooManyDrawn(DRAWN_FIELDS));
    }
    // How long they are is not known before they are drawn.
    cx.limits
        .reply(2 * ELEMENT_BYTES * if count < 0 { wanted } else { wanted.min(fields.len()) })?;
    let drawn =
        if count > 0 { Some(different(fields, wanted)) } else { few_of_many(fields, wanted) };
    if let Some(drawn) = drawn {
        return say(cx, reply, drawn.len(), || drawn.iter(), with_values);
    }
    let all: Vec<FieldRef<'_>> = fields.iter().collect();
    let (seed, count) = (fastrand::u64(..), if all.is_empty() { 0 } else { wanted });
    // Drawn once more from the same seed instead of kept: they may be many more than the hash has.
    let drawn = || {
        let (all, mut random) = (&all, fastrand::Rng::with_seed(seed));
        (0..count).map(move |_| &all[random.usize(0..all.len())])
    };
    say(cx, reply, count, drawn, with_values)
}

fn options(args: &Args<'_>) -> Result<(i64, bool), Error> {
    let count = args.integer(2)?;
    if count == i64::MIN {
        return Err(Error::BeyondLong);
    }
    let with_values = args.len() > 3;
    if args.len() > 4 || with_values && !args.is(3, "withvalues") {
        return Err(Error::Syntax);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Error::OutOfRange);
    }
    Ok((count, with_values))
}

/// So many fields, each drawn from all; `None` if the hash has no more than that, or most of its
/// fields have expired.
fn few_of_many(fields: LiveFields<'_>, wanted: usize) -> Option<Vec<FieldRef<'_>>> {
    let is_for_table = !fields.are_few() && wanted < fields.len();
    is_for_table.then(|| draw_each(fields, wanted, &mut |_| true)).flatten()
}

/// Different fields; all of them if there are no more.
fn different(fields: LiveFields<'_>, wanted: usize) -> Vec<FieldRef<'_>> {
    if wanted >= fields.len() {
        return fields.iter().collect();
    }
    // Drawing a field again and again costs more than looking at all of them once.
    if !fields.are_few() && wanted <= fields.len() / 3 {
        let mut names = hashbrown::HashSet::with_capacity(wanted);
        if let Some(drawn) = draw_each(fields, wanted, &mut |field| names.insert(field.name)) {
            return drawn;
        }
    }
    let mut all: Vec<FieldRef<'_>> = fields.iter().collect();
    let wanted = wanted.min(all.len());
    for at in 0..wanted {
        let other = fastrand::usize(at..all.len());
        all.swap(at, other);
    }
    all.truncate(wanted);
    all
}

/// Draws until so many fields are `taken`; `None` if that takes too long, as where most fields have
/// expired.
fn draw_each<'a>(
    fields: LiveFields<'a>,
    wanted: usize,
    taken: &mut dyn FnMut(&FieldRef<'a>) -> bool,
) -> Option<Vec<FieldRef<'a>>> {
    let draws = std::iter::repeat_with(|| fields.draw_once(&mut draw)).take(4 * wanted + TRIES);
    let drawn: Vec<_> = draws.flatten().filter(|field| taken(field)).take(wanted).collect();
    (drawn.len() == wanted).then_some(drawn)
}

/// Answers with `count` fields. `drawn` gives the same ones each time: first their lengths are
/// compared with the limit of a reply.
fn say<'f, Drawn: Iterator<Item = &'f FieldRef<'f>>>(
    cx: &ReadKey<'_>,
    reply: &mut dyn Reply,
    count: usize,
    drawn: impl Fn() -> Drawn,
    with_values: bool,
) -> Result<(), Error> {
    let len =
        |field: &FieldRef<'_>| field.name.len() + if with_values { field.value.len() } else { 0 };
    cx.limits.reply(drawn().map(len).sum())?;
    if !with_values {
        reply.array(count);
        drawn().for_each(|field| reply.bulk(field.name));
        return Ok(());
    }
    reply.pairs(count);
    for field in drawn() {
        reply.pair();
        reply.bulk(field.name);
        reply.bulk(field.value);
    }
    Ok(())
}
