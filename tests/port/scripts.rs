//! The promise: scripts and functions on midi's port run on midi's keys, with the host's replies,
//! and never on the host's keys. They are isolated, logged and replicated as one, and bound by the
//! rules that hold for their commands on the port.

use std::thread;
use std::time::Duration;

use crate::common::port::Ported;
use crate::common::replicas::{Pair, builder};
use crate::common::{Builder, Client, Mode, Value, aof, wait_until};

fn eval(script: &str, keys: &[&str], args: &[&str]) -> Vec<String> {
    call("EVAL", script, keys, args)
}

fn call(name: &str, script: &str, keys: &[&str], args: &[&str]) -> Vec<String> {
    let count = keys.len().to_string();
    let words = [&[name, script, &count], keys, args].concat();
    words.into_iter().map(str::to_owned).collect()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                       return redis.call('del', KEYS[1]) else return 0 end";
const LIMIT: &str = "local n = redis.call('INCR', KEYS[1]) \
                     if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end \
                     return {n, redis.call('PTTL', KEYS[1]) > 0}";
const LIBRARY: &str = "#!lua name=lib\n\
    redis.register_function('put', function(k, a) return redis.call('SET', k[1], a[1]) end)\n\
    redis.register_function{function_name='look', flags={'no-writes'}, \
    callback=function(k) return redis.call('GET', k[1]) end}";
const SHA_OF_ONE: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

/// Commands that must have the same replies on the host, with its own keys, and on the port.
fn corpus() -> Vec<Vec<String>> {
    let mut all = vec![
        eval("return redis.call('SET', KEYS[1], ARGV[1])", &["k"], &["v"]),
        eval("return redis.call('GET', KEYS[1])", &["k"], &[]),
        eval("return redis.call('get', 'undeclared')", &[], &[]),
        eval("redis.call('set', 'undeclared', 1) return redis.call('exists', 'k')", &[], &[]),
        eval(RELEASE, &["k"], &["other"]),
        eval(RELEASE, &["k"], &["v"]),
        eval(LIMIT, &["limit"], &["100000"]),
        eval(LIMIT, &["limit"], &["100000"]),
        eval("return {1, 'two', {3, false}, true, 4.9}", &[], &[]),
        eval("return redis.status_reply('FINE')", &[], &[]),
        eval("return redis.error_reply('MY own')", &[], &[]),
        eval("return {err='MY own'}", &[], &[]),
        eval("return redis.pcall('incr', KEYS[1])['err'] ~= nil", &["text"], &[]),
        eval("redis.call('set', KEYS[1], 'x') return 1", &["text"], &[]),
        eval("return redis.pcall('incrby', KEYS[1], 'x')['err']:sub(1, 4)", &["text"], &[]),
        eval("return {redis.call('ping'), redis.call('ECHO', 'x'), #redis.call('time')}", &[], &[]),
        eval("return redis.call('publish', 'channel', 'x')", &[], &[]),
        eval("redis.call('select', 3) return redis.call('set', 'in3', 1)", &[], &[]),
        words("GET in3"),
        words("SELECT 3"),
        words("GET in3"),
        eval("return {redis.call('dbsize'), redis.call('get', 'in3')}", &[], &[]),
        words("SELECT 0"),
        eval("return redis.call('MGET', KEYS[1], KEYS[2], 'none')", &["text", "limit"], &[]),
        eval("return redis.sha1hex('x')", &[], &[]),
        eval("return cjson.encode({1, 2})", &[], &[]),
        eval("return #KEYS + #ARGV", &["a", "b"], &["c"]),
        eval("return KEYS[2]", &["a", "b"], &[]),
        call("EVAL_RO", "return redis.call('GET', KEYS[1])", &["text"], &[]),
        words("SCRIPT LOAD return\u{a0}1"),
        vec!["SCRIPT".into(), "LOAD".into(), "return 1".into()],
        words(&format!("EVALSHA {SHA_OF_ONE} 0")),
        words(&format!("EVALSHA_RO {SHA_OF_ONE} 0")),
        words(&format!("SCRIPT EXISTS {SHA_OF_ONE} {}", "0".repeat(40))),
        words(&format!("EVALSHA {} 0", "0".repeat(40))),
        words("SCRIPT FLUSH"),
        words(&format!("SCRIPT EXISTS {SHA_OF_ONE}")),
        words("SCRIPT FLUSH NEVER"),
        words("EVAL return 1"),
        words("EVAL x"),
        words("EVAL x 5 a"),
        words("EVAL x -1"),
        words("EVAL x y"),
        words("SCRIPT"),
        words("SCRIPT NOSUCH"),
        words("SCRIPT KILL"),
        words("FUNCTION KILL"),
        vec!["FUNCTION".into(), "LOAD".into(), LIBRARY.into()],
        vec!["FUNCTION".into(), "LOAD".into(), LIBRARY.into()],
        vec!["FUNCTION".into(), "LOAD".into(), "REPLACE".into(), LIBRARY.into()],
        words("FCALL put 1 f v"),
        words("FCALL look 1 f"),
        words("FCALL_RO look 1 f"),
        words("FCALL_RO put 1 f w"),
        words("FCALL nosuch 0"),
        words("GET f"),
        words("FUNCTION LIST LIBRARYNAME nosuch"),
        words("FUNCTION STATS"),
        words("FUNCTION DELETE lib"),
        words("FUNCTION DELETE lib"),
        words("FUNCTION FLUSH"),
        words("MULTI"),
        words("SET m 1"),
        eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", &["m"], &["5"]),
        eval("return redis.call('INCRBY', 'text', 1)", &[], &[]),
        words("GET m"),
        words("EXEC"),
        words("DBSIZE"),
    ];
    all.push(eval("return redis.call('keys', 'te*')", &[], &[]));
    all
}

/// Whether replies are the same; of errors in a script the code and a few words are.
fn alike(native: &Value, own: &Value) -> bool {
    match (native, own) {
        (Value::Error(native), Value::Error(own)) => native.get(..12) == own.get(..12),
        (Value::Array(natives), Value::Array(owns)) => {
            natives.len() == owns.len() && natives.iter().zip(owns).all(|(a, b)| alike(a, b))
        }
        _ => native == own,
    }
}

#[test]
fn replies_are_those_of_the_host() {
    for mode in [Mode::Adaptive, Mode::Safe] {
        for resp3 in [false, true] {
            let (ported, plain) = (Ported::start(mode.builder()), Builder::plain().start());
            let (mut port, mut native) = (ported.client(), plain.client());
            if resp3 {
                (port, native) = (port.resp3(), native.resp3());
            }
            for command in corpus() {
                let (own, of_host) = (port.call(&command), native.call(&command));
                assert!(alike(&of_host, &own), "{command:?}: {own:?}, and not {of_host:?}");
            }
            // Once more, in one pipeline.
            for client in [&mut port, &mut native] {
                client.ok("FLUSHALL");
            }
            let (own, of_host) = (port.pipeline(&corpus()), native.pipeline(&corpus()));
            for ((command, own), of_host) in corpus().iter().zip(&own).zip(&of_host) {
                assert!(alike(of_host, own), "{command:?}: {own:?}, and not {of_host:?}");
            }
            assert_eq!(ported.host().integer("DBSIZE"), 0, "the host's keys");
        }
    }
}

#[test]
fn commands_that_midi_lacks_never_reach_the_hosts_keys() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut port, mut host) = (ported.client(), ported.host());
    host.ok("SET k hosts");
    for command in ["'lpush', 'l', 1", "'sort', 'k'", "'blpop', 'l', 0.1", "'sadd', 's', 1"] {
        let reply = port.call(&eval(&format!("return redis.call({command})"), &[], &[]));
        let text = reply.text();
        assert!(
            text.starts_with("ERR Unknown Redis command called from script: '")
                && text.contains("midi's commands"),
            "{text}"
        );
    }
    for command in ["'config', 'get', 'port'", "'flushdbs'", "'dbsize', 'x'", "'client', 'id'"] {
        let reply = port.call(&eval(&format!("return redis.call({command})"), &[], &[]));
        assert!(reply.is_error(), "{command}: {reply:?}");
    }
    assert!(port.call(&eval("return redis.call('midi.get', 'k')", &[], &[])).is_null());
    assert_eq!(port.call(&eval("return redis.call('flushall')", &[], &[])), Value::ok());
    assert_eq!(host.integer("DBSIZE"), 1);
    // A script of the host's own still runs on the host's keys.
    assert_eq!(host.call(&eval("return redis.call('get', 'k')", &[], &[])).text(), "hosts");
}

