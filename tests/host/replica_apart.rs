//! The promise: a replica that does not follow its master's log counts for nobody: not for WAIT,
//! min-replicas-to-write or FAILOVER, and not as one that Sentinel or a cluster may promote. The
//! operator's settings are only borrowed for that.

use crate::common::link::Link;
use crate::common::replicas::{
    builder, follow, full_syncs, must_become_equal, wait_for_link, wait_for_role,
};
use crate::common::{Builder, Client, Door, Mode, Server, Value, wait_until};

/// As if the master's midi were newer.
fn send_newer_version(link: &Link) {
    link.falsify(b"VERSION\r\n$1\r\n1", b"VERSION\r\n$1\r\n9");
}

fn setting(server: &Server, name: &str) -> String {
    server.client().run(&format!("CONFIG GET {name}")).array().remove(1).text()
}

fn settings(server: &Server) -> [String; 4] {
    ["replica-priority", "cluster-replica-no-failover", "masteruser", "masterauth"]
        .map(|name| setting(server, name))
}

fn replication(server: &Server, field: &str) -> String {
    server.client().info("replication").remove(field).unwrap_or_default()
}

/// How often this server has tried to reach its master, and failed to log in.
fn vain_logins(server: &Server) -> usize {
    server.log().matches("Unable to AUTH to ").count()
}

/// Waits until the link has been cut, and has stayed so for some tries of the host's.
fn wait_until_apart(replica: &Server) {
    wait_until("the link is cut", || {
        let info = replica.client().info("midi_persistence");
        info.get("midi_master_link_cut").is_some_and(|it| it == "yes")
    });
    let before = vain_logins(replica);
    wait_until("it stays cut", || vain_logins(replica) >= before + 2);
    assert_eq!(replication(replica, "master_link_status"), "down");
}

/// A replica with fewer databases than its master uses.
fn small_replica(master: &Server, config: &[&str]) -> Server {
    let replica = Builder::new().with_port().config("databases 4");
    let replica = config.iter().fold(replica, |replica, &line| replica.config(line)).start();
    follow(&replica, master.port());
    replica
}

/// A connection that has selected a database which a small replica does not have.
fn in_database_5(master: &Server, door: Door) -> Client {
    let mut client = door.client(master);
    client.ok("SELECT 5");
    client
}

#[test]
fn it_confirms_nothing_that_it_does_not_have() {
    for door in [Door::Host, Door::Port] {
        let master = builder(Mode::Adaptive).start();
        master.client().ok("CONFIG SET min-replicas-to-write 1");
        let replica = small_replica(&master, &[]);
        let (mut writer, mut waiter) = (in_database_5(&master, door), master.client());
        wait_until("it is a good one", || waiter.run("SET native 1") == Value::ok());
        assert_eq!(waiter.integer("WAIT 1 0"), 1);
        let reply = writer.call(&door.named(&["SET", "a", "1"]));
        assert_eq!(reply, Value::ok());
        // Only what comes after that write in the stream is certain to be waited for.
        waiter.run("SET native 2");
        assert_eq!(waiter.integer("WAIT 1 700"), 0, "{door:?}: it has confirmed a write");
        wait_until_apart(&replica);
        assert_eq!(replication(&master, "connected_slaves"), "0");
        assert!(waiter.run("SET native 3").text().starts_with("NOREPLICAS"));
        assert!(waiter.run("FAILOVER").is_error(), "there is nobody to promote");
        let log = replica.log();
        assert_eq!(log.matches("does not follow its master any more").count(), 1, "{log}");
        let info = replica.client().info("midi_persistence");
        assert_eq!(info["midi_follows_master"], "no");
        let reason = &info["midi_follows_master_error"];
        assert!(reason.contains("cannot be applied") || reason.contains("4 databases"), "{reason}");
    }
}

/// FAILOVER waits for an acknowledgement that never comes.
#[test]
fn a_failover_does_not_promote_it() {
    let master = builder(Mode::Adaptive).start();
    let replica = small_replica(&master, &[]);
    let mut client = in_database_5(&master, Door::Host);
    // In one turn of the main loop: the replica leaves when it gets the write.
    client.send(b"MIDI.SET a 1\r\nFAILOVER TIMEOUT 2000\r\n");
    assert_eq!([client.read(), client.read()], [Value::ok(), Value::ok()]);
    wait_until("it is given up", || {
        replication(&master, "master_failover_state") == "no-failover"
            && replication(&master, "role") == "master"
    });
    wait_until_apart(&replica);
    assert_eq!(replication(&replica, "role"), "slave");
    assert_eq!(client.run("MIDI.GET a"), Value::bulk("1"));
}

