//! The promise: midi's port admits the users that the host would admit, and gives them the rights
//! they have at the host. A change of their rules holds from the next command on.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::hosts::same_answer;
use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Random, Value, redis_server, wait_until, words};

fn ported() -> Ported {
    Ported::start(Mode::Adaptive.builder())
}

/// Runs the lines at both ports: the replies must be the same.
fn same(ported: &Ported, lines: &[&str]) {
    let (mut host, mut port) = (ported.host(), ported.client());
    for line in lines {
        check(line, &host.run(line), &port.run(line));
    }
}

/// Compares the replies of both ports.
#[track_caller]
fn check(line: &str, host: &Value, port: &Value) {
    let command = line.split(' ').next().unwrap_or_default();
    assert!(same_answer(command, host, port), "{line}: {port:?}, and not {host:?}");
}

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn logins_are_answered_as_by_the_host() {
    let ported = ported();
    let mut admin = ported.host();
    same(&ported, &["AUTH x", "AUTH default x", "AUTH nobody x", "AUTH a b c", "MIDI.GET k"]);
    admin.ok("ACL SETUSER open on nopass +@all ~*");
    admin.ok("ACL SETUSER two on >one >two +@all ~*");
    admin.ok("ACL SETUSER shut off >p +@all ~*");
    admin.ok("ACL SETUSER bare on +@all ~*");
    let logins = [
        "AUTH open anything",
        "AUTH two one",
        "AUTH two two",
        "AUTH two three",
        "AUTH TWO one",
        "AUTH shut p",
        "AUTH bare p",
        "AUTH nobody p",
        "MIDI.GET k",
    ];
    same(&ported, &logins);
    admin.ok("CONFIG SET requirepass secret");
    let mut admin = ported.host();
    admin.ok("AUTH secret");
    same(&ported, &["MIDI.GET k", "PING", "MIDI.GET", "AUTH", "AUTH wrong", "AUTH default wrong"]);
    same(
        &ported,
        &["HELLO 3 AUTH default wrong", "HELLO 3", "HELLO 9 AUTH default secret", "MIDI.GET k"],
    );
    same(&ported, &["AUTH wrong", "AUTH secret", "MIDI.GET k", "PING"]);
    same(&ported, &["AUTH default secret", "AUTH default wrong", "PING"]);
    let mut port = ported.client();
    assert!(!port.run("HELLO 2 AUTH two two").is_error());
    assert!(port.run("GET k").is_null());
    admin.ok("ACL SETUSER default off");
    same(&ported, &["PING", "AUTH secret", "AUTH default secret", "AUTH two one", "PING"]);
    admin.ok("ACL SETUSER default on nopass");
    same(&ported, &["PING", "AUTH secret", "MIDI.GET k"]);
}

/// A client that connects when no password is set stays logged in when one is set later.
#[test]
fn a_password_concerns_newcomers() {
    let ported = ported();
    let (mut admin, mut old) = (ported.host(), ported.client());
    old.ok("SET k v");
    admin.ok("CONFIG SET requirepass secret");
    assert_eq!(old.run("GET k"), Value::bulk("v"));
    let mut new = ported.client();
    assert_eq!(new.run("GET k"), Value::error("NOAUTH Authentication required."));
    assert_eq!(admin.call(&["CONFIG", "SET", "requirepass", ""]), Value::ok());
    assert_eq!(new.run("GET k"), Value::bulk("v"));
    admin.ok("MULTI");
    admin.run("CONFIG SET requirepass other");
    admin.run("EXEC");
    assert_eq!(ported.client().run("GET k"), Value::error("NOAUTH Authentication required."));
}

#[test]
fn refusals_say_what_the_host_says() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok(
        "ACL SETUSER u on >u -@all +midi.get +midi.mget +midi.rename +midi.set +midi.copy ~a:* \
         %R~r:* %W~w:*",
    );
    let lines = [
        "MIDI.GET a:1",
        "MIDI.GET r:1",
        "MIDI.GET w:1",
        "MIDI.GET x",
        "MIDI.MGET a:1 r:1",
        "MIDI.MGET a:1 x r:1",
        "MIDI.SET w:1 v",
        "MIDI.SET r:1 v",
        "MIDI.COPY r:1 w:2",
        "MIDI.COPY w:1 w:2",
        "MIDI.COPY r:1 r:2",
        "MIDI.RENAME a:1 w:1",
        "MIDI.RENAME r:1 a:1",
        "MIDI.DEL a:1",
        "MIDI.KEYS *",
        "MIDI.DBSIZE",
    ];
    let (mut host, mut port) = (ported.host_of("u"), ported.client_of("u"));
    for line in lines {
        check(line, &host.run(line), &port.run(line));
    }
    assert!(port.run("GET a:1").is_null());
    assert!(port.run("GET x").text().starts_with("NOPERM"));
}

