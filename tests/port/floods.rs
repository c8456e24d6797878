//! The promise: what one client of midi's port causes is bounded, in memory and in time, and others
//! are served meanwhile.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::common::port::Ported;
use crate::common::{Builder, Client, HANG, Mode, Value, encoded, wait_until};

/// A server whose port has one worker, which all clients share.
fn narrow(builder: Builder) -> Ported {
    Ported::start(builder.load("threads 1"))
}

/// MULTI, this many times the command, and EXEC, as they are sent.
fn transaction(command: &str, times: usize) -> Vec<u8> {
    format!("MULTI\r\n{}EXEC\r\n", format!("{command}\r\n").repeat(times)).into_bytes()
}

/// EXEC's answer to this many commands.
#[track_caller]
fn executed(client: &mut Client, times: usize) -> Vec<Value> {
    assert_eq!(client.read(), Value::ok());
    for _ in 0..times {
        assert_eq!(client.read().text(), "QUEUED");
    }
    client.read().array()
}

#[test]
fn the_ports_own_commands_in_a_large_transaction_leave_others_their_turns() {
    let ported = narrow(Mode::Adaptive.builder());
    let times = 300_000;
    let (mut large, mut other) = (ported.client(), ported.client());
    let served = AtomicBool::new(false);
    let sent = transaction("PING", times);
    std::thread::scope(|scope| {
        let (large, served) = (&mut large, &served);
        scope.spawn(move || {
            large.send(&sent);
            assert_eq!(executed(large, times), vec![Value::Simple(b"PONG".to_vec()); times]);
            served.store(true, Ordering::Relaxed);
        });
        let mut pings = 0;
        while !served.load(Ordering::Relaxed) {
            assert_eq!(other.run("PING").text(), "PONG");
            pings += 1;
        }
        // A client that had to wait for the whole transaction would get few PINGs answered.
        assert!(pings > 20, "{pings}");
    });
}

/// How many clients the port has, as one of them sees it.
fn listed(client: &mut Client) -> usize {
    client.run("CLIENT LIST").text().lines().count()
}

