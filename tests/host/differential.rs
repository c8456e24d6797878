//! The promise: a client that puts `MIDI.` in front of its commands, or uses midi's port instead of
//! the host's, gets the same replies as before, whatever it sends. Random commands run on both
//! sides: alone, in transactions and from scripts, with RESP2 and RESP3, in several databases.
//!
//! Environment: `MIDI_DIFFERENTIAL_COMMANDS` (how many in each mode) and `MIDI_DIFFERENTIAL_SEED`
//! (the number of the first episode). An episode starts with empty databases, and its number alone
//! determines it. The test reduces the first difference to the steps that cause it.

use std::time::{Duration, Instant};

use crate::common::grammar::{self, Grammar};
use crate::common::{
    Builder, Difference, Door, Mode, Random, Server, Step, Twin, Value, Words, words,
};

/// Steps in an episode.
const EPISODE: usize = 1000;

/// Steps sent at once.
const BATCH: usize = 100;

/// Databases with keys. [`short_lives`] uses another one.
const DATABASES: usize = 3;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

#[test]
fn adaptive() {
    run(Mode::Adaptive, Door::Host);
}

#[test]
fn pool() {
    run(Mode::Pool, Door::Host);
}

#[test]
fn safemode() {
    run(Mode::Safe, Door::Host);
}

#[test]
fn port() {
    run(Mode::Adaptive, Door::Port);
}

#[test]
fn port_in_pool() {
    run(Mode::Pool, Door::Port);
}

#[test]
fn port_in_safemode() {
    run(Mode::Safe, Door::Port);
}

#[test]
fn port_with_the_prefix() {
    run(Mode::Adaptive, Door::PortPrefixed);
}

/// Where commands run on both sides.
struct Arena {
    /// How clients reach midi's commands.
    door: Door,
    server: Server,
    /// For the stock commands, where midi's have their own connections: a command that empties the
    /// host's databases would empty midi's too.
    stock: Option<Server>,
}

impl Arena {
    /// Without the limits that stock servers do not have.
    fn start(mode: Mode, door: Door) -> Arena {
        let builder = mode.builder().load("max-pattern-bytes 100mb");
        match door {
            Door::Host => Arena { door, server: builder.start(), stock: None },
            Door::Port | Door::PortPrefixed => Arena {
                door,
                server: builder.with_port().start(),
                stock: Some(Builder::plain().start()),
            },
        }
    }

    /// New connections to empty databases.
    fn twin(&self) -> Twin {
        self.server.client().ok("FLUSHALL");
        match &self.stock {
            None => Twin::new(self.server.client()),
            Some(stock) => {
                stock.client().ok("FLUSHALL");
                Twin::apart(stock.client(), self.door.client(&self.server), self.door)
            }
        }
    }
}

fn run(mode: Mode, door: Door) {
    let arena = Arena::start(mode, door);
    let grammar = Grammar::ask(&mut arena.server.client());
    println!("{mode:?}, {door:?}: commands: {}", grammar.names().join(", "));
    println!("{mode:?}, {door:?}: left out: {}", grammar.left_out.join(", "));
    let wanted = from_environment("MIDI_DIFFERENTIAL_COMMANDS", 20_000) as usize;
    let mut number = from_environment("MIDI_DIFFERENTIAL_SEED", 1);
    let mut done = 0;
    while done < wanted {
        let steps = episode(&grammar, number);
        done += steps.iter().map(|step| step.commands().len()).sum::<usize>();
        if let Err(difference) = play(&arena, &steps) {
            panic!("{mode:?}, {door:?}: {}", report(&arena, number, &steps, &difference));
        }
        short_lives(&mut arena.twin(), &mut Random::new(number));
        number += 1;
    }
}

/// The steps of the episode with that number.
fn episode(grammar: &Grammar, number: u64) -> Vec<Step> {
    let mut random = Random::new(number);
    (0..EPISODE).flat_map(|_| some_step(grammar, &mut random)).collect()
}

fn some_step(grammar: &Grammar, random: &mut Random) -> Vec<Step> {
    match random.below(100) {
        0..2 => vec![Step::Alone(words(&format!("SELECT {}", random.below(DATABASES))))],
        2 => vec![Step::Alone(words(&format!("HELLO {}", 2 + random.below(2))))],
        3..12 => {
            let commands =
                (0..1 + random.below(6)).map(|_| grammar.draw(random)).collect::<Vec<_>>();
            vec![Step::Transaction(commands.into_iter().flat_map(with_look).collect())]
        }
        12..30 => with_look(grammar.draw(random)).into_iter().map(Step::Script).collect(),
        _ => with_look(grammar.draw(random)).into_iter().map(Step::Plain).collect(),
    }
}

/// Puts a read of every key in front of a command that does not check expiry. Such a command counts
/// expired keys until something finds them.
fn with_look(args: Words) -> Vec<Words> {
    let name = args[0].to_ascii_lowercase();
    if matches!(
        name.as_slice(),
        b"dbsize" | b"randomkey" | b"memory" | b"flushdb" | b"flushall" | b"swapdb"
    ) {
        let look = [b"EXISTS".to_vec()].into_iter().chain(grammar::all_keys()).collect();
        vec![look, args]
    } else {
        vec![args]
    }
}

/// Runs the steps on both sides, on empty databases.
fn play(arena: &Arena, steps: &[Step]) -> Result<(), Difference> {
    let mut twin = arena.twin();
    for (number, batch) in steps.chunks(BATCH).enumerate() {
        twin.batch(batch)
            .map_err(|found| Difference { step: number * BATCH + found.step, text: found.text })?;
    }
    Ok(())
}

