//! Servers: the known ones, how each is started, and the running processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::control::Control;
use crate::free_port::free_port;
use crate::process::on_processors;

/// How to start a program and which protocol it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// redis-server and programs that take its arguments: Valkey, KeyDB.
    Redis,
    /// Dragonfly.
    Dragonfly,
    /// Garnet.
    Garnet,
    /// memcached.
    Memcached,
    /// This program's own echo server.
    Echo,
}

impl Kind {
    /// Recognized by the program's name.
    fn of(program: &Path) -> Kind {
        let name = program.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match () {
            _ if name.contains("memcached") => Kind::Memcached,
            _ if name.contains("dragonfly") => Kind::Dragonfly,
            _ if name.contains("garnet") => Kind::Garnet,
            _ => Kind::Redis,
        }
    }

    fn arguments(self, port: u16, dir: &Path) -> Vec<String> {
        let port = port.to_string();
        let dir = dir.display().to_string();
        let words: Vec<&str> = match self {
            Kind::Redis => {
                let quiet = ["--save", "", "--appendonly", "no", "--loglevel", "notice"];
                [&["--port", &port, "--bind", "127.0.0.1", "--dir", &dir][..], &quiet].concat()
            }
            Kind::Dragonfly => {
                vec!["--port", &port, "--bind", "127.0.0.1", "--dir", &dir, "--dbfilename", ""]
            }
            Kind::Garnet => vec!["--port", &port, "--bind", "127.0.0.1"],
            // Room for every experiment's data: evicting would be another experiment.
            Kind::Memcached => {
                vec!["-l", "127.0.0.1", "-p", &port, "-U", "0", "-m", "16384", "-u", "root"]
            }
            Kind::Echo => vec!["echo", "--port", &port],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

/// The processors of server and load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Each has its own half: CPU time per command does not depend on the other.
    Apart,
    /// Both have all.
    Shared,
}

/// A way into a server that has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Where load goes: the port that [`PORT`] refers to, or the only one.
    Port,
    /// The port it was started with: the host's.
    Host,
}

/// Placeholder in a server's arguments for a free port that it opens in addition to its own.
pub const PORT: &str = "{port}";

/// Placeholder for its directory in a server's arguments and variables.
const DIR: &str = "{dir}";

/// The file in a server's directory that gets a line for each of its fsyncs.
const FSYNCS: &str = "fsyncs";

/// A server as described by an experiment.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in tables and plots; unique in a run.
    pub name: String,
    /// How it is started.
    pub kind: Kind,
    /// The program.
    pub program: PathBuf,
    /// Arguments in addition to port and directory; see [`PORT`].
    pub args: Vec<String>,
    /// Variables in addition to the environment.
    pub env: Vec<(String, String)>,
    /// How many processes; the client splits the keys among them.
    pub processes: usize,
    /// Where it runs.
    pub cores: Cores,
    /// Whether the port for load has TLS.
    pub tls: bool,
    /// Whether its own port speaks memcached's protocol.
    pub memcached: bool,
}

impl Spec {
    /// One process with no more arguments than it needs, on other processors than the load.
    pub fn new(name: &str, program: &Path) -> Spec {
        Spec {
            name: name.into(),
            kind: Kind::of(program),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            processes: 1,
            cores: Cores::Apart,
            tls: false,
            memcached: false,
        }
    }

    /// The same under another name.
    pub fn named(mut self, name: &str) -> Spec {
        self.name = name.into();
        self
    }

    /// With these additional arguments, split at spaces.
    pub fn with(mut self, args: &str) -> Spec {
        self.args.extend(args.split_whitespace().map(str::to_owned));
        self
    }