/// The file never has midi's values, and the operator's changes meanwhile are kept.
#[test]
fn the_operators_settings_are_borrowed() {
    let master = builder(Mode::Adaptive).start();
    // A login with a password only works if the master asks for one.
    master.client().ok("CONFIG SET requirepass secret");
    let own = ["replica-priority 70", "masterauth secret"];
    let replica = Builder::new().with_port().config("databases 4");
    let replica = own.iter().fold(replica, |replica, &line| replica.config(line)).start();
    follow(&replica, master.port());
    let mut client = Client::connect(master.port()).expect("a connection");
    client.ok("AUTH secret");
    client.ok("SELECT 5");
    client.ok("MIDI.SET a 1");
    wait_until_apart(&replica);
    assert_eq!(settings(&replica)[..2], ["0", "yes"]);
    assert_eq!(replication(&replica, "slave_priority"), "0");
    let mut operator = replica.client();
    let are_in_file = |priority: &str| {
        let file = replica.config_file();
        let has = |line: &str| file.lines().any(|it| it.replace('"', "") == line);
        assert!(has(&format!("replica-priority {priority}")), "{file}");
        assert!(has("masterauth secret") || has("primaryauth secret"), "{file}");
        assert!(!file.contains("midi-does-not-follow"), "{file}");
        assert!(!file.contains("no-failover yes"), "{file}");
    };
    operator.ok("CONFIG REWRITE");
    are_in_file("70");
    operator.ok("CONFIG SET replica-priority 50");
    for line in ["MULTI", "CONFIG REWRITE"] {
        assert!(!operator.run(line).is_error());
    }
    assert_eq!(operator.run("EXEC"), Value::Array(vec![Value::ok()]));
    are_in_file("50");
    wait_until_apart(&replica);
    assert_eq!(replication(&replica, "slave_priority"), "0");
    operator.ok("REPLICAOF NO ONE");
    wait_until("they are given back", || {
        settings(&replica) == ["50", "no", "", "secret"].map(String::from)
    });
}

