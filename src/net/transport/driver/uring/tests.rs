//! What only this driver must stand: a ring that is full, buffers that run out, requests that end
//! after their connection.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::buffers::Buffers;
use super::ring::Ring;
use super::*;
use crate::sync::Waker;

/// A driver whose ring and buffers are small; `None` if this system has no io_uring.
fn small(requests: u32, completions: u32, buffers: u16) -> Option<Uring> {
    if let Err(reason) = Uring::try_out() {
        println!("SKIPPED: io_uring: {reason}");
        return None;
    }
    let waker = Waker::new().expect("a waker");
    let ring = Ring::sized(requests, completions).expect("a ring");
    let buffers = Buffers::new(&ring, buffers).expect("buffers");
    let mut driver = Uring::with(&waker, 0, ring, buffers).expect("a driver");
    driver.wait(Duration::ZERO, &mut Vec::new());
    Some(driver)
}

/// A connection, and what is known of it.
struct Talk {
    socket: OwnedFd,
    peer: UnixStream,
    sent: usize,
    received: usize,
    readable: bool,
}

fn talk(driver: &mut Uring, number: usize) -> Talk {
    let (socket, peer) = UnixStream::pair().expect("sockets");
    socket.set_nonblocking(true).expect("an option");
    peer.set_nonblocking(true).expect("an option");
    let socket = OwnedFd::from(socket);
    driver.add(number as u64, &socket).expect("watched");
    Talk { socket, peer, sent: 0, received: 0, readable: false }
}

/// The byte at this place of what a connection sends.
fn byte(number: usize, at: usize) -> u8 {
    (number * 97 + at * 31 + at / 251) as u8
}

/// Receives once, as a port does, and compares.
fn receive(driver: &mut Uring, talks: &mut [Talk], number: usize, piece: usize, most: usize) {
    let talk = &mut talks[number];
    let mut got = Vec::with_capacity(piece);
    let received = driver.receive(&talk.socket, &mut got, most);
    talk.readable = matches!(received, Received::More(_));
    assert_ne!(received, Received::End, "{number}");
    for byte_got in got {
        assert_eq!(byte_got, byte(number, talk.received), "{number}, at {}", talk.received);
        talk.received += 1;
    }
}

fn send(talk: &mut Talk, number: usize, count: usize) {
    let bytes: Vec<u8> = (talk.sent..talk.sent + count).map(|at| byte(number, at)).collect();
    if let Ok(sent) = talk.peer.write(&bytes) {
        talk.sent += sent;
    }
}

/// Random connections, on a ring with these sizes: all that is sent comes, in order, and no buffer
/// is lost.
fn play(requests: u32, completions: u32, buffers: u16, seed: u64) {
    let Some(mut driver) = small(requests, completions, buffers) else { return };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut talks: Vec<Talk> = (0..30).map(|number| talk(&mut driver, number)).collect();
    for _ in 0..150 {
        for _ in 0..random.usize(..20) {
            let number = random.usize(..talks.len());
            let magnitude = random.u32(1..16);
            let count = random.usize(1..1 << magnitude);
            match random.u32(..12) {
                // It dies, and another one has its descriptor.
                0 => {
                    driver.remove(&talks[number].socket);
                    let mut others = talks.split_off(number).into_iter();
                    drop(others.next());
                    talks.push(talk(&mut driver, number));
                    talks.extend(others);
                }
                // Nobody receives from it for a while.
                1..8 => send(&mut talks[number], number, count),
                8 if talks[number].readable => {
                    receive(&mut driver, &mut talks, number, count, count);
                }
                _ if talks[number].readable => {
                    receive(&mut driver, &mut talks, number, count, usize::MAX);
                }
                _ => {}
            }
        }
        let mut happened = Vec::new();
        driver.wait(Duration::ZERO, &mut happened);
        for it in happened.iter().filter(|it| it.input) {
            talks[it.mark as usize].readable = true;
        }
    }
    let started = Instant::now();
    while talks.iter().any(|talk| talk.received < talk.sent) {
        for number in 0..talks.len() {
            if talks[number].readable {
                let exact = random.bool();
                receive(&mut driver, &mut talks, number, 5000, if exact { 3000 } else { 9000 });
            }
        }
        let mut happened = Vec::new();
        driver.wait(Duration::from_millis(1), &mut happened);
        for it in happened.iter().filter(|it| it.input) {
            talks[it.mark as usize].readable = true;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "some bytes have not come");
    }
    for talk in talks {
        driver.remove(&talk.socket);
    }
    for _ in 0..100 {
        driver.wait(Duration::from_millis(1), &mut Vec::new());
        if driver.buffers.are_all_given() {
            return;
        }
    }
    panic!("some buffers are lost");
}

#[test]
fn a_full_ring_loses_nothing() {
    for seed in 0..2 {
        play(4, 8, 64, seed);
        play(16, 32, 64, seed + 10);
    }
}

#[test]
fn buffers_that_run_out_lose_nothing() {
    for seed in 0..2 {
        play(64, 256, 1, seed);
        play(64, 256, 8, seed);
    }
}

