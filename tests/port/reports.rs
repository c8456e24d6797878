//! The promise: what midi's port reports of the server, its settings, its connections and its jobs
//! is what the host reports, with the port's own part.

use std::collections::BTreeMap;

use super::session::ported;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, driver_of_this_run, wait_until};

#[test]
fn the_server_is_described_as_at_the_hosts_port() {
    let ported = ported();
    for (mut host, mut port) in
        [(ported.host(), ported.client()), (ported.host().resp3(), ported.client().resp3())]
    {
        let mut same = || {
            for line in ["MODULE LIST", "LASTSAVE", "CLIENT TRACKINGINFO", "CLIENT GETREDIR"] {
                assert_eq!(port.run(line), host.run(line), "{line}");
            }
            // The state of the link may change between two commands.
            let role = |client: &mut Client| client.run("ROLE").array()[..1].to_vec();
            assert_eq!(role(&mut port), role(&mut host));
        };
        same();
        ported.host().ok("REPLICAOF 127.0.0.1 1");
        same();
        ported.host().ok("REPLICAOF NO ONE");
    }
}

#[test]
fn settings_and_counts_of_connections_are_the_ports() {
    let builder = Mode::Adaptive.builder().load("midi.maxclients 77");
    let ported = Ported::start(builder);
    let (mut host, mut port) = (ported.host().resp3(), ported.client().resp3());
    let setting = |client: &mut Client, name: &str| {
        client.run(&format!("CONFIG GET {name}")).map()[name].text()
    };
    assert_eq!(setting(&mut port, "port"), ported.number().to_string());
    assert_eq!(setting(&mut port, "maxclients"), "77");
    assert_ne!(setting(&mut host, "maxclients"), "77");
    for name in ["bind", "timeout", "maxmemory", "databases"] {
        assert_eq!(setting(&mut port, name), setting(&mut host, name), "{name}");
    }
    let all = port.run("CONFIG GET *").map();
    assert_eq!(all["port"].text(), ported.number().to_string());

    host.ok("SET native 1");
    port.ok("SET k 1 EX 100");
    port.ok("SELECT 3");
    port.run("MSET a 1 b 2");
    port.ok("SELECT 0");
    let _others = [ported.client(), ported.client()];
    wait_until("they are let in", || port.info("clients")["connected_clients"] == "3");
    for section in ["clients", "everything", "default"] {
        let info = port.info(section);
        assert_eq!((&*info["connected_clients"], &*info["maxclients"]), ("3", "77"), "{section}");
        assert_eq!(info["blocked_clients"], "0");
    }
    for section in ["keyspace", "everything", "default"] {
        let info = port.info(section);
        assert_eq!(info["db0"], "keys=1,expires=1,avg_ttl=0", "{section}");
        assert_eq!(info["db3"], "keys=2,expires=0,avg_ttl=0", "{section}");
    }
    assert!(host.info("keyspace")["db0"].starts_with("keys=1,expires=0"));
    // The sizes of the host's keys, where the host tells them.
    let all = port.info("everything");
    assert!(!all.keys().any(|name| name.contains("_distrib_")), "{all:?}");
    port.ok("FLUSHALL");
    assert_eq!(port.run("INFO keyspace").text().lines().count(), 1);

    // Valkey tells whether clients are paused, and those of the port are then, too.
    host.ok("CLIENT PAUSE 100000 WRITE");
    let paused = |client: &mut Client| {
        let fields = client.info("clients").into_iter();
        let fields =
            fields.filter(|(name, _)| matches!(&**name, "paused_reason" | "paused_actions"));
        fields.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(paused(&mut port), paused(&mut host));
}

#[test]
fn clients_are_listed_and_killed() {
    let ported = ported();
    let mut client = ported.client();
    client.ok("CLIENT SETNAME boss");
    client.ok("SELECT 4");
    let mut others: Vec<Client> = (0..6).map(|_| ported.client()).collect();
    let ids: Vec<i64> = others.iter_mut().map(|other| other.id()).collect();
    let text = client.run("CLIENT LIST").text();
    assert_eq!(text.lines().count(), 7, "{text}");
    assert!(
        text.lines().any(|line| line.contains(" name=boss ") && line.contains(" db=4 ")),
        "{text}"
    );
    let two = client.run(&format!("CLIENT LIST ID {} {} 12345", ids[1], ids[4])).text();
    let found: Vec<&str> = two.lines().map(|line| line.split(' ').next().expect("an id")).collect();
    assert_eq!(found, [format!("id={}", ids[1]), format!("id={}", ids[4])]);
    let line = client.run(&format!("CLIENT LIST ID {}", ids[2])).text();
    let address =
        line.split(' ').nth(1).and_then(|field| field.strip_prefix("addr=")).expect("an address");
    client.ok(&format!("CLIENT KILL {address}"));
    assert_eq!(client.integer(&format!("CLIENT KILL ID {}", ids[3])), 1);
    assert_eq!(client.integer(&format!("CLIENT KILL ID {}", ids[3])), 0);
    for killed in [2, 3] {
        assert!(others[killed].try_call(&["PING"]).is_err());
    }
    assert_eq!(client.integer(&format!("CLIENT KILL LADDR 127.0.0.1:{}", ported.number())), 4);
    assert_eq!(client.run("CLIENT LIST").text().lines().count(), 1);
    assert!(others.iter_mut().all(|other| other.try_call(&["PING"]).is_err()));
    let me = client.id();
    assert_eq!(client.integer(&format!("CLIENT KILL ID {me} SKIPME yes")), 0);
    assert_eq!(client.integer(&format!("CLIENT KILL ID {me} SKIPME no")), 1);
    assert!(client.try_call(&["PING"]).is_err());
    let mut host = ported.host();
    wait_until("all are gone", || host.info_number("midi_net", "midi_net_connections") == 0);
}

#[test]
fn clients_in_transactions_are_listed_as_such() {
    let ported = ported();
    let (mut client, mut other) = (ported.client(), ported.client());
    let line = |client: &mut Client, id: i64| client.run(&format!("CLIENT LIST ID {id}")).text();
    let id = other.id();
    other.ok("MULTI");
    other.run("GET a");
    other.run("PING");
    let text = line(&mut client, id);
    assert!(
        text.contains(" flags=x ") && text.contains(" multi=2 ") && text.contains(" cmd=ping "),
        "{text}"
    );
    assert!(!text.contains(" multi-mem=0 "), "{text}");
    other.run("EXEC");
    let text = line(&mut client, id);
    assert!(
        text.contains(" flags=N ") && text.contains(" multi=-1 ") && text.contains(" cmd=exec "),
        "{text}"
    );
    assert!(text.contains(" argv-mem=0 multi-mem=0 "), "{text}");
}

#[test]
fn users_are_listed_and_killed_by_name() {
    let ported = ported();
    ported.host().ok("ACL SETUSER alice on >alice +@all ~*");
    let (mut client, mut alice) = (ported.client(), ported.client_of("alice"));
    assert_eq!(alice.run("ACL WHOAMI"), Value::bulk("alice"));
    assert!(client.run("CLIENT LIST").text().contains(" user=alice "));
    assert_eq!(client.integer("CLIENT KILL USER alice"), 1);
    assert!(alice.try_call(&["PING"]).is_err());
    assert_eq!(client.integer("CLIENT KILL USER alice"), 0);
    ported.host().ok("ACL SETUSER bob on >bob +@all ~*");
    assert_eq!(client.integer("CLIENT KILL USER bob"), 0);
}

/// The names of INFO's sections, in order.
fn sections(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
}

#[test]
fn info_is_the_hosts_and_then_midis() {
    in_all_ported_modes(|_, ported| {
        let (mut client, mut host) = (ported.client(), ported.host());
        let of_midi = sections(&client.run("MIDI.INFO").text());
        assert!(of_midi.contains(&"midi_net".to_owned()));
        for ask in ["INFO", "INFO default", "INFO all"] {
            let mut expected = sections(&host.run(ask).text());
            expected.extend(of_midi.clone());
            assert_eq!(sections(&client.run(ask).text()), expected, "{ask}");
        }
        for ask in [
            "INFO everything",
            "INFO server clients",
            "INFO midi_net",
            "INFO modules",
            "INFO nosuch",
        ] {
            assert_eq!(sections(&client.run(ask).text()), sections(&host.run(ask).text()), "{ask}");
        }
        let mut client = ported.client().resp3();
        let reply = client.run("INFO server");
        let is_text = |text: &[u8]| text.starts_with(b"txt:# Server\r\n");
        assert!(matches!(reply, Value::Verbatim(text) if is_text(&text)));
    });
}

#[test]
fn config_get_is_the_hosts() {
    let ported = ported();
    for (mut client, mut host) in
        [(ported.client(), ported.host()), (ported.client().resp3(), ported.host().resp3())]
    {
        for ask in [
            "CONFIG GET save",
            "config get nosuch",
            "CONFIG GET midi.threads",
            "CONFIG GET maxmemory timeout",
        ] {
            let (own, of_host) = (client.run(ask), host.run(ask));
            assert_eq!(std::mem::discriminant(&own), std::mem::discriminant(&of_host), "{ask}");
            assert_eq!(own.map(), of_host.map(), "{ask}");
        }
        assert!(client.run("CONFIG GET *").map().len() > 100);
    }
}

#[test]
fn debug_populate_is_populate() {
    in_all_ported_modes(|_, ported| {
        let mut client = ported.client();
        client.ok("DEBUG POPULATE 1000");
        client.ok("debug populate 10 other 5");
        assert_eq!(client.integer("DBSIZE"), 1010);
        assert_eq!(client.integer("STRLEN other:3"), 5);
        assert_eq!(client.run("GET key:999"), Value::bulk("value:999"));
        assert!(client.run("DEBUG POPULATE").is_error());
        assert!(client.run("DEBUG POPULATE x").is_error());
    });
}

#[test]
fn net_is_counted() {
    let ported = ported();
    let mut client = ported.client();
    let mut host = ported.host();
    client.ok("SET a 1");
    client.run("NOSUCH");
    for _ in 0..10 {
        client.run("GET a");
    }
    client.run("AUTH nobody x");
    let fields = host.info("midi_net");
    assert_eq!(fields["midi_port_state"], "open");
    assert_eq!(fields["midi_net_backend"], driver_of_this_run());
    assert_eq!(fields["midi_net_connections"], "1");
    assert_eq!(fields["midi_net_commands"], "13");
    assert_eq!(fields["midi_net_failed_logins"], "1");
    let number = |name: &str| fields[name].parse::<u64>().expect("a number");
    assert!(number("midi_net_received_bytes") > 200 && number("midi_net_sent_bytes") > 80);
    let of_worker = |worker: usize| -> u64 {
        let text = &fields[&format!("midi_net_worker{worker}")];
        let commands =
            text.split(',').find_map(|field| field.strip_prefix("commands=")).expect("commands");
        commands.parse().expect("a number")
    };
    assert_eq!(of_worker(0) + of_worker(1), 13);
    let without = Mode::Adaptive.server();
    let fields = without.client().info("midi_net");
    assert_eq!(fields.len(), 1);
    assert_eq!(fields["midi_port_state"], "off");
}

/// Runs one test body in all three modes, each with a port of its own.
fn in_all_ported_modes(body: impl Fn(Mode, &Ported)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        body(mode, &Ported::start(mode.builder()));
    }
}

