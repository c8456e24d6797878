//! What both drivers promise, with sockets of this process.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{Driver, Epoll, Happened, Received, Sent, Uring};
use crate::sync::Waker;

/// Sockets whose other ends the test has.
struct Pairs<D> {
    driver: D,
    sockets: Vec<OwnedFd>,
    peers: Vec<UnixStream>,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl<D: Driver> Pairs<D> {
    /// So many, marked by their numbers.
    fn new(mut driver: D, count: usize) -> Self {
        let (mut sockets, mut peers) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (socket, peer) = UnixStream::pair().expect("sockets");
            socket.set_nonblocking(true).expect("an option");
            let socket = OwnedFd::from(socket);
            driver.add(number as u64, &socket).expect("watched");
            sockets.push(socket);
            peers.push(peer);
        }
        // A driver belongs to the thread that waits with it.
        driver.wait(Duration::ZERO, &mut Vec::new());
        Pairs { driver, sockets, peers }
    }

    /// Waits until this has happened to a socket, and returns what has.
    fn until(&mut self, number: usize, is_it: impl Fn(&Happened) -> bool) -> Happened {
        let started = Instant::now();
        loop {
            let mut happened = Vec::new();
            self.driver.wait(Duration::from_millis(10), &mut happened);
            if let Some(it) = happened.iter().find(|it| it.mark == number as u64 && is_it(it)) {
                return *it;
            }
            assert!(started.elapsed() < PATIENCE, "nothing happened to {number}: {happened:?}");
        }
    }

    fn receive(&mut self, number: usize, into: &mut Vec<u8>, most: usize) -> Received {
        self.driver.receive(&self.sockets[number], into, most)
    }

    /// Receives so many bytes, in pieces of at most `piece`.
    fn receive_all(&mut self, number: usize, count: usize, piece: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(count + piece.min(100_000));
        let started = Instant::now();
        while all.len() < count {
            let most = if piece == usize::MAX { piece } else { piece.min(count - all.len()) };
            match self.receive(number, &mut all, most) {
                Received::More(_) => {}
                Received::All(_) => self.driver.wait(Duration::from_millis(1), &mut Vec::new()),
                Received::End => panic!("it has ended after {} bytes", all.len()),
            }
            assert!(started.elapsed() < PATIENCE, "{} of {count} bytes have come", all.len());
        }
        all
    }
}

/// Bytes that are not like those beside them.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Runs a test on each driver.
fn on_both(epoll: impl FnOnce(Epoll), uring: impl FnOnce(Uring)) {
    let waker = Waker::new().expect("a waker");
    epoll(Epoll::new(&waker, 0).expect("epoll"));
    match Uring::try_out() {
        Ok(()) => uring(Uring::new(&waker, 0).expect("a ring")),
        Err(reason) => println!("SKIPPED: io_uring: {reason}"),
    }
}

#[test]
fn input_is_reported_and_received() {
    fn test(driver: impl Driver) {
        let mut pairs = Pairs::new(driver, 3);
        for round in 0..3 {
            pairs.peers[1].write_all(b"hello").expect("sent");
            let happened = pairs.until(1, |it| it.input);
            assert!(!happened.ended);
            let mut got = Vec::with_capacity(100);
            assert_eq!(pairs.receive(1, &mut got, usize::MAX), Received::All(5), "{round}");
            assert_eq!(got, b"hello");
            assert_eq!(pairs.receive(1, &mut got, usize::MAX), Received::All(0));
            assert_eq!(pairs.receive(0, &mut got, usize::MAX), Received::All(0));
        }
    }
    on_both(test, test);
}

#[test]
fn input_that_does_not_fit_is_kept() {
    fn test(driver: impl Driver) {
        let mut pairs = Pairs::new(driver, 1);
        pairs.peers[0].write_all(&pattern(1000)).expect("sent");
        pairs.until(0, |it| it.input);
        let mut got = Vec::with_capacity(300);
        assert_eq!(pairs.receive(0, &mut got, usize::MAX), Received::More(got.capacity()));
        let rest = pairs.receive_all(0, 1000 - got.len(), 128);
        assert_eq!([got, rest].concat(), pattern(1000));
    }
    on_both(test, test);
}

#[test]
fn the_pieces_of_a_large_value_are_received_in_place() {
    fn test(driver: impl Driver) {
        let mut pairs = Pairs::new(driver, 1);
        let all = pattern(700_000);
        for round in 0..3 {
            let (mut peer, sent) = (pairs.peers[0].try_clone().expect("a socket"), all.clone());
            let sender = std::thread::spawn(move || peer.write_all(&sent).expect("sent"));
            pairs.until(0, |it| it.input);
            let mut got = Vec::with_capacity(3000);
            while got.is_empty() {
                pairs.receive(0, &mut got, usize::MAX);
            }
            let mut value = pairs.receive_all(0, all.len() - got.len() - 10, 1000);
            sender.join().expect("sent");
            value.extend(pairs.receive_all(0, 10, usize::MAX));
            got.extend(value);
            assert!(got == all, "{round}");
        }
    }
    on_both(test, test);
}