#[test]
fn connections_come_and_go() {
    for seed in 0..2 {
        play(512, 4096, 1024, seed);
    }
}

#[test]
fn without_buffers_it_does_not_spin() {
    let Some(mut driver) = small(64, 256, 2) else { return };
    let mut talks: Vec<Talk> = (0..3).map(|number| talk(&mut driver, number)).collect();
    // Two connections have all buffers, and nobody receives from them.
    send(&mut talks[0], 0, 5000);
    let started = Instant::now();
    while !driver.buffers.are_few() {
        driver.wait(Duration::from_millis(1), &mut Vec::new());
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    for round in 1..20 {
        send(&mut talks[2], 2, 100);
        while talks[2].received < 100 * round {
            receive(&mut driver, &mut talks, 2, 5000, usize::MAX);
            driver.wait(Duration::from_millis(1), &mut Vec::new());
            assert!(started.elapsed() < Duration::from_secs(20));
        }
        receive(&mut driver, &mut talks, 2, 5000, usize::MAX);
    }
    // Nothing happens now, so that no wait is cut short but by the ticker.
    driver.wait(Duration::ZERO, &mut Vec::new());
    let (mut waits, started) = (0, Instant::now());
    while started.elapsed() < Duration::from_millis(50) {
        driver.wait(Duration::from_millis(10), &mut Vec::new());
        waits += 1;
    }
    assert!(waits < 20, "{waits}");
}

#[test]
fn one_that_nobody_receives_from_is_told_to_wait() {
    let Some(mut driver) = small(64, 256, 64) else { return };
    let mut talks = vec![talk(&mut driver, 0)];
    let started = Instant::now();
    while driver.endpoints[talks[0].socket.as_raw_fd()].reading != Reading::Idle {
        send(&mut talks[0], 0, 4096);
        driver.wait(Duration::from_millis(1), &mut Vec::new());
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    assert!(driver.endpoints[talks[0].socket.as_raw_fd()].received.count >= RECEIVED_UNTAKEN);
    while talks[0].received < talks[0].sent {
        receive(&mut driver, &mut talks, 0, 10_000, usize::MAX);
        driver.wait(Duration::ZERO, &mut Vec::new());
    }
    assert_eq!(driver.endpoints[talks[0].socket.as_raw_fd()].reading, Reading::Streaming);
}

/// A connection that ends before its request for input has been submitted takes nothing from the
/// one that has its descriptor next.
#[test]
fn a_late_request_takes_nothing_from_another_connection() {
    let Some(mut driver) = small(64, 256, 64) else { return };
    let mut talks = vec![talk(&mut driver, 0)];
    let descriptor = talks[0].socket.as_raw_fd();
    driver.wait(Duration::ZERO, &mut Vec::new());
    let started = Instant::now();
    while driver.endpoints[descriptor].reading != Reading::Idle {
        send(&mut talks[0], 0, 4096);
        driver.wait(Duration::from_millis(1), &mut Vec::new());
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    while talks[0].received < talks[0].sent {
        receive(&mut driver, &mut talks, 0, 10_000, usize::MAX);
    }
    // Nothing is left: the next input is asked for.
    receive(&mut driver, &mut talks, 0, 10_000, usize::MAX);
    assert_eq!(driver.endpoints[descriptor].reading, Reading::Streaming);
    driver.remove(&talks[0].socket);
    let (other, peer) = UnixStream::pair().expect("sockets");
    other.set_nonblocking(true).expect("an option");
    (&peer).write_all(&[byte(0, 0), byte(0, 1)]).expect("written");
    // Ends the one, and gives its descriptor to the other.
    let mut socket = talks.remove(0).socket;
    rustix::io::dup2(&other, &mut socket).expect("the descriptor");
    driver.add(0, &socket).expect("watched");
    talks.push(Talk { socket, peer, sent: 2, received: 0, readable: false });
    while talks[0].received < 2 {
        driver.wait(Duration::from_millis(1), &mut Vec::new());
        receive(&mut driver, &mut talks, 0, 10_000, usize::MAX);
        assert!(started.elapsed() < Duration::from_secs(20), "its bytes are gone");
    }
}

#[test]
fn a_ring_that_fails_ends_its_connections() {
    let Some(mut driver) = small(64, 256, 64) else { return };
    let mut talks = vec![talk(&mut driver, 0)];
    // A ring is its first thread's own.
    let (mut driver, failed) = std::thread::spawn(move || {
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            driver.wait(Duration::ZERO, &mut Vec::new());
        }));
        (driver, failed.is_err())
    })
    .join()
    .expect("ended");
    assert!(failed);
    let mut happened = Vec::new();
    driver.wait(Duration::ZERO, &mut happened);
    assert!(happened.iter().any(|it| it.mark == 0 && it.ended && it.input), "{happened:?}");
    let talk = talks.pop().expect("one");
    driver.send_ahead([(&talk.socket, &b"x"[..])].into_iter());
    assert_eq!(driver.send(&talk.socket, b"x"), Sent::Broken);
    assert_eq!(driver.receive(&talk.socket, &mut Vec::with_capacity(9), 9), Received::End);
}