#[test]
fn replies_of_a_transaction_that_nobody_reads_are_not_made() {
    let ported = narrow(Mode::Adaptive.builder());
    let (mut large, mut other) = (ported.client(), ported.client());
    let (id, before) = (large.id(), ported.server.peak_memory());
    large.send(&transaction("COMMAND DOCS", 2000));
    wait_until("it has replies that nobody reads", || other.unsent_of(id) > 1 << 19);
    // Each is a turn of the worker, in which it could make more.
    for _ in 0..500 {
        assert_eq!(other.run("PING").text(), "PONG");
    }
    assert_eq!(other.run(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
    wait_until("it has gone", || listed(&mut other) == 1);
    let taken = ported.server.peak_memory() - before;
    assert!(taken < 64 << 20, "{taken} bytes");
}

#[test]
fn clients_that_have_not_logged_in_take_no_memory() {
    let ported = narrow(Mode::Adaptive.builder());
    ported.host().ok("CONFIG SET requirepass secret");
    let before = ported.server.peak_memory();
    let mut stranger = ported.client();
    let (commands, mut sent) = (b"SET x 5\r\n".repeat(10_000), 0);
    while stranger.try_send(&commands).is_ok() {
        sent += commands.len();
        assert!(sent < 200 << 20, "still served after {sent} bytes");
    }
    let taken = ported.server.peak_memory() - before;
    assert!(taken < 32 << 20, "{taken} bytes");
    // A client that reads gets every refusal.
    let mut reader = ported.client();
    let replies = reader.pipeline(&vec![vec!["GET", "x"]; 300]);
    assert!(replies.iter().all(|reply| reply.text().starts_with("NOAUTH")), "{replies:?}");
    reader.ok("AUTH secret");
}

#[test]
fn a_client_that_leaves_during_a_pause_leaves_its_place_and_its_commands() {
    let ported = narrow(Mode::Adaptive.builder().load("maxclients 20"));
    let (mut host, mut reader) = (ported.host(), ported.client());
    host.ok("CLIENT PAUSE 1000000 WRITE");
    let leavers: Vec<Client> = (0..19)
        .map(|number| {
            let mut leaver = ported.client();
            leaver.send_line(&format!("SET left:{number} v"));
            leaver
        })
        .collect();
    wait_until("all are there", || listed(&mut reader) == 20);
    drop(leavers);
    wait_until("all have gone", || listed(&mut reader) == 1);
    // To shut down the sending side looks like leaving: Redis treats it so, too.
    for port in [ported.number(), ported.server.port()] {
        let mut half = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        half.write_all(&encoded(&["MIDI.SET", "left:half", "v"])).expect("sent");
        half.shutdown(Shutdown::Write).expect("a connection");
        half.set_read_timeout(Some(HANG)).expect("a timeout");
        let mut said = Vec::new();
        half.read_to_end(&mut said).expect("the end");
        assert_eq!(said, b"");
    }
    host.ok("CLIENT UNPAUSE");
    wait_until("the pause is over", || reader.run("SET after v") == Value::ok());
    assert_eq!(reader.integer("DBSIZE"), 1);
}

#[test]
fn a_client_that_leaves_while_a_script_holds_its_shard_leaves_its_place_and_its_commands() {
    let ported = narrow(Mode::Adaptive.builder().load("shards 1").config("lua-time-limit 10"));
    let (mut host, mut probe, mut reader) = (ported.host(), ported.client(), ported.client());
    reader.ok("SET held 1");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let script = "redis.call('midi.get', 'held') while true do end";
            assert!(host.call(&["EVAL", script, "0"]).is_error());
        });
        // The host looks at clients when the script has run for a while, and holds the shard.
        let mut killer = ported.host();
        wait_until("the script holds the shard", || killer.run("PING").text().starts_with("BUSY "));
        probe.send_line("GET held");
        let leavers: Vec<Client> = (0..50)
            .map(|_| {
                let mut leaver = ported.client();
                leaver.send_line("INCR held");
                leaver
            })
            .collect();
        wait_until("all are there", || listed(&mut reader) == 52);
        drop(leavers);
        wait_until("all have gone", || listed(&mut reader) == 2);
        killer.ok("SCRIPT KILL");
    });
    assert_eq!(probe.read(), Value::bulk("1"));
    assert_eq!(reader.run("GET held"), Value::bulk("1"), "what the leavers had asked for was done");
}

#[test]
fn a_reply_beyond_the_limit_is_not_made() {
    let ported = narrow(Mode::Adaptive.builder().load("output-buffer-hard-limit 4mb"));
    let (mut other, value) = (ported.client(), "x".repeat(1 << 20));
    (0..4).for_each(|number| other.ok(&format!("SET large:{number} {value}")));
    let before = ported.server.peak_memory();
    let names: Vec<String> = (0..300).map(|number| format!("large:{}", number % 4)).collect();
    let mget = format!("MGET {}\r\n", names.join(" "));
    let exec = |first: &str, done: &str| {
        let gets: String = names.iter().map(|name| format!("GET {name}\r\n")).collect();
        format!("MULTI\r\n{first}{gets}SET {done} v\r\nEXEC\r\n")
    };
    let all = [
        mget.clone(),
        exec("", "at-once"),
        // With one of the port's own commands, and with one that the main thread runs.
        exec("PING\r\n", "later"),
        exec("MIDI.JOBS\r\n", "on-main"),
        // Replies that are large together.
        "EVAL \"redis.call('incr', 'runs') return redis.call('get', 'large:0')\" 0\r\n".repeat(300),
    ];
    let closed = |sent: &[u8]| {
        let mut greedy = ported.client();
        let _ = greedy.try_send(sent);
        std::iter::from_fn(|| greedy.try_read().ok()).last()
    };
    for sent in &all[..4] {
        let last = closed(sent.as_bytes());
        assert!(last.is_none_or(|last| last.text() == "QUEUED"), "it was answered");
    }
    closed(all[4].as_bytes());
    assert!(other.run("GET runs").text().parse::<i64>().expect("a number") < 300);
    let id = other.run("CLIENT ID").integer().to_string();
    let many =
        |words: &[&str], last: &str| encoded(&[words.to_vec(), vec![last; 100_000]].concat());
    closed(&many(&["COMMAND", "INFO"], "set"));
    closed(&many(&["CLIENT", "LIST", "ID"], &id));
    assert_eq!(
        other.run("EXISTS at-once later on-main"),
        Value::Integer(3),
        "EXEC does all or nothing"
    );
    // A client that has switched replies off gets none, however large.
    other.send(format!("CLIENT REPLY OFF\r\n{mget}CLIENT REPLY ON\r\n").as_bytes());
    assert_eq!(other.read(), Value::ok());
    let taken = ported.server.peak_memory() - before;
    assert!(taken < 100 << 20, "{taken} bytes");
    let closed = ported.host().info_number("midi_net", "midi_net_closed_for_limits");
    assert_eq!(closed, 7);
}

