//! The promise: what INFO on the port says of commands, look-ups, errors, keys and traffic is what
//! the host's says of the same commands on its own port.

use std::collections::{BTreeMap, HashMap};

use super::session::ported;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, encoded, wait_until};

/// Commands that are counted alike on both ports. Each line is sent by itself.
const COUNTED: &[&str] = &[
    "SET a 1",
    "SET b hello",
    "SET b x EX 100 GET",
    "SET none x XX GET",
    "SET a 1 NX",
    "SET a 1 BAD",
    "GET a",
    "GET b",
    "GET none",
    "GET",
    "GET a b",
    "MGET a none b a",
    "MGET none",
    "EXISTS a none a",
    "TOUCH a none",
    "TTL a",
    "PTTL none",
    "TYPE a",
    "TYPE none",
    "OBJECT ENCODING a",
    "OBJECT ENCODING none",
    "MEMORY USAGE a",
    "STRLEN a",
    "GETRANGE none 0 1",
    "GETRANGE a x y",
    "GETEX a",
    "GETEX none EX 10",
    "GETEX a BAD",
    "GETSET b again",
    "GETDEL b",
    "GETDEL b",
    "COPY a c",
    "COPY none c",
    "BITOP OR d a c none",
    "BITCOUNT d",
    "GETBIT none 1",
    "SETBIT d 1 1",
    "DUMP none",
    "APPEND a x",
    "INCR a",
    "INCR n",
    "INCRBY n x",
    "EXPIRE a 100",
    "EXPIRE none 100",
    "EXPIRE a x",
    "PERSIST a",
    "RENAME none x",
    "RENAME a e",
    "MSET x 1 y 2",
    "MSET x 1 y",
    "MSETNX x 1 z 1",
    "DEL x none",
    "PING",
    "PING a b c",
    "ECHO x",
    "SELECT 1",
    "SELECT 0",
    "SELECT x",
    "CLIENT ID",
    "CLIENT NOSUCH",
    "CONFIG GET maxmemory",
    "TIME",
    "LASTSAVE",
    "NOSUCH",
    "EXEC",
    "MULTI",
    "SET m 1",
    "GET m",
    "INCRBY m x",
    "GET",
    "EXEC",
    "MULTI",
    "SET m 1",
    "GET m",
    "EXPIRE m x",
    "PING",
    "EXEC",
    "WAIT 0 x",
    "MULTI",
    "WAIT x 0",
    "WAIT 0 -1",
    "WAIT 0 0",
    "EXEC",
    "HSET hash f v",
    "HGET hash f",
    "HGET hash g",
    "HGET m f",
    "HLEN nosuch",
    "GET hash",
    "STRLEN hash",
    "GETRANGE hash 0 1",
    "GETRANGE m x 1",
    "APPEND hash x",
    "MGET hash m nosuch",
    "WATCH m",
    "UNWATCH",
    "EVAL 'return 1' 0",
    "EVAL 'nosuch(' 0",
    "EVAL 'return redis.call(\"HGET\",KEYS[1],\"f\")' 1 m",
    "EVAL 'return redis.pcall(\"HGET\",KEYS[1],\"f\")' 1 m",
    "EVAL 'return redis.error_reply(\"OWN text\")' 0",
    "SUBSCRIBE channel",
    "GET m",
    "UNSUBSCRIBE channel",
    "SET p 1 PX 1",
    "DBSIZE",
    "BITFIELD bits",
    "BITFIELD bits GET u8 0",
    "BITFIELD bits SET u8 0 7 GET u8 0",
    "BITFIELD bits GET u8 0 get u8 8",
    "BITFIELD bits OVERFLOW SAT incrby u8 0 7",
    "BITFIELD bits OVERFLOW SAT GET u8 0",
    "BITFIELD bits GET u99 0",
    "BITFIELD hash GET u8 0",
    "BITFIELD hash SET u8 0 1",
    "BITFIELD_RO bits GET u8 0",
];

/// The fields of a line such as `calls=1,usec=2`.
fn parts(line: &str) -> HashMap<&str, &str> {
    line.split(',').filter_map(|part| part.split_once('=')).collect()
}

