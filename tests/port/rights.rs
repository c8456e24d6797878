//! The promise: one rule decides what a user may do with midi's commands, whatever they are called
//! and whichever host it is: docs/port/access.md documents it. On Redis 7.0 it also holds at the
//! host's door; on later hosts the host itself decides at that door.

use std::collections::HashMap;

use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, skip};
use midi::command::{Args, Command, Doors, host_commands};

/// Rules on commands, each set with all keys. Sets after the first are selectors.
const USERS: [&[&str]; 19] = [
    &["+@all"],
    &["-@all"],
    &["+@all -@write"],
    &["+@all -@read"],
    &["+@all -@dangerous"],
    &["+@all -@keyspace -@slow"],
    &["+@all -@fast"],
    &["-@all +@read"],
    &["-@all +@write +@keyspace"],
    &["+@all -flushall"],
    &["+@all -get -set -object -restore"],
    &["+@all -midi.get"],
    &["+@all -@write +midi.set +midi.flushall"],
    &["+@all -set -midi.set +midi.set"],
    &["-@all +midi.get +midi.set"],
    &["-@all +get +set"],
    &["+@all -@write", "+midi.set"],
    &["-@all +midi.get", "+@all -@write -@read"],
    &["+@read", "-@all +midi.set +midi.jobs"],
];

/// Whether these rules name categories only: then midi's commands are allowed as their twins are.
fn is_of_categories(sets: &[&str]) -> bool {
    sets.iter().all(|rules| rules.split(' ').all(|rule| rule[1..].starts_with('@')))
}

/// The host's verdicts on one user.
struct Verdicts<'a> {
    admin: &'a mut Client,
    user: String,
}

impl Verdicts<'_> {
    /// `None` where the host has no such command.
    fn allows(&mut self, name: &str, arguments: &[&str]) -> Option<bool> {
        let (container, sub) =
            name.split_once('|').map_or((name, None), |(name, sub)| (name, Some(sub)));
        let mut call = vec!["ACL", "DRYRUN", &self.user, container];
        call.extend(sub);
        call.extend(arguments);
        let said = self.admin.call(&call);
        let text = said.text();
        if said == Value::ok() {
            Some(true)
        } else if said.is_error() {
            assert!(text.contains("not found"), "{call:?}: {text}");
            None
        } else {
            Some(false)
        }
    }
}

/// Arguments of the right number.
fn arguments(row: &Command) -> Vec<&'static str> {
    let mut arguments = vec!["1"; row.arity.unsigned_abs() as usize - 1];
    match row.name {
        "object" => arguments = vec!["encoding", "1"],
        "memory" => arguments = vec!["usage", "1"],
        "slowlog" => arguments = vec!["len"],
        _ => {}
    }
    arguments
}

/// Hosts judge a command only with the right number of arguments, and a twin takes others.
fn arguments_of_twin(name: &str, row: &Command) -> Vec<&'static str> {
    match name {
        "restore" | "hset" => vec!["1", "1", "1"],
        "client|kill" => vec!["id", "1"],
        "mset" | "set" | "hget" | "hdel" => vec!["1", "1"],
        "getdel" | "get" | "keys" => vec!["1"],
        "command|docs" => vec![],
        _ => arguments(row),
    }
}

/// The host's verdicts on a row and on its twin, under one set of rules.
struct Host {
    row: bool,
    twin: bool,
}

fn judged_by_host(admin: &mut Client, user: &str, row: &Command) -> Host {
    let mut verdicts = Verdicts { admin, user: user.into() };
    let own = [row.name];
    let twins = if row.twins.is_empty() { &own[..] } else { row.twins };
    let twin = twins.iter().find_map(|name| verdicts.allows(name, &arguments_of_twin(name, row)));
    Host {
        row: verdicts.allows(&format!("midi.{}", row.name), &arguments(row)).expect("registered"),
        twin: twin.expect("a native command"),
    }
}

/// Whether midi's rule allows a row, under one set of rules.
fn allowed_by_midi(admin: &mut Client, user: &str, kept: &str, row: &Command) -> bool {
    let named = kept.split(' ').any(|rule| rule == format!("+midi.{}", row.name));
    let host = judged_by_host(admin, user, row);
    host.row && (host.twin || named || kept.starts_with("-@all"))
}

