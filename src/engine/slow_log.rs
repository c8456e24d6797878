//! The slow log: the last commands that took longer than the host's `slowlog-log-slower-than`.
//!
//! A clock is read for commands that may take long, and for those that wait for another thread
//! anyway. Commands of constant time run without it, unless the threshold is so low that they could
//! reach it: see [`SlowLog::times`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::latency::LatencyMonitor;
use crate::command::{Action, Args, COMMANDS, Command, PortCommand};
use crate::limits::{
    AHEAD_ARGUMENTS, SLOW_ARGUMENT_BYTES, SLOW_ARGUMENTS, SLOW_CALLS, SLOW_CALLS_DEFAULT,
    SLOWER_THAN_DEFAULT, TIMED_EACH_BELOW,
};

/// The last slow commands of both doors.
pub struct SlowLog {
    /// In microseconds; negative if nothing is logged.
    slower_than: AtomicI64,
    most: AtomicUsize,
    logged: Mutex<SlowCalls>,
    /// For the host's LATENCY, which has a threshold of its own.
    pub latency: LatencyMonitor,
}

/// The commands, the newest first.
#[derive(Default)]
struct SlowCalls {
    calls: VecDeque<Arc<SlowCall>>,
    next_id: i64,
}

/// A slow command.
pub struct SlowCall {
    /// Its number.
    pub id: i64,
    /// When it was logged, in seconds since 1970.
    pub at: i64,
    /// How long it took.
    pub micros: i64,
    /// Its arguments, cut.
    pub words: LoggedWords,
    /// Its client.
    pub from: CalledFrom,
}

/// Arguments as the slow log keeps them.
pub type LoggedWords = Box<[Box<[u8]>]>;

/// The client of a command, for the slow log.
#[derive(Clone, Default)]
pub struct CalledFrom {
    /// Its address, as CLIENT LIST has it.
    pub address: String,
    /// Its name.
    pub name: Vec<u8>,
}

/// A command, with its arguments as the slow log keeps them.
pub struct Called {
    /// The command's number.
    pub command: usize,
    /// Its arguments.
    pub words: LoggedWords,
}

impl Called {
    /// Keeps the arguments. The host's door calls commands by their standard names: they get the
    /// door's prefix.
    pub fn of(command: usize, prefix: &str, args: &Args<'_>) -> Self {
        let (mut words, name) = (words(command, args), COMMANDS[command].name);
        if !prefix.is_empty()
            && args.is(0, name)
            && let Some(first) = words.first_mut()
        {
            *first = format!("{prefix}{name}").to_uppercase().into_bytes().into();
        }
        Called { command, words }
    }
}

impl Default for SlowLog {
    fn default() -> Self {
        SlowLog {
            slower_than: AtomicI64::new(SLOWER_THAN_DEFAULT),
            most: AtomicUsize::new(SLOW_CALLS_DEFAULT),
            logged: Mutex::default(),
            latency: LatencyMonitor::default(),
        }
    }
}

/// Whether a command's time may depend on more than its own bytes.
pub fn may_be_slow(row: &Command) -> bool {
    row.slow_by_value || !(row.flags.fast || row.sets_value)
}

impl SlowLog {
    /// Takes over the host's settings; a negative time logs nothing.
    pub fn set(&self, slower_than: i64, most: usize) {
        self.slower_than.store(slower_than, Ordering::Relaxed);
        self.most.store(most.min(SLOW_CALLS), Ordering::Relaxed);
        self.logged.lock().calls.truncate(most);
    }

    /// Whether commands that may be slow are timed.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.slower_than.load(Ordering::Relaxed) >= 0 || self.latency.is_on()
    }

    /// Whether commands are to be timed, one of which may be slow, or none.
    #[inline]
    pub fn times(&self, may_be_slow: bool) -> bool {
        if may_be_slow {
            return self.is_on();
        }
        (0..TIMED_EACH_BELOW).contains(&self.slower_than.load(Ordering::Relaxed))
    }

    /// A command ran for so long: tells the latency monitor, and returns whether to log the
    /// command.
    #[inline]
    pub fn ran_for(&self, took: Duration) -> bool {
        self.latency.note(took);
        let slower_than = self.slower_than.load(Ordering::Relaxed);
        slower_than >= 0 && took.as_micros() >= slower_than as u128
    }

    /// Runs one of EXEC's commands, and logs it if it was slow.
    #[inline]
    pub fn timed<R>(
        &self,
        command: usize,
        args: &Args<'_>,
        from: impl FnOnce() -> CalledFrom,
        run: impl FnOnce() -> R,
    ) -> R {
        let row = COMMANDS[command];
        let is_scripting = matches!(row.action, Action::Port(PortCommand::Scripting(_)));
        if !self.times(may_be_slow(row) || is_scripting || args.len() > AHEAD_ARGUMENTS) {
            return run();
        }
        let began = Instant::now();
        let result = run();
        let took = began.elapsed();
        if self.ran_for(took) {
            self.log(took, command, args, from);
        }
        result
    }

    /// Logs a command that [ran for long](Self::ran_for). Not EXEC, as in Redis: its commands are
    /// logged.
    pub fn log(
        &self,
        took: Duration,
        command: usize,
        args: &Args<'_>,
        from: impl FnOnce() -> CalledFrom,
    ) {
        if !COMMANDS[command].flags.skip_slowlog {
            self.add(took, words(command, args), from());
        }
    }

    /// Logs a slow command.
    #[cold]
    pub fn add(&self, took: Duration, words: LoggedWords, from: CalledFrom) {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = since_1970.map_or(0, |time| time.as_secs() as i64);
        let micros = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        let mut logged = self.logged.lock();
        let id = logged.next_id;
        logged.next_id += 1;
        logged.calls.push_front(Arc::new(SlowCall { id, at, micros, words, from }));
        logged.calls.truncate(self.most.load(Ordering::Relaxed));
    }

    /// The newest commands, so many at most.
    pub fn newest(&self, most: usize) -> Vec<Arc<SlowCall>> {
        self.logged.lock().calls.iter().take(most).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.logged.lock().calls.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets them.
    pub fn reset(&self) {
        self.logged.lock().calls.clear();
    }
}

