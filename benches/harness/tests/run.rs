//! The promise: an experiment runs from its description to its page, with figures for every leg.
//! With the built module in a real redis-server.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_midi-bench");

/// The one with everything: a server with two doors, data made by one command, the floor beside it.
const EXPERIMENT: &str = "port-large";

/// A short run, with these further arguments: the figures, and where the report is.
fn run(experiment: &str, more: &[&str], module: &Path) -> (Value, PathBuf) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(experiment);
    std::fs::create_dir_all(&directory).expect("a directory");
    let report = directory.join("report");
    let _ = std::fs::remove_dir_all(&report);
    let output = Command::new(BENCH)
        .args(["run", "--quick", "--seconds", "0.5", "--experiment", experiment])
        .args(more)
        .arg("--directory")
        .arg(&report)
        .env("MIDI_MODULE", module)
        .current_dir(&directory)
        .output()
        .expect("a run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(report.join("quick.json")).expect("figures");
    (serde_json::from_str(&text).expect("JSON"), report)
}

/// The module that servers load.
fn release_build() -> PathBuf {
    let target = Path::new(BENCH).ancestors().nth(2).expect("target");
    let module = target.join("release/libmidi.so");
    assert!(module.exists(), "{} is not built: make build", module.display());
    module
}

#[test]
fn an_experiment_of_the_port_has_figures_for_every_leg() {
    let module = release_build();
    let (results, report) = run(EXPERIMENT, &[], &module);
    let rounds = results["outcomes"][0]["rounds"].as_array().expect("rounds");
    // Two commands on two servers at one depth, and GETs of the floor.
    assert_eq!(rounds.len(), 5);
    for round in rounds {
        assert!(round["loads"]["load"]["operations"].as_u64() > Some(0), "{round}");
        assert!(round["loads"]["load"]["server"]["cpu_ns"].as_u64() > Some(0), "{round}");
    }
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    assert!(page.contains("RESP port: CPU of GET over echo, pipeline 50, 10 M keys"));
}

/// With the stock server alone, and the disk.
#[test]
fn durable_writes_have_their_fsyncs_counted() {
    let module = release_build();
    let (series, point) = (["--series", "redis", "--series", "fdatasync"], "one connection");
    let wanted = [&series[..], &["--point", point, "--keys", "10000"]].concat();
    let (results, _) = run("aof", &wanted, &module);
    let rounds = results["outcomes"][0]["rounds"].as_array().expect("rounds");
    let [disk, redis] = rounds.as_slice() else { panic!("{rounds:?}") };
    assert!(disk["loads"]["load"]["latency"]["p50"].as_f64() > Some(0.0), "{disk}");
    // One client that waits for each reply: each SET has an fsync of its own. Figures that are
    // compared are read at moments that differ by as much as the machine is busy.
    let load = &redis["loads"]["load"];
    let number = |field: &str| load[field].as_u64().expect("a number");
    let (operations, fsyncs) = (number("operations"), number("fsyncs"));
    assert!(operations > 0 && fsyncs > operations / 2 && fsyncs < operations * 2 + 5, "{load}");
    let server = |field: &str| load["server"][field].as_u64().expect("a number");
    let (main, all) = (server("main_ns"), server("cpu_ns"));
    assert!(main > 0 && main <= all + all / 10, "{load}");
}

/// With the stock server alone.
#[test]
fn a_cache_is_at_its_limit_and_finds_what_its_clients_come_back_for() {
    let module = release_build();
    let wanted = ["--series", "redis, allkeys-lru", "--keys", "100000"];
    let (results, _) = run("cache", &wanted, &module);
    let rounds = results["outcomes"][0]["rounds"].as_array().expect("rounds");
    let [zipf, sets] = rounds.as_slice() else { panic!("{rounds:?}") };
    let figure = |name: &str| zipf["figures"][name].as_f64().expect("a figure");
    // 100,000 keys of 300 bytes, of which 5 MiB have room for the popular ones.
    assert!((0.7..0.9).contains(&figure("hit ratio")), "{zipf}");
    assert!((10_000.0..25_000.0).contains(&figure("keys held")), "{zipf}");
    assert!((0.95..1.01).contains(&figure("used memory over the limit")), "{zipf}");
    assert_eq!(figure("OOM errors"), 0.0, "{zipf}");
    for role in ["SET at the limit", "SET below the limit"] {
        assert_eq!(sets["loads"][role]["operations"].as_u64(), Some(100_000), "{sets}");
    }
}
