//! A proxy that puts `midi.` in front of the commands that midi has, so that programs
//! written for the stock commands use midi's. It can change commands in other ways, too.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use super::client::encoded;
use super::twin::Words;

/// Listens on a free port until the process ends, applies `change` to every command on its way,
/// and returns the port.
pub fn start(
    server_port: u16,
    change: impl Fn(&mut Words) + Send + Sync + 'static,
) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let change: Arc<Change> = Arc::new(change);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let change = Arc::clone(&change);
            // Either side may end a connection at any time.
            thread::spawn(move || drop(connect(client, server_port, &*change)));
        }
    });
    Ok(port)
}

type Change = dyn Fn(&mut Words) + Send + Sync;

fn connect(client: TcpStream, server_port: u16, change: &Change) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server_port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (replies, to_client) = (BufReader::new(server.try_clone()?), client.try_clone()?);
    thread::spawn(move || {
        let _ = pass_replies(replies, &to_client);
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
    let result = pass_commands(BufReader::new(client), &server, change);
    let _ = server.shutdown(std::net::Shutdown::Both);
    result
}

/// Puts the prefix in front of a command's name if it is one of these (in lower case).
pub fn rename(args: &mut Words, renamed: &HashSet<Vec<u8>>) {
    if args.first().is_some_and(|name| renamed.contains(&name.to_ascii_lowercase())) {
        args[0].splice(..0, *b"midi.");
    }
}

fn pass_commands(
    mut from: BufReader<TcpStream>,
    mut to: &TcpStream,
    change: &Change,
) -> io::Result<()> {
    loop {
        let mut args = command(&mut from)?;
        change(&mut args);
        to.write_all(&encoded(&args))?;
    }
}

/// The next command: an array of bulk strings, or a line of words.
fn command(from: &mut impl BufRead) -> io::Result<Words> {
    let line = line(from)?;
    let Some(count) = line.strip_prefix(b"*") else {
        return Ok(line
            .split(u8::is_ascii_whitespace)
            .map(<[u8]>::to_vec)
            .filter(|word| !word.is_empty())
            .collect());
    };
    (0..length(count)?).map(|_| bulk(from)).collect()
}

fn bulk(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let head = line(from)?;
    let mut bytes = vec![0; length(head.strip_prefix(b"$").unwrap_or_default())? + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(bytes.len() - 2);
    Ok(bytes)
}

/// Replies pass unchanged, except for the names in errors.
fn pass_replies(mut from: BufReader<TcpStream>, mut to: &TcpStream) -> io::Result<()> {
    loop {
        let line = line(&mut from)?;
        let text = match line.first() {
            Some(b'-') => String::from_utf8_lossy(&line).replace("'midi.", "'").into_bytes(),
            _ => line.clone(),
        };
        to.write_all(&[&text, b"\r\n".as_slice()].concat())?;
        // A string follows its length; array elements are replies themselves.
        if let [b'$' | b'=', len @ ..] = line.as_slice()
            && len != b"-1"
        {
            io::copy(&mut from.by_ref().take(length(len)? as u64 + 2), &mut to)?;
        }
    }
}

/// The next line without its line end.
fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\n") {
        Some(rest) => Ok(rest.strip_suffix(b"\r").unwrap_or(rest).to_vec()),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn length(text: &[u8]) -> io::Result<usize> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| ErrorKind::InvalidData.into())
}
