//! The promise: what a client has sent of a command takes about as much memory as it has sent, and
//! no more than on the host's port. All of it is free again when the command has run, or when the
//! client has left.

use crate::common::port::Ported;
use crate::common::{Builder, Client, Value, wait_until};

const MIB: usize = 1 << 20;
/// The bytes that each client sends of its value.
const SENT: usize = 9 * MIB;
const CLIENTS: usize = 12;

fn used(client: &mut Client) -> usize {
    client.info_number("memory", "used_memory") as usize
}

/// The input of all clients that has not been run, as CLIENT LIST says.
fn waiting(client: &mut Client) -> usize {
    let list = client.run("CLIENT LIST").text();
    let sizes = list.split(' ').filter_map(|field| field.strip_prefix("qbuf="));
    sizes.map(|bytes| bytes.parse::<usize>().expect("a number")).sum()
}

fn unfinished(announced: usize) -> Vec<u8> {
    let mut text = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${announced}\r\n").into_bytes();
    text.resize(text.len() + SENT, b'x');
    text
}

/// Begun commands take little memory, which is free again once their clients have left.
fn taken(connect: impl Fn() -> Client, host: &mut Client) -> usize {
    let start = used(host);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
    clients.iter_mut().for_each(|client| client.send(&unfinished(SENT + 100)));
    let mut reader = connect();
    wait_until("all has arrived", || waiting(&mut reader) >= CLIENTS * SENT);
    let taken = used(host).saturating_sub(start);
    drop(clients);
    wait_until("all is free", || used(host) < start + 3 * MIB);
    taken
}

#[test]
fn the_beginning_of_a_command_takes_what_was_sent() {
    let ported = Ported::start(Builder::new().load("threads 2"));
    let mut host = ported.host();
    let natives = taken(|| ported.host(), &mut host);
    let midis = taken(|| ported.client(), &mut host);
    assert!(midis * 5 <= natives * 6, "{midis} bytes, at the host's port {natives}");
}

/// Announcing a length costs a client nothing.
#[test]
fn announced_arguments_take_no_more_than_three_times_the_bytes_sent() {
    let ported = Ported::start(Builder::new().load("threads 2"));
    let (mut host, mut client, mut reader) = (ported.host(), ported.client(), ported.client());
    let start = used(&mut host);
    client.send(&unfinished(500 * MIB));
    wait_until("all has arrived", || waiting(&mut reader) >= SENT);
    let taken = used(&mut host).saturating_sub(start);
    assert!(taken < 4 * SENT + MIB, "{taken} bytes for {SENT}");
}

#[test]
fn the_room_of_a_command_is_not_kept_for_the_next() {
    let ported = Ported::start(Builder::new().load("threads 2"));
    let (mut host, mut client) = (ported.host(), ported.client());
    let start = used(&mut host);
    client.send(&unfinished(SENT));
    client.send(b"\r\n*2\r\n$3\r\nGET\r\n$20000\r\nthe name of a key");
    assert_eq!(client.read(), Value::ok());
    wait_until("only the value is left", || used(&mut host) < start + SENT + SENT / 4 + MIB);
}