#[test]
fn scripts_are_isolated_from_both_doors() {
    for mode in [Mode::Adaptive, Mode::Safe] {
        let ported = Ported::start(mode.builder().load("shards 4"));
        let script = "local n = tonumber(redis.call('get', 'n') or 0) \
                      redis.call('set', 'm', n + 1) redis.call('set', 'n', n + 1) \
                      return redis.call('get', 'm') == redis.call('get', 'n')";
        let rounds = 200;
        thread::scope(|scope| {
            for number in 0..3 {
                let ported = &ported;
                scope.spawn(move || {
                    let mut client = if number == 2 { ported.host() } else { ported.client() };
                    for _ in 0..rounds {
                        let reply = if number == 2 {
                            client.run("MIDI.INCR n")
                        } else {
                            client.pipeline(&vec![eval(script, &[], &[]); 4]).pop().expect("4")
                        };
                        assert!(!reply.is_error() && !reply.is_null(), "{reply:?}");
                    }
                });
            }
        });
        assert_eq!(ported.client().run("GET n").text(), (rounds * 9).to_string());
    }
}

/// A script in a transaction is a part of it.
#[test]
fn a_transaction_with_a_script_is_isolated() {
    let ported = Ported::start(Mode::Adaptive.builder().load("shards 4"));
    ported.client().ok("SET n 0");
    thread::scope(|scope| {
        for number in 0..3 {
            let ported = &ported;
            scope.spawn(move || {
                let mut client = if number == 2 { ported.host() } else { ported.client() };
                let script = eval("return redis.call('incr', 'n')", &[], &[]);
                let commands =
                    [words("MULTI"), words("GET n"), script, words("GET n"), words("EXEC")];
                for _ in 0..100 {
                    if number == 2 {
                        client.integer("MIDI.INCR n");
                        continue;
                    }
                    let said = client.pipeline(&commands).pop().expect("EXEC's").array();
                    let before: i64 = said[0].text().parse().expect("a number");
                    assert_eq!(said[1], Value::Integer(before + 1));
                    assert_eq!(said[2].text(), (before + 1).to_string());
                }
            });
        }
    });
    assert_eq!(ported.client().run("GET n").text(), "300");
}

