//! Throughput and scaling.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midi::command::{Args, COMMANDS, Limits, find};
use midi::engine::{Call, Engine, Outcome, Taking, ThreadSlot, Together};
use midi::store::Now;

use super::keys::{KEYS, Key, Random, Zipf, stream};
use super::{Figures, REPLY_BYTES, Sink, VALUE, call, engine, fill, median, processor_time};

/// The work of threads in a period.
#[derive(Clone, Copy, Default)]
struct Done {
    per_second: f64,
    /// The same, by the threads' processor time.
    per_busy_second: f64,
    commands: u64,
    /// The token was not free at the first attempt.
    failed: u64,
    /// Nor after a worker's spinning: the command would have been queued.
    given_up: u64,
}

/// Runs `work` on threads with these numbers, for `time`; each call of `work` does a few
/// hundred operations and adds them to the counts.
fn on_threads(
    numbers: Range<usize>,
    time: Duration,
    work: impl Fn(usize, &mut Done) + Sync,
) -> Done {
    let (start, stop) = (Barrier::new(numbers.len() + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> = numbers
            .map(|number| {
                let (work, start, stop) = (&work, &start, &stop);
                scope.spawn(move || {
                    let mut done = Done::default();
                    start.wait();
                    let (begun, busy) =
                        (Instant::now(), processor_time(libc::CLOCK_THREAD_CPUTIME_ID));
                    while !stop.load(Ordering::Relaxed) {
                        work(number, &mut done);
                    }
                    done.per_second = done.commands as f64 / begun.elapsed().as_secs_f64();
                    done.per_busy_second = done.commands as f64
                        / (processor_time(libc::CLOCK_THREAD_CPUTIME_ID) - busy).as_secs_f64();
                    done
                })
            })
            .collect();
        start.wait();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).fold(
            Done::default(),
            |sum, done| Done {
                per_second: sum.per_second + done.per_second,
                per_busy_second: sum.per_busy_second + done.per_busy_second,
                commands: sum.commands + done.commands,
                failed: sum.failed + done.failed,
                given_up: sum.given_up + done.given_up,
            },
        )
    })
}

/// Work that shares nothing: the best that two threads can reach on this machine right now.
fn burn(threads: usize, time: Duration) -> f64 {
    on_threads(0..threads, time, |number, done| {
        let mut random = Random(number as u64);
        for _ in 0..4096 {
            black_box(random.next());
        }
        done.commands += 1;
    })
    .per_second
}

/// If a burn scales less than this, other processes are using the processors, and the round
/// waits for a limited time.
const ALONE: f64 = 1.85;

/// Commands of a stream between two readings of the clock.
const BATCH: usize = 256;

/// Commands of a pipeline that run together.
const TOGETHER: usize = 32;

/// The share of GETs in percent, and whether commands run together.
const MIXES: [(usize, bool); 6] =
    [(100, false), (95, false), (50, false), (100, true), (95, true), (50, true)];

/// Commands by one thread: keys of its stream, of which some are read and the others set.
struct Commands<'a> {
    engine: &'a Engine,
    lines: Vec<(usize, [&'a [u8]; 3])>,
}

impl<'a> Commands<'a> {
    fn of(engine: &'a Engine, keys: &'a [Key], (get, set): (usize, usize), reads: usize) -> Self {
        let lines = keys.iter().enumerate().map(|(number, key)| {
            let is_read = number * 37 % 100 < reads;
            (if is_read { get } else { set }, [&b""[..], key.bytes(), &VALUE])
        });
        Commands { engine, lines: lines.collect() }
    }

    /// Runs them one by one.
    fn run_each(&self, slot: &ThreadSlot, done: &mut Done) {
        (0..self.lines.len()).for_each(|number| self.run(slot, number, done));
    }

    fn run(&self, slot: &ThreadSlot, number: usize, done: &mut Done) {
        let (call, mut sink) = (self.call(number), Sink(0));
        if self.engine.attempt(slot, &call, Taking::Try(0), &mut sink) == Outcome::Busy {
            done.failed += 1;
            if self.engine.attempt(slot, &call, Taking::WORKER, &mut sink) == Outcome::Busy {
                done.given_up += 1;
                while self.engine.attempt(slot, &call, Taking::Try(0), &mut sink) == Outcome::Busy {
                    thread::yield_now();
                }
            }
        }
        black_box(sink.0);
    }

    /// Runs them as the port runs a pipeline.
    fn run_together(&self, slot: &ThreadSlot, done: &mut Done) {
        let (limits, mut from) = (self.engine.settings().limits(REPLY_BYTES), 0);
        while from < self.lines.len() {
            let mut sink = Sink(0);
            let to = self.lines.len().min(from + TOGETHER);
            let part = Part { commands: self, limits: &limits, from, to };
            let (ran, outcome) = self.engine.attempt_run(slot, &part, &mut sink, |_| false);
            black_box(sink.0);
            from += ran;
            if outcome == Outcome::Busy {
                done.given_up += 1;
                self.run(slot, from, done);
                from += 1;
            } else if from < to {
                done.failed += 1;
            }
        }
    }
}

/// Some of the commands, together.
struct Part<'p> {
    commands: &'p Commands<'p>,
    limits: &'p Limits,
    from: usize,
    to: usize,
}