#[test]
fn commands_of_the_port_have_their_own_names() {
    let ported = ported();
    ported.host().ok("ACL SETUSER u on >u -@all +echo +midi.get ~*");
    let (mut host, mut port) = (ported.host_of("u"), ported.client_of("u"));
    for line in ["ECHO x", "PING", "SELECT 1", "TIME", "AUTH u u", "HELLO 2"] {
        let (host, port) = (host.run(line), port.run(line));
        assert_eq!(port.is_error(), host.is_error(), "{line}: {port:?}");
        if host.is_error() {
            check(line, &host, &port);
        }
    }
}

/// A reply that is not a refusal proves nothing about rights.
fn refusal(reply: Value) -> Option<Value> {
    reply.text_if_error().is_some_and(|text| text.starts_with("NOPERM")).then_some(reply)
}

trait IfError {
    fn text_if_error(&self) -> Option<String>;
}

impl IfError for Value {
    fn text_if_error(&self) -> Option<String> {
        self.is_error().then(|| self.text())
    }
}

#[test]
fn rules_hold_from_the_next_command_on() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u +@all ~*");
    let mut port = ported.client_of("u");
    port.ok("SET k v");
    for (rules, line, allowed) in [
        ("-midi.get", "GET k", false),
        ("+midi.get", "GET k", true),
        ("resetkeys", "GET k", false),
        ("~k", "GET k", true),
        ("~k", "GET l", false),
        ("-@all", "GET k", false),
        ("resetkeys (+midi.get ~k)", "GET k", true),
        ("clearselectors", "GET k", false),
        ("(+midi.set ~k) (+midi.get ~l)", "GET k", false),
        ("(+midi.get %R~*)", "GET k", true),
        ("off", "GET k", true),
        ("reset on >u", "GET k", false),
        ("+@all ~*", "PING", true),
        ("-ping", "PING", false),
    ] {
        let mut words = vec!["ACL", "SETUSER", "u"];
        words.extend(split_rules(rules));
        assert_eq!(admin.call(&words), Value::ok(), "{rules}");
        let reply = port.run(line);
        assert_eq!(refusal(reply.clone()).is_none(), allowed, "{line} after {rules}: {reply:?}");
    }
    admin.ok("MULTI");
    admin.run("ACL SETUSER u -@all");
    admin.run("EXEC");
    assert!(port.run("GET k").is_error());
}