#[test]
fn effects_are_in_the_aof_and_on_replicas() {
    let write = eval(
        "for i = 1, 5 do redis.call('incr', KEYS[1] .. i) end \
         redis.call('setex', KEYS[1], 1000, ARGV[1]) return redis.call('del', 'gone')",
        &["k"],
        &["value"],
    );
    let fill = |client: &mut Client| {
        client.ok("SET gone x");
        for _ in 0..20 {
            assert!(!client.call(&write).is_error());
        }
        client.pipeline(&vec![write.clone(); 40]);
        client.ok("MULTI");
        client.run("SET before 1");
        client.call(&write);
        client.run("SET after 1");
        assert_eq!(client.run("EXEC").array().len(), 3);
        assert!(!client.call(&["FUNCTION", "LOAD", LIBRARY]).is_error());
        assert_eq!(client.run("FCALL put 1 f v"), Value::ok());
    };
    for policy in ["always", "everysec"] {
        let builder = Mode::Adaptive.builder().with_port();
        let mut server =
            builder.config("appendonly yes").config(format!("appendfsync {policy}")).start();
        fill(&mut server.midi_client());
        aof::survives(&mut server, policy);
        assert_eq!(server.midi_client().run("FCALL_RO look 1 f").text(), "v");
    }
    let pair = Pair::start(&builder(Mode::Adaptive));
    fill(&mut pair.master().midi_client());
    pair.must_become_equal("scripts");
    // A replica runs those that only read.
    let mut replica = pair.replica().midi_client();
    assert_eq!(replica.run("FCALL_RO look 1 f").text(), "v");
    assert_eq!(replica.call(&eval("return redis.call('get', 'k1')", &[], &[])).text(), "61");
    let refused = replica.call(&eval("return redis.call('set', 'k1', 1)", &[], &[]));
    assert!(refused.text().contains("READONLY") || refused.text().contains("read"), "{refused:?}");
    pair.must_become_equal("a script that was refused");
}

#[test]
fn with_always_a_crash_takes_back_no_script_that_was_answered() {
    let builder = Mode::Adaptive.builder().with_port();
    let mut server = builder.config("appendonly yes").config("appendfsync always").start();
    let mut port = server.midi_client();
    for number in 1..=50 {
        let script = "return redis.call('set', KEYS[1], ARGV[1])";
        assert_eq!(port.call(&eval(script, &["k"], &[&number.to_string()])), Value::ok());
    }
    aof::crash(&mut server);
    assert_eq!(server.midi_client().run("GET k").text(), "50");
}

