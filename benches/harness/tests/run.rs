//! The promise: an experiment runs from its description to its page, with figures for every leg.
//! With the built module in a real redis-server.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_midi-bench");

/// The one with everything: a server with two doors, data made by one command, the floor beside it.
const EXPERIMENT: &str = "port-large";

#[test]
fn an_experiment_of_the_port_has_figures_for_every_leg() {
    let module = Path::new(BENCH).with_file_name("libmidi.so");
    if !module.exists() {
        return println!("SKIPPED: {} is not built", module.display());
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run");
    std::fs::create_dir_all(&directory).expect("a directory");
    let report = directory.join("report");
    let output = Command::new(BENCH)
        .args(["run", "--quick", "--seconds", "0.5", "--experiment", EXPERIMENT, "--directory"])
        .arg(&report)
        .env("MIDI_MODULE", module)
        .current_dir(&directory)
        .output()
        .expect("a run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let text = std::fs::read_to_string(report.join("quick.json")).expect("figures");
    let results: Value = serde_json::from_str(&text).expect("JSON");
    let rounds = results["outcomes"][0]["rounds"].as_array().expect("rounds");
    // Two commands on two servers at three depths, and GETs of the floor.
    assert_eq!(rounds.len(), 15);
    for round in rounds {
        assert!(round["loads"]["load"]["operations"].as_u64() > Some(0), "{round}");
        assert!(round["loads"]["load"]["server"]["cpu_ns"].as_u64() > Some(0), "{round}");
    }
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    assert!(page.contains("RESP port: CPU of GET over echo, pipeline 50, 10 M keys"));
}
