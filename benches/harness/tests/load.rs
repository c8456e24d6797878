//! The promise: the load generator sends what it was told to, counts what comes back, and does not
//! hide what a stalled server kept it from sending. Against a real redis-server and the echo
//! server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

#[path = "../../../tests/common/free_port.rs"]
mod free_port;
use free_port::free_port;

#[path = "../../../tests/common/skip.rs"]
mod skip;
use skip::skip;

const BENCH: &str = env!("CARGO_BIN_EXE_midi-bench");

/// A process on a port of its own. Ends when dropped.
struct Running {
    child: Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(program: &str, args: impl Fn(&str) -> Vec<String>) -> Running {
        let port = free_port();
        let quiet = || Stdio::null();
        let child = Command::new(program)
            .args(args(&port.to_string()))
            .stdout(quiet())
            .stderr(quiet())
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{program}: {error}"));
        let mut running = Running { child, port };
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = running.child.try_wait().expect("its state");
            assert!(ended.is_none(), "{program} on port {port} has ended: {ended:?}");
            sleep(Duration::from_millis(10));
        }
        running
    }

    fn redis() -> Running {
        let program = std::env::var("MIDI_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        Running::start(&program, |port| {
            ["--port", port, "--save", "", "--enable-debug-command", "yes"]
                .map(str::to_owned)
                .into()
        })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// An integer reply.
    fn ask(&self, command: &str) -> i64 {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a connection");
        write!(stream, "{command}\r\n").expect("sent");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("a reply");
        line.trim_start_matches(':').trim().parse().unwrap_or_else(|_| panic!("{command}: {line}"))
    }
}

/// Waits until a load generator has sent it PINGs, and so has had a reply.
fn wait_for_load(redis: &Running) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port)).expect("a connection");
    let mut replies = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut line = String::new();
    let calls = |line: &str| -> Option<u64> {
        line.split_once("cmdstat_ping:calls=")?.1.split(',').next()?.parse().ok()
    };
    while calls(&line).is_none_or(|calls| calls < 3) {
        sleep(Duration::from_millis(10));
        stream.write_all(b"INFO commandstats\r\n").expect("sent");
        line.clear();
        replies.read_line(&mut line).expect("a length");
        let len: usize = line.trim().trim_start_matches('$').parse().expect("a length");
        let mut text = vec![0; len + 2];
        replies.read_exact(&mut text).expect("a text");
        line = String::from_utf8(text).expect("a text");
    }
}

fn load_command(servers: &[&Running], args: &str) -> Command {
    let mut command = Command::new(BENCH);
    command.args(["load", "--json", "--warmup", "0"]);
    servers.iter().for_each(|server| {
        command.args(["--server", &server.address()]);
    });
    // `_` stands for a space within an argument.
    command.args(args.split(' ').map(|word| word.replace('_', " ")));
    command
}

