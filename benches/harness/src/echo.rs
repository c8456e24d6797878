//! The floor: an epoll server that parses nothing and answers with a fixed reply for every request
//! of a given number of bytes.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::Result;
use clap::Args;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

/// Answers a fixed reply for every so many bytes received, without looking at them.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The port, on the loopback interface
    #[arg(long, default_value_t = 7777)]
    pub port: u16,
    /// Bytes of one request
    #[arg(long)]
    pub request_bytes: usize,
    /// Bytes of the value that is answered, as a RESP bulk string
    #[arg(long, default_value_t = 64)]
    pub value_bytes: usize,
}

/// Bytes per read, as in Redis.
const READ_BYTES: usize = 16 << 10;

/// Marks the listener among the events.
const LISTENER: u64 = u64::MAX;

struct Client {
    socket: TcpStream,
    /// Bytes of an incomplete request.
    part: usize,
}

/// Serves until it is killed.
///
/// # Errors
/// The port is taken, or the system's.
pub fn serve(options: &Options) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let replies = replies(options);
    let reply_bytes = replies.len() / (READ_BYTES / options.request_bytes + 1);
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            if event.data.u64() == LISTENER {
                let (socket, _) = listener.accept()?;
                socket.set_nodelay(true)?;
                let number = clients.len() as u64;
                epoll::add(
                    &epoll,
                    &socket,
                    epoll::EventData::new_u64(number),
                    epoll::EventFlags::IN,
                )?;
                clients.push(Some(Client { socket, part: 0 }));
                continue;
            }
            let slot = &mut clients[event.data.u64() as usize];
            let Some(client) = slot else { continue };
            let count = match rustix::io::read(&client.socket, &mut buffer[..]) {
                Err(Errno::INTR) => continue,
                Ok(0) | Err(_) => {
                    *slot = None;
                    continue;
                }
                Ok(count) => count,
            };
            let bytes = client.part + count;
            client.part = bytes % options.request_bytes;
            let answers = bytes / options.request_bytes;
            // A client that does not read blocks all others: this server is for benchmarks only.
            if answers > 0 && client.socket.write_all(&replies[..answers * reply_bytes]).is_err() {
                *slot = None;
            }
        }
    }
}

/// As many replies as one read can ask for.
fn replies(options: &Options) -> Vec<u8> {
    let reply = format!("${}\r\n{}\r\n", options.value_bytes, "x".repeat(options.value_bytes));
    reply.repeat(READ_BYTES / options.request_bytes + 1).into_bytes()
}