/// Once the reply to a change has arrived, the change holds: also in a transaction, beside others'
/// transactions, and whatever the connections are doing.
#[test]
fn no_command_after_the_reply_is_judged_by_old_rules() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u +@all ~*");
    let mut clients: Vec<Client> = (0..4).map(|_| ported.client_of("u")).collect();
    let echoes = vec![words("ECHO x"); 16];
    let transaction = ["MULTI", "SET a b", "EXEC"].map(words);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut port, mut host) = (ported.client_of("u"), ported.host());
            while !stop.load(Ordering::Relaxed) {
                port.pipeline(&echoes);
                host.pipeline(&transaction);
            }
        });
        for round in 0..300 {
            let (rule, allowed) =
                if round % 2 == 0 { ("-midi.get", false) } else { ("+midi.get", true) };
            let change = format!("ACL SETUSER u {rule}");
            if round % 3 == 0 {
                admin.pipeline(&["MULTI", &change, "EXEC"].map(words));
            } else {
                admin.ok(&change);
            }
            let judged = clients.iter_mut().all(|client| client.run("GET k").is_error() != allowed);
            if !judged {
                stop.store(true, Ordering::Relaxed);
                panic!("round {round}: {change} does not hold");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Earlier ACL commands about the same user do not hide a change, be it in one pipeline or in a
/// transaction whose EXEC comes later.
#[test]
fn a_change_among_many_that_are_none_is_seen() {
    a_change_is_seen(&ported(), "MULTI");
}

/// The same, where transactions begin with another word.
#[test]
fn a_change_in_a_renamed_multi_is_seen() {
    let builder = Mode::Adaptive.builder().config("rename-command MULTI begin");
    a_change_is_seen(&Ported::start(builder), "begin");
}

fn a_change_is_seen(ported: &Ported, multi: &str) {
    let (mut admin, mut other) = (ported.host(), ported.host());
    admin.ok("ACL SETUSER u on >u +@all ~*");
    let mut port = ported.client_of("u");
    let none = vec![words("ACL SETUSER u on"); 50];
    for round in 0..30 {
        let (rule, allowed) =
            if round % 2 == 0 { ("-midi.get", false) } else { ("+midi.get", true) };
        let change = vec![words(&format!("ACL SETUSER u {rule}"))];
        let said = [none.clone(), change, none.clone()].concat();
        if round % 3 == 0 {
            admin.ok(multi);
            admin.pipeline(&said);
            other.pipeline(&none);
            assert_eq!(port.run("GET k").is_error(), allowed, "round {round}: not yet");
            assert_eq!(admin.run("EXEC").array().len(), said.len());
        } else {
            assert!(admin.pipeline(&said).iter().all(|reply| *reply == Value::ok()));
        }
        assert_eq!(port.run("GET k").is_error(), !allowed, "round {round}");
    }
}

/// A selector is one word.
fn split_rules(rules: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = rules;
    while !rest.is_empty() {
        let end =
            if rest.starts_with('(') { rest.find(')').map(|at| at + 1) } else { rest.find(' ') };
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        words.push(word);
        rest = after.trim_start();
    }
    words
}

#[track_caller]
fn is_closed(client: &mut Client) {
    match client.try_call(&["PING"]) {
        Err(_) => {}
        Ok(reply) => panic!("still there: {reply:?}"),
    }
}

#[test]
fn connections_of_a_deleted_user_are_closed() {
    let ported = ported();
    let mut admin = ported.host();
    for user in ["u", "v", "w"] {
        admin.ok(&format!("ACL SETUSER {user} on >{user} +@all ~*"));
    }
    let mut clients = ["u", "v", "w"].map(|user| ported.client_of(user));
    clients.iter_mut().for_each(|client| client.ok("SET k v"));
    admin.integer("ACL DELUSER u nobody");
    is_closed(&mut clients[0]);
    // A new user of the same name is a different user.
    let lines = ["ACL DELUSER v", "ACL SETUSER v on >v +@all ~*a"].map(words);
    admin.pipeline(&lines);
    is_closed(&mut clients[1]);
    clients[2].ok("SET k v");
    assert_eq!(ported.client().run("AUTH u u"), Value::error(WRONG));
    assert!(ported.client_of("v").run("GET k").is_error());
}

/// Also those that send nothing, or wait for a reply.
#[test]
fn silent_connections_of_a_deleted_user_are_closed() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u +@all ~* &*");
    let mut clients = [(); 3].map(|()| ported.client_of("u"));
    assert!(!clients[1].run("SUBSCRIBE c").is_error());
    clients[2].send_line("WAIT 1 0");
    admin.integer("ACL DELUSER u");
    clients.iter_mut().for_each(|client| assert!(client.is_closed()));
}

/// Hosts before 7.2 do not report whose EXEC runs, so it might be one that replaces a user.
#[test]
fn connections_of_a_changed_user_stay_whatever_was_deleted_before() {
    let ported = ported();
    let mut admin = ported.host();
    for user in ["gone", "u"] {
        admin.ok(&format!("ACL SETUSER {user} on >{user} +@all ~*"));
    }
    let mut client = ported.client_of("u");
    admin.integer("ACL DELUSER gone");
    let transaction = ["MULTI", "PING", "EXEC"].map(words);
    for (rule, allowed) in [("-midi.get", false), ("+midi.get", true), ("-@all", false)] {
        let change = format!("ACL SETUSER u {rule}");
        admin.pipeline(&transaction);
        admin.ok(&change);
        assert_eq!(!client.run("GET k").is_error(), allowed, "{rule}");
        // All in one pipeline.
        admin.pipeline(&[transaction.to_vec(), vec![words(&change)]].concat());
        assert_eq!(!client.run("GET k").is_error(), allowed, "{rule}");
    }
}

/// As on the host, a user that is deleted and created again has to log in again, even if nothing
/// about it has changed.
#[test]
fn a_user_made_anew_is_another() {
    let ported = ported();
    let mut admin = ported.host();
    let again = ["ACL DELUSER u", "ACL SETUSER u on >other ~* +@all"].map(words);
    let same_again = ["ACL DELUSER u", "ACL SETUSER u on >u ~* +@all"].map(words);
    let in_transaction = [&[words("MULTI")][..], &again[..], &[words("EXEC")]].concat();
    for change in [&again[..], &same_again[..], &in_transaction[..]] {
        admin.integer("ACL DELUSER u");
        admin.ok("ACL SETUSER u on >u ~* +@all");
        admin.ok("ACL SETUSER bystander on >bystander ~* +@all");
        let (mut host, mut port) = (ported.host_of("u"), ported.client_of("u"));
        let mut bystander = ported.client_of("bystander");
        host.ok("MIDI.SET k v");
        port.ok("SET k v");
        bystander.ok("SET k v");
        admin.pipeline(change);
        is_closed(&mut host);
        is_closed(&mut port);
        bystander.ok("SET k v");
    }
}

/// The host counts what it has deleted, and CONFIG RESETSTAT takes the count back to what it may
/// have been before.
#[test]
fn a_user_made_anew_behind_a_resetstat_is_another() {
    let ported = ported();
    let mut admin = ported.host();
    let again = ["ACL DELUSER u", "ACL SETUSER u on >u ~* +@all"].map(words);
    admin.ok("ACL SETUSER weak on >weak ~* +ping");
    for _ in 0..3 {
        admin.ok("ACL SETUSER u on >u ~* +@all");
        let mut port = ported.client_of("u");
        port.ok("SET k v");
        let refused = ["CONFIG RESETSTAT", "ACL DELUSER u"].map(words);
        let replies = ported.host_of("weak").pipeline(&refused);
        assert!(replies.iter().all(Value::is_error), "{replies:?}");
        port.ok("SET k v");
        admin.ok("CONFIG RESETSTAT");
        admin.pipeline(&again);
        is_closed(&mut port);
    }
    // Also the other way round, in one turn.
    for _ in 0..2 {
        let mut port = ported.client_of("u");
        admin.pipeline(&[&again[..], &[words("CONFIG RESETSTAT")]].concat());
        is_closed(&mut port);
    }
    // One that is seen when it is queued, and executed behind a removal that was counted.
    let (mut port, mut weak) = (ported.client_of("u"), ported.client_of("weak"));
    admin.pipeline(&["MULTI", "CONFIG RESETSTAT"].map(words));
    ported.host().ok("CONFIG RESETSTAT");
    ported.host().integer("ACL DELUSER weak");
    is_closed(&mut weak);
    admin.pipeline(&[&again[..], &[words("EXEC")]].concat());
    is_closed(&mut port);
}

/// Anybody can send one.
#[test]
fn a_refused_deluser_ends_no_session() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u ~* +@all");
    let (mut of_default, mut of_user) = (ported.client(), ported.client_of("u"));
    for lines in [
        ["ACL SETUSER default -lcs", "ACL SETUSER u -lcs", "ACL DELUSER default u"],
        ["ACL DELUSER default u", "ACL SETUSER default +lcs", "ACL SETUSER u +lcs"],
    ] {
        admin.pipeline(&lines.map(words));
        for client in [&mut of_default, &mut of_user] {
            client.ok("SET k v");
        }
    }
}

