//! The promise: damage inside a MIDI.JOURNAL, which the host's own tool takes for a value, is named
//! with its file, its place and its key; `midi-check-aof` finds it and cuts it off; and what an AOF
//! has can be replayed into a server by any client that may write.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::aof::builder;
use crate::common::aof::{self, State, crash, incr_file, wait_until_written};
use crate::common::{Mode, Random, Server, Value, redis_server};

/// Runs midi-check-aof, and answers its question.
fn check(options: &[&str], file: &Path, answer: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midi-check-aof"));
    command.args(options).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the tool");
    // It asks only if there is something to cut off.
    let _ = child.stdin.take().expect("a pipe").write_all(answer.as_bytes());
    child.wait_with_output().expect("its end")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes keys k0 to k9 through the port, each in a MIDI.JOURNAL of its own or with others, and
/// some through the host's door; then ends the server.
fn written(server: &mut Server) -> Vec<u8> {
    let (mut port, mut client) = (server.midi_client(), server.client());
    for number in 0..10 {
        port.ok(&format!("SET k{number} value{number}"));
        client.ok(&format!("MIDI.SET h{number} v"));
        client.ok(&format!("SET n{number} v"));
    }
    wait_until_written(&mut client);
    server.crash();
    fs::read(incr_file(server)).expect("the AOF")
}

/// Where the record of key k5 begins.
fn place_of_k5(text: &[u8]) -> usize {
    let record = b"*3\r\n$3\r\nSET\r\n$2\r\nk5\r\n";
    text.windows(record.len()).position(|part| part == record).expect("the record of k5")
}

#[test]
fn damage_in_a_journal_is_named_and_cut_off() {
    for mode in Mode::tried() {
        let mut server = builder(mode).start();
        let whole = written(&mut server);
        let (file, place) = (incr_file(&server), place_of_k5(&whole));
        let output = check(&[], &file, "");
        assert!(output.status.success(), "{}", said(&output));

        // One letter of the record's name, one of a length, and one of an end of a line.
        for (at, byte) in [(place + 9, b'X'), (place + 14, b'7'), (place + 19, b' ')] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            fs::write(&file, &damaged).expect("the AOF");

            let (code, log) = server.restart_in_vain();
            assert_eq!(code, Some(1), "{log}");
            let line = log.lines().rfind(|line| line.contains("The AOF is not loaded"));
            let line = line.unwrap_or_else(|| panic!("{log}"));
            let named = format!("which is byte {place} of {}", file.display());
            assert!(line.contains(&named), "{mode:?}: {line} and not {named}");
            assert!(line.contains("record of key 'k5"), "{line}");

            let output = check(&[], &file, "");
            assert!(!output.status.success(), "{}", said(&output));
            assert!(said(&output).contains(&format!("damage at byte {place}: ")), "{output:?}");
            // Nothing is cut off without a yes.
            assert!(!check(&["--fix"], &file, "n\n").status.success());
            assert_eq!(fs::read(&file).expect("the AOF"), damaged);

            let output = check(&["--fix"], &file.with_file_name("appendonly.aof.manifest"), "y\n");
            assert!(output.status.success(), "{}", said(&output));
            let left = fs::read(&file).expect("the AOF");
            assert!(left.len() <= place && whole.starts_with(&left), "{} bytes", left.len());
            assert!(check(&[], &file, "").status.success());
            server.restart(redis_server());
            let mut client = server.client();
            for number in 0..5 {
                assert_eq!(
                    client.run(&format!("MIDI.GET k{number}")),
                    Value::bulk(format!("value{number}"))
                );
            }
            for name in ["k5", "h5", "k9"] {
                assert_eq!(client.integer(&format!("MIDI.EXISTS {name}")), 0, "{name}");
            }
            server.crash();
            fs::write(&file, &whole).expect("the AOF");
        }
        server.restart(redis_server());
        assert_eq!(server.client().integer("MIDI.DBSIZE"), 20);
    }
}