impl Together for Part<'_> {
    fn count(&self) -> usize {
        self.to - self.from
    }

    fn db(&self) -> u32 {
        0
    }

    fn now(&self) -> Now {
        Now::lazy(self.commands.engine.config().clock)
    }

    fn command(&self, number: usize) -> usize {
        self.commands.lines[self.from + number].0
    }

    fn key(&self, number: usize) -> &[u8] {
        self.commands.lines[self.from + number].1[1]
    }

    fn args(&self, number: usize) -> Args<'_> {
        let (command, list) = &self.commands.lines[self.from + number];
        Args::new(&list[..words_of(*command)])
    }

    fn limits(&self) -> &Limits {
        self.limits
    }

    fn call(&self, number: usize) -> Call<'_> {
        self.commands.call(self.from + number)
    }
}

impl Commands<'_> {
    fn call(&self, number: usize) -> Call<'_> {
        let (command, list) = &self.lines[number];
        call(self.engine, *command, &list[..words_of(*command)])
    }
}

fn words_of(command: usize) -> usize {
    if COMMANDS[command].name == "get" { 2 } else { 3 }
}

pub fn threads(quick: bool, figures: &mut Figures) {
    let (rounds, time) = if quick { (1, 100) } else { (3, 300) };
    let time = Duration::from_millis(time);
    let len = if quick { 1 << 18 } else { 1 << 20 };
    println!(
        "\nThroughput: {KEYS} keys with values of 64 bytes, medians of {rounds} rounds of {time:?}"
    );
    println!(
        "  burn: two threads over one of plain computation in the same round; of 2: scaling / burn \
         * 2;"
    );
    println!(
        "  busy: scaling by the threads' processor time, which others on the machine disturb less;"
    );
    println!(
        "  failed: tokens not free at the first look; given up: nor after a worker's spinning (two \
         threads);\n  together: batches that ended early, and those that did not begin\n"
    );
    println!(
        "  shards  keys     GET   1 thread   2 threads  scaling   burn   of 2   busy     failed   \
         given up"
    );
    let mut disturbed = if quick { 20 } else { 200 };
    let zipf = Zipf::new(KEYS, 0.99);
    let get = find(b"get").expect("a command");
    let set = find(b"set").expect("a command");
    for shards in [64, 1024, 16384] {
        let engine = engine(2, shards);
        fill(&engine, KEYS, &VALUE);
        for (name, zipf) in [("uniform", None), ("zipf", Some(&zipf))] {
            let streams = [stream(zipf, len, 1), stream(zipf, len, 2)];
            for (reads, together) in MIXES {
                let places = [AtomicUsize::new(0), AtomicUsize::new(0)];
                let work = |thread: usize, done: &mut Done| {
                    let slot = engine.worker_slot(thread);
                    let at = places[thread].load(Ordering::Relaxed);
                    places[thread].store((at + BATCH) % len, Ordering::Relaxed);
                    let keys = &streams[thread][at..at + BATCH];
                    let commands = Commands::of(&engine, keys, (get, set), reads);
                    match together {
                        true => commands.run_together(slot, done),
                        false => commands.run_each(slot, done),
                    }
                    done.commands += BATCH as u64;
                };
                on_threads(0..2, time / 3, work);
                let mut seen: [Vec<f64>; 6] = Default::default();
                let mut total = Done::default();
                let mut round = 0;
                while round < rounds {
                    let burns = burn(2, time / 2) / burn(1, time / 2);
                    if burns < ALONE && disturbed > 0 {
                        disturbed -= 1;
                        continue;
                    }
                    round += 1;
                    // Two threads in the middle, so that neither has the warmer caches.
                    let alone = |number| on_threads(number..number + 1, time / 2, work);
                    let (first, two, second) = (alone(0), on_threads(0..2, time, work), alone(1));
                    let one = (first.per_second + second.per_second) / 2.0;
                    let one_busy = (first.per_busy_second + second.per_busy_second) / 2.0;
                    let scaling = two.per_second / one;
                    let busy = two.per_busy_second / one_busy;
                    let of_two = scaling / burns * 2.0;
                    let round = [one, two.per_second, scaling, burns, of_two, busy];
                    round.iter().zip(&mut seen).for_each(|(&number, list)| list.push(number));
                    total.commands += two.commands;
                    total.failed += two.failed;
                    total.given_up += two.given_up;
                }
                let [one, two, scaling, burns, of_two, busy] = seen.map(median);
                let how = if together { ", 32 together" } else { "" };
                figures.note(format!("of 2: {shards} shards, {name}, {reads}% GET{how}"), of_two);
                let share = |count: u64| 100.0 * count as f64 / total.commands as f64;
                println!(
                    "  {shards:>6}  {name:<7} {reads:>3}%  {:>7.2} M   {:>7.2} M   {scaling:>6.2}  \
                     {burns:>5.2}  {of_two:>5.2}  {busy:>5.2}   {:>7.4}%   {:>7.4}%{how}",
                    one / 1e6,
                    two / 1e6,
                    share(total.failed),
                    share(total.given_up),
                );
            }
        }
    }
}