fn load(servers: &[&Running], args: &str) -> Value {
    let output = load_command(servers, args).output().expect("the load generator");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn every_key_is_stored_once_and_found_again() {
    let redis = Running::redis();
    let set = "--command SET_{key}_{value} --distribution sequential --keys 5000 --requests 5000 \
               --threads 3";
    let stored =
        load(&[&redis], &format!("{set} --connections 7 --pipeline 13 --value-size 10-20"));
    assert_eq!((&stored["operations"], redis.ask("DBSIZE")), (&5000.into(), 5000));
    assert!((10..=20).contains(&redis.ask("STRLEN key:4999")));

    let got = load(&[&redis], "--keys 5000 --requests 9000 --pipeline 10");
    assert_eq!((&got["operations"], &got["nulls"]), (&9000.into(), &0.into()));
    let beyond = load(&[&redis], "--keys 5000 --key-prefix other: --requests 100");
    assert_eq!(beyond["nulls"], 100);
    let many = load(
        &[&redis],
        "--command MGET_{key}*100 --keys 5000 --requests 300 --distribution zipf:0.99",
    );
    assert_eq!((&many["operations"], &many["nulls"]), (&300.into(), &0.into()));
    let all = load(&[&redis], "--command KEYS_* --requests 20 --connections 2");
    assert_eq!((&all["operations"], &all["latency"]["count"]), (&20.into(), &20.into()));
}

#[test]
fn two_servers_have_half_of_the_keys_each() {
    let (one, two) = (Running::redis(), Running::redis());
    let set = "--command SET_{key}_{value} --distribution sequential --keys 1000";
    load(&[&one, &two], &format!("{set} --requests 2000 --connections 2"));
    assert_eq!((one.ask("DBSIZE"), two.ask("DBSIZE")), (500, 500));
    let got = load(&[&one, &two], "--keys 1000 --requests 5000");
    assert_eq!(got["nulls"], 0);
}

#[test]
fn a_mix_keeps_its_weights_and_set_up_comes_first() {
    let redis = Running::redis();
    let mix =
        "--command SET_{key}_x --command GET_{key} --weights 1,9 --setup SELECT_3 --requests 20000";
    let done = load(&[&redis], &format!("{mix} --pipeline 20"));
    assert_eq!(redis.ask("DBSIZE"), 0, "database 0 is left alone");
    let counts =
        [0, 1].map(|kind| done["latency_by_command"][kind]["count"].as_u64().expect("a count"));
    assert_eq!(counts[0] + counts[1], 20_000);
    assert!((1500..2500).contains(&counts[0]), "{counts:?}");
}

#[test]
fn errors_are_told() {
    let redis = Running::redis();
    let output = load_command(&[&redis], "--command NOSUCH --requests 10").output().expect("a run");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown command"));
    let allowed = load(&[&redis], "--command NOSUCH --requests 10 --allow-errors");
    assert_eq!((&allowed["errors"], &allowed["operations"]), (&10.into(), &10.into()));
    for bad in
        ["--command GET_{nokey}", "--threads 9 --connections 3", "--value-size 9-3", "--rate 0"]
    {
        assert!(!load_command(&[&redis], bad).output().expect("a run").status.success(), "{bad}");
    }
}

/// The server stands still for a second. A closed loop has one slow command; an open loop
/// must count every command that was due meanwhile.
#[test]
fn a_stall_is_not_hidden() {
    let redis = Running::redis();
    let args = "--command PING --rate 1000 --requests 2000 --connections 1 --pipeline 5000";
    let running = load_command(&[&redis], args).stdout(Stdio::piped()).spawn().expect("a run");
    wait_for_load(&redis);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port)).expect("a connection");
    write!(stream, "DEBUG SLEEP 1\r\n").expect("sent");
    let output = running.wait_with_output().expect("its end");
    let done: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(done["latency"]["count"], 2000);
    // Of the thousand that were due in that second a half waited for more than half of it.
    let quantile = |name: &str| done["latency"][name].as_f64().expect("a number");
    assert!(quantile("p95") > 400_000.0, "{done}");
    stream.read_exact(&mut [0; 5]).expect("the end of the sleep");
}

/// Commands that make sense in one order only: else EXEC answers an error, which would end the run.
#[test]
fn a_mix_is_sent_in_turn() {
    let redis = Running::redis();
    let args =
        "--in-turn --command MULTI --command PING --command EXEC --connections 3 --pipeline 7";
    let done = load(&[&redis], &format!("{args} --requests 3000"));
    assert_eq!((&done["operations"], &done["errors"]), (&3000.into(), &0.into()));
}

#[test]
fn unanswered_commands_are_counted_and_not_waited_for() {
    let redis = Running::redis();
    let args = "--command BLPOP_nothing_0 --connections 2 --duration 0.1 --drain 0";
    let done = load(&[&redis], args);
    assert_eq!((&done["operations"], &done["unfinished"]), (&0.into(), &2.into()));
    assert_eq!(done["latency"]["count"], 2, "with their age");
}

