//! Servers that replicate: who is whose master, and whether they have the same.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::link::Link;
use super::{Builder, Client, Mode, Server, wait_until};

/// How many failovers, or pauses, a test has in each mode: `MIDI_FAILOVERS`, or this many.
pub fn failovers(default: usize) -> usize {
    std::env::var("MIDI_FAILOVERS").map_or(default, |text| text.parse().expect("MIDI_FAILOVERS"))
}

/// With an AOF that is synced before any reply.
pub fn with_aof_always(builder: Builder) -> Builder {
    builder.config("appendonly yes").config("appendfsync always")
}

/// A server with both doors, for either end of a link.
pub fn builder(mode: Mode) -> Builder {
    mode.builder().with_port().load("shards 64").config("repl-backlog-size 64mb")
}

/// Becomes a replica of the server on this port, and waits until the link is up.
pub fn follow(replica: &Server, port: u16) {
    replica.client().ok(&format!("REPLICAOF 127.0.0.1 {port}"));
    wait_for_link(replica);
}

/// Waits until the link to the master is up.
pub fn wait_for_link(replica: &Server) {
    let mut client = replica.client();
    wait_until("the link is up", || {
        client.info("replication").get("master_link_status").is_some_and(|status| status == "up")
    });
}

/// Whether the server is a master. If it has ended it is none.
pub fn is_master(client: &mut Client) -> bool {
    let info = client.try_call(&["INFO", "replication"]);
    info.is_ok_and(|info| info.text().contains("role:master"))
}

/// Waits until the server is a master, or a replica.
pub fn wait_for_role(server: &Server, master: bool) {
    let mut client = server.client();
    wait_until("the role has changed", || is_master(&mut client) == master);
}

/// The keys of a server: midi's, and the host's own. `None` while it loads.
fn digests(server: &Server) -> Option<[String; 2]> {
    let mut client = server.client();
    let digests = ["MIDI.KEYSPACEDIGEST", "DEBUG DIGEST"].map(|line| client.run(line));
    digests.iter().all(|reply| !reply.is_error()).then(|| digests.map(|reply| reply.text()))
}

/// Waits until these servers have the same. Nobody may write any more.
#[track_caller]
pub fn must_become_equal(servers: &[&Server], what: &str) {
    wait_until(&format!("they are equal: {what}"), || {
        let mut all = servers.iter().map(|server| digests(server));
        let first = all.next().expect("a server");
        first.is_some() && all.all(|other| other == first)
    });
}

/// How many full syncs these servers have given to replicas.
pub fn full_syncs(servers: &[&Server]) -> i64 {
    servers.iter().map(|server| server.client().info_number("stats", "sync_full")).sum()
}

/// Runs of writes that this server has taken back for good, as its log says.
pub fn undone(server: &Server) -> u64 {
    const BEFORE: &str = "This server is a replica now: ";
    let log = server.log();
    let counts = log.lines().filter_map(|line| line.split_once(BEFORE)?.1.split(' ').next());
    counts.map(|count| count.parse::<u64>().expect("a number")).sum()
}

/// Stops a server's process, which keeps its connections, until this is dropped.
pub struct Stopped(i32);

impl Stopped {
    /// Stops it.
    pub fn stop(server: &Server) -> Stopped {
        signal(server.pid() as i32, libc::SIGSTOP);
        Stopped(server.pid() as i32)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, libc::SIGCONT);
    }
}

/// kill -9. To be followed by [`Server::wait_for_exit`].
pub fn kill(server: &Server) {
    signal(server.pid() as i32, libc::SIGKILL);
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: a signal to our own child, which has not been waited for.
    unsafe { libc::kill(pid, signal) };
}

/// Two servers, one of which is the other's master. Which one can change.
pub struct Pair {
    /// Both.
    pub servers: [Server; 2],
    master: AtomicUsize,
}

impl Pair {
    /// Starts them. The first one is the master.
    pub fn start(builder: &Builder) -> Pair {
        let servers = [(); 2].map(|()| builder.clone().start());
        follow(&servers[1], servers[0].port());
        Pair::of(servers)
    }

    /// The first one is the master.
    pub fn of(servers: [Server; 2]) -> Pair {
        Pair { servers, master: AtomicUsize::new(0) }
    }

    /// Starts them with such a link between them: what FAILOVER makes of them is linked directly.
    pub fn start_linked(builder: &Builder) -> (Pair, Link) {
        let servers = [(); 2].map(|()| builder.clone().start());
        let link = Link::to(servers[0].port());
        follow(&servers[1], link.port());
        (Pair::of(servers), link)
    }

    /// The master.
    pub fn master(&self) -> &Server {
        &self.servers[self.master.load(Ordering::Relaxed)]
    }

    /// The replica.
    pub fn replica(&self) -> &Server {
        &self.servers[1 - self.master.load(Ordering::Relaxed)]
    }

    /// The roles have changed.
    pub fn exchange(&self) {
        self.master.fetch_xor(1, Ordering::Relaxed);
    }

    /// FAILOVER, and waits until the roles have changed and the link is up.
    pub fn fail_over(&self) {
        self.master().client().ok("FAILOVER");
        wait_for_role(self.replica(), true);
        self.exchange();
        wait_for_link(self.replica());
    }

    /// Waits until both have the same.
    #[track_caller]
    pub fn must_become_equal(&self, what: &str) {
        must_become_equal(&[&self.servers[0], &self.servers[1]], what);
    }
}
