//! The promise: INFO and MIDI.INFO report on midi, in RESP2 and RESP3.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Mode, Server, Value, in_all_modes};

/// All sections, with the first fields of each.
const SECTIONS: [(&str, &[&str]); 10] = [
    ("shards", &["shards", "threads", "safemode", "version", "panics"]),
    ("keyspace", &["db0", "db3"]),
    (
        "persistence",
        &[
            "changes",
            "last_save_time",
            "last_save_keys",
            "last_save_bytes",
            "last_save_usec",
            "last_save_status",
            "failed_saves",
            "forks",
            "last_fork_pause_usec",
            "longest_fork_pause_usec",
            "last_load_keys",
            "last_load_msec",
            "loading",
            "mode",
            "journal_tail_runs",
            "journal_tail_bytes",
            "journal_tail_age_msec",
            "journal_batches",
            "journal_runs",
            "journal_records",
            "journal_bytes",
            "journal_usec_until_logged",
            "journal_usec_until_safe",
            "journal_undone_runs",
            "journal_position",
            "journal_logged_position",
            "journal_safe_position",
            "journal_reads_wait",
            "journal_skips_fsyncs_beside_children",
            "journal_for_replicas",
            "clients_in_wait",
        ],
    ),
    (
        "memory",
        &[
            "table_bytes",
            "bytes_per_key",
            "arena_used_bytes",
            "arena_mapped_bytes",
            "arena_huge_page_bytes",
            "kept_arguments",
            "watched_names",
            "watched_bytes",
            "maxmemory",
            "maxmemory_policy",
            "maxmemory_in_force",
            "evicted_keys",
            "evictable_host_keys",
        ],
    ),
    ("expiry", &["expiring_keys", "expired_keys"]),
    ("dispatch", &["dispatch", "ran_at_once", "queued", "queue_depth"]),
    ("workers", &["worker0", "worker1"]),
    ("net", &["port_state"]),
    ("jobs", &["jobs_running", "jobs_started"]),
    (
        "commandstats",
        &["cmdstat_get", "cmdstat_set", "cmdstat_mset", "cmdstat_expire", "cmdstat_keys"],
    ),
];

/// Some work for the reports to show.
fn some_work(server: &Server) {
    let mut client = server.client();
    for line in [
        "MIDI.SET a 1 EX 1000",
        "MIDI.MSET b 2 c 3",
        "MIDI.GET a",
        "MIDI.GET nosuch",
        "MIDI.KEYS *",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    client.ok("SELECT 3");
    client.ok("MIDI.SET a 1");
    client.run("MIDI.EXPIRE a 1000");
    server.wait_until_idle();
}

/// The sections of INFO's text, in either protocol version.
fn sections(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut section = String::new();
    let text = text.strip_prefix("txt:").unwrap_or(text);
    for line in text.split("\r\n").filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("# ") {
            section = name.to_owned();
            found.entry(section.clone()).or_default();
        } else {
            let (name, value) =
                line.split_once(':').unwrap_or_else(|| panic!("not a field: {line:?}"));
            found.get_mut(&section).expect("a section").insert(name.to_owned(), value.to_owned());
        }
    }
    found
}

#[track_caller]
fn check_section(found: &BTreeMap<String, BTreeMap<String, String>>, name: &str, fields: &[&str]) {
    let section =
        found.get(&format!("midi_{name}")).unwrap_or_else(|| panic!("no {name}: {found:?}"));
    let expected: BTreeSet<_> = fields.iter().map(|field| format!("midi_{field}")).collect();
    assert_eq!(section.keys().cloned().collect::<BTreeSet<_>>(), expected, "{name}");
}

#[test]
fn info_has_midis_sections() {
    in_all_modes(|mode, server| {
        some_work(server);
        for mut client in [server.client(), server.client().resp3()] {
            for (name, fields) in SECTIONS {
                let found = sections(&client.run(&format!("INFO midi_{name}")).text());
                assert_eq!(found.len(), 1, "{name}");
                check_section(&found, name, fields);
            }
            for all in ["everything", "modules"] {
                let found = sections(&client.run(&format!("INFO {all}")).text());
                let present =
                    SECTIONS.iter().filter(|(name, _)| found.contains_key(&format!("midi_{name}")));
                assert_eq!(present.count(), SECTIONS.len(), "INFO {all}");
            }
            assert!(client.info("server").contains_key("redis_version"));
        }
        check_values(server, mode);
    });
}

fn check_values(server: &Server, mode: Mode) {
    let mut client = server.client();
    let mut field = |section: &str, name: &str| {
        client.info(&format!("midi_{section}"))[&format!("midi_{name}")].clone()
    };
    assert_eq!(field("shards", "threads"), "2");
    assert_eq!(field("shards", "shards"), "1024");
    assert_eq!(field("shards", "panics"), "0");
    assert_eq!(field("shards", "safemode"), if mode == Mode::Safe { "yes" } else { "no" });
    assert_eq!(field("keyspace", "db0"), "keys=3,expires=1");
    assert_eq!(field("keyspace", "db3"), "keys=1,expires=1");
    assert_eq!(field("expiry", "expiring_keys"), "2");
    assert_eq!(field("persistence", "changes"), "5");
    assert_eq!(field("persistence", "mode"), "fast");
    assert_eq!(field("dispatch", "dispatch"), if mode == Mode::Pool { "pool" } else { "adaptive" });
    assert!(field("commandstats", "cmdstat_get").starts_with("calls=2,usec="));
    assert!(field("commandstats", "cmdstat_set").starts_with("calls=2,usec="));
    assert!(field("commandstats", "cmdstat_mset").contains(",usec_per_call="));
    assert!(field("workers", "worker1").starts_with("commands="));
    let bytes: i64 = field("memory", "table_bytes").parse().expect("a number");
    assert!(bytes > 0 && bytes < 1 << 20, "{bytes}");
}

