//! The promise: FAILOVER while memcached's clients write loses nothing that they were told, `cas`
//! included, and nothing happens twice.

use std::sync::Mutex;

use crate::common::memcached::{Memcached, WithMemcached};
use crate::common::replicas::{follow, must_become_equal, wait_for_role};
use crate::common::{Builder, at_once, wait_until};

/// Writers, each with keys of its own.
const WRITERS: usize = 2;

/// What a writer was told.
#[derive(Default)]
struct Told {
    /// Items with flags that it has set.
    items: usize,
    /// How often it has changed its number by `cas`.
    changes: usize,
}

/// The number of the last change of a key. `None` if the server refuses, or has ended the
/// connection.
fn number_of(client: &mut Memcached, key: &str) -> Option<String> {
    client.try_send(format!("gets {key}\r\n").as_bytes()).ok()?;
    let head = client.try_read_line()?;
    let number = head.strip_prefix("VALUE ")?.rsplit(' ').next()?.to_owned();
    client.try_read_line()?;
    client.try_read_line().map(|_| number)
}

fn is_stored(client: &mut Memcached, sent: &str) -> Option<()> {
    client.try_send(sent.as_bytes()).ok()?;
    (client.try_read_line()? == "STORED").then_some(())
}

/// Writes until it is refused.
fn write(client: &mut Memcached, writer: usize, told: &Mutex<[Told; WRITERS]>) -> Option<()> {
    let chain = format!("chain-{writer}");
    is_stored(client, &format!("set {chain} 0 0 1\r\n0\r\n"))?;
    for number in 0.. {
        is_stored(client, &format!("set {writer}-{number} {number} 0 1\r\nx\r\n"))?;
        told.lock().expect("whole")[writer].items += 1;
        let (change, last) = ((number + 1).to_string(), number_of(client, &chain)?);
        let length = change.len();
        is_stored(client, &format!("cas {chain} 0 0 {length} {last}\r\n{change}\r\n"))?;
        told.lock().expect("whole")[writer].changes += 1;
    }
    None
}

#[test]
fn what_clients_were_told_survives_a_failover() {
    for fsync in ["always", "everysec"] {
        let logging =
            || Builder::new().config("appendonly yes").config(format!("appendfsync {fsync}"));
        let [master, replica] = [logging(), logging()].map(WithMemcached::start);
        follow(&replica.server, master.server.port());
        let told: Mutex<[Told; WRITERS]> = Mutex::default();
        at_once(WRITERS + 1, |writer| {
            if writer < WRITERS {
                write(&mut master.client(), writer, &told);
                return;
            }
            wait_until("both have written", || {
                told.lock().expect("whole").iter().all(|told| told.changes > 100)
            });
            master.server.client().ok("FAILOVER");
        });
        wait_for_role(&replica.server, true);
        wait_for_role(&master.server, false);
        must_become_equal(&[&replica.server, &master.server], fsync);
        let mut client = replica.client();
        for (writer, told) in told.into_inner().expect("whole").into_iter().enumerate() {
            for number in 0..told.items {
                let said = client.lines(&format!("get {writer}-{number}\n"));
                assert_eq!(said, format!("VALUE {writer}-{number} {number} 1\nx\nEND\n"));
            }
            let chain = client.lines(&format!("get chain-{writer}\n"));
            let value: usize = chain.lines().nth(1).and_then(|it| it.parse().ok()).expect("it");
            // The last one may have been done without an answer.
            assert!((told.changes..=told.changes + 1).contains(&value), "{fsync}: {chain}");
        }
    }
}
