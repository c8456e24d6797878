//! The promise: `make run` starts a server with midi, opens midi's own port beside the
//! server's, says where both are, and keeps the data for the next run.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Client, Mode, Value, free_port, module, redis_server, skip, wait_until};

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether the script would load the module that these tests are about.
fn loads_our_module() -> bool {
    let ours = module() == project().join("target/release/libmidi.so");
    if !ours {
        skip("the script takes target/release/libmidi.so");
    }
    ours
}

/// A data folder, which goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("midi-run-{}-{number}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `make run` without its build: bash takes a function from its environment for a program.
fn script(ports: [(&str, u16); 2], data: &Folder) -> Command {
    let mut command = Command::new("bash");
    command.arg("scripts/run.sh").current_dir(project()).env("DATA", &data.0);
    command.env("BASH_FUNC_cargo%%", "() { :; }").env("MIDI_REDIS_SERVER", redis_server());
    command.envs(ports.map(|(name, port)| (name, port.to_string())));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts it; returns what it says, up to how the server is stopped and where the data stays.
fn started(ports: [(&str, u16); 2], data: &Folder) -> (Running, String) {
    let mut running = Running(script(ports, data).spawn().expect("bash"));
    let lines = BufReader::new(running.0.stdout.take().expect("a pipe")).lines();
    let mut told = String::new();
    for line in lines {
        told += &line.expect("text");
        told.push('\n');
        if told.contains("to be rid of it") {
            break;
        }
    }
    (running, told)
}

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The shell has become the server.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn both_ports_are_open_and_told() {
    if !loads_our_module() {
        return;
    }
    let (port, midi_port) = (free_port(), free_port());
    let data = &Folder::new();
    let (_running, told) = started([("PORT", port), ("MIDI_PORT", midi_port)], data);
    for number in [port, midi_port] {
        assert!(told.contains(&format!("redis-cli -p {number} ")), "{told}");
    }
    let mut host = Client::connect(port).expect("the server's port");
    assert_eq!(host.run("MIDI.SET greeting hello"), Value::ok());
    let mut midi = Client::connect(midi_port).expect("midi's port");
    assert_eq!(midi.run("GET greeting"), Value::bulk("hello"));
}

#[test]
fn the_keys_of_make_run_are_kept() {
    if !loads_our_module() {
        return;
    }
    let data = &Folder::new();
    let ports = [("PORT", free_port()), ("MIDI_PORT", free_port())];
    let (mut running, told) = started(ports, data);
    assert!(told.contains(&data.0.display().to_string()), "{told}");
    let mut midi = Client::connect(ports[1].1).expect("midi's port");
    midi.ok("SET of-midi kept");
    let mut host = Client::connect(ports[0].1).expect("the server's port");
    host.ok("SET of-the-host kept");
    let second = script([("PORT", free_port()), ("MIDI_PORT", free_port())], data).output();
    let told = String::from_utf8_lossy(&second.expect("bash").stderr).into_owned();
    assert!(told.contains("A server that still runs keeps its data in"), "{told}");
    // As Ctrl-C does.
    let stopped = Command::new("kill").args(["-INT", &running.0.id().to_string()]).status();
    assert!(stopped.expect("kill").success());
    running.0.wait().expect("its end");
    let (_running, _) = started(ports, data);
    let mut client = Client::connect(ports[0].1).expect("the server's port");
    wait_until("it has loaded its data", || client.run("PING") == Value::Simple("PONG".into()));
    assert_eq!(client.run("MIDI.GET of-midi"), Value::bulk("kept"));
    assert_eq!(client.run("GET of-the-host"), Value::bulk("kept"));
}

#[test]
fn a_port_that_cannot_be_had_is_refused() {
    let server = Mode::Adaptive.server();
    let (taken, free) = (server.port(), free_port());
    for (port, midi_port, expected) in [
        (taken, free, format!("Port {taken} is taken. Choose another with PORT=")),
        (free, taken, format!("Port {taken} is taken. Choose another with MIDI_PORT=")),
        (free, free, "PORT and MIDI_PORT are the same.".to_owned()),
        (free, 0, "MIDI_PORT=0 is no port number.".to_owned()),
    ] {
        let output = script([("PORT", port), ("MIDI_PORT", midi_port)], &Folder::new())
            .output()
            .expect("bash");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(&expected), "{told}");
    }
}