#[test]
fn midi_info_tells_the_same() {
    in_all_modes(|_, server| {
        some_work(server);
        let mut client = server.client();
        let all = sections(&client.run("MIDI.INFO").text());
        assert_eq!(all.len(), SECTIONS.len());
        for (name, fields) in SECTIONS {
            check_section(&all, name, fields);
            for line in
                [format!("MIDI.INFO {name}"), format!("midi.info MIDI_{}", name.to_uppercase())]
            {
                let one = sections(&client.run(&line).text());
                assert_eq!(one.keys().collect::<Vec<_>>(), [&format!("midi_{name}")], "{line}");
                check_section(&one, name, fields);
            }
        }
        let two = sections(&client.run("MIDI.INFO workers dispatch nosuch").text());
        assert_eq!(two.keys().collect::<Vec<_>>(), ["midi_dispatch", "midi_workers"]);
        assert_eq!(client.run("MIDI.INFO nosuch"), Value::bulk(""));
        for word in ["all", "everything", "default"] {
            assert_eq!(
                sections(&client.run(&format!("MIDI.INFO {word}")).text()).len(),
                SECTIONS.len()
            );
        }
        let mut client = server.client().resp3();
        let Value::Verbatim(text) = client.run("MIDI.INFO shards") else { panic!("not verbatim") };
        assert!(text.starts_with(b"txt:# midi_shards\r\nmidi_shards:1024\r\n"));
    });
}

#[test]
fn info_has_its_sections() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET a 1 b 2");
        client.ok("MIDI.SET c 3 EX 1000");
        for _ in 0..20 {
            client.run("MIDI.GET a");
        }
        for (section, fields) in [
            ("shards", vec!["shards", "threads", "safemode", "version", "panics"]),
            ("keyspace", vec!["db0"]),
            (
                "memory",
                vec![
                    "table_bytes",
                    "bytes_per_key",
                    "arena_used_bytes",
                    "arena_mapped_bytes",
                    "arena_huge_page_bytes",
                    "kept_arguments",
                    "watched_names",
                    "watched_bytes",
                    "maxmemory",
                    "maxmemory_policy",
                    "maxmemory_in_force",
                    "evicted_keys",
                    "evictable_host_keys",
                ],
            ),
            ("expiry", vec!["expiring_keys", "expired_keys"]),
            ("dispatch", vec!["dispatch", "ran_at_once", "queued", "queue_depth"]),
            ("workers", vec!["worker0", "worker1"]),
            ("jobs", vec!["jobs_running", "jobs_started"]),
            ("commandstats", vec!["cmdstat_get", "cmdstat_mset", "cmdstat_set"]),
        ] {
            let found = client.info(&format!("midi_{section}"));
            for field in fields {
                assert!(
                    found.contains_key(&format!("midi_{field}")),
                    "midi_{section}: no {field} in {found:?}"
                );
            }
        }
        assert_eq!(client.info("midi_keyspace")["midi_db0"], "keys=3,expires=1");
        assert!(client.info("midi_commandstats")["midi_cmdstat_get"].starts_with("calls=20,usec="));
        assert!(client.run("INFO everything").text().contains("# midi_shards"));
        assert!(!client.run("INFO").text().contains("# midi_"), "as other modules' sections");
    });
}

#[test]
fn midi_info_has_its_sections_in_both_protocols() {
    in_all_modes(|_, server| {
        for resp3 in [false, true] {
            let mut client = if resp3 { server.client().resp3() } else { server.client() };
            client.ok("MIDI.SET a 1");
            let reply = client.run("MIDI.INFO");
            assert!(if resp3 {
                matches!(reply, Value::Verbatim(_))
            } else {
                matches!(reply, Value::Bulk(_))
            });
            let all = reply.text();
            for section in [
                "shards",
                "keyspace",
                "memory",
                "expiry",
                "dispatch",
                "workers",
                "jobs",
                "commandstats",
            ] {
                assert!(all.contains(&format!("# midi_{section}\r\n")), "{all}");
                let one = client.run(&format!("MIDI.INFO {section}")).text();
                assert_eq!(one.matches("# midi_").count(), 1, "{section}: {one}");
                assert_eq!(
                    client.run(&format!("MIDI.INFO midi_{section}")).text().matches("# ").count(),
                    1
                );
            }
            assert!(client.run("MIDI.INFO SHARDS Jobs").text().matches("# midi_").count() == 2);
            assert!(!client.run("MIDI.INFO nosuch").text().contains('#'));
        }
    });
}
