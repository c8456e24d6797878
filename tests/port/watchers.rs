//! The promise: programs that watch a Redis can watch the port. Each call that Datadog's check
//! sends is answered, with the fields that the check reads.

use super::session::ported;
use crate::common::Value;

/// What the check looks up in INFO, if the host has the field.
const FIELDS: [&str; 33] = [
    "aof_rewrite_in_progress",
    "blocked_clients",
    "connected_clients",
    "connected_slaves",
    "evicted_keys",
    "expired_keys",
    "instantaneous_ops_per_sec",
    "keyspace_hits",
    "keyspace_misses",
    "latest_fork_usec",
    "master_repl_offset",
    "maxmemory",
    "mem_fragmentation_ratio",
    "pubsub_channels",
    "pubsub_patterns",
    "rdb_bgsave_in_progress",
    "rdb_changes_since_last_save",
    "rdb_last_bgsave_time_sec",
    "redis_version",
    "rejected_connections",
    "repl_backlog_histlen",
    "role",
    "total_commands_processed",
    "used_cpu_sys",
    "used_cpu_sys_children",
    "used_cpu_user",
    "used_cpu_user_children",
    "used_memory",
    "used_memory_lua",
    "used_memory_overhead",
    "used_memory_peak",
    "used_memory_rss",
    "used_memory_startup",
];

#[test]
fn datadog_s_check_is_answered() {
    let ported = ported();
    let (mut client, mut other, mut host) = (ported.client(), ported.client(), ported.host());
    other.ok("SET key 1");
    other.ok("SET passing 1 EX 1000");
    other.ok("CLIENT SETNAME other");
    host.ok("CONFIG SET slowlog-log-slower-than 0");
    host.ok("CONFIG SET slowlog-max-len 77");
    other.run("GET key");
    for line in ["CLIENT SETINFO LIB-NAME redis-py", "CLIENT SETINFO LIB-VER 4.0.0"] {
        client.run(line);
    }
    let info = client.run("INFO").text();
    let names: Vec<&str> = info.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    for field in FIELDS {
        assert!(names.contains(&field), "{field} is not in {names:?}");
    }
    assert!(info.contains("\r\ndb0:keys=2,expires=1,"), "{info}");
    assert_eq!(client.info("keyspace").len(), 1);
    assert!(client.info("commandstats")["cmdstat_get"].starts_with("calls=1,usec="));
    let setting = client.run("CONFIG GET maxclients").array();
    assert_eq!(setting[0], Value::bulk("maxclients"));
    assert!(setting[1].text().parse::<u32>().is_ok());
    let setting = client.run("CONFIG GET slowlog-max-len").array();
    assert_eq!(setting[1], Value::bulk("77"));
    let slow = client.run("SLOWLOG GET 77").array();
    let newest = slow[0].clone().array();
    assert!(newest[..3].iter().all(|number| number.integer() >= 0));
    let of_get = slow.iter().map(|call| call.clone().array()[3].clone().array());
    let get = Value::Array(vec![Value::bulk("GET"), Value::bulk("key")]).array();
    assert!(of_get.collect::<Vec<_>>().contains(&get));
    let list = client.run("CLIENT LIST").text();
    assert!(list.lines().count() == 2 && list.contains(" name=other "), "{list}");
    let found = client.run("SCAN 0 MATCH ke* COUNT 1000").array().remove(1);
    assert_eq!(found, Value::Array(vec![Value::bulk("key")]));
    assert_eq!(client.run("TYPE key").text(), "string");
}