/// From Redis 8 on another thread may answer before midi has read the users again.
#[test]
fn who_comes_while_a_password_is_set_needs_it() {
    let ported = Ported::start(Builder::new().config("io-threads 4"));
    let mut admin = ported.host();
    for round in 0..40 {
        let change = ["CONFIG SET requirepass s", "ACL SETUSER default resetpass >s"][round % 2];
        admin.ok(&format!("{change}{round}"));
        let mut client = ported.client();
        for _ in 0..2 {
            let reply = client.run("SET k v").text();
            assert!(reply.starts_with("NOAUTH"), "{round}: {reply}");
        }
        admin.ok("ACL SETUSER default nopass");
        wait_until("anybody may come", || ported.client().run("GET k").is_null());
    }
}

/// Hosts differ in which sessions ACL LOAD ends.
#[test]
fn acl_load_is_seen() {
    let (ported, file) = users_file::start();
    let mut admin = ported.host();
    let users = ["stays", "changes", "password", "goes"];
    for user in users {
        admin.ok(&format!("ACL SETUSER {user} on >{user} +@all ~*"));
    }
    admin.ok("ACL SAVE");
    let mut clients = users.map(|user| [ported.host_of(user), ported.client_of(user)]);
    clients.iter_mut().flatten().for_each(|client| client.ok("MIDI.SET k v"));
    let mut of_default = [ported.host(), ported.client()];
    of_default.iter_mut().for_each(|client| client.ok("MIDI.SET k v"));
    let text = fs::read_to_string(&file).expect("users");
    let line_of = |user: &str| {
        text.lines().find(|line| line.starts_with(&format!("user {user} "))).expect("saved")
    };
    let sum =
        |user: &str| line_of(user).split(' ').find(|word| word.starts_with('#')).expect("a sum");
    let text = [
        format!("{} -lcs", line_of("default")),
        line_of("stays").to_owned(),
        line_of("changes").replace("+@all", "-@all +midi.get"),
        line_of("password").replace(sum("password"), sum("stays")),
    ];
    fs::write(&file, text.join("\n") + "\n").expect("users");
    admin.ok("ACL LOAD");
    for (user, clients) in users.iter().zip(&mut clients) {
        for line in ["MIDI.GET k", "MIDI.SET k v"] {
            let said = clients.each_mut().map(|client| client.try_call(&words(line)).map_err(drop));
            let refused =
                |said: &Result<Value, ()>| said.as_ref().map(|reply| reply.is_error()).ok();
            assert_eq!(refused(&said[0]), refused(&said[1]), "{line} of {user}: {said:?}");
        }
    }
    is_closed(&mut clients[3][1]);
    let stays = of_default.map(|mut client| client.try_call(&["MIDI.GET", "k"]).is_ok());
    assert_eq!(stays[0], stays[1]);
    let mut changes = ported.client_of("changes");
    assert_eq!(changes.run("GET k"), Value::bulk("v"));
    assert!(changes.run("SET k v").is_error());
    assert_eq!(ported.client().run("AUTH password password"), Value::error(WRONG));
    assert_eq!(ported.client_of("stays").run("GET k"), Value::bulk("v"));
}

