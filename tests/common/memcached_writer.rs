//! memcached's clients that note what they were told, and later look for it: what
//! [`super::witness`] is for Redis's clients.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::memcached::{Memcached, WithMemcached};
use super::{Random, StopAtEnd, wait_until};

/// What a client writes: numbers that grow by one.
const SERIES: [Series; 5] =
    [Series::Item, Series::Marked, Series::Count, Series::List, Series::Chain];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Series {
    /// An item whose value and flags are the number.
    Item,
    /// The same, marked as stale by a second command.
    Marked,
    /// A counter.
    Count,
    /// A text that gets each number appended.
    List,
    /// A value that is swapped for the next number if it is still the one that was read.
    Chain,
}

/// A client with keys of its own, and what it knows of each series.
pub struct Writer {
    number: usize,
    begun: [u64; SERIES.len()],
    told: [u64; SERIES.len()],
}

/// How much the writers of a run were told.
#[derive(Default)]
pub struct Told(AtomicU64);

impl Told {
    /// Waits until the writers are told of so much more.
    pub fn wait_for(&self, more: u64) {
        let wanted = self.0.load(Ordering::Relaxed) + more;
        wait_until("writers are answered", || self.0.load(Ordering::Relaxed) >= wanted);
    }
}

/// The reply is another one: the connection has ended, or the server refuses to write.
struct Refused;

/// Reads a line that must be this one.
#[track_caller]
fn expect(client: &mut Memcached, expected: &str) -> Result<(), Refused> {
    let said = client.try_read_line().ok_or(Refused)?;
    if said.starts_with("SERVER_ERROR ") {
        return Err(Refused);
    }
    assert_eq!(said, expected);
    Ok(())
}

impl Writer {
    /// So many writers. The values that only grow are there then.
    pub fn several(count: usize, client: &mut Memcached) -> Vec<Writer> {
        let new = |number| {
            let sent = format!("set count:{number} 0 0 1\n0\nset list:{number} 0 0 0\n\n");
            let chain = format!("set chain:{number} 0 0 1\n0\n");
            assert_eq!(client.lines(&(sent + &chain)), "STORED\nSTORED\nSTORED\n");
            let zeros = [0; SERIES.len()];
            Writer { number, begun: zeros, told: zeros }
        };
        (0..count).map(new).collect()
    }

    /// Writes until it is told to stop, is refused, or the connection ends.
    fn run_on(&mut self, mut client: Memcached, seed: u64, stop: &AtomicBool, told: &Told) {
        let mut random = Random::new(seed << 8 | self.number as u64);
        while !stop.load(Ordering::Relaxed) && self.turn(&mut client, &mut random, told).is_ok() {}
    }

    /// Sends some numbers together, and reads what is answered.
    fn turn(
        &mut self,
        client: &mut Memcached,
        random: &mut Random,
        told: &Told,
    ) -> Result<(), Refused> {
        let mut sent = Vec::new();
        let mut bytes = String::new();
        for _ in 0..1 + random.below(12) {
            let at = random.below(SERIES.len());
            if SERIES[at] == Series::Chain {
                continue;
            }
            self.begun[at] += 1;
            bytes += &self.request(SERIES[at], self.begun[at]);
            sent.push((at, self.begun[at]));
        }
        client.try_send(bytes.as_bytes()).map_err(|_| Refused)?;
        for (at, value) in sent {
            match SERIES[at] {
                Series::Count => expect(client, &value.to_string())?,
                Series::Marked => {
                    expect(client, "HD")?;
                    expect(client, "HD")?;
                }
                _ => expect(client, "STORED")?,
            }
            self.note(at, told);
        }
        self.swap(client, told)
    }