/// The port imports and exports the host's keys as the host door does, with the user's rights.
#[test]
fn import_and_export_through_the_port() {
    in_all_ported_modes(|mode, ported| {
        let (mut host, mut client) = (ported.host(), ported.client());
        for key in 0..500 {
            host.ok(&format!("SET host:{key} {key}"));
        }
        host.run("LPUSH list a");
        assert_eq!(client.run("IMPORT *"), Value::integers(&[500, 0, 1]), "{mode:?}");
        assert_eq!(client.run("midi.import host:1*"), Value::integers(&[0, 111, 0]));
        client.ok("MSET own:1 1 own:2 2");
        assert_eq!(client.run("EXPORT own:*"), Value::integers(&[2, 0, 0]));
        assert_eq!(host.run("GET own:2"), Value::bulk("2"));
        client.ok("SELECT 3");
        assert_eq!(client.run("IMPORT *"), Value::integers(&[0, 0, 0]));
        assert_eq!(
            client.run("IMPORT"),
            Value::error("ERR wrong number of arguments for 'import' command")
        );
        assert_eq!(client.run("IMPORT * FOO"), Value::error("ERR syntax error"));
        assert_eq!(client.run("JOBS"), Value::Array(vec![]));
        assert_eq!(client.run("JOBS CANCEL 99"), Value::error("ERR no such job"));
        assert_eq!(client.run("HELP"), host.run("MIDI.HELP"));
        host.ok("ACL SETUSER some on >some +@all ~host:1*");
        let mut some = ported.client_of("some");
        let refusal = Value::error(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        );
        assert_eq!(some.run("IMPORT * REPLACE"), refusal);
        assert_eq!(some.run("EXPORT own:*"), refusal);
        assert_eq!(some.run("IMPORT host:1* REPLACE"), Value::integers(&[111, 0, 0]));
        // The host would refuse these to its own clients.
        assert_eq!(client.run("HELLO").map()["role"].text(), "master");
        host.ok("REPLICAOF 127.0.0.1 1");
        client.ok("SELECT 0");
        wait_until("the port knows", || client.run("HELLO").map()["role"].text() == "replica");
        for line in ["EXPORT own:*", "IMPORT own:*"] {
            let refusal = Value::error("READONLY You can't write against a read only replica.");
            assert_eq!(client.run(line), refusal, "{mode:?}: {line}");
            assert_eq!(host.run(&format!("MIDI.{line}")), refusal, "{mode:?}: {line}");
        }
    });
}