/// Whether some set of rules allows each command that does a part of what this one does. At the
/// host's door (`at_host`) of a host with categories, its own verdict counts.
fn may_do_its_parts(
    admin: &mut Client,
    parts: &[(String, String)],
    row: &Command,
    at_host: bool,
) -> bool {
    let given = arguments(row);
    let args: Vec<&[u8]> =
        [row.name].iter().chain(&given).map(|argument| argument.as_bytes()).collect();
    let steps = row.walk.map_or(&[][..], |walk| (walk.steps)(&Args::new(&args)));
    steps.iter().all(|step| {
        let known = step.command.strip_prefix("midi.");
        let of_midi = known.map(|name| host_commands().find(|row| row.name == name));
        parts.iter().any(|(user, kept)| match of_midi {
            Some(of_midi) => {
                let of_midi = of_midi.expect("a row");
                let of_host = at_host && judged_by_host(admin, user, of_midi).row;
                of_host || allowed_by_midi(admin, user, kept, of_midi)
            }
            None => {
                let words: &[&str] = if step.command == "set" { &["1", "1"] } else { &["1"] };
                let mut verdicts = Verdicts { admin, user: user.clone() };
                verdicts.allows(step.command, words).expect("native")
            }
        })
    })
}

/// The rules of a user as the host keeps them: newer hosts keep the text as given, older ones
/// generate it.
fn kept_rules(admin: &mut Client, user: &str) -> String {
    admin.run(&format!("ACL GETUSER {user}")).map()["commands"].text()
}

fn is_refused(client: &mut Client, name: &str, arguments: &[&str]) -> bool {
    let mut call = vec![name];
    call.extend(arguments);
    let reply = client.call(&call);
    reply.is_error() && reply.text().starts_with("NOPERM")
}

#[test]
fn every_row_is_to_be_had_by_those_who_may() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    let knows_categories = knows_categories(&mut admin);
    let (mut refused, mut allowed) = (0, 0);
    for (number, sets) in USERS.into_iter().enumerate() {
        let user = format!("u{number}");
        let password = format!(">{user}");
        let mut create = vec!["ACL", "SETUSER", &user, "on", &password, "~*"];
        create.extend(sets[0].split(' '));
        let selectors: Vec<String> =
            sets[1..].iter().map(|rules| format!("(~* {rules})")).collect();
        create.extend(selectors.iter().map(String::as_str));
        assert_eq!(admin.call(&create), Value::ok(), "{create:?}");
        // A user for each set of rules: the host judges all sets of a user together.
        let parts: Vec<String> = (0..sets.len()).map(|part| format!("{user}-{part}")).collect();
        for (part, rules) in parts.iter().zip(sets) {
            let mut create = vec!["ACL", "SETUSER", part, "~*"];
            create.extend(rules.split(' '));
            assert_eq!(admin.call(&create), Value::ok(), "{create:?}");
        }
        let parts: Vec<(String, String)> =
            parts.into_iter().map(|part| (part.clone(), kept_rules(&mut admin, &part))).collect();
        let (mut host, mut port) = (ported.host_of(&user), ported.client_of(&user));
        // A command of the host's door alone is for no client.
        for row in host_commands().filter(|row| row.doors != Doors::Host) {
            let name = format!("midi.{}", row.name);
            let (mut at_port, mut at_host, mut twin) = (false, false, false);
            for (part, kept) in &parts {
                let host = judged_by_host(&mut admin, part, row);
                at_port |= allowed_by_midi(&mut admin, part, kept, row);
                at_host |= host.row;
                twin |= host.twin;
            }
            at_port &= may_do_its_parts(&mut admin, &parts, row, false);
            at_host &= may_do_its_parts(&mut admin, &parts, row, true);
            if is_of_categories(sets) && !is_known_exception(row, sets, knows_categories) {
                assert_eq!(at_port, twin, "{name} and its twin with {sets:?}");
            }
            let given = arguments(row);
            for name in [row.name, name.as_str()] {
                assert_eq!(
                    !is_refused(&mut port, name, &given),
                    at_port,
                    "{name} at the port with {sets:?}"
                );
            }
            let at_host = if knows_categories { at_host } else { at_port };
            assert_eq!(
                !is_refused(&mut host, &name, &given),
                at_host,
                "{name} at the host with {sets:?}"
            );
            if at_port { allowed += 1 } else { refused += 1 }
        }
    }
    println!("{refused} refused, {allowed} allowed");
    assert!(refused > 300 && allowed > 300, "{refused} refused, {allowed} allowed");
}

