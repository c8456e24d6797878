//! COMMAND: describes the port's commands from their rows, in Redis's form.

use super::help::help;
use crate::command::{
    Access, Arg, Args, COMMANDS, Describe, Doors, Error, FindKeys, FoundCommand, Limits, Named,
    PREFIX, Reply, SINCE, find_call, key_pattern, subcommands,
};
use crate::net::resp::RespReply;

/// Runs COMMAND or one of its subcommands.
pub fn describe(which: Describe, args: &Args<'_>, limits: &Limits, reply: &mut RespReply<'_>) {
    match which {
        Describe::All => write_all(reply),
        Describe::Info if args.len() == 2 => write_all(reply),
        Describe::Count => reply.integer(all().count() as i64),
        Describe::Info => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                match named(name) {
                    _ if reply.is_cut() => break,
                    Some(command) => write_command(command, reply),
                    None => reply.null(),
                }
            }
        }
        Describe::Docs => {
            let found: Vec<Named> = match args.len() {
                2 => all().collect(),
                _ => args.from(2).iter().filter_map(|name| named(name)).collect(),
            };
            reply.map(found.len());
            for command in found {
                if reply.is_cut() {
                    break;
                }
                reply.bulk(command.full_name().as_bytes());
                write_docs(command, reply);
            }
        }
        Describe::List => list(args, limits, reply),
        Describe::GetKeys => get_keys(args, false, reply),
        Describe::GetKeysAndFlags => get_keys(args, true, reply),
        Describe::Help => help(args, reply),
    }
}

fn write_all(reply: &mut RespReply<'_>) {
    reply.array(all().count());
    all().for_each(|command| write_command(command, reply));
}

/// All names of all commands, without subcommands: the ports' own commands first.
fn all() -> impl Iterator<Item = Named> {
    let own = |with: bool| COMMANDS.iter().filter(move |row| row.is_of_ports() == with);
    let plain = own(true).filter(|row| row.split().is_none()).chain(own(false));
    let plain = plain.filter(|row| row.doors != Doors::OnlyPrefixed).map(|row| row.name.to_owned());
    let prefixed = own(false).map(|row| format!("{PREFIX}{}", row.name));
    plain.chain(prefixed).filter_map(|name| Named::find(name.as_bytes()))
}

/// The command with this name; a subcommand's is `container|subcommand`.
fn named(name: &[u8]) -> Option<Named> {
    let words: Vec<&[u8]> = name.splitn(2, |&byte| byte == b'|').collect();
    match find_call(&Args::new(&words)) {
        Some(FoundCommand::Command(named)) => {
            (named.row().split().is_some() == (words.len() > 1)).then_some(named)
        }
        _ => None,
    }
}

/// A command's subcommands.
fn subcommands_of(command: Named) -> Vec<Named> {
    subcommands(command.number).map(|number| Named { number, ..command }).collect()
}

/// One command, as in COMMAND INFO.
fn write_command(command: Named, reply: &mut RespReply<'_>) {
    let row = command.row();
    let ((first, last, step), specs) = (row.range(), row.keys.specs());
    reply.array(10);
    reply.bulk(command.full_name().as_bytes());
    reply.integer(row.arity.into());
    words(&row.flag_words().collect::<Vec<_>>(), reply);
    [first, last, step].into_iter().for_each(|number| reply.integer(number.into()));
    reply.set(row.category_words().count());
    row.category_words().for_each(|category| reply.status(format!("@{category}").as_bytes()));
    reply.set(row.tips.len());
    row.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    let channels = row.slots_by_channels;
    reply.set(specs.len() + usize::from(channels.is_some()));
    for spec in &specs {
        let varies: &[&str] = if spec.varies { &["variable_flags"] } else { &[] };
        write_spec(&[spec.access.words(), varies].concat(), spec.begin, spec.find, reply);
    }
    if let Some(last) = channels {
        write_spec(&["not_key"], 1, FindKeys::Range { last, step: 1 }, reply);
    }
    let subcommands = subcommands_of(command);
    if subcommands.is_empty() {
        reply.set(0)
    } else {
        reply.array(subcommands.len())
    }
    subcommands.into_iter().for_each(|command| write_command(command, reply));
}

/// One command, as in COMMAND DOCS.
fn write_docs(command: Named, reply: &mut RespReply<'_>) {
    let (docs, subcommands) = (&command.row().docs, subcommands_of(command));
    reply.map(4 + usize::from(!docs.args.is_empty()) + usize::from(!subcommands.is_empty()));
    let texts = [
        ("summary", docs.summary),
        ("since", SINCE),
        ("group", command.row().group),
        ("complexity", docs.complexity),
    ];
    texts.into_iter().for_each(|(name, text)| pair(name, text, reply));
    if !docs.args.is_empty() {
        reply.bulk(b"arguments");
        write_arguments(docs.args, reply);
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        for command in subcommands {
            reply.bulk(command.full_name().as_bytes());
            write_docs(command, reply);
        }
    }
}

