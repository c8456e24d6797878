//! The promise: a command that finds keys by itself (MIDI.IMPORT, EXPORT, POPULATE, KEYSPACEDIGEST)
//! does nothing that its user could not do to each key by hand, on both doors. Its refusal does not
//! tell which keys are there.

use crate::common::hold::with_calls;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value};

const NO_KEY: &str =
    "NOPERM this user has no permissions to access one of the keys used as arguments";

/// A way to copy keys, and the prefix of the commands where they are and where they go.
const WAYS: [(&str, &str, &str); 2] = [("MIDI.IMPORT", "", "MIDI."), ("MIDI.EXPORT", "MIDI.", "")];

fn set_user(admin: &mut Client, name: &str, rules: &[&str]) {
    let password = format!(">{name}");
    let head = ["ACL", "SETUSER", name, "reset", "on", &password];
    assert_eq!(admin.call(&[&head[..], rules].concat()), Value::ok(), "{rules:?}");
}

fn doors(ported: &Ported, user: &str) -> [(&'static str, Client); 2] {
    [("host", ported.host_of(user)), ("port", ported.client_of(user))]
}

/// It makes keys as POPULATE does.
#[test]
fn debug_populate_needs_the_rights_to_populate() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    let refused = |client: &mut Client, line: &str| {
        assert!(client.run(line).text().starts_with("NOPERM"), "{line}");
        client.ok("MULTI");
        assert!(client.run(line).text().starts_with("NOPERM"), "{line}");
        assert!(client.run("EXEC").text().starts_with("EXECABORT"), "{line}");
    };
    set_user(&mut admin, "some", &["~app:*", "+@all"]);
    let mut some = ported.client_of("some");
    some.ok("DEBUG POPULATE 3 app");
    refused(&mut some, "DEBUG POPULATE 3 session");
    refused(&mut some, "DEBUG POPULATE 3");
    set_user(&mut admin, "all", &["~*", "+@all", "-restore", "-midi.populate"]);
    refused(&mut ported.client_of("all"), "DEBUG POPULATE 3");
    assert_eq!(admin.integer("MIDI.DBSIZE"), 3);
}

/// Keys that the rights of no one selector reach, as an attacker would have them.
#[test]
fn rights_of_several_selectors_do_not_add_up() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    let all = ["+midi.import", "+midi.export", "+restore", "+get", "+set", "+del", "+midi.get"];
    let own = [&["~app:*", "-@all"], &all[..], &["+midi.set", "+midi.del"]].concat();
    let selectors = [
        "(~secret:* +append +midi.append)",
        "(~secret:* +get +midi.get)",
        "(~secret:* +set +midi.set +del +midi.del)",
        "(%W~secret:* +@all) (%R~secret:* -@all +@read)",
    ];
    for (number, selector) in selectors.iter().enumerate() {
        let user = format!("u{number}");
        let selector: Vec<&str> = selector.split_inclusive(") ").map(str::trim).collect();
        // The last user may do everything, but with different keys.
        let rules = [&own[..], &selector].concat();
        set_user(&mut admin, &user, &rules);
        let may_all = number == 3;
        for (copy, from, to) in WAYS {
            for (door, mut client) in doors(&ported, &user) {
                admin.ok(&format!("{from}SET secret:1 v"));
                for pattern in ["secret:*", "secret:1", "secret:none", "*", "secret:[1]", "s?cret*"]
                {
                    for options in ["", " MOVE", " REPLACE MOVE", " COUNT 1", " NOSUCH"] {
                        let line = format!("{copy} {pattern}{options}");
                        if may_all && pattern.starts_with("secret:") {
                            continue;
                        }
                        let reply = client.run(&line);
                        assert!(reply.text().starts_with("NOPERM"), "{line} {door}: {reply:?}");
                        assert!(admin.run(&format!("{to}GET secret:1")).is_null(), "{line} {door}");
                        let there = admin.run(&format!("{from}GET secret:1"));
                        assert_eq!(there, Value::bulk("v"), "{line} {door}");
                    }
                }
                admin.ok(&format!("{from}SET app:1 v"));
                let moved = client.run(&format!("{copy} app:* MOVE"));
                assert_eq!(moved, Value::integers(&[1, 0, 0]), "{copy} at {door}");
                for prefix in [from, to] {
                    admin.run(&format!("{prefix}DEL secret:1 app:1"));
                }
            }
        }
    }
}