/// From 7.2 on hosts know the categories of modules' commands.
fn knows_categories(admin: &mut Client) -> bool {
    let info = admin.run("COMMAND INFO midi.get").array().remove(0).array();
    info[6].clone().array().contains(&Value::Simple(b"@read".to_vec()))
}

/// Where verdicts by category differ between a command and its twin.
fn is_known_exception(row: &Command, sets: &[&str], knows_categories: bool) -> bool {
    // Redis 7.0 gives no module command to a user with categories: it has to be named.
    let given_categories = |rules: &&str| rules.contains("+@") && !rules.starts_with("+@all");
    (!knows_categories && sets.iter().any(given_categories))
        // These need the rights to other commands, too.
        || row.walk.is_some()
        // Their twins are commands about connections, which these are not.
        || matches!(row.name, "jobs" | "help")
        // It is fast. Where the host does not have it, its twin is SET, which is not.
        || row.name == "increx"
}

/// On Redis 7.0 midi remembers a client's rights as long as its user is the same.
#[test]
fn another_user_has_other_rights() {
    for mode in Mode::tried() {
        let ported = Ported::start(mode.builder());
        let mut admin = ported.host();
        if knows_categories(&mut admin) {
            return skip("this host knows the categories of midi's commands: its verdict holds");
        }
        admin.ok("ACL SETUSER reader on >reader ~* +@all -@write");
        admin.ok("ACL SETUSER writer on >writer ~* +@all");
        let mut client = ported.host();
        let refused =
            Value::error("NOPERM this user has no permissions to run the 'midi.set' command");
        let may = |client: &mut Client, yes: bool| {
            let reply = client.run("MIDI.SET k v");
            assert_eq!(reply, if yes { Value::ok() } else { refused.clone() });
            // Everyone may read, and the remembered right to read is not the right to write.
            assert!(!client.run("MIDI.GET k").is_error());
        };
        may(&mut client, true);
        client.ok("AUTH reader reader");
        may(&mut client, false);
        assert!(!client.run("HELLO 2 AUTH writer writer").is_error());
        may(&mut client, true);
        assert!(!client.run("HELLO 3 AUTH reader reader").is_error());
        may(&mut client, false);
        client.run("RESET");
        may(&mut client, true);
        // In a transaction, and from a script, the current user counts.
        client.ok("MULTI");
        for line in ["MIDI.SET k v", "AUTH reader reader", "MIDI.SET k w", "MIDI.GET k"] {
            assert_eq!(client.run(line), Value::Simple(b"QUEUED".to_vec()));
        }
        let replies = client.run("EXEC").array();
        assert_eq!(replies, [Value::ok(), Value::ok(), refused.clone(), Value::bulk("v")]);
        may(&mut client, false);
        let script = ["EVAL", "return redis.pcall('MIDI.SET', KEYS[1], 'x')", "1", "k"];
        assert!(client.call(&script).text().contains("NOPERM"), "a script is its caller's");
        assert_eq!(admin.call(&script), Value::ok());
        // A change of the rules holds from the next command on.
        admin.ok("ACL SETUSER reader +@write");
        may(&mut client, true);
        admin.ok("ACL SETUSER reader -@write");
        may(&mut client, false);
        let entries = admin.run("ACL LOG").array();
        let entry = entries[0].clone().map();
        assert_eq!(
            (entry["object"].text(), entry["username"].text()),
            ("midi.set".into(), "reader".into())
        );
    }
}

