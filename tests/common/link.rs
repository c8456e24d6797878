//! The link between a replica and its master, which a test can cut, close and falsify.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// See above. It passes everything until a test says otherwise.
pub struct Link {
    port: u16,
    state: Arc<State>,
}

struct State {
    master: u16,
    /// A connection breaks after so many bytes from the master.
    most: AtomicU64,
    /// Connections that broke for that reason.
    broken: AtomicU64,
    /// All that the master sends is lost.
    swallows: AtomicBool,
    /// New connections end at once.
    closed: AtomicBool,
    /// The second bytes take the place of the first from the master; both are of one length.
    falsified: Mutex<Option<[Vec<u8>; 2]>>,
    open: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// A link to the server on this port. It listens until the process ends.
    pub fn to(master: u16) -> Link {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(State {
            master,
            most: AtomicU64::new(u64::MAX),
            broken: AtomicU64::new(0),
            swallows: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            falsified: Mutex::new(None),
            open: Mutex::new(Vec::new()),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for replica in listener.incoming().flatten() {
                // Either side may end a connection at any time.
                let _ = connect(&replica, &shared);
            }
        });
        Link { port, state }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends all connections, and new ones as they come.
    pub fn close(&self) {
        self.state.closed.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Undoes [`Link::close`].
    pub fn open(&self) {
        self.state.closed.store(false, Ordering::Relaxed);
    }

    /// From now on, what the master sends is lost, but its connections stay.
    pub fn swallow(&self) {
        self.state.swallows.store(true, Ordering::Relaxed);
    }

    /// Has connections break after so many bytes from the master; `u64::MAX` for never.
    pub fn break_after(&self, bytes: u64) {
        self.state.most.store(bytes, Ordering::Relaxed);
    }

    /// How many connections broke at that limit.
    pub fn broken(&self) -> u64 {
        self.state.broken.load(Ordering::Relaxed)
    }

    /// Puts `after` in the place of `before`, which is as long, in what the master sends.
    ///
    /// `before` must not begin with a hexadecimal digit. A transfer of unknown length ends with a
    /// mark of random ones, after which nothing comes: the link would hold back the last of them.
    pub fn falsify(&self, before: &[u8], after: &[u8]) {
        assert_eq!(before.len(), after.len());
        assert!(!before[0].is_ascii_hexdigit(), "the end of a mark could be its beginning");
        *self.state.falsified.lock().unwrap() = Some([before.to_vec(), after.to_vec()]);
    }

    /// Undoes [`Link::falsify`].
    pub fn be_honest(&self) {
        *self.state.falsified.lock().unwrap() = None;
    }
}

fn connect(replica: &TcpStream, state: &Arc<State>) -> io::Result<()> {
    if state.closed.load(Ordering::Relaxed) {
        return replica.shutdown(Shutdown::Both);
    }
    let master = TcpStream::connect(("127.0.0.1", state.master))?;
    replica.set_nodelay(true)?;
    master.set_nodelay(true)?;
    state.open.lock().unwrap().push(replica.try_clone()?);
    let (mut from, mut to) = (replica.try_clone()?, master.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let (to, state) = (replica.try_clone()?, Arc::clone(state));
    thread::spawn(move || {
        let _ = pass(&master, &to, &state);
        let _ = to.shutdown(Shutdown::Both);
        let _ = master.shutdown(Shutdown::Both);
    });
    Ok(())
}

/// Passes what the master sends.
fn pass(mut from: &TcpStream, mut to: &TcpStream, state: &State) -> io::Result<()> {
    let (mut buffer, mut waiting, mut passed) = (vec![0; 1 << 16], Vec::new(), 0);
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return to.write_all(&waiting);
        }
        if state.swallows.load(Ordering::Relaxed) {
            waiting.clear();
            continue;
        }
        waiting.extend_from_slice(&buffer[..len]);
        let ready = ready(&mut waiting, state.falsified.lock().unwrap().as_ref());
        let left = state.most.load(Ordering::Relaxed).saturating_sub(passed);
        let now = (ready as u64).min(left) as usize;
        to.write_all(&waiting[..now])?;
        if now < ready {
            state.broken.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        passed += now as u64;
        waiting.drain(..now);
    }
}

/// Falsifies what has come. Returns how much of it can be passed on: the end may be the beginning
/// of what is to be falsified.
fn ready(waiting: &mut [u8], falsified: Option<&[Vec<u8>; 2]>) -> usize {
    let Some([before, after]) = falsified else { return waiting.len() };
    let mut at = 0;
    while at < waiting.len() {
        let rest = &mut waiting[at..];
        if rest.starts_with(before) {
            rest[..after.len()].copy_from_slice(after);
            at += after.len();
        } else if before.starts_with(rest) {
            return at;
        } else {
            at += 1;
        }
    }
    at
}
