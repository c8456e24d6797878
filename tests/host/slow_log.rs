//! The promise: the host's own figures have the time of jobs and queued commands.

use crate::common::{Client, Mode};

/// The microseconds in this section's line about a command.
fn micros(client: &mut Client, section: &str, name: &str) -> u64 {
    let info = client.info(section);
    let mut parts = info[name].split(',').filter_map(|part| part.strip_prefix("usec="));
    parts.next().expect("a time").parse().expect("a number")
}

#[test]
fn the_host_counts_the_time_of_a_job() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("CONFIG SET slowlog-log-slower-than 0");
    client.ok("SLOWLOG RESET");
    assert_eq!(client.run("MIDI.POPULATE 100000").text(), "OK");
    let of_midi = micros(&mut client, "midi_commandstats", "midi_cmdstat_populate");
    let of_host = micros(&mut client, "commandstats", "cmdstat_midi.populate");
    // The client waits from before the job's beginning to after its end.
    assert!(of_midi > 0 && of_host >= of_midi, "{of_host} at the host, {of_midi} of the job");
    let logged = client.run("SLOWLOG GET -1").array();
    let found = logged
        .into_iter()
        .map(|call| call.array())
        .find(|call| call[3].clone().array()[0].text().eq_ignore_ascii_case("midi.populate"));
    assert!(found.expect("it is logged")[2].integer() as u64 >= of_midi);
}