    /// With this variable in its environment.
    pub fn with_env(mut self, name: &str, value: &str) -> Spec {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With a library in front of its fsyncs that counts those of its AOF.
    pub fn counting_fsyncs(self) -> Spec {
        self.with_library("libmidi_test_disk.so")
            .with_env("DISK_PATH", "/appendonlydir/")
            .with_env(LOG, &format!("{DIR}/{FSYNCS}"))
    }

    /// With a library in front of its clock, whose time of day is ahead by the milliseconds in
    /// [`Server::clock`].
    pub fn with_own_clock(self) -> Spec {
        self.with_library("libmidi_test_clock.so").with_env(CLOCK, &format!("{DIR}/{TIME}"))
    }

    fn with_library(self, name: &str) -> Spec {
        // Cargo builds it with this program.
        let library = std::env::current_exe()
            .map(|own| own.with_file_name("deps").join(name))
            .unwrap_or_default();
        self.with_env("LD_PRELOAD", &library.display().to_string())
    }

    /// Whether its fsyncs are counted.
    pub fn counts_fsyncs(&self) -> bool {
        self.env.iter().any(|(name, _)| name == LOG)
    }

    fn has_own_clock(&self) -> bool {
        self.env.iter().any(|(name, _)| name == CLOCK)
    }

    /// With TLS on the port for load. Clients need no certificate.
    pub fn over_tls(mut self) -> Spec {
        self.tls = true;
        self.with(&format!("--tls-cert-file {DIR}/{CERTIFICATE} --tls-key-file {DIR}/{KEY}"))
            .with("--tls-auth-clients no")
    }

    /// As this many processes.
    pub fn times(mut self, processes: usize) -> Spec {
        self.processes = processes;
        self
    }

    /// On these processors.
    pub fn on(mut self, cores: Cores) -> Spec {
        self.cores = cores;
        self
    }
}

/// The servers that this machine has to compare.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// `MIDI_REDIS_SERVER`, or redis-server on the path.
    pub redis: PathBuf,
    /// The built module.
    pub module: PathBuf,
    /// `MIDI_VALKEY_SERVER`.
    pub valkey: Option<PathBuf>,
    /// `MIDI_MEMCACHED`.
    pub memcached: Option<PathBuf>,
    /// `BENCH_SERVERS`.
    pub others: Vec<Spec>,
    /// Whether redis-benchmark is on the path.
    pub has_redis_benchmark: bool,
}

impl Catalogue {
    /// Reads the environment.
    ///
    /// # Errors
    /// No module, no redis-server, invalid `BENCH_SERVERS`.
    pub fn from_environment() -> Result<Self> {
        let path =
            |name: &str| std::env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        let module = path("MIDI_MODULE").unwrap_or_else(|| "target/release/libmidi.so".into());
        let module = module
            .canonicalize()
            .with_context(|| format!("{}: build the module first", module.display()))?;
        let others = std::env::var("BENCH_SERVERS").unwrap_or_default();
        Ok(Catalogue {
            redis: path("MIDI_REDIS_SERVER").unwrap_or_else(|| "redis-server".into()),
            module,
            valkey: path("MIDI_VALKEY_SERVER"),
            memcached: path("MIDI_MEMCACHED"),
            others: others.split_whitespace().map(other).collect::<Result<_>>()?,
            has_redis_benchmark: Command::new("redis-benchmark").arg("--version").output().is_ok(),
        })
    }

    /// redis-server with midi.
    pub fn midi(&self, name: &str) -> Spec {
        Spec::new(name, &self.redis).with("--loadmodule").with(&self.module.display().to_string())
    }

    /// The same with its own RESP port, which load goes to, and this many workers.
    pub fn midi_port(&self, name: &str, workers: usize) -> Spec {
        self.midi(name).with(&format!("port {PORT} threads {workers}"))
    }

    /// The same with a memcached port of its own, which load goes to.
    pub fn midi_memcached_port(&self, name: &str, workers: usize) -> Spec {
        let spec = self.midi(name).with(&format!("memcached-port {PORT} threads {workers}"));
        Spec { memcached: true, ..spec }
    }

    /// The same with a TLS port of its own, which load goes to.
    pub fn midi_tls_port(&self, name: &str, workers: usize) -> Spec {
        self.midi(name).with(&format!("tls-port {PORT} threads {workers}")).over_tls()
    }

    /// Stock redis-server.
    pub fn redis(&self) -> Spec {
        Spec::new("redis", &self.redis)
    }