/// Valkey 9.1 names an argument in an error as it is.
#[test]
fn an_error_is_one_reply_whatever_it_names() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut client = ported.client();
    let error = client.call(&["FUNCTION", "LIST", "a\r\n+INJECTED"]);
    assert!(error.is_error(), "{error:?}");
    assert_eq!(client.run("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn writing_scripts_wait_while_clients_are_paused() {
    let builder = Mode::Adaptive.builder().config("appendonly yes");
    let ported = Ported::start(builder);
    let (mut port, mut reader, mut host) = (ported.client(), ported.client(), ported.host());
    for (line, by_script) in [("SET x 1", false), ("SET y 1", true)] {
        host.ok("CLIENT PAUSE 100000 WRITE");
        if by_script {
            port.send_line("MULTI");
            assert_eq!(port.read(), Value::ok());
            let script = eval("return redis.call('incr', 'n')", &[], &[]);
            port.send(&crate::common::encoded(&script));
            assert!(!port.has_reply_within(Duration::from_millis(100)), "{line}");
        } else {
            port.send(&crate::common::encoded(&eval("return redis.call('incr', 'n')", &[], &[])));
            assert!(!port.has_reply_within(Duration::from_millis(100)), "{line}");
        }
        let reads = call("EVAL_RO", "return redis.call('get', 'none')", &[], &[]);
        if !by_script {
            reader.send(&crate::common::encoded(&reads));
        }
        host.ok("CLIENT UNPAUSE");
        if by_script {
            assert_eq!(port.read(), Value::Simple(b"QUEUED".to_vec()));
            assert_eq!(port.run("EXEC").array(), [Value::Integer(2)]);
        } else {
            assert_eq!(port.read(), Value::Integer(1));
            assert!(reader.read().is_null());
        }
    }
}

fn is_busy(reply: &Value) -> bool {
    reply.is_error() && reply.text().starts_with("BUSY")
}

/// Has a client run a script for ever, and waits until the host says that it is busy.
fn run_for_ever(ported: &Ported, script: &str) -> Client {
    let mut busy = ported.client();
    busy.send(&crate::common::encoded(&eval(script, &[], &[])));
    let mut host = ported.host();
    wait_until("the host is busy", || is_busy(&host.run("GET x")));
    busy
}

#[test]
fn a_script_that_takes_too_long_is_ended_from_either_door() {
    let builder = Mode::Adaptive.builder().config("busy-reply-threshold 20");
    let ported = Ported::start(builder);
    ported.host().ok("SET k hosts");
    for (from_port, script) in [
        (true, "while true do redis.call('get', 'k') end"),
        (false, "while true do redis.call('get', 'k') end"),
        (true, "while true do end"),
    ] {
        let mut waiting = run_for_ever(&ported, script);
        let (mut host, mut port) = (ported.host(), ported.client());
        // Other clients of the host are refused, and none of their commands becomes midi's.
        for line in ["GET k", "LPUSH l 1", "FLUSHALL", "EVAL x 0"] {
            assert!(is_busy(&host.run(line)), "{line}");
        }
        host.ok("MULTI");
        host.ok("DISCARD");
        // So are other scripts of the port; commands of midi's run.
        let other = port.call(&eval("return redis.call('get', 'k')", &[], &[]));
        assert!(is_busy(&other), "{other:?}");
        assert_eq!(port.run("SET free 1"), Value::ok());
        assert_eq!(port.run("FUNCTION STATS"), host.run("FUNCTION STATS"));
        let mut killer = if from_port { port } else { host };
        killer.ok("SCRIPT KILL");
        let ended = waiting.read();
        assert!(ended.is_error(), "{ended:?}");
        assert!(waiting.run("GET k").is_null());
        assert!(waiting.call(&eval("return redis.call('get', 'k')", &[], &[])).is_null());
        wait_until("the host goes on", || killer.run("PING").text() == "PONG");
    }
    let library = "#!lua name=spin\n\
        redis.register_function('spin', function() while true do redis.call('get', 'k') end end)";
    let (mut port, mut busy) = (ported.client(), ported.client());
    assert!(!port.call(&["FUNCTION", "LOAD", library]).is_error());
    busy.send(&crate::common::encoded(&words("FCALL spin 0")));
    wait_until("the host is busy", || is_busy(&ported.host().run("GET x")));
    assert!(format!("{:?}", port.run("FUNCTION STATS")).contains("spin"));
    assert!(is_busy(&port.run("FUNCTION LIST")));
    port.ok("FUNCTION KILL");
    assert!(busy.read().is_error());
    assert_eq!(ported.host().integer("DBSIZE"), 1);
}

#[test]
fn scripts_take_no_memory_above_the_limit_unless_they_say_so() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut port, mut host) = (ported.client(), ported.host());
    let write = "return redis.call('set', KEYS[1], 'v')";
    let allowed = format!("#!lua flags=allow-oom\n{write}");
    let library = "#!lua name=oom\n\
        redis.register_function{function_name='put', flags={'allow-oom'}, \
        callback=function(k) return redis.call('SET', k[1], 'v') end}\n\
        redis.register_function('not', function(k) return redis.call('SET', k[1], 'v') end)";
    port.ok("SET old 1");
    assert!(!port.call(&["FUNCTION", "LOAD", library]).is_error());
    let digest = port.call(&["SCRIPT", "LOAD", &allowed]).text();
    host.ok("CONFIG SET maxmemory 1");
    let refused = |reply: Value| assert!(reply.text().starts_with("OOM "), "{reply:?}");
    wait_until("memory is short", || port.run("SET k v").text().starts_with("OOM "));
    refused(port.call(&eval(write, &["k"], &[])));
    refused(port.run("FCALL not 1 k"));
    assert_eq!(port.call(&eval("return redis.call('get', 'old')", &[], &[])).text(), "1");
    let frees = format!("redis.call('del', 'old') {write}");
    assert_eq!(port.call(&eval(&frees, &["k"], &[])), Value::ok(), "as Redis's scripts");
    assert_eq!(port.call(&eval(&allowed, &["k"], &[])), Value::ok());
    assert_eq!(port.call(&call("EVALSHA", &digest, &["k"], &[])), Value::ok());
    assert_eq!(port.run("FCALL put 1 k"), Value::ok());
}

