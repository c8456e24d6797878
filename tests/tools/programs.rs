//! The promise: clients in many languages, and Redis's own tools, work with midi's port as
//! with Redis, without special settings. The programs in `clients/` do what typical
//! programs do; each exits with status 0 if everything was right.
//!
//! Environment: `MIDI_CLIENT_PYTHON` and so on, the command line that runs each program;
//! a program without one is skipped. `make test` runs Python's, `make test-clients` all.
//! redis-cli, redis-benchmark and memtier_benchmark run if they are on the path.

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use crate::common::{Builder, Mode, Server, Value, certificates, free_port, skip, wait_until};

/// The modes to run programs in; in SAFEMODE the main thread serves the port's commands.
const MODES: [Mode; 2] = [Mode::Adaptive, Mode::Safe];

fn servers() -> impl Iterator<Item = Server> {
    MODES.into_iter().map(|mode| {
        println!("mode: {mode:?}");
        mode.builder().with_port().start()
    })
}

/// Runs a program of `clients/` against a server in each mode.
fn run(variable: &str) {
    let Some(line) = std::env::var(variable).ok().filter(|line| !line.is_empty()) else {
        return skip(&format!("{variable} is not set; make test-clients sets it"));
    };
    for mode in MODES {
        println!("mode: {mode:?}");
        let memcached_port = free_port();
        let builder = mode.builder().with_tls();
        let server = builder.load(&format!("memcached-port {memcached_port}")).start();
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).env("MIDI_PORT", server.midi_port().to_string());
        command
            .env("MIDI_SOCKET", server.midi_socket())
            .env("MIDI_HOST_PORT", server.port().to_string())
            .env("MIDI_MEMCACHED_PORT", memcached_port.to_string())
            .env("MIDI_TLS_PORT", server.tls_port().to_string())
            .env("MIDI_TLS_CA", &certificates::files(server.dir())[2]);
        let output = command.output().unwrap_or_else(|error| panic!("{line}: {error}"));
        check(&line, &output);
        println!("{}", String::from_utf8_lossy(&output.stdout));
        no_connection_is_left(&server);
    }
}

#[track_caller]
fn check(what: &str, output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Programs that have exited leave no connections.
fn no_connection_is_left(server: &Server) {
    let mut host = server.client();
    wait_until("the program's connections are gone", || {
        host.info_number("midi_net", "midi_net_connections") == 0
    });
}

#[test]
fn python() {
    run("MIDI_CLIENT_PYTHON");
}

/// Libraries for locks, rate limits and caches.
#[test]
fn python_libraries() {
    run("MIDI_CLIENT_PYTHON_LIBRARIES");
}

#[test]
fn python_memcached() {
    run("MIDI_CLIENT_PYTHON_MEMCACHED");
}

#[test]
fn node_redis() {
    run("MIDI_CLIENT_NODE_REDIS");
}

#[test]
fn ioredis() {
    run("MIDI_CLIENT_IOREDIS");
}

#[test]
fn node_libraries() {
    run("MIDI_CLIENT_NODE_LIBRARIES");
}

#[test]
fn go_redis() {
    run("MIDI_CLIENT_GO");
}

#[test]
fn jedis() {
    run("MIDI_CLIENT_JEDIS");
}

#[test]
fn lettuce() {
    run("MIDI_CLIENT_LETTUCE");
}

#[test]
fn redisson() {
    run("MIDI_CLIENT_REDISSON");
}

#[test]
fn java_memcached() {
    run("MIDI_CLIENT_JAVA_MEMCACHED");
}

/// Whether there is such a program; prints a line if there is none.
fn have(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip(&format!("there is no {program}"));
    }
    found
}

