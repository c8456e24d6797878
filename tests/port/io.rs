//! The promise: the port moves bytes with epoll, or with io_uring where that is asked for and the
//! system offers it. Clients see no difference. Every test of the port can run on the other driver,
//! with `MIDI_IO=io_uring`; those here are about what only the choice or io_uring brings.

use std::fs;

use crate::common::port::Ported;
use crate::common::{Builder, Client, Server, Value, at_once, skip, wait_until};

fn asked(builder: Builder) -> Builder {
    builder.load("io io_uring")
}

/// Such a server; `None` if this system has no io_uring, after saying so.
fn ported(builder: Builder) -> Option<Ported> {
    let ported = Ported::start(asked(builder));
    match ported.host().info("midi_net").get("midi_net_backend_reason") {
        None => Some(ported),
        Some(reason) => {
            skip(&format!("io_uring: {reason}"));
            None
        }
    }
}

#[test]
fn epoll_is_the_default() {
    let ported = Ported::start(Builder::new().load("io epoll"));
    let mut host = ported.host();
    let fields = host.info("midi_net");
    assert_eq!(fields["midi_net_backend"], "epoll");
    assert!(!fields.contains_key("midi_net_backend_reason"));
    let without = Builder::new().start();
    let found = without.client().run("CONFIG GET midi.io").map();
    assert_eq!(found["midi.io"].text(), "epoll");
    assert!(host.run("CONFIG SET midi.io io_uring").is_error());
    let refused = Builder::new().load("io kqueue").try_start();
    assert!(
        refused.is_err_and(|log| log.contains("load argument io must be one of epoll, io_uring"))
    );
}

#[test]
fn io_uring_is_used_where_it_is_asked_for() {
    let Some(ported) = ported(Builder::new()) else { return };
    let mut host = ported.host();
    assert_eq!(host.info("midi_net")["midi_net_backend"], "io_uring");
    assert_eq!(host.run("CONFIG GET midi.io").map()["midi.io"].text(), "io_uring");
    assert!(!ported.server.log().contains("io_uring"), "{}", ported.server.log());
    let mut client = ported.client();
    client.ok("SET a 1");
    assert_eq!(client.run("GET a"), Value::bulk("1"));
}

#[test]
fn where_it_is_forbidden_epoll_is_used() {
    // A system that forbids the first call names that one in all rounds.
    if ported(Builder::new()).is_none() {
        return;
    }
    let calls = [
        (libc::SYS_io_uring_setup, "io_uring_setup"),
        (libc::SYS_io_uring_register, "io_uring_register"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
    ];
    at_once(calls.len(), |number| {
        let (call, name) = calls[number];
        let ported = Ported::start(asked(Builder::new().forbid(&[call])));
        let fields = ported.host().info("midi_net");
        assert_eq!(fields["midi_net_backend"], "epoll", "{name}");
        let reason = &fields["midi_net_backend_reason"];
        let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
        if disabled.is_ok_and(|disabled| disabled.trim() == "0") {
            assert!(reason.contains(name) && reason.contains("seccomp"), "{reason}");
        }
        let log = ported.server.log();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("io_uring")).collect();
        assert!(matches!(told[..], [line] if line.contains(reason.as_str())), "{told:?}");
        ported.client().ok("SET a 1");
    });
}

/// Sends this many GETs that wait behind a SET.
fn send_behind_a_write(client: &mut Client, name: usize, times: usize) {
    let gets = format!("GET key:{name}\r\n").repeat(times);
    client.send(format!("SET key:{name} {name}\r\n{gets}").as_bytes());
}

#[test]
fn clients_that_have_all_buffers_keep_nobody_from_being_served() {
    let Some(ported) = ported(Builder::new().load("threads 1")) else { return };
    let (mut host, mut other) = (ported.host(), ported.client());
    host.ok("CLIENT PAUSE 100000 WRITE");
    // Together they send twice as much as there are buffers for, and none of it runs.
    let (times, mut paused) = (7000, Vec::new());
    for name in 0..80 {
        let mut client = ported.client();
        send_behind_a_write(&mut client, name, times);
        paused.push(client);
    }
    for _ in 0..200 {
        assert_eq!(other.run("GET key:0"), Value::NullBulk);
    }
    host.ok("CLIENT UNPAUSE");
    for (name, client) in paused.iter_mut().enumerate() {
        assert_eq!(client.read(), Value::ok());
        for _ in 0..times {
            assert_eq!(client.read(), Value::bulk(name.to_string()));
        }
    }
    // And all is as before.
    for (name, client) in paused.iter_mut().enumerate() {
        assert_eq!(client.run(&format!("GET key:{name}")), Value::bulk(name.to_string()));
    }
}

/// The process that saves.
fn child(server: &Server) -> u32 {
    let started = "Background saving started by pid ";
    let find = || server.log().rsplit_once(started).map(|(_, rest)| rest.to_owned());
    wait_until("it saves", || find().is_some());
    let rest = find().expect("just found");
    rest.lines().next().and_then(|pid| pid.trim().parse().ok()).expect("a process")
}

/// The rings that a process has: descriptors and memory.
fn rings(process: u32) -> (usize, usize) {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("its descriptors");
    let names = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let is_ring = |text: &str| text.contains("[io_uring]");
    let open = names.filter(|name| is_ring(&name.to_string_lossy())).count();
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("its memory");
    (open, maps.lines().filter(|line| is_ring(line)).count())
}

#[test]
fn a_forked_child_has_no_ring() {
    let slow = Builder::new().load("threads 2").config("rdb-key-save-delay 100000");
    let Some(ported) = ported(slow) else { return };
    let (mut client, mut host) = (ported.client(), ported.host());
    client.ok("SET before 1");
    for key in 0..100 {
        host.ok(&format!("SET key:{key} 1"));
    }
    assert_eq!(rings(ported.server.pid()).0, 2);
    host.run("BGSAVE");
    let child = child(&ported.server);
    wait_until("it has closed them", || rings(child) == (0, 0));
    // Connections from before live on, and there are new ones.
    for number in 0..50 {
        client.ok(&format!("SET during {number}"));
        assert_eq!(ported.client().run("GET during"), Value::bulk(number.to_string()));
    }
    host.ok("CONFIG SET rdb-key-save-delay 0");
    // SAFETY: the child of a server of this test.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    assert_eq!(client.run("GET before"), Value::bulk("1"));
}
