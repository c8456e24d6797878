//! Clients that note what was acknowledged to them, and later look for it.
//!
//! Each has keys of its own, and writes numbers that grow by one. So what is missing, what is there
//! twice, and what was done by half can be told from what is found.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Client, Door, Random, Server, Value, encoded, words};

/// A client's counter. Each number is written to several keys, or in several ways.
const SERIES: [Series; 8] = [
    Series { name: "count", lines: &["INCR count"] },
    Series { name: "list", lines: &["APPEND list N,"] },
    Series { name: "set", lines: &["SET set N"] },
    Series { name: "many", lines: &["MSET many N x N y N z N"] },
    Series {
        name: "exec",
        lines: &[
            "MULTI",
            "SET exec N",
            "APPEND both N,",
            "SET named N",
            "RENAME named new",
            "EXEC",
        ],
    },
    Series { name: "end", lines: &["SETRANGE end 0 N"] },
    Series { name: "hash", lines: &["HSET hash first N second N"] },
    // It changes its form, and has as many fields as there were numbers.
    Series { name: "fields", lines: &["HSET fields N N last N"] },
];

struct Series {
    /// The key that has the last number; that of APPEND has all.
    name: &'static str,
    /// `N` stands for the number.
    lines: &'static [&'static str],
}

/// A client, and what it knows of each series.
pub struct Witness {
    door: Door,
    number: usize,
    /// It sends one command at a time, and again if the server is loading.
    is_patient: bool,
    /// A write that WAIT does not confirm was not acknowledged.
    is_confirming: bool,
    begun: [u64; SERIES.len()],
    acknowledged: [u64; SERIES.len()],
    answered: [u64; SERIES.len()],
    lost: u64,
}

/// How much the witnesses of a run have been answered.
#[derive(Default)]
pub struct Answers {
    acknowledged: AtomicU64,
    /// The writes that WAIT did not confirm.
    unconfirmed: AtomicU64,
}

impl Answers {
    /// Waits until so much more is acknowledged to the witnesses.
    pub fn wait_for(&self, more: u64) {
        wait_for_more(&self.acknowledged, more);
    }

    /// Waits until WAIT has not confirmed so much more of what was answered.
    pub fn wait_for_unconfirmed(&self, more: u64) {
        wait_for_more(&self.unconfirmed, more);
    }
}

fn wait_for_more(count: &AtomicU64, more: u64) {
    let wanted = count.load(Ordering::Relaxed) + more;
    super::wait_until("witnesses are answered", || count.load(Ordering::Relaxed) >= wanted);
}

impl Witness {
    /// With keys of this number.
    pub fn new(door: Door, number: usize) -> Self {
        let zeros = [0; SERIES.len()];
        Witness {
            door,
            number,
            is_patient: false,
            is_confirming: false,
            begun: zeros,
            acknowledged: zeros,
            answered: zeros,
            lost: 0,
        }
    }

    /// For a server that loads meanwhile.
    pub fn patient(self) -> Self {
        Witness { is_patient: true, ..self }
    }

    /// Counts only on what WAIT has confirmed.
    pub fn confirming(self) -> Self {
        Witness { is_confirming: true, ..self }
    }

    /// How many numbers were answered, but not confirmed, and then lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// A command for this door and this witness's own keys.
    fn command(&self, line: &str, value: u64) -> Vec<Vec<u8>> {
        let mut words = words(line);
        if words.len() == 1 {
            return words;
        }
        for (at, word) in words.iter_mut().enumerate().skip(1) {
            let number = value.to_string();
            match word.as_slice() {
                b"N" => *word = number.into_bytes(),
                b"N," => *word = format!("{number},").into_bytes(),
                b"0" => {}
                // Names and values take turns in MSET.
                _ if at == 1 || line.starts_with("MSET") || line.starts_with("RENAME") => {
                    word.extend(format!(":{}", self.number).bytes());
                }
                _ => {}
            }
        }
        self.door.named(&words)
    }

