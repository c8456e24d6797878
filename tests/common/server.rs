//! One redis-server per test, in a directory of its own; both are removed at the end.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::client::{Client, Value};
use super::forbidden::forbid;
use super::wire::{Way, Wire};
use super::{HANG, certificates, free_port, sandbox, wait_until};

/// The server binary to test with.
pub fn redis_server() -> PathBuf {
    if let Some(path) = std::env::var_os("MIDI_REDIS_SERVER") {
        return path.into();
    }
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|dir| dir.join("redis-server")).find(|file| file.exists())
    });
    on_path.unwrap_or_else(|| target_dir().join("tools/redis-server"))
}

/// The module to test: the release build beside this test's.
pub fn module() -> PathBuf {
    if let Some(path) = std::env::var_os("MIDI_MODULE") {
        return path.into();
    }
    let built = target_dir().join("release/libmidi.so");
    assert!(
        built.exists(),
        "{} is missing: run cargo build --release first, or set MIDI_MODULE",
        built.display()
    );
    built
}

fn test_executable() -> PathBuf {
    std::env::current_exe().expect("this test's path")
}

/// A library of the tests' own that a server can load: Cargo builds it with the tests.
pub fn own_library(name: &str) -> PathBuf {
    test_executable().with_file_name(name)
}

/// `target`, above `debug/deps/test`.
pub fn target_dir() -> PathBuf {
    test_executable().ancestors().nth(3).expect("target").to_owned()
}

/// A server to be started.
#[derive(Clone)]
pub struct Builder {
    binary: PathBuf,
    config: Vec<String>,
    load: Option<String>,
    /// Whether midi's own port is open, too.
    with_port: bool,
    /// How it is connected to.
    way: Way,
    /// Variables in addition to the environment.
    environment: Environment,
    /// System calls that it may not make.
    forbidden: Vec<libc::c_long>,
}

type Environment = Vec<(&'static str, OsString)>;

/// The variable that names libraries to be loaded before all others.
const PRELOAD: &str = "LD_PRELOAD";

/// The variable with which a server runs as in a unit of Debian's.
const IN_UNIT: &str = "MIDI_TEST_IN_UNIT";

impl Builder {
    /// A Redis with the module and no load arguments.
    pub fn new() -> Self {
        Builder {
            binary: redis_server(),
            config: Vec::new(),
            load: Some(String::new()),
            with_port: false,
            way: Way::of_this_run(),
            environment: std::env::var_os("MIDI_SERVER_PRELOAD")
                .map(|libraries| (PRELOAD, libraries))
                .into_iter()
                .collect(),
            forbidden: Vec::new(),
        }
    }

    /// Without the module.
    pub fn plain() -> Self {
        Builder { load: None, ..Builder::new() }
    }

    /// With another server binary.
    pub fn binary(mut self, binary: impl Into<PathBuf>) -> Self {
        self.binary = binary.into();
        self
    }

    /// Adds load arguments.
    pub fn load(mut self, arguments: &str) -> Self {
        let load = self.load.get_or_insert_default();
        load.push(' ');
        load.push_str(arguments);
        self
    }

    /// Opens midi's RESP port, and its socket in the server's directory.
    pub fn with_port(mut self) -> Self {
        self.with_port = true;
        self
    }

    /// The same, with a port for TLS that clients connect to; load arguments may say more of it.
    pub fn with_tls(mut self) -> Self {
        (self.with_port, self.way) = (true, Way::Tls);
        self
    }

    /// Has a library loaded before all others but the sanitizers'.
    pub fn preload(mut self, library: impl AsRef<Path>) -> Self {
        let library = library.as_ref().as_os_str();
        match self.environment.iter_mut().find(|(name, _)| *name == PRELOAD) {
            Some((_, libraries)) => {
                libraries.push(":");
                libraries.push(library);
                self
            }
            None => self.env(PRELOAD, library),
        }
    }

    /// With this variable in its environment, also after a restart.
    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Has the kernel kill it at calls that Debian's units do not allow.
    pub fn in_unit(self) -> Self {
        self.env(IN_UNIT, "yes")
    }

    /// Has the system refuse these calls to it, until a restart.
    pub fn forbid(mut self, calls: &[libc::c_long]) -> Self {
        self.forbidden.extend(calls);
        self
    }

    /// Adds a line of redis.conf.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> Server {
        let log = match self.try_start() {
            Ok(server) => return server,
            Err(log) => log,
        };
        panic!("the server did not start; its log:\n{log}");
    }

    /// Starts it; returns its log if it ends before it answers.
    pub fn try_start(self) -> Result<Server, String> {
        for _ in 0..5 {
            match self.try_once() {
                Err(log) if log.contains("Address already in use") => {}
                other => return other,
            }
        }
        Err("no free port".into())
    }

    fn try_once(&self) -> Result<Server, String> {
        let dir = new_dir();
        let port = free_port();
        let midi_port = self.with_port.then(free_port);
        let tls_port = (self.with_port && self.way == Way::Tls).then(free_port);
        fs::write(dir.join("redis.conf"), self.config_file(&dir, port, midi_port, tls_port))
            .expect("write redis.conf");
        let environment = self.environment.clone();
        let child = spawn(&self.binary, &dir, &environment, &self.forbidden);
        let way = self.way;
        let mut server =
            Server { child, dir, port, midi_port, tls_port, way, environment, checked: true };
        server.wait_until_ready().map(|()| server)
    }

    fn config_file(
        &self,
        dir: &Path,
        port: u16,
        midi_port: Option<u16>,
        tls_port: Option<u16>,
    ) -> String {
        let mut text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nlogfile \"\"\nsave \"\"\nappendonly no\n\
             shutdown-timeout 0\nrepl-diskless-sync-delay 0\n\
             enable-debug-command yes\nenable-module-command yes\n",
            dir.display()
        );
        for line in &self.config {
            text += line;
            text.push('\n');
        }
        if let Some(arguments) = &self.load {
            text += &format!("loadmodule {}", module().display());
            if let Some(tls_port) = tls_port {
                let files = certificates::install(dir);
                text += &format!(" tls-port {tls_port} {files} tls-auth-clients no");
            }
            if self.with_port {
                text += &format!(" io {}", driver_of_this_run());
            }
            // Behind those: the last one counts.
            text += arguments;
            if let Some(midi_port) = midi_port {
                text += &format!(" port {midi_port} unixsocket {}", dir.join(SOCKET).display());
            }
            text.push('\n');
        }
        text
    }
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