/// A client that connects before the host serves its own clients is not refused for lack of a
/// password.
#[test]
fn clients_that_come_early_are_let_in() {
    let mut ported = ported();
    let (number, stop) = (ported.number(), AtomicBool::new(false));
    thread::scope(|scope| {
        let comers: Vec<_> = (0..4).map(|_| scope.spawn(|| come_and_ask(number, &stop))).collect();
        for _ in 0..5 {
            ported.server.restart(redis_server());
        }
        stop.store(true, Ordering::Relaxed);
        let served: usize = comers.into_iter().map(|comer| comer.join().expect("no panic")).sum();
        println!("{served} were served");
        assert!(served > 20);
    });
}

/// Connects again and again; each connection asks until it is served or the server ends. Returns
/// how many were served.
fn come_and_ask(number: u16, stop: &AtomicBool) -> usize {
    let mut served = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::connect(number) else { continue };
        while let Ok(reply) = client.try_call(&["GET", "k"]) {
            if reply.is_null() {
                served += 1;
                break;
            }
            assert!(reply.text().starts_with("LOADING"), "{reply:?}");
        }
    }
    served
}

mod users_file {
    use super::*;

    pub fn start() -> (Ported, std::path::PathBuf) {
        let file = std::env::temp_dir().join(format!("midi-test-users-{}.acl", std::process::id()));
        fs::write(&file, "user default on nopass ~* &* +@all\n").expect("users");
        let ported = Ported::start(Builder::new().config(format!("aclfile {}", file.display())));
        (ported, file)
    }
}

fn log_entries(admin: &mut Client) -> Vec<(String, String, String)> {
    let entries = admin.run("ACL LOG").array().into_iter().map(Value::map);
    entries
        .map(|entry| (entry["reason"].text(), entry["object"].text(), entry["username"].text()))
        .collect()
}

#[test]
fn refusals_reach_the_hosts_list() {
    let ported = ported();
    let mut admin = ported.host();
    admin.ok("ACL SETUSER u on >u -@all +midi.get ~a");
    let mut port = ported.client_of("u");
    assert!(port.run("AUTH nobody x").is_error());
    assert!(port.run("AUTH u x").is_error());
    assert!(port.run("SET a v").is_error());
    assert!(port.run("GET b").is_error());
    assert!(port.run("PING").is_error());
    let wanted = [
        ("auth", "AUTH", "nobody"),
        ("auth", "AUTH", "u"),
        ("command", "midi.set", "u"),
        ("key", "b", "u"),
        ("command", "ping", "u"),
    ];
    let wanted = wanted.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    let mut entries = Vec::new();
    wait_until("the refusals are listed", || {
        entries = log_entries(&mut admin);
        entries.len() >= wanted.len()
    });
    entries.reverse();
    assert_eq!(entries, wanted);
}