fn redis_cli(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.midi_port().to_string()]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// redis-cli and redis-benchmark, as far as they were built with TLS.
#[test]
fn redis_cli_over_tls() {
    if !have("redis-cli") || !have("redis-benchmark") {
        return;
    }
    let server = Builder::new().load("threads 2").with_tls().start();
    let run = |program: &str, line: &str| {
        let ca = certificates::files(server.dir())[2].clone();
        let mut command = Command::new(program);
        command.args(["-p", &server.tls_port().to_string(), "--tls", "--cacert"]).arg(ca);
        let output = command.args(line.split(' ')).output().expect("it runs");
        check(&format!("{program} {line}"), &output);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let help = Command::new("redis-cli").arg("--help").output().expect("it runs");
    if !String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).contains("--tls") {
        return skip("redis-cli was built without TLS");
    }
    assert_eq!(run("redis-cli", "SET k v"), "OK\n");
    assert_eq!(run("redis-cli", "--tls-ciphersuites TLS_AES_128_GCM_SHA256 GET k"), "v\n");
    for pipeline in [1, 16] {
        let line = format!("-t set,get -n 10000 -c 20 -q -P {pipeline}");
        assert!(run("redis-benchmark", &line).contains("requests per second"));
    }
    no_connection_is_left(&server);
}

/// The output of a started program for this input.
fn fed(child: &mut Command, input: &[u8]) -> Output {
    fn feed(child: &mut Child, input: &[u8]) {
        let mut stdin = child.stdin.take().expect("a pipe");
        // It may print an error and exit before it has read everything.
        let _ = stdin.write_all(input);
    }
    let mut child = child.spawn().expect("started");
    feed(&mut child, input);
    child.wait_with_output().expect("its end")
}

#[track_caller]
fn cli(server: &Server, args: &[&str], input: &str) -> String {
    let output = fed(&mut redis_cli(server, args), input.as_bytes());
    check(&format!("redis-cli {args:?}"), &output);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn redis_cli_works() {
    if !have("redis-cli") {
        return;
    }
    for server in servers() {
        for (args, input, expected) in [
            (&["SET", "k", "v"][..], "", "OK\n"),
            (&["GET", "k"], "", "v\n"),
            (&["-x", "SET", "from stdin"], "a\0b", "OK\n"),
            (&["STRLEN", "from stdin"], "", "3\n"),
            (&["-n", "3", "SET", "k", "3"], "", "OK\n"),
            (&["-n", "3", "DBSIZE"], "", "1\n"),
            (&["-3", "MGET", "k", "nosuch"], "", "v\n\n"),
            (&["--csv", "MGET", "k", "nosuch"], "", "\"v\",NULL\n"),
            (&["--json", "MGET", "k", "nosuch"], "", "[\"v\",null]\n"),
            (&["--no-raw", "INCR", "n"], "", "(integer) 1\n"),
            (&["-r", "3", "INCR", "n"], "", "2\n3\n4\n"),
            (&["ECHO", ""], "", "\n"),
            (
                &[],
                "SET a 1\nINCR a\nMULTI\nGET a\nEXEC\nSELECT 2\nPING\n",
                "OK\n2\nOK\nQUEUED\n2\nOK\nPONG\n",
            ),
            (&["-u", "URL/5", "SET", "in", "5"], "", "OK\n"),
            (&["-n", "5", "GET", "in"], "", "5\n"),
        ] {
            let url = format!("redis://127.0.0.1:{}", server.midi_port());
            let args: Vec<String> = args.iter().map(|arg| arg.replace("URL", &url)).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            assert_eq!(cli(&server, &args, input), expected, "{args:?}");
        }
        let socket = server.midi_socket().display().to_string();
        assert_eq!(cli(&server, &["-s", &socket, "GET", "k"], ""), "v\n");
        redis_cli_logs_in(&server);
        redis_cli_looks_around(&server);
    }
}

fn redis_cli_logs_in(server: &Server) {
    let mut admin = server.client();
    admin.ok("ACL SETUSER alice on >secret -@all +midi.get +get +@connection ~*");
    assert_eq!(cli(server, &["--user", "alice", "--pass", "secret", "GET", "k"], ""), "v\n");
    for (args, expected) in [
        (&["--user", "alice", "--pass", "secret", "SET", "k", "w"][..], "NOPERM"),
        (&["--user", "alice", "--pass", "wrong", "GET", "k"], "WRONGPASS"),
        (&["-e", "NOSUCH"], "ERR unknown command"),
    ] {
        let output = fed(&mut redis_cli(server, args), b"");
        let text = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8_lossy(&text).contains(expected), "{args:?}");
    }
}