fn pair(name: &str, text: &str, reply: &mut RespReply<'_>) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

fn number(name: &str, number: i32, reply: &mut RespReply<'_>) {
    reply.bulk(name.as_bytes());
    reply.integer(number.into());
}

/// A set of words.
fn words(words: &[&str], reply: &mut RespReply<'_>) {
    reply.set(words.len());
    words.iter().for_each(|word| reply.status(word.as_bytes()));
}

fn write_spec(flags: &[&str], begin: i32, find: FindKeys, reply: &mut RespReply<'_>) {
    reply.map(3);
    reply.bulk(b"flags");
    words(flags, reply);
    reply.bulk(b"begin_search");
    reply.map(2);
    pair("type", "index", reply);
    reply.bulk(b"spec");
    reply.map(1);
    number("index", begin, reply);
    reply.bulk(b"find_keys");
    reply.map(2);
    let (kind, numbers) = match find {
        FindKeys::Range { last, step } => {
            ("range", [("lastkey", last), ("keystep", step), ("limit", 0)])
        }
        FindKeys::Counted { step } => {
            ("keynum", [("keynumidx", 0), ("firstkey", 1), ("keystep", step)])
        }
    };
    pair("type", kind, reply);
    reply.bulk(b"spec");
    reply.map(numbers.len());
    numbers.into_iter().for_each(|(name, value)| number(name, value, reply));
}

fn write_arguments(args: &[Arg], reply: &mut RespReply<'_>) {
    reply.array(args.len());
    for arg in args {
        let (inner, key) = (arg.kind.inner(), arg.kind.key_spec());
        let flags: Vec<&str> = [(arg.optional, "optional"), (arg.multiple, "multiple")]
            .into_iter()
            .filter_map(|(set, word)| set.then_some(word))
            .collect();
        let more = [key.is_some(), arg.token.is_some(), !flags.is_empty(), !inner.is_empty()];
        reply.map(2 + more.into_iter().filter(|&is| is).count());
        pair("name", arg.name, reply);
        pair("type", arg.kind.name(), reply);
        if let Some(key) = key {
            number("key_spec_index", key, reply);
        }
        if let Some(token) = arg.token {
            pair("token", token, reply);
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            words(&flags, reply);
        }
        if !inner.is_empty() {
            reply.bulk(b"arguments");
            write_arguments(inner, reply);
        }
    }
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(args: &Args<'_>, limits: &Limits, reply: &mut RespReply<'_>) {
    let word = args.get(4).to_ascii_lowercase();
    let pattern = match key_pattern(&word, limits) {
        Ok(pattern) => pattern,
        Err(error) => return reply.error(&error.bare_text()),
    };
    let filter = |command: &Named| match args.len() {
        2 => true,
        _ if args.is(3, "module") => word == b"midi" && !command.prefix.is_empty(),
        _ if args.is(3, "aclcat") => {
            command.row().category_words().any(|category| category.as_bytes() == word)
        }
        _ => pattern.matches(command.full_name().as_bytes()),
    };
    let known = ["module", "aclcat", "pattern"].into_iter().any(|kind| args.is(3, kind));
    if args.len() != 2 && !(args.len() == 5 && args.is(2, "filterby") && known) {
        return reply.error(&Error::Syntax.text("command|list", args));
    }
    let with_subcommands =
        all().flat_map(|command| [command].into_iter().chain(subcommands_of(command)));
    let found: Vec<Named> = with_subcommands.filter(filter).collect();
    reply.array(found.len());
    found.into_iter().for_each(|command| reply.bulk(command.full_name().as_bytes()));
}

/// `COMMAND GETKEYS command ...` and COMMAND GETKEYSANDFLAGS.
fn get_keys(args: &Args<'_>, with_flags: bool, reply: &mut RespReply<'_>) {
    let call = Args::new(args.from(2));
    let keys = match keys_of(&call) {
        Ok(keys) => keys,
        Err(text) => return reply.error(text),
    };
    reply.array(keys.len());
    for (key, access) in keys {
        if with_flags {
            reply.array(2);
        }
        reply.bulk(key);
        if with_flags {
            words(access.words(), reply);
        }
    }
}

fn keys_of<'a>(call: &Args<'a>) -> Result<Vec<(&'a [u8], Access)>, &'static [u8]> {
    let Some(FoundCommand::Command(command)) = find_call(call) else {
        return Err(b"ERR Invalid command specified");
    };
    let (row, keys) = (command.row(), command.row().keys);
    if keys.specs().is_empty() {
        return Err(b"ERR The command has no key arguments");
    }
    if !row.takes(call) {
        return Err(b"ERR Invalid number of arguments specified for command");
    }
    let positions = keys.positions(call).enumerate();
    let keys: Vec<_> =
        positions.map(|(number, at)| (call.get(at), keys.access(number, call))).collect();
    // A script may have none.
    if keys.is_empty() && !row.flags.script {
        return Err(b"ERR Invalid arguments specified for command");
    }
    Ok(keys)
}