    /// All available servers to compare with, stock redis-server first.
    pub fn peers(&self) -> Vec<Spec> {
        let mut peers = vec![self.redis()];
        peers.extend(self.valkey.as_deref().map(|path| Spec::new("valkey", path)));
        peers.extend(self.others.iter().cloned());
        peers.extend(
            self.memcached.as_deref().map(|path| Spec::new("memcached", path).with("-t 1")),
        );
        peers
    }

    /// Those that are, or descend from, redis-server, stock redis-server first.
    pub fn stock(&self) -> Vec<Spec> {
        self.peers().into_iter().filter(|peer| peer.kind == Kind::Redis).collect()
    }

    /// The same, each in every configuration that may use two cores best.
    pub fn peers_on_all_cores(&self) -> Vec<Spec> {
        let redis = || self.redis();
        let mut peers = vec![
            redis(),
            redis().named("redis, io-threads 2").with("--io-threads 2"),
            redis().named("two redis").times(2),
        ];
        peers.extend(self.valkey.as_deref().map(|path| Spec::new("valkey", path)));
        peers.extend(self.valkey_threads());
        peers.extend(self.others.iter().cloned());
        peers.extend(
            self.memcached.as_deref().map(|path| Spec::new("memcached -t 2", path).with("-t 2")),
        );
        peers.into_iter().map(|peer| peer.on(Cores::Shared)).collect()
    }

    /// Valkey with two threads for sockets.
    pub fn valkey_threads(&self) -> Option<Spec> {
        let valkey = Spec::new("valkey, io-threads 2", self.valkey.as_deref()?);
        Some(valkey.with("--io-threads 2"))
    }
}

/// `name=path`, or `name=path,argument,argument`.
fn other(text: &str) -> Result<Spec> {
    let (name, rest) =
        text.split_once('=').with_context(|| format!("BENCH_SERVERS: {text}: name=path"))?;
    let mut words = rest.split(',');
    let program = PathBuf::from(words.next().unwrap_or_default());
    ensure!(program.is_file(), "BENCH_SERVERS: {name}: {} is no file", program.display());
    let spec = Spec::new(name, &program.canonicalize()?);
    Ok(words.fold(spec, |spec, word| spec.with(word)))
}

/// Processors for servers and for load.
#[derive(Clone, Debug)]
pub struct Placement {
    /// For servers with processors of their own.
    pub servers: Vec<usize>,
    /// For their load.
    pub load: Vec<usize>,
}

impl Placement {
    /// Half of the processors each; a single processor is shared.
    pub fn halves(all: &[usize]) -> Placement {
        if all.len() < 2 {
            return Placement { servers: all.to_vec(), load: all.to_vec() };
        }
        let (servers, load) = all.split_at(all.len() / 2);
        Placement { servers: servers.to_vec(), load: load.to_vec() }
    }

    /// Those for a server.
    pub fn of_server(&self, cores: Cores) -> Vec<usize> {
        if cores == Cores::Apart { self.servers.clone() } else { self.all() }
    }

    /// Those for its load.
    pub fn of_load(&self, cores: Cores) -> Vec<usize> {
        if cores == Cores::Apart { self.load.clone() } else { self.all() }
    }