    /// Writes until it is told to stop, or the connection ends.
    fn run_on(&mut self, ports: Ports, seed: u64, stop: &AtomicBool, answers: &Answers) {
        let port = if self.door == Door::Host { ports.host } else { ports.midi };
        let Ok(mut client) = Client::connect(port) else { return };
        let mut random = Random::new(seed ^ self.number as u64);
        while !stop.load(Ordering::Relaxed) && self.turn(&mut client, &mut random, answers).is_ok()
        {
        }
    }

    /// Writes one number at a time at the server that is the master now. When that has changed,
    /// looks for what it wrote, and goes on from there.
    fn roam(&mut self, masters: &impl Fn() -> Ports, stop: &AtomicBool, answers: &Answers) {
        let mut random = Random::new(self.number as u64);
        while !stop.load(Ordering::Relaxed) {
            let ports = masters();
            let Ok(mut client) = Client::connect(ports.host) else { continue };
            if !super::replicas::is_master(&mut client) {
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            // It may become a replica meanwhile, and end its connections.
            let Ok(found) = self.find(&mut client) else { continue };
            self.compare(&found, "at the new master");
            if self.door != Door::Host {
                let Ok(other) = Client::connect(ports.midi) else { continue };
                client = other;
            }
            while !stop.load(Ordering::Relaxed)
                && self.one_number(&mut client, &mut random, answers).is_ok_and(|done| done)
            {
            }
        }
    }

    /// Sends one number. False if the server has become a replica, or loads data.
    fn one_number(
        &mut self,
        client: &mut Client,
        random: &mut Random,
        answers: &Answers,
    ) -> io::Result<bool> {
        let series = random.below(SERIES.len());
        self.begun[series] += 1;
        let value = self.begun[series];
        let lines = SERIES[series].lines;
        let bytes: Vec<u8> = lines
            .iter()
            .map(|line| encoded(&self.command(line, value)))
            .collect::<Vec<_>>()
            .concat();
        client.try_send(&bytes)?;
        let mut done = true;
        for line in lines {
            let reply = client.try_read()?;
            if reply.is_error() {
                let text = reply.text();
                let expected = ["READONLY", "UNBLOCKED", "LOADING", "EXECABORT"];
                let is_expected = expected.iter().any(|it| text.starts_with(it));
                assert!(is_expected, "{line}, {:?}: {text}", self.door);
                done = false;
            } else if *line == "INCR count" {
                assert_eq!(reply, Value::Integer(value as i64), "{:?}", self.door);
            }
        }
        if done {
            self.answered[series] = value;
        }
        let confirmed = |client: &mut Client| {
            client.try_call(&words("WAIT 1 20")).map(|it| it == Value::Integer(1))
        };
        if done && (!self.is_confirming || confirmed(client)?) {
            self.acknowledged[series] = value;
            answers.acknowledged.fetch_add(1, Ordering::Relaxed);
        } else if done {
            answers.unconfirmed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(done)
    }

    /// Sends some numbers together, and reads what is answered.
    fn turn(
        &mut self,
        client: &mut Client,
        random: &mut Random,
        answers: &Answers,
    ) -> io::Result<()> {
        if self.is_patient {
            return self.patient_turn(client, random, answers);
        }
        let mut bytes = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..1 + random.below(12) {
            let series = random.below(SERIES.len());
            self.begun[series] += 1;
            for line in SERIES[series].lines {
                bytes.extend(encoded(&self.command(line, self.begun[series])));
            }
            sent.push((series, self.begun[series]));
        }
        client.try_send(&bytes)?;
        for (series, value) in sent {
            for line in SERIES[series].lines {
                let reply = client.try_read()?;
                assert!(!reply.is_error(), "{line}, {:?}: {reply:?}", self.door);
                if *line == "INCR count" {
                    assert_eq!(reply, Value::Integer(value as i64), "{:?}", self.door);
                }
            }
            self.acknowledged[series] = value;
            answers.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends one number, until it is not refused.
    fn patient_turn(
        &mut self,
        client: &mut Client,
        random: &mut Random,
        answers: &Answers,
    ) -> io::Result<()> {
        let series = random.below(SERIES.len());
        let [line] = SERIES[series].lines else { return Ok(()) };
        self.begun[series] += 1;
        loop {
            let reply = client.try_call(&self.command(line, self.begun[series]))?;
            if !reply.is_error() {
                self.acknowledged[series] = self.begun[series];
                answers.acknowledged.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            assert!(reply.text().starts_with("LOADING"), "{line}, {:?}: {reply:?}", self.door);
        }
    }

    /// Looks for what was acknowledged, through the host's door: nothing may be missing, and
    /// nothing may be there that was not begun. Goes on from there.
    #[track_caller]
    pub fn check(&mut self, client: &mut Client, when: &str) {
        let found = self.find(client).unwrap_or_else(|error| panic!("{error}, {when}"));
        self.compare(&found, when);
    }

    #[track_caller]
    fn compare(&mut self, found: &[u64; SERIES.len()], when: &str) {
        for (series, &found) in found.iter().enumerate() {
            let known = self.acknowledged[series]..=self.begun[series];
            let (door, name) = (self.door, SERIES[series].name);
            assert!(known.contains(&found), "{door:?}, {name}: {found} not in {known:?}, {when}");
            self.lost += self.answered[series].saturating_sub(found);
            (self.begun[series], self.acknowledged[series]) = (found, found);
            self.answered[series] = found;
        }
    }

    /// The last number of each series. Nothing may be there by half.
    #[track_caller]
    fn find(&self, client: &mut Client) -> io::Result<[u64; SERIES.len()]> {
        let mut found = [0; SERIES.len()];
        for (found, Series { name, .. }) in found.iter_mut().zip(&SERIES) {
            *found = match *name {
                "list" => self.last_of_list(client, name)?,
                "exec" => {
                    let last = self.last_of_list(client, "both")?;
                    for (name, expected) in [("exec", last), ("new", last), ("named", 0)] {
                        assert_eq!(self.value(client, name)?, expected, "half of an EXEC");
                    }
                    last
                }
                "hash" => {
                    let last = self.field(client, name, "first")?;
                    assert_eq!(self.field(client, name, "second")?, last, "half of an HSET");
                    last
                }
                "fields" => self.last_of_fields(client, name)?,
                _ => self.value(client, name)?,
            };
            if *name == "many" {
                for name in ["x", "y", "z"] {
                    assert_eq!(self.value(client, name)?, *found, "half of an MSET");
                }
            }
        }
        Ok(found)
    }

    /// A number in a field of a hash.
    #[track_caller]
    fn field(&self, client: &mut Client, name: &str, field: &str) -> io::Result<u64> {
        let line = format!("MIDI.HGET {name}:{} {field}", self.number);
        match client.try_call(&words(&line))? {
            Value::NullBulk => Ok(0),
            value if value.is_error() => Err(io::Error::other(format!("{line}: {}", value.text()))),
            value => Ok(value.text().parse().expect("a number")),
        }
    }

    /// The number of a hash in which all numbers are fields.
    #[track_caller]
    fn last_of_fields(&self, client: &mut Client, name: &str) -> io::Result<u64> {
        let last = self.field(client, name, "last")?;
        let len = client.try_call(&words(&format!("MIDI.HLEN {name}:{}", self.number)))?;
        if len.is_error() {
            return Err(io::Error::other(len.text()));
        }
        let fields = if last > 0 { last as i64 + 1 } else { 0 };
        assert_eq!(len, Value::Integer(fields), "{:?}: the fields up to {last}", self.door);
        Ok(last)
    }

    /// Takes what is there for what was acknowledged, and goes on from there.
    pub fn look(&mut self, client: &mut Client) {
        (self.begun, self.acknowledged) = ([u64::MAX; SERIES.len()], [0; SERIES.len()]);
        self.check(client, "before it begins");
    }

    fn text(&self, client: &mut Client, name: &str) -> io::Result<String> {
        let line = format!("MIDI.GET {name}:{}", self.number);
        match client.try_call(&words(&line))? {
            Value::NullBulk => Ok(String::new()),
            value if value.is_error() => Err(io::Error::other(format!("{line}: {}", value.text()))),
            value => Ok(value.text()),
        }
    }

    fn value(&self, client: &mut Client, name: &str) -> io::Result<u64> {
        let text = self.text(client, name)?;
        Ok(if text.is_empty() { 0 } else { text.parse().expect("a number") })
    }

    /// The last number of a list, which must have each number once, in order.
    #[track_caller]
    fn last_of_list(&self, client: &mut Client, name: &str) -> io::Result<u64> {
        let text = self.text(client, name)?;
        let last = text.matches(',').count() as u64;
        let expected: String = (1..=last).map(|number| format!("{number},")).collect();
        let same = text.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
        assert!(
            text == expected,
            "{:?}, {name} of {}: at {same}: ...{}",
            self.door,
            self.number,
            &text[same.saturating_sub(20)..text.len().min(same + 40)]
        );
        Ok(last)
    }
}

/// Runs witnesses beside `body`. They are stopped when it returns, unless the server has ended.
pub fn beside<R>(
    server: &mut Server,
    witnesses: &mut [Witness],
    seed: u64,
    body: impl FnOnce(&mut Server, &Answers) -> R,
) -> R {
    let (stop, answers) = (AtomicBool::new(false), Answers::default());
    let ports = Ports::of(server);
    std::thread::scope(|scope| {
        for witness in witnesses {
            let (stop, answers) = (&stop, &answers);
            scope.spawn(move || witness.run_on(ports, seed, stop, answers));
        }
        let _stop = super::StopAtEnd(&stop);
        body(server, &answers)
    })
}

/// All that witnesses were answered is on both servers of a pair, and both have the same.
#[track_caller]
pub fn check_pair(pair: &super::replicas::Pair, witnesses: &mut [Witness]) {
    pair.must_become_equal("at the end");
    for server in &pair.servers {
        let mut client = server.client();
        witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "at the end"));
    }
}

/// Runs witnesses beside `body`, which write to the master of a pair, whichever server that is.
pub fn beside_pair<R>(
    pair: &super::replicas::Pair,
    witnesses: &mut [Witness],
    body: impl FnOnce(&Answers) -> R,
) -> R {
    beside_roles(&|| Ports::of(pair.master()), witnesses, body)
}

/// Runs witnesses beside `body`, which may have the server end connections and refuse commands.
pub fn beside_interruptions<R>(
    server: &Server,
    witnesses: &mut [Witness],
    body: impl FnOnce(&Answers) -> R,
) -> R {
    beside_roles(&|| Ports::of(server), witnesses, body)
}

fn beside_roles<R>(
    masters: &(impl Fn() -> Ports + Sync),
    witnesses: &mut [Witness],
    body: impl FnOnce(&Answers) -> R,
) -> R {
    let (stop, answers) = (AtomicBool::new(false), Answers::default());
    std::thread::scope(|scope| {
        for witness in &mut *witnesses {
            let (stop, answers) = (&stop, &answers);
            scope.spawn(move || witness.roam(masters, stop, answers));
        }
        let _stop = super::StopAtEnd(&stop);
        body(&answers)
    })
}

/// Witnesses at both doors.
pub fn at_both_doors(count: usize) -> Vec<Witness> {
    (0..count).map(|number| Witness::new([Door::Host, Door::Port][number % 2], number)).collect()
}

/// Where a server listens.
#[derive(Clone, Copy)]
struct Ports {
    host: u16,
    midi: u16,
}

impl Ports {
    fn of(server: &Server) -> Self {
        Ports { host: server.port(), midi: server.midi_port() }
    }
}