/// A user has the same rights at the port as at the host, whatever the rules.
#[test]
fn random_rules_are_judged_as_by_the_host() {
    let ported = ported();
    let mut admin = ported.host();
    let mut random = Random::new(5);
    let (mut refused, mut allowed) = (0, 0);
    for round in 0..60 {
        let rules = random_rules(&mut random);
        let user = format!("u{round}");
        let password = format!(">{user}");
        let mut words = vec!["ACL", "SETUSER", &user, "on", &password];
        words.extend(rules.iter().map(String::as_str));
        assert_eq!(admin.call(&words), Value::ok(), "{words:?}");
        let (mut host, mut port) = (ported.host_of(&user), ported.client_of(&user));
        for _ in 0..60 {
            let call = random_call(&mut random);
            let (there, here) = (refusal(host.call(&call)), refusal(port.call(&call)));
            assert_eq!(here.is_some(), there.is_some(), "{call:?} with {rules:?}");
            if let (Some(there), Some(here)) = (&there, &here) {
                // Redis 7.0 checks keys before midi checks commands.
                let other_reason = here.text().contains("to run the");
                let same = other_reason || same_answer(call[0].as_ref(), there, here);
                assert!(same, "{call:?} with {rules:?}: {here:?}, and not {there:?}");
            }
            if there.is_some() { refused += 1 } else { allowed += 1 }
        }
    }
    println!("{refused} refused, {allowed} allowed");
    assert!(refused > 500 && allowed > 500, "{refused} refused, {allowed} allowed");
}

const KEYS: [&str; 6] = ["a", "b", "ab", "ba", "", "k[1]"];
const PATTERNS: [&str; 9] = ["*", "a*", "b", "?b", "[^a]*", "k\\[1]", "", "**", "ab"];
const CATEGORIES: [&str; 7] = ["read", "write", "keyspace", "string", "fast", "slow", "dangerous"];
const NAMES: [&str; 23] = [
    "get", "set", "mget", "mset", "del", "unlink", "exists", "rename", "renamenx", "copy", "move",
    "getdel", "getset", "append", "expire", "object", "memory", "msetex", "lcs", "keys", "dbsize",
    "swapdb", "increx",
];

fn random_selector(random: &mut Random) -> Vec<String> {
    let mut rules = vec![random.pick(&["+@all", "-@all", "-@all", "+@read", "+@write"]).to_owned()];
    for _ in 0..random.below(6) {
        let sign = random.pick(&["+", "+", "-"]);
        rules.push(match random.below(3) {
            0 => format!("{sign}@{}", random.pick(&CATEGORIES)),
            _ => format!("{sign}midi.{}", random.pick(&NAMES)),
        });
    }
    for _ in 0..random.below(4) {
        let right = random.pick(&["~", "~", "%R~", "%W~", "%RW~"]);
        rules.push(format!("{right}{}", random.pick(&PATTERNS)));
    }
    // The host shows `%RW~*` as `~*`, but treats the empty key differently then.
    rules.retain(|rule| rule != "%RW~*");
    if rules.iter().any(|rule| rule == "~*") {
        // After `~*` the host accepts no more key patterns.
        rules.retain(|rule| rule == "~*" || !rule.contains('~'));
    }
    rules
}

fn random_rules(random: &mut Random) -> Vec<String> {
    let mut rules = random_selector(random);
    for _ in 0..random.below(3) {
        rules.push(format!("({})", random_selector(random).join(" ")));
    }
    rules
}

fn random_call(random: &mut Random) -> Vec<String> {
    let name = random.pick(&NAMES);
    let mut key = || random.pick(&KEYS).to_owned();
    let mut call = vec![format!("midi.{name}")];
    call.extend(match name {
        "get" | "getdel" | "increx" => vec![key()],
        "set" | "getset" | "append" => vec![key(), "1".into()],
        "expire" => vec![key(), "1000".into()],
        "mget" | "del" | "unlink" | "exists" => vec![key(), key(), key()],
        "mset" => vec![key(), "1".into(), key(), "2".into()],
        "msetex" => vec!["2".into(), key(), "1".into(), key(), "2".into()],
        "rename" | "renamenx" | "copy" | "lcs" => vec![key(), key()],
        "move" => vec![key(), "1".into()],
        "object" => vec!["encoding".into(), key()],
        "memory" => vec!["usage".into(), key()],
        "keys" => vec!["*".into()],
        "swapdb" => vec!["0".into(), "1".into()],
        _ => vec![],
    });
    call
}