#[test]
fn the_end_is_reported_behind_the_input() {
    fn test(driver: impl Driver) {
        let mut pairs = Pairs::new(driver, 2);
        pairs.peers[0].write_all(b"last words").expect("sent");
        pairs.peers[0].shutdown(Shutdown::Write).expect("shut down");
        pairs.until(0, |it| it.ended && it.input);
        assert_eq!(pairs.receive_all(0, 10, usize::MAX), b"last words");
        let (mut got, started) = (Vec::with_capacity(10), Instant::now());
        while pairs.receive(0, &mut got, usize::MAX) != Received::End {
            pairs.driver.wait(Duration::from_millis(1), &mut Vec::new());
            assert!(started.elapsed() < PATIENCE);
        }
        // It can still be sent to.
        assert_eq!(pairs.driver.send(&pairs.sockets[0], b"bye"), Sent::Bytes(3));
        let mut read = [0; 3];
        pairs.peers[0].read_exact(&mut read).expect("read");
        assert_eq!(&read, b"bye");
        pairs.peers.pop();
        pairs.until(1, |it| it.ended);
    }
    on_both(test, test);
}

#[test]
fn what_is_sent_ahead_is_sent_once() {
    fn test(driver: impl Driver) {
        let mut pairs = Pairs::new(driver, 20);
        pairs.peers.truncate(19);
        for round in 0..3u8 {
            let said: Vec<Vec<u8>> = (0..20u8).map(|number| vec![number, round]).collect();
            pairs.driver.send_ahead(pairs.sockets.iter().zip(&said).map(|(s, b)| (s, &b[..])));
            for (number, said) in said.iter().enumerate() {
                let sent = pairs.driver.send(&pairs.sockets[number], said);
                let expected = if number == 19 { Sent::Broken } else { Sent::Bytes(2) };
                assert_eq!(sent, expected, "{number}");
            }
            // Directly.
            assert_eq!(pairs.driver.send(&pairs.sockets[3], b"!"), Sent::Bytes(1));
        }
        for (number, peer) in pairs.peers.iter_mut().enumerate() {
            let mut read = vec![0; if number == 3 { 9 } else { 6 }];
            peer.read_exact(&mut read).expect("read");
            let number = number as u8;
            let all = match number {
                3 => vec![3, 0, b'!', 3, 1, b'!', 3, 2, b'!'],
                _ => vec![number, 0, number, 1, number, 2],
            };
            assert_eq!(read, all);
        }
    }
    on_both(test, test);
}

#[test]
fn a_peer_that_does_not_read_gets_the_rest_later() {
    fn test(driver: impl Driver) {
        let mut pairs = Pairs::new(driver, 2);
        let all = pattern(1 << 20);
        pairs.driver.send_ahead(pairs.sockets.iter().map(|socket| (socket, &all[..])));
        pairs.peers[0].set_nonblocking(true).expect("an option");
        let (mut sent, mut got, mut reports, started) = (0, Vec::new(), 0, Instant::now());
        while got.len() < all.len() {
            let Sent::Bytes(now) = pairs.driver.send(&pairs.sockets[0], &all[sent..]) else {
                panic!("it is broken after {sent} bytes");
            };
            sent += now;
            let _ = pairs.peers[0].read_to_end(&mut got);
            let mut happened = Vec::new();
            pairs.driver.wait(Duration::from_millis(1), &mut happened);
            reports += happened.iter().filter(|it| it.mark == 0 && it.room).count();
            assert!(started.elapsed() < PATIENCE, "{} bytes have come", got.len());
        }
        assert!(got == all && reports > 0);
    }
    on_both(test, test);
}

#[test]
fn a_waker_ends_the_wait() {
    fn test(mut driver: impl Driver, waker: &Waker) {
        for _ in 0..3 {
            waker.wake();
            let started = Instant::now();
            // Without the waker it would be as long as the ticker's.
            driver.wait(Duration::from_secs(100), &mut Vec::new());
            assert!(started.elapsed() < PATIENCE);
        }
    }
    let waker = Waker::new().expect("a waker");
    test(Epoll::new(&waker, 0).expect("epoll"), &waker);
    if Uring::try_out().is_ok() {
        test(Uring::new(&waker, 0).expect("a ring"), &waker);
    }
}

#[test]
fn a_listener_is_reported_until_nobody_waits_there() {
    fn test(mut driver: impl Driver) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let descriptor = OwnedFd::from(listener.try_clone().expect("a copy"));
        driver.add_listener(7, &descriptor).expect("watched");
        let _waiting: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(address).expect("connected")).collect();
        for _ in 0..3 {
            let (mut happened, started) = (Vec::new(), Instant::now());
            while happened.is_empty() {
                driver.wait(Duration::from_millis(10), &mut happened);
                assert!(started.elapsed() < PATIENCE);
            }
            assert!(happened.iter().all(|it| it.mark == 7 && it.input), "{happened:?}");
            listener.accept().expect("accepted");
        }
        let mut happened = Vec::new();
        driver.wait(Duration::ZERO, &mut happened);
        happened.clear();
        driver.wait(Duration::ZERO, &mut happened);
        assert_eq!(happened, []);
        driver.remove(&descriptor);
        let _late = std::net::TcpStream::connect(address).expect("connected");
        driver.wait(Duration::from_millis(5), &mut happened);
        assert_eq!(happened, [], "it is not watched any more");
    }
    on_both(test, test);
}
