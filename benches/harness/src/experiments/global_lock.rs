//! Work on the host's own keyspace, which needs its global lock, and its effect on native commands.

use super::native_data;
use crate::bench::{Experiment, Leg, Load, Plan, Rate};
use crate::server::{Catalogue, Cores};

/// The experiment's name in results.
pub const NAME: &str = "global-lock";
/// Its series: native GETs.
pub const SERIES: &str = "native GET";
/// Without imports.
pub const ALONE: &str = "alone";
/// Beside one loop of imports.
pub const BESIDE: &str = "beside MIDI.IMPORT";
/// Beside five.
pub const BESIDE_FIVE: &str = "beside 5 × MIDI.IMPORT";
/// Beside one, as an open loop.
pub const OFFERED: &str = "beside MIDI.IMPORT, open loop";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let midi = catalogue.midi("midi").on(Cores::Shared);
    let light = || Load::new("light", "GET {key}").with("--connections 10");
    let heavy = |connections: u32| {
        // An import of all keys takes seconds: with a limit, some complete in every leg.
        Load::new("heavy", "MIDI.IMPORT key:*9? REPLACE COUNT 10000")
            .with(&format!("--connections {connections}"))
    };
    let leg = |point: &str, loads: Vec<Load>| Leg::new(SERIES, point, &midi.name, loads);
    let legs = vec![
        leg(ALONE, vec![light()]),
        leg(BESIDE, vec![heavy(1), light()]),
        leg(BESIDE_FIVE, vec![heavy(5), light()]),
        leg(
            OFFERED,
            vec![heavy(1), light().with("--pipeline 100").rate(Rate::PartOf(ALONE.into(), 0.4))],
        ),
    ];
    Experiment {
        number: 2,
        name: NAME,
        title: "Work under the global lock beside native commands",
        question: "How much does work under the host's global lock slow native commands down?",
        about: "10 connections run native GETs over 1 M keys while 1 or 5 connections copy keys \
                into midi, over and over (MIDI.IMPORT of 10,000 keys that match, one in ten), \
                which is work under the host's global lock. All cores shared with the load. Open \
                loop: GETs at 40 % of the rate they had alone.",
        points: "load",
        least_seconds: if plan.quick { 1.0 } else { 1.5 },
        data: vec![native_data(&midi, plan.keys)],
        servers: vec![midi],
        legs,
    }
}