/// The same, if the filter cannot tell by name which commands switch or change users.
#[test]
fn renamed_commands_change_users_too() {
    for renamed in ["AUTH login", "WATCH look", "ACL rules"] {
        let ported = Ported::start(
            Mode::Adaptive
                .builder()
                .config(format!("rename-command {renamed}"))
                .config("user reader on nopass ~* +@all -@write")
                .config("user writer on nopass ~* +@all"),
        );
        let mut client = ported.host();
        if knows_categories(&mut client) {
            return skip("this host knows the categories of midi's commands: its verdict holds");
        }
        let auth = if renamed.starts_with("AUTH") { "login" } else { "AUTH" };
        for (user, allowed) in
            [("writer", true), ("reader", false), ("writer", true), ("reader", false)]
        {
            client.ok(&format!("{auth} {user} x"));
            assert_eq!(
                !is_refused(&mut client, "MIDI.SET", &["k", "v"]),
                allowed,
                "{user} with {renamed}"
            );
            assert!(!is_refused(&mut client, "MIDI.GET", &["k"]), "{user} with {renamed}");
        }
    }
}

/// OBJECT and MEMORY are one command each to the host, and their subcommands have rights of their
/// own: those of the native subcommands.
#[test]
fn subcommands_have_the_rights_of_native_ones() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    let knows_categories = knows_categories(&mut admin);
    let calls = [
        "OBJECT ENCODING k",
        "OBJECT FREQ k",
        "OBJECT IDLETIME k",
        "object refcount k",
        "OBJECT HELP",
        "MEMORY USAGE k",
        "MEMORY HELP",
    ];
    let mut refused = 0;
    for rules in [
        "+@all",
        "+@all -object|freq",
        "+@all -object|freq -object|help -memory|usage",
        "+@all -object +object|encoding",
        "+@all -@keyspace",
        "+@all -memory",
    ] {
        admin.ok(&format!("ACL SETUSER u reset on >u ~* {rules}"));
        let (mut host, mut port) = (ported.host_of("u"), ported.client_of("u"));
        for call in calls {
            let words: Vec<&str> = call.split(' ').collect();
            let native = is_refused(&mut host, words[0], &words[1..]);
            let prefixed = format!("MIDI.{}", words[0]);
            for name in [words[0], &prefixed] {
                let at_port = is_refused(&mut port, name, &words[1..]);
                assert_eq!(at_port, native, "{call} as {name} at the port with {rules}");
            }
            if !knows_categories {
                let at_host = is_refused(&mut host, &prefixed, &words[1..]);
                assert_eq!(at_host, native, "{call} at the host's door with {rules}");
            }
            refused += u32::from(native);
        }
        for client in [&mut host, &mut port] {
            let unknown = client.run("MIDI.OBJECT NOSUCH k").text();
            let is_denied = rules.contains("@keyspace") && unknown.starts_with("NOPERM");
            assert!(is_denied || unknown.starts_with("ERR unknown subcommand"), "{unknown}");
        }
    }
    assert!(refused > 10, "{refused}");
    // The name of a command means all its subcommands.
    admin.ok("ACL SETUSER u reset on >u ~* -@all +midi.object");
    for mut client in [ported.host_of("u"), ported.client_of("u")] {
        assert!(!is_refused(&mut client, "MIDI.OBJECT", &["FREQ", "k"]));
    }
}

/// A wrong number of arguments comes before the rights, and those before anything else that is
/// wrong with the arguments: so they tell nothing about a key to who may not touch it.
#[test]
fn rights_come_between_arity_and_syntax() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u +@all -persist -midi.persist %R~r* %W~w*");
    admin.ok("MSET r1 v w1 v x v");
    admin.ok("MIDI.MSET r1 v w1 v x v");
    let (mut host, mut port) = (ported.host_of("u"), ported.client_of("u"));
    for line in [
        "BITFIELD r1 GET REPLACE",
        "BITFIELD r1 GET u8",
        "BITFIELD r1 GET u8 0 NOSUCH",
        "BITFIELD r1 GET set 0",
        "BITFIELD r1 OVERFLOW set",
        "BITFIELD r1 OVERFLOW FAIL GET u8 0",
        "BITFIELD r1 OVERFLOW FAIL SET u8 0",
        "BITFIELD x GET",
        "BITFIELD",
        "BITFIELD r1",
        "BITFIELD_RO r1 SET u8 0 1",
        "SET r1",
        "SET r1 v NOSUCH",
        "SET w1 v NOSUCH",
        "SET w1 v EX GET",
        "SET w1 v GET",
        "SET x v EX 0",
        "GETEX r1 NOSUCH",
        "GETEX x",
        "EXPIRE r1 x",
        "EXPIRE w1 x",
        "COPY r1 x NOSUCH",
        "COPY r1 w1 NOSUCH",
        "COPY x w1 DB 99",
        "MOVE r1 99",
        "MSET w1 v x",
        "MSET w1 v x v",
        "LCS r1 x IDX NOSUCH",
        "OBJECT",
        "OBJECT NOSUCH r1",
        "OBJECT FREQ",
        "BITOP NOSUCH w1 r1",
        "BITOP NOSUCH x r1",
        "BITOP AND w1 x",
        "PERSIST",
        "PERSIST w1",
        "GETRANGE x a b",
        "RESTORE r1 x y",
    ] {
        let native = beginning(&host.run(line));
        let midi = format!("MIDI.{line}");
        for (door, reply) in
            [("host", host.run(&midi)), ("port", port.run(line)), ("port", port.run(&midi))]
        {
            assert_eq!(beginning(&reply), native, "{line} at {door}: {reply:?}");
        }
    }
}