#[test]
fn only_the_last_part_is_cut() {
    let mut server = builder(Mode::Adaptive).start();
    let whole = written(&mut server);
    let folder = incr_file(&server).parent().expect("a folder").to_owned();
    let mut damaged = whole.clone();
    damaged[place_of_k5(&whole) + 9] = b'X';
    fs::write(folder.join("a.1.incr.aof"), &damaged).expect("a part");
    fs::write(folder.join("a.2.incr.aof"), &whole).expect("a part");
    let manifest = folder.join("a.manifest");
    let parts = "file a.1.incr.aof seq 1 type i\nfile a.2.incr.aof seq 2 type i\n";
    fs::write(&manifest, parts).expect("a manifest");
    let output = check(&["--fix"], &manifest, "y\n");
    assert!(!output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("other parts of the AOF follow"), "{}", said(&output));
    assert_eq!(fs::read(folder.join("a.1.incr.aof")).expect("a part"), damaged);
    // A file that ends in the middle of a command, or of a transaction, is cut off as the host's
    // tool does.
    for cut in (whole.len() - 200..whole.len()).step_by(7) {
        fs::write(folder.join("a.2.incr.aof"), &whole[..cut]).expect("a part");
        let file = folder.join("a.2.incr.aof");
        check(&["--fix"], &file, "y\n");
        let left = fs::read(&file).expect("a part");
        assert!(aof::parse(&left).1.is_empty(), "cut at {cut}");
        assert_eq!(aof::parse(&whole[..cut]).0, aof::parse(&left).0, "cut at {cut}");
    }
    server.restart(redis_server());
}

/// `midi-check-aof --commands` writes plain commands: whoever may write replays them.
#[test]
fn an_increment_is_replayed_by_a_client() {
    let server = builder(Mode::Adaptive).start();
    let (mut port, mut client) = (server.midi_client(), server.client());
    let mut random = Random::new(3);
    for number in 0..300 {
        let (key, other) = (random.below(20), random.below(20));
        let line = match random.below(12) {
            0 => format!("SELECT {}", random.below(3)),
            1 => format!("DEL k{key}"),
            2 => format!("APPEND k{key} {number}"),
            3 => format!("SETRANGE k{key} {} x", random.below(50)),
            4 => format!("PEXPIREAT k{key} 4102444800000"),
            5 => format!("RENAME k{key} k{other}"),
            6 => format!("COPY k{key} k{other} REPLACE"),
            7 => format!("MOVE k{key} {}", random.below(3)),
            8 => format!("INCRBYFLOAT f{key} 0.5"),
            9 => format!("PERSIST k{key}"),
            10 => format!("MSET k{key} {number} k{other} {number}"),
            _ => format!("SET k{key} {number} PXAT 4102444800001"),
        };
        if number % 3 == 0 {
            client.run(&format!("MIDI.{line}").replace("MIDI.SELECT", "SELECT"));
        } else {
            port.run(&line);
        }
    }
    port.ok("MULTI");
    port.run("SET tx 1");
    port.run("APPEND tx 2");
    port.run("EXEC");
    client.ok("SET native 1");
    wait_until_written(&mut client);
    let manifest = incr_file(&server).with_file_name("appendonly.aof.manifest");
    let output = check(&["--commands"], &manifest, "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let digest = client.run("MIDI.KEYSPACEDIGEST");
    let mut copy = builder(Mode::Adaptive).start();
    copy.client().ok("ACL SETUSER writer on nopass ~* +@all -@admin -@dangerous");
    let mut writer = copy.client();
    writer.ok("AUTH writer x");
    let (commands, rest) = aof::parse(&output.stdout);
    assert!(rest.is_empty());
    for command in &commands {
        let reply = writer.call(command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
    }
    assert_eq!(copy.client().run("MIDI.KEYSPACEDIGEST"), digest);
    assert_eq!(copy.client().run("GET native"), Value::bulk("1"));
    // It is logged as other writes are.
    let state = State::of(&mut copy.client());
    wait_until_written(&mut copy.client());
    state.must_equal(&State::of(&mut crash(&mut copy)), "after a replay");
}