#[test]
fn the_ports_rule_on_rights_holds_inside_scripts() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let mut admin = ported.host();
    for (user, rules) in [
        ("noflush", "~* +@all -flushall"),
        ("noget", "~* +@all -get"),
        ("keys", "~a* +@all"),
        ("apart", "~* -@all +eval +midi.get"),
        ("noeval", "~* +@all -eval"),
        ("selects", "-@all +eval (~a* +midi.set) (~b* +midi.get)"),
    ] {
        let words: Vec<String> = ["ACL", "SETUSER", user, "on"]
            .into_iter()
            .map(str::to_owned)
            .chain([format!(">{user}")])
            .chain(selectors(rules))
            .collect();
        assert_eq!(admin.call(&words), Value::ok(), "{rules}");
    }
    ported.client().ok("SET a 1");
    for (user, command, keys, allowed) in [
        ("noflush", "'flushall'", "", false),
        ("noflush", "'midi.flushall'", "", false),
        ("noflush", "'set', 'a', 1", "", true),
        ("noget", "'get', 'a'", "", false),
        ("noget", "'midi.get', 'a'", "", false),
        ("noget", "'strlen', 'a'", "", true),
        ("keys", "'get', 'a'", "a", true),
        ("keys", "'get', 'b'", "a", false),
        ("keys", "'get', 'a'", "b", false),
        ("apart", "'get', 'a'", "a", true),
        ("apart", "'set', 'a', 1", "a", false),
        ("noeval", "'get', 'a'", "", false),
        ("selects", "'set', 'a', 1", "", true),
        ("selects", "'get', 'b'", "", true),
        ("selects", "'get', 'a'", "", false),
        ("selects", "'set', 'b', 1", "", false),
    ] {
        let mut client = ported.client_of(user);
        let keys: Vec<&str> = keys.split(' ').filter(|key| !key.is_empty()).collect();
        let reply = client.call(&eval(&format!("return redis.call({command})"), &keys, &[]));
        let said = format!("{reply:?}");
        assert_eq!(!reply.is_error(), allowed, "{user}: {command} {keys:?}: {said}");
        let is_of_rights = ["NOPERM", "ACL", "user executing the script"];
        let names_it = is_of_rights.iter().any(|words| said.contains(words));
        assert!(allowed || names_it, "{user}: {command}: {said}");
    }
    assert_eq!(ported.client().run("EXISTS a").integer(), 1);
}

/// The words of rules; a selector is one word.
fn selectors(rules: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in rules.split(' ') {
        match words.last_mut() {
            Some(last) if last.starts_with('(') && !last.ends_with(')') => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[test]
fn what_a_script_changes_is_notified_and_watched() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut port, mut host, mut watcher) = (ported.client(), ported.host(), ported.client());
    host.ok("CONFIG SET notify-keyspace-events KEA");
    let mut listener = ported.host();
    listener.run("SUBSCRIBE __keyevent@0__:set");
    watcher.ok("WATCH k");
    assert_eq!(port.call(&eval("return redis.call('set', 'k', 1)", &[], &[])), Value::ok());
    assert_eq!(listener.read().array()[2].text(), "k");
    watcher.ok("MULTI");
    watcher.run("SET other 1");
    assert!(watcher.run("EXEC").is_null());
    watcher.ok("MULTI");
    watcher.run("SET other 1");
    assert_eq!(watcher.run("EXEC").array().len(), 1);
}
