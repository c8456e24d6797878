//! The goals that a run misses, with their causes as far as they are known.

use crate::goals::{Goal, Verdict};

/// Causes by the beginning and a later part of a goal's text. Whoever finds a cause adds it, and
/// whoever mends it takes it out.
const CAUSES: [(&str, &str, &str); 20] = [
    (
        "engine alone, two threads over one",
        "Zipf",
        "By Zipf most commands are for few keys. Two threads that write to the same cache \
         lines wait for each other.",
    ),
    (
        "bytes above key and value",
        "",
        "The sizes of blocks have steps: some sizes of values fill their block, others leave up to \
         a step of it empty.",
    ),
    (
        "RESP port: CPU of GET over echo",
        "",
        "The echo server looks nothing up. A GET among so many keys waits for memory that is in no \
         cache of the processor; with 1000 keys the goals are met.",
    ),
    (
        "GET beside heavy, pool",
        "",
        "In `pool` mode each command is handed to a worker. On two cores it waits there for its \
         turn beside KEYS, the main thread and the load generator.",
    ),
    (
        "GET beside heavy, adaptive",
        "open loop",
        "KEYS, its clients, the GETs' load and the main thread share two cores. With a higher \
         priority for the last two alone, the p99 of GET was 1.9 instead of 8.2 ms.",
    ),
    (
        "WATCH by nobody, 300 connections",
        "PING",
        "The port serves its other clients meanwhile, at six times Redis's rate, and that takes \
         the processor from the main thread. With a real-time priority for that thread the mean \
         PING took 1.6 instead of 19 ms.",
    ),
    (
        "MGET of 500 beside heavy",
        "p99",
        "One MGET of 500 keys is milliseconds of work where load and server share two cores: its \
         p99 is above this bound without any neighbour.",
    ),
    (
        "RESP port",
        "main thread's CPU for a SET",
        "Two thirds of the main thread's time for a SET are the kernel's: the write of the AOF, \
         and the main loop's going to sleep and waking up.",
    ),
    (
        "RESP port",
        "beside BGREWRITEAOF",
        "Workers and load fill both cores, and the process that rewrites the file needs three \
         quarters of one.",
    ),
    (
        "fork: midi's part of the pause",
        "",
        "Workers that are woken at a fork, and the load, take the processor from the main thread.",
    ),
    (
        "restart from an RDB",
        "",
        "The host's main thread reads the file by itself, and is busy for the whole of a \
         restart.",
    ),
    (
        "caches: growth of resident memory",
        "",
        "With values of all sizes, spans and chunks leave some MiB unused, whatever the limit. \
         They count most where it is smallest: 40 MiB here.",
    ),
    (
        "hashes on the RESP port, all cores",
        "",
        "Load and servers share both cores, and the load takes nearly as much of them as midi \
         does. With half of a peer's CPU time per command, midi can be 1.8 times as fast here.",
    ),
    (
        "long reads on the",
        "PING",
        "Load and server share two cores, and the load alone has four loops. The longest turn of \
         the server's main loop takes less than a millisecond. Beside two busy loops of other \
         programs a stock Redis, with nothing else to do, has a p99.9 of 5 ms here.",
    ),
    (
        "the host's PING beside MIDI.POPULATE",
        "",
        "POPULATE's workers keep both cores busy. Beside two busy loops of other programs the PING \
         of a stock Redis has a p99 of 1.6 to 1.8 ms here, and a p99.9 of 5 ms.",
    ),
    (
        "RESP port, always, one connection",
        "above a write",
        "A write is handed to the main thread and back, and each time an idle virtual processor \
         wakes up. By the scheduler's trace that costs 52 to 66 µs before the fsync and 58 to 69 \
         after it, and the fsync itself, on another core, takes 31 to 51 longer than stock's.",
    ),
    (
        "a cache's SETs at the limit",
        "",
        "Below the limit a new key takes fresh memory. At the limit an old key, which is in no \
         cache of the processor, is first read and freed: a quarter of the time. The ratios of \
         Redis 7.0, Valkey and Redis 8.6 are 0.65, 0.57 and 0.51.",
    ),
    (
        "100 kB values",
        "in user space",
        "No copy is left in user space. A SET takes three receives, and whenever the kernel has \
         copied 100 kB, midi's own code and data are no longer in the nearest caches.",
    ),
    (
        "100 kB values",
        "RESP port, CPU over that",
        "Mostly the order of the runs: nine tenths of the time are the kernel's copies, which get \
         slower and faster with what else the machine does. In 19 pairs of short runs that took \
         turns, a GET needed 1.03 times the CPU time of Valkey's, pairs 0.86 to 1.21.",
    ),
    (
        "100 kB values",
        "host door",
        "A worker copies the value into the host's reply, so that the main thread is free for \
         others. Here both share one core, and the hand-over costs more than it brings.",
    ),
];

/// Missed goals that have the same cause.
pub struct Missed<'a> {
    /// In a sentence or two.
    pub cause: &'static str,
    /// The goals, in their order.
    pub goals: Vec<&'a Goal>,
}

/// All missed goals by cause; those without a known one are the last.
pub fn missed(goals: &[Goal]) -> Vec<Missed<'_>> {
    let missed: Vec<&Goal> = goals.iter().filter(|goal| goal.verdict == Verdict::Missed).collect();
    let causes = CAUSES.iter().map(|(_, _, cause)| Some(*cause)).chain([None]);
    let of_cause = |cause: Option<&'static str>| Missed {
        cause: cause.unwrap_or("The cause is not known yet."),
        goals: missed.iter().copied().filter(|goal| cause_of(goal) == cause).collect(),
    };
    causes.map(of_cause).filter(|missed| !missed.goals.is_empty()).collect()
}

fn cause_of(goal: &Goal) -> Option<&'static str> {
    let is_of = |(start, part, _): &&(&str, &str, &str)| {
        goal.text.starts_with(start) && goal.text.contains(part)
    };
    CAUSES.iter().find(is_of).map(|(_, _, cause)| *cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::judged;
    use crate::results::Results;

    #[test]
    fn every_cause_has_a_goal() {
        let goals = judged(&Results::default());
        for (start, part, cause) in CAUSES {
            let has = |goal: &Goal| cause_of(goal) == Some(cause);
            assert!(goals.iter().any(has), "{start} … {part}");
        }
    }

    #[test]
    fn missed_goals_are_told_with_their_cause() {
        let mut goals = judged(&Results::default());
        goals.truncate(40);
        assert!(missed(&goals).is_empty());
        let restart = judged(&Results::default())
            .into_iter()
            .find(|goal| goal.text.starts_with("restart from an RDB"));
        goals.extend(restart);
        let (first, last) = (0, goals.len() - 1);
        for number in [first, last] {
            goals[number].verdict = Verdict::Missed;
        }
        let told = missed(&goals);
        let texts: Vec<&str> = told.iter().map(|missed| missed.goals[0].text.as_str()).collect();
        assert_eq!(texts, [goals[last].text.as_str(), goals[first].text.as_str()]);
        assert_eq!(told[1].cause, "The cause is not known yet.");
    }
}