/// Calls, rejected and failed ones of each command that is in the list.
fn commands(client: &mut Client) -> BTreeMap<String, [String; 3]> {
    let info = client.info("commandstats");
    let named = |line: &&str| -> Vec<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let sub = words.get(1).map(|sub| format!("{}|{sub}", words[0]));
        std::iter::once(words[0].to_owned()).chain(sub).map(|it| it.to_lowercase()).collect()
    };
    let names: Vec<String> = COUNTED.iter().flat_map(named).collect();
    let count = |(name, line): (&String, &String)| {
        let name = name.strip_prefix("cmdstat_")?;
        // A subcommand of these is no row of its own here.
        let name = name.strip_suffix("|usage").or(name.strip_suffix("|encoding")).unwrap_or(name);
        let parts = parts(line);
        let numbers = ["calls", "rejected_calls", "failed_calls"].map(|it| parts[it].to_owned());
        // midi itself asks the host for settings.
        let counts = names.iter().any(|it| it == name) && name != "config|get";
        counts.then(|| (name.to_owned(), numbers))
    };
    info.iter().filter_map(count).collect()
}

fn run_all(clients: &mut [Client]) {
    for client in clients.iter_mut() {
        for line in COUNTED {
            let words: Vec<String> = split(line);
            client.call(&words);
        }
    }
}

/// The words of a line, of which one may be in quotes.
fn split(line: &str) -> Vec<String> {
    match line.split('\'').collect::<Vec<_>>()[..] {
        [before, quoted, after] => {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            [words(before), vec![quoted.to_owned()], words(after)].concat()
        }
        _ => line.split(' ').map(str::to_owned).collect(),
    }
}

fn errors(client: &mut Client) -> BTreeMap<String, String> {
    client.info("errorstats").into_iter().collect()
}

#[test]
fn the_same_commands_count_the_same() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    let four = |client: fn(&Ported) -> Client| (0..4).map(|_| client(&ported)).collect::<Vec<_>>();
    host.ok("FLUSHALL");
    host.ok("CONFIG RESETSTAT");
    run_all(&mut four(Ported::host));
    let (of_host, host_errors) = (commands(&mut host), errors(&mut host));
    let looked = |client: &mut Client| {
        let stats = client.info("stats");
        ["keyspace_hits", "keyspace_misses", "total_error_replies"].map(|it| stats[it].clone())
    };
    let looked_of_host = looked(&mut host);
    port.ok("FLUSHALL");
    port.ok("CONFIG RESETSTAT");
    run_all(&mut four(Ported::client));
    assert_eq!(commands(&mut port), of_host);
    assert_eq!(errors(&mut port), host_errors);
    assert_eq!(looked(&mut port), looked_of_host);
}

#[test]
fn a_long_lcs_looks_both_keys_up() {
    let ported = ported();
    let (mut client, value) = (ported.client(), "z".repeat(2000));
    client.call(&["SET", "a", &value]);
    assert_eq!(client.run("LCS a b LEN"), Value::Integer(0));
    client.call(&["SET", "b", &value]);
    assert_eq!(client.run("LCS a b LEN"), Value::Integer(2000));
    let stats = client.info("stats");
    assert_eq!((&*stats["keyspace_hits"], &*stats["keyspace_misses"]), ("3", "1"));
}

#[test]
fn commands_keys_and_traffic_are_exact() {
    let ported = ported();
    let mut clients: Vec<Client> = (0..4).map(|_| ported.client()).collect();
    let mut asker = ported.client();
    // The others have been sent nothing that could be counted after this.
    asker.ok("CONFIG RESETSTAT");
    let mut pipeline: Vec<Vec<String>> = Vec::new();
    for number in 0..100 {
        for line in ["SET key:{} 12345", "GET key:{}", "GET none:{}", "INCR count:{}"] {
            pipeline.push(split(&line.replace("{}", &number.to_string())));
        }
    }
    for client in &mut clients {
        client.pipeline(&pipeline);
    }
    let mut received = 4 * pipeline.iter().map(|args| encoded(args).len()).sum::<usize>();
    // The reply to RESETSTAT was sent after it.
    let mut sent = 400 * "+OK\r\n$5\r\n12345\r\n$-1\r\n:1\r\n".len() + "+OK\r\n".len();
    // A worker counts what it has sent just after the client may have it.
    wait_until("all is counted", || {
        received += encoded(&["INFO", "stats"]).len();
        let text = asker.run("INFO stats").text();
        let field = |name: &str| -> usize {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the field");
            line.strip_prefix(':').expect("a value").parse().expect("a number")
        };
        assert_eq!((field("keyspace_hits"), field("keyspace_misses")), (400, 400));
        assert_eq!(field("total_net_input_bytes"), received);
        assert!(field("total_net_output_bytes") <= sent, "{text}");
        let all_sent = field("total_net_output_bytes") == sent;
        sent += format!("${}\r\n{text}\r\n", text.len()).len();
        all_sent
    });
    let commands = asker.info("commandstats");
    for (name, calls) in [("set", 400), ("get", 800), ("incr", 400)] {
        let line = &commands[&format!("cmdstat_{name}")];
        let parts = parts(line);
        assert_eq!(parts["calls"], calls.to_string(), "{line}");
        let number = |name: &str| -> f64 { parts[name].parse().expect("a number") };
        let usec = number("usec_per_call") * f64::from(calls);
        // The mean has two digits.
        assert!(usec > 0.0 && (number("usec") - usec).abs() < 0.01 * f64::from(calls), "{line}");
        let times = asker.info("latencystats");
        assert!(times[&format!("latency_percentiles_usec_{name}")].contains("p99.9="));
    }
    let calls = |line: &String| -> i64 { parts(line)["calls"].parse().expect("a number") };
    let all: i64 = asker.info("commandstats").values().map(calls).sum();
    assert_eq!(asker.info_number("stats", "total_commands_processed"), all + 1);
    assert_eq!(asker.info("keyspace")["db0"], "keys=200,expires=0,avg_ttl=0");
}