/// Each command that does a part of the copy is needed, and the refusal names it. Selectors that
/// have them all do together what their user could do by hand.
#[test]
fn every_part_of_a_copy_needs_its_right() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    let parts = [["get", "midi.set", "del"], ["midi.get", "set", "midi.del"]];
    for ((copy, from, to), parts) in WAYS.into_iter().zip(parts) {
        let own = format!("+{}", copy.to_lowercase());
        for missing in parts {
            let given: Vec<String> = parts
                .iter()
                .filter(|part| **part != missing)
                .map(|part| format!("+{part}"))
                .collect();
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            set_user(&mut admin, "u", &[&["~*", "-@all", own.as_str()], &given[..]].concat());
            admin.ok(&format!("{from}SET k v"));
            for (door, mut client) in doors(&ported, "u") {
                let needs_all = !missing.ends_with("del");
                let alone = client.run(&format!("{copy} nosuch"));
                let refused = Value::error(&format!(
                    "NOPERM this user has no permissions to run the '{missing}' command"
                ));
                assert_eq!(alone == refused, needs_all, "{missing} at {door}: {alone:?}");
                assert_eq!(client.run(&format!("{copy} k MOVE")), refused, "{missing} at {door}");
                assert_eq!(admin.run(&format!("{from}GET k")), Value::bulk("v"));
            }
        }
        let selectors = parts.map(|part| format!("(~k* -@all +{part})"));
        let selectors = selectors.each_ref().map(String::as_str);
        set_user(&mut admin, "u", &[&["-@all", own.as_str()], &selectors[..]].concat());
        for (door, mut client) in doors(&ported, "u") {
            admin.ok(&format!("{from}SET k v"));
            let moved = client.run(&format!("{copy} k* MOVE REPLACE"));
            assert_eq!(moved, Value::integers(&[1, 0, 0]), "{copy} at {door}");
            assert_eq!(client.run(&format!("{copy} * MOVE")), Value::error(NO_KEY), "{door}");
        }
        admin.run(&format!("{to}DEL k"));
    }
}

/// Whether a key is there, and of which type it is, makes no difference to who may not touch it.
#[test]
fn a_refusal_tells_nothing() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    set_user(&mut admin, "u", &["+@all", "~app:*", "~one"]);
    admin.ok("MSET secret 1 app:1 1 one 1");
    admin.run("LPUSH secret:list 1");
    admin.ok("MIDI.MSET secret 1 app:2 1");
    for (door, mut client) in doors(&ported, "u") {
        for copy in ["MIDI.IMPORT", "MIDI.EXPORT"] {
            for pattern in
                ["secret", "secre?", "secret:list", "secret:*", "nosuch", "nosuc?", "*", ""]
            {
                let reply = client.call(&[copy, pattern]);
                assert_eq!(reply, Value::error(NO_KEY), "{copy} {pattern} at {door}");
            }
            for pattern in ["app:*", "app:none", "app:[12]", "one"] {
                assert!(!client.call(&[copy, pattern]).is_error(), "{copy} {pattern} at {door}");
            }
        }
        for (line, allowed) in [
            ("MIDI.POPULATE 1 app", true),
            ("MIDI.POPULATE 1 app:x", true),
            ("MIDI.POPULATE 1 ap", false),
            ("MIDI.POPULATE 1 secret", false),
            ("MIDI.POPULATE 1", false),
            // A digest tells who guesses right.
            ("MIDI.KEYSPACEDIGEST", false),
            ("MIDI.KEYSPACEDIGEST 0", false),
        ] {
            let reply = client.run(line);
            assert_eq!(reply != Value::error(NO_KEY), allowed, "{line} at {door}: {reply:?}");
        }
        // Names are no secret to who may list them: so it is on the host.
        assert!(client.run("MIDI.KEYS *").array().len() > 3);
    }
    assert!(admin.run("MIDI.EXISTS secret:0 key:0 ap:0").integer() == 0);
}

/// In transactions, scripts and other modules' calls in a user's name, too. The host runs the last
/// two with clients of a pool, which may have served another user before.
#[test]
fn every_way_is_judged() {
    let ported = Ported::start(with_calls(Mode::Adaptive.builder()));
    let mut admin = ported.host();
    set_user(&mut admin, "u", &["+@all", "~app:*"]);
    admin.ok("SET secret 1");
    let line = ["MIDI.IMPORT", "secre?", "MOVE"];
    for (door, mut client) in doors(&ported, "u") {
        client.ok("MULTI");
        let queued = client.call(&line);
        let done = client.run("EXEC");
        let reply = if queued.is_error() { queued } else { done.array().remove(0) };
        assert_eq!(reply, Value::error(NO_KEY), "{door}");
    }
    let script = [&["EVAL", "return redis.pcall(unpack(ARGV))", "0"], &line[..]].concat();
    let call = [&["CALLS.RUN", "C", "3"], &line[..]].concat();
    let mut client = ported.host_of("u");
    for _ in 0..3 {
        // A long command blocks its client, and takes clients of the pool.
        assert!(!admin.run("MIDI.KEYSPACEDIGEST").is_error());
        assert!(client.call(&script).text().starts_with("NOPERM"));
        assert!(!admin.run("MIDI.KEYSPACEDIGEST").is_error());
        assert_eq!(client.call(&call).array(), [Value::error(NO_KEY)]);
    }
    assert_eq!(admin.run("GET secret"), Value::bulk("1"));
    assert_eq!(admin.call(&script), Value::integers(&[1, 0, 0]));
}