/// HELLO lists the host's modules, midi among them, as the host does.
#[test]
fn hello_tells_of_modules() {
    let ported = ported();
    let (mut client, mut host) = (ported.client(), ported.host());
    for protocol in ["2", "3"] {
        let modules =
            |client: &mut Client| client.run(&format!("HELLO {protocol}")).map()["modules"].clone();
        let (of_host, of_port) = (modules(&mut host), modules(&mut client));
        assert_eq!(of_port, of_host);
        let mut modules = of_host.array().into_iter().map(Value::map);
        let midi = modules.find(|module| module["name"] == Value::bulk("midi")).expect("midi");
        assert!(midi["args"].clone().array().contains(&Value::bulk("port")), "{midi:?}");
    }
}

/// A long command of a port is listed at both doors, and can be ended from either.
#[test]
fn jobs_of_a_port_are_cancelled() {
    let ported = ported();
    let (mut client, mut host) = (ported.client(), ported.host());
    for cancelled_from_host in [false, true] {
        let mut busy = ported.client();
        let own = busy.id();
        busy.send_line("POPULATE 3000000");
        wait_until("it runs", || !client.run("JOBS").array().is_empty());
        let job = host.run("MIDI.JOBS").array().remove(0).map();
        assert_eq!((job["client"].integer(), job["door"].text()), (own, "port".to_owned()));
        let id = job["id"].integer();
        let door = if cancelled_from_host { &mut host } else { &mut client };
        door.ok(&format!("MIDI.JOBS CANCEL {id}"));
        assert_eq!(
            busy.read(),
            Value::error(&format!("ERR job {id} was cancelled by MIDI.JOBS CANCEL"))
        );
        busy.ok("FLUSHALL SYNC");
    }
    let mut busy = ported.client();
    busy.send_line("POPULATE 3000000");
    wait_until("it runs", || !client.run("JOBS").array().is_empty());
    drop(busy);
    wait_until("nobody waits for it", || client.run("JOBS").array().is_empty());
}