    fn request(&self, series: Series, value: u64) -> String {
        let (number, len) = (self.number, value.to_string().len());
        match series {
            Series::Item => format!("set item:{number} {value} 0 {len}\r\n{value}\r\n"),
            Series::Marked => {
                let key = format!("marked:{number}");
                format!("ms {key} {len} F{value}\r\n{value}\r\nmd {key} I\r\n")
            }
            Series::Count => format!("incr count:{number} 1\r\n"),
            Series::List => format!("append list:{number} 0 0 {}\r\n{value},\r\n", len + 1),
            Series::Chain => unreachable!("it takes a read in between"),
        }
    }

    /// The next number of the chain.
    fn swap(&mut self, client: &mut Memcached, told: &Told) -> Result<(), Refused> {
        let (key, at) = (format!("chain:{}", self.number), SERIES.len() - 1);
        client.try_send(format!("gets {key}\r\n").as_bytes()).map_err(|_| Refused)?;
        let head = client.try_read_line().ok_or(Refused)?;
        if head.starts_with("SERVER_ERROR ") {
            return Err(Refused);
        }
        let unique = head.rsplit(' ').next().expect("a number").to_owned();
        expect(client, &self.begun[at].to_string())?;
        expect(client, "END")?;
        self.begun[at] += 1;
        let value = self.begun[at].to_string();
        let cas = format!("cas {key} 0 0 {} {unique}\r\n{value}\r\n", value.len());
        client.try_send(cas.as_bytes()).map_err(|_| Refused)?;
        expect(client, "STORED")?;
        self.note(at, told);
        Ok(())
    }

    /// The server has answered one more number of a series.
    fn note(&mut self, at: usize, told: &Told) {
        self.told[at] += 1;
        told.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks for what it was told: nothing may be missing, be there twice, or be there that was not
    /// begun. Goes on from there.
    #[track_caller]
    pub fn check(&mut self, client: &mut Memcached, when: &str) {
        for (at, series) in SERIES.into_iter().enumerate() {
            let found = self.find(client, series);
            let known = self.told[at]..=self.begun[at];
            let number = self.number;
            assert!(
                known.contains(&found),
                "{series:?} of {number}: {found} not in {known:?}, {when}"
            );
            (self.begun[at], self.told[at]) = (found, found);
        }
    }

    /// The last number of a series.
    #[track_caller]
    fn find(&self, client: &mut Memcached, series: Series) -> u64 {
        let number = self.number;
        let name = format!("{series:?}").to_lowercase();
        let said = client.lines(&format!("mg {name}:{number} f v\n"));
        let Some((head, value)) = said.split_once('\n') else { panic!("{series:?}: {said}") };
        let value = value.trim_end_matches('\n');
        let flags = head.split(" f").nth(1).map(|rest| rest.split(' ').next().expect("flags"));
        match series {
            Series::Item | Series::Marked if head == "EN" => 0,
            Series::Item | Series::Marked => {
                assert_eq!(flags, Some(value), "{series:?}: {said}");
                let last = value.parse().expect("a number");
                // A command of its own has marked it.
                let is_told = series == Series::Marked && self.told[1] == last;
                assert!(!is_told || head.contains(" X"), "{series:?}: {said}");
                last
            }
            Series::Count | Series::Chain => value.parse().expect("a number"),
            Series::List => {
                let last = value.matches(',').count() as u64;
                let expected: String = (1..=last).map(|number| format!("{number},")).collect();
                assert!(value == expected, "{series:?}: {value}");
                last
            }
        }
    }
}

/// Runs writers on a server beside `body`. They are stopped when it returns, unless they were
/// refused before.
pub fn beside<R>(
    server: &WithMemcached,
    writers: &mut [Writer],
    seed: u64,
    body: impl FnOnce(&Told) -> R,
) -> R {
    let (stop, told) = (AtomicBool::new(false), Told::default());
    std::thread::scope(|scope| {
        for writer in writers {
            let (stop, told, client) = (&stop, &told, server.client());
            scope.spawn(move || writer.run_on(client, seed, stop, told));
        }
        let _stop = StopAtEnd(&stop);
        body(&told)
    })
}