/// Starts a server with the configuration in its directory.
fn spawn(
    binary: &Path,
    dir: &Path,
    environment: &Environment,
    forbidden: &[libc::c_long],
) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).expect("log");
    let mut command = Command::new(binary);
    command.arg(dir.join("redis.conf")).stdin(Stdio::null());
    command.stdout(log.try_clone().expect("log")).stderr(log);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    if environment.iter().any(|(name, _)| *name == IN_UNIT) {
        sandbox::enter(&mut command);
    }
    if !forbidden.is_empty() {
        forbid(&mut command, forbidden);
    }
    command.spawn().unwrap_or_else(|error| {
        panic!("cannot run {}: {error}; set MIDI_REDIS_SERVER", binary.display())
    })
}

/// The value of `midi.io` in this run: `MIDI_IO`.
pub fn driver_of_this_run() -> String {
    let driver = std::env::var("MIDI_IO").unwrap_or_default();
    if driver.is_empty() { "epoll".into() } else { driver }
}

/// midi's socket in a server's directory.
const SOCKET: &str = "midi.sock";

fn new_dir() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("midi-test-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir).expect("make the server's directory");
    dir.canonicalize().expect("just made")
}

/// A running server. When dropped, it checks the server's health, stops it, and removes its
/// directory; after a panic it prints the end of the log.
pub struct Server {
    child: Child,
    dir: PathBuf,
    port: u16,
    /// midi's own port.
    midi_port: Option<u16>,
    /// The same for TLS.
    tls_port: Option<u16>,
    way: Way,
    environment: Environment,
    /// Whether its health is checked when it is dropped.
    checked: bool,
}

/// Words in the log of a server in trouble.
const TROUBLE: [&str; 5] =
    ["BUG REPORT", "midi: internal error", "ERROR: AddressSanitizer", "Assertion", "panicked at"];

