//! The promise: `make run` starts a server with midi, opens midi's own port beside the
//! server's, and says where both are.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{Client, Mode, Value, free_port, module, redis_server};

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether the script would load the module that these tests are about.
fn loads_our_module() -> bool {
    let ours = module() == project().join("target/release/libmidi.so");
    if !ours {
        println!("skipped: the script takes target/release/libmidi.so");
    }
    ours
}

/// `make run` without its build: bash takes a function from its environment for a program.
fn script(ports: [(&str, u16); 2]) -> Command {
    let mut command = Command::new("bash");
    command.arg("scripts/run.sh").current_dir(project());
    command.env("BASH_FUNC_cargo%%", "() { :; }").env("MIDI_REDIS_SERVER", redis_server());
    command.envs(ports.map(|(name, port)| (name, port.to_string())));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
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
    let mut running =
        Running(script([("PORT", port), ("MIDI_PORT", midi_port)]).spawn().expect("bash"));
    let lines = BufReader::new(running.0.stdout.take().expect("a pipe")).lines();
    let mut told = String::new();
    for line in lines {
        told += &line.expect("text");
        told.push('\n');
        if told.contains("Ctrl-C") {
            break;
        }
    }
    for number in [port, midi_port] {
        assert!(told.contains(&format!("redis-cli -p {number} ")), "{told}");
    }
    let mut host = Client::connect(port).expect("the server's port");
    assert_eq!(host.run("MIDI.SET greeting hello"), Value::ok());
    let mut midi = Client::connect(midi_port).expect("midi's port");
    assert_eq!(midi.run("GET greeting"), Value::bulk("hello"));
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
        let output = script([("PORT", port), ("MIDI_PORT", midi_port)]).output().expect("bash");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(&expected), "{told}");
    }
}