/// The kind of a reply: no error, a wrong number of arguments, no rights to the command or the
/// keys, or another error.
fn beginning(reply: &Value) -> &'static str {
    let text = if reply.is_error() { reply.text() } else { String::new() };
    // Newer hosts say the same in other words.
    let kinds = [
        ("wrong number of arguments", "arity"),
        ("one of the keys", "key"),
        ("access a key", "key"),
        ("access the '", "key"),
        ("to run the", "command"),
        ("unknown subcommand", "subcommand"),
        ("ERR", "other"),
    ];
    let kind = kinds.into_iter().find(|(words, _)| text.contains(words)).map(|(_, kind)| kind);
    assert!(kind.is_some() || text.is_empty(), "{text}");
    kind.unwrap_or_default()
}

/// A selector allows its commands on its own keys only; another may allow what one denies.
#[test]
fn selectors_and_keys_are_judged_together() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    let create = [
        "ACL",
        "SETUSER",
        "u",
        "on",
        ">u",
        "~*",
        "+@all",
        "-@write",
        "(+midi.set +midi.del ~a*)",
        "(+midi.append ~b*)",
    ];
    assert_eq!(admin.call(&create), Value::ok());
    let (mut host, mut port) = (ported.host_of("u"), ported.client_of("u"));
    let expected: HashMap<&str, bool> = [
        ("MIDI.SET a1 v", true),
        ("MIDI.SET b1 v", false),
        ("MIDI.APPEND b1 v", true),
        ("MIDI.APPEND a1 v", false),
        ("MIDI.DEL a1 a2", true),
        ("MIDI.DEL a1 b1", false),
        ("MIDI.GET b1", true),
        ("MIDI.MGET a1 b1 c1", true),
        ("MIDI.FLUSHALL", false),
    ]
    .into();
    for (line, allowed) in expected {
        let said = [host.run(line), port.run(line)];
        for reply in said {
            let refused = reply.is_error() && reply.text().starts_with("NOPERM");
            assert_eq!(!refused, allowed, "{line}: {reply:?}");
        }
    }
}

/// The host shows `%RW~*` and `~*` alike, but treats the empty key differently.
#[test]
fn a_pattern_for_all_keys_is_not_all_keys() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    for (number, keys) in ["~*", "%RW~*", "%R~*", "allkeys"].into_iter().enumerate() {
        let user = format!("u{number}");
        admin.ok(&format!("ACL SETUSER {user} on >{user} +@all {keys}"));
        let (mut host, mut port) = (ported.host_of(&user), ported.client_of(&user));
        for key in ["", "k"] {
            for call in [
                ["MIDI.GET", key].to_vec(),
                ["MIDI.SET", key, "v"].to_vec(),
                ["MIDI.DEL", key, key].to_vec(),
            ] {
                let refused = |reply: Value| reply.is_error() && reply.text().starts_with("NOPERM");
                assert_eq!(
                    refused(port.call(&call)),
                    refused(host.call(&call)),
                    "{call:?} with {keys}"
                );
            }
        }
    }
}