impl Server {
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < HANG {
            if self.exit_status().is_some() {
                self.checked = false;
                return Err(self.log());
            }
            if self.answers() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!("no answer to PING\n{}", self.log()))
    }

    /// Whether this very server answers on the port and has loaded its data.
    fn answers(&self) -> bool {
        let Ok(mut client) = Client::connect(self.port) else { return false };
        let is_this = match client.try_call(&["CONFIG", "GET", "dir"]) {
            Ok(Value::Array(pair)) => pair[1].text() == self.dir.to_string_lossy(),
            // A test has renamed CONFIG.
            Ok(reply) => reply.text().contains("unknown command"),
            Err(_) => false,
        };
        // CONFIG is answered while loading; PING is not. PING can be renamed, too.
        let is_up = |reply: Value| !reply.is_error() || reply.text().contains("unknown command");
        is_this && client.try_call(&["PING"]).is_ok_and(is_up)
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.port).unwrap_or_else(|error| panic!("cannot connect: {error}"))
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// midi's port on 127.0.0.1.
    pub fn midi_port(&self) -> u16 {
        self.midi_port.expect("built with_port")
    }

    /// midi's port for TLS on 127.0.0.1.
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("built with_tls")
    }

    /// The path of midi's unix socket.
    pub fn midi_socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// A new connection to midi's port.
    pub fn midi_client(&self) -> Client {
        self.try_midi_client().unwrap_or_else(|error| panic!("cannot connect to midi: {error}"))
    }

    /// The same, but midi may refuse it.
    pub fn try_midi_client(&self) -> std::io::Result<Client> {
        let wire = match self.way {
            Way::Tcp => Wire::tcp(self.midi_port()),
            Way::Unix => Wire::unix(&self.midi_socket()),
            Way::Tls => Wire::tls(self.tls_port(), &certificates::trusting(None)),
        };
        wire.map(Client::over)
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it has had, in bytes, so far or since [`Server::forget_peak`].
    pub fn peak_memory(&self) -> usize {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        let kib = line.split_whitespace().next().and_then(|number| number.parse::<usize>().ok());
        kib.expect("a number") << 10
    }

    /// From now on [`Server::peak_memory`] counts anew.
    pub fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("it begins anew");
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its log, including warnings of the module and of a sanitizer.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.join("log")).unwrap_or_default()).into_owned()
    }

    /// Its configuration file.
    pub fn config_file(&self) -> String {
        fs::read_to_string(self.dir.join("redis.conf")).expect("redis.conf")
    }

    /// Stops it and starts it again with the same file, which CONFIG REWRITE may have changed.
    pub fn restart(&mut self, binary: impl AsRef<Path>) {
        self.begin_restart(binary);
        self.wait_until_ready().unwrap_or_else(|log| panic!("no restart:\n{log}"));
    }

    /// The same, for a server that ends before it is ready. Returns the exit code and the log of
    /// this start.
    pub fn restart_in_vain(&mut self) -> (Option<i32>, String) {
        let before = self.log().len();
        self.begin_restart(redis_server());
        let status = self.wait_for_exit();
        (status.code(), self.log()[before..].to_owned())
    }

    /// The same, without waiting until it is ready.
    pub fn begin_restart(&mut self, binary: impl AsRef<Path>) {
        if self.exit_status().is_none() {
            self.stop();
        }
        self.child = spawn(binary.as_ref(), &self.dir, &self.environment, &[]);
    }

    /// Replaces text in its configuration file, for the next start.
    pub fn reconfigure(&self, old: &str, new: &str) {
        let text = self.config_file();
        assert!(text.contains(old), "{old:?} is not in\n{text}");
        fs::write(self.dir.join("redis.conf"), text.replace(old, new)).expect("redis.conf");
    }

    /// The path of its RDB.
    pub fn rdb(&self) -> PathBuf {
        self.dir.join("dump.rdb")
    }

    /// The processes that it has forked and that still run.
    pub fn children(&self) -> Vec<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let text = fs::read_to_string(path).expect("the kernel lists children");
        text.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
    }

    /// Limits the size of the files that it may write; `None` lifts the limit.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = libc::rlimit {
            rlim_cur: bytes.unwrap_or(libc::RLIM_INFINITY),
            rlim_max: libc::RLIM_INFINITY,
        };
        let pid = self.child.id() as i32;
        // SAFETY: the limit is read from a structure on the stack, and nothing is written back.
        let result =
            unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Fails the test if the server is not healthy.
    pub fn check(&mut self) {
        if let Some(trouble) = self.trouble() {
            panic!("{trouble}; the log ends:\n{}", self.log_tail());
        }
    }

    fn trouble(&mut self) -> Option<String> {
        if let Some(status) = self.exit_status() {
            return Some(format!("the server ended by itself: {status}"));
        }
        let log = self.log();
        TROUBLE
            .iter()
            .find(|mark| log.contains(**mark))
            .map(|mark| format!("the log says {mark:?}"))
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Asks it to stop; its exit must be orderly.
    fn stop(&mut self) -> Option<String> {
        let started = Instant::now();
        while started.elapsed() < HANG {
            // Repeatedly: a host that is writing its first AOF refuses to stop.
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
            if let Some(status) = self.exit_status() {
                return status
                    .signal()
                    .map(|signal| format!("the server died of signal {signal} at its end"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some("the server does not end".into())
    }

    /// Waits until it ends by itself; its health is not checked any more.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.checked = false;
        wait_until("the server ends by itself", || self.exit_status().is_some());
        self.exit_status().expect("it has ended")
    }

    /// Waits until it has ended, as something has told it to; its end must be orderly.
    pub fn wait_for_end(&mut self) {
        wait_until("the server has ended", || self.exit_status().is_some());
        let status = self.exit_status().expect("ended");
        let log = self.log();
        let trouble = TROUBLE.iter().find(|mark| log.contains(**mark));
        assert!(status.success() && trouble.is_none(), "{status}, {trouble:?}");
        self.checked = false;
    }

    /// kill -9; the way it ends is not checked.
    pub fn kill_hard(&mut self) {
        self.checked = false;
        self.kill();
    }

    /// kill -9, to start it again.
    pub fn crash(&mut self) {
        self.kill();
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log ends:\n{}", self.log_tail());
            self.kill();
        } else if self.checked {
            let trouble = self.trouble().or_else(|| self.stop()).or_else(|| {
                let log = self.log();
                TROUBLE
                    .iter()
                    .find(|mark| log.contains(**mark))
                    .map(|mark| format!("the log says {mark:?}"))
            });
            self.kill();
            if let Some(trouble) = trouble {
                panic!("{trouble}; the log ends:\n{}", self.log_tail());
            }
        } else {
            self.kill();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits until no long command is running.
impl Server {
    /// See above.
    pub fn wait_until_idle(&self) {
        let mut client = self.client();
        wait_until("MIDI.JOBS is empty", || client.run("MIDI.JOBS").array().is_empty());
    }
}
