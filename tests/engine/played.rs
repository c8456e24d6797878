//! An engine with open ports, for a test that plays the host.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::common::{free_port, now_ms};
use midi::command::{COMMANDS, Cluster, DoorCommand, HostCommand, Transcript};
use midi::engine::{
    Awaited, Call, Commands, Config, DEFAULT_USER, Engine, ForMain, Gates, Host, JobOwner,
    JobReply, ListenAt, ListenerRow, Locked, PasswordSum, PortConfig, PortSettings, Refusal,
    ReplicaWait, Rules, RunScript, ScriptCaller, Settings, Speaks, User, Waited, Waker, Workers,
};
use midi::net;

/// The global lock, for the thread that plays the host's main thread, and before and after it runs.
pub fn locked<'a>() -> Locked<'a> {
    // SAFETY: there is no host, and one thread at a time claims the lock of its engine.
    unsafe { Locked::assume() }
}

/// A host with one user, who may do everything.
struct Played {
    refused: AtomicUsize,
}

/// A user who may do everything, if the name is the default user's.
pub fn everything(name: &[u8]) -> Option<User> {
    let mut commands = Commands::default();
    (0..COMMANDS.len()).for_each(|number| commands.allow(number));
    let rules = Rules { commands, keys: None, databases: None, channels: None };
    (name == DEFAULT_USER).then(|| User::new(name, vec![rules]))
}

impl Host for Played {
    fn version(&self) -> &str {
        "7.0.15"
    }
    fn authenticate(&self, _: Locked<'_>, user: &[u8], password: &PasswordSum) -> bool {
        password.is(PasswordSum::of(user).digits())
    }
    fn is_on(&self, _: Locked<'_>, _: &[u8]) -> bool {
        false
    }

    fn user(&self, _: Locked<'_>, name: &[u8]) -> Option<User> {
        everything(name)
    }
    fn refused(&self, _: Locked<'_>, _: &Refusal) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
    fn refuses_wait(&self, _: Locked<'_>, _: Option<Awaited>) -> Option<Vec<u8>> {
        None
    }
    /// It has no replicas, and time is always over.
    fn wait_for_replicas(&self, _: Locked<'_>, wait: ReplicaWait) {
        (wait.answer)(Waited::Counted { replicas: 0, offset: wait.offset });
    }
    fn info(&self, _: Locked<'_>, sections: &[&[u8]]) -> Arc<[u8]> {
        sections.concat().into()
    }
    fn run_door_command(
        &self,
        _: Locked<'_>,
        _: &Call<'_>,
        _: DoorCommand,
        _: &[u8],
        owner: JobOwner,
        mut reply: Box<dyn JobReply>,
    ) {
        reply.sink().integer(i64::from(owner.db));
        reply.finish();
    }
    fn pubsub(&self, _: Locked<'_>, _: &[&[u8]]) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn run_scripts(
        &self,
        _: Locked<'_>,
        _: &ScriptCaller<'_>,
        work: &mut dyn FnMut(RunScript<'_>),
    ) {
        work(&mut |_, _, _| false);
    }

    fn commands(&self, _: Locked<'_>) -> Vec<(Vec<u8>, HostCommand)> {
        vec![(b"lpush".to_vec(), HostCommand::OfKeys)]
    }
    fn reply_to(&self, _: Locked<'_>, _: &CStr, _: &[&[u8]]) -> Transcript {
        Transcript::default()
    }
    fn config_get(&self, _: Locked<'_>, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        patterns.iter().map(|pattern| (pattern.to_vec(), b"value".to_vec())).collect()
    }
}

/// An engine whose workers and ports run.
pub struct Opened {
    pub engine: Arc<Engine>,
    pub waker: Arc<Waker>,
    pub port: u16,
    pub workers: Vec<JoinHandle<()>>,
}

/// Reads all users again.
pub fn read_users(engine: &Engine) {
    engine.users.refresh(locked(), true, None::<std::iter::Empty<&[u8]>>, |_| false, everything);
}

fn abort_on_panic() {
    eprintln!("a worker panicked");
    std::process::abort();
}

impl Opened {
    pub fn new(workers: usize, shards: usize, safemode: bool) -> Self {
        let port = free_port();
        let ports = PortConfig { listeners: vec![on_tcp(port, false)], ..PortConfig::default() };
        Opened { port, ..Opened::with(workers, shards, safemode, ports, now_ms) }
    }

    /// With these ports and this clock. `port` is then 0.
    pub fn with(
        workers: usize,
        shards: usize,
        safemode: bool,
        ports: PortConfig,
        clock: fn() -> i64,
    ) -> Self {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let config =
            Config { workers, shards, databases: 4, cluster: Cluster::Off, safemode, clock };
        let wake = Arc::clone(&waker);
        let engine =
            Engine::new(config, settings(), Box::new(move || wake.wake())).expect("eventfds");
        let engine = Arc::new(engine);
        engine.ledger.set_gates(locked(), Gates::OPEN);
        engine.context().outside.set_host(Box::new(Played { refused: AtomicUsize::new(0) }));
        engine.users.find_or_look(locked(), DEFAULT_USER, everything).expect("a user");
        read_users(&engine);
        // MIDI_IO, as for tests with a server.
        let uses_io_uring = std::env::var("MIDI_IO").is_ok_and(|driver| driver == "io_uring");
        let wanted = PortConfig { backlog: 511, uses_io_uring, ..ports };
        let ports = net::open(&engine, &wanted, abort_on_panic).expect("ports");
        let workers = Workers::start(&engine, abort_on_panic, ports).expect("threads");
        Opened { engine, waker, port: 0, workers }
    }
}

/// A listener on this machine.
pub fn on_tcp(port: u16, is_tls: bool) -> ListenerRow {
    let at = ListenAt::Tcp { port, bind: vec!["127.0.0.1".into()] };
    ListenerRow { setting: "port", at, is_tls, speaks: Speaks::Resp }
}

/// Does what the host's main thread does for the ports. Returns the number of main-thread tasks.
pub fn run_messages(engine: &Engine) -> usize {
    let mut main_tasks = 0;
    for message in engine.context().main.take(locked()) {
        match message {
            ForMain::Answer(_) => unreachable!("the host's door has no clients here"),
            ForMain::Run(request) => {
                engine.resume_on_main(locked(), request, || panic!("a command panicked"));
                main_tasks += 1;
            }
            ForMain::Task(main_task)
            | ForMain::Write(main_task)
            | ForMain::Interrupt(main_task) => {
                main_task(locked(), engine, engine.context().outside.host());
                main_tasks += 1;
            }
            ForMain::Log => drop(engine.ledger.log_tail(locked())),
            ForMain::Finish(_, reply) => reply.finish(),
        }
    }
    main_tasks
}

/// A number that the ports tell INFO.
pub fn port_number(engine: &Engine, name: &str) -> u64 {
    let mut found = None;
    let ports = engine.context().outside.ports().expect("ports");
    ports.tell(&mut |field, value| {
        if field == name {
            found = value.parse::<u64>().ok();
        }
    });
    found.unwrap_or_else(|| panic!("no number {name}"))
}

fn settings() -> Settings {
    Settings {
        max_value_bytes: AtomicUsize::new(4 << 20),
        keep_bytes: AtomicUsize::new(1 << 20),
        port: PortSettings {
            max_clients: AtomicUsize::new(1000),
            query_limit: AtomicUsize::new(64 << 20),
            first_descriptor: AtomicUsize::new(100),
            ..PortSettings::default()
        },
        ..Settings::default()
    }
}