/// redis-cli's modes that scan all keys.
fn redis_cli_looks_around(server: &Server) {
    cli(server, &["FLUSHALL"], "");
    cli(server, &["DEBUG", "POPULATE", "2000", "look"], "");
    assert_eq!(cli(server, &["--scan", "--pattern", "look:1*"], "").lines().count(), 1111);
    for (args, expected) in [
        (&["--bigkeys", "-i", "0"][..], "2000 strings with 18890 bytes"),
        (&["--memkeys", "-i", "0"], "2000 strings"),
        (&["INFO"], "redis_version"),
    ] {
        let told = cli(server, args, "");
        assert!(told.contains(expected), "{args:?}: {told}");
    }
}

/// redis-cli for a user on a terminal, who gets hints while typing.
#[test]
fn redis_cli_on_a_terminal() {
    if !have("redis-cli") || !have("script") {
        return;
    }
    for server in servers() {
        let line = format!("redis-cli -p {}", server.midi_port());
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]).env("TERM", "dumb").env("HOME", server.dir());
        terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let typed = "SET k value\nGET k\nHELP GET\nSELECT 1\nMULTI\nSET k other\nEXEC\nexit\n";
        let output = fed(&mut terminal, typed.as_bytes());
        check(&line, &output);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(
            shown.contains("\"value\"") && shown.contains("summary:") && shown.contains("1) OK"),
            "{shown}"
        );
        assert_eq!(server.midi_client().run("GET k"), Value::bulk("value"));
    }
}

/// Mass insertion: redis-cli sends all its input, and an ECHO to detect the end.
#[test]
fn redis_cli_pipe() {
    if !have("redis-cli") {
        return;
    }
    for server in servers() {
        let commands: Vec<u8> = (0..200_000)
            .flat_map(|n| crate::common::encoded(&["SET", &format!("key:{n}"), &n.to_string()]))
            .collect();
        let output = fed(&mut redis_cli(&server, &["--pipe"]), &commands);
        check("redis-cli --pipe", &output);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("errors: 0, replies: 200000"), "{told}");
        assert_eq!(server.midi_client().run("DBSIZE"), Value::Integer(200_000));
    }
}

#[test]
fn redis_benchmark_works() {
    if !have("redis-benchmark") {
        return;
    }
    for server in servers() {
        let port = server.midi_port().to_string();
        for args in [
            "-t ping_inline,ping_mbulk,set,get,incr,mset -n 5000 -c 20 --csv",
            "-t set,get -n 20000 -P 16 -r 1000 -d 100 --threads 2 --csv",
            "-t set,get -n 5000 -3 --csv",
            "-n 2000 --csv MIDI.GET key:__rand_int__",
            "-n 2000 --csv GETRANGE key:1 0 3",
        ] {
            let output =
                Command::new("redis-benchmark").args(["-p", &port]).args(args.split(' ')).output();
            let output = output.expect("redis-benchmark");
            check(args, &output);
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8_lossy(&told);
            assert!(!told.contains("rror") && !told.contains("WARNING"), "{args}: {told}");
            assert!(told.contains("\"rps\""), "{args}: {told}");
        }
        no_connection_is_left(&server);
    }
}

#[test]
fn memtier_benchmark_works() {
    if !have("memtier_benchmark") {
        return;
    }
    for server in servers() {
        let port = server.midi_port().to_string();
        for protocol in ["resp2", "resp3"] {
            let args = [
                "-p",
                &port,
                "-P",
                protocol,
                "-n",
                "2000",
                "-c",
                "5",
                "-t",
                "2",
                "--pipeline",
                "10",
            ];
            let output =
                Command::new("memtier_benchmark").args(args).arg("--hide-histogram").output();
            let output = output.expect("memtier_benchmark");
            check("memtier_benchmark", &output);
            assert!(!String::from_utf8_lossy(&output.stderr).contains("error"));
        }
    }
}