/// A partial resync mends nothing, a full one everything.
#[test]
fn a_full_sync_ends_it() {
    let master = builder(Mode::Adaptive).start();
    let replica = builder(Mode::Adaptive).start();
    let before = settings(&replica);
    let [link, other, third] = [(); 3].map(|()| Link::to(master.port()));
    follow(&replica, link.port());
    send_newer_version(&link);
    master.midi_client().ok("SET a newer");
    wait_until_apart(&replica);
    let tries = replica.log().matches("accepted a Partial Resync").count();
    let mut operator = replica.client();
    operator.ok(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    wait_until("it tries", || {
        replica.log().matches("accepted a Partial Resync").count() == tries + 1
    });
    wait_until_apart(&replica);
    assert_eq!(full_syncs(&[&master]), 1);
    master.client().ok("DEBUG CHANGE-REPL-ID");
    operator.ok(&format!("REPLICAOF 127.0.0.1 {}", third.port()));
    wait_for_link(&replica);
    must_become_equal(&[&master, &replica], "after a full sync");
    assert_eq!(full_syncs(&[&master]), 2);
    wait_until("the settings are given back", || settings(&replica) == before);
    assert_eq!(operator.info("midi_persistence")["midi_follows_master"], "yes");
    master.client().ok("MIDI.SET a confirmed");
    wait_until("it counts", || master.client().integer("WAIT 1 100") == 1);
}

/// Any client can name a database that is not there, also one that has not logged in. Only the
/// master's is a reason.
#[test]
fn nobody_else_parts_it() {
    let master = builder(Mode::Adaptive).start();
    let replica = builder(Mode::Adaptive).config("replica-read-only no").start();
    let [mut to_master, mut to_replica] = [master.client(), replica.client()];
    follow(&replica, master.port());
    to_replica.ok("CONFIG SET requirepass p");
    let mut stranger = replica.client();
    to_master.ok("MIDI.SET k v");
    wait_until("the key is there", || to_replica.run("MIDI.GET k") == Value::bulk("v"));
    // What the master then sends for it is an error here.
    to_replica.run("SADD x a");
    let errors = |client: &mut Client| client.info_number("stats", "unexpected_error_replies");
    for round in 0..10 {
        let before = errors(&mut to_replica);
        to_replica.send_line("DEBUG SLEEP 0.05");
        stranger.send_line("SELECT 99");
        to_master.run("LPUSH x b");
        assert!(stranger.read().is_error());
        to_replica.read();
        wait_until("the error", || errors(&mut to_replica) > before);
        if round == 5 {
            to_replica.send(b"SELECT 99\r\nCONFIG RESETSTAT\r\n");
            assert!(to_replica.read().is_error());
            assert_eq!(to_replica.read(), Value::ok());
        }
        assert_eq!(to_replica.run("MIDI.GET k"), Value::bulk("v"));
    }
}

/// Its RDB says so, and the new process is as strict.
#[test]
fn a_restart_does_not_end_it() {
    let master = builder(Mode::Adaptive).start();
    let mut replica = builder(Mode::Adaptive).start();
    let link = Link::to(master.port());
    follow(&replica, link.port());
    send_newer_version(&link);
    master.midi_client().ok("SET a newer");
    wait_until_apart(&replica);
    link.be_honest();
    for line in ["SAVE", "CONFIG REWRITE"] {
        replica.client().ok(line);
    }
    replica.crash();
    replica.restart(crate::common::redis_server());
    wait_until_apart(&replica);
    assert_eq!(full_syncs(&[&master]), 1);
    assert_eq!(replication(&replica, "slave_priority"), "0");
    // As a master it has the data, and is trusted as a replica of the next one.
    replica.client().ok("SAVE");
    replica.reconfigure("replicaof", "# replicaof");
    replica.crash();
    replica.restart(crate::common::redis_server());
    let next = builder(Mode::Adaptive).start();
    follow(&next, replica.port());
    wait_for_link(&next);
    wait_until("it has a replica", || replica.client().run("FAILOVER") == Value::ok());
    wait_for_role(&next, true);
    next.client().ok("MIDI.SET b new");
    wait_until("it follows", || replica.client().run("MIDI.GET b") == Value::bulk("new"));
}

/// Without CONFIG there is no password to be changed; without CLIENT no connection can be ended.
#[test]
fn the_link_is_cut_without_config_or_client() {
    for renamed in ["CONFIG", "CLIENT"] {
        let master = builder(Mode::Adaptive).start();
        let rename = format!("rename-command {renamed} \"\"");
        let replica = small_replica(&master, &[rename.as_str()]);
        in_database_5(&master, Door::Host).ok("MIDI.SET a 1");
        wait_until("nobody is attached", || replication(&master, "connected_slaves") == "0");
        wait_until("it tries in vain", || {
            replica.log().matches("MASTER <-> REPLICA sync started").count() > 3
                || replica.log().matches("PRIMARY <-> REPLICA sync started").count() > 3
                || vain_logins(&replica) > 1
        });
        assert_eq!(replication(&replica, "master_link_status"), "down");
        assert_eq!(replication(&master, "connected_slaves"), "0");
        replica.client().ok("REPLICAOF NO ONE");
        wait_for_role(&replica, true);
        master.client().ok("MIDI.FLUSHALL");
        follow(&replica, master.port());
        must_become_equal(&[&master, &replica], "after a full sync");
    }
}

/// In a cluster there is no REPLICAOF.
#[test]
fn a_cluster_does_not_promote_it() {
    // The workers' writes are logged in texts, which have a version.
    let pool = Mode::Pool.builder().config("cluster-enabled yes");
    let builder = || pool.clone().config("cluster-node-timeout 500");
    let (master, replica) = (builder().start(), builder().start());
    let link = Link::to(master.port());
    master.client().ok("CLUSTER ADDSLOTSRANGE 0 16383");
    // The bus tells of the link's port, which falsifies.
    master.client().ok(&format!("CONFIG SET cluster-announce-port {}", link.port()));
    master.client().ok(&format!("CONFIG SET cluster-announce-bus-port {}", master.port() + 10_000));
    replica.client().ok(&format!(
        "CLUSTER MEET 127.0.0.1 {} {}",
        link.port(),
        master.port() + 10_000
    ));
    let id = master.client().run("CLUSTER MYID").text();
    let mut client = replica.client();
    wait_until("it follows", || client.run(&format!("CLUSTER REPLICATE {id}")) == Value::ok());
    wait_for_link(&replica);
    wait_until("the cluster is well", || {
        client.run("CLUSTER INFO").text().contains("cluster_state:ok")
            && master.client().run("MIDI.SET a 1") == Value::ok()
    });
    send_newer_version(&link);
    master.client().ok("MIDI.SET a 2");
    wait_until_apart(&replica);
    assert_eq!(settings(&replica)[..2], ["0", "yes"]);
    assert_eq!(replication(&master, "connected_slaves"), "0");
}