#[test]
fn floods_leave_others_their_turns() {
    let ported = narrow(Mode::Adaptive.builder());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..40 {
            let mut flooder = ported.client();
            let stop = &stop;
            scope.spawn(move || {
                flooder.send_line("CLIENT REPLY OFF");
                let pings = b"PING\r\n".repeat(20_000);
                while !stop.load(Ordering::Relaxed) {
                    flooder.send(&pings);
                }
            });
        }
        let mut other = ported.client();
        let commands = || ported.host().info_number("midi_net", "midi_net_commands");
        wait_until("the flood has come", || commands() > 1_000_000);
        let (before, times) = (commands(), 50);
        (0..times).for_each(|_| assert_eq!(other.run("PING").text(), "PONG"));
        let others = (commands() - before) / times;
        stop.store(true, Ordering::Relaxed);
        assert!(others < 300_000, "{others} commands of others for each");
    });
}

/// The same flood, of commands that each take long.
#[test]
fn floods_of_long_commands_leave_others_their_turns() {
    let ported = narrow(Mode::Adaptive.builder());
    let mut flooders: Vec<_> = (0..1000).map(|_| ported.client()).collect();
    let lists = b"CLIENT LIST\r\n".repeat(2000);
    for flooder in &mut flooders {
        flooder.send_line("CLIENT REPLY OFF");
        flooder.send(&lists);
    }
    let mut other = ported.client();
    let commands = || ported.host().info_number("midi_net", "midi_net_commands");
    let (before, times) = (commands(), 50);
    (0..times).for_each(|_| assert_eq!(other.run("PING").text(), "PONG"));
    let others = (commands() - before) / times;
    // With a turn for each of the 1000 it would be 1000 or more. A list of 1000 clients takes so
    // long that few fit into the turn that they share.
    assert!(others < 300, "{others} commands of others for each");
}

/// Each refusal reported to the host costs its main thread a command's time; its list is finite.
#[test]
fn of_very_many_refusals_the_host_is_told_as_many_as_its_list_keeps() {
    const USUAL_LIST: u64 = 128;
    // A longer list shows how many were reported; one tick a second shows how often.
    let longer = Mode::Adaptive.builder().config("acllog-max-len 1000000").config("hz 1");
    let ported = Ported::start(longer.config("dynamic-hz no"));
    let mut host = ported.host();
    host.ok("ACL SETUSER mallory on nopass +@all ~none");
    let (mut mallory, began) = (ported.client(), Instant::now());
    mallory.ok("AUTH mallory any");
    let told = |host: &mut Client| host.run("ACL LOG 1000000").array().len() as u64;
    for round in 0..100 {
        let gets: Vec<_> =
            (0..200).map(|number| vec!["GET".to_owned(), format!("{round}:{number}")]).collect();
        assert!(mallory.pipeline(&gets).iter().all(|reply| reply.text().starts_with("NOPERM")));
        // The host's main loop runs meanwhile.
        assert_eq!(host.run("PING").text(), "PONG");
    }
    assert_eq!(host.info_number("midi_net", "midi_net_denied"), 20_000);
    wait_until("it was told of some", || told(&mut host) >= USUAL_LIST);
    let (all, ticks) = (told(&mut host), began.elapsed().as_secs() + 2);
    assert!(all <= USUAL_LIST * ticks, "{all} in {ticks} ticks");
    // The rest is reported later, even if there are no new refusals.
    wait_until("it is told of more", || told(&mut host) > USUAL_LIST);
}
