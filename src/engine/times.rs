//! How long the calls of a command took: how many there were of each length.

use super::counters::Count;

/// The shortest time that is told from shorter ones is 2 to this power, in nanoseconds.
const FIRST_POWER: u32 = 6;
/// Longer ones than 2 to this power, 17 seconds, are counted as that.
const LAST_POWER: u32 = 34;
/// Lengths between two powers.
const STEPS: usize = 4;
/// Lengths that are told apart.
const LENGTHS: usize = (LAST_POWER - FIRST_POWER) as usize * STEPS;
/// The power of the first line of LATENCY HISTOGRAM: Redis's begins with 1024 ns.
const REPORTED_POWER: u32 = 10;

/// How many calls of each length a thread has counted; any thread may read it.
pub(super) struct Times([Count; LENGTHS]);

impl Default for Times {
    fn default() -> Self {
        Times(std::array::from_fn(|_| Count::default()))
    }
}

/// The place of a time.
fn place(ns: u64) -> usize {
    let ns = ns.clamp(1 << FIRST_POWER, (1 << LAST_POWER) - 1);
    let power = ns.ilog2();
    let step = (ns >> (power - STEPS.ilog2())) as usize % STEPS;
    (power - FIRST_POWER) as usize * STEPS + step
}

/// The longest time at a place, in nanoseconds.
fn longest(place: usize) -> u64 {
    let (power, step) = (FIRST_POWER + (place / STEPS) as u32, place % STEPS);
    (((STEPS + step + 1) as u64) << (power - STEPS.ilog2())) - 1
}

impl Times {
    /// Counts calls that took this long each.
    pub(super) fn add(&self, calls: u64, ns: u64) {
        self.0[place(ns)].add(calls);
    }

    pub(super) fn add_to(&self, sum: &mut TimesSum) {
        for (sum, count) in sum.0.iter_mut().zip(&self.0) {
            *sum += count.get();
        }
    }
}

/// The times of all threads together.
#[derive(Clone)]
pub struct TimesSum([u64; LENGTHS]);

impl Default for TimesSum {
    fn default() -> Self {
        TimesSum([0; LENGTHS])
    }
}

impl TimesSum {
    /// What was counted after `before`.
    pub fn since(&self, before: &TimesSum) -> TimesSum {
        TimesSum(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }

    /// How many calls were timed.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time, in nanoseconds, that this share of the calls did not exceed; 0 without calls.
    pub fn within(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let place = self.0.iter().position(|&count| {
            seen += count;
            seen >= wanted
        });
        place.map_or(0, longest)
    }

    /// The lines of LATENCY HISTOGRAM for a command of so many calls: times in microseconds, each
    /// the double of the one before, and how many calls took no longer. Lines that add nothing are
    /// left out. The calls that were not timed are taken to be like those that were.
    pub fn lines(&self, calls: u64) -> Vec<(u64, u64)> {
        let (timed, mut lines, mut seen) = (self.count(), Vec::new(), 0);
        for (at, power) in (FIRST_POWER..LAST_POWER).enumerate() {
            let before = seen;
            seen += self.0[at * STEPS..(at + 1) * STEPS].iter().sum::<u64>();
            if seen == before {
                continue;
            }
            // Redis's own times are a 128th longer than the power.
            let most = 1u64 << (power + 1).max(REPORTED_POWER);
            let line = (
                (most + most / 128) / 1000,
                (u128::from(calls) * u128::from(seen) / u128::from(timed)) as u64,
            );
            if lines.last().is_some_and(|last: &(u64, u64)| last.0 == line.0) {
                lines.pop();
            }
            lines.push(line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_its_place() {
        let mut last = 0;
        for ns in [0, 63, 64, 79, 80, 127, 128, 1_000, 123_456, 1 << 33] {
            let at = place(ns);
            assert!(at >= last && ns <= longest(at), "{ns}");
            assert!(ns < 64 || longest(at) - ns <= ns / 4, "{ns}: {}", longest(at));
            last = at;
        }
        assert_eq!(place(u64::MAX), LENGTHS - 1);
    }

    #[test]
    fn shares_and_lines_tell_how_long_calls_took() {
        let (times, mut sum) = (Times::default(), TimesSum::default());
        assert_eq!((sum.within(0.5), sum.lines(9)), (0, vec![]));
        times.add(90, 500);
        times.add(9, 3_000);
        times.add(1, 40_000_000);
        times.add_to(&mut sum);
        assert_eq!(sum.count(), 100);
        assert!((500..=625).contains(&sum.within(0.5)));
        assert!((3_000..=3_750).contains(&sum.within(0.99)));
        assert!(sum.within(0.999) >= 40_000_000);
        assert_eq!(sum.lines(1000), [(1, 900), (4, 990), (67_633, 1000)]);
        let before = sum.clone();
        assert_eq!(sum.since(&before).count(), 0);
    }
}