/// The report from which a person can find the cause.
fn report(arena: &Arena, number: u64, steps: &[Step], difference: &Difference) -> String {
    let failed = &steps[difference.step];
    let related: Vec<&Step> =
        steps[..difference.step].iter().filter(|step| meet(step, failed)).collect();
    let listed =
        |steps: &[&Step]| steps.iter().map(|step| format!("  {step}\n")).collect::<String>();
    let cut = cut_down(arena, &steps[..=difference.step]);
    format!(
        "episode {number}, step {}: {}\nthe last steps that touched its keys:\n{}{}\
         again with: MIDI_DIFFERENTIAL_SEED={number} MIDI_DIFFERENTIAL_COMMANDS=1",
        difference.step,
        difference.text,
        listed(&related[related.len().saturating_sub(15)..]),
        match cut {
            Some(cut) => format!("this is enough:\n{}", listed(&cut.iter().collect::<Vec<_>>())),
            None => "it did not happen again\n".to_owned(),
        },
    )
}

/// Whether the steps have a key in common.
fn meet(step: &Step, other: &Step) -> bool {
    let is_key = |word: &Vec<u8>| grammar::all_keys().any(|key| key == *word);
    let words = |step: &Step| -> Vec<Vec<u8>> {
        step.commands().iter().flat_map(|args| args[1..].to_vec()).filter(is_key).collect()
    };
    let others = words(other);
    words(step).iter().any(|key| others.contains(key))
}

/// The longest time that the reduction may take.
const CUTTING: Duration = Duration::from_secs(30);

/// Leaves out ever smaller groups of steps as long as a difference remains. Returns None if a
/// second run of all steps shows no difference.
fn cut_down(arena: &Arena, steps: &[Step]) -> Option<Vec<Step>> {
    let started = Instant::now();
    play(arena, steps).err()?;
    let mut steps = steps.to_vec();
    let mut piece = steps.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < steps.len() && started.elapsed() < CUTTING {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(steps.len()));
            match play(arena, &fewer) {
                Err(found) => steps = fewer[..=found.step].to_vec(),
                Ok(()) => at += piece,
            }
        }
        if piece == 1 {
            return Some(steps);
        }
        piece = piece.div_ceil(2);
    }
}

/// Keys that live for milliseconds. While they expire, either server may be the first to report it,
/// and neither may take it back. Then both must have removed them.
fn short_lives(twin: &mut Twin, random: &mut Random) {
    twin.each("SELECT 9");
    let keys: Vec<String> = (0..8).map(|number| format!("short{number}")).collect();
    for key in &keys {
        let ms = 1 + random.below(25);
        let lines = match random.below(3) {
            0 => vec![format!("SET {key} v PX {ms}")],
            1 => vec![format!("SET {key} v EX 1000"), format!("PEXPIRE {key} {ms}")],
            _ => vec![format!("SET {key} old PX {ms}"), format!("SET {key} v KEEPTTL XX")],
        };
        // The second line of each may find that the key has already expired, on either side.
        let (native, midi) = twin.both(&lines[0]);
        assert_eq!(native, midi, "{}", lines[0]);
        lines[1..].iter().for_each(|line| drop(twin.both(line)));
    }
    let mut gone = vec![(false, false); keys.len()];
    let mut look = |strict: bool| {
        for (key, gone) in keys.iter().zip(&mut gone) {
            let (native, midi) = twin.both(&format!("EXISTS {key}"));
            let is_gone = (native == Value::Integer(0), midi == Value::Integer(0));
            assert!(is_gone.0 >= gone.0 && is_gone.1 >= gone.1, "{key} has come back");
            assert!(!strict || is_gone == *gone, "{key}: {is_gone:?}, and before {gone:?}");
            *gone = is_gone;
        }
    };
    look(false);
    look(false);
    std::thread::sleep(Duration::from_millis(60));
    look(false);
    look(true);
    for key in &keys {
        for line in ["GET {}", "PTTL {}", "TYPE {}", "PERSIST {}", "SET {} new NX GET", "DEL {}"] {
            let line = line.replace("{}", key);
            let (native, midi) = twin.both(&line);
            assert_eq!(native, midi, "{line}");
        }
    }
    twin.each("FLUSHDB");
}

#[test]
fn a_difference_is_found_and_cut_down() {
    let arena = Arena::start(Mode::Adaptive, Door::Host);
    let grammar = Grammar::ask(&mut arena.server.client());
    let mut steps = episode(&grammar, 1);
    play(&arena, &steps).expect("no difference of its own");
    // A write in the middle that only midi sees, and a read of it at the end, in the same database.
    steps.insert(500, Step::Alone(words("SELECT 0")));
    steps.insert(501, Step::Alone(words("MIDI.SET planted there")));
    steps.push(Step::Alone(words("SELECT 0")));
    steps.push(Step::Plain(words("EXISTS planted")));
    steps.retain(|step| {
        // Nothing may remove the planted key.
        !step.commands().iter().any(|args| {
            let name = args[0].to_ascii_lowercase();
            name.starts_with(b"flush") || name == b"swapdb"
        })
    });
    let found = play(&arena, &steps).expect_err("the planted key");
    let cut = cut_down(&arena, &steps[..=found.step]).expect("it happens again");
    assert!(cut.len() <= 4, "{cut:#?}");
    assert!(report(&arena, 1, &steps, &found).contains("this is enough"));
}
