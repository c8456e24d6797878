//! HELP of commands with subcommands.

use crate::command::{Arg, ArgKind, Args, COMMANDS, Named, Reply, subcommands};
use crate::net::resp::RespReply;

/// Answers HELP from the command table.
pub fn help(args: &Args<'_>, reply: &mut RespReply<'_>) {
    let name = args.get(0).to_ascii_uppercase();
    let container = Named::find(args.get(0));
    let numbers = container.into_iter().flat_map(|named| subcommands(named.number));
    let rows: Vec<_> = numbers
        .map(|number| COMMANDS[number])
        .filter_map(|row| Some((row.split()?.1, &row.docs)))
        .collect();
    reply.array(1 + 2 * rows.len());
    reply.status(
        &[&name[..], b" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"].concat(),
    );
    for (name, docs) in rows {
        let words: Vec<String> =
            [name.to_uppercase()].into_iter().chain(docs.args.iter().map(usage)).collect();
        reply.status(words.join(" ").as_bytes());
        reply.status(format!("    {}", docs.summary).as_bytes());
    }
}

/// How an argument is written in a usage line.
fn usage(arg: &Arg) -> String {
    let inner = |with| arg.kind.inner().iter().map(usage).collect::<Vec<_>>().join(with);
    let value = match arg.kind {
        ArgKind::Token => String::new(),
        ArgKind::OneOf(_) => format!("({})", inner("|")),
        ArgKind::Block(_) => inner(" "),
        _ => format!("<{}>", arg.name),
    };
    let value = match (arg.multiple, arg.kind.inner()) {
        (false, _) => value,
        (true, []) => format!("{value} [{value} ...]"),
        (true, _) => format!("{value} ..."),
    };
    let words = [arg.token.unwrap_or_default(), &value];
    let text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if arg.optional { format!("[{text}]") } else { text }
}