#[test]
fn resetstat_begins_the_counts_again() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    port.ok("SET a 1");
    port.run("GET a");
    port.run("NOSUCH");
    port.ok("CONFIG RESETSTAT");
    let stats = port.info("stats");
    for name in ["keyspace_hits", "keyspace_misses", "total_error_replies", "rejected_connections"]
    {
        assert_eq!(stats[name], "0", "{name}");
    }
    assert!(port.info("errorstats").is_empty());
    assert!(!port.info("commandstats").contains_key("cmdstat_get"));
    assert_eq!(port.info("keyspace")["db0"], "keys=1,expires=0,avg_ttl=0");
    port.run("GET a");
    assert!(port.info("commandstats")["cmdstat_get"].starts_with("calls=1,"));
    // midi's own sections go on.
    assert!(host.info("midi_commandstats")["midi_cmdstat_get"].starts_with("calls=2,"));
}

#[test]
fn the_histogram_has_all_calls() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    assert_eq!(port.run("LATENCY HISTOGRAM get"), host.run("LATENCY HISTOGRAM get"));
    for client in [&mut host, &mut port] {
        (0..100).for_each(|_| _ = client.run("GET a"));
        client.run("CLIENT ID");
        let mut told = client.run("LATENCY HISTOGRAM get set nosuch client").array();
        told.truncate(4);
        let names = [told[0].text(), told[2].text()];
        assert!(names.contains(&"get".to_owned()) && names.contains(&"client|id".to_owned()));
        let get = told[1 + 2 * usize::from(names[0] != "get")].clone().array();
        assert_eq!((get[0].text(), get[1].integer()), ("calls".to_owned(), 100));
        assert_eq!(get[2].text(), "histogram_usec");
        let lines: Vec<i64> = get[3].clone().array().iter().map(Value::integer).collect();
        assert!(!lines.is_empty() && lines.len().is_multiple_of(2), "{lines:?}");
        // Times and calls both grow, and the last line has all calls.
        let grow = |from: usize| lines[from..].iter().step_by(2).is_sorted();
        assert!(grow(0) && grow(1) && lines.last() == Some(&100), "{lines:?}");
    }
}

#[test]
fn memory_and_server_are_the_ports() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut host, mut port) = (ported.host(), ported.client());
    let (server, of_host) = (port.info("server"), host.info("server"));
    assert_eq!(server["tcp_port"], ported.number().to_string());
    assert_eq!(server["run_id"], of_host["run_id"]);
    let empty = port.info_number("memory", "used_memory");
    port.ok("SET big x");
    port.run(&format!("APPEND big {}", "x".repeat(100_000)));
    let memory = port.info("memory");
    let number = |name: &str| -> i64 { memory[name].parse().expect("a number") };
    let used = number("used_memory");
    assert!((100_000..1_000_000).contains(&(used - empty)), "{used} after {empty}");
    assert!(number("midi_host_used_memory") > 0 && number("used_memory_peak") >= used);
    assert_eq!(number("used_memory_dataset") + number("used_memory_overhead"), used);
    assert!(port.info("memory")["used_memory_human"].ends_with(['K', 'M']));
}