#[test]
fn input_ends_a_run_without_an_end() {
    let redis = Running::redis();
    let mut child = load_command(&[&redis], "--command PING --connections 1 --until-eof")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a run");
    wait_for_load(&redis);
    drop(child.stdin.take());
    let done: Value =
        serde_json::from_slice(&child.wait_with_output().expect("its end").stdout).expect("JSON");
    assert!(done["operations"].as_u64() > Some(0));
}

#[test]
fn commands_and_connections_over_tls() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = |name: &str| dir.join(name).display().to_string();
    std::fs::write(path("tls.crt"), own.cert.pem()).expect("a file");
    std::fs::write(path("tls.key"), own.signing_key.serialize_pem()).expect("a file");
    let program = std::env::var("MIDI_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let redis = Running::start(&program, |port| {
        let (crt, key) = (path("tls.crt"), path("tls.key"));
        let files = ["--tls-cert-file", &crt, "--tls-key-file", &key, "--tls-auth-clients", "no"];
        let ports = ["--port", "0", "--tls-port", port, "--save", ""];
        ports.into_iter().chain(files).map(str::to_owned).collect()
    });
    let set = "--tls --command SET_{key}_{value} --distribution sequential --keys 1000";
    // Longer than a record of TLS.
    let stored =
        load(&[&redis], &format!("{set} --requests 1000 --pipeline 10 --value-size 50000"));
    assert_eq!((&stored["operations"], &stored["errors"]), (&1000.into(), &0.into()));
    let got = load(&[&redis], "--tls --setup PING --keys 1000 --requests 1000 --pipeline 10");
    assert_eq!((&got["operations"], &got["nulls"]), (&1000.into(), &0.into()));
    for resumption in ["", " --no-resumption"] {
        let args = "--tls --reconnect --command CLIENT_ID --connections 5 --requests 100";
        let done = load(&[&redis], &format!("{args}{resumption}"));
        assert_eq!((&done["operations"], &done["latency"]["count"]), (&100.into(), &100.into()));
    }
    let plain = load_command(&[&redis], "--command PING --requests 1").output().expect("a run");
    assert!(!plain.status.success(), "the port has TLS");
}

/// The server numbers its connections.
#[test]
fn each_pipeline_has_a_connection_of_its_own() {
    let redis = Running::redis();
    let before = redis.ask("CLIENT ID");
    let args = "--reconnect --command PING --pipeline 2 --connections 5 --requests 100";
    assert_eq!(load(&[&redis], args)["operations"], 100);
    assert_eq!(redis.ask("CLIENT ID"), before + 51);
}

#[test]
fn the_echo_server_answers_every_request() {
    let request = "*2\r\n$3\r\nGET\r\n$13\r\nkey:000000017\r\n".len().to_string();
    let echo = Running::start(BENCH, |port| {
        ["echo", "--port", port, "--request-bytes", &request].map(str::to_owned).into()
    });
    for pipeline in [1, 10, 50, 1000] {
        let done = load(
            &[&echo],
            &format!("--command GET_{{key:9}} --requests 30000 --pipeline {pipeline}"),
        );
        assert_eq!(done["operations"], 30_000, "pipeline {pipeline}");
    }
}

#[test]
fn memcached_if_there_is_one() {
    let Ok(program) = std::env::var("MIDI_MEMCACHED") else {
        return skip("MIDI_MEMCACHED names no memcached");
    };
    let server = Running::start(&program, |port| {
        ["-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "root"].map(str::to_owned).into()
    });
    let set = "--protocol memcached --command set_{key}_0_0_{value} --distribution sequential \
               --keys 1000";
    assert_eq!(
        load(&[&server], &format!("{set} --requests 1000 --pipeline 10"))["operations"],
        1000
    );
    let got = load(
        &[&server],
        "--protocol memcached --command get_{key} --keys 1000 --requests 5000 --pipeline 10",
    );
    assert_eq!((&got["operations"], &got["nulls"]), (&5000.into(), &0.into()));
}
