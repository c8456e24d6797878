//! Throughput through the host door: MIDI.GET and MIDI.SET compared with native GET and SET on the
//! same server, in every mode.

use super::{PIPELINES, midi_data, native_data};
use crate::bench::{Experiment, Fill, Leg, Load, Plan};
use crate::server::{Catalogue, Cores, Spec};

/// The experiment's name in results.
pub const NAME: &str = "host-door";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let midi = catalogue.midi("midi");
    let safe = catalogue.midi("midi SAFEMODE").with("SAFEMODE");
    // Two threads for sockets and one for commands need more than half of a small machine.
    let threads = catalogue.midi("midi io-threads 2").with("--io-threads 2").on(Cores::Shared);

    let mut legs = Vec::new();
    for pipeline in PIPELINES {
        let mut leg = |series: &str, server: &Spec, command: &str, before: &str| {
            let load = Load::new("load", command)
                .with(&format!("--pipeline {pipeline} --keys {}", plan.keys));
            let leg = Leg::new(series, &pipeline.to_string(), &server.name, vec![load]);
            legs.push(if before.is_empty() { leg } else { leg.after(before) });
        };
        for (get, native, own) in [
            ("GET", "GET {key}", "MIDI.GET {key}"),
            ("SET", "SET {key} {value}", "MIDI.SET {key} {value}"),
        ] {
            leg(&format!("native {get}"), &midi, native, "");
            leg(&format!("MIDI.{get} adaptive"), &midi, own, "CONFIG SET midi.dispatch adaptive");
            leg(&format!("MIDI.{get} pool"), &midi, own, "CONFIG SET midi.dispatch pool");
            leg(&format!("MIDI.{get} SAFEMODE"), &safe, own, "");
            leg(&format!("native {get}, io-threads 2"), &threads, native, "");
            leg(&format!("MIDI.{get} adaptive, io-threads 2"), &threads, own, "");
        }
    }
    let servers = vec![midi, safe, threads];
    let data: Vec<Fill> = servers
        .iter()
        .flat_map(|spec| [native_data(spec, plan.keys), midi_data(spec, plan.keys)])
        .collect();
    Experiment {
        number: 1,
        name: NAME,
        title: "Throughput through the host door",
        question: "How fast are MIDI.GET and MIDI.SET on the host's port, beside GET and SET?",
        about: "GET and SET of 64-byte values, uniform keys, 50 connections, one load thread. \
                Server and load on cores of their own, but for io-threads, which share all. CPU \
                per command is user and system time of the server's processes, all threads, \
                divided by commands answered.",
        points: "pipeline",
        least_seconds: 0.0,
        servers,
        data,
        legs,
    }
}