/// The arguments as Redis's slow log keeps them: a number of them, and of each its beginning. Those
/// of a command that may carry a password are left out.
fn words(command: usize, args: &Args<'_>) -> LoggedWords {
    const REDACTED: &[u8] = b"(redacted)";
    let (row, count) = (COMMANDS[command], args.len());
    let is_secret = |at: usize| at > 0 && matches!(row.name, "auth" | "hello");
    let word = |at: usize| -> Box<[u8]> {
        if is_secret(at) { REDACTED.into() } else { shortened(args.get(at)) }
    };
    if count <= SLOW_ARGUMENTS {
        return (0..count).map(word).collect();
    }
    let left_out = count - SLOW_ARGUMENTS + 1;
    let last = format!("... ({left_out} more arguments)").into_bytes().into_boxed_slice();
    (0..SLOW_ARGUMENTS - 1).map(word).chain([last]).collect()
}

fn shortened(word: &[u8]) -> Box<[u8]> {
    match word.split_at_checked(SLOW_ARGUMENT_BYTES) {
        Some((begin, rest)) if !rest.is_empty() => {
            [begin, format!("... ({} more bytes)", rest.len()).as_bytes()].concat().into()
        }
        _ => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    fn logged(log: &SlowLog) -> Vec<i64> {
        log.newest(usize::MAX).iter().map(|call| call.id).collect()
    }

    fn note(log: &SlowLog, micros: u64) {
        let get = find(b"get").expect("a command");
        let took = Duration::from_micros(micros);
        if !log.ran_for(took) {
            return;
        }
        log.log(took, get, &Args::new(&[b"GET", b"key"]), CalledFrom::default);
    }

    #[test]
    fn the_newest_slow_commands_are_kept() {
        let log = SlowLog::default();
        note(&log, 9_999);
        assert!(log.is_empty());
        for _ in 0..3 {
            note(&log, 10_000);
        }
        assert_eq!(logged(&log), [2, 1, 0]);
        log.set(0, 2);
        assert_eq!(logged(&log), [2, 1]);
        note(&log, 0);
        assert_eq!((logged(&log), log.newest(1).len()), (vec![3, 2], 1));
        log.reset();
        log.set(-1, 5);
        note(&log, u64::MAX);
        assert_eq!((log.len(), log.is_on()), (0, false));
        log.set(5, usize::MAX);
        for _ in 0..SLOW_CALLS + 2 {
            note(&log, 5);
        }
        assert_eq!((log.len(), log.newest(1)[0].id), (SLOW_CALLS, 5 + SLOW_CALLS as i64));
    }

    #[test]
    fn what_may_be_slow_is_timed_and_the_rest_if_it_could_be_logged() {
        let (log, named) = (SlowLog::default(), |name: &[u8]| COMMANDS[find(name).expect("known")]);
        let slow = [&b"bitcount"[..], b"append", b"digest", b"delex", b"delifeq"];
        let quick = [&b"get"[..], b"set", b"incr", b"hget"];
        for (name, is) in slow.map(|it| (it, true)).into_iter().chain(quick.map(|it| (it, false))) {
            assert_eq!(may_be_slow(named(name)), is);
        }
        for (slower_than, slow, quick) in [
            (-1, false, false),
            (0, true, true),
            (999, true, true),
            (TIMED_EACH_BELOW, true, false),
        ] {
            log.set(slower_than, 1);
            assert_eq!((log.times(true), log.times(false)), (slow, quick), "{slower_than}");
        }
    }

    #[test]
    fn arguments_are_cut_and_secrets_left_out() {
        let number = |name: &[u8]| {
            let rows = COMMANDS.iter().position(|row| row.name.as_bytes() == name);
            rows.expect("a command")
        };
        let long = [b'x'; SLOW_ARGUMENT_BYTES + 1];
        let cut = [&long[1..], b"... (1 more bytes)"].concat();
        let of = |name: &[u8], list: &[&[u8]]| words(number(name), &Args::new(list));
        assert_eq!(*of(b"get", &[b"GET", &long])[1], *cut);
        assert_eq!(*of(b"get", &[b"GET", &long[1..]])[1], long[1..]);
        let many = vec![&b"k"[..]; SLOW_ARGUMENTS + 1];
        assert_eq!(of(b"mget", &many[1..]).len(), SLOW_ARGUMENTS);
        let kept = of(b"mget", &many);
        assert_eq!((kept.len(), &*kept[31]), (SLOW_ARGUMENTS, &b"... (2 more arguments)"[..]));
        let redacted = b"(redacted)".to_vec().into_boxed_slice();
        for line in [&[&b"AUTH"[..], b"u", b"p"][..], &[b"hello", b"3", b"AUTH", b"u", b"p"]] {
            assert!(of(&line[0].to_ascii_lowercase(), line)[1..].iter().all(|it| *it == redacted));
        }
    }
}