    fn all(&self) -> Vec<usize> {
        let mut all = [self.servers.as_slice(), &self.load].concat();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The files that [`Spec::over_tls`] needs, in a server's directory.
const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";

/// Tells the library that counts fsyncs where to put them.
const LOG: &str = "DISK_LOG";

/// Tells the library in front of the clock where its time is.
const CLOCK: &str = "CLOCK_FILE";

/// That file in a server's directory.
const TIME: &str = "clock";

/// A running server. It is stopped when dropped.
pub struct Server {
    /// Its description.
    pub spec: Spec,
    processes: Vec<Process>,
}

struct Process {
    child: Child,
    host_port: u16,
    /// The port for load; the same if it has no other.
    port: u16,
    args: Vec<String>,
    line: String,
    dir: PathBuf,
}

impl Process {
    fn port(&self, door: Door) -> u16 {
        match door {
            Door::Port => self.port,
            Door::Host => self.host_port,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Server {
    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// It does not start; its output is quoted.
    pub fn start(spec: &Spec, placement: &Placement, dir: &Path) -> Result<Server> {
        let processes = on_processors(&placement.of_server(spec.cores), || {
            (0..spec.processes)
                .map(|number| start(spec, &dir.join(format!("{}-{number}", slug(&spec.name)))))
                .collect()
        })?;
        let mut server =
            Server { spec: spec.clone(), processes: Result::from_iter::<Vec<_>>(processes)? };
        server.wait(Duration::from_secs(30), Duration::from_millis(10))?;
        Ok(server)
    }

    /// Kills it, and starts it again with the same arguments, ports and files. Returns the seconds
    /// from then until it answers.
    ///
    /// # Errors
    /// It does not start; its output is quoted.
    pub fn restart(&mut self, placement: &Placement) -> Result<f64> {
        for process in &mut self.processes {
            process.child.kill()?;
            process.child.wait()?;
        }
        let began = Instant::now();
        on_processors(&placement.of_server(self.spec.cores), || {
            for process in &mut self.processes {
                process.child = spawn(&self.spec, &process.args, &process.dir)?;
            }
            Ok::<(), anyhow::Error>(())
        })??;
        self.wait(Duration::from_secs(300), Duration::from_millis(2))?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Waits until it answers, at most for `patience`; tries as often as `every` says.
    fn wait(&mut self, patience: Duration, every: Duration) -> Result<()> {
        let limit = Instant::now() + patience;
        let only_connects = self.spec.tls || self.spec.memcached;
        for process in &mut self.processes {
            let answers = |port| -> Result<()> {
                match self.spec.kind {
                    Kind::Echo => Control::open(port).map(|_| ()),
                    Kind::Memcached => Control::open(port)?.memcached_version().map(|_| ()),
                    _ => Control::open(port)?.command("PING").map(|_| ()),
                }
            };
            // Whoever listens accepts: no handshake is needed to know.
            let listens =
                |port| if only_connects { Control::open(port).map(drop) } else { answers(port) };
            while let Err(error) = answers(process.host_port).and_then(|()| listens(process.port)) {
                let ended = process.child.try_wait()?.is_some();
                if ended || Instant::now() > limit {
                    let log = fs::read_to_string(process.dir.join("log")).unwrap_or_default();
                    bail!("{} does not start: {error}\n{}\n{log}", self.spec.name, process.line);
                }
                std::thread::sleep(every);
            }
        }
        Ok(())
    }

    /// The process IDs.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.child.id()).collect()
    }

    /// The first process's directory.
    pub fn dir(&self) -> &Path {
        &self.processes[0].dir
    }

    /// The file with a line for each fsync, if they are counted.
    pub fn fsync_log(&self) -> Option<PathBuf> {
        self.spec.counts_fsyncs().then(|| self.dir().join(FSYNCS))
    }

    /// The file with the milliseconds by which its clock is ahead, if it has its own.
    pub fn clock(&self) -> Option<PathBuf> {
        self.spec.has_own_clock().then(|| self.dir().join(TIME))
    }

    /// The processes' ports.
    pub fn ports(&self, door: Door) -> Vec<u16> {
        self.processes.iter().map(|process| process.port(door)).collect()
    }

    /// A connection to the first process, through the host's port.
    ///
    /// # Errors
    /// The server has exited.
    pub fn control(&self) -> Result<Control> {
        Control::open(self.processes[0].host_port)
    }

    /// How it was started.
    pub fn command_lines(&self) -> Vec<String> {
        self.processes.iter().map(|process| process.line.clone()).collect()
    }

    /// Name and version, as the program reports them.
    pub fn version(&self) -> String {
        let info = || -> Result<String> {
            match self.spec.kind {
                Kind::Echo => Ok(format!("midi-bench {}", env!("CARGO_PKG_VERSION"))),
                Kind::Memcached => {
                    Ok(self.control()?.memcached_version()?.trim().replace("VERSION", "memcached"))
                }
                _ => Ok(versions(&self.control()?.command("INFO server")?)),
            }
        };
        info().unwrap_or_else(|error| format!("unknown: {error}"))
    }
}

/// `valkey_version:9.1.2` and the like, the most specific last; others report Redis's own
/// number, too, for old clients.
fn versions(info: &str) -> String {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    for (name, prefix) in [
        ("valkey", "valkey_version:"),
        ("dragonfly", "dragonfly_version:"),
        ("garnet", "garnet_version:"),
    ] {
        if let Some(version) = field(prefix) {
            return format!("{name} {version}");
        }
    }
    format!("redis {}", field("redis_version:").unwrap_or("of unknown version"))
}

fn start(spec: &Spec, dir: &Path) -> Result<Process> {
    fs::create_dir_all(dir)?;
    let host_port = free_port();
    let has_two = spec.args.iter().any(|arg| arg.contains(PORT));
    let port = if has_two { free_port() } else { host_port };
    if spec.tls {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        fs::write(dir.join(CERTIFICATE), own.cert.pem())?;
        fs::write(dir.join(KEY), own.signing_key.serialize_pem())?;
    }
    if spec.has_own_clock() {
        fs::write(dir.join(TIME), 0_i64.to_ne_bytes())?;
    }
    let (number, in_dir) = (port.to_string(), dir.display().to_string());
    let mut args = spec.kind.arguments(host_port, dir);
    args.extend(spec.args.iter().map(|arg| arg.replace(PORT, &number).replace(DIR, &in_dir)));
    let child = spawn(spec, &args, dir)?;
    let variables = spec.env.iter().map(|(name, value)| format!("{name}={}", file_name(value)));
    let line = variables
        .chain(std::iter::once(file_name(&spec.program.display().to_string())))
        .chain(args.iter().map(|arg| file_name(arg)))
        .collect::<Vec<_>>()
        .join(" ");
    Ok(Process { child, host_port, port, args, line, dir: dir.into() })
}

fn spawn(spec: &Spec, args: &[String], dir: &Path) -> Result<Child> {
    let log = File::create(dir.join("log"))?;
    let in_dir = dir.display().to_string();
    Command::new(&spec.program)
        .args(args)
        .envs(spec.env.iter().map(|(name, value)| (name, value.replace(DIR, &in_dir))))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {}", spec.program.display()))
}

/// Reports are read on other machines: of a path only the last part is shown.
fn file_name(arg: &str) -> String {
    match arg.rsplit_once('/') {
        Some((_, name)) => name.into(),
        None if arg.is_empty() => "\"\"".into(),
        None => arg.into(),
    }
}

fn slug(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_name() {
        for (path, kind) in [
            ("/opt/redis8/bin/redis-server", Kind::Redis),
            ("valkey-server", Kind::Redis),
            ("keydb-server", Kind::Redis),
            ("/x/dragonfly-x86_64", Kind::Dragonfly),
            ("GarnetServer", Kind::Garnet),
            ("/usr/bin/memcached", Kind::Memcached),
        ] {
            assert_eq!(Kind::of(Path::new(path)), kind, "{path}");
        }
    }

    #[test]
    fn servers_by_configuration() {
        let spec = other("shell=/bin/sh,--a,b").expect("a server");
        assert_eq!(
            (spec.name.as_str(), spec.args),
            ("shell", vec!["--a".to_owned(), "b".to_owned()])
        );
        assert!(other("noname").is_err());
        assert!(other("x=/no/such/file").is_err());
    }

    #[test]
    fn processors_are_divided() {
        let four = Placement::halves(&[0, 1, 2, 3]);
        assert_eq!(
            (four.of_server(Cores::Apart), four.of_load(Cores::Apart)),
            (vec![0, 1], vec![2, 3])
        );
        assert_eq!(four.of_load(Cores::Shared), [0, 1, 2, 3]);
        assert_eq!(Placement::halves(&[5]).all(), [5]);
    }
}
