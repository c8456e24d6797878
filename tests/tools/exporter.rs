//! The promise: redis_exporter, which gives Prometheus a Redis' figures, reads midi's port as it
//! reads a Redis. The series of its dashboards are right at the first scrape.
//!
//! Environment: `MIDI_REDIS_EXPORTER`, the program; `make test-clients` sets it.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::common::{Mode, Server, free_port, skip, wait_until};

/// Series of the exporter's dashboards whose numbers vary.
const SERIES: [&str; 9] = [
    "redis_uptime_in_seconds",
    "redis_memory_used_bytes",
    "redis_memory_used_rss_bytes",
    "redis_mem_fragmentation_ratio",
    "redis_net_input_bytes_total",
    "redis_net_output_bytes_total",
    "redis_commands_duration_seconds_total{cmd=\"get\"}",
    "redis_commands_duration_seconds_total{cmd=\"set\"}",
    "redis_config_maxclients",
];

/// Those whose numbers are known after what the test has sent.
const KNOWN: [(&str, f64); 18] = [
    ("redis_up", 1.0),
    ("redis_exporter_last_scrape_error{err=\"\"}", 0.0),
    // The test's client and the exporter's.
    ("redis_connected_clients", 2.0),
    ("redis_blocked_clients", 0.0),
    ("redis_connected_slaves", 0.0),
    ("redis_memory_max_bytes", 0.0),
    ("redis_keyspace_hits_total", 2.0),
    ("redis_keyspace_misses_total", 1.0),
    ("redis_expired_keys_total", 0.0),
    ("redis_evicted_keys_total", 0.0),
    ("redis_rejected_connections_total", 0.0),
    ("redis_db_keys{db=\"db0\"}", 3.0),
    ("redis_db_keys_expiring{db=\"db0\"}", 1.0),
    ("redis_db_keys{db=\"db2\"}", 1.0),
    ("redis_commands_total{cmd=\"get\"}", 3.0),
    ("redis_commands_total{cmd=\"set\"}", 4.0),
    ("redis_commands_failed_calls_total{cmd=\"incr\"}", 1.0),
    ("redis_commands_rejected_calls_total{cmd=\"get\"}", 1.0),
];

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the exporter has of this server, by its names and labels.
fn scraped(program: &str, server: &Server) -> HashMap<String, f64> {
    let address = format!("127.0.0.1:{}", free_port());
    let mut exporter = Command::new(program);
    exporter.arg(format!("-redis.addr=redis://127.0.0.1:{}", server.midi_port()));
    exporter.arg(format!("-web.listen-address={address}")).stderr(Stdio::null());
    let _running = Running(exporter.spawn().expect("it runs"));
    let mut page = None;
    wait_until("the exporter listens", || {
        page = TcpStream::connect(&address).ok();
        page.is_some()
    });
    let mut page = page.expect("a connection");
    page.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    page.read_to_string(&mut text).expect("a page");
    let lines = text.lines().filter(|line| line.starts_with("redis_"));
    let series = lines.filter_map(|line| line.rsplit_once(' '));
    series.map(|(name, number)| (name.to_owned(), number.parse().expect("a number"))).collect()
}

#[test]
fn the_series_of_its_dashboards_are_right() {
    let Ok(program) = std::env::var("MIDI_REDIS_EXPORTER") else {
        return skip("MIDI_REDIS_EXPORTER is not set; make test-clients sets it");
    };
    for mode in [Mode::Adaptive, Mode::Safe] {
        let server = mode.builder().with_port().start();
        let mut client = server.midi_client();
        for line in ["SET a 1", "SET b x EX 1000", "SET c 3", "SELECT 2", "SET d 4", "SELECT 0"] {
            client.ok(line);
        }
        for line in ["GET a", "GET b", "GET none", "GET", "INCR b"] {
            client.run(line);
        }
        let found = scraped(&program, &server);
        for name in SERIES {
            assert!(found.contains_key(name), "{name}");
        }
        for (name, number) in KNOWN {
            assert_eq!(found.get(name), Some(&number), "{name}");
        }
        let calls = found.iter().filter(|(name, _)| name.starts_with("redis_commands_total{"));
        let all: f64 = calls.map(|(_, number)| number).sum();
        assert_eq!(found["redis_commands_processed_total"], all);
    }
}
